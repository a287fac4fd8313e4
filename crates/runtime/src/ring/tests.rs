//! Tests of `ring`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;

type Log = RefCell<Vec<u64>>;

fn push_sized(producer: &Producer<Log>, value: u64, words: usize) -> bool {
    fn sized<const WORDS: usize>(producer: &Producer<Log>, value: u64) -> bool {
        let payload = [value; WORDS];
        producer
            .push(move |log: &Log| {
                assert!(payload.iter().all(|&word| word == payload[0]));
                log.borrow_mut().push(payload[0]);
            })
            .is_ok()
    }
    match words {
        0 => producer.push(move |log: &Log| log.borrow_mut().push(value)).is_ok(),
        1 => sized::<2>(producer, value),
        2 => sized::<5>(producer, value),
        3 => sized::<13>(producer, value),
        // Larger than an eighth of the smallest ring: boxed.
        _ => sized::<40>(producer, value),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, ..ProptestConfig::default() })]

    /// The ring does what a queue does, whatever is pushed, published and drained in whichever order.
    #[test]
    fn behaves_like_a_queue(steps in proptest::collection::vec((0..4u8, 0..5usize, 1..9usize), 1..200)) {
        let (producer, consumer) = ring::<Log>(RING_BYTES_MIN);
        let (mut unpublished, mut published) = (VecDeque::new(), VecDeque::new());
        let log = Log::default();
        let mut next = 0;
        for (kind, words, count) in steps {
            match kind {
                0 | 1 => for _ in 0..count {
                    if push_sized(&producer, next, words) {
                        unpublished.push_back(next);
                        next += 1;
                    } else {
                        // A ring refuses only when it is nearly full.
                        prop_assert!(unpublished.len() + published.len() >= 3);
                    }
                },
                2 => {
                    prop_assert_eq!(producer.is_published(), unpublished.is_empty());
                    prop_assert_eq!(producer.publish(), !unpublished.is_empty());
                    published.append(&mut unpublished);
                }
                _ => {
                    let ran = consumer.drain(&log, count);
                    // A drain may stop at what it saw before; then nothing is left of that.
                    prop_assert!(ran <= count.min(published.len()));
                    let expected: Vec<u64> = published.drain(..ran).collect();
                    prop_assert_eq!(&*log.borrow(), &expected);
                    log.borrow_mut().clear();
                }
            }
            let waits = consumer.ring.tail().load(Ordering::Acquire) != consumer.index();
            prop_assert_eq!(waits, !published.is_empty());
        }
    }
}

#[test]
fn unpublished_records_are_invisible() {
    let (producer, consumer) = ring::<Log>(RING_BYTES_MIN);
    let log = Log::default();
    assert!(push_sized(&producer, 1, 0));
    assert_eq!(consumer.drain(&log, 8), 0);
    producer.publish();
    assert_eq!(consumer.drain(&log, 8), 1);
}

#[test]
fn a_full_ring_gives_the_closure_back() {
    let (producer, consumer) = ring::<Log>(RING_BYTES_MIN);
    let mut pushed = 0;
    while push_sized(&producer, pushed, 2) {
        pushed += 1;
    }
    // 16 bytes of header and 40 of payload, in multiples of 16.
    assert_eq!(pushed, (RING_BYTES_MIN / 64) as u64);
    producer.publish();
    let log = Log::default();
    assert_eq!(consumer.drain(&log, usize::MAX) as u64, pushed);
    assert!(push_sized(&producer, pushed, 2));
}

#[test]
fn undelivered_closures_are_dropped_once() {
    let drops = Arc::new(AtomicUsize::new(0));
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (producer, consumer) = ring::<()>(RING_BYTES_MIN);
    for index in 0..6 {
        let counted = Counted(Arc::clone(&drops));
        let ballast = [0u64; 30];
        let pushed = if index % 2 == 0 {
            producer.push(move |(): &()| drop(counted)).is_ok()
        } else {
            producer.push(move |(): &()| drop((counted, ballast))).is_ok()
        };
        assert!(pushed);
        if index == 2 {
            producer.publish();
        }
    }
    assert_eq!(consumer.drain(&(), 1), 1);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    drop(consumer);
    drop(producer);
    assert_eq!(drops.load(Ordering::Relaxed), 6);
}

#[test]
fn over_aligned_closures_are_boxed() {
    #[repr(align(64))]
    struct Aligned(u64);
    let (producer, consumer) = ring::<Log>(RING_BYTES_MIN);
    let aligned = Aligned(7);
    let run = move |log: &Log| {
        let aligned = aligned;
        assert_eq!((&raw const aligned).addr() % 64, 0);
        log.borrow_mut().push(aligned.0);
    };
    assert!(producer.push(run).is_ok());
    producer.publish();
    let log = Log::default();
    assert_eq!(consumer.drain(&log, 8), 1);
    assert_eq!(*log.borrow(), [7]);
}

#[test]
fn a_closure_may_drain_its_own_ring() {
    struct Context {
        consumer: Consumer<Self>,
        log: Log,
    }
    let (producer, consumer) = ring::<Context>(RING_BYTES_MIN);
    for value in 0..4u64 {
        let run = move |context: &Context| {
            context.log.borrow_mut().push(value);
            if value == 1 {
                context.consumer.drain(context, 1);
            }
        };
        assert!(producer.push(run).is_ok());
    }
    producer.publish();
    let context = Context { consumer, log: Log::default() };
    context.consumer.drain(&context, 8);
    assert_eq!(*context.log.borrow(), [0, 1, 2, 3]);
}

#[test]
fn two_threads_lose_nothing() {
    let messages: u64 = if cfg!(miri) { 200 } else { 200_000 };
    let (producer, consumer) = ring::<Cell<u64>>(RING_BYTES_MIN);
    let sender = std::thread::spawn(move || {
        for value in 0..messages {
            let mut run = move |expected: &Cell<u64>| {
                assert_eq!(expected.get(), value);
                expected.set(value + 1);
            };
            while let Err(back) = producer.push(run) {
                run = back;
                producer.publish();
                std::thread::yield_now();
            }
            if value % 7 == 0 {
                producer.publish();
            }
        }
    });
    let received = Cell::new(0);
    while received.get() < messages {
        if consumer.drain(&received, 16) == 0 {
            std::thread::yield_now();
        }
    }
    sender.join().expect("the sender does not fail");
}

#[test]
fn sizes_are_checked() {
    for bytes in [0, 1, RING_BYTES_MIN / 2, RING_BYTES_MIN + 16, RING_BYTES_MAX * 2] {
        assert!(!ring_bytes_valid(bytes), "{bytes}");
    }
    assert!(ring_bytes_valid(RING_BYTES_MIN) && ring_bytes_valid(RING_BYTES_MAX));
}
