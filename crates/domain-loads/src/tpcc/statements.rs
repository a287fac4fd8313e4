//! [`Statement`]: what New-Order and Payment do to one row each, and what that replies.
//!
//! Owns: the run of a statement on the tables of a part, as a task. Never: decides which statements a transaction has.
//!
//! A statement is atomic and isolated from others; a transaction is not ("no concurrency control between tasks", *Virtual domains* §7). Each
//! changes a row by the code of the engine's procedures. Replies carry what later statements need, not all that a terminal would display.

use atrapos_storage::FixedStr;
use atrapos_structures::Refused;
use atrapos_workloads::tpcc::parameters::{CustomerBy, PaymentInput};
use atrapos_workloads::tpcc::procedures::statements::{
    ItemSeen, StockTaken, number_order, pay, pay_district, pay_warehouse, take_stock,
};
use atrapos_workloads::tpcc::schema::{
    Cents, Customer, District, History, Item, NewOrder, Order, OrderLine, Stock, Warehouse,
};

use super::tables::{Session, Table, key, name_key};

/// The district of a warehouse.
pub(super) type At = (u16, u8);

/// A statement. Its part is that of the warehouse that comes first.
#[derive(Clone, Debug)]
pub(super) enum Statement {
    SeeItem { w_id: u16, i_id: u32 },
    SeeCustomer { at: At, c_id: u32 },
    SeeWarehouse { w_id: u16 },
    TakeStock { w_id: u16, i_id: u32, quantity: u8, d_id: u8, is_remote: bool },
    NumberOrder { at: At },
    InsertOrder { at: At, o_id: u32, order: Order },
    InsertNewOrder { at: At, o_id: u32 },
    InsertLine { at: At, o_id: u32, number: u8, line: OrderLine },
    PayCustomer(PaymentInput),
    PayWarehouse { w_id: u16, amount: Cents },
    PayDistrict { at: At, amount: Cents },
    InsertHistory { at: At, h_id: u32, row: History },
}

/// The reply to a statement.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    /// The item; `None` if there is none, which rolls the order back.
    Item(Option<ItemSeen>),
    /// The customer's discount.
    Customer(u16),
    /// The tax of the warehouse.
    Tax(u16),
    Stock(StockTaken),
    /// The tax of the district, and the order's number.
    Numbered(u16, u32),
    /// The number of the customer who has paid.
    Paid(u32),
    /// The name of the warehouse that was paid.
    WarehousePaid(FixedStr<10>),
    /// The name of the district that was paid, and the number of the row of history.
    DistrictPaid(FixedStr<10>, u32),
    Inserted,
    /// The row is not there, or its key was taken.
    Wrong(&'static str),
}

const MISSING: Reply = Reply::Wrong("a row that is there was not found");

impl From<Result<bool, Refused>> for Reply {
    fn from(inserted: Result<bool, Refused>) -> Reply {
        match inserted {
            Ok(true) => Reply::Inserted,
            Ok(false) => Reply::Wrong("a new row was said to be there already"),
            Err(_) => Reply::Wrong("a new row was refused"),
        }
    }
}

impl Statement {
    /// The warehouse in whose part the statement runs.
    pub(super) fn warehouse(&self) -> u16 {
        match *self {
            Statement::SeeItem { w_id, .. }
            | Statement::SeeWarehouse { w_id }
            | Statement::TakeStock { w_id, .. }
            | Statement::PayWarehouse { w_id, .. } => w_id,
            Statement::SeeCustomer { at, .. }
            | Statement::NumberOrder { at }
            | Statement::InsertOrder { at, .. }
            | Statement::InsertNewOrder { at, .. }
            | Statement::InsertLine { at, .. }
            | Statement::PayDistrict { at, .. }
            | Statement::InsertHistory { at, .. } => at.0,
            Statement::PayCustomer(PaymentInput { c_w_id, .. }) => c_w_id,
        }
    }

