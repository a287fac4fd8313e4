//! Closing and opening: everything comes back, with other workers too, and through checkpoints.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use atrapos::{
    Abort, AbortReason, Adaptation, Database, Durability, Key, KeyRange, LoadProgress, OpenError,
    RefinedCosts, Schema, SchemeChange, Table, WorkerId, catalog::ColumnDef, read_scheme, row,
    sync_costs_machine,
};

use atrapos_durability::file::{FileSystem, ModelFiles};

use crate::durable::notes::{ByNumber, KEYS, Note, Notes, builder, directory, files, note, schema};

fn fill(db: &Database, from: u64, to: u64) {
    let notes = db.table::<Notes>().unwrap();
    for key in from..to {
        db.run(notes.at(&key), async move |tx| tx.insert(notes, key, note(key as usize, key)).await).unwrap();
    }
}

/// All rows, and the number of entries of the index.
fn contents(db: &Database) -> (Vec<(u64, Note)>, u64) {
    let (notes, by_number) = (db.table::<Notes>().unwrap(), db.index::<ByNumber>().unwrap());
    db.verify().unwrap();
    let rows =
        db.run(notes.at(&0), async move |tx| tx.scan(notes, KeyRange::all(), usize::MAX).await).unwrap();
    (rows, db.len(by_number.id()).unwrap())
}

fn shared(files: &ModelFiles) -> Arc<dyn FileSystem> {
    Arc::new(files.clone())
}

fn close(db: Database) {
    let report = db.close(Duration::from_secs(5));
    assert_eq!((report.dropped, report.failure), (0, None));
}

#[test]
fn everything_comes_back_with_any_number_of_workers() {
    let files = files();
    let db = builder(&files, 2).open(directory()).unwrap();
    fill(&db, 0, 60);
    let notes = db.table::<Notes>().unwrap();
    db.run(notes.at(&7), async move |tx| {
        tx.update(notes, 7, |note| note.text = "another text, and a longer one".repeat(3)).await?;
        tx.delete(notes, 8).await.map(drop)
    })
    .unwrap();
    let before = contents(&db);
    close(db);
    for workers in [1, 2, 3, 5] {
        let db = builder(&files, workers).open(directory()).unwrap();
        assert_eq!(contents(&db), before, "{workers} workers");
        if workers == 2 {
            db.checkpoint().unwrap();
        }
        // Later writes are newer than everything that was recovered.
        let text = format!("{workers} workers");
        db.run(notes_at(&db, 7), {
            let notes = db.table::<Notes>().unwrap();
            async move |tx| {
                let text = text.clone();
                tx.update(notes, 7, move |note| note.text = text).await.map(drop)
            }
        })
        .unwrap();
        let after = contents(&db);
        close(db);
        let db = builder(&files, workers + 1).open(directory()).unwrap();
        assert_eq!(contents(&db), after);
        db.run(notes_at(&db, 7), {
            let notes = db.table::<Notes>().unwrap();
            async move |tx| {
                tx.update(notes, 7, |note| note.text = "another text, and a longer one".repeat(3))
                    .await
                    .map(drop)
            }
        })
        .unwrap();
        close(db);
    }
}

fn notes_at(db: &Database, key: u64) -> atrapos::Route {
    db.table::<Notes>().unwrap().at(&key)
}

#[test]
fn islands_have_streams_of_their_own_and_any_number_of_them_comes_back() {
    let files = files();
    let machine = |spec: &str| atrapos_topology::Machine::synthetic(spec).unwrap();
    let streams =
        |files: &ModelFiles| atrapos_durability::wal::list_streams(files, directory()).unwrap().len();
    let two = || builder(&files, 4).machine(machine("pack:2 core:2 pu:1")).open(directory()).unwrap();
    let db = two();
    assert_eq!(streams(&files), 2, "one for each node");
    fill(&db, 0, 30);
    db.checkpoint().unwrap();
    // Only one island has anything to write: the other seals epochs all the same, or nobody would be told.
    fill(&db, 30, 60);
    let before = contents(&db);
    let crashed = files.power_cut(5);
    drop(db);
    let again = two();
    assert_eq!(contents(&again), before);
    close(again);
    let db = builder(&files, 3).open(directory()).unwrap();
    assert_eq!(contents(&db), before);
    let db = builder(&crashed, 1).open(directory()).unwrap();
    assert_eq!(contents(&db), before);
}

