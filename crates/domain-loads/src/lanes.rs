//! The operations of one client on many structures: bursts that are turned from one structure to the next.
//!
//! Owns: a burst for each place where structures are (a *lane*), and what was done on each structure. Never: chooses the structure of
//! an operation.
//!
//! Invariants
//! - A client has as many bursts as there are places, however many structures there are: so a worker's slots do not limit these.
//! - Replies of a lane come in the order of its operations, so each is counted for the structure that it is of.

use std::collections::VecDeque;

use atrapos_domains::{Burst, Client, Owned, Route, Sessioned, Why};

use crate::delegate::{Manner, submit};
use crate::error::LoadError;
use crate::handle::{Handle, Placed, Use};
use crate::records;
use crate::stream::{Operation, Stream, Tally};

/// One structure, as a client uses it.
pub(crate) struct Member<H> {
    /// Its parts: one, or one in each domain, divided by a hash of the keys.
    pub(crate) parts: Vec<H>,
    pub(crate) stream: Stream,
    pub(crate) manner: Manner,
    pub(crate) tally: Tally,
}

/// A burst for the structures in one place.
struct Lane<H: Handle> {
    route: Route,
    burst: Burst<H, u64>,
    /// The structure, and its part, that the burst is turned to.
    at: (usize, usize),
    /// Operations without a reply: the number of those on a structure that came one after the other, the oldest first.
    under_way: VecDeque<(usize, u64)>,
}

impl<H: Handle> Lane<H> {
    fn turn_to(&mut self, at: (usize, usize), handle: &H) -> Result<(), Why> {
        if self.at != at {
            self.burst.turn_to(handle)?;
            self.at = at;
        }
        Ok(())
    }

    /// Submits an operation on the structure that the burst is turned to, and counts it and the reply to the oldest one, if it comes.
    #[inline]
    fn submit(&mut self, members: &mut [Member<H>], operation: Operation) -> Result<(), LoadError> {
        let Member { manner, tally, .. } = &mut members[self.at.0];
        tally.submitted(operation.class);
        self.submitted();
        if let Some(reply) = submit(&mut self.burst, operation, *manner)? {
            members[self.replied()].tally.reply(reply?);
        }
        Ok(())
    }

    fn submitted(&mut self) {
        match self.under_way.back_mut() {
            Some((at, operations)) if *at == self.at.0 => *operations += 1,
            _ => self.under_way.push_back((self.at.0, 1)),
        }
    }

    /// The structure that the next reply is of.
    fn replied(&mut self) -> usize {
        let Some((at, operations)) = self.under_way.front_mut() else { return self.at.0 };
        let of = *at;
        *operations -= 1;
        if *operations == 0 {
            self.under_way.pop_front();
        }
        of
    }
}

/// All structures with one type of handle, and the lanes to them.
pub(crate) struct Lanes<H: Handle> {
    burst: usize,
    members: Vec<Member<H>>,
    lanes: Vec<Lane<H>>,
}

/// The place where a structure is.
fn route_of<H: Handle>(handle: &H) -> Route {
    let mut found = Route::Removed;
    handle.each_route(&mut |route| found = route);
    found
}

impl<H: Handle> Lanes<H> {
    fn new(burst: usize) -> Lanes<H> {
        Lanes { burst, members: Vec::new(), lanes: Vec::new() }
    }

    pub(crate) fn add(&mut self, member: Member<H>) -> usize {
        self.members.push(member);
        self.members.len() - 1
    }

    /// The lane to the place where a part of a structure is now.
    fn lane(&mut self, client: &mut Client, at: (usize, usize)) -> Result<usize, LoadError> {
        let handle = &self.members[at.0].parts[at.1];
        let route = route_of(handle);
        if let Some(known) = self.lanes.iter().position(|lane| lane.route == route) {
            return Ok(known);
        }
        match client.burst(handle, self.burst) {
            Ok(burst) => {
                self.lanes.push(Lane { route, burst, at, under_way: VecDeque::new() });
                Ok(self.lanes.len() - 1)
            }
            // Any lane reaches any structure; from another place its tasks are passed on.
            Err(Why::NoSlots) if !self.lanes.is_empty() => Ok(0),
            Err(why) => Err(why.into()),
        }
    }

    fn submit(&mut self, client: &mut Client, at: usize, operations: u64) -> Result<(), LoadError> {
        let parts = self.members[at].parts.len();
        if parts > 1 {
            return self.submit_to_parts(client, at, operations);
        }
        let lane = self.lane(client, (at, 0))?;
        let (lane, members) = (&mut self.lanes[lane], &mut self.members);
        lane.turn_to((at, 0), &members[at].parts[0])?;
        for _ in 0..operations {
            let operation = members[at].stream.next();
            lane.submit(members, operation)?;
        }
        Ok(())
    }

    /// The same on a structure of several parts, each operation on the part that has its key.
    fn submit_to_parts(&mut self, client: &mut Client, at: usize, operations: u64) -> Result<(), LoadError> {
        for _ in 0..operations {
            let Member { parts, stream, .. } = &mut self.members[at];
            let operation = stream.next();
            let part = records::part(operation.key, parts.len());
            let lane = self.lane(client, (at, part))?;
            let (lane, members) = (&mut self.lanes[lane], &mut self.members);
            lane.turn_to((at, part), &members[at].parts[part])?;
            lane.submit(members, operation)?;
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), LoadError> {
        for lane in &mut self.lanes {
            while let Some(reply) = lane.burst.pop() {
                self.members[lane.replied()].tally.reply(reply?);
            }
        }
        Ok(())
    }

    fn done(&self, at: usize) -> (Tally, u64) {
        let Member { tally, stream, .. } = &self.members[at];
        (*tally, stream.inserted)
    }
}

/// A structure among those of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    /// One that workers share.
    Shared(usize),
    /// One that a worker owns.
    Owned(usize),
}

/// All structures that a client uses.
pub(crate) struct Sides {
    pub(crate) shared: Lanes<Sessioned<Placed>>,
    pub(crate) owned: Lanes<Owned<Box<dyn Use>>>,
}

impl Sides {
    /// Sides with bursts of this size.
    pub(crate) fn new(burst: usize) -> Sides {
        Sides { shared: Lanes::new(burst), owned: Lanes::new(burst) }
    }

    /// Submits as many operations on a structure.
    pub(crate) fn submit(
        &mut self,
        client: &mut Client,
        entry: Entry,
        operations: u64,
    ) -> Result<(), LoadError> {
        match entry {
            Entry::Shared(at) => self.shared.submit(client, at, operations),
            Entry::Owned(at) => self.owned.submit(client, at, operations),
        }
    }

    /// Waits for all replies; returns what was done on each structure, and the number of insertions.
    pub(crate) fn end(mut self, entries: &[Entry]) -> Result<Vec<(Tally, u64)>, LoadError> {
        self.shared.drain()?;
        self.owned.drain()?;
        let done = |entry: &Entry| match entry {
            Entry::Shared(at) => self.shared.done(*at),
            Entry::Owned(at) => self.owned.done(*at),
        };
        Ok(entries.iter().map(done).collect())
    }
}
