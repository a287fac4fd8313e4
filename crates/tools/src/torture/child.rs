//! The process that `atrapos torture` starts and kills: it opens the database, checks it, and works on it until it is
//! ended.
//!
//! Owns: the settings of the database under torture: small segments and frequent checkpoints, so that a kill meets each
//! of their steps. Never: decides on its own end.

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use atrapos::RecoveryReport;
use atrapos_cli::error::CliError;
use atrapos_cli::{machine, output, store};
use atrapos_durability::directory::Directory;
use atrapos_proof::torture::{CheckReport, Torture};
use serde_json::{Value, json};

use crate::args::TortureChildArgs;
use crate::witness::WitnessFile;

/// The state in which a child reports that it is at work.
pub(crate) const READY: &str = "ready";

/// Bytes of a segment. They are few, so that segments end and are removed during all other steps, even in a slow build.
pub(super) const SEGMENT_BYTES: u64 = 16 << 10;
/// Bytes of WAL after which a checkpoint is made, besides those that the torture itself requests.
pub(super) const CHECKPOINT_WAL_BYTES: u64 = 64 << 10;
/// Time that the end may take: every client has ended by then.
pub(super) const CLOSE_DEADLINE: Duration = Duration::from_secs(60);

/// Runs `atrapos torture-child`.
pub(crate) fn run(args: &TortureChildArgs) -> Result<(), CliError> {
    #[cfg(debug_assertions)]
    if let Some(bug) = &args.planted {
        atrapos::planted::plant_everywhere(super::planted::named(bug)?);
    }
    let torture = Torture::new(args.subscribers, args.seed).map_err(CliError::bad_input)?;
    let witness = WitnessFile::open(&args.witness).map_err(CliError::failed)?;
    let exists = Directory::exists(&*store::files(), &args.database).map_err(CliError::failed)?;
    let db = torture
        .builder(exists)
        .workers(args.workers)
        .machine(machine::read(&args.topology)?)
        .pin(false)
        .place_memory(false)
        .huge_pages(false)
        .segment_bytes(SEGMENT_BYTES)
        .checkpoint_wal_bytes(CHECKPOINT_WAL_BYTES)
        .open(&args.database)
        .map_err(CliError::failed)?;
    let checked = torture.check(&db, &witness).map_err(CliError::failed)?;
    say(&found(&checked, db.recovery_report()))?;
    torture.prepare(&db, &witness).map_err(CliError::failed)?;
    say(&json!({ "state": READY }))?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut nothing = Vec::new();
            let _ = std::io::stdin().read_to_end(&mut nothing);
            stop.store(true, Ordering::Relaxed);
        });
        if let Err(error) = torture.run(&db, &witness, args.round, &stop) {
            // The error is reported now: the thread above may wait for ever, and an early end leaves the state close to
            // the error.
            output::complain(&format!("error: {error}"));
            std::process::exit(1);
        }
    });
    match db.close(CLOSE_DEADLINE).failure {
        None => Ok(()),
        Some(failure) => {
            Err(CliError::failed(format!("the database could not be closed in order: {failure}")))
        }
    }
}

/// Returns the report of the recovery and of the check.
fn found(checked: &CheckReport, recovered: Option<&RecoveryReport>) -> Value {
    json!({
        "state": "checked",
        "rows": checked.rows,
        "transactions": checked.transactions,
        "statements": checked.statements,
        "restored": recovered.map(|report| report.rows),
        "replayed": recovered.map(|report| report.changes),
        "torn": recovered.map(|report| report.torn.len()),
    })
}

fn say(what: &Value) -> Result<(), CliError> {
    output::print(&format!("{what}\n"))
}
