//! Decimal numbers of up to 38 digits, with the number of digits behind the point that they were given.
//!
//! Owns: the arithmetic of [`Numeric`], its text and its binary format. Never: loses a digit silently; a result that needs more
//! than 38 digits is an error, except that a quotient is rounded.

use std::cmp::Ordering;

use crate::error::{SqlError, SqlState};

/// The most digits of a number.
pub(crate) const MAX_DIGITS: u8 = 38;

/// The least number of significant digits of a quotient, as PostgreSQL has it.
const QUOTIENT_DIGITS: i32 = 16;

/// A decimal number: `unscaled` with `scale` digits behind the point.
#[derive(Clone, Copy, Debug)]
pub struct Numeric {
    /// The digits, as an integer.
    pub unscaled: i128,
    /// The number of digits behind the point, at most 38.
    pub scale: u8,
}

fn power(digits: u32) -> Option<i128> {
    10_i128.checked_pow(digits)
}

/// The error for a number that needs more digits than there are.
#[cold]
pub(crate) fn too_many_digits() -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
        .detail("A number of type numeric has at most 38 digits.")
}

/// Divides and rounds half away from zero.
fn divide_rounded(number: i128, by: i128) -> i128 {
    let (quotient, rest) = (number / by, number % by);
    let is_up = rest.unsigned_abs() >= by.unsigned_abs() - rest.unsigned_abs();
    if is_up && rest != 0 { quotient + if (number < 0) == (by < 0) { 1 } else { -1 } } else { quotient }
}

impl Numeric {
    /// An integer.
    #[must_use]
    pub fn of_integer(number: i128) -> Numeric {
        Numeric { unscaled: number, scale: 0 }
    }

    /// The same number with another number of digits behind the point, rounded if there are fewer.
    ///
    /// # Errors
    /// When it needs more than 38 digits.
    pub fn rescale(self, scale: u8) -> Result<Numeric, SqlError> {
        let unscaled = match scale.cmp(&self.scale) {
            Ordering::Equal => self.unscaled,
            Ordering::Greater => power(u32::from(scale - self.scale))
                .and_then(|factor| self.unscaled.checked_mul(factor))
                .ok_or_else(too_many_digits)?,
            Ordering::Less => match power(u32::from(self.scale - scale)) {
                Some(factor) => divide_rounded(self.unscaled, factor),
                None => 0,
            },
        };
        Numeric { unscaled, scale }.checked()
    }

    fn checked(self) -> Result<Numeric, SqlError> {
        let limit = 10_u128.pow(u32::from(MAX_DIGITS));
        if self.unscaled.unsigned_abs() < limit && self.scale <= MAX_DIGITS {
            Ok(self)
        } else {
            Err(too_many_digits())
        }
    }

