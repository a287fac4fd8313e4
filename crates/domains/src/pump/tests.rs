//! Changes of domains under load, stepped from seeds: nothing is lost, doubled, or, for ordered clients, reordered.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use atrapos_runtime::rng::Seed;
use atrapos_topology::{CpuId, Machine};

use super::Pump;
use crate::planted::{Bug, must_notice};
use crate::{
    Burst, Client, Configuration, DomainConfiguration, DomainError, Domains, Group, Operation, Owned,
    Pending, Placement, Shared,
};

/// Entries of a structure: who wrote what.
type Log = Vec<(usize, u32)>;

#[derive(Clone)]
enum Structure {
    Owned(Owned<Log>),
    Shared(Shared<Mutex<Log>>),
}

/// Writes one entry, in a group if there are more.
struct Append {
    who: usize,
    number: u32,
}

impl Operation<Owned<Log>> for Append {
    type Reply = u32;
    fn run_group(operations: Group<Self>, log: &mut Log) -> Group<u32> {
        log.extend(operations.iter().map(|append| (append.who, append.number)));
        operations.iter().map(|append| append.number).collect()
    }
}

/// A burst on owned structures, as a client of its own.
struct Pusher {
    burst: Burst<Owned<Log>, u32>,
    who: usize,
    /// The structure that it is on; it turns to others, if it does that.
    at: usize,
    turns: bool,
    /// The number of the next task on each structure.
    next: [u32; STRUCTURES],
    /// The answers to come.
    expected: VecDeque<u32>,
}

impl Pusher {
    fn take(&mut self) {
        if let Some(answer) = self.burst.try_pop() {
            let answer = answer.expect("every task runs");
            assert_eq!(Some(answer), self.expected.pop_front(), "answers come in order");
        }
    }

    fn push(&mut self, choice: usize) {
        let (who, number) = (self.who, self.next[self.at]);
        let pushed = match choice {
            0..=3 => self.burst.try_push_operation(Append { who, number }).is_ok(),
            4..=6 => self
                .burst
                .try_push(move |log: &mut Log| {
                    log.push((who, number));
                    number
                })
                .is_ok(),
            _ => return self.take(),
        };
        if pushed {
            self.next[self.at] += 1;
            self.expected.push_back(number);
        }
    }
}

struct Submitter {
    client: Client,
    /// The number of the next task on each structure.
    next: Vec<u32>,
    pending: Vec<Pending<u32>>,
}

const STRUCTURES: usize = 5;
const CLIENTS: usize = 3;

fn configuration() -> Configuration {
    let domain = |name: &str, workers| DomainConfiguration {
        placement: Placement::Anywhere,
        slots: 60,
        ..DomainConfiguration::new(name, workers)
    };
    Configuration {
        oversubscribe: true,
        domains: vec![domain("a", 2), domain("b", 1)],
        ..Configuration::default()
    }
}

struct Run {
    domains: Domains,
    pump: Pump,
    structures: Vec<Structure>,
    submitters: Vec<Submitter>,
    pushers: Vec<Pusher>,
    /// Names of the domains that there are.
    names: Vec<String>,
    named: usize,
}

impl Run {
    fn new(seed: u64) -> Self {
        let machine = Machine::synthetic("pack:1 core:4 pu:1").expect("a machine");
        let (domains, pump) = Pump::start(&machine, &configuration(), Seed(seed)).expect("it starts");
        let site = |at: usize| domains.at(["a", "b"][at % 2]).expect("it exists");
        let structures = (0..STRUCTURES).map(|at| match at % 3 {
            2 => Structure::Shared(site(at).place(&format!("s{at}"), Mutex::default()).expect("a free name")),
            _ => Structure::Owned(site(at).place_owned(&format!("s{at}"), Log::new()).expect("a free name")),
        });
        let structures = structures.collect();
        let submitter =
            |_| Submitter { client: domains.ordered(), next: vec![0; STRUCTURES], pending: Vec::new() };
        let submitters = (0..CLIENTS).map(submitter).collect();
        let names = vec!["a".into(), "b".into()];
        let mut run = Self { domains, pump, structures, submitters, pushers: Vec::new(), names, named: 0 };
        let alone = (0..STRUCTURES).filter_map(|at| run.pusher(CLIENTS + at, at, false));
        let turning = [0, 1].into_iter().filter_map(|at| run.pusher(CLIENTS + STRUCTURES + at, at, true));
        run.pushers = alone.chain(turning).collect();
        run
    }

