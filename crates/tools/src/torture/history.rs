//! `atrapos torture --history`: random transactions that record what they read and wrote, while partitions move and the
//! process is killed; and the proof that there is an order in which they could have run.
//!
//! Owns: the processes, and the files to which their clients write. Never: judges; `atrapos-history` does.
//!
//! Clients write each entry to a file of their own with one call before they go on, so every entry survives a kill. An
//! entry written in part is the last of its file, and is ignored: its client had not continued yet.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use atrapos::{Database, Schema};
use atrapos_cli::error::CliError;
use atrapos_cli::table::count;
use atrapos_cli::{machine, output};
use atrapos_history::{Entry, History, ListReport, Report};
use atrapos_proof::histories::{Journal, Shared, run, schema};
use atrapos_workloads::Random;
use serde_json::{Value, json};

use super::{Broken, KILLED, PATIENCE, Place, Running, TOPOLOGIES, WORKERS_MAX, complaint, wait};
use crate::args::{TortureArgs, TortureHistoryChildArgs};

/// Clients of a round.
const CLIENTS: usize = 16;
/// Transactions that are checked at once at most, as all of them are in memory then.
const TRANSACTIONS_MAX: u64 = 2_000_000;
/// Transactions on one database in memory.
const PER_DATABASE: u64 = 2_500;
/// Interval at which a child reports its progress.
const TELL_EVERY: Duration = Duration::from_millis(2);

/// Runs `atrapos torture --history`.
pub(super) fn history(args: &TortureArgs, transactions: u64) -> Result<(), CliError> {
    if transactions == 0 {
        return Err(CliError::bad_input("--history 0 leaves nothing to check; use at least 1"));
    }
    if transactions > TRANSACTIONS_MAX {
        return Err(CliError::bad_input(format!(
            "--history {transactions} does not fit into memory; use at most {TRANSACTIONS_MAX}, and other seeds"
        )));
    }
    if args.kills == 0 {
        return in_memory(args, transactions);
    }
    let place = Place::prepare(args)?;
    let mut round = 0;
    let killed = under_kills(args, &place, transactions, &mut round);
    let judged = killed.and_then(|killed| {
        let entries =
            read_all(&log(&place)).map_err(|why| Broken(format!("the journals cannot be read: {why}")))?;
        Ok((killed, judge(entries)?))
    });
    match judged {
        Ok((killed, verdict)) => {
            let what = format!("{transactions} transactions with seed {}, killed {killed} times", args.seed);
            output::print(&text(&what, &verdict))
        }
        Err(broken) => Err(place.keep(args.seed, round, &broken)),
    }
}

/// Results of both checks.
type Verdict = (Report, ListReport);

fn judge(entries: Vec<Entry>) -> Result<Verdict, Broken> {
    let history = History::new(entries).map_err(Broken)?;
    let rows = history.check().map_err(|anomaly| Broken(anomaly.to_string()))?;
    let lists = history.check_lists().map_err(|anomaly| Broken(anomaly.to_string()))?;
    Ok((rows, lists))
}

fn text(what: &str, (rows, lists): &Verdict) -> String {
    let Report { committed, aborted, unknown, versions, rows_read, predicates, edges, undecided } = *rows;
    let [committed, aborted, unknown] = [committed, aborted, unknown].map(count);
    let [versions, rows_read, predicates] = [versions, rows_read, predicates].map(count);
    let [edges, undecided] = [edges, undecided].map(count);
    let [transactions, appends, reads] = [lists.transactions, lists.appends, lists.reads].map(count);
    format!(
        "history: {what}, strictly serializable\n  {committed} committed, {aborted} aborted, {unknown} of which nobody was told\n  \
         rows: {versions} versions, {rows_read} rows and {predicates} predicates read; {edges} reasons for an order, {undecided} \
         states undecided\n  lists, by adya: {transactions} transactions, {appends} appends, {reads} reads\n"
    )
}

// --- In memory -------------------------------------------------------------------------------------------------------

