//! Contention and what is counted of it: forced, and of threads that use few keys at once.

use super::*;
use crate::optimistic::Interruption;
use crate::planted::with;

/// Operations of each thread.
const STEPS: u64 = 2_000;
/// Trees of which one has to show contention.
const TREES: u64 = 200;

/// An operation that meets another thread a number of times before it succeeds.
struct Meets(u32, Interruption);

impl Operation<()> for Meets {
    fn attempt(&mut self, _: &impl Subscription) -> Attempt<()> {
        if self.0 == 0 {
            return Ok(());
        }
        self.0 -= 1;
        Err(self.1.into())
    }
}

#[test]
fn an_operation_falls_back_after_its_last_attempt() {
    let tree = FallbackTree::<u64>::with_attempts(3);
    let met = |times, interruption| {
        let mut met = Contention::default();
        tree.run(&mut met, Meets(times, interruption));
        met
    };
    let two = Contention { operations: 1, failed_validations: 2, ..Contention::default() };
    assert_eq!(met(2, Interruption::Changed), two);
    let three = Contention { operations: 1, failed_validations: 3, fallbacks: 1, ..Contention::default() };
    assert_eq!(met(3, Interruption::Changed), three);
    // Under the lock the operation is repeated, but that is no attempt of the optimistic kind.
    assert_eq!(met(5, Interruption::Changed), three);
    let latched = Contention { operations: 1, busy: 3, fallbacks: 1, ..Contention::default() };
    assert_eq!(met(3, Interruption::Latched), latched);
    assert_eq!(tree.lock.load(Relaxed), 6, "three operations have taken the lock and given it back");
}

#[test]
fn an_attempt_is_given_up_when_another_thread_takes_the_lock() {
    let tree = FallbackTree::<u64>::new();
    let free = Free { lock: &tree.lock, was: 0 };
    assert_eq!(tree.tree.try_insert(&1, 10, &free), Ok(true));
    tree.lock.store(1, Relaxed);
    let changed = Restart::from(Interruption::Changed);
    assert_eq!(tree.tree.try_insert(&2, 20, &free), Err(changed));
    assert_eq!(tree.tree.try_read(&1, &free), Err(changed));
    assert_eq!(tree.tree.try_update(&1, 11, Replace::UnderLatch, &free), Err(changed));
    assert_eq!(tree.tree.try_remove(&1, &free), Err(changed));
    // None of them has had an effect.
    tree.lock.store(2, Relaxed);
    let free = Free { lock: &tree.lock, was: 2 };
    assert_eq!((tree.tree.try_read(&1, &free), tree.tree.try_read(&2, &free)), (Ok(Some(10)), Ok(None)));
}

/// What threads have met together that all used `tree` on four keys.
fn contend(tree: &FallbackTree<u64>, threads: u64, seed: u64) -> Contention {
    let run = |thread: u64| {
        let (mut session, mut random) = (tree.session(), seed * threads + thread + 1);
        with(None, random, || {
            for step in 0..STEPS {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let key = (random >> 33) % 4;
                match (random >> 40) % 4 {
                    0 => assert!(tree.insert(&mut session, &key, step).is_ok()),
                    1 => drop(tree.remove(&mut session, &key)),
                    2 => drop(tree.update(&mut session, &key, step)),
                    _ => drop(tree.read(&mut session, &key)),
                }
            }
        });
        session
    };
    let mut met = Contention::default();
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().for_each(|thread| met.add(thread.join().expect("no thread panics")));
    });
    assert_eq!(met.operations, threads * STEPS);
    met
}

#[test]
fn threads_on_few_keys_fail_validations_and_fall_back() {
    for threads in [3, 4] {
        for attempts in [1, 2] {
            let contended = (0..TREES).find_map(|seed| {
                let met = contend(&FallbackTree::<u64>::with_attempts(attempts), threads, seed);
                let given_up = met.failed_validations + met.busy;
                assert!(given_up >= u64::from(attempts) * met.fallbacks, "{met:?}");
                (met.failed_validations > 0 && met.fallbacks > 0).then_some(met)
            });
            assert!(contended.is_some(), "{threads} threads on four keys have met no contention");
        }
    }
}

#[test]
fn without_attempts_every_operation_falls_back() {
    let met = contend(&FallbackTree::<u64>::with_attempts(0), 3, 1);
    let all = Contention { operations: 3 * STEPS, fallbacks: 3 * STEPS, ..Contention::default() };
    assert_eq!(met, all);
}
