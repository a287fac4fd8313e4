//! All designs of a load, each measured once, and what each costs beside the best: [`judge_designs`].
//!
//! Owns: which rounds choose and which judge. Never: runs an operation.
//!
//! Designs that come to the same threads on a machine are one candidate, so a structure is loaded once for them. The design configured is the candidate
//! that is best in the first half of the rounds; the other half judges it and all others. So it has no advantage from having been chosen by
//! what it is judged by.

use atrapos_composition::variation;
use atrapos_topology::Machine;
use statrs::statistics::{Data, Median};

use crate::arrangement::{Arrangement, Threads};
use crate::audit::Wrong;
use crate::design::Design;
use crate::error::LoadError;
use crate::load::Load;
use crate::measure::{Measurement, Run, run_alternating};

/// An arrangement that was measured.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The arrangement.
    pub arrangement: Arrangement,
    /// Rigid designs that come to it; none if only [`Design::Configured`] does.
    pub designs: Vec<Design>,
    /// Operations per second in the rounds that choose: their median.
    pub choosing_per_second: f64,
    /// Operations per second in the rounds that judge.
    pub judging_per_second: Vec<f64>,
    /// The finding of the audit, if there is one.
    pub wrong: Option<Wrong>,
}

impl Candidate {
    fn of(run: Run, designs: Vec<Design>) -> Candidate {
        let mut throughputs = run.throughputs_per_second();
        let judging = throughputs.split_off(throughputs.len() / 2);
        // With one round, after an interrupt, it chooses and judges.
        let choosing = if throughputs.is_empty() { judging.clone() } else { throughputs };
        Candidate {
            arrangement: run.arrangement,
            designs,
            choosing_per_second: Data::new(choosing).median(),
            judging_per_second: judging,
            wrong: run.audit.err(),
        }
    }

    /// Operations per second: the median of the rounds that judge.
    #[must_use]
    pub fn throughput_per_second(&self) -> f64 {
        Data::new(self.judging_per_second.clone()).median()
    }

    /// The coefficient of variation of the rounds that judge; `None` of a single one.
    #[must_use]
    pub fn variation(&self) -> Option<f64> {
        variation(&self.judging_per_second)
    }
}

/// All designs of a load.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The load.
    pub load: Load,
    /// The measurements; at least one.
    pub candidates: Vec<Candidate>,
    /// Set if there are fewer rounds than were asked for.
    pub interrupted: bool,
}

impl Judgement {
    /// The candidate that the design configured is.
    #[must_use]
    pub fn configured(&self) -> &Candidate {
        best(&self.candidates, |candidate| candidate.choosing_per_second)
    }

    /// The best candidate.
    #[must_use]
    pub fn best(&self) -> &Candidate {
        best(&self.candidates, Candidate::throughput_per_second)
    }

    /// The rigid design with the least throughput; `None` if no rigid design has this structure.
    #[must_use]
    pub fn worst_rigid(&self) -> Option<&Candidate> {
        let rigid = self.candidates.iter().filter(|candidate| !candidate.designs.is_empty());
        rigid.min_by(|a, b| a.throughput_per_second().total_cmp(&b.throughput_per_second()))
    }

    /// The throughput of a candidate over that of the best.
    #[must_use]
    pub fn to_best(&self, candidate: &Candidate) -> f64 {
        candidate.throughput_per_second() / self.best().throughput_per_second()
    }
}

fn best(candidates: &[Candidate], by: impl Fn(&Candidate) -> f64) -> &Candidate {
    let best = candidates.iter().max_by(|a, b| by(a).total_cmp(&by(b)));
    best.unwrap_or_else(|| unreachable!("domains of one worker are always tried"))
}

/// The arrangements to measure for a load, each with the rigid designs that come to it. Designs that the structure or the machine does not have are
/// left out.
///
/// # Errors
/// A [`LoadError`] that names the number that is not possible.
pub fn candidates_of(
    machine: &Machine,
    load: &Load,
    threads: &Threads,
) -> Result<Vec<(Arrangement, Vec<Design>)>, LoadError> {
    let threads = Threads { domain_size: None, ..*threads };
    let mut candidates: Vec<(Arrangement, Vec<Design>)> = Vec::new();
    for design in [Design::Se, Design::SeNuma, Design::SnNuma, Design::SnThread] {
        let arrangement = match Arrangement::new(machine, design, &threads) {
            Err(LoadError::FewerWorkersThanNodes { .. }) => continue,
            arrangement => arrangement?,
        };
        if arrangement.check(load.kind).is_err() {
            continue;
        }
        match candidates.iter_mut().find(|(known, _)| known.is_like(&arrangement)) {
            Some((_, designs)) => designs.push(design),
            None => candidates.push((arrangement, vec![design])),
        }
    }
    for arrangement in Arrangement::candidates(machine, load.kind, &threads)? {
        if !candidates.iter().any(|(known, _)| known.is_like(&arrangement)) {
            candidates.push((arrangement, Vec::new()));
        }
    }
    Ok(candidates)
}

/// Measures all designs of a load. Half of the rounds choose and half judge, so there should be an even number.
///
/// # Errors
/// [`LoadError`]; what an audit finds is part of the result.
pub fn judge_designs(
    machine: &Machine,
    load: &Load,
    threads: &Threads,
    measurement: &mut Measurement<'_>,
) -> Result<Judgement, LoadError> {
    let candidates = candidates_of(machine, load, threads)?;
    let sides: Vec<_> =
        candidates.iter().map(|(arrangement, _)| (load.clone(), arrangement.clone())).collect();
    let runs = run_alternating(machine, &sides, measurement)?;
    let interrupted = runs.iter().any(|run| run.interrupted);
    let judged = runs.into_iter().zip(candidates).map(|(run, (_, designs))| Candidate::of(run, designs));
    Ok(Judgement { load: load.clone(), candidates: judged.collect(), interrupted })
}
