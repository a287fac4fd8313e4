//! Local search: moves and exchanges of single items, then the items of two or three domains assigned anew.
//!
//! Owns: the improvement of an assignment. Never: makes one worse.

use super::branch::{Branch, Goal};
use super::{Assignment, Bin};
use crate::problem::Item;

/// Relative improvement below which a change is not worth making.
const IMPROVEMENT_MIN: f64 = 1e-9;
/// Steps for the items of two or three domains.
const REASSIGN_STEPS: u64 = 20_000;

/// Moves items out of, into, or against items of the worst domain, the best change first, until none is better.
pub(super) fn climb(bins: &[Bin], items: &[Item], now: &mut Assignment, unit: f64, steps: &mut u64) {
    while *steps > 0 {
        let worst = worst_bin(bins, now, unit);
        let Some((a, b)) = best_change(bins, items, now, worst, unit, steps) else { return };
        let (from, to) = (now.bin_of[a] as usize, b.bin(now));
        now.put(items, a, to);
        if let Change::Exchange(other) = b {
            now.put(items, other, from);
        }
    }
}

/// The second part of a change of an item.
#[derive(Clone, Copy)]
enum Change {
    /// The bin it moves to.
    Move(usize),
    /// The item that takes its place.
    Exchange(usize),
}

impl Change {
    fn bin(self, now: &Assignment) -> usize {
        match self {
            Self::Move(bin) => bin,
            Self::Exchange(other) => now.bin_of[other] as usize,
        }
    }
}

/// The bin that breaks its bounds the most, or else has the greatest load per worker.
fn worst_bin(bins: &[Bin], now: &Assignment, unit: f64) -> usize {
    let key = |at: &usize| {
        (bins[*at].violation(now.loads[*at], now.counts[*at], unit), now.loads[*at] / bins[*at].workers)
    };
    let worse = |a: &usize, b: &usize| {
        let (a, b) = (key(a), key(b));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    };
    (0..bins.len()).max_by(worse).expect("a profile has a domain")
}

/// The change with the bin `worst` that lowers the violation of the two bins concerned the most, or else their greater
/// load per worker.
fn best_change(
    bins: &[Bin],
    items: &[Item],
    now: &Assignment,
    worst: usize,
    unit: f64,
    steps: &mut u64,
) -> Option<(usize, Change)> {
    let measure =
        |at: usize, load: f64, count: u32| (bins[at].violation(load, count, unit), load / bins[at].workers);
    let before = |at: usize| measure(at, now.loads[at], now.counts[at]);
    let mut best: Option<((f64, f64), (usize, Change))> = None;
    let mut consider = |a: usize, change: Change| {
        let (from, to) = (now.bin_of[a] as usize, change.bin(now));
        let back = match change {
            Change::Exchange(other) if items[other].class >= bins[from].class => Some(items[other].load),
            Change::Exchange(_) => return,
            Change::Move(_) => None,
        };
        if from == to || items[a].class < bins[to].class {
            return;
        }
        let moved = items[a].load - back.unwrap_or(0.0);
        let one = u32::from(back.is_none());
        let after_from = measure(from, now.loads[from] - moved, now.counts[from] - one);
        let after_to = measure(to, now.loads[to] + moved, now.counts[to] + one);
        let after = (after_from.0 + after_to.0, after_from.1.max(after_to.1));
        let was = (before(from).0 + before(to).0, before(from).1.max(before(to).1));
        let better = |a: (f64, f64), b: (f64, f64)| {
            a.0 < b.0 - IMPROVEMENT_MIN
                || (a.0 <= b.0 + IMPROVEMENT_MIN && a.1 < b.1 * (1.0 - IMPROVEMENT_MIN))
        };
        if better(after, was) && best.is_none_or(|(known, _)| better(after, known)) {
            best = Some((after, (a, change)));
        }
    };
    for a in 0..items.len() {
        if now.bin_of[a] as usize != worst {
            consider(a, Change::Move(worst));
            continue;
        }
        for to in 0..bins.len() {
            consider(a, Change::Move(to));
        }
        for other in 0..items.len() {
            consider(a, Change::Exchange(other));
        }
        *steps = steps.saturating_sub((bins.len() + items.len()) as u64);
    }
    *steps = steps.saturating_sub(items.len() as u64);
    best.map(|(_, change)| change)
}

/// Assigns the items of the domain with the greatest load per worker and of one or two others anew, by branch and bound,
/// until that lowers it no more, or `bound` is reached. The assignment meets the bounds of loads, before and after.
pub(crate) fn reassign(bins: &[Bin], items: &[Item], now: &mut Assignment, bound: f64, steps: &mut u64) {
    while *steps > 0
        && now.peak(bins) > bound * (1.0 + IMPROVEMENT_MIN)
        && reassign_once(bins, items, now, steps)
    {}
}

fn reassign_once(bins: &[Bin], items: &[Item], now: &mut Assignment, steps: &mut u64) -> bool {
    let per_worker = |at: usize| now.loads[at] / bins[at].workers;
    let mut by_load: Vec<usize> = (0..bins.len()).collect();
    by_load.sort_by(|a, b| per_worker(*a).total_cmp(&per_worker(*b)));
    let highest = by_load.pop().expect("a profile has a domain");
    let alone = by_load.iter().map(|a| vec![highest, *a]);
    let pairs = (0..by_load.len())
        .flat_map(|a| (a + 1..by_load.len()).map(move |b| (a, b)))
        .map(|(a, b)| vec![highest, by_load[a], by_load[b]]);
    let sets: Box<dyn Iterator<Item = Vec<usize>>> = Box::new(alone.chain(pairs));
    for mut set in sets {
        if *steps == 0 {
            return false;
        }
        set.sort_unstable();
        let members: Vec<usize> =
            (0..items.len()).filter(|item| set.contains(&(now.bin_of[*item] as usize))).collect();
        let own_bins: Vec<Bin> = set.iter().map(|at| bins[*at]).collect();
        let own_items: Vec<Item> = members.iter().map(|at| items[*at]).collect();
        let mut own_steps = REASSIGN_STEPS.min(*steps);
        *steps = steps.saturating_sub(items.len() as u64);
        let given = own_steps;
        let goal = Goal { below: per_worker(highest), enough: f64::INFINITY, tolerance: IMPROVEMENT_MIN };
        let found = Branch::new(&own_bins, &own_items).search(&goal, &mut own_steps);
        *steps = steps.saturating_sub(given - own_steps);
        if let Some((bin_of, _)) = found.best {
            for (item, bin) in members.iter().zip(bin_of) {
                now.put(items, *item, set[bin as usize]);
            }
            return true;
        }
    }
    false
}
