//! Tables together or apart: loads that cannot be cut by keys, on a database whose tables are one family, on one whose tables are a
//! family each, and on one that keeps its scheme.
//!
//! Owns: the loads, and running the sides. Never: decides what is together; the controllers of the databases do.
//!
//! All sides of a load begin with the same scheme, by which one worker has what is hot, and take turns ([`super::timeline`]).

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use atrapos_workloads::tatp::Tatp;
use atrapos_workloads::tatp::parameters::Mix;
use atrapos_workloads::tpcc::{Tpcc, TpccConfig};
use atrapos_workloads::{KeyChoice, Workload};

use super::comparison::Pairs;
use super::timeline::{self, Phase, Side, Span, Timeline, Turn};
use super::{ExperimentError, Setup, Watched, audit_and_close};

/// A load that cannot be divided among workers by keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Load {
    /// TATP, nearly all of whose requests go to one subscriber: most transactions need one of its tables.
    HotSubscriber,
    /// TPC-C with one warehouse: all transactions need many tables.
    OneWarehouse,
}

/// Nearly all requests to the first key.
const HOT_KEY: KeyChoice = KeyChoice::Hot { requests_percent: 98, first_permille: 0, size_permille: 0 };

/// The items and the customers per district of TPC-C's specification, and the fewest there can be.
const ITEMS: (u64, u64) = (100, 100_000);
const CUSTOMERS: (u64, u64) = (10, 3_000);

impl Load {
    /// All loads, in the order in which they are run.
    pub const ALL: [Load; 2] = [Load::HotSubscriber, Load::OneWarehouse];

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Load::HotSubscriber => "TATP, one hot subscriber",
            Load::OneWarehouse => "TPC-C, one warehouse",
        }
    }
}

fn tatp(setup: &Setup<'_>) -> Result<Tatp, ExperimentError> {
    Ok(Tatp::new(setup.rows, Mix::Standard, HOT_KEY, setup.seed)?)
}

/// Returns TPC-C with as many items as there are rows, and customers in proportion, up to those of the specification.
fn tpcc(setup: &Setup<'_>, apart: bool) -> Result<Tpcc, ExperimentError> {
    let items = setup.rows.clamp(ITEMS.0, ITEMS.1);
    let customers = (items * CUSTOMERS.1 / ITEMS.1).max(CUSTOMERS.0);
    let config =
        TpccConfig { warehouses: 1, items, customers, apart, seed: setup.seed, ..TpccConfig::default() };
    Ok(Tpcc::new(config)?)
}

/// The shares that workers have of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Owners {
    /// The tables and indexes of a family.
    pub tables: Vec<String>,
    /// The share of each worker, from 0 to 1: of the observed load if there was any, otherwise of the rows.
    pub shares: Vec<f64>,
}

impl Owners {
    /// Returns the worker with the greatest share.
    #[must_use]
    pub fn main(&self) -> usize {
        let greatest = self.shares.iter().enumerate().max_by(|one, other| one.1.total_cmp(other.1));
        greatest.map_or(0, |(worker, _)| worker)
    }
}

/// Returns who had which table when a side ended.
#[must_use]
pub fn owners(timeline: &Timeline) -> Vec<Owners> {
    let Some((_, last)) = timeline.moments.last() else { return Vec::new() };
    let of_family = |family: &atrapos::activity::FamilyActivity| {
        let (mut loads, mut rows) = (vec![0; last.workers.len()], vec![0; last.workers.len()]);
        for partition in &family.partitions {
            let Some(worker) = partition.worker.map(usize::from) else { continue };
            loads[worker] += partition.load_ns.iter().sum::<u64>();
            rows[worker] += partition.rows.iter().sum::<u64>();
        }
        let counted = if loads.iter().any(|load| *load > 0) { loads } else { rows };
        let all = counted.iter().sum::<u64>().max(1) as f64;
        let shares = counted.into_iter().map(|own| own as f64 / all).collect();
        Owners { tables: family.tables.clone(), shares }
    };
    last.families.iter().map(of_family).collect()
}

/// Results of one load in one round.
#[derive(Clone, Debug)]
pub struct LoadRound {
    /// The load.
    pub load: Load,
    /// The side that keeps its scheme.
    pub fixed: Timeline,
    /// The adaptive side whose tables are together, unless only the first was wanted.
    pub together: Option<Timeline>,
    /// The adaptive side whose tables are apart, unless only the first was wanted.
    pub apart: Option<Timeline>,
}

/// Returns the slices of the second half of a side's time, when it has had the first to adapt.
#[must_use]
pub fn settled(side: &Timeline) -> &[Span] {
    let slices = side.slices_of(0);
    &slices[slices.len() / 2..]
}

/// Returns the throughputs of two sides in the slices of the second half of their time.
#[must_use]
pub fn settled_pairs(side: &Timeline, other: &Timeline) -> Pairs {
    Pairs(settled(side).iter().zip(settled(other)).map(|(side, other)| (side.tps, other.tps)).collect())
}

fn phase(setup: &Setup<'_>, load: Load) -> Phase {
    Phase { name: load.name(), length: setup.phase, setting: 0, event: None }
}

fn sides(setup: &Setup<'_>) -> u32 {
    if setup.static_only { 1 } else { 3 }
}

