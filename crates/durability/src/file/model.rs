//! Files in memory that fail, and lose what was not synced, on request.
//!
//! Owns the two states of every file and directory: what a process sees, and what is certain to be there after a crash of
//! the machine. Everything is deterministic: the same calls with the same seeds give the same files. It is as adverse as the
//! contract of [`crate::file`] allows, not as kind as some file system happens to be.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::File;

mod calls;
mod content;
mod fault;
mod state;

use calls::ModelFile;
use content::{Content, FileState, SplitMix};
pub use fault::{CallKind, Fault, FaultKind, Times, is_crash};
use state::{FileId, Node, State, apply_names};

/// A file system in memory. Clones share it. The directories `/` and the empty path are there from the start.
#[derive(Clone, Debug, Default)]
pub struct ModelFiles {
    state: Arc<Mutex<State>>,
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
