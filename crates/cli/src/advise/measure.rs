//! The runs by which deployments are compared.
//!
//! Owns: the settings of the runs, and the databases between loading and audit. Never: draws a conclusion.

use std::sync::Arc;
use std::time::{Duration, Instant};

use atrapos::{Adaptation, CentralState, Durability};
use atrapos_baselines::domains::TableStructure;
use atrapos_harness::driver::{Progress, Routing, RunOptions, RunResult};
use atrapos_harness::registry::AnyWorkload;
use atrapos_instances::plan::Placement;
use atrapos_workloads::{AuditReport, Ledger};

use super::{Candidate, Remote};
use crate::args::{AdviseArgs, EngineArg, LocksArg};
use crate::bench::{CLOSE_DEADLINE, load, open, reserve};
use crate::config::{self, RunConfig};
use crate::error::CliError;
use crate::instances::{Deployment, Layout};
use crate::progress::RunBar;
use crate::{interrupt, machine, shared, store};

/// Runs of each deployment: with no remote work, with a little, half, and all that there can be, and the check.
const RUNS: u32 = 5;

/// Returns the settings of the deployments of an engine: databases in memory that keep their scheme, on this machine.
pub(super) fn config(args: &AdviseArgs, engine: EngineArg) -> Result<RunConfig, CliError> {
    let machine = machine::read("live")?;
    let measured = config::duration("--seconds", args.seconds, false)?;
    let warmup = config::duration("--warmup", args.warmup, true)?;
    let workers = config::workers(args.workers, &machine)?;
    Ok(RunConfig {
        pin: !args.no_pin && machine::may_pin(&machine),
        machine,
        workers,
        place_memory: true,
        reserve_bytes: None,
        wal_reserve_bytes: None,
        engine,
        central_state: CentralState::default(),
        partitioning: None,
        shared_pipeline: None,
        locks: LocksArg::Auto,
        structure: TableStructure::default(),
        clients: config::clients_in_memory(),
        clients_given: false,
        durability: Durability::None,
        dir: None,
        checkpoint_during: false,
        routing: Routing::Owner,
        warmup,
        measured,
        runs: RUNS,
        seed: args.seed,
        json: None,
        adaptation: None,
        record: None,
        live: Arc::default(),
    })
}

/// The subject of the runs.
pub(super) struct Runs<'a> {
    pub(super) args: &'a AdviseArgs,
    pub(super) workload: &'a dyn AnyWorkload,
    pub(super) remote: Option<&'a Remote>,
}

/// A run with another share of remote work, if one is given.
type RunOnce<'a> =
    dyn FnMut(&RunOptions, Option<f64>, &mut dyn FnMut(Progress)) -> Result<RunResult, CliError> + 'a;

