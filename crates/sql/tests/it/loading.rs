//! COPY of many lines: into tables that are empty, in bulk.

use std::path::Path;
use std::sync::Arc;

use atrapos::catalog::TreeDef;
use atrapos::{Database, Schema};
use atrapos_sql::SqlDatabase;

use crate::copying::copy;
use crate::support::{Client, Kept, options};

/// Rows of the loads of these tests: their data is longer than that from which on an empty table is loaded in bulk.
pub(crate) const ROWS: usize = 12_000;

/// Opens a database whose transactions have little room for redo: so many rows come into it in bulk alone.
pub(crate) fn open(directory: &Path) -> Arc<SqlDatabase> {
    let builder = if directory.exists() { Database::existing() } else { Database::builder(Schema::new()) };
    let builder = builder.workers(2).pin(false).transaction_redo_bytes(100_000);
    SqlDatabase::open(builder.open(directory).expect("it opens"), options()).expect("SQL opens")
}

/// The line of a row: a number, a text that no other row has, and a number that some have.
pub(crate) fn line(id: usize) -> String {
    format!("{id}\t{}{id:08}\t{}\n", "x".repeat(90), id % 7)
}

/// Lines in pieces that end anywhere.
pub(crate) fn pieces(lines: impl Iterator<Item = String>) -> Vec<String> {
    let all: String = lines.collect();
    all.as_bytes().chunks(50_001).map(|piece| String::from_utf8(piece.to_vec()).expect("ASCII")).collect()
}

pub(crate) fn load(client: &mut Client, table: &str, lines: impl Iterator<Item = String>) -> String {
    let pieces = pieces(lines);
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    copy(client, &format!("COPY {table} FROM STDIN"), &pieces)
}

const TABLE: &str = "CREATE TABLE t(id int PRIMARY KEY, name text UNIQUE, n int NOT NULL CHECK (n < 7));
    CREATE INDEX t_n ON t(n)";

/// A copy of the files of an open database, as a crash leaves them.
pub(crate) fn crashed(directory: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(directory).expect("it can be read") {
        let entry = entry.expect("an entry");
        let copy = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            crashed(&entry.path(), &copy);
        } else if entry.file_name() != "lock" {
            std::fs::copy(entry.path(), copy).expect("it can be copied");
        }
    }
}

/// The names of the engine's tables.
pub(crate) fn engine_tables(database: &SqlDatabase) -> Vec<String> {
    let trees = database.database().definitions().trees;
    trees.iter().filter_map(TreeDef::as_table).map(|table| table.name.clone()).collect()
}

const SUMS: &str = "SELECT count(*), sum(n), min(id), max(id) FROM t";

fn sums(rows: usize) -> String {
    format!("{rows}|{}|0|{}", (0..rows).map(|id| id % 7).sum::<usize>(), rows - 1)
}

#[test]
fn a_table_that_the_transaction_makes_is_loaded_in_bulk() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let database = open(&path);
    let (mut client, mut other) = (Client::new(&database), Client::numbered(&database, 2));
    client.run("BEGIN");
    client.run(TABLE);
    assert_eq!(load(&mut client, "t", (0..ROWS).map(line)), format!("COPY {ROWS}"));
    // The transaction has the rows, and finds them by their indexes; others wait for its end.
    assert_eq!(client.rows(SUMS), sums(ROWS));
    let threes = (0..ROWS).filter(|id| id % 7 == 3).count();
    assert_eq!(client.rows("SELECT count(*) FROM t WHERE n = 3"), threes.to_string());
    client.run("UPDATE t SET n = 6 WHERE id = 0");
    client.run("INSERT INTO t VALUES (-1, 'one more', 0)");
    other.fails("SELECT * FROM t WHERE id = 1 FOR UPDATE NOWAIT", "55P03");
    other.fails("ALTER TABLE t ADD COLUMN m int", "55006");
    crashed(&path, &directory.path().join("before"));
    client.run("COMMIT");
    assert_eq!(other.rows("SELECT count(*), min(id) FROM t WHERE n >= 0"), format!("{}|-1", ROWS + 1));
    assert_eq!(other.rows("SELECT n FROM t WHERE id = 0"), "6");
    other.fails("INSERT INTO t VALUES (7, 'seven', 0)", "23505");
    other.run("ALTER TABLE t ADD COLUMN m int DEFAULT 5");
    assert_eq!(other.rows("SELECT m FROM t WHERE id = 9"), "5");
    crashed(&path, &directory.path().join("after"));
    drop((client, other, database));
    let after = open(&directory.path().join("after"));
    let mut client = Client::new(&after);
    assert_eq!(client.rows("SELECT count(*), min(id) FROM t WHERE n >= 0"), format!("{}|-1", ROWS + 1));
    assert_eq!(engine_tables(&after).len(), 2, "{:?}", engine_tables(&after));
    after.database().verify().expect("it is sound");
    let before = open(&directory.path().join("before"));
    let mut client = Client::new(&before);
    assert_eq!(client.rows("SELECT count(*) FROM t"), "0");
    assert_eq!(engine_tables(&before), ["atrapos_sql", "t"]);
}

