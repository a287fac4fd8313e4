//! The fast search for a composition beside the exact one.
//!
//! Owns: when the exact search is made, which result is taken, and what is said of the distance between both. Never: searches.

use std::collections::BTreeMap;

use atrapos_cli::error::CliError;
use atrapos_composition::{
    Composition, CompositionError, Demand, Effort, Kind, LoadBounds, Settings, compose,
};
use serde_json::{Value, json};

use super::refused;

/// Relative difference of loads up to which an optimum counts as proven: twice the tolerance of a search.
const PROVEN: f64 = 2e-6;
/// Structures up to which the exact search is made without being asked for.
const SMALL_STRUCTURES_MAX: usize = 40;
/// Steps of an exact search that nobody has asked for.
const SMALL_STEPS_MAX: u64 = 50_000_000;

/// What is to be composed.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) demand: Demand,
    pub(super) workers: u32,
    pub(super) kind: Kind,
    pub(super) bounds: LoadBounds,
    /// Steps of the exact search, if it was asked for.
    pub(super) exact_steps: Option<u64>,
}

/// What the searches have found.
#[derive(Debug)]
pub(super) struct Found {
    /// The better one of both.
    pub(super) best: Composition,
    fast: Result<Composition, CompositionError>,
    /// `None` if it was not made.
    exact: Option<Result<Composition, CompositionError>>,
}

/// Numbers of domains by size, the largest first, as they are compared; then the greatest load per worker.
fn rank(composition: &Composition) -> (Vec<(u32, u32)>, f64) {
    (composition.sizes().into_iter().rev().collect(), composition.load_per_worker_max())
}

/// Returns whether the first composition is better than the second.
fn is_better(a: &Composition, b: &Composition) -> bool {
    let ((a_sizes, a_peak), (b_sizes, b_peak)) = (rank(a), rank(b));
    if a_sizes == b_sizes {
        return a_peak < b_peak;
    }
    // The first size in which they differ decides: the larger one that one of them has, or more of the same.
    let differ = a_sizes.iter().zip(&b_sizes).find(|(a, b)| a != b);
    differ.map_or(a_sizes.len() > b_sizes.len(), |(a, b)| a > b)
}

impl Task {
    /// Searches fast, and exactly if that was asked for or is soon over.
    pub(super) fn search(&self) -> Result<Found, CliError> {
        let with = |effort| {
            let settings = Settings { bounds: self.bounds, effort };
            compose(&self.demand, self.workers, self.kind, &settings)
        };
        let fast = with(Effort::fast());
        if let Err(error) = &fast
            && !matches!(error, CompositionError::Unresolved { .. })
        {
            return Err(refused(error.clone()));
        }
        let proven = fast.as_ref().is_ok_and(|fast| fast.gap.is_closed(PROVEN));
        let small = self.demand.structures.len() <= SMALL_STRUCTURES_MAX && !proven;
        let steps = self.exact_steps.or(small.then_some(SMALL_STEPS_MAX));
        let exact = steps.map(|steps| with(Effort::exact(steps)));
        let best = match (&fast, &exact) {
            (Ok(fast), Some(Ok(exact))) if is_better(exact, fast) => exact.clone(),
            (Ok(fast), _) => fast.clone(),
            (Err(_), Some(Ok(exact))) => exact.clone(),
            (Err(_), Some(Err(error))) | (Err(error), None) => return Err(refused(error.clone())),
        };
        Ok(Found { best, fast, exact })
    }
}

/// Distance of the fast search from a proven optimum.
#[derive(Debug, PartialEq)]
enum Distance {
    /// It found nothing.
    Nothing,
    /// It found worse numbers of domains by size.
    Sizes(BTreeMap<u32, u32>),
    /// It found the best numbers; this is its greatest load per worker over the least, minus 1.
    Peak(f64),
}

impl Found {
    /// The best composition there is, if one is proven to be it.
    fn proven(&self) -> Option<&Composition> {
        let closed = |found: &&Composition| found.gap.is_closed(PROVEN);
        let exact = self.exact.as_ref().and_then(|exact| exact.as_ref().ok());
        exact.filter(closed).or(self.fast.as_ref().ok().filter(closed))
    }

    fn distance(&self) -> Option<Distance> {
        let best = self.proven()?;
        let Ok(fast) = &self.fast else { return Some(Distance::Nothing) };
        if fast.sizes() != best.sizes() {
            return Some(Distance::Sizes(fast.sizes()));
        }
        let (peak, least) = (fast.load_per_worker_max(), best.load_per_worker_max());
        // Without a domain that is not isolated there is no load to balance.
        Some(Distance::Peak(if least > 0.0 { (peak / least - 1.0).max(0.0) } else { 0.0 }))
    }

