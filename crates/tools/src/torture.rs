//! `atrapos torture`: kills a working database again and again, and has each next process check the recovered state.
//! With power cuts, the file system under the database loses after each kill all data that was not synced ([`disk`]).
//!
//! Owns: the processes: their starts, lengths of life and ends. Never: looks into the database; the children
//! do ([`child`]).
//!
//! A child writes to its standard output, one JSON object per line: the state found when it opened the database, and
//! that it is ready. When its standard input ends, it ends in order; so no child outlives this process. An error
//! is written to standard error, and ends it with an exit status other than 0.

pub(crate) mod child;
mod disk;
pub(crate) mod history;
#[cfg(debug_assertions)]
mod planted;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use atrapos_cli::error::CliError;
use atrapos_cli::progress::RunBar;
use atrapos_cli::table::count;
use atrapos_cli::{config, interrupt, output, store};
use atrapos_workloads::Random;
use disk::Disk;
use serde_json::Value;

use crate::args::TortureArgs;

/// Limit of workers: there are two cores at least, and slightly more workers than cores are worth testing.
const WORKERS_MAX: u64 = 4;
/// Machines the workers are placed on by turns: each memory node of one has a stream of the WAL.
const TOPOLOGIES: [&str; 3] = ["pack:1 core:4 pu:1", "pack:2 core:2 pu:1", "pack:4 core:1 pu:1"];
/// One in so many children is asked to end instead of being killed.
const ORDERLY_EVERY: u32 = 8;
/// One in so many children is killed without waiting until it is ready.
const EARLY_EVERY: u32 = 5;
/// The longest life of a child that is killed early.
const EARLY_MS_MAX: u64 = 40;
/// Time after which a child that is not ready yet, or has not ended in order, is taken to hang.
const PATIENCE: Duration = Duration::from_secs(120);

/// End of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Kills it so long after it was started, ready or not.
    KilledEarly(Duration),
    /// Kills it so long after it was ready.
    Killed(Duration),
    /// Asks it to end so long after it was ready.
    Orderly(Duration),
}

/// Plan for one child.
#[derive(Clone, Debug)]
struct Plan {
    round: u64,
    workers: u64,
    topology: &'static str,
    end: End,
}

impl Plan {
    fn draw(round: u64, random: &mut Random, longest: Duration) -> Plan {
        let workers = random.between(1, WORKERS_MAX);
        let topology = TOPOLOGIES[random.below(TOPOLOGIES.len() as u64) as usize];
        // Most lives are short: many errors happen soon after the start.
        let life = longest.mul_f64(random.unit() * random.unit());
        let end = if random.small(ORDERLY_EVERY) == 0 {
            End::Orderly(life)
        } else if random.small(EARLY_EVERY) == 0 {
            End::KilledEarly(Duration::from_millis(random.below(EARLY_MS_MAX)))
        } else {
            End::Killed(life)
        };
        Plan { round, workers, topology, end }
    }
}

/// Sums over all children.
#[derive(Clone, Copy, Debug, Default)]
struct Summary {
    killed: u64,
    killed_early: u64,
    orderly: u64,
    /// Rows recovered from checkpoints.
    restored: u64,
    /// Changes recovered from the WAL.
    replayed: u64,
    /// Ends of streams that were cut off because they were written in part.
    torn: u64,
    /// Transactions of the witness clients whose effects are present at the end.
    transactions: u64,
    /// Statements that were acknowledged and whose effects are present at the end.
    statements: u64,
}

/// Runs `atrapos torture`.
pub(crate) fn torture(args: &TortureArgs) -> Result<(), CliError> {
    #[cfg(debug_assertions)]
    if let Some(bug) = &args.planted {
        planted::named(bug)?;
    }
    if let Some(transactions) = args.history {
        return history::history(args, transactions);
    }
    let (option, rounds) = args.power_cuts.map_or(("--kills", args.kills), |cuts| ("--power-cuts", cuts));
    if rounds == 0 {
        return Err(CliError::bad_input(format!("{option} 0 leaves nothing to survive; use at least 1")));
    }
    let longest = config::duration("--seconds-per-round", args.seconds_per_round, true)?;
    atrapos_proof::torture::Torture::new(args.subscribers, args.seed).map_err(CliError::bad_input)?;
    let mut place = Place::prepare(args)?;
    if args.power_cuts.is_some() {
        match Disk::prepare(&place.base, place.temporary.is_some()) {
            Ok(disk) => place.disk = Some(disk),
            Err(why) => return output::print(&format!("SKIPPED: no power can be cut here: {why}\n")),
        }
    }
    interrupt::install();
    let interrupted = interrupt::flag();
    let mut random = Random::of_stream(args.seed, 0);
    let mut summary = Summary::default();
    let bar = RunBar::new(String::new(), Duration::ZERO, Duration::from_millis(u64::from(rounds)));
    for round in 0..u64::from(rounds) {
        let plan = Plan::draw(round, &mut random, longest);
        bar.step(&format!("round {round} of {rounds}"));
        let ended = run_child(args, &place, &plan, &mut summary).and_then(|()| place.cut_power());
        if let Err(broken) = ended {
            bar.finish();
            return Err(place.keep(args.seed, round, &broken));
        }
        if interrupted.load(std::sync::atomic::Ordering::Relaxed) {
            bar.finish();
            return Err(CliError::failed(format!(
                "interrupted after {} rounds, all of them sound",
                round + 1
            )));
        }
    }
    // The state after the last kill has to be checked, too.
    let round = u64::from(rounds);
    let last = Plan { round, workers: 2, topology: TOPOLOGIES[0], end: End::Orderly(Duration::ZERO) };
    let checked = run_child(args, &place, &last, &mut summary);
    bar.finish();
    checked.map_err(|broken| place.keep(args.seed, round, &broken))?;
    summary.orderly -= 1;
    let what = if args.power_cuts.is_some() { "power cuts" } else { "rounds" };
    output::print(&text(&format!("{rounds} {what}"), args.seed, &summary))
}

