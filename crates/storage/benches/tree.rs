//! Cost of the tree beside that of `std::collections::BTreeMap`, measured in turns in one process.
//!
//! `cargo bench -p atrapos-storage --bench tree -- [--rows N] [--rounds N] [--only lookups|changes|memory|cuts]`
//!
//! Owns nothing but the measurement. Without `--bench`, which `cargo bench` passes and `cargo test` does not, or with
//! `--test`, everything runs once at a small size. `--count get|batch|map|insert|draw N` runs one workload `N` times
//! and nothing else, so that callgrind can count its instructions as the difference between two runs.

#![expect(
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "a benchmark reads the clock and prints its table"
)]

use atrapos_storage::{BulkLoader, HeapMemory, Key, KeyBuf, Memory, Probe, Tree, TreeConfig, locate_batch};
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Bound;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

const ROW_BYTES: usize = 100;
const BATCH: usize = 16;

/// Heap memory for which huge pages are asked: what the engine's provider does.
struct HugePages;

// SAFETY: hands through to the global allocator; advice changes no contents.
unsafe impl Memory for HugePages {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        let chunk = HeapMemory.allocate(layout)?;
        #[cfg(target_os = "linux")]
        if layout.size() >= 2 << 20 {
            // SAFETY: the range was just allocated.
            unsafe { libc::madvise(chunk.as_ptr().cast(), layout.size(), libc::MADV_HUGEPAGE) };
        }
        Some(chunk)
    }

    unsafe fn free(&self, address: NonNull<u8>, layout: Layout) {
        // SAFETY: the promise of the caller.
        unsafe { HeapMemory.free(address, layout) };
    }
}

/// xorshift64*: a few instructions, so that drawing keys is not what is measured.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}

fn row_of(id: u64) -> [u8; ROW_BYTES] {
    let mut row = [0; ROW_BYTES];
    row[..8].copy_from_slice(&id.to_le_bytes());
    row
}

fn tree_of(rows: u64, memory: Arc<dyn Memory>) -> Tree {
    let mut loader = BulkLoader::new(TreeConfig::for_rows_of(ROW_BYTES), memory, 1.0);
    for id in 0..rows {
        loader.push(&id.encode(), &row_of(id), id).expect("the rows are in order");
    }
    loader.finish().expect("the heap has memory")
}

fn lookup_tree(tree: &Tree, rows: u64, count: usize, random: &mut Random) -> u64 {
    let mut sum = 0u64;
    for _ in 0..count {
        let key = random.below(rows).encode();
        if let Some(row) = tree.get(&key) {
            sum += u64::from(row.bytes[0]);
        }
    }
    sum
}

fn lookup_batches(tree: &Tree, rows: u64, count: usize, random: &mut Random) -> u64 {
    let mut sum = 0u64;
    for _ in 0..count / BATCH {
        let keys: [KeyBuf; BATCH] = std::array::from_fn(|_| random.below(rows).encode());
        let mut probes: [Probe<'_>; BATCH] = std::array::from_fn(|i| Probe::new(tree, &keys[i]));
        locate_batch(&mut probes);
        for probe in &probes {
            if let Some(row) = probe.row() {
                sum += u64::from(row.bytes[0]);
            }
        }
    }
    sum
}

fn lookup_map(map: &BTreeMap<u64, [u8; ROW_BYTES]>, rows: u64, count: usize, random: &mut Random) -> u64 {
    let mut sum = 0u64;
    for _ in 0..count {
        if let Some(row) = map.get(&random.below(rows)) {
            sum += u64::from(row[0]);
        }
    }
    sum
}

fn draw_only(rows: u64, count: usize, random: &mut Random) -> u64 {
    (0..count).fold(0, |sum, _| sum.wrapping_add(black_box(random.below(rows).encode()).len() as u64))
}

/// Millions per second of `work`, which does `count` things.
fn rate(count: usize, work: impl FnOnce() -> u64) -> f64 {
    let start = Instant::now();
    black_box(work());
    count as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

struct Settings {
    rows: u64,
    rounds: usize,
    lookups: usize,
    cuts_up_to: u64,
    only: Option<String>,
    count: Option<(String, usize)>,
}

impl Settings {
    fn from_arguments() -> Settings {
        let mut arguments = std::env::args();
        let large = arguments.any(|argument| argument == "--bench")
            && std::env::args().all(|argument| argument != "--test");
        let mut settings = Settings {
            rows: if large { 800_000 } else { 2_000 },
            rounds: if large { 7 } else { 1 },
            lookups: if large { 1_000_000 } else { 2_000 },
            cuts_up_to: if large { 10_000_000 } else { 1_000 },
            only: None,
            count: None,
        };
        let mut arguments = std::env::args().skip(1);
        let number = |text: Option<String>| {
            text.and_then(|text| text.parse().ok()).expect("a number after the option")
        };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--rows" => settings.rows = number(arguments.next()),
                "--rounds" => settings.rounds = number(arguments.next()) as usize,
                "--only" => settings.only = arguments.next(),
                "--count" => {
                    let workload = arguments.next().expect("a workload after --count");
                    settings.count = Some((workload, number(arguments.next()) as usize));
                }
                _ => {}
            }
        }
        settings
    }

    fn wants(&self, what: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == what)
    }
}

