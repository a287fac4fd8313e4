//! Who may connect, who is refused with which sentence, and whose files they are.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use atrapos_channel::{
    ChannelError, ChannelKind, ConnectOptions, DeploymentId, Hello, InstanceId, ListenOptions, Listener,
    Secret, Watcher, connect,
};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::support::{
    DEPLOYMENT, connect_options, directory, for_each_kind, hello, link_of, listen_options, meet, until,
};

for_each_kind!(
    another_deployment_is_refused,
    an_unknown_worker_or_instance_is_refused,
    who_is_not_there_is_waited_for_until_the_deadline,
    a_listener_that_comes_late_is_found,
);

/// A listener of instance 0 in a new directory.
pub(crate) struct Place {
    directory: TempDir,
    watcher: Watcher,
    pub(crate) listener: Listener,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with_secret(None)
    }

    pub(crate) fn with_secret(secret: Option<Secret>) -> Self {
        let directory = directory();
        let watcher = Watcher::start().expect("threads start");
        let options = ListenOptions { secret, ..listen_options(&directory, &watcher) };
        let listener = Listener::bind(options).expect("the directory is new");
        Self { directory, watcher, listener }
    }

    pub(crate) fn connect_options(&self) -> ConnectOptions {
        connect_options(&self.directory, &self.listener, &self.watcher)
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("instance-0.sock")
    }

    /// The sentence with which a hello is refused, on both sides.
    fn refusal(&mut self, options: ConnectOptions, hello: Hello) -> String {
        let (accepted, connected) = meet(&mut self.listener, options, hello);
        let told = match connected.map(drop).expect_err("it is refused") {
            ChannelError::Refused(told) => told,
            other => panic!("not a refusal: {other}"),
        };
        let noted = accepted.map(drop).expect_err("it is refused").to_string();
        assert_eq!(told, noted);
        told
    }

    /// The listener goes on: somebody who says the right thing is accepted.
    fn still_accepts(&mut self) {
        let options = self.connect_options();
        let (accepted, connected) = meet(&mut self.listener, options, hello(ChannelKind::Unix));
        assert!(accepted.is_ok() && connected.is_ok(), "the listener has ended");
    }
}

/// A port where nobody listens, on an address of this machine that no other test uses.
fn free_port(address: &str) -> SocketAddr {
    TcpListener::bind(address).and_then(|free| free.local_addr()).expect("a free port")
}

pub(crate) fn another_deployment() -> DeploymentId {
    DeploymentId(DEPLOYMENT.0 + 1)
}

fn another_deployment_is_refused(kind: ChannelKind) {
    let mut place = Place::new();
    let options = place.connect_options();
    let stranger = Hello { deployment: another_deployment(), ..hello(kind) };
    if kind != ChannelKind::Tcp {
        // The directory says whose it is; without that, the instance does.
        let error = connect(&options, stranger, Instant::now()).map(drop).expect_err("it is refused");
        let sentence = error.to_string();
        assert!(sentence.contains("belongs to deployment 0123456789abcdef0123456789abcdef"), "{sentence}");
        fs::remove_file(place.directory.path().join("deployment")).expect("it was there");
    }
    let sentence = place.refusal(options, stranger);
    assert!(
        sentence.contains(&another_deployment().to_string()) && sentence.contains("own deployment"),
        "{sentence}"
    );
    place.still_accepts();
}

fn an_unknown_worker_or_instance_is_refused(kind: ChannelKind) {
    let mut place = Place::new();
    let mut wrong = hello(kind);
    wrong.to.worker = 4;
    let sentence = place.refusal(place.connect_options(), wrong);
    assert_eq!(sentence, "instance 0 has 4 workers, counted from 0, and no worker 4");
    let mut wrong = hello(kind);
    wrong.to.instance = InstanceId(7);
    // The socket of instance 0 under the name of instance 7.
    fs::hard_link(place.socket(), place.directory.path().join("instance-7.sock")).expect("it is free");
    let sentence = place.refusal(place.connect_options(), wrong);
    assert!(sentence.contains("this is instance 0, and not instance 7"), "{sentence}");
    place.still_accepts();
}

