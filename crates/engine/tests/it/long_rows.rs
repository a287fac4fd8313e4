//! Rows of up to 1 MiB: inserted, changed, deleted and undone, recovered, in checkpoints and backups, and on their way between
//! workers; longer ones are refused.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use atrapos::{
    Abort, AbortReason, Advice, Builder, Database, Key, KeyRange, LoadProgress, Route, Schema, SchemeChange,
    Session, Table, TableRef, WorkerId, row,
};
use atrapos_durability::file::ModelFiles;
use atrapos_storage::{MAX_ROW_BYTES, Row};

use crate::durable::notes::files;
use crate::support::{Engine, Random, for_seeds, until_done};

row! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Blob {
        number: u64,
        bytes: Vec<u8>,
    }
}

struct Blobs;

impl Table for Blobs {
    type Key = u64;
    type Row = Blob;
    const NAME: &'static str = "blobs";
}

/// Keys are below this.
const KEYS: u64 = 100;

/// Bytes that make a row as long as one may be: besides them there are a number and a length.
const LONGEST: usize = MAX_ROW_BYTES - 8 - 6;

fn schema() -> Schema {
    Schema::new().table::<Blobs>().split_evenly("blobs", 0, KEYS - 1)
}

/// A row of `len` bytes that tells which it is.
fn blob(number: u64, len: usize) -> Blob {
    Blob { number, bytes: (0..len).map(|at| (number as usize * 13 + at * 7 + at / 255) as u8).collect() }
}

fn builder(files: &ModelFiles, workers: usize) -> Builder {
    Database::builder(schema()).workers(workers).pin(false).huge_pages(false).files(Arc::new(files.clone()))
}

fn directory() -> &'static Path {
    Path::new("/data/blobs")
}

/// The numbers and lengths of all rows, which are all whole.
fn contents(db: &Database) -> BTreeMap<u64, (u64, usize)> {
    db.verify().unwrap();
    let blobs = db.table::<Blobs>().unwrap();
    let rows =
        db.run(blobs.at(&0), async move |tx| tx.scan(blobs, KeyRange::all(), usize::MAX).await).unwrap();
    let told = |(key, row): (u64, Blob)| {
        assert!(row == blob(row.number, row.bytes.len()), "row {key} is not whole");
        (key, (row.number, row.bytes.len()))
    };
    rows.into_iter().map(told).collect()
}

/// Gives `key` a row of `len` bytes, whether it has one or not.
fn put(db: &Database, key: u64, number: u64, len: usize) -> Result<(), Abort> {
    let blobs = db.table::<Blobs>().unwrap();
    // From the worker of the first key: other rows are elsewhere.
    db.run(blobs.at(&0), async move |tx| {
        if tx.update(blobs, key, move |row| *row = blob(number, len)).await?.is_none() {
            tx.insert(blobs, key, blob(number, len)).await?;
        }
        Ok(())
    })
}

fn delete(db: &Database, key: u64) -> Option<Blob> {
    let blobs = db.table::<Blobs>().unwrap();
    db.run(blobs.at(&0), async move |tx| tx.delete(blobs, key).await).unwrap()
}

#[test]
fn the_longest_row_has_exactly_a_mebibyte() {
    assert_eq!(blob(1, LONGEST).encoded_len(), 1_048_576);
    let db = crate::support::open(schema(), 2);
    for (key, neighbour) in [(1, 2), (99, 98)] {
        put(&db, key, 1, LONGEST).unwrap();
        put(&db, neighbour, 2, 10).unwrap();
    }
    let before = contents(&db);
    let memory = db.memory_bytes().unwrap();
    assert!(memory >= 2 * MAX_ROW_BYTES, "{memory}");
    for key in [1, 2, 99, 50, 51, 10, 90] {
        let abort = put(&db, key, 3, LONGEST + 1).unwrap_err();
        assert_eq!((abort.reason(), abort.reason().advice()), (AbortReason::RowTooLarge, Advice::FixInput));
        let told = abort.detail();
        assert!(told.contains("'blobs'") && told.contains("1048577") && told.contains("1048576"), "{told}");
    }
    assert_eq!(contents(&db), before);
    let blobs = db.table::<Blobs>().unwrap();
    let loaded = db.load(&LoadProgress::default(), move |loader| {
        for key in loader.share_of(blobs, 60, 60).into_iter().flatten() {
            loader.add(blobs, &key, &blob(1, LONGEST + 1))?;
        }
        Ok(())
    });
    let told = loaded.unwrap_err().to_string();
    assert!(told.contains("1048577 bytes") && told.contains("at most 1048576"), "{told}");
    assert_eq!(contents(&db), before);
    for key in [1, 99] {
        assert!(delete(&db, key) == Some(blob(1, LONGEST)), "what is deleted is returned");
    }
    let memory = db.memory_bytes().unwrap();
    assert!(memory < 2 * (2 << 20) + MAX_ROW_BYTES, "{memory} bytes are left");
}

