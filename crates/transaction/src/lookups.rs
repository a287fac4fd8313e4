//! Interleaved look-ups: the first accesses of independent transactions, made together so that their cache misses overlap.
//!
//! A transaction that has accessed no data yet may be deferred without loss of isolation. So before a transaction
//! begins (for the key its route names), or at its first access, when others are ready to run, it only notes its key
//! here and goes to the end of the queue of ready tasks. When its turn comes, its key and those of the next ones in the
//! queue, up to [`BATCH`], are looked up level by level with prefetching; so cache lines are used soon after they were
//! fetched, independent of the length of the queue. Of long rows all lines but the first are fetched [`AHEAD`] turns before they are read. Only a data-oriented engine can do this; in a
//! thread-per-transaction engine each thread waits for its own misses.
//!
//! A session that has several transactions at hand looks up the keys of all of them before the first ([`crate::upcoming`]).
//!
//! Invariant: a position is a hint. The tree checks it (no two trees, and no two states of one, have the same stamp)
//! and searches again if the tree has changed in between.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::task::Poll;

use arrayvec::ArrayVec;
use atrapos_partition::partition::{PartitionId, Tables};
use atrapos_partition::routing::Destination;
use atrapos_partition::schema::{TableId, TreeKind};
use atrapos_runtime::{TaskId, Ticks};
use atrapos_storage::{KeyBuf, Position, Probe, RowLines, locate_ahead, locate_batch};
use smallvec::SmallVec;

use crate::branch::Access;
use crate::lending;
use crate::shard::{EngineWorker, Shard};
use crate::upcoming::{KnownRoute, Upcoming};

/// The number of look-ups made together: enough to cover the latency of memory with the misses a core can have in
/// flight.
pub(crate) const BATCH: usize = 16;

/// The positions of keys that were looked up together, from the first one on.
pub(crate) type Positions = SmallVec<[Position; BATCH]>;

/// Looks keys up in their partitions with cache misses overlapping, [`BATCH`] at a time, and adds their positions, up to the first
/// partition that is not here. The positions are hints: the trees search again after changes.
pub(crate) fn locate_keys<'a>(
    tables: &'a Tables,
    keys: impl Iterator<Item = (PartitionId, &'a KeyBuf)>,
    positions: &mut Positions,
) {
    let probe =
        |(place, key): (_, &'a KeyBuf)| Some(Probe::new(tables.owned_at(place)?.tree(), key.as_slice()));
    let mut probes: SmallVec<[Probe<'_>; BATCH]> = keys.map_while(probe).collect();
    locate_batch(&mut probes);
    positions.extend(probes.iter().map(|probe| probe.position));
}

/// Looks up the keys of accesses as [`locate_keys`] does. Most often all are in `one_place`.
#[inline(always)]
pub(crate) fn locate_accesses(
    tables: &Tables,
    accesses: &[Access],
    one_place: bool,
    positions: &mut Positions,
) {
    if one_place
        && let Some(first) = accesses.first()
        && let Some(partition) = tables.owned_at(first.partition)
    {
        let keys = accesses.iter().map(|access| access.key().as_slice());
        return partition.tree().locate_all(keys, positions);
    }
    locate_keys(tables, accesses.iter().map(|access| (access.partition, access.key())), positions);
}

/// Fetches what looking up the rows of index entries that were found will need: who looks a key up in a unique index most
/// often accesses its row next.
fn fetch_indexed_rows<'a>(tables: &'a Tables, probed: impl Iterator<Item = (TableId, &'a Probe<'a>)>) {
    let mut rows: ArrayVec<Probe<'_>, BATCH> = ArrayVec::new();
    for (table, entry) in probed {
        if let TreeKind::Entries { of, unique: true } = tables.catalog.tables[table.at()].kind
            && let Some(entry) = entry.row()
        {
            let primary_key = entry.bytes;
            let partition = tables.owned_at(tables.locate(of, primary_key).0);
            rows.extend(partition.map(|partition| Probe::new(partition.tree(), primary_key)));
        }
    }
    locate_batch(&mut rows);
}

/// Identifies one deferred look-up. A task may have abandoned an earlier one, whose result must not be used for the
/// next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LookupTicket(u64);

impl LookupTicket {
    const NONE: LookupTicket = LookupTicket(u64::MAX);
}

/// The latest look-up of a task. It stays where it is, and is written and read in place: moved from list to list, it would be
/// copied before its stores have reached the cache.
#[derive(Debug)]
struct Lookup {
    ticket: LookupTicket,
    partition: PartitionId,
    key: KeyBuf,
    /// The result, when the look-up was made.
    found: Cell<Option<Position>>,
}

impl Lookup {
    fn none() -> Lookup {
        let partition = PartitionId { table: TableId(0), partition: 0 };
        Lookup { ticket: LookupTicket::NONE, partition, key: KeyBuf::new(), found: Cell::new(None) }
    }
}

/// The location, found before the transaction began, of the key that its route names and that it will probably access:
/// the partition, and the position in its tree unless that is unknown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteHint<'a> {
    /// The partition.
    pub(crate) partition: PartitionId,
    /// The key.
    pub(crate) key: &'a KeyBuf,
    /// The position at which it was found.
    pub(crate) position: Position,
    /// The value of [`Shard::scheme_changes`](crate::shard::Shard) at the time of the look-up.
    pub(crate) scheme_changes: u64,
}

