//! The time without service while domains change: the longest time between two replies to a client that calls all the time.
//!
//! Owns: the changes, and the client that notes its replies. Never: judges the times.
//!
//! One client calls a structure that one worker owns, one call after the other, first with nothing else going on and then beside changes of the domains: the
//! structure moves from one to the other and back, domains grow and shrink, and are split and merged. A *gap* is the time from one reply to the next, and
//! is listed under the change that was made meanwhile, or whose pause it is in.
//! The first phase says what the machine itself takes away: a client that is not let run sees a gap as well. Where the system counts how long threads wait for a
//! processing unit, a long gap is compared with that: what of it neither the client nor a worker has spent waiting is *service* that was missing. Of the waits of
//! several threads the longest counts, so that no wait is taken off twice. What a hypervisor takes away is no wait of a thread, and is known for a whole run
//! only, to ten milliseconds: so a run says how much it was, beside the sum of the long gaps that are no waits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use atrapos_domains::{
    Change, Client, Configuration, DomainConfiguration, DomainError, Domains, Owned, Placement,
};
use atrapos_runtime::affinity::current_thread_number;
use atrapos_topology::{CpuId, Machine, ProcessorFiles};
use hdrhistogram::Histogram;

use crate::error::LoadError;

/// Changes of the domains beside a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Disturbance {
    /// Nothing.
    Quiet,
    /// The structure moves to the other domain.
    Move,
    /// The domain of the structure gets a worker.
    Grow,
    /// The domain of the structure loses its youngest worker.
    Shrink,
    /// The domain of the structure gives its youngest worker and the structure to a new domain.
    Split,
    /// The new domain becomes part of the other one again.
    Merge,
}

/// Set in what is going on once a change has been made: what follows is the pause behind it.
const OVER: u8 = 1 << 7;

/// Returns the place of a gap in [`Disturbance::ALL`], by what was going on at its beginning and its end: it counts for the change that was being made as it
/// began, else for that of its end. Those without any change have nothing of one before them: a gap that began in the pause behind a change is of that one.
fn listed(began: u8, ended: u8) -> usize {
    let of = |going_on: u8| usize::from(going_on & !OVER);
    let quiet = Disturbance::ALL.iter().position(|one| *one == Disturbance::Quiet).unwrap_or(0);
    let was_made = began & OVER == 0 && of(began) != quiet;
    if was_made || of(ended) == quiet { of(began) } else { of(ended) }
}

impl Disturbance {
    /// The kinds, in the order in which they are made.
    pub const ALL: [Disturbance; 6] = [
        Disturbance::Quiet,
        Disturbance::Move,
        Disturbance::Grow,
        Disturbance::Split,
        Disturbance::Merge,
        Disturbance::Shrink,
    ];

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Disturbance::Quiet => "quiet",
            Disturbance::Move => "move",
            Disturbance::Grow => "grow",
            Disturbance::Shrink => "shrink",
            Disturbance::Split => "split",
            Disturbance::Merge => "merge",
        }
    }
}

/// The length of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceSettings {
    /// Rounds of changes; each makes every one of them once, and moves the structure there and back.
    pub rounds: usize,
    /// Time between two changes, and for each round without any.
    pub pause: Duration,
    /// Set if workers have processing units of their own.
    pub pin: bool,
}

/// Nanoseconds of the longest gap that is told from longer ones, but for the longest of all.
const COUNTED_MAX_NS: u64 = 60_000_000_000;

/// The gaps of one kind of disturbance, counted by their length to a thousandth of it. The memory is there from the beginning: to note a gap is part of
/// the next one, and has to take equally long always.
#[derive(Clone, Debug, PartialEq)]
pub struct Gaps {
    nanoseconds: Histogram<u64>,
    longest: u64,
    /// The long ones, less what a thread has waited for a processing unit meanwhile.
    without_waits: Vec<Duration>,
}

