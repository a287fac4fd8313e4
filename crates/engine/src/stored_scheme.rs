//! The scheme that a database has adapted itself to: the file `SCHEME` in its directory.
//!
//! It is written each time the scheme has changed, by the thread that had it changed, and used at the next opening as far as it
//! fits ([`atrapos_partition::routing::stored`]); so recovery gives the rows to the workers that will own them. A database with a [fixed scheme](crate::Builder::fixed_scheme)
//! neither writes nor uses it.
//!
//! Owns: the format `atrapos-scheme 1`, lines of words that begin with `workers`, `family`, `tables` and `partition`, and the file. Never: decides what fits.
//!
//! Invariants: a file that is damaged is not used, and a sentence says so; nothing else depends on it, and a failure to write it is none of the database.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use atrapos_adapt::TraceKey;
use atrapos_durability::file::FileSystem;
use atrapos_durability::memo::{Memo, MemoError, SCHEME};
use atrapos_partition::routing::InstanceId;
use atrapos_partition::routing::stored::{StoredFamily, StoredPartition, StoredScheme};
use atrapos_partition::schema::TableId;
use atrapos_runtime::WorkerId;
use atrapos_storage::KeyBuf;

/// The format that is written and read.
const FORMAT: &str = "atrapos-scheme 1";

/// Reads the scheme that the database in the directory `dir` has adapted itself to; `None` if it has the one that it was declared with.
///
/// # Errors
/// A sentence that names the file, if it is damaged or cannot be read.
pub fn read_scheme(files: &Arc<dyn FileSystem>, dir: &Path) -> Result<Option<StoredScheme>, String> {
    SchemeMemo::new(files, dir).read()
}

/// The memo of a database.
#[derive(Debug)]
pub(crate) struct SchemeMemo(Memo);

impl SchemeMemo {
    /// Returns the memo in a directory.
    pub(crate) fn new(files: &Arc<dyn FileSystem>, dir: &Path) -> SchemeMemo {
        SchemeMemo(Memo::new(files, dir, SCHEME))
    }

    /// Reads it; see [`read_scheme`].
    pub(crate) fn read(&self) -> Result<Option<StoredScheme>, String> {
        let refused = |error: MemoError| {
            let file = self.0.path().display();
            format!(
                "{file} is not used, as {error}; the database begins with the scheme that its tables were declared with"
            )
        };
        let text = self.0.read().map_err(refused)?;
        text.map(|text| decode(&text).ok_or_else(|| refused(MemoError::Damaged))).transpose()
    }

    /// Writes a scheme. One that cannot be written is found again by adapting.
    pub(crate) fn write(&self, scheme: &StoredScheme) {
        let _ = self.0.write(&encode(scheme));
    }
}

/// Returns the lines of a scheme.
fn encode(scheme: &StoredScheme) -> String {
    let mut text = format!("{FORMAT}\nworkers {}\n", scheme.workers);
    // Writing to a string cannot fail.
    for family in &scheme.families {
        let _ = writeln!(text, "family {}", escaped(&family.name));
        text.push_str("tables");
        for table in &family.tables {
            let _ = write!(text, " {}", table.0);
        }
        text.push('\n');
        for part in &family.partitions {
            let _ = match InstanceId::of_owner(part.owner) {
                None => write!(text, "partition worker {} ", part.owner.0),
                Some(other) => write!(text, "partition instance {} ", other.0),
            };
            let _ = writeln!(text, "{}", String::from(TraceKey::new(part.first.to_vec())));
        }
    }
    text
}

/// Reads the lines of a scheme; `None` if they are none.
fn decode(text: &str) -> Option<StoredScheme> {
    let mut lines = text.strip_suffix('\n')?.split('\n').peekable();
    if lines.next()? != FORMAT {
        return None;
    }
    let workers = lines.next()?.strip_prefix("workers ")?.parse().ok()?;
    let mut families = Vec::new();
    while let Some(line) = lines.next() {
        let name = unescaped(line.strip_prefix("family ")?)?;
        let tables = lines.next()?.strip_prefix("tables")?.split(' ').skip(1);
        let tables = tables.map(|table| table.parse().ok().map(TableId)).collect::<Option<_>>()?;
        let mut partitions = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with("partition ")) {
            partitions.push(partition(line)?);
        }
        families.push(StoredFamily { name, tables, partitions });
    }
    let scheme = StoredScheme { workers, families };
    scheme.is_sound().then_some(scheme)
}

/// Reads the line of a partition.
fn partition(line: &str) -> Option<StoredPartition> {
    let mut words = line.split(' ').skip(1);
    let (kind, number, digits) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    let owner = match kind {
        "worker" => WorkerId(number),
        "instance" if usize::from(number) < InstanceId::MAX => InstanceId(number).as_owner(),
        _ => return None,
    };
    let first = TraceKey::try_from(digits.to_owned()).ok()?;
    let first = KeyBuf::from(first.bytes());
    words.next().is_none().then(|| StoredPartition { first, owner })
}

/// Returns a name without line breaks.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('\n', "\\n")
}

/// Returns the name that was [`escaped`]; `None` if none was.
fn unescaped(text: &str) -> Option<String> {
    let mut characters = text.chars();
    let mut name = String::new();
    while let Some(character) = characters.next() {
        name.push(match character {
            '\\' => match characters.next()? {
                'n' => '\n',
                '\\' => '\\',
                _ => return None,
            },
            other => other,
        });
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheme() -> StoredScheme {
        let part = |owner: WorkerId, first: &[u8]| StoredPartition { first: KeyBuf::from(first), owner };
        let partitions = vec![
            part(WorkerId(1), b""),
            part(WorkerId(0), b"\0\x10"),
            part(InstanceId(7).as_owner(), b"a b\n"),
        ];
        let tables = vec![TableId(0), TableId(12)];
        let odd = StoredFamily { name: "a \\n\nb\r".to_owned(), tables, partitions };
        let plain = StoredFamily {
            name: "b".to_owned(),
            tables: Vec::new(),
            partitions: vec![part(WorkerId(0), b"")],
        };
        StoredScheme { workers: 2, families: vec![odd, plain] }
    }

    #[test]
    fn a_scheme_is_read_as_it_was_written() {
        let text = encode(&scheme());
        assert_eq!(decode(&text), Some(scheme()), "{text}");
        let none = StoredScheme { workers: 1, families: Vec::new() };
        assert_eq!(decode(&encode(&none)), Some(none));
    }

    #[test]
    fn lines_that_are_no_scheme_are_refused() {
        let text = encode(&scheme());
        let lines: Vec<&str> = text.lines().collect();
        // Without any of the lines but the last partition of the first family, whose others are a scheme, too.
        for without in (0..lines.len()).filter(|line| ![5, 6].contains(line)) {
            let rest: String = (0..)
                .zip(&lines)
                .filter(|(at, _)| *at != without)
                .map(|(_, line)| format!("{line}\n"))
                .collect();
            assert_eq!(decode(&rest), None, "without line {without}");
        }
        let changed = [
            ("worker 1", "worker 2"),
            ("instance 7", "instance 40000"),
            ("0010", "001"),
            ("0010", "00 10"),
            ("0010", "0g10"),
            ("0010", "ff"),
            ("0010", "\u{e9}0"),
            ("tables 0 12", "tables 0  12"),
            ("\\n", "\\m"),
            ("workers 2", "workers 1"),
        ];
        for (from, to) in changed {
            assert!(text.contains(from), "{from} is in {text}");
            assert_eq!(decode(&text.replace(from, to)), None, "{from} for {to}");
        }
    }
}
