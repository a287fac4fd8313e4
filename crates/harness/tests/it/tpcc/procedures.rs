//! The procedures, against what the tables hold before and after.

use std::collections::BTreeSet;

use atrapos::{Abort, AbortReason, Database, Tx};
use atrapos_workloads::tpcc::parameters::{CustomerBy, LineInput, NewOrderInput, PaymentInput};
use atrapos_workloads::tpcc::procedures::{self, DeliverFrom, StatusOf, UNUSED_ITEM};
use atrapos_workloads::tpcc::schema::{
    Customers, Districts, Histories, Items, NewOrders, OrderLines, Orders, Stocks, Tables, Warehouses,
    dist_info,
};
use atrapos_workloads::{Ledger, Workload};

use super::{SMALL, rows, tpcc};
use crate::support::loaded;

fn find<K: PartialEq, R: Clone>(rows: &[(K, R)], key: K) -> R {
    rows.iter().find(|(found, _)| *found == key).expect("the row is there").1.clone()
}

fn input() -> NewOrderInput {
    let line = |i_id, supply_w_id, quantity| LineInput { i_id, supply_w_id, quantity };
    let lines = [line(5, 2, 3), line(1, 2, 10), line(99, 3, 1), line(5, 2, 2), line(50, 1, 7)];
    NewOrderInput { w_id: 2, d_id: 4, c_id: 9, lines: lines.into_iter().collect(), entry_d: 77 }
}

fn place(db: &Database, tables: Tables, input: &NewOrderInput) -> Result<procedures::OrderPlaced, Abort> {
    let input = input.clone();
    let place = async move |tx: &mut Tx<'_>| procedures::new_order(tx, tables, &input).await;
    db.run(tables.district.at(&(2, 4)), place)
}

#[test]
fn an_order_is_placed_with_all_its_rows() {
    let db = loaded(&tpcc(SMALL), 2);
    let tables = Tables::of(&db).expect("the schema");
    let (stock, items) = (rows::<Stocks>(&db), rows::<Items>(&db));
    let placed = place(&db, tables, &input()).expect("an order");
    assert_eq!(placed.o_id, 21);
    let order = find(&rows::<Orders>(&db), (2, 4, 21));
    assert_eq!((order.c_id, order.entry_d, order.carrier_id, order.ol_cnt), (9, 77, 0, 5));
    assert!(!order.all_local);
    assert!(rows::<NewOrders>(&db).iter().any(|(key, _)| *key == (2, 4, 21)));
    assert_eq!(find(&rows::<Districts>(&db), (2, 4)).next_o_id, 22);
    let (now, lines) = (rows::<Stocks>(&db), rows::<OrderLines>(&db));
    let mut sum = 0;
    for (number, (line, shown)) in (1..).zip(input().lines.iter().zip(&placed.lines)) {
        let item = find(&items, (2, line.i_id));
        let row = find(&lines, (2, 4, 21, number));
        assert_eq!((row.i_id, row.supply_w_id, row.quantity), (line.i_id, line.supply_w_id, line.quantity));
        assert_eq!((row.amount, row.delivery_d), (u32::from(line.quantity) * item.price, 0));
        let key = (line.supply_w_id, line.i_id);
        let (before, after) = (find(&stock, key), find(&now, key));
        assert_eq!(row.dist_info, dist_info(&before.dist, 4));
        let of_item = input().lines.into_iter().filter(|other| other.i_id == line.i_id);
        let ordered: Vec<u32> = of_item.map(|line| line.quantity.into()).collect();
        assert_eq!(after.ytd, ordered.iter().sum::<u32>());
        assert_eq!(after.order_cnt, ordered.len() as u32);
        assert_eq!(after.remote_cnt, if line.supply_w_id == 2 { 0 } else { 1 });
        assert_eq!((shown.name, shown.price, shown.amount), (item.name, item.price, row.amount));
        sum += i64::from(row.amount);
    }
    let (warehouse, district) = (find(&rows::<Warehouses>(&db), 2), find(&rows::<Districts>(&db), (2, 4)));
    let customer = find(&rows::<Customers>(&db), (2, 4, 9));
    assert_eq!((placed.last, placed.credit), (customer.last, customer.credit));
    let rate = |part: u16| f64::from(part) / 10_000.0;
    let total =
        sum as f64 * (1.0 - rate(customer.discount)) * (1.0 + rate(warehouse.tax) + rate(district.tax));
    assert!((placed.total as f64 - total).abs() <= 0.5 + 1e-6, "{} instead of {total}", placed.total);
}

