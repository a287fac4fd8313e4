//! Chunks: several tasks of a burst, or of a bulk, that travel together, as one request and one answer.
//!
//! Owns: the memory of the tasks and of their results. It belongs to whoever has the chunk: the client that fills it, the slot that it
//! lies in, the worker that runs it, and the client again; so nothing in it is shared. Never: decides when it is sent (`burst`).
//!
//! # Layout
//! One allocation has a header, records and results. A task is a record: the address of its table ([`Erased`]) and the closure or operation
//! itself. An empty task takes eight bytes, so several share a cache line; one of more than [`INLINE_BYTES`] is boxed. Results of
//! a word or less are put over the records of tasks that have run, so that a chunk takes few cache lines; larger ones lie behind the records.
//! The client makes a chunk, and a burst uses it again, so tasks allocate nothing; memory that one thread allocates and another frees would
//! cost both a lock of the allocator.
//!
//! # Why the unsafe code is sound
//! A record is written by `push` with the table of its own type, and moved out or dropped exactly once: `next` is moved past it before. A
//! result is put once its record is out, at a place before `next` or behind all records, and taken or dropped exactly once: `taken` is moved
//! past it before. Words are reached by a pointer to the whole allocation, never through a reference to the header.

use std::alloc::Layout;
use std::any::Any;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use atrapos_runtime::prefetch_to_write;

use crate::operation::{GROUP_MAX, Group, Operation};
use crate::structures::{Missing, Reach, Target};
use crate::task::{Job, Panic, TaskError, drop_quietly, message_of};

/// Bytes of a task that needs no box, as for calls on one structure.
pub(crate) const INLINE_BYTES: usize = 48;
/// Bytes of a cache line, at which a chunk begins.
const LINE_BYTES: usize = 64;
/// Small tasks whose memory a worker asks for before it knows how many there are.
const PREFETCHED: usize = 8;
/// The unit of records.
type Word = MaybeUninit<*const ()>;
const WORD: usize = size_of::<Word>();
/// Words of a record at most: its table and its task.
const RECORD_WORDS: usize = 1 + INLINE_BYTES / WORD;

/// The functions of one type of task.
struct Erased<T: Target, R> {
    /// Words of the record's task.
    words: u32,
    run: RunOne<T, R>,
    drop: unsafe fn(*mut Word),
    run_group: Option<RunGroup<T, R>>,
}

/// Moves a task out of its record and runs it.
type RunOne<T, R> = for<'a> unsafe fn(*mut Word, <T as Target>::Access<'a>) -> R;
/// Moves operations out of their records and runs them together.
type RunGroup<T, R> = for<'a> unsafe fn(&[*mut Word], <T as Target>::Access<'a>) -> Group<R>;

/// A type of task, and how it is run.
trait Task<T: Target, R>: Send + 'static {
    const RUN_GROUP: Option<RunGroup<T, R>>;
    fn run(self, access: T::Access<'_>) -> R;
}

struct Closure<F>(F);

impl<T: Target, R, F> Task<T, R> for Closure<F>
where
    F: for<'a> FnOnce(T::Access<'a>) -> R + Send + 'static,
{
    const RUN_GROUP: Option<RunGroup<T, R>> = None;
    #[inline(always)]
    fn run(self, access: T::Access<'_>) -> R {
        (self.0)(access)
    }
}

struct Single<O>(O);

impl<T: Target, O: Operation<T>> Task<T, O::Reply> for Single<O> {
    const RUN_GROUP: Option<RunGroup<T, O::Reply>> = Some(run_group::<T, O>);
    fn run(self, access: T::Access<'_>) -> O::Reply {
        let mut replies = O::run_group([self.0].into_iter().collect(), access);
        assert_replies(replies.len(), 1);
        replies.pop().unwrap_or_else(|| unreachable!("there is one"))
    }
}

#[inline(always)]
fn assert_replies(replies: usize, operations: usize) {
    assert!(
        replies == operations,
        "`run_group` gave {replies} replies to {operations} operations: give each one"
    );
}

/// The table for tasks `K`.
struct ErasedOf<T, R, K>(PhantomData<fn(T, R, K)>);

impl<T: Target, R: 'static, K: Task<T, R>> ErasedOf<T, R, K> {
    const ERASED: Erased<T, R> = Erased {
        words: if is_inline::<K>() { size_of::<K>().div_ceil(WORD) as u32 } else { 1 },
        run: run_one::<T, R, K>,
        drop: drop_one::<K>,
        run_group: K::RUN_GROUP,
    };
}

const fn is_inline<K>() -> bool {
    size_of::<K>() <= INLINE_BYTES && align_of::<K>() <= align_of::<Word>()
}