    fn pusher(&self, who: usize, at: usize, turns: bool) -> Option<Pusher> {
        let Structure::Owned(log) = &self.structures[at] else { return None };
        let burst = self.domains.client().burst(log, 6).expect("there are slots");
        Some(Pusher { burst, who, at, turns, next: [0; STRUCTURES], expected: VecDeque::new() })
    }

    /// Adds a closure or an operation to a burst, or takes a result; turns the burst first, if it is one that turns.
    fn push(&mut self) {
        let which = self.pump.choose(self.pushers.len());
        let (choice, to) = (self.pump.choose(12), self.pump.choose(2 * STRUCTURES));
        let pusher = &mut self.pushers[which];
        if pusher.turns
            && let Some(Structure::Owned(log)) = self.structures.get(to)
            && pusher.burst.try_turn_to(log)
        {
            pusher.at = to;
        }
        pusher.push(choice);
    }

    fn submit(&mut self) {
        let (who, at) = (self.pump.choose(CLIENTS), self.pump.choose(STRUCTURES));
        let submitter = &mut self.submitters[who];
        let number = submitter.next[at];
        let submitted = match &self.structures[at] {
            Structure::Owned(log) => submitter
                .client
                .try_call(log, move |log: &mut Log| {
                    log.push((who, number));
                    number
                })
                .ok(),
            Structure::Shared(log) => submitter
                .client
                .try_call(log, move |log: &Mutex<Log>| {
                    log.lock().expect("no task panics").push((who, number));
                    number
                })
                .ok(),
        };
        if let Some(pending) = submitted {
            submitter.next[at] += 1;
            // Now and then nobody waits for the answer.
            if self.pump.choose(8) > 0 {
                submitter.pending.push(pending);
            }
        }
    }

    fn take(&mut self) {
        let who = self.pump.choose(CLIENTS);
        let mut context = Context::from_waker(Waker::noop());
        self.submitters[who].pending.retain_mut(|pending| {
            match std::pin::Pin::new(pending).poll_now(&mut context) {
                Poll::Ready(answer) => {
                    answer.expect("every task runs");
                    false
                }
                Poll::Pending => true,
            }
        });
    }

    /// One change of the domains; those that are refused change nothing. Returns whether it was not. The change goes on while clients do.
    fn change(&mut self) -> bool {
        let some = |run: &mut Self| {
            let at = run.pump.choose(run.names.len());
            run.names[at].clone()
        };
        let (one, other) = (some(self), some(self));
        let structure = format!("s{}", self.pump.choose(STRUCTURES));
        match self.pump.choose(6) {
            0 | 1 => self.domains.move_structure(&structure, &one).is_ok(),
            2 => {
                let cpu = CpuId(self.pump.choose(4) as u32);
                let workers: usize = self.domains.report().iter().map(|domain| domain.workers.len()).sum();
                if workers < 8 {
                    self.domains.grow(&one, cpu).expect("there is room");
                }
                workers < 8
            }
            3 => self.domains.shrink(&one).is_ok(),
            4 => {
                self.named += 1;
                let new = format!("n{}", self.named);
                let is_split = self.domains.split(&one, &new, 1, &[structure.as_str()]).is_ok();
                if is_split {
                    self.names.push(new);
                }
                is_split
            }
            _ => {
                let is_merged = self.domains.merge(&one, &other).is_ok();
                if is_merged {
                    self.names.retain(|name| *name != one);
                }
                is_merged
            }
        }
    }

    fn settle(&mut self) {
        for _ in 0..100_000 {
            self.pump.step();
            let answered = self.submitters.iter().all(|submitter| submitter.pending.is_empty());
            if answered && self.pushers.iter().all(|pusher| pusher.burst.is_empty()) {
                break;
            }
            self.pushers.iter_mut().for_each(Pusher::take);
            for _ in 0..CLIENTS {
                self.take();
            }
        }
        let open: usize = self.submitters.iter().map(|submitter| submitter.pending.len()).sum();
        assert_eq!(open, 0, "every task is answered");
        assert!(
            self.pushers.iter().all(|pusher| pusher.burst.is_empty()),
            "every task of a burst is answered"
        );
        for _ in 0..2_000 {
            self.pump.step();
        }
    }

    /// The entries of a structure, read through a client.
    fn read(&mut self, at: usize) -> Log {
        let mut client = self.domains.client();
        let mut pending = match &self.structures[at] {
            Structure::Owned(log) => client.try_call(log, |log: &mut Log| std::mem::take(log)),
            Structure::Shared(log) => {
                return self.read_shared(&log.clone());
            }
        }
        .expect("there is room");
        self.finish(&mut pending)
    }

