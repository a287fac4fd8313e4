//! Predictions for another machine, from the times that this one shows.
//!
//! Instances there are as large as islands are: the machine, a socket, a memory node, an L3 island, a core. The local time comes from
//! the measured instance whose size is nearest, the time between workers of one instance from one database, and the time between
//! instances from the measured instances whose size is nearest. What those times become with more cores, over longer distances, is not
//! known here.
//!
//! Owns: the sizes of instances on that machine, and the choice of the measured times. Never: measures.

use atrapos_instances::ChannelKind;
use atrapos_instances::model::{self, Times};
use atrapos_topology::{Level, Machine};
use atrapos_workloads::registry::Common;

use super::{Advised, Candidate, Shares, Subject};
use crate::args::{AdviseArgs, EngineArg, WorkloadAdvise};
use crate::error::CliError;
use crate::machine;

/// Another machine, and the shares of the workload in instances as large as its islands.
pub(super) struct Goal {
    machine: String,
    workers: usize,
    /// Numbers of instances with the shares, in order.
    shares: Vec<(usize, Shares)>,
}

/// Predictions for another machine.
#[derive(Debug)]
pub(super) struct Elsewhere {
    pub(super) machine: String,
    pub(super) workers: usize,
    pub(super) leaving: f64,
    /// In the order of instances.
    pub(super) deployments: Vec<Extrapolated>,
}

/// The prediction for one deployment there.
#[derive(Clone, Debug)]
pub(super) struct Extrapolated {
    pub(super) candidate: Candidate,
    pub(super) shares: Shares,
    /// The times with their origins; `None` if this machine does not show them.
    pub(super) times: Option<(Times, String)>,
    pub(super) tps: Option<f64>,
}

impl Goal {
    /// Returns the machine of `--topology`; `None` if that is this one.
    pub(super) fn of(args: &AdviseArgs, chosen: &WorkloadAdvise) -> Result<Option<Goal>, CliError> {
        let machine = machine::read(&args.topology)?;
        if machine.is_live() {
            return Ok(None);
        }
        let workers = machine.default_workers();
        let common = Common { workers, seed: args.seed };
        let configured = chosen.given.configure(common).map_err(CliError::bad_input)?;
        let subject = Subject { workload: &*configured.workload, workers };
        let shares = islands(&machine, workers)
            .into_iter()
            .map(|instances| {
                let shares = subject.shares(instances, None).map_err(|error| {
                    CliError::bad_input(format!("{} has {workers} workers: {error}", machine.origin()))
                })?;
                Ok((instances, shares))
            })
            .collect::<Result<_, CliError>>()?;
        Ok(Some(Goal { machine: machine.origin().to_string(), workers, shares }))
    }

    /// Returns what the measured deployments let expect.
    pub(super) fn extrapolate(self, measured: &[Advised], channels: &[ChannelKind]) -> Elsewhere {
        let workers_here = workers_of(measured);
        let engines = engines_of(measured);
        let one = |(instances, shares): &(usize, Shares)| {
            let channels =
                if *instances == 1 { vec![None] } else { channels.iter().copied().map(Some).collect() };
            let of = |(engine, channel)| {
                let candidate = Candidate { engine, instances: *instances, channel };
                let size = self.workers / instances;
                let times = times(measured, workers_here, (candidate, size), *shares);
                let tps = times
                    .as_ref()
                    .map(|(times, _)| model::throughput_tps(self.workers, times.at(shares.leaving)));
                Extrapolated { candidate, shares: *shares, times, tps }
            };
            let with_channels =
                engines.iter().flat_map(|engine| channels.iter().map(|channel| (*engine, *channel)));
            with_channels.map(of).collect::<Vec<_>>()
        };
        Elsewhere {
            deployments: self.shares.iter().flat_map(one).collect(),
            leaving: self.shares.first().map_or(0.0, |(_, shares)| shares.leaving),
            machine: self.machine,
            workers: self.workers,
        }
    }
}

