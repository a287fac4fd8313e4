//! Cycles that a wait, a task that is passed on, or a buffer that changes hands would close.

use std::pin::Pin;
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use atrapos_topology::{CpuId, Machine};

use super::Waits;
use crate::domains::Inner;
use crate::planted::{Bug, must_notice};
use crate::task::Failure;
use crate::worker::WorkerShared;
use crate::{
    CallError, Client, Configuration, DomainConfiguration, DomainError, Domains, Owned, Pending, Placement,
    Shared, TaskError, WINDOW_DEFAULT, Why,
};

fn workers(count: u32) -> Vec<Arc<WorkerShared>> {
    (0..count).map(|index| WorkerShared::new(index, index, Some(CpuId(index)), 1)).collect()
}

/// Worker `who` waits for slots of the buffer of worker `of`.
fn wait(waits: &Waits, workers: &[Arc<WorkerShared>], who: u32, of: u32) -> bool {
    waits.begin(who, &workers[of as usize].buffer, 0..4, None)
}

/// A task of worker `who` polls the future of a slot of the buffer of worker `of`, in a ring of its own.
fn poll(waits: &Waits, workers: &[Arc<WorkerShared>], who: u32, of: u32, slot: usize) -> bool {
    waits.begin(who, &workers[of as usize].buffer, slot..slot + 1, Some(slot))
}

/// A task in a buffer is passed on to one of some workers. Returns which.
fn pass(
    waits: &Waits,
    workers: &[Arc<WorkerShared>],
    of: usize,
    slot: usize,
    to: &[usize],
) -> Result<u32, Failure> {
    let mut told = None;
    let to = to.iter().map(|&to| Arc::clone(&workers[to]));
    waits.pass(&workers[of].buffer, slot, to, |worker| told = Some(worker.index))?;
    Ok(told.expect("it is told"))
}

#[test]
fn a_task_is_not_passed_on_to_who_waits_for_it() {
    let (waits, workers) = (Waits::default(), workers(4));
    // 2 waits for 0, and 0 for a task that lies with 1.
    assert!(wait(&waits, &workers, 0, 1) && wait(&waits, &workers, 2, 0));
    assert_eq!(pass(&waits, &workers, 1, 2, &[0]), Err(Failure::WouldDeadlock), "it would wait for itself");
    assert_eq!(pass(&waits, &workers, 1, 2, &[2]), Err(Failure::WouldDeadlock), "over another one");
    assert_eq!(pass(&waits, &workers, 1, 2, &[2, 0, 3]), Ok(3), "another worker of its domain can have it");
    assert_eq!(pass(&waits, &workers, 1, 5, &[0]), Ok(0), "nobody waits for a task of another ring");
    assert!(!wait(&waits, &workers, 3, 0), "the one that has the task is waited for");
    waits.ran(&workers[1].buffer, 2);
    assert!(wait(&waits, &workers, 3, 0), "until it has run");
    assert!(waits.close(&workers[1], false));
    assert_eq!(pass(&waits, &workers, 0, 0, &[1]), Err(Failure::ShutDown), "nor to who has ended");
}

#[test]
fn a_task_that_was_passed_on_needs_its_server_too() {
    let (waits, workers) = (Waits::default(), workers(3));
    assert!(wait(&waits, &workers, 0, 1));
    assert_eq!(pass(&waits, &workers, 1, 0, &[2]), Ok(2));
    assert!(!wait(&waits, &workers, 1, 0), "1 takes back the answer for which 0 waits");
}

#[test]
fn a_buffer_goes_to_nobody_who_waits() {
    let (waits, workers) = (Waits::default(), workers(4));
    let hand_over = |from: usize, to: usize| {
        let tell = |to: &Arc<WorkerShared>| workers[from].bequeath(to);
        waits.hand_over(&workers[from], Arc::clone(&workers[to]), [&workers[from].buffer].into_iter(), tell)
    };
    assert!(wait(&waits, &workers, 0, 1));
    assert_eq!(pass(&waits, &workers, 1, 0, &[2]), Ok(2));
    assert!(!hand_over(1, 0), "it waits for a task in this buffer");
    assert!(hand_over(2, 3) && hand_over(1, 2), "to the heir of one that has left, too");
    assert!(!wait(&waits, &workers, 3, 0), "it has the buffer, and the task that was passed on");
    assert!(waits.close(&workers[0], false) && !hand_over(3, 0), "nor to who has ended");
}

