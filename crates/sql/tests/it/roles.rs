//! Roles beyond what the comparison with PostgreSQL has: several clients, statements that are prepared, another opening.

use atrapos::{Database, Schema};
use atrapos_sql::{ConnectOptions, SqlDatabase};

use crate::support::{Client, check, database, options};

#[test]
fn roles_accesses_and_owners_survive_an_opening() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    {
        let database = Database::builder(Schema::new()).workers(2).pin(false).open(&path).expect("it opens");
        let database = SqlDatabase::open(database, options()).expect("SQL opens");
        let mut client = Client::new(&database);
        client.run("CREATE ROLE reader; CREATE USER bob PASSWORD 'x' IN ROLE reader; CREATE ROLE gone");
        client.run(
            "CREATE TABLE t(id serial PRIMARY KEY); CREATE VIEW v AS SELECT id FROM t; CREATE TABLE u(a int)",
        );
        client.run(
            "GRANT SELECT ON v TO reader; GRANT CREATE ON SCHEMA public TO bob; ALTER TABLE u OWNER TO bob",
        );
        client
            .run("GRANT INSERT ON u TO PUBLIC; ALTER TABLE u RENAME TO uu; ALTER TABLE uu ADD COLUMN id int");
        client.run("UPDATE uu SET id = 1; ALTER TABLE uu ADD PRIMARY KEY (id); DROP ROLE gone");
    }
    let database = Database::existing().workers(2).pin(false).open(&path).expect("it opens again");
    let other = atrapos_sql::SqlOptions { superuser: "other".to_owned(), ..options() };
    let database = SqlDatabase::open(database, other).expect("SQL opens");
    assert_eq!(database.superuser(), "ann", "a database keeps the superuser that it began with");
    assert_eq!(database.password_verifier("bob").as_deref(), Some("verifier of x"));
    let mut client = Client::new(&database);
    let mut bob = Client::of(&database, "bob", 2);
    check(
        &mut client,
        &[
            ("SELECT rolname FROM pg_roles ORDER BY 1", "ann / bob / reader"),
            (
                "SELECT relname, relacl FROM pg_class WHERE relname IN ('t', 'uu', 'v') ORDER BY 1",
                "t|NULL / uu|{bob=arwdDxt/bob,=a/bob} / v|{ann=arwdDxt/ann,reader=r/ann}",
            ),
        ],
    );
    check(
        &mut bob,
        &[
            ("SELECT * FROM v", ""),
            ("SELECT * FROM t", "42501"),
            ("CREATE TABLE mine(a int)", "CREATE TABLE"),
            ("DROP TABLE mine, uu", "DROP TABLE"),
        ],
    );
    // A name that is taken again begins with no privileges of others.
    client.run("CREATE TABLE uu(a int)");
    check(&mut bob, &[("INSERT INTO uu VALUES (1)", "42501"), ("DROP TABLE uu", "42501")]);
}

#[test]
fn a_privilege_that_is_revoked_ends_what_is_prepared() {
    let database = database(2);
    let mut ann = Client::new(&database);
    ann.run("CREATE TABLE t(id int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE ROLE bob LOGIN; GRANT SELECT ON t TO bob");
    let mut bob = Client::of(&database, "bob", 2);
    bob.run("PREPARE p AS SELECT id FROM t");
    assert_eq!(bob.rows("EXECUTE p"), "1");
    assert_eq!(bob.rows("SELECT id FROM t WHERE id = 1"), "1");
    bob.run("BEGIN");
    assert_eq!(bob.rows("EXECUTE p"), "1");
    ann.run("REVOKE SELECT ON t FROM bob");
    check(&mut bob, &[("EXECUTE p", "42501"), ("ROLLBACK", "ROLLBACK"), ("EXECUTE p", "42501")]);
    check(&mut bob, &[("SELECT id FROM t WHERE id = 1", "42501"), ("EXPLAIN SELECT id FROM t", "42501")]);
    check(&mut bob, &[("COPY t TO STDOUT", "42501"), ("COPY t FROM STDIN", "42501")]);
    // Whoever becomes a superuser may do so at once, and whoever is none any more may not.
    ann.run("ALTER ROLE bob SUPERUSER");
    assert_eq!(bob.rows("EXECUTE p"), "1");
    ann.run("ALTER ROLE bob NOSUPERUSER");
    check(&mut bob, &[("EXECUTE p", "42501")]);
}

