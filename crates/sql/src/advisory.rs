//! Advisory locks: locks that only statements ask for, by numbers that mean something to programs alone.
//!
//! Owns: who holds which of them, for its session or its transaction. Never: has to do with the engine's locks of rows. A wait that
//! goes through both is in no search for deadlocks: it ends by `lock_timeout` or a cancellation.
//!
//! Locks are granted to whoever asks first once they are free; waiters have no order.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The name of a lock: one number of 64 bits, or two of 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The upper half of the number, or the first number.
    pub(crate) class: u32,
    /// The lower half of the number, or the second number.
    pub(crate) object: u32,
    /// Set if there are two numbers.
    pub(crate) is_pair: bool,
}

impl Key {
    /// The key of one number.
    pub(crate) fn single(number: i64) -> Key {
        Key { class: (number >> 32) as u32, object: number as u32, is_pair: false }
    }

    /// The key of two numbers.
    pub(crate) fn pair(class: i64, object: i64) -> Key {
        Key { class: class as u32, object: object as u32, is_pair: true }
    }
}

/// A request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) key: Key,
    pub(crate) is_shared: bool,
    /// Set if the lock goes with the transaction, otherwise with the session.
    pub(crate) of_transaction: bool,
}

/// The times that a connection holds a lock in one way.
#[derive(Clone, Debug)]
struct Hold {
    owner: i32,
    is_shared: bool,
    of_session: u32,
    of_transaction: u32,
}

impl Hold {
    /// The lock of this name that is held.
    fn of(&self, key: Key) -> Held {
        Held { key, owner: self.owner, is_shared: self.is_shared }
    }
}

/// A lock that is held or waited for, as `pg_locks` tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) key: Key,
    pub(crate) owner: i32,
    pub(crate) is_shared: bool,
}

impl Held {
    /// Returns true if this lock keeps another connection from the one that it wants.
    pub(crate) fn conflicts(&self, wanted: &Held) -> bool {
        self.key == wanted.key && self.owner != wanted.owner && !(self.is_shared && wanted.is_shared)
    }
}

/// All advisory locks of a database.
#[derive(Debug, Default)]
pub(crate) struct Advisory {
    held: Mutex<BTreeMap<Key, Vec<Hold>>>,
    /// The locks that are waited for, in the order in which the waits began.
    wanted: Mutex<Vec<Held>>,
    freed: Notify,
}

/// The wait for a lock, as long as it lasts.
struct Wanted<'a> {
    advisory: &'a Advisory,
    lock: Held,
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        let mut wanted = self.advisory.wanted();
        // A connection waits for one lock at a time.
        wanted.retain(|other| other.owner != self.lock.owner);
    }
}

impl Advisory {
    fn locks(&self) -> MutexGuard<'_, BTreeMap<Key, Vec<Hold>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wanted(&self) -> MutexGuard<'_, Vec<Held>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a lock if no other connection holds it in a way that conflicts.
    pub(crate) fn try_lock(&self, owner: i32, request: Request) -> bool {
        let mut locks = self.locks();
        let holds = locks.entry(request.key).or_default();
        let wanted = Held { key: request.key, owner, is_shared: request.is_shared };
        if holds.iter().any(|hold| hold.of(request.key).conflicts(&wanted)) {
            return false;
        }
        let is_own = |hold: &&mut Hold| hold.owner == owner && hold.is_shared == request.is_shared;
        let own = match holds.iter_mut().find(is_own) {
            Some(own) => own,
            None => {
                holds.push(Hold { owner, is_shared: request.is_shared, of_session: 0, of_transaction: 0 });
                let last = holds.len() - 1;
                &mut holds[last]
            }
        };
        let count = if request.of_transaction { &mut own.of_transaction } else { &mut own.of_session };
        *count = count.saturating_add(1);
        true
    }

    /// Takes a lock, waiting for others to free it.
    pub(crate) async fn lock(&self, owner: i32, request: Request) {
        let lock = Held { key: request.key, owner, is_shared: request.is_shared };
        self.wanted().push(lock);
        let _wanted = Wanted { advisory: self, lock };
        loop {
            let mut freed = pin!(self.freed.notified());
            // What is freed after this is told of, what was freed before is seen.
            freed.as_mut().enable();
            if self.try_lock(owner, request) {
                return;
            }
            freed.await;
        }
    }

