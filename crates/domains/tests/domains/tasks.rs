//! Tasks that go well.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Waker};

use atrapos_domains::{
    Burst, CallError, Configuration, ConfigurationError, DomainError, Domains, Owned, Retries, Sessions,
    TaskError, Why,
};
use atrapos_topology::Machine;

use crate::{start, start_with_slots};

#[test]
fn results_of_every_size_come_back() {
    let domains = start(&[("d", 1)]);
    let list = domains.at("d").expect("d").place_owned("list", vec![1_u64, 2, 3]).expect("free");
    let mut client = domains.client();
    assert_eq!(client.call_blocking(&list, |list| list.len()).expect("it runs"), 3);
    client.call_blocking(&list, |list| list.push(4)).expect("it runs");
    assert_eq!(client.call_blocking(&list, |list| [list[3]; 6]).expect("it runs"), [4; 6]);
    assert_eq!(client.call_blocking(&list, |list| [list[0]; 40]).expect("it runs"), [1; 40]);
    assert_eq!(client.call_blocking(&list, |list| format!("{list:?}")).expect("it runs"), "[1, 2, 3, 4]");
    let large = [7_u64; 30];
    let sum = client.call_blocking(&list, move |list| list[0] + large.iter().sum::<u64>()).expect("it runs");
    assert_eq!(sum, 211);
}

#[test]
fn several_threads_count_on_one_owned_structure() {
    let domains = start(&[("d", 1)]);
    let counter = domains.at("d").expect("d").place_owned("counter", 0_u64).expect("free");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = domains.client();
                let mut burst = client.burst(&counter, 14).expect("there are slots");
                let mut answers = 0;
                for _ in 0..5_000 {
                    answers += u64::from(burst.push(|counter| *counter += 1).expect("it goes on").is_some());
                }
                answers += burst.drain().map(|answer| answer.expect("it runs")).count() as u64;
                assert_eq!(answers, 5_000);
            });
        }
    });
    assert_eq!(domains.client().call_blocking(&counter, |counter| *counter).expect("it runs"), 20_000);
}

#[test]
fn bursts_keep_the_order_of_submission() {
    let domains = start_with_slots(&[("d", 1)], 75);
    let numbers = domains.at("d").expect("d").place_owned("numbers", 0_u64).expect("free");
    let mut client = domains.client();
    for size in [1, 2, 14, 15, 16, 64] {
        let mut burst = client.burst(&numbers, size).expect("there are slots");
        let mut answers = Vec::new();
        for number in 0..1_000_u64 {
            answers.extend(burst.push(move |_| number).expect("it goes on"));
        }
        answers.extend(burst.drain());
        let answers: Vec<u64> = answers.into_iter().map(|answer| answer.expect("it runs")).collect();
        assert!(answers.iter().copied().eq(0..1_000), "results come in order with a burst of {size}");
    }
}

/// Pushes numbers as futures, and checks that each comes back once and in order.
async fn push_numbers(mut burst: Burst<Owned<u64>, u64>) {
    let mut answers = Vec::new();
    for number in 0..1_000_u64 {
        let push = burst.push_async(move |sum: &mut u64| {
            *sum += number;
            number
        });
        answers.extend(push.await.expect("it goes on"));
    }
    while let Some(answer) = burst.pop_async().await {
        answers.push(answer);
    }
    assert!(answers.into_iter().map(|answer| answer.expect("it runs")).eq(0..1_000));
}

