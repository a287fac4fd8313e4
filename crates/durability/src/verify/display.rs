//! The report of a verification as text.

use std::fmt;

use super::{PartReport, Report, StreamReport, TableReport, TornTail};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let manifest = &self.manifest;
        writeln!(f, "database     {:032x} (format {})", manifest.database, self.format_version)?;
        let closed =
            if manifest.closed.is_some() { "closed in order" } else { "open, or not closed in order" };
        writeln!(f, "incarnation  {} with {} streams, {closed}", manifest.incarnation, manifest.streams)?;
        for past in &manifest.past {
            writeln!(
                f,
                "before       {} with {} streams, durable to epoch {}",
                past.incarnation, past.streams, past.durable
            )?;
        }
        match &manifest.checkpoint {
            None => writeln!(f, "checkpoint   none")?,
            Some(checkpoint) => {
                writeln!(
                    f,
                    "checkpoint   {}, replay from epoch {}",
                    checkpoint.number, checkpoint.replay_from
                )?;
            }
        }
        for part in &self.parts {
            let PartReport { file, bytes, rows, sections, blocks } = part;
            writeln!(
                f,
                "  {}  {rows} rows, {sections} ranges, {blocks} blocks, {bytes} bytes",
                file.display()
            )?;
        }
        writeln!(f, "tables")?;
        for table in &self.tables {
            let TableReport { number, name, kind, checkpoint_rows, wal_changes } = table;
            writeln!(
                f,
                "  {number}  {kind} {name}: {checkpoint_rows} rows in the checkpoint, {wal_changes} changes in the WAL"
            )?;
        }
        writeln!(f, "WAL")?;
        for stream in &self.streams {
            stream.fmt(f)?;
        }
        if self.is_sound() {
            return writeln!(f, "sound        every checksum matches");
        }
        for problem in &self.problems {
            writeln!(f, "PROBLEM      {problem}")?;
        }
        Ok(())
    }
}

impl fmt::Display for StreamReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StreamReport { incarnation, stream, segments, bytes, frames, records, changes, .. } = self;
        write!(
            f,
            "  incarnation {incarnation}, stream {stream}: {segments} segments, {frames} frames, {records} records, \
             {changes} changes, {bytes} bytes"
        )?;
        if let (Some(oldest), Some(newest)) = (self.oldest, self.newest) {
            write!(f, ", epochs {oldest} to {newest}")?;
        }
        if let Some(sealed) = self.sealed {
            write!(f, ", complete to epoch {sealed}")?;
        }
        writeln!(f)?;
        if let Some(TornTail { file, offset, bytes }) = &self.torn {
            writeln!(
                f,
                "    {} has {bytes} bytes of an unfinished frame at byte {offset}, which do not count",
                file.display()
            )?;
        }
        Ok(())
    }
}
