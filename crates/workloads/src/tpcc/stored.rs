//! The transactions of TPC-C by their names.

use super::parameters::{NewOrderInput, PaymentInput};
use super::procedures::{
    self, DeliverFrom, Delivered, OrderPlaced, OrderStatus, Paid, RecentOrders, StatusOf,
};
use super::schema::{DISTRICTS, Tables};

atrapos::stored_procedures! {
    /// New-Order. See [`new_order`](procedures::new_order). Its home is the customer's.
    pub NewOrder("tpcc.new-order", "new-order") { input: NewOrderInput } -> OrderPlaced;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.customer.at(&(own.input.w_id, own.input.d_id, own.input.c_id));
    stays_home: |own| own.input.lines.iter().all(|line| line.supply_w_id == own.input.w_id);
    run: |own, tx, tables| procedures::new_order(tx, *tables, &own.input);

    /// Payment. See [`payment`](procedures::payment). Its home is that of the district that is paid.
    pub Payment("tpcc.payment", "payment") { input: PaymentInput } -> Paid;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.district.at(&(own.input.w_id, own.input.d_id));
    stays_home: |own| own.input.c_w_id == own.input.w_id;
    run: |own, tx, tables| procedures::payment(tx, *tables, own.input);

    /// Order-Status. See [`order_status`](procedures::order_status).
    pub StatusOfOrder("tpcc.order-status", "order-status") { of: StatusOf } -> OrderStatus;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.district.at(&(own.of.w_id, own.of.d_id));
    run: |own, tx, tables| procedures::order_status(tx, *tables, own.of);

    /// The first transaction of a delivery. See [`next_orders`](procedures::next_orders).
    pub NextOrders("tpcc.next-orders", "delivery") { w_id: u16 } -> [u32; DISTRICTS as usize];
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.warehouse.at(&own.w_id);
    run: |own, tx, tables| procedures::next_orders(tx, *tables, own.w_id);

    /// The delivery of one order. See [`deliver`](procedures::deliver).
    pub Deliver("tpcc.deliver", "delivery") { from: DeliverFrom } -> Option<Delivered>;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.district.at(&(own.from.w_id, own.from.d_id));
    run: |own, tx, tables| procedures::deliver(tx, *tables, own.from);

    /// The first statement of Stock-Level. See [`next_order`](procedures::next_order).
    pub NextOrder("tpcc.next-order", "stock-level") { w_id: u16, d_id: u8 } -> u32;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.district.at(&(own.w_id, own.d_id));
    run: |own, tx, tables| procedures::next_order(tx, *tables, own.w_id, own.d_id);

    /// The second statement of Stock-Level. See [`recent_items`](procedures::recent_items).
    pub RecentItems("tpcc.recent-items", "stock-level") { w_id: u16, d_id: u8, next: u32 } -> RecentOrders;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.district.at(&(own.w_id, own.d_id));
    run: |own, tx, tables| procedures::recent_items(tx, *tables, own.w_id, own.d_id, own.next);

    /// The third statement of Stock-Level. See [`count_low`](procedures::count_low).
    pub CountLow("tpcc.count-low", "stock-level") { w_id: u16, items: RecentOrders, threshold: i16 } -> u32;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.stock.at(&(own.w_id, own.items.first().copied().unwrap_or(0)));
    run: |own, tx, tables| procedures::count_low(tx, *tables, own.w_id, &own.items, own.threshold);

    /// Stock-Level as one transaction. See [`stock_level`](procedures::stock_level).
    pub StockLevel("tpcc.stock-level", "stock-level") { w_id: u16, d_id: u8, threshold: i16 } -> u32;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.district.at(&(own.w_id, own.d_id));
    run: |own, tx, tables| procedures::stock_level(tx, *tables, own.w_id, own.d_id, own.threshold);
}
