//! INSERT, UPDATE, DELETE, and the constraints of tables.

use crate::support::{Client, check, database};

#[test]
fn rows_come_change_and_go() {
    let database = database(2);
    let mut client = Client::new(&database);
    check(
        &mut client,
        &[
            (
                "CREATE TABLE t(a int, b text DEFAULT 'x', c numeric(5,2) DEFAULT 1.5, PRIMARY KEY (a))",
                "CREATE TABLE",
            ),
            ("INSERT INTO t(a) VALUES (1)", "INSERT 0 1"),
            ("INSERT INTO t VALUES (2, 'y', 2.345), (3, DEFAULT, DEFAULT)", "INSERT 0 2"),
            ("SELECT * FROM t", "1|x|1.50 / 2|y|2.35 / 3|x|1.50"),
            ("INSERT INTO t VALUES (4) RETURNING a, b, a + 1 AS next", "4|x|5"),
            ("INSERT INTO t SELECT a + 10, b FROM t WHERE a < 3", "INSERT 0 2"),
            ("SELECT a FROM t", "1 / 2 / 3 / 4 / 11 / 12"),
            ("UPDATE t SET b = 'z', c = c * 2 WHERE a = 2", "UPDATE 1"),
            ("UPDATE t SET b = b || a WHERE a > 10 RETURNING a, b", "11|x11 / 12|y12"),
            ("UPDATE t SET b = NULL WHERE a = 99", "UPDATE 0"),
            ("UPDATE t SET a = a + 1 WHERE a IN (3, 4)", "UPDATE 2"),
            (
                "SELECT a, b, c FROM t ORDER BY a",
                "1|x|1.50 / 2|z|4.70 / 4|x|1.50 / 5|x|1.50 / 11|x11|1.50 / 12|y12|1.50",
            ),
            ("UPDATE t SET a = 1 WHERE a = 2", "23505"),
            ("DELETE FROM t WHERE a = 1", "DELETE 1"),
            ("DELETE FROM t WHERE a > 4 RETURNING a", "5 / 11 / 12"),
            ("DELETE FROM t WHERE b IN (SELECT b FROM t WHERE a = 2)", "DELETE 1"),
            ("SELECT count(*) FROM t", "1"),
            ("TRUNCATE t", "TRUNCATE TABLE"),
            ("SELECT count(*) FROM t", "0"),
            ("INSERT INTO t(a, a) VALUES (1, 1)", "42701"),
            ("INSERT INTO t(x) VALUES (1)", "42703"),
            ("INSERT INTO t VALUES (1, 'a', 1, 2)", "42601"),
            ("INSERT INTO t VALUES ('a')", "22P02"),
            ("INSERT INTO t VALUES (true)", "42804"),
            ("INSERT INTO t(c) VALUES (1)", "23502"),
            ("INSERT INTO t(a, c) VALUES (1, 1000)", "22003"),
            ("INSERT INTO t(a) VALUES (3000000000)", "22003"),
            ("UPDATE t SET x = 1", "42703"),
            ("UPDATE t SET b = 1, b = 2", "42601"),
            ("UPDATE pg_class SET relname = 'x'", "42501"),
            ("INSERT INTO t VALUES (7) ON CONFLICT DO NOTHING", "INSERT 0 1"),
            ("INSERT INTO t VALUES (7, 'again') ON CONFLICT DO NOTHING", "INSERT 0 0"),
            (
                "INSERT INTO t VALUES (7, 'again') ON CONFLICT (a) DO UPDATE SET b = excluded.b || t.b RETURNING b",
                "againx",
            ),
        ],
    );
}

