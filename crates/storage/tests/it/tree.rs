//! Limits, errors and positions.

use atrapos_storage::{
    BulkError, BulkLoader, HeapMemory, InsertError, Key, KeyBuf, MAX_KEY_BYTES, MAX_ROW_BYTES, Position,
    Tree, TreeConfig,
};
use std::sync::Arc;

fn tree() -> Tree {
    Tree::new(TreeConfig::default(), Arc::new(HeapMemory))
}

#[test]
fn an_empty_tree_answers_everything() {
    let mut tree = tree();
    assert_eq!((tree.len(), tree.height(), tree.is_empty()), (0, 1, true));
    assert_eq!(tree.get(b"a"), None);
    assert!(!tree.remove(b"a"));
    assert_eq!(tree.update(b"a", b"", 1), Ok(false));
    assert!(tree.get_mut(b"a").is_none());
    assert_eq!((tree.first_key(), tree.last_key(), tree.key_at(0), tree.rank(b"a")), (None, None, None, 0));
    assert_eq!(tree.iter().count() + tree.iter().rev().count(), 0);
    assert_eq!(tree.bytes().pages + tree.bytes().chunks, 0);
    let (right, _) = tree.split_off(b"a").unwrap();
    assert!(right.is_empty());
    tree.append(right).unwrap();
    assert_eq!(tree.check().unwrap().rows, 0);
}

#[test]
fn limits_are_errors_that_change_nothing() {
    let mut tree = tree();
    tree.insert(b"a", b"1", 1).unwrap();
    let max = MAX_ROW_BYTES;
    assert_eq!(max, 1_048_576);
    assert_eq!(tree.insert(b"a", b"2", 2), Err(InsertError::Duplicate(KeyBuf::from_slice(b"a"))));
    let too_large = Err(InsertError::RowTooLarge { bytes: max + 1, max });
    assert_eq!(tree.insert(b"b", &vec![0; max + 1], 2), too_large);
    assert_eq!(tree.update(b"a", &vec![0; max + 1], 2).err(), too_large.err());
    let bytes = MAX_KEY_BYTES + 1;
    let too_large = Err(InsertError::KeyTooLarge { bytes, max: MAX_KEY_BYTES });
    assert_eq!(tree.insert(&vec![0; bytes], b"", 2), too_large);
    assert_eq!(tree.get(&vec![0; bytes]), None);
    assert_eq!(tree.len(), 1);
    assert_eq!(tree.get(b"a").map(|row| row.bytes), Some(&b"1"[..]));
    tree.insert(&[0xff; MAX_KEY_BYTES], &vec![0; max], 2).unwrap();
    tree.insert(&[0; MAX_KEY_BYTES], &vec![0; max], 2).unwrap();
    tree.check().unwrap();
}

#[test]
fn every_page_size_takes_a_third_of_a_page_with_the_longest_keys() {
    for expected in [10, 400, 5_000] {
        let config = TreeConfig::for_rows_of(expected);
        let mut tree = Tree::new(config, Arc::new(HeapMemory));
        let max = config.leaf_row_bytes();
        assert!(max * 3 >= config.page_bytes());
        let count = if cfg!(miri) { 12u32 } else { 200 };
        for i in 0..count {
            // Long keys that share little or nearly all, full rows and empty ones, in no order.
            let mut key = vec![(i % 3) as u8; MAX_KEY_BYTES - 4];
            key.extend((i * 7919 % 1000).to_be_bytes());
            let row = vec![i as u8; if i % 4 == 0 { 0 } else { max - (i as usize % 2) }];
            tree.insert(&key, &row, u64::from(i)).unwrap();
            tree.check().unwrap();
        }
        assert_eq!(tree.len(), u64::from(count));
    }
}

#[test]
fn large_pages_find_everything_among_many_small_rows() {
    // Inner nodes of large pages have more children than sixteen vectors of heads.
    for expected in [400, 5_000] {
        let config = TreeConfig::for_rows_of(expected);
        let count = if cfg!(miri) { 60u64 } else { 60_000 };
        // Rows of a size that makes leaves many. Every third number is loaded, the next one inserted in no order.
        let row = |id: u64| vec![id as u8; config.page_bytes() / 40];
        let rows = (0..count).map(|i| ((i * 3).encode(), row(i), i));
        let mut tree = Tree::bulk_load(config, Arc::new(HeapMemory), rows, 1.0).unwrap();
        let summary = tree.check().unwrap();
        assert!(cfg!(miri) || summary.leaves / summary.inner_nodes > 256, "{summary:?}");
        let found = |tree: &Tree| (0..count * 3).map(|id| tree.contains(&id.encode())).collect::<Vec<_>>();
        assert!(found(&tree).iter().enumerate().all(|(id, found)| *found == (id % 3 == 0)));
        for i in 0..count / 4 {
            let id = i * 7_919 % count;
            tree.insert(&(id * 3 + 1).encode(), &row(id), id).unwrap();
        }
        tree.check().unwrap();
        let inserted: std::collections::BTreeSet<u64> =
            (0..count / 4).map(|i| i * 7_919 % count * 3 + 1).collect();
        for (id, found) in found(&tree).into_iter().enumerate() {
            assert_eq!(found, id % 3 == 0 || inserted.contains(&(id as u64)), "{id}");
        }
        for id in 0..count * 3 {
            tree.remove(&id.encode());
        }
        tree.check().unwrap();
        assert!(tree.is_empty());
    }
}

