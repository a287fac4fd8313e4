//! Frames over a stream: cut anywhere, damaged anywhere, and streams of anything.

use std::io::Write;
use std::os::unix::net::UnixStream;

use proptest::prelude::*;

use super::*;
use crate::transport::Socket;

/// What comes of a stream: the messages, and how it ends.
fn receive_all(stream: &[u8]) -> (Vec<Vec<u8>>, ChannelError) {
    let (near, mut far) = UnixStream::pair().expect("a pair of sockets can be made");
    let watcher = Watcher::start().expect("threads start");
    let mut channel =
        StreamChannel::new(&watcher, Socket::new(near.into())).expect("a socket can be watched");
    let mut messages = Vec::new();
    // In pieces of a socket's buffer: what was written is taken before more is.
    for piece in stream.chunks(16 << 10) {
        // The end of a channel that was cut is closed.
        if far.write_all(piece).is_err() {
            break;
        }
        if let Err(error) = receive_arrived(&mut channel, &mut messages) {
            return (messages, error);
        }
    }
    drop(far);
    loop {
        if let Err(error) = receive_arrived(&mut channel, &mut messages) {
            assert_eq!(channel.receive(1, &mut |_| ()), Err(error.clone()), "it is said again");
            return (messages, error);
        }
    }
}

fn receive_arrived(
    channel: &mut StreamChannel<Socket>,
    messages: &mut Vec<Vec<u8>>,
) -> Result<(), ChannelError> {
    while channel.receive(3, &mut |message| messages.push(message.to_vec()))? > 0 {}
    Ok(())
}

/// The bytes of flushes of messages.
fn frames(flushes: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut outgoing = Outgoing::default();
    for flush in flushes {
        for message in flush {
            outgoing.append(&[message], message.len());
        }
        outgoing.seal();
    }
    outgoing.bytes
}

fn flushes() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    let message = prop::collection::vec(any::<u8>(), 0..50);
    prop::collection::vec(prop::collection::vec(message, 1..5), 1..5)
}

/// Returns whether a stream ended as one of a peer that is gone, or of one that speaks another version or nonsense.
fn is_sentence(error: &ChannelError) -> bool {
    matches!(error, ChannelError::Gone(_) | ChannelError::Nonsense(_) | ChannelError::Refused(_))
}

/// Returns whether every bit of a stream that is flipped keeps wrong messages from being handed out.
fn damage_is_noticed(flip: (usize, u8)) -> bool {
    let sent = vec![vec![b"one".to_vec(), b"two".to_vec()], vec![b"three".to_vec()]];
    let mut stream = frames(&sent);
    let at = flip.0 % stream.len();
    stream[at] ^= 1 << (flip.1 % 8);
    let (received, error) = receive_all(&stream);
    let sent = sent.concat();
    is_sentence(&error) && received.len() < sent.len() && received[..] == sent[..received.len()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn messages_come_through(flushes in flushes()) {
        let (received, end) = receive_all(&frames(&flushes));
        prop_assert_eq!(received, flushes.concat());
        prop_assert!(matches!(end, ChannelError::Gone(_)));
    }

    #[test]
    fn a_stream_that_breaks_off_gives_a_beginning(flushes in flushes(), cut in any::<prop::sample::Index>()) {
        let stream = frames(&flushes);
        let (received, end) = receive_all(&stream[..cut.index(stream.len())]);
        let sent = flushes.concat();
        prop_assert!(received.len() <= sent.len() && received[..] == sent[..received.len()]);
        prop_assert!(matches!(end, ChannelError::Gone(_)));
    }

    #[test]
    fn a_flipped_bit_gives_no_wrong_message(flip in any::<(usize, u8)>()) {
        prop_assert!(damage_is_noticed(flip));
    }

    #[test]
    fn random_bytes_are_a_sentence(stream in prop::collection::vec(any::<u8>(), 0..2000)) {
        let (received, error) = receive_all(&stream);
        prop_assert!(received.is_empty(), "a checksum of random bytes is right once in 2^32 times");
        prop_assert!(is_sentence(&error), "{}", error);
    }

    /// A right checksum around anything: the lengths of messages within a frame are checked, too.
    #[test]
    fn a_frame_of_nonsense_is_a_sentence(payload in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut stream = Header::encode(&payload).to_vec();
        stream.extend_from_slice(&payload);
        let (received, error) = receive_all(&stream);
        prop_assert!(received.iter().map(|message| message.len() + LENGTH_BYTES).sum::<usize>() <= payload.len());
        prop_assert!(is_sentence(&error), "{}", error);
    }
}

/// The stream of a frame that announces more than the longest message.
fn too_large_a_frame() -> (Vec<Vec<u8>>, ChannelError) {
    let mut stream = Header::encode(b"").to_vec();
    stream[4..8].copy_from_slice(&(PAYLOAD_BYTES_MAX as u32 + 1).to_le_bytes());
    receive_all(&stream)
}

#[test]
fn a_frame_too_large_is_refused_before_it_arrives() {
    let (_, error) = too_large_a_frame();
    assert!(matches!(&error, ChannelError::Nonsense(sentence) if sentence.contains("16777221")), "{error}");
}

#[test]
fn another_version_is_told_from_nonsense() {
    let mut stream = frames(&[vec![b"later".to_vec()]]);
    stream[1] += 1;
    let (received, error) = receive_all(&stream);
    assert!(received.is_empty());
    assert!(matches!(&error, ChannelError::Refused(sentence) if sentence.contains("version 2")), "{error}");
}

/// A length alone takes no memory: a frame's is given as its bytes arrive.
#[test]
fn memory_grows_with_what_arrives() {
    let mut incoming = Incoming { frame_bytes: HEADER_BYTES + PAYLOAD_BYTES_MAX, ..Incoming::default() };
    incoming.make_room();
    assert_eq!(incoming.bytes.len(), READ_BYTES);
    incoming.end = READ_BYTES;
    incoming.make_room();
    assert_eq!(incoming.bytes.len(), 2 * READ_BYTES);
}

#[cfg(debug_assertions)]
#[test]
fn planted_bugs_are_noticed() {
    use crate::planted::{Bug, with};
    // Byte 17 is in the first message.
    assert!(damage_is_noticed((17, 0)));
    assert!(!with(Bug::ChecksumIgnored, || damage_is_noticed((17, 0))), "a wrong message was handed out");
    let (_, error) = with(Bug::FrameLengthTrusted, too_large_a_frame);
    assert!(matches!(error, ChannelError::Gone(_)), "the frame was waited for: {error}");
}
