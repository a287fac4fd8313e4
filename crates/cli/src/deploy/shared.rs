//! An instance of `atrapos deploy` whose engine shares its data among threads: it loads its share, joins the others, serves clients, and
//! closes when its standard input ends.
//!
//! Each client has a thread, which runs its calls one after the other: clients of these engines are threads. An empty partitioned database
//! has the handles, and knows which keys the instance has.
//!
//! Owns: these threads. Never: says which calls may run at the same time; who wants several at a time connects several times.
//!
//! Invariant: the population of an instance with a directory is durable, and known to be complete, before another instance can reach it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use atrapos::{Database, Durability, InstanceId, LoadProgress};
use atrapos_baselines::instance::{InstanceEngine, InstanceOptions};
use atrapos_baselines::{Engine, SharedDatabase, SharedRegistry};
use atrapos_harness::registry::AnyWorkload;
use atrapos_instances::{Channel, own_keys, read_secret, serve_in_turn};
use atrapos_topology::Machine;

use super::Heard;
use super::instance::{LOOK_EVERY, Population};
use crate::bench::CLOSE_DEADLINE;
use crate::config::Protection;
use crate::error::CliError;
use crate::instances::Place;
use crate::instances::member::{Opening, open, processors, say};
use crate::shared::{durable, engine};
use crate::{input, output};

/// Clients that an instance serves at a time: each takes a thread.
const CLIENTS_MAX: usize = 1024;

/// The time that an attempt to reach all other instances may take.
const REACH_PATIENCE: Duration = Duration::from_millis(20);

/// Locks and latches: clients may call any procedure, several of them at a time.
const ALL: Protection = Protection { locks: true, latches: true };

/// Runs the instance.
pub(super) fn run(
    workload: &dyn AnyWorkload,
    durability: Durability,
    mut place: Place,
) -> Result<(), CliError> {
    let machine = processors(&place)?;
    // The partitioned databases beside the engine stay in memory.
    let data = place.data.take();
    let population = data.map(|data| Population::of(&data, place.instance));
    let handles = empty(workload, &place, &machine)?;
    let make = engine(place.engine, ALL, true);
    let (clients, connected) = channel();
    let options = InstanceOptions {
        deployment: place.deployment,
        directory: place.directory.clone(),
        kind: place.channel,
        tcp: place.tcp.clone(),
        secret: Some(read_secret(&place.directory).map_err(CliError::failed)?),
        instance: InstanceId(place.instance),
        instances: place.plan.shares.len(),
        clients: Some(clients),
    };
    let fill = || fill(workload, make, (&place, &machine), &handles);
    let (shared, rows) = match population {
        None => {
            let (filled, rows) = fill()?;
            (filled.into_instance(&handles, options, None), rows)
        }
        Some(population) => {
            let durable = durable(durability, &population.directory);
            let rows = match population.begin()? {
                Some(rows) => rows,
                None => {
                    let (filled, rows) = fill()?;
                    let stored = filled.into_durable(&durable).map_err(CliError::failed)?;
                    stored.close().map_err(CliError::failed)?;
                    population.complete(rows)?;
                    rows
                }
            };
            (SharedDatabase::open_instance(make, &handles, options, &durable), rows)
        }
    };
    let shared = shared.map_err(CliError::failed)?;
    say(&Heard::Loaded { rows, keys: own_keys(&handles) })?;
    serve(workload, (&shared, &handles), place.instance, &connected)?;
    shared.close().map_err(CliError::failed)?;
    handles.close(CLOSE_DEADLINE).failure.map_or(Ok(()), |failure| Err(CliError::failed(failure)))
}

/// Opens an empty partitioned database of the instance.
fn empty(workload: &dyn AnyWorkload, place: &Place, machine: &Machine) -> Result<Database, CliError> {
    let (adaptation, durability) = (None, Durability::None);
    open(workload, place, Opening { machine, pin: false, place_memory: false, adaptation, durability })
}

/// Makes the engine and loads the share of the instance. Returns the number of rows, too.
fn fill(
    workload: &dyn AnyWorkload,
    make: fn(usize) -> Box<dyn Engine>,
    (place, machine): (&Place, &Machine),
    handles: &Database,
) -> Result<(SharedDatabase, u64), CliError> {
    let full = empty(workload, place, machine)?;
    let rows = workload.load(&full, &LoadProgress::default());
    let rows =
        rows.map_err(|error| CliError::failed(format!("the instance could not be loaded: {error}")))?;
    let filled = SharedDatabase::fill(make, &full, handles).map_err(CliError::failed)?;
    full.close(CLOSE_DEADLINE);
    Ok((filled, rows))
}

