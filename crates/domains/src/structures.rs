//! Structures: the handles that name them, the registry of all, and those that one worker can reach.
//!
//! Owns: the values. Never: knows of slots or threads.
//!
//! A structure is *owned* (one worker has it, closures get `&mut`), *shared* (`Sync`: every worker of its domain reaches it,
//! closures get `&`), or shared *with sessions* (each worker has a session of it as well, such as an epoch pin or a
//! reclamation handle, made on that worker and never sent anywhere).
//!
//! # Invariants
//! - The key of a structure is never used again in this process, by other domains neither: an index with a generation that all registries
//!   count together. So a handle that is used with a client of other domains finds nothing there.
//! - An owned value is in exactly one place: in the [`Reach`] of one worker, or in a message between two.
//! - A shared value lives as long as the registry or any worker's reach has it.
//!
//! # Why the unsafe code is sound
//! A handle is made with the key of a value of its own type, and keys are never used again; so the pointer found under the key
//! leads to a value of that type. A worker runs one task at a time on its own thread, and a target never names an owned
//! structure or a session twice ([`Target::is_distinct`]); so a mutable access is the only one.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::task::{Failure, drop_quietly};

/// The number of a structure among all that ever were: what its handles have in common, also when its name is another's by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Key {
    /// The key as one word, which threads can share.
    #[inline(always)]
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    #[inline(always)]
    pub(crate) fn from_word(word: u64) -> Self {
        Self { index: word as u32, generation: (word >> 32) as u32 }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// One structure that a change is about: by its name (the structure that has it now), or by its handle or [`Key`] (that very structure).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Structure<'a>(pub(crate) By<'a>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By<'a> {
    Name(&'a str),
    Key(Key),
}

impl<'a> From<&'a str> for Structure<'a> {
    fn from(name: &'a str) -> Self {
        Self(By::Name(name))
    }
}

impl<'a> From<&'a String> for Structure<'a> {
    fn from(name: &'a String) -> Self {
        Self(By::Name(name))
    }
}

impl From<Key> for Structure<'_> {
    fn from(key: Key) -> Self {
        Self(By::Key(key))
    }
}

/// A shared structure of which every worker has a session of its own.
pub trait Sessions: Send + Sync + 'static {
    /// State of one worker: an epoch pin, a handle for reclamation, a cache.
    type Session: 'static;
    /// Makes the session of the calling worker.
    fn session(&self) -> Self::Session;

    /// Returns the contention that a session has met, if it counts that.
    fn retries(session: &Self::Session) -> Option<Retries> {
        let _ = session;
        None
    }
}

/// Contention that a session, or several, have met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retries {
    /// Operations that were done.
    pub operations: u64,
    /// Attempts that were given up because of other workers: failed validations, and latches that were taken.
    pub retries: u64,
}

/// Counts of one worker about one structure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) key: Key,
    pub(crate) tasks: u64,
    pub(crate) retries: Option<Retries>,
}

/// The place of one structure, shared by its handles.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) key: Key,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The worker of an owned structure, the domain of a shared one, or [`REMOVED`].
    route: AtomicU32,
}

const REMOVED: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Owned,
    Shared,
}

/// The destination of tasks on a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// To this worker: it has the owned structure.
    Worker(u32),
    /// To any worker of this domain.
    Domain(u32),
    /// Nowhere: the structure was removed.
    Removed,
}

impl Place {
    pub(crate) fn route(&self) -> Route {
        self.route_of(self.route.load(Ordering::Acquire))
    }

    fn route_of(&self, number: u32) -> Route {
        match (number, self.kind) {
            (REMOVED, _) => Route::Removed,
            (worker, Kind::Owned) => Route::Worker(worker),
            (domain, Kind::Shared) => Route::Domain(domain),
        }
    }

    /// Sends tasks to another worker or domain from now on, unless the structure was removed. Returns whether it was not.
    pub(crate) fn set_route(&self, to: u32) -> bool {
        let change = |old| (old != REMOVED).then_some(to);
        self.route.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }
}

