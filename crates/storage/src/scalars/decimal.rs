//! [`Decimal`]: a number with a fixed number of digits after the point.

use crate::row::ColumnType;
use std::fmt;

/// A decimal number of up to `PRECISION` digits, the last `SCALE` of which follow the point: exact, for money. At most 38 digits.
///
/// ```
/// use atrapos_storage::Decimal;
///
/// let price = Decimal::<10, 2>::new(-1_234_56).unwrap();
/// assert_eq!(price.to_string(), "-1234.56");
/// assert_eq!(Decimal::<4, 2>::new(100_00), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Decimal<const PRECISION: u8, const SCALE: u8>(i128);

impl<const PRECISION: u8, const SCALE: u8> Decimal<PRECISION, SCALE> {
    /// The type as a schema describes it. Does not compile with digits that no decimal has.
    pub(crate) const COLUMN: ColumnType = {
        assert!(
            1 <= PRECISION && PRECISION <= 38 && SCALE <= PRECISION,
            "a decimal has 1 to 38 digits, and no more after the point than there are"
        );
        ColumnType::Decimal { precision: PRECISION, scale: SCALE }
    };

    /// Bytes of the integer that holds its digits: 4, 8 or 16.
    pub(crate) const WIDTH: usize = match Self::COLUMN.width() {
        Some(width) => width,
        None => 0,
    };

    /// The number whose digits are `unscaled`; `None` when there are more than `PRECISION`.
    #[must_use]
    pub fn new(unscaled: i128) -> Option<Self> {
        let _checked = Self::COLUMN;
        (unscaled.unsigned_abs() < 10_u128.pow(u32::from(PRECISION))).then_some(Decimal(unscaled))
    }

    /// Its digits as an integer: the number times ten to the power of `SCALE`.
    #[must_use]
    pub fn unscaled(self) -> i128 {
        self.0
    }
}

/// All digits after the point, zeros too.
impl<const PRECISION: u8, const SCALE: u8> fmt::Display for Decimal<PRECISION, SCALE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let power = 10_u128.pow(u32::from(SCALE));
        let (whole, part) = (self.0.unsigned_abs() / power, self.0.unsigned_abs() % power);
        let digits = match SCALE {
            0 => whole.to_string(),
            _ => format!("{whole}.{part:0width$}", width = usize::from(SCALE)),
        };
        f.pad_integral(self.0 >= 0, "", &digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_limited_and_shown() {
        assert_eq!(Decimal::<3, 0>::new(999).unwrap().to_string(), "999");
        assert_eq!((Decimal::<3, 0>::new(1000), Decimal::<3, 0>::new(-1000)), (None, None));
        assert_eq!(Decimal::<3, 3>::new(-7).unwrap().to_string(), "-0.007");
        let all = 10_i128.pow(38) - 1;
        assert_eq!(Decimal::<38, 38>::new(all).unwrap().unscaled(), all);
        assert_eq!(Decimal::<38, 0>::new(all + 1), None);
        assert_eq!(Decimal::<38, 0>::new(i128::MIN), None);
        assert_eq!(format!("{:>8}", Decimal::<5, 2>::new(-5).unwrap()), "   -0.05");
        assert_eq!((Decimal::<9, 0>::WIDTH, Decimal::<10, 0>::WIDTH, Decimal::<19, 0>::WIDTH), (4, 8, 16));
    }
}
