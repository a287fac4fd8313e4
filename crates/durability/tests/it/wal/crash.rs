//! Crashes and failures at every call.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use atrapos_durability::file::{DirectoryLock, Fault, FaultKind, File, FileSystem, ModelFiles, Times};
use atrapos_durability::wal::{Epoch, remove_leftovers, scan, settle};

use super::{DATABASE, DIR, FRAMES, INCARNATION, STREAM, create, database, payload, read_all, write_all};

const SEEDS: u64 = 6;

fn calls_of_a_run() -> u64 {
    let fs = database();
    let before = fs.calls();
    let (frames, ..) = write_all(&shared(&fs));
    assert_eq!(frames, FRAMES);
    assert_eq!(read_all(&fs).unwrap(), FRAMES);
    fs.calls() - before
}

fn shared(fs: &ModelFiles) -> Arc<dyn FileSystem> {
    Arc::new(fs.clone())
}

/// Checks the stream after a crash: everything reported is there, at most one frame more, and nothing looks like
/// damage.
fn check_after_crash(fs: &ModelFiles, reported: u64, what: &str) {
    let found = read_all(fs).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(found >= reported, "{what}: {reported} frames were reported written, {found} are there");
    assert!(found <= reported + 1, "{what}: frames that nobody wrote");
    // What recovery has found and settled stays, whatever comes next.
    let dir = Path::new(DIR);
    if fs.list(dir).is_err() {
        return;
    }
    let summary = scan(shared(fs), dir, DATABASE, INCARNATION, STREAM, None).unwrap();
    assert_eq!(summary.frames, found);
    settle(fs, dir, &summary).unwrap();
    remove_leftovers(fs, dir).unwrap();
    for seed in 0..2 {
        assert_eq!(read_all(&fs.power_cut(seed)).unwrap(), found, "{what}: what was settled is gone");
    }
}

#[test]
fn a_crash_at_any_call_loses_nothing_reported() {
    for call in 1..=calls_of_a_run() {
        let fs = database();
        fs.crash_at(call);
        let (reported, _, error) = write_all(&shared(&fs));
        // A crash while the next segment is prepared is seen with the next call at the latest.
        assert!(error.is_some() || reported == FRAMES);
        check_after_crash(&fs.kill(), reported, &format!("killed at call {call}"));
        for seed in 0..SEEDS {
            let what = format!("power cut at call {call}, seed {seed}");
            check_after_crash(&fs.power_cut(seed), reported, &what);
        }
    }
}

#[test]
fn a_failure_of_any_call_is_reported_and_final() {
    let calls = calls_of_a_run();
    let kinds = [FaultKind::Eio, FaultKind::NoSpace, FaultKind::ShortWrite, FaultKind::SyncFails];
    for (kind, times) in kinds.into_iter().flat_map(|kind| [(kind, Times::Once), (kind, Times::Forever)]) {
        let mut failures = 0;
        for at in 1..=calls {
            let fs = database();
            fs.set_fault(Fault { at, calls: None, kind, times });
            let (reported, writer, error) = write_all(&shared(&fs));
            let what = format!("{kind:?} {times:?} at call {at}");
            if let (Some(mut writer), Some(error)) = (writer, &error) {
                failures += 1;
                assert!(reported < FRAMES);
                fs.clear_fault();
                let calls = fs.calls();
                let again = writer.seal(Epoch(50), &[&payload(50)]).unwrap_err();
                assert_eq!(again.to_string(), error.to_string(), "{what}: the stream came back");
                writer.prepare_next();
                assert_eq!(fs.calls(), calls, "{what}: a failed stream was touched");
            }
            if error.is_none() {
                assert_eq!(reported, FRAMES);
            }
            fs.clear_fault();
            check_after_crash(&fs.kill(), reported, &what);
            for seed in 0..SEEDS {
                check_after_crash(&fs.power_cut(seed), reported, &format!("{what}, power cut {seed}"));
            }
        }
        assert!(failures > 0, "{kind:?} {times:?} never hit");
    }
}

/// A call that a planted bug leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgotten {
    /// The sync of bytes that are to be written and synced.
    Bytes,
    /// The sync of names after a segment became a spare.
    SpareNames,
}

/// A file system that forgets to sync: a writer with that bug.
#[derive(Debug)]
pub(crate) struct ForgetsToSync {
    files: ModelFiles,
    forgotten: Forgotten,
    /// Set when the last change of a name made a segment a spare.
    spare: AtomicBool,
}

