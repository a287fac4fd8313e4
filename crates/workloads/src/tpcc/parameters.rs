//! The next transaction of a TPC-C client: its class, warehouse and input (clauses 2.4.1 to 2.8.1).
//!
//! Owns: the mix and the inputs' distributions. Never: runs a transaction, or waits.

use std::str::FromStr;

use arrayvec::ArrayVec;
use atrapos::FixedStr;
use serde::{Deserialize, Serialize};

use super::generator::{CARRIERS, LINES_MAX, LINES_MIN, Scale, last_name};
use super::nurand::{A_C_ID, A_C_LAST, A_I_ID, Constants, nurand};
use super::schema::{Cents, DISTRICTS, Moment};
use crate::keys::KeySet;
use crate::random::Random;
use crate::workload::ClassId;

/// The five transaction classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "each is documented at the procedure of its name")]
pub enum Class {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

impl Class {
    /// Every class, in the order of their discriminants.
    pub const ALL: [Class; 5] =
        [Class::NewOrder, Class::Payment, Class::OrderStatus, Class::Delivery, Class::StockLevel];

    /// The names of the classes, in the same order.
    pub const NAMES: [&'static str; 5] = ["new-order", "payment", "order-status", "delivery", "stock-level"];

    /// Share of each class in the standard mix, in percent (clause 5.2.3; New-Order has the rest that the minima of the
    /// others leave).
    pub const STANDARD_PERCENT: [u8; 5] = [45, 43, 4, 4, 4];

    /// Returns the name of the class.
    #[must_use]
    pub fn name(self) -> &'static str {
        Class::NAMES[self as usize]
    }

    /// Returns whether its transactions change rows when they succeed.
    #[must_use]
    pub fn updates(self) -> bool {
        matches!(self, Class::NewOrder | Class::Payment | Class::Delivery)
    }

    /// Returns the number of the class.
    #[must_use]
    pub fn id(self) -> ClassId {
        ClassId(self as u8)
    }
}

/// Transaction classes that are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Mix {
    /// All five, 45/43/4/4/4 in a hundred.
    #[default]
    Standard,
    /// New-Order and Payment, in the proportion that the standard mix has them: 45 to 43.
    NewOrderPayment,
    /// One class alone.
    Only(Class),
}

/// The name of [`Mix::NewOrderPayment`].
const NEW_ORDER_PAYMENT: &str = "new-order-payment";

/// Error for a mix that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no mix '{0}'; choose 'standard' or one of {NEW_ORDER_PAYMENT}, {names}", names = Class::NAMES.join(", "))]
pub struct UnknownMix(pub String);

impl FromStr for Mix {
    type Err = UnknownMix;

    fn from_str(name: &str) -> Result<Mix, UnknownMix> {
        match name {
            "standard" => return Ok(Mix::Standard),
            NEW_ORDER_PAYMENT => return Ok(Mix::NewOrderPayment),
            _ => {}
        }
        let class = Class::ALL.into_iter().find(|class| class.name() == name);
        class.map(Mix::Only).ok_or_else(|| UnknownMix(name.to_owned()))
    }
}

impl std::fmt::Display for Mix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Mix::Standard => "standard",
            Mix::NewOrderPayment => NEW_ORDER_PAYMENT,
            Mix::Only(class) => class.name(),
        })
    }
}

impl Mix {
    /// Returns the share of a class, from 0 to 1.
    #[must_use]
    pub fn share_of(self, class: Class) -> f64 {
        let percent = |class: Class| f64::from(Class::STANDARD_PERCENT[class as usize]);
        match self {
            Mix::Standard => percent(class) / 100.0,
            Mix::NewOrderPayment if matches!(class, Class::NewOrder | Class::Payment) => {
                percent(class) / (percent(Class::NewOrder) + percent(Class::Payment))
            }
            Mix::NewOrderPayment => 0.0,
            Mix::Only(only) => f64::from(u8::from(only == class)),
        }
    }
}

/// The classes of a hundred transactions of the standard mix; those of [`Mix::NewOrderPayment`] come first.
const STANDARD: [Class; 100] = {
    let mut classes = [Class::NewOrder; 100];
    let (mut class, mut left, mut at) = (0, Class::STANDARD_PERCENT[0], 0);
    while at < 100 {
        while left == 0 {
            class += 1;
            left = Class::STANDARD_PERCENT[class];
        }
        classes[at] = Class::ALL[class];
        left -= 1;
        at += 1;
    }
    classes
};

/// Shares of payments and order lines with other warehouses, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Remote {
    /// Share of payments by customers of other warehouses.
    pub payments: f64,
    /// Share of order lines supplied by other warehouses.
    pub lines: f64,
}

