//! Functions that return parts of a document of JSON as rows.
//!
//! Owns: their names, types and rows. They are no functions of expressions: `bind::sets` binds them.

use super::invalid_parameter;
use crate::error::SqlError;
use crate::json::{Json as Document, Kind};
use crate::record::Record;
use crate::types::{Modifier, SqlType};
use crate::value::Value;

/// A function that returns parts of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DocumentRows {
    name: &'static str,
    part: Part,
    /// `json` or `jsonb`.
    argument: SqlType,
    /// The type of an element, or of the value of a member.
    value: SqlType,
}

/// The parts that are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Elements,
    Members,
    Keys,
}

const fn rows(name: &'static str, part: Part, argument: SqlType, value: SqlType) -> DocumentRows {
    DocumentRows { name, part, argument, value }
}

static FUNCTIONS: [DocumentRows; 10] = [
    rows("json_array_elements", Part::Elements, SqlType::Json, SqlType::Json),
    rows("json_array_elements_text", Part::Elements, SqlType::Json, SqlType::Text),
    rows("json_each", Part::Members, SqlType::Json, SqlType::Json),
    rows("json_each_text", Part::Members, SqlType::Json, SqlType::Text),
    rows("json_object_keys", Part::Keys, SqlType::Json, SqlType::Text),
    rows("jsonb_array_elements", Part::Elements, SqlType::Jsonb, SqlType::Jsonb),
    rows("jsonb_array_elements_text", Part::Elements, SqlType::Jsonb, SqlType::Text),
    rows("jsonb_each", Part::Members, SqlType::Jsonb, SqlType::Jsonb),
    rows("jsonb_each_text", Part::Members, SqlType::Jsonb, SqlType::Text),
    rows("jsonb_object_keys", Part::Keys, SqlType::Jsonb, SqlType::Text),
];

impl DocumentRows {
    /// The function of a name.
    pub(crate) fn named(name: &str) -> Option<DocumentRows> {
        FUNCTIONS.iter().find(|function| function.name == name).copied()
    }

    /// The names of all of them.
    #[cfg(test)]
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        FUNCTIONS.iter().map(|function| function.name)
    }

    /// The type of its argument.
    pub(crate) fn argument(self) -> SqlType {
        self.argument
    }

    /// Returns true if its argument can be given by a name.
    pub(crate) fn names_its_argument(self) -> bool {
        self.part != Part::Keys
    }

    /// The type of a row.
    pub(crate) fn result(self) -> SqlType {
        if self.part == Part::Members { SqlType::Record } else { self.value }
    }

    /// The fields of a row that is a record.
    pub(crate) fn modifier(self) -> Modifier {
        if self.part == Part::Members { Modifier::Member(self.value) } else { Modifier::None }
    }

    /// The name of the one column, if the function has one for it.
    pub(crate) fn column_name(self) -> Option<&'static str> {
        (self.part == Part::Elements).then_some("value")
    }

    /// The rows of a document.
    pub(crate) fn rows(self, text: &str) -> Result<Vec<Value>, SqlError> {
        let value = |part: &Document| match (&part.kind, self.value) {
            (Kind::Null, SqlType::Text) => Value::Null,
            (Kind::Text(own), SqlType::Text) => Value::text(own),
            _ => Value::text(part.slice(text)),
        };
        let member = |(key, part): &(String, Document)| {
            let values = vec![Value::text(key), value(part)];
            Value::Record(Record::of_fields(self.modifier(), values).into())
        };
        Ok(match (Document::read(text, self.argument)?.kind, self.part) {
            (Kind::Array(elements), Part::Elements) => elements.iter().map(value).collect(),
            (Kind::Object(members), Part::Members) => members.iter().map(member).collect(),
            (Kind::Object(members), Part::Keys) => members.iter().map(|(key, _)| Value::text(key)).collect(),
            (kind, Part::Elements) => {
                let what = if matches!(kind, Kind::Object(_)) { "an object" } else { "a scalar" };
                return Err(invalid_parameter(format!("cannot extract elements from {what}")));
            }
            _ => return Err(invalid_parameter(format!("cannot call {} on a non-object", self.name))),
        })
    }
}
