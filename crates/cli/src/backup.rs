//! `atrapos backup`: a copy of a database that may be running.
//!
//! Owns: the report about it. Never: copies anything itself.

use atrapos_durability::backup::{BackupError, backup as copy};

use crate::args::BackupArgs;
use crate::error::CliError;
use crate::inspect::refused;
use crate::table::{count, mib};
use crate::{output, store};

/// Runs `atrapos backup`.
pub(crate) fn backup(args: &BackupArgs) -> Result<(), CliError> {
    let report = copy(store::files(), &args.directory, &args.to).map_err(|error| match error {
        BackupError::Original(error) | BackupError::Copy(error) => refused(error),
        error => CliError::failed(error),
    })?;
    let checkpoint = match report.checkpoint {
        Some(number) => format!("checkpoint {number} ({})", mib(report.checkpoint_bytes)),
        None => "no checkpoint".to_owned(),
    };
    output::print(&format!(
        "{} copied to {}: {checkpoint} and {} WAL segments ({}), verified; open it to restore the database\n",
        args.directory.display(),
        report.path.display(),
        count(report.segments),
        mib(report.wal_bytes),
    ))
}
