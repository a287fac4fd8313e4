//! Files in memory that fail, and lose what was not synced, on request.
//!
//! Owns the two states of every file and directory: what a process sees, and what is certain to be there after a crash of
//! the machine. Everything is deterministic: the same calls with the same seeds give the same files. It is as adverse as the
//! contract of [`crate::file`] allows, not as kind as some file system happens to be.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{DirectoryLock, File, FileSystem};

/// Unit of which a power cut keeps all or nothing.
const SECTOR_BYTES: usize = 512;

/// Kinds of calls to the file layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is the method of `FileSystem` or `File` of that name")]
pub enum CallKind {
    Create,
    Open,
    Rename,
    Remove,
    CreateDir,
    RemoveDir,
    List,
    SyncDir,
    Lock,
    Len,
    Read,
    Write,
    Sync,
    Reserve,
    Truncate,
}

/// Kinds of failure of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The device fails: nothing is changed, except that a failed sync loses what it was to make durable. Any call.
    Eio,
    /// No room is left. Strikes calls that may need room: creating, renaming, writing, reserving.
    NoSpace,
    /// Half of the bytes are written, then the device fails. Writes only.
    ShortWrite,
    /// A sync of a file or directory fails. Of the unsynced bytes some are durable and the others lost, the last ones
    /// always, and no later sync brings them back although they can still be read.
    SyncFails,
}

impl FaultKind {
    fn can_hit(self, call: CallKind) -> bool {
        match self {
            FaultKind::Eio => true,
            FaultKind::NoSpace => matches!(
                call,
                CallKind::Create
                    | CallKind::CreateDir
                    | CallKind::Rename
                    | CallKind::Lock
                    | CallKind::Write
                    | CallKind::Reserve
            ),
            FaultKind::ShortWrite => call == CallKind::Write,
            FaultKind::SyncFails => matches!(call, CallKind::Sync | CallKind::SyncDir),
        }
    }
}

/// Number of times that a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// The first call it can hit.
    Once,
    /// Every call it can hit from then on.
    Forever,
}

/// A fault to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The call from which on it strikes, counted from now: 1 is the next one. The first such call that `kind` can hit
    /// fails.
    pub at: u64,
    /// Count, and hit, only calls of this kind; `None` for all.
    pub calls: Option<CallKind>,
    /// The kind of failure.
    pub kind: FaultKind,
    /// Number of times that it strikes.
    pub times: Times,
}

/// The error of every call after the crash asked for by [`ModelFiles::crash_at`].
#[derive(Debug, thiserror::Error)]
#[error("the machine has crashed, as the test asked; look at what is left with `power_cut` or `kill`")]
struct Crashed;

/// Returns whether an error is the crash asked for by [`ModelFiles::crash_at`].
#[must_use]
pub fn is_crash(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Crashed>)
}

