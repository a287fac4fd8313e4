//! [`Handle`]: a structure as the tasks of its domain reach it, whether workers share it or one owns it.
//!
//! Owns: the operations on one record, and what they reply. Never: chooses an operation.

use atrapos_domains::{Key, Owned, Sessioned, Sessions, Target};
use atrapos_structures::{Contention, Refused, Unordered};

use crate::mix::Class;
use crate::records;
use crate::stream::Operation;

/// A shared structure with a session for each worker.
#[derive(Debug)]
pub(crate) struct Placed<S>(pub(crate) S);

impl<S: atrapos_structures::Shared<u64> + 'static> Sessions for Placed<S> {
    type Session = S::Session;

    fn session(&self) -> S::Session {
        self.0.session()
    }
}

/// Reply to a read or update of a record that is not there. A reply below [`records::PAYLOAD_END`] is right.
pub(crate) const MISSING: u64 = u64::MAX;
/// Reply to an insertion of a record that is there.
pub(crate) const PRESENT: u64 = u64::MAX - 1;
/// Reply to an insertion that the structure refused.
pub(crate) const REFUSED: u64 = u64::MAX - 2;

/// The handle of a structure, whose tasks do the operations of a load.
pub(crate) trait Handle: Target<Keys = Key> + Clone + Send + Sync {
    /// Set if the structure can be scanned.
    const ORDERED: bool;

    fn read(access: &mut Self::Access<'_>, key: u64) -> Option<u64>;
    fn update(access: &mut Self::Access<'_>, key: u64, value: u64) -> bool;
    fn insert(access: &mut Self::Access<'_>, key: u64, value: u64) -> Result<bool, Refused>;
    fn scan(
        access: &mut Self::Access<'_>,
        from: u64,
        limit: usize,
        visit: &mut dyn FnMut(&u64, u64),
    ) -> Result<usize, Unordered>;
    fn contention(access: &Self::Access<'_>) -> Option<Contention>;
}

impl<S: atrapos_structures::Shared<u64> + 'static> Handle for Sessioned<Placed<S>> {
    const ORDERED: bool = S::ORDERED;

    #[inline]
    fn read((structure, session): &mut Self::Access<'_>, key: u64) -> Option<u64> {
        structure.0.read(session, &key)
    }

    #[inline]
    fn update((structure, session): &mut Self::Access<'_>, key: u64, value: u64) -> bool {
        structure.0.update(session, &key, value)
    }

    #[inline]
    fn insert((structure, session): &mut Self::Access<'_>, key: u64, value: u64) -> Result<bool, Refused> {
        structure.0.insert(session, &key, value)
    }

    fn scan(
        (structure, session): &mut Self::Access<'_>,
        from: u64,
        limit: usize,
        visit: &mut dyn FnMut(&u64, u64),
    ) -> Result<usize, Unordered> {
        structure.0.scan(session, &from, limit, visit)
    }

    fn contention((_, session): &Self::Access<'_>) -> Option<Contention> {
        S::contention(session)
    }
}

impl<S: atrapos_structures::Owned<u64> + 'static> Handle for Owned<S> {
    const ORDERED: bool = S::ORDERED;

    #[inline]
    fn read(structure: &mut Self::Access<'_>, key: u64) -> Option<u64> {
        structure.read(&key)
    }

    #[inline]
    fn update(structure: &mut Self::Access<'_>, key: u64, value: u64) -> bool {
        structure.update(&key, value)
    }

    #[inline]
    fn insert(structure: &mut Self::Access<'_>, key: u64, value: u64) -> Result<bool, Refused> {
        structure.insert(&key, value)
    }

    fn scan(
        structure: &mut Self::Access<'_>,
        from: u64,
        limit: usize,
        visit: &mut dyn FnMut(&u64, u64),
    ) -> Result<usize, Unordered> {
        structure.scan(&from, limit, visit)
    }

    fn contention(structure: &Self::Access<'_>) -> Option<Contention> {
        structure.contention()
    }
}

/// Reads a record, and replies with the payload of its value.
#[inline]
pub(crate) fn read<H: Handle>(access: &mut H::Access<'_>, key: u64) -> u64 {
    H::read(access, key).map_or(MISSING, |value| records::payload(key, value))
}

/// Updates a record.
#[inline]
pub(crate) fn update<H: Handle>(access: &mut H::Access<'_>, key: u64, value: u64) -> u64 {
    if H::update(access, key, value) { 0 } else { MISSING }
}

/// Inserts a record.
#[inline]
pub(crate) fn insert<H: Handle>(access: &mut H::Access<'_>, key: u64, value: u64) -> u64 {
    match H::insert(access, key, value) {
        Ok(true) => 0,
        Ok(false) => PRESENT,
        Err(_) => REFUSED,
    }
}

/// Does an operation.
#[inline]
pub(crate) fn perform<H: Handle>(access: &mut H::Access<'_>, operation: Operation) -> u64 {
    let Operation { class, key, value } = operation;
    match class {
        Class::Read => read::<H>(access, key),
        Class::Update => update::<H>(access, key, value),
        Class::Insert => insert::<H>(access, key, value),
    }
}
