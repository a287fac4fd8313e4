//! Statements in the middle of a history: the tables are made at run time, get columns and indexes, are dropped and
//! made again.
//!
//! Owns: the definitions, and the client that makes the statements and records their effects. Never: reads a row.
//!
//! For the history the definition of the cells is one more row ([`DEFINITION`]): statements that create the table,
//! change it and drop it write its versions, and a transaction that uses the cells has read the one that its handle is
//! of. So a transaction that saw a table partly before and partly after a statement, or as it was before a statement
//! that had ended, has no place in an order.

use std::sync::Arc;

use atrapos::catalog::{ColumnDef, ColumnType, IndexDef, IndexPart, KeyColumn, PrimaryKey, TableDef, Value};
use atrapos::sim::Simulation;
use atrapos::{AbortReason, Database, DefineError, Index, NewTable, Table};
use atrapos_history::{Entry, Event, Found, Outcome};
use atrapos_workloads::Random;

use super::schema::{ByGroup, CELLS, Cells, GROUPS, Lists, SLOTS, Tombs, list_key};
use super::tables::number;
use super::{Journal, SESSIONS_MAX, Shared};

/// The session of the statements among those of a round.
const SESSION: u64 = SESSIONS_MAX - 2;
/// Name of the definition of the cells in the history.
pub(super) const DEFINITION: u64 = u64::MAX - 1;
/// The group of the definition, which no transaction reads.
const OF_DEFINITION: u32 = u32::MAX;
/// The column whose default is the number of the statement that created the table.
pub(super) const BORN: &str = "born";
/// Columns of the cells when they are created.
pub(super) const CELL_COLUMNS: usize = 6;
/// Number of columns added to them at most.
const ADDED_MAX: u64 = 4;

/// Returns the record of a read that found a definition. Each statement has replaced the definition left by the one
/// before it.
pub(super) fn definition_found(statement: u64) -> Found {
    Found { version: statement, over: statement - 1, group: Some(OF_DEFINITION) }
}

fn unsigned(name: &str) -> ColumnDef {
    ColumnDef::new(name, ColumnType::Unsigned(8))
}

fn table(name: &str, columns: Vec<ColumnDef>, splits: &[u64]) -> TableDef {
    TableDef {
        name: name.to_owned(),
        columns,
        key: PrimaryKey::Columns(vec![KeyColumn::ascending(0)]),
        family: name.to_owned(),
        read_only: false,
        splits: splits.iter().map(|split| split.to_be_bytes().to_vec()).collect(),
    }
}

fn cells(born: u64) -> TableDef {
    let mut columns = ["id", "version", "over", "group"].map(unsigned).to_vec();
    columns.push(ColumnDef::new("text", ColumnType::String));
    columns.push(ColumnDef { default: Some(number(born)), ..unsigned(BORN) });
    table(Cells::NAME, columns, &[CELLS / 4, CELLS / 2, CELLS - 9])
}

fn by_group() -> IndexDef {
    IndexDef {
        name: ByGroup::NAME.to_owned(),
        of: 0,
        parts: vec![IndexPart::Column(KeyColumn::ascending(3))],
        unique: false,
        family: ByGroup::NAME.to_owned(),
        splits: (1..u64::from(GROUPS)).map(|group| group.to_be_bytes().to_vec()).collect(),
    }
}

fn added(name: &str) -> ColumnDef {
    ColumnDef { default: Some(Value::Text("added".to_owned())), ..ColumnDef::new(name, ColumnType::String) }
}

/// Target of statements: a database, or a simulation of one.
pub trait Definable {
    /// Creates a table.
    ///
    /// # Errors
    /// Fails like [`Database::create_table`].
    fn create_table(&self, table: NewTable) -> Result<(), DefineError>;
    /// Drops a table.
    ///
    /// # Errors
    /// Fails like [`Database::drop_table`].
    fn drop_table(&self, name: &str) -> Result<(), DefineError>;
    /// Creates an index.
    ///
    /// # Errors
    /// Fails like [`Database::create_index`].
    fn create_index(&self, table: &str, index: IndexDef) -> Result<(), DefineError>;
    /// Drops an index.
    ///
    /// # Errors
    /// Fails like [`Database::drop_index`].
    fn drop_index(&self, name: &str) -> Result<(), DefineError>;
    /// Adds a column.
    ///
    /// # Errors
    /// Fails like [`Database::add_column`].
    fn add_column(&self, table: &str, column: ColumnDef) -> Result<(), DefineError>;
}

macro_rules! definable {
    ($($kind:ty),*) => {$(
        impl Definable for $kind {
            fn create_table(&self, table: NewTable) -> Result<(), DefineError> {
                self.create_table(table).map(drop)
            }

            fn drop_table(&self, name: &str) -> Result<(), DefineError> {
                self.drop_table(name)
            }

            fn create_index(&self, table: &str, index: IndexDef) -> Result<(), DefineError> {
                self.create_index(table, index).map(drop)
            }

            fn drop_index(&self, name: &str) -> Result<(), DefineError> {
                self.drop_index(name)
            }

            fn add_column(&self, table: &str, column: ColumnDef) -> Result<(), DefineError> {
                self.add_column(table, column).map(drop)
            }
        }
    )*};
}

definable!(Database, Simulation);

/// The client that makes statements. There is one in a round.
#[derive(Debug)]
pub struct Definer<J> {
    shared: Arc<Shared>,
    session: u64,
    journal: J,
    random: Random,
    /// The number of the last statement that wrote the definition of the cells.
    last: u64,
    /// Number of columns added to the cells, while there is a table of them.
    cells: Option<u64>,
    has_index: bool,
    /// Number of columns added to the lists.
    lists: u64,
    /// The end of a drop of the cells whose outcome was not reported, if it has taken effect.
    dropped: Option<Entry>,
}

