//! CALL: procedures of a program whose tables statements see, too.

use std::sync::Arc;

use atrapos::{Abort, Database, Procedures, Schema, Table, TableRef, Transaction, row};
use atrapos_sql::{SqlDatabase, SqlProcedures};
use serde::{Deserialize, Serialize};

use crate::support::{Client, check, options};

row! { #[derive(Clone, Copy, PartialEq)] pub struct Account { pub balance: i64 } }

struct Accounts;

impl Table for Accounts {
    type Key = u64;
    type Row = Account;
    const NAME: &'static str = "accounts";
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Posting {
    id: u64,
    cents: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Posted {
    note: Option<String>,
    balances: Vec<i64>,
}

async fn post<X: Transaction>(
    tx: &mut X,
    accounts: TableRef<Accounts>,
    postings: &[Posting],
    note: &str,
) -> Result<Posted, Abort> {
    let mut balances = Vec::new();
    for posting in postings {
        let balance = tx.read(accounts, posting.id, |account| account.balance).await?;
        let balance = balance.ok_or(Abort::user("there is no such account"))? + posting.cents;
        tx.update(accounts, posting.id, move |account| account.balance = balance).await?;
        balances.push(balance);
    }
    Ok(Posted { note: (!note.is_empty()).then(|| note.to_owned()), balances })
}

atrapos::stored_procedures! {
    /// Posts to accounts.
    Post("bank.post-all", "post") { note: String, postings: Vec<Posting> } -> Posted;
    tables TableRef<Accounts>: |handles| handles.table::<Accounts>();
    home: |own, accounts| accounts.at(&own.postings.first().map_or(0, |posting| posting.id));
    run: |own, tx, accounts| post(tx, *accounts, &own.postings, &own.note);

    /// The sum of a number and a fraction.
    Add("other.add", "add") { one: u8, other: f64, yes: bool, list: Vec<i32> } -> f64;
    tables TableRef<Accounts>: |handles| handles.table::<Accounts>();
    home: |_own, accounts| accounts.at(&0);
    run: |own, _tx, _accounts| {
        let sum = f64::from(own.one) + own.other + f64::from(own.list.iter().sum::<i32>());
        std::future::ready(Ok(if own.yes { sum } else { 0.0 }))
    };

    /// A second procedure with the name of another one.
    OtherPost("other.post-all", "post") { none: Option<u8> } -> u8;
    tables TableRef<Accounts>: |handles| handles.table::<Accounts>();
    home: |_own, accounts| accounts.at(&0);
    run: |own, _tx, _accounts| std::future::ready(Ok(own.none.unwrap_or(7)));
}

fn bank() -> Arc<SqlDatabase> {
    let schema = Schema::new().table::<Accounts>().split_evenly("accounts", 1, 100);
    let database = Database::builder(schema).workers(2).pin(false).in_memory().expect("it opens");
    let mut procedures = SqlProcedures::default();
    procedures.register::<Post>(&database).expect("it fits");
    procedures.register::<Add>(&database).expect("it fits");
    procedures.register::<OtherPost>(&database).expect("it fits");
    assert!(procedures.register::<Post>(&database).is_err());
    SqlDatabase::open_with(database, options(), procedures).expect("SQL opens")
}

#[test]
fn procedures_are_called_with_values() {
    let database = bank();
    let mut client = Client::new(&database);
    client.run("INSERT INTO accounts VALUES (1, 100), (99, 100)");
    let both = r#"[{"id":1,"cents":5},{"id":99,"cents":-5}]"#;
    check(
        &mut client,
        &[
            (
                &format!("CALL bank.post_all('both', '{both}'::json)"),
                r#"{"note":"both","balances":[105,95]}"#,
            ),
            (
                &format!("CALL \"bank\".\"post-all\"('', '{both}'::jsonb)"),
                r#"{"note":null,"balances":[110,90]}"#,
            ),
            ("SELECT * FROM accounts ORDER BY 1", "1|110 / 99|90"),
            ("CALL add(1 + 1, 2.5, true, ARRAY[1, 2])", "7.5"),
            ("CALL other.post_all(NULL)", "7"),
            ("CALL post_all(NULL)", "42725"),
            ("CALL nothing()", "42883"),
            ("CALL add(1)", "22023"),
            ("CALL add(256, 0, true, '[]'::json)", "22023"),
            ("CALL add('one', 0, true, '[]'::json)", "22023"),
            ("CALL add((SELECT 1), 0, true, '[]'::json)", "0A000"),
            ("CALL bank.post_all('x', '[{\"id\":1,\"cents\":1},{\"id\":50,\"cents\":1}]'::json)", "P0001"),
            ("SELECT * FROM accounts ORDER BY 1", "1|110 / 99|90"),
            ("EXPLAIN CALL add(1, 0, true, '[]'::json)", "Route: the owner of the key / Call of other.add"),
        ],
    );
    // They are counted under their classes.
    let classes = database.database().activity().expect("it is open").classes;
    let counted =
        |name: &str| classes.iter().find(|class| class.name == name).map_or(0, |class| class.transactions);
    assert!(counted("post") > 0 && counted("add") > 0, "{classes:?}");
    // As a part of a transaction, and with parameters.
    check(
        &mut client,
        &[
            ("BEGIN", "BEGIN"),
            ("UPDATE accounts SET balance = 0 WHERE balance = 110", "UPDATE 1"),
            ("CALL bank.post_all('', '[{\"id\":1,\"cents\":7}]'::json)", r#"{"note":null,"balances":[7]}"#),
            ("SELECT * FROM accounts ORDER BY 1", "1|7 / 99|90"),
            ("ROLLBACK", "ROLLBACK"),
            ("SELECT * FROM accounts ORDER BY 1", "1|110 / 99|90"),
            ("PREPARE p(int, json) AS CALL add($1, 0.5, true, $2)", "PREPARE"),
            ("EXECUTE p(1, '[4]')", "5.5"),
        ],
    );
}

#[test]
fn procedures_are_for_those_to_whom_they_are_granted() {
    let database = bank();
    let mut ann = Client::new(&database);
    ann.run("CREATE ROLE bob LOGIN; INSERT INTO accounts VALUES (1, 100)");
    let mut bob = Client::of(&database, "bob", 2);
    let posts = "CALL bank.post_all('', '[{\"id\":1,\"cents\":7}]'::json)";
    check(&mut bob, &[(posts, "42501"), ("CALL add(1, 1, true, '[]'::json)", "42501")]);
    ann.run("GRANT EXECUTE ON PROCEDURE bank.post_all TO bob");
    check(&mut bob, &[(posts, r#"{"note":null,"balances":[107]}"#), ("SELECT * FROM accounts", "42501")]);
    ann.run("REVOKE ALL ON PROCEDURE bank.post_all FROM bob");
    check(&mut bob, &[(posts, "42501")]);
    check(&mut ann, &[("GRANT EXECUTE ON PROCEDURE nothing TO bob", "42883")]);
}
