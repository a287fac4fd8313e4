//! The figures of structures in virtual domains, and their commands.
//!
//! Owns: the arguments of `bench domains` for each point. Never: measures.

use atrapos_domain_loads::{Design, Mix};
use atrapos_structures::{Access, Kind as Structure};
use atrapos_workloads::tpcc::parameters::Remote;

use super::{Figure, Head, Measure, Position, grid, named, option, words};
use crate::args::islands::{
    DomainsBurstArgs, DomainsDesignsArgs, DomainsStructuresArgs, DomainsTablesArgs, DomainsTpccArgs,
    DomainsTpccThreadsArgs, IslandsArgs,
};

/// Returns the clients, and the workers of all domains, when there are to be so many threads: half and half, at least one of each.
fn divided(threads: usize) -> (usize, usize) {
    let clients = (threads / 2).max(1);
    (clients, threads.saturating_sub(clients).max(1))
}

/// Returns the threads of a point, and its benchmark.
fn point(
    common: &IslandsArgs,
    threads: usize,
    (structure, mix): (Structure, Mix),
    options: &[String],
) -> (usize, Measure) {
    let (clients, workers) = divided(threads);
    let mut all = words(&["bench", "domains", "--structure", structure.name(), "--workload", mix.name()]);
    all.extend_from_slice(options);
    all.extend(words(&[
        "--clients",
        &clients.to_string(),
        "--workers",
        &workers.to_string(),
        "--rounds",
        "1",
    ]));
    all.push(option("--seconds", common.seconds));
    all.extend(words(&["--seed", &common.result.seed.to_string()]));
    all.extend(common.no_pin.then(|| "--no-pin".to_owned()));
    (clients + workers, Measure::Bench(all))
}

/// Returns the figure of all designs. A structure that one worker owns has a point only in those whose domains have one worker.
pub(super) fn designs(head: Head, args: &DomainsDesignsArgs, threads: usize) -> Figure {
    let DomainsDesignsArgs { structures, workloads, records, common } = args;
    let series = Design::ALL.map(|design| (design.name().to_owned(), design));
    let loads = structures.iter().flat_map(|structure| workloads.iter().map(move |mix| (*structure, *mix)));
    let positions = named(loads, |(structure, mix)| format!("{structure} {mix}"));
    let title = format!("{records} records of 8-byte keys and values, Zipf 0.99");
    let mut figure = grid(head, title, &series, &positions, |design, load| {
        let records = records.to_string();
        point(common, threads, *load, &words(&["--records", &records, "--design", design.name(), "--alone"]))
    });
    figure.points.retain(|point| {
        let (_, (structure, _)) = positions[point.position];
        let has_small_domains = matches!(Design::ALL[point.series], Design::SnThread | Design::Configured);
        structure.support().access == Access::Shared || has_small_domains
    });
    figure
}

/// Returns the figure of burst sizes.
pub(super) fn bursts(head: Head, args: &DomainsBurstArgs, threads: usize) -> Figure {
    let DomainsBurstArgs { structures, workload, at, records, common } = args;
    let series: Vec<_> =
        structures.iter().map(|structure| (structure.name().to_owned(), *structure)).collect();
    let positions: Vec<_> = at.iter().map(|size| (Position::number(*size as f64), *size)).collect();
    let title = format!("{workload} on {records} records, delegated to domains of one worker");
    grid(head, title, &series, &positions, |structure, size| {
        let (records, size) = (records.to_string(), size.to_string());
        let options = words(&["--records", &records, "--design", "sn-thread", "--burst", &size]);
        point(common, threads, (*structure, *workload), &options)
    })
}

/// Returns the figure of numbers of structures, in domains of one worker and in the baselines.
pub(super) fn structures(head: Head, args: &DomainsStructuresArgs, threads: usize) -> Figure {
    let DomainsStructuresArgs { structures, workload, designs, at, records, common } = args;
    let is_possible = |structure: Structure, design: Design| {
        structure.support().access == Access::Shared
            || matches!(design, Design::SnThread | Design::Configured)
    };
    let mut series = Vec::new();
    for structure in structures {
        for design in designs.iter().filter(|design| is_possible(*structure, **design)) {
            series.push((format!("{structure}, {design}"), (*structure, *design)));
        }
    }
    let positions: Vec<_> = at.iter().map(|count| (Position::number(*count as f64), *count)).collect();
    let title = format!("{workload} on {records} records in all, domains of one worker");
    let (clients, workers) = divided(threads);
    grid(head, title, &series, &positions, |(structure, design), count| {
        let mut all = words(&["bench", "domains-structures", "--structure", structure.name()]);
        all.extend(words(&["--workload", workload.name(), "--design", design.name(), "--rounds", "1"]));
        let numbers =
            [("--records", *records), ("--structures", *count as u64), ("--clients", clients as u64)];
        for (name, number) in numbers.into_iter().chain([("--workers", workers as u64)]) {
            all.extend(words(&[name, &number.to_string()]));
        }
        all.push(option("--seconds", common.seconds));
        all.extend(words(&["--seed", &common.result.seed.to_string()]));
        all.extend(common.no_pin.then(|| "--no-pin".to_owned()));
        (clients + workers, Measure::Bench(all))
    })
}

/// A series of New-Order and Payment.
#[derive(Clone, Copy, Debug)]
enum Tables {
    /// Structures, without isolation, in domains of a size if the design has several.
    Structures(Structure, Design, Option<usize>),
    /// The same in the parts of a design, which threads use directly.
    Parts(Structure, Design),
    /// The engine, with isolation.
    Engine,
}

