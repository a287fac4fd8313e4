//! Columns of an encoded row, read and written in place: [`RowView`], [`RowEdit`].
//!
//! A row is decoded as a whole ([`Row::decode`]) where all of it is wanted. Most transactions want two or three columns of a
//! row of hundreds of bytes: a view decodes the columns that are asked for, at offsets that are constants for columns of fixed
//! size, and an edit overwrites them.
//!
//! Owns: where a column is in the bytes of a row. Never: changes the length of a row.
//!
//! Invariants
//! - The bytes of a view or edit have a length that the row type can have, so that columns of fixed size are there.
//! - An edit leaves bytes that the row type encodes, if they were.
//! - A column that cannot be decoded ends the closure that looks at it by unwinding with the [`RowError`], without a call
//!   of the panic hook; who runs the closure turns it into an error ([`RowError`] is the payload).

use std::marker::PhantomData;
use std::panic::resume_unwind;

use super::{Column, Field, Overwritten, Row, RowError, bit_of, set_bit, take_variable};

/// A column of the row type `R` with values of type `F`. [`Row::FIELDS`] has those of a row type.
#[derive(Debug)]
pub struct ColumnRef<R, F> {
    at: ColumnAt,
    types: PhantomData<fn() -> (R, F)>,
}

impl<R, F> Clone for ColumnRef<R, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, F> Copy for ColumnRef<R, F> {}

impl<R, F> ColumnRef<R, F> {
    /// The column at this place.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(at: ColumnAt) -> ColumnRef<R, F> {
        ColumnRef { at, types: PhantomData }
    }
}

/// The place of a column among the others of its row type.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct ColumnAt {
    /// Its index among all columns.
    index: usize,
    /// Bytes of the columns of fixed size before it.
    offset: usize,
    /// Number of its bit for NULL, in the bits of the whole fixed part.
    null: usize,
    /// Columns of variable size before it.
    variable: usize,
}

impl ColumnAt {
    /// The place of the first column of a type with these facts.
    #[must_use]
    pub const fn first(fixed_bytes: usize, nullable: usize) -> ColumnAt {
        ColumnAt { index: 0, offset: 0, null: 8 * (fixed_bytes - nullable.div_ceil(8)), variable: 0 }
    }

    /// The place of the column behind one of this type.
    #[must_use]
    pub const fn after<F: Field>(self) -> ColumnAt {
        ColumnAt {
            index: self.index + 1,
            offset: self.offset + F::WIDTH,
            null: self.null + F::NULLABLE as usize,
            variable: self.variable + F::VARIABLE as usize,
        }
    }
}

/// Checks that a row of type `R` can have so many bytes.
fn check_length<R: Row>(bytes: &[u8]) -> Result<(), RowError> {
    let is_possible = if R::VARIABLE { bytes.len() >= R::FIXED_BYTES } else { bytes.len() == R::FIXED_BYTES };
    if is_possible {
        return Ok(());
    }
    Err(RowError::WrongLength { row: R::NAME, expected: R::FIXED_BYTES, got: bytes.len() })
}

/// Decodes one column. The length was checked.
#[inline(always)]
fn column<R: Row, F: Field>(bytes: &[u8], at: ColumnAt) -> F {
    let (fixed, mut variable) = bytes.split_at(R::FIXED_BYTES);
    let mut read = || {
        if F::VARIABLE {
            for _ in 0..at.variable {
                take_variable(&mut variable)?;
            }
        }
        if F::NULLABLE && bit_of(fixed, at.null) {
            F::read_null(fixed, at.offset, &mut variable)
        } else {
            F::read(fixed, at.offset, &mut variable)
        }
    };
    match read() {
        Some(value) => value,
        None => malformed::<R>(at),
    }
}

/// The bytes of one column. The length was checked.
#[inline(always)]
fn column_bytes<R: Row, F: Field>(bytes: &[u8], at: ColumnAt) -> &[u8] {
    let (fixed, mut variable) = bytes.split_at(R::FIXED_BYTES);
    if !F::VARIABLE {
        return &fixed[at.offset..at.offset + F::WIDTH];
    }
    let before = (0..at.variable).all(|_| take_variable(&mut variable).is_some());
    match take_variable(&mut variable).filter(|_| before) {
        Some(found) => found,
        None => malformed::<R>(at),
    }
}

#[cold]
fn malformed<R: Row>(at: ColumnAt) -> ! {
    let column: &Column = &R::COLUMNS[at.index];
    resume_unwind(Box::new(RowError::Malformed { row: R::NAME, column: column.name }))
}

/// The columns of an encoded row.
///
/// ```
/// use atrapos_storage::{FixedStr, Row, RowView, row};
///
/// row! {
///     #[derive(Clone)]
///     pub struct Account { pub owner: FixedStr<20>, pub balance: i64 }
/// }
///
/// let mut bytes = Vec::new();
/// Account { owner: FixedStr::new("Ada").unwrap(), balance: 7 }.encode(&mut bytes);
/// let account = RowView::<Account>::new(&bytes)?;
/// assert_eq!(account.get(|column| column.balance), 7);
/// # Ok::<(), atrapos_storage::RowError>(())
/// ```
#[derive(Debug)]
pub struct RowView<'a, R> {
    bytes: &'a [u8],
    row: PhantomData<fn() -> R>,
}

