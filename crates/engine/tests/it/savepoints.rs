//! Savepoints: what was changed since is undone wherever it is, index entries and redo among it, and a transaction that an action
//! failed in can go on.

use std::collections::BTreeMap;

use atrapos::{
    Abort, AbortReason, IndexRef, KeyRange, Route, Savepoint, SchemeChange, Session, TableRef, Tx, WorkerId,
};

use crate::durable::notes::{Notes, builder, directory, files, note, schema};
use crate::indexes::{ByCity, ByEmail, User, Users, user, users};
use crate::support::{Engine, Random, for_seeds, open, simulate};

// --- By hand -----------------------------------------------------------------------------------------------------------

#[test]
fn what_was_changed_since_a_savepoint_is_undone_and_what_was_before_stays() {
    for workers in [1, 2, 8] {
        let db = open(users(), workers);
        let table = db.table::<Users>().unwrap();
        db.run(table.at(&50), async move |tx| tx.insert(table, 50, user(5, "eve")).await).unwrap();
        for home in 0..workers as u16 {
            db.run(Route::worker(WorkerId(home)), async move |tx| {
                tx.insert(table, 1, user(1, "ada")).await?;
                let first = tx.savepoint()?;
                tx.insert(table, 99, user(2, "joe")).await?;
                tx.update(table, 1, |row| *row = user(3, "zoe")).await?;
                let second = tx.savepoint()?;
                tx.delete(table, 50).await?;
                tx.rollback_to(second).await?;
                assert!(tx.get(table, 50).await?.is_some());
                assert_eq!(tx.get(table, 1).await?, Some(user(3, "zoe")));
                tx.rollback_to(first).await?;
                assert_eq!(tx.get(table, 99).await?, None);
                assert_eq!(tx.get(table, 1).await?, Some(user(1, "ada")));
                // It can be gone back to again, and what is changed then stays.
                tx.delete(table, 50).await?;
                tx.rollback_to(first).await?;
                tx.update(table, 50, |row| row.visits += 1).await.map(drop)
            })
            .unwrap();
            db.verify().unwrap();
            let left =
                db.run(table.at(&0), async move |tx| tx.scan(table, KeyRange::all(), 9).await).unwrap();
            let visits = u32::from(home) + 1;
            assert_eq!(left, [(1, user(1, "ada")), (50, User { visits, ..user(5, "eve") })]);
            db.run(table.at(&1), async move |tx| tx.delete(table, 1).await).unwrap();
        }
    }
}

#[test]
fn a_transaction_in_which_an_action_failed_goes_on_from_a_savepoint() {
    for workers in [1, 3] {
        let db = open(users(), workers);
        let table = db.table::<Users>().unwrap();
        db.run(table.at(&1), async move |tx| {
            tx.insert(table, 1, user(1, "ada")).await?;
            let before = tx.savepoint()?;
            let taken = tx.insert(table, 1, user(1, "eve")).await.unwrap_err();
            assert_eq!(taken.reason(), AbortReason::DuplicateKey);
            // Doomed it is, until it goes back.
            assert_eq!(tx.get(table, 1).await.unwrap_err(), taken);
            assert_eq!(tx.savepoint().unwrap_err(), taken);
            tx.rollback_to(before).await?;
            // The key of the index is taken, on another worker perhaps; the row was inserted before that was known.
            let taken = tx.insert(table, 60, user(1, "ada")).await.unwrap_err();
            assert_eq!(taken.reason(), AbortReason::DuplicateKey);
            tx.rollback_to(before).await?;
            assert_eq!(tx.get(table, 60).await?, None);
            let phase = tx.join((table.insert(98, user(4, "joe")), table.insert(99, user(4, "joe")))).await;
            assert_eq!(phase.unwrap_err().reason(), AbortReason::DuplicateKey);
            tx.rollback_to(before).await?;
            tx.insert(table, 61, user(1, "joe")).await
        })
        .unwrap();
        assert_eq!(db.verify().unwrap().rows, 2);
    }
}