/// The engine with its rows, the handles, and the procedures.
struct Served<'s> {
    shared: &'s SharedDatabase,
    handles: &'s Database,
    registry: &'s SharedRegistry,
    instance: u16,
    stopping: &'s AtomicBool,
}

/// Serves clients until the standard input ends.
fn serve(
    workload: &dyn AnyWorkload,
    (shared, handles): (&SharedDatabase, &Database),
    instance: u16,
    connected: &Receiver<Box<dyn Channel>>,
) -> Result<(), CliError> {
    let engine = shared.engine().as_instance();
    let engine = engine.ok_or_else(|| CliError::failed("the engine has not joined the deployment"))?;
    let mut registry = SharedRegistry::default();
    workload.register_shared(&mut registry, handles).map_err(CliError::failed)?;
    #[cfg(debug_assertions)]
    kill_at_step(engine)?;
    let stopping = AtomicBool::new(false);
    let served = Served { shared, handles, registry: &registry, instance, stopping: &stopping };
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        let ended = served.look_until_end(engine, connected, scope, &mut threads);
        stopping.store(true, Ordering::Release);
        threads.iter().for_each(|thread| thread.thread().unpark());
        ended
    })
}

impl<'s> Served<'s> {
    /// Starts a thread for each client, and says what happens to the links.
    fn look_until_end<'scope>(
        &'s self,
        engine: &InstanceEngine,
        connected: &Receiver<Box<dyn Channel>>,
        scope: &'scope Scope<'scope, '_>,
        threads: &mut Vec<ScopedJoinHandle<'scope, ()>>,
    ) -> Result<(), CliError>
    where
        's: 'scope,
    {
        let mut has_reached_all = false;
        while !input::has_ended(LOOK_EVERY) {
            for failure in engine.take_failures() {
                self.complain(&failure);
            }
            if !has_reached_all && engine.wait_reachable(Instant::now() + REACH_PATIENCE).is_ok() {
                has_reached_all = true;
                say(&Heard::Linked(true))?;
            }
            threads.retain(|thread| !thread.is_finished());
            for channel in connected.try_iter() {
                if threads.len() == CLIENTS_MAX {
                    self.complain(&format!(
                        "a client more than {CLIENTS_MAX} has connected, and was cut off"
                    ));
                    continue;
                }
                let client = Builder::new().name("atrapos-client".to_owned());
                match client.spawn_scoped(scope, || self.serve_client(channel)) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        self.complain(&format!("a client gets no thread, and was cut off: {error}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs the calls of a client.
    fn serve_client(&self, channel: Box<dyn Channel>) {
        let session = RefCell::new(self.shared.session());
        let served = serve_in_turn(channel, self.stopping, &mut |name, arguments| {
            let call = self.registry.prepare(name, arguments)?;
            match self.handles.scheme().instance_of(&call.route) {
                Some(other) => Ok(Err(other)),
                None => Ok(Ok(call.run(&session)?)),
            }
        });
        if let Err(why) = served {
            self.complain(&format!("a client was cut off: {why}"));
        }
    }

    fn complain(&self, failure: &str) {
        output::complain(&format!("instance {}: {failure}", self.instance));
    }
}

/// Has this process kill itself when it first gets to the step of a commit that `ATRAPOS_KILL_AT` names. For tests.
#[cfg(debug_assertions)]
fn kill_at_step(engine: &InstanceEngine) -> Result<(), CliError> {
    use atrapos_baselines::instance::CommitStep;

    let Ok(named) = std::env::var("ATRAPOS_KILL_AT") else { return Ok(()) };
    let step = CommitStep::ALL.into_iter().find(|(_, name)| *name == named);
    let names = || CommitStep::ALL.map(|(_, name)| name).join(", ");
    let (step, _) = step.ok_or_else(|| {
        CliError::bad_input(format!(
            "ATRAPOS_KILL_AT is '{named}', which is no step of a commit; write one of {}",
            names()
        ))
    })?;
    engine.stop_at(step, || {
        let own = rustix::process::getpid();
        // It is this very process, which may be killed.
        let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
    });
    Ok(())
}
