//! TATP.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use atrapos::{AbortReason, Database, KeyRange, Table};
use atrapos_harness::driver::{Routing, RunResult};
use atrapos_workloads::tatp::Tatp;
use atrapos_workloads::tatp::parameters::{Class, Mix};
use atrapos_workloads::tatp::procedures;
use atrapos_workloads::tatp::schema::{
    CallForwarding, CallForwardings, SpecialFacilities, SpecialFacility, Subscribers, Tables, sub_nbr,
};
use atrapos_workloads::{AuditError, KeyChoice, Ledger, Workload};

use crate::support::{BURSTS, DRIVERS, SESSIONS, loaded, run_and_audit, run_once};

const SUBSCRIBERS: u64 = 500;
const SEED: u64 = 3;

fn tatp(mix: Mix) -> Tatp {
    Tatp::new(SUBSCRIBERS, mix, KeyChoice::Uniform, SEED).expect("a possible number of subscribers")
}

fn completed(result: &RunResult, class: Class) -> u64 {
    result.classes[class as usize].tally.completed()
}

#[test]
fn every_class_runs_under_every_driver_and_leaves_a_sound_database() {
    let db = loaded(&tatp(Mix::Standard), 2);
    let mut ledger = Ledger::new();
    for class in Class::ALL {
        for (clients, routing) in DRIVERS {
            let result = run_and_audit(&db, &tatp(Mix::Only(class)), clients, routing, &mut ledger);
            assert!(completed(&result, class) > 0, "{} under {clients:?}", class.name());
            let others: u64 = Class::ALL
                .iter()
                .filter(|other| **other != class)
                .map(|other| completed(&result, *other))
                .sum();
            assert_eq!(others, 0, "only {} was asked for", class.name());
            let aborted: u64 = result.classes.iter().flat_map(|class| class.tally.aborted).sum();
            assert_eq!(
                aborted,
                0,
                "{}: nothing but a deadlock could abort it, and there is none",
                class.name()
            );
        }
    }
}

#[test]
fn the_standard_mix_runs_under_every_driver_and_leaves_a_sound_database() {
    for workers in [1, 2, 3] {
        let db = loaded(&tatp(Mix::Standard), workers);
        let mut ledger = Ledger::new();
        for (clients, routing) in DRIVERS {
            let result = run_and_audit(&db, &tatp(Mix::Standard), clients, routing, &mut ledger);
            assert!(result.throughput_tps() > 0.0 && result.committed_tps() <= result.throughput_tps());
            assert_eq!(result.workers.len(), workers);
        }
    }
}

#[test]
fn non_uniform_keys_run_too() {
    let workload = Tatp::new(SUBSCRIBERS, Mix::Standard, KeyChoice::NonUniform, SEED).expect("subscribers");
    let db = loaded(&workload, 2);
    run_and_audit(&db, &workload, SESSIONS, Routing::Any, &mut Ledger::new());
}

#[test]
fn transactions_on_their_own_worker_lock_nothing_and_send_nothing() {
    let db = loaded(&tatp(Mix::Standard), 2);
    let before = (db.statistics(), db.worker_reports());
    let result = run_once(&db, &tatp(Mix::Standard), SESSIONS, Routing::Owner, 1);
    let added = db.statistics().since(&before.0);
    assert!(added.committed > 0 && added.local_actions > 0);
    assert_eq!((added.remote_actions, added.locks_entered, added.lock_waits, added.forwarded), (0, 0, 0, 0));
    assert_eq!((result.statistics.remote_actions, result.statistics.locks_entered), (0, 0));
    for (before, after) in before.1.iter().zip(db.worker_reports()) {
        assert_eq!(after.runtime.messages_sent, before.runtime.messages_sent, "{}", after.runtime.worker);
    }
}

#[test]
fn keys_of_large_data_are_looked_up_together() {
    let workload = Tatp::new(20_000, Mix::Standard, KeyChoice::Uniform, 1).expect("subscribers");
    let db = loaded(&workload, 2);
    let mut ledger = Ledger::new();
    // Bursts of a session, and then procedures that the other worker has sent.
    for (clients, routing) in [(BURSTS, Routing::Owner), (SESSIONS, Routing::Any), (BURSTS, Routing::Any)] {
        let before = db.statistics().interleaved;
        run_and_audit(&db, &workload, clients, routing, &mut ledger);
        assert!(db.statistics().interleaved > before, "{clients:?}, {routing:?}");
    }
}

#[test]
fn requests_for_any_subscriber_run_at_their_home_without_remote_actions() {
    let db = loaded(&tatp(Mix::Standard), 2);
    run_once(&db, &tatp(Mix::Standard), SESSIONS, Routing::Any, 1);
    let statistics = db.statistics();
    assert!(statistics.forwarded > 0, "half of the requests belong to the other worker");
    // Every row of a subscriber, and its index entry, is on one worker: so nothing is remote once the request is there.
    assert_eq!((statistics.remote_actions, statistics.locks_entered), (0, 0));
}

