//! Properties of every plan, on random cases; a failure prints the seed.

use crate::fixture::{Random, new_order, platform, random_scheme, random_workload, tatp};
use atrapos_adapt::{
    ControllerSettings, PlannedScheme, Platform, Settings, SyncPoint, TableScheme, WorkerIndex, Workload,
    choose_partitioning, choose_placement, evaluate, plan, search,
};
use proptest::prelude::*;

const MACHINES: [&str; 4] =
    ["core:2 pu:1", "pack:2 core:4 pu:1", "pack:2 l3:2 core:3 pu:1", "pack:4 numa:2 core:2 pu:1"];

fn objective(workload: &Workload, platform: &Platform, scheme: &PlannedScheme) -> f64 {
    evaluate(workload, platform, scheme, &Settings::default().weights).expect("a cost").objective
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_worse_than_naive_or_today_and_always_the_same(seed in any::<u64>()) {
        let mut random = Random(seed);
        let platform = platform(MACHINES[random.below(4) as usize]);
        let tables = 1 + random.below(5) as usize;
        let slices = tables + random.below(100) as usize;
        let workload = random_workload(&mut random, tables, slices);
        let today = random_scheme(&mut random, &workload, &platform);
        let settings = Settings { effort: 3, ..Settings::default() };
        let first = plan(&workload, &platform, &today, &settings).expect("a plan");
        let naive = objective(&workload, &platform, &PlannedScheme::naive(&workload, &platform));
        prop_assert!((first.naive.objective - naive).abs() < 1e-12);
        let found = search(&workload, &platform, Some(&today), &settings).expect("a scheme");
        let found = objective(&workload, &platform, &found);
        prop_assert!(found <= naive + 1e-9, "{found} for naive {naive}");
        prop_assert!(found <= first.before.objective + 1e-9, "{found} for today's {}", first.before.objective);
        prop_assert!(first.gain() >= -1e-9, "{} for today's {}", first.after.judged, first.before.judged);
        prop_assert_eq!(&first, &plan(&workload, &platform, &today, &settings).expect("a plan"));
        let applied = atrapos_adapt::apply_steps(&today, &first.steps).expect("steps that fit");
        prop_assert_eq!(applied, first.scheme);
    }

    #[test]
    fn a_retired_worker_is_given_nothing(seed in any::<u64>()) {
        let mut random = Random(seed);
        let all = platform(MACHINES[1 + random.below(3) as usize]);
        let workload = random_workload(&mut random, 3, 60);
        let today = random_scheme(&mut random, &workload, &all);
        let retired: Vec<_> = (0..2).map(|_| WorkerIndex(random.below(all.worker_count() as u64) as u32)).collect();
        let rest = all.without(&retired).expect("some are left");
        let plan = plan(&workload, &rest, &today, &Settings { effort: 3, ..Settings::default() }).expect("a plan");
        for owner in plan.scheme.tables().iter().flat_map(TableScheme::owners) {
            prop_assert!(rest.is_available(*owner), "{owner} of {retired:?}");
        }
    }

    #[test]
    fn the_algorithms_lower_what_they_are_for(seed in any::<u64>()) {
        let mut random = Random(seed);
        let platform = platform(MACHINES[random.below(4) as usize]);
        let workload = random_workload(&mut random, 3, 80);
        let settings = Settings::default();
        let idle = Settings { effort: 0, ..settings };
        let cost = |scheme: &PlannedScheme| evaluate(&workload, &platform, scheme, &settings.weights).expect("a cost");
        let start = cost(&choose_partitioning(&workload, &platform, &idle).expect("a start"));
        let chosen = choose_partitioning(&workload, &platform, &settings).expect("a partitioning");
        prop_assert!(cost(&chosen).imbalance_cycles <= start.imbalance_cycles * (1.0 + 1e-9));
        let placed = choose_placement(&workload, &platform, &chosen, &settings).expect("a placement");
        prop_assert!(cost(&placed).objective <= cost(&chosen).objective + 1e-9);
    }
}

