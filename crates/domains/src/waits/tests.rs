//! Cycles that a wait, a task that is passed on, or a buffer that changes hands would close.

use std::sync::{Arc, Barrier};

use atrapos_topology::{CpuId, Machine};

use super::Waits;
use crate::planted::{Bug, must_notice};
use crate::task::Failure;
use crate::worker::WorkerShared;
use crate::{
    CallError, Client, Configuration, DomainConfiguration, DomainError, Domains, Pending, Placement, Shared,
    TaskError, Why,
};

fn workers(count: u32) -> Vec<Arc<WorkerShared>> {
    (0..count).map(|index| WorkerShared::new(index, index, Some(CpuId(index)), 1)).collect()
}

/// Worker `who` waits for slots of the buffer of worker `of`.
fn wait(waits: &Waits, workers: &[Arc<WorkerShared>], who: u32, of: u32) -> bool {
    waits.begin(who, &workers[of as usize].buffer, 0..4)
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
fn planted_bugs_are_caught() {
    must_notice("waits::tests::a_task_is_not_passed_on_to_who_waits_for_it", Bug::PassUnseen);
    must_notice("waits::tests::a_task_that_was_passed_on_needs_its_server_too", Bug::ForgetServer);
    must_notice("waits::tests::a_buffer_goes_to_nobody_who_waits", Bug::HandOverToWaiting);
}

/// Domains `a` and `b` of one worker each, with a structure that needs no worker to itself in each, and one that moves, in `b`.
struct Two {
    domains: Domains,
    a: Shared<()>,
    b: Shared<()>,
    moving: crate::Owned<u32>,
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

fn until(mut come: impl FnMut() -> bool) {
    while !come() {
        std::thread::yield_now();
    }
}

/// A task in `a` waits for one in `b`, whose structure then moves to `a`.
#[test]
fn a_structure_that_moves_to_who_waits_ends_the_wait() {
    let Two { domains, a, b, moving } = start();
    let mut client = domains.client();
    let (let_go, occupied) = occupy(&mut client, &b);
    let (mut inner, target) = (domains.client(), moving.clone());
    let calls = client.try_call(&a, move |()| inner.call_blocking(&target, |moving| *moving += 1));
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
    assert_eq!(client.call_blocking(&moving, |moving| *moving).expect("it runs"), 1, "the task ran");
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
    let Two { domains, a, moving, .. } = start();
    let domains = Arc::new(domains);
    let mut client = domains.client();
    let (shared, target) = (Arc::clone(&domains), moving.clone());
    let waited = client.call_blocking(&a, move |()| {
        let (move_here, gone) = (shared.move_structure(&target, "a"), shared.remove(&target));
        (move_here.and_then(crate::Change::wait), gone.map(|change| change.is_done()))
    });
    let (moved, _) = waited.expect("it runs");
    assert!(matches!(moved, Err(DomainError::WouldDeadlock)), "{moved:?}");
    let refused = client.try_call(&moving, |_| ()).expect_err("it is removed");
    assert_eq!(refused.why, Why::Removed);
}
