//! Checks of tables that are created and dropped by statements.
//!
//! Owns: the comparison of definitions and rows with the promises. Never: changes anything.

use atrapos::catalog::Value;
use atrapos::{Abort, Database, DynRow, IndexHandle, TableHandle, Tx};

use super::{
    ADDED_COLUMN, Shape, added_before, added_to, cycle_in, index_name, row_after, rows_after, table_name,
};
use crate::torture::TortureError;
use crate::torture::witness::{Slot, Witness};

/// A broken promise about a table made by statements.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MadeViolation {
    /// The definitions are those after none of the statements that may have been the last.
    #[error(
        "a statement is there by halves, lost or invented: of table 'made_{definer}' there is {found}; {acknowledged} statements \
         were acknowledged, which leave {expected}, and {begun} begun"
    )]
    Definitions {
        /// The definer.
        definer: usize,
        /// The definitions found.
        found: String,
        /// Statements that were acknowledged.
        acknowledged: u64,
        /// The definitions that they leave.
        expected: String,
        /// Statements that were begun.
        begun: u64,
    },
    /// The rows are not those after any number of transactions.
    #[error("in table 'made_{definer}' of cycle {cycle}: {wrong}")]
    Rows {
        /// The definer.
        definer: usize,
        /// The cycle of its table.
        cycle: u64,
        /// Description of the difference.
        wrong: String,
    },
    /// A promised transaction is lost.
    #[error(
        "a transaction was lost: table 'made_{definer}' is of cycle {} with transaction {} where transaction {} of cycle {} had been \
         promised", found >> CYCLE_SHIFT, found & TRANSACTION, promised & TRANSACTION, promised >> CYCLE_SHIFT
    )]
    Lost {
        /// The definer.
        definer: usize,
        /// The cycle and transaction found.
        found: u64,
        /// The oldest cycle and transaction that satisfy the promise.
        promised: u64,
    },
    /// A transaction is present that was never committed.
    #[error(
        "a transaction was invented: table 'made_{definer}' is of cycle {} with transaction {} where transaction {} of cycle {} was \
         the last one handed over", found >> CYCLE_SHIFT, found & TRANSACTION, submitted & TRANSACTION, submitted >> CYCLE_SHIFT
    )]
    Invented {
        /// The definer.
        definer: usize,
        /// The cycle and transaction found.
        found: u64,
        /// The last cycle and transaction handed over.
        submitted: u64,
    },
}

const CYCLE_SHIFT: u32 = 32;
const TRANSACTION: u64 = (1 << CYCLE_SHIFT) - 1;

/// Combines cycle and transaction into one number, which only grows.
pub(super) fn moment(cycle: u64, transaction: u64) -> u64 {
    cycle << CYCLE_SHIFT | transaction
}

/// The handles of a definer's table and, if there is one, its index.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) definer: usize,
    pub(super) cycle: u64,
    pub(super) table: TableHandle,
    index: Option<IndexHandle>,
}

impl Made {
    /// Returns the handles of the table as it is now; `None` while there is no table.
    pub(super) fn find(db: &Database, definer: usize) -> Option<Made> {
        let table = db.table_named(&table_name(definer)).ok()?;
        let cycle = cycle_in(table.columns())?;
        let index = db.index_named(&index_name(definer)).ok();
        Some(Made { definer, cycle, table, index })
    }

    pub(super) fn has_column(&self) -> bool {
        self.table.columns().iter().any(|column| column.name == ADDED_COLUMN)
    }

    fn wrong(&self, wrong: String) -> MadeViolation {
        MadeViolation::Rows { definer: self.definer, cycle: self.cycle, wrong }
    }

    /// Reads all rows in order of their keys, through the table and, if there is one, through the index.
    async fn read(&self, tx: &mut Tx<'_>) -> Result<(Vec<DynRow>, Option<Vec<DynRow>>), Abort> {
        let rows = tx.scan(&self.table, self.table.prefix(&[])?, usize::MAX).await?;
        let Some(index) = &self.index else { return Ok((rows, None)) };
        let found = tx.rows_by(index, index.prefix(&[])?, usize::MAX).await?;
        Ok((rows, Some(found)))
    }