/// All rows of a table.
fn rows<T: Table>(db: &Database) -> Vec<(T::Key, T::Row)> {
    let table = db.table::<T>().expect("the table");
    let route = table.at_prefix(&0_u64);
    let collect = |rows: &mut Vec<_>, key, row| {
        rows.push((key, row));
        ControlFlow::Continue(())
    };
    let read =
        async move |tx: &mut atrapos::Tx<'_>| tx.fold(table, KeyRange::all(), Vec::new(), collect).await;
    db.run(route, read).expect("a scan")
}

#[test]
fn the_population_does_not_depend_on_the_number_of_workers() {
    let workload = tatp(Mix::Standard);
    let [one, three] = [1, 3].map(|workers| loaded(&workload, workers));
    assert_eq!(rows::<Subscribers>(&one), rows::<Subscribers>(&three));
    assert_eq!(rows::<SpecialFacilities>(&one), rows::<SpecialFacilities>(&three));
    assert_eq!(rows::<CallForwardings>(&one), rows::<CallForwardings>(&three));
    let numbers: Vec<_> =
        rows::<Subscribers>(&three).into_iter().map(|(s_id, row)| (s_id, row.sub_nbr)).collect();
    assert_eq!(numbers, (1..=SUBSCRIBERS).map(|s_id| (s_id, sub_nbr(s_id))).collect::<Vec<_>>());
}

#[test]
fn more_workers_than_subscribers_still_run() {
    let workload = Tatp::new(2, Mix::Standard, KeyChoice::Uniform, SEED).expect("subscribers");
    let db = loaded(&workload, 4);
    run_and_audit(&db, &workload, SESSIONS, Routing::Owner, &mut Ledger::new());
}

/// Checks the destinations of a subscriber's facility against those that plain maps have.
fn check_destinations(
    db: &Database,
    tables: Tables,
    facility: Option<&SpecialFacility>,
    forwarding: &BTreeMap<(u64, u8, u8), CallForwarding>,
    (s_id, sf_type): (u64, u8),
) {
    for (start, end) in [(0, 1), (0, 7), (8, 12), (16, 3), (16, 24)] {
        let expected: Vec<_> = forwarding
            .range((s_id, sf_type, 0)..=(s_id, sf_type, start))
            .filter(|(_, row)| facility.is_some_and(|row| row.is_active) && end < row.end_time)
            .map(|(_, row)| row.numberx)
            .collect();
        let found = db.run(tables.subscriber.at(&s_id), async move |tx: &mut atrapos::Tx<'_>| {
            procedures::get_new_destination(tx, tables, s_id, sf_type, start, end).await
        });
        assert_eq!(found.map(|found| found.to_vec()), Ok(expected), "{s_id}, {sf_type}, {start}, {end}");
    }
}

/// A reference implementation of the seven transactions over plain maps, against which the procedures are run one by one.
#[test]
fn procedures_do_what_the_specification_says() {
    let db = loaded(&tatp(Mix::Standard), 2);
    let tables = Tables::of(&db).expect("the schema");
    let facilities: BTreeMap<_, _> = rows::<SpecialFacilities>(&db).into_iter().collect();
    let mut forwarding: BTreeMap<_, _> = rows::<CallForwardings>(&db).into_iter().collect();
    for s_id in 1..=60_u64 {
        let at = tables.subscriber.at(&s_id);
        let number = sub_nbr(s_id);
        for sf_type in 1..=4_u8 {
            let facility = facilities.get(&(s_id, sf_type));
            check_destinations(&db, tables, facility, &forwarding, (s_id, sf_type));

            let bit = (s_id % 2) as u8;
            let updated = db.run(at.clone(), async move |tx: &mut atrapos::Tx<'_>| {
                procedures::update_subscriber_data(tx, tables, s_id, bit, sf_type, 77).await
            });
            let row = db
                .run(at.clone(), async move |tx| {
                    procedures::get_subscriber_data(tx, tables.subscriber, s_id).await
                })
                .expect("a read")
                .expect("the subscriber");
            match facility {
                Some(_) => {
                    assert_eq!(updated, Ok(()));
                    assert_eq!(row.bit[0], bit);
                }
                None => assert_eq!(updated.map_err(|abort| abort.reason()), Err(AbortReason::User)),
            }

            let start = [0, 8, 16][(s_id % 3) as usize];
            let key = (s_id, sf_type, start);
            let new = CallForwarding { end_time: 20, numberx: *b"123456789012345" };
            let insert = new.clone();
            let inserted = db.run(at.clone(), async move |tx: &mut atrapos::Tx<'_>| {
                procedures::insert_call_forwarding(tx, tables, number, sf_type, start, insert.clone()).await
            });
            let may = facility.is_some() && !forwarding.contains_key(&key);
            assert_eq!(inserted, Ok(may), "{key:?}");
            if may {
                forwarding.insert(key, new);
            }

            let start = [8, 16, 0][(s_id % 3) as usize];
            let deleted = db.run(at.clone(), async move |tx: &mut atrapos::Tx<'_>| {
                procedures::delete_call_forwarding(tx, tables, number, sf_type, start).await
            });
            assert_eq!(deleted, Ok(forwarding.remove(&(s_id, sf_type, start)).is_some()));
        }
        let location = db.run(at.clone(), async move |tx: &mut atrapos::Tx<'_>| {
            let updated = procedures::update_location(tx, tables, number, 4711).await?;
            Ok((
                updated,
                procedures::get_subscriber_data(tx, tables.subscriber, s_id)
                    .await?
                    .map(|row| row.vlr_location),
            ))
        });
        assert_eq!(location, Ok((true, Some(4711))));
    }
    assert_eq!(rows::<CallForwardings>(&db), forwarding.into_iter().collect::<Vec<_>>());
    let unknown = sub_nbr(SUBSCRIBERS + 1);
    let nobody = db.run(tables.by_number.at(&unknown), async move |tx: &mut atrapos::Tx<'_>| {
        Ok((
            procedures::update_location(tx, tables, unknown, 1).await?,
            procedures::delete_call_forwarding(tx, tables, unknown, 1, 0).await?,
            procedures::get_access_data(tx, tables.access_info, SUBSCRIBERS + 1, 1).await?.is_some(),
        ))
    });
    assert_eq!(nobody, Ok((false, false, false)));
}