#[test]
fn a_task_waits_for_each_future_that_it_has_polled() {
    let (waits, workers) = (Waits::default(), workers(4));
    assert!(!poll(&waits, &workers, 0, 0, 1), "its own worker runs it");
    assert!(poll(&waits, &workers, 0, 1, 1) && poll(&waits, &workers, 0, 2, 1));
    assert!(poll(&waits, &workers, 0, 1, 1), "again, as executors do");
    assert!(!poll(&waits, &workers, 1, 0, 1) && !wait(&waits, &workers, 2, 0));
    assert!(poll(&waits, &workers, 3, 0, 1), "nothing waits for it");
    assert!(!wait(&waits, &workers, 1, 3), "over another one");
    waits.end_poll(0, &workers[1].buffer, 1);
    assert!(wait(&waits, &workers, 1, 3), "one future is ready");
    waits.end(1);
    assert!(!wait(&waits, &workers, 2, 3), "the other one is not");
    assert!(wait(&waits, &workers, 0, 1));
    waits.end(0);
    assert!(waits.is_waiting(0), "what it blocked for has come, what it polled has not");
    waits.end_task(0);
    assert!(!waits.is_waiting(0) && wait(&waits, &workers, 2, 3));
}

#[test]
fn planted_bugs_are_caught() {
    must_notice("waits::tests::a_task_is_not_passed_on_to_who_waits_for_it", Bug::PassUnseen);
    must_notice("waits::tests::a_task_that_was_passed_on_needs_its_server_too", Bug::ForgetServer);
    must_notice("waits::tests::a_buffer_goes_to_nobody_who_waits", Bug::HandOverToWaiting);
    must_notice("waits::tests::a_future_is_not_polled_by_a_task_of_its_own_worker", Bug::PollUnseen);
    must_notice("waits::tests::a_task_that_has_ended_does_not_wait_for_what_it_polled", Bug::PollKept);
    must_notice("waits::tests::who_has_an_answer_finds_no_wait_of_its_task", Bug::PollKept);
    must_notice("waits::tests::tasks_that_poll_in_vain_leave_other_rings_their_turn", Bug::PollStops);
    must_notice("waits::tests::a_future_that_was_polled_and_waited_for_is_no_wait", Bug::PollKeptReady);
    must_notice(
        "waits::tests::a_future_of_a_burst_that_was_polled_and_dropped_is_no_wait",
        Bug::PollKeptReady,
    );
}

/// Domains `a` and `b` of one worker each, with a structure that needs no worker to itself in each, and one that moves, in `b`.
struct Two {
    domains: Domains,
    a: Shared<()>,
    b: Shared<()>,
    moving: Owned<u32>,
}

fn start() -> Two {
    let machine = Machine::synthetic("pack:1 core:2 pu:1").expect("a machine");
    let domain = |name| DomainConfiguration {
        placement: Placement::Anywhere,
        slots: 60,
        ..DomainConfiguration::new(name, 1)
    };
    let configuration = Configuration { domains: vec![domain("a"), domain("b")], ..Configuration::default() };
    let domains = Domains::start(&machine, &configuration).expect("it starts");
    let site = |name| domains.at(name).expect("it exists");
    let a = site("a").place("in a", ()).expect("free");
    let b = site("b").place("in b", ()).expect("free");
    let moving = site("b").place_owned("moving", 0).expect("free");
    Two { domains, a, b, moving }
}

/// Keeps a worker inside a task until the barrier is met once more.
fn occupy(client: &mut Client, at: &Shared<()>) -> (Arc<Barrier>, Pending<()>) {
    let barrier = Arc::new(Barrier::new(2));
    let inside = Arc::clone(&barrier);
    let pending = client.try_call(at, move |()| {
        inside.wait();
        inside.wait();
    });
    barrier.wait();
    (barrier, pending.expect("there is room"))
}