    /// Brings a number into a column of type `numeric(precision, scale)`.
    ///
    /// # Errors
    /// When it has too many digits before the point.
    pub fn fit(self, precision: u8, scale: u8) -> Result<Numeric, SqlError> {
        let overflow = || {
            SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow").detail(format!(
                "A field with precision {precision}, scale {scale} must round to an absolute value less than 10^{}.",
                i32::from(precision) - i32::from(scale)
            ))
        };
        let fitted = self.rescale(scale).map_err(|_| overflow())?;
        let limit = 10_u128.pow(u32::from(precision.min(MAX_DIGITS)));
        if fitted.unscaled.unsigned_abs() < limit { Ok(fitted) } else { Err(overflow()) }
    }

    fn aligned(self, other: Numeric) -> Result<(i128, i128, u8), SqlError> {
        let scale = self.scale.max(other.scale);
        Ok((self.rescale(scale)?.unscaled, other.rescale(scale)?.unscaled, scale))
    }

    /// The sum.
    ///
    /// # Errors
    /// When it needs more than 38 digits.
    pub fn checked_add(self, other: Numeric) -> Result<Numeric, SqlError> {
        let (one, other, scale) = self.aligned(other)?;
        let unscaled = one.checked_add(other).ok_or_else(too_many_digits)?;
        Numeric { unscaled, scale }.checked()
    }

    /// The difference.
    ///
    /// # Errors
    /// When it needs more than 38 digits.
    pub fn checked_sub(self, other: Numeric) -> Result<Numeric, SqlError> {
        self.checked_add(other.negate())
    }

    /// The number with the other sign.
    #[must_use]
    pub fn negate(self) -> Numeric {
        Numeric { unscaled: -self.unscaled, scale: self.scale }
    }

    /// The product.
    ///
    /// # Errors
    /// When it needs more than 38 digits.
    pub fn checked_mul(self, other: Numeric) -> Result<Numeric, SqlError> {
        let unscaled = self.unscaled.checked_mul(other.unscaled).ok_or_else(too_many_digits)?;
        let scale = self.scale.checked_add(other.scale).ok_or_else(too_many_digits)?;
        Numeric { unscaled, scale }.checked()
    }

    fn first_group(self) -> FirstGroup {
        let unscaled = self.unscaled.unsigned_abs();
        let Some(digits) = unscaled.checked_ilog10().map(|log| log as i32) else { return (0, 0) };
        let group = (digits - i32::from(self.scale)).div_euclid(4);
        let shift = i32::from(self.scale) + 4 * group;
        let factor = 10_u128.pow(shift.unsigned_abs().min(38));
        (group, if shift < 0 { unscaled.saturating_mul(factor) } else { unscaled / factor })
    }

    /// The quotient, rounded: with some 16 significant digits, and at least as many behind the point as both operands.
    ///
    /// # Errors
    /// Division by zero, or more than 38 digits.
    pub fn checked_div(self, other: Numeric) -> Result<Numeric, SqlError> {
        if other.unscaled == 0 {
            return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        let least = i32::from(self.scale.max(other.scale));
        let scale = quotient_scale(self.first_group(), other.first_group(), least);
        let shift = i32::from(scale) + i32::from(other.scale) - i32::from(self.scale);
        let unscaled = long_division(self.unscaled, other.unscaled, shift).ok_or_else(too_many_digits)?;
        Numeric { unscaled, scale }.checked()
    }

    /// The rest of a division, with the sign of the dividend.
    ///
    /// # Errors
    /// Division by zero, or more than 38 digits.
    pub fn checked_rem(self, other: Numeric) -> Result<Numeric, SqlError> {
        let (one, other, scale) = self.aligned(other)?;
        if other == 0 {
            return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        Ok(Numeric { unscaled: one % other, scale })
    }

    /// The nearest floating-point number.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    /// The number that a floating-point number is shown as, with the digits that PostgreSQL keeps of it.
    ///
    /// # Errors
    /// When it is no number or needs more than 38 digits.
    pub fn of_f64(number: f64, digits: usize) -> Result<Numeric, SqlError> {
        if !number.is_finite() {
            return Err(too_many_digits());
        }
        Numeric::parse(&format!("{number:.*e}", digits - 1)).map(Numeric::trimmed)
    }

    /// The nearest integer.
    #[must_use]
    pub fn round_to_integer(self) -> i128 {
        power(u32::from(self.scale)).map_or(0, |factor| divide_rounded(self.unscaled, factor))
    }

    /// The integer without what is behind the point.
    #[must_use]
    pub fn truncated(self) -> i128 {
        power(u32::from(self.scale)).map_or(0, |factor| self.unscaled / factor)
    }

    /// The number without zeros at its end behind the point.
    #[must_use]
    pub fn trimmed(mut self) -> Numeric {
        while self.scale > 0 && self.unscaled % 10 == 0 {
            self.unscaled /= 10;
            self.scale -= 1;
        }
        self
    }

    /// Reads a number as SQL writes it: digits, a point, an exponent.
    ///
    /// # Errors
    /// When it is no number, or has more than 38 digits.
    pub fn parse(text: &str) -> Result<Numeric, SqlError> {
        let trimmed = text.trim();
        let invalid = || {
            SqlError::new(
                SqlState::INVALID_TEXT_REPRESENTATION,
                format!("invalid input syntax for type numeric: \"{text}\""),
            )
        };
        let (mantissa, exponent) = match trimmed.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| invalid())?),
            None => (trimmed, 0),
        };
        let (is_negative, digits) = match mantissa.as_bytes().first() {
            Some(b'-') => (true, &mantissa[1..]),
            Some(b'+') => (false, &mantissa[1..]),
            _ => (false, mantissa),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !is_digits(whole) || !is_digits(fraction) {
            return Err(invalid());
        }
        let mut unscaled: i128 = 0;
        for digit in whole.bytes().chain(fraction.bytes()) {
            unscaled = unscaled
                .checked_mul(10)
                .and_then(|number| number.checked_add(i128::from(digit - b'0')))
                .ok_or_else(too_many_digits)?;
        }
        if is_negative {
            unscaled = -unscaled;
        }
        let scale = i32::try_from(fraction.len()).map_err(|_| too_many_digits())?.saturating_sub(exponent);
        if scale < 0 {
            let factor = power(scale.unsigned_abs()).ok_or_else(too_many_digits)?;
            let unscaled = unscaled.checked_mul(factor).ok_or_else(too_many_digits)?;
            return Numeric { unscaled, scale: 0 }.checked();
        }
        Numeric { unscaled, scale: u8::try_from(scale).map_err(|_| too_many_digits())? }.checked()
    }

    /// Appends PostgreSQL's binary format: groups of four decimal digits.
    pub fn encode_binary(self, out: &mut Vec<u8>) {
        // The digits are aligned so that the point is between two groups.
        let padding = (4 - self.scale % 4) % 4;
        let mut digits = self.unscaled.unsigned_abs().to_string().into_bytes();
        digits.extend(std::iter::repeat_n(b'0', usize::from(padding)));
        let fraction_groups = usize::from(self.scale + padding) / 4;
        let lead = (4 - digits.len() % 4) % 4;
        let mut padded = vec![b'0'; lead];
        padded.append(&mut digits);
        let mut groups: Vec<i16> = padded
            .chunks(4)
            .map(|group| group.iter().fold(0, |number, digit| number * 10 + i16::from(digit - b'0')))
            .collect();
        let mut weight = groups.len() as i32 - fraction_groups as i32 - 1;
        while groups.last() == Some(&0) {
            groups.pop();
        }
        let zeros = groups.iter().take_while(|group| **group == 0).count();
        groups.drain(..zeros);
        weight -= zeros as i32;
        if groups.is_empty() {
            weight = 0;
        }
        out.extend_from_slice(&(groups.len() as i16).to_be_bytes());
        out.extend_from_slice(&(weight as i16).to_be_bytes());
        out.extend_from_slice(&(if self.unscaled < 0 { 0x4000_u16 } else { 0 }).to_be_bytes());
        out.extend_from_slice(&u16::from(self.scale).to_be_bytes());
        for group in groups {
            out.extend_from_slice(&group.to_be_bytes());
        }
    }

    /// Reads PostgreSQL's binary format.
    ///
    /// # Errors
    /// When the bytes are none, stand for no number, or for one of more than 38 digits.
    pub fn decode_binary(bytes: &[u8]) -> Result<Numeric, SqlError> {
        let invalid =
            || SqlError::new(SqlState::INVALID_BINARY_REPRESENTATION, "invalid binary format of a numeric");
        let word = |at: usize| {
            bytes
                .get(2 * at..2 * at + 2)
                .map(|pair| i16::from_be_bytes([pair[0], pair[1]]))
                .ok_or_else(invalid)
        };
        let (count, weight, sign, scale) = (word(0)?, i32::from(word(1)?), word(2)? as u16, word(3)?);
        let is_negative = match sign {
            0 => false,
            0x4000 => true,
            _ => return Err(SqlError::unsupported("a numeric that is no finite number")),
        };
        let scale =
            u8::try_from(scale).ok().filter(|scale| *scale <= MAX_DIGITS).ok_or_else(too_many_digits)?;
        if count < 0 || bytes.len() != 8 + 2 * count as usize {
            return Err(invalid());
        }
        let mut sum = Numeric { unscaled: 0, scale };
        for at in 0..count {
            let group = word(4 + at as usize)?;
            if !(0..10_000).contains(&group) {
                return Err(invalid());
            }
            let (mut digits, mut exponent) = (i128::from(group), 4 * (weight - i32::from(at)));
            // The last group is filled up with zeros behind the digits that there are.
            while exponent < -i32::from(scale) {
                digits /= 10;
                exponent += 1;
            }
            let group = if exponent < 0 {
                Numeric { unscaled: digits, scale: exponent.unsigned_abs() as u8 }
            } else {
                let factor = power(exponent.unsigned_abs()).ok_or_else(too_many_digits)?;
                Numeric::of_integer(digits.checked_mul(factor).ok_or_else(too_many_digits)?)
            };
            sum = sum.checked_add(group)?;
        }
        let sum = sum.rescale(scale)?;
        Ok(if is_negative { sum.negate() } else { sum })
    }
}

