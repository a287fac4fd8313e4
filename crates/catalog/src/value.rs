//! [`Value`]: what a column of a row holds, whatever its type, NULL included.
//!
//! Owns which values fit which types, and brings a value into the one form in which a column of its type holds it. It never
//! encodes one as a key (`key` does) or in a row (`row` does).

use atrapos_storage::{ColumnType, MAX_ROW_BYTES};

/// The longest value, in bytes: a row that has it may have little else.
pub const MAX_VALUE_BYTES: usize = MAX_ROW_BYTES;

/// A value of a column.
#[derive(Clone, Debug)]
pub enum Value {
    /// NULL: no value.
    Null,
    /// True or false.
    Bool(bool),
    /// A number of a signed integer type.
    Signed(i128),
    /// A number of an unsigned integer type.
    Unsigned(u128),
    /// A number of a floating-point type.
    F64(f64),
    /// A decimal number: `unscaled` with `scale` digits after the point.
    Decimal {
        /// The digits, as an integer.
        unscaled: i128,
        /// Number of digits behind the point.
        scale: u8,
    },
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A day, as the number of days since 1970-01-01.
    Date(i32),
    /// A moment, as the number of microseconds since 1970-01-01 00:00 UTC.
    Timestamp(i64),
    /// A universally unique identifier.
    Uuid([u8; 16]),
}

/// Bit by bit: a definition with a default that is not a number is equal to itself.
impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(one), Value::Bool(other)) => one == other,
            (Value::Signed(one), Value::Signed(other)) => one == other,
            (Value::Unsigned(one), Value::Unsigned(other)) => one == other,
            (Value::F64(one), Value::F64(other)) => one.to_bits() == other.to_bits(),
            (
                Value::Decimal { unscaled, scale },
                Value::Decimal { unscaled: other_unscaled, scale: other_scale },
            ) => unscaled == other_unscaled && scale == other_scale,
            (Value::Text(one), Value::Text(other)) => one == other,
            (Value::Bytes(one), Value::Bytes(other)) => one == other,
            (Value::Date(one), Value::Date(other)) => one == other,
            (Value::Timestamp(one), Value::Timestamp(other)) => one == other,
            (Value::Uuid(one), Value::Uuid(other)) => one == other,
            _ => false,
        }
    }
}

impl Eq for Value {}

/// Reasons for which a value cannot be in a column, or bytes are not a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// The value is of another type.
    #[error("a value of type {got} does not go into a column of type {wanted}; give one of that type")]
    OtherType {
        /// The type of the value.
        got: &'static str,
        /// The type of the column.
        wanted: ColumnType,
    },
    /// The value is NULL in a column that may not be.
    #[error("NULL does not go into a column that is NOT NULL; give a value")]
    Null,
    /// The value is too great or too small.
    #[error("the value {value} is beyond the range of {wanted}; use a wider type")]
    OutOfRange {
        /// The value.
        value: String,
        /// The type of the column.
        wanted: ColumnType,
    },
    /// The value has digits that the column has no place for.
    #[error("the value has more digits after the point than {wanted} keeps; round it first")]
    Inexact {
        /// The type of the column.
        wanted: ColumnType,
    },
    /// The value is too long, or not of the length required.
    #[error("the value has {bytes} bytes where {wanted} takes {max}; change the value or the column")]
    Length {
        /// Bytes of the value.
        bytes: usize,
        /// Bytes the column takes (at most, if it may take fewer).
        max: usize,
        /// The type of the column.
        wanted: ColumnType,
    },
    /// Text of fixed size holds the character that pads it.
    #[error("the text has a zero character, which {wanted} cannot hold; remove it")]
    ZeroCharacter {
        /// The type of the column.
        wanted: ColumnType,
    },
    /// The number of values is not the number of columns.
    #[error("there are {got} values for {wanted} columns; give one for each")]
    Count {
        /// Number of values.
        got: usize,
        /// Number of columns.
        wanted: usize,
    },
    /// Bytes are not the encoding of a value.
    #[error("the bytes are not of type {0}; they were written with another definition")]
    Malformed(ColumnType),
    /// Bytes are left after the last value, or are missing before it.
    #[error("there are more or fewer bytes than the definition says; they were written with another one")]
    OtherLength,
}

