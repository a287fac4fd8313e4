//! The fields of a line of a COPY.
//!
//! Owns: their texts, in one allocation for a line or for many lines that came together, and their places in it. Never: knows a format.

use std::ops::Range;
use std::sync::Arc;

#[cfg(test)]
use super::Fields;

/// The fields of a line. Its text has all of theirs, and may have more.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    text: Arc<str>,
    /// The place of each field; none for NULL.
    places: Vec<Option<(u32, u32)>>,
}

/// A line that is put together field by field.
#[derive(Debug, Default)]
pub(super) struct LineBuilder {
    text: String,
    places: Vec<Option<(u32, u32)>>,
}

impl Line {
    /// A line of a text whose fields are what they look like: the parts between delimiters, NULL where they are `null`. So many are
    /// expected.
    pub(super) fn split(
        text: &Arc<str>,
        at: Range<usize>,
        delimiter: u8,
        null: &[u8],
        expected: usize,
    ) -> Line {
        let bytes = text.as_bytes();
        let mut places = Vec::with_capacity(expected);
        let (mut start, delimiters) = (at.start, memchr::memchr_iter(delimiter, &bytes[at.clone()]));
        for end in delimiters.map(|place| at.start + place).chain([at.end]) {
            // Lines that come together have at most as many bytes as a line may have.
            places.push((bytes[start..end] != *null).then_some((start as u32, end as u32)));
            start = end + 1;
        }
        Line { text: Arc::clone(text), places }
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

impl LineBuilder {
    /// Adds a field.
    pub(super) fn push(&mut self, field: Option<&str>) {
        let start = self.text.len() as u32;
        self.text.push_str(field.unwrap_or_default());
        self.places.push(field.map(|_| (start, self.text.len() as u32)));
    }

    /// The length of the text so far.
    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Returns true if it has no field yet.
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Ends the line.
    pub(super) fn finish(self) -> Line {
        Line { text: self.text.into(), places: self.places }
    }
}
