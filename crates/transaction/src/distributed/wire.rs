//! The messages between instances, as bytes.
//!
//! Integers are little-endian and of fixed size; a string of bytes has its length before it. Numbers of transactions are those
//! of their homes.
//!
//! | message | sender | meaning |
//! |---|---|---|
//! | fetch | coordinator | lock these keys and ranges, and copy the rows; if they are the last ones that the transaction reads, no lock needs to stay |
//! | fetched | subordinate | the rows, or the abort; perhaps that no lock has stayed, and there is no subordinate |
//! | prepare | coordinator | make these changes, and vote; or commit if they are all that changes (one phase); without changes: end, and vote when what was read is durable |
//! | vote | subordinate | it will commit if the coordinator says so, has committed (one phase), or what it has read is durable (no changes); or the abort |
//! | commit | coordinator | make these changes, which nothing can prevent, commit, and release; without an answer |
//! | end | coordinator | commit or abort, and release; the end of a subordinate without changes too |
//! | outcome | home | a transaction that was prepared has committed, durably; or has aborted, as the answer to a question |
//! | ended | instance that was told an outcome | the end is durable there |
//! | ask | instance where a transaction is in doubt | tell its outcome |
//! | probe | home of a transaction that waits | follow what its subordinate waits for |
//! | probe home | instance where a subordinate is in the way | follow what the transaction waits for |
//! | victim | instance that found a cycle closed | this transaction breaks it |
//! | refuse waits | home of the victim | its subordinate stops waiting |
//!
//! Owns: the encoding. Never: does what a message says.

use atrapos_durability::wal::GlobalId;
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::schema::TableId;
use atrapos_storage::lock::{LockMode, TxnId};

use crate::age::Age;

/// A message between instances. See the module's introduction.
#[derive(Debug)]
pub(super) enum Message<'a> {
    Fetch { txn: TxnId, incarnation: u32, age: Age, is_last: bool, requests: Requests<'a> },
    Fetched { txn: TxnId, is_durable: bool, is_released: bool, result: Result<Bytes<'a>, Abort> },
    Prepare { txn: TxnId, incarnation: u32, in_one_phase: bool, writes: Writes<'a> },
    Vote { txn: TxnId, result: Result<(), Abort> },
    Commit { txn: TxnId, writes: Writes<'a> },
    End { txn: TxnId, commit: bool },
    Outcome { of: GlobalId, commit: bool },
    Ended { of: GlobalId },
    Ask { of: GlobalId },
    Probe { probe: GlobalProbe, waiter: GlobalId },
    ProbeHome { probe: GlobalProbe, met: GlobalId },
    Victim { round: u64, victim: GlobalId },
    RefuseWaits { round: u64, victim: GlobalId },
}

/// A probe between instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GlobalProbe {
    pub(crate) round: u64,
    pub(crate) initiator: GlobalId,
    pub(crate) youngest: (Age, GlobalId),
}

/// Bytes of which a part has been read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

/// The error of a message that ends too early, or has a value that is none.
pub(super) type Nonsense = &'static str;

impl<'a> Bytes<'a> {
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Nonsense> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or("it ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Nonsense> {
        self.take(N).map(|bytes| bytes.try_into().unwrap_or([0; N]))
    }

    pub(super) fn u8(&mut self) -> Result<u8, Nonsense> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Nonsense> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Nonsense> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Nonsense> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn bool(&mut self) -> Result<bool, Nonsense> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err("a flag is neither 0 nor 1"),
        }
    }

    pub(super) fn key(&mut self) -> Result<&'a [u8], Nonsense> {
        let len = self.u16()?;
        self.take(len.into())
    }

    pub(super) fn row(&mut self) -> Result<&'a [u8], Nonsense> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    fn txn(&mut self) -> Result<TxnId, Nonsense> {
        self.u64().map(TxnId)
    }

    fn global(&mut self) -> Result<GlobalId, Nonsense> {
        let txn = self.txn()?;
        self.id(txn)
    }

    /// Reads the rest of the identity of a transaction with this number.
    fn id(&mut self, txn: TxnId) -> Result<GlobalId, Nonsense> {
        Ok(GlobalId { instance: self.u16()?, incarnation: self.u32()?, txn: txn.0 })
    }

    fn probe(&mut self) -> Result<GlobalProbe, Nonsense> {
        let (round, initiator) = (self.u64()?, self.global()?);
        Ok(GlobalProbe { round, initiator, youngest: (Age(self.u64()?), self.global()?) })
    }

    fn abort(&mut self) -> Result<Abort, Nonsense> {
        let reason = usize::from(self.u8()?);
        let reason = *AbortReason::ALL.get(reason).ok_or("it has an unknown reason of an abort")?;
        let detail = String::from_utf8_lossy(self.row()?);
        Ok(Abort::explained(reason, detail))
    }

    fn end(self) -> Result<(), Nonsense> {
        if self.0.is_empty() { Ok(()) } else { Err("it has more bytes than its kind") }
    }
}

