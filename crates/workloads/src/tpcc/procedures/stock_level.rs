//! Stock-Level (clause 2.8).

use std::ops::ControlFlow;

use atrapos::{Abort, KeyRange, Tx};

use super::super::generator::LINES_MAX;
use super::super::schema::Tables;
use super::there;

/// Orders that are looked at.
const ORDERS: u32 = 20;

/// How many different items of a district's last twenty orders the warehouse has fewer than `threshold` of.
///
/// # Errors
/// As [`Tx::run`].
pub async fn stock_level(
    tx: &mut Tx<'_>,
    tables: Tables,
    w_id: u16,
    d_id: u8,
    threshold: i16,
) -> Result<u32, Abort> {
    let next = there(tx.read(tables.district, (w_id, d_id), |district| district.next_o_id).await?)?;
    let range = KeyRange::between(&(w_id, d_id, next.saturating_sub(ORDERS)), &(w_id, d_id, next));
    let room = Vec::with_capacity(ORDERS as usize * usize::from(LINES_MAX));
    let collect = |items: &mut Vec<u32>, _, line: super::super::schema::OrderLine| {
        items.push(line.i_id);
        ControlFlow::Continue(())
    };
    let mut items = tx.fold(tables.order_line, range, room, collect).await?;
    items.sort_unstable();
    items.dedup();
    let quantities = items.into_iter().map(|i_id| tables.stock.read((w_id, i_id), |stock| stock.quantity));
    let quantities = tx.join_all(quantities).await?;
    let mut low = 0;
    for quantity in quantities {
        low += u32::from(there(quantity)? < threshold);
    }
    Ok(low)
}
