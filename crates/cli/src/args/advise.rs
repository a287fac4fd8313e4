//! The command line of `atrapos advise`: every workload with its own options, and those of the comparison.
//!
//! Owns: names, defaults and help texts. Never: knows a workload by name; there is a registry.

use std::path::PathBuf;
use std::str::FromStr;

use atrapos_harness::registry::Given;
use atrapos_instances::ChannelKind;
use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};

use super::EngineArg;
use crate::benchmarks::{entries, entry};

/// The workload to advise on.
#[derive(Debug)]
pub(crate) struct AdviseCommand(pub(crate) Box<WorkloadAdvise>);

/// A workload, and how to compare its deployments.
#[derive(Debug)]
pub(crate) struct WorkloadAdvise {
    /// The options of the workload's own.
    pub(crate) given: Box<dyn Given>,
    pub(crate) args: AdviseArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    /// Length of each measured interval, in seconds; there are up to seven for each deployment, each of them made in five parts that take turns.
    #[arg(long, value_name = "S", default_value_t = 2.0, help_heading = "Measurement")]
    pub(crate) seconds: f64,
    /// Length of the run before each measured interval, in seconds.
    #[arg(long, value_name = "S", default_value_t = 0.5, help_heading = "Measurement")]
    pub(crate) warmup: f64,
    /// Seed of all random choices; the same seed loads the same rows.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Measurement")]
    pub(crate) seed: u64,
    /// Also write the result as one JSON object to this file, which appears when all is measured.
    #[arg(long, value_name = "FILE", help_heading = "Measurement")]
    pub(crate) json: Option<PathBuf>,
    /// Workers of each deployment in all; the numbers of instances are those that divide it [default: one per usable core].
    #[arg(long, value_name = "N", help_heading = "Machine")]
    pub(crate) workers: Option<usize>,
    /// Leave threads where the kernel puts them.
    #[arg(long, help_heading = "Machine")]
    pub(crate) no_pin: bool,
    /// The machine to advise on: `live`, or another one as a description such as "pack:8 core:10 pu:1" or a machine file (.toml), for
    /// which is extrapolated from what this one shows.
    #[arg(long, value_name = "T", default_value = "live", help_heading = "Machine")]
    pub(crate) topology: String,
    /// The way of the messages between instances: shm (shared memory), unix (Unix sockets), pipe, tcp (on this machine) or all.
    #[arg(long, value_name = "C", default_value = "shm", help_heading = "Instances")]
    pub(crate) channel: ChannelsArg,
    /// The engines to compare, in one database and in instances: atrapos, shared-2pl, shared-occ, several of them (with commas
    /// between), or all.
    #[arg(long, value_name = "E", default_value = "atrapos", help_heading = "Instances")]
    pub(crate) engine: EnginesArg,
    /// The place of this process in a deployment that another one has started.
    #[arg(long, value_name = "JSON", hide = true)]
    pub(crate) member: Option<String>,
}

/// The kinds of channels to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelsArg(pub Vec<ChannelKind>);

impl FromStr for ChannelsArg {
    type Err = String;

    fn from_str(name: &str) -> Result<ChannelsArg, String> {
        if name == "all" {
            return Ok(ChannelsArg(ChannelKind::all().to_vec()));
        }
        let kind = name.parse::<ChannelKind>().map_err(|error| format!("{error}, or all to compare them"))?;
        Ok(ChannelsArg(vec![kind]))
    }
}

/// The engines to compare, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnginesArg(pub(crate) Vec<EngineArg>);

/// Those that can be compared.
const ENGINES: [EngineArg; 3] = [EngineArg::Atrapos, EngineArg::Shared2pl, EngineArg::SharedOcc];

impl FromStr for EnginesArg {
    type Err = String;

    fn from_str(names: &str) -> Result<EnginesArg, String> {
        if names == "all" {
            return Ok(EnginesArg(ENGINES.to_vec()));
        }
        let mut engines = Vec::new();
        for name in names.split(',').map(str::trim) {
            let known = || ENGINES.map(EngineArg::name).join(", ");
            let engine = ENGINES.into_iter().find(|engine| engine.name() == name).ok_or_else(|| {
                format!("there is no engine '{name}' to compare; choose of {}, or all", known())
            })?;
            if engines.contains(&engine) {
                return Err(format!("'{name}' is named twice; name each engine once"));
            }
            engines.push(engine);
        }
        Ok(EnginesArg(engines))
    }
}

impl Subcommand for AdviseCommand {
    fn augment_subcommands(advise: Command) -> Command {
        let commands = entries().into_iter().map(|entry| {
            let own = entry.command();
            let (about, long_about) = (own.get_about().cloned(), own.get_long_about().cloned());
            // What is added would bring its own description along.
            AdviseArgs::augment_args(own)
                .about(Resettable::from(about))
                .long_about(Resettable::from(long_about))
        });
        advise.subcommands(commands).subcommand_required(true).arg_required_else_help(true)
    }

    fn augment_subcommands_for_update(advise: Command) -> Command {
        AdviseCommand::augment_subcommands(advise)
    }

    fn has_subcommand(name: &str) -> bool {
        entry(name).is_some()
    }
}

impl FromArgMatches for AdviseCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<AdviseCommand, clap::Error> {
        let chosen = matches.subcommand().and_then(|(name, chosen)| Some((entry(name)?, chosen)));
        let Some((entry, chosen)) = chosen else {
            return Err(clap::Error::raw(ErrorKind::MissingSubcommand, "choose a workload"));
        };
        let (given, args) = (entry.given(chosen)?, AdviseArgs::from_arg_matches(chosen)?);
        Ok(AdviseCommand(Box::new(WorkloadAdvise { given, args })))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = AdviseCommand::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_some_or_all() {
        assert_eq!("all".parse(), Ok(EnginesArg(ENGINES.to_vec())));
        let two = EnginesArg(vec![EngineArg::SharedOcc, EngineArg::Atrapos]);
        assert_eq!("shared-occ,atrapos".parse(), Ok(two));
        for (names, words) in [("plp", "'plp'"), ("", "''"), ("atrapos,atrapos", "twice")] {
            let refused = names.parse::<EnginesArg>().expect_err("refused");
            assert!(refused.contains(words), "{refused}");
        }
    }

    #[test]
    fn channels_are_one_or_all() {
        assert_eq!("all".parse::<ChannelsArg>().map(|all| all.0.len()), Ok(4));
        assert_eq!("tcp".parse(), Ok(ChannelsArg(vec![ChannelKind::Tcp])));
        let refused = "mail".parse::<ChannelsArg>().expect_err("refused");
        assert!(refused.contains("'mail'") && refused.contains("all"), "{refused}");
    }
}
