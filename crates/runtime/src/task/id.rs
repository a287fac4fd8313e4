//! The ids of tasks.

use std::fmt;

/// Names one task of one worker. Ids of finished tasks are never mistaken for those of their successors in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl TaskId {
    /// Names no task: waking it does nothing.
    pub const NONE: Self = Self { index: u32::MAX, generation: u32::MAX };

    /// The slot of the task: dense from 0, reused after the task finished, fit as an index into a side table.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// The id of the next task in the same slot.
    pub(super) const fn next(self) -> Self {
        Self { index: self.index, generation: self.generation.wrapping_add(1) }
    }

    /// Times that the slot had been used before; together with the index it is unique (until it wraps at 2^32).
    #[inline]
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            return f.write_str("t-none");
        }
        write!(f, "t{}.{}", self.index, self.generation)
    }
}
