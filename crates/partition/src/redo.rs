//! The redo of a transaction while it runs: its changes, encoded as bytes of a record.
//!
//! Invariant: redo that is refused exceeds the bound by at most one change, or the content of one message; and no redo
//! of a refused transaction is logged, since it is doomed. So the record of a transaction always fits a frame, and the
//! memory of a transaction for redo is bounded.

use atrapos_durability::wal::CHANGES_BYTES_MAX;

use crate::abort::{Abort, AbortReason};

/// The default bound on the redo of one transaction, in bytes.
pub const TRANSACTION_REDO_BYTES: usize = 256 << 20;

/// The greatest bound that may be set, in bytes.
pub const TRANSACTION_REDO_BYTES_MAX: usize = 512 << 20;

const _: () = assert!(TRANSACTION_REDO_BYTES <= TRANSACTION_REDO_BYTES_MAX, "the default can be set");
const _: () =
    assert!(TRANSACTION_REDO_BYTES_MAX <= CHANGES_BYTES_MAX, "what is not refused fits a frame of the WAL");

/// See the module's introduction.
#[derive(Debug)]
pub struct Redo {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Default for Redo {
    fn default() -> Redo {
        Redo::new(TRANSACTION_REDO_BYTES)
    }
}

impl Redo {
    /// Creates the redo of a transaction, bounded to `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Redo {
        Redo { bytes: Vec::new(), bytes_max }
    }

    /// Returns true if there are no changes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The changes, encoded.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends the bytes that `encode` pushes. An error dooms the transaction.
    #[inline(always)]
    pub(crate) fn push(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), Abort> {
        encode(&mut self.bytes);
        if self.bytes.len() > self.bytes_max { Err(self.refuse()) } else { Ok(()) }
    }

    /// Appends the redo of the transaction from another worker. An error dooms the transaction.
    pub fn take_in(&mut self, elsewhere: &[u8]) -> Result<(), Abort> {
        self.push(|bytes| bytes.extend_from_slice(elsewhere))
    }

    /// Puts a note of the WAL before the changes.
    pub fn note(&mut self, note: &[u8]) {
        self.bytes.splice(..0, note.iter().copied());
    }

    /// Removes the bytes after the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// Removes and returns all bytes, for the transaction's home.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Removes all changes.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    #[cold]
    #[inline(never)]
    fn refuse(&self) -> Abort {
        Abort::explained(
            AbortReason::TransactionTooLarge,
            format!(
                "the transaction has changed more than {} bytes of redo hold; make it several transactions, or allow more \
                 with Builder::transaction_redo_bytes",
                self.bytes_max
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_bound_is_refused_wherever_it_comes_from() {
        let mut redo = Redo::new(10);
        assert!(redo.push(|bytes| bytes.extend_from_slice(b"12345")).is_ok());
        assert!(redo.take_in(b"67890").is_ok());
        let refused = redo.take_in(b"x").unwrap_err();
        assert_eq!(refused.reason(), AbortReason::TransactionTooLarge);
        assert!(refused.detail().contains("10 bytes"), "{refused}");
        assert_eq!(redo.take(), b"1234567890x");
        assert!(redo.is_empty() && redo.push(|bytes| bytes.push(0)).is_ok());
    }
}
