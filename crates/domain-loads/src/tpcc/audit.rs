//! The audit of New-Order and Payment without isolation: what must be so because each statement is atomic.
//!
//! Owns: the tally of clients, the sums over the tables of a part, and the comparison of both. Never: runs a transaction.
//!
//! Districts number the orders and rows of history of the clients without gaps, each order has all its rows, and what was paid, ordered
//! and supplied adds up: in every warehouse, every district and every customer's row, and over all stock. What only isolation gives, such as what a
//! transaction sees of two rows, is not looked at.

use atrapos_workloads::tpcc::generator::{PAID, Population};
use atrapos_workloads::tpcc::parameters::{NewOrderInput, PaymentInput};
use atrapos_workloads::tpcc::schema::{
    Cents, Customer, DISTRICTS, District, History, NewOrder, Order, OrderLine, Stock, Warehouse,
};

use super::tables::{Session, Table, key};

/// A finding: where, and what.
pub type Finding = String;

/// What clients have done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Orders placed, payments made, and amounts paid, by district: those of warehouse 1 first.
    orders: Vec<u32>,
    payments: Vec<u32>,
    paid: Vec<Cents>,
    pub(super) rolled_back: u64,
    stock: StockSums,
    /// Replies that were not right, and the last of them.
    wrong: u64,
    last_wrong: Option<&'static str>,
}

/// Sums over all stock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StockSums {
    quantity: u64,
    lines: u64,
    remote_lines: u64,
}

/// Sums over the rows of a part that concern other parts, and the number of its rows that were looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    stock: StockSums,
    customers_paid: Cents,
    customers_payments: u64,
    rows: u64,
}

fn place(w_id: u16, d_id: u8) -> usize {
    (usize::from(w_id) - 1) * usize::from(DISTRICTS) + usize::from(d_id) - 1
}

impl Tally {
    pub(super) fn new(warehouses: u16) -> Tally {
        let districts = usize::from(warehouses) * usize::from(DISTRICTS);
        Tally {
            orders: vec![0; districts],
            payments: vec![0; districts],
            paid: vec![0; districts],
            ..Tally::default()
        }
    }

    /// Notes that an order was placed.
    pub(super) fn placed(&mut self, input: &NewOrderInput) {
        self.orders[place(input.w_id, input.d_id)] += 1;
        for line in &input.lines {
            self.stock.quantity += u64::from(line.quantity);
            self.stock.lines += 1;
            self.stock.remote_lines += u64::from(line.supply_w_id != input.w_id);
        }
    }

    /// Notes that a payment was made.
    pub(super) fn paid(&mut self, input: &PaymentInput) {
        let place = place(input.w_id, input.d_id);
        self.payments[place] += 1;
        self.paid[place] += input.amount;
    }

    #[cold]
    pub(super) fn wrong(&mut self, what: &'static str) {
        self.wrong += 1;
        self.last_wrong = Some(what);
    }

    /// Adds what another thread has done.
    pub(super) fn add(&mut self, other: &Tally) {
        let sum =
            |all: &mut [u32], more: &[u32]| all.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        sum(&mut self.orders, &other.orders);
        sum(&mut self.payments, &other.payments);
        self.paid.iter_mut().zip(&other.paid).for_each(|(sum, more)| *sum += more);
        self.rolled_back += other.rolled_back;
        self.stock.quantity += other.stock.quantity;
        self.stock.lines += other.stock.lines;
        self.stock.remote_lines += other.stock.remote_lines;
        self.wrong += other.wrong;
        self.last_wrong = other.last_wrong.or(self.last_wrong);
    }

    /// Orders that were placed.
    pub(super) fn new_orders(&self) -> u64 {
        self.orders.iter().copied().map(u64::from).sum()
    }

    /// Payments that were made.
    pub(super) fn all_payments(&self) -> u64 {
        self.payments.iter().copied().map(u64::from).sum()
    }

    /// Compares sums over all parts with what clients have done; returns the number of rows that were looked at.
    pub(super) fn conclude(&self, population: &Population, parts: &[Sums]) -> Result<u64, Finding> {
        if let Some(what) = self.last_wrong {
            return Err(format!("{} statements had a wrong reply; of the last: {what}", self.wrong));
        }
        let mut all = Sums::default();
        parts.iter().for_each(|part| all.add(part));
        compare("all stock: quantity, lines, remote lines", all.stock, self.stock)?;
        let scale = population.scale();
        let customers = u64::from(scale.customers) * self.orders.len() as u64;
        let paid = self.paid.iter().sum::<Cents>() + customers as Cents * PAID;
        compare("all customers: amount paid", all.customers_paid, paid)?;
        compare("all customers: payments", all.customers_payments, self.all_payments() + customers)?;
        Ok(all.rows)
    }
}

