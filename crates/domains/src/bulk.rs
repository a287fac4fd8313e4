//! Bulks: several tasks with one publication and one answer.
//!
//! Owns: the memory of a bulk, which has each task at first and each result at last. The client allocates it and frees it; the
//! worker allocates nothing, because memory that one thread allocates and another frees costs both a lock of the allocator.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::structures::{Missing, Reach, Target};
use crate::task::{Job, Panic, TaskError, drop_quietly};

/// One task, and then what came of it.
enum Entry<F, R> {
    Task(F),
    Ended(Result<R, Box<TaskError>>),
    Taken,
}

/// The closures of a bulk as one job, each with a result of its own.
pub(crate) struct Bulk<F, R>(Box<Entries<F, R>>);

struct Entries<F, R>(Vec<Entry<F, R>>);

/// The results of a bulk, in the order of its tasks.
pub struct Results<R> {
    entries: Box<dyn Take<R>>,
    next: usize,
}

/// Entries whose tasks have ended.
trait Take<R>: Send {
    fn len(&self) -> usize;
    /// Moves a result out, once.
    fn take(&mut self, at: usize) -> Option<Result<R, TaskError>>;
}

impl<F: Send, R: Send> Take<R> for Entries<F, R> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn take(&mut self, at: usize) -> Option<Result<R, TaskError>> {
        match std::mem::replace(self.0.get_mut(at)?, Entry::Taken) {
            Entry::Ended(result) => Some(result.map_err(|error| *error)),
            Entry::Task(_) | Entry::Taken => None,
        }
    }
}

impl<F, R> Bulk<F, R> {
    pub(crate) fn new(tasks: Vec<F>) -> Self {
        Self(Box::new(Entries(tasks.into_iter().map(Entry::Task).collect())))
    }
}

impl<T: Target, F, R> Job<T> for Bulk<F, R>
where
    F: for<'a> FnOnce(T::Access<'a>) -> R + Send + 'static,
    R: Send + 'static,
{
    type Reply = Results<R>;

    unsafe fn run(self, keys: &T::Keys, reach: &Reach) -> Results<R> {
        let Self(mut entries) = self;
        for entry in &mut entries.0 {
            let Entry::Task(task) = std::mem::replace(entry, Entry::Taken) else { continue };
            // SAFETY: by this function's own contract; the access ends with each task.
            *entry = Entry::Ended(unsafe { run_one::<T, F, R>(task, keys, reach) });
        }
        Results { entries, next: 0 }
    }
}

/// Runs one task of a bulk. One before it may have poisoned the structure.
///
/// # Safety
/// All keys were found in this reach, and no access to it exists.
#[inline(always)]
unsafe fn run_one<T, F, R>(task: F, keys: &T::Keys, reach: &Reach) -> Result<R, Box<TaskError>>
where
    T: Target,
    F: for<'a> FnOnce(T::Access<'a>) -> R,
{
    if let Err(Missing::Failed(failure)) = T::find(keys, reach) {
        drop_quietly(task);
        return Err(Box::new(TaskError::from(failure)));
    }
    // SAFETY: by this function's own contract.
    let result = catch_unwind(AssertUnwindSafe(|| task(unsafe { T::access(keys, reach) })));
    result.map_err(|panic| {
        T::poison(keys, reach);
        Box::new(TaskError::Panicked(Panic::new(panic)))
    })
}

impl<R> Iterator for Results<R> {
    type Item = Result<R, TaskError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let result = self.entries.take(self.next)?;
        self.next += 1;
        Some(result)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.entries.len() - self.next;
        (left, Some(left))
    }
}

impl<R> ExactSizeIterator for Results<R> {}
impl<R> std::iter::FusedIterator for Results<R> {}

impl<R> std::fmt::Debug for Results<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Results").field("left", &self.len()).finish()
    }
}
