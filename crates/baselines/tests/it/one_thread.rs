//! `shared-2pl` without latches: one thread at a time gets at it, and the next one finds what the last one has left.

use std::ops::ControlFlow;

use atrapos_baselines::Engine;
use atrapos_baselines::two_phase::OneThreadEngine;
use atrapos_partition::abort::{Abort, AbortReason};

use crate::engines::{TABLE, check, get, load, put, rows, run};

fn reason(ended: Result<(), Abort>) -> Option<AbortReason> {
    ended.err().map(|abort| abort.reason())
}

#[test]
fn nobody_gets_at_it_beside_its_client() {
    let engine = OneThreadEngine::new(3);
    load(&engine, TABLE, [(1, 1)]);
    let mut client = engine.client();
    let refused = || {
        let body = || panic!("a second client runs a transaction");
        let attempt = engine.client().attempt(&mut |_| body());
        assert_eq!(reason(attempt), Some(AbortReason::Misuse));
        let branch = engine.client().run_branch(1, &mut |_| body());
        assert_eq!(reason(branch), Some(AbortReason::Misuse));
        let row = [((&2_u64.to_be_bytes()[..]).into(), 2_u64.to_be_bytes().into())];
        assert_eq!(reason(engine.load(TABLE, &row)), Some(AbortReason::Misuse));
        assert_eq!(
            reason(engine.walk(TABLE, &mut |_, _| body().map(ControlFlow::Continue))),
            Some(AbortReason::Misuse)
        );
        assert!(engine.check().is_err_and(|why| why.contains("one thread")));
    };
    refused();
    std::thread::scope(|scope| scope.spawn(refused).join()).expect("it is refused on another thread, too");
    let ended = run(&mut *client, |tx| {
        refused();
        put(tx, TABLE, 1, 2)
    });
    assert_eq!(ended, Ok(()));
    drop(client);
    assert_eq!(rows(&engine, TABLE), [(1, 2)]);
}

#[test]
fn threads_use_it_one_after_the_other() {
    const THREADS: u64 = 4;
    let (transactions, keys) = if cfg!(miri) { (20, 40) } else { (2_000, 3_000) };
    let engine = OneThreadEngine::new(3);
    for thread in 0..THREADS {
        let work = || {
            let mut client = engine.client();
            for number in 0..transactions {
                let key = (number * 7 + thread) % keys;
                let ended = run(&mut *client, |tx| {
                    let sum = get(tx, TABLE, keys)?.unwrap_or_default();
                    put(tx, TABLE, keys, sum + 1)?;
                    if get(tx, TABLE, key)?.is_some() {
                        tx.remove(TABLE, &key.to_be_bytes()).map(drop)
                    } else {
                        put(tx, TABLE, key, number)
                    }
                });
                assert_eq!(ended, Ok(()));
            }
        };
        std::thread::scope(|scope| scope.spawn(work).join()).expect("a thread");
        check(&engine);
        assert_eq!(rows(&engine, TABLE).last(), Some(&(keys, (thread + 1) * transactions)));
    }
    assert!(engine.memory_bytes() > 0);
}
