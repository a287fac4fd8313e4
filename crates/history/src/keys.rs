//! [`KeyHistory`]: operations on single keys of a map by several threads, and the proof that each of them could have taken effect at
//! one moment between its call and its return (linearizability; Herlihy and Wing 1990).
//!
//! Linearizability is local: a history of a map is linearizable if that of every key is. For each key the check searches for an
//! order (Wing and Gong 1993), and remembers which sets of operations, with which value after them, have been tried (Lowe 2017).
//!
//! A scan that is not a snapshot is a read of every key in its range, each at a moment of its own between the call and the return.
//!
//! Owns: the search. Never: reads a clock: calls and returns are numbered by whoever records them.

use std::collections::{BTreeMap, HashSet};

/// An operation on a key, with its result. Values are those of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOperation {
    /// A read, and what it has found.
    Read(Option<u64>),
    /// A replacement of the value by another one, and whether there was one.
    Update(u64, bool),
    /// An insertion of a value, and whether there was none.
    Insert(u64, bool),
    /// A removal, and whether there was a value.
    Remove(bool),
}

impl KeyOperation {
    /// The value after the operation; `None` if its result does not fit the value before.
    fn apply(self, value: Option<u64>) -> Option<Option<u64>> {
        let (fits, after) = match self {
            KeyOperation::Read(found) => (found == value, value),
            KeyOperation::Update(new, done) => (done == value.is_some(), value.map(|_| new)),
            KeyOperation::Insert(new, done) => (done == value.is_none(), value.or(Some(new))),
            KeyOperation::Remove(done) => (done == value.is_some(), None),
        };
        fits.then_some(after)
    }
}

/// An operation, and when it was called and had returned, in numbers that grow with time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyEvent {
    /// The operation, with its result.
    pub operation: KeyOperation,
    /// The number of the call.
    pub called: u64,
    /// The number of the return, above that of the call.
    pub returned: u64,
}

/// A key whose operations could not have taken effect in any order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operations on key {key} are not linearizable; those that no order explains begin at {first:?}")]
pub struct NotLinearizable<K: std::fmt::Debug> {
    /// The key.
    pub key: K,
    /// The first operation, by the time of its return, that no order of the ones before it leads to.
    pub first: KeyEvent,
}

/// Operations on the keys of a map.
#[derive(Clone, Debug)]
pub struct KeyHistory<K> {
    keys: BTreeMap<K, (Option<u64>, Vec<KeyEvent>)>,
}

impl<K: Ord + Clone + std::fmt::Debug> Default for KeyHistory<K> {
    fn default() -> KeyHistory<K> {
        KeyHistory::new()
    }
}

impl<K: Ord + Clone + std::fmt::Debug> KeyHistory<K> {
    /// Creates a history without operations, in which no key has a value.
    #[must_use]
    pub fn new() -> KeyHistory<K> {
        KeyHistory { keys: BTreeMap::new() }
    }

    /// Notes the value that a key has before all operations.
    pub fn begins_with(&mut self, key: K, value: u64) {
        self.keys.entry(key).or_default().0 = Some(value);
    }

    /// Adds an operation; the order in which they are added has no meaning.
    pub fn add(&mut self, key: K, event: KeyEvent) {
        self.keys.entry(key).or_default().1.push(event);
    }

    /// The number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.values().map(|(_, events)| events.len()).sum()
    }

    /// Returns whether there are no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks that the operations on every key are linearizable.
    ///
    /// # Errors
    /// Those on a key are not.
    pub fn check(&self) -> Result<(), NotLinearizable<K>> {
        for (key, (value, events)) in &self.keys {
            let mut events = events.clone();
            events.sort_by_key(|event| event.called);
            if let Err(first) = Search::new(&events).run(*value) {
                return Err(NotLinearizable { key: key.clone(), first });
            }
        }
        Ok(())
    }
}

/// A search for an order of operations that are sorted by their calls.
struct Search<'e> {
    events: &'e [KeyEvent],
    /// Operations in the order so far, by their places.
    done: Vec<bool>,
    /// The number of operations from the first one on that all are in the order.
    prefix: usize,
    /// What was tried: the prefix, what is done behind it, and the value.
    tried: HashSet<(usize, Vec<usize>, Option<u64>)>,
    /// The operations in order, with the value before each and the prefix then.
    order: Vec<(usize, Option<u64>, usize)>,
}

impl<'e> Search<'e> {
    fn new(events: &'e [KeyEvent]) -> Search<'e> {
        let done = vec![false; events.len()];
        Search { events, done, prefix: 0, tried: HashSet::new(), order: Vec::new() }
    }

    /// The places of operations, from one on, that may be next: called before any that is left has returned.
    fn candidates(&self, from: usize) -> impl Iterator<Item = usize> + '_ {
        let mut first_return = u64::MAX;
        let left = (self.prefix..self.events.len()).filter(|at| !self.done[*at]).take_while(move |at| {
            let event = &self.events[*at];
            let may_be_next = event.called < first_return;
            first_return = first_return.min(event.returned);
            may_be_next
        });
        left.filter(move |at| *at >= from)
    }

