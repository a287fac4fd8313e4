//! Directories that earlier versions wrote are opened, and stored as they are now from then on.

use std::sync::Arc;
use std::time::Duration;

use atrapos::catalog::TreeDef;
use atrapos::{Builder, Database, FixedStr, Index, Schema, Table, row};
use atrapos_durability::file::{FileSystem, ModelFiles};
use atrapos_durability::manifest::{MANIFEST, Manifest};

use crate::durable::notes::{directory, files};

row! {
    /// Every type of column.
    #[derive(Clone, Debug, PartialEq)]
    struct Everything {
        a: u8,
        b: u16,
        text: String,
        c: u32,
        d: u64,
        e: i8,
        f: i16,
        bytes: Vec<u8>,
        g: i32,
        h: i64,
        i: f64,
        j: bool,
        k: [u8; 5],
        l: FixedStr<7>,
    }
}

/// A table whose key is of each kind that there was.
macro_rules! tables {
    ($($table:ident $name:literal ($key:ty) = $at:expr;)*) => {$(
        struct $table;

        impl Table for $table {
            type Key = $key;
            type Row = Everything;
            const NAME: &'static str = $name;
            const KEY_COLUMNS: &'static [&'static str] = &["first"];
        }
    )*

        fn all_tables(schema: Schema) -> Schema {
            schema$(.table::<$table>())*
        }

        fn fill(db: &Database, number: u8) {
            $({
                let table = db.table::<$table>().unwrap();
                let at: fn(u8) -> $key = $at;
                db.run(table.at(&at(number)), async move |tx| {
                    tx.insert(table, at(number), everything(number)).await
                })
                .unwrap();
            })*
        }

        fn check(db: &Database, numbers: std::ops::Range<u8>) {
            $({
                let table = db.table::<$table>().unwrap();
                let at: fn(u8) -> $key = $at;
                for number in numbers.clone() {
                    let found = db.run(table.at(&at(number)), async move |tx| tx.get(table, at(number)).await);
                    assert_eq!(found.unwrap(), Some(everything(number)), "row {number} of '{}'", $name);
                }
                assert_eq!(db.len(table.id()).unwrap(), numbers.len() as u64);
            })*
        }
    };
}

tables! {
    Small "small" (u8) = |n| n;
    Wide "wide" ((u16, u32, u64, u128, i8, i16)) = |n| (1, 2, 3, 4, -1, -i16::from(n));
    Signed "signed" ((i32, (i64, i128), bool)) = |n| (-5, (i64::from(n), -7), true);
    Letters "letters" ((String, FixedStr<6>)) = |n| (format!("{n}\0"), FixedStr::new("six").unwrap());
    Raw "raw" (([u8; 3], u64)) = |n| ([n, 0, 255], 9);
    Parent "parent" (u64) = u64::from;
    Child "child" ((u64, u32)) = |n| (u64::from(n), 1);
}

/// By text, which every row has another of.
struct ByText;

impl Index for ByText {
    type Table = Small;
    type Key = String;
    const NAME: &'static str = "small_by_text";
    const UNIQUE: bool = true;
    fn key(_: &u8, row: &Everything) -> String {
        row.text.clone()
    }
}

/// By the number of the parent.
struct ByParent;

impl Index for ByParent {
    type Table = Child;
    type Key = (u64, FixedStr<7>);
    const NAME: &'static str = "child_by_parent";
    const FAMILY: &'static str = "parent";
    const UNIQUE: bool = false;
    fn key(_: &(u64, u32), row: &Everything) -> (u64, FixedStr<7>) {
        (row.d, row.l)
    }
}

fn everything(number: u8) -> Everything {
    Everything {
        a: number,
        b: 500 + u16::from(number),
        text: format!("text {number}"),
        c: 70_000,
        d: u64::from(number),
        e: -1,
        f: -300,
        bytes: vec![number; usize::from(number)],
        g: -70_000,
        h: i64::MIN,
        i: f64::from(number) / 4.0,
        j: number.is_multiple_of(2),
        k: *b"bytes",
        l: FixedStr::new("seven").unwrap(),
    }
}

fn schema() -> Schema {
    all_tables(Schema::new())
        .index::<ByText>()
        .index::<ByParent>()
        .foreign_key_by_prefix::<Child, Parent>(|key| key.0, true)
        .foreign_key_by_index::<ByParent, Parent>(|_, row| row.d, false)
        .split_evenly("parent", 0, 9)
        .split_at("letters", &["m".to_owned()])
}

/// A directory of version 1, as a database with this schema left it that had taken rows 0 to 2, made a checkpoint, taken rows 3
/// and 4, and closed.
const OLD: [(&str, &[u8]); 4] = [
    ("MANIFEST", include_bytes!("../../fixtures/directory-v1/MANIFEST")),
    (
        "wal/00000001-0000-00000001.wal",
        include_bytes!("../../fixtures/directory-v1/wal/00000001-0000-00000001.wal"),
    ),
    (
        "checkpoint/00000001/0000.part",
        include_bytes!("../../fixtures/directory-v1/checkpoint/00000001/0000.part"),
    ),
    (
        "checkpoint/00000001/0001.part",
        include_bytes!("../../fixtures/directory-v1/checkpoint/00000001/0001.part"),
    ),
];

