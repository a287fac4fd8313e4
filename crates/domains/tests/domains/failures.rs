//! Tasks that panic, are cancelled or left, clients that die, calls that would never end, and shutdown.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use atrapos_domains::{
    CallError, Cancelled, Client, DomainConfiguration, Placement, Retries, TaskError, Why,
};

use crate::start;

#[test]
fn a_panic_is_the_result_of_its_task_and_poisons_what_is_owned() {
    let domains = start(&[("d", 1)]);
    let site = domains.at("d").expect("d");
    let owned = site.place_owned("owned", 1_u64).expect("free");
    let shared = site.place("shared", AtomicU64::new(1)).expect("free");
    let mut client = domains.client();
    let failed = client.call_blocking(&owned, |_| -> u64 { panic!("on purpose") });
    let Err(CallError::Failed(TaskError::Panicked(carried))) = failed else { panic!("{failed:?}") };
    assert_eq!(carried.message().as_deref(), Some("on purpose"));
    assert_eq!(carried.into_inner().downcast_ref::<&str>(), Some(&"on purpose"));
    let poisoned = client.call_blocking(&owned, |owned| *owned);
    assert!(matches!(poisoned, Err(CallError::Failed(TaskError::Poisoned))));
    domains.replace(&owned, 9).expect("it exists").wait().expect("it is no task");
    assert_eq!(client.call_blocking(&owned, |owned| *owned).expect("it is healed"), 9);

    let failed = client.call_blocking(&shared, |_| panic!("on purpose"));
    assert!(matches!(failed, Err(CallError::Failed(TaskError::Panicked(_)))));
    assert_eq!(
        client.call_blocking(&shared, |shared| shared.load(Ordering::Relaxed)).expect("it is not poisoned"),
        1
    );
}

/// Keeps the worker of a structure busy until it is let go.
fn occupy(
    client: &mut Client,
    gate: &atrapos_domains::Shared<()>,
) -> (Arc<Barrier>, atrapos_domains::Pending<()>) {
    let barrier = Arc::new(Barrier::new(2));
    let inside = Arc::clone(&barrier);
    let pending = client.try_call(gate, move |()| {
        inside.wait();
        inside.wait();
    });
    let pending = pending.expect("there is room");
    barrier.wait();
    (barrier, pending)
}

#[test]
fn a_task_is_cancelled_until_it_runs() {
    let domains = start(&[("d", 1)]);
    let site = domains.at("d").expect("d");
    let (gate, counter) =
        (site.place("gate", ()).expect("free"), site.place_owned("counter", 0).expect("free"));
    let mut client = domains.client();
    let (barrier, running) = occupy(&mut client, &gate);
    let waiting = client.try_call(&counter, |counter: &mut i32| *counter += 1).expect("there is room");
    let cancelled = std::thread::spawn(move || pollster::block_on(waiting.cancel()));
    let late = std::thread::spawn(move || pollster::block_on(running.cancel()));
    // Both have asked, or will find their tasks ended; either answer is right, and only one of them may have run.
    barrier.wait();
    assert!(matches!(late.join().expect("it ends"), Cancelled::Ran(Ok(()))));
    let revoked = matches!(cancelled.join().expect("it ends"), Cancelled::Revoked);
    let count = client.call_blocking(&counter, |counter| *counter).expect("it runs");
    assert_eq!(count == 0, revoked, "a revoked task has not run, and another has");
}

#[test]
fn a_future_that_is_dropped_leaves_its_task_running() {
    let domains = start(&[("d", 1)]);
    let alive = Arc::new(());
    let counter = domains.at("d").expect("d").place_owned("counter", 0_u64).expect("free");
    let mut client = domains.client();
    for _ in 0..100 {
        let reply = Arc::clone(&alive);
        let submitted = pollster::block_on(client.submit(&counter, move |counter| {
            *counter += 1;
            reply
        }));
        drop(submitted.expect("there is room in the end"));
    }
    assert_eq!(client.call_blocking(&counter, |counter| *counter).expect("it runs"), 100);
    drop(client);
    drop(domains);
    assert_eq!(Arc::strong_count(&alive), 1, "replies that nobody took are dropped");
}

