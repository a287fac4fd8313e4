//! Messages arrive whole, in order, once; whatever their size, and however many wait.

use std::thread;

use atrapos_channel::{Channel, ChannelError, ChannelKind, MESSAGE_BYTES_MAX, RING_BYTES_DEFAULT};

use crate::access::secret;
use crate::support::{Numbers, expect_next, for_each_kind, link, link_of, message, send, until};

for_each_kind!(
    both_directions_at_once,
    one_thread_alone,
    the_longest_message,
    an_empty_message,
    what_does_not_fit_waits_in_order,
    a_limited_receive,
);

const MESSAGES: usize = 5_000;

/// Sends and receives a whole conversation, in batches of random sizes.
fn converse(channel: &mut dyn Channel, seed: u64) {
    let mut numbers = Numbers(seed);
    let (mut sent, mut received) = (0, 0);
    until("the conversation ends", || {
        if channel.backlog() == 0 && sent < MESSAGES {
            for _ in 0..(1 + numbers.below(24)).min(MESSAGES - sent) {
                send(channel, &message(sent)).expect("the peer lives");
                sent += 1;
            }
        }
        channel.flush().expect("the peer lives");
        expect_next(channel, &mut received).expect("the peer lives");
        sent == MESSAGES && received == MESSAGES && channel.backlog() == 0
    });
}

fn both_directions_at_once(kind: ChannelKind) {
    converse_both_ways(link(kind));
}

/// Encrypted, if built so.
#[test]
fn both_directions_at_once_with_a_secret() {
    converse_both_ways(link_of(
        ChannelKind::Tcp,
        RING_BYTES_DEFAULT,
        secret("the secret of this deployment"),
    ));
}

fn converse_both_ways((mut one, mut other): (Box<dyn Channel>, Box<dyn Channel>)) {
    // The end that is done first keeps its channel until the other is, too.
    let other = thread::spawn(move || {
        converse(&mut *other, 7);
        other
    });
    converse(&mut *one, 3);
    drop(other.join().expect("the other end is content"));
}

fn one_thread_alone(kind: ChannelKind) {
    let (mut one, mut other) = link(kind);
    let (mut there, mut back) = (0, 0);
    for round in 0..100 {
        send(&mut *one, &message(round)).expect("the peer lives");
        one.flush().expect("the peer lives");
        until("a message arrives", || {
            expect_next(&mut *other, &mut there).expect("the peer lives");
            there > round
        });
        send(&mut *other, &message(round)).expect("the peer lives");
        other.flush().expect("the peer lives");
        until("an answer arrives", || {
            expect_next(&mut *one, &mut back).expect("the peer lives");
            back > round
        });
    }
}

fn the_longest_message(kind: ChannelKind) {
    let (mut one, mut other) = link(kind);
    let mut long = vec![0; MESSAGE_BYTES_MAX + 1];
    long.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7) as u8);
    let error = one.send(&[&long]).expect_err("one byte too many");
    assert_eq!(error, ChannelError::TooLong { bytes: long.len(), max: MESSAGE_BYTES_MAX });
    long.pop();
    one.send(&[&long]).expect("the link goes on");
    one.send(&[b"after"]).expect("the link goes on");
    let mut arrived = Vec::new();
    until("both messages arrive", || {
        one.flush().expect("the peer lives");
        other.receive(1, &mut |message| arrived.push(message.to_vec())).expect("the peer lives");
        arrived.len() == 2
    });
    assert!(arrived[0] == long && arrived[1] == b"after");
    assert_eq!(one.backlog(), 0);
}

fn an_empty_message(kind: ChannelKind) {
    let (mut one, mut other) = link(kind);
    for parts in [&[][..], &[&b""[..], b""], &[b"end"]] {
        one.send(parts).expect("the peer lives");
    }
    one.flush().expect("the peer lives");
    let mut arrived = Vec::new();
    until("three messages arrive", || {
        other.receive(8, &mut |message| arrived.push(message.to_vec())).expect("the peer lives");
        arrived.len() == 3
    });
    assert_eq!(arrived, [&b""[..], b"", b"end"]);
}

pub(crate) fn what_does_not_fit_waits_in_order(kind: ChannelKind) {
    let (mut one, mut other) = link(kind);
    let (mut sent, mut received) = (0, 0);
    while one.backlog() == 0 {
        for _ in 0..64 {
            send(&mut *one, &message(sent)).expect("nobody is gone");
            sent += 1;
        }
        one.flush().expect("nobody is gone");
    }
    // There is room again, and yet what is sent with a backlog waits behind it.
    expect_next(&mut *other, &mut received).expect("the peer lives");
    for _ in 0..10 {
        send(&mut *one, &message(sent)).expect("nobody is gone");
        sent += 1;
    }
    until("the backlog drains", || {
        one.flush().expect("the peer lives");
        expect_next(&mut *other, &mut received).expect("the peer lives");
        received == sent
    });
    assert_eq!(one.backlog(), 0);
}

fn a_limited_receive(kind: ChannelKind) {
    let (mut one, mut other) = link(kind);
    for index in 0..10u8 {
        one.send(&[&[index]]).expect("the peer lives");
    }
    one.flush().expect("the peer lives");
    let mut arrived = Vec::new();
    until("ten messages arrive", || {
        let before = arrived.len();
        let taken = other.receive(3, &mut |message| arrived.push(message[0])).expect("the peer lives");
        assert!(taken <= 3 && taken == arrived.len() - before);
        assert_eq!(other.receive(0, &mut |_| unreachable!("none was asked for")), Ok(0));
        assert!(arrived.len() == 10 || arrived.is_empty() || other.has_arrivals(), "the rest is there");
        arrived.len() == 10
    });
    assert!(arrived.into_iter().eq(0..10));
}
