//! The share of YCSB's transactions that leave their part of the data.
//!
//! A client chooses all its records in its part, also those that it inserts. Only a scan goes on from record to record into the next
//! part: from the slot `i` it covers as many slots after it as it reads records, 1 to 100, all numbers alike. Of a part of `o` slots
//! it leaves the end with probability `E[min(count, o)] / o` if all slots are alike; the last part has none behind it. With a share
//! `s` of scans among `k` operations `1 - (1 - s c)^k` of the transactions leave the part, for the mean `c` over the parts.
//!
//! Owns: this formula. Never: draws a key.

use super::Ycsb;
use super::mix::{Distribution, Kind};
use super::parameters::SCAN_MAX;
use super::schema::Record;
use crate::shares::{NoShare, mean_of_parts};

/// Returns the share of transactions that leave their part, of `parts` parts.
pub(super) fn distributed<R: Record>(ycsb: &Ycsb<R>, parts: usize) -> Result<f64, NoShare> {
    let config = &ycsb.config;
    let scans = config.mix.shares()[Kind::Scan as usize];
    if scans > 0.0 && config.distribution != Distribution::Uniform {
        return Err(NoShare(
            "scans from records of which some are chosen more often have no formula for the share that leaves their instance; use \
             --distribution uniform"
                .to_owned(),
        ));
    }
    let operations = config.operations as i32;
    let last = 1.0 / parts.max(1) as f64;
    // Every part but the last, whose size differs from the others' by one slot at most, has another behind it.
    let leaves = |own: f64| 1.0 - (1.0 - scans * scan_leaves(own)).powi(operations);
    mean_of_parts(("rows", config.rows), parts, leaves).map(|share| share * (1.0 - last))
}

/// Returns the probability that a scan from any of `slots` slots leaves them.
fn scan_leaves(slots: f64) -> f64 {
    let counts = (1..=SCAN_MAX).map(|count| f64::from(count).min(slots));
    counts.sum::<f64>() / f64::from(SCAN_MAX) / slots
}

#[cfg(test)]
mod tests {
    use super::super::YcsbConfig;
    use super::super::schema::Narrow;
    use super::*;
    use crate::keys::KeySet;
    use crate::shares::counted::{assert_share, has, parts};

    fn ycsb(letter: &str, rows: u64, operations: usize) -> Ycsb<Narrow> {
        let mix = letter.parse().expect("a letter");
        let distribution = Distribution::Uniform;
        Ycsb::new(YcsbConfig { rows, mix, distribution, operations, ..YcsbConfig::default() })
            .expect("a configuration")
    }

    #[test]
    fn as_many_transactions_leave_their_part_as_the_generator_draws() {
        for (letter, rows, operations, count) in [
            ("a", 1000, 1, 4),
            ("a", 1000, 16, 2),
            ("d", 1000, 4, 2),
            ("e", 1000, 1, 2),
            ("e", 2000, 1, 4),
            ("e", 4000, 3, 2),
        ] {
            let ycsb = ycsb(letter, rows, operations);
            let share = distributed(&ycsb, count).expect("a formula");
            assert_eq!(share > 0.0, letter == "e");
            let parts = parts(0, rows, count as u64);
            let of_part = |part: &KeySet, stream| ycsb.parameters(part.clone(), stream);
            assert_share(share, &parts, of_part, |client, part| {
                let ops = client.transaction(operations);
                client.committed(ops.iter().filter(|op| op.kind == Kind::Insert).count() as u64);
                ops.iter().any(|op| {
                    let slot = op.key >> ycsb.keys.shift();
                    let covered = if op.kind == Kind::Scan { u64::from(op.detail) } else { 0 };
                    !has(part, slot) || !has(part, (slot + covered).min(rows - 1))
                })
            });
        }
    }

    #[test]
    fn popular_records_have_no_formula_if_they_are_scanned() {
        let of = |letter: &str| {
            let mix = letter.parse().expect("a letter");
            distributed(
                &Ycsb::<Narrow>::new(YcsbConfig { mix, ..YcsbConfig::default() }).expect("a configuration"),
                2,
            )
        };
        assert_eq!(of("a"), Ok(0.0));
        assert!(of("e").expect_err("refused").to_string().contains("--distribution uniform"));
    }
}