/// The place of the first group of four digits that is not zero, counted from the point, and that group.
pub(crate) type FirstGroup = (i32, u128);

/// The first group of a number of decimal digits, `scale` of them behind the point.
pub(crate) fn first_group(digits: &str, scale: i32) -> FirstGroup {
    let last = digits.len() as i32 - 1 - scale;
    let first = digits.chars().chain("000".chars()).take(last.rem_euclid(4) as usize + 1);
    match first.collect::<String>().parse() {
        Ok(0) | Err(_) => (0, 0),
        Ok(first) => (last.div_euclid(4), first),
    }
}

/// The number of digits behind the point of a quotient: at least so many that some 16 are significant, as PostgreSQL has it, which
/// counts in groups of four digits.
pub(crate) fn quotient_scale(one: FirstGroup, other: FirstGroup, least: i32) -> u8 {
    let places = QUOTIENT_DIGITS - 4 * (one.0 - other.0 - i32::from(one.1 <= other.1));
    places.max(least).clamp(0, i32::from(MAX_DIGITS)) as u8
}

/// `number * 10^shift / by`, rounded half away from zero, digit by digit as the product may have more than 38 digits.
fn long_division(number: i128, by: i128, shift: i32) -> Option<i128> {
    if shift < 0 {
        let by = power(shift.unsigned_abs()).and_then(|factor| by.checked_mul(factor))?;
        return Some(divide_rounded(number, by));
    }
    let (divisor, is_negative) = (by.unsigned_abs(), (number < 0) != (by < 0));
    let mut quotient = number.unsigned_abs() / divisor;
    let mut rest = number.unsigned_abs() % divisor;
    for _ in 0..shift {
        // A rest is less than the divisor, which has at most 38 digits: ten times it fits in 128 bits only for 37.
        let scaled = rest.checked_mul(10)?;
        quotient = quotient.checked_mul(10)?.checked_add(scaled / divisor)?;
        rest = scaled % divisor;
    }
    if rest >= divisor - rest {
        quotient = quotient.checked_add(1)?;
    }
    let quotient = i128::try_from(quotient).ok()?;
    Some(if is_negative { -quotient } else { quotient })
}

