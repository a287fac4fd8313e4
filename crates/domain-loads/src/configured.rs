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
    /// Set if every structure has a part in every domain, by a hash of the keys, instead of being where the configuration says.
    pub parts: bool,
    /// The way in which the domains adapt to their loads, if they do. Structures in parts stay where they are, so that domains that have those do not adapt.
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
            parts: false,
            adapt: None,
        }
    }
}

/// The figures of one structure in a run.
#[derive(Clone, Debug)]
pub struct StructureRun {
    /// Its name.
    pub name: String,
    /// Its domain, at the end; empty if it has parts in several, or none at all.
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
    pub(crate) name: String,
    /// The domains that have a part of it each; one, if it is whole.
    pub(crate) domains: Vec<usize>,
    pub(crate) load: Load,
    pub(crate) share: f64,
}

impl Planned {
    /// Its figures, from those of its operations, the domain that it is in at the end, and the result of its audit.
    pub(crate) fn run(&self, tally: &Tally, domain: String, audit: Result<Audit, Wrong>) -> StructureRun {
        StructureRun {
            name: self.name.clone(),
            domain,
            kind: self.load.kind,
            mix: self.load.mix,
            share: self.share,
            classes: tally.classes,
            audit,
        }
    }
}

/// The distribution by which records are chosen, if they are not all alike: one for all structures, which have as many records.
pub(crate) fn popularity(planned: &[Planned]) -> Result<Option<Arc<Zipf>>, LoadError> {
    Ok(planned.first().map(|one| one.load.popularity()).transpose()?.flatten().map(Arc::new))
}

pub(crate) fn plan(
    configuration: &Configuration,
    settings: &ConfiguredSettings,
) -> Result<Vec<Planned>, LoadError> {
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
        let domains = if settings.parts { (0..configuration.domains.len()).collect() } else { vec![at] };
        for domain in domains.iter().map(|at| &configuration.domains[*at]) {
            check_owned(name, kind, &domain.name, domain.worker_count())?;
        }
        let ConfiguredSettings { records, theta, length, burst, seed, .. } = *settings;
        let seed = seed.wrapping_add(planned.len() as u64);
        let share = load.load;
        let load = Load { records, theta, length, burst, seed, ..Load::new(kind, mix) };
        planned.push(Planned { name: structure(), domains, load, share });
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

/// A placed structure, whatever the type of its handles: filled, used by client threads, audited.
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
    /// Its parts, and the seats of the domain of each.
    parts: Vec<H>,
    seats: Vec<Vec<Owned<()>>>,
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
        on_workers(client, &self.parts, &self.seats, make, drop).map(|(done, ())| done)
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
        let (parts, manner) = (self.parts.clone(), Manner::of(&self.load));
        H::join(sides, Member { parts, stream, manner, tally: Tally::default() })
    }

    fn audit(
        &self,
        client: &mut Client,
        inserted: Vec<u64>,
        has_moved: bool,
    ) -> Result<Result<Audit, Wrong>, LoadError> {
        let records = self.load.records;
        let job = |spot| Inspect { spot, records, inserted: inserted.clone() };
        let each = match self.parts.as_slice() {
            [whole] if has_moved => vec![on_one(client, whole, job)?],
            _ => self.on_each(client, job)?,
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
    /// The domains, and their seats, that are to have a part of it.
    sites: Vec<(Site<'a>, Vec<Owned<()>>)>,
    planned: &'a Planned,
    zipf: &'a Option<Arc<Zipf>>,
    clients: usize,
}

impl Place<'_> {
    /// Places each part by `place`, which gets the site and the name.
    fn used<H: Handle + 'static>(self, place: impl Fn(&Site<'_>, &str) -> Result<H, DomainError>) -> Placing {
        let (load, zipf) = (self.planned.load.clone(), self.zipf.clone());
        let (mut parts, mut seats) = (Vec::new(), Vec::new());
        let is_whole = self.sites.len() == 1;
        for (part, (site, of_site)) in self.sites.into_iter().enumerate() {
            let name = &self.planned.name;
            let placed =
                if is_whole { place(&site, name)? } else { place(&site, &format!("{name}.{part}"))? };
            parts.push(placed);
            seats.push(of_site);
        }
        Ok(Box::new(Used { parts, seats, load, zipf, clients: self.clients }))
    }
}

