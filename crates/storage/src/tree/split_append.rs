//! Cutting a tree in two and joining two trees: what repartitioning is made of.
//!
//! Owns the operations on the edges of trees. Both touch a bounded number of nodes per level, whatever the number of
//! rows (ATraPos §V-A, thesis §4.3), and both count what they touch.
//!
//! Both can be made sure of beforehand (`prepare_split`, `prepare_append`): a change of several trees that may not fail half-way
//! prepares all of them first.
//!
//! A cut leaves thin nodes along it. Joining heals them: from the leaves up, the two nodes that meet are merged when one
//! page holds both, so that cutting and joining in turn does not wear a tree out.

use super::insert::recount;
use super::pack::{Scratch, shortest_separator};
use super::remove::{merge_inner, merge_leaves};
use super::{MAX_HEIGHT, Tree};
use crate::key::KeyBuf;
use crate::memory::OutOfMemory;
use crate::node::{NodePtr, SearchKey};
use thiserror::Error;

/// Reasons for which two trees were not joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AppendRefusal {
    /// A key of the left tree is not smaller than all of the right.
    #[error("the key ranges of the two trees overlap; append only a tree whose keys are all greater")]
    Overlap,
    /// The trees have pages of different sizes.
    #[error("the trees have pages of {left} and {right} bytes; rebuild one with the layout of the other")]
    PageSize {
        /// Bytes of a page of the left tree.
        left: usize,
        /// Bytes of a page of the right tree.
        right: usize,
    },
    /// Together they have more rows or levels than one tree can.
    #[error("the two trees together are too large for one; leave them apart")]
    TooLarge,
    /// No memory for the nodes on top.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// Two trees that were not joined: the right one comes back, both are as they were.
#[derive(Debug, Error)]
#[error("{reason}")]
pub struct AppendError {
    /// The tree that was to be appended.
    pub tree: Box<Tree>,
    /// The reason.
    #[source]
    pub reason: AppendRefusal,
}

/// The two parts of a node that was cut, either of which may be nothing.
struct Halves {
    left: Option<NodePtr>,
    right: Option<NodePtr>,
}

impl Tree {
    /// Makes sure that the next [`split_off`](Tree::split_off) succeeds, if nothing else is changed before.
    ///
    /// # Errors
    /// When there is no memory for one node per level.
    pub fn prepare_split(&mut self) -> Result<(), OutOfMemory> {
        self.reserve(self.height())
    }

    /// Moves the rows with keys not less than `key` into a new tree. Returns it with the number of nodes that were read
    /// or written. What is set aside for changes that may be undone stays here, to be [ceded](Tree::cede).
    ///
    /// # Errors
    /// When there is no memory for one node per level; nothing was changed then.
    pub fn split_off(&mut self, key: &[u8]) -> Result<(Tree, usize), OutOfMemory> {
        self.assert_unlent();
        self.prepare_split()?;
        let search = SearchKey::new(key);
        let (leaf, path) = self.path_of(&search);
        let mut touched = 0;
        let mut scratch = self.take_scratch();
        let mut halves = self.cut_leaf(leaf, &search, &mut scratch, &mut touched);
        for &(node, index) in path.steps() {
            halves = self.cut_inner(node, index, halves, &mut scratch, &mut touched);
        }
        self.put_scratch(scratch);

        let mut right = Tree::of_pages(self.config, self.pages.split());
        right.has_had_long_rows = self.has_had_long_rows;
        right.adopt(halves.right, self.inner_levels);
        self.adopt(halves.left, self.inner_levels);
        // The right tree has no page to give back a root with one child to, but a free list takes any page.
        right.lower_root();
        self.lower_root();
        self.stamp.advance();
        Ok((right, touched))
    }

    /// Makes `root`, or nothing, what the tree consists of.
    fn adopt(&mut self, root: Option<NodePtr>, inner_levels: usize) {
        (self.root, self.inner_levels) = match root {
            Some(root) => (root, inner_levels),
            None => (NodePtr::empty_leaf(), 0),
        };
        self.rows = self.root.total_rows();
    }