impl Default for Gaps {
    fn default() -> Gaps {
        let mut nanoseconds = Histogram::new_with_bounds(1, COUNTED_MAX_NS, 3)
            .unwrap_or_else(|error| unreachable!("a histogram takes these bounds: {error}"));
        // Writes to all of its memory, which the system gives at the first write; a compiler that sees that it is zero would leave that out.
        std::hint::black_box(&mut nanoseconds).reset();
        Gaps { nanoseconds, longest: 0, without_waits: Vec::new() }
    }
}

impl Gaps {
    fn note(&mut self, gap: Duration) {
        let gap = u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX);
        self.longest = self.longest.max(gap);
        self.nanoseconds.saturating_record(gap);
    }

    /// Number of the long gaps of which more than `bound` was spent by no thread on waiting for a processing unit; of all long ones where nobody counts that.
    #[must_use]
    pub fn longer_without_waits(&self, bound: Duration) -> usize {
        self.without_waits.iter().filter(|rest| **rest > bound).count()
    }

    /// The sum of those gaps, less their waits.
    #[must_use]
    pub fn without_waits(&self, bound: Duration) -> Duration {
        self.without_waits.iter().filter(|rest| **rest > bound).sum()
    }

    /// Number of gaps.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nanoseconds.len() as usize
    }

    /// The longest one, exactly; zero if there is none.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest)
    }

    /// The one that so large a share, from 0 to 1, are not above; zero if there is none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.nanoseconds.value_at_quantile(share).min(self.longest))
    }

    /// Number of those longer than `bound`; those longer by less than a thousandth may be missing.
    #[must_use]
    pub fn longer_than(&self, bound: Duration) -> usize {
        let bound = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        self.count() - self.nanoseconds.count_between(0, bound) as usize
    }
}

/// A measurement.
#[derive(Clone, Debug)]
pub struct ServiceRun {
    /// The gaps, in the order of [`Disturbance::ALL`], by what was going on meanwhile.
    pub gaps: Vec<Gaps>,
    /// Changes that were made.
    pub changes: usize,
    /// Calls that were answered; before the first one there is no gap.
    pub calls: u64,
    /// Calls that the structure has seen: as many, if none was lost or doubled.
    pub seen: u64,
    /// Time for which a hypervisor gave the processing units to others meanwhile, all of them together, to ten milliseconds each.
    pub stolen: Duration,
    /// Set if somebody wanted the end before the rounds were over.
    pub interrupted: bool,
}

/// The tick in which the system counts the time of processing units.
const TICK: Duration = Duration::from_millis(10);

/// The time that a hypervisor has taken from the processing units since the start of the machine.
fn stolen(root: &Path) -> Duration {
    let ticks: u64 = ProcessorFiles::below(root).units().values().map(|unit| unit.stolen).sum();
    TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX))
}

/// Names of the two domains and of the one that is split off, and of the structure.
const HERE: &str = "here";
const THERE: &str = "there";
const SPLIT: &str = "split";
const COUNTER: &str = "counter";

/// Measures the gaps of a client while domains of one worker change.
///
/// # Errors
/// [`LoadError`]: the domains could not be started or changed, or a call failed.
pub fn run_service(
    machine: &Machine,
    settings: &ServiceSettings,
    interrupt: &AtomicBool,
) -> Result<ServiceRun, LoadError> {
    let domain = |name| DomainConfiguration {
        placement: if settings.pin { Placement::Pinned } else { Placement::Anywhere },
        ..DomainConfiguration::new(name, 1)
    };
    let domains = vec![domain(HERE), domain(THERE)];
    let configuration = Configuration { oversubscribe: true, domains, ..Configuration::default() };
    let domains = Domains::start(machine, &configuration)?;
    let counter = domains.at(HERE)?.place_owned(COUNTER, 0_u64)?;
    let going_on = &AtomicU8::new(0);
    let over = &AtomicBool::new(false);
    let client = domains.client();
    let stolen_before = stolen(Path::new("/"));
    let (called, changed) = std::thread::scope(|scope| {
        let caller = scope.spawn(|| call(client, &counter, going_on, over));
        let changed = change(&domains, machine, settings, going_on, interrupt);
        over.store(true, Ordering::Release);
        (caller.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), changed)
    });
    let (calls, gaps) = called?;
    let (changes, interrupted) = changed?;
    let stolen = stolen(Path::new("/")).saturating_sub(stolen_before);
    let seen = answer(&mut domains.client(), &counter, |seen| *seen)?;
    Ok(ServiceRun { gaps, changes, calls, seen, stolen, interrupted })
}