#[test]
fn clients_that_die_with_tasks_under_way_give_their_slots_back() {
    let domains = start(&[("d", 1)]);
    let counter = domains.at("d").expect("d").place_owned("counter", 0_u64).expect("free");
    for _ in 0..50 {
        let (domains, counter) = (&domains, &counter);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut client = domains.client();
                let mut burst = client.burst(counter, 14).expect("the slots of the dead are there again");
                for _ in 0..14 {
                    burst.push(|counter| *counter += 1).expect("it is submitted");
                }
            });
        });
        // Slots come back once the tasks have ended.
        domains.client().call_blocking(counter, |_| ()).expect("it runs");
    }
    assert_eq!(domains.client().call_blocking(&counter, |counter| *counter).expect("it runs"), 700);
}

fn is_deadlock(error: TaskError) -> bool {
    matches!(error, TaskError::WouldDeadlock)
}

#[test]
fn a_call_that_would_wait_for_itself_is_refused() {
    let domains = start(&[("d", 1), ("e", 1)]);
    let here = domains.at("d").expect("d").place("here", ()).expect("free");
    let there = domains.at("e").expect("e").place("there", ()).expect("free");
    let mut client = domains.client();

    let (mut inner, same) = (domains.client(), here.clone());
    let refused = client
        .call_blocking(&here, move |()| inner.call_blocking(&same, |()| ()))
        .expect("the outer one runs");
    assert!(matches!(refused, Err(CallError::Refused(Why::WouldDeadlock))), "{refused:?}");

    let (mut first, mut second) = (domains.client(), domains.client());
    let (out, back) = (there.clone(), here.clone());
    let cycle = client.call_blocking(&here, move |()| {
        first.call_blocking(&out, move |()| second.call_blocking(&back, |()| ()))
    });
    let innermost = cycle.expect("the outer one runs").expect("the one between runs");
    assert!(matches!(innermost, Err(CallError::Refused(Why::WouldDeadlock))), "{innermost:?}");

    // A task that is submitted, and then waited for, runs all the same.
    let (mut inner, same) = (domains.client(), here.clone());
    let (sender, receiver) = std::sync::mpsc::channel();
    let waited = client.call_blocking(&here, move |()| {
        inner.try_call(&same, move |()| sender.send(5)).map(|pending| pending.wait().is_err_and(is_deadlock))
    });
    assert!(matches!(waited, Ok(Ok(true))), "the wait is refused");
    assert_eq!(receiver.recv(), Ok(5));
    let (mut inner, out) = (domains.client(), there.clone());
    let waited = client.call_blocking(&here, move |()| {
        inner.try_call(&out, |()| 6).map(|pending| pending.wait().expect("there is no cycle"))
    });
    assert!(matches!(waited, Ok(Ok(6))), "another worker may be waited for");

    let (mut inner, out) = (domains.client(), there.clone());
    let across = client.call_blocking(&here, move |()| inner.call_blocking(&out, |()| 5));
    assert_eq!(across.expect("the outer one runs").expect("there is no cycle"), 5);
    let mut inner = domains.client();
    let burst = client.call_blocking(&here, move |()| inner.burst::<_, ()>(&there, 4).map(drop));
    assert_eq!(burst.expect("the outer one runs"), Err(Why::WouldDeadlock));
}

/// Tasks of three domains that call each other in a ring at the same time: the one that would close the ring is refused, and the others go on.
#[test]
fn of_calls_in_a_ring_one_is_refused() {
    let names = ["a", "b", "c"];
    let domains = start(&names.map(|name| (name, 1)));
    let ring = names.map(|name| domains.at(name).expect("a domain").place(name, ()).expect("free"));
    for _ in 0..100 {
        let barrier = Arc::new(Barrier::new(ring.len()));
        let call = |at: usize| {
            let (mut inner, barrier) = (domains.client(), Arc::clone(&barrier));
            let next = ring[(at + 1) % ring.len()].clone();
            let task = move |(): &()| {
                barrier.wait();
                inner.call_blocking(&next, |()| ())
            };
            domains.client().try_call(&ring[at], task).expect("there is room")
        };
        let calls: Vec<_> = (0..ring.len()).map(call).collect();
        let answers: Vec<_> = calls.into_iter().map(|call| call.wait().expect("it runs")).collect();
        let refused =
            |answer: &&Result<(), CallError>| matches!(answer, Err(CallError::Refused(Why::WouldDeadlock)));
        assert_eq!(answers.iter().filter(refused).count(), 1, "{answers:?}");
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 2, "{answers:?}");
    }
}

