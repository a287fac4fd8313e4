//! The classic anomalies by name: each scenario sets the stage for one and looks for it.

use atrapos::{Abort, AbortReason, KeyRange, Route, Schema, WorkerId};

use super::{simulated, threaded};
use crate::indexes::{ByCity, ByEmail, Users, user, users};
use crate::support::{Engine, Items, Random, item, until_done};

pub(crate) fn items() -> Schema {
    Schema::new().table::<Items>().split_evenly("items", 0, 99)
}

fn insert(engine: &mut Engine, rows: Vec<(u64, i64)>) -> Result<(), String> {
    let items = engine.table::<Items>();
    let inserted = engine.run(items.at(&0), async move |tx| {
        tx.join_all(rows.iter().map(|(key, value)| items.insert(*key, item(*value)))).await.map(drop)
    });
    inserted.map_err(|abort| abort.to_string())
}

/// The values of some rows, as one transaction sees them.
fn values(engine: &mut Engine, keys: Vec<u64>) -> Result<Vec<Option<i64>>, String> {
    let items = engine.table::<Items>();
    let read =
        engine.run(items.at(&0), async move |tx| tx.join_all(keys.iter().map(|key| items.get(*key))).await);
    let rows = read.map_err(|abort| abort.to_string())?;
    Ok(rows.into_iter().map(|row| row.map(|row| row.value)).collect())
}

/// Everybody adds one to a counter in two steps, reading it and writing what was read plus one. No addition is lost.
pub(crate) fn lost_update(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    const SESSIONS: usize = 6;
    const ROUNDS: i64 = 6;
    // One counter, and rows elsewhere that make the transaction wait between its two steps.
    insert(engine, vec![(5, 0), (40, 0), (90, 0)])?;
    let items = engine.table::<Items>();
    let random = Random::new(seed);
    let ended = engine.sessions(SESSIONS, workers, async move |session, at| {
        let mut random = random.part(at);
        for _ in 0..ROUNDS {
            let elsewhere = [5, 40, 90][random.below(3) as usize];
            let home = if random.chance(50) { items.at(&5) } else { Route::worker(session.worker()) };
            until_done(session, &home, async move |tx| {
                let read = tx.get(items, 5).await?.map_or(0, |row| row.value);
                tx.get(items, elsewhere).await?;
                tx.update(items, 5, move |row| row.value = read + 1).await.map(drop)
            })
            .await?;
        }
        Ok::<(), Abort>(())
    })?;
    ended.into_iter().collect::<Result<Vec<()>, _>>().map_err(|abort| abort.to_string())?;
    let counted = values(engine, vec![5])?;
    let expected = SESSIONS as i64 * ROUNDS;
    if counted == [Some(expected)] { Ok(()) } else { Err(format!("{expected} additions made {counted:?}")) }
}

#[test]
fn no_update_is_lost_simulated() {
    simulated(60, items, lost_update);
}

#[test]
fn no_update_is_lost_on_threads() {
    threaded(20, items, lost_update);
}

/// Two doctors are on call, and each may leave if the other stays. Both look, both leave: that must not happen.
pub(crate) fn write_skew(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let items = engine.table::<Items>();
    let pairs: Vec<(u64, u64)> = (0..8).map(|pair| (pair, 99 - pair)).collect();
    insert(engine, pairs.iter().flat_map(|(a, b)| [(*a, 1), (*b, 1)]).collect())?;
    let random = Random::new(seed);
    let doctors = pairs.clone();
    let ended = engine.sessions(8, workers, async move |session, at| {
        let mut random = random.part(at);
        for (one, other) in doctors.clone() {
            let (me, other) = if at % 2 == 0 { (one, other) } else { (other, one) };
            let together = random.chance(50);
            let home = if random.chance(50) { items.at(&me) } else { Route::worker(session.worker()) };
            until_done(session, &home, async move |tx| {
                let on_call = if together {
                    let (mine, theirs) = tx.join((items.get(me), items.get(other))).await?;
                    [mine, theirs]
                } else {
                    [tx.get(items, me).await?, tx.get(items, other).await?]
                };
                if on_call.iter().flatten().map(|row| row.value).sum::<i64>() < 2 {
                    return Ok(());
                }
                tx.update(items, me, |row| row.value = 0).await.map(drop)
            })
            .await?;
        }
        Ok::<(), Abort>(())
    })?;
    ended.into_iter().collect::<Result<Vec<()>, _>>().map_err(|abort| abort.to_string())?;
    for (a, b) in pairs {
        let left = values(engine, vec![a, b])?;
        if left.iter().flatten().sum::<i64>() != 1 {
            return Err(format!(
                "doctors {a} and {b} are {left:?}: one of them should be on call, and one should have left"
            ));
        }
    }
    Ok(())
}

#[test]
fn write_skew_is_impossible_simulated() {
    simulated(80, items, write_skew);
}

#[test]
fn write_skew_is_impossible_on_threads() {
    threaded(20, items, write_skew);
}

