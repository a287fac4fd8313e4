-- Statements whose answers are compared with PostgreSQL's: one a line, all in one session. scripts/record-postgresql writes answers.txt anew.

-- Literals, operators, NULL.
SELECT 1 + 2 * 3 AS n, 7 / 2, -7 / 2, 7 % 3, -7 % 3
SELECT 7.0 / 2, 1.10 + 2, 1.5 * 1.5, 2.5::numeric(10,1), 10::numeric / 3
SELECT 2147483647 + 1
SELECT 2147483648 + 1, 9223372036854775807
SELECT 9223372036854775807 + 1
SELECT 1 / 0
SELECT 1.0 / 0
SELECT 1::float8 / 0
SELECT 'a' || 'b' || 1, NULL || 'b'
SELECT 1 = NULL, NULL IS NULL, NULL AND false, NULL OR true, NOT NULL::bool
SELECT 1 IN (1, NULL), 2 IN (1, NULL), 2 NOT IN (1, NULL), 1 NOT IN (1, 2)
SELECT 5 BETWEEN 1 AND 10, 5 NOT BETWEEN 1 AND 4, 5 BETWEEN 10 AND 1
SELECT 1 IS DISTINCT FROM NULL, NULL IS NOT DISTINCT FROM NULL, true IS TRUE, NULL IS UNKNOWN
SELECT CASE WHEN 1 > 2 THEN 'a' WHEN 2 > 1 THEN 'b' ELSE 'c' END, CASE 3 WHEN 1 THEN 'one' END
SELECT coalesce(NULL, 2, 3), nullif(1, 1), nullif(1, 2), greatest(1, NULL, 3), least(2, 1)
SELECT 'abc' LIKE 'a%', 'abc' LIKE '_b_', 'abc' NOT LIKE '%d', 'ABC' ILIKE 'a%', 'a%c' LIKE 'a\%c', 'a%c' LIKE 'ax%c' ESCAPE 'x'
SELECT 'abc' ~ '^a.c$', 'abc' !~ 'd', 'ABC' ~* 'b', 'ABC' !~* 'b'
SELECT 5 & 3, 5 | 3, 5 # 3, 1 << 4, 256 >> 2, ~5
SELECT 2 ^ 10, 2.0 ^ 0.5, @ -5, |/ 16.0
SELECT +5, - 5, -(-5), 2 - -2
SELECT '12'::int + 1, '1.5'::numeric, 'true'::bool, 'off'::bool, '2020-02-29'::date
SELECT 'x'::int
SELECT '99999999999'::int
SELECT 'maybe'::bool
SELECT '2021-02-29'::date
SELECT 'not a date'::date
SELECT 1.5::int, 2.5::int, -1.5::int, 1.4::float8::int, 2.5::float8::int
SELECT 0.1::float8 + 0.2::float8, 1e100::float8, 'NaN'::float8, 1.0::float4, 'Infinity'::float8
SELECT 1e10::float8, 1e-10::float8, 123456789012345678::float8, 0.1::float4
SELECT 40000::int2
SELECT 1::bool, 0::bool, true::int
SELECT '1 '::int, ' 1'::int, '+1'::int
SELECT pg_typeof(1), pg_typeof('a'::text), pg_typeof(1.5), pg_typeof(10000000000), pg_typeof(now()), pg_typeof(1.5::float4)
SELECT (1, 2) = (1, 2), (1, 2) <> (1, 3), (1, 2) < (1, 3), (2, 1) > (1, 9), (1, NULL) = (1, 2), (1, 2) >= (1, 2)
SELECT (1, 2) IN ((1, 2), (3, 4)), (1, 3) IN ((1, 2), (3, 4)), (1, 2) IN (SELECT 1, 2), (1, 3) NOT IN (SELECT 1, 2)
SELECT (1, 2) = (1, 2, 3)
SELECT 1 = 'a'::text
SELECT 1 + 'a'
SELECT nothing
SELECT nothing(1)
SELECT length(1)
SELECT * FROM nothing
SELECT "Quoted" FROM (SELECT 1 AS "Quoted") q
SELEC 1
SELECT $1
SELECT 1 WHERE 1
SELECT U&'\0061', E'a\tb', $$it's$$, 'it''s'
SELECT 'a'::char(3) || 'b', 'abc'::varchar(2), 'a'::char(3) = 'a '::char(5), 'abc'::char(2)
SELECT '\x00ff'::bytea, '\x00ff'::bytea = '\x00FF'::bytea, length('\x0102'::bytea)
SELECT 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid, 'A0EEBC999C0B4EF8BB6D6BB9BD380A11'::uuid
SELECT 'xyz'::uuid
SELECT 'pg_class'::regclass, 'pg_class'::regclass::oid, 'int4'::regtype
SELECT 12345678901234567890123456789012345678::numeric, 0.00000000000000000000000000000000000001::numeric
SELECT 12345678901234567890::numeric * 1234567890::numeric
SELECT '1.23e5'::numeric, 1.500::numeric, -0.0::numeric, 1e3

-- Functions of texts.
SELECT upper('abc'), lower('ABC'), length('grass'), char_length('abc'), substring('abcdef' from 2 for 3), position('c' in 'abc')
SELECT trim('  a '), trim(both 'x' from 'xax'), trim(leading 'x' from 'xax'), ltrim('  a'), rtrim('a  '), btrim('xyax', 'xy')
SELECT lpad('7', 3, '0'), rpad('7', 3), replace('aba', 'a', 'x'), left('abc', 2), right('abc', -1), split_part('a,b', ',', 2), reverse('abc')
SELECT concat('a', NULL, 1, true), concat_ws('-', 'a', NULL, 'b'), repeat('ab', 3), initcap('hello world')
SELECT ascii('a'), chr(97), strpos('abc', 'b'), starts_with('abc', 'ab'), md5('abc'), translate('12345', '143', 'ax')
SELECT substr('abc', 2), substr('abc', 0, 2), substring('abc', -1, 3), overlay('abcdef' placing 'XX' from 2 for 3)
SELECT substring('abc' from 1 for -1)
SELECT quote_ident('a b'), quote_literal('it''s'), quote_nullable(NULL), to_hex(255), encode('\x01ff'::bytea, 'hex'), decode('01ff', 'hex')
SELECT regexp_replace('foobar', 'o+', 'x'), regexp_replace('foobar', 'o', 'x', 'g'), regexp_match('foobar', '(o)(b)')
SELECT string_to_array('a,b,c', ','), array_to_string(ARRAY[1,2,NULL,3], ','), array_to_string(ARRAY['a',NULL], ',', '*')
SELECT format('%s is %I and %L', 'it', 'a b', 'x'), format('%1$s %1$s', 'a')
SELECT octet_length('abc'), bit_length('abc'), lower(NULL), length(NULL)

-- Functions of numbers.
SELECT round(2.567, 2), round(2.5), round(-2.5), round(2.5::float8), floor(-1.5), ceil(1.2), ceiling(-1.2), abs(-3), abs(-3.5), trunc(1.9), trunc(-1.987, 2)
SELECT mod(7, 4), mod(-7, 4), mod(7.5, 2), power(2, 10), power(2.0, 3), sqrt(16), sqrt(2.0::float8), exp(0::float8), ln(1::float8), sign(-2.5)
SELECT round(1234.5678, -2), round(15, -1), div(7, 2), gcd(12, 18), lcm(4, 6), log(100.0), log(100::float8), cbrt(27::float8)
SELECT mod(1, 0)
SELECT sqrt(-1::float8)
SELECT random() < 1, random() >= 0, pi(), degrees(pi()), radians(180::float8)
SELECT factorial(5), width_bucket(5.5, 0, 10, 5)
SELECT sin(0::float8), cos(0::float8), tan(0::float8), atan2(0::float8, 1::float8)

-- Dates, times, intervals.
SELECT '2020-01-01'::date + 30, '2020-03-01'::date - '2020-02-01'::date, '2020-03-01'::date - 1
SELECT timestamp '2020-01-01 10:00:00', '2020-01-01 10:00:00+02'::timestamptz, time '10:11:12.5', '24:00'::time
SELECT date '2020-01-01' + time '10:00', timestamp '2020-01-01 10:00' - timestamp '2019-12-31 08:30', timestamptz '2020-01-02 00:00+00' - timestamptz '2020-01-01 00:00+00'
SELECT interval '1 day', interval '1 year 2 months 3 days 04:05:06.7', interval '-1 day', interval '1 day ago', interval '90 minutes', interval '1.5 hours'
SELECT interval '1' day, interval '2' hour, interval '1-2' year to month, interval 'P1Y2M3DT4H5M6S', '1 week'::interval, '1 mon'::interval
SELECT interval 'nonsense'
SELECT interval '0', interval '-1 year 2 days', interval '1 day -01:00:00', interval '100 hours'
SELECT date '2020-01-31' + interval '1 month', timestamp '2020-02-29' + interval '1 year', timestamp '2020-03-31 10:00' - interval '1 month 1 hour'
SELECT timestamptz '2020-01-01 00:00+00' + interval '36 hours', time '23:00' + interval '2 hours', time '01:00' - interval '2 hours', time '10:00' - time '08:30'
SELECT interval '1 day' + interval '2 hours', interval '1 day' - interval '2 hours', interval '1 hour' * 2.5, 3 * interval '1 day', interval '1 day' / 2, -interval '1 day 2 hours'
SELECT interval '1 day' = interval '24 hours', interval '1 month' > interval '29 days', interval '1 month' = interval '30 days', interval '1 hour' < interval '61 minutes'
SELECT sum(i), min(i), max(i), avg(i) FROM (VALUES (interval '1 day'), (interval '2 hours')) v(i)
SELECT extract(year from timestamp '2020-03-04 05:06:07.5'), extract(second from timestamp '2020-03-04 05:06:07.5'), extract(epoch from timestamp '1970-01-02')
SELECT extract(dow from date '2020-03-01'), extract(isodow from date '2020-03-01'), extract(doy from date '2020-03-01'), extract(week from date '2020-01-01'), extract(isoyear from date '2021-01-01'), extract(quarter from date '2020-05-01')
SELECT extract(century from date '2020-01-01'), extract(decade from date '2020-01-01'), extract(millennium from date '2020-01-01'), extract(milliseconds from time '00:00:01.5'), extract(hour from time '10:11:12')
SELECT extract(day from interval '1 month 40 days 3 hours'), extract(hour from interval '40 days 3 hours'), extract(epoch from interval '1 day 1 second'), extract(month from interval '14 months'), extract(year from interval '14 months')
SELECT extract(nonsense from timestamp '2020-01-01')
SELECT date_part('year', date '2020-01-01'), date_part('hour', timestamp '2020-01-01 10:00'), date_part('day', interval '3 days')
SELECT date_trunc('month', timestamp '2020-03-04 05:06:07'), date_trunc('hour', timestamptz '2020-03-04 05:06:07+00'), date_trunc('day', interval '3 days 4 hours'), date_trunc('week', timestamp '2020-03-04'), date_trunc('quarter', timestamp '2020-05-04'), date_trunc('decade', timestamp '2025-05-04'), date_trunc('century', timestamp '2025-05-04')
SELECT date_trunc('nonsense', timestamp '2020-01-01')
SELECT age(timestamp '2020-03-01', timestamp '2019-12-31'), age(timestamp '2020-01-01 10:00', timestamp '2020-01-02'), justify_hours(interval '30 hours'), justify_days(interval '35 days'), justify_interval(interval '1 month -1 hour')
SELECT make_date(2020, 2, 29), make_time(10, 11, 12.5), make_timestamp(2020, 2, 29, 10, 11, 12.5), make_interval(days => 1)
SELECT make_date(2021, 2, 29)
SELECT to_timestamp(0), to_timestamp(1.5), to_date('2020-03-04', 'YYYY-MM-DD'), to_timestamp('04.03.2020 05:06', 'DD.MM.YYYY HH24:MI')
SELECT to_char(timestamp '2020-03-04 15:06:07.089', 'YYYY-MM-DD HH24:MI:SS.MS'), to_char(timestamp '2020-03-04 15:06:07.089', 'HH12:MI AM Day, DD Month YYYY'), to_char(timestamp '2020-03-04 00:06:07', 'FMHH12 FMDD FMMonth Dy Mon DDD Q WW IW IYYY US')
SELECT to_char(date '2020-03-04', 'YY MM D ID J "text" Dth'), to_char(interval '1 day 02:03:04', 'DD HH24:MI:SS'), to_char(timestamp '2020-03-04 15:06:07', 'am PM a.m. P.M. MON mon DY dy DAY day')
SELECT to_char(1234.5, '9,999.99'), to_char(-1234.5, '9999.9'), to_char(0.5, '0.00'), to_char(12, '0000'), to_char(12, 'FM0000'), to_char(1234567, 'FM9,999,999'), to_char(123, '99')
SELECT to_char(-5, 'S99'), to_char(5, 'MI99'), to_char(-5, '99PR'), to_char(0.1, '9.9'), to_char(12.345, 'FM999.99'), to_char(485, '999D9'), to_char(1, '9V99'), to_char(125, '999th')
SELECT to_number('1,234.5', '9,999.9'), to_number('-12', 'S99')
SELECT now() = now(), now() = current_timestamp, current_date = now()::date, localtimestamp::date = current_date, clock_timestamp() >= now(), statement_timestamp() >= now(), transaction_timestamp() = now()
SELECT timestamp '2020-01-01 10:00' AT TIME ZONE 'UTC', timestamptz '2020-01-01 10:00+00' AT TIME ZONE 'UTC', timezone('UTC', timestamp '2020-01-01')
SELECT isfinite(timestamp '2020-01-01'), date '2020-01-01' < timestamp '2020-01-01 00:01', date '2020-01-01' = timestamptz '2020-01-01 00:00+00'
SELECT date '2020-12-31' - interval '1 day', 'epoch'::timestamp, date '2020-02-30' IS NULL
SELECT (date '2020-01-01', date '2020-02-01') OVERLAPS (date '2020-01-15', date '2020-03-01')
SELECT interval '1 year' * 2, interval '3 days' * 0.5, interval '1 month' / 3, extract(epoch from interval '1 year')
SELECT '12:30:45'::interval, '2 days 12:30'::interval, '1 millisecond'::interval, '5 decades'::interval, interval '1 day'::text
SELECT generate_series FROM generate_series(timestamp '2020-01-01', timestamp '2020-01-03', interval '1 day')

