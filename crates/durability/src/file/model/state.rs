//! The state of the model: names, files, locks, and the fault and crash to come.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::content::{FileState, SplitMix};
use super::fault::{CallKind, Crashed, Fault, FaultKind, Times, Verdict, eio, no_space};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId(pub(super) usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DirId(pub(super) usize);

pub(super) const ROOT: DirId = DirId(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    File(FileId),
    Dir(DirId),
}

/// A change of names that is not durable yet. A rename within a directory is one: both names change, or none does.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Link(String, Node),
    Unlink(String),
    Rename { from: String, to: String, node: Node },
}

#[derive(Clone, Debug, Default)]
pub(super) struct Dir {
    pub(super) current: BTreeMap<String, Node>,
    pub(super) synced: BTreeMap<String, Node>,
    pub(super) pending: Vec<NameChange>,
}

impl Dir {
    pub(super) fn change(&mut self, change: NameChange) {
        apply_names(&mut self.current, &change);
        self.pending.push(change);
    }
}

pub(super) fn apply_names(names: &mut BTreeMap<String, Node>, change: &NameChange) {
    match change {
        NameChange::Link(name, node) => {
            names.insert(name.clone(), *node);
        }
        NameChange::Unlink(name) => {
            names.remove(name);
        }
        NameChange::Rename { from, to, node } => {
            names.remove(from);
            names.insert(to.clone(), *node);
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) files: BTreeMap<FileId, FileState>,
    pub(super) dirs: BTreeMap<DirId, Dir>,
    pub(super) next_id: usize,
    pub(super) locks: BTreeSet<PathBuf>,
    pub(super) capacity: Option<u64>,
    pub(super) calls: u64,
    pub(super) fault: Option<Fault>,
    /// Calls that counted since the fault was set.
    pub(super) fault_seen: u64,
    pub(super) fault_hits: u64,
    pub(super) crash_at: Option<u64>,
    pub(super) coin: SplitMix,
}

impl Default for State {
    fn default() -> State {
        State {
            files: BTreeMap::new(),
            dirs: BTreeMap::from([(ROOT, Dir::default())]),
            next_id: 1,
            locks: BTreeSet::new(),
            capacity: None,
            calls: 0,
            fault: None,
            fault_seen: 0,
            fault_hits: 0,
            crash_at: None,
            coin: SplitMix(1),
        }
    }
}

impl State {
    /// Counts a call and says how it ends.
    pub(super) fn call(&mut self, call: CallKind) -> io::Result<Verdict> {
        self.calls += 1;
        if self.crash_at.is_some_and(|at| self.calls >= at) {
            return Err(io::Error::other(Crashed));
        }
        let Some(fault) = self.fault else { return Ok(Verdict::Goes) };
        if fault.calls.is_some_and(|only| only != call) {
            return Ok(Verdict::Goes);
        }
        self.fault_seen += 1;
        if self.fault_seen < fault.at || !fault.kind.can_hit(call) {
            return Ok(Verdict::Goes);
        }
        self.fault_hits += 1;
        if fault.times == Times::Once {
            self.fault = None;
        }
        let error = if fault.kind == FaultKind::NoSpace { no_space() } else { eio() };
        Ok(Verdict::Fails(fault.kind, error))
    }

    /// Counts a call as [`call`](State::call) does, for calls that change nothing when they fail.
    pub(super) fn simple_call(&mut self, call: CallKind) -> io::Result<()> {
        match self.call(call)? {
            Verdict::Goes => Ok(()),
            Verdict::Fails(_, error) => Err(error),
        }
    }

    pub(super) fn find_dir(&self, path: &Path) -> io::Result<DirId> {
        let mut dir = ROOT;
        for part in path.components() {
            match part {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(name) => {
                    let name = name.to_str().ok_or(io::ErrorKind::InvalidInput)?;
                    match self.dirs[&dir].current.get(name) {
                        Some(Node::Dir(next)) => dir = *next,
                        Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                        None => return Err(io::ErrorKind::NotFound.into()),
                    }
                }
                Component::ParentDir | Component::Prefix(_) => return Err(io::ErrorKind::InvalidInput.into()),
            }
        }
        Ok(dir)
    }

    /// The directory a path is in, and its name there.
    pub(super) fn split(&self, path: &Path) -> io::Result<(DirId, String)> {
        let name = path.file_name().and_then(|name| name.to_str()).ok_or(io::ErrorKind::InvalidInput)?;
        let dir = self.find_dir(path.parent().unwrap_or(Path::new("")))?;
        Ok((dir, name.to_owned()))
    }

    pub(super) fn node(&self, dir: DirId, name: &str) -> Option<Node> {
        self.dirs[&dir].current.get(name).copied()
    }

    pub(super) fn dir(&mut self, dir: DirId) -> &mut Dir {
        self.dirs.get_mut(&dir).expect("directories are never forgotten")
    }

    pub(super) fn file(&mut self, file: FileId) -> &mut FileState {
        self.files.get_mut(&file).expect("files are never forgotten")
    }

    pub(super) fn new_file(&mut self) -> FileId {
        let id = FileId(self.next_id);
        self.next_id += 1;
        self.files.insert(id, FileState::default());
        id
    }

    /// Bytes of all files that have a name.
    pub(super) fn used(&self) -> u64 {
        let named = self.dirs.values().flat_map(|dir| dir.current.values());
        named
            .map(|node| match node {
                Node::File(file) => self.files[file].current.len,
                Node::Dir(_) => 0,
            })
            .sum()
    }

    pub(super) fn check_room(&self, file: FileId, len: u64) -> io::Result<()> {
        let growth = len.saturating_sub(self.files[&file].current.len);
        match self.capacity {
            Some(capacity) if growth > 0 && self.used() + growth > capacity => Err(no_space()),
            _ => Ok(()),
        }
    }

    /// The state as a process finds it that was not there before: no locks, no faults.
    pub(super) fn restarted(&self) -> State {
        State {
            locks: BTreeSet::new(),
            calls: 0,
            fault: None,
            fault_seen: 0,
            fault_hits: 0,
            crash_at: None,
            ..self.clone()
        }
    }
}
