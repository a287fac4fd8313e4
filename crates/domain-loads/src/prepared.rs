//! [`Prepared`]: a structure in its domains, loaded, to be driven in rounds and audited.
//!
//! Owns: the domains, the structures in them, and the streams of the threads that drive. Never: decides how many rounds there are.
//!
//! A domain has as many *seats* as workers: owned values of no size, one with each worker, by which a task goes to that worker. Loading,
//! auditing and direct use are tasks on a seat and the structure of its domain.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use atrapos_domains::{DomainError, Domains, Owned, Sessioned, Site};
use atrapos_structures::{Contention, Visit};
use atrapos_topology::Machine;
use atrapos_workloads::Zipf;

use crate::arrangement::{Access, Arrangement, domain_name};
use crate::audit::{Audit, Findings, Wrong, replies};
use crate::control::{Control, Turn};
use crate::delegate::{Delegate, Delegation, Manner, PerOperation};
use crate::error::LoadError;
use crate::handle::{Handle, Placed, Use};
use crate::jobs::{Drive, Driven, Fill, Inspect, Job, Spot, TellContention, on_workers};
use crate::load::{Length, Load};
use crate::stream::{Stream, Tally};

/// Measurements of one round.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// Time from the first operation to the last reply, without that of `drawing`.
    pub elapsed: Duration,
    /// Time in which operations were drawn before they were made together ([`Arrangement::together`]); none otherwise.
    pub drawing: Duration,
    /// Operations by class, in the order of [`Class::ALL`](crate::Class::ALL).
    pub classes: [u64; 3],
    /// Tasks that workers ran; with direct use one for each thread.
    pub tasks: u64,
    /// Steps of workers in which they ran any.
    pub busy_steps: u64,
    /// Contention that workers met, if the structure can tell.
    pub contention: Option<Contention>,
    /// Requests and waits of the clients; times only of a round with [`Load::clocked`].
    pub delegation: Delegation,
    pub(crate) interrupted: bool,
}

impl Round {
    /// Operations of all classes.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// Operations per second.
    #[must_use]
    pub fn throughput_per_second(&self) -> f64 {
        self.operations() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The share of an operation in what delegation took of the clients.
    #[must_use]
    pub fn delegation_per_operation(&self) -> PerOperation {
        let operations = self.operations().max(1) as f64;
        let Delegation { requests, waits, waited } = self.delegation;
        PerOperation {
            requests: requests as f64 / operations,
            waits: waits as f64 / operations,
            waited_ns: waited.as_secs_f64() * 1e9 / operations,
        }
    }
}

/// The parts of a prepared load whose type depends on the structure.
trait Rounds {
    fn fill(&mut self) -> Result<(), LoadError>;
    fn empty(&mut self) -> Result<(), LoadError>;
    fn round(&mut self, length: Length, clocked: bool, interrupt: &AtomicBool) -> Result<Round, LoadError>;
    fn audit(&mut self) -> Result<Result<Audit, Wrong>, LoadError>;
}

/// A loaded structure.
pub(crate) struct Prepared {
    rounds: Box<dyn Rounds>,
    load: Load,
    /// Set until the first round.
    fresh: bool,
    /// Time that loading took, the last time.
    pub(crate) loading: Duration,
    /// The first finding, or what the last audit looked at; `None` before an audit.
    audit: Option<Result<Audit, Wrong>>,
}

impl Prepared {
    /// Starts the domains and loads the structure.
    pub(crate) fn new(
        machine: &Machine,
        load: &Load,
        arrangement: &Arrangement,
    ) -> Result<Prepared, LoadError> {
        arrangement.check(load.kind)?;
        load.kind.visit(Prepare { machine, load, arrangement })
    }

    fn of<H: Handle>(
        machine: &Machine,
        load: &Load,
        arrangement: &Arrangement,
        place: Place<H>,
    ) -> Result<Prepared, LoadError> {
        let rounds: Box<dyn Rounds> = Box::new(Loaded::new(machine, load, arrangement, place)?);
        let (load, loading) = (load.clone(), Duration::ZERO);
        let mut prepared = Prepared { rounds, load, fresh: true, loading, audit: None };
        prepared.fill()?;
        Ok(prepared)
    }

