//! Single orders of events: what somebody sees when, and what he is told when.

use std::sync::mpsc::channel;
use std::thread;

use atrapos_baselines::durable::{Acknowledge, DurableEngine, StoreError};
use atrapos_baselines::log::Lsn;
use atrapos_baselines::planted::Bug;
#[cfg(debug_assertions)]
use atrapos_baselines::planted::{Place, with, with_at};
use atrapos_baselines::two_phase::LockingEngine;
use atrapos_baselines::{Engine, Intent};
use atrapos_catalog::Definitions;
use atrapos_durability::directory::DirectoryError;
use atrapos_durability::file::{FileSystem, ModelFiles};
use atrapos_partition::abort::{Abort, AbortReason};

use super::{create, open, relaxed};
use crate::engines::{ENGINES, MakeEngine, OTHER, TABLE, get, load, put, range, rows};
use crate::log::sinks::{Memory, Steered};

/// Rounds after which who has not ended is taken for somebody who waits.
const ROUNDS: u32 = 300;

/// Runs `run` with a bug, or without.
fn planted<R>(bug: Option<Bug>, run: impl FnOnce() -> R) -> R {
    match bug {
        #[cfg(debug_assertions)]
        Some(bug) => with(bug, run),
        _ => run(),
    }
}

/// Waits until it is so, which a bug is known to bring about, or for a while.
fn settled(bug: Option<Bug>, mut is_so: impl FnMut() -> bool) -> bool {
    let mut rounds = 0;
    while !is_so() && (bug.is_some() || rounds < ROUNDS) {
        thread::yield_now();
        rounds += 1;
    }
    is_so()
}

/// While the record of a commit is being written, somebody reads the row and ends, by a commit or an abort: he sees it, and is not
/// told before it is durable. Fails if he is.
fn readers_wait(make: MakeEngine, bug: Option<Bug>, aborts: bool) -> Result<(), String> {
    let ((asked, is_asked), (end, ends)) = (channel(), channel());
    let sink = Steered { memory: Memory::default(), asked, ends };
    let engine =
        DurableEngine::over(make(), sink, Acknowledge::Durable).map_err(|error| error.to_string())?;
    thread::scope(|scope| {
        let engine = &engine;
        let writer = scope.spawn(|| engine.client().attempt(&mut |tx| put(tx, TABLE, 1, 7)));
        is_asked.recv().expect("the daemon lives");
        let (saw, has_seen) = channel();
        let reader = scope.spawn(move || {
            planted(bug, || {
                engine.client().attempt(&mut |tx| {
                    saw.send(get(tx, TABLE, 1)?).expect("the test waits");
                    if aborts { Err(Abort::user("the row says so")) } else { Ok(()) }
                })
            })
        });
        assert_eq!(has_seen.recv(), Ok(Some(7)), "locks are released before the disk is waited for");
        let told_early = settled(bug, || reader.is_finished());
        assert!(!writer.is_finished(), "a commit is told before its record is durable");
        end.send(Ok(())).expect("the daemon lives");
        drop(end);
        assert_eq!(writer.join().expect("it does not panic"), Ok(()));
        assert_eq!(reader.join().expect("it does not panic").is_err(), aborts);
        if told_early { Err("a reader was told what may vanish".to_owned()) } else { Ok(()) }
    })
}

#[test]
fn readers_wait_for_what_they_have_seen() {
    for make in ENGINES {
        for aborts in [false, true] {
            assert_eq!(readers_wait(make, None, aborts), Ok(()));
            if cfg!(debug_assertions) {
                assert!(readers_wait(make, Some(Bug::ReaderToldEarly), aborts).is_err());
            }
        }
    }
}

/// Before the record of a commit gets its place, somebody wants to read the row, and to write another one. Fails if his
/// transaction survives a power cut and the one that it has read does not.
#[cfg(debug_assertions)]
fn commits_are_logged_before_they_are_seen(make: MakeEngine, bug: Option<Bug>) -> Result<(), String> {
    let files = ModelFiles::new();
    let engine = make();
    load(&*engine, TABLE, [(1, 0)]);
    let engine = create(engine, &files).map_err(|error| error.to_string())?;
    let ((reached, is_reached), (go, may_go)) = (channel(), channel());
    thread::scope(|scope| {
        let engine = &engine;
        let writer = scope.spawn(move || {
            let wait = move || {
                reached.send(()).expect("the test waits");
                may_go.recv().expect("the test sends");
            };
            with_at(Place::BeforeLog, wait, || {
                planted(bug, || engine.client().attempt(&mut |tx| put(tx, TABLE, 1, 7)))
            })
        });
        is_reached.recv().expect("the writer comes to its log");
        let reader = scope.spawn(|| {
            crate::engines::run(&mut *engine.client(), |tx| {
                let seen = get(tx, TABLE, 1)?;
                put(tx, OTHER, 1, seen.unwrap_or_default())
            })
        });
        let told_early = settled(bug, || reader.is_finished());
        let left = files.power_cut(0);
        go.send(()).expect("the writer waits");
        assert_eq!(writer.join().expect("it does not panic"), Ok(()));
        assert_eq!(reader.join().expect("it does not panic"), Ok(()));
        let left = open(make, &left).map_err(|error| error.to_string())?;
        match (rows(&left, TABLE)[0].1, rows(&left, OTHER).as_slice()) {
            (0, [(1, 7)]) => {
                Err("what a transaction has read has vanished, and the transaction has not".to_owned())
            }
            (_, rows) => {
                assert!(!told_early && rows.is_empty(), "somebody saw a change before it was logged");
                Ok(())
            }
        }
    })
}

