//! The anomalies of Hermitage, Martin Kleppmann's test suite of isolation levels, by their names there: G0, G1a, G1b, G1c, OTV,
//! PMP, P4, G-single, G2-item and G2 (Adya 1999; Berenson et al. 1995). Each is the suite's own schedule of two or three
//! transactions, led step by step, with the waiting, aborting and reading that a serializable engine owes it.
//!
//! Some seeds have partitions move between the steps. Every schedule returns what it found wrong: the planted bugs are put
//! before the same schedules.

use super::by_hand::{Answer, Hands, Step, numbers};
use super::simulated;
use crate::support::Engine;
use Answer::{Rows, Wrote};
use Step::{AddToAll, All, DeleteWhere, Get, Insert, Set, SetWhere, Where};

/// Dirty writes: two transactions each write both rows, and the writes of one come between those of the other.
pub(crate) fn g0(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let mut hands = Hands::new(engine, workers, seed)?;
    hands.writes(1, Set(1, 11))?;
    hands.waits(2, Set(1, 12))?;
    hands.writes(1, Set(2, 21))?;
    hands.commits(1)?;
    hands.answers(2, &Wrote(1))?;
    hands.writes(2, Set(2, 22))?;
    hands.commits(2)?;
    hands.leaves(&[(1, 12), (2, 22)])
}

/// Aborted reads: what a transaction wrote that aborts is seen by nobody.
pub(crate) fn g1a(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let mut hands = Hands::new(engine, workers, seed)?;
    hands.writes(1, Set(1, 101))?;
    hands.waits(2, All)?;
    hands.aborts(1)?;
    hands.answers(2, &Rows(vec![(1, 10), (2, 20)]))?;
    hands.commits(2)?;
    hands.leaves(&[(1, 10), (2, 20)])
}

/// Intermediate reads: nobody sees a value that its writer wrote over before it committed.
pub(crate) fn g1b(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let mut hands = Hands::new(engine, workers, seed)?;
    hands.writes(1, Set(1, 101))?;
    hands.waits(2, Get(1))?;
    hands.writes(1, Set(1, 11))?;
    hands.commits(1)?;
    hands.answers(2, &Rows(vec![(1, 11)]))?;
    hands.commits(2)?;
    hands.leaves(&[(1, 11), (2, 20)])
}

/// Circular information flow: each of two transactions reads what the other one wrote.
pub(crate) fn g1c(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let mut hands = Hands::new(engine, workers, seed)?;
    hands.writes(1, Set(1, 11))?;
    hands.writes(2, Set(2, 22))?;
    hands.waits(1, Get(2))?;
    hands.tell(2, Get(1));
    // Whoever goes on sees what was there before, as the other one is undone.
    let winner = hands.one_gives_way([(1, Rows(vec![(2, 20)])), (2, Rows(vec![(1, 10)]))])?;
    hands.commits(winner)?;
    hands.leaves(if winner == 1 { &[(1, 11), (2, 20)] } else { &[(1, 10), (2, 22)] })
}

/// Observed transaction vanishes: what a third transaction has seen of one is not gone when it looks again.
pub(crate) fn otv(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let mut hands = Hands::new(engine, workers, seed)?;
    hands.writes(1, Set(1, 11))?;
    hands.writes(1, Set(2, 19))?;
    hands.waits(2, Set(1, 12))?;
    hands.commits(1)?;
    hands.answers(2, &Wrote(1))?;
    hands.waits(3, Get(1))?;
    hands.writes(2, Set(2, 18))?;
    hands.commits(2)?;
    hands.answers(3, &Rows(vec![(1, 12)]))?;
    hands.sees(3, Get(2), &[(2, 18)])?;
    hands.sees(3, Get(1), &[(1, 12)])?;
    hands.commits(3)?;
    hands.leaves(&[(1, 12), (2, 18)])
}

/// Predicate-many-preceders: a predicate that nothing fulfilled is fulfilled by nothing later in the transaction. The rows are
/// found by reading all of them.
pub(crate) fn pmp(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    predicate_many_preceders(engine, workers, seed, &All, &[(1, 10), (2, 20)])
}

/// The same, with rows that are found through the index.
pub(crate) fn pmp_by_index(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    predicate_many_preceders(engine, workers, seed, &Where(30), &[])
}

fn predicate_many_preceders(
    engine: &mut Engine,
    workers: usize,
    seed: u64,
    look: &Step,
    seen: &[(u64, u32)],
) -> Result<(), String> {
    let mut hands = Hands::new(engine, workers, seed)?;
    hands.sees(1, look.clone(), seen)?;
    hands.waits(2, Insert(3, 30))?;
    hands.sees(1, look.clone(), seen)?;
    hands.commits(1)?;
    hands.answers(2, &Wrote(1))?;
    hands.commits(2)?;
    hands.leaves(&[(1, 10), (2, 20), (3, 30)])
}

/// Predicate-many-preceders with a predicate of a write: what is deleted are the rows that have the value after those before.
pub(crate) fn pmp_write(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let mut hands = Hands::new(engine, workers, seed)?;
    hands.does(1, AddToAll(10), &Wrote(2))?;
    hands.waits(2, DeleteWhere(20))?;
    hands.commits(1)?;
    hands.answers(2, &Wrote(1))?;
    hands.sees(2, All, &[(2, 30)])?;
    hands.commits(2)?;
    hands.leaves(&[(2, 30)])
}

/// Lost update: two transactions read a row and write what follows from it.
pub(crate) fn p4(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let mut hands = Hands::new(engine, workers, seed)?;
    hands.sees(1, Get(1), &[(1, 10)])?;
    hands.sees(2, Get(1), &[(1, 10)])?;
    hands.waits(1, Set(1, 11))?;
    hands.tell(2, Set(1, 12));
    let winner = hands.one_gives_way([(1, Wrote(1)), (2, Wrote(1))])?;
    hands.commits(winner)?;
    hands.leaves(&[(1, 10 + winner as u32), (2, 20)])
}

