//! The nine tables of TPC-C, the two indexes, the references, and the boundaries of partitions.
//!
//! Owns: the tables' types. Never: determines their contents, which is the task of the generator.
//!
//! Every key begins with the number of a warehouse, and all tables and indexes are of one family: all rows of a
//! warehouse are on one worker, and move together. That holds for `item`, too, which the specification has once: here
//! every warehouse has its own copy, which no transaction can change ([`Table::READ_ONLY`]).
//!
//! Differences from the specification's layout (clause 1.3), as clause 1.4 allows them:
//! - money is in cents, taxes and discounts in hundredths of a percent; dates are microseconds ([`Moment`]);
//! - `O_CARRIER_ID` and `OL_DELIVERY_D` are 0 where the specification has null;
//! - `S_DIST_01` to `S_DIST_10` are one column of 240 bytes;
//! - `history` has no key there; here it is numbered by district, and a district has the next number (`next_h_id`).

use atrapos::{FixedStr, Handles, Index, IndexRef, Schema, SchemaError, Table, TableRef, row};
use serde::{Deserialize, Serialize};

/// Money in cents.
pub type Cents = i64;

/// A date and time, in microseconds; 0 where there is none.
pub type Moment = u64;

/// Districts of a warehouse.
pub const DISTRICTS: u8 = 10;

/// Bytes of one of a stock's descriptions of a district.
pub const DIST_BYTES: usize = 24;

row! {
    /// A warehouse.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Warehouse {
        /// Its name.
        pub name: FixedStr<10>,
        /// First line of the address.
        pub street_1: FixedStr<20>,
        /// Second line of the address.
        pub street_2: FixedStr<20>,
        /// City.
        pub city: FixedStr<20>,
        /// State, two letters.
        pub state: FixedStr<2>,
        /// Nine digits.
        pub zip: FixedStr<9>,
        /// Sales tax, in hundredths of a percent.
        pub tax: u16,
        /// Sum of the payments to it, in cents.
        pub ytd: Cents,
    }
}

row! {
    /// A district of a warehouse.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct District {
        /// Its name.
        pub name: FixedStr<10>,
        /// First line of the address.
        pub street_1: FixedStr<20>,
        /// Second line of the address.
        pub street_2: FixedStr<20>,
        /// City.
        pub city: FixedStr<20>,
        /// State, two letters.
        pub state: FixedStr<2>,
        /// Nine digits.
        pub zip: FixedStr<9>,
        /// Sales tax, in hundredths of a percent.
        pub tax: u16,
        /// Sum of the payments to it, in cents.
        pub ytd: Cents,
        /// Number of its next order.
        pub next_o_id: u32,
        /// Number of its next row of history.
        pub next_h_id: u32,
    }
}

row! {
    /// A customer of a district.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Customer {
        /// First name.
        pub first: FixedStr<16>,
        /// Middle initials.
        pub middle: FixedStr<2>,
        /// Last name: see [`last_name`](super::generator::last_name).
        pub last: FixedStr<16>,
        /// First line of the address.
        pub street_1: FixedStr<20>,
        /// Second line of the address.
        pub street_2: FixedStr<20>,
        /// City.
        pub city: FixedStr<20>,
        /// State, two letters.
        pub state: FixedStr<2>,
        /// Nine digits.
        pub zip: FixedStr<9>,
        /// Sixteen digits.
        pub phone: FixedStr<16>,
        /// Date since which the customer is registered.
        pub since: Moment,
        /// `GC` for good credit, `BC` for bad.
        pub credit: FixedStr<2>,
        /// Limit of the credit, in cents.
        pub credit_lim: Cents,
        /// Discount, in hundredths of a percent.
        pub discount: u16,
        /// Balance, in cents: the amounts delivered less those paid.
        pub balance: Cents,
        /// Sum of the payments, in cents.
        pub ytd_payment: Cents,
        /// Number of payments.
        pub payment_cnt: u32,
        /// Number of deliveries.
        pub delivery_cnt: u32,
        /// Miscellaneous; of a customer with bad credit the latest payments come first.
        pub data: FixedStr<500>,
    }
}

