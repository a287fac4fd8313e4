//! Rows of values: the encoding of the columns that are not in the key.
//!
//! Owns where each column is. It never looks at keys.
//!
//! ```text
//! +----------------------------+------------------------+--------------------------------------+
//! | columns of fixed size, in  | one bit per column     | columns of variable size, in order,  |
//! | order, little endian, no   | that may be NULL, set  | each: length, bytes                  |
//! | padding                    | if it is; low first    |                                      |
//! +----------------------------+------------------------+--------------------------------------+
//! ```
//!
//! Invariants: a table none of whose columns may be NULL has the rows that the same columns have as a type of Rust
//! ([`Row`](atrapos_storage::Row)); the bytes of a NULL are zeros (of variable size: of no length), and so are bits that stand for
//! no column: a row has one encoding; any bytes give values or an error.

mod projection;

use atrapos_storage::{ColumnType, push_variable, take_variable};

use crate::definition::{ColumnDef, TableDef};
use crate::value::{Value, ValueError, unpadded};

pub use self::projection::RowProjection;

/// The place of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Offset in every row.
    Fixed(usize),
    /// The one of this number among those of variable size.
    Variable(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    ty: ColumnType,
    place: Place,
    /// Its bit among those for NULL, if it may be.
    null_bit: Option<usize>,
}

impl Slot {
    /// Returns true if the value is NULL and the column may be NULL.
    fn takes_null(&self, value: &Value) -> bool {
        self.null_bit.is_some() && value.is_null()
    }
}

/// Rows by their definition: lists of values to bytes and back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowLayout {
    slots: Vec<Slot>,
    fixed_bytes: usize,
    bitmap_bytes: usize,
    nullable: usize,
}

impl RowLayout {
    /// The layout of the rows of a table: of its columns but those of the key, in order.
    #[must_use]
    pub fn of_table(table: &TableDef) -> RowLayout {
        RowLayout::new(table.row_columns())
    }

