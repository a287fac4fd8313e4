//! [`Handle`]: a structure as the tasks of its domain reach it, whether workers share it or one owns it.
//!
//! Owns: the operations on one record, and what they reply. Never: chooses an operation.
//!
//! A structure is behind a trait object ([`Use`]), so that clients and jobs are compiled for the two kinds of handles, not for each structure. An operation is
//! dispatched by its type where it is one of many that come together: the loop of direct use, and the accesses of a group, are compiled for each.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atrapos_domains::{GROUP_MAX, Group, Key, Owned, Retries, Sessioned, Sessions, Target};
use atrapos_structures::{Contention, Opened, PointAccess, Refused, Unordered};

use crate::control::Turn;
use crate::lanes::{Entry, Member, Sides};
use crate::mix::Class;
use crate::records;
use crate::stream::{Operation, Stream, Tally};

/// A structure as one worker uses it, whichever it is: see [`atrapos_structures::Owned`].
pub(crate) trait Use: Send {
    fn is_ordered(&self) -> bool;
    fn read(&mut self, key: u64) -> Option<u64>;
    fn update(&mut self, key: u64, value: u64) -> bool;
    fn insert(&mut self, key: u64, value: u64) -> Result<bool, Refused>;
    fn access_many(&mut self, accesses: &[PointAccess<'_, u64>], found: &mut [Option<u64>]);
    fn scan(&mut self, from: u64, limit: usize, visit: &mut dyn FnMut(&u64, u64))
    -> Result<usize, Unordered>;
    fn contention(&self) -> Option<Contention>;
    /// Does some operations of a stream, and counts them and their replies.
    fn drive_some(&mut self, operations: u64, stream: &mut Stream, tally: &mut Tally);
    /// Does the operations of a stream until the turn ends, and counts them and their replies; returns when it began.
    fn drive(&mut self, turn: &mut Turn, stream: &mut Stream, tally: &mut Tally) -> Instant;
}

impl<S: atrapos_structures::Owned<u64>> Use for S {
    fn is_ordered(&self) -> bool {
        S::ORDERED
    }

    fn read(&mut self, key: u64) -> Option<u64> {
        atrapos_structures::Owned::read(self, &key)
    }

    fn update(&mut self, key: u64, value: u64) -> bool {
        atrapos_structures::Owned::update(self, &key, value)
    }

    fn insert(&mut self, key: u64, value: u64) -> Result<bool, Refused> {
        atrapos_structures::Owned::insert(self, &key, value)
    }

    fn access_many(&mut self, accesses: &[PointAccess<'_, u64>], found: &mut [Option<u64>]) {
        atrapos_structures::Owned::access_many(self, accesses, found);
    }

    fn scan(
        &mut self,
        from: u64,
        limit: usize,
        visit: &mut dyn FnMut(&u64, u64),
    ) -> Result<usize, Unordered> {
        atrapos_structures::Owned::scan(self, &from, limit, visit)
    }

    fn contention(&self) -> Option<Contention> {
        atrapos_structures::Owned::contention(self)
    }

    #[inline]
    fn drive_some(&mut self, operations: u64, stream: &mut Stream, tally: &mut Tally) {
        for _ in 0..operations {
            let operation = stream.next();
            tally.submitted(operation.class);
            tally.reply(perform(self, operation));
        }
    }

    fn drive(&mut self, turn: &mut Turn, stream: &mut Stream, tally: &mut Tally) -> Instant {
        let Ok(began) = turn.drive(|operations| {
            self.drive_some(operations, stream, tally);
            Ok::<_, Infallible>(operations)
        });
        began
    }
}

/// Operations that are drawn before they are made together: enough that reading the clock costs nothing, few enough to stay in the cache.
const DRAWN: usize = 1_024;

/// Does the operations of a stream as [`Use::drive`] does, but draws some first, and then makes those in groups, as the worker of a domain does with
/// the tasks of bursts. Returns when it began, and the time that drawing took.
pub(crate) fn drive_together(
    structure: &mut dyn Use,
    turn: &mut Turn,
    stream: &mut Stream,
    tally: &mut Tally,
) -> (Instant, Duration) {
    let mut drawn = Vec::with_capacity(DRAWN);
    let (mut done, mut drawing) = (0, Duration::ZERO);
    let began = turn.begin();
    let mut from = began;
    loop {
        let chunk = turn.next(done);
        drawn.extend((0..chunk).map(|_| stream.next()));
        done += chunk;
        if chunk > 0 && drawn.len() + chunk as usize <= DRAWN {
            continue;
        }
        let access = Instant::now();
        drawing += access - from;
        for group in drawn.chunks(GROUP_MAX) {
            group.iter().for_each(|operation| tally.submitted(operation.class));
            perform_group(structure, group).into_iter().for_each(|reply| tally.reply(reply));
        }
        drawn.clear();
        from = Instant::now();
        if chunk == 0 {
            return (began, drawing);
        }
    }
}

/// A shared structure, with a session for each worker.
pub(crate) struct Placed(Box<dyn Open>);

/// A shared structure, whichever it is.
trait Open: Send + Sync {
    fn open(&self) -> Box<dyn Use>;
}

impl<S: atrapos_structures::Shared<u64> + 'static> Open for Arc<S> {
    fn open(&self) -> Box<dyn Use> {
        Box::new(Opened::new(Arc::clone(self)))
    }
}

impl Placed {
    pub(crate) fn new<S: atrapos_structures::Shared<u64> + 'static>(structure: S) -> Placed {
        Placed(Box::new(Arc::new(structure)))
    }
}

impl Sessions for Placed {
    type Session = Box<dyn Use>;