impl Value {
    /// Returns whether it is NULL.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    fn noun(&self) -> &'static str {
        match self {
            Value::Null => "NULL",
            Value::Bool(_) => "bool",
            Value::Signed(_) | Value::Unsigned(_) => "integer",
            Value::F64(_) => "f64",
            Value::Decimal { .. } => "decimal",
            Value::Text(_) => "text",
            Value::Bytes(_) => "bytes",
            Value::Date(_) => "date",
            Value::Timestamp(_) => "timestamp",
            Value::Uuid(_) => "uuid",
        }
    }

    /// Checks that it can be in a column of this type, NULL aside.
    ///
    /// # Errors
    /// The reason for which it cannot.
    pub fn check(&self, ty: ColumnType) -> Result<(), ValueError> {
        match ty {
            ColumnType::Unsigned(bytes) => self.as_unsigned(ty, bytes).map(drop),
            ColumnType::Signed(bytes) => self.as_signed(ty, bytes).map(drop),
            ColumnType::Decimal { precision, scale } => self.as_decimal(ty, precision, scale).map(drop),
            ColumnType::F64 => self.as_f64(ty).map(drop),
            ColumnType::Bool => self.as_bool(ty).map(drop),
            ColumnType::Date => self.as_date(ty).map(drop),
            ColumnType::Timestamp => self.as_timestamp(ty).map(drop),
            ColumnType::Bytes(_) | ColumnType::FixedStr(_) | ColumnType::Uuid => {
                self.as_fixed_bytes(ty).map(drop)
            }
            ColumnType::String | ColumnType::VarBytes => self.as_bytes(ty).map(drop),
            ColumnType::Opaque => Err(self.other_type(ty)),
        }
    }

    #[cold]
    fn other_type(&self, wanted: ColumnType) -> ValueError {
        if self.is_null() { ValueError::Null } else { ValueError::OtherType { got: self.noun(), wanted } }
    }

    pub(crate) fn as_bool(&self, ty: ColumnType) -> Result<bool, ValueError> {
        match self {
            Value::Bool(value) => Ok(*value),
            _ => Err(self.other_type(ty)),
        }
    }

    pub(crate) fn as_f64(&self, ty: ColumnType) -> Result<f64, ValueError> {
        match self {
            Value::F64(value) => Ok(*value),
            _ => Err(self.other_type(ty)),
        }
    }

    pub(crate) fn as_date(&self, ty: ColumnType) -> Result<i32, ValueError> {
        match self {
            Value::Date(value) => Ok(*value),
            _ => Err(self.other_type(ty)),
        }
    }

    pub(crate) fn as_timestamp(&self, ty: ColumnType) -> Result<i64, ValueError> {
        match self {
            Value::Timestamp(value) => Ok(*value),
            _ => Err(self.other_type(ty)),
        }
    }

    /// The number as an unsigned integer of `bytes` bytes.
    pub(crate) fn as_unsigned(&self, ty: ColumnType, bytes: u8) -> Result<u128, ValueError> {
        let number = match self {
            Value::Unsigned(number) => Some(*number),
            Value::Signed(number) => u128::try_from(*number).ok(),
            _ => return Err(self.other_type(ty)),
        };
        let max = u128::MAX >> (128 - 8 * u32::from(bytes.clamp(1, 16)));
        number.filter(|number| *number <= max).ok_or_else(|| self.out_of_range(ty))
    }

    /// The number as a signed integer of `bytes` bytes.
    pub(crate) fn as_signed(&self, ty: ColumnType, bytes: u8) -> Result<i128, ValueError> {
        let number = match self {
            Value::Signed(number) => Some(*number),
            Value::Unsigned(number) => i128::try_from(*number).ok(),
            _ => return Err(self.other_type(ty)),
        };
        let max = i128::MAX >> (128 - 8 * u32::from(bytes.clamp(1, 16)));
        number.filter(|number| (-max - 1..=max).contains(number)).ok_or_else(|| self.out_of_range(ty))
    }

    /// The number as an integer whose last `scale` digits follow the point.
    pub(crate) fn as_decimal(&self, ty: ColumnType, precision: u8, scale: u8) -> Result<i128, ValueError> {
        let (unscaled, from) = match self {
            Value::Decimal { unscaled, scale } => (*unscaled, *scale),
            Value::Signed(number) => (*number, 0),
            Value::Unsigned(number) => (i128::try_from(*number).map_err(|_| self.out_of_range(ty))?, 0),
            _ => return Err(self.other_type(ty)),
        };
        let power = |digits: u8| 10_i128.checked_pow(u32::from(digits));
        let number = if from <= scale {
            power(scale - from).and_then(|factor| unscaled.checked_mul(factor))
        } else {
            // Beyond 38 digits only zero is left without a rest.
            let factor = power(from - scale).unwrap_or(i128::MAX);
            if unscaled % factor != 0 {
                return Err(ValueError::Inexact { wanted: ty });
            }
            Some(unscaled / factor)
        };
        let bound = power(precision.min(38)).unwrap_or(i128::MAX);
        number.filter(|number| (-bound + 1..bound).contains(number)).ok_or_else(|| self.out_of_range(ty))
    }

    /// The bytes of a value of fixed size that is not a number; text of fixed size is not padded here.
    pub(crate) fn as_fixed_bytes(&self, ty: ColumnType) -> Result<&[u8], ValueError> {
        match (ty, self) {
            (ColumnType::Bytes(max), Value::Bytes(bytes)) if bytes.len() == max => Ok(bytes),
            (ColumnType::Bytes(max), Value::Bytes(bytes)) => {
                Err(ValueError::Length { bytes: bytes.len(), max, wanted: ty })
            }
            (ColumnType::FixedStr(max), Value::Text(text)) if text.len() > max => {
                Err(ValueError::Length { bytes: text.len(), max, wanted: ty })
            }
            (ColumnType::FixedStr(_), Value::Text(text)) if text.contains('\0') => {
                Err(ValueError::ZeroCharacter { wanted: ty })
            }
            (ColumnType::FixedStr(_), Value::Text(text)) => Ok(text.as_bytes()),
            (ColumnType::Uuid, Value::Uuid(uuid)) => Ok(uuid),
            _ => Err(self.other_type(ty)),
        }
    }

    /// The bytes of a value of variable size.
    pub(crate) fn as_bytes(&self, ty: ColumnType) -> Result<&[u8], ValueError> {
        let bytes = match (ty, self) {
            (ColumnType::String, Value::Text(text)) => text.as_bytes(),
            (ColumnType::VarBytes, Value::Bytes(bytes)) => bytes,
            _ => return Err(self.other_type(ty)),
        };
        if bytes.len() > MAX_VALUE_BYTES {
            return Err(ValueError::Length { bytes: bytes.len(), max: MAX_VALUE_BYTES, wanted: ty });
        }
        Ok(bytes)
    }

    #[cold]
    fn out_of_range(&self, wanted: ColumnType) -> ValueError {
        let value = match self {
            Value::Signed(number) => number.to_string(),
            Value::Unsigned(number) => number.to_string(),
            Value::Decimal { unscaled, scale: 0 } => unscaled.to_string(),
            Value::Decimal { unscaled, scale } => format!("{unscaled}e-{scale}"),
            other => other.noun().to_owned(),
        };
        ValueError::OutOfRange { value, wanted }
    }
}

