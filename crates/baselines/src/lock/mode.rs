//! The modes of locks, and which of them exclude each other.
//!
//! Owns: the bits of a mode, and the count of a queue's holders by bit. Never: knows a lock, a queue or a transaction.
//!
//! # Four bits
//! A mode is a set of four bits, and one relation says what excludes what: bit 0 excludes bit 3, and bit 1 excludes
//! bit 2. Tables (and the database) have the modes of hierarchical locking (Gray et al., "Granularity of Locks and
//! Degrees of Consistency in a Shared Data Base"), each with all weaker ones in it, so that the join of two modes is the
//! union of their bits (`S` and `IX` are `SIX`) and one covers another if it contains it:
//!
//! ```text
//!        bit 3  bit 2  bit 1  bit 0             bit 3      bit 2        bit 1       bit 0
//!        x      s      ix     is                write key  protect gap  insert gap  read key
//!  IS                         1        READ                                         1
//!  IX                  1      1        WRITE    1                                   1
//!  S            1             1        PROTECT             1
//!  SIX          1      1      1        INSERT                           1
//!  X     1      1      1      1
//! ```
//!
//! Keys have two parts that do not touch each other: the key itself, which is read or written, and the gap below it, which
//! is protected from insertions or inserted into. Insertions do not exclude each other; two that protect do not either; who
//! does both has the gap for itself. So a mode of a key is any union of `READ`, `WRITE`, `PROTECT` and `INSERT`, under the same relation.
//!
//! Invariants: the relation is symmetric; a mode excludes another exactly if one bit of it does.

use std::ops::BitOr;

/// A set of the four bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode(u8);

impl Mode {
    /// No bit: nothing is locked.
    pub(crate) const NONE: Mode = Mode(0);
    /// The bit of tables that are read or written as a whole: it covers the keys' reads and protected gaps.
    const SHARED_BIT: u8 = 0b0100;
    /// The bit of tables that are written as a whole: it covers everything below.
    const EXCLUSIVE_BIT: u8 = 0b1000;

    /// The bits that this mode excludes.
    const fn excluded(self) -> u8 {
        (self.0.reverse_bits() >> 4) & 0xf
    }

    /// Returns true if two owners cannot have these modes at the same time.
    #[inline(always)]
    pub(crate) const fn conflicts(self, other: Mode) -> bool {
        self.excluded() & other.0 != 0
    }

    /// Returns true if whoever has this mode need not ask for `other`.
    #[inline(always)]
    pub(crate) const fn covers(self, other: Mode) -> bool {
        self.0 & other.0 == other.0
    }

    /// The weakest mode that covers both.
    #[inline(always)]
    pub(crate) const fn join(self, other: Mode) -> Mode {
        Mode(self.0 | other.0)
    }

    /// Returns true if no bit is set.
    #[inline(always)]
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns true if a lock of a table (or of the database) in this mode makes a lock below it in `below` needless.
    #[inline(always)]
    pub(crate) const fn covers_below(self, below: Mode) -> bool {
        const READ_AND_PROTECT: u8 = KeyMode::READ.0.0 | KeyMode::PROTECT.0.0;
        self.0 & Mode::EXCLUSIVE_BIT != 0
            || (self.0 & Mode::SHARED_BIT != 0 && below.0 & !READ_AND_PROTECT == 0)
    }

    /// Returns true if several transactions can have this mode at once on a table: it may be passed on.
    #[inline(always)]
    pub(crate) const fn is_shared_on_table(self) -> bool {
        !self.conflicts(self)
    }

    /// The mode without the insertion into a gap, for a planted bug: the intention to write remains, as it has another bit
    /// below it.
    pub(super) const fn without_insert(self) -> Mode {
        if self.0 & 0b0011 == KeyMode::INSERT.0.0 { Mode(self.0 & !KeyMode::INSERT.0.0) } else { self }
    }

    /// All sixteen modes, for tests.
    #[cfg(all(test, not(loom)))]
    fn all() -> impl Iterator<Item = Mode> {
        (0..16).map(Mode)
    }
}

