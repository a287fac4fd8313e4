//! Errors of the command, as its user sees them.
//!
//! Owns: the exit status of each failure. Never: prints.

use std::fmt;
use std::process::ExitCode;

/// A failure that ends the program; its text is one sentence.
#[derive(Debug)]
pub enum CliError {
    /// The arguments are invalid, or cannot be satisfied here. No work was begun.
    BadInput(String),
    /// An operation failed that should have worked.
    Failed(String),
}

impl CliError {
    /// Creates the failure of what cannot be asked for.
    pub fn bad_input(why: impl fmt::Display) -> CliError {
        CliError::BadInput(why.to_string())
    }

    /// Creates the failure of what should have worked.
    pub fn failed(why: impl fmt::Display) -> CliError {
        CliError::Failed(why.to_string())
    }

    /// Returns 2 for bad input, as for arguments that cannot be parsed; 1 for failures.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            CliError::BadInput(_) => ExitCode::from(2),
            CliError::Failed(_) => ExitCode::from(1),
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CliError::BadInput(why) | CliError::Failed(why) => f.write_str(why),
        }
    }
}
