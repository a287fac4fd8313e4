//! However little memory is left: what a transaction has changed is undone when it aborts, and a change of the scheme is made for all
//! tables of a family or for none. Nothing stops, and what is refused says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use atrapos::sim::Simulation;
use atrapos::{
    Abort, AbortReason, KeyRange, RepartitionReport, Route, Schema, SchemeChange, Session, Table, TableRef,
    WorkerId,
};
use atrapos_storage::RationedMemory;

use crate::support::{Item, Items, Random, STEPS_MAX};

/// When there is no memory.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    Never,
    /// For the chunk of this number.
    One(usize),
    /// For the chunk of this number, and all after it.
    From(usize),
}

/// A simulation whose memory refuses, and what counts the chunks that were asked for.
fn simulation(schema: Schema, seed: u64, refusal: Refusal) -> (Simulation, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let memory = RationedMemory::new(move |_| {
        let number = counter.fetch_add(1, Ordering::Relaxed);
        match refusal {
            Refusal::Never => true,
            Refusal::One(refused) => number != refused,
            Refusal::From(refused) => number < refused,
        }
    });
    (Simulation::with_memory(schema, WORKERS, seed, Arc::new(memory)).expect("the schema is fine"), asked)
}

const WORKERS: usize = 2;

/// Keys are below this, half of them on each worker.
const KEYS: u64 = 600;

/// Each session changes keys of its own: those that leave its number when divided by this.
const SESSIONS: u64 = 6;

#[derive(Clone, Debug)]
enum Op {
    /// Gives the key a row with a text of so many bytes.
    Write(u64, usize),
    Delete(u64),
    /// Reads a row, mostly of another worker.
    Look(u64),
}

fn operations(random: &mut Random, session: u64) -> Vec<Op> {
    let count = 3 + random.below(12);
    (0..count)
        .map(|_| {
            let key = random.below(KEYS / SESSIONS) * SESSIONS + session;
            match random.below(10) {
                0..5 => Op::Write(key, [5, 100, 600, 1_200, 5, 100, 1_800, 30_000][random.below(8) as usize]),
                5..9 => Op::Delete(key),
                _ => Op::Look(random.below(KEYS)),
            }
        })
        .collect()
}

/// Runs transactions one after the other, many of which abort. The lengths of the texts that are left, and how many transactions
/// found no memory.
async fn a_session(
    session: &Session,
    items: TableRef<Items>,
    number: u64,
    mut random: Random,
) -> Result<(BTreeMap<u64, usize>, usize), Abort> {
    let (mut texts, mut refused) = (BTreeMap::new(), 0);
    for _ in 0..25 {
        let ops = operations(&mut random, number);
        let (aborts, in_session) = (random.chance(50), ops.clone());
        let home = Route::worker(WorkerId(random.below(WORKERS as u64) as u16));
        let done = session
            .run(&home, async move |tx| {
                for op in in_session.iter().cloned() {
                    match op {
                        Op::Write(key, len) => {
                            let text = "x".repeat(len);
                            let own = text.clone();
                            if tx.update(items, key, move |row| row.text = own).await?.is_none() {
                                tx.insert(items, key, Item { value: 1, text }).await?;
                            }
                        }
                        Op::Delete(key) => drop(tx.delete(items, key).await?),
                        Op::Look(key) => drop(tx.get(items, key).await?),
                    }
                }
                if aborts { Err(Abort::user("as it was told")) } else { Ok(()) }
            })
            .await;
        match done {
            Ok(()) => ops.into_iter().for_each(|op| match op {
                Op::Write(key, len) => drop(texts.insert(key, len)),
                Op::Delete(key) => drop(texts.remove(&key)),
                Op::Look(_) => {}
            }),
            Err(abort) if abort.reason() == AbortReason::User => {}
            Err(abort) if abort.reason() == AbortReason::Deadlock => {}
            Err(abort) if abort.reason() == AbortReason::OutOfMemory => refused += 1,
            Err(abort) => return Err(abort),
        }
        session.yield_now().await;
    }
    Ok((texts, refused))
}

