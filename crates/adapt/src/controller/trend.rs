//! The future place of a load that moves on and on, by the distance by which it has moved from each interval to the next.
//!
//! Owns: the estimate of that distance, and loads moved by it. Never: judges a scheme.
//!
//! Loads are seen on a grid of equally many rows. A shift goes around the ends: what is alike everywhere stays so, and a range that
//! leaves the last rows most likely begins again with the first.
//!
//! Invariant: there is a trend only if the two latest intervals moved in the same direction, about equally fast, and if being moved
//! explains most of the difference between them.

use super::Rules;
use crate::extents::Extents;

/// Cells of the grid.
const CELLS: usize = 512;
/// Greatest distance from one interval to the next, in cells.
const SHIFT_MAX: i64 = CELLS as i64 / 8;

/// A load on the grid of all tables.
#[derive(Debug, Clone)]
pub(super) struct Gridded {
    pub(super) at_ns: u64,
    tables: Vec<Vec<f64>>,
}

/// The rows of a table's slices as a share of its rows: the first cell and the last of each, as fractions.
fn places(extents: &Extents, table: usize) -> Vec<(f64, f64)> {
    let rows = extents.rows(table);
    let total: f64 = rows.iter().map(|rows| rows.max(1.0)).sum();
    let mut before = 0.0;
    let mut place = |rows: &f64| {
        let from = before;
        before += rows.max(1.0) / total * CELLS as f64;
        (from, before)
    };
    rows.iter().map(&mut place).collect()
}

impl Gridded {
    /// A load by slices of `extents`, all tables after each other, on the grid.
    pub(super) fn of(at_ns: u64, load: &[f64], extents: &Extents) -> Self {
        let mut first = 0;
        let tables = (0..extents.table_count()).map(|table| {
            let mut cells = vec![0.0; CELLS];
            let places = places(extents, table);
            for ((from, to), share) in places.iter().zip(&load[first..]) {
                for (cell, part) in parts(*from, *to) {
                    cells[cell] += share * part;
                }
            }
            first += places.len();
            cells
        });
        Self { at_ns, tables: tables.collect() }
    }

    /// The same load, `cells` further on, by slices of `extents`.
    pub(super) fn moved_by(&self, cells: f64, extents: &Extents) -> Vec<f64> {
        let shift = cells.round() as i64;
        let mut load = Vec::new();
        for (table, of_table) in self.tables.iter().enumerate() {
            for (from, to) in places(extents, table) {
                // A cell is alike inside.
                let here = |(cell, part): (usize, f64)| part * (to - from) * of_table[source(cell, shift)];
                load.push(parts(from, to).map(here).sum());
            }
        }
        load
    }

    /// By how many cells this load has moved to become `next`; `None` where moving does not explain the difference.
    fn shift_to(&self, next: &Self, rules: &Rules) -> Option<f64> {
        let difference = |shift: i64| -> f64 {
            let both = self.tables.iter().zip(&next.tables);
            let of_table = |(before, after): (&Vec<f64>, &Vec<f64>)| -> f64 {
                let (mut sum, mut cumulated) = (0.0, 0.0);
                for (cell, after) in after.iter().enumerate() {
                    cumulated += before[source(cell, shift)] - after;
                    sum += f64::abs(cumulated);
                }
                sum
            };
            both.map(of_table).sum()
        };
        let unmoved = difference(0);
        let (shift, left) = (-SHIFT_MAX..=SHIFT_MAX)
            .map(|shift| (shift, difference(shift)))
            .min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.abs().cmp(&b.0.abs())))?;
        (shift != 0 && left < rules.unexplained_max * unmoved).then_some(shift as f64)
    }
}

/// The cell that is moved to `cell`.
const fn source(cell: usize, shift: i64) -> usize {
    (cell as i64 - shift).rem_euclid(CELLS as i64) as usize
}

/// The cells from `from` to `to`, each with the share of that range that is in it.
fn parts(from: f64, to: f64) -> impl Iterator<Item = (usize, f64)> {
    let cells = from as usize..(to.ceil() as usize).clamp(from as usize + 1, CELLS.max(from as usize + 1));
    cells.map(move |cell| {
        let inside = to.min(cell as f64 + 1.0) - from.max(cell as f64);
        (cell.min(CELLS - 1), (inside / (to - from).max(1e-12)).max(0.0))
    })
}

/// The speed of a load that has moved in the latest intervals, in cells per ns; `None` if it has not moved on and on.
pub(super) fn speed(loads: &[Gridded], rules: &Rules) -> Option<f64> {
    let [.., first, second, third] = loads else { return None };
    let speed = |from: &Gridded, to: &Gridded| {
        let ns = super::ns_between(from.at_ns, to.at_ns) as f64;
        (ns > 0.0).then(|| from.shift_to(to, rules).map(|shift| shift / ns)).flatten()
    };
    let (before, after) = (speed(first, second)?, speed(second, third)?);
    let ratio = after / before;
    let most = rules.speeds_ratio_max;
    (1.0 / most..=most).contains(&ratio).then(|| f64::midpoint(before, after))
}
