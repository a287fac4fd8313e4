//! Histories made by hand.

use atrapos_history::{Anomaly, Entry, Event, Found, History, Outcome, Predicate};

fn found(version: u64, over: u64, group: u32) -> Found {
    Found { version, over, group: Some(group) }
}

/// A write of a version over another one, both with their groups.
fn write(key: u64, was: Found, version: u64, group: u32) -> Event {
    Event::Write { key, found: was, version, group: Some(group) }
}

fn read(key: u64, rows: &[Found]) -> Event {
    Event::Read { what: Predicate::key(key), rows: rows.iter().map(|row| (key, *row)).collect() }
}

fn look(what: Predicate, rows: &[(u64, Found)]) -> Event {
    Event::Read { what, rows: rows.to_vec() }
}

/// A transaction, with the moments of its beginning and its end.
type Ran = (u64, u64, Outcome, Vec<Event>);

/// Each transaction is of a session of its own.
fn history(ran: &[Ran]) -> History {
    let entries = ran.iter().enumerate().flat_map(|(session, (began, ended, outcome, events))| {
        let writes = events.iter().filter_map(|event| match event {
            Event::Write { key, version, .. } => Some((*key, *version)),
            _ => None,
        });
        let appends = events.iter().filter_map(|event| match event {
            Event::Append { list, number } => Some((*list, *number)),
            _ => None,
        });
        let (writes, appends) = (writes.collect(), appends.collect());
        let session = session as u64;
        let begins = Entry::Begins { session, at: *began, writes, appends };
        let done = if *outcome == Outcome::Committed { events.clone() } else { Vec::new() };
        let ends = Entry::Ends { session, at: *ended, outcome: *outcome, events: done };
        [Some(begins), (*outcome != Outcome::Unknown).then_some(ends)].into_iter().flatten()
    });
    History::new(entries).expect("it is well formed")
}

/// A transaction that was under way as long as all others.
fn at_once(events: Vec<Event>) -> Ran {
    (10, 90, Outcome::Committed, events)
}

fn anomaly(ran: &[Ran]) -> Anomaly {
    let history = history(ran);
    let wrong = history.check().expect_err("the history is wrong");
    assert!(!wrong.to_string().is_empty());
    wrong
}

fn cycle_of(ran: &[Ran]) -> (String, String) {
    match anomaly(ran) {
        Anomaly::Cycle { kind, cycle } => (kind, cycle),
        other => panic!("{other}"),
    }
}

const ONE: Found = Found { version: 1, over: 0, group: Some(5) };
const TWO: Found = Found { version: 2, over: 0, group: Some(5) };

/// Versions 1 of key 1 and 2 of key 2, both of group 5, before everything else.
fn loaded() -> Ran {
    (0, 5, Outcome::Committed, vec![write(1, Found::NEVER, 1, 5), write(2, Found::NEVER, 2, 5)])
}

#[test]
fn histories_with_an_order_are_accepted() {
    let right = [
        loaded(),
        at_once(vec![read(1, &[ONE]), write(1, ONE, 11, 6), read(1, &[found(11, 1, 6)])]),
        at_once(vec![look(Predicate::Group(6), &[(1, found(11, 1, 6))]), write(3, Found::NEVER, 13, 6)]),
        // Before the other two, although it ended later.
        at_once(vec![look(Predicate::Keys(0, 9), &[(1, ONE), (2, TWO)]), look(Predicate::Group(6), &[])]),
        (
            95,
            99,
            Outcome::Committed,
            vec![look(Predicate::Keys(0, u64::MAX), &[(1, found(11, 1, 6)), (2, TWO), (3, found(13, 0, 6))])],
        ),
    ];
    let report = history(&right).check().unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!((report.committed, report.versions, report.predicates, report.undecided), (5, 4, 6, 0));
    assert!(History::default().check().is_ok() && History::default().is_empty());
}

#[test]
fn dirty_writes_are_refused() {
    // Each writes both keys, in opposite orders.
    let (kind, cycle) = cycle_of(&[
        loaded(),
        at_once(vec![write(1, ONE, 11, 5), write(2, found(22, 2, 5), 12, 5)]),
        at_once(vec![write(1, found(11, 1, 5), 21, 5), write(2, TWO, 22, 5)]),
    ]);
    assert_eq!(kind, "G0", "{cycle}");
    assert_eq!(cycle.lines().count(), 4, "{cycle}");
}

#[test]
fn aborted_intermediate_and_invented_rows_are_refused() {
    let aborted = (10, 20, Outcome::Aborted, vec![write(1, ONE, 11, 5)]);
    let reader = at_once(vec![read(1, &[found(11, 1, 5)])]);
    assert!(matches!(
        anomaly(&[loaded(), aborted, reader.clone()]),
        Anomaly::AbortedRead { version: 11, .. }
    ));
    let twice = at_once(vec![write(1, ONE, 11, 5), write(1, found(11, 1, 5), 12, 5)]);
    assert!(matches!(
        anomaly(&[loaded(), twice, reader.clone()]),
        Anomaly::IntermediateRead { version: 11, .. }
    ));
    assert!(matches!(anomaly(&[loaded(), reader]), Anomaly::Invented { version: 11, .. }));
    let garbled = at_once(vec![read(1, &[found(1, 0, 6)])]);
    assert!(matches!(anomaly(&[loaded(), garbled]), Anomaly::Garbled { .. }));
}

