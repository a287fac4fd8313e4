//! Columns that may be NULL, as types of Rust: in rows, in keys of indexes, through changes and reopening; and never in primary keys.

use std::cmp::Reverse;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use atrapos::{
    AbortReason, Database, Date, Decimal, Index, KeyRange, Schema, Table, Timestamp, Tx, Uuid, row,
};

use crate::durable::notes::files;
use crate::support::open;

row! {
    #[derive(Clone, Debug, PartialEq)]
    struct Order {
        customer: Option<u32>,
        due: Option<Date>,
        placed: Timestamp,
        price: Option<Decimal<12, 2>>,
        note: Option<String>,
        token: Uuid,
    }
}

struct Orders;

impl Table for Orders {
    type Key = u64;
    type Row = Order;
    const NAME: &'static str = "orders";
}

/// Orders by customer: `KEY_FROM` says so, whose NULL is a bit behind the other columns.
struct ByCustomer;

impl Index for ByCustomer {
    type Table = Orders;
    type Key = Option<u32>;
    const NAME: &'static str = "orders_by_customer";
    const UNIQUE: bool = false;
    const KEY_FROM: Option<&'static [&'static str]> = Some(&["customer"]);
    fn key(_: &u64, order: &Order) -> Option<u32> {
        order.customer
    }
}

/// Orders by the day they are due, the latest first and those without one last, and by text.
struct ByDue;

impl Index for ByDue {
    type Table = Orders;
    type Key = (Reverse<Option<Date>>, Option<String>);
    const NAME: &'static str = "orders_by_due";
    const UNIQUE: bool = false;
    fn key(_: &u64, order: &Order) -> (Reverse<Option<Date>>, Option<String>) {
        (Reverse(order.due), order.note.clone())
    }
}

fn schema() -> Schema {
    Schema::new()
        .table::<Orders>()
        .index::<ByCustomer>()
        .index::<ByDue>()
        .split_at("orders", &[10_u64])
        .split_at("orders_by_customer", &[Some(5_u32)])
}

fn order(number: u64) -> Order {
    let is = |divisor: u64| number.is_multiple_of(divisor);
    Order {
        customer: (!is(3)).then_some(number as u32 % 7),
        due: is(2).then_some(Date(number as i32 - 10)),
        placed: Timestamp(number as i64),
        price: Decimal::new(i128::from(number) * 100).filter(|_| is(5)),
        note: (!is(4)).then(|| "n".repeat(number as usize)),
        token: Uuid([number as u8; 16]),
    }
}

fn insert(db: &Database, numbers: std::ops::Range<u64>) {
    let orders = db.table::<Orders>().unwrap();
    for number in numbers {
        db.run(orders.at(&number), async move |tx| tx.insert(orders, number, order(number)).await).unwrap();
    }
}

/// The orders of a customer, or of none.
fn of_customer(db: &Database, customer: Option<u32>) -> Vec<u64> {
    let (orders, index) = (db.table::<Orders>().unwrap(), db.index::<ByCustomer>().unwrap());
    let range = KeyRange::prefix(&customer);
    let look = async move |tx: &mut Tx<'_>| tx.lookup_all(index, range.clone(), usize::MAX).await;
    db.run(orders.at(&0), look).unwrap()
}

#[test]
fn an_index_follows_a_column_to_null_and_back() {
    let db = open(schema(), 2);
    insert(&db, 0..20);
    let orders = db.table::<Orders>().unwrap();
    assert_eq!(of_customer(&db, None), [0, 3, 6, 9, 12, 15, 18]);
    assert_eq!(of_customer(&db, Some(0)), [7, 14]);
    // NULL and zero have the same bytes but for the bit.
    for (number, customer) in [(7, None), (14, None), (7, Some(0)), (15, Some(0)), (15, None), (3, Some(6))] {
        let change =
            async move |tx: &mut Tx<'_>| tx.update(orders, number, move |row| row.customer = customer).await;
        db.run(orders.at(&0), change).unwrap().expect("it is there");
        assert!(of_customer(&db, customer).contains(&number), "{number} {customer:?}");
        db.verify().unwrap();
    }
    assert_eq!(of_customer(&db, None), [0, 6, 9, 12, 14, 15, 18]);
    assert_eq!(of_customer(&db, Some(0)), [7]);
}

