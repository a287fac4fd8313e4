//! All workers on one thread, from a seed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use atrapos_runtime::rng::Seed;
use atrapos_runtime::{Lost, Pump, Shard, SubmitError, Ticks, Worker, WorkerId};
use proptest::prelude::*;

/// Writes down what happens on its worker.
#[derive(Default)]
struct Journal {
    entries: RefCell<Vec<(u16, u64)>>,
    background: Cell<u64>,
}

impl Shard for Journal {
    fn background(worker: &Rc<Worker<Self>>, _: Ticks) -> bool {
        worker.shard().background.set(worker.shard().background.get() + 1);
        false
    }
}

fn pump(workers: usize, seed: u64) -> Pump<Journal> {
    Pump::new(workers, Seed(seed), |_| Journal::default()).expect("a few workers are fine")
}

/// Each worker sends `messages` numbered messages to each; returns all journals.
fn everybody_to_everybody(pump: &mut Pump<Journal>, messages: u64) -> Vec<Vec<(u16, u64)>> {
    for worker in pump.workers() {
        let here = Rc::clone(worker);
        worker.spawn(async move {
            for message in 0..messages {
                for to in 0..u16::try_from(here.workers()).expect("few workers") {
                    let from = here.id().0;
                    here.send(WorkerId(to), move |there| {
                        there.shard().entries.borrow_mut().push((from, message));
                    });
                }
                if message % 5 == 0 {
                    here.yield_now().await;
                }
            }
        });
    }
    assert!(pump.run_until_idle(1_000_000), "the pump does not come to rest");
    pump.workers().iter().map(|worker| worker.shard().entries.take()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 64 }, ..ProptestConfig::default() })]

    /// Messages arrive once and in the order they were sent, whatever the order of steps, also when rings overflow.
    #[test]
    fn messages_arrive_once_and_in_order(seed: u64, workers in 1..5usize, messages in 1..120u64) {
        let mut pump = Pump::with_rings(workers, Seed(seed), 1 << 10, |_| Journal::default()).expect("valid");
        let journals = everybody_to_everybody(&mut pump, messages);
        for journal in journals {
            for from in 0..workers {
                let of_sender = journal.iter().filter(|(sender, _)| usize::from(*sender) == from).map(|&(_, n)| n);
                prop_assert!(of_sender.eq(0..messages));
            }
            prop_assert_eq!(journal.len() as u64, messages * workers as u64);
        }
        for worker in pump.workers() {
            prop_assert_eq!(worker.outgoing_backlog(), 0);
            let receivers = (0..4).map(WorkerId);
            let counts = receivers.map(|to| (to, if to.index() < workers { messages } else { 0 }));
            prop_assert!(counts.into_iter().all(|(to, sent)| worker.sent_to(to) == sent));
        }
    }

    /// The same seed gives the same run.
    #[test]
    fn runs_are_repeated_by_their_seed(seed: u64, workers in 2..5usize) {
        let run = |seed| {
            let mut pump = pump(workers, seed);
            let journals = everybody_to_everybody(&mut pump, 20);
            (journals, pump.trace_hash(), pump.steps(), pump.clock().now())
        };
        let first = run(seed);
        prop_assert_eq!(&first, &run(seed));
        prop_assert_ne!(first.1, run(seed ^ 1).1, "another seed gives another run");
    }
}

#[test]
fn seeds_explore_different_orders() {
    let mut orders: Vec<_> = (0..20).map(|seed| everybody_to_everybody(&mut pump(3, seed), 3)).collect();
    orders.sort();
    orders.dedup();
    assert!(orders.len() > 10, "20 seeds gave only {} orders", orders.len());
}

