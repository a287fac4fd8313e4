//! Threads whose transactions conflict all the time, and what must hold whoever wins.

use std::ops::ControlFlow;

use atrapos_baselines::planted::with_pauses;
use atrapos_baselines::{Engine, EngineClient, Intent};
use atrapos_partition::abort::Abort;

use super::{OTHER, TABLE, check, everywhere, get, load, number, put, range, rows, run};

const THREADS: u64 = 4;

fn scaled(rounds: u64) -> u64 {
    if cfg!(miri) { 3 } else { rounds }
}

/// A stream of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Runs a client on each of some threads, with pauses.
fn on_threads(engine: &dyn Engine, client: impl Fn(u64, &mut dyn EngineClient, &mut Random) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let client = &client;
            scope.spawn(move || {
                let mut random = Random(thread);
                with_pauses(thread + 17, || client(thread, &mut *engine.client(), &mut random));
            });
        }
    });
    check(engine);
}

fn unwrapped<T>(result: Result<T, Abort>) -> T {
    result.unwrap_or_else(|abort| panic!("{abort}"))
}

#[test]
fn no_update_is_lost() {
    for engine in everywhere().map(|engine| engine()) {
        load(&*engine, TABLE, [(1, 0)]);
        let rounds = scaled(800);
        on_threads(&*engine, |_, client, _| {
            for _ in 0..rounds {
                unwrapped(run(client, |tx| {
                    let before = get(tx, TABLE, 1)?.unwrap_or(0);
                    put(tx, TABLE, 1, before + 1)
                }));
            }
        });
        assert_eq!(rows(&*engine, TABLE), [(1, THREADS * rounds)]);
    }
}

#[test]
fn transfers_keep_the_sum_that_scans_see() {
    for engine in everywhere().map(|engine| engine()) {
        const ACCOUNTS: u64 = 100;
        load(&*engine, TABLE, (0..ACCOUNTS).map(|account| (account, 1000)));
        on_threads(&*engine, |_, client, random| {
            for round in 0..scaled(600) {
                let (from, to, amount) = (random.below(ACCOUNTS), random.below(ACCOUNTS), random.below(50));
                if round % 8 == 0 {
                    let backward = random.below(2) == 0;
                    let all = unwrapped(run(client, |tx| range(tx, TABLE, (0, None), backward)));
                    assert_eq!(all.iter().map(|(_, balance)| balance).sum::<u64>(), ACCOUNTS * 1000);
                    continue;
                }
                // Now and then an account is closed, and its balance carried over to another one, or opened again.
                unwrapped(run(client, |tx| {
                    let balance = get(tx, TABLE, from)?.unwrap_or(0);
                    let amount = if round % 5 == 0 { balance } else { amount.min(balance) };
                    if balance == amount {
                        tx.remove(TABLE, &from.to_be_bytes())?;
                    } else {
                        put(tx, TABLE, from, balance - amount)?;
                    }
                    let balance = get(tx, TABLE, to)?.unwrap_or(0);
                    put(tx, TABLE, to, balance + amount)
                }));
            }
        });
        assert_eq!(rows(&*engine, TABLE).iter().map(|(_, balance)| balance).sum::<u64>(), ACCOUNTS * 1000);
    }
}

#[test]
fn of_those_who_count_a_range_and_insert_one_wins() {
    for engine in everywhere().map(|engine| engine()) {
        on_threads(&*engine, |thread, client, random| {
            for round in 0..scaled(250) {
                let (key, backward) = (round * 1000 + 10 * random.below(90) + thread, random.below(2) == 0);
                unwrapped(run(client, |tx| {
                    let counted =
                        range(tx, TABLE, (round * 1000, Some(round * 1000 + 1000)), backward)?.len();
                    if counted.is_multiple_of(2)
                        && !tx.insert(TABLE, &key.to_be_bytes(), &0_u64.to_be_bytes())?
                    {
                        return Err(Abort::user("the key is taken"));
                    }
                    Ok(())
                }));
            }
        });
        for round in 0..scaled(250) {
            let keys = rows(&*engine, TABLE).into_iter().filter(|(key, _)| key / 1000 == round);
            assert_eq!(keys.count(), 1, "whoever comes second finds an odd number");
        }
    }
}

