//! Tests of `task`.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use proptest::prelude::*;

use super::*;

fn tasks() -> Tasks {
    Tasks::new(RuntimeId::new(), WorkerId(0))
}

/// Polled `polls` times before it is ready; writes its name down each time.
struct Countdown {
    polls: usize,
    name: usize,
    log: Rc<RefCell<Vec<usize>>>,
    alive: Rc<Cell<usize>>,
}

impl Countdown {
    fn new(name: usize, polls: usize, log: &Rc<RefCell<Vec<usize>>>, alive: &Rc<Cell<usize>>) -> Self {
        alive.set(alive.get() + 1);
        Self { polls, name, log: Rc::clone(log), alive: Rc::clone(alive) }
    }
}

impl Drop for Countdown {
    fn drop(&mut self) {
        self.alive.set(self.alive.get() - 1);
    }
}

impl Future for Countdown {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let name = self.name;
        self.log.borrow_mut().push(name);
        if self.polls == 0 {
            return Poll::Ready(());
        }
        self.polls -= 1;
        Poll::Pending
    }
}

#[derive(Debug, Clone)]
enum Step {
    Spawn { polls: usize, large: bool },
    Wake(usize),
    Poll(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..4usize, proptest::bool::weighted(0.1)).prop_map(|(polls, large)| Step::Spawn { polls, large }),
        4 => (0..200usize).prop_map(Step::Wake),
        2 => (1..40usize).prop_map(Step::Poll),
    ];
    proptest::collection::vec(step, 1..if cfg!(miri) { 60 } else { 400 })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 256 }, ..ProptestConfig::default() })]

    /// Tasks are polled in the order they became ready, each once per wake, and stale ids wake nobody.
    #[test]
    fn behaves_like_a_list_of_futures(steps in steps()) {
        let tasks = tasks();
        let log = Rc::default();
        let alive = Rc::default();
        // The model: for every task ever, its id and the polls it still needs (none when finished).
        let mut model: Vec<(TaskId, Option<usize>)> = Vec::new();
        let mut ready: Vec<usize> = Vec::new();
        for step in steps {
            match step {
                Step::Spawn { polls, large } => {
                    let countdown = Countdown::new(model.len(), polls, &log, &alive);
                    let id = if large {
                        let ballast = [7u8; INLINE_TASK_BYTES];
                        tasks.spawn(async move { countdown.await; assert_eq!(ballast[INLINE_TASK_BYTES - 1], 7); })
                    } else {
                        tasks.spawn(countdown)
                    };
                    ready.push(model.len());
                    model.push((id, Some(polls)));
                }
                Step::Wake(which) => if !model.is_empty() {
                    let name = which % model.len();
                    tasks.wake(model[name].0);
                    if model[name].1.is_some() && !ready.contains(&name) {
                        ready.push(name);
                    }
                },
                Step::Poll(most) => {
                    let polled = tasks.poll_ready(most);
                    let expected: Vec<usize> = ready.drain(..most.min(ready.len())).collect();
                    prop_assert_eq!(polled, expected.len());
                    prop_assert_eq!(&*log.borrow(), &expected);
                    log.borrow_mut().clear();
                    for name in expected {
                        model[name].1 = model[name].1.and_then(|polls| polls.checked_sub(1));
                    }
                }
            }
            let live = model.iter().filter(|(_, polls)| polls.is_some()).count();
            prop_assert_eq!(tasks.live(), live);
            prop_assert_eq!(alive.get(), live);
            prop_assert_eq!(tasks.ready_len(), ready.len());
        }
        drop(tasks);
        prop_assert_eq!(alive.get(), 0);
    }
}

#[test]
fn a_task_woken_in_its_last_poll_frees_its_slot_once() {
    let tasks = Rc::new(tasks());
    let inner = Rc::clone(&tasks);
    let first = tasks.spawn(async move { inner.wake(inner.current()) });
    assert_eq!(tasks.poll_ready(1), 1);
    assert_eq!((tasks.live(), tasks.ready_len()), (0, 1));
    let second = tasks.spawn(async {});
    assert_ne!(first.index(), second.index(), "the first slot is queued still");
    assert_eq!(tasks.poll_ready(8), 1);
    let third = tasks.spawn(async {});
    assert!([first.index(), second.index()].contains(&third.index()));
    assert_eq!(tasks.poll_ready(8), 1);
}

#[test]
fn tasks_may_spawn_while_they_are_polled() {
    let tasks = Rc::new(tasks());
    let (inner, ran) = (Rc::clone(&tasks), Rc::new(Cell::new(0)));
    let counter = Rc::clone(&ran);
    tasks.spawn(async move {
        for _ in 0..3 * CHUNK_SLOTS {
            let counter = Rc::clone(&counter);
            inner.spawn(async move { counter.set(counter.get() + 1) });
        }
    });
    assert_eq!(tasks.poll_ready(usize::MAX), 1 + 3 * CHUNK_SLOTS);
    assert_eq!(ran.get(), 3 * CHUNK_SLOTS);
}

#[test]
fn ids_of_other_workers_and_none_wake_nobody() {
    let tasks = tasks();
    tasks.wake(TaskId::NONE);
    tasks.wake(TaskId { index: 5, generation: 0 });
    assert_eq!(tasks.ready_len(), 0);
}

#[test]
fn after_clear_nothing_is_taken() {
    let tasks = tasks();
    let held = Rc::new(());
    let captured = Rc::clone(&held);
    tasks.spawn(async move {
        let _captured = captured;
        std::future::pending::<()>().await;
    });
    assert_eq!(tasks.poll_ready(8), 1);
    assert_eq!(tasks.clear(), 1);
    assert_eq!(Rc::strong_count(&held), 1);
    assert_eq!(tasks.spawn(async {}), TaskId::NONE);
    assert_eq!(tasks.poll_ready(8), 0);
}

#[test]
fn a_panic_passes_through_and_leaves_the_slab_whole() {
    let tasks = tasks();
    let held = Rc::new(());
    let captured = Rc::clone(&held);
    tasks.spawn(async move {
        let _captured = captured;
        panic!("planted");
    });
    tasks.spawn(async {});
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tasks.poll_ready(8)));
    assert!(panic.is_err());
    assert_eq!(tasks.poll_ready(8), 1, "the other task is polled");
    drop(tasks);
    assert_eq!(Rc::strong_count(&held), 1, "the future that panicked is dropped");
}
