//! `atrapos advise`: which deployment is best for a workload: one database, or several instances that divide the data.
//!
//! Every deployment of this machine's workers is loaded once and runs the workload with all work local, with a little of it remote, with a
//! quarter and half of it, with as much as there can be, and with another share in between. All but the last one give the curve of the model
//! ([`model`]), the last one checks it. Clients are at their data, so that a transaction begins in the instance of its first key. Engines with shared data are
//! compared in the same way if they are asked for: what leaves a worker of the partitioned engine is then what leaves the part of a thread.
//!
//! Owns: the order of the steps, and the result ([`Study`]). Never: measures itself ([`measure`] does), or formats ([`text`] and
//! [`json`] do).

mod elsewhere;
mod json;
mod measure;
mod text;

use atrapos_harness::registry::{AnyWorkload, Configured};
use atrapos_instances::ChannelKind;
use atrapos_instances::model::{self, Curve, Reign};
use atrapos_workloads::registry::{Choice, Common};
use serde_json::Value;

use self::elsewhere::Elsewhere;
use self::measure::Runs;
use crate::args::{EngineArg, WorkloadAdvise};
use crate::error::CliError;
use crate::instances::{self, Place};
use crate::output;
use crate::output::JsonFile;
use crate::{interrupt, machine};

/// A deployment to compare: one way to divide the data of a number of workers among databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    /// The engine of each database.
    engine: EngineArg,
    /// Databases, each in a process of its own if there are several.
    instances: usize,
    /// The way of the messages between them, if there are several.
    channel: Option<ChannelKind>,
}

impl Candidate {
    /// Returns all of them for a number of workers: with every engine, and every number of instances that divides it.
    fn all(workers: usize, channels: &[ChannelKind], engines: &[EngineArg]) -> Vec<Candidate> {
        let of_engine = |engine: &EngineArg| {
            let engine = *engine;
            let several = (2..=workers).filter(|instances| workers.is_multiple_of(*instances));
            let several = several.flat_map(move |instances| {
                channels.iter().map(move |channel| Candidate { engine, instances, channel: Some(*channel) })
            });
            std::iter::once(Candidate { engine, instances: 1, channel: None }).chain(several)
        };
        engines.iter().flat_map(of_engine).collect()
    }

    fn name(self) -> String {
        let engine = match self.engine {
            EngineArg::Atrapos => String::new(),
            other => format!(" of {}", other.name()),
        };
        match self.channel {
            None => format!("1 database{engine}"),
            Some(channel) => format!("{} instances{engine}, {channel}", self.instances),
        }
    }
}

/// The shares of transactions that leave their worker, and their instance, as the formulas of the workload say.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shares {
    /// Transactions over several workers.
    leaving: f64,
    /// Those of them that are over several instances.
    distributed: f64,
}

/// A workload, and the formulas of its shares for a number of workers.
struct Subject<'a> {
    workload: &'a dyn AnyWorkload,
    workers: usize,
}

impl Subject<'_> {
    /// Returns the shares in a number of instances, with another share of remote work if one is given.
    fn shares(&self, instances: usize, remote: Option<f64>) -> Result<Shares, CliError> {
        let varied = remote.map(|share| self.workload.with_remote_share(share));
        let workload = varied.as_deref().unwrap_or(self.workload);
        let share = |parts| workload.distributed_share(parts).map_err(CliError::bad_input);
        Ok(Shares { leaving: share(self.workers)?, distributed: share(instances)? })
    }

    /// Returns the share of remote work with which the share `leaving` leaves its worker, by bisection: more remote work has more
    /// transactions leave.
    fn remote_for(&self, leaving: f64) -> Result<f64, CliError> {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if self.shares(1, Some(middle))?.leaving < leaving { low = middle } else { high = middle }
        }
        Ok(f64::midpoint(low, high))
    }
}

/// The model of one deployment, and its predictions.
#[derive(Clone, Debug)]
struct Advised {
    candidate: Candidate,
    curve: Curve,
    /// The shares of the workload as it was given.
    shares: Shares,
    /// The transactions per second of the workload as it was given.
    tps: f64,
    /// Predicted and measured transactions per second with the remote work of [`Remote::checked`].
    check: Option<(f64, f64)>,
}

/// A workload whose remote work can be varied.
#[derive(Clone, Debug)]
struct Remote {
    /// The share that was given.
    asked: f64,
    /// The shares that are measured for the model, besides none, ascending.
    measured: [f64; MEASURED.len()],
    /// The share at which predictions are checked, which is none of these.
    checked: f64,
    /// Shares from 0 to 1, and those of the transactions that then leave their worker.
    steps: Vec<(f64, f64)>,
}

