//! Tests of `inbox`.

use std::cell::RefCell;

use super::*;

type Log = RefCell<Vec<usize>>;

#[test]
fn a_full_inbox_refuses_and_gives_back() {
    let (sender, receiver) = inbox::<Log>(4);
    let push = |value: usize| sender.try_send(move |log: &Log| log.borrow_mut().push(value));
    for value in 0..4 {
        assert!(push(value).is_ok());
    }
    let log = Log::default();
    match push(4) {
        Err(Refused::Full(closure)) => closure(&log),
        _ => panic!("an inbox of four slots took five closures"),
    }
    assert_eq!(receiver.drain(&log, 2), 2);
    assert!(push(5).is_ok());
    assert_eq!(receiver.drain(&log, 8), 3);
    assert_eq!(*log.borrow(), [4, 0, 1, 2, 3, 5]);
}

#[test]
fn closures_of_all_sizes_arrive_whole() {
    let (sender, receiver) = inbox::<Log>(4);
    let (small, large) = ([1usize; 28], [2usize; 200]);
    assert!(sender.try_send(move |log: &Log| log.borrow_mut().extend(small)).is_ok());
    assert!(sender.try_send(move |log: &Log| log.borrow_mut().extend(large)).is_ok());
    let log = Log::default();
    assert_eq!(receiver.drain(&log, 8), 2);
    assert_eq!(log.into_inner(), [[1; 28].as_slice(), [2; 200].as_slice()].concat());
}

#[test]
fn a_closed_inbox_hands_out_or_drops_what_it_took() {
    let held = Arc::new(());
    let (sender, receiver) = inbox::<Log>(4);
    for _ in 0..3 {
        let held = Arc::clone(&held);
        assert!(sender.try_send(move |_: &Log| drop(held)).is_ok());
    }
    sender.close();
    assert!(matches!(sender.try_send(|_: &Log| ()), Err(Refused::Closed(_))));
    assert!(matches!(sender.send(|_: &Log| ()), Err(Refused::Closed(_))));
    assert_eq!(receiver.drain(&Log::default(), 1), 1);
    assert_eq!(sender.accepted_after_handled(), (3, 0), "nothing is shown as handled until it is said so");
    receiver.show_handled();
    assert_eq!(sender.accepted_after_handled(), (3, 1));
    assert_eq!(receiver.drop_rest(), 2);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn what_nobody_receives_is_dropped_with_the_inbox() {
    let held = Arc::new(());
    let (sender, receiver) = inbox::<Log>(4);
    for _ in 0..3 {
        let held = Arc::clone(&held);
        assert!(sender.try_send(move |_: &Log| drop(held)).is_ok());
    }
    receiver.drain(&Log::default(), 1);
    drop((sender, receiver));
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn many_senders_lose_nothing() {
    let (senders, each) = (4, if cfg!(miri) { 20 } else { 5_000 });
    let (sender, receiver) = inbox::<Log>(8);
    let threads: Vec<_> = (0..senders)
        .map(|thread| {
            let sender = sender.clone();
            thread::spawn(move || {
                for index in 0..each {
                    let value = thread * each + index;
                    assert!(sender.send(move |log: &Log| log.borrow_mut().push(value)).is_ok());
                }
            })
        })
        .collect();
    let log = Log::default();
    while log.borrow().len() < senders * each {
        if receiver.drain(&log, 4) == 0 {
            thread::yield_now();
        }
    }
    for thread in threads {
        thread.join().expect("a sender does not fail");
    }
    let log = log.into_inner();
    for thread in 0..senders {
        let of_thread = log.iter().filter(|&&value| value / each == thread);
        assert!(
            of_thread.copied().eq(thread * each..(thread + 1) * each),
            "each sender's closures keep their order"
        );
    }
}
