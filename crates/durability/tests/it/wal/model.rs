//! The model of the files itself: it must be able to lose what a real machine may lose, or the crash tests prove nothing.

use std::io::ErrorKind;
use std::path::Path;

use atrapos_durability::file::{
    CallKind, Fault, FaultKind, File, FileSystem, ModelFiles, RealFiles, Times, is_crash,
};

fn content(fs: &ModelFiles, path: &Path) -> Option<Vec<u8>> {
    let file = fs.open(path, false).ok()?;
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_at(0, &mut bytes).unwrap();
    Some(bytes)
}

/// A file of three sectors of ones, durable with its name.
fn with_file() -> (ModelFiles, Box<dyn File>) {
    let fs = ModelFiles::new();
    let mut file = fs.create(Path::new("file")).unwrap();
    file.write_and_sync(0, &[&[1; 1536]]).unwrap();
    fs.sync_dir(Path::new("")).unwrap();
    (fs, file)
}

#[test]
fn a_power_cut_tears_unsynced_writes_by_sectors() {
    let (fs, mut file) = with_file();
    file.write_at(0, &[2; 1536]).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..64 {
        let bytes = content(&fs.power_cut(seed), Path::new("file")).unwrap();
        assert_eq!(bytes, content(&fs.power_cut(seed), Path::new("file")).unwrap(), "seed {seed} repeats");
        assert!(bytes.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        seen.insert(bytes.chunks(512).map(|sector| sector[0]).collect::<Vec<_>>());
    }
    assert_eq!(seen.len(), 8, "each of three sectors is old or new");
    assert_eq!(content(&fs.kill(), Path::new("file")).unwrap(), [2; 1536]);
    file.sync().unwrap();
    assert!((0..64).all(|seed| content(&fs.power_cut(seed), Path::new("file")).unwrap() == [2; 1536]));
}

#[test]
fn a_synced_write_makes_its_own_bytes_durable_and_no_others() {
    let (fs, mut file) = with_file();
    file.write_at(0, &[2; 1536]).unwrap();
    file.reserve(4096).unwrap();
    file.write_and_sync(256, &[&[3; 512]]).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..256 {
        let bytes = content(&fs.power_cut(seed), Path::new("file")).unwrap();
        assert_eq!(bytes[256..768], [3; 512], "seed {seed}: what was synced is there");
        seen.insert((bytes[0], bytes[1023], bytes[1535], bytes.len()));
    }
    assert_eq!(seen.len(), 16, "each part that was not synced is old or new, and so is the length");
    file.truncate(0).unwrap();
    file.write_and_sync(0, &[&[4; 40], &[], &[4; 60]]).unwrap();
    for seed in 0..64 {
        let bytes = content(&fs.power_cut(seed), Path::new("file")).unwrap();
        assert_eq!(bytes[..100], [4; 100], "seed {seed}: a length of before does not cut it off");
        assert!(bytes[100..].iter().all(|byte| *byte == 0), "seed {seed}: nothing comes back");
    }
}

#[test]
fn a_sync_after_a_failed_one_brings_nothing_back() {
    let (fs, mut file) = with_file();
    file.write_at(0, &[2; 1536]).unwrap();
    fs.set_fault(Fault { at: 1, calls: None, kind: FaultKind::SyncFails, times: Times::Once });
    assert!(file.sync().is_err());
    assert_eq!(fs.fault_hits(), 1);
    file.sync().unwrap();
    assert_eq!(content(&fs, Path::new("file")).unwrap(), [2; 1536], "it can be read all the same");
    assert!((0..64).all(|seed| content(&fs.power_cut(seed), Path::new("file")).unwrap()[1535] == 1));
}

#[test]
fn names_are_durable_only_with_their_directory() {
    let (fs, _file) = with_file();
    fs.create(Path::new("new")).unwrap();
    fs.rename(Path::new("file"), Path::new("renamed")).unwrap();
    let names: std::collections::BTreeSet<_> =
        (0..64).map(|seed| fs.power_cut(seed).list(Path::new("")).unwrap()).collect();
    // A rename happens or does not: the file has one name in each.
    let expected = [vec!["file"], vec!["file", "new"], vec!["new", "renamed"], vec!["renamed"]];
    assert_eq!(names.into_iter().collect::<Vec<_>>(), expected);
    fs.sync_dir(Path::new("")).unwrap();
    assert!((0..64).all(|seed| fs.power_cut(seed).list(Path::new("")).unwrap() == expected[2]));
}

#[test]
fn faults_hit_the_calls_they_were_set_for() {
    let (fs, mut file) = with_file();
    let fault = |at, calls, kind, times| fs.set_fault(Fault { at, calls, kind, times });
    fault(2, Some(CallKind::Write), FaultKind::ShortWrite, Times::Once);
    file.write_at(0, &[3; 8]).unwrap();
    assert!(file.write_at(0, &[4; 8]).is_err());
    assert_eq!(content(&fs, Path::new("file")).unwrap()[..8], [4, 4, 4, 4, 3, 3, 3, 3]);
    file.write_at(0, &[5; 8]).unwrap();
    fault(1, None, FaultKind::NoSpace, Times::Forever);
    assert_eq!(file.write_at(0, &[6; 8]).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(file.reserve(4096).unwrap_err().kind(), ErrorKind::StorageFull);
    file.sync().unwrap();
    fs.clear_fault();
    fs.set_capacity(Some(2048));
    assert_eq!(file.reserve(4096).unwrap_err().kind(), ErrorKind::StorageFull);
    file.reserve(2048).unwrap();
    fs.crash_at(2);
    file.write_at(0, &[7; 8]).unwrap();
    assert!(is_crash(&file.write_at(0, &[8; 8]).unwrap_err()));
    assert!(is_crash(&file.sync().unwrap_err()));
    assert_eq!(content(&fs.kill(), Path::new("file")).unwrap()[..8], [7; 8]);
}

/// The same calls on files in memory and on the operating system's give the same answers.
#[test]
fn the_model_answers_as_the_operating_system() {
    let model = ModelFiles::new();
    model.create_dir(Path::new("/base")).unwrap();
    let of_model = answers(&model, Path::new("/base"));
    assert!(of_model.len() > 15);
    let temp = tempfile::tempdir().unwrap();
    assert_eq!(answers(&RealFiles::new(), temp.path()), of_model);
}

fn answers(fs: &dyn FileSystem, base: &Path) -> Vec<String> {
    let (a, b, dir) = (base.join("a"), base.join("b"), base.join("dir"));
    let mut seen = Vec::new();
    let mut note = |answer: Result<String, std::io::Error>| {
        seen.push(answer.unwrap_or_else(|error| format!("{:?}", error.kind())));
    };
    let done = |()| "done".to_owned();
    note(fs.open(&a, true).map(|_| "opened".to_owned()));
    let mut file = fs.create(&a).unwrap();
    note(fs.create(&a).map(|_| "created".to_owned()));
    note(file.write_at(10, b"hello").map(done));
    note(file.len().map(|len| len.to_string()));
    let mut bytes = [9; 8];
    note(file.read_at(8, &mut bytes).map(|read| format!("{read} {bytes:?}")));
    note(file.read_at(100, &mut bytes).map(|read| read.to_string()));
    note(file.reserve(40).map(done));
    note(file.len().map(|len| len.to_string()));
    note(file.reserve(20).map(done));
    note(file.len().map(|len| len.to_string()));
    note(file.truncate(12).map(done));
    note(file.truncate(16).map(done));
    note(file.read_at(8, &mut bytes).map(|read| format!("{read} {bytes:?}")));
    note(file.write_and_sync(0, &[b"x"]).map(done));
    note(fs.create_dir(&dir).map(done));
    note(fs.create_dir(&dir).map(done));
    note(fs.create(&dir.join("inner")).map(|_| "created".to_owned()));
    note(fs.remove_dir(&dir).map(done));
    note(fs.rename(&a, &b).map(done));
    note(fs.rename(&a, &b).map(done));
    note(fs.list(base).map(|names| names.join(" ")));
    note(fs.list(&base.join("none")).map(|names| names.join(" ")));
    note(fs.sync_dir(base).map(done));
    note(fs.remove(&dir.join("inner")).map(done));
    note(fs.remove_dir(&dir).map(done));
    note(fs.remove(&b).map(done));
    note(fs.remove(&b).map(done));
    seen
}
