//! The list of a branch's accesses.
//!
//! Owns: the memory of the accesses, which stay where they are when a transaction ends, for the next one. Every access of every
//! transaction is noted here, so that it is written in place: put together elsewhere and moved, it would be copied before its
//! stores have reached the cache.

use std::ops::{Deref, DerefMut};

use atrapos_partition::partition::PartitionId;
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::{LockMode, LockTarget};

use crate::branch::Access;

/// See the module's introduction. Dereferences to a slice.
#[derive(Debug, Default)]
pub struct Accesses {
    /// The accesses, and behind them those of earlier transactions.
    memory: Vec<Access>,
    len: usize,
}

/// Number of accesses whose memory is kept.
const KEPT: usize = 1024;

impl Accesses {
    /// Adds an access to a key, whose bytes are taken.
    #[inline]
    pub(crate) fn push_key(
        &mut self,
        partition: PartitionId,
        mode: LockMode,
        key: &mut KeyBuf,
        unlocked: bool,
    ) {
        if let Some(Access {
            partition: to,
            mode: to_mode,
            target: LockTarget::Key(to_key),
            unlocked: to_unlocked,
        }) = self.memory.get_mut(self.len)
        {
            (*to, *to_mode, *to_unlocked) = (partition, mode, unlocked);
            to_key.take_from(key);
            self.len += 1;
        } else {
            self.push(Access { partition, mode, target: LockTarget::Key(std::mem::take(key)), unlocked });
        }
    }

    /// Adds an access.
    #[inline(never)]
    pub(crate) fn push(&mut self, access: Access) {
        match self.memory.get_mut(self.len) {
            Some(earlier) => *earlier = access,
            None => self.memory.push(access),
        }
        self.len += 1;
    }

    /// Removes all accesses.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
        if self.memory.len() > KEPT {
            self.memory.truncate(KEPT);
        }
    }

    /// Removes the accesses from number `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Removes access number `at`.
    pub(crate) fn remove(&mut self, at: usize) {
        debug_assert!(at < self.len, "there is no such access");
        self.memory.remove(at);
        self.len -= 1;
    }

    /// Adds accesses.
    pub(crate) fn extend(&mut self, accesses: impl IntoIterator<Item = Access>) {
        accesses.into_iter().for_each(|access| self.push(access));
    }

    /// Removes and returns all accesses.
    pub(crate) fn take(&mut self) -> Vec<Access> {
        self.memory.truncate(std::mem::take(&mut self.len));
        std::mem::take(&mut self.memory)
    }
}

impl Deref for Accesses {
    type Target = [Access];

    #[inline]
    fn deref(&self) -> &[Access] {
        &self.memory[..self.len]
    }
}

impl DerefMut for Accesses {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Access] {
        &mut self.memory[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atrapos_partition::schema::TableId;
    use atrapos_storage::Key;
    use proptest::prelude::*;

    const PLACE: PartitionId = PartitionId { table: TableId(3), partition: 1 };

    fn access(number: u64) -> Access {
        let lower = vec![7; (number % 40) as usize].as_slice().into();
        let target = LockTarget::Range { lower, upper: Some(number.encode()) };
        Access { partition: PLACE, mode: LockMode::Shared, target, unlocked: true }
    }

    proptest! {
        /// What was there before never shows, whatever was done.
        #[test]
        fn it_is_a_list(steps in prop::collection::vec((0..8_u8, 0..60_u64), 1..200)) {
            let (mut list, mut model): (Accesses, Vec<LockTarget>) = Default::default();
            for (step, number) in steps {
                match step {
                    0..=2 => {
                        let bytes = vec![number as u8; number as usize];
                        list.push_key(PLACE, LockMode::Exclusive, &mut KeyBuf::from_slice(&bytes), false);
                        model.push(LockTarget::Key(KeyBuf::from_slice(&bytes)));
                        let last = list.last().expect("it was just added");
                        prop_assert_eq!((last.partition, last.mode, last.unlocked), (PLACE, LockMode::Exclusive, false));
                    }
                    3 => {
                        list.push(access(number));
                        model.push(access(number).target);
                    }
                    4 if !model.is_empty() => {
                        let at = number as usize % model.len();
                        list.remove(at);
                        model.remove(at);
                    }
                    5 => {
                        list.truncate(number as usize);
                        model.truncate(number as usize);
                    }
                    6 => {
                        list.clear();
                        model.clear();
                    }
                    7 => {
                        let all = list.take();
                        prop_assert!(all.iter().map(|access| &access.target).eq(&model) && list.is_empty());
                        list.extend(all);
                    }
                    _ => {}
                }
                prop_assert!(list.iter().map(|access| &access.target).eq(&model));
            }
        }
    }

    #[test]
    fn the_memory_of_a_long_list_is_given_back() {
        let mut list = Accesses::default();
        list.extend((0..2 * KEPT as u64).map(access));
        list.clear();
        assert_eq!((list.len(), list.memory.len()), (0, KEPT));
    }
}