    fn read_shared(&mut self, log: &Shared<Mutex<Log>>) -> Log {
        let mut client = self.domains.client();
        let taken = |log: &Mutex<Log>| std::mem::take(&mut *log.lock().expect("no task panics"));
        let mut pending = client.try_call(log, taken).expect("there is room");
        self.finish(&mut pending)
    }

    fn finish(&mut self, pending: &mut Pending<Log>) -> Log {
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..10_000 {
            self.pump.step();
            if let Poll::Ready(answer) = std::pin::Pin::new(&mut *pending).poll_now(&mut context) {
                return answer.expect("it runs");
            }
        }
        panic!("a task is not answered");
    }

    fn check(&mut self) {
        self.settle();
        for at in 0..STRUCTURES {
            let mut expected: HashMap<usize, u32> = HashMap::new();
            for (who, number) in self.read(at) {
                let next = expected.entry(who).or_default();
                assert_eq!(number, *next, "tasks of client {who} on structure {at} run once each, in order");
                *next += 1;
            }
            for (who, submitter) in self.submitters.iter().enumerate() {
                let ran = expected.get(&who).copied().unwrap_or_default();
                assert_eq!(ran, submitter.next[at], "every task of client {who} on structure {at} ran");
            }
            for Pusher { who, next, .. } in &self.pushers {
                let ran = expected.get(who).copied().unwrap_or_default();
                assert_eq!(ran, next[at], "every task of burst {who} on structure {at} ran");
            }
        }
    }
}

/// Polls a future by hand.
trait PollNow {
    type Answer;
    fn poll_now(self, context: &mut Context<'_>) -> Poll<Self::Answer>;
}

impl<R: Send + 'static> PollNow for std::pin::Pin<&mut Pending<R>> {
    type Answer = Result<R, crate::TaskError>;
    fn poll_now(self, context: &mut Context<'_>) -> Poll<Self::Answer> {
        Future::poll(self, context)
    }
}

fn run(seed: u64, changes: usize) {
    let mut run = Run::new(seed);
    let mut changed = 0;
    while changed < changes {
        match run.pump.choose(16) {
            0 => changed += usize::from(run.change()),
            1..=4 => run.submit(),
            5..=7 => run.push(),
            8..=9 => run.take(),
            _ => drop(run.pump.step()),
        }
    }
    run.check();
}

/// Ten thousand changes in all, those that are refused apart.
#[test]
fn nothing_is_lost_doubled_or_reordered_by_changes() {
    for seed in 0..200 {
        run(seed, 50);
    }
}

/// A task on two structures is under way while both move, one after the other: the client's next task, on the second structure alone, does
/// not run before it.
#[test]
fn no_task_overtakes_one_on_several_structures() {
    let machine = Machine::synthetic("pack:1 core:2 pu:1").expect("a machine");
    let configuration = Configuration::one_worker_each(&["a", "b"]);
    let mut both_ran = 0;
    for seed in 0..300 {
        let (domains, mut pump) = Pump::start(&machine, &configuration, Seed(seed)).expect("it starts");
        let place =
            |name| domains.at("b").expect("it exists").place_owned(name, Log::new()).expect("a free name");
        let (first, second) = (place("first"), place("second"));
        let mut client = domains.ordered();
        let on_both = client
            .try_call(&(first.clone(), second.clone()), |(first, second): (&mut Log, &mut Log)| {
                first.push((0, 0));
                second.push((0, 0));
            })
            .expect("there is room");
        // The second moves, and then the first, while the task goes to and fro between their workers.
        let mut moves = vec![domains.move_structure("second", "a").expect("it moves")];
        let mut behind = None;
        for step in 0..500 {
            if step == seed % 20 {
                moves.push(domains.move_structure("first", "a").expect("it moves"));
            }
            if behind.is_none() && step >= seed / 20 {
                behind = client.try_call(&second, |log: &mut Log| std::mem::take(log)).ok();
            }
            pump.step();
        }
        let found = behind.expect("there is room").wait().expect("it runs");
        match on_both.wait() {
            Ok(()) => {
                assert_eq!(found, [(0, 0)], "seed {seed}: it ran behind the task before it");
                both_ran += 1;
            }
            // The two were apart when its turn came.
            Err(_) => assert_eq!(found, []),
        }
    }
    assert!(both_ran > 30, "{both_ran} of 300 tasks found both structures");
}

