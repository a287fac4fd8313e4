//! [`ColumnType`]: what a column or a part of a key holds, as a stored definition describes it.
//!
//! Owns the list of types, their widths in a row and their names for people. It never encodes a value.

use std::fmt;

/// The type of a column, or of a part of a key.
///
/// Most are the types of fields of Rust; the last ones are those of tables that are known only at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// Unsigned integer of the given number of bytes.
    Unsigned(u8),
    /// Signed integer of the given number of bytes.
    Signed(u8),
    /// IEEE 754 binary64.
    F64,
    /// One byte, 0 or 1.
    Bool,
    /// Exactly this many bytes.
    Bytes(usize),
    /// UTF-8 of at most this many bytes, padded with zeros.
    FixedStr(usize),
    /// UTF-8 of any length the row has room for.
    String,
    /// Bytes of any length the row has room for.
    VarBytes,
    /// A decimal number: an integer of up to `precision` digits, the last `scale` of which follow the point.
    Decimal {
        /// Digits, from 1 to 38.
        precision: u8,
        /// Digits that follow the point, at most `precision`.
        scale: u8,
    },
    /// A day, as the number of days since 1970-01-01.
    Date,
    /// A moment, as the number of microseconds since 1970-01-01 00:00 UTC.
    Timestamp,
    /// A universally unique identifier.
    Uuid,
    /// The rest of a key, in an encoding that only the program knows: the part of a [`Key`](crate::Key) of somebody's own. No
    /// column has it.
    Opaque,
}

impl ColumnType {
    /// Bytes a column takes in the fixed part of a row; `None` for one of variable size.
    #[must_use]
    pub const fn width(self) -> Option<usize> {
        match self {
            ColumnType::Unsigned(bytes) | ColumnType::Signed(bytes) => Some(bytes as usize),
            ColumnType::F64 | ColumnType::Timestamp => Some(8),
            ColumnType::Bool => Some(1),
            ColumnType::Bytes(bytes) | ColumnType::FixedStr(bytes) => Some(bytes),
            ColumnType::Decimal { precision, .. } => Some(decimal_width(precision)),
            ColumnType::Date => Some(4),
            ColumnType::Uuid => Some(16),
            ColumnType::String | ColumnType::VarBytes | ColumnType::Opaque => None,
        }
    }
}

/// Bytes of the smallest integer that holds all numbers of so many digits.
const fn decimal_width(precision: u8) -> usize {
    match precision {
        0..=9 => 4,
        10..=18 => 8,
        _ => 16,
    }
}

/// Shows a type as messages and definitions do: `u64`, `decimal(10, 2)`, `text(15)`.
impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColumnType::Unsigned(bytes) => write!(f, "u{}", 8 * u32::from(*bytes)),
            ColumnType::Signed(bytes) => write!(f, "i{}", 8 * u32::from(*bytes)),
            ColumnType::F64 => f.write_str("f64"),
            ColumnType::Bool => f.write_str("bool"),
            ColumnType::Bytes(bytes) => write!(f, "bytes({bytes})"),
            ColumnType::FixedStr(bytes) => write!(f, "text({bytes})"),
            ColumnType::String => f.write_str("text"),
            ColumnType::VarBytes => f.write_str("bytes"),
            ColumnType::Decimal { precision, scale } => write!(f, "decimal({precision}, {scale})"),
            ColumnType::Date => f.write_str("date"),
            ColumnType::Timestamp => f.write_str("timestamp"),
            ColumnType::Uuid => f.write_str("uuid"),
            ColumnType::Opaque => f.write_str("opaque"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_take_the_smallest_integer_that_holds_them() {
        let width = |precision| ColumnType::Decimal { precision, scale: 0 }.width();
        assert_eq!([9, 10, 18, 19, 38].map(width), [4, 8, 8, 16, 16].map(Some));
        assert!(10_i64.pow(9) - 1 <= i64::from(i32::MAX));
        assert!(10_i128.pow(18) - 1 <= i128::from(i64::MAX));
        assert!(10_i128.checked_pow(38).is_some());
    }

    #[test]
    fn types_have_names_for_people() {
        let names = [
            (ColumnType::Unsigned(16), "u128"),
            (ColumnType::Signed(1), "i8"),
            (ColumnType::FixedStr(15), "text(15)"),
            (ColumnType::VarBytes, "bytes"),
            (ColumnType::Decimal { precision: 10, scale: 2 }, "decimal(10, 2)"),
        ];
        for (ty, name) in names {
            assert_eq!(ty.to_string(), name);
        }
    }
}
