//! What can go wrong for somebody at the command line.
//!
//! Owns: which failure gives which exit status. Never: prints.

use std::fmt;
use std::process::ExitCode;

/// An end of the program that is not a success; its text is one sentence.
#[derive(Debug)]
pub(crate) enum CliError {
    /// What was asked for makes no sense, or cannot be had here. Nothing was begun.
    BadInput(String),
    /// Something failed that should have worked.
    Failed(String),
}

impl CliError {
    pub(crate) fn bad_input(why: impl fmt::Display) -> CliError {
        CliError::BadInput(why.to_string())
    }

    pub(crate) fn failed(why: impl fmt::Display) -> CliError {
        CliError::Failed(why.to_string())
    }

    /// 2 for bad input, as for arguments that cannot be parsed; 1 for failures.
    pub(crate) fn exit_code(&self) -> ExitCode {
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
