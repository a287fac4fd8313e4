//! Extents of slices: the first key and the rows of each, by which statistics of different slices are comparable.
//!
//! Sub-partitions are cut anew after every change of the scheme, so that the numbers of slices mean other keys each time. Keys
//! stay what they are: by them the controller knows the scheme of before a change, and where the load was some intervals ago.
//!
//! Owns: positions of keys among the slices of one trace. Never: knows what a key means; it is bytes that sort.
//!
//! Invariants: first keys of a table ascend strictly; there are as many as slices. A position inside of a slice is interpolated
//! from the bytes of its bounds: exact for integers, a guess for others, and always inside of the slice.

use crate::error::AdaptError;
use crate::ids::{SliceIndex, TableIndex, WorkerIndex};
use crate::scheme::{PlannedScheme, TableScheme};
use crate::trace::WorkloadTrace;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// A key as bytes that sort as keys do; in JSON as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceKey(Vec<u8>);

impl TraceKey {
    /// The key of these bytes.
    #[must_use]
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The eight bytes from `skip` on as a number.
    fn number(&self, skip: usize) -> f64 {
        let bytes = self.0.iter().skip(skip).copied().chain(std::iter::repeat(0)).take(8);
        bytes.fold(0.0, |number, byte| number * 256.0 + f64::from(byte))
    }
}

impl From<TraceKey> for String {
    fn from(key: TraceKey) -> Self {
        key.0.iter().fold(Self::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

impl TryFrom<String> for TraceKey {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("the key '{text}' is not an even number of hexadecimal digits");
        if !text.is_ascii() || text.len() % 2 == 1 {
            return Err(wrong());
        }
        let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong());
        (0..text.len()).step_by(2).map(byte).collect::<Result<_, _>>().map(Self)
    }
}

/// First keys and rows of the slices of one table.
#[derive(Debug, Clone, PartialEq)]
struct TableExtents {
    starts: Vec<TraceKey>,
    rows: Vec<f64>,
}

/// First keys and rows of all slices. See the module's introduction.
#[derive(Debug, Clone, PartialEq)]
pub struct Extents {
    tables: Vec<TableExtents>,
}

/// A scheme by keys, which says the same whatever slices there are: of each table, first keys of its partitions and their owners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyScheme {
    tables: Vec<(Vec<TraceKey>, Vec<WorkerIndex>)>,
}

impl Extents {
    /// The extents of the sub-partitions of a trace; `None` where it does not have them.
    #[must_use]
    pub fn of(trace: &WorkloadTrace) -> Option<Self> {
        let table = |table: &crate::TableTrace| {
            let has_keys = |part: &crate::PartitionTrace| {
                part.starts.len() == part.cost_cycles.len() && part.rows.len() == part.cost_cycles.len()
            };
            table.partitions.iter().all(has_keys).then(|| TableExtents {
                starts: table.partitions.iter().flat_map(|part| part.starts.iter().cloned()).collect(),
                rows: table.partitions.iter().flat_map(|part| &part.rows).map(|rows| *rows as f64).collect(),
            })
        };
        Some(Self { tables: trace.tables.iter().map(table).collect::<Option<_>>()? })
    }

    /// First key of a slice.
    ///
    /// # Panics
    /// When there is no such slice.
    #[must_use]
    pub fn start(&self, table: TableIndex, slice: SliceIndex) -> &TraceKey {
        &self.tables[table.index()].starts[slice.index()]
    }

    /// Rows of the slices of a table.
    pub(crate) fn rows(&self, table: usize) -> &[f64] {
        &self.tables[table].rows
    }

    pub(crate) fn starts(&self, table: usize) -> &[TraceKey] {
        &self.tables[table].starts
    }

    pub(crate) const fn table_count(&self) -> usize {
        self.tables.len()
    }

    /// The slice that holds a key, and which share of it lies before the key.
    pub(crate) fn locate(&self, table: usize, key: &TraceKey) -> (usize, f64) {
        let TableExtents { starts, .. } = &self.tables[table];
        let slice = starts.partition_point(|start| start <= key).saturating_sub(1);
        let (from, to) = (&starts[slice], starts.get(slice + 1));
        // Of the last slice the end is not known.
        let Some(to) = to.filter(|_| key > from) else {
            return (slice, if key > from { 0.5 } else { 0.0 });
        };
        let skip = from.0.iter().zip(&to.0).take_while(|(a, b)| a == b).count();
        let (from, to, key) = (from.number(skip), to.number(skip), key.number(skip));
        (slice, if to > from { ((key - from) / (to - from)).clamp(0.0, 1.0) } else { 0.0 })
    }

    /// Returns the places, in slices of these and parts of them, at which slices that begin at keys of `from` begin and end.
    pub(crate) fn places(&self, table: usize, from: &[TraceKey]) -> Vec<(f64, f64)> {
        let place = |key| {
            let (slice, share) = self.locate(table, key);
            // The end of a slice is the beginning of the next.
            slice as f64 + share.min(1.0 - 1e-9)
        };
        let begins: Vec<f64> = from.iter().map(place).collect();
        let end = self.tables[table].starts.len() as f64 - 1e-9;
        let ends = begins.iter().skip(1).copied().chain(std::iter::once(end));
        begins.iter().copied().zip(ends).collect()
    }