/// One run of sessions; panics when anything is wrong. The chunks that were asked for, and how many transactions found no memory.
fn run(seed: u64, refusal: Refusal) -> (usize, usize) {
    let schema = Schema::new().table::<Items>().split_evenly("items", 0, KEYS - 1);
    let (mut simulation, asked) = simulation(schema, seed, refusal);
    let items = simulation.table::<Items>().expect("it is in the schema");
    let random = Random::new(seed);
    let sessions: Vec<_> = (0..SESSIONS)
        .map(|number| {
            let random = random.part(number as usize);
            let worker = WorkerId((number % WORKERS as u64) as u16);
            simulation
                .spawn_session(worker, async move |session| a_session(&session, items, number, random).await)
        })
        .collect();
    assert!(simulation.run(STEPS_MAX), "it does not come to rest");
    let (mut texts, mut refused) = (BTreeMap::new(), 0);
    for session in sessions {
        let (own, own_refused) = session.take().expect("it is at rest").expect("only memory is refused");
        texts.extend(own);
        refused += own_refused;
    }
    simulation.check_trees().expect("the trees are whole");
    let left = simulation.submit(&Route::worker(WorkerId(0)), async move |tx| {
        let rows = tx.scan(items, KeyRange::all(), usize::MAX).await?;
        Ok(rows.into_iter().map(|(key, row)| (key, row.text.len())).collect::<BTreeMap<_, _>>())
    });
    assert!(simulation.run(STEPS_MAX), "it does not come to rest");
    assert_eq!(left.take().expect("it is at rest").expect("a scan takes no memory"), texts);
    (asked.load(Ordering::Relaxed), refused)
}

/// Runs with every chunk refused in turn, alone and with all after it. How many transactions found no memory.
fn run_with_every_refusal(seed: u64) -> usize {
    let (chunks, refused) = run(seed, Refusal::Never);
    assert_eq!(refused, 0);
    let refusals = (0..chunks).flat_map(|number| [Refusal::One(number), Refusal::From(number)]);
    refusals.map(|refusal| run(seed, refusal).1).sum()
}

#[test]
fn aborts_put_everything_back_whenever_memory_ends() {
    crate::support::for_seeds(5, |seed| assert!(run_with_every_refusal(seed) > 0, "nothing was refused"));
}

#[cfg(debug_assertions)]
#[test]
fn setting_nothing_aside_is_caught() {
    use atrapos::planted::{Bug, with};

    // The engine stops the process in which it cannot undo a change: that has to be another one.
    const MARK: &str = "ATRAPOS_SETS_NOTHING_ASIDE";
    if std::env::var_os(MARK).is_some() {
        with(Bug::NothingSetAside, || (0..40).map(run_with_every_refusal).sum::<usize>());
        return;
    }
    let this = std::env::current_exe().expect("a test knows its own path");
    let stopped = std::process::Command::new(this)
        .args(["--exact", "memory::setting_nothing_aside_is_caught", "--nocapture"])
        .env(MARK, "1")
        .output()
        .expect("the test starts");
    let said = String::from_utf8_lossy(&stopped.stderr);
    assert!(!stopped.status.success() && said.contains("undo could not put a row back"), "{said}");
}

// --- Changes of the scheme -------------------------------------------------------------------------------------------

macro_rules! parts {
    ($($name:ident $text:literal),+) => {
        $(
            struct $name;

            impl Table for $name {
                type Key = u64;
                type Row = Item;
                const NAME: &'static str = $text;
                const FAMILY: &'static str = "parts";
            }
        )+
    };
}

parts!(First "first", Second "second", Third "third");

/// Keys from here on are on the other worker.
const ELSEWHERE: u64 = 1_000;

/// Where the partition is cut.
const CUT: u64 = 500;

/// A family of three tables with nearly as many rows each as fill the first chunk, of which one transaction has deleted some
/// and goes on reading until it is told to abort.
struct Family {
    simulation: Simulation,
    tables: (TableRef<First>, TableRef<Second>, TableRef<Third>),
    /// Chunks that may still be had.
    left: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    rows: [u64; 3],
}