    /// Reads all rows in a transaction of its own.
    pub(super) fn read_all(&self, db: &Database) -> Result<(Vec<DynRow>, Option<Vec<DynRow>>), Abort> {
        let own = self.clone();
        db.run(self.table.at(&[])?, async move |tx: &mut Tx<'_>| own.read(tx).await)
    }

    /// Checks rows that were read, and returns the number of the last transaction.
    pub(super) fn check(&self, rows: &[DynRow], by_index: Option<Vec<DynRow>>) -> Result<u64, TortureError> {
        let values = |rows: &[DynRow]| -> Result<Vec<Vec<Value>>, Abort> {
            rows.iter().map(|row| row.values(&self.table)).collect()
        };
        let mut found = values(rows)?;
        if let Some(by_index) = by_index {
            let (mut by_index, mut by_table) = (values(&by_index)?, found.clone());
            by_index.sort_by_key(|row| id_of(row));
            by_table.sort_by_key(|row| id_of(row));
            if by_index != by_table {
                let wrong = format!("the index leads to {by_index:?} where there is {by_table:?}");
                return Err(self.wrong(wrong).into());
            }
        }
        found.sort_by_key(|row| id_of(row));
        self.check_values(found).map_err(TortureError::from)
    }

    fn check_values(&self, mut rows: Vec<Vec<Value>>) -> Result<u64, MadeViolation> {
        let Some(head) = rows.first() else { return Ok(0) };
        let number = match (id_of(head), head.get(2)) {
            (0, Some(Value::Unsigned(number))) => u64::try_from(*number).unwrap_or_default() & TRANSACTION,
            _ => return Err(self.wrong(format!("there is no head among {rows:?}"))),
        };
        let ids = [0].into_iter().chain(rows_after(number));
        let expected: Vec<Vec<Value>> =
            ids.map(|id| row_after(self.definer, self.cycle, id, number)).collect();
        if self.has_column() {
            let mut has_value = false;
            for row in &mut rows {
                let (id, added) = (id_of(row), row.pop());
                has_value = match added {
                    Some(added) if id == 0 && (added == added_before(self.cycle) || added == added_to(0)) => {
                        false
                    }
                    Some(added) if added == added_to(id) => true,
                    Some(added) if !has_value && added == added_before(self.cycle) => false,
                    added => {
                        return Err(self.wrong(format!("row {id} has {added:?} in the column added")));
                    }
                };
            }
        }
        if rows != expected {
            return Err(self.wrong(format!("there is {rows:?} where there should be {expected:?}")));
        }
        Ok(number)
    }
}

fn id_of(row: &[Value]) -> u64 {
    match row.get(1) {
        Some(Value::Unsigned(id)) => u64::try_from(*id).unwrap_or(u64::MAX),
        _ => u64::MAX,
    }
}

/// Returns the promise about the rows of a definer's table, to be read before the rows are.
pub(super) fn promised(witness: &dyn Witness, definer: usize) -> u64 {
    witness.read(Slot::RowsAcknowledged(definer)).max(witness.read(Slot::RowsObserved(definer)))
}

/// Checks the transaction found against the promise read before, and against the transactions handed over since.
pub(super) fn check_moment(
    witness: &dyn Witness,
    definer: usize,
    found: u64,
    promised: u64,
) -> Result<(), MadeViolation> {
    if found < promised {
        return Err(MadeViolation::Lost { definer, found, promised });
    }
    let submitted = witness.read(Slot::RowsSubmitted(definer));
    if found & TRANSACTION > 0 && found > submitted {
        return Err(MadeViolation::Invented { definer, found, submitted });
    }
    Ok(())
}

/// Checks a definer's table as it was recovered: the definitions are those before or after the statement that was
/// begun, and the rows those of the transactions that were acknowledged, at least. Returns how many statements were
/// acknowledged.
pub(in crate::torture) fn check(
    db: &Database,
    witness: &dyn Witness,
    definer: usize,
) -> Result<u64, TortureError> {
    let [begun, acknowledged] =
        [Slot::StatementBegun(definer), Slot::StatementEnded(definer)].map(|slot| witness.read(slot));
    let found = Shape::of(&db.definitions(), definer);
    let may_be = [acknowledged, begun].map(|last| Ok(Shape::after(last)));
    if !may_be.contains(&found) {
        let found = found.map_or_else(|wrong| wrong, |found| format!("{found:?}"));
        let expected = format!("{:?}", Shape::after(acknowledged));
        return Err(MadeViolation::Definitions { definer, found, acknowledged, expected, begun }.into());
    }
    let Some(made) = Made::find(db, definer) else { return Ok(acknowledged) };
    let promised = promised(witness, definer);
    let (rows, by_index) = made.read_all(db)?;
    let number = made.check(&rows, by_index)?;
    check_moment(witness, definer, moment(made.cycle, number), promised)?;
    Ok(acknowledged)
}
