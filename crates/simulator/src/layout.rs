//! The partitions of the simulated database by key, and steps of a plan as changes of them.
//!
//! Owns: which worker owns a key, and which sub-partition it is in. Never: plans.
//!
//! Invariants: partitions of a table are in key order, begin at key 0, and none is empty, so each has at least one
//! sub-partition; a partition has ten sub-partitions of equally many rows, as in a database, or as many as it has rows.

use atrapos_adapt::{Extents, SliceIndex, Step, TableIndex};

/// Sub-partitions per partition: the default of a database.
const SUB_PARTITIONS: u64 = 10;

/// The partitions of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableLayout {
    /// First keys.
    pub(crate) begins: Vec<u64>,
    /// The worker of each.
    pub(crate) owners: Vec<u32>,
}

impl TableLayout {
    pub(crate) fn of(&self, key: u64) -> usize {
        self.begins.partition_point(|begin| *begin <= key) - 1
    }
}

/// A scheme by keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) tables: Vec<TableLayout>,
}

/// The sub-partitions of a layout as they were when statistics began.
#[derive(Debug, Clone)]
pub(crate) struct Cut {
    /// By table: first key of each slice.
    pub(crate) starts: Vec<Vec<u64>>,
    /// By table: the first slice of each partition.
    pub(crate) firsts: Vec<Vec<usize>>,
    /// First slice of each table in the numbering over all tables.
    pub(crate) offsets: Vec<usize>,
    pub(crate) count: usize,
    /// Rows of each table.
    pub(crate) rows: Vec<u64>,
}

impl Cut {
    pub(crate) fn slice(&self, table: u32, key: u64) -> usize {
        let starts = &self.starts[table as usize];
        self.offsets[table as usize] + starts.partition_point(|start| *start <= key) - 1
    }
}

/// The first key of a slice.
fn key(extents: &Extents, table: TableIndex, slice: u32) -> u64 {
    let bytes = extents.start(table, SliceIndex(slice)).bytes();
    u64::from_be_bytes(bytes.try_into().expect("keys of a simulated table are numbers"))
}

impl Layout {
    /// Every table in as many equal parts as there are workers, those of the next table so many workers further on.
    pub(crate) fn naive(rows: &[u64], workers: usize, shifted_by: usize) -> Self {
        let table = |(at, rows): (usize, &u64)| TableLayout {
            begins: (0..workers as u64).map(|part| part * rows / workers as u64).collect(),
            owners: (0..workers).map(|worker| ((worker + at * shifted_by) % workers) as u32).collect(),
        };
        Self { tables: rows.iter().enumerate().map(table).collect() }
    }

    /// Returns whether it is one of tables with so many rows, on these workers.
    pub(crate) fn is_of(&self, rows: &[u64], workers: &[u32]) -> bool {
        let is_within = |(table, rows): (&TableLayout, &u64)| table.begins.iter().all(|begin| begin < rows);
        let mut owners = self.tables.iter().flat_map(|table| &table.owners);
        self.tables.iter().zip(rows).all(is_within) && owners.all(|owner| workers.contains(owner))
    }

    pub(crate) fn owner(&self, table: u32, key: u64) -> u32 {
        let table = &self.tables[table as usize];
        table.owners[table.of(key)]
    }

    /// Cuts the partitions into sub-partitions, as a database does whenever its statistics begin anew.
    pub(crate) fn cut(&self, rows: &[u64]) -> Cut {
        let mut cut = Cut {
            starts: Vec::new(),
            firsts: Vec::new(),
            offsets: Vec::new(),
            count: 0,
            rows: rows.to_vec(),
        };
        for (table, rows) in self.tables.iter().zip(rows) {
            let (mut starts, mut firsts) = (Vec::new(), Vec::new());
            let ends = table.begins[1..].iter().copied().chain(std::iter::once(*rows));
            for (from, to) in table.begins.iter().copied().zip(ends) {
                firsts.push(starts.len());
                // A scheme that was found later may begin a partition where there are no rows yet.
                let length = to.saturating_sub(from);
                let parts = SUB_PARTITIONS.min(length).max(1);
                starts.extend((0..parts).map(|part| from + part * length / parts));
            }
            cut.offsets.push(cut.count);
            cut.count += starts.len();
            cut.starts.push(starts);
            cut.firsts.push(firsts);
        }
        cut
    }

