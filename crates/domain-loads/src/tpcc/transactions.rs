//! [`Driver`]: the transactions of one thread, several at a time, made of statements.
//!
//! Owns: the order of the statements of a transaction, and the tally. Never: knows whether a statement is delegated.
//!
//! A transaction has three phases at most; the statements of a phase need nothing of each other. Those of all transactions of a group are
//! submitted together, so that tasks for one domain travel together.

use std::hint::black_box;

use arrayvec::ArrayVec;
use atrapos_storage::FixedStr;
use atrapos_workloads::tpcc::generator::{LINES_MAX, LOADED_AT};
use atrapos_workloads::tpcc::parameters::{Class, NewOrderInput, Parameters, PaymentInput};
use atrapos_workloads::tpcc::procedures::statements::{
    ItemSeen, StockTaken, history_data, place_line, total,
};
use atrapos_workloads::tpcc::schema::{Cents, History, Order};

use super::audit::Tally;
use super::statements::{Reply, Statement};
use crate::error::LoadError;

/// The place of a statement: its transaction in the group, and its number there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    transaction: u16,
    slot: u8,
}

/// The way in which statements reach their tables.
pub(super) trait Reach {
    /// Submits a statement.
    fn submit(&mut self, tag: Tag, statement: Statement) -> Result<(), LoadError>;

    /// Waits for every statement, and gives the replies that have not been given yet to `take`.
    fn finish(&mut self, take: &mut dyn FnMut(Tag, Reply)) -> Result<(), LoadError>;
}

const PHASES: usize = 3;

/// Something for each line of an order.
type Lines<T> = ArrayVec<T, { LINES_MAX as usize }>;

/// A New-Order under way.
struct Placing {
    input: NewOrderInput,
    items: [Option<ItemSeen>; LINES_MAX as usize],
    stocks: [Option<StockTaken>; LINES_MAX as usize],
    discount: u16,
    w_tax: u16,
    d_tax: u16,
    o_id: u32,
    is_rolled_back: bool,
}

/// A Payment under way.
struct Paying {
    input: PaymentInput,
    c_id: u32,
    warehouse: FixedStr<10>,
    district: FixedStr<10>,
    h_id: u32,
}

enum Running {
    Order(Box<Placing>),
    Payment(Paying),
}

/// Slots of the statements of a transaction that are not one for each line.
const CUSTOMER: u8 = LINES_MAX;
const WAREHOUSE: u8 = LINES_MAX + 1;
const DISTRICT: u8 = LINES_MAX + 2;

impl Placing {
    fn new(input: NewOrderInput) -> Placing {
        Placing {
            input,
            items: [None; LINES_MAX as usize],
            stocks: [None; LINES_MAX as usize],
            discount: 0,
            w_tax: 0,
            d_tax: 0,
            o_id: 0,
            is_rolled_back: false,
        }
    }

    /// Names the statements of a phase. Items come first, so that an order that is rolled back has changed nothing.
    fn submit(
        &mut self,
        phase: usize,
        submit: &mut dyn FnMut(u8, Statement) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        let NewOrderInput { w_id, d_id, c_id, ref lines, .. } = self.input;
        let at = (w_id, d_id);
        match phase {
            0 => {
                for (slot, line) in (0..).zip(lines) {
                    submit(slot, Statement::SeeItem { w_id, i_id: line.i_id })?;
                }
                submit(CUSTOMER, Statement::SeeCustomer { at, c_id })?;
                submit(WAREHOUSE, Statement::SeeWarehouse { w_id })
            }
            _ if self.is_rolled_back => Ok(()),
            1 => {
                for (slot, line) in (0..).zip(lines) {
                    let (w_id, is_remote) = (line.supply_w_id, line.supply_w_id != w_id);
                    let (i_id, quantity) = (line.i_id, line.quantity);
                    submit(slot, Statement::TakeStock { w_id, i_id, quantity, d_id, is_remote })?;
                }
                submit(DISTRICT, Statement::NumberOrder { at })
            }
            _ => self.insert(submit),
        }
    }

    /// The last phase: the order, and its lines.
    fn insert(
        &self,
        submit: &mut dyn FnMut(u8, Statement) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        let Placing { input, items, stocks, o_id, .. } = self;
        let NewOrderInput { w_id, d_id, c_id, ref lines, entry_d } = *input;
        let (at, o_id) = ((w_id, d_id), *o_id);
        let all_local = lines.iter().all(|line| line.supply_w_id == w_id);
        let order = Order { c_id, entry_d, carrier_id: 0, ol_cnt: lines.len() as u8, all_local };
        submit(0, Statement::InsertOrder { at, o_id, order })?;
        submit(0, Statement::InsertNewOrder { at, o_id })?;
        let (mut sum, mut placed) = (0, Lines::new());
        for (number, ((line, item), stock)) in (1..).zip(lines.iter().zip(items).zip(stocks)) {
            // Missing is what got a wrong reply, which the tally has.
            let (Some(item), Some(stock)) = (item, stock) else { continue };
            let (seen, row) = place_line(line, item, stock);
            sum += Cents::from(seen.amount);
            placed.push(seen);
            submit(0, Statement::InsertLine { at, o_id, number, line: row })?;
        }
        black_box((total(sum, self.discount, self.w_tax, self.d_tax), placed));
        Ok(())
    }

