//! Chunks that are backed by memory before anybody asks for them: growing tables take them without a page fault.
//!
//! Owns: a stock of chunks of [`HUGE_PAGE_BYTES`] for each memory node, its replenishment, and the thread that does it
//! ([`MemoryThread`]). Never: prepares a chunk of another size; those come straight from [`HugeChunks`], as does a chunk when
//! the stock is empty.
//!
//! The first write to a page makes the kernel find, clear and map it: some 100 us for a huge page, and milliseconds in a
//! virtual machine whose host backs its memory as late. A worker that takes a chunk would pay for it within a transaction.
//!
//! # How much is in stock
//!
//! [`reserve`](PreparedChunks::reserve) prepares as much as it is told. Beyond that, the thread prepares what a node takes
//! within a quarter of a second, by its takes in the last second or two: nothing where nothing grows, and at most
//! [`AHEAD_MAX`] chunks. When takes become fewer, what is beyond both goes back to the operating system.
//!
//! Invariants: a chunk in stock is mapped, backed, and used by nobody. The lock is held for a few instructions, never
//! during a system call.

use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{AllocateError, HUGE_PAGE_BYTES, HugeChunks};

/// The greatest number of chunks that are prepared for a node because it has taken others.
const AHEAD_MAX: usize = 16;
/// The length of the intervals in which takes are counted.
const INTERVAL: Duration = Duration::from_secs(1);
/// The share of an interval whose takes are prepared.
const AHEAD_SHARE: usize = 4;

/// Counts of chunks of [`HUGE_PAGE_BYTES`] since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreparedStatistics {
    /// Chunks in stock now.
    pub in_stock: u64,
    /// Chunks that were taken from the stock.
    pub taken: u64,
    /// Chunks that were taken while the stock was empty: whoever took one pays for its page faults.
    pub taken_unprepared: u64,
}

/// A chunk in stock.
struct Chunk(NonNull<u8>);

// SAFETY: a plain address of memory that nobody uses; it is handed to one owner at a time.
unsafe impl Send for Chunk {}

/// The stock of one memory node, or of memory from anywhere.
struct Stock {
    node: Option<usize>,
    chunks: Vec<Chunk>,
    /// Chunks that [`PreparedChunks::reserve`] has prepared and that were not taken yet.
    reserved: usize,
    /// Takes in the current interval and in the one before.
    takes: [usize; 2],
    interval_began: Instant,
    /// True if no memory was to be had for a further chunk; until the next take.
    refused: bool,
}

impl Stock {
    fn new(node: Option<usize>) -> Stock {
        let (chunks, interval_began) = (Vec::new(), Instant::now());
        Stock { node, chunks, reserved: 0, takes: [0; 2], interval_began, refused: false }
    }

    /// Begins a new interval if the current one is over.
    fn turn(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.interval_began);
        if passed >= INTERVAL {
            self.takes = if passed < 2 * INTERVAL { [0, self.takes[0]] } else { [0; 2] };
            self.interval_began = now;
        }
    }

    /// Returns the number of chunks that are to be in stock.
    fn wanted(&self) -> usize {
        let takes = self.takes[0].max(self.takes[1]);
        takes.div_ceil(AHEAD_SHARE).min(AHEAD_MAX).max(self.reserved)
    }

    fn take(&mut self, now: Instant) -> Option<NonNull<u8>> {
        self.turn(now);
        self.takes[0] += 1;
        self.refused = false;
        let chunk = self.chunks.pop();
        self.reserved = self.reserved.min(self.chunks.len());
        chunk.map(|Chunk(chunk)| chunk)
    }
}

#[derive(Default)]
struct State {
    stocks: Vec<Stock>,
    statistics: PreparedStatistics,
    closed: bool,
}

impl State {
    fn stock(&mut self, node: Option<usize>) -> &mut Stock {
        let at = self.stocks.iter().position(|stock| stock.node == node);
        let at = at.unwrap_or_else(|| {
            self.stocks.push(Stock::new(node));
            self.stocks.len() - 1
        });
        &mut self.stocks[at]
    }
}

