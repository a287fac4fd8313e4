//! Several connections on the same rows: waits, deadlocks, cancellation, tables that are replaced.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use atrapos_sql::SqlDatabase;

use crate::support::{Client, database};

fn filled() -> Arc<SqlDatabase> {
    let database = database(2);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE t(a int PRIMARY KEY, v int)");
    client.run("INSERT INTO t VALUES (1, 0), (2, 0)");
    database
}

#[test]
fn a_writer_waits_for_another() {
    let database = filled();
    let mut one = Client::numbered(&database, 1);
    one.run("BEGIN");
    one.run("UPDATE t SET v = v + 1 WHERE a = 1");
    let waiting = {
        let database = Arc::clone(&database);
        thread::spawn(move || {
            let mut other = Client::numbered(&database, 2);
            other.answer("UPDATE t SET v = v * 10 WHERE a = 1 RETURNING v")
        })
    };
    one.run("UPDATE t SET v = v + 1 WHERE a = 1");
    one.run("COMMIT");
    let answer = waiting.join().expect("it ends");
    assert!(answer.contains("\n20\n") || answer.contains("\n0\n"), "{answer}");
    assert_eq!(one.rows("SELECT v > 1 FROM t WHERE a = 1"), "t");
}

#[test]
fn one_of_a_deadlock_gets_40001() {
    let database = filled();
    let barrier = Arc::new(Barrier::new(2));
    let client = |first: u32, second: u32| {
        let (database, barrier) = (Arc::clone(&database), Arc::clone(&barrier));
        thread::spawn(move || {
            let mut client = Client::numbered(&database, first as i32);
            client.run("BEGIN");
            client.run(&format!("UPDATE t SET v = v + 1 WHERE a = {first}"));
            barrier.wait();
            let answer = client.answer(&format!("UPDATE t SET v = v + 1 WHERE a = {second}"));
            let end = client.answer("COMMIT");
            (answer, end)
        })
    };
    let (one, other) = (client(1, 2), client(2, 1));
    let outcomes = [one.join().expect("it ends"), other.join().expect("it ends")];
    let victims =
        outcomes.iter().filter(|(answer, end)| answer.contains("ERROR 40001") && end == "ROLLBACK").count();
    let winners = outcomes.iter().filter(|(answer, end)| answer == "UPDATE 1" && end == "COMMIT").count();
    assert_eq!((victims, winners), (1, 1), "{outcomes:?}");
    let mut client = Client::new(&database);
    assert_eq!(client.rows("SELECT v FROM t"), "1\n1");
}

