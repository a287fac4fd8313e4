//! The order of transactions as a graph, and the smallest cycle in it.
//!
//! Owns: the graph of transactions, with the order in time, and the search. Never: knows why there is an edge.
//!
//! The order in time is a chain of moments besides the transactions: each transaction leads to the moment of its end,
//! each moment to the next, and the last one before a transaction began to that transaction. So it takes no more edges
//! than there are transactions, three times.

use std::collections::VecDeque;

/// A directed graph whose edges have reasons of type `R`. Vertices from `transactions` on are moments.
#[derive(Debug)]
pub(crate) struct Graph<R> {
    transactions: usize,
    edges: Vec<Vec<(usize, Option<R>)>>,
}

/// One step of a circle: from a transaction to the next one, with the reason; none when the one had ended before the other one
/// began.
pub(crate) type Step<R> = (usize, Option<R>);

impl<R: Copy> Graph<R> {
    /// The graph of transactions that began and ended at these moments; `u64::MAX` is never.
    pub(crate) fn new(spans: &[(u64, u64)]) -> Graph<R> {
        let mut ends: Vec<(u64, usize)> =
            spans.iter().enumerate().map(|(at, span)| (span.1, at)).filter(|end| end.0 < u64::MAX).collect();
        ends.sort_unstable();
        let transactions = spans.len();
        let mut edges: Vec<Vec<(usize, Option<R>)>> = vec![Vec::new(); transactions + ends.len()];
        for (moment, (_, transaction)) in ends.iter().enumerate() {
            edges[*transaction].push((transactions + moment, None));
            if moment + 1 < ends.len() {
                edges[transactions + moment].push((transactions + moment + 1, None));
            }
        }
        for (at, (began, _)) in spans.iter().enumerate() {
            let before = ends.partition_point(|(end, _)| end < began);
            if before > 0 {
                edges[transactions + before - 1].push((at, None));
            }
        }
        Graph { transactions, edges }
    }

    /// `from` comes before `to`.
    pub(crate) fn add(&mut self, from: usize, to: usize, why: R) {
        if from != to {
            self.edges[from].push((to, Some(why)));
        }
    }

    /// Number of reasons, besides the order in time.
    pub(crate) fn reasons(&self) -> usize {
        self.edges.iter().flatten().filter(|edge| edge.1.is_some()).count()
    }

    /// A circle of as few transactions as any.
    pub(crate) fn smallest_cycle(&self) -> Option<Vec<Step<R>>> {
        let component_of = self.components();
        let mut sizes = vec![0_usize; self.edges.len()];
        component_of.iter().for_each(|component| sizes[*component] += 1);
        let mut best: Option<Vec<Step<R>>> = None;
        let candidates = (0..self.transactions).filter(|at| sizes[component_of[*at]] > 1).take(STARTS_MAX);
        for start in candidates {
            let found = self.cycle_through(start, &component_of);
            if let Some(found) = found
                && best.as_ref().is_none_or(|best| found.len() < best.len())
            {
                best = Some(found);
            }
            if best.as_ref().is_some_and(|best| best.len() == 2) {
                break;
            }
        }
        best
    }

    /// The smallest circle through a transaction, within its component. Moments do not count.
    fn cycle_through(&self, start: usize, component_of: &[usize]) -> Option<Vec<Step<R>>> {
        let mut distances = vec![usize::MAX; self.edges.len()];
        let mut before: Vec<Option<(usize, Option<R>)>> = vec![None; self.edges.len()];
        let mut queue = VecDeque::from([(start, 0)]);
        distances[start] = 0;
        while let Some((at, distance)) = queue.pop_front() {
            if distance > distances[at] {
                continue;
            }
            for (next, why) in &self.edges[at] {
                if *next == start {
                    return Some(self.told(start, at, *why, &before));
                }
                let cost = usize::from(*next < self.transactions);
                if component_of[*next] != component_of[start] || distance + cost >= distances[*next] {
                    continue;
                }
                distances[*next] = distance + cost;
                before[*next] = Some((at, *why));
                if cost == 0 {
                    queue.push_front((*next, distance));
                } else {
                    queue.push_back((*next, distance + 1));
                }
            }
        }
        None
    }

