//! The messages between a client and the part of its transaction in another instance.
//!
//! A request has the age of the transaction (8 bytes), the number of rows that it has replaced since its last request (4), these
//! rows, and an operation: a byte with its kind, and its operands. A reply begins with a byte: 1, and what the operation
//! returns; or 0, the reason of an abort (1), and its sentence. Keys have their length before them in 2 bytes, rows in 4; all numbers are
//! little-endian. There is no reply to a commit that was prepared, and none to an abort; a client that ends asks once whether they are done. A
//! part in doubt asks by a link of its own, with the age 0.
//!
//! Owns: these bytes. Never: trusts what a peer has written: what is no message is an error with a sentence.

use atrapos_durability::wal::GlobalId;
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::schema::TableId;

use super::hardening::Answer;
use crate::durable::distributed::{decode_id, encode_id};
use crate::rows::Intent;

/// A sentence about bytes that are no message.
pub(super) type Nonsense = &'static str;

/// The kinds of operations.
const READ: u8 = 0;
const READ_TO_WRITE: u8 = 1;
const INSERT: u8 = 2;
const REMOVE: u8 = 3;
const SCAN: u8 = 4;
const LOCK: u8 = 5;
const VALIDATE: u8 = 6;
const PREPARE: u8 = 7;
const COMMIT_ALONE: u8 = 8;
const COMMIT: u8 = 9;
const ABORT: u8 = 10;
const SETTLE: u8 = 11;
const CONFIRM: u8 = 12;
const ASK: u8 = 13;

/// Answers to a part in doubt.
const ANSWERS: [Answer; 3] = [Answer::Aborted, Answer::Committed, Answer::Undecided];

/// One operation of a part of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation<'a> {
    Read {
        table: TableId,
        key: &'a [u8],
        intent: Intent,
    },
    Insert {
        table: TableId,
        key: &'a [u8],
        row: &'a [u8],
    },
    Remove {
        table: TableId,
        key: &'a [u8],
    },
    Scan {
        table: TableId,
        lower: &'a [u8],
        upper: Option<&'a [u8]>,
        backward: bool,
        rows_max: u32,
    },
    /// Locks what it has written.
    Lock,
    /// Validates what it has read, and is prepared for this commit; a part without changes ends with this.
    Validate(GlobalId),
    /// Locks, validates, and is prepared for this commit; a part without changes ends with this.
    Prepare(GlobalId),
    /// Locks, validates and commits.
    CommitAlone,
    /// Commits what was prepared.
    Commit,
    Abort,
    /// Asks, between transactions, whether everything before is done.
    Settle,
    /// Validates what it has read, and waits until that is durable: the transaction aborts for reasons of its own.
    Confirm,
    /// Asks, between transactions, for the outcome of one whose home the other instance is.
    Ask(GlobalId),
}

impl Operation<'_> {
    /// Returns true if a transaction may begin with it.
    pub(super) fn begins(&self) -> bool {
        matches!(
            self,
            Operation::Read { .. }
                | Operation::Insert { .. }
                | Operation::Remove { .. }
                | Operation::Scan { .. }
        )
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Operation::Read { table, key, intent } => {
                let kind = if intent == Intent::Write { READ_TO_WRITE } else { READ };
                put_key(out, kind, table, key);
            }
            Operation::Insert { table, key, row } => {
                put_key(out, INSERT, table, key);
                put_row(out, row);
            }
            Operation::Remove { table, key } => put_key(out, REMOVE, table, key),
            Operation::Scan { table, lower, upper, backward, rows_max } => {
                put_key(out, SCAN, table, lower);
                out.extend([u8::from(backward), u8::from(upper.is_some())]);
                out.extend(rows_max.to_le_bytes());
                put_row(out, upper.unwrap_or(&[]));
            }
            Operation::Lock => out.push(LOCK),
            Operation::Validate(id) => put_id(out, VALIDATE, id),
            Operation::Prepare(id) => put_id(out, PREPARE, id),
            Operation::CommitAlone => out.push(COMMIT_ALONE),
            Operation::Commit => out.push(COMMIT),
            Operation::Abort => out.push(ABORT),
            Operation::Settle => out.push(SETTLE),
            Operation::Confirm => out.push(CONFIRM),
            Operation::Ask(id) => put_id(out, ASK, id),
        }
    }

    fn decode<'a>(bytes: &mut Reader<'a>) -> Result<Operation<'a>, Nonsense> {
        Ok(match bytes.u8()? {
            kind @ (READ | READ_TO_WRITE) => {
                let intent = if kind == READ { Intent::Read } else { Intent::Write };
                Operation::Read { table: bytes.table()?, key: bytes.key()?, intent }
            }
            INSERT => Operation::Insert { table: bytes.table()?, key: bytes.key()?, row: bytes.row()? },
            REMOVE => Operation::Remove { table: bytes.table()?, key: bytes.key()? },
            SCAN => {
                let (table, lower) = (bytes.table()?, bytes.key()?);
                let (backward, is_bounded) = (bytes.bool()?, bytes.bool()?);
                let rows_max = bytes.u32()?;
                let upper = Some(bytes.row()?).filter(|_| is_bounded);
                Operation::Scan { table, lower, upper, backward, rows_max }
            }
            LOCK => Operation::Lock,
            VALIDATE => Operation::Validate(bytes.id()?),
            PREPARE => Operation::Prepare(bytes.id()?),
            COMMIT_ALONE => Operation::CommitAlone,
            COMMIT => Operation::Commit,
            ABORT => Operation::Abort,
            SETTLE => Operation::Settle,
            CONFIRM => Operation::Confirm,
            ASK => Operation::Ask(bytes.id()?),
            _ => return Err("it has an operation that there is not"),
        })
    }
}