/// Read skew: a transaction reads one row before and another one after somebody has changed both.
pub(crate) fn g_single(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let mut hands = Hands::new(engine, workers, seed)?;
    hands.sees(1, Get(1), &[(1, 10)])?;
    hands.sees(2, Get(1), &[(1, 10)])?;
    hands.sees(2, Get(2), &[(2, 20)])?;
    hands.waits(2, Set(1, 12))?;
    hands.sees(1, Get(2), &[(2, 20)])?;
    hands.commits(1)?;
    hands.answers(2, &Wrote(1))?;
    hands.writes(2, Set(2, 18))?;
    hands.commits(2)?;
    hands.leaves(&[(1, 12), (2, 18)])
}

/// Read skew between a predicate and the rows that fulfil it later.
pub(crate) fn g_single_predicate(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let mut hands = Hands::new(engine, workers, seed)?;
    hands.sees(1, All, &[(1, 10), (2, 20)])?;
    hands.waits(2, SetWhere(10, 12))?;
    hands.sees(1, Where(12), &[])?;
    hands.sees(1, Where(10), &[(1, 10)])?;
    hands.commits(1)?;
    hands.answers(2, &Wrote(1))?;
    hands.commits(2)?;
    hands.leaves(&[(1, 12), (2, 20)])
}

/// Read skew in which the transaction that has read deletes by a predicate of what was changed meanwhile.
pub(crate) fn g_single_write(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let mut hands = Hands::new(engine, workers, seed)?;
    hands.sees(1, Get(1), &[(1, 10)])?;
    hands.sees(2, All, &[(1, 10), (2, 20)])?;
    hands.waits(2, Set(1, 12))?;
    hands.tell(1, DeleteWhere(20));
    let winner = hands.one_gives_way([(1, Wrote(1)), (2, Wrote(1))])?;
    if winner == 1 {
        hands.commits(1)?;
        return hands.leaves(&[(1, 10)]);
    }
    hands.writes(2, Set(2, 18))?;
    hands.commits(2)?;
    hands.leaves(&[(1, 12), (2, 18)])
}

/// Write skew: two transactions read two rows, and each writes the one that the other one does not write.
pub(crate) fn g2_item(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let mut hands = Hands::new(engine, workers, seed)?;
    for who in [1, 2] {
        hands.sees(who, Get(1), &[(1, 10)])?;
        hands.sees(who, Get(2), &[(2, 20)])?;
    }
    hands.waits(1, Set(1, 11))?;
    hands.tell(2, Set(2, 21));
    let winner = hands.one_gives_way([(1, Wrote(1)), (2, Wrote(1))])?;
    hands.commits(winner)?;
    hands.leaves(if winner == 1 { &[(1, 11), (2, 20)] } else { &[(1, 10), (2, 21)] })
}

/// Write skew over a predicate: two transactions find no row of a kind, and each inserts one. The rows are looked for by reading
/// all of them.
pub(crate) fn g2(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    anti_dependency_cycle(engine, workers, seed, &All, &[(1, 10), (2, 20)])
}

/// The same, with rows that are looked for in the index.
pub(crate) fn g2_by_index(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    anti_dependency_cycle(engine, workers, seed, &Where(30), &[])
}

fn anti_dependency_cycle(
    engine: &mut Engine,
    workers: usize,
    seed: u64,
    look: &Step,
    seen: &[(u64, u32)],
) -> Result<(), String> {
    let mut hands = Hands::new(engine, workers, seed)?;
    hands.sees(1, look.clone(), seen)?;
    hands.sees(2, look.clone(), seen)?;
    hands.waits(1, Insert(3, 30))?;
    hands.tell(2, Insert(4, 30));
    let winner = hands.one_gives_way([(1, Wrote(1)), (2, Wrote(1))])?;
    hands.commits(winner)?;
    let key = if winner == 1 { 3 } else { 4 };
    hands.leaves(&[(1, 10), (2, 20), (key, 30)])
}

/// Two anti-dependencies with a reader between them (Fekete, O'Neil, O'Neil 2004): the reader sees the second transaction's write
/// and not the first one's, which had read before the second one wrote.
pub(crate) fn g2_two_edges(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let mut hands = Hands::new(engine, workers, seed)?;
    hands.sees(1, All, &[(1, 10), (2, 20)])?;
    hands.waits(2, Set(2, 25))?;
    // The first one may write what it has read only if nobody else has read it.
    hands.writes(1, Set(1, 0))?;
    hands.waits(3, All)?;
    hands.commits(1)?;
    hands.answers(2, &Wrote(1))?;
    hands.commits(2)?;
    hands.answers(3, &Rows(vec![(1, 0), (2, 25)]))?;
    hands.commits(3)?;
    hands.leaves(&[(1, 0), (2, 25)])
}

/// Every schedule is a test of its name.
macro_rules! named {
    ($($name:ident),+) => {
        /// The tests.
        mod anomaly {
            $(
                #[test]
                fn $name() {
                    super::simulated(super::SEEDS, super::numbers, super::$name);
                }
            )+
        }
    };
}

/// Each schedule is led with so many seeds: transactions run on other workers, and partitions move or do not.
const SEEDS: u64 = 12;

named!(
    g0,
    g1a,
    g1b,
    g1c,
    otv,
    pmp,
    pmp_by_index,
    pmp_write,
    p4,
    g_single,
    g_single_predicate,
    g_single_write,
    g2_item,
    g2,
    g2_by_index,
    g2_two_edges
);
