//! Audit of the districts of a warehouse: customers, orders and their lines, payments.
//!
//! Owns: the reading and summing of their rows. Never: holds more than some hundred orders or customers at once.

use std::iter::Peekable;

use atrapos::{KeyRange, Session};

use super::super::generator::{CARRIERS, LINES_MAX, LINES_MIN, OrderWithLines, Population};
use super::super::schema::{Cents, DISTRICTS, Order, OrderLine, Tables, dist_info};
use super::conditions::{self, DistrictSums, OrderSeen};
use super::{PaymentElsewhere, SLICE, SuppliedElsewhere, WarehouseRead, read_rows, refuse, rows};
use crate::workload::AuditError;

/// The district under audit, and the handles that its audit needs.
struct At<'a> {
    session: &'a Session,
    tables: Tables,
    population: &'a Population,
    w_id: u16,
    d_id: u8,
}

impl At<'_> {
    /// Returns the keys of the district from `first` on that are read in one transaction.
    fn slice(&self, first: u32) -> (KeyRange, (u16, u8, u32)) {
        let from = (self.w_id, self.d_id, first);
        (KeyRange::through(&from, &(self.w_id, self.d_id, first.saturating_add(SLICE - 1))), from)
    }
}

/// Checks all districts of a warehouse and the conditions that concern only them.
pub(super) async fn check(
    session: &Session,
    tables: Tables,
    population: &Population,
    warehouse: &mut WarehouseRead,
) -> Result<(), AuditError> {
    let w_id = warehouse.w_id;
    let at = tables.warehouse.at(&w_id);
    let row = session.run_boxed(&at, async move |tx| tx.get(tables.warehouse, w_id).await).await?;
    let ytd = rows::check_warehouse(population, w_id, row)?;
    let (mut districts, mut history) = (0, 0);
    for d_id in 1..=DISTRICTS {
        let at = At { session, tables, population, w_id, d_id };
        let sums = check_district(&at, warehouse).await?;
        districts += sums.ytd;
        history += sums.history;
    }
    warehouse.findings.note(conditions::check_warehouse(w_id, ytd, districts, history));
    std::mem::take(&mut warehouse.findings).into_result()
}

async fn check_district(at: &At<'_>, warehouse: &mut WarehouseRead) -> Result<DistrictSums, AuditError> {
    let At { session, tables, population, w_id, d_id } = *at;
    let key = (w_id, d_id);
    let route = tables.district.at(&key);
    let row = session.run_boxed(&route, async move |tx| tx.get(tables.district, key).await).await?;
    let row = rows::check_district(population, w_id, d_id, row)?;
    let mut sums = DistrictSums { ytd: row.ytd, next_o_id: row.next_o_id, ..DistrictSums::default() };
    sums.delivery_cnt = check_customers(at, warehouse).await?;
    let new_orders = read_new_orders(at).await?;
    sums.new_orders = new_orders.len() as u32;
    sums.new_orders_from = new_orders.first().copied().unwrap_or(0);
    sums.new_orders_to = new_orders.last().copied().unwrap_or(0);
    check_orders(at, warehouse, &new_orders, &mut sums).await?;
    sums.history = check_history(at, warehouse, row.next_h_id).await?;
    warehouse.findings.note(conditions::check_district(population, w_id, d_id, &sums));
    Ok(sums)
}

/// Checks the customers and returns the sum of their numbers of deliveries.
async fn check_customers(at: &At<'_>, warehouse: &mut WarehouseRead) -> Result<u64, AuditError> {
    let last = at.population.scale().customers;
    let mut delivery_cnt = 0;
    for first in (1..=last).step_by(SLICE as usize) {
        let (range, from) = at.slice(first);
        let mut found = read_rows(at.session, at.tables.customer, range, &from).await?.into_iter();
        for c_id in first..=last.min(first + SLICE - 1) {
            let key = (at.w_id, at.d_id, c_id);
            let Some((_, row)) = found.next().filter(|(found, _)| *found == key) else {
                return Err(refuse("customer", key, "the row is missing"));
            };
            rows::check_customer(at.population, key, &row)?;
            delivery_cnt += u64::from(row.delivery_cnt);
            if let Some(sums) = warehouse.customer(at.population, at.d_id, c_id) {
                sums.balance = row.balance;
                sums.ytd_payment = row.ytd_payment;
                sums.payment_cnt = row.payment_cnt;
                sums.delivery_cnt = row.delivery_cnt;
            }
        }
    }
    Ok(delivery_cnt)
}

