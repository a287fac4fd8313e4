//! Payment (clause 2.5).

use std::future::Future;

use atrapos::{Abort, FixedStr, KeyRange, RowEdit, Transaction};
use serde::{Deserialize, Serialize};

use super::super::parameters::{CustomerBy, PaymentInput};
use super::super::schema::{Cents, Customer, District, History, Moment, Tables, Warehouse};
use super::{Found, middle, note, there};

/// Name and address of a warehouse or district that was paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each field is named after its column")]
pub struct Payee {
    pub name: FixedStr<10>,
    pub street_1: FixedStr<20>,
    pub street_2: FixedStr<20>,
    pub city: FixedStr<20>,
    pub state: FixedStr<2>,
    pub zip: FixedStr<9>,
}

/// The customer who paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each field is named after its column")]
pub struct PayingCustomer {
    pub first: FixedStr<16>,
    pub middle: FixedStr<2>,
    pub last: FixedStr<16>,
    pub street_1: FixedStr<20>,
    pub street_2: FixedStr<20>,
    pub city: FixedStr<20>,
    pub state: FixedStr<2>,
    pub zip: FixedStr<9>,
    pub phone: FixedStr<16>,
    pub since: Moment,
    pub credit: FixedStr<2>,
    pub credit_lim: Cents,
    pub discount: u16,
    pub balance: Cents,
    /// The first 200 characters of the miscellaneous data of a customer with bad credit; otherwise empty.
    pub data: FixedStr<200>,
}

/// A payment that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paid {
    /// The customer's number.
    pub c_id: u32,
    /// The customer.
    pub customer: PayingCustomer,
    /// The warehouse that was paid.
    pub warehouse: Payee,
    /// The district that was paid.
    pub district: Payee,
}

/// Records a payment in a customer's row.
pub fn pay(customer: &mut RowEdit<'_, Customer>, c_id: u32, input: &PaymentInput) -> PayingCustomer {
    let balance = customer.change(|column| column.balance, |balance| balance - input.amount);
    customer.change(|column| column.ytd_payment, |paid| paid + input.amount);
    customer.change(|column| column.payment_cnt, |count| count + 1);
    let credit = customer.get(|column| column.credit);
    let mut data = FixedStr::default();
    if credit == *"BC" {
        let noted = customer.change(|column| column.data, |data| with_payment(&data, c_id, input));
        data = cut(noted.padded());
    }
    PayingCustomer {
        first: customer.get(|column| column.first),
        middle: customer.get(|column| column.middle),
        last: customer.get(|column| column.last),
        street_1: customer.get(|column| column.street_1),
        street_2: customer.get(|column| column.street_2),
        city: customer.get(|column| column.city),
        state: customer.get(|column| column.state),
        zip: customer.get(|column| column.zip),
        phone: customer.get(|column| column.phone),
        since: customer.get(|column| column.since),
        credit,
        credit_lim: customer.get(|column| column.credit_lim),
        discount: customer.get(|column| column.discount),
        balance,
        data,
    }
}

/// Adds an amount to what a warehouse or a district has been paid, and returns whom the customer has paid.
macro_rules! pay_to {
    ($row:ident, $amount:expr) => {{
        $row.change(|column| column.ytd, |ytd| ytd + $amount);
        Payee {
            name: $row.get(|column| column.name),
            street_1: $row.get(|column| column.street_1),
            street_2: $row.get(|column| column.street_2),
            city: $row.get(|column| column.city),
            state: $row.get(|column| column.state),
            zip: $row.get(|column| column.zip),
        }
    }};
}

/// Returns the beginning of a text, as far as it fits; all characters are ASCII.
fn cut<const N: usize>(text: &[u8]) -> FixedStr<N> {
    FixedStr::from_padded(std::array::from_fn(|at| text.get(at).copied().unwrap_or(0))).unwrap_or_default()
}

/// Returns the miscellaneous data of a customer with bad credit after a payment: the payment, followed by the previous
/// data, as far as it fits.
fn with_payment(data: &FixedStr<500>, c_id: u32, input: &PaymentInput) -> FixedStr<500> {
    let PaymentInput { w_id, d_id, c_w_id, c_d_id, amount, .. } = *input;
    let mut text = Text { bytes: [0; 500], len: 0 };
    for number in [u64::from(c_id), c_d_id.into(), c_w_id.into(), d_id.into(), w_id.into()] {
        text.number(number);
        text.push(b" ");
    }
    let cents = amount.unsigned_abs();
    text.number(cents / 100);
    text.push(&[b'.', b'0' + (cents / 10 % 10) as u8, b'0' + (cents % 10) as u8, b' ']);
    text.push(data.padded());
    cut(&text.bytes)
}

