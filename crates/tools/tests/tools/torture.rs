//! `atrapos torture`: promises survive kills, and broken promises are found.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use atrapos_proof::torture::Slot;

use crate::support::{atrapos, refused, run, stderr, stdout};

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn what_cannot_be_tortured_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(directory.path().join("something")).expect("a directory");
    for (arguments, what) in [
        (&["torture", "--dir", text(directory.path())][..], "not empty"),
        (&["torture", "--kills", "0"], "--kills 0"),
        (&["torture", "--subscribers", "0"], "0 subscribers"),
        (&["torture", "--seconds-per-round", "nan"], "--seconds-per-round NaN"),
    ] {
        let complaint = refused(arguments);
        assert!(complaint.contains(what), "{arguments:?} said: {complaint}");
    }
}

#[test]
fn nothing_is_lost_in_two_hundred_kills() {
    let output = run(&["torture", "--kills", "200", "--seed", "1", "--seconds-per-round", "0.1"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for word in ["200 rounds with seed 1, every promise kept", "killed at work", "ended in order"] {
        assert!(stdout(&output).contains(word), "no '{word}' in:\n{}", stdout(&output));
    }
    assert!(!stdout(&output).contains(" and 0 statements"), "{}", stdout(&output));
}

/// Says something that is seen even if the test succeeds.
fn say(words: &str) {
    std::io::stderr().write_all(words.as_bytes()).expect("somebody listens");
}

/// Runs a torture with power cuts in a directory of its own, of which nothing may be left if it succeeds. Nothing comes back
/// where no power can be cut, and that is said.
fn with_power_cuts(arguments: &[&str], temporary: &Path) -> Option<std::process::Output> {
    let output = atrapos(arguments).env("TMPDIR", temporary).output().expect("the command starts");
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    assert!(!mounts.contains(text(temporary)), "something is still mounted:\n{mounts}");
    let words = stdout(&output);
    if output.status.success() {
        let left = std::fs::read_dir(temporary).expect("the directory").count();
        assert_eq!(left, 0, "nothing is left");
    }
    if words.starts_with("SKIPPED: ") {
        assert_eq!((output.status.code(), words.lines().count()), (Some(0), 1), "{words}");
        say(&words);
        return None;
    }
    Some(output)
}

#[test]
fn nothing_is_lost_in_power_cuts() {
    let temporary = tempfile::tempdir().expect("a directory");
    let arguments = ["torture", "--power-cuts", "5", "--seed", "1", "--seconds-per-round", "0.1"];
    if let Some(output) = with_power_cuts(&arguments, temporary.path()) {
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let words = stdout(&output);
        assert!(words.starts_with("torture: 5 power cuts with seed 1, every promise kept\n"), "{words}");
        say(&words);
    }
}

#[test]
fn a_file_system_of_a_killed_torture_is_unmounted() {
    let temporary = tempfile::tempdir().expect("a directory");
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin(crate::PROGRAM));
    command.args(["torture", "--power-cuts", "100000"]).env("TMPDIR", temporary.path());
    let mut running = command.stdout(std::process::Stdio::null()).spawn().expect("the command starts");
    let mounts = || std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let is_mounted = || mounts().contains(text(temporary.path()));
    let pause = || std::thread::sleep(std::time::Duration::from_millis(10));
    while !is_mounted() {
        if let Some(status) = running.try_wait().expect("a child of this") {
            assert!(
                status.success(),
                "it ends before it has mounted anything only where it cannot: {status}"
            );
            say("SKIPPED: no file system can be mounted here\n");
            return;
        }
        pause();
    }
    running.kill().expect("it is killed");
    running.wait().expect("it is gone");
    // The shell that was left behind does it; the test hangs if it does not.
    while is_mounted() || temporary.path().read_dir().expect("the directory").next().is_some() {
        pause();
    }
}

/// Opens what a torture left once more, as another of its children would.
fn child(base: &Path) -> std::process::Output {
    let (database, witness) = (base.join("database"), base.join("witness"));
    let mut arguments = vec!["torture-child", "--database", text(&database), "--witness", text(&witness)];
    arguments.extend(["--seed", "7", "--round", "100", "--workers", "2", "--topology", "pack:1 core:2 pu:1"]);
    arguments.extend(["--subscribers", "100"]);
    // Its standard input is empty, so it ends as soon as it is ready.
    atrapos(&arguments).output().expect("the command starts")
}

#[test]
fn what_was_promised_and_is_not_there_is_found() {
    let parent = tempfile::tempdir().expect("a directory");
    let base = parent.path().join("torture");
    let arguments = ["torture", "--kills", "4", "--seed", "7", "--subscribers", "100", "--dir", text(&base)];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(run(&["inspect", text(&base.join("database"))]).status.code(), Some(0));
    let output = child(&base);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("\"ready\""), "{}", stdout(&output));

    // Transactions of which the witness says that they were acknowledged, or shown to a reader, although they never were.
    let witness =
        std::fs::OpenOptions::new().read(true).write(true).open(base.join("witness")).expect("the witness");
    for (slot, how) in [
        (Slot::Acknowledged(2), "acknowledged"),
        (Slot::Observed { reader: 1, client: 3 }, "shown to a reader"),
    ] {
        let offset = slot.index() as u64 * 8;
        let mut number = [0; 8];
        witness.read_exact_at(&mut number, offset).expect("a number");
        witness.write_all_at(&u64::MAX.to_le_bytes(), offset).expect("written");
        let output = child(&base);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains(how), "{}", stderr(&output));
        witness.write_all_at(&number, offset).expect("written");
    }

    // A directory with a lost WAL.
    std::fs::remove_dir_all(base.join("database/wal")).expect("removed");
    let output = child(&base);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

