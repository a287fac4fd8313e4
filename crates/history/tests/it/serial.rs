//! Random histories of transactions that ran one after the other, told as if they had overlapped: they are right; with one read
//! from the past in them they are not.

use std::collections::BTreeMap;

use atrapos_history::{Entry, Event, Found, History, Outcome, Predicate};
use proptest::prelude::*;

/// One step of a transaction, by kind, key and group.
type Step = (u8, u64, u32);

const KEYS: u64 = 6;
const GROUPS: u32 = 3;

/// Runs transactions one after the other, and says of each what it did.
fn run(transactions: &[Vec<Step>]) -> Vec<Vec<Event>> {
    let mut rows: BTreeMap<u64, Found> = BTreeMap::new();
    let mut version = 0;
    let all = |rows: &BTreeMap<u64, Found>, what: Predicate| {
        let matching = rows.iter().filter(|(key, found)| what.matches(**key, found.group));
        Event::Read { what, rows: matching.map(|(key, found)| (*key, *found)).collect() }
    };
    let mut run_one = |steps: &Vec<Step>| {
        let mut events = Vec::new();
        for (kind, key, group) in steps {
            let (key, group) = (key % KEYS, group % GROUPS);
            match kind % 5 {
                0 | 1 => {
                    version += 1;
                    // Some are deletions.
                    let group = (*kind > 60).then_some(group);
                    let found = rows.get(&key).copied().unwrap_or(Found::NEVER);
                    if found.group.is_none() && group.is_none() {
                        continue;
                    }
                    rows.insert(key, Found { version, over: found.version, group });
                    events.push(Event::Write { key, found, version, group });
                }
                2 => events.push(all(&rows, Predicate::key(key))),
                3 => events.push(all(&rows, Predicate::Keys(key, key + 3))),
                _ => events.push(all(&rows, Predicate::Group(group))),
            }
        }
        events
    };
    transactions.iter().map(&mut run_one).collect()
}

/// Each transaction overlaps with the `overlap` next ones.
fn history(ran: &[Vec<Event>], overlap: u64) -> History {
    let entries = ran.iter().enumerate().flat_map(|(session, events)| {
        let writes = events.iter().filter_map(|event| match event {
            Event::Write { key, version, .. } => Some((*key, *version)),
            _ => None,
        });
        let (at, session) = (10 * session as u64, session as u64);
        let begins = Entry::Begins { session, at, writes: writes.collect(), appends: vec![] };
        let (at, outcome, events) = (at + 5 + 10 * overlap, Outcome::Committed, events.clone());
        [begins, Entry::Ends { session, at, outcome, events }]
    });
    History::new(entries).expect("it is well formed")
}

fn transactions() -> impl Strategy<Value = Vec<Vec<Step>>> {
    prop::collection::vec(prop::collection::vec((any::<u8>(), any::<u64>(), any::<u32>()), 1..5), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_ran_one_after_the_other_is_accepted(transactions in transactions(), overlap in 0..5_u64) {
        let history = history(&run(&transactions), overlap);
        prop_assert_eq!(history.check().map(|report| report.committed as usize), Ok(history.len()));
    }

    #[test]
    fn a_look_into_the_past_is_refused(mut transactions in transactions(), key in 0..KEYS, by_group: bool) {
        // Somebody writes a row, everybody else goes on, and the last one does not find it.
        transactions.insert(0, vec![(100, key, 1), (102, key, 1)]);
        transactions.push(vec![(100, key, 1), (102, key, 1)]);
        let mut ran = run(&transactions);
        let last = ran.len();
        let what = if by_group { Predicate::Group(1) } else { Predicate::key(key) };
        let Some(Event::Write { version, .. }) = ran[last - 1].first().cloned() else { unreachable!("it writes") };
        prop_assert!(version > 0);
        let others: Vec<(u64, Found)> = match run(&[transactions.concat(), vec![(104, 0, 1)]]).pop().and_then(|mut look| look.pop()) {
            Some(Event::Read { rows, .. }) if by_group => rows.into_iter().filter(|row| row.0 != key).collect(),
            _ => Vec::new(),
        };
        ran.push(vec![Event::Read { what, rows: others }]);
        prop_assert!(history(&ran, 0).check().is_err());
    }
}
