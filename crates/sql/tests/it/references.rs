//! COPY of many lines into tables with foreign keys, and into those that they refer to.

use std::sync::Arc;

use atrapos_sql::{SqlDatabase, SqlError};

use crate::copying::copy;
use crate::loading::{ROWS, crashed, engine_tables, line, load, open, pieces};
use crate::support::{Client, Kept};

/// A table with a row for each number that [`line`] has as its third one, and one that refers to it.
const TABLES: &str = "CREATE TABLE parent(id int PRIMARY KEY, name text);
    INSERT INTO parent SELECT n, 'p' || n FROM generate_series(0, 9) AS n(n);
    CREATE TABLE child(id int PRIMARY KEY, name text UNIQUE, n int REFERENCES parent ON DELETE CASCADE)";

/// Few lines to refer to a parent of their own, among many others.
fn children() -> impl Iterator<Item = String> {
    (0..ROWS)
        .map(line)
        .chain((1..4).map(|more| format!("-{more}\tmore {more}\t9\n")))
        .chain(["-9\tnone\t\\N\n".into()])
}

/// The error of a COPY that has to fail.
#[track_caller]
fn refused(client: &mut Client, table: &str, lines: impl Iterator<Item = String>) -> SqlError {
    let data = pieces(lines).into_iter().map(String::into_bytes).collect();
    let mut kept = Kept { data, ..Kept::default() };
    let done = pollster::block_on(client.connection.simple(&format!("COPY {table} FROM STDIN"), &mut kept));
    done.expect_err("it fails")
}

/// The number of foreign keys of the engine.
fn references(database: &SqlDatabase) -> usize {
    database.database().definitions().foreign_keys.len()
}

/// Checks loaded children: their parents are required, and take them along.
fn check_loaded(database: &Arc<SqlDatabase>) {
    let mut client = Client::numbered(database, 8);
    assert_eq!(client.rows("SELECT count(*), count(n) FROM child"), format!("{}|{}", ROWS + 4, ROWS + 3));
    client.fails("INSERT INTO child VALUES (-5, 'x', 77)", "23503");
    client.run("DELETE FROM parent WHERE id = 8; DELETE FROM parent WHERE id = 9");
    assert_eq!(client.rows("SELECT count(*) FROM child WHERE id < 0"), "1");
    assert_eq!(references(database), 1);
    database.database().verify().expect("it is sound");
}

#[test]
fn a_table_with_a_foreign_key_is_loaded_in_bulk() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let database = open(&path);
    let mut client = Client::new(&database);
    client.run(TABLES);
    client.run("BEGIN");
    assert_eq!(load(&mut client, "child", children()), format!("COPY {}", ROWS + 4));
    crashed(&path, &directory.path().join("before"));
    client.run("COMMIT");
    crashed(&path, &directory.path().join("after"));
    check_loaded(&database);
    assert_eq!(engine_tables(&database).len(), 3);
    // The foreign key can be dropped by its name, and with it the index that it goes through.
    client.run("ALTER TABLE child DROP CONSTRAINT child_n_fkey; INSERT INTO child VALUES (-5, 'x', 77)");
    client.run("DROP TABLE parent");
    let before = open(&directory.path().join("before"));
    let mut client = Client::new(&before);
    assert_eq!(client.rows("SELECT count(*) FROM child"), "0");
    assert_eq!((engine_tables(&before).len(), references(&before)), (3, 1));
    client.run("DELETE FROM parent WHERE id = 1");
    check_loaded(&open(&directory.path().join("after")));
}

#[test]
fn the_first_row_that_refers_to_none_is_told_of() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(&directory.path().join("db"));
    let mut client = Client::new(&database);
    client.run(TABLES);
    // Not the least key, nor the last line; the lines after it are read nevertheless.
    let wrong = |id: usize| match id {
        5000 => "5000\tx5000\t99\n".to_owned(),
        5001 | 11_000 => format!("{id}\tx{id}\t98\n"),
        id => line(id),
    };
    let error = refused(&mut client, "child", (0..ROWS).map(wrong));
    assert_eq!(error.code.0, "23503", "{error}");
    assert_eq!(
        error.message,
        "insert or update on table \"child\" violates foreign key constraint \"child_n_fkey\""
    );
    assert_eq!(error.detail.as_deref(), Some("Key (n)=(99) is not present in table \"parent\"."));
    assert_eq!(error.context, None);
    let error = refused(&mut client, "child", (0..ROWS).map(wrong).chain(["x\ty\tz\n".to_owned()]));
    assert_eq!(error.code.0, "22P02", "a line that cannot be read comes before: {error}");
    assert_eq!(client.rows("SELECT count(*) FROM child"), "0");
    assert_eq!((engine_tables(&database).len(), references(&database)), (3, 1));
    client.run("DELETE FROM parent WHERE id = 1; INSERT INTO child VALUES (1, 'one', 2)");
}

