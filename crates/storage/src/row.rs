//! Rows: typed rows of a fixed schema over bytes.
//!
//! Owns the [`Row`] and [`Field`] traits, the [`row!`](crate::row!) macro and the encoding. It never touches trees.
//!
//! The encoding of a row:
//!
//! ```text
//! +---------------------------+------------------------+-----------------------------------------+
//! | fixed-size fields,        | one bit per field that | variable fields, in declaration order,  |
//! | in declaration order,     | may be NULL, set if it | each: length (see `variable`), bytes    |
//! | little endian, no padding | is; low bits first     |                                         |
//! +---------------------------+------------------------+-----------------------------------------+
//! ```
//!
//! Invariants: a fixed-size field is at the same offset in every row of its type; decoding what was encoded gives
//! the same row; bytes of another schema give an error or a row, never a panic. A row has one encoding: the bytes of a NULL are
//! zeros (of variable size: of no length), and so are bits that stand for no field. A type without `Option`s has no bits.

mod column_type;
mod field;
mod fixed_str;
mod overwritten;
mod variable;
mod view;

pub use column_type::ColumnType;
pub use field::Field;
pub use fixed_str::{FixedStr, FixedStrError};
pub use overwritten::{Overwritten, OverwrittenBytes};
pub use variable::{push_variable, take_variable, variable_bytes};
pub use view::{ColumnAt, ColumnRef, RowEdit, RowView};

use std::ops::Range;
use thiserror::Error;

/// One column of a row type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Column {
    /// The name of the field.
    pub name: &'static str,
    /// The type of the field.
    pub ty: ColumnType,
    /// Set if it may be NULL.
    pub nullable: bool,
}

/// Ranges of a row's bytes that hold the fixed-size column `name`: its own bytes and, if it may be NULL, the byte with
/// its bit (shared with other columns). `None` when there is no such column, or it has no fixed size.
#[must_use]
pub fn column_bytes(columns: &[Column], name: &str) -> Option<Vec<Range<usize>>> {
    let place = columns.iter().position(|column| column.name == name)?;
    let width = |columns: &[Column]| columns.iter().filter_map(|column| column.ty.width()).sum::<usize>();
    let at = width(&columns[..place]);
    let own = at..at + columns[place].ty.width()?;
    let with_bit = columns[place].nullable.then(|| {
        let bit = columns[..place].iter().filter(|column| column.nullable).count();
        let at = width(columns) + bit / 8;
        at..at + 1
    });
    Some([own].into_iter().chain(with_bit).collect())
}

/// Returns whether bit number `bit`, low ones of each byte first, is set.
#[doc(hidden)]
#[inline]
#[must_use]
pub fn bit_of(bytes: &[u8], bit: usize) -> bool {
    bytes[bit / 8] >> (bit % 8) & 1 == 1
}

/// Sets bit number `bit`, low ones of each byte first.
#[doc(hidden)]
#[inline]
pub fn set_bit(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] |= 1 << (bit % 8);
}

/// Reasons for which bytes are not a row of the wanted type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RowError {
    /// The number of bytes is wrong.
    #[error(
        "a row of {row} has {got} bytes where {expected} are expected; it was written with another row type"
    )]
    WrongLength {
        /// The row type.
        row: &'static str,
        /// Bytes the type needs (at least, when it has variable fields).
        expected: usize,
        /// Bytes there are.
        got: usize,
    },
    /// One of the bits for NULL is set that stands for no field.
    #[error(
        "a row of {row} has a field NULL that the type does not have; it was written with another row type"
    )]
    UnknownNull {
        /// The row type.
        row: &'static str,
    },
    /// A field holds bytes its type never writes.
    #[error(
        "field {column} of {row} holds bytes that are not of its type; it was written with another row type"
    )]
    Malformed {
        /// The row type.
        row: &'static str,
        /// The field.
        column: &'static str,
    },
}

