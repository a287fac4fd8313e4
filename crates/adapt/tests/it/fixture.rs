//! Machines, workloads and random cases for the tests.

use atrapos_adapt::{
    AnticipatedTable, ClassFlow, FlowAction, FlowDependency, FlowOperation, FlowSyncPoint, PlannedScheme,
    Platform, SyncPoint, TableIndex, TableScheme, WorkerIndex, Workload, anticipate,
};
use atrapos_topology::Machine;

pub(crate) fn platform(description: &str) -> Platform {
    let machine = Machine::synthetic(description).expect("a valid description");
    let workers = machine.cores().len();
    Platform::for_workers(&machine, workers).expect("a platform")
}

/// SplitMix64: the same cases everywhere, from a seed that a failure prints.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A random workload of `tables` tables with `slices` slices in all, evenly, skewed or with holes, and points between
/// slices at equal or at random places.
pub(crate) fn random_workload(random: &mut Random, tables: usize, slices: usize) -> Workload {
    let mut lengths = vec![1; tables];
    for _ in tables..slices {
        lengths[random.below(tables as u64) as usize] += 1;
    }
    let skew = random.below(3);
    let costs = lengths.iter().enumerate().map(|(at, length)| {
        let costs = (0..*length).map(|_| {
            let base = 100 + random.below(900);
            let cost = match skew {
                1 if random.below(4) == 0 => base * 8,
                2 if random.below(4) == 0 => 0,
                _ => base,
            };
            cost as f64 * 1000.0
        });
        (format!("t{at}"), costs.collect())
    });
    let costs: Vec<(String, Vec<f64>)> = costs.collect();
    let mut points = Vec::new();
    for _ in 0..random.below(2 * slices as u64) {
        let partners = 2 + random.below(3) / 2;
        let aligned = random.below(2) == 0;
        let place = random.below(1000);
        let partners = (0..partners).map(|_| {
            let table = random.below(tables as u64) as usize;
            let start: usize = lengths[..table].iter().sum();
            let place = if aligned { place } else { random.below(1000) };
            (start + place as usize * lengths[table] / 1000) as u32
        });
        let (partners, count) = (partners.collect(), (1 + random.below(400)) as f64);
        points.push(SyncPoint { partners, bytes: count * random.below(300) as f64, count, again: 0.0 });
    }
    Workload::new(costs, points, 1.0).expect("a workload without contradictions")
}

/// Any scheme for a workload, neighbouring partitions of one owner included.
pub(crate) fn random_scheme(random: &mut Random, workload: &Workload, platform: &Platform) -> PlannedScheme {
    let workers = platform.worker_count() as u64;
    let tables = (0..workload.table_count()).map(|table| {
        let slices = workload.slice_count(TableIndex(table as u32));
        let cuts: Vec<u32> = (1..slices).filter(|_| random.below(3) == 0).collect();
        let owners = (0..=cuts.len()).map(|_| WorkerIndex(random.below(workers) as u32)).collect();
        TableScheme::new(cuts, owners)
    });
    PlannedScheme::new(tables.collect())
}

fn class(
    name: &str,
    count: u64,
    actions: Vec<FlowAction>,
    dependencies: &[(u32, u32, &str)],
    sync_points: &[(&[u32], u64)],
) -> ClassFlow {
    ClassFlow {
        name: name.into(),
        count,
        actions,
        dependencies: dependencies
            .iter()
            .map(|(from, to, key)| FlowDependency { from: *from, to: *to, key: (*key).into() })
            .collect(),
        sync_points: sync_points
            .iter()
            .map(|(actions, bytes)| FlowSyncPoint { actions: actions.to_vec(), bytes: *bytes })
            .collect(),
    }
}

const fn once(table: u32, operation: FlowOperation) -> FlowAction {
    FlowAction::once(TableIndex(table), operation)
}

/// The standard mix of TATP in a million transactions. `hot` gives half of the requests to the first fifth of the data.
pub(crate) fn tatp(slices: usize, hot: bool) -> Workload {
    use FlowOperation::{Delete, Insert, Read, Scan, Update};
    let (subscriber, access, facility, forwarding) = (0, 1, 2, 3);
    let mut tables = vec![
        AnticipatedTable::uniform("subscriber", slices, 700.0),
        AnticipatedTable::uniform("access-info", slices, 600.0),
        AnticipatedTable::uniform("special-facility", slices, 650.0),
        AnticipatedTable::uniform("call-forwarding", slices, 800.0),
    ];
    if hot {
        for table in &mut tables {
            table.spread[..slices / 5].fill(4.0);
        }
    }
    let classes = [
        class("get-subscriber-data", 350_000, vec![once(subscriber, Read)], &[], &[]),
        class(
            "get-new-destination",
            100_000,
            vec![once(facility, Read), once(forwarding, Scan)],
            &[(0, 1, "s_id")],
            &[(&[0, 1], 48)],
        ),
        class("get-access-data", 350_000, vec![once(access, Read)], &[], &[]),
        class(
            "update-subscriber-data",
            20_000,
            vec![once(subscriber, Update), once(facility, Update)],
            &[(0, 1, "s_id")],
            &[(&[0, 1], 16)],
        ),
        class("update-location", 140_000, vec![once(subscriber, Update)], &[], &[]),
        class(
            "insert-call-forwarding",
            20_000,
            vec![once(subscriber, Read), once(facility, Scan), once(forwarding, Insert)],
            &[(0, 1, "s_id"), (1, 2, "s_id")],
            &[(&[0, 1, 2], 64)],
        ),
        class(
            "delete-call-forwarding",
            20_000,
            vec![once(subscriber, Read), once(forwarding, Delete)],
            &[(0, 1, "s_id")],
            &[(&[0, 1], 16)],
        ),
    ];
    anticipate(&tables, &classes, 1, 1.0).expect("TATP")
}

/// NewOrder of TPC-C, two hundred thousand times: the flow graph of `ATraPos §V-A`, Figure 7.
pub(crate) fn new_order(slices: usize) -> Workload {
    use FlowOperation::{Insert, Read, Update};
    let tables = [
        AnticipatedTable::uniform("warehouse", slices, 700.0),
        AnticipatedTable::uniform("district", slices, 900.0),
        AnticipatedTable::uniform("customer", slices, 900.0),
        AnticipatedTable::uniform("new-order", slices, 1200.0),
        AnticipatedTable::uniform("order", slices, 1200.0),
        AnticipatedTable::uniform("order-line", slices, 1100.0),
        AnticipatedTable::uniform("stock", slices, 1300.0),
        AnticipatedTable::uniform("item", slices, 700.0),
    ];
    let many =
        |table, operation| FlowAction { table: TableIndex(table), operation, repeat_min: 5, repeat_max: 15 };
    let actions = vec![
        once(0, Read),
        once(1, Update),
        once(2, Read),
        once(3, Insert),
        once(4, Insert),
        many(5, Insert),
        many(6, Update),
        many(7, Read),
    ];
    let by_warehouse = [1, 2, 3, 4, 5, 6].map(|to| (0, to, "w_id"));
    let points: [(&[u32], u64); 4] = [(&[0, 1, 2], 96), (&[1, 3, 4], 24), (&[6, 7], 800), (&[4, 5, 6], 640)];
    anticipate(&tables, &[class("new-order", 200_000, actions, &by_warehouse, &points)], 3, 1.0)
        .expect("NewOrder")
}
