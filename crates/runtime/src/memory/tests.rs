//! Tests of `memory`.

use super::*;

#[test]
fn chunks_are_aligned_zeroed_and_writable_to_their_ends() {
    let chunks = HugeChunks::default();
    for (bytes, align) in [
        (1, 1),
        (4096, 4096),
        (64 << 10, 64 << 10),
        (HUGE_PAGE_BYTES, 64),
        (3 * HUGE_PAGE_BYTES, HUGE_PAGE_BYTES),
        (100_000, 1 << 24),
    ] {
        let chunk = chunks.allocate(bytes, align, Some(0)).expect("memory");
        assert!(chunk.addr().get().is_multiple_of(align));
        if bytes.is_multiple_of(HUGE_PAGE_BYTES) {
            assert!(chunk.addr().get().is_multiple_of(HUGE_PAGE_BYTES));
        }
        // SAFETY: the chunk is ours, `bytes` long and zeroed.
        let content = unsafe { std::slice::from_raw_parts_mut(chunk.as_ptr(), bytes) };
        assert!(content.iter().all(|&byte| byte == 0));
        content.fill(0xA5);
        assert_eq!((content[0], content[bytes - 1]), (0xA5, 0xA5));
        // SAFETY: allocated above with the same size, not used any more.
        unsafe { chunks.free(chunk, bytes) };
    }
}

#[test]
fn chunks_do_not_overlap() {
    let chunks = HugeChunks::new(MemoryOptions::plain());
    let bytes = 128 << 10;
    let mut starts: Vec<NonNull<u8>> =
        (0..20).map(|_| chunks.allocate(bytes, 64 << 10, None).expect("memory")).collect();
    starts.sort();
    assert!(starts.windows(2).all(|pair| pair[0].addr().get() + bytes <= pair[1].addr().get()));
    for chunk in starts {
        // SAFETY: allocated above with the same size, never used.
        unsafe { chunks.free(chunk, bytes) };
    }
    assert_eq!(chunks.warnings(), []);
    assert_eq!(chunks.options(), MemoryOptions { huge_pages: false, bind_to_node: false });
}

#[test]
fn what_is_freed_and_what_alignment_cuts_off_goes_back() {
    let chunks = HugeChunks::new(MemoryOptions::plain());
    let gib = 1usize << 30;
    // Twice the 128 TiB of addresses a process has: keeping half of a chunk or its slack would run out of them.
    for round in 0..150_000 {
        let chunk = chunks.allocate(gib, gib, None).unwrap_or_else(|error| panic!("round {round}: {error}"));
        // SAFETY: allocated above with the same size, never used.
        unsafe { chunks.free(chunk, gib) };
    }
}

#[test]
fn senseless_sizes_are_errors() {
    let chunks = HugeChunks::default();
    let text = |bytes, align| chunks.allocate(bytes, align, None).expect_err("refused").to_string();
    assert!(text(0, 8).contains("zero bytes"));
    assert!(text(8, 0).contains("power of two"));
    assert!(text(8, 48).contains("48 bytes"));
    assert!(text(usize::MAX, 8).contains("exceeds the address space"));
    assert!(text(usize::MAX / 2, 1 << 40).contains("exceeds the address space"));
    assert!(text(isize::MAX as usize - (1 << 20), 4096).contains("raise the memory limit"));
}

#[test]
fn a_refused_node_is_one_warning_and_plain_memory() {
    let chunks = HugeChunks::default();
    for node in [NODE_COUNT_MAX, usize::MAX, 1_000_000] {
        let chunk = chunks.allocate(4096, 4096, Some(node)).expect("memory all the same");
        // SAFETY: the chunk is ours and 4096 bytes long.
        unsafe { chunk.as_ptr().write(1) };
        // SAFETY: allocated above with the same size, not used any more.
        unsafe { chunks.free(chunk, 4096) };
    }
    let warnings = chunks.warnings();
    let [warning] = warnings.as_slice() else { panic!("one warning per kind, not {warnings:?}") };
    assert!(warning.to_string().contains("near node 1024"), "{warning}");

    let switched_off = HugeChunks::new(MemoryOptions::plain());
    let chunk = switched_off.allocate(4096, 4096, Some(NODE_COUNT_MAX)).expect("memory");
    // SAFETY: allocated above with the same size, never used.
    unsafe { switched_off.free(chunk, 4096) };
    assert_eq!(switched_off.warnings(), [], "a wish that is switched off is not made");
}