fn old_directory() -> ModelFiles {
    let files = files();
    for inner in ["", "wal", "checkpoint", "checkpoint/00000001"] {
        files.create_dir(&directory().join(inner)).unwrap();
    }
    for (name, bytes) in OLD {
        let path = directory().join(name);
        let mut file = files.create(&path).unwrap();
        file.write_at(0, bytes).unwrap();
        file.sync().unwrap();
        files.sync_dir(path.parent().unwrap()).unwrap();
    }
    files
}

/// The version of the manifest, and what is in it.
fn manifest(files: &ModelFiles) -> (u8, Manifest) {
    let path = directory().join(MANIFEST);
    let mut bytes = vec![0; files.open(&path, false).unwrap().len().unwrap() as usize];
    files.open(&path, false).unwrap().read_at(0, &mut bytes).unwrap();
    (bytes[8], Manifest::decode(&bytes, &path).unwrap())
}

fn with(builder: Builder, files: &ModelFiles) -> Builder {
    builder.workers(2).pin(false).huge_pages(false).segment_bytes(16 << 10).files(Arc::new(files.clone()))
}

fn close(db: Database) {
    assert_eq!(db.close(Duration::from_secs(5)).failure, None);
}

#[test]
fn a_directory_of_version_1_opens_and_is_stored_anew() {
    let files = old_directory();
    assert_eq!(manifest(&files).0, 1);
    let db = with(Database::builder(schema()), &files).open(directory()).unwrap();
    check(&db, 0..5);
    db.verify().unwrap();
    fill(&db, 5);
    close(db);
    let (version, stored) = manifest(&files);
    assert_eq!(version, 3);
    // What the old one did not say was taken over, and what it said was understood.
    let declared = with(Database::builder(schema()), &ModelFiles::new()).in_memory().unwrap();
    let mut expected = declared.definitions();
    for (expected, stored) in expected.trees.iter_mut().zip(&stored.schema.trees) {
        match expected {
            TreeDef::Table(table) => table.splits = stored.splits().to_vec(),
            TreeDef::Index(index) => index.splits = stored.splits().to_vec(),
            TreeDef::Dropped => unreachable!("nothing was dropped"),
        }
    }
    assert_eq!(stored.schema, expected);
    let letters = stored.schema.find("letters").unwrap();
    assert_eq!(stored.schema.key_names(letters), ["first", "#2"]);
    let fields = stored.schema.key_fields(stored.schema.find("signed").unwrap());
    let types: Vec<String> = fields.iter().map(ToString::to_string).collect();
    assert_eq!(types, ["i32", "i64", "i128", "bool"]);
    for builder in [Database::builder(schema()), Database::existing()] {
        let db = with(builder, &files).open(directory()).unwrap();
        check(&db, 0..6);
        assert_eq!(db.len(db.index::<ByText>().unwrap().id()).unwrap(), 6);
        assert_eq!(db.len(db.index::<ByParent>().unwrap().id()).unwrap(), 6);
        close(db);
    }
}

#[test]
fn a_directory_of_version_1_opens_without_its_schema() {
    let files = old_directory();
    let db = with(Database::existing(), &files).open(directory()).unwrap();
    check(&db, 0..5);
    db.index::<ByText>().unwrap();
    db.index::<ByParent>().unwrap();
    close(db);
    let (version, stored) = manifest(&files);
    assert_eq!(version, 3);
    assert_eq!(stored.schema.key_names(0), ["#1"], "nobody has named it yet");
    let db = with(Database::builder(schema()), &files).open(directory()).unwrap();
    check(&db, 0..5);
    close(db);
    assert_eq!(manifest(&files).1.schema.key_names(0), ["first"]);
}

#[test]
fn another_schema_is_refused_by_a_directory_of_version_1() {
    struct Shorter;
    impl Table for Shorter {
        type Key = (u16, u32, u64, u128, i8);
        type Row = Everything;
        const NAME: &'static str = "wide";
    }
    let files = old_directory();
    let other = Schema::new().table::<Small>().table::<Shorter>();
    let error = with(Database::builder(other), &files).open(directory()).unwrap_err().to_string();
    assert!(
        error.contains("has another schema: table `signed` is in the database but is not declared"),
        "{error}"
    );
    let db = with(Database::existing(), &files).open(directory()).unwrap();
    let error = db.table::<Shorter>().unwrap_err().to_string();
    assert!(
        error.contains(
            "the key of table `wide` is (u16, u32, u64, u128, i8, i16) in the database but is declared as (u16, u32, u64, u128, i8)"
        ),
        "{error}"
    );
    close(db);
}
