//! Statistics that are expected from flow graphs.

use crate::fixture::{new_order, tatp};
use atrapos_adapt::{
    AdaptError, AnticipatedTable, ClassFlow, FlowAction, FlowOperation, TableIndex, Workload, anticipate,
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
fn another_mix_has_the_costs_of_its_classes() {
    let recorded = tatp(40, true);
    let costs = |workload: &Workload, table: u32| workload.table_costs(TableIndex(table)).iter().sum::<f64>();
    let tables = recorded.table_count() as u32;
    let counts = recorded.classes().iter().map(|class| (class.name.clone(), class.count as f64));
    let same = recorded.with_mix(&counts.collect::<Vec<_>>()).expect("the recorded mix");
    for table in 0..tables {
        let (before, after) = (costs(&recorded, table), costs(&same, table));
        assert!(
            (after - before).abs() <= 1e-6 * before,
            "table {table}: {before} recorded, {after} anticipated"
        );
    }
    // One class alone: as many transactions in all, and nothing on tables that it does not access.
    let class =
        recorded.classes().iter().find(|class| class.actions.len() == 1).expect("a class of one action");
    let alone = recorded.with_mix(&[(class.name.clone(), 0.1)]).expect("one class");
    let total: u64 = recorded.classes().iter().map(|class| class.count).sum();
    for table in 0..tables {
        let each = costs(&recorded, table)
            / recorded
                .classes()
                .iter()
                .map(|class| class.count as f64 * class.actions_per_table(tables as usize)[table as usize])
                .sum::<f64>();
        let expected = total as f64 * class.actions_per_table(tables as usize)[table as usize] * each;
        let found = costs(&alone, table);
        assert!((found - expected).abs() <= 1e-6 * expected, "table {table}: {found} for {expected}");
    }
    assert!(alone.classes().iter().all(|other| (other.name == class.name) == (other.count == total)));
}

#[test]
fn a_mix_of_other_classes_is_refused_with_those_that_there_are() {
    let recorded = tatp(40, false);
    let class = recorded.classes()[0].name.clone();
    let refused = |mix: &[(&str, f64)]| {
        let mix: Vec<_> = mix.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect();
        recorded.with_mix(&mix).expect_err("refused").to_string()
    };
    assert!(refused(&[("payment", 1.0)]).contains(&class));
    assert!(refused(&[(&class, 1.0), (&class, 2.0)]).contains("twice"));
    assert!(refused(&[(&class, -1.0)]).contains("not negative"));
    assert!(refused(&[(&class, 0.0)]).contains("no share above 0"));
    let unnamed = Workload::new(vec![("t".to_owned(), vec![1.0])], Vec::new(), 1.0).expect("a workload");
    assert!(unnamed.with_mix(&[(class, 1.0)]).expect_err("refused").to_string().contains("--record"));
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
