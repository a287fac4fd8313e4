//! Order yields to locks: where transactions would wait for each other only because of the order in which they came, none of them
//! has to give way. Each schedule is led step by step. Partitions stay where they are: order is a matter of one lock table, and
//! who waits for a partition that moves queues again. Nobody looks for cycles meanwhile, so that one would last.

use super::by_hand::{Answer, Hands, Step, numbers};
use crate::support::{Engine, for_seeds};
use Answer::{Rows, Wrote};
use Step::{All, Get, Insert, Set};
use atrapos::AbortReason;
use atrapos::planted::{self, Bug};

fn no_deadlock(engine: &Engine) -> Result<(), String> {
    match engine.statistics().aborted_for(AbortReason::Deadlock) {
        0 => Ok(()),
        count => Err(format!("{count} transactions were victims although no locks were in a cycle")),
    }
}

/// One writes a row that it has read, while another one waits to write it, and a scan waits behind that.
pub(crate) fn upgrade_before_a_scan(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let mut hands = Hands::new(engine, workers, seed)?;
    hands.sees(1, Get(1), &[(1, 10)])?;
    hands.waits(2, Set(1, 12))?;
    hands.waits(3, All)?;
    hands.writes(1, Set(1, 11))?;
    hands.commits(1)?;
    hands.answers(2, &Wrote(1))?;
    hands.commits(2)?;
    hands.answers(3, &Rows(vec![(1, 12), (2, 20)]))?;
    hands.commits(3)?;
    hands.leaves(&[(1, 12), (2, 20)])?;
    no_deadlock(engine)
}

/// One scans a range with a row that it has read, while another one waits to write that row.
pub(crate) fn scan_before_a_writer(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let mut hands = Hands::new(engine, workers, seed)?;
    hands.sees(1, Get(1), &[(1, 10)])?;
    hands.waits(2, Set(1, 12))?;
    hands.sees(1, All, &[(1, 10), (2, 20)])?;
    hands.commits(1)?;
    hands.answers(2, &Wrote(1))?;
    hands.commits(2)?;
    hands.leaves(&[(1, 12), (2, 20)])?;
    no_deadlock(engine)
}

/// One waits to read behind a writer, which waits for another reader, which comes to need what the first one has written.
pub(crate) fn reader_before_a_writer(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let mut hands = Hands::new(engine, workers, seed)?;
    hands.sees(1, Get(1), &[(1, 10)])?;
    hands.writes(2, Insert(0, 5))?;
    hands.waits(3, Set(1, 12))?;
    hands.waits(2, Get(1))?;
    hands.tell(1, Get(0));
    hands.answers(2, &Rows(vec![(1, 10)]))?;
    hands.commits(2)?;
    hands.answers(1, &Rows(vec![(0, 5)]))?;
    hands.commits(1)?;
    hands.answers(3, &Wrote(1))?;
    hands.commits(3)?;
    hands.leaves(&[(0, 5), (1, 12), (2, 20)])?;
    no_deadlock(engine)
}

const SEEDS: u64 = 12;

fn led(schedule: fn(&mut Engine, usize, u64) -> Result<(), String>) {
    for_seeds(SEEDS, |seed| {
        let workers = 2 + (seed % 3) as usize;
        let mut engine = Engine::simulated_at_rest(numbers(), workers, seed);
        let ended = planted::with(Bug::NoDeadlockProbe, || schedule(&mut engine, workers, seed));
        if let Err(wrong) = ended {
            panic!("with seed {seed}: {wrong}");
        }
    });
}

#[test]
fn an_upgrade_does_not_wait_for_a_scan_that_waits_for_it() {
    led(upgrade_before_a_scan);
}

#[test]
fn a_scan_does_not_wait_for_a_writer_that_waits_for_it() {
    led(scan_before_a_writer);
}

#[test]
fn a_reader_does_not_wait_for_a_writer_that_comes_to_wait_for_it() {
    led(reader_before_a_writer);
}
