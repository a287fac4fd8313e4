//! The statements of pgbench and sysbench, as they send them.

use crate::support::{Client, Kept, check, database};

/// The tables of pgbench as `pgbench -i` makes them, with one branch.
pub(crate) fn pgbench(client: &mut Client) {
    client.run("drop table if exists pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers");
    client.run(
        "create table pgbench_history(tid int,bid int,aid    int,delta int,mtime timestamp,filler char(22))",
    );
    client.run("create table pgbench_tellers(tid int not null,bid int,tbalance int,filler char(84)) with (fillfactor=100)");
    client.run("create table pgbench_accounts(aid    int not null,bid int,abalance int,filler char(84)) with (fillfactor=100)");
    client.run(
        "create table pgbench_branches(bid int not null,bbalance int,filler char(88)) with (fillfactor=100)",
    );
    client.run("begin");
    client.run("truncate table pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers");
    client.run("insert into pgbench_branches(bid,bbalance) values(1,0)");
    for teller in 1..=10 {
        client.run(&format!("insert into pgbench_tellers(tid,bid,tbalance) values ({teller},1,0)"));
    }
    let mut kept = Kept::default();
    for first in (1..=1000).step_by(100) {
        let lines: String = (first..first + 100).map(|aid| format!("{aid}\t1\t0\t\n")).collect();
        kept.data.push_back(lines.into_bytes());
    }
    let copied = client.answer_into("copy pgbench_accounts from stdin with (freeze on)", &mut kept);
    assert_eq!(copied, "COPY 1000");
    client.run("commit");
    client.run("vacuum analyze pgbench_branches");
    client.run("vacuum analyze pgbench_accounts");
    client.run("alter table pgbench_branches add primary key (bid)");
    client.run("alter table pgbench_tellers add primary key (tid)");
    client.run("alter table pgbench_accounts add primary key (aid)");
}

#[test]
fn pgbench_finds_its_tables_and_runs_its_scripts() {
    let database = database(2);
    let mut client = Client::new(&database);
    pgbench(&mut client);
    check(
        &mut client,
        &[
            ("select count(*) from pgbench_branches", "1"),
            (
                "select o.n, p.partstrat, pg_catalog.count(i.inhparent) \
             from pg_catalog.pg_class as c join pg_catalog.pg_namespace as n on (n.oid = c.relnamespace) \
             cross join lateral (select pg_catalog.array_position(pg_catalog.current_schemas(true), n.nspname)) as o(n) \
             left join pg_catalog.pg_partitioned_table as p on (p.partrelid = c.oid) \
             left join pg_catalog.pg_inherits as i on (c.oid = i.inhparent) \
             where c.relname = 'pgbench_accounts' and o.n is not null \
             group by 1, 2 order by 1 asc limit 1",
                "2|NULL|0",
            ),
            (
                "EXPLAIN UPDATE pgbench_accounts SET abalance = abalance + 5 WHERE aid = 7",
                "Route: the owner of the key / Update on pgbench_accounts /   Look-up by primary key on pgbench_accounts",
            ),
            (
                "EXPLAIN SELECT abalance FROM pgbench_accounts WHERE aid = 7",
                "Route: the owner of the key / Look-up by primary key on pgbench_accounts",
            ),
            ("BEGIN", "BEGIN"),
            ("UPDATE pgbench_accounts SET abalance = abalance + 5 WHERE aid = 7", "UPDATE 1"),
            ("SELECT abalance FROM pgbench_accounts WHERE aid = 7", "5"),
            ("UPDATE pgbench_tellers SET tbalance = tbalance + 5 WHERE tid = 3", "UPDATE 1"),
            ("UPDATE pgbench_branches SET bbalance = bbalance + 5 WHERE bid = 1", "UPDATE 1"),
            (
                "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (3, 1, 7, 5, CURRENT_TIMESTAMP)",
                "INSERT 0 1",
            ),
            ("END", "COMMIT"),
            ("SELECT sum(abalance), count(*), min(aid), max(aid) FROM pgbench_accounts", "5|1000|1|1000"),
            ("SELECT tid, bid, aid, delta, filler FROM pgbench_history", "3|1|7|5|NULL"),
            ("SELECT filler FROM pgbench_accounts WHERE aid = 1", &" ".repeat(84)),
        ],
    );
}

