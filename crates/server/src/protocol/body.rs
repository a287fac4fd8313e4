//! The fields of a message's body.
//!
//! Owns: bounds, byte order and the encoding of strings. Never: knows which message it reads.

use thiserror::Error;

/// A message whose body is not what its type promises. The frame around it is intact: the next message can be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// The body ends too early, late, or has a value that there is not.
    #[error("invalid message of type '{0}': {1}")]
    Body(char, &'static str),
    /// A string is not UTF-8.
    #[error("invalid byte sequence for encoding \"UTF8\" in a message of type '{0}'")]
    Encoding(char),
    /// The type is none of the protocol.
    #[error("invalid frontend message type {0}")]
    Type(u8),
}

/// The body of a message, or what is left of it.
#[derive(Debug)]
pub(crate) struct Body<'a> {
    tag: u8,
    rest: &'a [u8],
}

impl<'a> Body<'a> {
    pub(crate) fn new(tag: u8, bytes: &'a [u8]) -> Body<'a> {
        Body { tag, rest: bytes }
    }

    /// Returns the error for this body, for the reason given.
    pub(crate) fn malformed(&self, why: &'static str) -> Malformed {
        Malformed::Body(char::from(self.tag), why)
    }

    /// Takes the next `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or_else(|| self.malformed("it ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// Takes all that is left.
    pub(crate) fn remainder(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) =
            self.rest.split_first_chunk().ok_or_else(|| self.malformed("it ends too early"))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn int16(&mut self) -> Result<i16, Malformed> {
        self.array().map(i16::from_be_bytes)
    }

    pub(crate) fn int32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn uint32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// Takes a number of values, which the protocol calls a signed 16-bit integer and every implementation reads as an unsigned one:
    /// 65,535 parameters are allowed.
    pub(crate) fn count(&mut self) -> Result<usize, Malformed> {
        self.array().map(|bytes| usize::from(u16::from_be_bytes(bytes)))
    }

    /// Takes a string that ends with a zero byte.
    pub(crate) fn string(&mut self) -> Result<&'a str, Malformed> {
        // The names of most portals and statements are empty.
        if let [0, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok("");
        }
        let end = self
            .rest
            .iter()
            .position(|&byte| byte == 0)
            .ok_or_else(|| self.malformed("a string has no end"))?;
        let (string, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        std::str::from_utf8(string).map_err(|_| Malformed::Encoding(char::from(self.tag)))
    }

    /// Takes a value that its length precedes; -1 is NULL.
    pub(crate) fn value(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match self.int32()? {
            -1 => Ok(None),
            length => {
                let length =
                    usize::try_from(length).map_err(|_| self.malformed("a value has a negative length"))?;
                self.bytes(length).map(Some)
            }
        }
    }

    /// Ends reading: nothing may be left.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.malformed("it goes on after its end")) }
    }

    /// Returns true if nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}