#[cfg(debug_assertions)]
#[test]
fn nobody_sees_a_change_that_is_not_logged() {
    for make in ENGINES {
        assert_eq!(commits_are_logged_before_they_are_seen(make, None), Ok(()));
        assert!(commits_are_logged_before_they_are_seen(make, Some(Bug::LoggedAfterInstall)).is_err());
    }
}

/// A pipelined client goes on while its commits are being written, and is told in their order.
#[test]
fn pipelined_clients_go_on() {
    for make in ENGINES {
        let ((asked, is_asked), (end, ends)) = (channel(), channel());
        let sink = Steered { memory: Memory::default(), asked, ends };
        let engine = DurableEngine::over(make(), sink, Acknowledge::Durable).expect("threads can be started");
        let mut client = engine.client();
        client.set_pipelined(true);
        let mut commit = |key| {
            assert_eq!(client.attempt(&mut |tx| put(tx, TABLE, key, key)), Ok(()));
            client.take_ticket()
        };
        let first = commit(0);
        is_asked.recv().expect("the daemon lives");
        let tickets: Vec<_> = std::iter::once(first).chain((1..20).map(commit)).collect();
        assert_eq!(client.attempt(&mut |tx| get(tx, TABLE, 3).map(drop)), Ok(()));
        let reads = client.take_ticket();
        assert!(tickets.is_sorted_by(|one, next| one < next) && reads == tickets[19]);
        assert!(tickets.iter().all(|ticket| !client.is_acknowledged(*ticket)), "nothing is durable");
        end.send(Ok(())).expect("the daemon lives");
        assert_eq!(client.acknowledged(tickets[0]), Ok(()));
        end.send(Err(std::io::Error::other("the disk is full"))).expect("the daemon lives");
        let failed = client.acknowledged(reads).expect_err("the second write fails");
        assert_eq!(failed.reason(), AbortReason::NotDurable);
        assert!(!client.is_acknowledged(reads) && client.is_acknowledged(tickets[0]));
        let refused = client.attempt(&mut |tx| put(tx, TABLE, 50, 1)).expect_err("the log has failed");
        assert_eq!(refused.reason(), AbortReason::NotDurable);
        // What could not be logged was undone.
        let mut keys = Vec::new();
        let _ = client.attempt(&mut |tx| {
            keys = range(tx, TABLE, (0, None), false)?;
            Ok(())
        });
        assert_eq!(keys.len(), 20);
    }
}

/// Relaxed commits end while the disk stands still, and what is closed in order is all there.
#[test]
fn relaxed_commits_do_not_wait() {
    for make in ENGINES {
        let ((asked, _is_asked), (end, ends)) = (channel(), channel());
        let memory = Memory::default();
        let sink = Steered { memory: memory.clone(), asked, ends };
        let acknowledge = Acknowledge::AtOnce { flush_every: std::time::Duration::from_millis(1) };
        let engine = DurableEngine::over(make(), sink, acknowledge).expect("threads can be started");
        for key in 0..50 {
            assert_eq!(engine.client().attempt(&mut |tx| put(tx, TABLE, key, key)), Ok(()));
            assert_eq!(engine.client().attempt(&mut |tx| get(tx, TABLE, key).map(drop)), Ok(()));
        }
        assert!(memory.records(Lsn(0)).is_empty(), "no write has ended");
        drop(end);
        assert_eq!((Box::new(engine) as Box<dyn Engine>).close(), Ok(()));
        assert_eq!(memory.records(Lsn(0)).len(), 50);

        let files = ModelFiles::new();
        let engine =
            DurableEngine::create(make(), super::TREES, &Definitions::default(), &relaxed(files.clone()));
        let engine = Box::new(engine.expect("files do not fail"));
        for key in 0..50 {
            assert_eq!(engine.client().attempt(&mut |tx| put(tx, TABLE, key, key)), Ok(()));
        }
        assert_eq!((engine as Box<dyn Engine>).close(), Ok(()));
        let engine = open(make, &files.power_cut(1)).expect("it is sound");
        assert_eq!(rows(&engine, TABLE).len(), 50);
    }
}

