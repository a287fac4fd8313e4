//! Tests of the tree against an ordered map, by one thread, and of threads that change it at once.

use std::collections::BTreeMap;
use std::ptr::NonNull;

use crossbeam_epoch::{Collector, Guard};
use proptest::prelude::*;

use super::node::CAPACITY;
use super::record::{Header, LOCKED, OBSOLETE, Record, SEQUENCE};
use super::{Found, Insertion, Tree, retire_record};

fn insert(tree: &Tree, key: &[u8], guard: &Guard) -> bool {
    match tree.insert(key, || Record::allocate(key, 8, SEQUENCE), guard) {
        Insertion::New { record, .. } => {
            assert!(record.lock_any() & OBSOLETE == 0);
            record.overwrite(&key[..key.len().min(8)]);
            record.unlock(SEQUENCE);
            true
        }
        Insertion::Existing(record) => {
            assert_eq!(record.key(), key);
            false
        }
    }
}

fn remove(tree: &Tree, key: &[u8], guard: &Guard) -> bool {
    loop {
        let Found::Record(record) = tree.find(key, guard) else { return false };
        let tid = record.lock_any();
        if tid & OBSOLETE != 0 {
            record.unlock(tid);
            continue;
        }
        tree.remove(record, guard);
        record.unlock(tid | OBSOLETE);
        // SAFETY: this thread had it locked, and has taken it out.
        unsafe { retire_record(record, guard) };
        return true;
    }
}

fn key_of(record: *mut Header, _guard: &Guard) -> &[u8] {
    let record = NonNull::new(record).expect("pages have no null records");
    // SAFETY: it was in the tree after the guard was made.
    unsafe { Record::from_pointer(record) }.key()
}

fn forward(tree: &Tree, from: &[u8], to: Option<&[u8]>, guard: &Guard) -> Vec<Vec<u8>> {
    let (mut keys, mut records, mut from) = (Vec::new(), Vec::new(), from.to_vec());
    loop {
        let page = tree.page_from(&from, &mut records, guard);
        let found = records.iter().map(|record| key_of(*record, guard).to_vec());
        keys.extend(found.filter(|key| to.is_none_or(|to| &key[..] < to)));
        match page.edge {
            Some(edge) if to.is_none_or(|to| edge < to) => from = edge.to_vec(),
            _ => return keys,
        }
    }
}

fn backward(tree: &Tree, from: &[u8], to: Option<&[u8]>, guard: &Guard) -> Vec<Vec<u8>> {
    let (mut keys, mut records, mut to) = (Vec::new(), Vec::new(), to.map(<[u8]>::to_vec));
    loop {
        let page = tree.page_before(to.as_deref(), &mut records, guard);
        let found = records.iter().map(|record| key_of(*record, guard).to_vec());
        keys.extend(found.filter(|key| &key[..] >= from));
        match page.edge {
            Some(edge) if edge > from => to = Some(edge.to_vec()),
            _ => return keys,
        }
    }
}

/// Keys of many lengths that share prefixes, contain zeros, and are prefixes of each other.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(0..3_u8, 0..6),
        4 => (0..400_u32).prop_map(|number| number.to_be_bytes().to_vec()),
        2 => (0..40_u8, 0..40_u8).prop_map(|(a, b)| [&[7; 20][..], &[a], &[9; 9], &[b]].concat()),
        1 => (0..8_usize, 0..8_u8).prop_map(|(len, last)| [&vec![5; 100 * len][..], &[last]].concat()),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>),
    /// A run of keys in order, or in the opposite one.
    Run(u32, u32, bool),
    Remove(Vec<u8>),
    /// Removes what is between.
    Clear(Vec<u8>, Vec<u8>),
    Find(Vec<u8>),
    Scan(Vec<u8>, Option<Vec<u8>>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => key().prop_map(Step::Insert),
        2 => (0..400_u32, 1..150_u32, any::<bool>()).prop_map(|(from, count, down)| Step::Run(from, count, down)),
        3 => key().prop_map(Step::Remove),
        1 => (key(), key()).prop_map(|(from, to)| Step::Clear(from, to)),
        2 => key().prop_map(Step::Find),
        2 => (key(), prop::option::of(key())).prop_map(|(from, to)| Step::Scan(from, to)),
    ]
}