#[test]
fn a_clean_close_keeps_what_one_island_has_committed() {
    for round in 0..20 {
        let files = files();
        let machine = atrapos_topology::Machine::synthetic("pack:2 core:2 pu:1").unwrap();
        let relaxed = Durability::Relaxed { max_loss_ms: 10_000 };
        let db = builder(&files, 4).machine(machine).durability(relaxed).open(directory()).unwrap();
        // The last quarter of the keys is on the last worker, which is on the second node; the other island is idle.
        fill(&db, KEYS - 5, KEYS);
        close(db);
        let db = builder(&files, 2).open(directory()).unwrap();
        assert_eq!(contents(&db).0.len(), 5, "round {round}");
    }
}

#[test]
fn what_is_loaded_is_durable_when_the_load_returns() {
    let files = files();
    let db = builder(&files, 2).open(directory()).unwrap();
    let notes = db.table::<Notes>().unwrap();
    let loaded = db.load(&LoadProgress::default(), move |loader| {
        for key in loader.share_of(notes, 0, KEYS - 1).into_iter().flatten() {
            loader.add(notes, &key, &note(key as usize, key))?;
        }
        Ok(())
    });
    assert_eq!(loaded, Ok(KEYS));
    let before = contents(&db);
    let after = files.power_cut(7);
    let db = builder(&after, 3).open(directory()).unwrap();
    assert_eq!(contents(&db), before);
    assert_eq!(
        db.recovery_report().unwrap().rows,
        2 * KEYS,
        "rows and index entries come from the checkpoint"
    );
}

#[test]
fn a_load_and_a_checkpoint_take_turns() {
    let files = files();
    let db = builder(&files, 2).open(directory()).unwrap();
    let notes = db.table::<Notes>().unwrap();
    let (loading, is_loading) = std::sync::mpsc::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let may_go_on = Arc::new(std::sync::Mutex::new(may_go_on));
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            db.load(&LoadProgress::default(), move |loader| {
                for key in loader.share_of(notes, 0, KEYS - 1).into_iter().flatten() {
                    loader.add(notes, &key, &note(key as usize, key))?;
                }
                if loader.worker().0 == 1 {
                    loading.send(()).unwrap();
                    may_go_on.lock().unwrap().recv().unwrap();
                }
                Ok(())
            })
        });
        is_loading.recv().unwrap();
        // In the middle of the load: it must not see the half that the first worker has.
        let checkpoint = scope.spawn(|| db.checkpoint());
        go_on.send(()).unwrap();
        assert_eq!(load.join().unwrap(), Ok(KEYS));
        let checkpoint = checkpoint.join().unwrap().unwrap();
        assert_eq!((checkpoint.number, checkpoint.rows), (2, 2 * KEYS), "the first is that of the load");
    });
    assert_eq!(contents(&builder(&files.power_cut(1), 1).open(directory()).unwrap()), contents(&db));
}

#[test]
fn a_checkpoint_makes_segments_unnecessary_and_their_files_are_used_again() {
    let files = files();
    let db = builder(&files, 2).segment_bytes(8 << 10).open(directory()).unwrap();
    fill(&db, 0, 600);
    let segments = |files: &ModelFiles| {
        use atrapos_durability::file::FileSystem;
        let names = files.list(&directory().join("wal")).unwrap();
        (names.iter().filter(|name| name.ends_with(".wal")).count(), names.len())
    };
    let (many, _) = segments(&files);
    assert!(many > 5, "{many} segments");
    let report = db.checkpoint().unwrap();
    assert_eq!((report.number, report.rows), (1, 1200));
    fill(&db, 600, 640);
    let (left, all) = segments(&files);
    assert!(left < many && left < all, "{left} of {many} segments in {all} files");
    fill(&db, 640, 900);
    let (more, all_now) = segments(&files);
    assert!(more > left + 2 && all_now == all, "{more} segments in {all_now} files, {left} in {all} before");
    let before = contents(&db);
    let after = files.power_cut(1);
    let db = builder(&after, 1).open(directory()).unwrap();
    assert_eq!(contents(&db), before);
}

