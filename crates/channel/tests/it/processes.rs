//! Links between processes: this test binary starts itself. Killed ones are seen, whatever they were doing.

use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use atrapos_channel::{
    Channel, ChannelError, ChannelKind, ConnectOptions, ListenOptions, Listener, Watcher, connect,
};
use tempfile::TempDir;

use crate::sleep::{sleep, wake_me};
use crate::support::{
    PATIENCE, deadline, directory, expect_next, for_each_kind, hello, listen_options, message, send, until,
};

for_each_kind!(
    a_process_echoes_a_conversation,
    a_process_killed_while_it_sends_is_seen,
    a_process_killed_while_both_sleep_is_seen,
);

/// The variable that tells the process of [`child`] what to do: role, kind, directory, address of TCP.
const TASK: &str = "ATRAPOS_CHANNEL_CHILD";

/// A process of its own, killed at the end of its test at the latest.
struct Process(Child);

impl Process {
    fn start(role: &str, kind: ChannelKind, directory: &TempDir, listener: Option<&Listener>) -> Self {
        let tcp = listener.and_then(Listener::tcp_address).map(|address| address.to_string());
        let task = format!(
            "{role} {kind} {} {}",
            directory.path().display(),
            tcp.as_deref().unwrap_or("127.0.0.1:1")
        );
        let child = Command::new(std::env::current_exe().expect("a test knows its own path"))
            .args(["processes::child", "--exact", "--ignored", "--test-threads=1"])
            .env(TASK, task)
            .stdout(Stdio::null())
            .spawn()
            .expect("a test starts itself");
        Self(child)
    }

    /// Ends the process as it is.
    fn kill(&mut self) {
        self.0.kill().expect("it was not waited for");
        self.0.wait().expect("it was not waited for");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.kill();
        }
    }
}

/// A link to a process that plays a role.
fn link_to(role: &str, kind: ChannelKind) -> (Process, Box<dyn Channel>, TempDir) {
    let directory = directory();
    let watcher = Watcher::start().expect("threads start");
    let mut listener = Listener::bind(listen_options(&directory, &watcher)).expect("the directory is new");
    let process = Process::start(role, kind, &directory, Some(&listener));
    let accepted = listener.accept(PATIENCE).expect("the listener goes on").expect("the process connects");
    assert_eq!(accepted.hello, hello(kind));
    (process, accepted.channel, directory)
}

#[test]
#[ignore = "run by other tests, as a process of its own"]
fn child() {
    let task = std::env::var(TASK).expect("it is started with a task");
    let [role, kind, directory, tcp] =
        task.splitn(4, ' ').collect::<Vec<_>>().try_into().expect("a task of four words");
    let watcher = Watcher::start().expect("threads start");
    if role == "listen" {
        let options = ListenOptions::new(
            directory,
            crate::support::DEPLOYMENT,
            hello(ChannelKind::Unix).to.instance,
            4,
            watcher,
        );
        let _listener = Listener::bind(options).expect("the directory is new");
        thread::sleep(PATIENCE);
        return;
    }
    let options = ConnectOptions {
        tcp: Some(tcp.parse().expect("an address")),
        ring_bytes: 16 << 10,
        ..ConnectOptions::new(directory, watcher)
    };
    let kind = ChannelKind::from_str(kind).expect("a kind");
    let mut channel = connect(&options, hello(kind), deadline()).expect("the parent listens");
    match role {
        "echo" => echo(&mut *channel),
        "babble" => babble(&mut *channel),
        _ => thread::sleep(PATIENCE),
    }
}

/// Sends every message back until the peer is gone, and sleeps while there is none.
fn echo(channel: &mut dyn Channel) {
    wake_me(channel);
    let mut messages = Vec::new();
    loop {
        match channel.receive(16, &mut |message| messages.push(message.to_vec())) {
            Ok(0) => sleep(channel),
            Ok(_) => {}
            Err(ChannelError::Gone(_)) => return,
            Err(error) => panic!("{error}"),
        }
        for message in messages.drain(..) {
            if send(channel, &message).is_err() {
                return;
            }
        }
        if channel.flush().is_err() {
            return;
        }
    }
}

/// Sends a conversation without an end.
fn babble(channel: &mut dyn Channel) {
    wake_me(channel);
    for index in 0.. {
        if send(channel, &message(index)).and_then(|()| channel.flush()).is_err() {
            return;
        }
        while channel.backlog() > 0 {
            sleep(channel);
            if channel.receive(1, &mut |_| ()).is_err() || channel.flush().is_err() {
                return;
            }
        }
    }
}

fn a_process_echoes_a_conversation(kind: ChannelKind) {
    const MESSAGES: usize = 4_000;
    let (mut process, mut channel, _directory) = link_to("echo", kind);
    wake_me(&mut *channel);
    let (mut sent, mut received) = (0, 0);
    while received < MESSAGES {
        // Some are on their way, so that both are busy, and sometimes one sleeps.
        while sent < MESSAGES && sent - received < 40 && channel.backlog() == 0 {
            send(&mut *channel, &message(sent)).expect("the process lives");
            sent += 1;
        }
        channel.flush().expect("the process lives");
        if expect_next(&mut *channel, &mut received).expect("the process lives") == 0 {
            sleep(&mut *channel);
        }
    }
    drop(channel);
    until("the process sees the end and ends well", || {
        process.0.try_wait().expect("it is a child").is_some_and(|status| {
            assert!(status.success(), "the process has failed");
            true
        })
    });
}

fn a_process_killed_while_it_sends_is_seen(kind: ChannelKind) {
    for victim in 1..=4 {
        let (mut process, mut channel, _directory) = link_to("babble", kind);
        let mut received = 0;
        until("messages arrive", || {
            expect_next(&mut *channel, &mut received).expect("the process lives");
            received > victim * 100
        });
        process.kill();
        let mut end = None;
        until("the end is seen", || {
            end = expect_next(&mut *channel, &mut received).err();
            end.is_some()
        });
        assert!(matches!(end, Some(ChannelError::Gone(_))), "{end:?}");
    }
}

fn a_process_killed_while_both_sleep_is_seen(kind: ChannelKind) {
    let (mut process, mut channel, _directory) = link_to("sleep", kind);
    let sleeper = thread::spawn(move || {
        wake_me(&mut *channel);
        loop {
            match channel.receive(1, &mut |_| ()) {
                Ok(_) => sleep(&mut *channel),
                Err(error) => return error,
            }
        }
    });
    // Most of the time, it sleeps by now; either way the end is seen.
    thread::sleep(Duration::from_millis(5));
    process.kill();
    let end = sleeper.join().expect("it is woken");
    assert!(matches!(end, ChannelError::Gone(_)), "{end}");
}

#[test]
fn the_socket_of_a_killed_process_is_replaced() {
    let directory = directory();
    let watcher = Watcher::start().expect("threads start");
    let options = ListenOptions { tcp: None, ..listen_options(&directory, &watcher) };
    let mut process = Process::start("listen", ChannelKind::Unix, &directory, None);
    let socket = directory.path().join("instance-0.sock");
    until("the process listens", || socket.exists());
    let error = Listener::bind(options.clone()).expect_err("the process lives");
    assert!(error.to_string().contains("runs in"), "{error}");
    process.kill();
    assert!(socket.exists(), "nobody has removed it");
    drop(Listener::bind(options).expect("the process is dead"));
}
