//! Runs of whole configurations: every structure in its domain, used by clients in proportion to the expected loads.
//!
//! Owns: the loop of a client over several structures, and what is counted of each. Never: places a worker; the configuration does.
//!
//! A client draws the structure of its next operations, as many as a burst has, by the loads of the configuration. It has a burst for each
//! place where structures are (`lanes`), all of them under way at once; a domain that is behind holds the client up. So the loads of domains
//! are those that the configuration was composed for, and the slowest domain limits all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use atrapos_domains::{
    BURST_DEFAULT, Change, Client, Configuration, DomainError, DomainReport, Domains, Owned, SLOTS_MAX,
    Sessioned, Site, WorkerReport,
};
use atrapos_runtime::affinity::pin_current_thread;
use atrapos_structures::{Kind, Visit};
use atrapos_topology::{CpuId, CpuSet, Machine};
use atrapos_workloads::{Random, Zipf};

use crate::adapt::{Adaptation, AdaptationSettings, Adapter, Known};
use crate::arrangement::slots_of;
use crate::audit::{Audit, Findings, Wrong, replies};
use crate::composed::check_owned;
use crate::control::{Control, Turn};
use crate::delegate::Manner;
use crate::error::LoadError;
use crate::handle::{Handle, Placed, Use};
use crate::jobs::{Fill, Inspect, Job, Spot, on_one, on_workers};
use crate::lanes::{Entry, Member, Sides};
use crate::load::{Length, Load};
use crate::mix::Mix;
use crate::stream::{Stream, Tally};

/// Settings of a run of a configuration.
#[derive(Clone, Debug)]
pub struct ConfiguredSettings {
    /// Records that are loaded into each structure.
    pub records: u64,
    /// The exponent of Zipf's distribution by which records are chosen; 0 chooses all alike.
    pub theta: f64,
    /// The length of the run.
    pub length: Length,
    /// Tasks of a client that are under way in each domain, and on one structure before it draws another: 1 to [`BURST_MAX`](atrapos_domains::BURST_MAX).
    pub burst: usize,
    /// Client threads, at least one.
    pub clients: usize,
    /// The mix of all structures, instead of those of the configuration.
    pub mix: Option<Mix>,
    /// Set if clients are pinned to the processing units that no domain has, if there are enough.
    pub pin: bool,
    /// The seed of all random choices.
    pub seed: u64,
    /// The way in which the domains adapt to their loads, if they do.
    pub adapt: Option<AdaptationSettings>,
}

impl Default for ConfiguredSettings {
    fn default() -> ConfiguredSettings {
        ConfiguredSettings {
            records: 100_000,
            theta: 0.99,
            length: Length::Time(Duration::from_secs(2)),
            burst: BURST_DEFAULT,
            clients: 1,
            mix: None,
            pin: true,
            seed: 1,
            adapt: None,
        }
    }
}

/// The figures of one structure in a run.
#[derive(Clone, Debug)]
pub struct StructureRun {
    /// Its name.
    pub name: String,
    /// Its domain, at the end.
    pub domain: String,
    /// Its kind.
    pub kind: Kind,
    /// The mix that it had.
    pub mix: Mix,
    /// Its share of all operations as the configuration expects it.
    pub share: f64,
    /// Operations by class, in the order of [`Class::ALL`](crate::Class::ALL).
    pub classes: [u64; 3],
    /// The result of the audit.
    pub audit: Result<Audit, Wrong>,
}

impl StructureRun {
    /// Operations of all classes.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.classes.iter().sum()
    }
}

/// The measurements of one domain in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainRun {
    /// Its name.
    pub name: String,
    /// Number of its workers.
    pub workers: usize,
    /// Operations on its structures.
    pub operations: u64,
    /// Tasks that each worker has run.
    pub tasks: Vec<u64>,
    /// Steps of workers in which they ran any.
    pub busy_steps: u64,
}

/// A run of a configuration.
#[derive(Clone, Debug)]
pub struct ConfiguredRun {
    /// Time from the first operation to the last reply.
    pub elapsed: Duration,
    /// The structures, by name.
    pub structures: Vec<StructureRun>,
    /// The domains at the end, in the order of the configuration.
    pub domains: Vec<DomainRun>,
    /// The decisions of the controller, if the domains adapt.
    pub adaptations: Vec<Adaptation>,
    /// Processing units of the clients; none if they are not pinned.
    pub client_cpus: Vec<CpuId>,
    /// Set if somebody wanted the end before the length was over.
    pub interrupted: bool,
}

