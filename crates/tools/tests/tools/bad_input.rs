//! What no tool can make sense of, and help that says more than the list of commands.

use crate::support::{run, stderr, stdout};

#[test]
fn what_cannot_be_parsed_exits_with_2() {
    for arguments in [
        &["torture", "--kills", "-1"][..],
        &["topology", "--json", "--toml"],
        &["domains"],
        &["experiment", "adapt-nothing"],
        &["bench", "domains", "--rounds", "many"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!stderr(&output).contains("panicked") && !stderr(&output).is_empty(), "{arguments:?}");
    }
}

#[test]
fn help_is_worth_reading() {
    for (arguments, words) in [
        (&["torture", "--help"][..], &["--kills", "--seed", "acknowledged"][..]),
        (&["topology", "--help"], &["--measure", "--json"]),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        for word in words {
            assert!(stdout(&output).contains(word), "{arguments:?} does not mention '{word}'");
        }
    }
}
