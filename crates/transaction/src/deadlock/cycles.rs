//! Search of a graph for cycles, and the choice of a victim in each.
//!
//! A depth-first search from the transactions that have waited for long. A transaction met again on the path closes a cycle;
//! its victim leaves the graph, and the search goes on before it, so that no cycle that can be reached remains. What was left of the path is searched again if it is met again.

use std::collections::HashMap;

use atrapos_storage::lock::TxnId;
use rustc_hash::FxBuildHasher;

/// The state of a transaction in the search; one that is not known has not been met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    /// It is on the path, at this place.
    OnPath(usize),
    /// No cycle can be reached from it, or it is a victim.
    Done,
}

/// A transaction on the path.
struct Step {
    txn: TxnId,
    ahead: Vec<TxnId>,
    /// The number of those ahead that have been followed.
    followed: usize,
}

/// The outcome of a search.
#[derive(Debug, Default)]
pub(super) struct Broken {
    /// The victims: each the youngest of its cycle.
    pub(super) victims: Vec<TxnId>,
    /// A transaction of each cycle in which some age is not known here.
    pub(super) undecided: Vec<TxnId>,
    /// Transactions visited.
    pub(super) visits: usize,
}

/// Searches a graph for cycles that can be reached from `roots`. `ahead` appends the transactions that one waits for, and `age` returns its
/// place in the order of ages, if it is known. The search ends after `visits_max` visits.
pub(super) fn break_cycles<A: Ord>(
    roots: impl IntoIterator<Item = TxnId>,
    mut ahead: impl FnMut(TxnId, &mut Vec<TxnId>),
    age: impl Fn(TxnId) -> Option<A>,
    visits_max: usize,
) -> Broken {
    let mut met: HashMap<TxnId, Met, FxBuildHasher> = HashMap::default();
    let mut path: Vec<Step> = Vec::new();
    let mut broken = Broken::default();
    for root in roots {
        let mut next = Some(root).filter(|root| !met.contains_key(root));
        loop {
            if let Some(txn) = next.take() {
                if broken.visits == visits_max {
                    return broken;
                }
                broken.visits += 1;
                let mut step = Step { txn, ahead: Vec::new(), followed: 0 };
                ahead(txn, &mut step.ahead);
                met.insert(txn, Met::OnPath(path.len()));
                path.push(step);
            }
            let Some(step) = path.last_mut() else { break };
            let Some(follow) = step.ahead.get(step.followed).copied() else {
                met.insert(step.txn, Met::Done);
                path.pop();
                continue;
            };
            step.followed += 1;
            match met.get(&follow) {
                None => next = Some(follow),
                Some(Met::Done) => {}
                Some(Met::OnPath(at)) => {
                    let leaves = choose(&path, *at, &age, &mut broken);
                    met.insert(path[leaves].txn, Met::Done);
                    path[leaves + 1..].iter().for_each(|step| {
                        met.remove(&step.txn);
                    });
                    path.truncate(leaves);
                }
            }
        }
    }
    broken
}

/// Chooses who leaves the cycle that is closed by the path from `at` on: its place on the path.
fn choose<A: Ord>(path: &[Step], at: usize, age: &impl Fn(TxnId) -> Option<A>, broken: &mut Broken) -> usize {
    let ages: Option<Vec<A>> = path[at..].iter().map(|step| age(step.txn)).collect();
    let youngest = ages.and_then(|ages| (0..ages.len()).max_by(|one, other| ages[*one].cmp(&ages[*other])));
    match youngest {
        Some(youngest) => {
            broken.victims.push(path[at + youngest].txn);
            at + youngest
        }
        None => {
            broken.undecided.push(path[at].txn);
            at
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Searches a graph of transactions whose ages are their numbers, from all of them.
    fn search(edges: &BTreeSet<(u64, u64)>, count: u64) -> Broken {
        let ahead = |txn: TxnId, ahead: &mut Vec<TxnId>| {
            ahead.extend(edges.iter().filter(|(from, _)| *from == txn.0).map(|(_, to)| TxnId(*to)));
        };
        break_cycles((0..count).map(TxnId), ahead, |txn| Some(txn.0), usize::MAX)
    }

    /// Returns true if `to` can be reached from `from` by one edge or more, over transactions of which `may` is true.
    fn reaches(edges: &BTreeSet<(u64, u64)>, from: u64, to: u64, may: impl Fn(u64) -> bool) -> bool {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            for (_, next) in edges.iter().filter(|(start, next)| *start == at && may(*next)) {
                if *next == to {
                    return true;
                }
                if seen.insert(*next) {
                    open.push(*next);
                }
            }
        }
        false
    }

    proptest! {
        #[test]
        fn no_cycle_remains_and_each_victim_was_the_youngest_of_one(
            edges in proptest::collection::btree_set((0_u64..12, 0_u64..12), 0..40),
        ) {
            let edges: BTreeSet<(u64, u64)> = edges.into_iter().filter(|(from, to)| from != to).collect();
            let broken = search(&edges, 12);
            let victims: BTreeSet<u64> = broken.victims.iter().map(|txn| txn.0).collect();
            prop_assert_eq!(victims.len(), broken.victims.len(), "each is chosen once");
            for txn in 0..12 {
                let remains = |other: u64| !victims.contains(&other);
                prop_assert!(!remains(txn) || !reaches(&edges, txn, txn, remains), "{txn} is in a cycle still");
                prop_assert!(remains(txn) || reaches(&edges, txn, txn, |other| other <= txn), "{txn} need not go");
            }
        }
    }

    #[test]
    fn a_cycle_of_an_unknown_age_is_left_undecided_and_the_search_is_bounded() {
        let ahead = |txn: TxnId, ahead: &mut Vec<TxnId>| ahead.push(TxnId((txn.0 + 1) % 3));
        let of =
            |visits_max| break_cycles([TxnId(0)], ahead, |txn| (txn.0 != 1).then_some(txn.0), visits_max);
        let broken = of(10);
        assert_eq!((broken.victims, broken.undecided, broken.visits), (vec![], vec![TxnId(0)], 3));
        assert_eq!((of(2).undecided, of(2).visits), (vec![], 2));
    }

    #[test]
    fn a_jam_of_hundreds_is_searched_once() {
        // All of a queue wait for its first, which waits for the last.
        let ahead = |txn: TxnId, ahead: &mut Vec<TxnId>| {
            ahead.push(TxnId(if txn.0 == 0 { 999 } else { txn.0 - 1 }));
        };
        let broken = break_cycles((0..1_000).map(TxnId), ahead, |txn| Some(txn.0), usize::MAX);
        assert_eq!((broken.victims, broken.undecided), (vec![TxnId(999)], vec![]));
        assert!(broken.visits <= 2_000, "{}", broken.visits);
    }
}
