//! Functions of angles, and hyperbolic ones.
//!
//! Those of degrees are exact where the result is a simple number: what is computed is scaled so that it is right at 30, 45 and 60
//! degrees, as PostgreSQL does.

use super::{Function, float, strict};
use crate::error::{SqlError, SqlState};
use crate::types::SqlType::Float8;
use crate::value::Value;

pub(super) static FUNCTIONS: &[Function] = &[
    strict("sinh", &[Float8], Float8, |_, a| Ok(Value::Float(float(a, 0).sinh()))),
    strict("cosh", &[Float8], Float8, |_, a| Ok(Value::Float(float(a, 0).cosh()))),
    strict("tanh", &[Float8], Float8, |_, a| Ok(Value::Float(float(a, 0).tanh()))),
    strict("asinh", &[Float8], Float8, |_, a| {
        let number = float(a, 0);
        let large = || Value::Float(of_large(number.abs()).copysign(number));
        Ok(if number.abs() > LARGE { large() } else { Value::Float(number.asinh()) })
    }),
    strict("acosh", &[Float8], Float8, |_, a| within(a, 1.0, f64::INFINITY, arc_hyperbolic_cosine)),
    strict("atanh", &[Float8], Float8, |_, a| within(a, -1.0, 1.0, f64::atanh)),
    strict("cot", &[Float8], Float8, |_, a| of_radians(a, |angle| 1.0 / angle.tan())),
    strict("sin", &[Float8], Float8, |_, a| of_radians(a, f64::sin)),
    strict("cos", &[Float8], Float8, |_, a| of_radians(a, f64::cos)),
    strict("tan", &[Float8], Float8, |_, a| of_radians(a, f64::tan)),
    strict("asin", &[Float8], Float8, |_, a| within(a, -1.0, 1.0, f64::asin)),
    strict("acos", &[Float8], Float8, |_, a| within(a, -1.0, 1.0, f64::acos)),
    strict("atan", &[Float8], Float8, |_, a| Ok(Value::Float(float(a, 0).atan()))),
    strict("atan2", &[Float8, Float8], Float8, |_, a| Ok(Value::Float(float(a, 0).atan2(float(a, 1))))),
    strict("sind", &[Float8], Float8, |_, a| of_angle(a, |angle| angle.sign_of_sine * angle.sine())),
    strict("cosd", &[Float8], Float8, |_, a| of_angle(a, |angle| angle.sign_of_cosine * angle.cosine())),
    strict("tand", &[Float8], Float8, |_, a| {
        of_angle(a, |angle| {
            angle.sign_of_both() * (angle.sine() / angle.cosine() / Angle::HALF.tangent()) + 0.0
        })
    }),
    strict("cotd", &[Float8], Float8, |_, a| {
        of_angle(a, |angle| {
            angle.sign_of_both() * (angle.cosine() / angle.sine() * Angle::HALF.tangent()) + 0.0
        })
    }),
    strict("asind", &[Float8], Float8, |_, a| within(a, -1.0, 1.0, arc_sine)),
    strict("acosd", &[Float8], Float8, |_, a| {
        within(a, -1.0, 1.0, |x| if x >= 0.0 { arc_cosine(x) } else { 90.0 + arc_sine(-x) })
    }),
    strict("atand", &[Float8], Float8, |_, a| Ok(Value::Float(in_degrees(float(a, 0).atan())))),
    strict("atan2d", &[Float8, Float8], Float8, |_, a| {
        Ok(Value::Float(in_degrees(float(a, 0).atan2(float(a, 1)))))
    }),
];

#[cold]
fn out_of_range() -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "input is out of range")
}

fn within(values: &[Value], least: f64, most: f64, of: fn(f64) -> f64) -> Result<Value, SqlError> {
    let number = float(values, 0);
    if number < least || number > most {
        return Err(out_of_range());
    }
    Ok(Value::Float(of(number)))
}

/// An angle brought to the first quadrant, in degrees.
struct Angle {
    degrees: f64,
    sign_of_sine: f64,
    sign_of_cosine: f64,
}

impl Angle {
    const HALF: Angle = Angle { degrees: 45.0, sign_of_sine: 1.0, sign_of_cosine: 1.0 };

    fn of(degrees: f64) -> Angle {
        let (mut rest, mut sign_of_sine, mut sign_of_cosine) = (degrees % 360.0, 1.0, 1.0);
        if rest < 0.0 {
            (rest, sign_of_sine) = (-rest, -sign_of_sine);
        }
        if rest > 180.0 {
            (rest, sign_of_sine) = (360.0 - rest, -sign_of_sine);
        }
        if rest > 90.0 {
            (rest, sign_of_cosine) = (180.0 - rest, -sign_of_cosine);
        }
        Angle { degrees: rest, sign_of_sine, sign_of_cosine }
    }

    fn sign_of_both(&self) -> f64 {
        self.sign_of_sine * self.sign_of_cosine
    }

    fn sine(&self) -> f64 {
        if self.degrees <= 30.0 { small_sine(self.degrees) } else { small_cosine(90.0 - self.degrees) }
    }

    fn cosine(&self) -> f64 {
        if self.degrees <= 60.0 { small_cosine(self.degrees) } else { small_sine(90.0 - self.degrees) }
    }

    fn tangent(&self) -> f64 {
        self.sine() / self.cosine()
    }
}

/// The sine of up to 30 degrees.
fn small_sine(degrees: f64) -> f64 {
    degrees.to_radians().sin() / 30_f64.to_radians().sin() / 2.0
}

/// The cosine of up to 60 degrees.
fn small_cosine(degrees: f64) -> f64 {
    let below_one = |degrees: f64| 1.0 - degrees.to_radians().cos();
    1.0 - below_one(degrees) / below_one(60.0) / 2.0
}

fn of_radians(values: &[Value], of: fn(f64) -> f64) -> Result<Value, SqlError> {
    let radians = float(values, 0);
    if radians.is_infinite() {
        return Err(out_of_range());
    }
    Ok(Value::Float(of(radians)))
}

fn of_angle(values: &[Value], of: fn(Angle) -> f64) -> Result<Value, SqlError> {
    let degrees = float(values, 0);
    if degrees.is_infinite() {
        return Err(out_of_range());
    }
    Ok(Value::Float(if degrees.is_nan() { degrees } else { of(Angle::of(degrees)) }))
}

/// The arc sine in degrees.
fn arc_sine(x: f64) -> f64 {
    if x < 0.0 {
        return -arc_sine(-x);
    }
    if x <= 0.5 { x.asin() / 0.5_f64.asin() * 30.0 } else { 90.0 - arc_cosine(x) }
}

/// The arc cosine of a number from 0 on, in degrees.
fn arc_cosine(x: f64) -> f64 {
    if x <= 0.5 { 90.0 - arc_sine(x) } else { x.acos() / 0.5_f64.acos() * 60.0 }
}

/// Beyond this number the inverses of the hyperbolic sine and cosine are the logarithm of twice the number, which may be too large itself.
const LARGE: f64 = 1e300;

fn of_large(x: f64) -> f64 {
    x.ln() + std::f64::consts::LN_2
}

fn arc_hyperbolic_cosine(x: f64) -> f64 {
    if x > LARGE { of_large(x) } else { x.acosh() }
}

fn in_degrees(radians: f64) -> f64 {
    radians / 1_f64.atan() * 45.0
}
