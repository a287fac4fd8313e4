//! Statements at random while clients use the tables by name, partitions move, checkpoints are made and the power fails: nobody
//! sees a torn state, and what is left is whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use atrapos::catalog::{ColumnDef, IndexDef, OnDelete, TableDef, Value};
use atrapos::{
    Abort, AbortReason, Advice, Database, DefineError, NewForeignKey, SchemeChange, Session, TableHandle, Tx,
    WorkerId,
};

use super::columns::height;
use super::fixture::{create, files, index, people, reopen};
use crate::support::{Random, for_seeds};

pub(super) const TABLES: [&str; 3] = ["people", "animals", "others"];
pub(super) const KEYS: u64 = 200;

fn key(id: u64) -> Vec<Value> {
    vec![Value::Unsigned(id.into())]
}

/// Changes a row in each of two tables.
async fn change_both(tx: &mut Tx<'_>, tables: &[TableHandle; 2], id: u64, age: u64) -> Result<(), Abort> {
    for table in tables {
        let age = [("age", Value::Unsigned(age.into()))];
        if tx.run(table.update(&key(id), &age)?).await? {
            tx.delete(table, &key(id)).await?;
        } else {
            let city = [("id", Value::Unsigned(id.into())), ("city", Value::Text("here".to_owned()))];
            let row: Vec<_> = city.into_iter().chain(age).collect();
            tx.run(table.insert(&row)?).await?;
        }
    }
    Ok(())
}

fn change(db: &Database, random: &mut Random) -> Result<(), Abort> {
    let [one, other] = [0, 1].map(|_| TABLES[random.below(3) as usize]);
    let (Ok(one), Ok(other)) = (db.table_named(one), db.table_named(other)) else { return Ok(()) };
    let (id, age) = (random.below(KEYS), random.below(10));
    let tables = [one, other];
    db.run(tables[0].at(&key(id))?, async move |tx| change_both(tx, &tables, id, age).await)
}

/// The same from a session.
pub(super) async fn change_here(session: &Session, random: &mut Random) -> Result<(), Abort> {
    let [one, other] = [0, 1].map(|_| TABLES[random.below(3) as usize]);
    let (Ok(one), Ok(other)) = (session.table_named(one), session.table_named(other)) else { return Ok(()) };
    let (id, age) = (random.below(KEYS), random.below(10));
    let (tables, route) = ([one.clone(), other], one.at(&key(id))?);
    session.run(&route, async move |tx| change_both(tx, &tables, id, age).await).await
}

pub(super) fn is_expected(abort: &Abort) -> bool {
    let reason = abort.reason();
    let may_be = [
        AbortReason::TableChanged,
        AbortReason::DuplicateKey,
        AbortReason::ForeignKey,
        AbortReason::NotDurable,
        AbortReason::ShuttingDown,
        // A handle from before a column was added names the columns that there were.
        AbortReason::InvalidValue,
    ];
    may_be.contains(&reason) || reason.advice() == Advice::Retry
}

