//! The note of a record: its part in the two-phase commit of a transaction over several instances.
//!
//! Most records have none: their changes are those of a transaction that has committed, and that is all. A note comes before the
//! changes, and begins with a kind that no change has.
//!
//! Owns the encoding. Never: knows what the rows of a prepared transaction are; whoever prepared it does.

use super::record::{Cursor, FormatError, Record};

const NOTE_PREPARED: u8 = 16;
const NOTE_DECIDED: u8 = 17;
const NOTE_ENDED: u8 = 18;
const NOTE_FORGOTTEN: u8 = 19;

/// The identity of a transaction over several instances, in all instances and for all time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GlobalId {
    /// The instance of its home.
    pub instance: u16,
    /// The incarnation of that instance's database in which it began.
    pub incarnation: u32,
    /// Its number there.
    pub txn: u64,
}

/// See the module's introduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note<'a> {
    /// A transaction of another instance would commit here if that says so. The record has no changes, but the rows as they are
    /// to be then.
    Prepared {
        /// The transaction.
        of: GlobalId,
        /// Its rows here, in the encoding of whoever prepared it.
        rows: &'a [u8],
    },
    /// A transaction of this instance has committed, with the changes of the record and those prepared elsewhere.
    Decided {
        /// The transaction.
        of: GlobalId,
        /// The numbers of the instances that have prepared it and do not know yet, two bytes each.
        instances: &'a [u8],
    },
    /// A transaction that was prepared here has ended; if it has committed, with the changes of the record.
    Ended {
        /// The transaction.
        of: GlobalId,
        /// True if it has committed.
        commit: bool,
    },
    /// All instances know that the transaction has committed.
    Forgotten {
        /// The transaction.
        of: GlobalId,
    },
}

impl Note<'_> {
    /// Encodes the note at the beginning of a record, before any change.
    pub fn push(&self, out: &mut Vec<u8>) {
        let (kind, of) = match *self {
            Note::Prepared { of, .. } => (NOTE_PREPARED, of),
            Note::Decided { of, .. } => (NOTE_DECIDED, of),
            Note::Ended { of, .. } => (NOTE_ENDED, of),
            Note::Forgotten { of } => (NOTE_FORGOTTEN, of),
        };
        out.push(kind);
        out.extend_from_slice(&of.instance.to_le_bytes());
        out.extend_from_slice(&of.incarnation.to_le_bytes());
        out.extend_from_slice(&of.txn.to_le_bytes());
        match *self {
            Note::Prepared { rows, .. } => out.extend_from_slice(rows),
            Note::Decided { instances, .. } => {
                out.extend_from_slice(&((instances.len() / 2) as u16).to_le_bytes());
                out.extend_from_slice(instances);
            }
            Note::Ended { commit, .. } => out.push(u8::from(commit)),
            Note::Forgotten { .. } => {}
        }
    }
}

impl<'a> Record<'a> {
    /// Returns the note, if the record has one, and the changes: for [`Changes::new`](super::Changes::new).
    ///
    /// # Errors
    /// A note that is cut short, or has a value that is none.
    #[inline]
    pub fn split(&self) -> Result<(Option<Note<'a>>, &'a [u8]), FormatError> {
        match self.contents.first() {
            Some(NOTE_PREPARED..=NOTE_FORGOTTEN) => self.split_note(),
            _ => Ok((None, self.contents)),
        }
    }

    #[cold]
    fn split_note(&self) -> Result<(Option<Note<'a>>, &'a [u8]), FormatError> {
        const SHORT: &str = "the note of a record is cut short";
        let mut cursor = Cursor { bytes: self.contents, at: 0 };
        let [kind] = cursor.array(SHORT)?;
        let of = GlobalId {
            instance: u16::from_le_bytes(cursor.array(SHORT)?),
            incarnation: u32::from_le_bytes(cursor.array(SHORT)?),
            txn: u64::from_le_bytes(cursor.array(SHORT)?),
        };
        let note = match kind {
            NOTE_PREPARED => {
                return Ok((Some(Note::Prepared { of, rows: &self.contents[cursor.at..] }), &[]));
            }
            NOTE_DECIDED => {
                let count = u16::from_le_bytes(cursor.array(SHORT)?);
                Note::Decided { of, instances: cursor.take(2 * usize::from(count), SHORT)? }
            }
            NOTE_ENDED => match cursor.array(SHORT)? {
                [commit @ (0 | 1)] => Note::Ended { of, commit: commit == 1 },
                _ => {
                    return Err(FormatError {
                        at: cursor.at,
                        what: "the end of a transaction is neither 0 nor 1",
                    });
                }
            },
            _ => Note::Forgotten { of },
        };
        Ok((Some(note), &self.contents[cursor.at..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::{Changes, Epoch, Records, push_put, push_record};

    #[test]
    fn notes_come_back_with_the_changes_behind_them() {
        let of = GlobalId { instance: 3, incarnation: 70_000, txn: u64::MAX - 5 };
        let notes = [
            Note::Prepared { of, rows: b"any bytes" },
            Note::Decided { of, instances: &[1, 0, 2, 0] },
            Note::Ended { of, commit: true },
            Note::Ended { of, commit: false },
            Note::Forgotten { of },
        ];
        for note in notes {
            let (mut contents, mut payload) = (Vec::new(), Vec::new());
            note.push(&mut contents);
            let end = contents.len();
            let has_changes = !matches!(note, Note::Prepared { .. });
            if has_changes {
                push_put(&mut contents, 1, b"key", 9, b"row");
            }
            push_record(&mut payload, Epoch(4), &contents);
            let record = Records::new(&payload).next().expect("a record").expect("readable");
            let (found, changes) = record.split().expect("readable");
            assert_eq!(found, Some(note));
            assert_eq!(Changes::new(changes).count(), usize::from(has_changes));
            // Cut anywhere, a note is refused, but for one whose rows are of any length.
            for cut in 1..end {
                let short = Record { epoch: Epoch(4), contents: &contents[..cut] };
                assert!(
                    short.split().is_err() || (matches!(note, Note::Prepared { .. }) && cut >= 15),
                    "{note:?} cut to {cut}"
                );
            }
        }
    }

    #[test]
    fn a_record_without_a_note_has_changes_only() {
        let mut changes = Vec::new();
        push_put(&mut changes, 1, b"key", 9, b"row");
        for contents in [&changes[..], &[]] {
            assert_eq!(Record { epoch: Epoch(1), contents }.split(), Ok((None, contents)));
        }
    }
}
