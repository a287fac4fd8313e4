//! Crashes at pseudo-random places of a simulated run, with everything that was not synced lost, torn or kept.

use std::hash::{BuildHasher, RandomState};

use atrapos::{Route, WorkerId};

use crate::support::{Notes, Witness, crash_once, files, judge, keys_of, note};

/// Seeds per run of the tests; `ATRAPOS_CRASHES` asks for more.
fn crashes() -> u64 {
    std::env::var("ATRAPOS_CRASHES").ok().and_then(|crashes| crashes.parse().ok()).unwrap_or(150)
}

#[test]
fn what_was_acknowledged_or_read_survives_and_nothing_is_there_in_part() {
    let one = std::env::var("ATRAPOS_SEED").ok().map(|seed| seed.parse::<u64>().expect("a number"));
    let first = one.unwrap_or_else(|| RandomState::new().hash_one("seed") >> 16);
    for seed in first..first + if one.is_some() { 1 } else { crashes() } {
        if let Err(wrong) = crash_once(seed) {
            panic!("{wrong}; ATRAPOS_SEED={seed} repeats this");
        }
    }
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
            if number % 7 == 3 {
                continue;
            }
            let now = number;
            db.run(Route::worker(WorkerId(0)), async move |tx| {
                for key in keys_of(0) {
                    let new = note(0, now);
                    if tx.update(notes, key, move |row| *row = new).await?.is_none() {
                        tx.insert(notes, key, note(0, now)).await?;
                    }
                }
                let extra = crate::support::extra_of(0);
                if now % 2 == 1 {
                    tx.run(notes.insert_if_absent(extra, note(0, now))).await.map(drop)
                } else {
                    tx.delete(notes, extra).await.map(drop)
                }
            })
            .unwrap();
        }
        if number % 7 == 3 {
            number -= 1;
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