    /// The same with any structure that workers share.
    pub(crate) fn of_shared<S: atrapos_structures::Shared<u64> + 'static>(
        machine: &Machine,
        load: &Load,
        arrangement: &Arrangement,
        make: fn() -> S,
    ) -> Result<Prepared, LoadError> {
        let place: Place<Sessioned<Placed>> =
            Box::new(move |site, name| site.place_sessioned_with(name, move || Placed::new(make())));
        Prepared::of(machine, load, arrangement, place)
    }

    /// The same with any structure that one worker owns.
    pub(crate) fn of_owned<S: atrapos_structures::Owned<u64> + 'static>(
        machine: &Machine,
        load: &Load,
        arrangement: &Arrangement,
        make: fn() -> S,
    ) -> Result<Prepared, LoadError> {
        let make = move || -> Box<dyn Use> { Box::new(make()) };
        let place: Place<Owned<Box<dyn Use>>> = Box::new(move |site, name| site.place_owned_with(name, make));
        Prepared::of(machine, load, arrangement, place)
    }

    fn fill(&mut self) -> Result<(), LoadError> {
        let began = Instant::now();
        self.rounds.fill()?;
        self.loading = began.elapsed();
        Ok(())
    }

    /// Runs a round that does not count, so that caches are as in later ones. A mix with insertions has none: it begins each round anew.
    pub(crate) fn warm_up(&mut self, interrupt: &AtomicBool) -> Result<(), LoadError> {
        if self.load.mix.inserts() {
            return Ok(());
        }
        self.rounds.round(self.quarter(), false, interrupt).map(drop)
    }

    fn quarter(&self) -> Length {
        match self.load.length {
            Length::Time(time) => Length::Time(time / 4),
            Length::Operations(operations) => Length::Operations(operations.div_ceil(4)),
        }
    }

    /// Runs a shorter round in which clients note how long they wait.
    pub(crate) fn clocked(&mut self, interrupt: &AtomicBool) -> Result<Round, LoadError> {
        self.begin_anew()?;
        self.rounds.round(self.quarter(), true, interrupt)
    }

    /// Runs a round. With insertions every round begins with the same records: the structure is audited and loaded anew before it.
    pub(crate) fn round(&mut self, interrupt: &AtomicBool) -> Result<Round, LoadError> {
        self.begin_anew()?;
        self.rounds.round(self.load.length, false, interrupt)
    }

    fn begin_anew(&mut self) -> Result<(), LoadError> {
        if self.load.mix.inserts() && !self.fresh {
            self.audit_now()?;
            self.rounds.empty()?;
            self.fill()?;
        }
        self.fresh = false;
        Ok(())
    }

    fn audit_now(&mut self) -> Result<(), LoadError> {
        let audit = self.rounds.audit()?;
        if !matches!(self.audit, Some(Err(_))) {
            self.audit = Some(audit);
        }
        Ok(())
    }

    /// Audits the structure; returns the first finding of this and all earlier audits, if there is one.
    pub(crate) fn audit(mut self) -> Result<Result<Audit, Wrong>, LoadError> {
        self.audit_now()?;
        Ok(self.audit.unwrap_or_else(|| unreachable!("it was audited just now")))
    }
}

/// Prepares a load on a structure, whichever it is.
struct Prepare<'a> {
    machine: &'a Machine,
    load: &'a Load,
    arrangement: &'a Arrangement,
}

impl Visit<u64> for Prepare<'_> {
    type Output = Result<Prepared, LoadError>;

    fn shared<S: atrapos_structures::Shared<u64> + 'static>(self, make: fn() -> S) -> Self::Output {
        Prepared::of_shared(self.machine, self.load, self.arrangement, make)
    }

    fn owned<S: atrapos_structures::Owned<u64> + 'static>(self, make: fn() -> S) -> Self::Output {
        Prepared::of_owned(self.machine, self.load, self.arrangement, make)
    }
}

