//! Tests of the lock table: small scenarios by hand, and random runs in a module of their own.

use super::*;

mod random;

fn key(byte: u8) -> LockTarget {
    LockTarget::Key(KeyBuf::from_slice(&[byte]))
}

fn range(lower: u8, upper: u8) -> LockTarget {
    LockTarget::Range { lower: KeyBuf::from_slice(&[lower]), upper: Some(KeyBuf::from_slice(&[upper])) }
}

fn release(table: &mut LockTable, owner: u64, targets: &[LockTarget]) -> Vec<u64> {
    let mut granted = Vec::new();
    table.release(TxnId(owner), targets.iter(), &mut granted);
    granted.into_iter().map(|ticket| ticket.0).collect()
}

/// A request on account of which nobody else is granted anything.
fn ask(
    table: &mut LockTable,
    owner: TxnId,
    target: &LockTarget,
    mode: LockMode,
    ticket: LockTicket,
) -> LockOutcome {
    let mut granted = Vec::new();
    let outcome = table.request(owner, target, mode, ticket, &mut granted);
    assert_eq!(granted, [], "others were granted something");
    outcome
}

use LockMode::{Exclusive, Shared};
use LockOutcome::{Granted, Queued};

#[test]
fn readers_share_and_a_writer_waits_for_all_of_them() {
    let mut table = LockTable::new();
    for owner in 1..=5 {
        assert_eq!(ask(&mut table, TxnId(owner), &key(7), Shared, LockTicket(owner)), Granted);
    }
    assert_eq!(ask(&mut table, TxnId(9), &key(7), Exclusive, LockTicket(9)), Queued);
    for owner in 1..=4 {
        assert_eq!(release(&mut table, owner, &[key(7)]), Vec::<u64>::new());
    }
    assert_eq!(release(&mut table, 5, &[key(7)]), vec![9]);
    assert_eq!(release(&mut table, 9, &[key(7)]), Vec::<u64>::new());
    assert!(table.is_empty());
}

#[test]
fn a_reader_does_not_pass_a_waiting_writer() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &key(7), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(7), Exclusive, LockTicket(2)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &key(7), Shared, LockTicket(3)), Queued);
    assert!(table.conflicts(TxnId(4), &key(7), Shared));
    assert_eq!(release(&mut table, 1, &[key(7)]), vec![2]);
    assert_eq!(release(&mut table, 2, &[key(7)]), vec![3]);
}

#[test]
fn an_upgrade_goes_first_and_waits_only_for_the_other_readers() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &key(7), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(7), Shared, LockTicket(2)), Granted);
    assert_eq!(ask(&mut table, TxnId(3), &key(7), Exclusive, LockTicket(3)), Queued);
    assert_eq!(ask(&mut table, TxnId(1), &key(7), Exclusive, LockTicket(4)), Queued);
    assert_eq!(release(&mut table, 2, &[key(7)]), vec![4]);
    assert!(table.holds(TxnId(1), &key(7), Exclusive));
    // Asking again for what it holds is granted although others wait.
    assert_eq!(ask(&mut table, TxnId(1), &key(7), Shared, LockTicket(5)), Granted);
    assert_eq!(release(&mut table, 1, &[key(7)]), vec![3]);
}

#[test]
fn a_range_keeps_writers_out_of_gaps_too() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &range(3, 6), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(2), Exclusive, LockTicket(2)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(6), Exclusive, LockTicket(3)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(4), Shared, LockTicket(4)), Granted);
    assert_eq!(ask(&mut table, TxnId(3), &key(5), Exclusive, LockTicket(5)), Queued);
    assert_eq!(release(&mut table, 1, &[range(3, 6)]), vec![5]);
}

#[test]
fn a_waiting_range_is_fair_to_and_against_writers() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Exclusive, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &range(3, 6), Shared, LockTicket(2)), Queued);
    // A later writer inside the waiting range waits behind it.
    assert_eq!(ask(&mut table, TxnId(3), &key(5), Exclusive, LockTicket(3)), Queued);
    assert_eq!(release(&mut table, 1, &[key(4)]), vec![2]);
    assert_eq!(release(&mut table, 2, &[range(3, 6)]), vec![3]);
}

