//! Adaptation in a simulation: the controller decides on the thread of the caller, when the caller says so.
//!
//! Owns: the time of the controller. Never: decides otherwise than a database does ([`decide`]).

use std::sync::Arc;
use std::time::Duration;

use atrapos_adapt::{Controller, Observation, Platform, Rules};
use atrapos_partition::schema::Schema;
use atrapos_placement::adaptation::{Adaptation, AdaptationEvent, Observed, decide, mix_of, rate, without};
use atrapos_runtime::WorkerId;
use atrapos_storage::HeapMemory;
use atrapos_topology::Machine;
use atrapos_transaction::central::CentralState;
use atrapos_transaction::monitor::ClassCounts;
use atrapos_transaction::stats::Statistics;

use super::Simulation;
use crate::builder::OpenError;

/// State of adaptation of a simulated database.
pub(super) struct Adapting {
    controller: Controller,
    platform: Platform,
    available: Vec<bool>,
    /// The time that has passed for the controller.
    elapsed: Duration,
    committed: u64,
    waited: u64,
    /// Transactions by class until then.
    classes: ClassCounts,
}

impl Adapting {
    /// Returns the state of a database that has not adapted yet.
    pub(super) fn new(
        machine: &Machine,
        workers: usize,
        adaptation: &Adaptation,
    ) -> Result<Adapting, OpenError> {
        adaptation.check().map_err(OpenError::Setting)?;
        let setting = |error: atrapos_adapt::AdaptError| OpenError::Setting(error.to_string());
        Ok(Adapting {
            controller: Controller::new(adaptation.controller).map_err(setting)?,
            platform: Platform::for_workers(machine, workers).map_err(setting)?,
            available: vec![true; workers],
            elapsed: Duration::ZERO,
            committed: 0,
            waited: 0,
            classes: ClassCounts::default(),
        })
    }
}

impl Simulation {
    /// Creates an empty database on `workers` simulated workers of a described machine, which records every event with a
    /// cost of one tick. It adapts itself on calls of [`adapt`](Simulation::adapt).
    ///
    /// # Errors
    /// The errors of [`new`](Simulation::new); settings that make no sense.
    pub fn adaptive(
        schema: Schema,
        machine: &Machine,
        workers: usize,
        seed: u64,
        adaptation: &Adaptation,
    ) -> Result<Simulation, OpenError> {
        let adapting = Adapting::new(machine, workers, adaptation)?;
        let observing = (adaptation.sample_every, adaptation.sub_partitions);
        let (own, memory) = (CentralState::default(), Arc::new(HeapMemory));
        let mut simulation =
            Simulation::start_with(schema, workers, seed, None, Some(observing), own, memory)?;
        simulation.adapting = Some(adapting);
        Ok(simulation)
    }

    /// Passes the statistics since the last call to the controller, as those of an interval of `interval`, and carries out
    /// its decision while sessions run, in about `steps_max` steps at most. Returns `None` for a simulation that is not
    /// [adaptive](Simulation::adaptive).
    ///
    /// # Panics
    /// Panics if a change does not end within that number of steps.
    pub fn adapt(&mut self, interval: Duration, steps_max: u64) -> Option<AdaptationEvent> {
        let so_far = self.workers.iter().map(|worker| worker.shard().monitor.so_far(worker));
        let so_far: Vec<_> = so_far.collect();
        let Statistics { committed, lock_waits: waited, .. } = self.statistics();
        let adapting = self.adapting.as_mut()?;
        adapting.elapsed += interval;
        let before = std::mem::replace(&mut adapting.committed, committed);
        let waited_before = std::mem::replace(&mut adapting.waited, waited);
        let classes: ClassCounts = so_far.iter().map(|worker| &worker.classes).sum();
        let classes_before = std::mem::replace(&mut adapting.classes, classes.clone());
        let classes = classes.since(&classes_before);
        let samples = so_far.iter().map(|worker| worker.samples.count).sum::<u64>();
        let observation = Observation {
            at_ns: adapting.elapsed.as_nanos() as u64,
            throughput_tps: rate(committed - before, interval.as_nanos() as u64),
            loads: so_far.iter().map(|worker| worker.load as f64).collect(),
            available: adapting.available.clone(),
            changed_platform: false,
            waits: (waited - waited_before) as f64 / (committed - before).max(1) as f64,
            // All events cost the same.
            samples: Some(samples as f64),
            mix: mix_of(&classes),
        };
        let workers = &self.workers;
        let collect = || {
            let workers = workers.iter().map(|worker| worker.shard().monitor.collect(worker)).collect();
            let saturated = Rules::default().saturated;
            let classes = classes.clone();
            let observed = Observed { workers, elapsed: interval, cycles_per_tick: 1.0, saturated, classes };
            Ok::<_, std::convert::Infallible>(observed)
        };
        let platform = without(adapting.platform.clone(), &adapting.available);
        let (scheme, catalog) = (self.scheme.scheme(), self.catalogs.working());
        let Ok((mut event, changes)) =
            decide(&mut adapting.controller, &observation, collect, platform, &scheme, &catalog);
        if let Some(changes) = changes {
            let changed = self.repartition(changes);
            let end = self.steps() + steps_max;
            let outcome = loop {
                self.run_for(1);
                if let Some(outcome) = changed.take() {
                    break outcome;
                }
                assert!(self.steps() < end, "a change of the scheme does not come to its end");
            };
            match outcome {
                Ok(report) => event.report = Some(report),
                Err(abort) => event.failure = Some(abort.to_string()),
            }
        }
        Some(event)
    }

    /// Returns the time that the controller would wait before the next [`adapt`](Simulation::adapt).
    #[must_use]
    pub fn adaptation_interval(&self) -> Option<Duration> {
        self.adapting.as_ref().map(|adapting| adapting.controller.interval())
    }

    /// Sets whether a worker may own data, from the next [`adapt`](Simulation::adapt) on.
    pub fn set_available(&mut self, worker: WorkerId, available: bool) {
        if let Some(adapting) = &mut self.adapting {
            adapting.available[worker.index()] = available;
        }
    }
}
