//! Zeroed memory that two threads, or two processes, share: from the heap, or a mapping of a file without a name.
//!
//! Owns: allocation, mapping and their end. Never: reads or writes what lies in it.
//!
//! # Why the unsafe code is sound
//! - A mapping is only ever as long as its file, which is sealed: nobody can shrink it, so no access ends in a signal. A file
//!   of a peer that is not sealed, or of another size, is refused.
//! - `Memory` hands out its address, and is kept alive by whoever uses it; it is unmapped or freed once, on drop.

#[cfg(any(not(loom), test))]
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

#[cfg(not(loom))]
use rustix::fd::{AsFd, OwnedFd};
#[cfg(not(loom))]
use rustix::fs::{MemfdFlags, SealFlags};
#[cfg(not(loom))]
use rustix::mm::{MapFlags, ProtFlags};

#[cfg(not(loom))]
use crate::error::{Attempt, ChannelError};

/// What all memory is aligned to, and a multiple of.
pub(crate) const PAGE_BYTES: usize = 4096;

/// A stretch of shared memory.
pub(crate) struct Memory {
    base: NonNull<u8>,
    bytes: usize,
    origin: Origin,
}

enum Origin {
    #[cfg(any(not(loom), test))]
    Heap,
    #[cfg(not(loom))]
    Mapping,
}

// SAFETY: a `Memory` is an address and a length; what its users do through it is theirs to justify.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// The address of its first byte.
    #[inline(always)]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Zeroed memory of this process alone.
    #[cfg(any(not(loom), test))]
    pub(crate) fn heap(bytes: usize) -> Self {
        let layout = Self::layout(bytes);
        // SAFETY: the layout's size is not zero: `layout` checks it.
        let Some(base) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        Self { base, bytes, origin: Origin::Heap }
    }

    #[cfg(any(not(loom), test))]
    fn layout(bytes: usize) -> Layout {
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE_BYTES), "memory is shared in pages");
        Layout::from_size_align(bytes, PAGE_BYTES).expect("a ring is far smaller than the address space")
    }

    /// Zeroed memory that another process can map, too, and the file to send to it.
    #[cfg(not(loom))]
    pub(crate) fn create(name: &str, bytes: usize) -> Result<(OwnedFd, Self), ChannelError> {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .attempt("make memory to share")?;
        rustix::fs::ftruncate(&file, bytes as u64).attempt("give memory to share its size")?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .attempt("fix the size of memory to share")?;
        let memory = Self::map(&file, bytes)?;
        Ok((file, memory))
    }

    /// Memory of another process, by the file that it has sent. Refused unless it has that size for ever.
    #[cfg(not(loom))]
    pub(crate) fn open(file: impl AsFd, bytes: usize) -> Result<Self, ChannelError> {
        let sealed = SealFlags::SHRINK | SealFlags::GROW;
        if !rustix::fs::fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(sealed)) {
            return Err(ChannelError::Nonsense("the memory it shares could be cut short at any time".into()));
        }
        let found = rustix::fs::fstat(&file).attempt("look at memory of the peer")?.st_size;
        if u64::try_from(found) != Ok(bytes as u64) {
            return Err(ChannelError::Nonsense(format!(
                "the memory it shares has {found} bytes where {bytes} were announced"
            )));
        }
        Self::map(file, bytes)
    }

    #[cfg(not(loom))]
    fn map(file: impl AsFd, bytes: usize) -> Result<Self, ChannelError> {
        // Page faults are taken now, not by the first messages.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a mapping at an address of the kernel's choice touches no memory of the program.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags, file, 0)
        }
        .attempt("map memory to share")?;
        let base =
            NonNull::new(base.cast()).expect("the kernel maps nothing at address zero unless asked to");
        Ok(Self { base, bytes, origin: Origin::Mapping })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self.origin {
            #[cfg(any(not(loom), test))]
            // SAFETY: allocated in `heap` with the same layout.
            Origin::Heap => unsafe { dealloc(self.base.as_ptr(), Self::layout(self.bytes)) },
            #[cfg(not(loom))]
            Origin::Mapping => {
                // SAFETY: mapped in `map` with this address and length; its users keep this value alive.
                let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
                debug_assert_eq!(unmapped, Ok(()), "a mapping is unmapped once");
            }
        }
    }
}
