//! The flushers, which write the WAL: one per island, a state machine driven by a thread.
//!
//! Owns: the writer of the island's stream. Never: accesses a tree, or any state of a worker but its commit buffer.
//!
//! A round seals an epoch, takes the buffers, writes a frame (several, if the records are too many for one) and syncs
//! it, and then publishes the sealed epoch. While a round waits for the device, workers go on, and their commits go
//! into the next round: this is group commit without a timer. Rounds keep a distance from each other while the workers
//! have other work ([`Flusher::keep_distance`]).
//!
//! Workers that always have work leave a flusher no processing unit until the kernel takes it from them, some milliseconds
//! later. So a flusher shows them the time by which it should have gone on ([`Flusher::expect_until`]), whether it waits for
//! the device or for the next round, and from then on they yield between their steps.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use atrapos_durability::wal::{Epoch, StreamEnd, StreamWriter, WalError};
use atrapos_partition::planted::{Bug, planted};
use atrapos_runtime::{Clock, Handle, Ticks, WorkerId};

use super::{Durability, Wal};
use crate::shard::Shard;

/// See the module's introduction.
#[derive(Debug)]
pub struct Flusher {
    wal: Arc<Wal>,
    stream: usize,
    writer: StreamWriter,
    /// The records taken from each of the stream's buffers, in their order.
    taken: Vec<Vec<u8>>,
    removed_before: u64,
    /// The bytes of records that the last round made durable.
    last_bytes: usize,
    /// The usual duration of a round, in ticks, without the rare long ones.
    usual_round: u64,
    clock: Clock,
}

/// The outcome of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// There was nothing to do.
    Idle,
    /// There was nothing to do, and nothing will follow: the WAL is closed.
    Ended,
    /// An epoch was sealed.
    Sealed,
    /// The instance has failed.
    Failed,
}

/// The capacity of a worker's vector beyond which its memory is freed after a round.
const KEEP_BYTES: usize = 4 << 20;

impl Flusher {
    /// Creates the flusher of a stream.
    pub fn new(wal: Arc<Wal>, stream: usize, writer: StreamWriter) -> Flusher {
        let taken = wal.streams[stream].buffers.iter().map(|_| Vec::new()).collect();
        let clock = Clock::real();
        let usual_round = clock.ticks(DISTANCE_MAX).0 / DISTANCE;
        Flusher { wal, stream, writer, taken, removed_before: 0, last_bytes: 0, usual_round, clock }
    }

    /// Returns true if there is anything to make durable.
    fn has_work(&self) -> bool {
        let state = &self.wal.streams[self.stream];
        state.sealed.load(Ordering::Relaxed) < self.wal.wanted.0.load(Ordering::SeqCst)
            || state.remove_before.load(Ordering::Relaxed) > self.removed_before
            || self.has_records()
    }

    /// Returns true if a buffer has records that were not taken yet.
    fn has_records(&self) -> bool {
        let buffers = &self.wal.streams[self.stream].buffers;
        buffers.iter().any(|buffer| !self.wal.buffers[buffer.0].is_empty())
    }

    /// Seals an epoch and makes it durable, if there is anything to make durable.
    pub fn round(&mut self) -> Round {
        if self.wal.is_failed() {
            return Round::Failed;
        }
        // Read before looking for work, so that records and requests from before the closing are seen.
        let closing = self.wal.closing.load(Ordering::SeqCst);
        if !self.has_work() {
            self.open_from(Ticks(u64::MAX));
            return if closing { Round::Ended } else { Round::Idle };
        }
        if self.wal.streams[self.stream].open_from.load(Ordering::Relaxed) == u64::MAX {
            self.open_from(self.clock.now());
        }
        match self.seal() {
            Ok(began) => {
                self.open_from(began);
                Round::Sealed
            }
            Err(error) => {
                self.wal.fail(error.to_string());
                Round::Failed
            }
        }
    }

    /// Does the work that can follow the notification of waiting transactions: prepares space for the next records, and
    /// removes segments that a checkpoint has replaced.
    pub fn tidy_up(&mut self) {
        self.writer.prepare_next();
        self.writer.drop_cached();
        let before = self.wal.streams[self.stream].remove_before.load(Ordering::SeqCst);
        if before > self.removed_before {
            self.removed_before = before;
            // A segment that could not be removed does no harm; the next checkpoint removes it.
            if let Err(error) = self.writer.remove_before(Epoch(before)) {
                self.wal.set_warning(Some(error.to_string()));
            }
        }
    }

