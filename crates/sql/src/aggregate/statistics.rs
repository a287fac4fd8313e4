//! Variances, standard deviations, and the correlation and regression of pairs of numbers.
//!
//! Owns: their sums and their formulas. Integers and `numeric` are summed exactly; numbers of double precision as Youngs and Cramer do,
//! by which equal numbers have no variance.

use num_bigint::BigUint;

use crate::error::{SqlError, SqlState};
use crate::numeric::{Numeric, first_group, quotient_scale, too_many_digits};
use crate::types::SqlType;
use crate::value::Value;

/// A statistic of the numbers, or pairs of numbers, of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Statistic {
    VarPop,
    VarSamp,
    StddevPop,
    StddevSamp,
    Corr,
    CovarPop,
    CovarSamp,
    RegrAvgX,
    RegrAvgY,
    RegrCount,
    RegrIntercept,
    RegrR2,
    RegrSlope,
    RegrSxx,
    RegrSxy,
    RegrSyy,
}

impl Statistic {
    /// The statistic of a name.
    pub(super) fn named(name: &str) -> Option<Statistic> {
        Some(match name {
            "var_pop" => Statistic::VarPop,
            "var_samp" | "variance" => Statistic::VarSamp,
            "stddev_pop" => Statistic::StddevPop,
            "stddev_samp" | "stddev" => Statistic::StddevSamp,
            "corr" => Statistic::Corr,
            "covar_pop" => Statistic::CovarPop,
            "covar_samp" => Statistic::CovarSamp,
            "regr_avgx" => Statistic::RegrAvgX,
            "regr_avgy" => Statistic::RegrAvgY,
            "regr_count" => Statistic::RegrCount,
            "regr_intercept" => Statistic::RegrIntercept,
            "regr_r2" => Statistic::RegrR2,
            "regr_slope" => Statistic::RegrSlope,
            "regr_sxx" => Statistic::RegrSxx,
            "regr_sxy" => Statistic::RegrSxy,
            "regr_syy" => Statistic::RegrSyy,
            _ => return None,
        })
    }

    /// Returns true if it is of pairs of numbers.
    pub(super) fn is_of_pairs(self) -> bool {
        use Statistic::{StddevPop, StddevSamp, VarPop, VarSamp};
        !matches!(self, VarPop | VarSamp | StddevPop | StddevSamp)
    }

    /// The types that its arguments are brought to, and that of its result; `None` if it does not take the type.
    pub(super) fn types(self, argument: SqlType) -> Option<(SqlType, SqlType)> {
        use SqlType::{Float4, Float8, Int8, Numeric, Unknown};
        Some(match argument {
            _ if self == Statistic::RegrCount => (Float8, Int8),
            _ if self.is_of_pairs() => (Float8, Float8),
            ty if ty.is_integer() || ty == Numeric => (Numeric, Numeric),
            Float4 | Float8 | Unknown => (Float8, Float8),
            _ => return None,
        })
    }
}

/// The sums of a group.
#[derive(Clone, Debug)]
pub(super) enum Sums {
    Exact(Exact),
    Floats(Floats),
}

impl Sums {
    /// The sums of a number, or a pair of them.
    pub(super) fn of(arguments: &[Value]) -> Result<Sums, SqlError> {
        let mut sums = match arguments.first() {
            Some(Value::Numeric(_)) => Sums::Exact(Exact::default()),
            _ => Sums::Floats(Floats::default()),
        };
        sums.add(arguments)?;
        Ok(sums)
    }

    /// Adds a number, or a pair of them.
    pub(super) fn add(&mut self, arguments: &[Value]) -> Result<(), SqlError> {
        match (self, arguments) {
            (Sums::Exact(sums), [Value::Numeric(number)]) => sums.add(*number),
            (Sums::Floats(sums), [Value::Float(number)]) => sums.add(0.0, *number),
            (Sums::Floats(sums), [Value::Float(y), Value::Float(x)]) => sums.add(*y, *x),
            _ => Ok(()),
        }
    }

    /// The statistic; NULL if there are too few numbers.
    pub(super) fn finish(&self, statistic: Statistic) -> Result<Value, SqlError> {
        match self {
            Sums::Exact(sums) => sums.finish(statistic),
            Sums::Floats(sums) => Ok(sums.finish(statistic).map_or(Value::Null, Value::Float)),
        }
    }
}

