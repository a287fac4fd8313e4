//! [`Registry`]: all structures, by key and by name.
//!
//! Owns: keys, names, and the shared values. Never: knows which worker has what of them.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Key, Kind, Place, REMOVED, Reach, Route, SharedValue};
use crate::task::drop_quietly;

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
