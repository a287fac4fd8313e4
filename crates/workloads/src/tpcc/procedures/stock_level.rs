//! Stock-Level (clause 2.8).
//!
//! The specification requires only that it reads committed data (clause 2.8.2.3). So its clients run it as three
//! transactions, one per statement: a single one, which would keep the district locked while it waits for stock, would
//! block orders, which have locked the stock and request the district.

use std::future::Future;
use std::ops::ControlFlow;

use atrapos::{Abort, KeyRange, RowView, Transaction};

use super::super::generator::LINES_MAX;
use super::super::schema::{District, OrderLine, Tables};
use super::there;

/// Number of orders that are examined.
const ORDERS: u32 = 20;

/// Reads the number of a district's next order.
///
/// # Errors
/// The errors of [`Transaction::run`].
pub fn next_order(
    tx: &mut impl Transaction,
    tables: Tables,
    w_id: u16,
    d_id: u8,
) -> impl Future<Output = Result<u32, Abort>> {
    async move {
        let next = |district: RowView<'_, District>| district.get(|column| column.next_o_id);
        there(tx.view(tables.district, (w_id, d_id), next).await?)
    }
}

/// Returns the items of the last twenty orders before order `next` of a district, those in several orders as often.
///
/// # Errors
/// The errors of [`Transaction::run`].
pub fn recent_items(
    tx: &mut impl Transaction,
    tables: Tables,
    w_id: u16,
    d_id: u8,
    next: u32,
) -> impl Future<Output = Result<Vec<u32>, Abort>> {
    async move {
        let range = KeyRange::between(&(w_id, d_id, next.saturating_sub(ORDERS)), &(w_id, d_id, next));
        let room = Vec::with_capacity(ORDERS as usize * usize::from(LINES_MAX));
        let collect = |items: &mut Vec<u32>, _, line: OrderLine| {
            items.push(line.i_id);
            ControlFlow::Continue(())
        };
        tx.fold(tables.order_line, range, room, collect).await
    }
}

/// Counts those different items among some of which a warehouse has fewer than `threshold` in stock.
///
/// # Errors
/// The errors of [`Transaction::run`].
pub fn count_low(
    tx: &mut impl Transaction,
    tables: Tables,
    w_id: u16,
    items: &[u32],
    threshold: i16,
) -> impl Future<Output = Result<u32, Abort>> {
    async move {
        let quantity =
            |i_id: &u32| tables.stock.view((w_id, *i_id), |stock| stock.get(|column| column.quantity));
        let (mut low, mut found, mut seen) = (Vec::<u32>::new(), 0, items.iter());
        let judge = |quantity: Option<i16>| {
            found += usize::from(quantity.is_some());
            low.extend(seen.next().filter(|_| quantity.is_some_and(|quantity| quantity < threshold)));
        };
        tx.join_each(items.iter().map(quantity), judge).await?;
        there((found == items.len()).then_some(()))?;
        // Few are low, so only they are looked through for repetitions.
        low.sort_unstable();
        low.dedup();
        Ok(low.len() as u32)
    }
}

/// Counts the different items of a district's last twenty orders of which the warehouse has fewer than `threshold` in
/// stock, in one transaction, as a flow graph shows it.
///
/// # Errors
/// The errors of [`Transaction::run`].
pub fn stock_level(
    tx: &mut impl Transaction,
    tables: Tables,
    w_id: u16,
    d_id: u8,
    threshold: i16,
) -> impl Future<Output = Result<u32, Abort>> {
    async move {
        let next = next_order(tx, tables, w_id, d_id).await?;
        let items = recent_items(tx, tables, w_id, d_id, next).await?;
        count_low(tx, tables, w_id, &items, threshold).await
    }
}
