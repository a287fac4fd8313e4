//! Clients that make statements, and clients that use the tables they make.
//!
//! Owns: the threads of definers, writers and readers, and their transactions. Never: decides which conditions must
//! hold.

use std::time::Duration;

use atrapos::catalog::Value;
use atrapos::{Abort, Database, DefineError, Tx};
use atrapos_workloads::Random;

use super::check::{Made, MadeViolation, check_moment, moment, promised};
use super::{
    ADDED_COLUMN, DEFINERS, Shape, Statement, added_to, cycle_of, deleted_by, grade_after, graded_by,
    head_number, key_of, row_after, unsigned,
};
use crate::torture::TortureError;
use crate::torture::clients::{ABANDON_EVERY, CHANGED_ITS_MIND, Failed, Tally, Turn, expected};
use crate::torture::witness::{Slot, Witness};

/// Bound (exclusive) on the transactions of the writer for which a definer waits before its next statement.
const USED_BEFORE: u64 = 6;
/// Number of times it looks for them at most, which limits the wait.
const LOOKS: u32 = 100;
const LOOK_EVERY: Duration = Duration::from_micros(200);

impl Turn<'_> {
    /// Runs a thread that makes one statement after the other. It determines the outcome of the statement that was
    /// under way when the process was killed, as the check has done.
    pub(in crate::torture) fn define(
        &self,
        witness: &dyn Witness,
        definer: usize,
        mut random: Random,
    ) -> Result<Tally, TortureError> {
        let mut tally = Tally::default();
        let (begun, mut done) =
            (witness.read(Slot::StatementBegun(definer)), witness.read(Slot::StatementEnded(definer)));
        if begun > done && Shape::of(&self.db.definitions(), definer) == Ok(Shape::after(begun)) {
            witness.write(Slot::StatementEnded(definer), begun)?;
            done = begun;
        }
        while self.goes_on() {
            self.wait_for_use(witness, definer, random.below(USED_BEFORE));
            let number = done + 1;
            witness.write(Slot::StatementBegun(definer), number)?;
            match Statement::number(number).make(self.db, definer, cycle_of(number)) {
                Ok(()) => {
                    witness.write(Slot::StatementEnded(definer), number)?;
                    done = number;
                    tally.statements += 1;
                }
                Err(DefineError::Aborted(abort)) => match expected(abort)? {
                    Failed::Closing => break,
                    Failed::Abandoned | Failed::GaveWay => {}
                },
                Err(error) => return Err(error.into()),
            }
        }
        Ok(tally)
    }

    /// Waits for a limited time until the table has been written so many times.
    fn wait_for_use(&self, witness: &dyn Witness, definer: usize, times: u64) {
        let written = || witness.read(Slot::RowsAcknowledged(definer));
        let before = written();
        for _ in 0..LOOKS {
            if written() >= before + times || !self.goes_on() {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Runs a thread that writes the rows of a definer's table while statements change, drop and create it.
    pub(in crate::torture) fn write_made(
        &self,
        witness: &dyn Witness,
        definer: usize,
        mut random: Random,
    ) -> Result<Tally, TortureError> {
        let mut tally = Tally::default();
        // Cycle and last transaction of the table that was written last.
        let mut last: Option<(u64, u64)> = None;
        while self.goes_on() {
            let Some(made) = Made::find(self.db, definer) else {
                std::thread::sleep(LOOK_EVERY);
                continue;
            };
            let done = match last {
                Some((cycle, done)) if cycle == made.cycle => done,
                Some(_) => 0,
                None => match still_there(read_head(self.db, &made))? {
                    Ok(done) => done,
                    Err(Failed::Closing) => break,
                    Err(_) => continue,
                },
            };
            last = Some((made.cycle, done));
            let number = done + 1;
            witness.write(Slot::RowsSubmitted(definer), moment(made.cycle, number))?;
            let abandons = random.small(ABANDON_EVERY) == 0;
            match still_there(write_row(self.db, &made, number, abandons))? {
                Ok(found) if found == done => {
                    witness.write(Slot::RowsAcknowledged(definer), moment(made.cycle, number))?;
                    last = Some((made.cycle, number));
                    tally.made_rows += 1;
                }
                Ok(found) => {
                    let (found, promised) = (moment(made.cycle, found), moment(made.cycle, done));
                    return Err(MadeViolation::Lost { definer, found, promised }.into());
                }
                Err(Failed::Closing) => break,
                Err(_) => {}
            }
        }
        Ok(tally)
    }

    /// Runs a thread that reads the tables, each as a whole and through its index.
    pub(in crate::torture) fn read_made(
        &self,
        witness: &dyn Witness,
        mut random: Random,
    ) -> Result<Tally, TortureError> {
        let mut tally = Tally::default();
        while self.goes_on() {
            let definer = random.below(DEFINERS as u64) as usize;
            let promised = promised(witness, definer);
            let Some(made) = Made::find(self.db, definer) else {
                std::thread::sleep(LOOK_EVERY);
                continue;
            };
            match still_there(made.read_all(self.db))? {
                Ok((rows, by_index)) => {
                    let found = moment(made.cycle, made.check(&rows, by_index)?);
                    check_moment(witness, definer, found, promised)?;
                    witness.write(Slot::RowsObserved(definer), found)?;
                    tally.made_reads += 1;
                }
                Err(Failed::Closing) => break,
                Err(_) => {}
            }
        }
        Ok(tally)
    }
}

/// Returns the result of a transaction, or the reason of an abort that is allowed: its table may have been replaced.
fn still_there<T>(done: Result<T, Abort>) -> Result<Result<T, Failed>, TortureError> {
    match done {
        Ok(done) => Ok(Ok(done)),
        Err(abort) => expected(abort).map(Err),
    }
}

fn read_head(db: &Database, made: &Made) -> Result<u64, Abort> {
    let own = made.clone();
    db.run(made.table.at(&key_of(0))?, async move |tx: &mut Tx<'_>| own.transactions(tx).await)
}

/// Makes the transaction with this number, and returns the number of the one before that it found.
fn write_row(db: &Database, made: &Made, number: u64, abandons: bool) -> Result<u64, Abort> {
    let own = made.clone();
    db.run(made.table.at(&key_of(number))?, async move |tx: &mut Tx<'_>| {
        let found = own.write(tx, number).await?;
        if abandons { Err(Abort::user(CHANGED_ITS_MIND)) } else { Ok(found) }
    })
}

impl Made {
    /// Returns the number of the last transaction.
    async fn transactions(&self, tx: &mut Tx<'_>) -> Result<u64, Abort> {
        let Some(head) = tx.get(&self.table, &key_of(0)).await? else { return Ok(0) };
        match head.get(&self.table, "number")? {
            Value::Unsigned(number) => Ok((number as u64).wrapping_sub(head_number(0))),
            _ => Err(Abort::user("the head has no number")),
        }
    }

    /// Makes the transaction with this number, if the last one was that before. Returns the number of the last one.
    async fn write(&self, tx: &mut Tx<'_>, number: u64) -> Result<u64, Abort> {
        let found = self.transactions(tx).await?;
        if found + 1 != number {
            return Ok(found);
        }
        self.insert(tx, number).await?;
        if number == 1 {
            self.insert(tx, 0).await?;
        } else {
            let counted = [("number", unsigned(head_number(number)))];
            tx.update_row(&self.table, &key_of(0), &counted).await?;
        }
        if let Some(id) = graded_by(number) {
            let grade = [("grade", unsigned(grade_after(id, number)))];
            tx.update_row(&self.table, &key_of(id), &grade).await?;
        }
        if let Some(id) = deleted_by(number) {
            tx.delete(&self.table, &key_of(id)).await?;
        }
        Ok(found)
    }

    /// Inserts a row with the values it has after the transaction that inserts it. The cycle is the default of its
    /// column.
    async fn insert(&self, tx: &mut Tx<'_>, id: u64) -> Result<(), Abort> {
        let row = row_after(self.definer, self.cycle, id, id.max(1));
        let names = ["lane", "id", "number", "grade", "text"];
        let mut columns: Vec<(&str, Value)> = names.into_iter().zip(row).collect();
        columns.extend(self.has_column().then(|| (ADDED_COLUMN, added_to(id))));
        tx.insert_row(&self.table, &columns).await
    }
}
