//! Many structures that threads use directly: the baselines of Figure 11 of *Virtual domains* that share everything.
//!
//! Owns: the structures, and the loop of a thread over them. Never: delegates an operation.
//!
//! The threads are workers of one domain, each with a task that lasts for the run: so their placement and memory are those of domains in this design,
//! too. The structures are in no domain: a thread has a session of each.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use atrapos_domains::{Client, Configuration, Domains, Owned, Pending, Sessions};
use atrapos_structures::Visit;
use atrapos_topology::Machine;

use crate::audit::{Findings, replies};
use crate::configured::{
    ClientRun, ConfiguredRun, ConfiguredSettings, Draw, Planned, StructureRun, operations_max, plan,
    popularity, seats,
};
use crate::control::{Control, Turn};
use crate::error::LoadError;
use crate::handle::{Placed, Use};
use crate::jobs::{Fill, Inspect, Job, Spot};
use crate::stream::{Stream, Tally};

/// The only worker on a structure while it is loaded or audited.
const ALONE: Spot = Spot { part: 0, parts: 1, seat: 0, seats: 1 };

/// Makes a structure that threads share; none of a kind that one owns.
struct MakeShared;

impl Visit<u64> for MakeShared {
    type Output = Option<Placed>;

    fn shared<S: atrapos_structures::Shared<u64> + 'static>(self, make: fn() -> S) -> Option<Placed> {
        Some(Placed::new(make()))
    }

    fn owned<S: atrapos_structures::Owned<u64> + 'static>(self, _: fn() -> S) -> Option<Placed> {
        None
    }
}

/// Creates and loads the structures of a configuration, has the workers of its domains use all of them directly for a time, and audits them. Clients and
/// domains of structures are of no meaning here.
///
/// # Errors
/// [`LoadError`], also for structures of kinds that one thread owns; what an audit finds is no error but part of the run.
pub fn run_directly(
    machine: &Machine,
    configuration: &Configuration,
    settings: &ConfiguredSettings,
    interrupt: &AtomicBool,
    loading: &mut dyn FnMut(usize),
) -> Result<ConfiguredRun, LoadError> {
    let planned = plan(configuration, settings)?;
    let domains = Domains::start(machine, configuration)?;
    let seats = seats(&domains, configuration)?.concat();
    let mut client = domains.client();
    let mut structures = Vec::new();
    for (at, planned) in planned.chunks(seats.len()).enumerate() {
        loading(at * seats.len());
        let make = |(at, planned): (usize, &Planned)| {
            let load = planned.load.clone();
            begin(&mut client, &seats[at], move || {
                let made = load.kind.visit(MakeShared)?;
                let filled = Fill { spot: ALONE, records: load.records }.run(&mut *made.session());
                Some(filled.map(|()| made))
            })
        };
        let making = planned.iter().enumerate().map(make).collect::<Result<Vec<_>, _>>()?;
        for (made, planned) in making.into_iter().zip(planned) {
            let (structure, kind) = (planned.name.clone(), planned.load.kind);
            let made = made.wait()?.ok_or(LoadError::OwnedByThreads { structure, kind })?;
            structures.push(made?);
        }
    }
    let structures = Arc::new(structures);
    let (threads, interrupted) = drive(&mut client, &seats, &structures, &planned, settings, interrupt)?;
    let structures = audited(&mut client, &seats, &structures, &planned, &threads)?;
    Ok(ConfiguredRun {
        elapsed: ClientRun::elapsed(&threads),
        structures,
        domains: Vec::new(),
        adaptations: Vec::new(),
        client_cpus: Vec::new(),
        interrupted,
    })
}

fn begin<R: Send + 'static>(
    client: &mut Client,
    seat: &Owned<()>,
    task: impl FnOnce() -> R + Send + 'static,
) -> Result<Pending<R>, LoadError> {
    Ok(client.try_call(seat, |(): &mut ()| task()).map_err(|refused| refused.why)?)
}

/// A thread before its run.
struct Driver {
    structures: Arc<Vec<Placed>>,
    streams: Vec<Stream>,
    draw: Draw,
    turn: Turn,
}

impl Driver {
    fn run(mut self) -> ClientRun {
        let mut sessions: Vec<Box<dyn Use>> = self.structures.iter().map(Sessions::session).collect();
        let mut tallies = vec![Tally::default(); sessions.len()];
        let Ok(began) = self.turn.drive(|most| {
            let (at, operations) = self.draw.next(most);
            sessions[at].drive_some(operations, &mut self.streams[at], &mut tallies[at]);
            Ok::<_, Infallible>(operations)
        });
        let ended = Instant::now();
        let inserted = self.streams.iter().map(|stream| stream.inserted);
        ClientRun { structures: tallies.into_iter().zip(inserted).collect(), began, ended }
    }
}

/// Runs the threads; returns what each has done, and whether they were interrupted.
fn drive(
    client: &mut Client,
    seats: &[Owned<()>],
    structures: &Arc<Vec<Placed>>,
    planned: &[Planned],
    settings: &ConfiguredSettings,
    interrupt: &AtomicBool,
) -> Result<(Vec<ClientRun>, bool), LoadError> {
    let zipf = popularity(planned)?;
    let control = Arc::<Control>::default();
    let limit = operations_max(planned, settings, seats.len());
    let mut pending = Vec::new();
    for (thread, seat) in seats.iter().enumerate() {
        let stream = |one: &Planned| Stream::new(&one.load, zipf.as_ref(), thread, seats.len());
        let driver = Driver {
            structures: Arc::clone(structures),
            streams: planned.iter().map(stream).collect(),
            draw: Draw::new(planned, settings, thread),
            turn: Turn::new(&control, settings.length, limit),
        };
        pending.push(begin(client, seat, move || driver.run()).inspect_err(|_| control.stop())?);
    }
    let interrupted = control.conduct(seats.len(), settings.length, interrupt);
    Ok((pending.into_iter().map(Pending::wait).collect::<Result<_, _>>()?, interrupted))
}

fn audited(
    client: &mut Client,
    seats: &[Owned<()>],
    structures: &Arc<Vec<Placed>>,
    planned: &[Planned],
    threads: &[ClientRun],
) -> Result<Vec<StructureRun>, LoadError> {
    let mut runs = Vec::new();
    for (at, planned) in planned.iter().enumerate() {
        let (tally, inserted) = ClientRun::of_structure(threads, at);
        let expected = planned.load.records + inserted.iter().sum::<u64>();
        let inspect = Inspect { spot: ALONE, records: planned.load.records, inserted };
        let structures = Arc::clone(structures);
        let found =
            begin(client, &seats[at % seats.len()], move || inspect.run(&mut *structures[at].session()))?;
        let mut findings = Findings::default();
        findings.add(&found.wait()?);
        let audit = replies(tally.wrong, tally.last_wrong).and_then(|()| findings.conclude(expected));
        runs.push(planned.run(&tally, String::new(), audit));
    }
    Ok(runs)
}