/// Plants one bug behind the ledger's back and returns what the audit says.
fn audit_after(plant: impl Fn(&Database, Tables)) -> AuditError {
    let workload = tatp(Mix::Standard);
    let db = loaded(&workload, 2);
    plant(&db, Tables::of(&db).expect("the schema"));
    workload.audit(&db, &Ledger::new()).expect_err("the audit finds the planted bug")
}

#[test]
fn the_audit_finds_planted_bugs() {
    // A committed insertion that nobody has counted: as good as a lost deletion.
    let (key, _) = rows::<CallForwardings>(&loaded(&tatp(Mix::Standard), 1)).swap_remove(10);
    let lost = audit_after(|db, tables| {
        let gone = db.run(tables.call_forwarding.at(&key), async move |tx| {
            tx.delete(tables.call_forwarding, key).await
        });
        assert!(gone.expect("a deletion").is_some());
    });
    assert!(matches!(lost, AuditError::Count { table: "call_forwarding", .. }), "{lost}");

    // A column that no transaction changes.
    let torn = audit_after(|db, tables| {
        let change = async move |tx: &mut atrapos::Tx<'_>| {
            tx.update(tables.subscriber, 77, |row| row.hex[3] ^= 1).await
        };
        db.run(tables.subscriber.at(&77), change).expect("an update");
    });
    assert!(matches!(&torn, AuditError::Row { table: "subscriber", key, .. } if key == "77"), "{torn}");

    // A value that no transaction writes.
    let absurd = audit_after(|db, tables| {
        let change = async move |tx: &mut atrapos::Tx<'_>| {
            tx.update(tables.subscriber, 5, |row| row.vlr_location = 0).await
        };
        db.run(tables.subscriber.at(&5), change).expect("an update");
    });
    assert!(absurd.to_string().contains("vlr_location"), "{absurd}");

    // A row that is gone and one that was invented, so that the number of rows is right.
    let swapped = audit_after(|db, tables| {
        let swap = async move |tx: &mut atrapos::Tx<'_>| {
            for ai_type in 1..=4 {
                if let Some(row) = tx.delete(tables.access_info, (9, ai_type)).await? {
                    return tx.insert(tables.access_info, (9, ai_type + 4), row).await;
                }
            }
            Ok(())
        };
        db.run(tables.access_info.at(&(9, 1)), swap).expect("a swap");
    });
    assert!(matches!(swapped, AuditError::Row { table: "access_info", .. }), "{swapped}");

    // A ledger that claims more than was done: a lost insertion.
    let workload = tatp(Mix::Only(Class::InsertCallForwarding));
    let db = loaded(&workload, 2);
    let mut ledger = Ledger::new();
    let result = run_and_audit(&db, &workload, SESSIONS, Routing::Owner, &mut ledger);
    ledger.add(&result.tallies_all);
    let claimed = workload.audit(&db, &ledger).expect_err("insertions that are not there");
    assert!(matches!(claimed, AuditError::Count { table: "call_forwarding", .. }), "{claimed}");
    // Nobody's count is no reason to find the rest wrong.
    assert!(workload.audit_uncounted(&db).is_ok_and(|report| report.rows > SUBSCRIBERS));
}