/// Places an empty structure in a domain.
type Place<H> = Box<dyn Fn(&Site<'_>, &str) -> Result<H, DomainError>>;

/// A structure with the type of its handles.
struct Loaded<H> {
    domains: Domains,
    load: Load,
    zipf: Option<Arc<Zipf>>,
    arrangement: Arrangement,
    place: Place<H>,
    /// The seats of every part, and its structure once it is placed.
    seats: Vec<Vec<Owned<()>>>,
    handles: Vec<H>,
    streams: Vec<Stream>,
    /// Replies since the structure was loaded.
    tally: Tally,
}

fn structure_name(part: usize) -> String {
    format!("records-{part}")
}

impl<H: Handle> Loaded<H> {
    fn new(
        machine: &Machine,
        load: &Load,
        arrangement: &Arrangement,
        place: Place<H>,
    ) -> Result<Loaded<H>, LoadError> {
        let zipf = load.popularity()?.map(Arc::new);
        let domains = Domains::start(machine, &arrangement.configuration()?)?;
        let mut seats = Vec::new();
        for (part, cpus) in arrangement.domains().iter().enumerate() {
            let site = domains.at(&domain_name(part))?;
            // A new owned value goes to the worker with the fewest: so each worker gets one.
            let of_part = (0..cpus.len()).map(|seat| site.place_owned(&format!("seat-{part}-{seat}"), ()));
            seats.push(of_part.collect::<Result<Vec<_>, _>>()?);
        }
        Ok(Loaded {
            domains,
            load: load.clone(),
            zipf,
            arrangement: arrangement.clone(),
            place,
            seats,
            handles: Vec::new(),
            streams: Vec::new(),
            tally: Tally::default(),
        })
    }

    /// Begins a job on every worker and waits for all; meanwhile, calls `meanwhile`.
    fn on_workers<J: Job, M>(
        &self,
        make: impl FnMut(Spot) -> J,
        meanwhile: impl FnOnce(bool) -> M,
    ) -> Result<(Vec<J::Output>, M), LoadError> {
        on_workers(&mut self.domains.client(), &self.handles, &self.seats, make, meanwhile)
    }

    /// Does a job on every worker.
    fn on_each<J: Job>(&self, make: impl FnMut(Spot) -> J) -> Result<Vec<J::Output>, LoadError> {
        self.on_workers(make, drop).map(|(done, ())| done)
    }

    /// Contention that all workers have met since the structure was loaded.
    fn contention(&self) -> Result<Option<Contention>, LoadError> {
        let all = self.on_each(|_| TellContention)?;
        Ok(all.into_iter().flatten().reduce(|mut sum, one| {
            sum.add(one);
            sum
        }))
    }

    /// Tasks, and busy steps, of all workers so far.
    fn work(&self) -> (u64, u64) {
        let domains = self.domains.report();
        let workers = domains.iter().flat_map(|domain| &domain.workers);
        workers.fold((0, 0), |(tasks, steps), worker| (tasks + worker.tasks, steps + worker.busy_steps))
    }

    /// Drives a round by tasks of the workers. Returns what each has done, and whether it was interrupted.
    fn drive_directly(
        &mut self,
        length: Length,
        interrupt: &AtomicBool,
    ) -> Result<(Vec<Driven>, bool), LoadError> {
        let control = Arc::new(Control::default());
        let mut streams = std::mem::take(&mut self.streams).into_iter();
        let drivers = self.arrangement.drivers();
        let limit = self.load.operations_max(length, drivers);
        let together = self.arrangement.is_together();
        let make = |_: Spot| Drive {
            together,
            turn: Turn::new(&control, length, limit),
            stream: streams.next().unwrap_or_else(|| unreachable!("each worker has a stream")),
        };
        let conduct = |all_are_there: bool| {
            if !all_are_there {
                control.stop();
            }
            control.conduct(drivers, length, interrupt)
        };
        self.on_workers(make, conduct)
    }

    /// Drives a round by clients that delegate.
    fn drive_by_clients(
        &mut self,
        length: Length,
        clocked: bool,
        interrupt: &AtomicBool,
    ) -> Result<(Vec<Driven>, bool), LoadError> {
        let control = Arc::new(Control::default());
        let streams = std::mem::take(&mut self.streams);
        let (drivers, pin) = (self.arrangement.drivers(), self.arrangement.is_pinned());
        let limit = self.load.operations_max(length, drivers);
        let clients = streams.into_iter().zip(self.arrangement.clients()).map(|(stream, cpu)| Delegate {
            client: self.domains.client(),
            handles: &self.handles,
            burst: self.load.burst,
            manner: Manner::of(&self.load),
            clocked,
            stream,
            turn: Turn::new(&control, length, limit),
            cpu: pin.then_some(*cpu),
        });
        let clients: Vec<_> = clients.collect();
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                clients.into_iter().map(|client| scope.spawn(move || client.run())).collect();
            let interrupted = control.conduct(drivers, length, interrupt);
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Driven, LoadError>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            let driven = threads.into_iter().map(join).collect::<Result<Vec<_>, _>>()?;
            Ok((driven, interrupted))
        })
    }
}

