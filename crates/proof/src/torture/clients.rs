//! The load that runs until the process is killed.
//!
//! Owns: the threads of the clients and their transactions. Never: decides which conditions must hold;
//! [`check`](super::check) does.
//!
//! Each client has one transaction under way at a time. A violation in one of them stops all.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use atrapos::{Abort, AbortReason, CheckpointFailure, Database, RowEdit, Tx};
use atrapos_workloads::{ClassTally, Random};

use super::TortureError;
use super::check::{Promises, check_client, check_marks, check_total, read_client, total};
use super::made::DEFINERS;
use super::schema::{CLIENTS, Handles, Mark, PURSES, Purse, ROWS, TOKEN_EVERY, Token, mark_key, text};
use super::witness::{READERS, Slot, Witness};
use atrapos_harness::driver::{Clients, Routing, RunOptions};
use atrapos_harness::registry::AnyWorkload;

/// Work done in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Transactions of the witness clients that were acknowledged.
    pub acknowledged: u64,
    /// Reads of the readers.
    pub reads: u64,
    /// Transfers between purses, and audits of their total.
    pub transfers: u64,
    /// Transactions that were aborted on purpose.
    pub abandoned: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// TATP transactions.
    pub tatp: u64,
    /// Statements that create, change and drop tables.
    pub statements: u64,
    /// Transactions that wrote tables made by statements.
    pub made_rows: u64,
    /// Reads of such tables.
    pub made_reads: u64,
}

impl Tally {
    fn plus(self, other: Tally) -> Tally {
        Tally {
            acknowledged: self.acknowledged + other.acknowledged,
            reads: self.reads + other.reads,
            transfers: self.transfers + other.transfers,
            abandoned: self.abandoned + other.abandoned,
            checkpoints: self.checkpoints + other.checkpoints,
            tatp: self.tatp + other.tatp,
            statements: self.statements + other.statements,
            made_rows: self.made_rows + other.made_rows,
            made_reads: self.made_reads + other.made_reads,
        }
    }
}

/// Threads that transfer money between purses.
const TRANSFERS: usize = 2;
/// TATP sessions on each worker.
const SESSIONS: NonZeroUsize = NonZeroUsize::new(8).expect("eight is not zero");
/// A time longer than any round.
const FOR_EVER: Duration = Duration::from_secs(1 << 20);
/// The longest pause between two checkpoints.
const CHECKPOINT_PAUSE_US: u64 = 30_000;
/// Number written by transactions that abort: no committed transaction has it.
const ABANDONED: u64 = u64::MAX;
/// One in so many transactions of a client is preceded by one that writes and aborts.
pub(super) const ABANDON_EVERY: u32 = 4;
/// One in so many turns of a transfer thread audits all purses.
const AUDIT_EVERY: u32 = 32;

pub(super) fn run(
    tatp: &dyn AnyWorkload,
    seed: u64,
    db: &Database,
    witness: &dyn Witness,
    round: u64,
    stop: &AtomicBool,
) -> Result<Tally, TortureError> {
    let turn = Turn { db, handles: Handles::of(db)?, stop };
    let random = |client: usize| Random::of_stream(seed ^ 0x7031_7475_7265, (round << 8) + client as u64);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for client in 0..CLIENTS {
            let random = random(client);
            threads.push(scope.spawn(move || turn.ended(turn.write(witness, client, random))));
        }
        for reader in 0..READERS {
            let random = random(CLIENTS + reader);
            threads.push(scope.spawn(move || turn.ended(turn.read(witness, reader, random))));
        }
        for transfer in 0..TRANSFERS {
            let random = random(CLIENTS + READERS + transfer);
            threads.push(scope.spawn(move || turn.ended(turn.transfer(random))));
        }
        for definer in 0..DEFINERS {
            let random = |thread| random(CLIENTS + READERS + TRANSFERS + 1 + 2 * definer + thread);
            let [statements, rows] = [0, 1].map(random);
            threads.push(scope.spawn(move || turn.ended(turn.define(witness, definer, statements))));
            threads.push(scope.spawn(move || turn.ended(turn.write_made(witness, definer, rows))));
        }
        let reads = random(CLIENTS + READERS + TRANSFERS + 1 + 2 * DEFINERS);
        threads.push(scope.spawn(move || turn.ended(turn.read_made(witness, reads))));
        let pauses = random(CLIENTS + READERS + TRANSFERS);
        threads.push(scope.spawn(move || turn.ended(turn.checkpoint(pauses))));
        threads.push(scope.spawn(move || turn.ended(turn.tatp(tatp, round))));
        let ends: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        ends.into_iter().try_fold(Tally::default(), |sum, end| end.map(|tally| sum.plus(tally)))
    })
}

/// State shared by all clients of a round.
#[derive(Clone, Copy)]
pub(super) struct Turn<'a> {
    pub(super) db: &'a Database,
    handles: Handles,
    stop: &'a AtomicBool,
}

