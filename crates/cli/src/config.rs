//! From arguments to settings: everything that makes no sense is refused here, before anything is begun.
//!
//! Owns: the refusals that several commands share. Never: opens a database.

use std::num::NonZeroUsize;
use std::time::Duration;

use atrapos_topology::Machine;
use atrapos_workloads::driver::{Clients, Routing};

use crate::args::{CommonArgs, RoutingArg, RunArgs};
use crate::error::CliError;
use crate::machine;
use crate::output::JsonFile;

/// Sessions per worker by default. Enough that look-ups of independent transactions fill a batch of sixteen while as many
/// wait for other workers; more only make each wait longer.
pub(crate) const SESSIONS_DEFAULT: usize = 32;

/// Longer than anybody wants to wait, and short enough to be added up.
const SECONDS_MAX: f64 = 1e7;

/// A length of time given as `option`.
pub(crate) fn duration(option: &str, seconds: f64, may_be_zero: bool) -> Result<Duration, CliError> {
    let least = if may_be_zero { "0" } else { "more than 0" };
    if !(0.0..=SECONDS_MAX).contains(&seconds) || (seconds == 0.0 && !may_be_zero) {
        return Err(CliError::bad_input(format!(
            "{option} {seconds} is no length of time to run; use {least} up to {SECONDS_MAX} seconds"
        )));
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn at_least_one(option: &str, number: usize, what: &str) -> Result<NonZeroUsize, CliError> {
    NonZeroUsize::new(number)
        .ok_or_else(|| CliError::bad_input(format!("{option} 0 leaves {what}; use at least 1")))
}

/// What the arguments of a benchmark mean.
#[derive(Debug)]
pub(crate) struct RunConfig {
    pub(crate) machine: Machine,
    pub(crate) workers: usize,
    pub(crate) pin: bool,
    pub(crate) place_memory: bool,
    pub(crate) clients: Clients,
    pub(crate) routing: Routing,
    pub(crate) warmup: Duration,
    pub(crate) measured: Duration,
    pub(crate) runs: u32,
    pub(crate) seed: u64,
    pub(crate) json: Option<JsonFile>,
}

/// More clients than this are surely a mistake: each thread, and each session's state, takes memory.
const CLIENTS_MAX: usize = 1 << 16;

/// As many workers as the engine takes.
const WORKERS_MAX: usize = 4096;

impl RunConfig {
    /// Checks and resolves arguments.
    pub(crate) fn of(args: &RunArgs) -> Result<RunConfig, CliError> {
        let measured = duration("--seconds", args.common.seconds, false)?;
        let warmup = duration("--warmup", args.warmup, true)?;
        at_least_one("--runs", args.runs as usize, "nothing to measure")?;
        let routing = match args.routing {
            RoutingArg::Any => Routing::Any,
            RoutingArg::Owner => Routing::Owner,
        };
        let clients = match (args.clients, args.sessions) {
            (Some(threads), _) => Clients::Threads {
                threads: at_least_one("--clients", threads, "nobody to run transactions")?,
            },
            (None, sessions) => {
                let sessions = sessions.unwrap_or(SESSIONS_DEFAULT);
                let per_worker = at_least_one("--sessions", sessions, "nobody to run transactions")?;
                Clients::Sessions { per_worker }
            }
        };
        let (Clients::Threads { threads: number } | Clients::Sessions { per_worker: number }) = clients;
        if number.get() > CLIENTS_MAX {
            return Err(CliError::bad_input(format!(
                "{number} clients are more than a run can hold; use at most {CLIENTS_MAX}"
            )));
        }
        let machine = machine::read(&args.common.topology)?;
        let workers = args.workers.unwrap_or_else(|| machine.default_workers());
        let workers = at_least_one("--workers", workers, "nobody to own the data")?.get();
        if workers > WORKERS_MAX {
            return Err(CliError::bad_input(format!(
                "{workers} workers are more than any machine has cores; use at most {WORKERS_MAX}"
            )));
        }
        let json = json_file(&args.common)?;
        let pin = !args.common.no_pin && machine::may_pin(&machine);
        Ok(RunConfig {
            machine,
            workers,
            pin,
            place_memory: !args.no_place_memory,
            clients,
            routing,
            warmup,
            measured,
            runs: args.runs,
            seed: args.common.seed,
            json,
        })
    }
}

/// The file for the result, if one is wanted: known to be writable.
pub(crate) fn json_file(args: &CommonArgs) -> Result<Option<JsonFile>, CliError> {
    args.json.as_deref().map(JsonFile::prepare).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_checked() {
        assert_eq!(duration("--seconds", 0.25, false).ok(), Some(Duration::from_millis(250)));
        assert_eq!(duration("--warmup", 0.0, true).ok(), Some(Duration::ZERO));
        for (seconds, may_be_zero) in
            [(0.0, false), (-1.0, true), (f64::NAN, true), (f64::INFINITY, true), (1e300, true)]
        {
            let refused = duration("--seconds", seconds, may_be_zero).expect_err("refused").to_string();
            assert!(refused.contains("--seconds"), "{refused}");
        }
    }
}