/// Returns the numbers of the district's new orders, ascending.
async fn read_new_orders(at: &At<'_>) -> Result<Vec<u32>, AuditError> {
    let district = (at.w_id, at.d_id);
    let first = (at.w_id, at.d_id, 0);
    let rows = read_rows(at.session, at.tables.new_order, KeyRange::prefix(&district), &first).await?;
    Ok(rows.into_iter().map(|((_, _, o_id), _)| o_id).collect())
}

/// Checks the orders with their lines, whatever their numbers, and sums them up.
async fn check_orders(
    at: &At<'_>,
    warehouse: &mut WarehouseRead,
    new_orders: &[u32],
    sums: &mut DistrictSums,
) -> Result<(), AuditError> {
    let customers_of_orders = at.population.customers_of_orders(at.w_id, at.d_id);
    let mut new_orders = new_orders.iter().copied().peekable();
    let mut first = 0;
    loop {
        let (range, from) = at.slice(first);
        let (w_id, d_id, o_id) = from;
        let orders = read_rows(at.session, at.tables.order, range.clone(), &from).await?;
        let lines = read_rows(at.session, at.tables.order_line, range, &(w_id, d_id, o_id, 0)).await?;
        let mut lines = lines.into_iter().peekable();
        for ((_, _, o_id), order) in orders {
            let key = (at.w_id, at.d_id, o_id);
            if let Some(orphan) = lines.next_if(|((_, _, of, _), _)| *of < o_id) {
                return Err(refuse("order_line", orphan.0, "there is no such order"));
            }
            let own = lines_of(&mut lines, o_id)?;
            if new_orders.next_if(|number| *number < o_id).is_some() {
                return Err(refuse("new_order", key, "an earlier row has no order"));
            }
            let is_new = new_orders.next_if_eq(&o_id).is_some();
            sums.orders += 1;
            sums.o_id_max = sums.o_id_max.max(o_id);
            sums.ol_cnt += u64::from(order.ol_cnt);
            sums.order_lines += own.len() as u64;
            let seen = OrderSeen {
                o_id,
                is_delivered: order.carrier_id != 0,
                is_new,
                ol_cnt: order.ol_cnt,
                lines: own.len(),
                lines_delivered: own.iter().filter(|line| line.delivery_d != 0).count(),
            };
            warehouse.findings.note(conditions::check_order(at.w_id, at.d_id, &seen));
            warehouse.findings.note(check_order(at, o_id, &order, &own, &customers_of_orders));
            note_order(at, warehouse, o_id, &order, &own)?;
        }
        if let Some((key, _)) = lines.next() {
            return Err(refuse("order_line", key, "there is no such order"));
        }
        first += SLICE;
        // Orders beyond the next number would be as wrong as a gap.
        if first >= sums.next_o_id {
            break;
        }
    }
    if let Some(o_id) = new_orders.next() {
        return Err(refuse("new_order", (at.w_id, at.d_id, o_id), "there is no such order"));
    }
    Ok(())
}

/// Takes the lines of an order, which must be numbered from 1 on.
fn lines_of(
    lines: &mut Peekable<impl Iterator<Item = ((u16, u8, u32, u8), OrderLine)>>,
    o_id: u32,
) -> Result<Vec<OrderLine>, AuditError> {
    let mut own = Vec::new();
    while let Some((key, line)) = lines.next_if(|((_, _, of, _), _)| *of == o_id) {
        own.push(line);
        if usize::from(key.3) != own.len() {
            return Err(refuse("order_line", key, "the lines of the order are not numbered from 1 on"));
        }
    }
    Ok(own)
}

/// Checks that an order is one that was loaded, or one that New-Order makes.
fn check_order(
    at: &At<'_>,
    o_id: u32,
    order: &Order,
    lines: &[OrderLine],
    customers_of_orders: &[u32],
) -> Result<(), AuditError> {
    let key = (at.w_id, at.d_id, o_id);
    let scale = at.population.scale();
    if order.carrier_id > CARRIERS {
        return Err(refuse("order", key, "O_CARRIER_ID is more than 10"));
    }
    let number = o_id.checked_sub(1).map(|number| number as usize);
    if let Some(c_id) = number.and_then(|number| customers_of_orders.get(number)) {
        let loaded = at.population.order(at.w_id, at.d_id, o_id, *c_id);
        return check_loaded(key, order, lines, loaded);
    }
    let all_local = lines.iter().all(|line| line.supply_w_id == at.w_id);
    if !(1..=scale.customers).contains(&order.c_id) || order.all_local != all_local {
        return Err(refuse("order", key, "New-Order makes no such row"));
    }
    if !(LINES_MIN..=LINES_MAX).contains(&order.ol_cnt) {
        return Err(refuse("order", key, "O_OL_CNT is not from 5 to 15"));
    }
    let is_sound = |line: &OrderLine| {
        let stock =
            (1..=scale.items).contains(&line.i_id) && (1..=scale.warehouses).contains(&line.supply_w_id);
        stock
            && (1..=10).contains(&line.quantity)
            && line.amount == u32::from(line.quantity) * at.population.item(line.i_id).price
            && line.dist_info == dist_info(&at.population.stock(line.supply_w_id, line.i_id).dist, at.d_id)
    };
    match lines.iter().position(|line| !is_sound(line)) {
        None => Ok(()),
        Some(line) => {
            let key = (at.w_id, at.d_id, o_id, line + 1);
            Err(refuse("order_line", key, "New-Order makes no such row"))
        }
    }
}

