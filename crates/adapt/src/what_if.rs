//! Statistics of another mix of transaction classes than the one that was recorded (`ATraPos §V-A`: the static information).
//!
//! Owns: the assumptions. What an action on a table costs, and where a table is accessed, stays as it was recorded; how often a class runs is
//! what the mix says, of as many transactions in all; which actions meet, and where, follows from flow graphs as in
//! [`anticipate`](crate::anticipate). Never: plans.

use crate::anticipate::{AnticipatedTable, anticipate};
use crate::attribution::{Attributed, attribute};
use crate::error::AdaptError;
use crate::flow::ClassFlow;
use crate::ids::TableIndex;
use crate::platform::Platform;
use crate::search::Settings;
use crate::trace::WorkloadTrace;
use crate::workload::Workload;

/// Sub-partitions through which partners rotate that no key connects.
const SPREAD_PARTNERS: u32 = 4;

/// The statistics of a trace that are planned for: as they were recorded, or, with a mix that is not empty, as they would be if classes ran in
/// its shares ([`Workload::with_mix`]).
///
/// # Errors
/// Those of [`attribute`] and [`Workload::with_mix`].
pub fn expected(
    trace: &WorkloadTrace,
    mix: &[(String, f64)],
    platform: &Platform,
    settings: &Settings,
) -> Result<Attributed, AdaptError> {
    let recorded = attribute(trace, platform, settings)?;
    if mix.is_empty() {
        return Ok(recorded);
    }
    Ok(Attributed { workload: recorded.workload.with_mix(mix)?, ..recorded })
}

impl Workload {
    /// These statistics as they would be if classes ran in the shares of `mix`: weights by name, of any sum; classes that it does not name do
    /// not run.
    ///
    /// # Errors
    /// [`AdaptError::Mix`] when no classes were recorded, or not what those of a name do, a name is none of them or appears twice, or the weights are none.
    pub fn with_mix(&self, mix: &[(String, f64)]) -> Result<Self, AdaptError> {
        let wrong = |detail: String| Err(AdaptError::Mix { detail });
        let recorded = self.classes();
        let total: u64 = recorded.iter().map(|class| class.count).sum();
        if total == 0 {
            return wrong("no transactions with names were recorded; record the trace with `atrapos bench --record FILE`".into());
        }
        let names = || recorded.iter().map(|class| class.name.as_str()).collect::<Vec<_>>().join(", ");
        for (at, (name, weight)) in mix.iter().enumerate() {
            if !recorded.iter().any(|class| class.name == *name) {
                return wrong(format!("there is no class '{name}'; name some of {}", names()));
            }
            let has_no_graph = |class: &ClassFlow| class.name == *name && class.actions.is_empty();
            if recorded.iter().any(has_no_graph) {
                return wrong(format!(
                    "what transactions of the class '{name}' do was not recorded, only how many there were; record the trace with `atrapos bench --record FILE`"
                ));
            }
            if mix[..at].iter().any(|(other, _)| other == name) {
                return wrong(format!("the class '{name}' appears twice; name it once"));
            }
            if !(weight.is_finite() && *weight >= 0.0) {
                return wrong(format!(
                    "the share of '{name}' is {weight}; give a number that is not negative"
                ));
            }
        }
        let weights: f64 = mix.iter().map(|(_, weight)| weight).sum();
        if weights == 0.0 {
            return wrong(format!("it has no share above 0; give one of {} one", names()));
        }
        let mut classes = recorded.to_vec();
        for class in &mut classes {
            let weight = mix.iter().find(|(name, _)| *name == class.name).map_or(0.0, |(_, weight)| *weight);
            class.count = (total as f64 * weight / weights).round() as u64;
        }
        let tables: Vec<AnticipatedTable> =
            (0..).take(self.table_count()).map(|table| self.recorded_table(TableIndex(table))).collect();
        let mut other = anticipate(&tables, &classes, SPREAD_PARTNERS, self.seconds())?;
        other.set_rows(self.all_rows().to_vec());
        Ok(other)
    }

    /// A table as it was recorded: where it is accessed, and what an action on it costs.
    fn recorded_table(&self, table: TableIndex) -> AnticipatedTable {
        let spread = self.table_costs(table).to_vec();
        let cycles: f64 = spread.iter().sum();
        let tables = self.table_count();
        let actions = self.classes().iter().map(|class| {
            let of_table = class.actions_per_table(tables).get(table.index()).copied();
            class.count as f64 * of_table.unwrap_or_default()
        });
        let actions: f64 = actions.sum();
        // A table that no class accesses is none that another mix would.
        let action_cycles = if actions > 0.0 { cycles / actions } else { 0.0 };
        AnticipatedTable { name: self.table_name(table).to_owned(), action_cycles, spread }
    }
}
