//! Tools: commands that `atrapos-tools` carries out, started as commands of `atrapos`.

use std::process::Command;

use crate::PROGRAM;
use crate::support::{run, stderr, stdout};

#[test]
fn tools_are_listed_and_started_with_their_own_help() {
    let help = stdout(&run(&["--help"]));
    for tool in ["domains", "experiment", "topology", "plan", "watch", "torture"] {
        assert!(help.lines().any(|line| line.split_whitespace().next() == Some(tool)), "{tool} in {help}");
    }
    for arguments in [&["topology", "--help"][..], &["help", "topology"]] {
        let output = run(arguments);
        assert!(
            stdout(&output).contains("Usage: atrapos topology"),
            "{}{}",
            stdout(&output),
            stderr(&output)
        );
    }
    let output = run(&["bench", "domains", "--help"]);
    assert!(
        stdout(&output).contains("Usage: atrapos bench domains"),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
}

#[test]
fn the_status_of_a_tool_is_that_of_the_command() {
    assert_eq!(run(&["topology", "--topology", "pack:1 core:2 pu:1"]).status.code(), Some(0));
    assert_eq!(run(&["topology", "--topology", "nonsense"]).status.code(), Some(2));
}

#[test]
fn a_program_alone_says_what_is_missing() {
    let directory = tempfile::tempdir().expect("a directory");
    let alone = directory.path().join(PROGRAM);
    std::fs::copy(assert_cmd::cargo::cargo_bin(PROGRAM), &alone).expect("a copy");
    let output = Command::new(alone).arg("topology").output().expect("the command starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cargo build --release -p atrapos-tools"), "{}", stderr(&output));
}