/// Waits, for half a minute at least, until something has come.
fn until(mut come: impl FnMut() -> bool) {
    for _ in 0..100_000_000 {
        if come() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("it does not come");
}

/// Waits until tasks that other clients have submitted before have run: tasks of different clients have no order.
fn until_it_is(client: &mut Client, moving: &Owned<u32>, value: u32) {
    until(|| client.call_blocking(moving, |moving| *moving).expect("it runs") == value);
}

/// A task in `a` waits for one in `b`, whose structure then moves to `a`.
#[test]
fn a_structure_that_moves_to_who_waits_ends_the_wait() {
    moves_to_who_waits(|client, moving| client.call_blocking(moving, |moving| *moving += 1));
    moves_to_who_waits(|client, moving| pollster::block_on(client.call(moving, |moving| *moving += 1)));
}

fn moves_to_who_waits(call: impl FnOnce(&mut Client, &Owned<u32>) -> Result<(), CallError> + Send + 'static) {
    let Two { domains, a, b, moving } = start();
    let mut client = domains.client();
    let (let_go, occupied) = occupy(&mut client, &b);
    let (mut inner, target) = (domains.client(), moving.clone());
    let calls = client.try_call(&a, move |()| call(&mut inner, &target));
    until(|| domains.inner.waits.is_waiting(0));
    let change = domains.move_structure(&moving, "a").expect("both exist");
    let_go.wait();
    occupied.wait().expect("it runs");
    let refused = calls.expect("there is room").wait().expect("it runs");
    assert!(matches!(refused, Err(CallError::Failed(TaskError::WouldDeadlock))), "{refused:?}");
    change.wait().expect("it is no task");
    assert_eq!(client.call_blocking(&moving, |moving| *moving).expect("it runs"), 0, "the task did not run");
}

/// A structure moves to `a`, and the task on it is passed on there, before the task in `a` begins to wait for it.
#[test]
fn a_wait_for_what_has_moved_here_is_refused() {
    let Two { domains, a, b, moving } = start();
    let mut client = domains.client();
    let (let_go, occupied) = occupy(&mut client, &b);
    let (mut inner, target) = (domains.client(), moving.clone());
    let barrier = Arc::new(Barrier::new(2));
    let inside = Arc::clone(&barrier);
    let waits = client.try_call(&a, move |()| {
        let pending = inner.try_call(&target, |moving| *moving += 1).expect("there is room");
        inside.wait();
        inside.wait();
        pending.wait()
    });
    barrier.wait();
    let change = domains.move_structure(&moving, "a").expect("both exist");
    let_go.wait();
    occupied.wait().expect("it runs");
    until(|| !domains.inner.waits.graph().passed.is_empty());
    barrier.wait();
    let refused = waits.expect("there is room").wait().expect("it runs");
    assert!(matches!(refused, Err(TaskError::WouldDeadlock)), "{refused:?}");
    change.wait().expect("it is no task");
    until_it_is(&mut client, &moving, 1);
    until(|| domains.inner.waits.graph().passed.is_empty());
}

/// A burst whose tasks run on the worker that would wait for them: nothing hangs, and nothing is lost.
#[test]
fn a_burst_that_is_waited_for_by_its_own_worker_says_so() {
    let Two { domains, b, moving, .. } = start();
    let mut client = domains.client();
    let mut burst = client.burst(&moving, 4).expect("there are slots");
    let task = client.try_call(&b, move |()| {
        let add = |moving: &mut u32| {
            *moving += 1;
            *moving
        };
        let pushed = (0..4).filter(|_| matches!(burst.push(add), Ok(None))).count();
        let is_refused = |answer: &Result<u32, TaskError>| matches!(answer, Err(TaskError::WouldDeadlock));
        let fifth = burst.push(add);
        assert!(matches!(fifth, Err(Why::WouldDeadlock)), "{fifth:?}");
        assert!(burst.pop().as_ref().is_some_and(is_refused));
        let drained: Vec<_> = burst.drain().collect();
        assert!(drained.len() == 1 && is_refused(&drained[0]), "{drained:?}");
        let turned =
            (burst.flush(), burst.turn_to(&moving), burst.try_push(add).map_err(|refused| refused.why));
        assert_eq!(turned, (Ok(()), Ok(()), Err(Why::Full)), "there is room for what they send");
        (pushed, burst)
    });
    let (pushed, mut burst) = task.expect("there is room").wait().expect("no assertion failed");
    assert_eq!((pushed, burst.len()), (4, 4));
    let answers: Result<Vec<u32>, TaskError> = burst.drain().collect();
    assert_eq!(answers.expect("they run"), [1, 2, 3, 4]);
}

#[test]
fn a_burst_of_another_domain_can_be_waited_for_in_a_task() {
    let Two { domains, a, moving, .. } = start();
    let mut client = domains.client();
    let mut burst = client.burst(&moving, 4).expect("there are slots");
    let task = client.try_call(&a, move |()| {
        let mut answers = Vec::new();
        for number in 0..20 {
            answers.extend(burst.push(move |_| number).expect("there is no cycle"));
        }
        answers.extend(burst.drain());
        answers
    });
    let answers = task.expect("there is room").wait().expect("it runs");
    assert!(answers.into_iter().map(|answer| answer.expect("it runs")).eq(0..20));
    assert!(!domains.inner.waits.is_waiting(0));
}

#[test]
fn a_change_is_not_waited_for_inside_a_task() {
    let Two { domains, a, b, moving } = start();
    let domains = Arc::new(domains);
    let mut client = domains.client();
    // Its worker is not done with the change before it is waited for.
    let (let_go, occupied) = occupy(&mut client, &b);
    let (shared, target) = (Arc::clone(&domains), moving.clone());
    let waited = client.call_blocking(&a, move |()| {
        let (move_here, gone) = (shared.move_structure(&target, "a"), shared.remove(&target));
        (move_here.and_then(crate::Change::wait), gone.map(|change| change.is_done()))
    });
    let (moved, _) = waited.expect("it runs");
    let_go.wait();
    occupied.wait().expect("it runs");
    assert!(matches!(moved, Err(DomainError::WouldDeadlock)), "{moved:?}");
    let refused = client.try_call(&moving, |_| ()).expect_err("it is removed");
    assert_eq!(refused.why, Why::Removed);
}

/// Looks once whether a future is ready, as executors do.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_future_is_not_polled_by_a_task_of_its_own_worker() {
    let Two { domains, b, moving, .. } = start();
    let mut client = domains.client();
    let (mut inner, target) = (domains.client(), moving.clone());
    let polled = client.call_blocking(&b, move |()| {
        let mut pending = inner.try_call(&target, |moving| *moving += 1).expect("there is room");
        poll_once(&mut pending)
    });
    let polled = polled.expect("it runs");
    assert!(matches!(polled, Poll::Ready(Err(TaskError::WouldDeadlock))), "{polled:?}");
    until_it_is(&mut client, &moving, 1);
}

