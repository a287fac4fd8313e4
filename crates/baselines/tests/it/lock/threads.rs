//! Threads that lock at random: whoever has a lock is alone with what it excludes, no update is lost, and all come to an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use atrapos_baselines::lock::{Agent, KeyMode, KeyOrEnd, LockManager, LockOptions, TableMode};
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::schema::TableId;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const THREADS: u64 = 6;
const KEYS: usize = 5;

/// Holders of the lock of one key and gap by what they may do, and a value that they change.
#[derive(Default)]
struct Cell {
    readers: AtomicUsize,
    writers: AtomicUsize,
    protecting: AtomicUsize,
    inserting: AtomicUsize,
    /// Incremented in two steps by whoever writes.
    value: AtomicU64,
}

impl Cell {
    fn counts(&self, mode: KeyMode) -> Vec<(&AtomicUsize, &AtomicUsize, usize)> {
        let all = [
            (KeyMode::WRITE, &self.writers, &self.readers),
            (KeyMode::READ, &self.readers, &self.writers),
            (KeyMode::PROTECT, &self.protecting, &self.inserting),
            (KeyMode::INSERT, &self.inserting, &self.protecting),
        ];
        let has = |part: KeyMode| mode.covers(part);
        let own = |part: KeyMode| match part {
            KeyMode::WRITE => usize::from(has(KeyMode::READ)),
            KeyMode::READ => usize::from(has(KeyMode::WRITE)),
            KeyMode::PROTECT => usize::from(has(KeyMode::INSERT)),
            _ => usize::from(has(KeyMode::PROTECT)),
        };
        all.iter()
            .filter(|(part, ..)| has(*part))
            .map(|(part, mine, theirs)| (*mine, *theirs, own(*part)))
            .collect()
    }

