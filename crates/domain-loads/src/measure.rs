//! Runs of several rounds, alone or alternating with each other, and the choice of the best arrangement.
//!
//! Owns: the order of rounds, medians and variation. Never: runs an operation.
//!
//! Rounds of several runs alternate, every second time in reverse order, so that what changes on the machine meanwhile changes all of
//! them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use atrapos_composition::{RELIABLE_VARIATION_MAX, variation};
use atrapos_topology::Machine;
use statrs::statistics::{Data, Median};

use crate::arrangement::{Access, Arrangement, Threads};
use crate::audit::{Audit, Wrong};
use crate::error::LoadError;
use crate::load::Load;
use crate::prepared::{Prepared, Round};

/// A step of a measurement that has just been made, or, of loading, begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// The structure of run `run` is to be loaded.
    Loading {
        /// The run, from 0.
        run: usize,
    },
    /// A round of run `run` has ended.
    Round {
        /// The run, from 0.
        run: usize,
        /// The round, from 0.
        round: usize,
        /// Operations per second.
        throughput_per_second: f64,
    },
}

/// The way a measurement is made.
pub struct Measurement<'a> {
    /// Rounds of each run.
    pub rounds: usize,
    /// Set by somebody who wants the end: the rounds so far count.
    pub interrupt: &'a AtomicBool,
    /// Called for every step.
    pub watch: &'a mut dyn FnMut(Step),
}

impl std::fmt::Debug for Measurement<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Measurement").field("rounds", &self.rounds).finish_non_exhaustive()
    }
}

/// All rounds of a load on an arrangement.
#[derive(Clone, Debug)]
pub struct Run {
    /// The load.
    pub load: Load,
    /// The arrangement.
    pub arrangement: Arrangement,
    /// The rounds; at least one.
    pub rounds: Vec<Round>,
    /// The round in which clients noted how long they wait, if there was one ([`Load::clocked`]).
    pub clocked: Option<Round>,
    /// The result of the audit.
    pub audit: Result<Audit, Wrong>,
    /// Time that loading took.
    pub loading: Duration,
    /// Set if there are fewer rounds than were asked for, because somebody wanted the end.
    pub interrupted: bool,
}

impl Run {
    /// Operations per second of each round.
    #[must_use]
    pub fn throughputs_per_second(&self) -> Vec<f64> {
        self.rounds.iter().map(Round::throughput_per_second).collect()
    }

    /// Operations per second: the median of the rounds.
    #[must_use]
    pub fn throughput_per_second(&self) -> f64 {
        Data::new(self.throughputs_per_second()).median()
    }

    /// The coefficient of variation of the rounds; `None` of a single one.
    #[must_use]
    pub fn variation(&self) -> Option<f64> {
        variation(&self.throughputs_per_second())
    }

    /// Returns whether the rounds vary by no more than is reliable ([`RELIABLE_VARIATION_MAX`]).
    #[must_use]
    pub fn is_reliable(&self) -> bool {
        self.variation().is_none_or(|variation| variation <= RELIABLE_VARIATION_MAX)
    }

    /// Time of an operation for the thread that drives it, in nanoseconds: of a client that delegates, or of a thread that uses the
    /// structure. Operations of a burst overlap, so it is no latency.
    #[must_use]
    pub fn nanoseconds_per_operation(&self) -> f64 {
        self.arrangement.drivers() as f64 * 1e9 / self.throughput_per_second().max(1e-9)
    }

    /// The round in the middle by throughput; of an even number, the upper one of the two.
    #[must_use]
    pub fn middle(&self) -> &Round {
        let mut rounds: Vec<&Round> = self.rounds.iter().collect();
        rounds.sort_by(|a, b| a.throughput_per_second().total_cmp(&b.throughput_per_second()));
        rounds[rounds.len() / 2]
    }
}

/// Runs a load on an arrangement.
///
/// # Errors
/// [`LoadError`]; what the audit finds is no error but part of the run.
pub fn run(
    machine: &Machine,
    load: &Load,
    arrangement: &Arrangement,
    measurement: &mut Measurement<'_>,
) -> Result<Run, LoadError> {
    let runs = run_alternating(machine, &[(load.clone(), arrangement.clone())], measurement)?;
    Ok(runs.into_iter().next().unwrap_or_else(|| unreachable!("one load gives one run")))
}

