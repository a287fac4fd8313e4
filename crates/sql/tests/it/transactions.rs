//! Transactions, savepoints and settings of one connection.

use std::sync::Arc;

use atrapos_sql::TransactionStatus;

use crate::support::{Client, check, database};

#[test]
fn transactions_commit_fail_and_roll_back() {
    let database = database(2);
    let mut client = Client::new(&database);
    check(
        &mut client,
        &[
            ("CREATE TABLE t(a int PRIMARY KEY)", "CREATE TABLE"),
            ("BEGIN", "BEGIN"),
            ("INSERT INTO t VALUES (1)", "INSERT 0 1"),
            ("COMMIT", "COMMIT"),
            ("START TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION"),
            ("INSERT INTO t VALUES (2)", "INSERT 0 1"),
            ("ROLLBACK", "ROLLBACK"),
            ("SELECT a FROM t", "1"),
            ("BEGIN", "BEGIN"),
            ("BEGIN", "WARNING: there is already a transaction in progress / BEGIN"),
            ("INSERT INTO t VALUES (3)", "INSERT 0 1"),
            ("INSERT INTO t VALUES (1)", "23505"),
            ("SELECT 1", "25P02"),
            ("SELEC", "42601"),
            ("COMMIT", "ROLLBACK"),
            ("SELECT a FROM t", "1"),
            ("COMMIT", "WARNING: there is no transaction in progress / COMMIT"),
            ("ROLLBACK", "WARNING: there is no transaction in progress / ROLLBACK"),
            ("INSERT INTO t VALUES (5); INSERT INTO t VALUES (6)", "INSERT 0 1 / INSERT 0 1"),
            ("INSERT INTO t VALUES (7); INSERT INTO t VALUES (6)", "23505"),
            ("SELECT a FROM t", "1 / 5 / 6"),
            ("INSERT INTO t VALUES (8); COMMIT; INSERT INTO t VALUES (6)", "23505"),
            ("SELECT a FROM t WHERE a = 8", "8"),
            ("", "(empty)"),
            ("COMMIT AND CHAIN", "0A000"),
            ("BEGIN READ ONLY", "0A000"),
        ],
    );
    client.run("BEGIN");
    assert_eq!(client.connection.status(), TransactionStatus::Active);
    client.fails("SELECT 1 / 0", "22012");
    assert_eq!(client.connection.status(), TransactionStatus::Failed);
    client.run("ROLLBACK");
    assert_eq!(client.connection.status(), TransactionStatus::Idle);
}

#[test]
fn savepoints_are_gone_back_to() {
    let database = database(2);
    let mut client = Client::new(&database);
    check(
        &mut client,
        &[
            ("CREATE TABLE t(a int PRIMARY KEY)", "CREATE TABLE"),
            ("SAVEPOINT s", "25P01"),
            ("BEGIN", "BEGIN"),
            ("SAVEPOINT before", "SAVEPOINT"),
            ("INSERT INTO t VALUES (1)", "INSERT 0 1"),
            ("SAVEPOINT s", "SAVEPOINT"),
            ("INSERT INTO t VALUES (2)", "INSERT 0 1"),
            ("INSERT INTO t VALUES (2)", "23505"),
            ("SELECT 1", "25P02"),
            ("ROLLBACK TO s", "ROLLBACK"),
            ("SELECT a FROM t", "1"),
            ("INSERT INTO t VALUES (3)", "INSERT 0 1"),
            ("RELEASE s", "RELEASE"),
            ("ROLLBACK TO SAVEPOINT s", "3B001"),
            ("ROLLBACK TO SAVEPOINT before", "ROLLBACK"),
            ("INSERT INTO t VALUES (4)", "INSERT 0 1"),
            ("COMMIT", "COMMIT"),
            ("SELECT a FROM t", "4"),
        ],
    );
}