    /// The layout of rows with these columns.
    #[must_use]
    pub fn new<'a>(columns: impl IntoIterator<Item = &'a ColumnDef>) -> RowLayout {
        let (mut fixed_bytes, mut variable, mut nullable) = (0, 0, 0);
        let slot = |column: &ColumnDef| {
            let place = match column.ty.width() {
                Some(width) => {
                    fixed_bytes += width;
                    Place::Fixed(fixed_bytes - width)
                }
                None => {
                    variable += 1;
                    Place::Variable(variable - 1)
                }
            };
            let null_bit = column.nullable.then_some(nullable);
            nullable += usize::from(column.nullable);
            Slot { ty: column.ty, place, null_bit }
        };
        let slots: Vec<Slot> = columns.into_iter().map(slot).collect();
        RowLayout { slots, fixed_bytes, bitmap_bytes: nullable.div_ceil(8), nullable }
    }

    /// Number of columns of a row.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.slots.len()
    }

    /// Offset at which the columns of variable size begin.
    #[inline]
    fn variable_at(&self) -> usize {
        self.fixed_bytes + self.bitmap_bytes
    }

    /// Appends the row of these values, one for each column, to `out`.
    ///
    /// # Errors
    /// When they do not fit; `out` is then as it was.
    pub fn encode(&self, values: &[Value], out: &mut Vec<u8>) -> Result<(), ValueError> {
        if values.len() != self.slots.len() {
            return Err(ValueError::Count { got: values.len(), wanted: self.slots.len() });
        }
        let start = out.len();
        out.resize(start + self.variable_at(), 0);
        for (slot, value) in self.slots.iter().zip(values) {
            if let Err(error) = self.put(slot, value, start, out) {
                out.truncate(start);
                return Err(error);
            }
        }
        Ok(())
    }

    fn put(&self, slot: &Slot, value: &Value, start: usize, out: &mut Vec<u8>) -> Result<(), ValueError> {
        if let (Some(bit), true) = (slot.null_bit, value.is_null()) {
            out[start + self.fixed_bytes + bit / 8] |= 1 << (bit % 8);
            if let Place::Variable(_) = slot.place {
                push_variable(&[], out);
            }
            return Ok(());
        }
        match slot.place {
            Place::Fixed(offset) => put_fixed(slot.ty, value, &mut out[start + offset..]),
            Place::Variable(_) => {
                push_variable(value.as_bytes(slot.ty)?, out);
                Ok(())
            }
        }
    }

    /// Appends to `out` the row that `row` becomes when columns, by their numbers, get other values. What is not assigned is copied
    /// as it is.
    ///
    /// # Errors
    /// When the values do not fit, or `row` is too short or too long for a row of these columns
    /// ([`OtherLength`](ValueError::OtherLength)); `out` is then as it was.
    pub fn assign(
        &self,
        row: &[u8],
        assigned: &[(usize, Value)],
        out: &mut Vec<u8>,
    ) -> Result<(), ValueError> {
        let start = out.len();
        let done = self.assign_from(row, assigned, start, out);
        if done.is_err() {
            out.truncate(start);
        }
        done
    }

    fn assign_from(
        &self,
        row: &[u8],
        assigned: &[(usize, Value)],
        start: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), ValueError> {
        let (fixed, mut rest) = row.split_at_checked(self.variable_at()).ok_or(ValueError::OtherLength)?;
        out.extend_from_slice(fixed);
        let mut moves = false;
        for (column, value) in assigned {
            let slot = self.slots.get(*column).ok_or(ValueError::OtherLength)?;
            let is_null = slot.takes_null(value);
            if let Some(bit) = slot.null_bit {
                let (byte, mask) = (&mut out[start + self.fixed_bytes + bit / 8], 1 << (bit % 8));
                *byte = if is_null { *byte | mask } else { *byte & !mask };
            }
            match slot.place {
                Place::Fixed(offset) => {
                    let field = &mut out[start + offset..][..slot.ty.width().unwrap_or(0)];
                    field.fill(0);
                    if !is_null {
                        put_fixed(slot.ty, value, field)?;
                    }
                }
                Place::Variable(_) => moves = true,
            }
        }
        if !moves {
            out.extend_from_slice(rest);
            return Ok(());
        }
        for (column, slot) in self.slots.iter().enumerate() {
            let Place::Variable(_) = slot.place else { continue };
            let old = take_variable(&mut rest).ok_or(ValueError::OtherLength)?;
            let new = match assigned.iter().find(|(assigned, _)| *assigned == column) {
                None => old,
                Some((_, value)) if slot.takes_null(value) => &[],
                Some((_, value)) => value.as_bytes(slot.ty)?,
            };
            push_variable(new, out);
        }
        if rest.is_empty() { Ok(()) } else { Err(ValueError::OtherLength) }
    }

    /// The value of one column of a row.
    ///
    /// # Errors
    /// When `row` has no such column, or holds bytes there that are none of its type.
    #[inline]
    pub fn get(&self, row: &[u8], column: usize) -> Result<Value, ValueError> {
        // Most columns that are asked for are numbers of eight bytes: for them nothing has to be told apart but this.
        if let Some(Slot { ty, place: Place::Fixed(offset), null_bit: None }) = self.slots.get(column)
            && row.len() >= self.variable_at()
            && let Some(field) = row.get(*offset..).and_then(<[u8]>::first_chunk::<8>)
        {
            match ty {
                ColumnType::Signed(8) => return Ok(Value::Signed(i64::from_le_bytes(*field).into())),
                ColumnType::Unsigned(8) => return Ok(Value::Unsigned(u64::from_le_bytes(*field).into())),
                _ => {}
            }
        }
        self.get_any(row, column)
    }

    fn get_any(&self, row: &[u8], column: usize) -> Result<Value, ValueError> {
        let slot = self.slots.get(column).ok_or(ValueError::OtherLength)?;
        if row.len() < self.variable_at() {
            return Err(ValueError::OtherLength);
        }
        if self.is_null(row, slot) {
            return Ok(Value::Null);
        }
        match slot.place {
            Place::Fixed(offset) => get_fixed(slot.ty, &row[offset..]),
            Place::Variable(number) => {
                let mut rest = &row[self.variable_at()..];
                for _ in 0..number {
                    take_variable(&mut rest).ok_or(ValueError::OtherLength)?;
                }
                variable_value(slot.ty, take_variable(&mut rest).ok_or(ValueError::OtherLength)?)
            }
        }
    }

    fn is_null(&self, row: &[u8], slot: &Slot) -> bool {
        slot.null_bit.is_some_and(|bit| row[self.fixed_bytes + bit / 8] >> (bit % 8) & 1 == 1)
    }

    /// The values of a row.
    ///
    /// # Errors
    /// When `row`, all of it, is not a row of these columns.
    pub fn decode(&self, row: &[u8]) -> Result<Vec<Value>, ValueError> {
        if row.len() < self.variable_at() {
            return Err(ValueError::OtherLength);
        }
        let (fixed, mut variable) = row.split_at(self.variable_at());
        let used = self.nullable % 8;
        if used > 0 && fixed.last().is_some_and(|last| last >> used != 0) {
            return Err(ValueError::OtherLength);
        }
        let mut values = Vec::with_capacity(self.slots.len());
        for slot in &self.slots {
            let is_null = self.is_null(row, slot);
            let value = match slot.place {
                Place::Fixed(offset) if is_null => {
                    let width = slot.ty.width().unwrap_or(0);
                    let is_zero = fixed[offset..offset + width].iter().all(|byte| *byte == 0);
                    if is_zero { Ok(Value::Null) } else { Err(ValueError::Malformed(slot.ty)) }
                }
                Place::Fixed(offset) => get_fixed(slot.ty, &fixed[offset..]),
                Place::Variable(_) => match take_variable(&mut variable).ok_or(ValueError::OtherLength)? {
                    [] if is_null => Ok(Value::Null),
                    _ if is_null => Err(ValueError::Malformed(slot.ty)),
                    bytes => variable_value(slot.ty, bytes),
                },
            };
            values.push(value?);
        }
        if variable.is_empty() { Ok(values) } else { Err(ValueError::OtherLength) }
    }
}