#[test]
fn rows_refer_to_later_ones_of_their_own_table() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(&directory.path().join("db"));
    let mut client = Client::new(&database);
    client.run("CREATE TABLE tree(id int PRIMARY KEY, name text, up int REFERENCES tree)");
    let node = |id: usize| format!("{id}\t{}\t{}\n", "x".repeat(90), ROWS - 1 - id);
    let error = refused(&mut client, "tree", (0..ROWS).filter(|id| *id != ROWS - 6).map(node));
    assert_eq!(error.detail.as_deref(), Some("Key (up)=(11994) is not present in table \"tree\"."));
    assert_eq!(load(&mut client, "tree", (0..ROWS).map(node)), format!("COPY {ROWS}"));
    client.fails("DELETE FROM tree WHERE id = 5", "23503");
    client.fails("INSERT INTO tree VALUES (-1, 'x', -2)", "23503");
    client.run("UPDATE tree SET up = NULL WHERE id = 11994; DELETE FROM tree WHERE id = 5");
    assert_eq!((engine_tables(&database).len(), references(&database)), (2, 1));
    database.database().verify().expect("it is sound");
}

#[test]
fn keys_of_several_columns_refer_unless_one_is_null() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(&directory.path().join("db"));
    let mut client = Client::new(&database);
    client.run(
        "CREATE TABLE parent(a int, b text, PRIMARY KEY (a, b));
         INSERT INTO parent VALUES (0, 'x'), (1, 'x'), (2, 'x'), (0, 'y'), (1, 'y'), (2, 'y');
         CREATE TABLE child(id int PRIMARY KEY, b text, a int, more text, FOREIGN KEY (b, a) REFERENCES parent(b, a))",
    );
    let pair = |id: usize| {
        let (a, b) = match id % 5 {
            3 => ("\\N".to_owned(), "nothing".to_owned()),
            4 => ("77".to_owned(), "\\N".to_owned()),
            n => (n.to_string(), ["x", "y"][id % 2].to_owned()),
        };
        format!("{id}\t{b}\t{a}\t{}\n", "m".repeat(100))
    };
    let last = [format!("{ROWS}\tz\t1\tm\n")];
    let error = refused(&mut client, "child", (0..ROWS).map(pair).chain(last));
    assert_eq!(error.code.0, "23503", "{error}");
    let detail = error.detail.as_deref().unwrap_or_default();
    assert!(detail.contains("(z, 1)") || detail.contains("(1, z)"), "{detail}");
    assert_eq!(load(&mut client, "child", (0..ROWS).map(pair)), format!("COPY {ROWS}"));
    client.fails("DELETE FROM parent WHERE a = 1 AND b = 'x'", "23503");
}

#[test]
fn tables_that_refer_to_each_other_are_loaded_one_after_the_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let database = open(&path);
    let mut client = Client::new(&database);
    client.run(
        "CREATE TABLE top(id int PRIMARY KEY, name text, n int);
         CREATE TABLE middle(id int PRIMARY KEY, name text, n int REFERENCES top);
         CREATE TABLE low(id int PRIMARY KEY, name text, n int REFERENCES middle, top int REFERENCES top)",
    );
    let low = |id: usize| format!("{id}\t{}\t{id}\t{}\n", "x".repeat(90), id % 7);
    let check = |client: &mut Client| {
        assert_eq!(client.rows("SELECT count(*) FROM top"), ROWS.to_string());
        client.fails("INSERT INTO middle VALUES (-1, 'x', -1)", "23503");
        client.fails("DELETE FROM top WHERE id = 3", "23503");
        client.fails("DELETE FROM middle WHERE id = 3", "23503");
        client.run(
            "BEGIN; INSERT INTO top VALUES (-1, 'x'); INSERT INTO middle VALUES (-1, 'x', -1); ROLLBACK",
        );
    };
    for statements in [
        ["", ""],
        ["BEGIN; TRUNCATE low, middle, top", "COMMIT"],
        ["BEGIN; TRUNCATE top, middle, low", "COMMIT"],
    ] {
        client.run(statements[0]);
        assert_eq!(load(&mut client, "top", (0..ROWS).map(line)), format!("COPY {ROWS}"));
        assert_eq!(load(&mut client, "middle", (0..ROWS).map(line)), format!("COPY {ROWS}"));
        assert_eq!(load(&mut client, "low", (0..ROWS).map(low)), format!("COPY {ROWS}"));
        if !statements[0].is_empty() {
            // The transaction's own statements are held to the foreign keys as well.
            client.run("SAVEPOINT s");
            client.fails("DELETE FROM top WHERE id = 3", "23503");
            client.run(
                "ROLLBACK TO s; INSERT INTO middle VALUES (-1, 'x', 5); DELETE FROM middle WHERE id = -1",
            );
        }
        client.run(statements[1]);
        check(&mut client);
        assert_eq!((engine_tables(&database).len(), references(&database)), (4, 3));
    }
    crashed(&path, &directory.path().join("after"));
    check(&mut Client::new(&open(&directory.path().join("after"))));
    database.database().verify().expect("it is sound");
}