/// The handle of a structure that one worker owns: tasks get `&mut S`.
#[derive(Debug)]
pub struct Owned<S> {
    pub(crate) place: Arc<Place>,
    pub(crate) of: PhantomData<fn(S)>,
}

/// The handle of a structure that every worker of its domain reaches: tasks get `&S`.
#[derive(Debug)]
pub struct Shared<S> {
    pub(crate) place: Arc<Place>,
    pub(crate) of: PhantomData<fn(S)>,
}

/// The handle of a shared structure with a session per worker: tasks get `(&S, &mut S::Session)`.
#[derive(Debug)]
pub struct Sessioned<S> {
    pub(crate) place: Arc<Place>,
    pub(crate) of: PhantomData<fn(S)>,
}

macro_rules! handle {
    ($($handle:ident),*) => {$(
        impl<S> Clone for $handle<S> {
            fn clone(&self) -> Self {
                Self { place: Arc::clone(&self.place), of: PhantomData }
            }
        }

        impl<S> $handle<S> {
            /// The name under which the structure was placed.
            #[must_use]
            pub fn name(&self) -> &str {
                &self.place.name
            }

            /// The key of the structure.
            #[must_use]
            pub fn key(&self) -> Key {
                self.place.key
            }
        }

        impl<S> From<&$handle<S>> for Structure<'_> {
            fn from(handle: &$handle<S>) -> Self {
                handle.key().into()
            }
        }
    )*};
}
handle!(Owned, Shared, Sessioned);

/// Reasons why a worker cannot run a task now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum Missing {
    /// This structure is not within the worker's reach.
    Elsewhere(Key),
    /// The task will never run.
    Failed(Failure),
}

/// One structure, or several of one domain, on which a task runs: a handle, or a tuple of up to four.
pub trait Target: 'static {
    /// The names of the structures, as a request carries them.
    #[doc(hidden)]
    type Keys: Copy + Send + 'static;
    /// The names of the structures but the first.
    #[doc(hidden)]
    type Rest: Copy + Send + 'static;
    #[doc(hidden)]
    fn split_keys(keys: Self::Keys) -> (Key, Self::Rest);
    #[doc(hidden)]
    fn join_keys(first: Key, rest: Self::Rest) -> Self::Keys;
    /// The access that a task gets: `&mut S`, `&S`, `(&S, &mut Session)`, or a tuple of these.
    type Access<'a>;
    #[doc(hidden)]
    fn keys(&self) -> Self::Keys;
    /// Calls for each structure.
    #[doc(hidden)]
    fn each_route(&self, visit: &mut dyn FnMut(Route));
    #[doc(hidden)]
    fn all(keys: &Self::Keys) -> &[Key];
    /// Returns whether no structure is named twice.
    #[doc(hidden)]
    fn is_distinct(keys: &Self::Keys) -> bool;
    #[doc(hidden)]
    fn find(keys: &Self::Keys, reach: &Reach) -> Result<(), Missing>;
    /// # Safety
    /// All keys were found in this reach since it last changed, they are distinct, they came from handles of this type, and
    /// no other access exists.
    #[doc(hidden)]
    unsafe fn access<'a>(keys: &Self::Keys, reach: &'a Reach) -> Self::Access<'a>;
    /// Poisons the owned structures.
    #[doc(hidden)]
    fn poison(keys: &Self::Keys, reach: &Reach);
}

/// Writes what all handles have in common.
macro_rules! as_target {
    () => {
        type Keys = Key;
        type Rest = ();
        #[inline(always)]
        fn split_keys(keys: Key) -> (Key, ()) {
            (keys, ())
        }
        #[inline(always)]
        fn join_keys(first: Key, (): ()) -> Key {
            first
        }
        #[inline(always)]
        fn keys(&self) -> Key {
            self.place.key
        }
        #[inline(always)]
        fn each_route(&self, visit: &mut dyn FnMut(Route)) {
            visit(self.place.route());
        }
        #[inline(always)]
        fn all(keys: &Key) -> &[Key] {
            std::slice::from_ref(keys)
        }
        #[inline(always)]
        fn is_distinct(_: &Key) -> bool {
            true
        }
        #[inline(always)]
        fn find(keys: &Key, reach: &Reach) -> Result<(), Missing> {
            reach.find(*keys)
        }
    };
}

