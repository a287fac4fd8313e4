//! The records of transactions over several instances, and what they add up to when a log is read.
//!
//! Owns: the bytes behind the kinds [`RecordKind::Opened`] to [`RecordKind::Forgotten`], and the state that follows from them
//! ([`Resumed`]). Never: decides anything: who is in doubt asks.
//!
//! An identity is 14 bytes: instance (2), incarnation (4), number (8). *Opened* has the deployment (16), the instance (2) and the
//! checksum of the division of the keys (4). *Prepared* and *Decided* have an identity and changes. *Ended* has an identity and 1 for a commit, 0 for an abort.
//! *Forgotten* has identities. All numbers are little-endian.
//!
//! Invariants: a prepared transaction is in doubt until it has *ended*, and its changes count from there; a decision is kept until it is
//! *forgotten*; the incarnation of an instance is the number of times that it was opened, durably.

use std::collections::{BTreeMap, BTreeSet};

use atrapos_durability::wal::GlobalId;
use atrapos_partition::routing::InstanceId;

use crate::planted::{Bug, planted};
use crate::redo::{RecordKind, RedoRecord};

/// The bytes of an identity.
const ID_BYTES: usize = 14;

/// The place of a database in its deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaceOf {
    pub(crate) deployment: u128,
    pub(crate) instance: InstanceId,
    /// The checksum of the division of the keys.
    pub(crate) division: u32,
}

impl PlaceOf {
    /// Writes that an instance was opened at this place.
    pub(crate) fn write_opened(self, redo: &mut RedoRecord) {
        redo.begin(RecordKind::Opened);
        redo.push(&self.deployment.to_le_bytes());
        redo.push(&self.instance.0.to_le_bytes());
        redo.push(&self.division.to_le_bytes());
    }

    fn read(body: &[u8]) -> Option<PlaceOf> {
        let (deployment, rest) = body.split_first_chunk()?;
        let (instance, rest) = rest.split_first_chunk()?;
        let deployment = u128::from_le_bytes(*deployment);
        let division = u32::from_le_bytes(rest.try_into().ok()?);
        Some(PlaceOf { deployment, instance: InstanceId(u16::from_le_bytes(*instance)), division })
    }
}

/// The bytes of an identity.
pub(crate) fn encode_id(id: GlobalId) -> [u8; ID_BYTES] {
    let mut bytes = [0; ID_BYTES];
    bytes[..2].copy_from_slice(&id.instance.to_le_bytes());
    bytes[2..6].copy_from_slice(&id.incarnation.to_le_bytes());
    bytes[6..].copy_from_slice(&id.txn.to_le_bytes());
    bytes
}

/// Reads an identity, and returns the rest.
pub(crate) fn decode_id(bytes: &[u8]) -> Option<(GlobalId, &[u8])> {
    let (instance, rest) = bytes.split_first_chunk()?;
    let (incarnation, rest) = rest.split_first_chunk()?;
    let (txn, rest) = rest.split_first_chunk()?;
    let id = GlobalId {
        instance: u16::from_le_bytes(*instance),
        incarnation: u32::from_le_bytes(*incarnation),
        txn: u64::from_le_bytes(*txn),
    };
    Some((id, rest))
}

/// Begins a record about a transaction; its changes follow.
pub(crate) fn begin_record(redo: &mut RedoRecord, kind: RecordKind, id: GlobalId) {
    redo.begin(kind);
    redo.push(&encode_id(id));
}

/// State of an instance as its log has it.
#[derive(Debug, Default)]
pub(crate) struct Resumed {
    /// The place at which it was opened first; none if it is no instance.
    pub(crate) place: Option<PlaceOf>,
    /// The times that it was opened.
    pub(crate) openings: u32,
    /// Set if a transaction has changed something.
    pub(crate) has_commits: bool,
    /// Prepared transactions that have not ended, with their changes.
    pub(crate) in_doubt: BTreeMap<GlobalId, Vec<u8>>,
    /// Decisions that are not forgotten.
    pub(crate) decided: BTreeSet<GlobalId>,
}