#[test]
fn tasks_of_bursts_are_pushed_from_any_executor() {
    let domains = start_with_slots(&[("d", 1)], 75);
    let sum = domains.at("d").expect("d").place_owned("sum", 0_u64).expect("free");
    let burst = |size| domains.client().burst(&sum, size).expect("there are slots");
    for size in [1, 2, 14] {
        pollster::block_on(push_numbers(burst(size)));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("it starts");
    let pushers: Vec<_> = (0..4).map(|_| runtime.spawn(push_numbers(burst(14)))).collect();
    for pusher in pushers {
        runtime.block_on(pusher).expect("no assertion failed");
    }
    let total = domains.client().call_blocking(&sum, |sum| *sum).expect("it runs");
    assert_eq!(total, 7 * (0..1_000).sum::<u64>());
}

/// A push that is dropped while it waits has added nothing and taken nothing.
#[test]
fn a_push_that_is_given_up_loses_nothing() {
    let domains = start(&[("d", 1)]);
    let site = domains.at("d").expect("d");
    let log = site.place_owned("log", Vec::new()).expect("free");
    let inside = Arc::new(Barrier::new(2));
    let gate = site.place("gate", Arc::clone(&inside)).expect("free");
    let mut client = domains.client();
    let occupied = client.try_call(&gate, |gate: &Arc<Barrier>| {
        gate.wait();
        gate.wait();
    });
    inside.wait();
    let mut burst = client.burst(&log, 3).expect("there are slots");
    let append = |number: u32| {
        move |log: &mut Vec<u32>| {
            log.push(number);
            number
        }
    };
    for number in 0..3 {
        assert!(pollster::block_on(burst.push_async(append(number))).expect("there is room").is_none());
    }
    let mut context = Context::from_waker(Waker::noop());
    for number in 10..20 {
        let mut push = Box::pin(burst.push_async(append(number)));
        assert!(
            push.as_mut().poll(&mut context).is_pending() && push.as_mut().poll(&mut context).is_pending()
        );
        drop(push);
        assert!(Box::pin(burst.pop_async()).as_mut().poll(&mut context).is_pending());
        assert_eq!(burst.len(), 3);
    }
    inside.wait();
    occupied.expect("there is room").wait().expect("it runs");
    let oldest = pollster::block_on(burst.push_async(append(3))).expect("it goes on");
    assert_eq!(oldest.expect("it was full").expect("it runs"), 0);
    let rest: Result<Vec<u32>, TaskError> = burst.drain().collect();
    assert_eq!(rest.expect("they run"), [1, 2, 3]);
    let ran = client.call_blocking(&log, |log| log.clone()).expect("it runs");
    assert_eq!(ran, [0, 1, 2, 3]);
}

#[test]
fn a_task_reaches_several_structures_of_its_domain() {
    let domains = start(&[("d", 1), ("e", 1)]);
    let (d, e) = (domains.at("d").expect("d"), domains.at("e").expect("e"));
    let from = d.place_owned("from", 10_i64).expect("free");
    let to = d.place_owned("to", 0_i64).expect("free");
    let limit = d.place("limit", 7_i64).expect("free");
    let far = e.place_owned("far", 0_i64).expect("free");
    let mut client = domains.client();
    let moved = client.call_blocking(&(from.clone(), to.clone(), limit), |(from, to, limit)| {
        *from -= *limit;
        *to += *limit;
        (*from, *to)
    });
    assert_eq!(moved.expect("it runs"), (3, 7));
    let apart = client.try_call(&(from.clone(), far), |_| ()).expect_err("they lie apart");
    assert_eq!(apart.why, Why::Apart);
    let twice = client.try_call(&(from.clone(), from), |_| ()).expect_err("it is one structure");
    assert_eq!(twice.why, Why::Twice);
}

/// Counts its sessions.
struct Counted {
    sessions: AtomicU64,
}

impl Sessions for Counted {
    type Session = u64;
    fn session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        0
    }
    fn retries(session: &u64) -> Option<Retries> {
        Some(Retries { operations: *session, retries: 2 * *session })
    }
}

#[test]
fn structures_report_their_tasks_and_retries_wherever_they_are() {
    let domains = start(&[("d", 2), ("e", 1)]);
    let counted = Counted { sessions: AtomicU64::new(0) };
    let counted = domains.at("d").expect("d").place_with_sessions("counted", counted).expect("free");
    let list = domains.at("d").expect("d").place_owned("list", Vec::new()).expect("free");
    let mut client = domains.client();
    for _ in 0..30 {
        client.call_blocking(&counted, |(_, session)| *session += 1).expect("it runs");
    }
    let mut burst = client.burst::<_, ()>(&list, 14).expect("there are slots");
    for number in 0..100 {
        burst.push(move |list: &mut Vec<u64>| list.push(number)).expect("it is pushed");
    }
    assert_eq!(burst.drain().filter(Result::is_ok).count(), 14);
    let patience = std::time::Duration::from_secs(60);
    let report = |name: &str| {
        let reports = domains.structures(patience).expect("no task lasts");
        reports.into_iter().find(|report| report.name == name).expect("it is there")
    };
    let shared = report("counted");
    assert_eq!((shared.domain.as_deref(), shared.owned, shared.tasks), (Some("d"), false, 30));
    assert_eq!(shared.retries, Some(Retries { operations: 30, retries: 60 }));
    let owned = report("list");
    assert_eq!(
        (owned.domain.as_deref(), owned.owned, owned.tasks, owned.retries),
        (Some("d"), true, 100, None)
    );
    domains.move_structure("list", "e").expect("both are there").wait().expect("it is no task");
    assert_eq!(report("list").domain.as_deref(), Some("e"));
}

