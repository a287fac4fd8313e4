//! Transactions of the workloads on bare trees, without an engine: what is left when routing, isolation, undo, redo and sessions
//! are taken away. A lower bound of what an engine on these trees can need.
//!
//! `bare_trees <class> time [seconds] [rounds]`: transactions per second of two pinned threads, each with trees of its own.
//! `bare_trees <class> count <transactions>`: one thread, for counting instructions under callgrind, with the sizes of
//! `crates/workloads/examples/instructions.rs`.
//!
//! The classes are `get-subscriber-data`, whose keys are looked up sixteen at a time (`time`) or one by one (`count`);
//! `update-subscriber-data`; and `new-order`, whose items, stocks and customer are looked up together. Inputs are drawn and rows
//! are read, changed in place and made by the code of the workloads. New-Order is local and rolls nothing back.

#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a program says what it measures and what is wrong"
)]

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use atrapos::{Index as _, Key as _, KeyBuf, Row, RowEdit, RowView};
use atrapos_runtime::affinity::pin_current_thread;
use atrapos_runtime::memory::{HugeChunks, MemoryOptions, PreparedChunks};
use atrapos_storage::{Position, Probe, Tree, TreeConfig, locate_batch};
use atrapos_workloads::tatp::parameters::{Class, Mix, Parameters};
use atrapos_workloads::tatp::schema::{SpecialFacility, Subscriber};
use atrapos_workloads::tatp::{SUBSCRIBERS_DEFAULT, Tatp, generator};
use atrapos_workloads::tpcc::generator::{LINES_MAX, LOADED_AT, Population, Scale};
use atrapos_workloads::tpcc::parameters::{self, NewOrderInput, Remote};
use atrapos_workloads::tpcc::procedures::statements::{
    ItemSeen, StockTaken, number_order, place_line, take_stock, total,
};
use atrapos_workloads::tpcc::procedures::{LinePlaced, OrderPlaced};
use atrapos_workloads::tpcc::schema::{
    Customer, DISTRICTS, District, Item, NewOrder, Order, OrderLine, OrdersByCustomer, Stock, Warehouse,
};
use atrapos_workloads::{KeyChoice, KeySet, Random};

type Error = Box<dyn std::error::Error>;

/// Seed of all data and inputs.
const SEED: u64 = 42;
/// Transactions between two looks at the clock.
const BETWEEN_LOOKS: u64 = 64;
/// Lookups that are made together.
const TOGETHER: usize = 16;

/// Memory in huge pages, like that of an engine.
fn memory() -> Arc<dyn atrapos_storage::Memory> {
    let chunks = HugeChunks::new(MemoryOptions { huge_pages: true, bind_to_node: false });
    Arc::new(atrapos::TreeMemory::new(Arc::new(PreparedChunks::new(chunks)), None))
}

fn tree<R: Row>() -> Tree {
    Tree::new(TreeConfig::for_rows_of(R::FIXED_BYTES), memory())
}

/// Inserts a row, encoded in `scratch`.
#[inline]
fn insert<R: Row>(tree: &mut Tree, key: &[u8], row: &R, scratch: &mut Vec<u8>) -> Result<(), Error> {
    scratch.clear();
    row.encode(scratch);
    Ok(tree.insert(key, scratch, 0)?)
}

/// The transactions of a thread.
trait Bare: Send {
    /// Runs some transactions and returns their number.
    fn run_some(&mut self) -> Result<u64, Error>;
}

/// Subscribers and their facilities, in trees.
struct Subscribers {
    subscribers: Tree,
    facilities: Tree,
    parameters: Parameters,
    class: Class,
    /// Number of keys that are looked up together.
    together: usize,
}

