//! The assignment problem behind a shared composition: groups of structures as items, sizes of domains as classes.
//!
//! Owns: the problem without names. Never: searches.
//!
//! Sizes are those of the structures (`S` of `Virtual domains §5.2`), capped at the workers that there are. A domain of
//! class `k` takes items of class `k` and above, so the choices of items nest, which the bounds use.

use crate::demand::{Group, LoadBounds};

/// Relative slack of comparisons of loads, against rounding.
pub(crate) const ROUNDING: f64 = 1e-9;

/// A group of structures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Item {
    /// Position in [`Problem::sizes`] of the greatest size of a domain for it.
    pub(crate) class: usize,
    pub(crate) load: f64,
}

/// A size of domains.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Size {
    pub(crate) workers: u32,
    /// Least load of a domain: `q_d`.
    pub(crate) load_min: f64,
    /// Greatest load of a domain: `r_d`, with slack for rounding.
    pub(crate) load_max: f64,
}

/// Items to be assigned to domains that are to be chosen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Problem {
    pub(crate) workers: u32,
    /// Ascending by workers.
    pub(crate) sizes: Vec<Size>,
    pub(crate) items: Vec<Item>,
    /// By class: number and load of the items of this class and above.
    pub(crate) count_from: Vec<u32>,
    pub(crate) load_from: Vec<f64>,
    /// By class: load of the items of this class and below.
    pub(crate) load_up_to: Vec<f64>,
}

impl Problem {
    /// The problem of groups with `workers` workers, at least one.
    pub(crate) fn new(groups: &[Group], workers: u32, bounds: &LoadBounds) -> Self {
        let mut distinct: Vec<u32> = groups.iter().map(|group| group.workers_max.min(workers)).collect();
        distinct.sort_unstable();
        distinct.dedup();
        let class_of = |group: &Group| {
            let size = group.workers_max.min(workers);
            distinct.binary_search(&size).expect("sizes are those of the groups")
        };
        let items: Vec<Item> =
            groups.iter().map(|group| Item { class: class_of(group), load: group.load }).collect();
        let slack = ROUNDING * items.iter().map(|item| item.load).sum::<f64>();
        let size_of = |&workers: &u32| {
            let (min, max) = bounds.of(workers);
            Size { workers, load_min: (min - slack).max(0.0), load_max: max + slack }
        };
        let sum = |holds: &dyn Fn(usize) -> bool| {
            items.iter().filter(|item| holds(item.class)).map(|item| item.load).sum()
        };
        let classes = 0..distinct.len();
        Self {
            workers,
            sizes: distinct.iter().map(size_of).collect(),
            count_from: classes
                .clone()
                .map(|class| items.iter().filter(|item| item.class >= class).count() as u32)
                .collect(),
            load_from: classes.clone().map(|class| sum(&|of| of >= class)).collect(),
            load_up_to: classes.map(|class| sum(&|of| of <= class)).collect(),
            items,
        }
    }

    /// The heaviest item of each class or below that no domain of its own may carry, if there is one.
    pub(crate) fn item_too_heavy(&self) -> Option<usize> {
        let most = |class: usize| self.sizes[..=class].iter().map(|size| size.load_max).fold(0.0, f64::max);
        self.items.iter().position(|item| item.load > most(item.class))
    }
}