/// Steps until nothing is left to do.
fn settle(pump: &mut Pump) {
    let mut idle = 0;
    for _ in 0..100_000 {
        idle = if pump.step() { 0 } else { idle + 1 };
        if idle == 200 {
            return;
        }
    }
    panic!("there is always something to do");
}

/// Workers that leave come back, with their numbers and slots, and so do the numbers of domains: however many changes there are, neither
/// runs out, and no more workers are made than there were at once.
#[test]
fn numbers_of_those_that_have_ended_are_used_again() {
    let mut run = Run::new(1);
    for round in 0..1_200 {
        run.domains.grow("a", CpuId(round % 4)).expect("there is room");
        run.submit();
        settle(&mut run.pump);
        let new = format!("n{round}");
        drop(run.domains.split("a", &new, 1, &["s0"]).expect("it has workers"));
        run.submit();
        settle(&mut run.pump);
        drop(run.domains.merge(&new, "a").expect("both are there"));
        settle(&mut run.pump);
        drop(run.domains.shrink("a").expect("it has workers"));
        run.submit();
        settle(&mut run.pump);
        for _ in 0..CLIENTS * 4 {
            run.take();
        }
    }
    let report = run.domains.report();
    let mut workers: Vec<u32> =
        report.iter().flat_map(|domain| &domain.workers).map(|worker| worker.worker).collect();
    workers.sort_unstable();
    assert!(workers.iter().all(|&worker| worker < 4), "{workers:?}");
    run.domains.grow("a", CpuId(0)).expect("there is room");
    let report = run.domains.report();
    let came = report.iter().flat_map(|domain| &domain.workers).find(|worker| worker.returns > 0);
    let counted = came.map(|worker| (worker.returns, worker.tasks, worker.busy_steps));
    assert_eq!(counted, Some((1_200, 0, 0)), "it has come back after each round, and is counted anew");
    run.check();
}

/// A structure is on its way to a worker that leaves, and comes back: tasks on it find it with the heir.
#[test]
fn a_structure_that_arrives_at_an_heir_is_found() {
    for seed in 0..200 {
        let mut run = Run::new(seed);
        let some_steps = |run: &mut Run| {
            for _ in 0..run.pump.choose(4) {
                run.pump.step();
            }
        };
        drop(run.domains.split("a", "c", 1, &["s4"]).expect("it has workers"));
        settle(&mut run.pump);
        drop(run.domains.move_structure("s1", "c").expect("both are there"));
        some_steps(&mut run);
        drop(run.domains.merge("c", "a").expect("both are there"));
        some_steps(&mut run);
        drop(run.domains.shrink("a").expect("it has workers"));
        settle(&mut run.pump);
        run.domains.grow("b", CpuId(1)).expect("there is room");
        for at in 0..STRUCTURES {
            assert_eq!(run.read(at), [], "seed {seed}");
        }
    }
}

/// While a change is under way, what it tells may lead to where something was: the number of a worker that has left is not used again.
#[test]
fn numbers_are_not_used_again_while_changes_are_under_way() {
    let mut run = Run::new(1);
    let numbers = |run: &Run| -> Vec<u32> {
        let report = run.domains.report();
        report.iter().flat_map(|domain| &domain.workers).map(|worker| worker.worker).collect()
    };
    assert_eq!(numbers(&run), [0, 1, 2]);
    drop(run.domains.shrink("a").expect("it has two"));
    settle(&mut run.pump);
    drop(run.domains.move_structure("s0", "b").expect("both are there"));
    run.domains.grow("a", CpuId(1)).expect("there is room");
    assert_eq!(numbers(&run), [0, 3, 2], "the structure is on its way");
    settle(&mut run.pump);
    run.domains.grow("a", CpuId(1)).expect("there is room");
    assert_eq!(numbers(&run), [0, 3, 1, 2]);
    run.check();
}

/// A site keeps to its domain, whoever has the number of that later.
#[test]
fn a_site_of_a_domain_that_is_no_more_is_refused() {
    let mut run = Run::new(1);
    drop(run.domains.split("a", "c", 1, &["s0"]).expect("it has workers"));
    let site = run.domains.at("c").expect("it exists");
    settle(&mut run.pump);
    drop(run.domains.merge("c", "b").expect("both are there"));
    assert!(matches!(site.place("x", ()), Err(DomainError::NoSuchDomain(name)) if name == "c"));
    settle(&mut run.pump);
    run.domains.add_domain(&DomainConfiguration::new("d", 1)).expect("it starts");
    assert!(matches!(site.place("x", ()), Err(DomainError::NoSuchDomain(_))));
    assert!(matches!(site.place_owned("x", ()), Err(DomainError::NoSuchDomain(_))));
    run.domains.at("d").and_then(|site| site.place("x", ())).expect("it is there");
}

