//! Costs of synchronization that `atrapos topology --measure` has stored on this machine, for the cost model of adaptation.
//!
//! The file is one of the machine, not of a database: `sync-costs.json` in the directory `atrapos` of the user's cache
//! (`XDG_CACHE_HOME`, or `.cache` in `HOME`); the environment variable `ATRAPOS_SYNC_COSTS` names another file, or none if it is empty.
//! A database that adapts reads it when it opens, and takes the costs for its own unless its settings have others than the defaults. Costs of
//! another machine are not taken, and a warning says so. What a database learns about them is in its own directory ([`RefinedCosts`](crate::RefinedCosts)).
//!
//! Owns: where the file is, and how a machine is recognised. Never: writes it, or reads a clock.

use std::path::PathBuf;

use atrapos_adapt::{SyncCosts, Weights};
use atrapos_topology::{Level, Machine};

use crate::Adaptation;

/// Names the file with the costs of synchronization of this machine; an empty value names none.
const VARIABLE: &str = "ATRAPOS_SYNC_COSTS";

/// Returns the file with the costs of synchronization of this machine, whether or not it exists; `None` if the environment has no place
/// for it. See `docs/experiments.md`.
#[must_use]
pub fn sync_costs_file() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name);
    if let Some(named) = variable(VARIABLE) {
        return (!named.is_empty()).then(|| PathBuf::from(named));
    }
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(cache.join("atrapos").join("sync-costs.json"))
}

/// Returns the description by which costs of synchronization recognise a machine: its processor and its islands.
#[must_use]
pub fn sync_costs_machine(machine: &Machine) -> String {
    let model = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        line.split_once(':').map(|(_, model)| model.trim().to_owned())
    });
    let islands = |level: Level| machine.islands(level).count();
    format!(
        "{}, {} sockets, {} memory nodes, {} last-level caches, {} cores, {} cpus",
        model.as_deref().unwrap_or(std::env::consts::ARCH),
        islands(Level::Socket),
        islands(Level::Node),
        islands(Level::L3),
        machine.cores().len(),
        machine.cpus().len(),
    )
}

/// Costs of synchronization for the settings of a database.
pub(crate) struct Found {
    /// The settings, with the costs of this machine if there are any.
    pub(crate) adaptation: Option<Adaptation>,
    /// The reason for which costs that are there were not taken, in one sentence.
    pub(crate) warning: Option<String>,
}

/// Returns the file with the costs of synchronization and its text, if somebody has measured.
pub(crate) fn stored() -> Option<(PathBuf, String)> {
    let file = sync_costs_file()?;
    let text = std::fs::read_to_string(&file).ok()?;
    Some((file, text))
}

/// Returns the settings of a database on `machine` with the costs of synchronization that are [stored] somewhere.
pub(crate) fn found(
    adaptation: Option<Adaptation>,
    machine: &Machine,
    stored: Option<(PathBuf, String)>,
) -> Found {
    let kept = |warning| Found { adaptation, warning };
    let Some(mut adapted) = adaptation.filter(|_| machine.is_live()) else { return kept(None) };
    let weights = &mut adapted.controller.planning.weights;
    if !has_default_costs(weights) {
        return kept(None);
    }
    let Some((file, text)) = stored else { return kept(None) };
    let file = file.display();
    match SyncCosts::from_json(&text) {
        Err(error) => kept(Some(format!("{file} is not used: {error}"))),
        Ok(costs) if !costs.is_of(&sync_costs_machine(machine)) => kept(Some(format!(
            "the costs of synchronization in {file} are of another machine ({}) and are not used; measure those of this one with `atrapos topology --measure`",
            costs.machine()
        ))),
        Ok(costs) => {
            *weights = costs.weights(weights);
            Found { adaptation: Some(adapted), warning: None }
        }
    }
}

/// Returns true if nobody has set costs of synchronization.
fn has_default_costs(weights: &Weights) -> bool {
    let Weights { cycles_per_byte, message_bytes, exchange_cycles, .. } = Weights::default();
    [weights.cycles_per_byte, weights.message_bytes, weights.exchange_cycles]
        == [cycles_per_byte, message_bytes, exchange_cycles]
}

#[cfg(test)]
mod tests {
    use super::*;
    use atrapos_adapt::PairCost;
    use atrapos_topology::LiveOptions;

    fn costs(machine: String) -> String {
        let pair = PairCost { relation: "same-l3".to_owned(), distance: 1.0, line_ns: 40.0, sync_ns: 640.0 };
        SyncCosts::new(machine, vec![pair]).expect("costs").to_json()
    }

    #[test]
    fn costs_of_this_machine_are_taken_and_others_are_named() {
        let machine = Machine::live(&LiveOptions::new(None));
        let stored = |text: &str| Some((PathBuf::from("costs.json"), text.to_owned()));
        let find = |adaptation: Adaptation, stored| {
            let Found { adaptation, warning } = found(Some(adaptation), &machine, stored);
            (adaptation.expect("it adapts").controller.planning.weights, warning)
        };
        let usual = Adaptation::default();
        assert_eq!(find(usual, None), (Weights::default(), None), "nobody has measured");
        let of_this = stored(&costs(sync_costs_machine(&machine)));
        let (weights, warning) = find(usual, of_this.clone());
        assert!(
            (weights.exchange_cycles - 800.0).abs() < 1e-6 && warning.is_none(),
            "{weights:?}, {warning:?}"
        );
        // Settings of the user stay.
        let mut own = usual;
        own.controller.planning.weights.exchange_cycles = 77.0;
        assert_eq!(find(own, of_this), (own.controller.planning.weights, None));
        let of_other = stored(&costs("a machine with 4,096 cores".to_owned()));
        let (weights, warning) = find(usual, of_other.clone());
        assert_eq!(weights, Weights::default());
        assert!(warning.expect("another machine").contains("4,096 cores) and are not used"));
        assert!(find(usual, stored("{")).1.expect("no JSON").contains("measure them again"));
        // A machine that is described is not this one.
        let described = Machine::synthetic("core:2 pu:1").expect("a machine");
        assert!(found(Some(usual), &described, of_other).warning.is_none());
    }
}