    fn run(mut self, mut value: Option<u64>) -> Result<(), KeyEvent> {
        let (mut from, mut furthest) = (0, 0);
        while self.prefix < self.events.len() {
            furthest = furthest.max(self.prefix);
            let fitting =
                self.candidates(from).find_map(|at| Some((at, self.events[at].operation.apply(value)?)));
            if let Some((at, after)) = fitting {
                if self.go(at, value, after) {
                    (value, from) = (after, 0);
                } else {
                    from = at + 1;
                }
                continue;
            }
            let Some((at, before, prefix)) = self.order.pop() else { return Err(self.events[furthest]) };
            self.done[at] = false;
            (value, self.prefix, from) = (before, prefix, at + 1);
        }
        Ok(())
    }

    /// Adds an operation to the order, unless what follows was tried; returns whether it did.
    fn go(&mut self, at: usize, before: Option<u64>, after: Option<u64>) -> bool {
        let prefix = self.prefix;
        self.done[at] = true;
        while self.done.get(self.prefix) == Some(&true) {
            self.prefix += 1;
        }
        // Few operations behind the prefix are done: at most as many as others run at the same time.
        let horizon = self.order.len() + 1 - self.prefix;
        let behind: Vec<usize> =
            (self.prefix..self.events.len()).filter(|at| self.done[*at]).take(horizon).collect();
        if self.tried.insert((self.prefix, behind, after)) {
            self.order.push((at, before, prefix));
            return true;
        }
        self.done[at] = false;
        self.prefix = prefix;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::KeyOperation::{Insert, Read, Remove, Update};
    use super::*;
    use proptest::prelude::*;

    fn event(operation: KeyOperation, called: u64, returned: u64) -> KeyEvent {
        KeyEvent { operation, called, returned }
    }

    fn check(events: &[KeyEvent]) -> bool {
        let mut history = KeyHistory::new();
        events.iter().for_each(|event| history.add(7_u64, *event));
        history.check().is_ok()
    }

    #[test]
    fn operations_one_after_the_other_have_one_order() {
        assert!(check(&[
            event(Insert(1, true), 0, 1),
            event(Read(Some(1)), 2, 3),
            event(Remove(true), 4, 5)
        ]));
        assert!(!check(&[event(Insert(1, true), 0, 1), event(Read(None), 2, 3)]));
        assert!(!check(&[event(Insert(1, true), 0, 1), event(Insert(2, true), 2, 3)]));
        assert!(!check(&[event(Update(1, true), 0, 1)]));
        assert!(!check(&[event(Remove(true), 0, 1)]));
    }

    #[test]
    fn operations_at_the_same_time_have_any_order() {
        let insert = event(Insert(1, true), 0, 9);
        assert!(check(&[insert, event(Read(None), 1, 2), event(Read(Some(1)), 3, 4)]));
        assert!(!check(&[insert, event(Read(Some(1)), 1, 2), event(Read(None), 3, 4)]));
        assert!(check(&[
            insert,
            event(Update(2, false), 1, 2),
            event(Update(3, true), 1, 4),
            event(Read(Some(3)), 5, 6)
        ]));
    }

    #[test]
    fn a_lost_update_and_a_stale_read_are_found() {
        let mut history = KeyHistory::new();
        history.begins_with("key", 5);
        history.add("key", event(Update(6, true), 0, 1));
        history.add("key", event(Read(Some(5)), 2, 3));
        assert_eq!(history.check().unwrap_err().key, "key");
        assert_eq!(history.len(), 2);
    }

    /// An order of all operations that fits, by trying every one.
    fn any_order(events: &[KeyEvent], done: u32, value: Option<u64>) -> bool {
        let left: Vec<usize> = (0..events.len()).filter(|at| done & (1 << at) == 0).collect();
        left.is_empty()
            || left.iter().any(|at| {
                left.iter().all(|other| events[*other].returned >= events[*at].called)
                    && events[*at]
                        .operation
                        .apply(value)
                        .is_some_and(|after| any_order(events, done | (1 << at), after))
            })
    }

    fn operation() -> impl Strategy<Value = KeyOperation> {
        prop_oneof![
            prop::option::of(0..3_u64).prop_map(Read),
            (0..3_u64, prop::bool::weighted(0.7)).prop_map(|(value, done)| Update(value, done)),
            (0..3_u64, any::<bool>()).prop_map(|(value, done)| Insert(value, done)),
            prop::bool::weighted(0.7).prop_map(Remove),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 3000, ..ProptestConfig::default() })]

        #[test]
        fn the_search_agrees_with_trying_every_order(
            parts in prop::collection::vec((operation(), 0..12_u64, 1..8_u64), 1..6)
        ) {
            // Numbers of calls are even and those of returns are odd, so that no two are the same moment.
            let events: Vec<KeyEvent> =
                parts.iter().map(|(operation, at, length)| event(*operation, 2 * at, 2 * (at + length) - 1)).collect();
            prop_assert_eq!(check(&events), any_order(&events, 0, None));
        }
    }
}
