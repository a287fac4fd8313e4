//! Order-Status (clause 2.6).

use std::future::Future;
use std::ops::ControlFlow;

use arrayvec::ArrayVec;
use atrapos::{Abort, FixedStr, KeyRange, RowView, Transaction};
use serde::{Deserialize, Serialize};

use super::super::generator::LINES_MAX;
use super::super::parameters::CustomerBy;
use super::super::schema::{Cents, Customer, Moment, Order, OrderLine, Tables};
use super::{find_customer, there};

/// The input of Order-Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusOf {
    /// The warehouse.
    pub w_id: u16,
    /// The district.
    pub d_id: u8,
    /// The customer.
    pub customer: CustomerBy,
}

/// The columns of the customer that are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each field is named after its column")]
pub struct CustomerStatus {
    pub c_id: u32,
    pub first: FixedStr<16>,
    pub middle: FixedStr<2>,
    pub last: FixedStr<16>,
    pub balance: Cents,
}

/// The columns of a line of the order that are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each field is named after its column")]
pub struct LineStatus {
    pub i_id: u32,
    pub supply_w_id: u16,
    pub quantity: u8,
    pub amount: u32,
    pub delivery_d: Moment,
}

/// A customer's latest order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderStatus {
    /// The customer.
    pub customer: CustomerStatus,
    /// The order's number.
    pub o_id: u32,
    /// The order.
    pub order: Order,
    /// Its lines.
    pub lines: ArrayVec<LineStatus, { LINES_MAX as usize }>,
}

/// Reads the latest order of a customer.
///
/// # Errors
/// The errors of [`Transaction::run`].
pub fn order_status(
    tx: &mut impl Transaction,
    tables: Tables,
    of: StatusOf,
) -> impl Future<Output = Result<OrderStatus, Abort>> {
    async move {
        let StatusOf { w_id, d_id, customer } = of;
        let c_id = find_customer(tx, tables, w_id, d_id, customer).await?;
        let see = move |customer: RowView<'_, Customer>| CustomerStatus {
            c_id,
            first: customer.get(|column| column.first),
            middle: customer.get(|column| column.middle),
            last: customer.get(|column| column.last),
            balance: customer.get(|column| column.balance),
        };
        let customer = there(tx.view(tables.customer, (w_id, d_id, c_id), see).await?)?;
        let orders = KeyRange::prefix(&(w_id, d_id, c_id));
        let first = |latest: &mut Option<u32>, (_, _, o_id)| {
            *latest = Some(o_id);
            ControlFlow::Break(())
        };
        let o_id = there(tx.lookup_each(tables.order_by_customer, orders, None, first).await?)?;
        let order = there(tx.get(tables.order, (w_id, d_id, o_id)).await?)?;
        let lines = KeyRange::prefix(&(w_id, d_id, o_id));
        let lines = tx
            .fold(
                tables.order_line,
                lines,
                ArrayVec::new(),
                |lines: &mut ArrayVec<LineStatus, 15>, _, row| {
                    let OrderLine { i_id, supply_w_id, quantity, amount, delivery_d, .. } = row;
                    // No order has more lines than there is room for.
                    let _ = lines.try_push(LineStatus { i_id, supply_w_id, quantity, amount, delivery_d });
                    ControlFlow::Continue(())
                },
            )
            .await?;
        Ok(OrderStatus { customer, o_id, order, lines })
    }
}
