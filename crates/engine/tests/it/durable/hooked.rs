//! Files that can be looked at, and held up, at every write.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

use atrapos_durability::file::{DirectoryLock, File, FileSystem, ModelFiles};

type Hook = Arc<dyn Fn(&Path) + Send + Sync>;

/// A model of files that calls a hook before each write, with the path of the file.
#[derive(Clone)]
pub(crate) struct Hooked {
    files: ModelFiles,
    hook: Hook,
}

impl Hooked {
    pub(crate) fn new(files: &ModelFiles, hook: impl Fn(&Path) + Send + Sync + 'static) -> Arc<Hooked> {
        Arc::new(Hooked { files: files.clone(), hook: Arc::new(hook) })
    }

    fn hooked(&self, file: Box<dyn File>) -> Box<dyn File> {
        Box::new(HookedFile { file, hook: Arc::clone(&self.hook) })
    }
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}

impl FileSystem for Hooked {
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        Ok(self.hooked(self.files.create(path)?))
    }
    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn File>> {
        Ok(self.hooked(self.files.open(path, write)?))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
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
        self.files.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirectoryLock>> {
        self.files.lock(path)
    }
}

struct HookedFile {
    file: Box<dyn File>,
    hook: Hook,
}

impl fmt::Debug for HookedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl File for HookedFile {
    fn path(&self) -> &PathBuf {
        self.file.path()
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, bytes)
    }
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        (self.hook)(self.file.path());
        self.file.write_at(offset, bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
    fn reserve(&mut self, len: u64) -> io::Result<()> {
        self.file.reserve(len)
    }
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }
}

/// A device that stands still while its gate is closed.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

/// Opens the gate when it is dropped: a test that fails must not wait for the device for ever.
pub(crate) struct Closed(Gate);

impl Gate {
    /// Waits until the gate is open.
    pub(crate) fn pass(&self) {
        let mut is_closed = self.0.0.lock().unwrap();
        while *is_closed {
            is_closed = self.0.1.wait(is_closed).unwrap();
        }
    }

    pub(crate) fn close(&self) -> Closed {
        *self.0.0.lock().unwrap() = true;
        Closed(self.clone())
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        *self.0.0.0.lock().unwrap() = false;
        self.0.0.1.notify_all();
    }
}
