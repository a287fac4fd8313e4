//! Queries: expressions, types, joins, groups, orders, subqueries.

use crate::support::{Client, check, database};

fn filled() -> (std::sync::Arc<atrapos_sql::SqlDatabase>, Client) {
    let database = database(2);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE dept(id int PRIMARY KEY, name text NOT NULL)");
    client.run(
        "CREATE TABLE emp(id int PRIMARY KEY, name varchar(20), dept int, salary numeric(10,2), hired date)",
    );
    client.run("CREATE INDEX emp_dept ON emp(dept)");
    client.run("INSERT INTO dept VALUES (1, 'sales'), (2, 'dev'), (3, 'empty')");
    client.run(
        "INSERT INTO emp VALUES (1, 'ann', 1, 100.50, '2020-01-31'), (2, 'bob', 2, 200, '2021-02-28'), \
         (3, 'cid', 2, 300.25, NULL), (4, 'dan', NULL, NULL, '2020-05-05')",
    );
    (database, client)
}

const EXPRESSIONS: &[(&str, &str)] = &[
    ("SELECT 1 + 2 * 3", "7"),
    ("SELECT cardinality(array_fill(1, ARRAY[1000000]))", "1000000"),
    ("SELECT array_fill(1, ARRAY[10000000])", "54000"),
    ("SELECT array_fill(repeat('x', 1000000), ARRAY[100])::text", "54000"),
    ("SELECT 'a' ~ '(?b)a'", "0A000"),
    ("SELECT 'a' ~ '(?ie)a'", "0A000"),
    ("SELECT * FROM ROWS FROM (generate_series(DISTINCT 1, 2))", "0A000"),
    ("SELECT * FROM ROWS FROM (generate_series(1, 2) FILTER (WHERE true))", "0A000"),
    ("SELECT * FROM ROWS FROM (generate_series(1, 2) WITHIN GROUP (ORDER BY 1))", "0A000"),
    ("SELECT * FROM ROWS FROM (generate_series(1, 2) IGNORE NULLS)", "0A000"),
    ("SELECT * FROM ROWS FROM (generate_series(1, 2 ORDER BY 1))", "0A000"),
    ("SELECT 7 / 2, -7 / 2, 7 % 3, -7 % 3", "3|-3|1|-1"),
    ("SELECT 7.0 / 2, 1.10 + 2, 1.5 * 1.5", "3.5000000000000000|3.10|2.25"),
    ("SELECT 2147483647 + 1", "22003"),
    ("SELECT 2147483648 + 1", "2147483649"),
    ("SELECT 9223372036854775807 + 1", "22003"),
    ("SELECT 1 / 0", "22012"),
    ("SELECT 'a' || 'b' || 1", "ab1"),
    ("SELECT NULL || 'b'", "NULL"),
    ("SELECT 1 = NULL, NULL IS NULL, NULL AND false, NULL OR true, NOT NULL::bool", "NULL|t|f|t|NULL"),
    ("SELECT 1 IN (1, NULL), 2 IN (1, NULL), 2 NOT IN (1, NULL), 1 NOT IN (1, 2)", "t|NULL|NULL|f"),
    ("SELECT 5 BETWEEN 1 AND 10, 5 NOT BETWEEN 1 AND 4", "t|t"),
    ("SELECT 1 IS DISTINCT FROM NULL, NULL IS NOT DISTINCT FROM NULL", "t|t"),
    ("SELECT CASE WHEN 1 > 2 THEN 'a' WHEN 2 > 1 THEN 'b' ELSE 'c' END", "b"),
    ("SELECT CASE 3 WHEN 1 THEN 'one' END", "NULL"),
    (
        "SELECT coalesce(NULL, 2, 3), nullif(1, 1), nullif(1, 2), greatest(1, NULL, 3), least(2, 1)",
        "2|NULL|1|3|1",
    ),
    ("SELECT 'abc' LIKE 'a%', 'abc' LIKE '_b_', 'abc' NOT LIKE '%d', 'ABC' ILIKE 'a%'", "t|t|t|t"),
    ("SELECT 'abc' ~ '^a.c$', 'abc' !~ 'd', 'ABC' ~* 'b'", "t|t|t"),
    ("SELECT '12'::int + 1, '1.5'::numeric, 'true'::bool, '2020-02-29'::date", "13|1.5|t|2020-02-29"),
    ("SELECT 'x'::int", "22P02"),
    ("SELECT '2021-02-29'::date", "22008"),
    ("SELECT 1.5::int, 2.5::int, -1.5::int, 1.4::float8::int", "2|3|-2|1"),
    (
        "SELECT 0.1::float8 + 0.2::float8, 1e100::float8, 'NaN'::float8, 1.0::float4",
        "0.30000000000000004|1e+100|NaN|1",
    ),
    ("SELECT '2020-01-01'::date + 30, '2020-03-01'::date - '2020-02-01'::date", "2020-01-31|29"),
    (
        "SELECT timestamp '2020-01-01 10:00:00', '2020-01-01 10:00:00+02'::timestamptz",
        "2020-01-01 10:00:00|2020-01-01 08:00:00+00",
    ),
    (
        "SELECT extract(year from timestamp '2020-03-04 05:06:07.5'), extract(second from timestamp '2020-03-04 05:06:07.5')",
        "2020|7.500000",
    ),
    ("SELECT date_trunc('month', timestamp '2020-03-04 05:06:07')", "2020-03-01 00:00:00"),
    (
        "SELECT upper('abc'), length('größe'), substring('abcdef' from 2 for 3), position('c' in 'abc')",
        "ABC|5|bcd|3",
    ),
    (
        "SELECT trim('  a '), lpad('7', 3, '0'), replace('aba', 'a', 'x'), left('abc', 2), split_part('a,b', ',', 2)",
        "a|007|xbx|ab|b",
    ),
    (
        "SELECT round(2.567, 2), floor(-1.5), ceil(1.2), abs(-3), mod(7, 4), power(2, 10), trunc(1.9)",
        "2.57|-2|2|3|3|1024|1",
    ),
    (
        "SELECT ARRAY[1,2,3], (ARRAY[4,5])[2], 2 = ANY(ARRAY[1,2]), 2 <> ALL(ARRAY[1,3]), '{a,b}'::text[]",
        "{1,2,3}|5|t|t|{a,b}",
    ),
    ("SELECT 'a'::char(3) || 'b', 'abc'::varchar(2), 'a'::char(3) = 'a '::char(5)", "ab|ab|t"),
    ("SELECT '\\x00ff'::bytea, E'a\\tb', $$it's$$", "\\x00ff|a\tb|it's"),
    ("SELECT 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("SELECT (1, 2) = (1, 2), (1, 2) <> (1, 3)", "t|t"),
    ("SELECT nothing", "42703"),
    ("SELECT nothing(1)", "42883"),
    ("SELECT 1 + 'a'", "22P02"),
    ("SELECT 1 = 'a'::text", "42883"),
    ("SELECT * FROM nothing", "42P01"),
    ("SELEC 1", "42601"),
    ("SELECT $1", "42P02"),
    ("SELECT 1 FROM generate_series(1, 3)", "1 / 1 / 1"),
    ("SELECT sum(n) FROM generate_series(1, 100) AS g(n)", "5050"),
    ("SELECT * FROM generate_series(5, 1, -2)", "5 / 3 / 1"),
    ("SELECT * FROM unnest(ARRAY['a', 'b'])", "a / b"),
    ("VALUES (1, 'a'), (2, 'b')", "1|a / 2|b"),
    ("SELECT count(*) OVER () FROM generate_series(1, 2)", "2 / 2"),
    ("SELECT count(*) OVER w FROM generate_series(1, 2) WINDOW w AS ()", "0A000"),
    ("SELECT now() = now(), current_user, current_database()", "t|ann|postgres"),
    ("SELECT pg_typeof(1), pg_typeof('a'::text), pg_typeof(1.5)", "integer|text|numeric"),
    ("SELECT 'pg_class'::regclass, 'pg_class'::regclass::oid, 'int4'::regtype", "pg_class|1259|integer"),
];

#[test]
fn expressions_have_the_values_of_postgresql() {
    let database = database(1);
    let mut client = Client::new(&database);
    check(&mut client, EXPRESSIONS);
}

const JOINS: &[(&str, &str)] = &[
    (
        "SELECT e.name, d.name FROM emp e JOIN dept d ON d.id = e.dept ORDER BY e.id",
        "ann|sales / bob|dev / cid|dev",
    ),
    (
        "EXPLAIN SELECT e.name FROM emp e JOIN dept d ON d.id = e.dept",
        "Route: any worker / Look-up inner join /   Scan of all rows on emp /   Look-up by primary key on dept",
    ),
    (
        "SELECT e.name, d.name FROM emp e LEFT JOIN dept d ON d.id = e.dept ORDER BY e.id",
        "ann|sales / bob|dev / cid|dev / dan|NULL",
    ),
    (
        "SELECT d.name, count(e.id) FROM dept d LEFT JOIN emp e ON e.dept = d.id GROUP BY d.name ORDER BY 2 DESC, 1",
        "dev|2 / sales|1 / empty|0",
    ),
    (
        "SELECT d.name FROM dept d LEFT JOIN emp e ON e.dept = d.id AND e.salary > 250 WHERE e.id IS NULL ORDER BY 1",
        "empty / sales",
    ),
    ("SELECT e.name FROM emp e, dept d WHERE e.dept = d.id AND d.name = 'dev' ORDER BY 1", "bob / cid"),
    ("SELECT a.name, b.name FROM emp a CROSS JOIN emp b WHERE a.id < b.id AND b.id < 3", "ann|bob"),
    (
        "SELECT name FROM emp JOIN (SELECT id AS dept FROM dept) d USING (dept) ORDER BY name",
        "ann / bob / cid",
    ),
    ("SELECT name FROM dept WHERE id IN (SELECT dept FROM emp) ORDER BY 1", "dev / sales"),
    ("SELECT name FROM dept WHERE id NOT IN (SELECT dept FROM emp WHERE dept IS NOT NULL)", "empty"),
    ("SELECT name FROM dept WHERE id NOT IN (SELECT dept FROM emp)", ""),
    (
        "SELECT name FROM dept d WHERE EXISTS (SELECT 1 FROM emp e WHERE e.dept = d.id AND e.salary > 150)",
        "dev",
    ),
    (
        "SELECT name, (SELECT max(salary) FROM emp e WHERE e.dept = d.id) FROM dept d ORDER BY d.id",
        "sales|100.50 / dev|300.25 / empty|NULL",
    ),
    ("SELECT (SELECT id FROM emp)", "21000"),
    ("SELECT name FROM emp WHERE salary = (SELECT max(salary) FROM emp)", "cid"),
    (
        "WITH rich AS (SELECT * FROM emp WHERE salary > 150) SELECT name FROM rich ORDER BY salary DESC",
        "cid / bob",
    ),
    (
        "SELECT d.name, l.n FROM dept d CROSS JOIN LATERAL (SELECT count(*) FROM emp WHERE dept = d.id) l(n) ORDER BY 1",
        "dev|2 / empty|0 / sales|1",
    ),
    ("SELECT name FROM emp WHERE id = ANY(ARRAY[3, 1, 9])", "ann / cid"),
    ("SELECT id FROM emp WHERE id IN (2, 4, 2)", "2 / 4"),
    (
        "EXPLAIN SELECT id FROM emp WHERE id IN (2, 4, 2)",
        "Route: any worker / Look-ups by a list of primary keys on emp, filtered",
    ),
    ("SELECT id FROM emp WHERE id > 1 AND id <= 3", "2 / 3"),
    ("SELECT id FROM emp WHERE id > 2.5", "3 / 4"),
    ("SELECT id FROM emp WHERE id = 1.5", ""),
    ("SELECT id FROM emp WHERE id = 99999999999", ""),
    ("SELECT id FROM emp WHERE dept = 2 ORDER BY id DESC", "3 / 2"),
    ("SELECT id FROM emp e WHERE nothing.id = 1", "42P01"),
    ("SELECT name FROM emp, dept", "42702"),
    ("SELECT 1 FROM emp, emp", "42712"),
];

#[test]
fn joins_and_subqueries_find_their_rows() {
    let (_database, mut client) = filled();
    check(&mut client, JOINS);
}

#[test]
fn groups_orders_and_limits() {
    let (_database, mut client) = filled();
    check(
        &mut client,
        &[
            (
                "SELECT count(*), count(dept), count(DISTINCT dept), sum(salary), avg(salary), min(name), max(hired) FROM emp",
                "4|3|2|600.75|200.2500000000000000|ann|2021-02-28",
            ),
            ("SELECT sum(id), avg(id) FROM emp", "10|2.5000000000000000"),
            ("SELECT sum(id), count(*) FROM emp WHERE id > 100", "NULL|0"),
            (
                "SELECT dept, sum(salary) FROM emp GROUP BY dept ORDER BY dept",
                "1|100.50 / 2|500.25 / NULL|NULL",
            ),
            ("SELECT dept FROM emp GROUP BY dept HAVING count(*) > 1", "2"),
            ("SELECT dept + 1, count(*) FROM emp GROUP BY dept + 1 ORDER BY 1", "2|1 / 3|2 / NULL|1"),
            ("SELECT dept AS d, count(*) FROM emp GROUP BY d ORDER BY d NULLS FIRST", "NULL|1 / 1|1 / 2|2"),
            ("SELECT name FROM emp GROUP BY dept", "42803"),
            ("SELECT name FROM emp WHERE count(*) > 1", "42803"),
            ("SELECT sum(count(*)) FROM emp", "42803"),
            ("SELECT string_agg(name, ',') FROM emp WHERE dept = 2", "bob,cid"),
            ("SELECT array_agg(id) FROM emp", "{1,2,3,4}"),
            ("SELECT count(*) FILTER (WHERE salary > 150) FROM emp", "2"),
            ("SELECT bool_and(id > 0), bool_or(id > 3) FROM emp", "t|t"),
            ("SELECT id FROM emp ORDER BY salary DESC NULLS LAST LIMIT 2", "3 / 2"),
            ("SELECT id FROM emp ORDER BY salary LIMIT 2 OFFSET 1", "2 / 3"),
            ("SELECT id FROM emp ORDER BY id FETCH FIRST 1 ROW ONLY", "1"),
            ("SELECT id FROM emp LIMIT 0", ""),
            ("SELECT id FROM emp LIMIT -1", "2201W"),
            ("SELECT DISTINCT dept FROM emp ORDER BY dept", "1 / 2 / NULL"),
            ("SELECT DISTINCT dept FROM emp ORDER BY name", "42P10"),
            ("SELECT name AS n FROM emp ORDER BY n DESC LIMIT 1", "dan"),
            ("SELECT name FROM emp ORDER BY 2", "42P10"),
            ("SELECT id FROM emp UNION SELECT id FROM dept ORDER BY 1", "1 / 2 / 3 / 4"),
            ("SELECT 1 UNION ALL SELECT 1", "1 / 1"),
            ("SELECT id FROM emp INTERSECT SELECT id FROM dept ORDER BY id DESC", "3 / 2 / 1"),
            ("SELECT id FROM emp EXCEPT SELECT id FROM dept", "4"),
            ("SELECT 1 UNION SELECT 'a'::text", "42804"),
            ("SELECT 1, 2 UNION SELECT 1", "42601"),
            ("SELECT * FROM emp e RIGHT JOIN LATERAL (SELECT e.id) d ON true", "0A000"),
            ("SELECT id FROM emp FOR UPDATE", "1 / 2 / 3 / 4"),
            ("SELECT id FROM emp WHERE id = 1 FOR UPDATE", "1"),
        ],
    );
}