fn put_fixed(ty: ColumnType, value: &Value, out: &mut [u8]) -> Result<(), ValueError> {
    let mut put = |bytes: &[u8]| out[..bytes.len()].copy_from_slice(bytes);
    match ty {
        ColumnType::Unsigned(bytes) => {
            put(&value.as_unsigned(ty, bytes)?.to_le_bytes()[..usize::from(bytes).min(16)]);
        }
        ColumnType::Signed(bytes) => {
            put(&value.as_signed(ty, bytes)?.to_le_bytes()[..usize::from(bytes).min(16)]);
        }
        ColumnType::Decimal { precision, scale } => {
            let number = value.as_decimal(ty, precision, scale)?;
            put(&number.to_le_bytes()[..ty.width().unwrap_or(16)]);
        }
        ColumnType::F64 => put(&value.as_f64(ty)?.to_le_bytes()),
        ColumnType::Bool => put(&[u8::from(value.as_bool(ty)?)]),
        ColumnType::Date => put(&value.as_date(ty)?.to_le_bytes()),
        ColumnType::Timestamp => put(&value.as_timestamp(ty)?.to_le_bytes()),
        // The zeros behind a text are there already.
        ColumnType::Bytes(_) | ColumnType::FixedStr(_) | ColumnType::Uuid => put(value.as_fixed_bytes(ty)?),
        ColumnType::String | ColumnType::VarBytes | ColumnType::Opaque => value.check(ty)?,
    }
    Ok(())
}

fn unsigned(bytes: &[u8]) -> u128 {
    let mut all = [0; 16];
    let count = bytes.len().min(16);
    all[..count].copy_from_slice(&bytes[..count]);
    u128::from_le_bytes(all)
}

fn signed(bytes: &[u8]) -> i128 {
    let unused = 128 - 8 * bytes.len().clamp(1, 16) as u32;
    ((unsigned(bytes) << unused) as i128) >> unused
}

/// The value at the beginning of `bytes`, which are those from the column on.
fn get_fixed(ty: ColumnType, bytes: &[u8]) -> Result<Value, ValueError> {
    let malformed = || ValueError::Malformed(ty);
    let field = ty.width().and_then(|width| bytes.get(..width)).ok_or(ValueError::OtherLength)?;
    Ok(match ty {
        ColumnType::Unsigned(_) => Value::Unsigned(unsigned(field)),
        ColumnType::Signed(_) => Value::Signed(signed(field)),
        ColumnType::Decimal { scale, .. } => {
            let value = Value::Decimal { unscaled: signed(field), scale };
            value.check(ty).map_err(|_| malformed())?;
            value
        }
        ColumnType::F64 => Value::F64(f64::from_bits(unsigned(field) as u64)),
        ColumnType::Bool => match field {
            [0] => Value::Bool(false),
            [1] => Value::Bool(true),
            _ => return Err(malformed()),
        },
        ColumnType::Date => Value::Date(signed(field) as i32),
        ColumnType::Timestamp => Value::Timestamp(signed(field) as i64),
        ColumnType::Bytes(_) => Value::Bytes(field.to_vec()),
        ColumnType::FixedStr(_) => Value::Text(unpadded(field).ok_or_else(malformed)?.to_owned()),
        ColumnType::Uuid => Value::Uuid(field.try_into().map_err(|_| malformed())?),
        ColumnType::String | ColumnType::VarBytes | ColumnType::Opaque => return Err(malformed()),
    })
}

fn variable_value(ty: ColumnType, bytes: &[u8]) -> Result<Value, ValueError> {
    match ty {
        ColumnType::String => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Value::Text(text.to_owned())),
            Err(_) => Err(ValueError::Malformed(ty)),
        },
        ColumnType::VarBytes => Ok(Value::Bytes(bytes.to_vec())),
        _ => Err(ValueError::Malformed(ty)),
    }
}
