//! The B+-tree of one partition.
//!
//! Owns the handle [`Tree`], its configuration, and point access; the modules below own one kind of operation each.
//! A tree has a single owner: readers borrow it shared, writers exclusively, and nothing is latched (ATraPos §V-A). It may be
//! lent to other threads, and is not changed while it is (`lend`).
//!
//! Invariants, proved by [`Tree::check`]: all leaves are at the same depth and are linked in key order; every key below
//! a child is at least the separator before it and less than the one behind it; an inner node knows the rows below each
//! child; only the root may be without rows, and then it is the shared empty leaf. How full nodes are is *not* an
//! invariant: splitting a tree leaves thin nodes along the cut, and appending or removing merges what fits together.

mod batch;
mod bulk;
mod bytes;
mod check;
mod insert;
mod lend;
mod long;
mod order;
mod pack;
mod position;
mod relocate;
mod remove;
mod run;
mod scan;
mod split_append;
mod undo;

pub use batch::{Probe, locate_ahead, locate_batch};
pub use bulk::{BulkError, BulkLoader};
pub use bytes::TreeBytes;
pub use check::{CheckError, TreeSummary};
pub use insert::InsertError;
pub use position::Position;
pub use relocate::Relocation;
pub use scan::{Entry, Range};
pub use split_append::{AppendError, AppendRefusal};
pub use undo::UndoableUpdate;

use crate::memory::{Memory, OutOfMemory, Pages};
use crate::node::{HEADER_BYTES, LEAF_SLOT_BYTES, NodePtr, RECORD_BYTES, SearchKey};
use crate::prefetch::{LINE_BYTES, prefetch_lines};
use pack::Scratch;
use position::Stamp;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// The longest row that a tree accepts, in bytes.
pub const MAX_ROW_BYTES: usize = 1 << 20;

/// Levels a tree can have; more than any tree of 2^32 rows needs, whatever its keys.
const MAX_HEIGHT: usize = 40;

/// Lines of a node asked for at once on the way down: header, heads and offsets of a leaf of medium rows.
const FEW_LINES: usize = 5;
/// Lines asked for besides when rows are short and a leaf has many.
const MORE_LINES: usize = 5;

/// Limit of the lines of a record that are asked for, besides the one it begins in.
const RECORD_LINES_MAX: usize = 16;

/// Lines up to which those of a record are asked for with the other records of a batch, however late it is read.
const RECORD_LINES_FEW: usize = 4;

/// The layout of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeConfig {
    page_bytes: usize,
    /// Set if the heads of a well-filled leaf take many lines.
    many_heads: bool,
    /// The lines of memory that an expected row takes, as far as they are fetched before it is read.
    record_lines: usize,
}

impl TreeConfig {
    /// The layout for rows of about `expected_row_bytes`: pages of 4 KiB, of 8 or 16 KiB when the rows are large.
    /// Rows of any other length up to [`MAX_ROW_BYTES`] are still accepted.
    #[must_use]
    pub fn for_rows_of(expected_row_bytes: usize) -> TreeConfig {
        // A dozen rows per page keep the share of the page that no row fits into small.
        let page_bytes = match expected_row_bytes {
            0..=320 => 4096,
            321..=640 => 8192,
            _ => 16384,
        };
        let entries = (page_bytes - HEADER_BYTES) / (LEAF_SLOT_BYTES + RECORD_BYTES + expected_row_bytes);
        let many_heads = HEADER_BYTES + entries * LEAF_SLOT_BYTES > (FEW_LINES + 1) * LINE_BYTES;
        let record_lines =
            (RECORD_BYTES + expected_row_bytes).div_ceil(LINE_BYTES).clamp(1, RECORD_LINES_MAX);
        TreeConfig { page_bytes, many_heads, record_lines }
    }

    /// Returns true if an expected row takes so many lines that [`locate_ahead`] leaves some of them.
    #[inline(always)]
    fn has_long_rows(&self) -> bool {
        self.record_lines > RECORD_LINES_FEW
    }