#[test]
fn shutdown_says_what_was_not_done() {
    let domains = start(&[("d", 1)]);
    let site = domains.at("d").expect("d");
    let (gate, counter) =
        (site.place("gate", ()).expect("free"), site.place_owned("counter", 0).expect("free"));
    let mut client = domains.client();
    let (barrier, running) = occupy(&mut client, &gate);
    let waiting = client.try_call(&counter, |counter: &mut i32| *counter += 1).expect("there is room");
    let mut burst = domains.client().burst::<_, ()>(&counter, 4).expect("there are slots");
    burst.push(|counter| *counter += 1).expect("it is pushed");
    let report = domains.shutdown(Duration::ZERO);
    assert_eq!(report.still_running, [0], "the worker is inside a task");
    let unanswered = [("counter", 2), ("gate", 1)].map(|(name, count)| (name.to_owned(), count));
    assert_eq!(
        report.unanswered,
        unanswered.into(),
        "of the tasks that wait, and of the one that it is inside of"
    );
    assert_eq!(report.refused, [].into(), "nothing was taken from a worker that may run it yet");
    assert_eq!(client.try_call(&counter, |_| ()).expect_err("it is over").why, Why::ShutDown);
    barrier.wait();
    running.wait().expect("it was running, and ran");
    assert!(matches!(waiting.wait(), Err(TaskError::ShutDown)));
}

/// A worker passes a task on to one that is inside another; at the end, the one behind it in its ring is refused, and it is named.
#[test]
fn shutdown_names_what_was_passed_on_to_a_worker_that_does_not_end() {
    let domains = start(&[("d", 1), ("e", 1)]);
    let (d, e) = (domains.at("d").expect("d"), domains.at("e").expect("e"));
    let gates = [d.place("gate d", ()).expect("free"), e.place("gate e", ()).expect("free")];
    let probe = d.place("probe", ()).expect("free");
    let counter = d.place_owned("counter", 0).expect("free");
    let mut client = domains.client();
    let mut holder = domains.client();
    let [(let_go, running), (inside, endless)] = gates.map(|gate| occupy(&mut holder, &gate));
    let add = |counter: &mut i32| *counter += 1;
    let [passed, behind] = [(); 2].map(|()| client.try_call(&counter, add).expect("there is room"));
    let change = domains.move_structure(&counter, "e").expect("it exists");
    let_go.wait();
    running.wait().expect("it runs");
    change.wait().expect("it is no task");
    // Its ring lies behind the others: once it is served, the worker has met the tasks on what is gone.
    domains.client().call_blocking(&probe, |()| ()).expect("it runs");
    let report = domains.shutdown(Duration::ZERO);
    assert_eq!(report.still_running, [1]);
    assert_eq!(report.refused, [("counter".to_owned(), 1)].into());
    assert_eq!(report.unanswered, ["counter", "gate e"].map(|name| (name.to_owned(), 1)).into());
    assert!(matches!(behind.wait(), Err(TaskError::ShutDown)));
    assert!(matches!(passed.wait(), Err(TaskError::ShutDown)));
    inside.wait();
    endless.wait().expect("it was running, and ran");
}

/// A worker is to leave to another one, which ends while it is inside a task: what waits for it is answered all the same.
#[test]
fn a_worker_that_was_to_leave_ends_by_itself() {
    let domains = start(&[("d", 1)]);
    let gate = domains.at("d").expect("d").place("gate", ()).expect("free");
    domains
        .add_domain(&DomainConfiguration {
            placement: Placement::Anywhere,
            ..DomainConfiguration::new("e", 1)
        })
        .expect("it starts");
    let there = domains.at("e").expect("e").place("there", ()).expect("free");
    let mut client = domains.client();
    let (inside, running) = occupy(&mut client, &there);
    let behind = client.try_call(&there, |()| ()).expect("there is room");
    drop(domains.merge("e", "d").expect("both exist"));
    let change = domains.shrink("d").expect("there are two");
    let report = domains.shutdown(Duration::ZERO);
    assert_eq!(report.still_running, [1]);
    inside.wait();
    running.wait().expect("it was running, and ran");
    assert!(matches!(behind.wait(), Err(TaskError::ShutDown)), "it was behind");
    change.wait().expect("it is no task");
    drop(gate);
}

