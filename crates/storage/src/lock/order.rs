//! The order in which the requests of one lock table wait, and where it yields to the locks that are held.
//!
//! Owns the question whether a new request closes a cycle of waiting owners, and the new order of those in such a cycle. It
//! never grants anything.
//!
//! The waits-for graph of a table has an edge from the owner of a request to each owner that holds a conflicting lock
//! (*held*), and to each that has waited longer for something that conflicts (*queued*). An owner with several requests waits
//! for all of them. Held edges are facts; queued ones are a matter of order. So the owners of a cycle queue again: each behind
//! those whose locks it needs, and otherwise in the order in which they came. What is not on a cycle keeps its place relative
//! to whatever it conflicts with.
//!
//! Invariant, after every call of the table: owners that wait for each other in a cycle do so by held edges alone, too. So
//! there is a cycle only where there would be one with any order, and breaking it needs an abort.
//!
//! Cost: a request that must wait while nobody waits for its owner closes no cycle. That takes one look at what is locked, and
//! one more at those who wait if the owner holds something here; with many waiters most requests end there. The others look at
//! the holders they wait for, and go on from those that wait here themselves; whom they find in a long queue they do not visit one
//! by one. Only if that leads back to its owner are all waiters visited, once.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{KeyLock, LockMode, LockTable, LockTarget, TxnId, Waiter, contains};

/// A waits-for graph. The first nodes are the owners that wait, longest first; behind them there is one for each key that
/// somebody wants exclusively, which stands for whoever such a request waits for on account of held locks.
#[derive(Default)]
struct Graph {
    owners: Vec<TxnId>,
    held: Vec<Vec<usize>>,
    queued: Vec<Vec<usize>>,
}

impl LockTable {
    /// Returns whether a request waits for a lock that `owner` holds, or behind an earlier request of `owner`. The
    /// latest request of `owner` is last in every queue.
    fn is_waited_for(&self, owner: TxnId) -> bool {
        if self.asked.get(&owner).is_some_and(|asked| asked.len() > 1) {
            return true;
        }
        let waits = |waiter: &Waiter, held: LockMode| waiter.owner != owner && waiter.mode.conflicts(held);
        let wants_key = |key: &[u8], lock: &KeyLock, held: LockMode| {
            lock.queue.iter().any(|waiter| waits(waiter, held))
                || self.range_waiters.iter().any(|range| {
                    waits(&range.waiter, held) && contains(&range.lower, range.upper.as_deref(), key)
                })
        };
        let mut own_keys =
            self.keys.iter().filter_map(|(key, lock)| Some((key, lock, lock.holders.mode_of(owner)?)));
        if own_keys.any(|(key, lock, held)| wants_key(key, lock, held)) {
            return true;
        }
        self.ranges.iter().filter(|held| held.owner == owner).any(|held| {
            let (lower, upper) = (&*held.lower, held.upper.as_deref());
            self.range_waiters
                .iter()
                .any(|range| waits(&range.waiter, held.mode) && range.overlaps(lower, upper))
                || self.keys.iter().any(|(key, lock)| {
                    lock.queue.iter().any(|waiter| waits(waiter, held.mode)) && contains(lower, upper, key)
                })
        })
    }

    /// Returns whether an owner that `owner` waits for waits for `owner`, directly or through others.
    pub(super) fn closes_cycle(&self, owner: TxnId) -> bool {
        if !self.is_waited_for(owner) {
            return false;
        }
        // Who waits only once, behind others for the same key, waits for nobody whom they do not wait for.
        let several = self.asked.len() < self.waiting;
        let (mut visited, mut ahead, mut way) = (FxHashSet::default(), Vec::new(), vec![owner]);
        let mut keys: FxHashMap<&[u8], u64> = FxHashMap::default();
        while let Some(next) = way.pop() {
            for asked in self.asked.get(&next).into_iter().flatten() {
                match &asked.target {
                    LockTarget::Key(key) => {
                        let upto =
                            self.needed_for_key(next, key, asked.mode, asked.rank, several, &mut ahead);
                        // The same key again leads nowhere else, except from a later place in its queue.
                        let before = keys.entry(key).or_default();
                        if upto > 0 && *before >= upto {
                            ahead.clear();
                        } else if next != owner {
                            *before = upto;
                        }
                        // Between the request and the one that stands for those ahead, only ranges can be.
                        let ranges = self.range_waiters_against(key, asked.mode, upto, asked.rank);
                        ahead.extend(ranges.filter(|other| *other != next));
                    }
                    LockTarget::Range { lower, upper } => {
                        let upper = upper.as_deref();
                        ahead.extend(self.keys_within(next, lower, upper, asked.mode, asked.rank));
                        ahead.extend(self.ranges_across(next, lower, upper, asked.mode, asked.rank));
                    }
                }
                for other in ahead.drain(..) {
                    if other == owner {
                        return true;
                    }
                    if self.asked.contains_key(&other) && visited.insert(other) {
                        way.push(other);
                    }
                }
            }
        }
        false
    }

