//! Random transactions by threads until the machine crashes, what is left of them, and the proof that all of it is one strictly
//! serializable history: what was acknowledged is there, with everything that it depends on.

use std::sync::atomic::{AtomicU64, Ordering};

use atrapos_baselines::Engine;
use atrapos_durability::file::ModelFiles;
use atrapos_history::{Entry, Event, History, Outcome, Predicate, Report};

use super::{create, open};
use crate::engines::histories::{GRAVES, KEYS, ROWS, THREADS, run_clients, state};
use crate::engines::{ENGINES, MakeEngine, run};

/// Reads everything that is left, as one more session of the history.
fn read_all(engine: &dyn Engine, moments: &AtomicU64) -> Result<[Entry; 2], String> {
    let (session, now) = (THREADS, || moments.fetch_add(1, Ordering::SeqCst));
    let begins = Entry::Begins { session, at: now(), writes: vec![], appends: vec![] };
    let events = run(&mut *engine.client(), |tx| {
        let mut events = Vec::new();
        for key in 0..KEYS {
            match (state(tx, ROWS, key)?, state(tx, GRAVES, key)?) {
                (Some(found), _) => {
                    events.push(Event::Read { what: Predicate::key(key), rows: vec![(key, found)] });
                }
                (None, Some(found)) => events.push(Event::Gone { key, found }),
                (None, None) => events.push(Event::Read { what: Predicate::key(key), rows: vec![] }),
            }
        }
        Ok(events)
    });
    let events = events.map_err(|abort| abort.to_string())?;
    Ok([begins, Entry::Ends { session, at: now(), outcome: Outcome::Committed, events }])
}

/// Crashes in the middle of a random history, opens what is left, and judges everything that was told.
fn crash_and_judge(
    make: MakeEngine,
    seed: u64,
    around: impl Fn(&mut dyn FnMut()) + Sync,
) -> Result<Report, String> {
    let (files, moments) = (ModelFiles::new(), AtomicU64::new(1));
    let engine = create(make(), &files).map_err(|error| error.to_string())?;
    // Each write of the log is two calls.
    files.crash_at(1 + seed * 7 % 120);
    let mut entries = run_clients(&engine, seed, &moments, around)?;
    let left = if seed.is_multiple_of(3) { files.kill() } else { files.power_cut(seed) };
    drop(engine);
    let engine = open(make, &left).map_err(|error| error.to_string())?;
    engine.check()?;
    entries.extend(read_all(&engine, &moments)?);
    History::new(entries)?.check().map_err(|anomaly| anomaly.to_string())
}

#[test]
fn histories_with_a_crash_are_strictly_serializable() {
    for make in ENGINES {
        let mut all = Report::default();
        for seed in 0..30 {
            let report = crash_and_judge(make, seed, |run| run());
            all = all.plus(&report.unwrap_or_else(|wrong| panic!("{}, seed {seed}: {wrong}", make().name())));
        }
        assert!(
            all.committed > 500 && all.unknown > 0 && all.edges > 1000,
            "hardly anything happened: {all:?}"
        );
    }
}

#[cfg(debug_assertions)]
#[test]
fn planted_bugs_are_caught() {
    use atrapos_baselines::planted::{Bug, with};
    for make in ENGINES {
        for bug in [Bug::CommitToldEarly, Bug::ReaderToldEarly] {
            let caught = (0..400).any(|seed| crash_and_judge(make, seed, |run| with(bug, run)).is_err());
            assert!(caught, "{}: {bug:?} is not noticed", make().name());
        }
    }
}
