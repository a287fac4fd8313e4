//! Every call to the file system fails in turn: nothing false is acknowledged, the cause is told, and what was acknowledged is
//! there when the database is opened again.

use atrapos::{Abort, AbortReason, Database};
use atrapos_durability::file::{CallKind, Fault, FaultKind, ModelFiles, Times};

use crate::durable::notes::{KEYS, Notes, builder, directory, files, note};

fn insert(db: &Database, key: u64) -> Result<(), Abort> {
    let notes = db.table::<Notes>().unwrap();
    db.run(notes.at(&key), async move |tx| tx.insert(notes, key, note(1, key)).await)
}

/// Keys of the rows that are there.
fn keys(files: &ModelFiles) -> Vec<u64> {
    let db = builder(files, 2).open(directory()).unwrap();
    let notes = db.table::<Notes>().unwrap();
    db.verify().unwrap();
    let rows = db
        .run(notes.at(&0), async move |tx| tx.scan(notes, atrapos::KeyRange::all(), usize::MAX).await)
        .unwrap();
    rows.into_iter().map(|(key, _)| key).collect()
}

#[test]
fn a_failed_sync_stops_writing_and_reading_what_is_not_durable() {
    let files = files();
    let db = builder(&files, 2).open(directory()).unwrap();
    insert(&db, 1).unwrap();
    files.set_fault(Fault { at: 1, calls: None, kind: FaultKind::SyncFails, times: Times::Forever });
    let abort = insert(&db, 2).unwrap_err();
    assert_eq!(abort.reason(), AbortReason::NotDurable);
    assert!(abort.detail().contains("/data/notes/wal/"), "{abort}");
    let notes = db.table::<Notes>().unwrap();
    // What is durable can be read; what may be lost cannot.
    let read = |key: u64| db.run(notes.at(&key), async move |tx| tx.get(notes, key).await);
    assert_eq!(read(1).unwrap().map(|note| note.number), Some(1));
    assert_eq!(read(2).unwrap_err().reason(), AbortReason::NotDurable);
    assert_eq!(insert(&db, 3).unwrap_err().reason(), AbortReason::NotDurable);
    assert!(db.checkpoint().is_err());
    let report = db.close(std::time::Duration::from_secs(5));
    assert!(report.failure.is_some());
    files.clear_fault();
    // What was not acknowledged may have been written all the same; what was refused has not been.
    let left = keys(&files.power_cut(1));
    assert!(left == [1] || left == [1, 2], "{left:?}");
}

#[test]
fn what_a_checkpoint_replaces_may_stay() {
    let files = files();
    let db = builder(&files, 2).segment_bytes(4 << 10).open(directory()).unwrap();
    db.checkpoint().unwrap();
    (0..40).for_each(|key| insert(&db, key).unwrap());
    // The first removal is part of publishing the manifest; the next ones are of what it replaces.
    let fault = Fault { at: 2, calls: Some(CallKind::Remove), kind: FaultKind::Eio, times: Times::Forever };
    files.set_fault(fault);
    assert_eq!(db.checkpoint().unwrap().number, 2, "it counts all the same");
    assert!(db.warnings().iter().any(|warning| warning.contains("/data/notes/")), "{:?}", db.warnings());
    insert(&db, 40).unwrap();
    files.clear_fault();
    assert_eq!(keys(&files.power_cut(3)).len(), 41);
    db.checkpoint().unwrap();
    insert(&db, 41).unwrap();
    assert_eq!(keys(&files.power_cut(4)).len(), 42);
}

#[test]
fn every_call_may_fail() {
    // How many calls a run makes is found out by letting it run.
    let run = |files: &ModelFiles| -> Vec<u64> {
        let mut acknowledged = Vec::new();
        let Ok(db) = builder(files, 2).segment_bytes(4 << 10).open(directory()) else { return acknowledged };
        for key in 0..24 {
            if insert(&db, key * (KEYS / 24)).is_ok() {
                acknowledged.push(key * (KEYS / 24));
            }
            if key == 12 {
                let _ = db.checkpoint();
            }
        }
        drop(db);
        acknowledged
    };
    let whole = files();
    let before = whole.calls();
    assert_eq!(run(&whole).len(), 24);
    let calls = whole.calls() - before;
    let kinds = [FaultKind::Eio, FaultKind::NoSpace, FaultKind::ShortWrite, FaultKind::SyncFails];
    for at in 1..=calls {
        for times in [Times::Once, Times::Forever] {
            let kind = kinds[(at % 4) as usize];
            let files = files();
            files.set_fault(Fault { at, calls: None, kind, times });
            let acknowledged = run(&files);
            files.clear_fault();
            for after in [files.power_cut(at), files.kill()] {
                // An opening that failed before there was anything leaves nothing to find.
                if acknowledged.is_empty() {
                    continue;
                }
                let there = keys(&after);
                let lost: Vec<_> = acknowledged.iter().filter(|key| !there.contains(key)).collect();
                assert!(
                    lost.is_empty(),
                    "{kind:?} at call {at} ({times:?}): {lost:?} were acknowledged and are lost"
                );
            }
        }
    }
}

#[test]
fn a_crash_at_every_call_loses_nothing() {
    let calls = {
        let files = files();
        let before = files.calls();
        script(&files);
        files.calls() - before
    };
    for at in 1..=calls {
        let files = files();
        files.crash_at(at);
        let acknowledged = script(&files);
        for after in [files.power_cut(at), files.kill()] {
            if acknowledged == 0 && !exists(&after) {
                continue;
            }
            let there = keys(&after);
            assert!(
                there.len() >= acknowledged,
                "crash at call {at}: {acknowledged} were acknowledged and {there:?} are there"
            );
            assert_eq!(there, (0..there.len() as u64).collect::<Vec<_>>(), "crash at call {at}");
        }
    }
}

fn exists(files: &ModelFiles) -> bool {
    atrapos_durability::directory::Directory::exists(files, directory()).unwrap_or(false)
}

/// Opens, writes, makes checkpoints, closes and opens again, until something fails. Returns how many rows, with keys from 0,
/// were acknowledged.
fn script(files: &ModelFiles) -> usize {
    let mut acknowledged = 0;
    for _ in 0..2 {
        let Ok(db) = builder(files, 2).segment_bytes(4 << 10).open(directory()) else { return acknowledged };
        for step in 0..10 {
            if insert(&db, acknowledged as u64).is_err() {
                return acknowledged;
            }
            acknowledged += 1;
            if step % 4 == 3 && db.checkpoint().is_err() {
                return acknowledged;
            }
        }
        if db.close(std::time::Duration::from_secs(5)).failure.is_some() {
            return acknowledged;
        }
    }
    acknowledged
}
