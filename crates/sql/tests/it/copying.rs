//! COPY in and out.

use atrapos::{Database, Schema};
use atrapos_sql::SqlDatabase;

use crate::support::{Client, Kept, database, options};

pub(crate) fn copy(client: &mut Client, statement: &str, data: &[&str]) -> String {
    let mut kept =
        Kept { data: data.iter().map(|piece| piece.as_bytes().to_vec()).collect(), ..Kept::default() };
    client.answer_into(statement, &mut kept)
}

fn copied(client: &mut Client, statement: &str) -> String {
    let mut kept = Kept::default();
    let answer = client.answer_into(statement, &mut kept);
    assert!(answer.starts_with("COPY "), "{answer}");
    String::from_utf8(kept.copied).expect("text")
}

#[test]
fn rows_come_and_go_as_text_and_csv() {
    let database = database(2);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE t(id int PRIMARY KEY, name text, n numeric(5,2) DEFAULT 1)");
    assert_eq!(copy(&mut client, "COPY t FROM STDIN", &["1\ta", "b\t2.5\n2\t\\N\t", "\\N\n"]), "COPY 2");
    assert_eq!(
        copy(
            &mut client,
            "COPY t(id, name) FROM STDIN WITH (FORMAT csv, HEADER)",
            &["id,name\n3,\"x,\n\"\"y\"\n4,\n"]
        ),
        "COPY 2"
    );
    assert_eq!(
        copied(&mut client, "COPY t TO STDOUT"),
        "1\tab\t2.50\n2\t\\N\t\\N\n3\tx,\\n\"y\t1.00\n4\t\\N\t1.00\n"
    );
    assert_eq!(
        copied(&mut client, "COPY (SELECT id, name FROM t WHERE id = 3) TO STDOUT WITH CSV HEADER"),
        "id,name\n3,\"x,\n\"\"y\"\n"
    );
    assert_eq!(
        copied(&mut client, "COPY t(name) TO STDOUT (DELIMITER '|', NULL '-')"),
        "ab\n-\nx,\\n\"y\n-\n"
    );
}

#[test]
fn a_copy_that_fails_leaves_nothing() {
    let database = database(2);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE t(id int PRIMARY KEY, name varchar(2))");
    let mut fails = |data: &[&str], state: &str| {
        let answer = copy(&mut client, "COPY t FROM STDIN", data);
        assert!(answer.contains(&format!("ERROR {state}")), "{answer}");
        assert_eq!(client.rows("SELECT count(*) FROM t"), "0");
    };
    fails(&["1\ta\n1\tb\n"], "23505");
    fails(&["1\ta\nx\tb\n"], "22P02");
    fails(&["1\ta\n2\n"], "22P04");
    fails(&["1\ta\n2\tb\tc\n"], "22P04");
    fails(&["1\ta\n2\tabc\n"], "22001");
    fails(&["1\ta\n\\N\tb\n"], "23502");
    fails(&["1\ta\n", "FAIL"], "57014");
    client.fails("COPY t FROM '/etc/passwd'", "0A000");
    client.fails("COPY nothing FROM STDIN", "42P01");
    client.fails("COPY t FROM STDIN (FORMAT binary, HEADER)", "42601");
    client.fails("COPY t FROM STDIN (FORMAT parquet)", "0A000");
}

#[test]
fn rows_come_and_go_in_the_binary_format() {
    let database = database(2);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE t(id int PRIMARY KEY, i interval, a text[], n numeric, j jsonb, d date)");
    client.run(
        "INSERT INTO t VALUES (1, '1 mon 2 days 00:00:03', '{a,NULL,\"b c\"}', 1.50, '{\"k\": [1]}', '2020-01-01')",
    );
    client.run("INSERT INTO t(id) VALUES (2)");
    let mut kept = Kept::default();
    assert_eq!(client.answer_into("COPY t TO STDOUT (FORMAT binary)", &mut kept), "COPY 2");
    client.run("CREATE TABLE u(id int PRIMARY KEY, i interval, a text[], n numeric, j jsonb, d date)");
    let data = kept.copied.chunks(11).map(<[u8]>::to_vec).collect();
    let mut back = Kept { data, ..Kept::default() };
    assert_eq!(client.answer_into("COPY u FROM STDIN BINARY", &mut back), "COPY 2");
    assert_eq!(client.rows("SELECT * FROM u ORDER BY id"), client.rows("SELECT * FROM t ORDER BY id"));
    let mut cut = Kept { data: [kept.copied[..kept.copied.len() - 3].to_vec()].into(), ..Kept::default() };
    let answer = client.answer_into("COPY u FROM STDIN BINARY", &mut cut);
    assert!(answer.contains("ERROR 22P04"), "{answer}");
}

#[test]
fn a_copy_that_is_too_large_for_a_transaction_says_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let builder = Database::builder(Schema::new()).workers(2).pin(false).transaction_redo_bytes(100_000);
    let database = builder.open(directory.path().join("db")).expect("it opens");
    let database = SqlDatabase::open(database, options()).expect("SQL opens");
    let mut client = Client::new(&database);
    client.run("CREATE TABLE t(id int PRIMARY KEY, name text); INSERT INTO t VALUES (0, 'kept')");
    let lines =
        |from: usize, to: usize| (from..to).map(|id| format!("{id}\tname of {id}\n")).collect::<String>();
    let answer = copy(&mut client, "COPY t FROM STDIN", &[&lines(1, 10_000)]);
    let (message, advice) = answer.split_once("; ").expect("a cure");
    assert!(
        message.starts_with("ERROR 53400: COPY into table \"t\" has more changes after line "),
        "{answer}"
    );
    assert_eq!(client.rows("SELECT count(*) FROM t"), "1");
    // As it says.
    let words: Vec<&str> = advice.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "lines,").expect("a number of lines");
    let part: usize = words[at - 1].parse().expect("a number");
    assert!((1..10_000).contains(&part), "{answer}");
    for from in (1..10_000).step_by(part) {
        let part = copy(&mut client, "COPY t FROM STDIN", &[&lines(from, (from + part).min(10_000))]);
        assert!(part.starts_with("COPY "), "{part}");
    }
    assert_eq!(client.rows("SELECT count(*) FROM t"), "10000");
    // A statement that changes too much says so, too.
    client.fails("UPDATE t SET name = name || '!'", "53400");
}
