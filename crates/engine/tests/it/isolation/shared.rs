//! Shared tables: the scenarios of isolation again, with tables that are lent to their readers and recalled for each write, while
//! partitions are split, merged and moved; what lending promises besides; and the controller, which shares tables that nobody declared.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use atrapos::catalog::{ColumnDef, Value};
use atrapos::{
    Abort, Adaptation, ColumnType, Database, KeyRange, LoadProgress, Route, Schema, Session,
    StoredProcedure as _, Table, TableRef, Upcoming, WorkerId, row,
};

use super::{anomalies, bank, by_hand, hermitage, lists, simulated, threaded};
use crate::indexes::{Users, user, users};
use crate::support::{Engine, Item, Items, for_seeds, item, load_items, open, until_done, wait_until};

pub(crate) fn shared_lists() -> Schema {
    lists::lists().shared("lists")
}

pub(crate) fn shared_items() -> Schema {
    anomalies::items().shared("items")
}

pub(crate) fn shared_accounts() -> Schema {
    bank::few_accounts().shared("items")
}

fn shared_numbers() -> Schema {
    by_hand::numbers().shared("numbers")
}

fn shared_users() -> Schema {
    users().shared("users")
}

#[test]
fn histories_of_shared_tables_are_serializable_simulated() {
    let (lent, recalled, in_place) = (Cell::new(0), Cell::new(0), Cell::new(0));
    for_seeds(150, |seed| {
        let workers = 2 + (seed % 3) as usize;
        let mut engine = Engine::simulated(shared_lists(), workers, seed);
        if let Err(wrong) = lists::serializable_reading(&mut engine, workers, seed) {
            panic!("with seed {seed}: {wrong}");
        }
        lent.set(lent.get() + engine.statistics().lent);
        recalled.set(recalled.get() + engine.statistics().recalled);
        in_place.set(in_place.get() + engine.statistics().in_place);
    });
    let (lent, recalled, in_place) = (lent.get(), recalled.get(), in_place.get());
    assert!(
        lent > 100 && recalled > 100 && in_place > 100,
        "{lent} were lent, {recalled} recalled; {in_place} transactions began in place"
    );
}

#[test]
fn histories_of_shared_tables_are_serializable_on_threads() {
    threaded(8, shared_lists, lists::serializable_reading);
}

#[test]
fn histories_of_shared_tables_of_several_instances_are_serializable() {
    for_seeds(60, |seed| {
        let workers = 3 + (seed % 2) as usize;
        let mut engine = Engine::deployed(shared_lists, workers, seed);
        if let Err(wrong) = lists::serializable(&mut engine, workers, seed) {
            panic!("with seed {seed}: {wrong}");
        }
    });
}

#[test]
fn shared_tables_have_no_anomalies_simulated() {
    simulated(25, shared_items, anomalies::phantoms);
    simulated(25, shared_users, anomalies::index_phantoms);
    simulated(25, shared_items, anomalies::write_skew);
    simulated(25, shared_items, anomalies::lost_update);
    simulated(25, shared_items, anomalies::absent_keys);
    simulated(25, shared_accounts, bank::few);
}

#[test]
fn shared_tables_have_no_anomalies_on_threads() {
    threaded(6, shared_items, anomalies::phantoms);
    threaded(6, shared_users, anomalies::index_phantoms);
    threaded(6, shared_accounts, bank::few);
}

#[test]
fn shared_tables_pass_the_hermitage() {
    let schedules = [
        hermitage::g0,
        hermitage::g1a,
        hermitage::g1b,
        hermitage::g1c,
        hermitage::otv,
        hermitage::pmp,
        hermitage::pmp_by_index,
        hermitage::pmp_write,
        hermitage::p4,
        hermitage::g_single,
        hermitage::g_single_predicate,
        hermitage::g_single_write,
        hermitage::g2_item,
        hermitage::g2,
        hermitage::g2_by_index,
        hermitage::g2_two_edges,
    ];
    schedules.into_iter().for_each(|schedule| simulated(12, shared_numbers, schedule));
}

