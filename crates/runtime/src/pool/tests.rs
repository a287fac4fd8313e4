//! Tests of `pool`.

use super::worker_thread::panic_message;

#[test]
fn panics_are_told_whatever_they_carry() {
    assert_eq!(panic_message(&"a sentence"), "a sentence");
    assert_eq!(panic_message(&String::from("a longer sentence")), "a longer sentence");
    assert_eq!(panic_message(&7), "a panic without a message");
}