#[test]
fn full_rings_stop_admission_until_they_are_empty() {
    let mut pump = Pump::with_rings(2, Seed(3), 1 << 10, |_| Journal::default()).expect("valid");
    let first = Rc::clone(pump.worker(WorkerId(0)));
    assert!(first.may_admit());
    for message in 0..100 {
        first.send(WorkerId(1), move |there| there.shard().entries.borrow_mut().push((0, message)));
    }
    assert!(first.outgoing_backlog() > 0 && !first.may_admit());
    let admitted = pump.handle().try_submit(WorkerId(0), |here| {
        assert_eq!(here.outgoing_backlog(), 0, "nothing is admitted while messages wait behind a full ring");
        here.shard().entries.borrow_mut().push((9, 9));
    });
    assert!(admitted.is_ok());
    let inner = Rc::clone(&first);
    assert!(pump.run_until(move || !inner.shard().entries.borrow().is_empty(), 100_000));
    assert!(pump.run_until_idle(100_000));
    assert!(
        pump.worker(WorkerId(1)).shard().entries.take().into_iter().eq((0..100).map(|message| (0, message)))
    );
    assert!(first.may_admit());
}

#[test]
fn a_step_keeps_to_its_hooks() {
    let mut pump = pump(1, 1);
    for _ in 0..10 {
        pump.step();
    }
    let shard = pump.worker(WorkerId(0)).shard();
    assert_eq!(shard.background.get(), 10, "background work once per step");
}

/// Starts so many tasks on a worker that it takes nothing more from its inbox.
fn fill_with_tasks(worker: &Rc<Worker<Journal>>) {
    for _ in 0..worker.limits().tasks_in_flight {
        worker.spawn(std::future::pending());
    }
}

/// Numbers that came by the inbox, and by the control lane.
const BY_INBOX: (u16, u64) = (0, 1);
const BY_CONTROL: (u16, u64) = (0, 2);

#[test]
fn the_control_lane_is_drained_whatever_is_in_flight() {
    let mut pump = pump(1, 11);
    let worker = Rc::clone(pump.worker(WorkerId(0)));
    let note = |entry| move |here: &Rc<Worker<Journal>>| here.shard().entries.borrow_mut().push(entry);
    fill_with_tasks(&worker);
    assert!(pump.handle().try_submit(WorkerId(0), note(BY_INBOX)).is_ok());
    for _ in 0..60 {
        assert!(pump.handle().submit_control(WorkerId(0), note(BY_CONTROL)).is_ok());
    }
    assert!(pump.run_until_idle(10_000));
    assert_eq!(worker.shard().entries.take(), [BY_CONTROL; 60]);
    assert_eq!(worker.stats().control_received.get(), 60);
    assert_eq!(worker.stats().inbox_received.get(), 0, "the inbox waits until a task has ended");
}

#[test]
fn the_control_lane_is_drained_while_messages_wait_behind_a_full_ring() {
    let mut pump = Pump::with_rings(2, Seed(3), 1 << 10, |_| Journal::default()).expect("valid");
    let first = Rc::clone(pump.worker(WorkerId(0)));
    for _ in 0..100 {
        first.send(WorkerId(1), |_| ());
    }
    let asked =
        pump.handle().request_control(WorkerId(0), |here, sender| sender.send(here.outgoing_backlog()));
    let mut asked = asked.expect("the lane has room");
    let answer = loop {
        pump.step();
        if let Some(answer) = asked.try_take() {
            break answer;
        }
    };
    assert!(answer.is_ok_and(|backlog| backlog > 0), "it was drained only when nothing waited any more");
}

#[test]
fn control_tasks_do_not_count() {
    let mut pump = pump(1, 13);
    let worker = Rc::clone(pump.worker(WorkerId(0)));
    let release = Rc::new(Cell::new(false));
    let tasks: Vec<_> = (0..2 * worker.limits().tasks_in_flight)
        .map(|_| {
            let (here, release) = (Rc::clone(&worker), Rc::clone(&release));
            worker.spawn_control(async move {
                while !release.get() {
                    here.yield_now().await;
                }
            })
        })
        .collect();
    let admitted = |pump: &mut Pump<Journal>, entry| {
        let note = move |here: &Rc<Worker<Journal>>| here.shard().entries.borrow_mut().push(entry);
        assert!(pump.handle().try_submit(WorkerId(0), note).is_ok());
        for _ in 0..20 {
            pump.step();
        }
        !worker.shard().entries.take().is_empty()
    };
    assert!(admitted(&mut pump, BY_INBOX), "as many control tasks as may be keep nobody out");
    assert_eq!(worker.tasks_len(), tasks.len(), "a shutdown waits for them all the same");
    fill_with_tasks(&worker);
    assert!(!admitted(&mut pump, BY_INBOX));
    release.set(true);
    assert!(pump.run_until_idle(1_000_000));
    assert!(!admitted(&mut pump, BY_INBOX), "what has ended does not count for less than nothing");
    assert_eq!(worker.tasks_len(), worker.limits().tasks_in_flight);
}

