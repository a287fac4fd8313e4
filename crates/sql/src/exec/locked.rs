//! Scans that do not wait: NOWAIT and SKIP LOCKED.
//!
//! Owns: which rows such a scan locks. Never: waits for a lock.
//!
//! NOWAIT takes the locks of the scan as always and fails (55P03) when one of them is not free: also a lock of a row in the range that
//! does not meet the condition. SKIP LOCKED first reads without locks, then locks each row that meets the condition, in the order of
//! the answer and as many as are wanted, and looks at the condition again. Rows that others have locked, and rows that others are about
//! to insert, are left out: with that a transaction is not serializable, which is what SKIP LOCKED asks for.

use std::ops::ControlFlow;

use atrapos::catalog::Value as Stored;
use atrapos::{Abort, DynRow, Revision};

use super::scan::{Found, Way, decode, way};
use super::{Exec, Fail, MAX_ROWS, too_many_rows};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Row};
use crate::plan::{Scan, SortKey, compare_keys};

/// A row that was found without a lock.
struct Candidate {
    key: Vec<Stored>,
    row: Row,
}

/// The outcome of an attempt to lock a row.
enum Attempt {
    /// Another transaction has locked it.
    Locked,
    /// It is gone.
    Gone,
    Got(DynRow),
}

#[cold]
fn not_available(scan: &Scan) -> Fail {
    let message = format!("could not obtain lock on row in relation \"{}\"", scan.table.name);
    SqlError::new(SqlState::LOCK_NOT_AVAILABLE, message).into()
}

impl Exec<'_, '_> {
    /// Locks a row as the scan asks for, if nobody else has.
    async fn attempt(&mut self, scan: &Scan, key: &[Stored]) -> Result<Attempt, Fail> {
        let handle = &scan.table.handle;
        let row = if scan.for_update {
            let keep = |row: &DynRow| Ok((Revision::Keep, row.clone()));
            self.tx()?.run(handle.revise(key, keep)?.unless_locked()).await?
        } else {
            self.tx()?.run(handle.get(key)?.unless_locked()).await?
        };
        Ok(match row {
            None => Attempt::Locked,
            Some(None) => Attempt::Gone,
            Some(Some(row)) => Attempt::Got(row),
        })
    }

    /// The rows of a scan with NOWAIT.
    pub(super) async fn find_at_once(
        &mut self,
        scan: &Scan,
        filter: Option<&Expr>,
    ) -> Result<Vec<Found>, Fail> {
        let mut found = Vec::new();
        let rows = match way(scan, &self.env)? {
            Way::Nothing => Vec::new(),
            Way::Keys(keys) => {
                for key in keys {
                    match self.attempt(scan, &key).await? {
                        Attempt::Locked => return Err(not_available(scan)),
                        Attempt::Gone => {}
                        Attempt::Got(row) => self.keep_row(scan, filter, &row, &mut found)?,
                    }
                }
                return Ok(found);
            }
            Way::Range(range) => {
                let push = |rows: &mut Vec<DynRow>, row| {
                    rows.push(row);
                    if rows.len() > MAX_ROWS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                };
                let (handle, rows) = (&scan.table.handle, Vec::new());
                self.tx()?
                    .fold_rows_unless_locked(handle, range, scan.backward, rows, push)
                    .await?
                    .ok_or_else(|| not_available(scan))?
            }
            Way::Index(at, range) => {
                let index = scan.table.indexes[at].handle.as_ref().ok_or_else(too_many_rows)?;
                let rows = self.tx()?.rows_by_unless_locked(index, range).await?;
                rows.ok_or_else(|| not_available(scan))?
            }
        };
        if rows.len() > MAX_ROWS {
            return Err(too_many_rows().into());
        }
        for row in rows {
            self.tick()?;
            let before = found.len();
            self.keep_row(scan, filter, &row, &mut found)?;
            if scan.for_update
                && let Some(kept) = found.get(before)
            {
                let key = kept.key.clone();
                if matches!(self.attempt(scan, &key).await?, Attempt::Locked) {
                    return Err(not_available(scan));
                }
            }
        }
        Ok(found)
    }

