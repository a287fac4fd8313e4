//! The least that a transaction on two sites takes: the rows, locks and messages of `atrapos bench micro --multisite 1`, and
//! nothing else of an engine.
//!
//! `two_sites <read|update> [seconds] [rounds]`
//!
//! Each of two pinned threads owns 10,000 rows in a `BTreeMap`. A local transaction touches ten rows of its thread and does
//! nothing more. One on two sites touches five rows of its thread and five of the other, and holds the ten locks of two-phase
//! locking in a hash table beside the rows, from the touch to the end: its home locks and touches its rows, sends one message
//! with five keys, gets one with five values, releases its locks, and sends one so that the others are released. Each
//! thread keeps 32 such transactions under way, sends and receives in batches, and waits for nothing else. Where a lock is
//! held by another it passes over the row instead of waiting: 640 locks on 20,000 rows seldom meet.
//!
//! Left out: tasks, procedures, routing, undo, redo, results, statistics, deadlocks, moving partitions. Prints the nanoseconds of
//! a thread per transaction, of both kinds, and the difference: what two sites cost before an engine does anything.

#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a program says what it measures and what is wrong"
)]

use std::collections::BTreeMap;
use std::hint::{black_box, spin_loop};
use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use atrapos_runtime::affinity::pin_current_thread;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use rtrb::{Consumer, Producer, RingBuffer};

/// Rows of each thread, as many as `micro` has on each site.
const ROWS: u64 = 10_000;
/// Rows of a transaction on each of two sites.
const HALF: usize = 5;
/// Transactions under way on each thread.
const UNDER_WAY: usize = 32;
/// Messages in a ring: more than can be under way.
const RING: usize = 8 * UNDER_WAY;
/// Transactions between two looks at the clock.
const BETWEEN_LOOKS: u64 = 256;

type Error = Box<dyn std::error::Error>;
type Keys = [u64; HALF];

/// A message, in one cache line. Each names the transaction by its place among those under way at its home.
#[derive(Clone, Copy)]
#[repr(align(64))]
enum Message {
    Touch(u32, Keys),
    Touched(u32, Keys),
    End(u32),
}

const _: () = assert!(size_of::<Message>() == 64);

/// A thread's rows, and who holds locks on them.
struct Site {
    rows: BTreeMap<u64, u64>,
    /// The number of holders by key; the top bit is set if the one holder has it for itself.
    locks: HashMap<u64, u32>,
    updates: bool,
    random: u64,
    passed_over: u64,
}

const EXCLUSIVE: u32 = 1 << 31;
/// Notes of a transaction, in the place of a row that it passed over.
const PASSED_OVER: u64 = u64::MAX;

impl Site {
    fn new(thread: u64, updates: bool) -> Site {
        let rows = (0..ROWS).map(|key| (key, 0)).collect();
        let random = 0x9e37_79b9_7f4a_7c15 ^ (thread + 1);
        Site { rows, locks: HashMap::new(), updates, random, passed_over: 0 }
    }

    /// Draws a key (xorshift).
    fn key(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % ROWS
    }

    fn keys(&mut self) -> Keys {
        std::array::from_fn(|_| self.key())
    }

    fn touch(&mut self, key: u64) -> u64 {
        let row = self.rows.get_mut(&key).expect("all keys have rows");
        *row += u64::from(self.updates);
        *row
    }

    /// Locks and touches rows, and returns their values. Keys whose rows are locked are replaced.
    fn lock_and_touch(&mut self, keys: &mut Keys) -> Keys {
        let wanted = if self.updates { EXCLUSIVE } else { 1 };
        keys.each_mut().map(|key| {
            let lock = self.locks.entry(*key).or_insert(0);
            if *lock != 0 && (self.updates || *lock == EXCLUSIVE) {
                *key = PASSED_OVER;
                self.passed_over += 1;
                return 0;
            }
            *lock += wanted;
            self.touch(*key)
        })
    }

    fn release(&mut self, keys: &Keys) {
        for key in keys.iter().filter(|key| **key != PASSED_OVER) {
            if let Entry::Occupied(mut lock) = self.locks.entry(*key) {
                *lock.get_mut() -= 1;
                if *lock.get() == 0 || self.updates {
                    lock.remove();
                }
            }
        }
    }

    /// Runs local transactions for about so long; returns nanoseconds per transaction.
    fn run_local(&mut self, time: Duration) -> f64 {
        let (began, mut done) = (Instant::now(), 0);
        while began.elapsed() < time {
            for _ in 0..BETWEEN_LOOKS {
                let keys = [self.keys(), self.keys()];
                black_box(keys.map(|keys| keys.map(|key| self.touch(key))));
            }
            done += BETWEEN_LOOKS;
        }
        began.elapsed().as_nanos() as f64 / done as f64
    }
}

/// The transactions on two sites of one thread.
struct Home<'a> {
    site: &'a mut Site,
    outbox: Producer<Message>,
    inbox: Consumer<Message>,
    /// The keys on which each own transaction holds locks here.
    own: [Keys; UNDER_WAY],
    /// The keys on which each transaction of the other thread does.
    others: [Keys; UNDER_WAY],
    free: Vec<u32>,
    done: u64,
}