fn who_is_not_there_is_waited_for_until_the_deadline(kind: ChannelKind) {
    let watcher = Watcher::start().expect("threads start");
    let directory = directory();
    let tcp = free_port("127.0.0.2:0");
    let options = ConnectOptions { tcp: Some(tcp), ..ConnectOptions::new(directory.path(), watcher) };
    let deadline = Instant::now() + Duration::from_millis(30);
    let error = connect(&options, hello(kind), deadline).map(drop).expect_err("nobody is there");
    assert!(Instant::now() >= deadline, "it was given up early");
    let sentence = error.to_string();
    assert!(matches!(error, ChannelError::Unreachable(_)), "{sentence}");
    assert!(sentence.starts_with("instance 0 cannot be reached"), "{sentence}");
}

fn a_listener_that_comes_late_is_found(kind: ChannelKind) {
    let directory = directory();
    let watcher = Watcher::start().expect("threads start");
    let port = free_port("127.0.0.3:0");
    let options =
        ConnectOptions { tcp: Some(port), ..ConnectOptions::new(directory.path(), watcher.clone()) };
    let connecting = thread::spawn(move || connect(&options, hello(kind), crate::support::deadline()));
    // Attempts fail meanwhile.
    thread::sleep(Duration::from_millis(20));
    let options = ListenOptions { tcp: Some(port), ..listen_options(&directory, &watcher) };
    let mut listener = Listener::bind(options).expect("the directory is new");
    until("the link is there", || {
        listener.accept(Duration::from_millis(10)).expect("the listener goes on").is_some()
    });
    assert!(connecting.join().expect("connecting does not panic").is_ok());
}

#[test]
fn an_instance_that_accepts_nobody_is_given_up_at_the_deadline() {
    let place = Place::new();
    for &kind in ChannelKind::all() {
        let deadline = Instant::now() + Duration::from_millis(30);
        let error =
            connect(&place.connect_options(), hello(kind), deadline).map(drop).expect_err("nobody answers");
        assert!(
            matches!(&error, ChannelError::Unreachable(sentence) if sentence.contains("does not answer")),
            "{error}"
        );
    }
}

