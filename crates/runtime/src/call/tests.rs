//! Tests of `call`.

use std::cell::RefCell;
use std::sync::Arc;

use super::*;
use crate::{Pump, rng::Seed};

struct Nothing;
impl Shard for Nothing {}

fn pump() -> Pump<Nothing> {
    Pump::new(2, Seed(1), |_| Nothing).expect("two workers are fine")
}

/// Runs one call from worker 0 to worker 1 and returns what it resolved to.
fn ask<R: Send + 'static>(
    pump: &mut Pump<Nothing>,
    handler: impl FnOnce(&Rc<Worker<Nothing>>, Reply<R>) + Send + 'static,
) -> Option<Result<R, Lost>> {
    let home = Rc::clone(pump.worker(WorkerId(0)));
    let call = home.call(WorkerId(1), handler);
    let answer = Rc::new(RefCell::new(None));
    let place = Rc::clone(&answer);
    home.spawn(async move { *place.borrow_mut() = Some(call.await) });
    assert!(pump.run_until_idle(10_000));
    answer.take()
}

#[test]
fn answers_of_all_sizes_come_back() {
    #[derive(Debug, PartialEq)]
    #[repr(align(64))]
    struct Aligned(u8);
    let mut pump = pump();
    assert_eq!(ask(&mut pump, |worker, reply| reply.send(worker, ())), Some(Ok(())));
    assert_eq!(ask(&mut pump, |worker, reply| reply.send(worker, worker.id())), Some(Ok(WorkerId(1))));
    assert_eq!(ask(&mut pump, |worker, reply| reply.send(worker, [7u64; 100])), Some(Ok([7; 100])));
    assert_eq!(ask(&mut pump, |worker, reply| reply.send(worker, Aligned(3))), Some(Ok(Aligned(3))));
    assert_eq!(pump.worker(WorkerId(0)).core().calls.open_len(), 0);
}

#[test]
fn an_answer_may_come_much_later() {
    let mut pump = pump();
    let answer = ask(&mut pump, |worker, reply| {
        let inner = Rc::clone(worker);
        worker.spawn(async move {
            for _ in 0..5 {
                inner.yield_now().await;
            }
            reply.send(&inner, 7);
        });
    });
    assert_eq!(answer, Some(Ok(7)));
}

#[test]
fn a_dropped_reply_is_a_loss() {
    let mut pump = pump();
    assert_eq!(ask::<u32>(&mut pump, |_, reply| drop(reply)), Some(Err(Lost)));
    // Dropped on a thread that runs no worker.
    let answer = ask::<u32>(&mut pump, |_, reply| {
        std::thread::spawn(move || drop(reply)).join().expect("dropping does not fail");
    });
    assert_eq!(answer, Some(Err(Lost)));
    assert_eq!(pump.worker(WorkerId(0)).core().calls.open_len(), 0);
}

#[test]
fn calls_dropped_early_discard_their_answers() {
    let mut pump = pump();
    let home = Rc::clone(pump.worker(WorkerId(0)));
    let held = Arc::new(());
    for answered in [false, true] {
        let value = Arc::clone(&held);
        let call =
            home.call(WorkerId(1), move |worker, reply| reply.send(worker, [const { None }, Some(value)]));
        if answered {
            assert!(pump.run_until_idle(10_000));
        }
        drop::<Call<[Option<Arc<()>>; 2]>>(call);
        assert!(pump.run_until_idle(10_000));
        assert_eq!(Arc::strong_count(&held), 1);
        assert_eq!(home.core().calls.open_len(), 0);
    }
    drop(home.call::<u32>(WorkerId(1), |_, reply| drop(reply)));
    assert!(pump.run_until_idle(10_000));
    assert_eq!(home.core().calls.open_len(), 0);
}

#[test]
fn a_reply_outlives_its_runtime_harmlessly() {
    let kept: Arc<std::sync::Mutex<Option<Reply<u32>>>> = Arc::default();
    let place = Arc::clone(&kept);
    let mut pump = pump();
    let answer = ask(&mut pump, move |_, reply| *place.lock().expect("nobody panics") = Some(reply));
    assert_eq!(answer, None);
    drop(pump);
    let reply = kept.lock().expect("nobody panics").take();
    assert_eq!(reply.as_ref().map(Reply::home), Some(WorkerId(0)));
    drop(reply);
}

#[test]
#[should_panic(expected = "within the runtime of its call")]
fn a_reply_stays_in_its_runtime() {
    let (mut one, other) = (pump(), pump());
    let stranger: Arc<std::sync::Mutex<Option<Reply<u32>>>> = Arc::default();
    let place = Arc::clone(&stranger);
    ask(&mut one, move |_, reply| *place.lock().expect("nobody panics") = Some(reply));
    let reply = stranger.lock().expect("nobody panics").take().expect("the handler ran");
    reply.send(other.worker(WorkerId(0)), 7);
}
