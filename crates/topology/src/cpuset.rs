//! Sets of processing units, and the kernel's list notation for them (`0-3,8`).
//!
//! Owns: [`CpuSet`] and its parser. Never: knows what a processing unit is part of.
//!
//! Invariants: members are below [`CPU_COUNT_MAX`]; the word vector has no trailing zero word, so that equal sets are
//! equal values; iteration is ascending.

use crate::ids::CpuId;
use std::fmt;

/// Processing units are numbered below this: eight times what Linux can be configured for. A larger number in a file or
/// a description is an error in it, and is refused before it can cost memory.
pub const CPU_COUNT_MAX: u32 = 65_536;

/// A set of processing units.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct CpuSet {
    words: Vec<u64>,
}

/// Reasons for which a list of processing units was not understood. Its `Display` completes the sentence "the list
/// ...".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CpuListError {
    /// A part between commas is neither a number nor a range.
    #[error("contains `{part}`, which is neither a number nor a range such as 0-3")]
    NotANumber {
        /// The part, cut to a printable length.
        part: String,
    },
    /// A range whose end lies before its start.
    #[error("contains the backward range {first}-{last}")]
    Backward {
        /// Start of the range.
        first: u32,
        /// End of the range.
        last: u32,
    },
    /// A number at or beyond [`CPU_COUNT_MAX`].
    #[error("names cpu {cpu}, beyond the largest believable number {}", CPU_COUNT_MAX - 1)]
    TooLarge {
        /// The number.
        cpu: u64,
    },
}

impl CpuSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// Reads the kernel's list notation: numbers and ranges between commas (`0-3,8`), with an optional stride
    /// (`0-14:2/4` is groups of 2 every 4, as the kernel's bitmap lists allow). An empty text is the empty set.
    ///
    /// # Errors
    /// [`CpuListError`] for anything else; nothing is believed in part.
    pub fn parse_list(text: &str) -> Result<Self, CpuListError> {
        let mut set = Self::new();
        for part in text.trim().split(',').map(str::trim) {
            if part.is_empty() {
                if text.trim().is_empty() {
                    break;
                }
                return Err(CpuListError::NotANumber { part: String::new() });
            }
            let (range, stride) = match part.split_once(':') {
                Some((range, stride)) => (range, Some(stride)),
                None => (part, None),
            };
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (parse_cpu(first, part)?, parse_cpu(last, part)?),
                None => {
                    let cpu = parse_cpu(range, part)?;
                    (cpu, cpu)
                }
            };
            if last < first {
                return Err(CpuListError::Backward { first, last });
            }
            let (used, group) = match stride.map(|stride| stride.split_once('/')) {
                None => (1, 1),
                Some(Some((used, group))) => (parse_cpu(used, part)?, parse_cpu(group, part)?),
                Some(None) => return Err(not_a_number(part)),
            };
            if used == 0 || group < used {
                return Err(not_a_number(part));
            }
            for cpu in (first..=last).filter(|cpu| (cpu - first) % group < used) {
                set.insert(CpuId(cpu));
            }
        }
        Ok(set)
    }

    /// Adds a processing unit. A number at or beyond [`CPU_COUNT_MAX`] is not added.
    ///
    /// Returns whether the set has changed.
    pub fn insert(&mut self, cpu: CpuId) -> bool {
        if cpu.0 >= CPU_COUNT_MAX {
            return false;
        }
        let (word, bit) = (cpu.index() / 64, cpu.index() % 64);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let before = self.words[word];
        self.words[word] |= 1 << bit;
        self.words[word] != before
    }

    /// Takes a processing unit out. Returns whether it was a member.
    pub fn remove(&mut self, cpu: CpuId) -> bool {
        let member = self.contains(cpu);
        if member {
            self.words[cpu.index() / 64] &= !(1 << (cpu.index() % 64));
            self.trim();
        }
        member
    }

    /// Returns whether the processing unit is a member.
    #[must_use]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words.get(cpu.index() / 64).is_some_and(|word| word >> (cpu.index() % 64) & 1 == 1)
    }

    /// Number of members of the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns whether the set has no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The smallest member.
    #[must_use]
    pub fn first(&self) -> Option<CpuId> {
        self.iter().next()
    }

    /// The members, ascending.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let base = u32::try_from(index * 64).unwrap_or(u32::MAX);
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| CpuId(base + bit))
        })
    }

    /// The members of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let words = self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect();
        Self { words }.trimmed()
    }

    /// The members of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (long, short) = if self.words.len() >= other.words.len() { (self, other) } else { (other, self) };
        let mut words = long.words.clone();
        for (word, extra) in words.iter_mut().zip(&short.words) {
            *word |= extra;
        }
        Self { words }
    }

    /// The members of this set that are not members of the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let masks = other.words.iter().copied().chain(std::iter::repeat(0));
        let words = self.words.iter().zip(masks).map(|(a, b)| a & !b).collect();
        Self { words }.trimmed()
    }

    /// Returns whether every member of this set is a member of the other.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    fn trimmed(mut self) -> Self {
        self.trim();
        self
    }
}