fn lookups(settings: &Settings) {
    let rows = settings.rows;
    let huge = tree_of(rows, Arc::new(HugePages));
    let plain = tree_of(rows, Arc::new(HeapMemory));
    let map: BTreeMap<u64, [u8; ROW_BYTES]> = (0..rows).map(|id| (id, row_of(id))).collect();
    let mut seeds = Random(42);
    let mut results: [Vec<f64>; 5] = Default::default();
    for _ in 0..settings.rounds {
        let count = settings.lookups;
        let mut random = Random(seeds.next() | 1);
        results[0].push(rate(count, || lookup_map(&map, rows, count, &mut random)));
        results[1].push(rate(count, || lookup_tree(&plain, rows, count, &mut random)));
        results[2].push(rate(count, || lookup_tree(&huge, rows, count, &mut random)));
        results[3].push(rate(count, || lookup_batches(&plain, rows, count, &mut random)));
        results[4].push(rate(count, || lookup_batches(&huge, rows, count, &mut random)));
    }
    let [map, plain, huge, plain_batch, huge_batch] = results.map(median);
    println!(
        "random look-ups over {rows} rows of {ROW_BYTES} bytes, height {}, M/s (median of {})",
        height_of(rows),
        settings.rounds
    );
    println!("  BTreeMap<u64, [u8; {ROW_BYTES}]>   {map:8.2}");
    println!("  tree                       {plain:8.2}   {:5.2}x the map", plain / map);
    println!("  tree, huge pages           {huge:8.2}   {:5.2}x the map", huge / map);
    println!(
        "  tree, batches of {BATCH}        {plain_batch:8.2}   {:5.2}x one at a time",
        plain_batch / plain
    );
    println!("  same, huge pages           {huge_batch:8.2}   {:5.2}x one at a time", huge_batch / huge);
}

fn height_of(rows: u64) -> usize {
    tree_of(rows.min(5_000_000), Arc::new(HeapMemory)).height()
}

fn changes(settings: &Settings) {
    let rows = settings.rows;
    let mut order: Vec<u64> = (0..rows).collect();
    let mut random = Random(7);
    for last in (1..order.len()).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    let mut results: [Vec<f64>; 8] = Default::default();
    for _ in 0..settings.rounds.min(3) {
        let mut tree = Tree::new(TreeConfig::for_rows_of(ROW_BYTES), Arc::new(HugePages));
        let mut map = BTreeMap::new();
        results[0].push(rate(order.len(), || {
            order.iter().filter(|id| tree.insert(&id.encode(), &row_of(**id), 1).is_ok()).count() as u64
        }));
        results[1].push(rate(order.len(), || {
            order.iter().filter(|id| map.insert(**id, row_of(**id)).is_none()).count() as u64
        }));
        results[2].push(rate(order.len(), || tree.iter().map(|entry| u64::from(entry.bytes()[0])).sum()));
        results[3].push(rate(order.len(), || map.values().map(|row| u64::from(row[0])).sum()));
        results[4]
            .push(rate(order.len(), || tree.iter().rev().map(|entry| u64::from(entry.bytes()[0])).sum()));
        results[5].push(rate(order.len(), || {
            let short = |id: &u64| {
                let (lower, upper) = (id.encode(), (id + 10).encode());
                tree.range(Bound::Included(&lower), Bound::Excluded(&upper))
                    .map(|entry| u64::from(entry.bytes()[0]))
                    .sum::<u64>()
            };
            order.iter().map(short).sum()
        }));
        results[6]
            .push(rate(order.len(), || order.iter().filter(|id| tree.remove(&id.encode())).count() as u64));
        results[7]
            .push(rate(order.len(), || order.iter().filter(|id| map.remove(id).is_some()).count() as u64));
    }
    let [insert, map_insert, scan, map_scan, back, short, remove, map_remove] = results.map(median);
    println!("changes and scans over {rows} rows, keys in random order, M rows/s (M scans/s)");
    println!("  insert                     {insert:8.2}   map {map_insert:8.2}");
    println!("  whole scan                 {scan:8.2}   map {map_scan:8.2}");
    println!("  whole scan, backwards      {back:8.2}");
    println!("  scan of 10 rows            {short:8.2}");
    println!("  remove                     {remove:8.2}   map {map_remove:8.2}");
    let load = rate(rows as usize, || tree_of(rows, Arc::new(HugePages)).len());
    println!("  bulk load                  {load:8.2}");
}