impl RouteHint<'_> {
    /// Returns the location of `key`, if it is the one that was looked up by the route, and the scheme has not changed since.
    #[inline(always)]
    pub(crate) fn of(&self, table: TableId, key: &KeyBuf, shard: &Shard) -> Option<(PartitionId, Position)> {
        self.is_of(table, key, shard).then_some((self.partition, self.position))
    }

    /// Returns true if `key` is the one that was looked up by the route, and the scheme has not changed since.
    #[inline(always)]
    pub(crate) fn is_of(&self, table: TableId, key: &KeyBuf, shard: &Shard) -> bool {
        self.partition.table == table
            && self.key.is_surely(key)
            && self.scheme_changes == shard.scheme_changes.get()
    }
}

/// The look-ups that wait on one worker.
#[derive(Debug, Default)]
pub struct Lookups {
    /// The look-ups to be made, in the order in which their tasks were queued. A task may have abandoned one: then its latest
    /// has another ticket.
    waiting: RefCell<VecDeque<(TaskId, LookupTicket)>>,
    /// The latest look-ups, by index of the task.
    latest: RefCell<Vec<Lookup>>,
    next_ticket: Cell<u64>,
    /// Look-ups with tickets before this one were deferred under another scheme.
    stale_before: Cell<u64>,
    /// The lines of long rows that look-ups have found which were made together, those first whose tasks have their turns last.
    ahead: RefCell<ArrayVec<RowLines, BATCH>>,
    /// Number of them that are not asked for yet, the last one next.
    left_ahead: Cell<usize>,
    turns: Turns,
}

/// Number of long rows whose lines are on their way while another is read.
const AHEAD: usize = 2;

/// The turns that transactions take one after another without a deferred look-up between them.
///
/// To defer a look-up costs two turns in the queue of ready tasks, and a procedure that another worker has sent has to become a
/// task for it: about as much as a short transaction takes. It pays if the worker's data is so large that the misses of look-ups,
/// which overlap then, cost more.
#[derive(Debug, Default)]
struct Turns {
    /// Number of transactions of sessions since a look-up was deferred last.
    sessions: Cell<u32>,
    /// Number of transactions of sessions that began at once, since one was to give up its turn.
    at_once: Cell<u32>,
    /// The step in which a procedure was sent last, by the time of its beginning.
    step: Cell<Ticks>,
    /// Number of procedures sent by others that ran at once in it.
    sent: Cell<u32>,
    /// Set if that step has taken so long that tasks have to have their turn.
    is_over: Cell<bool>,
    /// Bytes of the lines that the rows of the worker take, and of the other workers of its thread.
    line_bytes: Cell<u64>,
    /// The bytes of lines up to which a worker's data is near, [`NEAR_BYTES`] but in tests.
    near_bytes: u64,
    /// Number of calls until the size of the data is looked at again.
    until_look: Cell<u32>,
}

