//! The command lines of `atrapos deploy` and `atrapos call`.
//!
//! Owns: how the options of a workload and those of a deployment become one command. Never: knows a workload by name; there is a
//! registry.

use std::path::PathBuf;

use atrapos_harness::registry::{Entry, Given};
use atrapos_instances::ChannelKind;
use atrapos_instances::plan::Placement;
use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};

use super::{AdaptationArgs, DurabilityArg, EngineArg};
use crate::benchmarks::{entries, entry};

/// A workload to deploy, and how.
#[derive(Debug)]
pub(crate) struct DeployCommand {
    /// The name of the workload.
    pub(crate) workload: String,
    /// The options of the workload's own.
    pub(crate) given: Box<dyn Given>,
    pub(crate) args: DeployArgs,
}

/// The instances of a deployment.
#[derive(Debug, Args)]
pub(crate) struct DeployArgs {
    /// Databases among which the data is divided, each in a process of its own with its share of the workers.
    #[arg(long, value_name = "N", default_value_t = 2, conflicts_with = "file", help_heading = "Instances")]
    pub(crate) instances: usize,
    /// Workers of all instances together [default: one for each physical core this process may use].
    #[arg(long, value_name = "N", conflicts_with = "file", help_heading = "Instances")]
    pub(crate) workers: Option<usize>,
    /// The way of the messages between instances: shm (shared memory), unix (Unix sockets), pipe or tcp (on this machine)
    /// [default: that of the file, or shm].
    #[arg(long, value_name = "C", help_heading = "Instances")]
    pub(crate) channel: Option<ChannelKind>,
    /// The engine inside each instance: atrapos, shared-2pl or shared-occ [default: that of the file, or atrapos].
    #[arg(long, value_name = "E", value_enum, hide_possible_values = true, help_heading = "Instances")]
    pub(crate) engine: Option<EngineArg>,
    /// The processors of an instance: islands (next to each other), spread (of all islands), mixed (half of them so, the others
    /// so) or system (as the operating system chooses).
    #[arg(long, value_name = "P", default_value_t = Placement::Islands, conflicts_with = "file", help_heading = "Instances")]
    pub(crate) placement: Placement,
    /// A file (.toml) with the workers, processors and keys of each instance: a table `[[instance]]` for each, with `workers = 2` and, unless
    /// the operating system is to choose, `processors = [0, 1]`; `keys = { branch = { from = 10, below = 20 } }` gives the instance these
    /// keys of a family of tables, all of which are to be given then [default: by the numbers of workers]. Before them,
    /// `channel = "unix"`, `engine = "shared-2pl"` and `oversubscribe = true` if these are to be said there, too.
    #[arg(long, value_name = "FILE", help_heading = "Instances")]
    pub(crate) file: Option<PathBuf>,
    /// Let several workers share a processor, if there are not enough.
    #[arg(long, help_heading = "Instances")]
    pub(crate) oversubscribe: bool,
    /// The directory of the sockets, of the description that clients read and of the databases; new, empty, or of the same deployment
    /// before, which goes on with its data [default: a temporary one].
    #[arg(long, value_name = "DIR", help_heading = "Instances")]
    pub(crate) dir: Option<PathBuf>,
    /// When a transaction is reported as committed; of several instances, those that change rows in more than one wait for the
    /// device in any case but none.
    #[arg(long, value_name = "D", value_enum, default_value_t = DurabilityArg::Synchronous, help_heading = "Durability")]
    pub(crate) durability: DurabilityArg,
    /// Milliseconds of transactions that relaxed durability may lose [default: 10].
    #[arg(long, value_name = "MS", help_heading = "Durability")]
    pub(crate) max_loss_ms: Option<u64>,
    /// Keep the scheme that each instance begins with, and observe nothing.
    #[arg(long = "static", help_heading = "Adaptation")]
    pub(crate) fixed: bool,
    #[command(flatten)]
    pub(crate) adaptation: AdaptationArgs,
    /// Stop when the standard input ends, too.
    #[arg(long, help_heading = "Instances")]
    pub(crate) until_eof: bool,
    /// Seed of the population: the same seed loads the same rows.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Instances")]
    pub(crate) seed: u64,
    /// The place of this process in a deployment that another one has started.
    #[arg(long, value_name = "JSON", hide = true)]
    pub(crate) member: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// The directory of the deployment, as `deploy` has printed it.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// The name of the procedure, such as tatp.get-subscriber-data.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Its encoded arguments in hexadecimal digits: the version of the format (01), and the arguments one after the other.
    #[arg(value_name = "HEX", default_value = "01")]
    pub(crate) arguments: String,
    /// The way of the call: shm, unix, pipe or tcp [default: that of the deployment].
    #[arg(long, value_name = "C")]
    pub(crate) channel: Option<ChannelKind>,
}

/// The command of a workload: its own help and options first, then those of a deployment.
fn command(entry: &dyn Entry) -> Command {
    let own = entry.command();
    let (about, long_about) = (own.get_about().cloned(), own.get_long_about().cloned());
    // What is added would bring its own description along.
    DeployArgs::augment_args(own).about(Resettable::from(about)).long_about(Resettable::from(long_about))
}

impl Subcommand for DeployCommand {
    fn augment_subcommands(deploy: Command) -> Command {
        deploy.subcommands(entries().into_iter().map(|entry| command(&*entry)))
    }

    fn augment_subcommands_for_update(deploy: Command) -> Command {
        DeployCommand::augment_subcommands(deploy)
    }

    fn has_subcommand(name: &str) -> bool {
        entry(name).is_some()
    }
}

impl FromArgMatches for DeployCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<DeployCommand, clap::Error> {
        let chosen = matches.subcommand().and_then(|(name, chosen)| Some((name, chosen, entry(name)?)));
        let Some((name, chosen, entry)) = chosen else {
            return Err(clap::Error::raw(ErrorKind::MissingSubcommand, "choose a workload"));
        };
        let (given, args) = (entry.given(chosen)?, DeployArgs::from_arg_matches(chosen)?);
        Ok(DeployCommand { workload: name.to_owned(), given, args })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = DeployCommand::from_arg_matches(matches)?;
        Ok(())
    }
}
