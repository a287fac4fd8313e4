//! The scheme that was left because workers were lost, to which one returns with them.
//!
//! Owns: that scheme, by keys. Never: decides whether workers are lost or back.
//!
//! When workers come back a plan is made from what was observed last, which are few samples, by slices of the scheme for fewer workers, which are coarse. The
//! scheme of before the loss was made from more, and by slices of its own. Where the statistics do not show that it is worse, it is the better guess.
//!
//! Invariant: what is remembered has owners of whom at least one was lost; of several losses in a row it is the scheme before the first.

use super::consider::{Considered, Kind};
use super::{Controller, Trigger};
use crate::attribution::{Attributed, attribute};
use crate::error::AdaptError;
use crate::extents::Extents;
use crate::plan::{Plan, plan_to};
use crate::platform::Platform;
use crate::scheme::{PlannedScheme, TableScheme};
use crate::search::Settings;
use crate::trace::WorkloadTrace;

/// Returns whether a scheme gives nothing to a worker that may own nothing.
fn is_possible(scheme: &PlannedScheme, platform: &Platform) -> bool {
    scheme.tables().iter().flat_map(TableScheme::owners).all(|owner| platform.is_available(*owner))
}

impl Controller {
    /// Returns whether the scheme of a trace has to be left because of lost workers, and remembers it then.
    pub(super) fn must_leave(
        &mut self,
        today: &PlannedScheme,
        trace: &WorkloadTrace,
        platform: &Platform,
    ) -> bool {
        let must = !is_possible(today, platform);
        if must && self.left.is_none() {
            self.left = Extents::of(trace).map(|extents| extents.by_keys(today));
        }
        must
    }

    /// Returns to the scheme that was left, when all of its workers are back, unless the statistics show, beyond `noise`, that `plan` is better.
    pub(super) fn return_to_left(
        &mut self,
        trigger: Trigger,
        plan: &Plan,
        trace: &WorkloadTrace,
        platform: &Platform,
        planning: &Settings,
        noise: f64,
    ) -> Result<Option<Considered>, AdaptError> {
        let mut trace = trace.clone();
        let Some(scheme) = self.left.as_ref().and_then(|left| left.in_slices(&mut trace)) else {
            self.left = None;
            return Ok(None);
        };
        if !is_possible(&scheme, platform) {
            return Ok(None);
        }
        self.left = None;
        let Attributed { workload, weights } = attribute(&trace, platform, planning)?;
        let back = plan_to(&workload, platform, &trace.scheme()?, scheme, &weights)?;
        let is_worse = back.after.busy_max_ratio() > (1.0 + noise) * plan.after.busy_max_ratio();
        if is_worse || back.steps.is_empty() {
            return Ok(None);
        }
        let extents = Extents::of(&trace);
        let considered = self.repartition(trigger, back, 0.0, Kind::Necessary);
        Ok(Some(Considered { extents, ..considered }))
    }
}