thread_local! {
    /// The number that the system gives this thread.
    static WORKER: Option<u32> = current_thread_number();
}

/// Calls the structure, and waits for the answer.
fn answer<R: Send + 'static>(
    client: &mut Client,
    counter: &Owned<u64>,
    task: impl FnOnce(&mut u64) -> R + Send + 'static,
) -> Result<R, LoadError> {
    let pending = client.try_call(counter, task).map_err(|refused| refused.why)?;
    Ok(pending.wait()?)
}

/// A gap that is compared with the waits of the threads, and the time after which these are read again, so that what they have waited before is not of a gap.
const LONG: Duration = Duration::from_micros(500);
const WAITS_READ_EVERY: Duration = Duration::from_millis(1);

/// The time that the client and the workers that have answered it have waited for processing units.
struct Waits {
    files: ProcessorFiles,
    /// The numbers of the client and of the workers.
    counted: BTreeSet<u32>,
    /// The waits of all threads of the process, by their numbers, when they were read last.
    waited_ns: BTreeMap<u32, u64>,
    read: Instant,
}

impl Waits {
    /// Those of this thread, the client's.
    fn of_client(root: &Path) -> Waits {
        let mut waits = Waits {
            files: ProcessorFiles::below(root),
            counted: current_thread_number().into_iter().collect(),
            waited_ns: BTreeMap::new(),
            read: Instant::now(),
        };
        waits.longest();
        waits
    }

    /// Adds the thread of a worker that has answered.
    fn add(&mut self, thread: Option<u32>) {
        self.counted.extend(thread);
    }

    /// The longest of the waits since they were read last. A thread that has begun since then has waited nothing before, so that the first answer
    /// of a new worker has its waits, too.
    fn longest(&mut self) -> Duration {
        let waits_of = |thread| Some((thread, self.files.thread(thread)?.waited_ns));
        let waited_ns: BTreeMap<u32, u64> = self.files.threads().into_iter().filter_map(waits_of).collect();
        let since = |(thread, waited): (&u32, &u64)| {
            waited.saturating_sub(self.waited_ns.get(thread).copied().unwrap_or(0))
        };
        let counted = waited_ns.iter().filter(|(thread, _)| self.counted.contains(thread));
        let longest = counted.map(since).max();
        self.waited_ns = waited_ns;
        Duration::from_nanos(longest.unwrap_or(0))
    }

    /// Takes note of a gap that ended `now`, when the waits are read if it is time. Returns what of it is no wait, if it is a long one.
    fn after(&mut self, gap: Duration, now: Instant) -> Option<Duration> {
        if gap < LONG && now - self.read < WAITS_READ_EVERY {
            return None;
        }
        let longest = self.longest();
        self.read = now;
        (gap >= LONG).then(|| gap.saturating_sub(longest))
    }
}

/// Calls all the time, and notes the gaps by what is going on.
fn call(
    mut client: Client,
    counter: &Owned<u64>,
    going_on: &AtomicU8,
    over: &AtomicBool,
) -> Result<(u64, Vec<Gaps>), LoadError> {
    let mut gaps: Vec<Gaps> = Disturbance::ALL.iter().map(|_| Gaps::default()).collect();
    // The thread that runs it says which one it is.
    let mut call = || {
        answer(&mut client, counter, |counter| {
            *counter += 1;
            WORKER.with(|own| *own)
        })
    };
    let mut waits = Waits::of_client(Path::new("/"));
    // The first one leases slots.
    waits.add(call()?);
    let (mut calls, mut last) = (1, Instant::now());
    let mut before = going_on.load(Ordering::Acquire);
    while !over.load(Ordering::Acquire) {
        waits.add(call()?);
        let (now, after) = (Instant::now(), going_on.load(Ordering::Acquire));
        let of = &mut gaps[listed(before, after)];
        of.note(now - last);
        of.without_waits.extend(waits.after(now - last, now));
        // What it takes to read waits is of no gap.
        last = if waits.read == now { Instant::now() } else { now };
        (before, calls) = (after, calls + 1);
    }
    Ok((calls, gaps))
}

