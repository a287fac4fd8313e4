//! The five transactions of TPC-C as stored procedures.
//!
//! Owns: the reads and writes of each transaction, and its result: the values that its terminal would display. Never:
//! draws a random number, or knows which client runs it.
//!
//! Rows of other warehouses come first; the rows of the warehouse and the district, which many transactions need, are
//! accessed after them. Nothing that a transaction does from then on makes it wait for another worker, so these rows
//! are never locked while messages travel. Rows that several transactions need are accessed in one order, so that
//! deadlocks are rare: the customer comes before the customer's orders.

#![expect(
    clippy::manual_async_fn,
    reason = "rustc compiles a `pub async fn` here, and once more where it is used; a function that returns a future only there"
)]

mod delivery;
mod new_order;
mod order_status;
mod payment;
mod stock_level;

/// The statements of the procedures above, each on one row, and what they do between these, for engines of other kinds.
pub mod statements {
    pub use super::new_order::{ItemSeen, StockTaken, number_order, place_line, take_stock, total};
    pub use super::payment::{history_data, pay, pay_district, pay_warehouse};
    pub use super::stock_level::{ORDERS as RECENT_ORDERS, RecentOrders, TOGETHER, distinct};
}

pub use delivery::{DeliverFrom, Delivered, deliver, next_orders};
pub use new_order::{LinePlaced, OrderPlaced, UNUSED_ITEM, new_order};
pub use order_status::{CustomerStatus, LineStatus, OrderStatus, StatusOf, order_status};
pub use payment::{Paid, Payee, PayingCustomer, payment};
pub use stock_level::{RecentOrders, count_low, next_order, recent_items, stock_level};

use std::ops::ControlFlow;

use atrapos::{Abort, KeyRange, Transaction};
use smallvec::SmallVec;

use super::parameters::CustomerBy;
use super::schema::Tables;

/// Detail of the abort of a transaction that misses a row which no transaction ever deletes.
pub const MISSING: &str = "a row that the population has is missing";

/// Returns a row that must exist.
#[inline]
fn there<R>(row: Option<R>) -> Result<R, Abort> {
    row.ok_or_else(|| Abort::user(MISSING))
}

/// The numbers of customers with one last name: a few, seldom more than there is room for.
type Found = SmallVec<[u32; 32]>;

/// Notes the number of a customer.
fn note(found: &mut Found, (_, _, c_id): (u16, u8, u32)) -> ControlFlow<()> {
    found.push(c_id);
    ControlFlow::Continue(())
}

/// Returns, of the customers with a last name, sorted by first name, the one at half their number, rounded up (clause 2.5.2.2).
fn middle(found: &Found) -> Option<u32> {
    found.len().div_ceil(2).checked_sub(1).and_then(|middle| found.get(middle)).copied()
}

/// Finds the number of a customer.
async fn find_customer(
    tx: &mut impl Transaction,
    tables: Tables,
    w_id: u16,
    d_id: u8,
    customer: CustomerBy,
) -> Result<u32, Abort> {
    match customer {
        CustomerBy::Id(c_id) => Ok(c_id),
        CustomerBy::Name(last) => {
            let range = KeyRange::prefix(&(w_id, d_id, last));
            there(middle(&tx.lookup_each(tables.customer_by_name, range, Found::new(), note).await?))
        }
    }
}
