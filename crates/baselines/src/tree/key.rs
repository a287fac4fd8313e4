//! Keys inside the tree: the head by which a node compares them, and the immutable copies that bound nodes.
//!
//! Owns: the order of heads, and the memory of separators and fences. Never: changes a key that others can see.
//!
//! # Heads
//! All keys of a node share its prefix. The *head* of a key is the eight bytes after the prefix, big-endian, filled up with
//! zeros; its *code* is the number of bytes after the prefix, at most [`LONG`]. Of two keys in a node with different heads
//! the one with the smaller head comes first. With equal heads and different codes, the shorter one is a prefix of the longer
//! one and comes first. Equal heads and equal codes below `LONG` are equal keys; only with two codes of `LONG` are the whole
//! keys compared.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// The code of keys that do not end within their head.
pub(crate) const LONG: u8 = 9;

/// The head and the code of a key in a node whose prefix has so many bytes.
#[inline]
pub(crate) fn head(key: &[u8], prefix: usize) -> (u64, u8) {
    let rest = key.get(prefix..).unwrap_or(&[]);
    if let Some(first) = rest.first_chunk::<8>() {
        return (u64::from_be_bytes(*first), if rest.len() > 8 { LONG } else { 8 });
    }
    let missing = 8 - rest.len() as u32;
    let bytes = match key.last_chunk::<8>() {
        Some(last) => u64::from_be_bytes(*last),
        None => key.iter().fold(0, |bytes, byte| bytes << 8 | u64::from(*byte)),
    };
    (bytes.checked_shl(8 * missing).unwrap_or(0), rest.len() as u8)
}

/// Number of bytes that both keys begin with.
pub(crate) fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

/// The head of an immutable key on the heap; its bytes lie behind it.
#[repr(C)]
pub(crate) struct Blob {
    len: usize,
}

impl Blob {
    fn layout(len: usize) -> Layout {
        Layout::from_size_align(size_of::<Blob>() + len, align_of::<Blob>())
            .expect("a key is far shorter than the address space")
    }

    /// Copies a key to the heap.
    pub(crate) fn new(key: &[u8]) -> NonNull<Blob> {
        let layout = Blob::layout(key.len());
        // SAFETY: the layout is not empty.
        let Some(blob) = NonNull::new(unsafe { alloc(layout) }.cast::<Blob>()) else {
            handle_alloc_error(layout)
        };
        // SAFETY: the allocation has room for the length and, behind it, the bytes; nobody else knows it yet.
        unsafe {
            blob.write(Blob { len: key.len() });
            blob.add(1).cast::<u8>().copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
        }
        blob
    }

    /// The bytes of a key.
    ///
    /// # Safety
    /// `blob` was made by [`Blob::new`] and is not freed during `'g`.
    pub(crate) unsafe fn bytes<'g>(blob: NonNull<Blob>) -> &'g [u8] {
        // SAFETY: as the caller promises; the bytes behind the length belong to the same allocation.
        unsafe {
            let len = blob.as_ref().len;
            std::slice::from_raw_parts(blob.add(1).cast::<u8>().as_ptr(), len)
        }
    }

    /// Bytes of memory of a key of so many bytes.
    pub(crate) fn memory(len: usize) -> usize {
        Blob::layout(len).size()
    }

    /// Frees a key.
    ///
    /// # Safety
    /// `blob` was made by [`Blob::new`], and nobody uses it any more.
    pub(crate) unsafe fn free(blob: NonNull<Blob>) {
        // SAFETY: as the caller promises; the layout is that of the allocation.
        unsafe {
            let layout = Blob::layout(blob.as_ref().len);
            dealloc(blob.as_ptr().cast(), layout);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn heads_of_short_keys_are_filled_up_with_zeros() {
        assert_eq!(head(b"", 0), (0, 0));
        assert_eq!(head(b"a", 0), (0x61 << 56, 1));
        assert_eq!(head(b"abcdefgh", 7), (0x68 << 56, 1));
        assert_eq!(head(b"abcdefghi", 9), (0, 0));
        assert_eq!(head(b"abcdefgh", 0).1, 8);
        assert_eq!(head(b"abcdefghi", 0).1, LONG);
        assert_eq!(head(b"ab", 5), (0, 0), "a key of another node does no harm");
    }

    proptest! {
        #[test]
        fn heads_are_in_the_order_of_keys(
            prefix in prop::collection::vec(0..2_u8, 0..12),
            left in prop::collection::vec(0..2_u8, 0..12),
            right in prop::collection::vec(0..2_u8, 0..12),
        ) {
            let (left, right) = ([&prefix[..], &left].concat(), [&prefix[..], &right].concat());
            let (of_left, of_right) = (head(&left, prefix.len()), head(&right, prefix.len()));
            let are_long = of_left.1 == LONG && of_right.1 == LONG;
            if of_left != of_right || !are_long {
                prop_assert_eq!(of_left.cmp(&of_right), left.cmp(&right));
            }
        }
    }
}