    /// Says in a sentence how good the composition is.
    pub(super) fn sentence(&self) -> String {
        let gap = &self.best.gap;
        match self.distance() {
            Some(Distance::Nothing) => {
                "the best there is, found by the exact search; the fast search found none".to_owned()
            }
            Some(Distance::Sizes(sizes)) => format!(
                "the best there is, found by the exact search; the fast search found domains of {}",
                counted(&sizes)
            ),
            Some(Distance::Peak(excess)) if excess <= PROVEN => {
                "the best there is; the fast search found it".to_owned()
            }
            Some(Distance::Peak(excess)) => format!(
                "the best there is, found by the exact search; the fast search has the same sizes and a greatest load per worker \
                 {:.2}% above the least",
                100.0 * excess
            ),
            None if gap.sizes > 0.0 => format!(
                "not proven to be the best: domains of {} were not excluded; give --exact, or more --exact-steps",
                counted(&gap.sizes_bound)
            ),
            None => format!(
                "not proven to be the best: the sizes are, the greatest load per worker is at most {:.2}% above the least; give \
                 --exact, or more --exact-steps",
                100.0 * gap.balance
            ),
        }
    }

    /// Returns the part of the result about the search.
    pub(super) fn json(&self) -> Value {
        let side = |found: &Result<Composition, CompositionError>| match found {
            Ok(found) => json!({
                "sizes": found.sizes(),
                "load_per_worker_max": found.load_per_worker_max(),
                "gap": found.gap,
                "error": null,
            }),
            Err(error) => {
                json!({ "sizes": null, "load_per_worker_max": null, "gap": null, "error": error.to_string() })
            }
        };
        let excess = match self.distance() {
            Some(Distance::Peak(excess)) => Some(excess),
            Some(Distance::Nothing | Distance::Sizes(_)) | None => None,
        };
        json!({
            "proven": self.proven().is_some(),
            "fast": side(&self.fast),
            "exact": self.exact.as_ref().map(side),
            "fast_has_best_sizes":
                self.proven().map(|best| self.fast.as_ref().is_ok_and(|fast| fast.sizes() == best.sizes())),
            "fast_excess": excess,
        })
    }
}

/// Numbers of domains by size in words.
pub(super) fn counted(sizes: &BTreeMap<u32, u32>) -> String {
    let each = sizes.iter().rev().map(|(size, count)| format!("{count} x {size}"));
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use atrapos_composition::{Gap, Structure};

    use super::*;

    fn task(sizes: &[u32], workers: u32) -> Task {
        let structure = |(at, size): (usize, &u32)| Structure {
            name: format!("s{at}"),
            workers_max: *size,
            load: 1.0,
            isolated: false,
        };
        let structures = sizes.iter().enumerate().map(structure).collect();
        Task {
            demand: Demand { structures, together: Vec::new() },
            workers,
            kind: Kind::Shared,
            bounds: LoadBounds::Free,
            exact_steps: None,
        }
    }

    #[test]
    fn larger_domains_are_better_and_then_lower_peaks() {
        let of = |sizes: &[u32], workers| task(sizes, workers).search().expect("it exists").best;
        let (large, small) = (of(&[4, 2, 1], 7), of(&[2, 2, 1], 7));
        assert!(is_better(&large, &small) && !is_better(&small, &large));
        let (three, two) = (of(&[2, 2, 2], 6), of(&[2, 2], 6));
        assert!(is_better(&three, &two) && !is_better(&two, &three));
        assert!(!is_better(&two, &two));
    }

    #[test]
    fn sentences_tell_what_is_proven() {
        let mut found = task(&[4, 2, 1], 7).search().expect("it exists");
        assert_eq!(found.sentence(), "the best there is; the fast search found it");
        assert_eq!(found.json()["fast_excess"], 0.0);
        let optimum = found.best.clone();
        found.exact = Some(Ok(optimum.clone()));
        found.fast = Err(CompositionError::Unresolved { nodes: 1 });
        assert!(found.sentence().contains("found none"), "{}", found.sentence());
        let mut worse = task(&[2, 2, 1], 7).search().expect("it exists").best;
        worse.gap = Gap { balance: 0.5, ..worse.gap };
        found.fast = Ok(worse.clone());
        assert!(found.sentence().contains("domains of 2 x 2, 1 x 1"), "{}", found.sentence());
        (found.exact, found.best) = (None, worse);
        assert!(found.sentence().contains("at most 50.00%"), "{}", found.sentence());
        assert_eq!(found.json()["proven"], false);
    }
}