#[test]
fn sysbench_runs_its_statements() {
    let database = database(2);
    let mut client = Client::new(&database);
    client.run(
        "CREATE TABLE sbtest1( id SERIAL, k INTEGER DEFAULT '0' NOT NULL, c CHAR(120) DEFAULT '' NOT NULL, \
         pad CHAR(60) DEFAULT '' NOT NULL, PRIMARY KEY (id) )",
    );
    let values: Vec<String> = (1..=100).map(|k| format!("({}, 'c{:03}', 'p')", k % 10, 100 - k)).collect();
    client.run(&format!("INSERT INTO sbtest1(k, c, pad) VALUES {}", values.join(", ")));
    client.run("CREATE INDEX k_1 ON sbtest1(k)");
    check(
        &mut client,
        &[
            ("SELECT count(*), min(id), max(id) FROM sbtest1", "100|1|100"),
            ("SELECT c FROM sbtest1 WHERE id=50", &format!("{:120}", "c050")),
            ("SELECT trim(c) FROM sbtest1 WHERE id BETWEEN 10 AND 12", "c090 / c089 / c088"),
            ("SELECT SUM(k) FROM sbtest1 WHERE id BETWEEN 10 AND 19", "45"),
            ("SELECT trim(c) FROM sbtest1 WHERE id BETWEEN 10 AND 12 ORDER BY c", "c088 / c089 / c090"),
            (
                "SELECT DISTINCT trim(c) FROM sbtest1 WHERE id BETWEEN 10 AND 12 ORDER BY 1",
                "c088 / c089 / c090",
            ),
            (
                "EXPLAIN SELECT DISTINCT c FROM sbtest1 WHERE id BETWEEN 10 AND 12 ORDER BY c",
                "Route: the owner of the key / Sort /   Distinct /     Scan of a range of the primary key on sbtest1, filtered",
            ),
            ("UPDATE sbtest1 SET k=k+1 WHERE id=50", "UPDATE 1"),
            ("SELECT k FROM sbtest1 WHERE id=50", "1"),
            ("UPDATE sbtest1 SET c='x' WHERE id=50", "UPDATE 1"),
            ("DELETE FROM sbtest1 WHERE id=50", "DELETE 1"),
            ("INSERT INTO sbtest1 (id, k, c, pad) VALUES (50, 5, 'c', 'p')", "INSERT 0 1"),
            ("SELECT id FROM sbtest1 WHERE k = 3 ORDER BY id LIMIT 2", "3 / 13"),
            (
                "EXPLAIN SELECT id FROM sbtest1 WHERE k = 3",
                "Route: the owner of the key / Scan of a range of index k_1 on sbtest1, filtered",
            ),
            ("SELECT 1", "1"),
        ],
    );
}

