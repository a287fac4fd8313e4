//! Tables that are created and dropped under torture: the order of the statements on them, and the rows that
//! transactions leave in them.
//!
//! Owns: the plan of the statements, the definitions, and the rows present after so many transactions. Never: makes a
//! statement or reads a row; [`clients`] and [`check`] do.
//!
//! Each *definer* has a table of its own, and makes one statement after the other: a table is created, gets an index
//! and a column, loses the index, and is dropped; then all of this begins again, in another order. So the number of the
//! last statement determines the definitions present ([`Shape::after`]). The rounds of one definer are its *cycles*:
//! the default of a column of the table is the number of its cycle, and every row of the table has it, too.
//!
//! A writer for each definer inserts, changes and deletes rows of its table in transactions that have numbers from 1 in
//! each cycle, so the number of the last transaction determines the rows present ([`row_after`]).

pub(super) mod check;
pub(super) mod clients;

use std::ops::RangeInclusive;

use atrapos::catalog::{
    ColumnDef, ColumnType, Definitions, IndexDef, IndexPart, KeyColumn, PrimaryKey, TableDef, Value,
};
use atrapos::{Database, DefineError, NewTable};

use super::schema::text;

/// Threads that make statements, each with a table of its own.
pub const DEFINERS: usize = 2;
/// Statements of a cycle.
pub(super) const CYCLE: u64 = 5;
/// Rows of a table at most, besides its head.
const WINDOW: u64 = 40;
/// The leading parts of keys by which the table is cut.
const LANES: u64 = 3;
/// Transactions after which the grade of a row is changed once.
const GRADED_AFTER: u64 = 3;
/// Grades, by which an index that is not unique finds rows.
const GRADES: u64 = 5;
/// The grade of the head, and the offset of its number from that of the last transaction.
const HEAD_GRADE: u64 = 99;
const HEAD_NUMBER: u64 = 1 << 32;

/// Returns the name of a definer's table.
pub(super) fn table_name(definer: usize) -> String {
    format!("made_{definer}")
}

/// Returns the name of its index.
pub(super) fn index_name(definer: usize) -> String {
    format!("made_{definer}_index")
}

/// One statement of a definer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// Creates the table, with or without its index.
    Create { indexed: bool },
    /// Creates the index.
    Index,
    /// Adds the column.
    Column,
    /// Drops the index.
    DropIndex,
    /// Drops the table, with its index if it has one.
    Drop,
}

use Statement::{Column, Create, Drop, DropIndex, Index};

const PLANS: [[Statement; CYCLE as usize]; 3] = [
    [Create { indexed: false }, Index, Column, DropIndex, Drop],
    [Create { indexed: true }, DropIndex, Column, Index, Drop],
    [Create { indexed: false }, Column, Index, DropIndex, Drop],
];

impl Statement {
    /// Returns the statement with this number, from 1.
    pub(super) fn number(number: u64) -> Statement {
        let done = number - 1;
        PLANS[(done / CYCLE % PLANS.len() as u64) as usize][(done % CYCLE) as usize]
    }

    /// Executes the statement.
    pub(super) fn make(self, db: &Database, definer: usize, cycle: u64) -> Result<(), DefineError> {
        let (table, index) = (table_name(definer), index_name(definer));
        match self {
            Create { indexed } => {
                let indexes = if indexed { vec![index_def(definer, cycle)] } else { Vec::new() };
                let table = Shape { cycle, has_column: false, has_index: false }.table(definer);
                db.create_table(NewTable { table, indexes, foreign_keys: Vec::new() }).map(drop)
            }
            Index => db.create_index(&table, index_def(definer, cycle)).map(drop),
            Column => db.add_column(&table, added_column(cycle)).map(drop),
            DropIndex => db.drop_index(&index),
            Drop => db.drop_table(&table),
        }
    }
}

/// Definitions of a definer's table, while it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) cycle: u64,
    pub(super) has_column: bool,
    pub(super) has_index: bool,
}

/// Returns the cycle of the statement with this number, from 1.
pub(super) fn cycle_of(statement: u64) -> u64 {
    1 + (statement - 1) / CYCLE
}

