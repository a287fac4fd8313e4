//! Statistics that are expected from flow graphs.

use crate::fixture::{new_order, tatp};
use atrapos_adapt::{
    AdaptError, AnticipatedTable, ClassFlow, FlowAction, FlowOperation, TableIndex, anticipate,
};

#[test]
fn tatp_costs_what_its_mix_says() {
    let workload = tatp(40, false);
    let subscriber: f64 = workload.table_costs(TableIndex(0)).iter().sum();
    // 35 + 2 + 14 + 2 + 2 of a hundred transactions access a subscriber once.
    assert!((subscriber - 550_000.0 * 700.0).abs() < 1.0, "{subscriber}");
    // Only rows of one subscriber meet: equal positions.
    for point in workload.sync_points() {
        assert!(point.partners.iter().all(|slice| slice % 40 == point.partners[0] % 40), "{point:?}");
    }
}

#[test]
fn half_of_the_accesses_go_to_the_hot_fifth() {
    let workload = tatp(100, true);
    let costs = workload.table_costs(TableIndex(1));
    let hot: f64 = costs[..20].iter().sum();
    assert!((hot / costs.iter().sum::<f64>() - 0.5).abs() < 1e-9);
}

#[test]
fn actions_without_a_common_key_meet_anywhere() {
    let workload = new_order(24);
    let (stock, item) = (6 * 24, 7 * 24);
    let elsewhere = workload
        .sync_points()
        .iter()
        .filter(|point| point.partners.iter().any(|slice| *slice >= item))
        .filter(|point| point.partners[0] - stock != point.partners[1] - item)
        .count();
    assert!(elsewhere > 24, "{elsewhere}");
    assert_eq!(workload.classes()[0].actions_per_table(8), [1.0, 1.0, 1.0, 1.0, 1.0, 10.0, 10.0, 10.0]);
}

#[test]
fn classes_of_other_tables_are_refused() {
    let tables = [AnticipatedTable::uniform("t", 4, 100.0)];
    assert_eq!(AnticipatedTable::index_in(&tables, "t"), Some(TableIndex(0)));
    let class = ClassFlow {
        name: "c".into(),
        count: 1,
        actions: vec![FlowAction::once(TableIndex(1), FlowOperation::Read)],
        dependencies: Vec::new(),
        sync_points: Vec::new(),
    };
    let error = anticipate(&tables, &[class], 1, 1.0).expect_err("refused");
    assert!(matches!(error, AdaptError::Contradiction { .. }), "{error}");
    assert_eq!(FlowOperation::Scan.letter(), 'S');
}