#[test]
fn circular_information_is_refused() {
    let (kind, _) = cycle_of(&[
        loaded(),
        at_once(vec![write(1, ONE, 11, 5), read(2, &[found(22, 2, 5)])]),
        at_once(vec![write(2, TWO, 22, 5), read(1, &[found(11, 1, 5)])]),
    ]);
    assert_eq!(kind, "G1c");
}

#[test]
fn a_lost_update_is_refused() {
    let lost = [loaded(), at_once(vec![write(1, ONE, 11, 5)]), at_once(vec![write(1, ONE, 12, 5)])];
    assert!(matches!(anomaly(&lost), Anomaly::LostUpdate { key: 1, version: 1, .. }));
}

#[test]
fn read_skew_and_write_skew_are_refused() {
    let (kind, _) = cycle_of(&[
        loaded(),
        at_once(vec![write(1, ONE, 11, 5), write(2, TWO, 12, 5)]),
        at_once(vec![read(1, &[ONE]), read(2, &[found(12, 2, 5)])]),
    ]);
    assert_eq!(kind, "G-single");
    let (kind, cycle) = cycle_of(&[
        loaded(),
        at_once(vec![read(1, &[ONE]), read(2, &[TWO]), write(1, ONE, 11, 5)]),
        at_once(vec![read(1, &[ONE]), read(2, &[TWO]), write(2, TWO, 12, 5)]),
    ]);
    assert_eq!(kind, "G2-item");
    assert!(cycle.contains("read key 2, which T2.1 wrote after that"), "{cycle}");
}

#[test]
fn phantoms_are_refused() {
    for what in [Predicate::Keys(3, 9), Predicate::Group(7)] {
        let both_insert = [
            loaded(),
            at_once(vec![look(what, &[]), write(3, Found::NEVER, 13, 7)]),
            at_once(vec![look(what, &[]), write(4, Found::NEVER, 24, 7)]),
        ];
        let (kind, cycle) = cycle_of(&both_insert);
        assert_eq!(kind, "G2", "{cycle}");
        // The same when the rows only come into the group, or are deleted from under the reader.
        let seen_elsewhere = [
            loaded(),
            at_once(vec![look(what, &[]), read(2, &[found(12, 2, 5)])]),
            at_once(vec![write(3, Found::NEVER, 13, 7), write(2, TWO, 12, 5)]),
        ];
        assert_eq!(cycle_of(&seen_elsewhere).0, "G-single");
    }
    let deleted = Event::Write { key: 1, found: ONE, version: 11, group: None };
    let (kind, _) = cycle_of(&[
        loaded(),
        at_once(vec![look(Predicate::Keys(0, 9), &[(2, TWO)]), read(2, &[TWO])]),
        at_once(vec![deleted, write(2, TWO, 12, 5)]),
        // Somebody read the second before the first one was deleted, and after it was written.
        at_once(vec![read(2, &[found(12, 2, 5)]), read(1, &[ONE])]),
    ]);
    assert_eq!(kind, "G-single");
}

#[test]
fn what_was_there_before_and_after_is_not_guessed() {
    // The key comes, goes and comes while the reader runs: it may have looked before or between.
    let gone = Found { version: 14, over: 13, group: None };
    let coming_and_going = [
        loaded(),
        at_once(vec![look(Predicate::Keys(3, 9), &[])]),
        at_once(vec![write(3, Found::NEVER, 13, 7)]),
        at_once(vec![Event::Write { key: 3, found: found(13, 0, 7), version: 14, group: None }]),
        at_once(vec![write(3, gone, 15, 7)]),
    ];
    let report = history(&coming_and_going).check().unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(report.undecided, 1);
}

#[test]
fn reading_the_past_is_refused() {
    let late = (95, 99, Outcome::Committed, vec![read(1, &[ONE])]);
    let (kind, _) = cycle_of(&[loaded(), at_once(vec![write(1, ONE, 11, 5)]), late]);
    assert_eq!(kind, "G-single-realtime");
    // What was not seen although it was there long ago.
    let late = (95, 99, Outcome::Committed, vec![look(Predicate::Keys(2, 9), &[])]);
    assert_eq!(cycle_of(&[loaded(), late]).0, "G-single-realtime");
}

#[test]
fn a_transaction_sees_its_own_writes() {
    for wrong in [
        vec![write(1, ONE, 11, 5), read(1, &[ONE])],
        vec![write(1, ONE, 11, 5), read(1, &[])],
        vec![
            Event::Write { key: 1, found: ONE, version: 11, group: None },
            look(Predicate::Group(5), &[(1, ONE), (2, TWO)]),
        ],
        vec![look(Predicate::Group(6), &[(1, ONE)])],
        vec![read(1, &[found(11, 1, 5)]), write(1, ONE, 11, 5)],
    ] {
        let wrong = anomaly(&[loaded(), at_once(wrong)]);
        assert!(matches!(wrong, Anomaly::Internal { .. }), "{wrong}");
    }
}

