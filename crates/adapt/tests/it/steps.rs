//! Differences between schemes.

use crate::fixture::{Random, platform, random_scheme, random_workload};
use atrapos_adapt::{
    AdaptError, PlannedScheme, SliceIndex, Step, TableIndex, TableScheme, WorkerIndex, Workload, apply_steps,
    steps_between,
};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_steps_lead_from_one_scheme_to_the_other(seed in any::<u64>()) {
        let mut random = Random(seed);
        let platform = platform("pack:2 core:2 pu:1");
        let workload = random_workload(&mut random, 3, 30);
        let today = random_scheme(&mut random, &workload, &platform);
        let wanted = random_scheme(&mut random, &workload, &platform);
        let steps = steps_between(&today, &wanted, &workload).expect("steps");
        prop_assert_eq!(apply_steps(&today, &steps).expect("steps that fit"), wanted.clone());
        prop_assert!(steps_between(&wanted, &wanted, &workload).expect("steps").is_empty());
        // Nothing is both cut and joined again.
        let splits = steps.iter().filter(|step| matches!(step, Step::Split { .. })).count();
        let merges = steps.iter().filter(|step| matches!(step, Step::Merge { .. })).count();
        prop_assert_eq!(today.partition_count() + splits - merges, wanted.partition_count());
    }
}

fn table(cuts: &[u32], owners: &[u32]) -> TableScheme {
    TableScheme::new(cuts.to_vec(), owners.iter().copied().map(WorkerIndex).collect())
}

#[test]
fn a_shifted_boundary_is_a_split_a_move_and_a_merge() {
    let workload = Workload::new(vec![("t".into(), vec![1.0; 10])], Vec::new(), 1.0).expect("a workload");
    let today = PlannedScheme::new(vec![table(&[5], &[0, 1])]);
    let wanted = PlannedScheme::new(vec![table(&[3], &[0, 1])]);
    let steps = steps_between(&today, &wanted, &workload).expect("steps");
    let text: Vec<String> = steps.iter().map(ToString::to_string).collect();
    assert_eq!(
        text,
        [
            "split table 0 at slice 3",
            "move slices 3..5 of table 0 from worker 0 to worker 1",
            "merge table 0 at slice 5"
        ]
    );
}

#[test]
fn steps_that_do_not_fit_are_refused() {
    let scheme = PlannedScheme::new(vec![table(&[5], &[0, 1])]);
    let (first, at) = (TableIndex(0), SliceIndex);
    let moved = |from, to, source| Step::Move {
        table: first,
        from: at(from),
        to: at(to),
        source: WorkerIndex(source),
        target: WorkerIndex(2),
    };
    for step in [
        Step::Split { table: first, at: at(5) },
        Step::Split { table: first, at: at(0) },
        Step::Split { table: TableIndex(3), at: at(1) },
        Step::Merge { table: first, at: at(5) },
        Step::Merge { table: first, at: at(4) },
        moved(0, 4, 0),
        moved(1, 5, 0),
        moved(0, 5, 1),
    ] {
        let error = apply_steps(&scheme, &[step]).expect_err("refused");
        assert!(matches!(error, AdaptError::Step { .. }), "{error}");
        assert!(error.to_string().contains(&step.to_string()), "{error}");
    }
}
