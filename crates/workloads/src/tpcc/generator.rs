//! The initial population of a TPC-C database (clause 4.3).
//!
//! Owns: the cardinalities and value rules of the specification. Never: decides what transactions do with the rows.
//!
//! Invariant: a row depends on the seed, the scale and its key alone. So any number of workers load the same database,
//! and the auditor can generate every row again.

use arrayvec::ArrayVec;
use atrapos::FixedStr;

use super::nurand::{A_C_LAST, Constants, nurand};
use super::schema::{
    Cents, Customer, DIST_BYTES, DISTRICTS, District, History, Item, Moment, ORIGINAL, Order, OrderLine,
    Stock, Warehouse,
};
use crate::random::Random;

/// Items, and rows of stock per warehouse, in the specification.
pub const ITEMS: u32 = 100_000;
/// Customers per district, and orders, in the specification.
pub const CUSTOMERS: u32 = 3_000;
/// Number of last names.
pub const NAMES: u32 = 1_000;
/// Least number of lines of an order.
pub const LINES_MIN: u8 = 5;
/// Greatest number of lines of an order.
pub const LINES_MAX: u8 = 15;
/// Carriers: from 1 to this number.
pub const CARRIERS: u8 = 10;

/// The date of everything that is loaded: 2020-01-01. The specification takes the current date, with which two loads of
/// one seed would differ.
pub const LOADED_AT: Moment = 1_577_836_800_000_000;

/// Amount that every customer has paid before the first transaction.
pub const PAID: Cents = 1_000;
const CREDIT_LIM: Cents = 5_000_000;

/// Share of the customers that have bad credit, in percent.
const BAD_CREDIT_PERCENT: u32 = 10;
/// Share of the items and rows of stock that are original, in percent.
const ORIGINAL_PERCENT: u32 = 10;

/// The scale of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scale {
    /// Warehouses.
    pub warehouses: u16,
    /// Items, and rows of stock per warehouse.
    pub items: u32,
    /// Customers per district, and orders.
    pub customers: u32,
}

impl Scale {
    /// Returns the specification's scale for a number of warehouses.
    #[must_use]
    pub fn of(warehouses: u16) -> Scale {
        Scale { warehouses, items: ITEMS, customers: CUSTOMERS }
    }

    /// Returns the orders of a district that are delivered when the database is loaded: 2,100 of 3,000.
    #[must_use]
    pub fn delivered(self) -> u32 {
        self.customers - self.customers * 3 / 10
    }

    /// Returns the number of last names that at least one customer of every district has.
    #[must_use]
    pub fn names(self) -> u32 {
        self.customers.min(NAMES)
    }

    /// Returns the amount paid to a district before the first transaction: 30,000.00 with 3,000 customers.
    #[must_use]
    pub fn district_ytd(self) -> Cents {
        Cents::from(self.customers) * PAID
    }

    /// Returns the amount paid to a warehouse before the first transaction.
    #[must_use]
    pub fn warehouse_ytd(self) -> Cents {
        self.district_ytd() * Cents::from(DISTRICTS)
    }
}

/// The syllables of last names (clause 4.3.2.3).
const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// Returns last name number `number`, from 0 to 999: one syllable for each of its digits.
#[must_use]
pub fn last_name(number: u32) -> FixedStr<16> {
    let mut bytes = [0; 16];
    let mut at = 0;
    for digit in [number / 100 % 10, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[digit as usize].as_bytes();
        bytes[at..at + syllable.len()].copy_from_slice(syllable);
        at += syllable.len();
    }
    text(bytes)
}

/// Converts letters and digits to text.
fn text<const N: usize>(bytes: [u8; N]) -> FixedStr<N> {
    FixedStr::from_padded(bytes).expect("letters and digits are text")
}

/// An order with its lines, in order of their numbers from 1 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderWithLines {
    /// The order.
    pub order: Order,
    /// Its lines.
    pub lines: ArrayVec<OrderLine, { LINES_MAX as usize }>,
}

/// Generates the rows of one database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Population {
    seed: u64,
    scale: Scale,
    constants: Constants,
}

/// Kinds of rows: keeps their streams of random numbers apart.
#[derive(Clone, Copy, Debug)]
enum Of {
    Constants,
    Item,
    Warehouse,
    Stock,
    District,
    Customer,
    History,
    Customers,
    Order,
}

impl Population {
    /// Creates the population of the database of `seed`.
    #[must_use]
    pub fn new(seed: u64, scale: Scale) -> Population {
        let constants = Constants::draw(&mut random_of(seed, Of::Constants, 0, 0, 0));
        Population { seed, scale, constants }
    }

