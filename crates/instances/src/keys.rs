//! Keys in words, and the keys of each instance as people choose them.
//!
//! A key is written as the value of its first part: a number as such, text and bytes in quotes if all of it is printable (`'smith'`).
//! Any other is `0x` and its bytes in hexadecimal digits, which says every key.
//!
//! Owns: this notation, and the division that follows from chosen keys ([`division`]). Never: decides who owns a key; the scheme does.

use std::collections::BTreeMap;

use atrapos::catalog::{KeyField, Value};
use atrapos::{ColumnType, Database, Division, FamilyScheme, InstanceId, KeyBuf, KeyRanges, Schema};
use atrapos_partition::schema::Catalog;
use serde::{Deserialize, Serialize};

/// The keys that an instance has of a family of tables, from one key to below another; an end that is not given is that of all keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyBounds {
    /// The first key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The first key after them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<String>,
}

/// The keys that are chosen for one instance, by the name of the family of tables.
pub type ChosenKeys = BTreeMap<String, KeyBounds>;

/// A mistake in the keys that are chosen for instances.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeysError(String);

/// Returns the division of the keys of a schema as an instance sees it. `keys` has what is chosen for each instance, or nothing.
///
/// # Errors
/// A family that does not exist, a key that is none of it, keys of two instances or of none; a schema that contradicts itself.
pub fn division(
    schema: Schema,
    instance: InstanceId,
    workers: Vec<usize>,
    keys: &[ChosenKeys],
) -> Result<Division, KeysError> {
    let catalog = Catalog::new(schema).map_err(|error| KeysError(error.to_string()))?;
    division_of(&catalog, instance, workers, keys)
}

/// Returns the division of the keys of a catalog, as [`division`] does.
pub(crate) fn division_of(
    catalog: &Catalog,
    instance: InstanceId,
    workers: Vec<usize>,
    keys: &[ChosenKeys],
) -> Result<Division, KeysError> {
    let mut division = Division::by_workers(instance, workers);
    for name in keys.iter().flat_map(ChosenKeys::keys) {
        if !division.ranges.contains_key(name) {
            let field = field_of(catalog, name)?;
            let chosen = (0..).map(InstanceId).zip(keys.iter().map(|keys| keys.get(name)));
            let chosen = chosen.filter_map(|(instance, bounds)| Some((instance, bounds?)));
            let spans = chosen.map(|(instance, bounds)| Span::of(name, field, instance, bounds));
            let ranges = Spans { name, field, spans: spans.collect::<Result<_, _>>()? }.into_ranges()?;
            division.ranges.insert(name.clone(), ranges);
        }
    }
    Ok(division)
}

/// Returns the first part of the keys of a family.
fn field_of(catalog: &Catalog, name: &str) -> Result<KeyField, KeysError> {
    if let Some(family) = catalog.families.iter().position(|(family, _)| *family == name) {
        return Ok(first_field(catalog, family));
    }
    let families: Vec<&str> = catalog.families.iter().map(|(family, _)| *family).collect();
    let table = catalog.tables.iter().find(|table| table.name == name);
    Err(KeysError(match table.and_then(|table| families.get(table.family)) {
        Some(family) => {
            format!(
                "'{name}' is divided with the tables of '{family}', at the same keys; choose the keys of that"
            )
        }
        None => format!("there are no tables '{name}' to divide; choose the keys of {}", families.join(", ")),
    }))
}

fn first_field(catalog: &Catalog, family: usize) -> KeyField {
    let tree = catalog.tables.iter().position(|table| table.family == family);
    let fields = catalog.definitions.key_fields(tree.unwrap_or_default() as u16);
    fields.into_iter().next().expect("a family has a tree, and its keys have a part")
}

/// The keys of one instance.
struct Span {
    instance: InstanceId,
    /// The first key; none if it is the smallest.
    from: Option<KeyBuf>,
    below: Option<KeyBuf>,
}

