//! Chunks of memory straight from the operating system: aligned, huge-paged and near a memory node where it can be had.
//!
//! Owns: `mmap`, `munmap`, `madvise` and `mbind`, and remembering which wishes were refused. [`PreparedChunks`] has
//! those that are backed by memory before they are asked for.
//!
//! Never: fails because a wish was refused. Huge pages and nearness are best effort: a kernel or container that refuses
//! them gives plain memory and one warning per kind of refusal. Only memory itself can be refused with an error.
//!
//! Invariants: a chunk is zeroed, starts at a multiple of its alignment, and its pages belong to nobody else until it is
//! freed with the size it was allocated with. Physical memory is taken when a page is first written, by the policy of
//! the chunk (near its node if bound, else near the writing thread), not when the chunk is allocated. How much memory there
//! is to have is not known here: reading limits from files is the topology crate's business.

mod prepared;

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Mutex;

pub use self::prepared::{MemoryThread, PreparedChunks, PreparedStatistics};

/// The size and alignment of a huge page: 2 MiB on every supported processor with 4 KiB base pages. Where a
/// processor's huge pages are larger (64 KiB base pages), the advice is still harmless.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Memory nodes are numbered below this (the Linux maximum); a larger number is refused as a bad node, not passed on.
const NODE_COUNT_MAX: usize = 1024;

/// Requests that an allocator makes of the system. Both are on by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryOptions {
    /// Ask for huge pages for chunks that are a multiple of [`HUGE_PAGE_BYTES`].
    pub huge_pages: bool,
    /// Ask for memory near the node that is named with a chunk.
    pub bind_to_node: bool,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self { huge_pages: true, bind_to_node: true }
    }
}

impl MemoryOptions {
    /// No wishes at all: plain memory.
    #[must_use]
    pub const fn plain() -> Self {
        Self { huge_pages: false, bind_to_node: false }
    }
}

/// Reasons for which a chunk could not be allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocateError {
    /// A chunk of no bytes was asked for.
    ZeroSize,
    /// The alignment is not a power of two.
    BadAlignment {
        /// The alignment that was asked for, in bytes.
        align: usize,
    },
    /// Size and alignment together do not fit the address space.
    TooLarge {
        /// The size that was asked for, in bytes.
        bytes: usize,
        /// The alignment asked for, in bytes.
        align: usize,
    },
    /// The operating system has no such amount of memory to give.
    OutOfMemory {
        /// The size that was asked for, in bytes.
        bytes: usize,
        /// The error number of the refused call.
        errno: i32,
    },
}

impl fmt::Display for AllocateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroSize => f.write_str("cannot allocate a chunk of zero bytes: ask for at least one"),
            Self::BadAlignment { align } => {
                write!(f, "cannot align a chunk to {align} bytes: an alignment is a power of two")
            }
            Self::TooLarge { bytes, align } => {
                write!(f, "cannot allocate {bytes} bytes aligned to {align}: that exceeds the address space")
            }
            Self::OutOfMemory { bytes, errno } => write!(
                f,
                "cannot allocate {bytes} bytes: {}; use less data or raise the memory limit",
                io::Error::from_raw_os_error(*errno)
            ),
        }
    }
}

impl std::error::Error for AllocateError {}

/// A wish that was refused. The memory was given all the same, without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryWarning {
    /// Huge pages are not to be had.
    HugePagesRefused {
        /// The error number of the refused call.
        errno: i32,
    },
    /// Memory near a node is not to be had.
    NodeRefused {
        /// The first node that was refused.
        node: usize,
        /// The error number of the refused call.
        errno: i32,
    },
}

impl MemoryWarning {
    fn is_same_kind(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

impl fmt::Display for MemoryWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HugePagesRefused { errno } => write!(
                f,
                "the kernel refuses huge pages ({}): going on with small ones; set \
                 /sys/kernel/mm/transparent_hugepage/enabled to madvise or switch huge pages off",
                io::Error::from_raw_os_error(*errno)
            ),
            Self::NodeRefused { node, errno } => write!(
                f,
                "the kernel refuses to place memory near node {node} ({}): going on with memory from anywhere; \
                 allow mbind or switch memory placement off",
                io::Error::from_raw_os_error(*errno)
            ),
        }
    }
}

/// Allocates chunks with the same wishes and remembers the refusals. Threads may share it; there is no state on the way
/// of an allocation but a lock taken on a refusal.
#[derive(Debug, Default)]
pub struct HugeChunks {
    options: MemoryOptions,
    warnings: Mutex<Vec<MemoryWarning>>,
}