#[test]
fn two_rows_are_never_both_zero() {
    for engine in everywhere().map(|engine| engine()) {
        load(&*engine, TABLE, [(0, 1), (1, 1)]);
        on_threads(&*engine, |thread, client, _| {
            let own = thread % 2;
            for _ in 0..scaled(500) {
                unwrapped(run(client, |tx| {
                    let (mine, other) = (get(tx, TABLE, own)?, get(tx, TABLE, 1 - own)?);
                    let sum = mine.unwrap_or(0) + other.unwrap_or(0);
                    put(tx, TABLE, own, u64::from(sum < 2))
                }));
                let sum = unwrapped(run(client, |tx| {
                    Ok(range(tx, TABLE, (0, None), false)?.iter().map(|(_, row)| row).sum::<u64>())
                }));
                assert!(sum > 0, "each gives its row up only while the other one has it");
            }
        });
    }
}

#[test]
fn a_queue_hands_out_each_row_once_in_order() {
    for engine in everywhere().map(|engine| engine()) {
        let rounds = scaled(300);
        on_threads(&*engine, |_, client, _| {
            for _ in 0..rounds {
                // The tail is numbered in another table.
                unwrapped(run(client, |tx| {
                    let tail = get(tx, OTHER, 0)?.unwrap_or(0);
                    put(tx, OTHER, 0, tail + 1)?;
                    put(tx, TABLE, tail, tail)
                }));
                unwrapped(run(client, |tx| {
                    let mut first = None;
                    tx.scan(TABLE, (&[], None), false, &mut |key, _| {
                        first = Some(key.to_vec());
                        Ok(ControlFlow::Break(()))
                    })?;
                    let Some(first) = first else { return Ok(()) };
                    let taken = get(tx, OTHER, 1)?.unwrap_or(0);
                    if number(&first) != taken {
                        return Err(Abort::user("the rows were taken out of order"));
                    }
                    put(tx, OTHER, 1, taken + 1)?;
                    // An assertion would fail in a transaction that has seen two moments; an error is validated first.
                    if tx.remove(TABLE, &first)? { Ok(()) } else { Err(Abort::user("the row has gone")) }
                }));
            }
        });
        let counts = rows(&*engine, OTHER);
        assert_eq!(counts[0], (0, THREADS * rounds));
        assert_eq!(counts[0].1 - counts[1].1, rows(&*engine, TABLE).len() as u64);
    }
}

#[test]
fn rows_of_changing_length_are_never_torn() {
    for engine in everywhere().map(|engine| engine()) {
        let row = |byte: u64, len: u64| vec![byte as u8; len as usize];
        let at_first: Vec<_> =
            (0..4_u64).map(|key| ((&key.to_be_bytes()[..]).into(), row(key, 20).into())).collect();
        assert_eq!(engine.load(TABLE, &at_first), Ok(()));
        on_threads(&*engine, |thread, client, random| {
            for _ in 0..scaled(600) {
                let (key, byte) = (random.below(4).to_be_bytes(), random.below(250));
                let len = 1 + random.below(if byte % 16 == 0 { 600 } else { 60 });
                if thread % 2 == 0 {
                    unwrapped(run(client, |tx| {
                        tx.read(TABLE, &key, Intent::Write)?;
                        tx.replace(TABLE, &key, &row(byte, len))
                    }));
                } else {
                    unwrapped(run(client, |tx| {
                        let found = tx.read(TABLE, &key, Intent::Read)?.unwrap_or(&[]);
                        assert!(!found.is_empty() && found.iter().all(|byte| *byte == found[0]), "{found:?}");
                        Ok(())
                    }));
                }
            }
        });
    }
}
