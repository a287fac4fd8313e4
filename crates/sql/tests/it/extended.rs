//! The extended protocol: parameters, formats, portals, pipelines.

use atrapos_sql::{Connection, Format, SqlError, SqlType, TransactionStatus};
use pollster::block_on;

use crate::support::{Client, Kept, database, shown};

fn execute(connection: &mut Connection, limit: usize, ends: bool) -> String {
    let mut kept = Kept::default();
    if let Err(error) = block_on(connection.execute("", limit, ends, &mut kept)) {
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
        block_on(connection.sync()).expect("it commits");
    }
    prepare(connection, "SELECT id, name FROM t WHERE id >= $1 ORDER BY id").expect("it parses");
    bind(connection, &[Some(b"4")], &[]).expect("it binds");
    assert_eq!(execute(connection, 0, true), "4|n\n5|n\nSELECT 2");
    bind(connection, &[None], &[]).expect("it binds");
    assert_eq!(execute(connection, 0, true), "SELECT 0");
    assert_eq!(bind(connection, &[], &[]).expect_err("too few").code.0, "08P01");
    assert_eq!(bind(connection, &[Some(b"x")], &[]).expect_err("no number").code.0, "22P02");
    block_on(connection.bind("", "", &[Some(b"5")], &[], &[Format::Binary])).expect("it binds");
    let columns = connection.describe_portal("").expect("it is there").expect("it has rows");
    assert_eq!((columns[0].ty, columns[0].format, columns[0].number), (SqlType::Int8, Format::Binary, 1));
    let mut kept = Kept::default();
    block_on(connection.execute("", 0, true, &mut kept)).expect("it runs");
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
    block_on(connection.sync()).expect("it commits");
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
    block_on(connection.sync()).expect("there is nothing to commit");
    assert_eq!(other.rows("SELECT count(*) FROM t"), "0");
    assert_eq!(insert(connection, "1"), "INSERT 0 1");
    assert_eq!(insert(connection, "2"), "INSERT 0 1");
    block_on(connection.sync()).expect("it commits");
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
