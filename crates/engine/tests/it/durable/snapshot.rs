//! Checkpoints of a database without WAL: there is nothing to repair them with, so they hold what the database was at one
//! moment between transactions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use atrapos::{
    Abort, Builder, Database, Durability, Index, KeyRange, LoadProgress, Schema, SchemeChange, Session,
    Table, TableRef, Tx, WorkerId, row,
};
use atrapos_durability::file::{FileSystem, ModelFiles};

use crate::durable::hooked::{Gate, Hooked};
use crate::durable::notes::{directory, files};
use crate::gate;
use crate::support::{Random, until_done, wait_until};

row! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Account {
        balance: i64,
        filler: String,
    }
}

struct Accounts;

impl Table for Accounts {
    type Key = u64;
    type Row = Account;
    const NAME: &'static str = "accounts";
}

/// Every transfer changes it.
struct ByBalance;

impl Index for ByBalance {
    type Table = Accounts;
    type Key = i64;
    const NAME: &'static str = "accounts_by_balance";
    const UNIQUE: bool = false;
    fn key(_: &u64, account: &Account) -> i64 {
        account.balance
    }
}

/// Several slices of a checkpoint on each worker.
const ACCOUNTS: u64 = 2400;

const EACH: i64 = 1000;

fn builder(files: &ModelFiles, workers: usize) -> Builder {
    let schema = Schema::new()
        .table::<Accounts>()
        .index::<ByBalance>()
        .split_evenly("accounts", 0, ACCOUNTS - 1)
        .split_at("accounts_by_balance", &[500, EACH - 1, EACH, EACH + 1, 1500]);
    Database::builder(schema)
        .workers(workers)
        .pin(false)
        .huge_pages(false)
        .fixed_scheme()
        .durability(Durability::None)
        .files(Arc::new(files.clone()))
}

fn account(balance: i64) -> Account {
    Account { balance, filler: "x".repeat(100) }
}

fn load(db: &Database) {
    let accounts = db.table::<Accounts>().unwrap();
    db.load(&LoadProgress::default(), move |loader| {
        for key in loader.share_of(accounts, 0, ACCOUNTS - 1).into_iter().flatten() {
            loader.add(accounts, &key, &account(EACH))?;
        }
        Ok(())
    })
    .unwrap();
}

/// Keys and balances.
type Balances = Vec<(u64, i64)>;

/// All accounts of a database that is whole.
fn balances(db: &Database) -> Result<Balances, String> {
    let accounts = db.table::<Accounts>().unwrap();
    db.index::<ByBalance>().unwrap();
    db.verify().map_err(|error| error.to_string())?;
    let rows = db
        .run(accounts.at(&0), async move |tx| tx.scan(accounts, KeyRange::all(), usize::MAX).await)
        .map_err(|abort| abort.to_string())?;
    Ok(rows.into_iter().map(|(key, account)| (key, account.balance)).collect())
}

pub(crate) fn sum(balances: &[(u64, i64)]) -> i64 {
    balances.iter().map(|(_, balance)| balance).sum()
}

async fn add(tx: &mut Tx<'_>, accounts: TableRef<Accounts>, key: u64, amount: i64) -> Result<(), Abort> {
    // What is paid is changed in place, and what is received with its row: their before-images are kept in different ways.
    let pay = accounts.edit(key, move |account| {
        account.change(|column| column.balance, |balance| balance + amount);
    });
    let receive = accounts.update(key, move |account| account.balance += amount);
    let found = if amount < 0 { tx.run(pay).await? } else { tx.run(receive).await? };
    found.ok_or_else(|| Abort::user("there is no such account"))
}

fn transfer(db: &Database, from: u64, to: u64, amount: i64) {
    let accounts = db.table::<Accounts>().unwrap();
    db.run(accounts.at(&from), async move |tx| {
        add(tx, accounts, from, -amount).await?;
        add(tx, accounts, to, amount).await
    })
    .unwrap();
}

