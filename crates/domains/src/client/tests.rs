//! Slots: who gets them, where, and who waits for which.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use atrapos_runtime::rng::Seed;
use atrapos_topology::{CpuId, Machine};

use super::{Client, Why, nearest_first};
use crate::planted::{Bug, must_notice};
use crate::{Configuration, DomainConfiguration, Domains, Placement, Pump};

/// Slots of each worker, and the window of each client: a client has all of a worker.
const SLOTS: usize = 15;

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn start(domains: &[(&str, usize)]) -> (Domains, Pump) {
    let machine = Machine::synthetic("pack:2 core:2 pu:1").expect("a machine");
    let domain = |&(name, workers): &(&str, usize)| DomainConfiguration {
        // So that one worker is nearest; a pump pins nobody.
        placement: Placement::Pinned,
        slots: SLOTS,
        ..DomainConfiguration::new(name, workers)
    };
    let domains = domains.iter().map(domain).collect();
    let configuration = Configuration { oversubscribe: true, domains, ..Configuration::default() };
    Pump::start(&machine, &configuration, Seed(1)).expect("it starts")
}

fn client(domains: &Domains) -> Client {
    domains.client().with_window(SLOTS)
}

/// Steps until nothing is left to do.
fn settle(pump: &mut Pump) {
    let mut idle = 0;
    while idle < 100 {
        idle = if pump.step() { 0 } else { idle + 1 };
    }
}

#[test]
fn slots_are_of_the_nearest_worker_that_has_some() {
    let (domains, mut pump) = start(&[("d", 3)]);
    let shared = domains.at("d").expect("d").place("shared", ()).expect("free");
    let mut clients: Vec<Client> = (0..3).map(|_| client(&domains)).collect();
    for client in &mut clients {
        drop(client.try_call(&shared, |()| ()).expect("some worker has slots"));
    }
    let mut late = client(&domains);
    assert_eq!(late.try_call(&shared, |()| ()).expect_err("they are used up").why, Why::NoSlots);
    assert_eq!(late.burst::<_, ()>(&shared, 4).expect_err("they are used up"), Why::NoSlots);
    settle(&mut pump);
    // Of whichever worker the client in the middle had slots, they are found.
    drop(clients.remove(1));
    drop(late.burst::<_, ()>(&shared, 4).expect("there are slots again"));
    drop(late.try_call(&shared, |()| ()).expect("there are slots again"));
}

#[test]
fn workers_are_asked_from_the_nearest_to_the_farthest() {
    let machine = Machine::synthetic("pack:2 core:2 pu:1").expect("a machine");
    let configuration = Configuration {
        domains: vec![DomainConfiguration { cpus: vec![0, 1, 2, 3], ..DomainConfiguration::new("d", 4) }],
        ..Configuration::default()
    };
    let (domains, _pump) = Pump::start(&machine, &configuration, Seed(1)).expect("it starts");
    let workers = || (0..4).map(|worker| domains.inner.worker(worker));
    let order = |cpu| nearest_first(&machine, Some(CpuId(cpu)), workers());
    let lease = domains.inner.worker(0).buffer.lease(4, None);
    assert!(lease.is_some());
    assert_eq!(order(0), [0, 1, 2, 3]);
    // Of the two that are equally far the one with more free slots.
    assert_eq!(order(3), [3, 2, 1, 0]);
}

/// What ends the waiting of a client for slots, when it holds for both workers of a domain that others have all of them.
fn who_waits_is_woken(end: impl FnOnce(&Domains, &mut Vec<Client>)) -> Result<(), Why> {
    let (domains, mut pump) = start(&[("d", 2), ("e", 1)]);
    let shared = domains.at("d").expect("d").place("shared", ()).expect("free");
    let mut clients: Vec<Client> = (0..2).map(|_| client(&domains)).collect();
    for client in &mut clients {
        drop(client.try_call(&shared, |()| ()).expect("some worker has slots"));
    }
    settle(&mut pump);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut late = client(&domains);
    let mut submitted = pin!(late.submit(&shared, |()| ()));
    for _ in 0..3 {
        assert!(submitted.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(woken.0.load(Ordering::SeqCst), 0, "nothing has changed");
    end(&domains, &mut clients);
    assert_ne!(woken.0.load(Ordering::SeqCst), 0, "it is told to look again");
    match submitted.poll(&mut context) {
        Poll::Ready(submitted) => submitted.map(drop),
        Poll::Pending => panic!("there are slots"),
    }
}

#[test]
fn who_waits_for_slots_gets_those_of_any_worker() {
    assert_eq!(who_waits_is_woken(|_, clients| drop(clients.remove(0))), Ok(()));
    assert_eq!(who_waits_is_woken(|_, clients| drop(clients.remove(1))), Ok(()));
}

#[test]
fn who_waits_for_slots_is_told_of_changes() {
    let grow = |domains: &Domains, _: &mut Vec<Client>| domains.grow("d", CpuId(3)).expect("it grows");
    assert_eq!(who_waits_is_woken(grow), Ok(()));
    let go = |domains: &Domains, _: &mut Vec<Client>| {
        let change = domains.move_structure("shared", "e").expect("it moves");
        drop(change);
    };
    assert_eq!(who_waits_is_woken(go), Ok(()));
    let merge =
        |domains: &Domains, _: &mut Vec<Client>| drop(domains.merge("e", "d").expect("they are merged"));
    assert_eq!(who_waits_is_woken(merge), Ok(()));
    let remove =
        |domains: &Domains, _: &mut Vec<Client>| drop(domains.remove("shared").expect("it is there"));
    assert_eq!(who_waits_is_woken(remove), Err(Why::Removed));
}

#[test]
fn planted_bugs_are_caught() {
    for test in
        ["slots_are_of_the_nearest_worker_that_has_some", "who_waits_for_slots_gets_those_of_any_worker"]
    {
        must_notice(&format!("client::tests::{test}"), Bug::LeaseNearestOnly);
    }
    must_notice("client::tests::who_waits_for_slots_is_told_of_changes", Bug::ChangeUnsaid);
}