impl HugeChunks {
    /// An allocator with the given wishes.
    #[must_use]
    pub fn new(options: MemoryOptions) -> Self {
        Self { options, warnings: Mutex::default() }
    }

    /// The wishes it makes.
    #[must_use]
    pub fn options(&self) -> MemoryOptions {
        self.options
    }

    /// Allocates a zeroed chunk of at least `bytes` bytes at a multiple of `align`, preferably near memory node `node`.
    ///
    /// A chunk that is a multiple of [`HUGE_PAGE_BYTES`] is aligned to it and advised to be huge. The address is that of
    /// whole pages: small chunks waste the rest of a page. Free it with [`free`](Self::free) and the same `bytes`.
    ///
    /// # Errors
    /// An [`AllocateError`] for a size or alignment that makes no sense, or when there is no memory. A refused wish is
    /// not an error but a [`MemoryWarning`].
    pub fn allocate(
        &self,
        bytes: usize,
        align: usize,
        node: Option<usize>,
    ) -> Result<NonNull<u8>, AllocateError> {
        if bytes == 0 {
            return Err(AllocateError::ZeroSize);
        }
        if !align.is_power_of_two() {
            return Err(AllocateError::BadAlignment { align });
        }
        let huge = self.options.huge_pages && bytes.is_multiple_of(HUGE_PAGE_BYTES);
        let align = if huge { align.max(HUGE_PAGE_BYTES) } else { align };
        let chunk = os::map(bytes, align)?;
        if huge && let Err(errno) = os::advise_huge(chunk, bytes) {
            self.warn(MemoryWarning::HugePagesRefused { errno });
        }
        if let Some(node) = node.filter(|_| self.options.bind_to_node)
            && let Err(errno) = os::prefer_node(chunk, bytes, node)
        {
            self.warn(MemoryWarning::NodeRefused { node, errno });
        }
        Ok(chunk)
    }

    /// Gives a chunk back to the operating system.
    ///
    /// # Safety
    /// `chunk` must come from [`allocate`](Self::allocate) of any `HugeChunks` with the same `bytes`, must not have been
    /// freed before, and nothing may use it any more.
    pub unsafe fn free(&self, chunk: NonNull<u8>, bytes: usize) {
        // SAFETY: by this function's contract the pages are ours and nothing uses them any more.
        unsafe { os::unmap(chunk, bytes) };
    }

    /// The wishes that were refused so far, one of each kind, in the order of their first refusal.
    #[must_use]
    pub fn warnings(&self) -> Vec<MemoryWarning> {
        self.warnings.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn warn(&self, warning: MemoryWarning) {
        let mut warnings = self.warnings.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !warnings.iter().any(|known| known.is_same_kind(warning)) {
            warnings.push(warning);
        }
    }
}

mod os {
    //! The calls. Sizes are rounded up to whole pages on both ways, so that freeing needs only the size asked for.

    use super::{AllocateError, NODE_COUNT_MAX};
    use std::io;
    use std::ptr::{self, NonNull};

    pub(super) fn last_errno() -> i32 {
        io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
    }

    fn page_bytes() -> usize {
        // SAFETY: sysconf reads a constant of the system; any name is allowed.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(4096)
    }

    /// Maps zeroed pages at a multiple of `align`: maps more than needed and gives the ends back.
    pub(super) fn map(bytes: usize, align: usize) -> Result<NonNull<u8>, AllocateError> {
        let page = page_bytes();
        let too_large = AllocateError::TooLarge { bytes, align };
        let Some(length) = bytes.checked_next_multiple_of(page) else { return Err(too_large) };
        // A mapping starts at a page anyway, so less than that needs no slack.
        let slack = align.saturating_sub(page);
        let Some(mapped) = length.checked_add(slack).filter(|&mapped| isize::try_from(mapped).is_ok()) else {
            return Err(too_large);
        };
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(AllocateError::OutOfMemory { bytes, errno: last_errno() });
        }
        let start = start.cast::<u8>();
        let before = start.addr().next_multiple_of(align) - start.addr();
        let after = slack - before;
        // SAFETY: `before + length + after == mapped`, so all of these pointers stay inside the mapping (or one past its
        // end), and the parts given back are whole pages of it that hold no part of the chunk.
        let chunk = unsafe {
            let chunk = start.add(before);
            unmap_pages(start, before);
            unmap_pages(chunk.add(length), after);
            chunk
        };
        NonNull::new(chunk).ok_or(AllocateError::OutOfMemory { bytes, errno: libc::ENOMEM })
    }