impl PartialEq for Numeric {
    fn eq(&self, other: &Numeric) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Numeric {}

impl PartialOrd for Numeric {
    fn partial_cmp(&self, other: &Numeric) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Numeric {
    fn cmp(&self, other: &Numeric) -> Ordering {
        if let Ok((one, other, _)) = self.aligned(*other) {
            return one.cmp(&other);
        }
        // One of them has so many digits before the point that the other's behind it do not count, unless the wholes are equal.
        let whole =
            |number: &Numeric| power(u32::from(number.scale)).map_or(0, |factor| number.unscaled / factor);
        whole(self).cmp(&whole(other)).then_with(|| {
            let (one, other) = (self.trimmed(), other.trimmed());
            let rest = |number: Numeric| {
                power(u32::from(number.scale)).map_or(number.unscaled, |factor| number.unscaled % factor)
            };
            let scale = one.scale.max(other.scale);
            let at_scale = |number: Numeric| {
                rest(number).saturating_mul(power(u32::from(scale - number.scale)).unwrap_or(i128::MAX))
            };
            at_scale(one).cmp(&at_scale(other))
        })
    }
}

impl std::hash::Hash for Numeric {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        let trimmed = self.trimmed();
        trimmed.unscaled.hash(state);
        trimmed.scale.hash(state);
    }
}

impl std::fmt::Display for Numeric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.unscaled < 0 { "-" } else { "" };
        let digits = self.unscaled.unsigned_abs().to_string();
        let scale = usize::from(self.scale);
        if scale == 0 {
            return write!(f, "{sign}{digits}");
        }
        let padded = format!("{digits:0>width$}", width = scale + 1);
        let (whole, fraction) = padded.split_at(padded.len() - scale);
        write!(f, "{sign}{whole}.{fraction}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Numeric {
        Numeric::parse(text).unwrap()
    }

