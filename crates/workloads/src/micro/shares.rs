//! The share of the microbenchmark's transactions that leave their part of the data.
//!
//! Of a share `m` of transactions, the multisite ones, the first row is in the part, and each of the other `R - 1` is any row. With
//! `I` equal parts all of them are in the same part with probability `I^-(R-1)`, so that `m (1 - I^-(R-1))` leave it
//! (Islands, section 5). The rows of a transaction are different, so that few rows make it a little more: with `n` rows, `o` of them
//! in the part, the row after `k` others of the part is there, too, with probability `(o - k) / (n - k)`.
//!
//! Owns: this formula. Never: draws a row.

use super::{Micro, MicroConfig};
use crate::shares::{NoShare, mean_of_parts};

/// Returns the share of transactions that leave their part, of `parts` parts.
pub(super) fn distributed(micro: &Micro, parts: usize) -> Result<f64, NoShare> {
    let MicroConfig { sites, rows_per_site, rows_per_transaction, multisite, zipf, .. } = micro.config;
    if zipf > 0.0 {
        return Err(NoShare(format!(
            "rows of which some are chosen more often (--zipf {zipf}) have no formula for the share of transactions that leave \
             their instance; leave --zipf out"
        )));
    }
    let rows = (sites as u64 * rows_per_site) as f64;
    let stays = |own_sites: f64| -> f64 {
        let own = own_sites * rows_per_site as f64;
        (1..rows_per_transaction).map(|k| ((own - k as f64) / (rows - k as f64)).max(0.0)).product()
    };
    mean_of_parts(("sites", sites as u64), parts, |own| multisite * (1.0 - stays(own)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::counted::{assert_share, has, parts};

    fn micro(sites: usize, rows: usize, multisite: f64, rows_per_site: u64) -> Micro {
        let config = MicroConfig {
            sites,
            rows_per_site,
            rows_per_transaction: rows,
            multisite,
            ..MicroConfig::default()
        };
        Micro::new(config).expect("a configuration")
    }

    #[test]
    fn the_papers_shares_come_out() {
        for (instances, percent) in [(24, 19.17), (4, 15.0), (1, 0.0)] {
            let share = distributed(&micro(24, 2, 0.2, 10_000), instances).expect("a formula");
            assert!((100.0 * share - percent).abs() < 0.01, "{instances} instances: {share}");
        }
    }

    #[test]
    fn as_many_transactions_leave_their_part_as_the_generator_draws() {
        for (sites, rows, multisite, rows_per_site, count) in [
            (4, 2, 0.2, 1000, 4),
            (4, 2, 0.2, 1000, 2),
            (6, 10, 0.5, 20, 3),
            (2, 4, 1.0, 5, 2),
            (3, 5, 0.7, 50, 1),
        ] {
            let micro = micro(sites, rows, multisite, rows_per_site);
            let share = distributed(&micro, count).expect("a formula");
            let parts = parts(0, sites as u64 * rows_per_site, count as u64);
            let of_part =
                |part: &crate::keys::KeySet, stream| micro.rows_of(Some(micro.sites.begun_in(part)), stream);
            assert_share(share, &parts, of_part, |client, part| {
                client.choose().1.iter().any(|row| !has(part, *row))
            });
        }
    }

    #[test]
    fn skew_has_no_formula_and_parts_have_sites() {
        let config = MicroConfig { sites: 2, zipf: 0.5, ..MicroConfig::default() };
        let refused = distributed(&Micro::new(config).expect("a configuration"), 2).expect_err("refused");
        assert!(refused.to_string().contains("leave --zipf out"), "{refused}");
        assert!(distributed(&micro(2, 2, 0.2, 100), 4).is_err());
    }
}
