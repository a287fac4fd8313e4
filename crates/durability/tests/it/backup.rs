//! Backup and verification, of databases at rest, at work, and cut off.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use atrapos_durability::backup::{BackupError, BackupReport, backup};
use atrapos_durability::checkpoint::{PartId, PartWriter};
use atrapos_durability::directory::{Directory, DirectoryError};
use atrapos_durability::file::{DirectoryLock, File, FileSystem, ModelFiles};
use atrapos_durability::manifest::{CheckpointRecord, Manifest};
use atrapos_durability::verify::verify;
use atrapos_durability::wal::{
    Epoch, Incarnation, StreamId, StreamOptions, StreamReader, StreamWriter, push_put, push_record,
};

use crate::support::{crash_everywhere, fail_everywhere, schema};

const DB: &str = "/db";
const COPY: &str = "/copy";

/// A database at work: the directory, and a writer for each of its two streams.
struct Working {
    fs: ModelFiles,
    directory: Directory,
    manifest: Manifest,
    streams: Vec<StreamWriter>,
    epoch: u64,
}

fn shared(fs: &ModelFiles) -> Arc<dyn FileSystem> {
    Arc::new(fs.clone())
}

fn working() -> Working {
    let fs = ModelFiles::new();
    let (directory, manifest) = Directory::create(shared(&fs), Path::new(DB), schema(), 2).expect("created");
    let stream = |stream| {
        let options = StreamOptions { kept_bytes: 16 << 10, ..StreamOptions::of_segments(1024) };
        let (database, incarnation) = (manifest.database, manifest.incarnation);
        StreamWriter::create(shared(&fs), Path::new(DB), database, incarnation, StreamId(stream), options)
            .expect("created")
    };
    let streams = vec![stream(0), stream(1)];
    let mut working = Working { fs, directory, manifest, streams, epoch: 0 };
    working.write(5);
    working.checkpoint();
    working.write(7);
    working
}

impl Working {
    /// Writes so many epochs to both streams.
    fn write(&mut self, epochs: u64) {
        for _ in 0..epochs {
            self.epoch += 1;
            for stream in &mut self.streams {
                let (mut changes, mut record) = (Vec::new(), Vec::new());
                push_put(&mut changes, 0, &self.epoch.to_be_bytes(), self.epoch, &[self.epoch as u8; 100]);
                push_record(&mut record, Epoch(self.epoch), &changes);
                stream.seal(Epoch(self.epoch), &[&record]).expect("written");
            }
        }
    }

    /// Publishes a checkpoint of everything written and removes what it makes unnecessary.
    fn checkpoint(&mut self) {
        self.publish_checkpoint();
        self.remove_unnecessary();
    }

    fn publish_checkpoint(&mut self) {
        let number = self.checkpoint_number() + 1;
        let dir = self.directory.begin_checkpoint(number).expect("begun");
        let id = PartId { database: self.manifest.database, checkpoint: number, part: 0 };
        let mut writer = PartWriter::create(&self.fs, &dir, id).expect("created");
        writer.begin_section(0, &[], None);
        for key in 1..=self.epoch {
            writer.push(&key.to_be_bytes(), key, &[key as u8; 100]).expect("pushed");
        }
        let parts = vec![writer.finish().expect("finished")];
        self.manifest.checkpoint =
            Some(CheckpointRecord { number, replay_from: Epoch(self.epoch + 1), parts });
        self.directory.publish(&self.manifest).expect("published");
    }

    fn checkpoint_number(&self) -> u32 {
        self.manifest.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.number)
    }

    fn remove_unnecessary(&mut self) {
        self.directory.remove_checkpoint(self.checkpoint_number() - 1).expect("removed");
        for stream in &mut self.streams {
            stream.remove_before(Epoch(self.epoch + 1)).expect("removed");
        }
    }
}

fn back_up(fs: &ModelFiles) -> Result<BackupReport, BackupError> {
    backup(shared(fs), Path::new(DB), Path::new(COPY))
}

