//! The CSV format of COPY: fields in quotes may hold anything.

use super::line::LineBuilder;
use super::text::{MAX_LINE, checked};
use super::{CopyRow, Form};
use crate::error::{SqlError, SqlState};

/// Lines of CSV, as they come in pieces.
pub(crate) struct CsvLines {
    form: Form,
    fields: LineBuilder,
    field: Vec<u8>,
    is_quoted: bool,
    was_quoted: bool,
    /// Set behind a byte that may be an escape or the end of a quoted field.
    is_pending: bool,
    skips_header: bool,
    is_ended: bool,
}

impl CsvLines {
    pub(super) fn new(form: Form) -> CsvLines {
        let skips_header = form.header;
        CsvLines {
            form,
            fields: LineBuilder::default(),
            field: Vec::new(),
            is_quoted: false,
            was_quoted: false,
            is_pending: false,
            skips_header,
            is_ended: false,
        }
    }

    pub(super) fn push(&mut self, data: &[u8], rows: &mut Vec<CopyRow>) -> Result<(), SqlError> {
        let mut data = data;
        while let Some((byte, rest)) = data.split_first() {
            let plain = self.plain(data);
            if plain > 0 {
                self.field.extend_from_slice(&data[..plain]);
                self.refuse_long()?;
                data = &data[plain..];
                continue;
            }
            self.byte(*byte, rows)?;
            data = rest;
        }
        Ok(())
    }

    /// The number of bytes at the beginning of some data that are of the field as they are.
    fn plain(&self, data: &[u8]) -> usize {
        let form = &self.form;
        if self.is_pending {
            return 0;
        }
        let special = if self.is_quoted {
            memchr::memchr2(form.escape, form.quote, data)
        } else {
            memchr::memchr3(b'\n', form.delimiter, form.quote, data)
        };
        special.unwrap_or(data.len())
    }

    fn refuse_long(&self) -> Result<(), SqlError> {
        if self.fields.bytes() + self.field.len() <= MAX_LINE {
            return Ok(());
        }
        Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a line of a COPY is longer than 64 MB"))
    }

    fn byte(&mut self, byte: u8, rows: &mut Vec<CopyRow>) -> Result<(), SqlError> {
        self.refuse_long()?;
        if self.is_pending {
            self.is_pending = false;
            if byte == self.form.quote || byte == self.form.escape {
                self.field.push(byte);
                return Ok(());
            }
            if self.form.escape == self.form.quote {
                self.is_quoted = false;
            } else {
                self.field.push(self.form.escape);
            }
        }
        if self.is_quoted {
            if byte == self.form.escape {
                self.is_pending = true;
            } else if byte == self.form.quote {
                self.is_quoted = false;
            } else {
                self.field.push(byte);
            }
            return Ok(());
        }
        match byte {
            b'\n' => self.line(rows),
            byte if byte == self.form.delimiter => self.end_field(),
            byte if byte == self.form.quote => {
                (self.is_quoted, self.was_quoted) = (true, true);
                Ok(())
            }
            byte => {
                self.field.push(byte);
                Ok(())
            }
        }
    }

    fn end_field(&mut self) -> Result<(), SqlError> {
        let field = checked(&self.field)?;
        let is_null = !std::mem::take(&mut self.was_quoted) && field == self.form.null;
        self.fields.push((!is_null).then_some(field));
        self.field.clear();
        Ok(())
    }

    fn line(&mut self, rows: &mut Vec<CopyRow>) -> Result<(), SqlError> {
        if self.field.last() == Some(&b'\r') && !self.was_quoted {
            self.field.pop();
        }
        if self.fields.is_empty() && self.field == b"\\." && !self.was_quoted {
            self.is_ended = true;
        }
        self.end_field()?;
        let fields = std::mem::take(&mut self.fields);
        if !std::mem::take(&mut self.skips_header) && !self.is_ended {
            rows.push(CopyRow::Texts(fields.finish()));
        }
        Ok(())
    }

    pub(super) fn finish(&mut self, rows: &mut Vec<CopyRow>) -> Result<(), SqlError> {
        if self.is_pending {
            (self.is_pending, self.is_quoted) = (false, false);
        }
        if self.is_quoted {
            return Err(SqlError::new(SqlState::BAD_COPY_FILE_FORMAT, "unterminated CSV quoted field"));
        }
        if self.fields.is_empty() && self.field.is_empty() && !self.was_quoted {
            return Ok(());
        }
        self.line(rows)
    }
}

pub(super) fn push_field(form: &Form, field: &str, out: &mut Vec<u8>) {
    let is_special = |byte: u8| byte == form.delimiter || byte == form.quote || matches!(byte, b'\n' | b'\r');
    if !field.bytes().any(is_special) && field != form.null && field != "\\." {
        out.extend_from_slice(field.as_bytes());
        return;
    }
    out.push(form.quote);
    for byte in field.bytes() {
        if byte == form.quote || byte == form.escape {
            out.push(form.escape);
        }
        out.push(byte);
    }
    out.push(form.quote);
}

#[cfg(test)]
mod tests {
    use super::super::text::tests::fields;
    use super::*;

    #[test]
    fn what_is_written_is_read_in_pieces() {
        let form = Form { is_csv: true, delimiter: b',', null: String::new(), ..Form::default() };
        let rows = vec![
            vec![Some("a,b".to_owned()), None, Some(String::new())],
            vec![Some("say \"hi\"\r\nthere".to_owned()), Some("x".to_owned()), Some("\\.".to_owned())],
        ];
        let mut out = Vec::new();
        rows.iter().for_each(|row| form.push_line(row, &mut out));
        for size in 1..out.len() {
            let (mut lines, mut read) = (CsvLines::new(form.clone()), Vec::new());
            for piece in out.chunks(size) {
                lines.push(piece, &mut read).unwrap();
            }
            lines.finish(&mut read).unwrap();
            assert_eq!(fields(&read), rows, "pieces of {size}");
        }
    }
}