#[test]
fn checkpoints_are_made_by_themselves_when_the_wal_grows() {
    let files = files();
    let db = builder(&files, 2).checkpoint_wal_bytes(4 << 10).open(directory()).unwrap();
    let made = |files: &ModelFiles| {
        use atrapos_durability::file::FileSystem;
        !files.list(&directory().join("checkpoint")).unwrap().is_empty()
    };
    fill(&db, 0, 100);
    // A thread of its own makes it; how long that takes is not this test's to say.
    while !made(&files) {
        std::thread::yield_now();
    }
}

#[test]
fn a_checkpoint_leaves_out_what_is_not_finished() {
    let files = files();
    let db = Arc::new(builder(&files, 2).open(directory()).unwrap());
    fill(&db, 0, 20);
    let before = contents(&db);
    let notes = db.table::<Notes>().unwrap();
    let (changed, was_changed) = std::sync::mpsc::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let may_go_on = std::sync::Mutex::new(may_go_on);
    // It changes rows on both workers, and waits in the middle for a lock that a session holds.
    let blocker = db.spawn_session(WorkerId(1), async move |session| {
        session
            .run(&notes.at(&900), async move |tx| {
                tx.insert(notes, 900, note(0, 900)).await?;
                tx.get(notes, 0).await?;
                changed.send(()).unwrap();
                loop {
                    // Keeps its locks without keeping the worker.
                    tx.get(notes, 1).await?;
                    tx.get(notes, 2).await?;
                    if may_go_on.lock().unwrap().try_recv().is_ok() {
                        return Err::<(), _>(Abort::user("done"));
                    }
                }
            })
            .await
    });
    was_changed.recv().unwrap();
    let waiting = db
        .submit(notes.at(&3), async move |tx| {
            tx.update(notes, 3, |note| note.text = "unfinished".to_owned()).await?;
            tx.delete(notes, 4).await?;
            tx.insert(notes, 500, note(0, 500)).await?;
            tx.get(notes, 900).await.map(drop)
        })
        .unwrap();
    // A checkpoint cannot wait for it.
    let report = db.checkpoint().unwrap();
    let crashed = files.power_cut(3);
    let after = builder(&crashed, 1).open(directory()).unwrap();
    assert_eq!(contents(&after), before);
    assert_eq!(report.rows, 40);
    go_on.send(()).unwrap();
    assert_eq!(blocker.unwrap().join().unwrap().unwrap_err().reason(), AbortReason::User);
    waiting.wait().unwrap();
    let finished = contents(&db);
    let after = builder(&files.power_cut(4), 1).open(directory()).unwrap();
    assert_eq!(contents(&after), finished);
}

