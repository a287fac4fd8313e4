//! The figures of structures in virtual domains, and their commands.
//!
//! Owns: the arguments of `bench domains` for each point. Never: measures.

use atrapos_domain_loads::{Design, Mix};
use atrapos_structures::{Access, Kind as Structure};

use super::super::args::{DomainsBurstArgs, DomainsDesignsArgs, IslandsArgs};
use super::{Figure, Head, Measure, Position, grid, named, option, words};

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
