//! New-Order and Payment of TPC-C on structures in virtual domains, as *Virtual domains* runs them (§7, Figure 13): warehouses are divided
//! among the domains, statements are tasks, and nothing isolates transactions from each other.
//!
//! A [`TpccLoad`] names the structure that all tables are, and the transactions; an [`Arrangement`] says which threads use them and how.
//! [`run_tpcc`] measures. Every design divides the warehouses among its domains: warehouse `w` is in part `(w - 1) % parts`; with direct use there is
//! one part, unless the threads are of parts and use those of others directly, too ([`Arrangement::parts_directly`]). Each worker of a domain has a [`Session`] of its part's tables, an owned value of the domain; a client sends its tasks to one of them.
//!
//! Owns: the settings, the rounds, and the threads. Never: runs a statement (`statements`), or decides their order (`transactions`).
//!
//! Departures from the paper: a client runs several transactions together (`group`), which is what its futures are for; rows are latched one by one
//! where workers share them; items are copied to all warehouses.

mod audit;
mod population;
mod rows;
mod statements;
mod tables;
#[cfg(test)]
mod tests;
mod transactions;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use atrapos_domains::{BURST_DEFAULT, BURST_MAX, Burst, Client, Domains, Owned, Pending};
use atrapos_runtime::affinity::pin_current_thread;
use atrapos_structures::{Kind, Refused};
use atrapos_topology::{CpuId, Machine};
use atrapos_workloads::tpcc::generator::Population;
use atrapos_workloads::tpcc::parameters::{Mix, Parameters, Remote};
use atrapos_workloads::tpcc::{Tpcc, TpccConfig};
use atrapos_workloads::{KeySet, Random, Workload as _};

pub use self::audit::Finding;
use self::audit::{Sums, Tally, inspect};
use self::population::{Seat, load};
use self::statements::{Reply, Statement};
use self::tables::Session;
use self::transactions::{Driver, Reach, Tag};
use crate::arrangement::{Access, Arrangement, domain_name};
use crate::control::{Control, Turn};
use crate::error::LoadError;
use crate::load::Length;
use crate::measure::{Measurement, Step};

/// Transactions of a client that are run together at most.
pub const GROUP_MAX: usize = 1_024;

/// Memory of a warehouse in structures per memory of one in the engine.
const MEMORY_FACTOR: u64 = 2;

/// New-Order and Payment on tables that are structures of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct TpccLoad {
    /// The structure of every table.
    pub kind: Kind,
    /// Warehouses.
    pub warehouses: u64,
    /// Items; the specification has 100,000.
    pub items: u64,
    /// Customers per district; the specification has 3,000.
    pub customers: u64,
    /// Share of the transactions that access a second warehouse, from 0 to 1.
    pub remote: f64,
    /// Length of a round.
    pub length: Duration,
    /// Tasks of a client that are under way in each domain, where statements are delegated: 1 to [`BURST_MAX`].
    pub burst: usize,
    /// Transactions that a client runs together: 1 to [`GROUP_MAX`].
    pub group: usize,
    /// The seed of the population and all random choices.
    pub seed: u64,
}

impl TpccLoad {
    /// The load of the paper: 8 warehouses, a hundredth of the transactions remote.
    #[must_use]
    pub fn new(kind: Kind) -> TpccLoad {
        let TpccConfig { items, customers, .. } = TpccConfig::default();
        TpccLoad {
            kind,
            warehouses: 8,
            items,
            customers,
            remote: 0.01,
            length: Duration::from_secs(1),
            burst: BURST_DEFAULT,
            group: 8,
            seed: 1,
        }
    }

