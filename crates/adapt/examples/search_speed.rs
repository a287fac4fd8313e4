//! Time that the search takes for 2 cores with 4 tables, where it anneals, up to 1,024 cores with 9 tables, with 10
//! sub-partitions per worker and table.
//!
//! `cargo run --release -p atrapos-adapt --example search_speed`
//!
//! With three numbers, `TABLES SLICES REPEATS`, it makes that many equal plans for two workers with the controller's
//! settings and says nothing of time: for counting instructions, where the difference of two runs is that of their
//! repeats. With a fourth, `SOCKETS`, for so many sockets of ten workers.
#![expect(
    clippy::disallowed_types,
    reason = "this program measures the library, which itself reads no clock"
)]
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

use atrapos_adapt::{ControllerSettings, PlannedScheme, Platform, Settings, SyncPoint, Workload, plan};
use atrapos_topology::Machine;
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<usize> = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    match numbers[..] {
        [tables, slices, repeats] => return repeat("core:2 pu:1", tables, slices, repeats),
        [tables, slices, repeats, sockets] => {
            return repeat(&format!("pack:{sockets} core:10 pu:1"), tables, slices, repeats);
        }
        _ => {}
    }
    for (machine, tables) in [
        ("core:2 pu:1", 4),
        ("pack:8 core:10 pu:1", 4),
        ("pack:2 l3:8 core:8 pu:1", 4),
        ("pack:8 l3:8 core:16 pu:1", 9),
    ] {
        let description = Machine::synthetic(machine)?;
        let workers = description.cores().len();
        let from = Instant::now();
        let platform = Platform::for_workers(&description, workers)?;
        let platform_ms = from.elapsed().as_secs_f64() * 1e3;
        for skewed in [false, true] {
            let workload = statistics(tables, workers * 10, skewed)?;
            let today = PlannedScheme::naive(&workload, &platform);
            let from = Instant::now();
            let plan = plan(&workload, &platform, &today, &Settings::default())?;
            println!(
                "{workers} workers, {tables} tables, {}: platform {platform_ms:.1} ms, plan {:.1} ms, objective {:.4} -> {:.4}, {} steps",
                if skewed { "skewed" } else { "uniform" },
                from.elapsed().as_secs_f64() * 1e3,
                plan.before.objective,
                plan.after.objective,
                plan.steps.len()
            );
        }
    }
    Ok(())
}

/// Plans for one machine, as a running database makes them.
fn repeat(machine: &str, tables: usize, slices: usize, repeats: usize) -> Result<(), Box<dyn Error>> {
    let description = Machine::synthetic(machine)?;
    let platform = Platform::for_workers(&description, description.cores().len())?;
    let workload = statistics(tables, slices, true)?;
    let today = PlannedScheme::naive(&workload, &platform);
    let settings = ControllerSettings::default().planning;
    for _ in 0..repeats {
        let plan = plan(&workload, &platform, &today, &settings)?;
        println!("objective {:.6} -> {:.6}", plan.before.objective, plan.after.objective);
    }
    Ok(())
}

/// Tables that synchronize at equal positions, every second one with one sub-partition in a hundred elsewhere.
fn statistics(tables: usize, slices: usize, skewed: bool) -> Result<Workload, Box<dyn Error>> {
    let weight = |slice: usize| if skewed && slice < slices / 5 { 4.0 } else { 1.0 };
    let costs = (0..tables).map(|table| {
        let cycles = 600_000.0 + 100_000.0 * table as f64;
        (format!("table-{table}"), (0..slices).map(|slice| cycles * weight(slice)).collect())
    });
    let mut points = Vec::new();
    for slice in 0..slices {
        for table in 1..tables {
            let elsewhere = if table % 2 == 0 && slice % 100 == 99 { (slice * 31) % slices } else { slice };
            let partners = vec![slice as u32, (table * slices + elsewhere) as u32];
            let count = 200.0 * weight(slice);
            points.push(SyncPoint { partners, bytes: count * 32.0, count, again: 0.0 });
        }
    }
    Ok(Workload::new(costs.collect(), points, 1.0)?)
}
