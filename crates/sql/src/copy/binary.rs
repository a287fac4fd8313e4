//! The binary format of COPY: rows of values in their binary formats, behind a header and before a trailer.

use crate::error::{SqlError, SqlState};
use crate::format::{Format, decode};
use crate::types::SqlType;
use crate::value::Value;

/// The beginning of the data: a signature, flags, and the length of an extension.
pub(crate) const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// The value in the place of the number of fields behind the last row.
pub(crate) const TRAILER: [u8; 2] = (-1_i16).to_be_bytes();

/// The length of the signature, without flags and extension.
const SIGNATURE: usize = 11;
/// The longest row.
const MAX_ROW: usize = 64 << 20;

/// Rows in the binary format, as they come in pieces.
pub(crate) struct BinaryRows {
    types: Vec<SqlType>,
    pending: Vec<u8>,
    has_header: bool,
    is_ended: bool,
}

/// A row, or none for the trailer, and its length.
type Read = (Option<Vec<Value>>, usize);

#[cold]
fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::BAD_COPY_FILE_FORMAT, message)
}

impl BinaryRows {
    /// Reads rows whose columns have these types.
    pub(crate) fn new(types: Vec<SqlType>) -> BinaryRows {
        BinaryRows { types, pending: Vec::new(), has_header: false, is_ended: false }
    }

    /// Takes a piece of data, and adds the rows that are complete.
    pub(crate) fn push(&mut self, data: &[u8], rows: &mut Vec<Vec<Value>>) -> Result<(), SqlError> {
        self.pending.extend_from_slice(data);
        let mut at = 0;
        if !self.has_header {
            let Some(length) = self.header()? else { return Ok(()) };
            self.has_header = true;
            at = length;
        }
        while !self.is_ended {
            let Some((row, length)) = self.row(&self.pending[at..])? else { break };
            at += length;
            match row {
                Some(row) => rows.push(row),
                None => self.is_ended = true,
            }
        }
        if self.is_ended && at < self.pending.len() {
            return Err(invalid("received copy data after EOF marker"));
        }
        self.pending.drain(..at);
        if self.pending.len() > MAX_ROW {
            return Err(SqlError::new(
                SqlState::PROGRAM_LIMIT_EXCEEDED,
                "a row of a COPY is longer than 64 MB",
            ));
        }
        Ok(())
    }

    /// The data has ended. Some clients leave the trailer out.
    pub(crate) fn finish(&self) -> Result<(), SqlError> {
        if self.pending.is_empty() && self.has_header {
            Ok(())
        } else {
            Err(invalid("unexpected EOF in COPY data"))
        }
    }

    /// The length of the header; `None` if more of it has to come.
    fn header(&self) -> Result<Option<usize>, SqlError> {
        let known = self.pending.len().min(SIGNATURE);
        if self.pending[..known] != HEADER[..known] {
            return Err(invalid("COPY file signature not recognized"));
        }
        let Some(rest) = self.pending.get(SIGNATURE..HEADER.len()) else { return Ok(None) };
        let flags = u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]);
        if flags >> 16 != 0 {
            return Err(invalid("unrecognized critical flags in COPY file header"));
        }
        let extension = u32::from_be_bytes([rest[4], rest[5], rest[6], rest[7]]) as usize;
        let length = HEADER.len() + extension.min(MAX_ROW);
        Ok((self.pending.len() >= length).then_some(length))
    }

    /// The next row; `None` if more of it has to come.
    fn row(&self, data: &[u8]) -> Result<Option<Read>, SqlError> {
        let Some((count, mut rest)) = data.split_first_chunk::<2>() else { return Ok(None) };
        let count = i16::from_be_bytes(*count);
        if count == -1 {
            return Ok(Some((None, 2)));
        }
        if usize::try_from(count) != Ok(self.types.len()) {
            return Err(invalid(format!("row field count is {count}, expected {}", self.types.len())));
        }
        let mut row = Vec::with_capacity(self.types.len());
        for ty in &self.types {
            let Some((length, behind)) = rest.split_first_chunk::<4>() else { return Ok(None) };
            let length = i32::from_be_bytes(*length);
            rest = behind;
            if length == -1 {
                row.push(Value::Null);
                continue;
            }
            let length = usize::try_from(length).map_err(|_| invalid("invalid field size"))?;
            let Some((field, behind)) = rest.split_at_checked(length) else { return Ok(None) };
            row.push(decode(field, *ty, Format::Binary)?);
            rest = behind;
        }
        Ok(Some((Some(row), data.len() - rest.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data() -> Vec<u8> {
        let mut data = HEADER.to_vec();
        for (number, text) in [(1_i32, Some("a")), (-2, None)] {
            data.extend_from_slice(&[0, 2, 0, 0, 0, 4]);
            data.extend_from_slice(&number.to_be_bytes());
            match text {
                Some(text) => {
                    data.extend_from_slice(&(text.len() as u32).to_be_bytes());
                    data.extend_from_slice(text.as_bytes());
                }
                None => data.extend_from_slice(&(-1_i32).to_be_bytes()),
            }
        }
        data.extend_from_slice(&TRAILER);
        data
    }

    fn read(data: &[u8], size: usize) -> Result<Vec<Vec<Value>>, SqlError> {
        let mut rows = Vec::new();
        let mut reader = BinaryRows::new(vec![SqlType::Int4, SqlType::Text]);
        for piece in data.chunks(size) {
            reader.push(piece, &mut rows)?;
        }
        reader.finish().map(|()| rows)
    }

    #[test]
    fn rows_come_in_pieces() {
        let data = data();
        let wanted = vec![vec![Value::Int(1), Value::text("a")], vec![Value::Int(-2), Value::Null]];
        for size in 1..=data.len() {
            assert_eq!(read(&data, size).unwrap(), wanted, "pieces of {size}");
        }
        // Without a trailer, too.
        assert_eq!(read(&data[..data.len() - 2], 7).unwrap(), wanted);
    }

    #[test]
    fn what_is_no_row_is_refused() {
        let good = data();
        let mut wrong = good.clone();
        wrong[3] = b'x';
        assert!(read(&wrong, 5).is_err());
        let mut wrong = good.clone();
        wrong[HEADER.len() + 1] = 3;
        assert!(read(&wrong, 5).is_err());
        for end in 0..good.len() {
            let is_whole = end == HEADER.len() || read(&good[..end], 100).is_ok_and(|rows| !rows.is_empty());
            assert!(is_whole || read(&good[..end], 100).is_err(), "{end} bytes");
        }
        assert!(read(&[&good[..], b"more"].concat(), 100).is_err());
    }
}