impl<H: Handle> Rounds for Loaded<H> {
    fn fill(&mut self) -> Result<(), LoadError> {
        for part in 0..self.seats.len() {
            let site = self.domains.at(&domain_name(part))?;
            self.handles.push((self.place)(&site, &structure_name(part))?);
        }
        let threads = self.arrangement.drivers();
        let stream = |thread| Stream::new(&self.load, self.zipf.as_ref(), thread, threads);
        self.streams = (0..threads).map(stream).collect();
        self.tally = Tally::default();
        let records = self.load.records;
        let filled = self.on_each(|spot| Fill { spot, records })?;
        Ok(filled.into_iter().collect::<Result<(), _>>()?)
    }

    fn empty(&mut self) -> Result<(), LoadError> {
        for part in 0..std::mem::take(&mut self.handles).len() {
            self.domains.remove(&structure_name(part))?.wait()?;
        }
        Ok(())
    }

    fn round(&mut self, length: Length, clocked: bool, interrupt: &AtomicBool) -> Result<Round, LoadError> {
        let contention_before = self.contention()?;
        let work_before = self.work();
        let (driven, interrupted) = match self.arrangement.access() {
            Access::Direct => self.drive_directly(length, interrupt)?,
            Access::Delegated => self.drive_by_clients(length, clocked, interrupt)?,
        };
        let work = self.work();
        let contention = self.contention()?;
        let (mut tally, mut delegation) = (Tally::default(), Delegation::default());
        for driven in &driven {
            tally.add(&driven.tally);
            delegation.add(driven.delegation);
        }
        self.tally.add(&tally);
        let began = driven.iter().map(|driven| driven.began).min();
        let ended = driven.iter().map(|driven| driven.ended).max();
        // A single thread draws before.
        let drawing = driven.iter().map(|driven| driven.drawing).sum();
        let elapsed = ended.zip(began).map_or(Duration::ZERO, |(ended, began)| ended - began - drawing);
        self.streams = driven.into_iter().map(|driven| driven.stream).collect();
        Ok(Round {
            elapsed,
            drawing,
            classes: tally.classes,
            tasks: work.0 - work_before.0,
            busy_steps: work.1 - work_before.1,
            contention: contention.zip(contention_before).map(|(now, before)| since(now, before)),
            delegation,
            interrupted,
        })
    }

    fn audit(&mut self) -> Result<Result<Audit, Wrong>, LoadError> {
        if let Err(wrong) = replies(self.tally.wrong, self.tally.last_wrong) {
            return Ok(Err(wrong));
        }
        let inserted: Vec<u64> = self.streams.iter().map(|stream| stream.inserted).collect();
        let records = self.load.records;
        let each = self.on_each(|spot| Inspect { spot, records, inserted: inserted.clone() })?;
        let mut findings = Findings::default();
        each.iter().for_each(|found| findings.add(found));
        Ok(findings.conclude(records + inserted.iter().sum::<u64>()))
    }
}

/// The contention that was met after `before`.
fn since(now: Contention, before: Contention) -> Contention {
    Contention {
        operations: now.operations - before.operations,
        failed_validations: now.failed_validations - before.failed_validations,
        busy: now.busy - before.busy,
        fallbacks: now.fallbacks - before.fallbacks,
    }
}
