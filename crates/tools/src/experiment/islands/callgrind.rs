//! The work of a transaction by what it is for: instructions and atomic operations, counted by callgrind.
//!
//! A benchmark runs twice under callgrind, for different times. The difference of the counts over the difference of the completed
//! transactions is the cost of one; what is done once (loading, auditing) is in both. An instruction belongs to the source file that it
//! was compiled from, also where that was inlined. One of a library belongs to the code of this program before it, where it was inlined
//! there, and to the nearest caller of this program otherwise.
//!
//! An atomic operation is one that locks the bus for other cores: every lock, latch, shared counter and entry of a shared
//! list is at least one of them, and a plain access to data of its own worker is none.
//!
//! Owns: the classes of work, and which file is for what ([`CLASSES`]). Never: measures a time; valgrind runs one thread at a time.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use atrapos_cli::error::CliError;

use super::{Bench, Reading, completed};

/// Kinds of work, as the papers divide a transaction, and those that they leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Execution,
    Management,
    Communication,
    Locking,
    Logging,
    /// The choice of what to do, and the counting.
    Clients,
    /// The rest: libraries that nothing of this program has called, as far as callgrind sees.
    Other,
}

impl Class {
    pub(super) const ALL: [Class; 7] = [
        Class::Execution,
        Class::Management,
        Class::Communication,
        Class::Locking,
        Class::Logging,
        Class::Clients,
        Class::Other,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Class::Execution => "execution",
            Class::Management => "transaction management",
            Class::Communication => "communication",
            Class::Locking => "locking",
            Class::Logging => "logging",
            Class::Clients => "clients",
            Class::Other => "other",
        }
    }

    /// The key of a count of the class.
    pub(super) fn key(self, count: &str) -> String {
        format!("{count}.{}", self.name().replace(' ', "_"))
    }
}

/// The class of the code by the path of its module, `crate/module`: the longest entry that the path begins with counts.
const CLASSES: &[(&str, Class)] = &[
    ("storage", Class::Execution),
    ("storage/lock", Class::Locking),
    ("storage/tree/undo", Class::Logging),
    ("storage/row/overwritten", Class::Logging),
    ("partition", Class::Execution),
    ("partition/undo", Class::Logging),
    ("partition/redo", Class::Logging),
    ("transaction", Class::Management),
    ("transaction/run", Class::Execution),
    ("transaction/lookups", Class::Execution),
    ("transaction/tx/access", Class::Execution),
    ("transaction/tx/phase", Class::Execution),
    ("transaction/tx/lock_wait", Class::Locking),
    ("transaction/lock_waits", Class::Locking),
    ("transaction/deadlock", Class::Locking),
    ("transaction/wal", Class::Logging),
    ("transaction/messages", Class::Communication),
    ("transaction/distributed", Class::Communication),
    ("transaction/tx/participant", Class::Communication),
    ("engine", Class::Management),
    ("placement", Class::Management),
    ("runtime", Class::Management),
    ("runtime/ring", Class::Communication),
    ("runtime/inbox", Class::Communication),
    ("runtime/outgoing", Class::Communication),
    ("runtime/handle", Class::Communication),
    ("runtime/call", Class::Communication),
    ("runtime/oneshot", Class::Communication),
    ("runtime/park", Class::Communication),
    ("channel", Class::Communication),
    ("instances", Class::Communication),
    ("durability", Class::Logging),
    ("baselines", Class::Management),
    ("baselines/tree", Class::Execution),
    ("baselines/rows", Class::Execution),
    ("baselines/instance", Class::Communication),
    ("baselines/instance/ownership", Class::Execution),
    ("baselines/instance/routed", Class::Execution),
    ("baselines/lock", Class::Locking),
    ("baselines/transaction", Class::Execution),
    ("baselines/occ/transaction", Class::Execution),
    ("baselines/occ/scan", Class::Execution),
    ("baselines/two_phase/transaction", Class::Execution),
    ("baselines/two_phase/reader", Class::Execution),
    ("baselines/two_phase/scan", Class::Execution),
    ("baselines/two_phase/undo", Class::Logging),
    ("baselines/log", Class::Logging),
    ("baselines/redo", Class::Logging),
    ("baselines/durable", Class::Logging),
    ("workloads", Class::Clients),
    ("workloads/micro/procedures", Class::Execution),
    ("harness", Class::Clients),
    ("cli", Class::Clients),
];