#[test]
fn privileges_of_columns_follow_their_columns() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    {
        let database = Database::builder(Schema::new()).workers(2).pin(false).open(&path).expect("it opens");
        let database = SqlDatabase::open(database, options()).expect("SQL opens");
        let mut ann = Client::new(&database);
        ann.run("CREATE ROLE bob LOGIN; CREATE ROLE eve; CREATE TABLE t(id int PRIMARY KEY, a int, b int)");
        ann.run("INSERT INTO t VALUES (1, 2, 3); GRANT SELECT (id, a, b), UPDATE (b) ON t TO bob WITH GRANT OPTION");
        let mut bob = Client::of(&database, "bob", 2);
        bob.run("PREPARE p AS SELECT a FROM t; GRANT SELECT (a), UPDATE (b) ON t TO eve");
        assert_eq!(bob.rows("EXECUTE p"), "2");
        // A column that goes takes its privileges along; another one of its name begins without.
        ann.run(
            "ALTER TABLE t RENAME COLUMN a TO c; ALTER TABLE t DROP COLUMN b; ALTER TABLE t ADD COLUMN b int",
        );
        check(
            &mut bob,
            &[("SELECT c FROM t", "2"), ("SELECT b FROM t", "42501"), ("UPDATE t SET b = 1", "42501")],
        );
        check(&mut bob, &[("COPY t (id, c) TO STDOUT", "COPY 1"), ("COPY t TO STDOUT", "42501")]);
        check(&mut bob, &[("COPY t (id) FROM STDIN", "42501"), ("SELECT t.* FROM t", "42501")]);
    }
    let database = Database::existing().workers(2).pin(false).open(&path).expect("it opens again");
    let database = SqlDatabase::open(database, options()).expect("SQL opens");
    let mut ann = Client::new(&database);
    let columns = "SELECT attname, attacl FROM pg_attribute WHERE attrelid = 't'::regclass ORDER BY attname";
    assert_eq!(ann.rows(columns), "b|NULL\nc|{bob=r*/ann,eve=r/bob}\nid|{bob=r*/ann}");
    check(
        &mut ann,
        &[
            ("REVOKE SELECT ON t FROM bob", "2BP01"),
            ("DROP ROLE eve", "2BP01"),
            ("REVOKE SELECT (c) ON t FROM bob CASCADE", "REVOKE"),
            ("DROP ROLE eve", "DROP ROLE"),
        ],
    );
    assert_eq!(ann.rows(columns), "b|NULL\nc|NULL\nid|{bob=r*/ann}");
    // What PostgreSQL says of what is done in part.
    let mut bob = Client::of(&database, "bob", 2);
    ann.run("CREATE ROLE eve");
    let warned = bob.answer("GRANT SELECT (id), UPDATE (id) ON t TO eve");
    assert_eq!(warned, "WARNING: not all privileges were granted for column \"id\" of relation \"t\"\nGRANT");
    let warned = bob.answer("GRANT UPDATE (id) ON t TO eve");
    assert_eq!(warned, "WARNING: no privileges were granted for column \"id\" of relation \"t\"\nGRANT");
    let denied = bob.answer("GRANT SELECT (c) ON t TO eve");
    assert_eq!(denied, "ERROR 42501: permission denied for column \"c\" of relation \"t\"");
    assert_eq!(bob.answer("SELECT c FROM t"), "ERROR 42501: permission denied for table t");
}

#[test]
fn roles_that_are_set_end_with_their_transaction() {
    let database = database(1);
    let mut ann = Client::new(&database);
    ann.run("CREATE ROLE bob LOGIN; CREATE ROLE eve; CREATE TABLE t(id int)");
    check(
        &mut ann,
        &[
            (
                "BEGIN; SET LOCAL ROLE bob; SELECT current_user",
                "BEGIN / SET / [current_user] / bob / SELECT 1",
            ),
            ("COMMIT; SELECT current_user", "COMMIT / [current_user] / ann / SELECT 1"),
            ("BEGIN; SET ROLE bob; ROLLBACK; SHOW role", "BEGIN / SET / ROLLBACK / [role] / none / SHOW"),
            ("SELECT set_config('role', 'bob', false)", "bob"),
            ("SELECT id FROM t", "42501"),
            ("SELECT set_config('role', 'eve', false)", "eve"),
            ("DISCARD ALL", "DISCARD ALL"),
            ("SELECT current_user", "ann"),
            ("SET ROLE nobody", "22023"),
        ],
    );
    let mut bob = Client::of(&database, "bob", 2);
    check(&mut bob, &[("SET ROLE ann", "42501"), ("SELECT set_config('role', 'eve', false)", "42501")]);
    check(&mut bob, &[("SELECT query FROM pg_stat_activity WHERE pid = 1", "<insufficient privilege>")]);
    check(&mut bob, &[("SELECT pg_cancel_backend(1)", "42501"), ("SELECT pg_terminate_backend(1)", "42501")]);
    check(
        &mut bob,
        &[("ALTER ROLE bob PASSWORD 'mine'", "ALTER ROLE"), ("ALTER ROLE bob CREATEROLE", "42501")],
    );
    let startup = ConnectOptions {
        user: "bob".to_owned(),
        process_id: 3,
        settings: vec![("role".to_owned(), "ann".to_owned())],
    };
    assert_eq!(database.connect(startup).expect_err("it may not").code.0, "42501");
    for (user, code) in [("eve", "28000"), ("nobody", "28000")] {
        let options = ConnectOptions { user: user.to_owned(), process_id: 3, settings: Vec::new() };
        assert_eq!(database.connect(options).expect_err("it may not log in").code.0, code);
    }
    // A session goes on when its role is dropped, with what all may.
    ann.run("DROP ROLE bob; CREATE ROLE bob; GRANT ALL ON t TO bob");
    check(&mut bob, &[("SELECT id FROM t", "42501"), ("SELECT 1", "1")]);
}