    /// Gives a lock back that was taken once; returns false if the connection does not hold it so.
    pub(crate) fn unlock(&self, owner: i32, request: Request) -> bool {
        let mut is_held = false;
        self.release(|key, hold| {
            if *key != request.key || hold.owner != owner || hold.is_shared != request.is_shared {
                return;
            }
            let count = if request.of_transaction { &mut hold.of_transaction } else { &mut hold.of_session };
            is_held = *count > 0;
            *count = count.saturating_sub(1);
        });
        is_held
    }

    /// Gives all locks of a session back.
    pub(crate) fn unlock_all(&self, owner: i32) {
        self.release(|_, hold| hold.of_session *= u32::from(hold.owner != owner));
    }

    /// Gives all locks of a transaction back.
    pub(crate) fn end_transaction(&self, owner: i32) {
        self.release(|_, hold| hold.of_transaction *= u32::from(hold.owner != owner));
    }

    fn release(&self, mut change: impl FnMut(&Key, &mut Hold)) {
        let mut locks = self.locks();
        for (key, holds) in locks.iter_mut() {
            holds.iter_mut().for_each(|hold| change(key, hold));
            holds.retain(|hold| hold.of_session + hold.of_transaction > 0);
        }
        locks.retain(|_, holds| !holds.is_empty());
        drop(locks);
        self.freed.notify_waiters();
    }

    /// The locks that are waited for.
    pub(crate) fn waiting(&self) -> Vec<Held> {
        self.wanted().clone()
    }

    /// The locks that are held.
    pub(crate) fn all(&self) -> Vec<Held> {
        let locks = self.locks();
        let held = |(key, holds): (&Key, &Vec<Hold>)| {
            let key = *key;
            holds.iter().map(move |hold| hold.of(key)).collect::<Vec<_>>()
        };
        locks.iter().flat_map(held).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(number: i64, is_shared: bool, of_transaction: bool) -> Request {
        Request { key: Key::single(number), is_shared, of_transaction }
    }

    #[test]
    fn locks_are_counted_and_shared_ones_do_not_conflict() {
        let locks = Advisory::default();
        let (own, shared) = (request(1, false, false), request(1, true, false));
        assert!(locks.try_lock(1, own) && locks.try_lock(1, own) && locks.try_lock(1, shared));
        assert!(!locks.try_lock(2, shared));
        assert!(locks.try_lock(2, request(1 << 32, false, false)));
        assert!(locks.unlock(1, own) && locks.unlock(1, own) && !locks.unlock(1, own));
        assert!(locks.try_lock(2, shared) && !locks.try_lock(2, own));
        assert!(!locks.unlock(3, shared));
        locks.unlock_all(2);
        assert_eq!(locks.all(), [Held { key: Key::single(1), owner: 1, is_shared: true }]);
        assert_ne!(Key::single(1), Key::pair(0, 1));
    }

    #[test]
    fn a_lock_of_a_transaction_goes_with_it_alone() {
        let locks = Advisory::default();
        assert!(locks.try_lock(1, request(1, false, true)) && locks.try_lock(1, request(2, false, false)));
        assert!(!locks.unlock(1, request(1, false, false)));
        locks.unlock_all(1);
        assert_eq!(locks.all().len(), 1);
        locks.end_transaction(1);
        assert!(locks.all().is_empty());
    }

    #[test]
    fn a_waiter_gets_what_is_freed() {
        let locks = Advisory::default();
        assert!(locks.try_lock(1, request(1, false, false)));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pollster::block_on(locks.lock(2, request(1, false, false))));
            while locks.waiting().is_empty() {
                std::thread::yield_now();
            }
            assert!(locks.all()[0].conflicts(&locks.waiting()[0]));
            locks.unlock_all(1);
            waiter.join().unwrap();
        });
        assert_eq!(locks.all(), [Held { key: Key::single(1), owner: 2, is_shared: false }]);
        assert!(locks.waiting().is_empty());
    }
}
