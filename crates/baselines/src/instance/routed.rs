//! [`Routed`]: the rows of a transaction, wherever they are.
//!
//! Owns: which operation goes where, and how a range is put together from its parts. Never: ends the transaction.
//!
//! A row that the transaction has read to replace it is replaced by a note ([`Peers::replace`]), which travels with the next request to its
//! instance; until then it is read from there.

use std::ops::ControlFlow;

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::routing::InstanceId;
use atrapos_partition::schema::TableId;

use super::Shared;
use super::peers::Peers;
use super::wire::{Nonsense, Operation, Reader};
use crate::rows::{Branch, Intent, RowTransaction, Visit};

/// Rows that the first request of a scan asks for, as most scans are short; each further one asks for four times as many.
const ROWS_FIRST: u32 = 4;
/// Rows that one request of a scan asks for at most.
const ROWS_MAX: u32 = 1024;

/// A running transaction: its part in this instance, and those in others.
pub(super) struct Routed<'a, 'e> {
    pub(super) shared: &'e Shared,
    pub(super) branch: &'a mut dyn Branch,
    pub(super) peers: &'a mut Peers<'e>,
    /// Set if it has accessed rows of this instance.
    pub(super) is_local: bool,
    row: Vec<u8>,
}

/// One range of a scan, within a part.
#[derive(Clone, Copy)]
struct Range<'r> {
    table: TableId,
    lower: &'r [u8],
    upper: Option<&'r [u8]>,
    backward: bool,
}

impl<'a, 'e> Routed<'a, 'e> {
    pub(super) fn new(
        shared: &'e Shared,
        branch: &'a mut dyn Branch,
        peers: &'a mut Peers<'e>,
    ) -> Routed<'a, 'e> {
        Routed { shared, branch, peers, is_local: false, row: Vec::new() }
    }

    /// Returns the other instance that has a key; `None` if it is of this one, or in no table, which the engine reports.
    #[inline]
    fn elsewhere(&mut self, table: TableId, key: &[u8]) -> Option<InstanceId> {
        let owner = self.shared.ownership.owner(table, key);
        let other = owner.filter(|owner| *owner != self.shared.options.instance);
        self.is_local |= other.is_none();
        other
    }

    /// Asks for something that is done or not.
    fn ask(&mut self, instance: InstanceId, operation: &Operation<'_>) -> Result<bool, Abort> {
        let mut returned = self.peers.call(instance, operation)?;
        match returned.bool().and_then(|done| returned.end().map(|()| done)) {
            Ok(done) => {
                if done {
                    self.peers.note_change(instance);
                }
                Ok(done)
            }
            Err(nonsense) => Err(self.peers.cut_nonsense(instance, nonsense)),
        }
    }

    /// Scans a range of another instance, request by request.
    fn scan_elsewhere(
        &mut self,
        instance: InstanceId,
        range: Range<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, Abort> {
        let Range { table, backward, .. } = range;
        let (mut lower, mut upper) = (range.lower.to_vec(), range.upper.map(<[u8]>::to_vec));
        let mut rows_max = ROWS_FIRST;
        loop {
            let operation =
                Operation::Scan { table, lower: &lower, upper: upper.as_deref(), backward, rows_max };
            let returned = self.peers.call(instance, &operation)?;
            let page = match Page::read(returned) {
                Ok(page) => page,
                Err(nonsense) => return Err(self.peers.cut_nonsense(instance, nonsense)),
            };
            for (key, row) in &page.rows {
                if visit(key, row)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            let Some((last, _)) = page.rows.last().filter(|_| page.has_more) else {
                return Ok(ControlFlow::Continue(()));
            };
            if backward {
                upper = Some(last.to_vec());
            } else {
                lower.clear();
                lower.extend_from_slice(last);
                lower.push(0);
            }
            rows_max = (rows_max * 4).min(ROWS_MAX);
        }
    }

    fn scan_part(
        &mut self,
        owner: InstanceId,
        range: Range<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, Abort> {
        if owner != self.shared.options.instance {
            return self.scan_elsewhere(owner, range, visit);
        }
        self.is_local = true;
        let stopped = self.branch.scan(range.table, (range.lower, range.upper), range.backward, visit)?;
        Ok(if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

/// An answer to a request of a scan.
struct Page<'a> {
    /// Set if the scan has stopped at the last row, as there were enough.
    has_more: bool,
    rows: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> Page<'a> {
    fn read(mut bytes: Reader<'a>) -> Result<Page<'a>, Nonsense> {
        let (has_more, count) = (bytes.bool()?, bytes.u32()?);
        let rows = (0..count).map(|_| Ok((bytes.row()?, bytes.row()?))).collect::<Result<_, Nonsense>>()?;
        bytes.end()?;
        Ok(Page { has_more, rows })
    }
}

impl RowTransaction for Routed<'_, '_> {
    #[inline]
    fn read(&mut self, table: TableId, key: &[u8], intent: Intent) -> Result<Option<&[u8]>, Abort> {
        let Some(instance) = self.elsewhere(table, key) else { return self.branch.read(table, key, intent) };
        self.row.clear();
        if let Some(row) = self.peers.replaced(instance, table, key) {
            self.row.extend_from_slice(row);
            return Ok(Some(&self.row));
        }
        let mut returned = self.peers.call(instance, &Operation::Read { table, key, intent })?;
        let mut read = || {
            let is_there = returned.bool()?;
            if is_there {
                self.row.extend_from_slice(returned.row()?);
            }
            returned.end()?;
            Ok(is_there)
        };
        match read() {
            Ok(is_there) => Ok(is_there.then_some(self.row.as_slice())),
            Err(nonsense) => Err(self.peers.cut_nonsense(instance, nonsense)),
        }
    }

    fn insert(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Result<bool, Abort> {
        let Some(instance) = self.elsewhere(table, key) else { return self.branch.insert(table, key, row) };
        crate::occ::check_lengths(key, row)?;
        self.ask(instance, &Operation::Insert { table, key, row })
    }

    fn replace(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Result<(), Abort> {
        let Some(instance) = self.elsewhere(table, key) else {
            return self.branch.replace(table, key, row);
        };
        crate::occ::check_lengths(key, row)?;
        self.peers.replace(instance, table, key, row)
    }

    fn remove(&mut self, table: TableId, key: &[u8]) -> Result<bool, Abort> {
        let Some(instance) = self.elsewhere(table, key) else { return self.branch.remove(table, key) };
        self.ask(instance, &Operation::Remove { table, key })
    }

    fn scan(
        &mut self,
        table: TableId,
        (lower, upper): (&[u8], Option<&[u8]>),
        backward: bool,
        visit: &mut Visit<'_>,
    ) -> Result<bool, Abort> {
        let shared = self.shared;
        let (mut lower, mut upper) = (lower, upper);
        while upper.is_none_or(|upper| lower < upper) {
            let part = shared.ownership.part(table, if backward { upper } else { Some(lower) }, backward);
            let Some(part) = part else {
                return Err(Abort::because(AbortReason::UnknownTable, "there is no such table"));
            };
            let first = part.lower.filter(|first| backward && *first > lower);
            let end = part.upper.filter(|end| !backward && upper.is_none_or(|upper| *end < upper));
            let range = Range { table, lower: first.unwrap_or(lower), upper: end.or(upper), backward };
            if self.scan_part(part.owner, range, visit)?.is_break() {
                return Ok(true);
            }
            match (first, end) {
                (Some(first), _) => upper = Some(first),
                (None, Some(end)) => lower = end,
                (None, None) => break,
            }
        }
        Ok(false)
    }
}