/// A transaction that does not fit the buffer of the log is refused, and leaves nothing.
#[test]
fn transactions_too_large_for_the_log_leave_nothing() {
    for make in ENGINES {
        let files = ModelFiles::new();
        let engine = make();
        load(&*engine, TABLE, [(1, 0)]);
        let engine = create(engine, &files).expect("files do not fail");
        let row = vec![7; 1 << 20];
        let refused = engine.client().attempt(&mut |tx| {
            put(tx, TABLE, 1, 5)?;
            (10..20_u64).try_for_each(|key| tx.insert(TABLE, &key.to_be_bytes(), &row).map(drop))
        });
        assert_eq!(refused.map_err(|abort| abort.reason()), Err(AbortReason::TransactionTooLarge));
        assert_eq!(rows(&engine, TABLE), [(1, 0)]);
        assert_eq!(engine.client().attempt(&mut |tx| put(tx, TABLE, 1, 6)), Ok(()), "the log goes on");
        crate::engines::check(&engine);
        drop(engine);
        assert_eq!(rows(&open(make, &files).expect("it is sound"), TABLE), [(1, 6)]);
    }
}

#[test]
fn an_interval_writes_what_nobody_waits_for() {
    for make in ENGINES {
        let memory = Memory::default();
        let acknowledge = Acknowledge::AtOnce { flush_every: std::time::Duration::from_millis(1) };
        let engine =
            DurableEngine::over(make(), memory.clone(), acknowledge).expect("threads can be started");
        assert_eq!(engine.client().attempt(&mut |tx| put(tx, TABLE, 1, 1)), Ok(()));
        while memory.0.lock().expect("no sink panics").bytes.is_empty() {
            thread::yield_now();
        }
    }
}

#[test]
fn directories_that_do_not_fit_are_refused() {
    let make = ENGINES[0];
    let files = ModelFiles::new();
    assert!(matches!(open(make, &files), Err(StoreError::Missing { .. })));
    let engine = create(make(), &files).expect("files do not fail");
    let refused = |done: Result<DurableEngine, StoreError>| match done {
        Err(StoreError::Directory(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused(open(make, &files)), DirectoryError::InUse { .. }));
    let abort = engine.load(TABLE, &[]).expect_err("it would not be logged");
    assert_eq!(abort.reason(), AbortReason::Misuse);
    drop(engine);
    assert!(matches!(refused(create(make(), &files)), DirectoryError::Exists { .. }));
    let foreign = ModelFiles::new();
    foreign.create_dir("/shared".as_ref()).expect("it can be made");
    foreign.create("/shared/letter".as_ref()).expect("it can be made");
    assert!(matches!(refused(create(make(), &foreign)), DirectoryError::NotEmpty { .. }));
    assert_eq!(foreign.list("/shared".as_ref()).expect("it is there"), ["letter"], "nothing was left in it");
}

/// Without locks a transaction reads what is there, in both directions, and may not change it.
#[test]
fn without_locks_rows_are_read_and_not_changed() {
    let engine: Box<dyn Engine> = Box::new(LockingEngine::new(3).without_locks());
    load(&*engine, TABLE, (0..500).map(|key| (2 * key, key)));
    let mut client = engine.client();
    let read = client.attempt(&mut |tx| {
        assert_eq!((get(tx, TABLE, 10)?, get(tx, TABLE, 11)?), (Some(5), None));
        let all: Vec<_> = (0..500).map(|key| (2 * key, key)).collect();
        assert_eq!(range(tx, TABLE, (0, None), false)?, all);
        let mut backward = range(tx, TABLE, (100, Some(301)), true)?;
        backward.reverse();
        assert_eq!(backward, all[50..151]);
        assert_eq!(range(tx, TABLE, (101, Some(301)), false)?, all[51..151]);
        assert_eq!(range(tx, OTHER, (0, None), true)?, []);
        tx.read(TABLE, &10_u64.to_be_bytes(), Intent::Write).map(drop)
    });
    assert_eq!(read, Ok(()));
    for change in [
        |tx: &mut dyn atrapos_baselines::RowTransaction| tx.insert(TABLE, b"x", b"y").map(drop),
        |tx: &mut dyn atrapos_baselines::RowTransaction| tx.replace(TABLE, &10_u64.to_be_bytes(), b"y"),
        |tx: &mut dyn atrapos_baselines::RowTransaction| tx.remove(TABLE, &10_u64.to_be_bytes()).map(drop),
    ] {
        let refused = client.attempt(&mut |tx| change(tx)).expect_err("locks are off");
        assert_eq!(refused.reason(), AbortReason::Misuse);
        assert!(refused.detail().contains("--locks on"), "{refused}");
    }
    assert_eq!(rows(&*engine, TABLE).len(), 500);
}