impl<J: Journal> Definer<J> {
    /// Creates the tables in a new database.
    ///
    /// # Errors
    /// Returns a description of the statement that failed, or of the failure of the journal.
    pub fn new(db: &impl Definable, shared: &Arc<Shared>, journal: J) -> Result<Definer<J>, String> {
        let session = shared.session(SESSION);
        let random = Random::of_stream(shared.seed ^ 0x6465_6669_6e65, session);
        let (last, cells, has_index, lists, dropped) = Default::default();
        let shared = Arc::clone(shared);
        let mut definer =
            Definer { shared, session, journal, random, last, cells, has_index, lists, dropped };
        let slots: Vec<u64> = (1..SLOTS).map(|slot| list_key(slot, 0)).collect();
        let bytes = ColumnDef::new("bytes", ColumnType::VarBytes);
        let tombs = table(Tombs::NAME, ["id", "version", "over"].map(unsigned).to_vec(), &[]);
        let lists = table(Lists::NAME, vec![unsigned("id"), bytes], &slots);
        let made = db.create_table(tombs.into()).and_then(|()| db.create_table(lists.into()));
        made.map_err(|error| error.to_string())?;
        match definer.create(db, true)? {
            Progress::Made => Ok(definer),
            Progress::Ended => Err("the tables could not be made".to_owned()),
        }
    }

    /// Returns the journal, at the end.
    pub fn into_journal(self) -> J {
        self.journal
    }

    /// Returns the number of statements that have written the definition of the cells.
    #[must_use]
    pub fn definitions(&self) -> u64 {
        self.last
    }

    /// Makes one statement. The last of a round leaves a table of cells.
    ///
    /// # Errors
    /// Returns a description of the statement that failed, or of the failure of the journal.
    pub fn step(&mut self, db: &impl Definable, is_last: bool) -> Result<Progress, String> {
        let Some(added_before) = self.cells else {
            let with_index = self.random.below(2) == 0;
            return self.create(db, with_index);
        };
        match self.random.below(8) {
            _ if is_last => Ok(Progress::Made),
            0 => self.drop_cells(db),
            1 | 2 if added_before < ADDED_MAX => self.add_column(db, added_before),
            3 if self.lists < ADDED_MAX => {
                self.lists += 1;
                let column = added(&format!("more{}", self.lists));
                told(db.add_column(Lists::NAME, column))
            }
            _ if self.has_index => {
                self.has_index = false;
                told(db.drop_index(ByGroup::NAME))
            }
            _ => {
                self.has_index = true;
                told(db.create_index(Cells::NAME, by_group()))
            }
        }
    }

    fn create(&mut self, db: &impl Definable, with_index: bool) -> Result<Progress, String> {
        let indexes = if with_index { vec![by_group()] } else { Vec::new() };
        let found = match self.last {
            0 => Found::NEVER,
            last => Found { group: None, ..definition_found(last) },
        };
        let table = NewTable { table: cells(self.last + 1), indexes, foreign_keys: Vec::new() };
        let made = self.define(found, Some(OF_DEFINITION), || db.create_table(table))?;
        (self.cells, self.has_index) = (Some(0), with_index);
        Ok(made)
    }

    fn drop_cells(&mut self, db: &impl Definable) -> Result<Progress, String> {
        let found = definition_found(self.last);
        let made = self.define(found, None, || db.drop_table(Cells::NAME))?;
        (self.cells, self.has_index) = (None, false);
        Ok(made)
    }

    fn add_column(&mut self, db: &impl Definable, added_before: u64) -> Result<Progress, String> {
        let (found, column) = (definition_found(self.last), added(&format!("more{}", added_before + 1)));
        let made = self.define(found, Some(OF_DEFINITION), || db.add_column(Cells::NAME, column))?;
        self.cells = Some(added_before + 1);
        Ok(made)
    }

    /// Makes a statement that writes the definition of the cells.
    fn define(
        &mut self,
        found: Found,
        group: Option<u32>,
        statement: impl FnOnce() -> Result<(), DefineError>,
    ) -> Result<Progress, String> {
        let (session, version) = (self.session, self.last + 1);
        let writes = vec![(DEFINITION, version)];
        self.journal.write(Entry::Begins { session, at: self.shared.now(), writes, appends: vec![] })?;
        let progress = told(statement())?;
        let events = vec![Event::Write { key: DEFINITION, found, version, group }];
        let end = Entry::Ends { session, at: self.shared.now(), outcome: Outcome::Committed, events };
        if progress == Progress::Ended {
            self.dropped = group.is_none().then_some(end);
            return Ok(Progress::Ended);
        }
        self.last = version;
        self.journal.write(end)?;
        Ok(Progress::Made)
    }

    /// Returns the end of a drop of the cells whose outcome was not reported. It belongs to the history if the table turns out to be gone:
    /// what is gone has no version that would say so.
    pub fn dropped(self) -> Option<Entry> {
        self.dropped
    }
}

/// Outcome of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The statement was executed.
    Made,
    /// The database ended before the outcome was reported.
    Ended,
}

fn told(statement: Result<(), DefineError>) -> Result<Progress, String> {
    match statement {
        Ok(()) => Ok(Progress::Made),
        Err(DefineError::Aborted(abort)) if abort.reason() == AbortReason::ShuttingDown => {
            Ok(Progress::Ended)
        }
        Err(error) => Err(format!("a statement should not have failed: {error}")),
    }
}
