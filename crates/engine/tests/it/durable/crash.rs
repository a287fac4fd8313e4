//! Crashes at pseudo-random places of a simulated run, with everything that was not synced lost, torn or kept.

use std::sync::atomic::{AtomicU64, Ordering};

use atrapos::{Route, WorkerId};

use crate::durable::notes::{
    Notes, Witness, change, crash_once, crash_once_lending, files, judge, read_what_has_moved,
    read_what_is_lent,
};
use crate::support::{for_seeds, for_seeds_in_parallel};

/// Runs that are cut off, each from a seed of its own, in one run of the tests.
const CRASHES: u64 = 2_000;

#[test]
fn what_was_acknowledged_or_read_survives_and_nothing_is_there_in_part() {
    for_seeds_in_parallel(CRASHES, |seed| {
        if let Err(wrong) = crash_once(seed) {
            panic!("{wrong}");
        }
    });
}

#[test]
fn what_was_acknowledged_or_read_survives_when_workers_lend_each_other_the_table() {
    let lent = AtomicU64::new(0);
    for_seeds_in_parallel(300, |seed| match crash_once_lending(seed) {
        Ok(observed) => drop(lent.fetch_add(observed.statistics.lent, Ordering::Relaxed)),
        Err(wrong) => panic!("{wrong}"),
    });
    assert!(lent.into_inner() > 100, "partitions were lent before the crashes");
}

#[test]
fn the_same_seed_gives_the_same_run_the_same_crash_and_the_same_rows() {
    for_seeds(20, |seed| {
        let [once, again, other] =
            [seed, seed, seed + 1].map(|seed| crash_once(seed).expect("nothing is wrong"));
        assert_eq!(once, again);
        assert_eq!(once.digest(), again.digest());
        assert_ne!(once.digest(), other.digest(), "another seed gives another run");
    });
}

#[test]
fn what_is_not_durable_is_not_lent() {
    for_seeds(20, |seed| assert_eq!(read_what_is_lent(seed), (false, true)));
}

#[test]
fn what_moved_before_it_was_durable_is_told_when_it_is() {
    for_seeds(20, |seed| assert_eq!(read_what_has_moved(seed), (true, false, true)));
}

#[test]
fn a_database_survives_one_crash_after_another_and_no_lost_record_comes_back() {
    let mut files = files();
    let mut number = 0;
    for round in 0..12_u64 {
        let workers = 1 + (round % 3) as usize;
        let known = [Witness { submitted: number, acknowledged: number, observed: 0 }];
        let db = judge(&files, workers, &known).unwrap_or_else(|wrong| panic!("round {round}: {wrong}"));
        let notes = db.table::<Notes>().unwrap();
        for _ in 0..5 {
            number += 1;
            let now = number;
            db.run(Route::worker(WorkerId(0)), async move |tx| change(tx, notes, 0, now).await).unwrap();
        }
        if round % 4 == 1 {
            db.checkpoint().unwrap();
        }
        files = match round % 3 {
            0 => files.power_cut(round),
            1 => files.kill(),
            _ => {
                let report = db.close(std::time::Duration::from_secs(5));
                assert_eq!((report.dropped, report.failure), (0, None));
                files
            }
        };
    }
    assert!(judge(&files, 2, &[Witness { submitted: number, acknowledged: number, observed: 0 }]).is_ok());
}
