//! The five transactions of TPC-C as stored procedures.
//!
//! Owns: what each transaction reads and writes, and what it returns: what its terminal would show. Never: draws a random
//! number, or knows which client runs it.
//!
//! What is on other warehouses comes first: only then are the warehouse and the district touched, which many transactions
//! want. Nothing that a transaction does after that makes it wait for another worker, so these rows are never locked while
//! messages travel. And what several transactions want is asked for in one order, so that they are seldom victims of deadlocks: the
//! customer goes before the customer's orders.

#![expect(
    clippy::manual_async_fn,
    reason = "rustc compiles a `pub async fn` here, and once more where it is used; a function that returns a future only there"
)]

mod delivery;
mod new_order;
mod order_status;
mod payment;
mod stock_level;

pub use delivery::{DeliverFrom, Delivered, deliver, next_orders};
pub use new_order::{LinePlaced, OrderPlaced, UNUSED_ITEM, new_order};
pub use order_status::{CustomerStatus, LineStatus, OrderStatus, StatusOf, order_status};
pub use payment::{Paid, Payee, PayingCustomer, payment};
pub use stock_level::{count_low, next_order, recent_items, stock_level};

use atrapos::{Abort, KeyRange, Tx};

use super::parameters::CustomerBy;
use super::schema::Tables;

/// Why a transaction aborts that misses a row which no transaction ever deletes.
pub const MISSING: &str = "a row that the population has is missing";

/// A row that has to be there.
#[inline]
fn there<R>(row: Option<R>) -> Result<R, Abort> {
    row.ok_or_else(|| Abort::user(MISSING))
}

/// The number of a customer: of those of a last name, sorted by first name, the one at half their number, rounded up
/// (clause 2.5.2.2).
async fn find_customer(
    tx: &mut Tx<'_>,
    tables: Tables,
    w_id: u16,
    d_id: u8,
    customer: CustomerBy,
) -> Result<u32, Abort> {
    match customer {
        CustomerBy::Id(c_id) => Ok(c_id),
        CustomerBy::Name(last) => {
            let range = KeyRange::prefix(&(w_id, d_id, last));
            let found = tx.lookup_all(tables.customer_by_name, range, usize::MAX).await?;
            let middle = found.len().div_ceil(2).checked_sub(1);
            there(middle.and_then(|middle| found.get(middle))).map(|(_, _, c_id)| *c_id)
        }
    }
}