    /// Asks for the lines of `node` that a search reads first.
    #[inline(always)]
    fn prefetch_node(&self, node: NodePtr) {
        prefetch_lines::<FEW_LINES, _>(node.address().as_ptr());
        if self.many_heads {
            prefetch_lines::<MORE_LINES, _>(node.address().as_ptr().wrapping_add(FEW_LINES * LINE_BYTES));
        }
    }

    /// Bytes of every page: 4096, 8192 or 16384.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// The longest row that a tree of this layout has in a leaf, in bytes: more than a third of a page. Longer ones are
    /// elsewhere, and the leaf refers to them.
    #[inline]
    #[must_use]
    pub fn leaf_row_bytes(&self) -> usize {
        // With this, any page of entries and one entry more can be cut into two pages: an entry is at most half of
        // what a page has left after its header, the longest prefix, and the rounding of its arrays.
        (self.page_bytes - 1316) / 2
    }
}

impl Default for TreeConfig {
    fn default() -> TreeConfig {
        TreeConfig::for_rows_of(100)
    }
}

/// A row as it is in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowRef<'a> {
    /// The version its writer gave it.
    pub version: u64,
    /// The encoded row.
    pub bytes: &'a [u8],
}

/// A row in a tree, to be changed in place.
pub struct RowMut<'a> {
    leaf: NodePtr,
    index: usize,
    tree: std::marker::PhantomData<&'a mut Tree>,
}

impl RowMut<'_> {
    /// The version.
    #[inline]
    #[must_use]
    pub fn version(&self) -> u64 {
        self.leaf.version(self.index)
    }

    /// Sets the version.
    #[inline]
    pub fn set_version(&mut self, version: u64) {
        self.leaf.set_version(self.index, version);
    }

    /// The encoded row.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.leaf.row(self.index)
    }

    /// The encoded row, for writing; its length stays.
    #[inline]
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.leaf.row_mut(self.index)
    }
}

/// The B+-tree of one partition: byte-string keys to rows with versions.
///
/// A tree holds at most 2^32 - 1 rows.
pub struct Tree {
    config: TreeConfig,
    root: NodePtr,
    /// Levels of inner nodes above the leaves.
    inner_levels: usize,
    rows: u64,
    stamp: Stamp,
    pages: Pages,
    /// Changes that may still be undone and would need pages for it, which are set aside (see `undo`).
    pending: usize,
    /// A change is being undone: it takes what was set aside.
    undoing: bool,
    /// Set once there was a row, here or in a tree that was joined to this one, that is not in a leaf.
    has_had_long_rows: bool,
    /// The latest insert, behind which the next one is looked for first.
    latest: run::LatestInsert,
    scratch: Option<Box<Scratch>>,
    /// Shared with the trees that have the same nodes while the tree is lent, or borrowed.
    lent: Option<Arc<()>>,
    /// The pass of a relocation that is under way.
    pass: Option<Box<relocate::Pass>>,
}

// SAFETY: a tree exclusively owns its pages, wherever it is, or nobody writes them (`lend`); chunks it shares with other trees are only kept alive.
unsafe impl Send for Tree {}
// SAFETY: a shared tree is only read; there is no interior mutability.
unsafe impl Sync for Tree {}

/// The way down to a leaf: per inner level, from the bottom up, the node and the index of the child taken.
struct Path {
    steps: [MaybeUninit<(NodePtr, usize)>; MAX_HEIGHT],
    len: usize,
}

impl Path {
    const fn new() -> Path {
        Path { steps: [const { MaybeUninit::uninit() }; MAX_HEIGHT], len: 0 }
    }

    /// Becomes the way from `root` down `levels` inner levels to the leaf where `key` belongs, which it returns. It is written
    /// where it is, since it is long.
    #[inline]
    fn lead(&mut self, root: NodePtr, levels: usize, config: &TreeConfig, key: &SearchKey<'_>) -> NodePtr {
        let mut node = root;
        self.len = levels;
        for step in self.steps[..levels].iter_mut().rev() {
            let index = node.child_index_for::<true>(key);
            step.write((node, index));
            node = node.child(index);
            config.prefetch_node(node);
        }
        node
    }