/// Number of transactions of sessions that follow each other while others are ready.
const SESSION_TURNS: u32 = 8;
/// Number of transactions of sessions that begin at once before messages and timers have their turn, however little time they take.
const AT_ONCE_MAX: u32 = 256;
/// Such transactions between two looks at the clock.
const SESSION_UNTIMED: u32 = 32;
/// Procedures sent by others between two looks at the clock.
const UNTIMED: u32 = 4;
/// Number of deferred look-ups, and of steps with procedures that were sent, between two looks at the size of the data.
const BETWEEN_LOOKS: u32 = 4096;
/// Bytes of the lines that the rows of a worker take, beyond which the look-ups of sessions are made together: a part of the cache
/// of a core. Beyond it a look-up that misses costs about what deferring it does (decision 79 has the measurements). Procedures that are
/// sent are held beyond it.
pub const NEAR_BYTES: u64 = 2 << 20;

impl Turns {
    /// Returns true if a transaction of a session runs at once although others are ready.
    #[inline(always)]
    fn admits_session(&self) -> bool {
        let turns = self.sessions.get() + 1;
        let admits = turns < SESSION_TURNS && self.is_near();
        self.sessions.set(if admits { turns } else { 0 });
        admits
    }

    /// Returns true, at times, if the step has taken long, or many transactions have followed each other.
    #[inline(always)]
    fn are_over(&self, worker: &EngineWorker) -> bool {
        let at_once = self.at_once.get() + 1;
        self.at_once.set(at_once);
        at_once.is_multiple_of(SESSION_UNTIMED) && self.are_long(worker, at_once)
    }

    #[inline(never)]
    fn are_long(&self, worker: &EngineWorker, at_once: u32) -> bool {
        let are_long = at_once >= AT_ONCE_MAX || worker.is_step_long();
        if are_long {
            self.at_once.set(0);
        }
        are_long
    }

    /// Returns true if the worker's data is so small that the misses of look-ups cost less than what overlaps them.
    fn is_near(&self) -> bool {
        self.line_bytes.get() <= self.near_bytes
    }

    /// Returns true if a procedure that another worker has sent runs at once.
    #[inline(always)]
    fn admits_sent(&self, worker: &EngineWorker) -> bool {
        let step = worker.step_time();
        let sent = self.sent.get() + 1;
        if self.step.get() != step {
            self.begin_step(worker, step);
        } else {
            self.sent.set(sent);
            if sent.is_multiple_of(UNTIMED) && !self.is_over.get() {
                self.is_over.set(worker.is_step_long());
            }
        }
        !self.is_over.get()
    }

    #[inline(never)]
    fn begin_step(&self, worker: &EngineWorker, step: Ticks) {
        self.step.set(step);
        self.sent.set(0);
        self.is_over.set(false);
        self.look(worker);
    }

    /// Looks at the size of the data now and then.
    #[inline(always)]
    fn look(&self, worker: &EngineWorker) {
        let left = self.until_look.get();
        self.until_look.set(left.wrapping_sub(1));
        if left == 0 {
            self.look_now(worker);
        }
    }

    #[cold]
    #[inline(never)]
    fn look_now(&self, worker: &EngineWorker) {
        self.until_look.set(BETWEEN_LOOKS);
        // Workers of one thread share the caches of a core, and have about as much data each.
        let own = worker.shard().tables.borrow().line_bytes();
        self.line_bytes.set(own * worker.workers_of_thread() as u64);
    }
}

/// Waits for the next turn of the current task, which has deferred a look-up and so is ready to run.
#[inline(always)]
pub(crate) fn turn() -> impl Future<Output = ()> {
    let mut asked = false;
    poll_fn(move |_| if std::mem::replace(&mut asked, true) { Poll::Ready(()) } else { Poll::Pending })
}