/// Several changes of one structure are under way at once: the last one says where it is, and what it is.
#[test]
fn changes_of_a_structure_follow_it() {
    let home = |domains: &Domains| {
        let report = domains.report();
        report
            .into_iter()
            .find(|domain| domain.structures.contains(&"s0".to_owned()))
            .map(|domain| domain.name)
    };
    for seed in 0..100 {
        let mut run = Run::new(seed);
        let Structure::Owned(log) = run.structures[0].clone() else { panic!("it is owned") };
        for to in ["b", "a", "b"] {
            drop(run.domains.move_structure(&log, to).expect("both are there"));
            for _ in 0..run.pump.choose(4) {
                run.pump.step();
            }
        }
        drop(run.domains.replace(&log, vec![(7, 7)]).expect("it is there"));
        settle(&mut run.pump);
        assert_eq!(home(&run.domains).as_deref(), Some("b"), "seed {seed}");
        assert_eq!(run.read(0), [(7, 7)], "seed {seed}");
    }
}

/// Something that says when it is dropped.
struct Noted(Arc<AtomicUsize>);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A structure that is removed while it moves is dropped wherever it arrives.
#[test]
fn what_is_removed_on_its_way_is_dropped() {
    for seed in 0..200 {
        let dropped = Arc::new(AtomicUsize::new(0));
        let mut run = Run::new(seed);
        let site = run.domains.at("a").expect("it exists");
        let noted = site.place_owned("noted", Noted(Arc::clone(&dropped))).expect("free");
        drop(run.domains.move_structure(&noted, "b").expect("both are there"));
        for _ in 0..run.pump.choose(8) {
            run.pump.step();
        }
        drop(run.domains.remove(&noted).expect("it is there"));
        settle(&mut run.pump);
        assert_eq!(dropped.load(Ordering::SeqCst), 1, "seed {seed}");
    }
}

#[test]
fn planted_bugs_are_caught() {
    must_notice("pump::tests::changes_of_a_structure_follow_it", Bug::LoseGone);
    must_notice("pump::tests::a_structure_that_arrives_at_an_heir_is_found", Bug::RouteToLeft);
    must_notice("pump::tests::numbers_are_not_used_again_while_changes_are_under_way", Bug::ReuseEarly);
    for bug in [Bug::PassPast, Bug::ChangeRingEarly, Bug::TurnUnsent, Bug::ServeUnsaid] {
        must_notice("pump::tests::nothing_is_lost_doubled_or_reordered_by_changes", bug);
    }
    must_notice("pump::tests::no_task_overtakes_one_on_several_structures", Bug::OrderByFirst);
    must_notice(
        "pump::tests::slots_that_change_hands_within_a_step_are_served_from_the_beginning",
        Bug::ServeUnread,
    );
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let logs = |seed| {
        let mut run = Run::new(seed);
        for step in 0..3_000 {
            if step % 100 == 0 {
                run.change();
            }
            run.submit();
            run.take();
            run.pump.step();
        }
        run.settle();
        (0..STRUCTURES).map(|at| run.read(at)).collect::<Vec<_>>()
    };
    assert_eq!(logs(7), logs(7));
    assert_ne!(logs(7), logs(8));
}

/// While a worker looks through its rings, a task gives one of them back, and another client leases its slots and submits. That
/// client's first task must not run as the next one of the ring that is gone: its own ring would begin behind it, and stand still.
#[test]
fn slots_that_change_hands_within_a_step_are_served_from_the_beginning() {
    let machine = Machine::synthetic("pack:1 core:1 pu:1").expect("a machine");
    let configuration = Configuration::one_worker_each(&["one"]);
    let (domains, mut pump) = Pump::start(&machine, &configuration, Seed(1)).expect("it starts");
    let log = domains.at("one").expect("it exists").place_owned("log", Log::new()).expect("a free name");
    let client = || domains.client().with_window(2);
    let append = |client: &mut Client, number, pump: &mut Pump| {
        let pending =
            client.try_call(&log, move |log: &mut Log| log.push((0, number))).expect("there is room");
        while pump.step() {}
        assert!(pending.is_answered(), "task {number} runs");
    };
    let (mut first, mut second, mut third) = (client(), client(), client());
    append(&mut first, 0, &mut pump);
    // Once round, so that the ring stands at its beginning.
    append(&mut second, 1, &mut pump);
    append(&mut second, 2, &mut pump);
    let target = log.clone();
    let hand_over = first.try_call(&log, move |_: &mut Log| {
        drop(second);
        let pending = third.try_call(&target, |log: &mut Log| log.push((0, 3)));
        (third, pending.is_ok())
    });
    let hand_over = hand_over.expect("there is room");
    while pump.step() {}
    let (mut third, submitted) = hand_over.wait().expect("it ends well");
    assert!(submitted);
    append(&mut third, 4, &mut pump);
    append(&mut third, 5, &mut pump);
}