/// Reads rows of worker 1 on worker 0, in transactions of two reads, the second one by a scan. Returns the sum of the values.
fn read_elsewhere(engine: &mut Engine, times: usize) -> Result<i64, String> {
    let items = engine.table::<Items>();
    let read = engine.sessions(1, 2, async move |session, _| {
        let (mut sum, home) = (0, Route::worker(WorkerId(0)));
        for _ in 0..times {
            let read = until_done(session, &home, async move |tx| {
                let one = tx.get(items, 80).await?.map_or(0, |row| row.value);
                let few = tx.scan(items, KeyRange::between(&90_u64, &92_u64), 10).await?;
                Ok(one + few.iter().map(|(_, row)| row.value).sum::<i64>())
            });
            sum += read.await.map_err(|abort| abort.to_string())?;
        }
        Ok::<i64, String>(sum)
    })?;
    read.into_iter().sum()
}

fn write_at_owner(engine: &mut Engine, value: i64) -> Result<(), String> {
    let items = engine.table::<Items>();
    let written = engine.run(items.at(&80), async move |tx| {
        tx.join_all([80, 90, 91].map(|key| items.insert_if_absent(key, item(0)))).await?;
        let set = |key| items.update(key, move |row| row.value = value);
        tx.join_all([80, 90, 91].map(set)).await.map(drop)
    });
    written.map_err(|abort| abort.to_string())
}

#[test]
fn who_reads_some_times_borrows_and_a_write_recalls() {
    let engines = [Engine::simulated_at_rest(shared_items(), 2, 7), Engine::threads(shared_items(), 2)];
    for mut engine in engines {
        write_at_owner(&mut engine, 5).unwrap();
        assert_eq!(read_elsewhere(&mut engine, 10), Ok(150));
        let before = engine.statistics();
        assert_eq!(before.lent, 1, "worker 0 borrows the partition of worker 1");
        assert_eq!(read_elsewhere(&mut engine, 50), Ok(750));
        let reads = engine.statistics().since(&before);
        assert_eq!((reads.remote_actions, reads.locks_entered, reads.lent), (0, 0, 0), "no message, no lock");
        write_at_owner(&mut engine, 6).unwrap();
        let written = engine.statistics().since(&before);
        assert_eq!(written.recalled, 1);
        assert_eq!(read_elsewhere(&mut engine, 10), Ok(180));
        assert_eq!(engine.statistics().since(&before).lent, 1, "reads prevail again");
    }
}

atrapos::stored_procedures! {
    /// Reads rows, and adds one to the first of them if it `writes`, although its route says that it reads.
    Sum("shared.sum", "sum") { keys: Vec<u64>, writes: bool } -> i64;
    tables TableRef<Items>: |db| db.table();
    home: |own, items| items.at(&own.keys[0]).reading();
    run: |own, tx, items| async move {
        let mut sum = 0;
        for key in &own.keys {
            sum += tx.get(*items, *key).await?.map_or(0, |row| row.value);
        }
        if own.writes {
            tx.update(*items, own.keys[0], |row| row.value += 1).await?;
        }
        Ok(sum)
    };
}

/// Runs `sum` so often on worker 0, and returns the sum of its results.
fn sum_on_worker_0(engine: &mut Engine, times: usize, sum: &Sum) -> i64 {
    let (items, sum) = (engine.table::<Items>(), sum.clone());
    let ran = engine.sessions(1, 2, async move |session, _| {
        let (mut all, sum) = (0, &sum);
        for _ in 0..times {
            let route = sum.home(&items);
            let mut upcoming = Upcoming::new();
            upcoming.push(route.clone());
            session.look_up(&upcoming);
            let known = upcoming.take().expect("one was added");
            all += session.run_known(known, &items, sum).await?;
            all += session.run_stored(&route, &items, sum).await?;
            let closure = sum.clone().into_closure(items);
            all += session.run(&route, closure).await?;
        }
        Ok::<i64, Abort>(all)
    });
    ran.expect("it runs").into_iter().map(|sum| sum.expect("it commits")).sum()
}