/// The result.
#[derive(Debug)]
struct Study {
    benchmark: &'static str,
    choice: Choice,
    machine: Value,
    workers: usize,
    seconds: f64,
    /// Transactions of the workload as it was given that leave their worker.
    leaving: f64,
    /// `None` if no option decides how much work is remote, or if all stays on its worker anyhow.
    remote: Option<Remote>,
    /// In the order of instances; not empty.
    deployments: Vec<Advised>,
    /// The index of the best one.
    best: usize,
    /// Transactions per second of one database that adapts, with clients that choose any data.
    adapting_tps: f64,
    /// The best deployments by the share of transactions that leave their worker, each with the shares of remote work at which it
    /// begins and ends to be; none if remote work cannot be varied.
    reigns: Vec<(Reign, f64, f64)>,
    elsewhere: Option<Elsewhere>,
}

/// Steps of the shares of remote work that are predicted.
const STEPS: usize = 10;

/// The share of remote work at which predictions are checked, unless the one that was given is between none and all.
const CHECKED_DEFAULT: f64 = 0.2;

/// Shares of remote work that are measured for the model: two where waiting begins, a quarter, half, and all.
const MEASURED: [f64; 5] = [0.05, 0.1, 0.25, 0.5, 1.0];

/// Shares that are measured instead of the first four of these if predictions are to be checked there or nearby.
const MEASURED_INSTEAD: [f64; 4] = [0.03, 0.14, 0.35, 0.4];

/// The least distance of a share that is checked from one that is measured, as a part of it.
const APART: f64 = 0.18;

/// Returns the shares that are measured for the model, ascending, so that `checked` is none of them.
fn measured_beside(checked: f64) -> [f64; MEASURED.len()] {
    let mut measured = MEASURED;
    for (share, instead) in measured.iter_mut().zip(MEASURED_INSTEAD) {
        if (*share - checked).abs() < APART * *share {
            *share = instead;
        }
    }
    measured
}

/// Runs `atrapos advise`.
pub(crate) fn advise(chosen: &WorkloadAdvise) -> Result<(), CliError> {
    let args = &chosen.args;
    let config = measure::config(args, EngineArg::Atrapos)?;
    let common = Common { workers: config.workers, seed: config.seed };
    let Configured { name, choice, workload } =
        chosen.given.configure(common).map_err(CliError::bad_input)?;
    if let Some(place) = &args.member {
        let place = Place::read(place)?;
        return instances::run_member(&*workload, measure::config(args, place.engine)?, place);
    }
    let subject = Subject { workload: &*workload, workers: config.workers };
    let leaving = subject.shares(1, None)?.leaving;
    let goal = elsewhere::Goal::of(args, chosen)?;
    if let Some(available) = machine::available_memory_bytes() {
        workload.check_memory(available).map_err(CliError::bad_input)?;
    }
    let file = args.json.as_deref().map(JsonFile::prepare).transpose()?;
    interrupt::install();
    let remote = remote_of(&subject)?;
    let runs = Runs { args, workload: &*workload, remote: remote.as_ref() };
    let candidates = Candidate::all(config.workers, &args.channel.0, &args.engine.0);
    let advised = candidates.into_iter().map(|candidate| one(&subject, &runs, candidate));
    let deployments: Vec<Advised> = advised.collect::<Result<_, _>>()?;
    let curves: Vec<Curve> = deployments.iter().map(|advised| advised.curve.clone()).collect();
    let reigns = remote.as_ref().map_or(Ok(Vec::new()), |remote| reigns(&subject, &curves, remote))?;
    let study = Study {
        benchmark: name,
        choice,
        machine: machine::summary(&config.machine),
        workers: config.workers,
        seconds: args.seconds,
        leaving,
        best: model::best(&curves, leaving),
        adapting_tps: runs.adapting()?,
        elsewhere: goal.map(|goal| goal.extrapolate(&deployments, &args.channel.0)),
        remote,
        reigns,
        deployments,
    };
    output::print(&text::study(&study))?;
    file.map_or(Ok(()), |file| file.write(&json::study(&study)))
}

/// Returns the remote work of the workload; `None` if it cannot be varied, or if that makes no transaction leave its worker.
fn remote_of(subject: &Subject<'_>) -> Result<Option<Remote>, CliError> {
    let Some(asked) = subject.workload.remote_share() else { return Ok(None) };
    let step = |step: usize| {
        let share = step as f64 / STEPS as f64;
        Ok((share, subject.shares(1, Some(share))?.leaving))
    };
    let steps: Vec<(f64, f64)> = (0..=STEPS).map(step).collect::<Result<_, CliError>>()?;
    let checked = if asked > 0.0 && asked < 1.0 { asked } else { CHECKED_DEFAULT };
    let varies = steps[STEPS].1 > 0.0;
    Ok(varies.then_some(Remote { asked, measured: measured_beside(checked), checked, steps }))
}

