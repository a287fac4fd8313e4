//! Statements that nobody would write: no text makes the planner or the executor panic, or a connection unusable.

use proptest::prelude::*;
use proptest::sample::select;

use crate::support::{Client, database};

const OPERATORS: &[&str] = &[
    "+",
    "-",
    "*",
    "/",
    "%",
    "=",
    "<",
    ">=",
    "<>",
    "AND",
    "OR",
    "||",
    "LIKE",
    "~",
    "IS DISTINCT FROM",
    "<<",
    "^",
    "@>",
    "->",
];
const FUNCTIONS: &[&str] = &[
    "sum",
    "max",
    "lower",
    "abs",
    "coalesce",
    "substring",
    "round",
    "nextval",
    "array_agg",
    "nothing",
    "greatest",
    "repeat",
    "lpad",
    "generate_series",
    "unnest",
    "to_regclass",
    "pg_get_expr",
    "format_type",
    "extract",
    "string_agg",
];
const TYPES: &[&str] = &[
    "int",
    "text",
    "numeric(4,1)",
    "bool",
    "date",
    "char(2)",
    "int[]",
    "bytea",
    "regclass",
    "float4",
    "nothing",
];

/// A piece of an expression.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("a".to_owned()),
        Just("t.b".to_owned()),
        Just("u.a".to_owned()),
        Just("NULL".to_owned()),
        Just("true".to_owned()),
        Just("'x'".to_owned()),
        Just("'2020-01-01'::date".to_owned()),
        Just("1.5".to_owned()),
        Just("9223372036854775807".to_owned()),
        Just("ARRAY[1, 2]".to_owned()),
        Just("count(*)".to_owned()),
        Just("*".to_owned()),
        Just("now()".to_owned()),
        (-5_i32..5).prop_map(|number| number.to_string()),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let operator = select(OPERATORS);
        let function = select(FUNCTIONS);
        let ty = select(TYPES);
        prop_oneof![
            (inner.clone(), operator, inner.clone())
                .prop_map(|(one, op, other)| format!("({one} {op} {other})")),
            (function, proptest::collection::vec(inner.clone(), 0..4))
                .prop_map(|(name, arguments)| format!("{name}({})", arguments.join(", "))),
            (inner.clone(), ty).prop_map(|(value, ty)| format!("({value})::{ty}")),
            (inner.clone(), inner.clone())
                .prop_map(|(one, other)| format!("CASE WHEN {one} THEN {other} END")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(one, low, high)| format!("{one} BETWEEN {low} AND {high}")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(one, a, b)| format!("{one} IN ({a}, {b})")),
            inner.clone().prop_map(|inner| format!("(SELECT {inner} FROM t LIMIT 1)")),
            (inner.clone(), inner.clone())
                .prop_map(|(one, other)| format!("{one} IN (SELECT {other} FROM u WHERE u.a = t.a)")),
            inner.clone().prop_map(|inner| format!("EXISTS (SELECT 1 FROM u WHERE {inner})")),
            (inner.clone(), inner.clone()).prop_map(|(one, other)| format!("{one} = ANY({other})")),
            inner.clone().prop_map(|inner| format!("-{inner}")),
            inner.prop_map(|inner| format!("NOT {inner}")),
        ]
    })
}

fn statement() -> impl Strategy<Value = String> {
    let tables = prop_oneof![
        Just("t"),
        Just("t, u"),
        Just("t JOIN u ON t.a = u.a"),
        Just("t LEFT JOIN u ON t.a = u.a AND u.b > t.b"),
        Just("t CROSS JOIN LATERAL (SELECT t.a + 1) l(x)"),
        Just("(SELECT * FROM t) t"),
        Just("pg_class"),
        Just("u NATURAL JOIN t"),
        Just("generate_series(1, 3) g(a)"),
    ];
    let tail = prop_oneof![
        Just(String::new()),
        Just("ORDER BY 1".to_owned()),
        Just("GROUP BY a".to_owned()),
        Just("GROUP BY 1 HAVING true".to_owned()),
        Just("LIMIT 1 OFFSET 1".to_owned()),
        Just("FOR UPDATE".to_owned()),
        Just("UNION SELECT 1".to_owned()),
    ];
    prop_oneof![
        6 => (expression(), tables, expression(), tail).prop_map(|(item, from, filter, tail)| format!("SELECT {item} FROM {from} WHERE {filter} {tail}")),
        1 => (expression(), expression()).prop_map(|(value, filter)| format!("UPDATE t SET b = {value} WHERE {filter}")),
        1 => expression().prop_map(|filter| format!("DELETE FROM t WHERE {filter} RETURNING *")),
        1 => (expression(), expression()).prop_map(|(a, b)| format!("INSERT INTO t VALUES ({a}, {b}) ON CONFLICT (a) DO UPDATE SET b = {b}")),
        1 => expression().prop_map(|item| format!("EXPLAIN SELECT {item} FROM t")),
        1 => expression().prop_map(|check| format!("CREATE TABLE w(a int DEFAULT {check}, CHECK ({check}))")),
        1 => "[ -~]{0,60}".prop_map(|noise| noise),
        1 => "(SELECT|INSERT|ALTER TABLE t|DROP|CREATE|COPY t|SET|BEGIN|WITH|VALUES)[ a-z0-9(),.*'=$]{0,40}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_statement_makes_a_connection_unusable(statements in proptest::collection::vec(statement(), 1..8)) {
        let database = database(1);
        let mut client = Client::new(&database);
        client.run("CREATE TABLE t(a int PRIMARY KEY, b int); INSERT INTO t VALUES (1, 1), (2, NULL)");
        client.run("CREATE TABLE u(a int, b text); INSERT INTO u VALUES (1, 'x'), (NULL, NULL)");
        for statement in statements {
            let answer = client.answer(&statement);
            prop_assert!(!answer.contains("ERROR XX") && !answer.contains("panicked"), "{}: {}", statement, answer);
        }
        client.answer("ROLLBACK");
        prop_assert_eq!(client.rows("SELECT 1"), "1");
    }
}

#[test]
fn deep_statements_are_refused() {
    let database = database(1);
    let mut client = Client::new(&database);
    for statement in [
        format!("SELECT {}1{}", "(".repeat(5000), ")".repeat(5000)),
        format!("SELECT {}1", "NOT ".repeat(5000)),
        format!("SELECT {}", vec!["1"; 20_000].join(" + ")),
        format!("SELECT {}", vec!["true"; 20_000].join(" AND ")),
        format!("SELECT 1 {}", "UNION SELECT 1 ".repeat(5000)),
    ] {
        let answer = client.answer(&statement);
        // The grammar itself gives up on some of them, with a syntax error.
        let is_refused = answer.starts_with("ERROR 54001") || answer.starts_with("ERROR 42601");
        assert!(is_refused || answer.ends_with("SELECT 1"), "{}", &answer[..answer.len().min(200)]);
    }
    assert_eq!(client.rows("SELECT 1"), "1");
}
