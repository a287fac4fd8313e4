//! Sinks that remember what was written, and fail or stand still when they are told to.

use std::io;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};

use atrapos_baselines::log::{LogReader, LogRecord, LogSink, Lsn};

/// What a sink has got.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) bytes: Vec<u8>,
    pub(crate) writes: usize,
}

/// A sink in memory.
#[derive(Clone, Default)]
pub(crate) struct Memory(pub(crate) Arc<Mutex<Written>>);

impl Memory {
    pub(crate) fn records(&self, first: Lsn) -> Vec<LogRecord> {
        records(&self.0.lock().expect("no sink panics").bytes, first)
    }
}

/// The records in the bytes of a log.
pub(crate) fn records(bytes: &[u8], first: Lsn) -> Vec<LogRecord> {
    LogReader::new(bytes, first).map(|record| record.expect("memory has no errors")).collect()
}

impl LogSink for Memory {
    fn write(&mut self, parts: [&[u8]; 2]) -> io::Result<()> {
        let mut written = self.0.lock().expect("no sink panics");
        parts.iter().for_each(|part| written.bytes.extend_from_slice(part));
        written.writes += 1;
        Ok(())
    }
}

/// A sink that says when it is asked to write, and does so when it is told how that ends.
pub(crate) struct Steered {
    pub(crate) memory: Memory,
    pub(crate) asked: Sender<()>,
    pub(crate) ends: Receiver<io::Result<()>>,
}

impl LogSink for Steered {
    fn write(&mut self, parts: [&[u8]; 2]) -> io::Result<()> {
        // A test that has ended lets everything pass.
        let _ = self.asked.send(());
        self.ends.recv().unwrap_or(Ok(()))?;
        self.memory.write(parts)
    }
}
