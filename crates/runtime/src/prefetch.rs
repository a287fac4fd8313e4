//! Prefetching: hints to the processor about memory that is read soon.
//!
//! Owns: the instruction of each architecture. Never: reads or writes memory in a way that a program can see, which is why its
//! unsafe code is sound.

/// Bytes of a cache line on the architectures that are supported.
pub(crate) const CACHE_LINE: usize = 64;

/// Prefetches a cache line. Has no effect but on time.
#[inline(always)]
pub fn prefetch_line(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch does not access memory in any way a program can see; every x86-64 processor has it.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above, for AArch64.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// Prefetches the cache lines that so many bytes from `address` on reach into, to be written. Has no effect but on time.
#[inline(always)]
pub fn prefetch_to_write(address: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(CACHE_LINE) {
        prefetch_line_to_write(address.wrapping_add(line));
    }
}

/// Prefetches a cache line to be written: it is taken from other cores at once, not first shared with them.
#[inline(always)]
fn prefetch_line_to_write(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch does not access memory in any way a program can see; processors without this one take it for no operation.
    unsafe {
        std::arch::asm!("prefetchw [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above, for AArch64.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}
