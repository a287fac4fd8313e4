//! Recording mode: the flow graphs of classes whose shape is known, and runs that cannot be recorded.

use atrapos::{
    Abort, AbortReason, ClassRecording, Database, KeyRange, LoadProgress, RecordedFlow, Schema, Table, Tx,
    row,
};
use atrapos_adapt::{FlowAction, FlowOperation};
use atrapos_durability::file::ModelFiles;

use crate::durable::notes::{self, Note, Notes};
use crate::indexes::{ByCity, ByEmail, Users, user, users};
use crate::support::{Items, Random, item, load_items, open, two_tables};

/// A graph in short: `R(items) 1..1` for an action, and the arrows between them.
fn actions(flow: &RecordedFlow) -> Vec<String> {
    let short = |action: &FlowAction| {
        let table = &flow.tables[action.table.index()];
        format!("{}({table}) {}..{}", action.operation.letter(), action.repeat_min, action.repeat_max)
    };
    flow.class.actions.iter().map(short).collect()
}

fn edges(flow: &RecordedFlow) -> Vec<(u32, u32, &str)> {
    flow.class.dependencies.iter().map(|edge| (edge.from, edge.to, edge.key.as_str())).collect()
}

fn meetings(flow: &RecordedFlow) -> Vec<&[u32]> {
    flow.class.sync_points.iter().map(|point| &*point.actions).collect()
}

/// Whatever was recorded, the graph is one that the planner takes.
fn checked(flow: RecordedFlow) -> RecordedFlow {
    flow.class.check(flow.tables.len()).expect("a graph without contradictions");
    let families = flow.families.iter().max().map_or(0, |last| *last as usize + 1);
    flow.class_by_family().check(families).expect("a graph without contradictions");
    let mut placed: Vec<u32> = flow.phases.iter().flatten().copied().collect();
    placed.sort_unstable();
    assert!(placed.into_iter().eq(0..flow.class.actions.len() as u32), "every action is in one phase");
    assert_eq!(flow.sync_phases.len(), flow.class.sync_points.len());
    assert_eq!(flow.actions.len(), flow.class.actions.len());
    flow
}

/// Tables of the shape of TPC-C's, with only the columns that lead somewhere.
macro_rules! tables {
    ($($table:ident $name:literal $row:ident [$($column:ident),*] $key:ty [$($part:literal),*];)*) => {$(
        row! { #[derive(Clone, Debug)] struct $row { $($column: u32,)* noise: u32 } }
        struct $table;
        impl Table for $table {
            type Key = $key;
            type Row = $row;
            const NAME: &'static str = $name;
            const KEY_COLUMNS: &'static [&'static str] = &[$($part),*];
        }
    )*};
}

tables! {
    Warehouses "warehouse" Warehouse [] u16 ["w_id"];
    Districts "district" District [next_o_id] (u16, u8) ["w_id", "d_id"];
    Customers "customer" Customer [] (u16, u8, u32) ["w_id", "d_id", "c_id"];
    Orders "orders" Order [] (u16, u8, u32) ["w_id", "d_id", "o_id"];
    NewOrders "new_order" NewOrder [] (u16, u8, u32) ["w_id", "d_id", "o_id"];
    OrderLines "order_line" OrderLine [i_id] (u16, u8, u32, u8) ["w_id", "d_id", "o_id", "number"];
    Stocks "stock" Stock [quantity] (u16, u32) ["w_id", "i_id"];
    Products "item" Product [] u32 ["i_id"];
}

const WAREHOUSES: u16 = 5;
const DISTRICTS: u8 = 4;
const CUSTOMERS: u32 = 30;
const PRODUCTS: u32 = 200;