/// Knows the thread that made it.
struct Made {
    by: String,
}

impl Sessions for Made {
    type Session = ();
    fn session(&self) {}
}

#[test]
fn structures_are_made_by_the_workers_of_their_domain() {
    let domains = start(&[("d", 1), ("e", 1)]);
    let (d, e) = (domains.at("d").expect("d"), domains.at("e").expect("e"));
    let here = || std::thread::current().name().expect("a worker's thread has a name").to_owned();
    let owned = d.place_owned_with("owned", here).expect("free");
    let shared = e.place_with("shared", here).expect("free");
    let sessioned = e.place_sessioned_with("sessioned", move || Made { by: here() }).expect("free");
    let mut client = domains.client();
    let by = client.call_blocking(&owned, |owned| owned.clone()).expect("it runs");
    assert_eq!(by, "domain-worker-0");
    assert_eq!(client.call_blocking(&shared, String::clone).expect("it runs"), "domain-worker-1");
    let by = client.call_blocking(&sessioned, |(made, ())| made.by.clone()).expect("it runs");
    assert_eq!(by, "domain-worker-1");
    let taken = d.place_with("owned", || -> () { panic!("it is not made for nothing") });
    assert!(matches!(taken, Err(DomainError::NameTaken(_))), "{taken:?}");
    let failed = d.place_owned_with("broken", || -> u64 { panic!("on purpose") }).expect_err("it panicked");
    assert_eq!(failed.to_string(), "making structure `broken` panicked (on purpose): mend its constructor");
    d.place_owned_with("broken", || 5_u64).expect("the name is free, and the worker is there");
}

#[test]
fn a_structure_is_not_made_inside_a_task() {
    let domains = Arc::new(start(&[("d", 1)]));
    let gate = domains.at("d").expect("d").place("gate", ()).expect("free");
    let inside = Arc::clone(&domains);
    let made = domains.client().call_blocking(&gate, move |()| {
        inside.at("d").and_then(|site| site.place_with("made", || ())).map(drop)
    });
    assert!(matches!(made, Ok(Err(DomainError::WouldDeadlock))), "{made:?}");
}

#[test]
fn requests_wait_behind_one_that_lasts() {
    let domains = start(&[("d", 1)]);
    let gate = Arc::new(Barrier::new(2));
    let gated = domains.at("d").expect("d").place("gate", Arc::clone(&gate)).expect("free");
    let mut client = domains.client();
    let requests = || domains.report()[0].workers[0].requests;
    assert_eq!(requests(), 0);
    let last = |gate: &Arc<Barrier>| {
        gate.wait();
        gate.wait();
    };
    let lasts = client.try_call(&gated, last).expect("there is room");
    // Now it has begun.
    gate.wait();
    let behind = [(); 2].map(|()| client.try_call(&gated, |_| ()).expect("there is room"));
    assert_eq!(requests(), 3);
    assert!(domains.structures(std::time::Duration::from_millis(1)).is_none(), "the worker is inside a task");
    gate.wait();
    [lasts].into_iter().chain(behind).for_each(|pending| pending.wait().expect("it runs"));
    assert_eq!(requests(), 0);
}

#[test]
fn a_burst_goes_to_a_worker_that_has_come() {
    let domains = start(&[("d", 1)]);
    let counted = Counted { sessions: AtomicU64::new(0) };
    let counted = domains.at("d").expect("d").place_with_sessions("counted", counted).expect("free");
    let mut client = domains.client();
    let mut bursts = [(); 2].map(|()| client.burst::<_, ()>(&counted, 4).expect("there are slots"));
    let push = |bursts: &mut [Burst<_, ()>]| {
        for burst in bursts {
            (0..8).for_each(|_| {
                let pushed = burst.push(|(_, session): (&Counted, &mut u64)| *session += 1);
                drop(pushed.expect("it is pushed"));
            });
            burst.drain().for_each(|result| result.expect("it runs"));
        }
    };
    push(&mut bursts);
    domains.grow("d", atrapos_topology::CpuId(1)).expect("a thread starts");
    push(&mut bursts);
    let tasks: Vec<u64> = domains.report()[0].workers.iter().map(|worker| worker.tasks).collect();
    assert!(tasks.len() == 2 && tasks.iter().all(|tasks| *tasks >= 8), "{tasks:?}");
}

