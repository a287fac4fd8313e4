//! The measurements, and their order.
//!
//! Owns: the plan that follows from the arguments, the groups of sides that are open together, and the rounds in which they take
//! turns. Never: formats a result.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::args::Args;
use crate::driver::{Measured, Round};
use crate::peer::{Durability, PeerError, PeerKind, WorkName};
use crate::peers;
use crate::requests::{Scale, Work};
use crate::side::{Side, SideClients};

/// Failures of a comparison; the text is one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BenchError {
    /// The arguments are invalid. No work was begun.
    #[error("{0}")]
    BadInput(String),
    /// Something failed that should have worked.
    #[error("{0}")]
    Failed(String),
}

impl BenchError {
    /// Returns 2 for bad input, as for arguments that cannot be parsed; 1 for failures.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            BenchError::BadInput(_) => ExitCode::from(2),
            BenchError::Failed(_) => ExitCode::from(1),
        }
    }
}

/// The measurements that are going to be made.
#[derive(Debug)]
pub struct Plan {
    /// Workloads, in their order.
    pub works: Vec<WorkName>,
    /// Stores beside `atrapos`.
    pub kinds: Vec<PeerKind>,
    /// Durabilities, in their order.
    pub durabilities: Vec<Durability>,
    /// Length of a measured interval.
    pub measured: Duration,
    /// Rounds.
    pub rounds: usize,
    /// Threads of each store, and workers of `atrapos`.
    pub threads: usize,
    /// Threads tried besides with synchronous durability.
    pub many_threads: usize,
    /// Sessions on each worker in memory, and with synchronous durability.
    pub sessions: [usize; 2],
    /// The size of the data.
    pub scale: f64,
    /// Median time of an append of 4 KiB and its sync, in microseconds.
    pub device_sync_us: f64,
    /// Holds the stores; removed at the end.
    directory: TempDir,
}

/// Limit of threads.
const THREADS_MAX: usize = 512;
/// Limit of sessions on a worker.
const SESSIONS_MAX: usize = 8192;
/// Limit of the length of an interval, in seconds.
const SECONDS_MAX: f64 = 1e5;
/// Limit of the size of the data.
const SCALE_MAX: f64 = 100.0;
/// Sessions on a worker in memory, as the command line of the benchmarks has them by default.
const SESSIONS_IN_MEMORY: usize = 64;

/// Returns the sessions on a worker with synchronous durability, as the command line of the benchmarks chooses them: the more, the
/// longer a sync takes.
fn sessions_durable(device_sync_us: f64) -> usize {
    ((device_sync_us * 0.8) as usize).next_power_of_two().clamp(256, 2048)
}

fn bad<T>(why: String) -> Result<T, BenchError> {
    Err(BenchError::BadInput(why))
}

fn check_count(option: &str, count: usize, most: usize) -> Result<usize, BenchError> {
    if (1..=most).contains(&count) {
        Ok(count)
    } else {
        bad(format!("{option} {count} is not possible; use 1 to {most}"))
    }
}

fn check_amount(option: &str, amount: f64, most: f64) -> Result<f64, BenchError> {
    let is_possible = amount > 0.0 && amount <= most;
    if is_possible {
        Ok(amount)
    } else {
        bad(format!("{option} {amount} is not possible; use more than 0, up to {most}"))
    }
}

/// Returns the peers of these names, or all.
fn chosen(names: &[String]) -> Result<Vec<PeerKind>, BenchError> {
    let all = peers::all();
    let known: Vec<&str> = all.iter().map(|kind| kind.name).collect();
    for name in names {
        if name == "rocksdb" && !known.contains(&"rocksdb") {
            return bad("rocksdb was not compiled in; build with --features rocksdb".to_owned());
        }
        if !known.contains(&name.as_str()) {
            return bad(format!(
                "there is no store '{name}' to compare with; choose from {}",
                known.join(", ")
            ));
        }
    }
    Ok(all
        .into_iter()
        .filter(|kind| names.is_empty() || names.iter().any(|name| name == kind.name))
        .collect())
}

