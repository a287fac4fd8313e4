//! Owners that sleep are woken: by messages, by room, by the end of the peer; and never sleep through any of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, Thread};
use std::time::Instant;

use atrapos_channel::{Channel, ChannelError, ChannelKind, RING_BYTES_DEFAULT};

use crate::access::secret;
use crate::support::{
    Numbers, PATIENCE, deadline, expect_next, for_each_kind, link, link_of, message, send, until,
};

for_each_kind!(
    no_wake_up_is_lost,
    bursts_and_sleeps_both_ways,
    room_wakes_a_sender,
    the_end_of_the_peer_wakes,
    one_wake_for_one_arming,
);

/// Makes the watcher wake this thread.
pub(crate) fn wake_me(channel: &mut dyn Channel) {
    let me: Thread = thread::current();
    channel.on_wake(Box::new(move || me.unpark()));
}

/// Sleeps as a worker does, unless something is there. A sleep that outlasts all patience is a lost wake-up.
pub(crate) fn sleep(channel: &mut dyn Channel) {
    channel.arm();
    if !channel.has_arrivals() {
        let since = Instant::now();
        thread::park_timeout(PATIENCE);
        assert!(since.elapsed() < PATIENCE, "a wake-up was lost");
    }
}

/// One message there and back at a time, with a sleep before each, and sometimes a little work between.
fn no_wake_up_is_lost(kind: ChannelKind) {
    play_by_turns(link(kind));
}

/// Encrypted, if built so.
#[test]
fn no_wake_up_is_lost_with_a_secret() {
    play_by_turns(link_of(ChannelKind::Tcp, RING_BYTES_DEFAULT, secret("the secret of this deployment")));
}

fn play_by_turns((mut one, mut other): (Box<dyn Channel>, Box<dyn Channel>)) {
    const ROUNDS: usize = 3_000;
    fn play(channel: &mut dyn Channel, mut to_send: usize, seed: u64) {
        wake_me(channel);
        let mut numbers = Numbers(seed);
        let mut received = 0;
        while received < ROUNDS {
            while to_send > 0 {
                send(channel, &[7; 100]).expect("the peer lives");
                channel.flush().expect("the peer lives");
                to_send -= 1;
            }
            (0..numbers.below(400)).for_each(|_| std::hint::spin_loop());
            sleep(channel);
            let taken = channel.receive(8, &mut |_| ()).expect("the peer lives");
            received += taken;
            to_send += taken;
        }
        if to_send > 0 {
            send(channel, &[7; 100]).expect("the peer lives");
            channel.flush().expect("the peer lives");
        }
    }
    let other = thread::spawn(move || {
        play(&mut *other, 0, 5);
        other
    });
    play(&mut *one, 1, 9);
    drop(other.join().expect("the other end is content"));
}

/// Whole conversations in bursts: each end sleeps when it has nothing to take and nothing to send.
fn bursts_and_sleeps_both_ways(kind: ChannelKind) {
    const MESSAGES: usize = 3_000;
    fn play(channel: &mut dyn Channel, seed: u64) {
        wake_me(channel);
        let mut numbers = Numbers(seed);
        let (mut sent, mut received) = (0, 0);
        while sent < MESSAGES || received < MESSAGES || channel.backlog() > 0 {
            if channel.backlog() == 0 && sent < MESSAGES {
                for _ in 0..(1 + numbers.below(40)).min(MESSAGES - sent) {
                    send(channel, &message(sent)).expect("the peer lives");
                    sent += 1;
                }
            }
            channel.flush().expect("the peer lives");
            let taken = expect_next(channel, &mut received).expect("the peer lives");
            if taken == 0 && (channel.backlog() > 0 || sent == MESSAGES && received < MESSAGES) {
                sleep(channel);
            }
        }
    }
    let (mut one, mut other) = link(kind);
    let other = thread::spawn(move || {
        play(&mut *other, 7);
        other
    });
    play(&mut *one, 3);
    drop(other.join().expect("the other end is content"));
}

/// A sender with a backlog sleeps until there is room, again and again; its peer never sends anything.
fn room_wakes_a_sender(kind: ChannelKind) {
    const MESSAGES: usize = 20_000;
    let (mut one, mut other) = link(kind);
    let (full, is_full) = mpsc::channel();
    let sender = thread::spawn(move || {
        wake_me(&mut *one);
        for index in 0..MESSAGES {
            send(&mut *one, &message(index)).expect("the peer lives");
            one.flush().expect("the peer lives");
            while one.backlog() > 0 {
                full.send(()).expect("the receiver waits for this");
                sleep(&mut *one);
                assert_eq!(one.receive(1, &mut |_| ()), Ok(0));
                one.flush().expect("the peer lives");
            }
        }
        one
    });
    // Nothing is taken before the link is full.
    is_full.recv_timeout(PATIENCE).expect("more is sent than a link holds");
    wake_me(&mut *other);
    let mut received = 0;
    while received < MESSAGES {
        if expect_next(&mut *other, &mut received).expect("the peer lives") == 0 {
            sleep(&mut *other);
        }
    }
    drop(sender.join().expect("the sender is content"));
}

fn the_end_of_the_peer_wakes(kind: ChannelKind) {
    for round in 0..50 {
        let (mut one, other) = link(kind);
        let sleeper = thread::spawn(move || {
            wake_me(&mut *one);
            let deadline = deadline();
            loop {
                match one.receive(1, &mut |_| ()) {
                    Ok(_) => sleep(&mut *one),
                    Err(error) => break error,
                }
                assert!(Instant::now() < deadline, "the end of the peer is not seen");
            }
        });
        (0..round * 50).for_each(|_| std::hint::spin_loop());
        drop(other);
        let error = sleeper.join().expect("the sleeper is content");
        assert!(matches!(error, ChannelError::Gone(_)), "{error}");
    }
}

/// Arrivals wake an armed channel once, and one that is not armed never.
fn one_wake_for_one_arming(kind: ChannelKind) {
    let (mut one, mut other) = link(kind);
    let wakes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&wakes);
    one.on_wake(Box::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    }));
    for round in 1..=100 {
        one.arm();
        for _ in 0..3 {
            other.send(&[b"knock"]).expect("the peer lives");
            other.flush().expect("the peer lives");
        }
        until("the watcher wakes", || wakes.load(Ordering::SeqCst) >= round);
        let mut taken = 0;
        until("all three arrive", || {
            taken += one.receive(8, &mut |_| ()).expect("the peer lives");
            taken == 3
        });
        // Not armed: nobody is woken by this one.
        other.send(&[b"knock"]).expect("the peer lives");
        other.flush().expect("the peer lives");
        until("it arrives", || one.receive(8, &mut |_| ()).expect("the peer lives") == 1);
        assert_eq!(wakes.load(Ordering::SeqCst), round, "one wake for one arming");
    }
}
