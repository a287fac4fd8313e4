//! [`Field`]: types that can be a column of a row.
//!
//! Owns the encoding of each. It never knows which columns a row has.

use super::variable::{take_variable, variable_bytes, write_variable};
use super::{ColumnType, FixedStr};
use crate::scalars::{Date, Decimal, Timestamp, Uuid};

/// A value that can be a field of a [`Row`](crate::Row).
///
/// A fixed-size field has a constant width and is read and written at a constant offset; a variable field has width
/// 0 and follows the fixed ones.
pub trait Field: Sized + Clone + Send + 'static {
    /// The type as a schema describes it.
    const TYPE: ColumnType;
    /// Bytes in the fixed part of a row; 0 for variable fields.
    const WIDTH: usize;
    /// Set if the field lives in the variable part.
    const VARIABLE: bool;
    /// Set if the field may be NULL: then a row has a bit that says whether it is.
    const NULLABLE: bool = false;

    /// Bytes this value takes in the variable part, its length prefix included; 0 for fixed-size fields.
    #[inline]
    fn variable_bytes(&self) -> usize {
        0
    }

    /// Returns whether this is the value that stands for NULL.
    #[inline]
    fn is_null(&self) -> bool {
        false
    }

    /// Writes the value at `offset` of the fixed part, or to the front of `variable`, which moves behind it.
    fn write(&self, fixed: &mut [u8], offset: usize, variable: &mut &mut [u8]);

    /// Reads a value from `offset` of the fixed part, or from the front of `variable`, which moves behind it.
    /// `None` when the bytes are not a value of this type.
    fn read(fixed: &[u8], offset: usize, variable: &mut &[u8]) -> Option<Self>;

    /// The value that stands for NULL, in place of which there are zeros, or no bytes in the variable part. `None` when there are
    /// other bytes, or no such value.
    #[inline]
    fn read_null(_fixed: &[u8], _offset: usize, _variable: &mut &[u8]) -> Option<Self> {
        None
    }
}

