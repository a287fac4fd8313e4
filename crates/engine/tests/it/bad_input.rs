//! Settings, schemas, handles, keys and rows that cannot be: each is refused with one clear sentence, and costs others nothing.

use atrapos::sim::Simulation;
use atrapos::{
    Abort, AbortReason, Advice, Builder, Database, Index, KeyRange, OpenError, Schema, Table, WorkerId,
};

use crate::indexes::{ByCity, ByEmail, CarsByOwner, User, Users, users};
use crate::support::{Item, Items, Others, is_well, item, load_items, open, two_tables};

fn refused(builder: Builder) -> String {
    builder.pin(false).in_memory().expect_err("it makes no sense").to_string()
}

#[test]
fn keys_that_do_not_go_with_their_tables_are_refused() {
    struct Twice;
    impl Table for Twice {
        type Key = (u64, u64);
        type Row = Item;
        const NAME: &'static str = "twice";
        const KEY_COLUMNS: &'static [&'static str] = &["id", "value"];
    }
    assert_eq!(
        refused(Database::builder(Schema::new().table::<Twice>()).workers(1)),
        "table `twice` has two columns `value`; give one of them another name"
    );
    struct Narrow;
    impl Table for Narrow {
        type Key = (u32, u64);
        type Row = Item;
        const NAME: &'static str = "narrow";
    }
    let items = || Schema::new().table::<Items>().table::<Narrow>();
    let schema = items().foreign_key_by_prefix::<Narrow, Items>(|key| key.0.into(), true);
    assert_eq!(
        refused(Database::builder(schema).workers(1)),
        "the foreign key from `narrow` to `items` needs keys of `narrow` that begin with the parent's key (u64), but they are \
         (u32, u64); name an index whose keys do"
    );
    let known = items().foreign_key_by_prefix::<Narrow, Items>(|key| key.0.into(), false);
    Database::builder(known).workers(1).pin(false).in_memory().expect("what is not enforced may be anything");
    struct Long;
    impl Table for Long {
        type Key = (u8, [u8; 512]);
        type Row = Item;
        const NAME: &'static str = "long";
    }
    assert_eq!(
        refused(Database::builder(Schema::new().table::<Long>()).workers(1)),
        "the key of table `long` takes at least 513 bytes where 512 is the most; leave columns out, or make them shorter"
    );
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let builder = || Database::builder(two_tables());
    assert_eq!(refused(builder().workers(0)), "zero workers cannot own data; use at least 1");
    assert_eq!(
        refused(builder().workers(1_000_000)),
        "1000000 workers are more than any machine has cores; use at most 4096"
    );
    assert_eq!(
        refused(builder().workers(1).inbox_slots(0)),
        "an inbox of zero slots takes no request; use at least 1"
    );
    assert!(matches!(builder().workers(0).in_memory(), Err(OpenError::Setting(_))));
    let sim =
        Simulation::new(two_tables(), 0, 1).err().expect("a simulation needs workers as well").to_string();
    assert!(sim.contains("workers"), "{sim}");
}

/// Over a table that no schema here declares.
struct Nowhere;

impl Table for Nowhere {
    type Key = u64;
    type Row = Item;
    const NAME: &'static str = "nowhere";
}

struct ByNothing;

impl Index for ByNothing {
    type Table = Nowhere;
    type Key = i64;
    const NAME: &'static str = "by_nothing";
    const UNIQUE: bool = false;

    fn key(_: &u64, row: &Item) -> i64 {
        row.value
    }
}

/// Has the name of a table.
struct NamedItems;

impl Index for NamedItems {
    type Table = Items;
    type Key = i64;
    const NAME: &'static str = "items";
    const UNIQUE: bool = false;

    fn key(_: &u64, row: &Item) -> i64 {
        row.value
    }
}

/// Has the name of another table.
struct AlsoItems;

impl Table for AlsoItems {
    type Key = String;
    type Row = User;
    const NAME: &'static str = "items";
}

