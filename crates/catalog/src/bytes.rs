//! Reading and writing the pieces that encodings are made of.
//!
//! Owns the two primitives, *uint* and *text*, and the guards of reading: nothing is read beyond the end, nothing is
//! allocated that the input is not long enough for, and what was not written in the one shortest way is refused.

/// Reasons for which bytes are not the encoding of a definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}, at byte {offset}")]
pub struct DecodeError {
    /// Offset of the mistake.
    pub offset: usize,
    /// The mistake, as the beginning of a sentence.
    pub what: String,
}

/// Reads from the front of a byte string.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    pub(crate) fn error(&self, what: impl Into<String>) -> DecodeError {
        DecodeError { offset: self.at, what: what.into() }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let rest = &self.bytes[self.at..];
        let Some(taken) = rest.get(..count) else {
            return Err(self.error(format!("it ends {} bytes too early", count - rest.len())));
        };
        self.at += count;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Seven bits a byte, low bits first, the high bit set on all bytes but the last.
    pub(crate) fn uint(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0_u64;
        for shift in (0..).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift > 63 || (bits << shift) >> shift != bits {
                return Err(self.error("a number is too great"));
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(self.error("a number is longer than it need be"));
                }
                break;
            }
        }
        Ok(number)
    }

    /// A number of things of which there are at most `max`.
    pub(crate) fn count(&mut self, max: usize, what: &str) -> Result<usize, DecodeError> {
        let count = self.uint()?;
        match usize::try_from(count) {
            Ok(count) if count <= max => Ok(count),
            _ => Err(self.error(format!("there are {count} {what} where {max} is the most"))),
        }
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        let number = self.uint()?;
        u16::try_from(number).map_err(|_| self.error(format!("the number {number} names nothing")))
    }

    pub(crate) fn text(&mut self, max: usize) -> Result<String, DecodeError> {
        let count = self.count(max, "bytes of text")?;
        let bytes = self.take(count)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| self.error("a text is not UTF-8"))
    }

    pub(crate) fn byte_string(&mut self, max: usize) -> Result<Vec<u8>, DecodeError> {
        let count = self.count(max, "bytes")?;
        self.take(count).map(<[u8]>::to_vec)
    }
}

pub(crate) fn put_uint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_uint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back_in_one_way_only(number in any::<u64>(), shift in 0u32..64) {
            let number = number >> shift;
            let mut bytes = Vec::new();
            put_uint(&mut bytes, number);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.uint(), Ok(number));
            prop_assert!(reader.is_at_end());
            // Written longer than need be.
            if let Some(last) = bytes.last_mut() {
                *last |= 0x80;
            }
            bytes.push(0);
            prop_assert!(Reader::new(&bytes).uint().is_err());
        }
    }

    #[test]
    fn numbers_beyond_64_bits_and_counts_beyond_the_bound_are_refused() {
        assert!(Reader::new(&[0xff; 20]).uint().is_err());
        let mut bytes = vec![0xff; 9];
        bytes.push(2);
        assert!(Reader::new(&bytes).uint().is_err());
        assert!(Reader::new(&[5]).count(4, "things").is_err());
        let error = Reader::new(&[4, b'a']).text(9).unwrap_err();
        assert_eq!(error.to_string(), "it ends 3 bytes too early, at byte 1");
    }
}