impl Lookups {
    /// Creates the look-ups of a worker, none of which wait. Data of up to `near_bytes` is near.
    pub(crate) fn new(near_bytes: u64) -> Lookups {
        Lookups { turns: Turns { near_bytes, ..Turns::default() }, ..Lookups::default() }
    }

    /// Returns true if deferring a look-up can pay: another task can run meanwhile, or another look-up waits with it, and the data
    /// is large. Now and then it is true without that, so that others have their turn.
    #[inline]
    pub(crate) fn pays(&self, worker: &EngineWorker) -> bool {
        let others = worker.ready_len() > 0 || !self.waiting.borrow().is_empty();
        others && !self.turns.admits_session()
    }

    /// Returns true if a transaction of a session whose look-up is not deferred is to give up its turn first: those before it have taken as
    /// long as a step may, and messages and timers are to have theirs.
    #[inline(always)]
    pub(crate) fn is_turn_over(&self, worker: &EngineWorker) -> bool {
        self.turns.are_over(worker)
    }

    /// Ends the turn of the current task like [`defer`](Lookups::defer), without a key.
    #[cold]
    #[inline(never)]
    pub(crate) fn defer_nothing(&self, worker: &EngineWorker) -> LookupTicket {
        worker.wake(worker.current_task());
        self.next_ticket()
    }

    fn next_ticket(&self) -> LookupTicket {
        let ticket = LookupTicket(self.next_ticket.get());
        self.next_ticket.set(ticket.0 + 1);
        ticket
    }

    /// Returns true if a procedure that another worker has sent is to run at once, not as a task.
    #[inline(always)]
    pub(crate) fn admits_sent(&self, worker: &EngineWorker) -> bool {
        self.turns.admits_sent(worker)
    }

    /// Returns true if the worker's data is so large that look-ups should be made together.
    #[inline(always)]
    pub(crate) fn is_far(&self) -> bool {
        !self.turns.is_near()
    }

    /// Defers the look-up of `key` for the current task, which goes to the end of the queue.
    #[inline(always)]
    pub(crate) fn defer(&self, worker: &EngineWorker, partition: PartitionId, key: &KeyBuf) -> LookupTicket {
        let ticket = self.next_ticket();
        let task = worker.current_task();
        let mut latest = self.latest.borrow_mut();
        if task.index() >= latest.len() {
            latest.resize_with(task.index() + 1, Lookup::none);
        }
        let lookup = &mut latest[task.index()];
        (lookup.ticket, lookup.partition) = (ticket, partition);
        lookup.key.clone_from(key);
        lookup.found.set(None);
        self.waiting.borrow_mut().push_back((task, ticket));
        worker.wake(task);
        self.turns.look(worker);
        ticket
    }

    /// Marks the look-ups deferred so far as stale after a change of the scheme: their partitions may have changed.
    pub fn outdate(&self) {
        self.stale_before.set(self.next_ticket.get());
    }

    /// Returns true if the scheme has changed since the look-up was deferred.
    #[inline(always)]
    pub(crate) fn is_stale(&self, ticket: LookupTicket) -> bool {
        ticket.0 < self.stale_before.get()
    }

    /// Takes the result of the current task's look-up, which is made now, with others, unless it was made before. `None` if it could
    /// not be made.
    #[inline(always)]
    pub(crate) fn take(
        &self,
        worker: &EngineWorker,
        ticket: LookupTicket,
    ) -> Option<(PartitionId, Position)> {
        let task = worker.current_task();
        loop {
            if let Some(lookup) = self.latest.borrow().get(task.index())
                && lookup.ticket == ticket
                && let Some(position) = lookup.found.get()
            {
                self.fetch_ahead();
                return Some((lookup.partition, position));
            }
            if !self.make_some(worker) {
                // It is not among them: the ticket is of another look-up, or the data has moved to another worker. The
                // tree finds the row without a hint.
                return None;
            }
        }
    }