#[test]
fn loaded_rows_may_be_long() {
    let db = crate::support::open(schema(), 2);
    let blobs = db.table::<Blobs>().unwrap();
    let len = |key: u64| if key.is_multiple_of(9) { LONGEST - key as usize } else { 3 * key as usize };
    let loaded = db.load(&LoadProgress::default(), move |loader| {
        for key in loader.share_of(blobs, 0, 49).into_iter().flatten() {
            loader.add(blobs, &key, &blob(key, len(key)))?;
        }
        Ok(())
    });
    assert_eq!(loaded, Ok(50));
    assert_eq!(contents(&db), (0..50).map(|key| (key, (key, len(key)))).collect());
}

#[test]
fn an_abort_puts_every_length_back() {
    let db = crate::support::open(schema(), 2);
    let lens = [0, 30, 1_600, 1_700, 60_000, LONGEST];
    for (at, len) in lens.into_iter().enumerate() {
        for key in [at as u64, 80 + at as u64] {
            put(&db, key, key, len).unwrap();
        }
    }
    let before = contents(&db);
    let blobs = db.table::<Blobs>().unwrap();
    for len in lens {
        let aborted = db.run(blobs.at(&0), async move |tx| {
            for key in (0..lens.len() as u64).flat_map(|at| [at, 80 + at]) {
                tx.update(blobs, key, move |row| *row = blob(900, len)).await?;
                tx.update(blobs, key, |row| row.bytes.truncate(20)).await?;
                tx.delete(blobs, key).await?;
                tx.insert(blobs, key, blob(901, len / 2)).await?;
                tx.insert(blobs, 20 + key % 50, blob(902, len)).await?;
            }
            Err::<(), Abort>(Abort::user("as it was told"))
        });
        assert_eq!(aborted.unwrap_err().reason(), AbortReason::User);
        assert_eq!(contents(&db), before, "changed to {len} bytes");
    }
}

#[test]
fn a_savepoint_puts_every_length_back() {
    let db = crate::support::open(schema(), 2);
    let lens = [0, 1_600, 1_700, 60_000, LONGEST];
    for (at, len) in lens.into_iter().enumerate() {
        for key in [at as u64, 80 + at as u64] {
            put(&db, key, key, len).unwrap();
        }
    }
    let blobs = db.table::<Blobs>().unwrap();
    for len in lens {
        let kept = db.run(blobs.at(&0), async move |tx| {
            let keys = || (0..lens.len() as u64).flat_map(|at| [at, 80 + at]);
            for key in keys() {
                tx.update(blobs, key, move |row| *row = blob(key, len)).await?;
            }
            let savepoint = tx.savepoint()?;
            for key in keys() {
                tx.update(blobs, key, move |row| *row = blob(901, LONGEST - len)).await?;
                tx.delete(blobs, key).await?;
                tx.insert(blobs, key, blob(902, len / 3)).await?;
            }
            tx.rollback_to(savepoint).await
        });
        assert_eq!(kept, Ok(()));
        let expected = (0..lens.len() as u64).flat_map(|at| [at, 80 + at]).map(|key| (key, (key, len)));
        assert_eq!(contents(&db), expected.collect());
    }
}

#[test]
fn they_survive_crashes_and_checkpoints() {
    let files = files();
    let db = builder(&files, 2).open(directory()).unwrap();
    for (key, len) in [(0, LONGEST), (1, 70_000), (2, 40), (97, LONGEST), (98, 5), (99, 65_530)] {
        put(&db, key, key, len).unwrap();
    }
    let first = contents(&db);
    let files = files.power_cut(1);
    drop(db);
    let db = builder(&files, 3).open(directory()).unwrap();
    assert_eq!(contents(&db), first);
    db.checkpoint().unwrap();
    let again = builder(&files.power_cut(2), 1).open(directory()).unwrap();
    assert_eq!(contents(&again), first);
    // Long to short, short to long, a few bytes of a long one, and gone.
    put(&db, 0, 7, 12).unwrap();
    put(&db, 2, 8, LONGEST).unwrap();
    put(&db, 97, 9, LONGEST - 1).unwrap();
    assert!(delete(&db, 1).is_some());
    let blobs = db.table::<Blobs>().unwrap();
    let patched = db.run(blobs.at(&99), async move |tx| {
        tx.update(blobs, 99, |row| *row = blob(100, row.bytes.len())).await
    });
    assert_eq!(patched, Ok(Some(())));
    let second = contents(&db);
    assert_ne!(second, first);
    // On top of the checkpoint.
    let again = builder(&files.power_cut(3), 2).open(directory()).unwrap();
    assert_eq!(contents(&again), second);
}

