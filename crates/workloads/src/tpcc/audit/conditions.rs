//! The twelve consistency conditions of clause 3.3.2, each in words and numbers.
//!
//! Owns: the conditions. Never: reads the database: the rows are passed to it.
//!
//! Condition 11 is stated by the specification for a freshly loaded database: of every district's orders, 2,100 are
//! delivered. Here it also takes into account the deliveries counted in the customers' rows. For a district without new
//! orders, conditions 2 and 3 only require that its orders are numbered consecutively.

use super::super::generator::Population;
use super::super::schema::Cents;
use super::{Findings, WarehouseRead, refuse};
use crate::workload::AuditError;

/// Sums over the rows of one district.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DistrictSums {
    pub(super) ytd: Cents,
    pub(super) next_o_id: u32,
    /// Largest number of an order.
    pub(super) o_id_max: u32,
    pub(super) orders: u32,
    /// Smallest and largest number of a new order.
    pub(super) new_orders_from: u32,
    pub(super) new_orders_to: u32,
    pub(super) new_orders: u32,
    /// Sum of the orders' numbers of lines.
    pub(super) ol_cnt: u64,
    pub(super) order_lines: u64,
    /// Sum of the payments to the district.
    pub(super) history: Cents,
    /// Sum of its customers' numbers of deliveries.
    pub(super) delivery_cnt: u64,
}

/// Checks that a condition holds: `found` is the value that the condition names first.
pub(super) fn hold(
    number: u8,
    place: impl FnOnce() -> String,
    what: &'static str,
    found: impl TryInto<i64>,
    expected: impl TryInto<i64>,
) -> Result<(), AuditError> {
    let [found, expected] = [found.try_into().unwrap_or(i64::MAX), expected.try_into().unwrap_or(i64::MAX)];
    if found == expected {
        return Ok(());
    }
    Err(AuditError::Condition { number, place: place(), what, expected, found })
}

/// Checks conditions 2, 3, 4, 9 and 11, each for one district.
pub(super) fn check_district(
    population: &Population,
    w_id: u16,
    d_id: u8,
    sums: &DistrictSums,
) -> Result<(), AuditError> {
    let place = || format!("warehouse {w_id}, district {d_id}");
    let last = sums.next_o_id.saturating_sub(1);
    hold(2, place, "D_NEXT_O_ID - 1 and max(O_ID)", last, sums.o_id_max)?;
    if sums.new_orders > 0 {
        hold(2, place, "D_NEXT_O_ID - 1 and max(NO_O_ID)", last, sums.new_orders_to)?;
        let span = sums.new_orders_to - sums.new_orders_from + 1;
        hold(3, place, "max(NO_O_ID) - min(NO_O_ID) + 1 and the rows of new_order", span, sums.new_orders)?;
    }
    hold(4, place, "sum(O_OL_CNT) and the rows of order_line", sums.ol_cnt, sums.order_lines)?;
    hold(9, place, "D_YTD and sum(H_AMOUNT)", sums.ytd, sums.history)?;
    let delivered = i64::from(sums.orders) - i64::from(sums.new_orders);
    let known = u64::from(population.scale().delivered()) + sums.delivery_cnt;
    hold(11, place, "orders that are delivered and those loaded so or known to customers", delivered, known)
}

/// Checks conditions 1 and 8 for one warehouse.
pub(super) fn check_warehouse(
    w_id: u16,
    ytd: Cents,
    districts: Cents,
    history: Cents,
) -> Result<(), AuditError> {
    let place = || format!("warehouse {w_id}");
    hold(1, place, "W_YTD and sum(D_YTD)", ytd, districts)?;
    hold(8, place, "W_YTD and sum(H_AMOUNT)", ytd, history)
}

/// The properties of an order that the conditions refer to.
#[derive(Clone, Copy, Debug)]
pub(super) struct OrderSeen {
    pub(super) o_id: u32,
    pub(super) is_delivered: bool,
    pub(super) is_new: bool,
    pub(super) ol_cnt: u8,
    pub(super) lines: usize,
    /// Number of lines that are delivered.
    pub(super) lines_delivered: usize,
}

/// Checks conditions 5, 6 and 7 for one order.
pub(super) fn check_order(w_id: u16, d_id: u8, order: &OrderSeen) -> Result<(), AuditError> {
    let place = || format!("warehouse {w_id}, district {d_id}, order {}", order.o_id);
    let has_row = u8::from(order.is_new);
    hold(5, place, "rows of new_order and O_CARRIER_ID being null", has_row, u8::from(!order.is_delivered))?;
    hold(6, place, "O_OL_CNT and the rows of order_line", order.ol_cnt, order.lines as u64)?;
    let expected = if order.is_delivered { order.lines as u64 } else { 0 };
    hold(7, place, "lines with OL_DELIVERY_D and O_CARRIER_ID", order.lines_delivered as u64, expected)
}

/// Checks conditions 10 and 12 for all customers of a warehouse, and their numbers of payments and deliveries.
pub(super) fn check_customers(population: &Population, warehouse: &WarehouseRead, findings: &mut Findings) {
    let per_district = population.scale().customers;
    for (at, customer) in (0_u32..).zip(&warehouse.customers) {
        let place = || {
            let (d_id, c_id) = (at / per_district + 1, at % per_district + 1);
            format!("warehouse {}, district {d_id}, customer {c_id}", warehouse.w_id)
        };
        let owed = customer.delivered - customer.paid;
        findings.note(hold(
            10,
            place,
            "C_BALANCE and sum(OL_AMOUNT) - sum(H_AMOUNT)",
            customer.balance,
            owed,
        ));
        let received = customer.balance + customer.ytd_payment;
        let what = "C_BALANCE + C_YTD_PAYMENT and sum(OL_AMOUNT)";
        findings.note(hold(12, place, what, received, customer.delivered));
        for (found, expected, what) in [
            (customer.payment_cnt, customer.payments, "C_PAYMENT_CNT is not the number of rows of history"),
            (
                customer.delivery_cnt,
                customer.deliveries,
                "C_DELIVERY_CNT is not the number of orders delivered",
            ),
        ] {
            if found != expected {
                findings.note(Err(refuse("customer", place(), what)));
            }
        }
    }
}
