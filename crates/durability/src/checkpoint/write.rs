//! Writes part files.
//!
//! Owns the file of a part while it is written. Nothing is synced before the end, and a part counts only once a manifest
//! names it: whatever fails before leaves a file that the next opening removes.

use std::path::Path;

use crate::checkpoint::{CheckpointError, PartEncoder, PartId, part_name};
use crate::file::{File, FileSystem};
use crate::manifest::PartRecord;

/// The writing half of a part: takes the pieces of a [`PartEncoder`] in order.
#[derive(Debug)]
pub struct PartFile {
    file: Box<dyn File>,
    len: u64,
}

impl PartFile {
    /// Creates the file of part `part` in `dir`, the directory of its checkpoint.
    ///
    /// # Errors
    /// [`CheckpointError::Io`], also when the file is there already.
    pub fn create(fs: &dyn FileSystem, dir: &Path, part: u16) -> Result<PartFile, CheckpointError> {
        let path = dir.join(part_name(part));
        let file = fs.create(&path).map_err(CheckpointError::io(&path, "create"))?;
        Ok(PartFile { file, len: 0 })
    }

    /// Writes the next piece.
    ///
    /// # Errors
    /// [`CheckpointError::Io`]; the part must be given up then.
    pub fn append(&mut self, piece: &[u8]) -> Result<(), CheckpointError> {
        self.file.write_at(self.len, piece).map_err(CheckpointError::io(self.file.path(), "write"))?;
        self.len += piece.len() as u64;
        Ok(())
    }

    /// Makes the whole file durable. Its name is so once the directory is synced, which publication does.
    ///
    /// # Errors
    /// [`CheckpointError::Io`]; the part must be given up then.
    pub fn finish(mut self) -> Result<(), CheckpointError> {
        self.file.sync().map_err(CheckpointError::io(self.file.path(), "sync"))
    }
}

/// Encodes and writes a part on one thread.
#[derive(Debug)]
pub struct PartWriter {
    encoder: PartEncoder,
    file: PartFile,
}

impl PartWriter {
    /// Creates the file of the part in `dir`, the directory of its checkpoint.
    ///
    /// # Errors
    /// [`CheckpointError::Io`], also when the file is there already.
    pub fn create(fs: &dyn FileSystem, dir: &Path, id: PartId) -> Result<PartWriter, CheckpointError> {
        Ok(PartWriter { encoder: PartEncoder::new(id), file: PartFile::create(fs, dir, id.part)? })
    }

    /// Begins a section as [`PartEncoder::begin_section`] does.
    pub fn begin_section(&mut self, table: u16, lower: &[u8], upper: Option<&[u8]>) {
        self.encoder.begin_section(table, lower, upper);
    }

    /// Pushes a row as [`PartEncoder::push`] does; a block that is full is written.
    ///
    /// # Errors
    /// Those of [`PartEncoder::push`], after which one may go on, and [`CheckpointError::Io`], after which one may not.
    pub fn push(&mut self, key: &[u8], version: u64, row: &[u8]) -> Result<(), CheckpointError> {
        self.encoder.push(key, version, row)?;
        if self.encoder.has_full_blocks() { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), CheckpointError> {
        for piece in self.encoder.take_full_blocks() {
            self.file.append(&piece)?;
            self.encoder.recycle(piece);
        }
        Ok(())
    }

    /// Length of the file so far, unwritten bytes included.
    pub fn bytes(&self) -> u64 {
        self.encoder.bytes()
    }

    /// Writes what is left, syncs the file once, and says what the manifest is to say of it.
    ///
    /// # Errors
    /// [`CheckpointError::Io`]; the part must be given up then.
    pub fn finish(mut self) -> Result<PartRecord, CheckpointError> {
        self.write()?;
        let finished = self.encoder.finish()?;
        for piece in &finished.pieces {
            self.file.append(piece)?;
        }
        self.file.finish()?;
        Ok(finished.record)
    }
}