    /// Checks the settings, for an arrangement and the memory that is available.
    ///
    /// # Errors
    /// A [`LoadError`] that names the setting that is not possible.
    pub fn check(&self, arrangement: &Arrangement, available_bytes: u64) -> Result<(), LoadError> {
        self.workload()?.check_memory(available_bytes / MEMORY_FACTOR)?;
        arrangement.check(self.kind)?;
        let parts = arrangement.domains().len();
        if self.warehouses < parts as u64 {
            return Err(LoadError::Parts { parts, warehouses: self.warehouses });
        }
        if !(1..=BURST_MAX).contains(&self.burst) {
            return Err(LoadError::Burst(self.burst));
        }
        if !(1..=GROUP_MAX).contains(&self.group) {
            return Err(LoadError::Group(self.group));
        }
        if self.length.is_zero() {
            return Err(LoadError::Length("0 s".to_owned()));
        }
        Ok(())
    }

    fn workload(&self) -> Result<Tpcc, LoadError> {
        let &TpccLoad { warehouses, items, customers, remote, seed, .. } = self;
        if !(0.0..=1.0).contains(&remote) {
            return Err(LoadError::RemoteShare(remote));
        }
        let remote = Remote::of_transactions(remote);
        let mix = Mix::NewOrderPayment;
        Ok(Tpcc::new(TpccConfig {
            warehouses,
            items,
            customers,
            mix,
            remote,
            seed,
            ..TpccConfig::default()
        })?)
    }
}

/// Measurements of one round.
#[derive(Clone, Debug, PartialEq)]
pub struct TpccRound {
    /// Time from the first statement to the last reply.
    pub elapsed: Duration,
    /// Orders placed.
    pub new_orders: u64,
    /// Orders rolled back, since they name an item that there is not; they count as transactions.
    pub rolled_back: u64,
    /// Payments made.
    pub payments: u64,
}

impl TpccRound {
    /// Transactions of both classes.
    #[must_use]
    pub fn transactions(&self) -> u64 {
        self.new_orders + self.rolled_back + self.payments
    }

