//! The bugs that `torture --planted` plants in the children, by name.
//!
//! Owns: the names. Never: is in a build that serves data.

use atrapos::planted::Bug;
use atrapos_cli::error::CliError;

/// Bugs that can lose, invent or tear data when a process is killed, or show in a history.
const BUGS: [(&str, Bug); 14] = [
    ("last-record-skipped", Bug::LastRecordSkipped),
    ("versions-ignored", Bug::VersionsIgnored),
    ("segment-removed-early", Bug::SegmentRemovedEarly),
    ("checkpoint-of-unfinished", Bug::CheckpointOfUnfinished),
    ("closed-table-left-out", Bug::ClosedTableLeftOut),
    ("epoch-read-before-lock", Bug::EpochReadBeforeLock),
    ("told-before-sync", Bug::ToldBeforeSync),
    ("reader-told-early", Bug::ReaderToldEarly),
    ("undo-skips-second-table", Bug::UndoSkipsSecondTable),
    ("scan-not-locked", Bug::ScanNotLocked),
    ("entry-left-behind", Bug::EntryLeftBehind),
    ("fill-not-locked", Bug::FillNotLocked),
    ("index-before-filled", Bug::IndexBeforeFilled),
    ("statement-not-saved", Bug::StatementNotSaved),
];

/// Returns the bug with this name.
pub(crate) fn named(name: &str) -> Result<Bug, CliError> {
    let found = BUGS.iter().find(|(known, _)| *known == name);
    found.map(|(_, bug)| *bug).ok_or_else(|| {
        let names: Vec<&str> = BUGS.iter().map(|(name, _)| *name).collect();
        CliError::bad_input(format!("there is no mistake '{name}'; choose one of {}", names.join(", ")))
    })
}
