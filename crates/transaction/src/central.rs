//! The system state that a storage manager keeps once for all transactions, as options: a list of active transactions, a counter
//! that numbers them, and read/write locks on the state (`ATraPos §IV`, thesis §4.2).
//!
//! Shore-MT, and so PLP, has each of these once; every transaction writes them when it begins and when it ends, which is what keeps
//! PLP from scaling beyond one socket (`ATraPos §III-B`, thesis §4.1.2). ATraPos takes them apart, one for each socket. This
//! engine needs none of them: by default it numbers and lists a transaction only when others learn of it, on its own worker.
//! With the options it is the paper's systems, one step after the other. The log buffer, which is central there as well, is an
//! option of [`crate::wal`].
//!
//! Owns: the options, the shared structures, and what a transaction does with them at its beginning and end. Never: is on the path
//! of a transaction unless an option is set. No test asks for it there: a worker with such options keeps its pool of recycled
//! states empty and without room, so that beginnings and ends take the paths of an empty and a full pool, which are cold.
//!
//! Invariants
//! - A transaction is in a list from its beginning until it has ended on its home and its locks are released.
//! - Locks of the state are held within one function of this module, never while a task is suspended.
//! - A thread that takes several locks takes them in order of their islands, and a list's latch after them.

mod list;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use atrapos_partition::planted::{Bug, planted};
use atrapos_runtime::WorkerId;
use atrapos_storage::lock::TxnId;

use self::list::ActiveList;
use crate::shard::{EngineWorker, POOL};
use crate::tx::TxnState;

/// The workers that share one instance of a part of the system state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All workers of the database: there is one instance.
    Central,
    /// The workers of a memory node, which usually is a socket: there is one instance for each.
    Island,
    /// None: each worker has its own, or needs none.
    #[default]
    Worker,
}

/// The parts of the system state, each with the workers that share it. By default none is shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CentralState {
    /// The latched list that each transaction enters when it begins and leaves when it has ended. A worker's own has only the
    /// transactions that other workers know of.
    pub transaction_list: Scope,
    /// The counter from which each transaction has its number. A worker's own is drawn from only when others learn of the
    /// transaction.
    pub transaction_numbers: Scope,
    /// The read/write lock that each transaction holds shared while it begins and while it leaves, and reports hold exclusively. A
    /// worker alone needs none.
    pub state_locks: Scope,
    /// The buffer to which commits append their records for the WAL. A central one has one stream.
    pub log_buffer: Scope,
}

impl CentralState {
    /// Returns the options with the same scope for all parts: with [`Scope::Central`] those of PLP, with [`Scope::Island`] those of
    /// ATraPos.
    #[must_use]
    pub const fn all(scope: Scope) -> CentralState {
        CentralState {
            transaction_list: scope,
            transaction_numbers: scope,
            state_locks: scope,
            log_buffer: scope,
        }
    }
}

/// A transaction that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActiveTransaction {
    /// Its number, unique together with its home.
    pub number: u64,
    /// The worker on which it began.
    pub home: WorkerId,
}

impl From<TxnId> for ActiveTransaction {
    fn from(txn: TxnId) -> ActiveTransaction {
        ActiveTransaction { number: txn.sequence(), home: WorkerId(txn.home()) }
    }
}

/// A counter on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct NumberSource(AtomicU64);

