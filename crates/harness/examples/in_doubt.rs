//! The rate at which an instance that opens its directory brings back transactions that were prepared and have no outcome.
//!
//! `in_doubt [transactions] [rows of each] [workers]`
//!
//! Writes a WAL with so many prepared transactions, each of which inserts rows, as one that was killed before any outcome has it, and opens it: the
//! rows are there again, uncommitted, and locked. Prints the time without that of opening the same directory when it was empty,
//! and the rows per second.

#![expect(clippy::print_stdout, reason = "a program says what it measures")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use atrapos::{Database, Division, InstanceId, Schema, Table, row};
use atrapos_durability::directory::Directory;
use atrapos_durability::file::{FileSystem, RealFiles};
use atrapos_durability::wal::{
    Epoch, GlobalId, Incarnation, Note, StreamId, StreamOptions, StreamWriter, push_record,
};
use atrapos_storage::lock::TxnId;
use atrapos_storage::{Key, Row};

/// The allocator of the program `atrapos`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Error = Box<dyn std::error::Error>;

row! {
    /// A row of the size of the microbenchmark's.
    #[derive(Clone, Debug)]
    pub struct Item {
        /// Its key again.
        pub value: u64,
        /// The rest of its bytes.
        pub filler: [u8; 242],
    }
}

struct Items;

impl Table for Items {
    type Key = u64;
    type Row = Item;
    const NAME: &'static str = "items";
}

/// Transactions in one record of notes that is written at a time.
const TOGETHER: u64 = 10_000;

fn open(path: &Path, workers: usize, rows: u64) -> Result<Database, Error> {
    // The first of two equal instances has the first half of the keys.
    let schema = Schema::new().table::<Items>().split_evenly("items", 0, 2 * rows);
    let division = Division::by_workers(InstanceId(0), vec![workers, workers]);
    Ok(Database::builder(schema).instance(division).pin(false).open(path)?)
}

/// Appends the row that a transaction inserts, as a coordinator sends it.
fn push_row(out: &mut Vec<u8>, key: u64) -> Result<(), Error> {
    let (key, row) = (key.encode(), Item { value: key, filler: [7; 242] });
    let mut encoded = vec![0; row.encoded_len()];
    row.write(&mut encoded);
    out.extend_from_slice(&0_u16.to_le_bytes());
    out.push(1);
    out.extend_from_slice(&u16::try_from(key.len())?.to_le_bytes());
    out.extend_from_slice(&key);
    out.extend_from_slice(&u32::try_from(encoded.len())?.to_le_bytes());
    out.extend_from_slice(&encoded);
    Ok(())
}

/// Adds an incarnation with prepared transactions to a directory that nobody has open.
fn write(path: &Path, transactions: u64, rows: u64, workers: usize) -> Result<(), Error> {
    let files: Arc<dyn FileSystem> = Arc::new(RealFiles::new());
    let (directory, mut manifest) = Directory::open(Arc::clone(&files), path)?;
    manifest.past.clear();
    manifest.incarnation = Incarnation(manifest.incarnation.0 + 1);
    manifest.streams = 1;
    manifest.closed = None;
    directory.publish(&manifest)?;
    let (database, options) = (manifest.database, StreamOptions::of_segments(64 << 20));
    let mut stream = StreamWriter::create(files, path, database, manifest.incarnation, StreamId(0), options)?;
    let mut epoch = manifest.first_epoch;
    for first in (0..transactions).step_by(TOGETHER as usize) {
        let mut payload = Vec::new();
        for number in first..transactions.min(first + TOGETHER) {
            let mut changes = Vec::new();
            for row in 0..rows {
                push_row(&mut changes, number * rows + row)?;
            }
            let txn = TxnId::new(number + 1, (number % workers as u64) as u16).0;
            let of = GlobalId { instance: 1, incarnation: 1, txn };
            let mut record = Vec::new();
            Note::Prepared { of, rows: &changes }.push(&mut record);
            push_record(&mut payload, epoch, &record);
        }
        stream.seal(epoch, &[&payload])?;
        epoch = Epoch(epoch.0 + 1);
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let mut next = |default: u64| arguments.next().unwrap_or(Ok(default));
    let (transactions, rows, workers) = (next(200_000)?, next(10)?, next(2)? as usize);
    let base = tempfile::tempdir_in(".")?;
    let path = base.path().join("instance");
    drop(open(&path, workers, transactions * rows)?);
    let began = Instant::now();
    drop(open(&path, workers, transactions * rows)?);
    let empty = began.elapsed();
    write(&path, transactions, rows, workers)?;
    let began = Instant::now();
    let db = open(&path, workers, transactions * rows)?;
    let elapsed = began.elapsed().saturating_sub(empty);
    let in_doubt = db.recovery_report().map_or(0, |report| report.in_doubt);
    println!(
        "{in_doubt} transactions with {} rows are in doubt again after {elapsed:.2?}: {:.2} M rows/s",
        in_doubt * rows,
        (in_doubt * rows) as f64 / elapsed.as_secs_f64() / 1e6
    );
    Ok(())
}
