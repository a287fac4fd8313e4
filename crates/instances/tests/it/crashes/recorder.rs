//! The calls of clients outside, and the answers they got, as a history.
//!
//! Owns: the transactions that clients draw, and the record of them. Never: starts or ends an instance.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use atrapos::{AbortReason, CallError};
use atrapos_history::{Anomaly, Entry, History, Outcome, Report};
use atrapos_instances::{Client, ClientError};

use super::steps::{CUT, SHARED, Step, Steps, events};

/// Entries of all clients, in the order of time.
#[derive(Default)]
pub(super) struct Recorder {
    entries: Mutex<Vec<Entry>>,
}

/// Numbers that follow from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % bound
    }

    fn key(&mut self, instance: u64) -> u64 {
        let of_instance = if instance == 0 { (SHARED.0, CUT) } else { (CUT, SHARED.1) };
        of_instance.0 + self.below(of_instance.1 - of_instance.0)
    }

    /// Draws a transaction whose home is the key of its first step. Some change no row of their home, some read ranges.
    fn steps(&mut self) -> Vec<Step> {
        let home = self.below(2);
        let kind = self.below(4);
        let written = [kind != 0 && self.below(2) == 0, true, kind == 1];
        let mut steps = Vec::new();
        for (instance, written) in [home, 1 - home, self.below(2)].into_iter().zip(written) {
            let (key, version) = (self.key(instance), 0);
            steps.push(match written {
                false => Step::Get { key },
                true if self.below(2) == 0 => Step::Remove { key, version },
                true => Step::Put { key, version },
            });
        }
        if self.below(2) == 0 {
            let (from, width) = (SHARED.0 + self.below(SHARED.1 - SHARED.0), self.below(SHARED.1 - SHARED.0));
            let to = (from + 1 + width).min(SHARED.1);
            let limit = if self.below(3) == 0 { 1 + self.below(3) as usize } else { usize::MAX };
            let scan = Step::Scan { from, to, backward: self.below(2) == 0, limit };
            steps.insert(1 + self.below(3) as usize, scan);
        }
        steps
    }
}

impl Recorder {
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls, and records the call and what came of it. The place of an entry is its moment, and makes numbers of versions too.
    pub(super) fn call(&self, client: &Client, session: u64, home: u64, steps: &[Step]) -> Outcome {
        let mut steps = steps.to_vec();
        let mut entries = self.lock();
        let at = entries.len() as u64;
        for (place, version) in steps.iter_mut().filter_map(Step::version).enumerate() {
            *version = (at + 1) << 8 | place as u64;
        }
        let writes = steps.iter().filter_map(Step::writes).collect();
        entries.push(Entry::Begins { session, at, writes, appends: Vec::new() });
        drop(entries);
        let (outcome, events) = match client.call(&Steps { home, steps: steps.clone() }) {
            Ok(found) => (Outcome::Committed, events(&steps, &found)),
            Err(error) => (outcome_of(&error), Vec::new()),
        };
        let mut entries = self.lock();
        let at = entries.len() as u64;
        entries.push(Entry::Ends { session, at, outcome, events });
        outcome
    }

    /// Calls until it has committed.
    pub(super) fn commit(&self, client: &Client, session: u64, home: u64, steps: &[Step]) {
        while self.call(client, session, home, steps) != Outcome::Committed {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Runs transactions over both instances until they are to stop.
    pub(super) fn run(&self, client: &Client, session: u64, stop: &AtomicBool) {
        let mut random = Random(session + 1);
        while !stop.load(Ordering::Relaxed) {
            let steps = random.steps();
            let (Step::Get { key } | Step::Put { key, .. } | Step::Remove { key, .. }) = steps[0] else {
                unreachable!("the first step is of one key")
            };
            self.call(client, session, key, &steps);
        }
    }

    pub(super) fn judge(&self) -> Result<Report, Anomaly> {
        History::new(self.lock().iter().cloned()).expect("a history").check()
    }
}

/// Returns what is known of a transaction that has no result.
fn outcome_of(error: &ClientError) -> Outcome {
    match error {
        ClientError::Lost { .. } => Outcome::Unknown,
        ClientError::NotCalled(_) => Outcome::Aborted,
        ClientError::Call(CallError::Aborted(abort)) => match abort.reason() {
            AbortReason::Deadlock | AbortReason::Unreachable => Outcome::Aborted,
            AbortReason::OutcomeUnknown | AbortReason::NotDurable | AbortReason::ShuttingDown => {
                Outcome::Unknown
            }
            _ => panic!("{error}"),
        },
        _ => panic!("{error}"),
    }
}
