//! `atrapos inspect`: the contents of a database directory, every checksum verified.
//!
//! Owns: the presentation. Never: reads a file itself, or writes one.

use std::fmt::Write;

use atrapos::{DisplayKey, InstanceId, RefinedCosts, StoredPartition, StoredScheme, read_scheme};
use atrapos_durability::directory::DirectoryError;
use atrapos_durability::verify::{Report, StreamReport, TableReport, verify};
use serde_json::{Value, json};

use crate::args::InspectArgs;
use crate::error::CliError;
use crate::table::{columns, count, mib};
use crate::{output, store};

/// Runs `atrapos inspect`.
pub(crate) fn inspect(args: &InspectArgs) -> Result<(), CliError> {
    let report = verify(store::files(), &args.directory).map_err(refused)?;
    let costs = RefinedCosts::read(&store::files(), &args.directory);
    let scheme = read_scheme(&store::files(), &args.directory);
    let text = if args.json {
        let mut value = to_json(&report);
        match &costs {
            Ok(None) => {}
            Ok(Some(costs)) => value["sync_costs"] = costs_to_json(costs),
            Err(sentence) => value["sync_costs"] = json!({ "problem": sentence }),
        }
        match &scheme {
            Ok(None) => {}
            Ok(Some(scheme)) => value["scheme"] = scheme_to_json(scheme),
            Err(sentence) => value["scheme"] = json!({ "problem": sentence }),
        }
        format!("{value:#}\n")
    } else {
        to_text(&report) + &costs_to_text(costs) + &scheme_to_text(scheme)
    };
    output::print(&text)?;
    match report.problems.as_slice() {
        [] => Ok(()),
        [problem] => Err(CliError::failed(problem)),
        [problem, more @ ..] => {
            Err(CliError::failed(format!("{problem} (and {} more problems)", more.len())))
        }
    }
}

/// Reports damage as a failure, and a directory that is no database, or cannot be read, as bad input.
pub(crate) fn refused(error: DirectoryError) -> CliError {
    match &error {
        DirectoryError::Damaged { .. } | DirectoryError::Invalid { .. } | DirectoryError::Stopped { .. } => {
            CliError::failed(error)
        }
        DirectoryError::Io { source, .. } if source.raw_os_error() == Some(IO_ERROR) => {
            CliError::failed(error)
        }
        _ => CliError::bad_input(error),
    }
}

/// Error of the system when a device fails.
const IO_ERROR: i32 = rustix::io::Errno::IO.raw_os_error();

/// Returns the name of a table or index; the number of one that was dropped.
fn name_of(table: &TableReport) -> String {
    if table.name.is_empty() { format!("number {}", table.number) } else { table.name.clone() }
}

fn identity(report: &Report) -> String {
    format!("{:032x}", report.manifest.database)
}

fn to_json(report: &Report) -> Value {
    let manifest = &report.manifest;
    let tables = report.tables.iter().map(|table| {
        json!({
            "number": table.number,
            "name": name_of(table),
            "kind": table.kind,
            "checkpoint_rows": table.checkpoint_rows,
            "wal_changes": table.wal_changes,
        })
    });
    let parts = report.parts.iter().map(|part| {
        json!({
            "file": part.file.display().to_string(),
            "bytes": part.bytes,
            "rows": part.rows,
            "sections": part.sections,
            "blocks": part.blocks,
        })
    });
    let streams = report.streams.iter().map(stream_to_json);
    json!({
        "path": report.path.display().to_string(),
        "format_version": report.format_version,
        "database": identity(report),
        "incarnation": manifest.incarnation.0,
        "closed_in_order": manifest.closed.is_some(),
        "checkpoint": manifest.checkpoint.as_ref().map(|checkpoint| json!({
            "number": checkpoint.number,
            "replay_from": checkpoint.replay_from.0,
            "parts": parts.collect::<Vec<_>>(),
        })),
        "tables": tables.collect::<Vec<_>>(),
        "definitions": manifest.schema.lines(),
        "streams": streams.collect::<Vec<_>>(),
        "problems": report.problems,
        "sound": report.is_sound(),
    })
}

fn costs_to_json(costs: &RefinedCosts) -> Value {
    json!({
        "machine": costs.machine,
        "given": {
            "cycles_per_byte": costs.cycles_per_byte,
            "message_bytes": costs.message_bytes,
            "exchange_cycles": costs.exchange_cycles,
        },
        "factor": costs.factor,
    })
}

/// Returns what the database has learnt about costs of synchronization, beside what it was given; empty if it has learnt nothing.
fn costs_to_text(costs: Result<Option<RefinedCosts>, String>) -> String {
    match costs {
        Ok(None) => String::new(),
        Ok(Some(costs)) => {
            let given = [costs.cycles_per_byte, costs.exchange_cycles];
            let [per_byte, exchange] = given;
            let [per_byte_learnt, exchange_learnt] = given.map(|cycles| cycles * costs.factor);
            format!(
                "\nsynchronization: {per_byte:.2} cycles per byte and {exchange:.0} per exchange were given; {per_byte_learnt:.2} and {exchange_learnt:.0} were learnt from changes (times {:.2}), on {}\n",
                costs.factor, costs.machine
            )
        }
        Err(sentence) => format!("\n{sentence}\n"),
    }
}

