//! The procedures of a workload, for statements that call them (`serve --procedures`).
//!
//! Procedures are compiled where they are registered. Here they are optimised; the command line is not.
//!
//! Owns: the way from a workload's name to its procedures. Never: makes or loads its tables; `bench` does.

use atrapos::{Database, RegisterError};
use atrapos_sql::SqlProcedures;
use atrapos_workloads::Workload;
use atrapos_workloads::registry::{Choice, Common, Options, Registrar, Visitor, register};

/// Reasons for which there are no procedures of a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoProcedures {
    /// No workload has the name.
    #[error("there is no workload '{name}' with procedures; there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names of all workloads.
        known: String,
    },
    /// The database does not have its tables.
    #[error("{0}; load the tables with `atrapos bench` and its option --dir")]
    NoTables(#[from] RegisterError),
    /// The workload cannot be configured.
    #[error("workload '{name}' cannot be configured: {why}")]
    NotConfigured {
        /// The name.
        name: String,
        /// The reason.
        why: String,
    },
}

/// Finds the workload of a name, and registers its procedures.
struct Find<'a> {
    name: &'a str,
    database: &'a Database,
    names: Vec<&'static str>,
    found: Option<Result<SqlProcedures, NoProcedures>>,
}

/// Registers the procedures of a workload.
struct Register<'a>(&'a Database);

impl Visitor for Register<'_> {
    type Output = Result<SqlProcedures, NoProcedures>;

    fn visit<W: Workload>(self, workload: W, _choice: Choice) -> Self::Output {
        let mut procedures = SqlProcedures::default();
        workload.register(&mut procedures, self.0)?;
        Ok(procedures)
    }
}

impl Find<'_> {
    fn find<O: Options>(&self) -> Result<SqlProcedures, NoProcedures> {
        let wrong = |why: String| NoProcedures::NotConfigured { name: self.name.to_owned(), why };
        // Procedures do not depend on the options, of which all have defaults.
        let matches = O::augment_args(clap::Command::new(O::NAME)).get_matches_from([O::NAME]);
        let options = O::from_arg_matches(&matches).map_err(|error| wrong(error.to_string()))?;
        let common = Common { workers: self.database.workers(), seed: 1 };
        options.configure(common, Register(self.database)).map_err(|error| wrong(error.to_string()))?
    }
}

impl Registrar for Find<'_> {
    fn add<O: Options>(&mut self) {
        self.names.push(O::NAME);
        if O::NAME == self.name {
            self.found = Some(self.find::<O>());
        }
    }
}

/// Returns the procedures of a workload, for a database that has its tables.
///
/// # Errors
/// See [`NoProcedures`].
pub fn procedures_of(name: &str, database: &Database) -> Result<SqlProcedures, NoProcedures> {
    let mut find = Find { name, database, names: Vec::new(), found: None };
    register(&mut find);
    let known = find.names.join(", ");
    find.found.unwrap_or_else(|| Err(NoProcedures::Unknown { name: name.to_owned(), known }))
}

#[cfg(test)]
mod tests {
    use atrapos::Schema;

    use super::*;

    #[test]
    fn what_is_not_there_is_named() {
        let database = Database::builder(Schema::new()).workers(1).pin(false).huge_pages(false).in_memory();
        let database = database.expect("a database without tables opens");
        let why = procedures_of("tpcd", &database).expect_err("there is no such workload").to_string();
        assert!(why.contains("no workload 'tpcd'") && why.contains("tpcc"), "{why}");
        let why = procedures_of("tpcc", &database).expect_err("it has no tables").to_string();
        assert!(why.contains("load the tables with `atrapos bench`"), "{why}");
    }
}
