//! A latched, doubly linked list of the transactions under way on several workers.
//!
//! Owns: the links. Never: knows more of a transaction than its number.
//!
//! A transaction links itself in front of the newest one, so that it writes the latch, the head and the node of the one before it,
//! and unlinks itself from wherever it is: the cache lines that go from worker to worker in the list of Shore-MT. Nodes are
//! places of a vector, one cache line each, as the descriptors of transactions are there.

use std::sync::{Mutex, MutexGuard, PoisonError};

use atrapos_storage::lock::TxnId;

/// See the module's introduction.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct ActiveList(Mutex<Links>);

#[derive(Debug)]
struct Links {
    nodes: Vec<Node>,
    /// The node of the newest transaction.
    newest: u32,
    /// The first unused node; the others follow by `older`.
    unused: u32,
}

#[derive(Debug)]
#[repr(align(128))]
struct Node {
    txn: TxnId,
    newer: u32,
    older: u32,
}

/// The end of the list.
const END: u32 = u32::MAX;

impl Default for Links {
    fn default() -> Links {
        Links { nodes: Vec::new(), newest: END, unused: END }
    }
}

impl ActiveList {
    fn latch(&self) -> MutexGuard<'_, Links> {
        // Under the latch only an allocation can fail, which ends the process.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a transaction, and returns its place.
    pub(super) fn enter(&self, txn: TxnId) -> u32 {
        let mut links = self.latch();
        let node = Node { txn, newer: END, older: links.newest };
        let place = links.unused;
        let place = match links.nodes.get_mut(place as usize) {
            Some(unused) => {
                let next = unused.older;
                *unused = node;
                links.unused = next;
                place
            }
            None => {
                links.nodes.push(node);
                (links.nodes.len() - 1) as u32
            }
        };
        let older = std::mem::replace(&mut links.newest, place);
        if let Some(older) = links.nodes.get_mut(older as usize) {
            older.newer = place;
        }
        place
    }

    /// Removes the transaction at `place`.
    pub(super) fn leave(&self, place: u32) {
        let mut links = self.latch();
        let Node { newer, older, .. } = links.nodes[place as usize];
        match links.nodes.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => links.newest = older,
        }
        if let Some(older) = links.nodes.get_mut(older as usize) {
            older.newer = newer;
        }
        links.nodes[place as usize].older = links.unused;
        links.unused = place;
    }

    /// Returns the transactions, the one that entered last first.
    pub(super) fn all(&self) -> Vec<TxnId> {
        let links = self.latch();
        let mut at = links.newest;
        let mut all = Vec::new();
        while let Some(node) = links.nodes.get(at as usize) {
            all.push(node.txn);
            at = node.older;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_what_a_vector_would_be() {
        let list = ActiveList::default();
        let mut model: Vec<(TxnId, u32)> = Vec::new();
        // A linear congruential generator is random enough to enter and leave in all orders.
        let mut random = 1_u64;
        for number in 1..=10_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let choice = (random >> 33) as usize;
            if model.is_empty() || (model.len() < 20 && choice.is_multiple_of(2)) {
                let txn = TxnId::new(number, 3);
                let place = list.enter(txn);
                assert!(model.iter().all(|(_, taken)| *taken != place), "a place is one transaction's");
                model.push((txn, place));
            } else {
                list.leave(model.remove(choice / 2 % model.len()).1);
            }
            let expected: Vec<TxnId> = model.iter().rev().map(|(txn, _)| *txn).collect();
            assert_eq!(list.all(), expected);
        }
        assert!(list.latch().nodes.len() <= 20, "places are used again");
    }

    #[test]
    fn threads_that_enter_and_leave_at_once_leave_nothing_behind() {
        let list = ActiveList::default();
        std::thread::scope(|scope| {
            for home in 0..2 {
                let list = &list;
                scope.spawn(move || {
                    let mut places = Vec::new();
                    for number in 0..5_000 {
                        places.push(list.enter(TxnId::new(number, home)));
                        if places.len() > 3 {
                            list.leave(places.remove(0));
                        }
                    }
                    places.into_iter().for_each(|place| list.leave(place));
                });
            }
        });
        assert_eq!(list.all(), []);
        assert!(list.latch().nodes.len() <= 8);
    }
}
