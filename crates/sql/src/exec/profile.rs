//! The rows and times of the parts of a plan, for EXPLAIN ANALYZE.
//!
//! Owns: what was measured of one execution. Never: measures when nobody asks.
//!
//! A part is known by its address in the plan, which stays in its place as long as it runs. The time of a part has that of the parts
//! below it in it, and waits for locks and for other workers.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Measures of one part of a plan.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    rows: usize,
    runs: usize,
    took: Duration,
}

/// Measures of the parts of a plan.
#[derive(Debug, Default)]
pub(crate) struct Profile(Mutex<HashMap<usize, Part>>);

/// The address of a part of a plan.
fn address<T>(part: &T) -> usize {
    std::ptr::from_ref(part).addr()
}

impl Profile {
    /// Notes one run of a part.
    pub(super) fn note<T>(&self, part: &T, rows: usize, began: Instant) {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let measured = parts.entry(address(part)).or_default();
        measured.rows += rows;
        measured.runs += 1;
        measured.took += began.elapsed();
    }

    /// The measures of a part in words; nothing was measured of one that did not run by itself.
    pub(crate) fn shown<T>(&self, part: &T) -> String {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match parts.get(&address(part)) {
            Some(Part { rows, runs, took }) => {
                format!(" (actual time={:.3} ms, rows={rows}, loops={runs})", took.as_secs_f64() * 1e3)
            }
            None => String::new(),
        }
    }
}
