//! The cost model against figures worked out by hand.

use crate::fixture::{Random, platform, random_scheme, random_workload};
use atrapos_adapt::{
    AdaptError, PlannedScheme, Platform, SyncPoint, TableScheme, Weights, WorkerIndex, Workload, evaluate,
};
use atrapos_topology::{CpuId, Machine, OTHER_SOCKET_NOMINAL, SAME_L3_NOMINAL, SAME_NODE_NOMINAL};

fn workers(numbers: &[u32]) -> Vec<WorkerIndex> {
    numbers.iter().copied().map(WorkerIndex).collect()
}

#[test]
fn one_worker_exchanges_nothing_and_two_pay_their_distance() {
    let platform = platform("pack:2 l3:2 core:2 pu:1");
    assert_eq!(platform.distance_among(&[]), 0.0);
    assert_eq!(platform.distance_among(&workers(&[3, 3, 3])), 0.0);
    assert_eq!(platform.distance_among(&workers(&[0, 1])), SAME_L3_NOMINAL);
    assert_eq!(platform.distance_among(&workers(&[0, 2])), SAME_NODE_NOMINAL);
    assert_eq!(platform.distance_among(&workers(&[5, 0])), OTHER_SOCKET_NOMINAL);
}

#[test]
fn on_sockets_of_one_core_it_is_the_formula_of_the_paper() {
    // (n - 1) x Distance, with all sockets equally far.
    let platform = platform("pack:4 core:1 pu:1");
    for n in 1..=4_u32 {
        let participants: Vec<_> = (0..n).map(WorkerIndex).collect();
        let expected = f64::from(n - 1) * OTHER_SOCKET_NOMINAL;
        assert!((platform.distance_among(&participants) - expected).abs() < 1e-12, "{n} sockets");
    }
}

#[test]
fn nested_islands_pay_level_by_level() {
    let platform = platform("pack:2 l3:2 core:2 pu:1");
    // Both cores of the first L3 island, one of the second, one of the other socket.
    let expected = SAME_L3_NOMINAL + SAME_NODE_NOMINAL + OTHER_SOCKET_NOMINAL;
    assert!((platform.distance_among(&workers(&[0, 1, 2, 4])) - expected).abs() < 1e-12);
}

#[test]
fn two_workers_on_one_cpu_still_send_messages() {
    let machine = Machine::synthetic("core:1 pu:1").expect("a machine");
    let platform = Platform::new(&machine, &[CpuId(0), CpuId(0)]).expect("two workers on one cpu");
    assert!(platform.distance_among(&workers(&[0, 1])) > 0.0);
}

#[test]
fn utilization_and_synchronization_of_a_case_worked_out_by_hand() {
    let platform = platform("pack:2 core:2 pu:1");
    let tables = vec![("a".to_owned(), vec![30.0, 10.0]), ("b".to_owned(), vec![40.0, 20.0])];
    let points = vec![
        SyncPoint { partners: vec![0, 2], bytes: 10.0, count: 2.0, again: 0.0 },
        SyncPoint { partners: vec![3, 1, 1], bytes: 5.0, count: 1.0, again: 0.0 },
    ];
    let workload = Workload::new(tables, points, 1.0).expect("a workload");
    // a: worker 0 and 1; b: worker 2 and 1. Loads 30, 30, 40, 0 around 25; only the first point crosses, between sockets.
    let scheme = PlannedScheme::new(vec![
        TableScheme::new(vec![1], workers(&[0, 1])),
        TableScheme::new(vec![1], workers(&[2, 1])),
    ]);
    let weights = Weights {
        balance: 2.0,
        busiest: 0.5,
        synchronization: 3.0,
        partitions: 0.8,
        cycles_per_byte: 0.5,
        message_bytes: 4.0,
        exchange_cycles: 7.0,
    };
    let cost = evaluate(&workload, &platform, &scheme, &weights).expect("a cost");
    assert_eq!(cost.work_cycles, 100.0);
    assert_eq!(cost.imbalance_cycles, 5.0 + 5.0 + 15.0 + 25.0);
    assert_eq!(cost.load_max_cycles, 40.0);
    assert_eq!(cost.sync_byte_distance, OTHER_SOCKET_NOMINAL * (10.0 + 2.0 * 4.0));
    assert_eq!(cost.partitions, 4);
    assert_eq!(cost.sync_cycles, 0.5 * cost.sync_byte_distance + 7.0 * 2.0);
    let busiest = 0.5 * (40.0 / 25.0 - 1.0);
    let expected = 2.0 * 0.5 + busiest + 3.0 * cost.sync_cycles / 100.0 + 0.8 * 2.0 / 8.0;
    assert!((cost.objective - expected).abs() < 1e-12, "{} for {expected}", cost.objective);
    // Without worker 2 its load is all imbalance, and the mean is over three.
    let three = platform.without(&[WorkerIndex(2)]).expect("three are left");
    let cost = evaluate(&workload, &three, &scheme, &weights).expect("a cost");
    let mean = 100.0 / 3.0;
    assert!((cost.imbalance_cycles - (2.0 * (mean - 30.0) + 40.0 + mean)).abs() < 1e-9);
}

