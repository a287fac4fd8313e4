//! `atrapos watch`: running databases, and what cannot be watched.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{atrapos, interrupt, quick, refused, stderr, stdout};

/// A benchmark that runs until it is interrupted, and the directory in which sockets of processes are.
struct Running {
    child: Child,
    private: tempfile::TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended needs not be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(more: &[&str]) -> Running {
        let private = tempfile::tempdir().expect("a directory");
        let mut arguments = quick("tatp", more);
        let seconds = arguments.iter().position(|argument| *argument == "0.2").expect("seconds");
        arguments[seconds] = "600";
        let child = Command::new(env!("CARGO_BIN_EXE_atrapos-tools"))
            .args(arguments)
            .env("XDG_RUNTIME_DIR", private.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        Running { child, private }
    }

    fn watch(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = atrapos(&[&["watch"], arguments].concat());
        command.env("XDG_RUNTIME_DIR", self.private.path()).output().expect("the command starts")
    }

    /// Watches until transactions are seen to run, and their latencies.
    fn busy(&mut self, target: &str) -> Value {
        loop {
            assert_eq!(self.child.try_wait().expect("a child"), None, "it runs until it is interrupted");
            let output = self.watch(&[target, "--json"]);
            if let Ok(snapshot) = serde_json::from_str::<Value>(&stdout(&output))
                && snapshot["rates"]["committed"][0].as_f64() > Some(0.0)
                && !snapshot["latency"].is_null()
            {
                return snapshot;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn a_benchmark_in_a_directory_is_watched_until_it_ends() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("database");
    let mut running = Running::start(&["--dir", text(&directory)]);
    let snapshot = running.busy(text(&directory));
    assert_eq!(snapshot["program"], "bench tatp");
    assert_eq!(snapshot["pid"], running.child.id());
    assert_eq!(snapshot["activity"]["workers"].as_array().map(Vec::len), Some(2));
    assert!(snapshot["activity"]["durability"]["bytes"].as_u64() > Some(0), "{snapshot}");
    assert!(snapshot["latency"]["p99_us"].as_f64() >= snapshot["latency"]["p50_us"].as_f64(), "{snapshot}");
    let families = snapshot["activity"]["families"].as_array().expect("a list");
    assert!(families.iter().any(|family| family["tables"][0] == "subscriber"), "{snapshot}");
    // The same process, by its number, as text.
    let pid = running.child.id().to_string();
    let output = running.watch(&[&pid]);
    let shown = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for part in
        ["bench tatp, process ", "transactions/s", "\nworkers\n", " w1 ", "\npartitions", "\ndecisions\n"]
    {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    interrupt(&running.child);
    assert_eq!(running.child.wait().expect("it ends").code(), Some(0));
    let complaint = stderr(&running.watch(&[text(&directory)]));
    assert!(complaint.contains("no process offers"), "{complaint}");
    assert_eq!(std::fs::read_dir(running.private.path().join("atrapos")).expect("it").count(), 0);
    assert!(!directory.join("watch.sock").exists());
}

#[test]
fn a_benchmark_in_memory_is_watched_by_its_number_and_missed_when_it_is_killed() {
    let mut running = Running::start(&["--durability", "none", "--static"]);
    let pid = running.child.id().to_string();
    let snapshot = running.busy(&pid);
    assert_eq!((&snapshot["directory"], &snapshot["activity"]["durability"]), (&Value::Null, &Value::Null));
    let shown = stdout(&running.watch(&[&pid, "--once"]));
    assert!(shown.contains("in memory") && shown.contains("keeps its scheme"), "{shown}");
    running.child.kill().expect("it is killed");
    running.child.wait().expect("it has ended");
    let output = running.watch(&[&pid]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains(&format!("there is no process {pid}")), "{}", stderr(&output));
}

#[test]
fn what_cannot_be_watched_is_refused_in_one_sentence() {
    let directory = tempfile::tempdir().expect("a directory");
    for (target, reason) in [
        ("4194305", "there is no process 4194305"),
        ("nowhere", "there is no directory nowhere"),
        (text(directory.path()), "no process offers the database in"),
        (&*std::process::id().to_string(), "offers no database to be watched"),
    ] {
        let complaint = refused(&["watch", target]);
        assert!(complaint.contains(reason), "{complaint}");
    }
    let socket = directory.path().join("watch.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&socket, open).expect("a mode");
    let complaint = refused(&["watch", text(directory.path())]);
    assert!(complaint.contains("has mode 0777 and not 0600"), "{complaint}");
    drop(listener);
}