-- Arrays and JSON.
SELECT ARRAY[1,2,3], (ARRAY[4,5])[2], (ARRAY[4,5])[9], 2 = ANY(ARRAY[1,2]), 2 <> ALL(ARRAY[1,3]), '{a,b}'::text[], ARRAY['a b', NULL, 'c"d']
SELECT 1 = ANY('{1,2}'), 5 = ANY(ARRAY[1, NULL]), 1 = ALL('{}'::int[]), 3 > ANY(ARRAY[1,2]), NULL = ANY(ARRAY[1])
SELECT array_length(ARRAY[1,2], 1), cardinality(ARRAY[1,2]), array_upper(ARRAY[1,2], 1), array_lower(ARRAY[1,2], 1), array_position(ARRAY['a','b'], 'b'), array_length('{}'::int[], 1)
SELECT ARRAY[1,2] || ARRAY[3], ARRAY[1,2] || 3, 0 || ARRAY[1], array_append(ARRAY[1], 2), array_prepend(0, ARRAY[1]), array_cat(ARRAY[1], ARRAY[2]), array_remove(ARRAY[1,2,1], 1)
SELECT ARRAY[1,2,3] @> ARRAY[2], ARRAY[2] <@ ARRAY[1,2], ARRAY[1,2] && ARRAY[2,3], ARRAY[1,2] = ARRAY[1,2], ARRAY[1,2] < ARRAY[1,3]
SELECT (ARRAY[1,2,3,4])[2:3], array_dims(ARRAY[1,2]), array_ndims(ARRAY[1])
SELECT ARRAY[]::int[], ARRAY[1, 2.5], ARRAY[true, false], ARRAY[date '2020-01-01'], ARRAY['2020-01-01 10:00'::timestamp], '{1.5,2}'::float8[]
SELECT '{1,x}'::int[]
SELECT '{1'::int[]
SELECT ARRAY(SELECT g FROM generate_series(1, 3) g), unnest(ARRAY[1,2])
SELECT * FROM unnest(ARRAY['a', 'b']) WITH ORDINALITY
SELECT '{"a": 1}'::json, '{"b":2, "a": [1, 2.50, null, true, "x"]}'::jsonb, 'null'::jsonb, '{"a":1,"a":2}'::jsonb
SELECT '{bad'::json
SELECT '{"a": {"b": [10, 20]}}'::jsonb -> 'a', '{"a": {"b": [10, 20]}}'::jsonb -> 'a' -> 'b' -> 1, '{"a": "x"}'::jsonb ->> 'a', '[1,2]'::json ->> 0, '[1,2]'::jsonb -> -1, '{"a":1}'::jsonb -> 'z'
SELECT '{"a": {"b": [10, 20]}}'::jsonb #> '{a,b}', '{"a": {"b": [10, 20]}}'::jsonb #>> '{a,b,0}', '{"a":1}'::jsonb ? 'a', '{"a":1,"b":2}'::jsonb @> '{"a":1}', '[1,2]'::jsonb <@ '[1,2,3]'
SELECT jsonb_typeof('[1]'), json_typeof('"x"'), jsonb_array_length('[1,2]'), to_json('a'::text), to_jsonb(1), jsonb_build_object('a', 1, 'b', NULL), json_build_array(1, 'x', true)
SELECT '{"a":1}'::jsonb = '{"a": 1}'::jsonb, '{"a":1}'::jsonb || '{"b":2}'::jsonb, '{"a":1,"b":2}'::jsonb - 'a', jsonb_set('{"a":1}', '{a}', '2')
SELECT '1'::jsonb::int, '"x"'::jsonb #>> '{}', '{"a": 1}'::jsonb::text, '{"a": 1}'::json::jsonb
SELECT row_to_json(r) FROM (SELECT 1 AS a, 'x' AS b) r
SELECT jsonb_agg(n), json_agg(n) FROM generate_series(1, 3) n
SELECT * FROM jsonb_array_elements('[1, "x"]'), jsonb_each('{"a": 1}')
SELECT * FROM jsonb_object_keys('{"b": 1, "a": 2}')