macro_rules! number_fields {
    ($($ty:ty => $column:expr),* $(,)?) => {$(
        impl Field for $ty {
            const TYPE: ColumnType = $column;
            const WIDTH: usize = size_of::<$ty>();
            const VARIABLE: bool = false;

            #[inline]
            fn write(&self, fixed: &mut [u8], offset: usize, _: &mut &mut [u8]) {
                fixed[offset..offset + Self::WIDTH].copy_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn read(fixed: &[u8], offset: usize, _: &mut &[u8]) -> Option<Self> {
                fixed.get(offset..)?.first_chunk().map(|bytes| <$ty>::from_le_bytes(*bytes))
            }
        }
    )*};
}

number_fields! {
    u8 => ColumnType::Unsigned(1),
    u16 => ColumnType::Unsigned(2),
    u32 => ColumnType::Unsigned(4),
    u64 => ColumnType::Unsigned(8),
    u128 => ColumnType::Unsigned(16),
    i8 => ColumnType::Signed(1),
    i16 => ColumnType::Signed(2),
    i32 => ColumnType::Signed(4),
    i64 => ColumnType::Signed(8),
    i128 => ColumnType::Signed(16),
    f64 => ColumnType::F64,
}

impl Field for bool {
    const TYPE: ColumnType = ColumnType::Bool;
    const WIDTH: usize = 1;
    const VARIABLE: bool = false;

    #[inline]
    fn write(&self, fixed: &mut [u8], offset: usize, _: &mut &mut [u8]) {
        fixed[offset] = u8::from(*self);
    }

    #[inline]
    fn read(fixed: &[u8], offset: usize, _: &mut &[u8]) -> Option<Self> {
        match fixed.get(offset)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl<const N: usize> Field for [u8; N] {
    const TYPE: ColumnType = ColumnType::Bytes(N);
    const WIDTH: usize = N;
    const VARIABLE: bool = false;

    #[inline]
    fn write(&self, fixed: &mut [u8], offset: usize, _: &mut &mut [u8]) {
        fixed[offset..offset + N].copy_from_slice(self);
    }

    #[inline]
    fn read(fixed: &[u8], offset: usize, _: &mut &[u8]) -> Option<Self> {
        fixed.get(offset..)?.first_chunk().copied()
    }
}

impl<const N: usize> Field for FixedStr<N> {
    const TYPE: ColumnType = ColumnType::FixedStr(N);
    const WIDTH: usize = N;
    const VARIABLE: bool = false;

    #[inline]
    fn write(&self, fixed: &mut [u8], offset: usize, _: &mut &mut [u8]) {
        fixed[offset..offset + N].copy_from_slice(self.padded());
    }

    #[inline]
    fn read(fixed: &[u8], offset: usize, _: &mut &[u8]) -> Option<Self> {
        FixedStr::from_padded(*fixed.get(offset..)?.first_chunk()?)
    }
}

impl<const PRECISION: u8, const SCALE: u8> Field for Decimal<PRECISION, SCALE> {
    const TYPE: ColumnType = Self::COLUMN;
    const WIDTH: usize = Self::WIDTH;
    const VARIABLE: bool = false;

    #[inline]
    fn write(&self, fixed: &mut [u8], offset: usize, _: &mut &mut [u8]) {
        let bytes = self.unscaled().to_le_bytes();
        fixed[offset..offset + Self::WIDTH].copy_from_slice(&bytes[..Self::WIDTH]);
    }

    #[inline]
    fn read(fixed: &[u8], offset: usize, _: &mut &[u8]) -> Option<Self> {
        let field = fixed.get(offset..offset + Self::WIDTH)?;
        // What is not there repeats the sign.
        let mut bytes = if field.last()? >> 7 == 1 { [0xff; 16] } else { [0; 16] };
        bytes[..Self::WIDTH].copy_from_slice(field);
        Decimal::new(i128::from_le_bytes(bytes))
    }
}

macro_rules! wrapped_fields {
    ($($ty:ident($inner:ty) => $column:expr),* $(,)?) => {$(
        impl Field for $ty {
            const TYPE: ColumnType = $column;
            const WIDTH: usize = <$inner as Field>::WIDTH;
            const VARIABLE: bool = false;

            #[inline]
            fn write(&self, fixed: &mut [u8], offset: usize, variable: &mut &mut [u8]) {
                self.0.write(fixed, offset, variable);
            }

            #[inline]
            fn read(fixed: &[u8], offset: usize, variable: &mut &[u8]) -> Option<Self> {
                <$inner as Field>::read(fixed, offset, variable).map($ty)
            }
        }
    )*};
}

wrapped_fields! {
    Date(i32) => ColumnType::Date,
    Timestamp(i64) => ColumnType::Timestamp,
    Uuid([u8; 16]) => ColumnType::Uuid,
}

/// A column that may be NULL: `None` is.
impl<T: Field> Field for Option<T> {
    const TYPE: ColumnType = T::TYPE;
    const WIDTH: usize = T::WIDTH;
    const VARIABLE: bool = T::VARIABLE;
    const NULLABLE: bool = {
        assert!(!T::NULLABLE, "a column is NULL or it is not: there is no Option of an Option");
        true
    };

    #[inline]
    fn variable_bytes(&self) -> usize {
        match self {
            Some(value) => value.variable_bytes(),
            None if T::VARIABLE => variable_bytes(0),
            None => 0,
        }
    }

    #[inline]
    fn is_null(&self) -> bool {
        self.is_none()
    }

    #[inline]
    fn write(&self, fixed: &mut [u8], offset: usize, variable: &mut &mut [u8]) {
        match self {
            Some(value) => value.write(fixed, offset, variable),
            None if T::VARIABLE => write_variable(&[], variable),
            None => fixed[offset..offset + T::WIDTH].fill(0),
        }
    }

    #[inline]
    fn read(fixed: &[u8], offset: usize, variable: &mut &[u8]) -> Option<Self> {
        T::read(fixed, offset, variable).map(Some)
    }

    #[inline]
    fn read_null(fixed: &[u8], offset: usize, variable: &mut &[u8]) -> Option<Self> {
        let is_empty = if T::VARIABLE {
            take_variable(variable)?.is_empty()
        } else {
            fixed.get(offset..offset + T::WIDTH)?.iter().all(|byte| *byte == 0)
        };
        is_empty.then_some(None)
    }
}

impl Field for String {
    const TYPE: ColumnType = ColumnType::String;
    const WIDTH: usize = 0;
    const VARIABLE: bool = true;

    #[inline]
    fn variable_bytes(&self) -> usize {
        variable_bytes(self.len())
    }

    #[inline]
    fn write(&self, _: &mut [u8], _: usize, variable: &mut &mut [u8]) {
        write_variable(self.as_bytes(), variable);
    }

    #[inline]
    fn read(_: &[u8], _: usize, variable: &mut &[u8]) -> Option<Self> {
        std::str::from_utf8(take_variable(variable)?).ok().map(str::to_owned)
    }
}

impl Field for Vec<u8> {
    const TYPE: ColumnType = ColumnType::VarBytes;
    const WIDTH: usize = 0;
    const VARIABLE: bool = true;

    #[inline]
    fn variable_bytes(&self) -> usize {
        variable_bytes(self.len())
    }

    #[inline]
    fn write(&self, _: &mut [u8], _: usize, variable: &mut &mut [u8]) {
        write_variable(self, variable);
    }

    #[inline]
    fn read(_: &[u8], _: usize, variable: &mut &[u8]) -> Option<Self> {
        take_variable(variable).map(<[u8]>::to_vec)
    }
}