/// Appends values to a message.
pub(super) trait Put {
    fn put(&mut self, bytes: &[u8]);

    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    /// Appends the head of a message: its kind, and the number by which its receiver finds what it is about.
    fn put_head(&mut self, kind: u8, number: u64) {
        self.put_u8(kind);
        self.put_u64(number);
    }

    /// Appends a key, whose length fits in 16 bits as the storage bounds it.
    fn put_key(&mut self, key: &[u8]) {
        self.put_u16(key.len() as u16);
        self.put(key);
    }

    fn put_row(&mut self, row: &[u8]) {
        self.put_u32(row.len() as u32);
        self.put(row);
    }

    fn put_global(&mut self, of: GlobalId) {
        self.put_u64(of.txn);
        self.put_id(of);
    }

    /// Appends an identity but for its number.
    fn put_id(&mut self, of: GlobalId) {
        self.put_u16(of.instance);
        self.put_u32(of.incarnation);
    }

    fn put_probe(&mut self, probe: &GlobalProbe) {
        self.put_u64(probe.round);
        self.put_global(probe.initiator);
        self.put_u64(probe.youngest.0.0);
        self.put_global(probe.youngest.1);
    }

    fn put_abort(&mut self, abort: &Abort) {
        self.put_u8(abort.reason() as u8);
        self.put_row(abort.detail().as_bytes());
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// A request for the row of a key, or for rows of a range.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchRequest<'a> {
    pub(super) table: TableId,
    pub(super) mode: LockMode,
    pub(super) target: FetchTarget<'a>,
}

/// The data that a request is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum FetchTarget<'a> {
    /// A row; its bytes are not copied if the transaction has them.
    Key { key: &'a [u8], copies: bool },
    /// The first rows of a range, or the last ones.
    Range { lower: &'a [u8], upper: Option<&'a [u8]>, from_end: bool, rows_max: u32 },
}

const EXCLUSIVE: u8 = 1;
const RANGE: u8 = 2;
const FROM_END: u8 = 4;
const BOUNDED: u8 = 8;
const COPIES: u8 = 16;

impl<'a> FetchRequest<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let exclusive = if self.mode == LockMode::Exclusive { EXCLUSIVE } else { 0 };
        match self.target {
            FetchTarget::Key { key, copies } => {
                out.put_u8(exclusive | if copies { COPIES } else { 0 });
                out.put_u16(self.table.0);
                out.put_key(key);
            }
            FetchTarget::Range { lower, upper, from_end, rows_max } => {
                let bounded = if upper.is_some() { BOUNDED } else { 0 };
                out.put_u8(exclusive | RANGE | bounded | if from_end { FROM_END } else { 0 });
                out.put_u16(self.table.0);
                out.put_key(lower);
                if let Some(upper) = upper {
                    out.put_key(upper);
                }
                out.put_u32(rows_max);
            }
        }
    }

    fn decode(bytes: &mut Bytes<'a>) -> Result<FetchRequest<'a>, Nonsense> {
        let flags = bytes.u8()?;
        let table = TableId(bytes.u16()?);
        let mode = if flags & EXCLUSIVE != 0 { LockMode::Exclusive } else { LockMode::Shared };
        let key = bytes.key()?;
        let target = if flags & RANGE == 0 {
            FetchTarget::Key { key, copies: flags & COPIES != 0 }
        } else {
            let upper = if flags & BOUNDED != 0 { Some(bytes.key()?) } else { None };
            let from_end = flags & FROM_END != 0;
            FetchTarget::Range { lower: key, upper, from_end, rows_max: bytes.u32()? }
        };
        Ok(FetchRequest { table, mode, target })
    }
}