    /// Runs it on the tables of its part.
    pub(super) fn run(self, tables: &mut Session) -> Reply {
        match self {
            Statement::InsertOrder { at: (w_id, d_id), o_id, order } => {
                tables.insert(Table::Order, key(w_id, d_id, o_id, 0), &order).into()
            }
            Statement::InsertNewOrder { at: (w_id, d_id), o_id } => {
                tables.insert(Table::NewOrder, key(w_id, d_id, o_id, 0), &NewOrder {}).into()
            }
            Statement::InsertLine { at: (w_id, d_id), o_id, number, line } => {
                tables.insert(Table::OrderLine, key(w_id, d_id, o_id, number), &line).into()
            }
            Statement::InsertHistory { at: (w_id, d_id), h_id, row } => {
                tables.insert(Table::History, key(w_id, d_id, h_id, 0), &row).into()
            }
            other => other.run_on_row(tables).unwrap_or(MISSING),
        }
    }

    /// Runs a statement that inserts nothing; `None` if its row is not there.
    fn run_on_row(self, tables: &mut Session) -> Option<Reply> {
        match self {
            Statement::SeeItem { w_id, i_id } => {
                let see = |row: &mut atrapos_storage::RowEdit<'_, Item>| {
                    atrapos_storage::RowView::new(row.as_bytes()).ok().map(ItemSeen::of)
                };
                Some(Reply::Item(tables.edit(Table::Item, key(w_id, 0, i_id, 0), see).flatten()))
            }
            Statement::SeeCustomer { at: (w_id, d_id), c_id } => {
                tables.edit::<Customer, _>(Table::Customer, key(w_id, d_id, c_id, 0), |row| {
                    Reply::Customer(row.get(|column| column.discount))
                })
            }
            Statement::SeeWarehouse { w_id } => {
                tables.edit::<Warehouse, _>(Table::Warehouse, key(w_id, 0, 0, 0), |row| {
                    Reply::Tax(row.get(|column| column.tax))
                })
            }
            Statement::TakeStock { w_id, i_id, quantity, d_id, is_remote } => {
                tables.edit::<Stock, _>(Table::Stock, key(w_id, 0, i_id, 0), |row| {
                    Reply::Stock(take_stock(row, quantity, d_id, is_remote))
                })
            }
            Statement::NumberOrder { at: (w_id, d_id) } => {
                tables.edit::<District, _>(Table::District, key(w_id, d_id, 0, 0), |row| {
                    let (tax, o_id) = number_order(row);
                    Reply::Numbered(tax, o_id)
                })
            }
            Statement::PayCustomer(input) => pay_customer(tables, &input),
            Statement::PayWarehouse { w_id, amount } => {
                tables.edit::<Warehouse, _>(Table::Warehouse, key(w_id, 0, 0, 0), |row| {
                    Reply::WarehousePaid(pay_warehouse(row, amount).name)
                })
            }
            Statement::PayDistrict { at: (w_id, d_id), amount } => {
                tables.edit::<District, _>(Table::District, key(w_id, d_id, 0, 0), |row| {
                    let (payee, h_id) = pay_district(row, amount);
                    Reply::DistrictPaid(payee.name, h_id)
                })
            }
            Statement::InsertOrder { .. }
            | Statement::InsertNewOrder { .. }
            | Statement::InsertLine { .. }
            | Statement::InsertHistory { .. } => None,
        }
    }
}

/// Finds the customer of a payment, and records it there.
fn pay_customer(tables: &mut Session, input: &PaymentInput) -> Option<Reply> {
    let PaymentInput { c_w_id, c_d_id, customer, .. } = *input;
    let c_id = match customer {
        CustomerBy::Id(c_id) => c_id,
        CustomerBy::Name(name) => tables.find(Table::CustomerByName, name_key(c_w_id, c_d_id, &name))? as u32,
    };
    tables.edit::<Customer, _>(Table::Customer, key(c_w_id, c_d_id, c_id, 0), |row| {
        std::hint::black_box(pay(row, c_id, input));
        Reply::Paid(c_id)
    })
}