#[test]
fn a_backup_and_what_was_closed_have_them_all() {
    let files = files();
    let db = builder(&files, 2).open(directory()).unwrap();
    for key in 0..12 {
        put(&db, key * 8, key, if key % 3 == 0 { LONGEST - key as usize } else { 100 * key as usize })
            .unwrap();
    }
    db.checkpoint().unwrap();
    for key in [0, 1, 16, 80] {
        put(&db, key, 50 + key, 300_000).unwrap();
    }
    let before = contents(&db);
    let copy = Path::new("/data/copy");
    db.backup(copy).unwrap();
    let report = db.close(Duration::from_secs(20));
    assert_eq!((report.dropped, report.failure), (0, None));
    for (workers, path) in [(1, directory()), (3, copy)] {
        let db = builder(&files, workers).open(path).unwrap();
        assert_eq!(contents(&db), before, "{}", path.display());
    }
}

#[test]
fn partitions_with_them_are_split_moved_and_merged() {
    let db = crate::support::open(schema(), 2);
    for key in 0..30 {
        put(&db, key, key, if key % 2 == 0 { 150_000 + key as usize } else { 9 }).unwrap();
    }
    let (before, table) = (contents(&db), db.table::<Blobs>().unwrap().id());
    let memory = db.memory_bytes().unwrap();
    for (cut, to) in [(10_u64, 1_u16), (15, 0), (11, 1), (1, 1)] {
        let (at, to) = (cut.encode(), WorkerId(to));
        let changes = vec![
            SchemeChange::Split { table, at: at.clone() },
            SchemeChange::Move { table, at: at.clone(), to },
        ];
        db.repartition(changes).unwrap();
        assert_eq!(contents(&db), before);
        // What has gone to another worker is changed there.
        put(&db, cut, cut, 400_000).unwrap();
        let (_, len) = before[&cut];
        put(&db, cut, cut, len).unwrap();
        let back = vec![
            SchemeChange::Move { table, at: at.clone(), to: WorkerId(0) },
            SchemeChange::Merge { table, at },
        ];
        db.repartition(back).unwrap();
        assert_eq!(contents(&db), before);
    }
    let after = db.memory_bytes().unwrap();
    assert!(after < memory + (8 << 20), "{memory} bytes became {after}");
}

/// Sessions with keys of their own.
const SESSIONS: usize = 4;

/// Runs transactions that write and delete rows of any length, of which some abort; what is left of the keys of the session.
async fn a_session(
    session: &Session,
    blobs: TableRef<Blobs>,
    number: usize,
    mut random: Random,
) -> Result<BTreeMap<u64, (u64, usize)>, Abort> {
    let mut left = BTreeMap::new();
    for round in 0..12 {
        let mut next = left.clone();
        let mut changes = Vec::new();
        for _ in 0..1 + random.below(4) {
            let key = random.below(KEYS / SESSIONS as u64) * SESSIONS as u64 + number as u64;
            let lens = [10, 1_000, 1_500, 1_600, 5_000, 70_000, random.below(200_000) as usize];
            let len = random.chance(75).then(|| lens[random.below(7) as usize]);
            match len {
                Some(len) => drop(next.insert(key, (round, len))),
                None => drop(next.remove(&key)),
            }
            changes.push((key, len));
        }
        let aborts = random.chance(40);
        let home = blobs.at(&random.below(KEYS));
        let done = until_done(session, &home, async move |tx| {
            for (key, len) in changes.clone() {
                let Some(len) = len else {
                    tx.delete(blobs, key).await?;
                    continue;
                };
                if tx.update(blobs, key, move |row| *row = blob(round, len)).await?.is_none() {
                    tx.insert(blobs, key, blob(round, len)).await?;
                }
            }
            if aborts { Err(Abort::user("as it was told")) } else { Ok(()) }
        });
        match done.await {
            Ok(()) => left = next,
            Err(abort) if abort.reason() == AbortReason::User => {}
            Err(abort) => return Err(abort),
        }
    }
    Ok(left)
}

#[test]
fn sessions_agree_with_a_model_while_partitions_change() {
    for_seeds(6, |seed| {
        let mut engine = Engine::simulated(schema(), 3, seed);
        let (blobs, random) = (engine.table::<Blobs>(), Random::new(seed));
        let ended = engine.sessions(SESSIONS, 3, async move |session, number| {
            a_session(session, blobs, number, random.part(number)).await
        });
        let mut expected = BTreeMap::new();
        for session in ended.unwrap() {
            expected.extend(session.expect("nothing is refused"));
        }
        let rows = engine.run(Route::worker(WorkerId(0)), async move |tx| {
            tx.scan(blobs, KeyRange::all(), usize::MAX).await
        });
        for (key, row) in rows.unwrap() {
            assert_eq!(expected.remove(&key), Some((row.number, row.bytes.len())));
            assert!(row == blob(row.number, row.bytes.len()), "row {key} is not whole");
        }
        assert_eq!(expected, BTreeMap::new(), "rows are missing");
        let Engine::Simulated(simulation, _) = engine else { unreachable!("it was made so") };
        simulation.check_trees().expect("the trees are whole");
    });
}
