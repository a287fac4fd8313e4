//! The fields of a line of a COPY.
//!
//! Owns: their texts, in one allocation for a line, and their places in it. Never: knows a format.

#[cfg(test)]
use super::Fields;
use super::text::checked;
use crate::error::SqlError;

/// The fields of a line. Its text has all of theirs, and may have more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    text: String,
    /// The place of each field; none for NULL.
    places: Vec<Option<(u32, u32)>>,
}

impl Line {
    /// A line whose fields are what they look like: the parts between delimiters, NULL where they are `null`.
    pub(super) fn split(bytes: &[u8], delimiter: u8, null: &[u8]) -> Result<Line, SqlError> {
        let text = checked(bytes)?.to_owned();
        let mut places = Vec::with_capacity(1 + memchr::memchr_iter(delimiter, bytes).count());
        let mut start = 0;
        for end in memchr::memchr_iter(delimiter, bytes).chain([bytes.len()]) {
            // A line has at most 64 MB.
            places.push((bytes[start..end] != *null).then_some((start as u32, end as u32)));
            start = end + 1;
        }
        Ok(Line { text, places })
    }

    /// Adds a field.
    pub(super) fn push(&mut self, field: Option<&str>) {
        let start = self.text.len() as u32;
        self.text.push_str(field.unwrap_or_default());
        self.places.push(field.map(|_| (start, self.text.len() as u32)));
    }

    /// The length of its text.
    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// The number of fields.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The text of a field that there is; `None` for NULL.
    pub(crate) fn field(&self, at: usize) -> Option<&str> {
        self.places[at].map(|(start, end)| &self.text[start as usize..end as usize])
    }

    /// The fields, each by itself.
    #[cfg(test)]
    pub(super) fn fields(&self) -> Fields {
        (0..self.len()).map(|at| self.field(at).map(str::to_owned)).collect()
    }
}