/// The processing unit of the worker that is added: one that no worker has, if there is one.
fn spare_cpu(domains: &Domains, machine: &Machine) -> CpuId {
    let report = domains.report();
    let taken = |cpu: &CpuId| report.iter().flat_map(|one| &one.workers).any(|one| one.cpu == Some(*cpu));
    let mut usable = machine.usable_cpus().iter();
    let first = machine.usable_cpus().iter().next();
    usable.find(|cpu| !taken(cpu)).or(first).unwrap_or(CpuId(0))
}

/// Makes the changes, each with a pause behind it; returns their number, and whether it was interrupted.
fn change(
    domains: &Domains,
    machine: &Machine,
    settings: &ServiceSettings,
    going_on: &AtomicU8,
    interrupt: &AtomicBool,
) -> Result<(usize, bool), LoadError> {
    let cpu = spare_cpu(domains, machine);
    let mut changes = 0;
    for round in 0..settings.rounds {
        for (at, disturbance) in Disturbance::ALL.into_iter().enumerate() {
            if interrupt.load(Ordering::Relaxed) {
                return Ok((changes, true));
            }
            going_on.store(at as u8, Ordering::Release);
            changes += make(domains, disturbance, cpu, settings.pause)?;
            going_on.store(at as u8 | OVER, Ordering::Release);
            std::thread::sleep(settings.pause);
        }
        debug_assert_eq!(changes, (round + 1) * 6, "a move is two");
    }
    Ok((changes, false))
}

/// Makes a change, and waits for its end; returns the number of changes that it was.
fn make(
    domains: &Domains,
    disturbance: Disturbance,
    cpu: CpuId,
    pause: Duration,
) -> Result<usize, DomainError> {
    match disturbance {
        Disturbance::Quiet => return Ok(0),
        Disturbance::Move => {
            domains.move_structure(COUNTER, THERE).and_then(Change::wait)?;
            std::thread::sleep(pause);
            domains.move_structure(COUNTER, HERE).and_then(Change::wait)?;
            return Ok(2);
        }
        Disturbance::Grow => domains.grow(HERE, cpu)?,
        Disturbance::Shrink => domains.shrink(HERE).and_then(Change::wait)?,
        Disturbance::Split => domains.split(HERE, SPLIT, 1, &[COUNTER]).and_then(Change::wait)?,
        Disturbance::Merge => domains.merge(SPLIT, HERE).and_then(Change::wait)?,
    }
    Ok(1)
}

#[cfg(test)]
mod tests {
    use atrapos_topology::LiveOptions;

    use super::*;

    /// Lengths of gaps depend on what else the machine does; that no call is lost or doubled does not.
    #[test]
    fn calls_go_on_while_domains_change() {
        let machine = Machine::live(&LiveOptions::new(None));
        let settings = ServiceSettings { rounds: 5, pause: Duration::from_micros(500), pin: false };
        let run = run_service(&machine, &settings, &AtomicBool::new(false)).expect("it runs");
        assert_eq!((run.changes, run.calls, run.interrupted), (30, run.seen, false));
        assert_eq!(run.gaps.iter().map(Gaps::count).sum::<usize>() as u64, run.calls - 1);
        let ended = run_service(&machine, &settings, &AtomicBool::new(true)).expect("it runs");
        assert_eq!((ended.changes, ended.interrupted), (0, true));
    }