    /// Shows the time from which on there may be commits that are not durable.
    fn open_from(&self, time: Ticks) {
        self.wal.streams[self.stream].open_from.store(time.0, Ordering::Relaxed);
    }

    /// Seals an epoch and makes it durable. Returns the time before which all commits are durable then, in this stream.
    fn seal(&mut self) -> Result<Ticks, WalError> {
        let wal = Arc::clone(&self.wal);
        let state = &wal.streams[self.stream];
        let began = self.clock.now();
        // Records appended after this have a newer epoch than the one being sealed (invariant 1).
        let sealed = wal.epoch.0.fetch_add(1, Ordering::SeqCst);
        state.filling.store(false, Ordering::SeqCst);
        if wal.streams.len() > 1 && self.has_records() {
            // An epoch is durable when all streams have sealed it, including those with nothing to write. Requested
            // before the records are taken: at any time they are in a buffer or their epoch is wanted, or durable.
            wal.want(Epoch(sealed));
        }
        let mut bytes = 0;
        for (buffer, taken) in state.buffers.iter().zip(&mut self.taken) {
            wal.buffers[buffer.0].take(Epoch(sealed), taken);
            bytes += taken.len();
        }
        self.last_bytes = bytes;
        if bytes > 0 || wal.streams.len() > 1 {
            if planted(Bug::LastRecordSkipped)
                && let Some(last) = self.taken.iter_mut().rfind(|taken| !taken.is_empty())
            {
                skip_last_record(last);
            }
            let payloads: Vec<&[u8]> = self.taken.iter().map(Vec::as_slice).collect();
            self.writer.seal(Epoch(sealed), &payloads)?;
            state.bytes.store(self.writer.bytes_written(), Ordering::Relaxed);
            state.frames.store(self.writer.frames_written(), Ordering::Relaxed);
        }
        for taken in &mut self.taken {
            taken.clear();
            if taken.capacity() > KEEP_BYTES {
                *taken = Vec::new();
            }
        }
        state.sealed.store(sealed, Ordering::SeqCst);
        let durable = wal.streams.iter().map(|stream| stream.sealed.load(Ordering::SeqCst)).min();
        wal.durable.0.fetch_max(durable.unwrap_or(sealed), Ordering::SeqCst);
        Ok(began)
    }

    /// Makes rounds until the WAL is closed, and then until all records are durable, including those of other streams.
    /// Returns the end of the stream, or `None` if the instance has failed.
    pub fn run(mut self, handle: &Handle<Shard>) -> Option<StreamEnd> {
        let wal = Arc::clone(&self.wal);
        let parker = &wal.streams[self.stream].parker;
        parker.adopt_current_thread();
        // Many wait for it, on processing units that workers keep busy.
        atrapos_runtime::slice::request_short_slices();
        wal.streams[self.stream].pause.adopt_current_thread();
        loop {
            let began = self.clock.now();
            self.expect_until(began.after(Ticks(self.usual_round + self.usual_round / 4)));
            let round = self.round();
            self.expect_until(Ticks(u64::MAX));
            if round != Round::Idle {
                wal.show_round();
            }
            match round {
                Round::Failed => {
                    wake_workers(handle);
                    wal.wake_flushers();
                    return None;
                }
                Round::Sealed => {
                    let ended = self.clock.now();
                    let usual = self.usual_round;
                    self.usual_round = (7 * usual + ended.since(began).0.min(2 * usual)) / 8;
                    // The workers that were in a hurry waited for this round.
                    wal.streams[self.stream].hurry.store(false, Ordering::SeqCst);
                    wake_workers(handle);
                    self.tidy_up();
                    self.keep_distance(began, ended);
                }
                Round::Ended => return Some(self.writer.position()),
                Round::Idle => {
                    let has_news =
                        || self.has_work() || wal.is_failed() || wal.closing.load(Ordering::SeqCst);
                    parker.park(has_news, None);
                }
            }
        }
    }