fn compare<T: PartialEq + std::fmt::Debug>(what: &str, is: T, should_be: T) -> Result<(), Finding> {
    if is == should_be { Ok(()) } else { Err(format!("{what}: {is:?}, but it should be {should_be:?}")) }
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        self.stock.quantity += other.stock.quantity;
        self.stock.lines += other.stock.lines;
        self.stock.remote_lines += other.stock.remote_lines;
        self.customers_paid += other.customers_paid;
        self.customers_payments += other.customers_payments;
        self.rows += other.rows;
    }
}

/// An audit of the warehouses of a part.
struct Inspection<'a> {
    tables: &'a mut Session,
    population: &'a Population,
    tally: &'a Tally,
    sums: Sums,
}

/// Looks at the rows of these warehouses.
pub(super) fn inspect(
    tables: &mut Session,
    population: &Population,
    warehouses: &[u16],
    tally: &Tally,
) -> Result<Sums, Finding> {
    let mut inspection = Inspection { tables, population, tally, sums: Sums::default() };
    warehouses.iter().try_for_each(|w_id| inspection.warehouse(*w_id))?;
    Ok(inspection.sums)
}

impl Inspection<'_> {
    /// Looks at a row.
    fn row<R: atrapos_storage::Row>(&mut self, table: Table, key: u64, what: &str) -> Result<R, Finding> {
        self.sums.rows += 1;
        let row = self.tables.edit(table, key, |row| row.row());
        row.ok_or_else(|| format!("{what}: not there"))
    }

    fn warehouse(&mut self, w_id: u16) -> Result<(), Finding> {
        let what = format!("warehouse {w_id}");
        let row: Warehouse = self.row(Table::Warehouse, key(w_id, 0, 0, 0), &what)?;
        let of_it = (1..=DISTRICTS).map(|d_id| self.tally.paid[place(w_id, d_id)]);
        compare(
            &format!("{what}: amount paid"),
            row.ytd,
            self.population.scale().warehouse_ytd() + of_it.sum::<Cents>(),
        )?;
        for i_id in 1..=self.population.scale().items {
            let stock: Stock =
                self.row(Table::Stock, key(w_id, 0, i_id, 0), &format!("{what}: stock {i_id}"))?;
            self.sums.stock.quantity += u64::from(stock.ytd);
            self.sums.stock.lines += u64::from(stock.order_cnt);
            self.sums.stock.remote_lines += u64::from(stock.remote_cnt);
        }
        (1..=DISTRICTS).try_for_each(|d_id| self.district(w_id, d_id))
    }

    fn district(&mut self, w_id: u16, d_id: u8) -> Result<(), Finding> {
        let (at, what) = (place(w_id, d_id), format!("district {w_id}/{d_id}"));
        let scale = self.population.scale();
        let row: District = self.row(Table::District, key(w_id, d_id, 0, 0), &what)?;
        let first = scale.customers + 1;
        compare(&format!("{what}: next order"), row.next_o_id, first + self.tally.orders[at])?;
        compare(&format!("{what}: next row of history"), row.next_h_id, first + self.tally.payments[at])?;
        let paid = scale.district_ytd() + self.tally.paid[at];
        compare(&format!("{what}: amount paid"), row.ytd, paid)?;
        for c_id in 1..=scale.customers {
            let what = format!("{what}: customer {c_id}");
            let customer: Customer = self.row(Table::Customer, key(w_id, d_id, c_id, 0), &what)?;
            compare(&format!("{what}: balance"), customer.balance, -customer.ytd_payment)?;
            self.sums.customers_paid += customer.ytd_payment;
            self.sums.customers_payments += u64::from(customer.payment_cnt);
        }
        let mut in_history = 0;
        for h_id in 1..row.next_h_id {
            let what = format!("{what}: history {h_id}");
            in_history += self.row::<History>(Table::History, key(w_id, d_id, h_id, 0), &what)?.amount;
        }
        compare(&format!("{what}: amount in history"), in_history, paid)?;
        (1..row.next_o_id).try_for_each(|o_id| self.order(w_id, d_id, o_id))
    }

    fn order(&mut self, w_id: u16, d_id: u8, o_id: u32) -> Result<(), Finding> {
        let (of_order, what) = (key(w_id, d_id, o_id, 0), format!("order {w_id}/{d_id}/{o_id}"));
        let order: Order = self.row(Table::Order, of_order, &what)?;
        if order.carrier_id == 0 {
            self.row::<NewOrder>(Table::NewOrder, of_order, &format!("{what}: row of new_order"))?;
        }
        let mut all_local = true;
        for number in 1..=order.ol_cnt {
            let what = format!("{what}: line {number}");
            let line: OrderLine = self.row(Table::OrderLine, key(w_id, d_id, o_id, number), &what)?;
            all_local &= line.supply_w_id == w_id;
        }
        compare(&format!("{what}: all lines local"), all_local, order.all_local)
    }
}
