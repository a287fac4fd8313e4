//! Histories of threads that use small trees, whose pauses make rare interleavings frequent: sound ones, and with each planted bug.

use std::borrow::Borrow;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use atrapos_history::{KeyEvent, KeyHistory, KeyOperation};

use super::together::GROUP;
use super::{Attempt, Independent, Keep, Page, Replace, Spin, Strings, Tree, Words};
use crate::planted::{Bug, with};
use crate::structure::PointAccess;

const THREADS: u64 = 3;
/// Operations of each thread on one tree.
const STEPS: u64 = 600;
/// Keys: enough for a root with a few leaves, of which some get empty.
const KEYS: u64 = 160;
/// Trees, each with other seeds, of which at least one has to show a planted bug.
const TREES: u64 = 1_000;
/// Trees that have to be sound without a bug.
const SOUND_TREES: u64 = 60;
/// The last key of a group.
const LAST: usize = GROUP - 1;
/// Attempts after which an operation is said to have no end: a broken tree may send it in circles.
const ATTEMPTS_MAX: u32 = 1_000_000;

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Repeats an attempt until it succeeds.
fn repeat<R>(mut attempt: impl FnMut() -> Attempt<R>) -> R {
    let mut spin = Spin::default();
    for _ in 0..ATTEMPTS_MAX {
        match attempt() {
            Ok(result) => return result,
            Err(_) => spin.wait(),
        }
    }
    panic!("an operation does not end");
}

/// Keys by number.
trait Numbered: Keep {
    fn numbered(number: u64) -> Self::Copied;
}

impl Numbered for Words {
    fn numbered(number: u64) -> u64 {
        number
    }
}

/// Keys of several lengths, some of which are the beginnings of others.
impl Numbered for Strings {
    fn numbered(number: u64) -> Vec<u8> {
        let mut key = format!("{:03}", number / 4).into_bytes();
        key.resize(3 + 6 * (number as usize % 4), b'x');
        key
    }
}

/// One operation on a key: inserts prevail in the first half of the steps, removals in the second.
fn operate<K: Numbered>(
    tree: &Tree<K>,
    replace: Replace,
    step: u64,
    value: u64,
    random: &mut u64,
) -> (u64, KeyOperation) {
    let number = next(random) % KEYS;
    let copied = K::numbered(number);
    let key: &K::Key = copied.borrow();
    let (insert, remove) = if step < STEPS / 2 { (5, 1) } else { (1, 5) };
    let operation = match next(random) % 10 {
        kind if kind < insert => {
            KeyOperation::Insert(value, repeat(|| tree.try_insert(key, value, &Independent)))
        }
        kind if kind < insert + remove => KeyOperation::Remove(repeat(|| tree.try_remove(key, &Independent))),
        6 => KeyOperation::Update(value, repeat(|| tree.try_update(key, value, replace, &Independent))),
        8 => {
            let mut page = Page::<K>::new();
            repeat(|| tree.try_page(key, &mut page, &Independent));
            assert!(page.is_sorted_by(|one, other| one.0 < other.0), "a page is out of order");
            KeyOperation::Read(page.first().filter(|(first, _)| *first == copied).map(|(_, value)| *value))
        }
        7 => KeyOperation::Read(repeat(|| tree.try_read(key, &Independent))),
        _ => {
            // The last one of a group waits longest between two steps of its descent.
            let group: [K::Copied; GROUP] =
                std::array::from_fn(|at| K::numbered(if at < LAST { next(random) % KEYS } else { number }));
            let accesses: [_; GROUP] = group.each_ref().map(|key| PointAccess::Read(key.borrow()));
            KeyOperation::Read(repeat(|| {
                let place = tree.places(&accesses)[LAST]?;
                tree.try_access_at(place, accesses[LAST], replace, &Independent)
            }))
        }
    };
    (number, operation)
}