#[test]
fn an_order_of_an_item_that_there_is_not_changes_nothing() {
    let workload = tpcc(SMALL);
    let db = loaded(&workload, 2);
    let tables = Tables::of(&db).expect("the schema");
    let mut wrong = input();
    wrong.lines[4].i_id = 101;
    let abort = place(&db, tables, &wrong).expect_err("item 101 of 100");
    assert_eq!((abort.reason(), abort.detail()), (AbortReason::User, UNUSED_ITEM));
    workload.audit(&db, &Ledger::new()).expect("nothing has changed");
}

#[test]
fn a_payment_is_noted_by_everybody() {
    let db = loaded(&tpcc(SMALL), 2);
    let tables = Tables::of(&db).expect("the schema");
    let before = rows::<Customers>(&db);
    // One customer by number, in turn of good and bad credit, and one by a name that several have.
    for c_id in 1..=20 {
        let input = PaymentInput {
            w_id: 1,
            d_id: 2,
            c_w_id: 3,
            c_d_id: 7,
            customer: CustomerBy::Id(c_id),
            amount: 12_345,
            date: 88,
        };
        let pay = async move |tx: &mut Tx<'_>| procedures::payment(tx, tables, input).await;
        let paid = db.run(tables.district.at(&(1, 2)), pay).expect("a payment");
        let old = find(&before, (3, 7, c_id));
        let new = find(&rows::<Customers>(&db), (3, 7, c_id));
        assert_eq!((paid.c_id, paid.customer.balance), (c_id, old.balance - 12_345));
        assert_eq!((new.balance, new.ytd_payment, new.payment_cnt), (-13_345, 13_345, 2));
        if old.credit.as_str() == "BC" {
            let noted = format!("{c_id} 7 3 2 1 123.45 {}", old.data);
            assert_eq!(new.data.as_str(), &noted[..noted.len().min(500)]);
            assert_eq!(paid.customer.data.as_str(), &noted[..200]);
        } else {
            assert_eq!((new.data, paid.customer.data.len()), (old.data, 0));
        }
        let history = find(&rows::<Histories>(&db), (1, 2, 20 + c_id));
        assert_eq!((history.c_id, history.c_d_id, history.c_w_id), (c_id, 7, 3));
        assert_eq!((history.amount, history.date), (12_345, 88));
        let names = format!("{}    {}", paid.warehouse.name, paid.district.name);
        assert_eq!(history.data.as_str(), names);
    }
    assert_eq!(find(&rows::<Warehouses>(&db), 1).ytd, 200_000 + 20 * 12_345);
    assert_eq!(find(&rows::<Districts>(&db), (1, 2)).ytd, 20_000 + 20 * 12_345);
    assert_eq!(find(&rows::<Warehouses>(&db), 3).ytd, 200_000);
}