fn shop() -> Database {
    let schema = Schema::new()
        .table::<Warehouses>()
        .table::<Districts>()
        .table::<Customers>()
        .table::<Orders>()
        .table::<NewOrders>()
        .table::<OrderLines>()
        .table::<Stocks>()
        .table::<Products>()
        .foreign_key_by_prefix::<NewOrders, Orders>(|key| *key, false)
        .foreign_key_by_prefix::<OrderLines, Orders>(|(w, d, o, _)| (*w, *d, *o), false);
    let db = open(schema, 1);
    let (warehouses, districts, customers) = (table(&db), table(&db), table(&db));
    let (stocks, products) = (table(&db), table(&db));
    let loaded = db.load(&LoadProgress::default(), move |loader| {
        let mut random = Random::new(5);
        let mut noise = move || random.next() as u32;
        for w in 0..WAREHOUSES {
            loader.add::<Warehouses>(warehouses, &w, &Warehouse { noise: noise() })?;
            for d in 0..DISTRICTS {
                let next_o_id = 3000 + 100 * u32::from(w) + u32::from(d);
                loader.add::<Districts>(districts, &(w, d), &District { next_o_id, noise: noise() })?;
                for c in 0..CUSTOMERS {
                    loader.add::<Customers>(customers, &(w, d, c), &Customer { noise: noise() })?;
                }
            }
            for i in 0..PRODUCTS {
                loader.add::<Stocks>(stocks, &(w, i), &Stock { quantity: noise(), noise: noise() })?;
            }
        }
        (0..PRODUCTS).try_for_each(|i| loader.add::<Products>(products, &i, &Product { noise: noise() }))
    });
    loaded.expect("the shop is loaded");
    db
}

fn table<T: Table>(db: &Database) -> atrapos::TableRef<T> {
    db.table().expect("it is in the schema")
}

/// An order in phases, as the paper has it; one that names an item which is not there is taken back.
async fn new_order(
    tx: &mut Tx<'_>,
    db: &Shop,
    w: u16,
    d: u8,
    c: u32,
    lines: &[(u16, u32)],
) -> Result<(), Abort> {
    let Shop { warehouses, districts, customers, orders, new_orders, order_lines, stocks, products } = *db;
    let next = districts.update((w, d), |row| {
        row.next_o_id += 1;
        row.next_o_id - 1
    });
    let (_, o, _) = tx.join((warehouses.get(w), next, customers.get((w, d, c)))).await?;
    let o = o.ok_or_else(|| Abort::user("no such district"))?;
    let (order, new_order) = (Order { noise: 1 }, NewOrder { noise: 2 });
    tx.join((orders.insert((w, d, o), order), new_orders.insert((w, d, o), new_order))).await?;
    // One after the other: a loop of two actions.
    for (supplier, i) in lines {
        tx.get(products, *i).await?.ok_or_else(|| Abort::user("no such item"))?;
        tx.update(stocks, (*supplier, *i), |row| row.quantity = row.quantity.wrapping_sub(1)).await?;
    }
    let insert = |(at, (_, i)): (usize, &(u16, u32))| {
        order_lines.insert((w, d, o, at as u8), OrderLine { i_id: *i, noise: 3 })
    };
    tx.join_all(lines.iter().enumerate().map(insert)).await.map(drop)
}

#[derive(Clone, Copy)]
struct Shop {
    warehouses: atrapos::TableRef<Warehouses>,
    districts: atrapos::TableRef<Districts>,
    customers: atrapos::TableRef<Customers>,
    orders: atrapos::TableRef<Orders>,
    new_orders: atrapos::TableRef<NewOrders>,
    order_lines: atrapos::TableRef<OrderLines>,
    stocks: atrapos::TableRef<Stocks>,
    products: atrapos::TableRef<Products>,
}

impl Shop {
    fn of(db: &Database) -> Shop {
        Shop {
            warehouses: table(db),
            districts: table(db),
            customers: table(db),
            orders: table(db),
            new_orders: table(db),
            order_lines: table(db),
            stocks: table(db),
            products: table(db),
        }
    }
}