#[test]
fn another_version_is_told_so() {
    let mut place = Place::new();
    let mut guest = UnixStream::connect(place.socket()).expect("somebody listens");
    let mut hello = vec![0xA7, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    guest.write_all(&hello).expect("there is room");
    until("the guest is refused", || {
        assert!(place.listener.accept(Duration::from_millis(10)).expect("it goes on").is_none());
        !place.listener.take_refusals().is_empty()
    });
    hello.clear();
    guest.read_to_end(&mut hello).expect("an answer");
    let sentence = String::from_utf8_lossy(&hello);
    assert!(sentence.contains("speaks version 9") && sentence.contains("same release"), "{sentence}");
    place.still_accepts();
}

#[test]
fn an_answer_of_another_version_is_a_refusal() {
    let directory = directory();
    let watcher = Watcher::start().expect("threads start");
    let later = UnixListener::bind(directory.path().join("instance-0.sock")).expect("it is free");
    let answering = thread::spawn(move || {
        let (mut guest, _) = later.accept().expect("somebody connects");
        guest.write_all(&[0xA7, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).expect("there is room");
    });
    let options = ConnectOptions::new(directory.path(), watcher);
    let error = connect(&options, hello(ChannelKind::Shm), crate::support::deadline())
        .map(drop)
        .expect_err("refused");
    answering.join().expect("it does not panic");
    assert!(
        matches!(&error, ChannelError::Refused(sentence) if sentence.contains("speaks version 9")),
        "{error}"
    );
}

#[test]
fn a_stranger_who_says_nothing_keeps_nobody_waiting() {
    let mut place = Place::new();
    let tcp = place.listener.tcp_address().expect("it listens on TCP");
    // Some say nothing, some begin to say something.
    let mut strangers: Vec<UnixStream> =
        (0..20).map(|_| UnixStream::connect(place.socket()).expect("somebody listens")).collect();
    let _silent: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(tcp).expect("somebody listens")).collect();
    for stranger in &mut strangers[..10] {
        stranger.write_all(&[0xA7, 1]).expect("there is room");
    }
    place.still_accepts();
    assert_eq!(place.listener.take_refusals(), [], "they still have time");
}

#[test]
fn a_stranger_who_says_nothing_is_dropped() {
    let directory = directory();
    let watcher = Watcher::start().expect("threads start");
    let patience = Duration::from_millis(10);
    let options = ListenOptions { patience, ..listen_options(&directory, &watcher) };
    let mut listener = Listener::bind(options).expect("the directory is new");
    let mut stranger =
        UnixStream::connect(directory.path().join("instance-0.sock")).expect("somebody listens");
    until("the stranger is dropped", || {
        assert!(listener.accept(Duration::from_millis(5)).expect("it goes on").is_none());
        !listener.take_refusals().is_empty()
    });
    assert_eq!(stranger.read(&mut [0]).expect("it is closed"), 0);
}

#[test]
fn strangers_are_few_at_a_time() {
    let mut place = Place::new();
    let strangers: Vec<UnixStream> = (0..300)
        .map(|_| {
            let stranger = UnixStream::connect(place.socket()).expect("somebody listens");
            assert!(place.listener.accept(Duration::ZERO).expect("it goes on").is_none());
            stranger
        })
        .collect();
    assert_eq!(place.listener.take_refusals().len(), strangers.len() - 256);
    place.still_accepts();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn nonsense_never_ends_the_listener(bytes in prop::collection::vec(any::<u8>(), 12..300), framed in any::<bool>()) {
        let mut place = Place::new();
        let mut guest = UnixStream::connect(place.socket()).unwrap();
        let mut stream = Vec::new();
        if framed {
            // A right frame around anything.
            stream.extend_from_slice(&[0xA7, 1, 0, 0]);
            stream.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            stream.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        }
        stream.extend_from_slice(&bytes);
        guest.write_all(&stream).unwrap();
        let mut refusals = Vec::new();
        until("the guest is refused", || {
            assert!(place.listener.accept(Duration::from_millis(5)).unwrap().is_none());
            refusals.extend(place.listener.take_refusals());
            !refusals.is_empty()
        });
        prop_assert!(refusals[0].to_string().len() > 20, "{}", refusals[0]);
        place.still_accepts();
    }
}

// --- the directory -----------------------------------------------------------------------------------------------------

#[test]
fn everything_in_the_directory_is_its_owners_alone() {
    let parent = directory();
    let path = parent.path().join("run/channels");
    let watcher = Watcher::start().expect("threads start");
    let options = ListenOptions { directory: path.clone(), ..listen_options(&parent, &watcher) };
    let listener = Listener::bind(options).expect("the directory is new");
    let mode = |path: &PathBuf| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    let mut names = Vec::new();
    for entry in fs::read_dir(&path).expect("it is there") {
        let entry = entry.expect("it is there");
        assert_eq!(mode(&entry.path()), 0o600, "{}", entry.path().display());
        names.push(entry.file_name().into_string().expect("a name"));
    }
    names.sort();
    assert_eq!(names, ["deployment", "instance-0.lock", "instance-0.sock"]);
    drop(listener);
    assert!(!path.join("instance-0.sock").exists(), "the socket goes with its listener");
}

#[test]
fn a_directory_that_others_can_enter_is_refused() {
    let directory = directory();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o750)).expect("it is ours");
    let watcher = Watcher::start().expect("threads start");
    let error = Listener::bind(listen_options(&directory, &watcher)).expect_err("it is open");
    assert!(error.to_string().contains("run chmod 700"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).expect("it is there").count(), 0, "nothing was written");
}

#[test]
fn a_directory_of_another_deployment_is_refused() {
    let place = Place::new();
    let options = ListenOptions {
        deployment: another_deployment(),
        instance: InstanceId(1),
        ..listen_options(&place.directory, &place.watcher)
    };
    let error = Listener::bind(options.clone()).expect_err("it is another deployment's");
    assert!(error.to_string().contains("name another directory"), "{error}");
    fs::write(place.directory.path().join("deployment"), "nobody's").expect("it is ours");
    let error = Listener::bind(options).expect_err("nobody knows whose it is");
    assert!(error.to_string().contains("is damaged"), "{error}");
}

#[test]
fn a_path_too_long_for_a_socket_is_refused() {
    let directory = directory();
    let watcher = Watcher::start().expect("threads start");
    let long = directory.path().join("x".repeat(90));
    let options = ListenOptions { directory: long, ..listen_options(&directory, &watcher) };
    let error = Listener::bind(options).expect_err("it is too long");
    assert!(error.to_string().contains("choose a shorter directory"), "{error}");
}