-- Sets of rows.
SELECT 1 FROM generate_series(1, 3)
SELECT sum(n), avg(n), min(n), max(n), count(*) FROM generate_series(1, 100) AS g(n)
SELECT * FROM generate_series(5, 1, -2)
SELECT generate_series(1, 3), 'x'
SELECT * FROM generate_series(1, 3) WITH ORDINALITY AS t(a, b)
VALUES (1, 'a'), (2, 'b')
SELECT 1 UNION SELECT 2 UNION SELECT 1 ORDER BY 1
SELECT 1 UNION ALL SELECT 1
SELECT 1 AS a UNION SELECT 2.5 ORDER BY a DESC
SELECT * FROM (VALUES (1),(1),(2)) v EXCEPT ALL SELECT 1
SELECT * FROM (VALUES (1),(1),(2)) v INTERSECT ALL SELECT 1
SELECT * FROM (VALUES (1),(1),(2)) v INTERSECT SELECT 1
SELECT 1 UNION SELECT 'a'
SELECT 1, 2 UNION SELECT 1
SELECT n FROM generate_series(1, 5) n ORDER BY n DESC LIMIT 2 OFFSET 1
SELECT n FROM generate_series(1, 5) n ORDER BY n FETCH FIRST 2 ROWS ONLY
SELECT n FROM generate_series(1, 5) n LIMIT -1
SELECT n FROM (VALUES (1), (NULL), (2)) v(n) ORDER BY n
SELECT n FROM (VALUES (1), (NULL), (2)) v(n) ORDER BY n DESC
SELECT n FROM (VALUES (1), (NULL), (2)) v(n) ORDER BY n NULLS FIRST
WITH a AS (SELECT 1 AS x), b AS (SELECT x + 1 AS y FROM a) SELECT * FROM a, b
WITH RECURSIVE t(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT sum(n), count(*) FROM t
WITH RECURSIVE t(a, b) AS (SELECT 0, 1 UNION ALL SELECT b, a + b FROM t WHERE b < 20) SELECT a FROM t ORDER BY a
WITH RECURSIVE t(n) AS (SELECT 1 UNION SELECT (n + 1) % 4 FROM t) SELECT n FROM t ORDER BY n
SELECT DISTINCT ON (a) a, b FROM (VALUES (1, 2), (1, 1), (2, 5)) v(a, b) ORDER BY a, b
SELECT DISTINCT ON (a) a, b FROM (VALUES (1, 2), (1, 1), (2, 5)) v(a, b) ORDER BY b
SELECT DISTINCT a FROM (VALUES (1), (1), (NULL), (NULL)) v(a) ORDER BY a
SELECT a, count(*) FROM (VALUES (1), (1), (2)) v(a) GROUP BY a HAVING count(*) > 1
SELECT a + 1 AS b, sum(a) FROM (VALUES (1), (1), (2)) v(a) GROUP BY b ORDER BY b
SELECT a FROM (VALUES (1, 2)) v(a, b) GROUP BY b
SELECT sum(a) FILTER (WHERE a > 1), count(DISTINCT a), bool_and(a > 0), bool_or(a > 1), every(a > 1) FROM (VALUES (1), (1), (2)) v(a)
SELECT string_agg(a, ','), string_agg(a, ',' ORDER BY a DESC), array_agg(a ORDER BY a) FROM (VALUES ('b'), ('a')) v(a)
SELECT stddev(a), variance(a), stddev_pop(a), var_pop(a) FROM (VALUES (1.0), (2.0), (4.0)) v(a)
SELECT sum(a), count(a), avg(a), min(a), array_agg(a), string_agg(a::text, ',') FROM (SELECT 1 AS a WHERE false) v
SELECT sum(a), avg(a) FROM (VALUES (1.5::float8), (2.5)) v(a)
SELECT sum(a::int2), sum(a::int8), avg(a::int2), sum(a::numeric), sum(a::float4) FROM (VALUES (1), (2)) v(a)
SELECT bit_and(a), bit_or(a) FROM (VALUES (6), (3)) v(a)
SELECT sum(count(*)) FROM (VALUES (1)) v(a)
SELECT a FROM (VALUES (1)) v(a) WHERE count(*) > 1

-- Tables.
CREATE TABLE dept(id int PRIMARY KEY, name text NOT NULL)
CREATE TABLE emp(id int PRIMARY KEY, name varchar(20), dept int, salary numeric(10,2), hired date)
CREATE INDEX emp_dept ON emp(dept)
INSERT INTO dept VALUES (1, 'sales'), (2, 'dev'), (3, 'empty')
INSERT INTO emp VALUES (1, 'ann', 1, 100.50, '2020-01-31'), (2, 'bob', 2, 200, '2021-02-28'), (3, 'cid', 2, 300.25, NULL), (4, 'dan', NULL, NULL, '2020-05-05')
INSERT INTO emp VALUES (1, 'eve', 1, 1, NULL)
INSERT INTO dept VALUES (4, NULL)
INSERT INTO dept(id) VALUES (4)
INSERT INTO emp(id, name) VALUES (9, 'a name that is much too long')
INSERT INTO emp(id, salary) VALUES (9, 123456789012)
INSERT INTO emp(id, nothing) VALUES (9, 1)
INSERT INTO emp VALUES (9, 'x', 1, 1, NULL, 1)
INSERT INTO emp VALUES ('x')
INSERT INTO nothing VALUES (1)
CREATE TABLE dept(id int)
CREATE TABLE IF NOT EXISTS dept(id int)
SELECT e.name, d.name FROM emp e JOIN dept d ON d.id = e.dept ORDER BY e.id
SELECT e.name, d.name FROM emp e LEFT JOIN dept d ON d.id = e.dept ORDER BY e.id
SELECT e.name, d.name FROM emp e RIGHT JOIN dept d ON d.id = e.dept ORDER BY d.id, e.id
SELECT e.name, d.name FROM emp e FULL JOIN dept d ON d.id = e.dept ORDER BY d.id, e.id
SELECT e.name, d.name FROM emp e RIGHT JOIN dept d ON d.id = e.dept AND e.salary > 250 ORDER BY d.id
SELECT e.name, d.name FROM emp e RIGHT JOIN dept d ON d.id = e.dept WHERE e.salary > 250 ORDER BY d.id
SELECT e.name, d.name FROM emp e FULL JOIN dept d ON d.id = e.dept WHERE e.id IS NULL OR d.id IS NULL ORDER BY 1, 2
SELECT * FROM (VALUES (1, 'a'), (2, 'b')) x(k, l) FULL JOIN (VALUES (2, 'c'), (3, 'd')) y(k, m) USING (k) ORDER BY k
SELECT * FROM (VALUES (1, 'a'), (2, 'b')) x(k, l) RIGHT JOIN (VALUES (2, 'c'), (3, 'd')) y(k, m) USING (k) ORDER BY k
SELECT k, l, m FROM (VALUES ('a', 1), ('b', 2)) x(l, k) JOIN (VALUES ('c', 2)) y(m, k) USING (k)
SELECT * FROM (VALUES ('a', 1), ('b', 2)) x(l, k) JOIN (VALUES ('c', 2)) y(m, k) USING (k)
SELECT * FROM (VALUES (1, 'a')) x(k, l) NATURAL JOIN (VALUES (1, 'c')) y(k, m)
SELECT count(*) FROM emp a RIGHT JOIN (emp b JOIN dept d ON d.id = b.dept) ON a.id = b.id AND a.id > 1
SELECT d.name, count(e.id) FROM dept d LEFT JOIN emp e ON e.dept = d.id GROUP BY d.name ORDER BY 2 DESC, 1
SELECT e.name FROM emp e, dept d WHERE e.dept = d.id AND d.name = 'dev' ORDER BY 1
SELECT a.name, b.name FROM emp a CROSS JOIN emp b WHERE a.id < b.id AND b.id < 3
SELECT name FROM dept WHERE id IN (SELECT dept FROM emp) ORDER BY 1
SELECT name FROM dept WHERE id NOT IN (SELECT dept FROM emp)
SELECT name FROM dept d WHERE EXISTS (SELECT 1 FROM emp e WHERE e.dept = d.id AND e.salary > 150)
SELECT name, (SELECT max(salary) FROM emp e WHERE e.dept = d.id) FROM dept d ORDER BY d.id
SELECT (SELECT id FROM emp)
SELECT name FROM emp WHERE salary = (SELECT max(salary) FROM emp)
SELECT name FROM emp WHERE salary > ALL (SELECT salary FROM emp WHERE dept = 1)
SELECT name FROM emp WHERE (dept, id) IN (SELECT dept, max(id) FROM emp GROUP BY dept) ORDER BY 1
SELECT name FROM emp WHERE (dept, id) > (1, 1) ORDER BY id
SELECT d.name, l.n FROM dept d CROSS JOIN LATERAL (SELECT count(*) FROM emp WHERE dept = d.id) l(n) ORDER BY 1
SELECT name FROM emp WHERE id = ANY(ARRAY[3, 1, 9]) ORDER BY id
SELECT id FROM emp e WHERE nothing.id = 1
SELECT name FROM emp, dept
SELECT 1 FROM emp, emp
SELECT e.* FROM emp e WHERE e.id = 1 FOR UPDATE
SELECT e.id, d.id FROM emp e JOIN dept d ON d.id = e.dept WHERE e.id = 1 FOR UPDATE OF e
SELECT id FROM emp WHERE id = 1 FOR UPDATE OF nothing
SELECT id FROM emp WHERE id = 1 FOR SHARE
SELECT count(*) FROM emp FOR UPDATE
UPDATE emp SET salary = salary + 1 WHERE id = 1 RETURNING id, salary
UPDATE emp SET salary = e2.salary FROM emp e2 WHERE e2.id = 3 AND emp.id = 2 RETURNING emp.id, emp.salary, e2.name
UPDATE emp e SET name = d.name FROM dept d WHERE d.id = e.dept AND d.id = 1 RETURNING *
UPDATE emp SET (name, salary) = ('dan2', 5) WHERE id = 4 RETURNING name, salary
UPDATE emp SET nothing = 1
UPDATE emp SET id = 2 WHERE id = 1
UPDATE dept SET name = NULL WHERE id = 1
UPDATE emp SET name = 'x', name = 'y'
UPDATE emp SET salary = DEFAULT WHERE id = 4 RETURNING salary
DELETE FROM emp USING dept d WHERE d.id = emp.dept AND d.name = 'sales' RETURNING emp.id, d.name
DELETE FROM emp WHERE id = 99
SELECT id, name, dept, salary FROM emp ORDER BY id
INSERT INTO emp VALUES (2, 'x') ON CONFLICT DO NOTHING
INSERT INTO emp VALUES (2, 'x') ON CONFLICT (id) DO UPDATE SET name = excluded.name || '!' RETURNING name
INSERT INTO emp VALUES (2, 'x') ON CONFLICT (id) DO UPDATE SET name = 'never' WHERE emp.id = 5 RETURNING name
INSERT INTO emp SELECT 10 + id, name FROM dept RETURNING id, name
WITH gone AS (SELECT 11 AS id) DELETE FROM emp USING gone WHERE emp.id = gone.id RETURNING emp.id
WITH up AS (SELECT 12 AS id) UPDATE emp SET name = 'w' FROM up WHERE emp.id = up.id
WITH new AS (SELECT 50 AS id, 'n' AS name) INSERT INTO emp(id, name) SELECT * FROM new RETURNING id
SELECT count(*), count(dept), count(DISTINCT dept), sum(salary), avg(salary), min(name), max(hired) FROM emp
DELETE FROM emp WHERE id > 4
TRUNCATE emp
SELECT count(*) FROM emp

-- Types in tables.
CREATE TABLE kinds(id int PRIMARY KEY, i interval, j json, b jsonb, ia int[], ta text[], na numeric[], da date[], ba bool[], n numeric, u uuid, t time, y bytea, f real, tsa timestamp[])
INSERT INTO kinds VALUES (1, '1 month 2 days 03:04:05', '{"a": 1}', '{"b":2,"a":1}', '{1,2,NULL}', ARRAY['x','y z'], '{1.50,2}', '{2020-01-01}', '{t,f}', 123.456, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '10:11:12', '\x00ff', 1.5, '{2020-01-01 10:00}')
INSERT INTO kinds(id) VALUES (2)
SELECT * FROM kinds ORDER BY id
SELECT i + interval '1 day', j ->> 'a', b -> 'a', ia[2], ta[1], ia || 3 FROM kinds WHERE id = 1
SELECT id FROM kinds WHERE 2 = ANY(ia)
SELECT id FROM kinds WHERE i > interval '1 month'
UPDATE kinds SET ia = ARRAY[9], i = i * 2, b = '{"c": 3}' WHERE id = 1 RETURNING ia, i, b
SELECT unnest(ta) FROM kinds WHERE id = 1
INSERT INTO kinds(id, ia) VALUES (3, '{a}')
INSERT INTO kinds(id, j) VALUES (3, '{')
DROP TABLE kinds

-- Definitions.
CREATE TABLE parts(id serial PRIMARY KEY, code text UNIQUE, qty int DEFAULT 5 CHECK (qty > 0), parent int)
INSERT INTO parts(code) VALUES ('a') RETURNING id, code, qty
INSERT INTO parts(code) VALUES ('a')
INSERT INTO parts(code, qty) VALUES ('b', 0)
INSERT INTO parts(code, qty) VALUES ('b', NULL) RETURNING id, qty
ALTER TABLE parts ADD CONSTRAINT qty_small CHECK (qty < 100)
INSERT INTO parts(code, qty) VALUES ('c', 100)
ALTER TABLE parts ADD CONSTRAINT qty_large CHECK (qty > 50)
ALTER TABLE parts DROP CONSTRAINT qty_small
ALTER TABLE parts DROP CONSTRAINT qty_small
ALTER TABLE parts DROP CONSTRAINT IF EXISTS qty_small
ALTER TABLE parts ALTER COLUMN qty SET DEFAULT 7
INSERT INTO parts(code) VALUES ('d') RETURNING qty
ALTER TABLE parts ALTER COLUMN qty DROP DEFAULT
INSERT INTO parts(code) VALUES ('e') RETURNING qty
ALTER TABLE parts ALTER COLUMN qty SET NOT NULL
DELETE FROM parts WHERE qty IS NULL
ALTER TABLE parts ALTER COLUMN qty SET NOT NULL
INSERT INTO parts(code, qty) VALUES ('f', NULL)
ALTER TABLE parts ALTER COLUMN qty DROP NOT NULL
INSERT INTO parts(code, qty) VALUES ('f', NULL)
ALTER TABLE parts RENAME COLUMN qty TO amount
SELECT amount FROM parts WHERE code = 'a'
SELECT qty FROM parts
ALTER TABLE parts RENAME TO pieces
SELECT count(*) FROM pieces
SELECT count(*) FROM parts
ALTER TABLE pieces ADD COLUMN note text DEFAULT 'n'
SELECT note FROM pieces WHERE code = 'a'
ALTER TABLE pieces ADD CONSTRAINT pieces_note_key UNIQUE (note)
ALTER TABLE pieces DROP COLUMN nothing
ALTER TABLE pieces ALTER COLUMN nothing SET DEFAULT 1
ALTER TABLE nothing ADD COLUMN a int
COMMENT ON TABLE pieces IS 'all pieces'
COMMENT ON COLUMN pieces.code IS 'the code'
SELECT obj_description('pieces'::regclass), obj_description('pieces'::regclass, 'pg_class'), col_description('pieces'::regclass, 2)
COMMENT ON TABLE pieces IS NULL
SELECT obj_description('pieces'::regclass)
COMMENT ON TABLE nothing IS 'x'
CREATE VIEW few AS SELECT id, code AS c FROM pieces WHERE id < 3
SELECT c FROM few ORDER BY id
CREATE VIEW few AS SELECT 1
CREATE OR REPLACE VIEW few AS SELECT id, code AS c FROM pieces WHERE id < 2
SELECT count(*) FROM few
DROP TABLE few
DROP VIEW few
SELECT * FROM few
DROP VIEW nothing
DROP VIEW IF EXISTS nothing
CREATE SEQUENCE sq START 10 INCREMENT 5
SELECT nextval('sq'), nextval('sq'), currval('sq'), lastval()
SELECT setval('sq', 100), nextval('sq')
SELECT nextval('nothing')
DROP SEQUENCE sq
DROP TABLE pieces
DROP TABLE pieces
DROP TABLE IF EXISTS pieces
CREATE TABLE up(id int PRIMARY KEY)
CREATE TABLE down(id int PRIMARY KEY, up int NOT NULL REFERENCES up ON DELETE CASCADE)
INSERT INTO down VALUES (1, 1)
INSERT INTO up VALUES (1)
INSERT INTO down VALUES (1, 1)
DROP TABLE up
DELETE FROM up WHERE id = 1
SELECT count(*) FROM down
DROP TABLE down
DROP TABLE up

-- Prepared statements, cursors, transactions, settings.
PREPARE p(int, text) AS SELECT $1 + 1 AS n, $2 || '!' AS t
EXECUTE p(1, 'a')
EXECUTE p(1)
EXECUTE p('x', 'a')
PREPARE p AS SELECT 1
DEALLOCATE p
EXECUTE p(1, 'a')
DEALLOCATE p
PREPARE q AS INSERT INTO dept VALUES ($1, $2) RETURNING name
EXECUTE q(7, 'seven')
EXECUTE q(7, 'seven')
DEALLOCATE ALL
DECLARE c CURSOR FOR SELECT 1
BEGIN
DECLARE c SCROLL CURSOR FOR SELECT n FROM generate_series(1, 5) n
FETCH c
FETCH 2 FROM c
FETCH BACKWARD 1 FROM c
FETCH ABSOLUTE -1 FROM c
FETCH PRIOR FROM c
FETCH RELATIVE 0 FROM c
MOVE FIRST FROM c
FETCH ALL FROM c
FETCH NEXT FROM c
FETCH LAST c
MOVE BACKWARD ALL IN c
FETCH FORWARD 2 IN c
CLOSE c
FETCH c
ROLLBACK
BEGIN
DECLARE n NO SCROLL CURSOR FOR SELECT 1
FETCH n
FETCH BACKWARD 1 FROM n
ROLLBACK
BEGIN
DECLARE h CURSOR WITH HOLD FOR SELECT n FROM generate_series(1, 3) n
COMMIT
FETCH 2 FROM h
CLOSE h
CLOSE nothing
BEGIN
INSERT INTO dept VALUES (8, 'eight')
SAVEPOINT s
INSERT INTO dept VALUES (8, 'eight')
SELECT 1
ROLLBACK TO s
SELECT name FROM dept WHERE id = 8
RELEASE s
ROLLBACK
SELECT count(*) FROM dept WHERE id = 8
SAVEPOINT s
COMMIT
SHOW server_version_num
SET application_name = 'compare'
SHOW application_name
SELECT current_setting('application_name'), set_config('application_name', 'x', false), current_setting('nothing', true)
SELECT current_setting('nothing')
SET nothing = 1
SHOW nothing
RESET application_name
DISCARD ALL
SELECT current_database(), current_schema(), current_user, session_user, current_schemas(true)
SELECT pg_is_in_recovery(), pg_backend_pid() > 0, version() LIKE 'PostgreSQL%', to_regtype('int4'), format_type(1043, 14), pg_table_is_visible('dept'::regclass)
SELECT pg_get_userbyid(10) = current_user, pg_get_indexdef('emp_dept'::regclass), pg_get_serial_sequence('dept', 'id')
SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'emp'::regclass
SELECT gen_random_uuid() IS NOT NULL, pg_cancel_backend(0) IS NOT NULL, pg_size_pretty(10240::bigint), pg_relation_size('dept'::regclass) >= 0
SELECT row_number() OVER (ORDER BY id), rank() OVER (ORDER BY name), count(*) OVER () FROM dept ORDER BY id
SELECT id, sum(id) OVER (ORDER BY id), lag(id) OVER (ORDER BY id), first_value(id) OVER (PARTITION BY id > 1 ORDER BY id) FROM dept ORDER BY id
SELECT a, row_number() OVER (PARTITION BY a ORDER BY b DESC), dense_rank() OVER (ORDER BY a), percent_rank() OVER (ORDER BY a), cume_dist() OVER (ORDER BY a), ntile(2) OVER (ORDER BY b) FROM (VALUES (1, 1), (1, 2), (2, 3), (3, 4)) v(a, b) ORDER BY b
SELECT b, sum(b) OVER (ORDER BY a), sum(b) OVER (ORDER BY a ROWS UNBOUNDED PRECEDING), sum(b) OVER (ORDER BY a ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING), last_value(b) OVER (ORDER BY a), nth_value(b, 2) OVER (ORDER BY b) FROM (VALUES (1, 1), (1, 2), (2, 3)) v(a, b) ORDER BY b
SELECT a, lead(b) OVER (ORDER BY b), lead(b, 2, 0) OVER (ORDER BY b), lag(b, 1, -1) OVER (PARTITION BY a ORDER BY b) FROM (VALUES (1, 1), (1, 2), (2, 3)) v(a, b) ORDER BY b
SELECT a, sum(count(*)) OVER (ORDER BY a), rank() OVER (ORDER BY count(*) DESC) FROM (VALUES (1), (1), (2)) v(a) GROUP BY a ORDER BY a
SELECT a, count(*) FILTER (WHERE a > 1) OVER () FROM (VALUES (1), (2)) v(a) ORDER BY row_number() OVER (ORDER BY a DESC)
SELECT * FROM (SELECT a, row_number() OVER (ORDER BY a DESC) AS n FROM generate_series(1, 5) a) r WHERE n <= 2 ORDER BY n
SELECT a FROM (VALUES (1)) v(a) WHERE row_number() OVER () = 1
SELECT sum(sum(a) OVER ()) FROM (VALUES (1)) v(a)
SELECT lower('A') OVER ()
SELECT ntile(0) OVER () FROM (VALUES (1)) v(a)
SELECT unnest(ARRAY[1,2]), generate_series(1, 3), unnest('{}'::int[])
SELECT generate_subscripts(ARRAY['a','b'], 1) AS s, 10 + generate_series(1, 2) AS g
SELECT x, generate_series(1, x) FROM (VALUES (1), (2)) v(x) ORDER BY x, 2 DESC
SELECT count(*) FROM generate_series(date '2020-01-01', date '2020-02-01', '1 week')
SELECT nothing FROM dept GROUP BY id
SELECT id, name FROM dept d WHERE (SELECT count(*) FROM dept x WHERE x.id <= d.id) > 2 ORDER BY id
WITH RECURSIVE tree(id, depth) AS (SELECT 1, 0 UNION ALL SELECT d.id, t.depth + 1 FROM dept d JOIN tree t ON d.id = t.id + 1) SELECT * FROM tree ORDER BY id
WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 0.5 FROM t WHERE n < 3) SELECT * FROM t
SELECT interval '1 month' + date '2024-01-31', date '2024-02-29' - interval '1 year', timestamp '2024-01-01' + '2 hours'
SELECT '{"a": [1, {"b": null}]}'::json -> 'a' -> 1 ->> 'b', '"\u00e4"'::jsonb, '[]'::jsonb || '1'::jsonb, '{"a":1}'::json ->> 'b'
SELECT pg_size_pretty(0::bigint), pg_size_pretty(10239::bigint), pg_size_pretty(10240::bigint), pg_size_pretty(123456789::bigint), pg_size_pretty(-5000000000000), pg_size_pretty(10485247::bigint)
SELECT gen_random_uuid() <> gen_random_uuid(), current_setting('server_encoding'), current_setting('nothing', true)
-- Foreign keys that are added, of columns that may be NULL, to the table itself and of several columns.
CREATE TABLE country(code text PRIMARY KEY)
CREATE TABLE city(id int PRIMARY KEY, country text, part int, twin int REFERENCES city, name text)
INSERT INTO city VALUES (1, 'fr', 1, 2, 'Paris'), (2, NULL, 1, 1, 'Rome'), (3, 'fr', 2, 3, 'Lyon')
INSERT INTO city VALUES (4, 'fr', 1, 9, 'Nice')
ALTER TABLE city ADD CONSTRAINT city_country FOREIGN KEY (country) REFERENCES country(code)
INSERT INTO country VALUES ('fr'), ('it')
ALTER TABLE city ADD CONSTRAINT city_country FOREIGN KEY (country) REFERENCES country(code)
ALTER TABLE city ADD CONSTRAINT city_country FOREIGN KEY (country) REFERENCES country(code)
INSERT INTO city VALUES (5, 'de', 1, NULL, 'Ulm')
INSERT INTO city VALUES (5, NULL, 1, NULL, 'Ulm')
DELETE FROM country WHERE code = 'fr'
DELETE FROM country WHERE code = 'it'
UPDATE city SET country = 'xx' WHERE id = 1
UPDATE city SET country = NULL WHERE id = 1
DELETE FROM city WHERE id = 1
DELETE FROM city WHERE id IN (1, 2)
SELECT id, name FROM city ORDER BY id
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'city'::regclass ORDER BY 1
CREATE TABLE visit(city int, day date, country text, note text, PRIMARY KEY (city, day))
CREATE TABLE photo(id int PRIMARY KEY, taken date, place int, FOREIGN KEY (taken, place) REFERENCES visit(day, city) ON DELETE CASCADE)
INSERT INTO photo VALUES (1, '2020-01-01', 3)
INSERT INTO photo VALUES (1, '2020-01-01', NULL), (2, NULL, 7)
INSERT INTO visit VALUES (3, '2020-01-01', 'fr', 'rain')
INSERT INTO photo VALUES (3, '2020-01-01', 3)
DELETE FROM visit
SELECT * FROM photo ORDER BY id
ALTER TABLE photo ADD FOREIGN KEY (taken, place) REFERENCES visit(day, city, note)
ALTER TABLE photo ADD FOREIGN KEY (taken) REFERENCES nowhere
ALTER TABLE photo ADD FOREIGN KEY (place) REFERENCES city(nothing)
ALTER TABLE photo DROP CONSTRAINT photo_taken_place_fkey
INSERT INTO photo VALUES (4, '2020-01-01', 99)
DROP TABLE country
DROP TABLE country CASCADE
INSERT INTO city VALUES (6, 'de', 1, NULL, 'Bonn')
-- Columns that are dropped, with what has them.
CREATE TABLE wide(a int, b text CHECK (b <> ''), c int UNIQUE, d int, e text DEFAULT 'e', id int PRIMARY KEY)
CREATE INDEX wide_b_d ON wide(b, d)
CREATE INDEX wide_d ON wide(d)
INSERT INTO wide VALUES (1, 'x', 10, 100, DEFAULT, 1), (2, 'y', 20, 200, 'z', 2)
ALTER TABLE wide DROP COLUMN b
SELECT * FROM wide WHERE d = 200
ALTER TABLE wide DROP COLUMN b
ALTER TABLE wide DROP COLUMN IF EXISTS b
ALTER TABLE wide DROP COLUMN a, DROP COLUMN c
INSERT INTO wide VALUES (300, DEFAULT, 3), (400, NULL, 4)
SELECT * FROM wide ORDER BY id
UPDATE wide SET e = d || e WHERE d > 150 RETURNING *
SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'wide'::regclass ORDER BY indexrelid::regclass::text
ALTER TABLE wide ADD COLUMN b int DEFAULT 7
SELECT b, id FROM wide ORDER BY id
-- JSON of values, settings by function, advisory locks, rows that are locked.
SELECT json_agg(n), jsonb_agg(n ORDER BY n DESC), json_agg(n) FILTER (WHERE n > 5) FROM generate_series(1, 3) n
SELECT json_object_agg(name, id), jsonb_object_agg(id, name) FROM dept WHERE id < 3
SELECT json_agg(json_build_object('a', n, 'b', json_build_array(n, 'x'))) FROM generate_series(1, 2) n
SELECT json_agg(x) FROM (VALUES ('a'), (NULL)) v(x)
SELECT json_build_object('a', '[1]'::json, 'b', '{"c":1}'::jsonb, 'd', NULL), to_json('[1]'::json), to_jsonb('[1 , 2]'::json)
SELECT set_config('application_name', 'one', false)
SHOW application_name
BEGIN
SELECT set_config('application_name', 'two', true)
SHOW application_name
COMMIT
SHOW application_name
BEGIN
SET LOCAL application_name = 'three'
SHOW application_name
COMMIT
SHOW application_name
SET LOCAL application_name = 'four'
SHOW application_name
SELECT set_config('nothing', '1', false)
SELECT pg_advisory_lock(1), pg_advisory_lock(1, 2), pg_advisory_lock_shared(3)
SELECT locktype, classid, objid, objsubid, mode, granted FROM pg_locks WHERE locktype = 'advisory' ORDER BY classid, objid
SELECT pg_try_advisory_lock(1), pg_advisory_unlock(1), pg_advisory_unlock(1), pg_advisory_unlock(3), pg_advisory_unlock_shared(3)
SELECT pg_advisory_unlock_all()
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
BEGIN
SELECT pg_advisory_xact_lock(5), pg_try_advisory_xact_lock(6)
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
COMMIT
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
SELECT state, query LIKE 'SELECT state, %' FROM pg_stat_activity WHERE pid = pg_backend_pid()
SELECT numbackends > 0, xact_commit > 0 FROM pg_stat_database WHERE datname = current_database()
SELECT id FROM dept WHERE id = 1 FOR UPDATE NOWAIT
SELECT id FROM dept WHERE id < 3 ORDER BY name DESC LIMIT 1 FOR UPDATE SKIP LOCKED
SELECT id FROM dept WHERE id < 3 FOR SHARE NOWAIT
SELECT count(*) FROM dept FOR UPDATE NOWAIT