#[test]
fn who_has_a_range_gets_what_lies_in_it_before_those_who_wait_for_it() {
    let mut table = LockTable::new();
    // Two ranges next to each other, as after a cut of the partition.
    assert_eq!(ask(&mut table, TxnId(1), &range(3, 5), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(1), &range(5, 9), Shared, LockTicket(2)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(4), Exclusive, LockTicket(3)), Queued);
    // Reading again what it has read: waiting behind one who waits for it would be waiting for ever.
    for target in [range(3, 9), range(4, 8), range(3, 5), key(4)] {
        assert!(!table.conflicts(TxnId(1), &target, Shared), "{target:?}");
        assert!(table.conflicts(TxnId(3), &target, Shared), "{target:?}");
    }
    for beyond in [range(3, 10), range(2, 5)] {
        assert!(table.conflicts(TxnId(1), &beyond, Shared), "{beyond:?}");
    }
    // And writing: it goes first.
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Exclusive, LockTicket(4)), Granted);
    assert_eq!(release(&mut table, 1, &[range(3, 5), range(5, 9), key(4)]), vec![3]);
}

#[test]
fn taking_a_request_back_lets_those_behind_it_go_on() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &key(7), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(7), Exclusive, LockTicket(2)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &key(7), Shared, LockTicket(3)), Queued);
    let mut granted = Vec::new();
    assert!(table.cancel(TxnId(2), &key(7), LockTicket(2), &mut granted));
    assert_eq!(granted, vec![LockTicket(3)]);
    assert!(!table.cancel(TxnId(2), &key(7), LockTicket(2), &mut granted));
}

#[test]
fn blockers_are_the_holders_and_those_ahead() {
    let mut table = LockTable::new();
    ask(&mut table, TxnId(1), &key(7), Shared, LockTicket(1));
    ask(&mut table, TxnId(2), &key(7), Exclusive, LockTicket(2));
    ask(&mut table, TxnId(3), &key(7), Shared, LockTicket(3));
    let mut blockers = Vec::new();
    table.blockers(TxnId(3), &key(7), LockTicket(3), &mut blockers);
    assert_eq!(blockers, vec![TxnId(2)]);
    blockers.clear();
    table.blockers(TxnId(2), &key(7), LockTicket(2), &mut blockers);
    assert_eq!(blockers, vec![TxnId(1)]);
}

#[test]
fn who_gets_a_whole_range_gets_its_keys_before_those_who_wait_for_the_range() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(2), &key(1), Exclusive, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(1), &range(0, 2), Exclusive, LockTicket(2)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &key(1), Shared, LockTicket(3)), Queued);
    assert_eq!(ask(&mut table, TxnId(1), &key(1), Shared, LockTicket(4)), Queued);
    // It is behind the third in the queue of the key, who waits for the range.
    assert_eq!(release(&mut table, 2, &[key(1)]), vec![4, 2]);
    assert_eq!(release(&mut table, 1, &[range(0, 2), key(1)]), vec![3]);
    // The same when somebody else keeps the range waiting still.
    assert_eq!(ask(&mut table, TxnId(4), &key(0), Shared, LockTicket(5)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(1), Exclusive, LockTicket(6)), Queued);
    assert_eq!(release(&mut table, 3, &[key(1)]), vec![6]);
    assert_eq!(ask(&mut table, TxnId(1), &range(0, 2), Exclusive, LockTicket(7)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &key(1), Shared, LockTicket(8)), Queued);
    assert_eq!(ask(&mut table, TxnId(1), &key(1), Shared, LockTicket(9)), Queued);
    assert_eq!(release(&mut table, 2, &[key(1)]), vec![9]);
    assert_eq!(release(&mut table, 4, &[key(0)]), vec![7]);
    assert_eq!(release(&mut table, 1, &[range(0, 2), key(1)]), vec![8]);
}

