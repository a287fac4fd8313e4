//! `atrapos deploy`: instances of a workload's database, each in a process of its own, until they are to stop.
//!
//! Every instance is this program again, with the same arguments and one more that says which instance it is ([`instance`]). The
//! process that was started by the user runs no transaction: it starts the others, shows them, and starts those again that end.
//!
//! Owns: the processes of a deployment and what is said of them. Never: runs a transaction, or reaches one from outside.

mod file;
mod instance;
mod shared;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use atrapos::{Adaptation, Durability, InstanceId};
use atrapos_harness::registry::Configured;
use atrapos_instances::plan::Plan;
use atrapos_instances::{
    ChannelKind, DeploymentDirectory, DeploymentId, Description, Process, ProcessError, division,
};
use atrapos_topology::Machine;
use atrapos_workloads::registry::Common;
use serde::{Deserialize, Serialize};

use self::file::Layout;
use crate::args::{DeployArgs, DeployCommand, EngineArg};
use crate::bench::CLOSE_DEADLINE;
use crate::error::CliError;
use crate::instances::{Place, free_addresses};
use crate::{config, input, interrupt, machine, output, store};

/// A line of an instance.
#[derive(Debug, Serialize, Deserialize)]
enum Heard {
    /// It has loaded its share, and serves clients.
    Loaded { rows: u64, keys: Vec<String> },
    /// It has links to all others, or not any more.
    Linked(bool),
}

/// The time between two looks at the instances.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The shortest and the longest pause before an instance that has ended is started again. It doubles with every end, and begins anew when
/// the instance has been open, with links to all others, for [`OPEN_MIN`].
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The time after which an instance that is open has not failed from its start: it may be started again at once.
const OPEN_MIN: Duration = Duration::from_secs(1);

/// The way of the messages if none is chosen.
const CHANNEL_DEFAULT: ChannelKind = ChannelKind::Shm;

/// Runs `deploy`, as the process that was started by the user or as an instance.
pub(crate) fn deploy(command: &DeployCommand) -> Result<(), CliError> {
    let args = &command.args;
    if let Some(place) = &args.member {
        return run_member(command, Place::read(place)?);
    }
    let layout = args.file.as_deref().map(file::read).transpose()?;
    let engine = engine(args, layout.as_ref())?;
    adaptation(args, engine)?;
    let durability = config::durability_of(args.durability, args.max_loss_ms)?;
    let (kind, plan) = plan(args, layout)?;
    let Configured { workload, choice, .. } = configure(command, &plan)?;
    config::check_apart(&choice, engine)?;
    if let Some(file) = &args.file {
        let keys = division(workload.schema(), InstanceId(0), plan.workers(), &plan.keys());
        keys.map_err(|error| file::refuse(file, &error))?;
    }
    if let Some(available) = machine::available_memory_bytes() {
        workload.check_memory(available).map_err(CliError::bad_input)?;
    }
    let temporary = match &args.dir {
        Some(_) => None,
        None => Some(store::temporary_in_memory("atrapos-deploy-")?),
    };
    let path = temporary.as_ref().map(|directory| directory.path().to_owned());
    let path = path.or_else(|| args.dir.clone()).unwrap_or_default();
    let (databases, _temporary) = match (&args.dir, durability) {
        (_, Durability::None) => (None, None),
        (Some(directory), _) => (Some(directory.clone()), None),
        (None, _) => {
            let temporary = store::temporary("atrapos-deployment-")?;
            (Some(temporary.path().to_owned()), Some(temporary))
        }
    };
    let tcp = match kind {
        ChannelKind::Tcp => free_addresses(plan.shares.len()).map_err(CliError::failed)?,
        _ => Vec::new(),
    };
    // What was loaded follows from these, whatever else is chosen.
    let mut data =
        vec![command.workload.clone(), choice.settings.to_string(), format!("--seed={}", args.seed)];
    if engine.shares_data() {
        data.push(format!("--engine={}", engine.name()));
    }
    let mut description = Description::new(data, kind, plan.workers(), plan.keys(), tcp.clone());
    let directory = DeploymentDirectory::claim(&path, &mut description).map_err(CliError::bad_input)?;
    interrupt::install_saying("stopping the instances (once more to end at once)");
    let mut title = format!("{} ({})", command.workload, choice.title);
    if engine.shares_data() {
        let _ = write!(title, ", engine {}", engine.name());
    }
    let deployment =
        Deployment::start((kind, engine, databases), &directory, description.deployment(), plan, tcp)?;
    deployment.run(&title, args)
}