impl<'a, R: Row> RowView<'a, R> {
    /// A view of these bytes.
    ///
    /// # Errors
    /// Returns an error if a row of the type cannot have so many bytes.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<RowView<'a, R>, RowError> {
        check_length::<R>(bytes)?;
        Ok(RowView { bytes, row: PhantomData })
    }

    /// The value of a column.
    ///
    /// # Panics
    /// Unwinds with a [`RowError`] if the column holds bytes that are not of its type: the row is damaged.
    #[inline(always)]
    pub fn get<F: Field>(&self, choose: impl FnOnce(&R::Columns) -> ColumnRef<R, F>) -> F {
        column::<R, F>(self.bytes, choose(&R::FIELDS).at)
    }

    /// The bytes of a column as the row has them, not looked at: numbers little endian, strings of fixed length with zeros
    /// behind, values of variable size without their length, zeros or nothing where there is NULL.
    ///
    /// # Panics
    /// Unwinds with a [`RowError`] if a column of variable size is damaged.
    #[inline(always)]
    pub fn bytes<F: Field>(&self, choose: impl FnOnce(&R::Columns) -> ColumnRef<R, F>) -> &'a [u8] {
        column_bytes::<R, F>(self.bytes, choose(&R::FIELDS).at)
    }

    /// The whole row as it is encoded: what [`RowView::new`] takes.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The whole row.
    ///
    /// # Panics
    /// Unwinds with a [`RowError`] if the row is damaged.
    #[inline]
    #[must_use]
    pub fn row(&self) -> R {
        R::decode(self.bytes).unwrap_or_else(|error| resume_unwind(Box::new(error)))
    }
}

/// The columns of an encoded row, of which those of fixed size can be set.
#[derive(Debug)]
pub struct RowEdit<'a, R> {
    bytes: &'a mut [u8],
    /// Receives the old bytes of each column that is set, if somebody wants them.
    overwritten: Option<Overwritten<'a>>,
    row: PhantomData<fn() -> R>,
}

impl<'a, R: Row> RowEdit<'a, R> {
    /// An edit of these bytes.
    ///
    /// # Errors
    /// Returns an error if a row of the type cannot have so many bytes.
    #[inline]
    pub fn new(bytes: &'a mut [u8]) -> Result<RowEdit<'a, R>, RowError> {
        check_length::<R>(bytes)?;
        Ok(RowEdit { bytes, overwritten: None, row: PhantomData })
    }

    /// An edit of these bytes that adds what it overwrites to `overwritten`, before it does so.
    ///
    /// # Errors
    /// Returns an error if a row of the type cannot have so many bytes.
    #[doc(hidden)]
    #[inline]
    pub fn logged(bytes: &'a mut [u8], overwritten: Overwritten<'a>) -> Result<RowEdit<'a, R>, RowError> {
        check_length::<R>(bytes)?;
        Ok(RowEdit { bytes, overwritten: Some(overwritten), row: PhantomData })
    }

    /// The value of a column.
    ///
    /// # Panics
    /// Unwinds with a [`RowError`] if the column holds bytes that are not of its type: the row is damaged.
    #[inline(always)]
    pub fn get<F: Field>(&self, choose: impl FnOnce(&R::Columns) -> ColumnRef<R, F>) -> F {
        column::<R, F>(self.bytes, choose(&R::FIELDS).at)
    }

    /// The bytes of a column as the row has them: see [`RowView::bytes`].
    ///
    /// # Panics
    /// Unwinds with a [`RowError`] if a column of variable size is damaged.
    #[inline(always)]
    pub fn bytes<F: Field>(&self, choose: impl FnOnce(&R::Columns) -> ColumnRef<R, F>) -> &[u8] {
        column_bytes::<R, F>(self.bytes, choose(&R::FIELDS).at)
    }

