//! Random transactions by threads, written down and proved to be strictly serializable.
//!
//! There are so few keys that nearly all transactions conflict. Rows carry a version, the version that it replaced, and a group
//! by which they are indexed; deleted rows leave both versions in another table. They have many lengths, so that some
//! are overwritten and others replaced by longer records.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;

use atrapos_baselines::planted::with_pauses;
use atrapos_baselines::{Engine, Intent, RowTransaction};
use atrapos_history::{Entry, Event, Found, History, Outcome, Predicate, Report};
use atrapos_partition::abort::{Abort, AbortReason, Advice};
use atrapos_partition::schema::TableId;

use super::{MakeEngine, everywhere};

pub(crate) const ROWS: TableId = TableId(0);
pub(crate) const GRAVES: TableId = TableId(1);
const BY_GROUP: TableId = TableId(2);

pub(crate) const THREADS: u64 = 4;
pub(crate) const KEYS: u64 = 12;
const GROUPS: u64 = 3;
/// Transactions of each client.
const TRANSACTIONS: u64 = if cfg!(miri) { 4 } else { 150 };

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Writes a state down as a row whose length follows from its version; none without a group.
fn encode(found: Found) -> Vec<u8> {
    let group = found.group.map_or(u32::MAX, |group| group);
    let mut row =
        [&found.version.to_be_bytes()[..], &found.over.to_be_bytes(), &group.to_be_bytes()].concat();
    row.resize(row.len() + (found.version * 7 % 90) as usize, found.version as u8);
    row
}

fn torn() -> Abort {
    Abort::because(AbortReason::Corruption, "a row is torn")
}

fn decode(row: &[u8]) -> Result<Found, Abort> {
    let number = |at: usize| Some(u64::from_be_bytes(row.get(at..at + 8)?.try_into().ok()?));
    let (version, over) = number(0).zip(number(8)).ok_or_else(torn)?;
    let group = row.get(16..20).and_then(|group| group.try_into().ok()).ok_or_else(torn)?;
    let group = Some(u32::from_be_bytes(group)).filter(|group| *group != u32::MAX);
    let found = Found { version, over, group };
    if encode(found) == row { Ok(found) } else { Err(torn()) }
}

fn entry(group: u32, key: u64) -> Vec<u8> {
    [&group.to_be_bytes()[..], &key.to_be_bytes()].concat()
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Writes a version, in a group or as a deletion.
    Write(u64, u64, Option<u32>),
    Read(u64),
    /// Reads a range, backward or not, up to so many rows.
    Scan(u64, u64, bool, usize),
    ReadGroup(u32),
}

fn draw(random: &mut Random, version: &mut u64) -> Step {
    let key = random.below(KEYS);
    match random.below(8) {
        0..=2 => {
            *version += 1;
            let group = (random.below(3) > 0).then(|| random.below(GROUPS) as u32);
            Step::Write(key, *version, group)
        }
        3..=4 => Step::Read(key),
        5..=6 => {
            Step::Scan(key, key + 1 + random.below(KEYS), random.below(2) == 0, 1 + random.below(6) as usize)
        }
        _ => Step::ReadGroup(random.below(GROUPS) as u32),
    }
}

pub(crate) fn state(tx: &mut dyn RowTransaction, table: TableId, key: u64) -> Result<Option<Found>, Abort> {
    tx.read(table, &key.to_be_bytes(), Intent::Write)?.map(decode).transpose()
}

/// Replaces, inserts or removes a row, with its entry of the index.
fn write(
    tx: &mut dyn RowTransaction,
    (key, version, group): (u64, u64, Option<u32>),
    events: &mut Vec<Event>,
) -> Result<(), Abort> {
    let bytes = key.to_be_bytes();
    let row = state(tx, ROWS, key)?;
    let grave = if row.is_none() { state(tx, GRAVES, key)? } else { None };
    let found = row.or(grave).unwrap_or(Found::NEVER);
    let new = Found { version, over: found.version, group };
    match (row.is_some(), group.is_some()) {
        (true, true) => tx.replace(ROWS, &bytes, &encode(new))?,
        (false, true) => {
            if !tx.insert(ROWS, &bytes, &encode(new))? {
                return Err(Abort::user("the row has come meanwhile"));
            }
        }
        (true, false) => {
            if !tx.remove(ROWS, &bytes)? {
                return Err(Abort::user("the row has gone meanwhile"));
            }
            if state(tx, GRAVES, key)?.is_some() {
                tx.replace(GRAVES, &bytes, &encode(new))?;
            } else {
                tx.insert(GRAVES, &bytes, &encode(new))?;
            }
        }
        (false, false) => return Ok(()),
    }
    if let Some(group) = found.group.filter(|old| Some(*old) != group) {
        tx.remove(BY_GROUP, &entry(group, key))?;
    }
    if let Some(group) = group.filter(|new| Some(*new) != found.group) {
        tx.insert(BY_GROUP, &entry(group, key), &bytes)?;
    }
    events.push(Event::Write { key, found, version, group });
    Ok(())
}