/// Outcome of a transaction that did not commit and after which its client continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// The transaction aborted itself on purpose.
    Abandoned,
    /// The transaction was the victim of deadlocks too often, or its table was changed.
    GaveWay,
    /// The database is closing.
    Closing,
}

pub(super) fn expected(abort: Abort) -> Result<Failed, TortureError> {
    match abort.reason() {
        AbortReason::User => Ok(Failed::Abandoned),
        AbortReason::Deadlock | AbortReason::Overloaded | AbortReason::TableChanged => Ok(Failed::GaveWay),
        AbortReason::ShuttingDown => Ok(Failed::Closing),
        _ => Err(abort.into()),
    }
}

impl Turn<'_> {
    pub(super) fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Stops all clients when one has failed.
    fn ended(&self, end: Result<Tally, TortureError>) -> Result<Tally, TortureError> {
        if end.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        end
    }

    /// Runs a witness client.
    fn write(&self, witness: &dyn Witness, client: usize, mut random: Random) -> Result<Tally, TortureError> {
        let handles = self.handles;
        let mut tally = Tally::default();
        let mut number = witness.read(Slot::Submitted(client));
        let route = handles.marks.at(&mark_key(client, 0));
        while self.goes_on() {
            if random.small(ABANDON_EVERY) == 0 {
                let abandon = async move |tx: &mut Tx<'_>| abandon_marks(tx, handles, client).await;
                match self.db.run(route.clone(), abandon).map_err(expected) {
                    Ok(()) | Err(Ok(Failed::Closing)) => break,
                    Err(Ok(_)) => tally.abandoned += 1,
                    Err(Err(error)) => return Err(error),
                }
            }
            number += 1;
            let promises = Promises::of(witness, client);
            witness.write(Slot::Submitted(client), number)?;
            let write = async move |tx: &mut Tx<'_>| write_marks(tx, handles, client, number).await;
            match self.db.run(route.clone(), write).map_err(expected) {
                Ok(before) => {
                    witness.write(Slot::Acknowledged(client), number)?;
                    tally.acknowledged += 1;
                    check_client(client, before.as_seen(client), &promises, || number - 1)?;
                }
                Err(Ok(Failed::Closing)) => break,
                Err(Ok(_)) => {}
                Err(Err(error)) => return Err(error),
            }
        }
        Ok(tally)
    }

    /// Runs a reader.
    fn read(&self, witness: &dyn Witness, reader: usize, mut random: Random) -> Result<Tally, TortureError> {
        let handles = self.handles;
        let mut tally = Tally::default();
        while self.goes_on() {
            let client = random.below(CLIENTS as u64) as usize;
            let row = random.below(ROWS as u64) as usize;
            let promises = Promises::of(witness, client);
            let read = async move |tx: &mut Tx<'_>| read_client(tx, handles, client).await;
            match self.db.run(handles.marks.at(&mark_key(client, row)), read).map_err(expected) {
                Ok(seen) => {
                    let value =
                        check_client(client, seen, &promises, || witness.read(Slot::Submitted(client)))?;
                    witness.write(Slot::Observed { reader, client }, value)?;
                    tally.reads += 1;
                }
                Err(Ok(Failed::Closing)) => break,
                Err(Ok(_)) => {}
                Err(Err(error)) => return Err(error),
            }
        }
        Ok(tally)
    }

    /// Runs a thread that transfers money between purses.
    fn transfer(&self, mut random: Random) -> Result<Tally, TortureError> {
        let handles = self.handles;
        let mut tally = Tally::default();
        while self.goes_on() {
            let from = random.below(PURSES);
            let to = (from + random.between(1, PURSES - 1)) % PURSES;
            let amount = random.between(1, 100) as i64;
            let abandoned = random.small(ABANDON_EVERY) == 0;
            let route = handles.purses.at(&from);
            let done = if random.small(AUDIT_EVERY) == 0 {
                let sum = self.db.run(route, async move |tx: &mut Tx<'_>| total(tx, handles).await);
                match sum {
                    Ok(sum) => check_total(sum).map(Ok)?,
                    Err(abort) => Err(abort),
                }
            } else {
                let transfer =
                    async move |tx: &mut Tx<'_>| transfer(tx, handles, from, to, amount, abandoned).await;
                self.db.run(route, transfer)
            };
            match done.map_err(expected) {
                Ok(()) => tally.transfers += 1,
                Err(Ok(Failed::Closing)) => break,
                Err(Ok(Failed::Abandoned)) => tally.abandoned += 1,
                Err(Ok(Failed::GaveWay)) => {}
                Err(Err(error)) => return Err(error),
            }
        }
        Ok(tally)
    }

    /// Makes checkpoints with short pauses between them.
    fn checkpoint(&self, mut random: Random) -> Result<Tally, TortureError> {
        let mut tally = Tally::default();
        while self.goes_on() {
            std::thread::sleep(Duration::from_micros(random.below(CHECKPOINT_PAUSE_US)));
            match self.db.checkpoint() {
                Ok(_) => tally.checkpoints += 1,
                Err(CheckpointFailure::Refused(abort)) if expected(abort.clone()).is_ok() => break,
                Err(failure) => return Err(failure.into()),
            }
        }
        Ok(tally)
    }

    fn tatp(&self, tatp: &dyn AnyWorkload, round: u64) -> Result<Tally, TortureError> {
        let options = RunOptions {
            clients: Clients::Sessions { per_worker: SESSIONS, pipeline: SESSIONS, burst: SESSIONS },
            routing: Routing::Any,
            warmup: Duration::ZERO,
            measured: FOR_EVER,
            run: round,
            live: None,
        };
        let result = tatp.run(self.db, &options, self.stop, &mut |_| {})?;
        let tatp = result.tallies_all.iter().map(ClassTally::completed).sum();
        Ok(Tally { tatp, ..Tally::default() })
    }
}