#[test]
fn the_number_of_a_living_instance_is_taken_and_that_of_a_dead_one_is_not() {
    let mut place = Place::new();
    let options = ListenOptions { tcp: None, ..listen_options(&place.directory, &place.watcher) };
    let error = Listener::bind(options.clone()).expect_err("instance 0 lives");
    assert!(error.to_string().contains("give this one another number"), "{error}");
    place.still_accepts();
    let next = ListenOptions { instance: InstanceId(1), ..options.clone() };
    let other = Listener::bind(next).expect("instance 1 does not");
    drop(other);
    drop(place.listener);
    // What a dead one leaves behind.
    drop(UnixListener::bind(place.directory.path().join("instance-0.sock")).expect("it was removed"));
    place.listener = Listener::bind(options).expect("nobody holds its number");
    place.still_accepts();
}

// --- TCP ---------------------------------------------------------------------------------------------------------------

#[test]
fn other_machines_are_let_in_with_a_secret_and_encryption_only() {
    let directory = directory();
    let watcher = Watcher::start().expect("threads start");
    let tcp = Some("0.0.0.0:0".parse().expect("an address"));
    let secret = secret("the secret of this deployment");
    let bound = Listener::bind(ListenOptions { tcp, secret, ..listen_options(&directory, &watcher) });
    assert_eq!(bound.is_ok(), cfg!(feature = "tls"), "{bound:?}");
    if let Err(error) = bound {
        assert!(error.to_string().contains("with the feature tls"), "{error}");
    }
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:4000"] {
        let tcp = Some(address.parse().expect("an address"));
        let options = ListenOptions { tcp, ..listen_options(&directory, &watcher) };
        let error = Listener::bind(options).expect_err("it is no loopback address");
        assert!(error.to_string().contains("shared secret"), "{error}");
    }
}

pub(crate) fn secret(text: &str) -> Option<Secret> {
    Some(Secret::new(text).expect("it is long enough"))
}

#[test]
fn a_short_secret_is_refused() {
    let error = Secret::new(*b"fifteen bytes !").expect_err("it is short");
    assert!(error.to_string().contains("at least 16 random bytes"), "{error}");
    let printed = format!("{:?}", secret("a secret that is long enough"));
    assert_eq!(printed, "Some(Secret(..))");
}

#[test]
fn both_sides_must_know_the_secret() {
    let right = secret("the secret of this deployment");
    let (mut one, mut other) = link_of(ChannelKind::Tcp, 1 << 14, right.clone());
    one.send(&[b"between friends"]).and_then(|()| one.flush()).expect("the peer lives");
    until("it arrives", || other.receive(1, &mut |_| ()).expect("the peer lives") == 1);

    let mut place = Place::with_secret(right.clone());
    let with = |secret| ConnectOptions { secret, ..place.connect_options() };
    let (without, wrong) = (with(None), with(secret("the secret of another deployment")));
    let sentence = place.refusal(wrong, hello(ChannelKind::Tcp));
    assert!(sentence.contains("same shared secret"), "{sentence}");
    let (accepted, connected) = meet(&mut place.listener, without, hello(ChannelKind::Tcp));
    let sentence = connected.map(drop).expect_err("it has no secret").to_string();
    assert!(accepted.is_err() && sentence.contains("shared secret"), "{sentence}");
    place.still_accepts();

    // Who listens has none: whoever knows it does not talk to those.
    let mut place = Place::new();
    let options = ConnectOptions { secret: right, ..place.connect_options() };
    let (_, connected) = meet(&mut place.listener, options, hello(ChannelKind::Tcp));
    let sentence = connected.map(drop).expect_err("nothing is proven").to_string();
    assert!(sentence.contains("shared secret"), "{sentence}");
}

#[test]
fn a_connection_without_an_address_is_refused() {
    let place = Place::new();
    let options = ConnectOptions { tcp: None, ..place.connect_options() };
    let error = connect(&options, hello(ChannelKind::Tcp), Instant::now()).map(drop).expect_err("no address");
    assert!(error.to_string().contains("give its host and port"), "{error}");
}

#[test]
fn a_ring_that_is_no_power_of_two_is_refused() {
    let place = Place::new();
    for ring_bytes in [0, 1000, 1 << 9, (1 << 14) + 8, 1 << 31] {
        let options = ConnectOptions { ring_bytes, ..place.connect_options() };
        let error =
            connect(&options, hello(ChannelKind::Shm), Instant::now()).map(drop).expect_err("no ring");
        assert!(error.to_string().contains("power of two"), "{error}");
    }
}
