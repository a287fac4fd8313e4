//! Accesses of a transaction through indexes that are looked up by name.

use atrapos_catalog::Value;
use atrapos_partition::abort::Abort;
use atrapos_partition::action::{
    AccessKind as Kind, Action, CollectKeys, Operation, OperationKind, ResultShape, RowContext,
};
use atrapos_partition::dynamic::{DynRow, IndexHandle};
use atrapos_partition::range::KeyRange;
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::LockMode;

use crate::transaction::collect_keys;
use crate::tx::Tx;

/// Reads one entry of a unique index.
struct LookupKey;

impl Operation for LookupKey {
    type Output = Option<KeyBuf>;

    fn apply(self, at: &mut RowContext<'_>) -> Result<Option<KeyBuf>, Abort> {
        Ok(at.row().map(|(_, primary_key)| KeyBuf::from(primary_key)))
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Read, 0, ResultShape::Rows)
    }
}

impl Tx<'_> {
    /// Returns the row that a key of a unique index leads to. A key that contains NULL may lead to several rows, of
    /// which the first is returned.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run); [`InvalidValue`](atrapos_partition::abort::AbortReason::InvalidValue) when the values are no key of the index, or it is
    /// not unique.
    pub async fn row_by(&mut self, index: &IndexHandle, key: &[Value]) -> Result<Option<DynRow>, Abort> {
        let entry = match index.whole_key(key) {
            Ok(entry) => entry,
            Err(abort) => return Err(self.refuse(abort)),
        };
        if key.iter().any(Value::is_null) {
            // The entries of such keys end with the primary key.
            let range = KeyRange::of_prefix_bytes(&entry);
            return Ok(self.rows_through(index, range, 1, false).await?.pop());
        }
        let action = Action::on_key(index.id(), index.tag, LockMode::Shared, entry, LookupKey);
        match self.run(action).await? {
            Some(found) => self.run(index.table.get_encoded(found)).await,
            None => Ok(None),
        }
    }

    /// Returns the rows whose index keys lie in `range`, in order of the index, at most `limit`.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    pub async fn rows_by(
        &mut self,
        index: &IndexHandle,
        range: KeyRange,
        limit: usize,
    ) -> Result<Vec<DynRow>, Abort> {
        self.rows_through(index, range, limit, false).await
    }

    /// Returns rows as [`rows_by`](Tx::rows_by) does, from the last key to the first.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    pub async fn rows_by_backward(
        &mut self,
        index: &IndexHandle,
        range: KeyRange,
        limit: usize,
    ) -> Result<Vec<DynRow>, Abort> {
        self.rows_through(index, range, limit, true).await
    }

    /// Returns the rows whose index keys lie in `range`, in order of the index; `None` if a lock of another transaction conflicts.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    pub async fn rows_by_unless_locked(
        &mut self,
        index: &IndexHandle,
        range: KeyRange,
    ) -> Result<Option<Vec<DynRow>>, Abort> {
        let (mut keys, mut rest) = (Vec::new(), Some(range));
        while let Some(range) = rest {
            let collect = CollectKeys::new(keys, usize::MAX, false);
            let action = Action::on_range(index.id(), index.tag, LockMode::Shared, range, false, collect);
            let Some(collected) = self.run(action.unless_locked()).await? else { return Ok(None) };
            (keys, rest) = (collected.found, collected.rest);
        }
        let actions = keys.into_iter().map(|key| index.table.get_encoded(key).unless_locked());
        let rows: Option<Vec<_>> = self.join_all(actions).await?.into_iter().collect();
        Ok(rows.map(|rows| rows.into_iter().flatten().collect()))
    }

    /// Returns the rows whose index keys lie in `range`, in order of the index, in spite of locks and without one: see
    /// [`Action::despite_locks`].
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    pub async fn rows_by_despite_locks(
        &mut self,
        index: &IndexHandle,
        range: KeyRange,
    ) -> Result<Vec<DynRow>, Abort> {
        let (mut keys, mut rest) = (Vec::new(), Some(range));
        while let Some(range) = rest {
            let collect = CollectKeys::new(keys, usize::MAX, false);
            let action = Action::on_range(index.id(), index.tag, LockMode::Shared, range, false, collect);
            let collected = self.run(action.despite_locks()).await?;
            (keys, rest) = (collected.found, collected.rest);
        }
        let actions = keys.into_iter().map(|key| index.table.get_encoded(key).despite_locks());
        Ok(self.join_all(actions).await?.into_iter().flatten().collect())
    }

    async fn rows_through(
        &mut self,
        index: &IndexHandle,
        range: KeyRange,
        limit: usize,
        backward: bool,
    ) -> Result<Vec<DynRow>, Abort> {
        let keys = collect_keys(self, (index.id(), index.tag), range, limit, backward).await?;
        let actions: Vec<_> = keys.into_iter().map(|key| index.table.get_encoded(key)).collect();
        Ok(self.join_all(actions).await?.into_iter().flatten().collect())
    }
}