/// Returns the numbers of instances that are as large as the islands of a level each, ascending; only those that divide the workers.
fn islands(machine: &Machine, workers: usize) -> Vec<usize> {
    let levels = [Level::Socket, Level::Node, Level::L3].map(|level| machine.islands(level).count());
    let mut counts: Vec<usize> = levels.into_iter().chain([1, workers]).collect();
    counts.retain(|count| workers.is_multiple_of(*count));
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Returns the workers of the measured deployments: the greatest number of instances has one in each.
fn workers_of(measured: &[Advised]) -> usize {
    measured.iter().map(|advised| advised.candidate.instances).max().unwrap_or(1)
}

/// Returns the engines of the measured deployments, in their order.
fn engines_of(measured: &[Advised]) -> Vec<EngineArg> {
    let mut engines: Vec<EngineArg> = measured.iter().map(|advised| advised.candidate.engine).collect();
    engines.dedup();
    engines
}

/// Returns the times of instances of `size` workers, and where they come from.
fn times(
    measured: &[Advised],
    workers_here: usize,
    (candidate, size): (Candidate, usize),
    shares: Shares,
) -> Option<(Times, String)> {
    let size_of = |advised: &Advised| workers_here / advised.candidate.instances;
    let distance = |advised: &&Advised| (size_of(advised) as f64 / size as f64).ln().abs();
    let nearest = |of: &dyn Fn(&Candidate) -> bool| {
        let candidates = measured.iter().filter(|advised| advised.candidate.engine == candidate.engine);
        let candidates = candidates.filter(|advised| of(&advised.candidate));
        candidates.min_by(|a, b| distance(a).total_cmp(&distance(b)))
    };
    let one = nearest(&|of| of.instances == 1)?;
    if candidate.instances == 1 {
        let of = format!("{} of {}", one.candidate.name(), crate::advise::text::workers(size_of(one)));
        return Some((*one.curve.times(), of));
    }
    let several = nearest(&|of| of.channel == candidate.channel && of.instances > 1)?;
    let local = nearest(&|of| of.channel.is_none() || of.channel == candidate.channel)?;
    let of = format!("local as in {}, the rest as in {}", local.candidate.name(), several.candidate.name());
    // No transaction leaves its worker, so nothing but local times is known, or needed.
    let Some(distributed_us) = several.curve.times().distributed_us.filter(|_| shares.leaving > 0.0) else {
        let known = shares.leaving <= 0.0;
        return known.then_some((Times::of_runs(local.curve.times().local_us, &[]), of));
    };
    let inside_us = one.curve.times().distributed_us.unwrap_or(one.curve.times().local_us);
    let over = (shares.distributed / shares.leaving).clamp(0.0, 1.0);
    let mean_us = over * distributed_us + (1.0 - over) * inside_us;
    // Those that stay wait for those that leave, mostly for as long as these hold their rows between instances.
    let waiting = if over > 0.0 { several.curve.times().waiting } else { one.curve.times().waiting };
    Some((Times { local_us: local.curve.times().local_us, distributed_us: Some(mean_us), waiting }, of))
}

#[cfg(test)]
mod tests {
    use atrapos_instances::model::Waiting;

    use super::*;

    fn advised(instances: usize, local_us: f64, distributed_us: Option<f64>) -> Advised {
        let channel = (instances > 1).then_some(ChannelKind::Shm);
        Advised {
            candidate: Candidate { engine: EngineArg::Atrapos, instances, channel },
            curve: Times { local_us, distributed_us, waiting: Waiting::default() }.into(),
            shares: Shares { leaving: 0.2, distributed: 0.2 },
            tps: 1.0,
            check: None,
        }
    }

    fn goal(shares: &[(usize, f64)]) -> Goal {
        let shares = shares
            .iter()
            .map(|(instances, distributed)| (*instances, Shares { leaving: 0.2, distributed: *distributed }));
        Goal { machine: "elsewhere".to_owned(), workers: 8, shares: shares.collect() }
    }

    #[test]
    fn each_time_comes_from_the_nearest_size() {
        let measured = [advised(1, 2.0, Some(4.0)), advised(2, 1.0, Some(10.0))];
        let shares = [(1, 0.0), (2, 0.1), (8, 0.2)];
        let elsewhere = goal(&shares).extrapolate(&measured, &[ChannelKind::Shm]);
        let found: Vec<Times> =
            elsewhere.deployments.iter().map(|one| one.times.as_ref().expect("known").0).collect();
        let expected = [(2.0, 4.0), (2.0, 7.0), (1.0, 10.0)].map(|(local_us, mean)| Times {
            local_us,
            distributed_us: Some(mean),
            waiting: Waiting::default(),
        });
        assert_eq!(found, expected, "one database; half of what leaves is distributed; all of it is");
        let tps = elsewhere.deployments[0].tps.expect("known");
        assert!((tps - 8e6 / (0.8 * 2.0 + 0.2 * 4.0)).abs() < 1.0, "{tps}");
    }

    #[test]
    fn what_was_not_measured_is_not_known() {
        let alone = [advised(1, 2.0, None)];
        let elsewhere = goal(&[(1, 0.0), (8, 0.2)]).extrapolate(&alone, &[ChannelKind::Shm]);
        assert!(elsewhere.deployments[0].tps.is_some());
        assert!(
            elsewhere.deployments[1].times.is_none(),
            "nothing shows what messages between instances take"
        );
    }

    #[test]
    fn islands_of_a_machine_are_sizes_of_instances() {
        let machine = machine::read("pack:4 core:6 pu:1").expect("a machine");
        assert_eq!(islands(&machine, machine.default_workers()), [1, 4, 24]);
    }
}
