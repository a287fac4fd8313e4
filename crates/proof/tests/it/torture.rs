//! The torture without the killing: what it leaves is sound, and what is wrong is found.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use atrapos::catalog::Value;
use atrapos::{Database, Tx};
use atrapos_proof::torture::schema::{Marks, PURSES, Purses, TOKEN_EVERY, Tokens, mark_key};
use atrapos_proof::torture::{
    DEFINERS, MadeViolation, Part, Slot, Torture, TortureError, Violation, Witness, WitnessError,
};

/// Remembers in memory: nobody is killed here.
struct Memory(Vec<AtomicU64>);

impl Memory {
    fn new() -> Memory {
        Memory((0..Slot::COUNT).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Witness for Memory {
    fn read(&self, slot: Slot) -> u64 {
        self.0[slot.index()].load(Ordering::SeqCst)
    }

    fn write(&self, slot: Slot, value: u64) -> Result<(), WitnessError> {
        self.0[slot.index()].store(value, Ordering::SeqCst);
        Ok(())
    }
}

fn open(torture: &Torture, path: &Path, workers: usize) -> Database {
    let builder = torture.builder(path.exists()).workers(workers).pin(false).huge_pages(false);
    builder.segment_bytes(64 << 10).checkpoint_wal_bytes(128 << 10).open(path).expect("a sound directory")
}

/// Works on the database until every client has committed something that replaced its token, and every definer has made so many
/// statements.
fn work(torture: &Torture, db: &Database, witness: &Memory, round: u64, made: u64) {
    let stop = AtomicBool::new(false);
    let goal: Vec<u64> =
        (0..4).map(|client| witness.read(Slot::Acknowledged(client)) + 2 * TOKEN_EVERY).collect();
    let statements = |definer| witness.read(Slot::StatementEnded(definer));
    let goals: Vec<u64> = (0..DEFINERS).map(|definer| statements(definer) + made).collect();
    let tally = std::thread::scope(|scope| {
        scope.spawn(|| {
            let reached = |(client, goal): (usize, &u64)| witness.read(Slot::Acknowledged(client)) >= *goal;
            let all_made = || goals.iter().enumerate().all(|(definer, goal)| statements(definer) >= *goal);
            while !(stop.load(Ordering::SeqCst) || goal.iter().enumerate().all(reached) && all_made()) {
                std::thread::sleep(Duration::from_millis(2));
            }
            stop.store(true, Ordering::SeqCst);
        });
        torture.run(db, witness, round, &stop)
    });
    let tally = tally.expect("nothing is wrong");
    assert!(tally.acknowledged >= 4 * 2 * TOKEN_EVERY, "{tally:?}");
    assert!(tally.statements >= made * DEFINERS as u64, "{tally:?}");
}

#[test]
fn what_was_tortured_is_sound_with_any_number_of_workers() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("database");
    let torture = Torture::new(50, 3).expect("fifty subscribers");
    let witness = Memory::new();
    let mut transactions = 0;
    for (round, workers) in [2, 3, 1, 4].into_iter().enumerate() {
        let db = open(&torture, &path, workers);
        let checked = torture.check(&db, &witness).expect("every promise was kept");
        assert!(checked.transactions >= transactions);
        torture.prepare(&db, &witness).expect("it is loaded");
        work(&torture, &db, &witness, round as u64, 3);
        transactions = torture.check(&db, &witness).expect("every promise was kept").transactions;
        assert!(transactions > checked.transactions);
        assert_eq!(db.close(Duration::from_secs(60)).failure, None);
    }
}

/// Does one thing to a sound database behind everybody's back, and returns what the check finds.
fn found_after(spoil: impl FnOnce(&Database, &Memory)) -> Violation {
    let directory = tempfile::tempdir().expect("a directory");
    let torture = Torture::new(20, 4).expect("twenty subscribers");
    let witness = Memory::new();
    let db = open(&torture, &directory.path().join("database"), 2);
    torture.prepare(&db, &witness).expect("it is loaded");
    work(&torture, &db, &witness, 0, 0);
    torture.check(&db, &witness).expect("nothing is wrong yet");
    spoil(&db, &witness);
    match torture.check(&db, &witness) {
        Err(TortureError::Violation(violation)) => violation,
        other => panic!("the check said {other:?}"),
    }
}

#[test]
fn every_broken_promise_is_found() {
    let partial = found_after(|db, _| {
        let marks = db.table::<Marks>().expect("the table");
        let key = mark_key(1, 2);
        let torn = db.run(marks.at(&key), async move |tx: &mut Tx<'_>| {
            tx.update(marks, key, |mark| drop(mark.write(1, mark.value + 1))).await
        });
        assert_eq!(torn, Ok(Some(())));
    });
    assert!(matches!(partial, Violation::Partial { client: 1, .. }), "{partial}");

    let resurrected = found_after(|db, _| {
        let tokens = db.table::<Tokens>().expect("the table");
        let row = atrapos_proof::torture::schema::Token { text: String::new() };
        let inserted = db.run(tokens.at(&(2, u64::MAX)), async move |tx: &mut Tx<'_>| {
            tx.insert(tokens, (2, u64::MAX), row.clone()).await
        });
        inserted.expect("a key that was not taken");
    });
    assert!(matches!(resurrected, Violation::Token { client: 2, .. }), "{resurrected}");