/// # Safety
/// The record has a task of this type, which is gone afterwards.
#[inline(always)]
unsafe fn take_one<K>(record: *mut Word) -> K {
    if is_inline::<K>() {
        // SAFETY: by this function's own contract.
        unsafe { record.cast::<K>().read() }
    } else {
        // SAFETY: as above; a task that is not inline is a pointer from `Box::into_raw`.
        unsafe { *Box::from_raw(record.cast::<*mut K>().read()) }
    }
}

unsafe fn run_one<T: Target, R, K: Task<T, R>>(record: *mut Word, access: T::Access<'_>) -> R {
    // SAFETY: the caller passes a record of this type.
    unsafe { take_one::<K>(record) }.run(access)
}

unsafe fn drop_one<K>(record: *mut Word) {
    // SAFETY: the caller passes a record of this type.
    drop_quietly(unsafe { take_one::<K>(record) });
}

unsafe fn run_group<T: Target, O: Operation<T>>(
    records: &[*mut Word],
    access: T::Access<'_>,
) -> Group<O::Reply> {
    // SAFETY: the caller passes records of this type.
    let operations = records.iter().map(|record| unsafe { take_one::<Single<O>>(*record) }.0).collect();
    let replies = O::run_group(operations, access);
    assert_replies(replies.len(), records.len());
    replies
}

/// The beginning of a chunk's memory. Its words and results lie behind it.
struct Header {
    /// Bytes of the whole.
    bytes: usize,
    /// Words in use, the first one that has not been taken out, and all that there are.
    used: u32,
    next: u32,
    words: u32,
    /// Tasks that were not taken out.
    waiting: u32,
    /// Results that are there, and those that were taken.
    done: u32,
    taken: u32,
    /// Failures, each with the number of its task.
    #[expect(clippy::box_collection, reason = "a header is small, and hardly ever has any")]
    failures: Option<Box<VecDeque<(u32, TaskError)>>>,
}

/// See the module's introduction.
pub(crate) struct Chunk<T: Target, R: 'static> {
    header: NonNull<Header>,
    of: PhantomData<(fn(T), R)>,
}

// SAFETY: it owns its memory, of tasks, which are `Send`, and of results.
unsafe impl<T: Target, R: Send + 'static> Send for Chunk<T, R> {}

