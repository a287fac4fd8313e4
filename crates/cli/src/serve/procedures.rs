//! The procedures of a workload, for statements that call them.
//!
//! Owns: the way from a workload's name to its procedures. Never: makes or loads its tables; `bench` does.

use atrapos::Database;
use atrapos_sql::SqlProcedures;
use atrapos_workloads::Workload;
use atrapos_workloads::registry::{Choice, Common, Options, Registrar, Visitor, register};

use crate::error::CliError;

/// Finds the workload of a name, and registers its procedures.
struct Find<'a> {
    name: &'a str,
    database: &'a Database,
    names: Vec<&'static str>,
    found: Option<Result<SqlProcedures, CliError>>,
}

/// Registers the procedures of a workload.
struct Register<'a>(&'a Database);

impl Visitor for Register<'_> {
    type Output = Result<SqlProcedures, CliError>;

    fn visit<W: Workload>(self, workload: W, _choice: Choice) -> Self::Output {
        let mut procedures = SqlProcedures::default();
        workload.register(&mut procedures, self.0).map_err(|error| {
            CliError::bad_input(format!("{error}; load the tables with `atrapos bench` and its option --dir"))
        })?;
        Ok(procedures)
    }
}

impl Registrar for Find<'_> {
    fn add<O: Options>(&mut self) {
        self.names.push(O::NAME);
        if O::NAME != self.name {
            return;
        }
        // Procedures do not depend on the options, of which all have defaults.
        let matches = O::augment_args(clap::Command::new(O::NAME)).get_matches_from([O::NAME]);
        let given = O::from_arg_matches(&matches).map_err(CliError::failed);
        let common = Common { workers: self.database.workers(), seed: 1 };
        self.found = Some(given.and_then(|options| {
            options.configure(common, Register(self.database)).map_err(CliError::failed).and_then(|done| done)
        }));
    }
}

/// Returns the procedures of a workload, for a database that has its tables.
pub(super) fn of(name: &str, database: &Database) -> Result<SqlProcedures, CliError> {
    let mut find = Find { name, database, names: Vec::new(), found: None };
    register(&mut find);
    let names = find.names.join(", ");
    find.found.unwrap_or_else(|| {
        Err(CliError::bad_input(format!("there is no workload '{name}' with procedures; there are {names}")))
    })
}