#[test]
fn contradictory_schemas_are_refused() {
    let mistakes: [(Schema, &str); 9] = [
        (
            Schema::new().table::<Items>().table::<Items>(),
            "the schema declares two tables named 'items'; give one of them another name",
        ),
        (
            Schema::new().table::<Items>().table::<AlsoItems>(),
            "the schema declares two tables named 'items'; give one of them another name",
        ),
        (
            Schema::new().table::<Items>().index::<ByNothing>(),
            "index 'by_nothing' is over table 'nowhere', which the schema does not declare; declare the table",
        ),
        (
            Schema::new().table::<Items>().index::<NamedItems>(),
            "the schema uses the name 'items' twice; give the index another name",
        ),
        (
            Schema::new().table::<Items>().foreign_key_by_prefix::<Items, Nowhere>(|key| *key, true),
            "the foreign key from 'items' to 'nowhere' needs 'nowhere', which the schema does not declare; declare it",
        ),
        (
            Schema::new().table::<Items>().foreign_key_by_prefix::<Nowhere, Items>(|key| *key, false),
            "the foreign key from 'nowhere' to 'items' needs 'nowhere', which the schema does not declare; declare it",
        ),
        (
            users()
                .table::<crate::indexes::Cars>()
                .foreign_key_by_index::<CarsByOwner, Users>(|_, car| car.owner, true),
            "the foreign key from 'cars' to 'users' needs 'cars_by_owner', which the schema does not declare; declare it",
        ),
        (
            Schema::new().table::<Items>().split_evenly("itmes", 0, 9),
            "partition boundaries are given for family 'itmes', to which no table or index belongs",
        ),
        (
            Schema::new().table::<Items>().split_evenly("items", 9, 0),
            "family 'items' is to be split evenly from 9 to 0; the first must not be larger than the last",
        ),
    ];
    for (schema, sentence) in mistakes {
        let error = Database::builder(schema).workers(2).pin(false).in_memory().expect_err(sentence);
        assert!(matches!(error, OpenError::Schema(_)));
        assert_eq!(error.to_string(), sentence);
    }
    // Odd, but sound.
    let odd = Schema::new()
        .table::<Items>()
        .table::<Others>()
        .split_evenly("items", 5, 5)
        .split_at::<u64>("others", &[]);
    let db = open(odd, 4);
    load_items(&db, 100, 1);
    is_well(&db);
}

#[test]
fn tables_and_indexes_a_database_does_not_have_are_named() {
    let db = open(two_tables(), 1);
    let table = db.table::<Nowhere>().unwrap_err().to_string();
    assert_eq!(
        table,
        "this database has no table 'nowhere' of that type; declare it in the schema it is opened with"
    );
    let same_name = db.table::<AlsoItems>().unwrap_err().to_string();
    assert!(same_name.contains("no table 'items' of that type"), "{same_name}");
    let index = db.index::<ByCity>().unwrap_err().to_string();
    assert_eq!(
        index,
        "this database has no index 'users_by_city' of that type; declare it in the schema it is opened with"
    );
    let in_session = db.spawn_session(WorkerId(0), async move |session| {
        (
            session.table::<Nowhere>().is_err(),
            session.index::<ByCity>().is_err(),
            session.table::<Items>().is_ok(),
        )
    });
    assert_eq!(in_session.unwrap().join(), Ok((true, true, true)));
    assert_eq!(db.columns(atrapos::TableId(77)), &[]);
    assert_eq!(db.len(atrapos::TableId(77)), Ok(0));
}