/// A row type: a fixed list of typed columns over bytes. Implemented by the [`row!`](crate::row!) macro.
pub trait Row: Sized + Clone + Send + 'static {
    /// The name of the row type.
    const NAME: &'static str;
    /// The columns in declaration order.
    const COLUMNS: &'static [Column];
    /// Fields that may be NULL.
    const NULLABLE: usize;
    /// Bytes of the fixed-size fields together, and of the bits for NULL behind them.
    const FIXED_BYTES: usize;
    /// Set if there are variable fields; without them every row has exactly `FIXED_BYTES` bytes.
    const VARIABLE: bool;
    /// A struct with a [`ColumnRef`] for each field, of the name of the field.
    type Columns: Copy + 'static;
    /// The columns, by which [`RowView`] and [`RowEdit`] are told of one.
    const FIELDS: Self::Columns;

    /// Bytes that [`write`](Row::write) writes for this row.
    fn encoded_len(&self) -> usize;

    /// Writes the row over `out`.
    ///
    /// # Panics
    /// When `out` is not [`encoded_len`](Row::encoded_len) bytes long, which is an error of the caller, or a field has 4 GiB.
    fn write(&self, out: &mut [u8]);

    /// The row that `bytes` encode.
    ///
    /// # Errors
    /// When the bytes are not a row of this type.
    fn decode(bytes: &[u8]) -> Result<Self, RowError>;

    /// Appends the encoding to `out`.
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + self.encoded_len(), 0);
        self.write(&mut out[start..]);
    }

    /// Overwrites `out` with the encoding when the lengths agree; tells whether they did. This is how a row whose
    /// length does not change is updated in place.
    #[inline]
    fn overwrite(&self, out: &mut [u8]) -> bool {
        let fits = out.len() == self.encoded_len();
        if fits {
            self.write(out);
        }
        fits
    }
}