#[test]
fn time_jumps_to_the_next_deadline() {
    let mut pump = pump(2, 5);
    let worker = Rc::clone(pump.worker(WorkerId(1)));
    let at = pump.clock().now().after(Ticks(3_600_000_000_000));
    let woken = Rc::new(Cell::new(None));
    let (here, place) = (Rc::clone(&worker), Rc::clone(&woken));
    worker.spawn(async move {
        here.sleep_until(at).await;
        place.set(Some(here.now()));
    });
    assert!(pump.run_until_idle(10_000));
    assert_eq!(woken.get(), None, "an idle pump lets sleepers sleep");
    assert!(pump.run_until(|| woken.get().is_some(), 10_000));
    assert!(woken.get().is_some_and(|now| now >= at && now.since(at) < Ticks(1_000_000)));
    let now = pump.clock().now();
    pump.advance(Duration::from_secs(1));
    assert_eq!(pump.clock().now().since(now), Ticks(1_000_000_000));
}

#[test]
fn a_run_that_cannot_go_on_says_so() {
    let mut pump = pump(2, 5);
    assert!(!pump.run_until(|| false, 1_000_000));
    assert!(pump.steps() < 10_000, "nothing can happen, and that is found out soon");
}

#[test]
fn a_drained_pump_refuses_and_answers_everybody() {
    for seed in 0..50 {
        let mut pump = pump(3, seed);
        let handle = pump.handle();
        let receivers: Vec<_> = (0..10)
            .map(|request| {
                let to = WorkerId(request % 3);
                let receiver = handle.request(to, |here, sender| {
                    let inner = Rc::clone(here);
                    here.spawn(async move {
                        let to = WorkerId((inner.id().0 + 1) % 3);
                        sender.send(inner.call(to, |there, reply| reply.send(there, there.id())).await);
                    });
                });
                receiver.expect("the inbox has room")
            })
            .collect();
        for _ in 0..seed {
            pump.step();
        }
        assert!(pump.drain(100_000), "seed {seed}");
        assert!(matches!(handle.try_submit(WorkerId(0), |_| ()), Err(SubmitError::Closed(_))));
        for mut receiver in receivers {
            assert!(matches!(receiver.try_take(), Some(Ok(Ok(_)))), "seed {seed}");
        }
    }
}

#[test]
fn a_dropped_pump_loses_what_is_left() {
    let held = Rc::new(());
    let mut pump = pump(2, 7);
    let captured = Rc::clone(&held);
    let worker = Rc::clone(pump.worker(WorkerId(0)));
    worker.spawn(async move {
        let _captured = captured;
        std::future::pending::<()>().await;
    });
    let mut receiver = pump
        .handle()
        .request::<u32, _>(WorkerId(1), |here, sender| {
            here.spawn(async move {
                std::future::pending::<()>().await;
                sender.send(7);
            });
        })
        .expect("the inbox has room");
    assert!(pump.run_until_idle(10_000));
    assert_eq!(receiver.try_take(), None);
    drop(worker);
    drop(pump);
    assert_eq!(Rc::strong_count(&held), 1);
    assert_eq!(receiver.try_take(), Some(Err(Lost)));
}

#[test]
#[should_panic(expected = "planted")]
fn a_panic_passes_through_a_pump() {
    let mut pump = pump(2, 7);
    pump.worker(WorkerId(1)).spawn(async { panic!("planted") });
    pump.run_until_idle(10_000);
}

#[test]
fn senseless_pumps_are_errors() {
    assert!(Pump::new(0, Seed(1), |_| Journal::default()).is_err());
    assert!(Pump::with_rings(1, Seed(1), 100, |_| Journal::default()).is_err());
}
