//! Relocation: the pages and the long rows of a tree follow it to another memory node, some at a time, between the accesses of its owner.
//!
//! Owns: which leaves come next, and when all are there. Never: changes what the tree holds.
//!
//! A page has no pointers but those to other nodes, so a node moves as its bytes, and then its parent and its neighbours are told. What had a
//! [position](super::Position) in the tree looks its key up again.
//!
//! Pages go back to the [set](crate::memory) that they came from, where trees that stay take them from; none that is elsewhere is handed out meanwhile. So every page that is
//! taken after the beginning is of the new node, and there are ever fewer of the others. A *pass* visits all leaves in order of their keys, with the inner nodes above them. A
//! page may escape it, when the structure changes around its place. So passes are repeated until one has found no page elsewhere while the structure was the same: only then are the
//! chunks of other nodes let go. Where rows are inserted all the time that may take long, but after a pass that has found nothing there is no haste.
//!
//! The long rows of a leaf are copied to new extents when it is visited. What they leave behind is free for no other row of this tree; at the end it goes to the set, too. A change that is undone may
//! put a row back to an extent that was held for it, elsewhere: then the pass has found something, and nothing ends while such an extent is held.
//!
//! Invariants: nothing is relocated while the tree is lent; it begins when no change may be undone, since what is set aside for that must be there.

use super::Tree;
use crate::key::KeyBuf;
use crate::memory::{Extent, OutOfMemory};
use crate::node::{NodePtr, SearchKey};

/// The place of a pass, and what it has seen so far.
pub(super) struct Pass {
    /// The key from which on leaves are still to be visited.
    from: KeyBuf,
    /// Set once a page or a long row was elsewhere.
    pub(super) has_found: bool,
    /// The stamp of the tree when it began.
    stamp: u64,
}

/// The work of a call.
struct Work {
    /// Leaves to visit.
    left: usize,
    /// Pages that were brought.
    brought: usize,
}

/// The state of a relocation after some leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relocation {
    /// There are more leaves to visit.
    GoesOn,
    /// Nothing can be done now, as the tree is lent or a change may be undone, or nothing needs to be done soon: next to all pages are where they should be.
    Waits,
    /// All pages and long rows are where they should be.
    Done,
}

impl Tree {
    /// Returns true if the tree may have pages on another memory node than that which it [takes](Tree::allocate_from) further ones from, and these can be [relocated](Tree::relocate).
    #[must_use]
    pub fn is_scattered(&self) -> bool {
        self.pages.is_scattered()
    }

    /// Brings pages and long rows from other memory nodes to that of the tree: visits up to `leaves` leaves, where a long row that is brought counts as one for every page that would hold
    /// as many bytes. Returns the number of pages that were brought, long rows counted like that, and what comes next.
    ///
    /// # Errors
    /// When there is no memory; what was brought stays.
    pub fn relocate(&mut self, leaves: usize) -> Result<(usize, Relocation), OutOfMemory> {
        if !self.is_scattered() {
            return Ok((0, Relocation::Done));
        }
        if self.is_lent() || self.undoing {
            return Ok((0, Relocation::Waits));
        }
        let mut pass = match self.pass.take().filter(|_| self.pages.is_relocating()) {
            Some(pass) => pass,
            None if self.pending > 0 => return Ok((0, Relocation::Waits)),
            None => {
                self.pages.begin_relocation();
                self.new_pass()
            }
        };
        let (mut work, mut next) = (Work { left: leaves, brought: 0 }, Relocation::GoesOn);
        while work.left > 0 {
            work.left -= 1;
            let leaf = if self.root.is_empty_leaf() { None } else { self.relocate_at(&mut pass, &mut work)? };
            match leaf {
                Some(key) => pass.from = key,
                None if pass.has_found => pass = self.new_pass(),
                None if pass.stamp != self.stamp.get() || self.pages.holds_elsewhere() => {
                    (pass, next) = (self.new_pass(), Relocation::Waits);
                    break;
                }
                None => {
                    self.pages.end_relocation();
                    return Ok((work.brought, Relocation::Done));
                }
            }
        }
        self.pass = Some(pass);
        Ok((work.brought, next))
    }

