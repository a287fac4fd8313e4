//! The text format of COPY: a line for a row, with escapes for what would end a field or a line.

use std::ops::Range;
use std::sync::Arc;

use super::line::LineBuilder;
use super::{CopyRow, Form, Line};
use crate::error::{SqlError, SqlState};

/// The longest line, in bytes.
pub(super) const MAX_LINE: usize = 64 << 20;

/// Lines of the text format, as they come in pieces.
pub(crate) struct TextLines {
    form: Form,
    rest: Vec<u8>,
    is_ended: bool,
    skips_header: bool,
    /// The number of fields of the last line.
    fields: usize,
}

impl TextLines {
    pub(super) fn new(form: Form) -> TextLines {
        let skips_header = form.header;
        TextLines { form, rest: Vec::new(), is_ended: false, skips_header, fields: 0 }
    }

    pub(super) fn push(&mut self, data: &[u8], rows: &mut Vec<CopyRow>) -> Result<(), SqlError> {
        let mut rest = std::mem::take(&mut self.rest);
        rest.extend_from_slice(data);
        let mut start = self.plain_lines(&rest, rows);
        while let Some(length) = memchr::memchr(b'\n', &rest[start..]) {
            // An end of a line that a backslash stands before is data.
            let escapes = rest[start..start + length].iter().rev().take_while(|byte| **byte == b'\\').count();
            if escapes % 2 == 1 {
                let Some(more) = self.escaped_line(&rest, start, length) else { break };
                self.line(&rest[start..start + more], rows)?;
                start += more + 1;
                continue;
            }
            self.line(&rest[start..start + length], rows)?;
            start += length + 1;
        }
        rest.drain(..start);
        if rest.len() > MAX_LINE {
            return Err(SqlError::new(
                SqlState::PROGRAM_LIMIT_EXCEEDED,
                "a line of a COPY is longer than 64 MB",
            ));
        }
        self.rest = rest;
        Ok(())
    }

    /// Takes all lines that are complete at once, if nothing is special in any of them. Returns their length, or 0.
    fn plain_lines(&mut self, data: &[u8], rows: &mut Vec<CopyRow>) -> usize {
        if self.is_ended || self.skips_header {
            return 0;
        }
        let length = memchr::memrchr(b'\n', data).map_or(0, |end| end + 1);
        let data = &data[..length];
        if length == 0 || length > MAX_LINE || memchr::memchr2(b'\\', 0, data).is_some() {
            return 0;
        }
        // What is wrong is found again line by line, with the number of its line.
        let Ok(text) = std::str::from_utf8(data) else { return 0 };
        let (text, mut start) = (Arc::from(text), 0);
        for end in memchr::memchr_iter(b'\n', data) {
            let line = data[start..end].strip_suffix(b"\r").unwrap_or(&data[start..end]);
            self.plain_line(&text, start..start + line.len(), rows);
            start = end + 1;
        }
        length
    }

    /// Takes a line in which nothing is escaped, so that a field is what it looks like.
    fn plain_line(&mut self, text: &Arc<str>, at: Range<usize>, rows: &mut Vec<CopyRow>) {
        let line = Line::split(text, at, self.form.delimiter, self.form.null.as_bytes(), self.fields);
        self.fields = line.len();
        rows.push(CopyRow::Texts(line));
    }

    /// The length of a line that goes on behind an end that is data; `None` if its end has not come yet.
    fn escaped_line(&self, rest: &[u8], start: usize, mut length: usize) -> Option<usize> {
        loop {
            let next = memchr::memchr(b'\n', &rest[start + length + 1..])?;
            length += 1 + next;
            let escapes = rest[start..start + length].iter().rev().take_while(|byte| **byte == b'\\').count();
            if escapes % 2 == 0 {
                return Some(length);
            }
        }
    }

    pub(super) fn finish(&mut self, rows: &mut Vec<CopyRow>) -> Result<(), SqlError> {
        let rest = std::mem::take(&mut self.rest);
        if rest.is_empty() { Ok(()) } else { self.line(&rest, rows) }
    }

    fn line(&mut self, line: &[u8], rows: &mut Vec<CopyRow>) -> Result<(), SqlError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if self.is_ended {
            return Ok(());
        }
        if line == b"\\." {
            self.is_ended = true;
            return Ok(());
        }
        if std::mem::take(&mut self.skips_header) {
            return Ok(());
        }
        if memchr::memchr(b'\\', line).is_none() {
            let text = Arc::from(checked(line)?);
            self.plain_line(&text, 0..line.len(), rows);
            return Ok(());
        }
        let mut fields = LineBuilder::default();
        let mut raw = Vec::new();
        let mut field = Vec::new();
        let mut bytes = line.iter().copied().peekable();
        loop {
            match bytes.next() {
                None => {
                    fields.push(self.field(&raw, &field)?);
                    break;
                }
                Some(byte) if byte == self.form.delimiter => {
                    fields.push(self.field(&raw, &field)?);
                    raw.clear();
                    field.clear();
                }
                Some(b'\\') => {
                    raw.push(b'\\');
                    let Some(next) = bytes.next() else {
                        field.push(b'\\');
                        continue;
                    };
                    raw.push(next);
                    match next {
                        b'b' => field.push(8),
                        b'f' => field.push(12),
                        b'n' => field.push(b'\n'),
                        b'r' => field.push(b'\r'),
                        b't' => field.push(b'\t'),
                        b'v' => field.push(11),
                        b'0'..=b'7' => field.push(octal(next, &mut bytes)),
                        b'x' => match hex(&mut bytes) {
                            Some(byte) => field.push(byte),
                            None => field.push(b'x'),
                        },
                        other => field.push(other),
                    }
                }
                Some(byte) => {
                    raw.push(byte);
                    field.push(byte);
                }
            }
        }
        rows.push(CopyRow::Texts(fields.finish()));
        Ok(())
    }

    fn field<'f>(&self, raw: &[u8], field: &'f [u8]) -> Result<Option<&'f str>, SqlError> {
        if raw == self.form.null.as_bytes() { Ok(None) } else { checked(field).map(Some) }
    }
}

