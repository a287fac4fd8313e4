//! The hand-over to `atrapos-tools`, the second program of the command.
//!
//! Experiments, virtual domains by themselves, planning, torture and the view in a terminal are in a program of their own: nobody
//! needs them to run or to measure a database, and they were a quarter of all that had to be compiled before the first benchmark could run
//! (`docs/decisions/0175-the-command-is-two-programs.md`). Whoever types a command does not notice: this process becomes the other program,
//! with the same arguments.
//!
//! Owns: the list of what the other program does, and finding it: beside this one, or built from the source that this one was built
//! from. Never: knows the options of a tool.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Subcommand;

use crate::error::CliError;
use crate::output;

/// Name of the program, and of its package.
const PROGRAM: &str = "atrapos-tools";

/// A command that the other program carries out. It says the same about itself, and more.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Tool {
    /// Configure virtual domains: measure how many workers structures gain from, compose domains of such sizes, and run them.
    Domains,
    /// Show how a database adapts itself, beside one that does not, or what that costs; or compare designs by islands.
    Experiment,
    /// Show the machine: nested islands of cores, their distances, and where each piece of knowledge comes from.
    Topology,
    /// Show which partitions there should be, and on which workers, for recorded statistics.
    Plan,
    /// Watch a running database: throughput, latency, the load of workers and partitions, owners, and decisions as they are made.
    Watch,
    /// Kill a working database again and again, and check each time it comes back that it kept its promises.
    Torture,
}

/// A benchmark that the other program carries out.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum BenchTool {
    /// A data structure under a load of YCSB: used directly by all threads, or delegated to virtual domains in bursts.
    Domains,
    /// All designs of several structures and workloads: what the design configured has of the best one, and what the worst rigid one has.
    DomainsDesigns,
    /// The same records in few or many structures, which virtual domains have in turn, or which are used as in the baselines of *Virtual domains*.
    DomainsStructures,
    /// The time without service while domains change: how long a client that calls all the time waits for a reply at most.
    DomainsService,
    /// New-Order and Payment of TPC-C on tables that are structures, used directly by all threads, or delegated to virtual domains.
    DomainsTpcc,
}

/// Returns true if these arguments name a tool, or ask for the help of one.
#[must_use]
pub fn are_meant(arguments: &[OsString]) -> bool {
    let mut words =
        arguments.iter().map(|word| word.to_str().unwrap_or_default()).filter(|word| *word != "help");
    match words.next() {
        Some("bench") => words.next().is_some_and(BenchTool::has_subcommand),
        Some(word) => Tool::has_subcommand(word),
        None => false,
    }
}

/// Becomes the other program, with the same arguments.
///
/// # Errors
/// Fails if there is no such program, and none can be built, with what to do about it.
pub fn start(arguments: &[OsString]) -> Result<(), CliError> {
    let this = std::env::current_exe().map_err(CliError::failed)?;
    let program = find(&this)?;
    let failure = Command::new(&program).args(arguments).exec();
    Err(CliError::failed(format!("{} cannot be started: {failure}", program.display())))
}

/// Returns the path of the other program: beside this one, where it is built first if this one was just built by cargo.
fn find(this: &Path) -> Result<PathBuf, CliError> {
    let directory = this.parent().unwrap_or(Path::new("/"));
    let program = directory.join(PROGRAM);
    let changed = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let is_there = program.exists();
    let by_cargo = std::env::var_os("CARGO").is_some();
    let is_older = by_cargo && changed(&program) < changed(this);
    if is_there && !is_older {
        return Ok(program);
    }
    match build(directory, is_there) {
        Some(built) => built.map(|()| program),
        None if is_there => Ok(program),
        None => Err(CliError::bad_input(format!(
            "this is done by {PROGRAM}, which is not beside this program in {}; put it there, or build it with `cargo build --release -p \
             {PROGRAM}`",
            directory.display()
        ))),
    }
}

/// Builds the other program into the directory of this one, if that is one of cargo's and the source is still there. Returns nothing otherwise.
fn build(directory: &Path, is_there: bool) -> Option<Result<(), CliError>> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join("tools/Cargo.toml");
    // Cargo marks its target directory, one above those of the profiles.
    let target = directory.parent().filter(|target| target.join("CACHEDIR.TAG").exists())?;
    let profile = match directory.file_name()?.to_str()? {
        "debug" => "dev",
        name => name,
    };
    if !manifest.exists() {
        return None;
    }
    if !is_there {
        output::complain(&format!("building {PROGRAM}, which does this: once, some minutes"));
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--locked", "--package", PROGRAM, "--profile", profile, "--manifest-path"])
        .arg(&manifest)
        .arg("--target-dir")
        .arg(target)
        .status();
    Some(match built {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(CliError::failed(format!("{PROGRAM} could not be built; what cargo says is above"))),
        Err(error) => Err(CliError::failed(format!(
            "{PROGRAM} could not be built: cargo cannot be started: {error}; build it with `cargo build --release -p {PROGRAM}`"
        ))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(line: &str) -> bool {
        are_meant(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn tools_are_known_by_the_words_that_name_them() {
        for line in [
            "experiment",
            "experiment adapt-skew --rows 1",
            "help torture",
            "bench domains",
            "bench help domains-tpcc",
        ] {
            assert!(meant(line), "{line}");
        }
        for line in [
            "",
            "help",
            "bench",
            "bench tatp",
            "bench tatp domains",
            "--help",
            "inspect torture",
            "help bench",
        ] {
            assert!(!meant(line), "{line}");
        }
    }

    #[test]
    fn without_the_other_program_the_cure_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let refused = find(&directory.path().join("atrapos")).expect_err("nothing is there");
        assert!(
            matches!(&refused, CliError::BadInput(why) if why.contains("cargo build --release -p atrapos-tools")),
            "{refused}"
        );
    }

    #[test]
    fn the_other_program_is_found_beside_this_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let program = directory.path().join(PROGRAM);
        std::fs::File::create(&program).expect("a file");
        assert_eq!(find(&directory.path().join("atrapos")).expect("it is there"), program);
    }
}