    /// The workers that a step of a plan concerns whose slices have these extents: who has to do it, and who gets something.
    pub(crate) fn concerned(&self, step: &Step, extents: &Extents) -> [u32; 2] {
        let owner = |table: TableIndex, slice: u32| {
            let layout = &self.tables[table.index()];
            layout.owners[layout.of(key(extents, table, slice))]
        };
        match *step {
            Step::Split { table, at } | Step::Merge { table, at } => [owner(table, at.0); 2],
            Step::Move { table, from, target, .. } => [owner(table, from.0), target.0],
        }
    }

    /// Carries one step of a plan out whose slices have these extents. Returns the worker that has to do it.
    pub(crate) fn apply(&mut self, step: &Step, extents: &Extents) -> u32 {
        let key = |table: TableIndex, slice: u32| key(extents, table, slice);
        match *step {
            Step::Split { table, at } => {
                let begin = key(table, at.0);
                let layout = &mut self.tables[table.index()];
                let part = layout.of(begin);
                if layout.begins[part] != begin {
                    layout.begins.insert(part + 1, begin);
                    layout.owners.insert(part + 1, layout.owners[part]);
                }
                layout.owners[part]
            }
            Step::Move { table, from, target, .. } => {
                let begin = key(table, from.0);
                let layout = &mut self.tables[table.index()];
                let part = layout.of(begin);
                std::mem::replace(&mut layout.owners[part], target.0)
            }
            Step::Merge { table, at } => {
                let begin = key(table, at.0);
                let layout = &mut self.tables[table.index()];
                let part = layout.of(begin);
                if part > 0 && layout.begins[part] == begin && layout.owners[part - 1] == layout.owners[part]
                {
                    layout.begins.remove(part);
                    return layout.owners.remove(part);
                }
                layout.owners[part]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atrapos_adapt::{
        PartitionTrace, SliceIndex, TRACE_FORMAT, TableTrace, TraceKey, WorkerIndex, WorkloadTrace,
    };

    /// The extents of a cut; the division into partitions does not matter for them.
    fn extents(layout: &Layout, cut: &Cut) -> Extents {
        let table = |(at, starts): (usize, &Vec<u64>)| TableTrace {
            name: format!("t{at}"),
            partitions: vec![PartitionTrace {
                worker: WorkerIndex(layout.tables[at].owners[0]),
                cost_cycles: vec![1; starts.len()],
                starts: starts.iter().map(|key| TraceKey::new(key.to_be_bytes().to_vec())).collect(),
                rows: vec![1; starts.len()],
            }],
        };
        let trace = WorkloadTrace {
            format: TRACE_FORMAT.to_owned(),
            seconds: 1.0,
            workers: 2,
            machine: None,
            samples: None,
            dispersion: 1.0,
            busy_cycles: Vec::new(),
            in_place_cycles: 0,
            tables: cut.starts.iter().enumerate().map(table).collect(),
            sync_points: Vec::new(),
            classes: Vec::new(),
        };
        Extents::of(&trace).expect("a trace with keys")
    }

    #[test]
    fn steps_change_what_they_name() {
        let mut layout = Layout::naive(&[1_000, 1_000], 2, 1);
        assert_eq!(layout.tables[1].owners, [1, 0]);
        let cut = layout.cut(&[1_000, 1_000]);
        assert_eq!((cut.count, cut.slice(0, 999), cut.slice(1, 0)), (40, 19, 20));
        let extents = extents(&layout, &cut);
        let table = TableIndex(0);
        assert_eq!(layout.apply(&Step::Split { table, at: SliceIndex(4) }, &extents), 0);
        let (source, target) = (WorkerIndex(0), WorkerIndex(1));
        let (from, to) = (SliceIndex(4), SliceIndex(10));
        assert_eq!(layout.apply(&Step::Move { table, from, to, source, target }, &extents), 0);
        assert_eq!(layout.owner(0, 200), 1);
        assert_eq!(layout.apply(&Step::Merge { table, at: SliceIndex(10) }, &extents), 1);
        assert_eq!(layout.tables[0], TableLayout { begins: vec![0, 200], owners: vec![0, 1] });
    }
}