/// Workers come and go while clients go on: those that come are those that went, and everybody is answered.
#[test]
fn workers_that_went_come_back() {
    let domains = start(&[("d", 1)]);
    let site = domains.at("d").expect("d");
    let shared = site.place("shared", AtomicU64::new(0)).expect("free");
    let owned = site.place_owned("owned", 0_u64).expect("free");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = domains.client();
                let mut burst = client.burst(&owned, 4).expect("there are slots");
                for _ in 0..1_000 {
                    let add = |shared: &AtomicU64| shared.fetch_add(1, Ordering::Relaxed);
                    client.call_blocking(&shared, add).expect("it runs");
                    drop(burst.push(|owned| *owned += 1).expect("it is pushed"));
                }
                burst.drain().for_each(|answer| answer.expect("it runs"));
            });
        }
        for _ in 0..100 {
            domains.grow("d", atrapos_topology::CpuId(1)).expect("a thread starts");
            domains.client().call_blocking(&shared, |_| ()).expect("it runs");
            let added = site.place_owned("added", ()).expect("free");
            domains.shrink("d").expect("there are two").wait().expect("it is no task");
            domains.client().call_blocking(&added, |()| ()).expect("it runs");
            domains.remove(&added).expect("it exists").wait().expect("it is no task");
        }
    });
    let mut client = domains.client();
    let total = client.call_blocking(&shared, |shared| shared.load(Ordering::Relaxed));
    assert_eq!(total.expect("it runs"), 2_000);
    assert_eq!(client.call_blocking(&owned, |owned| *owned).expect("it runs"), 2_000);
    domains.grow("d", atrapos_topology::CpuId(1)).expect("a thread starts");
    let workers: Vec<u32> = domains.report()[0].workers.iter().map(|worker| worker.worker).collect();
    assert!(workers.iter().all(|&worker| worker < 100), "numbers are used again: {workers:?}");
}

#[test]
fn each_worker_has_a_session_of_its_own() {
    let domains = start(&[("d", 2)]);
    let counted = Counted { sessions: AtomicU64::new(0) };
    let counted = domains.at("d").expect("d").place_with_sessions("counted", counted).expect("free");
    let tasks: u64 = std::thread::scope(|scope| {
        let client = || {
            let mut client = domains.client();
            for _ in 0..100 {
                client.call_blocking(&counted, |(_, session)| *session += 1).expect("it runs");
            }
            100
        };
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().expect("it ends")).sum()
    });
    let sessions =
        domains.client().call_blocking(&counted, |(counted, _)| counted.sessions.load(Ordering::Relaxed));
    let sessions = sessions.expect("it runs");
    assert!((1..=2).contains(&sessions), "{sessions} sessions for two workers");
    let ran: u64 = domains.report()[0].workers.iter().map(|worker| worker.tasks).sum();
    assert!(ran > tasks, "the report counts {ran} tasks of {tasks} and one");
}

#[test]
fn futures_are_taken_in_any_order_and_on_any_thread() {
    let domains = start(&[("d", 1)]);
    let log = domains.at("d").expect("d").place("log", Mutex::new(Vec::new())).expect("free");
    let mut client = domains.client();
    let pending: Vec<_> = (0..4)
        .map(|number| {
            client
                .try_call(&log, move |log: &Mutex<Vec<i32>>| log.lock().expect("no task panics").push(number))
                .expect("there is room")
        })
        .collect();
    let full = client.try_call(&log, |_| ()).expect_err("all seats are in use");
    assert_eq!(full.why, Why::Full);
    std::thread::spawn(move || {
        for pending in pending.into_iter().rev() {
            pollster::block_on(pending).expect("it runs");
        }
    })
    .join()
    .expect("it ends");
    let answer = pollster::block_on(client.call(&log, |log| log.lock().expect("no task panics").clone()));
    assert_eq!(answer.expect("it runs"), [0, 1, 2, 3]);
}

#[test]
fn clients_beyond_the_slots_wait_for_their_turn() {
    let domains = start_with_slots(&[("d", 1)], 15);
    let counter = domains.at("d").expect("d").place_owned("counter", 0_u64).expect("free");
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let mut client = domains.client();
                for _ in 0..200 {
                    client
                        .call_blocking(&counter, |counter| *counter += 1)
                        .expect("it waits for slots, then runs");
                }
            });
        }
    });
    assert_eq!(domains.client().call_blocking(&counter, |counter| *counter).expect("it runs"), 2_400);
}

