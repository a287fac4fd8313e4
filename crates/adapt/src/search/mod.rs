//! The searches: Algorithm 1, Algorithm 2, and what comes before and after them.
//!
//! Owns: which starts are searched from, in which order, and how long. Never: evaluates anything itself; see `state`.
//!
//! 1. `starts`: the naive scheme; equal loads per table; equal loads over all tables in a row, which is the paper's
//!    start; equal loads over the slices of all tables in an order that puts together what synchronizes; today's scheme.
//! 2. From each: [`choose_partitioning`]'s loop (Algorithm 1), then [`choose_placement`]'s (Algorithm 2), then `refine`,
//!    which repeats both kinds of change on the objective until none helps.
//! 3. The best result; where the case is small, `anneal` goes on from it.
//! 4. The same, improved once more with dearer synchronization: further proposals, for the worker that has all of what it takes part in.
//!
//! Invariants: deterministic; every change that is kept lowers the objective, so the result is not costlier than any start;
//! effort is bounded by a count of evaluations, never by time.

mod anneal;
mod busiest;
mod partitioning;
mod placement;
mod refine;
mod starts;
pub(crate) mod state;

use crate::cost::Weights;
use crate::error::AdaptError;
use crate::platform::Platform;
use crate::price::Prices;
use crate::scheme::PlannedScheme;
use crate::thresholds::Thresholds;
use crate::workload::Workload;
use serde::{Deserialize, Serialize};
use state::{GAIN_MIN, Problem, State};

/// Settings of a search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The objective.
    pub weights: Weights,
    /// Evaluations of synchronization points per start, for each slice and each partner of the statistics. Default 12.
    /// 0 keeps the best of the starts.
    pub effort: u32,
    /// The length of annealing, for small cases (at most 1,024 slices times workers). Default [`Annealing::Long`]; a controller's is
    /// [`Annealing::Short`].
    pub annealing: Annealing,
    /// Prices of the way to a scheme, and of rows that are crowded.
    pub prices: Prices,
    /// Thresholds below which something is too little to count, and bounds of what is estimated.
    #[serde(default)]
    pub thresholds: Thresholds,
}

/// The length of annealing, in random changes for each unit of [`Settings::effort`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Annealing {
    /// Not at all.
    None,
    /// For a quarter of the long time, in which what is found is as good in all but a few cases, and with a bound on the
    /// synchronization points that are looked at. It must save 1% of the work, which is less than statistics of samples tell: what
    /// random changes fit to them beyond that is lost when others come.
    Short,
    /// For longer than a plan for 80 workers takes: what is found is within a few percent of the optimum.
    Long,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            weights: Weights::default(),
            effort: 12,
            annealing: Annealing::Long,
            prices: Prices::default(),
            thresholds: Thresholds::default(),
        }
    }
}

/// Evaluations that are always allowed, so that small cases are searched well.
const EFFORT_MIN: u64 = 20_000;

impl Settings {
    fn effort_for(&self, workload: &Workload) -> u64 {
        let partners: usize = workload.sync_points().iter().map(|point| point.partners.len()).sum();
        let size = (partners + workload.all_costs().len()) as u64;
        match self.effort {
            0 => 0,
            effort => (size * u64::from(effort)).max(EFFORT_MIN),
        }
    }
}

/// Algorithm 1 (`ATraPos §V-C`): groups sub-partitions into partitions so that workers are loaded equally. The start is
/// the paper's: slices of all tables in a row, to one worker until its load is the mean, then to the next. Then the worker
/// with the least load is given one sub-partition after the other, neighbours of what it has first.
///
/// It differs from the paper in that a worker may have several partitions, of one or several tables, and in that a change
/// must lower the objective as well as RU.
///
/// # Errors
/// A weight that is no weight.
pub fn choose_partitioning(
    workload: &Workload,
    platform: &Platform,
    settings: &Settings,
) -> Result<PlannedScheme, AdaptError> {
    settings.weights.check()?;
    let problem = Problem::new(workload, platform, &settings.weights);
    let mut state = State::new(&problem, starts::in_a_row(&problem));
    partitioning::improve(&mut state, settings.effort_for(workload));
    Ok(state.scheme())
}

