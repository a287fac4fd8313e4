//! The extended protocol: parameters, formats, portals, pipelines.

use atrapos_sql::{Behind, Connection, Format, SqlError, SqlType, TransactionStatus};
use pollster::block_on;

use crate::support::{Client, Kept, database, shown};

fn execute(connection: &mut Connection, limit: usize, ends: bool) -> String {
    let mut kept = Kept::default();
    let behind = if ends { Behind::Sync } else { Behind::Nothing };
    if let Err(error) = block_on(connection.execute("", limit, behind, &mut kept)) {
        kept.lines.push(shown(&error));
    }
    kept.lines.join("\n")
}

fn prepare(connection: &mut Connection, text: &str) -> Result<Vec<SqlType>, SqlError> {
    block_on(connection.parse("", text, &[]))?;
    connection.describe_statement("").map(|description| description.parameters)
}

fn bind(
    connection: &mut Connection,
    parameters: &[Option<&[u8]>],
    formats: &[Format],
) -> Result<(), SqlError> {
    block_on(connection.bind("", "", parameters, formats, &[]))
}

#[test]
fn types_of_parameters_are_inferred() {
    let database = database(2);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE t(id bigint PRIMARY KEY, name varchar(10), n numeric(5,1))");
    let connection = &mut client.connection;
    use SqlType::{Int4, Int8, Numeric, Text, Varchar};
    for (text, wanted) in [
        ("SELECT * FROM t WHERE id = $1", vec![Int8]),
        ("INSERT INTO t VALUES ($1, $2, $3)", vec![Int8, Varchar, Numeric]),
        ("UPDATE t SET n = n + $1 WHERE id = $2 AND name LIKE $3", vec![Numeric, Int8, Text]),
        ("SELECT $1 + 1, $2::int, $3", vec![Int4, Int4, Text]),
        ("SELECT id FROM t WHERE id BETWEEN $1 AND $2 LIMIT $3", vec![Int8, Int8, Int8]),
        ("SELECT id FROM t WHERE id IN ($1, $2)", vec![Int8, Int8]),
        ("SELECT id FROM t WHERE id = ANY($1)", vec![SqlType::Int8Array]),
    ] {
        assert_eq!(prepare(connection, text).expect(text), wanted, "{text}");
    }
    block_on(connection.parse("named", "SELECT $1", &[23])).expect("it parses");
    assert_eq!(connection.describe_statement("named").expect("it is there").parameters, [Int4]);
    let taken = block_on(connection.parse("named", "SELECT 1", &[])).expect_err("it is taken");
    assert_eq!(taken.code.0, "42P05");
    assert_eq!(prepare(connection, "SELECT 1; SELECT 2").expect_err("two").code.0, "42601");
    assert_eq!(connection.describe_statement("nothing").expect_err("none").code.0, "26000");
}

#[test]
fn statements_run_with_parameters_in_both_formats() {
    let database = database(2);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE t(id bigint PRIMARY KEY, name text)");
    let connection = &mut client.connection;
    prepare(connection, "INSERT INTO t VALUES ($1, $2)").expect("it parses");
    for id in 1_i64..=5 {
        bind(connection, &[Some(&id.to_be_bytes()), Some(b"n")], &[Format::Binary, Format::Text])
            .expect("it binds");
        assert_eq!(execute(connection, 0, true), "INSERT 0 1");
        block_on(connection.sync(&mut Kept::default())).expect("it commits");
    }
    prepare(connection, "SELECT id, name FROM t WHERE id >= $1 ORDER BY id").expect("it parses");
    bind(connection, &[Some(b"4")], &[]).expect("it binds");
    assert_eq!(execute(connection, 0, true), "4|n\n5|n\nSELECT 2");
    bind(connection, &[None], &[]).expect("it binds");
    assert_eq!(execute(connection, 0, true), "SELECT 0");
    assert_eq!(bind(connection, &[], &[]).expect_err("too few").code.0, "08P01");
    assert_eq!(bind(connection, &[Some(b"x")], &[]).expect_err("no number").code.0, "22P02");
    block_on(connection.bind("", "", &[Some(b"5")], &[], &[Format::Binary])).expect("it binds");
    let described = connection.describe_portal("").expect("it is there");
    let first = &described.columns.expect("it has rows")[0];
    assert_eq!((first.ty, described.formats, first.number), (SqlType::Int8, &[Format::Binary][..], 1));
    let mut kept = Kept::default();
    block_on(connection.execute("", 0, Behind::Sync, &mut kept)).expect("it runs");
    assert_eq!(&kept.raw[5..], [0, 2, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1, b'n']);
}