row! {
    /// A payment.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct History {
        /// The customer's number.
        pub c_id: u32,
        /// The customer's district.
        pub c_d_id: u8,
        /// The customer's warehouse.
        pub c_w_id: u16,
        /// Date of the payment.
        pub date: Moment,
        /// Amount in cents.
        pub amount: Cents,
        /// Names of the warehouse and the district that were paid.
        pub data: FixedStr<24>,
    }
}

row! {
    /// An order that is not delivered yet; all information is in its key.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct NewOrder {}
}

row! {
    /// An order.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Order {
        /// The customer's number.
        pub c_id: u32,
        /// Date of entry.
        pub entry_d: Moment,
        /// The carrier that delivered it, from 1 to 10; 0 before the delivery.
        pub carrier_id: u8,
        /// Number of its lines.
        pub ol_cnt: u8,
        /// True if all lines are supplied by the warehouse at which it was placed.
        pub all_local: bool,
    }
}

row! {
    /// A line of an order.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct OrderLine {
        /// The item.
        pub i_id: u32,
        /// The warehouse that supplies it.
        pub supply_w_id: u16,
        /// Date of the delivery; 0 before it.
        pub delivery_d: Moment,
        /// Quantity ordered.
        pub quantity: u8,
        /// Price of the line, in cents.
        pub amount: u32,
        /// The supplying warehouse's description of the district.
        pub dist_info: [u8; DIST_BYTES],
    }
}

row! {
    /// An item for sale.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Item {
        /// Number of its image.
        pub im_id: u32,
        /// Its name.
        pub name: FixedStr<24>,
        /// Price of one, in cents.
        pub price: u32,
        /// Miscellaneous: see [`is_original`].
        pub data: FixedStr<50>,
    }
}

row! {
    /// A warehouse's stock of an item.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Stock {
        /// Quantity in stock.
        pub quantity: i16,
        /// Descriptions of its ten districts, 24 characters each: `S_DIST_01` to `S_DIST_10`.
        pub dist: [u8; DIST_BYTES * DISTRICTS as usize],
        /// Total quantity ordered.
        pub ytd: u32,
        /// Number of order lines.
        pub order_cnt: u32,
        /// Number of those order lines whose orders were placed at other warehouses.
        pub remote_cnt: u32,
        /// Miscellaneous: see [`is_original`].
        pub data: FixedStr<50>,
    }
}

/// Returns the description of district `d_id`, from 1 to 10, among those of a stock's ten districts.
#[inline]
#[must_use]
pub fn dist_info(dist: &[u8], d_id: u8) -> [u8; DIST_BYTES] {
    let at = usize::from(d_id.clamp(1, DISTRICTS) - 1) * DIST_BYTES;
    dist.get(at..).and_then(|from| from.first_chunk()).copied().unwrap_or_default()
}

/// The mark in the data of original items and stock.
pub const ORIGINAL: &[u8; 8] = b"ORIGINAL";

/// Returns whether miscellaneous data contains `ORIGINAL`.
#[inline]
#[must_use]
pub fn is_original(data: &[u8]) -> bool {
    const LEN: usize = ORIGINAL.len();
    // Wherever the mark is, it has a letter at one of the places that are its length apart.
    (LEN - 1..data.len()).step_by(LEN).any(|at| {
        matches!(data[at], b'O' | b'R' | b'I' | b'G' | b'N' | b'A' | b'L')
            && data[at + 1 - LEN..(at + LEN).min(data.len())].array_windows().any(|part| part == ORIGINAL)
    })
}

/// The family of all tables and indexes.
pub const FAMILY: &str = "warehouse";

/// Declares tables of the family.
macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident: $key:ty => $row:ty, $table:literal, $columns:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;
        impl Table for $name {
            type Key = $key;
            type Row = $row;
            const NAME: &'static str = $table;
            const FAMILY: &'static str = FAMILY;
            const KEY_COLUMNS: &'static [&'static str] = &$columns;
        }
    )*};
}

