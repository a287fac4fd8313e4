//! Loom models of the consolidation slot: all interleavings of a few threads, and the weak orderings that the memory model
//! allows, are tried.
//!
//! Each model is also run with planted bugs, in a child process per bug (loom leaves its state in pieces when a model
//! fails): a model that cannot fail proves nothing. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p atrapos-baselines --release --lib loom`.

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::slot::Slot;
use crate::planted::{Bug, must_fail};

/// A slot, the tail that its leaders move, and the memory that is reserved: one cell for each byte.
struct Buffer {
    slot: Slot,
    tail: Mutex<u64>,
    memory: [UnsafeCell<usize>; 4],
}

impl Buffer {
    fn new() -> Arc<Buffer> {
        Arc::new(Buffer { slot: Slot::default(), tail: Mutex::new(0), memory: Default::default() })
    }

    /// Reserves a byte through the slot and writes to it. The leader, as who knows that the memory is free, has just cleared it.
    fn append(&self, value: usize) {
        let Some(joined) = self.slot.join(1, 4) else {
            let mut tail = self.tail.lock().expect("nobody panics");
            self.clear(*tail, 1);
            self.write(*tail, value);
            *tail += 1;
            return;
        };
        if joined.leads {
            return self.lead(value);
        }
        let base = self.slot.base(thread::yield_now).expect("the leader reserves");
        self.write(base + joined.offset, value);
    }

    /// Reserves for a group whose first member the thread is, and writes to the first byte.
    fn lead(&self, value: usize) {
        let mut tail = self.tail.lock().expect("nobody panics");
        let bytes = self.slot.close();
        let base = *tail;
        *tail += bytes;
        self.clear(base, bytes);
        drop(tail);
        self.slot.publish(Some(base));
        self.write(base, value);
    }

    fn clear(&self, from: u64, bytes: u64) {
        (from..from + bytes).for_each(|at| self.write(at, 0));
    }

    fn write(&self, at: u64, value: usize) {
        // SAFETY: loom checks that the accesses are ordered.
        self.memory[at as usize].with_mut(|cell| unsafe { *cell = value });
    }

    fn read(&self, bytes: usize) -> Vec<usize> {
        // SAFETY: as above.
        let read = |cell: &UnsafeCell<usize>| cell.with(|cell| unsafe { *cell });
        let mut values: Vec<usize> = self.memory[..bytes].iter().map(read).collect();
        values.sort_unstable();
        values
    }
}

fn bounded(preemptions: usize) -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // A member that waits for its leader looks again and again.
    builder.max_branches = 10_000;
    builder
}

/// A group of two: each has a byte of its own, which is free before it writes there. (Two members that wait at the same time
/// would let each other run for ever, as far as loom knows.)
#[test]
fn slot_group_of_two() {
    bounded(4).check(|| {
        let buffer = Buffer::new();
        let leads = buffer.slot.join(1, 4).expect("the slot is open");
        assert!(leads.leads);
        let member = {
            let buffer = Arc::clone(&buffer);
            thread::spawn(move || buffer.append(2))
        };
        buffer.lead(1);
        buffer.append(3);
        member.join().expect("no thread fails");
        assert_eq!(*buffer.tail.lock().expect("nobody panics"), 3);
        assert_eq!(buffer.read(3), [1, 2, 3]);
    });
}

/// Two threads append twice: a slot is used again, and nobody takes the position of another group.
#[test]
fn slot_is_used_again() {
    bounded(3).check(|| {
        let buffer = Buffer::new();
        let other = {
            let buffer = Arc::clone(&buffer);
            thread::spawn(move || {
                buffer.append(1);
                buffer.append(2);
            })
        };
        buffer.append(3);
        buffer.append(4);
        other.join().expect("no thread fails");
        assert_eq!(buffer.read(4), [1, 2, 3, 4]);
    });
}

#[test]
fn log_planted_bugs_are_caught() {
    must_fail("log::loom_models::slot_is_used_again", Bug::SlotReopenedEarly);
    must_fail("log::loom_models::slot_group_of_two", Bug::BasePublishedRelaxed);
    must_fail("log::loom_models::slot_is_used_again", Bug::MemberNotCounted);
}
