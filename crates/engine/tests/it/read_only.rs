//! Tables that only loads fill: nobody locks them, and everything else that happens to tables happens to them too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use atrapos::{
    Abort, Database, LoadError, LoadProgress, Route, Schema, SchemeChange, Table, TableRef, Tx, WorkerId, row,
};
use atrapos_durability::file::ModelFiles;

use crate::support::{Engine, Item, Items, Random, for_seeds, item, load_items, open};

row! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Price {
        cents: u64,
    }
}

/// A price per row of `Items`, on the same worker.
struct Prices;

impl Table for Prices {
    type Key = u64;
    type Row = Price;
    const NAME: &'static str = "prices";
    const FAMILY: &'static str = "items";
    const READ_ONLY: bool = true;
}

const ROWS: u64 = 100;

fn schema() -> Schema {
    Schema::new().table::<Items>().table::<Prices>().split_evenly("items", 0, ROWS - 1)
}

fn load_prices(db: &Database, rows: std::ops::Range<u64>) -> Result<u64, LoadError> {
    let prices = db.table::<Prices>().unwrap();
    db.load(&LoadProgress::default(), move |loader| {
        let share = loader.share_of(prices, rows.start, rows.end - 1);
        share.into_iter().flatten().try_for_each(|key| loader.add(prices, &key, &Price { cents: key * 7 }))
    })
}

fn loaded(workers: usize) -> (Database, TableRef<Items>, TableRef<Prices>) {
    let db = open(schema(), workers);
    load_items(&db, ROWS, 0);
    assert_eq!(load_prices(&db, 0..ROWS), Ok(ROWS));
    let (items, prices) = (db.table().unwrap(), db.table().unwrap());
    (db, items, prices)
}

/// Adds up the prices of all rows on both sides of a change on another worker.
async fn buy(tx: &mut Tx<'_>, items: TableRef<Items>, prices: TableRef<Prices>) -> Result<u64, Abort> {
    let mut paid = 0;
    for key in [0, 98] {
        paid += tx.get(prices, key).await?.map_or(0, |price| price.cents);
        paid += tx.read(prices, key + 1, |price| price.cents).await?.unwrap_or(0);
    }
    let range = tx.scan(prices, atrapos::KeyRange::all(), usize::MAX).await?;
    tx.update(items, 99, |row| row.value += 1).await?;
    Ok(paid + range.len() as u64)
}

#[test]
fn what_is_read_only_is_not_locked() {
    let (db, items, prices) = loaded(2);
    let before = db.statistics();
    let paid = db.run(items.at(&0), async move |tx| buy(tx, items, prices).await);
    assert_eq!(paid, Ok(7 * (1 + 98 + 99) + ROWS));
    let added = db.statistics().since(&before);
    assert!(added.remote_actions >= 3, "{added:?}");
    assert_eq!(added.locks_entered, 1, "that of the row that was changed");
    db.verify().unwrap();
}

#[test]
fn reads_and_moves_of_partitions_go_together() {
    for_seeds(6, |seed| {
        for workers in [2, 3] {
            for mut engine in [
                Engine::simulated(schema(), workers, seed | 1),
                Engine::shuffled_threads(schema(), workers, seed),
            ] {
                check_moving(&mut engine, workers, seed);
            }
        }
    });
}

