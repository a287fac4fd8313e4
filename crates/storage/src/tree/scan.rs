//! Ranges: rows in key order, forwards and backwards, without allocation.
//!
//! Owns the double-ended iterator over leaves. It never changes anything.

use super::{RowRef, Tree, row_ref};
use crate::key::KeyBuf;
use crate::node::{NodePtr, SearchKey};
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::ops::Bound;

/// An entry a range came to.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    leaf: NodePtr,
    index: usize,
    tree: PhantomData<&'a Tree>,
}

impl<'a> Entry<'a> {
    /// Writes the key over `key`. The bytes are put together from three places, so there is no slice to give out.
    #[inline]
    pub fn key_into(&self, key: &mut KeyBuf) {
        self.leaf.key_into(self.index, key);
    }

    /// The key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> KeyBuf {
        self.leaf.key(self.index)
    }

    /// The version of the row.
    #[inline]
    #[must_use]
    pub fn version(&self) -> u64 {
        self.leaf.version(self.index)
    }

    /// The encoded row.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.leaf.row(self.index)
    }

    /// Version and encoded row.
    #[inline]
    #[must_use]
    pub fn row(&self) -> RowRef<'a> {
        row_ref(self.leaf, self.index)
    }
}

impl std::fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("key", &self.key()).field("row", &self.row()).finish()
    }
}

/// Between two entries of a leaf, or before the first or behind the last one.
#[derive(Clone, Copy)]
struct Cursor {
    leaf: NodePtr,
    index: usize,
}

/// The entries with keys in a range, in key order; from the back with [`rev`](Iterator::rev) or `next_back`.
#[derive(Clone)]
pub struct Range<'a> {
    front: Cursor,
    back: Cursor,
    /// Entries of `front.leaf`, which is what the front may go through before it has to look at the next leaf.
    front_end: usize,
    /// The lines that rows are expected to take, if they are so many that the second next row is asked for while one is
    /// visited.
    ahead: Option<NonZeroUsize>,
    tree: PhantomData<&'a Tree>,
}

/// The lines of a row from which on rows are asked for while those before them are visited.
const MANY_LINES: usize = 3;

impl Tree {
    /// The rows with keys between the bounds, which may be any; when they are the wrong way round there are none.
    #[must_use]
    pub fn range(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Range<'_> {
        if is_empty_range(lower, upper) {
            return Range::empty();
        }
        let front = match lower {
            Bound::Unbounded => Cursor { leaf: self.first_leaf(), index: 0 },
            Bound::Included(key) => self.cursor_at(&SearchKey::new(key), false),
            Bound::Excluded(key) => self.cursor_at(&SearchKey::new(key), true),
        };
        Range::new(self, front, self.back_of(front, upper))
    }

    /// The rows from `position`, which was located for `key`, up to the upper bound: the same as a range from `key` on,
    /// without a descent for its beginning while the position is good.
    #[must_use]
    pub fn range_from(&self, position: super::Position, key: &[u8], upper: Bound<&[u8]>) -> Range<'_> {
        if is_empty_range(Bound::Included(key), upper) {
            return Range::empty();
        }
        let position = self.refreshed(position, key);
        let front = Cursor { leaf: position.leaf, index: position.index() };
        Range::new(self, front, self.back_of(front, upper))
    }

    /// All rows.
    #[must_use]
    pub fn iter(&self) -> Range<'_> {
        self.range(Bound::Unbounded, Bound::Unbounded)
    }

    /// Before the first entry with a key not less than `key`; behind that entry when it has the very key and `behind`.
    #[inline]
    fn cursor_at(&self, key: &SearchKey<'_>, behind: bool) -> Cursor {
        let leaf = self.leaf_of(key);
        cursor_in(leaf, key, behind)
    }

    /// The end of a range that begins at `front`.
    #[inline]
    fn back_of(&self, front: Cursor, upper: Bound<&[u8]>) -> Cursor {
        let (key, behind) = match upper {
            Bound::Unbounded => {
                let leaf = self.last_leaf();
                return Cursor { leaf, index: leaf.count() };
            }
            Bound::Included(key) => (SearchKey::new(key), true),
            Bound::Excluded(key) => (SearchKey::new(key), false),
        };
        // Most ranges are short and end in the leaf where they begin: no second descent then.
        let here = cursor_in(front.leaf, &key, behind);
        if here.index < front.leaf.count() || front.leaf.next().is_none() {
            return here;
        }
        self.cursor_at(&key, behind)
    }
}

