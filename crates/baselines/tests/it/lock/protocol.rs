//! Tests of the locks that operations take, by the table in the documentation of the module: transactions over an ordered map that threads share,
//! with insertions, removals and undo. A sum over everything never changes, and what a transaction has found, or found
//! absent, it finds again.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use atrapos_baselines::lock::{Agent, KeyMode, KeyOrEnd, LockManager, LockOptions};
use atrapos_partition::abort::{Abort, AbortReason};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::TABLE;

const KEYS: u8 = 12;
const ROWS: u64 = 6;
const THREADS: u64 = 4;

type Rows = BTreeMap<u8, u64>;

/// The lock's name of a key, or of the end.
fn with_name<R>(key: Option<u8>, run: impl FnOnce(KeyOrEnd<'_>) -> R) -> R {
    match key {
        Some(key) => run(KeyOrEnd::Key(&[key])),
        None => run(KeyOrEnd::End),
    }
}

/// A transaction on the map, which stands for a tree: looked at for a moment, never across a lock request.
struct Transaction<'a> {
    agent: &'a mut Agent,
    rows: &'a Mutex<Rows>,
    undo: Vec<(u8, Option<u64>)>,
}

impl Transaction<'_> {
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().expect("no thread panics while it has the map")
    }

    fn next(rows: &Rows, from: Bound<u8>) -> Option<u8> {
        rows.range((from, Bound::Unbounded)).next().map(|(key, _)| *key)
    }

    fn lock(&mut self, key: Option<u8>, mode: KeyMode) -> Result<(), Abort> {
        with_name(key, |key| self.agent.lock(TABLE, key, mode))
    }

    fn gap(&self, key: Option<u8>) -> KeyMode {
        with_name(key, |key| self.agent.held(TABLE, key)).gap()
    }

    fn read(&mut self, key: u8, mode: KeyMode) -> Result<Option<u64>, Abort> {
        self.lock(Some(key), mode)?;
        loop {
            let (row, next) = {
                let rows = self.rows();
                (rows.get(&key).copied(), Self::next(&rows, Bound::Excluded(key)))
            };
            if row.is_some() {
                return Ok(row);
            }
            self.lock(next, KeyMode::PROTECT)?;
            let rows = self.rows();
            if Self::next(&rows, Bound::Included(key)) == next {
                return Ok(None);
            }
        }
    }

    fn scan(&mut self, lower: u8, upper: u8) -> Result<Vec<(u8, u64)>, Abort> {
        let mut found = Vec::new();
        let mut from = Bound::Included(lower);
        loop {
            let next = Self::next(&self.rows(), from);
            let inside = next.filter(|key| *key < upper);
            let mode = if inside.is_some() { KeyMode::READ | KeyMode::PROTECT } else { KeyMode::PROTECT };
            self.lock(next, mode)?;
            let rows = self.rows();
            if Self::next(&rows, from) != next {
                continue;
            }
            let Some(key) = inside else { return Ok(found) };
            found.push((key, rows[&key]));
            from = Bound::Excluded(key);
        }
    }

    fn insert(&mut self, key: u8, row: u64) -> Result<bool, Abort> {
        loop {
            let next = Self::next(&self.rows(), Bound::Included(key));
            if next == Some(key) {
                self.lock(next, KeyMode::READ)?;
                if self.rows().contains_key(&key) {
                    return Ok(false);
                }
                continue;
            }
            self.lock(next, KeyMode::INSERT)?;
            let gap = self.gap(next);
            self.lock(Some(key), KeyMode::WRITE | gap)?;
            let mut rows = self.rows.lock().expect("as above");
            if Self::next(&rows, Bound::Included(key)) == next {
                rows.insert(key, row);
                self.undo.push((key, None));
                return Ok(true);
            }
        }
    }

    /// Removes a row that was read for writing.
    fn remove(&mut self, key: u8) -> Result<(), Abort> {
        let gap = KeyMode::PROTECT | KeyMode::INSERT;
        self.lock(Some(key), KeyMode::WRITE | gap)?;
        loop {
            let next = Self::next(&self.rows(), Bound::Excluded(key));
            self.lock(next, gap)?;
            let mut rows = self.rows.lock().expect("as above");
            if Self::next(&rows, Bound::Excluded(key)) == next {
                let row = rows.remove(&key);
                self.undo.push((key, row));
                return Ok(());
            }
        }
    }

    fn replace(&mut self, key: u8, row: u64) {
        let old = self.rows().insert(key, row);
        self.undo.push((key, old));
    }

    fn undo(&mut self) {
        let mut rows = self.rows.lock().expect("as above");
        for (key, row) in self.undo.drain(..).rev() {
            match row {
                Some(row) => rows.insert(key, row),
                None => rows.remove(&key),
            };
        }
    }

    /// Moves what a row has to another key, so that rows come and go.
    fn move_row(&mut self, from: u8, to: u8) -> Result<(), Abort> {
        let Some(amount) = self.read(from, KeyMode::WRITE)? else { return Ok(()) };
        self.remove(from)?;
        thread::yield_now();
        if !self.insert(to, amount)? {
            let row = self.read(to, KeyMode::WRITE)?.expect("it is there, and locked");
            self.replace(to, row + amount);
        }
        Ok(())
    }
}

