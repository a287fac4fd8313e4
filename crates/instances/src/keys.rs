//! The keys that an instance owns, in words.
//!
//! Owns: their text. Never: decides who owns a key.

use atrapos::{Database, FamilyScheme, InstanceId};

/// Returns the ranges of keys of each family that a database owns: the name of the family and where they begin and end. A key of eight
/// bytes is shown as a number, one of letters and digits as text, any other in hexadecimal digits.
#[must_use]
pub fn own_keys(db: &Database) -> Vec<String> {
    let (scheme, catalog) = (db.scheme(), db.catalog());
    let families = catalog.families.iter().zip(scheme.families());
    let words = families.flat_map(|((name, _), (family, _))| {
        let ranges = own_ranges(family).into_iter();
        ranges.map(move |(lower, upper)| match (lower, upper) {
            (None, None) => format!("all of {name}"),
            (None, Some(upper)) => format!("{name} below {}", key(upper)),
            (Some(lower), None) => format!("{name} from {}", key(lower)),
            (Some(lower), Some(upper)) => format!("{name} from {} below {}", key(lower), key(upper)),
        })
    });
    words.collect()
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

fn key(bytes: &[u8]) -> String {
    match (bytes.try_into(), str::from_utf8(bytes)) {
        (Ok(number), _) => u64::from_be_bytes(number).to_string(),
        (_, Ok(text)) if text.chars().all(|letter| letter.is_ascii_alphanumeric()) => format!("'{text}'"),
        _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