#[test]
fn points_among_data_that_has_met_send_no_further_end() {
    let platform = platform("core:2 pu:1");
    let sync = |count: f64, again: f64| {
        let tables = vec![("a".to_owned(), vec![30.0, 10.0])];
        let points = vec![SyncPoint { partners: vec![0, 1], bytes: 0.0, count, again }];
        let workload = Workload::new(tables, points, 1.0).expect("a workload");
        let scheme = PlannedScheme::new(vec![TableScheme::new(vec![1], workers(&[0, 1]))]);
        let weights = Weights {
            cycles_per_byte: 1.0,
            message_bytes: 300.0,
            exchange_cycles: 1_000.0,
            ..Weights::default()
        };
        evaluate(&workload, &platform, &scheme, &weights).expect("a cost").sync_cycles
    };
    let line = SAME_L3_NOMINAL * 300.0;
    assert!((sync(1.0, 0.0) - (line + 1_000.0)).abs() < 1e-9);
    // Request and reply, without the end.
    assert!((sync(3.0, 2.0) - sync(1.0, 0.0) - 2.0 * (line * 2.0 / 3.0 + 800.0)).abs() < 1e-9);
    let more_again_than_points = Workload::new(
        vec![("a".to_owned(), vec![1.0, 1.0])],
        vec![SyncPoint { partners: vec![0, 1], bytes: 0.0, count: 1.0, again: 2.0 }],
        1.0,
    );
    assert!(more_again_than_points.is_err());
}

#[test]
fn what_does_not_fit_is_refused() {
    let platform = platform("core:2 pu:1");
    let workload = random_workload(&mut Random(1), 2, 6);
    let weights = Weights::default();
    let refusal =
        |scheme: PlannedScheme| evaluate(&workload, &platform, &scheme, &weights).expect_err("refused");
    assert!(matches!(refusal(PlannedScheme::new(Vec::new())), AdaptError::TableCount { .. }));
    let table = |cuts: &[u32], owners: &[u32]| TableScheme::new(cuts.to_vec(), workers(owners));
    let whole = || table(&[], &[0]);
    assert!(matches!(
        refusal(PlannedScheme::new(vec![table(&[0], &[0, 1]), whole()])),
        AdaptError::Cuts { .. }
    ));
    assert!(matches!(refusal(PlannedScheme::new(vec![table(&[1], &[0]), whole()])), AdaptError::Cuts { .. }));
    assert!(matches!(
        refusal(PlannedScheme::new(vec![whole(), table(&[99], &[0, 1])])),
        AdaptError::Cuts { .. }
    ));
    assert!(matches!(
        refusal(PlannedScheme::new(vec![whole(), table(&[], &[2])])),
        AdaptError::UnknownWorker { .. }
    ));
    let broken = Weights { balance: f64::NAN, ..weights };
    let scheme = PlannedScheme::naive(&workload, &platform);
    let error = evaluate(&workload, &platform, &scheme, &broken).expect_err("refused");
    assert!(error.to_string().contains("'balance'"), "{error}");
    let machine = Machine::synthetic("core:2 pu:1").expect("a machine");
    assert!(matches!(Platform::new(&machine, &[]), Err(AdaptError::NoWorkers)));
    assert!(matches!(Platform::new(&machine, &[CpuId(7)]), Err(AdaptError::UnknownCpu { .. })));
    assert!(matches!(platform.without(&workers(&[0, 1])), Err(AdaptError::NoWorkers)));
}

#[test]
fn more_weight_never_lowers_the_objective() {
    let platform = platform("pack:2 l3:2 core:2 pu:1");
    for seed in 0..50 {
        let mut random = Random(seed);
        let workload = random_workload(&mut random, 3, 12);
        let scheme = random_scheme(&mut random, &workload, &platform);
        let objective =
            |weights: Weights| evaluate(&workload, &platform, &scheme, &weights).expect("a cost").objective;
        let least = objective(Weights::default());
        assert!(least >= 0.0, "seed {seed}");
        for weights in [
            Weights { balance: 2.0, ..Weights::default() },
            Weights { message_bytes: 500.0, ..Weights::default() },
            Weights { partitions: 0.5, ..Weights::default() },
            Weights { busiest: 2.0, ..Weights::default() },
            Weights { exchange_cycles: 5_000.0, ..Weights::default() },
        ] {
            assert!(objective(weights) >= least, "seed {seed}, {weights:?}");
        }
    }
}