/// Checks that an order is as it was loaded, except for its delivery.
fn check_loaded(
    key: (u16, u8, u32),
    order: &Order,
    lines: &[OrderLine],
    loaded: OrderWithLines,
) -> Result<(), AuditError> {
    let was_delivered = loaded.order.carrier_id != 0;
    let carrier_id = if was_delivered { loaded.order.carrier_id } else { order.carrier_id };
    if *order != (Order { carrier_id, ..loaded.order }) {
        return Err(refuse("order", key, rows::UNCHANGED));
    }
    let is_as_loaded = |(line, loaded): (&OrderLine, &OrderLine)| {
        let delivery_d = if was_delivered { loaded.delivery_d } else { line.delivery_d };
        *line == OrderLine { delivery_d, ..loaded.clone() }
    };
    if !lines.iter().zip(&loaded.lines).all(is_as_loaded) {
        return Err(refuse("order_line", key, rows::UNCHANGED));
    }
    Ok(())
}

/// Adds an order to the sums of its customer and of the stock that supplied it.
fn note_order(
    at: &At<'_>,
    warehouse: &mut WarehouseRead,
    o_id: u32,
    order: &Order,
    lines: &[OrderLine],
) -> Result<(), AuditError> {
    let scale = at.population.scale();
    let key = (at.w_id, at.d_id, o_id);
    let Some(customer) = warehouse.customer(at.population, at.d_id, order.c_id) else {
        return Err(refuse("order", key, "there is no such customer"));
    };
    let delivered = lines.iter().filter(|line| line.delivery_d != 0);
    customer.delivered += delivered.map(|line| Cents::from(line.amount)).sum::<Cents>();
    let was_delivered = o_id <= scale.delivered();
    customer.deliveries += u32::from(order.carrier_id != 0 && !was_delivered);
    if o_id <= scale.customers {
        return Ok(());
    }
    warehouse.orders += 1;
    for line in lines {
        let OrderLine { i_id, supply_w_id, quantity, .. } = *line;
        if supply_w_id != at.w_id {
            warehouse.supplied_elsewhere.push(SuppliedElsewhere { w_id: supply_w_id, i_id, quantity });
        } else if let Some(ordered) = warehouse.ordered(i_id) {
            ordered.ytd += u64::from(quantity);
            ordered.order_cnt += 1;
        }
    }
    Ok(())
}

/// Checks the payments to the district and returns their sum.
async fn check_history(at: &At<'_>, warehouse: &mut WarehouseRead, next: u32) -> Result<Cents, AuditError> {
    let loaded = at.population.scale().customers;
    let mut sum = 0;
    let mut expected = 1;
    let mut first = 0;
    while first < next {
        let (range, from) = at.slice(first);
        for ((w_id, d_id, h_id), row) in read_rows(at.session, at.tables.history, range, &from).await? {
            let key = (w_id, d_id, h_id);
            if h_id != expected {
                return Err(refuse("history", key, "the rows of the district are not numbered from 1 on"));
            }
            expected += 1;
            if h_id <= loaded && row != at.population.history(w_id, d_id, h_id) {
                warehouse.findings.note(Err(refuse("history", key, rows::UNCHANGED)));
            }
            sum += row.amount;
            warehouse.payments += u64::from(h_id > loaded);
            if row.c_w_id != w_id {
                let (c_w_id, c_d_id, c_id) = (row.c_w_id, row.c_d_id, row.c_id);
                warehouse.paid_elsewhere.push(PaymentElsewhere { c_w_id, c_d_id, c_id, amount: row.amount });
            } else if let Some(customer) = warehouse.customer(at.population, row.c_d_id, row.c_id) {
                customer.paid += row.amount;
                customer.payments += 1;
            } else {
                return Err(refuse("history", key, "there is no such customer"));
            }
        }
        first += SLICE;
    }
    if expected != next {
        return Err(refuse("district", (at.w_id, at.d_id), "the next number of history is not the next"));
    }
    Ok(sum)
}