/// Runs several loads in rounds that alternate. Their structures are all in memory at once.
///
/// # Errors
/// [`LoadError`]; among others [`LoadError::Interrupted`] if there was an interrupt before each had a round.
pub fn run_alternating(
    machine: &Machine,
    sides: &[(Load, Arrangement)],
    measurement: &mut Measurement<'_>,
) -> Result<Vec<Run>, LoadError> {
    if measurement.rounds == 0 {
        return Err(LoadError::NoRounds);
    }
    let mut prepared = Vec::new();
    for (run, (load, arrangement)) in sides.iter().enumerate() {
        refuse_if_interrupted(measurement)?;
        (measurement.watch)(Step::Loading { run });
        let mut one = Prepared::new(machine, load, arrangement)?;
        one.warm_up(measurement.interrupt)?;
        prepared.push(one);
    }
    let (rounds, interrupted) = alternate(&mut prepared, measurement)?;
    if rounds.iter().any(Vec::is_empty) {
        return Err(LoadError::Interrupted);
    }
    let mut runs = Vec::new();
    for ((mut one, rounds), (load, arrangement)) in prepared.into_iter().zip(rounds).zip(sides) {
        let is_clocked = load.clocked && arrangement.access() == Access::Delegated && !interrupted;
        let clocked = is_clocked.then(|| one.clocked(measurement.interrupt)).transpose()?;
        let (loading, load, arrangement) = (one.loading, load.clone(), arrangement.clone());
        runs.push(Run { load, arrangement, rounds, clocked, audit: one.audit()?, loading, interrupted });
    }
    Ok(runs)
}

fn refuse_if_interrupted(measurement: &Measurement<'_>) -> Result<(), LoadError> {
    if measurement.interrupt.load(Ordering::Relaxed) { Err(LoadError::Interrupted) } else { Ok(()) }
}

/// Makes all rounds, up to an interrupt; returns those of each side, and whether there was one.
fn alternate(
    prepared: &mut [Prepared],
    measurement: &mut Measurement<'_>,
) -> Result<(Vec<Vec<Round>>, bool), LoadError> {
    let mut rounds = vec![Vec::new(); prepared.len()];
    for number in 0..measurement.rounds {
        let mut order: Vec<usize> = (0..prepared.len()).collect();
        if number % 2 == 1 {
            order.reverse();
        }
        for run in order {
            let round = prepared[run].round(measurement.interrupt)?;
            if round.interrupted || refuse_if_interrupted(measurement).is_err() {
                return Ok((rounds, true));
            }
            let throughput_per_second = round.throughput_per_second();
            (measurement.watch)(Step::Round { run, round: number, throughput_per_second });
            rounds[run].push(round);
        }
    }
    Ok((rounds, false))
}

/// The best of the arrangements that were tried.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The best one.
    pub arrangement: Arrangement,
    /// All that were tried, each with its operations per second.
    pub tried: Vec<(Arrangement, f64)>,
}

/// Finds the best arrangement for a load by measuring: direct use, and domains of several sizes. `threads` may name a size; it is
/// ignored.
///
/// # Errors
/// [`LoadError`]; [`LoadError::Wrong`] if an audit finds something.
pub fn choose(
    machine: &Machine,
    load: &Load,
    threads: &Threads,
    measurement: &mut Measurement<'_>,
) -> Result<Choice, LoadError> {
    let candidates = Arrangement::candidates(machine, load.kind, threads)?;
    let sides: Vec<_> = candidates.into_iter().map(|candidate| (load.clone(), candidate)).collect();
    let mut tried = Vec::new();
    for run in run_alternating(machine, &sides, measurement)? {
        let throughput = run.throughput_per_second();
        run.audit?;
        tried.push((run.arrangement, throughput));
    }
    let best = tried.iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
    let arrangement =
        best.unwrap_or_else(|| unreachable!("domains of one worker are always tried")).0.clone();
    Ok(Choice { arrangement, tried })
}
