//! `atrapos topology`: machines in three forms, and what is none.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{bad_topologies, refused, run, stderr, stdout};

#[test]
fn topology_shows_a_machine_in_three_forms() {
    let output = run(&["topology", "--topology", "pack:2 l3:2 core:3 pu:1"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("12 cores"), "{}", stdout(&output));
    let json: Value = serde_json::from_str(&stdout(&run(&["topology", "--json"]))).expect("JSON");
    for key in ["origin", "cpus", "islands", "distances", "provenance", "refused"] {
        assert!(json.get(key).is_some(), "there is no {key} in {json}");
    }

    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("machine.toml");
    let file = std::fs::File::create(&path).expect("a file");
    let written = Command::new(assert_cmd::cargo::cargo_bin(crate::PROGRAM))
        .args(["topology", "--topology", "pack:2 core:4 pu:1", "--toml"])
        .stdout(file)
        .status();
    assert!(written.expect("the command starts").success());
    let output = run(&["topology", "--topology", path.to_str().expect("text")]);
    assert!(stdout(&output).contains("8 cores"), "{}{}", stdout(&output), stderr(&output));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = Command::new(assert_cmd::cargo::cargo_bin(crate::PROGRAM))
        .args(["topology", "--topology", "pack:8 l3:8 core:8 pu:2", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(stderr(&output), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_topology_that_is_none_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for topology in &bad_topologies(directory.path()) {
        for arguments in [
            &["topology", "--topology", topology][..],
            &["plan", "--trace", "/dev/null", "--topology", topology],
        ] {
            refused(arguments);
        }
    }
    let complaint = refused(&["topology", "--topology", "pack:2 core:2 pu:1", "--measure"]);
    assert!(complaint.contains("only this machine can be measured"), "{complaint}");
}
