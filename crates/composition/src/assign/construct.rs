//! First assignments: heaviest items first, to the least loaded domain, or into domains of a load that is searched for.
//!
//! Owns: the constructions. Never: improves one, or refuses; an assignment may break the bounds of loads.

use super::{Assignment, Bin};
use crate::problem::Item;

/// Halvings of the interval in which the common load is searched for.
const HALVINGS: u32 = 24;

/// One assignment for each way to construct one.
pub(super) fn all(bins: &[Bin], items: &[Item], steps: &mut u64) -> Vec<Assignment> {
    let mut heaviest: Vec<usize> = (0..items.len()).collect();
    heaviest.sort_by(|a, b| items[*b].load.total_cmp(&items[*a].load).then(a.cmp(b)));
    let mut restricted = heaviest.clone();
    restricted.sort_by_key(|at| items[*at].class);
    let mut found = vec![least_loaded(bins, items, &heaviest), least_loaded(bins, items, &restricted)];
    *steps = steps.saturating_sub(2 * (bins.len() * items.len()) as u64);
    for order in [&heaviest, &restricted] {
        let mut low = 0.0;
        let mut high = found.iter().map(|one| one.peak(bins)).fold(f64::INFINITY, f64::min);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            *steps = steps.saturating_sub((bins.len() * items.len()) as u64);
            match first_fit(bins, items, order, middle) {
                Some(bin_of) => {
                    found.push(Assignment::new(bins, items, bin_of));
                    high = middle;
                }
                None => low = middle,
            }
            if *steps == 0 {
                break;
            }
        }
    }
    // Of those that were searched for, the last of each order is the best; the earlier ones are no use.
    let from = found.len().saturating_sub(2).max(2);
    found.drain(2..from.min(found.len()));
    found
}

/// Each item goes where the load per worker is least afterwards, among domains that may carry it if there are any.
fn least_loaded(bins: &[Bin], items: &[Item], order: &[usize]) -> Assignment {
    let mut loads = vec![0.0; bins.len()];
    let mut bin_of = vec![0; items.len()];
    for &at in order {
        let item = items[at];
        let allowed = (0..bins.len()).filter(|bin| bins[*bin].class <= item.class);
        let key = |bin: &usize| {
            let load: f64 = loads[*bin] + item.load;
            (load > bins[*bin].load_max, load / bins[*bin].workers)
        };
        let chosen = allowed.min_by(|a, b| {
            let (a, b) = (key(a), key(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        let chosen = chosen.expect("a domain of the smallest size is in every profile");
        loads[chosen] += item.load;
        bin_of[at] = chosen as u32;
    }
    Assignment::new(bins, items, bin_of)
}

/// Each item goes to the first domain that has room below the given load per worker, the largest first, as these have
/// the fewest items to choose from.
fn first_fit(bins: &[Bin], items: &[Item], order: &[usize], peak: f64) -> Option<Vec<u32>> {
    let mut free: Vec<f64> = bins.iter().map(|bin| bin.load_max.min(peak * bin.workers)).collect();
    let mut bin_of = vec![0; items.len()];
    for &at in order {
        let item = items[at];
        let fits = |bin: &usize| bins[*bin].class <= item.class && free[*bin] >= item.load;
        let chosen = (0..bins.len()).rev().find(fits)?;
        free[chosen] -= item.load;
        bin_of[at] = chosen as u32;
    }
    Some(bin_of)
}
