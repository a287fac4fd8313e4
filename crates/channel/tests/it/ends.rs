//! The end of a link: everything that had arrived is handed out, and then every call says so.

use atrapos_channel::{ChannelError, ChannelKind};

use crate::support::{expect_next, for_each_kind, link, message, send, until};

for_each_kind!(
    what_had_arrived_is_handed_out_first,
    what_is_sent_to_nobody_fails,
    a_message_that_breaks_off_is_dropped
);

fn what_had_arrived_is_handed_out_first(kind: ChannelKind) {
    const MESSAGES: usize = 40;
    let (mut one, mut other) = link(kind);
    for index in 0..MESSAGES {
        send(&mut *one, &message(index)).expect("the peer lives");
        one.flush().expect("the peer lives");
    }
    assert_eq!(one.backlog(), 0, "all of it is on its way");
    drop(one);
    let mut received = 0;
    let mut end = None;
    until("the end is seen", || {
        end = expect_next(&mut *other, &mut received).err();
        end.is_some()
    });
    assert_eq!(received, MESSAGES);
    assert!(matches!(end, Some(ChannelError::Gone(_))), "{end:?}");
    for _ in 0..2 {
        assert_eq!(other.receive(1, &mut |_| ()).err(), end, "it is said again");
        assert!(other.has_arrivals(), "nobody sleeps on the end");
        assert_eq!(other.send(&[b"late"]).err(), end);
        assert_eq!(other.flush().err(), end);
    }
}

fn what_is_sent_to_nobody_fails(kind: ChannelKind) {
    let (mut one, mut other) = link(kind);
    other.send(&[b"farewell"]).expect("the peer lives");
    other.flush().expect("the peer lives");
    drop(other);
    let mut taken = 0;
    // Sending fails at once or after a while, and does not keep what has arrived from being taken.
    for _ in 0..3 {
        if one.send(&[b"anybody there?"]).and_then(|()| one.flush()).is_err() {
            break;
        }
    }
    let mut end = None;
    until("the end is seen", || {
        match one.receive(1, &mut |message| assert_eq!(message, b"farewell")) {
            Ok(received) => taken += received,
            Err(error) => end = Some(error),
        }
        end.is_some()
    });
    assert_eq!(taken, 1);
    assert!(matches!(end, Some(ChannelError::Gone(_))), "{end:?}");
    assert!(one.send(&[b"anybody there?"]).and_then(|()| one.flush()).is_err());
}

/// A peer that ends within a long message leaves nothing of it.
fn a_message_that_breaks_off_is_dropped(kind: ChannelKind) {
    let (mut one, mut other) = link(kind);
    let long = vec![1; 2 << 20];
    let mut sent = 0;
    // As many as are on their way, and one of which only a part is.
    while one.backlog() == 0 {
        one.send(&[&long]).expect("the peer lives");
        one.flush().expect("the peer lives");
        sent += 1;
    }
    drop(one);
    let (mut end, mut taken) = (None, 0);
    until("the end is seen", || {
        match other.receive(1, &mut |message| assert!(message == long)) {
            Ok(received) => taken += received,
            Err(error) => end = Some(error),
        }
        end.is_some()
    });
    assert!(taken < sent, "the last one was not sent to its end");
    assert!(matches!(end, Some(ChannelError::Gone(_))), "{end:?}");
}
