//! Proves that a TPC-C database is the result of its population and of the committed transactions.
//!
//! Owns: the order of the checks, and those across warehouses. Never: changes a row.
//!
//! It checks the engine's own proof ([`Database::verify`]); the twelve consistency conditions of clause 3.3.2
//! (`conditions`); that columns which no transaction changes equal the population, copies of the items included
//! (`rows`); that stock has decreased by the quantities ordered, and that every remote payment is recorded at both
//! warehouses; and, if transactions were counted, the numbers of orders and payments.
//!
//! Each worker audits the warehouses it owns, a few hundred orders or customers per transaction. Rows of one warehouse
//! that concern another (payments of its customers, lines supplied by it) are compared after all have been read.

mod conditions;
mod districts;
mod rows;

use atrapos::{Abort, Database, KeyRange, Session, SessionHandle, Table, TableRef, Tx, WorkerId};

use super::generator::Population;
use super::owned_by;
use super::parameters::Class;
use super::schema::{Cents, DISTRICTS, Tables};
use crate::ledger::Ledger;
use crate::workload::{AuditError, AuditReport};
use std::ops::ControlFlow;

/// Orders, or customers, that are read in one transaction: bounds both memory and the pause of the worker.
const SLICE: u32 = 256;
/// Rows of stock that are read in one transaction.
const STOCK_SLICE: u32 = 1024;

/// The sums in a customer's row, and the sums of the customer's orders and payments.
#[derive(Clone, Copy, Debug, Default)]
struct CustomerSums {
    balance: Cents,
    ytd_payment: Cents,
    payment_cnt: u32,
    delivery_cnt: u32,
    /// Sum over all lines that were delivered.
    delivered: Cents,
    /// Sum over all rows of history.
    paid: Cents,
    payments: u32,
    deliveries: u32,
}

/// The sums in a row of stock, or the same sums over order lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StockSums {
    ytd: u64,
    order_cnt: u32,
    remote_cnt: u32,
}

/// A payment by a customer of another warehouse than the one that was paid.
#[derive(Clone, Copy, Debug)]
struct PaymentElsewhere {
    c_w_id: u16,
    c_d_id: u8,
    c_id: u32,
    amount: Cents,
}

/// An order line that was supplied by another warehouse.
#[derive(Clone, Copy, Debug)]
struct SuppliedElsewhere {
    w_id: u16,
    i_id: u32,
    quantity: u8,
}

/// The rows read of one warehouse, summed up.
#[derive(Debug, Default)]
struct WarehouseRead {
    w_id: u16,
    /// Sums by district and number of the customer.
    customers: Vec<CustomerSums>,
    /// Sums by item: those in the row, and those over this warehouse's own orders.
    stock: Vec<(StockSums, StockSums)>,
    paid_elsewhere: Vec<PaymentElsewhere>,
    supplied_elsewhere: Vec<SuppliedElsewhere>,
    /// Number of orders since the load.
    orders: u64,
    payments: u64,
    /// The mistakes found.
    findings: Findings,
}

impl WarehouseRead {
    fn new(w_id: u16, population: &Population) -> WarehouseRead {
        let scale = population.scale();
        let customers = scale.customers as usize * usize::from(DISTRICTS);
        WarehouseRead {
            w_id,
            customers: vec![CustomerSums::default(); customers],
            stock: vec![<(StockSums, StockSums)>::default(); scale.items as usize],
            ..WarehouseRead::default()
        }
    }

    /// Returns the sums of a customer of this warehouse, if there is one of that number.
    fn customer(&mut self, population: &Population, d_id: u8, c_id: u32) -> Option<&mut CustomerSums> {
        let customers = population.scale().customers;
        if !(1..=DISTRICTS).contains(&d_id) || !(1..=customers).contains(&c_id) {
            return None;
        }
        self.customers.get_mut((u32::from(d_id - 1) * customers + c_id - 1) as usize)
    }

    /// Returns the sums over this warehouse's own orders of an item, if there is such an item.
    fn ordered(&mut self, i_id: u32) -> Option<&mut StockSums> {
        self.stock.get_mut(i_id.checked_sub(1)? as usize).map(|(_, ordered)| ordered)
    }
}

/// The most important finding: a condition takes precedence over a row, and the first condition over the others.
#[derive(Debug, Default)]
struct Findings(Option<(u8, AuditError)>);

impl Findings {
    fn note(&mut self, checked: Result<(), AuditError>) {
        let Err(error) = checked else { return };
        let number = match error {
            AuditError::Condition { number, .. } => number,
            _ => u8::MAX,
        };
        if self.0.as_ref().is_none_or(|(first, _)| number < *first) {
            self.0 = Some((number, error));
        }
    }

    fn into_result(self) -> Result<(), AuditError> {
        self.0.map_or(Ok(()), |(_, error)| Err(error))
    }
}