    /// Adds to `ahead` the owners that a request for a key waits for, and those that they wait for at this key. Returns the place
    /// in the queue up to which everybody waits for all holders; 0 when nobody ahead wants the key exclusively.
    fn needed_for_key(
        &self,
        owner: TxnId,
        key: &[u8],
        mode: LockMode,
        rank: u64,
        several: bool,
        ahead: &mut Vec<TxnId>,
    ) -> u64 {
        let Some(lock) = self.keys.get(key) else { return 0 };
        let place = lock.queue.partition_point(|waiter| waiter.rank < rank);
        let others = || lock.queue.range(..place).filter(|waiter| waiter.owner != owner);
        let upto = match mode {
            LockMode::Exclusive => rank,
            LockMode::Shared => others()
                .rev()
                .find(|waiter| waiter.mode == LockMode::Exclusive)
                .map_or(0, |waiter| waiter.rank),
        };
        if upto == 0 {
            ahead.extend(lock.holders.conflicting(owner, mode));
            ahead.extend(self.ranges_against(owner, key, mode, 0));
            return 0;
        }
        // What the owner holds itself keeps it from nothing, but keeps those ahead of it.
        let alone = others().next().is_none();
        let counts = |other: &TxnId| !(alone && *other == owner);
        ahead.extend(lock.holders.iter().map(|(holder, _)| holder).filter(counts));
        ahead.extend(self.ranges_around(key, upto).filter(counts));
        if several {
            ahead.extend(others().map(|waiter| waiter.owner));
        }
        upto
    }

    /// Gives all who wait their places anew: those who wait for each other in a cycle each behind those whose locks it needs,
    /// everybody else as before.
    pub(super) fn reorder(&mut self) {
        let graph = self.graph();
        let owners = 0..graph.owners.len();
        let edges: Vec<Vec<usize>> =
            graph.held.iter().zip(&graph.queued).map(|(held, queued)| [&held[..], queued].concat()).collect();
        let cycles = components(&edges, owners.clone());
        let mut cycle_of = vec![0; edges.len()];
        for (number, cycle) in cycles.iter().enumerate() {
            cycle.iter().for_each(|node| cycle_of[*node] = number);
        }
        let mut held = graph.held;
        for (node, needed) in held.iter_mut().enumerate() {
            needed.retain(|other| cycle_of[*other] == cycle_of[node]);
        }
        let is_owner = |node: &usize| owners.contains(node);
        let groups = components(&held, cycles.into_iter().flatten().filter(is_owner));
        self.tangled = groups.iter().any(|group| group.iter().filter(|node| is_owner(node)).count() > 1);
        let order = groups.into_iter().flatten().filter(is_owner).map(|node| graph.owners[node]);
        self.renumber(order);
    }

    fn renumber(&mut self, order: impl Iterator<Item = TxnId>) {
        let mut ranks = FxHashMap::default();
        for owner in order {
            for asked in self.asked.get_mut(&owner).into_iter().flatten() {
                self.ranks += 1;
                ranks.insert(asked.rank, self.ranks);
                asked.rank = self.ranks;
            }
        }
        for lock in self.keys.values_mut().filter(|lock| !lock.queue.is_empty()) {
            lock.queue.iter_mut().for_each(|waiter| waiter.rank = ranks[&waiter.rank]);
            lock.queue.make_contiguous().sort_unstable_by_key(|waiter| waiter.rank);
        }
        self.range_waiters.iter_mut().for_each(|range| range.waiter.rank = ranks[&range.waiter.rank]);
        self.range_waiters.sort_unstable_by_key(|range| range.waiter.rank);
    }