#[test]
fn histories_have_an_order() {
    for kills in ["0", "6"] {
        let output = run(&["torture", "--history", "3000", "--kills", kills, "--seed", "5"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let words = stdout(&output);
        for word in ["history: 3000 transactions with seed 5", "strictly serializable", "lists, by adya"] {
            assert!(words.contains(word), "no '{word}' in:\n{words}");
        }
        // Only who is killed leaves it open what came of a transaction.
        assert_eq!(words.contains(" 0 of which nobody was told"), kills == "0", "{words}");
    }
}

#[test]
fn histories_that_make_no_sense_are_refused() {
    for (arguments, what) in [
        (&["torture", "--history", "0"][..], "--history 0 leaves nothing"),
        (&["torture", "--history", "99999999999"], "use at most 2000000"),
    ] {
        let complaint = refused(arguments);
        assert!(complaint.contains(what), "{complaint}");
    }
    for arguments in [
        &["torture", "--history", "-3"][..],
        &["torture", "--history", "many"],
        &["torture", "--history", "9", "--power-cuts", "3"],
        &["torture", "--history", "9", "--subscribers", "3"],
    ] {
        let output = run(arguments);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{arguments:?}");
        assert!(stderr(&output).starts_with("error: "), "{}", stderr(&output));
    }
}

/// Builds that can make mistakes show that the torture finds them, and that it keeps what it found.
#[cfg(debug_assertions)]
mod planted {
    use super::*;

    /// Runs the torture with a planted mistake until it is found, with one seed after another: beside other programs a run has few
    /// transactions, and may not come to it. Returns the seed, the directory for what was kept, and the complaint.
    fn found(arguments: &[&str], bug: &str) -> (u32, tempfile::TempDir, String) {
        let mut said = String::new();
        for seed in 3..11 {
            let temporary = tempfile::tempdir().expect("a directory");
            let mut command = atrapos(arguments);
            command.args(["--seed", &seed.to_string(), "--planted", bug]).env("TMPDIR", temporary.path());
            let output = command.output().expect("the command starts");
            if output.status.code() == Some(1) {
                return (seed, temporary, stderr(&output));
            }
            said = format!("{}{}", stdout(&output), stderr(&output));
        }
        panic!("{bug} was not found by eight seeds: {said}");
    }

    #[test]
    fn planted_mistakes_are_found() {
        for bug in [
            "last-record-skipped",
            "segment-removed-early",
            "checkpoint-of-unfinished",
            "reader-told-early",
            "index-before-filled",
            "statement-not-saved",
        ] {
            let (seed, temporary, complaint) = found(&["torture", "--kills", "400"], bug);
            assert!(complaint.contains(&format!("seed {seed}, round ")), "{complaint}");
            let kept = std::fs::read_dir(temporary.path()).expect("the directory").next();
            let kept = kept.expect("something is kept").expect("an entry").path();
            assert!(complaint.contains(text(&kept)) && kept.join("witness").is_file(), "{complaint}");
        }
    }

    /// An acknowledgement before the sync is found: the commit is lost with the power, even if it had been written by then.
    #[test]
    fn power_cuts_find_what_was_told_before_the_sync() {
        let temporary = tempfile::tempdir().expect("a directory");
        let mut arguments = vec!["torture", "--power-cuts", "100", "--seed", "3"];
        arguments.extend(["--planted", "told-before-sync"]);
        if let Some(output) = with_power_cuts(&arguments, temporary.path()) {
            assert_eq!(output.status.code(), Some(1), "it was not found: {}", stdout(&output));
            let complaint = stderr(&output);
            assert!(complaint.contains("seed 3, round "), "{complaint}");
            let kept = std::fs::read_dir(temporary.path()).expect("the directory").next();
            let kept = kept.expect("something is kept").expect("an entry").path();
            assert!(kept.join("image").is_file() && kept.join("witness").is_file(), "{complaint}");
            assert!(complaint.contains(text(&kept.join("image"))), "{complaint}");
        }
    }

    #[test]
    fn histories_show_planted_mistakes() {
        for (bug, kills) in
            [("scan-not-locked", "0"), ("last-record-skipped", "20"), ("versions-ignored", "100")]
        {
            let arguments = ["torture", "--history", "20000", "--kills", kills];
            let (seed, _kept, complaint) = found(&arguments, bug);
            assert!(complaint.contains(&format!("error: seed {seed}, round ")), "{complaint}");
            assert!(!complaint.contains("panicked"), "{complaint}");
        }
    }

    #[test]
    fn mistakes_that_nobody_knows_are_refused() {
        let complaint = refused(&["torture", "--planted", "sloth"]);
        assert!(complaint.contains("last-record-skipped"), "{complaint}");
    }
}
