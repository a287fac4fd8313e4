//! Loom models of every hand-written synchronization of this crate: all interleavings of a few threads, and the weak
//! orderings that the memory model allows, are tried. Threads stand for the processes that share a link.
//!
//! Each model is also run with planted bugs, in a child process per bug (loom leaves its state in pieces when a model
//! fails): a model that cannot fail proves nothing. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p atrapos-channel --release --lib loom_models`.

use std::process::Command;
use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use crate::bell::Bell;
use crate::link::{Link, RING_BYTES_MIN, Side};
use crate::planted::Bug;
use crate::ring::{Consumer, Producer, ring};
use crate::sleep::{self, Event};

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

/// A message of this length, all bytes of which are its number.
fn message(number: u8, bytes: usize) -> Vec<u8> {
    vec![number; bytes]
}

fn push(producer: &mut Producer, message: &[u8]) -> bool {
    producer.push(&[message]).expect("the consumer follows the protocol")
}

/// Takes what is published and appends it.
fn take(consumer: &mut Consumer, taken: &mut Vec<Vec<u8>>) -> usize {
    consumer
        .receive(8, &mut |message| taken.push(message.to_vec()))
        .expect("the producer follows the protocol")
}

// --- ring --------------------------------------------------------------------------------------------------------------

/// Messages arrive whole and in order, whatever is published when.
#[test]
fn ring_publication() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(RING_BYTES_MIN);
        let sender = thread::spawn(move || {
            for number in 1..=2 {
                assert!(push(&mut producer, &message(number, 20)));
                producer.publish();
            }
        });
        let mut taken = Vec::new();
        while taken.len() < 2 {
            take(&mut consumer, &mut taken);
            thread::yield_now();
        }
        sender.join().expect("the sender does not fail");
        assert_eq!(taken, [message(1, 20), message(2, 20)]);
    });
}

/// Space is written again only after its message was copied out, across the end of the ring.
#[test]
fn ring_wrap() {
    const BYTES: usize = 220;
    bounded(3).check(|| {
        // Filled to the brim before the threads start, so that the model is about the wrap alone.
        let (mut producer, mut consumer) = ring(RING_BYTES_MIN);
        let mut sent = 0;
        while push(&mut producer, &message(sent, BYTES)) {
            sent += 1;
        }
        producer.publish();
        let mut taken = Vec::new();
        consumer
            .receive(1, &mut |message| taken.push(message.to_vec()))
            .expect("the producer follows the protocol");
        let sender = thread::spawn(move || {
            for _ in 0..2 {
                if push(&mut producer, &message(sent, BYTES)) {
                    sent += 1;
                }
                producer.publish();
            }
            sent
        });
        take(&mut consumer, &mut taken);
        let sent = sender.join().expect("the sender does not fail");
        while taken.len() < usize::from(sent) {
            assert!(take(&mut consumer, &mut taken) > 0);
        }
        assert!(taken.into_iter().eq((0..sent).map(|number| message(number, BYTES))));
    });
}

#[test]
fn ring_planted_bugs_are_caught() {
    must_fail("ring_publication", Bug::RingPublish);
    must_fail("ring_wrap", Bug::RingRelease);
}

// --- sleep -------------------------------------------------------------------------------------------------------------

/// An owner that sleeps until something arrives is woken for all that it has not found itself. (A lost wake-up is a deadlock,
/// which loom reports. The sleeper is the spawned thread, because loom's `unpark` also ends a `join`.)
#[test]
fn sleep_arrivals() {
    loom::model(|| {
        let link = Arc::new(Link::in_heap(RING_BYTES_MIN));
        let mut producer = Producer::new(Arc::clone(&link), Side::First);
        let sleeper = {
            let link = Arc::clone(&link);
            thread::spawn(move || {
                let mut consumer = Consumer::new(Arc::clone(&link), Side::Second);
                let word = &link.words(Side::Second).sleep;
                let mut taken = Vec::new();
                while taken.len() < 2 {
                    sleep::arm(word, false);
                    if !consumer.has_published() {
                        thread::park();
                    }
                    sleep::disarm(word);
                    take(&mut consumer, &mut taken);
                }
            })
        };
        for number in 1..=2 {
            assert!(push(&mut producer, &message(number, 4)));
            producer.publish();
            if sleep::must_ring(&link.words(Side::Second).sleep, Event::Arrival) {
                sleeper.thread().unpark();
            }
        }
        sleeper.join().expect("the sleeper does not fail");
    });
}

