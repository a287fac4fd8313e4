//! Transactions allocate nothing in a session on the worker that has their data, once it has what it needs: every class of TATP alone
//! and in its mix, TPC-B, the operations that YCSB's reads and updates consist of, every class of TPC-C alone and in its mix.
//!
//! Not covered, because it does allocate: what many sessions or several workers add.
//!
//! Owns: an allocator that counts for each thread how often it is asked for memory; that is why this is a test binary of its own. Its
//! unsafe code only passes calls on.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::pin::pin;

use atrapos::{Database, LoadProgress, Session, WorkerId};
use atrapos_workloads::tatp::Tatp;
use atrapos_workloads::tpcb::{Tpcb, TpcbConfig};
use atrapos_workloads::tpcc::{Tpcc, TpccConfig};
use atrapos_workloads::ycsb::{Ycsb, YcsbConfig, schema};
use atrapos_workloads::{Client, KeyChoice, Reach, Workload};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Whether the next allocation is to be shown with the way to it.
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

/// Transactions that the session runs to warm up, and again while it counts.
const TRANSACTIONS: usize = 2_000;

async fn run_some<W: Workload>(session: &Session, state: &mut W::State) {
    for _ in 0..TRANSACTIONS {
        let (_, outcome) = pin!(W::transaction(Client::Session(session), state)).await;
        assert!(outcome.is_ok(), "{outcome:?}");
    }
}

/// Asserts that a warm session on the only worker runs transactions without an allocation on the worker's thread.
fn allocates_nothing<W: Workload>(name: &str, workload: &W) {
    let db = Database::builder(workload.schema())
        .workers(1)
        .pin(false)
        .huge_pages(false)
        .in_memory()
        .expect("the schema is fine");
    workload.load(&db, &LoadProgress::default()).expect("it fits");
    let mut state = workload.state(&db, Reach::Everywhere, 1).expect("there are keys");
    let body = async move |session: Session| {
        run_some::<W>(&session, &mut state).await;
        let before = ALLOCATIONS.get();
        SHOW.set(true);
        run_some::<W>(&session, &mut state).await;
        SHOW.set(false);
        ALLOCATIONS.get() - before
    };
    let counted = db.spawn_session(WorkerId(0), body).expect("it runs").join().expect("it ends");
    assert_eq!(counted, 0, "{name}");
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
        allocates_nothing(mix, &Tatp::new(2_000, of_class, KeyChoice::Uniform, 1).expect("possible"));
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
    }
}