/// Executors inside of tasks end, whatever they wait for.
#[test]
fn an_executor_in_a_task_of_the_worker_that_it_needs_ends() {
    let Two { domains, a, b, moving } = start();
    let mut client = domains.client();
    let (mut inner, target) = (domains.client().with_window(1), moving.clone());
    let calls = client.call_blocking(&b, move |()| {
        let first = pollster::block_on(inner.call(&target, |moving| *moving += 1));
        // The seat of the first one is not free before this task ends.
        (first, pollster::block_on(inner.call(&target, |moving| *moving += 1)))
    });
    let (first, second) = calls.expect("it runs");
    assert!(matches!(first, Err(CallError::Failed(TaskError::WouldDeadlock))), "{first:?}");
    assert!(matches!(second, Err(CallError::Refused(Why::WouldDeadlock))), "{second:?}");
    until_it_is(&mut client, &moving, 1);
    let (mut inner, waits) = (domains.client(), Arc::clone(&domains.inner));
    let elsewhere = client.call_blocking(&a, move |()| {
        let called = pollster::block_on(inner.call(&moving, |moving| *moving + 1));
        (called.expect("it can run meanwhile"), waits.waits.is_waiting(0))
    });
    assert_eq!(elsewhere.expect("it runs"), (2, false), "what has come is not waited for");
}

/// Two tasks poll each other's workers: one is refused, which lets the other one go on.
#[test]
fn executors_that_need_each_others_workers_end() {
    let Two { domains, a, b, .. } = start();
    let mut client = domains.client();
    let both_inside = Arc::new(Barrier::new(2));
    let mut task = |at: &Shared<()>, other: &Shared<()>| {
        let (mut inner, other, inside) = (domains.client(), other.clone(), Arc::clone(&both_inside));
        let task = client.try_call(at, move |()| {
            inside.wait();
            pollster::block_on(inner.call(&other, |()| ()))
        });
        task.expect("there is room")
    };
    let tasks = [task(&a, &b), task(&b, &a)];
    let ends = tasks.map(|task| task.wait().expect("it runs"));
    let refused = ends.iter().filter(|end| matches!(end, Err(CallError::Failed(TaskError::WouldDeadlock))));
    assert_eq!((refused.count(), ends.iter().filter(|end| end.is_ok()).count()), (1, 1), "{ends:?}");
}

