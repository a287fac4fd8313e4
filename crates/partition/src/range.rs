//! Ranges of encoded keys, the targets of scans.

use atrapos_storage::{Key, KeyBuf, prefix_successor};

/// A range of the encoded keys of one table: from `lower` (included) to `upper` (excluded; `None`: to the end).
///
/// Keys are compared as their order-preserving encodings, so a range may be given by leading parts of a composite key:
/// `KeyRange::prefix(&(warehouse, district))` covers all keys that begin with these two parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    #[doc(hidden)]
    pub lower: KeyBuf,
    /// The first key beyond the range; `None` for a range without end.
    #[doc(hidden)]
    pub upper: Option<KeyBuf>,
}

impl KeyRange {
    /// The range of all keys.
    #[must_use]
    pub fn all() -> KeyRange {
        KeyRange { lower: KeyBuf::new(), upper: None }
    }

    /// Keys that begin with `prefix`: a whole key, or its leading parts.
    #[must_use]
    pub fn prefix(prefix: &impl Key) -> KeyRange {
        KeyRange::of_prefix_bytes(&prefix.encode())
    }

    /// All keys that begin with these bytes.
    #[doc(hidden)]
    pub fn of_prefix_bytes(prefix: &KeyBuf) -> KeyRange {
        KeyRange { lower: prefix.clone(), upper: prefix_successor(prefix) }
    }

    /// Keys from `lower` (included) to `upper` (excluded).
    #[must_use]
    pub fn between(lower: &impl Key, upper: &impl Key) -> KeyRange {
        KeyRange { lower: lower.encode(), upper: Some(upper.encode()) }
    }

    /// Keys from `lower` (included) to those that begin with `upper` (included).
    #[must_use]
    pub fn through(lower: &impl Key, upper: &impl Key) -> KeyRange {
        KeyRange { lower: lower.encode(), upper: prefix_successor(&upper.encode()) }
    }

    /// Keys from `lower` (included) on.
    #[must_use]
    pub fn from(lower: &impl Key) -> KeyRange {
        KeyRange { lower: lower.encode(), upper: None }
    }

    /// Returns true if no key can be in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.upper.as_ref().is_some_and(|upper| *upper <= self.lower)
    }
}