/// What the thread does next.
enum Turn {
    /// Prepares a chunk for this node.
    Prepare(Option<usize>),
    /// Gives this chunk back to the operating system.
    Release(Chunk),
    /// Waits: for a take, or for takes to become fewer.
    Wait(Option<Duration>),
    End,
}

/// Chunks in stock, and an allocator for all others. See the module's introduction.
#[derive(Default)]
pub struct PreparedChunks {
    chunks: HugeChunks,
    state: Mutex<State>,
    /// Wakes the thread.
    taken: Condvar,
}

impl std::fmt::Debug for PreparedChunks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreparedChunks")
            .field("chunks", &self.chunks)
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}

impl PreparedChunks {
    /// Returns an empty stock of chunks of `chunks`.
    #[must_use]
    pub fn new(chunks: HugeChunks) -> PreparedChunks {
        PreparedChunks { chunks, state: Mutex::default(), taken: Condvar::new() }
    }

    /// Returns the allocator that the chunks come from.
    #[must_use]
    pub fn chunks(&self) -> &HugeChunks {
        &self.chunks
    }

    /// Returns counts of chunks since the start.
    #[must_use]
    pub fn statistics(&self) -> PreparedStatistics {
        let state = self.lock();
        let in_stock = state.stocks.iter().map(|stock| stock.chunks.len() as u64).sum();
        PreparedStatistics { in_stock, ..state.statistics }
    }

    /// Allocates like [`HugeChunks::allocate`], from the stock if it has such a chunk. The content is undefined.
    ///
    /// # Errors
    /// The errors of [`HugeChunks::allocate`].
    pub fn allocate(
        &self,
        bytes: usize,
        align: usize,
        node: Option<usize>,
    ) -> Result<NonNull<u8>, AllocateError> {
        self.allocate_at(Instant::now(), bytes, align, node)
    }

    fn allocate_at(
        &self,
        now: Instant,
        bytes: usize,
        align: usize,
        node: Option<usize>,
    ) -> Result<NonNull<u8>, AllocateError> {
        if bytes != HUGE_PAGE_BYTES || align > HUGE_PAGE_BYTES {
            return self.chunks.allocate(bytes, align, node);
        }
        let mut state = self.lock();
        let found = state.stock(node).take(now);
        state.statistics.taken += u64::from(found.is_some());
        state.statistics.taken_unprepared += u64::from(found.is_none());
        drop(state);
        self.taken.notify_one();
        found.map_or_else(|| self.chunks.allocate(bytes, HUGE_PAGE_BYTES, node), Ok)
    }

    /// Gives a chunk back to the operating system.
    ///
    /// # Safety
    /// That of [`HugeChunks::free`], for a chunk from [`allocate`](Self::allocate).
    pub unsafe fn free(&self, chunk: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise; chunks of the stock come from `self.chunks` with this size.
        unsafe { self.chunks.free(chunk, bytes) };
    }

    /// Prepares `count` chunks for `node`, besides those in stock.
    ///
    /// # Errors
    /// The errors of [`HugeChunks::allocate`]; what was prepared until then stays.
    pub fn reserve(&self, count: usize, node: Option<usize>) -> Result<(), AllocateError> {
        for _ in 0..count {
            let chunk = self.prepare(node)?;
            let mut state = self.lock();
            let stock = state.stock(node);
            stock.chunks.push(chunk);
            stock.reserved += 1;
        }
        Ok(())
    }

