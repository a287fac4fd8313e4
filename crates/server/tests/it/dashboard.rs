//! The dashboard: its JSON, and the page in a browser.
//!
//! The tests in a browser are ignored where there is none: `scripts/test` installs it and runs them. They leave pictures of the page in
//! `target/tmp/dashboard`, for people to look at.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use atrapos::{Adaptation, Builder, Database, Schema, SchemeChange, Table, WorkerId, row};
use atrapos_topology::Machine;
use serde_json::Value;

use crate::browser::Page;
use crate::http::get;
use crate::raw::{Raw, Running, message, tags};

row! { #[derive(Clone, Debug)] pub(crate) struct Account { pub(crate) balance: i64 } }

pub(crate) struct Accounts;

impl Table for Accounts {
    type Key = u64;
    type Row = Account;
    const NAME: &'static str = "accounts";
}

const ROWS: u64 = 1000;
const TOKEN: &str = "the-token-of-this-test";

/// A database that decides often.
fn accounts() -> Builder {
    let mut adaptation = Adaptation::default();
    adaptation.controller.interval = Duration::from_millis(200);
    adaptation.controller.interval_max = Duration::from_millis(400);
    let schema = Schema::new().table::<Accounts>().split_evenly("accounts", 0, ROWS - 1);
    Database::builder(schema).adaptation(adaptation).workers(2)
}

fn start(builder: Builder) -> Running {
    Running::on(builder, None, |options| {
        options.http = Some("127.0.0.1:0".parse().expect("an address"));
        options.http_token = Some(TOKEN.to_owned());
    })
}

/// Returns the JSON of a path.
async fn json(running: &Running, path: &str) -> Value {
    let request = format!("GET {path} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    let answer = get(running, &request).await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("application/json"), "{head}");
    serde_json::from_str(body).expect("JSON")
}

#[tokio::test]
async fn files_are_for_everybody_and_numbers_for_those_with_the_token() {
    let running = start(accounts());
    for path in
        ["/", "/dashboard.css", "/dashboard.js", "/page.js", "/charts.js", "/machine.js", "/partitions.js"]
    {
        let answer = get(&running, &format!("GET {path} HTTP/1.1\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {answer}");
        assert!(answer.contains("Content-Security-Policy: default-src 'none'; script-src 'self'"), "{path}");
        for elsewhere in ["http://", "https://"] {
            let found = answer.matches(elsewhere).count();
            let namespaces = answer.matches("http://www.w3.org/2000/svg").count();
            assert_eq!(
                found,
                if elsewhere == "http://" { namespaces } else { 0 },
                "{path} names {elsewhere}"
            );
        }
    }
    for path in ["/api/v1/status", "/api/v1/history", "/api/v1/decisions", "/api/v1/no", "/metrics"] {
        for header in ["", "Authorization: Bearer wrong\r\n"] {
            let answer = get(&running, &format!("GET {path} HTTP/1.1\r\n{header}\r\n")).await;
            assert!(
                answer.starts_with("HTTP/1.1 401 ") && answer.contains("WWW-Authenticate: Bearer"),
                "{answer}"
            );
        }
    }
    let bad =
        "GET /api/v1/history?after=soon HTTP/1.1\r\nAuthorization: Bearer the-token-of-this-test\r\n\r\n";
    let answer = get(&running, bad).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("'after=soon'"), "{answer}");
}

#[tokio::test]
async fn without_a_chosen_token_one_is_made_for_the_dashboard() {
    let running = Running::start(|options| options.http = Some("127.0.0.1:0".parse().expect("an address")));
    let token = running.server().generated_token().expect("a token").to_owned();
    assert!(token.len() >= 32, "{token}");
    let ask = |token: &str| format!("GET /api/v1/history HTTP/1.1\r\nAuthorization: Bearer {token}\r\n\r\n");
    assert!(get(&running, &ask(&token)).await.starts_with("HTTP/1.1 200 "));
    assert!(get(&running, &ask("")).await.starts_with("HTTP/1.1 401 "));
    assert!(get(&running, "GET /metrics HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 200 "));
    let other = Running::start(|_| ());
    assert_ne!(other.server().generated_token(), Some(&*token));
}

#[tokio::test]
async fn the_numbers_are_those_of_the_metrics() {
    let running = start(accounts());
    let (mut raw, _) = Raw::logged_in(running.address()).await;
    raw.send(&message(b'Q', b"CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)\0")).await;
    assert_eq!(tags(&raw.until_ready().await), "CCZ");
    let status = json(&running, "/api/v1/status").await;
    let text =
        get(&running, &format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n")).await;
    let mut compared = 0;
    for metric in status["metrics"].as_array().expect("a list") {
        let name = metric["name"].as_str().expect("a name");
        // Workers go on looking for work meanwhile.
        if name.starts_with("atrapos_worker_busy") || name.starts_with("atrapos_connections") {
            continue;
        }
        for value in metric["values"].as_array().expect("a list") {
            let suffix = value["suffix"].as_str().unwrap_or_default();
            let label = value["label"].as_array().map_or_else(String::new, |label| {
                format!(
                    "{{{}=\"{}\"}}",
                    label[0].as_str().expect("a name"),
                    label[1].as_str().expect("a value")
                )
            });
            let line = format!("{name}{suffix}{label} {}\n", value["value"].as_f64().expect("a number"));
            assert!(text.contains(&line), "{line} in {text}");
            compared += 1;
        }
    }
    assert!(compared > 50, "{compared}");
    assert!(text.contains("atrapos_request_seconds_count 1\n"), "{text}");
    let workers = status["activity"]["workers"].as_array().expect("a list");
    assert_eq!(workers.len(), 2);
    let committed: u64 = workers.iter().filter_map(|worker| worker["committed"].as_u64()).sum();
    assert_eq!(status["activity"]["statistics"]["committed"].as_u64(), Some(committed));
    assert_eq!(status["machine"]["island"]["level"], "machine");
    assert_eq!(
        status["rates"]["heat"].as_array().map(Vec::len),
        status["activity"]["families"].as_array().map(Vec::len)
    );
}

#[tokio::test]
async fn transactions_are_counted_by_application() {
    let running = start(accounts());
    let (mut raw, _) = Raw::logged_in(running.address()).await;
    let query = async |raw: &mut Raw, text: &str, expected: &str| {
        raw.send(&message(b'Q', format!("{text}\0").as_bytes())).await;
        let tags = tags(&raw.until_ready().await).replace('S', "");
        assert_eq!(tags, expected, "{text}");
    };
    query(&mut raw, "CREATE TABLE t (id int PRIMARY KEY)", "CZ").await;
    query(&mut raw, "SET application_name = 'ledger'", "CZ").await;
    for id in 0..20 {
        query(&mut raw, &format!("INSERT INTO t VALUES ({id})"), "CZ").await;
    }
    query(&mut raw, "BEGIN; INSERT INTO t VALUES (20)", "CCZ").await;
    query(&mut raw, "COMMIT", "CZ").await;
    let status = json(&running, "/api/v1/status").await;
    let classes = status["activity"]["classes"].as_array().expect("a list");
    let ledger = classes.iter().find(|class| class["name"] == "ledger").expect("its class");
    // Few transactions are recorded each, unless the worker does much else.
    let transactions = ledger["transactions"].as_u64().expect("a number");
    assert!((15..=30).contains(&transactions), "{classes:?}");
}

/// Transactions on a few accounts, until this is dropped.
struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Load {
    fn begin(running: &Running) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, database) = (Arc::clone(&stop), running.shared_database());
        let thread = std::thread::spawn(move || {
            let db = database.database();
            let accounts = db.table::<Accounts>().expect("the table");
            let mut key = 0;
            while !stopped.load(Ordering::Relaxed) {
                key = (key * 37 + 11) % (ROWS / 4);
                let other = ROWS - 1 - key;
                let pay = async move |tx: &mut atrapos::Tx| {
                    tx.set_class("pay");
                    tx.update(accounts, key, |account| account.balance -= 1).await?;
                    if key % 5 == 0 {
                        tx.update(accounts, other, |account| account.balance += 1).await?;
                    }
                    Ok(())
                };
                db.run(accounts.at(&key), pay).expect("it commits");
            }
        });
        Load { stop, thread: Some(thread) }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn fill(running: &Running) {
    let db = running.database();
    let accounts = db.table::<Accounts>().expect("the table");
    for key in 0..ROWS {
        let open = async move |tx: &mut atrapos::Tx| tx.insert(accounts, key, Account { balance: 100 }).await;
        db.run(accounts.at(&key), open).expect("it commits");
    }
}

/// Opens the page and signs in with the keyboard.
fn signed_in(running: &Running) -> Page {
    let address = format!("http://{}/", running.server().http_address().expect("an address"));
    let mut page = Page::open(&address);
    page.until("document.activeElement?.id === 'token'");
    page.write("not the token");
    page.press("Enter");
    page.until("document.getElementById('refused').textContent.includes('no spaces')");
    page.write("wrong");
    page.press("Enter");
    page.until("document.getElementById('refused').textContent.includes('does not know this token')");
    page.until("document.activeElement?.id === 'token'");
    page.write(TOKEN);
    page.press("Enter");
    page.until("Number(document.body.dataset.refreshes) >= 1");
    page
}

fn picture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("dashboard").join(name)
}

#[test]
#[ignore = "needs Chromium: scripts/test installs it and runs this"]
fn the_page_shows_the_metrics_and_a_repartition_at_the_second_refresh() {
    let machine = Machine::synthetic("pack:2 l3:2 core:2 pu:1").expect("a machine");
    let running = start(accounts().fixed_scheme().workers(8).machine(machine));
    fill(&running);
    let load = Load::begin(&running);
    let mut page = signed_in(&running);
    page.until("Number(document.body.dataset.refreshes) >= 3");
    drop(load);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let text = runtime
        .block_on(get(&running, &format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n")));
    page.value("document.querySelector('#counters').open = true");
    let of = |name: &str| {
        let sum = |line: &str| line.strip_prefix(name)?.split_once(' ')?.1.parse::<f64>().ok();
        text.lines().filter_map(sum).sum::<f64>()
    };
    let names =
        page.value("[...document.querySelectorAll('[data-metric]')].map((shown) => shown.dataset.metric)");
    let names: Vec<&str> = names.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert!(names.len() >= 4, "{names:?}");
    for name in names {
        let shown = format!("document.querySelector('[data-metric={name}]').textContent.replaceAll(',', '')");
        let is_it = format!("{shown} === '{}'", of(name));
        assert!(page.within(2, &is_it), "{name} is {} and not {}", page.value(&shown), of(name));
    }
    let shown = "[...document.querySelectorAll('#metrics tbody tr')].find((row) => row.textContent.startsWith('atrapos_actions_local_total')).lastElementChild.textContent.replaceAll(',', '')";
    assert_eq!(page.value(shown), of("atrapos_actions_local_total").to_string());
    let owner = |owner: &str| {
        format!(
            "document.querySelector('[data-family=accounts][data-number=\"0\"]').dataset.owner === '{owner}'"
        )
    };
    assert!(page.within(1, &owner("w0")));
    let accounts = running.database().table::<Accounts>().expect("the table");
    running.database().repartition([SchemeChange::move_to(accounts, &0, WorkerId(1))]).expect("it moves");
    assert!(page.within(2, &owner("w1")), "the owner is the old one two refreshes later");
    assert_eq!(page.value("document.querySelectorAll('.island .island .island .worker').length"), 8);
    runtime.block_on(show_a_wait(&running, &mut page));
}

/// Has a transaction wait for another one, and finds it on the page.
async fn show_a_wait(running: &Running, page: &mut Page) {
    let (mut holding, _) = Raw::logged_in(running.address()).await;
    let (mut waiting, _) = Raw::logged_in(running.address()).await;
    let statements = b"CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (17, 1)\0";
    holding.send(&message(b'Q', statements)).await;
    assert_eq!(tags(&holding.until_ready().await), "CCZ");
    holding.send(&message(b'Q', b"BEGIN; UPDATE t SET v = 2 WHERE id = 17\0")).await;
    assert_eq!(tags(&holding.until_ready().await), "CCZ");
    waiting.send(&message(b'Q', b"UPDATE t SET v = 3 WHERE id = 17\0")).await;
    let cells = "[...document.querySelectorAll('#waits tbody td')].map((cell) => cell.textContent)";
    page.until(&format!("{cells}.length === 6"));
    let shown = page.value(cells);
    assert_eq!((&shown[2], &shown[3]), (&"t".into(), &"17".into()), "{shown}");
    look(page, "islands");
    holding.send(&message(b'Q', b"ROLLBACK\0")).await;
    assert_eq!(tags(&holding.until_ready().await), "CZ");
    assert_eq!(tags(&waiting.until_ready().await), "CZ");
    assert!(page.within(2, "document.querySelectorAll('#waits tbody td').length === 0"));
}

#[test]
#[ignore = "needs Chromium: scripts/test installs it and runs this"]
fn decisions_come_as_they_are_made_and_every_part_can_be_looked_at() {
    let running = start(accounts());
    fill(&running);
    let load = Load::begin(&running);
    let mut page = signed_in(&running);
    page.until("document.querySelectorAll('.decision').length > 1");
    page.until("document.querySelector('#classes dt')?.textContent === 'pay'");
    page.until("document.querySelector('#classes dd')?.textContent.endsWith('(100%)')");
    page.until("document.getElementById('no-classes').hidden");
    let known = running.database().adaptation_history().len();
    while running.database().adaptation_history().len() <= known {
        std::thread::yield_now();
    }
    assert!(
        page.within(
            2,
            &format!("document.querySelector('[data-number=\"{}\"].decision') !== null", known + 1)
        )
    );
    let sentence = running.database().adaptation_history_after(known as u64)[0].1.decision.to_string();
    let shown = page.value(&format!(
        "document.querySelector('[data-number=\"{}\"].decision').lastElementChild.textContent",
        known + 1
    ));
    assert_eq!(shown.as_str().map(str::to_lowercase), Some(sentence.to_lowercase()));
    // A partition and a decision are chosen by the keyboard, and their numbers are shown.
    for (chosen, told) in
        [("[data-family=accounts][data-number=\"0\"]", "Rows of accounts"), (".decision", "Throughput")]
    {
        page.value(&format!("document.querySelector('{chosen}').focus()"));
        page.press("Enter");
        page.until("document.getElementById('details').open");
        page.until(&format!("document.getElementById('details').textContent.includes('{told}')"));
        page.press("Escape");
        page.until("!document.getElementById('details').open");
        let focused = format!(
            "document.activeElement === document.querySelector('{chosen}') || document.activeElement.matches('.decision')"
        );
        assert_eq!(page.value(&focused), true, "the focus comes back");
    }
    page.until("Number(document.body.dataset.refreshes) >= 12");
    look(&mut page, "page");
    page.value("document.querySelector('[data-family=accounts][data-number=\"0\"]').click()");
    look(&mut page, "partition");
    page.press("Escape");
    page.value("document.getElementById('sign-out').click()");
    page.until("document.activeElement?.id === 'token'");
    look(&mut page, "token");
    drop(load);
}

/// Photographs the page in both widths and schemes, and checks what can be checked of its look.
fn look(page: &mut Page, name: &str) {
    for (width, height) in [(390, 844), (1280, 900)] {
        for scheme in ["light", "dark"] {
            page.show(width, height, scheme);
            page.until("new Promise(requestAnimationFrame)");
            let overflow =
                page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
            assert_eq!(overflow, 0, "the page is wider than {width}");
            page.photograph(&picture(&format!("{name}-{scheme}-{width}.png")));
        }
    }
    let nameless = "[...document.querySelectorAll('button, input, summary, [tabindex=\"0\"]')].filter((one) => !one.hidden
        && !(one.getAttribute('aria-label') || one.labels?.length || one.textContent.trim() || one.getAttribute('aria-labelledby'))).length";
    assert_eq!(page.value(nameless), 0, "whatever can be chosen has a name");
}
