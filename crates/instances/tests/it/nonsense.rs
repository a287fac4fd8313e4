//! Clients that do not speak as they should.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use atrapos::{CallError, StoredProcedure, encode};
use atrapos_channel::{
    Channel, ChannelError, ChannelKind, ConnectOptions, DeploymentId, EndId, Hello, InstanceId,
    ListenOptions, Listener, MESSAGE_BYTES_MAX, Secret, Watcher, connect,
};
use atrapos_instances::serve_in_turn;
use tempfile::TempDir;

use crate::support::{CUT, Deployment, Insert, PATIENCE, Read, Running};

/// Connects as a client to instance 0.
fn stranger(deployment: &Deployment, id: DeploymentId) -> Result<Box<dyn Channel>, ChannelError> {
    let watcher = Watcher::start().expect("threads");
    let to = EndId { instance: InstanceId(0), worker: 0 };
    let hello = Hello { deployment: id, from: EndId::CLIENT, to, kind: ChannelKind::Unix };
    connect(&ConnectOptions::new(deployment.path(), watcher), hello, Instant::now() + PATIENCE)
}

fn send(channel: &mut dyn Channel, message: &[u8]) {
    channel.send(&[message]).expect("it is short");
    channel.flush().expect("the instance is there");
}

/// Returns the next messages until there are `count`, or the channel has ended.
fn receive(channel: &mut dyn Channel, count: usize) -> (Vec<Vec<u8>>, Option<ChannelError>) {
    let (mut messages, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    while messages.len() < count && Instant::now() < deadline {
        if let Err(error) = channel.receive(count, &mut |message| messages.push(message.to_vec())) {
            return (messages, Some(error));
        }
        let _backlog = channel.flush();
        std::thread::yield_now();
    }
    (messages, None)
}

fn failure_with(running: &Running, words: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let member = running.member.as_ref().expect("it runs");
        if let Some(failure) = member.take_failures().into_iter().find(|failure| failure.contains(words)) {
            return failure;
        }
        assert!(Instant::now() < deadline, "no failure with '{words}'");
        std::thread::yield_now();
    }
}

#[test]
fn a_client_that_speaks_nonsense_is_cut_off_with_a_sentence_and_no_other_is() {
    let deployment = Deployment::new(ChannelKind::Unix);
    let running = deployment.start_all();
    let good = deployment.client(PATIENCE);
    assert_eq!(good.call(&Read { key: 1 }).expect("an answer"), None);
    for (message, words) in [
        (&[][..], "empty"),
        (&[2, 1, 2, 3], "version 2 of calls"),
        (&[1, 1, 200, 1], "cannot be read"),
        (&[1; 999], "cannot be read"),
    ] {
        let mut channel = stranger(&deployment, deployment.description.deployment()).expect("a client");
        send(&mut *channel, message);
        let (told, ended) = receive(&mut *channel, 2);
        assert!(String::from_utf8_lossy(&told[0]).contains(words), "{told:?}");
        assert_eq!((told.len(), matches!(ended, Some(ChannelError::Gone(_)))), (1, true), "{ended:?}");
        let sentence = failure_with(&running[0], words);
        assert!(sentence.starts_with("a client was cut off: "), "{sentence}");
    }
    assert_eq!(good.call(&Read { key: 1 }).expect("an answer"), None);
}