/// The memory policy of this thread, as the kernel numbers them; `None` where it does not say.
fn policy() -> Option<libc::c_int> {
    let (mut policy, nothing) = (-1, std::ptr::null_mut::<libc::c_ulong>());
    // SAFETY: the call writes one number, and no mask, since there is none.
    let said = unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut policy, nothing, 0, nothing, 0) };
    (said == 0).then_some(policy)
}

/// A structure is made by a thread that has its domain's policy. It says little where the kernel refuses policies; there the workers go on.
#[test]
fn structures_are_made_under_the_policy_of_their_domain() {
    let machine = Machine::live(&atrapos_topology::LiveOptions::new(None));
    let node = machine.nodes()[0].id.0;
    let domain = |name, memory| DomainConfiguration {
        placement: Placement::Anywhere,
        memory,
        ..DomainConfiguration::new(name, 1)
    };
    let policies = [
        ("local", crate::MemoryPolicy::Local),
        ("interleaved", crate::MemoryPolicy::Interleaved),
        ("bound", crate::MemoryPolicy::Bound(node)),
    ];
    let domains = policies.map(|(name, memory)| domain(name, memory)).into();
    let configuration = Configuration { oversubscribe: true, domains, ..Configuration::default() };
    let domains = Domains::start(&machine, &configuration).expect("it starts");
    let made = policies.map(|(name, _)| {
        let made = domains.at(name).and_then(|site| site.place_owned_with(name, policy)).expect("free");
        domains.client().call_blocking(&made, |made| *made).expect("it runs")
    });
    let (local, [_, interleaved, bound]) = (policy(), made);
    assert_eq!(made[0], local, "the process' own");
    if interleaved != local {
        assert_eq!([interleaved, bound], [Some(3), Some(3)], "one node at a time, of several or of one");
    }
}

/// The number of processing units that a task in a domain may run on, asked of each worker.
fn units_of_workers(domains: &Domains, structures: &[Owned<()>]) -> Vec<usize> {
    let cpus = |(): &mut ()| atrapos_runtime::affinity::current_thread_cpus().expect("it can be read").len();
    structures.iter().map(|at| domains.client().call_blocking(at, cpus).expect("it runs")).collect()
}

/// The workers of a migrating domain have all its units: those that came too, and no more the unit of one that went.
#[test]
fn workers_of_a_migrating_domain_share_its_units() {
    let machine = Machine::live(&atrapos_topology::LiveOptions::new(None));
    let cpus: Vec<CpuId> = machine.usable_cpus().iter().collect();
    let [first, second, ..] = cpus[..] else { return };
    let domain = DomainConfiguration {
        placement: Placement::Migrating,
        cpus: vec![first.0],
        ..DomainConfiguration::new("d", 0)
    };
    let configuration = Configuration { domains: vec![domain], ..Configuration::default() };
    let domains = Domains::start(&machine, &configuration).expect("it starts");
    let place = |name| domains.at("d").and_then(|site| site.place_owned(name, ())).expect("free");
    let one = place("one");
    if units_of_workers(&domains, std::slice::from_ref(&one)) != [1] {
        // No thread can be bound here.
        return;
    }
    domains.grow("d", second).expect("it grows");
    let structures = [one.clone(), place("two")];
    let reported: Vec<_> =
        domains.report()[0].workers.iter().map(|worker| (worker.worker, worker.cpu)).collect();
    assert_eq!(reported, [(0, Some(first)), (1, Some(second))]);
    assert_eq!(units_of_workers(&domains, &structures), [2, 2]);
    domains.shrink("d").expect("there are two").wait().expect("it is no task");
    assert_eq!(units_of_workers(&domains, &structures), [1, 1]);
}