impl Plan {
    /// Checks the arguments, and measures the device.
    ///
    /// # Errors
    /// Fails with what is wrong with them.
    pub fn of(args: &Args) -> Result<Plan, BenchError> {
        let kinds = chosen(&args.peer)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = check_count("--threads", args.threads.unwrap_or(cores), THREADS_MAX)?;
        let many_threads = check_count("--many-threads", args.many_threads, THREADS_MAX)?;
        let rounds = check_count("--rounds", args.rounds, 1000)?;
        let seconds = check_amount("--seconds", args.seconds, SECONDS_MAX)?;
        let scale = check_amount("--scale", args.scale, SCALE_MAX)?;
        let given =
            args.sessions.map(|sessions| check_count("--sessions", sessions, SESSIONS_MAX)).transpose()?;
        check_place(&args.json)?;
        let directory = directory(args.dir.as_deref())?;
        let device_sync_us = device_sync_us(directory.path()).map_err(|error| {
            BenchError::BadInput(format!("{} cannot be written: {error}", directory.path().display()))
        })?;
        let works = if args.workload.is_empty() { WorkName::ALL.to_vec() } else { args.workload.clone() };
        let durabilities = match args.durability {
            Some(one) => vec![one.into()],
            None => vec![Durability::None, Durability::Synchronous],
        };
        let sessions = [SESSIONS_IN_MEMORY, sessions_durable(device_sync_us)];
        Ok(Plan {
            works,
            kinds,
            durabilities,
            measured: Duration::from_secs_f64(seconds),
            rounds,
            threads,
            many_threads,
            sessions: sessions.map(|default| given.unwrap_or(default)),
            scale,
            device_sync_us,
            directory,
        })
    }

    /// Returns the directory that holds the stores.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the groups of sides that are compared with each other, in their order.
    #[must_use]
    pub fn groups(&self) -> Vec<(WorkName, Durability)> {
        let all = self
            .works
            .iter()
            .flat_map(|work| self.durabilities.iter().map(|durability| (*work, *durability)));
        let makes_sense = |(work, durability): &(WorkName, Durability)| match work {
            // Reading makes nothing durable, and the update is about nothing else.
            WorkName::YcsbC => *durability == Durability::None,
            WorkName::Update => *durability == Durability::Synchronous,
            _ => true,
        };
        all.filter(makes_sense).collect()
    }

    /// Returns the clients with which a side is measured.
    fn clients(&self, group: (WorkName, Durability), is_atrapos: bool) -> Vec<SideClients> {
        let mut clients = match group {
            (WorkName::Update, _) => vec![SideClients::Threads(1), SideClients::Threads(self.many_threads)],
            (_, Durability::None) => vec![SideClients::Threads(self.threads)],
            (_, Durability::Synchronous) => {
                vec![SideClients::Threads(self.threads), SideClients::Threads(self.many_threads)]
            }
        };
        if is_atrapos {
            clients.insert(
                0,
                SideClients::Sessions(self.sessions[usize::from(group.1 == Durability::Synchronous)]),
            );
        }
        clients.dedup();
        clients
    }
}

/// Refuses a file that cannot be there.
fn check_place(file: &Path) -> Result<(), BenchError> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if file.is_dir() {
        return bad(format!("--json {} is a directory; give the name of a file", file.display()));
    }
    if !parent.is_dir() {
        return bad(format!("--json {}: there is no directory {}", file.display(), parent.display()));
    }
    Ok(())
}

fn directory(wanted: Option<&Path>) -> Result<TempDir, BenchError> {
    let parent = wanted.map_or_else(std::env::temp_dir, Path::to_owned);
    let made = tempfile::Builder::new().prefix("atrapos-compare-").tempdir_in(&parent);
    made.map_err(|error| {
        BenchError::BadInput(format!("no directory can be made in {}: {error}; use --dir", parent.display()))
    })
}

/// Appends that are measured, and the size of each.
const PROBES: usize = 64;
const PROBE_BYTES: usize = 4096;