#[test]
fn tables_that_have_rows_keep_their_parents_from_being_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(&directory.path().join("db"));
    let mut client = Client::new(&database);
    client.run(
        "CREATE TABLE parent(id int PRIMARY KEY, name text, n int);
         CREATE TABLE child(id int PRIMARY KEY, n int REFERENCES parent);
         INSERT INTO child VALUES (1, NULL);
         CREATE TABLE one(id int PRIMARY KEY, name text, n int);
         CREATE TABLE two(id int PRIMARY KEY, n int REFERENCES one);
         ALTER TABLE one ADD FOREIGN KEY (n) REFERENCES two",
    );
    for table in ["parent", "one"] {
        let answer = load(&mut client, table, (0..ROWS).map(line));
        assert!(answer.contains("ERROR 53400"), "{answer}");
    }
    assert_eq!(engine_tables(&database).len(), 5);
    assert_eq!(copy(&mut client, "COPY parent FROM STDIN", &["1\tx\t1\n"]), "COPY 1");
    client.run("INSERT INTO child VALUES (2, 1)");
}

#[test]
fn parents_stay_until_the_load_has_ended() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(&directory.path().join("db"));
    let mut client = Client::new(&database);
    client.run(TABLES);
    client.run("ALTER TABLE child DROP CONSTRAINT child_n_fkey; ALTER TABLE child ADD FOREIGN KEY (n) REFERENCES parent");
    for (end, left, answer) in [("ROLLBACK", 9, "DELETE 1"), ("COMMIT", 9, "ERROR 23503")] {
        client.run("BEGIN");
        assert_eq!(load(&mut client, "child", (0..ROWS).map(line)), format!("COPY {ROWS}"));
        assert_eq!(
            Client::numbered(&database, 5).rows("SELECT count(*) FROM parent"),
            (left + usize::from(end == "ROLLBACK")).to_string(),
            "others can read it"
        );
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let gone = if end == "ROLLBACK" { 6 } else { 5 };
                Client::numbered(&database, 2).answer(&format!("DELETE FROM parent WHERE id = {gone}"))
            });
            client.run(end);
            let got = other.join().expect("no panic");
            assert!(got.contains(answer), "{end}: {got}");
        });
        client.run(
            "INSERT INTO parent VALUES (6, 'again') ON CONFLICT DO NOTHING; DELETE FROM parent WHERE id = 9",
        );
    }
    assert_eq!(Client::numbered(&database, 3).rows("SELECT count(*) FROM parent"), "9");
    database.database().verify().expect("it is sound");
}

#[test]
fn loads_that_are_given_up_keep_no_parent() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(&directory.path().join("db"));
    let mut client = Client::new(&database);
    client.run(TABLES);
    client.run("CREATE TABLE other(id int PRIMARY KEY, name text, n int REFERENCES parent)");
    client.run("BEGIN; SAVEPOINT s");
    load(&mut client, "other", (0..ROWS).map(line));
    client.fails("DELETE FROM parent WHERE id = 2", "23503");
    client.run("ROLLBACK TO s; DELETE FROM parent WHERE id = 2; COMMIT");
    client.run("BEGIN");
    load(&mut client, "other", (0..ROWS).map(line).filter(|line| !line.ends_with("\t2\n")));
    client.fails("SELECT 1 / 0", "22012");
    // Its transaction has ended, though the client has not said so.
    Client::numbered(&database, 2).run("DELETE FROM parent WHERE id = 3");
    client.run("ROLLBACK");
    assert_eq!((engine_tables(&database).len(), references(&database)), (4, 2));
}