    fn cut_leaf(
        &mut self,
        leaf: NodePtr,
        key: &SearchKey<'_>,
        scratch: &mut Scratch,
        touched: &mut usize,
    ) -> Halves {
        *touched += 1;
        let (index, count) = (leaf.find(key).index, leaf.count());
        let (prev, next) = (leaf.prev(), leaf.next());
        if index == 0 {
            if let Some(prev) = prev {
                *touched += 1;
                prev.link(None);
                leaf.unlink_prev();
            }
            return Halves { left: None, right: (count > 0).then_some(leaf) };
        }
        if index == count {
            leaf.link(None);
            if let Some(next) = next {
                *touched += 1;
                next.unlink_prev();
            }
            return Halves { left: Some(leaf), right: None };
        }
        let right = self.take_node(0);
        *touched += 1 + usize::from(next.is_some());
        let list = &mut scratch.leaf;
        list.clear();
        list.unpack(leaf);
        list.pack(0..index, leaf, self.config.page_bytes);
        list.pack(index..count, right, self.config.page_bytes);
        right.link(next);
        leaf.link(None);
        Halves { left: Some(leaf), right: Some(right) }
    }

    /// Cuts an inner node at child `index`, which was cut into `halves`.
    fn cut_inner(
        &mut self,
        node: NodePtr,
        index: usize,
        halves: Halves,
        scratch: &mut Scratch,
        touched: &mut usize,
    ) -> Halves {
        *touched += 1;
        if index == 0 && halves.left.is_none() {
            node.set_rows(0, node.child(0).total_rows() as u32);
            return Halves { left: None, right: Some(node) };
        }
        if index == node.count() && halves.right.is_none() {
            node.set_rows(index, node.child(index).total_rows() as u32);
            return Halves { left: Some(node), right: None };
        }
        let list = &mut scratch.children;
        list.clear();
        list.unpack(node, &[]);
        let children = list.len();
        let (left_end, right_begin) = match (halves.left, halves.right) {
            (Some(left), Some(right)) => {
                list.replace(index, left);
                list.insert(index + 1, &[], right, right.total_rows() as u32);
                (index + 1, index + 1)
            }
            (Some(left), None) => {
                list.replace(index, left);
                (index + 1, index + 1)
            }
            (None, Some(right)) => {
                list.replace(index, right);
                (index, index)
            }
            // Only a tree without rows has a child without halves, and that one has no inner node.
            (None, None) => (index, index),
        };
        let children = children + usize::from(halves.left.is_some() && halves.right.is_some());
        let right = self.take_node(node.level());
        *touched += 1;
        list.pack(0..left_end, node, self.config.page_bytes);
        list.pack(right_begin..children, right, self.config.page_bytes);
        Halves { left: Some(node), right: Some(right) }
    }

    /// Appends `right`, whose keys are all greater than those here. Returns the number of nodes read or written.
    ///
    /// # Errors
    /// When the key ranges overlap, the layouts differ, the result would be too large, or memory is out. The right tree
    /// comes back, and nothing was changed.
    pub fn append(&mut self, mut right: Tree) -> Result<usize, AppendError> {
        self.assert_unlent();
        right.assert_unlent();
        if let Err(reason) = self.prepare_append(&right) {
            return Err(AppendError { tree: Box::new(right), reason });
        }
        self.pending += std::mem::take(&mut right.pending);
        self.has_had_long_rows |= right.has_had_long_rows;
        let (Some(last), Some(first)) = (self.last_key(), right.first_key()) else {
            return Ok(self.append_with_nothing(right));
        };
        let pages = std::mem::replace(&mut right.pages, self.pages.split());
        self.pages.join(pages);
        let separator = shortest_separator(&last, &first);
        Ok(self.join(&right, separator))
    }

    /// Makes sure that the next [`append`](Tree::append) of `right` succeeds, if nothing else is changed before.
    ///
    /// # Errors
    /// As for [`append`](Tree::append).
    pub fn prepare_append(&mut self, right: &Tree) -> Result<(), AppendRefusal> {
        let (ours, theirs) = (self.config.page_bytes, right.config.page_bytes);
        if ours != theirs {
            return Err(AppendRefusal::PageSize { left: ours, right: theirs });
        }
        let height = self.height().max(right.height());
        let (mut pages, pending) = (0, self.pending + right.pending);
        if let (Some(last), Some(first)) = (self.last_key(), right.first_key()) {
            if last >= first {
                return Err(AppendRefusal::Overlap);
            }
            let rows = self.rows + right.rows + pending as u64;
            if height >= MAX_HEIGHT || rows > u64::from(u32::MAX) {
                return Err(AppendRefusal::TooLarge);
            }
            pages = height + 1;
        }
        // What is set aside here and there is enough for trees that may be lower.
        pages += Tree::pages_to_undo(pending, height);
        Ok(self.pages.reserve(pages.saturating_sub(right.pages.available()))?)
    }

