//! Choice of the rows that a transaction of the microbenchmark touches.
//!
//! Owns: the layout of the sites and the choice of rows. Never: touches a row.
//!
//! # The choice
//!
//! A client's site is one of those its worker owns, or any. Without skew all sites and all rows have equal probability.
//! With skew, rows are drawn from Zipf's distribution over the whole data, row 0 being the most frequent: so hot rows
//! are adjacent, and a client that chooses from all data mostly begins at the first site (`Islands §7.3`). Rows that
//! must be of one site are drawn from the same distribution over the rows of the site.
//!
//! Invariant: the rows of a transaction are all different, and the first one is of the transaction's site.

use std::sync::Arc;

use super::MicroConfig;
use crate::keys::KeySet;
use crate::random::Random;
use crate::zipf::Zipf;

/// The layout of the sites: equal shares of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sites {
    pub(super) sites: u64,
    pub(super) rows_per_site: u64,
}

impl Sites {
    /// Returns the number of all rows.
    pub(super) fn rows(self) -> u64 {
        self.sites * self.rows_per_site
    }

    fn first_row(self, site: u64) -> u64 {
        site * self.rows_per_site
    }

    fn of_row(self, row: u64) -> u64 {
        row / self.rows_per_site
    }

    /// Returns the first row of every worker but the first: whole sites, distributed as evenly as possible.
    pub(super) fn cuts(self, workers: usize) -> Vec<u64> {
        let cut = |part: u128| self.first_row((u128::from(self.sites) * part / workers as u128) as u64);
        let mut cuts: Vec<u64> = (1..workers as u128).map(cut).filter(|cut| *cut > 0).collect();
        cuts.dedup();
        cuts
    }

    /// Returns the sites whose first row is in `rows`.
    pub(super) fn begun_in(self, rows: &KeySet) -> Box<[u64]> {
        let owned = |site: u64| {
            let row = self.first_row(site);
            // Binary search for the row's number in the set.
            let (mut low, mut high) = (0, rows.len());
            while low < high {
                let middle = low + (high - low) / 2;
                if rows.nth(middle) < row { low = middle + 1 } else { high = middle }
            }
            low < rows.len() && rows.nth(low) == row
        };
        (0..self.sites).filter(|site| owned(*site)).collect()
    }
}

/// Chooses the rows of one client's transactions.
#[derive(Clone, Debug)]
pub struct Rows {
    sites: Sites,
    /// The sites from which the client chooses; `None` for all sites.
    own_sites: Option<Box<[u64]>>,
    count: usize,
    /// Probability that a transaction is multisite.
    multisite: f64,
    /// Distributions over all rows, and over the rows of a site, if they are skewed.
    skew: Option<Arc<(Zipf, Zipf)>>,
    random: Random,
}

/// Number of times that a row chosen before is drawn again before its next free neighbour is taken. That happens only
/// under strong skew, where almost every draw yields one of the hottest rows.
const DRAWS_MAX: usize = 16;

impl Rows {
    pub(super) fn new(
        config: &MicroConfig,
        sites: Sites,
        own_sites: Option<Box<[u64]>>,
        skew: Option<Arc<(Zipf, Zipf)>>,
        random: Random,
    ) -> Rows {
        Rows {
            sites,
            own_sites,
            count: config.rows_per_transaction,
            multisite: config.multisite,
            skew,
            random,
        }
    }

    /// Chooses the rows of the next transaction; returns whether it is multisite, and the rows.
    pub fn choose(&mut self) -> (bool, Vec<u64>) {
        let is_multisite = self.multisite > 0.0 && self.random.unit() < self.multisite;
        let mut rows = Vec::with_capacity(self.count);
        let first = self.first_row();
        rows.push(first);
        let site = self.sites.of_row(first);
        while rows.len() < self.count {
            let row = if is_multisite {
                self.another(&rows, 0, self.sites.rows(), Rows::row_of_all)
            } else {
                let (begin, count) = (self.sites.first_row(site), self.sites.rows_per_site);
                self.another(&rows, begin, count, |rows| rows.row_of_site(site))
            };
            rows.push(row);
        }
        (is_multisite, rows)
    }

    /// Draws the row that determines the transaction's own site.
    #[inline]
    fn first_row(&mut self) -> u64 {
        match &self.own_sites {
            None => self.row_of_all(),
            Some(own) => {
                let site =
                    if own.len() == 1 { own[0] } else { own[self.random.below(own.len() as u64) as usize] };
                self.row_of_site(site)
            }
        }
    }

