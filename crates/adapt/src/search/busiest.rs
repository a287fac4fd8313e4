//! The most loaded workers of a state of the search, kept while loads change.
//!
//! Owns: which workers are held. Never: changes a load.
//!
//! Invariant: every available worker whose load is above the bound is held. As long as as many are held as a change concerns, and one
//! more, the greatest load is known before and after any change, and no other worker is looked at.

/// Number of workers that a change concerns.
const CHANGED: usize = 2;
/// Number of workers that are held at most.
const HELD_MAX: usize = 16;

/// The most loaded workers.
#[derive(Debug, Clone)]
pub(crate) struct Busiest {
    /// Workers with their loads, the most loaded first.
    held: Vec<(u32, f64)>,
    /// The load that no available worker exceeds that is not held.
    bound: f64,
}

impl Busiest {
    /// Holds no worker: [`find`](Self::find) has to follow.
    pub(crate) fn new() -> Busiest {
        Busiest { held: Vec::with_capacity(HELD_MAX + 1), bound: f64::NEG_INFINITY }
    }

    /// Finds the most loaded of the `available` workers.
    pub(crate) fn find(&mut self, available: &[u32], load: &[f64]) {
        self.held.clear();
        self.bound = f64::NEG_INFINITY;
        for rank in available {
            self.hold(*rank, load[*rank as usize]);
        }
    }

    /// The greatest load.
    pub(crate) fn greatest(&self) -> f64 {
        self.held.first().map_or(0.0, |(_, load)| *load)
    }

    /// The greatest load if these workers had these loads.
    pub(crate) fn greatest_with(&self, changed: [(u32, f64); CHANGED]) -> f64 {
        let other = self.held.iter().find(|(rank, _)| changed.iter().all(|(of, _)| of != rank));
        changed.iter().map(|(_, load)| *load).chain(other.map(|(_, load)| *load)).fold(0.0, f64::max)
    }

    /// Follows a change of the loads of these workers.
    pub(crate) fn follow(&mut self, changed: [u32; CHANGED], available: &[u32], load: &[f64]) {
        self.held.retain(|(rank, _)| !changed.contains(rank));
        for rank in changed {
            if available.binary_search(&rank).is_ok() {
                self.hold(rank, load[rank as usize]);
            }
        }
        if self.held.len() <= CHANGED && self.held.len() < available.len() {
            self.find(available, load);
        }
    }

    /// Holds a worker that was not held, if its load is above the bound.
    fn hold(&mut self, rank: u32, load: f64) {
        if load <= self.bound {
            return;
        }
        let at = self.held.partition_point(|(_, held)| *held >= load);
        self.held.insert(at, (rank, load));
        if self.held.len() > HELD_MAX
            && let Some((_, least)) = self.held.pop()
        {
            self.bound = self.bound.max(least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_greatest_load_is_known_after_any_change(
            loads in prop::collection::vec(0_u32..50, 2..60),
            changes in prop::collection::vec((0_usize..60, 0_usize..60, 0_u32..50, 0_u32..50), 1..200),
        ) {
            let mut load: Vec<f64> = loads.iter().map(|load| f64::from(*load)).collect();
            // One worker is not available.
            let available: Vec<u32> = (1..load.len() as u32).collect();
            let greatest = |load: &[f64]| load[1..].iter().copied().fold(0.0, f64::max);
            let mut busiest = Busiest::new();
            busiest.find(&available, &load);
            for (a, b, load_a, load_b) in changes {
                let (a, b) = (a % load.len(), b % load.len());
                if a == b {
                    continue;
                }
                let (load_a, load_b) = (f64::from(load_a), f64::from(load_b));
                let predicted = busiest.greatest_with([(a as u32, load_a), (b as u32, load_b)]);
                (load[a], load[b]) = (load_a, load_b);
                prop_assert_eq!(predicted, greatest(&load).max(load_a).max(load_b));
                busiest.follow([a as u32, b as u32], &available, &load);
                prop_assert_eq!(busiest.greatest(), greatest(&load));
            }
        }
    }
}