impl Remote {
    /// The specification's shares (clauses 2.4.1.5 and 2.5.1.2).
    pub const STANDARD: Remote = Remote { payments: 0.15, lines: 0.01 };
    /// Shares of zero: all transactions are local.
    pub const NONE: Remote = Remote { payments: 0.0, lines: 0.0 };
}

impl Default for Remote {
    fn default() -> Remote {
        Remote::STANDARD
    }
}

/// A line of an order to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineInput {
    /// The item; one beyond the last in an order that is to be rolled back.
    pub i_id: u32,
    /// The warehouse that supplies it.
    pub supply_w_id: u16,
    /// Quantity ordered.
    pub quantity: u8,
}

/// The lines of an order to be placed.
pub type LineInputs = ArrayVec<LineInput, { LINES_MAX as usize }>;

/// The input of New-Order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewOrderInput {
    /// The warehouse.
    pub w_id: u16,
    /// The district.
    pub d_id: u8,
    /// The customer.
    pub c_id: u32,
    /// The lines.
    pub lines: LineInputs,
    /// Date of entry.
    pub entry_d: Moment,
}

/// The identification of a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CustomerBy {
    /// The customer's number.
    Id(u32),
    /// The last name: of the customers who have it, the one in the middle by first name.
    Name(FixedStr<16>),
}

/// The input of Payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentInput {
    /// The warehouse that is paid.
    pub w_id: u16,
    /// The district that is paid.
    pub d_id: u8,
    /// The customer's warehouse.
    pub c_w_id: u16,
    /// The customer's district.
    pub c_d_id: u8,
    /// The customer.
    pub customer: CustomerBy,
    /// Amount in cents.
    pub amount: Cents,
    /// Date of the payment.
    pub date: Moment,
}

/// Draws the classes and inputs of one client.
#[derive(Clone, Debug)]
pub struct Parameters {
    mix: Mix,
    scale: Scale,
    constants: Constants,
    /// Shares of remote payments and lines, in units of [`SHARE_ONE`].
    remote_payments: u32,
    remote_lines: u32,
    /// Share of the orders to be rolled back, in percent.
    rolled_back_percent: u32,
    warehouses: KeySet,
    random: Random,
}

/// The unit of shares: stands for a share of 1.
const SHARE_ONE: u32 = 1 << 30;

/// Share of the orders to be rolled back, in percent (clause 2.4.1.4).
pub(super) const ROLLED_BACK_PERCENT: u32 = 1;
/// Share of the customers identified by last name, in percent.
const BY_NAME_PERCENT: u32 = 60;

impl Parameters {
    /// Creates a generator that draws from `random`: classes of `mix`, warehouses of `warehouses`.
    #[must_use]
    pub fn new(
        mix: Mix,
        remote: Remote,
        scale: Scale,
        constants: Constants,
        warehouses: KeySet,
        random: Random,
    ) -> Parameters {
        let share = |share: f64| (share * f64::from(SHARE_ONE)).round() as u32;
        Parameters {
            mix,
            scale,
            constants,
            remote_payments: share(remote.payments),
            remote_lines: share(remote.lines),
            rolled_back_percent: ROLLED_BACK_PERCENT,
            warehouses,
            random,
        }
    }

    /// Returns the same generator without orders that are to be rolled back.
    #[must_use]
    pub fn without_rollbacks(self) -> Parameters {
        Parameters { rolled_back_percent: 0, ..self }
    }

    /// Returns the random number generator of all draws.
    pub(super) fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Draws the class of the next transaction.
    #[inline]
    pub fn class(&mut self) -> Class {
        match self.mix {
            Mix::Standard => STANDARD[self.random.small(100) as usize],
            Mix::NewOrderPayment => {
                let of_both = Class::STANDARD_PERCENT[0] + Class::STANDARD_PERCENT[1];
                STANDARD[self.random.small(of_both.into()) as usize]
            }
            Mix::Only(class) => class,
        }
    }

    /// Draws a warehouse.
    #[inline]
    pub fn warehouse(&mut self) -> u16 {
        self.warehouses.nth(self.random.below(self.warehouses.len())) as u16
    }

    /// Returns the warehouse and the district of terminal number `terminal`: ten to a warehouse, one in each district.
    #[must_use]
    pub fn seat(&self, terminal: u32) -> (u16, u8) {
        let (terminal, warehouses) = (u64::from(terminal), self.warehouses.len());
        let w_id = self.warehouses.nth(terminal % warehouses) as u16;
        (w_id, 1 + (terminal / warehouses % u64::from(DISTRICTS)) as u8)
    }

    /// Draws a district.
    #[inline]
    pub fn district(&mut self) -> u8 {
        1 + self.random.small(DISTRICTS.into()) as u8
    }