/// Returns the median time of an append and a sync in a directory, in microseconds.
fn device_sync_us(directory: &Path) -> std::io::Result<f64> {
    let mut file = File::create(directory.join("device-probe"))?;
    let mut times = Vec::new();
    for _ in 0..PROBES {
        let began = Instant::now();
        file.write_all(&[0x5a; PROBE_BYTES])?;
        file.sync_data()?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    Ok(atrapos_harness::median(&mut times))
}

/// One side with one number of clients.
#[derive(Clone, Debug)]
pub struct Row {
    /// Workload and durability.
    pub group: (WorkName, Durability),
    /// The store's name.
    pub side: &'static str,
    /// Its clients.
    pub clients: SideClients,
    /// Completed transactions per second, by round.
    pub tps: Vec<f64>,
    /// Median latency in microseconds, by round.
    pub p50_us: Vec<f64>,
    /// The latency that one transaction in a hundred exceeds, in microseconds, by round.
    pub p99_us: Vec<f64>,
    /// Rows that the audit has read.
    pub audited_rows: u64,
}

/// The name of the side that the others are compared with.
pub const ATRAPOS: &str = "atrapos";

/// Measures everything; `say` is told how far it has come.
///
/// # Errors
/// Fails if any side fails, or its audit.
pub fn run(plan: &Plan, say: &mut dyn FnMut(&str)) -> Result<Vec<Row>, BenchError> {
    let groups = plan.groups();
    if groups.is_empty() {
        return bad("nothing is to be measured: ycsb-c only reads, and update only makes sense with synchronous durability".to_owned());
    }
    let mut rows = Vec::new();
    for group in groups {
        let work = Work::new(group.0, &Scale::times(plan.scale), plan.threads)
            .map_err(|error| BenchError::BadInput(error.to_string()))?;
        say(&format!("{}, durability {}: {}", group.0.name(), group.1.name(), work.title()));
        rows.extend(run_group(plan, group, &work)?);
    }
    Ok(rows)
}

fn failed(side: &str, what: &str, error: &PeerError) -> BenchError {
    BenchError::Failed(format!("{side}: {what}: {error}"))
}

/// Loads all sides of a group, lets them take turns, and audits them.
fn run_group(plan: &Plan, group: (WorkName, Durability), work: &Work) -> Result<Vec<Row>, BenchError> {
    let mut sides: Vec<(&'static str, Side<'_>, PathBuf)> = Vec::new();
    let make = |name: &str| -> Result<PathBuf, BenchError> {
        let path = plan.directory.path().join(name);
        std::fs::create_dir(&path)
            .map_err(|error| BenchError::Failed(format!("{}: {error}", path.display())))?;
        Ok(path)
    };
    let path = make(ATRAPOS)?;
    let atrapos = Side::of_atrapos(work, &path, group.1, plan.threads);
    sides.push((ATRAPOS, atrapos.map_err(|error| failed(ATRAPOS, "it could not be loaded", &error))?, path));
    for kind in plan.kinds.iter().filter(|kind| kind.refusal(group.0, group.1).is_none()) {
        let path = make(kind.name)?;
        let side = Side::of_peer(kind, work, &path, group.1);
        sides.push((
            kind.name,
            side.map_err(|error| failed(kind.name, "it could not be loaded", &error))?,
            path,
        ));
    }
    let mut rows: Vec<Row> = Vec::new();
    for round in 0..plan.rounds {
        let mut order: Vec<usize> = (0..sides.len()).collect();
        order.rotate_left(round % sides.len());
        for at in order {
            let (name, side, _) = &mut sides[at];
            for clients in plan.clients(group, *name == ATRAPOS) {
                let settings =
                    Round { threads: 0, warmup: plan.measured / 4, measured: plan.measured, run: 0 };
                let measured = side.measure(clients, &settings);
                let measured = measured.map_err(|error| failed(name, "a transaction failed", &error))?;
                enter(&mut rows, group, name, clients, &measured);
            }
        }
    }
    for (name, side, _) in &sides {
        let audited = side.audit().map_err(|error| failed(name, "the audit failed", &error))?;
        rows.iter_mut().filter(|row| row.side == *name).for_each(|row| row.audited_rows = audited);
    }
    for (_, side, path) in sides {
        drop(side);
        // What cannot be removed now goes with the directory of all.
        let _ = std::fs::remove_dir_all(path);
    }
    Ok(rows)
}

fn enter(
    rows: &mut Vec<Row>,
    group: (WorkName, Durability),
    side: &'static str,
    clients: SideClients,
    measured: &Measured,
) {
    let at = rows.iter().position(|row| row.side == side && row.clients == clients).unwrap_or_else(|| {
        let (tps, p50_us, p99_us) = (Vec::new(), Vec::new(), Vec::new());
        rows.push(Row { group, side, clients, tps, p50_us, p99_us, audited_rows: 0 });
        rows.len() - 1
    });
    rows[at].tps.push(measured.tps);
    rows[at].p50_us.push(measured.p50_us);
    rows[at].p99_us.push(measured.p99_us);
}
