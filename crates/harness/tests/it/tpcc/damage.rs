//! Audits that find planted damage: one for each of the twelve consistency conditions, and for what these do not see.

use atrapos::{Database, Tx};
use atrapos_workloads::tpcc::TpccConfig;
use atrapos_workloads::tpcc::parameters::{Class, Mix};
use atrapos_workloads::tpcc::schema::{NewOrders, OrderLines, Orders, Tables};
use atrapos_workloads::{AuditError, Ledger, Workload};

use super::{SMALL, rows, tpcc};
use crate::support::{SESSIONS, loaded, run_and_audit};
use atrapos_harness::driver::Routing;

/// Plants damage behind the ledger's back and returns what the audit says.
fn audit_after(plant: impl Fn(&Database, Tables)) -> AuditError {
    let workload = tpcc(SMALL);
    let db = loaded(&workload, 2);
    plant(&db, Tables::of(&db).expect("the schema"));
    let found = workload.audit(&db, &Ledger::new()).expect_err("the audit finds the damage");
    assert_eq!(workload.audit_uncounted(&db), Err(found.clone()), "nobody has to count for that");
    found
}

/// Changes one row.
macro_rules! change {
    ($db:expr, $table:expr, $key:expr, $change:expr) => {{
        let (table, key) = ($table, $key);
        let changed =
            $db.run(table.at(&key), async move |tx: &mut Tx<'_>| tx.update(table, key, $change).await);
        changed.expect("an update").expect("the row is there")
    }};
}

/// Checks that damage is found as a condition.
fn condition(expected: u8, plant: impl Fn(&Database, Tables)) {
    match audit_after(plant) {
        AuditError::Condition { number, .. } if number == expected => {}
        found => panic!("condition {expected} does not hold, but what is found is: {found}"),
    }
}

/// The first order of a district that is not delivered.
const UNDELIVERED: u32 = 15;

/// Delivers an order as if there had never been a new one, out of turn, and leaves its customer out.
fn deliver_out_of_turn(db: &Database, tables: Tables, o_id: u32) {
    let key = (1, 1, o_id);
    change!(db, tables.order, key, |row| row.carrier_id = 3);
    for number in
        rows::<OrderLines>(db).iter().filter(|((w, d, o, _), _)| (*w, *d, *o) == key).map(|(key, _)| key.3)
    {
        change!(db, tables.order_line, (1, 1, o_id, number), |row| row.delivery_d = 7);
    }
    let delete = async move |tx: &mut Tx<'_>| tx.delete(tables.new_order, key).await;
    db.run(tables.new_order.at(&key), delete).expect("a deletion").expect("the row was there");
}

#[test]
fn each_of_the_twelve_conditions_is_checked() {
    condition(1, |db, tables| change!(db, tables.warehouse, 2, |row| row.ytd += 1));
    condition(2, |db, tables| change!(db, tables.district, (3, 10), |row| row.next_o_id += 1));
    condition(3, |db, tables| deliver_out_of_turn(db, tables, UNDELIVERED + 2));
    condition(4, |db, tables| change!(db, tables.order, (1, 2, 3), |row| row.ol_cnt += 1));
    condition(5, |db, tables| change!(db, tables.order, (1, 2, UNDELIVERED), |row| row.carrier_id = 4));
    condition(6, |db, tables| {
        change!(db, tables.order, (2, 2, 3), |row| row.ol_cnt += 1);
        change!(db, tables.order, (2, 2, 4), |row| row.ol_cnt -= 1);
    });
    condition(7, |db, tables| {
        change!(db, tables.order_line, (1, 9, UNDELIVERED, 2), |row| row.delivery_d = 1);
    });
    condition(7, |db, tables| change!(db, tables.order_line, (1, 9, 1, 2), |row| row.delivery_d = 0));
    condition(8, |db, tables| change!(db, tables.history, (1, 1, 7), |row| row.amount += 5));
    condition(9, |db, tables| {
        change!(db, tables.history, (1, 1, 7), |row| row.amount += 5);
        change!(db, tables.history, (1, 2, 7), |row| row.amount -= 5);
    });
    condition(10, |db, tables| change!(db, tables.customer, (3, 3, 3), |row| row.balance += 1));
    condition(11, |db, tables| change!(db, tables.customer, (3, 3, 3), |row| row.delivery_cnt += 1));
    condition(12, |db, tables| change!(db, tables.customer, (3, 3, 3), |row| row.ytd_payment += 1));
}

#[test]
fn numbers_of_new_orders_have_no_ends_missing() {
    // The newest: what it leaves is without a hole, but the district has gone further.
    condition(2, |db, tables| deliver_out_of_turn(db, tables, 20));
    // All of them: only the customers know.
    condition(10, |db, tables| {
        (UNDELIVERED..=20).for_each(|o_id| deliver_out_of_turn(db, tables, o_id));
        let deliveries = 20 - UNDELIVERED + 1;
        change!(db, tables.customer, (1, 1, 1), move |row| row.delivery_cnt += deliveries);
    });
}

/// Checks that damage is found as a row of a table.
fn row(expected: &str, plant: impl Fn(&Database, Tables)) {
    match audit_after(plant) {
        AuditError::Row { table, .. } if table == expected => {}
        found => panic!("a row of {expected} is wrong, but what is found is: {found}"),
    }
}

#[test]
fn what_no_condition_sees_is_found_too() {
    row("warehouse", |db, tables| change!(db, tables.warehouse, 2, |row| row.tax ^= 1));
    row("district", |db, tables| change!(db, tables.district, (2, 4), |row| row.tax ^= 1));
    row("district", |db, tables| change!(db, tables.district, (2, 4), |row| row.next_h_id += 1));
    row("customer", |db, tables| change!(db, tables.customer, (2, 4, 1), |row| row.discount ^= 1));
    row("customer", |db, tables| change!(db, tables.customer, (2, 4, 1), |row| row.payment_cnt += 1));
    row("stock", |db, tables| change!(db, tables.stock, (2, 4), |row| row.dist[3] ^= 1));
    row("stock", |db, tables| change!(db, tables.stock, (2, 4), |row| row.quantity = 9));
    row("stock", |db, tables| {
        change!(db, tables.stock, (2, 4), |row| row.quantity = if row.quantity == 50 { 51 } else { 50 });
    });
    row("stock", |db, tables| change!(db, tables.stock, (2, 4), |row| row.order_cnt += 1));
    row("order", |db, tables| change!(db, tables.order, (2, 4, 1), |row| row.entry_d += 1));
    row("order", |db, tables| change!(db, tables.order, (2, 4, 1), |row| row.carrier_id = 11));
    row("order_line", |db, tables| change!(db, tables.order_line, (2, 4, 1, 5), |row| row.dist_info[0] ^= 1));
    row("order_line", |db, tables| {
        let lose = async move |tx: &mut Tx<'_>| {
            let Some(line) = tx.delete(tables.order_line, (2, 4, 1, 1)).await? else { return Ok(()) };
            tx.insert(tables.order_line, (2, 4, 1, 200), line).await
        };
        db.run(tables.order_line.at(&(2, 4, 1, 1)), lose).expect("a swap");
    });
    row("history", |db, tables| change!(db, tables.history, (2, 4, 1), |row| row.date += 1));
    row("new_order", |db, tables| {
        let key = (2, 4, 1000);
        let invent = async move |tx: &mut Tx<'_>| {
            tx.insert(tables.new_order, key, atrapos_workloads::tpcc::schema::NewOrder {}).await
        };
        db.run(tables.new_order.at(&key), invent).expect("an insertion");
    });
}