#[test]
fn an_exclusive_range_keeps_everybody_out_until_it_is_released() {
    let mut locks = LockTable::new();
    let all = LockTarget::Range { lower: KeyBuf::new(), upper: None };
    let key = LockTarget::Key(KeyBuf::from_slice(b"k"));
    let part = LockTarget::Range { lower: KeyBuf::from_slice(b"a"), upper: Some(KeyBuf::from_slice(b"z")) };
    assert!(locks.enter(TxnId(1), &all, Exclusive));
    assert!(!locks.conflicts(TxnId(1), &key, Exclusive));
    let wants = [(&key, Shared), (&part, Shared), (&key, Exclusive)];
    for (at, (target, mode)) in wants.into_iter().enumerate() {
        let (owner, ticket) = (TxnId(2 + at as u64), LockTicket(at as u64));
        assert_eq!(ask(&mut locks, owner, target, mode, ticket), Queued);
        let mut blockers = Vec::new();
        locks.blockers(owner, target, ticket, &mut blockers);
        assert!(blockers.contains(&TxnId(1)), "{blockers:?}");
    }
    let mut granted = Vec::new();
    locks.release(TxnId(1), std::iter::once(&all), &mut granted);
    assert_eq!(granted, [LockTicket(0), LockTicket(1)], "the writer still waits for the readers");
    locks.release(TxnId(2), std::iter::once(&key), &mut granted);
    locks.release(TxnId(3), std::iter::once(&part), &mut granted);
    assert_eq!(granted.last(), Some(&LockTicket(2)));
    locks.release(TxnId(4), std::iter::once(&key), &mut granted);
    assert!(locks.is_empty());
}

#[test]
fn exclusive_ranges_wait_for_each_other_where_they_overlap() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &range(3, 6), Exclusive, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &range(6, 9), Exclusive, LockTicket(2)), Granted);
    for (owner, target, mode) in [
        (3, range(5, 7), Exclusive),
        (4, range(0, 4), Shared),
        (5, key(4), Shared),
        (6, key(8), Exclusive),
        // It is free, but somebody waits for it who came before.
        (7, key(6), Shared),
    ] {
        assert_eq!(ask(&mut table, TxnId(owner), &target, mode, LockTicket(owner)), Queued, "{target:?}");
    }
    // Its own rows cost their owner nothing.
    assert_eq!(ask(&mut table, TxnId(1), &key(5), Exclusive, LockTicket(8)), Granted);
    assert_eq!(release(&mut table, 1, &[range(3, 6), key(5)]), vec![5, 4]);
    assert_eq!(release(&mut table, 2, &[range(6, 9)]), vec![6, 3]);
    assert_eq!(release(&mut table, 3, &[range(5, 7)]), vec![7]);
}

#[test]
fn who_reads_behind_a_waiting_exclusive_range_waits_too() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &range(3, 6), Exclusive, LockTicket(2)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &key(5), Shared, LockTicket(3)), Queued);
    assert_eq!(ask(&mut table, TxnId(4), &range(5, 8), Shared, LockTicket(4)), Queued);
    assert_eq!(ask(&mut table, TxnId(5), &key(7), Shared, LockTicket(5)), Granted);
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Shared, LockTicket(6)), Granted, "it has it");
    let mut blockers = Vec::new();
    table.blockers(TxnId(3), &key(5), LockTicket(3), &mut blockers);
    assert_eq!(blockers, [TxnId(2)]);
    // Who waits for it goes on when it gives up.
    let mut granted = Vec::new();
    assert!(table.cancel(TxnId(2), &range(3, 6), LockTicket(2), &mut granted));
    assert_eq!(granted, [LockTicket(3), LockTicket(4)]);
}

#[test]
fn a_range_that_is_read_is_changed_before_those_who_wait_for_it() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &range(3, 6), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(4), Exclusive, LockTicket(2)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &range(2, 5), Exclusive, LockTicket(3)), Queued);
    assert_eq!(ask(&mut table, TxnId(1), &range(3, 6), Exclusive, LockTicket(4)), Granted);
    assert!(table.holds(TxnId(1), &range(3, 6), Exclusive));
    // Two who have read the same cannot both change it: that takes an abort.
    assert_eq!(release(&mut table, 1, &[range(3, 6)]), vec![2]);
    assert_eq!(release(&mut table, 2, &[key(4)]), vec![3]);
}

#[test]
fn an_upgrade_passes_a_scan_that_waits_for_it_at_second_hand() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(4), Exclusive, LockTicket(2)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &range(3, 6), Shared, LockTicket(3)), Queued);
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Exclusive, LockTicket(4)), Granted);
}

#[test]
fn a_scan_passes_a_writer_that_waits_for_a_key_it_has_read() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(4), Exclusive, LockTicket(2)), Queued);
    assert_eq!(ask(&mut table, TxnId(1), &range(3, 6), Shared, LockTicket(3)), Granted);
}