-- Roles and privileges.
CREATE ROLE reader
CREATE ROLE reader
CREATE USER bob PASSWORD 'secret'
CREATE ROLE public
CREATE ROLE pg_own
CREATE ROLE boss SUPERUSER CREATEDB CREATEROLE NOINHERIT
CREATE ROLE IF
CREATE TABLE priv (id int PRIMARY KEY, a int)
INSERT INTO priv VALUES (1, 10), (2, 20)
CREATE TABLE priv_serial (id serial PRIMARY KEY, a int)
CREATE TABLE priv_identity (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a int)
CREATE VIEW priv_view AS SELECT a FROM priv
CREATE SEQUENCE priv_sequence
SELECT rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolconnlimit, rolpassword, rolvaliduntil, rolbypassrls FROM pg_roles WHERE rolname !~ '^pg_' ORDER BY 1
SELECT rolname, rolpassword IS NOT NULL FROM pg_authid WHERE rolname IN ('bob', 'reader') ORDER BY 1
SELECT usename, usecreatedb, usesuper, passwd FROM pg_user ORDER BY 1
SELECT relname, pg_get_userbyid(relowner), relacl FROM pg_class WHERE relname LIKE 'priv%' AND relkind IN ('r', 'v', 'S') ORDER BY 1
SELECT current_user, session_user, current_role, user
SHOW role
SET ROLE bob
SELECT current_user, session_user, current_role, user
SHOW role
SHOW is_superuser
SELECT * FROM priv
SELECT count(*) FROM priv_view
INSERT INTO priv VALUES (3, 30)
UPDATE priv SET a = 1
DELETE FROM priv
TRUNCATE priv
CREATE TABLE own (a int)
CREATE INDEX ON priv (a)
ALTER TABLE priv ADD COLUMN b int
DROP TABLE priv
DROP VIEW priv_view
DROP SEQUENCE priv_sequence
COMMENT ON TABLE priv IS 'mine'
GRANT SELECT ON priv TO bob
SELECT nextval('priv_sequence')
CREATE ROLE eve
DROP ROLE reader
GRANT reader TO bob
SELECT rolname FROM pg_authid
SELECT 1 FROM pg_shadow
SELECT has_table_privilege('priv', 'SELECT'), has_table_privilege('ann', 'priv', 'DELETE'), has_table_privilege('priv', 'nothing')
SELECT has_table_privilege('ann', 'priv', 'DELETE'), has_table_privilege('bob', 'priv', 'SELECT, INSERT')
SELECT has_schema_privilege('public', 'USAGE'), has_schema_privilege('public', 'CREATE'), has_schema_privilege('pg_catalog', 'usage')
SELECT pg_has_role('reader', 'MEMBER'), pg_has_role('bob', 'USAGE'), pg_has_role('ann', 'bob', 'MEMBER')
SELECT table_name FROM information_schema.tables WHERE table_name LIKE 'priv%'
RESET ROLE
GRANT SELECT ON priv TO reader
GRANT reader TO bob
GRANT bob TO reader
GRANT bob TO bob
GRANT nobody TO bob
GRANT SELECT ON priv TO nobody
GRANT SELECT ON nothing TO bob
GRANT USAGE ON priv TO bob
GRANT CREATE ON SCHEMA nothing TO bob
SELECT r.rolname, m.rolname, a.admin_option FROM pg_auth_members a JOIN pg_roles r ON r.oid = a.roleid JOIN pg_roles m ON m.oid = a.member WHERE r.rolname !~ '^pg_'
SET ROLE bob
SELECT * FROM priv ORDER BY id
SELECT * FROM priv ORDER BY id FOR UPDATE
SELECT pg_has_role('reader', 'MEMBER'), pg_has_role('bob', 'reader', 'USAGE')
UPDATE priv SET a = a + 1 WHERE id = 1
RESET ROLE
GRANT INSERT, UPDATE ON TABLE priv TO bob
SET ROLE bob
INSERT INTO priv VALUES (3, 30)
INSERT INTO priv VALUES (3, 31) ON CONFLICT (id) DO UPDATE SET a = excluded.a RETURNING *
UPDATE priv SET a = a + 1 WHERE id = 1
SELECT * FROM priv ORDER BY id FOR UPDATE
DELETE FROM priv WHERE id = 3
SET ROLE reader
SET ROLE boss
RESET ROLE
GRANT ALL ON priv TO bob
GRANT DELETE ON priv TO PUBLIC
GRANT SELECT ON priv_view TO PUBLIC
SELECT relname, relacl FROM pg_class WHERE relname IN ('priv', 'priv_view') ORDER BY 1
SELECT grantor, grantee, table_name, privilege_type, is_grantable::text, with_hierarchy::text FROM information_schema.table_privileges WHERE table_name = 'priv' ORDER BY grantee, privilege_type
SELECT grantee, privilege_type FROM information_schema.role_table_grants WHERE table_name = 'priv_view' ORDER BY grantee, privilege_type
REVOKE SELECT, TRUNCATE ON priv FROM bob
REVOKE reader FROM bob
REVOKE ALL ON priv FROM reader
SELECT relname, relacl FROM pg_class WHERE relname IN ('priv', 'priv_view') ORDER BY 1
SET ROLE bob
SELECT * FROM priv
DELETE FROM priv WHERE id = 3
DELETE FROM priv
SELECT * FROM priv_view
UPDATE priv SET a = 5
UPDATE priv SET a = a + 5
UPDATE priv SET a = 5 RETURNING a
INSERT INTO priv VALUES (4, 40)
INSERT INTO priv VALUES (5, 50) RETURNING id
INSERT INTO priv VALUES (4, 40) ON CONFLICT (id) DO NOTHING
SELECT table_name FROM information_schema.tables WHERE table_name LIKE 'priv%' ORDER BY 1
RESET ROLE
GRANT INSERT ON priv_serial TO bob
GRANT INSERT ON priv_identity TO bob
SET ROLE bob
INSERT INTO priv_serial (a) VALUES (1)
INSERT INTO priv_identity (a) VALUES (1)
RESET ROLE
GRANT USAGE ON SEQUENCE priv_serial_id_seq TO bob
SET ROLE bob
INSERT INTO priv_serial (a) VALUES (1)
SELECT setval('priv_serial_id_seq', 10)
RESET ROLE
GRANT CREATE ON SCHEMA public TO bob
SET ROLE bob
CREATE TABLE own (a int PRIMARY KEY)
CREATE TABLE own_child (a int REFERENCES priv)
CREATE VIEW own_view AS SELECT * FROM priv
SELECT * FROM own_view
GRANT SELECT ON own TO reader
SELECT relname, pg_get_userbyid(relowner), relacl FROM pg_class WHERE relname IN ('own', 'own_view') ORDER BY 1
SELECT tableowner FROM pg_tables WHERE tablename = 'own'
ALTER TABLE own OWNER TO reader
RESET ROLE
SELECT * FROM own_view
DROP ROLE bob
ALTER TABLE own OWNER TO reader
SELECT relname, pg_get_userbyid(relowner), relacl FROM pg_class WHERE relname = 'own'
DROP ROLE reader
ALTER ROLE reader WITH LOGIN CREATEDB
ALTER ROLE reader RENAME TO keeper
SELECT rolname, rolcanlogin, rolcreatedb FROM pg_roles WHERE rolname IN ('reader', 'keeper')
SELECT relname, pg_get_userbyid(relowner), relacl FROM pg_class WHERE relname = 'own'
ALTER ROLE reader NOLOGIN
ALTER USER bob PASSWORD NULL
SELECT rolname, rolpassword IS NOT NULL FROM pg_authid WHERE rolname = 'bob'
DROP VIEW own_view
DROP TABLE own
REVOKE CREATE ON SCHEMA public FROM bob
DROP TABLE priv_serial, priv_identity
DROP VIEW priv_view
DROP TABLE priv
DROP SEQUENCE priv_sequence
DROP USER bob
DROP ROLE keeper, boss
DROP ROLE IF EXISTS bob
DROP ROLE ann
SELECT rolname FROM pg_roles WHERE rolname !~ '^pg_' ORDER BY 1
SELECT q.a[2], q.a[1:2], a[1] FROM (SELECT ARRAY[1, 2, 3] AS a) q