/// Returns whether the threads' operations on one tree are linearizable, and end without a panic.
fn is_sound<K: Numbered>(bug: Option<Bug>, replace: Replace, seed: u64) -> bool {
    let (tree, clock) = (Tree::<K>::new(), AtomicU64::new(0));
    let run = |thread: u64| {
        let (mut random, mut events) = (seed * THREADS + thread, Vec::new());
        with(bug, next(&mut random), || {
            for step in 0..STEPS {
                let called = clock.fetch_add(1, SeqCst);
                let (key, operation) = operate(&tree, replace, step, thread << 32 | step, &mut random);
                events.push((key, KeyEvent { operation, called, returned: clock.fetch_add(1, SeqCst) }));
            }
        });
        events
    };
    let mut history = KeyHistory::new();
    let all_ended = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().fold(true, |all_ended, thread| match thread.join() {
            Ok(events) => {
                events.into_iter().for_each(|(key, event)| history.add(key, event));
                all_ended
            }
            Err(_) => false,
        })
    });
    all_ended && history.check().is_ok()
}

#[test]
fn histories_without_a_bug_are_linearizable() {
    for seed in 0..SOUND_TREES {
        for replace in [Replace::InPlace, Replace::UnderLatch] {
            assert!(is_sound::<Words>(None, replace, seed), "values replaced {replace:?}, seed {seed}");
            let sound = seed % 3 > 0 || is_sound::<Strings>(None, replace, seed);
            assert!(sound, "of byte strings, values replaced {replace:?}, seed {seed}");
        }
    }
}

fn must_be_noticed(bug: Bug, replace: Replace) {
    must_be_noticed_with::<Words>(bug, replace);
}

fn must_be_noticed_with<K: Numbered>(bug: Bug, replace: Replace) {
    let noticed = (0..TREES).find(|seed| !is_sound::<K>(Some(bug), replace, *seed));
    assert!(noticed.is_some(), "no history of {TREES} trees shows the planted bug {bug:?}");
}

#[test]
fn a_leaf_that_is_not_validated_is_noticed() {
    must_be_noticed(Bug::LeafNotValidated, Replace::UnderLatch);
}

#[test]
fn an_inner_node_that_is_not_validated_is_noticed() {
    must_be_noticed(Bug::InnerNotValidated, Replace::UnderLatch);
}

#[test]
fn a_version_that_is_kept_is_noticed() {
    must_be_noticed(Bug::VersionKept, Replace::UnderLatch);
}

#[test]
fn a_write_in_place_that_is_not_announced_is_noticed() {
    must_be_noticed(Bug::WritesUnannounced, Replace::InPlace);
}

#[test]
fn a_latch_taken_in_any_version_is_noticed() {
    must_be_noticed(Bug::LatchedBlindly, Replace::UnderLatch);
}

#[test]
fn an_inner_node_that_a_group_does_not_validate_is_noticed() {
    must_be_noticed(Bug::GroupInnerNotValidated, Replace::UnderLatch);
}

#[test]
fn a_leaf_that_a_group_does_not_validate_is_noticed() {
    must_be_noticed(Bug::GroupLeafNotValidated, Replace::UnderLatch);
}

#[test]
fn a_separator_with_bytes_of_a_key_is_noticed() {
    must_be_noticed_with::<Strings>(Bug::SeparatorNotCopied, Replace::UnderLatch);
}

#[test]
fn nodes_that_get_empty_are_given_back() {
    let tree = Tree::<Words>::new();
    for key in 0..10_000 {
        assert!(repeat(|| tree.try_insert(&key, key, &Independent)));
    }
    let full = tree.arena.used();
    assert!(full > 10_000 / 63, "{full} nodes have no room for all keys");
    for key in 0..10_000 {
        assert!(repeat(|| tree.try_remove(&key, &Independent)));
    }
    // The root is never lowered: one way down is left.
    let (_, height) = tree.root().expect("nobody else uses the tree");
    assert_eq!(tree.arena.used(), height as u64 + 1);
}

/// Bytes of keys are given back with the keys, and those of separators with the nodes that they separate.
#[test]
fn bytes_of_keys_that_are_gone_are_given_back() {
    let tree = Tree::<Strings>::new();
    for round in 0..3 {
        for number in 0..5_000_u64 {
            let key = (number ^ (round * 0x155)).to_be_bytes();
            assert!(repeat(|| tree.try_insert(&key, number, &Independent)));
        }
        assert!(tree.keys.used() >= 5_000);
        for number in 0..5_000_u64 {
            let key = (number ^ (round * 0x155)).to_be_bytes();
            assert!(repeat(|| tree.try_remove(&key, &Independent)));
        }
        assert_eq!(tree.keys.used(), 0, "round {round}");
    }
}
