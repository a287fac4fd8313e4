//! Definitions that are made at run time, the same as types, and databases that begin empty.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use atrapos::catalog::{ColumnDef, ColumnType, IndexDef, IndexPart, KeyColumn, PrimaryKey, TableDef};
use atrapos::{Abort, Builder, Database, Durability, Index, KeyRange, Schema, Table, TableRef, row};
use atrapos_durability::file::{FileSystem, ModelFiles};

row! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct Person {
        pub(crate) age: u32,
        pub(crate) city: String,
    }
}

/// A table that tests create at run time as well, with [`people`].
pub(crate) struct People;

impl Table for People {
    type Key = u64;
    type Row = Person;
    const NAME: &'static str = "people";
}

/// The same for a table of another name.
pub(crate) struct Animals;

impl Table for Animals {
    type Key = u64;
    type Row = Person;
    const NAME: &'static str = "animals";
}

/// The same in the family of the first.
pub(crate) struct Relatives;

impl Table for Relatives {
    type Key = u64;
    type Row = Person;
    const NAME: &'static str = "relatives";
    const FAMILY: &'static str = "people";
}

pub(crate) fn person(age: u32, city: &str) -> Person {
    Person { age, city: city.to_owned() }
}

/// The definition that agrees with [`People`], under any name, cut at some keys.
pub(crate) fn people(name: &str, cuts: &[u64]) -> TableDef {
    TableDef {
        name: name.to_owned(),
        columns: vec![
            ColumnDef::new("id", ColumnType::Unsigned(8)),
            ColumnDef::new("age", ColumnType::Unsigned(4)),
            ColumnDef::new("city", ColumnType::String),
        ],
        key: PrimaryKey::Columns(vec![KeyColumn::ascending(0)]),
        family: name.to_owned(),
        read_only: false,
        splits: cuts.iter().map(|cut| cut.to_be_bytes().to_vec()).collect(),
    }
}

/// An index over columns of such a table, by their places.
pub(crate) fn index(name: &str, columns: &[u16], unique: bool) -> IndexDef {
    let part = |column: &u16| IndexPart::Column(KeyColumn::ascending(*column));
    IndexDef {
        name: name.to_owned(),
        of: 0,
        parts: columns.iter().map(part).collect(),
        unique,
        family: name.to_owned(),
        splits: Vec::new(),
    }
}

/// The index over the age that tests create at run time.
pub(crate) struct ByAge;

impl Index for ByAge {
    type Table = People;
    type Key = u32;
    const NAME: &'static str = "by_age";
    const UNIQUE: bool = false;
    fn key(_: &u64, person: &Person) -> u32 {
        person.age
    }
}

/// The keys of the people of an age, by the index.
pub(crate) fn of_age(db: &Database, age: u32) -> Result<Vec<u64>, Abort> {
    let by_age = db.index::<ByAge>().expect("the index is there");
    db.run(by_age.at(&age), async move |tx| tx.lookup_all(by_age, KeyRange::prefix(&age), usize::MAX).await)
}

fn settings(builder: Builder) -> Builder {
    builder.workers(2).pin(false).huge_pages(false).fixed_scheme().statement_patience(Duration::from_secs(60))
}

/// A database in memory without any table.
pub(crate) fn empty() -> Database {
    settings(Database::builder(Schema::new())).in_memory().expect("there is nothing to be wrong")
}

/// One whose statements do not wait for anybody.
pub(crate) fn impatient() -> Database {
    let builder = settings(Database::builder(Schema::new()));
    builder.statement_patience(Duration::ZERO).in_memory().expect("there is nothing to be wrong")
}

pub(crate) fn directory() -> &'static Path {
    Path::new("/data/ddl")
}

/// A model of files in which the directory can be made.
pub(crate) fn files() -> ModelFiles {
    let files = ModelFiles::new();
    files.create_dir(Path::new("/data")).expect("the model takes it");
    files.sync_dir(Path::new("/")).expect("the model takes it");
    files
}

/// A new database in a directory.
pub(crate) fn create(files: &ModelFiles) -> Database {
    create_with(files, Durability::Synchronous)
}

pub(crate) fn create_with(files: &ModelFiles, durability: Durability) -> Database {
    let builder = settings(Database::builder(Schema::new())).durability(durability);
    builder.files(Arc::new(files.clone())).open(directory()).expect("the directory is empty")
}

/// The database that is there.
pub(crate) fn reopen(files: &ModelFiles) -> Database {
    reopen_at(files, directory())
}

pub(crate) fn reopen_at(files: &ModelFiles, directory: impl AsRef<Path>) -> Database {
    let builder = settings(Database::existing()).files(Arc::new(files.clone()));
    builder.open(directory).unwrap_or_else(|error| panic!("it does not open: {error}"))
}

pub(crate) fn insert(db: &Database, people: TableRef<People>, id: u64, age: u32) -> Result<(), Abort> {
    db.run(people.at(&id), async move |tx| tx.insert(people, id, person(age, "here")).await)
}

/// Keys and ages of all rows.
pub(crate) fn ages(db: &Database, people: TableRef<People>) -> Result<Vec<(u64, u32)>, Abort> {
    let rows = db.run(people.at(&0), async move |tx| tx.scan(people, KeyRange::all(), usize::MAX).await)?;
    Ok(rows.into_iter().map(|(id, person)| (id, person.age)).collect())
}

/// A transaction that has changed row 1 of `people` and goes on, elsewhere, for as long as a test wants.
pub(crate) struct Held {
    may_end: Arc<AtomicBool>,
    has_ended: Arc<AtomicBool>,
}

impl Held {
    /// Creates `people` with row 1, and `animals` with a part on each worker, and begins the transaction.
    pub(crate) fn begin(db: &Database) -> Held {
        db.create_table(people("people", &[])).unwrap();
        let table = db.table::<People>().unwrap();
        insert(db, table, 1, 1).unwrap();
        db.create_table(people("animals", &[100])).unwrap();
        let animals = db.table::<Animals>().unwrap();
        let held = Held { may_end: Arc::default(), has_ended: Arc::default() };
        let (may_end, has_ended) = (Arc::clone(&held.may_end), Arc::clone(&held.has_ended));
        let (begun, has_begun) = std::sync::mpsc::channel();
        let running = db.submit(table.at(&1), async move |tx| {
            tx.update(table, 1, |person| person.age = 2).await?;
            // One of the two is on the other worker: the transaction is suspended with its lock.
            tx.get(animals, 1).await?;
            tx.get(animals, 200).await?;
            let _ = begun.send(());
            while !may_end.load(Ordering::SeqCst) {
                tx.get(animals, 1).await?;
                tx.get(animals, 200).await?;
            }
            has_ended.store(true, Ordering::SeqCst);
            Ok(())
        });
        drop(running.expect("the database is open"));
        has_begun.recv().expect("the transaction begins");
        held
    }

    /// Lets it end.
    pub(crate) fn end(&self) {
        self.may_end.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end();
    }
}
