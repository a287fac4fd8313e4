//! The registry of all workloads by name, with their options and the configurations that follow from them.
//!
//! Owns: the list of the workloads, and the interface between it and generic code. A workload is described once, by the
//! [`Options`] in its own file; no crate above this one names a workload in order to list, explain, configure or run
//! it.
//!
//! Never: reads a command line itself (the options declare its arguments), or runs a workload.
//!
//! The type of a workload is known only here. Code for all of them is a [`Registrar`], and code for a configuration of
//! one is a [`Visitor`]: both are called with the type itself, so that their calls are dispatched statically, and the
//! choice among the workloads is the only one that is made at run time.

use std::error::Error;
use std::fmt::Debug;

use clap::Args;
use serde_json::Value;

use crate::workload::{ClassId, Workload};
use crate::{micro, smallbank, tatp, tpcb, tpcc, ycsb};

/// Adds every workload, in the order in which they are listed.
pub fn register(registrar: &mut impl Registrar) {
    register_standard(registrar);
    register_research(registrar);
}

/// Adds the workloads that a standard describes.
pub fn register_standard(registrar: &mut impl Registrar) {
    registrar.add::<tatp::options::TatpOptions>();
    registrar.add::<tpcc::options::TpccOptions>();
    registrar.add::<tpcb::options::TpcbOptions>();
}

/// Adds the workloads that come from papers.
pub fn register_research(registrar: &mut impl Registrar) {
    registrar.add::<micro::options::MicroOptions>();
    registrar.add::<ycsb::options::YcsbOptions>();
    registrar.add::<smallbank::options::SmallBankOptions>();
}

/// Receives every workload.
pub trait Registrar {
    /// Adds the workload with these options.
    fn add<O: Options>(&mut self);
}

/// The options of a workload, with its name, its classes and its configurations.
///
/// The doc comment of the struct that implements it is the help of the workload: a summary in one line, then notes on
/// its results; those of its fields are the help of its options. Implement it in the workload's own `options.rs`.
pub trait Options: Args + Debug + Send + Sync + 'static {
    /// The workload's name.
    const NAME: &'static str;

    /// Its transaction classes.
    const CLASSES: &'static [Classes];

    /// Type of the configurations that are explained.
    type Explained: Workload;

    /// Returns the configurations whose flow graphs show the transactions: one for each of
    /// [`CLASSES`](Options::CLASSES), with those classes. The result is always the same.
    ///
    /// # Errors
    /// Does not fail as long as these configurations are possible.
    fn explained() -> Result<Vec<Self::Explained>, BadOptions>;

    /// Calls `visitor` with the workload that these options describe.
    ///
    /// # Errors
    /// Fails with the reason for which the configuration is not possible, and the possible values.
    fn configure<V: Visitor>(&self, common: Common, visitor: V) -> Result<V::Output, BadOptions>;
}

/// Settings that all workloads have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// Workers of the database.
    pub workers: usize,
    /// Seed of the population and the random choices.
    pub seed: u64,
}

/// An operation on a workload of any type.
pub trait Visitor {
    /// Result of the operation.
    type Output;

    /// Performs the operation on `workload`.
    fn visit<W: Workload>(self, workload: W, choice: Choice) -> Self::Output;
}

/// A chosen configuration, for reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Description in one line, for people.
    pub title: String,
    /// Complete settings, for programs: an object with a key for every option.
    pub settings: Value,
    /// The class whose transactions per minute are the metric of the benchmark, if there is one.
    pub per_minute: Option<ClassId>,
    /// Number of sessions on each worker unless the user sets another, if the options determine it.
    pub sessions_per_worker: Option<usize>,
}

impl Choice {
    /// Creates a choice with nothing else to report.
    #[must_use]
    pub fn new(title: String, settings: Value) -> Choice {
        Choice { title, settings, per_minute: None, sessions_per_worker: None }
    }

    /// Returns true if tables are apart: each table and index is a family of its own.
    #[must_use]
    pub fn has_tables_apart(&self) -> bool {
        self.settings["apart"] == Value::Bool(true)
    }
}

/// Transaction classes that run in one configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes {
    /// Condition under which they run, if not always: `of several operations`, say.
    pub when: Option<&'static str>,
    /// Their names.
    pub names: &'static [&'static str],
}

/// The reason for which options describe no workload: a sentence that names the possible values.
pub type BadOptions = Box<dyn Error + Send + Sync>;

/// Seed of population and arguments when transactions are explained, so that a graph is the same every time.
pub(crate) const EXPLAINED_SEED: u64 = 1;

/// Returns the line about mixes below the help of a workload that has a standard mix, or one class alone; `all` is the
/// number of the classes as a word.
pub(crate) fn mixes(all: &str, percent: &[u8], names: &[&str]) -> String {
    let percent: Vec<String> = percent.iter().map(u8::to_string).collect();
    format!("Mixes: standard (all {all}, {} in a hundred), {}.", percent.join("/"), names.join(", "))
}

/// The option of workloads with several tables.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ApartArgs {
    /// Tables apart: each table and each index is cut and placed by itself, not at the same keys as the others. At first all are where they
    /// would be together.
    #[arg(long, help_heading = "Workload")]
    pub(crate) apart: bool,
}

impl ApartArgs {
    /// Returns the end of a title, which says so if tables are apart.
    pub(crate) fn title(self) -> &'static str {
        if self.apart { ", tables apart" } else { "" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks of every workload the rules that its type does not enforce.
    struct Check(Vec<&'static str>);

    impl Registrar for Check {
        fn add<O: Options>(&mut self) {
            let explained = O::explained().expect("what is explained is possible");
            assert_eq!(explained.len(), O::CLASSES.len(), "{}: a configuration for all classes", O::NAME);
            for (workload, classes) in explained.iter().zip(O::CLASSES) {
                assert_eq!(workload.classes(), classes.names, "{}", O::NAME);
            }
            let command = O::augment_args(clap::Command::new(O::NAME));
            assert!(command.get_about().is_some(), "{} says what it is", O::NAME);
            command.clone().debug_assert();
            let given =
                O::from_arg_matches(&command.get_matches_from([O::NAME])).expect("options have defaults");
            let settings =
                given.configure(Common { workers: 2, seed: 1 }, Settings).expect("defaults are possible");
            assert!(settings.as_object().is_some_and(|settings| !settings.is_empty()), "{}", O::NAME);
            assert!(!self.0.contains(&O::NAME), "there are two workloads {}", O::NAME);
            self.0.push(O::NAME);
        }
    }

    struct Settings;

    impl Visitor for Settings {
        type Output = Value;

        fn visit<W: Workload>(self, workload: W, choice: Choice) -> Value {
            assert!(!choice.title.is_empty());
            assert!(choice.per_minute.is_none_or(|class| class.index() < workload.classes().len()));
            choice.settings
        }
    }

    #[test]
    fn every_workload_is_described_completely() {
        let mut check = Check(Vec::new());
        register(&mut check);
        assert_eq!(check.0, ["tatp", "tpcc", "tpcb", "micro", "ycsb", "smallbank"]);
    }
}
