//! Schema statements in a simulation: the caller's thread runs them like those of a database, and steps the workers where it
//! would sleep.
//!
//! Owns: the environment of a statement, and its limit of steps. Never: runs a step of a statement itself; [`crate::ddl`]
//! does.

use std::rc::Rc;
use std::time::Duration;

use atrapos_catalog::{ColumnDef, IndexDef};
use atrapos_partition::schema::TableId;
use atrapos_transaction::waiting::{self, Stepper};

use super::Simulation;
use crate::checkpoint::{CheckpointFailure, CheckpointReport, Pace};
use crate::ddl::{DefineError, NewForeignKey, NewTable, SchemeLock, Statements};

/// The time that a statement waits for transactions, by the clock of the simulation.
const PATIENCE: Duration = Duration::from_secs(10);

impl Simulation {
    /// Creates a table. See [`Database::create_table`](crate::Database::create_table).
    ///
    /// # Errors
    /// The errors of that function; [`AbortReason::ShuttingDown`](atrapos_partition::abort::AbortReason::ShuttingDown) after more steps than
    /// [`set_statement_steps`](Simulation::set_statement_steps) allows.
    pub fn create_table(&self, table: impl Into<NewTable>) -> Result<TableId, DefineError> {
        self.statement(|statements| statements.create_table(table.into()))
    }

    /// Drops a table. See [`Database::drop_table`](crate::Database::drop_table).
    ///
    /// # Errors
    /// The errors of [`create_table`](Simulation::create_table).
    pub fn drop_table(&self, name: &str) -> Result<(), DefineError> {
        self.statement(|statements| statements.drop_table(name))
    }

    /// Creates an index. See [`Database::create_index`](crate::Database::create_index).
    ///
    /// # Errors
    /// The errors of [`create_table`](Simulation::create_table).
    pub fn create_index(&self, table: &str, index: IndexDef) -> Result<TableId, DefineError> {
        self.statement(|statements| statements.create_index(table, index))
    }

    /// Drops an index. See [`Database::drop_index`](crate::Database::drop_index).
    ///
    /// # Errors
    /// The errors of [`create_table`](Simulation::create_table).
    pub fn drop_index(&self, name: &str) -> Result<(), DefineError> {
        self.statement(|statements| statements.drop_index(name))
    }

    /// Adds a column. See [`Database::add_column`](crate::Database::add_column).
    ///
    /// # Errors
    /// The errors of [`create_table`](Simulation::create_table).
    pub fn add_column(&self, table: &str, column: ColumnDef) -> Result<TableId, DefineError> {
        self.statement(|statements| statements.add_column(table, column))
    }

    /// Drops a column. See [`Database::drop_column`](crate::Database::drop_column).
    ///
    /// # Errors
    /// The errors of [`create_table`](Simulation::create_table).
    pub fn drop_column(&self, table: &str, column: &str) -> Result<TableId, DefineError> {
        self.statement(|statements| statements.drop_column(table, column))
    }

    /// Adds a foreign key. See [`Database::add_foreign_key`](crate::Database::add_foreign_key).
    ///
    /// # Errors
    /// The errors of [`create_table`](Simulation::create_table).
    pub fn add_foreign_key(&self, child: &str, key: &NewForeignKey) -> Result<(), DefineError> {
        self.statement(|statements| statements.add_foreign_key(child, key))
    }

    /// Drops a foreign key. See [`Database::drop_foreign_key`](crate::Database::drop_foreign_key).
    ///
    /// # Errors
    /// The errors of [`create_table`](Simulation::create_table).
    pub fn drop_foreign_key(
        &self,
        child: &str,
        parent: &str,
        through: Option<&str>,
    ) -> Result<(), DefineError> {
        self.statement(|statements| statements.drop_foreign_key(child, parent, through))
    }

    /// Sets the number of steps that may be made from now on while statements wait. After them the statement under way stops
    /// where it is, as by a crash: the files can be inspected, and the simulation is not usable any more.
    pub fn set_statement_steps(&self, steps: u64) {
        self.statement_steps.set(steps);
    }

    /// Makes a checkpoint. See [`Database::checkpoint`](crate::Database::checkpoint).
    ///
    /// # Errors
    /// The errors of that function.
    ///
    /// # Panics
    /// If the database has no directory.
    pub fn checkpoint(&self) -> Result<CheckpointReport, CheckpointFailure> {
        let durable = self.durable.as_ref().expect("a database with a directory has checkpoints");
        self.stepping(|| durable.checkpoint(Pace::Full))
    }

    fn statement<R>(&self, statement: impl FnOnce(&Statements<'_>) -> R) -> R {
        let statements = Statements {
            handle: &self.handle,
            catalogs: &self.catalogs,
            published: &self.scheme,
            durable: self.durable.as_deref(),
            scheme_lock: SchemeLock::Stepped(&self.scheme_token),
            patience: PATIENCE,
            is_instance: self.is_instance,
        };
        self.stepping(|| statement(&statements))
    }

    /// Runs a function that waits for the workers, which this thread steps.
    fn stepping<R>(&self, run: impl FnOnce() -> R) -> R {
        let (stepper, left) = (Rc::clone(&self.stepper), Rc::clone(&self.statement_steps));
        let step: Stepper = Rc::new(move || {
            let goes_on = left.get() > 0;
            if goes_on {
                left.set(left.get() - 1);
                stepper.borrow_mut().step();
            }
            goes_on
        });
        waiting::stepping(step, run)
    }
}