fn run(steps: Vec<Step>) {
    let (tree, collector) = (Tree::new(), Collector::new());
    let handle = collector.register();
    let mut model = BTreeMap::new();
    for step in steps {
        let guard = &handle.pin();
        match step {
            Step::Insert(key) => {
                assert_eq!(insert(&tree, &key, guard), model.insert(key, ()).is_none());
            }
            Step::Run(from, count, down) => {
                for at in 0..count {
                    let number = if down { from + count - at } else { from + at };
                    let key = number.to_be_bytes().to_vec();
                    assert_eq!(insert(&tree, &key, guard), model.insert(key, ()).is_none());
                }
            }
            Step::Remove(key) => assert_eq!(remove(&tree, &key, guard), model.remove(&key).is_some()),
            Step::Clear(from, to) => {
                let gone: Vec<_> = model.extract_if(from.., |key, ()| *key < to).collect();
                for (key, ()) in gone {
                    assert!(remove(&tree, &key, guard));
                }
            }
            Step::Find(key) => {
                let found = matches!(tree.find(&key, guard), Found::Record(record) if record.key() == key);
                assert_eq!(found, model.contains_key(&key));
            }
            Step::Scan(from, to) => {
                let keys = model.keys().filter(|key| **key >= from && to.as_ref().is_none_or(|to| *key < to));
                let mut keys: Vec<Vec<u8>> = keys.cloned().collect();
                assert_eq!(forward(&tree, &from, to.as_deref(), guard), keys);
                keys.reverse();
                assert_eq!(backward(&tree, &from, to.as_deref(), guard), keys);
            }
        }
    }
    let guard = &handle.pin();
    tree.check(guard).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(forward(&tree, b"", None, guard), model.into_keys().collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 200 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_tree_is_an_ordered_map(steps in prop::collection::vec(step(), 1..if cfg!(miri) { 12 } else { 120 })) {
        run(steps);
    }
}

#[test]
fn keys_that_arrive_in_order_fill_the_leaves() {
    let (tree, collector) = (Tree::new(), Collector::new());
    let handle = collector.register();
    let keys = if cfg!(miri) { 300 } else { 20_000_u32 };
    // Ten runs that grow in turns, as the orders of ten districts do.
    for number in 0..keys {
        let (run, place) = (number % 10, number / 10);
        let key = [run.to_be_bytes(), place.to_be_bytes()].concat();
        assert!(insert(&tree, &key, &handle.pin()));
    }
    let guard = &handle.pin();
    tree.check(guard).unwrap_or_else(|wrong| panic!("{wrong}"));
    let leaves = u64::from(keys) / CAPACITY as u64;
    assert!(tree.memory() < (leaves + 30) * 1500, "{} bytes for {leaves} full leaves", tree.memory());
}

#[test]
fn an_emptied_tree_gives_its_nodes_back() {
    let (tree, collector) = (Tree::new(), Collector::new());
    let handle = collector.register();
    let empty = tree.memory();
    let keys = if cfg!(miri) { 200 } else { 30_000_u32 };
    for down in [false, true] {
        for number in 0..keys {
            assert!(insert(&tree, &number.to_be_bytes(), &handle.pin()));
        }
        for number in 0..keys {
            let number = if down { keys - 1 - number } else { number };
            assert!(remove(&tree, &number.to_be_bytes(), &handle.pin()));
        }
        tree.check(&handle.pin()).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!(tree.memory(), empty);
    }
}

#[test]
fn a_queue_stays_small() {
    let (tree, collector) = (Tree::new(), Collector::new());
    let handle = collector.register();
    let (keys, length) = if cfg!(miri) { (300, 100) } else { (100_000_u32, 500) };
    for number in 0..keys {
        assert!(insert(&tree, &number.to_be_bytes(), &handle.pin()));
        if let Some(first) = number.checked_sub(length) {
            assert!(remove(&tree, &first.to_be_bytes(), &handle.pin()));
        }
    }
    tree.check(&handle.pin()).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(tree.memory() < 100_000, "{} bytes", tree.memory());
}

#[test]
fn versions_tell_of_what_comes_and_goes() {
    let (tree, collector) = (Tree::new(), Collector::new());
    let handle = collector.register();
    let guard = &handle.pin();
    let Found::Nothing(leaf, version) = tree.find(b"a", guard) else { panic!("nothing was inserted") };
    assert!(leaf.is_still(version));
    assert!(insert(&tree, b"b", guard) && !leaf.is_still(version));
    let Found::Nothing(leaf, version) = tree.find(b"a", guard) else { panic!("another key was inserted") };
    let Found::Record(old) = tree.find(b"b", guard) else { panic!("it was inserted") };
    let tid = old.lock_any();
    assert_eq!(tid & LOCKED, 0);
    tree.swap(old, Record::allocate(b"b", 100, SEQUENCE), guard);
    old.unlock(tid | OBSOLETE);
    // SAFETY: it was just taken out.
    unsafe { retire_record(old, guard) };
    assert!(leaf.is_still(version), "the key has another record, but was there before");
    assert!(remove(&tree, b"b", guard) && !leaf.is_still(version));
    let Found::Nothing(leaf, version) = tree.find(&[9], guard) else { panic!("it is empty") };
    let mut rights = 0;
    for number in 0..2 * CAPACITY as u32 {
        let key = number.to_be_bytes();
        if let Insertion::New { right: Some(right), .. } =
            tree.insert(&key, || Record::allocate(&key, 0, SEQUENCE), guard)
        {
            rights += 1;
            assert!(right.stable().is_ok());
        }
    }
    assert!(rights > 0 && !leaf.is_still(version));
}

#[test]
fn threads_change_disjoint_keys_at_once() {
    let (tree, collector) = (Tree::new(), Collector::new());
    let (threads, keys, rounds) = if cfg!(miri) { (2, 40, 1) } else { (4, 3_000_u32, 4) };
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (tree, collector) = (&tree, &collector);
            scope.spawn(move || {
                let handle = collector.register();
                crate::planted::with_pauses(u64::from(thread) + 1, || {
                    for round in 0..rounds {
                        let key = |number: u32| (number * threads + thread).to_be_bytes();
                        for number in 0..keys {
                            assert!(insert(tree, &key(number), &handle.pin()));
                        }
                        let guard = &handle.pin();
                        let own = forward(tree, b"", None, guard).into_iter();
                        let own = own.filter(|key| {
                            key[..].try_into().is_ok_and(|key| u32::from_be_bytes(key) % threads == thread)
                        });
                        assert_eq!(own.count(), keys as usize, "nobody else removes them");
                        let own = backward(tree, b"", None, guard).into_iter();
                        let own = own.filter(|key| key[3] % threads as u8 == thread as u8);
                        assert_eq!(own.count(), keys as usize, "nobody else removes them");
                        let last = round + 1 == rounds;
                        for number in (0..keys).filter(|number| !last || number % 2 == 0) {
                            assert!(remove(tree, &key(number), &handle.pin()));
                        }
                    }
                });
            });
        }
    });
    let handle = collector.register();
    let guard = &handle.pin();
    tree.check(guard).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(forward(&tree, b"", None, guard).len() as u32, threads * keys / 2);
}