impl<S: Send + 'static> Target for Owned<S> {
    type Access<'a> = &'a mut S;
    as_target!();
    #[inline(always)]
    unsafe fn access<'a>(keys: &Key, reach: &'a Reach) -> &'a mut S {
        // SAFETY: the value under a key of this handle is an `S`, and the caller has the only access.
        unsafe { &mut *reach.value(*keys).cast::<S>() }
    }
    fn poison(keys: &Key, reach: &Reach) {
        reach.poison(*keys);
    }
}

impl<S: Send + Sync + 'static> Target for Shared<S> {
    type Access<'a> = &'a S;
    as_target!();
    #[inline(always)]
    unsafe fn access<'a>(keys: &Key, reach: &'a Reach) -> &'a S {
        // SAFETY: the value under a key of this handle is an `S`, which nobody changes but through `&S`.
        unsafe { &*reach.value(*keys).cast::<S>() }
    }
    fn poison(_: &Key, _: &Reach) {}
}

impl<S: Sessions> Target for Sessioned<S> {
    type Access<'a> = (&'a S, &'a mut S::Session);
    as_target!();
    #[inline(always)]
    unsafe fn access<'a>(keys: &Key, reach: &'a Reach) -> Self::Access<'a> {
        // SAFETY: the value under a key of this handle is an `S`, which nobody changes but through `&S`.
        let value = unsafe { &*reach.value(*keys).cast::<S>() };
        // SAFETY: the session beside it was made by `S::session`, on this thread, and the caller has the only access.
        (value, unsafe { &mut *reach.session(*keys).cast::<S::Session>() })
    }
    fn poison(_: &Key, _: &Reach) {}
}

macro_rules! tuple_target {
    ($first:ident $(, $other:ident)+) => {
        #[allow(non_snake_case, reason = "the types of a tuple name its fields")]
        impl<$first: Target<Keys = Key>, $($other: Target<Keys = Key>),+> Target for ($first, $($other),+) {
            type Keys = [Key; 1 $(+ { let _ = stringify!($other); 1 })+];
            type Rest = [Key; 0 $(+ { let _ = stringify!($other); 1 })+];
            fn split_keys([first, rest @ ..]: Self::Keys) -> (Key, Self::Rest) {
                (first, rest)
            }
            fn join_keys(first: Key, [$($other),+]: Self::Rest) -> Self::Keys {
                [first, $($other),+]
            }
            type Access<'a> = ($first::Access<'a>, $($other::Access<'a>),+);
            fn keys(&self) -> Self::Keys {
                let ($first, $($other),+) = self;
                [$first.keys(), $($other.keys()),+]
            }
            fn each_route(&self, visit: &mut dyn FnMut(Route)) {
                let ($first, $($other),+) = self;
                $first.each_route(visit);
                $($other.each_route(visit);)+
            }
            fn all(keys: &Self::Keys) -> &[Key] {
                keys
            }
            fn is_distinct(keys: &Self::Keys) -> bool {
                keys.iter().enumerate().all(|(at, key)| !keys[..at].contains(key))
            }
            fn find(keys: &Self::Keys, reach: &Reach) -> Result<(), Missing> {
                keys.iter().try_for_each(|&key| reach.find(key))
            }
            unsafe fn access<'a>(keys: &Self::Keys, reach: &'a Reach) -> Self::Access<'a> {
                let [$first, $($other),+] = keys;
                // SAFETY: by this function's own contract; the keys are distinct, so the accesses are as well.
                unsafe { ($first::access($first, reach), $($other::access($other, reach)),+) }
            }
            fn poison(keys: &Self::Keys, reach: &Reach) {
                let [$first, $($other),+] = keys;
                $first::poison($first, reach);
                $($other::poison($other, reach);)+
            }
        }
    };
}
tuple_target!(A, B);
tuple_target!(A, B, C);
tuple_target!(A, B, C, D);

