//! Addresses of hosts and networks: the values of the types `inet` and `cidr`.
//!
//! Owns: their text, their binary format, their order, and the bytes in which they are kept.
//!
//! Invariant: bytes that are kept have the order of the values, which is PostgreSQL's: IPv4 first, a network before what is in it, then by
//! the whole address.
//!
//! ```text
//! family (4 or 6) | two bits for each bit of the network: 01 is 0, 10 is 1, and 00 behind the last | all bits of the address
//! ```

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::error::{SqlError, SqlState};
use crate::types::SqlType;
use crate::value::Value;

/// An address, and how many of its bits are those of its network.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// Set for values of `cidr`. Values of both types may be equal.
    pub(crate) is_cidr: bool,
    pub(crate) is_v6: bool,
    pub(crate) bits: u8,
    /// The address, its first bit the most significant one of its size.
    pub(crate) address: u128,
}

/// The numbers of the families in the binary format.
const FAMILIES: [u8; 2] = [2, 3];

impl Network {
    /// The number of bits of an address.
    pub(crate) fn size(self) -> u8 {
        if self.is_v6 { 128 } else { 32 }
    }

    /// The version of the protocol.
    pub(crate) fn family(self) -> i64 {
        if self.is_v6 { 6 } else { 4 }
    }

    /// The bits that are those of a host in the network.
    pub(crate) fn host_mask(self) -> u128 {
        let bits = self.bits.into();
        if self.is_v6 {
            u128::MAX.checked_shr(bits).unwrap_or(0)
        } else {
            u32::MAX.checked_shr(bits).unwrap_or(0).into()
        }
    }

    /// All bits of an address.
    pub(crate) fn all(self) -> u128 {
        Network { bits: 0, ..self }.host_mask()
    }

    /// Returns true if the first bits of another address are the same.
    pub(crate) fn shares(self, other: Network, bits: u8) -> bool {
        let mask = !Network { bits, ..self }.host_mask();
        self.is_v6 == other.is_v6 && (self.address ^ other.address) & mask & self.all() == 0
    }

    /// The network without the bits of a host.
    pub(crate) fn network(self) -> Network {
        Network { is_cidr: true, address: self.address & !self.host_mask(), ..self }
    }

    /// The value as one of another of the types.
    pub(crate) fn of_type(self, ty: SqlType) -> Network {
        if ty == SqlType::Cidr { self.network() } else { Network { is_cidr: false, ..self } }
    }

    /// The same with another number of bits; `None` if an address has fewer.
    pub(crate) fn with_bits(self, bits: i64) -> Option<Network> {
        let bits = u8::try_from(bits).ok().filter(|bits| *bits <= self.size())?;
        Some(Network { bits, ..self })
    }

    /// Reads a text of a type.
    pub(crate) fn parse(text: &str, ty: SqlType) -> Result<Network, SqlError> {
        let invalid = || {
            SqlError::new(
                SqlState::INVALID_TEXT_REPRESENTATION,
                format!("invalid input syntax for type {ty}: \"{text}\""),
            )
        };
        let is_cidr = ty == SqlType::Cidr;
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) => {
                let is_number = !bits.is_empty() && bits.bytes().all(|digit| digit.is_ascii_digit());
                let bits: Option<u8> = bits.parse().ok().filter(|_| is_number);
                (address, Some(bits.ok_or_else(invalid)?))
            }
        };
        let found = if address.contains(':') {
            let address = address.parse::<Ipv6Addr>().map_err(|_| invalid())?.to_bits();
            Network { is_cidr, is_v6: true, bits: bits.unwrap_or(128), address }
        } else {
            parse_v4(address, bits, is_cidr).ok_or_else(invalid)?
        };
        if found.bits > found.size() {
            return Err(invalid());
        }
        if is_cidr && found.address & found.host_mask() != 0 {
            return Err(SqlError::new(
                SqlState::INVALID_TEXT_REPRESENTATION,
                format!("invalid cidr value: \"{text}\""),
            )
            .detail("Value has bits set to right of mask."));
        }
        Ok(found)
    }

    /// The text of the value; with `full`, always with the number of bits.
    pub(crate) fn text(self, full: bool) -> String {
        let host = self.host();
        let has_bits = full || self.is_cidr || self.bits != self.size();
        if has_bits { format!("{host}/{}", self.bits) } else { host }
    }

    /// The text of the address alone.
    pub(crate) fn host(self) -> String {
        self.to_string()
    }

    /// Reads the binary format of a type.
    pub(crate) fn decode(bytes: &[u8], ty: SqlType) -> Option<Network> {
        let [family, bits, _, size, address @ ..] = bytes else { return None };
        let is_v6 = *family == FAMILIES[1];
        if !FAMILIES.contains(family) || usize::from(*size) != address.len() {
            return None;
        }
        let is_cidr = ty == SqlType::Cidr;
        let found = Network { is_cidr, is_v6, bits: *bits, address: number(address, is_v6)? };
        let is_right = found.bits <= found.size() && (!is_cidr || found.address & found.host_mask() == 0);
        is_right.then_some(found)
    }

    /// Appends the binary format.
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        let size = self.size() / 8;
        let family = FAMILIES[usize::from(self.is_v6)];
        out.extend([family, self.bits, u8::from(self.is_cidr), size]);
        out.extend(&self.address.to_be_bytes()[16 - usize::from(size)..]);
    }

    /// The bytes in which it is kept.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let size = usize::from(self.size());
        let mut bytes = vec![0; 1 + size / 4];
        bytes[0] = if self.is_v6 { 6 } else { 4 };
        for at in 0..usize::from(self.bits) {
            let is_set = self.address >> (size - 1 - at) & 1 == 1;
            let symbol = if is_set { 0b10 } else { 0b01 };
            bytes[1 + at / 4] |= symbol << (6 - at % 4 * 2);
        }
        bytes.extend(&self.address.to_be_bytes()[16 - size / 8..]);
        bytes
    }

    /// The value of a type that bytes keep; `None` if none is in them.
    pub(crate) fn of_bytes(bytes: &[u8], ty: SqlType) -> Option<Network> {
        let (family, rest) = bytes.split_first()?;
        let is_v6 = *family == 6;
        let (symbols, address) = rest.split_at_checked(if is_v6 { 32 } else { 8 })?;
        let symbol = |at: &usize| symbols[at / 4] >> (6 - at % 4 * 2) & 0b11;
        let bits = (0..symbols.len() * 4).take_while(|at| symbol(at) != 0).count();
        let (bits, address) = (u8::try_from(bits).ok()?, number(address, is_v6)?);
        Some(Network { is_cidr: ty == SqlType::Cidr, is_v6, bits, address })
    }

    /// The address that a value is.
    pub(crate) fn of(value: Option<&Value>) -> Option<Network> {
        match value {
            Some(Value::Network(own)) => Some(*own),
            _ => None,
        }
    }

    /// The first bits of the address, as many as given, alone.
    fn first(self, bits: u8) -> u128 {
        self.address & !Network { bits, ..self }.host_mask()
    }
}