/// Sessions that read prices of any worker and change rows of any, while partitions go to and fro. (Nothing is loaded into a
/// simulation: there all prices are absent, and are read all the same.)
fn check_moving(engine: &mut Engine, workers: usize, seed: u64) {
    let (items, prices) = (engine.table::<Items>(), engine.table::<Prices>());
    let price = match engine {
        Engine::Simulated(..) | Engine::Deployed(..) => 0,
        Engine::Threads(db, _) => {
            load_prices(db, 0..ROWS).unwrap();
            7
        }
    };
    for key in 0..ROWS {
        engine.run(items.at(&key), async move |tx| tx.insert(items, key, item(0)).await).unwrap();
    }
    let spent = Arc::new(AtomicU64::new(0));
    let total = Arc::clone(&spent);
    let ended = engine.sessions(6, workers, async move |session, at| {
        let mut random = Random::new(seed).part(at);
        for _ in 0..40 {
            let [first, second] = [random.below(ROWS), random.below(ROWS)];
            let buy = async move |tx: &mut Tx<'_>| {
                let mut paid = 0;
                for key in [first, second] {
                    let cents = tx.get(prices, key).await?.map_or(0, |price| price.cents);
                    tx.update(items, key, move |row| row.value += cents as i64).await?;
                    paid += cents;
                }
                Ok(paid)
            };
            let paid = crate::support::until_done(session, &items.at(&first), buy).await.unwrap();
            assert_eq!(paid, price * (first + second));
            total.fetch_add(paid, Ordering::Relaxed);
        }
    });
    ended.unwrap();
    let sum = async move |tx: &mut Tx<'_>| {
        tx.fold(items, atrapos::KeyRange::all(), 0, |sum: &mut i64, _, row: Item| {
            *sum += row.value;
            std::ops::ControlFlow::Continue(())
        })
        .await
    };
    assert_eq!(engine.run(items.at(&0), sum), Ok(spent.load(Ordering::Relaxed) as i64));
}

#[test]
fn what_a_transaction_has_read_is_not_loaded_under_it() {
    let db = open(schema(), 2);
    let (items, prices) = (db.table::<Items>().unwrap(), db.table::<Prices>().unwrap());
    load_items(&db, ROWS, 0);
    assert_eq!(load_prices(&db, 0..20), Ok(20));
    // It has its home on worker 0, has found no price of row 30 there, and is held up on worker 1.
    let (go_on, held_up) = mpsc::channel::<()>();
    let held_up = Arc::new(Mutex::new(held_up));
    let (reached, is_there) = mpsc::channel::<()>();
    let transaction = db
        .submit(Route::worker(WorkerId(0)), async move |tx| {
            let before = tx.get(prices, 30).await?;
            let (held_up, reached) = (Arc::clone(&held_up), reached.clone());
            tx.update(items, 99, move |_| {
                let _ = reached.send(());
                let _ = held_up.lock().unwrap().recv();
            })
            .await?;
            Ok((before, tx.get(prices, 30).await?))
        })
        .unwrap();
    is_there.recv().unwrap();
    let loaded = db.load(&LoadProgress::default(), move |loader| {
        let price = Price { cents: 210 };
        let added = if loader.worker().0 == 0 { loader.add(prices, &30, &price) } else { Ok(()) };
        let _ = go_on.send(());
        added
    });
    assert_eq!(transaction.wait(), Ok((None, None)));
    assert_eq!(
        loaded.unwrap_err().to_string(),
        "table 'prices' is in use by transactions; load it before they start"
    );
    assert_eq!(load_prices(&db, 20..40), Ok(20), "nothing is left of it");
}

#[test]
fn it_comes_back_with_any_number_of_workers() {
    let files = Arc::new(ModelFiles::new());
    let opened = |workers: usize| {
        let db = Database::builder(schema()).workers(workers).pin(false).huge_pages(false).fixed_scheme();
        db.files(files.clone()).open("db").unwrap()
    };
    let db = opened(2);
    assert_eq!(load_prices(&db, 0..ROWS), Ok(ROWS));
    assert_eq!(db.close(Duration::from_secs(5)).failure, None);
    for workers in [1, 3] {
        let db = opened(workers);
        let prices = db.table::<Prices>().unwrap();
        if workers > 1 {
            db.repartition([SchemeChange::move_to(prices, &0, WorkerId(1))]).unwrap();
        }
        let rows =
            db.run(prices.at(&50), async move |tx| tx.scan(prices, atrapos::KeyRange::all(), 1000).await);
        let expected: Vec<_> = (0..ROWS).map(|key| (key, Price { cents: key * 7 })).collect();
        assert_eq!(rows, Ok(expected));
        assert_eq!(db.close(Duration::from_secs(5)).failure, None);
    }
}
