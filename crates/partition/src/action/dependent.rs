//! Dependents of a write, which keep the database consistent: changes of index entries, checks of foreign keys.
//!
//! Owns: the computation of the dependents of a change, and the operations that carry them out. Never: decides when
//! they run; the transaction does.

use std::ops::ControlFlow;

use atrapos_catalog::OnDelete;
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::{LockMode, LockTarget};

use super::access::refuse_duplicate;
use super::context::RowChange;
use super::{Action, MissingTable, Operation, Request, RowAccess, RowContext, RowOperation};
use crate::abort::{Abort, AbortReason};
use crate::action::{AccessKind as Kind, OperationKind};
use crate::planted::{Bug, planted};
use crate::range::KeyRange;
use crate::schema::{CatalogTag, Phase, TableId, TableMeta, TreeKind};

/// An action that must follow a write for the database to stay consistent.
#[derive(Debug)]
pub enum DependentAction {
    /// Adds an entry to an index.
    AddEntry {
        /// The index.
        index: TableId,
        /// The key of the entry.
        entry: KeyBuf,
        /// The primary key that it leads to.
        key: KeyBuf,
    },
    /// Removes an entry from an index.
    RemoveEntry {
        /// The index.
        index: TableId,
        /// The key of the entry.
        entry: KeyBuf,
    },
    /// Requires that a row exists.
    RequireParent {
        /// The table that a foreign key refers to.
        parent: TableId,
        /// The key of the row.
        key: KeyBuf,
    },
    /// Requires that no key lies in a range.
    RequireNoChild {
        /// The table that refers, or the index by which its rows are found.
        through: TableId,
        /// The range.
        range: KeyRange,
    },
    /// Deletes the rows that refer to a row which is deleted.
    DeleteChildren {
        /// The table that refers, or the index by which its rows are found.
        through: TableId,
        /// The range of their keys there.
        range: KeyRange,
    },
    /// Deletes a row, if it exists.
    DeleteRow {
        /// The table.
        table: TableId,
        /// The key of the row.
        key: KeyBuf,
    },
}

/// Adds the dependents of a change of the row from `before` to `after` (`None`: no row).
pub fn follow_change(
    meta: &TableMeta,
    key: &KeyBuf,
    before: Option<&[u8]>,
    after: Option<&[u8]>,
    dependents: &mut Vec<DependentAction>,
) -> Result<(), Abort> {
    for index in &meta.indexes {
        if let (Some(before), Some(after)) = (before, after)
            && index.keeps_key(before, after)
        {
            debug_assert!(
                index.entry(key, before) == index.entry(key, after),
                "an index key is made of other columns than Index::KEY_FROM says"
            );
            continue;
        }
        let old = before.map(|row| index.entry(key, row)).transpose()?;
        let new = after.map(|row| index.entry(key, row)).transpose()?;
        if old == new {
            continue;
        }
        if let Some(old) = old
            && !(planted(Bug::EntryLeftBehind) && after.is_none())
        {
            dependents.push(DependentAction::RemoveEntry { index: index.id, entry: old });
        }
        if let Some(new) = new
            && !(planted(Bug::EntryNotAdded) && before.is_some())
        {
            dependents.push(DependentAction::AddEntry { index: index.id, entry: new, key: key.clone() });
        }
    }
    if let Some(after) = after {
        for parent in &meta.parents {
            let Some(new) = parent.key.call(key, after)? else { continue };
            let unchanged = match before {
                Some(before) => parent.key.call(key, before)?.as_ref() == Some(&new),
                None => false,
            };
            if !unchanged {
                dependents.push(DependentAction::RequireParent { parent: parent.parent, key: new });
            }
        }
    } else {
        for child in &meta.children {
            let (through, range) = (child.through, child.range(key)?);
            dependents.push(match child.on_delete {
                OnDelete::Restrict => DependentAction::RequireNoChild { through, range },
                OnDelete::Cascade => DependentAction::DeleteChildren { through, range },
            });
        }
    }
    Ok(())
}

/// The operation of a [`DependentAction`].
#[derive(Debug)]
pub enum Dependent {
    /// Adds an entry that leads to this primary key.
    AddEntry(KeyBuf),
    /// Removes an entry.
    RemoveEntry,
    /// Fails if the row does not exist.
    RequireParent,
    /// Fails if there is a row in the range.
    RequireNoChild,
    /// Deletes the rows in the range, and the rows that refer to them.
    DeleteChildren,
    /// Deletes a row that an index has led to.
    DeleteRow,
}

impl Operation for Dependent {
    type Output = ();

    fn maintains(&self) -> bool {
        true
    }

    fn without_table(self, missing: MissingTable) -> Result<(), Abort> {
        match self {
            // A dropped index has no entries, and a dropped table no children.
            Dependent::RequireParent => Err(missing.why),
            _ if missing.is_dropped => Ok(()),
            _ => Err(missing.why),
        }
    }

    fn apply(self, at: &mut RowContext<'_>) -> Result<(), Abort> {
        self.apply_to(at)
    }

    fn kind(&self) -> OperationKind {
        match self {
            Dependent::AddEntry(key) => OperationKind::following(Kind::Insert, key.len()),
            Dependent::RequireParent => OperationKind::following(Kind::Read, 0),
            Dependent::RequireNoChild => OperationKind::following(Kind::Scan, 0),
            Dependent::RemoveEntry | Dependent::DeleteChildren | Dependent::DeleteRow => {
                OperationKind::following(Kind::Delete, 0)
            }
        }
    }
}

