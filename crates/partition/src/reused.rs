//! A list whose elements stay in memory when it is cleared, for those of the next transaction.
//!
//! Every access and every change of every transaction is noted in such a list, so that it is written in place: put together
//! elsewhere and moved, it would be copied before its stores have reached the cache, and a load that is wider than the stores
//! before it waits for that.

use std::ops::{Deref, DerefMut};

/// See the module's introduction. Dereferences to a slice.
#[derive(Debug)]
pub struct Reused<T> {
    /// The elements, and behind them earlier ones.
    memory: Vec<T>,
    len: usize,
}

/// Number of elements whose memory is kept.
const KEPT: usize = 1024;

impl<T> Reused<T> {
    /// Adds an element with the value of any earlier one, or that of `new`, to be written by the caller.
    #[inline]
    pub fn slot(&mut self, new: impl FnOnce() -> T) -> &mut T {
        let at = self.len;
        if at >= self.memory.len() {
            return self.grown(new());
        }
        self.len = at + 1;
        &mut self.memory[at]
    }

    #[cold]
    #[inline(never)]
    fn grown(&mut self, element: T) -> &mut T {
        self.memory.push(element);
        self.len += 1;
        &mut self.memory[self.len - 1]
    }

    /// Adds an element.
    pub fn push(&mut self, element: T) {
        self.memory.truncate(self.len);
        self.memory.push(element);
        self.len += 1;
    }

    /// Adds elements.
    pub fn extend(&mut self, elements: impl IntoIterator<Item = T>) {
        self.memory.truncate(self.len);
        self.memory.extend(elements);
        self.len = self.memory.len();
    }

    /// Removes all elements.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
        if self.memory.len() > KEPT {
            self.memory.truncate(KEPT);
        }
    }

    /// Removes the elements from number `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Removes and returns the last element.
    pub fn pop(&mut self) -> Option<T> {
        self.memory.truncate(self.len);
        self.len = self.len.saturating_sub(1);
        self.memory.pop()
    }

    /// Removes and returns element number `at`.
    ///
    /// # Panics
    /// Panics if there is no such element.
    pub fn remove(&mut self, at: usize) -> T {
        assert!(at < self.len, "there is no element number {at} among {}", self.len);
        self.len -= 1;
        self.memory.remove(at)
    }

    /// Removes and returns all elements.
    pub fn take(&mut self) -> Vec<T> {
        self.memory.truncate(std::mem::take(&mut self.len));
        std::mem::take(&mut self.memory)
    }
}

impl<T> Default for Reused<T> {
    fn default() -> Reused<T> {
        Reused { memory: Vec::new(), len: 0 }
    }
}

impl<T> Deref for Reused<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.memory[..self.len]
    }
}

impl<T> DerefMut for Reused<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.memory[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What was there before never shows, whatever was done.
        #[test]
        fn it_is_a_list(steps in prop::collection::vec((0..9_u8, 0..60_usize), 1..200)) {
            let (mut list, mut model): (Reused<String>, Vec<String>) = Default::default();
            for (step, number) in steps {
                match step {
                    0..=2 => {
                        number.to_string().clone_into(list.slot(String::new));
                        model.push(number.to_string());
                    }
                    3 => {
                        list.push(number.to_string());
                        model.push(number.to_string());
                    }
                    4 if !model.is_empty() => {
                        let at = number % model.len();
                        prop_assert_eq!(list.remove(at), model.remove(at));
                    }
                    5 => {
                        list.truncate(number);
                        model.truncate(number);
                    }
                    6 => {
                        list.clear();
                        model.clear();
                    }
                    7 => {
                        let all = list.take();
                        prop_assert!(all == model && list.is_empty());
                        list.extend(all);
                    }
                    _ => prop_assert_eq!(list.pop(), model.pop()),
                }
                prop_assert_eq!(&*list, &*model);
            }
        }
    }

    #[test]
    fn the_memory_of_a_long_list_is_given_back() {
        let mut list = Reused::default();
        list.extend(0..2 * KEPT);
        list.clear();
        assert_eq!((list.len(), list.memory.len()), (0, KEPT));
    }
}
