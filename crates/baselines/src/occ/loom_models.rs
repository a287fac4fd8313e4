//! Loom models of records, nodes and commits: all interleavings of two threads, and the weak orderings that the memory model
//! allows, are tried, up to a bound on preemptions. Nodes have three entries here.
//!
//! Each model is also run with planted bugs, in a child process per bug (loom leaves its state in pieces when a model fails).
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p atrapos-baselines --release --lib loom_models`.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use atrapos_partition::schema::TableId;
use crossbeam_epoch::Collector;
use loom::thread;

use super::{OccEngine, OccTransaction};
use crate::planted::{Bug, must_fail};
use crate::rows::{Intent, RowTransaction};
use crate::tree::record::{ABSENT, Header, OBSOLETE, Record, RowBuffer, SEQUENCE};
use crate::tree::{Found, Insertion, Tree, retire_record};

const TABLE: TableId = TableId(0);

fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    let executions = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&executions);
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let executions = executions.load(Ordering::Relaxed);
    assert!(executions > 5, "only {executions} executions were tried");
}

/// A record that threads share until the model ends.
#[derive(Clone, Copy)]
struct Shared(NonNull<Header>);

// SAFETY: all that threads do with a record is made of atomics; the models free it after the threads have ended.
unsafe impl Send for Shared {}

impl Shared {
    fn record(self) -> Record<'static> {
        // SAFETY: as above.
        unsafe { Record::from_pointer(self.0) }
    }
}

// --- records -----------------------------------------------------------------------------------------------------------

/// A copy is whole, and goes with its TID, while the row is overwritten twice.
#[test]
fn record_copies() {
    explore(3, || {
        let shared = Shared(Record::allocate(b"", 16, SEQUENCE));
        shared.record().overwrite(&[1; 16]);
        let writer = thread::spawn(move || {
            for version in 1..3 {
                assert!(shared.record().lock(version * SEQUENCE));
                shared.record().overwrite(&[version as u8 + 1; 16]);
                shared.record().unlock((version + 1) * SEQUENCE);
            }
        });
        let mut row = RowBuffer::default();
        let tid = shared.record().read(&mut row);
        assert_eq!(row.bytes(), [(tid / SEQUENCE) as u8; 16]);
        writer.join().expect("it does not panic");
        // SAFETY: the other thread has ended.
        unsafe { Record::free(shared.0) };
    });
}

/// Of two who lock a record in the state in which they have read it, one fails.
#[test]
fn record_locks() {
    explore(3, || {
        let shared = Shared(Record::allocate(b"", 8, ABSENT));
        let update = move || {
            let locked = shared.record().lock(ABSENT);
            if locked {
                shared.record().unlock(SEQUENCE);
            }
            usize::from(locked)
        };
        let other = thread::spawn(update);
        let won = update() + other.join().expect("it does not panic");
        assert_eq!((won, shared.record().tid()), (1, SEQUENCE));
        // SAFETY: the other thread has ended.
        unsafe { Record::free(shared.0) };
    });
}

#[test]
fn record_bugs() {
    for bug in [Bug::TornReads, Bug::CopyFenceLeftOut, Bug::OverwriteFenceLeftOut] {
        must_fail("occ::loom_models::record_copies", bug);
    }
}

// --- nodes -------------------------------------------------------------------------------------------------------------

/// A tree of the keys, and the collector of its memory.
fn tree_of(keys: &[u8]) -> Arc<(Tree, Collector)> {
    let both = Arc::new((Tree::new(), Collector::new()));
    keys.iter().for_each(|key| insert(&both, *key));
    both
}

fn insert((tree, collector): &(Tree, Collector), key: u8) {
    let handle = collector.register();
    let guard = &handle.pin();
    let inserted = tree.insert(&[key], || Record::allocate(&[key], 0, SEQUENCE), guard);
    assert!(matches!(inserted, Insertion::New { .. }));
}

fn remove((tree, collector): &(Tree, Collector), key: u8) {
    let handle = collector.register();
    let guard = &handle.pin();
    let Found::Record(record) = tree.find(&[key], guard) else { panic!("it was inserted") };
    assert_eq!(record.lock_any(), SEQUENCE);
    tree.remove(record, guard);
    record.unlock(SEQUENCE | OBSOLETE);
    // SAFETY: this thread had it locked, and has taken it out.
    unsafe { retire_record(record, guard) };
}

fn has((tree, collector): &(Tree, Collector), key: u8) -> bool {
    let handle = collector.register();
    let guard = &handle.pin();
    match tree.find(&[key], guard) {
        Found::Record(record) => {
            assert_eq!(record.key(), [key]);
            true
        }
        Found::Nothing(..) => false,
    }
}

/// Inserts a key while another thread looks for keys that are there all the time.
fn insert_and_find(preemptions: usize, keys: &'static [u8], key: u8, wanted: u8) {
    explore(preemptions, move || {
        let shared = tree_of(keys);
        let others = Arc::clone(&shared);
        // The reader is the thread that begins later: loom finds the places to switch at from loads that come after stores,
        // but overlooks a store that comes after loads of both threads.
        let reader = thread::spawn(move || assert!(has(&others, wanted)));
        insert(&shared, key);
        reader.join().expect("it does not panic");
        assert!(has(&shared, key) && has(&shared, wanted));
    });
}

/// The entries move to make room.
#[test]
fn node_insertion() {
    insert_and_find(3, &[5], 1, 5);
}

/// The root is a leaf, and is split.
#[test]
fn node_root_split() {
    insert_and_find(3, &[2, 4, 6], 1, 6);
}

/// A leaf below the root is split, and what is looked for moves to the new one.
#[test]
fn node_leaf_split() {
    insert_and_find(3, &[2, 4, 6, 8], 7, 8);
}

/// Two threads insert into one leaf, which is full then.
#[test]
fn node_two_insertions() {
    explore(3, || {
        let shared = tree_of(&[4, 6]);
        let others = Arc::clone(&shared);
        let writer = thread::spawn(move || insert(&others, 2));
        insert(&shared, 8);
        writer.join().expect("it does not panic");
        assert!([2, 4, 6, 8].iter().all(|key| has(&shared, *key)));
    });
}

/// A leaf becomes empty and is removed, with the root above it; its neighbour takes over the range, into which another thread
/// inserts.
#[test]
fn node_removal() {
    explore(2, || {
        let shared = tree_of(&[2, 4, 6, 8]);
        // Nothing is freed before the end: loom does not see what the collector orders, and lets a thread that is pinned late
        // load what was there before.
        let keeper = shared.1.register();
        let kept = keeper.pin();
        let others = Arc::clone(&shared);
        let other = thread::spawn(move || insert(&others, 9));
        // The keys came in order, so the last one is alone in its leaf.
        remove(&shared, 8);
        other.join().expect("it does not panic");
        assert!(!has(&shared, 8) && has(&shared, 6) && has(&shared, 9));
        assert_eq!(shared.0.check(&kept), Ok(()));
    });
}

#[test]
fn node_bugs() {
    must_fail("occ::loom_models::node_removal", Bug::EmptinessNotChecked);
    must_fail("occ::loom_models::node_insertion", Bug::LeafNotValidated);
    must_fail("occ::loom_models::node_root_split", Bug::LeafNotValidated);
    must_fail("occ::loom_models::node_leaf_split", Bug::InnerNotValidated);
}

// --- commits -----------------------------------------------------------------------------------------------------------

/// Runs a transaction once. Says whether it found what was there at the beginning, and committed.
fn once(engine: &OccEngine, run: impl FnOnce(&mut OccTransaction<'_>) -> bool) -> bool {
    let mut client = engine.client();
    let mut tx = client.begin();
    run(&mut tx) && tx.commit().is_ok()
}

/// Two transactions that write what the other one has read do not both commit.
#[test]
fn commit_skew() {
    explore(3, || {
        let engine = Arc::new(OccEngine::with_epoch_period(1, None));
        assert!(engine.load(TABLE, [([0], [0]), ([1], [0])]).is_ok());
        let skew = |engine: &OccEngine, own: u8| {
            once(engine, |tx| {
                let is_first = tx.read(TABLE, &[1 - own], Intent::Read) == Ok(Some(&[0]));
                assert!(tx.read(TABLE, &[own], Intent::Write).is_ok());
                assert!(tx.replace(TABLE, &[own], &[1]).is_ok());
                is_first
            })
        };
        let others = Arc::clone(&engine);
        let other = thread::spawn(move || skew(&others, 0));
        let mine = skew(&engine, 1);
        // Loom does not know what the reference count orders: the last one to use the engine has joined the other.
        let others = other.join().expect("it does not panic");
        assert!(!(mine && others), "both have read what was there before");
    });
}

/// Two transactions that insert where the other one has found nothing do not both commit.
#[test]
fn commit_phantoms() {
    explore(3, || {
        let engine = Arc::new(OccEngine::with_epoch_period(2, None));
        let skew = |engine: &OccEngine, own: u16| {
            once(engine, |tx| {
                let is_first = tx.read(TableId(1 - own), &[1], Intent::Read) == Ok(None);
                assert_eq!(tx.insert(TableId(own), &[1], &[1]), Ok(true));
                is_first
            })
        };
        let others = Arc::clone(&engine);
        let other = thread::spawn(move || skew(&others, 0));
        let mine = skew(&engine, 1);
        // Loom does not know what the reference count orders: the last one to use the engine has joined the other.
        let others = other.join().expect("it does not panic");
        assert!(!(mine && others), "both have found nothing");
    });
}

/// A row is replaced by a longer one, in another record, and is there all the time.
#[test]
fn commit_longer() {
    explore(2, || {
        let engine = Arc::new(OccEngine::with_epoch_period(1, None));
        assert!(engine.load(TABLE, [([0], [0; 2])]).is_ok());
        let others = Arc::clone(&engine);
        let reader = thread::spawn(move || {
            let mut client = others.client();
            let mut tx = client.begin();
            let row = tx.read(TABLE, &[0], Intent::Read).map(|row| row.map(<[u8]>::len));
            assert!(matches!(row, Ok(Some(2 | 20))));
            assert!(tx.commit().is_ok());
        });
        assert!(once(&engine, |tx| {
            assert!(tx.read(TABLE, &[0], Intent::Write).is_ok());
            tx.replace(TABLE, &[0], &[1; 20]).is_ok()
        }));
        reader.join().expect("it does not panic");
    });
}

#[test]
fn commit_bugs() {
    must_fail("occ::loom_models::commit_skew", Bug::CommitFenceLeftOut);
    must_fail("occ::loom_models::commit_skew", Bug::ReadsNotValidated);
    must_fail("occ::loom_models::commit_phantoms", Bug::CommitFenceLeftOut);
    must_fail("occ::loom_models::commit_phantoms", Bug::NodesNotValidated);
}