    /// Adds a row that is locked, if it meets the condition.
    fn keep_row(
        &self,
        scan: &Scan,
        filter: Option<&Expr>,
        row: &DynRow,
        found: &mut Vec<Found>,
    ) -> Result<(), Fail> {
        let values = decode(&scan.table, &scan.columns, row)?;
        if filter.map_or(Ok(true), |filter| filter.holds(&self.env, &values))? {
            found.push(Found { key: row.key(&scan.table.handle)?, row: values });
        }
        Ok(())
    }

    /// The rows of a scan with SKIP LOCKED, in its order, at most `limit`.
    pub(super) async fn find_free(
        &mut self,
        scan: &Scan,
        filter: Option<&Expr>,
        limit: Option<usize>,
    ) -> Result<Vec<Found>, Fail> {
        let candidates = self.candidates(scan, filter).await?;
        self.lock_free(scan, filter, candidates, limit).await
    }

    /// The rows of a scan with SKIP LOCKED as expressions of them, in the order of keys of these, at most `limit`: only as many are
    /// locked.
    pub(super) async fn sorted_free(
        &mut self,
        scan: &Scan,
        exprs: &[Expr],
        keys: &[SortKey],
        limit: Option<usize>,
    ) -> Result<Vec<Row>, Fail> {
        let filter = scan.filter.as_ref();
        let mut keyed = Vec::new();
        for candidate in self.candidates(scan, filter).await? {
            let projected = self.eval_all(exprs, &candidate.row).await?;
            let key: Result<Row, SqlError> =
                keys.iter().map(|key| key.expr.eval(&self.env, &projected)).collect();
            keyed.push((key?, candidate));
        }
        keyed.sort_by(|(one, _), (other, _)| compare_keys(keys, one, other));
        let candidates = keyed.into_iter().map(|(_, candidate)| candidate).collect();
        let mut rows = Vec::new();
        for found in self.lock_free(scan, filter, candidates, limit).await? {
            rows.push(self.eval_all(exprs, &found.row).await?);
        }
        Ok(rows)
    }

    /// The rows that meet the condition of a scan as they are now, committed or not.
    async fn candidates(&mut self, scan: &Scan, filter: Option<&Expr>) -> Result<Vec<Candidate>, Fail> {
        let rows = match way(scan, &self.env)? {
            Way::Nothing => Vec::new(),
            Way::Keys(keys) => {
                let gets: Result<Vec<_>, Abort> = keys
                    .iter()
                    .map(|key| scan.table.handle.get(key).map(atrapos::Action::despite_locks))
                    .collect();
                self.tx()?.join_all(gets?).await?.into_iter().flatten().collect()
            }
            Way::Range(range) => {
                let push = |rows: &mut Vec<DynRow>, row| {
                    rows.push(row);
                    if rows.len() > MAX_ROWS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                };
                let (handle, rows) = (&scan.table.handle, Vec::new());
                self.tx()?.fold_rows_despite_locks(handle, range, scan.backward, rows, push).await?
            }
            Way::Index(at, range) => {
                let index = scan.table.indexes[at].handle.as_ref().ok_or_else(too_many_rows)?;
                self.tx()?.rows_by_despite_locks(index, range).await?
            }
        };
        if rows.len() > MAX_ROWS {
            return Err(too_many_rows().into());
        }
        let mut candidates = Vec::new();
        for row in rows {
            self.tick()?;
            let values = decode(&scan.table, &scan.columns, &row)?;
            if filter.map_or(Ok(true), |filter| filter.holds(&self.env, &values))? {
                candidates.push(Candidate { key: row.key(&scan.table.handle)?, row: values });
            }
        }
        Ok(candidates)
    }

    /// Locks candidates in their order until there are enough.
    async fn lock_free(
        &mut self,
        scan: &Scan,
        filter: Option<&Expr>,
        candidates: Vec<Candidate>,
        limit: Option<usize>,
    ) -> Result<Vec<Found>, Fail> {
        let mut found = Vec::new();
        for candidate in candidates {
            if limit.is_some_and(|limit| found.len() >= limit) {
                break;
            }
            self.tick()?;
            if let Attempt::Got(row) = self.attempt(scan, &candidate.key).await? {
                self.keep_row(scan, filter, &row, &mut found)?;
            }
        }
        Ok(found)
    }
}