impl Resumed {
    /// Takes the next record of the log. Returns the changes that count from here on.
    pub(super) fn take(&mut self, record: &[u8]) -> Result<Vec<u8>, String> {
        let cut_off = || "a record of a transaction over several instances is cut off".to_owned();
        match RecordKind::split(record) {
            Ok((RecordKind::Commit, changes)) => {
                self.has_commits = true;
                Ok(changes.to_vec())
            }
            Ok((RecordKind::Opened, body)) => {
                self.place.get_or_insert(PlaceOf::read(body).ok_or_else(cut_off)?);
                self.openings += 1;
                Ok(Vec::new())
            }
            Ok((RecordKind::Prepared, body)) => {
                let (id, changes) = decode_id(body).ok_or_else(cut_off)?;
                if !planted(Bug::InDoubtForgotten) {
                    self.in_doubt.insert(id, changes.to_vec());
                }
                Ok(Vec::new())
            }
            Ok((RecordKind::Decided, body)) => self.take_decision(body).ok_or_else(cut_off),
            Ok((RecordKind::Ended, body)) => {
                let (id, committed) = decode_id(body).ok_or_else(cut_off)?;
                let changes = self.in_doubt.remove(&id).unwrap_or_default();
                Ok(if committed == [1] { changes } else { Vec::new() })
            }
            Ok((RecordKind::Forgotten, mut body)) => {
                while !body.is_empty() {
                    let (id, rest) = decode_id(body).ok_or_else(cut_off)?;
                    self.decided.remove(&id);
                    body = rest;
                }
                Ok(Vec::new())
            }
            Ok((kind, _)) => Err(format!("a record is of kind {kind:?}, which belongs in a population")),
            Err(Some(kind)) => Err(format!("a record is of kind {kind}, which this program does not know")),
            Err(None) => Err("a record has no kind".to_owned()),
        }
    }

    fn take_decision(&mut self, body: &[u8]) -> Option<Vec<u8>> {
        let (id, changes) = decode_id(body)?;
        self.has_commits = true;
        self.decided.insert(id);
        Some(changes.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use atrapos_partition::schema::TableId;

    use super::*;

    const ID: GlobalId = GlobalId { instance: 3, incarnation: 2, txn: 77 };

    fn record(write: impl FnOnce(&mut RedoRecord)) -> Vec<u8> {
        let mut redo = RedoRecord::default();
        write(&mut redo);
        redo.bytes().to_vec()
    }

    fn prepared() -> Vec<u8> {
        record(|redo| {
            begin_record(redo, RecordKind::Prepared, ID);
            redo.put(TableId(0), b"key", b"row");
        })
    }

    fn ended(committed: bool) -> Vec<u8> {
        record(|redo| {
            begin_record(redo, RecordKind::Ended, ID);
            redo.push(&[u8::from(committed)]);
        })
    }

    #[test]
    fn prepared_changes_count_when_they_have_ended_by_a_commit() {
        for committed in [true, false] {
            let mut resumed = Resumed::default();
            assert_eq!(resumed.take(&prepared()), Ok(vec![]));
            assert!(resumed.in_doubt.contains_key(&ID));
            let changes = resumed.take(&ended(committed)).expect("it is a record");
            assert_eq!(!changes.is_empty(), committed);
            assert!(resumed.in_doubt.is_empty());
        }
    }

    #[test]
    fn decisions_are_kept_until_they_are_forgotten_and_openings_are_counted() {
        let mut resumed = Resumed::default();
        let place = PlaceOf { deployment: 9, instance: InstanceId(3), division: 5 };
        for _ in 0..2 {
            assert_eq!(resumed.take(&record(|redo| place.write_opened(redo))), Ok(vec![]));
        }
        assert_eq!((resumed.place, resumed.openings), (Some(place), 2));
        let decided = record(|redo| {
            begin_record(redo, RecordKind::Decided, ID);
            redo.remove(TableId(0), b"key");
        });
        let changes = resumed.take(&decided).expect("it is a record");
        assert!(!changes.is_empty() && resumed.decided.contains(&ID));
        let forgotten = record(|redo| begin_record(redo, RecordKind::Forgotten, ID));
        assert_eq!(resumed.take(&forgotten), Ok(vec![]));
        assert!(resumed.decided.is_empty());
        for bytes in [&decided[..9], &forgotten[..9], &ended(true)[..3], &[RecordKind::Opened as u8, 1]] {
            assert!(resumed.take(bytes).is_err_and(|what| what.contains("cut off")), "{bytes:?}");
        }
    }

    #[test]
    fn records_of_other_kinds_are_refused_with_a_sentence() {
        let mut resumed = Resumed::default();
        let rows = resumed.take(&[RecordKind::Rows as u8]).expect_err("it is of another kind");
        assert!(rows.contains("Rows"), "{rows}");
        assert!(resumed.take(&[99, 1]).expect_err("there is no such kind").contains("kind 99"));
        assert!(resumed.take(&[]).is_err());
    }
}
