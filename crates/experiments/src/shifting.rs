//! A workload that changes while it runs: one of several configurations of the same workload, selected by a dial.
//!
//! Owns: the dial. Never: chooses when it is turned.
//!
//! Clients read the dial before every transaction. It is written a few times in a run, so reading it is a hit in the
//! reader's own cache.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use atrapos::{Abort, Database, Handles, LoadError, LoadProgress, Procedures, RegisterError, Schema};
use atrapos_workloads::{
    AuditError, AuditReport, ClassId, Client, Ledger, NotEnoughMemory, Outcome, Reach, SetupError, Workload,
};
use crossbeam_utils::CachePadded;

/// Several configurations of one workload with a common schema, population, classes and auditor.
#[derive(Clone, Debug)]
pub struct Shifting<W> {
    settings: Vec<W>,
    dial: Arc<CachePadded<AtomicUsize>>,
}

impl<W: Workload> Shifting<W> {
    /// Begins with the first of `settings`; returns `None` if there are none.
    #[must_use]
    pub fn new(settings: Vec<W>) -> Option<Shifting<W>> {
        (!settings.is_empty()).then(|| Shifting { settings, dial: Arc::default() })
    }

    /// Switches all clients to setting number `setting`; to the last one if there are fewer.
    pub fn turn_to(&self, setting: usize) {
        self.dial.store(setting.min(self.settings.len() - 1), Ordering::Relaxed);
    }

    fn any(&self) -> &W {
        &self.settings[0]
    }
}

/// State of one client of a [`Shifting`] workload.
#[derive(Debug)]
pub struct ShiftingState<S> {
    /// States by setting.
    states: Vec<S>,
    dial: Arc<CachePadded<AtomicUsize>>,
}

impl<W: Workload> Workload for Shifting<W> {
    type State = ShiftingState<W::State>;

    fn classes(&self) -> &'static [&'static str] {
        self.any().classes()
    }

    fn updates(&self, class: ClassId) -> bool {
        self.any().updates(class)
    }

    fn schema(&self) -> Schema {
        self.any().schema()
    }

    fn encoded_bytes(&self) -> u64 {
        self.any().encoded_bytes()
    }

    fn check_memory(&self, available_bytes: u64) -> Result<(), NotEnoughMemory> {
        self.any().check_memory(available_bytes)
    }

    fn expected_rows(&self) -> u64 {
        self.any().expected_rows()
    }

    fn load(&self, db: &Database, progress: &LoadProgress) -> Result<u64, LoadError> {
        self.any().load(db, progress)
    }

    fn register(&self, registry: &mut impl Procedures, handles: &impl Handles) -> Result<(), RegisterError> {
        self.any().register(registry, handles)
    }

    fn state(&self, db: &Database, reach: Reach, stream: u64) -> Result<Self::State, SetupError> {
        let states = self.settings.iter().map(|setting| setting.state(db, reach, stream));
        Ok(ShiftingState { states: states.collect::<Result<_, _>>()?, dial: Arc::clone(&self.dial) })
    }

    /// Returns the setting's own future: a future of this type around it would only be another copy of it.
    #[inline]
    fn transaction(
        client: &Client<'_>,
        state: &mut Self::State,
    ) -> impl Future<Output = (ClassId, Result<Outcome, Abort>)> {
        let setting = state.dial.load(Ordering::Relaxed);
        W::transaction(client, &mut state.states[setting])
    }

    fn audit(&self, db: &Database, ledger: &Ledger) -> Result<AuditReport, AuditError> {
        self.any().audit(db, ledger)
    }
}
