//! Sessions that give up `session.run(..)` while the transaction's data moves: to the transaction's own home and on from
//! there, with a lock of another transaction in between or without. Nothing of what was given up may stay: no lock, no row,
//! and no redo in the record of another transaction, which would be seen only after a crash.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use atrapos::sim::Simulation;
use atrapos::{
    Abort, Advice, Database, KeyRange, Route, Schema, SchemeChange, Session, TableRef, Tx, WorkerId,
};
use atrapos_durability::file::ModelFiles;

use crate::durable::notes::{directory, files};
use crate::support::{Item, Items, Random, STEPS_MAX, for_seeds_in_parallel, item};

/// One partition for each of three workers.
fn schema() -> Schema {
    Schema::new().table::<Items>().split_at("items", &[100_u64, 200])
}

/// The row of worker `at`'s partition that the transactions that are given up write: all three, or none.
fn shared(at: u64) -> u64 {
    at * 100 + 50
}

/// Rows of each partition that only later transactions write.
const LATER: u64 = 8;

/// Runs `running` until it ends, or until it is told to give up.
async fn unless_given_up<R>(
    session: &Session,
    give_up: &Cell<bool>,
    running: impl Future<Output = R>,
) -> Option<R> {
    let mut running = pin!(running);
    let mut turn = Box::pin(session.yield_now());
    poll_fn(|context| {
        if let Poll::Ready(result) = running.as_mut().poll(context) {
            return Poll::Ready(Some(result));
        }
        if give_up.get() {
            return Poll::Ready(None);
        }
        while turn.as_mut().poll(context).is_ready() {
            turn = Box::pin(session.yield_now());
        }
        Poll::Pending
    })
    .await
}

/// Writes `value` into the rows `keys`.
async fn write(
    tx: &mut Tx<'_>,
    items: TableRef<Items>,
    keys: [u64; 3],
    value: i64,
    at_once: bool,
) -> Result<(), Abort> {
    let set = |key| items.update(key, move |row: &mut Item| row.value = value);
    if at_once {
        return tx.join_all(keys.map(set)).await.map(drop);
    }
    for key in keys {
        tx.run(set(key)).await?;
    }
    Ok(())
}

/// What makes one run, all from a seed.
struct Scene {
    home: u64,
    /// Whose partition moves, first to the home and then to `last`.
    from: u64,
    last: u64,
    /// Whether another transaction holds a lock on the row that moves.
    foreign_lock: bool,
    random: Random,
    seed: u64,
}

impl Scene {
    fn new(seed: u64, foreign_lock: bool) -> Scene {
        let mut random = Random::new(seed);
        let home = random.below(3);
        let from = (home + 1 + random.below(2)) % 3;
        let last = (home + 1 + random.below(2)) % 3;
        Scene { home, from, last, foreign_lock, random, seed }
    }

    /// Sessions beside those that are given up: some that keep a worker busy, and one that reads what moves and holds on to it.
    fn start_others(&self, simulation: &Simulation, items: TableRef<Items>, until: &Rc<Cell<bool>>) {
        for at in 0..16_u64 {
            let (worker, until) =
                (WorkerId(if at % 4 == 0 { self.home } else { self.from } as u16), Rc::clone(until));
            let _ = simulation.spawn_session(worker, async move |session| {
                while !until.get() {
                    session.yield_now().await;
                }
            });
        }
        if !self.foreign_lock {
            return;
        }
        for reader in [self.from, self.last] {
            let (row, until) = (shared(self.from), Rc::clone(until));
            let elsewhere = [self.home, self.last, self.from].map(|worker| worker * 100 + 20);
            let _ = simulation.spawn_session(WorkerId(reader as u16), async move |session| {
                while !until.get() {
                    let route = Route::worker(session.worker());
                    let read = session.run(&route, async move |tx| {
                        tx.get(items, row).await?;
                        for key in elsewhere {
                            tx.get(items, key).await?;
                        }
                        Ok(())
                    });
                    match read.await {
                        Ok(()) => {}
                        Err(abort) => assert_eq!(abort.reason().advice(), Advice::Retry, "{abort}"),
                    }
                }
            });
        }
    }

    fn moves(&self, items: TableRef<Items>) -> Vec<SchemeChange> {
        let to = |worker: u64| SchemeChange::move_to(items, &shared(self.from), WorkerId(worker as u16));
        vec![to(self.home), to(self.last)]
    }
}

fn all_rows(rows: Vec<(u64, Item)>) -> BTreeMap<u64, i64> {
    rows.into_iter().map(|(key, row)| (key, row.value)).collect()
}

