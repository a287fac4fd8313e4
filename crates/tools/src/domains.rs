//! `atrapos domains`: from structures to virtual domains that run.
//!
//! Owns: the choice of the step, and what the steps have in common. Never: measures, composes or runs; the libraries do.

mod calibrate;
mod compose;
mod run;
mod search;
mod structures;

use std::path::Path;

use atrapos_cli::error::CliError;
use atrapos_composition::CompositionError;

use crate::args::DomainsCommand;

/// Runs `atrapos domains`.
pub(crate) fn domains(command: &DomainsCommand) -> Result<(), CliError> {
    match command {
        DomainsCommand::Calibrate(args) => calibrate::calibrate(args),
        DomainsCommand::Compose(args) => compose::compose(args),
        DomainsCommand::Run(args) => run::run(args),
    }
}

/// Returns the text of a file that a user has named.
fn read(what: &str, path: &Path, cure: &str) -> Result<String, CliError> {
    std::fs::read_to_string(path).map_err(|error| {
        CliError::bad_input(format!("the {what} {} cannot be read: {error}; {cure}", path.display()))
    })
}

/// Returns the failure of a composition.
fn refused(error: CompositionError) -> CliError {
    match error {
        CompositionError::Unresolved { .. } => CliError::failed(error),
        error => CliError::bad_input(error),
    }
}