#[test]
fn a_savepoint_of_another_transaction_or_time_is_refused() {
    let db = open(users(), 2);
    let table = db.table::<Users>().unwrap();
    let stale: Savepoint = db.run(table.at(&1), async move |tx| tx.savepoint()).unwrap();
    let refused = db.run(table.at(&1), async move |tx| {
        tx.insert(table, 1, user(1, "ada")).await?;
        tx.savepoint()?;
        tx.rollback_to(stale).await
    });
    assert_eq!(refused.unwrap_err().reason(), AbortReason::Misuse);
    let refused = db.run(table.at(&1), async move |tx| {
        let (first, second) = (tx.savepoint()?, tx.savepoint()?);
        tx.rollback_to(first).await?;
        tx.rollback_to(second).await
    });
    let refused = refused.unwrap_err();
    assert!(refused.detail().contains("set another"), "{refused}");
    // What failed otherwise stays failed.
    let panicked = db.run(table.at(&1), async move |tx| {
        tx.insert(table, 1, user(1, "ada")).await?;
        let before = tx.savepoint()?;
        let panicked = tx.update(table, 1, |_| panic!("out of order")).await.unwrap_err();
        assert_eq!(tx.rollback_to(before).await.unwrap_err(), panicked);
        tx.rollback_to(before).await
    });
    assert_eq!(panicked.unwrap_err().reason(), AbortReason::Panic);
    assert_eq!(db.verify().unwrap().rows, 0);
}

#[test]
fn locks_are_kept_by_a_rollback() {
    let mut simulation = simulate(users(), 2, 7);
    let table = simulation.table::<Users>().unwrap();
    let first = simulation.submit(&table.at(&1), async move |tx| {
        let before = tx.savepoint()?;
        tx.insert(table, 99, user(1, "ada")).await?;
        tx.rollback_to(before).await?;
        // It suspends again and again, so the others come by.
        let mut found = 0;
        for _ in 0..50 {
            found += usize::from(tx.get(table, 99).await?.is_some());
        }
        Ok(found)
    });
    simulation.run_for(40);
    let second = simulation
        .submit(&table.at(&99), async move |tx| tx.run(table.insert_if_absent(99, user(1, "eve"))).await);
    assert!(simulation.run(crate::support::STEPS_MAX));
    assert_eq!((first.take(), second.take()), (Some(Ok(0)), Some(Ok(true))));
}

// --- At random ---------------------------------------------------------------------------------------------------------

#[derive(Clone, Debug)]
enum Step {
    Put(u64, User),
    Delete(u64),
    Save,
    /// Goes back to the savepoint of this number.
    Back(usize),
    /// An insertion that fails, followed by going back.
    Fail(u64, User, usize),
}

type Model = BTreeMap<u64, User>;

/// Steps of one transaction on a session's own keys, and what they leave.
fn plan(random: &mut Random, keys: &[u64], model: &Model) -> (Vec<Step>, Model) {
    let (mut steps, mut model, mut saved) = (Vec::new(), model.clone(), Vec::<Model>::new());
    let any = |random: &mut Random| keys[random.below(keys.len() as u64) as usize];
    let fresh = |random: &mut Random, key: u64| {
        let letter = char::from(b'a' + random.below(17) as u8);
        user(random.below(8) as u32, &format!("{letter}{key}-{}", random.below(1 << 40)))
    };
    for _ in 0..3 + random.below(12) {
        let key = any(random);
        match random.below(10) {
            0..4 => {
                let row = fresh(random, key);
                model.insert(key, row.clone());
                steps.push(Step::Put(key, row));
            }
            4 | 5 => {
                model.remove(&key);
                steps.push(Step::Delete(key));
            }
            6 | 7 => {
                saved.push(model.clone());
                steps.push(Step::Save);
            }
            what if !saved.is_empty() => {
                let to = random.below(saved.len() as u64) as usize;
                let taken = model.iter().next().map(|(key, row)| (*key, row.clone()));
                match taken {
                    // The key is taken; or that of an index.
                    Some((key, _)) if what == 8 => steps.push(Step::Fail(key, fresh(random, key), to)),
                    Some((_, row)) if !model.contains_key(&key) => steps.push(Step::Fail(key, row, to)),
                    _ => steps.push(Step::Back(to)),
                }
                saved.truncate(to + 1);
                model.clone_from(&saved[to]);
            }
            _ => {}
        }
    }
    (steps, model)
}

async fn put(tx: &mut Tx<'_>, table: TableRef<Users>, key: u64, row: &User) -> Result<(), Abort> {
    let new = row.clone();
    if tx.update(table, key, move |row| *row = new).await?.is_none() {
        tx.insert(table, key, row.clone()).await?;
    }
    Ok(())
}

