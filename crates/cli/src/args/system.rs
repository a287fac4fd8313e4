//! The command line's options of the system state that workers share, and of the first scheme.
//!
//! Owns: names and help texts, and what an engine has unless it is told otherwise. Never: judges values beyond their syntax.

use atrapos::{CentralState, SchemeSearch, Scope};
use clap::{Args, ValueEnum};

use super::EngineArg;

/// The steps from PLP to ATraPos, each of its own.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct SystemArgs {
    /// Scope of the list that transactions enter when they begin and leave when they have ended [default: worker; central with
    /// --engine plp].
    #[arg(long, value_enum, value_name = "WHO", help_heading = "System state")]
    pub(crate) transaction_list: Option<ScopeArg>,
    /// Scope of the counter from which transactions have their numbers [default: worker; central with --engine plp].
    #[arg(long, value_enum, value_name = "WHO", help_heading = "System state")]
    pub(crate) transaction_numbers: Option<ScopeArg>,
    /// Scope of the read/write lock that transactions take when they begin and end [default: worker, so none; central with
    /// --engine plp].
    #[arg(long, value_enum, value_name = "WHO", help_heading = "System state")]
    pub(crate) state_locks: Option<ScopeArg>,
    /// Scope of the buffer to which commits append their records [default: worker; central with --engine plp].
    #[arg(long, value_enum, value_name = "WHO", help_heading = "System state")]
    pub(crate) log_buffer: Option<ScopeArg>,
    /// Choice of partitions, once, before the first measurement; the database then keeps them [default: it adapts itself;
    /// naive with --engine plp].
    #[arg(long, value_enum, value_name = "HOW", conflicts_with = "fixed", help_heading = "System state")]
    pub(crate) partitioning: Option<PartitioningArg>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScopeArg {
    /// All workers: there is one.
    Central,
    /// Those of an island, a memory node: there is one on each.
    Island,
    /// None: each worker has its own, or needs none.
    Worker,
}

impl ScopeArg {
    fn scope(self) -> Scope {
        match self {
            ScopeArg::Central => Scope::Central,
            ScopeArg::Island => Scope::Island,
            ScopeArg::Worker => Scope::Worker,
        }
    }
}

/// Search for schemes, as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PartitioningArg {
    /// Each family of tables in as many equal parts as there are workers, one on each.
    Naive,
    /// Parts of equal load, by what was observed; on workers in the order of tables, wherever these are.
    Workload,
    /// The same parts, those that synchronize on workers near each other.
    Placed,
}

impl PartitioningArg {
    /// The search for the partitions; `None` for those that a database begins with.
    pub(crate) fn search(self) -> Option<SchemeSearch> {
        match self {
            PartitioningArg::Naive => None,
            PartitioningArg::Workload => Some(SchemeSearch::Partitioning),
            PartitioningArg::Placed => Some(SchemeSearch::PartitioningAndPlacement),
        }
    }

    /// Its name, as on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            PartitioningArg::Naive => "naive",
            PartitioningArg::Workload => "workload",
            PartitioningArg::Placed => "placed",
        }
    }
}

impl SystemArgs {
    /// Returns the shared parts of the system state: what was given, and what the engine has otherwise.
    pub(crate) fn central_state(&self, engine: EngineArg) -> CentralState {
        let usual = if engine == EngineArg::Plp { Scope::Central } else { Scope::Worker };
        let scope = |given: Option<ScopeArg>| given.map_or(usual, ScopeArg::scope);
        CentralState {
            transaction_list: scope(self.transaction_list),
            transaction_numbers: scope(self.transaction_numbers),
            state_locks: scope(self.state_locks),
            log_buffer: scope(self.log_buffer),
        }
    }

    /// Returns how partitions are chosen, unless the database adapts itself or `is_fixed`, keeping its first scheme unobserved.
    pub(crate) fn partitioning(&self, engine: EngineArg, is_fixed: bool) -> Option<PartitioningArg> {
        let usual = (engine == EngineArg::Plp && !is_fixed).then_some(PartitioningArg::Naive);
        self.partitioning.or(usual)
    }

    /// Returns the first option that was given, if one was.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            (self.transaction_list.is_some(), "--transaction-list"),
            (self.transaction_numbers.is_some(), "--transaction-numbers"),
            (self.state_locks.is_some(), "--state-locks"),
            (self.log_buffer.is_some(), "--log-buffer"),
            (self.partitioning.is_some(), "--partitioning"),
        ];
        given.into_iter().find(|(given, _)| *given).map(|(_, option)| option)
    }
}