tables! {
    /// Table `warehouse`, by number.
    Warehouses: u16 => Warehouse, "warehouse", ["w_id"];
    /// Table `district`, by warehouse and number (from 1 to 10).
    Districts: (u16, u8) => District, "district", ["w_id", "d_id"];
    /// Table `customer`, by district and number.
    Customers: (u16, u8, u32) => Customer, "customer", ["w_id", "d_id", "c_id"];
    /// Table `history`, by the district that was paid and number.
    Histories: (u16, u8, u32) => History, "history", ["w_id", "d_id", "h_id"];
    /// Table `new_order`, by district and number of the order.
    NewOrders: (u16, u8, u32) => NewOrder, "new_order", ["w_id", "d_id", "o_id"];
    /// Table `order`, by district and number.
    Orders: (u16, u8, u32) => Order, "order", ["w_id", "d_id", "o_id"];
    /// Table `order_line`, by order and number.
    OrderLines: (u16, u8, u32, u8) => OrderLine, "order_line", ["w_id", "d_id", "o_id", "ol_number"];
    /// Table `stock`, by warehouse and item.
    Stocks: (u16, u32) => Stock, "stock", ["w_id", "i_id"];
}

/// Table `item`, by warehouse and number: each warehouse has a copy of its own.
#[derive(Debug)]
pub struct Items;
impl Table for Items {
    type Key = (u16, u32);
    type Row = Item;
    const NAME: &'static str = "item";
    const FAMILY: &'static str = FAMILY;
    const READ_ONLY: bool = true;
    const KEY_COLUMNS: &'static [&'static str] = &["w_id", "i_id"];
}

/// The index over customers' names: customers with one last name in order of their first names.
#[derive(Debug)]
pub struct CustomersByName;
impl Index for CustomersByName {
    type Table = Customers;
    type Key = (u16, u8, FixedStr<16>, FixedStr<16>, u32);
    const NAME: &'static str = "customer_by_name";
    const FAMILY: &'static str = FAMILY;
    const UNIQUE: bool = true;
    const KEY_COLUMNS: &'static [&'static str] = &["w_id", "d_id", "last", "first", "c_id"];
    const KEY_FROM: Option<&'static [&'static str]> = Some(&["last", "first"]);
    fn key((w_id, d_id, c_id): &(u16, u8, u32), row: &Customer) -> Self::Key {
        (*w_id, *d_id, row.last, row.first, *c_id)
    }
}

/// The index over the customers of orders: a customer's latest order first.
#[derive(Debug)]
pub struct OrdersByCustomer;
impl Index for OrdersByCustomer {
    type Table = Orders;
    /// Warehouse, district, customer, and the order's number subtracted from the largest there is.
    type Key = (u16, u8, u32, u32);
    const NAME: &'static str = "order_by_customer";
    const FAMILY: &'static str = FAMILY;
    const UNIQUE: bool = true;
    const KEY_COLUMNS: &'static [&'static str] = &["w_id", "d_id", "c_id", "latest"];
    const KEY_FROM: Option<&'static [&'static str]> = Some(&["c_id"]);
    fn key((w_id, d_id, o_id): &(u16, u8, u32), row: &Order) -> Self::Key {
        (*w_id, *d_id, row.c_id, u32::MAX - o_id)
    }
}

/// The handles of all tables and indexes in one open database.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each field is named after its table")]
pub struct Tables {
    pub warehouse: TableRef<Warehouses>,
    pub district: TableRef<Districts>,
    pub customer: TableRef<Customers>,
    pub history: TableRef<Histories>,
    pub new_order: TableRef<NewOrders>,
    pub order: TableRef<Orders>,
    pub order_line: TableRef<OrderLines>,
    pub stock: TableRef<Stocks>,
    pub item: TableRef<Items>,
    pub customer_by_name: IndexRef<CustomersByName>,
    pub order_by_customer: IndexRef<OrdersByCustomer>,
}