#[test]
fn procedures_that_only_read_run_where_their_data_is_lent() {
    let engines = [Engine::simulated_at_rest(shared_items(), 2, 7), Engine::threads(shared_items(), 2)];
    for mut engine in engines {
        write_at_owner(&mut engine, 5).unwrap();
        let sum = Sum { keys: vec![80, 90], writes: false };
        assert_eq!(sum_on_worker_0(&mut engine, 10, &sum), 300);
        let before = engine.statistics();
        assert_eq!(before.lent, 1, "{before:?}");
        assert_eq!(sum_on_worker_0(&mut engine, 10, &sum), 300);
        let reads = engine.statistics().since(&before);
        assert_eq!((reads.forwarded, reads.remote_actions, reads.locks_entered), (0, 0, 0), "{reads:?}");
        assert!(reads.in_place >= 30, "{reads:?}");
        // A write recalls the partition, and is seen.
        write_at_owner(&mut engine, 6).unwrap();
        assert_eq!(sum_on_worker_0(&mut engine, 10, &sum), 360);
    }
}

#[test]
fn a_procedure_that_writes_although_its_route_says_that_it_reads_is_right() {
    let engines = [Engine::simulated_at_rest(shared_items(), 2, 7), Engine::threads(shared_items(), 2)];
    for mut engine in engines {
        write_at_owner(&mut engine, 0).unwrap();
        let reads = Sum { keys: vec![80], writes: false };
        assert_eq!(sum_on_worker_0(&mut engine, 10, &reads), 0);
        assert_eq!(engine.statistics().lent, 1);
        let writes = Sum { keys: vec![80], writes: true };
        assert_eq!(sum_on_worker_0(&mut engine, 1, &writes), 1 + 2, "each sees those before it");
        assert_eq!(sum_on_worker_0(&mut engine, 1, &reads), 9);
        assert!(engine.statistics().recalled > 0);
    }
}

#[test]
fn a_procedure_that_needs_more_than_is_lent_runs_at_the_owner() {
    let mut engine = Engine::simulated_at_rest(shared_items(), 3, 7);
    write_at_owner(&mut engine, 5).unwrap();
    let one = Sum { keys: vec![80], writes: false };
    assert_eq!(sum_on_worker_0(&mut engine, 10, &one), 150);
    // Key 40 is worker 1's, and was never read here.
    let both = Sum { keys: vec![80, 40], writes: false };
    let items = engine.table::<Items>();
    let before = engine.statistics();
    let ran = engine.sessions(1, 3, async move |session, _| {
        let route = both.home(&items);
        session.run_stored(&route, &items, &both).await
    });
    assert_eq!(ran.expect("it runs"), [Ok(5)]);
    let since = engine.statistics().since(&before);
    assert_eq!((since.in_place, since.forwarded), (1, 1), "{since:?}");
}

#[test]
fn a_table_that_is_not_declared_as_shared_is_not_lent() {
    let mut engine = Engine::simulated_at_rest(anomalies::items(), 2, 7);
    write_at_owner(&mut engine, 5).unwrap();
    assert_eq!(read_elsewhere(&mut engine, 10), Ok(150));
    assert_eq!(engine.statistics().lent, 0);
}

#[test]
fn a_table_that_the_schema_lacks_is_not_shared() {
    let refused = Database::builder(anomalies::items().shared("item")).in_memory();
    let why = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(why.contains("'item' is declared as shared, but the schema has no such table"), "{why}");
}

