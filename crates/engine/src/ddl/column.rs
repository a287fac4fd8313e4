//! Columns that are added to tables.
//!
//! A table with another column is another table: it has a number of its own, and rows of another shape. The old one is closed
//! for good; each worker makes converted copies of its partitions, a few rows at a time between its other tasks; then the number
//! of the old table is nothing, and indexes and foreign keys are those of the new one. Keys stay as they are, so entries of indexes
//! do, and partitions keep their places.
//!
//! The copies leave no records in the WAL. They are durable, and the statement has happened, when a checkpoint that has them is
//! published together with the definitions, as after a load.
//!
//! Invariant: nobody can name the new table before that, and no worker changes the old one once it has begun to convert it.

use std::cell::RefMut;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

use atrapos_catalog::{ColumnDef, Definitions, IndexPart, RowLayout, TableDef, TreeDef, Value, ValueError};
use atrapos_storage::{BulkError, BulkLoader, DisplayKey, KeyBuf, TreeConfig};

use super::switch::{HeldState, Until};
use super::{DefineError, Statements, check, find_table, next_number};
use crate::checkpoint::{CheckpointFailure, Pace};
use crate::database::Database;
use crate::load::FILL;
use crate::partition::{Closing, Partition, PartitionId, TableShard};
use crate::schema::{Catalog, Phase, TableId};
use crate::shard::{EngineWorker, Shard};

/// Rows that a worker converts at a time, at most.
const SLICE: usize = 256;

/// Bytes of converted rows after which it does something else first. One row may have more.
const SLICE_BYTES: usize = 256 << 10;

impl Database {
    /// Adds a column, behind those that are there, to a table. Rows that are there get its default, or NULL. Waits for the
    /// transactions that have used the table; those that use it until this returns are aborted
    /// ([`AbortReason::TableChanged`](crate::AbortReason)), as are those that use a handle from before: get it again. Returns the
    /// new number of the table.
    ///
    /// Takes memory for a second copy of the table and, for a database with a directory, a checkpoint.
    ///
    /// # Errors
    /// A table that is not there, a column that is, a column that is neither NULL nor has a default, a default that does not fit,
    /// an index whose key is computed from the rows by code, transactions that do not end within the patience of the database,
    /// memory that is not there, files that cannot be written. Nothing has changed then.
    pub fn add_column(&self, table: &str, column: ColumnDef) -> Result<TableId, DefineError> {
        self.statements().add_column(table, column)
    }
}