/// A field as a text.
pub(super) fn checked(field: &[u8]) -> Result<&str, SqlError> {
    let text = std::str::from_utf8(field).ok().filter(|text| memchr::memchr(0, text.as_bytes()).is_none());
    text.ok_or_else(|| {
        SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\"")
    })
}

type Bytes<'a> = std::iter::Peekable<std::iter::Copied<std::slice::Iter<'a, u8>>>;

fn octal(first: u8, bytes: &mut Bytes<'_>) -> u8 {
    let mut number = u32::from(first - b'0');
    for _ in 0..2 {
        let Some(digit) = bytes.next_if(|byte| (b'0'..=b'7').contains(byte)) else { break };
        number = number * 8 + u32::from(digit - b'0');
    }
    number as u8
}

fn hex(bytes: &mut Bytes<'_>) -> Option<u8> {
    let mut number = (bytes.next_if(u8::is_ascii_hexdigit)? as char).to_digit(16)?;
    if let Some(digit) = bytes.next_if(u8::is_ascii_hexdigit) {
        number = number * 16 + (digit as char).to_digit(16)?;
    }
    Some(number as u8)
}

pub(super) fn push_field(form: &Form, field: &str, out: &mut Vec<u8>) {
    for byte in field.bytes() {
        let escaped = match byte {
            8 => b'b',
            12 => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            11 => b'v',
            byte if byte == b'\\' || byte == form.delimiter => byte,
            byte => {
                out.push(byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', escaped]);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Fields;
    use super::*;

    pub(crate) fn fields(rows: &[CopyRow]) -> Vec<Fields> {
        let fields = |row: &CopyRow| match row {
            CopyRow::Texts(line) => line.fields(),
            CopyRow::Values(values) => panic!("a text became {values:?}"),
        };
        rows.iter().map(fields).collect()
    }

    #[test]
    fn lines_come_in_pieces() {
        let data = "1\ta\\tb\\\\c\t\\N\n2\t\\\n\tlast\n3\tx\\101\\x42\t\n\\.\nignored\n";
        let wanted: Vec<Fields> = vec![
            vec![Some("1".into()), Some("a\tb\\c".into()), None],
            vec![Some("2".into()), Some("\n".into()), Some("last".into())],
            vec![Some("3".into()), Some("xAB".into()), Some(String::new())],
        ];
        for size in 1..data.len() {
            let (mut lines, mut rows) = (TextLines::new(Form::default()), Vec::new());
            for piece in data.as_bytes().chunks(size) {
                lines.push(piece, &mut rows).unwrap();
            }
            lines.finish(&mut rows).unwrap();
            assert_eq!(fields(&rows), wanted, "pieces of {size}");
        }
    }

    #[test]
    fn lines_in_which_nothing_is_special_come_in_pieces() {
        let data = "1,one,-\r\n2,,\u{e4}\n-,-,3\n4\n,,";
        let some = |text: &str| Some(text.to_owned());
        let wanted: Vec<Fields> = vec![
            vec![some("1"), some("one"), None],
            vec![some("2"), some(""), some("\u{e4}")],
            vec![None, None, some("3")],
            vec![some("4")],
            vec![some(""), some(""), some("")],
        ];
        let form = Form { delimiter: b',', null: "-".to_owned(), ..Form::default() };
        for size in 1..=data.len() {
            let (mut lines, mut rows) = (TextLines::new(form.clone()), Vec::new());
            for piece in data.as_bytes().chunks(size) {
                lines.push(piece, &mut rows).unwrap();
            }
            lines.finish(&mut rows).unwrap();
            assert_eq!(fields(&rows), wanted, "pieces of {size}");
        }
        // Lines before one that is wrong are there.
        let (mut lines, mut rows) = (TextLines::new(form), Vec::new());
        lines.push(b"1,2\n3,\xff\n4,5\n", &mut rows).expect_err("it is not UTF-8");
        assert_eq!(fields(&rows), [vec![some("1"), some("2")]]);
    }

    #[test]
    fn what_is_written_is_read() {
        let row = vec![Some("a\tb\nc\\d\u{e4}".to_owned()), None, Some(String::new())];
        let mut out = Vec::new();
        Form::default().push_line(&row, &mut out);
        let (mut lines, mut rows) = (TextLines::new(Form::default()), Vec::new());
        lines.push(&out, &mut rows).unwrap();
        assert_eq!(fields(&rows), [row]);
    }
}