#[test]
fn keys_outside_the_prefix_do_not_scatter() {
    // A leaf full of keys with a long common beginning, and then keys without it, in the order that hurts.
    let mut tree = tree();
    let count = if cfg!(miri) { 20u64 } else { 300 };
    for i in 0..count {
        let mut key = vec![b'p'; 400];
        key.extend(i.encode().iter());
        tree.insert(&key, &[0; 40], i).unwrap();
    }
    for i in (0..count).rev() {
        tree.insert(&[b"z", &i.encode()[..]].concat(), &[0; 40], i).unwrap();
    }
    let summary = tree.check().unwrap();
    assert!(summary.leaves as u64 <= count / 8 + 3, "{summary:?}");
}

#[test]
fn positions_serve_until_something_moves() {
    let mut tree = tree();
    for id in 0u64..100 {
        tree.insert(&id.encode(), &id.to_le_bytes(), id).unwrap();
    }
    let key = 50u64.encode();
    let position = tree.locate(&key);
    assert!(position.is_found());
    tree.row_at_mut(position, &key).unwrap().bytes_mut()[0] = 99;
    assert_eq!(tree.row_at(position, &key).unwrap().bytes[0], 99);
    // A longer row in the same place does not move the entry, a removed neighbour does.
    tree.update(&key, &[1; 12], 7).unwrap();
    assert_eq!(tree.row_at(position, &key).unwrap().bytes, &[1; 12]);
    tree.remove(&49u64.encode());
    assert_eq!(tree.row_at(position, &key).unwrap().bytes, &[1; 12]);
    let absent = tree.locate(&1_000u64.encode());
    assert!(!absent.is_found());
    tree.insert(&1_000u64.encode(), b"now", 1).unwrap();
    assert_eq!(tree.row_at(absent, &1_000u64.encode()).unwrap().bytes, b"now");
    assert_eq!(tree.row_at(Position::unknown(), &1_000u64.encode()).unwrap().bytes, b"now");
}

#[test]
fn loading_names_the_row_that_is_wrong() {
    let mut loader = BulkLoader::new(TreeConfig::default(), Arc::new(HeapMemory), 1.0);
    for id in [1u64, 5, 9] {
        loader.push(&id.encode(), b"row", id).unwrap();
    }
    let error = loader.push(&7u64.encode(), b"row", 7).unwrap_err();
    assert_eq!(error, BulkError::OutOfOrder { key: 7u64.encode(), previous: 9u64.encode() });
    assert!(error.to_string().contains("0x0000000000000007 follows 0x0000000000000009"), "{error}");
    assert_eq!(loader.push(&9u64.encode(), b"row", 7), Err(BulkError::Duplicate(9u64.encode())));
    assert!(matches!(
        loader.push(&10u64.encode(), &vec![0; MAX_ROW_BYTES + 1], 7),
        Err(BulkError::RowTooLarge { bytes: 1_048_577, max: MAX_ROW_BYTES, .. })
    ));
    assert!(matches!(loader.push(&[0xff; 513], b"", 7), Err(BulkError::KeyTooLarge { bytes: 513, .. })));
    loader.push(&10u64.encode(), b"row", 10).unwrap();
    let tree = loader.finish().unwrap();
    assert_eq!(tree.iter().map(|entry| entry.version()).collect::<Vec<_>>(), [1, 5, 9, 10]);
}

#[test]
fn a_tree_may_move_to_another_thread() {
    fn movable<T: Send + Sync>() {}
    movable::<Tree>();
    movable::<Position>();
    movable::<atrapos_storage::Probe<'static>>();
    movable::<atrapos_storage::Range<'static>>();
}

/// Ten runs of rows, each in key order, that come in turns, as the orders of ten districts do.
#[test]
fn runs_that_come_in_turns_fill_leaves_and_lose_nothing() {
    let mut tree = tree();
    let mut model = std::collections::BTreeMap::new();
    let mut version = 0;
    let key = |run: u8, at: u32, line: u8| [&[0, 1, run][..], &at.to_be_bytes(), &[line]].concat();
    for run in 0..10 {
        // Each run begins with a row that comes long before its others.
        model.insert(key(run, 0, 0), vec![run; 40]);
        tree.insert(&key(run, 0, 0), &[run; 40], 0).unwrap();
    }
    let rounds = if cfg!(miri) { 30 } else { 700 };
    for at in 1..=rounds {
        for run in (0..10u8).map(|run| (run * 7) % 10) {
            for line in 0..1 + ((at + u32::from(run)) % 6) as u8 {
                let row = vec![line; 30 + usize::from(line)];
                version += 1;
                tree.insert(&key(run, at, line), &row, version).unwrap();
                assert!(tree.insert(&key(run, at, line), &row, version).is_err());
                model.insert(key(run, at, line), row);
            }
            // Now and then a row goes, comes again, or gets longer.
            if at % 16 == 3 {
                assert!(tree.remove(&key(run, at, 0)));
                model.remove(&key(run, at, 0));
            } else if at % 16 == 7 {
                assert_eq!(tree.update(&key(run, at, 0), &[9; 90], version), Ok(true));
                model.insert(key(run, at, 0), vec![9; 90]);
            }
        }
        if at % 100 == 0 {
            tree.check().unwrap();
        }
    }
    assert_eq!(tree.check().unwrap().rows, model.len() as u64);
    let found: Vec<_> = tree.iter().map(|entry| (entry.key().to_vec(), entry.bytes().to_vec())).collect();
    assert_eq!(found, Vec::from_iter(model.clone()));
    assert!(model.keys().all(|key| tree.contains(key)));
    let bytes = tree.bytes();
    // Rows that go or get longer interrupt the runs.
    assert!(cfg!(miri) || bytes.used * 2 >= bytes.page_bytes, "leaves are more than half full: {bytes:?}");
}