#[test]
fn orders_that_new_order_does_not_make_are_found() {
    let workload = tpcc(TpccConfig { mix: Mix::Only(Class::NewOrder), ..SMALL });
    let db = loaded(&workload, 2);
    let tables = Tables::of(&db).expect("the schema");
    let mut ledger = Ledger::new();
    let result = run_and_audit(&db, &workload, SESSIONS, Routing::Any, &mut ledger);
    assert!(result.classes[Class::NewOrder as usize].tally.committed > 0);
    let placed = rows::<Orders>(&db).into_iter().map(|(key, _)| key).find(|key| key.2 > 20);
    let (w_id, d_id, o_id) = placed.expect("an order was placed");
    let audit = |ledger: &Ledger| workload.audit(&db, ledger).expect_err("the audit finds the damage");
    change!(db, tables.order_line, (w_id, d_id, o_id, 1), |row| row.amount += 1);
    assert!(matches!(audit(&ledger), AuditError::Row { table: "order_line", .. }), "{}", audit(&ledger));
    change!(db, tables.order_line, (w_id, d_id, o_id, 1), |row| row.amount -= 1);
    change!(db, tables.order, (w_id, d_id, o_id), |row| row.all_local = !row.all_local);
    assert!(matches!(audit(&ledger), AuditError::Row { table: "order", .. }), "{}", audit(&ledger));
    change!(db, tables.order, (w_id, d_id, o_id), |row| row.all_local = !row.all_local);
    workload.audit(&db, &ledger).expect("all is well again");
    // A ledger that claims more than was done: an order was lost.
    ledger.add(&result.tallies_all);
    assert!(
        matches!(audit(&ledger), AuditError::Sum { what: "the number of new orders", .. }),
        "{}",
        audit(&ledger)
    );
    assert!(rows::<NewOrders>(&db).len() > 3 * 10 * 6);
}
