//! Writes as a flusher does, with nothing else of a database: a thread fills a buffer, sums it, and writes it to a file that was filled
//! before, each round in one call that ends when the device has it.
//!
//! `bare_writer DIRECTORY MIB_PER_SECOND ROUNDS_PER_SECOND SECONDS`
//!
//! Beside a benchmark in memory, with the bytes and the rounds that the same benchmark writes when it is durable, it leaves of the rate
//! in memory what no flusher can exceed: the workers pay nothing here for their records.

#![expect(clippy::print_stdout, reason = "a program says what it measures")]

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use atrapos_durability::file::{FileSystem, RealFiles};

/// Bytes of the file, which is written again from its beginning.
const FILE_BYTES: u64 = 1 << 30;
const PAGE_BYTES: usize = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, mib, rounds, seconds] = &arguments[..] else {
        return Err("give a directory, MiB per second, rounds per second and seconds".into());
    };
    let (mib, rounds, seconds): (f64, f64, f64) = (mib.parse()?, rounds.parse()?, seconds.parse()?);
    let bytes = ((mib * 1_048_576.0 / rounds) as usize).next_multiple_of(PAGE_BYTES);
    let path = Path::new(directory).join("bare_writer");
    let mut file = RealFiles.create(&path)?;
    // Without a name it is gone when this ends, however it ends.
    RealFiles.remove(&path)?;
    let zeros = vec![0; 1 << 20];
    for at in (0..FILE_BYTES).step_by(zeros.len()) {
        file.write_at(at, &zeros)?;
    }
    file.sync()?;
    file.drop_cached(FILE_BYTES);
    let records = vec![7_u8; bytes];
    let mut buffer = Vec::with_capacity(bytes);
    let (began, mut made, mut at, mut sum) = (Instant::now(), 0_u64, 0, 0_u32);
    let mut writing = Duration::ZERO;
    println!("ready");
    while began.elapsed().as_secs_f64() < seconds {
        let due = Duration::from_secs_f64(made as f64 / rounds);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        let round = Instant::now();
        buffer.clear();
        buffer.extend_from_slice(&records);
        sum ^= crc32fast::hash(&buffer);
        if at + bytes as u64 > FILE_BYTES {
            at = 0;
        }
        file.write_and_sync(at, &[&buffer])?;
        at += bytes as u64;
        if made.is_multiple_of(16) {
            file.drop_cached(at);
        }
        writing += round.elapsed();
        made += 1;
    }
    let took = began.elapsed().as_secs_f64();
    println!(
        "{:.0} rounds/s of {bytes} bytes, {:.1} MiB/s, {:.0} us each (sum {sum:08x})",
        made as f64 / took,
        made as f64 * bytes as f64 / took / 1_048_576.0,
        writing.as_secs_f64() * 1e6 / made as f64
    );
    Ok(())
}
