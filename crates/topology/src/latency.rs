//! A matrix of round-trip latencies between processing units.
//!
//! Owns: [`LatencyMatrix`] and its validity. Never: measures (the runtime does), nor draws conclusions (`cluster` does).
//!
//! Invariants: square, symmetric, one row per distinct processing unit; every entry off the diagonal is a positive
//! finite number of nanoseconds or "not measured"; the diagonal is never looked at.

use crate::error::LatencyError;
use crate::ids::CpuId;
use std::collections::BTreeMap;

/// Two directions of one pair may differ by this share of the larger one before they count as a contradiction.
pub const ASYMMETRY_RATIO_MAX: f64 = 0.01;

/// Round-trip latencies between pairs of processing units, in nanoseconds. Not every pair needs to be known.
#[derive(Debug, Clone)]
pub struct LatencyMatrix {
    cpus: Vec<CpuId>,
    row_of: BTreeMap<CpuId, usize>,
    /// Row-major; NaN where not measured.
    ns: Vec<f64>,
}

impl PartialEq for LatencyMatrix {
    /// Equal cpus in equal order with equal entries; two entries that were not measured are equal.
    fn eq(&self, other: &Self) -> bool {
        let same = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
        self.cpus == other.cpus && self.ns.iter().zip(&other.ns).all(same)
    }
}

impl LatencyMatrix {
    /// Checks and takes a matrix: `rows[i][j]` is the round trip between `cpus[i]` and `cpus[j]` in nanoseconds, NaN
    /// where it was not measured. The diagonal is ignored; a pair known in one direction only is known.
    ///
    /// # Errors
    /// A [`LatencyError`] naming the first contradiction.
    pub fn new(cpus: &[CpuId], rows: &[Vec<f64>]) -> Result<Self, LatencyError> {
        if cpus.is_empty() {
            return Err(LatencyError::Empty);
        }
        let mut row_of = BTreeMap::new();
        for (row, &cpu) in cpus.iter().enumerate() {
            if row_of.insert(cpu, row).is_some() {
                return Err(LatencyError::DuplicateCpu { cpu });
            }
        }
        if rows.len() != cpus.len() {
            return Err(LatencyError::RowCount { rows: rows.len(), cpus: cpus.len() });
        }
        for (&cpu, row) in cpus.iter().zip(rows) {
            if row.len() != cpus.len() {
                return Err(LatencyError::NotSquare { cpu, len: row.len(), cpus: cpus.len() });
            }
        }
        let mut ns = vec![f64::NAN; cpus.len() * cpus.len()];
        for (i, &a) in cpus.iter().enumerate() {
            for (j, &b) in cpus.iter().enumerate().skip(i + 1) {
                let known = agree(a, b, rows[i][j], rows[j][i])?;
                ns[i * cpus.len() + j] = known;
                ns[j * cpus.len() + i] = known;
            }
        }
        Ok(Self { cpus: cpus.to_vec(), row_of, ns })
    }

    /// The processing units, in the order of the rows.
    #[must_use]
    pub fn cpus(&self) -> &[CpuId] {
        &self.cpus
    }

    /// The number of processing units (rows).
    #[must_use]
    pub fn len(&self) -> usize {
        self.cpus.len()
    }

    /// Never: a matrix has at least one row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cpus.is_empty()
    }

    /// The round trip between two processing units in nanoseconds; `None` when not measured, unknown or the same.
    #[must_use]
    pub fn get(&self, a: CpuId, b: CpuId) -> Option<f64> {
        self.at(*self.row_of.get(&a)?, *self.row_of.get(&b)?)
    }

    /// The round trip between the processing units of two rows in nanoseconds.
    #[must_use]
    pub fn at(&self, row: usize, column: usize) -> Option<f64> {
        if row == column || row >= self.len() || column >= self.len() {
            return None;
        }
        Some(self.ns[row * self.len() + column]).filter(|ns| !ns.is_nan())
    }

    /// Every measured pair once, with its round trip in nanoseconds.
    pub fn pairs(&self) -> impl Iterator<Item = (CpuId, CpuId, f64)> + '_ {
        (0..self.len()).flat_map(move |i| {
            (i + 1..self.len()).filter_map(move |j| Some((self.cpus[i], self.cpus[j], self.at(i, j)?)))
        })
    }
}

/// The one value of two directions of a pair; NaN when neither is measured.
fn agree(a: CpuId, b: CpuId, there: f64, back: f64) -> Result<f64, LatencyError> {
    for ns in [there, back] {
        if ns.is_infinite() || ns <= 0.0 {
            return Err(LatencyError::Absurd { a, b, ns });
        }
    }
    match (there.is_nan(), back.is_nan()) {
        (true, _) => Ok(back),
        (_, true) => Ok(there),
        _ if (there - back).abs() > ASYMMETRY_RATIO_MAX * there.max(back) => {
            Err(LatencyError::Asymmetric { a, b, there, back })
        }
        _ => Ok(f64::midpoint(there, back)),
    }
}

/// The middle value; the mean of the two middle ones of an even number. `None` of nothing.
pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(n: u32) -> Vec<CpuId> {
        (0..n).map(CpuId).collect()
    }

    #[test]
    fn a_matrix_answers_for_its_pairs_only() {
        let nan = f64::NAN;
        let rows = [vec![0.0, 40.0, nan], vec![40.2, 0.0, nan], vec![90.0, nan, 0.0]];
        let matrix = LatencyMatrix::new(&[CpuId(4), CpuId(2), CpuId(9)], &rows).expect("valid");
        assert_eq!(matrix.get(CpuId(2), CpuId(4)), Some(40.1));
        assert_eq!(matrix.get(CpuId(4), CpuId(9)), Some(90.0), "one direction is enough");
        assert_eq!(matrix.get(CpuId(2), CpuId(9)), None);
        assert_eq!(matrix.get(CpuId(4), CpuId(4)), None);
        assert_eq!(matrix.get(CpuId(4), CpuId(7)), None);
        assert_eq!(matrix.pairs().count(), 2);
        assert_eq!(matrix.len(), 3);
        assert!(!matrix.is_empty());
        assert_eq!(matrix, matrix.clone());
    }

    #[test]
    fn contradictions_are_named() {
        let two = |a: f64, b: f64| LatencyMatrix::new(&cpus(2), &[vec![0.0, a], vec![b, 0.0]]);
        let text = |result: Result<LatencyMatrix, LatencyError>| result.expect_err("refused").to_string();
        assert!(text(two(50.0, 60.0)).contains("asymmetric: cpu 0 to cpu 1 takes 50 ns"));
        assert!(text(two(-5.0, -5.0)).contains("is said to take -5 ns"));
        assert!(text(two(0.0, 0.0)).contains("is said to take 0 ns"));
        assert!(text(two(f64::INFINITY, 1.0)).contains("is said to take inf ns"));
        assert!(text(LatencyMatrix::new(&[], &[])).contains("no cpu"));
        assert!(text(LatencyMatrix::new(&cpus(2), &[vec![0.0, 1.0]])).contains("1 rows for 2 cpus"));
        let ragged = LatencyMatrix::new(&cpus(2), &[vec![0.0, 1.0], vec![1.0]]);
        assert!(text(ragged).contains("not square: the row of cpu 1 has 1 entries instead of 2"));
        let twice = LatencyMatrix::new(&[CpuId(3), CpuId(3)], &[vec![0.0, 1.0], vec![1.0, 0.0]]);
        assert!(text(twice).contains("names cpu 3 twice"));
    }

    #[test]
    fn medians() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