    let inflated = found_after(|db, _| {
        let purses = db.table::<Purses>().expect("the table");
        let added = db.run(purses.at(&(PURSES - 1)), async move |tx: &mut Tx<'_>| {
            tx.update(purses, PURSES - 1, |purse| purse.balance += 1).await
        });
        assert_eq!(added, Ok(Some(())));
    });
    assert!(matches!(inflated, Violation::Total { .. }), "{inflated}");

    let robbed = found_after(|db, _| {
        let purses = db.table::<Purses>().expect("the table");
        let gone = db.run(purses.at(&0), async move |tx: &mut Tx<'_>| tx.delete(purses, 0).await);
        assert!(gone.is_ok_and(|purse| purse.is_some()));
    });
    assert!(matches!(robbed, Violation::Unloaded { .. }), "{robbed}");

    let lost = found_after(|_, witness| {
        let observed = Slot::Observed { reader: 0, client: 3 };
        witness.write(observed, u64::MAX).expect("memory does not fail");
    });
    assert!(matches!(lost, Violation::Lost { client: 3, .. }), "{lost}");

    let invented = found_after(|_, witness| {
        for slot in [Slot::Submitted(0), Slot::Acknowledged(0)] {
            witness.write(slot, 0).expect("memory does not fail");
        }
        for reader in 0..atrapos_proof::torture::READERS {
            witness.write(Slot::Observed { reader, client: 0 }, 0).expect("memory does not fail");
        }
    });
    assert!(matches!(invented, Violation::Invented { client: 0, .. }), "{invented}");
}

/// Does one thing to a sound database in which a definer has a table, and returns what the check finds.
fn found_in_made(spoil: impl FnOnce(&Database, &Memory, usize)) -> MadeViolation {
    let directory = tempfile::tempdir().expect("a directory");
    let torture = Torture::new(20, 4).expect("twenty subscribers");
    let witness = Memory::new();
    let db = open(&torture, &directory.path().join("database"), 2);
    torture.prepare(&db, &witness).expect("it is loaded");
    let is_made = |definer: &usize| {
        db.table_named(&format!("made_{definer}")).is_ok_and(|table| db.len(table.id()) != Ok(0))
    };
    let mut round = 0;
    let definer = loop {
        work(&torture, &db, &witness, round, 1);
        round += 1;
        if let Some(definer) = (0..DEFINERS).find(is_made) {
            break definer;
        }
    };
    torture.check(&db, &witness).expect("nothing is wrong yet");
    spoil(&db, &witness, definer);
    match torture.check(&db, &witness) {
        Err(TortureError::Violation(Violation::Made(violation))) => violation,
        other => panic!("the check said {other:?}"),
    }
}

#[test]
fn every_broken_promise_about_tables_that_come_and_go_is_found() {
    let other = found_in_made(|db, _, definer| {
        let table = db.table_named(&format!("made_{definer}")).expect("the table");
        let head = [0_u8; 2].map(|number| Value::Unsigned(number.into()));
        let route = table.at(&head).expect("a key");
        let changed = db.run(route, async move |tx: &mut Tx<'_>| {
            tx.update_row(&table, &head, &[("text", Value::Text("other".to_owned()))]).await
        });
        assert_eq!(changed, Ok(true));
    });
    assert!(matches!(other, MadeViolation::Rows { .. }), "{other}");

    let dropped = found_in_made(|db, _, definer| {
        db.drop_table(&format!("made_{definer}")).expect("it is there");
    });
    assert!(matches!(dropped, MadeViolation::Definitions { .. }), "{dropped}");

    let lost = found_in_made(|_, witness, definer| {
        witness.write(Slot::RowsObserved(definer), u64::MAX).expect("memory does not fail");
    });
    assert!(matches!(lost, MadeViolation::Lost { .. }), "{lost}");

    let invented = found_in_made(|_, witness, definer| {
        let slots = [Slot::RowsSubmitted, Slot::RowsAcknowledged, Slot::RowsObserved];
        for slot in slots {
            witness.write(slot(definer), 0).expect("memory does not fail");
        }
    });
    assert!(matches!(invented, MadeViolation::Invented { .. }), "{invented}");
}

#[test]
fn a_load_that_was_reported_and_is_gone_is_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let torture = Torture::new(20, 4).expect("twenty subscribers");
    for part in [Part::Tatp, Part::Marks] {
        let db = open(&torture, &directory.path().join(format!("{part:?}")), 2);
        let witness = Memory::new();
        torture.check(&db, &witness).expect("nobody said that there is anything");
        witness.write(Slot::Loaded(part), 1).expect("memory does not fail");
        let found = torture.check(&db, &witness);
        assert!(matches!(found, Err(TortureError::Violation(Violation::Unloaded { .. }))), "{found:?}");
    }
}
