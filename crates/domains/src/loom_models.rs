//! Loom models of a slot's turns and of a worker's sleep: all interleavings of a client and a worker, under the weak orderings that
//! the memory model allows.
//!
//! Each is also run with planted bugs, in a child process per bug. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p atrapos-domains --release --lib loom_models`.

use atrapos_runtime::Parker;
use loom::thread;

use crate::barrier;
use crate::inbox::Buffer;
use crate::planted::{Bug, must_notice};
use crate::structures::{Key, Reach};
use crate::sync::Arc;
use crate::task::{Outcome, TaskTable};

/// A table whose functions a model never calls.
static TABLE: TaskTable = TaskTable { run, drop_request, drop_reply };

unsafe fn run(_: Key, _: *mut u8, _: *mut u8, _: &Reach) -> Outcome {
    Outcome::Done
}
unsafe fn drop_request(_: *mut u8) {}
unsafe fn drop_reply(_: *mut u8, _: *mut u8) {}
/// The structure that all requests are about.
const KEY: Key = Key { index: 0, generation: 1 };

fn write(address: *mut u8, value: u64) {
    // SAFETY: the model's protocol lends the memory, eight bytes at least; loom reports it if it does not.
    unsafe { address.cast::<u64>().write(value) };
}

fn read(address: *mut u8) -> u64 {
    // SAFETY: as above, and it was written.
    unsafe { address.cast::<u64>().read() }
}

/// Two tasks in one slot: requests and replies are whole when they are seen.
#[test]
fn loom_turns() {
    loom::model(|| {
        let buffer = Buffer::new(1, std::ptr::null());
        let served = Arc::clone(&buffer);
        let worker = thread::spawn(move || {
            let mut answers = 0;
            for _ in 0..2 {
                while served.header(0).toggle == (answers & 1 != 0) {
                    thread::yield_now();
                }
                write(served.word(0), read(served.payload(0)) + 1);
                answers ^= 1;
                served.answer(0, answers);
            }
        });
        for number in 0..2 {
            write(buffer.payload(0), number);
            buffer.publish(0, KEY, &TABLE);
            while !buffer.is_answered(0) {
                thread::yield_now();
            }
            assert_eq!(read(buffer.word(0)), number + 1);
        }
        worker.join().expect("the worker ends");
    });
}

/// A worker that wants to sleep finds the request, or its client finds it asleep.
#[test]
fn loom_sleep() {
    loom::model(|| {
        let buffer = Buffer::new(1, std::ptr::null());
        let parker = Arc::new(Parker::new());
        let (served, sleeper) = (Arc::clone(&buffer), Arc::clone(&parker));
        let worker = thread::spawn(move || {
            sleeper.adopt_current_thread();
            while !served.header(0).toggle {
                sleeper.park(
                    || {
                        barrier::heavy();
                        served.header(0).toggle
                    },
                    None,
                );
            }
        });
        write(buffer.payload(0), 1);
        buffer.publish(0, KEY, &TABLE);
        barrier::light();
        parker.wake_after_fence();
        worker.join().expect("the worker ends");
    });
}

#[test]
fn planted_bugs_are_caught() {
    must_notice("loom_models::loom_turns", Bug::Publish);
    must_notice("loom_models::loom_turns", Bug::Answer);
    must_notice("loom_models::loom_sleep", Bug::PublishWithoutBarrier);
}
