//! Stock-Level (clause 2.8).
//!
//! The specification requires only that it reads committed data (clause 2.8.2.3). So its clients run it as three
//! transactions, one per statement: a single one, which would keep the district locked while it waits for stock, would
//! block orders, which have locked the stock and request the district.

use std::future::Future;
use std::ops::ControlFlow;

use arrayvec::ArrayVec;
use atrapos::{Abort, KeyRange, RowView, Transaction};

use super::super::generator::LINES_MAX;
use super::super::schema::{District, OrderLine, Tables};
use super::there;

/// Number of orders that are examined.
pub const ORDERS: u32 = 20;

/// Items that are looked at in one phase: as many as look-ups are made together.
pub const TOGETHER: usize = 16;

/// The items of their lines, with repetitions.
pub type RecentOrders = ArrayVec<u32, { ORDERS as usize * LINES_MAX as usize }>;

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
) -> impl Future<Output = Result<RecentOrders, Abort>> {
    async move {
        let range = KeyRange::between(&(w_id, d_id, next.saturating_sub(ORDERS)), &(w_id, d_id, next));
        let collect = |items: &mut RecentOrders, _, line: OrderLine| {
            // No order has more lines than there is room for.
            let _ = items.try_push(line.i_id);
            ControlFlow::Continue(())
        };
        tx.fold(tables.order_line, range, RecentOrders::new(), collect).await
    }
}

/// Returns the different ones among some items, sorted.
#[must_use]
pub fn distinct(items: &RecentOrders) -> RecentOrders {
    let mut distinct = items.clone();
    // Sorting by a closure is compiled here. Sorting numbers as they are is linked from the first crate that does so, which is one at level 0
    // and takes eight times as many instructions.
    distinct.sort_unstable_by_key(|item| *item);
    let mut last = None;
    distinct.retain(|item| last.replace(*item) != Some(*item));
    distinct
}

/// Counts those different items among some of which a warehouse has fewer than `threshold` in stock.
///
/// # Errors
/// The errors of [`Transaction::run`].
pub fn count_low(
    tx: &mut impl Transaction,
    tables: Tables,
    w_id: u16,
    items: &RecentOrders,
    threshold: i16,
) -> impl Future<Output = Result<u32, Abort>> {
    async move {
        // In the order of their keys, so that phases lock them in the order of all others.
        let mut low = 0;
        for items in distinct(items).chunks(TOGETHER) {
            let quantity =
                |i_id: &u32| tables.stock.view((w_id, *i_id), |stock| stock.get(|column| column.quantity));
            let mut found = 0;
            let judge = |quantity: Option<i16>| {
                found += usize::from(quantity.is_some());
                low += u32::from(quantity.is_some_and(|quantity| quantity < threshold));
            };
            tx.join_each(items.iter().map(quantity), judge).await?;
            there((found == items.len()).then_some(()))?;
        }
        Ok(low)
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_of_any_length_are_sorted_and_each_is_there_once() {
        let numbers = || (0..300_u32).map(|at| at.wrapping_mul(2_654_435_761));
        for bits in [0, 1, 5, 9, 10, 18, 19, 27, 28, 32] {
            let of_length = numbers().map(|number| (u64::from(number) & ((1 << bits) - 1)) as u32);
            let items: RecentOrders = of_length.collect();
            let expected: BTreeSet<u32> = items.iter().copied().collect();
            assert_eq!(distinct(&items).to_vec(), Vec::from_iter(expected), "numbers of {bits} bits");
        }
        assert!(distinct(&RecentOrders::new()).is_empty());
    }
}
