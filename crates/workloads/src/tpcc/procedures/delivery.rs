//! Delivery (clause 2.7) of the oldest order of one district. The specification allows each of the ten orders to be
//! delivered in a transaction of its own (clause 2.7.2), as is done here.
//!
//! A delivery must not block the transactions that place orders, which have locked the district by then. So it searches
//! for the oldest order only among those that were placed before it began ([`next_orders`]): new ones are beyond the
//! range it locks. Deliveries of one district take turns before they read anything.

use std::future::Future;
use std::ops::ControlFlow;

use atrapos::{Abort, KeyRange, RowEdit, RowView, Transaction};
use serde::{Deserialize, Serialize};

use super::super::schema::{Cents, Customer, DISTRICTS, District, Moment, Order, Tables};
use super::there;

/// An order that was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// The order's number.
    pub o_id: u32,
    /// The customer.
    pub c_id: u32,
    /// Total amount of the order, in cents.
    pub amount: Cents,
}

/// The input of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliverFrom {
    /// The warehouse.
    pub w_id: u16,
    /// The district.
    pub d_id: u8,
    /// The upper bound of the search: the number of the district's next order, now or at an earlier time.
    pub before: u32,
    /// The carrier.
    pub carrier_id: u8,
    /// Date of the delivery.
    pub delivery_d: Moment,
}

/// Reads the numbers of the next orders of a warehouse's districts.
///
/// # Errors
/// The errors of [`Transaction::run`].
pub fn next_orders(
    tx: &mut impl Transaction,
    tables: Tables,
    w_id: u16,
) -> impl Future<Output = Result<[u32; DISTRICTS as usize], Abort>> {
    async move {
        let collect = |next: &mut [u32; DISTRICTS as usize], (_, d_id): (u16, u8), row: District| {
            if let Some(next) = next.get_mut(usize::from(d_id).wrapping_sub(1)) {
                *next = row.next_o_id;
            }
            ControlFlow::Continue(())
        };
        tx.fold(tables.district, KeyRange::prefix(&w_id), [0; DISTRICTS as usize], collect).await
    }
}

/// The order number under which deliveries take turns; no order has it.
const TURN: u32 = 0;

/// Delivers the oldest undelivered order of a district; returns `None` if there is none.
///
/// # Errors
/// The errors of [`Transaction::run`].
pub fn deliver(
    tx: &mut impl Transaction,
    tables: Tables,
    from: DeliverFrom,
) -> impl Future<Output = Result<Option<Delivered>, Abort>> {
    async move {
        let DeliverFrom { w_id, d_id, before, carrier_id, delivery_d } = from;
        // Deleting a row that does not exist locks its key, too. Without the lock, several deliveries would find the
        // same order, and none could delete it.
        tx.delete(tables.new_order, (w_id, d_id, TURN)).await?;
        let placed = KeyRange::between(&(w_id, d_id, TURN + 1), &(w_id, d_id, before));
        let oldest = tx.fold(tables.new_order, placed, None, |oldest, (_, _, o_id), _| {
            *oldest = Some(o_id);
            ControlFlow::Break(())
        });
        let Some(o_id) = oldest.await? else { return Ok(None) };
        let key = (w_id, d_id, o_id);
        there(tx.delete(tables.new_order, key).await?)?;
        let see =
            |order: RowView<'_, Order>| (order.get(|column| column.c_id), order.get(|column| column.ol_cnt));
        let (c_id, ol_cnt) = there(tx.view(tables.order, key, see).await?)?;
        // Order-Status reads the customer before the order: so the order and its lines are changed after the customer, whose
        // balance is changed when their amounts are known.
        let count = |customer: &mut RowEdit<'_, Customer>| {
            customer.change(|column| column.delivery_cnt, |count| count + 1);
        };
        there(tx.edit(tables.customer, (w_id, d_id, c_id), count).await?)?;
        let carry = move |order: &mut RowEdit<'_, Order>| order.set(|column| column.carrier_id, carrier_id);
        there(tx.edit(tables.order, key, carry).await?)?;
        let deliver = |number| {
            tables.order_line.edit((w_id, d_id, o_id, number), move |line| {
                line.set(|column| column.delivery_d, delivery_d);
                Cents::from(line.get(|column| column.amount))
            })
        };
        let (mut amount, mut lines) = (0, 0);
        let sum = |line: Option<Cents>| {
            amount += line.unwrap_or(0);
            lines += u8::from(line.is_some());
        };
        tx.join_each((1..=ol_cnt).map(deliver), sum).await?;
        there((lines == ol_cnt).then_some(()))?;
        let pay = move |customer: &mut RowEdit<'_, Customer>| {
            customer.change(|column| column.balance, |balance| balance + amount);
        };
        there(tx.edit(tables.customer, (w_id, d_id, c_id), pay).await?)?;
        Ok(Some(Delivered { o_id, c_id, amount }))
    }
}