/// Returns the class of a module.
fn class_of(module: &str) -> Option<Class> {
    let is_in = |prefix: &str| {
        module.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let matching = CLASSES.iter().filter(|(prefix, _)| is_in(prefix));
    matching.max_by_key(|(prefix, _)| prefix.len()).map(|(_, class)| *class)
}

/// Returns the module of a source file of this program.
fn module_of_file(file: &str) -> Option<String> {
    let (_, path) = file.rsplit_once("crates/").unwrap_or(("", file));
    let (name, source) = path.split_once("/src/")?;
    let module = source.strip_suffix(".rs")?;
    Some(format!("{name}/{}", module.strip_suffix("/mod").unwrap_or(module)))
}

/// Returns the module of the first function of this program in a chain of a function and its callers.
fn module_of_function(chain: &str) -> Option<String> {
    // Only the drivers count latencies, in a library of many small functions.
    if chain.contains("hdrhistogram") {
        return Some("harness/latency".to_owned());
    }
    let at = chain.find("atrapos")?;
    let path =
        chain[at..].split(|letter: char| !(letter.is_alphanumeric() || "_:".contains(letter))).next()?;
    let mut parts = path.split("::");
    let name = parts.next()?;
    let name = if name == "atrapos" { "engine" } else { name.strip_prefix("atrapos_")? };
    Some(std::iter::once(name).chain(parts.filter(|part| !part.is_empty())).collect::<Vec<_>>().join("/"))
}

/// Instructions and atomic operations, by class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    of: [[f64; 2]; Class::ALL.len()],
}

impl Counts {
    fn zip(&self, other: &Counts, with: impl Fn(f64, f64) -> f64) -> Counts {
        let mut of = self.of;
        for (all, other) in of.iter_mut().flatten().zip(other.of.iter().flatten()) {
            *all = with(*all, *other);
        }
        Counts { of }
    }

    /// Returns the counts as readings: the sum of all instructions first.
    fn readings(&self) -> Vec<Reading> {
        let names = ["instructions", "atomics"];
        let sum = |event: usize| self.of.iter().map(|counts| counts[event]).sum::<f64>();
        let sums = names.iter().enumerate().map(|(event, name)| Reading::new(*name, sum(event)));
        let of = |event: usize, name: &'static str| {
            let counts = Class::ALL.iter().zip(&self.of);
            counts.map(move |(class, counts)| Reading::new(class.key(name), counts[event]))
        };
        sums.chain(of(0, names[0])).chain(of(1, names[1])).collect()
    }
}

/// Adds up a report of callgrind that has its names written out; calls count where they are made, not where they are asked for.
fn counts(report: &str) -> Counts {
    let mut counts = Counts::default();
    let (mut file, mut near) = (None, None);
    let mut is_a_call = false;
    for line in report.lines() {
        let named =
            line.split_once('=').filter(|(key, _)| key.chars().all(|letter| letter.is_ascii_lowercase()));
        match named {
            Some(("fn", chain)) => {
                let by_function = module_of_function(chain).and_then(|module| class_of(&module));
                near = file.or(by_function);
            }
            // The instructions of a function come in the order of their addresses.
            Some(("fl" | "fi" | "fe", path)) => {
                file = module_of_file(path).and_then(|module| class_of(&module));
                near = file.or(near);
            }
            Some(("calls", _)) => is_a_call = true,
            None if line.starts_with(|first: char| first.is_ascii_digit()) => {
                if std::mem::take(&mut is_a_call) {
                    continue;
                }
                let class = near.unwrap_or(Class::Other);
                let events = line.split(' ').skip(1).map(|number| number.parse().unwrap_or(0.0));
                for (sum, event) in counts.of[class as usize].iter_mut().zip(events) {
                    *sum += event;
                }
            }
            _ => {}
        }
    }
    counts
}

/// The factor between the times of the two runs.
const LONGER: f64 = 3.0;

/// Refuses if callgrind is not there.
pub(super) fn check() -> Result<(), CliError> {
    let asked =
        Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match asked {
        Ok(status) if status.success() => Ok(()),
        _ => Err(CliError::bad_input(
            "instructions are counted by valgrind, which is not there; install the package 'valgrind' of your system",
        )),
    }
}

/// Runs a benchmark twice under callgrind, and returns the counts of a transaction.
pub(super) fn measure(bench: &Bench<'_>, arguments: &[String]) -> Result<Vec<Reading>, CliError> {
    let mut runs = Vec::new();
    for factor in [1.0, LONGER] {
        runs.push(run(bench, arguments, factor)?);
    }
    let (shorter, longer) = (&runs[0], &runs[1]);
    let transactions = longer.1 as f64 - shorter.1 as f64;
    if transactions <= 0.0 {
        return Err(CliError::failed(format!(
            "of two runs, the {LONGER} times longer one has not completed more transactions ({} and {}); use more --seconds",
            shorter.1, longer.1
        )));
    }
    // What is done once differs a little: no class has less than nothing.
    let each = longer.0.zip(&shorter.0, |longer, shorter| ((longer - shorter) / transactions).max(0.0));
    Ok(each.readings())
}

