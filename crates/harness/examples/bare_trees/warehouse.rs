//! A warehouse of TPC-C in trees, and the five transactions on it; all of them stay at their warehouse, and none rolls back.
//!
//! Owns: what the procedures of the workload get from an engine: look-ups, ranges, changes in place, and index entries that follow
//! their rows. Statements on one row are those of the workload.

use std::hint::black_box;
use std::ops::Bound;

use atrapos::{Index, Key, KeyBuf, KeyRange, Row, RowEdit, RowView};
use atrapos_storage::{Entry, Position, Tree};
use atrapos_workloads::tpcc::generator::{LINES_MAX, LOADED_AT, Population, Scale};
use atrapos_workloads::tpcc::parameters::{
    Class, CustomerBy, Mix, NewOrderInput, Parameters, PaymentInput, Remote,
};
use atrapos_workloads::tpcc::procedures::statements::{
    ItemSeen, RECENT_ORDERS, RecentOrders, StockTaken, TOGETHER, distinct, history_data, number_order, pay,
    pay_district, pay_warehouse, place_line, take_stock, total,
};
use atrapos_workloads::tpcc::procedures::{
    CustomerStatus, LinePlaced, LineStatus, OrderPlaced, OrderStatus, Paid,
};
use atrapos_workloads::tpcc::schema::{
    Cents, Customer, CustomersByName, DISTRICTS, District, History, Item, Moment, NewOrder, Order, OrderLine,
    OrdersByCustomer, Stock, Warehouse,
};
use atrapos_workloads::{KeySet, Random};
use smallvec::SmallVec;

use crate::{Bare, Error, SEED, insert, tree};

/// The most lines of an order.
const LINES: usize = LINES_MAX as usize;
type Stocks = [Option<StockTaken>; LINES];
type Positions = arrayvec::ArrayVec<Position, TOGETHER>;

/// The tables and indexes of a warehouse, in trees.
pub(crate) struct WarehouseTrees {
    w_id: u16,
    items: Tree,
    stocks: Tree,
    customers: Tree,
    customers_by_name: Tree,
    districts: Tree,
    warehouses: Tree,
    histories: Tree,
    orders: Tree,
    orders_by_customer: Tree,
    new_orders: Tree,
    order_lines: Tree,
    parameters: Parameters,
    scratch: Vec<u8>,
    now: Moment,
}

/// Returns a row that has to be there.
fn there<R>(row: Option<R>) -> Result<R, Error> {
    row.ok_or_else(|| "a row that the population has is missing".into())
}

/// The entries of a range.
#[inline]
fn entries<'t>(tree: &'t Tree, range: &KeyRange) -> impl Iterator<Item = Entry<'t>> {
    let upper = range.upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    tree.range(Bound::Included(&range.lower), upper)
}