impl Subscribers {
    /// The subscribers of one of `of` threads.
    fn new(
        subscribers: u64,
        class: Class,
        (thread, of): (u64, u64),
        together: usize,
    ) -> Result<Subscribers, Error> {
        let tatp = Tatp::new(subscribers, Mix::Only(class), KeyChoice::Uniform, SEED)?;
        let (first, last) = (1 + thread * subscribers / of, (thread + 1) * subscribers / of);
        let keys = KeySet::range(first, last).ok_or("there is no subscriber for each thread")?;
        let (mut rows, mut facilities) = (tree::<Subscriber>(), tree::<SpecialFacility>());
        let mut scratch = Vec::new();
        for s_id in first..=last {
            let population = generator::Population::of(SEED, s_id);
            insert(&mut rows, &s_id.encode(), &population.subscriber, &mut scratch)?;
            for facility in &population.facilities {
                let key = (s_id, facility.sf_type).encode();
                insert(&mut facilities, &key, &facility.row, &mut scratch)?;
            }
        }
        let parameters = tatp.parameters(keys, thread + 1);
        Ok(Subscribers { subscribers: rows, facilities, parameters, class, together })
    }

    fn get_one(&mut self) -> Result<u64, Error> {
        let s_id = self.parameters.s_id();
        let row = self.subscribers.get(&s_id.encode()).ok_or("a subscriber is missing")?;
        black_box(Subscriber::decode(row.bytes)?);
        Ok(1)
    }

    fn get_together(&mut self) -> Result<u64, Error> {
        let keys: [KeyBuf; TOGETHER] = std::array::from_fn(|_| self.parameters.s_id().encode());
        let mut probes = keys.each_ref().map(|key| Probe::new(&self.subscribers, key));
        locate_batch(&mut probes);
        for probe in &probes {
            let row = probe.row().ok_or("a subscriber is missing")?;
            black_box(Subscriber::decode(row.bytes)?);
        }
        Ok(TOGETHER as u64)
    }

    fn update(&mut self) -> Result<u64, Error> {
        let (s_id, bit) = (self.parameters.s_id(), self.parameters.bit());
        let (sf_type, data_a) = (self.parameters.type_number(), self.parameters.data_a());
        let mut row = self.subscribers.get_mut(&s_id.encode()).ok_or("a subscriber is missing")?;
        RowEdit::<Subscriber>::new(row.bytes_mut())?.change(
            |column| column.bit,
            |mut bits| {
                bits[0] = bit;
                bits
            },
        );
        if let Some(mut row) = self.facilities.get_mut(&(s_id, sf_type).encode()) {
            RowEdit::<SpecialFacility>::new(row.bytes_mut())?.set(|column| column.data_a, data_a);
        }
        Ok(1)
    }
}

impl Bare for Subscribers {
    fn run_some(&mut self) -> Result<u64, Error> {
        match self.class {
            Class::UpdateSubscriberData => self.update(),
            _ if self.together > 1 => self.get_together(),
            _ => self.get_one(),
        }
    }
}

/// The tables of one warehouse that New-Order needs, in trees.
struct Orders {
    w_id: u16,
    items: Tree,
    stocks: Tree,
    customers: Tree,
    districts: Tree,
    warehouses: Tree,
    orders: Tree,
    orders_by_customer: Tree,
    new_orders: Tree,
    order_lines: Tree,
    parameters: parameters::Parameters,
    scratch: Vec<u8>,
    placed: u64,
}

impl Orders {
    fn new(scale: Scale, w_id: u16) -> Result<Orders, Error> {
        let population = Population::new(SEED, scale);
        let mix = parameters::Mix::Only(parameters::Class::NewOrder);
        let keys = KeySet::range(w_id.into(), w_id.into()).ok_or("a warehouse has a number")?;
        let (constants, random) = (population.constants(), Random::of_stream(SEED, w_id.into()));
        let parameters = parameters::Parameters::new(mix, Remote::NONE, scale, constants, keys, random);
        let mut orders = Orders {
            w_id,
            items: tree::<Item>(),
            stocks: tree::<Stock>(),
            customers: tree::<Customer>(),
            districts: tree::<District>(),
            warehouses: tree::<Warehouse>(),
            orders: tree::<Order>(),
            orders_by_customer: tree::<NewOrder>(),
            new_orders: tree::<NewOrder>(),
            order_lines: tree::<OrderLine>(),
            parameters: parameters.without_rollbacks(),
            scratch: Vec::new(),
            placed: 0,
        };
        orders.load(&population)?;
        Ok(orders)
    }