    #[test]
    fn gaps_have_quantiles_and_a_longest_one() {
        let mut gaps = Gaps::default();
        (1..=100).for_each(|gap| gaps.note(Duration::from_nanos(gap)));
        assert_eq!(gaps.longest(), Duration::from_nanos(100));
        assert_eq!(gaps.quantile(0.5), Duration::from_nanos(50));
        assert_eq!((gaps.quantile(0.0), gaps.quantile(1.0)), (Duration::from_nanos(1), gaps.longest()));
        assert_eq!(gaps.longer_than(Duration::from_nanos(98)), 2);
        let long = Duration::from_nanos(1_234_567_891);
        gaps.note(long);
        gaps.note(2 * Duration::from_nanos(COUNTED_MAX_NS));
        assert_eq!(gaps.longest(), Duration::from_secs(120), "whatever is counted");
        assert_eq!((gaps.count(), gaps.longer_than(Duration::from_millis(1))), (102, 2));
        let counted = gaps.quantile(0.985);
        assert!(counted.abs_diff(long) <= long / 1_000, "{counted:?}");
        assert_eq!((Gaps::default().longest(), Gaps::default().quantile(0.9)), Default::default());
    }

    #[test]
    fn what_a_thread_has_waited_for_a_processing_unit_is_taken_off_a_long_gap() {
        let root = tempfile::tempdir().expect("a directory");
        let own = current_thread_number().expect("a number");
        let worker = own + 1;
        let write = |thread: u32, waited_ms: u64| {
            let directory = root.path().join(format!("proc/self/task/{thread}"));
            std::fs::create_dir_all(&directory).expect("a directory");
            std::fs::write(directory.join("schedstat"), format!("5 {} 7\n", waited_ms * 1_000_000))
                .expect("a file");
        };
        let ms = Duration::from_millis;
        write(own, 100);
        write(worker, 200);
        let mut waits = Waits::of_client(root.path());
        let began = waits.read;
        assert_eq!(waits.after(Duration::from_nanos(200), began), None, "a short one");
        write(worker, 202);
        assert_eq!(waits.after(ms(3), began), Some(ms(3)), "nobody knows who it is");
        write(worker, 203);
        waits.add(Some(worker));
        waits.add(None);
        assert_eq!(waits.after(ms(3), began), Some(ms(2)), "what it waited before is not of this gap");
        write(worker + 1, 2);
        waits.add(Some(worker + 1));
        assert_eq!(waits.after(ms(3), began), Some(ms(1)), "it has begun since");
        write(own, 101);
        write(worker, 207);
        assert_eq!(waits.after(ms(6), began + ms(6)), Some(ms(2)), "the longest wait");
        write(own, 109);
        assert_eq!(waits.after(Duration::from_nanos(200), began + ms(8)), None);
        assert_eq!(waits.after(ms(2), began + ms(10)), Some(ms(2)), "the wait was before it");
        let mut gaps = Gaps::default();
        gaps.without_waits.extend([ms(1), ms(2)]);
        assert_eq!((gaps.longer_without_waits(ms(1)), gaps.without_waits(ms(1))), (1, ms(2)));
    }

    #[test]
    fn what_a_hypervisor_took_is_counted_over_all_units() {
        let root = tempfile::tempdir().expect("a directory");
        assert_eq!(stolen(root.path()), Duration::ZERO, "nobody tells");
        std::fs::create_dir(root.path().join("proc")).expect("a directory");
        let units = "cpu  2 0 0 2 0 0 0 5\ncpu0 1 0 0 1 0 0 0 2\ncpu1 1 0 0 1 0 0 0 3\n";
        std::fs::write(root.path().join("proc/stat"), units).expect("a file");
        assert_eq!(stolen(root.path()), Duration::from_millis(50));
    }

    #[test]
    fn a_gap_is_of_the_change_that_was_made_meanwhile() {
        let [quiet, moved, grow, .., shrink] = [0, 1, 2, 3, 4, 5_u8];
        assert_eq!(Disturbance::ALL[usize::from(shrink)], Disturbance::Shrink);
        for (began, ended, of) in [
            (quiet, quiet, quiet),
            (quiet, moved, moved),
            (quiet | OVER, moved | OVER, moved),
            (moved, moved | OVER, moved),
            (moved, grow, moved),
            (moved | OVER, grow, grow),
            (shrink, quiet, shrink),
            (shrink | OVER, quiet, shrink),
        ] {
            assert_eq!(listed(began, ended), usize::from(of), "{began:#x} to {ended:#x}");
        }
    }
}
