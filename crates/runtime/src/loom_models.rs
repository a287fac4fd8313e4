//! Loom models of every hand-written synchronization of this crate: all interleavings of a few threads, and the weak
//! orderings that the memory model allows, are tried.
//!
//! Each model is also run with planted bugs, in a child process per bug (loom leaves its state in pieces when a model
//! fails): a model that cannot fail proves nothing. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p atrapos-runtime --release --lib loom_models`.

use std::future::Future;
use std::pin::Pin;
use std::process::Command;
use std::task::{Context, Poll, Waker};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use crate::inbox::{Refused, inbox};
use crate::incoming::Incoming;
use crate::oneshot::oneshot;
use crate::park::Parker;
use crate::planted::Bug;
use crate::published::Published;
use crate::ring::{RING_BYTES_MIN, ring};
use crate::waker::Told;

/// Collects what the closures carry, in the order they run.
type Log = std::cell::RefCell<Vec<usize>>;

/// Runs one model of this file in a child process with a bug planted, and expects it to fail.
fn must_fail(model: &str, bug: Bug) {
    let name = format!("loom_models::{model}");
    let output = Command::new(std::env::current_exe().expect("a test knows its own path"))
        .args([&name, "--exact", "--test-threads=1"])
        .env("ATRAPOS_PLANTED_BUG", format!("{bug:?}"))
        .output()
        .expect("a test starts itself");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("running 1 test"), "{name} is not a test of this binary");
    assert!(!output.status.success(), "{name} does not notice the planted bug {bug:?}");
}

fn bounded(preemptions: usize) -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder
}

// --- ring --------------------------------------------------------------------------------------------------------------

/// Payloads arrive whole and in order, whatever is published when.
#[test]
fn ring_publication() {
    loom::model(|| {
        let (producer, consumer) = ring::<Log>(RING_BYTES_MIN);
        let sender = thread::spawn(move || {
            for value in 1..=2usize {
                assert!(producer.push(move |log: &Log| log.borrow_mut().push(value)).is_ok());
                producer.publish();
            }
        });
        let log = Log::default();
        while log.borrow().len() < 2 {
            consumer.drain(&log, 8);
            thread::yield_now();
        }
        sender.join().expect("the sender does not fail");
        assert_eq!(*log.borrow(), [1, 2]);
    });
}

/// Space is written again only after its closure has been moved out, across the end of the memory.
#[test]
fn ring_wrap() {
    bounded(3).check(|| {
        let (producer, consumer) = ring::<Log>(RING_BYTES_MIN);
        // Fill to the brim and drain half before the threads start, so that the model is about the wrap alone.
        let mut next = 0;
        while producer.push(wide(next)).is_ok() {
            next += 1;
        }
        producer.publish();
        let log = Log::default();
        consumer.drain(&log, next - 2);
        let first = next;
        let sender = thread::spawn(move || {
            let mut next = first;
            let mut refused = 0;
            while next < first + 8 && refused < 3 {
                if producer.push(wide(next)).is_ok() {
                    next += 1;
                    producer.publish();
                } else {
                    refused += 1;
                    thread::yield_now();
                }
            }
            next
        });
        consumer.drain(&log, 4);
        consumer.drain(&log, 4);
        let sent = sender.join().expect("the sender does not fail");
        while log.borrow().len() < sent {
            assert!(consumer.drain(&log, 8) > 0);
        }
        assert!(log.borrow().iter().copied().eq(0..sent));
    });
}

/// A closure whose record is 112 bytes long, which does not divide the ring.
fn wide(value: usize) -> impl FnOnce(&Log) + Send + 'static {
    let payload = [value; 12];
    move |log: &Log| log.borrow_mut().push(payload[11])
}