/// A row that was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replaced<'a> {
    pub(super) table: TableId,
    pub(super) key: &'a [u8],
    pub(super) row: &'a [u8],
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) age: u64,
    pub(super) replaced: Vec<Replaced<'a>>,
    pub(super) operation: Operation<'a>,
}

impl<'a> Request<'a> {
    /// Writes a request to an empty buffer.
    pub(super) fn encode<'r>(
        out: &mut Vec<u8>,
        age: u64,
        replaced: impl ExactSizeIterator<Item = Replaced<'r>>,
        operation: &Operation<'_>,
    ) {
        out.clear();
        out.extend(age.to_le_bytes());
        out.extend((replaced.len() as u32).to_le_bytes());
        for Replaced { table, key, row } in replaced {
            out.extend(table.0.to_le_bytes());
            out.extend((key.len() as u16).to_le_bytes());
            out.extend(key);
            put_row(out, row);
        }
        operation.encode(out);
    }

    /// Reads a request.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Request<'a>, Nonsense> {
        let mut bytes = Reader(bytes);
        let (age, count) = (bytes.u64()?, bytes.u32()?);
        let row = |_| Ok(Replaced { table: bytes.table()?, key: bytes.key()?, row: bytes.row()? });
        // The number may be anything: memory is taken as rows come.
        let replaced = (0..count).map(row).collect::<Result<Vec<_>, Nonsense>>()?;
        let operation = Operation::decode(&mut bytes)?;
        bytes.end()?;
        Ok(Request { age, replaced, operation })
    }
}

fn put_id(out: &mut Vec<u8>, kind: u8, id: GlobalId) {
    out.push(kind);
    out.extend(encode_id(id));
}

fn put_key(out: &mut Vec<u8>, kind: u8, table: TableId, key: &[u8]) {
    out.push(kind);
    out.extend(table.0.to_le_bytes());
    // The engines refuse keys that are longer.
    out.extend((key.len() as u16).to_le_bytes());
    out.extend(key);
}

/// Appends a row behind its length.
pub(super) fn put_row(out: &mut Vec<u8>, row: &[u8]) {
    out.extend((row.len() as u32).to_le_bytes());
    out.extend(row);
}

/// Writes the reply to a part in doubt.
pub(super) fn put_answer(out: &mut Vec<u8>, answer: Answer) {
    out.clear();
    out.extend([1, answer as u8]);
}

/// Writes the reply of an operation that has aborted.
pub(super) fn put_abort(out: &mut Vec<u8>, abort: &Abort) {
    out.clear();
    out.extend([0, abort.reason() as u8]);
    out.extend(abort.detail().as_bytes());
}