    fn take(&mut self, slot: u8, reply: Reply) {
        match reply {
            Reply::Item(Some(item)) => self.items[usize::from(slot)] = Some(item),
            Reply::Item(None) => self.is_rolled_back = true,
            Reply::Stock(stock) => self.stocks[usize::from(slot)] = Some(stock),
            Reply::Customer(discount) => self.discount = discount,
            Reply::Tax(tax) => self.w_tax = tax,
            Reply::Numbered(tax, o_id) => (self.d_tax, self.o_id) = (tax, o_id),
            _ => {}
        }
    }
}

impl Paying {
    fn submit(
        &self,
        phase: usize,
        submit: &mut dyn FnMut(u8, Statement) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        let PaymentInput { w_id, d_id, c_w_id, c_d_id, amount, date, .. } = self.input;
        let at = (w_id, d_id);
        match phase {
            0 => {
                submit(CUSTOMER, Statement::PayCustomer(self.input))?;
                submit(WAREHOUSE, Statement::PayWarehouse { w_id, amount })?;
                submit(DISTRICT, Statement::PayDistrict { at, amount })
            }
            1 => {
                let data = history_data(&self.warehouse, &self.district);
                let row = History { c_id: self.c_id, c_d_id, c_w_id, date, amount, data };
                submit(0, Statement::InsertHistory { at, h_id: self.h_id, row })
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self, reply: &Reply) {
        match *reply {
            Reply::Paid(c_id) => self.c_id = c_id,
            Reply::WarehousePaid(name) => self.warehouse = name,
            Reply::DistrictPaid(name, h_id) => (self.district, self.h_id) = (name, h_id),
            _ => {}
        }
    }
}

/// Draws and runs the transactions of one thread.
pub(super) struct Driver {
    parameters: Parameters,
    /// Transactions that are run together.
    group: usize,
    running: Vec<Running>,
    /// Transactions so far, which date them.
    number: u64,
    pub(super) tally: Tally,
}

impl Driver {
    pub(super) fn new(parameters: Parameters, group: usize, warehouses: u16) -> Driver {
        Driver { parameters, group, running: Vec::new(), number: 0, tally: Tally::new(warehouses) }
    }

    /// Runs so many transactions to their ends.
    pub(super) fn run(&mut self, transactions: u64, reach: &mut dyn Reach) -> Result<(), LoadError> {
        let mut left = transactions as usize;
        while left > 0 {
            let group = left.min(self.group);
            self.draw(group);
            for phase in 0..PHASES {
                self.submit(phase, reach)?;
                reach.finish(&mut |tag, reply| take(&mut self.running, &mut self.tally, tag, reply))?;
            }
            self.note();
            left -= group;
        }
        Ok(())
    }

    fn draw(&mut self, group: usize) {
        self.running.clear();
        for _ in 0..group {
            self.number += 1;
            let (w_id, date) = (self.parameters.warehouse(), LOADED_AT + self.number);
            self.running.push(match self.parameters.class() {
                Class::Payment => Running::Payment(Paying {
                    input: self.parameters.payment(w_id, date),
                    c_id: 0,
                    warehouse: FixedStr::default(),
                    district: FixedStr::default(),
                    h_id: 0,
                }),
                // The mix has no other class.
                _ => Running::Order(Box::new(Placing::new(self.parameters.new_order(w_id, date)))),
            });
        }
    }

    fn submit(&mut self, phase: usize, reach: &mut dyn Reach) -> Result<(), LoadError> {
        for (transaction, running) in (0..).zip(&mut self.running) {
            let mut submit = |slot, statement| reach.submit(Tag { transaction, slot }, statement);
            match running {
                Running::Order(placing) => placing.submit(phase, &mut submit)?,
                Running::Payment(paying) => paying.submit(phase, &mut submit)?,
            }
        }
        Ok(())
    }

    /// Adds the transactions that have ended to the tally.
    fn note(&mut self) {
        for running in &self.running {
            match running {
                Running::Order(placing) if placing.is_rolled_back => self.tally.rolled_back += 1,
                Running::Order(placing) => self.tally.placed(&placing.input),
                Running::Payment(paying) => self.tally.paid(&paying.input),
            }
        }
    }
}

fn take(running: &mut [Running], tally: &mut Tally, tag: Tag, reply: Reply) {
    if let Reply::Wrong(what) = reply {
        tally.wrong(what);
    }
    match &mut running[usize::from(tag.transaction)] {
        Running::Order(placing) => placing.take(tag.slot, reply),
        Running::Payment(paying) => paying.take(&reply),
    }
}