impl RowOperation for Dependent {
    fn apply_to(self, at: &mut impl RowAccess) -> Result<(), Abort> {
        match self {
            Dependent::AddEntry(primary_key) => {
                if at.put(&primary_key)? {
                    Ok(())
                } else {
                    Err(refuse_duplicate(at.catalog(), at.table(), at.key()))
                }
            }
            Dependent::RemoveEntry => {
                if at.remove()? {
                    return Ok(());
                }
                if at.catalog().tables[at.table().at()].phase != Phase::Ready {
                    // Rows that are older than the index may have no entries yet.
                    return Ok(());
                }
                Err(Abort::because(
                    AbortReason::Corruption,
                    "a secondary index has no entry for a row that is there; restore the database from a backup",
                ))
            }
            Dependent::RequireParent => match at.row()? {
                Some(_) => Ok(()),
                None => Err(Abort::explained(
                    AbortReason::ForeignKey,
                    format!(
                        "table '{}' has no row that the new row refers to; insert that one first",
                        at.catalog().tables[at.table().at()].name
                    ),
                )),
            },
            Dependent::RequireNoChild => {
                let found = at.walk(false, |_, _| Ok(ControlFlow::Break(())))?;
                if !found {
                    if let Some(range) = at.take_left_out() {
                        let through = at.table();
                        at.dependents().push(DependentAction::RequireNoChild { through, range });
                    }
                    return Ok(());
                }
                Err(Abort::explained(
                    AbortReason::ForeignKey,
                    format!(
                        "table '{}' still has rows that refer to the row; delete them first",
                        at.catalog().tables[child_of(at).at()].name
                    ),
                ))
            }
            Dependent::DeleteChildren => delete_children(at),
            Dependent::DeleteRow => at.delete().map(drop),
        }
    }
}

/// The table whose rows are found through the tree that an operation works on.
fn child_of(at: &impl RowAccess) -> TableId {
    match at.catalog().tables[at.table().at()].kind {
        TreeKind::Rows | TreeKind::Dropped => at.table(),
        TreeKind::Entries { of, .. } => of,
    }
}

/// Deletes the children in the target range, or those that the entries in it lead to.
fn delete_children(at: &mut impl RowAccess) -> Result<(), Abort> {
    let table = child_of(at);
    if table == at.table() {
        at.change_range(&mut |_, _, _| Ok(RowChange::Delete))?;
    } else {
        let mut children = Vec::new();
        at.walk(false, |_, key| {
            children.push(DependentAction::DeleteRow { table, key: KeyBuf::from(key) });
            Ok(ControlFlow::Continue(()))
        })?;
        at.dependents().append(&mut children);
    }
    if let Some(range) = at.take_left_out() {
        let through = at.table();
        at.dependents().push(DependentAction::DeleteChildren { through, range });
    }
    Ok(())
}

impl DependentAction {
    /// Returns true if it changes an entry of an index or a row. The others are checks, which run after the changes of
    /// their phase.
    #[inline]
    pub fn is_change(&self) -> bool {
        !matches!(self, DependentAction::RequireParent { .. } | DependentAction::RequireNoChild { .. })
    }

    /// Returns the dependent that an action was made of, to be run later.
    pub fn from_action(action: Action<Dependent>) -> DependentAction {
        let Request { table, target, .. } = action.request;
        match (action.operation, target) {
            (Dependent::AddEntry(key), LockTarget::Key(entry)) => {
                DependentAction::AddEntry { index: table, entry, key }
            }
            (Dependent::RemoveEntry, LockTarget::Key(entry)) => {
                DependentAction::RemoveEntry { index: table, entry }
            }
            (Dependent::RequireParent, LockTarget::Key(key)) => {
                DependentAction::RequireParent { parent: table, key }
            }
            (Dependent::RequireNoChild, LockTarget::Range { lower, upper }) => {
                DependentAction::RequireNoChild { through: table, range: KeyRange { lower, upper } }
            }
            (Dependent::DeleteChildren, LockTarget::Range { lower, upper }) => {
                DependentAction::DeleteChildren { through: table, range: KeyRange { lower, upper } }
            }
            (Dependent::DeleteRow, LockTarget::Key(key)) => DependentAction::DeleteRow { table, key },
            _ => unreachable!("only children are looked for in a range"),
        }
    }

    /// Returns the action that carries it out.
    pub fn into_action(self, tag: CatalogTag) -> Action<Dependent> {
        match self {
            DependentAction::AddEntry { index, entry, key } => {
                Action::on_key(index, tag, LockMode::Exclusive, entry, Dependent::AddEntry(key))
            }
            DependentAction::RemoveEntry { index, entry } => {
                Action::on_key(index, tag, LockMode::Exclusive, entry, Dependent::RemoveEntry)
            }
            DependentAction::RequireParent { parent, key } => {
                Action::on_key(parent, tag, LockMode::Shared, key, Dependent::RequireParent)
            }
            DependentAction::RequireNoChild { through, range } => {
                Action::on_range(through, tag, LockMode::Shared, range, false, Dependent::RequireNoChild)
            }
            DependentAction::DeleteChildren { through, range } => {
                Action::on_range(through, tag, LockMode::Exclusive, range, false, Dependent::DeleteChildren)
            }
            DependentAction::DeleteRow { table, key } => {
                Action::on_key(table, tag, LockMode::Exclusive, key, Dependent::DeleteRow)
            }
        }
    }
}