    fn session(&self) -> Box<dyn Use> {
        self.0.open()
    }

    fn retries(session: &Box<dyn Use>) -> Option<Retries> {
        let contention = session.contention()?;
        let retries = contention.failed_validations + contention.busy;
        Some(Retries { operations: contention.operations, retries })
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
    /// The structure, as a task has it.
    fn used<'a>(access: &'a mut Self::Access<'_>) -> &'a mut dyn Use;
    /// Adds the structure to those of a client.
    fn join(sides: &mut Sides, member: Member<Self>) -> Entry;
}

impl Handle for Sessioned<Placed> {
    #[inline(always)]
    fn used<'a>((_, session): &'a mut Self::Access<'_>) -> &'a mut dyn Use {
        &mut ***session
    }

    fn join(sides: &mut Sides, member: Member<Self>) -> Entry {
        Entry::Shared(sides.shared.add(member))
    }
}

impl Handle for Owned<Box<dyn Use>> {
    #[inline(always)]
    fn used<'a>(structure: &'a mut Self::Access<'_>) -> &'a mut dyn Use {
        &mut ***structure
    }

    fn join(sides: &mut Sides, member: Member<Self>) -> Entry {
        Entry::Owned(sides.owned.add(member))
    }
}

/// Reads a record, and replies with the payload of its value.
#[inline]
pub(crate) fn read(structure: &mut (impl Use + ?Sized), key: u64) -> u64 {
    structure.read(key).map_or(MISSING, |value| records::payload(key, value))
}

/// Updates a record.
#[inline]
pub(crate) fn update(structure: &mut (impl Use + ?Sized), key: u64, value: u64) -> u64 {
    if structure.update(key, value) { 0 } else { MISSING }
}

/// Inserts a record.
#[inline]
pub(crate) fn insert(structure: &mut (impl Use + ?Sized), key: u64, value: u64) -> u64 {
    match structure.insert(key, value) {
        Ok(true) => 0,
        Ok(false) => PRESENT,
        Err(_) => REFUSED,
    }
}

/// Does an operation.
#[inline]
fn perform(structure: &mut (impl Use + ?Sized), operation: Operation) -> u64 {
    let Operation { class, key, value } = operation;
    match class {
        Class::Read => read(structure, key),
        Class::Update => update(structure, key, value),
        Class::Insert => insert(structure, key, value),
    }
}

/// Does operations that came together, with the same effects as one after the other: the look-ups of those that insert nothing are made
/// together.
impl<H: Handle> atrapos_domains::Operation<H> for Operation {
    type Reply = u64;

    #[inline]
    fn run_group(operations: Group<Operation>, mut access: H::Access<'_>) -> Group<u64> {
        perform_group(H::used(&mut access), &operations)
    }
}

/// Does at most [`GROUP_MAX`] operations.
#[inline]
fn perform_group(structure: &mut dyn Use, operations: &[Operation]) -> Group<u64> {
    let (mut points, mut replies) = (Group::new(), Group::new());
    for Operation { class, key, value } in operations {
        match class {
            Class::Read => points.push(PointAccess::Read(key)),
            Class::Update => points.push(PointAccess::Update(key, *value)),
            Class::Insert => {
                access_points(structure, &mut points, &mut replies);
                replies.push(insert(structure, *key, *value));
            }
        }
    }
    access_points(structure, &mut points, &mut replies);
    replies
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
        access_points(H::used(&mut access), &mut points, &mut replies);
        replies
    }
}

/// Makes accesses together, and adds their replies.
#[inline]
fn access_points(
    structure: &mut dyn Use,
    points: &mut Group<PointAccess<'_, u64>>,
    replies: &mut Group<u64>,
) {
    let mut found = [None; GROUP_MAX];
    structure.access_many(points, &mut found[..points.len()]);
    // An update that is done has the value that it wrote, which is the key's own.
    let reply = |(point, found): (PointAccess<'_, u64>, Option<u64>)| {
        found.map_or(MISSING, |value| records::payload(*point.key(), value))
    };
    replies.extend(points.drain(..).zip(found).map(reply));
}