/// The epoch up to which a database holds everything, after checking that every epoch up to it is there: in the checkpoint,
/// or in both streams.
fn recovered(fs: &ModelFiles, path: &Path, told: &str) -> u64 {
    let (_directory, manifest) =
        Directory::open(shared(fs), path).unwrap_or_else(|error| panic!("{told}: {error}"));
    let report = verify(shared(fs), path).unwrap_or_else(|error| panic!("{told}: {error}"));
    assert!(report.is_sound(), "{told}: {report}");
    assert_eq!(manifest.closed, None, "{told}");
    let covered = manifest.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.replay_from.0 - 1);
    assert_eq!(report.tables[0].checkpoint_rows, covered, "{told}");
    let mut durable = u64::MAX;
    for stream in 0..manifest.streams {
        let (database, incarnation) = (manifest.database, manifest.incarnation);
        let mut reader = StreamReader::open(shared(fs), path, database, incarnation, StreamId(stream))
            .unwrap_or_else(|error| panic!("{told}: {error}"));
        let mut sealed = reader.first_sealed().map_or(0, |epoch| epoch.0);
        assert!(sealed <= covered, "{told}: the WAL begins too late");
        while let Some(frame) = reader.next_frame().unwrap_or_else(|error| panic!("{told}: {error}")) {
            assert_eq!(frame.sealed.0, sealed + 1, "{told}: no epoch is missing");
            sealed = frame.sealed.0;
        }
        durable = durable.min(sealed);
    }
    assert!(durable >= covered, "{told}: everything in the checkpoint was durable");
    durable
}

#[test]
fn a_copy_holds_everything_and_opens() {
    let working = working();
    let report = back_up(&working.fs).expect("copied");
    assert_eq!((report.attempts, report.parts, report.checkpoint), (1, 1, Some(1)));
    assert!(report.segments >= 2 && report.wal_bytes > 1000, "{report:?}");
    assert_eq!(recovered(&working.fs, Path::new(COPY), "the copy"), 12);
    // The original is at work and stays so, and the copy does not share its files.
    let Working { fs, directory, .. } = working;
    drop(directory);
    for seed in 0..4 {
        assert_eq!(recovered(&fs.power_cut(seed), Path::new(COPY), "the copy after a power cut"), 12);
    }
    assert_eq!(recovered(&fs, Path::new(DB), "the original"), 12);
}

#[test]
fn only_an_empty_place_is_written_to() {
    let working = working();
    let told = |to: &str| {
        backup(shared(&working.fs), Path::new(DB), Path::new(to)).expect_err("refused").to_string()
    };
    assert!(told(DB).contains("/db holds a database already"));
    working.fs.create_dir(Path::new("/full")).expect("created");
    working.fs.create_dir(Path::new("/full/of")).expect("created");
    assert!(told("/full").contains("/full is not empty (it has `of`)"));
    let none =
        backup(shared(&working.fs), Path::new("/none"), Path::new(COPY)).expect_err("refused").to_string();
    assert!(none.contains("/none holds no database"), "{none}");
    assert!(working.fs.list(Path::new(COPY)).is_err(), "nothing was left there");
}

#[test]
fn backup_survives_a_crash_and_a_fault_at_every_call() {
    let check = |fs: ModelFiles, outcome: &Result<BackupReport, String>, told: &str| {
        assert_eq!(recovered(&fs, Path::new(DB), told), 12);
        match Directory::open(shared(&fs), Path::new(COPY)) {
            Ok((directory, _)) => {
                drop(directory);
                assert_eq!(recovered(&fs, Path::new(COPY), told), 12);
            }
            Err(error) => {
                assert!(outcome.is_err(), "{told}: it was reported complete, yet {error}");
                let expected = matches!(
                    error,
                    DirectoryError::Missing { .. }
                        | DirectoryError::UnfinishedBackup { .. }
                        | DirectoryError::UnfinishedCreation { .. }
                );
                assert!(expected, "{told}: {error}");
            }
        }
    };
    let base = || working().fs.kill();
    let script = |fs: &ModelFiles| back_up(fs).map_err(|error| error.to_string());
    crash_everywhere(base, script, check);
    fail_everywhere(base, |fs| script(fs).map_err(|error| error.replace(COPY, DB)), check);
}

/// A file system that does something between two calls, those that read a file among them.
struct Between {
    inner: ModelFiles,
    acts: Arc<Acts>,
}

struct Acts {
    calls: AtomicU64,
    /// Called with the number of each call, before it.
    act: Mutex<Box<dyn FnMut(u64) + Send>>,
}

impl Acts {
    fn next(&self) {
        // One thread calls; the counter is atomic only because a file system is shared.
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        (self.act.lock().expect("not poisoned"))(call);
    }
}

impl std::fmt::Debug for Acts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acts").finish_non_exhaustive()
    }
}

