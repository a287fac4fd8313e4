//! Definitions: tables, indexes, sequences, what is added to them, and that they survive.

use atrapos::{Database, Schema};
use atrapos_sql::SqlDatabase;

use crate::support::{Client, check, database, options};

#[test]
fn tables_and_indexes_come_and_go() {
    let database = database(2);
    let mut client = Client::new(&database);
    check(
        &mut client,
        &[
            ("CREATE TABLE t(a int, b int)", "CREATE TABLE"),
            ("CREATE TABLE t(a int)", "42P07"),
            (
                "CREATE TABLE IF NOT EXISTS t(a int)",
                "NOTICE: relation \"t\" already exists, skipping / CREATE TABLE",
            ),
            ("INSERT INTO t VALUES (1, 10), (2, 20), (2, 30)", "INSERT 0 3"),
            ("CREATE UNIQUE INDEX t_a ON t(a)", "23505"),
            ("CREATE INDEX t_a ON t(a, b DESC)", "CREATE INDEX"),
            ("SELECT b FROM t WHERE a = 2", "30 / 20"),
            ("CREATE INDEX t_a ON t(a)", "42P07"),
            ("CREATE INDEX ON t(nothing)", "42703"),
            ("CREATE INDEX ON t(b)", "CREATE INDEX"),
            ("SELECT indexname FROM pg_indexes WHERE tablename = 't' ORDER BY 1", "t_a / t_b_idx"),
            ("DROP INDEX t_a", "DROP INDEX"),
            ("DROP INDEX t_a", "42P01"),
            ("DROP INDEX IF EXISTS t_a", "NOTICE: index \"t_a\" does not exist, skipping / DROP INDEX"),
            ("DROP TABLE t_b_idx", "42809"),
            ("ALTER TABLE t ADD PRIMARY KEY (a)", "23505"),
            ("SELECT count(*) FROM t", "3"),
            ("ALTER TABLE t ADD PRIMARY KEY (a, b)", "ALTER TABLE"),
            ("SELECT * FROM t", "1|10 / 2|20 / 2|30"),
            (
                "EXPLAIN SELECT * FROM t WHERE b = 20 AND a = 2",
                "Route: the owner of the key / Look-up by primary key on t",
            ),
            ("ALTER TABLE t ADD PRIMARY KEY (a)", "42P16"),
            ("ALTER TABLE t ADD COLUMN c text DEFAULT 'new' NOT NULL", "ALTER TABLE"),
            ("ALTER TABLE t ADD COLUMN d int", "ALTER TABLE"),
            ("INSERT INTO t VALUES (3, 1)", "INSERT 0 1"),
            ("SELECT * FROM t WHERE a > 1 ORDER BY a, b", "2|20|new|NULL / 2|30|new|NULL / 3|1|new|NULL"),
            ("ALTER TABLE t DROP COLUMN nothing", "42703"),
            ("ALTER TABLE t ADD CONSTRAINT t_u UNIQUE (b)", "ALTER TABLE"),
            ("INSERT INTO t VALUES (9, 20)", "23505"),
            ("CREATE MATERIALIZED VIEW v AS SELECT 1", "0A000"),
            ("CREATE TEMP TABLE v(a int)", "0A000"),
            ("DROP TABLE t, nothing", "42P01"),
            ("DROP TABLE IF EXISTS t", "NOTICE: table \"t\" does not exist, skipping / DROP TABLE"),
            ("SELECT * FROM t", "42P01"),
            ("CREATE TABLE t(a int PRIMARY KEY, b int PRIMARY KEY)", "42P16"),
            ("CREATE TABLE t(a int DEFAULT true)", "42804"),
            ("CREATE TABLE t(a int, CHECK (b > 1))", "42703"),
        ],
    );
}

#[test]
fn sequences_give_out_numbers() {
    let database = database(2);
    let mut client = Client::new(&database);
    check(
        &mut client,
        &[
            (
                "CREATE TABLE t(id serial PRIMARY KEY, n int GENERATED ALWAYS AS IDENTITY, v text)",
                "CREATE TABLE",
            ),
            ("INSERT INTO t(v) VALUES ('a'), ('b') RETURNING id, n", "1|1 / 2|2"),
            ("INSERT INTO t(n, v) VALUES (1, 'c')", "428C9"),
            ("SELECT currval('t_id_seq'), lastval() > 0", "2|t"),
            ("SELECT nextval('t_id_seq')", "3"),
            ("SELECT setval('t_id_seq', 100)", "100"),
            ("INSERT INTO t(v) VALUES ('c') RETURNING id", "101"),
            ("INSERT INTO t(v) SELECT 'x' FROM generate_series(1, 1000)", "INSERT 0 1000"),
            ("SELECT count(*), count(DISTINCT id), max(id) FROM t", "1003|1003|1101"),
            ("CREATE SEQUENCE s START 5 INCREMENT BY 5", "CREATE SEQUENCE"),
            ("SELECT nextval('s'), nextval('s')", "5|10"),
            ("SELECT currval('nothing')", "42P01"),
            ("SELECT pg_get_serial_sequence('t', 'id')", "public.t_id_seq"),
            ("DROP SEQUENCE t_id_seq", "2BP01"),
            ("DROP SEQUENCE s", "DROP SEQUENCE"),
            ("BEGIN; INSERT INTO t(v) VALUES ('gone'); ROLLBACK", "BEGIN / INSERT 0 1 / ROLLBACK"),
            ("INSERT INTO t(v) VALUES ('kept') RETURNING id", "1103"),
        ],
    );
}

