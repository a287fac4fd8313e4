//! Audit of single rows: the columns that no transaction changes.
//!
//! Owns: the comparison with the population, row by row. Never: sums up several rows.

use atrapos::{KeyRange, Session};

use super::super::generator::Population;
use super::super::schema::{Cents, Customer, District, Stock, Tables, Warehouse};
use super::{STOCK_SLICE, StockSums, WarehouseRead, read_rows, refuse};
use crate::workload::AuditError;

/// The least and the greatest quantity in stock after an order.
const QUANTITIES: std::ops::RangeInclusive<i16> = 10..=100;

/// Checks a warehouse's copy of the items, and its stock.
pub(super) async fn check_items_and_stock(
    session: &Session,
    tables: Tables,
    population: &Population,
    warehouse: &mut WarehouseRead,
) -> Result<(), AuditError> {
    let w_id = warehouse.w_id;
    let last = population.scale().items;
    for first in (1..=last).step_by(STOCK_SLICE as usize) {
        let until = last.min(first + STOCK_SLICE - 1);
        let range = || KeyRange::through(&(w_id, first), &(w_id, until));
        let mut items = read_rows(session, tables.item, range(), &(w_id, first)).await?.into_iter();
        let mut stock = read_rows(session, tables.stock, range(), &(w_id, first)).await?.into_iter();
        for i_id in first..=until {
            match items.next() {
                Some((found, row)) if found == (w_id, i_id) && row == population.item(i_id) => {}
                _ => return Err(refuse("item", (w_id, i_id), "the row is not the population's")),
            }
            match stock.next() {
                Some((found, row)) if found == (w_id, i_id) => {
                    let sums = &mut warehouse.stock[i_id as usize - 1].0;
                    *sums = check_stock(population, w_id, i_id, row)?;
                }
                _ => return Err(refuse("stock", (w_id, i_id), "the row is missing")),
            }
        }
    }
    Ok(())
}

fn check_stock(population: &Population, w_id: u16, i_id: u32, row: Stock) -> Result<StockSums, AuditError> {
    let refuse = |what| Err(refuse("stock", (w_id, i_id), what));
    if !QUANTITIES.contains(&row.quantity) {
        return refuse("the quantity is not from 10 to 100");
    }
    let expected = population.stock(w_id, i_id);
    let sums = StockSums { ytd: row.ytd.into(), order_cnt: row.order_cnt, remote_cnt: row.remote_cnt };
    if (row.dist, row.data) != (expected.dist, expected.data) {
        return refuse("a column that no transaction changes differs from the population");
    }
    // Every order takes its quantity, or adds 91 less its quantity: the quantity loaded, less the quantity ordered,
    // modulo 91.
    let taken = (i64::from(expected.quantity) - sums.ytd as i64 - i64::from(row.quantity)).rem_euclid(91);
    if taken != 0 {
        return refuse("the quantity is not what is left of the population's");
    }
    Ok(sums)
}

pub(super) const UNCHANGED: &str = "a column that no transaction changes differs from the population";

/// Checks a warehouse's row, and returns its `ytd`.
pub(super) fn check_warehouse(
    population: &Population,
    w_id: u16,
    row: Option<Warehouse>,
) -> Result<Cents, AuditError> {
    let row = row.ok_or_else(|| refuse("warehouse", w_id, "the row is missing"))?;
    let expected = Warehouse { ytd: row.ytd, ..population.warehouse(w_id) };
    if row != expected { Err(refuse("warehouse", w_id, UNCHANGED)) } else { Ok(row.ytd) }
}

/// Checks a district's row, and returns it.
pub(super) fn check_district(
    population: &Population,
    w_id: u16,
    d_id: u8,
    row: Option<District>,
) -> Result<District, AuditError> {
    let row = row.ok_or_else(|| refuse("district", (w_id, d_id), "the row is missing"))?;
    let District { ytd, next_o_id, next_h_id, .. } = row;
    let expected = District { ytd, next_o_id, next_h_id, ..population.district(w_id, d_id) };
    if row != expected { Err(refuse("district", (w_id, d_id), UNCHANGED)) } else { Ok(row) }
}

/// Checks a customer's row.
pub(super) fn check_customer(
    population: &Population,
    key: (u16, u8, u32),
    row: &Customer,
) -> Result<(), AuditError> {
    let (w_id, d_id, c_id) = key;
    let loaded = population.customer(w_id, d_id, c_id);
    let is_noted = row.credit == *"BC" && row.payment_cnt > 1;
    if is_noted && !row.data.as_str().starts_with(&format!("{c_id} {d_id} {w_id} ")) {
        return Err(refuse("customer", key, "the latest payment is not what C_DATA begins with"));
    }
    let expected = Customer {
        balance: row.balance,
        ytd_payment: row.ytd_payment,
        payment_cnt: row.payment_cnt,
        delivery_cnt: row.delivery_cnt,
        data: if is_noted { row.data } else { loaded.data },
        ..loaded
    };
    if *row != expected { Err(refuse("customer", key, UNCHANGED)) } else { Ok(()) }
}