impl ForgetsToSync {
    pub(crate) fn on(files: &ModelFiles, forgotten: Forgotten) -> Arc<dyn FileSystem> {
        Arc::new(ForgetsToSync { files: files.clone(), forgotten, spare: AtomicBool::new(false) })
    }

    fn forgetful(&self, file: Box<dyn File>) -> Box<dyn File> {
        if self.forgotten == Forgotten::Bytes { Box::new(ForgetfulFile(file)) } else { file }
    }
}

#[derive(Debug)]
struct ForgetfulFile(Box<dyn File>);

impl FileSystem for ForgetsToSync {
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        Ok(self.forgetful(self.files.create(path)?))
    }
    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn File>> {
        Ok(self.forgetful(self.files.open(path, write)?))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.spare.store(to.extension().is_some_and(|extension| extension == "new"), SeqCst);
        self.files.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.remove(path)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.files.create_dir(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.files.remove_dir(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.files.list(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if self.forgotten == Forgotten::SpareNames && self.spare.load(SeqCst) {
            return Ok(());
        }
        self.files.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirectoryLock>> {
        self.files.lock(path)
    }
}

impl File for ForgetfulFile {
    fn path(&self) -> &PathBuf {
        self.0.path()
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(offset, bytes)
    }
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }
    fn write_and_sync(&mut self, offset: u64, pieces: &[&[u8]]) -> io::Result<()> {
        self.0.write_at(offset, &pieces.concat())
    }
    fn reserve(&mut self, len: u64) -> io::Result<()> {
        self.0.reserve(len)
    }
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.0.truncate(len)
    }
}

#[test]
fn a_writer_that_forgets_to_sync_is_caught() {
    let fs = database();
    let (reported, ..) = write_all(&ForgetsToSync::on(&fs, Forgotten::Bytes));
    assert_eq!(reported, FRAMES);
    assert_eq!(read_all(&fs.kill()).unwrap(), FRAMES, "only a power cut can show it");
    let lost = (0..SEEDS).filter(|seed| read_all(&fs.power_cut(*seed)).ok() != Some(FRAMES)).count();
    assert!(lost > 0, "no power cut shows that nothing was synced");
}

#[test]
fn room_for_finishing_is_reserved() {
    let fs = database();
    let mut writer = create(&shared(&fs)).unwrap();
    writer.seal(Epoch(1), &[&payload(1)]).unwrap();
    // The device is full from now on: what was reserved can be used up, and only then the stream fails.
    fs.set_capacity(Some(0));
    let mut written = 1;
    while writer.seal(Epoch(written + 1), &[&payload(written + 1)]).is_ok() {
        written += 1;
    }
    assert!(written > 2, "the frames of the first segment have their room");
    assert!(writer.failure().unwrap().to_string().contains("reserve room for"));
    assert_eq!(read_all(&fs.power_cut(1)).unwrap(), written);
}

#[test]
fn segments_are_removed_from_the_front_at_any_crash() {
    let run = |fs: &ModelFiles| {
        let (_, writer, _) = write_all(&shared(fs));
        writer.unwrap()
    };
    let fs = database();
    let mut writer = run(&fs);
    let segments = writer.segments();
    assert!(segments.len() >= 4);
    let before = fs.calls();
    let removed = writer.remove_before(Epoch(FRAMES)).unwrap();
    let calls = fs.calls() - before;
    let left = writer.segments();
    assert!(left.len() < segments.len());
    assert_eq!(removed, segments[..segments.len() - left.len()].iter().map(|segment| segment.bytes).sum());
    // Never a record of that epoch or a newer one, never the segment being written.
    let summary = scan(shared(&fs), Path::new(DIR), DATABASE, INCARNATION, STREAM, None).unwrap();
    assert_eq!(summary.end, writer.position());
    assert!(summary.first_sealed < Some(Epoch(FRAMES)));
    assert_eq!(summary.newest_epoch, Some(Epoch(FRAMES + 1)));
    assert!(summary.segments[0].newest_epoch >= Some(Epoch(FRAMES)));

    for call in 1..=calls {
        let fs = database();
        let mut writer = run(&fs);
        fs.crash_at(call);
        assert!(writer.remove_before(Epoch(FRAMES)).is_err());
        for seed in 0..SEEDS {
            let found =
                scan(shared(&fs.power_cut(seed)), Path::new(DIR), DATABASE, INCARNATION, STREAM, None)
                    .unwrap();
            assert_eq!(found.end, summary.end);
        }
    }
}
