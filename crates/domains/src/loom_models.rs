//! Loom models of the inbox: a slot's turns, a worker's sleep, slots that change hands, and a client that waits for its answer; all
//! interleavings of clients and a worker, under the weak orderings that the memory model allows. The worker's side is the one that runs
//! (`polled`), in the last two.
//!
//! Each is also run with planted bugs, in a child process per bug. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p atrapos-domains --release --lib loom_models`.

use std::sync::atomic::AtomicU64;
use std::task::{Wake, Waker};

use atrapos_runtime::Parker;
use loom::thread;

use crate::barrier;
use crate::inbox::{Buffer, Lease};
use crate::planted::{Bug, must_notice};
use crate::polled::{Host, Notice, Passed, Polled, Stray};
use crate::structures::{Key, Reach};
use crate::sync::{Arc, AtomicBool, Ordering, fence};
use crate::task::{Outcome, TaskTable};

/// A table of tasks whose payload is the address of a counter, and whose reply is the number of tasks that counted there before.
static TABLE: TaskTable = TaskTable { run, drop_request, drop_reply };

unsafe fn run(_: Key, payload: *mut u8, word: *mut u8, _: &Reach) -> Outcome {
    // SAFETY: the models that have tasks run write the address of a counter that outlives their workers.
    let counter = unsafe { &*payload.cast::<*const AtomicU64>().read() };
    write(word, counter.fetch_add(1, Ordering::Relaxed));
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

/// A worker that nobody tells anything, with tasks that are all within reach and poll nothing.
#[derive(Default)]
struct Alone(Notice);

impl Host for Alone {
    fn notice(&self) -> &Notice {
        &self.0
    }
    fn pass(&self, _: &Arc<Buffer>, _: Stray) -> Passed {
        unreachable!("no task is a stray")
    }
    fn end_polls(&self) {}
}

/// A buffer and its worker, on the client's side.
struct Served {
    buffer: Arc<Buffer>,
    parker: Arc<Parker>,
    stop: Arc<AtomicBool>,
    /// Counts tasks; no part of what is modelled.
    counter: Arc<AtomicU64>,
}

impl Served {
    /// Starts a worker that sleeps where nothing is to do, and ends after so many tasks, or without a number once it is told to.
    fn start(tasks: Option<usize>) -> (Self, thread::JoinHandle<()>) {
        let served = Self {
            buffer: Buffer::new(1, std::ptr::null()),
            parker: Arc::new(Parker::new()),
            stop: Arc::new(AtomicBool::new(false)),
            counter: Arc::default(),
        };
        let (buffer, parker) = (Arc::clone(&served.buffer), Arc::clone(&served.parker));
        let stop = Arc::clone(&served.stop);
        let worker = thread::spawn(move || {
            parker.adopt_current_thread();
            let (reach, host) = (Reach::default(), Alone::default());
            let (mut polled, mut ran) = (Polled::new(buffer), 0);
            while tasks.map_or_else(|| !stop.load(Ordering::Acquire), |tasks| ran < tasks) {
                let now = polled.serve(&reach, true, &host);
                ran += now;
                if now == 0 {
                    let come = || {
                        barrier::heavy();
                        polled.has_work() || (tasks.is_none() && stop.load(Ordering::SeqCst))
                    };
                    parker.park(come, None);
                }
            }
        });
        (served, worker)
    }

    fn wake(&self) {
        barrier::light();
        self.parker.wake_after_fence();
    }

    fn lease(&self, count: usize) -> Lease {
        let lease = self.buffer.lease(count, None).expect("nobody has any");
        self.parker.wake();
        lease
    }

    fn submit(&self, slot: usize) {
        let counter = Arc::as_ptr(&self.counter);
        // SAFETY: the slot is leased by the model's client, and it is its turn; a pointer fits.
        unsafe { self.buffer.payload(slot).cast::<*const AtomicU64>().write(counter) };
        self.buffer.publish(slot, KEY, &TABLE);
        self.wake();
    }
}

/// Slots change hands while the worker looks through its rings: the tasks of the new ring run in its order.
#[test]
fn loom_leases() {
    loom::model(|| {
        let (served, worker) = Served::start(Some(3));
        let first = served.lease(2);
        served.submit(first.first);
        while !served.buffer.is_answered(first.first) {
            thread::yield_now();
        }
        served.buffer.give_back(first.id, Vec::new());
        let second = served.lease(2);
        assert_eq!(second.first, first.first);
        let slots = [second.first, second.first + 1];
        slots.into_iter().for_each(|slot| served.submit(slot));
        for (slot, number) in slots.into_iter().zip(1..) {
            while !served.buffer.is_answered(slot) {
                thread::yield_now();
            }
            assert_eq!(read(served.buffer.word(slot)), number, "tasks of a ring run in its order");
        }
        worker.join().expect("the worker ends");
    });
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A client leaves its waker and sleeps: it is woken once its answer is there, or finds it.
#[test]
fn loom_waiting_client() {
    loom::model(|| {
        let (served, worker) = Served::start(None);
        // In a thread of its own: a waker may come late, and loom's threads do not expect that where they wait for others to end.
        let client = thread::spawn(move || {
            let slot = served.lease(1).first;
            served.submit(slot);
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            while !served.buffer.is_answered(slot) {
                served.buffer.waker(slot).register(&waker);
                served.buffer.ask_to_be_woken(slot);
                fence(Ordering::SeqCst);
                served.parker.wake_after_fence();
                if !served.buffer.is_answered(slot) {
                    thread::park();
                }
            }
            assert_eq!(read(served.buffer.word(slot)), 0);
            served.stop.store(true, Ordering::SeqCst);
            served.parker.wake();
        });
        client.join().expect("the client is answered");
        worker.join().expect("the worker ends");
    });
}

#[test]
fn planted_bugs_are_caught() {
    must_notice("loom_models::loom_leases", Bug::ServeUnread);
    must_notice("loom_models::loom_leases", Bug::Publish);
    must_notice("loom_models::loom_waiting_client", Bug::SleepUnasked);
    must_notice("loom_models::loom_waiting_client", Bug::Answer);
    must_notice("loom_models::loom_turns", Bug::Publish);
    must_notice("loom_models::loom_turns", Bug::Answer);
    must_notice("loom_models::loom_sleep", Bug::PublishWithoutBarrier);
}