impl WarehouseTrees {
    /// Loads a warehouse whose transactions are those of a mix.
    pub(crate) fn new(scale: Scale, w_id: u16, mix: Mix) -> Result<WarehouseTrees, Error> {
        let population = Population::new(SEED, scale);
        let keys = KeySet::range(w_id.into(), w_id.into()).ok_or("a warehouse has a number")?;
        let (constants, random) = (population.constants(), Random::of_stream(SEED, w_id.into()));
        let parameters = Parameters::new(mix, Remote::NONE, scale, constants, keys, random);
        let mut trees = WarehouseTrees {
            w_id,
            items: tree::<Item>(),
            stocks: tree::<Stock>(),
            customers: tree::<Customer>(),
            customers_by_name: tree::<NewOrder>(),
            districts: tree::<District>(),
            warehouses: tree::<Warehouse>(),
            histories: tree::<History>(),
            orders: tree::<Order>(),
            orders_by_customer: tree::<NewOrder>(),
            new_orders: tree::<NewOrder>(),
            order_lines: tree::<OrderLine>(),
            parameters: parameters.without_rollbacks(),
            scratch: Vec::new(),
            now: LOADED_AT,
        };
        trees.load(&population)?;
        Ok(trees)
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
                let key = (w_id, d_id, o_id);
                insert(&mut self.customers, &key.encode(), &customer, scratch)?;
                self.customers_by_name.insert(&CustomersByName::key(&key, &customer).encode(), &[], 0)?;
                let order = population.order(w_id, d_id, o_id, ordered);
                insert(&mut self.orders, &key.encode(), &order.order, scratch)?;
                let by_customer = OrdersByCustomer::key(&key, &order.order).encode();
                self.orders_by_customer.insert(&by_customer, &[], 0)?;
                if order.order.carrier_id == 0 {
                    self.new_orders.insert(&key.encode(), &[], 0)?;
                }
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
            let row = there(self.items.row_at(*position, key))?;
            *item = Some(ItemSeen::of(RowView::new(row.bytes)?));
        }
        positions.clear();
        self.stocks.locate_all(keys.iter().map(|key| &**key), &mut positions);
        let mut stocks = [None; LINES];
        for ((stock, line), position) in stocks.iter_mut().zip(lines).zip(&positions) {
            let mut row = there(self.stocks.found_mut(*position))?;
            *stock = Some(take_stock(&mut RowEdit::new(row.bytes_mut())?, line.quantity, d_id, false));
        }
        Ok((items, stocks))
    }

    fn place(&mut self, input: &NewOrderInput) -> Result<OrderPlaced, Error> {
        let NewOrderInput { w_id, d_id, c_id, ref lines, entry_d } = *input;
        let (items, stocks) = self.take(input)?;
        let row = there(self.customers.get(&(w_id, d_id, c_id).encode()))?;
        let customer = RowView::<Customer>::new(row.bytes)?;
        let discount = customer.get(|column| column.discount);
        let (last, credit) = (customer.get(|column| column.last), customer.get(|column| column.credit));
        let row = there(self.warehouses.get(&w_id.encode()))?;
        let w_tax = RowView::<Warehouse>::new(row.bytes)?.get(|column| column.tax);
        let mut row = there(self.districts.get_mut(&(w_id, d_id).encode()))?;
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

    /// Finds the number of a customer; of those with one last name, the one in the middle.
    fn find_customer(&self, d_id: u8, customer: CustomerBy) -> Result<u32, Error> {
        let last = match customer {
            CustomerBy::Id(c_id) => return Ok(c_id),
            CustomerBy::Name(last) => last,
        };
        let mut found = SmallVec::<[u32; 32]>::new();
        let named = KeyRange::prefix(&(self.w_id, d_id, last));
        for entry in entries(&self.customers_by_name, &named) {
            found.push(<CustomersByName as Index>::Key::decode(&entry.key())?.4);
        }
        let middle = there(found.len().div_ceil(2).checked_sub(1))?;
        there(found.get(middle).copied())
    }

    fn pay(&mut self, input: &PaymentInput) -> Result<Paid, Error> {
        let PaymentInput { w_id, d_id, c_w_id, c_d_id, amount, date, .. } = *input;
        let c_id = self.find_customer(c_d_id, input.customer)?;
        let mut row = there(self.customers.get_mut(&(c_w_id, c_d_id, c_id).encode()))?;
        let customer = pay(&mut RowEdit::new(row.bytes_mut())?, c_id, input);
        let mut row = there(self.warehouses.get_mut(&w_id.encode()))?;
        let warehouse = pay_warehouse(&mut RowEdit::new(row.bytes_mut())?, amount);
        let mut row = there(self.districts.get_mut(&(w_id, d_id).encode()))?;
        let (district, h_id) = pay_district(&mut RowEdit::new(row.bytes_mut())?, amount);
        let data = history_data(&warehouse.name, &district.name);
        let row = History { c_id, c_d_id, c_w_id, date, amount, data };
        insert(&mut self.histories, &(w_id, d_id, h_id).encode(), &row, &mut self.scratch)?;
        Ok(Paid { c_id, customer, warehouse, district })
    }

    fn order_status(&self, d_id: u8, customer: CustomerBy) -> Result<OrderStatus, Error> {
        let w_id = self.w_id;
        let c_id = self.find_customer(d_id, customer)?;
        let row = RowView::<Customer>::new(there(self.customers.get(&(w_id, d_id, c_id).encode()))?.bytes)?;
        let customer = CustomerStatus {
            c_id,
            first: row.get(|column| column.first),
            middle: row.get(|column| column.middle),
            last: row.get(|column| column.last),
            balance: row.get(|column| column.balance),
        };
        let of_customer = KeyRange::prefix(&(w_id, d_id, c_id));
        let latest = there(entries(&self.orders_by_customer, &of_customer).next())?;
        let o_id = u32::MAX - <OrdersByCustomer as Index>::Key::decode(&latest.key())?.3;
        let order = Order::decode(there(self.orders.get(&(w_id, d_id, o_id).encode()))?.bytes)?;
        let mut status = OrderStatus { customer, o_id, order, lines: Default::default() };
        let of_order = KeyRange::prefix(&(w_id, d_id, o_id));
        for entry in entries(&self.order_lines, &of_order) {
            let row = OrderLine::decode(entry.bytes())?;
            let OrderLine { i_id, supply_w_id, quantity, amount, delivery_d, .. } = row;
            status.lines.push(LineStatus { i_id, supply_w_id, quantity, amount, delivery_d });
        }
        Ok(status)
    }

    /// Delivers the oldest order of a district. Returns its amount, if there was one.
    fn deliver(&mut self, d_id: u8, carrier_id: u8) -> Result<Option<Cents>, Error> {
        let w_id = self.w_id;
        let Some(oldest) = entries(&self.new_orders, &KeyRange::prefix(&(w_id, d_id))).next() else {
            return Ok(None);
        };
        let key = <(u16, u8, u32)>::decode(&oldest.key())?;
        let o_id = key.2;
        self.new_orders.remove(&key.encode());
        let mut row = there(self.orders.get_mut(&key.encode()))?;
        let mut order = RowEdit::<Order>::new(row.bytes_mut())?;
        order.set(|column| column.carrier_id, carrier_id);
        let (c_id, ol_cnt) = (order.get(|column| column.c_id), order.get(|column| column.ol_cnt));
        let mut keys = [const { KeyBuf::new() }; LINES];
        for (key, number) in keys.iter_mut().zip(1..=ol_cnt) {
            *key = (w_id, d_id, o_id, number).encode();
        }
        let mut positions = Positions::new();
        let of_order = keys.iter().take(usize::from(ol_cnt));
        self.order_lines.locate_all(of_order.map(|key| &**key), &mut positions);
        let mut amount = 0;
        for position in &positions {
            let mut row = there(self.order_lines.found_mut(*position))?;
            let mut line = RowEdit::<OrderLine>::new(row.bytes_mut())?;
            line.set(|column| column.delivery_d, self.now);
            amount += Cents::from(line.get(|column| column.amount));
        }
        let mut row = there(self.customers.get_mut(&(w_id, d_id, c_id).encode()))?;
        let mut customer = RowEdit::<Customer>::new(row.bytes_mut())?;
        customer.change(|column| column.delivery_cnt, |count| count + 1);
        customer.change(|column| column.balance, |balance| balance + amount);
        Ok(Some(amount))
    }

    fn recent_items(&self, d_id: u8) -> Result<RecentOrders, Error> {
        let w_id = self.w_id;
        let row = there(self.districts.get(&(w_id, d_id).encode()))?;
        let next = RowView::<District>::new(row.bytes)?.get(|column| column.next_o_id);
        let recent =
            KeyRange::between(&(w_id, d_id, next.saturating_sub(RECENT_ORDERS)), &(w_id, d_id, next));
        let mut items = RecentOrders::new();
        for entry in entries(&self.order_lines, &recent) {
            items.push(RowView::<OrderLine>::new(entry.bytes())?.get(|column| column.i_id));
        }
        Ok(items)
    }

    fn stock_level(&self, d_id: u8, threshold: i16) -> Result<u32, Error> {
        let items = distinct(&self.recent_items(d_id)?);
        let mut low = 0;
        for items in items.chunks(TOGETHER) {
            let mut keys = [const { KeyBuf::new() }; TOGETHER];
            for (key, item) in keys.iter_mut().zip(items) {
                *key = (self.w_id, *item).encode();
            }
            let keys = &keys[..items.len()];
            let mut positions = Positions::new();
            self.stocks.locate_all(keys.iter().map(|key| &**key), &mut positions);
            for (position, key) in positions.iter().zip(keys) {
                let row = there(self.stocks.row_at(*position, key))?;
                let quantity = RowView::<Stock>::new(row.bytes)?.get(|column| column.quantity);
                low += u32::from(quantity < threshold);
            }
        }
        Ok(low)
    }
}

impl Bare for WarehouseTrees {
    fn run_some(&mut self) -> Result<u64, Error> {
        self.now += 1;
        match self.parameters.class() {
            Class::NewOrder => {
                let input = self.parameters.new_order(self.w_id, self.now);
                black_box(self.place(&input)?);
            }
            Class::Payment => {
                let input = self.parameters.payment(self.w_id, self.now);
                black_box(self.pay(&input)?);
            }
            Class::OrderStatus => {
                let (d_id, customer) = (self.parameters.district(), self.parameters.customer());
                black_box(self.order_status(d_id, customer)?);
            }
            Class::Delivery => {
                let carrier_id = self.parameters.carrier();
                for d_id in 1..=DISTRICTS {
                    black_box(self.deliver(d_id, carrier_id)?);
                }
            }
            Class::StockLevel => {
                let (d_id, threshold) = (self.parameters.district(), self.parameters.threshold());
                black_box(self.stock_level(d_id, threshold)?);
            }
        }
        Ok(1)
    }
}
