//! The operations of a random run, with keys and rows chosen to hurt.

use proptest::prelude::*;
use std::fmt;
use std::ops::Bound;

#[derive(Clone)]
pub(super) enum Op {
    Insert(Vec<u8>, usize),
    Update(Vec<u8>, usize),
    Patch(Vec<u8>),
    Remove(Vec<u8>),
    /// Cuts the tree that owns the key, at the key.
    Split(Vec<u8>),
    /// Joins the tree of this number (modulo how many there are) and the next one.
    Append(usize),
    /// Fills a tree with keys around one, so that it gets some height.
    Grow(Vec<u8>, u8, usize),
    /// Removes every row of the range, one by one.
    Clear(Vec<u8>, Vec<u8>),
    Range(Bound<Vec<u8>>, Bound<Vec<u8>>, Vec<bool>),
    Lookups(Vec<Vec<u8>>),
}

/// Bytes as runs, so that a failure can be read.
pub(super) fn runs(bytes: &[u8]) -> String {
    let show = |run: &[u8]| match run.len() {
        1 => format!("{:02x}", run[0]),
        len => format!("{:02x}*{len}", run[0]),
    };
    bytes.chunk_by(|a, b| a == b).map(show).collect::<Vec<_>>().join(" ")
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = |bound: &Bound<Vec<u8>>| format!("{:?}", bound.as_ref().map(|key| runs(key)));
        match self {
            Op::Insert(key, len) => write!(f, "Insert({}; {len})", runs(key)),
            Op::Update(key, len) => write!(f, "Update({}; {len})", runs(key)),
            Op::Patch(key) => write!(f, "Patch({})", runs(key)),
            Op::Remove(key) => write!(f, "Remove({})", runs(key)),
            Op::Split(key) => write!(f, "Split({})", runs(key)),
            Op::Append(number) => write!(f, "Append({number})"),
            Op::Grow(key, step, len) => write!(f, "Grow({}; {step}, {len})", runs(key)),
            Op::Clear(from, to) => write!(f, "Clear({}; {})", runs(from), runs(to)),
            Op::Range(lower, upper, sides) => {
                write!(f, "Range({}, {}, {sides:?})", bound(lower), bound(upper))
            }
            Op::Lookups(keys) => {
                write!(f, "Lookups({:?})", keys.iter().map(|key| runs(key)).collect::<Vec<_>>())
            }
        }
    }
}

/// Keys that begin one another, share long beginnings, hold zeros, or are nothing at all.
pub(super) fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(0xfe), Just(0xff)];
    let short = proptest::collection::vec(byte.clone(), 0..7);
    let tail = proptest::collection::vec(byte, 0..6);
    prop_oneof![
        3 => short,
        2 => (0u64..600).prop_map(|n| n.to_be_bytes().to_vec()),
        1 => (0u64..40, 0u8..4).prop_map(|(n, kind)| [&n.to_be_bytes()[..], &[kind]].concat()),
        2 => (prop_oneof![Just(7usize), Just(8), Just(9), Just(12), Just(13), Just(40), Just(500)], tail)
            .prop_map(|(len, tail)| [&vec![b'p'; len][..], &tail[..]].concat()),
    ]
}

pub(super) fn row_len() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0usize..24, 2 => 60usize..130, 1 => 300usize..1390, 1 => 1390usize..1392,
        1 => prop_oneof![1_392usize..3_000, 3_000usize..20_000]]
}

pub(super) fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        1 => Just(Bound::Unbounded),
        3 => key().prop_map(Bound::Included),
        3 => key().prop_map(Bound::Excluded),
    ]
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (key(), row_len()).prop_map(|(key, row)| Op::Insert(key, row)),
        3 => (key(), row_len()).prop_map(|(key, row)| Op::Update(key, row)),
        1 => key().prop_map(Op::Patch),
        3 => key().prop_map(Op::Remove),
        2 => key().prop_map(Op::Split),
        2 => any::<usize>().prop_map(Op::Append),
        3 => (key(), any::<u8>(), row_len()).prop_map(|(key, step, row)| Op::Grow(key, step, row)),
        1 => (key(), key()).prop_map(|(a, b)| Op::Clear(a, b)),
        2 => (bound(), bound(), proptest::collection::vec(any::<bool>(), 1..20))
            .prop_map(|(lower, upper, sides)| Op::Range(lower, upper, sides)),
        1 => proptest::collection::vec(key(), 0..40).prop_map(Op::Lookups),
    ]
}