/// Changes in the middle of a checkpoint: money goes from what is written already to what is not, and back, on one
/// worker and across; accounts come and go; a key range goes to the other worker and is changed there.
fn change(db: &Database) {
    let accounts = db.table::<Accounts>().unwrap();
    let (last, middle) = (ACCOUNTS - 1, ACCOUNTS / 2);
    transfer(db, 0, last, 1);
    transfer(db, 1, middle - 1, 2);
    transfer(db, middle, last, 3);
    transfer(db, last, 2, 500);
    db.run(accounts.at(&5), async move |tx| {
        let gone = tx.delete(accounts, middle - 2).await?.map_or(0, |account| account.balance);
        tx.insert(accounts, ACCOUNTS, account(gone)).await
    })
    .unwrap();
    let moved = ACCOUNTS / 4;
    db.repartition([
        SchemeChange::split(accounts, &moved),
        SchemeChange::move_to(accounts, &moved, WorkerId(1)),
    ])
    .unwrap();
    transfer(db, 0, middle - 1, 7);
    transfer(db, middle - 3, 0, 8);
    db.run(accounts.at(&moved), async move |tx| {
        let gone = tx.delete(accounts, moved + 200).await?.map_or(0, |account| account.balance);
        add(tx, accounts, 3, gone).await
    })
    .unwrap();
    // There again, with other money.
    db.run(accounts.at(&moved), async move |tx| {
        add(tx, accounts, 3, -50).await?;
        tx.insert(accounts, moved + 200, account(50)).await
    })
    .unwrap();
}

/// A transaction that changes accounts on both workers and then waits until it is told to commit.
struct Unfinished {
    go_on: mpsc::Sender<()>,
    ended: atrapos::SessionHandle<Result<(), Abort>>,
}

impl Unfinished {
    fn begin(db: &Database, from: u64, to: u64) -> Unfinished {
        let accounts = db.table::<Accounts>().unwrap();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let (changed, was_changed) = mpsc::channel();
        let may_go_on = Mutex::new(may_go_on);
        let ended = db
            .spawn_session(WorkerId(0), async move |session: Session| {
                session
                    .run(&accounts.at(&from), async move |tx| {
                        add(tx, accounts, from, -9).await?;
                        add(tx, accounts, to, 9).await?;
                        changed.send(()).unwrap();
                        loop {
                            // Goes there and back, so that others run meanwhile.
                            tx.get(accounts, to).await?;
                            if may_go_on.lock().unwrap().try_recv().is_ok() {
                                return Ok(());
                            }
                        }
                    })
                    .await
            })
            .unwrap();
        was_changed.recv().unwrap();
        Unfinished { go_on, ended }
    }

    fn commit(self) {
        self.go_on.send(()).unwrap();
        self.ended.join().unwrap().unwrap();
    }
}

/// Makes a checkpoint, with `planted` around it, and changes the database when the first of it has been written. Returns
/// what was there before, and what the checkpoint holds.
pub(crate) fn changed_in_the_middle(
    planted: impl Fn(&mut dyn FnMut()) + Send + Sync,
) -> (Balances, Result<Balances, String>) {
    let files = files();
    let (gate, (arrived, has_arrived)) = (Gate::default(), mpsc::channel());
    let (device, in_checkpoint) = (gate.clone(), Arc::new(AtomicBool::new(false)));
    let (watched, arrived) = (Arc::clone(&in_checkpoint), Mutex::new(arrived));
    let hooked = Hooked::new(&files, move |path| {
        if path.starts_with(directory().join("checkpoint")) && watched.swap(false, Ordering::SeqCst) {
            arrived.lock().unwrap().send(()).unwrap();
            device.pass();
        }
    });
    let db = builder(&files, 2).files(hooked).open(directory()).unwrap();
    load(&db);
    transfer(&db, 0, ACCOUNTS - 1, 100);
    let before = balances(&db).unwrap();
    let unfinished = Unfinished::begin(&db, 100, ACCOUNTS - 100);
    let closed = gate.close();
    in_checkpoint.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| {
            let mut made = None;
            planted(&mut || made = Some(db.checkpoint()));
            made.unwrap().unwrap()
        });
        has_arrived.recv().unwrap();
        change(&db);
        unfinished.commit();
        transfer(&db, 100, ACCOUNTS - 100, 11);
        drop(closed);
        checkpoint.join().unwrap();
    });
    let after = balances(&db).unwrap();
    assert_eq!(sum(&after), sum(&before));
    let held = balances(&builder(&files.kill(), 3).open(directory()).unwrap());
    // Nothing is held back from the next one.
    db.checkpoint().unwrap();
    assert_eq!(balances(&builder(&files.kill(), 1).open(directory()).unwrap()).as_ref(), Ok(&after));
    (before, held)
}

