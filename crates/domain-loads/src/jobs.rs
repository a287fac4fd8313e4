//! Jobs for the workers of a domain: loading records, driving a round, auditing.
//!
//! Owns: what one worker does with its share. Never: knows threads or placement.
//!
//! A worker is the one on a *spot*: seat `seat` of `seats` in the domain of part `part` of `parts`. Of the records of its part it loads and
//! audits those whose number falls to its seat.

use std::time::{Duration, Instant};

use atrapos_domains::{Client, Owned, Pending};
use atrapos_structures::{Contention, Refused};

use crate::audit::Findings;
use crate::control::Turn;
use crate::delegate::Delegation;
use crate::error::LoadError;
use crate::handle::{Handle, MISSING, Use, drive_together, read};
use crate::records::{self, PAYLOAD_END};
use crate::stream::{Stream, Tally};

/// A worker among those of all domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) part: usize,
    pub(crate) parts: usize,
    pub(crate) seat: usize,
    pub(crate) seats: usize,
}

impl Spot {
    /// The keys of those of these records that fall to this worker.
    fn keys(self, numbers: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
        let seats = self.seats as u64;
        let mine = numbers.filter(move |number| seats == 1 || number % seats == self.seat as u64);
        mine.map(records::key).filter(move |key| records::part(*key, self.parts) == self.part)
    }
}

/// Work of one worker on the structure of its domain.
pub(crate) trait Job: Send + 'static {
    type Output: Send + 'static;

    fn run(self, structure: &mut dyn Use) -> Self::Output;
}

