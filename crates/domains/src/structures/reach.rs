//! [`Reach`]: the structures that one worker can reach, by the index of their keys.
//!
//! Owns: the values that a worker owns, and its sessions. Never: is used by another thread.
//!
//! # Why the unsafe code is sound
//! The contention of a session is read between two tasks, by the function that was chosen for its type.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::value::{OwnedValue, ReadRetries, SharedValue, Value};
use super::{Counts, Key, Missing};
use crate::task::{Failure, drop_quietly};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    Present,
    Poisoned,
}

#[derive(Debug)]
enum Keep {
    Nothing,
    Owned(Value),
    Shared(
        #[expect(dead_code, reason = "keeps alive what `value` leads to")] Arc<dyn Any + Send + Sync>,
        #[expect(dead_code, reason = "keeps alive what `session` leads to")] Option<Value>,
    ),
}

/// The knowledge of one worker about one key.
#[derive(Debug)]
struct Local {
    generation: u32,
    state: State,
    value: *mut (),
    session: *mut (),
    /// Tasks that have found it here.
    tasks: u64,
    retries: Option<ReadRetries>,
    keep: Keep,
}

const ABSENT: Local = Local {
    generation: 0,
    state: State::Absent,
    value: std::ptr::null_mut(),
    session: std::ptr::null_mut(),
    tasks: 0,
    retries: None,
    keep: Keep::Nothing,
};

/// The structures that one worker reaches.
#[derive(Debug, Default)]
pub struct Reach {
    locals: RefCell<Vec<Local>>,
    /// Tasks that ran inside others' slots, since somebody asked.
    more_tasks: Cell<usize>,
}

impl Reach {
    /// Counts tasks on a structure that is here that run in one slot, but the first.
    #[inline(always)]
    pub(crate) fn count_tasks(&self, key: Key, more: usize) {
        self.more_tasks.set(self.more_tasks.get() + more);
        self.locals.borrow_mut()[key.index as usize].tasks += more as u64;
    }

    /// The counts of all structures here.
    pub(crate) fn counts(&self) -> Vec<Counts> {
        let locals = self.locals.borrow();
        let here = locals.iter().enumerate().filter(|(_, local)| local.state != State::Absent);
        let counts = here.map(|(index, local)| Counts {
            key: Key { index: index as u32, generation: local.generation },
            tasks: local.tasks,
            retries: local.retries.and_then(|read| {
                // SAFETY: the function was chosen for the type of this session, and no task runs now.
                let read = catch_unwind(AssertUnwindSafe(|| unsafe { read(local.session) }));
                // It is code of a user: if it panics, there is no count, and the worker goes on.
                read.unwrap_or_else(|panic| {
                    drop_quietly(panic);
                    None
                })
            }),
        });
        counts.collect()
    }

    /// The tasks that were counted since they were taken.
    #[inline(always)]
    pub(crate) fn counted_tasks(&self) -> usize {
        self.more_tasks.get()
    }

    /// The tasks that were counted since the last time.
    #[inline(always)]
    pub(crate) fn take_tasks(&self) -> usize {
        self.more_tasks.take()
    }

    #[inline(always)]
    pub(super) fn find(&self, key: Key) -> Result<(), Missing> {
        let mut locals = self.locals.borrow_mut();
        match locals.get_mut(key.index as usize) {
            Some(local) if local.generation == key.generation && local.state == State::Present => {
                local.tasks += 1;
                Ok(())
            }
            Some(local) if local.generation == key.generation && local.state == State::Poisoned => {
                Err(Missing::Failed(Failure::Poisoned))
            }
            _ => Err(Missing::Elsewhere(key)),
        }
    }

    #[inline(always)]
    pub(super) fn value(&self, key: Key) -> *mut () {
        self.locals.borrow()[key.index as usize].value
    }

    #[inline(always)]
    pub(super) fn session(&self, key: Key) -> *mut () {
        self.locals.borrow()[key.index as usize].session
    }

    pub(super) fn poison(&self, key: Key) {
        self.locals.borrow_mut()[key.index as usize].state = State::Poisoned;
    }

    fn put(&self, key: Key, local: Local) {
        let old = {
            let mut locals = self.locals.borrow_mut();
            let index = key.index as usize;
            if locals.len() <= index {
                locals.resize_with(index + 1, || ABSENT);
            }
            std::mem::replace(&mut locals[index], local)
        };
        drop_quietly(old);
    }

    /// Takes in an owned structure.
    pub(crate) fn install(&self, owned: OwnedValue) {
        let state = if owned.poisoned { State::Poisoned } else { State::Present };
        let value = owned.value.address.as_ptr();
        let generation = owned.key.generation;
        self.put(owned.key, Local { generation, state, value, keep: Keep::Owned(owned.value), ..ABSENT });
    }

    /// Takes in a shared structure, with a session made by `session` if it has any.
    pub(super) fn install_shared(&self, key: Key, shared: &SharedValue) {
        let session = shared.session.as_ref().map(|make| make(&*shared.value));
        let local = Local {
            generation: key.generation,
            state: State::Present,
            value: Arc::as_ptr(&shared.value).cast_mut().cast(),
            session: session.as_ref().map_or(std::ptr::null_mut(), |session| session.address.as_ptr()),
            tasks: 0,
            retries: shared.retries,
            keep: Keep::Shared(Arc::clone(&shared.value), session),
        };
        self.put(key, local);
    }

    /// Returns whether a structure is here.
    pub(crate) fn has(&self, key: Key) -> bool {
        let locals = self.locals.borrow();
        let local = locals.get(key.index as usize);
        local.is_some_and(|local| local.generation == key.generation && local.state != State::Absent)
    }

    /// Gives an owned structure away, or forgets a shared one.
    pub(crate) fn take(&self, key: Key) -> Option<OwnedValue> {
        let local = {
            let mut locals = self.locals.borrow_mut();
            let local = locals.get_mut(key.index as usize)?;
            if local.generation != key.generation {
                return None;
            }
            std::mem::replace(local, ABSENT)
        };
        match local.keep {
            Keep::Owned(value) => Some(OwnedValue { key, value, poisoned: local.state == State::Poisoned }),
            keep @ (Keep::Nothing | Keep::Shared(..)) => {
                drop_quietly(keep);
                None
            }
        }
    }

    /// Forgets every shared structure.
    pub(crate) fn forget_shared(&self) {
        let forgotten: Vec<Local> = {
            let mut locals = self.locals.borrow_mut();
            locals
                .iter_mut()
                .filter(|local| matches!(local.keep, Keep::Shared(..)))
                .map(|local| std::mem::replace(local, ABSENT))
                .collect()
        };
        forgotten.into_iter().for_each(drop_quietly);
    }

    /// The keys of all owned structures here.
    pub(crate) fn owned_keys(&self) -> Vec<Key> {
        let locals = self.locals.borrow();
        let owned = locals.iter().enumerate().filter(|(_, local)| matches!(local.keep, Keep::Owned(_)));
        owned.map(|(index, local)| Key { index: index as u32, generation: local.generation }).collect()
    }
}
