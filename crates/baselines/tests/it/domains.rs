//! `domains`: tables that are structures in domains; planted bugs, each of which the check of histories notices; and what a structure cannot do.
//!
//! Operations, invariants of threads and histories without bugs are tests of every engine.

use std::sync::atomic::{AtomicU64, Ordering};

use atrapos::WorkerId;
use atrapos_baselines::domains::{DomainsEngine, DomainsEngineOptions, TableStructure};
use atrapos_baselines::instance::Ownership;
use atrapos_baselines::{Engine, Intent};
use atrapos_partition::abort::AbortReason;
use atrapos_topology::{CpuId, Machine};

use crate::engines::{OTHER, TABLE, check, get, load, put, range, rows, run};

/// Makes an engine of three empty tables, each divided among two workers, of which one has the keys in the middle.
pub(crate) fn engine(structure: TableStructure) -> DomainsEngine {
    let machine = Machine::synthetic("core:2 pu:1").expect("a machine");
    let options = DomainsEngineOptions { cpus: vec![CpuId(0), CpuId(1)], pin: false, structure };
    // Keys of these tests are numbers in eight bytes, or groups in four before them.
    let cuts = [&[0, 0, 0, 0, 0, 0, 0, 4][..], &[0, 0, 0, 1]];
    let (cuts, owners) = (cuts.map(Into::into).to_vec(), [0, 1, 0].map(WorkerId).to_vec());
    DomainsEngine::new(&machine, &options, Ownership::uniform(3, cuts, owners), 3)
        .unwrap_or_else(|error| panic!("{error}"))
}

#[cfg(debug_assertions)]
mod planted {
    use atrapos_baselines::planted::{Bug, with};

    use crate::engines::{ON_DOMAINS, run_and_judge};

    /// Histories after which a bug that nobody has noticed is taken for unnoticed.
    const HISTORIES: u64 = 400;

    fn caught_by_histories(bug: Bug) {
        let caught =
            (0..HISTORIES).any(|seed| run_and_judge(ON_DOMAINS, seed, |run| with(bug, run)).is_err());
        assert!(caught, "{bug:?} was not noticed in {HISTORIES} histories");
    }

    #[test]
    fn histories_show_gaps_that_scans_leave_open() {
        caught_by_histories(Bug::ScansWithoutGaps);
    }

    #[test]
    fn histories_show_keys_that_do_not_stay_absent() {
        caught_by_histories(Bug::AbsentNotLocked);
    }

    #[test]
    fn histories_show_changes_that_an_abort_leaves() {
        caught_by_histories(Bug::UndoLeftOut);
    }

    #[test]
    fn histories_show_replaced_rows_that_stay_behind() {
        caught_by_histories(Bug::ReplacedLeftBehind);
    }

    #[test]
    fn histories_show_locks_that_are_given_up_after_each_operation() {
        caught_by_histories(Bug::LocksNotKept);
    }
}

#[test]
fn ranges_of_a_hash_map_are_refused_and_keys_are_not() {
    let engine = engine(TableStructure::OwnedHashMap);
    load(&engine, TABLE, (0..100).map(|key| (key, 2 * key)));
    let mut client = Engine::client(&engine);
    let refused = run(&mut *client, |tx| range(tx, TABLE, (3, Some(5)), false)).expect_err("it has no order");
    assert_eq!(refused.reason(), AbortReason::Misuse);
    assert!(refused.to_string().contains("no order"), "{refused}");
    run(&mut *client, |tx| {
        assert_eq!(get(tx, TABLE, 99)?, Some(198));
        assert!(tx.remove(TABLE, &7_u64.to_be_bytes())?);
        assert!(!tx.remove(TABLE, &7_u64.to_be_bytes())?);
        put(tx, TABLE, 7, 70)?;
        put(tx, OTHER, 1, 1)
    })
    .expect("it commits");
    let mut expected: Vec<(u64, u64)> = (0..100).map(|key| (key, 2 * key)).collect();
    expected[7].1 = 70;
    assert_eq!(rows(&engine, TABLE), expected, "rows come in the order of their keys all the same");
    drop(client);
    check(&engine);
}

#[test]
fn a_transaction_that_would_wait_for_an_older_one_aborts_and_one_that_is_older_waits() {
    let engine = engine(TableStructure::OwnedTree);
    load(&engine, TABLE, [(1, 10)]);
    let (older, younger) = (Engine::client(&engine), Engine::client(&engine));
    let (mut older, mut younger) = (older, younger);
    older
        .attempt(&mut |tx| {
            assert_eq!(get(tx, TABLE, 1)?, Some(10));
            let key = 1_u64.to_be_bytes();
            let refused = younger.attempt(&mut |tx| tx.read(TABLE, &key, Intent::Write).map(drop));
            assert_eq!(refused.expect_err("the row is locked").reason(), AbortReason::Deadlock);
            Ok(())
        })
        .expect("it commits");
    let waits = AtomicU64::new(0);
    std::thread::scope(|scope| {
        younger
            .attempt(&mut |tx| {
                put(tx, TABLE, 1, 11)?;
                scope.spawn(|| {
                    waits.store(1, Ordering::SeqCst);
                    run(&mut *Engine::client(&engine), |tx| get(tx, TABLE, 1)).expect("it commits");
                });
                Ok(())
            })
            .expect("it commits");
    });
    assert_eq!((waits.load(Ordering::SeqCst), rows(&engine, TABLE)), (1, vec![(1, 11)]));
    drop((older, younger));
    check(&engine);
}

#[test]
fn a_client_that_is_dropped_in_the_middle_leaves_nothing() {
    let engine = engine(TableStructure::OwnedTree);
    load(&engine, TABLE, (0..10).map(|key| (key, key)));
    let mut client = Engine::client(&engine);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        client.attempt(&mut |tx| {
            put(tx, TABLE, 2, 200)?;
            put(tx, TABLE, 12, 12)?;
            std::panic::resume_unwind(Box::new("planted"));
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(rows(&engine, TABLE), (0..10).map(|key| (key, key)).collect::<Vec<_>>());
    check(&engine);
}