#[test]
fn the_schema_is_stored_and_another_one_is_refused() {
    struct Strange;
    row! { #[derive(Clone, Debug)] struct Other { number: u32 } }
    impl Table for Strange {
        type Key = u64;
        type Row = Other;
        const NAME: &'static str = "notes";
    }
    let files = files();
    let db = builder(&files, 2).open(directory()).unwrap();
    fill(&db, 0, 10);
    let before = contents(&db);
    close(db);
    let with = |schema: Schema| {
        Database::builder(schema).workers(1).pin(false).files(Arc::new(files.clone())).open(directory())
    };
    let error = with(Schema::new().table::<Strange>()).unwrap_err();
    assert!(matches!(error, OpenError::OtherSchema { .. }), "{error}");
    assert!(error.to_string().contains("notes"), "{error}");
    // Without any declaration everything is there.
    let stored =
        || Database::existing().workers(3).pin(false).files(Arc::new(files.clone())).open(directory());
    let db = stored().unwrap();
    let other = db.table::<Strange>().unwrap_err().to_string();
    assert!(
        other.contains("column 0 of table `notes` is `client` in the database but is declared as `number`"),
        "{other}"
    );
    let notes = db.table::<Notes>().unwrap();
    let insert = || db.run(notes.at(&77), async move |tx| tx.insert(notes, 77, note(1, 77)).await);
    assert_eq!(insert().unwrap_err().reason(), AbortReason::Misuse, "its index is not known yet");
    assert_eq!(contents(&db), before);
    insert().unwrap();
    db.verify().unwrap();
    let columns = db.columns(notes.id());
    let columns: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(columns, ["#1", "client", "number", "text"]);
    drop(db);
    assert_eq!(contents(&with(schema()).unwrap()).0.len(), 11);
}

#[test]
fn a_directory_is_opened_once_and_other_mistakes_are_told() {
    let scratch = Scratch::new("mistakes");
    let open = || Database::builder(schema()).workers(1).pin(false).open(&scratch.0);
    let db = open().unwrap();
    let error = open().unwrap_err().to_string();
    assert!(error.contains("is open in") && error.contains(&std::process::id().to_string()), "{error}");
    assert!(db.recovery_report().is_some());
    close(db);
    std::fs::write(scratch.0.join("MANIFEST"), b"nonsense").unwrap();
    let error = open().unwrap_err().to_string();
    assert!(error.contains("MANIFEST"), "{error}");
    let missing = Database::open(scratch.0.join("nothing")).unwrap_err().to_string();
    assert!(missing.contains("holds no database"), "{missing}");
    std::fs::create_dir(scratch.0.join("full")).unwrap();
    std::fs::write(scratch.0.join("full/thesis.txt"), b"years of work").unwrap();
    let full = Database::builder(schema()).workers(1).open(scratch.0.join("full")).unwrap_err().to_string();
    assert!(full.contains("thesis.txt"), "{full}");
    let relaxed = Database::builder(schema())
        .durability(Durability::Relaxed { max_loss_ms: 0 })
        .open(scratch.0.join("relaxed"))
        .unwrap_err();
    assert!(matches!(relaxed, OpenError::Setting(_)));
    let none = Database::existing().in_memory().unwrap_err().to_string();
    assert!(none.contains("declare"), "{none}");
}

#[test]
fn a_backup_of_a_running_database_opens_with_what_was_committed_before_it() {
    let files = files();
    let db = builder(&files, 2).open(directory()).unwrap();
    fill(&db, 0, 40);
    db.checkpoint().unwrap();
    fill(&db, 40, 60);
    let before = contents(&db);
    let to = std::path::Path::new("/data/copy");
    db.backup(to).unwrap();
    fill(&db, 60, 70);
    let copy = builder(&files, 3).open(to).unwrap();
    assert_eq!(contents(&copy), before);
    fill(&copy, 500, 510);
    assert_eq!(contents(&copy).0.len(), 70);
    assert_eq!(contents(&db).0.len(), 70);
    assert!(db.backup(to).is_err(), "there is a database already");
    let memory = builder(&files, 1).in_memory().unwrap();
    assert!(
        memory.backup(std::path::Path::new("/data/other")).unwrap_err().to_string().contains("in memory")
    );
}

#[test]
fn without_durability_only_checkpoints_survive() {
    let files = files();
    let none = || builder(&files, 2).durability(Durability::None).open(directory());
    let db = none().unwrap();
    fill(&db, 0, 20);
    let before = contents(&db);
    db.checkpoint().unwrap();
    fill(&db, 20, 40);
    close(db);
    assert_eq!(contents(&none().unwrap()), before);
    let memory = builder(&files, 1).in_memory().unwrap();
    assert!(memory.checkpoint().unwrap_err().to_string().contains("in memory"));
    assert_eq!(memory.wal_statistics(), None);
}

#[test]
fn relaxed_durability_becomes_durable_without_being_asked() {
    let files = files();
    let relaxed = Durability::Relaxed { max_loss_ms: 20 };
    let db = builder(&files, 2).durability(relaxed).open(directory()).unwrap();
    fill(&db, 0, 50);
    let epoch = |db: &Database| db.wal_statistics().unwrap().durable_epoch;
    let first = epoch(&db);
    fill(&db, 50, 51);
    // The bound is kept by a thread that does not wait for this one; how long that takes is not this test's to say.
    while epoch(&db) == first {
        std::thread::yield_now();
    }
    let before = contents(&db);
    close(db);
    assert_eq!(contents(&builder(&files, 2).open(directory()).unwrap()), before);
}

#[test]
fn costs_that_were_learnt_are_taken_at_the_next_opening() {
    let files = files();
    let mut adaptation = Adaptation::default();
    // Costs that no measurement of this machine replaces.
    let weights = &mut adaptation.controller.planning.weights;
    (weights.cycles_per_byte, weights.message_bytes, weights.exchange_cycles) = (1.25, 384.0, 777.0);
    let open = || builder(&files, 2).adaptation(adaptation).open(directory()).unwrap();
    let db = open();
    assert_eq!(db.sync_factor(), 1.0);
    let machine = sync_costs_machine(db.machine());
    close(db);
    let write = |text: &str| {
        let path = directory().join("COSTS");
        let _ = files.remove(&path);
        let mut file = files.create(&path).unwrap();
        file.write_at(0, text.as_bytes()).unwrap();
        file.sync().unwrap();
    };
    let body = format!(
        "atrapos-refined-costs 1\nmachine {machine}\ncycles_per_byte 1.25\nmessage_bytes 384\nexchange_cycles 777\nfactor 1.5\n"
    );
    let text = format!("{body}checksum {:08x}\n", crc32fast::hash(body.as_bytes()));
    write(&text);
    let db = open();
    assert_eq!((db.sync_factor(), db.warnings()), (1.5, Vec::new()));
    close(db);
    let read = RefinedCosts::read(&shared(&files), directory()).unwrap().expect("it is there");
    assert_eq!((read.factor, read.exchange_cycles), (1.5, 777.0));
    write(&text.replace("factor 1.5", "factor 1.6"));
    let db = open();
    assert_eq!(db.sync_factor(), 1.0);
    let warnings = db.warnings();
    assert!(
        warnings.iter().any(|warning| warning.contains("COSTS is not used, as it is damaged")),
        "{warnings:?}"
    );
    close(db);
}

/// First key (none: the smallest) and owner of each partition of the notes.
fn partitions(db: &Database) -> Vec<(Option<u64>, u16)> {
    let scheme = db.scheme();
    let family = scheme.family(db.table::<Notes>().unwrap().id());
    let first = |at| family.lower(at).map(|key| u64::decode(key).expect("a number"));
    (0..family.partitions()).map(|at| (first(at), family.owner(at).0)).collect()
}

#[test]
fn the_scheme_that_a_database_has_changed_to_is_used_at_the_next_opening() {
    let files = files();
    let db = builder(&files, 2).open(directory()).unwrap();
    fill(&db, 0, 60);
    let before = contents(&db);
    let declared = partitions(&db);
    assert_eq!(declared, [(None, 0), (Some(500), 1)]);
    close(db);
    assert_eq!(read_scheme(&shared(&files), directory()), Ok(None), "it has changed nothing");
    let db = builder(&files, 2).open(directory()).unwrap();
    let notes = db.table::<Notes>().unwrap();
    db.repartition([
        SchemeChange::split(notes, &20),
        SchemeChange::split(notes, &40),
        SchemeChange::move_to(notes, &20, WorkerId(1)),
    ])
    .unwrap();
    let adapted = [(None, 0), (Some(20), 1), (Some(40), 0), (Some(500), 1)];
    assert_eq!(partitions(&db), adapted);
    db.backup("/data/copy").unwrap();
    // A crash, at which nothing could be written any more.
    let crashed = files.power_cut(1);
    drop(db);
    for files in [&files, &crashed] {
        let db = builder(files, 2).open(directory()).unwrap();
        assert_eq!((partitions(&db), db.warnings()), (adapted.to_vec(), Vec::new()));
        assert_eq!(contents(&db), before);
        close(db);
        let db = builder(files, 1).open(directory()).unwrap();
        assert_eq!(partitions(&db), adapted.map(|(first, _)| (first, 0)), "as far as it fits");
        assert_eq!(contents(&db), before);
        close(db);
        let db = builder(files, 4).open(directory()).unwrap();
        assert_eq!(partitions(&db), [(None, 0), (Some(20), 2), (Some(40), 1), (Some(500), 3)]);
        assert_eq!(contents(&db), before);
        close(db);
    }
    let copy = builder(&files, 2).open("/data/copy").unwrap();
    assert_eq!((partitions(&copy), contents(&copy)), (adapted.to_vec(), before.clone()));
    close(copy);
    // A fixed scheme is the declared one, and leaves the other where it is.
    let db = builder(&files, 2).fixed_scheme().open(directory()).unwrap();
    assert_eq!(partitions(&db), declared);
    let notes = db.table::<Notes>().unwrap();
    db.repartition([SchemeChange::move_to(notes, &0, WorkerId(1))]).unwrap();
    close(db);
    let db = builder(&files, 2).open(directory()).unwrap();
    assert_eq!(partitions(&db), adapted);
    close(db);
    // One that is damaged is not used, and the database says so.
    let path = directory().join("SCHEME");
    let mut file = files.open(&path, true).unwrap();
    file.write_at(30, b"~").unwrap();
    drop(file);
    let db = builder(&files, 2).open(directory()).unwrap();
    assert_eq!((partitions(&db), contents(&db)), (declared, before));
    let warnings = db.warnings();
    assert!(
        warnings.iter().any(|warning| warning.contains("SCHEME is not used, as it is damaged")),
        "{warnings:?}"
    );
    close(db);
}

#[test]
fn a_table_that_is_defined_anew_keeps_its_stored_partitions_and_another_one_of_its_name_does_not() {
    let files = files();
    let open = || Database::existing().workers(2).pin(false).files(Arc::new(files.clone())).open(directory());
    close(builder(&files, 2).open(directory()).unwrap());
    let db = open().unwrap();
    let handle = |db: &Database| db.table_named("notes").unwrap().id();
    let owners = |db: &Database| {
        let scheme = db.scheme();
        let family = scheme.family(handle(db));
        (0..family.partitions()).map(|at| family.owner(at).0).collect::<Vec<_>>()
    };
    let (table, at) = (handle(&db), 500_u64.encode());
    db.repartition([SchemeChange::Move { table, at, to: WorkerId(0) }]).unwrap();
    db.drop_index("notes_by_number").unwrap();
    let column = ColumnDef { name: "more".to_owned(), ..db.columns(table)[0].clone() };
    db.add_column("notes", ColumnDef { nullable: true, ..column }).unwrap();
    assert_ne!(handle(&db), table, "it has a number of its own");
    assert_eq!(owners(&db), [0, 0]);
    close(db);
    let db = open().unwrap();
    assert_eq!(owners(&db), [0, 0]);
    let definition = db.definitions().trees[handle(&db).at()].clone();
    db.drop_table("notes").unwrap();
    let atrapos::catalog::TreeDef::Table(definition) = definition else { panic!("a table") };
    db.create_table(definition).unwrap();
    assert_eq!(owners(&db), [0, 1], "it is another table");
    close(db);
    assert_eq!(owners(&open().unwrap()), [0, 1]);
}

/// A real directory that is removed.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("atrapos-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn real_files_hold_a_database() {
    let scratch = Scratch::new("real");
    let open = |workers| Database::builder(schema()).workers(workers).pin(false).open(&scratch.0).unwrap();
    let db = open(2);
    fill(&db, 0, 100);
    let before = contents(&db);
    db.checkpoint().unwrap();
    close(db);
    let db = open(1);
    assert_eq!(contents(&db), before);
    drop(db);
    assert_eq!(contents(&Database::open(&scratch.0).map(with_index).unwrap()), before);
}

/// Makes the index of a database opened without its schema known.
fn with_index(db: Database) -> Database {
    db.index::<ByNumber>().unwrap();
    db
}