/// The sums of exact numbers.
#[derive(Clone, Debug)]
pub(super) struct Exact {
    count: u64,
    sum: Numeric,
    /// The sum of the squares, with twice as many digits behind the point as the sum.
    squares: BigUint,
}

impl Default for Exact {
    fn default() -> Exact {
        Exact { count: 0, sum: Numeric::of_integer(0), squares: BigUint::ZERO }
    }
}

impl Exact {
    fn add(&mut self, number: Numeric) -> Result<(), SqlError> {
        let sum = self.sum.checked_add(number)?;
        let more = 2 * u32::from(sum.scale - self.sum.scale);
        let own = number.rescale(sum.scale)?.unscaled.unsigned_abs();
        self.squares *= ten_to(more);
        self.squares += BigUint::from(own) * own;
        self.sum = sum;
        self.count += 1;
        Ok(())
    }

    fn finish(&self, statistic: Statistic) -> Result<Value, SqlError> {
        let is_sample = matches!(statistic, Statistic::VarSamp | Statistic::StddevSamp);
        let others = self.count - u64::from(is_sample && self.count > 0);
        if others == 0 {
            return Ok(Value::Null);
        }
        let sum = self.sum.unscaled.unsigned_abs();
        // The square of the sum is never greater.
        let spread = &self.squares * self.count - BigUint::from(sum) * sum;
        if spread == BigUint::ZERO {
            return Ok(Value::Numeric(Numeric::of_integer(0)));
        }
        let variance = self.variance(spread, others)?;
        let is_root = matches!(statistic, Statistic::StddevPop | Statistic::StddevSamp);
        Ok(Value::Numeric(if is_root { root(variance)? } else { variance }))
    }

    /// `spread / (count * others)`, rounded to the digits of a quotient.
    fn variance(&self, spread: BigUint, others: u64) -> Result<Numeric, SqlError> {
        let own_scale = 2 * i32::from(self.sum.scale);
        let pairs = BigUint::from(self.count) * others;
        let groups = (first_group(&spread.to_string(), own_scale), first_group(&pairs.to_string(), 0));
        let scale = quotient_scale(groups.0, groups.1, own_scale);
        let shift = i32::from(scale) - own_scale;
        let (up, down) = (shift.max(0).unsigned_abs(), (-shift).max(0).unsigned_abs());
        // Half of the divisor more, before the quotient is cut, rounds it.
        let divisor = pairs * ten_to(down);
        let quotient = (spread * ten_to(up) * 2_u8 + &divisor) / (divisor * 2_u8);
        let unscaled = i128::try_from(quotient).map_err(|_| too_many_digits())?;
        Numeric { unscaled, scale }.rescale(scale)
    }
}

/// The square root with as many digits behind the point.
fn root(number: Numeric) -> Result<Numeric, SqlError> {
    let scaled = BigUint::from(number.unscaled.unsigned_abs()) * ten_to(number.scale.into());
    let below = scaled.sqrt();
    let nearest = if scaled - &below * &below > below { below + 1_u8 } else { below };
    let unscaled = i128::try_from(nearest).map_err(|_| too_many_digits())?;
    Ok(Numeric { unscaled, scale: number.scale })
}

fn ten_to(digits: u32) -> BigUint {
    BigUint::from(10_u8).pow(digits)
}

/// The sums of pairs of numbers, or of single ones as `x`.
#[derive(Clone, Debug, Default)]
pub(super) struct Floats {
    count: f64,
    x: f64,
    /// The sum of the squares of the distances from the mean; likewise `yy`, and the products in `xy`.
    xx: f64,
    y: f64,
    yy: f64,
    xy: f64,
}