#[test]
fn a_reader_passes_a_writer_when_a_third_needs_its_lock_and_keeps_the_writer_waiting() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(5), Exclusive, LockTicket(2)), Granted);
    assert_eq!(ask(&mut table, TxnId(3), &key(4), Exclusive, LockTicket(3)), Queued);
    // Behind the writer, as long as nobody needs what it holds.
    assert_eq!(ask(&mut table, TxnId(2), &key(4), Shared, LockTicket(4)), Queued);
    let mut granted = Vec::new();
    let outcome = table.request(TxnId(1), &key(5), Shared, LockTicket(5), &mut granted);
    assert_eq!((outcome, granted), (Queued, vec![LockTicket(4)]));
    assert_eq!(release(&mut table, 2, &[key(4), key(5)]), vec![5]);
    assert_eq!(release(&mut table, 1, &[key(4), key(5)]), vec![3]);
    assert_eq!(release(&mut table, 3, &[key(4)]), Vec::<u64>::new());
    assert!(table.is_empty());
}

#[test]
fn who_holds_nothing_passes_nobody() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(4), Exclusive, LockTicket(2)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &range(3, 6), Shared, LockTicket(3)), Queued);
    for (ticket, target, mode) in [(4, key(4), Shared), (5, key(5), Exclusive), (6, range(2, 5), Shared)] {
        assert_eq!(ask(&mut table, TxnId(ticket), &target, mode, LockTicket(ticket)), Queued);
    }
    // The holder of what they wait for does, and they come in their order behind it.
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Exclusive, LockTicket(7)), Granted);
    assert_eq!(release(&mut table, 1, &[key(4)]), vec![2]);
    assert_eq!(release(&mut table, 2, &[key(4)]), vec![4, 3, 6]);
    assert_eq!(release(&mut table, 3, &[range(3, 6)]), vec![5]);
}

#[test]
fn what_holds_only_after_a_broken_cycle_is_seen_to() {
    let mut table = LockTable::new();
    for (owner, held) in [(1, 1), (2, 2), (3, 3)] {
        assert_eq!(ask(&mut table, TxnId(owner), &key(held), Exclusive, LockTicket(owner)), Granted);
    }
    assert_eq!(ask(&mut table, TxnId(3), &key(4), Shared, LockTicket(4)), Granted);
    // One waits for the fourth key; two waits behind it for that, and for three; three waits for one.
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Exclusive, LockTicket(5)), Queued);
    assert_eq!(ask(&mut table, TxnId(2), &key(4), Exclusive, LockTicket(6)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &key(1), Exclusive, LockTicket(7)), Queued);
    assert_eq!(ask(&mut table, TxnId(1), &key(2), Exclusive, LockTicket(8)), Queued);
    // Three is the victim. One needs what two holds, so two is first.
    let mut granted = Vec::new();
    assert!(table.cancel(TxnId(3), &key(1), LockTicket(7), &mut granted));
    assert_eq!(granted, []);
    assert_eq!(release(&mut table, 3, &[key(3), key(4)]), vec![6]);
    assert_eq!(release(&mut table, 2, &[key(2), key(4)]), vec![8, 5]);
}

#[test]
fn who_gets_a_range_gets_what_it_wants_in_it_before_those_who_came_first() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(2), &key(4), Exclusive, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(3), &range(0, 5), Exclusive, LockTicket(2)), Queued);
    assert_eq!(ask(&mut table, TxnId(4), &key(4), Shared, LockTicket(3)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &key(4), Shared, LockTicket(4)), Queued);
    assert_eq!(release(&mut table, 2, &[key(4)]), vec![4, 2]);
    assert_eq!(release(&mut table, 3, &[range(0, 5), key(4)]), vec![3]);
}

#[test]
fn a_gate_admits_readers_and_nobody_else() {
    let mut table = LockTable::default();
    table.gate();
    assert!(!table.is_empty() && table.admits_all(Shared) && !table.admits_all(Exclusive));
    let range = LockTarget::Range { lower: KeyBuf::new(), upper: None };
    table.enter(TxnId(7), &range, Exclusive);
    assert!(!table.admits_all(Shared), "somebody has an exclusive range beside the gate");
}