#[test]
fn what_is_lent_is_loaded_dropped_and_verified_like_any_table() {
    let mut engine = Engine::threads(shared_items(), 2);
    write_at_owner(&mut engine, 5).unwrap();
    assert_eq!(read_elsewhere(&mut engine, 10), Ok(150));
    let Engine::Threads(db, _) = &engine else { unreachable!("it has threads") };
    assert_eq!(db.statistics().lent, 1);
    assert_eq!(db.verify().unwrap().rows, 3, "each row counts once");
    let items = db.table::<Items>().unwrap();
    let loaded = db.load(&LoadProgress::default(), move |loader| {
        let keys = loader.share_of(items, 92, 99).into_iter().flatten();
        keys.into_iter().try_for_each(|key| loader.add(items, &key, &item(1)))
    });
    assert_eq!(loaded, Ok(8));
    assert_eq!(read_elsewhere(&mut engine, 10), Ok(150));
    let Engine::Threads(db, _) = &engine else { unreachable!("it has threads") };
    assert_eq!(db.verify().unwrap().rows, 11);
    assert_eq!(db.statistics().lent, 2);
    db.drop_table("items").unwrap();
    assert_eq!(db.verify().unwrap().rows, 0);
}

row! {
    #[derive(Clone)]
    struct Wider {
        value: i64,
        text: String,
        more: u32,
    }
}

/// `items` with another column.
struct WiderItems;

impl Table for WiderItems {
    type Key = u64;
    type Row = Wider;
    const NAME: &'static str = "items";
}

#[test]
fn a_table_with_another_column_stays_shared() {
    let mut engine = Engine::threads(shared_items(), 2);
    write_at_owner(&mut engine, 5).unwrap();
    let Engine::Threads(db, _) = &engine else { unreachable!("it has threads") };
    let column =
        ColumnDef { default: Some(Value::Unsigned(1)), ..ColumnDef::new("more", ColumnType::Unsigned(4)) };
    db.add_column("items", column).unwrap();
    let items = db.table::<WiderItems>().unwrap();
    for _ in 0..20 {
        let read = db.run(Route::worker(WorkerId(0)), async move |tx| tx.get(items, 80).await).unwrap();
        assert_eq!(read.map(|row| (row.value, row.more)), Some((5, 1)));
    }
    assert_eq!(db.statistics().lent, 1);
}

#[test]
fn an_index_is_shared_with_its_table() {
    let mut engine = Engine::threads(shared_users(), 2);
    let (table, by_email) = (engine.table::<Users>(), engine.index::<crate::indexes::ByEmail>());
    let added = engine.run(Route::worker(WorkerId(0)), async move |tx| {
        tx.join_all((0..100).map(|key| table.insert(key, user(1, &format!("{key}@x"))))).await.map(drop)
    });
    added.unwrap();
    for worker in [0, 1].into_iter().cycle().take(100) {
        let found = engine.run(Route::worker(WorkerId(worker)), async move |tx| {
            tx.get_by(by_email, table, "9@x".to_owned()).await
        });
        assert!(found.unwrap().is_some());
    }
    let before = engine.statistics();
    assert!(before.lent > 0);
    for worker in [0, 1].into_iter().cycle().take(20) {
        let found = engine.run(Route::worker(WorkerId(worker)), async move |tx| {
            tx.get_by(by_email, table, "9@x".to_owned()).await
        });
        assert!(found.unwrap().is_some());
    }
    assert_eq!(engine.statistics().since(&before).remote_actions, 0);
}

#[test]
fn loaded_rows_are_lent() {
    let db = open(shared_items(), 2);
    load_items(&db, 100, 2);
    let mut engine = Engine::Threads(db, None);
    assert_eq!(read_elsewhere(&mut engine, 20), Ok(120));
    assert_eq!(engine.statistics().lent, 1);
}

/// Switches of the sessions: that they write, and that they end.
#[derive(Default)]
struct Load {
    writes: AtomicBool,
    ends: AtomicBool,
}