#[test]
fn structures_are_dropped_once_by_removal_or_at_the_end() {
    let alive = Arc::new(());
    let domains = start(&[("d", 2)]);
    let site = domains.at("d").expect("d");
    let owned = site.place_owned("owned", Arc::clone(&alive)).expect("free");
    let shared = site.place("shared", Arc::clone(&alive)).expect("free");
    let mut client = domains.client();
    client.call_blocking(&owned, |_| ()).expect("it runs");
    client.call_blocking(&shared, |_| ()).expect("it runs");
    domains.remove("owned").expect("it exists").wait().expect("it is no task");
    domains.remove("shared").expect("it exists").wait().expect("it is no task");
    assert_eq!(Arc::strong_count(&alive), 1, "removal drops them");
    assert_eq!(client.try_call(&owned, |_| ()).expect_err("it is gone").why, Why::Removed);
    let again = site.place_owned("owned", Arc::clone(&alive)).expect("the name is free again");
    assert_ne!(again.key(), owned.key());
    client.call_blocking(&again, |_| ()).expect("it runs");
    drop(client);
    drop(domains);
    assert_eq!(Arc::strong_count(&alive), 1, "the end drops them");
}

/// A name is whose it is now; a handle and a key mean one structure, also when its name is another's.
#[test]
fn structures_are_moved_and_removed_by_handle_and_by_key() {
    let domains = start(&[("d", 2), ("e", 1)]);
    let (d, e) = (domains.at("d").expect("d"), domains.at("e").expect("e"));
    let home = |name: &str| {
        let report = domains.report();
        let home = report.iter().find(|domain| domain.structures.iter().any(|structure| structure == name));
        home.map(|domain| domain.name.clone())
    };
    let first = d.place_owned("x", 1).expect("free");
    let shared = d.place("shared", 2).expect("free");
    domains.move_structure(&first, "e").expect("it exists").wait().expect("it is no task");
    domains.move_structure(shared.key(), "e").expect("it exists").wait().expect("it is no task");
    assert_eq!((home("x").as_deref(), home("shared").as_deref()), (Some("e"), Some("e")));
    domains.remove(&first).expect("it exists").wait().expect("it is no task");
    assert_eq!(home("x"), None);
    let second = e.place_owned("x", 3).expect("the name is free again");
    let gone = domains.remove(first.key()).expect_err("it was removed");
    assert!(matches!(gone, DomainError::NoSuchKey(key) if key == first.key()), "{gone}");
    assert!(domains.move_structure(&first, "d").is_err() && domains.replace(&first, 4).is_err());
    assert_eq!(home("x").as_deref(), Some("e"), "the structure that has the name is untouched");
    domains.split("d", "f", 1, &[&second]).expect("there are two workers").wait().expect("it is no task");
    domains.move_structure(&second, "f").expect("it exists").wait().expect("it is no task");
    let mut client = domains.client();
    assert_eq!(client.call_blocking(&second, |second| *second).expect("it runs"), 3);
    domains.remove("x").expect("the name is of the second").wait().expect("it is no task");
    assert!(domains.remove(second.key()).is_err());
    domains.remove(&shared).expect("it exists").wait().expect("it is no task");
    assert!(matches!(domains.remove("shared"), Err(DomainError::NoSuchStructure(_))));
}

/// Handles of other domains have keys that are nobody's here, whatever lies at the same place.
#[test]
fn a_handle_of_other_domains_is_refused() {
    let (here, elsewhere) = (start(&[("d", 1)]), start(&[("d", 1)]));
    let number = here.at("d").expect("d").place_owned("number", 7_u64).expect("free");
    let text = elsewhere.at("d").expect("d").place_owned("text", String::from("text")).expect("free");
    let mut client = here.client();
    let strange = client.call_blocking(&text, |text| text.len());
    assert!(matches!(strange, Err(CallError::Failed(TaskError::Removed))), "{strange:?}");
    assert!(matches!(here.remove(&text), Err(DomainError::NoSuchKey(_))));
    assert_eq!(client.call_blocking(&number, |number| *number).expect("it runs"), 7);
    assert_eq!(elsewhere.client().call_blocking(&text, |text| text.len()).expect("it runs"), 4);
}