impl<T: Target, R: 'static> Chunk<T, R> {
    /// Results of a word or less lie over the records: each task has a word at least, so the place of its result is behind
    /// what was taken out.
    const OVER_RECORDS: bool = size_of::<R>() <= WORD && align_of::<R>() <= align_of::<Word>();
    const RESULT_BYTES: usize = if Self::OVER_RECORDS { WORD } else { size_of::<R>() };

    /// Memory for so many tasks.
    pub(crate) fn new(tasks: usize) -> Self {
        let words = tasks * RECORD_WORDS;
        let results = if Self::OVER_RECORDS { words * WORD } else { tasks * size_of::<R>() };
        let bytes = Self::results_at(words) + results;
        let layout = Self::layout(bytes);
        // SAFETY: the layout has the bytes of a header at least.
        let memory = unsafe { std::alloc::alloc(layout) };
        let Some(header) = NonNull::new(memory.cast::<Header>()) else {
            std::alloc::handle_alloc_error(layout)
        };
        let words = u32::try_from(words).unwrap_or_else(|_| std::alloc::handle_alloc_error(layout));
        let empty = Header { bytes, used: 0, next: 0, words, waiting: 0, done: 0, taken: 0, failures: None };
        // SAFETY: the memory is new, and begins with the place of a header.
        unsafe { header.write(empty) };
        Self { header, of: PhantomData }
    }

    fn layout(bytes: usize) -> Layout {
        let align = LINE_BYTES.max(align_of::<R>());
        Layout::from_size_align(bytes, align)
            .unwrap_or_else(|_| panic!("{bytes} bytes of tasks are too many"))
    }

    /// The place of the first result, in bytes from the beginning.
    fn results_at(words: usize) -> usize {
        if Self::OVER_RECORDS {
            return size_of::<Header>();
        }
        (size_of::<Header>() + words * WORD).next_multiple_of(align_of::<R>())
    }

    #[inline(always)]
    fn header(&self) -> &Header {
        // SAFETY: it was written when the memory was allocated, and the chunk owns it.
        unsafe { self.header.as_ref() }
    }

    #[inline(always)]
    fn header_mut(&mut self) -> &mut Header {
        // SAFETY: as above.
        unsafe { self.header.as_mut() }
    }

    #[inline(always)]
    fn word(&self, at: u32) -> *mut Word {
        debug_assert!(at <= self.header().words);
        // SAFETY: the words lie behind the header.
        unsafe { self.header.as_ptr().add(1).cast::<Word>().add(at as usize) }
    }

    #[inline(always)]
    fn result(&self, at: u32) -> *mut R {
        let bytes = Self::results_at(self.header().words as usize) + at as usize * Self::RESULT_BYTES;
        // SAFETY: there is a place for the result of each task.
        unsafe { self.header.as_ptr().byte_add(bytes).cast() }
    }

    #[inline(always)]
    fn push<K: Task<T, R>>(&mut self, task: K) {
        let erased: &'static Erased<T, R> = &ErasedOf::<T, R, K>::ERASED;
        let Header { used, words, .. } = *self.header();
        assert!(used + 1 + erased.words <= words, "a chunk has room for the tasks that it was made for");
        // SAFETY: the record lies within the words; its first one is the address of the table.
        unsafe { self.word(used).write(Word::new(std::ptr::from_ref(erased).cast())) };
        let place = self.word(used + 1);
        if is_inline::<K>() {
            // SAFETY: the record has room for the task, aligned as a word.
            unsafe { place.cast::<K>().write(task) };
        } else {
            // SAFETY: the record has room for a pointer.
            unsafe { place.cast::<*mut K>().write(Box::into_raw(Box::new(task))) };
        }
        let header = self.header_mut();
        header.used = used + 1 + erased.words;
        header.waiting += 1;
    }

    /// Asks for the lines with the header and the first `tasks` small tasks or results, which other threads wrote and this one will.
    #[inline(always)]
    pub(crate) fn prefetch(&self, tasks: usize) {
        let bytes = size_of::<Header>() + tasks * WORD;
        prefetch_to_write(self.header.as_ptr().cast(), bytes);
    }

    /// Tasks that have not run.
    #[inline(always)]
    pub(crate) fn waiting(&self) -> usize {
        self.header().waiting as usize
    }

    /// Results that were not taken.
    #[inline(always)]
    pub(crate) fn results(&self) -> usize {
        (self.header().done - self.header().taken) as usize
    }

    /// Moves the first result out.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<Result<R, TaskError>> {
        let header = self.header_mut();
        if header.taken == header.done {
            return None;
        }
        let at = header.taken;
        header.taken += 1;
        if let Some(failures) = &mut header.failures
            && failures.front().is_some_and(|(failed, _)| *failed == at)
        {
            return failures.pop_front().map(|(_, error)| Err(error));
        }
        // SAFETY: the task did not fail, so its result is there, and it is taken once.
        Some(Ok(unsafe { self.result(at).read() }))
    }

    /// Makes a chunk whose results are taken ready for tasks.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        debug_assert!(self.results() == 0 && self.waiting() == 0);
        let header = self.header_mut();
        (header.done, header.taken, header.failures) = (0, 0, None);
    }

    /// Adds a result that is there.
    #[inline(always)]
    fn put(&mut self, result: R) {
        let at = self.header().done;
        // SAFETY: the tasks up to this one were taken out, and nothing else lies at this place.
        unsafe { self.result(at).write(result) };
        self.header_mut().done = at + 1;
    }

    /// Adds the failure of a task.
    #[cold]
    fn put_failure(&mut self, error: TaskError) {
        let header = self.header_mut();
        header.failures.get_or_insert_default().push_back((header.done, error));
        header.done += 1;
    }

    /// Adds the same failure as the result of so many tasks, to a chunk without any.
    #[cold]
    pub(crate) fn fail(&mut self, tasks: usize, error: &TaskError) {
        (0..tasks).for_each(|_| self.put_failure(error.again()));
    }

    /// Takes the next task out: its table and its place, which stays as it is until a result is put there.
    #[inline(always)]
    fn next_record(&mut self) -> Option<(&'static Erased<T, R>, *mut Word)> {
        let erased = self.peek()?;
        let place = self.word(self.header().next + 1);
        let header = self.header_mut();
        header.next += 1 + erased.words;
        header.waiting -= 1;
        Some((erased, place))
    }

    /// The table of the next task.
    #[inline(always)]
    fn peek(&self) -> Option<&'static Erased<T, R>> {
        let Header { next, used, .. } = *self.header();
        if next == used {
            return None;
        }
        // SAFETY: a record lies there, whose first word is the address of its table, which is `'static`.
        Some(unsafe { &*self.word(next).read().assume_init().cast::<Erased<T, R>>() })
    }
}