#[test]
fn an_empty_table_is_loaded_in_bulk_by_a_statement_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(&directory.path().join("db"));
    let mut client = Client::new(&database);
    client.run(TABLE);
    let number = client.rows("SELECT 't'::regclass::oid, 't_n'::regclass::oid");
    assert_eq!(load(&mut client, "t", (0..ROWS).rev().map(line)), format!("COPY {ROWS}"));
    assert_eq!(client.rows(SUMS), sums(ROWS));
    assert_eq!(client.rows("SELECT 't'::regclass::oid, 't_n'::regclass::oid"), number);
    // Now it is not empty: others are not shut out, and the limit of a transaction counts.
    let answer = load(&mut client, "t", (ROWS..2 * ROWS).map(line));
    assert!(answer.contains("ERROR 53400"), "{answer}");
    assert_eq!(client.rows(SUMS), sums(ROWS));
    database.database().verify().expect("it is sound");
}

#[test]
fn a_table_that_the_transaction_truncates_is_loaded_in_bulk() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(&directory.path().join("db"));
    let mut client = Client::new(&database);
    client.run(TABLE);
    client.run("INSERT INTO t VALUES (-5, 'old', 1)");
    client.run("BEGIN; TRUNCATE t");
    load(&mut client, "t", (0..ROWS).map(line));
    assert_eq!(client.rows(SUMS), sums(ROWS));
    client.run("ROLLBACK");
    assert_eq!(client.rows("SELECT id, name FROM t"), "-5|old");
    client.run("BEGIN; TRUNCATE t");
    load(&mut client, "t", (0..ROWS).map(line));
    // A second load goes on behind the first.
    load(&mut client, "t", (ROWS..2 * ROWS).map(line));
    client.run("COMMIT");
    assert_eq!(client.rows(SUMS), sums(2 * ROWS));
    assert_eq!(engine_tables(&database).len(), 2);
    database.database().verify().expect("it is sound");
}

#[test]
fn many_rows_are_truncated_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let database = open(&path);
    let mut client = Client::new(&database);
    client.run(TABLE);
    load(&mut client, "t", (0..ROWS).map(line));
    client.run("CREATE TABLE small(id int PRIMARY KEY); INSERT INTO small VALUES (1)");
    client.run("BEGIN; TRUNCATE t, small; INSERT INTO t VALUES (1, 'one', 1)");
    assert_eq!(client.rows("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM small)"), "1|0");
    client.run("ROLLBACK");
    assert_eq!(client.rows(SUMS), sums(ROWS));
    client.run("TRUNCATE t, small");
    crashed(&path, &directory.path().join("after"));
    drop((client, database));
    let after = open(&directory.path().join("after"));
    let mut client = Client::new(&after);
    assert_eq!(client.rows("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM small)"), "0|0");
    client.run("INSERT INTO t VALUES (1, 'one', 1)");
    after.database().verify().expect("it is sound");
}

#[test]
fn nothing_is_left_of_a_load_that_is_undone() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(&directory.path().join("db"));
    let mut client = Client::new(&database);
    client.run("BEGIN");
    client.run(TABLE);
    load(&mut client, "t", (0..ROWS).map(line));
    client.run("ROLLBACK");
    client.fails("SELECT * FROM t", "42P01");
    assert_eq!(engine_tables(&database), ["atrapos_sql"]);
    client.run(TABLE);
    // To a savepoint, from which the transaction goes on; also when a load fails.
    client.run("BEGIN; SAVEPOINT s");
    load(&mut client, "t", (0..ROWS).map(line));
    client.run("SAVEPOINT inner_one; INSERT INTO t VALUES (-1, 'more', 0); ROLLBACK TO s");
    assert_eq!(client.rows("SELECT count(*) FROM t"), "0");
    let answer = load(&mut client, "t", (0..ROWS).chain([5]).map(line));
    assert!(answer.contains("ERROR 23505"), "{answer}");
    client.run("ROLLBACK TO s; INSERT INTO t VALUES (-2, 'last', 0); COMMIT");
    assert_eq!(client.rows("SELECT id FROM t"), "-2");
    assert_eq!(engine_tables(&database), ["atrapos_sql", "t"]);
    // The client is gone.
    client.run("DELETE FROM t");
    client.run("BEGIN");
    load(&mut client, "t", (0..ROWS).map(line));
    drop(client);
    let mut client = Client::numbered(&database, 2);
    assert_eq!(client.rows("SELECT count(*) FROM t"), "0");
    // A thread of its own drops the table.
    while engine_tables(&database).len() > 2 {
        std::thread::yield_now();
    }
    client.run("ALTER TABLE t ADD COLUMN m int");
}