/// Defines a struct and implements [`Row`] for it. Attributes, derives, documentation and visibilities
/// are kept; the struct must be `Clone`. Field types are those that implement [`Field`]; an `Option` of one may be NULL.
///
/// ```
/// use atrapos_storage::{FixedStr, Row, row};
///
/// row! {
///     /// A subscriber of the phone network.
///     #[derive(Clone, Debug, PartialEq)]
///     pub struct Subscriber {
///         /// The identifier.
///         pub id: u64,
///         name: String,
///         pub number: FixedStr<15>,
///     }
/// }
///
/// let row = Subscriber { id: 7, name: "Ada".to_owned(), number: FixedStr::new("000000000000007").unwrap() };
/// let mut bytes = Vec::new();
/// row.encode(&mut bytes);
/// assert_eq!(bytes.len(), 8 + 15 + 2 + 3);
/// assert_eq!(Subscriber::decode(&bytes), Ok(row));
/// ```
#[macro_export]
macro_rules! row {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $( $(#[$field_attribute:meta])* $field_visibility:vis $field:ident : $ty:ty ),* $(,)?
        }
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $( $(#[$field_attribute])* $field_visibility $field: $ty, )*
        }

        const _: () = {
            /// The columns of the row type.
            #[allow(dead_code, missing_docs, reason = "a column that no transaction reads by itself; its field has the documentation")]
            #[derive(Clone, Copy)]
            $visibility struct RowColumns {
                $( $field_visibility $field: $crate::ColumnRef<$name, $ty>, )*
            }

            impl $crate::Row for $name {
                const NAME: &'static str = ::core::stringify!($name);
                const COLUMNS: &'static [$crate::Column] = &[
                    $( $crate::Column {
                        name: ::core::stringify!($field),
                        ty: <$ty as $crate::Field>::TYPE,
                        nullable: <$ty as $crate::Field>::NULLABLE,
                    }, )*
                ];
                const NULLABLE: usize = 0 $( + <$ty as $crate::Field>::NULLABLE as usize )*;
                const FIXED_BYTES: usize = Self::NULLABLE.div_ceil(8) $( + <$ty as $crate::Field>::WIDTH )*;
                const VARIABLE: bool = false $( || <$ty as $crate::Field>::VARIABLE )*;
                type Columns = RowColumns;
                const FIELDS: Self::Columns = {
                    let at = $crate::ColumnAt::first(Self::FIXED_BYTES, Self::NULLABLE);
                    $(
                        let $field = $crate::ColumnRef::new(at);
                        let at = at.after::<$ty>();
                    )*
                    let _ = at;
                    RowColumns { $( $field ),* }
                };

                #[inline]
                fn encoded_len(&self) -> usize {
                    Self::FIXED_BYTES $( + <$ty as $crate::Field>::variable_bytes(&self.$field) )*
                }

                #[inline]
                #[allow(unused_assignments, unused_mut, unused_variables, reason = "depends on which fields there are")]
                fn write(&self, out: &mut [u8]) {
                    ::core::assert_eq!(
                        out.len(), self.encoded_len(), "the buffer for a row must have the length of the row"
                    );
                    let (fixed, mut variable) = out.split_at_mut(Self::FIXED_BYTES);
                    let nulls_at = Self::FIXED_BYTES - Self::NULLABLE.div_ceil(8);
                    if Self::NULLABLE > 0 {
                        fixed[nulls_at..].fill(0);
                    }
                    let (mut offset, mut null) = (0, 8 * nulls_at);
                    $(
                        <$ty as $crate::Field>::write(&self.$field, fixed, offset, &mut variable);
                        offset += <$ty as $crate::Field>::WIDTH;
                        if <$ty as $crate::Field>::NULLABLE {
                            if <$ty as $crate::Field>::is_null(&self.$field) {
                                $crate::set_bit(fixed, null);
                            }
                            null += 1;
                        }
                    )*
                }

                #[inline]
                #[allow(unused_assignments, unused_mut, unused_variables, reason = "depends on which fields there are")]
                fn decode(bytes: &[u8]) -> ::core::result::Result<Self, $crate::RowError> {
                    let wrong_length = || $crate::RowError::WrongLength {
                        row: Self::NAME,
                        expected: Self::FIXED_BYTES,
                        got: bytes.len(),
                    };
                    // The one length check: all loads of fixed-size fields below are in bounds by constants.
                    let ::core::option::Option::Some((fixed, mut variable)) =
                        bytes.split_first_chunk::<{ <$name as $crate::Row>::FIXED_BYTES }>()
                    else {
                        return ::core::result::Result::Err(wrong_length());
                    };
                    if !Self::VARIABLE && !variable.is_empty() {
                        return ::core::result::Result::Err(wrong_length());
                    }
                    let (mut offset, mut null) = (0, 8 * (Self::FIXED_BYTES - Self::NULLABLE.div_ceil(8)));
                    if (null + Self::NULLABLE..8 * Self::FIXED_BYTES).any(|bit| $crate::bit_of(fixed, bit)) {
                        return ::core::result::Result::Err($crate::RowError::UnknownNull { row: Self::NAME });
                    }
                    $(
                        let value = if <$ty as $crate::Field>::NULLABLE && $crate::bit_of(fixed, null) {
                            <$ty as $crate::Field>::read_null(fixed, offset, &mut variable)
                        } else {
                            <$ty as $crate::Field>::read(fixed, offset, &mut variable)
                        };
                        let ::core::option::Option::Some($field) = value else {
                            return ::core::result::Result::Err($crate::RowError::Malformed {
                                row: Self::NAME,
                                column: ::core::stringify!($field),
                            });
                        };
                        offset += <$ty as $crate::Field>::WIDTH;
                        if <$ty as $crate::Field>::NULLABLE {
                            null += 1;
                        }
                    )*
                    if !variable.is_empty() {
                        return ::core::result::Result::Err(wrong_length());
                    }
                    ::core::result::Result::Ok(Self { $( $field ),* })
                }
            }
        };
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    row! {
        /// Every field type, variable ones in the middle.
        #[derive(Clone, Debug, PartialEq)]
        struct Wide {
            a: u8, b: u16, text: String, c: u32, d: u64, e: i8, f: i16, bytes: Vec<u8>, g: i32, h: i64,
            i: f64, j: bool, k: [u8; 5], l: FixedStr<7>,
        }
    }

    row! {
        #[derive(Clone, Debug, PartialEq)]
        struct Counter { id: u32, value: i64 }
    }

    row! {
        #[derive(Clone, Debug, PartialEq)]
        struct Nothing {}
    }

    row! {
        #[derive(Clone, Debug, PartialEq)]
        struct Sparse { a: Option<u16>, text: Option<String>, b: u8, c: Option<i32> }
    }

    #[test]
    fn nulls_are_bits_and_zeros() {
        let row = Sparse { a: None, text: None, b: 7, c: Some(-2) };
        let mut bytes = Vec::new();
        row.encode(&mut bytes);
        assert_eq!(bytes, [0, 0, 7, 0xfe, 0xff, 0xff, 0xff, 0b011, 0, 0]);
        assert_eq!(Sparse::decode(&bytes), Ok(row));
        let refused = |at: usize, byte: u8| {
            let mut other = bytes.clone();
            other[at] = byte;
            Sparse::decode(&other).expect_err("it is no row")
        };
        assert_eq!(refused(7, 0b1011), RowError::UnknownNull { row: "Sparse" });
        assert_eq!(refused(1, 1), RowError::Malformed { row: "Sparse", column: "a" });
        assert!(refused(8, 1).to_string().contains("text"), "a NULL has no bytes");
        assert_eq!(column_bytes(Sparse::COLUMNS, "a"), Some(vec![0..2, 7..8]));
        assert_eq!(column_bytes(Sparse::COLUMNS, "b").unwrap().as_slice(), std::slice::from_ref(&(2..3)));
        assert_eq!(column_bytes(Sparse::COLUMNS, "text"), None);
        assert_eq!(column_bytes(Sparse::COLUMNS, "d"), None);
    }

    fn wide() -> impl Strategy<Value = Wide> {
        let numbers =
            (any::<u8>(), any::<u16>(), any::<u32>(), any::<u64>(), any::<i8>(), any::<i16>(), any::<i32>());
        let rest = (any::<i64>(), -1e9..1e9f64, any::<bool>(), any::<[u8; 5]>(), "[a-z]{0,7}");
        (numbers, rest, ".{0,9}", proptest::collection::vec(any::<u8>(), 0..9)).prop_map(
            |((a, b, c, d, e, f, g), (h, i, j, k, l), text, bytes)| {
                let l = FixedStr::new(&l).expect("at most seven letters");
                Wide { a, b, text, c, d, e, f, bytes, g, h, i, j, k, l }
            },
        )
    }

    proptest! {
        #![proptest_config(crate::testing::config(256, 4))]

        #[test]
        fn rows_come_back(row in wide(), cut in 0usize..200) {
            let mut bytes = vec![1, 2, 3];
            row.encode(&mut bytes);
            prop_assert_eq!(bytes.len(), 3 + row.encoded_len());
            prop_assert_eq!(Wide::decode(&bytes[3..]), Ok(row.clone()));
            let cut = 3 + cut % row.encoded_len();
            prop_assert!(Wide::decode(&bytes[3..cut]).is_err());
            bytes.push(0);
            prop_assert!(Wide::decode(&bytes[3..]).is_err());
        }

        #[test]
        fn any_bytes_give_a_row_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..90)) {
            if let Ok(row) = Wide::decode(&bytes) {
                let mut again = Vec::new();
                row.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn the_schema_is_described() {
        assert_eq!(Wide::NAME, "Wide");
        assert_eq!(Wide::FIXED_BYTES, 1 + 2 + 4 + 8 + 1 + 2 + 4 + 8 + 8 + 1 + 5 + 7);
        assert_eq!(Wide::COLUMNS[2], Column { name: "text", ty: ColumnType::String, nullable: false });
        assert_eq!(Wide::COLUMNS[13], Column { name: "l", ty: ColumnType::FixedStr(7), nullable: false });
        assert_eq!((Wide::VARIABLE, Counter::VARIABLE), (true, false));
    }

    #[test]
    fn fixed_fields_come_first_at_constant_offsets() {
        let mut bytes = Vec::new();
        Counter { id: 1, value: -2 }.encode(&mut bytes);
        assert_eq!(bytes, [1, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert!(Counter { id: 9, value: 9 }.overwrite(&mut bytes));
        assert_eq!(Counter::decode(&bytes), Ok(Counter { id: 9, value: 9 }));
        assert!(!Counter { id: 9, value: 9 }.overwrite(&mut bytes[1..]));
    }

    #[test]
    fn errors_name_row_and_field() {
        let error = Counter::decode(&[0; 11]).unwrap_err();
        assert_eq!(error, RowError::WrongLength { row: "Counter", expected: 12, got: 11 });
        assert!(error.to_string().contains("Counter has 11 bytes where 12"));
        assert_eq!(Nothing::decode(&[]), Ok(Nothing {}));
        assert!(Nothing::decode(&[1]).is_err());
    }
}