/// One statement.
pub(super) enum Statement {
    CreateTable(TableDef),
    DropTable(&'static str),
    CreateIndex(&'static str, IndexDef),
    DropIndex(String),
    AddColumn(&'static str, ColumnDef),
    DropColumn(&'static str),
    AddForeignKey(&'static str, NewForeignKey),
    DropForeignKey(&'static str, &'static str),
}

impl Statement {
    pub(super) fn draw(random: &mut Random) -> Statement {
        let name = TABLES[random.below(3) as usize];
        let indexed = format!("by_age_of_{name}");
        let parent = TABLES[random.below(3) as usize];
        match random.below(13) {
            0..=2 => Statement::CreateTable(people(name, &[KEYS / 2])),
            3 => Statement::DropTable(name),
            4 | 5 => Statement::CreateIndex(name, index(&indexed, &[1], random.chance(10))),
            6 => Statement::DropIndex(indexed),
            7 => Statement::AddColumn(name, height()),
            8 => Statement::DropColumn(name),
            9 | 10 => Statement::AddForeignKey(name, reference(parent, random.chance(2))),
            _ => Statement::DropForeignKey(name, parent),
        }
    }
}

/// A reference by the key of the table.
fn reference(parent: &str, cascades: bool) -> NewForeignKey {
    let on_delete = if cascades { OnDelete::Cascade } else { OnDelete::Restrict };
    NewForeignKey { parent: parent.to_owned(), through: None, on_delete }
}

fn statement(db: &Database, random: &mut Random) -> Result<(), DefineError> {
    let done = match Statement::draw(random) {
        Statement::CreateTable(table) => db.create_table(table).map(drop),
        Statement::DropTable(name) => db.drop_table(name),
        Statement::CreateIndex(name, index) => db.create_index(name, index).map(drop),
        Statement::DropIndex(name) => db.drop_index(&name),
        Statement::AddColumn(name, column) => db.add_column(name, column).map(drop),
        Statement::DropColumn(name) => db.drop_column(name, "height").map(drop),
        Statement::AddForeignKey(name, key) => db.add_foreign_key(name, &key),
        Statement::DropForeignKey(name, parent) => db.drop_foreign_key(name, parent, None),
    };
    refused_is_fine(done)
}

/// What is refused because of what is there is fine.
pub(super) fn refused_is_fine(done: Result<(), DefineError>) -> Result<(), DefineError> {
    match done {
        Err(
            DefineError::NameTaken(_)
            | DefineError::Unknown(_)
            | DefineError::Violated(_)
            // A foreign key refers to the table, or is there already.
            | DefineError::InUse(_)
            | DefineError::Contradiction(_),
        ) => Ok(()),
        done => done,
    }
}

fn move_some(db: &Database, random: &mut Random) {
    let Ok(table) = db.table_named(TABLES[random.below(3) as usize]) else { return };
    let to = WorkerId(random.below(2) as u16);
    let at = atrapos::KeyBuf::from_slice(&random.below(KEYS).to_be_bytes());
    // The table may be gone by now.
    let _ = db.repartition([SchemeChange::Move { table: table.id(), at, to }]);
}

/// Runs statements, clients and checkpoints for a while; `crash` says after how many calls the files fail.
fn run(db: &Database, seed: u64, statements: usize) -> u64 {
    let ended = AtomicBool::new(false);
    let committed = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for client in 0..2 {
            let (ended, committed) = (&ended, &committed);
            scope.spawn(move || {
                let mut random = Random::new(seed).part(client);
                while !ended.load(Ordering::Relaxed) {
                    match change(db, &mut random) {
                        Ok(()) => drop(committed.fetch_add(1, Ordering::Relaxed)),
                        Err(abort) => assert!(is_expected(&abort), "{abort}"),
                    }
                }
            });
        }
        let mover = &ended;
        scope.spawn(move || {
            let mut random = Random::new(seed).part(7);
            while !mover.load(Ordering::Relaxed) {
                move_some(db, &mut random);
                if random.chance(5) {
                    let _ = db.checkpoint();
                }
                std::thread::yield_now();
            }
        });
        let mut random = Random::new(seed).part(9);
        for _ in 0..statements {
            if let Err(error) = statement(db, &mut random) {
                let is_end = matches!(error, DefineError::NotSaved(_) | DefineError::Aborted(_));
                assert!(is_end, "{error}");
                break;
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    committed.load(Ordering::Relaxed)
}

#[test]
fn statements_at_random_leave_a_whole_database() {
    for_seeds(4, |seed| {
        let files = files();
        let db = create(&files);
        run(&db, seed, 60);
        let verified = db.verify().unwrap();
        let names: Vec<_> = db.table_names().collect();
        drop(db);
        let db = reopen(&files);
        assert_eq!(db.verify().unwrap(), verified);
        assert_eq!(db.table_names().collect::<Vec<_>>(), names);
        run(&db, seed + 1, 30);
        db.verify().unwrap();
    });
}

#[test]
fn statements_at_random_survive_a_crash_at_random() {
    for_seeds(12, |seed| {
        let files = files();
        let db = create(&files);
        run(&db, seed, 8);
        files.crash_at(1 + Random::new(seed).below(150));
        run(&db, seed + 1, 30);
        drop(db);
        for after in [files.power_cut(seed), files.kill()] {
            let db = reopen(&after);
            db.verify().unwrap();
            run(&db, seed + 2, 6);
            db.verify().unwrap();
        }
    });
}