fn scan(
    tx: &mut dyn RowTransaction,
    (from, to): (u64, u64),
    (backward, count): (bool, usize),
    events: &mut Vec<Event>,
) -> Result<(), Abort> {
    let mut rows = Vec::new();
    let range = (&from.to_be_bytes()[..], Some(&to.to_be_bytes()[..]));
    let stopped = tx.scan(ROWS, range, backward, &mut |key, row| {
        rows.push((super::number(key), decode(row)?));
        Ok(if rows.len() == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    let last = rows.last().map_or(from, |(key, _)| *key);
    let what = match (stopped, backward) {
        (false, _) => Predicate::Keys(from, to),
        (true, false) => Predicate::Keys(from, last + 1),
        (true, true) => Predicate::Keys(last, to),
    };
    events.push(Event::Read { what, rows });
    Ok(())
}

fn make(tx: &mut dyn RowTransaction, step: Step, events: &mut Vec<Event>) -> Result<(), Abort> {
    match step {
        Step::Write(key, version, group) => write(tx, (key, version, group), events)?,
        Step::Read(key) => {
            let rows = state(tx, ROWS, key)?.map(|found| (key, found)).into_iter().collect();
            events.push(Event::Read { what: Predicate::key(key), rows });
        }
        Step::Scan(from, to, backward, count) => scan(tx, (from, to), (backward, count), events)?,
        Step::ReadGroup(group) => {
            let mut keys = Vec::new();
            let (from, to) = (group.to_be_bytes(), (group + 1).to_be_bytes());
            tx.scan(BY_GROUP, (&from, Some(&to)), false, &mut |_, key| {
                keys.push(u64::from_be_bytes(key.try_into().map_err(|_| torn())?));
                Ok(ControlFlow::Continue(()))
            })?;
            let mut rows = Vec::new();
            for key in keys {
                let found = state(tx, ROWS, key)?.ok_or(Abort::user("an entry leads nowhere"))?;
                rows.push((key, found));
            }
            events.push(Event::Read { what: Predicate::Group(group), rows });
        }
    }
    Ok(())
}

/// Runs the transactions of one client, and tells of them.
fn run_client(
    engine: &dyn Engine,
    session: u64,
    seed: u64,
    moments: &AtomicU64,
) -> Result<Vec<Entry>, Abort> {
    let now = || moments.fetch_add(1, Ordering::SeqCst);
    let (mut client, mut entries, mut version) = (engine.client(), Vec::new(), (session + 1) << 32);
    let mut random = Random(seed ^ (session << 48));
    for _ in 0..TRANSACTIONS {
        let steps: Vec<Step> = (0..1 + random.below(5)).map(|_| draw(&mut random, &mut version)).collect();
        let writes = steps.iter().filter_map(|step| match step {
            Step::Write(key, version, _) => Some((*key, *version)),
            _ => None,
        });
        entries.push(Entry::Begins { session, at: now(), writes: writes.collect(), appends: vec![] });
        let (mut events, mut torn) = (Vec::new(), None);
        let changes_mind = random.below(8) == 0;
        let ended = client.attempt(&mut |tx| {
            let made = steps.iter().try_for_each(|step| make(tx, *step, &mut events));
            torn = made.as_ref().err().filter(|abort| abort.reason() == AbortReason::Corruption).cloned();
            made?;
            if changes_mind { Err(Abort::user("it changed its mind")) } else { Ok(()) }
        });
        // A row is whole whether the transaction commits or not.
        if let Some(torn) = torn {
            return Err(torn);
        }
        if ended.as_ref().is_err_and(|abort| abort.reason().advice() == Advice::Retry) {
            client.back_off(1);
        }
        let (outcome, events) = match ended {
            Ok(()) => (Outcome::Committed, events),
            // Whether it survives is not known yet, and the engine does not go on.
            Err(abort) if abort.reason() == AbortReason::NotDurable => return Ok(entries),
            Err(abort) => {
                let is_known =
                    abort.reason().advice() == Advice::Retry || abort.reason() == AbortReason::User;
                if !is_known {
                    return Err(abort);
                }
                (Outcome::Aborted, Vec::new())
            }
        };
        entries.push(Entry::Ends { session, at: now(), outcome, events });
    }
    Ok(entries)
}

/// Runs the clients of one random history, with something that is done around each, and returns what they tell.
pub(crate) fn run_clients(
    engine: &dyn Engine,
    seed: u64,
    moments: &AtomicU64,
    around: impl Fn(&mut dyn FnMut()) + Sync,
) -> Result<Vec<Entry>, String> {
    let clients = std::thread::scope(|scope| {
        let spawn = |session| {
            let around = &around;
            scope.spawn(move || {
                let mut entries = Ok(Vec::new());
                with_pauses(seed.wrapping_mul(31) + session, || {
                    around(&mut || entries = run_client(engine, session, seed, moments));
                });
                entries
            })
        };
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        // All are joined, also after one that has panicked.
        let joined: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
        joined.into_iter().collect::<Result<Vec<_>, _>>().map_err(|_| "a client panicked".to_owned())
    })?;
    let mut entries = Vec::new();
    for client in clients {
        entries.extend(client.map_err(|abort| abort.to_string())?);
    }
    Ok(entries)
}

/// Runs one random history, with something that is done around each client, and judges it.
pub(crate) fn run_and_judge(
    engine: MakeEngine,
    seed: u64,
    around: impl Fn(&mut dyn FnMut()) + Sync,
) -> Result<Report, String> {
    let (engine, moments) = (engine(), AtomicU64::new(1));
    let entries = run_clients(&*engine, seed, &moments, around)?;
    engine.check()?;
    History::new(entries)?.check().map_err(|anomaly| anomaly.to_string())
}

#[test]
fn random_histories_are_strictly_serializable() {
    for engine in everywhere() {
        let mut all = Report::default();
        for seed in 0..if cfg!(miri) { 1 } else { 20 } {
            let report = run_and_judge(engine, seed, |run| run());
            all =
                all.plus(&report.unwrap_or_else(|wrong| panic!("{}, seed {seed}: {wrong}", engine().name())));
        }
        assert!(all.committed > 0 && all.predicates > 0);
        assert!(cfg!(miri) || (all.aborted > 0 && all.edges > 1000), "the transactions hardly met: {all:?}");
    }
}