impl Visit<u64> for Place<'_> {
    type Output = Placing;

    fn shared<S: atrapos_structures::Shared<u64> + 'static>(self, make: fn() -> S) -> Self::Output {
        self.used::<Sessioned<Placed>>(|site, name| {
            site.place_sessioned_with(name, move || Placed::new(make()))
        })
    }

    fn owned<S: atrapos_structures::Owned<u64> + 'static>(self, make: fn() -> S) -> Self::Output {
        let make = move || -> Box<dyn Use> { Box::new(make()) };
        self.used::<Owned<Box<dyn Use>>>(|site, name| site.place_owned_with(name, make))
    }
}

/// The seats of the workers of each domain: see `prepared`.
pub(crate) fn seats(
    domains: &Domains,
    configuration: &Configuration,
) -> Result<Vec<Vec<Owned<()>>>, LoadError> {
    let of_domain = |domain: &atrapos_domains::DomainConfiguration| {
        let site = domains.at(&domain.name)?;
        let named = (0..domain.worker_count()).map(|seat| format!("seat-{}-{seat}", domain.name));
        named.map(|name| Ok(site.place_owned(&name, ())?)).collect::<Result<Vec<_>, LoadError>>()
    };
    configuration.domains.iter().map(of_domain).collect()
}

/// The operations of one client on each structure.
pub(crate) struct ClientRun {
    pub(crate) structures: Vec<(Tally, u64)>,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

impl ClientRun {
    /// Time from the first operation of any client to the last reply to any.
    pub(crate) fn elapsed(clients: &[ClientRun]) -> Duration {
        let began = clients.iter().map(|client| client.began).min();
        let ended = clients.iter().map(|client| client.ended).max();
        ended.zip(began).map_or(Duration::ZERO, |(ended, began)| ended - began)
    }

    /// The operations of all clients on a structure, and the number of insertions of each.
    pub(crate) fn of_structure(clients: &[ClientRun], at: usize) -> (Tally, Vec<u64>) {
        let mut tally = Tally::default();
        clients.iter().for_each(|client| tally.add(&client.structures[at].0));
        (tally, clients.iter().map(|client| client.structures[at].1).collect())
    }
}

/// The structures of the next operations, drawn by the shares of the structures.
pub(crate) struct Draw {
    /// Ends of the shares, ascending to 1.
    ends: Vec<f64>,
    random: Random,
    /// Operations on one structure before another is drawn.
    burst: u64,
    at: usize,
    left: u64,
}

impl Draw {
    pub(crate) fn new(planned: &[Planned], settings: &ConfiguredSettings, thread: usize) -> Draw {
        let end = |sum: &mut f64, one: &Planned| {
            *sum += one.share;
            Some(*sum)
        };
        Draw {
            ends: planned.iter().scan(0.0, end).collect(),
            random: Random::of_stream(settings.seed, thread as u64),
            burst: settings.burst as u64,
            at: 0,
            left: 0,
        }
    }

