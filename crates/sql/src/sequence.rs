//! Sequences: numbers that are given out once each, whatever becomes of the transactions that took them.
//!
//! Owns: the numbers that are reserved and not given out yet. Never: makes a reservation durable; `database` does, in blocks,
//! before numbers of a block are given out. So a number is never given out twice, and a crash or an opening leaves a gap of a block at
//! most.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::error::{SqlError, SqlState};
use crate::schema::FIRST_SEQUENCE_OID;

/// Numbers that are reserved at a time.
const BLOCK: i64 = 256;

/// A sequence, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SequenceMeta {
    pub(crate) id: u32,
    pub(crate) start: i64,
    pub(crate) increment: i64,
    pub(crate) min: i64,
    pub(crate) max: i64,
    pub(crate) cycle: bool,
    /// The next number that is not reserved; `None` when there are no more.
    pub(crate) next: Option<i64>,
    /// The table and column that it goes with.
    pub(crate) owner: Option<(String, String)>,
}

#[derive(Debug)]
struct State {
    meta: SequenceMeta,
    next: Option<i64>,
    /// Numbers of the reservation that are left, `next` the first of them.
    left: i64,
    /// The last number given out, and whether one was.
    last: i64,
    is_called: bool,
}

/// A sequence.
#[derive(Debug)]
pub(crate) struct Sequence {
    name: String,
    oid: u32,
    state: Mutex<State>,
}

impl SequenceMeta {
    /// The number that follows another one.
    fn after(&self, number: i64) -> Option<i64> {
        let next = number.checked_add(self.increment).filter(|next| (self.min..=self.max).contains(next));
        let first = if self.increment > 0 { self.min } else { self.max };
        next.or(self.cycle.then_some(first))
    }
}

impl Sequence {
    pub(crate) fn new(name: String, meta: SequenceMeta) -> Sequence {
        let oid = FIRST_SEQUENCE_OID + meta.id;
        let (next, last) = (meta.next, meta.start);
        Sequence { name, oid, state: Mutex::new(State { meta, next, left: 0, last, is_called: false }) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn oid(&self) -> u32 {
        self.oid
    }

    /// What is to be kept of it.
    pub(crate) fn meta(&self) -> SequenceMeta {
        self.state().meta.clone()
    }

    /// The last number given out, and whether one was.
    pub(crate) fn last(&self) -> (i64, bool) {
        let state = self.state();
        (state.last, state.is_called)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives out a number; `None` if none is reserved, and a block has to be.
    pub(crate) fn take(&self) -> Result<Option<i64>, SqlError> {
        let mut state = self.state();
        let Some(number) = state.next else {
            let bound = if state.meta.increment > 0 { state.meta.max } else { state.meta.min };
            let what = if state.meta.increment > 0 { "maximum" } else { "minimum" };
            return Err(SqlError::new(
                SqlState("2200H"),
                format!("nextval: reached {what} value of sequence \"{}\" ({bound})", self.name),
            ));
        };
        if state.left == 0 {
            return Ok(None);
        }
        state.left -= 1;
        state.last = number;
        state.is_called = true;
        state.next = state.meta.after(number);
        Ok(Some(number))
    }

    /// Returns true if there are reserved numbers, or none can be reserved any more.
    pub(crate) fn has_left(&self) -> bool {
        let state = self.state();
        state.left > 0 || state.next.is_none()
    }

    /// What is to be kept before another block is given out.
    pub(crate) fn reservation(&self) -> SequenceMeta {
        let state = self.state();
        let mut meta = state.meta.clone();
        let mut next = state.next;
        for _ in 0..BLOCK {
            next = next.and_then(|number| meta.after(number));
        }
        meta.next = next;
        meta
    }

    /// A reservation has been kept: its numbers can be given out.
    pub(crate) fn reserved(&self, kept: SequenceMeta) {
        let mut state = self.state();
        state.meta = kept;
        state.left = BLOCK;
    }

    /// What is to be kept before the sequence goes on from a number, which itself was given out if `is_called`.
    pub(crate) fn set(&self, number: i64, is_called: bool) -> Result<SequenceMeta, SqlError> {
        let mut meta = self.state().meta.clone();
        if !(meta.min..=meta.max).contains(&number) {
            return Err(SqlError::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!(
                    "setval: value {number} is out of bounds for sequence \"{}\" ({}..{})",
                    self.name, meta.min, meta.max
                ),
            ));
        }
        meta.next = if is_called { meta.after(number) } else { Some(number) };
        Ok(meta)
    }

    /// The sequence goes on from what has been kept.
    pub(crate) fn was_set(&self, kept: SequenceMeta, number: i64, is_called: bool) {
        let mut state = self.state();
        (state.next, state.left, state.last, state.is_called) = (kept.next, 0, number, is_called);
        state.meta = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_out_once_and_in_blocks() {
        let meta = SequenceMeta {
            id: 0,
            start: 1,
            increment: 1,
            min: 1,
            max: 1000,
            cycle: false,
            next: Some(1),
            owner: None,
        };
        let sequence = Sequence::new("s".to_owned(), meta);
        assert_eq!(sequence.take().unwrap(), None);
        let kept = sequence.reservation();
        assert_eq!(kept.next, Some(257));
        sequence.reserved(kept.clone());
        assert_eq!((1..=256).map(|_| sequence.take().unwrap()).filter(Option::is_some).count(), 256);
        assert_eq!(sequence.take().unwrap(), None);
        // After an opening it goes on behind the block.
        let again = Sequence::new("s".to_owned(), kept);
        again.reserved(again.reservation());
        assert_eq!(again.take().unwrap(), Some(257));
        let kept = again.set(1000, true).unwrap();
        again.was_set(kept, 1000, true);
        assert_eq!(again.take().unwrap_err().code.0, "2200H");
    }
}