impl ConfiguredRun {
    /// So many operations of the run, per second.
    #[must_use]
    pub fn per_second(&self, operations: u64) -> f64 {
        operations as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Operations of all structures.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.structures.iter().map(StructureRun::operations).sum()
    }
}

/// Clients that a configuration leaves processing units for: one for each that no domain has, at least one.
///
/// # Errors
/// [`LoadError::Domains`] for what the configuration or the machine refuses.
pub fn clients_beside(machine: &Machine, configuration: &Configuration) -> Result<usize, LoadError> {
    Ok(left_over(machine, configuration)?.len().max(1))
}

/// Usable processing units that no domain has.
fn left_over(machine: &Machine, configuration: &Configuration) -> Result<Vec<CpuId>, LoadError> {
    let assigned = configuration.assign(machine).map_err(DomainError::Configuration)?;
    let taken: CpuSet = assigned.into_iter().flatten().collect();
    Ok(machine.usable_cpus().difference(&taken).iter().collect())
}

/// A structure of the configuration, before it is placed.
pub(crate) struct Planned {
    name: String,
    domain: usize,
    load: Load,
    share: f64,
}

fn plan(configuration: &Configuration, settings: &ConfiguredSettings) -> Result<Vec<Planned>, LoadError> {
    let mut planned = Vec::new();
    for (name, domain) in &configuration.structures {
        let load = configuration.loads.get(name).ok_or_else(|| LoadError::NoLoad(name.clone()))?;
        let structure = || name.clone();
        let kind: Kind =
            load.kind.parse().map_err(|unknown| LoadError::Kind { structure: structure(), unknown })?;
        let mix = match settings.mix {
            Some(mix) => mix,
            None => load.mix.parse().map_err(|unknown| LoadError::Mix { structure: structure(), unknown })?,
        };
        if !(load.load.is_finite() && load.load > 0.0) {
            return Err(LoadError::Share { structure: structure(), load: load.load });
        }
        let found = configuration.domains.iter().position(|one| one.name == *domain);
        // What is missing is refused when the domains start.
        let Some(at) = found else { continue };
        check_owned(name, kind, domain, configuration.domains[at].worker_count())?;
        let ConfiguredSettings { records, theta, length, burst, seed, .. } = *settings;
        let seed = seed.wrapping_add(planned.len() as u64);
        let share = load.load;
        let load = Load { records, theta, length, burst, seed, ..Load::new(kind, mix) };
        planned.push(Planned { name: structure(), domain: at, load, share });
    }
    let all: f64 = planned.iter().map(|one| one.share).sum();
    planned.iter_mut().for_each(|one| one.share /= all);
    if configuration.structures.is_empty() { Err(LoadError::NoStructures) } else { Ok(planned) }
}

/// The structures as the controller has to know them.
fn known(planned: &[Planned]) -> Vec<Known> {
    let known = |one: &Planned| Known {
        name: one.name.clone(),
        kind: one.load.kind.name().to_owned(),
        mix: one.load.mix.name().to_owned(),
    };
    planned.iter().map(known).collect()
}

/// The configuration with slots for the bursts of all clients, two for each: for the structures that workers own, and those that they share.
fn with_slots(
    configuration: &Configuration,
    settings: &ConfiguredSettings,
) -> Result<Configuration, LoadError> {
    let mut configuration = configuration.clone();
    for domain in &mut configuration.domains {
        let needed = match slots_of(2 * settings.clients) {
            Ok(slots) => slots,
            // Bursts that one worker has no slots for are leased at others.
            Err(max) if 2 * settings.clients <= max * domain.worker_count() => SLOTS_MAX,
            Err(_) => {
                return Err(LoadError::Bursts { domain: domain.name.clone(), clients: settings.clients });
            }
        };
        domain.slots = domain.slots.max(needed);
    }
    Ok(configuration)
}

/// The parts of a placed structure whose type does not depend on it.
pub(crate) trait Structure: Sync {
    fn fill(&self, client: &mut Client) -> Result<(), LoadError>;
    /// Adds the structure to those of client `thread`.
    fn join(&self, sides: &mut Sides, thread: usize) -> Entry;
    /// `has_moved` is set if the structure may be elsewhere than where it was placed.
    fn audit(
        &self,
        client: &mut Client,
        inserted: Vec<u64>,
        has_moved: bool,
    ) -> Result<Result<Audit, Wrong>, LoadError>;
}

