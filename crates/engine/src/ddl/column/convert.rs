//! Conversion of rows to those of a table with other columns, a slice at a time.
//!
//! Owns: the copies under way on a worker. Never: changes a row of the old table.

use std::cell::RefMut;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

use atrapos_catalog::{Definitions, RowLayout, TableDef, Value, ValueError};
use atrapos_partition::partition::{Partition, PartitionId};
use atrapos_partition::schema::TableId;
use atrapos_storage::{BulkError, BulkLoader, DisplayKey, KeyBuf, TreeConfig};
use atrapos_transaction::shard::{EngineWorker, Shard};
use atrapos_transaction::unfinished::Copies;

use crate::ddl::DefineError;
use crate::load::FILL;

/// Rows that a worker converts at a time, at most.
const SLICE: usize = 256;

/// Bytes of converted rows after which a slice ends. One row may have more.
const SLICE_BYTES: usize = 256 << 10;

/// Reasons for which rows could not be converted.
#[derive(Debug)]
pub(super) enum ConvertError {
    /// The copy does not take the row.
    Copy(BulkError),
    /// The row with this key is not what the definition of its table says.
    Damaged(KeyBuf, ValueError),
}

impl From<BulkError> for ConvertError {
    fn from(error: BulkError) -> ConvertError {
        ConvertError::Copy(error)
    }
}

/// Returns the error of a table whose rows could not be converted.
pub(super) fn cannot_convert(table: &str, error: &ConvertError) -> DefineError {
    match error {
        ConvertError::Copy(BulkError::OutOfMemory(error)) => DefineError::OutOfMemory(format!(
            "there is no memory for a second copy of table `{table}` ({error}); free some, and try again"
        )),
        ConvertError::Copy(error) => {
            DefineError::Violated(format!("table `{table}` cannot have the column: {error}"))
        }
        ConvertError::Damaged(key, error) => DefineError::Damaged(format!(
            "the row with key {} of table `{table}` does not fit the definition of the table ({error}); restore the database from a \
             backup",
            DisplayKey(key)
        )),
    }
}

/// Converts rows of the old table to rows of the new one.
pub(super) struct Converter {
    from: RowLayout,
    to: RowLayout,
    change: Change,
    config: TreeConfig,
}

/// The change of the columns of rows.
enum Change {
    /// This value comes behind the others.
    Add(Value),
    /// The value in this place goes.
    Drop(usize),
}

impl Converter {
    /// Creates the converter to a table with one more column, its last one.
    pub(super) fn adding(
        before: &Definitions,
        old: TableId,
        after: TableDef,
    ) -> Result<Converter, DefineError> {
        let added = after.columns.last().and_then(|column| column.default.clone()).unwrap_or(Value::Null);
        Converter::new(before, old, &after, Change::Add(added))
    }

    /// Creates the converter to a table without a column, by its place among those of the row.
    pub(super) fn dropping(
        before: &Definitions,
        old: TableId,
        after: &TableDef,
        place: usize,
    ) -> Result<Converter, DefineError> {
        Converter::new(before, old, after, Change::Drop(place))
    }

    fn new(
        before: &Definitions,
        old: TableId,
        after: &TableDef,
        change: Change,
    ) -> Result<Converter, DefineError> {
        let Some(table) = before.table(old.0) else { unreachable!("it was found as a table") };
        let to = RowLayout::of_table(after);
        let width = after.row_columns().map(|column| column.ty.width().unwrap_or(16)).sum();
        Ok(Converter { from: RowLayout::of_table(table), to, change, config: TreeConfig::for_rows_of(width) })
    }

    fn convert(&self, row: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
        let mut values = self.from.decode(row)?;
        match &self.change {
            Change::Add(value) => values.push(value.clone()),
            Change::Drop(place) => drop(values.remove(*place)),
        }
        out.clear();
        self.to.encode(&values, out)
    }
}

/// Copies some rows of this worker's partitions. Returns true if all are copied.
pub(super) fn convert_slice(
    worker: &Rc<EngineWorker>,
    old: TableId,
    converter: &Converter,
) -> Result<bool, ConvertError> {
    let shard = worker.shard();
    let mut copies = shard.copies.borrow_mut();
    let Some((number, bulk, from)) = current(shard, &mut copies, old, converter) else { return Ok(true) };
    let tables = shard.tables.borrow();
    let partition = tables.partition(PartitionId { table: old, partition: *number });
    let mut rows = partition.tree().range(Bound::Included(&**from), Bound::Unbounded);
    let (mut key, mut converted, mut bytes) = (KeyBuf::new(), Vec::new(), 0);
    for row in rows.by_ref().take(SLICE) {
        row.key_into(&mut key);
        if let Err(error) = converter.convert(row.bytes(), &mut converted) {
            return Err(ConvertError::Damaged(key, error));
        }
        bulk.push(&key, &converted, row.version())?;
        bytes += converted.len();
        if bytes >= SLICE_BYTES {
            break;
        }
    }
    if let Some(row) = rows.next() {
        row.key_into(from);
        return Ok(false);
    }
    let version = partition.version();
    let Some((number, bulk, _)) = copies.current.take() else { return Ok(true) };
    let slot = number as usize;
    let slots = copies.partitions.len().max(slot + 1);
    copies.partitions.resize_with(slots, || None);
    copies.partitions[slot] = Some(Box::new(Partition::new(bulk.finish()?, version)));
    Ok(false)
}