fn text(rounds: &str, seed: u64, summary: &Summary) -> String {
    let Summary { killed, killed_early, orderly, restored, replayed, torn, transactions, statements } =
        *summary;
    format!(
        "torture: {rounds} with seed {seed}, every promise kept\n  {killed} killed at work, {killed_early} killed while they \
         started, {orderly} ended in order\n  came back: {} rows from checkpoints, {} changes from the WAL; {} half-written \
         ends cut off\n  {} transactions of the witness clients and {} statements, each checked whole\n",
        count(restored),
        count(replayed),
        count(torn),
        count(transactions),
        count(statements),
    )
}

/// The places of the database and the witness.
#[derive(Debug)]
struct Place {
    base: PathBuf,
    /// The file system of the database, if power is cut. Before `temporary`, as it is unmounted before that is removed.
    disk: Option<Disk>,
    temporary: Option<tempfile::TempDir>,
}

impl Place {
    fn prepare(args: &TortureArgs) -> Result<Place, CliError> {
        let Some(base) = &args.dir else {
            let directory = store::temporary("atrapos-torture-")?;
            return Ok(Place { base: directory.path().to_owned(), disk: None, temporary: Some(directory) });
        };
        store::make_empty(base, &*store::files())?;
        Ok(Place { base: base.clone(), disk: None, temporary: None })
    }

    fn database(&self) -> PathBuf {
        self.disk.as_ref().map_or(&*self.base, Disk::path).join("database")
    }

    fn witness(&self) -> PathBuf {
        self.base.join("witness")
    }

    /// Makes the database lose all data that was not synced, if power cuts are wanted.
    fn cut_power(&self) -> Result<(), Broken> {
        let cut = self.disk.as_ref().map_or(Ok(()), Disk::cut_power);
        cut.map_err(|why| Broken(format!("the power could not be cut: {why}")))
    }

    /// Keeps all files for inspection, and reports their place.
    fn keep(self, seed: u64, round: u64, broken: &Broken) -> CliError {
        if let Some(directory) = self.temporary {
            let _ = directory.keep();
        }
        let mounting = self.disk.as_ref().map_or_else(String::new, |disk| {
            format!("; `mount -o loop` shows the database in {}", disk.image().display())
        });
        CliError::failed(format!(
            "seed {seed}, round {round}: {broken} (everything is kept in {}{mounting})",
            self.base.display()
        ))
    }
}

/// The reason for which a round failed.
#[derive(Debug)]
struct Broken(String);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A child process that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both have no effect on a process that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(args: &TortureArgs, place: &Place, plan: &Plan) -> std::io::Result<Running> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("torture-child").arg("--database").arg(place.database());
    command.arg("--witness").arg(place.witness());
    for (option, value) in [
        ("--seed", args.seed.to_string()),
        ("--round", plan.round.to_string()),
        ("--workers", plan.workers.to_string()),
        ("--topology", plan.topology.to_owned()),
        ("--subscribers", args.subscribers.to_string()),
    ] {
        command.arg(option).arg(value);
    }
    #[cfg(debug_assertions)]
    if let Some(bug) = &args.planted {
        command.arg("--planted").arg(bug);
    }
    // In a group of its own, so that only this process handles Ctrl-C.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command.spawn().map(Running)
}

/// Runs one child to its planned end.
fn run_child(args: &TortureArgs, place: &Place, plan: &Plan, summary: &mut Summary) -> Result<(), Broken> {
    let began = Instant::now();
    let mut child =
        spawn(args, place, plan).map_err(|error| Broken(format!("a child could not be started: {error}")))?;
    let (sender, lines) = channel();
    let stdout = child.0.stdout.take();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Ends with the child.
            for line in
                stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok)
            {
                let _ = sender.send(line);
            }
        });
        let ended = live(&mut child, plan, began, &lines, summary);
        // The thread reads until the child has ended.
        drop(child);
        ended
    })
}

