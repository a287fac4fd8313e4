//! Checkpoints made one after the other while a benchmark measures, so that their cost can be seen.
//!
//! Owns: the thread that makes them. Never: judges them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use atrapos::{CheckpointFailure, CheckpointReport, Database};
use serde_json::{Value, json};

/// Checkpoints of one measured interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checkpoints {
    /// Time that each took, in seconds. The last one may have ended after the interval.
    seconds: Vec<f64>,
    /// The report of the last one.
    last: CheckpointReport,
}

impl Checkpoints {
    pub(crate) fn count(&self) -> usize {
        self.seconds.len()
    }

    pub(crate) fn seconds_median(&self) -> f64 {
        atrapos_harness::median(&mut self.seconds.clone())
    }

    pub(crate) fn seconds_max(&self) -> f64 {
        self.seconds.iter().copied().fold(0.0, f64::max)
    }

    pub(crate) fn rows(&self) -> u64 {
        self.last.rows
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.last.bytes
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "count": self.count(),
            "seconds_total": self.seconds.iter().sum::<f64>(),
            "seconds_median": self.seconds_median(),
            "seconds_max": self.seconds_max(),
            "rows": self.rows(),
            "bytes": self.bytes(),
        })
    }
}

/// Interval at which the thread checks for the beginning of the measured interval.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Runs `run` and makes checkpoints from the moment it sets the flag it gets until it returns.
pub(crate) fn while_measuring<R>(
    db: &Database,
    run: impl FnOnce(&AtomicBool) -> R,
) -> (R, Result<Checkpoints, CheckpointFailure>) {
    let (measuring, over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut made = Checkpoints::default();
            loop {
                let is_last = over.load(Ordering::Acquire);
                // At least one checkpoint is made in a measured interval, however late this thread came to run.
                let missed_all = is_last && made.seconds.is_empty();
                if measuring.load(Ordering::Acquire) && (!is_last || missed_all) {
                    let began = Instant::now();
                    made.last = db.checkpoint()?;
                    made.seconds.push(began.elapsed().as_secs_f64());
                } else if !is_last {
                    std::thread::sleep(LOOK_EVERY);
                }
                if is_last {
                    return Ok(made);
                }
            }
        });
        let result = run(&measuring);
        over.store(true, Ordering::Release);
        (result, thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
