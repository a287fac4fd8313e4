//! Memory of a database: where its trees take it from, and how much of it is prepared ahead.
//!
//! Owns: the adapter from the memory of the runtime (huge pages, placement near a worker) to the trees of the storage
//! ([`TreeMemory`]), and the stock and its thread of one database ([`DatabaseMemory`]). Never: decides how much is prepared for
//! tables that grow.

#![expect(
    unsafe_code,
    reason = "the storage takes its memory through an unsafe trait, and only this file knows both sides of it"
)]

use std::alloc::Layout;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use atrapos_runtime::WorkerId;
use atrapos_runtime::memory::{
    HUGE_PAGE_BYTES, HugeChunks, MemoryThread, MemoryWarning, PreparedChunks, PreparedStatistics,
};
use atrapos_storage::Memory;

use crate::builder::OpenError;

/// Memory for trees in huge pages where they can be had, preferably from one memory node: that of the worker that owns them.
#[derive(Debug)]
pub struct TreeMemory {
    chunks: Arc<PreparedChunks>,
    node: Option<usize>,
}

impl TreeMemory {
    /// Memory from `chunks`, preferably of memory node `node`.
    #[must_use]
    pub fn new(chunks: Arc<PreparedChunks>, node: Option<usize>) -> TreeMemory {
        TreeMemory { chunks, node }
    }
}

// SAFETY: `PreparedChunks` hands out every chunk once, of at least the size and alignment asked for, and unmaps it only when it
// is freed.
unsafe impl Memory for TreeMemory {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.chunks.allocate(layout.size(), layout.align(), self.node).ok()
    }

    unsafe fn free(&self, address: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller promises that the chunk came from `allocate` with this layout and that nothing uses it.
        unsafe { self.chunks.free(address, layout.size()) };
    }

    fn node(&self) -> Option<usize> {
        self.node
    }
}

/// Memory that takes itself for that of a memory node: each simulated worker has a node of its own, so that pages follow the partitions that move.
pub(crate) struct NodeMemory {
    memory: Arc<dyn Memory>,
    node: usize,
}

impl NodeMemory {
    /// Takes memory from `memory` for node `node`.
    pub(crate) fn new(memory: Arc<dyn Memory>, node: usize) -> NodeMemory {
        NodeMemory { memory, node }
    }
}

// SAFETY: it is handed through from `memory`, and given back to it.
unsafe impl Memory for NodeMemory {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.memory.allocate(layout)
    }

    unsafe fn free(&self, address: NonNull<u8>, layout: Layout) {
        // SAFETY: the promise of the caller.
        unsafe { self.memory.free(address, layout) };
    }

    fn node(&self) -> Option<usize> {
        Some(self.node)
    }
}

/// The memory of the workers of one database.
#[derive(Debug)]
pub(crate) struct DatabaseMemory {
    chunks: Arc<PreparedChunks>,
    /// The memory node of each worker, where there is a choice.
    nodes: Vec<Option<usize>>,
    thread: MemoryThread,
}

impl DatabaseMemory {
    /// Starts the thread that prepares chunks of `chunks` for workers of these nodes.
    pub(crate) fn start(chunks: HugeChunks, nodes: Vec<Option<usize>>) -> Result<DatabaseMemory, OpenError> {
        let chunks = Arc::new(PreparedChunks::new(chunks));
        let thread =
            chunks.start().map_err(|error| OpenError::Start(format!("thread 'atrapos-memory': {error}")))?;
        Ok(DatabaseMemory { chunks, nodes, thread })
    }

    /// Returns what trees of each worker allocate from.
    pub(crate) fn of_trees(&self) -> impl Fn(WorkerId) -> Arc<dyn Memory> + Send + Sync + use<> {
        let (chunks, nodes) = (Arc::clone(&self.chunks), self.nodes.clone());
        move |worker| Arc::new(TreeMemory::new(Arc::clone(&chunks), nodes[worker.index()]))
    }

    /// Prepares `bytes`, an even share for each worker, on as many threads as there are shares and cores.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), String> {
        if bytes == 0 {
            return Ok(());
        }
        let available = atrapos_topology::available_memory_bytes(Path::new("/"));
        if let Some(available) = available.filter(|available| bytes > *available) {
            return Err(format!(
                "{bytes} bytes of memory cannot be reserved: {available} are available; reserve less"
            ));
        }
        let share = bytes.div_ceil(self.nodes.len() as u64 * HUGE_PAGE_BYTES as u64) as usize;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(self.nodes.len());
        let prepare = |nodes: &[Option<usize>]| {
            let each = nodes.iter().try_for_each(|node| self.chunks.reserve(share, *node));
            each.map_err(|error| error.to_string())
        };
        std::thread::scope(|scope| {
            let parts = self.nodes.chunks(self.nodes.len().div_ceil(threads));
            let threads: Vec<_> = parts.map(|nodes| scope.spawn(move || prepare(nodes))).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }

    /// Returns counts of prepared chunks since the start.
    pub(crate) fn statistics(&self) -> PreparedStatistics {
        self.chunks.statistics()
    }

    /// Returns the wishes that were refused.
    pub(crate) fn warnings(&self) -> Vec<MemoryWarning> {
        self.chunks.chunks().warnings()
    }

    /// Requests that the thread ends.
    pub(crate) fn stop(&self) {
        self.thread.stop();
    }
}
