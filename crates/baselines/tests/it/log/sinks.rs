//! Sinks that remember what was written, and fail or stand still when they are told to.

use std::io;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};

use atrapos_baselines::log::{LogReader, LogRecord, LogSink, Lsn};

/// What a sink has got.
#[derive(Default)]
pub(super) struct Written {
    pub(super) bytes: Vec<u8>,
    /// The bytes that were there at the last sync.
    pub(super) synced: usize,
    pub(super) syncs: usize,
    pub(super) appends: usize,
}

/// A sink in memory.
#[derive(Clone, Default)]
pub(super) struct Memory(pub(super) Arc<Mutex<Written>>);

impl Memory {
    pub(super) fn records(&self, first: Lsn) -> Vec<LogRecord> {
        records(&self.0.lock().expect("no sink panics").bytes, first)
    }
}

/// The records in the bytes of a log.
pub(super) fn records(bytes: &[u8], first: Lsn) -> Vec<LogRecord> {
    LogReader::new(bytes, first).map(|record| record.expect("memory has no errors")).collect()
}

impl LogSink for Memory {
    fn append(&mut self, parts: [&[u8]; 2]) -> io::Result<()> {
        let mut written = self.0.lock().expect("no sink panics");
        parts.iter().for_each(|part| written.bytes.extend_from_slice(part));
        written.appends += 1;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut written = self.0.lock().expect("no sink panics");
        written.synced = written.bytes.len();
        written.syncs += 1;
        Ok(())
    }
}

/// A sink that says when it is asked to sync, and does so when it is told how that ends.
pub(super) struct Steered {
    pub(super) memory: Memory,
    pub(super) asked: Sender<()>,
    pub(super) ends: Receiver<io::Result<()>>,
}

impl LogSink for Steered {
    fn append(&mut self, parts: [&[u8]; 2]) -> io::Result<()> {
        self.memory.append(parts)
    }

    fn sync(&mut self) -> io::Result<()> {
        // A test that has ended lets everything pass.
        let _ = self.asked.send(());
        self.ends.recv().unwrap_or(Ok(()))?;
        self.memory.sync()
    }
}
