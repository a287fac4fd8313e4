//! A ring against a queue, and against peers that write anything into the memory of the link.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;
use crate::link::RING_BYTES_MIN;

fn take(consumer: &mut Consumer, max: usize) -> Result<Vec<Vec<u8>>, ChannelError> {
    let mut taken = Vec::new();
    consumer.receive(max, &mut |message| taken.push(message.to_vec()))?;
    Ok(taken)
}

/// The words of the ring that the first side writes, as whoever maps the link can write them.
fn words_of_ring(link: &Link) -> &[AtomicU64] {
    let (buffer, bytes, _) = link.ring_from(Side::First);
    // SAFETY: the ring has that many bytes, is aligned to a page, and lives as long as the link.
    unsafe { std::slice::from_raw_parts(buffer.cast::<AtomicU64>().as_ptr(), bytes / 8) }
}

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    Publish,
    Receive(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..300usize).prop_map(Step::Push),
        2 => Just(Step::Publish),
        2 => (1..6usize).prop_map(Step::Receive),
    ];
    prop::collection::vec(step, 0..400)
}

proptest! {
    #[test]
    fn a_ring_is_a_queue_with_an_end(steps in steps()) {
        let (mut producer, mut consumer) = ring(RING_BYTES_MIN);
        let (mut written, mut published) = (VecDeque::new(), VecDeque::new());
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Push(bytes) => {
                    let message = vec![number as u8; bytes];
                    match producer.push(&[&message[..bytes / 3], &message[bytes / 3..]]) {
                        Ok(true) => written.push_back(message),
                        Ok(false) => prop_assert!(!published.is_empty() || !written.is_empty(), "an empty ring has room"),
                        Err(error) => {
                            prop_assert!(bytes > RING_BYTES_MIN / 4 - 8, "{}", error);
                        }
                    }
                }
                Step::Publish => {
                    prop_assert_eq!(producer.publish(), !written.is_empty());
                    published.append(&mut written);
                }
                Step::Receive(max) => {
                    prop_assert_eq!(consumer.has_published(), !published.is_empty());
                    for message in take(&mut consumer, max).unwrap() {
                        prop_assert_eq!(Some(message), published.pop_front());
                    }
                }
            }
        }
        producer.publish();
        published.append(&mut written);
        while !published.is_empty() {
            for message in take(&mut consumer, usize::MAX).unwrap() {
                prop_assert_eq!(Some(message), published.pop_front());
            }
        }
    }

    /// Whatever the peer writes, receiving ends with messages that lie in the ring, or with a sentence.
    #[test]
    fn nonsense_in_the_ring_is_a_sentence(
        tail in prop_oneof![any::<u64>(), (0..200u64).prop_map(|words| words * 8)],
        words in prop::collection::vec(
            prop_oneof![any::<u64>(), (0..1100u64, 0..5u64).prop_map(|(bytes, record)| bytes | record << 32)],
            RING_BYTES_MIN / 8,
        ),
    ) {
        let link = Arc::new(Link::in_heap(RING_BYTES_MIN));
        for (word, value) in words_of_ring(&link).iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        link.words(Side::First).tail.store(tail, Ordering::Release);
        let mut consumer = Consumer::new(Arc::clone(&link), Side::Second);
        match take(&mut consumer, usize::MAX) {
            Ok(messages) => {
                let bytes: usize = messages.iter().map(Vec::len).sum();
                prop_assert!(bytes <= RING_BYTES_MIN);
            }
            Err(ChannelError::Nonsense(sentence)) => prop_assert!(!sentence.is_empty()),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn nonsense_about_room_is_a_sentence(head in prop_oneof![any::<u64>(), 0..2048u64]) {
        let link = Arc::new(Link::in_heap(RING_BYTES_MIN));
        let mut producer = Producer::new(Arc::clone(&link), Side::First);
        let mut written = 0;
        while producer.push(&[&[1; 100]]).unwrap() {
            written += record_bytes(100) as u64;
        }
        link.words(Side::Second).head.store(head, Ordering::Release);
        match producer.push(&[&[1; 100]]) {
            Ok(_) => prop_assert!(head <= written),
            Err(ChannelError::Nonsense(_)) => prop_assert!(head > written),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}

/// Messages that come of a record whose length exceeds what is published, but not the ring, and the error.
fn overlong_record() -> (usize, Option<ChannelError>) {
    let link = Arc::new(Link::in_heap(RING_BYTES_MIN));
    words_of_ring(&link)[0].store(400 | (Record::End as u64) << 32, Ordering::Relaxed);
    link.words(Side::First).tail.store(16, Ordering::Release);
    let mut taken = 0;
    let error = Consumer::new(link, Side::Second).receive(1, &mut |_| taken += 1).err();
    (taken, error)
}

#[test]
fn a_record_ends_where_publication_does() {
    let (taken, error) = overlong_record();
    assert!(taken == 0 && matches!(error, Some(ChannelError::Nonsense(_))), "{error:?}");
}

#[cfg(debug_assertions)]
#[test]
fn trust_in_the_length_of_a_record_is_noticed() {
    let (taken, _) = crate::planted::with(Bug::RecordLengthTrusted, overlong_record);
    assert_eq!(taken, 1, "the planted bug changes nothing");
}

#[test]
fn a_message_of_endless_parts_is_cut_off() {
    let link = Arc::new(Link::in_heap(RING_BYTES_MIN));
    let mut consumer = Consumer::new(Arc::clone(&link), Side::Second);
    let record = RING_BYTES_MIN as u64;
    words_of_ring(&link)[0].store((record - 8) | (Record::More as u64) << 32, Ordering::Relaxed);
    let mut error = None;
    for turn in 1.. {
        link.words(Side::First).tail.store(turn * record, Ordering::Release);
        match take(&mut consumer, 1) {
            Ok(messages) => assert!(messages.is_empty()),
            Err(found) => {
                error = Some(found);
                break;
            }
        }
        assert!(turn * record < 2 * MESSAGE_BYTES_MAX as u64, "it never ends");
    }
    assert!(matches!(error, Some(ChannelError::Nonsense(_))));
}