impl Statements<'_> {
    /// Adds a column. See [`Database::add_column`].
    pub(crate) fn add_column(&self, table: &str, column: ColumnDef) -> Result<TableId, DefineError> {
        let _statement = self.begin_statement()?;
        let before = self.catalogs.working();
        let old = find_table(&before, table)?;
        refuse_column(&before.definitions, old, &column)?;
        let new = next_number(&before.definitions)?;
        let mut definitions = before.definitions.clone();
        let after = with_column(&mut definitions, old, new, column);
        check(&definitions)?;
        let converter = Arc::new(Converter::new(&before.definitions, old, after)?);
        // Both tables, of one name, for as long as rows are converted; nobody sees this.
        let mut both = before.definitions.clone();
        both.trees.push(definitions.trees[new.at()].clone());
        let both = Arc::new(before.changed(both, &BTreeMap::from([(new, Phase::Announced)])));
        let after = Arc::new(before.changed(definitions, &BTreeMap::new()));

        let _scheme = self.keep_scheme()?;
        if let Err(error) = self.close_and_drain(&before, &[old], Closing::Refused, Until::Unused) {
            self.reopen(&[old])?;
            return Err(error);
        }
        // No checkpoint may have the one table without the other.
        let mut state = self.hold_state();
        let done = self
            .convert(&before, &both, &converter, old, new)
            .and_then(|()| self.replace_table(&mut state, &both, &after, old));
        if let Err(error) = done {
            self.forget_copies(&before, &both, new)?;
            self.reopen(&[old])?;
            return Err(error);
        }
        Ok(new)
    }

    /// Makes the copies, as partitions of the new table. The caller keeps scheme and state.
    fn convert(
        &self,
        before: &Catalog,
        both: &Arc<Catalog>,
        converter: &Arc<Converter>,
        old: TableId,
        new: TableId,
    ) -> Result<(), DefineError> {
        self.adopt(both, &self.scheme_of(before, both)?)?;
        loop {
            let converter = Arc::clone(converter);
            let sliced = self.on_all_workers(move |worker| convert_slice(worker, old, &converter))?;
            let done = sliced.into_iter().collect::<Result<Vec<bool>, ConvertError>>();
            let done = done.map_err(|error| cannot_convert(before.tables[old.at()].name, &error))?;
            if done.into_iter().all(|done| done) {
                break;
            }
        }
        self.on_all_workers(move |worker| {
            let shard = worker.shard();
            let copies = shard.copies.take();
            let mut tables = shard.tables.borrow_mut();
            let scheme = Arc::clone(&tables.shards[new.at()].scheme);
            tables.shards[new.at()] = TableShard::new(scheme, copies.partitions);
        })?;
        Ok(())
    }

    /// Makes the new table durable, and the table that everybody sees.
    fn replace_table(
        &self,
        state: &mut HeldState<'_>,
        both: &Catalog,
        after: &Arc<Catalog>,
        old: TableId,
    ) -> Result<(), DefineError> {
        let scheme = self.scheme_of(both, after)?;
        if let Some((durable, state)) = state {
            let made = durable.checkpoint_defining(state, Pace::Full, Some(after.describe(&scheme)));
            made.map_err(|failure| match failure {
                CheckpointFailure::Refused(abort) => DefineError::Aborted(abort),
                failure => DefineError::NotSaved(failure.to_string()),
            })?;
        }
        self.close_trees(&[old], Closing::Dropped)?;
        self.adopt(after, &scheme)?;
        self.catalogs.show(Arc::clone(after));
        Ok(())
    }

    /// Forgets the copies of a table that could not be made, or not be saved. Their number is not used again.
    fn forget_copies(&self, before: &Catalog, both: &Catalog, new: TableId) -> Result<(), DefineError> {
        self.on_all_workers(|worker| drop(worker.shard().copies.take()))?;
        if self.catalogs.working().tables.len() <= new.at() {
            return Ok(());
        }
        let mut definitions = before.definitions.clone();
        definitions.trees.push(TreeDef::Dropped);
        let without = Arc::new(before.changed(definitions, &BTreeMap::new()));
        self.adopt(&without, &self.scheme_of(both, &without)?)?;
        self.catalogs.show(without);
        Ok(())
    }
}

fn refuse_column(definitions: &Definitions, table: TableId, column: &ColumnDef) -> Result<(), DefineError> {
    let (name, added) = (definitions.name_of(table.0), &column.name);
    if definitions.table(table.0).is_some_and(|table| table.columns.iter().any(|known| known.name == *added))
    {
        return Err(DefineError::NameTaken(format!(
            "table `{name}` has a column `{added}` already; choose another name"
        )));
    }
    if column.default.is_none() && !column.nullable {
        return Err(DefineError::Contradiction(format!(
            "the rows of table `{name}` have no value for the new column `{added}`; give it a default, or let it be NULL"
        )));
    }
    let is_computed = |part: &IndexPart| matches!(part, IndexPart::Computed { .. });
    let of_it = definitions.trees.iter().filter_map(TreeDef::as_index).filter(|index| index.of == table.0);
    match of_it.into_iter().find(|index| index.parts.iter().any(is_computed)) {
        Some(index) => Err(DefineError::InUse(format!(
            "index `{}` of table `{name}` is computed from rows without the new column, by code of a program; drop the index first",
            index.name
        ))),
        None => Ok(()),
    }
}