/// Records `runs` orders; `fails` says which of them name an item that is not there.
fn record_orders(db: &Database, runs: u64, fails: impl Fn(u64) -> bool) -> ClassRecording {
    let shop = Shop::of(db);
    let mut random = Random::new(11);
    let mut class = ClassRecording::new(db);
    for run in 0..runs {
        let (w, d) = (random.below(WAREHOUSES.into()) as u16, random.below(DISTRICTS.into()) as u8);
        let c = random.below(CUSTOMERS.into()) as u32;
        let mut lines: Vec<(u16, u32)> = (0..5 + random.below(11))
            .map(|_| {
                // One in a hundred comes from another warehouse.
                let supplier = if random.chance(1) { (w + 1) % WAREHOUSES } else { w };
                (supplier, random.below(PRODUCTS.into()) as u32)
            })
            .collect();
        if fails(run) {
            lines.last_mut().expect("five at least").1 = PRODUCTS;
        }
        let order = async move |tx: &mut Tx<'_>| new_order(tx, &shop, w, d, c, &lines).await;
        let (outcome, recorded) = db.record(shop.warehouses.at(&w), order).expect("recorded");
        assert_eq!(outcome.is_err(), fails(run), "{outcome:?}");
        assert_eq!(recorded.is_aborted(), fails(run));
        class.add(recorded).expect("of this database");
    }
    class
}

#[test]
fn an_order_has_the_flow_graph_of_the_paper() {
    let db = shop();
    let flow = checked(record_orders(&db, 300, |_| false).flow("new-order"));
    assert_eq!(
        actions(&flow),
        [
            "R(warehouse) 1..1",
            "U(district) 1..1",
            "R(customer) 1..1",
            "I(orders) 1..1",
            "I(new_order) 1..1",
            "R(item) 5..15",
            "U(stock) 5..15",
            "I(order_line) 5..15",
        ]
    );
    assert_eq!(
        edges(&flow),
        [
            (0, 1, "w_id"),
            (1, 2, "w_id, d_id"),
            (1, 3, "w_id, d_id, o_id"),
            (3, 4, "w_id, d_id, o_id"),
            (0, 6, "w_id"),
            (5, 6, "i_id"),
            (3, 7, "w_id, d_id, o_id"),
        ]
    );
    assert_eq!(flow.phases, [vec![0, 1, 2], vec![3, 4], vec![5], vec![6], vec![7]]);
    // The items have nothing to do with what was before: they meet the home.
    assert_eq!(meetings(&flow), [&[0, 1, 2][..], &[1, 3, 4], &[0, 5], &[0, 5, 6], &[3, 7]]);
    assert_eq!((flow.class.count, flow.aborted), (300, 0));
    let by: Vec<String> = flow.actions.iter().map(|action| action.by.join(" ")).collect();
    assert_eq!(by[6..], ["w_id i_id", "w_id d_id o_id number"]);
    assert!(flow.actions.iter().all(|action| !action.follows));
    // Keys of 7 and rows of 4 bytes, in both tables.
    assert_eq!(flow.class.sync_points[1].bytes, 2 * (7 + 4));
}

#[test]
fn what_some_runs_leave_out_repeats_from_zero_on() {
    let db = shop();
    let flow = checked(record_orders(&db, 100, |run| run % 4 == 1).flow("new-order"));
    assert_eq!(actions(&flow)[5..], ["R(item) 5..15", "U(stock) 4..15", "I(order_line) 0..15"]);
    assert_eq!(flow.aborted, 25);
    // Runs that leave out the end, or come later, change no edge.
    assert_eq!(edges(&flow).len(), 7);
    let first = checked(record_orders(&db, 20, |run| run == 0).flow("new-order"));
    assert_eq!(actions(&first).len(), 8, "an action that the first run leaves out is in the graph");
    assert_eq!(first.class.actions[7].repeat_min, 0);
}

