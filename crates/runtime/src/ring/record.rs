//! Records: a header, and a closure behind it, at an address that a ring or a local queue gives.
//!
//! Owns: the layout of a record, and how its closure is moved in, run or dropped. Never: decides where a record lies.
//!
//! # Why the unsafe code is sound
//! A header's function was made for the type of the closure behind it, in the same `write_record` call. The callers vouch for
//! the memory: that it is large and aligned enough, and that a closure is moved out once.

use std::ptr::NonNull;

/// Every record starts at a multiple of this many bytes, and so does the closure in it.
pub(crate) const GRANULE: usize = 16;

/// Runs the closure at the second argument with the context at the first, or only drops it if the context is null.
pub(crate) type Invoke<C> = unsafe fn(*const C, *mut u8);

/// Moves a closure of type `F` out of `closure`; runs it on `context`, or drops it when `context` is null.
///
/// # Safety
/// `closure` points to a valid `F` that nobody uses afterwards; `context` is null or points to a live `C`.
pub(crate) unsafe fn invoke<C, F: FnOnce(&C)>(context: *const C, closure: *mut u8) {
    // SAFETY: the caller hands over a valid `F` at `closure`, for good.
    let closure = unsafe { closure.cast::<F>().read() };
    // SAFETY: the caller vouches that a context that is not null is live.
    match unsafe { context.as_ref() } {
        Some(context) => closure(context),
        None => drop(closure),
    }
}

/// The head of a record.
#[repr(C, align(16))]
pub(super) struct Header<C> {
    /// Function that runs the closure behind the header; `None` marks a pad record.
    pub(super) invoke: Option<Invoke<C>>,
    /// Bytes from this header to the next.
    pub(super) bytes: u32,
}

const _: () = assert!(size_of::<Header<u8>>() == GRANULE);

/// Bytes of a record with an `F` inline.
pub(crate) const fn record_bytes<F>() -> usize {
    GRANULE + size_of::<F>().next_multiple_of(GRANULE)
}

/// Returns whether an `F` may lie in a record at all.
pub(crate) const fn fits_record<F>() -> bool {
    align_of::<F>() <= GRANULE
}

/// Writes a record: a header and the closure behind it.
///
/// # Safety
/// `record` is aligned to 16 and has `record_bytes::<F>()` bytes that nobody else uses; `fits_record::<F>()`.
#[inline(always)]
pub(crate) unsafe fn write_record<C, F: FnOnce(&C) + Send + 'static>(record: NonNull<u8>, closure: F) {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a record is smaller than a ring, whose size fits 30 bits"
    )]
    let header = Header::<C> { invoke: Some(invoke::<C, F>), bytes: const { record_bytes::<F>() as u32 } };
    // SAFETY: the record holds the header.
    unsafe { record.cast::<Header<C>>().write(header) };
    // SAFETY: the closure's bytes follow the header, at a multiple of 16.
    unsafe { record.add(GRANULE).cast::<F>().write(closure) };
}

/// Drops the closure in a record.
///
/// # Safety
/// `record` was written by `write_record` for the same `C`, and its closure has not been moved out.
pub(crate) unsafe fn drop_record<C>(record: NonNull<u8>) {
    // SAFETY: a record starts with its header.
    let header = unsafe { record.cast::<Header<C>>().read() };
    if let Some(invoke) = header.invoke {
        // SAFETY: the closure behind the header is the one its function was made for; a null context drops it.
        unsafe { invoke(std::ptr::null(), record.add(GRANULE).as_ptr()) };
    }
}
