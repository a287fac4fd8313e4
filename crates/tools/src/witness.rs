//! The witness of `atrapos torture`: a file outside the database that stores the promises clients were given.
//!
//! Owns: the file. Never: syncs it; data written to a file survives the death of the process that wrote it, and the
//! machine is not killed.
//!
//! Every slot is an 8-byte number at a multiple of eight, and has one writer. A number is in the file before
//! [`Witness::write`] returns, and in memory for the readers of this process.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use atrapos_proof::torture::{Slot, Witness, WitnessError};

const SLOT_BYTES: usize = size_of::<u64>();

/// The file; see the module's introduction.
#[derive(Debug)]
pub(crate) struct WitnessFile {
    file: File,
    slots: Vec<AtomicU64>,
}

impl WitnessFile {
    /// Opens the file, or creates one in which every number is 0.
    pub(crate) fn open(path: &Path) -> Result<WitnessFile, WitnessError> {
        let failed = |error: std::io::Error| WitnessError(format!("{}: {error}", path.display()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        file.set_len((Slot::COUNT * SLOT_BYTES) as u64).map_err(failed)?;
        let mut bytes = [0; Slot::COUNT * SLOT_BYTES];
        file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        let (numbers, _) = bytes.as_chunks::<SLOT_BYTES>();
        let slots = numbers.iter().map(|number| AtomicU64::new(u64::from_le_bytes(*number))).collect();
        Ok(WitnessFile { file, slots })
    }
}

impl Witness for WitnessFile {
    fn read(&self, slot: Slot) -> u64 {
        self.slots[slot.index()].load(Ordering::Acquire)
    }

    fn write(&self, slot: Slot, value: u64) -> Result<(), WitnessError> {
        let offset = (slot.index() * SLOT_BYTES) as u64;
        let written = self.file.write_all_at(&value.to_le_bytes(), offset);
        written.map_err(|error| WitnessError(error.to_string()))?;
        self.slots[slot.index()].store(value, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_there_when_it_is_opened_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("witness");
        let witness = WitnessFile::open(&path).expect("a new file");
        assert_eq!(witness.read(Slot::Submitted(1)), 0);
        witness.write(Slot::Submitted(1), u64::MAX).expect("written");
        witness.write(Slot::Observed { reader: 1, client: 3 }, 7).expect("written");
        let again = WitnessFile::open(&path).expect("the file");
        assert_eq!(again.read(Slot::Submitted(1)), u64::MAX);
        assert_eq!(again.read(Slot::Observed { reader: 1, client: 3 }), 7);
        assert_eq!(again.read(Slot::Acknowledged(1)), 0);
        assert!(WitnessFile::open(directory.path()).is_err());
    }
}