/// Closures that were not delivered are dropped exactly once, whichever end goes last, published or not.
#[test]
fn ring_drop() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    loom::model(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let (producer, consumer) = ring::<Log>(RING_BYTES_MIN);
        let counted = [Counted(Arc::clone(&drops)), Counted(Arc::clone(&drops))];
        let sender = thread::spawn(move || {
            for (index, counted) in counted.into_iter().enumerate() {
                assert!(producer.push(move |_: &Log| drop(counted)).is_ok());
                if index == 0 {
                    producer.publish();
                }
            }
        });
        consumer.drain(&Log::default(), 1);
        drop(consumer);
        sender.join().expect("the sender does not fail");
        assert_eq!(drops.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn ring_planted_bugs_are_caught() {
    must_fail("ring_publication", Bug::RingPublish);
    must_fail("ring_wrap", Bug::RingRelease);
    must_fail("ring_drop", Bug::RingDrop);
}

// --- parking -----------------------------------------------------------------------------------------------------------

/// Work that is published by plain stores and a wake is never slept through. (A lost wake-up is a deadlock, which loom
/// reports. The sleeper is the spawned thread, because loom's `unpark` also ends a `join`.)
#[test]
fn park_handshake() {
    loom::model(|| {
        let parker = Arc::new(Parker::new());
        let work = Arc::new(AtomicUsize::new(0));
        let sleeper = {
            let (parker, work) = (Arc::clone(&parker), Arc::clone(&work));
            thread::spawn(move || {
                parker.adopt_current_thread();
                let mut seen = 0;
                while seen < 2 {
                    parker.park(|| work.load(Ordering::Acquire) != seen, None);
                    seen = work.load(Ordering::Acquire);
                }
            })
        };
        for value in 1..=2 {
            work.store(value, Ordering::Release);
            parker.wake();
        }
        sleeper.join().expect("the sleeper does not fail");
    });
}

/// Rings and a parker together, as a worker uses them.
#[test]
fn park_ring() {
    loom::model(|| {
        let parker = Arc::new(Parker::new());
        let (producers, incoming) = Incoming::<Log>::new(2, RING_BYTES_MIN);
        let sleeper = {
            let parker = Arc::clone(&parker);
            thread::spawn(move || {
                parker.adopt_current_thread();
                let log = Log::default();
                while incoming.drain(&log, 8) == 0 {
                    parker.park(|| incoming.any_published(), None);
                }
                assert_eq!(*log.borrow(), [7]);
            })
        };
        assert!(producers[1].push(|log: &Log| log.borrow_mut().push(7)).is_ok());
        producers[1].publish();
        parker.wake();
        sleeper.join().expect("the sleeper does not fail");
    });
}

/// A lane from outside and a parker together, as a worker uses both of its lanes.
#[test]
fn park_lane() {
    loom::model(|| {
        let parker = Arc::new(Parker::new());
        let (sender, receiver) = inbox::<Log>(2);
        let sleeper = {
            let parker = Arc::clone(&parker);
            thread::spawn(move || {
                parker.adopt_current_thread();
                let log = Log::default();
                while receiver.drain(&log, 8) == 0 {
                    parker.park(|| receiver.has_ready(), None);
                }
                assert_eq!(*log.borrow(), [7]);
            })
        };
        assert!(sender.try_send(|log: &Log| log.borrow_mut().push(7)).is_ok());
        parker.wake();
        sleeper.join().expect("the sleeper does not fail");
    });
}

/// Two workers of one thread: what is published for either of them is not slept through, whoever wakes the thread.
#[test]
fn park_in_all() {
    bounded(3).check(|| {
        let parkers: Arc<[Parker; 2]> = Arc::new([Parker::new(), Parker::new()]);
        let work: Arc<[AtomicUsize; 2]> = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let sleeper = {
            let (parkers, work) = (Arc::clone(&parkers), Arc::clone(&work));
            thread::spawn(move || {
                parkers.iter().for_each(Parker::adopt_current_thread);
                let published = || work.iter().map(|work| work.load(Ordering::Acquire)).sum::<usize>();
                let mut seen = 0;
                while seen < 2 {
                    Parker::park_in_all(parkers.iter(), || published() != seen, None);
                    seen = published();
                }
            })
        };
        let other = {
            let (parkers, work) = (Arc::clone(&parkers), Arc::clone(&work));
            thread::spawn(move || {
                work[1].store(1, Ordering::Release);
                parkers[1].wake();
            })
        };
        work[0].store(1, Ordering::Release);
        parkers[0].wake();
        other.join().expect("the publisher does not fail");
        sleeper.join().expect("the sleeper does not fail");
    });
}

#[test]
fn park_planted_bugs_are_caught() {
    must_fail("park_in_all", Bug::ParkOneFlag);
    for model in ["park_handshake", "park_ring", "park_lane", "park_in_all"] {
        must_fail(model, Bug::ParkRecheck);
        must_fail(model, Bug::ParkSleeperFence);
        must_fail(model, Bug::ParkWakerFence);
    }
}

// --- inbox -------------------------------------------------------------------------------------------------------------

/// Two senders: each closure arrives once, whole, and those of one sender in order.
#[test]
fn inbox_two_senders() {
    bounded(3).check(|| {
        let (sender, receiver) = inbox::<Log>(2);
        let send = |value: usize| {
            let sender = sender.clone();
            thread::spawn(move || sender.try_send(move |log: &Log| log.borrow_mut().push(value)).is_ok())
        };
        let threads = [send(1), send(2)];
        let log = Log::default();
        receiver.drain(&log, 8);
        for thread in threads {
            assert!(thread.join().expect("the sender does not fail"), "two slots hold two closures");
        }
        receiver.drain(&log, 8);
        let mut log = log.into_inner();
        log.sort_unstable();
        assert_eq!(log, [1, 2]);
    });
}

/// A sender that meets a full inbox sleeps, and is woken when there is room.
#[test]
fn inbox_back_pressure() {
    bounded(3).check(|| {
        let (sender, receiver) = inbox::<Log>(2);
        for value in [1, 2] {
            assert!(sender.try_send(move |log: &Log| log.borrow_mut().push(value)).is_ok());
        }
        let blocked = thread::spawn(move || sender.send(|log: &Log| log.borrow_mut().push(3)).is_ok());
        let log = Log::default();
        while log.borrow().len() < 3 {
            receiver.drain(&log, 8);
            thread::yield_now();
        }
        assert!(blocked.join().expect("the sender does not fail"));
        assert_eq!(*log.borrow(), [1, 2, 3]);
    });
}

/// Closing: what was accepted is there to be taken, what comes afterwards is refused, and nothing comes in between.
#[test]
fn inbox_close() {
    bounded(3).check(|| {
        let (sender, receiver) = inbox::<Log>(2);
        let late = sender.clone();
        let racing = thread::spawn(move || late.try_send(|log: &Log| log.borrow_mut().push(1)).is_ok());
        sender.close();
        assert!(matches!(sender.try_send(|_: &Log| ()), Err(Refused::Closed(_))));
        let dropped = receiver.drop_rest();
        let accepted = racing.join().expect("the sender does not fail");
        assert_eq!(usize::from(accepted), dropped);
        assert!(!receiver.has_ready());
    });
}

/// Closing wakes a sender that waits for room, and it gets its closure back.
#[test]
fn inbox_close_wakes() {
    bounded(3).check(|| {
        let (sender, receiver) = inbox::<Log>(2);
        for _ in 0..2 {
            assert!(sender.try_send(|_: &Log| ()).is_ok());
        }
        let waiting = sender.clone();
        let blocked = thread::spawn(move || matches!(waiting.send(|_: &Log| ()), Err(Refused::Closed(_))));
        sender.close();
        assert!(blocked.join().expect("the sender does not fail"), "nobody made room");
        drop(receiver);
    });
}

#[test]
fn inbox_planted_bugs_are_caught() {
    must_fail("inbox_two_senders", Bug::InboxFill);
    must_fail("inbox_close", Bug::InboxClose);
    must_fail("inbox_back_pressure", Bug::InboxRecheck);
    must_fail("inbox_back_pressure", Bug::InboxReceiverFence);
}

// --- published ---------------------------------------------------------------------------------------------------------

/// A reader that has heard of a replacement reads it, and in the end all readers do; a value read is never older than
/// one read before.
#[test]
fn published_replacement() {
    loom::model(|| {
        let published = Arc::new(Published::new(Arc::new(0)));
        let mut snapshot = published.snapshot();
        let told = Arc::new(AtomicBool::new(false));
        let writer = {
            let (published, told) = (Arc::clone(&published), Arc::clone(&told));
            thread::spawn(move || {
                published.replace(|value| value + 1);
                told.store(true, Ordering::Release);
            })
        };
        let heard = told.load(Ordering::Acquire);
        published.refresh(&mut snapshot);
        let first = *snapshot;
        assert!(!heard || first == 1);
        published.refresh(&mut snapshot);
        assert!(*snapshot >= first);
        writer.join().expect("the writer does not fail");
        published.refresh(&mut snapshot);
        assert_eq!(*snapshot, 1);
        assert!(!published.refresh(&mut snapshot), "it is the newest");
    });
}

/// Two replacements at once: none is lost.
#[test]
fn published_two_writers() {
    loom::model(|| {
        let published = Arc::new(Published::new(Arc::new(0)));
        let mut snapshot = published.snapshot();
        let writer = {
            let published = Arc::clone(&published);
            thread::spawn(move || published.replace(|value| value + 1))
        };
        published.replace(|value| value + 1);
        writer.join().expect("the writer does not fail");
        published.refresh(&mut snapshot);
        assert_eq!(*snapshot, 2);
    });
}

#[test]
fn published_planted_bugs_are_caught() {
    must_fail("published_replacement", Bug::PublishedNumberFirst);
}

// --- oneshot -----------------------------------------------------------------------------------------------------------

/// A blocked receiver gets the value.
#[test]
fn oneshot_wait() {
    loom::model(|| {
        let (sender, receiver) = oneshot::<usize>();
        let waiter = thread::spawn(move || assert_eq!(receiver.wait(), Ok(7)));
        sender.send(7);
        waiter.join().expect("the receiver does not fail");
    });
}

/// A blocked receiver learns that the sender is gone.
#[test]
fn oneshot_lost() {
    loom::model(|| {
        let (sender, receiver) = oneshot::<usize>();
        let waiter = thread::spawn(move || assert!(receiver.wait().is_err()));
        drop(sender);
        waiter.join().expect("the receiver does not fail");
    });
}

/// A receiver that is polled with one waker, waits with another, and gets its value.
#[test]
fn oneshot_changing_wakers() {
    loom::model(|| {
        let (sender, mut receiver) = oneshot::<usize>();
        let waiter = thread::spawn(move || {
            let mut context = Context::from_waker(Waker::noop());
            match Pin::new(&mut receiver).poll(&mut context) {
                Poll::Ready(result) => assert_eq!(result, Ok(7)),
                Poll::Pending => assert_eq!(receiver.wait(), Ok(7)),
            }
        });
        sender.send(7);
        waiter.join().expect("the receiver does not fail");
    });
}

/// A receiver that gives up races with the sender; the value is dropped once, by whoever goes last.
#[test]
fn oneshot_given_up() {
    loom::model(|| {
        let value = Arc::new(AtomicUsize::new(0));
        let (sender, mut receiver) = oneshot::<Arc<AtomicUsize>>();
        let waiter = thread::spawn(move || {
            let mut context = Context::from_waker(Waker::noop());
            // Whether it is ready by now or not, the receiver goes away.
            drop(Pin::new(&mut receiver).poll(&mut context));
        });
        sender.send(Arc::clone(&value));
        waiter.join().expect("the receiver does not fail");
        assert_eq!(Arc::strong_count(&value), 1);
    });
}

#[test]
fn oneshot_planted_bugs_are_caught() {
    must_fail("oneshot_wait", Bug::OneshotSend);
    must_fail("oneshot_wait", Bug::OneshotWaker);
    must_fail("oneshot_changing_wakers", Bug::OneshotTakeBack);
}

// --- waker -------------------------------------------------------------------------------------------------------------

/// Two threads each complete something and wake the task that waits for both: the last poll that a wake brings about sees both,
/// whether the second wake brought the waker again or found it on its way.
#[test]
fn waker_coalesces() {
    loom::model(|| {
        let told = Arc::new(Told::new());
        let lane = Arc::new(loom::sync::Mutex::new(0));
        let done: [Arc<AtomicUsize>; 2] = std::array::from_fn(|_| Arc::new(AtomicUsize::new(0)));
        let completing = done.clone().map(|done| {
            let (told, lane) = (Arc::clone(&told), Arc::clone(&lane));
            thread::spawn(move || {
                done.store(1, Ordering::Relaxed);
                if told.tell() {
                    *lane.lock().expect("nobody panics") += 1;
                }
            })
        });
        let mut seen = 0;
        let mut poll_if_woken = || {
            let arrived = std::mem::take(&mut *lane.lock().expect("nobody panics"));
            assert!(arrived <= 1, "a waker is on its way once");
            if arrived > 0 {
                told.arrive();
                seen = done.iter().map(|done| done.load(Ordering::Relaxed)).sum();
            }
        };
        poll_if_woken();
        poll_if_woken();
        completing.into_iter().for_each(|thread| thread.join().expect("it does not fail"));
        poll_if_woken();
        assert_eq!(seen, 2, "a wake was lost");
    });
}

#[test]
fn waker_planted_bugs_are_caught() {
    must_fail("waker_coalesces", Bug::WakerArrival);
    must_fail("waker_coalesces", Bug::WakerStaysTold);
}