    /// Draws another warehouse than `home`; `home` itself if it is the only one.
    #[inline]
    fn other_warehouse(&mut self, home: u16) -> u16 {
        let others = u32::from(self.scale.warehouses) - 1;
        if others == 0 {
            return home;
        }
        let other = 1 + self.random.small(others) as u16;
        if other < home { other } else { other + 1 }
    }

    #[inline]
    fn is_remote(&mut self, share: u32) -> bool {
        share > 0 && self.random.small(SHARE_ONE) < share
    }

    #[inline]
    fn c_id(&mut self) -> u32 {
        nurand(&mut self.random, A_C_ID, self.constants.c_id, 1, self.scale.customers)
    }

    /// Draws a customer: six of ten by last name.
    #[inline]
    pub fn customer(&mut self) -> CustomerBy {
        if self.random.small(100) >= BY_NAME_PERCENT {
            return CustomerBy::Id(self.c_id());
        }
        let number = nurand(&mut self.random, A_C_LAST, self.constants.c_last_run, 0, self.scale.names() - 1);
        CustomerBy::Name(last_name(number))
    }

    /// Draws the input of New-Order for a warehouse at a time.
    #[inline]
    pub fn new_order(&mut self, w_id: u16, entry_d: Moment) -> NewOrderInput {
        let (d_id, c_id) = (self.district(), self.c_id());
        let lines = LINES_MIN + self.random.small(u32::from(LINES_MAX - LINES_MIN) + 1) as u8;
        let is_rolled_back = self.random.small(100) < self.rolled_back_percent;
        let mut input = NewOrderInput { w_id, d_id, c_id, lines: LineInputs::new(), entry_d };
        for number in 1..=lines {
            let mut i_id = nurand(&mut self.random, A_I_ID, self.constants.i_id, 1, self.scale.items);
            if is_rolled_back && number == lines {
                i_id = self.scale.items + 1;
            }
            let is_remote = self.is_remote(self.remote_lines);
            let supply_w_id = if is_remote { self.other_warehouse(w_id) } else { w_id };
            let quantity = 1 + self.random.small(10) as u8;
            input.lines.push(LineInput { i_id, supply_w_id, quantity });
        }
        input
    }

    /// Draws the input of Payment for a warehouse at a time.
    #[inline]
    pub fn payment(&mut self, w_id: u16, date: Moment) -> PaymentInput {
        let d_id = self.district();
        let (c_w_id, c_d_id) = if self.is_remote(self.remote_payments) {
            (self.other_warehouse(w_id), self.district())
        } else {
            (w_id, d_id)
        };
        let customer = self.customer();
        // Amounts are from 1.00 to 5,000.00.
        let amount = 100 + Cents::from(self.random.small(499_900 + 1));
        PaymentInput { w_id, d_id, c_w_id, c_d_id, customer, amount, date }
    }

    /// Draws a carrier.
    #[inline]
    pub fn carrier(&mut self) -> u8 {
        1 + self.random.small(CARRIERS.into()) as u8
    }