/// A room takes so many guests, and each counts the guests before entering. The last place is taken once.
pub(crate) fn phantoms(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    const PLACES: usize = 7;
    const GUESTS: usize = 12;
    let items = engine.table::<Items>();
    let random = Random::new(seed);
    let entered = engine.sessions(GUESTS, workers, async move |session, at| {
        let mut random = random.part(at);
        // Everybody takes another seat, on any worker.
        let (seat, backward) = (at as u64 * 8 + random.below(8), random.chance(30));
        let home = if random.chance(50) { items.at(&seat) } else { Route::worker(session.worker()) };
        until_done(session, &home, async move |tx| {
            let all = KeyRange::between(&0_u64, &(8 * GUESTS as u64));
            let guests = match backward {
                false => tx.scan(items, all, usize::MAX).await?.len(),
                true => tx.scan_backward(items, all, usize::MAX).await?.len(),
            };
            if guests >= PLACES {
                return Ok(None);
            }
            tx.insert(items, seat, item(guests as i64)).await?;
            Ok(Some(guests))
        })
        .await
    })?;
    let mut counted: Vec<usize> = Vec::new();
    for entered in entered {
        counted.extend(entered.map_err(|abort| abort.to_string())?);
    }
    counted.sort_unstable();
    if counted == (0..PLACES).collect::<Vec<_>>() {
        return Ok(());
    }
    Err(format!("{PLACES} places were taken by guests who had counted {counted:?} others"))
}

#[test]
fn there_are_no_phantoms_simulated() {
    simulated(90, items, phantoms);
}

#[test]
fn there_are_no_phantoms_on_threads() {
    threaded(20, items, phantoms);
}

/// The same through an index: a city takes so many users, counted by a look-up of the index; and an address that a look-up
/// has not found is still free when it is taken.
pub(crate) fn index_phantoms(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    const PLACES: usize = 3;
    let (users, by_city, by_email) =
        (engine.table::<Users>(), engine.index::<ByCity>(), engine.index::<ByEmail>());
    let random = Random::new(seed);
    let entered = engine.sessions(10, workers, async move |session, at| {
        let mut random = random.part(at);
        let (key, city) = (at as u64 * 10, random.below(2) as u32);
        // Mostly different ones.
        let email = format!("{}", (b'a' + random.below(16) as u8) as char);
        until_done(session, &Route::worker(session.worker()), async move |tx| {
            if tx.run(by_email.lookup(email.clone())).await?.is_some() {
                return Ok(0);
            }
            let found = tx.lookup_all(by_city, KeyRange::prefix(&city), usize::MAX).await?;
            if found.len() >= PLACES {
                return Ok(0);
            }
            // A duplicate here would mean that somebody took the address after the look-up.
            tx.insert(users, key, user(city, &email)).await?;
            Ok(1)
        })
        .await
    })?;
    let entered: Vec<usize> =
        entered.into_iter().collect::<Result<_, Abort>>().map_err(|abort| abort.to_string())?;
    let entered: usize = entered.into_iter().sum();
    let read = engine.run(Route::worker(WorkerId(0)), async move |tx| {
        let mut counts = [0; 2];
        for (city, count) in counts.iter_mut().enumerate() {
            *count = tx.lookup_all(by_city, KeyRange::prefix(&(city as u32)), usize::MAX).await?.len();
        }
        Ok((counts, tx.scan(users, KeyRange::all(), usize::MAX).await?.len()))
    });
    let (counts, rows) = read.map_err(|abort| abort.to_string())?;
    if counts.iter().any(|count| *count > PLACES) || counts.iter().sum::<usize>() != rows || entered != rows {
        return Err(format!("{entered} users entered, {rows} are there, {counts:?} by city"));
    }
    Ok(())
}

#[test]
fn there_are_no_phantoms_in_indexes_simulated() {
    simulated(150, users, index_phantoms);
}

#[test]
fn there_are_no_phantoms_in_indexes_on_threads() {
    threaded(20, users, index_phantoms);
}

/// A key that was found absent stays absent for whoever found it so: an insertion after a look never meets a row.
pub(crate) fn absent_keys(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let items = engine.table::<Items>();
    let random = Random::new(seed);
    let won = engine.sessions(8, workers, async move |session, at| {
        let mut random = random.part(at);
        let mut won = 0;
        for key in [3, 33, 66, 96] {
            let home = if random.chance(50) { items.at(&key) } else { Route::worker(session.worker()) };
            won += until_done(session, &home, async move |tx| {
                if tx.get(items, key).await?.is_some() {
                    return Ok(0);
                }
                tx.get(items, 99 - key).await?;
                tx.insert(items, key, item(1)).await?;
                Ok(1)
            })
            .await?;
        }
        Ok::<u32, Abort>(won)
    })?;
    let won: Vec<u32> = won.into_iter().collect::<Result<_, _>>().map_err(|abort: Abort| {
        assert_ne!(abort.reason(), AbortReason::User);
        abort.to_string()
    })?;
    if won.iter().sum::<u32>() == 4 { Ok(()) } else { Err(format!("4 keys were won {won:?} times")) }
}

#[test]
fn absent_keys_are_protected_simulated() {
    simulated(80, items, absent_keys);
}

#[test]
fn absent_keys_are_protected_on_threads() {
    threaded(20, items, absent_keys);
}