/// Measures a deployment, and returns what follows.
fn one(subject: &Subject<'_>, runs: &Runs<'_>, candidate: Candidate) -> Result<Advised, CliError> {
    let shares = subject.shares(candidate.instances, None)?;
    let tps = runs.of(candidate)?;
    let time = |tps: f64| model::time_us(subject.workers, tps);
    let predict = |curve: &Curve, leaving| model::throughput_tps(subject.workers, curve.at(leaving));
    let Some(remote) = runs.remote else {
        let curve = Curve::of_runs(time(tps[0]), &[]);
        return Ok(Advised { candidate, curve, shares, tps: tps[0], check: None });
    };
    let run = |(share, tps): (&f64, &f64)| Ok((subject.shares(1, Some(*share))?.leaving, time(*tps)));
    let others: Vec<model::Run> =
        remote.measured.iter().zip(&tps[1..]).map(run).collect::<Result<_, CliError>>()?;
    let curve = Curve::of_runs(time(tps[0]), &others);
    let checked = subject.shares(1, Some(remote.checked))?.leaving;
    let check = Some((predict(&curve, checked), tps[1 + others.len()]));
    let tps = predict(&curve, shares.leaving);
    Ok(Advised { candidate, curve, shares, tps, check })
}

/// Returns the best deployments over all shares of remote work.
fn reigns(
    subject: &Subject<'_>,
    curves: &[Curve],
    remote: &Remote,
) -> Result<Vec<(Reign, f64, f64)>, CliError> {
    let most = remote.steps[STEPS].1;
    let ends = |share: f64| match share {
        share if share <= 0.0 => Ok(0.0),
        share if share >= most => Ok(1.0),
        share => subject.remote_for(share),
    };
    let reigns = model::reigns(curves, most).into_iter();
    reigns.map(|reign| Ok((reign, ends(reign.from)?, ends(reign.to)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_divisor_of_the_workers_is_a_number_of_instances() {
        let counts = |workers, channels: &[ChannelKind]| -> Vec<usize> {
            Candidate::all(workers, channels, &[EngineArg::Atrapos])
                .iter()
                .map(|candidate| candidate.instances)
                .collect()
        };
        assert_eq!(counts(6, &[ChannelKind::Shm]), [1, 2, 3, 6]);
        assert_eq!(counts(1, &[ChannelKind::Shm]), [1]);
        assert_eq!(counts(2, ChannelKind::all()), [1, 2, 2, 2, 2]);
        let engines = [EngineArg::Atrapos, EngineArg::SharedOcc];
        let all = Candidate::all(2, &[ChannelKind::Tcp], &engines);
        let names: Vec<String> = all.into_iter().map(Candidate::name).collect();
        let of_occ = ["1 database of shared-occ", "2 instances of shared-occ, tcp"];
        assert_eq!(names, [&["1 database", "2 instances, tcp"][..], &of_occ].concat());
    }

    #[test]
    fn what_is_checked_is_not_measured_for_the_model() {
        for checked in (1..100).map(|percent| f64::from(percent) / 100.0) {
            let measured = measured_beside(checked);
            assert!(measured.is_sorted() && measured[4] == 1.0, "{checked}: {measured:?}");
            assert!(measured.iter().all(|share| (share - checked).abs() > 0.005), "{checked}: {measured:?}");
        }
        assert_eq!(measured_beside(CHECKED_DEFAULT), MEASURED);
    }

    #[test]
    fn the_remote_work_of_a_share_is_found_again() {
        use clap::Command;

        use crate::benchmarks::entry;
        for name in ["micro", "tpcb", "tpcc"] {
            let entry = entry(name).expect("a workload");
            let command: Command = entry.command();
            let given = entry.given(&command.get_matches_from([name])).expect("options have defaults");
            let configured = given.configure(Common { workers: 2, seed: 1 }).expect("defaults are possible");
            let subject = Subject { workload: &*configured.workload, workers: 2 };
            for remote in [0.1, 0.3, 0.9] {
                let leaving = subject.shares(1, Some(remote)).expect("a formula").leaving;
                let found = subject.remote_for(leaving).expect("a formula");
                assert!((found - remote).abs() < 1e-9, "{name}: {found} instead of {remote}");
            }
            let one = subject.shares(1, Some(1.0)).expect("a formula");
            assert!(
                one.leaving > 0.0 && one.distributed == 0.0,
                "{name}: one database has nothing distributed"
            );
        }
    }
}