/// Returns all series that are possible with so many workers of domains.
fn tables(structures: &[Structure], workers: usize) -> Vec<(String, Tables)> {
    let mut all = Vec::new();
    for structure in structures {
        let named = |name: &str| format!("{structure}, {name}");
        let mut add = |name: &str, design, size| {
            all.push((named(name), Tables::Structures(*structure, design, size)));
        };
        let is_shared = structure.support().access == Access::Shared;
        let designs = [Design::Se, Design::SeNuma, Design::SnNuma, Design::SnThread];
        for design in designs.into_iter().filter(|design| is_shared || *design == Design::SnThread) {
            add(design.name(), design, None);
        }
        // Domains of one worker are sn-thread.
        let sizes = std::iter::successors(Some(2), |size: &usize| size.checked_mul(2));
        for size in sizes.take_while(|size| is_shared && *size <= workers) {
            add(&format!("domains of {size}"), Design::Configured, Some(size));
        }
        for design in [Design::SnNuma, Design::SnThread].into_iter().filter(|_| is_shared) {
            all.push((named(&format!("{design} directly")), Tables::Parts(*structure, design)));
        }
    }
    all.push(("engine, isolated".to_owned(), Tables::Engine));
    all
}

/// Returns the threads of a point of New-Order and Payment, and its benchmark.
fn tpcc_point(args: &DomainsTablesArgs, series: Tables, threads: usize, remote: f64) -> (usize, Measure) {
    let DomainsTablesArgs { warehouses, items, customers, common, .. } = args;
    let (clients, workers) = divided(threads);
    let threads = clients + workers;
    let mut all = match series {
        Tables::Structures(structure, design, _) | Tables::Parts(structure, design) => {
            let size = if let Tables::Structures(_, _, size) = series { size } else { None };
            let mut all = words(&["bench", "domains-tpcc", "--structure", structure.name()]);
            all.extend(words(&["--design", design.name(), "--rounds", "1"]));
            all.extend(words(&["--clients", &clients.to_string(), "--workers", &workers.to_string()]));
            all.extend(size.into_iter().flat_map(|size| words(&["--domain-size", &size.to_string()])));
            all.push(option("--remote", remote));
            all.extend(matches!(series, Tables::Parts(..)).then(|| "--direct".to_owned()));
            all
        }
        Tables::Engine => {
            let Remote { payments, lines } = Remote::of_transactions(remote);
            let mut all = words(&["bench", "tpcc", "--mix", "new-order-payment", "--durability", "none"]);
            all.extend(words(&["--routing", "owner", "--static", "--workers", &threads.to_string()]));
            all.extend([option("--remote-payment", payments), option("--remote-lines", lines)]);
            all.push(option("--warmup", 0.3));
            all
        }
    };
    for (name, number) in [("--warehouses", warehouses), ("--items", items), ("--customers", customers)] {
        all.extend(words(&[name, &number.to_string()]));
    }
    all.push(option("--seconds", common.seconds));
    all.extend(words(&["--seed", &common.result.seed.to_string()]));
    all.extend(common.no_pin.then(|| "--no-pin".to_owned()));
    (threads, Measure::Bench(all))
}

/// Returns the figure of New-Order and Payment by the share of remote transactions.
pub(super) fn tpcc(head: Head, args: &DomainsTpccArgs, threads: usize) -> Figure {
    let DomainsTpccArgs { at, tables: of } = args;
    let series = tables(&of.structures, divided(threads).1);
    let positions: Vec<_> = at.iter().map(|share| (Position::percent(*share), *share)).collect();
    let title = format!("New-Order and Payment, {} warehouses", of.warehouses);
    let mut figure =
        grid(head, title, &series, &positions, |series, remote| tpcc_point(of, *series, threads, *remote));
    figure.points.retain(|point| has_threads(series[point.series].1, threads, of.warehouses));
    figure
}

/// Returns whether so many threads can make a point: domains have workers enough, and every part has a warehouse.
fn has_threads(series: Tables, threads: usize, warehouses: u64) -> bool {
    let (clients, workers) = divided(threads);
    match series {
        Tables::Structures(_, _, Some(size)) => size <= workers,
        Tables::Parts(_, Design::SnThread) => (clients + workers) as u64 <= warehouses,
        Tables::Structures(_, _, None) | Tables::Parts(..) | Tables::Engine => true,
    }
}

/// Returns the figure of New-Order and Payment by the number of threads.
pub(super) fn tpcc_by_threads(head: Head, args: &DomainsTpccThreadsArgs, most: usize) -> Figure {
    let DomainsTpccThreadsArgs { remote, at, tables: of } = args;
    let doubled = std::iter::successors(Some(2), |threads: &usize| threads.checked_mul(2));
    let numbers: Vec<usize> = match at.as_slice() {
        [] => doubled.take_while(|threads| *threads < most).chain([most.max(2)]).collect(),
        given => given.to_vec(),
    };
    let workers = |threads: usize| divided(threads).1;
    let series = tables(&of.structures, numbers.iter().map(|threads| workers(*threads)).max().unwrap_or(1));
    let positions: Vec<_> =
        numbers.iter().map(|threads| (Position::number(*threads as f64), *threads)).collect();
    let title = format!("New-Order and Payment, {} warehouses, {}% remote", of.warehouses, 100.0 * remote);
    let mut figure =
        grid(head, title, &series, &positions, |series, threads| tpcc_point(of, *series, *threads, *remote));
    figure
        .points
        .retain(|point| has_threads(series[point.series].1, positions[point.position].1, of.warehouses));
    figure
}