/// The mode of a lock on a table or on the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableMode(pub(crate) Mode);

impl TableMode {
    /// Intention to read parts.
    pub const IS: TableMode = TableMode(Mode(0b0001));
    /// Intention to write parts.
    pub const IX: TableMode = TableMode(Mode(0b0011));
    /// Reading the whole.
    pub const S: TableMode = TableMode(Mode(0b0101));
    /// Reading the whole and the intention to write parts.
    pub const SIX: TableMode = TableMode(Mode(0b0111));
    /// Writing the whole.
    pub const X: TableMode = TableMode(Mode(0b1111));

    /// The intention that a lock below requires.
    pub(crate) const fn intention(below: Mode) -> Mode {
        const READ_AND_PROTECT: Mode = Mode(KeyMode::READ.0.0 | KeyMode::PROTECT.0.0);
        if READ_AND_PROTECT.covers(below) { TableMode::IS.0 } else { TableMode::IX.0 }
    }

    /// Returns true if two transactions cannot have these modes at the same time.
    #[must_use]
    pub const fn conflicts(self, other: TableMode) -> bool {
        self.0.conflicts(other.0)
    }
}

/// The mode of a lock on a key and on the gap below it: a union of [`READ`](Self::READ), [`WRITE`](Self::WRITE),
/// [`PROTECT`](Self::PROTECT) and [`INSERT`](Self::INSERT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyMode(pub(crate) Mode);

impl KeyMode {
    /// Nothing: what a transaction has on a key that it has not locked.
    pub const NONE: KeyMode = KeyMode(Mode::NONE);
    /// The key's row, or its absence, is read.
    pub const READ: KeyMode = KeyMode(Mode(0b0001));
    /// The key's row is inserted, replaced or removed. It covers reading.
    pub const WRITE: KeyMode = KeyMode(Mode(0b1001));
    /// Nothing may be inserted between the key and the key before it.
    pub const PROTECT: KeyMode = KeyMode(Mode(0b0100));
    /// Something is inserted between the key and the key before it.
    pub const INSERT: KeyMode = KeyMode(Mode(0b0010));

    /// Returns true if whoever has this mode has `other` with it.
    #[must_use]
    pub const fn covers(self, other: KeyMode) -> bool {
        self.0.covers(other.0)
    }

    /// Returns true if two transactions cannot have these modes at the same time.
    #[must_use]
    pub const fn conflicts(self, other: KeyMode) -> bool {
        self.0.conflicts(other.0)
    }

    /// The part of this mode that concerns the gap.
    #[must_use]
    pub const fn gap(self) -> KeyMode {
        KeyMode(Mode(self.0.0 & (KeyMode::PROTECT.0.0 | KeyMode::INSERT.0.0)))
    }
}

impl BitOr for KeyMode {
    type Output = KeyMode;

    fn bitor(self, other: KeyMode) -> KeyMode {
        KeyMode(self.0.join(other.0))
    }
}

/// The number of holders of a queue that have each bit: sixteen binary digits for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holders(u64);

impl Holders {
    pub(crate) const NOBODY: Holders = Holders(0);
    /// The most holders that can be counted.
    pub(crate) const MAX: usize = 0xffff;

    /// A one in the count of each bit of the mode.
    const fn ones(bits: u8) -> u64 {
        let mut ones = 0;
        let mut bit = 0;
        while bit < 4 {
            ones |= ((bits as u64 >> bit) & 1) << (16 * bit);
            bit += 1;
        }
        ones
    }

    /// The counts that must be zero for each mode.
    const EXCLUDED: [u64; 16] = {
        let mut excluded = [0; 16];
        let mut bits = 0;
        while bits < 16 {
            excluded[bits as usize] = Holders::ones(Mode(bits).excluded()) * 0xffff;
            bits += 1;
        }
        excluded
    };

    /// Numbers that one holder adds to the counts, by mode.
    const ONES: [u64; 16] = {
        let mut ones = [0; 16];
        let mut bits = 0;
        while bits < 16 {
            ones[bits as usize] = Holders::ones(bits);
            bits += 1;
        }
        ones
    };