impl NumberSource {
    fn draw(&self) -> u64 {
        if planted(Bug::NumberDrawnTwice) {
            let last = self.0.load(Ordering::Relaxed);
            // Extends the window that the planted bug opens, so that a test hits it.
            std::thread::yield_now();
            self.0.store(last + 1, Ordering::Relaxed);
            return last + 1;
        }
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// A lock of the system state on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct StateLock(RwLock<()>);

/// The parts of the system state that workers share. See the module's introduction.
#[derive(Debug)]
pub struct SystemState {
    options: CentralState,
    /// The island of each worker.
    island_of: Vec<usize>,
    lists: Vec<ActiveList>,
    numbers: Vec<NumberSource>,
    locks: Vec<StateLock>,
}

impl SystemState {
    /// Creates the shared parts for workers on these islands, which are numbered from 0; `None` if the options share none.
    #[must_use]
    pub fn new(options: CentralState, island_of: Vec<usize>) -> Option<Arc<SystemState>> {
        let CentralState { transaction_list, transaction_numbers, state_locks, log_buffer: _ } = options;
        if [transaction_list, transaction_numbers, state_locks] == [Scope::Worker; 3] {
            return None;
        }
        let islands = island_of.iter().max().map_or(1, |last| last + 1);
        let instances = |scope| match scope {
            Scope::Central => 1,
            Scope::Island => islands,
            Scope::Worker => 0,
        };
        Some(Arc::new(SystemState {
            options,
            lists: std::iter::repeat_with(ActiveList::default).take(instances(transaction_list)).collect(),
            numbers: std::iter::repeat_with(NumberSource::default)
                .take(instances(transaction_numbers))
                .collect(),
            locks: std::iter::repeat_with(StateLock::default).take(instances(state_locks)).collect(),
            island_of,
        }))
    }

    /// Returns what a worker has of the state.
    #[must_use]
    pub fn view(self: &Arc<SystemState>, worker: WorkerId) -> StateView {
        let instance = |scope| match scope {
            Scope::Central => Some(0),
            Scope::Island => Some(self.island_of[worker.index()]),
            Scope::Worker => None,
        };
        StateView {
            list: instance(self.options.transaction_list),
            numbers: instance(self.options.transaction_numbers),
            lock: instance(self.options.state_locks),
            shared: Arc::clone(self),
            states: RefCell::default(),
        }
    }

    /// Returns the transactions under way, in order of their numbers: those of one moment, if state locks are shared; `None` if no
    /// list is.
    #[must_use]
    pub fn active(&self) -> Option<Vec<ActiveTransaction>> {
        if self.lists.is_empty() {
            return None;
        }
        // No transaction begins or leaves while all locks are held.
        let _unchanging: Vec<RwLockWriteGuard<'_, ()>> =
            self.locks.iter().map(|lock| lock.0.write().unwrap_or_else(PoisonError::into_inner)).collect();
        let mut active: Vec<ActiveTransaction> =
            self.lists.iter().flat_map(ActiveList::all).map(ActiveTransaction::from).collect();
        active.sort_unstable();
        Some(active)
    }
}

/// What a worker has of the shared system state. See the module's introduction.
#[derive(Debug)]
pub struct StateView {
    shared: Arc<SystemState>,
    /// The instance of each part that is the worker's; `None` if it is not shared.
    list: Option<usize>,
    numbers: Option<usize>,
    lock: Option<usize>,
    /// Recycled states of transactions.
    states: RefCell<Vec<Rc<TxnState>>>,
}

/// What a transaction has of the shared system state, from its beginning to its end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attendance {
    /// Its number; zero without shared system state.
    pub(crate) txn: TxnId,
    /// Its place in the list, if there is one.
    place: Option<u32>,
}

impl StateView {
    /// Begins a transaction: it has a number and an age, and is in the list.
    pub(crate) fn enter(&self, worker: &EngineWorker, new: impl FnOnce() -> Rc<TxnState>) -> Rc<TxnState> {
        let recycled = self.states.borrow_mut().pop();
        let state = recycled.unwrap_or_else(new);
        let shard = worker.shard();
        {
            let _shared = self.share_lock();
            let txn = shard.new_txn(worker.id());
            let place = self.list.map(|list| self.shared.lists[list].enter(txn));
            state.attendance.set(Attendance { txn, place });
        }
        let accesses = [self.list, self.numbers, self.lock].into_iter().flatten().count();
        shard.stats.central_accesses.add(accesses as u64);
        state.age.set(shard.ages.next(worker.step_time()));
        state
    }

    /// Draws a number, if they are shared.
    pub(crate) fn draw(&self) -> Option<u64> {
        self.numbers.map(|numbers| self.shared.numbers[numbers].draw())
    }

    /// Ends a transaction: it leaves the list. Returns the number of accesses to shared state.
    pub(crate) fn leave(&self, state: &TxnState) -> u64 {
        let Attendance { place, .. } = state.attendance.take();
        if let Some((list, place)) = self.list.zip(place)
            && !planted(Bug::EndStaysListed)
        {
            let _shared = self.share_lock();
            self.shared.lists[list].leave(place);
        } else {
            drop(self.share_lock());
        }
        u64::from(self.list.is_some()) + u64::from(self.lock.is_some())
    }

    /// Recycles the state of a transaction that has left. No other reference to it may exist.
    pub(crate) fn recycle(&self, state: Rc<TxnState>) {
        let mut states = self.states.borrow_mut();
        if states.len() < POOL {
            states.push(state);
        }
    }

    fn share_lock(&self) -> Option<std::sync::RwLockReadGuard<'_, ()>> {
        // It guards no data that a panic could leave in a bad state.
        self.lock.map(|lock| self.shared.locks[lock].0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_shared_by_the_workers_of_its_scope() {
        let islands = vec![0, 0, 1, 1];
        let instances = |scope| {
            let state = SystemState::new(CentralState::all(scope), islands.clone());
            state.map(|state| (0..4).map(|worker| state.view(WorkerId(worker)).list).collect::<Vec<_>>())
        };
        assert_eq!(instances(Scope::Central), Some(vec![Some(0); 4]));
        assert_eq!(instances(Scope::Island), Some(vec![Some(0), Some(0), Some(1), Some(1)]));
        assert_eq!(instances(Scope::Worker), None);
        let log_only = CentralState { log_buffer: Scope::Central, ..CentralState::default() };
        assert!(SystemState::new(log_only, islands).is_none(), "the log buffer is not kept here");
    }

    /// Draws numbers on two threads, and returns true if one was drawn twice.
    fn draws_twice(draw: impl Fn(&NumberSource) -> u64 + Sync) -> bool {
        let source = NumberSource::default();
        let numbers = || (0..10_000).map(|_| draw(&source)).collect::<Vec<u64>>();
        let mut drawn = std::thread::scope(|scope| {
            let other = scope.spawn(numbers);
            let mut drawn = numbers();
            drawn.extend(other.join().expect("a thread that draws"));
            drawn
        });
        drawn.sort_unstable();
        drawn.windows(2).any(|pair| pair[0] == pair[1])
    }

    #[test]
    fn no_number_is_drawn_twice() {
        assert!(!draws_twice(NumberSource::draw));
    }

    #[cfg(debug_assertions)]
    #[test]
    fn planted_a_number_that_is_drawn_twice_is_caught() {
        let draw =
            |source: &NumberSource| atrapos_partition::planted::with(Bug::NumberDrawnTwice, || source.draw());
        // One run may miss the race, many do not.
        assert!((0..50).any(|_| draws_twice(draw)));
    }
}