impl Family {
    fn new(fill: u64) -> Family {
        let (left, refused) = (Arc::new(AtomicUsize::new(usize::MAX)), Arc::default());
        let memory = RationedMemory::new({
            let (left, refused) = (Arc::clone(&left), Arc::<AtomicUsize>::clone(&refused));
            move |_| {
                let one = |left: usize| left.checked_sub(1);
                let has = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one).is_ok();
                refused.fetch_add(usize::from(!has), Ordering::Relaxed);
                has
            }
        });
        let schema =
            Schema::new().table::<First>().table::<Second>().table::<Third>().split_at("parts", &[ELSEWHERE]);
        let simulation =
            Simulation::with_memory(schema, WORKERS, fill, Arc::new(memory)).expect("it is fine");
        let tables = (
            simulation.table().expect("it is there"),
            simulation.table().expect("it is there"),
            simulation.table().expect("it is there"),
        );
        let rows = [fill, fill + 3, fill + 5];
        let mut family = Family { simulation, tables, left, refused, rows };
        let (first, second, third) = tables;
        let inserted = family.simulation.submit(&first.at(&0), async move |tx| {
            let item = || Item { value: 7, text: "x".repeat(1_200) };
            tx.insert(first, ELSEWHERE, item()).await?;
            for number in 0..rows[2] {
                // In no order, on both sides of the cut.
                let key = number * 377 % 997;
                if number < rows[0] {
                    tx.insert(first, key, item()).await?;
                }
                if number < rows[1] {
                    tx.insert(second, key, item()).await?;
                }
                tx.insert(third, key, item()).await?;
            }
            Ok(())
        });
        assert!(family.simulation.run(STEPS_MAX));
        inserted.take().expect("it is at rest").expect("there is memory");
        family
    }

    /// Changes the scheme while a transaction is suspended that has deleted rows, in `chunks` more chunks of memory; the
    /// transaction aborts afterwards.
    fn change(&mut self, change: SchemeChange, chunks: usize) -> Result<RepartitionReport, Abort> {
        let (first, second, third) = self.tables;
        let told = Arc::new(AtomicBool::new(false));
        let to_abort = Arc::clone(&told);
        // With an even number of rows nothing is set aside.
        let deleted = 2..if self.rows[0].is_multiple_of(2) { 2 } else { 8 };
        let deleting = self.simulation.submit(&first.at(&0), async move |tx| {
            for number in deleted.clone() {
                let key = number * 377 % 997;
                tx.delete(first, key).await?;
                tx.delete(second, key).await?;
                tx.update(third, key, |row| row.text.clear()).await?;
            }
            while !to_abort.load(Ordering::Relaxed) {
                tx.get(first, ELSEWHERE).await?;
            }
            Err::<(), Abort>(Abort::user("as it was told"))
        });
        self.simulation.run_for(2_000);
        self.left.store(chunks, Ordering::Relaxed);
        let changed = self.simulation.repartition(vec![change]);
        let outcome = loop {
            self.simulation.run_for(1);
            if let Some(outcome) = changed.take() {
                break outcome;
            }
        };
        self.simulation.check_trees().expect("the trees are whole");
        told.store(true, Ordering::Relaxed);
        assert!(self.simulation.run(STEPS_MAX));
        let aborted = deleting.take().expect("it is at rest").expect_err("it was told to abort");
        assert_eq!(aborted.reason(), AbortReason::User, "{aborted}");
        self.check();
        self.left.store(usize::MAX, Ordering::Relaxed);
        outcome
    }

    fn check(&mut self) {
        self.simulation.check_trees().expect("the trees are whole");
        let (first, second, third) = self.tables;
        let read = self.simulation.submit(&first.at(&0), async move |tx| {
            let all = || KeyRange::all();
            let here = |rows: Vec<(u64, Item)>| {
                let whole = rows.iter().all(|(_, row)| row.text.len() == 1_200);
                assert!(whole, "a row is not as it was");
                rows.into_iter().filter(|(key, _)| *key < ELSEWHERE).count() as u64
            };
            Ok([
                here(tx.scan(first, all(), usize::MAX).await?),
                here(tx.scan(second, all(), usize::MAX).await?),
                here(tx.scan(third, all(), usize::MAX).await?),
            ])
        });
        assert!(self.simulation.run(STEPS_MAX));
        assert_eq!(read.take().expect("it is at rest"), Ok(self.rows));
        assert_eq!(self.simulation.locks(), (0, 0));
    }

    fn partitions(&self) -> usize {
        self.simulation.scheme().family(self.tables.0.id()).partitions()
    }
}

/// Makes a change with so many chunks of memory, and once more with as much as it takes. Whether memory was refused.
fn all_or_none(family: &mut Family, change: &SchemeChange, chunks: usize) -> bool {
    let before = family.partitions();
    family.refused.store(0, Ordering::Relaxed);
    match family.change(change.clone(), chunks) {
        Ok(_) => {}
        Err(abort) => {
            assert_eq!(abort.reason(), AbortReason::OutOfMemory, "{abort}");
            assert_eq!(family.partitions(), before);
            family.change(change.clone(), usize::MAX).expect("there is memory");
        }
    }
    assert_ne!(family.partitions(), before);
    family.refused.load(Ordering::Relaxed) > 0
}

#[test]
fn a_family_is_split_and_merged_whole_or_not_at_all_whenever_memory_ends() {
    let at = atrapos::Key::encode(&CUT);
    let mut refused = [0, 0];
    for fill in 16..80 {
        for chunks in 0..3 {
            let mut family = Family::new(fill);
            let table = family.tables.0.id();
            let split = SchemeChange::Split { table, at: at.clone() };
            refused[0] += usize::from(all_or_none(&mut family, &split, chunks));
            let merge = SchemeChange::Merge { table, at: at.clone() };
            refused[1] += usize::from(all_or_none(&mut family, &merge, chunks));
        }
    }
    assert!(refused.iter().all(|count| *count > 0), "no memory was refused: {refused:?}");
}
