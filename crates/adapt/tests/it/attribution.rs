//! The division of observed time into work and synchronization, by figures worked out by hand.

use crate::fixture::platform;
use atrapos_adapt::{
    PartitionTrace, Platform, Settings, SubPartition, SyncPointTrace, TRACE_FORMAT, TableIndex, TableTrace,
    Weights, WorkerIndex, WorkloadTrace, attribute,
};

/// Two partitions of one sub-partition each on two workers, with so many synchronization points between them.
fn trace(costs: [u64; 2], busy_cycles: Vec<u64>, count: u64) -> WorkloadTrace {
    let partition = |worker: u32| PartitionTrace {
        starts: Vec::new(),
        rows: Vec::new(),
        worker: WorkerIndex(worker),
        cost_cycles: vec![costs[worker as usize]],
    };
    let place = |partition| SubPartition { table: 0, partition, sub_partition: 0 };
    WorkloadTrace {
        format: TRACE_FORMAT.to_owned(),
        seconds: 1.0,
        workers: 2,
        machine: None,
        samples: Some(1_000),
        dispersion: 4.0,
        busy_cycles,
        in_place_cycles: 0,
        tables: vec![TableTrace { name: "rows".into(), partitions: vec![partition(0), partition(1)] }],
        sync_points: vec![SyncPointTrace { partners: vec![place(0), place(1)], bytes: 0, count, again: 0 }],
        classes: Vec::new(),
    }
}

/// Weights by which a synchronization of two neighbours costs 1,000 cycles.
fn settings(weights: Weights) -> Settings {
    Settings { weights, ..Settings::default() }
}

fn weights() -> Weights {
    Weights { message_bytes: 0.0, exchange_cycles: 1_000.0, ..Weights::default() }
}

fn costs(trace: &WorkloadTrace, platform: &Platform) -> (Vec<f64>, Weights) {
    let attributed = attribute(trace, platform, &settings(weights())).expect("a trace");
    (attributed.workload.table_costs(TableIndex(0)).to_vec(), attributed.weights)
}

#[test]
fn recorded_costs_are_scaled_to_the_busy_time_without_synchronization() {
    let platform = platform("core:2 pu:1");
    // 100 points cost each worker half of 100,000 cycles.
    let (of, same) = costs(&trace([100_000, 50_000], vec![200_000, 100_000], 100), &platform);
    assert_eq!(of, [150_000.0, 50_000.0]);
    assert_eq!(same, weights());
    // Without the busy time, of what was recorded.
    let (of, _) = costs(&trace([100_000, 80_000], Vec::new(), 100), &platform);
    assert_eq!(of, [50_000.0, 30_000.0]);
}

#[test]
fn synchronization_that_the_time_has_no_room_for_is_cheaper_than_the_weights_say() {
    let platform = platform("core:2 pu:1");
    let (of, cheaper) = costs(&trace([1_000, 1_000], Vec::new(), 100), &platform);
    for cost in of {
        assert!((cost - 200.0).abs() < 1e-6, "a fifth is left: {cost}");
    }
    // Of 100,000 cycles there is room for 1,600.
    assert!((cheaper.exchange_cycles - 16.0).abs() < 1e-9, "{cheaper:?}");
}

/// Sixteen workers with 100,000 cycles of work each, in two sockets. Every worker meets the next but the last, the eighth and ninth across sockets; what a
/// meeting costs each is given by its distance.
fn ring(platform: &Platform, of_worker: impl Fn(f64) -> f64) -> WorkloadTrace {
    let meetings: Vec<(u32, f64)> = (0..15)
        .map(|worker| {
            let pair = [WorkerIndex(worker), WorkerIndex(worker + 1)];
            (worker, of_worker(platform.distance_among(&pair)))
        })
        .collect();
    let busy = |worker: u32| {
        let mine = meetings.iter().filter(|(first, _)| *first == worker || first + 1 == worker);
        // Those at the ends meet one worker only.
        100_000.0 + mine.map(|(_, cycles)| 100.0 * cycles).sum::<f64>()
    };
    let busy_cycles: Vec<u64> = (0..16).map(|worker| busy(worker) as u64).collect();
    let partition = |worker: u32| PartitionTrace {
        starts: Vec::new(),
        rows: Vec::new(),
        worker: WorkerIndex(worker),
        cost_cycles: vec![busy_cycles[worker as usize]],
    };
    let place = |partition| SubPartition { table: 0, partition, sub_partition: 0 };
    let point = |worker| SyncPointTrace {
        partners: vec![place(worker), place(worker + 1)],
        bytes: 0,
        count: 100,
        again: 0,
    };
    WorkloadTrace {
        workers: 16,
        tables: vec![TableTrace { name: "rows".into(), partitions: (0..16).map(partition).collect() }],
        sync_points: (0..15).map(point).collect(),
        busy_cycles: busy_cycles.clone(),
        ..trace([1, 1], Vec::new(), 0)
    }
}

#[test]
fn what_distance_adds_is_corrected_by_the_trace() {
    let platform = platform("pack:2 core:8 pu:1");
    let weights = Weights { message_bytes: 100.0, exchange_cycles: 200.0, ..Weights::default() };
    // By the model a meeting costs each of the two half of 200 cycles and of 200 for every unit of distance; across sockets it costs less.
    for (premium, least, most) in [(1.0, 0.99, 1.01), (0.4, 0.8, 1.2)] {
        let trace = ring(&platform, |distance| 0.5 * (200.0 + 200.0 * (1.0 + premium * (distance - 1.0))));
        let attributed = attribute(&trace, &platform, &settings(weights)).expect("a trace");
        let costs = attributed.workload.table_costs(TableIndex(0)).to_vec();
        for cost in &costs {
            assert!((least..most).contains(&(cost / 100_000.0)), "premium {premium}: {costs:?}");
        }
        // A meeting of neighbours costs what it did.
        let near = attributed.weights.exchange_cycles + 100.0 * attributed.weights.cycles_per_byte;
        assert!((near - 400.0).abs() < 1e-6, "{:?}", attributed.weights);
        assert!((attributed.weights.cycles_per_byte < 1.5) == (premium < 1.0), "{:?}", attributed.weights);
    }
}

#[test]
fn what_contradicts_itself_is_refused_and_uneven_samples_count_for_less() {
    let platform = platform("core:2 pu:1");
    let wrong = trace([1, 1], vec![1], 0);
    let error = attribute(&wrong, &platform, &settings(weights())).expect_err("three workers").to_string();
    assert!(error.contains("busy time of 1 workers, and 2 workers"), "{error}");
    let mut uneven = trace([1, 1], Vec::new(), 0);
    assert_eq!(uneven.samples_effective(), Some(250.0));
    uneven.dispersion = 0.5;
    assert!(uneven.workload().is_err());
}
