//! Delivery (clause 2.7): of one district's oldest order. The specification lets every order of the ten be delivered in a
//! transaction of its own (clause 2.7.2), and so it is done here.

use std::ops::ControlFlow;

use atrapos::{Abort, KeyRange, Tx};

use super::super::schema::{Cents, Moment, Order, OrderLine, Tables};
use super::there;

/// An order that was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its number.
    pub o_id: u32,
    /// The customer.
    pub c_id: u32,
    /// What it costs, in cents.
    pub amount: Cents,
}

/// Delivers the oldest order of a district that is not delivered yet; `None` when there is none.
///
/// # Errors
/// As [`Tx::run`].
pub async fn deliver(
    tx: &mut Tx<'_>,
    tables: Tables,
    w_id: u16,
    d_id: u8,
    carrier_id: u8,
    delivery_d: Moment,
) -> Result<Option<Delivered>, Abort> {
    let district = KeyRange::prefix(&(w_id, d_id));
    let oldest = tx.fold(tables.new_order, district, None, |oldest, (_, _, o_id), _| {
        *oldest = Some(o_id);
        ControlFlow::Break(())
    });
    let Some(o_id) = oldest.await? else { return Ok(None) };
    let key = (w_id, d_id, o_id);
    there(tx.delete(tables.new_order, key).await?)?;
    let see = |order: Order| (order.c_id, order.ol_cnt);
    let (c_id, ol_cnt) = there(tx.read(tables.order, key, see).await?)?;
    let lines = KeyRange::prefix(&key);
    let sum = |sum: &mut Cents, _, line: OrderLine| {
        *sum += Cents::from(line.amount);
        ControlFlow::Continue(())
    };
    let amount = tx.fold(tables.order_line, lines, 0, sum).await?;
    // Whoever shows the order has its customer first, and goes on to the order: so the order is changed after the customer.
    let customer = tx.update(tables.customer, (w_id, d_id, c_id), move |customer| {
        customer.balance += amount;
        customer.delivery_cnt += 1;
    });
    there(customer.await?)?;
    there(tx.update(tables.order, key, move |order| order.carrier_id = carrier_id).await?)?;
    for number in 1..=ol_cnt {
        let line = tx.update(tables.order_line, (w_id, d_id, o_id, number), move |line| {
            line.delivery_d = delivery_d;
        });
        there(line.await?)?;
    }
    Ok(Some(Delivered { o_id, c_id, amount }))
}