#[test]
fn the_accesses_of_indexes_are_actions() {
    let db = open(users(), 1);
    let (table, by_email, by_city) = (table::<Users>(&db), db.index::<ByEmail>(), db.index::<ByCity>());
    let (by_email, by_city) = (by_email.expect("declared"), by_city.expect("declared"));
    for id in 0..90 {
        let row = user(id as u32 % 7, &format!("user{id}"));
        db.run(table.at(&id), async move |tx| tx.insert(table, id, row.clone()).await).expect("inserted");
    }
    let (mut found, mut moved, mut listed) =
        (ClassRecording::new(&db), ClassRecording::new(&db), ClassRecording::new(&db));
    for id in 0..90_u64 {
        let email = format!("user{id}");
        let by = async move |tx: &mut Tx<'_>| tx.get_by(by_email, table, email.clone()).await;
        found.add(db.record(table.at(&id), by).expect("recorded").1).expect("of this database");
        let city = 100 + id as u32;
        let change = async move |tx: &mut Tx<'_>| tx.update(table, id, move |row| row.city = city).await;
        moved.add(db.record(table.at(&id), change).expect("recorded").1).expect("of this database");
        let list = async move |tx: &mut Tx<'_>| {
            let range = KeyRange::prefix(&city);
            for id in tx.lookup_all(by_city, range, 10).await? {
                tx.get(table, id).await?;
            }
            Ok(())
        };
        listed.add(db.record(table.at(&id), list).expect("recorded").1).expect("of this database");
    }
    let found = checked(found.flow("by-email"));
    assert_eq!(actions(&found), ["R(users_by_email) 1..1", "R(users) 1..1"]);
    assert_eq!(edges(&found), [(0, 1, "users.0")]);
    let listed = checked(listed.flow("by-city"));
    assert_eq!(actions(&listed), ["S(users_by_city) 1..1", "R(users) 1..1"]);
    assert_eq!(edges(&listed), [(0, 1, "users.0")]);
    let moved = checked(moved.flow("move"));
    let entries = ["D(users_by_city) 1..1", "I(users_by_city) 1..1"];
    assert_eq!(actions(&moved), ["U(users) 1..1", entries[0], entries[1]]);
    assert_eq!(moved.actions.iter().map(|action| action.follows).collect::<Vec<_>>(), [false, true, true]);
    // The old entry has the old city and the new one the new; both end with the primary key.
    assert_eq!(edges(&moved), [(0, 1, "users_by_city.0, users.0"), (0, 2, "users_by_city.0, users.0")]);
    assert_eq!(moved.phases, [vec![0], vec![1, 2]]);
    assert_eq!(meetings(&moved), [&[0, 1, 2]]);
}

#[test]
fn a_walk_over_several_partitions_is_one_access() {
    let schema = two_tables().split_at("items", &[10_u64, 20, 30, 40, 50]);
    let db = open(schema, 1);
    load_items(&db, 100, 1);
    let items = table::<Items>(&db);
    let walks = |wanted: usize, walk: fn(KeyRange, usize) -> (KeyRange, usize, bool)| {
        let (range, limit, backward) = walk(KeyRange::between(&5_u64, &45_u64), 100);
        let scan = async move |tx: &mut Tx<'_>| match backward {
            false => tx.scan(items, range.clone(), limit).await.map(|rows| rows.len()),
            true => tx.scan_backward(items, range.clone(), limit).await.map(|rows| rows.len()),
        };
        let (rows, run) = db.record(items.at(&5), scan).expect("recorded");
        assert_eq!((rows, run.accesses()), (Ok(wanted), 1));
        let mut class = ClassRecording::new(&db);
        class.add(run).expect("of this database");
        let flow = checked(class.flow("walk"));
        assert_eq!(actions(&flow), ["S(items) 1..1"]);
        assert!(flow.class.sync_points.is_empty());
    };
    walks(40, |range, limit| (range, limit, false));
    walks(40, |range, limit| (range, limit, true));
    walks(12, |range, _| (range, 12, false));
    walks(12, |range, _| (range, 12, true));
    // Two walks of the same range are two.
    let twice = async move |tx: &mut Tx<'_>| {
        tx.scan(items, KeyRange::all(), 100).await?;
        tx.scan(items, KeyRange::all(), 100).await.map(|rows| rows.len())
    };
    let (rows, run) = db.record(items.at(&5), twice).expect("recorded");
    assert_eq!((rows, run.accesses()), (Ok(100), 2));
}

#[test]
fn agreements_that_come_about_by_chance_are_no_dependencies() {
    let db = open(two_tables(), 1);
    load_items(&db, 100, 3);
    let (items, others) = (table::<Items>(&db), table::<crate::support::Others>(&db));
    let mut random = Random::new(3);
    let record = |class: &mut ClassRecording, a: u64, b: u64| {
        let read = async move |tx: &mut Tx<'_>| {
            tx.get(items, a).await?;
            tx.get(others, b).await.map(drop)
        };
        class.add(db.record(items.at(&a), read).expect("recorded").1).expect("of this database");
    };
    let mut class = ClassRecording::new(&db);
    for _ in 0..200 {
        let (a, b) = (random.below(4), random.below(4));
        record(&mut class, a, b);
    }
    let flow = checked(class.flow("two reads"));
    assert_eq!(edges(&flow), []);
    // They are of one transaction all the same: the second exchanges data with the home.
    assert_eq!(meetings(&flow), [&[0, 1]]);
    let mut class = ClassRecording::new(&db);
    (0..200).for_each(|_| {
        let key = random.below(4);
        record(&mut class, key, key);
    });
    assert_eq!(edges(&checked(class.flow("one key"))), [(0, 1, "others.0")]);
}