/// Runs a benchmark under callgrind for `factor` times its seconds. Returns all counts, and the completed transactions.
fn run(bench: &Bench<'_>, arguments: &[String], factor: f64) -> Result<(Counts, u64), CliError> {
    let directory = tempfile::tempdir_in(bench.directory).map_err(CliError::failed)?;
    let mut command = Command::new("valgrind");
    command
        .args([
            "--quiet",
            "--tool=callgrind",
            "--trace-children=yes",
            // Otherwise one that waits in a loop may keep the others from running.
            "--fair-sched=yes",
            "--collect-bus=yes",
            "--separate-callers=4",
        ])
        .args(["--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", directory.path().join("counts.%p").display()))
        .arg(&bench.program)
        .args(arguments)
        // All transactions count, also those of the beginning. Threads take turns anyhow.
        .args([
            "--warmup",
            "0",
            "--no-pin",
            "--seconds",
            &(factor * bench.seconds.as_secs_f64()).to_string(),
        ]);
    let transactions = completed(&bench.run(&mut command)?);
    let reports = reports(directory.path()).map_err(CliError::failed)?;
    let all = reports.iter().fold(Counts::default(), |sum, report| sum.zip(&counts(report), |a, b| a + b));
    Ok((all, transactions))
}

/// Returns the reports of the processes that run transactions: of the instances, if there are any.
fn reports(directory: &Path) -> std::io::Result<Vec<String>> {
    let files: Vec<PathBuf> =
        std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    let mut all: Vec<String> = files.iter().map(std::fs::read_to_string).collect::<Result<_, _>>()?;
    let is_instance = |report: &String| {
        report.lines().take(10).any(|line| line.starts_with("cmd:") && line.contains(" --member "))
    };
    if all.iter().any(is_instance) {
        all.retain(is_instance);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
# callgrind format
events: Ir Ge

fl=/home/me/crates/transaction/src/tx/access.rs
fn=atrapos_transaction::tx::access::execute'main
10 100
fi=/home/me/crates/storage/src/lock/conflict.rs
11 20 2
fi=/rustc/0/library/core/src/ptr/mod.rs
12 3 1
cfn=memcpy'atrapos_transaction::tx::access::execute
calls=1 0
13 5000 50
fl=./string/memcpy.S
fn=memcpy'atrapos_channel::stream::send
7 40 1
fn=start
8 9
totals: 172 4
";

    #[test]
    fn counts_belong_to_the_file_or_else_to_what_is_near() {
        let counts = counts(REPORT);
        let of = |class: Class| counts.of[class as usize];
        assert_eq!(of(Class::Execution), [100.0, 0.0]);
        assert_eq!(
            of(Class::Locking),
            [23.0, 3.0],
            "inlined code of the library belongs to what is before it"
        );
        assert_eq!(of(Class::Communication), [40.0, 1.0], "a library works for who has called it");
        assert_eq!(of(Class::Other), [9.0, 0.0]);
        let readings = counts.readings();
        assert_eq!(readings[0], Reading::new("instructions", 172.0));
        assert_eq!(readings[1], Reading::new("atomics", 4.0));
        assert!(readings.contains(&Reading::new("atomics.locking", 3.0)));
    }

    #[test]
    fn files_and_functions_name_the_same_modules() {
        let module = |file| module_of_file(file);
        assert_eq!(module("/home/me/crates/storage/src/lock.rs").as_deref(), Some("storage/lock"));
        assert_eq!(module("crates/harness/src/raw/mod.rs").as_deref(), Some("harness/raw"));
        assert_eq!(module("./string/memcpy.S"), None);
        let function = |name| module_of_function(name);
        assert_eq!(function("<atrapos_storage::lock::Table as X>::f").as_deref(), Some("storage/lock/Table"));
        assert_eq!(
            function("f'atrapos::database::run'atrapos_cli::g").as_deref(),
            Some("engine/database/run")
        );
        assert_eq!(function("malloc'start"), None);
        assert_eq!(class_of("storage/locks"), Some(Class::Execution), "only whole words count");
    }

    #[test]
    fn every_module_with_a_class_exists() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (module, _) in CLASSES {
            let (name, path) = module.split_once('/').unwrap_or((module, "lib"));
            let source = crates.join(name).join("src");
            let there = source.join(path).is_dir() || source.join(format!("{path}.rs")).is_file();
            assert!(there, "{module} is no module any more");
        }
    }
}
