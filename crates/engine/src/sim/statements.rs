//! Statements in a simulation: the caller's thread makes them as it makes those of a database, and where it would sleep, it steps
//! the workers.
//!
//! Owns: what a statement is given, and how many steps it may take. Never: makes a step of a statement itself; [`crate::ddl`] does.

use std::rc::Rc;
use std::time::Duration;

use atrapos_catalog::{ColumnDef, IndexDef};

use super::Simulation;
use crate::ddl::{DefineError, NewTable, SchemeLock, Statements};
use crate::schema::TableId;
use crate::waiting::{self, Stepper};

/// How long a statement waits for transactions, by the clock of the simulation.
const PATIENCE: Duration = Duration::from_secs(10);

impl Simulation {
    /// Creates a table. See [`Database::create_table`](crate::Database::create_table).
    ///
    /// # Errors
    /// As there; the database is shutting down when the statement has taken more than
    /// [`statement_steps`](Simulation::set_statement_steps) steps.
    pub fn create_table(&self, table: impl Into<NewTable>) -> Result<TableId, DefineError> {
        self.statement(|statements| statements.create_table(table.into()))
    }

    /// Drops a table. See [`Database::drop_table`](crate::Database::drop_table).
    ///
    /// # Errors
    /// As for [`create_table`](Simulation::create_table).
    pub fn drop_table(&self, name: &str) -> Result<(), DefineError> {
        self.statement(|statements| statements.drop_table(name))
    }

    /// Creates an index. See [`Database::create_index`](crate::Database::create_index).
    ///
    /// # Errors
    /// As for [`create_table`](Simulation::create_table).
    pub fn create_index(&self, table: &str, index: IndexDef) -> Result<TableId, DefineError> {
        self.statement(|statements| statements.create_index(table, index))
    }

    /// Drops an index. See [`Database::drop_index`](crate::Database::drop_index).
    ///
    /// # Errors
    /// As for [`create_table`](Simulation::create_table).
    pub fn drop_index(&self, name: &str) -> Result<(), DefineError> {
        self.statement(|statements| statements.drop_index(name))
    }

    /// Adds a column. See [`Database::add_column`](crate::Database::add_column).
    ///
    /// # Errors
    /// As for [`create_table`](Simulation::create_table).
    pub fn add_column(&self, table: &str, column: ColumnDef) -> Result<TableId, DefineError> {
        self.statement(|statements| statements.add_column(table, column))
    }

    /// Sets how many steps may be made from now on while statements wait. Then the statement under way is given up where it is, as
    /// by a crash: what the files hold can be looked at, and nothing else can be made of the simulation.
    pub fn set_statement_steps(&self, steps: u64) {
        self.statement_steps.set(steps);
    }

    fn statement<R>(&self, statement: impl FnOnce(&Statements<'_>) -> R) -> R {
        let (stepper, left) = (Rc::clone(&self.stepper), Rc::clone(&self.statement_steps));
        let step: Stepper = Rc::new(move || {
            let goes_on = left.get() > 0;
            if goes_on {
                left.set(left.get() - 1);
                stepper.borrow_mut().step();
            }
            goes_on
        });
        let statements = Statements {
            handle: &self.handle,
            catalogs: &self.catalogs,
            published: &self.scheme,
            durable: self.durable.as_deref(),
            scheme_lock: SchemeLock::Stepped(&self.scheme_token),
            patience: PATIENCE,
        };
        waiting::stepping(step, || statement(&statements))
    }
}