#[test]
fn portals_give_rows_in_parts() {
    let database = database(2);
    let mut client = Client::new(&database);
    let connection = &mut client.connection;
    prepare(connection, "SELECT n FROM generate_series(1, 5) AS g(n)").expect("it parses");
    bind(connection, &[], &[]).expect("it binds");
    assert_eq!(execute(connection, 2, false), "1\n2\n(suspended)");
    assert_eq!(execute(connection, 2, false), "3\n4\n(suspended)");
    assert_eq!(execute(connection, 2, false), "5\nSELECT 1");
    block_on(connection.sync(&mut Kept::default())).expect("it commits");
    assert!(execute(connection, 2, false).contains("34000"), "portals end with their transaction");
}

#[test]
fn a_pipeline_is_one_transaction_until_its_sync() {
    let database = database(2);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE t(id int PRIMARY KEY)");
    let mut other = Client::numbered(&database, 2);
    let connection = &mut client.connection;
    let insert = |connection: &mut Connection, id: &str| {
        prepare(connection, "INSERT INTO t VALUES ($1)").expect("it parses");
        bind(connection, &[Some(id.as_bytes())], &[]).expect("it binds");
        execute(connection, 0, false)
    };
    assert_eq!(insert(connection, "1"), "INSERT 0 1");
    assert_eq!(connection.status(), TransactionStatus::Idle);
    assert!(insert(connection, "1").contains("23505"));
    block_on(connection.sync(&mut Kept::default())).expect("there is nothing to commit");
    assert_eq!(other.rows("SELECT count(*) FROM t"), "0");
    assert_eq!(insert(connection, "1"), "INSERT 0 1");
    assert_eq!(insert(connection, "2"), "INSERT 0 1");
    block_on(connection.sync(&mut Kept::default())).expect("it commits");
    assert_eq!(other.rows("SELECT count(*) FROM t"), "2");
}

#[test]
fn prepared_statements_follow_the_schema() {
    let database = database(2);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE t(id int, v int)");
    client.run("INSERT INTO t VALUES (1, 10)");
    block_on(client.connection.parse("", "SELECT v FROM t WHERE id = $1", &[])).expect("it parses");
    client.run("ALTER TABLE t ADD PRIMARY KEY (id)");
    client.run("INSERT INTO t VALUES (2, 20)");
    bind(&mut client.connection, &[Some(b"2")], &[]).expect("it is planned again");
    assert_eq!(execute(&mut client.connection, 0, true), "20\nSELECT 1");
    client.run("DROP TABLE t");
    assert_eq!(bind(&mut client.connection, &[Some(b"2")], &[]).expect_err("it is gone").code.0, "42P01");
}

/// Binds and executes a statement with another message behind it; returns the error, if there is one.
fn pipelined(
    connection: &mut Connection,
    statement: &str,
    parameters: &[&str],
    kept: &mut Kept,
) -> Result<(), SqlError> {
    let parameters: Vec<_> = parameters.iter().map(|text| Some(text.as_bytes())).collect();
    block_on(connection.bind("", statement, &parameters, &[], &[]))?;
    block_on(connection.execute("", 0, Behind::Message, kept))
}

