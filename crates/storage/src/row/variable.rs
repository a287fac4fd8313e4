//! Values of variable size: their length and their bytes.
//!
//! Owns the encoding, which rows of types and rows of definitions share. It never looks at what the bytes mean.
//!
//! ```text
//! up to 65,534 bytes:  length u16 | bytes
//! more:                65,535 u16 | length u32 | bytes
//! ```
//!
//! Invariant: a value has one encoding; any bytes give a value or none, without a panic.

/// Marker in place of a length: the length follows, in four bytes.
const LONGER: u16 = u16::MAX;

/// Bytes that a value of `len` bytes takes, its length included.
#[inline]
#[must_use]
pub const fn variable_bytes(len: usize) -> usize {
    if len < LONGER as usize { 2 + len } else { 6 + len }
}

/// Appends a value to `out`.
///
/// # Panics
/// When it has 4 GiB or more, which no row can have.
#[inline]
pub fn push_variable(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + variable_bytes(bytes.len()), 0);
    write_variable(bytes, &mut &mut out[start..]);
}

/// Writes a value to the front of `out`, which moves behind it.
#[inline]
pub(super) fn write_variable(bytes: &[u8], out: &mut &mut [u8]) {
    let (field, rest) = std::mem::take(out).split_at_mut(variable_bytes(bytes.len()));
    *out = rest;
    if let Some(short) = u16::try_from(bytes.len()).ok().filter(|len| *len != LONGER) {
        field[..2].copy_from_slice(&short.to_le_bytes());
        field[2..].copy_from_slice(bytes);
    } else {
        write_longer(bytes, field);
    }
}

#[cold]
fn write_longer(bytes: &[u8], field: &mut [u8]) {
    let len = u32::try_from(bytes.len()).expect("values are shorter than 4 GiB");
    field[..2].copy_from_slice(&LONGER.to_le_bytes());
    field[2..6].copy_from_slice(&len.to_le_bytes());
    field[6..].copy_from_slice(bytes);
}

/// Takes a value from the front of `input`, which moves behind it; `None` when `input` does not begin with one.
#[inline]
pub fn take_variable<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = input.split_first_chunk::<2>()?;
    let len = u16::from_le_bytes(*len);
    if len == LONGER {
        return take_longer(input);
    }
    let (bytes, rest) = rest.split_at_checked(usize::from(len))?;
    *input = rest;
    Some(bytes)
}

#[cold]
fn take_longer<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = input.get(2..)?.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    // A shorter one is told in two bytes.
    let (bytes, rest) = rest.split_at_checked(len).filter(|_| len >= usize::from(LONGER))?;
    *input = rest;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_all_lengths_come_back() {
        for len in [0, 1, 65_533, 65_534, 65_535, 65_536, 70_000, 1 << 20] {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let mut out = vec![9];
            push_variable(&bytes, &mut out);
            assert_eq!(out.len(), 1 + variable_bytes(len));
            assert_eq!(out[1..].len() - len, if len <= 65_534 { 2 } else { 6 });
            out.push(7);
            let mut input = &out[1..];
            assert_eq!(take_variable(&mut input), Some(&bytes[..]));
            assert_eq!(input, [7]);
            for cut in [1, 2, 5, 6, len].into_iter().filter(|cut| *cut < variable_bytes(len)) {
                assert_eq!(take_variable(&mut &out[1..=cut]), None, "{len} cut to {cut}");
            }
        }
    }

    #[test]
    fn a_short_value_has_no_long_encoding() {
        let mut out = vec![0xff, 0xff, 3, 0, 0, 0, 1, 2, 3];
        assert_eq!(take_variable(&mut &out[..]), None);
        out[4] = 0xff;
        assert_eq!(take_variable(&mut &out[..]), None);
    }
}
