//! Software prefetch: asks for cache lines before they are needed.
//!
//! Owns the one architecture-dependent instruction of the crate. It never reads memory: a prefetch of any address,
//! mapped or not, has no effect but on time.

/// Bytes of a cache line on every machine this is tuned for.
pub(crate) const LINE_BYTES: usize = 64;

/// Asks for the line that holds `address`, for reading, into all cache levels.
#[inline(always)]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the prefetch instruction dereferences nothing and faults on no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        // SAFETY: the prefetch instruction dereferences nothing and faults on no address; it changes no register.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly))
        };
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    {
        let _ = address;
    }
}

/// Asks for `LINES` lines, beginning with the one that holds `address`.
#[inline(always)]
pub(crate) fn prefetch_lines<const LINES: usize, T>(address: *const T) {
    for line in 0..LINES {
        prefetch(address.cast::<u8>().wrapping_add(line * LINE_BYTES));
    }
}

/// The lines of a row that a look-up has found and that are to be asked for later.
///
/// A core has some twenty misses in flight: the lines of many long rows asked for at once stop it until most have come, and
/// then lie in the nearest cache in place of what is used meanwhile. Asked for shortly before each row is read, they come
/// while other transactions run.
#[derive(Debug, Clone, Copy)]
pub struct RowLines {
    /// A number: the row may be gone when its lines are asked for.
    address: usize,
    lines: usize,
}

impl RowLines {
    /// No lines.
    pub const NONE: RowLines = RowLines { address: 0, lines: 0 };

    #[inline]
    pub(crate) fn new(first: *const u8, lines: usize) -> RowLines {
        RowLines { address: first.addr(), lines }
    }

    /// Asks for the lines.
    #[inline]
    pub fn fetch(self) {
        for line in 0..self.lines {
            prefetch(std::ptr::without_provenance::<u8>(self.address).wrapping_add(line * LINE_BYTES));
        }
    }
}

/// Asks for all lines of a value, which another processing unit may have written last.
#[inline]
pub fn prefetch_value<T: ?Sized>(value: &T) {
    let first = std::ptr::from_ref(value).cast::<u8>();
    let offset = first.addr() % LINE_BYTES;
    for at in (0..offset + size_of_val(value)).step_by(LINE_BYTES) {
        prefetch(first.wrapping_add(at));
    }
}