/// Begins a job on the worker of every seat and waits for all; meanwhile, calls `meanwhile` with whether all were begun. Handles and seats
/// are by part.
pub(crate) fn on_workers<H: Handle, J: Job, M>(
    client: &mut Client,
    handles: &[H],
    seats: &[Vec<Owned<()>>],
    mut make: impl FnMut(Spot) -> J,
    meanwhile: impl FnOnce(bool) -> M,
) -> Result<(Vec<J::Output>, M), LoadError> {
    let (mut pending, mut refused) = (Vec::new(), None);
    for (part, (handle, seats)) in handles.iter().zip(seats).enumerate() {
        for (number, seat) in seats.iter().enumerate() {
            let job = make(Spot { part, parts: handles.len(), seat: number, seats: seats.len() });
            let task = move |((), mut access): (&mut (), H::Access<'_>)| job.run(H::used(&mut access));
            match client.try_call(&(seat.clone(), handle.clone()), task) {
                Ok(job) => pending.push(job),
                Err(why) => refused = Some(why.why),
            }
        }
    }
    let meanwhile = meanwhile(refused.is_none());
    let done = pending.into_iter().map(Pending::wait).collect::<Result<Vec<_>, _>>();
    refused.map_or(Ok(()), Err)?;
    Ok((done?, meanwhile))
}

/// Does a job on a structure wherever it is, as one task for all records.
pub(crate) fn on_one<H: Handle, J: Job>(
    client: &mut Client,
    handle: &H,
    make: impl FnOnce(Spot) -> J,
) -> Result<J::Output, LoadError> {
    let job = make(Spot { part: 0, parts: 1, seat: 0, seats: 1 });
    let task = move |mut access: H::Access<'_>| job.run(H::used(&mut access));
    let pending = client.try_call(handle, task).map_err(|refused| refused.why)?;
    Ok(pending.wait()?)
}

/// Loads the records of a spot.
pub(crate) struct Fill {
    pub(crate) spot: Spot,
    pub(crate) records: u64,
}

impl Job for Fill {
    type Output = Result<(), Refused>;

    fn run(self, structure: &mut dyn Use) -> Result<(), Refused> {
        // A record that is there already is found by the audit, as a missing one.
        self.spot
            .keys(0..self.records)
            .try_for_each(|key| structure.insert(key, records::value(key, 0)).map(drop))
    }
}

/// One thread's part of a round.
#[derive(Debug)]
pub(crate) struct Driven {
    pub(crate) stream: Stream,
    pub(crate) tally: Tally,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    /// Time between the two that does not count: of operations that were drawn before others were made together.
    pub(crate) drawing: Duration,
    /// Requests and waits of it, if it is a client.
    pub(crate) delegation: Delegation,
}

/// Uses the structure directly for a round.
pub(crate) struct Drive {
    pub(crate) turn: Turn,
    pub(crate) stream: Stream,
    /// Set if operations are drawn first and then made together.
    pub(crate) together: bool,
}

impl Job for Drive {
    type Output = Driven;

    fn run(self, structure: &mut dyn Use) -> Driven {
        let Drive { mut turn, mut stream, together } = self;
        let mut tally = Tally::default();
        let (began, drawing) = match together {
            true => drive_together(structure, &mut turn, &mut stream, &mut tally),
            false => (structure.drive(&mut turn, &mut stream, &mut tally), Duration::ZERO),
        };
        let delegation = Delegation::default();
        Driven { stream, tally, began, ended: Instant::now(), drawing, delegation }
    }
}

/// Tells the contention that the worker has met.
pub(crate) struct TellContention;

impl Job for TellContention {
    type Output = Option<Contention>;

    fn run(self, structure: &mut dyn Use) -> Option<Contention> {
        structure.contention()
    }
}

/// Looks for every record of a spot.
pub(crate) struct Inspect {
    pub(crate) spot: Spot,
    pub(crate) records: u64,
    /// Numbers of insertions of each thread that drives.
    pub(crate) inserted: Vec<u64>,
}

/// Records of each thread that are looked for though they have not been inserted.
const ABSENT: u64 = 1_000;
/// Records of one call of a scan.
const SCAN_PAGE: usize = 10_000;

impl Inspect {
    /// The numbers of a thread's insertions from `from` to `to` (excluded), as [`Stream::number_of`] gives them.
    fn numbers(&self, thread: usize, from: u64, to: u64) -> impl Iterator<Item = u64> + use<> {
        let (records, threads) = (self.records, self.inserted.len() as u64);
        (from..to).map(move |inserted| records + inserted * threads + thread as u64)
    }
}

impl Job for Inspect {
    type Output = Findings;

    fn run(self, structure: &mut dyn Use) -> Findings {
        let mut findings = Findings::default();
        let inserted = self.inserted.iter().enumerate();
        let all = (0..self.records)
            .chain(inserted.clone().flat_map(|(thread, count)| self.numbers(thread, 0, *count)));
        for key in self.spot.keys(all) {
            match read(structure, key) {
                0..PAYLOAD_END => findings.found += 1,
                MISSING => findings.missing += 1,
                _ => findings.malformed += 1,
            }
        }
        let absent = inserted.flat_map(|(thread, count)| self.numbers(thread, *count, *count + ABSENT));
        findings.extra = self.spot.keys(absent).filter(|key| read(structure, *key) != MISSING).count() as u64;
        if structure.is_ordered() && self.spot.seat == 0 {
            findings.scanned = Some(scanned(structure, self.spot));
        }
        findings
    }
}

/// The number of records that scans find in ascending order, each of this part and with a value of its own, up to the first that is
/// not so.
fn scanned(structure: &mut dyn Use, spot: Spot) -> u64 {
    let (mut found, mut from, mut good) = (0, Some(0), true);
    while let Some(first) = from.filter(|_| good) {
        let (mut last, mut page) = (None, 0);
        let visited = structure.scan(first, SCAN_PAGE, &mut |key, value| {
            good &= *key >= first
                && last.is_none_or(|last| last < *key)
                && records::part(*key, spot.parts) == spot.part
                && records::payload(*key, value) < PAYLOAD_END;
            (last, page) = (Some(*key), page + u64::from(good));
        });
        found += page;
        good &= visited.is_ok_and(|visited| visited as u64 == page);
        from = last.filter(|_| page > 0).and_then(|last: u64| last.checked_add(1));
    }
    found
}
