//! Observations that a database makes of its transactions: synchronization points, and what accesses are charged to.

use atrapos::{Adaptation, Database, KeyRange};
use atrapos_adapt::{TableIndex, WorkloadTrace};

use crate::support::{Items, Others, load_items, two_tables};

const ROWS: u64 = 100;
const ROUNDS: u64 = 400;

/// A database that records every event, with rows of its first table.
fn observing() -> Database {
    let adaptation = Adaptation { act: false, sample_every: 1, ..Adaptation::default() };
    let db =
        Database::builder(two_tables()).workers(2).pin(false).adaptation(adaptation).in_memory().unwrap();
    load_items(&db, ROWS, 1);
    db.workload_trace().unwrap();
    db
}

/// Returns the number of synchronization points that are wanted, of those that met again, and the bytes of each.
fn points(trace: &WorkloadTrace, is_wanted: impl Fn(usize) -> bool) -> (f64, f64, f64) {
    let workload = trace.workload().unwrap();
    let wanted = workload.sync_points().iter().filter(|point| is_wanted(point.partners.len()));
    let (count, again, bytes) = wanted.fold((0.0, 0.0, 0.0), |(count, again, bytes), point| {
        (count + point.count, again + point.again, bytes + point.bytes)
    });
    (count, again, bytes / f64::max(count, 1.0))
}

#[test]
fn every_synchronization_point_of_a_transaction_is_recorded() {
    let db = observing();
    let (items, others) = (db.table::<Items>().unwrap(), db.table::<Others>().unwrap());
    for round in 0..ROUNDS {
        // Every sub-partition of the first worker in turn.
        let key = round % (ROWS / 2);
        db.run(items.at(&key), async move |tx| {
            tx.get(items, key).await?;
            // Two that go to the other worker, one after the other.
            tx.get(others, 95).await?;
            tx.get(others, 96).await?;
            // And a phase of rows that are all at the home: of three sub-partitions, that of the first access among them.
            tx.join((items.get(key), items.get((key + 25) % (ROWS / 2)), others.get(5))).await.map(drop)
        })
        .unwrap();
    }
    let trace = db.workload_trace().unwrap();
    let (count, again, bytes) = points(&trace, |_| true);
    assert_eq!(count, 3.0 * ROUNDS as f64, "three of each transaction");
    assert!(
        (0.2..0.47).contains(&(again / count)),
        "a third follows another one with the same worker: {again}"
    );
    assert!(bytes > 16.0 && bytes < 512.0, "{bytes} bytes each");
    let (of_three, _, _) = points(&trace, |partners| partners == 3);
    assert!((0.2..0.47).contains(&(of_three / count)), "a third is a phase of three: {of_three}");
}

#[test]
fn a_transaction_on_one_row_has_no_synchronization_point() {
    let db = observing();
    let items = db.table::<Items>().unwrap();
    for round in 0..ROUNDS {
        let key = round % ROWS;
        db.run(items.at(&key), async move |tx| {
            tx.get(items, key).await?;
            tx.update(items, key, |row| row.value += 1).await.map(drop)
        })
        .unwrap();
    }
    let trace = db.workload_trace().unwrap();
    assert!(trace.sync_points.is_empty(), "{:?}", trace.sync_points);
    assert!(trace.workload().unwrap().table_costs(TableIndex(0)).iter().all(|cost| *cost > 0.0));
}

#[test]
fn a_scan_is_charged_to_all_that_it_reads() {
    let db = observing();
    let items = db.table::<Items>().unwrap();
    let scan = |range: fn() -> KeyRange| {
        for _ in 0..ROUNDS {
            db.run(items.at(&0), async move |tx| {
                tx.fold(items, range(), 0, |rows: &mut u64, _, _| {
                    *rows += 1;
                    std::ops::ControlFlow::Continue(())
                })
                .await
            })
            .unwrap();
        }
        db.workload_trace().unwrap().workload().unwrap().table_costs(TableIndex(0)).to_vec()
    };
    let all = scan(KeyRange::all);
    // The home has the rest of the transaction, too, and each partition its part of the scan.
    for partition in all.chunks(all.len() / 2) {
        let (least, most) = partition
            .iter()
            .fold((f64::INFINITY, 0.0_f64), |(least, most), cost| (least.min(*cost), most.max(*cost)));
        assert!(least > 0.0 && most <= 1.05 * least, "{all:?}");
    }
    let some = scan(|| KeyRange::through(&20_u64, &29_u64));
    let mut untouched = some.iter().enumerate().filter(|(part, _)| ![4, 5].contains(part));
    assert!(untouched.all(|(_, cost)| *cost == 0.0), "{some:?}");
    assert!(some[4] > 0.0 && some[5] > 0.0, "{some:?}");
}