#[test]
fn errors_tell_of_constraints_and_lines() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(&directory.path().join("db"));
    let mut client = Client::new(&database);
    client.run(TABLE);
    let mut fails = |last: String, state: &str, detail: Option<&str>| {
        let all = pieces((0..ROWS).map(line).chain([last]));
        let data = all.into_iter().map(String::into_bytes).collect();
        let mut kept = Kept { data, ..Kept::default() };
        let done = pollster::block_on(client.connection.simple("COPY t FROM STDIN", &mut kept));
        let error = done.expect_err("it fails");
        assert_eq!(error.code.0, state, "{error}");
        assert_eq!(error.context.as_deref(), Some(&*format!("COPY t, line {}", ROWS + 1)), "{error}");
        assert_eq!(error.detail.as_deref(), detail, "{error}");
        assert_eq!(client.rows("SELECT count(*) FROM t"), "0");
    };
    fails(line(5), "23505", Some("Key (id)=(5) already exists."));
    let name = line(ROWS - 1).split('\t').nth(1).expect("a name").to_owned();
    let detail = format!("Key (name)=({name}) already exists.");
    fails(format!("{ROWS}\t{name}\t1\n"), "23505", Some(&detail));
    fails(format!("{ROWS}\tx\t9\n"), "23514", Some(&format!("Failing row contains ({ROWS}, x, 9).")));
    fails(format!("{ROWS}\tx\t\\N\n"), "23502", Some(&format!("Failing row contains ({ROWS}, x, null).")));
    fails(format!("{ROWS}\tx\ty\n"), "22P02", None);
    fails(format!("{ROWS}\tx\n"), "22P04", None);
    database.database().verify().expect("it is sound");
}

/// Lines are read while those before them are loaded.
#[test]
fn the_error_of_an_earlier_line_comes_first() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(&directory.path().join("db"));
    let mut client = Client::new(&database);
    client.run(TABLE);
    let mut fails = |lines: Vec<String>| {
        let mut data = lines.concat().into_bytes();
        data.extend_from_slice(b"\xff\n");
        let data = data.chunks(50_001).map(<[u8]>::to_vec).collect();
        let mut kept = Kept { data, ..Kept::default() };
        let done = pollster::block_on(client.connection.simple("COPY t FROM STDIN", &mut kept));
        let error = done.expect_err("it fails");
        assert_eq!(client.rows("SELECT count(*) FROM t"), "0");
        (error.code.0, error.context.clone().unwrap_or_default())
    };
    assert_eq!(fails((0..ROWS).map(line).collect()), ("22021", format!("COPY t, line {}", ROWS + 1)));
    let mut lines: Vec<String> = (0..ROWS).map(line).collect();
    lines.insert(100, line(5));
    assert_eq!(fails(lines), ("23505", "COPY t, line 101".to_owned()));
    assert_eq!(load(&mut client, "t", (0..3 * ROWS).map(line)), format!("COPY {}", 3 * ROWS));
    assert_eq!(client.rows(SUMS), sums(3 * ROWS));
    database.database().verify().expect("it is sound");
}

#[test]
fn tables_without_a_key_and_with_sequences_are_loaded_in_bulk() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let database = open(&path);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE t(id int, name text, n int, number serial, of text DEFAULT current_user)");
    assert_eq!(load(&mut client, "t(id, name, n)", (0..ROWS).map(line)), format!("COPY {ROWS}"));
    assert_eq!(client.rows(SUMS), sums(ROWS));
    client.run("INSERT INTO t(id, n) VALUES (-1, 0)");
    let numbers = "SELECT count(DISTINCT number), min(number), max(number), min(of) FROM t";
    let more = ROWS + 1;
    assert_eq!(client.rows(numbers), format!("{more}|1|{more}|ann"));
    crashed(&path, &directory.path().join("after"));
    let after = open(&directory.path().join("after"));
    assert_eq!(Client::new(&after).rows(numbers), format!("{more}|1|{more}|ann"));
}