/// A connection with statements that read, insert, change and delete rows of a table with an index.
fn prepared(client: &mut Client) -> &mut Connection {
    for (name, text) in [
        ("read", "SELECT id, n FROM t WHERE id = $1"),
        ("insert", "INSERT INTO t VALUES ($1, $2)"),
        ("add", "UPDATE t SET n = n + $2 WHERE id = $1"),
        ("delete", "DELETE FROM t WHERE id = $1 RETURNING n"),
        ("divide", "SELECT 10 / n FROM t WHERE id = $1"),
    ] {
        block_on(client.connection.parse(name, text, &[])).expect("it parses");
    }
    &mut client.connection
}

#[test]
fn statements_of_a_pipeline_run_together_and_see_each_other() {
    let database = database(2);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE t(id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)");
    let connection = prepared(&mut client);
    let mut kept = Kept::default();
    let steps = [
        ("read", &["1"][..], "1|10\nSELECT 1"),
        ("read", &["4"], "SELECT 0"),
        ("read", &["3"], "3|30\nSELECT 1"),
        ("insert", &["4", "40"], "INSERT 0 1"),
        ("read", &["4"], "4|40\nSELECT 1"),
        ("read", &["2"], "2|20\nSELECT 1"),
        ("add", &["2", "5"], "UPDATE 1"),
        ("add", &["9", "5"], "UPDATE 0"),
        ("divide", &["2"], "0\nSELECT 1"),
        ("read", &["2"], "2|25\nSELECT 1"),
        ("delete", &["1"], "10\nDELETE 1"),
        ("read", &["1"], "SELECT 0"),
        ("read", &["2"], "2|25\nSELECT 1"),
    ];
    for (statement, parameters, _) in steps {
        pipelined(connection, statement, parameters, &mut kept).expect("it waits");
    }
    assert!(connection.has_deferred() && kept.lines.is_empty());
    assert_eq!(connection.status(), TransactionStatus::Idle);
    block_on(connection.sync(&mut kept)).expect("it commits");
    assert_eq!(kept.lines.join("\n"), steps.map(|(_, _, answer)| answer).join("\n"));
    assert_eq!(client.rows("SELECT * FROM t ORDER BY id"), "2|25\n3|30\n4|40");
}

#[test]
fn a_pipeline_ends_at_its_first_error() {
    let database = database(2);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE t(id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 10), (2, 0)");
    let connection = prepared(&mut client);
    let steps = [
        ("add", &["1", "1"][..]),
        ("read", &["1"]),
        ("divide", &["1"]),
        ("divide", &["2"]),
        ("read", &["1"]),
    ];
    let mut kept = Kept::default();
    for (statement, parameters) in steps {
        pipelined(connection, statement, parameters, &mut kept).expect("it waits");
    }
    let error = block_on(connection.sync(&mut kept)).expect_err("2 has nothing to divide by");
    assert_eq!(error.code.0, "22012");
    assert_eq!(kept.lines.join("\n"), "UPDATE 1\n1|11\nSELECT 1\n0\nSELECT 1");

    // An error of a message comes after those of the statements before it.
    pipelined(connection, "divide", &["2"], &mut kept).expect("it waits");
    let message = pipelined(connection, "read", &["no number"], &mut kept).expect_err("it is none");
    assert_eq!(block_on(connection.fail(message, &mut kept)).code.0, "22012");
    let mut kept = Kept::default();
    pipelined(connection, "add", &["1", "1"], &mut kept).expect("it waits");
    let message = pipelined(connection, "read", &["no number"], &mut kept).expect_err("it is none");
    assert_eq!(block_on(connection.fail(message, &mut kept)).code.0, "22P02");
    assert_eq!(kept.lines.join("\n"), "UPDATE 1");
    block_on(connection.sync(&mut kept)).expect("there is nothing to commit");
    assert_eq!(client.rows("SELECT * FROM t ORDER BY id"), "1|10\n2|0");
}