/// Requests of a message, in their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requests<'a>(pub(super) &'a [u8]);

impl<'a> Requests<'a> {
    pub(super) fn iter(self) -> impl Iterator<Item = Result<FetchRequest<'a>, Nonsense>> {
        let mut rest = Bytes(self.0);
        std::iter::from_fn(move || (!rest.0.is_empty()).then(|| FetchRequest::decode(&mut rest)))
    }
}

/// The final image of a changed row; `None` if it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Write<'a> {
    pub(super) table: TableId,
    pub(super) key: &'a [u8],
    pub(super) row: Option<&'a [u8]>,
}

impl<'a> Write<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(self.table.0);
        out.put_u8(u8::from(self.row.is_some()));
        out.put_key(self.key);
        if let Some(row) = self.row {
            out.put_row(row);
        }
    }

    fn decode(bytes: &mut Bytes<'a>) -> Result<Write<'a>, Nonsense> {
        let (table, is_there, key) = (TableId(bytes.u16()?), bytes.bool()?, bytes.key()?);
        Ok(Write { table, key, row: if is_there { Some(bytes.row()?) } else { None } })
    }
}

/// Changes of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writes<'a>(pub(super) &'a [u8]);

impl<'a> Writes<'a> {
    pub(super) fn iter(self) -> impl Iterator<Item = Result<Write<'a>, Nonsense>> {
        let mut rest = Bytes(self.0);
        std::iter::from_fn(move || (!rest.0.is_empty()).then(|| Write::decode(&mut rest)))
    }
}

const FETCH: u8 = 1;
const FETCHED: u8 = 2;
const PREPARE: u8 = 3;
const VOTE: u8 = 4;
const END: u8 = 5;
const PROBE: u8 = 6;
const PROBE_HOME: u8 = 7;
const VICTIM: u8 = 8;
const REFUSE_WAITS: u8 = 9;
const OUTCOME: u8 = 10;
const ENDED: u8 = 11;
const ASK: u8 = 12;
const COMMIT: u8 = 13;