#[test]
fn clients_that_load_the_same_empty_table_come_one_after_the_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let builder = Database::builder(Schema::new()).workers(2).pin(false);
    let database = builder.open(directory.path().join("db")).expect("it opens");
    let database = SqlDatabase::open(database, options()).expect("SQL opens");
    Client::new(&database).run(TABLE);
    std::thread::scope(|scope| {
        for part in 0..4 {
            let database = &database;
            scope.spawn(move || {
                let mut client = Client::numbered(database, part as i32 + 1);
                let lines = (part * ROWS..(part + 1) * ROWS).map(line);
                assert_eq!(load(&mut client, "t", lines), format!("COPY {ROWS}"));
            });
        }
        scope.spawn(|| {
            let mut client = Client::numbered(&database, 9);
            for id in 1..50 {
                client.run(&format!("INSERT INTO t VALUES (-{id}, 'small {id}', 0)"));
            }
        });
    });
    assert_eq!(
        Client::new(&database).rows("SELECT count(*), max(id) FROM t"),
        format!("{}|{}", 4 * ROWS + 49, 4 * ROWS - 1)
    );
    database.database().verify().expect("it is sound");
}

#[test]
fn a_primary_key_is_added_to_many_rows() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let database = open(&path);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE h(name text NOT NULL, id int, opt bool, more text, n numeric(4, 1)); CREATE INDEX h_n ON h(n)");
    // Not in the order of the key; 7919 and the number of rows have no common divisor.
    let row = |at: usize| {
        let id = at * 7919 % ROWS;
        let opt = ["t", "f", "\\N"][id % 3];
        let more = if id.is_multiple_of(5) { "\\N".to_owned() } else { format!("{}{id}", "m".repeat(90)) };
        format!("x{id:05}\t{id}\t{opt}\t{more}\t{}.5\n", id % 7)
    };
    assert_eq!(load(&mut client, "h", (0..ROWS).map(row)), format!("COPY {ROWS}"));
    client.run("INSERT INTO h VALUES ('twice', 77)");
    let mut refused = |key: &str| {
        let mut kept = Kept::default();
        let statement = format!("ALTER TABLE h ADD PRIMARY KEY ({key})");
        pollster::block_on(client.connection.simple(&statement, &mut kept)).expect_err("it fails")
    };
    let error = refused("id");
    assert_eq!((error.code.0, error.detail.as_deref()), ("23505", Some("Key (id)=(77) is duplicated.")));
    let error = refused("name, opt");
    assert_eq!((error.code.0, error.column.as_deref()), ("23502", Some("opt")));
    assert_eq!(engine_tables(&database).len(), 2);
    client.run("DELETE FROM h WHERE name = 'twice'; ALTER TABLE h ADD PRIMARY KEY (id)");
    let check = |database: &Arc<SqlDatabase>| {
        let mut client = Client::new(database);
        let all = "SELECT count(*), count(opt), count(more), sum(n), min(name), max(id) FROM h";
        let halves: usize = (0..ROWS).map(|id| id % 7 * 10 + 5).sum();
        let wanted = format!(
            "{ROWS}|{}|{}|{}.{}|x00000|{}",
            ROWS / 3 * 2,
            ROWS / 5 * 4,
            halves / 10,
            halves % 10,
            ROWS - 1
        );
        assert_eq!(client.rows(all), wanted);
        assert_eq!(
            client.rows("SELECT name, opt, more IS NULL, n FROM h WHERE id = 8000"),
            "x08000|NULL|t|6.5"
        );
        let sixes = (0..ROWS).filter(|id| id % 7 == 6).count();
        assert_eq!(client.rows("SELECT count(*) FROM h WHERE n = 6.5"), sixes.to_string());
        client.fails("INSERT INTO h VALUES ('x', 8000)", "23505");
        assert_eq!(engine_tables(database).len(), 2);
        database.database().verify().expect("it is sound");
    };
    check(&database);
    // The rows are spread evenly over the workers.
    let number = database.database().table_named(&engine_tables(&database)[1]).expect("it exists").id();
    let scheme = database.database().scheme();
    let family = scheme.family(number);
    let middle = (ROWS as i32 / 2) ^ i32::MIN;
    assert_eq!((family.partitions(), family.lower(1)), (2, Some(&middle.to_be_bytes()[..])));
    crashed(&path, &directory.path().join("after"));
    check(&open(&directory.path().join("after")));
}