    #[inline(always)]
    fn steps(&self) -> &[(NodePtr, usize)] {
        // SAFETY: the descent has set one step per inner level, and there are `len` of them.
        unsafe { self.steps[..self.len].assume_init_ref() }
    }
}

impl Tree {
    /// Returns true if rows take so many lines of memory that a look-up [ahead](locate_ahead) leaves some of them.
    #[inline]
    #[must_use]
    pub fn has_long_rows(&self) -> bool {
        self.config.has_long_rows()
    }

    /// Bytes of the lines of memory that the rows take, as far as a look-up fetches them: what competes for a cache.
    #[must_use]
    pub fn line_bytes(&self) -> u64 {
        self.rows * (self.config.record_lines * LINE_BYTES) as u64
    }

    /// An empty tree that takes its pages from `memory`. It takes none before the first row.
    #[must_use]
    pub fn new(config: TreeConfig, memory: Arc<dyn Memory>) -> Tree {
        Tree::of_pages(config, Pages::new(config.page_bytes, memory))
    }

    /// An empty tree for a few rows, like [`new`](Tree::new): it begins with a chunk of one page. Many such trees at once are
    /// apart by no more than their pages; as far apart as chunks are, their pages would compete for the same lines of a
    /// cache.
    #[must_use]
    pub fn for_few_rows(config: TreeConfig, memory: Arc<dyn Memory>) -> Tree {
        Tree::of_pages(config, Pages::beginning_with(config.page_bytes, config.page_bytes, memory))
    }

    fn of_pages(config: TreeConfig, pages: Pages) -> Tree {
        Tree {
            config,
            root: NodePtr::empty_leaf(),
            inner_levels: 0,
            rows: 0,
            stamp: Stamp::new(),
            pages,
            pending: 0,
            undoing: false,
            has_had_long_rows: false,
            latest: run::LatestInsert::none(),
            scratch: None,
            lent: None,
            pass: None,
        }
    }

    /// The layout.
    #[must_use]
    pub fn config(&self) -> TreeConfig {
        self.config
    }