impl Span {
    fn of(name: &str, field: KeyField, instance: InstanceId, bounds: &KeyBounds) -> Result<Span, KeysError> {
        let read = |text: &Option<String>| {
            let key = text.as_deref().map(|text| read(field, text)).transpose();
            key.map_err(|why| KeysError(format!("the keys of '{name}' in {instance} cannot be read: {why}")))
        };
        let (from, below) = (read(&bounds.from)?, read(&bounds.below)?);
        // Nothing is smaller than a key of zeros.
        let from = from.filter(|key| key.iter().any(|byte| *byte != 0));
        let is_empty = match (&from, &below) {
            (Some(from), Some(below)) => from >= below,
            (None, Some(below)) => below.iter().all(|byte| *byte == 0),
            _ => false,
        };
        if is_empty {
            return Err(KeysError(format!(
                "{instance} has no keys of '{name}': from {} below {}; give a smaller key first, or leave '{name}' out of it",
                bounds.from.as_deref().unwrap_or("the smallest"),
                bounds.below.as_deref().unwrap_or_default(),
            )));
        }
        Ok(Span { instance, from, below })
    }
}

/// The keys of all instances in one family.
struct Spans<'a> {
    name: &'a str,
    field: KeyField,
    spans: Vec<Span>,
}

impl Spans<'_> {
    /// Returns the ranges, if they have each key once.
    fn into_ranges(mut self) -> Result<KeyRanges, KeysError> {
        self.spans.sort_by(|one, other| one.from.cmp(&other.from));
        let (first, last) =
            (self.spans.first(), self.spans.iter().max_by_key(|span| (span.below.is_none(), &span.below)));
        if let Some(Span { instance, from: from @ Some(_), .. }) = first {
            return Err(self.missing(None, from.as_deref(), &format!("before those of {instance}")));
        }
        for pair in self.spans.windows(2) {
            let (one, other) = (&pair[0], &pair[1]);
            if one.below.is_none() || one.below > other.from {
                return Err(self.overlapping(one, other));
            }
            if one.below < other.from {
                let between = format!("between those of {} and {}", one.instance, other.instance);
                return Err(self.missing(one.below.as_deref(), other.from.as_deref(), &between));
            }
        }
        if let Some(Span { instance, below: below @ Some(_), .. }) = last {
            return Err(self.missing(below.as_deref(), None, &format!("after those of {instance}")));
        }
        let owners = self.spans.iter().map(|span| span.instance).collect();
        let cuts = self.spans.into_iter().filter_map(|span| span.from).collect();
        Ok(KeyRanges::new(cuts, owners).expect("each range begins where the one before ends"))
    }

    fn missing(&self, from: Option<&[u8]>, below: Option<&[u8]>, place: &str) -> KeysError {
        let keys = span(self.name, self.field, from, below);
        KeysError(format!("no instance has the keys {keys}, {place}; give them to one"))
    }

    fn overlapping(&self, one: &Span, other: &Span) -> KeysError {
        let ends = [one.below.as_deref(), other.below.as_deref()].into_iter().flatten();
        let keys = span(self.name, self.field, other.from.as_deref(), ends.min());
        KeysError(format!(
            "{} and {} both have the keys {keys}; give them to one of the two",
            one.instance, other.instance
        ))
    }
}

/// Returns the ranges of keys of each family that a database owns: the name of the family and where they begin and end.
#[must_use]
pub fn own_keys(db: &Database) -> Vec<String> {
    let (scheme, catalog) = (db.scheme(), db.catalog());
    let families = catalog.families.iter().zip(scheme.families()).enumerate();
    let words = families.flat_map(|(at, ((name, _), (family, _)))| {
        let (field, ranges) = (first_field(&catalog, at), own_ranges(family).into_iter());
        ranges.map(move |(lower, upper)| match (lower, upper) {
            (None, None) => format!("all of {name}"),
            (lower, upper) => span(name, field, lower, upper),
        })
    });
    words.collect()
}