#[test]
fn views_need_what_their_owners_have() {
    let database = database(2);
    let mut ann = Client::new(&database);
    ann.run("CREATE ROLE bob LOGIN; CREATE ROLE eve LOGIN; GRANT CREATE ON SCHEMA public TO bob");
    ann.run("CREATE TABLE t(id int PRIMARY KEY); CREATE TABLE s(id int PRIMARY KEY); INSERT INTO t VALUES (1); GRANT SELECT ON t TO bob");
    let (mut bob, mut eve) = (Client::of(&database, "bob", 2), Client::of(&database, "eve", 3));
    bob.run("CREATE VIEW v AS SELECT id FROM t; CREATE VIEW w AS SELECT id FROM v; GRANT SELECT ON w TO eve");
    check(&mut eve, &[("SELECT * FROM w", "1"), ("SELECT * FROM v", "42501")]);
    check(&mut eve, &[("SELECT * FROM w, t", "42501"), ("SELECT (SELECT id FROM t)", "42501")]);
    check(&mut eve, &[("WITH x AS (SELECT id FROM t) SELECT * FROM w", "42501")]);
    ann.run("REVOKE SELECT ON t FROM bob");
    check(&mut eve, &[("SELECT * FROM w", "42501")]);
    check(&mut ann, &[("SELECT * FROM w", "42501")]);
    // Roles and privileges that were made in a transaction that is rolled back.
    check(&mut ann, &[("BEGIN", "BEGIN"), ("CREATE ROLE short", "CREATE ROLE"), ("ROLLBACK", "ROLLBACK")]);
    check(&mut ann, &[("DROP ROLE short", "42704")]);
    check(
        &mut ann,
        &[
            ("GRANT bob TO eve WITH INHERIT TRUE", "0A000"),
            ("REVOKE SET OPTION FOR bob FROM eve", "0A000"),
            ("GRANT CONNECT ON DATABASE postgres TO bob", "0A000"),
            ("ALTER ROLE bob SET work_mem = '1MB'", "0A000"),
            ("CREATE ROLE x VALID UNTIL '2030-01-01'", "0A000"),
            ("CREATE ROLE x REPLICATION", "0A000"),
            ("ALTER ROLE ann NOSUPERUSER", "0A000"),
        ],
    );
}

#[test]
fn memberships_and_their_options_are_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let open = |database: Database| SqlDatabase::open(database, options()).expect("SQL opens");
    let database =
        open(Database::builder(Schema::new()).workers(2).pin(false).open(&path).expect("it opens"));
    let mut ann = Client::new(&database);
    ann.run("CREATE ROLE team; CREATE ROLE bob LOGIN; CREATE ROLE eve");
    let answer = ann.answer("GRANT team TO bob WITH ADMIN OPTION; GRANT team TO bob");
    assert!(answer.contains("NOTICE: role \"bob\" is already a member of role \"team\""), "{answer}");
    check(&mut Client::of(&database, "bob", 2), &[("GRANT team TO eve", "GRANT ROLE")]);
    let answer = ann.answer("REVOKE ADMIN OPTION FOR team FROM ann");
    assert!(answer.contains("WARNING: role \"ann\" is not a member of role \"team\""), "{answer}");
    drop((ann, database));
    let database = open(Database::existing().workers(2).pin(false).open(&path).expect("it opens"));
    let mut ann = Client::new(&database);
    let members = "SELECT pg_get_userbyid(member), pg_get_userbyid(grantor), admin_option FROM pg_auth_members ORDER BY 1";
    assert_eq!(ann.rows(members), "bob|ann|t\neve|bob|f");
    ann.run("REVOKE ADMIN OPTION FOR team FROM bob");
    let mut bob = Client::of(&database, "bob", 2);
    check(&mut bob, &[("REVOKE team FROM eve", "42501")]);
    // Who is dropped is a member no more, and what is dropped has none.
    ann.run("DROP ROLE team; CREATE ROLE team");
    assert_eq!(ann.rows(members), "");
}
