//! Statements and portals by the names that a client gives them; the one without a name, which most messages mean, is found without a search.
//! Names are hashed in a way that need not withstand an attack: a client that chooses bad ones slows down itself.

use hashbrown::HashMap;

/// Things by their names.
#[derive(Debug)]
pub(super) struct ByName<T> {
    unnamed: Option<T>,
    named: HashMap<String, T>,
}

impl<T> ByName<T> {
    pub(super) fn new() -> ByName<T> {
        ByName { unnamed: None, named: HashMap::new() }
    }

    pub(super) fn get(&self, name: &str) -> Option<&T> {
        if name.is_empty() { self.unnamed.as_ref() } else { self.named.get(name) }
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        if name.is_empty() { self.unnamed.as_mut() } else { self.named.get_mut(name) }
    }

    /// Gives a name; what had it is forgotten.
    pub(super) fn insert(&mut self, name: &str, thing: T) {
        if name.is_empty() {
            self.unnamed = Some(thing);
        } else {
            self.named.insert(name.to_owned(), thing);
        }
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<T> {
        if name.is_empty() { self.unnamed.take() } else { self.named.remove(name) }
    }

    pub(super) fn clear(&mut self) {
        self.unnamed = None;
        self.named.clear();
    }
}