impl<'a> IntoIterator for &'a Tree {
    type Item = Entry<'a>;
    type IntoIter = Range<'a>;

    fn into_iter(self) -> Range<'a> {
        self.iter()
    }
}

#[inline]
fn cursor_in(leaf: NodePtr, key: &SearchKey<'_>, behind: bool) -> Cursor {
    let slot = leaf.find(key);
    Cursor { leaf, index: slot.index + usize::from(slot.found && behind) }
}

#[inline]
fn is_empty_range(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> bool {
    match (lower, upper) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) => lower >= upper,
    }
}

impl<'a> Range<'a> {
    fn new(tree: &'a Tree, front: Cursor, back: Cursor) -> Range<'a> {
        let lines = tree.config.record_lines;
        let ahead = NonZeroUsize::new(lines).filter(|_| lines >= MANY_LINES);
        Range { front, back, front_end: front.leaf.count(), ahead, tree: PhantomData }
    }

    fn empty() -> Range<'a> {
        let nowhere = Cursor { leaf: NodePtr::empty_leaf(), index: 0 };
        Range { front: nowhere, back: nowhere, front_end: 0, ahead: None, tree: PhantomData }
    }

    /// Moves the front to the next leaf; `false` when the range ends before.
    #[inline(never)]
    fn next_leaf(&mut self) -> bool {
        while self.front.index >= self.front_end {
            if self.front.leaf == self.back.leaf {
                return false;
            }
            let Some(next) = self.front.leaf.next() else { return false };
            self.front = Cursor { leaf: next, index: 0 };
            self.front_end = if next == self.back.leaf { self.back.index } else { next.count() };
            if let Some(after) = next.next() {
                crate::prefetch::prefetch_lines::<4, _>(after.address().as_ptr());
            }
        }
        true
    }

    /// Moves the back to the leaf before; `false` when the range begins behind it.
    #[inline(never)]
    fn previous_leaf(&mut self) -> bool {
        while self.back.index == 0 {
            if self.front.leaf == self.back.leaf {
                return false;
            }
            let Some(previous) = self.back.leaf.prev() else { return false };
            self.back = Cursor { leaf: previous, index: previous.count() };
            if let Some(before) = previous.prev() {
                crate::prefetch::prefetch_lines::<4, _>(before.address().as_ptr());
            }
        }
        true
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        let end = if self.front.leaf == self.back.leaf { self.back.index } else { self.front_end };
        if self.front.index >= end {
            if self.front.leaf == self.back.leaf {
                return None;
            }
            self.front_end = end;
            if !self.next_leaf() {
                return None;
            }
        }
        let entry = Entry { leaf: self.front.leaf, index: self.front.index, tree: PhantomData };
        self.front.index += 1;
        if let Some(lines) = self.ahead
            && self.front.index + 1 < self.front.leaf.count()
        {
            self.front.leaf.prefetch_record(self.front.index + 1, lines.get());
        }
        Some(entry)
    }
}

impl<'a> DoubleEndedIterator for Range<'a> {
    #[inline]
    fn next_back(&mut self) -> Option<Entry<'a>> {
        let begin = if self.front.leaf == self.back.leaf { self.front.index } else { 0 };
        if self.back.index <= begin {
            if self.front.leaf == self.back.leaf || !self.previous_leaf() {
                return None;
            }
            let begin = if self.front.leaf == self.back.leaf { self.front.index } else { 0 };
            if self.back.index <= begin {
                return None;
            }
        }
        self.back.index -= 1;
        Some(Entry { leaf: self.back.leaf, index: self.back.index, tree: PhantomData })
    }
}

impl FusedIterator for Range<'_> {}

// SAFETY: a range only reads, as the shared borrow of the tree it stands for.
unsafe impl Send for Range<'_> {}
// SAFETY: as above.
unsafe impl Sync for Range<'_> {}
// SAFETY: an entry only reads, as the shared borrow of the tree it stands for.
unsafe impl Send for Entry<'_> {}
// SAFETY: as above.
unsafe impl Sync for Entry<'_> {}