/// A placed structure with its type.
struct Used<H> {
    handle: H,
    seats: Vec<Owned<()>>,
    load: Load,
    zipf: Option<Arc<Zipf>>,
    clients: usize,
}

impl<H: Handle> Used<H> {
    fn on_each<J: Job>(
        &self,
        client: &mut Client,
        make: impl FnMut(Spot) -> J,
    ) -> Result<Vec<J::Output>, LoadError> {
        let (handle, seats) = (std::slice::from_ref(&self.handle), std::slice::from_ref(&self.seats));
        on_workers(client, handle, seats, make, drop).map(|(done, ())| done)
    }
}

impl<H: Handle + 'static> Structure for Used<H> {
    fn fill(&self, client: &mut Client) -> Result<(), LoadError> {
        let records = self.load.records;
        let filled = self.on_each(client, |spot| Fill { spot, records })?;
        Ok(filled.into_iter().collect::<Result<(), _>>()?)
    }

    fn join(&self, sides: &mut Sides, thread: usize) -> Entry {
        let stream = Stream::new(&self.load, self.zipf.as_ref(), thread, self.clients);
        let (handle, manner) = (self.handle.clone(), Manner::of(&self.load));
        H::join(sides, Member { handle, stream, manner, tally: Tally::default() })
    }

    fn audit(
        &self,
        client: &mut Client,
        inserted: Vec<u64>,
        has_moved: bool,
    ) -> Result<Result<Audit, Wrong>, LoadError> {
        let records = self.load.records;
        let job = |spot| Inspect { spot, records, inserted: inserted.clone() };
        let each = match has_moved {
            true => vec![on_one(client, &self.handle, job)?],
            false => self.on_each(client, job)?,
        };
        let mut findings = Findings::default();
        each.iter().for_each(|found| findings.add(found));
        Ok(findings.conclude(records + inserted.iter().sum::<u64>()))
    }
}

/// A structure that was placed, or why not.
pub(crate) type Placing = Result<Box<dyn Structure>, LoadError>;

/// Places a structure, whichever it is.
pub(crate) struct Place<'a> {
    site: Site<'a>,
    planned: &'a Planned,
    seats: &'a [Owned<()>],
    zipf: &'a Option<Arc<Zipf>>,
    clients: usize,
}

impl Place<'_> {
    fn used<H: Handle + 'static>(&self, handle: H) -> Placing {
        let (load, zipf) = (self.planned.load.clone(), self.zipf.clone());
        Ok(Box::new(Used { handle, seats: self.seats.to_vec(), load, zipf, clients: self.clients }))
    }
}

impl Visit<u64> for Place<'_> {
    type Output = Placing;

    fn shared<S: atrapos_structures::Shared<u64> + 'static>(self, make: fn() -> S) -> Self::Output {
        let handle: Sessioned<Placed> =
            self.site.place_sessioned_with(&self.planned.name, move || Placed::new(make()))?;
        self.used(handle)
    }

    fn owned<S: atrapos_structures::Owned<u64> + 'static>(self, make: fn() -> S) -> Self::Output {
        let make = move || -> Box<dyn Use> { Box::new(make()) };
        let handle: Owned<Box<dyn Use>> = self.site.place_owned_with(&self.planned.name, make)?;
        self.used(handle)
    }
}

/// The seats of the workers of each domain: see `prepared`.
fn seats(domains: &Domains, configuration: &Configuration) -> Result<Vec<Vec<Owned<()>>>, LoadError> {
    let of_domain = |domain: &atrapos_domains::DomainConfiguration| {
        let site = domains.at(&domain.name)?;
        let named = (0..domain.worker_count()).map(|seat| format!("seat-{}-{seat}", domain.name));
        named.map(|name| Ok(site.place_owned(&name, ())?)).collect::<Result<Vec<_>, LoadError>>()
    };
    configuration.domains.iter().map(of_domain).collect()
}

/// The operations of one client on each structure.
struct ClientRun {
    structures: Vec<(Tally, u64)>,
    began: Instant,
    ended: Instant,
}

/// A client thread before its run.
struct Driver<'a> {
    client: Client,
    structures: &'a [Box<dyn Structure>],
    /// Ends of the shares of the structures, ascending to 1.
    ends: &'a [f64],
    burst: u64,
    random: Random,
    turn: Turn,
    cpu: Option<CpuId>,
    number: usize,
}