/// An owner that sleeps until there is room is woken when its peer has taken something.
#[test]
fn sleep_room() {
    loom::model(|| {
        let link = Arc::new(Link::in_heap(RING_BYTES_MIN));
        let mut producer = Producer::new(Arc::clone(&link), Side::First);
        let mut consumer = Consumer::new(Arc::clone(&link), Side::Second);
        while push(&mut producer, &message(0, 240)) {}
        producer.publish();
        let sleeper = {
            let link = Arc::clone(&link);
            thread::spawn(move || {
                let word = &link.words(Side::First).sleep;
                while !push(&mut producer, &message(1, 240)) {
                    sleep::arm(word, true);
                    if !producer.room_has_grown() {
                        thread::park();
                    }
                    sleep::disarm(word);
                }
            })
        };
        assert!(take(&mut consumer, &mut Vec::new()) > 0);
        if sleep::must_ring(&link.words(Side::First).sleep, Event::Room) {
            sleeper.thread().unpark();
        }
        sleeper.join().expect("the sleeper does not fail");
    });
}

/// The whole way of a wake-up: the peer rings the bell of the owner's process, and the watcher, which sleeps on it, wakes
/// the owner.
#[test]
fn sleep_through_the_bell() {
    bounded(3).check(|| {
        let link = Arc::new(Link::in_heap(RING_BYTES_MIN));
        let bell = Arc::new(Bell::in_model());
        let stopping = Arc::new(AtomicBool::new(false));
        let mut producer = Producer::new(Arc::clone(&link), Side::First);
        let owner = {
            let link = Arc::clone(&link);
            thread::spawn(move || {
                let mut consumer = Consumer::new(Arc::clone(&link), Side::Second);
                let word = &link.words(Side::Second).sleep;
                while take(&mut consumer, &mut Vec::new()) == 0 {
                    sleep::arm(word, false);
                    if !consumer.has_published() {
                        thread::park();
                    }
                    sleep::disarm(word);
                }
            })
        };
        let watcher = {
            let (link, bell, stopping) = (Arc::clone(&link), Arc::clone(&bell), Arc::clone(&stopping));
            let owner = owner.thread().clone();
            thread::spawn(move || {
                while !stopping.load(Ordering::Acquire) {
                    let seen = bell.rings();
                    if sleep::was_rung(&link.words(Side::Second).sleep) {
                        owner.unpark();
                    }
                    if !stopping.load(Ordering::Acquire) {
                        bell.wait(seen);
                    }
                }
            })
        };
        assert!(push(&mut producer, &message(1, 4)));
        producer.publish();
        if sleep::must_ring(&link.words(Side::Second).sleep, Event::Arrival) {
            bell.ring();
        }
        owner.join().expect("the owner does not fail");
        stopping.store(true, Ordering::Release);
        bell.ring();
        watcher.join().expect("the watcher does not fail");
    });
}

#[test]
fn sleep_planted_bugs_are_caught() {
    must_fail("sleep_arrivals", Bug::SleeperFence);
    must_fail("sleep_arrivals", Bug::RingerFence);
    must_fail("sleep_room", Bug::SleeperFence);
    must_fail("sleep_room", Bug::RingerFence);
    must_fail("sleep_room", Bug::RoomNotTold);
    must_fail("sleep_through_the_bell", Bug::BellReadLate);
}