/// Returns the time of the whole experiment besides loading.
#[must_use]
pub fn length(setup: &Setup<'_>, rounds: u32) -> Duration {
    setup.phase * sides(setup) * rounds * Load::ALL.len() as u32
}

/// Refuses what is impossible, or data that does not fit in memory.
///
/// # Errors
/// Returns an error that names the remedy.
pub fn check(setup: &Setup<'_>, available_bytes: Option<u64>) -> Result<(), ExperimentError> {
    if setup.workers < 2 {
        return Err(ExperimentError::Setting(
            "one worker has all tables, together or apart; use at least 2 --workers".to_owned(),
        ));
    }
    let (tatp, tpcc) = (tatp(setup)?, tpcc(setup, false)?);
    if let Some(available) = available_bytes.map(|bytes| bytes / u64::from(sides(setup))) {
        let grown = (tpcc.growth_bytes_per_second() as f64 * setup.phase.as_secs_f64()) as u64;
        tatp.check_memory(available)?;
        tpcc.check_memory(available.saturating_sub(grown))?;
    }
    Ok(())
}

/// Runs all sides of all loads, `rounds` times. The reported times add up to [`length`].
///
/// # Errors
/// See [`ExperimentError`].
pub fn run(
    setup: &Setup<'_>,
    rounds: u32,
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(Watched<'_>),
) -> Result<Vec<Vec<LoadRound>>, ExperimentError> {
    let mut round = |is_reversed: bool| {
        let of_load = |load: Load| match load {
            Load::HotSubscriber => {
                let tatp = tatp(setup)?;
                Running { setup, load, is_reversed, interrupt }.round([&tatp, &tatp.clone().apart()], watch)
            }
            Load::OneWarehouse => {
                let sides = [&tpcc(setup, false)?, &tpcc(setup, true)?];
                Running { setup, load, is_reversed, interrupt }.round(sides, watch)
            }
        };
        Load::ALL.into_iter().map(of_load).collect()
    };
    (0..rounds).map(|number| round(number % 2 == 1)).collect()
}

/// A load that runs.
struct Running<'a> {
    setup: &'a Setup<'a>,
    load: Load,
    /// True if the last side is the first.
    is_reversed: bool,
    interrupt: &'a AtomicBool,
}

impl Running<'_> {
    /// Runs all sides once, of a workload on tables together and of the same on tables apart.
    fn round<W: Workload>(
        &self,
        [together, apart]: [&W; 2],
        watch: &mut dyn FnMut(Watched<'_>),
    ) -> Result<LoadRound, ExperimentError> {
        let Setup { workers, sessions, static_only, adaptation, .. } = *self.setup;
        watch(Watched { what: "loading", elapsed: Duration::ZERO, tps: 0.0 });
        let fixed = self.setup.loaded(together, |builder| builder.workers(workers).fixed_scheme())?;
        let mut opened = vec![(together, fixed)];
        for workload in [together, apart].into_iter().filter(|_| !static_only) {
            let adaptive =
                self.setup.loaded(workload, |builder| builder.workers(workers).adaptation(adaptation))?;
            opened.push((workload, adaptive));
        }
        let all = opened.iter();
        let all = all.map(|(workload, (db, since))| Side::new(db, *since, *workload, sessions, false));
        let mut all = all.collect::<Result<Vec<_>, _>>()?;
        let phase = phase(self.setup, self.load);
        let mut turns: Vec<&mut dyn Turn> = all.iter_mut().map(|side| -> &mut dyn Turn { side }).collect();
        timeline::warm_up(&mut turns, &phase)?;
        timeline::run_phase(&mut turns, &phase, self.is_reversed, self.interrupt, watch)?;
        let ended = all.into_iter().map(Side::end).collect::<Result<Vec<_>, _>>()?;
        let mut timelines = Vec::new();
        for ((workload, (db, _)), (timeline, ledger)) in opened.into_iter().zip(ended) {
            audit_and_close(db, workload, &ledger)?;
            timelines.push(timeline);
        }
        let mut timelines = timelines.into_iter();
        let fixed = timelines.next().unwrap_or_default();
        Ok(LoadRound { load: self.load, fixed, together: timelines.next(), apart: timelines.next() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_half_counts() {
        let side = |tps: &[f64]| {
            let slices = tps.iter().map(|tps| Span { begin_s: 0.0, end_s: 1.0, tps: *tps });
            Timeline { slices: vec![slices.collect()], ..Timeline::default() }
        };
        let pairs = settled_pairs(&side(&[9.0, 9.0, 1.0, 3.0]), &side(&[1.0, 1.0, 2.0, 2.0]));
        assert_eq!(pairs, Pairs(vec![(1.0, 2.0), (3.0, 2.0)]));
        assert_eq!(settled_pairs(&Timeline::default(), &side(&[1.0])), Pairs::default());
    }

    #[test]
    fn the_main_owner_has_the_greatest_share() {
        let of = |shares: &[f64]| Owners { tables: Vec::new(), shares: shares.to_vec() }.main();
        assert_eq!([of(&[0.2, 0.7, 0.1]), of(&[1.0, 0.0]), of(&[])], [1, 0, 0]);
    }
}