/// A file system in memory. Clones share it. The directories `/` and the empty path are there from the start.
#[derive(Clone, Debug, Default)]
pub struct ModelFiles {
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileId(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DirId(usize);

const ROOT: DirId = DirId(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(FileId),
    Dir(DirId),
}

/// A change of names that is not durable yet. A rename within a directory is one: both names change, or none does.
#[derive(Clone, Debug)]
enum NameChange {
    Link(String, Node),
    Unlink(String),
    Rename { from: String, to: String, node: Node },
}

#[derive(Clone, Debug, Default)]
struct Dir {
    current: BTreeMap<String, Node>,
    synced: BTreeMap<String, Node>,
    pending: Vec<NameChange>,
}

impl Dir {
    fn change(&mut self, change: NameChange) {
        apply_names(&mut self.current, &change);
        self.pending.push(change);
    }
}

fn apply_names(names: &mut BTreeMap<String, Node>, change: &NameChange) {
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

/// The bytes of a file: those that were written, and zeros up to `len`.
#[derive(Clone, Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    len: u64,
}

impl Content {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let from = usize::try_from(offset).expect("model files fit in memory");
        let to = from + bytes.len();
        if self.bytes.len() < to {
            self.bytes.resize(to, 0);
        }
        self.bytes[from..to].copy_from_slice(bytes);
        self.len = self.len.max(to as u64);
    }

    fn set_len(&mut self, len: u64) {
        if let Ok(short) = usize::try_from(len)
            && short < self.bytes.len()
        {
            self.bytes.truncate(short);
        }
        self.len = len;
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let rest = self.len.saturating_sub(offset);
        let count = usize::try_from(rest).map_or(out.len(), |rest| rest.min(out.len()));
        let out = &mut out[..count];
        out.fill(0);
        if let Some(bytes) = usize::try_from(offset).ok().and_then(|from| self.bytes.get(from..)) {
            let known = bytes.len().min(count);
            out[..known].copy_from_slice(&bytes[..known]);
        }
        count
    }
}

/// A change of a file that is not durable yet.
#[derive(Clone, Debug)]
enum Pending {
    Write { offset: u64, bytes: Vec<u8> },
    Length(u64),
}

#[derive(Clone, Debug, Default)]
struct FileState {
    current: Content,
    synced: Content,
    pending: Vec<Pending>,
}

impl FileState {
    /// Makes some of the pending changes durable, sector by sector as the coin falls, and forgets the others.
    fn settle_by(&mut self, coin: &mut SplitMix) {
        for change in std::mem::take(&mut self.pending) {
            match change {
                Pending::Length(len) => {
                    if coin.toss() {
                        self.synced.set_len(len);
                    }
                }
                Pending::Write { offset, bytes } => {
                    let mut at = 0;
                    while at < bytes.len() {
                        let place = offset + at as u64;
                        let in_sector = SECTOR_BYTES - (place % SECTOR_BYTES as u64) as usize;
                        let to = bytes.len().min(at + in_sector);
                        if coin.toss() {
                            self.synced.write(place, &bytes[at..to]);
                        }
                        at = to;
                    }
                }
            }
        }
    }

    /// Forgets the unsynced end of what was written last, so that a failed sync always loses something.
    fn lose_last_sector(&mut self) {
        if let Some(Pending::Write { offset, bytes }) = self.pending.last_mut() {
            let end = *offset + bytes.len() as u64;
            let sector = (end - 1) / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
            bytes.truncate(usize::try_from(sector.saturating_sub(*offset)).unwrap_or(0));
        }
    }

    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            match change {
                Pending::Length(len) => self.synced.set_len(len),
                Pending::Write { offset, bytes } => self.synced.write(offset, &bytes),
            }
        }
    }
}

/// A small generator: the model must give the same answers for ever.
#[derive(Clone, Debug)]
struct SplitMix(u64);

impl SplitMix {
    fn toss(&mut self) -> bool {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) >> 63 == 1
    }
}