    #[inline]
    fn row_of_all(&mut self) -> u64 {
        match &self.skew {
            None => self.random.below(self.sites.rows()),
            Some(skew) => skew.0.draw(&mut self.random) - 1,
        }
    }

    #[inline]
    fn row_of_site(&mut self, site: u64) -> u64 {
        let at = match &self.skew {
            None => self.random.below(self.sites.rows_per_site),
            Some(skew) => skew.1.draw(&mut self.random) - 1,
        };
        self.sites.first_row(site) + at
    }

    /// Draws a row by `draw` that is not among `chosen`. Draws are of the `count` rows from `begin` on, more than are
    /// chosen.
    #[inline]
    fn another(&mut self, chosen: &[u64], begin: u64, count: u64, draw: impl Fn(&mut Rows) -> u64) -> u64 {
        let mut row = draw(self);
        for _ in 1..DRAWS_MAX {
            if !chosen.contains(&row) {
                return row;
            }
            row = draw(self);
        }
        while chosen.contains(&row) {
            row = begin + (row - begin + 1) % count;
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Micro};
    use super::*;
    use crate::chi_square::assert_fits;

    fn rows(config: MicroConfig, own_sites: Option<&[u64]>) -> Rows {
        let micro = Micro::new(config).expect("a configuration");
        let random = Random::of_stream(config.seed, 1);
        Rows::new(&config, micro.sites, own_sites.map(Box::from), micro.skew, random)
    }

    const CONFIG: MicroConfig = MicroConfig {
        sites: 4,
        rows_per_site: 100,
        rows_per_transaction: 10,
        kind: Kind::Read,
        multisite: 0.2,
        zipf: 0.0,
        seed: 17,
    };

    #[test]
    fn rows_are_different_and_where_they_should_be() {
        for zipf in [0.0, 0.8, 3.0] {
            for own_sites in [None, Some(&[2_u64][..]), Some(&[0, 3])] {
                let mut chooser = rows(MicroConfig { zipf, ..CONFIG }, own_sites);
                let mut multisites = [0; 2];
                for _ in 0..5_000 {
                    let (is_multisite, rows) = chooser.choose();
                    multisites[usize::from(is_multisite)] += 1;
                    let mut different = rows.clone();
                    different.sort_unstable();
                    different.dedup();
                    assert_eq!(different.len(), 10, "{rows:?}");
                    assert!(rows.iter().all(|row| *row < 400));
                    let site = rows[0] / 100;
                    assert!(own_sites.is_none_or(|own| own.contains(&site)));
                    assert!(is_multisite || rows.iter().all(|row| row / 100 == site), "{rows:?}");
                }
                assert_fits("multisite transactions", &multisites, &[0.8, 0.2]);
            }
        }
    }

    #[test]
    fn without_skew_all_rows_are_alike() {
        for (multisite, own_sites) in [(0.0, None), (1.0, None), (0.0, Some(&[1_u64][..]))] {
            let config = MicroConfig { multisite, rows_per_transaction: 2, ..CONFIG };
            let mut chooser = rows(config, own_sites);
            let mut counts = [0; 400];
            for _ in 0..40_000 {
                chooser.choose().1.into_iter().for_each(|row| counts[row as usize] += 1);
            }
            match own_sites {
                None => assert_fits("rows", &counts, &[1.0 / 400.0; 400]),
                Some(_) => assert_fits("rows of site 1", &counts[100..200], &[0.01; 100]),
            }
        }
    }

    #[test]
    fn a_whole_site_can_be_chosen_however_skewed() {
        let config =
            MicroConfig { rows_per_site: 20, rows_per_transaction: 20, zipf: 5.0, multisite: 0.0, ..CONFIG };
        let (_, mut chosen) = rows(config, Some(&[3])).choose();
        chosen.sort_unstable();
        assert_eq!(chosen, (60..80).collect::<Vec<_>>());
    }

    #[test]
    fn sites_are_dealt_out_whole() {
        let sites = Sites { sites: 3, rows_per_site: 10 };
        assert_eq!(sites.cuts(3), [10, 20]);
        assert_eq!(sites.cuts(2), [10]);
        assert_eq!(sites.cuts(8), [10, 20]);
        let all = KeySet::range(0, 29).expect("keys");
        assert_eq!(*sites.begun_in(&all), [0, 1, 2]);
        let middle = KeySet::range(5, 25).expect("keys");
        assert_eq!(*sites.begun_in(&middle), [1, 2]);
    }
}
