//! Memory that tasks and clients take, counted by an allocator for all threads of the process; so this is a test binary of its own,
//! with one test. Its unsafe code only passes calls on.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use atrapos_domains::{
    Client, Configuration, DomainConfiguration, Domains, Group, Operation, Owned, Placement, WINDOW_DEFAULT,
};
use atrapos_topology::Machine;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Bytes that this thread has asked for.
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

fn allocated(bytes: usize) {
    ASKED.set(ASKED.get() + bytes);
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(bytes, Ordering::Relaxed);
}

// SAFETY: every call is passed on to the system's allocator as it came; what is not overridden comes here.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: the caller keeps to the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps to the contract, which is the same.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Rounds before the counting begins: a waiting thread makes its waker once, and queues find their size.
const WARM: u64 = 2_000;
const COUNTED: u64 = 10_000;

struct Add(u64);

impl Operation<Owned<u64>> for Add {
    type Reply = u64;
    fn run_group(operations: Group<Self>, sum: &mut u64) -> Group<u64> {
        let add = |Add(number)| {
            *sum += number;
            *sum
        };
        operations.into_iter().map(add).collect()
    }
}

/// Allocations of all threads per round of work, once it is warm.
fn allocations(mut work: impl FnMut(u64)) -> usize {
    (0..WARM).for_each(&mut work);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (0..COUNTED).for_each(&mut work);
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

fn calls(client: &mut Client, sum: &Owned<u64>) -> usize {
    allocations(|number| {
        let large = [number; 5];
        let add = move |sum: &mut u64| {
            *sum += large[4];
            *sum
        };
        assert_eq!(size_of_val(&add), 40);
        client.call_blocking(sum, add).expect("it runs");
        let pending = client.try_call(sum, move |sum: &mut u64| *sum + number).expect("there is room");
        pending.wait().expect("it runs");
    })
}

fn bursts(client: &mut Client, sum: &Owned<u64>) -> usize {
    let mut burst = client.burst(sum, 14).expect("there are slots");
    allocations(|number| {
        let large = [number; 6];
        let add = move |sum: &mut u64| {
            *sum += large[5];
            *sum
        };
        assert_eq!(size_of_val(&add), 48);
        if let Some(answer) = burst.push(add).expect("it is pushed") {
            answer.expect("it runs");
        }
        if let Some(answer) = burst.push_operation(Add(number)).expect("it is pushed") {
            answer.expect("it runs");
        }
        if number % 100 == 0 {
            burst.drain().for_each(|answer| assert!(answer.is_ok()));
        }
    })
}

/// Bytes that a thread asks for as it starts domains whose workers have so many slots.
fn starting(machine: &Machine, slots: usize) -> usize {
    let domain =
        DomainConfiguration { placement: Placement::Anywhere, slots, ..DomainConfiguration::new("d", 2) };
    let configuration = Configuration { domains: vec![domain], ..Configuration::default() };
    let before = ASKED.get();
    let domains = Domains::start(machine, &configuration).expect("it starts");
    let asked = ASKED.get() - before;
    drop(domains);
    asked
}

/// Bytes that all threads have for domains of one worker with so many slots.
fn of_worker(machine: &Machine, slots: usize) -> usize {
    let domain =
        DomainConfiguration { placement: Placement::Anywhere, slots, ..DomainConfiguration::new("d", 1) };
    let configuration = Configuration { domains: vec![domain], ..Configuration::default() };
    let before = BYTES.load(Ordering::Relaxed);
    let domains = Domains::start(machine, &configuration).expect("it starts");
    // Its worker has made all it needs once it has run a task.
    let nothing = domains.at("d").expect("d").place_owned("nothing", ()).expect("a free name");
    domains.client().call_blocking(&nothing, |()| ()).expect("it runs");
    BYTES.load(Ordering::Relaxed) - before
}

/// Bytes that each slot of a worker takes: the slot, its part of a reply line, its client's waker and what the worker notes of it.
fn of_slot(machine: &Machine) -> usize {
    let (few, many) = (of_worker(machine, 15), of_worker(machine, 960));
    (many - few).div_ceil(960 - 15)
}

/// Bytes of a client that has used a structure and waits for nothing, without its slots.
fn idle_client(domains: &Domains, sum: &Owned<u64>) -> usize {
    const CLIENTS: usize = 64;
    let mut clients = Vec::with_capacity(CLIENTS);
    let before = BYTES.load(Ordering::Relaxed);
    for _ in 0..CLIENTS {
        let mut client = domains.client();
        client.call_blocking(sum, |sum| *sum).expect("it runs");
        clients.push(client);
    }
    (BYTES.load(Ordering::Relaxed) - before) / CLIENTS + size_of::<Client>()
}

#[test]
fn tasks_allocate_nothing_and_clients_take_little() {
    let machine = Machine::synthetic("pack:1 core:2 pu:1").expect("a machine");
    let domain = DomainConfiguration { placement: Placement::Anywhere, ..DomainConfiguration::new("d", 1) };
    let configuration = Configuration { domains: vec![domain], ..Configuration::default() };
    let domains = Domains::start(&machine, &configuration).expect("it starts");
    let sum = domains.at("d").expect("d").place_owned("sum", 0_u64).expect("a free name");
    let mut client = domains.client();
    // Both sides go to sleep once, for which they make what they need.
    let nap = Duration::from_millis(100);
    client.call_blocking(&sum, move |_| std::thread::sleep(nap)).expect("it runs");
    std::thread::sleep(nap);
    assert_eq!(calls(&mut client, &sum), 0, "calls");
    assert_eq!(bursts(&mut client, &sum), 0, "bursts");
    let boxed = allocations(|number| {
        let large = [number; 7];
        client.call_blocking(&sum, move |sum| *sum + large[6]).expect("it runs");
    });
    assert!(
        boxed as u64 >= COUNTED,
        "a closure of 56 bytes is put in a box, and that is noticed here: {boxed}"
    );
    let (own, slot) = (idle_client(&domains, &sum), of_slot(&machine));
    assert!(slot >= 128, "slots are seen by the counter: {slot}");
    let bytes = own + WINDOW_DEFAULT * slot;
    assert!(bytes <= 1_024, "an idle client has {bytes} bytes: {own} and slots of {slot}");
    // Workers make their slots: what touches memory first decides where it lies.
    let (few, many) = (starting(&machine, 15), starting(&machine, 960));
    assert!(many <= few + 1_024, "{few} bytes for few slots, {many} for many");
}