async fn follow(tx: &mut Tx<'_>, table: TableRef<Users>, steps: &[Step]) -> Result<(), Abort> {
    let mut saved = Vec::new();
    for step in steps {
        match step {
            Step::Put(key, row) => put(tx, table, *key, row).await?,
            Step::Delete(key) => drop(tx.delete(table, *key).await?),
            Step::Save => saved.push(tx.savepoint()?),
            Step::Back(to) => tx.rollback_to(saved[*to]).await?,
            Step::Fail(key, row, to) => match tx.insert(table, *key, row.clone()).await {
                Err(abort) if abort.reason() == AbortReason::DuplicateKey => {
                    tx.rollback_to(saved[*to]).await?;
                }
                Err(abort) => return Err(abort),
                Ok(()) => return Err(Abort::user("an insertion that should have failed did not")),
            },
        }
        if let Step::Back(to) | Step::Fail(_, _, to) = step {
            saved.truncate(to + 1);
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Handles {
    table: TableRef<Users>,
    by_email: IndexRef<ByEmail>,
    by_city: IndexRef<ByCity>,
}

/// Compares a session's rows, found by key and through both indexes, with its model.
async fn compare(session: &Session, handles: Handles, keys: &[u64], model: &Model) -> Result<(), String> {
    let Handles { table, by_email, by_city } = handles;
    let (keys, expected) = (keys.to_vec(), model.clone());
    let route = table.at(&keys[0]);
    let found = session.run(&route, async move |tx| {
        let mut wrong = Vec::new();
        for key in &keys {
            let row = tx.get(table, *key).await?;
            if row.as_ref() != expected.get(key) {
                wrong.push(format!("row {key} is {row:?} and should be {:?}", expected.get(key)));
            }
        }
        for (key, row) in &expected {
            let found = tx.get_by(by_email, table, row.email.clone()).await?;
            if found.as_ref().map(|(key, _)| key) != Some(key) {
                wrong.push(format!("address {} leads to {found:?} and not to {key}", row.email));
            }
        }
        let mut entries = 0;
        for city in 0..8_u32 {
            let found = tx.lookup_all(by_city, KeyRange::prefix(&city), usize::MAX).await?;
            let own = found.into_iter().filter(|key| keys.contains(key));
            for key in own {
                entries += 1;
                if expected.get(&key).is_none_or(|row| row.city != city) {
                    wrong.push(format!("city {city} leads to {key}, which is {:?}", expected.get(&key)));
                }
            }
        }
        if entries != expected.len() {
            wrong.push(format!("{entries} entries for {} rows", expected.len()));
        }
        Ok(wrong)
    });
    let wrong = found.await.map_err(|abort| abort.to_string())?;
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// Sessions with keys of their own that set savepoints and go back to them, while partitions move if they do.
pub(crate) fn random_rollbacks(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    const SESSIONS: usize = 4;
    let handles = Handles { table: engine.table(), by_email: engine.index(), by_city: engine.index() };
    let ended = engine.sessions(SESSIONS, workers, async move |session, at| {
        let mut random = Random::new(seed).part(at);
        let keys: Vec<u64> = (0..100).filter(|key| *key as usize % SESSIONS == at).collect();
        let keys: Vec<u64> = keys.into_iter().step_by(3).collect();
        let mut model = Model::new();
        for _ in 0..12 {
            let (steps, expected) = plan(&mut random, &keys, &model);
            let gives_up = random.chance(15);
            let (followed, table) = (steps.clone(), handles.table);
            let route = table.at(&keys[random.below(keys.len() as u64) as usize]);
            let ran = session.run(&route, async move |tx| {
                follow(tx, table, &followed).await?;
                if gives_up { Err(Abort::user("gives up")) } else { Ok(()) }
            });
            match ran.await {
                Ok(()) => model = expected,
                Err(abort) if gives_up && abort.reason() == AbortReason::User => {}
                Err(abort) => return Err(abort.to_string()),
            }
            compare(session, handles, &keys, &model)
                .await
                .map_err(|wrong| format!("{wrong} after {steps:?}"))?;
        }
        Ok(())
    })?;
    ended.into_iter().collect()
}

#[test]
fn random_rollbacks_leave_what_a_model_says_simulated() {
    for_seeds(12, |seed| {
        let workers = 2 + (seed % 3) as usize;
        let mut engine = Engine::simulated(users(), workers, seed);
        random_rollbacks(&mut engine, workers, seed).unwrap();
    });
}

#[test]
fn random_rollbacks_leave_what_a_model_says_on_threads() {
    for_seeds(2, |seed| {
        random_rollbacks(&mut Engine::threads(users(), 4), 4, seed).unwrap();
        random_rollbacks(&mut Engine::shuffled_threads(users(), 4, seed), 4, seed).unwrap();
    });
}

// --- Where data has gone on from a participant ----------------------------------------------------------------------------

/// A transaction changes a row on worker 1, the row goes on to worker 2, and the transaction goes back. Returns the row then.
pub(crate) fn rolled_back_after_a_move(seed: u64) -> Option<User> {
    let mut simulation = simulate(users(), 3, seed);
    let table = simulation.table::<Users>().unwrap();
    let key = 50_u64;
    let set = simulation.submit(&table.at(&key), async move |tx| tx.insert(table, key, user(1, "ada")).await);
    assert!(simulation.run(crate::support::STEPS_MAX));
    assert_eq!(set.take(), Some(Ok(())));
    let run = simulation.submit(&table.at(&1), async move |tx| {
        let before = tx.savepoint()?;
        tx.update(table, key, |row| row.visits = 7).await?;
        // Reads what stays on worker 1 until the row has moved.
        for _ in 0..60 {
            tx.get(table, 35).await?;
        }
        tx.rollback_to(before).await
    });
    simulation.run_for(60);
    let at = atrapos::Key::encode(&40_u64);
    let moved = simulation.repartition(vec![
        SchemeChange::Split { table: table.id(), at: at.clone() },
        SchemeChange::Move { table: table.id(), at, to: WorkerId(2) },
    ]);
    assert!(simulation.run(crate::support::STEPS_MAX));
    assert!(moved.take().is_some_and(|moved| moved.is_ok()));
    assert_eq!(run.take(), Some(Ok(())));
    let read = simulation.submit(&table.at(&key), async move |tx| tx.get(table, key).await);
    assert!(simulation.run(crate::support::STEPS_MAX));
    read.take().and_then(Result::ok).flatten()
}

#[test]
fn a_rollback_follows_what_has_moved() {
    for_seeds(10, |seed| assert_eq!(rolled_back_after_a_move(seed), Some(user(1, "ada"))));
}

// --- On disk -----------------------------------------------------------------------------------------------------------

/// Runs a transaction that undoes some of its changes, here and elsewhere, has it made durable, crashes, and says what is wrong.
pub(crate) fn recovered_without_what_was_undone(seed: u64) -> Result<(), String> {
    let files = files();
    let all: std::sync::Arc<dyn atrapos_durability::file::FileSystem> = std::sync::Arc::new(files.clone());
    let mut simulation = atrapos::sim::Simulation::durable(schema(), 3, 2, seed, all, directory())
        .map_err(|error| error.to_string())?;
    let notes = simulation.table::<Notes>().map_err(|error| error.to_string())?;
    let run = simulation.submit(&notes.at(&1), async move |tx| {
        for key in [1, 500, 999] {
            tx.insert(notes, key, note(1, 1)).await?;
        }
        let before = tx.savepoint()?;
        tx.insert(notes, 2, note(2, 2)).await?;
        tx.update(notes, 1, |row| row.number = 5).await?;
        tx.update(notes, 500, |row| row.text = "undone".to_owned()).await?;
        tx.delete(notes, 999).await?;
        tx.insert(notes, 501, note(2, 2)).await?;
        tx.rollback_to(before).await?;
        tx.update(notes, 999, |row| row.number = 3).await.map(drop)
    });
    if !simulation.run(crate::support::STEPS_MAX) {
        return Err("it does not come to rest".to_owned());
    }
    match run.take() {
        Some(Ok(())) => {}
        other => return Err(format!("it did not commit: {other:?}")),
    }
    drop(simulation);
    let db = builder(&files.power_cut(seed), 2).open(directory()).map_err(|error| error.to_string())?;
    db.verify().map_err(|error| error.to_string())?;
    let notes = db.table::<Notes>().map_err(|error| error.to_string())?;
    let found = db
        .run(notes.at(&0), async move |tx| tx.scan(notes, KeyRange::all(), 9).await)
        .map_err(|abort| abort.to_string())?;
    let mut last = note(1, 1);
    last.number = 3;
    let expected = vec![(1, note(1, 1)), (500, note(1, 1)), (999, last)];
    if found == expected { Ok(()) } else { Err(format!("{found:?} came back")) }
}

#[test]
fn what_was_undone_does_not_come_back_after_a_crash() {
    for_seeds(10, |seed| recovered_without_what_was_undone(seed).unwrap());
}

#[cfg(debug_assertions)]
mod planted {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use atrapos::planted::{Bug, with};

    use super::*;

    #[test]
    fn redo_of_what_was_undone_is_caught() {
        let run = || catch_unwind(AssertUnwindSafe(|| recovered_without_what_was_undone(1)));
        assert!(!matches!(with(Bug::UndoneRedoKept, run), Ok(Ok(()))));
    }

    #[test]
    fn a_rollback_that_does_not_follow_is_caught() {
        let noticed = (0..20).any(|seed| {
            with(Bug::RollbackNotPassedOn, || rolled_back_after_a_move(seed)) != Some(user(1, "ada"))
        });
        assert!(noticed);
    }
}