/// The text that bytes of fixed size hold, without the zeros that pad it; nothing if there is something behind a zero or it is
/// not UTF-8.
pub(crate) fn unpadded(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (text, padding) = bytes.split_at(end);
    if padding.iter().any(|byte| *byte != 0) {
        return None;
    }
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MONEY: ColumnType = ColumnType::Decimal { precision: 5, scale: 2 };

    #[test]
    fn numbers_fit_by_their_range_and_not_by_their_sign() {
        let fits = |value: Value, ty| value.check(ty).is_ok();
        assert!(fits(Value::Signed(255), ColumnType::Unsigned(1)));
        assert!(!fits(Value::Signed(256), ColumnType::Unsigned(1)));
        assert!(!fits(Value::Signed(-1), ColumnType::Unsigned(16)));
        assert!(fits(Value::Unsigned(u128::MAX), ColumnType::Unsigned(16)));
        assert!(fits(Value::Unsigned(127), ColumnType::Signed(1)));
        assert!(!fits(Value::Unsigned(128), ColumnType::Signed(1)));
        assert!(fits(Value::Signed(i128::MIN), ColumnType::Signed(16)));
        assert!(fits(Value::Signed(-32_768), ColumnType::Signed(2)));
        assert!(!fits(Value::Signed(-32_769), ColumnType::Signed(2)));
        let error = Value::Signed(300).check(ColumnType::Unsigned(1)).unwrap_err().to_string();
        assert_eq!(error, "the value 300 is beyond the range of u8; use a wider type");
    }

    #[test]
    fn decimals_are_brought_to_the_scale_of_the_column_without_loss() {
        let into = |unscaled, scale| Value::Decimal { unscaled, scale }.as_decimal(MONEY, 5, 2);
        assert_eq!(into(12345, 2), Ok(12345));
        assert_eq!(into(123, 0), Ok(12300));
        assert_eq!(into(-12_000, 4), Ok(-120));
        assert_eq!(into(12_001, 4), Err(ValueError::Inexact { wanted: MONEY }));
        assert!(matches!(into(1000, 0), Err(ValueError::OutOfRange { .. })));
        assert!(matches!(into(i128::MAX, 0), Err(ValueError::OutOfRange { .. })));
        assert_eq!(into(0, 255), Ok(0));
        assert_eq!(Value::Signed(-999).as_decimal(MONEY, 5, 2), Ok(-99_900));
        let wide = ColumnType::Decimal { precision: 38, scale: 38 };
        let all = 10_i128.pow(38) - 1;
        assert_eq!(Value::Decimal { unscaled: -all, scale: 38 }.as_decimal(wide, 38, 38), Ok(-all));
        assert!(Value::Decimal { unscaled: all + 1, scale: 38 }.check(wide).is_err());
    }

    #[test]
    fn other_types_and_lengths_are_told() {
        let told = |value: Value, ty| value.check(ty).unwrap_err().to_string();
        assert!(told(Value::Text("a".to_owned()), ColumnType::Bool).contains("type text"));
        assert!(told(Value::Null, ColumnType::Bool).contains("NOT NULL"));
        assert!(told(Value::Bytes(vec![1]), ColumnType::Bytes(2)).contains("1 bytes"));
        assert!(told(Value::Text("abc".to_owned()), ColumnType::FixedStr(2)).contains("text(2) takes 2"));
        assert!(told(Value::Text("a\0".to_owned()), ColumnType::FixedStr(2)).contains("zero character"));
        assert_eq!(Value::Text("x".repeat(1 << 20)).check(ColumnType::String), Ok(()));
        let longer = Value::Text("x".repeat((1 << 20) + 1));
        assert!(told(longer, ColumnType::String).contains("takes 1048576"));
    }

    #[test]
    fn values_are_equal_bit_by_bit() {
        assert_eq!(Value::F64(f64::NAN), Value::F64(f64::NAN));
        assert_ne!(Value::F64(0.0), Value::F64(-0.0));
        assert_ne!(Value::Signed(1), Value::Unsigned(1));
    }
}