#[test]
fn the_middle_one_of_a_name_is_meant_and_the_latest_order_shown() {
    let db = loaded(&tpcc(SMALL), 2);
    let tables = Tables::of(&db).expect("the schema");
    // One, two, three and four customers of one name.
    for of_name in 1..=4_u32 {
        let last = atrapos_workloads::tpcc::generator::last_name(500 + of_name);
        for c_id in 1..=of_name {
            let rename = async move |tx: &mut Tx<'_>| {
                tx.update(tables.customer, (1, 1, c_id), move |row| row.last = last).await
            };
            db.run(tables.customer.at(&(1, 1, c_id)), rename).expect("a new name");
        }
        let mut named: Vec<_> = rows::<Customers>(&db)
            .into_iter()
            .filter(|(key, row)| (key.0, key.1) == (1, 1) && row.last == last)
            .map(|(key, row)| (row.first, key.2))
            .collect();
        named.sort();
        assert_eq!(named.len(), of_name as usize);
        let expected = named[named.len().div_ceil(2) - 1].1;
        let of = StatusOf { w_id: 1, d_id: 1, customer: CustomerBy::Name(last) };
        let look = async move |tx: &mut Tx<'_>| procedures::order_status(tx, tables, of).await;
        let status = db.run(tables.district.at(&(1, 1)), look).expect("a status");
        assert_eq!(status.customer.c_id, expected, "{named:?}");
    }
    let mut second = input();
    (second.w_id, second.d_id) = (2, 4);
    for c_id in [9, 9, 11] {
        second.c_id = c_id;
        let placed = place(&db, tables, &second).expect("an order");
        let of = StatusOf { w_id: 2, d_id: 4, customer: CustomerBy::Id(c_id) };
        let look = async move |tx: &mut Tx<'_>| procedures::order_status(tx, tables, of).await;
        let status = db.run(tables.district.at(&(2, 4)), look).expect("a status");
        assert_eq!((status.o_id, status.order.c_id, status.customer.c_id), (placed.o_id, c_id, c_id));
        let shown: Vec<_> =
            status.lines.iter().map(|line| (line.i_id, line.supply_w_id, line.quantity)).collect();
        let asked: Vec<_> =
            second.lines.iter().map(|line| (line.i_id, line.supply_w_id, line.quantity)).collect();
        assert_eq!(shown, asked);
    }
}

#[test]
fn the_oldest_order_of_a_district_is_delivered_until_there_is_none() {
    let db = loaded(&tpcc(SMALL), 2);
    let tables = Tables::of(&db).expect("the schema");
    let deliver = || {
        let from = DeliverFrom { w_id: 2, d_id: 6, before: 21, carrier_id: 9, delivery_d: 123 };
        let deliver = async move |tx: &mut Tx<'_>| procedures::deliver(tx, tables, from).await;
        db.run(tables.district.at(&(2, 6)), deliver).expect("a delivery")
    };
    let next = async move |tx: &mut Tx<'_>| procedures::next_orders(tx, tables, 2).await;
    assert_eq!(db.run(tables.warehouse.at(&2), next), Ok([21; 10]));
    let before = rows::<Customers>(&db);
    for expected in 15..=20 {
        let delivered = deliver().expect("six orders are not delivered");
        assert_eq!(delivered.o_id, expected);
        let order = find(&rows::<Orders>(&db), (2, 6, expected));
        assert_eq!((order.carrier_id, order.c_id), (9, delivered.c_id));
        let lines = rows::<OrderLines>(&db);
        let own: Vec<_> = lines.iter().filter(|((w, d, o, _), _)| (*w, *d, *o) == (2, 6, expected)).collect();
        assert!(own.iter().all(|(_, line)| line.delivery_d == 123));
        assert_eq!(own.iter().map(|(_, line)| i64::from(line.amount)).sum::<i64>(), delivered.amount);
        let key = (2, 6, delivered.c_id);
        let (old, new) = (find(&before, key), find(&rows::<Customers>(&db), key));
        assert_eq!((new.balance, new.delivery_cnt), (old.balance + delivered.amount, 1));
    }
    assert_eq!(deliver(), None);
    let left = rows::<NewOrders>(&db);
    assert!(left.iter().all(|((w, d, _), _)| (*w, *d) != (2, 6)));
    assert_eq!(left.len(), 6 * 29);
}

#[test]
fn stock_level_counts_different_items_of_the_last_twenty_orders() {
    let db = loaded(&tpcc(SMALL), 2);
    let tables = Tables::of(&db).expect("the schema");
    for order in 0..3 {
        let (lines, stock) = (rows::<OrderLines>(&db), rows::<Stocks>(&db));
        let recent = 21 + order - 20..21 + order;
        let items: BTreeSet<u32> = lines
            .iter()
            .filter(|((w, d, o, _), _)| (*w, *d) == (2, 4) && recent.contains(o))
            .map(|(_, line)| line.i_id)
            .collect();
        for threshold in [10, 15, 20, 60, 101] {
            let low = items.iter().filter(|i_id| find(&stock, (2, **i_id)).quantity < threshold).count();
            let count =
                async move |tx: &mut Tx<'_>| procedures::stock_level(tx, tables, 2, 4, threshold).await;
            assert_eq!(db.run(tables.district.at(&(2, 4)), count), Ok(low as u32));
        }
        place(&db, tables, &input()).expect("an order");
    }
}
