//! Trees that are lent for reading: several threads read one tree, and nobody changes it meanwhile.
//!
//! Owns the token by which a tree knows that it is lent. It never copies a row, and never waits for a borrower.
//!
//! A borrower has a [`Tree`] of its own, with the same nodes, which keeps their memory alive. Every function that changes a
//! node asserts first that the tree is not lent ([`Tree::assert_unlent`]): this holds for the tree that was lent until all
//! borrowed ones are dropped and it is [taken back](Tree::take_back), and for a borrowed one always. So no protocol of the
//! callers has to be trusted for the memory to be sound: who breaks it panics.
//!
//! Invariant: while a borrowed tree exists, no node that it can reach is written.

use super::{Stamp, Tree, run};
use std::sync::Arc;

impl Tree {
    /// Lends the tree for reading: returns another tree with the same rows, which may go to another thread. Until all such
    /// trees are dropped and this one is [taken back](Tree::take_back), a change of any of them panics.
    pub fn lend(&mut self) -> Tree {
        let token = self.lent.get_or_insert_with(|| Arc::new(())).clone();
        Tree {
            config: self.config,
            root: self.root,
            inner_levels: self.inner_levels,
            rows: self.rows,
            stamp: Stamp::new(),
            // It keeps the chunks alive in which the nodes and the long rows are.
            pages: self.pages.split(),
            pending: 0,
            undoing: false,
            has_had_long_rows: self.has_had_long_rows,
            latest: run::LatestInsert::none(),
            scratch: None,
            lent: Some(token),
            pass: None,
        }
    }

    /// Takes the tree back from its borrowers, after which it may be changed; `false` if one of them still has it, or if it is a
    /// borrowed tree that others have too.
    pub fn take_back(&mut self) -> bool {
        // That nobody else has the token happens after the last borrowed tree was dropped, and so after all reads of it.
        let is_back = self.lent.as_mut().is_none_or(|token| Arc::get_mut(token).is_some());
        if is_back {
            self.lent = None;
        }
        is_back
    }

    /// Returns whether the tree is lent, or borrowed.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.lent.is_some()
    }

    /// Asserts that no other thread may be reading the nodes.
    #[inline(always)]
    pub(super) fn assert_unlent(&self) {
        assert!(self.lent.is_none(), "a tree is changed while others read it");
    }
}

#[cfg(test)]
mod tests {
    use crate::memory::HeapMemory;
    use crate::{Tree, TreeConfig};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    fn filled(rows: u32) -> Tree {
        let mut tree = Tree::new(TreeConfig::for_rows_of(16), Arc::new(HeapMemory));
        for row in 0..rows {
            tree.insert(&row.to_be_bytes(), &[row as u8; 16], 1).unwrap();
        }
        tree
    }

    fn panics(change: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(change)).is_err()
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "who borrows a tree is another thread")]
    fn borrowers_read_on_other_threads_and_outlive_the_lender() {
        let mut tree = filled(5_000);
        let borrowed: Vec<Tree> = (0..3).map(|_| tree.lend()).collect();
        let readers: Vec<_> = borrowed
            .into_iter()
            .map(|borrowed| {
                std::thread::spawn(move || {
                    let found = |row: &u32| borrowed.get(&row.to_be_bytes()).map(|found| found.bytes[0]);
                    assert!((0..5_000_u32).all(|row| found(&row) == Some(row as u8)));
                    assert_eq!(borrowed.iter().count(), 5_000);
                    borrowed
                })
            })
            .collect();
        assert!(tree.get(&7_u32.to_be_bytes()).is_some(), "the lender reads, too");
        drop(tree);
        for reader in readers {
            let borrowed = reader.join().unwrap();
            assert_eq!(borrowed.get(&9_u32.to_be_bytes()).unwrap().bytes, [9; 16]);
        }
    }

    #[test]
    fn neither_side_changes_a_tree_that_is_lent() {
        let mut tree = filled(100);
        let mut borrowed = tree.lend();
        let key = 3_u32.to_be_bytes();
        for side in [&mut tree, &mut borrowed] {
            assert!(side.is_lent());
            assert!(panics(|| drop(side.insert(&200_u32.to_be_bytes(), &[0; 16], 2))));
            assert!(panics(|| drop(side.update(&key, &[0; 16], 2))));
            assert!(panics(|| drop(side.update_undoable(&key, &[0; 15], 2))));
            assert!(panics(|| assert!(side.remove(&key))));
            assert!(panics(|| assert!(side.remove_undoable(&key, |_| ()).is_ok())));
            assert!(panics(|| drop(side.get_mut(&key))));
            assert!(panics(|| drop(side.split_off(&key))));
        }
        assert!(!tree.take_back(), "the borrower still has it");
        drop(borrowed);
        assert!(tree.take_back());
        tree.update(&key, &[1; 16], 2).unwrap();
        tree.check().unwrap();
    }

    #[test]
    fn trees_that_are_lent_are_not_joined() {
        let mut left = filled(10);
        let (mut right, _) = left.split_off(&5_u32.to_be_bytes()).unwrap();
        let borrowed = right.lend();
        assert!(panics(|| drop(left.append(right))));
        drop(borrowed);
    }
}