/// A task polls a future once and returns it: nobody is refused for what it might have waited for.
#[test]
fn a_task_that_has_ended_does_not_wait_for_what_it_polled() {
    let Two { domains, a, b, moving } = start();
    let mut client = domains.client();
    let (let_go, occupied) = occupy(&mut client, &b);
    let mut inner = domains.client();
    let polled = client.call_blocking(&a, move |()| {
        let mut pending = inner.try_call(&moving, |_| 7).expect("there is room");
        assert!(poll_once(&mut pending).is_pending(), "its worker is occupied");
        pending
    });
    let (mut inner, other) = (domains.client(), a.clone());
    let calls = client.try_call(&b, move |()| inner.call_blocking(&other, |()| ()));
    let_go.wait();
    occupied.wait().expect("it runs");
    calls.expect("there is room").wait().expect("it runs").expect("nothing waits for it");
    assert_eq!(pollster::block_on(polled.expect("it runs")).expect("it runs"), 7);
}

#[test]
fn a_burst_that_is_awaited_by_its_own_worker_says_so() {
    let Two { domains, b, moving, .. } = start();
    let mut client = domains.client();
    let mut burst = client.burst(&moving, 2).expect("there are slots");
    let task = client.try_call(&b, move |()| {
        let add = |moving: &mut u32| {
            *moving += 1;
            *moving
        };
        for _ in 0..2 {
            assert!(matches!(pollster::block_on(burst.push_async(add)), Ok(None)));
        }
        let third = pollster::block_on(burst.push_async(add));
        assert!(matches!(third, Err(Why::WouldDeadlock)), "{third:?}");
        let popped = pollster::block_on(burst.pop_async());
        assert!(matches!(popped, Some(Err(TaskError::WouldDeadlock))), "{popped:?}");
        burst
    });
    let mut burst = task.expect("there is room").wait().expect("no assertion failed");
    assert_eq!(burst.len(), 2, "the third was not added, and nothing was taken");
    let answers: Result<Vec<u32>, TaskError> = burst.drain().collect();
    assert_eq!(answers.expect("they run"), [1, 2]);
}

/// A waker that looks whether worker 0 waits, as whoever is woken by its answer may.
struct Look {
    inner: Arc<Inner>,
    waits: OnceLock<bool>,
}

impl Wake for Look {
    fn wake(self: Arc<Self>) {
        let _ = self.waits.set(self.inner.waits.is_waiting(0));
    }
}

/// The waker is called where the answer is published, on the worker's thread: by then what the task has polled is waited for no more.
#[test]
fn who_has_an_answer_finds_no_wait_of_its_task() {
    let Two { domains, a, b, moving } = start();
    let mut client = domains.client();
    let (let_b_go, in_b) = occupy(&mut client, &b);
    let (let_a_go, in_a) = occupy(&mut client, &a);
    let polls = |mut inner: Client, target: Owned<u32>| {
        move |(): &()| {
            let mut pending = inner.try_call(&target, |moving| *moving += 1).expect("there is room");
            assert!(poll_once(&mut pending).is_pending(), "its worker is occupied");
            pending
        }
    };
    // Several are answered at once, and they have a ring of their own: so the worker learns who waits for them before it runs them.
    let both = vec![polls(domains.client(), moving.clone()), polls(domains.client(), moving)];
    let mut polling = domains.client().bulk(&a, both).expect("there is room");
    let look = Arc::new(Look { inner: Arc::clone(&domains.inner), waits: OnceLock::new() });
    let waker = Waker::from(Arc::clone(&look));
    assert!(Pin::new(&mut polling).poll(&mut Context::from_waker(&waker)).is_pending());
    let_a_go.wait();
    until(|| look.waits.get().is_some());
    let_b_go.wait();
    in_a.wait().and(in_b.wait()).expect("both run");
    assert_eq!(look.waits.get(), Some(&false));
    let Poll::Ready(Ok(polled)) = poll_once(&mut polling) else { panic!("it is answered") };
    polled.for_each(|pending| pending.expect("it runs").wait().expect("it runs"));
}