/// Runs without kills: on one database in memory after the other. In every second one, statements make and change the
/// tables meanwhile.
fn in_memory(args: &TortureArgs, transactions: u64) -> Result<(), CliError> {
    #[cfg(debug_assertions)]
    if let Some(bug) = &args.planted {
        atrapos::planted::plant_everywhere(super::planted::named(bug)?);
    }
    let mut random = Random::of_stream(args.seed, 1);
    let (mut sum, mut lists) = (Report::default(), ListReport::default());
    for round in 0..transactions.div_ceil(PER_DATABASE) {
        let of_round = PER_DATABASE.min(transactions - round * PER_DATABASE);
        let has_statements = round % 2 == 1;
        let declared = if has_statements { Schema::new() } else { schema() };
        let builder = Database::builder(declared).workers(random.between(2, WORKERS_MAX) as usize);
        let db = builder.pin(false).huge_pages(false).in_memory().map_err(CliError::failed)?;
        let broken =
            |broken: Broken| CliError::failed(format!("seed {}, round {round}: {broken}", args.seed));
        let (shared, others) = if has_statements {
            (Shared::with_statements(args.seed, round, of_round), 2)
        } else {
            (Shared::new(args.seed, round, of_round), 1)
        };
        let journals = vec![Vec::new(); CLIENTS + others];
        let ended = run(&db, &shared, journals, false).map_err(Broken).map_err(broken)?;
        let (rows, of_lists) = judge(ended.into_iter().flatten().collect()).map_err(broken)?;
        sum = sum.plus(&rows);
        lists = lists.plus(&of_lists);
    }
    let what = format!("{transactions} transactions with seed {}, in memory", args.seed);
    output::print(&text(&what, &(sum, lists)))
}

// --- Under kills -----------------------------------------------------------------------------------------------------

fn log(place: &Place) -> PathBuf {
    place.base.join("journals")
}

/// Starts one child after the other until all transactions were begun. Returns how many were killed.
/// `at` is the round that was begun last.
fn under_kills(args: &TortureArgs, place: &Place, transactions: u64, at: &mut u64) -> Result<u64, Broken> {
    let log = log(place);
    std::fs::create_dir_all(&log).map_err(|error| Broken(format!("{}: {error}", log.display())))?;
    let mut random = Random::of_stream(args.seed, 2);
    let (mut left, mut killed) = (transactions, 0);
    for round in 0..=u64::from(args.kills) {
        *at = round;
        let kills_left = u64::from(args.kills) - round;
        // Most children are killed, at any moment; the last one runs to the end.
        let quota = (kills_left > 0).then(|| random.below(2 * left / (kills_left + 1) + 1));
        let workers = random.between(1, WORKERS_MAX);
        let topology = TOPOLOGIES[random.below(TOPOLOGIES.len() as u64) as usize];
        let mut command = child(args, place, &log, round).map_err(|error| Broken(error.to_string()))?;
        command.args(["--transactions", &left.to_string(), "--workers", &workers.to_string()]);
        command.args(["--topology", topology]);
        let (begun, is_killed) = live(command, quota)?;
        left = left.saturating_sub(begun);
        killed += u64::from(is_killed);
    }
    Ok(killed)
}

fn child(args: &TortureArgs, place: &Place, log: &Path, round: u64) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("torture-history-child").arg("--database").arg(place.database()).arg("--log").arg(log);
    command.args(["--seed", &args.seed.to_string(), "--round", &round.to_string()]);
    #[cfg(debug_assertions)]
    if let Some(bug) = &args.planted {
        command.arg("--planted").arg(bug);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    Ok(command)
}

/// Runs a child until it has begun `quota` transactions, and kills it; or until its end. Returns the number it had
/// begun by its last report, and true if it was killed.
fn live(mut command: Command, quota: Option<u64>) -> Result<(u64, bool), Broken> {
    let started = command.spawn().map_err(|error| Broken(format!("a child could not be started: {error}")));
    let mut child = Running(started?);
    let (sender, lines) = channel();
    let stdout = child.0.stdout.take();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Ends with the child.
            for line in stdout.into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let ended = follow(&mut child, &lines, quota);
        // The thread reads until the child has ended.
        drop(child);
        ended
    })
}