impl<'a> Message<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut begin = |kind: u8, number: u64| out.put_head(kind, number);
        match self {
            Message::Fetch { txn, incarnation, age, is_last, requests } => {
                begin(FETCH, txn.0);
                out.put_u32(*incarnation);
                out.put_u64(age.0);
                out.put_u8(u8::from(*is_last));
                out.put(requests.0);
            }
            Message::Fetched { txn, is_durable, is_released, result } => {
                begin(FETCHED, txn.0);
                out.put(&[u8::from(*is_durable), u8::from(*is_released)]);
                put_result(out, result.as_ref().map(|rows| rows.0));
            }
            Message::Prepare { txn, incarnation, in_one_phase, writes } => {
                begin(PREPARE, txn.0);
                out.put_u32(*incarnation);
                out.put_u8(u8::from(*in_one_phase));
                out.put(writes.0);
            }
            Message::Vote { txn, result } => {
                begin(VOTE, txn.0);
                put_result(out, result.as_ref().map(|()| &[][..]));
            }
            Message::Commit { txn, writes } => {
                begin(COMMIT, txn.0);
                out.put(writes.0);
            }
            Message::End { txn, commit } => {
                begin(END, txn.0);
                out.put_u8(u8::from(*commit));
            }
            Message::Outcome { of, commit } => {
                begin(OUTCOME, of.txn);
                out.put_id(*of);
                out.put_u8(u8::from(*commit));
            }
            Message::Ended { of } => {
                begin(ENDED, of.txn);
                out.put_id(*of);
            }
            Message::Ask { of } => {
                begin(ASK, of.txn);
                out.put_id(*of);
            }
            Message::Probe { probe, waiter } => {
                begin(PROBE, waiter.txn);
                out.put_id(*waiter);
                out.put_probe(probe);
            }
            Message::ProbeHome { probe, met } => {
                begin(PROBE_HOME, met.txn);
                out.put_id(*met);
                out.put_probe(probe);
            }
            Message::Victim { round, victim } => {
                begin(VICTIM, victim.txn);
                out.put_id(*victim);
                out.put_u64(*round);
            }
            Message::RefuseWaits { round, victim } => {
                begin(REFUSE_WAITS, victim.txn);
                out.put_id(*victim);
                out.put_u64(*round);
            }
        }
    }

    pub(super) fn decode(message: &'a [u8]) -> Result<Message<'a>, Nonsense> {
        let mut bytes = Bytes(message);
        let (kind, txn) = (bytes.u8()?, bytes.txn()?);
        let decoded = match kind {
            FETCH => {
                let (incarnation, age, is_last) = (bytes.u32()?, Age(bytes.u64()?), bytes.bool()?);
                return Ok(Message::Fetch { txn, incarnation, age, is_last, requests: Requests(bytes.0) });
            }
            FETCHED => {
                let (is_durable, is_released) = (bytes.bool()?, bytes.bool()?);
                let result = if bytes.bool()? { Ok(Bytes(bytes.0)) } else { Err(bytes.abort()?) };
                return Ok(Message::Fetched { txn, is_durable, is_released, result });
            }
            PREPARE => {
                let (incarnation, in_one_phase) = (bytes.u32()?, bytes.bool()?);
                return Ok(Message::Prepare { txn, incarnation, in_one_phase, writes: Writes(bytes.0) });
            }
            COMMIT => return Ok(Message::Commit { txn, writes: Writes(bytes.0) }),
            VOTE => Message::Vote { txn, result: if bytes.bool()? { Ok(()) } else { Err(bytes.abort()?) } },
            END => Message::End { txn, commit: bytes.bool()? },
            OUTCOME => Message::Outcome { of: bytes.id(txn)?, commit: bytes.bool()? },
            ENDED => Message::Ended { of: bytes.id(txn)? },
            ASK => Message::Ask { of: bytes.id(txn)? },
            PROBE => Message::Probe { waiter: bytes.id(txn)?, probe: bytes.probe()? },
            PROBE_HOME => Message::ProbeHome { met: bytes.id(txn)?, probe: bytes.probe()? },
            VICTIM => Message::Victim { victim: bytes.id(txn)?, round: bytes.u64()? },
            REFUSE_WAITS => Message::RefuseWaits { victim: bytes.id(txn)?, round: bytes.u64()? },
            _ => return Err("it is of an unknown kind"),
        };
        bytes.end()?;
        Ok(decoded)
    }
}

/// Hands what each request or change of a message is for to `look`, in their order: the table and the key, or nothing if it is a range. What cannot
/// be read is left out: whoever takes the message in says so.
pub(super) fn each_named<'a>(message: &'a [u8], mut look: impl FnMut(Option<(TableId, &'a [u8])>)) {
    if !matches!(message.first(), Some(&(FETCH | PREPARE | COMMIT))) {
        return;
    }
    match Message::decode(message) {
        Ok(Message::Fetch { requests, .. }) => {
            for FetchRequest { table, target, .. } in requests.iter().map_while(Result::ok) {
                look(match target {
                    FetchTarget::Key { key, .. } => Some((table, key)),
                    FetchTarget::Range { .. } => None,
                });
            }
        }
        Ok(Message::Prepare { writes, .. } | Message::Commit { writes, .. }) => {
            for Write { table, key, .. } in writes.iter().map_while(Result::ok) {
                look(Some((table, key)));
            }
        }
        _ => {}
    }
}

fn put_result(out: &mut Vec<u8>, result: Result<&[u8], &Abort>) {
    match result {
        Ok(bytes) => {
            out.put_u8(1);
            out.put(bytes);
        }
        Err(abort) => {
            out.put_u8(0);
            out.put_abort(abort);
        }
    }
}
