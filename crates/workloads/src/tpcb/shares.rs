//! The share of TPC-B's transactions that leave their part of the data.
//!
//! Teller, branch and history are of one branch, which is in the part. A share `r` of the accounts are of other branches, all alike,
//! so that of `b` branches, `o` of them in the part, `r (b - o) / (b - 1)` of the transactions leave it.
//!
//! Owns: this formula. Never: draws an account.

use super::Tpcb;
use crate::shares::{NoShare, elsewhere, mean_of_parts};

/// Returns the share of transactions that leave their part, of `parts` parts.
pub(super) fn distributed(tpcb: &Tpcb, parts: usize) -> Result<f64, NoShare> {
    let (branches, remote) = (tpcb.config.branches, tpcb.config.remote);
    mean_of_parts(("branches", branches), parts, |own| remote * elsewhere(own, branches))
}

#[cfg(test)]
mod tests {
    use super::super::TpcbConfig;
    use super::*;
    use crate::shares::counted::{assert_share, has, parts};

    #[test]
    fn as_many_transactions_leave_their_part_as_the_generator_draws() {
        for (branches, remote, count) in [(16, 0.15, 2), (16, 0.15, 8), (5, 0.6, 2), (3, 1.0, 3), (1, 1.0, 1)]
        {
            let config = TpcbConfig { branches, remote, accounts_per_branch: 10, ..TpcbConfig::default() };
            let tpcb = Tpcb::new(config).expect("a configuration");
            let share = distributed(&tpcb, count).expect("a formula");
            let parts = parts(0, branches, count as u64);
            let of_part = |part: &crate::keys::KeySet, stream| tpcb.parameters(part.clone(), stream);
            assert_share(share, &parts, of_part, |client, part| !has(part, client.request().account.0));
        }
    }
}