impl Floats {
    fn add(&mut self, y: f64, x: f64) -> Result<(), SqlError> {
        let before = self.clone();
        self.count += 1.0;
        self.x += x;
        self.y += y;
        if before.count == 0.0 {
            // What is no finite number has no distance from the mean.
            self.xx = x * 0.0;
            self.yy = y * 0.0;
            self.xy = self.xx + self.yy;
            return Ok(());
        }
        let (far_x, far_y) = (x * self.count - self.x, y * self.count - self.y);
        let scale = 1.0 / (self.count * before.count);
        self.xx += far_x * far_x * scale;
        self.yy += far_y * far_y * scale;
        self.xy += far_x * far_y * scale;
        let x_was_finite = before.x.is_finite() && x.is_finite();
        let y_was_finite = before.y.is_finite() && y.is_finite();
        let overflows = ((self.x.is_infinite() || self.xx.is_infinite()) && x_was_finite)
            || ((self.y.is_infinite() || self.yy.is_infinite()) && y_was_finite)
            || (self.xy.is_infinite() && x_was_finite && y_was_finite);
        if overflows {
            return Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"));
        }
        for sum in [&mut self.xx, &mut self.yy, &mut self.xy] {
            if sum.is_infinite() {
                *sum = f64::NAN;
            }
        }
        Ok(())
    }

    fn finish(&self, statistic: Statistic) -> Option<f64> {
        let Floats { count, x, xx, y, yy, xy } = *self;
        let of_all = |sum: f64| (count >= 1.0).then(|| sum / count);
        let of_sample = |sum: f64| (count >= 2.0).then(|| sum / (count - 1.0));
        // Without any spread of x there is no line.
        let on_line = |value: f64| (count >= 1.0 && xx != 0.0).then_some(value);
        match statistic {
            Statistic::VarPop => of_all(xx),
            Statistic::VarSamp => of_sample(xx),
            Statistic::StddevPop => of_all(xx).map(f64::sqrt),
            Statistic::StddevSamp => of_sample(xx).map(f64::sqrt),
            Statistic::CovarPop => of_all(xy),
            Statistic::CovarSamp => of_sample(xy),
            Statistic::Corr => on_line(xy / (xx * yy).sqrt()).filter(|_| yy != 0.0),
            Statistic::RegrAvgX => of_all(x),
            Statistic::RegrAvgY => of_all(y),
            // A count is no number of double precision: the state has it.
            Statistic::RegrCount => None,
            Statistic::RegrIntercept => on_line((y - x * xy / xx) / count),
            Statistic::RegrR2 => on_line(if yy == 0.0 { 1.0 } else { xy * xy / (xx * yy) }),
            Statistic::RegrSlope => on_line(xy / xx),
            Statistic::RegrSxx => (count >= 1.0).then_some(xx),
            Statistic::RegrSxy => (count >= 1.0).then_some(xy),
            Statistic::RegrSyy => (count >= 1.0).then_some(yy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numeric(text: &str) -> Value {
        Value::Numeric(Numeric::parse(text).unwrap())
    }

    fn of(statistic: Statistic, numbers: &[&str]) -> Result<String, SqlError> {
        let mut sums = Sums::of(&[numeric(numbers[0])])?;
        for number in &numbers[1..] {
            sums.add(&[numeric(number)])?;
        }
        sums.finish(statistic).map(|value| match value {
            Value::Numeric(number) => number.to_string(),
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn numbers_of_all_their_digits_have_a_variance() {
        let large = ["1000000000000000000", "3000000000000000000"];
        assert_eq!(of(Statistic::VarPop, &large).unwrap(), "1000000000000000000000000000000000000");
        assert_eq!(of(Statistic::StddevPop, &large).unwrap(), "1000000000000000000");
        assert_eq!(of(Statistic::VarSamp, &["1"]).unwrap(), "Null");
        assert_eq!(of(Statistic::VarPop, &["7.50", "7.5"]).unwrap(), "0");
        let most = "99999999999999999999999999999999999999";
        let error = of(Statistic::VarPop, &["0", most]).unwrap_err();
        assert_eq!(error.code, SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
    }

    #[test]
    fn equal_floats_have_no_variance() {
        let mut sums = Sums::of(&[Value::Float(1e200)]).unwrap();
        sums.add(&[Value::Float(1e200)]).unwrap();
        assert!(matches!(sums.finish(Statistic::VarPop), Ok(Value::Float(spread)) if spread == 0.0));
        let error = sums.add(&[Value::Float(-1e200)]).unwrap_err();
        assert_eq!(error.code, SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
    }
}