    /// Costs per slice of other statistics, by the keys of these: what a slice of theirs has is divided by the rows of its keys, and what
    /// their last one has as `at_end` has it.
    pub(crate) fn resample(
        &self,
        table: usize,
        from: &[TraceKey],
        costs: &[f64],
        at_end: &[f64],
    ) -> Vec<f64> {
        let mut sums = vec![0.0; self.tables[table].starts.len()];
        for (slice, ((begin, end), cost)) in self.places(table, from).into_iter().zip(costs).enumerate() {
            let is_last = slice + 1 == from.len();
            let rows = |at: usize| {
                if is_last { at_end[at].max(1e-12) } else { self.tables[table].rows[at].max(1.0) }
            };
            let parts = begin as usize..(end.ceil() as usize).max(begin as usize + 1).min(sums.len());
            let share = |at: usize| (end.min(at as f64 + 1.0) - begin.max(at as f64)).max(0.0) * rows(at);
            let total: f64 = parts.clone().map(share).sum();
            let last = parts.end.saturating_sub(1).max(parts.start.min(sums.len() - 1));
            if total > 0.0 {
                for at in parts {
                    sums[at] += cost * share(at) / total;
                }
            } else {
                sums[last] += cost;
            }
        }
        sums
    }

    /// A scheme of these slices by keys.
    pub(crate) fn by_keys(&self, scheme: &PlannedScheme) -> KeyScheme {
        let table = |(extents, table): (&TableExtents, &TableScheme)| {
            let cuts = table.cuts().iter().map(|cut| extents.starts[*cut as usize].clone());
            (cuts.collect(), table.owners().to_vec())
        };
        KeyScheme { tables: self.tables.iter().zip(scheme.tables()).map(table).collect() }
    }
}

impl KeyScheme {
    /// The scheme by numbers of the slices of `trace`, which is given a sub-partition more wherever a partition of the scheme begins
    /// inside of one. `None` where the trace has other tables or no keys.
    pub(crate) fn in_slices(&self, trace: &mut WorkloadTrace) -> Option<PlannedScheme> {
        if self.tables.len() != trace.tables.len() {
            return None;
        }
        for (table, (cuts, _)) in self.tables.iter().enumerate() {
            for key in cuts {
                trace.cut_at(table, key)?;
            }
        }
        let extents = Extents::of(trace)?;
        let mut tables = Vec::new();
        for (table, (cuts, owners)) in extents.tables.iter().zip(&self.tables) {
            let cuts = cuts.iter().map(|key| table.starts.binary_search(key).ok().map(|at| at as u32));
            let cuts: Vec<u32> = cuts.collect::<Option<_>>()?;
            // A table of which a part has gone to another instance, for example.
            if cuts.first() == Some(&0) || !cuts.is_sorted_by(|a, b| a < b) {
                return None;
            }
            tables.push(TableScheme::new(cuts, owners.clone()));
        }
        Some(PlannedScheme::new(tables))
    }
}

impl WorkloadTrace {
    /// Makes a sub-partition begin at `key`: the one that holds it is divided, its cost and rows by the shares of keys, and its
    /// synchronization points go to the greater part.
    fn cut_at(&mut self, table: usize, key: &TraceKey) -> Option<()> {
        let extents = Self::extents_of(self, table)?;
        let (slice, share) = extents.locate(0, key);
        if extents.starts(0)[slice] == *key {
            return Some(());
        }
        let (mut partition, mut at) = (0, slice);
        while at >= self.tables[table].partitions[partition].cost_cycles.len() {
            at -= self.tables[table].partitions[partition].cost_cycles.len();
            partition += 1;
        }
        let part = &mut self.tables[table].partitions[partition];
        let divide = |all: &mut Vec<u64>| {
            let after = (all[at] as f64 * (1.0 - share)).round() as u64;
            all[at] -= after.min(all[at]);
            all.insert(at + 1, after);
        };
        divide(&mut part.cost_cycles);
        divide(&mut part.rows);
        part.starts.insert(at + 1, key.clone());
        let moves_from = if share > 0.5 { at + 1 } else { at };
        for place in self.sync_points.iter_mut().flat_map(|point| &mut point.partners) {
            let here = place.table as usize == table && place.partition as usize == partition;
            if here && place.sub_partition as usize >= moves_from {
                place.sub_partition += 1;
            }
        }
        Some(())
    }

    fn extents_of(trace: &Self, table: usize) -> Option<Extents> {
        let parts = &trace.tables.get(table)?.partitions;
        let has_keys = parts.iter().all(|part| part.starts.len() == part.cost_cycles.len());
        has_keys.then(|| Extents {
            tables: vec![TableExtents {
                starts: parts.iter().flat_map(|part| part.starts.iter().cloned()).collect(),
                rows: parts.iter().flat_map(|part| &part.rows).map(|rows| *rows as f64).collect(),
            }],
        })
    }

