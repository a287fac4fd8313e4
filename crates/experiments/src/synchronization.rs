//! Processor time of a synchronization of two workers, measured: what `atrapos topology --measure` stores for the cost model
//! (`ATraPos §V-B`).
//!
//! Transactions read two rows. Where both are on the home, a transaction takes the time that all transactions take; where clients
//! choose the second among all rows, half of the transactions reach the other worker, and the rest of the time is what synchronization
//! takes: messages at both ends with their lines, suspension, locks, the second poll. Time is the time in which workers find work: one that waits for a
//! worker whose core the system has taken away does not.
//!
//! Owns: the measurement. Never: decides what follows for the cost model.
//!
//! Runs of both kinds take turns on one database, and the least of each counts: what disturbs a run makes it longer.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use atrapos_harness::driver::{self, Clients, Progress, Routing, RunOptions};
use atrapos_workloads::Ledger;
use atrapos_workloads::micro::{Kind, Micro, MicroConfig};

use super::{ExperimentError, Setup, Watched, audit_and_close};

/// Workers that synchronize.
const WORKERS: usize = 2;

/// The greatest time that is taken for that of a synchronization, in nanoseconds: it takes about a microsecond, and one that takes ten has waited for
/// a core.
const SYNC_NS_MAX: f64 = 10_000.0;

/// Processor time of transactions that read two rows, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SyncTime {
    /// Of one whose rows are both on its home.
    pub local_ns: f64,
    /// Of one whose second row is any.
    pub any_ns: f64,
    /// The share of the latter that reach the other worker.
    pub share: f64,
}

impl SyncTime {
    /// Returns the processor time of a synchronization, at both ends together; `None` if the machine's noise hides it.
    #[must_use]
    pub fn sync_ns(&self) -> Option<f64> {
        let ns = (self.any_ns - self.local_ns) / self.share;
        (ns > 0.0 && ns <= SYNC_NS_MAX).then_some(ns)
    }
}

/// Returns the time of the measurement besides loading.
#[must_use]
pub fn length(setup: &Setup<'_>, rounds: u32) -> Duration {
    setup.phase * rounds * 2
}

/// Measures between the two workers of `setup`, in so many rounds of one phase for each kind of transactions.
///
/// # Errors
/// See [`ExperimentError`].
pub fn run(
    setup: &Setup<'_>,
    rounds: u32,
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(Watched<'_>),
) -> Result<SyncTime, ExperimentError> {
    if setup.workers != WORKERS {
        let workers = setup.workers;
        return Err(ExperimentError::Setting(format!(
            "a synchronization is of two workers, not of {workers}"
        )));
    }
    let rows_per_site = setup.rows / WORKERS as u64;
    let of = |multisite: f64| {
        let (kind, seed) = (Kind::Read, setup.seed);
        let config = MicroConfig {
            sites: WORKERS,
            rows_per_site,
            rows_per_transaction: 2,
            kind,
            multisite,
            zipf: 0.0,
            seed,
        };
        Micro::new(config).map_err(|error| ExperimentError::Setting(error.to_string()))
    };
    let workloads = [of(0.0)?, of(1.0)?];
    let (db, _) = setup.loaded(&workloads[0], |builder| builder.workers(WORKERS).fixed_scheme())?;
    let (mut ledger, mut times) = (Ledger::new(), [Vec::new(), Vec::new()]);
    for (run, at) in (0..rounds).flat_map(|_| [0, 1]).enumerate() {
        let per_worker = NonZeroUsize::new(setup.sessions).unwrap_or(NonZeroUsize::MIN);
        let options = RunOptions {
            clients: Clients::sessions(per_worker),
            routing: Routing::Owner,
            warmup: setup.phase / 4,
            measured: setup.phase - setup.phase / 4,
            run: run as u64,
            live: None,
        };
        let before = db.worker_reports();
        let result = driver::run(&db, &workloads[at], &options, interrupt, &mut |_: Progress| {})?;
        if interrupt.load(Ordering::Relaxed) {
            return Err(ExperimentError::Interrupted);
        }
        ledger.add(&result.tallies_all);
        let tps = result.throughput_tps();
        let now = db.worker_reports();
        let busy = before.iter().zip(&now).map(|(before, now)| now.runtime.busy_ratio_since(&before.runtime));
        times[at].push(1e9 * busy.sum::<f64>() / tps);
        watch(Watched { what: "synchronization", elapsed: setup.phase, tps });
    }
    audit_and_close(db, &workloads[0], &ledger)?;
    let [local_ns, any_ns] = times.map(|times| times.into_iter().fold(f64::INFINITY, f64::min));
    // The second row is another one than the first.
    let share = rows_per_site as f64 / (WORKERS as f64 * rows_per_site as f64 - 1.0);
    Ok(SyncTime { local_ns, any_ns, share })
}

#[cfg(test)]
mod tests {
    use super::SyncTime;

    #[test]
    fn synchronization_is_what_transactions_take_beyond_local_ones() {
        let time = |any_ns| SyncTime { local_ns: 300.0, any_ns, share: 0.5 };
        assert_eq!(time(700.0).sync_ns(), Some(800.0));
        assert_eq!(time(290.0).sync_ns(), None);
        assert_eq!(time(26_000.0).sync_ns(), None, "workers have waited for a core");
        assert_eq!(time(f64::INFINITY).sync_ns(), None);
    }
}
