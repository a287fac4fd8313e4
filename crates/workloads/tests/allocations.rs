//! Transactions allocate nothing in a session on the worker that has their data, once it has what it needs: every class of TATP alone
//! and in its mix, TPC-B, the operations that YCSB's reads and updates consist of, every class of TPC-C alone and in its mix.
//!
//! Many sessions allocate what grows once. Not covered, because they do allocate: several workers, when a procedure that was sent is no
//! direct transaction.
//!
//! Owns: an allocator that counts for each thread how often it is asked for memory; that is why this is a test binary of its own. Its
//! unsafe code only passes calls on.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use atrapos::{Database, LoadProgress, Session, WorkerId};
use atrapos_workloads::tatp::Tatp;
use atrapos_workloads::tpcb::{Tpcb, TpcbConfig};
use atrapos_workloads::tpcc::{Tpcc, TpccConfig};
use atrapos_workloads::ycsb::{Ycsb, YcsbConfig, schema};
use atrapos_workloads::{Client, KeyChoice, Reach, Workload};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Set if the next allocation is to be shown with the way to it.
    static SHOW: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    if SHOW.replace(false) {
        let counted = ALLOCATIONS.get();
        show(&Backtrace::force_capture().to_string());
        // Showing it took some more.
        ALLOCATIONS.set(counted);
    }
}

#[expect(clippy::print_stdout, reason = "the test harness shows it when the test fails")]
fn show(text: &str) {
    println!("an allocation: {text}");
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps to the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps to the contract, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps to the contract, which is the same.
        unsafe { System.realloc(address, layout, bytes) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps to the contract, which is the same.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Transactions that one session runs to warm up, and again while it counts.
const TRANSACTIONS: usize = 2_000;
/// Many sessions.
const SESSIONS: usize = 32;
/// Transactions that they run together to warm up, and again while they count.
const TRANSACTIONS_OF_MANY: usize = 8_000;
/// Allocations of many sessions, in all of their transactions: one in a hundred of them.
const GROWN_MAX: u64 = TRANSACTIONS_OF_MANY as u64 / 100;

async fn run_some<W: Workload>(session: &Session, state: &mut W::State, transactions: usize) {
    for _ in 0..transactions {
        let (_, outcome) = pin!(W::transaction(&Client::Session(session, None), state)).await;
        assert!(outcome.is_ok(), "{outcome:?}");
    }
}

/// Returns the number of allocations of warm sessions on the only worker, on its thread.
fn allocations_of<W: Workload>(workload: &W, sessions: usize, transactions: usize) -> u64 {
    let db = Database::builder(workload.schema())
        .workers(1)
        .pin(false)
        .huge_pages(false)
        .in_memory()
        .expect("the schema is fine");
    workload.load(&db, &LoadProgress::default()).expect("it fits");
    // Whoever comes last opens the way for all.
    let arrived = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let mut handles = Vec::new();
    for at in 0..sessions {
        let mut state = workload.state(&db, Reach::Everywhere, at as u64 + 1).expect("there are keys");
        let arrived = Arc::clone(&arrived);
        let body = async move |session: Session| {
            let wait = async |turn: usize| {
                arrived[turn].fetch_add(1, Ordering::SeqCst);
                while arrived[turn].load(Ordering::SeqCst) < sessions {
                    session.yield_now().await;
                }
            };
            run_some::<W>(&session, &mut state, transactions / sessions).await;
            wait(0).await;
            let before = ALLOCATIONS.get();
            SHOW.set(true);
            run_some::<W>(&session, &mut state, transactions / sessions).await;
            wait(1).await;
            SHOW.set(false);
            ALLOCATIONS.get() - before
        };
        handles.push(db.spawn_session(WorkerId(0), body).expect("it runs"));
    }
    // All sessions count the same thread: the first to begin has the most.
    handles.into_iter().map(|handle| handle.join().expect("it ends")).max().unwrap_or(0)
}

/// Asserts that one session allocates nothing, and that many allocate only what grows once: the states of transactions that are under
/// way together, lists of what waits, the list of a tree's chunks.
fn allocates_nothing<W: Workload>(name: &str, workload: &W) {
    assert_eq!(allocations_of(workload, 1, TRANSACTIONS), 0, "{name}");
    let counted = allocations_of(workload, SESSIONS, TRANSACTIONS_OF_MANY);
    assert!(counted <= GROWN_MAX, "{name}: {counted} with {SESSIONS} sessions");
}

#[test]
fn the_counter_counts() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1_u64)));
    assert_eq!(ALLOCATIONS.get() - before, 1);
}

#[test]
fn tatp() {
    for mix in [
        "get-subscriber-data",
        "get-new-destination",
        "get-access-data",
        "update-subscriber-data",
        "update-location",
        "insert-call-forwarding",
        "delete-call-forwarding",
        "standard",
    ] {
        let of_class = mix.parse().expect("a class");
        let tatp = Tatp::new(2_000, of_class, KeyChoice::Uniform, 1).expect("possible");
        allocates_nothing(mix, &tatp);
        allocates_nothing(&format!("{mix}, tables apart"), &tatp.apart());
    }
}

#[test]
fn tpcb() {
    let config = TpcbConfig { branches: 4, accounts_per_branch: 1_000, ..TpcbConfig::default() };
    allocates_nothing("tpcb", &Tpcb::new(config).expect("possible"));
}

#[test]
fn ycsb() {
    for mix in ["a", "b", "c", "f"] {
        let config = YcsbConfig { rows: 2_000, mix: mix.parse().expect("a letter"), ..YcsbConfig::default() };
        allocates_nothing(mix, &Ycsb::<schema::Wide>::new(config).expect("possible"));
    }
}

#[test]
fn tpcc() {
    for mix in ["new-order", "payment", "order-status", "delivery", "stock-level", "standard"] {
        let of_class = mix.parse().expect("a class");
        let config = TpccConfig {
            warehouses: 1,
            items: 1_000,
            customers: 300,
            mix: of_class,
            ..TpccConfig::default()
        };
        allocates_nothing(mix, &Tpcc::new(config).expect("possible"));
        let apart = TpccConfig { apart: true, ..config };
        allocates_nothing(&format!("{mix}, tables apart"), &Tpcc::new(apart).expect("possible"));
    }
}