    /// Transactions per second.
    #[must_use]
    pub fn throughput_per_second(&self) -> f64 {
        self.transactions() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// All rounds of a load.
#[derive(Clone, Debug)]
pub struct TpccRun {
    /// The rounds; at least one.
    pub rounds: Vec<TpccRound>,
    /// Rows that the audit looked at, or its first finding.
    pub audit: Result<u64, Finding>,
    /// Time that loading took.
    pub loading: Duration,
    /// Set if there are fewer rounds than were asked for, because somebody wanted the end.
    pub interrupted: bool,
}

/// The tables in their domains.
struct Loaded {
    domains: Domains,
    arrangement: Arrangement,
    population: Population,
    /// The sessions of each part's tables, one with each worker of its domain.
    sessions: Vec<Vec<Owned<Session>>>,
    /// The sessions of all parts' tables of each thread that uses several parts directly. In a mutex, since clients share what is around it; it is never locked.
    direct: Mutex<Vec<Vec<Session>>>,
    drivers: Vec<Driver>,
    tally: Tally,
    length: Duration,
    burst: usize,
}

/// Loads the tables, runs the rounds on them one after the other, and audits what is there then.
///
/// # Errors
/// [`LoadError`]; what the audit finds is no error but part of the run.
pub fn run_tpcc(
    machine: &Machine,
    load: &TpccLoad,
    arrangement: &Arrangement,
    measurement: &mut Measurement<'_>,
) -> Result<TpccRun, LoadError> {
    load.check(arrangement, u64::MAX)?;
    if measurement.rounds == 0 {
        return Err(LoadError::NoRounds);
    }
    (measurement.watch)(Step::Loading { run: 0 });
    let began = Instant::now();
    let mut loaded = Loaded::new(machine, load, arrangement)?;
    loaded.fill()?;
    let loading = began.elapsed();
    let (mut rounds, mut interrupted) = (Vec::new(), false);
    for round in 0..measurement.rounds {
        let (measured, was_interrupted) = loaded.round(measurement.interrupt)?;
        interrupted = was_interrupted || measurement.interrupt.load(Ordering::Relaxed);
        if interrupted {
            break;
        }
        let throughput_per_second = measured.throughput_per_second();
        (measurement.watch)(Step::Round { run: 0, round, throughput_per_second });
        rounds.push(measured);
    }
    if rounds.is_empty() {
        return Err(LoadError::Interrupted);
    }
    Ok(TpccRun { rounds, audit: loaded.audit()?, loading, interrupted })
}

impl Loaded {
    fn new(machine: &Machine, load: &TpccLoad, arrangement: &Arrangement) -> Result<Loaded, LoadError> {
        let workload = load.workload()?;
        let population = *workload.population();
        let domains = Domains::start(machine, &arrangement.configuration()?)?;
        let (mut sessions, mut direct) = (Vec::new(), Vec::new());
        let parts = arrangement.domains().len();
        if arrangement.access() == Access::Direct && parts > 1 {
            direct.resize_with(arrangement.drivers(), Vec::new);
        }
        for (part, cpus) in arrangement.domains().iter().enumerate() {
            let site = domains.at(&domain_name(part))?;
            let mut of_part = Session::for_workers(load.kind, cpus.len() + direct.len());
            direct.iter_mut().zip(of_part.drain(cpus.len()..)).for_each(|(all, one)| all.push(one));
            // A new owned value goes to the worker with the fewest: so each worker gets one.
            let placed = of_part
                .into_iter()
                .enumerate()
                .map(|(seat, session)| site.place_owned(&format!("tables-{part}-{seat}"), session));
            sessions.push(placed.collect::<Result<Vec<_>, _>>()?);
        }
        let scale = population.scale();
        let parts_of_threads = arrangement.domains().iter().enumerate();
        let parts_of_threads: Vec<usize> =
            parts_of_threads.flat_map(|(part, cpus)| cpus.iter().map(move |_| part)).collect();
        let is_direct = !direct.is_empty();
        let driver = |thread: usize| {
            // Who is of a part begins at its warehouses.
            let is_home = |w_id: &u64| !is_direct || part_of(*w_id as u16, parts) == parts_of_threads[thread];
            let all = KeySet::of_sorted((1..=load.warehouses).filter(is_home))
                .unwrap_or_else(|| unreachable!("every part has a warehouse, as was checked"));
            let random = Random::of_stream(load.seed, thread as u64);
            let (mix, remote) = (workload.config().mix, workload.config().remote);
            let parameters = Parameters::new(mix, remote, scale, population.constants(), all, random);
            Driver::new(parameters, load.group, scale.warehouses)
        };
        Ok(Loaded {
            domains,
            arrangement: arrangement.clone(),
            population,
            sessions,
            direct: Mutex::new(direct),
            drivers: (0..arrangement.drivers()).map(driver).collect(),
            tally: Tally::new(scale.warehouses),
            length: load.length,
            burst: load.burst,
        })
    }

    /// The warehouses of a part.
    fn warehouses(&self, part: usize) -> Vec<u16> {
        let parts = self.sessions.len();
        (1..=self.population.scale().warehouses).filter(|w_id| part_of(*w_id, parts) == part).collect()
    }

    /// Does a task on every session for which `make` has one, and waits for all.
    fn on_sessions<T, R>(&self, mut make: impl FnMut(usize, Seat) -> Option<T>) -> Result<Vec<R>, LoadError>
    where
        T: FnOnce(&mut Session) -> R + Send + 'static,
        R: Send + 'static,
    {
        let (mut client, mut pending) = (self.domains.client(), Vec::new());
        for (part, sessions) in self.sessions.iter().enumerate() {
            for (number, session) in sessions.iter().enumerate() {
                if let Some(task) = make(part, Seat { number, of: sessions.len() }) {
                    pending.push(begin(&mut client, session, task)?);
                }
            }
        }
        Ok(pending.into_iter().map(Pending::wait).collect::<Result<_, _>>()?)
    }

    fn fill(&self) -> Result<(), LoadError> {
        let population = self.population;
        let filled = self.on_sessions(|part, seat| {
            let warehouses = self.warehouses(part);
            Some(move |tables: &mut Session| load(tables, &population, &warehouses, seat))
        })?;
        Ok(filled.into_iter().collect::<Result<(), Refused>>()?)
    }

    /// Runs a round; returns also whether it was interrupted.
    fn round(&mut self, interrupt: &AtomicBool) -> Result<(TpccRound, bool), LoadError> {
        let before = self.counts();
        let (driven, interrupted) = match self.arrangement.access() {
            Access::Direct => self.drive_directly(interrupt)?,
            Access::Delegated => self.drive_by_clients(interrupt)?,
        };
        let began = driven.iter().map(|driven| driven.began).min();
        let ended = driven.iter().map(|driven| driven.ended).max();
        for Driven { mut driver, .. } in driven {
            self.tally.add(&driver.tally);
            driver.tally = Tally::new(self.population.scale().warehouses);
            self.drivers.push(driver);
        }
        let after = self.counts();
        let round = TpccRound {
            elapsed: ended.zip(began).map_or(Duration::ZERO, |(ended, began)| ended - began),
            new_orders: after[0] - before[0],
            rolled_back: after[1] - before[1],
            payments: after[2] - before[2],
        };
        Ok((round, interrupted))
    }

    fn counts(&self) -> [u64; 3] {
        [self.tally.new_orders(), self.tally.rolled_back, self.tally.all_payments()]
    }

    /// Drives a round by tasks of the workers, which use the tables of the only part directly, or those of all parts.
    fn drive_directly(&mut self, interrupt: &AtomicBool) -> Result<(Vec<Driven>, bool), LoadError> {
        let control = Arc::<Control>::default();
        let (mut client, mut pending) = (self.domains.client(), Vec::new());
        let sessions: Vec<Owned<Session>> = self.sessions.concat();
        let mut direct = std::mem::take(self.direct()).into_iter();
        for (driver, session) in std::mem::take(&mut self.drivers).into_iter().zip(&sessions) {
            let (turn, mut parts) = (self.turn(&control), direct.next().unwrap_or_default());
            let task = move |tables: &mut Session| {
                let all = if parts.is_empty() { std::slice::from_mut(tables) } else { parts.as_mut_slice() };
                let driven = drive(driver, turn, &mut Direct { parts: all, replies: Vec::new() });
                (driven, parts)
            };
            pending.push(begin(&mut client, session, task).inspect_err(|_| control.stop())?);
        }
        let interrupted = control.conduct(sessions.len(), Length::Time(self.length), interrupt);
        let mut driven = Vec::new();
        for pending in pending {
            let (one, parts) = pending.wait()?;
            driven.push(one?);
            self.direct().extend((!parts.is_empty()).then_some(parts));
        }
        Ok((driven, interrupted))
    }

    /// Drives a round by clients that delegate.
    fn drive_by_clients(&mut self, interrupt: &AtomicBool) -> Result<(Vec<Driven>, bool), LoadError> {
        let control = Arc::<Control>::default();
        let drivers = std::mem::take(&mut self.drivers);
        let (count, pin) = (drivers.len(), self.arrangement.is_pinned());
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (number, (driver, cpu)) in drivers.into_iter().zip(self.arrangement.clients()).enumerate() {
                let (turn, client, loaded) = (self.turn(&control), self.domains.client(), &*self);
                let cpu = pin.then_some(*cpu);
                threads.push(scope.spawn(move || loaded.delegate(number, cpu, client, driver, turn)));
            }
            let interrupted = control.conduct(count, Length::Time(self.length), interrupt);
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Driven, LoadError>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            Ok((threads.into_iter().map(join).collect::<Result<Vec<_>, _>>()?, interrupted))
        })
    }

