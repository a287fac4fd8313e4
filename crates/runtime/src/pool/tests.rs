//! Tests of `pool`.

use super::worker_thread::panic_message;
use super::*;

#[test]
fn pinned_workers_share_only_what_they_are_pinned_to() {
    let with = |cpus: Vec<Option<usize>>, pin: bool| {
        let builder = RuntimeBuilder { cpus: Some(cpus), pin, ..RuntimeBuilder::new(3) };
        builder.is_oversubscribed()
    };
    assert!(!with(vec![Some(0), Some(1), Some(2)], true), "one each, however many this thread may use");
    assert!(with(vec![Some(0), Some(1), Some(0)], true), "two on one");
    let cpus = available_parallelism().map_or(1, std::num::NonZero::get);
    for unpinned in [with(vec![Some(0), Some(1), Some(0)], false), with(vec![Some(0), Some(1), None], true)] {
        assert_eq!(unpinned, cpus < 3, "workers that may run anywhere share what there is");
    }
}

#[test]
fn panics_are_told_whatever_they_carry() {
    assert_eq!(panic_message(&"a sentence"), "a sentence");
    assert_eq!(panic_message(&String::from("a longer sentence")), "a longer sentence");
    assert_eq!(panic_message(&7), "a panic without a message");
}