/// Rows that a client's transaction found before it wrote.
struct Before {
    marks: Vec<Option<Mark>>,
    /// The token that it replaced, if it was due to replace one.
    token: Option<Option<Token>>,
}

impl Before {
    /// Returns the rows as a reader would have seen them. A token that was not read is taken for valid.
    fn as_seen(&self, client: usize) -> super::check::Seen {
        let number = self.marks.iter().flatten().map(|mark| mark.token).next().unwrap_or_default();
        let unseen = || Token { text: text(client, number) };
        let token = if number == 0 { None } else { self.token.clone().unwrap_or_else(|| Some(unseen())) };
        let tokens = token.map(|token| (number, token)).into_iter().collect();
        super::check::Seen { marks: self.marks.clone(), tokens }
    }
}

/// Writes transaction `number` over all marks of a client, and replaces its token when that is due.
async fn write_marks(tx: &mut Tx<'_>, handles: Handles, client: usize, number: u64) -> Result<Before, Abort> {
    let keys = (0..ROWS).map(|row| mark_key(client, row));
    let write = move |mark: &mut Mark| mark.write(client, number);
    let marks = tx.join_all(keys.map(|key| handles.marks.update(key, write))).await?;
    let mut token = None;
    if number.is_multiple_of(TOKEN_EVERY)
        && let Ok(mark) = check_marks(client, &marks)
    {
        let own = client as u64;
        if mark.token > 0 {
            token = Some(tx.delete(handles.tokens, (own, mark.token)).await?);
        }
        tx.insert(handles.tokens, (own, number), Token { text: text(client, number) }).await?;
    }
    Ok(Before { marks, token })
}

/// Reason given by a transaction that aborts itself on purpose.
pub(super) const CHANGED_ITS_MIND: &str = "it was to be abandoned";

/// Writes over all marks of a client, and aborts some phases later.
async fn abandon_marks(tx: &mut Tx<'_>, handles: Handles, client: usize) -> Result<(), Abort> {
    let keys = (0..ROWS).map(|row| mark_key(client, row));
    let write = move |mark: &mut Mark| mark.write(client, ABANDONED);
    tx.join_all(keys.map(|key| handles.marks.update(key, write))).await?;
    look_around(tx, handles, client as u64).await?;
    Err(Abort::user(CHANGED_ITS_MIND))
}

async fn transfer(
    tx: &mut Tx<'_>,
    handles: Handles,
    from: u64,
    to: u64,
    amount: i64,
    abandoned: bool,
) -> Result<(), Abort> {
    // One is changed in place and one with its row: their before-images are kept in different ways.
    let pay = move |purse: &mut RowEdit<'_, Purse>| {
        purse.change(|column| column.balance, |balance| balance - amount);
    };
    tx.edit(handles.purses, from, pay).await?;
    if abandoned {
        look_around(tx, handles, from).await?;
        return Err(Abort::user(CHANGED_ITS_MIND));
    }
    tx.update(handles.purses, to, move |purse| purse.balance += amount).await?;
    Ok(())
}

/// Reads rows scattered over the table, so that the transaction takes some time.
async fn look_around(tx: &mut Tx<'_>, handles: Handles, from: u64) -> Result<(), Abort> {
    for step in 1..=4 {
        tx.get(handles.purses, (from + step * PURSES / 5) % PURSES).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Violation;
    use super::*;

    #[test]
    fn what_a_transaction_found_is_judged_like_what_a_reader_sees() {
        let mark = |value, token| Some(Mark { value, token, text: text(0, value) });
        let check = |before: &Before| {
            let seen = before.as_seen(0);
            let marks = check_marks(0, &seen.marks)?;
            let tokens: Vec<u64> = seen.tokens.iter().map(|(number, _)| *number).collect();
            Ok::<_, Violation>((marks.value, tokens))
        };
        let unlooked = Before { marks: vec![mark(5, 3); ROWS], token: None };
        assert_eq!(check(&unlooked), Ok((5, vec![3])));
        let gone = Before { marks: vec![mark(5, 3); ROWS], token: Some(None) };
        assert_eq!(check(&gone), Ok((5, vec![])), "a token that was not there is seen as missing");
        let first = Before { marks: vec![mark(2, 0); ROWS], token: None };
        assert_eq!(check(&first), Ok((2, vec![])));
    }
}