impl<T: Target, R: Send + 'static> Chunk<T, R> {
    /// Adds a closure. There is room for as many as were asked for.
    #[inline(always)]
    pub(crate) fn push_closure<F>(&mut self, closure: F)
    where
        F: for<'a> FnOnce(T::Access<'a>) -> R + Send + 'static,
    {
        self.push(Closure(closure));
    }

    /// Adds an operation.
    #[inline(always)]
    pub(crate) fn push_operation<O: Operation<T, Reply = R>>(&mut self, operation: O) {
        self.push(Single(operation));
    }

    /// Runs the tasks in their order.
    ///
    /// # Safety
    /// All keys were found in this reach, and no access to it exists.
    unsafe fn run(&mut self, keys: &T::Keys, reach: &Reach) {
        let mut poisoned = false;
        while let Some((erased, task)) = self.next_record() {
            if poisoned && let Err(Missing::Failed(failure)) = T::find(keys, reach) {
                // SAFETY: the record was just taken out.
                unsafe { (erased.drop)(task) };
                self.put_failure(TaskError::from(failure));
                continue;
            }
            let ended = if let Some(run) = erased.run_group {
                let group = self.group(erased, task);
                // SAFETY: the records were just taken out; by this function's own contract; the access ends with the group.
                let ran = || unsafe { run(&group, T::access(keys, reach)) };
                let ran = catch_unwind(AssertUnwindSafe(ran));
                ran.map(|replies| replies.into_iter().for_each(|reply| self.put(reply)))
                    .map_err(|panic| self.fail_group(group.len(), panic))
            } else {
                // SAFETY: as above, for one record.
                let ran = || unsafe { (erased.run)(task, T::access(keys, reach)) };
                let ran = catch_unwind(AssertUnwindSafe(ran));
                ran.map(|result| self.put(result)).map_err(|panic| self.fail_group(1, panic))
            };
            if ended.is_err() {
                T::poison(keys, reach);
                poisoned = true;
            }
        }
        let header = self.header_mut();
        (header.used, header.next) = (0, 0);
    }

    /// Takes out the operations of the same type that come right behind one.
    #[inline]
    fn group(&mut self, erased: &'static Erased<T, R>, first: *mut Word) -> Group<*mut Word> {
        let mut group = Group::from_iter([first]);
        while group.len() < GROUP_MAX
            && self.peek().is_some_and(|next| std::ptr::eq(next, erased))
            && let Some((_, task)) = self.next_record()
        {
            group.push(task);
        }
        group
    }

    /// Notes a panic as the result of each of the last tasks: the first has what it carried, the others its message.
    #[cold]
    fn fail_group(&mut self, tasks: usize, panic: Box<dyn Any + Send>) {
        let message = message_of(&*panic).unwrap_or_else(|| "without a message".to_owned());
        self.put_failure(TaskError::Panicked(Panic::new(panic)));
        for _ in 1..tasks {
            let carried = Box::new(format!("an operation of the same group panicked: {message}"));
            self.put_failure(TaskError::Panicked(Panic::new(carried)));
        }
    }
}

impl<T: Target, R: 'static> Drop for Chunk<T, R> {
    fn drop(&mut self) {
        while let Some((erased, place)) = self.next_record() {
            // SAFETY: the task was just taken out.
            unsafe { (erased.drop)(place) };
        }
        while let Some(result) = self.take() {
            drop_quietly(result);
        }
        let layout = Self::layout(self.header().bytes);
        // SAFETY: the header is there, and this is the last look at it.
        unsafe { self.header.drop_in_place() };
        // SAFETY: the memory was allocated with this layout.
        unsafe { std::alloc::dealloc(self.header.as_ptr().cast(), layout) };
    }
}

/// The results of a bulk, in the order of its tasks.
pub struct Results<T: Target, R: 'static>(pub(crate) Chunk<T, R>);

impl<T: Target, R: Send + 'static> Iterator for Results<T, R> {
    type Item = Result<R, TaskError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.take()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.results(), Some(self.0.results()))
    }
}

impl<T: Target, R: Send + 'static> ExactSizeIterator for Results<T, R> {}
impl<T: Target, R: Send + 'static> std::iter::FusedIterator for Results<T, R> {}

impl<T: Target, R: 'static> std::fmt::Debug for Results<T, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Results").field("left", &self.0.results()).finish()
    }
}

/// A chunk as a job: its answer is the chunk with the results.
pub(crate) struct RunChunk<T: Target, R: 'static>(pub(crate) Chunk<T, R>);

impl<T: Target, R: Send + 'static> Job<T> for RunChunk<T, R> {
    type Reply = Results<T, R>;

    #[inline]
    unsafe fn run(self, keys: &T::Keys, reach: &Reach) -> Results<T, R> {
        let Self(mut chunk) = self;
        chunk.prefetch(PREFETCHED);
        reach.count_tasks(T::all(keys)[0], chunk.waiting().saturating_sub(1));
        // SAFETY: by this function's own contract.
        unsafe { chunk.run(keys, reach) };
        Results(chunk)
    }
}