fn parse_cpu(text: &str, part: &str) -> Result<u32, CpuListError> {
    // `u64::from_str` takes a leading plus sign, the kernel's lists do not.
    if text.starts_with('+') {
        return Err(not_a_number(part));
    }
    let cpu: u64 = text.trim().parse().map_err(|_| not_a_number(part))?;
    match u32::try_from(cpu) {
        Ok(number) if number < CPU_COUNT_MAX => Ok(number),
        _ => Err(CpuListError::TooLarge { cpu }),
    }
}

fn not_a_number(part: &str) -> CpuListError {
    CpuListError::NotANumber { part: shown(part) }
}

/// Makes the part of a foreign text that goes into a sentence: a printable start of it.
pub(crate) fn shown(text: &str) -> String {
    shown_up_to(text, 40)
}

/// A printable start of a foreign text, of at most so many of its characters.
pub(crate) fn shown_up_to(text: &str, chars_max: usize) -> String {
    let mut shown: String = text.chars().take(chars_max).flat_map(char::escape_debug).collect();
    if text.chars().nth(chars_max).is_some() {
        shown.push_str("...");
    }
    shown
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut set = Self::new();
        set.extend(cpus);
        set
    }
}

impl Extend<CpuId> for CpuSet {
    fn extend<I: IntoIterator<Item = CpuId>>(&mut self, cpus: I) {
        for cpu in cpus {
            self.insert(cpu);
        }
    }
}

impl fmt::Display for CpuSet {
    /// The kernel's list notation; `none` for the empty set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|next| next.0 == last.0 + 1) {
                last = next;
            }
            match last.0 - first.0 {
                0 => write!(f, "{separator}{}", first.0)?,
                1 => write!(f, "{separator}{},{}", first.0, last.0)?,
                _ => write!(f, "{separator}{}-{}", first.0, last.0)?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn set(text: &str) -> CpuSet {
        CpuSet::parse_list(text).expect("a valid list")
    }

    #[test]
    fn lists_of_the_kernel_are_read() {
        assert_eq!(set(" 0-3,8\n").iter().map(|cpu| cpu.0).collect::<Vec<_>>(), [0, 1, 2, 3, 8]);
        assert_eq!(set("0-7:1/2").to_string(), "0,2,4,6");
        assert_eq!(set("0-15:2/4").to_string(), "0,1,4,5,8,9,12,13");
        assert!(set("\n").is_empty());
        assert_eq!(set("5").to_string(), "5");
    }

    #[test]
    fn absurd_lists_are_refused_with_a_reason() {
        for (text, words) in [
            ("0-4294967295", "cpu 4294967295"),
            ("65536", "cpu 65536"),
            ("-1", "`-1`"),
            ("7-3", "backward range 7-3"),
            ("a-b", "`a-b`"),
            ("0,,1", "``"),
            ("0-3:0/2", "`0-3:0/2`"),
            ("0-3:3/2", "`0-3:3/2`"),
            ("0-3:2", "`0-3:2`"),
            ("+1", "`+1`"),
            ("99999999999999999999999999", "neither a number"),
        ] {
            let error = CpuSet::parse_list(text).expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_set_behaves_like_a_btree_set(
            a in prop::collection::btree_set(0u32..300, 0..40),
            b in prop::collection::btree_set(0u32..300, 0..40),
        ) {
            let of = |set: &BTreeSet<u32>| set.iter().map(|&cpu| CpuId(cpu)).collect::<CpuSet>();
            let (sa, sb) = (of(&a), of(&b));
            prop_assert_eq!(sa.len(), a.len());
            prop_assert_eq!(sa.intersection(&sb), of(&(&a & &b)));
            prop_assert_eq!(sa.union(&sb), of(&(&a | &b)));
            prop_assert_eq!(sa.difference(&sb), of(&(&a - &b)));
            prop_assert_eq!(sa.is_subset(&sb), a.is_subset(&b));
            prop_assert_eq!(sa.is_empty(), a.is_empty());
            let mut rest = sa.clone();
            for cpu in sa.iter() {
                prop_assert!(rest.remove(cpu));
                prop_assert!(!rest.contains(cpu));
            }
            prop_assert_eq!(rest, CpuSet::new());
            if !a.is_empty() {
                prop_assert_eq!(CpuSet::parse_list(&sa.to_string()), Ok(sa));
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,40}") {
            let _ = CpuSet::parse_list(&text);
        }
    }
}