    fn load(&mut self, population: &Population) -> Result<(), Error> {
        let (w_id, scratch) = (self.w_id, &mut self.scratch);
        insert(&mut self.warehouses, &w_id.encode(), &population.warehouse(w_id), scratch)?;
        for i_id in 1..=population.scale().items {
            let key = (w_id, i_id).encode();
            insert(&mut self.items, &key, &population.item(i_id), scratch)?;
            insert(&mut self.stocks, &key, &population.stock(w_id, i_id), scratch)?;
        }
        for d_id in 1..=DISTRICTS {
            insert(&mut self.districts, &(w_id, d_id).encode(), &population.district(w_id, d_id), scratch)?;
            let customers = population.customers_of_orders(w_id, d_id);
            for (o_id, ordered) in (1..).zip(customers) {
                let customer = population.customer(w_id, d_id, o_id);
                insert(&mut self.customers, &(w_id, d_id, o_id).encode(), &customer, scratch)?;
                let order = population.order(w_id, d_id, o_id, ordered);
                let key = (w_id, d_id, o_id);
                insert(&mut self.orders, &key.encode(), &order.order, scratch)?;
                let by_customer = OrdersByCustomer::key(&key, &order.order).encode();
                self.orders_by_customer.insert(&by_customer, &[], 0)?;
                for (number, line) in (1_u8..).zip(&order.lines) {
                    insert(&mut self.order_lines, &(w_id, d_id, o_id, number).encode(), line, scratch)?;
                }
            }
        }
        Ok(())
    }

    /// Takes stock of the lines; returns the lines' items and what was taken.
    #[inline]
    fn take(&mut self, input: &NewOrderInput) -> Result<([Option<ItemSeen>; LINES], Stocks), Error> {
        let NewOrderInput { w_id, d_id, ref lines, .. } = *input;
        let mut keys = [const { KeyBuf::new() }; LINES];
        for (key, line) in keys.iter_mut().zip(lines) {
            *key = (w_id, line.i_id).encode();
        }
        let keys = &keys[..lines.len()];
        let mut positions = Positions::new();
        self.items.locate_all(keys.iter().map(|key| &**key), &mut positions);
        let mut items = [None; LINES];
        for ((item, key), position) in items.iter_mut().zip(keys).zip(&positions) {
            let row = self.items.row_at(*position, key).ok_or("an item is missing")?;
            *item = Some(ItemSeen::of(RowView::new(row.bytes)?));
        }
        positions.clear();
        self.stocks.locate_all(keys.iter().map(|key| &**key), &mut positions);
        let mut stocks = [None; LINES];
        for ((stock, line), position) in stocks.iter_mut().zip(lines).zip(&positions) {
            let mut row = self.stocks.found_mut(*position).ok_or("a stock is missing")?;
            *stock = Some(take_stock(&mut RowEdit::new(row.bytes_mut())?, line.quantity, d_id, false));
        }
        Ok((items, stocks))
    }

    fn place(&mut self, input: &NewOrderInput) -> Result<OrderPlaced, Error> {
        let NewOrderInput { w_id, d_id, c_id, ref lines, entry_d } = *input;
        let (items, stocks) = self.take(input)?;
        let row = self.customers.get(&(w_id, d_id, c_id).encode()).ok_or("a customer is missing")?;
        let customer = RowView::<Customer>::new(row.bytes)?;
        let discount = customer.get(|column| column.discount);
        let (last, credit) = (customer.get(|column| column.last), customer.get(|column| column.credit));
        let row = self.warehouses.get(&w_id.encode()).ok_or("the warehouse is missing")?;
        let w_tax = RowView::<Warehouse>::new(row.bytes)?.get(|column| column.tax);
        let mut row = self.districts.get_mut(&(w_id, d_id).encode()).ok_or("a district is missing")?;
        let (d_tax, o_id) = number_order(&mut RowEdit::new(row.bytes_mut())?);
        let order = Order { c_id, entry_d, carrier_id: 0, ol_cnt: lines.len() as u8, all_local: true };
        let key = (w_id, d_id, o_id);
        insert(&mut self.orders, &key.encode(), &order, &mut self.scratch)?;
        self.orders_by_customer.insert(&OrdersByCustomer::key(&key, &order).encode(), &[], 0)?;
        self.new_orders.insert(&key.encode(), &[], 0)?;
        let mut placed =
            OrderPlaced { o_id, last, credit, discount, w_tax, d_tax, total: 0, lines: Default::default() };
        let mut sum = 0;
        for ((number, line), (item, stock)) in (1_u8..).zip(lines).zip(items.iter().zip(&stocks)) {
            let (Some(item), Some(stock)) = (item, stock) else { return Err("a line is missing".into()) };
            let (seen, row): (LinePlaced, OrderLine) = place_line(line, item, stock);
            sum += i64::from(seen.amount);
            placed.lines.push(seen);
            insert(&mut self.order_lines, &(w_id, d_id, o_id, number).encode(), &row, &mut self.scratch)?;
        }
        placed.total = total(sum, discount, w_tax, d_tax);
        Ok(placed)
    }
}

