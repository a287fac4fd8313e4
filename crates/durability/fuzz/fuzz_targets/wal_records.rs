//! Records and changes of arbitrary bytes: decoded or refused, never a panic.
#![no_main]

use atrapos_durability::wal::{Changes, Op, Records};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut row = [0; 256];
    for record in Records::new(bytes).flatten() {
        let Ok((_, changes)) = record.split() else { continue };
        for change in Changes::new(changes).flatten() {
            if let Op::Patch(patch) = change.op {
                let _ = patch.apply(&mut row);
            }
        }
    }
});