    /// Shows the workers the time until which this thread, which is about to wait, should have gone on. Under relaxed durability
    /// nobody waits for it, and workers make no way.
    fn expect_until(&self, time: Ticks) {
        if matches!(self.wal.durability, Durability::Synchronous) {
            self.wal.streams[self.stream].late_from.store(time.0, Ordering::Relaxed);
        }
    }

    /// Delays the next round as long as every worker has other work.
    ///
    /// A sync costs processor time, which the workers need; a round with more records costs no more. So a round does
    /// not begin before [`DISTANCE`] times the duration of a round (less on a slow device) has passed since the last
    /// one began; unless a worker has nothing to do but to wait for it, and expects no replies and no commits of open transactions either (`CommitWaiters::step`). Even then it does not begin at once: clients
    /// whose transactions were just acknowledged send their next ones, which would miss the round by a moment and have
    /// to wait for the one after ([`GAP`]). Under relaxed durability no transaction waits, and the distance follows
    /// from the bound. A buffer that is half full ends the distance in any case.
    fn keep_distance(&self, began: Ticks, ended: Ticks) {
        let (wal, state) = (&self.wal, &self.wal.streams[self.stream]);
        let round = ended.since(began).0;
        let (least, most) = match wal.durability {
            Durability::Relaxed { max_loss_ms } => {
                let distance = self.clock.ticks(Duration::from_micros(max_loss_ms * 250));
                (began.after(distance), began.after(distance))
            }
            _ => {
                let gap = if self.last_bytes < FEW_BYTES { 0 } else { round / GAP };
                let least = ended.after(Ticks(gap));
                let distance = (round * DISTANCE).min(self.clock.ticks(DISTANCE_MAX).0);
                (least, least.max(began.after(Ticks(distance))))
            }
        };
        let hurry = || state.hurry.load(Ordering::SeqCst);
        let urgent = || {
            wal.closing.load(Ordering::SeqCst)
                || wal.is_failed()
                || state.filling.load(Ordering::SeqCst)
                || state.sealed.load(Ordering::Relaxed) < wal.wanted.0.load(Ordering::SeqCst)
        };
        // Wake-ups may be spurious, so the remaining time is computed again.
        loop {
            let now = self.clock.now();
            let until = if hurry() { least } else { most };
            if now >= until || urgent() {
                return;
            }
            let rest = Duration::from_nanos(self.clock.ns(until.since(now)));
            let hurrying = until == least;
            self.expect_until(until);
            state.pause.park(|| urgent() || (!hurrying && hurry()), Some(rest));
            self.expect_until(Ticks(u64::MAX));
        }
    }
}

/// The distance between rounds, as a multiple of the duration of a round: see [`Flusher::keep_distance`].
const DISTANCE: u64 = 5;

/// The greatest distance: a round on a device that is slower than this costs little processor time in comparison.
const DISTANCE_MAX: Duration = Duration::from_micros(800);

/// The divisor of a round's duration that gives the least pause before the next one.
const GAP: u64 = 4;

/// The bytes below which a round has made only a transaction or two durable, so that no gap is kept.
const FEW_BYTES: usize = 128;

fn wake_workers(handle: &Handle<Shard>) {
    for worker in 0..handle.workers() {
        handle.wake(WorkerId(worker as u16));
    }
}