    /// Returns the scale.
    #[must_use]
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Returns the constants of its non-uniform choices.
    #[must_use]
    pub fn constants(&self) -> Constants {
        self.constants
    }

    fn random(&self, of: Of, w_id: u16, d_id: u8, number: u32) -> Random {
        random_of(self.seed, of, w_id, d_id, number)
    }

    /// Generates an item, which is the same for all warehouses.
    #[must_use]
    pub fn item(&self, i_id: u32) -> Item {
        let random = &mut self.random(Of::Item, 0, 0, i_id);
        Item {
            im_id: 1 + random.small(10_000),
            name: letters_and_digits(random, 14, 24),
            price: 100 + random.small(9_900 + 1),
            data: data(random),
        }
    }

    /// Generates a warehouse.
    #[must_use]
    pub fn warehouse(&self, w_id: u16) -> Warehouse {
        let random = &mut self.random(Of::Warehouse, w_id, 0, 0);
        let name = letters_and_digits(random, 6, 10);
        let Address { street_1, street_2, city, state, zip } = Address::draw(random);
        let (tax, ytd) = (random.small(2000 + 1) as u16, self.scale.warehouse_ytd());
        Warehouse { name, street_1, street_2, city, state, zip, tax, ytd }
    }

    /// Generates a warehouse's stock of an item.
    #[must_use]
    pub fn stock(&self, w_id: u16, i_id: u32) -> Stock {
        let random = &mut self.random(Of::Stock, w_id, 0, i_id);
        let quantity = 10 + random.small(91) as i16;
        let mut dist = [0; DIST_BYTES * DISTRICTS as usize];
        fill(random, &mut dist);
        Stock { quantity, dist, ytd: 0, order_cnt: 0, remote_cnt: 0, data: data(random) }
    }

    /// Generates a district.
    #[must_use]
    pub fn district(&self, w_id: u16, d_id: u8) -> District {
        let random = &mut self.random(Of::District, w_id, d_id, 0);
        let name = letters_and_digits(random, 6, 10);
        let Address { street_1, street_2, city, state, zip } = Address::draw(random);
        let next = self.scale.customers + 1;
        District {
            name,
            street_1,
            street_2,
            city,
            state,
            zip,
            tax: random.small(2000 + 1) as u16,
            ytd: self.scale.district_ytd(),
            next_o_id: next,
            next_h_id: next,
        }
    }

    /// Generates a customer.
    #[must_use]
    pub fn customer(&self, w_id: u16, d_id: u8, c_id: u32) -> Customer {
        let random = &mut self.random(Of::Customer, w_id, d_id, c_id);
        let name = match c_id {
            1..=NAMES => c_id - 1,
            _ => nurand(random, A_C_LAST, self.constants.c_last_load, 0, NAMES - 1),
        };
        let first = letters_and_digits(random, 8, 16);
        let Address { street_1, street_2, city, state, zip } = Address::draw(random);
        let credit = if random.small(100) < BAD_CREDIT_PERCENT { *b"BC" } else { *b"GC" };
        Customer {
            first,
            middle: text(*b"OE"),
            last: last_name(name),
            street_1,
            street_2,
            city,
            state,
            zip,
            phone: text(random.digits()),
            since: LOADED_AT,
            credit: text(credit),
            credit_lim: CREDIT_LIM,
            discount: random.small(5000 + 1) as u16,
            balance: -PAID,
            ytd_payment: PAID,
            payment_cnt: 1,
            delivery_cnt: 0,
            data: letters_and_digits(random, 300, 500),
        }
    }

    /// Generates the first payment of a customer of the same district; it has the customer's number.
    #[must_use]
    pub fn history(&self, w_id: u16, d_id: u8, c_id: u32) -> History {
        let random = &mut self.random(Of::History, w_id, d_id, c_id);
        let data = letters_and_digits(random, 12, 24);
        History { c_id, c_d_id: d_id, c_w_id: w_id, date: LOADED_AT, amount: PAID, data }
    }

    /// Returns the customers of a district's orders, in order of the orders' numbers: each customer once.
    #[must_use]
    pub fn customers_of_orders(&self, w_id: u16, d_id: u8) -> Vec<u32> {
        let mut random = self.random(Of::Customers, w_id, d_id, 0);
        let mut customers: Vec<u32> = (1..=self.scale.customers).collect();
        for at in (1..customers.len()).rev() {
            customers.swap(at, random.small(at as u32 + 1) as usize);
        }
        customers
    }

