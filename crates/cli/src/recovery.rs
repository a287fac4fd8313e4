//! `atrapos bench recovery`: the time in which a database is recovered, compared with making it anew.
//!
//! Owns: the order of the steps. For each number of workers: load TATP and update rows in memory, without any logging
//! (the reference); then load it in a directory, log as many updates, close, and open it again, which loads the
//! checkpoint and replays the WAL.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use atrapos::{Builder, Database, Durability, LoadProgress, RecoveryProgress};
use atrapos_harness::driver::{self, Clients, Routing, RunOptions};
use atrapos_standard_benchmarks::tatp;
use atrapos_workloads::tatp::Tatp;
use atrapos_workloads::{KeyChoice, Workload};
use serde_json::{Value, json};

use crate::args::RecoveryArgs;
use crate::error::CliError;
use crate::progress::{RunBar, while_loading, while_recovering};
use crate::{config, interrupt, machine, output, store, table};

/// Result with one number of workers.
#[derive(Debug)]
struct Measured {
    workers: usize,
    load: Duration,
    write: Duration,
    recovery: Duration,
    rows: u64,
    changes: u64,
    wal_bytes: u64,
    checkpoint_bytes: u64,
}

impl Measured {
    /// Returns the time of recovery as a multiple of making the same database without logging.
    fn ratio(&self) -> f64 {
        self.recovery.as_secs_f64() / (self.load + self.write).as_secs_f64()
    }

    fn rows_per_second(&self) -> f64 {
        (self.rows + self.changes) as f64 / self.recovery.as_secs_f64()
    }

    fn megabytes_per_second(&self) -> f64 {
        (self.wal_bytes + self.checkpoint_bytes) as f64 / 1e6 / self.recovery.as_secs_f64()
    }

    fn json(&self) -> Value {
        json!({
            "workers": self.workers,
            "load_seconds": self.load.as_secs_f64(),
            "write_seconds": self.write.as_secs_f64(),
            "recovery_seconds": self.recovery.as_secs_f64(),
            "ratio": self.ratio(),
            "rows": self.rows,
            "changes": self.changes,
            "wal_bytes": self.wal_bytes,
            "checkpoint_bytes": self.checkpoint_bytes,
            "rows_per_second": self.rows_per_second(),
            "megabytes_per_second": self.megabytes_per_second(),
        })
    }
}

/// Runs `atrapos bench recovery`.
pub(crate) fn recovery(args: &RecoveryArgs) -> Result<(), CliError> {
    let mix = "update-location".parse().map_err(CliError::bad_input)?;
    let workload =
        Tatp::new(args.subscribers, mix, KeyChoice::Uniform, args.seed).map_err(CliError::bad_input)?;
    if args.updates == 0 || args.workers.contains(&0) {
        return Err(CliError::bad_input("zero updates or workers leave nothing to measure; use at least 1"));
    }
    if let Some(available) = machine::available_memory_bytes() {
        workload.check_memory(available).map_err(CliError::bad_input)?;
    }
    let file = args.json.as_deref().map(output::JsonFile::prepare).transpose()?;
    interrupt::install();
    let machine = machine::read("live")?;
    let files = store::files();
    let mut measured = Vec::new();
    for &workers in &args.workers {
        let builder = || {
            Database::builder(workload.schema())
                .workers(workers)
                .machine(machine.clone())
                // Replay is measured: no checkpoint cuts the WAL short.
                .checkpoint_wal_bytes(u64::MAX)
                .durability(Durability::Relaxed { max_loss_ms: config::MAX_LOSS_MS_DEFAULT })
        };
        let place = store::Store::prepare(Durability::Synchronous, args.dir.as_deref(), &*files)?;
        let Some(place) = place else { unreachable!("a durable database has a place") };
        let one = measure(&workload, builder, workers, args.updates, place.path());
        place.remove();
        measured.push(one?);
    }
    let summary = machine::summary(&machine);
    output::print(&text(args, &measured))?;
    if let Some(file) = file {
        file.write(&json!({
            "commit": crate::json::COMMIT,
            "machine": summary,
            "config": { "benchmark": "recovery", "subscribers": args.subscribers, "updates": args.updates, "seed": args.seed },
            "recovery": measured.iter().map(Measured::json).collect::<Vec<_>>(),
        }))?;
    }
    Ok(())
}

