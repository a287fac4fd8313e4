//! Pipelined sessions: they go on before their transactions are durable, and are told when they are.

use std::sync::mpsc;
use std::time::Duration;

use atrapos::{Abort, AbortReason, Database, KeyRange, WorkerId};
use atrapos_durability::file::{Fault, FaultKind, ModelFiles, Times};

use crate::durable::hooked::{Gate, Hooked};
use crate::durable::notes::{KEYS, Notes, builder, directory, files, note};

/// The keys that the session inserts, on all of two workers.
const INSERTED: [u64; 4] = [3, 4, KEYS - 2, KEYS - 1];

fn keys(files: &ModelFiles) -> Vec<u64> {
    let db = builder(&files.power_cut(1), 1).open(directory()).unwrap();
    db.verify().unwrap();
    let notes = db.table::<Notes>().unwrap();
    let rows =
        db.run(notes.at(&0), async move |tx| tx.scan(notes, KeyRange::all(), usize::MAX).await).unwrap();
    rows.into_iter().map(|(key, _)| key).collect()
}

/// Runs a pipelined session whose transactions cannot become durable until a gate is opened. Returns what it does wrong.
fn pipelined(workers: usize) -> Result<(), String> {
    let (files, gate) = (files(), Gate::default());
    let device = gate.clone();
    let hooked = Hooked::new(&files, move |path| {
        if path.starts_with(directory().join("wal")) {
            device.pass();
        }
    });
    let db = builder(&files, workers).files(hooked).open(directory()).unwrap();
    let notes = db.table::<Notes>().unwrap();
    let closed = gate.close();
    let (committed, all_committed) = mpsc::channel();
    let session = db
        .spawn_session(WorkerId(0), async move |session| {
            session.set_pipelined(true);
            let mut tickets = Vec::new();
            for key in INSERTED {
                let insert = async move |tx: &mut atrapos::Tx<'_>| tx.insert(notes, key, note(1, key)).await;
                session.run(&notes.at(&key), insert).await?;
                tickets.push(session.take_ticket());
                // A reader of what is not durable is not to be told either.
                let read = async move |tx: &mut atrapos::Tx<'_>| tx.get(notes, key).await;
                session.run(&notes.at(&key), read).await?;
                tickets.push(session.take_ticket());
            }
            let early = tickets.iter().filter(|ticket| session.is_acknowledged(**ticket)).count();
            let nothing = session.take_ticket();
            committed.send((early, session.is_acknowledged(nothing))).unwrap();
            for ticket in tickets {
                session.acknowledged(ticket).await?;
            }
            Ok::<(), Abort>(())
        })
        .unwrap();
    let (early, knows_nothing) = all_committed.recv().unwrap();
    let lost = keys(&files);
    drop(closed);
    session.join().unwrap().map_err(|abort| abort.to_string())?;
    let kept = keys(&files);
    drop(db);
    match (early, knows_nothing) {
        (0, true) if lost.is_empty() && kept == INSERTED => Ok(()),
        _ => Err(format!("{early} told early; {lost:?} there before the sync, {kept:?} after it")),
    }
}

#[test]
fn a_pipelined_session_goes_on_and_is_told_when_its_transactions_are_durable() {
    for workers in [1, 2] {
        assert_eq!(pipelined(workers), Ok(()));
    }
}

#[test]
fn a_pipelined_session_learns_that_the_device_has_failed() {
    let files = files();
    let db: Database = builder(&files, 2).open(directory()).unwrap();
    let notes = db.table::<Notes>().unwrap();
    files.set_fault(Fault { at: 1, calls: None, kind: FaultKind::SyncFails, times: Times::Forever });
    let session = db.spawn_session(WorkerId(0), async move |session| {
        session.set_pipelined(true);
        let insert = async move |tx: &mut atrapos::Tx<'_>| tx.insert(notes, 7, note(1, 7)).await;
        session.run(&notes.at(&7), insert).await?;
        session.acknowledged(session.take_ticket()).await
    });
    let refused = session.unwrap().join().unwrap().unwrap_err();
    assert_eq!(refused.reason(), AbortReason::NotDurable);
    assert!(db.close(Duration::from_secs(5)).failure.is_some());
}

#[test]
fn a_database_in_memory_acknowledges_at_once() {
    let schema = atrapos::Schema::new().table::<crate::support::Items>();
    let db = Database::builder(schema).workers(1).pin(false).in_memory().unwrap();
    let items = db.table::<crate::support::Items>().unwrap();
    let session = db.spawn_session(WorkerId(0), async move |session| {
        session.set_pipelined(true);
        let insert = async move |tx: &mut atrapos::Tx<'_>| tx.insert(items, 1, crate::support::item(1)).await;
        session.run(&items.at(&1), insert).await?;
        let ticket = session.take_ticket();
        assert!(session.is_acknowledged(ticket));
        session.acknowledged(ticket).await
    });
    session.unwrap().join().unwrap().unwrap();
}