    /// The way back from `last` to `start`, told forwards and without moments.
    fn told(
        &self,
        start: usize,
        last: usize,
        why: Option<R>,
        before: &[Option<(usize, Option<R>)>],
    ) -> Vec<Step<R>> {
        let (mut steps, mut at, mut why) = (Vec::new(), last, why);
        loop {
            if at < self.transactions {
                steps.push((at, why));
            }
            if at == start {
                break;
            }
            let (previous, reason) =
                before[at].expect("every vertex on the way was reached from another one");
            (at, why) = (previous, reason);
        }
        steps.reverse();
        steps
    }

    /// The strongly connected component of each vertex (Tarjan 1972), without recursion.
    fn components(&self) -> Vec<usize> {
        const NONE: usize = usize::MAX;
        let vertices = self.edges.len();
        let (mut index, mut low) = (vec![NONE; vertices], vec![0; vertices]);
        let mut component_of = vec![NONE; vertices];
        let (mut stack, mut next_index, mut next_component) = (Vec::new(), 0, 0);
        for root in 0..vertices {
            if index[root] != NONE {
                continue;
            }
            let mut path = vec![(root, 0)];
            while let Some((at, edge)) = path.last_mut() {
                let at = *at;
                if *edge == 0 && index[at] == NONE {
                    (index[at], low[at]) = (next_index, next_index);
                    next_index += 1;
                    stack.push(at);
                }
                if let Some((to, _)) = self.edges[at].get(*edge) {
                    *edge += 1;
                    if index[*to] == NONE {
                        path.push((*to, 0));
                    } else if component_of[*to] == NONE {
                        low[at] = low[at].min(index[*to]);
                    }
                    continue;
                }
                path.pop();
                if let Some((parent, _)) = path.last() {
                    low[*parent] = low[*parent].min(low[at]);
                }
                if low[at] == index[at] {
                    while let Some(member) = stack.pop() {
                        component_of[member] = next_component;
                        if member == at {
                            break;
                        }
                    }
                    next_component += 1;
                }
            }
        }
        component_of
    }
}

/// Transactions from which a circle is looked for, at most: a large component has small circles in many places.
const STARTS_MAX: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    /// Transactions that are all under way at the same time.
    fn graph(transactions: usize, edges: &[(usize, usize)]) -> Graph<u32> {
        let mut graph = Graph::new(&vec![(0, u64::MAX); transactions]);
        for (number, (from, to)) in edges.iter().enumerate() {
            graph.add(*from, *to, number as u32);
        }
        graph
    }

    #[test]
    fn the_smallest_circle_is_found() {
        assert_eq!(graph(3, &[(0, 1), (1, 2), (0, 2)]).smallest_cycle(), None);
        let two_circles = graph(6, &[(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 3), (4, 5)]);
        assert_eq!(two_circles.smallest_cycle(), Some(vec![(3, Some(4)), (4, Some(5))]));
        let a_chord = graph(4, &[(0, 1), (1, 2), (2, 3), (3, 0), (2, 0)]);
        assert_eq!(a_chord.smallest_cycle(), Some(vec![(0, Some(0)), (1, Some(1)), (2, Some(4))]));
    }

    #[test]
    fn time_closes_a_circle() {
        // 0 had ended before 2 began; 2 comes before 1, and 1 before 0.
        let mut graph: Graph<u32> = Graph::new(&[(1, 2), (1, 9), (5, 6)]);
        assert_eq!(graph.smallest_cycle(), None);
        graph.add(2, 1, 0);
        assert_eq!(graph.smallest_cycle(), None);
        graph.add(1, 0, 1);
        assert_eq!(graph.smallest_cycle(), Some(vec![(0, None), (2, Some(0)), (1, Some(1))]));
        assert_eq!(graph.reasons(), 2);
    }
}
