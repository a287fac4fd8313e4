//! Functions that make another document of a document of JSON: by setting, inserting and removing parts, or for people to read.

use super::documents::read;
use super::{Function, invalid_parameter, strict};
use crate::error::{SqlError, SqlState};
use crate::json::{Json as Document, Kind};
use crate::types::SqlType::{Bool, Json, Jsonb, Text, TextArray};
use crate::value::Value;

const TRUE: &[Value] = &[Value::Bool(true)];
const FALSE: &[Value] = &[Value::Bool(false)];

pub(super) static FUNCTIONS: &[Function] = &[
    strict("jsonb_set", &[Jsonb, TextArray, Jsonb, Bool], Jsonb, |_, a| {
        changed(a, if is_set(a, 3) { Change::Set } else { Change::Replace })
    })
    .named(&["jsonb_in", "path", "replacement", "create_if_missing"])
    .defaulting(TRUE),
    strict("jsonb_insert", &[Jsonb, TextArray, Jsonb, Bool], Jsonb, |_, a| {
        changed(a, if is_set(a, 3) { Change::InsertAfter } else { Change::Insert })
    })
    .named(&["jsonb_in", "path", "replacement", "insert_after"])
    .defaulting(FALSE),
    strict("jsonb_delete_path", &[Jsonb, TextArray], Jsonb, |_, a| changed(a, Change::Delete)),
    strict("json_strip_nulls", &[Json], Json, |_, a| {
        let mut document = read(a, 0, Json)?;
        strip_nulls(&mut document);
        Ok(Value::from(document.compact()))
    }),
    strict("jsonb_strip_nulls", &[Jsonb], Jsonb, |_, a| {
        let mut document = read(a, 0, Jsonb)?;
        strip_nulls(&mut document);
        Ok(Value::from(document.shown()))
    }),
    strict("jsonb_pretty", &[Jsonb], Text, |_, a| Ok(Value::from(read(a, 0, Jsonb)?.pretty()))),
];

fn is_set(values: &[Value], at: usize) -> bool {
    matches!(values.get(at), Some(Value::Bool(true)))
}

/// Change that is made where a path ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// The part is replaced, or added where there is none.
    Set,
    Replace,
    Insert,
    InsertAfter,
    Delete,
}

impl Change {
    /// Returns true if a part is added where there is none.
    fn adds(self) -> bool {
        matches!(self, Change::Set | Change::Insert | Change::InsertAfter)
    }
}

/// The document with the part at a path changed; the document itself where the path leads nowhere.
fn changed(values: &[Value], change: Change) -> Result<Value, SqlError> {
    let mut document = read(values, 0, Jsonb)?;
    let new = if change == Change::Delete { None } else { Some(read(values, 2, Jsonb)?) };
    let is_empty = match &document.kind {
        Kind::Array(elements) => elements.is_empty(),
        Kind::Object(members) => members.is_empty(),
        _ => {
            let verb = if change == Change::Delete { "delete" } else { "set" };
            return Err(invalid_parameter(format!("cannot {verb} path in scalar")));
        }
    };
    let Some(Value::Array(path)) = values.get(1) else { return Ok(Value::Null) };
    if !path.is_empty() && (!is_empty || change.adds()) {
        let edit = Edit { path, new: new.as_ref(), change };
        edit.apply(&mut document, 0)?;
    }
    Ok(Value::from(document.shown()))
}

/// A change at the end of a path.
struct Edit<'a> {
    path: &'a [Value],
    new: Option<&'a Document>,
    change: Change,
}