#[test]
fn configurations_are_read_written_and_refused() {
    let text = "[[domain]]\nname = \"a\"\ncpus = [0, 1]\nmemory = \"interleaved\"\n[[domain]]\nname = \"b\"\nworkers = 1\n[structures]\nx = \"b\"\n[loads.x]\nkind = \"b-tree\"\nmix = \"ycsb-c\"\n";
    let configuration = Configuration::from_toml(text).expect("it is right");
    assert_eq!(Configuration::from_toml(&configuration.to_toml()).expect("it is right"), configuration);
    let machine = Machine::synthetic("pack:1 core:4 pu:1").expect("a machine");
    let domains = Domains::start(&machine, &configuration).expect("it starts");
    let x = domains.place_owned("x", 5).expect("it is configured");
    assert_eq!(domains.client().call_blocking(&x, |x| *x).expect("it runs"), 5);
    assert!(domains.place_owned("y", 5).is_err(), "nothing says where y lives");
    let refused = |text: &str| {
        Configuration::from_toml(text).and_then(|c| c.assign(&machine)).expect_err("it is wrong")
    };
    assert_eq!(refused(""), ConfigurationError::Empty);
    assert!(matches!(
        refused("[[domain]]\nname = \"a\"\ncpus = [0, 0]"),
        ConfigurationError::CpuTwice { cpu: 0, .. }
    ));
    assert!(matches!(
        refused("[[domain]]\nname = \"a\"\nworkers = 5"),
        ConfigurationError::TooManyWorkers { workers: 5, cpus: 4 }
    ));
    assert!(matches!(
        refused("[[domain]]\nname = \"a\"\ncpus = [9]"),
        ConfigurationError::NoSuchCpu { cpu: 9, .. }
    ));
    assert!(matches!(
        refused("[[domain]]\nname = \"a\"\nworkers = 1\nmemory = { bound = 3 }"),
        ConfigurationError::NoSuchNode { node: 3, .. }
    ));
    assert!(matches!(
        refused("[[domain]]\nname = \"a\"\nworkers = 1\n[structures]\nx = \"q\""),
        ConfigurationError::Nowhere { .. }
    ));
    assert_eq!(configuration.loads["x"].load, 1.0);
    assert_eq!(
        refused("[[domain]]\nname = \"a\"\nworkers = 1\n[loads.z]\nkind = \"b-tree\"\nmix = \"ycsb-c\""),
        ConfigurationError::LoadOfNothing("z".to_owned())
    );
    assert!(matches!(
        refused("[[domain]]\nname = \"a\"\nworkers = 1\nslots = 0"),
        ConfigurationError::Slots { slots: 0, .. }
    ));
    assert!(matches!(refused("[[domain]]\nname = \"a\"\nwrokers = 1"), ConfigurationError::Syntax(_)));
}

#[test]
fn the_tasks_of_a_bulk_run_in_order_and_fail_one_by_one() {
    let domains = start(&[("d", 1)]);
    let site = domains.at("d").expect("d");
    let (log, shared) =
        (site.place_owned("log", Vec::new()).expect("free"), site.place("shared", ()).expect("free"));
    let mut client = domains.client();
    let append = |number: usize| {
        move |log: &mut Vec<usize>| {
            log.push(number);
            log.len()
        }
    };
    let answers =
        client.bulk(&log, (0..14).map(append).collect()).expect("there is room").wait().expect("it runs");
    let lengths: Vec<usize> = answers.map(|answer| answer.expect("it runs")).collect();
    assert!(lengths.into_iter().eq(1..=14));

    let odd = |number: u32| move |(): &()| if number % 2 == 1 { panic!("on purpose") } else { number };
    let answers =
        client.bulk(&shared, (0..4).map(odd).collect()).expect("there is room").wait().expect("it runs");
    let answers: Vec<_> = answers.collect();
    assert!(
        matches!(answers[..], [Ok(0), Err(TaskError::Panicked(_)), Ok(2), Err(TaskError::Panicked(_))]),
        "{answers:?}"
    );

    let second = |number: u32| move |_: &mut Vec<usize>| assert_ne!(number, 1, "on purpose");
    let answers =
        client.bulk(&log, (0..3).map(second).collect()).expect("there is room").wait().expect("it runs");
    let answers: Vec<_> = answers.collect();
    assert!(
        matches!(answers[..], [Ok(()), Err(TaskError::Panicked(_)), Err(TaskError::Poisoned)]),
        "{answers:?}"
    );
}