#[test]
fn statements_that_differ_in_literals_share_a_plan_and_are_counted_together() {
    let database = database(2);
    let mut client = Client::new(&database);
    client
        .run("CREATE TABLE t(id int PRIMARY KEY, n bigint, price numeric(10,2), name varchar(5), day date)");
    client.run("INSERT INTO t VALUES (1, 10, 1.5, 'a', '2020-01-01'), (2, 3000000000, 2, 'b''c', NULL)");
    check(
        &mut client,
        &[
            ("INSERT INTO t VALUES (3, 5, 1.005, 'long name', '2020-01-01')", "22001"),
            ("INSERT INTO t VALUES (3, 5, 1.005, 'e', '2020-13-01')", "22008"),
            ("INSERT INTO t VALUES (3, -5, 1.005, 'e', '2020-02-29')", "INSERT 0 1"),
            ("INSERT INTO t VALUES (3, -5, 1.005, 'e', '2020-02-29')", "23505"),
            ("SELECT name FROM t WHERE id = 1", "a"),
            ("SELECT name FROM t WHERE id = 2", "b'c"),
            ("SELECT name FROM t WHERE id = '3'", "e"),
            ("SELECT name FROM t WHERE id = 3000000000", ""),
            ("SELECT name FROM t WHERE id = 1.0", "a"),
            ("SELECT name FROM t WHERE id = 'x'", "22P02"),
            ("SELECT price FROM t WHERE day = '2020-02-29' AND n < 0 AND name <> 'x'", "1.01"),
            ("UPDATE t SET n = n + -3 WHERE id = 1 RETURNING n, n * 2", "7|14"),
            ("UPDATE t SET n = n + -4 WHERE id = 1 RETURNING n, n * 2", "3|6"),
            ("SELECT id = 1, count(*) FROM t GROUP BY id = 1 ORDER BY 2", "t|1 / f|2"),
            ("SELECT id = 2, count(*) FROM t GROUP BY id = 2 ORDER BY 2", "t|1 / f|2"),
            ("SELECT nothing FROM t WHERE id = 1", "42703"),
            ("DELETE FROM t WHERE id = 4", "DELETE 0"),
            (
                "EXPLAIN SELECT name FROM t WHERE id = 1",
                "Route: the owner of the key / Look-up by primary key on t",
            ),
            (
                "SELECT calls, rows, total_exec_time > 0 FROM pg_stat_statements WHERE query = 'SELECT name FROM t WHERE id = $1' ORDER BY calls DESC",
                "5|4|t",
            ),
            ("SELECT rows FROM pg_stat_statements WHERE query LIKE 'UPDATE t %'", "2"),
        ],
    );
    // Another table of the name, and an open transaction.
    client.run(
        "DROP TABLE t; CREATE TABLE t(name text, id text PRIMARY KEY); INSERT INTO t VALUES ('new', '1')",
    );
    assert_eq!(client.rows("SELECT name FROM t WHERE id = '1'"), "new");
    client.fails("SELECT name FROM t WHERE id = 1", "42883");
    client.run("BEGIN; UPDATE t SET name = 'newer' WHERE id = '1'");
    assert_eq!(client.rows("SELECT name FROM t WHERE id = '1'"), "newer");
    client.fails("SELECT 1 / 0 FROM t WHERE id = '1'", "22012");
    client.fails("SELECT name FROM t WHERE id = '1'", "25P02");
    client.run("ROLLBACK");
    assert_eq!(client.rows("SELECT name FROM t WHERE id = '1'"), "new");
}

#[test]
fn explain_analyze_runs_the_statement_and_tells_rows() {
    let database = database(2);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE t(id int PRIMARY KEY, v int); CREATE TABLE u(id int PRIMARY KEY, t int)");
    client.run("INSERT INTO t SELECT n, n % 3 FROM generate_series(1, 30) n; INSERT INTO u VALUES (1, 5), (2, 6), (3, 99)");
    let explained = |client: &mut Client, text: &str| -> Vec<String> {
        let rows = client.rows(text);
        // Times are left out.
        let untimed = rows.lines().map(|line| match line.split_once("time=") {
            Some((before, after)) => {
                format!("{before}{}", after.split_once(", ").map_or("", |(_, rest)| rest))
            }
            None => line.split(" Time: ").next().unwrap_or("").to_owned(),
        });
        untimed.collect()
    };
    assert_eq!(
        explained(
            &mut client,
            "EXPLAIN ANALYZE SELECT * FROM u JOIN t ON t.id = u.t WHERE u.id < 3 ORDER BY t.v"
        ),
        [
            "Route: the owner of the key",
            "Sort (actual rows=2, loops=1)",
            "  Look-up inner join (actual rows=2, loops=1)",
            "    Scan of a range of the primary key on u, filtered (actual rows=2, loops=1)",
            "    Look-up by primary key on t (actual rows=2, loops=2)",
            "Planning",
            "Execution",
        ]
    );
    assert_eq!(
        explained(&mut client, "EXPLAIN (ANALYZE, COSTS OFF, FORMAT TEXT) UPDATE t SET v = 7 WHERE id = 1")
            [1..3],
        ["Update on t", "  Look-up by primary key on t (actual rows=1, loops=1)"]
    );
    assert_eq!(client.rows("SELECT v FROM t WHERE id = 1"), "7");
    client.run("BEGIN; EXPLAIN ANALYZE DELETE FROM t; ROLLBACK");
    assert_eq!(client.rows("SELECT count(*) FROM t"), "30");
    client.fails("EXPLAIN (FORMAT JSON) SELECT 1", "0A000");
    client.fails("EXPLAIN (NOTHING) SELECT 1", "42601");
    client.fails("EXPLAIN ANALYZE SELECT 1 / 0", "22012");
}