    /// Generates an order of customer `c_id`.
    #[must_use]
    pub fn order(&self, w_id: u16, d_id: u8, o_id: u32, c_id: u32) -> OrderWithLines {
        let random = &mut self.random(Of::Order, w_id, d_id, o_id);
        let is_delivered = o_id <= self.scale.delivered();
        let carrier_id = 1 + random.small(CARRIERS.into()) as u8;
        let ol_cnt = LINES_MIN + random.small(u32::from(LINES_MAX - LINES_MIN) + 1) as u8;
        let order = Order {
            c_id,
            entry_d: LOADED_AT,
            carrier_id: if is_delivered { carrier_id } else { 0 },
            ol_cnt,
            all_local: true,
        };
        let line = |_| {
            let i_id = 1 + random.small(self.scale.items);
            let amount = 1 + random.small(999_999);
            let mut dist_info = [0; DIST_BYTES];
            fill(random, &mut dist_info);
            OrderLine {
                i_id,
                supply_w_id: w_id,
                delivery_d: if is_delivered { LOADED_AT } else { 0 },
                quantity: 5,
                amount: if is_delivered { 0 } else { amount },
                dist_info,
            }
        };
        OrderWithLines { order, lines: (0..ol_cnt).map(line).collect() }
    }
}

fn random_of(seed: u64, of: Of, w_id: u16, d_id: u8, number: u32) -> Random {
    let stream = (of as u64) << 56 | u64::from(w_id) << 40 | u64::from(d_id) << 32 | u64::from(number);
    Random::of_stream(seed, stream)
}

struct Address {
    street_1: FixedStr<20>,
    street_2: FixedStr<20>,
    city: FixedStr<20>,
    state: FixedStr<2>,
    zip: FixedStr<9>,
}

impl Address {
    fn draw(random: &mut Random) -> Address {
        let [street_1, street_2, city] = std::array::from_fn(|_| letters_and_digits(random, 10, 20));
        let state = text(random.letters());
        let mut zip = *b"000011111";
        zip[..4].copy_from_slice(&random.digits::<4>());
        Address { street_1, street_2, city, state, zip: text(zip) }
    }
}

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Fills a buffer with letters and digits.
fn fill(random: &mut Random, buffer: &mut [u8]) {
    for run in buffer.chunks_mut(5) {
        let mut rest = random.small(62_u32.pow(5));
        for byte in run {
            *byte = ALPHABET[(rest % 62) as usize];
            rest /= 62;
        }
    }
}

/// Draws the specification's *a-string*: letters and digits, from `min` to `max` of them.
fn letters_and_digits<const N: usize>(random: &mut Random, min: usize, max: usize) -> FixedStr<N> {
    let len = min + random.small((max - min + 1) as u32) as usize;
    let mut bytes = [0; N];
    fill(random, &mut bytes[..len]);
    text(bytes)
}