/// A buffer for text that is assembled without an allocation; text that does not fit is omitted.
struct Text {
    bytes: [u8; 500],
    len: usize,
}

impl Text {
    fn push(&mut self, more: &[u8]) {
        let more = &more[..more.len().min(self.bytes.len() - self.len)];
        self.bytes[self.len..self.len + more.len()].copy_from_slice(more);
        self.len += more.len();
    }

    fn number(&mut self, mut number: u64) {
        let mut digits = [0; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return self.push(&digits[first..]);
            }
        }
    }
}

/// Adds an amount to what a warehouse has been paid.
#[inline]
pub fn pay_warehouse(warehouse: &mut RowEdit<'_, Warehouse>, amount: Cents) -> Payee {
    pay_to!(warehouse, amount)
}

/// Adds an amount to what a district has been paid, and takes the number of its next row of history; returns both.
#[inline]
pub fn pay_district(district: &mut RowEdit<'_, District>, amount: Cents) -> (Payee, u32) {
    let next = district.change(|column| column.next_h_id, |next| next + 1);
    (pay_to!(district, amount), next - 1)
}

/// Returns the data of the row of history: both names with four spaces between them.
#[must_use]
pub fn history_data(warehouse: &FixedStr<10>, district: &FixedStr<10>) -> FixedStr<24> {
    let mut bytes = [0; 24];
    let (first, second) = (warehouse.len(), district.len());
    bytes[..first].copy_from_slice(&warehouse.padded()[..first]);
    bytes[first..first + 4].fill(b' ');
    bytes[first + 4..first + 4 + second].copy_from_slice(&district.padded()[..second]);
    cut(&bytes)
}

/// Runs a payment of a customer, possibly one of another warehouse.
///
/// # Errors
/// The errors of [`Transaction::run`].
pub fn payment(
    tx: &mut impl Transaction,
    tables: Tables,
    input: PaymentInput,
) -> impl Future<Output = Result<Paid, Abort>> {
    async move {
        let PaymentInput { w_id, d_id, c_w_id, c_d_id, amount, date, .. } = input;
        let paying = move |c_id| {
            let pay = move |customer: &mut RowEdit<'_, Customer>| (c_id, pay(customer, c_id, &input));
            tables.customer.edit((c_w_id, c_d_id, c_id), pay)
        };
        let paying = match input.customer {
            CustomerBy::Id(c_id) => tx.run(paying(c_id)).await?,
            CustomerBy::Name(last) => {
                let (by_name, range) = (tables.customer_by_name, KeyRange::prefix(&(c_w_id, c_d_id, last)));
                let pay = move |found| middle(&found).map(paying);
                tx.lookup_then(by_name, range, Found::new(), note, pay).await?.flatten()
            }
        };
        let (c_id, customer) = there(paying)?;
        let (warehouse, district) = tx
            .join((
                tables.warehouse.edit(w_id, move |warehouse| pay_warehouse(warehouse, amount)),
                tables.district.edit((w_id, d_id), move |district| pay_district(district, amount)),
            ))
            .await?;
        let (warehouse, (district, h_id)) = (there(warehouse)?, there(district)?);
        let data = history_data(&warehouse.name, &district.name);
        let row = History { c_id, c_d_id, c_w_id, date, amount, data };
        tx.insert(tables.history, (w_id, d_id, h_id), row).await?;
        Ok(Paid { c_id, customer, warehouse, district })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::parameters::CustomerBy;
    use super::*;

    #[test]
    fn bad_credit_is_written_down_in_front() {
        let input = PaymentInput {
            w_id: 12,
            d_id: 3,
            c_w_id: 700,
            c_d_id: 10,
            customer: CustomerBy::Id(4),
            amount: 123_405,
            date: 1,
        };
        let before = FixedStr::new("abc").expect("short");
        let after = with_payment(&before, 2999, &input);
        assert_eq!(after.as_str(), "2999 10 700 3 12 1234.05 abc");
        let full = FixedStr::new(&"y".repeat(500)).expect("500");
        let cut = with_payment(&full, 2999, &input);
        assert_eq!((cut.len(), cut.as_str().matches('y').count()), (500, 500 - 25));
    }

    #[test]
    fn history_names_both() {
        let [warehouse, district] = ["Wolfsburg1", "Dover"].map(|name| FixedStr::new(name).expect("short"));
        assert_eq!(history_data(&warehouse, &district).as_str(), "Wolfsburg1    Dover");
        assert_eq!(history_data(&warehouse, &warehouse).len(), 24);
    }
}
