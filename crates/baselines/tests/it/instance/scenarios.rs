//! Step by step: what travels, what is lost with an instance, and nonsense on a link.

use std::time::{Duration, Instant};

use atrapos_baselines::{Engine, Intent};
use atrapos_channel::{ChannelKind, ConnectOptions, EndId, Hello, Watcher, connect};
use atrapos_partition::abort::{Abort, AbortReason};

use super::cluster::{Cluster, locking, optimistic};
use crate::engines::{TABLE, check, get, load, put, range, rows, run};

/// Patience with what happens soon.
const SOON: Duration = Duration::from_secs(60);

#[test]
fn a_transaction_sees_what_it_has_written_elsewhere() {
    for engine in [optimistic, locking] {
        let cluster = Cluster::new(engine, 3);
        load(&cluster, TABLE, (0..12).map(|key| (key, key)));
        let mut client = cluster.instance(0).client();
        let seen = run(&mut *client, |tx| {
            for key in [1, 4, 7, 10] {
                put(tx, TABLE, key, 100 + key)?;
                assert_eq!(get(tx, TABLE, key)?, Some(100 + key));
            }
            assert!(tx.remove(TABLE, &5_u64.to_be_bytes())?);
            assert!(!tx.insert(TABLE, &4_u64.to_be_bytes(), &[0; 8])?, "the key is taken");
            let backward = range(tx, TABLE, (0, Some(11)), true)?;
            let mut forward = range(tx, TABLE, (0, Some(11)), false)?;
            forward.reverse();
            assert_eq!(forward, backward);
            Ok(backward)
        });
        let keys: Vec<u64> = seen.iter().flatten().rev().map(|(key, _)| *key).collect();
        assert_eq!(keys, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]);
        let expected: Vec<_> = (0..12)
            .filter(|key| *key != 5)
            .map(|key| (key, if key % 3 == 1 { 100 + key } else { key }))
            .collect();
        drop(client);
        assert_eq!(rows(&cluster, TABLE), expected);
        check(&cluster);
    }
}

#[test]
fn an_abort_leaves_nothing_anywhere() {
    for engine in [optimistic, locking] {
        let cluster = Cluster::new(engine, 2);
        load(&cluster, TABLE, [(0, 1), (4, 1)]);
        let mut client = cluster.instance(0).client();
        let ended = client.attempt(&mut |tx| {
            put(tx, TABLE, 0, 2)?;
            put(tx, TABLE, 4, 2)?;
            put(tx, TABLE, 5, 2)?;
            tx.remove(TABLE, &4_u64.to_be_bytes())?;
            Err(Abort::user("it changed its mind"))
        });
        assert_eq!(ended.map_err(|abort| abort.reason()), Err(AbortReason::User));
        // The other client's request is behind the abort, or finds the locks that are being released.
        let mut other = cluster.instance(1).client();
        let found = run(&mut *other, |tx| range(tx, TABLE, (0, None), false));
        assert_eq!(found, Ok(vec![(0, 1), (4, 1)]));
        drop((client, other));
        check(&cluster);
    }
}

#[test]
fn rows_that_only_read_are_read_without_locks_everywhere() {
    let engine = || -> Box<dyn Engine> {
        Box::new(atrapos_baselines::two_phase::LockingEngine::new(3).without_locks())
    };
    let cluster = Cluster::new(engine, 2);
    load(&cluster, TABLE, (0..12).map(|key| (key, key)));
    let mut client = cluster.instance(0).client();
    assert_eq!(run(&mut *client, |tx| range(tx, TABLE, (2, Some(8)), false)).map(|rows| rows.len()), Ok(6));
    let refused = client.attempt(&mut |tx| put(tx, TABLE, 4, 9));
    assert!(refused.is_err_and(|abort| abort.detail().contains("--locks on")));
}

#[test]
fn the_others_go_on_without_an_instance_that_is_lost() {
    for engine in [optimistic, locking] {
        let mut cluster = Cluster::new(engine, 2);
        load(&cluster, TABLE, [(0, 1), (4, 1)]);
        let lost = cluster.instances[1].take();
        let mut client = cluster.instance(0).client();
        assert_eq!(client.attempt(&mut |tx| put(tx, TABLE, 4, 2)), Ok(()), "it lives still");
        drop(lost);
        let ended = client.attempt(&mut |tx| put(tx, TABLE, 0, 3).and_then(|()| put(tx, TABLE, 4, 3)));
        let abort = ended.expect_err("a row of it is needed");
        assert_eq!(abort.reason(), AbortReason::Unreachable);
        assert!(abort.detail().contains("instance 1 cannot be reached"), "{abort}");
        assert_eq!(run(&mut *client, |tx| get(tx, TABLE, 0)), Ok(Some(1)), "the abort was one of all parts");
        assert_eq!(client.attempt(&mut |tx| put(tx, TABLE, 0, 4)), Ok(()), "local work goes on");
    }
}

#[test]
fn nonsense_cuts_a_link_with_a_sentence_and_aborts_its_part() {
    for (message, what) in [
        (&b"nonsense"[..], "ends too early"),
        (&[0; 12], "ends too early"),
        (&[&[0; 12][..], &[10]].concat(), "has not begun"),
        (&[&[0; 12][..], &[77]].concat(), "an operation that there is not"),
    ] {
        let cluster = Cluster::new(locking, 2);
        let watcher = Watcher::start().expect("there are threads");
        let options = ConnectOptions::new(&cluster.options.directory, watcher);
        let end = |instance| EndId { instance: atrapos_channel::InstanceId(instance), worker: 0 };
        let (deployment, kind) = (cluster.options.deployment, ChannelKind::Shm);
        let hello = Hello { deployment, from: end(1), to: end(0), kind };
        let mut channel = connect(&options, hello, Instant::now() + SOON).expect("it is accepted");
        channel.send(&[message]).and_then(|()| channel.flush()).expect("it is sent");
        // The link ends.
        while channel.receive(1, &mut |_| {}).is_ok() {
            std::thread::yield_now();
        }
        let failures = loop {
            let failures = cluster.instance(0).take_failures();
            if !failures.is_empty() {
                break failures;
            }
            std::thread::yield_now();
        };
        assert!(failures[0].contains("a link was cut off") && failures[0].contains(what), "{failures:?}");
        let mut client = cluster.instance(1).client();
        let key = 0_u64.to_be_bytes();
        assert_eq!(client.attempt(&mut |tx| tx.read(TABLE, &key, Intent::Read).map(drop)), Ok(()));
    }
}