fn measure(
    workload: &Tatp,
    builder: impl Fn() -> Builder,
    workers: usize,
    updates: u64,
    path: &Path,
) -> Result<Measured, CliError> {
    let reference = builder().in_memory().map_err(CliError::bad_input)?;
    let load = timed(|| load(workload, &reference))?;
    let write = timed(|| write(workload, &reference, updates))?;
    drop(reference);
    let db = builder().open(path).map_err(CliError::bad_input)?;
    self::load(workload, &db)?;
    self::write(workload, &db, updates)?;
    let closed = db.close(CLOSE_DEADLINE);
    if let Some(failure) = closed.failure {
        return Err(CliError::failed(failure));
    }
    let checkpoint_bytes = checkpoint_bytes(path);
    let progress = RecoveryProgress::default();
    let began = Instant::now();
    let again = builder();
    let opened = while_recovering(&progress, || again.open_watched(path, &progress));
    let db = opened.map_err(CliError::failed)?;
    let recovery = began.elapsed();
    let report = db.recovery_report().cloned().unwrap_or_default();
    workload.audit_uncounted(&db).map_err(CliError::failed)?;
    Ok(Measured {
        workers,
        load,
        write,
        recovery,
        rows: report.rows,
        changes: report.changes,
        wal_bytes: report.wal_bytes,
        checkpoint_bytes,
    })
}

/// Time that closing the database may take: every client has ended by then.
const CLOSE_DEADLINE: Duration = Duration::from_secs(30);

/// Sessions per worker that write.
const SESSIONS: std::num::NonZeroUsize = std::num::NonZeroUsize::new(64).expect("it is not zero");

fn timed(run: impl FnOnce() -> Result<(), CliError>) -> Result<Duration, CliError> {
    let began = Instant::now();
    run().map(|()| began.elapsed())
}

fn load(workload: &Tatp, db: &Database) -> Result<(), CliError> {
    let progress = LoadProgress::default();
    let loaded = while_loading(workload.expected_rows(), &progress, || workload.load(db, &progress));
    loaded.map(drop).map_err(|error| CliError::failed(format!("the database could not be loaded: {error}")))
}

/// Updates rows until about `updates` updates have been made.
fn write(workload: &Tatp, db: &Database, updates: u64) -> Result<(), CliError> {
    let before = db.statistics().committed;
    let enough = AtomicBool::new(false);
    let bar = RunBar::new("updating: ".to_owned(), Duration::ZERO, Duration::ZERO);
    let options = RunOptions {
        clients: Clients::sessions(SESSIONS),
        routing: Routing::Owner,
        warmup: Duration::ZERO,
        measured: Duration::from_secs(24 * 3600),
        run: 0,
        live: None,
    };
    // The driver stops when it is told to; frequent checks keep the excess small.
    let done = AtomicBool::new(false);
    let ended = std::thread::scope(|scope| {
        let watcher = scope.spawn({
            let (enough, done) = (&enough, &done);
            move || {
                while !done.load(Ordering::Relaxed) && !interrupt::is_set() {
                    if db.statistics().committed - before >= updates {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                enough.store(true, Ordering::Relaxed);
            }
        });
        let mut watch =
            |progress: driver::Progress| bar.show("updating", Duration::ZERO, progress.elapsed, progress.tps);
        let ended = tatp(workload.clone()).run(db, &options, &enough, &mut watch);
        done.store(true, Ordering::Relaxed);
        // The watcher cannot panic; if it did, the run has ended all the same.
        let _ = watcher.join();
        ended
    });
    bar.finish();
    ended.map_err(CliError::failed)?;
    if interrupt::is_set() { Err(CliError::failed("interrupted")) } else { Ok(()) }
}

/// Returns the bytes of the files of the checkpoint in a database directory.
fn checkpoint_bytes(path: &Path) -> u64 {
    let parts = |dir: std::path::PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten();
    parts(path.join("checkpoint"))
        .flat_map(|checkpoint| parts(checkpoint.path()))
        .filter_map(|part| part.metadata().ok())
        .map(|metadata| metadata.len())
        .sum()
}

fn text(args: &RecoveryArgs, measured: &[Measured]) -> String {
    let mut text = format!(
        "recovery: {} subscribers and {} logged updates\n\n\
         workers   load s  write s  recovery s  ratio        rows/s     MB/s\n",
        table::count(args.subscribers),
        table::count(args.updates)
    );
    for one in measured {
        text.push_str(&format!(
            "{:>7}  {:>7.2}  {:>7.2}  {:>10.2}  {:>5.2}  {:>12}  {:>7.0}\n",
            one.workers,
            one.load.as_secs_f64(),
            one.write.as_secs_f64(),
            one.recovery.as_secs_f64(),
            one.ratio(),
            table::count(one.rows_per_second() as u64),
            one.megabytes_per_second()
        ));
    }
    text.push_str(
        "\nThe ratio is recovery to loading the same database and writing as many rows without logging.\n",
    );
    text
}