#[test]
fn a_plan_is_a_fixed_point() {
    for (machine, workload) in
        [("pack:2 core:8 pu:1", tatp(160, true)), ("pack:4 core:6 pu:1", new_order(240))]
    {
        let platform = platform(machine);
        let naive = PlannedScheme::naive(&workload, &platform);
        let settings = Settings::default();
        let first = plan(&workload, &platform, &naive, &settings).expect("a plan");
        let second = plan(&workload, &platform, &first.scheme, &settings).expect("a plan");
        // The second search starts from the first one's result; it may still find a little.
        assert!(second.gain() < 0.01, "on {machine} {} is found a second time", second.gain());
    }
}

/// A class of transactions that has ended leaves a few samples on its tables, which say nothing of where the next ones will be.
#[test]
fn a_table_with_next_to_no_load_stays_where_it_is() {
    let platform = platform("pack:2 core:8 pu:1");
    let mut busy = vec![1_000.0; 160];
    busy[..16].fill(50_000.0);
    for (left, stays) in [(0.0, true), (4_000.0, true), (400_000.0, false)] {
        let mut other = vec![0.0; 160];
        other[3] = left;
        let tables = vec![("busy".to_owned(), busy.clone()), ("other".to_owned(), other)];
        let workload = Workload::new(tables, Vec::new(), 1.0).expect("a workload");
        let today = PlannedScheme::naive(&workload, &platform);
        let plan = plan(&workload, &platform, &today, &Settings::default()).expect("a plan");
        assert!(plan.gain() > 0.3, "{left}: the hot slices are divided, which gains {}", plan.gain());
        assert_eq!(plan.scheme.tables()[1] == today.tables()[1], stays, "{left}: {:?}", plan.scheme);
    }
}

/// `ATraPos §V-A`, Figure 6: two tables whose rows meet one to one, on a machine of eight sockets of ten cores.
#[test]
fn what_meets_in_the_simple_transaction_of_the_paper_comes_to_one_socket() {
    let platform = platform("pack:8 core:10 pu:1");
    const SLICES: u32 = 400;
    let tables = ["a", "b"].map(|name| (name.to_owned(), vec![100_000.0; SLICES as usize]));
    let meet =
        |slice| SyncPoint { partners: vec![slice, SLICES + slice], bytes: 1_000.0, count: 10.0, again: 0.0 };
    let workload = Workload::new(tables.to_vec(), (0..SLICES).map(meet).collect(), 1.0).expect("a workload");
    let settings = Settings::default();
    let sockets = |scheme: &PlannedScheme, table: usize| -> Vec<u32> {
        let parts = scheme.tables()[table].partitions(SLICES);
        parts.flat_map(|part| (part.from.0..part.to.0).map(move |_| part.owner.0 / 10)).collect()
    };
    let apart = |scheme: &PlannedScheme| {
        sockets(scheme, 0).into_iter().zip(sockets(scheme, 1)).filter(|(a, b)| a != b).count()
    };
    let aware = choose_partitioning(&workload, &platform, &settings).expect("a partitioning");
    assert!(sockets(&aware, 0).iter().all(|socket| *socket < 4), "A is on the first half of the sockets");
    assert_eq!(apart(&aware), SLICES as usize, "and B on the others");
    let placed = choose_placement(&workload, &platform, &aware, &settings).expect("a placement");
    assert!(apart(&placed) < SLICES as usize / 10, "{} slices are apart", apart(&placed));
    let after = evaluate(&workload, &platform, &placed, &settings.weights).expect("a cost");
    assert!(after.load_max_ratio() < 1.1, "the load is as even as before: {}", after.load_max_ratio());
}