#[test]
fn a_task_that_nobody_ran_ends_with_the_domains() {
    let domains = start(&[("d", 2)]);
    let ran = Arc::new(AtomicBool::new(false));
    let counter = domains.at("d").expect("d").place_owned("counter", 0).expect("free");
    let mut client = domains.client();
    let noted = Arc::clone(&ran);
    let pending = client
        .try_call(&counter, move |_: &mut i32| noted.store(true, Ordering::SeqCst))
        .expect("there is room");
    let report = domains.shutdown(Duration::from_secs(60));
    assert!(report.refused.is_empty() && report.still_running.is_empty(), "{report:?}");
    pending.wait().expect("what is there is run before the end");
    assert!(ran.load(Ordering::SeqCst));
}

/// Panics wherever its own code runs.
struct Clumsy;

impl atrapos_domains::Sessions for Clumsy {
    type Session = ();
    fn session(&self) {
        panic!("on purpose");
    }
}

impl Drop for Clumsy {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

#[test]
fn panics_of_a_structures_own_code_do_not_end_a_worker() {
    let domains = start(&[("d", 1)]);
    let site = domains.at("d").expect("d");
    let clumsy = site.place_with_sessions("clumsy", Clumsy).expect("free");
    let owned = site.place_owned("owned", Clumsy).expect("free");
    let mut client = domains.client();
    let failed = client.call_blocking(&clumsy, |_| ());
    assert!(matches!(failed, Err(CallError::Failed(TaskError::NoSession))), "{failed:?}");
    client.call_blocking(&owned, |_| ()).expect("it runs");
    domains.remove("owned").expect("it exists").wait().expect("it is no task");
    domains.remove("clumsy").expect("it exists").wait().expect("it is no task");
    let after = site.place_owned("after", 5).expect("free");
    assert_eq!(client.call_blocking(&after, |after| *after).expect("the worker is there still"), 5);
}

/// Counts operations, and panics when it is asked for more than it likes.
struct Shy;

impl atrapos_domains::Sessions for Shy {
    type Session = u64;
    fn session(&self) -> u64 {
        0
    }
    fn retries(session: &u64) -> Option<Retries> {
        assert!(*session < 2, "on purpose");
        Some(Retries { operations: *session, retries: 0 })
    }
}

#[test]
fn a_panic_in_a_count_of_retries_leaves_that_count_out() {
    let domains = start(&[("d", 1)]);
    let site = domains.at("d").expect("d");
    let [shy, bold] = ["shy", "bold"].map(|name| site.place_with_sessions(name, Shy).expect("free"));
    let mut client = domains.client();
    let mut operate = |on| client.call_blocking(on, |(_, session): (&Shy, &mut u64)| *session += 1);
    let retries = || {
        let report = domains.structures(Duration::from_secs(60)).expect("the worker is there still");
        report.into_iter().map(|one| (one.name, one.tasks, one.retries)).collect::<Vec<_>>()
    };
    let one = Some(Retries { operations: 1, retries: 0 });
    operate(&shy).and_then(|()| operate(&bold)).expect("they run");
    assert_eq!(retries(), [("shy".to_owned(), 1, one), ("bold".to_owned(), 1, one)]);
    operate(&shy).expect("it runs");
    assert_eq!(retries(), [("shy".to_owned(), 2, None), ("bold".to_owned(), 1, one)]);
    operate(&shy).expect("the worker goes on");
}

#[test]
fn a_window_beyond_all_slots_is_what_there_is() {
    let domains = crate::start_with_slots(&[("d", 1)], 15);
    let counter = domains.at("d").expect("d").place_owned("counter", 0_u64).expect("free");
    let mut client = domains.client().with_window(64);
    for _ in 0..100 {
        client.call_blocking(&counter, |counter| *counter += 1).expect("it runs");
    }
    drop(client);
    let mut client = domains.client();
    let mut burst = client.burst(&counter, 64).expect("the slots are there again");
    for _ in 0..100 {
        burst.push(|counter| *counter += 1).expect("it is submitted");
    }
    assert_eq!(burst.len(), 64, "a burst needs few slots");
    burst.drain().for_each(|answer| answer.expect("it runs"));
}