/// Transactions are given up somewhere while a partition moves twice; later ones commit; then the process is killed. Says what is
/// wrong with the database before and after.
pub(crate) fn give_up_while_data_moves(seed: u64, foreign_lock: bool) -> Result<(), String> {
    let mut scene = Scene::new(seed, foreign_lock);
    let files = files();
    let mut simulation = Simulation::durable(schema(), 3, 2, seed, Arc::new(files.clone()), directory())
        .expect("the model takes it");
    let items = simulation.table::<Items>().expect("it is in the schema");
    let filled = simulation.submit(&items.at(&0), async move |tx| {
        let rows = (0..3).flat_map(|at| (0..LATER).map(move |key| at * 100 + key).chain([shared(at)]));
        tx.join_all(rows.map(|key| items.insert(key, item(0)))).await.map(drop)
    });
    assert!(simulation.run(STEPS_MAX));
    assert_eq!(filled.take(), Some(Ok(())));

    let (give_up, until) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    scene.start_others(&simulation, items, &until);
    for value in 1..=4_i64 {
        let (give_up, home) = (Rc::clone(&give_up), WorkerId(scene.home as u16));
        let [first, second, third] = [scene.from, scene.home, 3 - scene.from - scene.home].map(shared);
        let at_once = scene.random.chance(30);
        let wait = scene.random.below(40);
        let _ = simulation.spawn_session(home, async move |session| {
            for _ in 0..wait {
                session.yield_now().await;
            }
            let route = Route::worker(home);
            let running = session.run(&route, async move |tx| {
                let keys = if value % 2 == 0 { [second, first, third] } else { [first, second, third] };
                write(tx, items, keys, value, at_once).await
            });
            unless_given_up(&session, &give_up, running).await
        });
    }
    simulation.run_for(scene.random.below(3));
    let moved = simulation.repartition(scene.moves(items));
    simulation.run_workers_for(scene.random.below(400));
    give_up.set(true);
    simulation.run_workers_for(60);
    until.set(true);
    if !simulation.run(STEPS_MAX / 10) {
        return Err(format!("it does not come to rest; locks: {:?}", simulation.locks()));
    }
    if !matches!(moved.take(), Some(Ok(report)) if report.moves >= 1) {
        return Err("the partition has not moved".to_owned());
    }
    scene.judge(simulation, items, &files)
}

impl Scene {
    /// Commits later transactions, several at once so that all states of the home are used again, and compares what is there
    /// with what is there after a crash.
    fn judge(
        &self,
        mut simulation: Simulation,
        items: TableRef<Items>,
        files: &ModelFiles,
    ) -> Result<(), String> {
        if simulation.locks() != (0, 0) {
            return Err(format!("locks are left behind: {:?}", simulation.locks()));
        }
        let other = ((self.home + 1) % 3) * 100;
        let later: Vec<_> = (0..LATER)
            .map(|at| {
                let key = self.home * 100 + at;
                simulation.submit(&items.at(&key), async move |tx| {
                    tx.update(items, key, |row| row.value = 77).await?;
                    tx.get(items, other).await.map(drop)
                })
            })
            .collect();
        if !simulation.run(STEPS_MAX / 10) {
            return Err(format!("later transactions wait for ever; locks: {:?}", simulation.locks()));
        }
        for outcome in later {
            let outcome = outcome.take().expect("everything is at rest");
            outcome.map_err(|abort| format!("a later transaction fails: {abort}"))?;
        }
        let read =
            simulation.submit(&items.at(&0), async move |tx| tx.scan(items, KeyRange::all(), 1_000).await);
        if !simulation.run(STEPS_MAX / 10) || simulation.locks() != (0, 0) {
            return Err(format!("reading does not end; locks: {:?}", simulation.locks()));
        }
        let read = read.take().expect("everything is at rest").map_err(|abort| abort.to_string())?;
        let before = all_rows(read);
        let written: Vec<i64> = (0..3).map(|at| before[&shared(at)]).collect();
        if written.iter().any(|value| *value != written[0]) {
            return Err(format!("a transaction is there in part: {written:?}"));
        }
        drop(simulation);
        let after = files.power_cut(self.seed);
        let db = Database::builder(schema()).workers(2).pin(false).huge_pages(false).files(Arc::new(after));
        let db = db.open(directory()).map_err(|error| format!("it does not open: {error}"))?;
        db.verify().map_err(|error| format!("it is not whole: {error}"))?;
        let items = db.table::<Items>().map_err(|error| error.to_string())?;
        let read = db.run(items.at(&0), async move |tx| tx.scan(items, KeyRange::all(), 1_000).await);
        let after = all_rows(read.map_err(|abort| abort.to_string())?);
        if before == after {
            return Ok(());
        }
        Err(format!("the crash has changed what is there: {before:?} before, {after:?} after"))
    }
}

fn leaves_nothing(foreign_lock: bool) {
    for_seeds_in_parallel(250, |seed| {
        if let Err(wrong) = give_up_while_data_moves(seed, foreign_lock) {
            panic!("{wrong}");
        }
    });
}

#[test]
fn what_is_given_up_while_its_data_moves_on_leaves_nothing() {
    leaves_nothing(false);
}

#[test]
fn what_is_given_up_while_it_waits_for_data_that_came_home_leaves_nothing() {
    leaves_nothing(true);
}
