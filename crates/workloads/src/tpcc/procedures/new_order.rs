//! New-Order (clause 2.4).

use std::future::Future;

use arrayvec::ArrayVec;
use atrapos::{Abort, FixedStr, RowEdit, RowView, Transaction};
use serde::{Deserialize, Serialize};

use super::super::generator::LINES_MAX;
use super::super::parameters::{LineInput, NewOrderInput};
use super::super::schema::{
    Cents, Customer, DIST_BYTES, District, Item, NewOrder, Order, OrderLine, Stock, Tables, dist_info,
    is_original,
};
use super::there;

/// Detail of the abort by which New-Order rolls back: the last item of the order does not exist.
pub const UNUSED_ITEM: &str = "the order names an item that there is not";

/// A line of an order that was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinePlaced {
    /// The item's name.
    pub name: FixedStr<24>,
    /// Quantity left in stock.
    pub stock_quantity: i16,
    /// `B` when both item and stock are original, otherwise `G`.
    pub brand_generic: u8,
    /// Price of one, in cents.
    pub price: u32,
    /// Price of the line, in cents.
    pub amount: u32,
}

/// An order that was placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderPlaced {
    /// The order's number.
    pub o_id: u32,
    /// The customer's last name.
    pub last: FixedStr<16>,
    /// The customer's credit.
    pub credit: FixedStr<2>,
    /// The customer's discount, in hundredths of a percent.
    pub discount: u16,
    /// The warehouse's tax, in hundredths of a percent.
    pub w_tax: u16,
    /// The district's tax, in hundredths of a percent.
    pub d_tax: u16,
    /// Total of the order, in cents, with discount and taxes, rounded.
    pub total: Cents,
    /// Its lines.
    pub lines: Lines<LinePlaced>,
}

/// Something for each line of an order.
type Lines<T> = ArrayVec<T, { LINES_MAX as usize }>;

/// The columns of an item that an order needs.
#[derive(Clone, Copy, Debug)]
pub struct ItemSeen {
    name: FixedStr<24>,
    price: u32,
    is_original: bool,
}

impl ItemSeen {
    /// Reads them.
    #[must_use]
    pub fn of(item: RowView<'_, Item>) -> ItemSeen {
        ItemSeen {
            name: item.get(|column| column.name),
            price: item.get(|column| column.price),
            is_original: is_original(item.bytes(|column| column.data)),
        }
    }
}

/// The columns of a stock that an order needs.
#[derive(Clone, Copy, Debug)]
pub struct StockTaken {
    quantity: i16,
    is_original: bool,
    dist_info: [u8; DIST_BYTES],
}

/// Takes `quantity` from a stock; 91 is added to one that would fall below ten.
#[inline]
pub fn take_stock(stock: &mut RowEdit<'_, Stock>, quantity: u8, d_id: u8, is_remote: bool) -> StockTaken {
    let take = |before| {
        let left = before - i16::from(quantity);
        if left >= 10 { left } else { left + 91 }
    };
    let left = stock.change(|column| column.quantity, take);
    stock.change(|column| column.ytd, |ytd| ytd + u32::from(quantity));
    stock.change(|column| column.order_cnt, |count| count + 1);
    stock.change(|column| column.remote_cnt, |count| count + u32::from(is_remote));
    StockTaken {
        quantity: left,
        is_original: is_original(stock.bytes(|column| column.data)),
        dist_info: dist_info(stock.bytes(|column| column.dist), d_id),
    }
}

/// Returns what the customer sees of a line, and its row.
#[must_use]
pub fn place_line(line: &LineInput, item: &ItemSeen, stock: &StockTaken) -> (LinePlaced, OrderLine) {
    let amount = u32::from(line.quantity) * item.price;
    let placed = LinePlaced {
        name: item.name,
        stock_quantity: stock.quantity,
        brand_generic: if item.is_original && stock.is_original { b'B' } else { b'G' },
        price: item.price,
        amount,
    };
    let row = OrderLine {
        i_id: line.i_id,
        supply_w_id: line.supply_w_id,
        delivery_d: 0,
        quantity: line.quantity,
        amount,
        dist_info: stock.dist_info,
    };
    (placed, row)
}

/// Takes the number of a district's next order; returns the district's tax and that number.
#[inline]
pub fn number_order(district: &mut RowEdit<'_, District>) -> (u16, u32) {
    let next = district.change(|column| column.next_o_id, |next| next + 1);
    (district.get(|column| column.tax), next - 1)
}

/// Returns the total of lines with discount and taxes, rounded to cents.
#[must_use]
pub fn total(sum: Cents, discount: u16, w_tax: u16, d_tax: u16) -> Cents {
    const ONE: i128 = 10_000;
    let taxed = ONE + i128::from(w_tax) + i128::from(d_tax);
    let exact = i128::from(sum) * (ONE - i128::from(discount)) * taxed;
    ((exact + ONE * ONE / 2) / (ONE * ONE)) as Cents
}