#[test]
fn rows_with_nulls_come_back_from_disk() {
    let (files, path) = (files(), Path::new("/data/orders"));
    let builder = |workers| {
        let builder = Database::builder(schema()).workers(workers).pin(false).huge_pages(false);
        builder.files(Arc::new(files.clone()))
    };
    let db = builder(2).open(path).unwrap();
    insert(&db, 0..15);
    db.checkpoint().unwrap();
    insert(&db, 15..30);
    let all = |db: &Database| {
        let orders = db.table::<Orders>().unwrap();
        db.verify().unwrap();
        db.run(orders.at(&0), async move |tx| tx.scan(orders, KeyRange::all(), usize::MAX).await).unwrap()
    };
    let expected: Vec<_> = (0..30).map(|number| (number, order(number))).collect();
    assert_eq!(all(&db), expected);
    let report = db.close(Duration::from_secs(10));
    assert_eq!((report.dropped, report.failure), (0, None));
    let db = builder(3).open(path).unwrap();
    assert_eq!(all(&db), expected);
    assert_eq!(of_customer(&db, None).len(), 10);
}

/// At most one order has a note, whatever it is.
struct ByNote;

impl Index for ByNote {
    type Table = Orders;
    type Key = Option<String>;
    const NAME: &'static str = "orders_by_note";
    const UNIQUE: bool = true;
    fn key(_: &u64, order: &Order) -> Option<String> {
        order.note.clone()
    }
}

#[test]
fn in_a_unique_index_nulls_are_all_different() {
    let db = open(Schema::new().table::<Orders>().index::<ByNote>().split_at("orders", &[10_u64]), 2);
    // Every fourth has no note.
    insert(&db, 0..20);
    let (orders, by_note) = (db.table::<Orders>().unwrap(), db.index::<ByNote>().unwrap());
    let find = |note: Option<&'static str>| {
        let note = note.map(str::to_owned);
        db.run(orders.at(&0), async move |tx| tx.run(by_note.lookup(note.clone())).await).unwrap()
    };
    assert_eq!((find(Some("nnn")), find(Some("x")), find(None)), (Some(3), None, None));
    let again = db.run(orders.at(&0), async move |tx| tx.insert(orders, 30, order(3)).await);
    assert_eq!(again.unwrap_err().reason(), AbortReason::DuplicateKey);
    let to_null = async move |tx: &mut Tx<'_>| tx.update(orders, 3, |row| row.note = None).await.map(drop);
    db.run(orders.at(&0), to_null).unwrap();
    assert_eq!(find(Some("nnn")), None);
    db.run(orders.at(&0), async move |tx| tx.insert(orders, 30, order(3)).await).unwrap();
    assert_eq!(find(Some("nnn")), Some(30));
    let deleted = db.run(orders.at(&0), async move |tx| tx.delete(orders, 4).await).unwrap();
    assert!(deleted.is_some_and(|order| order.note.is_none()));
    db.verify().unwrap();
}

macro_rules! counters {
    ($($table:ident $row:ident: $ty:ty),+) => {$(
        row! {
            #[derive(Clone, Debug, PartialEq)]
            struct $row { count: $ty }
        }

        struct $table;

        impl Table for $table {
            type Key = u64;
            type Row = $row;
            const NAME: &'static str = "counters";
        }
    )+};
}

counters!(Counters Counter: u32, Optional OptionalCounter: Option<u32>);

#[test]
fn a_type_that_says_otherwise_is_told_where_it_differs() {
    let (files, path) = (files(), Path::new("/data/counters"));
    let builder = |schema| Database::builder(schema).workers(1).pin(false).files(Arc::new(files.clone()));
    let db = builder(Schema::new().table::<Optional>()).open(path).unwrap();
    db.close(Duration::from_secs(10));
    let told = builder(Schema::new().table::<Counters>()).open(path).expect_err("it differs").to_string();
    assert!(told.contains("`count`") && told.contains("u32 or NULL"), "{told}");
    builder(Schema::new().table::<Optional>()).open(path).unwrap();
}

struct NullKey;

impl Table for NullKey {
    type Key = (u32, Option<u64>);
    type Row = Order;
    const NAME: &'static str = "null_key";
}

#[test]
fn a_primary_key_is_never_null() {
    let opened = Database::builder(Schema::new().table::<NullKey>()).workers(1).pin(false).in_memory();
    let told = opened.expect_err("it is refused").to_string();
    assert!(told.contains("null_key") && told.contains("may be NULL") && told.contains("NOT NULL"), "{told}");
}
