//! Clients that delegate the operations of a load in bursts.
//!
//! Owns: the loop of a client thread. Never: touches a structure.

use std::time::{Duration, Instant};

use atrapos_domains::{Burst, Client, TaskError, Why};
use atrapos_runtime::affinity::pin_current_thread;
use atrapos_topology::CpuId;

use crate::control::Turn;
use crate::error::LoadError;
use crate::handle::{Handle, Lookup, insert, read, update};
use crate::jobs::Driven;
use crate::load::Load;
use crate::mix::Class;
use crate::records;
use crate::stream::{Operation, Stream, Tally};

/// The form in which operations travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Each by itself.
    Closures,
    /// To run in groups.
    Operations,
    /// To run in groups, of a mix that has nothing but look-ups, which are shorter.
    Lookups,
}

impl Manner {
    pub(crate) fn of(load: &Load) -> Manner {
        match load.mix.percent() {
            _ if !load.grouped => Manner::Closures,
            [100, ..] => Manner::Lookups,
            _ => Manner::Operations,
        }
    }
}

/// Requests and waits of clients that delegate, beside their operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delegation {
    /// Requests that they sent; each has one answer.
    pub requests: u64,
    /// Times that they found no answer where they needed one.
    pub waits: u64,
    /// Time until it came, of all clients together.
    pub waited: Duration,
}

impl Delegation {
    pub(crate) fn add(&mut self, other: Delegation) {
        self.requests += other.requests;
        self.waits += other.waits;
        self.waited += other.waited;
    }
}

/// The same for one operation, on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerOperation {
    /// Requests, each of which has the operations of several.
    pub requests: f64,
    /// Times that no answer was there.
    pub waits: f64,
    /// Nanoseconds until it came.
    pub waited_ns: f64,
}

/// A client thread before a round.
pub(crate) struct Delegate<'a, H> {
    pub(crate) client: Client,
    /// The structures, by part.
    pub(crate) handles: &'a [H],
    pub(crate) burst: usize,
    pub(crate) manner: Manner,
    /// Set if it notes how long it waits.
    pub(crate) clocked: bool,
    pub(crate) stream: Stream,
    pub(crate) turn: Turn,
    /// The processing unit to run on, if threads are pinned.
    pub(crate) cpu: Option<CpuId>,
}

/// Submits an operation to a burst; returns the reply to its oldest one, if it was full.
#[inline]
pub(crate) fn submit<H: Handle>(
    burst: &mut Burst<H, u64>,
    operation: Operation,
    manner: Manner,
) -> Result<Option<Result<u64, TaskError>>, Why> {
    let Operation { class, key, value } = operation;
    match manner {
        Manner::Closures => {}
        Manner::Operations => return burst.push_operation(operation),
        Manner::Lookups => return burst.push_operation(Lookup(key)),
    }
    match class {
        Class::Read => burst.push(move |mut access: H::Access<'_>| read(H::used(&mut access), key)),
        Class::Update => {
            burst.push(move |mut access: H::Access<'_>| update(H::used(&mut access), key, value))
        }
        Class::Insert => {
            burst.push(move |mut access: H::Access<'_>| insert(H::used(&mut access), key, value))
        }
    }
}

impl<H: Handle> Delegate<'_, H> {
    /// Drives a round on the calling thread.
    pub(crate) fn run(mut self) -> Result<Driven, LoadError> {
        if let Some(cpu) = self.cpu {
            // Refused: it runs unpinned.
            let _ = pin_current_thread(cpu.index());
        }
        let mut bursts = Vec::with_capacity(self.handles.len());
        for handle in self.handles {
            bursts.push(self.client.burst::<H, u64>(handle, self.burst)?);
        }
        let (mut tally, mut delegation) = (Tally::default(), Delegation::default());
        let began = self.turn.drive(|chunk| {
            for _ in 0..chunk {
                let operation = self.stream.next();
                tally.submitted(operation.class);
                let burst = &mut bursts[records::part(operation.key, self.handles.len())];
                if self.clocked && burst.len() == self.burst {
                    tally.reply(oldest_clocked(burst, &mut delegation)?);
                }
                if let Some(reply) = submit(burst, operation, self.manner)? {
                    tally.reply(reply?);
                }
            }
            Ok::<_, LoadError>(chunk)
        })?;
        for burst in &mut bursts {
            burst.drain().try_for_each(|reply| reply.map(|reply| tally.reply(reply)))?;
        }
        delegation.requests = bursts.iter().map(Burst::requests).sum();
        let drawing = Duration::ZERO;
        Ok(Driven { stream: self.stream, tally, began, ended: Instant::now(), drawing, delegation })
    }
}

/// Takes the oldest reply of a full burst, and notes the time if it has to be waited for.
fn oldest_clocked<H: Handle>(
    burst: &mut Burst<H, u64>,
    delegation: &mut Delegation,
) -> Result<u64, LoadError> {
    if let Some(reply) = burst.try_pop() {
        return Ok(reply?);
    }
    let began = Instant::now();
    let reply = burst.pop().unwrap_or_else(|| unreachable!("a full burst has an oldest task"));
    delegation.waits += 1;
    delegation.waited += began.elapsed();
    Ok(reply?)
}
