//! Running the command.

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;

use crate::PROGRAM;

/// The command with these arguments.
pub(crate) fn atrapos(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin(PROGRAM).expect("the binary is built with its tests");
    // What cargo starts builds the other program where that is older.
    command.env_remove("CARGO").args(arguments);
    command
}

/// Runs it and returns what came out.
pub(crate) fn run(arguments: &[&str]) -> Output {
    atrapos(arguments).output().expect("the command starts")
}

/// Sends an interrupt to a process of ours, as Ctrl-C does. One that has ended is not there to be sent anything.
pub(crate) fn interrupt(child: &std::process::Child) {
    let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    sent.expect("kill starts");
}

/// Standard output as text.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Standard error as text.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// Arguments of a benchmark that is over soon, on few rows and unpinned threads.
pub(crate) fn quick<'a>(benchmark: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["bench", benchmark, "--no-pin", "--seconds", "0.2"];
    match benchmark {
        "tatp" => arguments.extend(["--warmup", "0.05", "--workers", "2", "--subscribers", "300"]),
        "tpcc" => {
            arguments.extend(["--warmup", "0.05", "--workers", "2", "--items", "200", "--customers", "30"]);
        }
        "micro" => arguments.extend(["--warmup", "0.05", "--workers", "2", "--rows-per-site", "200"]),
        "tpcb" => {
            arguments.extend(["--warmup", "0.05", "--workers", "2", "--branches", "4"]);
            arguments.extend(["--accounts-per-branch", "100"]);
        }
        "ycsb" => arguments.extend(["--warmup", "0.05", "--workers", "2", "--rows", "500"]),
        "smallbank" => arguments.extend(["--warmup", "0.05", "--workers", "2", "--customers", "300"]),
        _ => arguments.extend(["--rows", "1000", "--lookups", "320", "--runs", "1"]),
    }
    arguments.extend(more);
    arguments
}

/// Runs the command, which must refuse, and returns its only sentence.
pub(crate) fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    let complaint = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?} said: {complaint}");
    assert_eq!(stdout(&output), "", "{arguments:?} printed a result");
    assert!(!complaint.contains("panicked"), "{complaint}");
    assert!(complaint.starts_with("error: "), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{arguments:?} said more than one sentence: {complaint}");
    complaint
}

/// Topologies that are none, of which two are files in the directory.
pub(crate) fn bad_topologies(directory: &Path) -> Vec<String> {
    let contradictory = directory.join("contradictory.toml");
    let text = "[[island]]\ncpus = \"0-1\"\nnode = 0\n[[island]]\ncpus = \"1-2\"\nnode = 0\n";
    std::fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .open(&contradictory)
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .expect("a file");
    let files = [contradictory, directory.join("missing.toml")];
    let files = files.iter().map(|file| file.to_str().expect("text").to_owned());
    files.chain(["pack:0", "pack:two", "nonsense", "/dev"].map(str::to_owned)).collect()
}