/// A value without its type, and how to drop it.
#[derive(Debug)]
pub(crate) struct Value {
    address: NonNull<()>,
    drop: unsafe fn(NonNull<()>),
}

impl Value {
    fn new<V>(value: V) -> Self {
        /// # Safety
        /// The address came from a box of a `V`, which is gone afterwards.
        unsafe fn drop_box<V>(address: NonNull<()>) {
            // SAFETY: by this function's own contract.
            drop(unsafe { Box::from_raw(address.cast::<V>().as_ptr()) });
        }
        // SAFETY: a box is never null.
        let address = unsafe { NonNull::new_unchecked(Box::into_raw(Box::new(value))) };
        Self { address: address.cast(), drop: drop_box::<V> }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: `drop` was chosen for what lies at the address, and this runs once.
        unsafe { (self.drop)(self.address) };
    }
}

/// A value that any thread may have.
#[derive(Debug)]
pub(crate) struct SendValue(Value);

// SAFETY: it is made from an `S: Send` only, and nothing but moves happens to it.
unsafe impl Send for SendValue {}

impl SendValue {
    pub(crate) fn new<S: Send + 'static>(value: S) -> Self {
        Self(Value::new(value))
    }
}

/// An owned value between two workers.
#[derive(Debug)]
pub(crate) struct OwnedValue {
    pub(crate) key: Key,
    value: Value,
    poisoned: bool,
}

// SAFETY: it is made from a `SendValue` only, and nothing but moves happens to it on the way.
unsafe impl Send for OwnedValue {}

impl OwnedValue {
    pub(crate) fn new(key: Key, value: SendValue) -> Self {
        Self { key, value: value.0, poisoned: false }
    }
}

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
    fn find(&self, key: Key) -> Result<(), Missing> {
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
    fn value(&self, key: Key) -> *mut () {
        self.locals.borrow()[key.index as usize].value
    }

    #[inline(always)]
    fn session(&self, key: Key) -> *mut () {
        self.locals.borrow()[key.index as usize].session
    }

    fn poison(&self, key: Key) {
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
    fn install_shared(&self, key: Key, shared: &SharedValue) {
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

type MakeSession = Box<dyn Fn(&(dyn Any + Send + Sync)) -> Value + Send + Sync>;
/// Reads the contention of a session at an address.
type ReadRetries = unsafe fn(*const ()) -> Option<Retries>;

/// # Safety
/// The address is that of a session of an `S` that nobody changes meanwhile.
unsafe fn read_retries<S: Sessions>(session: *const ()) -> Option<Retries> {
    // SAFETY: by this function's own contract.
    S::retries(unsafe { &*session.cast::<S::Session>() })
}

/// A shared structure as the registry keeps it.
pub(crate) struct SharedValue {
    value: Arc<dyn Any + Send + Sync>,
    session: Option<MakeSession>,
    retries: Option<ReadRetries>,
}

impl SharedValue {
    pub(crate) fn new<S: Send + Sync + 'static>(value: S) -> Self {
        Self { value: Arc::new(value), session: None, retries: None }
    }

    pub(crate) fn with_sessions<S: Sessions>(value: S) -> Self {
        let make = |value: &(dyn Any + Send + Sync)| {
            let value = value.downcast_ref::<S>().unwrap_or_else(|| unreachable!("made for this type"));
            Value::new(value.session())
        };
        Self { value: Arc::new(value), session: Some(Box::new(make)), retries: Some(read_retries::<S>) }
    }
}

/// All structures that exist.
#[derive(Default)]
pub(crate) struct Registry {
    inner: Mutex<Entries>,
    /// The domains that the configuration gives to structures by name.
    configured: Mutex<BTreeMap<String, String>>,
}

#[derive(Default)]
struct Entries {
    entries: Vec<Entry>,
    free: Vec<u32>,
    names: HashMap<String, Key>,
}

/// A generation that no key of this process has; zero is nobody's.
fn next_generation() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| last.checked_add(1));
    last.unwrap_or_else(|last| panic!("{last} structures were placed, and there are no more keys: restart"))
        + 1
}

