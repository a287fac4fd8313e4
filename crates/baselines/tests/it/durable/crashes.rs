//! A crash, and a failure, at every call to the file system: what was told comes back, and nothing by halves.

use std::collections::BTreeMap;

use atrapos_baselines::durable::StoreError;
use atrapos_baselines::{Engine, EngineClient, Intent};
use atrapos_durability::file::{Fault, FaultKind, ModelFiles, Times};
use atrapos_partition::abort::AbortReason;

use super::{create, open};
use crate::engines::{ENGINES, MakeEngine, OTHER, TABLE, check, load, put, rows};

/// Transactions before the database is closed and opened again, and in all.
const BEFORE: u64 = 4;
const ALL: u64 = 7;

/// Both tables after so many transactions.
fn state_after(count: u64) -> [BTreeMap<u64, u64>; 2] {
    let mut tables = [BTreeMap::from([(0, 0), (1000, 1)]), BTreeMap::new()];
    for number in 1..=count {
        tables[0].insert(0, number);
        tables[0].insert(number, number);
        if number > 2 {
            tables[0].remove(&(number - 2));
        }
        tables[1].insert(number % 3, number);
    }
    tables
}

/// Runs transaction `number`: it replaces, inserts and removes, in two tables.
fn transaction(client: &mut dyn EngineClient, number: u64) -> Result<(), AbortReason> {
    let ended = client.attempt(&mut |tx| {
        put(tx, TABLE, 0, number)?;
        put(tx, TABLE, number, number)?;
        if number > 2 {
            tx.remove(TABLE, &(number - 2).to_be_bytes())?;
        }
        put(tx, OTHER, number % 3, number)
    });
    ended.map_err(|abort| abort.reason())
}

/// Outcomes that somebody was told, and those that are possible besides.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    is_created: bool,
    committed: u64,
    begun: u64,
}

/// Runs transactions on an engine up to one with this number. After a failure nothing more is acknowledged.
fn run(engine: &dyn Engine, until: u64, told: &mut Told) -> Result<(), String> {
    let mut client = engine.client();
    for number in told.committed + 1..=until {
        told.begun = number;
        if let Err(reason) = transaction(&mut *client, number) {
            assert_eq!(reason, AbortReason::NotDurable);
            assert_eq!(transaction(&mut *client, 6000), Err(AbortReason::NotDurable), "it goes on");
            let read = client.attempt(&mut |tx| tx.read(TABLE, &0_u64.to_be_bytes(), Intent::Read).map(drop));
            assert!(read.is_err(), "it goes on");
            return Err("a transaction was not durable".to_owned());
        }
        told.committed = number;
    }
    Ok(())
}

/// An engine with the population.
fn filled(make: MakeEngine) -> Box<dyn Engine> {
    let engine = make();
    load(&*engine, TABLE, [(0, 0), (1000, 1)]);
    engine
}

/// Creates a database, runs some transactions, closes it, opens it, and runs others.
fn live(make: MakeEngine, files: &ModelFiles, told: &mut Told) -> Result<(), String> {
    let engine = Box::new(create(filled(make), files).map_err(|error| error.to_string())?);
    told.is_created = true;
    run(&*engine, BEFORE, told)?;
    engine.close().map_err(|abort| abort.to_string())?;
    let engine = Box::new(open(make, files).map_err(|error| error.to_string())?);
    run(&*engine, ALL, told)?;
    engine.close().map_err(|abort| abort.to_string())
}

/// The number of transactions in an engine, if it is in the state after so many.
fn transactions_in(engine: &dyn Engine) -> Option<u64> {
    check(engine);
    let found = [TABLE, OTHER].map(|table| rows(engine, table).into_iter().collect::<BTreeMap<_, _>>());
    (0..=ALL + 1).find(|count| state_after(*count) == found)
}

/// Opens what is left and looks whether it is what was told; goes on with it, and opens it once more.
fn judge(make: MakeEngine, files: &ModelFiles, told: Told) -> Result<(), String> {
    let engine = match open(make, files) {
        Ok(engine) => engine,
        Err(error) if told.is_created => return Err(format!("it cannot be opened: {error}")),
        Err(StoreError::Missing { .. }) => {
            let again = create(filled(make), files);
            return again.map(drop).map_err(|error| format!("it cannot be created again: {error}"));
        }
        Err(error) => return Err(format!("it is there, and cannot be opened: {error}")),
    };
    let found = transactions_in(&engine).ok_or("it is in a state in which it never was")?;
    if !(told.committed..=told.begun).contains(&found) {
        return Err(format!("{found} transactions came back of {told:?}"));
    }
    transaction(&mut *engine.client(), found + 1)
        .map_err(|reason| format!("it does not go on: {reason:?}"))?;
    drop(engine);
    let engine = open(make, &files.kill()).map_err(|error| format!("it cannot be opened again: {error}"))?;
    match transactions_in(&engine) {
        Some(now) if now == found + 1 => Ok(()),
        now => Err(format!("{now:?} transactions came back at the second opening, not {}", found + 1)),
    }
}

/// Judges what a kill and what some power cuts leave.
fn judge_all(make: MakeEngine, files: &ModelFiles, told: Told) -> Result<(), String> {
    judge(make, &files.kill(), told).map_err(|wrong| format!("killed: {wrong}"))?;
    for seed in 0..4 {
        judge(make, &files.power_cut(seed), told).map_err(|wrong| format!("power cut {seed}: {wrong}"))?;
    }
    Ok(())
}

/// Crashes at every call. Fails with the first thing that is wrong.
fn crash_everywhere(make: MakeEngine) -> Result<(), String> {
    for call in 1.. {
        let (files, mut told) = (ModelFiles::new(), Told::default());
        files.crash_at(call);
        let ended = live(make, &files, &mut told);
        judge_all(make, &files, told).map_err(|wrong| format!("crash at call {call}: {wrong}"))?;
        if ended.is_ok() {
            assert!(call > 30, "there were hardly any calls: {call}");
            return Ok(());
        }
    }
    unreachable!("calls end some time")
}

#[test]
fn a_crash_at_every_call_loses_nothing_that_was_told() {
    for make in ENGINES {
        crash_everywhere(make).unwrap_or_else(|wrong| panic!("{}: {wrong}", make().name()));
    }
}

#[test]
fn a_failure_of_every_call_is_told_and_loses_nothing() {
    for make in ENGINES {
        for kind in [FaultKind::Eio, FaultKind::NoSpace, FaultKind::ShortWrite, FaultKind::SyncFails] {
            for at in 1.. {
                let (files, mut told) = (ModelFiles::new(), Told::default());
                files.set_fault(Fault { at, calls: None, kind, times: Times::Once });
                let ended = live(make, &files, &mut told);
                let was_hit = files.fault_hits() > 0;
                files.clear_fault();
                judge_all(make, &files, told)
                    .unwrap_or_else(|wrong| panic!("{}, {kind:?} of call {at}: {wrong}", make().name()));
                if !was_hit {
                    ended.unwrap_or_else(|wrong| panic!("nothing has failed: {wrong}"));
                    break;
                }
            }
        }
    }
}

#[cfg(debug_assertions)]
#[test]
fn planted_bugs_are_caught() {
    use atrapos_baselines::planted::{Bug, with};
    for make in ENGINES {
        assert!(with(Bug::CommitToldEarly, || crash_everywhere(make)).is_err());
        assert!(with(Bug::FailureForgotten, || crash_everywhere(make)).is_err());
    }
}