fn follow(child: &mut Running, lines: &Receiver<String>, quota: Option<u64>) -> Result<(u64, bool), Broken> {
    let mut begun = 0;
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                let said: Value = serde_json::from_str(&line).unwrap_or_default();
                begun = said["begun"].as_u64().unwrap_or(begun);
                if quota.is_some_and(|quota| begun >= quota) {
                    child
                        .0
                        .kill()
                        .map_err(|error| Broken(format!("a child could not be killed: {error}")))?;
                    return match wait(child)? {
                        status if status.signal() == Some(KILLED) => Ok((begun, true)),
                        status if status.success() => Ok((begun, false)),
                        status => Err(complaint(child, status)),
                    };
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                return Err(Broken(format!("a child has said nothing for {} s", PATIENCE.as_secs())));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return match wait(child)? {
                    status if status.success() => Ok((begun, false)),
                    status => Err(complaint(child, status)),
                };
            }
        }
    }
}

/// Reads all entries of all journals. Each journal is of one client in one round.
fn read_all(log: &Path) -> std::io::Result<Vec<Entry>> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(log)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    paths.sort();
    let mut entries = Vec::new();
    for path in paths {
        let bytes = std::fs::read(&path)?;
        // The bytes after the last end of a line were written in part.
        for line in bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            entries.push(serde_json::from_slice(line).map_err(std::io::Error::other)?);
        }
    }
    Ok(entries)
}

/// A file to which a client writes.
struct JournalFile(File);

impl Journal for JournalFile {
    fn write(&mut self, entry: Entry) -> Result<(), String> {
        let mut line = serde_json::to_vec(&entry).map_err(|error| error.to_string())?;
        line.push(b'\n');
        self.0.write_all(&line).map_err(|error| format!("a journal cannot be written: {error}"))
    }
}

/// Runs `atrapos torture-history-child`.
#[expect(
    clippy::disallowed_methods,
    reason = "whoever waits for the end of the standard input may wait for ever"
)]
pub(crate) fn run_child(args: &TortureHistoryChildArgs) -> Result<(), CliError> {
    #[cfg(debug_assertions)]
    if let Some(bug) = &args.planted {
        atrapos::planted::plant_everywhere(super::planted::named(bug)?);
    }
    let journal = |client: usize| {
        let path = args.log.join(format!("{:06}-{client:04}", args.round));
        let file = File::options().create_new(true).append(true).open(&path);
        file.map(JournalFile).map_err(|error| CliError::failed(format!("{}: {error}", path.display())))
    };
    let journals = (0..=CLIENTS).map(journal).collect::<Result<Vec<_>, _>>()?;
    let db = Database::builder(schema())
        .workers(args.workers)
        .machine(machine::read(&args.topology)?)
        .pin(false)
        .place_memory(false)
        .huge_pages(false)
        .segment_bytes(super::child::SEGMENT_BYTES)
        .checkpoint_wal_bytes(super::child::CHECKPOINT_WAL_BYTES)
        .open(&args.database)
        .map_err(CliError::failed)?;
    let shared = Shared::new(args.seed, args.round, args.transactions);
    let own = Arc::clone(&shared);
    // The thread is never joined: it reads until the parent process has ended.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        own.stop();
    });
    let running = AtomicBool::new(true);
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            while running.load(Ordering::Relaxed) {
                let _ = output::print(&format!("{}\n", json!({ "begun": shared.begun() })));
                std::thread::sleep(TELL_EVERY);
            }
        });
        let ran = run(&db, &shared, journals, true);
        running.store(false, Ordering::Relaxed);
        ran
    });
    ran.map_err(CliError::failed)?;
    output::print(&format!("{}\n", json!({ "begun": shared.begun() })))?;
    match db.close(super::child::CLOSE_DEADLINE).failure {
        None => Ok(()),
        Some(failure) => {
            Err(CliError::failed(format!("the database could not be closed in order: {failure}")))
        }
    }
}