    fn direct(&mut self) -> &mut Vec<Vec<Session>> {
        self.direct.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, control: &Arc<Control>) -> Turn {
        Turn::new(control, Length::Time(self.length), u64::MAX)
    }

    /// A client's part of a round.
    fn delegate(
        &self,
        number: usize,
        cpu: Option<CpuId>,
        mut client: Client,
        driver: Driver,
        turn: Turn,
    ) -> Result<Driven, LoadError> {
        if let Some(cpu) = cpu {
            // Refused: it runs unpinned.
            let _ = pin_current_thread(cpu.index());
        }
        let mut parts = Vec::new();
        for sessions in &self.sessions {
            let burst = client.burst(&sessions[number % sessions.len()], self.burst)?;
            parts.push(Part { burst, tags: VecDeque::new() });
        }
        drive(driver, turn, &mut Delegated { parts, replies: Vec::new() })
    }

    /// Audits the tables.
    fn audit(&self) -> Result<Result<u64, Finding>, LoadError> {
        let tally = Arc::new(self.tally.clone());
        let population = self.population;
        let parts = self.on_sessions(|part, seat| {
            let (warehouses, tally) = (self.warehouses(part), Arc::clone(&tally));
            let inspect = move |tables: &mut Session| inspect(tables, &population, &warehouses, &tally);
            (seat.number == 0).then_some(inspect)
        })?;
        let sums = parts.into_iter().collect::<Result<Vec<Sums>, Finding>>();
        Ok(sums.and_then(|sums| self.tally.conclude(&self.population, &sums)))
    }
}