#[test]
fn what_nobody_was_told_may_have_happened_or_not() {
    let unknown = (10, 0, Outcome::Unknown, vec![write(1, ONE, 11, 5), write(2, TWO, 12, 5)]);
    let after = |events| (95, 99, Outcome::Committed, events);
    let not = [loaded(), unknown.clone(), after(vec![read(1, &[ONE]), read(2, &[TWO])])];
    assert_eq!(history(&not).check().map(|report| (report.committed, report.unknown)), Ok((2, 1)));
    let happened =
        [loaded(), unknown.clone(), after(vec![read(1, &[found(11, 1, 5)]), read(2, &[found(12, 2, 5)])])];
    assert_eq!(history(&happened).check().map(|report| (report.committed, report.unknown)), Ok((3, 1)));
    let by_halves = [loaded(), unknown, after(vec![read(1, &[found(11, 1, 5)]), read(2, &[TWO])])];
    // The key that was not seen is known to have been written only by whoever sees it.
    let seen_later = (100, 110, Outcome::Committed, vec![read(2, &[found(12, 2, 5)])]);
    assert_eq!(cycle_of(&[&by_halves[..], &[seen_later]].concat()).0, "G-single");
}

#[test]
fn a_deletion_that_nobody_was_told_of_is_known_by_what_it_left() {
    let deleted = vec![Event::Write { key: 1, found: ONE, version: 11, group: None }];
    let left = Found { version: 11, over: 1, group: None };
    let late = |events: Vec<Event>| (95, 99, Outcome::Committed, events);
    let all = look(Predicate::Keys(0, u64::MAX), &[(2, TWO)]);
    let everything = late(vec![Event::Gone { key: 1, found: left }, all]);
    let unknown = (10, 0, Outcome::Unknown, deleted.clone());
    assert!(history(&[loaded(), unknown.clone(), everything]).check().is_ok());
    let gone_without_trace = late(vec![look(Predicate::Keys(0, 2), &[])]);
    assert_eq!(cycle_of(&[loaded(), unknown, gone_without_trace]).0, "G-single-realtime");
    let aborted = (10, 20, Outcome::Aborted, deleted);
    let seen = late(vec![Event::Gone { key: 1, found: left }]);
    assert!(matches!(anomaly(&[loaded(), aborted, seen]), Anomaly::AbortedRead { .. }));
}

#[test]
fn a_chain_with_a_missing_link_goes_on() {
    // Two were killed one after the other, and nobody saw what the first of them wrote.
    let killed = |began, number| (began, 0, Outcome::Unknown, vec![write(1, ONE, number, 5)]);
    let ran = [
        loaded(),
        killed(10, 11),
        killed(12, 12),
        (95, 99, Outcome::Committed, vec![read(1, &[found(12, 11, 5)])]),
        (100, 110, Outcome::Committed, vec![read(1, &[ONE])]),
    ];
    assert!(history(&ran[..4]).check().is_ok());
    assert_eq!(cycle_of(&ran).0, "G-single-realtime");
}

#[test]
fn entries_out_of_order_are_refused() {
    let end = Entry::Ends { session: 3, at: 1, outcome: Outcome::Committed, events: vec![] };
    assert!(History::new([end]).expect_err("it was never begun").contains("session 3"));
}

#[test]
fn lists_are_checked_by_adya() {
    let append = |list, number| Event::Append { list, number };
    let seen = |list, numbers: &[u64]| Event::ReadList { list, numbers: numbers.to_vec() };
    let right = [
        at_once(vec![seen(1, &[]), append(1, 10)]),
        at_once(vec![append(1, 20)]),
        (95, 99, Outcome::Committed, vec![seen(1, &[10, 20])]),
    ];
    let report = history(&right).check_lists().unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!((report.transactions, report.appends, report.reads), (3, 2, 2));
    let skew = [
        at_once(vec![seen(1, &[]), append(2, 10)]),
        at_once(vec![seen(2, &[]), append(1, 20)]),
        (95, 99, Outcome::Committed, vec![seen(1, &[20]), seen(2, &[10])]),
    ];
    let Err(Anomaly::Lists { kind, explanation }) = history(&skew).check_lists() else {
        panic!("it is wrong")
    };
    assert!(kind == "G2-item" && !explanation.is_empty(), "{kind}");
    let aborted = (10, 20, Outcome::Aborted, vec![append(1, 66)]);
    let unknown = (10, 20, Outcome::Unknown, vec![append(1, 66)]);
    let reader = at_once(vec![append(3, 1), seen(1, &[66])]);
    let found = history(&[aborted, reader.clone()]).check_lists();
    assert!(matches!(&found, Err(Anomaly::Lists { kind, .. }) if kind == "G1a"), "{found:?}");
    assert!(history(&[unknown, reader]).check_lists().is_ok());
    let lost = [at_once(vec![append(1, 10)]), (95, 99, Outcome::Committed, vec![seen(1, &[])])];
    assert!(history(&lost).check_lists().is_err(), "what was acknowledged is gone");
}