impl Driver<'_> {
    fn run(mut self) -> Result<ClientRun, LoadError> {
        if let Some(cpu) = self.cpu {
            // Refused: it runs unpinned.
            let _ = pin_current_thread(cpu.index());
        }
        let mut sides = Sides::new(self.burst as usize);
        let entries: Vec<Entry> =
            self.structures.iter().map(|one| one.join(&mut sides, self.number)).collect();
        let (mut done, mut left_in_burst, mut at) = (0, 0, 0);
        let began = self.turn.begin();
        loop {
            let chunk = self.turn.next(done);
            if chunk == 0 {
                break;
            }
            if left_in_burst == 0 {
                let drawn = self.random.unit();
                at = self.ends.partition_point(|end| *end <= drawn).min(entries.len() - 1);
                left_in_burst = self.burst;
            }
            let operations = chunk.min(left_in_burst);
            sides.submit(&mut self.client, entries[at], operations)?;
            left_in_burst -= operations;
            done += operations;
        }
        let structures = sides.end(&entries)?;
        Ok(ClientRun { structures, began, ended: Instant::now() })
    }
}

/// Starts the domains of a configuration, creates and loads their structures, uses all of them for a time, and audits them. `loading` is
/// called with the number of structures loaded so far, before each.
///
/// # Errors
/// [`LoadError`]; what an audit finds is no error but part of the run.
pub fn run_configuration(
    machine: &Machine,
    configuration: &Configuration,
    settings: &ConfiguredSettings,
    interrupt: &AtomicBool,
    loading: &mut dyn FnMut(usize),
) -> Result<ConfiguredRun, LoadError> {
    let by_kind = |place: Place<'_>| place.planned.load.kind.visit(place);
    run_with(machine, configuration, settings, interrupt, loading, &by_kind)
}

/// The same with structures that `place` makes.
pub(crate) fn run_with(
    machine: &Machine,
    configuration: &Configuration,
    settings: &ConfiguredSettings,
    interrupt: &AtomicBool,
    loading: &mut dyn FnMut(usize),
    place: &dyn Fn(Place<'_>) -> Placing,
) -> Result<ConfiguredRun, LoadError> {
    if settings.clients == 0 {
        return Err(LoadError::NoThreads("clients"));
    }
    let planned = plan(configuration, settings)?;
    // All structures have as many records, chosen alike.
    let zipf = planned.first().map(|one| one.load.popularity()).transpose()?.flatten().map(Arc::new);
    let configuration = with_slots(configuration, settings)?;
    let mut cpus = left_over(machine, &configuration)?;
    if !settings.pin || cpus.len() < settings.clients {
        cpus.clear();
    }
    cpus.truncate(settings.clients);
    let beside = left_over(machine, &configuration)?.into_iter().skip(settings.clients).collect();
    let domains = Domains::start(machine, &configuration)?;
    let seats = seats(&domains, &configuration)?;
    let mut structures = Vec::new();
    for (at, one) in planned.iter().enumerate() {
        loading(at);
        let site = domains.at(&configuration.domains[one.domain].name)?;
        let (seats, zipf, clients) = (&seats[one.domain], &zipf, settings.clients);
        let structure = place(Place { site, planned: one, seats, zipf, clients })?;
        structure.fill(&mut domains.client())?;
        structures.push(structure);
    }
    let mut adapter = match &settings.adapt {
        Some(adapt) => {
            // They are in the way of changes, and no structures of anybody's.
            seats.iter().flatten().try_for_each(|seat| domains.remove(seat).and_then(Change::wait))?;
            Some(Adapter::new(adapt, known(&planned), beside))
        }
        None => None,
    };
    let before = domains.report();
    let (clients, interrupted) =
        drive(&domains, &structures, &planned, settings, (&cpus, interrupt), adapter.as_mut())?;
    let work = (before, domains.report());
    let structures = audited(&domains, &structures, &planned, &work.1, (&clients, adapter.is_some()))?;
    let began = clients.iter().map(|client| client.began).min();
    let ended = clients.iter().map(|client| client.ended).max();
    Ok(ConfiguredRun {
        elapsed: ended.zip(began).map_or(Duration::ZERO, |(ended, began)| ended - began),
        domains: domain_runs(&work, &structures),
        structures,
        adaptations: adapter.map(Adapter::finish).unwrap_or_default(),
        client_cpus: cpus,
        interrupted,
    })
}

/// Operations of each client at most: as many as keep each structure within what its own load allows.
fn operations_max(planned: &[Planned], settings: &ConfiguredSettings) -> u64 {
    let of_structure = |one: &Planned| match settings.length {
        Length::Operations(operations) => operations,
        Length::Time(_) => {
            let own = one.load.operations_max(settings.length, settings.clients);
            // A cast of what is too large gives the largest number.
            (own as f64 / one.share) as u64
        }
    };
    planned.iter().map(of_structure).min().unwrap_or(0)
}

/// Runs the clients; returns what each has done, and whether they were interrupted.
fn drive(
    domains: &Domains,
    structures: &[Box<dyn Structure>],
    planned: &[Planned],
    settings: &ConfiguredSettings,
    (cpus, interrupt): (&[CpuId], &AtomicBool),
    adapter: Option<&mut Adapter<'_>>,
) -> Result<(Vec<ClientRun>, bool), LoadError> {
    let ends: Vec<f64> = planned
        .iter()
        .scan(0.0, |sum, one| {
            *sum += one.share;
            Some(*sum)
        })
        .collect();
    let control = Arc::new(Control::default());
    let limit = operations_max(planned, settings);
    let driver = |number: usize| Driver {
        client: domains.client(),
        structures,
        ends: &ends,
        burst: settings.burst as u64,
        random: Random::of_stream(settings.seed, number as u64),
        turn: Turn::new(&control, settings.length, limit),
        cpu: cpus.get(number).copied(),
        number,
    };
    let drivers: Vec<Driver<'_>> = (0..settings.clients).map(driver).collect();
    let over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = drivers.into_iter().map(|driver| scope.spawn(move || driver.run())).collect();
        if let Some(adapter) = adapter {
            scope.spawn(move || adapter.run(domains, over));
        }
        let interrupted = control.conduct(settings.clients, settings.length, interrupt);
        over.store(true, Ordering::Release);
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<ClientRun, LoadError>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        Ok((threads.into_iter().map(join).collect::<Result<Vec<_>, _>>()?, interrupted))
    })
}