    /// Notes that a change that was undone has put a row to an extent that was held for it.
    pub(super) fn note_put_back(&mut self) {
        if let Some(pass) = &mut self.pass {
            pass.has_found = true;
        }
    }

    fn new_pass(&self) -> Box<Pass> {
        Box::new(Pass { from: KeyBuf::new(), has_found: false, stamp: self.stamp.get() })
    }

    /// Brings the leaf of the pass, its long rows, and the nodes above it. Returns the key from which on to go on.
    fn relocate_at(&mut self, pass: &mut Pass, work: &mut Work) -> Result<Option<KeyBuf>, OutOfMemory> {
        let search = SearchKey::new(&pass.from);
        let (mut node, mut parent) = (self.root, None);
        loop {
            if self.pages.is_elsewhere(node) {
                pass.has_found = true;
                self.reserve(1)?;
                node = self.bring(node, parent);
                work.brought += 1;
            }
            if node.is_leaf() {
                let has_all = self.bring_long_rows(node, pass, work)?;
                return Ok(if has_all {
                    node.next().map(|next| next.key(0))
                } else {
                    Some(pass.from.clone())
                });
            }
            let index = node.child_index(&search);
            parent = Some((node, index));
            node = node.child(index);
        }
    }

    /// Brings the long rows of a leaf, as many as there is work left for. Returns whether all are there.
    fn bring_long_rows(
        &mut self,
        leaf: NodePtr,
        pass: &mut Pass,
        work: &mut Work,
    ) -> Result<bool, OutOfMemory> {
        if !self.has_had_long_rows {
            return Ok(true);
        }
        let mut brought = 0;
        for index in 0..leaf.count() {
            let Some(old) = leaf.extent(index).filter(|extent| self.pages.is_extent_elsewhere(extent)) else {
                continue;
            };
            pass.has_found = true;
            // One is brought in any case, so that it goes on.
            if brought > 0 && brought >= work.left {
                work.left = 0;
                return Ok(false);
            }
            let pages = self.bring_long_row((leaf, index), old)?;
            (brought, work.brought) = (brought + pages, work.brought + pages);
        }
        work.left = work.left.saturating_sub(brought);
        Ok(true)
    }

    /// Copies a long row to a new extent. Returns the number of pages that would hold as many bytes.
    fn bring_long_row(&mut self, (leaf, index): (NodePtr, usize), old: Extent) -> Result<usize, OutOfMemory> {
        let bytes = old.bytes as usize;
        let new = self.pages.take_extent(bytes)?;
        // SAFETY: both are extents of this tree for so many bytes, and a new one is not part of one in use.
        unsafe { std::ptr::copy_nonoverlapping(old.address.as_ptr(), new.address.as_ptr(), bytes) };
        leaf.set_extent(index, new);
        self.pages.give_extent(old);
        Ok(Extent::taken_bytes(bytes).div_ceil(self.config.page_bytes))
    }

    /// Copies a node to a page that was reserved, puts the copy in its place, and gives the old page back.
    fn bring(&mut self, node: NodePtr, parent: Option<(NodePtr, usize)>) -> NodePtr {
        let page = self.pages.take();
        // SAFETY: the page is a whole one, of this tree alone.
        let copy = unsafe { node.copy_to(page, self.config.page_bytes) };
        match parent {
            Some((parent, index)) => parent.set_child(index, copy),
            None => self.root = copy,
        }
        if copy.is_leaf() {
            if let Some(prev) = copy.prev() {
                prev.link(Some(copy));
            }
            copy.link(copy.next());
        }
        self.stamp.advance();
        self.pages.give(node);
        copy
    }
}
