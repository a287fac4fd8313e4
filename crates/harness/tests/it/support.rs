//! Parts that the tests of the workloads share.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use atrapos::{Database, LoadProgress, SchemeChange};
use atrapos_harness::driver::{Clients, Routing, RunOptions, RunResult, run};
use atrapos_workloads::{Ledger, Workload};

/// A loaded database on unpinned workers: tests share their cores.
pub(crate) fn loaded<W: Workload>(workload: &W, workers: usize) -> Database {
    let db = Database::builder(workload.schema()).workers(workers).pin(false).huge_pages(false).in_memory();
    let db = db.expect("the schema is sound");
    workload.load(&db, &LoadProgress::default()).expect("an empty database takes the load");
    workload.audit(&db, &Ledger::new()).expect("a database is sound right after it was loaded");
    db
}

pub(crate) const SESSIONS: Clients = Clients::sessions(NonZeroUsize::new(4).expect("four"));
/// Sessions that draw several transactions at a time, and look their keys up together.
pub(crate) const BURSTS: Clients = Clients::Sessions {
    per_worker: NonZeroUsize::new(4).expect("four"),
    pipeline: NonZeroUsize::MIN,
    burst: NonZeroUsize::new(7).expect("seven"),
};
pub(crate) const THREADS: Clients = Clients::Threads { threads: NonZeroUsize::new(3).expect("three") };

/// Every driver.
pub(crate) const DRIVERS: [(Clients, Routing); 4] =
    [(SESSIONS, Routing::Any), (BURSTS, Routing::Owner), (THREADS, Routing::Any), (THREADS, Routing::Owner)];

/// Options of a short run. Its length decides how many transactions run, not whether a test passes.
pub(crate) fn short(clients: Clients, routing: Routing, run: u64) -> RunOptions {
    RunOptions {
        clients,
        routing,
        warmup: Duration::from_millis(10),
        measured: Duration::from_millis(50),
        run,
        live: None,
    }
}

/// One short run, without an audit: nothing but the clients' transactions runs on the database.
pub(crate) fn run_once<W: Workload>(
    db: &Database,
    workload: &W,
    clients: Clients,
    routing: Routing,
    attempt: u64,
) -> RunResult {
    let result = run(db, workload, &short(clients, routing, attempt), &AtomicBool::new(false), &mut |_| {});
    result.unwrap_or_else(|error| panic!("{clients:?}, {routing:?}: {error}"))
}

/// Runs until at least one transaction has completed, enters everything in the ledger and audits.
pub(crate) fn run_and_audit<W: Workload>(
    db: &Database,
    workload: &W,
    clients: Clients,
    routing: Routing,
    ledger: &mut Ledger,
) -> RunResult {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let result = run_once(db, workload, clients, routing, attempt);
        ledger.add(&result.tallies_all);
        if let Err(error) = workload.audit(db, ledger) {
            panic!("{clients:?}, {routing:?}: {error}");
        }
        // On a busy machine a short interval may pass without one transaction.
        if result.classes.iter().any(|class| class.tally.completed() > 0) || attempt == 100 {
            return result;
        }
    }
}

/// Does `work` while partitions are changed one after the other: round after round by `changes`, of which those that
/// make no sense any more (a split where a partition begins already) are left out.
pub(crate) fn while_repartitioning(
    db: &Database,
    changes: impl Fn(u64) -> Vec<SchemeChange> + Sync,
    work: impl FnOnce(),
) {
    /// Ends the changes also when `work` panics, or the test would hang.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut made = 0;
            for round in 0.. {
                for change in changes(round) {
                    made += u64::from(db.repartition([change]).is_ok());
                }
                if made > 0 && stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let stop = Stop(&stop);
        work();
        drop(stop);
    });
}