#[test]
fn a_pipeline_in_a_transaction_fails_it() {
    let database = database(2);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE t(id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 10), (2, 0)");
    prepared(&mut client);
    client.run("BEGIN; SAVEPOINT before");
    let connection = &mut client.connection;
    let mut kept = Kept::default();
    for (statement, parameters) in [("add", &["1", "1"][..]), ("divide", &["2"]), ("add", &["1", "1"])] {
        pipelined(connection, statement, parameters, &mut kept).expect("it waits");
    }
    assert_eq!(block_on(connection.sync(&mut kept)).expect_err("it fails").code.0, "22012");
    assert_eq!(connection.status(), TransactionStatus::Failed);
    assert_eq!(kept.lines.join("\n"), "UPDATE 1");
    client.run("ROLLBACK TO before");
    let (connection, mut kept) = (&mut client.connection, Kept::default());
    for parameters in [["1", "1"], ["2", "2"]] {
        pipelined(connection, "add", &parameters, &mut kept).expect("it waits");
    }
    // A simple query comes after what waits.
    let answer = client.answer_into("SELECT * FROM t ORDER BY id", &mut kept);
    assert_eq!(answer, "UPDATE 1\nUPDATE 1\n[id|n]\n1|11\n2|2\nSELECT 2");
    client.run("COMMIT");
    assert_eq!(client.rows("SELECT * FROM t ORDER BY id"), "1|11\n2|2");
}

#[test]
fn a_portal_whose_statement_waits_gives_no_rows_again() {
    let database = database(1);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE t(id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 10)");
    let connection = prepared(&mut client);
    let mut kept = Kept::default();
    pipelined(connection, "read", &["1"], &mut kept).expect("it waits");
    block_on(connection.execute("", 0, Behind::Message, &mut kept)).expect("it has no more rows");
    assert_eq!(kept.lines.join("\n"), "1|10\nSELECT 1\nSELECT 0");
    pipelined(connection, "add", &["1", "1"], &mut kept).expect("it waits");
    kept.lines.clear();
    block_on(connection.execute("", 0, Behind::Message, &mut kept)).expect("it has run");
    assert_eq!(kept.lines.join("\n"), "UPDATE 1\nUPDATE 1");
    client.run("INSERT INTO t VALUES (2, 0); BEGIN; SAVEPOINT before");
    let connection = &mut client.connection;
    pipelined(connection, "divide", &["2"], &mut kept).expect("it waits");
    block_on(connection.run_deferred(&mut kept)).expect_err("it fails");
    let again = block_on(connection.execute("", 0, Behind::Message, &mut kept)).expect_err("it has failed");
    assert_eq!(again.code.0, "55000");
}

#[test]
fn a_table_that_changes_while_a_statement_waits_changes_no_described_answer() {
    let database = database(1);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE t(id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 10)");
    let connection = prepared(&mut client);
    block_on(connection.parse("all", "SELECT * FROM t WHERE id = $1", &[])).expect("it parses");
    let mut kept = Kept::default();
    pipelined(connection, "all", &["1"], &mut kept).expect("it waits");
    Client::numbered(&database, 2).run("ALTER TABLE t ADD COLUMN more int");
    let error = block_on(client.connection.sync(&mut kept)).expect_err("it would have three columns");
    assert_eq!((error.code.0, kept.lines.len()), ("0A000", 0));
}

