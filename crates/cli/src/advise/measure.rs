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

/// Runs of each deployment: with no remote work, with what is measured for the model, and the check.
const RUNS: u32 = super::MEASURED.len() as u32 + 2;

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

/// Rounds in which all shares are run, every second one in the opposite order. The medians of a deployment then outlast a disturbance of the machine in
/// two of them, and what a run leaves behind for the next one concerns shares on both sides of it.
const ROUNDS: usize = 5;

/// Makes runs for each share of remote work, in turn, in the time of one. Returns the transactions per second of each ([`levelled`]), and what all of
/// them have done.
fn each(
    config: &RunConfig,
    name: &str,
    shares: &[Option<f64>],
    run: &mut RunOnce<'_>,
) -> Result<(Vec<f64>, Ledger), CliError> {
    let (mut rounds, mut ledger) = (vec![vec![0.0; shares.len()]; ROUNDS], Ledger::new());
    let (warmup, measured) = (config.warmup / ROUNDS as u32, config.measured / ROUNDS as u32);
    for (number, (round, at)) in turns(shares).enumerate() {
        let label = format!("{name}, run {}/{}: ", number + 1, shares.len() * ROUNDS);
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
        let result = run(&options, shares[at], &mut watch)?;
        bar.finish();
        ledger.add(&result.tallies_all);
        if result.interrupted || interrupt::is_set() {
            return Err(CliError::failed(
                "interrupted: deployments that were not measured cannot be compared",
            ));
        }
        rounds[round][at] = result.throughput_tps();
    }
    let stood_still = |at: usize| rounds.iter().filter(|round| round[at] <= 0.0).count() > ROUNDS / 2;
    if (0..shares.len()).any(stood_still) {
        return Err(CliError::failed(format!(
            "{name} completed no transaction in {} s; use more --seconds",
            config.measured.as_secs_f64()
        )));
    }
    // A part in which the machine did something else has no logarithm: one transaction is the least that a longer part would have had.
    let least = measured.as_secs_f64().recip();
    rounds.iter_mut().flatten().for_each(|tps| *tps = tps.max(least));
    Ok((levelled(&rounds), ledger))
}

/// Returns the order of the runs, as rounds and places in `shares`: in each round all shares, ascending and descending in turn.
fn turns(shares: &[Option<f64>]) -> impl Iterator<Item = (usize, usize)> {
    let mut ascending: Vec<usize> = (0..shares.len()).collect();
    ascending.sort_by(|a, b| shares[*a].partial_cmp(&shares[*b]).expect("a share is a number"));
    let descending: Vec<usize> = ascending.iter().rev().copied().collect();
    (0..ROUNDS).flat_map(move |round| {
        let order = if round.is_multiple_of(2) { &ascending } else { &descending };
        order.clone().into_iter().map(move |at| (round, at))
    })
}

/// Returns the transactions per second of each share from those of rounds: the median over the rounds of its multiple of the round's geometric mean, times
/// the median of these means. A machine that is slower in some rounds makes all shares of these slower, and none of them stands out for it.
fn levelled(rounds: &[Vec<f64>]) -> Vec<f64> {
    let level = |round: &Vec<f64>| {
        let logarithms: f64 = round.iter().map(|tps| tps.ln()).sum();
        (logarithms / round.len() as f64).exp()
    };
    let mut levels: Vec<f64> = rounds.iter().map(level).collect();
    let share = |at: usize| {
        let mut multiples: Vec<f64> =
            rounds.iter().zip(&levels).map(|(round, level)| round[at] / level).collect();
        atrapos_harness::median(&mut multiples)
    };
    let multiples: Vec<f64> = (0..rounds[0].len()).map(share).collect();
    let level = atrapos_harness::median(&mut levels);
    multiples.into_iter().map(|multiple| multiple * level).collect()
}

fn audited(name: &str, audit: Result<AuditReport, String>) -> Result<(), CliError> {
    audit.map(drop).map_err(|wrong| CliError::failed(format!("the audit of {name} failed: {wrong}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_their_turns_up_and_down() {
        let found: Vec<(usize, usize)> = turns(&[Some(0.0), Some(0.5), Some(0.2)]).collect();
        assert_eq!(found.len(), 3 * ROUNDS);
        assert_eq!(found[..6], [(0, 0), (0, 2), (0, 1), (1, 1), (1, 2), (1, 0)]);
        assert_eq!(turns(&[None]).count(), ROUNDS);
    }

    #[test]
    fn a_machine_that_slows_down_moves_no_share() {
        // Each round has half the speed of the one before it, and one run of one round is disturbed besides.
        let round = |halvings: i32| [400.0, 200.0, 100.0].map(|tps| tps / f64::from(1 << halvings)).to_vec();
        let mut rounds: Vec<Vec<f64>> = (0..5).map(round).collect();
        let found = levelled(&rounds);
        for (found, expected) in found.iter().zip([100.0, 50.0, 25.0]) {
            assert!((found / expected - 1.0).abs() < 1e-9, "{found} instead of {expected}");
        }
        rounds[2][1] /= 10.0;
        let disturbed = levelled(&rounds);
        let ratio = |tps: &[f64]| tps[0] / tps[1];
        assert!((ratio(&disturbed) / ratio(&found) - 1.0).abs() < 1e-9, "{disturbed:?}");
        let alone = levelled(&[vec![7.0], vec![5.0], vec![6.0]]);
        assert!((alone[0] - 6.0).abs() < 1e-9, "a single share has its median: {alone:?}");
    }
}