/// Gives a table another column and, with it, another number. Returns the table.
fn with_column(definitions: &mut Definitions, old: TableId, new: TableId, column: ColumnDef) -> TableDef {
    let before = std::mem::replace(&mut definitions.trees[old.at()], TreeDef::Dropped);
    let TreeDef::Table(mut table) = before else { unreachable!("it was found as a table") };
    table.columns.push(column);
    // Its family is there, and cut as it is today.
    let is_alone = !definitions.trees.iter().any(|tree| tree.family() == table.family);
    if !is_alone {
        table.splits.clear();
    }
    definitions.trees.push(TreeDef::Table(table.clone()));
    let follow = |number: &mut u16| {
        if *number == old.0 {
            *number = new.0;
        }
    };
    for tree in &mut definitions.trees {
        if let TreeDef::Index(index) = tree {
            follow(&mut index.of);
        }
    }
    for key in &mut definitions.foreign_keys {
        follow(&mut key.child);
        follow(&mut key.parent);
    }
    table
}

/// Why rows could not be converted.
#[derive(Debug)]
enum ConvertError {
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

fn cannot_convert(table: &str, error: &ConvertError) -> DefineError {
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

/// Rows of the old shape to rows of the new one.
struct Converter {
    from: RowLayout,
    to: RowLayout,
    added: Value,
    config: TreeConfig,
}

impl Converter {
    fn new(before: &Definitions, old: TableId, after: TableDef) -> Result<Converter, DefineError> {
        let Some(table) = before.table(old.0) else { unreachable!("it was found as a table") };
        let added = after.columns.last().and_then(|column| column.default.clone()).unwrap_or(Value::Null);
        let to = RowLayout::of_table(&after);
        let width = after.row_columns().map(|column| column.ty.width().unwrap_or(16)).sum();
        Ok(Converter { from: RowLayout::of_table(table), to, added, config: TreeConfig::for_rows_of(width) })
    }

    fn convert(&self, row: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
        let mut values = self.from.decode(row)?;
        values.push(self.added.clone());
        out.clear();
        self.to.encode(&values, out)
    }
}

/// The copies of a table that a worker has made so far.
#[derive(Default)]
pub(crate) struct Copies {
    partitions: Vec<Option<Box<Partition>>>,
    /// The partition that is being copied, its copy so far, and the key to go on with.
    current: Option<(u32, BulkLoader, KeyBuf)>,
}

/// Copies some rows of this worker's partitions. Returns whether that was all.
fn convert_slice(
    worker: &Rc<EngineWorker>,
    old: TableId,
    converter: &Converter,
) -> Result<bool, ConvertError> {
    let shard = worker.shard();
    let mut copies = shard.copies.borrow_mut();
    let Some((number, bulk, from)) = current(shard, &mut copies, old, converter) else { return Ok(true) };
    let tables = shard.tables.borrow();
    let partition = tables.partition(PartitionId { table: old, partition: *number });
    let mut rows = partition.tree.range(Bound::Included(&**from), Bound::Unbounded);
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

/// The copy that is under way, begun for the next partition when there is none; nothing when all are made.
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
    use atrapos_catalog::{ColumnType, KeyColumn, PrimaryKey};
    use atrapos_runtime::WorkerId;

    use super::*;
    use crate::schema::{Schema, Table};
    use crate::sim::Simulation;

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

    /// Puts rows of these bytes behind each other, and converts them. Returns in how many slices, or why not.
    fn converted(rows: &[&[u8]]) -> Result<usize, DefineError> {
        let simulation = Simulation::new(Schema::new().table::<Notes>(), 1, 1).unwrap();
        let worker = simulation.worker(WorkerId(0));
        let table = TableId(0);
        for (id, row) in (0_u64..).zip(rows) {
            let (key, mut tables) = (KeyBuf::from(&id.to_be_bytes()[..]), worker.shard().tables.borrow_mut());
            let (place, _) = tables.locate(table, &key);
            tables.partition_mut(place).tree.insert(&key, row, 1).unwrap();
        }
        let before = Definitions { trees: vec![TreeDef::Table(notes())], foreign_keys: Vec::new() };
        let mut after = notes();
        after.columns.push(ColumnDef { nullable: true, ..ColumnDef::new("more", ColumnType::Bool) });
        let converter = Converter::new(&before, table, after).unwrap();
        let mut slices = 0;
        while !convert_slice(worker, table, &converter).map_err(|error| cannot_convert("notes", &error))? {
            slices += 1;
        }
        let copies = worker.shard().copies.take();
        assert_eq!(copies.partitions[0].as_ref().unwrap().tree.len(), rows.len() as u64);
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