fn memory(settings: &Settings) {
    let rows = settings.rows;
    let key_and_row = |bytes: usize, what: &str, tree: &Tree| {
        let used = tree.bytes();
        let per_row = used.page_bytes as f64 / tree.len() as f64;
        println!(
            "  {what:<26} {per_row:8.1}   key and row {bytes}, {:.1} more; pages {:.1}% full",
            per_row - bytes as f64,
            100.0 * used.used as f64 / used.page_bytes as f64
        );
    };
    println!("bytes per row, all in, {rows} rows");
    let mut loader = BulkLoader::new(TreeConfig::for_rows_of(10), Arc::new(HeapMemory), 1.0);
    for i in 0..rows {
        loader.push(&(i * 2 / 5, (i % 5) as u8).encode(), &[0; 10], i).ok();
    }
    key_and_row(19, "loaded, (u64, u8) and 10", &loader.finish().expect("the heap has memory"));
    key_and_row(8 + ROW_BYTES, "loaded, u64 and 100", &tree_of(rows, Arc::new(HeapMemory)));
    let mut tree = Tree::new(TreeConfig::for_rows_of(ROW_BYTES), Arc::new(HeapMemory));
    let mut random = Random(3);
    while tree.len() < rows {
        let id = random.next();
        tree.insert(&id.encode(), &row_of(id), 0).ok();
    }
    key_and_row(8 + ROW_BYTES, "inserted at random", &tree);
}

fn cuts(settings: &Settings) {
    println!("nodes touched by cutting a tree in the middle and joining it again");
    println!(
        "  {:>10} {:>7} {:>6} {:>6} {:>12} {:>12}",
        "rows", "height", "cut", "join", "cut in us", "join in us"
    );
    for rows in [1_000u64, 100_000, 10_000_000] {
        if rows > settings.cuts_up_to {
            break;
        }
        let mut tree = tree_of(rows, Arc::new(HugePages));
        let height = tree.height();
        let start = Instant::now();
        let (right, cut) = tree.split_off(&(rows / 2 + 3).encode()).expect("the heap has memory");
        let cut_us = start.elapsed().as_secs_f64() * 1e6;
        let start = Instant::now();
        let join = tree.append(right).expect("what was cut joins again");
        let join_us = start.elapsed().as_secs_f64() * 1e6;
        println!("  {rows:>10} {height:>7} {cut:>6} {join:>6} {cut_us:>12.1} {join_us:>12.1}");
    }
}

/// Runs one workload a number of times and nothing else after loading.
fn count(workload: &str, times: usize, rows: u64) {
    let mut random = Random(42);
    if workload == "map" {
        let map: BTreeMap<u64, [u8; ROW_BYTES]> = (0..rows).map(|id| (id, row_of(id))).collect();
        black_box(lookup_map(&map, rows, times, &mut random));
        return;
    }
    if workload == "insert" {
        // Scattered keys into an empty tree.
        let mut tree = Tree::new(TreeConfig::for_rows_of(ROW_BYTES), Arc::new(HeapMemory));
        let stored = (0..times).filter(|_| tree.insert(&random.next().encode(), &row_of(1), 1).is_ok());
        black_box(stored.count());
        return;
    }
    let tree = tree_of(rows, Arc::new(HeapMemory));
    black_box(match workload {
        "get" => lookup_tree(&tree, rows, times, &mut random),
        "batch" => lookup_batches(&tree, rows, times, &mut random),
        _ => draw_only(rows, times, &mut random),
    });
}

fn main() {
    let settings = Settings::from_arguments();
    if let Some((workload, times)) = &settings.count {
        count(workload, *times, settings.rows);
        return;
    }
    if settings.wants("lookups") {
        lookups(&settings);
    }
    if settings.wants("changes") {
        changes(&settings);
    }
    if settings.wants("memory") {
        memory(&settings);
    }
    if settings.wants("cuts") {
        cuts(&settings);
    }
}