/// The part of a warehouse.
fn part_of(w_id: u16, parts: usize) -> usize {
    (usize::from(w_id) - 1) % parts
}

fn begin<R: Send + 'static>(
    client: &mut Client,
    session: &Owned<Session>,
    task: impl FnOnce(&mut Session) -> R + Send + 'static,
) -> Result<Pending<R>, LoadError> {
    Ok(client.try_call(session, task).map_err(|refused| refused.why)?)
}

/// One thread's part of a round.
struct Driven {
    driver: Driver,
    began: Instant,
    ended: Instant,
}

fn drive(mut driver: Driver, mut turn: Turn, reach: &mut dyn Reach) -> Result<Driven, LoadError> {
    let began = turn.drive(|transactions| driver.run(transactions, reach).map(|()| transactions))?;
    Ok(Driven { driver, began, ended: Instant::now() })
}

/// Direct use of the tables of all parts.
struct Direct<'a> {
    parts: &'a mut [Session],
    replies: Vec<(Tag, Reply)>,
}

impl Reach for Direct<'_> {
    fn submit(&mut self, tag: Tag, statement: Statement) -> Result<(), LoadError> {
        let part = if self.parts.len() > 1 { part_of(statement.warehouse(), self.parts.len()) } else { 0 };
        let reply = statement.run(&mut self.parts[part]);
        self.replies.push((tag, reply));
        Ok(())
    }

    fn finish(&mut self, take: &mut dyn FnMut(Tag, Reply)) -> Result<(), LoadError> {
        self.replies.drain(..).for_each(|(tag, reply)| take(tag, reply));
        Ok(())
    }
}

/// A client's burst to one part, and the places of the statements whose replies are due, in their order.
struct Part {
    burst: Burst<Owned<Session>, Reply>,
    tags: VecDeque<Tag>,
}

/// Delegation to the domains of all parts.
struct Delegated {
    parts: Vec<Part>,
    replies: Vec<(Tag, Reply)>,
}

impl Reach for Delegated {
    fn submit(&mut self, tag: Tag, statement: Statement) -> Result<(), LoadError> {
        let part = part_of(statement.warehouse(), self.parts.len());
        let Part { burst, tags } = &mut self.parts[part];
        let oldest = burst.push(move |tables: &mut Session| statement.run(tables))?;
        tags.push_back(tag);
        if let Some(reply) = oldest {
            let of = tags.pop_front().unwrap_or_else(|| unreachable!("every task has a place"));
            self.replies.push((of, reply?));
        }
        Ok(())
    }

    fn finish(&mut self, take: &mut dyn FnMut(Tag, Reply)) -> Result<(), LoadError> {
        self.parts.iter_mut().try_for_each(|part| part.burst.flush())?;
        self.replies.drain(..).for_each(|(tag, reply)| take(tag, reply));
        for Part { burst, tags } in &mut self.parts {
            for (reply, tag) in burst.drain().zip(tags.drain(..)) {
                take(tag, reply?);
            }
        }
        Ok(())
    }
}
