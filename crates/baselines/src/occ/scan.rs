//! Scans of a running transaction, its own writes included.
//!
//! Owns: the way through the leaves of a range. Never: visits a row twice, or one that the transaction has removed.
//!
//! The transaction's own insertions are in the tree already, as records without a row: a scan finds them in their place and
//! takes the row from the write set. So it does for replaced and removed rows.

use std::ops::ControlFlow;
use std::ptr::NonNull;

use atrapos_partition::abort::Abort;
use atrapos_partition::schema::TableId;

use super::client::{Buffers, OccClient};
use super::transaction::OccTransaction;
use crate::planted::{Bug, pause, planted};
use crate::rows::Visit;
use crate::tree::record::{ABSENT, Header, OBSOLETE, Record};

/// Records that are fetched into the cache before they are read.
const AHEAD: usize = 4;

/// Outcomes for the records of one leaf.
enum Visited<'g> {
    /// All that are in the range were visited.
    All,
    /// The visitor, or the end of the range, stopped the scan.
    Stopped(ControlFlow<()>),
    /// The record of this key has left the tree: the scan searches for the key again.
    Obsolete(&'g [u8]),
}

impl OccTransaction<'_> {
    pub(super) fn scan_forward(
        &mut self,
        table: TableId,
        (lower, upper): (&[u8], Option<&[u8]>),
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, Abort> {
        let OccClient { shared, buffers, .. } = &mut *self.client;
        let tree = shared.tree(table)?;
        lower.clone_into(&mut buffers.cursor);
        loop {
            let page = tree.page_from(&buffers.cursor, &mut buffers.page, &self.guard);
            Self::note_node(&mut buffers.nodes, page.leaf.pointer(), page.version);
            pause();
            let is_within = |key: &[u8]| upper.is_none_or(|upper| key < upper);
            match visit_page(buffers, is_within, visit)? {
                Visited::Stopped(flow) => return Ok(flow),
                Visited::Obsolete(key) => key.clone_into(&mut buffers.cursor),
                Visited::All => match page.edge {
                    Some(edge) if is_within(edge) => edge.clone_into(&mut buffers.cursor),
                    _ => return Ok(ControlFlow::Continue(())),
                },
            }
        }
    }

    pub(super) fn scan_backward(
        &mut self,
        table: TableId,
        (lower, upper): (&[u8], Option<&[u8]>),
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, Abort> {
        let OccClient { shared, buffers, .. } = &mut *self.client;
        let tree = shared.tree(table)?;
        let mut is_bounded = upper.is_some();
        upper.unwrap_or(&[]).clone_into(&mut buffers.cursor);
        loop {
            let to = is_bounded.then_some(&buffers.cursor[..]);
            let page = tree.page_before(to, &mut buffers.page, &self.guard);
            Self::note_node(&mut buffers.nodes, page.leaf.pointer(), page.version);
            pause();
            match visit_page(buffers, |key| key >= lower, visit)? {
                Visited::Stopped(flow) => return Ok(flow),
                Visited::Obsolete(key) => {
                    key.clone_into(&mut buffers.cursor);
                    // The smallest key above it: the scan goes on with the key itself.
                    buffers.cursor.push(0);
                }
                Visited::All => match page.edge {
                    Some(edge) if edge > lower => edge.clone_into(&mut buffers.cursor),
                    _ => return Ok(ControlFlow::Continue(())),
                },
            }
            is_bounded = true;
        }
    }
}

/// Visits the rows of the records that were found in a leaf.
fn visit_page<'g>(
    buffers: &mut Buffers,
    is_within: impl Fn(&[u8]) -> bool,
    visit: &mut Visit<'_>,
) -> Result<Visited<'g>, Abort> {
    let Buffers { reads, writes, row, page, .. } = buffers;
    for (at, pointer) in page.iter().enumerate() {
        prefetch(page.get(at + AHEAD).copied());
        let Some(pointer) = NonNull::new(*pointer) else { continue };
        // SAFETY: it was in the tree after the transaction was pinned, which it is until it ends.
        let record: Record<'g> = unsafe { Record::from_pointer(pointer) };
        let key = record.key();
        if !is_within(key) {
            return Ok(Visited::Stopped(ControlFlow::Continue(())));
        }
        let found = if let Some(at) = writes.find(pointer) {
            writes.row(at)
        } else {
            let tid = record.read(row);
            if tid & OBSOLETE != 0 && !(tid & ABSENT == 0 && planted(Bug::ObsoleteIgnored)) {
                return Ok(Visited::Obsolete(key));
            }
            OccTransaction::note_read(reads, pointer, tid);
            (tid & ABSENT == 0).then(|| row.bytes())
        };
        if let Some(found) = found
            && visit(key, found)? == ControlFlow::Break(())
        {
            return Ok(Visited::Stopped(ControlFlow::Break(())));
        }
    }
    Ok(Visited::All)
}

/// Prefetches the beginning of a record.
#[inline]
fn prefetch(record: Option<*mut Header>) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    if let Some(record) = record {
        // SAFETY: a prefetch does not access memory in any way a program can see; every x86-64 processor has it.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(record.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom)))))]
    let _ = record;
}