    /// Counts one more holder.
    #[inline(always)]
    #[must_use]
    pub(crate) const fn with(self, mode: Mode) -> Holders {
        Holders(self.0 + Holders::ONES[(mode.0 & 0xf) as usize])
    }

    /// Counts one holder less.
    #[inline(always)]
    #[must_use]
    pub(crate) const fn without(self, mode: Mode) -> Holders {
        Holders(self.0 - Holders::ONES[(mode.0 & 0xf) as usize])
    }

    /// Returns true if a holder excludes the mode.
    #[inline(always)]
    pub(crate) const fn exclude(self, mode: Mode) -> bool {
        self.0 & Holders::EXCLUDED[(mode.0 & 0xf) as usize] != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn tables_have_the_compatibility_matrix_of_hierarchical_locking() {
        let modes = [TableMode::IS, TableMode::IX, TableMode::S, TableMode::SIX, TableMode::X];
        let compatible = [
            [true, true, true, true, false],
            [true, true, false, false, false],
            [true, false, true, false, false],
            [true, false, false, false, false],
            [false, false, false, false, false],
        ];
        for (row, a) in modes.iter().enumerate() {
            for (column, b) in modes.iter().enumerate() {
                assert_eq!(!a.conflicts(*b), compatible[row][column], "{a:?} {b:?}");
            }
        }
        assert_eq!(TableMode::S.0.join(TableMode::IX.0), TableMode::SIX.0);
        assert!(modes.iter().all(|mode| TableMode::X.0.covers(mode.0) && mode.0.covers(TableMode::IS.0)));
    }

    #[test]
    fn the_parts_of_a_key_do_not_touch_each_other() {
        let key = [KeyMode::READ, KeyMode::WRITE];
        let gap = [KeyMode::PROTECT, KeyMode::INSERT, KeyMode::PROTECT | KeyMode::INSERT];
        for a in key {
            assert!(gap.iter().all(|b| !a.conflicts(*b) && !b.conflicts(a)));
        }
        assert!(!KeyMode::READ.conflicts(KeyMode::READ));
        assert!(KeyMode::WRITE.conflicts(KeyMode::READ) && KeyMode::WRITE.conflicts(KeyMode::WRITE));
        assert!(KeyMode::WRITE.covers(KeyMode::READ));
        assert!(!KeyMode::PROTECT.conflicts(KeyMode::PROTECT) && !KeyMode::INSERT.conflicts(KeyMode::INSERT));
        assert!(KeyMode::PROTECT.conflicts(KeyMode::INSERT));
        assert_eq!((KeyMode::WRITE | KeyMode::INSERT).gap(), KeyMode::INSERT);
    }

    #[test]
    fn counts_exclude_what_one_of_the_holders_excludes() {
        for a in Mode::all() {
            for b in Mode::all() {
                let holders = Holders::NOBODY.with(a).with(b);
                for wanted in Mode::all() {
                    assert_eq!(holders.exclude(wanted), a.conflicts(wanted) || b.conflicts(wanted));
                    assert_eq!(a.conflicts(wanted), wanted.conflicts(a));
                    assert_eq!(holders.without(a).exclude(wanted), b.conflicts(wanted));
                }
            }
        }
    }

    #[test]
    fn locks_of_tables_cover_those_of_keys() {
        let reads = KeyMode::READ | KeyMode::PROTECT;
        for (mode, covers_reads, covers_writes) in [
            (TableMode::IS, false, false),
            (TableMode::IX, false, false),
            (TableMode::S, true, false),
            (TableMode::SIX, true, false),
            (TableMode::X, true, true),
        ] {
            assert_eq!(mode.0.covers_below(reads.0), covers_reads);
            assert_eq!(mode.0.covers_below(KeyMode::WRITE.0), covers_writes);
            assert_eq!(mode.0.covers_below(KeyMode::INSERT.0), covers_writes);
        }
        assert_eq!(TableMode::intention(reads.0), TableMode::IS.0);
        assert_eq!(TableMode::intention(KeyMode::INSERT.0), TableMode::IX.0);
    }
}
