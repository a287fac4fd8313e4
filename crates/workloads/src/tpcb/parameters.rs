//! The next request of a TPC-B client: teller, account and amount.
//!
//! Owns: the distributions of clause 5.3 of the specification. Never: runs a transaction.

use super::schema::TELLERS;
use crate::keys::KeySet;
use crate::random::Random;
use serde::{Deserialize, Serialize};

/// The largest amount that a transaction adds or subtracts.
pub const DELTA_MAX: i64 = 999_999;

/// The input of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// The branch of the teller.
    pub b_id: u64,
    /// The teller, by number in the branch.
    pub t_id: u8,
    /// The branch of the account, and its number there.
    pub account: (u64, u32),
    /// Amount added to the balances.
    pub delta: i64,
}

impl Request {
    /// Returns whether the account belongs to another branch than the teller.
    #[inline]
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.account.0 != self.b_id
    }
}

/// Draws the requests of one client.
#[derive(Clone, Debug)]
pub struct Parameters {
    branches: u64,
    accounts: u32,
    remote: f64,
    /// The branches whose tellers the client uses.
    own: KeySet,
    random: Random,
}

impl Parameters {
    /// Creates a generator that draws from `random` tellers of the branches in `own`. With the probability `remote` the
    /// account belongs to another branch, of `branches` with `accounts` each; with a single branch there is no other.
    #[must_use]
    pub fn new(branches: u64, accounts: u32, remote: f64, own: KeySet, random: Random) -> Parameters {
        Parameters { branches, accounts, remote, own, random }
    }

    /// Draws the next request.
    #[inline]
    pub fn request(&mut self) -> Request {
        let b_id = self.own.nth(self.random.below(self.own.len()));
        let t_id = self.random.small(u32::from(TELLERS)) as u8;
        let is_remote = self.remote > 0.0 && self.branches > 1 && self.random.unit() < self.remote;
        let of_branch = if is_remote {
            let other = self.random.below(self.branches - 1);
            if other < b_id { other } else { other + 1 }
        } else {
            b_id
        };
        let account = (of_branch, self.random.small(self.accounts));
        let delta = i64::from(self.random.small(2 * DELTA_MAX as u32 + 1)) - DELTA_MAX;
        Request { b_id, t_id, account, delta }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chi_square::assert_fits;

    fn parameters(branches: u64, remote: f64, own: (u64, u64), seed: u64) -> Parameters {
        let own = KeySet::range(own.0, own.1).expect("branches");
        Parameters::new(branches, 20, remote, own, Random::of_stream(seed, 1))
    }

    #[test]
    fn everything_is_drawn_alike() {
        let mut parameters = parameters(5, 0.15, (0, 4), 21);
        let (mut branches, mut tellers, mut accounts, mut of_branches) = ([0; 5], [0; 10], [0; 20], [0; 5]);
        let (mut remotes, mut deltas) = ([0; 2], [0; 10]);
        for _ in 0..100_000 {
            let request = parameters.request();
            branches[request.b_id as usize] += 1;
            tellers[usize::from(request.t_id)] += 1;
            of_branches[request.account.0 as usize] += 1;
            accounts[request.account.1 as usize] += 1;
            remotes[usize::from(request.is_remote())] += 1;
            assert!((-DELTA_MAX..=DELTA_MAX).contains(&request.delta));
            deltas[((request.delta + DELTA_MAX) * 10 / (2 * DELTA_MAX + 1)) as usize] += 1;
        }
        assert_fits("branches", &branches, &[0.2; 5]);
        assert_fits("tellers", &tellers, &[0.1; 10]);
        assert_fits("accounts", &accounts, &[0.05; 20]);
        assert_fits("branches of accounts", &of_branches, &[0.2; 5]);
        assert_fits("remote accounts", &remotes, &[0.85, 0.15]);
        assert_fits("amounts", &deltas, &[0.1; 10]);
    }

    #[test]
    fn other_branches_are_all_alike_and_never_the_own() {
        let mut all_remote = parameters(5, 1.0, (2, 2), 22);
        let mut counts = [0; 5];
        (0..50_000).for_each(|_| counts[all_remote.request().account.0 as usize] += 1);
        assert_eq!(counts[2], 0);
        assert_fits("other branches", &[counts[0], counts[1], counts[3], counts[4]], &[0.25; 4]);
        for mut only_local in [parameters(1, 1.0, (0, 0), 23), parameters(9, 0.0, (0, 8), 24)] {
            assert!((0..1000).all(|_| !only_local.request().is_remote()));
        }
    }

    #[test]
    fn requests_repeat_by_seed() {
        let draw = |seed| {
            let mut parameters = parameters(7, 0.5, (0, 6), seed);
            (0..100).map(|_| parameters.request()).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }
}