#[test]
fn constraints_name_what_they_refuse() {
    let database = database(2);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE parent(id int PRIMARY KEY, code varchar(3) UNIQUE, CHECK (id > 0))");
    client.run(
        "CREATE TABLE child(id int PRIMARY KEY, parent int NOT NULL REFERENCES parent ON DELETE CASCADE)",
    );
    client.run("CREATE TABLE strict(parent int PRIMARY KEY REFERENCES parent(id))");
    client.run("INSERT INTO parent VALUES (1, 'a'), (2, NULL), (3, NULL)");
    let mut failing = |statement: &str| {
        let mut kept = crate::support::Kept::default();
        pollster::block_on(client.connection.simple(statement, &mut kept)).expect_err(statement)
    };
    let taken = failing("INSERT INTO parent VALUES (1, 'b')");
    assert_eq!(taken.code.0, "23505");
    assert_eq!(taken.constraint.as_deref(), Some("parent_pkey"));
    assert_eq!(taken.table.as_deref(), Some("parent"));
    assert_eq!(taken.detail.as_deref(), Some("Key (id)=(1) already exists."));
    assert_eq!(taken.message, "duplicate key value violates unique constraint \"parent_pkey\"");
    let unique = failing("INSERT INTO parent VALUES (9, 'a')");
    assert_eq!(unique.constraint.as_deref(), Some("parent_code_key"));
    let check = failing("INSERT INTO parent VALUES (-1, 'c')");
    assert_eq!((check.code.0, check.constraint.as_deref()), ("23514", Some("parent_check")));
    let null = failing("INSERT INTO child VALUES (1, NULL)");
    assert_eq!((null.code.0, null.column.as_deref()), ("23502", Some("parent")));
    let orphan = failing("INSERT INTO child VALUES (1, 7)");
    assert_eq!((orphan.code.0, orphan.constraint.as_deref()), ("23503", Some("child_parent_fkey")));
    let long = failing("INSERT INTO parent VALUES (8, 'abcd')");
    assert_eq!((long.code.0, &*long.message), ("22001", "value too long for type character varying(3)"));
    let syntax = failing("SELECT *\nFROM parent\nWHERE nothing = 1");
    assert_eq!(syntax.position, Some(28));
    crate::support::check(
        &mut client,
        &[
            ("INSERT INTO child VALUES (1, 1), (2, 1), (3, 2)", "INSERT 0 3"),
            ("INSERT INTO strict VALUES (3)", "INSERT 0 1"),
            ("DELETE FROM parent WHERE id = 3", "23503"),
            ("UPDATE parent SET id = 9 WHERE id = 1", "0A000"),
            ("UPDATE parent SET code = 'z' WHERE id = 1", "UPDATE 1"),
            ("DELETE FROM parent WHERE id = 1", "DELETE 1"),
            ("SELECT id FROM child", "3"),
            ("DROP TABLE parent", "2BP01"),
        ],
    );
}

#[test]
fn every_type_keeps_its_values() {
    let database = database(1);
    let mut client = Client::new(&database);
    client.run(
        "CREATE TABLE v(id int PRIMARY KEY, a smallint, b bigint, c real, d double precision, e numeric, f numeric(6,3), g text, \
         h varchar(5), i char(4), j bytea, k date, l time, m timestamp, n timestamptz, o uuid, p boolean, q json)",
    );
    client.run(
        "INSERT INTO v VALUES (1, -5, 9000000000, 1.5, 2.25, 1.500, 1.5, 'größe', 'ab', 'x', '\\xdead', '1999-12-31', '12:34:56.5', \
         '2000-01-01 00:00:00.000001', '2000-01-01 00:00:00+01', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', true, '{\"a\": 1}')",
    );
    client.run("INSERT INTO v(id) VALUES (2)");
    check(
        &mut client,
        &[
            (
                "SELECT * FROM v WHERE id = 1",
                "1|-5|9000000000|1.5|2.25|1.500|1.500|größe|ab|x   |\\xdead|1999-12-31|12:34:56.5|2000-01-01 00:00:00.000001|\
          1999-12-31 23:00:00+00|a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11|t|{\"a\": 1}",
            ),
            (
                "SELECT * FROM v WHERE id = 2",
                "2|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL",
            ),
            ("SELECT id FROM v WHERE i = 'x' AND m > '1999-01-01' AND e = 1.5 AND p", "1"),
            ("UPDATE v SET a = 40000 WHERE id = 1", "22003"),
            ("UPDATE v SET q = '{' WHERE id = 1", "22P02"),
            ("CREATE TABLE w(a interval PRIMARY KEY)", "0A000"),
            ("CREATE TABLE w(a int[] UNIQUE)", "0A000"),
            ("CREATE TABLE w(a regclass[])", "42704"),
            ("CREATE TABLE w(a numeric PRIMARY KEY)", "0A000"),
        ],
    );
}