#[test]
fn a_text_that_is_prepared_again_is_planned_for_its_types_and_tables() {
    let database = database(1);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE t(id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 10)");
    let connection = &mut client.connection;
    let parameters = |connection: &mut Connection, text: &str, types: &[u32]| {
        block_on(connection.parse("", text, types)).expect("it parses");
        connection.describe_statement("").expect("it is there").parameters
    };
    for _ in 0..2 {
        assert_eq!(parameters(connection, "SELECT $1", &[]), [SqlType::Text]);
        assert_eq!(parameters(connection, "SELECT $1", &[23]), [SqlType::Int4]);
        assert_eq!(parameters(connection, "SELECT $1", &[0]), [SqlType::Text]);
    }
    let text = "SELECT * FROM t WHERE id = $1";
    let columns = |connection: &Connection| {
        connection.describe_statement("").expect("it is there").columns.expect("it has rows").len()
    };
    block_on(connection.parse("", text, &[])).expect("it parses");
    assert!(connection.parse_at_once(text, &[]) && !connection.parse_at_once(text, &[20]));
    assert!(!connection.parse_at_once("SELECT 1", &[]), "nobody has prepared it");
    assert_eq!(columns(connection), 2);
    Client::numbered(&database, 2).run("ALTER TABLE t ADD COLUMN more int");
    assert!(!connection.parse_at_once(text, &[]), "its table has changed");
    block_on(connection.parse("", text, &[])).expect("it parses");
    assert!(connection.parse_at_once(text, &[]));
    assert_eq!(columns(connection), 3);
    block_on(connection.parse("named", text, &[])).expect("it parses");
    assert_eq!(block_on(connection.parse("named", text, &[])).expect_err("it is taken").code.0, "42P05");
    client.run("DISCARD PLANS");
    assert!(!client.connection.parse_at_once(text, &[]));
    assert!(client.answer("BEGIN; SELECT 1 / 0").contains("22012"));
    let connection = &mut client.connection;
    let failed = block_on(connection.parse("", text, &[])).expect_err("the transaction has failed");
    assert_eq!(failed.code.0, "25P02");
    assert!(!connection.parse_at_once(text, &[]));
}

#[test]
fn large_answers_of_a_pipeline_are_given_in_parts() {
    let database = database(2);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE t(id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)");
    client.run("CREATE TABLE long(id int PRIMARY KEY, word text)");
    client.run("INSERT INTO long SELECT i, repeat('x', 1000) FROM generate_series(1, 1500) AS g(i)");
    let connection = prepared(&mut client);
    block_on(connection.parse("long", "SELECT word FROM long WHERE id > $1", &[])).expect("it parses");
    let mut kept = Kept::default();
    for number in 1..=10 {
        pipelined(connection, "add", &["1", "1"], &mut kept).expect("it waits");
        pipelined(connection, "long", &["0"], &mut kept).expect("it waits");
        pipelined(connection, "read", &["1"], &mut kept).expect("it waits");
        assert_eq!(kept.lines.len(), 0, "{number}");
    }
    block_on(connection.sync(&mut kept)).expect("it commits");
    let short: Vec<&str> = kept.lines.iter().map(|line| &**line).filter(|line| line.len() < 1000).collect();
    let wanted = (1..=10).map(|number| format!("UPDATE 1\nSELECT 1500\n1|{number}\nSELECT 1"));
    assert_eq!(short.join("\n"), wanted.collect::<Vec<_>>().join("\n"));
    assert_eq!(client.rows("SELECT n FROM t"), "10");
}

#[test]
fn pipelines_that_deadlock_are_run_again() {
    const ROUNDS: usize = 300;
    let database = database(2);
    Client::new(&database)
        .run("CREATE TABLE t(id int PRIMARY KEY, n int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 9) AS g(i)");
    std::thread::scope(|scope| {
        for number in 0..4 {
            let database = &database;
            scope.spawn(move || {
                let mut client = Client::numbered(database, 10 + number);
                let connection = prepared(&mut client);
                let orders = if number % 2 == 0 { ["1", "5", "9"] } else { ["9", "5", "1"] };
                for _ in 0..ROUNDS {
                    let mut kept = Kept::default();
                    for id in orders {
                        pipelined(connection, "add", &[id, "1"], &mut kept).expect("it waits");
                    }
                    block_on(connection.sync(&mut kept)).expect("no client sees a deadlock");
                    assert_eq!(kept.lines.join("\n"), "UPDATE 1\nUPDATE 1\nUPDATE 1");
                }
            });
        }
    });
    let sums = Client::new(&database).rows("SELECT n FROM t WHERE id IN (1, 5, 9)");
    assert_eq!(sums, [4 * ROUNDS; 3].map(|sum| sum.to_string()).join("\n"));
}