    /// Checks that keys, where there are any, are as many as sub-partitions and ascend.
    pub(crate) fn check_keys(&self) -> Result<(), AdaptError> {
        for table in &self.tables {
            let parts = &table.partitions;
            let fits = |count: usize, part: &crate::PartitionTrace| {
                count == 0 && parts.iter().all(|part| part.starts.is_empty())
                    || count == part.cost_cycles.len()
            };
            if !parts.iter().all(|part| {
                fits(part.starts.len(), part)
                    && (part.rows.is_empty() || part.rows.len() == part.cost_cycles.len())
            }) {
                let detail =
                    format!("table '{}' has other numbers of keys than of sub-partitions", table.name);
                return Err(AdaptError::Contradiction { detail });
            }
            let starts: Vec<&TraceKey> = parts.iter().flat_map(|part| &part.starts).collect();
            if !starts.is_sorted_by(|a, b| a < b) {
                let detail =
                    format!("first keys of the sub-partitions of table '{}' do not ascend", table.name);
                return Err(AdaptError::Contradiction { detail });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{PartitionTrace, SubPartition, SyncPointTrace, TRACE_FORMAT, TableTrace};

    fn key(number: u64) -> TraceKey {
        TraceKey::new(number.to_be_bytes().to_vec())
    }

    /// A table of 100 keys in two partitions of five slices.
    fn trace() -> WorkloadTrace {
        let partition = |at: u64| PartitionTrace {
            worker: WorkerIndex(at as u32),
            cost_cycles: vec![10; 5],
            starts: (0..5).map(|slice| key(50 * at + 10 * slice)).collect(),
            rows: vec![10; 5],
        };
        WorkloadTrace {
            format: TRACE_FORMAT.into(),
            seconds: 1.0,
            workers: 2,
            machine: None,
            samples: None,
            dispersion: 1.0,
            busy_cycles: Vec::new(),
            in_place_cycles: 0,
            tables: vec![TableTrace { name: "t".into(), partitions: vec![partition(0), partition(1)] }],
            sync_points: vec![SyncPointTrace {
                partners: vec![(0, 1, 1).into(), (0, 1, 3).into()],
                bytes: 8,
                count: 1,
                again: 0,
            }],
            classes: Vec::new(),
        }
    }

    #[test]
    fn keys_are_hexadecimal_in_json() {
        let text = trace().to_json();
        assert!(text.contains("\"0000000000000032\""), "{text}");
        assert_eq!(WorkloadTrace::from_json(&text).expect("a trace"), trace());
        let wrong = text.replace("0000000000000032", "000000000000003g");
        assert!(WorkloadTrace::from_json(&wrong).is_err_and(|error| error.to_string().contains("003g")));
        let wrong = text.replace("0000000000000032", "0000000000000001");
        assert!(WorkloadTrace::from_json(&wrong).is_err_and(|error| error.to_string().contains("ascend")));
    }

    #[test]
    fn a_load_keeps_its_keys_when_slices_are_others() {
        let extents = Extents::of(&trace()).expect("keys");
        assert_eq!(extents.locate(0, &key(65)), (6, 0.5));
        let coarse = extents.resample(0, &[key(0), key(60)], &[60.0, 4.0], &[1.0; 10]);
        let wanted = [10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 1.0, 1.0, 1.0, 1.0];
        assert!(coarse.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-6), "{coarse:?}");
        let fine =
            extents.resample(0, &[key(0), key(12), key(14), key(20)], &[1.0, 2.0, 3.0, 80.0], &[1.0; 10]);
        assert!(
            (fine[0] + fine[1] - 6.0).abs() < 1e-6 && (fine[1] - 5.0 - 1.0 / 6.0).abs() < 1e-6,
            "{fine:?}"
        );
        assert!((fine[9] - 10.0).abs() < 1e-6, "{fine:?}");
    }

    #[test]
    fn a_scheme_of_before_is_found_among_other_slices() {
        let mut now = trace();
        let before = KeyScheme { tables: vec![(vec![key(33), key(63)], [1, 0, 1].map(WorkerIndex).into())] };
        let scheme = before.in_slices(&mut now).expect("a scheme");
        assert_eq!(scheme.tables()[0].cuts(), [4, 8]);
        assert_eq!(now.tables[0].partitions[0].cost_cycles, [10, 10, 10, 3, 7, 10]);
        assert_eq!(now.tables[0].partitions[1].rows, [10, 3, 7, 10, 10, 10]);
        // Points of the divided slice are with its greater part.
        assert_eq!(
            now.sync_points[0].partners,
            [SubPartition::from((0, 1, 2)), SubPartition::from((0, 1, 4))]
        );
        assert_eq!(Extents::of(&now).expect("keys").by_keys(&scheme), before);
        now.workload().expect("no contradiction");
    }
}
