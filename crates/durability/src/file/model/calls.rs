//! The calls to the model, as [`FileSystem`], [`File`] and [`DirectoryLock`] define them.

use std::io;
use std::path::{Path, PathBuf};

use super::ModelFiles;
use super::content::{Content, FileState, Pending};
use super::fault::{CallKind, FaultKind, Verdict};
use super::state::{Dir, DirId, FileId, NameChange, Node, apply_names};
use crate::file::{DirectoryLock, File, FileSystem};

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
pub(super) struct ModelFile {
    pub(super) files: ModelFiles,
    pub(super) file: FileId,
    pub(super) path: PathBuf,
    pub(super) write: bool,
}

impl ModelFile {
    fn check_writable(&self) -> io::Result<()> {
        if self.write { Ok(()) } else { Err(rustix::io::Errno::BADF.into()) }
    }

    /// Makes durable what `sync` does, in one call, or fails and loses some of it.
    fn sync_by(&self, sync: impl FnOnce(&mut FileState)) -> io::Result<()> {
        let mut state = self.files.state();
        match state.call(CallKind::Sync)? {
            Verdict::Goes => {
                sync(state.file(self.file));
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
        self.sync_by(FileState::sync)
    }

    fn write_and_sync(&mut self, offset: u64, pieces: &[&[u8]]) -> io::Result<()> {
        let bytes = pieces.concat();
        self.write_at(offset, &bytes)?;
        self.sync_by(|file| file.sync_written(offset, &bytes))
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