    #[test]
    fn numbers_keep_their_digits() {
        for text in ["0", "1.50", "-0.001", "12345678901234567890123456789012345678", "0.00"] {
            assert_eq!(number(text).to_string(), text);
        }
        assert_eq!(number("1.5e3").to_string(), "1500");
        assert_eq!(number("15e-3").to_string(), "0.015");
        for text in ["", ".", "a", "1e", "1.2.3", "--1", "123456789012345678901234567890123456789"] {
            assert!(Numeric::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn arithmetic_has_the_digits_of_postgresql() {
        let of = |result: Result<Numeric, SqlError>| result.unwrap().to_string();
        assert_eq!(of(number("1.5").checked_add(number("2.25"))), "3.75");
        assert_eq!(of(number("1.5").checked_mul(number("1.50"))), "2.250");
        assert_eq!(of(number("10").checked_div(number("3"))), "3.3333333333333333");
        assert_eq!(of(number("1").checked_div(number("3"))), "0.33333333333333333333");
        assert_eq!(of(number("-7.5").checked_rem(number("2"))), "-1.5");
        assert_eq!(number("1").checked_div(number("0")).unwrap_err().code, SqlState::DIVISION_BY_ZERO);
        let most = number("99999999999999999999999999999999999999");
        assert!(most.checked_add(number("1")).is_err());
        assert!(most > number("0.00000000000000000000000000000000000001"));
    }

    #[test]
    fn columns_round_and_refuse() {
        assert_eq!(number("1.005").fit(5, 2).unwrap().to_string(), "1.01");
        assert_eq!(number("-1.005").fit(5, 2).unwrap().to_string(), "-1.01");
        assert!(number("1000").fit(5, 2).is_err());
    }

    #[test]
    fn binary_is_groups_of_four_digits() {
        let mut bytes = Vec::new();
        number("12345.678").encode_binary(&mut bytes);
        assert_eq!(bytes, [0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1a, 0x7c]);
        for text in
            ["0", "0.00", "1", "-10000", "0.0001", "12345.678", "99999999999999999999999999999999999999"]
        {
            let mut bytes = Vec::new();
            number(text).encode_binary(&mut bytes);
            assert_eq!(Numeric::decode_binary(&bytes).unwrap().to_string(), text);
        }
    }
}
