//! Accesses that do not wait for locks: they give up, or read in spite of them.

use super::by_hand::{Answer, Hands, Step, numbers};
use super::simulated;
use crate::support::Engine;
use Answer::{Locked, Rows, Wrote};
use Step::{GetDespiteLocks, GetUnlessLocked, Set, SetUnlessLocked};

/// One writes a row; others find it locked, or read what it has written, and lock what is free as always.
pub(crate) fn locks_are_not_waited_for(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let mut hands = Hands::new(engine, workers, seed)?;
    hands.writes(1, Set(1, 11))?;
    hands.does(2, SetUnlessLocked(1, 12), &Locked)?;
    hands.does(2, GetUnlessLocked(1), &Locked)?;
    hands.does(2, SetUnlessLocked(2, 21), &Wrote(1))?;
    hands.does(3, GetDespiteLocks(1), &Rows(vec![(1, 11)]))?;
    hands.does(3, GetUnlessLocked(2), &Locked)?;
    hands.aborts(1)?;
    // Its locks are on their way back, so this one waits.
    hands.writes(2, Set(1, 12))?;
    hands.does(3, SetUnlessLocked(1, 13), &Locked)?;
    // What was written so is locked for others that wait.
    hands.waits(3, Set(1, 14))?;
    hands.commits(2)?;
    hands.answers(3, &Wrote(1))?;
    hands.commits(3)?;
    hands.leaves(&[(1, 14), (2, 21)])
}

#[test]
fn an_access_that_does_not_wait_gives_up_or_reads() {
    simulated(60, numbers, locks_are_not_waited_for);
}