/// Draws miscellaneous data of an item or of stock: 26 to 50 characters, one in ten with `ORIGINAL` somewhere.
fn data(random: &mut Random) -> FixedStr<50> {
    let data = letters_and_digits::<50>(random, 26, 50);
    if random.small(100) >= ORIGINAL_PERCENT {
        return data;
    }
    let at = random.small((data.len() - ORIGINAL.len() + 1) as u32) as usize;
    let mut bytes = *data.padded();
    bytes[at..at + ORIGINAL.len()].copy_from_slice(ORIGINAL);
    text(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::schema::is_original;
    use super::*;
    use crate::chi_square::assert_fits;

    fn population(seed: u64) -> Population {
        Population::new(seed, Scale::of(2))
    }

    #[test]
    fn rows_depend_on_seed_and_key_alone() {
        let rows = |seed: u64, w_id: u16, d_id: u8, number: u32| {
            let population = population(seed);
            (
                population.warehouse(w_id),
                population.district(w_id, d_id),
                population.customer(w_id, d_id, number),
                population.history(w_id, d_id, number),
                population.order(w_id, d_id, number, 7),
                population.stock(w_id, number),
                population.item(number),
            )
        };
        let one = rows(1, 1, 1, 1);
        assert_eq!(one, rows(1, 1, 1, 1));
        for other in [rows(2, 1, 1, 1), rows(1, 2, 1, 1), rows(1, 1, 2, 1), rows(1, 1, 1, 2)] {
            assert_ne!(one.2, other.2);
            assert_ne!(one.3, other.3);
            assert_ne!(one.4, other.4);
        }
        assert_ne!(one.5, rows(1, 2, 1, 1).5);
        assert_eq!(one.6, rows(1, 2, 1, 1).6, "all warehouses have the same items");
        assert_ne!(population(1).constants(), population(2).constants());
    }

    #[test]
    fn last_names_are_the_specification_s() {
        for (number, name) in
            [(0, "BARBARBAR"), (371, "PRICALLYOUGHT"), (40, "BARPRESBAR"), (999, "EINGEINGEING")]
        {
            assert_eq!(last_name(number).as_str(), name);
        }
        let longest = (0..NAMES).map(|number| last_name(number).len()).max();
        assert_eq!(longest, Some(15));
        for customers in [CUSTOMERS, 50] {
            let scale = Scale { customers, ..Scale::of(1) };
            let population = Population::new(3, scale);
            let mut counts = vec![0_u32; NAMES as usize];
            for c_id in 1..=customers {
                let last = population.customer(1, 1, c_id).last;
                let number = (0..NAMES).find(|number| last_name(*number) == last).expect("a name");
                counts[number as usize] += 1;
            }
            assert!(counts[..scale.names() as usize].iter().all(|count| *count > 0), "everybody is there");
        }
    }

    #[test]
    fn every_customer_has_one_order() {
        let mut customers = population(4).customers_of_orders(1, 3);
        assert_ne!(customers, population(4).customers_of_orders(1, 4));
        assert!(!customers.is_sorted());
        customers.sort_unstable();
        assert_eq!(customers, (1..=CUSTOMERS).collect::<Vec<_>>());
    }

    #[test]
    fn values_are_the_specification_s() {
        let population = population(7);
        let (mut credit, mut original, mut lines, mut carriers) = ([0; 2], [0; 2], [0; 11], [0; 10]);
        let (mut quantity, mut discount, mut lengths) = ([0; 91], [0; 10], [0; 201]);
        for c_id in 1..=CUSTOMERS {
            for d_id in 1..=DISTRICTS {
                let customer = population.customer(1, d_id, c_id);
                credit[usize::from(customer.credit.as_str() == "BC")] += 1;
                discount[usize::from(customer.discount.min(4999) / 500)] += 1;
                lengths[customer.data.len() - 300] += 1;
                assert!((8..=16).contains(&customer.first.len()) && customer.phone.len() == 16);
                assert_eq!(
                    (customer.balance, customer.ytd_payment, customer.credit_lim),
                    (-1000, 1000, 5_000_000)
                );
                assert!(customer.zip.as_str().ends_with("11111") && customer.zip.len() == 9);
                let OrderWithLines { order, lines: of_order } = population.order(1, d_id, c_id, 1);
                lines[usize::from(order.ol_cnt) - 5] += 1;
                assert_eq!(of_order.len(), usize::from(order.ol_cnt));
                let is_new = c_id > 2100;
                assert_eq!(order.carrier_id == 0, is_new);
                if !is_new {
                    carriers[usize::from(order.carrier_id) - 1] += 1;
                }
                for line in &of_order {
                    assert_eq!((line.delivery_d == 0, line.amount > 0), (is_new, is_new));
                    assert!((1..=ITEMS).contains(&line.i_id) && line.amount <= 999_999 && line.quantity == 5);
                }
            }
        }
        for i_id in 1..=20_000 {
            let (item, stock) = (population.item(i_id), population.stock(1, i_id));
            original[usize::from(is_original(item.data.padded()))] += 1;
            original[usize::from(is_original(stock.data.padded()))] += 1;
            quantity[stock.quantity as usize - 10] += 1;
            assert!((100..=10_000).contains(&item.price) && (1..=10_000).contains(&item.im_id));
            assert!((14..=24).contains(&item.name.len()) && (26..=50).contains(&item.data.len()));
            assert!(stock.dist.iter().all(u8::is_ascii_alphanumeric));
        }
        assert_fits("bad credit", &credit, &[0.9, 0.1]);
        assert_fits("discount", &discount, &[0.1; 10]);
        assert_fits("lengths of data", &lengths, &[1.0 / 201.0; 201]);
        assert_fits("lines of an order", &lines, &[1.0 / 11.0; 11]);
        assert_fits("carriers", &carriers, &[0.1; 10]);
        assert_fits("original", &original, &[0.9, 0.1]);
        assert_fits("quantity", &quantity, &[1.0 / 91.0; 91]);
    }

    #[test]
    fn a_full_scale_is_the_specification_s() {
        let scale = Scale::of(1);
        assert_eq!((scale.delivered(), scale.names()), (2100, 1000));
        assert_eq!((scale.district_ytd(), scale.warehouse_ytd()), (3_000_000, 30_000_000));
        let warehouse = population(1).warehouse(1);
        assert!(warehouse.tax <= 2000 && warehouse.ytd == 30_000_000);
        assert_eq!(population(1).district(1, 1).next_o_id, 3001);
    }
}
