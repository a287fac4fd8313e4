//! Operations, which run in groups.

use std::sync::{Arc, Barrier};

use atrapos_domains::{Burst, Domains, GROUP_MAX, Group, Operation, Owned, TaskError};

use crate::start;

/// Notes how many run together; 1 panics, and 2 makes its group give a reply too few.
struct Note(u32);

impl Operation<Owned<Vec<usize>>> for Note {
    type Reply = u32;
    fn run_group(notes: Group<Self>, groups: &mut Vec<usize>) -> Group<u32> {
        assert!(notes.iter().all(|note| note.0 != 1), "on purpose");
        groups.push(notes.len());
        let missing = usize::from(notes.iter().any(|note| note.0 == 2));
        notes.iter().skip(missing).map(|note| note.0).collect()
    }
}

/// Pushes operations while the worker is busy, so that it finds them all at once.
fn push_at_once(domains: &Domains, burst: &mut Burst<Owned<Vec<usize>>, u32>, notes: &[u32]) {
    let gate = Arc::new(Barrier::new(2));
    let closed = Arc::clone(&gate);
    let busy = domains.at("d").expect("d").place_owned("busy", ()).expect("a free name");
    let wait_twice = move |_: &mut ()| {
        closed.wait();
        closed.wait();
    };
    let waits = domains.client().try_call(&busy, wait_twice).expect("there is room");
    gate.wait();
    // The first one is sent at once, and the others wait for its answer.
    for note in notes {
        burst.try_push_operation(Note(*note)).expect("there is room");
    }
    burst.flush().expect("it is no task");
    gate.wait();
    waits.wait().expect("it runs");
    domains.remove("busy").expect("it is there").wait().expect("it is no task");
}

#[test]
fn operations_that_are_there_at_once_run_together() {
    let domains = start(&[("d", 1)]);
    let groups = domains.at("d").expect("d").place_owned("groups", Vec::new()).expect("a free name");
    let mut burst = domains.client().burst(&groups, 64).expect("there are slots");
    for _ in 0..9 {
        push_at_once(&domains, &mut burst, &(10..30).collect::<Vec<_>>());
        let replies: Vec<u32> = burst.drain().map(|reply| reply.expect("it runs")).collect();
        assert!(replies.into_iter().eq(10..30), "each has its own reply");
        let groups = domains.client().call_blocking(&groups, std::mem::take).expect("it runs");
        assert_eq!(groups, [1, GROUP_MAX, 19 - GROUP_MAX]);
    }
}

#[test]
fn a_group_fails_as_a_whole() {
    let domains = start(&[("d", 1)]);
    let groups = domains.at("d").expect("d").place_owned("groups", Vec::new()).expect("a free name");
    let mut burst = domains.client().burst(&groups, 14).expect("there are slots");
    for (notes, message) in [([9, 10, 1, 12], "on purpose"), ([9, 10, 11, 2], "2 replies to 3 operations")] {
        push_at_once(&domains, &mut burst, &notes);
        assert!(matches!(burst.pop(), Some(Ok(9))), "it was sent alone");
        assert_eq!(burst.len(), 3);
        for reply in burst.drain() {
            let failure = reply.expect_err("no operation of the group has a reply").to_string();
            assert!(failure.contains(message), "{failure}");
        }
        burst.try_push_operation(Note(10)).expect("there is room");
        assert!(matches!(burst.pop(), Some(Err(TaskError::Poisoned))));
        domains.replace(&groups, Vec::new()).expect("it is there").wait().expect("it is no task");
    }
    burst.try_push_operation(Note(10)).expect("there is room");
    assert!(matches!(burst.pop(), Some(Ok(10))));
}
