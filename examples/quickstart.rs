//! The shortest tour: declare a table, open a database, run transactions.
//!
//! `cargo run --release -p atrapos --example quickstart`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use atrapos::{Abort, Database, Schema, Table, row};

row! {
    /// A user of some service.
    #[derive(Clone, Debug, PartialEq)]
    pub struct User {
        /// Shown to others.
        pub name: String,
        /// How often the user has logged in.
        pub logins: u32,
    }
}

struct Users;

impl Table for Users {
    type Key = u64;
    type Row = User;
    const NAME: &'static str = "users";
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Keys from 1 to 1,000 are expected: every worker starts with an equal share of them.
    let schema = Schema::new().table::<Users>().split_evenly("users", 1, 1_000);
    let db = Database::builder(schema).workers(2).in_memory()?;
    let users = db.table::<Users>()?;

    for (id, name) in [(1, "Ada"), (700, "Edgar"), (900, "Jim")] {
        let user = User { name: name.to_owned(), logins: 0 };
        db.run(users.at(&id), async move |tx| tx.insert(users, id, user.clone()).await)?;
    }

    let logins = db.run(users.at(&700), async move |tx| {
        tx.update(users, 700, |user| {
            user.logins += 1;
            user.logins
        })
        .await
    })?;
    println!("Edgar has logged in {logins:?} times");

    // An abort leaves nothing behind.
    let refused: Result<(), Abort> = db.run(users.at(&1), async move |tx| {
        tx.delete(users, 1).await?;
        Err(Abort::user("changed my mind"))
    });
    println!("{}", refused.expect_err("the procedure asked for an abort"));

    let names = db.run(users.at(&1), async move |tx| {
        let all = tx.scan(users, atrapos::KeyRange::all(), 10).await?;
        Ok(all.into_iter().map(|(id, user)| format!("{id}: {}", user.name)).collect::<Vec<_>>())
    })?;
    println!("{}", names.join(", "));
    assert_eq!(names, ["1: Ada", "700: Edgar", "900: Jim"]);
    Ok(())
}