#[test]
fn what_fails_is_recorded_as_far_as_it_came() {
    let db = open(two_tables(), 1);
    load_items(&db, 10, 3);
    let items = table::<Items>(&db);
    let taken = async move |tx: &mut Tx<'_>| {
        tx.insert(items, 3, item(1)).await?;
        tx.get(items, 4).await
    };
    let (outcome, run) = db.record(items.at(&3), taken).expect("recorded");
    assert_eq!(outcome.map_err(|abort| abort.reason()), Err(AbortReason::DuplicateKey));
    assert!(run.is_aborted());
    assert_eq!(run.accesses(), 1);
    let panics = async move |tx: &mut Tx<'_>| {
        tx.get(items, 4).await?;
        if tx.home().0 == 0 {
            panic!("on purpose");
        }
        Ok(())
    };
    let (outcome, run) = db.record(items.at(&3), panics).expect("recorded");
    assert_eq!(outcome.map_err(|abort| abort.reason()), Err(AbortReason::Panic));
    assert_eq!(run.accesses(), 1);
    // Nothing recorded: no actions.
    let empty = checked(ClassRecording::new(&db).flow("never"));
    assert!(empty.class.actions.is_empty() && empty.phases.is_empty());
}

#[test]
fn what_cannot_be_recorded_is_refused_with_the_cure() {
    let db = open(two_tables(), 2);
    let items = table::<Items>(&db);
    let refused = db.record(items.at(&1), async move |tx| tx.get(items, 1).await).map(drop);
    let refused = refused.expect_err("two workers");
    assert_eq!(refused.reason(), AbortReason::Misuse);
    assert!(refused.detail().contains("database of one worker"), "{refused}");
    let (one, other) = (open(two_tables(), 1), open(two_tables(), 1));
    let items = table::<Items>(&one);
    let (_, run) = one.record(items.at(&1), async move |tx| tx.get(items, 1).await).expect("recorded");
    let mut class = ClassRecording::new(&other);
    let refused = class.add(run).expect_err("another database").to_string();
    assert!(refused.contains("on the same one"), "{refused}");
    assert_eq!(class.runs(), 0);
}

/// A transaction is recorded, and no other that uses its state afterwards while its own caller waits for the disk.
#[test]
fn recording_ends_with_the_transaction() {
    let files = ModelFiles::new();
    let db = notes::builder(&files, 1).open("db").expect("opened");
    let table = table::<Notes>(&db);
    let note = |number| Note { client: 1, number, text: String::new() };
    for key in 0..40 {
        let others: Vec<_> = (0..20)
            .map(|other| {
                let key = 100 + key * 20 + other;
                let insert = async move |tx: &mut Tx<'_>| tx.insert(table, key, note(key)).await;
                db.submit(table.at(&key), insert).expect("submitted")
            })
            .collect();
        let insert = async move |tx: &mut Tx<'_>| tx.insert(table, key, note(key)).await;
        let (outcome, run) = db.record(table.at(&key), insert).expect("recorded");
        assert_eq!((outcome, run.accesses()), (Ok(()), 2), "the row and its index entry");
        others.into_iter().for_each(|other| other.wait().expect("committed"));
    }
    // And the operations have their names.
    let mut class = ClassRecording::new(&db);
    let delete = async move |tx: &mut Tx<'_>| tx.delete(table, 5).await;
    class.add(db.record(table.at(&5), delete).expect("recorded").1).expect("of this database");
    let kinds: Vec<FlowOperation> =
        class.flow("delete").class.actions.iter().map(|it| it.operation).collect();
    assert_eq!(kinds, [FlowOperation::Delete, FlowOperation::Delete]);
}