/// Returns a range of the keys of a family in words.
fn span(name: &str, field: KeyField, from: Option<&[u8]>, below: Option<&[u8]>) -> String {
    let from = from.map_or_else(String::new, |key| format!(" from {}", write(field, key)));
    let below = below.map_or_else(String::new, |key| format!(" below {}", write(field, key)));
    format!("{name}{from}{below}")
}

/// The first key of a range, and the first one after it; none where the range has no end.
type Bounds<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// Returns the ranges of a family that workers of this database own; neighbours are one.
fn own_ranges(family: &FamilyScheme) -> Vec<Bounds<'_>> {
    let mut ranges: Vec<Bounds<'_>> = Vec::new();
    let own = |at: &usize| InstanceId::of_owner(family.owner(*at)).is_none();
    for at in (0..family.partitions()).filter(own) {
        let (lower, upper) = (family.lower(at), family.upper(at));
        match ranges.last_mut().filter(|last| last.1.is_some() && last.1 == lower) {
            Some(last) => last.1 = upper,
            None => ranges.push((lower, upper)),
        }
    }
    ranges
}

/// Writes a key.
fn write(field: KeyField, key: &[u8]) -> String {
    let mut rest = key;
    let value = field.decode(&mut rest).ok().filter(|_| rest.is_empty());
    let printable = |text: &str| !text.is_empty() && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    match value {
        Some(Value::Unsigned(number)) => return number.to_string(),
        Some(Value::Signed(number)) => return number.to_string(),
        Some(Value::Text(text)) if printable(&text) => return format!("'{text}'"),
        Some(Value::Bytes(bytes)) => {
            if let Ok(text) = str::from_utf8(&bytes)
                && printable(text)
            {
                return format!("'{text}'");
            }
        }
        _ => {}
    }
    key.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// Reads a key that is written by [`write`].
fn read(field: KeyField, text: &str) -> Result<KeyBuf, String> {
    if let Some(digits) = text.strip_prefix("0x") {
        return read_bytes(field, digits).ok_or_else(|| {
            format!(
                "'{text}' is not the bytes of a value of type {}, which these keys begin with; write two hexadecimal digits for each",
                field.part.ty
            )
        });
    }
    let quoted = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    let number =
        || format!("'{text}' is no number, which keys of type {} begin with; write one", field.part.ty);
    let value = match (field.part.ty, quoted) {
        (ColumnType::Unsigned(_), _) => Value::Unsigned(text.parse().map_err(|_| number())?),
        (ColumnType::Signed(_), _) => Value::Signed(text.parse().map_err(|_| number())?),
        (ColumnType::FixedStr(_) | ColumnType::String, Some(quoted)) => Value::Text(quoted.to_owned()),
        (ColumnType::Bytes(_) | ColumnType::VarBytes, Some(quoted)) => {
            Value::Bytes(quoted.as_bytes().to_vec())
        }
        (ty, _) => {
            return Err(format!(
                "{text} is no key that begins with {ty}; write text and bytes in quotes, as in \"'smith'\", or the bytes of the key as \
                 in \"0x00ff\""
            ));
        }
    };
    let mut key = KeyBuf::new();
    field.encode(&value, &mut key).map_err(|error| error.to_string())?;
    Ok(key)
}

/// Reads the bytes of a value in hexadecimal digits.
fn read_bytes(field: KeyField, digits: &str) -> Option<KeyBuf> {
    let bytes = digits.as_bytes().chunks(2).map(|pair| {
        let pair = str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        pair.chars().try_fold(0, |byte, digit| Some(byte << 4 | digit.to_digit(16)? as u8))
    });
    let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
    let mut rest = &bytes[..];
    field.decode(&mut rest).ok()?;
    rest.is_empty().then(|| KeyBuf::from(&*bytes))
}

#[cfg(test)]
mod tests;
