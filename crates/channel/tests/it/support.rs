//! Two ends of a link in one process, messages that can be told apart, and waiting without an end.
//!
//! Owns: the patience of all tests: a wait that nothing ends fails after minutes, so that a lost wake-up is no hang.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};

use atrapos_channel::{
    Accepted, Channel, ChannelError, ChannelKind, ConnectOptions, DeploymentId, EndId, Hello, InstanceId,
    ListenOptions, Listener, Secret, Watcher, connect,
};
use tempfile::TempDir;

/// Far more than anything takes on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) const DEPLOYMENT: DeploymentId = DeploymentId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);

/// Defines a module of tests for each kind of channel, each of which calls the function of its name.
macro_rules! for_each_kind {
    ($($test:ident),+ $(,)?) => {
        for_each_kind!(@kinds [shm Shm] [unix Unix] [pipe Pipe] [tcp Tcp]; ($($test),+));
    };
    (@kinds $([$module:ident $kind:ident])+; $tests:tt) => {
        $(for_each_kind!(@module $module $kind $tests);)+
    };
    (@module $module:ident $kind:ident ($($test:ident),+)) => {
        mod $module {
            $(#[test]
            fn $test() {
                super::$test(atrapos_channel::ChannelKind::$kind);
            })+
        }
    };
}
pub(crate) use for_each_kind;

/// A directory that only this user can enter.
pub(crate) fn directory() -> TempDir {
    let owner_only = Permissions::from_mode(0o700);
    tempfile::Builder::new()
        .prefix("chan")
        .permissions(owner_only)
        .tempdir()
        .expect("a directory can be made")
}

pub(crate) fn listen_options(directory: &TempDir, watcher: &Watcher) -> ListenOptions {
    let tcp = Some("127.0.0.1:0".parse().expect("an address"));
    ListenOptions {
        tcp,
        ..ListenOptions::new(directory.path(), DEPLOYMENT, InstanceId(0), 4, watcher.clone())
    }
}

pub(crate) fn connect_options(directory: &TempDir, listener: &Listener, watcher: &Watcher) -> ConnectOptions {
    let tcp = listener.tcp_address();
    ConnectOptions { tcp, ..ConnectOptions::new(directory.path(), watcher.clone()) }
}

/// What worker 2 of instance 1 says to worker 3 of instance 0.
pub(crate) fn hello(kind: ChannelKind) -> Hello {
    Hello {
        deployment: DEPLOYMENT,
        from: EndId { instance: InstanceId(1), worker: 2 },
        to: EndId { instance: InstanceId(0), worker: 3 },
        kind,
    }
}

/// The moment at which patience ends.
pub(crate) fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

/// Connects to a listener that another thread asks to accept meanwhile.
pub(crate) fn meet(
    listener: &mut Listener,
    options: ConnectOptions,
    hello: Hello,
) -> (Result<Accepted, ChannelError>, Result<Box<dyn Channel>, ChannelError>) {
    let connecting = thread::spawn(move || connect(&options, hello, deadline()));
    loop {
        match listener.accept(Duration::from_millis(10)) {
            Ok(Some(accepted)) => {
                break (Ok(accepted), connecting.join().expect("connecting does not panic"));
            }
            Ok(None) if connecting.is_finished() => {
                let connected = connecting.join().expect("connecting does not panic");
                let why = listener.take_refusals().pop();
                break (Err(why.expect("a guest that is not accepted is refused")), connected);
            }
            Ok(None) => {}
            Err(error) => panic!("the listener does not go on: {error}"),
        }
    }
}

/// A link of small rings, whose ends have watchers of their own, as in two processes.
pub(crate) fn link(kind: ChannelKind) -> (Box<dyn Channel>, Box<dyn Channel>) {
    link_of(kind, 16 << 10, None)
}

pub(crate) fn link_of(
    kind: ChannelKind,
    ring_bytes: usize,
    secret: Option<Secret>,
) -> (Box<dyn Channel>, Box<dyn Channel>) {
    link_between(&watchers(), kind, ring_bytes, secret)
}

/// Watchers for the two ends of links, as in two processes.
pub(crate) fn watchers() -> [Watcher; 2] {
    [Watcher::start().expect("threads start"), Watcher::start().expect("threads start")]
}

/// A link whose ends have these watchers.
pub(crate) fn link_between(
    watchers: &[Watcher; 2],
    kind: ChannelKind,
    ring_bytes: usize,
    secret: Option<Secret>,
) -> (Box<dyn Channel>, Box<dyn Channel>) {
    let directory = directory();
    let options = ListenOptions { secret: secret.clone(), ..listen_options(&directory, &watchers[0]) };
    let mut listener = Listener::bind(options).expect("the directory is new");
    let options =
        ConnectOptions { ring_bytes, secret, ..connect_options(&directory, &listener, &watchers[1]) };
    let (accepted, connected) = meet(&mut listener, options, hello(kind));
    let accepted = accepted.expect("the hello is right");
    assert_eq!(accepted.hello, hello(kind));
    (accepted.channel, connected.expect("the hello is right"))
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = deadline();
    while !holds() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        thread::yield_now();
    }
}

/// A sequence of numbers that look random, from a seed.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }
}

/// Message number `index` of a conversation: short ones, and now and then one of many records.
pub(crate) fn message(index: usize) -> Vec<u8> {
    let bytes = match index {
        _ if index % 997 == 500 => 100_000 + index,
        _ if index % 50 == 7 => index % 9_000,
        _ => index * 31 % 300,
    };
    let mut message = index.to_le_bytes().to_vec();
    message.extend((0..bytes).map(|at| (index + at) as u8));
    message
}

/// Sends a message in three parts, as if it had a header and a trailer.
pub(crate) fn send(channel: &mut dyn Channel, message: &[u8]) -> Result<(), ChannelError> {
    let (head, rest) = message.split_at(message.len().min(3));
    let (body, tail) = rest.split_at(rest.len() / 2);
    channel.send(&[head, body, tail])
}

/// Takes messages and expects them to be those of the conversation, from `next` on.
pub(crate) fn expect_next(channel: &mut dyn Channel, next: &mut usize) -> Result<usize, ChannelError> {
    channel.receive(16, &mut |found| {
        let expected = message(*next);
        assert_eq!(found.len(), expected.len(), "the length of message {next}");
        assert!(found == expected, "the bytes of message {next}");
        *next += 1;
    })
}