impl Runs<'_> {
    /// Runs the workload in a deployment. Returns the transactions per second without remote work, with the shares that are measured, and
    /// with that of the check; or those of the workload as it was given, if its remote work cannot be varied.
    pub(super) fn of(&self, candidate: Candidate) -> Result<Vec<f64>, CliError> {
        let shares = match self.remote {
            Some(remote) => {
                let measured = remote.measured.map(Some);
                [&[Some(0.0)], &measured[..], &[Some(remote.checked)]].concat()
            }
            None => vec![None],
        };
        let config = config(self.args, candidate.engine)?;
        match candidate.channel {
            None if candidate.engine.shares_data() => {
                self.in_one_shared_database(&config, &candidate.name(), &shares)
            }
            None => self.in_one_database(&config, &candidate.name(), &shares),
            Some(channel) => {
                let layout =
                    Layout { instances: candidate.instances, channel, placement: Placement::Islands };
                self.in_instances(&config, &candidate.name(), &layout, &shares)
            }
        }
    }

    /// Runs the workload as it was given in one database that adapts, with clients that choose any data. Returns its transactions per
    /// second.
    pub(super) fn adapting(&self) -> Result<f64, CliError> {
        let config = RunConfig {
            routing: Routing::Any,
            adaptation: Some(Adaptation::default()),
            runs: 1,
            ..config(self.args, EngineArg::Atrapos)?
        };
        self.in_one_database(&config, "1 database that adapts", &[None]).map(|tps| tps[0])
    }

    fn in_one_database(
        &self,
        config: &RunConfig,
        name: &str,
        shares: &[Option<f64>],
    ) -> Result<Vec<f64>, CliError> {
        let workload = self.workload;
        let db = open(workload, config, None, &store::files())?;
        load(workload, &db, None)?;
        reserve(workload, &db, config)?;
        let mut run = |options: &RunOptions, remote: Option<f64>, watch: &mut dyn FnMut(Progress)| {
            let varied = remote.map(|share| workload.with_remote_share(share));
            let workload = varied.as_deref().unwrap_or(workload);
            workload.run(&db, options, interrupt::flag(), watch).map_err(CliError::failed)
        };
        let (tps, ledger) = each(config, name, shares, &mut run)?;
        audited(name, workload.audit(&db, &ledger).map_err(|error| error.to_string()))?;
        let closed = db.close(CLOSE_DEADLINE);
        closed.failure.map_or(Ok(tps), |failure| Err(CliError::failed(failure)))
    }

    fn in_one_shared_database(
        &self,
        config: &RunConfig,
        name: &str,
        shares: &[Option<f64>],
    ) -> Result<Vec<f64>, CliError> {
        let workload = self.workload;
        let handles = shared::empty(workload, config)?;
        let (database, _) = shared::fill(workload, config, (&handles, None), None)?;
        let cpus = shared::cpus(config);
        let mut run = |options: &RunOptions, remote: Option<f64>, watch: &mut dyn FnMut(Progress)| {
            let varied = remote.map(|share| workload.with_remote_share(share));
            let workload = varied.as_deref().unwrap_or(workload);
            let threads = shared::threads(config, &cpus, None);
            let ran = workload.run_shared((&database, &handles), options, threads, interrupt::flag(), watch);
            ran.map_err(CliError::failed)
        };
        let (tps, ledger) = each(config, name, shares, &mut run)?;
        audited(name, shared::audit(workload, config, &database, &ledger))?;
        database.close().map_err(CliError::failed)?;
        let closed = handles.close(CLOSE_DEADLINE);
        closed.failure.map_or(Ok(tps), |failure| Err(CliError::failed(failure)))
    }

    fn in_instances(
        &self,
        config: &RunConfig,
        name: &str,
        layout: &Layout,
        shares: &[Option<f64>],
    ) -> Result<Vec<f64>, CliError> {
        let workload = self.workload;
        let mut deployment = Deployment::start(layout, config)?;
        deployment.wait_loaded(workload, Instant::now())?;
        let mut run = |options: &RunOptions, remote: Option<f64>, watch: &mut dyn FnMut(Progress)| {
            watch(Progress { measuring: false, elapsed: Duration::ZERO, tps: 0.0 });
            deployment.run(workload, options, remote)
        };
        let (tps, ledger) = each(config, name, shares, &mut run)?;
        audited(name, deployment.audit(workload, config, &ledger))?;
        deployment.stop()?;
        Ok(tps)
    }
}

/// Rounds in which all shares are run in turn. The medians of a deployment then outlast a disturbance of the machine in one of them.
const ROUNDS: u32 = 3;

/// Makes runs for each share of remote work, in turn, in the time of one. Returns the medians of their transactions per second, and what all of them
/// have done.
fn each(
    config: &RunConfig,
    name: &str,
    shares: &[Option<f64>],
    run: &mut RunOnce<'_>,
) -> Result<(Vec<f64>, Ledger), CliError> {
    let (mut all, mut ledger) = (vec![Vec::new(); shares.len()], Ledger::new());
    let (warmup, measured) = (config.warmup / ROUNDS, config.measured / ROUNDS);
    let rounds = (0..ROUNDS).flat_map(|_| shares.iter().enumerate());
    for (number, (at, share)) in rounds.enumerate() {
        let label = format!("{name}, run {}/{}: ", number + 1, shares.len() * ROUNDS as usize);
        let bar = RunBar::new(label, warmup, measured);
        let options = RunOptions {
            clients: config.clients,
            routing: config.routing,
            warmup,
            measured,
            run: number as u64,
            live: None,
        };
        let mut watch = |Progress { measuring, elapsed, tps }| {
            let (phase, before) =
                if measuring { ("measuring", warmup) } else { ("warming up", Duration::ZERO) };
            bar.show(phase, before, elapsed, tps);
        };
        let result = run(&options, *share, &mut watch)?;
        bar.finish();
        ledger.add(&result.tallies_all);
        if result.interrupted || interrupt::is_set() {
            return Err(CliError::failed(
                "interrupted: deployments that were not measured cannot be compared",
            ));
        }
        let tps = result.throughput_tps();
        if tps <= 0.0 {
            return Err(CliError::failed(format!(
                "{name} completed no transaction in {} s; use more --seconds",
                config.measured.as_secs_f64()
            )));
        }
        all[at].push(tps);
    }
    Ok((all.iter_mut().map(|tps| atrapos_harness::median(tps)).collect(), ledger))
}

fn audited(name: &str, audit: Result<AuditReport, String>) -> Result<(), CliError> {
    audit.map(drop).map_err(|wrong| CliError::failed(format!("the audit of {name} failed: {wrong}")))
}