    /// Draws the threshold of Stock-Level, which counts stock below it.
    #[inline]
    pub fn threshold(&mut self) -> i16 {
        10 + self.random.small(11) as i16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chi_square::assert_fits;

    fn parameters(mix: Mix, remote: Remote, warehouses: u16) -> Parameters {
        let scale = Scale::of(warehouses);
        let constants = Constants::draw(&mut Random::of_stream(1, 0));
        let all = KeySet::range(1, warehouses.into()).expect("warehouses");
        Parameters::new(mix, remote, scale, constants, all, Random::of_stream(5, 1))
    }

    #[test]
    fn the_standard_mix_has_its_shares() {
        let mut parameters = parameters(Mix::Standard, Remote::STANDARD, 2);
        let mut counts = [0; 5];
        (0..200_000).for_each(|_| counts[parameters.class() as usize] += 1);
        let shares = Class::STANDARD_PERCENT.map(|percent| f64::from(percent) / 100.0);
        assert_fits("the standard mix", &counts, &shares);
    }

    #[test]
    fn new_order_and_payment_keep_their_proportion() {
        let mut parameters = parameters(Mix::NewOrderPayment, Remote::STANDARD, 2);
        let mut counts = [0; 5];
        (0..200_000).for_each(|_| counts[parameters.class() as usize] += 1);
        assert_eq!(counts[2..], [0; 3]);
        let shares = [Class::NewOrder, Class::Payment].map(|class| Mix::NewOrderPayment.share_of(class));
        assert_fits("both", &counts[..2], &shares);
    }

    #[test]
    fn names_lead_to_mixes_and_back() {
        for (name, class) in Class::NAMES.iter().zip(Class::ALL) {
            assert_eq!(name.parse(), Ok(Mix::Only(class)));
            assert_eq!(Mix::Only(class).to_string(), *name);
        }
        for mix in [Mix::Standard, Mix::NewOrderPayment] {
            assert_eq!(mix.to_string().parse(), Ok(mix));
        }
        let unknown = "fast".parse::<Mix>().unwrap_err().to_string();
        assert!(unknown.contains("'fast'") && unknown.contains("stock-level"), "{unknown}");
    }

    #[test]
    fn orders_are_the_specification_s() {
        let mut parameters = parameters(Mix::Standard, Remote::STANDARD, 4);
        let (mut lengths, mut remote, mut others) = ([0; 11], [0; 2], [0; 4]);
        let (mut rolled_back, mut quantities, mut districts) = ([0; 2], [0; 10], [0; 10]);
        for _ in 0..100_000 {
            let input = parameters.new_order(2, 5);
            lengths[input.lines.len() - 5] += 1;
            districts[usize::from(input.d_id) - 1] += 1;
            let unused = input.lines.iter().filter(|line| line.i_id > 100_000).count();
            rolled_back[unused] += 1;
            assert!(unused == 0 || input.lines.last().is_some_and(|line| line.i_id == 100_001));
            assert!((1..=3000).contains(&input.c_id) && input.w_id == 2 && input.entry_d == 5);
            for line in &input.lines {
                assert!(line.i_id >= 1);
                remote[usize::from(line.supply_w_id != 2)] += 1;
                others[usize::from(line.supply_w_id) - 1] += u64::from(line.supply_w_id != 2);
                quantities[usize::from(line.quantity) - 1] += 1;
            }
        }
        assert_fits("lines", &lengths, &[1.0 / 11.0; 11]);
        assert_fits("rolled back", &rolled_back, &[0.99, 0.01]);
        assert_fits("remote lines", &remote, &[0.99, 0.01]);
        assert_eq!(others[1], 0);
        assert_fits("supplying warehouses", &[others[0], others[2], others[3]], &[1.0 / 3.0; 3]);
        assert_fits("quantities", &quantities, &[0.1; 10]);
        assert_fits("districts", &districts, &[0.1; 10]);
    }

    #[test]
    fn payments_are_the_specification_s() {
        let mut parameters = parameters(Mix::Standard, Remote::STANDARD, 3);
        let (mut remote, mut by_name, mut amounts) = ([0; 2], [0; 2], [0; 10]);
        for _ in 0..100_000 {
            let input = parameters.payment(1, 5);
            remote[usize::from(input.c_w_id != 1)] += 1;
            assert!(input.c_w_id != 1 || input.c_d_id == input.d_id);
            by_name[usize::from(matches!(input.customer, CustomerBy::Name(_)))] += 1;
            assert!((100..=500_000).contains(&input.amount));
            amounts[(((input.amount - 100) * 10 / 499_901) as usize).min(9)] += 1;
        }
        assert_fits("remote payments", &remote, &[0.85, 0.15]);
        assert_fits("customers by name", &by_name, &[0.4, 0.6]);
        assert_fits("amounts", &amounts, &[0.1; 10]);
    }

    #[test]
    fn shares_of_remote_work_are_those_asked_for() {
        for (share, warehouses, expected) in [(0.0, 4, 0.0), (1.0, 4, 1.0), (0.4, 4, 0.4), (1.0, 1, 0.0)] {
            let remote = Remote { payments: share, lines: share };
            let mut parameters = parameters(Mix::Standard, remote, warehouses);
            let (mut payments, mut lines, mut all_lines) = (0, 0, 0);
            for _ in 0..20_000 {
                payments += u32::from(parameters.payment(1, 0).c_w_id != 1);
                let input = parameters.new_order(1, 0);
                lines += input.lines.iter().filter(|line| line.supply_w_id != 1).count();
                all_lines += input.lines.len();
            }
            assert!((f64::from(payments) / 20_000.0 - expected).abs() < 0.02);
            assert!((lines as f64 / all_lines as f64 - expected).abs() < 0.02);
        }
    }

    #[test]
    fn what_remains_is_the_specification_s() {
        let mut parameters = parameters(Mix::Standard, Remote::NONE, 2);
        let (mut carriers, mut thresholds, mut warehouses) = ([0; 10], [0; 11], [0; 2]);
        for _ in 0..50_000 {
            carriers[usize::from(parameters.carrier()) - 1] += 1;
            thresholds[parameters.threshold() as usize - 10] += 1;
            warehouses[usize::from(parameters.warehouse()) - 1] += 1;
        }
        assert_fits("carriers", &carriers, &[0.1; 10]);
        assert_fits("thresholds", &thresholds, &[1.0 / 11.0; 11]);
        assert_fits("warehouses", &warehouses, &[0.5; 2]);
    }
}