/// Reads rows of both workers, in transactions of two reads, and increments both if `load` says so, until it ends.
/// Returns the number of increments.
async fn read_and_write(session: &Session, items: TableRef<Items>, load: &Load) -> u64 {
    let (mut written, home) = (0, Route::worker(session.worker()));
    while !load.ends.load(Ordering::Relaxed) {
        let writes = load.writes.load(Ordering::Relaxed);
        let done = until_done(session, &home, async move |tx| {
            tx.join_all([10, 80].map(|key| items.get(key))).await?;
            if writes {
                let add_one = |key| items.update(key, |row: &mut Item| row.value += 1);
                tx.join_all([10, 80].map(add_one)).await?;
            }
            Ok(())
        });
        done.await.expect("it is done");
        written += u64::from(writes);
    }
    written
}

#[test]
fn the_controller_shares_what_all_read_until_it_is_written() {
    let mut adaptation = Adaptation { sample_every: 1, ..Adaptation::default() };
    let controller = &mut adaptation.controller;
    (controller.interval, controller.interval_max) = (Duration::from_millis(20), Duration::from_millis(20));
    // Without optimisation, all but messages takes long.
    controller.share_gain = 0.001;
    let db = Database::builder(anomalies::items()).workers(2).huge_pages(false).adaptation(adaptation);
    let db = db.in_memory().expect("it opens");
    let items = db.table::<Items>().expect("it is there");
    let added = db.run(items.at(&80), async move |tx| {
        tx.join_all([10, 80].map(|key| items.insert(key, item(0)))).await.map(drop)
    });
    added.expect("the rows are new");
    let load = Arc::new(Load::default());
    let sessions: Vec<_> = [0, 1, 0, 1]
        .map(|worker| {
            let load = Arc::clone(&load);
            let run = async move |session: Session| read_and_write(&session, items, &load).await;
            db.spawn_session(WorkerId(worker), run).expect("the database is open")
        })
        .into();
    let decided = |words: &str| {
        db.adaptation_history().iter().filter(|event| event.decision.to_string().contains(words)).count()
    };
    wait_until(|| decided("it is shared, and read in place") > 0 && db.statistics().lent > 0);
    load.writes.store(true, Ordering::Relaxed);
    wait_until(|| decided("it is shared no longer") > 0);
    load.ends.store(true, Ordering::Relaxed);
    let written: u64 = sessions.into_iter().map(|session| session.join().expect("it ends")).sum();
    let row = db.run(items.at(&80), async move |tx| tx.get(items, 80).await).expect("it is read");
    assert_eq!(row.map(|row| row.value as u64), Some(written));
    db.verify().expect("nothing is wrong");
}

#[test]
fn reads_in_place_are_counted_apart() {
    let mut adaptation = Adaptation { sample_every: 1, ..Adaptation::default() };
    let controller = &mut adaptation.controller;
    // It is the test that looks at what was observed.
    (controller.interval, controller.interval_max) = (Duration::from_secs(3600), Duration::from_secs(3600));
    let db = Database::builder(shared_items()).workers(2).huge_pages(false).adaptation(adaptation);
    let db = db.in_memory().expect("it opens");
    let items = db.table::<Items>().expect("it is there");
    let added = db.run(items.at(&80), async move |tx| {
        tx.join_all([10, 80].map(|key| items.insert(key, item(0)))).await.map(drop)
    });
    added.expect("the rows are new");
    let read = |key: u64| {
        let run = async move |session: Session| {
            for _ in 0..1_000 {
                session.run(&items.at(&10), async move |tx| tx.get(items, key).await).await?;
            }
            Ok::<_, Abort>(())
        };
        let session = db.spawn_session(WorkerId(0), run).expect("the database is open");
        session.join().expect("it ends").expect("the rows are read");
        db.workload_trace().expect("it is observed")
    };
    let own = read(10);
    assert_eq!(own.in_place_cycles, 0, "worker 0 owns row 10");
    read(80);
    assert_eq!(db.statistics().lent, 1);
    let lent = read(80);
    assert!(
        lent.in_place_cycles > 0 && lent.samples < own.samples,
        "{:?} and {:?}",
        lent.samples,
        own.samples
    );
}
