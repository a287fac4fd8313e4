//! Tables that grow take memory that was prepared before, and more than there is cannot be reserved.

use atrapos::{AbortReason, Database, Schema};

use crate::support::{Items, item};

const MIB: u64 = 1 << 20;

/// Inserts rows in transactions of a thousand.
fn insert(db: &Database, first: u64, last: u64) {
    let items = db.table::<Items>().expect("declared");
    for from in (first..last).step_by(1_000) {
        let to = last.min(from + 1_000);
        let insert = async move |tx: &mut atrapos::Tx<'_>| {
            tx.join_all((from..to).map(|key| items.insert(key, item(1)))).await.map(drop)
        };
        db.run(items.at(&from), insert).expect("they are new");
    }
}

#[test]
fn tables_grow_into_what_was_reserved() {
    let builder = Database::builder(Schema::new().table::<Items>()).workers(1).pin(false);
    let db = builder.huge_pages(false).reserve(6 * MIB).in_memory().expect("memory");
    assert_eq!(db.prepared_memory().in_stock, 3);
    insert(&db, 0, 80_000);
    let grown = db.prepared_memory();
    assert!(grown.taken >= 1 && grown.taken_unprepared == 0, "{grown:?}");
    db.reserve(20 * MIB).expect("memory");
    assert!(db.prepared_memory().in_stock >= 10);
    insert(&db, 80_000, 300_000);
    let more = db.prepared_memory();
    assert!(more.taken > grown.taken && more.taken_unprepared == 0, "{more:?}");
}

#[test]
fn shares_of_several_workers_are_even() {
    let builder = Database::builder(Schema::new().table::<Items>()).workers(3).pin(false);
    let db = builder.huge_pages(false).reserve(9 * MIB).in_memory().expect("memory");
    assert_eq!(db.prepared_memory().in_stock, 6, "two chunks of 2 MiB for each");
}

#[test]
fn more_than_there_is_cannot_be_reserved() {
    let db =
        Database::builder(Schema::new().table::<Items>()).workers(1).pin(false).in_memory().expect("memory");
    let refused = db.reserve(u64::MAX).expect_err("no machine has as much");
    assert_eq!(refused.reason(), AbortReason::OutOfMemory);
    assert!(refused.to_string().contains("reserve less"), "{refused}");
    assert_eq!(db.prepared_memory().in_stock, 0);
    let builder = Database::builder(Schema::new().table::<Items>()).workers(1).pin(false);
    assert!(
        builder.reserve(u64::MAX).in_memory().is_err_and(|error| error.to_string().contains("reserve less"))
    );
}