impl Shape {
    /// Returns the definitions after the statement with this number; 0 stands for the state before all of them.
    pub(super) fn after(statement: u64) -> Option<Shape> {
        let done_before = statement.checked_sub(1)? / CYCLE * CYCLE;
        let made = (done_before + 1..=statement).map(Statement::number);
        let cycle = cycle_of(statement);
        made.fold(None, |shape: Option<Shape>, statement| match (statement, shape) {
            (Create { indexed }, _) => Some(Shape { cycle, has_column: false, has_index: indexed }),
            (Index, Some(shape)) => Some(Shape { has_index: true, ..shape }),
            (Column, Some(shape)) => Some(Shape { has_column: true, ..shape }),
            (DropIndex, Some(shape)) => Some(Shape { has_index: false, ..shape }),
            (Drop, _) | (_, None) => None,
        })
    }

    /// Returns the definitions of this definer's table in a database.
    ///
    /// # Errors
    /// Returns a description of a definition that is none of this definer's.
    pub(super) fn of(definitions: &Definitions, definer: usize) -> Result<Option<Shape>, String> {
        let number = definitions.find(&table_name(definer));
        let table = number.and_then(|number| definitions.table(number));
        let index = definitions.find(&index_name(definer)).and_then(|number| definitions.index(number));
        let Some(table) = table else {
            return if index.is_none() { Ok(None) } else { Err("an index without a table".to_owned()) };
        };
        let cycle = cycle_in(&table.columns).ok_or_else(|| format!("a table without a cycle: {table:?}"))?;
        let has_column = table.columns.len() > COLUMNS;
        let shape = Shape { cycle, has_column, has_index: index.is_some() };
        let expected = shape.table(definer);
        if (&table.columns, &table.key) != (&expected.columns, &expected.key) {
            return Err(format!("the definition {table:?} where it should be {expected:?}"));
        }
        let expected = index_def(definer, cycle);
        match index {
            Some(index) if Some(index.of) != number => Err(format!("an index of another table: {index:?}")),
            Some(index) if (&index.parts, index.unique) != (&expected.parts, expected.unique) => {
                Err(format!("the definition {index:?} where it should be {expected:?}"))
            }
            _ => Ok(Some(shape)),
        }
    }

    fn table(self, definer: usize) -> TableDef {
        let number = |name: &str| ColumnDef::new(name, ColumnType::Unsigned(8));
        let mut columns = vec![number("lane"), number("id"), number("number"), number("grade")];
        columns.push(ColumnDef::new("text", ColumnType::String));
        columns.push(ColumnDef { default: Some(unsigned(self.cycle)), ..number(CYCLE_COLUMN) });
        columns.extend(self.has_column.then(|| added_column(self.cycle)));
        TableDef {
            name: table_name(definer),
            columns,
            key: PrimaryKey::Columns(vec![KeyColumn::ascending(0), KeyColumn::ascending(1)]),
            family: table_name(definer),
            read_only: false,
            splits: (1..LANES).map(|lane| lane.to_be_bytes().to_vec()).collect(),
        }
    }
}

/// The column whose default is the cycle.
const CYCLE_COLUMN: &str = "cycle";
/// Columns of a table that is created.
const COLUMNS: usize = 6;
/// The name of the column that is added.
pub(super) const ADDED_COLUMN: &str = "added";

/// Returns the cycle of a table, by its columns.
pub(super) fn cycle_in(columns: &[ColumnDef]) -> Option<u64> {
    match &columns.iter().find(|column| column.name == CYCLE_COLUMN)?.default {
        Some(Value::Unsigned(cycle)) => u64::try_from(*cycle).ok(),
        _ => None,
    }
}

/// Returns the column that is added: in some cycles existing rows have NULL in it, in others a negative number.
fn added_column(cycle: u64) -> ColumnDef {
    let column = ColumnDef::new(ADDED_COLUMN, ColumnType::Signed(8));
    let nullable = cycle.is_multiple_of(2);
    let default = (!nullable).then_some(Value::Signed(-i128::from(cycle)));
    ColumnDef { nullable, default, ..column }
}