#[test]
fn handles_of_another_database_are_refused_by_every_operation() {
    // The other one has more tables, so its numbers mean nothing here.
    let (db, other) = (open(two_tables(), 2), open(users().table::<Items>().table::<Others>(), 2));
    load_items(&db, 100, 1);
    let (mine, items) = (db.table::<Items>().unwrap(), other.table::<Items>().unwrap());
    let (by_email, by_city, table) = (
        other.index::<ByEmail>().unwrap(),
        other.index::<ByCity>().unwrap(),
        other.table::<Users>().unwrap(),
    );
    type Refusal = Result<(), Abort>;
    let all: Vec<Refusal> = vec![
        db.run(items.at(&1), async move |tx| tx.get(items, 1).await.map(drop)),
        db.run(mine.at(&1), async move |tx| tx.insert(items, 1, item(1)).await),
        db.run(mine.at(&1), async move |tx| tx.update(items, 1, |_| ()).await.map(drop)),
        db.run(mine.at(&1), async move |tx| tx.delete(items, 1).await.map(drop)),
        db.run(mine.at(&1), async move |tx| tx.scan(items, KeyRange::all(), 9).await.map(drop)),
        db.run(mine.at(&1), async move |tx| tx.scan_backward(items, KeyRange::all(), 9).await.map(drop)),
        db.run(mine.at(&1), async move |tx| tx.lookup_all(by_city, KeyRange::all(), 9).await.map(drop)),
        db.run(mine.at(&1), async move |tx| tx.get_by(by_email, table, "a".to_owned()).await.map(drop)),
        db.run(mine.at(&1), async move |tx| tx.join((mine.get(1), items.get(1))).await.map(drop)),
        db.run(mine.at(&1), async move |tx| tx.join_all([mine.get(1), items.get(1)]).await.map(drop)),
        // It aborts even if the procedure takes no notice.
        db.run(mine.at(&1), async move |tx| {
            tx.update(mine, 1, |row| row.value = 99).await?;
            let _ = tx.get(items, 1).await;
            Ok(())
        }),
    ];
    for (at, refusal) in all.into_iter().enumerate() {
        let abort = refusal.expect_err("a handle of another database");
        assert_eq!(abort.reason(), AbortReason::UnknownTable, "operation {at}: {abort}");
        assert!(
            abort.detail().contains("take handles from the database it runs on"),
            "operation {at}: {abort}"
        );
    }
    let route = items.at(&1);
    let in_session = db.spawn_session(WorkerId(0), async move |session| {
        session
            .run(&route, async move |tx| tx.get(items, 1).await.map(drop))
            .await
            .map_err(|abort| abort.reason())
    });
    assert_eq!(in_session.unwrap().join(), Ok(Err(AbortReason::UnknownTable)));
    is_well(&db);
}

/// Keys of any length.
struct Words;

impl Table for Words {
    type Key = String;
    type Row = Item;
    const NAME: &'static str = "words";
}

#[test]
fn keys_and_rows_that_are_too_large_are_refused() {
    let db = open(two_tables().table::<Words>().split_at("words", &["m".to_owned()]), 2);
    load_items(&db, 100, 1);
    let (items, words) = (db.table::<Items>().unwrap(), db.table::<Words>().unwrap());
    for start in ["a", "z"] {
        let longest = start.repeat(510);
        let long = start.repeat(511);
        let key = longest.clone();
        db.run(items.at(&1), async move |tx| {
            tx.insert(words, key.clone(), item(1)).await?;
            tx.delete(words, key.clone()).await.map(drop)
        })
        .unwrap();
        let key = long.clone();
        let abort = db.run(items.at(&1), async move |tx| {
            tx.update(items, 1, |row| row.value = 2).await?;
            tx.insert(words, key.clone(), item(1)).await
        });
        let abort = abort.unwrap_err();
        assert_eq!((abort.reason(), abort.reason().advice()), (AbortReason::KeyTooLarge, Advice::FixInput));
        assert!(abort.detail().starts_with("table 'words': ") && abort.detail().contains("512"), "{abort}");
        // Looking for it is not wrong: it is not there.
        let key = long.clone();
        let looked = db.run(items.at(&1), async move |tx| {
            let there = tx.get(words, key.clone()).await?.is_some();
            Ok((there, tx.delete(words, key.clone()).await?.is_some()))
        });
        assert_eq!(looked, Ok((false, false)));
    }
    for key in [1, 98] {
        let grown = db.run(items.at(&1), async move |tx| {
            tx.update(items, 50, |row| row.value = 2).await?;
            tx.update(items, key, |row| row.text = "x".repeat(1 << 20)).await.map(drop)
        });
        let inserted = db.run(items.at(&1), async move |tx| {
            tx.insert(items, 500 + key, Item { value: 1, text: "x".repeat((1 << 20) + 1) }).await
        });
        for abort in [grown.unwrap_err(), inserted.unwrap_err()] {
            assert_eq!(abort.reason(), AbortReason::RowTooLarge, "{abort}");
            assert!(abort.detail().starts_with("table 'items': "), "{abort}");
        }
    }
    is_well(&db);
}
