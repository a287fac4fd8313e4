//! The activity of a database: what is shown of partitions, loads, messages and waits is what there is.

use std::sync::Arc;
use std::time::Duration;

use atrapos::{Adaptation, Database, KeyRange, SchemeChange, WorkerId};

use crate::support::{Door, Items, item, load_items, open, two_tables, wait_until};

#[test]
fn partitions_are_shown_with_owners_keys_and_rows() {
    let db = open(two_tables(), 2);
    load_items(&db, 100, 1);
    let items = db.table::<Items>().unwrap();
    db.repartition([SchemeChange::split(items, &10), SchemeChange::move_to(items, &10, WorkerId(1))])
        .unwrap();
    let activity = db.activity().unwrap();
    assert_eq!(activity.workers.len(), 2);
    let family = activity.families.iter().find(|family| family.name == "items").expect("the family");
    assert_eq!(family.tables[0], "items");
    let shown: Vec<_> = family
        .partitions
        .iter()
        .map(|one| (one.worker, one.lower.as_deref(), one.upper.as_deref(), one.rows[0]))
        .collect();
    assert_eq!(
        shown,
        [
            (Some(0), None, Some("10"), 10),
            (Some(1), Some("10"), Some("50"), 40),
            (Some(1), Some("50"), None, 50)
        ]
    );
    let before = family.version;
    db.repartition([SchemeChange::move_to(items, &10, WorkerId(0))]).unwrap();
    let activity = db.activity().unwrap();
    let family = activity.families.iter().find(|family| family.name == "items").expect("the family");
    assert_eq!((family.version, family.partitions[1].worker), (before + 1, Some(0)));
    assert_eq!((activity.durability, activity.lock_waits), (None, Vec::new()));
}

#[test]
fn loads_are_those_of_the_keys_that_are_used() {
    let adaptation = Adaptation { act: false, sample_every: 1, sub_partitions: 5, ..Adaptation::default() };
    let builder = Database::builder(two_tables()).workers(2).pin(false).huge_pages(false);
    let db = builder.adaptation(adaptation).in_memory().unwrap();
    load_items(&db, 100, 1);
    // Sub-partitions are of the rows that there are when statistics begin anew.
    db.workload_trace().unwrap();
    let before = db.activity().unwrap();
    let items = db.table::<Items>().unwrap();
    for _ in 0..500 {
        db.run(items.at(&77), async move |tx| tx.update(items, 77, |row| row.value += 1).await).unwrap();
    }
    let after = db.activity().unwrap();
    let at = after.families.iter().position(|family| family.name == "items").expect("the family");
    let heat = &after.heat_since(&before)[at];
    let warm: Vec<_> =
        heat.iter().map(|parts| parts.iter().map(|heat| *heat > 0.0).collect::<Vec<_>>()).collect();
    assert_eq!(warm, [vec![false; 5], vec![false, false, true, false, false]]);
    assert_eq!(after.families[at].partitions[1].bounds[1..3], ["70", "80"]);
    let shares: f64 = heat.iter().flatten().sum();
    assert!(shares < 1.5, "{shares} workers");
}

#[test]
fn waits_are_shown_with_who_is_in_front() {
    let db = open(two_tables(), 2);
    load_items(&db, 100, 1);
    let items = db.table::<Items>().unwrap();
    let sent = |activity: &atrapos::activity::Activity| activity.workers[0].sent[1];
    let messages = sent(&db.activity().unwrap());
    let door = Arc::new(Door::default());
    let holding = {
        let door = Arc::clone(&door);
        let hold = async move |tx: &mut atrapos::Tx| {
            tx.set_client(4);
            tx.get(items, 7).await?;
            tx.update(items, 77, |row| row.value += 1).await?;
            tx.wait_for(door.pass()).await;
            Ok(())
        };
        db.submit(items.at(&7), hold).unwrap()
    };
    // Both are at home on the first worker, and the row is on the second.
    let waiting = loop {
        let activity = db.activity().unwrap();
        if activity.families.iter().flat_map(|family| &family.partitions).any(|one| one.locked > 0) {
            break db
                .submit(items.at(&8), async move |tx| tx.update(items, 77, |row| row.value += 1).await)
                .unwrap();
        }
    };
    let activity = loop {
        let activity = db.activity().unwrap();
        if !activity.lock_waits.is_empty() {
            break activity;
        }
    };
    let wait = &activity.lock_waits[0];
    assert_eq!((wait.worker, &*wait.table, &*wait.key), (1, "items", "77"));
    assert!(wait.transaction.ends_with("@w0"), "{wait:?}");
    assert!(wait.behind.as_ref().is_some_and(|other| other.ends_with("@w0") && *other != wait.transaction));
    assert_eq!((activity.workers[1].waiting, activity.workers[1].participants), (1, 2));
    assert_eq!(activity.workers[0].suspended, 2);
    let mut locks = db.locks().unwrap();
    locks.sort_by_key(|one| one.wait.is_some());
    let shown: Vec<_> =
        locks.iter().map(|one| (one.client, &*one.key, one.is_exclusive, &one.wait)).collect();
    assert_eq!(shown[..2], [(Some(4), "7", false, &None), (Some(4), "77", true, &None)], "{locks:?}");
    assert_eq!((shown.len(), shown[2].0, shown[2].1, shown[2].2), (3, None, "77", true));
    assert_eq!(locks[2].wait.as_ref().map(|wait| &*wait.behind), Some(&[4][..]));
    assert_eq!((&*locks[2].name, &locks[2].transaction), ("items", &wait.transaction));
    assert!(sent(&activity) >= messages + 2);
    door.open();
    holding.wait().unwrap();
    assert_eq!(waiting.wait(), Ok(Some(())));
    db.run(items.at(&0), async move |tx| tx.insert(items, 1000, item(1)).await).unwrap();
    assert!(db.activity().unwrap().lock_waits.is_empty());
    ranges_are_shown_with_their_ends(&db);
}