fn random_transaction(tx: &mut Transaction<'_>, rng: &mut StdRng) -> Result<Result<(), String>, Abort> {
    let [a, b] = [rng.random_range(0..KEYS), rng.random_range(0..KEYS)];
    let (lower, upper) = (a.min(b), a.max(b));
    match rng.random_range(0..5) {
        0 => {
            let sum: u64 = tx.scan(0, KEYS)?.iter().map(|(_, row)| row).sum();
            if sum != ROWS * 10 {
                return Ok(Err(format!("the rows sum up to {sum}")));
            }
        }
        1 => {
            let first = tx.scan(lower, upper)?;
            thread::yield_now();
            let again = tx.scan(lower, upper)?;
            if first != again {
                return Ok(Err(format!("phantoms: {first:?}, then {again:?}")));
            }
        }
        2 => {
            let first = tx.read(a, KeyMode::READ)?;
            thread::yield_now();
            if first != tx.read(a, KeyMode::READ)? {
                return Ok(Err(format!("key {a} was read as {first:?} before")));
            }
        }
        3 => {
            // What it has scanned stays protected when it removes and inserts there itself.
            let mut first = tx.scan(lower, upper)?;
            if let Some((key, _)) = first.first().copied() {
                tx.remove(key)?;
                first.remove(0);
                thread::yield_now();
                if tx.scan(lower, upper)? != first {
                    return Ok(Err("phantoms where a row was removed".to_owned()));
                }
                tx.undo();
            }
        }
        _ => tx.move_row(a, b)?,
    }
    Ok(Ok(()))
}

fn work(manager: &Arc<LockManager>, rows: &Mutex<Rows>, stamps: &AtomicU64, seed: u64) -> Result<(), String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut agent = manager.agent();
    for _ in 0..250 {
        let stamp = stamps.fetch_add(1, Ordering::Relaxed);
        loop {
            agent.begin(stamp);
            let mut tx = Transaction { agent: &mut agent, rows, undo: Vec::new() };
            let result = random_transaction(&mut tx, &mut rng);
            // Some give up at the end, after all they have done.
            let gives_up = rng.random_range(0..8) == 0;
            if result.is_err() || gives_up {
                tx.undo();
            }
            agent.release_all();
            match result {
                Ok(Ok(())) => break,
                Ok(Err(wrong)) => return Err(wrong),
                Err(abort) => assert_eq!(abort.reason(), AbortReason::Deadlock),
            }
        }
    }
    Ok(())
}

/// Runs random transactions. Fails with what one of them has seen and should not have.
fn run(seed: u64, prepare: impl Fn(&mut dyn FnMut()) + Copy + Send + 'static) -> Result<(), String> {
    let manager = LockManager::new(LockOptions { buckets: 8, ..LockOptions::default() });
    let rows: Rows = (0..ROWS).map(|row| (row as u8 * 2, 10)).collect();
    let shared = Arc::new((Mutex::new(rows), AtomicU64::new(0)));
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (manager, shared) = (Arc::clone(&manager), Arc::clone(&shared));
            thread::spawn(move || {
                let mut result = Ok(());
                prepare(&mut || result = work(&manager, &shared.0, &shared.1, seed * THREADS + number));
                result
            })
        })
        .collect();
    // All are waited for, whatever the first one has found.
    let results: Vec<_> = threads.into_iter().map(thread::JoinHandle::join).collect();
    for result in results {
        result.map_err(|_| "a thread failed".to_owned())??;
    }
    let sum: u64 = shared.0.lock().expect("no thread panics while it has the map").values().sum();
    if sum == ROWS * 10 { Ok(()) } else { Err(format!("in the end the rows sum up to {sum}")) }
}

#[test]
fn transactions_are_serializable_with_rows_that_come_and_go() {
    for seed in 0..6 {
        run(seed, |work| work()).expect("no transaction sees what it should not");
    }
}

#[cfg(debug_assertions)]
#[test]
fn planted_bugs_are_caught() {
    use atrapos_baselines::planted::{Bug, with};
    let found = (0..40).any(|seed| run(seed, |work| with(Bug::InsertIntoProtected, work)).is_err());
    assert!(found, "gaps that are not protected are not noticed");
}