/// Tasks of one client in `a`, each of which polls the same future in vain and submits the next one.
struct Chain {
    client: Client,
    at: Shared<()>,
    polled: Pending<()>,
    ran: usize,
}

/// Tasks of a chain at most.
const CHAIN_MAX: usize = 1_000;

impl Chain {
    fn submit(&mut self, chain: &Arc<Mutex<Chain>>) {
        let chain = Arc::clone(chain);
        let next = move |(): &()| {
            let mut locked = chain.lock().expect("no task panics");
            if poll_once(&mut locked.polled).is_pending() && locked.ran < CHAIN_MAX {
                locked.ran += 1;
                locked.submit(&chain);
            }
        };
        // Refused where no answer of the chain is published yet: then it ends.
        drop(self.client.try_call(&self.at, next));
    }
}

#[test]
fn tasks_that_poll_in_vain_leave_other_rings_their_turn() {
    let Two { domains, a, b, moving } = start();
    let mut client = domains.client();
    let (let_b_go, in_b) = occupy(&mut client, &b);
    let (let_a_go, in_a) = occupy(&mut client, &a);
    let polled = domains.client().try_call(&moving, |_| ()).expect("there is room");
    let chain = Chain { client: domains.client(), at: a.clone(), polled, ran: 0 };
    let chain = Arc::new(Mutex::new(chain));
    chain.lock().expect("nobody panics").submit(&chain);
    // Its ring is behind that of the chain.
    let seen = Arc::clone(&chain);
    let behind = domains.client().try_call(&a, move |()| seen.lock().expect("no task panics").ran);
    let_a_go.wait();
    let ran = behind.expect("there is room").wait().expect("it runs");
    let_b_go.wait();
    in_a.wait().and(in_b.wait()).expect("both run");
    assert!((1..=WINDOW_DEFAULT).contains(&ran), "{ran} tasks of the ring before it have run");
}

/// A task in `a` polls something of `b` in vain, which `polls` does, and then has the answer or gives up: `b` may wait for `a` from then on, although the
/// task goes on. `polls` gets what lets the answer come.
fn is_no_wait(
    polls: impl FnOnce(&dyn Fn()) + Send + 'static,
    Two { domains, a, b, .. }: Two,
    (let_go, occupied): (Arc<Barrier>, Pending<()>),
) {
    let mut client = domains.client();
    let inside = Arc::new(Barrier::new(2));
    let there = Arc::clone(&inside);
    let polling = client.try_call(&a, move |()| {
        polls(&|| {
            let_go.wait();
        });
        there.wait();
        there.wait();
    });
    occupied.wait().expect("it runs");
    inside.wait();
    let (mut inner, other) = (domains.client(), a);
    let calls = client.try_call(&b, move |()| inner.call_blocking(&other, |()| ()));
    let calls = calls.expect("there is room");
    until(|| calls.is_answered() || domains.inner.waits.is_waiting(1));
    inside.wait();
    polling.expect("there is room").wait().expect("no assertion failed");
    calls.wait().expect("it runs").expect("nothing waits for it");
}

#[test]
fn a_future_that_was_polled_and_waited_for_is_no_wait() {
    let two = start();
    let occupied = occupy(&mut two.domains.client(), &two.b);
    let mut pending =
        two.domains.client().try_call(&two.moving, |moving| *moving += 1).expect("there is room");
    let polls = move |let_go: &dyn Fn()| {
        assert!(poll_once(&mut pending).is_pending());
        let_go();
        pending.wait().expect("it runs");
    };
    is_no_wait(polls, two, occupied);
}

#[test]
fn a_future_of_a_burst_that_was_polled_and_dropped_is_no_wait() {
    let two = start();
    let occupied = occupy(&mut two.domains.client(), &two.b);
    let mut burst = two.domains.client().burst::<Owned<u32>, ()>(&two.moving, 2).expect("there are slots");
    burst.push(|moving| *moving += 1).expect("there is room");
    let polls = move |let_go: &dyn Fn()| {
        assert!(poll_once(&mut Box::pin(burst.pop_async())).is_pending());
        let_go();
    };
    is_no_wait(polls, two, occupied);
}
