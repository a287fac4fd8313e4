//! Prints what happens to one transaction that stays on its worker and to one that crosses workers, stage by stage. The
//! stages are those of `ARCHITECTURE.md`.
//!
//! `cargo run --release -p atrapos --example life_of_a_transaction`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use atrapos::{Abort, Database, Schema, Table, TraceEvent, row};

row! {
    /// A row with a number.
    #[derive(Clone, Debug)]
    pub struct Item {
        /// The number.
        pub stock: i64,
    }
}

struct Items;

impl Table for Items {
    type Key = u64;
    type Row = Item;
    const NAME: &'static str = "items";
}

fn print_life(title: &str, outcome: &Result<Option<i64>, Abort>, events: &[TraceEvent]) {
    println!("{title}");
    for event in events {
        println!("  worker {}  {:<8} {}", event.worker.0, event.stage.name(), event.what);
    }
    println!("  result: {outcome:?}\n");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = Schema::new().table::<Items>().split_evenly("items", 1, 100);
    let directory = std::env::temp_dir().join(format!("atrapos-life-{}", std::process::id()));
    let db = Database::builder(schema).workers(2).open(&directory)?;
    let items = db.table::<Items>()?;
    for id in [1, 2, 99] {
        db.run(items.at(&id), async move |tx| tx.insert(items, id, Item { stock: 10 }).await)?;
    }

    let before = db.statistics();
    let (outcome, events) = db.run_traced(items.at(&1), async move |tx| {
        tx.get(items, 2).await?;
        tx.update(items, 1, |item| {
            item.stock -= 1;
            item.stock
        })
        .await
    })?;
    print_life("A transaction that stays on its worker (items 2 and 1):", &outcome, &events);
    let local = db.statistics().since(&before);
    assert_eq!(
        (local.locks_entered, local.remote_actions),
        (0, 0),
        "a local transaction locks and sends nothing"
    );

    let before = db.statistics();
    let (outcome, events) = db.run_traced(items.at(&1), async move |tx| {
        let (here, _there) = tx
            .join((
                items.update(1, |item| {
                    item.stock -= 1;
                    item.stock
                }),
                items.update(99, |item| item.stock += 1),
            ))
            .await?;
        Ok(here)
    })?;
    print_life("A transaction that crosses workers (items 1 and 99):", &outcome, &events);
    let crossing = db.statistics().since(&before);
    assert_eq!((crossing.locks_entered, crossing.remote_actions), (2, 1));
    println!(
        "locks entered: {} by the first, {} by the second; actions sent to another worker: {} and {}",
        local.locks_entered, crossing.locks_entered, local.remote_actions, crossing.remote_actions
    );
    drop(db);
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