/// Reads the beginning of a reply: what the operation returns, or the abort.
pub(super) fn reply(bytes: &[u8]) -> Result<Result<Reader<'_>, Abort>, Nonsense> {
    match bytes {
        [1, rest @ ..] => Ok(Ok(Reader(rest))),
        [0, reason, detail @ ..] => {
            let reason =
                AbortReason::ALL.get(usize::from(*reason)).ok_or("it has an unknown reason of an abort")?;
            Ok(Err(Abort::explained(*reason, String::from_utf8_lossy(detail))))
        }
        _ => Err("it has a reply that is none"),
    }
}

/// The rest of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Nonsense> {
        self.0.split_off(..bytes).ok_or("it has a message that ends too early")
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Nonsense> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| "it has a message that ends too early")
    }

    fn id(&mut self) -> Result<GlobalId, Nonsense> {
        let (id, rest) = decode_id(self.0).ok_or("it has a message that ends too early")?;
        self.0 = rest;
        Ok(id)
    }

    /// Reads the answer to a part in doubt.
    pub(super) fn answer(&mut self) -> Result<Answer, Nonsense> {
        let answer = ANSWERS.get(usize::from(self.u8()?)).ok_or("it has an answer that is none")?;
        self.end().map(|()| *answer)
    }

    fn u8(&mut self) -> Result<u8, Nonsense> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn bool(&mut self) -> Result<bool, Nonsense> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err("it has a yes or no that is neither"),
        }
    }

    fn u16(&mut self) -> Result<u16, Nonsense> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Nonsense> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Nonsense> {
        self.array().map(u64::from_le_bytes)
    }

    fn table(&mut self) -> Result<TableId, Nonsense> {
        self.u16().map(TableId)
    }

    fn key(&mut self) -> Result<&'a [u8], Nonsense> {
        let bytes = usize::from(self.u16()?);
        self.take(bytes)
    }

    pub(super) fn row(&mut self) -> Result<&'a [u8], Nonsense> {
        let bytes = self.u32()? as usize;
        self.take(bytes)
    }

    pub(super) fn end(&self) -> Result<(), Nonsense> {
        if self.0.is_empty() { Ok(()) } else { Err("it has a message with more bytes than its kind") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: GlobalId = GlobalId { instance: 3, incarnation: 2, txn: u64::MAX - 1 };

    #[test]
    fn answers_come_back() {
        let mut bytes = Vec::new();
        for answer in ANSWERS {
            put_answer(&mut bytes, answer);
            let read = reply(&bytes).expect("a reply").expect("no abort").answer();
            assert_eq!(read, Ok(answer));
        }
        assert!(reply(&[1, 3]).expect("a reply").expect("no abort").answer().is_err());
    }

    #[test]
    fn requests_come_back_and_cut_off_ones_are_refused() {
        let (table, key) = (TableId(3), &b"key"[..]);
        let all = [
            Operation::Read { table, key, intent: Intent::Read },
            Operation::Read { table, key, intent: Intent::Write },
            Operation::Insert { table, key, row: b"row" },
            Operation::Remove { table, key },
            Operation::Scan { table, lower: key, upper: None, backward: false, rows_max: 7 },
            Operation::Scan { table, lower: b"", upper: Some(key), backward: true, rows_max: 1 },
            Operation::Lock,
            Operation::Validate(ID),
            Operation::Prepare(ID),
            Operation::CommitAlone,
            Operation::Commit,
            Operation::Abort,
            Operation::Settle,
            Operation::Confirm,
            Operation::Ask(ID),
        ];
        for operation in all {
            let replaced = vec![Replaced { table, key, row: b"new" }, Replaced { table, key: b"", row: b"" }];
            let mut bytes = Vec::new();
            Request::encode(&mut bytes, 9, replaced.iter().copied(), &operation);
            assert_eq!(Request::decode(&bytes), Ok(Request { age: 9, replaced, operation }));
            for len in 0..bytes.len() {
                assert!(Request::decode(&bytes[..len]).is_err(), "{operation:?}, {len} bytes");
            }
            bytes.push(0);
            assert!(Request::decode(&bytes).is_err());
        }
    }

    #[test]
    fn aborts_come_back_as_replies() {
        let mut bytes = Vec::new();
        for reason in AbortReason::ALL {
            put_abort(&mut bytes, &Abort::because(reason, "a sentence"));
            let read = reply(&bytes).expect("a reply").expect_err("an abort");
            assert_eq!((read.reason(), read.detail()), (reason, "a sentence"));
        }
        assert!(reply(&[0, 255]).is_err() && reply(&[]).is_err() && reply(&[7]).is_err());
    }
}