    /// Notes the lines of the rows that were found, and asks for those of the first ones.
    #[inline(never)]
    fn begin_ahead(&self, probes: &[Probe<'_>]) {
        let mut ahead = self.ahead.borrow_mut();
        ahead.clear();
        ahead.extend(probes.iter().rev().map(Probe::lines_left));
        self.left_ahead.set(ahead.len());
        drop(ahead);
        (0..AHEAD).for_each(|_| self.fetch_ahead());
    }

    /// Asks for the lines of the next long row.
    #[inline(always)]
    pub(crate) fn fetch_ahead(&self) {
        if let Some(left) = self.left_ahead.get().checked_sub(1) {
            self.left_ahead.set(left);
            self.ahead.borrow()[left].fetch();
        }
    }

    /// Makes the look-ups that have waited longest. Returns true if there were any.
    #[inline(never)]
    fn make_some(&self, worker: &EngineWorker) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.is_empty() {
            return false;
        }
        let count = waiting.len().min(BATCH);
        let tables = worker.shard().tables.borrow();
        let latest = self.latest.borrow();
        // Keys in partitions that have moved to another worker meanwhile are not looked up; their tasks locate them
        // again.
        let mut probes: ArrayVec<Probe<'_>, BATCH> = ArrayVec::new();
        let mut asked: ArrayVec<&Lookup, BATCH> = ArrayVec::new();
        for (task, ticket) in waiting.range(..count) {
            let lookup = &latest[task.index()];
            if lookup.ticket == *ticket
                && let Some(partition) = tables.owned_at(lookup.partition)
            {
                probes.push(Probe::new(partition.tree(), &lookup.key));
                asked.push(lookup);
            }
        }
        self.locate_together(worker, &tables, &mut probes, asked.iter().map(|lookup| lookup.partition.table));
        for (lookup, probe) in asked.iter().zip(&probes) {
            lookup.found.set(Some(probe.position));
        }
        waiting.drain(..count);
        true
    }

    /// Looks up the keys of the routes of transactions to come, unless the worker's data is so small that it does not pay.
    #[inline(never)]
    pub(crate) fn look_up(&self, worker: &EngineWorker, upcoming: &Upcoming) {
        self.turns.look(worker);
        if self.turns.is_near() {
            return;
        }
        let shard = worker.shard();
        let tables = shard.tables.borrow();
        let mut probes: ArrayVec<Probe<'_>, BATCH> = ArrayVec::new();
        let mut asked: ArrayVec<(PartitionId, &KnownRoute), BATCH> = ArrayVec::new();
        for known in upcoming.rest() {
            if let Destination::Owner(table, key) = &known.route.to
                && let Some((place, owner)) = tables.locate_checked(*table, key)
                && let Some(partition) = tables.owned_at(place)
                && (owner == worker.id() || known.route.reads && lending::admits_in_place(shard, place))
            {
                probes.push(Probe::new(partition.tree(), key));
                asked.push((place, known));
            }
        }
        self.locate_together(worker, &tables, &mut probes, asked.iter().map(|(place, _)| place.table));
        let scheme_changes = shard.scheme_changes.get();
        for ((place, known), probe) in asked.iter().zip(&probes) {
            known.found.set(Some((*place, probe.position, scheme_changes)));
        }
    }

    /// Locates keys together, of which the tables are given, and asks for what their transactions will read.
    #[inline(always)]
    fn locate_together(
        &self,
        worker: &EngineWorker,
        tables: &Tables,
        probes: &mut [Probe<'_>],
        of: impl Iterator<Item = TableId>,
    ) {
        locate_ahead(probes);
        // Those of a task that has abandoned its look-up are of no use any more.
        self.left_ahead.set(0);
        if probes.iter().any(|probe| probe.tree.has_long_rows()) {
            self.begin_ahead(probes);
        }
        worker.shard().stats.interleaved.add(probes.len() as u64);
        fetch_indexed_rows(tables, of.zip(&*probes));
    }
}