    fn prepare(&self, node: Option<usize>) -> Result<Chunk, AllocateError> {
        let chunk = self.chunks.allocate(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES, node)?;
        // SAFETY: the chunk was allocated just now, with this size.
        unsafe { super::os::populate(chunk, HUGE_PAGE_BYTES) };
        Ok(Chunk(chunk))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete within one critical section.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread that replenishes the stock.
    ///
    /// # Errors
    /// That of the system if there is no further thread.
    pub fn start(self: &Arc<Self>) -> std::io::Result<MemoryThread> {
        let prepared = Arc::clone(self);
        let thread = thread::Builder::new().name("atrapos-memory".to_owned());
        let thread = thread.spawn(move || prepared.replenish())?;
        Ok(MemoryThread { prepared: Arc::clone(self), thread: Some(thread) })
    }

    /// Runs the loop of the thread.
    fn replenish(&self) {
        let mut state = self.lock();
        loop {
            match next_turn(&mut state, Instant::now()) {
                Turn::End => return,
                Turn::Wait(None) => {
                    state = self.taken.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                Turn::Wait(Some(time)) => {
                    let waited = self.taken.wait_timeout(state, time);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                Turn::Release(Chunk(chunk)) => {
                    drop(state);
                    // SAFETY: the chunk has left the stock, has this size, and nobody uses it.
                    unsafe { self.chunks.free(chunk, HUGE_PAGE_BYTES) };
                    state = self.lock();
                }
                Turn::Prepare(node) => {
                    drop(state);
                    let prepared = self.prepare(node);
                    state = self.lock();
                    let stock = state.stock(node);
                    match prepared {
                        Ok(chunk) => stock.chunks.push(chunk),
                        // The next take meets the error itself, or finds that there is memory again.
                        Err(_) => stock.refused = true,
                    }
                }
            }
        }
    }
}

/// Decides what the thread does next.
fn next_turn(state: &mut State, now: Instant) -> Turn {
    if state.closed {
        return Turn::End;
    }
    state.stocks.iter_mut().for_each(|stock| stock.turn(now));
    let lacks = |stock: &&Stock| !stock.refused && stock.chunks.len() < stock.wanted();
    if let Some(stock) = state.stocks.iter().find(lacks) {
        return Turn::Prepare(stock.node);
    }
    // Takes of the last interval count for one more, so that a surplus is one of at least an interval.
    let has_surplus = |stock: &&mut Stock| stock.chunks.len() > stock.wanted();
    if let Some(chunk) = state.stocks.iter_mut().find(has_surplus).and_then(|stock| stock.chunks.pop()) {
        return Turn::Release(chunk);
    }
    let settles = |stock: &Stock| stock.takes == [0; 2];
    Turn::Wait((!state.stocks.iter().all(settles)).then_some(INTERVAL))
}

impl Drop for PreparedChunks {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for Chunk(chunk) in state.stocks.iter_mut().flat_map(|stock| stock.chunks.drain(..)) {
            // SAFETY: the chunk is in stock, so nobody uses it, and leaves it here.
            unsafe { self.chunks.free(chunk, HUGE_PAGE_BYTES) };
        }
    }
}

/// The thread that prepares chunks; dropping it ends it.
#[derive(Debug)]
pub struct MemoryThread {
    prepared: Arc<PreparedChunks>,
    thread: Option<thread::JoinHandle<()>>,
}

impl MemoryThread {
    /// Requests that the thread ends: after at most one more chunk.
    pub fn stop(&self) {
        self.prepared.lock().closed = true;
        self.prepared.taken.notify_one();
    }
}

impl Drop for MemoryThread {
    fn drop(&mut self) {
        self.stop();
        // One that panicked has nothing left to do either.
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> PreparedChunks {
        PreparedChunks::new(HugeChunks::new(super::super::MemoryOptions::plain()))
    }

    fn take(prepared: &PreparedChunks, now: Instant) -> NonNull<u8> {
        prepared.allocate_at(now, HUGE_PAGE_BYTES, 4096, None).expect("memory")
    }

    fn free(prepared: &PreparedChunks, chunks: Vec<NonNull<u8>>) {
        for chunk in chunks {
            // SAFETY: allocated with this size, and used by nobody.
            unsafe { prepared.free(chunk, HUGE_PAGE_BYTES) };
        }
    }

    #[test]
    fn what_is_reserved_is_taken_first_and_is_writable() {
        let prepared = plain();
        prepared.reserve(3, None).expect("memory");
        assert_eq!(prepared.statistics().in_stock, 3);
        let now = Instant::now();
        let chunks: Vec<_> = (0..4).map(|_| take(&prepared, now)).collect();
        let mut distinct = chunks.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), 4);
        for chunk in &chunks {
            assert!(chunk.addr().get().is_multiple_of(HUGE_PAGE_BYTES));
            // SAFETY: the chunk is ours and this long.
            let bytes = unsafe { std::slice::from_raw_parts_mut(chunk.as_ptr(), HUGE_PAGE_BYTES) };
            bytes.fill(0x5a);
        }
        let expected = PreparedStatistics { in_stock: 0, taken: 3, taken_unprepared: 1 };
        assert_eq!(prepared.statistics(), expected);
        free(&prepared, chunks);
    }

    #[test]
    fn other_sizes_and_other_nodes_leave_the_stock_alone() {
        let prepared = plain();
        prepared.reserve(1, None).expect("memory");
        let small = prepared.allocate(4096, 4096, None).expect("memory");
        let of_node = prepared.allocate(HUGE_PAGE_BYTES, 64, Some(0)).expect("memory");
        assert_eq!(prepared.statistics().in_stock, 1);
        // SAFETY: allocated with these sizes, and used by nobody.
        unsafe {
            prepared.free(small, 4096);
            prepared.free(of_node, HUGE_PAGE_BYTES);
        }
    }

    /// Returns the turns of the thread, without waits, from `now` on.
    fn turns(prepared: &PreparedChunks, now: Instant) -> (usize, usize) {
        let (mut made, mut released) = (0, 0);
        let mut state = prepared.lock();
        loop {
            match next_turn(&mut state, now) {
                Turn::Prepare(node) => {
                    made += 1;
                    let chunk = prepared.prepare(node).expect("memory");
                    state.stock(node).chunks.push(chunk);
                }
                Turn::Release(Chunk(chunk)) => {
                    released += 1;
                    free(prepared, vec![chunk]);
                }
                Turn::Wait(_) | Turn::End => return (made, released),
            }
        }
    }

    #[test]
    fn the_stock_follows_the_takes() {
        let prepared = plain();
        let now = Instant::now();
        assert_eq!(turns(&prepared, now), (0, 0), "nothing grows");
        let taken: Vec<_> = (0..20).map(|_| take(&prepared, now)).collect();
        assert_eq!(turns(&prepared, now), (5, 0), "a quarter of an interval's takes");
        let later = now + INTERVAL + INTERVAL / 2;
        assert_eq!(turns(&prepared, later), (0, 0), "the last interval's takes count");
        assert_eq!(turns(&prepared, later + 2 * INTERVAL), (0, 5), "nothing grows any more");
        free(&prepared, taken);
    }

    #[test]
    fn what_is_reserved_stays_and_the_number_ahead_is_limited() {
        let prepared = plain();
        prepared.reserve(3, None).expect("memory");
        let now = Instant::now();
        let taken: Vec<_> = (0..100).map(|_| take(&prepared, now)).collect();
        assert_eq!(turns(&prepared, now), (AHEAD_MAX, 0));
        prepared.reserve(2, None).expect("memory");
        let idle = now + 4 * INTERVAL;
        assert_eq!(turns(&prepared, idle), (0, AHEAD_MAX));
        assert_eq!(prepared.statistics().in_stock, 2);
        free(&prepared, taken);
    }

    #[test]
    fn the_thread_replenishes_and_ends() {
        let prepared = Arc::new(plain());
        let thread = prepared.start().expect("a thread");
        let mut taken = vec![take(&prepared, Instant::now())];
        while prepared.statistics().in_stock == 0 {
            thread::yield_now();
        }
        taken.push(take(&prepared, Instant::now()));
        assert_eq!(prepared.statistics().taken, 1);
        thread.stop();
        drop(thread);
        free(&prepared, taken);
    }
}