    fn graph(&self) -> Graph {
        let mut owners: Vec<(u64, TxnId)> = self
            .asked
            .iter()
            .filter_map(|(owner, asked)| {
                asked.iter().map(|asked| asked.rank).min().map(|rank| (rank, *owner))
            })
            .collect();
        owners.sort_unstable();
        let owners: Vec<TxnId> = owners.into_iter().map(|(_, owner)| owner).collect();
        let nodes: FxHashMap<TxnId, usize> =
            owners.iter().enumerate().map(|(node, owner)| (*owner, node)).collect();
        let mut graph =
            Graph { held: vec![Vec::new(); owners.len()], queued: vec![Vec::new(); owners.len()], owners };
        for (key, lock) in self.keys.iter().filter(|(_, lock)| !lock.queue.is_empty()) {
            self.add_queue(&mut graph, &nodes, key, lock);
        }
        for range in &self.range_waiters {
            let (owner, rank) = (range.waiter.owner, range.waiter.rank);
            let (lower, upper) = (&*range.lower, range.upper.as_deref());
            let node = nodes[&owner];
            let mode = range.waiter.mode;
            for (rank, edges) in [(0, &mut graph.held[node]), (rank, &mut graph.queued[node])] {
                let across = self.ranges_across(owner, lower, upper, mode, rank);
                let others = self.keys_within(owner, lower, upper, mode, rank).chain(across);
                edges.extend(others.filter_map(|other| nodes.get(&other)));
            }
        }
        graph
    }

    /// Adds what those who wait for one key wait for: of those ahead, the nearest that wants the key exclusively stands for
    /// everybody before it.
    fn add_queue(&self, graph: &mut Graph, nodes: &FxHashMap<TxnId, usize>, key: &[u8], lock: &KeyLock) {
        let all = graph.held.len();
        let holders = lock.holders.iter().map(|(holder, _)| holder).chain(self.ranges_around(key, 0));
        graph.held.push(holders.filter_map(|holder| nodes.get(&holder).copied()).collect());
        graph.queued.push(Vec::new());
        for (place, waiter) in lock.queue.iter().enumerate() {
            let node = nodes[&waiter.owner];
            if waiter.mode == LockMode::Exclusive {
                graph.held[node].push(all);
            } else {
                let holders = lock.holders.conflicting(waiter.owner, waiter.mode);
                let holders = holders.chain(self.ranges_against(waiter.owner, key, waiter.mode, 0));
                graph.held[node].extend(holders.filter_map(|holder| nodes.get(&holder)));
            }
            let ranges = self.ranges_against(waiter.owner, key, waiter.mode, waiter.rank);
            graph.queued[node].extend(ranges.filter_map(|other| nodes.get(&other)));
            for other in lock.queue.range(..place).rev().filter(|other| other.owner != waiter.owner) {
                if other.mode.conflicts(waiter.mode) {
                    graph.queued[node].push(nodes[&other.owner]);
                }
                if other.mode == LockMode::Exclusive {
                    break;
                }
            }
        }
    }
}

/// The strongly connected components that can be reached from `roots`, each behind those that it leads to (Tarjan 1972).
fn components(edges: &[Vec<usize>], roots: impl Iterator<Item = usize>) -> Vec<Vec<usize>> {
    const NEW: usize = usize::MAX;
    let (mut number, mut low) = (vec![NEW; edges.len()], vec![NEW; edges.len()]);
    let mut is_open = vec![false; edges.len()];
    let (mut open, mut way, mut found): (Vec<usize>, Vec<(usize, usize)>, _) =
        (Vec::new(), Vec::new(), Vec::new());
    let mut numbered = 0;
    for root in roots {
        let mut entered = (number[root] == NEW).then_some(root);
        loop {
            if let Some(node) = entered.take() {
                (number[node], low[node]) = (numbered, numbered);
                numbered += 1;
                is_open[node] = true;
                open.push(node);
                way.push((node, 0));
            }
            let Some((node, next)) = way.last_mut() else { break };
            let node = *node;
            if let Some(&to) = edges[node].get(*next) {
                *next += 1;
                if number[to] == NEW {
                    entered = Some(to);
                } else if is_open[to] {
                    low[node] = low[node].min(number[to]);
                }
                continue;
            }
            way.pop();
            if let Some((parent, _)) = way.last() {
                low[*parent] = low[*parent].min(low[node]);
            }
            if low[node] == number[node] {
                let first = open.iter().rposition(|other| *other == node).expect("an entered node is open");
                let mut component = open.split_off(first);
                component.iter().for_each(|node| is_open[*node] = false);
                component.sort_unstable();
                found.push(component);
            }
        }
    }
    found
}
