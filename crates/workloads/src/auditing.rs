//! Helpers that several auditors share: every worker audits the rows it owns, in transactions of bounded size.
//!
//! Owns: the distribution of the keys to workers, and cutting them into slices. Never: knows which contents are right.

use atrapos::{Database, Session, SessionHandle, TableId, WorkerId};

use crate::keys::KeySet;
use crate::workload::AuditError;

/// Rows audited in one transaction: bounds both memory and the pause of the worker.
pub(crate) const SLICE: u64 = 1024;

/// Runs `body` on every worker that owns keys from `first` to `last`, as leading parts of the keys of `table`, with the
/// keys that the worker owns. Returns the results of all workers.
///
/// # Errors
/// The first error of any worker, after all have ended.
pub(crate) fn by_owners<R: Send + 'static>(
    db: &Database,
    table: TableId,
    first: u64,
    last: u64,
    body: impl AsyncFn(&Session, &KeySet) -> Result<R, AuditError> + Clone + Send + 'static,
) -> Result<Vec<R>, AuditError> {
    // One scheme for all workers: partitions may move meanwhile.
    let (scheme, mut sessions) = (db.scheme(), Vec::new());
    for worker in (0..db.workers()).map(|worker| WorkerId(worker as u16)) {
        if let Some(own) = KeySet::owned_by(&scheme, table, first, last, worker) {
            let body = body.clone();
            sessions.push(db.spawn_session(worker, async move |session| body(&session, &own).await)?);
        }
    }
    let parts: Vec<_> = sessions.into_iter().map(SessionHandle::join).collect();
    parts.into_iter().map(|part| part?).collect()
}

/// Returns the keys of a set as runs of consecutive keys, first and last of each, none longer than [`SLICE`].
pub(crate) fn slices(keys: &KeySet) -> impl Iterator<Item = (u64, u64)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let left = keys.len().checked_sub(at).filter(|left| *left > 0)?;
        let first = keys.nth(at);
        let more = (1..SLICE.min(left)).take_while(|next| keys.nth(at + next) == first + next).count() as u64;
        at += more + 1;
        Some((first, first + more))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_cover_every_key_once() {
        let keys = KeySet::range(5, 5 + 2 * SLICE).expect("keys");
        let found: Vec<_> = slices(&keys).collect();
        assert_eq!(found, [(5, 4 + SLICE), (5 + SLICE, 4 + 2 * SLICE), (5 + 2 * SLICE, 5 + 2 * SLICE)]);
        let pieces = KeySet::range(0, 9).expect("keys").blocks(2).expect("blocks");
        assert_eq!(slices(&pieces).collect::<Vec<_>>(), [(0, 2)]);
    }
}