/// Runs an instance, which was told what the file has said: it may be gone by now.
fn run_member(command: &DeployCommand, place: Place) -> Result<(), CliError> {
    let args = &command.args;
    let durability = config::durability_of(args.durability, args.max_loss_ms)?;
    let workload = configure(command, &place.plan)?.workload;
    if place.engine.shares_data() {
        return shared::run(&*workload, durability, place);
    }
    let adaptation = adaptation(args, place.engine)?;
    instance::run(&*workload, (adaptation, durability), place)
}

/// Returns the engine inside each instance: that of the options, or else of a file.
fn engine(args: &DeployArgs, layout: Option<&Layout>) -> Result<EngineArg, CliError> {
    let engine = args.engine.or(layout.and_then(|layout| layout.engine)).unwrap_or(EngineArg::Atrapos);
    match engine {
        EngineArg::Atrapos | EngineArg::SharedOcc | EngineArg::Shared2pl => Ok(engine),
        EngineArg::Plp | EngineArg::Domains => Err(CliError::bad_input(format!(
            "{} is no engine of an instance; choose atrapos, shared-2pl or shared-occ",
            engine.name()
        ))),
    }
}

/// Returns the settings by which each instance adapts; `None` if it keeps its scheme.
fn adaptation(args: &DeployArgs, engine: EngineArg) -> Result<Option<Adaptation>, CliError> {
    if let (true, Some(option)) = (engine.shares_data(), args.adaptation.given()) {
        return Err(CliError::bad_input(format!(
            "{option} says how workers that own their data adapt, and {} has none; leave one of them out",
            engine.name()
        )));
    }
    config::adaptation_unless(args.fixed, &args.adaptation.observing, "--set", &args.adaptation.set)
}

/// Returns the workload as all instances load it together.
fn configure(command: &DeployCommand, plan: &Plan) -> Result<Configured, CliError> {
    let common = Common { workers: plan.workers().iter().sum(), seed: command.args.seed };
    command.given.configure(common).map_err(CliError::bad_input)
}

/// Returns the way of the messages, and the parts of the instances.
fn plan(args: &DeployArgs, layout: Option<Layout>) -> Result<(ChannelKind, Plan), CliError> {
    let machine = machine::read("live")?;
    let cpus: Vec<usize> = machine.usable_cpus().iter().map(|cpu| cpu.0 as usize).collect();
    let (channel, plan, may_share) = match layout {
        Some(layout) => {
            let plan = Plan::of_shares(layout.shares, &cpus).map_err(CliError::bad_input)?;
            (layout.channel, plan, layout.oversubscribe)
        }
        None => {
            let workers = workers(args, &machine)?;
            let plan = Plan::divide(args.instances, workers, &cpus, args.placement);
            (None, plan.map_err(CliError::bad_input)?, false)
        }
    };
    if plan.oversubscribed && !(may_share || args.oversubscribe) {
        return Err(CliError::bad_input(format!(
            "{} instances with {} workers have no processor for each of these alone, as {} may be used; use fewer, or say that several may \
             share one, by --oversubscribe or by oversubscribe = true in a file",
            plan.shares.len(),
            plan.workers().iter().sum::<usize>(),
            cpus.len(),
        )));
    }
    Ok((args.channel.or(channel).unwrap_or(CHANNEL_DEFAULT), plan))
}

/// Returns the number of workers of all instances that options ask for.
fn workers(args: &DeployArgs, machine: &Machine) -> Result<usize, CliError> {
    let workers = config::workers(args.workers, machine)?;
    if args.instances <= workers {
        return Ok(workers);
    }
    match args.workers {
        None if args.oversubscribe => config::workers(Some(args.instances), machine),
        None => Err(CliError::bad_input(format!(
            "{} instances need a worker each, and there are processors for {workers}; use fewer --instances, or add --oversubscribe to have \
             several share a processor",
            args.instances
        ))),
        Some(_) => Err(CliError::bad_input(format!(
            "{} instances need a worker each, and there are {workers}; use fewer --instances, or more --workers",
            args.instances
        ))),
    }
}

