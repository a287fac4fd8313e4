//! Functions and operators of `inet` and `cidr`.

use super::{Function, int, invalid_parameter, strict};
use crate::error::{SqlError, SqlState};
use crate::network::Network;
use crate::types::SqlType::{self, Bool, Cidr, Inet, Int4, Int8, Text};
use crate::value::Value;

pub(super) static FUNCTIONS: &[Function] = &[
    strict("broadcast", &[Inet], Inet, |_, a| {
        of_one(a, |own| Network { address: own.address | own.host_mask(), ..own })
    }),
    strict("family", &[Inet], Int4, |_, a| Ok(known(a, |own| Value::Int(own.family())))),
    strict("host", &[Inet], Text, |_, a| Ok(known(a, |own| Value::from(own.host())))),
    strict("hostmask", &[Inet], Inet, |_, a| {
        of_one(a, |own| Network { address: own.host_mask(), bits: own.size(), ..own })
    }),
    strict("inet_merge", &[Inet, Inet], Cidr, |_, a| merged(a)),
    strict("inet_same_family", &[Inet, Inet], Bool, |_, a| compared(a, |one, other| one.shares(other, 0))),
    strict("masklen", &[Inet], Int4, |_, a| Ok(known(a, |own| Value::Int(own.bits.into())))),
    strict("netmask", &[Inet], Inet, |_, a| {
        of_one(a, |own| Network { address: own.all() & !own.host_mask(), bits: own.size(), ..own })
    }),
    strict("network", &[Inet], Cidr, |_, a| of_one(a, Network::network)),
    strict("set_masklen", &[Inet, Int4], Inet, |_, a| with_bits(a, Inet)),
    strict("set_masklen", &[Cidr, Int4], Cidr, |_, a| with_bits(a, Cidr)),
    strict("network_sub", &[Inet, Inet], Bool, |_, a| {
        compared(a, |one, other| one.bits > other.bits && one.shares(other, other.bits))
    }),
    strict("network_subeq", &[Inet, Inet], Bool, |_, a| {
        compared(a, |one, other| one.bits >= other.bits && one.shares(other, other.bits))
    }),
    strict("network_sup", &[Inet, Inet], Bool, |_, a| {
        compared(a, |one, other| one.bits < other.bits && one.shares(other, one.bits))
    }),
    strict("network_supeq", &[Inet, Inet], Bool, |_, a| {
        compared(a, |one, other| one.bits <= other.bits && one.shares(other, one.bits))
    }),
    strict("network_overlap", &[Inet, Inet], Bool, |_, a| {
        compared(a, |one, other| one.shares(other, one.bits.min(other.bits)))
    }),
    strict("inetnot", &[Inet], Inet, |_, a| {
        of_one(a, |own| Network { address: !own.address & own.all(), ..own })
    }),
    strict("inetand", &[Inet, Inet], Inet, |_, a| combined(a, "AND", |one, other| one & other)),
    strict("inetor", &[Inet, Inet], Inet, |_, a| combined(a, "OR", |one, other| one | other)),
    strict("inetpl", &[Inet, Int8], Inet, |_, a| moved(a, int(a, 1).into())),
    strict("inetmi_int8", &[Inet, Int8], Inet, |_, a| moved(a, -i128::from(int(a, 1)))),
    strict("inetmi", &[Inet, Inet], Int8, |_, a| distance(a)),
];

/// The function that an operator with an address on its left side is.
pub(crate) fn network_operator(name: &str, other: SqlType) -> Option<&'static str> {
    Some(match name {
        "<<" => "network_sub",
        "<<=" => "network_subeq",
        ">>" => "network_sup",
        ">>=" => "network_supeq",
        "&&" => "network_overlap",
        "&" => "inetand",
        "|" => "inetor",
        "+" => "inetpl",
        "-" if other.is_integer() => "inetmi_int8",
        "-" => "inetmi",
        _ => return None,
    })
}

fn known(values: &[Value], of: impl FnOnce(Network) -> Value) -> Value {
    Network::of(values.first()).map_or(Value::Null, of)
}

fn of_one(values: &[Value], of: impl FnOnce(Network) -> Network) -> Result<Value, SqlError> {
    Ok(known(values, |own| Value::Network(of(own))))
}

fn both(values: &[Value]) -> Option<(Network, Network)> {
    Some((Network::of(values.first())?, Network::of(values.get(1))?))
}

fn compared(values: &[Value], holds: impl FnOnce(Network, Network) -> bool) -> Result<Value, SqlError> {
    Ok(both(values).map_or(Value::Null, |(one, other)| Value::Bool(holds(one, other))))
}

fn with_bits(values: &[Value], ty: SqlType) -> Result<Value, SqlError> {
    let Some(own) = Network::of(values.first()) else { return Ok(Value::Null) };
    let bits = int(values, 1);
    let changed = own.with_bits(if bits == -1 { own.size().into() } else { bits });
    let changed = changed.ok_or_else(|| invalid_parameter(format!("invalid mask length: {bits}")))?;
    Ok(Value::Network(changed.of_type(ty)))
}

fn merged(values: &[Value]) -> Result<Value, SqlError> {
    let Some((one, other)) = both(values) else { return Ok(Value::Null) };
    if one.family() != other.family() {
        return Err(invalid_parameter("cannot merge addresses from different families"));
    }
    let least = one.bits.min(other.bits);
    let bits = (0..=least).rev().find(|bits| one.shares(other, *bits)).unwrap_or(0);
    Ok(Value::Network(Network { bits, ..one }.network()))
}

fn combined(values: &[Value], name: &str, of: impl FnOnce(u128, u128) -> u128) -> Result<Value, SqlError> {
    let Some((one, other)) = both(values) else { return Ok(Value::Null) };
    if one.family() != other.family() {
        return Err(invalid_parameter(format!("cannot {name} inet values of different sizes")));
    }
    let bits = one.bits.max(other.bits);
    Ok(Value::Network(Network { address: of(one.address, other.address), bits, ..one }))
}

#[cold]
fn out_of_range() -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "result is out of range")
}

fn moved(values: &[Value], by: i128) -> Result<Value, SqlError> {
    let Some(own) = Network::of(values.first()) else { return Ok(Value::Null) };
    let address = own.address.checked_add_signed(by).filter(|address| *address <= own.all());
    Ok(Value::Network(Network { address: address.ok_or_else(out_of_range)?, ..own }))
}

fn distance(values: &[Value]) -> Result<Value, SqlError> {
    let Some((one, other)) = both(values) else { return Ok(Value::Null) };
    if one.family() != other.family() {
        return Err(invalid_parameter("cannot subtract inet values of different sizes"));
    }
    let size = i64::try_from(one.address.abs_diff(other.address)).map_err(|_| out_of_range())?;
    Ok(Value::Int(if one.address < other.address { -size } else { size }))
}
