//! A transaction that stays on its worker allocates nothing, once the worker has what it needs: counted by an allocator that
//! knows how often each thread asked it for memory.
//!
//! Owns the counting allocator; that is why it is a test binary of its own. Its unsafe code only passes calls on.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use atrapos::{
    Abort, Database, FixedStr, Index, KeyRange, LoadProgress, Route, RowEdit, Schema, Session, Table, Tx,
    WorkerId, row,
};

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

row! {
    #[derive(Clone, Debug)]
    struct Subscriber {
        number: FixedStr<15>,
        bits: u16,
        location: u32,
    }
}

struct Subscribers;

impl Table for Subscribers {
    type Key = u64;
    type Row = Subscriber;
    const NAME: &'static str = "subscribers";
}

struct ByNumber;

impl Index for ByNumber {
    type Table = Subscribers;
    type Key = FixedStr<15>;
    const NAME: &'static str = "subscribers_by_number";
    const UNIQUE: bool = true;

    fn key(_: &u64, row: &Subscriber) -> FixedStr<15> {
        row.number
    }
}

row! {
    #[derive(Clone, Debug)]
    struct Forwarding {
        end_time: u8,
        number: FixedStr<15>,
    }
}

struct Forwardings;

impl Table for Forwardings {
    type Key = (u64, u8, u8);
    type Row = Forwarding;
    const NAME: &'static str = "forwardings";
    const FAMILY: &'static str = "subscribers";
}

const SUBSCRIBERS: u64 = 1000;

fn number(id: u64) -> FixedStr<15> {
    FixedStr::new(&format!("{id:015}")).expect("fifteen digits")
}

fn subscriber(id: u64) -> Subscriber {
    Subscriber { number: number(id), bits: 0, location: 0 }
}

/// One worker, so that the entries of the index are on the rows' worker.
fn database() -> Database {
    let schema = Schema::new().table::<Subscribers>().table::<Forwardings>().index::<ByNumber>();
    let db = Database::builder(schema)
        .workers(1)
        .pin(false)
        .huge_pages(false)
        .in_memory()
        .expect("the schema is fine");
    let (subscribers, forwardings) = (db.table::<Subscribers>().unwrap(), db.table::<Forwardings>().unwrap());
    db.load(&LoadProgress::default(), move |loader| {
        for id in 0..SUBSCRIBERS {
            loader.add(subscribers, &id, &subscriber(id))?;
            for at in 0..3 {
                loader.add(forwardings, &(id, at, 0), &Forwarding { end_time: 8, number: number(id) })?;
            }
        }
        Ok(())
    })
    .unwrap();
    db
}

/// Transactions of a session in a round.
const TRANSACTIONS: u64 = 1000;
/// Rounds, of which the first ones give the worker what it needs: how many transactions are under way at once at most differs from round to
/// round, and each that is more than ever before takes a state that is new.
const ROUNDS: usize = 6;

/// Waits until all sessions have come here, or one has failed and never will.
async fn all_have(session: &Session, left: &AtomicUsize) {
    left.fetch_sub(1, Ordering::Relaxed);
    for _ in 0..1_000_000 {
        if left.load(Ordering::Relaxed) == 0 {
            break;
        }
        session.yield_now().await;
    }
}

/// Runs `sessions` sessions on the one worker; each runs `transaction` for many keys, in several rounds that all begin together. Returns
/// how often the worker's thread allocated in the round in which it did so least.
fn allocations(
    db: &Database,
    sessions: usize,
    transaction: impl AsyncFn(&Session, u64) -> Result<(), Abort> + Clone + Send + 'static,
) -> u64 {
    let left = || [(); ROUNDS].map(|()| AtomicUsize::new(sessions));
    // The end of a round, and of a session, may allocate: nobody gets there before all have counted.
    let (beginning, counting) = (Arc::new(left()), Arc::new(left()));
    let started: Vec<_> = (0..sessions)
        .map(|at| {
            let (beginning, counting) = (Arc::clone(&beginning), Arc::clone(&counting));
            let transaction = transaction.clone();
            let body = async move |session: Session| {
                let mut counted = [0; ROUNDS];
                for round in 0..ROUNDS {
                    all_have(&session, &beginning[round]).await;
                    let before = ALLOCATIONS.get();
                    SHOW.set(round + 1 == ROUNDS);
                    for i in 0..TRANSACTIONS {
                        transaction(&session, (i * 7919 + at as u64 * 31) % SUBSCRIBERS).await?;
                    }
                    counted[round] = ALLOCATIONS.get() - before;
                    all_have(&session, &counting[round]).await;
                    SHOW.set(false);
                }
                Ok::<_, Abort>(counted)
            };
            db.spawn_session(WorkerId(0), body).unwrap()
        })
        .collect();
    // Each counts what the thread did while it ran, so the one that ran longest sees the most.
    let counted: Vec<[u64; ROUNDS]> =
        started.into_iter().map(|session| session.join().unwrap().unwrap()).collect();
    let of_round = |round: usize| counted.iter().map(|of_session| of_session[round]).max().unwrap_or(0);
    (0..ROUNDS).map(of_round).min().unwrap_or(0)
}