impl Home<'_> {
    fn send(&mut self, message: Message) {
        while self.outbox.push(message).is_err() {
            spin_loop();
        }
    }

    /// Begins as many transactions as there is room for.
    fn begin(&mut self) {
        while let Some(slot) = self.free.pop() {
            let mut keys = self.site.keys();
            black_box(self.site.lock_and_touch(&mut keys));
            self.own[slot as usize] = keys;
            let message = Message::Touch(slot, self.site.keys());
            self.send(message);
        }
    }

    /// Handles the messages that have arrived.
    fn receive(&mut self) {
        let arrived = self.inbox.slots();
        for _ in 0..arrived {
            let Ok(message) = self.inbox.pop() else { return };
            match message {
                Message::Touch(slot, mut keys) => {
                    let values = self.site.lock_and_touch(&mut keys);
                    self.others[slot as usize] = keys;
                    self.send(Message::Touched(slot, values));
                }
                Message::Touched(slot, values) => {
                    black_box(values);
                    self.site.release(&self.own[slot as usize]);
                    self.send(Message::End(slot));
                    self.free.push(slot);
                    self.done += 1;
                }
                Message::End(slot) => self.site.release(&self.others[slot as usize]),
            }
        }
    }

    /// Runs transactions until `stop`, and answers the other thread as long as it runs some.
    fn run(mut self, time: Duration, running: &AtomicU32) -> f64 {
        let began = Instant::now();
        while began.elapsed() < time {
            let before = self.done;
            while self.done - before < BETWEEN_LOOKS {
                self.begin();
                self.receive();
            }
        }
        let taken = began.elapsed().as_nanos() as f64 / self.done as f64;
        while self.free.len() < UNDER_WAY {
            self.receive();
        }
        running.fetch_sub(1, Ordering::Release);
        while running.load(Ordering::Acquire) > 0 {
            self.receive();
        }
        self.receive();
        taken
    }
}

/// Runs `work` on two pinned threads at a time, and returns the mean of what they return.
fn on_both(works: [Box<dyn FnOnce() -> f64 + Send + '_>; 2]) -> f64 {
    let barrier = Barrier::new(2);
    let results = std::thread::scope(|scope| {
        let mut cpu = 0..2;
        let threads = works.map(|work| {
            let (barrier, cpu) = (&barrier, cpu.next().unwrap_or(0));
            scope.spawn(move || {
                // Best effort: an unpinned thread measures too.
                let _ = pin_current_thread(cpu);
                barrier.wait();
                work()
            })
        });
        threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    results.iter().sum::<f64>() / 2.0
}

fn measure(updates: bool, time: Duration, rounds: u32) {
    let mut sites = [0, 1].map(|thread| Site::new(thread, updates));
    for _ in 0..rounds {
        let local = on_both(sites.each_mut().map(|site| {
            let work: Box<dyn FnOnce() -> f64 + Send + '_> = Box::new(|| site.run_local(time));
            work
        }));
        let running = AtomicU32::new(2);
        let (to_second, from_first) = RingBuffer::new(RING);
        let (to_first, from_second) = RingBuffer::new(RING);
        let mut ends = [Some((to_second, from_second)), Some((to_first, from_first))].into_iter();
        let distributed = on_both(sites.each_mut().map(|site| {
            let (outbox, inbox) = ends.next().flatten().expect("each thread has its ends of the rings");
            let (own, others) = ([[PASSED_OVER; HALF]; UNDER_WAY], [[PASSED_OVER; HALF]; UNDER_WAY]);
            let free = (0..UNDER_WAY as u32).collect();
            let running = &running;
            let home = Home { site, outbox, inbox, own, others, free, done: 0 };
            let work: Box<dyn FnOnce() -> f64 + Send + '_> = Box::new(move || home.run(time, running));
            work
        }));
        let passed_over: u64 = sites.iter().map(|site| site.passed_over).sum();
        println!(
            "local {local:.0} ns, on two sites {distributed:.0} ns, difference {:.0} ns; rows passed over so far: {passed_over}",
            distributed - local
        );
    }
    assert!(sites.iter().all(|site| site.locks.is_empty()), "all locks were released");
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let at = |place: usize, default: &'static str| arguments.get(place).map_or(default, String::as_str);
    let run = || -> Result<(), Error> {
        let updates = match at(0, "read") {
            "read" => false,
            "update" => true,
            other => return Err(format!("'{other}' is neither read nor update").into()),
        };
        let (seconds, rounds) = (at(1, "2").parse()?, at(2, "3").parse()?);
        if !(0.0..1e6).contains(&seconds) {
            return Err("use fewer than a million seconds".into());
        }
        measure(updates, Duration::from_secs_f64(seconds), rounds);
        Ok(())
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}; use two_sites <read|update> [seconds] [rounds]");
            ExitCode::from(2)
        }
    }
}