#[test]
fn increments_of_many_connections_add_up() {
    let database = filled();
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let database = Arc::clone(&database);
            thread::spawn(move || {
                let mut client = Client::numbered(&database, number);
                for _ in 0..50 {
                    client.run("UPDATE t SET v = v + 1 WHERE a = 1");
                    // A read and a write in one statement, of rows on two owners.
                    client.run("UPDATE t SET v = (SELECT count(*) FROM t) + v - 1 WHERE a = 2");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
    let mut client = Client::new(&database);
    assert_eq!(client.rows("SELECT v FROM t"), "200\n200");
}

#[test]
fn a_failed_transaction_and_one_whose_client_is_gone_hold_no_locks() {
    let database = filled();
    let mut one = Client::numbered(&database, 1);
    one.run("BEGIN");
    one.run("UPDATE t SET v = 5 WHERE a = 1");
    one.fails("SELECT 1 / 0", "22012");
    let mut other = Client::numbered(&database, 2);
    other.run("UPDATE t SET v = 6 WHERE a = 1");
    one.run("ROLLBACK");
    one.run("BEGIN");
    one.run("UPDATE t SET v = 7 WHERE a = 2");
    drop(one);
    other.run("UPDATE t SET v = 8 WHERE a = 2");
    assert_eq!(other.rows("SELECT v FROM t"), "6\n8");
}

#[test]
fn a_statement_that_waits_is_cancelled() {
    let database = filled();
    let mut one = Client::numbered(&database, 1);
    one.run("BEGIN");
    one.run("UPDATE t SET v = 5 WHERE a = 1");
    let mut other = Client::numbered(&database, 2);
    let cancel = other.connection.cancel_handle();
    let waiting = thread::spawn(move || (other.answer("UPDATE t SET v = 6 WHERE a = 1"), other));
    while !waiting.is_finished() {
        // A request that comes before the statement does counts for nothing.
        cancel.cancel();
        thread::yield_now();
    }
    let (answer, mut other) = waiting.join().expect("it ends");
    assert!(answer.contains("ERROR 57014"), "{answer}");
    one.run("COMMIT");
    assert_eq!(other.rows("SELECT v FROM t WHERE a = 1"), "5");
}

#[test]
fn a_long_statement_on_no_table_is_cancelled() {
    let database = database(1);
    let mut client = Client::new(&database);
    let cancel = client.connection.cancel_handle();
    let running = thread::spawn(move || {
        client.answer(
            "SELECT count(*) FROM generate_series(1, 100000) a CROSS JOIN generate_series(1, 100000) b",
        )
    });
    while !running.is_finished() {
        cancel.cancel();
        thread::yield_now();
    }
    let answer = running.join().expect("it ends");
    assert!(answer.contains("ERROR 57014"), "{answer}");
}

#[test]
fn a_search_for_a_regular_expression_is_cancelled() {
    let database = database(1);
    let mut client = Client::new(&database);
    let search = "SELECT repeat('a', 1000000) ~ '(?=a*b)(?=a*c)a'";
    client.run("SET statement_timeout = '50ms'");
    client.fails(search, "57014");
    client.run("RESET statement_timeout");
    let cancel = client.connection.cancel_handle();
    let running = thread::spawn(move || client.answer(search));
    while !running.is_finished() {
        cancel.cancel();
        thread::yield_now();
    }
    let answer = running.join().expect("it ends");
    assert!(answer.contains("ERROR 57014"), "{answer}");
}

#[test]
fn rows_that_come_while_a_key_is_added_are_not_lost() {
    let database = database(2);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE h(a int NOT NULL, v int)");
    let writers: Vec<_> = (0..2)
        .map(|number| {
            let database = Arc::clone(&database);
            thread::spawn(move || {
                let mut client = Client::numbered(&database, number);
                for a in 0..200 {
                    client.run(&format!("INSERT INTO h VALUES ({}, 0)", a * 2 + number));
                }
            })
        })
        .collect();
    client.run("ALTER TABLE h ADD PRIMARY KEY (a)");
    writers.into_iter().for_each(|writer| writer.join().expect("it ends"));
    assert_eq!(client.rows("SELECT count(*), count(DISTINCT a) FROM h"), "400|400");
}

/// Takes jobs one after another, until none is left, and returns their ids.
fn take_jobs(mut client: Client) -> Vec<String> {
    let mut taken = Vec::new();
    loop {
        client.run("BEGIN");
        let next = "SELECT id FROM jobs WHERE NOT done ORDER BY rank LIMIT 1 FOR UPDATE SKIP LOCKED";
        let id = client.rows(next);
        if id.is_empty() {
            client.run("COMMIT");
            return taken;
        }
        assert_eq!(client.answer(&format!("UPDATE jobs SET done = true WHERE id = {id}")), "UPDATE 1");
        client.run("COMMIT");
        taken.push(id);
    }
}

#[test]
fn locked_rows_are_refused_or_left_out() {
    let database = database(2);
    let (mut one, mut other) = (Client::numbered(&database, 1), Client::numbered(&database, 2));
    one.run("CREATE TABLE jobs(id int PRIMARY KEY, kind text, rank int, done boolean DEFAULT false)");
    one.run("CREATE INDEX jobs_kind ON jobs(kind)");
    one.run("INSERT INTO jobs SELECT n, CASE WHEN n % 2 = 0 THEN 'even' ELSE 'odd' END, 100 - n FROM generate_series(1, 20) n");
    one.run("BEGIN; UPDATE jobs SET done = true WHERE id = 20");
    // Keys, ranges, an index; the best row in an order, of which only as many are locked as are wanted.
    for (query, state_or_rows) in [
        ("SELECT id FROM jobs WHERE id = 20 FOR UPDATE NOWAIT", "ERROR 55P03"),
        ("SELECT id FROM jobs WHERE id = 20 FOR SHARE NOWAIT", "ERROR 55P03"),
        ("SELECT id FROM jobs WHERE id > 15 FOR UPDATE NOWAIT", "ERROR 55P03"),
        ("SELECT id FROM jobs WHERE kind = 'even' FOR UPDATE NOWAIT", "ERROR 55P03"),
        ("SELECT id FROM jobs WHERE id IN (19, 20) FOR UPDATE NOWAIT", "ERROR 55P03"),
        ("SELECT id FROM jobs WHERE id < 3 FOR UPDATE NOWAIT", "[id]\n1\n2\nSELECT 2"),
        ("SELECT id FROM jobs WHERE kind = 'odd' AND id > 15 FOR SHARE NOWAIT", "[id]\n17\n19\nSELECT 2"),
        ("SELECT id FROM jobs WHERE id = 20 FOR UPDATE SKIP LOCKED", "[id]\nSELECT 0"),
        ("SELECT id FROM jobs WHERE id IN (19, 20) FOR UPDATE SKIP LOCKED", "[id]\n19\nSELECT 1"),
        ("SELECT id FROM jobs WHERE id > 17 FOR SHARE SKIP LOCKED", "[id]\n18\n19\nSELECT 2"),
        (
            "SELECT id FROM jobs WHERE kind = 'even' AND id > 15 FOR UPDATE SKIP LOCKED",
            "[id]\n16\n18\nSELECT 2",
        ),
        (
            "SELECT id, rank FROM jobs ORDER BY rank LIMIT 2 FOR UPDATE SKIP LOCKED",
            "[id|rank]\n19|81\n18|82\nSELECT 2",
        ),
    ] {
        // Locks of the statement before may still be on their way back from another worker.
        let mut answer = other.answer(query);
        for _ in 0..10_000 {
            if answer.starts_with(state_or_rows) {
                break;
            }
            thread::yield_now();
            answer = other.answer(query);
        }
        assert!(answer.starts_with(state_or_rows), "{query}: {answer}");
    }
    one.run("ROLLBACK");
    other.fails("SELECT count(*) FROM jobs FOR UPDATE SKIP LOCKED", "0A000");

    // A queue: clients take jobs side by side, each job once.
    let taken: Vec<String> = thread::scope(|scope| {
        let clients: Vec<_> = (3..7)
            .map(|number| {
                let database = &database;
                scope.spawn(move || take_jobs(Client::numbered(database, number)))
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().expect("it ends")).collect()
    });
    assert_eq!(other.rows("SELECT count(*) FROM jobs WHERE done"), "20");
    assert_eq!(taken.len(), 20, "{taken:?}");
}

#[test]
fn advisory_locks_are_waited_for_and_go_with_their_owners() {
    let database = filled();
    let (mut one, mut other) = (Client::numbered(&database, 1), Client::numbered(&database, 2));
    one.run("SELECT pg_advisory_lock(7)");
    assert_eq!(other.rows("SELECT pg_try_advisory_lock(7), pg_try_advisory_lock(8)"), "f|t");
    // In an open transaction, and in a statement alone: both wait, and have the lock once.
    other.run("BEGIN; UPDATE t SET v = 5 WHERE a = 1");
    let waiting = thread::spawn(move || {
        other.run("SELECT pg_advisory_xact_lock(7)");
        other.run("COMMIT; SELECT pg_advisory_lock(9), pg_advisory_lock(7)");
        assert_eq!(
            other.rows("SELECT pg_advisory_unlock(7), pg_advisory_unlock(7), pg_advisory_unlock(9)"),
            "t|f|t"
        );
        other
    });
    while one.rows("SELECT count(*) FROM pg_stat_activity WHERE pid = 2 AND state = 'active' AND query LIKE '%xact_lock(7)'")
        != "1"
    {
        thread::yield_now();
    }
    one.run("SELECT pg_advisory_unlock_all()");
    let other = waiting.join().expect("it ends");
    assert_eq!(one.rows("SELECT pid, objid FROM pg_locks"), "2|8");
    drop(other);
    assert_eq!(one.rows("SELECT count(*) FROM pg_locks"), "0");
    assert_eq!(one.rows("SELECT pid, state FROM pg_stat_activity"), "1|active");
    // A lock that is waited for in vain.
    let mut third = Client::numbered(&database, 3);
    third.run("SELECT pg_advisory_lock(1)");
    one.run("SET statement_timeout = '50ms'");
    let cancel = one.connection.cancel_handle();
    let asking = thread::spawn(move || {
        thread::sleep(std::time::Duration::from_millis(100));
        cancel.cancel();
    });
    one.fails("SELECT pg_advisory_lock(1)", "57014");
    asking.join().expect("it ends");
}

#[test]
fn locks_and_waits_are_told_of_with_their_sessions() {
    let database = filled();
    let (mut one, mut other) = (Client::numbered(&database, 1), Client::numbered(&database, 2));
    one.run("BEGIN; UPDATE t SET v = 5 WHERE a = 1; SELECT pg_advisory_xact_lock(3)");
    let held = "SELECT pid, locktype, mode, granted, key, waitstart IS NULL FROM pg_locks \
         WHERE relation = 't'::regclass AND pid = 1";
    assert_eq!(one.rows(held), "1|tuple|ExclusiveLock|t|1|t");
    let waiting = thread::spawn(move || {
        other.run("UPDATE t SET v = 6 WHERE a = 1");
        other.run("SELECT pg_advisory_lock(3)");
        other
    });
    let wait = |kind: &str| {
        format!(
            "SELECT count(*) FROM pg_stat_activity WHERE pid = 2 AND wait_event_type = 'Lock' AND wait_event = '{kind}'"
        )
    };
    while one.rows(&wait("tuple")) != "1" {
        thread::yield_now();
    }
    // Also where the catalog is joined with a table, in a transaction that runs on a worker.
    let waits = "SELECT l.pid, l.mode, l.granted, l.waitstart >= now(), pg_blocking_pids(l.pid) FROM pg_locks l, t \
         WHERE t.a = 1 AND l.relation = 't'::regclass AND NOT l.granted";
    assert_eq!(one.rows(waits), "2|ExclusiveLock|f|t|{1}");
    assert_eq!(one.rows("SELECT pg_blocking_pids(1), pg_blocking_pids(2)"), "{}|{1}");
    assert_eq!(one.rows("SELECT wait_event FROM pg_stat_activity WHERE pid = 1"), "NULL");
    one.run("SELECT pg_advisory_lock(3)");
    one.run("COMMIT");
    while one.rows(&wait("advisory")) != "1" {
        thread::yield_now();
    }
    assert_eq!(one.rows("SELECT pid, granted FROM pg_locks ORDER BY pid"), "1|t\n2|f");
    assert_eq!(one.rows("SELECT pg_blocking_pids(2)"), "{1}");
    one.run("SELECT pg_advisory_unlock_all()");
    let mut other = waiting.join().expect("it ends");
    let idle = "SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE pid = 1";
    assert_eq!(other.rows(idle), "Client|ClientRead");
    other.run("SELECT pg_advisory_unlock_all()");
    assert_eq!(other.rows("SELECT count(*) FROM pg_locks"), "0");
    // A range, of a scan.
    one.run("BEGIN; SELECT count(*) FROM t");
    let ranges = "SELECT DISTINCT locktype, mode FROM pg_locks WHERE pid = 1";
    assert_eq!(other.rows(ranges), "relation|ShareLock");
}

/// Runs a query, and others as long as it runs. Returns their number.
fn statements_beside(database: &Arc<SqlDatabase>, client: &mut Client, query: &str) -> u32 {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            Client::numbered(database, 2).run(query);
            ended.store(true, Ordering::SeqCst);
        });
        let is_running = "SELECT count(*) FROM pg_stat_activity WHERE pid = 2 AND state = 'active'";
        while client.rows(is_running) != "1" && !ended.load(Ordering::SeqCst) {}
        let mut others = 0;
        while !ended.load(Ordering::SeqCst) {
            client.run("SELECT v FROM wide WHERE id = 1");
            others += 1;
        }
        others
    })
}