#[test]
fn definitions_rows_and_sequences_survive_an_opening() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    {
        let database = Database::builder(Schema::new()).workers(2).pin(false).open(&path).expect("it opens");
        let database = SqlDatabase::open(database, options()).expect("SQL opens");
        let mut client = Client::new(&database);
        client.run(
            "CREATE TABLE t(id serial PRIMARY KEY, v varchar(5) DEFAULT 'x' CHECK (v <> 'no'), UNIQUE (v))",
        );
        client.run("INSERT INTO t(v) VALUES ('a'), ('b')");
        client.run("CREATE TABLE h(a int); INSERT INTO h VALUES (2), (1); ALTER TABLE h ADD PRIMARY KEY (a)");
        client.run(
            "CREATE TABLE k(id int PRIMARY KEY, old int CHECK (old > 0), i interval, a text[], j jsonb)",
        );
        client.run("INSERT INTO k VALUES (1, 2, '1 day', '{x,NULL}', '{\"b\":1, \"a\":2}')");
        client.run("ALTER TABLE k RENAME COLUMN old TO new; ALTER TABLE k RENAME TO kk; ALTER TABLE kk ALTER new SET NOT NULL");
        client.run(
            "CREATE VIEW w(n, e) AS SELECT new + 1, a[1] FROM kk; COMMENT ON COLUMN kk.new IS 'renamed'",
        );
    }
    let database = Database::existing().workers(2).pin(false).open(&path).expect("it opens again");
    let database = SqlDatabase::open(database, options()).expect("SQL opens");
    let mut client = Client::new(&database);
    check(
        &mut client,
        &[
            ("SELECT * FROM t", "1|a / 2|b"),
            ("INSERT INTO t DEFAULT VALUES RETURNING id > 2, v", "t|x"),
            ("INSERT INTO t(v) VALUES ('no')", "23514"),
            ("INSERT INTO t(v) VALUES ('a')", "23505"),
            ("INSERT INTO t(v) VALUES ('abcdef')", "22001"),
            ("SELECT a FROM h", "1 / 2"),
            (
                "SELECT conname FROM pg_constraint ORDER BY 1",
                "h_pkey / k_old_check / k_pkey / t_pkey / t_v_check / t_v_key",
            ),
            ("SELECT id, new, i, a, j FROM kk", "1|2|1 day|{x,NULL}|{\"a\": 2, \"b\": 1}"),
            ("SELECT * FROM k", "42P01"),
            ("INSERT INTO kk(id, new) VALUES (2, 0)", "23514"),
            ("INSERT INTO kk(id) VALUES (2)", "23502"),
            ("SELECT n, e FROM w", "3|x"),
            ("SELECT col_description('kk'::regclass, 2)", "renamed"),
            ("SELECT table_name, table_type FROM information_schema.tables WHERE table_name = 'w'", "w|VIEW"),
            ("SELECT pg_get_viewdef('w'::regclass)", " SELECT new + 1, a[1] FROM kk;"),
            ("DROP TABLE kk", "2BP01"),
            ("ALTER TABLE kk RENAME COLUMN new TO n", "2BP01"),
            ("INSERT INTO w VALUES (1)", "0A000"),
            ("DROP VIEW w", "DROP VIEW"),
            ("DROP TABLE kk", "DROP TABLE"),
        ],
    );
}

#[test]
fn a_view_goes_with_its_transaction_and_a_condition_waits_for_those_that_read() {
    let database = database(2);
    let (mut client, mut other) = (Client::numbered(&database, 1), Client::numbered(&database, 2));
    client.run("CREATE TABLE t(id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 5)");
    client.run("BEGIN; CREATE VIEW w AS SELECT v FROM t; ROLLBACK");
    client.fails("SELECT * FROM w", "42P01");
    other.run("BEGIN; UPDATE t SET v = -1 WHERE id = 1");
    let altered = std::thread::spawn(move || client.answer("ALTER TABLE t ADD CHECK (v > 0)"));
    other.run("COMMIT");
    let answer = altered.join().expect("it ends");
    assert!(answer.contains("ERROR 23514"), "the row was changed before: {answer}");
    other.run("UPDATE t SET v = 1");
    other.run("ALTER TABLE t ADD CHECK (v > 0)");
    other.fails("UPDATE t SET v = -1", "23514");
}

#[test]
fn tables_of_a_program_are_there() {
    use atrapos::{Table, row};
    row! { #[derive(Clone)] pub(crate) struct Account { pub cents: i64, pub owner: String } }
    struct Accounts;
    impl Table for Accounts {
        type Key = u64;
        type Row = Account;
        const NAME: &'static str = "accounts";
    }
    let database = Database::builder(Schema::new().table::<Accounts>())
        .workers(1)
        .pin(false)
        .in_memory()
        .expect("it opens");
    let accounts = database.table::<Accounts>().expect("it is there");
    let account = Account { cents: 5, owner: "ann".to_owned() };
    database
        .run(accounts.at(&7), async move |tx| tx.insert(accounts, 7, account.clone()).await)
        .expect("it goes in");
    let database = SqlDatabase::open(database, options()).expect("SQL opens");
    let mut client = Client::new(&database);
    assert_eq!(client.rows("SELECT cents, owner FROM accounts"), "5|ann");
    client.run("UPDATE accounts SET cents = cents + 1 WHERE owner = 'ann'");
    assert_eq!(client.rows("SELECT cents FROM accounts"), "6");
}
