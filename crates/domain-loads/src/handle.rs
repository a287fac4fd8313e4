//! [`Handle`]: a structure as the tasks of its domain reach it, whether workers share it or one owns it.
//!
//! Owns: the operations on one record, and what they reply. Never: chooses an operation.

use atrapos_domains::{GROUP_MAX, Group, Key, Owned, Sessioned, Sessions, Target};
use atrapos_structures::{Contention, PointAccess, Refused, Unordered};

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
    fn access_many(
        access: &mut Self::Access<'_>,
        accesses: &[PointAccess<'_, u64>],
        found: &mut [Option<u64>],
    );
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

    #[inline]
    fn access_many(
        (structure, session): &mut Self::Access<'_>,
        accesses: &[PointAccess<'_, u64>],
        found: &mut [Option<u64>],
    ) {
        structure.0.access_many(session, accesses, found);
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

    #[inline]
    fn access_many(
        structure: &mut Self::Access<'_>,
        accesses: &[PointAccess<'_, u64>],
        found: &mut [Option<u64>],
    ) {
        structure.access_many(accesses, found);
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

/// Does operations that came together, with the same effects as one after the other: the look-ups of those that insert nothing are made
/// together.
impl<H: Handle> atrapos_domains::Operation<H> for Operation {
    type Reply = u64;

    #[inline]
    fn run_group(operations: Group<Operation>, mut access: H::Access<'_>) -> Group<u64> {
        let (mut points, mut replies) = (Group::new(), Group::new());
        for Operation { class, key, value } in &operations {
            match class {
                Class::Read => points.push(PointAccess::Read(key)),
                Class::Update => points.push(PointAccess::Update(key, *value)),
                Class::Insert => {
                    access_points::<H>(&mut access, &mut points, &mut replies);
                    replies.push(insert::<H>(&mut access, *key, *value));
                }
            }
        }
        access_points::<H>(&mut access, &mut points, &mut replies);
        replies
    }
}

/// Read of the record with this key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookup(pub(crate) u64);

impl<H: Handle> atrapos_domains::Operation<H> for Lookup {
    type Reply = u64;

    #[inline]
    fn run_group(lookups: Group<Lookup>, mut access: H::Access<'_>) -> Group<u64> {
        let mut points = lookups.iter().map(|Lookup(key)| PointAccess::Read(key)).collect();
        let mut replies = Group::new();
        access_points::<H>(&mut access, &mut points, &mut replies);
        replies
    }
}

/// Makes accesses together, and adds their replies.
#[inline]
fn access_points<H: Handle>(
    access: &mut H::Access<'_>,
    points: &mut Group<PointAccess<'_, u64>>,
    replies: &mut Group<u64>,
) {
    let mut found = [None; GROUP_MAX];
    H::access_many(access, points, &mut found[..points.len()]);
    // An update that is done has the value that it wrote, which is the key's own.
    let reply = |(point, found): (PointAccess<'_, u64>, Option<u64>)| {
        found.map_or(MISSING, |value| records::payload(*point.key(), value))
    };
    replies.extend(points.drain(..).zip(found).map(reply));
}
