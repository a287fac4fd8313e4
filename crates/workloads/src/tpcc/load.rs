//! Loading of the population, and its size.
//!
//! Owns: the order in which rows are added: each table's in order of its keys. Never: generates a row.

use atrapos::{Database, LoadError, LoadProgress, Loader, Row};

use super::generator::{OrderWithLines, Population, Scale};
use super::schema::{
    Customer, DISTRICTS, District, History, Item, NewOrder, Order, OrderLine, Stock, Tables, Warehouse,
};

/// Adds all rows, those of each warehouse on the worker that owns it.
pub(super) fn load(population: Population, db: &Database, progress: &LoadProgress) -> Result<u64, LoadError> {
    let tables = Tables::of(db).map_err(|error| LoadError::Source(error.to_string()))?;
    db.load(progress, move |loader| {
        for w_id in 1..=population.scale().warehouses {
            if loader.owns(tables.warehouse, &w_id) {
                add_warehouse(loader, tables, &population, w_id)?;
            }
        }
        Ok(())
    })
}

fn add_warehouse(
    loader: &mut Loader<'_>,
    tables: Tables,
    population: &Population,
    w_id: u16,
) -> Result<(), LoadError> {
    loader.add(tables.warehouse, &w_id, &population.warehouse(w_id))?;
    for i_id in 1..=population.scale().items {
        loader.add(tables.item, &(w_id, i_id), &population.item(i_id))?;
        loader.add(tables.stock, &(w_id, i_id), &population.stock(w_id, i_id))?;
    }
    (1..=DISTRICTS).try_for_each(|d_id| add_district(loader, tables, population, w_id, d_id))
}

fn add_district(
    loader: &mut Loader<'_>,
    tables: Tables,
    population: &Population,
    w_id: u16,
    d_id: u8,
) -> Result<(), LoadError> {
    loader.add(tables.district, &(w_id, d_id), &population.district(w_id, d_id))?;
    for (number, c_id_of_order) in (1..).zip(population.customers_of_orders(w_id, d_id)) {
        let key = (w_id, d_id, number);
        loader.add(tables.customer, &key, &population.customer(w_id, d_id, number))?;
        loader.add(tables.history, &key, &population.history(w_id, d_id, number))?;
        let OrderWithLines { order, lines } = population.order(w_id, d_id, number, c_id_of_order);
        loader.add(tables.order, &key, &order)?;
        for (ol_number, line) in (1..).zip(&lines) {
            loader.add(tables.order_line, &(w_id, d_id, number, ol_number), line)?;
        }
        if order.carrier_id == 0 {
            loader.add(tables.new_order, &key, &NewOrder {})?;
        }
    }
    Ok(())
}

/// Mean number of lines of an order.
const LINES_MEAN: u64 = 10;

/// Returns the numbers of customers of a warehouse, which is that of its orders, and of undelivered orders.
fn customers_and_undelivered(scale: Scale) -> (u64, u64) {
    let undelivered = scale.customers - scale.delivered();
    let all = |of_district: u32| u64::from(of_district) * u64::from(DISTRICTS);
    (all(scale.customers), all(undelivered))
}

/// Returns the mean number of rows of a warehouse.
pub(super) fn rows_per_warehouse(scale: Scale) -> u64 {
    let (customers, undelivered) = customers_and_undelivered(scale);
    1 + u64::from(DISTRICTS) + customers * (3 + LINES_MEAN) + undelivered + 2 * u64::from(scale.items)
}

/// Returns the mean encoded bytes of the rows, index entries and keys of a warehouse.
pub(super) fn encoded_bytes_per_warehouse(scale: Scale) -> u64 {
    let (customers, undelivered) = customers_and_undelivered(scale);
    // Keys are 2 bytes of a warehouse, 1 of a district, 4 of a customer, item or order, 1 of a line; index entries lead to keys
    // of 7 bytes.
    let customer = (7 + Customer::FIXED_BYTES) + (39 + 7);
    let order = (7 + Order::FIXED_BYTES) + (11 + 7);
    let per_customer = customer + (7 + History::FIXED_BYTES) + order;
    let line = 8 + OrderLine::FIXED_BYTES;
    let (item, stock) = (6 + Item::FIXED_BYTES, 6 + Stock::FIXED_BYTES);
    let district = 3 + District::FIXED_BYTES;
    (2 + Warehouse::FIXED_BYTES) as u64
        + u64::from(DISTRICTS) * district as u64
        + customers * (per_customer as u64 + LINES_MEAN * line as u64)
        + undelivered * (7 + NewOrder::FIXED_BYTES) as u64
        + u64::from(scale.items) * (item + stock) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warehouse_of_the_specification_has_its_cardinalities() {
        let scale = Scale::of(1);
        assert_eq!(customers_and_undelivered(scale), (30_000, 9_000));
        assert_eq!(rows_per_warehouse(scale), 1 + 10 + 30_000 * 13 + 9_000 + 200_000);
        let bytes = encoded_bytes_per_warehouse(scale);
        assert!((70_000_000..110_000_000).contains(&bytes), "{bytes}");
    }
}
