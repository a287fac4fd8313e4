//! The bytes of definitions: they come back, there is one encoding of each, and any bytes are read or refused.

use atrapos_catalog::{Definitions, MAX_ENCODED_BYTES, TreeDef};
use proptest::prelude::*;

use crate::support::{any_definitions, bank, config};

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn definitions_come_back(definitions in any_definitions()) {
        prop_assert_eq!(definitions.check(), Ok(()));
        let bytes = definitions.encode().expect("sound");
        prop_assert_eq!(Definitions::decode(&bytes), Ok(definitions.clone()));
        prop_assert_eq!(definitions.difference(&definitions), None);
        for tree in &definitions.trees {
            prop_assert_eq!(TreeDef::decode(&tree.encode()), Ok(tree.clone()));
        }
    }

    #[test]
    fn changed_bytes_give_other_definitions_or_an_error(
        definitions in any_definitions(),
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = definitions.encode().expect("sound");
        let at = at.index(bytes.len());
        if cut {
            bytes.truncate(at);
            prop_assert!(Definitions::decode(&bytes).is_err());
        } else {
            bytes[at] = byte;
            // What is read is written again as the same bytes: there is one encoding of everything.
            if let Ok(found) = Definitions::decode(&bytes) {
                prop_assert_eq!(found.encode().expect("sound"), bytes);
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Definitions::decode(&bytes);
        bytes.insert(0, 1);
        let _ = Definitions::decode(&bytes);
        let _ = TreeDef::decode(&bytes);
    }
}

#[test]
fn the_encoding_of_version_1_stays_as_it_is() {
    let mut definitions = bank();
    definitions.trees.push(TreeDef::Dropped);
    let expected: Vec<u8> = [
        &[1, 3][..],
        // accounts
        &[1, 8],
        b"accounts",
        &[4],
        b"bank",
        &[0, 3, 6],
        b"number",
        &[1, 8, 0, 0, 5],
        b"owner",
        &[1, 8, 0, 0, 7],
        b"balance",
        &[2, 8, 0, 0, 1, 1, 0, 0, 2, 1, 0x80, 2, 0xc0, 1],
        // accounts_by_owner
        &[2, 17],
        b"accounts_by_owner",
        &[4],
        b"bank",
        &[0, 0, 2, 0, 1, 0, 0, 0, 0, 0],
        // dropped
        &[0],
        // the foreign key
        &[1, 0, 0, 1, 1, 1, 0],
    ]
    .concat();
    assert_eq!(definitions.encode().expect("sound"), expected);
}

#[test]
fn lengths_are_believed_only_as_far_as_there_are_bytes() {
    // A count of everything, and then nothing.
    for kind in [1, 2] {
        for beginning in [&[1, 0xff, 0xff, 3][..], &[1, 1, kind, 1, b'a', 1, b'a', 0, 0xff, 0x1f]] {
            let error = Definitions::decode(beginning).unwrap_err();
            assert!(error.to_string().contains("bytes too early"), "{error}");
        }
    }
    let error = Definitions::decode(&vec![1; MAX_ENCODED_BYTES + 1]).unwrap_err();
    assert!(error.to_string().contains("longer than any"), "{error}");
    let error = Definitions::decode(&[2, 0, 0]).unwrap_err().to_string();
    assert!(error.contains("version 2 of the definitions is not known"), "{error}");
    let error = Definitions::decode(&[1, 0, 0, 0]).unwrap_err().to_string();
    assert!(error.contains("bytes follow"), "{error}");
}
