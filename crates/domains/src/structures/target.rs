//! Handles, and what tasks get of the structures that they name ([`Target`]).
//!
//! Owns: the types of handles. Never: keeps a value.
//!
//! # Why the unsafe code is sound
//! A handle is made with the key of a value of its own type, and keys are never used again; so the pointer found under the key
//! leads to a value of that type. A worker runs one task at a time on its own thread, and a target never names an owned
//! structure or a session twice ([`Target::is_distinct`]); so a mutable access is the only one.

use std::marker::PhantomData;
use std::sync::Arc;

use super::{Key, Place, Reach, Route, Sessions, Structure};
use crate::task::Failure;

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