fn audited(
    domains: &Domains,
    structures: &[Box<dyn Structure>],
    planned: &[Planned],
    report: &[DomainReport],
    (clients, has_moved): (&[ClientRun], bool),
) -> Result<Vec<StructureRun>, LoadError> {
    let mut runs = Vec::new();
    for (at, (structure, planned)) in structures.iter().zip(planned).enumerate() {
        let (mut tally, mut inserted) = (Tally::default(), Vec::new());
        for client in clients {
            tally.add(&client.structures[at].0);
            inserted.push(client.structures[at].1);
        }
        let audit = match replies(tally.wrong, tally.last_wrong) {
            Err(wrong) => Err(wrong),
            Ok(()) => structure.audit(&mut domains.client(), inserted, has_moved)?,
        };
        runs.push(StructureRun {
            name: planned.name.clone(),
            domain: report
                .iter()
                .find(|domain| domain.structures.contains(&planned.name))
                .map_or_else(String::new, |domain| domain.name.clone()),
            kind: planned.load.kind,
            mix: planned.load.mix,
            share: planned.share,
            classes: tally.classes,
            audit,
        });
    }
    Ok(runs)
}

fn domain_runs(
    (before, after): &(Vec<DomainReport>, Vec<DomainReport>),
    structures: &[StructureRun],
) -> Vec<DomainRun> {
    let workers_before = || before.iter().flat_map(|domain| &domain.workers);
    let run = |after: &DomainReport| {
        // A worker that was not there before began with nothing.
        let since = |now: &WorkerReport| {
            let before = workers_before().find(|before| before.worker == now.worker);
            let (tasks, steps) = before.map_or((0, 0), |before| (before.tasks, before.busy_steps));
            (now.tasks - tasks, now.busy_steps - steps)
        };
        let workers = || after.workers.iter().map(since);
        let own = structures.iter().filter(|structure| structure.domain == after.name);
        DomainRun {
            name: after.name.clone(),
            workers: after.workers.len(),
            operations: own.map(StructureRun::operations).sum(),
            tasks: workers().map(|(tasks, _)| tasks).collect(),
            busy_steps: workers().map(|(_, steps)| steps).sum(),
        }
    };
    after.iter().map(run).collect()
}
