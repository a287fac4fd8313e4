//! A panic that reaches a worker's thread stops the process with one clear message.

use std::process::{Command, Output};
use std::rc::Rc;

use atrapos_runtime::{RuntimeBuilder, WorkerId};

use crate::pool::{Count, start};

/// The variable that turns a test of this file into the child that panics.
const CHILD: &str = "ATRAPOS_RUNTIME_TEST_PANICS";

/// Runs the named test as a child process.
fn child(test: &str) -> Output {
    Command::new(std::env::current_exe().expect("a test knows its own path"))
        .args([&format!("panics::{test}"), "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .expect("a test starts itself")
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[track_caller]
fn assert_stopped(output: &Output, worker: &str, message: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "the process goes on: {stderr}");
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(output.status.signal(), Some(6), "aborted, not ended: {stderr}");
    }
    let sentences: Vec<&str> = stderr.lines().filter(|line| line.starts_with("atrapos: ")).collect();
    assert_eq!(sentences.len(), 1, "{stderr}");
    assert!(
        sentences[0].contains(&format!("worker {worker} panicked")) && sentences[0].contains(message),
        "{stderr}"
    );
}

#[test]
fn a_task_that_panics() {
    if is_child() {
        let runtime = start(2);
        let receiver = runtime.handle().request::<(), _>(WorkerId(1), |here, sender| {
            let inner = Rc::clone(here);
            here.spawn(async move {
                inner.yield_now().await;
                let sender = Some(sender);
                assert!(sender.is_none(), "planted in a task");
            });
        });
        let _ = receiver.expect("the runtime runs").wait();
        return;
    }
    assert_stopped(&child("a_task_that_panics"), "w1", "planted in a task");
}

#[test]
fn a_message_handler_that_panics() {
    if is_child() {
        let runtime = start(2);
        let receiver = runtime.handle().request::<(), _>(WorkerId(1), |here, sender| {
            here.send(WorkerId(0), move |_| {
                let sender = Some(sender);
                assert!(sender.is_none(), "planted in a handler");
            });
        });
        let _ = receiver.expect("the runtime runs").wait();
        return;
    }
    assert_stopped(&child("a_message_handler_that_panics"), "w0", "planted in a handler");
}

#[test]
fn a_factory_that_panics() {
    if is_child() {
        let started = RuntimeBuilder::new(2).start(|worker| {
            assert_ne!(worker, WorkerId(1), "planted in a factory");
            Count::default()
        });
        drop(started);
        return;
    }
    assert_stopped(&child("a_factory_that_panics"), "w1", "planted in a factory");
}

/// The sentence names the worker that panicked, and not another one of its thread.
#[test]
fn a_worker_of_several_on_a_thread_that_panics() {
    if is_child() {
        let builder = RuntimeBuilder { threads: Some(1), ..RuntimeBuilder::new(3) };
        let runtime = builder.start(|_| Count::default()).expect("a small runtime starts");
        let receiver = runtime.handle().request::<(), _>(WorkerId(0), |here, sender| {
            here.send(WorkerId(2), move |_| {
                let sender = Some(sender);
                assert!(sender.is_none(), "planted in a turn");
            });
        });
        let _ = receiver.expect("the runtime runs").wait();
        return;
    }
    assert_stopped(&child("a_worker_of_several_on_a_thread_that_panics"), "w2", "planted in a turn");
}