/// Returns the value of the column in rows that existed before it.
pub(super) fn added_before(cycle: u64) -> Value {
    added_column(cycle).default.unwrap_or(Value::Null)
}

/// Returns the value of the column that is inserted with the row of this number.
pub(super) fn added_to(id: u64) -> Value {
    Value::Signed(i128::from(id))
}

/// Returns the definition of the index: by grade, or unique by number.
fn index_def(definer: usize, cycle: u64) -> IndexDef {
    let unique = cycle.is_multiple_of(2);
    let column = if unique { 2 } else { 3 };
    IndexDef {
        name: index_name(definer),
        of: 0,
        parts: vec![IndexPart::Column(KeyColumn::ascending(column))],
        unique,
        family: index_name(definer),
        splits: vec![2_u64.to_be_bytes().to_vec()],
    }
}

/// Returns an unsigned number as a value.
pub(super) fn unsigned(number: u64) -> Value {
    Value::Unsigned(number.into())
}

/// Returns the key of a row.
pub(super) fn key_of(id: u64) -> [Value; 2] {
    [unsigned(id % LANES), unsigned(id)]
}

/// Returns the grade of a row after some transactions.
pub(super) fn grade_after(id: u64, transactions: u64) -> u64 {
    let last = if id + GRADED_AFTER <= transactions { id + GRADED_AFTER } else { id };
    if id == 0 { HEAD_GRADE } else { last % GRADES }
}

/// Returns the number in the head after some transactions.
pub(super) fn head_number(transactions: u64) -> u64 {
    HEAD_NUMBER + transactions
}

/// Returns the row whose grade the transaction with this number changes, if there is one.
pub(super) fn graded_by(transaction: u64) -> Option<u64> {
    transaction.checked_sub(GRADED_AFTER).filter(|id| *id > 0)
}

/// Returns the row that the transaction with this number deletes, if there is one.
pub(super) fn deleted_by(transaction: u64) -> Option<u64> {
    transaction.checked_sub(WINDOW).filter(|id| *id > 0)
}

/// Returns the rows present after some transactions, besides the head.
pub(super) fn rows_after(transactions: u64) -> RangeInclusive<u64> {
    1.max((transactions + 1).saturating_sub(WINDOW))..=transactions
}

/// Returns the columns of a row after some transactions, except the one that is added. The head has the number 0.
pub(super) fn row_after(definer: usize, cycle: u64, id: u64, transactions: u64) -> Vec<Value> {
    let [lane, key] = key_of(id);
    let number = if id == 0 { head_number(transactions) } else { id };
    let text = Value::Text(text(definer, id));
    vec![lane, key, unsigned(number), unsigned(grade_after(id, transactions)), text, unsigned(cycle)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_changes_what_there_is() {
        assert_eq!(Shape::after(0), None);
        for number in 1..100 {
            assert_ne!(Shape::after(number), Shape::after(number - 1), "statement {number}");
            assert_eq!(Shape::after(number).is_none(), number % CYCLE == 0);
        }
        let third = Shape { cycle: 1, has_column: true, has_index: true };
        assert_eq!(Shape::after(3), Some(third));
        assert_eq!(Shape::after(6), Some(Shape { cycle: 2, has_column: false, has_index: true }));
    }

    #[test]
    fn rows_come_and_go() {
        assert_eq!(rows_after(0).count(), 0);
        assert_eq!(rows_after(WINDOW), 1..=WINDOW);
        assert_eq!(rows_after(WINDOW + 5), 6..=WINDOW + 5);
        assert_eq!((deleted_by(WINDOW), deleted_by(WINDOW + 1)), (None, Some(1)));
        assert_eq!((graded_by(3), graded_by(4)), (None, Some(1)));
        assert_eq!((grade_after(1, 3), grade_after(1, 4)), (1, 4));
        let columns = Shape { cycle: 1, has_column: false, has_index: false }.table(0).columns;
        assert_eq!((row_after(0, 1, 7, 9).len(), columns.len()), (COLUMNS, COLUMNS));
    }
}