impl Edit<'_> {
    /// Applies it to a part, which the first `level` steps of the path have led to.
    fn apply(&self, part: &mut Document, level: usize) -> Result<(), SqlError> {
        match &mut part.kind {
            Kind::Array(elements) => self.apply_to_array(elements, level),
            Kind::Object(members) => self.apply_to_object(members, level),
            // There is nothing below a scalar.
            _ => Ok(()),
        }
    }

    fn step(&self, level: usize) -> Result<&str, SqlError> {
        self.path[level].as_text().ok_or_else(|| {
            SqlError::new(SqlState("22004"), format!("path element at position {} is null", level + 1))
        })
    }

    fn is_last(&self, level: usize) -> bool {
        level + 1 == self.path.len()
    }

    fn apply_to_array(&self, elements: &mut Vec<Document>, level: usize) -> Result<(), SqlError> {
        let step = self.step(level)?;
        let number: i32 = step.trim_start().parse().map_err(|_| {
            SqlError::new(
                SqlState::INVALID_TEXT_REPRESENTATION,
                format!("path element at position {} is not an integer: \"{step}\"", level + 1),
            )
        })?;
        let count = elements.len();
        let distance = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
        // Numbers below zero count from the end; `None` is before the first element.
        let at = if number < 0 { count.checked_sub(distance) } else { Some(distance.min(count)) };
        if !self.is_last(level) {
            return match at.and_then(|at| elements.get_mut(at)) {
                Some(element) => self.apply(element, level + 1),
                None => Ok(()),
            };
        }
        let found = at.filter(|at| *at < count);
        match (self.change, self.new, found) {
            (Change::Set | Change::Replace, Some(new), Some(at)) => elements[at] = new.clone(),
            (Change::Insert, Some(new), Some(at)) => elements.insert(at, new.clone()),
            (Change::InsertAfter, Some(new), Some(at)) => elements.insert(at + 1, new.clone()),
            (Change::Delete, _, Some(at)) => drop(elements.remove(at)),
            (change, Some(new), None) if change.adds() => {
                elements.insert(if at.is_none() { 0 } else { count }, new.clone());
            }
            _ => {}
        }
        Ok(())
    }

    fn apply_to_object(&self, members: &mut Vec<(String, Document)>, level: usize) -> Result<(), SqlError> {
        let step = self.step(level)?;
        let found = members.iter().position(|(key, _)| key == step);
        if !self.is_last(level) {
            return match found {
                Some(at) => self.apply(&mut members[at].1, level + 1),
                None => Ok(()),
            };
        }
        match (self.change, self.new, found) {
            (Change::Insert | Change::InsertAfter, _, Some(_)) => {
                return Err(invalid_parameter("cannot replace existing key")
                    .hint("Try using the function jsonb_set to replace key value."));
            }
            (Change::Delete, _, Some(at)) => drop(members.remove(at)),
            (_, Some(new), Some(at)) => members[at].1 = new.clone(),
            (change, Some(new), None) if change.adds() => members.push((step.to_owned(), new.clone())),
            _ => {}
        }
        Ok(())
    }
}

/// Removes the members of objects that are null, at any depth; elements of arrays stay.
fn strip_nulls(document: &mut Document) {
    match &mut document.kind {
        Kind::Array(elements) => elements.iter_mut().for_each(strip_nulls),
        Kind::Object(members) => {
            members.retain(|(_, value)| !matches!(value.kind, Kind::Null));
            members.iter_mut().for_each(|(_, value)| strip_nulls(value));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(change: Change, document: &str, path: &[&str]) -> Result<String, SqlError> {
        let path = Value::Array(path.iter().map(Value::text).collect());
        let value = changed(&[Value::text(document), path, Value::text("9")], change)?;
        Ok(value.as_text().unwrap_or("").to_owned())
    }

    #[test]
    fn a_path_ends_where_the_change_is() {
        assert_eq!(of(Change::Set, r#"{"a": [1, 2]}"#, &["a", "-1"]).unwrap(), r#"{"a": [1, 9]}"#);
        assert_eq!(of(Change::Set, r#"{"a": [1, 2]}"#, &["a", "-7"]).unwrap(), r#"{"a": [9, 1, 2]}"#);
        assert_eq!(of(Change::Replace, r#"{"a": [1, 2]}"#, &["a", "7"]).unwrap(), r#"{"a": [1, 2]}"#);
        assert_eq!(of(Change::Insert, "[1, 2]", &["1"]).unwrap(), "[1, 9, 2]");
        assert_eq!(of(Change::InsertAfter, "[1, 2]", &["1"]).unwrap(), "[1, 2, 9]");
        assert_eq!(of(Change::Delete, r#"{"a": [1, 2]}"#, &["a", "0"]).unwrap(), r#"{"a": [2]}"#);
        assert_eq!(of(Change::Set, r#"{"a": 1}"#, &["a", "b"]).unwrap(), r#"{"a": 1}"#);
        assert!(of(Change::Insert, r#"{"a": 1}"#, &["a"]).is_err());
        assert!(of(Change::Set, "1", &["a"]).is_err());
        assert!(of(Change::Set, "[1]", &["a"]).is_err());
    }
}