/// Places an order.
///
/// The items are read first, so that an order with an unused item is rolled back before any change; then all stock is
/// taken in one phase, on all warehouses; then the rows of the home warehouse are changed.
///
/// # Errors
/// Fails like [`Transaction::run`]; also with reason [`AbortReason::User`](atrapos::AbortReason::User) and detail
/// [`UNUSED_ITEM`] if an item does not exist.
pub fn new_order(
    tx: &mut impl Transaction,
    tables: Tables,
    input: &NewOrderInput,
) -> impl Future<Output = Result<OrderPlaced, Abort>> {
    async move {
        let NewOrderInput { w_id, d_id, c_id, ref lines, entry_d } = *input;
        let mut items: Lines<ItemSeen> = ArrayVec::new();
        let see_items = lines.iter().map(|line| tables.item.view((w_id, line.i_id), ItemSeen::of));
        tx.join_each(see_items, |item| items.extend(item)).await?;
        if items.len() < lines.len() {
            return Err(Abort::user(UNUSED_ITEM));
        }
        let take_stock = |line: &LineInput| {
            let LineInput { i_id, supply_w_id, quantity } = *line;
            let is_remote = supply_w_id != w_id;
            tables.stock.edit((supply_w_id, i_id), move |stock| take_stock(stock, quantity, d_id, is_remote))
        };
        let mut stocks: Lines<StockTaken> = ArrayVec::new();
        tx.join_each(lines.iter().map(take_stock), |stock| stocks.extend(stock)).await?;
        if stocks.len() < lines.len() {
            return there(None);
        }
        let see = |customer: RowView<'_, Customer>| {
            let credit = customer.get(|column| column.credit);
            (customer.get(|column| column.discount), customer.get(|column| column.last), credit)
        };
        // The customer comes before the rows that many transactions need, since a payment from elsewhere may have it
        // locked.
        let customer = tx.view(tables.customer, (w_id, d_id, c_id), see).await?;
        let (w_tax, numbered) = tx
            .join((
                tables.warehouse.view(w_id, |warehouse| warehouse.get(|column| column.tax)),
                tables.district.edit((w_id, d_id), number_order),
            ))
            .await?;
        let (w_tax, (d_tax, o_id), (discount, last, credit)) =
            (there(w_tax)?, there(numbered)?, there(customer)?);
        let all_local = lines.iter().all(|line| line.supply_w_id == w_id);
        let order = Order { c_id, entry_d, carrier_id: 0, ol_cnt: lines.len() as u8, all_local };
        let key = (w_id, d_id, o_id);
        tx.join((tables.order.insert(key, order), tables.new_order.insert(key, NewOrder {}))).await?;
        let mut placed =
            OrderPlaced { o_id, last, credit, discount, w_tax, d_tax, total: 0, lines: ArrayVec::new() };
        let mut sum = 0;
        let placed_lines =
            (1..).zip(lines.iter().zip(&items).zip(&stocks)).map(|(number, ((line, item), stock))| {
                let (seen, row) = place_line(line, item, stock);
                sum += Cents::from(seen.amount);
                placed.lines.push(seen);
                tables.order_line.insert((w_id, d_id, o_id, number), row)
            });
        tx.join_each(placed_lines, drop).await?;
        placed.total = total(sum, discount, w_tax, d_tax);
        Ok(placed)
    }
}

#[cfg(test)]
mod tests {
    use atrapos::Row;

    use super::*;

    #[test]
    fn stock_is_filled_up_before_it_runs_out() {
        let stock = |quantity| Stock {
            quantity,
            dist: [b'x'; 240],
            ytd: 5,
            order_cnt: 1,
            remote_cnt: 0,
            data: FixedStr::new("an ORIGINAL one").expect("short"),
        };
        for (before, quantity, after) in
            [(20, 10, 10), (19, 10, 100), (100, 1, 99), (10, 1, 100), (10, 10, 91)]
        {
            let mut bytes = Vec::new();
            stock(before).encode(&mut bytes);
            let mut edit = RowEdit::new(&mut bytes).expect("it was just encoded");
            let taken = take_stock(&mut edit, quantity, 3, true);
            let row = edit.row();
            assert_eq!((row.quantity, taken.quantity), (after, after));
            assert_eq!((row.ytd, row.order_cnt, row.remote_cnt), (5 + u32::from(quantity), 2, 1));
            assert!(taken.is_original && taken.dist_info == [b'x'; DIST_BYTES]);
        }
    }

    #[test]
    fn totals_are_exact_and_rounded_once() {
        assert_eq!(total(10_000, 0, 0, 0), 10_000);
        assert_eq!(total(10_000, 5_000, 2_000, 2_000), 7_000);
        // 3.33 at 12.34% discount and taxes of 1.01% and 7.77%.
        assert_eq!(total(333, 1_234, 101, 777), (3.33_f64 * 0.8766 * 1.0878 * 100.0).round() as Cents);
        assert_eq!(total(1, 5_000, 0, 0), 1, "half a cent is rounded up");
    }
}