fn live(
    child: &mut Running,
    plan: &Plan,
    began: Instant,
    lines: &Receiver<String>,
    summary: &mut Summary,
) -> Result<(), Broken> {
    let until_ready = match plan.end {
        End::KilledEarly(after) => after,
        End::Killed(_) | End::Orderly(_) => PATIENCE,
    };
    let is_ready =
        wait_until_ready(lines, began + until_ready, summary).map_err(|Gone| ended_itself(child))?;
    let after = match plan.end {
        End::KilledEarly(_) => began + until_ready,
        End::Killed(_) | End::Orderly(_) if !is_ready => {
            return Err(Broken(format!("a child was not ready after {} s", PATIENCE.as_secs())));
        }
        End::Killed(life) | End::Orderly(life) => Instant::now() + life,
    };
    match lines.recv_timeout(after.saturating_duration_since(Instant::now())) {
        Err(RecvTimeoutError::Timeout) => {}
        Ok(_) | Err(RecvTimeoutError::Disconnected) => return Err(ended_itself(child)),
    }
    if let End::Orderly(_) = plan.end {
        summary.orderly += 1;
        // It reads until there is nothing more.
        drop(child.0.stdin.take());
        return match wait(child)? {
            status if status.success() => Ok(()),
            status => Err(complaint(child, status)),
        };
    }
    if is_ready {
        summary.killed += 1;
    } else {
        summary.killed_early += 1;
    }
    child.0.kill().map_err(|error| Broken(format!("a child could not be killed: {error}")))?;
    match wait(child)? {
        status if status.signal() == Some(KILLED) => Ok(()),
        status => Err(complaint(child, status)),
    }
}

/// The number of the signal that cannot be caught.
const KILLED: i32 = 9;

/// Error: the child's output has ended.
struct Gone;

/// Reads the output of a child until it is ready or the time is up.
fn wait_until_ready(lines: &Receiver<String>, until: Instant, summary: &mut Summary) -> Result<bool, Gone> {
    loop {
        let line = match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return Ok(false),
            Err(RecvTimeoutError::Disconnected) => return Err(Gone),
        };
        let said: Value = serde_json::from_str(&line).unwrap_or_default();
        if said["state"] == child::READY {
            return Ok(true);
        }
        let number = |key: &str| said[key].as_u64().unwrap_or_default();
        summary.restored += number("restored");
        summary.replayed += number("replayed");
        summary.torn += number("torn");
        summary.transactions = number("transactions");
        summary.statements = number("statements");
    }
}

/// Waits for a child that is about to end.
fn wait(child: &mut Running) -> Result<ExitStatus, Broken> {
    let failed = |error| Broken(format!("a child could not be waited for: {error}"));
    let began = Instant::now();
    loop {
        if let Some(status) = child.0.try_wait().map_err(failed)? {
            return Ok(status);
        }
        if began.elapsed() > PATIENCE {
            return Err(Broken(format!(
                "a child had not ended {} s after it was asked to",
                PATIENCE.as_secs()
            )));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Describes the end of a child that was not told to end.
fn ended_itself(child: &mut Running) -> Broken {
    match wait(child) {
        Ok(status) => complaint(child, status),
        Err(broken) => broken,
    }
}

/// Returns the error message of a child that has ended: the last line, without its prefix.
fn complaint(child: &mut Running, status: ExitStatus) -> Broken {
    let mut said = String::new();
    if let Some(stderr) = &mut child.0.stderr {
        let _ = stderr.read_to_string(&mut said);
    }
    let lines = || said.lines().filter(|line| !line.starts_with("warning: "));
    match lines().find_map(|line| line.strip_prefix("error: ")) {
        Some(error) => Broken(error.to_owned()),
        None => Broken(format!("a child ended with {status}: {}", lines().collect::<Vec<_>>().join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_follow_from_the_seed_and_have_all_ends() {
        let plans = |seed| {
            let mut random = Random::of_stream(seed, 0);
            (0..200)
                .map(|round| Plan::draw(round, &mut random, Duration::from_millis(100)))
                .collect::<Vec<_>>()
        };
        let (one, again) = (plans(1), plans(1));
        assert!(one.iter().zip(&again).all(|(a, b)| a.end == b.end && a.workers == b.workers));
        assert!(one.iter().any(|plan| matches!(plan.end, End::KilledEarly(_))));
        assert!(one.iter().any(|plan| matches!(plan.end, End::Killed(_))));
        assert!(one.iter().any(|plan| matches!(plan.end, End::Orderly(_))));
        for workers in 1..=WORKERS_MAX {
            assert!(one.iter().any(|plan| plan.workers == workers));
        }
        assert!(plans(2).iter().zip(&one).any(|(a, b)| a.end != b.end));
    }
}
