//! The share of TPC-C's transactions that leave their part of the data.
//!
//! A transaction begins at a warehouse of the part. Only two classes touch rows of another warehouse, which is outside of the part
//! with probability `e = (w - o) / (w - 1)` for `w` warehouses, `o` of them in the part:
//!
//! - *Payment*, for a share `r` of the customers: `r e` of them leave the part.
//! - *New-Order*, for a share `s` of its lines, of which there are 5 to 15, all numbers alike: an order of `l` lines leaves the part
//!   with probability `1 - (1 - s e)^l`. One order in a hundred names an item that there is not; it is rolled back before any
//!   stock is touched, and stays.
//!
//! The items are copied to every warehouse. A class has the share that the mix gives it.
//!
//! Owns: this formula, and the other shares of remote work with the same proportions. Never: draws an input.

use super::Tpcc;
use super::generator::{LINES_MAX, LINES_MIN};
use super::parameters::{Class, ROLLED_BACK_PERCENT, Remote};
use crate::shares::{NoShare, elsewhere, mean_of_parts};

/// Returns the share of transactions that leave their part, of `parts` parts.
pub(super) fn distributed(tpcc: &Tpcc, parts: usize) -> Result<f64, NoShare> {
    let config = &tpcc.config;
    if config.think {
        return Err(NoShare(
            "terminals that think leave workers idle, so that their throughput does not tell what a transaction takes; leave \
             --think out"
                .to_owned(),
        ));
    }
    let completed = 1.0 - f64::from(ROLLED_BACK_PERCENT) / 100.0;
    let mix = config.mix;
    let (orders, payments) = (mix.share_of(Class::NewOrder) * completed, mix.share_of(Class::Payment));
    mean_of_parts(("warehouses", config.warehouses), parts, |own| {
        let elsewhere = elsewhere(own, config.warehouses);
        orders * order_leaves(config.remote.lines * elsewhere) + payments * config.remote.payments * elsewhere
    })
}

/// Returns the probability that one of the lines of an order is outside, if each is with probability `line`.
fn order_leaves(line: f64) -> f64 {
    let stays: f64 = (LINES_MIN..=LINES_MAX).map(|lines| (1.0 - line).powi(lines.into())).sum();
    1.0 - stays / f64::from(LINES_MAX - LINES_MIN + 1)
}

impl Remote {
    /// Returns shares with which about `share` of the payments, and of the orders, have a part at another warehouse: as *Virtual domains*
    /// (Figure 13) counts remote transactions.
    #[must_use]
    pub fn of_transactions(share: f64) -> Remote {
        // The share of orders grows with that of lines, so bisection finds it.
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..64 {
            let middle = f64::midpoint(low, high);
            if order_leaves(middle) < share { low = middle } else { high = middle }
        }
        Remote { payments: share, lines: if share > 0.0 { high } else { 0.0 } }
    }

    /// Returns the greater of the two shares.
    pub(super) fn greater(self) -> f64 {
        self.payments.max(self.lines)
    }

    /// Returns shares of which the greater one is `share`, in the same proportion; in that of the specification if both are 0.
    pub(super) fn scaled_to(self, share: f64) -> Remote {
        let of = if self.greater() > 0.0 { self } else { Remote::STANDARD };
        let by = share / of.greater();
        // The greater one is not to pass 1 by rounding.
        Remote { payments: (of.payments * by).min(1.0), lines: (of.lines * by).min(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::TpccConfig;
    use super::super::parameters::{Mix, Parameters};
    use super::*;
    use crate::keys::KeySet;
    use crate::random::Random;
    use crate::shares::counted::{assert_share, has, parts};

    /// Draws a transaction; returns whether it touches a row outside of the part.
    fn leaves(client: &mut Parameters, part: &KeySet, items: u32) -> bool {
        let w_id = client.warehouse();
        match client.class() {
            Class::NewOrder => {
                let lines = client.new_order(w_id, 0).lines;
                // An item that there is not rolls the order back.
                lines.iter().all(|line| line.i_id <= items)
                    && lines.iter().any(|line| !has(part, line.supply_w_id.into()))
            }
            Class::Payment => !has(part, client.payment(w_id, 0).c_w_id.into()),
            Class::OrderStatus | Class::Delivery | Class::StockLevel => false,
        }
    }

    #[test]
    fn as_many_transactions_leave_their_part_as_the_generator_draws() {
        let many = Remote { payments: 0.7, lines: 0.2 };
        for (warehouses, mix, remote, count) in [
            (2, Mix::Standard, Remote::STANDARD, 2),
            (8, Mix::Standard, Remote::STANDARD, 4),
            (5, Mix::Standard, many, 2),
            (4, Mix::Only(Class::NewOrder), many, 2),
            (4, Mix::Only(Class::Payment), many, 4),
            (4, Mix::Only(Class::Delivery), many, 4),
            (8, Mix::NewOrderPayment, Remote::of_transactions(0.5), 4),
            (1, Mix::Standard, many, 1),
        ] {
            let config =
                TpccConfig { warehouses, mix, remote, items: 100, customers: 10, ..TpccConfig::default() };
            let tpcc = Tpcc::new(config).expect("a configuration");
            let share = distributed(&tpcc, count).expect("a formula");
            let population = tpcc.population();
            let of_part = |part: &KeySet, stream| {
                let random = Random::of_stream(5, stream);
                Parameters::new(mix, remote, population.scale(), population.constants(), part.clone(), random)
            };
            let parts = parts(1, warehouses, count as u64);
            assert_share(share, &parts, of_part, |client, part| leaves(client, part, 100));
        }
    }

    #[test]
    fn lines_are_as_remote_as_their_orders_have_to_be() {
        assert_eq!(Remote::of_transactions(0.0), Remote::NONE);
        for share in [0.01, 0.25, 0.75, 1.0] {
            let remote = Remote::of_transactions(share);
            assert!((order_leaves(remote.lines) - share).abs() < 1e-9 && remote.payments == share);
            assert!(remote.lines < share || share == 1.0, "an order has several lines: {remote:?}");
        }
    }

    #[test]
    fn remote_work_keeps_its_proportions() {
        let scaled = Remote::STANDARD.scaled_to(1.0);
        assert!(
            (scaled.payments - 1.0).abs() < 1e-12 && (scaled.lines - 1.0 / 15.0).abs() < 1e-12,
            "{scaled:?}"
        );
        assert_eq!(Remote::NONE.scaled_to(0.15), Remote::STANDARD.scaled_to(0.15));
        assert_eq!(Remote::STANDARD.scaled_to(0.0), Remote::NONE);
        let lines = Remote { payments: 0.1, lines: 0.5 };
        assert_eq!((lines.greater(), lines.scaled_to(1.0)), (0.5, Remote { payments: 0.2, lines: 1.0 }));
    }

    #[test]
    fn terminals_that_think_have_no_formula() {
        let tpcc = Tpcc::new(TpccConfig { think: true, ..TpccConfig::default() }).expect("a configuration");
        assert!(distributed(&tpcc, 2).expect_err("refused").to_string().contains("leave --think out"));
    }
}