#[derive(Clone, Debug)]
struct State {
    files: BTreeMap<FileId, FileState>,
    dirs: BTreeMap<DirId, Dir>,
    next_id: usize,
    locks: BTreeSet<PathBuf>,
    capacity: Option<u64>,
    calls: u64,
    fault: Option<Fault>,
    /// Calls that counted since the fault was set.
    fault_seen: u64,
    fault_hits: u64,
    crash_at: Option<u64>,
    coin: SplitMix,
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

/// The end prescribed for a call.
enum Verdict {
    Goes,
    Fails(FaultKind, io::Error),
}

fn eio() -> io::Error {
    rustix::io::Errno::IO.into()
}

fn no_space() -> io::Error {
    rustix::io::Errno::NOSPC.into()
}

impl State {
    /// Counts a call and says how it ends.
    fn call(&mut self, call: CallKind) -> io::Result<Verdict> {
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
    fn simple_call(&mut self, call: CallKind) -> io::Result<()> {
        match self.call(call)? {
            Verdict::Goes => Ok(()),
            Verdict::Fails(_, error) => Err(error),
        }
    }

    fn find_dir(&self, path: &Path) -> io::Result<DirId> {
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
    fn split(&self, path: &Path) -> io::Result<(DirId, String)> {
        let name = path.file_name().and_then(|name| name.to_str()).ok_or(io::ErrorKind::InvalidInput)?;
        let dir = self.find_dir(path.parent().unwrap_or(Path::new("")))?;
        Ok((dir, name.to_owned()))
    }

    fn node(&self, dir: DirId, name: &str) -> Option<Node> {
        self.dirs[&dir].current.get(name).copied()
    }

    fn dir(&mut self, dir: DirId) -> &mut Dir {
        self.dirs.get_mut(&dir).expect("directories are never forgotten")
    }

    fn file(&mut self, file: FileId) -> &mut FileState {
        self.files.get_mut(&file).expect("files are never forgotten")
    }

    fn new_file(&mut self) -> FileId {
        let id = FileId(self.next_id);
        self.next_id += 1;
        self.files.insert(id, FileState::default());
        id
    }

    /// Bytes of all files that have a name.
    fn used(&self) -> u64 {
        let named = self.dirs.values().flat_map(|dir| dir.current.values());
        named
            .map(|node| match node {
                Node::File(file) => self.files[file].current.len,
                Node::Dir(_) => 0,
            })
            .sum()
    }

    fn check_room(&self, file: FileId, len: u64) -> io::Result<()> {
        let growth = len.saturating_sub(self.files[&file].current.len);
        match self.capacity {
            Some(capacity) if growth > 0 && self.used() + growth > capacity => Err(no_space()),
            _ => Ok(()),
        }
    }

    /// The state as a process finds it that was not there before: no locks, no faults.
    fn restarted(&self) -> State {
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

impl ModelFiles {
    /// An empty file system of unlimited size.
    #[must_use]
    pub fn new() -> ModelFiles {
        ModelFiles::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn from_state(state: State) -> ModelFiles {
        ModelFiles { state: Arc::new(Mutex::new(state)) }
    }

    /// The files as the machine finds them after its power was cut now: what was synced, and of every unsynced sector, name
    /// and length either the old or the new state, by `seed`. This file system itself goes on unchanged.
    #[must_use]
    pub fn power_cut(&self, seed: u64) -> ModelFiles {
        let mut state = self.state().restarted();
        let mut coin = SplitMix(seed);
        for file in state.files.values_mut() {
            file.settle_by(&mut coin);
            file.current = file.synced.clone();
        }
        for dir in state.dirs.values_mut() {
            for change in std::mem::take(&mut dir.pending) {
                if coin.toss() {
                    apply_names(&mut dir.synced, &change);
                }
            }
            dir.current = dir.synced.clone();
        }
        ModelFiles::from_state(state)
    }

    /// The files as the next process finds them after this one was killed now: everything that was written. What was not
    /// synced still is not.
    #[must_use]
    pub fn kill(&self) -> ModelFiles {
        ModelFiles::from_state(self.state().restarted())
    }

    /// Sets the fault to come, in place of one that was set before.
    pub fn set_fault(&self, fault: Fault) {
        let mut state = self.state();
        state.fault = Some(fault);
        state.fault_seen = 0;
        state.fault_hits = 0;
    }

    /// Lets all calls succeed again.
    pub fn clear_fault(&self) {
        self.state().fault = None;
    }

    /// Number of calls that the fault set last has hit.
    #[must_use]
    pub fn fault_hits(&self) -> u64 {
        self.state().fault_hits
    }

    /// Crashes at the `nth` call from now (1 is the next): it and all later calls change nothing and fail with an error
    /// that [`is_crash`] recognises.
    pub fn crash_at(&self, nth: u64) {
        let mut state = self.state();
        state.crash_at = Some(state.calls + nth);
    }

    /// Number of calls so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Limits the bytes of all files together; `None` for no limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// Changes the bytes of a file behind everybody's back, durably: `change` gets all of them, may change their number too.
    ///
    /// # Errors
    /// `NotFound` when there is no such file.
    pub fn corrupt(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut state = self.state();
        let (dir, name) = state.split(path)?;
        let Some(Node::File(file)) = state.node(dir, &name) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let content = &state.file(file).current;
        let mut bytes = content.bytes.clone();
        bytes.resize(usize::try_from(content.len).expect("model files fit in memory"), 0);
        change(&mut bytes);
        let content = Content { len: bytes.len() as u64, bytes };
        *state.file(file) = FileState { current: content.clone(), synced: content, pending: Vec::new() };
        Ok(())
    }

    fn handle(&self, path: &Path, file: FileId, write: bool) -> Box<dyn File> {
        Box::new(ModelFile { files: self.clone(), file, path: path.to_path_buf(), write })
    }
}

impl FileSystem for ModelFiles {
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let mut state = self.state();
        state.simple_call(CallKind::Create)?;
        let (dir, name) = state.split(path)?;
        if state.node(dir, &name).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = state.new_file();
        state.dir(dir).change(NameChange::Link(name, Node::File(file)));
        drop(state);
        Ok(self.handle(path, file, true))
    }

    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn File>> {
        let mut state = self.state();
        state.simple_call(CallKind::Open)?;
        let (dir, name) = state.split(path)?;
        match state.node(dir, &name) {
            Some(Node::File(file)) => {
                drop(state);
                Ok(self.handle(path, file, write))
            }
            Some(Node::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.simple_call(CallKind::Rename)?;
        let (from_dir, from) = state.split(from)?;
        let (to_dir, to) = state.split(to)?;
        let node = state.node(from_dir, &from).ok_or(io::ErrorKind::NotFound)?;
        match (node, state.node(to_dir, &to)) {
            (Node::File(_), Some(Node::Dir(_))) => return Err(io::ErrorKind::IsADirectory.into()),
            (Node::Dir(_), Some(Node::File(_))) => return Err(io::ErrorKind::NotADirectory.into()),
            (Node::Dir(_), Some(Node::Dir(there))) if !state.dirs[&there].current.is_empty() => {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
            _ => {}
        }
        if (from_dir, &from) == (to_dir, &to) {
            return Ok(());
        }
        if from_dir == to_dir {
            state.dir(from_dir).change(NameChange::Rename { from, to, node });
        } else {
            state.dir(to_dir).change(NameChange::Link(to, node));
            state.dir(from_dir).change(NameChange::Unlink(from));
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.simple_call(CallKind::Remove)?;
        let (dir, name) = state.split(path)?;
        match state.node(dir, &name) {
            Some(Node::File(_)) => state.dir(dir).change(NameChange::Unlink(name)),
            Some(Node::Dir(_)) => return Err(io::ErrorKind::IsADirectory.into()),
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.simple_call(CallKind::CreateDir)?;
        if path.file_name().is_none() {
            return state.find_dir(path).map(|_| ());
        }
        let (dir, name) = state.split(path)?;
        match state.node(dir, &name) {
            Some(Node::Dir(_)) => Ok(()),
            Some(Node::File(_)) => Err(io::ErrorKind::AlreadyExists.into()),
            None => {
                let new = DirId(state.next_id);
                state.next_id += 1;
                state.dirs.insert(new, Dir::default());
                state.dir(dir).change(NameChange::Link(name, Node::Dir(new)));
                Ok(())
            }
        }
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.simple_call(CallKind::RemoveDir)?;
        let (dir, name) = state.split(path)?;
        match state.node(dir, &name) {
            Some(Node::Dir(found)) if state.dirs[&found].current.is_empty() => {
                state.dir(dir).change(NameChange::Unlink(name));
                Ok(())
            }
            Some(Node::Dir(_)) => Err(io::ErrorKind::DirectoryNotEmpty.into()),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.simple_call(CallKind::List)?;
        let dir = state.find_dir(dir)?;
        Ok(state.dirs[&dir].current.keys().cloned().collect())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        let verdict = state.call(CallKind::SyncDir)?;
        let dir = state.find_dir(dir)?;
        let pending = std::mem::take(&mut state.dir(dir).pending);
        let failed = match verdict {
            Verdict::Goes => None,
            Verdict::Fails(_, error) => Some(error),
        };
        for change in pending {
            // A failed sync loses changes like a power cut does, so that a later one proves nothing.
            if failed.is_none() || state.coin.toss() {
                apply_names(&mut state.dir(dir).synced, &change);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirectoryLock>> {
        let mut state = self.state();
        state.simple_call(CallKind::Lock)?;
        let (dir, name) = state.split(path)?;
        if state.locks.contains(path) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "another process holds it"));
        }
        let file = match state.node(dir, &name) {
            Some(Node::File(file)) => file,
            Some(Node::Dir(_)) => return Err(io::ErrorKind::IsADirectory.into()),
            None => {
                let file = state.new_file();
                state.dir(dir).change(NameChange::Link(name, Node::File(file)));
                file
            }
        };
        let text = format!("{}\n", std::process::id());
        let file = state.file(file);
        file.current = Content { len: text.len() as u64, bytes: text.clone().into_bytes() };
        file.pending.push(Pending::Length(0));
        file.pending.push(Pending::Write { offset: 0, bytes: text.into_bytes() });
        state.locks.insert(path.to_path_buf());
        drop(state);
        Ok(Box::new(ModelLock { files: self.clone(), path: path.to_path_buf() }))
    }
}

#[derive(Debug)]
struct ModelLock {
    files: ModelFiles,
    path: PathBuf,
}

impl DirectoryLock for ModelLock {
    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ModelLock {
    fn drop(&mut self) {
        self.files.state().locks.remove(&self.path);
    }
}

#[derive(Debug)]
struct ModelFile {
    files: ModelFiles,
    file: FileId,
    path: PathBuf,
    write: bool,
}

impl ModelFile {
    fn check_writable(&self) -> io::Result<()> {
        if self.write { Ok(()) } else { Err(rustix::io::Errno::BADF.into()) }
    }
}

impl File for ModelFile {
    fn path(&self) -> &PathBuf {
        &self.path
    }

    fn len(&self) -> io::Result<u64> {
        let mut state = self.files.state();
        state.simple_call(CallKind::Len)?;
        Ok(state.files[&self.file].current.len)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let mut state = self.files.state();
        state.simple_call(CallKind::Read)?;
        Ok(state.files[&self.file].current.read(offset, bytes))
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check_writable()?;
        let mut state = self.files.state();
        let (bytes, failed) = match state.call(CallKind::Write)? {
            Verdict::Goes => (bytes, None),
            Verdict::Fails(FaultKind::ShortWrite, error) => (&bytes[..bytes.len() / 2], Some(error)),
            Verdict::Fails(_, error) => return Err(error),
        };
        state.check_room(self.file, offset + bytes.len() as u64)?;
        if !bytes.is_empty() {
            let file = state.file(self.file);
            file.current.write(offset, bytes);
            file.pending.push(Pending::Write { offset, bytes: bytes.to_vec() });
        }
        failed.map_or(Ok(()), Err)
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.files.state();
        match state.call(CallKind::Sync)? {
            Verdict::Goes => {
                state.file(self.file).sync();
                Ok(())
            }
            Verdict::Fails(_, error) => {
                state.file(self.file).lose_last_sector();
                let mut coin = state.coin.clone();
                state.file(self.file).settle_by(&mut coin);
                state.coin = coin;
                Err(error)
            }
        }
    }

    fn reserve(&mut self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut state = self.files.state();
        state.simple_call(CallKind::Reserve)?;
        state.check_room(self.file, len)?;
        let file = state.file(self.file);
        if len > file.current.len {
            file.current.set_len(len);
            file.pending.push(Pending::Length(len));
        }
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut state = self.files.state();
        state.simple_call(CallKind::Truncate)?;
        let file = state.file(self.file);
        file.current.set_len(len);
        file.pending.push(Pending::Length(len));
        Ok(())
    }
}