    /// Appends when at least one of the trees has no rows.
    fn append_with_nothing(&mut self, right: Tree) -> usize {
        if self.is_empty() {
            self.root = right.root;
            self.inner_levels = right.inner_levels;
            self.rows = right.rows;
        }
        self.pages.join(right.pages);
        self.stamp.advance();
        1
    }

    /// Joins the nodes of `right`, whose pages are ours already, to those here.
    fn join(&mut self, right: &Tree, separator: KeyBuf) -> usize {
        let mut scratch = self.take_scratch();
        let mut touched = 0;
        let rows = self.rows + right.rows;
        let left_edge = edge(self.root, self.inner_levels, NodePtr::count);
        let right_edge = edge(right.root, right.inner_levels, |_| 0);
        let (last_leaf, first_leaf) = (left_edge[0], right_edge[0]);
        last_leaf.link(Some(first_leaf));

        // From the leaves up: what of the right edge goes into the left one, and what stays.
        let mut separator = separator;
        let mut child_gone = false;
        let mut kept = None;
        for (level, &node) in right_edge.iter().enumerate() {
            touched += 1;
            let left = left_edge.get(level).copied();
            if let Some(left) = left.filter(|left| !left.is_leaf()) {
                // The last child may have taken rows over one level below.
                recount_last(left);
            }
            if child_gone {
                if node.count() == 0 {
                    self.pages.give(node);
                    continue;
                }
                separator = node.key(0);
                node.remove_child(0);
            } else if let Some(below) = level.checked_sub(1) {
                // The first child is still there, but may have lost a child of its own.
                node.set_rows(0, right_edge[below].total_rows() as u32);
            }
            child_gone = false;
            if let Some(left) = left {
                touched += 1;
                child_gone = self.merge_edges(left, node, &separator, &mut scratch);
                if child_gone {
                    self.pages.give(node);
                }
            }
            kept = if child_gone { None } else { Some(node) };
        }
        for &node in left_edge.iter().skip(right_edge.len()) {
            touched += 1;
            recount_last(node);
        }
        match kept {
            None => {}
            Some(root) => self.join_roots(root, &separator, &mut scratch, &mut touched),
        }
        self.rows = rows;
        self.put_scratch(scratch);
        self.lower_root();
        self.stamp.advance();
        touched
    }

    /// Merges two nodes that meet, if one page holds both; tells whether it does.
    fn merge_edges(&self, left: NodePtr, right: NodePtr, separator: &[u8], scratch: &mut Scratch) -> bool {
        let page_bytes = self.config.page_bytes;
        if left.is_leaf() {
            merge_leaves(left, right, page_bytes, page_bytes, scratch)
        } else {
            merge_inner(left, right, separator, page_bytes, page_bytes, scratch)
        }
    }

    /// Brings the root of the left tree and `right`, what is left of the right one, under one root.
    fn join_roots(&mut self, right: NodePtr, separator: &[u8], scratch: &mut Scratch, touched: &mut usize) {
        let right = self.lowered(right);
        let (left_level, right_level) = (self.inner_levels, usize::from(right.level()));
        let left = self.root;
        if left_level == right_level {
            *touched += 1;
            self.grow_root(separator, left, right);
        } else if left_level > right_level {
            // The edge as it is now: nodes of it may have taken over others.
            let left_edge = edge(left, left_level, NodePtr::count);
            let steps: Vec<_> =
                left_edge[right_level + 1..].iter().map(|&node| (node, node.count())).collect();
            *touched += steps.len();
            self.insert_into_parents(&steps, separator, left_edge[right_level], right, scratch);
        } else {
            // The left tree becomes the first child of the first node above its level: the present first child moves to
            // the right of it.
            let right_edge = edge(right, right_level, |_| 0);
            let steps: Vec<_> = right_edge[left_level + 1..].iter().map(|&node| (node, 0)).collect();
            *touched += steps.len();
            let first = steps[0].0.child(0);
            steps[0].0.set_child(0, left);
            self.root = right;
            self.inner_levels = right_level;
            self.insert_into_parents(&steps, separator, left, first, scratch);
        }
    }
}

/// The nodes at one edge of a tree, from the leaf up.
fn edge(root: NodePtr, inner_levels: usize, child: impl Fn(NodePtr) -> usize) -> Vec<NodePtr> {
    let mut nodes = vec![root];
    for _ in 0..inner_levels {
        let node = nodes[nodes.len() - 1];
        nodes.push(node.child(child(node)));
    }
    nodes.reverse();
    nodes
}

/// Counts the rows below the last child of an inner node anew.
fn recount_last(node: NodePtr) {
    recount(&[(node, node.count())]);
}