/// A file that is read while something happens.
#[derive(Debug)]
struct FileBetween {
    inner: Box<dyn File>,
    acts: Arc<Acts>,
}

impl File for FileBetween {
    fn path(&self) -> &PathBuf {
        self.inner.path()
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.acts.next();
        self.inner.read_at(offset, bytes)
    }
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.inner.sync()
    }
    fn reserve(&mut self, len: u64) -> io::Result<()> {
        self.inner.reserve(len)
    }
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.inner.truncate(len)
    }
}

impl std::fmt::Debug for Between {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Between").finish_non_exhaustive()
    }
}

impl Between {
    fn new(inner: &ModelFiles, act: impl FnMut(u64) + Send + 'static) -> Arc<Between> {
        let acts = Acts { calls: AtomicU64::new(0), act: Mutex::new(Box::new(act)) };
        Arc::new(Between { inner: inner.clone(), acts: Arc::new(acts) })
    }

    fn then(&self) -> &ModelFiles {
        self.acts.next();
        &self.inner
    }

    fn calls(&self) -> u64 {
        self.acts.calls.load(Ordering::Relaxed)
    }
}

impl FileSystem for Between {
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        self.then().create(path)
    }
    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn File>> {
        let inner = self.then().open(path, write)?;
        Ok(Box::new(FileBetween { inner, acts: Arc::clone(&self.acts) }))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.then().rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.then().remove(path)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.then().create_dir(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.then().remove_dir(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.then().list(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.then().sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirectoryLock>> {
        self.then().lock(path)
    }
}

#[test]
fn a_database_at_work_is_copied_whatever_it_does_meanwhile() {
    // Between any two calls of the backup the original writes, publishes a checkpoint, removes what that makes
    // unnecessary, and writes on.
    let mut restarts = 0;
    for at in 1.. {
        let mut original = working();
        let fs = original.fs.clone();
        let between = Between::new(&fs, move |call| {
            if call == at {
                original.write(9);
                original.checkpoint();
                original.write(4);
            }
        });
        let report = backup(Arc::clone(&between) as Arc<dyn FileSystem>, Path::new(DB), Path::new(COPY));
        let told = format!("work at call {at}");
        let report = report.unwrap_or_else(|error| panic!("{told}: {error}"));
        restarts += u32::from(report.attempts > 1);
        let durable = recovered(&fs, Path::new(COPY), &told);
        assert!(durable >= 12, "{told}: what was durable at the beginning is there, not only {durable}");
        if between.calls() < at {
            break;
        }
    }
    assert!(restarts > 3, "checkpoints while copying make it start over");
}

#[test]
fn segments_may_vanish_and_be_written_again_while_they_are_copied() {
    // The checkpoint was published before the backup began; what it makes unnecessary goes between any two calls, and its files
    // are written again.
    let mut restarts = 0;
    for at in 1.. {
        let mut original = working();
        original.write(25);
        original.publish_checkpoint();
        original.write(3);
        let fs = original.fs.clone();
        let between = Between::new(&fs, move |call| {
            if call == at {
                original.remove_unnecessary();
                original.write(80);
            }
        });
        let report = backup(Arc::clone(&between) as Arc<dyn FileSystem>, Path::new(DB), Path::new(COPY));
        let told = format!("removal at call {at}");
        let report = report.unwrap_or_else(|error| panic!("{told}: {error}"));
        restarts += u32::from(report.attempts > 1);
        let durable = recovered(&fs, Path::new(COPY), &told);
        assert!((40..=120).contains(&durable), "{told}: {durable}");
        if between.calls() < at {
            break;
        }
    }
    assert!(restarts > 3, "a segment that vanishes makes it start over");
}

#[test]
fn verification_beside_a_database_at_work_finds_no_fault() {
    for at in 1.. {
        let mut original = working();
        let fs = original.fs.clone();
        let between = Between::new(&fs, move |call| {
            if call == at {
                original.write(9);
                original.checkpoint();
                original.write(80);
            }
        });
        let report = verify(Arc::clone(&between) as Arc<dyn FileSystem>, Path::new(DB)).expect("it is there");
        assert!(report.is_sound(), "work at call {at}: {report}");
        for stream in &report.streams {
            assert!(stream.sealed >= Some(Epoch(12)), "work at call {at}: {report}");
        }
        if between.calls() < at {
            break;
        }
    }
}

#[test]
fn a_database_that_never_rests_gives_a_clear_error() {
    let mut original = working();
    let fs = original.fs.clone();
    let between = Between::new(&fs, move |_| {
        original.write(1);
        original.checkpoint();
    });
    let error = backup(between, Path::new(DB), Path::new(COPY)).expect_err("it never rests").to_string();
    assert!(error.contains("/db"), "{error}");
    let refused = Directory::open(shared(&fs), Path::new(COPY)).expect_err("unfinished").to_string();
    assert!(refused.contains("/copy holds an unfinished backup"), "{refused}");
}

#[test]
fn damage_is_reported_and_not_copied() {
    let base = working().fs.kill();
    let wal = base.list(Path::new("/db/wal")).expect("listed");
    let files = [format!("/db/wal/{}", wal[0]), "/db/checkpoint/00000001/0000.part".to_owned()];
    for file in &files {
        let fs = base.kill();
        fs.corrupt(Path::new(file), |bytes| bytes[120] ^= 4).expect("it is there");
        let report = verify(shared(&fs), Path::new(DB)).expect("the manifest is sound");
        assert!(report.problems.iter().any(|problem| problem.contains(file.as_str())), "{file}: {report}");
        assert!(report.to_string().contains("PROBLEM"), "{report}");
        let refused = back_up(&fs).expect_err("damage is not copied").to_string();
        assert!(refused.contains(&format!("{file} is damaged at byte")), "{refused}");
    }
    assert!(verify(shared(&base), Path::new(DB)).expect("it is there").is_sound());
}

#[test]
fn a_segment_removed_too_early_is_found() {
    let mut original = working();
    original.write(30);
    let Working { fs, mut streams, .. } = original;
    streams[1].remove_before(Epoch(30)).expect("removed");
    let report = verify(shared(&fs), Path::new(DB)).expect("the manifest is sound");
    assert_eq!(report.problems.len(), 1, "{report}");
    assert!(report.problems[0].contains("records of epoch 6 and newer ones are needed"), "{report}");
    assert!(back_up(&fs).is_err());
}

#[test]
fn a_closed_database_must_end_where_it_was_closed() {
    let mut original = working();
    let ends: Vec<_> = original.streams.iter().map(StreamWriter::position).collect();
    original.manifest.closed = Some(ends.clone());
    original.directory.publish(&original.manifest).expect("published");
    let report = verify(shared(&original.fs), Path::new(DB)).expect("it is there");
    assert!(report.is_sound(), "{report}");
    assert!(report.to_string().contains("closed in order"), "{report}");
    back_up(&original.fs).expect("copied");
    assert_eq!(recovered(&original.fs, Path::new(COPY), "the copy"), 12);
    // The last frame is cut: a crash could explain it, but there was none.
    let file = format!("/db/wal/00000001-0001-{:08x}.wal", ends[1].segment);
    let cut = ends[1].length as usize - 60;
    let fs = original.fs.kill();
    fs.corrupt(Path::new(&file), |bytes| bytes[cut..].fill(0)).expect("it is there");
    let report = verify(shared(&fs), Path::new(DB)).expect("it is there");
    assert!(report.problems.iter().any(|problem| problem.contains("was closed with frame 12")), "{report}");
}

#[test]
fn a_torn_tail_is_told_and_is_no_fault() {
    let original = working();
    let end = original.streams[0].position();
    let file = format!("/db/wal/00000001-0000-{:08x}.wal", end.segment);
    let fs = original.fs.kill();
    let cut = end.length as usize - 60;
    fs.corrupt(Path::new(&file), |bytes| bytes[cut..cut + 20].fill(0xff)).expect("it is there");
    let report = verify(shared(&fs), Path::new(DB)).expect("it is there");
    assert!(report.is_sound(), "{report}");
    let torn = report.streams[0].torn.as_ref().expect("it is told");
    assert_eq!(torn.file, Path::new(&file));
    assert_eq!(report.streams[0].sealed, Some(Epoch(11)));
    assert_eq!(report.streams[1].sealed, Some(Epoch(12)));
    assert_eq!((report.streams[0].incarnation, report.streams[0].stream), (Incarnation(1), StreamId(0)));
    assert!(report.to_string().contains("which do not count"), "{report}");
    back_up(&fs).expect("copied");
    assert_eq!(recovered(&fs, Path::new(COPY), "the copy"), 11);
}