impl Ord for Network {
    fn cmp(&self, other: &Network) -> Ordering {
        let both = self.bits.min(other.bits);
        let by_family = self.is_v6.cmp(&other.is_v6);
        let by_network = by_family.then_with(|| self.first(both).cmp(&other.first(both)));
        by_network.then(self.bits.cmp(&other.bits)).then(self.address.cmp(&other.address))
    }
}

impl PartialOrd for Network {
    fn partial_cmp(&self, other: &Network) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Network {
    fn eq(&self, other: &Network) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Network {}

impl Hash for Network {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.is_v6, self.bits, self.address).hash(state);
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let low = Ipv4Addr::from_bits(self.address as u32);
        if !self.is_v6 {
            return write!(f, "{low}");
        }
        // An address of the other family in one of this is shown as that.
        let is_inside = self.address >> 32 == 0 && self.address >> 16 != 0;
        if is_inside { write!(f, "::{low}") } else { write!(f, "{}", Ipv6Addr::from_bits(self.address)) }
    }
}

fn number(address: &[u8], is_v6: bool) -> Option<u128> {
    if is_v6 {
        return address.try_into().ok().map(u128::from_be_bytes);
    }
    address.try_into().ok().map(|address| u128::from(u32::from_be_bytes(address)))
}

/// Reads an address of up to four numbers. Fewer of them need the number of bits, which those of `cidr` have by their class.
fn parse_v4(text: &str, bits: Option<u8>, is_cidr: bool) -> Option<Network> {
    let (mut address, mut count) = (0_u32, 0);
    for part in text.split('.') {
        let is_number = !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit());
        let part: u8 = part.parse().ok().filter(|_| is_number && count < 4)?;
        address |= u32::from(part) << (24 - 8 * count);
        count += 1;
    }
    let first = address >> 24;
    let by_class = match first {
        240.. => 32,
        192..224 => 24,
        128..192 => 16,
        _ => 8,
    };
    let bits = match (bits, by_class.max(8 * count as u8)) {
        (Some(bits), _) => bits,
        (None, _) if count == 4 => 32,
        // The first number of class D alone is all of the class.
        (None, 8) if is_cidr && first == 224 => 4,
        (None, by_class) if is_cidr => by_class,
        (None, _) => return None,
    };
    Some(Network { is_cidr, is_v6: false, bits, address: address.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_lead_back_and_have_the_order_of_networks() {
        // In PostgreSQL's order, which compares the bits that both have first.
        let texts = [
            "0.0.0.0/0",
            "11.0.0.0/7",
            "10.0.0.0/8",
            "10.0.0.1/8",
            "10.0.0.0/9",
            "10.0.0.0/32",
            "10.128.0.0/9",
            "255.255.255.255/32",
            "::/0",
            "::1/0",
            "2001:db8::/32",
            "2001:db8::1/128",
            "ffff::/16",
        ];
        let parsed = texts.map(|text| Network::parse(text, SqlType::Inet).unwrap());
        for (network, text) in parsed.iter().zip(texts) {
            assert_eq!(network.text(true), text);
            assert_eq!(Network::of_bytes(&network.to_bytes(), SqlType::Inet), Some(*network));
            let mut binary = Vec::new();
            network.encode(&mut binary);
            assert_eq!(Network::decode(&binary, SqlType::Inet), Some(*network));
        }
        assert!(parsed.is_sorted());
        assert!(parsed.map(Network::to_bytes).is_sorted());
    }
}
