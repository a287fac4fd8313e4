//! The check that the data of a workload fits in memory.
//!
//! Owns: the error message. Never: looks at the machine; the caller passes the available memory.

use crate::text::binary;

/// The data does not fit in memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{wanted} {unit} need about {} of memory but {} are available; at most {fit} fit",
    binary(*.needed_bytes), binary(u128::from(*.available_bytes))
)]
pub struct NotEnoughMemory {
    /// The unit that is counted, in the plural.
    pub unit: &'static str,
    /// Requested number of units.
    pub wanted: u64,
    /// Number of units that fit.
    pub fit: u64,
    /// Memory that the requested units would take.
    pub needed_bytes: u128,
    /// Memory that is available.
    pub available_bytes: u64,
}

/// Refuses `wanted` units of `unit_bytes` each (their memory with all overhead) if they do not fit.
///
/// # Errors
/// Fails with the number of units that fit.
pub fn check(
    unit: &'static str,
    wanted: u64,
    unit_bytes: u64,
    available_bytes: u64,
) -> Result<(), NotEnoughMemory> {
    let needed_bytes = u128::from(wanted) * u128::from(unit_bytes) + u128::from(BASE_BYTES);
    if needed_bytes <= u128::from(available_bytes) {
        return Ok(());
    }
    let fit = available_bytes.saturating_sub(BASE_BYTES) / unit_bytes;
    Err(NotEnoughMemory { unit, wanted, fit, needed_bytes, available_bytes })
}

/// Memory that a process takes besides its data: threads, rings, inboxes, histograms.
const BASE_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        assert_eq!(check("subscribers", 1000, 500, 1 << 30), Ok(()));
        let refused = check("subscribers", 10_000_000, 500, 1 << 30).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "10000000 subscribers need about 4.7 GiB of memory but 1.0 GiB are available; at most 2013265 fit"
        );
        assert_eq!(check("subscribers", refused.fit, 500, 1 << 30), Ok(()));
        assert!(check("subscribers", refused.fit + 1, 500, 1 << 30).is_err());
        // Neither the largest number nor no memory at all overflows.
        assert_eq!(check("rows", u64::MAX, u64::MAX, 0).unwrap_err().fit, 0);
    }
}