#[test]
fn definitions_in_a_transaction_go_with_it() {
    let database = database(2);
    let mut client = Client::new(&database);
    check(
        &mut client,
        &[
            ("BEGIN", "BEGIN"),
            ("CREATE TABLE t(a int PRIMARY KEY)", "CREATE TABLE"),
            ("INSERT INTO t VALUES (1)", "INSERT 0 1"),
            ("ROLLBACK", "ROLLBACK"),
            ("SELECT * FROM t", "42P01"),
            (
                "BEGIN; CREATE TABLE t(a int PRIMARY KEY); INSERT INTO t VALUES (1); COMMIT",
                "BEGIN / CREATE TABLE / INSERT 0 1 / COMMIT",
            ),
            ("SELECT * FROM t", "1"),
            ("BEGIN", "BEGIN"),
            (
                "DROP TABLE t",
                "WARNING: DROP TABLE has taken effect at once, and is not undone if the transaction is rolled back / DROP TABLE",
            ),
            ("ROLLBACK", "ROLLBACK"),
            ("SELECT * FROM t", "42P01"),
        ],
    );
}

#[test]
fn settings_are_set_shown_and_rolled_back() {
    let database = database(1);
    let mut client = Client::new(&database);
    check(
        &mut client,
        &[
            ("SHOW transaction_isolation", "serializable"),
            ("SHOW TRANSACTION ISOLATION LEVEL", "serializable"),
            ("SET application_name = 'x'", "SET"),
            ("SHOW application_name", "x"),
            ("SET TIME ZONE 'UTC'", "SET"),
            ("SET search_path TO public", "SET"),
            ("SET client_encoding TO 'latin1'", "0A000"),
            ("SET nothing = 1", "42704"),
            ("SELECT current_setting('application_name')", "x"),
            ("BEGIN; SET application_name = 'y'; ROLLBACK", "BEGIN / SET / ROLLBACK"),
            ("SHOW application_name", "x"),
            ("RESET application_name", "RESET"),
            ("SHOW application_name", ""),
            ("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SET"),
            ("DISCARD ALL", "DISCARD ALL"),
            ("ANALYZE", "ANALYZE"),
            ("VACUUM", "VACUUM"),
            ("LISTEN x", "0A000"),
        ],
    );
    assert!(client.connection.settings().take_changes().iter().any(|(name, _)| *name == "application_name"));
}

/// Dropping the last handle closes the database: neither sessions nor what runs for them keep it open.
#[test]
fn sessions_do_not_keep_the_engine_open() {
    let database = database(2);
    let mut client = Client::new(&database);
    client.run("CREATE SEQUENCE s; CREATE TABLE t(id int PRIMARY KEY DEFAULT nextval('s'), n int)");
    client.run("BEGIN; INSERT INTO t(n) VALUES (1), (2); DECLARE c CURSOR FOR SELECT * FROM t");
    assert_eq!(client.rows("FETCH 1 FROM c"), "1|1");
    assert_eq!(Arc::strong_count(database.database()), 1);
    client.run("COMMIT");
}

#[test]
fn what_a_connection_knows_follows_it_into_the_next_transaction() {
    let database = database(1);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE t(id serial PRIMARY KEY, n int); INSERT INTO t(n) VALUES (1)");
    assert_eq!(client.rows("SELECT currval('t_id_seq') FROM t"), "1");
    client.run("DISCARD SEQUENCES");
    assert!(client.answer("SELECT currval('t_id_seq') FROM t").contains("55000"), "it has taken none");
    assert_eq!(client.rows("SELECT set_config('application_name', 'x', false) FROM t"), "x");
    assert_eq!(client.rows("SELECT current_setting('application_name') FROM t"), "x");
    assert_eq!(client.rows("SELECT pg_try_advisory_lock(1) FROM t"), "t");
    client.run("SELECT 1 FROM t");
    let mut other = Client::numbered(&database, 2);
    assert_eq!(other.rows("SELECT pg_try_advisory_lock(1)"), "f");
    client
        .run("CREATE ROLE before; SET ROLE before; RESET ROLE; GRANT SELECT ON t TO before; SET ROLE before");
    assert_eq!(client.rows("SELECT current_user FROM t"), "before");
    other.run("ALTER ROLE before RENAME TO behind");
    let renamed = client.answer("SELECT current_user FROM t");
    assert!(!renamed.contains("before"), "{renamed}");
}