/// Asserts that the transaction allocates nothing, alone and among others.
fn allocates_nothing(transaction: impl AsyncFn(&Session, u64) -> Result<(), Abort> + Clone + Send + 'static) {
    let db = database();
    assert_eq!(allocations(&db, 1, transaction.clone()), 0, "one session");
    assert_eq!(allocations(&db, 40, transaction), 0, "forty sessions, whose look-ups are made together");
    db.verify().unwrap();
}

#[test]
fn the_counter_counts() {
    let db = database();
    let counted = allocations(&db, 1, async |_, id| {
        drop(std::hint::black_box(Box::new(id)));
        Ok(())
    });
    assert_eq!(counted, TRANSACTIONS);
}

#[test]
fn reading_a_row() {
    allocates_nothing(async |session, id| {
        let subscribers = session.table::<Subscribers>().unwrap();
        let row = session.run(&subscribers.at(&id), async move |tx| tx.get(subscribers, id).await).await?;
        assert!(row.is_some());
        // With another home than the row's key would give.
        session
            .run(&Route::worker(session.worker()), async move |tx| tx.get(subscribers, id).await)
            .await
            .map(drop)
    });
}

#[test]
fn changing_a_row_of_a_table_without_indexes() {
    allocates_nothing(async |session, id| {
        let forwardings = session.table::<Forwardings>().unwrap();
        session
            .run(&forwardings.at(&(id, 1, 0)), async move |tx| {
                tx.update(forwardings, (id, 1, 0), |row| row.end_time = row.end_time.wrapping_add(1))
                    .await
                    .map(drop)
            })
            .await
    });
}

#[test]
fn changing_a_row_of_a_table_with_an_index() {
    allocates_nothing(async |session, id| {
        let subscribers = session.table::<Subscribers>().unwrap();
        session
            .run(&subscribers.at(&id), async move |tx| {
                tx.update(subscribers, id, |row| row.location = row.location.wrapping_add(1)).await.map(drop)
            })
            .await
    });
}

#[test]
fn phases_of_actions_of_one_kind_and_of_several() {
    allocates_nothing(async |session, id| {
        let (subscribers, forwardings) =
            (session.table::<Subscribers>().unwrap(), session.table::<Forwardings>().unwrap());
        let route = subscribers.at(&id);
        let phases = async move |tx: &mut Tx<'_>| {
            let mut seen = 0;
            let reads =
                (0..15).map(|at| subscribers.view((id + at) % SUBSCRIBERS, |row| row.get(|c| c.bits)));
            tx.join_each(reads, |bits| seen += u64::from(bits.is_some())).await?;
            let change = |row: &mut RowEdit<'_, Subscriber>| row.change(|c| c.bits, |bits| bits ^ 1);
            let changes = tx.join((subscribers.edit(id, change), forwardings.get((id, 1, 0)))).await?;
            assert!(seen == 15 && changes.0.is_some() && changes.1.is_some());
            Ok(())
        };
        session.run(&route, phases).await
    });
}

#[test]
fn walking_a_range() {
    allocates_nothing(async |session, id| {
        let forwardings = session.table::<Forwardings>().unwrap();
        let sum = session
            .run(&forwardings.at_prefix(&id), async move |tx| {
                let add = |sum: &mut u32, _, row: Forwarding| {
                    *sum += u32::from(row.end_time);
                    ControlFlow::Continue(())
                };
                tx.fold(forwardings, KeyRange::prefix(&id), 0, add).await
            })
            .await?;
        assert_eq!(sum, 24);
        Ok(())
    });
}

#[test]
fn looking_a_row_up_by_a_unique_index() {
    allocates_nothing(async |session, id| {
        let (subscribers, by_number) =
            (session.table::<Subscribers>().unwrap(), session.index::<ByNumber>().unwrap());
        // Without `format!`, which allocates.
        let mut digits = [b'0'; 15];
        let mut rest = id;
        for digit in digits.iter_mut().rev() {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
        let number = FixedStr::<15>::new(std::str::from_utf8(&digits).unwrap()).unwrap();
        let found = session
            .run(&by_number.at(&number), async move |tx| {
                let found = tx.get_by(by_number, subscribers, number).await?;
                tx.update(subscribers, id, |row| row.location = 7).await?;
                Ok(found.map(|(key, _)| key))
            })
            .await?;
        assert_eq!(found, Some(id));
        Ok(())
    });
}

#[test]
fn inserting_and_deleting() {
    allocates_nothing(async |session, id| {
        let forwardings = session.table::<Forwardings>().unwrap();
        let new = Forwarding { end_time: 1, number: FixedStr::new("1").unwrap() };
        let key = (id, 1, 16);
        session
            .run(&forwardings.at(&key), async move |tx| {
                tx.run(forwardings.insert_if_absent(key, new.clone())).await
            })
            .await?;
        session.run(&forwardings.at(&key), async move |tx| tx.delete(forwardings, key).await).await.map(drop)
    });
}

#[test]
fn aborting_takes_nothing_either() {
    allocates_nothing(async |session, id| {
        let forwardings = session.table::<Forwardings>().unwrap();
        let aborted = session
            .run(&forwardings.at(&(id, 1, 0)), async move |tx| {
                tx.update(forwardings, (id, 1, 0), |row| row.end_time = 99).await?;
                tx.delete(forwardings, (id, 2, 0)).await?;
                Err::<(), _>(Abort::user("as planned"))
            })
            .await;
        assert!(aborted.is_err());
        Ok(())
    });
}