    /// The number of rows.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.rows
    }

    /// Returns whether there are no rows.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The number of levels: 1 when there is only a leaf.
    #[must_use]
    pub fn height(&self) -> usize {
        self.inner_levels + 1
    }

    /// Takes further pages from `memory`, for a partition that moves to another memory node. What is stored stays where
    /// it is until it is written anew or [relocated](Tree::relocate).
    pub fn allocate_from(&mut self, memory: Arc<dyn Memory>) {
        self.pass = None;
        self.pages.allocate_from(memory);
    }

    // ---- descent ----

    /// The leaf where `key` belongs.
    #[inline(always)]
    fn leaf_of(&self, key: &SearchKey<'_>) -> NodePtr {
        let mut node = self.root;
        for _ in 0..self.inner_levels {
            node = node.child(node.child_index(key));
            self.config.prefetch_node(node);
        }
        node
    }

    /// The leaf where `key` belongs, and the way there.
    #[inline]
    fn path_of(&self, key: &SearchKey<'_>) -> (NodePtr, Path) {
        let mut path = Path::new();
        (path.lead(self.root, self.inner_levels, &self.config, key), path)
    }

    fn first_leaf(&self) -> NodePtr {
        (0..self.inner_levels).fold(self.root, |node, _| node.child(0))
    }

    fn last_leaf(&self) -> NodePtr {
        (0..self.inner_levels).fold(self.root, |node, _| node.child(node.count()))
    }

    // ---- point access ----

    /// The row with `key`.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<RowRef<'_>> {
        let key = SearchKey::new(key);
        let leaf = self.leaf_of(&key);
        let slot = leaf.find(&key);
        slot.found.then(|| row_ref(leaf, slot.index))
    }

    /// Returns whether there is a row with `key`.
    #[inline]
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.get(key).is_some()
    }

    /// The row with `key`, to be changed in place.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, key: &[u8]) -> Option<RowMut<'_>> {
        let position = self.locate(key);
        self.row_at_mut(position, key)
    }

    /// Finds the position that `key` has, or would have.
    #[inline]
    #[must_use]
    pub fn locate(&self, key: &[u8]) -> Position {
        let key = SearchKey::new(key);
        let leaf = self.leaf_of(&key);
        self.position_in(leaf, &key)
    }

    #[inline(always)]
    fn position_in(&self, leaf: NodePtr, key: &SearchKey<'_>) -> Position {
        let candidate = leaf.candidate(key);
        if candidate.possible {
            leaf.prefetch_record(candidate.index, self.config.record_lines);
        }
        let slot = leaf.find_at(candidate, key);
        Position::new(leaf, self.stamp.get(), slot)
    }

    /// `position`, which was located for `key` in this tree, if it is good; otherwise where `key` is now.
    #[inline(always)]
    #[must_use]
    pub fn refreshed(&self, position: Position, key: &[u8]) -> Position {
        if position.stamp == self.stamp.get() { position } else { self.locate(key) }
    }

    /// The row at `position`, which was located for `key` in this tree: without another descent while the position is
    /// good, with one when it is not.
    #[inline]
    #[must_use]
    pub fn row_at(&self, position: Position, key: &[u8]) -> Option<RowRef<'_>> {
        let position = self.refreshed(position, key);
        position.is_found().then(|| row_ref(position.leaf, position.index()))
    }

    /// The row at `position`, which was located for `key` in this tree, to be changed in place.
    #[inline]
    #[must_use]
    pub fn row_at_mut(&mut self, position: Position, key: &[u8]) -> Option<RowMut<'_>> {
        let position = self.refreshed(position, key);
        self.found_mut(position)
    }

    /// The row that was found at `position`, to be changed in place; `None` if none was, or the position is not good any more.
    #[inline]
    #[must_use]
    pub fn found_mut(&mut self, position: Position) -> Option<RowMut<'_>> {
        self.assert_unlent();
        let is_there = position.is_found() && position.stamp == self.stamp.get();
        is_there.then(|| RowMut {
            leaf: position.leaf,
            index: position.index(),
            tree: std::marker::PhantomData,
        })
    }

    // ---- pages ----

    /// A new, empty node at `level` of a page that was reserved.
    fn take_node(&mut self, level: u8) -> NodePtr {
        let page = self.pages.take();
        // SAFETY: the page was just taken out of the allocator, which aligns pages and keeps their chunk alive.
        unsafe { NodePtr::init(page, self.config.page_bytes, level) }
    }

    fn take_scratch(&mut self) -> Box<Scratch> {
        self.scratch.take().unwrap_or_default()
    }

    fn put_scratch(&mut self, mut scratch: Box<Scratch>) {
        scratch.leaf.clear();
        scratch.children.clear();
        self.scratch = Some(scratch);
    }

    /// Drops roots that have a single child.
    fn lower_root(&mut self) {
        self.root = self.lowered(self.root);
        self.inner_levels = usize::from(self.root.level());
    }

    /// The node to which `node` leads without a choice; the pages on the way are given back.
    fn lowered(&mut self, node: NodePtr) -> NodePtr {
        let mut node = node;
        while !node.is_leaf() && node.count() == 0 {
            let child = node.child(0);
            self.pages.give(node);
            node = child;
        }
        node
    }

    /// Makes sure of `pages` pages before a change that must not fail half-way, besides those that are set aside.
    fn reserve(&mut self, pages: usize) -> Result<(), OutOfMemory> {
        if self.undoing { Ok(()) } else { self.pages.reserve(pages + self.set_aside_pages()) }
    }
}

#[inline(always)]
fn row_ref<'a>(leaf: NodePtr, index: usize) -> RowRef<'a> {
    RowRef { version: leaf.version(index), bytes: leaf.row(index) }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree")
            .field("rows", &self.rows)
            .field("height", &self.height())
            .finish_non_exhaustive()
    }
}