    /// The whole row as it is encoded, with the columns that were set.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes
    }

    /// The whole row.
    ///
    /// # Panics
    /// Unwinds with a [`RowError`] if the row is damaged.
    #[must_use]
    pub fn row(&self) -> R {
        R::decode(self.bytes).unwrap_or_else(|error| resume_unwind(Box::new(error)))
    }

    /// Sets a column of fixed size. A column of variable size does not compile: change the row as a whole.
    #[inline(always)]
    pub fn set<F: Field>(&mut self, choose: impl FnOnce(&R::Columns) -> ColumnRef<R, F>, value: F) {
        const {
            assert!(
                !F::VARIABLE,
                "a column of variable size changes the length of its row: use `update` instead of `edit`"
            );
        }
        let at = choose(&R::FIELDS).at;
        if let Some(overwritten) = &mut self.overwritten {
            overwritten.add(self.bytes, at.offset, F::WIDTH);
            if F::NULLABLE {
                overwritten.add(self.bytes, at.null / 8, 1);
            }
        }
        let fixed = &mut self.bytes[..R::FIXED_BYTES];
        value.write(fixed, at.offset, &mut Default::default());
        if F::NULLABLE {
            clear_bit(fixed, at.null);
            if value.is_null() {
                set_bit(fixed, at.null);
            }
        }
    }

    /// Sets a column of fixed size to the result of a function of its value, and returns the new value.
    ///
    /// # Panics
    /// Unwinds with a [`RowError`] if the column holds bytes that are not of its type: the row is damaged.
    #[inline(always)]
    pub fn change<F: Field>(
        &mut self,
        choose: impl FnOnce(&R::Columns) -> ColumnRef<R, F>,
        change: impl FnOnce(F) -> F,
    ) -> F {
        let column = choose(&R::FIELDS);
        let value = change(self.get(|_| column));
        self.set(|_| column, value.clone());
        value
    }
}

/// Clears bit number `bit`, low ones of each byte first.
#[inline]
fn clear_bit(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] &= !(1 << (bit % 8));
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use proptest::prelude::*;

    use super::*;
    use crate::{FixedStr, row};

    row! {
        #[derive(Clone, Debug, PartialEq)]
        struct Mixed {
            a: u16, text: Option<String>, b: Option<i64>, name: FixedStr<5>, more: Vec<u8>, c: Option<u8>, d: bool,
        }
    }

    fn mixed() -> impl Strategy<Value = Mixed> {
        let fixed = (any::<u16>(), any::<Option<i64>>(), "[a-z]{0,5}", any::<Option<u8>>(), any::<bool>());
        let variable = (proptest::option::of(".{0,9}"), proptest::collection::vec(any::<u8>(), 0..9));
        (fixed, variable).prop_map(|((a, b, name, c, d), (text, more))| {
            let name = FixedStr::new(&name).expect("at most five letters");
            Mixed { a, text, b, name, more, c, d }
        })
    }

    fn encoded(row: &Mixed) -> Vec<u8> {
        let mut bytes = Vec::new();
        row.encode(&mut bytes);
        bytes
    }

    proptest! {
        #![proptest_config(crate::testing::config(256, 4))]

        #[test]
        fn columns_are_those_of_the_row(row in mixed()) {
            let bytes = encoded(&row);
            let view = RowView::<Mixed>::new(&bytes).unwrap();
            let seen = Mixed {
                a: view.get(|column| column.a),
                text: view.get(|column| column.text),
                b: view.get(|column| column.b),
                name: view.get(|column| column.name),
                more: view.get(|column| column.more),
                c: view.get(|column| column.c),
                d: view.get(|column| column.d),
            };
            prop_assert_eq!(&seen, &row);
            prop_assert_eq!(view.bytes(|column| column.a), &row.a.to_le_bytes());
            prop_assert_eq!(view.bytes(|column| column.name), row.name.padded());
            prop_assert_eq!(view.bytes(|column| column.text), row.text.as_deref().unwrap_or_default().as_bytes());
            prop_assert_eq!(view.bytes(|column| column.more), &row.more[..]);
            prop_assert_eq!(view.row(), row);
        }

        #[test]
        fn an_edited_row_is_the_one_with_these_columns(old in mixed(), new in mixed()) {
            let mut bytes = encoded(&old);
            let mut edit = RowEdit::<Mixed>::new(&mut bytes).unwrap();
            edit.set(|column| column.a, new.a);
            edit.set(|column| column.b, new.b);
            edit.set(|column| column.name, new.name);
            edit.set(|column| column.c, new.c);
            prop_assert_eq!(edit.change(|column| column.d, |d| !d), !old.d);
            let expected = Mixed { text: old.text.clone(), more: old.more.clone(), d: !old.d, ..new };
            prop_assert_eq!(&bytes, &encoded(&expected), "there is one encoding");
        }
    }

    #[test]
    fn damage_unwinds_with_an_error_that_names_the_column() {
        let row =
            Mixed { a: 1, text: None, b: None, name: FixedStr::default(), more: vec![], c: None, d: true };
        let mut bytes = encoded(&row);
        let too_short = RowView::<Mixed>::new(&bytes[..3]).map(|_| ()).unwrap_err();
        assert!(matches!(too_short, RowError::WrongLength { got: 3, .. }));
        let d_at = 2 + 8 + 5 + 1;
        assert_eq!(bytes[d_at], 1);
        bytes[d_at] = 2;
        let look = || RowView::<Mixed>::new(&bytes).unwrap().get(|column| column.d);
        let payload = catch_unwind(AssertUnwindSafe(look)).unwrap_err();
        let error = payload.downcast_ref::<RowError>().expect("the payload is the error");
        assert_eq!(*error, RowError::Malformed { row: "Mixed", column: "d" });
    }
}