pub(super) fn audit(
    population: &Population,
    db: &Database,
    ledger: Option<&Ledger>,
) -> Result<AuditReport, AuditError> {
    let verified = db.verify()?;
    let tables = Tables::of(db)?;
    let population = *population;
    // One scheme for all workers: partitions may move meanwhile.
    let (scheme, mut sessions) = (db.scheme(), Vec::new());
    for worker in (0..db.workers()).map(|worker| WorkerId(worker as u16)) {
        let own = owned_by(&scheme, tables, population.scale(), worker);
        if !own.is_empty() {
            let read = async move |session| read_own(&session, tables, population, own).await;
            sessions.push(db.spawn_session(worker, read)?);
        }
    }
    // Every session is awaited before the first error is reported.
    let parts: Vec<_> = sessions.into_iter().map(SessionHandle::join).collect();
    let mut warehouses = Vec::new();
    for part in parts {
        warehouses.extend(part??);
    }
    warehouses.sort_by_key(|warehouse| warehouse.w_id);
    compare(&population, &mut warehouses)?;
    check_counts(&population, db, tables, ledger, &warehouses)?;
    Ok(AuditReport { rows: verified.rows, entries: verified.entries, references: verified.references })
}

async fn read_own(
    session: &Session,
    tables: Tables,
    population: Population,
    own: Vec<u16>,
) -> Result<Vec<WarehouseRead>, AuditError> {
    let mut read = Vec::new();
    for w_id in own {
        let mut warehouse = WarehouseRead::new(w_id, &population);
        rows::check_items_and_stock(session, tables, &population, &mut warehouse).await?;
        districts::check(session, tables, &population, &mut warehouse).await?;
        read.push(warehouse);
    }
    Ok(read)
}

/// Reads the rows of `table` whose keys are in `range`.
async fn read_rows<T: Table>(
    session: &Session,
    table: TableRef<T>,
    range: KeyRange,
    first: &T::Key,
) -> Result<Vec<(T::Key, T::Row)>, Abort> {
    let read = async move |tx: &mut Tx<'_>| {
        let collect = |rows: &mut Vec<(T::Key, T::Row)>, key, row| {
            rows.push((key, row));
            ControlFlow::Continue(())
        };
        tx.fold(table, range.clone(), Vec::new(), collect).await
    };
    session.run_boxed(&table.at(first), read).await
}

fn refuse(table: &'static str, key: impl std::fmt::Debug, what: &'static str) -> AuditError {
    AuditError::Row { table, key: format!("{key:?}"), what }
}

/// Compares the rows of warehouses that refer to each other.
fn compare(population: &Population, warehouses: &mut [WarehouseRead]) -> Result<(), AuditError> {
    for from in 0..warehouses.len() {
        let paid = std::mem::take(&mut warehouses[from].paid_elsewhere);
        for PaymentElsewhere { c_w_id, c_d_id, c_id, amount } in paid {
            let customer = by_number(warehouses, c_w_id)
                .and_then(|warehouse| warehouse.customer(population, c_d_id, c_id))
                .ok_or_else(|| refuse("history", (c_w_id, c_d_id, c_id), "there is no such customer"))?;
            customer.paid += amount;
            customer.payments += 1;
        }
        let supplied = std::mem::take(&mut warehouses[from].supplied_elsewhere);
        for SuppliedElsewhere { w_id, i_id, quantity } in supplied {
            let ordered = by_number(warehouses, w_id)
                .and_then(|warehouse| warehouse.ordered(i_id))
                .ok_or_else(|| refuse("order_line", (w_id, i_id), "there is no such stock"))?;
            ordered.ytd += u64::from(quantity);
            ordered.order_cnt += 1;
            ordered.remote_cnt += 1;
        }
    }
    let mut findings = Findings::default();
    for warehouse in warehouses.iter() {
        conditions::check_customers(population, warehouse, &mut findings);
        for (i_id, (row, ordered)) in (1_u32..).zip(&warehouse.stock) {
            if row != ordered {
                let what = "ytd, order_cnt and remote_cnt are not what the order lines add up to";
                findings.note(Err(refuse("stock", (warehouse.w_id, i_id), what)));
            }
        }
    }
    findings.into_result()
}

fn by_number(warehouses: &mut [WarehouseRead], w_id: u16) -> Option<&mut WarehouseRead> {
    warehouses.get_mut(usize::from(w_id).checked_sub(1)?)
}

/// Checks the numbers of rows that no transaction changes, and the numbers of transactions if they were counted.
fn check_counts(
    population: &Population,
    db: &Database,
    tables: Tables,
    ledger: Option<&Ledger>,
    warehouses: &[WarehouseRead],
) -> Result<(), AuditError> {
    let scale = population.scale();
    let each = u64::from(scale.warehouses);
    let customers = u64::from(scale.customers) * u64::from(DISTRICTS);
    let orders: u64 = warehouses.iter().map(|warehouse| warehouse.orders).sum();
    let payments: u64 = warehouses.iter().map(|warehouse| warehouse.payments).sum();
    for (table, name, expected) in [
        (tables.warehouse.id(), "warehouse", each),
        (tables.district.id(), "district", each * u64::from(DISTRICTS)),
        (tables.customer.id(), "customer", each * customers),
        (tables.stock.id(), "stock", each * u64::from(scale.items)),
        (tables.item.id(), "item", each * u64::from(scale.items)),
        (tables.order.id(), "order", each * customers + orders),
        (tables.history.id(), "history", each * customers + payments),
    ] {
        let found = db.len(table)?;
        if found != expected {
            return Err(AuditError::Count { table: name, expected, found });
        }
    }
    let Some(ledger) = ledger else { return Ok(()) };
    for (what, class, found) in [
        ("the number of new orders", Class::NewOrder, orders),
        ("the number of payments", Class::Payment, payments),
    ] {
        let expected = ledger.committed(class.id());
        if found != expected {
            return Err(AuditError::Sum { what, expected, found });
        }
    }
    Ok(())
}
