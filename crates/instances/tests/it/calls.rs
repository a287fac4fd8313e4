//! Clients that do as they should.

use std::time::{Duration, Instant};

use atrapos::{Abort, AbortReason, CallError};
use atrapos_instances::{ChannelKind, ChosenKeys, Client, ClientError, ClientOptions, KeyBounds};

use crate::support::{AddBoth, CUT, Deployment, Insert, Long, PATIENCE, Read, register, schema};

fn aborted(result: Result<(), ClientError>) -> AbortReason {
    match result {
        Err(ClientError::Call(CallError::Aborted(abort))) => Abort::reason(&abort),
        other => panic!("{other:?}"),
    }
}

/// Calls at both instances, within one and over both, from several threads.
fn calls_reach_the_owners(kind: ChannelKind) {
    let deployment = Deployment::new(kind);
    let _running = deployment.start_all();
    let plain = deployment.client(PATIENCE);
    let knowing = deployment.client(PATIENCE);
    let knowing = knowing.with_schema(schema(), register);
    let knowing = knowing.expect("its own schema");
    for key in 0..2 * CUT {
        plain.call(&Insert { key, number: key }).expect("a new key");
    }
    assert_eq!(aborted(knowing.call(&Insert { key: CUT, number: 0 })), AbortReason::DuplicateKey);
    let clients = [&plain, &knowing];
    std::thread::scope(|scope| {
        for (client, thread) in clients.into_iter().cycle().zip(0..4u64) {
            scope.spawn(move || {
                for key in (thread..CUT).step_by(4) {
                    client.call(&AddBoth { keys: [key, key + CUT], by: 1000 }).expect("both are there");
                    client.call(&AddBoth { keys: [key + CUT, key], by: 1000 }).expect("both are there");
                    let read = client.call(&Read { key: key + CUT }).expect("an answer");
                    assert_eq!(read, Some(key + CUT + 2000));
                }
            });
        }
    });
    for key in 0..2 * CUT {
        assert_eq!(plain.call(&Read { key }).expect("an answer"), Some(key + 2000), "{key}");
    }
    assert_eq!(knowing.call(&Read { key: 2 * CUT }).expect("an answer"), None);
}

#[test]
fn calls_reach_the_owners_by_shared_memory() {
    calls_reach_the_owners(ChannelKind::Shm);
}

#[test]
fn calls_reach_the_owners_by_unix_sockets() {
    calls_reach_the_owners(ChannelKind::Unix);
}

#[test]
fn calls_reach_the_owners_by_pipes() {
    calls_reach_the_owners(ChannelKind::Pipe);
}

#[test]
fn calls_reach_the_owners_by_tcp() {
    calls_reach_the_owners(ChannelKind::Tcp);
}

/// Instance 1 has most of the keys, at both ends, and instance 0 those between: every call finds its rows, also over both.
#[test]
fn calls_reach_the_owners_of_chosen_keys() {
    let bounds = |from: Option<u64>, below: Option<u64>| {
        let end = |key: Option<u64>| key.map(|key| key.to_string());
        ChosenKeys::from([("counts".to_owned(), KeyBounds { from: end(from), below: end(below) })])
    };
    let keys = vec![bounds(Some(90), None), bounds(None, Some(10)), bounds(Some(10), Some(90))];
    let deployment = Deployment::divided(ChannelKind::Unix, &[1, 1, 2], keys);
    let running = [deployment.start(0, false), deployment.start(1, false), deployment.start(2, false)];
    for instance in &running {
        let member = instance.member.as_ref().expect("it runs");
        assert!(member.wait_linked(Instant::now() + PATIENCE), "{:?}", member.take_failures());
    }
    let knowing = deployment.client(PATIENCE).with_schema(schema(), register).expect("its own schema");
    let clients = [deployment.client(PATIENCE), knowing];
    for key in 0..2 * CUT {
        clients[key as usize % 2].call(&Insert { key, number: 0 }).expect("a new key");
    }
    std::thread::scope(|scope| {
        for (client, step) in clients.iter().zip([1, 7]) {
            scope.spawn(move || {
                for key in 0..2 * CUT {
                    let keys = [key, (key + 33 * step) % (2 * CUT)];
                    client.call(&AddBoth { keys, by: 1 }).expect("both are there");
                }
            });
        }
    });
    let sum: u64 =
        (0..2 * CUT).map(|key| clients[0].call(&Read { key }).expect("an answer").expect("a row")).sum();
    assert_eq!(sum, 8 * CUT, "two clients have added one to two rows for each row");
}

#[test]
fn one_client_waits_for_an_instance_that_is_away_and_others_go_on() {
    let deployment = Deployment::new(ChannelKind::Unix);
    let [_first, second] = deployment.start_all();
    let client = deployment.client(Duration::from_millis(200));
    client.call(&Insert { key: 1, number: 1 }).expect("instance 0 is there");
    client.call(&Insert { key: CUT, number: 2 }).expect("instance 1 is there");
    drop(second);
    match client.call(&Read { key: CUT }) {
        Err(error @ ClientError::NotCalled(_)) => {
            assert!(error.to_string().contains("instance 1 cannot be reached"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(client.call(&Read { key: 1 }).expect("instance 0 is there"), Some(1));
    let over_both = client.call(&AddBoth { keys: [1, CUT], by: 1 });
    assert_eq!(aborted(over_both), AbortReason::Unreachable);
    assert_eq!(client.call(&Read { key: 1 }).expect("nothing is locked"), Some(1));
    let patient = deployment.client(PATIENCE);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| patient.call(&Read { key: CUT }));
        let _second = deployment.start(1, false);
        // It has come back without its rows.
        assert_eq!(waits.join().expect("no panic").expect("instance 1 is back"), None);
        assert_eq!(patient.call(&Read { key: CUT }).expect("it stays"), None);
    });
}

#[test]
fn what_is_refused_is_a_sentence_and_the_connection_goes_on() {
    let deployment = Deployment::new(ChannelKind::Unix);
    let _running = deployment.start_all();
    let client = deployment.client(PATIENCE);
    let refused = |result: Result<Vec<u8>, ClientError>| result.expect_err("refused").to_string();
    let unknown = refused(client.call_named("test.nothing", &[1]));
    assert!(unknown.contains("'test.nothing'") && unknown.contains("test.read"), "{unknown}");
    assert!(refused(client.call_named("test.read", &[])).contains("empty"));
    assert!(refused(client.call_named("test.read", &[9, 1])).contains("format 9"));
    let long = refused(client.call_named("test.read", &vec![1; 17 << 20]));
    assert!(long.contains("send less at once"), "{long}");
    assert_eq!(client.call(&Long { bytes: 1 << 20 }).expect("an answer").len(), 1 << 20);
    match client.call(&Long { bytes: 17 << 20 }) {
        Err(error @ ClientError::ResultTooLong(_)) => {
            assert!(error.to_string().contains("has committed"), "{error}");
        }
        other => panic!("{:?}", other.map(|result| result.len())),
    }
    assert_eq!(client.call(&Read { key: 1 }).expect("it goes on"), None);
}

#[test]
fn there_is_no_client_of_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let refused = Client::connect(directory.path(), ClientOptions::default()).expect_err("no deployment");
    assert!(refused.to_string().contains("has no deployment"), "{refused}");
}