#[derive(Default)]
struct Entry {
    generation: u32,
    place: Option<Arc<Place>>,
    shared: Option<SharedValue>,
}

/// The knowledge of the registry about a key.
pub(crate) enum Known {
    /// It is shared and within the domain asked for; it was taken in.
    Here,
    /// It is, but making the worker's session panicked.
    NoSession,
    /// It lies here.
    At(Route),
}

impl Registry {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The domains that the configuration gives to structures by name.
    pub(crate) fn configured(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.configured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a structure a key and a name. `None` if the name is taken.
    pub(crate) fn add(
        &self,
        name: &str,
        kind: Kind,
        route: u32,
        shared: Option<SharedValue>,
    ) -> Option<Arc<Place>> {
        let mut entries = self.entries();
        if entries.names.contains_key(name) {
            return None;
        }
        let index = entries.free.pop().unwrap_or_else(|| {
            entries.entries.push(Entry::default());
            entries.entries.len() as u32 - 1
        });
        let entry = &mut entries.entries[index as usize];
        entry.generation = next_generation();
        let key = Key { index, generation: entry.generation };
        let place = Arc::new(Place { key, name: name.to_owned(), kind, route: AtomicU32::new(route) });
        entry.place = Some(Arc::clone(&place));
        entry.shared = shared;
        entries.names.insert(name.to_owned(), key);
        Some(place)
    }

    /// Forgets a structure. Returns where it was.
    pub(crate) fn remove(&self, key: Key) -> Route {
        let mut entries = self.entries();
        let Some(entry) = entries.entries.get_mut(key.index as usize) else { return Route::Removed };
        if entry.generation != key.generation {
            return Route::Removed;
        }
        let Some(place) = entry.place.take() else { return Route::Removed };
        entry.generation = 0;
        let shared = entry.shared.take();
        // Whoever has it, or is about to, is told, or sees this.
        let was = place.route_of(place.route.swap(REMOVED, Ordering::AcqRel));
        entries.names.remove(&place.name);
        entries.free.push(key.index);
        drop(entries);
        drop_quietly(shared);
        was
    }

    /// The place of a key.
    pub(crate) fn place(&self, key: Key) -> Option<Arc<Place>> {
        let entries = self.entries();
        let entry = entries.entries.get(key.index as usize)?;
        if entry.generation == key.generation { entry.place.clone() } else { None }
    }

    /// The name of a structure, for people.
    pub(crate) fn name_of(&self, key: Key) -> String {
        self.place(key).map_or_else(|| "(removed)".to_owned(), |place| place.name.clone())
    }

    /// The place of a name.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<Place>> {
        let entries = self.entries();
        let key = *entries.names.get(name)?;
        entries.entries[key.index as usize].place.clone()
    }

    /// All places, in the order of their keys.
    pub(crate) fn places(&self) -> Vec<Arc<Place>> {
        self.entries().entries.iter().filter_map(|entry| entry.place.clone()).collect()
    }

    /// Finds a structure that is not within `reach`, the reach of a worker of `domain`, and takes it in if it is shared and lies
    /// in that domain.
    pub(crate) fn reach(&self, key: Key, domain: u32, reach: &Reach) -> Known {
        let entries = self.entries();
        let Some(entry) = entries.entries.get(key.index as usize) else { return Known::At(Route::Removed) };
        match (&entry.place, &entry.shared) {
            (Some(place), _) if place.key != key => Known::At(Route::Removed),
            (Some(place), Some(shared)) if place.route() == Route::Domain(domain) => {
                // What the structure's own code does wrong is the task's failure, not the worker's.
                match catch_unwind(AssertUnwindSafe(|| reach.install_shared(key, shared))) {
                    Ok(()) => Known::Here,
                    Err(panic) => {
                        drop_quietly(panic);
                        Known::NoSession
                    }
                }
            }
            (Some(place), _) => Known::At(place.route()),
            (None, _) => Known::At(Route::Removed),
        }
    }
}