#[test]
fn what_changes_while_a_checkpoint_is_made_is_not_in_it() {
    let (before, held) = changed_in_the_middle(|checkpoint| checkpoint());
    assert_eq!(held, Ok(before));
}

#[test]
fn a_checkpoint_under_load_is_a_state_between_transactions() {
    const WORKERS: usize = 3;
    let files = files();
    let db = builder(&files, WORKERS).open(directory()).unwrap();
    load(&db);
    let accounts = db.table::<Accounts>().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let sessions: Vec<_> = (0..9)
        .map(|client| {
            let (stop, mut random) = (Arc::clone(&stop), Random::new(7).part(client));
            db.spawn_session(WorkerId((client % WORKERS) as u16), async move |session| {
                while !stop.load(Ordering::Relaxed) {
                    let [from, to] = [0, 0].map(|_| random.below(ACCOUNTS));
                    let amount = random.below(20) as i64;
                    until_done(&session, &accounts.at(&from), async move |tx| {
                        add(tx, accounts, from, -amount).await?;
                        add(tx, accounts, to, amount).await
                    })
                    .await?;
                    session.yield_now().await;
                }
                Ok::<(), Abort>(())
            })
            .unwrap()
        })
        .collect();
    let mut random = Random::new(8);
    for round in 0..6 {
        std::thread::scope(|scope| {
            // One key range or another goes to some worker meanwhile.
            let key = random.below(WORKERS as u64) * (ACCOUNTS / WORKERS as u64);
            let to = WorkerId(random.below(WORKERS as u64) as u16);
            let (db, changes) = (&db, [SchemeChange::move_to(accounts, &key, to)]);
            scope.spawn(move || db.repartition(changes).unwrap());
            db.checkpoint().unwrap();
        });
        let held = balances(&builder(&files.kill(), 1 + round % 3).open(directory()).unwrap()).unwrap();
        assert_eq!((held.len() as u64, sum(&held)), (ACCOUNTS, ACCOUNTS as i64 * EACH), "round {round}");
    }
    stop.store(true, Ordering::Relaxed);
    for session in sessions {
        session.join().unwrap().unwrap();
    }
    assert_eq!(sum(&balances(&db).unwrap()), ACCOUNTS as i64 * EACH);
}

/// The accounts of the newest checkpoint; none if there is none yet.
fn saved_accounts(files: &ModelFiles) -> usize {
    let copy = files.kill();
    let made = copy.list(&directory().join("checkpoint")).unwrap_or_default();
    if made.is_empty() { 0 } else { balances(&builder(&copy, 1).open(directory()).unwrap()).unwrap().len() }
}

#[test]
fn checkpoints_are_made_by_the_clock_when_something_has_changed() {
    let files = files();
    let db = builder(&files, 2).checkpoint_every(Duration::from_millis(5)).open(directory()).unwrap();
    let accounts = db.table::<Accounts>().unwrap();
    for key in 0..3 {
        db.run(accounts.at(&key), async move |tx| tx.insert(accounts, key, account(EACH)).await).unwrap();
        wait_until(|| saved_accounts(&files) as u64 == key + 1);
    }
}

#[test]
fn a_transaction_that_commits_after_a_checkpoint_is_in_the_next_one_by_the_clock() {
    let files = files();
    let db = builder(&files, 2).checkpoint_every(Duration::from_millis(5)).open(directory()).unwrap();
    let accounts = db.table::<Accounts>().unwrap();
    // At home, and on another worker than it.
    for (number, home) in (0_u64..).zip([0, ACCOUNTS - 1, 1, ACCOUNTS - 2]) {
        let key = number / 2 * 7;
        let (end, may_end) = gate::pair();
        let before = files.list(&directory().join("checkpoint")).unwrap_or_default();
        let under_way = db
            .submit(accounts.at(&home), async move |tx: &mut Tx<'_>| {
                tx.insert(accounts, key + number, account(EACH)).await?;
                tx.wait_for(may_end.clone()).await;
                Ok(())
            })
            .unwrap();
        // The change is noticed, and is in no checkpoint while the transaction is unfinished.
        wait_until(|| files.list(&directory().join("checkpoint")).unwrap_or_default() != before);
        assert_eq!(saved_accounts(&files) as u64, number);
        end.open();
        under_way.wait().unwrap();
        wait_until(|| saved_accounts(&files) as u64 == number + 1);
    }
}