fn scheme_to_json(scheme: &StoredScheme) -> Value {
    let part = |part: &StoredPartition| {
        let (kind, owner) = owner_of(part);
        json!({ "first": DisplayKey(&part.first).to_string(), kind: owner })
    };
    let families = scheme.families.iter().map(|family| {
        json!({ "name": family.name, "partitions": family.partitions.iter().map(part).collect::<Vec<_>>() })
    });
    json!({ "workers": scheme.workers, "families": families.collect::<Vec<_>>() })
}

/// Returns what owns a stored partition, and its number.
fn owner_of(part: &StoredPartition) -> (&'static str, u16) {
    match InstanceId::of_owner(part.owner) {
        None => ("worker", part.owner.0),
        Some(other) => ("instance", other.0),
    }
}

/// Returns the scheme that the next opening begins with, a line for each family: the owner of each partition, and the keys between them; empty if that is the
/// declared one.
fn scheme_to_text(scheme: Result<Option<StoredScheme>, String>) -> String {
    let scheme = match scheme {
        Ok(None) => return String::new(),
        Ok(Some(scheme)) => scheme,
        Err(sentence) => return format!("\n{sentence}\n"),
    };
    let mut text = format!("\nscheme of {} workers, as it has been adapted:\n", scheme.workers);
    for family in &scheme.families {
        let _ = write!(text, "  {}:", family.name);
        for (at, part) in family.partitions.iter().enumerate() {
            let (kind, owner) = owner_of(part);
            let cut = if at == 0 { String::new() } else { format!(" | {} |", DisplayKey(&part.first)) };
            let _ = write!(text, "{cut} {kind} {owner}");
        }
        text.push('\n');
    }
    text
}

fn stream_to_json(stream: &StreamReport) -> Value {
    json!({
        "incarnation": stream.incarnation.0,
        "stream": stream.stream.0,
        "segments": stream.segments,
        "bytes": stream.bytes,
        "frames": stream.frames,
        "record_bytes": stream.record_bytes,
        "records": stream.records,
        "changes": stream.changes,
        "oldest_epoch": stream.oldest.map(|epoch| epoch.0),
        "newest_epoch": stream.newest.map(|epoch| epoch.0),
        "sealed_epoch": stream.sealed.map(|epoch| epoch.0),
        "torn": stream.torn.as_ref().map(|torn| json!({
            "file": torn.file.display().to_string(),
            "offset": torn.offset,
            "bytes": torn.bytes,
        })),
    })
}

fn to_text(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = head(&mut out, report);
    let mut lines = vec![["table or index", "kind", "rows in the checkpoint", "changes in the WAL"]]
        .into_iter()
        .map(|line| line.map(str::to_owned).to_vec())
        .collect::<Vec<_>>();
    lines.extend(report.tables.iter().map(|table| {
        vec![name_of(table), table.kind.to_owned(), count(table.checkpoint_rows), count(table.wal_changes)]
    }));
    out.push_str(&columns(&lines));
    out.push('\n');
    for line in report.manifest.schema.lines() {
        let _ = writeln!(out, "{line}");
    }
    if !report.streams.is_empty() {
        out.push('\n');
        out.push_str(&columns(&streams(report)));
    }
    for stream in &report.streams {
        if let Some(torn) = &stream.torn {
            let _ = writeln!(
                out,
                "\n{}: the last {} bytes, from {}, were not written to their end and do not count",
                torn.file.display(),
                count(torn.bytes),
                torn.offset
            );
        }
    }
    for problem in &report.problems {
        let _ = writeln!(out, "\nDAMAGED: {problem}");
    }
    if report.is_sound() {
        out.push_str("\nall checksums are right\n");
    }
    out
}

fn head(out: &mut String, report: &Report) -> std::fmt::Result {
    let manifest = &report.manifest;
    writeln!(out, "{}: database {}", report.path.display(), identity(report))?;
    writeln!(
        out,
        "  format {}, incarnation {}, {}",
        report.format_version,
        manifest.incarnation.0,
        if manifest.closed.is_some() { "closed in order" } else { "open, or ended without being closed" }
    )?;
    match &manifest.checkpoint {
        Some(checkpoint) => writeln!(
            out,
            "  checkpoint {}: {} rows in {} files of {}; the WAL counts from epoch {}\n",
            checkpoint.number,
            count(checkpoint.parts.iter().map(|part| part.rows).sum()),
            checkpoint.parts.len(),
            mib(checkpoint.parts.iter().map(|part| part.bytes).sum()),
            checkpoint.replay_from.0
        ),
        None => writeln!(out, "  no checkpoint: the WAL counts from its beginning\n"),
    }
}

fn streams(report: &Report) -> Vec<Vec<String>> {
    let header = ["WAL stream", "segments", "size", "frames", "transactions", "changes", "epochs"];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    lines.extend(report.streams.iter().map(|stream| {
        let epochs = match (stream.oldest, stream.newest) {
            (Some(oldest), Some(newest)) => format!("{}..{}", oldest.0, newest.0),
            _ => "-".to_owned(),
        };
        vec![
            format!("{}.{}", stream.incarnation.0, stream.stream.0),
            count(stream.segments),
            mib(stream.bytes),
            count(stream.frames),
            count(stream.records),
            count(stream.changes),
            epochs,
        ]
    }));
    lines
}