/// Looks at the lock of a range. A state that served a client before serves nobody after.
fn ranges_are_shown_with_their_ends(db: &Database) {
    let items = db.table::<Items>().unwrap();
    // A participant is told of the last commit after its client.
    wait_until(|| db.locks().unwrap().is_empty());
    let door = Arc::new(Door::default());
    let reading = {
        let door = Arc::clone(&door);
        let read = async move |tx: &mut atrapos::Tx| {
            tx.scan(items, KeyRange::between(&3_u64, &5_u64), 10).await?;
            tx.wait_for(door.pass()).await;
            Ok(())
        };
        db.submit(items.at(&7), read).unwrap()
    };
    let locks = loop {
        let locks = db.locks().unwrap();
        if !locks.is_empty() {
            break locks;
        }
    };
    assert_eq!((locks.len(), locks[0].client, locks[0].is_exclusive), (1, None, false));
    assert_eq!((&*locks[0].key, locks[0].until.as_deref()), ("3", Some("5")));
    door.open();
    reading.wait().unwrap();
    assert!(db.locks().unwrap().is_empty());
}

#[test]
fn the_numbers_of_decisions_go_on() {
    let mut adaptation = Adaptation::default();
    adaptation.controller.interval = Duration::from_millis(100);
    let builder = Database::builder(two_tables()).workers(2).pin(false).huge_pages(false);
    let db = builder.adaptation(adaptation).in_memory().unwrap();
    load_items(&db, 100, 1);
    let first = loop {
        let decisions = db.adaptation_history_after(0);
        if decisions.len() > 1 {
            break decisions;
        }
        std::thread::yield_now();
    };
    assert_eq!(first.iter().map(|(number, _)| *number).take(2).collect::<Vec<_>>(), [1, 2]);
    let later = db.adaptation_history_after(1);
    assert_eq!((later[0].0, later[0].1.decision.to_string()), (2, first[1].1.decision.to_string()));
    assert!(db.adaptation_history_after(u64::MAX).is_empty());
}

#[test]
fn no_time_passes_for_adaptation_that_is_suspended() {
    const SUSPENDED: Duration = Duration::from_millis(500);
    let mut adaptation = Adaptation::default();
    adaptation.controller.interval = Duration::from_millis(20);
    let builder = Database::builder(two_tables()).workers(2).pin(false).huge_pages(false);
    let db = builder.adaptation(adaptation).in_memory().unwrap();
    load_items(&db, 100, 1);
    let after = |decisions: usize| loop {
        let history = db.adaptation_history();
        if history.len() > decisions {
            break history;
        }
        std::thread::yield_now();
    };
    after(1);
    let suspension = db.suspend_adaptation().unwrap();
    let before = db.adaptation_history();
    let now_ns = || db.activity().unwrap().at_ns;
    let began_ns = now_ns();
    while now_ns() - began_ns < SUSPENDED.as_nanos() as u64 {
        std::thread::yield_now();
    }
    assert_eq!(db.adaptation_history().len(), before.len(), "nothing is decided");
    drop(suspension);
    let next = &after(before.len())[before.len()];
    assert!(next.decision.at_ns >= before[before.len() - 1].decision.at_ns);
    let now_ns = db.activity().unwrap().at_ns;
    assert!(
        now_ns - next.decision.at_ns >= SUSPENDED.as_nanos() as u64,
        "at {} of {now_ns}",
        next.decision.at_ns
    );
    // What needs the scheme to stay goes on.
    db.verify().unwrap();
}