impl Tables {
    /// Looks up the handles in `db`.
    ///
    /// # Errors
    /// Fails if the database was opened with another schema.
    pub fn of(db: &impl Handles) -> Result<Tables, SchemaError> {
        Ok(Tables {
            warehouse: db.table()?,
            district: db.table()?,
            customer: db.table()?,
            history: db.table()?,
            new_order: db.table()?,
            order: db.table()?,
            order_line: db.table()?,
            stock: db.table()?,
            item: db.table()?,
            customer_by_name: db.index()?,
            order_by_customer: db.index()?,
        })
    }
}

/// Returns the first warehouse of every worker but the first: the numbers from 1 to `warehouses` in equal parts.
fn cuts(warehouses: u16, workers: usize) -> Vec<u16> {
    let cut = |part: usize| 1 + (usize::from(warehouses) * part / workers.max(1)) as u16;
    let mut cuts: Vec<u16> = (1..workers).map(cut).filter(|cut| *cut > 1).collect();
    cuts.dedup();
    cuts
}

/// Returns the schema of a database of `warehouses` warehouses.
#[must_use]
pub fn schema(warehouses: u16) -> Schema {
    // The references are declared for partitioning, and there is nothing to enforce: the transactions insert whole
    // orders, and the auditor checks them.
    Schema::new()
        .table::<Warehouses>()
        .table::<Districts>()
        .table::<Customers>()
        .table::<Histories>()
        .table::<NewOrders>()
        .table::<Orders>()
        .table::<OrderLines>()
        .table::<Stocks>()
        .table::<Items>()
        .index::<CustomersByName>()
        .index::<OrdersByCustomer>()
        .foreign_key_by_prefix::<Districts, Warehouses>(|(w_id, _)| *w_id, false)
        .foreign_key_by_prefix::<Customers, Districts>(|(w_id, d_id, _)| (*w_id, *d_id), false)
        .foreign_key_by_prefix::<Histories, Districts>(|(w_id, d_id, _)| (*w_id, *d_id), false)
        .foreign_key_by_prefix::<NewOrders, Orders>(|key| *key, false)
        .foreign_key_by_index::<OrdersByCustomer, Customers>(
            |(w_id, d_id, _), order| (*w_id, *d_id, order.c_id),
            false,
        )
        .foreign_key_by_prefix::<OrderLines, Orders>(|(w_id, d_id, o_id, _)| (*w_id, *d_id, *o_id), false)
        .foreign_key_by_prefix::<Stocks, Warehouses>(|(w_id, _)| *w_id, false)
        .foreign_key_by_prefix::<Stocks, Items>(|key| *key, false)
        .split_by(FAMILY, move |workers| cuts(warehouses, workers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_even_and_survive_few_warehouses() {
        assert_eq!(cuts(8, 4), [3, 5, 7]);
        assert_eq!(cuts(8, 1), [0_u16; 0]);
        assert_eq!(cuts(2, 4), [2]);
        assert_eq!(cuts(1, 8), [0_u16; 0]);
        assert_eq!(cuts(5, 2), [3]);
    }

    #[test]
    fn originals_are_recognized_wherever_it_says_so() {
        let data = |text: &str| FixedStr::<50>::new(text).expect("short");
        assert!(is_original(data("ORIGINAL").padded()) && is_original(data("xxORIGINALyy").padded()));
        let at_the_end = format!("{}ORIGINAL", "x".repeat(42));
        assert!(is_original(data(&at_the_end).padded()));
        assert!(["original", "ORIGINA", ""].iter().all(|text| !is_original(data(text).padded())));
    }

    #[test]
    fn a_stock_describes_ten_districts() {
        let mut dist = [0; 240];
        dist.chunks_mut(DIST_BYTES).zip(1..).for_each(|(part, d_id)| part.fill(d_id));
        let data = FixedStr::default();
        let stock = Stock { quantity: 1, dist, ytd: 0, order_cnt: 0, remote_cnt: 0, data };
        assert!((1..=DISTRICTS).all(|d_id| dist_info(&stock.dist, d_id) == [d_id; DIST_BYTES]));
    }
}