/// Algorithm 2 (`ATraPos §V-C`): from the costliest synchronization point down, brings partitions that meet nearer to each
/// other by moving one, or by switching it with another, as long as the objective falls.
///
/// It differs from the paper in that it starts from the given placement, in that a partition may move alone, since a
/// worker may have several, and in that balance counts: partitions that are switched need not be equally loaded.
///
/// # Errors
/// A scheme that does not fit, or gives something to a retired worker ([`AdaptError::UnknownWorker`]); a weight that is no
/// weight.
pub fn choose_placement(
    workload: &Workload,
    platform: &Platform,
    scheme: &PlannedScheme,
    settings: &Settings,
) -> Result<PlannedScheme, AdaptError> {
    settings.weights.check()?;
    scheme.check(workload, platform)?;
    let owners = scheme.slice_owners(workload);
    if let Some(worker) = owners.iter().find(|owner| !platform.is_available(**owner)) {
        return Err(AdaptError::UnknownWorker { worker: *worker, workers: platform.worker_count() });
    }
    let problem = Problem::new(workload, platform, &settings.weights);
    let ranks = owners.iter().map(|owner| platform.rank(*owner)).collect();
    let mut state = State::new(&problem, ranks);
    placement::improve(&mut state, settings.effort_for(workload));
    placement::gather(&mut state, settings.effort_for(workload));
    Ok(state.scheme())
}

/// The best scheme that is found for `workload` on `platform`, whatever today's is. `today` is one more start, and wins
/// ties; what it gives to retired workers is given to available ones first.
///
/// # Errors
/// A scheme that does not fit (see [`PlannedScheme::check`]), or a weight that is no weight.
pub fn search(
    workload: &Workload,
    platform: &Platform,
    today: Option<&PlannedScheme>,
    settings: &Settings,
) -> Result<PlannedScheme, AdaptError> {
    let best = Found::by(workload, platform, today, settings)?.best;
    Ok(best)
}

/// Results of a search.
pub(crate) struct Found {
    /// The best scheme.
    pub(crate) best: PlannedScheme,
    /// The one that was found from today's: usually not as good, but near.
    pub(crate) near: Option<PlannedScheme>,
    /// The best one, improved with synchronization weighing more: by each of the [`aligning_factors`].
    pub(crate) aligned: Vec<PlannedScheme>,
}

/// Least factor on the weight of synchronization in the last searches.
const ALIGNED: f64 = 4.0;

/// Factors on the weight of synchronization in the last searches. A worker has all of what it takes part in, of which the mean over all workers has little: whether
/// the busiest worker is better off with less work and more synchronization is told by [`Cost::judged`](crate::Cost::judged) afterwards. With the greatest factor
/// the objective is right where one worker takes part, as one of two, in nearly all of it.
fn aligning_factors(weights: &Weights, workers: usize) -> impl Iterator<Item = f64> {
    let takes_part_in_all = weights.busiest * workers as f64 / 2.0;
    [ALIGNED, takes_part_in_all].into_iter().filter(|factor| *factor >= ALIGNED)
}

impl Found {
    /// As [`search`].
    pub(crate) fn by(
        workload: &Workload,
        platform: &Platform,
        today: Option<&PlannedScheme>,
        settings: &Settings,
    ) -> Result<Self, AdaptError> {
        settings.weights.check()?;
        if let Some(scheme) = today {
            scheme.check(workload, platform)?;
        }
        let problem = Problem::new(workload, platform, &settings.weights);
        let effort = settings.effort_for(workload);
        let mut best: Option<(f64, State<'_>)> = None;
        let mut near = None;
        for owner in starts::all(&problem, today, settings.thresholds.group_max) {
            let mut state = State::new(&problem, owner);
            partitioning::improve(&mut state, effort / 4);
            placement::improve(&mut state, effort / 2);
            refine::improve(&mut state, effort);
            state.recompute();
            let workers = platform.available_count();
            let price = state.objective + settings.prices.of_crowding(workload, &state.owner, workers);
            if best.is_none() && today.is_some() {
                near = Some(state.scheme());
            }
            if best.as_ref().is_none_or(|(least, _)| price < least - GAIN_MIN) {
                best = Some((price, state));
            }
        }
        let (_, best) = best.expect("there is always the naive start");
        let best = anneal::improve(best, settings);
        let mut aligned = Vec::new();
        for factor in aligning_factors(&settings.weights, platform.available_count()) {
            let mut weights = settings.weights;
            weights.synchronization *= factor;
            let problem = Problem::new(workload, platform, &weights);
            let mut state = State::new(&problem, best.owner.clone());
            placement::improve(&mut state, effort / 2);
            refine::improve(&mut state, effort);
            aligned.push(state.scheme());
        }
        let best = best.scheme();
        Ok(Self { near: near.filter(|near| *near != best), best, aligned })
    }
}