-- Privileges of columns, and options to grant.
CREATE TABLE col(id int PRIMARY KEY, a int, b int)
INSERT INTO col VALUES (1, 10, 100)
CREATE VIEW col_view AS SELECT id, a, b FROM col
CREATE ROLE cara
CREATE ROLE dave
CREATE ROLE erin
GRANT SELECT (id, a), INSERT (id), UPDATE (a) ON col TO cara
GRANT SELECT (nothing) ON col TO cara
SET ROLE cara
SELECT id FROM col
SELECT a FROM col WHERE id = 1
SELECT b FROM col
SELECT * FROM col
SELECT count(*) FROM col
SELECT 1 FROM col
SELECT id FROM col ORDER BY b
SELECT id FROM (SELECT id, a FROM col) s WHERE a > 1
SELECT x.a FROM col x JOIN col y USING (id)
SELECT x.a FROM col x JOIN col y USING (b)
SELECT x.a FROM col x NATURAL JOIN col y
WITH s AS (SELECT b FROM col) SELECT 1
INSERT INTO col (id) VALUES (2)
INSERT INTO col (id, a) VALUES (3, 1)
INSERT INTO col VALUES (4)
INSERT INTO col VALUES (4, 4)
INSERT INTO col (id) VALUES (5) RETURNING id
INSERT INTO col (id) VALUES (6) RETURNING b
INSERT INTO col DEFAULT VALUES
UPDATE col SET a = 11
UPDATE col SET b = 1
UPDATE col SET a = b
UPDATE col SET a = a + 1 WHERE id = 1
UPDATE col SET a = 3 WHERE b = 1
UPDATE col SET a = 3 RETURNING *
DELETE FROM col
INSERT INTO col (id) VALUES (1) ON CONFLICT (id) DO NOTHING
INSERT INTO col (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET a = 5
INSERT INTO col (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET b = 5
INSERT INTO col (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET a = excluded.a
INSERT INTO col (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET a = col.b
SELECT a FROM col_view
RESET ROLE
GRANT SELECT (a) ON col_view TO cara
SET ROLE cara
SELECT a FROM col_view ORDER BY a
SELECT b FROM col_view
SELECT * FROM col_view
RESET ROLE
SELECT has_column_privilege('cara', 'col', 'a', 'SELECT'), has_column_privilege('cara', 'col', 'b', 'SELECT'), has_column_privilege('cara', 'col', 'a', 'SELECT WITH GRANT OPTION'), has_any_column_privilege('cara', 'col', 'INSERT'), has_any_column_privilege('cara', 'col', 'REFERENCES'), has_table_privilege('cara', 'col', 'SELECT')
SELECT has_column_privilege('cara', 'col', 'nothing', 'SELECT')
SELECT has_column_privilege('cara', 'col', 'a', 'DELETE')
SELECT attname, has_column_privilege('cara', attrelid, attnum, 'SELECT, UPDATE'), has_column_privilege(attrelid, attnum, 'INSERT') FROM pg_attribute WHERE attrelid = 'col'::regclass AND attnum > 0 ORDER BY attnum
SELECT attname, attacl FROM pg_attribute WHERE attrelid = 'col'::regclass AND attnum > 0 ORDER BY attnum
SELECT grantor, grantee, column_name, privilege_type, is_grantable::text FROM information_schema.column_privileges WHERE table_name = 'col' ORDER BY grantee, column_name, privilege_type
SELECT grantee, column_name, privilege_type FROM information_schema.role_column_grants WHERE table_name = 'col_view' ORDER BY grantee, column_name, privilege_type
REVOKE UPDATE (a) ON col FROM cara
REVOKE SELECT ON col FROM cara
SELECT attname, attacl FROM pg_attribute WHERE attrelid = 'col'::regclass AND attnum > 0 ORDER BY attnum
DROP VIEW col_view
ALTER TABLE col RENAME COLUMN id TO key
SELECT attname, attacl FROM pg_attribute WHERE attrelid = 'col'::regclass AND attnum > 0 ORDER BY attnum
REVOKE INSERT ON col FROM cara
GRANT SELECT ON col TO cara WITH GRANT OPTION
GRANT SELECT ON col TO PUBLIC WITH GRANT OPTION
SET ROLE cara
GRANT SELECT ON col TO dave WITH GRANT OPTION
GRANT SELECT, INSERT ON col TO dave
GRANT INSERT ON col TO dave
GRANT SELECT (b) ON col TO erin
GRANT ALL ON col TO erin
REVOKE INSERT ON col FROM dave
SET ROLE dave
GRANT SELECT ON col TO erin
GRANT SELECT ON col TO cara WITH GRANT OPTION
SET ROLE erin
GRANT SELECT ON col TO PUBLIC
SELECT a FROM col ORDER BY a
RESET ROLE
SELECT relacl FROM pg_class WHERE relname = 'col'
SELECT attname, attacl FROM pg_attribute WHERE attrelid = 'col'::regclass AND attnum > 0 ORDER BY attnum
SELECT has_table_privilege('cara', 'col', 'SELECT WITH GRANT OPTION'), has_table_privilege('erin', 'col', 'SELECT WITH GRANT OPTION'), has_column_privilege('dave', 'col', 'a', 'SELECT WITH GRANT OPTION')
SELECT grantor, grantee, privilege_type, is_grantable::text FROM information_schema.table_privileges WHERE table_name = 'col' AND grantee <> 'ann' ORDER BY grantor, grantee, privilege_type
REVOKE GRANT OPTION FOR SELECT ON col FROM cara
REVOKE SELECT ON col FROM cara RESTRICT
SELECT relacl FROM pg_class WHERE relname = 'col'
REVOKE GRANT OPTION FOR SELECT ON col FROM cara CASCADE
SELECT relacl FROM pg_class WHERE relname = 'col'
SET ROLE erin
GRANT SELECT ON col TO dave
GRANT SELECT (a) ON col TO dave
RESET ROLE
GRANT SELECT ON col TO dave GRANTED BY ann
GRANT SELECT ON col TO dave GRANTED BY cara
GRANT REFERENCES (key), UPDATE (a) ON col TO dave WITH GRANT OPTION
SET ROLE dave
GRANT UPDATE (a) ON col TO erin
GRANT UPDATE ON col TO erin
GRANT UPDATE (b) ON col TO erin
RESET ROLE
REVOKE UPDATE (a) ON col FROM dave
REVOKE UPDATE ON col FROM dave CASCADE
ALTER TABLE col OWNER TO dave
SELECT relacl FROM pg_class WHERE relname = 'col'
SELECT attname, attacl FROM pg_attribute WHERE attrelid = 'col'::regclass AND attnum > 0 ORDER BY attnum
DROP ROLE cara
DROP TABLE col
DROP ROLE cara
DROP ROLE dave
DROP ROLE erin

-- Memberships with the admin option.
CREATE ROLE team
CREATE ROLE lead
CREATE ROLE cara
CREATE ROLE dave
CREATE ROLE keeper ADMIN lead ROLE cara
SELECT pg_get_userbyid(roleid), pg_get_userbyid(member), pg_get_userbyid(grantor), admin_option FROM pg_auth_members WHERE pg_get_userbyid(roleid) = 'keeper' ORDER BY 2
GRANT team TO cara WITH ADMIN OPTION
GRANT team TO cara WITH ADMIN OPTION
GRANT team TO lead
GRANT lead TO dave
SELECT pg_has_role('cara', 'team', 'MEMBER WITH ADMIN OPTION'), pg_has_role('lead', 'team', 'USAGE WITH ADMIN OPTION'), pg_has_role('team', 'team', 'MEMBER WITH GRANT OPTION'), pg_has_role('dave', 'keeper', 'MEMBER WITH ADMIN OPTION')
SET ROLE cara
GRANT team TO dave
GRANT team TO dave WITH ADMIN OPTION
GRANT team TO dave GRANTED BY lead
GRANT keeper TO dave
REVOKE team FROM lead
RESET ROLE
SELECT pg_get_userbyid(roleid), pg_get_userbyid(member), pg_get_userbyid(grantor), admin_option FROM pg_auth_members WHERE pg_get_userbyid(roleid) IN ('team', 'keeper') ORDER BY 1, 2
SET ROLE dave
GRANT keeper TO dave
GRANT keeper TO team
REVOKE ADMIN OPTION FOR team FROM cara CASCADE
RESET ROLE
GRANT team TO lead GRANTED BY dave
GRANT team TO cara
REVOKE ADMIN OPTION FOR team FROM dave
REVOKE ADMIN OPTION FOR team FROM ann
SELECT pg_get_userbyid(roleid), pg_get_userbyid(member), pg_get_userbyid(grantor), admin_option FROM pg_auth_members WHERE pg_get_userbyid(roleid) IN ('team', 'keeper') ORDER BY 1, 2
SELECT grantee, role_name, is_grantable::text FROM information_schema.applicable_roles WHERE role_name IN ('team', 'keeper') ORDER BY 1, 2
SELECT grantee, role_name, is_grantable::text FROM information_schema.administrable_role_authorizations WHERE role_name IN ('team', 'keeper') ORDER BY 1, 2
GRANT team TO keeper WITH ADMIN OPTION
GRANT keeper TO team
REVOKE team FROM dave
DROP ROLE team
DROP ROLE keeper
DROP ROLE lead
DROP ROLE cara
DROP ROLE dave
-- Elements of arrays with their numbers, as drivers ask for the columns of keys.
SELECT information_schema._pg_expandarray(ARRAY['a', NULL, 'c d', ''])
SELECT (information_schema._pg_expandarray(ARRAY[30, 20]::int8[])).x, (information_schema._pg_expandarray(ARRAY[30, 20]::int8[])).n, information_schema._pg_expandarray(ARRAY[30, 20]::int8[]) AS both
SELECT * FROM information_schema._pg_expandarray(ARRAY[1.5, 2.50]) ORDER BY n DESC
SELECT e.n, e.x FROM information_schema._pg_expandarray('7 8'::int2vector) AS e WHERE e.x > 7
SELECT (r.keys).x + 1 AS next, (r.keys).n FROM (SELECT information_schema._pg_expandarray('{4,NULL,6}'::int[]) AS keys) r ORDER BY (r.keys).n
SELECT (r.keys).y FROM (SELECT information_schema._pg_expandarray('{4}'::int[]) AS keys) r
SELECT (r.key).x FROM (SELECT 1 AS key) r
SELECT keys::text, count(*) FROM (SELECT information_schema._pg_expandarray('{4,5}'::int[]) AS keys) r GROUP BY keys ORDER BY keys
SELECT keys FROM (SELECT information_schema._pg_expandarray('{2,1}'::int[]) AS keys) r ORDER BY keys
SELECT information_schema._pg_expandarray(1)
SELECT typname, typinput, typoutput, typreceive, typsend, typinput = 'pg_catalog.array_in'::regproc AS is_array FROM pg_type WHERE typname IN ('_int4', '_varchar', 'bool', 'int2vector', 'jsonb', 'numeric', 'timestamptz', 'uuid', 'record') ORDER BY 1
SELECT count(*) = count(DISTINCT oid) FROM pg_proc
SELECT proargtypes, prorettype, pronargs, proretset, proargnames, proargmodes, proallargtypes, provariadic FROM pg_proc WHERE proname IN ('array_recv', 'int4send') ORDER BY proname
SELECT word, catcode, barelabel, catdesc, baredesc FROM pg_get_keywords() WHERE word = 'abort'
SELECT '(1,2)'::record
CREATE TABLE of_records (a record)
SELECT NULL::record IS NULL
-- Rows of values, and rows of tables as values.
create table rowed (a int primary key, b int, c text)
insert into rowed values (1, 2, 'x'), (2, null, 'two words'), (3, 4, null)
select row(1, 'x')
select row(1, 'x', null, 2.50)
select row()
select (1, 2)
select row(1, row(2, 3), 'a,b')
select row(a, b, c) from rowed order by a
select rowed from rowed order by a desc
select r from rowed r where a = 2
select r, r.a from rowed as r where r.b is not null order by 2
select (r).b, (r).c from rowed r order by (r).a
select (row(1, 'two')).f2
select (row(1, 'two')).f3
select (r).d from rowed r
select row(1, 2) = row(1, 2), row(1, 2) <> (1, 3), row(1, 2) < row(1, 3), row(1, null) = row(1, 2), row(1, null) = row(2, 2)
select row(1, 2) = row(1, 2, 3)
select a from rowed where row(a, b) in (row(1, 2), (3, 5)) order by a
select a from rowed where row(a, b) in (select a, b from rowed) order by a
select a from rowed where (a, b) = (select 3, 4)
select a from rowed where (a, b) = (select a, b from rowed where a = 9)
select a from rowed where (a, b) < (select 2, 0) order by a
select a from rowed where (a, b) = (select a, b from rowed)
select a from rowed where (a, b) = (select 3)
select a from rowed r where (a, b) = (select max(a), max(b) from rowed where a <= r.a) order by a
select (a, b) is null, (a, b) is not null, row(b, c) is null from rowed order by a
select (null, null) is null, row(null, 1) is null, row(null, 1) is not null, row() is null
select r is null, r is not null from rowed r order by a
select r from rowed l left join rowed r on r.a = l.a + 1 order by l.a
select count(distinct (b is null, c is null)), count(distinct row(a % 2)) from rowed
select count(r) from rowed r
select max(a) from rowed r group by r order by 1
select row_to_json(r) from rowed r order by a
select row_to_json(row(1, 'x', true, null))
select to_json(r), to_jsonb(r) from rowed r where a = 1
select json_agg(r order by a) from rowed r
select json_agg(row_to_json(r)) from (select a, c from rowed where a < 3 order by a) r
select row_to_json(row(1, '{"k": 1}'::json, array[1, 2], date '2026-01-02'))
select row_to_json(5)
select r from (select 1 as one, 'two' as two) r
select v from (values (1, 'a'), (2, 'b')) v (x, y) order by v.x
select (select r from rowed r where a = 1)
select a, row(a, c)::text from rowed order by row(c, a)
update rowed set (b, c) = row(7, 'seven') where a = 1 returning *
update rowed set (b, c) = (select 8, 'eight') where a = 2 returning a, b, c
update rowed set (b, c) = (select x.a * 10, x.c from rowed x where x.a = rowed.a - 1) where a > 1 returning a, b, c
update rowed set (b, c) = (select 8, 'eight', 9) where a = 2
update rowed set (b, c) = (select a, c from rowed) where a = 2
update rowed set (b, c) = (default, 'd') where a = 3 returning *
update rowed set (b, b) = (1, 2)
update rowed set (b, c) = (select 1)
select no_such from rowed
select rowed.no_such from rowed
create table has_own (has_own int, other int)
insert into has_own values (1, 2)
select has_own from has_own
drop table rowed, has_own
-- Statistics and bits of groups.
create table measured (id int primary key, g text, small smallint, big bigint, x numeric(10,3), y double precision, z real)
insert into measured values (1, 'a', 6, 1000000000000000000, 1.5, 2.5, 0.1), (2, 'a', 3, 3000000000000000000, 2.25, 1e10, 0.2), (3, 'b', -1, 5, -7.125, -2.5, 3), (4, 'b', null, null, null, null, null), (5, 'c', 12, 7, 0, 0, 0)
select stddev(small), stddev_samp(small), stddev_pop(small), variance(small), var_samp(small), var_pop(small) from measured
select stddev(id), variance(id), stddev_pop(id), var_pop(id) from measured
select stddev(x), variance(x), stddev_pop(x), var_pop(x) from measured
select stddev(y), variance(y), stddev_pop(y), var_pop(y) from measured
select stddev(z), variance(z), stddev_pop(z), var_pop(z) from measured
select g, stddev(x), var_pop(x), variance(y), stddev_pop(small) from measured group by g order by g
select variance(a), var_pop(a), stddev(a), stddev_pop(a) from (values (5.00), (5.0)) v(a)
select variance(a), var_pop(a) from (values (null::int)) v(a)
select variance(id), var_pop(id), stddev(y), stddev_pop(x) from measured where false
select variance(distinct a), var_pop(distinct a), var_pop(a) from (values (1), (1), (4), (null)) v(a)
select variance(id) filter (where id > 2), stddev_pop(x) filter (where false) from measured
select id, variance(id) over (order by id), stddev_pop(x) over (partition by g order by id), bit_or(small) over (order by id) from measured order by id
select variance(a) from (values (0.0001), (0.0002), (0.00035)) v(a)
select stddev(a), var_pop(a) from (values (123456789.123), (987654321.321), (-555.5)) v(a)
select var_pop(a), stddev_pop(a) from (values (1e18::bigint), (3e18::bigint)) v(a)
select variance(a) from (values ('NaN'::float8), (1)) v(a)
select var_pop(a) from (values ('Infinity'::float8)) v(a)
select var_pop(a), stddev(a) from (values ('Infinity'::float8), (1), (2)) v(a)
select variance(a) from (values (1e200::float8), (-1e200)) v(a)
select variance('x')
select variance('1')
select variance(true)
select variance(interval '1 day')
select variance()
select stddev(1, 2)
select bit_and(a), bit_or(a), bit_xor(a) from (values (6), (3), (null)) v(a)
select bit_and(small), bit_or(big), bit_xor(id) from measured
select bit_and(a), bit_or(a), bit_xor(a) from (values (null::bigint)) v(a)
select g, bit_and(id), bit_xor(distinct id) from measured group by g order by g
select bit_xor(distinct a), bit_xor(a) from (values (1), (1), (6)) v(a)
select bit_and(1.5)
select bit_or(true)
select corr(y, x), covar_pop(y, x), covar_samp(y, x) from measured
select regr_avgx(y, x), regr_avgy(y, x), regr_count(y, x), regr_r2(y, x), regr_sxx(y, x), regr_sxy(y, x), regr_syy(y, x) from measured
select regr_intercept(b, a), regr_slope(b, a), regr_r2(b, a), corr(b, a), covar_samp(b, a), regr_count(b, a) from (values (1, 2), (2, 4.5), (3, 5), (null, 6), (7, null)) v(a, b)
select regr_intercept(b, a), regr_slope(b, a), regr_r2(b, a), corr(b, a), covar_samp(b, a), regr_count(b, a) from (values (1, 2)) v(a, b)
select regr_r2(b, a), regr_r2(a, b), corr(a, b), regr_slope(b, a) from (values (1, 5), (2, 5)) v(a, b)
select regr_count(b, a), regr_avgx(b, a), covar_pop(b, a), corr(b, a) from (values (1, 2)) v(a, b) where false
select corr(a, 'x') from (values (1)) v(a)
select corr(1)
select corr(true, 1)
select corr(1, true)
select corr(distinct b, a), regr_count(distinct b, a) filter (where a < 3) from (values (1, 2), (1, 2), (2, 5), (3, 1)) v(a, b)
select a, regr_count(b, a) over (order by a), covar_pop(b, a) over (order by a) from (values (1, 2), (2, 5), (3, 1)) v(a, b)
select 0.00 / 3, 0 / 3.000, avg(a) from (values (0.00), (0.0)) v(a)
drop table measured
-- Documents that are changed, and their parts as rows.
select jsonb_set('{"a": 1, "b": [1, 2, {"c": 3}]}', '{a}', '2'), jsonb_set('{"a": 1}', '{b}', '"x"'), jsonb_set('{"a": 1}', '{b}', '2', false)
select jsonb_set('{"b": [1, 2, {"c": 3}]}', '{b,2,c}', '[4]'), jsonb_set('{"b": [1, 2]}', '{b,-1}', '9'), jsonb_set('{"b": [1, 2]}', '{b,7}', '9'), jsonb_set('{"b": [1, 2]}', '{b,-7}', '9'), jsonb_set('{"b": [1, 2]}', '{b,7}', '9', false)
select jsonb_set('{"a": 1}', '{}', '2'), jsonb_set('{}', '{a}', '1'), jsonb_set('{}', '{a}', '1', false), jsonb_set('[]', '{5}', '1'), jsonb_set('[]', '{-5}', '1'), jsonb_set('{"a": 1}', '{x,y}', '2'), jsonb_set('{"a": 1}', '{a,y}', '2')
select jsonb_set(null, '{a}', '1'), jsonb_set('{}', null, '1'), jsonb_set('{}', '{a}', null), jsonb_set('{}', '{a}', '1', null)
select jsonb_set('{"a": null}', '{a}', 'null'), jsonb_set('{"aa": 1, "b": 2}', '{c}', '3')
select jsonb_set('1', '{a}', '2')
select jsonb_set('[1, 2]', '{a}', '2')
select jsonb_set('{"a": 1}', array[null]::text[], '2')
select jsonb_set('{"a": [1]}', '{a, 1.5}', '2')
select jsonb_set('{"a": 1}', '{a}', 'nonsense')
select jsonb_set('{"a": 1}'::json, '{a}', '2')
select jsonb_set(jsonb_in => '{"a": 1}', path => '{b}', replacement => '2', create_if_missing => false), jsonb_set('{"a": 1}', replacement := '3', path := '{a}')
select jsonb_insert('{"a": [0, 1, 2]}', '{a, 1}', '"new"'), jsonb_insert('{"a": [0, 1, 2]}', '{a, 1}', '"new"', true), jsonb_insert('{"a": [0, 1, 2]}', '{a, -1}', '"new"'), jsonb_insert('{"a": [0, 1, 2]}', '{a, -1}', '"new"', insert_after => true), jsonb_insert('{"a": []}', '{a, 3}', '1'), jsonb_insert('[1]', '{-9}', '0'), jsonb_insert('[1]', '{9}', '0')
select jsonb_insert('{"a": 1}', '{b}', '2'), jsonb_insert('{"a": {"b": 1}}', '{a,c}', '2'), jsonb_insert('{}', '{a}', '1', true), jsonb_insert('{"a": 1}', '{}', '2')
select jsonb_insert('{"a": 1}', '{a}', '2')
select jsonb_insert('"x"', '{a}', '2')
select '{"a": [1, 2, 3], "b": {"c": 1}}'::jsonb #- '{a,1}', '{"a": [1, 2, 3]}'::jsonb #- '{a,-1}', '{"b": {"c": 1}}'::jsonb #- '{b,c}', '{"b": 1}'::jsonb #- '{x}', '{"b": 1}'::jsonb #- '{}', '[1]'::jsonb #- '{4}'
select '1'::jsonb #- '{a}'
select jsonb_strip_nulls('{"a": null, "b": [null, {"c": null, "d": 1}], "e": {}}'), jsonb_strip_nulls('null'), jsonb_strip_nulls('[null]'), jsonb_strip_nulls(null)
select json_strip_nulls('{"a": null, "b" : [null, {"c": null, "d" : 1.50}], "e": "x\u0041\n", "b": 1e3}'), json_strip_nulls(' null ')
select jsonb_pretty('{"b": [1, {"c": null, "aa": "x\"y"}, []], "a": {}, "d": true}')
select jsonb_pretty('[]'), jsonb_pretty('1'), jsonb_pretty(null)
select '1'::jsonb::int, '1.5'::jsonb::int, '2.5'::jsonb::int8, '-1.5'::jsonb::int2, '1.50'::jsonb::numeric, '1.25'::jsonb::float8, '0.1'::jsonb::float4, 'true'::jsonb::bool, '12.345'::jsonb::numeric(4,1), '1e2'::jsonb::numeric
select cast(jsonb '{"a": 7}' -> 'a' as int) + 1, ('{"a": 7}'::jsonb -> 'b')::int
select '"1"'::jsonb::int
select 'null'::jsonb::int
select 'true'::jsonb::int
select '[1]'::jsonb::numeric
select '{}'::jsonb::bool
select '1'::jsonb::bool
select '70000'::jsonb::int2
select '3e9'::jsonb::int
select '1'::json::int
select 1::jsonb
select '1'::jsonb + 1
select * from jsonb_array_elements('[1, "x", null, [2], {"b": 1, "a": 2}]')
select * from jsonb_array_elements_text('[1, "x", null, [2], {"b": 1, "a": 2}, true]')
select * from json_array_elements('[1, "x", null, [2,  3], {"b" :1, "a": 2}]')
select * from json_array_elements_text('[1, "x\u0041", null, [2,  3], 1.50]')
select e, value from jsonb_array_elements('[1]') as e
select e from jsonb_array_elements('[1, 2]') as e(e)
select pg_typeof(value) from jsonb_array_elements('[1]')
select * from jsonb_array_elements('[]')
select * from jsonb_array_elements(null)
select count(*) from jsonb_array_elements_text(null::jsonb)
select * from jsonb_array_elements('{"a": 1}')
select * from jsonb_array_elements('1')
select * from json_array_elements('{"a": 1}')
select * from json_array_elements('"x"')
select * from jsonb_array_elements('[1')
select * from jsonb_array_elements('[1]'::json)
select * from jsonb_array_elements(1)
select * from jsonb_array_elements()
select * from jsonb_array_elements(from_json => '[1]')
select * from jsonb_array_elements("from" => '[1]')
select * from jsonb_each('{"b": 1, "a": "x", "c": null}')
select * from jsonb_each_text('{"b": 1, "a": "x", "c": null, "d": [1, "y"]}')
select * from json_each('{"b": 1, "a": "x", "b": null, "d": [1,  2]}')
select * from json_each_text('{"b": 1, "a": "x", "b": null}')
select k, v, e.v from jsonb_each('{"a": 1}') as e(k, v)
select key, value from jsonb_each('{"a": 1}') e where value = '1'
select * from jsonb_each('[1]')
select * from jsonb_each('1')
select * from json_each('[1]')
select * from json_each('1')
select * from jsonb_each(null)
select * from json_object_keys('{"b": 1, "a": 2, "b": 3}')
select * from jsonb_object_keys('{"b": 1, "aa": 2, "a": 3}') as k
select * from jsonb_object_keys('[1]')
select * from json_object_keys('1')
select * from jsonb_object_keys(from_json => '{}')
select jsonb_array_elements('[1, 2]'), jsonb_object_keys('{"a": 1, "b": 2, "c": 3}')
select jsonb_array_elements_text('["x", null]') is null, json_array_elements('[1, 2]') #>> '{}'
select jsonb_each('{"a": 1, "b": "x y"}'), json_each_text('{"a": null, "b": "q"}')
select (jsonb_each('{"a": 1, "b": 2}')).key
select (jsonb_each_text('{"a": 1, "b": null}')).value
create table docs (id int primary key, doc jsonb, tags text[])
insert into docs values (1, '{"a": [1, 2], "n": 5}', '{x,y}'), (2, '{"a": [], "n": 7}', '{}'), (3, '{"a": [3]}', null)
select id, e from docs, jsonb_array_elements(doc -> 'a') e order by id, e
select id, value::int + 1 as next from docs cross join lateral jsonb_array_elements(docs.doc -> 'a') order by id, next
select d.id, k.* from docs d left join lateral jsonb_object_keys(d.doc) k on k <> 'a' order by 1, 2
select id, t from docs, unnest(tags) t order by id, t
select id, t, n from docs, unnest(tags) with ordinality u(t, n) order by id, n
select id, g from docs, generate_series(1, id) g order by id, g
select id, abs from docs, abs(-id) order by id
select id, (select count(*) from jsonb_array_elements(doc -> 'a')) from docs order by id
select id, (select string_agg(t, '-' order by t) from unnest(tags) t) from docs order by id
select id from docs where exists (select 1 from jsonb_array_elements(doc -> 'a') x where x = '3')
select id, (doc -> 'n')::int from docs order by id
select id, x, y from docs, generate_series(1, 2) x, generate_series(x, id) y order by 1, 2, 3
select id, array(select jsonb_array_elements_text(doc -> 'a')) from docs order by id
update docs set doc = jsonb_set(doc, '{n}', to_jsonb(id * 10)) where id < 3 returning doc
select id, key, value from docs, jsonb_each(doc) where key = 'n' order by id
select * from jsonb_array_elements(doc -> 'a'), docs
drop table docs
select * from unnest(array['a', 'b', null]) with ordinality
select * from unnest(array[1, 2]) with ordinality as u
select u, ordinality from unnest(array[3, 4]) with ordinality u where ordinality > 1
select * from generate_series(3, 1, -1) with ordinality as t(a, b)
select * from generate_series(5, 6) with ordinality as t(a)
select * from jsonb_each('{"a": 1, "b": 2}') with ordinality
select * from jsonb_each('{"a": 1, "b": 2}') with ordinality as e(k, v, n) order by n desc
select * from jsonb_array_elements_text('["x", "y"]') with ordinality limit 1
select * from abs(-1) with ordinality
select * from upper('x') with ordinality as t(a, b)
select a.*, b.* from unnest(array[1, 2]) with ordinality a left join unnest(array['x']) with ordinality b on a.ordinality = b.ordinality
select * from unnest(array[]::int[]) with ordinality
select sum(ordinality) from generate_series(1, 4) with ordinality
select * from generate_series(1, 2) with ordinality as t(a, b, c)
select * from unnest(array[1, 2], array['a']) with ordinality
select * from unnest(array[1, 2], array['a', 'b', 'c'], array[]::int[]) as u(a, b)
select u from unnest(array[1], array['a b']) u
select * from unnest(array[1, 2], 5)
select e from jsonb_array_elements('[1, 2]') with ordinality e
select e, e.value from jsonb_array_elements('[{"a": 1}, {"a": 2}]') e where e ->> 'a' > '1'
select g, g.g from generate_series(1, 2) g where g > 1
select row_to_json(e) from jsonb_each('{"a": [1]}') e
select count(e), max(e) from jsonb_array_elements_text('["x", null]') e
create table plain (a int)
select * from plain with ordinality
drop table plain
-- Dates, times and intervals of their parts, with arguments by names.
select make_interval(days => 1), make_interval(), make_interval(1, 2, 3, 4, 5, 6, 7.25), make_interval(secs => 1.5, years := 2), make_interval(1, weeks => 2), make_interval(hours => -5, mins => 90)
select make_interval(days => null), make_interval(secs => '1.5'), make_interval("days" => 3)
select make_interval(day => 1)
select make_interval(days => 1, days => 2)
select make_interval(days => 1, 2)
select make_interval(1, years => 2)
select make_interval(1, 2, 3, 4, 5, 6, 7, 8)
select make_interval(days => 1.5)
select make_interval(days => 'x')
select make_interval(secs => 'infinity')
select make_interval(days => a, hours => a * 2) from (values (1), (2)) v(a)
select make_interval(days => max(a)) from (values (1), (2)) v(a)
select abs(x => -1)
select upper(string => 'x')
select make_date(2020, 2, 29), make_date(year => 2021, month => 12, day => 31), make_date(day => 1, month => 2, year => -44)
select make_date(0, 1, 1)
select make_date(2021, 2, 29)
select make_date(2021, 13, 1)
select make_date(2021, 2)
select make_date(-4714, 1, 1)
select make_time(8, 15, 23.5), make_time(hour => 24, min => 0, sec => 0), make_time(0, 0, 60), make_time(1, 59, 59.9999999)
select make_time(24, 0, 1)
select make_time(10, 60, 0)
select make_time(10, 0, 60.1)
select make_time(-1, 0, 0)
select make_time(1, 2, 'nan')
select make_timestamp(2013, 7, 15, 8, 15, 23.5), make_timestamp(year => 2013, month => 7, mday => 15, hour => 24, min => 0, sec => 0), make_timestamp(-1, 1, 1, 0, 0, 0)
select make_timestamp(2013, 7, 32, 8, 15, 23.5)
select make_timestamp(2013, 7, 15, 25, 15, 23.5)
select make_timestamptz(2013, 7, 15, 8, 15, 23.5), make_timestamptz(2013, 7, 15, 8, 15, 23.5, 'UTC'), make_timestamptz(2013, 7, 15, 8, 15, 23.5, '+02'), make_timestamptz(2013, 7, 15, 8, 15, 23.5, '-03:30'), make_timestamptz(2013, 7, 15, 8, 15, 23.5, timezone => '+1')
select make_timestamptz(2013, 7, 15, 8, 15, 23.5, '2')
select make_timestamptz(2013, 7, 15, 8, 15, 23.5, 'Nowhere/Town')
select make_timestamptz(2013, 7, 15, 8, 15, 23.5, '+25')
select width_bucket(5.35, 0.024, 10.06, 5), width_bucket(-1, 0, 10, 5), width_bucket(10, 0, 10, 5), width_bucket(0, 0, 10, 5), width_bucket(9.999, 10, 0, 5), width_bucket(11, 10, 0, 5), width_bucket(0.0, 10, 0, 5)
select width_bucket(5.35::float8, 0.024, 10.06, 5), width_bucket(0.7::float8, 0, 1, 10), width_bucket('-infinity'::float8, 0, 1, 3), width_bucket('infinity'::float8, 0, 1, 3), width_bucket(0.3::float8, 0.1, 0.5, 4), width_bucket(3::float8, 5, 1, 4)
select width_bucket(null, 0, 10, 5), width_bucket(5, 0, 10, null)
select width_bucket(5, 0, 10, 0)
select width_bucket(5.0, 0, 10, -1)
select width_bucket(5, 1, 1, 3)
select width_bucket(5::float8, 1, 1, 3)
select width_bucket('nan'::float8, 1, 2, 3)
select width_bucket(1::float8, 1, 'infinity', 3)
select width_bucket(10.0, 0, 10, 2147483647)
select width_bucket(10::float8, 0, 10, 2147483647)
select width_bucket(5, array[1, 3, 5, 10]), width_bucket(0, array[1, 3]), width_bucket(99, array[1, 3]), width_bucket(2.5, array[1, 2, 3]), width_bucket('c', array['a', 'b', 'd']), width_bucket(5, array[]::int[]), width_bucket(null, array[1]), width_bucket(date '2020-02-02', array[date '2020-01-01', date '2020-02-02'])
select width_bucket(5, array[1, null])
select width_bucket(5, 6)
select factorial(0), factorial(1), factorial(20), factorial(33), factorial(null)
select factorial(-1)
select factorial(100000)
select pg_size_pretty(0::bigint), pg_size_pretty(10239::bigint), pg_size_pretty(10240::bigint), pg_size_pretty(-20000::bigint), pg_size_pretty(1000000000000), pg_size_pretty(9223372036854775807), pg_size_pretty(1.5), pg_size_pretty(10240.75), pg_size_pretty(-123456.7), pg_size_pretty(null::numeric)
select (date '2020-01-01', date '2020-02-01') overlaps (date '2020-01-15', date '2020-03-01'), (date '2020-01-01', date '2020-02-01') overlaps (date '2020-02-01', date '2020-03-01'), (date '2020-02-01', date '2020-01-01') overlaps (date '2020-01-15', date '2020-01-16')
select (date '2020-01-01', date '2020-01-01') overlaps (date '2020-01-01', date '2020-01-01'), (date '2020-01-01', date '2020-01-01') overlaps (date '2020-01-01', date '2020-01-05'), (date '2020-01-05', date '2020-01-05') overlaps (date '2020-01-01', date '2020-01-05')
select (timestamp '2020-01-01 10:00', interval '2 hours') overlaps (timestamp '2020-01-01 11:00', interval '1 hour'), (timestamp '2020-01-01 10:00', interval '1 hour') overlaps (timestamp '2020-01-01 11:00', timestamp '2020-01-01 12:00'), (timestamp '2020-01-01 10:00', timestamp '2020-01-01 11:30') overlaps (timestamp '2020-01-01 11:00', interval '1 mon')
select (time '10:00', time '12:00') overlaps (time '11:00', time '13:00'), (time '10:00', interval '30 min') overlaps (time '10:30', interval '1 hour'), (time '23:00', interval '2 hours') overlaps (time '00:30', time '00:40')
select (timestamptz '2020-01-01 10:00+00', interval '-1 hour') overlaps (timestamptz '2020-01-01 09:30+00', timestamptz '2020-01-01 09:40+00'), (date '2020-01-01', interval '1 month') overlaps (date '2020-01-31', interval '1 day')
select (date '2020-01-01', null) overlaps (date '2020-01-01', date '2020-02-01'), (null, date '2020-01-15') overlaps (date '2020-01-01', date '2020-02-01'), (date '2020-01-01', date '2020-02-01') overlaps (date '2020-01-15', null), (date '2020-03-01', null) overlaps (date '2020-01-15', date '2020-02-01')
select (null::date, null::date) overlaps (date '2020-01-01', date '2020-02-01'), (date '2020-01-01', date '2020-02-01') overlaps (null::date, null::date), (date '2020-01-01', null::interval) overlaps (date '2020-01-01', date '2020-02-01'), (null::timestamp, interval '1 day') overlaps (timestamp '2020-01-01', interval '1 day')
select a from (values (date '2020-01-01'), (date '2020-05-01')) v(a) where (a, a + 10) overlaps (date '2020-01-05', date '2020-01-06') and not (a, a) overlaps (date '2021-01-05', date '2021-01-06')
select (1, 2) overlaps (3, 4)
select (date '2020-01-01', date '2020-02-01', 3) overlaps (date '2020-01-15', date '2020-03-01')
select (date '2020-01-01', date '2020-02-01') overlaps (date '2020-01-15')
-- ON CONFLICT sees the rows of before the statement in its subqueries.
create table counted (id int primary key, n int, note text)
create table other_counted (id int primary key, n int)
insert into counted values (1, 10, 'a'), (2, 20, 'b')
insert into other_counted values (1, 100), (2, 200), (3, 300)
insert into counted values (5, 50, 'e'), (1, 0, 'x'), (6, 60, 'f'), (2, 0, 'y') on conflict (id) do update set n = (select count(*) from counted) returning *
insert into counted values (1, 0, 'x'), (2, 0, 'y') on conflict (id) do update set n = (select sum(n) from counted) + excluded.id returning *
insert into counted values (1, 0, 'x'), (2, 0, 'y'), (7, 7, 'z') on conflict (id) do update set n = (select max(n) from counted c where c.id <> counted.id), note = (select o.n::text || excluded.note from other_counted o where o.id = excluded.id) returning *
insert into counted values (1, 0, 'x'), (8, 0, 'y') on conflict (id) do update set (n, note) = (select o.n, counted.note || excluded.note from other_counted o where o.id = counted.id) returning *
insert into counted values (1, 1, 'x'), (2, 2, 'y') on conflict (id) do update set n = excluded.n where counted.n > (select avg(n) from counted) returning *
insert into counted values (1, 1, 'x'), (2, 2, 'y') on conflict (id) do update set n = counted.n + 1 where exists (select 1 from other_counted o where o.n = 100 * counted.id and o.id = excluded.id and o.id < 2) returning *
insert into counted values (1, 1, 'x'), (9, 9, 'new') on conflict (id) do update set note = (select note from counted where id = 9) returning *
insert into counted values (1, 1, 'x') on conflict (id) do update set n = (select n from counted)
insert into counted select id, n from other_counted on conflict (id) do update set n = counted.n + excluded.n + (select min(n) from counted) returning *
insert into counted values (10, 1, 'one'), (10, 2, 'two') on conflict (id) do update set n = 5
insert into counted values (1, (select count(*) from counted), 's') on conflict (id) do update set n = excluded.n + (select count(*) from counted where id > 1) returning *
insert into counted values (11, 1, 'one'), (11, 2, 'two') on conflict do nothing returning *
insert into counted values (12, 1, 'a'), (13, (select count(*) from counted), 'b'), (14, (select count(*) from counted), 'c') returning id, n > 5
insert into counted values (1, 1, 'x'), (1, 2, 'y') on conflict (id) do update set n = excluded.n where counted.n < 0
insert into counted values (1, 1, 'x'), (1, 2, 'y') on conflict (id) do update set n = excluded.n where excluded.n = 2 returning n
insert into counted values (1, 1, 'x'), (1, 2, 'y') on conflict (id) do update set n = (select 3) where excluded.n = 2 returning n
insert into counted values (1, 1, 'x'), (1, 2, 'y') on conflict (id) do update set n = (select 3)
insert into counted values (20, 1, 'x'), (20, 2, 'y') on conflict (id) do update set n = (select 3)
insert into counted values (1, 1, 'x') on conflict (id) do update set n = 1 / (select count(*) from other_counted where n < 0)
select * from counted order by id
insert into counted values (1, 1, 'x') on conflict (id) do update set id = 99 returning *
insert into counted values (2, 1, 'x') on conflict (id) do update set id = (select 98) returning *
insert into counted values (3, 1, 'x') on conflict (id) do update set id = 98 returning *
select id from counted order by id
create table child_counted (id int primary key references counted, n int)
insert into child_counted values (5, 1), (6, 1)
insert into counted values (5, 1, 'x'), (6, 2, 'y') on conflict (id) do update set id = excluded.id, n = excluded.n, note = excluded.note returning *
insert into counted values (5, 1, 'x') on conflict (id) do update set id = 77
drop table child_counted
create table child_counted (id int primary key references counted on delete cascade, n int)
insert into child_counted values (5, 1), (6, 1)
insert into counted values (5, 2, 'z') on conflict (id) do update set id = excluded.id, n = excluded.n returning *
select * from child_counted order by id
drop table child_counted
drop table counted, other_counted
-- V in templates of numbers.
select to_char(1, '9V99'), to_char(12, '99V999'), to_char(12.4, '99V999'), to_char(12.45, '99V9'), to_char(-12.45, '99V9'), to_char(0.5, '9V9'), to_char(0, '9V99'), to_char(1.25::float8, '9V99')
select to_char(1, '9V00'), to_char(1, '0V99'), to_char(123, '9V99'), to_char(1, 'FM9V99'), to_char(1, '9V9th'), to_char(5, 'S9V9'), to_char(-5, '9V9S'), to_char(-5, '9V9MI'), to_char(-5, '9V9PR'), to_char(1234, '9,999V99'), to_char(12, '99V')
select to_char(-5, '99S'), to_char(-5, '9.9S'), to_char(5, '99S'), to_char(-5, '999S'), to_char(-5, '9S9'), to_char(-15, '999S'), to_char(-0.5, 'S9.99'), to_char(-1.5, '9S.9'), to_char(5, 'S,999')
select to_char(1, '9V9.9')
select to_char(1, '9.9V9')
select to_char(1, '9.9.9')
select to_char(2147483647, '9V9')
select to_char(2147483647::bigint, '9999999999V9')
select to_char(9223372036854775807, '9V9')
select to_number('12454', '99V999'), to_number('-125', '99V9'), to_number('7', '9V'), to_number('12', '9V99')
select to_number('1.5', '9.9V9')
-- Sizes.
create table sized (id int primary key, t text)
create index sized_t on sized (t)
create view sizes_of as select pg_table_size('sized') > 0 as has_rows
insert into sized select n, repeat('x', 100) from generate_series(1, 2000) n
select pg_relation_size('sized') > 200000, pg_table_size('sized') >= pg_relation_size('sized'), pg_indexes_size('sized') > 0, pg_total_relation_size('sized') = pg_table_size('sized') + pg_indexes_size('sized'), pg_relation_size('sized_t') > 0
select pg_relation_size('sized'), pg_table_size(null), pg_database_size(null::name) limit 0
select pg_relation_size('sized', 'main') = pg_relation_size('sized'), pg_relation_size('sized', 'init')
select pg_relation_size('sized', 'nonsense')
select pg_relation_size('no_such')
select pg_relation_size(1::oid), pg_total_relation_size(4000000000::oid)
select pg_relation_size('sizes_of'), pg_indexes_size('sized_t')
select has_rows from sizes_of
select c.relname, pg_total_relation_size(c.oid) > 0 from pg_class c where c.relname in ('sized', 'sizes_of') order by 1
select pg_database_size(current_database()) >= pg_total_relation_size('sized'), pg_size_pretty(pg_database_size(current_database())) is not null
select pg_database_size('no_such_database')
select pg_database_size(oid) > 0 from pg_database where datname = current_database()
begin
insert into sized values (5000, 'y')
select count(*), pg_table_size('sized') > 0 from sized
rollback
drop view sizes_of
drop table sized
-- Regular expressions.
select regexp_like('Hello', 'hello'), regexp_like('Hello', 'hello', 'i'), regexp_like(null, 'a')
select regexp_count('123123123123123', '(12)3'), regexp_count('123123123123', '123', 3), regexp_count('ABCABC', 'abc', 1, 'i'), regexp_count('abc', 'x*')
select regexp_count('abc', 'a', 1, 'g')
select regexp_count('abc', 'a', 0)
select regexp_instr('number of your street, town zip, FR', '[^,]+'), regexp_instr('number of your street, town zip, FR', '[^,]+', 1, 2)
select regexp_instr('ABCDEFGHI', '(c..)(...)', 1, 1, 0, 'i', 2), regexp_instr('abcabc', 'b', 1, 2, 1), regexp_instr('abc', 'x'), regexp_instr('abcabcabc', 'a.c', 2, 3)
select regexp_instr('abcabcabc', 'a.c', 1, 1, 2)
select regexp_instr('abcabcabc', 'a.c', 1, 0)
select regexp_substr('number of your street, town zip, FR', '[^,]+', 1, 2), regexp_substr('ABCDEFGHI', '(c..)(...)', 1, 1, 'i', 2), regexp_substr('abc', 'x'), regexp_substr('abc', '(b)(x)?', 1, 1, '', 2)
select regexp_split_to_array('the quick  brown', '\s+'), regexp_split_to_array('hello', ''), regexp_split_to_array('abc', 'x*'), regexp_split_to_array('aXbxc', 'x', 'i'), regexp_split_to_array(',a,,b,', ',')
select regexp_split_to_array('a', 'b', 'g')
select part from regexp_split_to_table('hello world again', '\s+') as part
select regexp_split_to_table('a-b', '-'), 1
select * from regexp_matches('foobarbequebazilbarfbonk', '(b[^b]+)(b[^b]+)', 'g')
select regexp_matches('foobarbequebaz', 'ba.', 'g')
select regexp_matches('foobarbequebaz', 'ba.')
select regexp_matches('abc', 'x*', 'g')
select count(*) from regexp_matches('abc', 'y')
select regexp_replace('foobarbaz', 'b(..)', 'X\1Y'), regexp_replace('foobarbaz', 'b(..)', 'X\1Y', 'g'), regexp_replace('a$b', '\$', '$1'), regexp_match('abc', 'b(.)'), regexp_match('abc', 'x')
select regexp_match('abc', 'b', 'g')
select * from string_to_table('a,b,,c', ',')
select string_to_table('a~~b', '~~', 'b')
-- Bytes.
select '\x0102'::bytea || '\x03', '\x01' || '\x02'::bytea, substring('\x1234567890'::bytea from 2 for 2), substr('\x1234567890'::bytea, 4), substring('\x1234'::bytea from 0 for 2), substring('\x12'::bytea, 5)
select substring('\x12'::bytea, 1, -1)
select position('\x5678'::bytea in '\x1234567890'::bytea), position('\x99'::bytea in '\x12'::bytea), position(''::bytea in '\x12'::bytea)
select trim('\x00'::bytea from '\x00aa00'::bytea), trim(leading '\x00'::bytea from '\x00aa00'::bytea), rtrim('\x00aa00'::bytea, '\x00'), btrim('\x1234'::bytea, '\x34')
select overlay('\x1234567890'::bytea placing '\xffff' from 2 for 3), overlay('\x1234567890'::bytea placing '\xff' from 2)
select get_byte('\x1234567890'::bytea, 4), set_byte('\x1234567890'::bytea, 4, 64), get_bit('\x1234567890'::bytea, 30), set_bit('\x1234567890'::bytea, 30, 0)
select get_byte('\x12'::bytea, 1)
select set_bit('\x12'::bytea, 1, 2)
select sha224('abc'), sha256('abc'::bytea)
select sha384(''::bytea), sha512('a'::bytea)
select convert_from('\x74657874', 'UTF8'), convert_to('some_text', 'UTF8'), bit_length('\x1234'::bytea), length('\xc3a4'::bytea, 'utf8'), octet_length('\x1234'::bytea), bit_count('\xff01'::bytea)
select convert_from('\xff', 'UTF8')
-- Angles and hyperbolic functions.
select sind(30), cosd(60), tand(45), cotd(45), sind(-30), cosd(120), tand(135), sind(390), cosd(-60), tand(180), cotd(135), sind(0), cosd(90)
select asind(0.5), acosd(0.5), atand(1), atan2d(1, 1), acosd(-0.5), asind(-0.5), asind(1), acosd(0)
select asind(2)
select round(sinh(1)::numeric, 10), round(cosh(1)::numeric, 10), round(tanh(1)::numeric, 10), round(asinh(1)::numeric, 10), round(acosh(2)::numeric, 10), round(atanh(0.5)::numeric, 10), round(cot(1)::numeric, 10)
select acosh(0.5)
select scale(8.41), scale(8.4100), min_scale(8.4100), trim_scale(8.4100), trim_scale(100), min_scale(0.00)
-- Bins of time.
select date_bin('15 minutes', timestamp '2020-02-11 15:44:17', timestamp '2001-01-01'), date_bin('15 minutes', timestamptz '2020-02-11 15:44:17+00', timestamptz '2001-01-01 00:02:30+00'), date_bin('2 days', timestamp '1999-01-02 12:00', timestamp '2001-01-01')
select date_bin('1 month', timestamp '2020-02-11', timestamp '2001-01-01')
select date_bin('-1 day', timestamp '2020-02-11', timestamp '2001-01-01')
select isfinite(date '2020-01-01'), localtime = current_timestamp::time, pg_typeof(localtime)
-- More of arrays, and NULLs counted.
select array_positions(array['a','b','a'], 'a'), array_positions(array[1,null], null), array_positions(array[1], 2), array_replace(array[1,2,5,4], 5, 3), array_replace(array[1,null], null, 0), trim_array(array[1,2,3,4], 2), trim_array(array[1], 0)
select trim_array(array[1], 2)
select array_replace(array['a', 'b'], 'a', null)
select num_nulls(1, null, 'a', null), num_nonnulls(1, null, 'a'), num_nulls(null)
select pg_sleep(0), pg_sleep_for('0'), pg_sleep_until(now()), pg_sleep(null) is null
select count(*) from generate_series(1, 2) where pg_sleep(0) is not null
-- Aggregates of ordered rows.
select percentile_cont(0.5) within group (order by v), percentile_disc(0.5) within group (order by v), mode() within group (order by v) from (values (1), (2), (2), (10)) t(v)
select percentile_cont(array[0, 0.25, 1]) within group (order by v), percentile_disc(array[0, 0.5, 1, null]) within group (order by v desc) from (values (1), (2), (4), (null)) t(v)
select percentile_cont(0.3) within group (order by v) from (values (interval '1 hour'), (interval '2 hours'), (interval '4 hours')) t(v)
select k, mode() within group (order by v desc), percentile_disc(0.1) within group (order by v) filter (where v <> 'b') from (values (1, 'a'), (1, 'b'), (2, 'c'), (2, 'c'), (2, 'd')) t(k, v) group by k order by k
select percentile_cont(0.5) within group (order by v), percentile_cont(null) within group (order by v), count(*) from (values (null::float8)) t(v)
select percentile_cont(1.5) within group (order by v) from (values (1)) t(v)
select percentile_cont(0.5) within group (order by v) from (values ('a')) t(v)
select percentile_cont(0.5) from (values (1)) t(v)
select sum(v) within group (order by v) from (values (1)) t(v)
select lower('A') within group (order by 1)
select percentile_disc(0.5) within group (order by v) over () from (values (1)) t(v)
select mode(1) within group (order by v) from (values (1)) t(v)
select percentile_cont(0.5) within group (order by v) - avg(v) from (values (1.5), (2.5), (8)) t(v) having count(*) > 1
-- What a review found.
select regexp_replace('abc','b','\n'), regexp_replace('abc','b','[\0]'), regexp_replace('abc','b','a\\\\b'), regexp_replace('abc','b','<\&>'), regexp_replace('abc','b','x\'), regexp_replace('abc','(b)(x)?','[\1\2]')
select regexp_replace('abc','b*','X','g'), regexp_replace('abc','x*','-','g'), regexp_replace('abc','','-'), regexp_count('abc','b*')
select regexp_like(E'a\nb','a.b'), regexp_count(E'a\nb','.'), E'a\nb' ~ '^a.b$', E'a\nb' ~ 'a$'
select date_bin('106751991 days', timestamp '1900-01-01', timestamp '1900-01-02') is null
select percentile_cont(0.5) within group (order by v) from (values ('Infinity'::float8)) t(v)
select percentile_cont(distinct 0.5) within group (order by v) from (values (1)) t(v)
select acosd(0.9), acosd(0.9999999999999999), asind(0.9), acosd(1), acosd(-1)
select sin('infinity'::float8)
select cot('infinity'::float8)
select round(acosh(1e308::float8)::numeric, 6), round(asinh(1e308::float8)::numeric, 6)
select convert_from('\x00', 'UTF8')
-- Subqueries in RETURNING: they read what was there before the statement.
create table returned (a int primary key, b int)
create table looked_at (k int primary key, v text)
insert into looked_at values (1, 'one'), (2, 'two'), (3, 'three') returning k, (select count(*) from looked_at)
insert into returned values (1, 1), (2, 2) returning a, (select v from looked_at where k = a), (select count(*) from returned)
insert into returned values (3, 3) returning (select max(a) from returned), exists (select 1 from looked_at where k = b), b in (select k from looked_at)
update returned set b = b + 1 returning a, b, (select v from looked_at where k = b), (select sum(r.b) from returned r)
update returned set b = 1 where a = 1 returning (select v from looked_at where k = a) || '!'
update returned r set b = l.k from looked_at l where l.k = r.a and l.k = 2 returning r.b, (select v from looked_at where k = l.k), (select count(*) from returned where b = 1)
insert into returned values (1, 9), (4, 9) on conflict (a) do update set b = excluded.b returning a, b, (select count(*) from returned)
insert into returned values (1, 9), (5, 9), (5, 9) on conflict (a) do nothing returning a, (select count(*) from returned)
insert into returned values (6, 1) on conflict do nothing returning a, (select v from looked_at where k = b)
delete from returned where a > 3 returning a, (select count(*) from returned), array(select v from looked_at order by k)
delete from returned using looked_at where k = a and a = 2 returning a, (select l.v from looked_at l where l.k = a)
insert into returned values (9, 1) returning (select k from looked_at)
select count(*) from returned
-- SIMILAR TO and the parts of texts that patterns say.
select 'abc' similar to 'abc', 'abc' similar to 'a', 'abc' similar to '%(b|d)%', 'abc' similar to '(b|c)%', 'abc' not similar to 'a_c', null similar to 'a'
select 'a.c' similar to 'a.c', 'abc' similar to 'a.c', 'a%c' similar to 'a\%c', 'abc' similar to 'a\%c', 'a%c' similar to 'a#%c' escape '#', 'a^$' similar to 'a^$'
select 'aaa' similar to 'a{2,3}', 'a' similar to 'a?', 'ab' similar to '(ab)+', 'x]' similar to 'x]', 'x-' similar to 'x[]-]', 'é' similar to '_', 'b_' similar to '[[:alpha:]_]+', 'b.' similar to '[[:alpha:]_]+'
select 'a\c' similar to 'a\c' escape '', 'abc' similar to 'a"b"c', 'a' similar to 'a' escape 'xy'
select similar_to_escape('a%_b'), similar_to_escape('a#%"b"', '#'), similar_to_escape('a^(b|c)$.\d')
select substring('foobar' from '%#"o_b#"%' for '#'), substring('foobar' similar '#"o_b#"%' escape '#'), substring('foobar' similar '%#"o_b#"%' escape '#'), substring('abcdefg' similar 'a#"%#"g' escape '#')
select substring('abcdefg' similar 'a#"%#"x|g' escape '#'), substring('abcdefg' similar 'a#"%|ab#"g' escape '#'), substring('abcdefg' similar 'a*#"%#"g*' escape '#'), substring('abcdefg' similar 'a#"%#"g#"' escape '#')
select substring('abcdefg' similar 'a#"%#"g#"x#"' escape '#')
select substring('foobar' from 'o.b'), substring('foobar' from 'o(.)b'), substring('foobar', 'x'), substring('foobar', '(x)?o'), substring('abcdefg' from 2 for 3), substring('abcdefg' from 5)
select 'abc' similar to 3
select substring(null::text from 'a'), substring('Thomas' from '...$')
select 'ab' similar to '*'
-- Arrays that are filled, seeds, and numbers of transactions.
select array_fill(7, array[3]), array_fill('x'::text, array[2], array[1]), array_fill(null::int, array[2]), array_fill(1, '{}'), array_fill(1.5, array[0])
select array_fill(1, null)
select array_fill(1, array[null]::int[])
select array_fill(1, array[-1])
select array_fill('x', array[1])
select array_fill(1, array[1], array[1,1])
select array_fill(1, array[1000000000])
select setseed(0.5)
select random(), random(), random() from (select setseed(0.5)) s
select setseed(0.25), random()
select setseed(1.5)
select setseed(null), setseed(-1)
select random() from generate_series(1, 3)
select pg_typeof(txid_current()), txid_current() = txid_current(), pg_typeof(pg_current_xact_id()), pg_current_xact_id()::text = txid_current()::text
-- Functions side by side.
select * from rows from (generate_series(1, 3), unnest(array['a', 'b']))
select * from rows from (generate_series(1, 2), unnest(array['a', 'b', 'c'])) with ordinality
select * from rows from (generate_series(1, 2), json_each('{"a": 1, "b": 2, "c": 3}')) as t(n, k, v)
select t.* from rows from (upper('x'), generate_series(1, 2)) with ordinality as t(a, b, c) order by c desc
select x, y from (values (2), (1)) v(n), rows from (generate_series(1, n), unnest(array[10, 20, 30])) as t(x, y) order by n, y
select * from rows from (generate_series(1, 2)) as g
select rows from (select 1 as rows) s
select v.rows, n from (values (1)) v(rows) join rows from (generate_series(1, 2), now()) as r(n, m) on true where m is null
select * from rows from (unnest(array[1, 2], array['x']), generate_series(1, 3)) as t(a, b, c)
select * from rows from (1)
-- Aggregates of a row that is not there.
select rank(3) within group (order by v), dense_rank(3) within group (order by v), percent_rank(3) within group (order by v), cume_dist(3) within group (order by v) from (values (1), (1), (3), (5), (null)) t(v)
select rank(3) within group (order by v desc), dense_rank(3) within group (order by v desc nulls last), cume_dist(null) within group (order by v) from (values (1), (1), (3), (5), (null)) t(v)
select rank(1) within group (order by v), dense_rank(1) within group (order by v), percent_rank(1) within group (order by v), cume_dist(1) within group (order by v) from (values (1)) t(v) where false
select g, rank(2, 'b') within group (order by v, w desc), dense_rank(2.5, 'z') within group (order by v, w) filter (where v > 1) from (values (1, 1, 'a'), (1, 2, 'c'), (1, 2, 'a'), (2, 3, 'x')) t(g, v, w) group by g order by g
select rank(g) within group (order by v) from (values (1, 1), (1, 2), (2, 3)) t(g, v) group by g order by g
select rank(w) within group (order by v) from (values (1, 1), (1, 2)) t(g, w, v) group by g
select rank(w) within group (order by v) from (values (1, 1), (1, 2)) t(w, v)
select rank(max(v)) within group (order by v) from (values (1)) t(v)
select rank(1, 2) within group (order by v) from (values (1)) t(v)
select rank('x') within group (order by v) from (values (1)) t(v)
select rank(true) within group (order by v) from (values (1)) t(v)
select rank(1) within group (order by v) over () from (values (1)) t(v)
select rank(distinct 1) within group (order by v) from (values (1)) t(v)
select ntile(1) within group (order by v) from (values (1)) t(v)
-- Regular expressions: which of several matches it is.
select regexp_match('abcd', 'a|ab|abc'), regexp_match('ab', 'a?(ab)?'), regexp_match('abcd', '(a|ab)(c|bcd)(d*)'), regexp_replace('foobarbaz', 'foo|foobar', 'X')
select regexp_match('XY1234Z', 'Y*([0-9]{1,3})'), regexp_match('XY1234Z', 'Y*?([0-9]{1,3})'), regexp_match('abc01234xyz', '(.*)(\d+)(.*)'), regexp_match('abc01234xyz', '(.*?)(\d+)(.*)'), regexp_match('abc01234xyz', '(?:(.*?)(\d+)(.*)){1,1}')
select regexp_match('abba', '(a|b)*'), regexp_match('abc', '(a|ab|c|bc)*'), regexp_match('aXbXc', '(.*?)X(.*)'), regexp_match('aaa', 'a*?'), regexp_match('aaa', '(a*?)(a*)'), regexp_match('aaaa', '(a{1,2}?)(a+)'), regexp_match('ab', '(a|ab)(b?)')
select regexp_match('foo.bar.baz', '(.+)\.(.+)'), regexp_match('foo.bar.baz', '(.+?)\.(.+)'), regexp_match('key=value=x', '^([^=]*)=(.*)$'), regexp_match('abab', '(ab){2}'), regexp_match('abcabd', '(ab(c|d))+'), regexp_match('ac', '(a)(b)?(c)')
select regexp_matches('one two three', '\w+|\w+ \w+', 'g')
select regexp_split_to_array('a,b;c', ',|;|,b'), regexp_replace('aaa', '(a*?)$', 'x', 'g'), regexp_replace('abc', '(?=b)', '-'), regexp_replace('a1b22', '(?<=[a-z])\d+', '#', 'g'), regexp_replace('foobar', '(?<!o)b|(?!b)r', '_', 'g')
select 'foo bar' ~ '\mbar\M', 'foobar' ~ '\ybar', 'foobar' ~ '\Ybar', 'foo' ~ '\Afoo\Z', 'a b' ~ '[[:<:]]b[[:>:]]', E'a\bb' ~ 'a\bb', 'a\b' ~ 'a\Bb'
select 'é' ~ '\w', 'É' ~* 'é', 'K' ~* 'k', 'ſ' ~* 's', '٣' ~ '\d', 'ab' ~ '^[[:alpha:]]+$', 'a-b' ~ '^[\w-]+$', 'x]' ~ '[]x]{2}', '^' ~ '[\^]', 'b' ~ '[^a[:digit:]]', 'a' ~ '[\W]'
select E'a\nb' ~ '(?n)^b', E'a\nb' ~ '(?n)a.b', regexp_like(E'a\nb', '^b', 'w'), regexp_like(E'a\nb', 'a.b', 'p'), regexp_like('a b', 'a b', 'x'), regexp_like('a.b', 'a.b', 'q'), regexp_like('axb', 'a.b', 'q'), 'AB' ~ '(?i)ab', 'ab' ~* '(?c)AB', 'a.b' ~ '***=a.b'
select regexp_replace('A1', E'(?x) a # letter\n 1', 'z', 'i'), 'ab' ~ 'a(?#comment)b', 'a{x' ~ 'a{x', 'a}' ~ 'a}', E'\u00e9' ~ '\u00e9', 'A' ~ '\x41', E'\t' ~ '\t', E'\x01' ~ '\cA'
select 'ba' ~ '((?:){2}){3}a', regexp_match('ba', '((?:b{0}){2}){3}(a)'), regexp_match('xaabb', '(?:a*?b*)(b?)'), regexp_match('aab', '(?=(?=ab)a)(a)(?!(?!b))')
select regexp_match('', '(a|)*'), regexp_match('', '(a)*'), regexp_match('', '(a*?)*'), regexp_match('x', '(a|\y)*'), regexp_match('x', '(a|\Y)*'), regexp_match('abaac', 'a(?:()*?a*)*'), regexp_match('ab ab', '(|b()a{1})*?')
select 'a-b' ~ '^[\w\-]+$', '-' ~ '[a\-b]', 'b' ~ '[a-]', '-' ~ '[--a]', ']' ~ '[\]a]', 'é' ~ '[à-ü]', '𝄞' ~ '^.$', regexp_match('é𝄞b', '(.)(?=b)'), regexp_split_to_array('é𝄞b', '𝄞|')
select 'a' ~ '[a-b-c]'
select regexp_like('a', 'a', 'nq')
select 'a' ~ 'a**'
select 'a' ~ '*a'
select 'a' ~ '(a'
select 'a' ~ 'a)'
select 'a' ~ '[a'
select 'a' ~ 'a{2,1}'
select 'a' ~ 'a{300}'
select 'a' ~ '[b-a]'
select 'a' ~ '[[:foo:]]'
select 'a' ~ 'a\'
select 'a' ~ '\z'
select 'a' ~ '^*'
select 'a' ~ '(?z)a'
select 'a' ~ 'a{1'
select 'a' ~ 'a++'
select regexp_like('a', 'a', 'z')
select 'ab' ~ '()b|', 'b' ~ 'a|', regexp_match('b', 'a||b'), regexp_count('aXbX', '(?i)x'), regexp_instr('abcabc', 'c|ca', 1, 1, 1), regexp_substr('abcabc', 'c|ca'), 'a' ~ '(?:a){1,1}?$', regexp_match('aa', '(a)(?:){0}'), regexp_match('aab', '(a){0}b|(a+)b')
-- Addresses of hosts and networks.
select '10.1.2.3'::inet, '10.1.2.3/8'::inet, '10.0.0.0/8'::cidr, '10'::cidr, '192.168.1'::cidr, '172.16'::cidr, '::1'::inet, '2001:DB8:0:0::1/64'::inet, '::ffff:1.2.3.4'::inet, '::1.2.3.4'::inet, '2001:db8::/32'::cidr, '10.1/16'::inet
select '10.1.2.3'::inet::text, '10.1.2.3/8'::inet::text, '10.1.2.3/8'::inet::cidr, '10.0.0.0/8'::cidr::inet, '1.2.3.4'::inet || 'x', concat('1.2.3.4'::inet, 'x'), pg_typeof('1.2.3.4'::inet), pg_typeof(network('1.2.3.4/8'))
select '224'::cidr, '225'::cidr, '239'::cidr, '224.0'::cidr, '224.1'::cidr, '224.0.0.0'::cidr, '224/8'::cidr, '240'::cidr, '255'::cidr, '223'::cidr, '192'::cidr, '191'::cidr, '128'::cidr, '127'::cidr, '0'::cidr, '192.1'::cidr, '10.1.2.3'::cidr
select '10.'::cidr
select '10..1'::cidr
select '010.001'::cidr
select '0010'::cidr, '0010.00001.2.3'::inet, '010.1.2.3'::inet
select '1.2.3.4444'::inet
select '0x0a01'::cidr
select '10.1'::inet
select '10.1.2.256'::inet
select '10.1.2.3/33'::inet
select '10.1.2.3/8'::cidr
select '1.2.3.4.5'::inet
select 'g::1'::inet
select ''::inet
select 'x'::cidr
select '10.1.2.3/x'::inet
select '10.1.2.3'::inet = '10.1.2.3/32'::cidr, '10.0.0.0/8'::cidr < '10.0.0.0/9'::cidr, '10.1.2.3'::inet > '10.1.2.3/8', '1.2.3.4'::inet < '::1'::inet, '10.1.2.3'::inet in ('10.1.2.3', '10.1.2.4'), '10.0.0.0/8'::cidr between '9.0.0.0/8' and '11.0.0.0/8'
select '10.1.2.3'::inet << '10.0.0.0/8'::cidr, '10.0.0.0/8'::cidr << '10.0.0.0/8', '10.0.0.0/8'::cidr <<= '10.0.0.0/8'::inet, '10.0.0.0/8'::cidr >> '10.1.2.3', '10.0.0.0/8'::cidr >>= '11.0.0.0/8'::cidr, '10.0.0.0/8'::cidr && '10.1.0.0/16'::cidr, '10.0.0.0/8'::cidr && '::/0', '10.1.2.3' << '10.0.0.0/8'::cidr
select '10.1.2.3'::inet & '255.255.0.0'::inet, '10.1.2.3'::inet | '0.0.255.255', ~ '10.1.2.3/8'::inet, '10.1.2.3/8'::inet + 5, 5 + '10.1.2.3'::inet, '10.1.2.3'::inet - 4, '10.1.2.3'::inet - '10.1.2.0'::inet, '10.1.2.0'::inet - '10.1.2.3'::inet, '::5'::inet - '::1'
select '255.255.255.255'::inet + 1
select '1.2.3.4'::inet & '::1'::inet
select '1.2.3.4'::inet - '::1'::inet
select '::'::inet - 'ffff::'::inet
select '1.2.3.4'::inet * 2
select '1.2.3.4'::inet + '1.2.3.4'::inet
select 1 - '1.2.3.4'::inet
select '1.2.3.4'::inet = 5
select host('10.1.2.3/8'), masklen('10.1.2.3/8'::cidr::inet)
select host('10.1.2.3/8'::inet), masklen('10.1.2.3/8'::inet), network('10.1.2.3/8'::inet), netmask('10.1.2.3/8'::inet), hostmask('10.1.2.3/8'::inet), broadcast('10.1.2.3/8'::inet), family('::1'::inet), family('1.2.3.4'::inet), set_masklen('10.1.2.3/8'::inet, 16), set_masklen('10.1.0.0/16'::cidr, 8), set_masklen('10.1.2.3/8'::inet, -1), netmask('::1'::inet), broadcast('::1/64'::inet)
select inet_merge('10.1.2.3/24'::inet, '10.1.5.3/24'::inet), inet_same_family('1.2.3.4'::inet, '::1'::inet), inet_merge('::1'::inet, '::1'::inet), hostmask('10.0.0.0/0'::inet), network('::1/0'::inet)
select inet_merge('1.2.3.4'::inet, '::1'::inet)
select set_masklen('1.2.3.4'::inet, 33)
create table addresses (a inet primary key, n cidr unique, l inet[])
insert into addresses values ('10.1.2.3', '10.0.0.0/8', '{1.2.3.4,::1}'), ('10.1.2.3/8', '10.1.0.0/16', array['5.6.7.8'::inet]), ('::1', '::/0', null), ('10.1.2.0/24', null, '{}') returning a, n
insert into addresses values ('10.1.2.3/32')
select a, n, l from addresses order by a desc
select a from addresses where a = '10.1.2.3' or n = '10.1.0.0/16' order by a desc
select a from addresses where a >= '10.1.2.0/24' and a < '::' order by a
select a from addresses where a <<= '10.0.0.0/8' order by a
select n, count(*), max(a), min(a) from addresses group by n order by n nulls first limit 2
select l[1], '5.6.7.8' = any(l), array_agg(a) over (order by a rows unbounded preceding) from addresses where n is not null order by a
update addresses set a = a + 1, n = a where a = '::1' returning a, n
select to_json(a), row_to_json(r) from (select a from addresses where a << '10.0.0.0/8' order by a limit 1) r
select typname, typlen, typcategory, typispreferred, typarray, typinput from pg_type where typname in ('inet', 'cidr') order by 1
select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'addresses'::regclass and attnum > 0 order by attnum
drop table addresses
