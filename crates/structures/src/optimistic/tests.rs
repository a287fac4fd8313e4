//! Histories of threads that use small trees, whose pauses make rare interleavings frequent: sound ones, and with each planted bug.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use atrapos_history::{KeyEvent, KeyHistory, KeyOperation};

use super::together::GROUP;
use super::{Attempt, Independent, Page, Replace, Spin, Tree};
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

/// One operation on a key: inserts prevail in the first half of the steps, removals in the second.
fn operate(tree: &Tree, replace: Replace, step: u64, value: u64, random: &mut u64) -> (u64, KeyOperation) {
    let key = next(random) % KEYS;
    let (insert, remove) = if step < STEPS / 2 { (5, 1) } else { (1, 5) };
    let operation = match next(random) % 10 {
        kind if kind < insert => {
            KeyOperation::Insert(value, repeat(|| tree.try_insert(key, value, &Independent)))
        }
        kind if kind < insert + remove => KeyOperation::Remove(repeat(|| tree.try_remove(key, &Independent))),
        6 => KeyOperation::Update(value, repeat(|| tree.try_update(key, value, replace, &Independent))),
        8 => {
            let mut page = Page::new();
            repeat(|| tree.try_page(key, &mut page, &Independent));
            assert!(page.is_sorted_by(|one, other| one.0 < other.0), "a page is out of order");
            KeyOperation::Read(page.first().filter(|(first, _)| *first == key).map(|(_, value)| *value))
        }
        7 => KeyOperation::Read(repeat(|| tree.try_read(key, &Independent))),
        _ => {
            // The last one of a group waits longest between two steps of its descent.
            let group = std::array::from_fn(|at| if at < LAST { next(random) % KEYS } else { key });
            let accesses: [_; GROUP] = group.each_ref().map(PointAccess::Read);
            KeyOperation::Read(repeat(|| {
                let place = tree.places(&accesses)[LAST]?;
                tree.try_access_at(place, accesses[LAST], replace, &Independent)
            }))
        }
    };
    (key, operation)
}

/// Returns whether the threads' operations on one tree are linearizable, and end without a panic.
fn is_sound(bug: Option<Bug>, replace: Replace, seed: u64) -> bool {
    let (tree, clock) = (Tree::new(), AtomicU64::new(0));
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
        assert!(is_sound(None, Replace::InPlace, seed), "values replaced in place, seed {seed}");
        assert!(is_sound(None, Replace::UnderLatch, seed), "values replaced under latches, seed {seed}");
    }
}

fn must_be_noticed(bug: Bug, replace: Replace) {
    let noticed = (0..TREES).find(|seed| !is_sound(Some(bug), replace, *seed));
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
fn nodes_that_get_empty_are_given_back() {
    let tree = Tree::new();
    for key in 0..10_000 {
        assert!(repeat(|| tree.try_insert(key, key, &Independent)));
    }
    let full = tree.arena.used();
    assert!(full > 10_000 / 63, "{full} nodes have no room for all keys");
    for key in 0..10_000 {
        assert!(repeat(|| tree.try_remove(key, &Independent)));
    }
    // The root is never lowered: one way down is left.
    let (_, height) = tree.root().expect("nobody else uses the tree");
    assert_eq!(tree.arena.used(), height as u64 + 1);
}