/// A row that every transaction begins with, and three on other workers that each of them needs as well: the worker of the first one is
/// busier with synchronization than with work, of which the mean over many workers has little.
#[test]
fn hot_rows_that_are_used_together_come_to_one_worker() {
    for machine in ["pack:2 core:8 pu:1", "pack:4 core:6 pu:1", "pack:8 core:10 pu:1", "pack:12 core:8 pu:1"]
    {
        let platform = platform(machine);
        let workers = platform.worker_count() as u32;
        let slices = workers * 10;
        let hot = |table: u32| table * slices + 5 + 10 * table;
        let tables = (0..4_u32).map(|table| {
            let mut costs = vec![5_000.0; slices as usize];
            costs[(hot(table) - table * slices) as usize] = if table == 0 { 1_400e6 } else { 300e6 };
            (format!("table-{table}"), costs)
        });
        let meet =
            |other| SyncPoint { partners: vec![hot(0), hot(other)], bytes: 1e8, count: 1e6, again: 0.0 };
        let workload = Workload::new(tables.collect(), (1..4).map(meet).collect(), 1.0).expect("a workload");
        let naive = PlannedScheme::naive(&workload, &platform);
        let settings = ControllerSettings::default().planning;
        let plan = plan(&workload, &platform, &naive, &settings).expect("a plan");
        let owner = |table: u32| {
            let (at, mut parts) =
                (hot(table) - table * slices, plan.scheme.tables()[table as usize].partitions(slices));
            parts.find(|part| at < part.to.0).expect("a partition").owner.0
        };
        let of_hot: Vec<u32> = (0..4).map(owner).collect();
        assert!(of_hot.iter().all(|owner| *owner == of_hot[0]), "on {machine}: {of_hot:?}");
    }
}

#[test]
fn uniform_work_without_synchronization_leaves_the_naive_scheme_alone() {
    let platform = platform("pack:2 core:4 pu:1");
    let workload = Workload::new(vec![("t".into(), vec![500.0; 80])], Vec::new(), 1.0).expect("a workload");
    let naive = PlannedScheme::naive(&workload, &platform);
    let plan = plan(&workload, &platform, &naive, &Settings::default()).expect("a plan");
    assert!(plan.steps.is_empty(), "{:?}", plan.steps);
    assert_eq!(plan.scheme, naive);
}

#[test]
fn half_of_the_load_on_a_fifth_of_the_data_is_balanced() {
    let platform = platform("pack:8 core:10 pu:1");
    let workload = tatp(800, true);
    let naive = PlannedScheme::naive(&workload, &platform);
    let plan = plan(&workload, &platform, &naive, &Settings::default()).expect("a plan");
    assert!(plan.before.load_max_ratio() > 2.0, "{}", plan.before.load_max_ratio());
    assert!(plan.after.load_max_ratio() < 1.15, "{}", plan.after.load_max_ratio());
}

#[test]
fn a_table_that_nobody_uses_stays_as_it_is() {
    let platform = platform("core:4 pu:1");
    let tables =
        vec![("used".into(), vec![900.0, 100.0, 100.0, 100.0, 100.0, 100.0]), ("idle".into(), vec![0.0; 8])];
    let workload = Workload::new(tables, Vec::new(), 1.0).expect("a workload");
    let naive = PlannedScheme::naive(&workload, &platform);
    let plan = plan(&workload, &platform, &naive, &Settings::default()).expect("a plan");
    assert_ne!(plan.scheme.tables()[0], naive.tables()[0]);
    assert_eq!(plan.scheme.tables()[1], naive.tables()[1]);
}

#[test]
fn nothing_observed_changes_nothing() {
    let platform = platform("core:2 pu:1");
    let workload = Workload::new(vec![("t".into(), vec![0.0; 20])], Vec::new(), 1.0).expect("a workload");
    let naive = PlannedScheme::naive(&workload, &platform);
    let plan = plan(&workload, &platform, &naive, &Settings::default()).expect("a plan");
    assert!(plan.steps.is_empty());
    let found = search(&workload, &platform, None, &Settings::default()).expect("a scheme");
    found.check(&workload, &platform).expect("a scheme that fits");
}