    /// Counts a holder, sees that no one else is there whom it excludes, and leaves.
    fn visit(&self, mode: KeyMode) {
        let counts = self.counts(mode);
        for (mine, ..) in &counts {
            mine.fetch_add(1, Ordering::SeqCst);
        }
        if mode.covers(KeyMode::WRITE) {
            let value = self.value.load(Ordering::Relaxed);
            thread::yield_now();
            self.value.store(value + 1, Ordering::Relaxed);
        }
        for (_, theirs, own) in &counts {
            assert_eq!(theirs.load(Ordering::SeqCst), *own, "{mode:?} is not alone");
        }
        for (mine, ..) in &counts {
            mine.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn random_mode(rng: &mut StdRng) -> KeyMode {
    [
        KeyMode::READ,
        KeyMode::WRITE,
        KeyMode::READ | KeyMode::PROTECT,
        KeyMode::PROTECT,
        KeyMode::INSERT,
        KeyMode::WRITE | KeyMode::INSERT,
    ][rng.random_range(0..6)]
}

/// One transaction: some locks in any order, with a visit under each while all before are held. Counts the writes by
/// key: what a victim has written stays written, as the cells are no database.
fn transaction(
    agent: &mut Agent,
    cells: &[Cell],
    whole: &Cell,
    rng: &mut StdRng,
    written: &mut [u64; KEYS],
) -> Result<(), Abort> {
    let table = TableId(3);
    match rng.random_range(0..12) {
        0 => agent.lock_table(table, TableMode::S)?,
        1 => agent.lock_table(table, TableMode::X)?,
        2 => agent.lock_database(TableMode::S)?,
        _ => {}
    }
    // Whoever has the whole table keeps writers, or everybody, out of all keys.
    let covers_writes = agent.held(table, KeyOrEnd::End).covers(KeyMode::WRITE);
    if covers_writes {
        whole.visit(KeyMode::WRITE);
    }
    for _ in 0..rng.random_range(1..5) {
        let at = rng.random_range(0..KEYS);
        let mode = random_mode(rng);
        let key = [at as u8];
        let key = if at == 0 { KeyOrEnd::End } else { KeyOrEnd::Key(&key) };
        agent.lock(table, key, mode)?;
        assert!(agent.held(table, key).covers(mode));
        if !covers_writes {
            whole.visit(KeyMode::READ);
        }
        cells[at].visit(mode);
        written[at] += u64::from(mode.covers(KeyMode::WRITE));
    }
    Ok(())
}

fn stress(inherit: bool, seed: u64) {
    let manager = LockManager::new(LockOptions { buckets: 4, inherit, ..LockOptions::default() });
    let cells: Arc<[Cell]> = (0..KEYS).map(|_| Cell::default()).collect();
    let whole = Arc::new(Cell::default());
    let stamps = Arc::new(AtomicU64::new(0));
    let threads = (0..THREADS).map(|number| {
        let (manager, cells, whole, stamps) =
            (Arc::clone(&manager), Arc::clone(&cells), Arc::clone(&whole), Arc::clone(&stamps));
        thread::spawn(move || {
            let mut rng = StdRng::seed_from_u64(seed * THREADS + number);
            let mut agent = manager.agent();
            let mut written = [0; KEYS];
            for _ in 0..400 {
                let stamp = stamps.fetch_add(1, Ordering::Relaxed);
                loop {
                    agent.begin(stamp);
                    let result = transaction(&mut agent, &cells, &whole, &mut rng, &mut written);
                    agent.release_all();
                    match result {
                        Ok(()) => break,
                        Err(abort) => assert_eq!(abort.reason(), AbortReason::Deadlock),
                    }
                }
            }
            (written, agent.counts())
        })
    });
    let done: Vec<_> = threads.collect::<Vec<_>>().into_iter().map(thread::JoinHandle::join).collect();
    let mut written = [0; KEYS];
    let (mut victims, mut cycles) = (0, 0);
    for result in done {
        let (writes, counts) = result.expect("no lock was granted wrongly");
        (0..KEYS).for_each(|at| written[at] += writes[at]);
        victims += counts.victims;
        cycles += counts.cycles;
    }
    assert_eq!(victims, cycles, "each cycle that was found has its victim, and there are no others");
    for (at, cell) in cells.iter().enumerate() {
        assert_eq!(cell.value.load(Ordering::Relaxed), written[at], "an update of key {at} is lost");
    }
}

#[test]
fn random_transactions_end_and_exclude_each_other() {
    for seed in 0..3 {
        stress(true, seed);
        stress(false, seed);
    }
}

/// Everybody waits for one lock: a wake-up that is lost leaves all asleep.
#[test]
fn a_hot_lock_is_handed_from_thread_to_thread() {
    let manager = LockManager::new(LockOptions::default());
    let value = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (manager, value) = (Arc::clone(&manager), Arc::clone(&value));
            thread::spawn(move || {
                let mut agent = manager.agent();
                for round in 0..2000 {
                    agent.begin(round * THREADS + number);
                    agent
                        .lock(TableId(0), KeyOrEnd::Key(b"hot"), KeyMode::WRITE)
                        .expect("one lock has no cycle");
                    let seen = value.load(Ordering::Relaxed);
                    if round % 64 == 0 {
                        thread::yield_now();
                    }
                    value.store(seen + 1, Ordering::Relaxed);
                    agent.release_all();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no thread fails"));
    assert_eq!(value.load(Ordering::Relaxed), THREADS * 2000);
}

/// Writers of the whole table against transactions that inherit their intention: every hand-over is invalidated again and again.
#[test]
fn inherited_locks_give_way_to_writers_of_the_table() {
    let manager = LockManager::new(LockOptions::default());
    let value = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..4u64)
        .map(|number| {
            let (manager, value) = (Arc::clone(&manager), Arc::clone(&value));
            thread::spawn(move || {
                let mut agent = manager.agent();
                for round in 0..3000 {
                    agent.begin(round * 4 + number);
                    let mode = if (round + number) % 16 == 0 { TableMode::X } else { TableMode::IX };
                    agent.lock_table(TableId(1), mode).expect("one table has no cycle");
                    if mode == TableMode::X {
                        let seen = value.load(Ordering::Relaxed);
                        thread::yield_now();
                        value.store(seen + 1, Ordering::Relaxed);
                    }
                    agent.release_all();
                }
                agent.counts()
            })
        })
        .collect();
    let counts: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no thread fails")).collect();
    let exclusive = (0..4u64).map(|number| (0..3000).filter(|round| (round + number) % 16 == 0).count());
    assert_eq!(value.load(Ordering::Relaxed), exclusive.sum::<usize>() as u64);
    assert!(counts.iter().all(|counts| counts.reclaimed > 0), "locks were inherited meanwhile");
}
