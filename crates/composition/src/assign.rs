//! Assignment of items to the domains of one profile, with loads in their bounds and as equal as possible.
//!
//! Owns: bins (the domains of a profile), the measure of an assignment, a lower bound of it. The searches are in
//! `construct`, `climb` (local search) and `branch` (branch and bound).
//!
//! Never: chooses a profile. The paper leaves open which of the assignments within the bounds is taken, and wants loads
//! balanced (`Virtual domains §5.2`, goal 3): here the greatest load per worker of a domain, the *peak*, is minimised.

mod branch;
mod climb;
mod construct;

pub(crate) use branch::{Branch, Goal};
pub(crate) use climb::reassign;

use crate::problem::{Item, Problem};

/// A domain of a profile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bin {
    pub(crate) class: usize,
    pub(crate) workers: f64,
    pub(crate) load_min: f64,
    pub(crate) load_max: f64,
}

impl Bin {
    /// Deviation of a load from the bounds, in units of `unit`; 1 more for a domain without an item.
    fn violation(&self, load: f64, items: u32, unit: f64) -> f64 {
        let outside = (self.load_min - load).max(0.0) + (load - self.load_max).max(0.0);
        outside / unit + if items == 0 { 1.0 } else { 0.0 }
    }
}

/// The domains of a profile, by ascending class.
pub(crate) fn bins_of(problem: &Problem, counts: &[u32]) -> Vec<Bin> {
    let mut bins = Vec::new();
    for (class, (size, count)) in problem.sizes.iter().zip(counts).enumerate() {
        let workers = f64::from(size.workers);
        let bin = Bin { class, workers, load_min: size.load_min, load_max: size.load_max };
        bins.extend(std::iter::repeat_n(bin, *count as usize));
    }
    bins
}

/// An assignment with the sums that its measure needs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Assignment {
    /// By item: position of its bin.
    pub(crate) bin_of: Vec<u32>,
    /// By bin.
    pub(crate) loads: Vec<f64>,
    /// By bin: number of items.
    pub(crate) counts: Vec<u32>,
}

impl Assignment {
    pub(crate) fn new(bins: &[Bin], items: &[Item], bin_of: Vec<u32>) -> Self {
        let (mut loads, mut counts) = (vec![0.0; bins.len()], vec![0; bins.len()]);
        for (item, bin) in items.iter().zip(&bin_of) {
            loads[*bin as usize] += item.load;
            counts[*bin as usize] += 1;
        }
        Self { bin_of, loads, counts }
    }

    /// Sum of the deviations from the bounds; 0 for an assignment that meets them.
    pub(crate) fn violation(&self, bins: &[Bin], unit: f64) -> f64 {
        (0..bins.len()).map(|at| bins[at].violation(self.loads[at], self.counts[at], unit)).sum()
    }

    /// The greatest load per worker.
    pub(crate) fn peak(&self, bins: &[Bin]) -> f64 {
        bins.iter().zip(&self.loads).map(|(bin, load)| load / bin.workers).fold(0.0, f64::max)
    }

    fn put(&mut self, items: &[Item], item: usize, bin: usize) {
        let from = self.bin_of[item] as usize;
        self.loads[from] -= items[item].load;
        self.counts[from] -= 1;
        self.loads[bin] += items[item].load;
        self.counts[bin] += 1;
        self.bin_of[item] = bin as u32;
    }
}

/// A load per worker that no assignment to these bins can stay below: the averages of nested classes, the heaviest items,
/// and several of the heaviest that must meet in one bin.
pub(crate) fn peak_bound(bins: &[Bin], items: &[Item]) -> f64 {
    let Some(classes) = bins.last().map(|bin| bin.class + 1) else { return f64::INFINITY };
    let mut bound = 0.0_f64;
    for class in 0..classes.max(items.iter().map(|item| item.class + 1).max().unwrap_or(0)) {
        let nested = bins.iter().filter(|bin| bin.class <= class);
        let (count, workers, widest) = nested.fold((0_usize, 0.0, 0.0_f64), |(count, sum, widest), bin| {
            (count + 1, sum + bin.workers, widest.max(bin.workers))
        });
        let mut loads: Vec<f64> =
            items.iter().filter(|item| item.class <= class).map(|item| item.load).collect();
        if loads.is_empty() {
            continue;
        }
        if count == 0 {
            return f64::INFINITY;
        }
        loads.sort_by(|a, b| b.total_cmp(a));
        bound = bound.max(loads.iter().sum::<f64>() / workers).max(loads[0] / widest);
        // Among the `meet * count + 1` heaviest, `meet + 1` are in one bin.
        for meet in 1..=(loads.len() - 1) / count {
            let heaviest = &loads[..=meet * count];
            let lightest: f64 = heaviest[heaviest.len() - meet - 1..].iter().sum();
            bound = bound.max(lightest / widest);
        }
    }
    bound
}

/// The best assignment that construction and local search find within `steps`, and whether it meets the bounds.
pub(crate) fn quickly(bins: &[Bin], items: &[Item], steps: &mut u64) -> (Assignment, bool) {
    let unit = items.iter().map(|item| item.load).sum::<f64>() / bins.len() as f64;
    let started = construct::all(bins, items, steps).into_iter().map(|mut start| {
        climb::climb(bins, items, &mut start, unit, steps);
        let rank = (start.violation(bins, unit), start.peak(bins));
        (start, rank)
    });
    let best = started.min_by(|(_, a), (_, b)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let (best, (violation, _)) = best.expect("there is a way to construct an assignment");
    (best, violation == 0.0)
}
