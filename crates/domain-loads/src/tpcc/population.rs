//! Loading of the population into the tables of a part: the rows of the generator, those of each worker by that worker.
//!
//! Owns: which worker loads which rows. Never: generates one.

use atrapos_storage::FixedStr;
use atrapos_structures::Refused;
use atrapos_workloads::tpcc::generator::{OrderWithLines, Population};
use atrapos_workloads::tpcc::schema::{DISTRICTS, NewOrder};

use super::tables::{Session, Table, key, name_key};

/// A worker among those of a part's domain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    pub(super) number: usize,
    pub(super) of: usize,
}

impl Seat {
    fn has(self, number: u32) -> bool {
        number as usize % self.of == self.number
    }
}

/// Adds the rows of these warehouses that fall to a worker.
pub(super) fn load(
    tables: &mut Session,
    population: &Population,
    warehouses: &[u16],
    seat: Seat,
) -> Result<(), Refused> {
    for &w_id in warehouses {
        if seat.has(u32::from(w_id)) {
            tables.insert(Table::Warehouse, key(w_id, 0, 0, 0), &population.warehouse(w_id))?;
        }
        for i_id in (1..=population.scale().items).filter(|i_id| seat.has(*i_id)) {
            tables.insert(Table::Item, key(w_id, 0, i_id, 0), &population.item(i_id))?;
            tables.insert(Table::Stock, key(w_id, 0, i_id, 0), &population.stock(w_id, i_id))?;
        }
        for d_id in (1..=DISTRICTS).filter(|d_id| seat.has(u32::from(*d_id))) {
            load_district(tables, population, w_id, d_id)?;
        }
    }
    Ok(())
}

fn load_district(tables: &mut Session, population: &Population, w_id: u16, d_id: u8) -> Result<(), Refused> {
    tables.insert(Table::District, key(w_id, d_id, 0, 0), &population.district(w_id, d_id))?;
    let mut names: Vec<(FixedStr<16>, FixedStr<16>, u32)> = Vec::new();
    for (number, c_id_of_order) in (1..).zip(population.customers_of_orders(w_id, d_id)) {
        let of_number = key(w_id, d_id, number, 0);
        let customer = population.customer(w_id, d_id, number);
        names.push((customer.last, customer.first, number));
        tables.insert(Table::Customer, of_number, &customer)?;
        tables.insert(Table::History, of_number, &population.history(w_id, d_id, number))?;
        let OrderWithLines { order, lines } = population.order(w_id, d_id, number, c_id_of_order);
        tables.insert(Table::Order, of_number, &order)?;
        for (ol_number, line) in (1..).zip(&lines) {
            tables.insert(Table::OrderLine, key(w_id, d_id, number, ol_number), line)?;
        }
        if order.carrier_id == 0 {
            tables.insert(Table::NewOrder, of_number, &NewOrder {})?;
        }
    }
    // Of the customers with one name, sorted by first name, the one at half their number, rounded up.
    names.sort_unstable_by(|a, b| (a.0.padded(), a.1.padded(), a.2).cmp(&(b.0.padded(), b.1.padded(), b.2)));
    for same in names.chunk_by(|a, b| a.0 == b.0) {
        let (name, _, c_id) = same[same.len().div_ceil(2) - 1];
        tables.add(Table::CustomerByName, name_key(w_id, d_id, &name), c_id.into())?;
    }
    Ok(())
}
