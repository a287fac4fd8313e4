//! Random and mutated segments: never a panic, never a frame that was not written.

use std::path::Path;
use std::sync::Arc;

use atrapos_durability::file::FileSystem;
use atrapos_durability::wal::segment_path;
use proptest::prelude::*;

use super::{DIR, FRAMES, INCARNATION, STREAM, database, read_all, write_all};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_mutated_stream_is_a_prefix_or_refused(
        segment in 1_u32..5,
        edits in prop::collection::vec((any::<u16>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<u16>()),
        moved in prop::option::of((any::<u16>(), any::<u16>(), any::<u8>())),
    ) {
        let fs = database();
        let (_, writer, _) = write_all(&(Arc::new(fs.clone()) as Arc<dyn FileSystem>));
        let segments = writer.unwrap().segments().len();
        let path = segment_path(Path::new(DIR), INCARNATION, STREAM, segment);
        let mut original = Vec::new();
        fs.corrupt(&path, |bytes| {
            original.clone_from(bytes);
            for (place, byte) in &edits {
                let place = usize::from(*place) % bytes.len();
                bytes[place] = *byte;
            }
            if let Some((from, to, len)) = moved {
                let (from, to) = (usize::from(from) % bytes.len(), usize::from(to) % bytes.len());
                let len = usize::from(len).min(bytes.len() - from.max(to));
                bytes.copy_within(from..from + len, to);
            }
            if let Some(cut) = cut {
                bytes.truncate(usize::from(cut));
            }
        }).unwrap();
        // `read_all` compares every frame it gets with what was written.
        match read_all(&fs) {
            Ok(frames) => prop_assert!(frames >= FRAMES - 1 || segment as usize == segments, "{frames} frames"),
            Err(error) => prop_assert!(error.to_string().contains(".wal"), "{error}"),
        }
    }

    #[test]
    fn random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        let fs = database();
        let _ = write_all(&(Arc::new(fs.clone()) as Arc<dyn FileSystem>));
        let path = segment_path(Path::new(DIR), INCARNATION, STREAM, 1);
        fs.corrupt(&path, |old| *old = bytes).unwrap();
        prop_assert!(read_all(&fs).is_err());
    }
}