/// A peer that begins with the header of another version, or announces more than a frame may have, is told why, and so is the instance;
/// everybody else goes on.
#[test]
fn other_versions_and_frames_that_are_too_large_are_refused_with_a_sentence() {
    let deployment = Deployment::new(ChannelKind::Unix);
    let running = deployment.start_all();
    let good = deployment.client(PATIENCE);
    good.call(&Insert { key: 1, number: 5 }).expect("a new key");
    let too_large = [0xA7, 2, 0, 0, 0xFF, 0xFF, 0xFF, 0x7F, 0, 0, 0, 0];
    for (header, words) in [
        (
            [0xA7, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            "speaks version 9 of the channels' protocol, and this instance version 2",
        ),
        (too_large, "announces 2147483647 bytes, where at most 4096 are allowed"),
    ] {
        let mut guest = UnixStream::connect(deployment.path().join("instance-0.sock")).expect("it listens");
        guest.write_all(&header).expect("there is room");
        let mut told = Vec::new();
        guest.read_to_end(&mut told).expect("an answer and the end");
        let told = String::from_utf8_lossy(&told).into_owned();
        assert!(told.contains(words), "{told}");
        failure_with(&running[0], words);
        assert_eq!(good.call(&Read { key: 1 }).expect("an answer"), Some(5));
        assert_eq!(good.call(&Read { key: CUT }).expect("an answer"), None);
    }
}

#[test]
fn a_client_of_another_deployment_is_refused() {
    let deployment = Deployment::new(ChannelKind::Unix);
    let _running = deployment.start_all();
    let refused = stranger(&deployment, DeploymentId(7)).map(drop).expect_err("refused").to_string();
    assert!(refused.contains("belongs to deployment"), "{refused}");
}

#[test]
fn who_cannot_read_the_directory_gets_in_by_no_address() {
    let deployment = Deployment::new(ChannelKind::Tcp);
    let _running = deployment.start_all();
    let to = EndId { instance: InstanceId(0), worker: 0 };
    let id = deployment.description.deployment();
    let hello = Hello { deployment: id, from: EndId::CLIENT, to, kind: ChannelKind::Tcp };
    let mut options = ConnectOptions::new(deployment.path(), Watcher::start().expect("threads"));
    options.tcp = Some(deployment.description.tcp[0]);
    let guess = Secret::new("0123456789abcdef").expect("it is long enough");
    for (secret, words) in
        [(None, "demands the shared secret"), (Some(guess), "does not accept the proof of a client")]
    {
        options.secret = secret;
        let refused = connect(&options, hello, Instant::now() + PATIENCE).map(drop).expect_err("refused");
        assert!(refused.to_string().contains(words), "{refused}");
    }
}

#[test]
fn an_instance_without_procedures_cuts_clients_off() {
    let deployment = Deployment::new(ChannelKind::Unix);
    let running = deployment.start(0, true);
    let mut channel = stranger(&deployment, deployment.description.deployment()).expect("a handshake");
    let (told, ended) = receive(&mut *channel, 1);
    assert!(told.is_empty() && ended.is_some(), "{told:?}");
    failure_with(&running, "serves none");
}

/// The instance that does not own the home key says who does, and runs nothing.
#[test]
fn a_call_that_belongs_elsewhere_is_answered_with_its_owner() {
    let deployment = Deployment::new(ChannelKind::Unix);
    let _running = deployment.start_all();
    let mut channel = stranger(&deployment, deployment.description.deployment()).expect("a client");
    let arguments = encode(&Insert { key: CUT, number: 7 }).expect("encodes");
    let message = postcard::to_extend(&(9u64, Insert::NAME, arguments.as_slice()), vec![1]).expect("encodes");
    send(&mut *channel, &message);
    let (answers, ended) = receive(&mut *channel, 1);
    assert_eq!((answers, ended), (vec![vec![1, 9, 1, 1]], None));
    assert_eq!(deployment.client(PATIENCE).call(&Read { key: CUT }).expect("an answer"), None);
}

/// More calls at once than the instance takes from a client: each has one answer.
#[test]
fn a_flood_of_calls_is_answered_call_by_call() {
    const CALLS: u16 = 2000;
    let deployment = Deployment::new(ChannelKind::Unix);
    let _running = deployment.start_all();
    let mut channel = stranger(&deployment, deployment.description.deployment()).expect("a client");
    let arguments = encode(&Read { key: 1 }).expect("encodes");
    for id in 0..CALLS {
        let call = (u64::from(id), Read::NAME, arguments.as_slice());
        let message = postcard::to_extend(&call, vec![1]).expect("encodes");
        channel.send(&[&message]).expect("what does not fit waits");
    }
    channel.flush().expect("the instance is there");
    let (answers, ended) = receive(&mut *channel, usize::from(CALLS));
    assert!(ended.is_none(), "{ended:?}");
    let ids = answers.iter().map(|answer| {
        let (id, kind, result): (u64, u8, Vec<u8>) = postcard::from_bytes(&answer[1..]).expect("an answer");
        assert_eq!((kind, result), (0, vec![1, 0]), "it found no row");
        id
    });
    let ids: BTreeSet<u64> = ids.collect();
    assert_eq!((ids.len(), answers.len()), (CALLS.into(), CALLS.into()));
}

/// Starts a service on a thread of its own that answers with what it was asked, and returns a client's end.
fn in_turn(stopping: &'static AtomicBool) -> (TempDir, Box<dyn Channel>, JoinHandle<Result<(), String>>) {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).expect("it is new");
    let (id, own, watcher) = (DeploymentId(3), InstanceId(0), Watcher::start().expect("threads"));
    let listen = ListenOptions::new(directory.path(), id, own, 1, watcher.clone());
    let mut listener = Listener::bind(listen).expect("a socket");
    let to = EndId { instance: own, worker: 0 };
    let hello = Hello { deployment: id, from: EndId::CLIENT, to, kind: ChannelKind::Unix };
    let options = ConnectOptions::new(directory.path(), watcher);
    let connecting =
        std::thread::spawn(move || connect(&options, hello, Instant::now() + PATIENCE).expect("it listens"));
    let accepted =
        std::iter::repeat_with(|| listener.accept(PATIENCE)).find_map(|accepted| accepted.expect("it works"));
    let channel = accepted.expect("a client").channel;
    let serving = std::thread::spawn(move || {
        serve_in_turn(channel, stopping, &mut |name, arguments| match name {
            "elsewhere" => Ok(Err(atrapos::InstanceId(3))),
            "long" => Ok(Ok(vec![0; MESSAGE_BYTES_MAX])),
            "echo" => Ok(Ok(arguments.to_vec())),
            other => Err(CallError::Unknown { name: other.to_owned(), known: "echo".to_owned() }),
        })
    });
    (directory, connecting.join().expect("it has connected"), serving)
}

/// A call of this number and name with the arguments 1 and 7; none of these is longer than a byte can say.
fn call(id: u8, name: &str) -> Vec<u8> {
    [&[1, id, name.len() as u8], name.as_bytes(), &[2, 1, 7]].concat()
}

#[test]
fn calls_that_run_in_turn_are_answered_in_their_order_until_one_makes_no_sense() {
    static NEVER: AtomicBool = AtomicBool::new(false);
    let (_directory, mut client, serving) = in_turn(&NEVER);
    for (id, name) in [(1, "echo"), (2, "elsewhere"), (3, "long"), (4, "other")] {
        send(&mut *client, &call(id, name));
    }
    send(&mut *client, &[1, 5, 200, 1]);
    let (told, _) = receive(&mut *client, 5);
    assert_eq!(told[0], [1, 1, 0, 2, 1, 7]);
    assert_eq!(told[1], [1, 2, 1, 3]);
    assert_eq!(told[2][..3], [1, 3, 3], "its result is too long");
    assert_eq!(told[3][..4], [1, 4, 2, 0], "there is no such procedure");
    assert!(String::from_utf8_lossy(&told[4]).contains("cannot be read"), "{told:?}");
    let cut = serving.join().expect("it has not panicked").expect_err("the client is cut off");
    assert!(cut.contains("cannot be read"), "{cut}");
}

#[test]
fn a_service_in_turn_ends_when_it_is_told_to_or_the_client_goes() {
    static STOPPING: AtomicBool = AtomicBool::new(false);
    let (_directory, mut client, serving) = in_turn(&STOPPING);
    send(&mut *client, &call(9, "echo"));
    assert_eq!(receive(&mut *client, 1).0, [[1, 9, 0, 2, 1, 7]]);
    STOPPING.store(true, Ordering::Release);
    serving.thread().unpark();
    assert_eq!(serving.join().expect("it has not panicked"), Ok(()));
    static NEVER: AtomicBool = AtomicBool::new(false);
    let (_directory, client, serving) = in_turn(&NEVER);
    drop(client);
    assert_eq!(serving.join().expect("it has not panicked"), Ok(()));
}