/// The most lines of an order.
const LINES: usize = LINES_MAX as usize;
type Stocks = [Option<StockTaken>; LINES];
type Positions = arrayvec::ArrayVec<Position, LINES>;

impl Bare for Orders {
    fn run_some(&mut self) -> Result<u64, Error> {
        self.placed += 1;
        let input = self.parameters.new_order(self.w_id, LOADED_AT + self.placed);
        black_box(self.place(&input)?);
        Ok(1)
    }
}

/// Makes the transactions of one of `of` threads; `is_small` has the sizes of what counts instructions.
fn bare(class: &str, thread: u64, is_small: bool) -> Result<Box<dyn Bare>, Error> {
    let class = match class {
        "get-subscriber-data" => Class::GetSubscriberData,
        "update-subscriber-data" => Class::UpdateSubscriberData,
        "new-order" if is_small => {
            let scale = Scale { warehouses: 1, items: 1_000, customers: 100 };
            return Ok(Box::new(Orders::new(scale, 1)?));
        }
        "new-order" => return Ok(Box::new(Orders::new(Scale::of(2), 1 + thread as u16)?)),
        _ => return Err(format!("'{class}' is no class").into()),
    };
    let (subscribers, part) = if is_small { (2_000, (0, 1)) } else { (SUBSCRIBERS_DEFAULT, (thread, 2)) };
    Ok(Box::new(Subscribers::new(subscribers, class, part, if is_small { 1 } else { TOGETHER })?))
}

/// Runs transactions for about this long and returns how many were run per second.
fn run(bare: &mut dyn Bare, time: Duration) -> Result<f64, Error> {
    let (began, mut done) = (Instant::now(), 0);
    while began.elapsed() < time {
        for _ in 0..BETWEEN_LOOKS {
            done += bare.run_some()?;
        }
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

/// Runs the rounds and prints the sum of both threads for each.
fn measure(class: &str, seconds: f64, rounds: u32) -> Result<(), Error> {
    let mut threads = [bare(class, 0, false)?, bare(class, 1, false)?];
    for _ in 0..rounds {
        let barrier = Barrier::new(2);
        let time = Duration::from_secs_f64(seconds);
        let rates = std::thread::scope(|scope| {
            let barrier = &barrier;
            let [one, other] = &mut threads;
            let threads = [(0, one), (1, other)].map(|(cpu, bare)| {
                scope.spawn(move || {
                    // Best effort: an unpinned thread measures too.
                    let _ = pin_current_thread(cpu);
                    barrier.wait();
                    run(bare.as_mut(), time).map_err(|error| error.to_string())
                })
            });
            threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        println!("{:.0} transactions/s", rates.into_iter().sum::<Result<f64, String>>()?);
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let at = |place: usize, default: &'static str| arguments.get(place).map_or(default, String::as_str);
    let run = || -> Result<(), Error> {
        match at(1, "time") {
            "time" => measure(at(0, "new-order"), at(2, "2").parse()?, at(3, "1").parse()?),
            "count" => {
                let mut bare = bare(at(0, "new-order"), 0, true)?;
                let (mut done, wanted) = (0, at(2, "1024").parse::<u64>()?);
                while done < wanted {
                    done += bare.run_some()?;
                }
                Ok(())
            }
            other => Err(format!("'{other}' is neither 'time' nor 'count'").into()),
        }
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "error: {error}; use bare_trees <class> time [seconds] [rounds] or bare_trees <class> count <transactions>"
            );
            ExitCode::from(2)
        }
    }
}