    /// # Safety
    /// As [`super::HugeChunks::free`].
    pub(super) unsafe fn unmap(chunk: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller gives back a whole chunk, which `map` has rounded up to pages in the same way.
        unsafe { unmap_pages(chunk.as_ptr(), bytes.next_multiple_of(page_bytes())) };
    }

    /// # Safety
    /// The range must be whole pages of one of our mappings that nothing uses any more, or empty.
    unsafe fn unmap_pages(start: *mut u8, length: usize) {
        if length == 0 {
            return;
        }
        // SAFETY: by this function's contract.
        let result = unsafe { libc::munmap(start.cast(), length) };
        // It can fail only for a range that is no mapping of ours, or when splitting a mapping would exceed the number
        // of mappings a process may have; the pages then stay mapped, which wastes but does not harm.
        debug_assert!(result == 0 || last_errno() == libc::ENOMEM, "munmap refuses a range of ours");
    }

    /// Backs all pages of a chunk by memory, as far as there is any. The content stays what it is: zeros.
    ///
    /// # Safety
    /// The chunk is fresh from [`map`] with this size, and nobody uses it meanwhile.
    pub(super) unsafe fn populate(chunk: NonNull<u8>, bytes: usize) {
        if advise_populate(chunk, bytes).is_ok() {
            return;
        }
        // A kernel before 5.14: each page is written to.
        for offset in (0..bytes).step_by(page_bytes()) {
            // SAFETY: the offset is inside the chunk, whose bytes are zero and which nobody else uses.
            unsafe { chunk.as_ptr().add(offset).write_volatile(0) };
        }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn advise_populate(chunk: NonNull<u8>, bytes: usize) -> Result<(), i32> {
        let length = bytes.next_multiple_of(page_bytes());
        // SAFETY: the range is a mapping of ours, and this advice changes no content.
        let result = unsafe { libc::madvise(chunk.as_ptr().cast(), length, libc::MADV_POPULATE_WRITE) };
        if result == 0 { Ok(()) } else { Err(last_errno()) }
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn advise_populate(_chunk: NonNull<u8>, _bytes: usize) -> Result<(), i32> {
        Err(libc::ENOSYS)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn advise_huge(chunk: NonNull<u8>, bytes: usize) -> Result<(), i32> {
        // SAFETY: the range is a mapping of ours, and this advice changes no content.
        let result = unsafe { libc::madvise(chunk.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        if result == 0 { Ok(()) } else { Err(last_errno()) }
    }

    /// Asks for pages of the range to be taken from a node when they are first written, as long as it has any.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn prefer_node(chunk: NonNull<u8>, bytes: usize, node: usize) -> Result<(), i32> {
        const MPOL_PREFERRED: libc::c_int = 1;
        const WORD_BITS: usize = libc::c_ulong::BITS as usize;
        if node >= NODE_COUNT_MAX {
            return Err(libc::EINVAL);
        }
        let mut mask: [libc::c_ulong; NODE_COUNT_MAX / WORD_BITS] = [0; NODE_COUNT_MAX / WORD_BITS];
        mask[node / WORD_BITS] = 1 << (node % WORD_BITS);
        // The kernel looks at one bit less than it is told.
        let bits: libc::c_ulong = (node + 2) as libc::c_ulong;
        let length = bytes.next_multiple_of(page_bytes()) as libc::c_ulong;
        // SAFETY: the range is a mapping of ours; the mask holds at least `bits - 1` bits and is only read; the policy
        // changes where pages come from, not what is in them. The C library has no wrapper for this call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                chunk.as_ptr(),
                length,
                MPOL_PREFERRED,
                mask.as_ptr(),
                bits,
                libc::c_uint::MIN,
            )
        };
        if result == 0 { Ok(()) } else { Err(last_errno()) }
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn advise_huge(_chunk: NonNull<u8>, _bytes: usize) -> Result<(), i32> {
        Err(libc::ENOSYS)
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn prefer_node(_chunk: NonNull<u8>, _bytes: usize, _node: usize) -> Result<(), i32> {
        // Unused but for its bound, which keeps the constant honest on every system.
        let _ = NODE_COUNT_MAX;
        Err(libc::ENOSYS)
    }
}

#[cfg(test)]
mod tests;