/// An instance, and its process as far as it has one.
struct Instance {
    process: Option<Process>,
    /// The moment since which it has been loaded and linked with all others.
    open_since: Option<Instant>,
    /// The pause before the next start.
    pause: Duration,
    /// The moment of the next start, if there is no process.
    due: Instant,
    rows: u64,
    keys: Vec<String>,
    loaded: bool,
    linked: bool,
    /// True from an end to the moment at which it has links again.
    away: bool,
}

/// The processes of the instances.
struct Deployment {
    instances: Vec<Instance>,
    /// The arguments of each process besides those of this one.
    places: Vec<String>,
    kind: ChannelKind,
    plan: Plan,
    directory: PathBuf,
    /// True if an instance that starts again has its data.
    keeps_data: bool,
}

impl Deployment {
    fn start(
        (kind, engine, data): (ChannelKind, EngineArg, Option<PathBuf>),
        directory: &DeploymentDirectory,
        deployment: DeploymentId,
        plan: Plan,
        tcp: Vec<SocketAddr>,
    ) -> Result<Deployment, CliError> {
        let place = |instance: usize| {
            let (plan, tcp, directory) = (plan.clone(), tcp.clone(), directory.path().to_owned());
            let place = Place {
                deployment,
                channel: kind,
                engine,
                directory,
                instance: instance as u16,
                plan,
                tcp,
                data: data.clone(),
                pipeline: None,
            };
            serde_json::to_string(&place).map_err(CliError::failed)
        };
        let places = (0..plan.shares.len()).map(place).collect::<Result<Vec<_>, _>>()?;
        let instances = places.iter().enumerate().map(|(number, place)| {
            let process = start(number, &mut command_at(place)?)?;
            let now = Instant::now();
            Ok(Instance {
                process: Some(process),
                open_since: None,
                pause: PAUSE_MIN,
                due: now,
                rows: 0,
                keys: Vec::new(),
                loaded: false,
                linked: false,
                away: false,
            })
        });
        let instances = instances.collect::<Result<_, CliError>>()?;
        let keeps_data = data.is_some();
        Ok(Deployment { instances, places, kind, plan, directory: directory.path().to_owned(), keeps_data })
    }

    /// Shows the instances when they are open, and keeps them going until they are to stop.
    fn run(mut self, title: &str, args: &DeployArgs) -> Result<(), CliError> {
        let stop = interrupt::flag();
        let mut is_stopping = || {
            let ended = args.until_eof && input::has_ended(LOOK_EVERY);
            if !args.until_eof {
                std::thread::sleep(LOOK_EVERY);
            }
            ended || stop.load(Ordering::Relaxed)
        };
        if self.wait_open(&mut is_stopping)? {
            output::print(&self.describe(title, args))?;
            while !is_stopping() {
                self.look()?;
            }
        }
        self.stop()
    }

    /// Waits until all instances are loaded and linked. Returns false if they are to stop before.
    fn wait_open(&mut self, is_stopping: &mut dyn FnMut() -> bool) -> Result<bool, CliError> {
        while !self.instances.iter().all(|instance| instance.loaded && instance.linked) {
            if is_stopping() {
                return Ok(false);
            }
            // One that ends before all are open would end again.
            self.instances.iter_mut().try_for_each(Instance::listen).map_err(CliError::failed)?;
        }
        Ok(true)
    }

    /// Returns the lines that show the instances.
    fn describe(&self, title: &str, args: &DeployArgs) -> String {
        let (instances, workers) = (self.instances.len(), self.plan.workers().iter().sum::<usize>());
        let placement =
            args.file.as_ref().map_or(args.placement.to_string(), |file| format!("as in {}", file.display()));
        let mut text = format!(
            "{title}: {instances} instances, {workers} workers, channel {}, placement {placement}\n",
            self.kind
        );
        if self.plan.oversubscribed {
            text += "there are more workers than processors, so some share one\n";
        }
        for (number, (instance, share)) in self.instances.iter().zip(&self.plan.shares).enumerate() {
            let process = instance.process.as_ref().map_or(0, Process::id);
            let cpus: Vec<String> = share.cpus.iter().map(ToString::to_string).collect();
            let cpus = if cpus.is_empty() { "any".to_owned() } else { cpus.join(" ") };
            let socket = self.directory.join(format!("instance-{number}.sock"));
            let _ = writeln!(
                text,
                "instance {number}: process {process}, workers {}, processors {cpus}, rows {}, keys: {}, at {}",
                share.workers,
                instance.rows,
                instance.keys.join(", "),
                socket.display(),
            );
        }
        let _ = writeln!(text, "open in {}", self.directory.display());
        text
    }

