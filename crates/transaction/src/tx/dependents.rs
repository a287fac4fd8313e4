//! Dependent actions of the writes of a phase, which run in the same phase after all its rows are changed.
//!
//! Invariant: all changes of index entries are made before the first check of a foreign key, so that the result of a
//! check does not depend on the placement of the entries.

use atrapos_partition::abort::Abort;
use atrapos_partition::action::{ActionBatch, DependentAction, Operation};
use atrapos_partition::planted::{Bug, planted};

use super::Tx;

impl Tx<'_> {
    /// Runs the dependents of the writes of a phase.
    pub(super) async fn finish_phase(&self) -> Result<(), Abort> {
        if self.run_dependents_here()? {
            Box::pin(self.run_dependents()).await?;
        }
        Ok(())
    }

    /// Returns true if writes have left dependents to be run.
    #[inline(always)]
    pub(crate) fn has_dependents(&self) -> bool {
        !self.state().dependents.borrow().is_empty()
    }

    /// Runs the dependents that need neither a wait nor another worker. Returns true if others are left, for
    /// [`run_dependents`](Tx::run_dependents).
    #[inline(always)]
    pub(crate) fn run_dependents_here(&self) -> Result<bool, Abort> {
        if !self.has_dependents() {
            return Ok(false);
        }
        self.run_dependents_cold()
    }

    #[inline(never)]
    fn run_dependents_cold(&self) -> Result<bool, Abort> {
        Ok(self.run_among(DependentAction::is_change)? || self.run_among(|_| true)?)
    }

    /// Runs the `wanted` dependents that need neither a wait nor another worker. Returns true if wanted ones are left.
    fn run_among(&self, wanted: impl Fn(&DependentAction) -> bool) -> Result<bool, Abort> {
        let shard = self.worker().shard();
        let (mut left, mut is_left) = (0, false);
        loop {
            let dependent = {
                let mut dependents = self.state().dependents.borrow_mut();
                let Some(next) = dependents.get(left) else { return Ok(is_left) };
                if !wanted(next) {
                    left += 1;
                    continue;
                }
                dependents.remove(left)
            };
            let action = dependent.into_action(shard.tag);
            let (place, server) = self.server_of(&shard.tables.borrow(), &action.request);
            let maintains = action.operation.maintains();
            if server == self.worker().id() && !self.conflicts_here(place, &action.request, maintains) {
                self.execute_outlined(place, action, None)?;
            } else {
                let kept = DependentAction::from_action(action);
                self.state().dependents.borrow_mut().insert(left, kept);
                (left, is_left) = (left + 1, true);
            }
        }
    }

    /// Runs the dependents that have to wait, or run on other workers, and their own dependents: all changes of entries
    /// before the first check.
    #[cold]
    pub(crate) async fn run_dependents(&self) -> Result<(), Abort> {
        let tag = self.worker().shard().tag;
        loop {
            let mut dependents = self.state().dependents.take();
            if dependents.is_empty() {
                return Ok(());
            }
            if dependents.iter().any(DependentAction::is_change) && !planted(Bug::ChecksAmongChanges) {
                let (changes, checks) = dependents.into_iter().partition(DependentAction::is_change);
                self.state().dependents.replace(checks);
                dependents = changes;
            }
            let actions = dependents.into_iter().map(|dependent| dependent.into_action(tag));
            self.run_phase(ActionBatch::new(actions)).await?;
        }
    }
}