#[test]
fn a_long_query_lets_others_run_between_its_slices() {
    let database = database(1);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE wide(id int PRIMARY KEY, v int, w text)");
    client.run("INSERT INTO wide SELECT n, n % 7, 'text' FROM generate_series(1, 60000) n");
    for query in [
        // On the owner of the rows, where a statement runs, and both ways.
        "SELECT sum(v) FROM wide WHERE w LIKE '%x%'",
        "SELECT a.v, count(*) FROM wide a JOIN wide b ON a.id = b.id GROUP BY a.v",
    ] {
        // On a busy machine the client may have no core meanwhile; without slices it would never have run so many.
        let is_sliced = (0..20).any(|_| statements_beside(&database, &mut client, query) >= 4);
        assert!(is_sliced, "at most three statements ran beside {query}");
    }
    // A slice ends in the middle of the rows; none is lost or there twice.
    assert_eq!(
        client.rows("SELECT count(*), sum(id), count(DISTINCT id) FROM wide"),
        "60000|1800030000|60000"
    );
    assert_eq!(client.rows("SELECT id FROM wide WHERE v = 6 ORDER BY id DESC LIMIT 2"), "59996\n59989");
}

#[test]
fn statements_sleep_until_they_are_cancelled() {
    let database = filled();
    let (mut one, mut other) = (Client::numbered(&database, 1), Client::numbered(&database, 2));
    assert_eq!(one.rows("SELECT pg_sleep(0.001), 1, pg_sleep(-1), pg_sleep(NULL) IS NULL"), "|1||t");
    assert_eq!(one.rows("SELECT pg_sleep_for('1 millisecond'), pg_sleep_until(now())"), "|");
    let between = "SELECT b - a >= interval '10 milliseconds', c - b >= interval '20 milliseconds'
        FROM (SELECT clock_timestamp() AS a, pg_sleep(0.01), clock_timestamp() AS b, pg_sleep(0.02), clock_timestamp() AS c) AS moments";
    assert_eq!(one.rows(between), "t|t");
    // Where no expression can wait, it sleeps behind it.
    let later = "SELECT clock_timestamp() - now() >= interval '30 milliseconds'";
    one.run("BEGIN");
    assert_eq!(one.rows("SELECT count(*) FROM generate_series(1, 3) WHERE pg_sleep(0.01)::text = ''"), "3");
    assert_eq!(one.rows(later), "t");
    one.run("COMMIT");
    let handle = one.connection.cancel_handle();
    for statement in ["SELECT pg_sleep(100000)", "UPDATE t SET v = 1 WHERE pg_sleep(100000)::text = ''"] {
        let sleeping = thread::spawn(move || {
            one.fails(statement, "57014");
            one
        });
        let asleep = "SELECT count(*) FROM pg_stat_activity WHERE pid = 1 AND wait_event = 'PgSleep' AND wait_event_type = 'Timeout'";
        while other.rows(asleep) != "1" {
            thread::yield_now();
        }
        assert_eq!(handle.waiting(), None, "it waits for no lock");
        assert_eq!(other.rows("SELECT pg_cancel_backend(1)"), "t");
        one = sleeping.join().expect("it ends");
        assert_eq!(other.rows(asleep), "0");
    }
}

#[test]
fn what_cannot_wait_where_it_is_called_says_so() {
    let database = filled();
    let mut client = Client::numbered(&database, 1);
    client.run("CREATE SEQUENCE numbers");
    client.fails("SELECT count(*) FROM t WHERE nextval('numbers') > 0", "0A000");
    client.fails("SELECT count(*) FROM t WHERE setval('numbers', 7) > 0", "0A000");
    let mut other = Client::numbered(&database, 2);
    other.run("SELECT pg_advisory_lock(1)");
    client.fails("SELECT count(*) FROM t WHERE pg_advisory_lock(1)::text = ''", "0A000");
    assert_eq!(client.rows("SELECT nextval('numbers')"), "1");
}
