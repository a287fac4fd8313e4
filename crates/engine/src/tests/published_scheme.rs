//! Requests from outside, which read the scheme without a shared write.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};

use atrapos_partition::abort::Abort;
use atrapos_partition::schema::{Schema, Table, TableRef};
use atrapos_placement::repartition::SchemeChange;
use atrapos_runtime::WorkerId;

use crate::database::Database;

crate::row! {
    #[derive(Clone)]
    struct Counter {
        value: u64,
    }
}

struct Counters;

impl Table for Counters {
    type Key = u64;
    type Row = Counter;
    const NAME: &'static str = "counters";
}

const WORKERS: u16 = 3;

fn open() -> (Database, TableRef<Counters>) {
    let schema = Schema::new().table::<Counters>().split_evenly("counters", 0, 299);
    let db = Database::builder(schema).workers(usize::from(WORKERS)).pin(false).huge_pages(false);
    let db = db.fixed_scheme().in_memory().unwrap();
    let counters = db.table::<Counters>().unwrap();
    (db, counters)
}

impl Database {
    fn refreshes(&self) -> u64 {
        self.adaptive.published().refreshes.load(Ordering::Relaxed)
    }

    /// Returns the worker that a transaction on `key` was submitted to.
    fn home_of(&self, counters: TableRef<Counters>, key: u64) -> WorkerId {
        self.run(counters.at(&key), async |tx| Ok(tx.home())).unwrap()
    }
}

#[test]
fn a_request_takes_no_lock_as_long_as_the_scheme_stays() {
    let (db, counters) = open();
    db.home_of(counters, 0);
    assert_eq!(db.refreshes(), 1, "the first request of a thread looks for the scheme");
    let scheme = db.scheme();
    let references = Arc::strong_count(&scheme);
    for key in 0..10_000 {
        let home = db.submit(counters.at(&(key % 300)), async |tx| Ok(tx.home())).unwrap();
        assert_eq!(Arc::strong_count(&scheme), references);
        if key % 100 == 0 {
            assert_eq!(home.wait(), Ok(WorkerId((key % 300 / 100) as u16)));
        }
    }
    assert_eq!(db.refreshes(), 1);
}

#[test]
fn a_change_of_the_scheme_costs_each_thread_one_look_and_counts_when_it_has_returned() {
    const THREADS: u64 = 4;
    const CHANGES: u64 = 10;
    let (db, counters) = open();
    let (db, barrier) = (&db, &Barrier::new(THREADS as usize + 1));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(move || {
                for change in 0..=CHANGES {
                    // The scheme has been changed.
                    barrier.wait();
                    for _ in 0..20 {
                        let expected = WorkerId((change % u64::from(WORKERS)) as u16);
                        assert_eq!(db.home_of(counters, 0), expected);
                    }
                    // It may change again.
                    barrier.wait();
                }
            });
        }
        for change in 0..=CHANGES {
            if change > 0 {
                let to = WorkerId((change % u64::from(WORKERS)) as u16);
                let moved = db.repartition([SchemeChange::move_to(counters, &0, to)]);
                assert_eq!(moved.unwrap().moves, 1);
            }
            barrier.wait();
            barrier.wait();
            assert_eq!(db.refreshes(), THREADS * (change + 1));
        }
    });
}

#[test]
fn schemes_that_threads_have_seen_go_with_the_database() {
    let (first, in_first) = open();
    let (second, in_second) = open();
    let requests = || -> Result<(), Abort> {
        for round in 0..3 {
            let to = WorkerId(2 - round % 2);
            first.repartition([SchemeChange::move_to(in_first, &0, to)])?;
            assert_eq!(first.home_of(in_first, 0), to);
            assert_eq!(second.home_of(in_second, 0), WorkerId(0), "databases do not mix");
        }
        Ok(())
    };
    std::thread::scope(|scope| scope.spawn(requests).join()).unwrap().unwrap();
    requests().unwrap();
    let scheme = first.scheme();
    drop(first);
    assert_eq!(Arc::strong_count(&scheme), 1, "neither this thread nor the one that has ended keeps it");
    assert_eq!(second.home_of(in_second, 299), WorkerId(2));
}