/// Returns the copy that is under way, begun for the next partition if there is none; `None` if all are made.
fn current<'c>(
    shard: &Shard,
    copies: &'c mut RefMut<'_, Copies>,
    old: TableId,
    converter: &Converter,
) -> Option<&'c mut (u32, BulkLoader, KeyBuf)> {
    if copies.current.is_none() {
        let tables = shard.tables.borrow();
        let is_made = |number: u32| copies.partitions.get(number as usize).is_some_and(Option::is_some);
        let next =
            tables.shards[old.at()].all().map(|(number, _)| number).find(|number| !is_made(*number))?;
        let bulk = BulkLoader::new(converter.config, Arc::clone(&shard.memory), FILL);
        copies.current = Some((next, bulk, KeyBuf::new()));
    }
    copies.current.as_mut()
}

#[cfg(test)]
mod tests {
    use atrapos_catalog::{ColumnDef, ColumnType, KeyColumn, PrimaryKey, TreeDef};
    use atrapos_runtime::WorkerId;

    use super::*;
    use crate::sim::Simulation;
    use atrapos_partition::schema::{Schema, Table};

    atrapos_storage::row! {
        #[derive(Clone)]
        struct Note {
            text: Vec<u8>,
        }
    }

    struct Notes;
    impl Table for Notes {
        type Key = u64;
        type Row = Note;
        const NAME: &'static str = "notes";
    }

    fn notes() -> TableDef {
        TableDef {
            name: "notes".to_owned(),
            columns: vec![
                ColumnDef::new("id", ColumnType::Unsigned(8)),
                ColumnDef::new("text", ColumnType::VarBytes),
            ],
            key: PrimaryKey::Columns(vec![KeyColumn::ascending(0)]),
            family: "notes".to_owned(),
            read_only: false,
            splits: Vec::new(),
        }
    }

    /// Converts rows of these bytes. Returns the number of slices, or the failure.
    fn converted(rows: &[&[u8]]) -> Result<usize, DefineError> {
        let simulation = Simulation::new(Schema::new().table::<Notes>(), 1, 1).unwrap();
        let worker = simulation.worker(WorkerId(0));
        let table = TableId(0);
        for (id, row) in (0_u64..).zip(rows) {
            let (key, mut tables) = (KeyBuf::from(&id.to_be_bytes()[..]), worker.shard().tables.borrow_mut());
            let (place, _) = tables.locate(table, &key);
            tables.partition_mut(place).load(&key, row).unwrap();
        }
        let before = Definitions { trees: vec![TreeDef::Table(notes())], foreign_keys: Vec::new() };
        let mut after = notes();
        after.columns.push(ColumnDef { nullable: true, ..ColumnDef::new("more", ColumnType::Bool) });
        let converter = Converter::adding(&before, table, after).unwrap();
        let mut slices = 0;
        while !convert_slice(worker, table, &converter).map_err(|error| cannot_convert("notes", &error))? {
            slices += 1;
        }
        let copies = worker.shard().copies.take();
        assert_eq!(copies.partitions[0].as_ref().unwrap().tree().len(), rows.len() as u64);
        Ok(slices)
    }

    fn note(bytes: usize) -> Vec<u8> {
        let mut row = Vec::new();
        atrapos_storage::push_variable(&vec![7; bytes], &mut row);
        row
    }

    #[test]
    fn slices_are_bounded_by_rows_and_by_bytes() {
        let (short, long) = (note(1), note(SLICE_BYTES / 2));
        assert_eq!(converted(&vec![&*short; SLICE]).unwrap(), 1);
        assert_eq!(converted(&vec![&*short; SLICE + 1]).unwrap(), 2);
        assert_eq!(converted(&[&*long; 5]).unwrap(), 3);
    }

    #[test]
    fn a_row_that_does_not_fit_its_definition_is_damage() {
        let sound = note(3);
        let error = converted(&[&sound, &sound[..sound.len() - 1]]).unwrap_err();
        let DefineError::Damaged(sentence) = error else { panic!("{error:?}") };
        assert!(
            sentence.contains("key") && sentence.contains("restore the database from a backup"),
            "{sentence}"
        );
    }
}
