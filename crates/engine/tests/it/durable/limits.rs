//! How much may be on its way to the WAL: the redo of one transaction, and what is committed and not yet written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use atrapos::{Abort, AbortReason, Advice, Builder, Database, Durability, KeyRange, OpenError, WorkerId};

use crate::durable::hooked::{Gate, Hooked};
use crate::durable::notes::{ByNumber, KEYS, Notes, builder, directory, files, note};

/// Inserts rows with these keys in one transaction, with its home where the first is: one by one, or as one phase.
fn insert_all(db: &Database, keys: Vec<u64>, as_phase: bool) -> Result<(), Abort> {
    let notes = db.table::<Notes>().unwrap();
    db.run(notes.at(&keys[0]), async move |tx| {
        if as_phase {
            tx.join_all(keys.iter().map(|key| notes.insert(*key, note(1, *key)))).await?;
        } else {
            for key in keys.iter().copied() {
                tx.insert(notes, key, note(1, key)).await?;
            }
        }
        Ok(())
    })
}

fn keys(db: &Database) -> Vec<u64> {
    let (notes, by_number) = (db.table::<Notes>().unwrap(), db.index::<ByNumber>().unwrap());
    db.verify().unwrap();
    let rows =
        db.run(notes.at(&0), async move |tx| tx.scan(notes, KeyRange::all(), usize::MAX).await).unwrap();
    assert_eq!(db.len(by_number.id()).unwrap(), rows.len() as u64);
    rows.into_iter().map(|(key, _)| key).collect()
}

#[test]
fn a_transaction_with_too_much_redo_is_aborted_and_leaves_nothing() {
    const BOUND: usize = 4 << 10;
    let files = files();
    let db = builder(&files, 2).transaction_redo_bytes(BOUND).open(directory()).unwrap();
    let half = KEYS / 2;
    let local: Vec<u64> = (0..100).collect();
    let remote: Vec<u64> = std::iter::once(0).chain(half..half + 100).collect();
    // On neither worker alone is it too much.
    let both: Vec<u64> = (0..25).chain(half..half + 25).collect();
    for keys_of_it in [&local, &remote, &both] {
        for as_phase in [false, true] {
            let abort = insert_all(&db, keys_of_it.clone(), as_phase).unwrap_err();
            assert_eq!(abort.reason(), AbortReason::TransactionTooLarge, "{abort}");
            assert_eq!(abort.reason().advice(), Advice::FixInput);
            assert!(abort.detail().contains(&BOUND.to_string()), "{abort}");
            assert!(keys(&db).is_empty());
        }
    }
    // The same rows in several transactions, and a deletion of too many of them.
    let all: Vec<u64> = both.iter().copied().chain(100..140).collect();
    all.chunks(10).for_each(|keys| insert_all(&db, keys.to_vec(), true).unwrap());
    let notes = db.table::<Notes>().unwrap();
    let doomed = all.clone();
    let abort = db.run(notes.at(&0), async move |tx| {
        for key in doomed.iter().copied().cycle().take(10_000) {
            // What a procedure makes of the abort does not matter.
            let _ = tx.update(notes, key, |note| note.number += 1).await;
        }
        Ok(())
    });
    assert_eq!(abort.unwrap_err().reason(), AbortReason::TransactionTooLarge);
    let mut expected = all;
    expected.sort_unstable();
    assert_eq!(keys(&db), expected);
    drop(db);
    assert_eq!(keys(&builder(&files, 3).open(directory()).unwrap()), expected);
}

#[test]
fn a_device_that_stands_still_stops_transactions_and_loses_none() {
    const ROWS: u64 = 400;
    for workers in [1, 2] {
        let files = files();
        let gate = Gate::default();
        let device = gate.clone();
        let hooked = Hooked::new(&files, move |path| {
            if path.starts_with(directory().join("wal")) {
                device.pass();
            }
        });
        let db = builder(&files, workers)
            .files(hooked)
            .durability(Durability::Relaxed { max_loss_ms: 3_600_000 })
            .wal_buffer_bytes(workers * (4 << 10))
            .open(directory())
            .unwrap();
        let notes = db.table::<Notes>().unwrap();
        let closed = gate.close();
        let told = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&told);
        let session = db
            .spawn_session(WorkerId(0), async move |session| {
                for key in 0..ROWS {
                    session
                        .run(&notes.at(&key), async move |tx| tx.insert(notes, key, note(1, key)).await)
                        .await?;
                    counted.fetch_add(1, Ordering::SeqCst);
                }
                Ok::<(), Abort>(())
            })
            .unwrap();
        while db.statistics().aborted_for(AbortReason::Overloaded) == 0 {
            assert!(told.load(Ordering::SeqCst) < ROWS, "everything is buffered although nothing is written");
            std::thread::yield_now();
        }
        // A round that has not begun to write may have taken a full buffer, and another one is full: 8 KiB, of 80 bytes at
        // least for each row and its index entry.
        assert!(told.load(Ordering::SeqCst) < 150, "{} were told", told.load(Ordering::SeqCst));
        drop(closed);
        session.join().unwrap().unwrap();
        let report = db.close(std::time::Duration::from_secs(5));
        assert_eq!((report.dropped, report.failure), (0, None));
        let db = builder(&files, 1).open(directory()).unwrap();
        assert_eq!(keys(&db), (0..ROWS).collect::<Vec<_>>());
    }
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let refused = |set: fn(Builder) -> Builder| {
        let error = set(builder(&files(), 1)).open(directory()).unwrap_err();
        assert!(matches!(error, OpenError::Setting(_)), "{error}");
        error.to_string()
    };
    assert!(refused(|builder| builder.transaction_redo_bytes(0)).contains("at least 1"));
    assert!(refused(|builder| builder.transaction_redo_bytes(1 << 30)).contains("536870912"));
    assert!(refused(|builder| builder.wal_buffer_bytes(0)).contains("at least 1"));
}