    /// The structure of the next operations, and how many of `most` are on it.
    #[inline]
    pub(crate) fn next(&mut self, most: u64) -> (usize, u64) {
        if self.left == 0 {
            let drawn = self.random.unit();
            self.at = self.ends.partition_point(|end| *end <= drawn).min(self.ends.len() - 1);
            self.left = self.burst;
        }
        let operations = most.min(self.left);
        self.left -= operations;
        (self.at, operations)
    }
}

/// A client thread before its run.
struct Driver<'a> {
    client: Client,
    structures: &'a [Box<dyn Structure>],
    draw: Draw,
    burst: usize,
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
        let mut sides = Sides::new(self.burst);
        let entries: Vec<Entry> =
            self.structures.iter().map(|one| one.join(&mut sides, self.number)).collect();
        let began = self.turn.drive(|most| {
            let (at, operations) = self.draw.next(most);
            sides.submit(&mut self.client, entries[at], operations).map(|()| operations)
        })?;
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
    if settings.parts && settings.adapt.is_some() {
        return Err(LoadError::PartsAdapt);
    }
    let planned = plan(configuration, settings)?;
    let zipf = popularity(&planned)?;
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
        let site = |at: &usize| Ok((domains.at(&configuration.domains[*at].name)?, seats[*at].clone()));
        let sites = one.domains.iter().map(site).collect::<Result<Vec<_>, DomainError>>()?;
        let structure = place(Place { sites, planned: one, zipf: &zipf, clients: settings.clients })?;
        structure.fill(&mut domains.client())?;
        structures.push(structure);
    }
    let mut adapter = match settings.adapt.as_ref() {
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
    Ok(ConfiguredRun {
        elapsed: ClientRun::elapsed(&clients),
        domains: domain_runs(&work, &structures),
        structures,
        adaptations: adapter.map(Adapter::finish).unwrap_or_default(),
        client_cpus: cpus,
        interrupted,
    })
}

/// Operations of each client at most: as many as keep each structure within what its own load allows.
pub(crate) fn operations_max(planned: &[Planned], settings: &ConfiguredSettings, threads: usize) -> u64 {
    let of_structure = |one: &Planned| match settings.length {
        Length::Operations(operations) => operations,
        Length::Time(_) => {
            let own = one.load.operations_max(settings.length, threads);
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
    let control = Arc::new(Control::default());
    let limit = operations_max(planned, settings, settings.clients);
    let driver = |number: usize| Driver {
        client: domains.client(),
        structures,
        draw: Draw::new(planned, settings, number),
        burst: settings.burst,
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
        let (tally, inserted) = ClientRun::of_structure(clients, at);
        let audit = match replies(tally.wrong, tally.last_wrong) {
            Err(wrong) => Err(wrong),
            Ok(()) => structure.audit(&mut domains.client(), inserted, has_moved)?,
        };
        let domain = report.iter().find(|domain| domain.structures.contains(&planned.name));
        let domain = domain.map_or_else(String::new, |domain| domain.name.clone());
        runs.push(planned.run(&tally, domain, audit));
    }
    Ok(runs)
}

fn domain_runs(
    (before, after): &(Vec<DomainReport>, Vec<DomainReport>),
    structures: &[StructureRun],
) -> Vec<DomainRun> {
    let workers_before = || before.iter().flat_map(|domain| &domain.workers);
    let run = |after: &DomainReport| {
        let workers = || after.workers.iter().map(|now| work_since(workers_before(), now));
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

/// Tasks and busy steps of a worker since an earlier report. One that was not there then, or has come back since, began with nothing.
fn work_since<'a>(mut before: impl Iterator<Item = &'a WorkerReport>, now: &WorkerReport) -> (u64, u64) {
    let before = before.find(|before| (before.worker, before.returns) == (now.worker, now.returns));
    let (tasks, steps) = before.map_or((0, 0), |before| (before.tasks, before.busy_steps));
    // A report is no picture of one moment: what it says of a worker that comes back meanwhile may be of both times.
    (now.tasks.saturating_sub(tasks), now.busy_steps.saturating_sub(steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_of_a_worker_that_has_come_back_begins_anew() {
        let report = |worker, returns, tasks, busy_steps| WorkerReport {
            worker,
            cpu: None,
            returns,
            tasks,
            busy_steps,
            free_slots: 0,
            requests: 0,
        };
        let before = [report(0, 0, 70, 7), report(1, 2, 50, 5)];
        let since = |now: &WorkerReport| work_since(before.iter(), now);
        assert_eq!(since(&report(0, 0, 100, 8)), (30, 1));
        assert_eq!(since(&report(1, 3, 20, 2)), (20, 2), "fewer than before it left");
        assert_eq!(since(&report(1, 3, 90, 9)), (90, 9), "more than before it left");
        assert_eq!(since(&report(2, 0, 4, 3)), (4, 3), "it was not there");
    }
}