/// Leaves out the last record of a buffer, for a planted bug.
#[cold]
fn skip_last_record(records: &mut Vec<u8>) {
    let mut last = 0;
    let mut at = 0;
    while let Some(length) = records.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        last = at;
        at += 12 + u32::from_le_bytes(*length) as usize;
    }
    records.truncate(last);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use atrapos_durability::file::{FileSystem, ModelFiles};
    use atrapos_durability::wal::{Incarnation, StreamId, StreamOptions};

    use super::super::{WalLayout, WalLimits};
    use super::*;
    use crate::central::Scope;

    /// Creates a WAL of streams with one worker each, and their flushers.
    fn wal(streams: usize, durability: Durability) -> (Arc<Wal>, Vec<Flusher>) {
        let files: Arc<dyn FileSystem> = Arc::new(ModelFiles::new());
        let dir = Path::new("db");
        files.create_dir(dir).unwrap();
        let layout = WalLayout::new(Scope::Worker, (0..streams).collect());
        let wal = Wal::new(durability, Epoch(1), layout, WalLimits::default());
        let flusher = |stream: usize| {
            let (files, stream_id) = (Arc::clone(&files), StreamId(stream as u16));
            let options = StreamOptions::of_segments(4 << 10);
            let writer = StreamWriter::create(files, dir, 7, Incarnation(1), stream_id, options).unwrap();
            Flusher::new(Arc::clone(&wal), stream, writer)
        };
        let flushers = (0..streams).map(flusher).collect();
        (wal, flushers)
    }

    /// Closes a WAL in which some workers have committed, and runs its flushers to their ends one after the other.
    /// Returns true if all records are durable then.
    fn all_is_durable(committed: &[usize], order: &[usize]) -> bool {
        let (wal, mut flushers) = wal(order.len(), Durability::Relaxed { max_loss_ms: 10_000 });
        let commit = |worker: &usize| wal.commit(wal.buffer_of(WorkerId(*worker as u16)), b"").unwrap();
        let newest = committed.iter().map(commit).max();
        wal.close();
        for stream in order {
            while flushers[*stream].round() != Round::Ended {}
        }
        wal.durable() >= newest.unwrap_or_default()
    }

    /// Returns every choice of streams with records and of the order in which their flushers end.
    fn closings() -> Vec<(Vec<usize>, Vec<usize>)> {
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let choices = (0..8).map(|bits| (0..3).filter(|stream| bits >> stream & 1 == 1).collect::<Vec<_>>());
        choices.flat_map(|chosen| orders.map(|order| (chosen.clone(), order.to_vec()))).collect()
    }

    #[test]
    fn the_lag_ends_when_a_flusher_finds_nothing_to_do() {
        let (wal, mut flushers) = wal(2, Durability::Synchronous);
        let mut round = |stream: usize| flushers[stream].round();
        let open = || [0, 1].map(|stream: usize| wal.streams[stream].open_from.load(Ordering::Relaxed));
        assert_eq!((round(0), round(1), wal.lag()), (Round::Idle, Round::Idle, None));
        wal.commit(wal.buffer_of(WorkerId(0)), b"").unwrap();
        assert_eq!(round(0), Round::Sealed);
        let [first, other] = open();
        assert!(first < u64::MAX && other == u64::MAX && wal.lag().is_some(), "more may have been committed");
        wal.commit(wal.buffer_of(WorkerId(0)), b"").unwrap();
        assert_eq!(round(0), Round::Sealed);
        assert!(open()[0] > first, "what was committed before the second round is durable");
        while [round(0), round(1)] != [Round::Idle; 2] {}
        assert_eq!(wal.lag(), None);
    }

    #[cfg(debug_assertions)]
    #[test]
    fn planted_a_flusher_that_ends_before_the_others_are_done_is_caught() {
        let lost = |(committed, order): &(Vec<usize>, Vec<usize>)| {
            atrapos_partition::planted::with(Bug::FlusherEndsEarly, || !all_is_durable(committed, order))
        };
        assert!(closings().iter().any(lost));
    }

    #[test]
    fn workers_of_one_scope_share_a_buffer() {
        let buffers = |scope, islands: &[usize]| {
            let layout = WalLayout::new(scope, islands.to_vec());
            let streams = layout.streams();
            let wal = Wal::new(Durability::Synchronous, Epoch(1), layout, WalLimits::default());
            let of_stream = |stream: &super::super::StreamState| stream.buffers.len();
            assert_eq!(wal.streams.len(), streams);
            let of_workers: Vec<usize> =
                (0..islands.len()).map(|worker| wal.buffer_of(WorkerId(worker as u16)).0).collect();
            (of_workers, wal.streams.iter().map(of_stream).collect::<Vec<_>>())
        };
        let islands = [0, 1, 0, 1, 1];
        assert_eq!(buffers(Scope::Worker, &islands), (vec![0, 1, 2, 3, 4], vec![2, 3]));
        assert_eq!(buffers(Scope::Island, &islands), (vec![0, 1, 0, 1, 1], vec![1, 1]));
        assert_eq!(buffers(Scope::Central, &islands), (vec![0; 5], vec![1]));
    }

    #[test]
    fn closing_makes_everything_durable_whichever_flusher_ends_first() {
        for (committed, order) in closings() {
            assert!(
                all_is_durable(&committed, &order),
                "streams {committed:?} have records, order {order:?}"
            );
        }
    }
}