    /// Hears the instances, reports those that have ended, and starts those whose pause is over.
    fn look(&mut self) -> Result<(), CliError> {
        for (number, (instance, place)) in self.instances.iter_mut().zip(&self.places).enumerate() {
            if instance.process.is_none() {
                if Instant::now() >= instance.due {
                    // A test has the first process alone kill itself at a step of a commit.
                    let mut command = command_at(place)?;
                    instance.process = Some(start(number, command.env_remove("ATRAPOS_KILL_AT"))?);
                }
                continue;
            }
            if let Err(error) = instance.listen() {
                let pause = instance.end();
                let error = match error {
                    ProcessError::Ended { name, status } => format!("{name} has ended ({status})"),
                    other => other.to_string(),
                };
                let with = if self.keeps_data {
                    "with its data"
                } else {
                    "with the population of the workload, and what transactions have changed in it is lost"
                };
                output::print(&format!("{error}; it starts again in {} ms {with}\n", pause.as_millis()))?;
            } else if instance.away && instance.loaded && instance.linked {
                instance.away = false;
                let process = instance.process.as_ref().map_or(0, Process::id);
                output::print(&format!(
                    "instance {number}: process {process} is open and has links to all others\n"
                ))?;
            }
        }
        Ok(())
    }

    /// Has the instances end in their order.
    fn stop(self) -> Result<(), CliError> {
        let mut failed = Ok(());
        for process in self.instances.into_iter().filter_map(|instance| instance.process) {
            let name = process.name().to_owned();
            match process.stop(CLOSE_DEADLINE) {
                Some(ended) if ended.0.success() => output::print(&format!("{name} has stopped\n"))?,
                Some(ended) => {
                    failed = Err(CliError::failed(format!("{name} has not stopped in order: {}", ended.0)));
                }
                None => {
                    failed = Err(CliError::failed(format!("{name} had to be killed, as it did not stop")));
                }
            }
        }
        failed
    }
}

impl Instance {
    /// Hears what the process has said.
    fn listen(&mut self) -> Result<(), ProcessError> {
        let Some(process) = &mut self.process else { return Ok(()) };
        while let Some(heard) = process.try_answer()? {
            match heard {
                Heard::Loaded { rows, keys } => (self.rows, self.keys, self.loaded) = (rows, keys, true),
                Heard::Linked(linked) => self.linked = linked,
            }
        }
        let is_open = self.loaded && self.linked;
        self.open_since = is_open.then(|| self.open_since.unwrap_or_else(Instant::now));
        if self.open_since.is_some_and(|since| since.elapsed() >= OPEN_MIN) {
            self.pause = PAUSE_MIN;
        }
        Ok(())
    }

    /// Notes that the process has ended. Returns the pause before it is started again.
    fn end(&mut self) -> Duration {
        let pause = self.pause;
        self.due = Instant::now() + pause;
        self.pause = (2 * pause).min(PAUSE_MAX);
        (self.process, self.loaded, self.linked, self.away) = (None, false, false, true);
        self.open_since = None;
        pause
    }
}

/// Returns the command of the process at a place. It is in a group of its own: an interrupt at the terminal is for this process, which stops
/// the others in order.
fn command_at(place: &str) -> Result<Command, CliError> {
    let mut command = Command::new(std::env::current_exe().map_err(CliError::failed)?);
    command.args(std::env::args_os().skip(1)).args(["--member", place]).process_group(0);
    Ok(command)
}

/// Starts the process of an instance.
fn start(number: usize, command: &mut Command) -> Result<Process, CliError> {
    Process::start(format!("instance {number}"), command).map_err(CliError::failed)
}
