//! Records and changes: what is encoded is what is decoded.

use atrapos_durability::wal::{
    Changes, Epoch, Op, Records, push_edit, push_put, push_record, push_remove, push_update,
};
use proptest::prelude::*;

fn row_pair() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    prop_oneof![
        // Few differences, as updates have.
        (
            prop::collection::vec(any::<u8>(), 1..400),
            prop::collection::vec((any::<usize>(), any::<u8>()), 0..12)
        )
            .prop_map(|(old, edits)| {
                let mut new = old.clone();
                for (place, byte) in edits {
                    let place = place % new.len();
                    new[place] = byte;
                }
                (old, new)
            }),
        (prop::collection::vec(any::<u8>(), 0..100), prop::collection::vec(any::<u8>(), 0..100)),
        // More ranges than a patch can have, and rows longer than its offsets reach.
        (1_usize..70_000).prop_map(|len| {
            let new = (0..len).map(|byte| u8::from(byte % 16 == 0)).collect();
            (vec![0; len], new)
        }),
    ]
}

/// Keys, among them many that are short enough to be encoded as one piece.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![prop::collection::vec(any::<u8>(), 0..20), prop::collection::vec(any::<u8>(), 0..300)]
}

proptest! {
    #[test]
    fn an_update_gives_the_new_row(
        (old, new) in row_pair(), table: u16, version: u64,
        key in key(),
    ) {
        let (mut update, mut put) = (Vec::new(), Vec::new());
        push_update(&mut update, table, &key, version, &old, &new);
        push_put(&mut put, table, &key, version, &new);
        prop_assert!(update.len() <= put.len());
        let change = Changes::new(&update).next().unwrap().unwrap();
        prop_assert_eq!((change.table, change.key, change.version), (table, &key[..], version));
        let mut row = old;
        match change.op {
            Op::Put(bytes) => row = bytes.to_vec(),
            Op::Patch(patch) => patch.apply(&mut row).unwrap(),
            Op::Remove => prop_assert!(false, "an update removes nothing"),
        }
        prop_assert_eq!(row, new);
    }

    #[test]
    fn an_edit_gives_the_new_row(
        row in prop::collection::vec(any::<u8>(), 1..200), long: bool, padded: bool, key in key(),
        writes in prop::collection::vec((any::<usize>(), 0..20_usize, 0..4_u8), 0..300),
    ) {
        let mut old = row;
        old.resize(old.len() + if long { 70_000 } else { 0 }, 1);
        let (mut new, mut overwritten) = (old.clone(), Vec::new());
        for (at, len, value) in writes {
            let offset = at % new.len();
            let end = (offset + len).min(new.len());
            let mut bytes = new[offset..end].to_vec();
            bytes.resize(bytes.len().max(if padded { 8 } else { 0 }), 0);
            overwritten.push((offset..end, bytes));
            new[offset..end].fill(value);
        }
        let (mut edit, mut put) = (Vec::new(), Vec::new());
        let places = overwritten.iter().rev().map(|(place, old)| (place.clone(), &old[..]));
        push_edit(&mut edit, 3, &key, 9, places, &new);
        push_put(&mut put, 3, &key, 9, &new);
        prop_assert!(edit.len() <= put.len());
        let change = Changes::new(&edit).next().unwrap().unwrap();
        prop_assert_eq!((change.table, change.key, change.version), (3, &key[..], 9));
        match change.op {
            Op::Put(bytes) => old = bytes.to_vec(),
            Op::Patch(patch) => patch.apply(&mut old).unwrap(),
            Op::Remove => prop_assert!(false, "an edit removes nothing"),
        }
        prop_assert_eq!(old, new);
    }

    #[test]
    fn records_come_back_in_order(
        records in prop::collection::vec((1_u64.., prop::collection::vec((any::<u16>(), 0_usize..200), 0..5)), 0..6),
    ) {
        let mut payload = Vec::new();
        for (epoch, removed) in &records {
            let mut changes = Vec::new();
            for (table, key) in removed {
                push_remove(&mut changes, *table, &vec![7; *key], *epoch);
            }
            push_record(&mut payload, Epoch(*epoch), &changes);
        }
        let mut found = Vec::new();
        for record in Records::new(&payload) {
            let record = record.unwrap();
            let changes = Changes::new(record.split().unwrap().1).map(|change| {
                let change = change.unwrap();
                assert_eq!(change.op, Op::Remove);
                (change.table, change.key.len())
            });
            found.push((record.epoch.0, changes.collect::<Vec<_>>()));
        }
        prop_assert_eq!(found, records);
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Records::new(&bytes).count() <= bytes.len());
        let mut row = [0; 64];
        for change in Changes::new(&bytes).flatten() {
            if let Op::Patch(patch) = change.op {
                let before = row;
                if patch.apply(&mut row).is_err() {
                    prop_assert_eq!(row, before);
                }
            }
        }
    }
}

#[test]
fn a_small_update_is_a_small_patch() {
    let (old, mut new) = ([0; 100], [0; 100]);
    new[10..14].fill(1);
    new[17] = 1;
    new[90] = 1;
    let mut out = Vec::new();
    push_update(&mut out, 1, b"key", 2, &old, &new);
    // The gap of three bytes is bridged, the long one is not.
    assert_eq!(out.len(), 1 + 2 + 1 + 3 + 8 + 1 + (4 + 8) + (4 + 1));
}

#[test]
fn an_update_of_a_long_row_is_a_small_patch() {
    for len in [65_535_usize, 65_536, 1 << 20] {
        let (old, mut new) = (vec![7; len], vec![7; len]);
        new[10] = 1;
        new[len - 5..].fill(2);
        let mut out = Vec::new();
        push_update(&mut out, 1, b"key", 2, &old, &new);
        let range = if len > 65_535 { 8 } else { 4 };
        assert_eq!(out.len(), 1 + 2 + 1 + 3 + 8 + 1 + (range + 1) + (range + 5));
        let Op::Patch(patch) = Changes::new(&out).next().unwrap().unwrap().op else { panic!("not a patch") };
        let mut row = old.clone();
        patch.apply(&mut row).unwrap();
        assert!(row == new);
        assert!(patch.apply(&mut row[1..]).is_err());
        for cut in 1..out.len() {
            assert!(Changes::new(&out[..cut]).next().unwrap().is_err(), "cut to {cut}");
        }
        // One that changes everywhere is logged whole.
        let other: Vec<u8> = (0..len).map(|at| at as u8).collect();
        out.clear();
        push_update(&mut out, 1, b"key", 2, &old, &other);
        assert!(matches!(Changes::new(&out).next(), Some(Ok(change)) if change.op == Op::Put(&other)));
    }
}

#[test]
fn a_patch_for_another_row_is_refused() {
    let (old, mut new) = ([0; 100], [0; 100]);
    new[99] = 1;
    let mut out = Vec::new();
    push_update(&mut out, 1, b"key", 2, &old, &new);
    let Op::Patch(patch) = Changes::new(&out).next().unwrap().unwrap().op else { panic!("not a patch") };
    let error = patch.apply(&mut [0; 99]).unwrap_err();
    assert!(error.to_string().contains("past the end of the row"), "{error}");
}
