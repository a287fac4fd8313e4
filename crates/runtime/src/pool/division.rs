//! The division of the workers among threads.
//!
//! Owns: which workers share a thread. Never: starts one.
//!
//! A worker has a thread of its own unless there are more workers than processing units for them: then the kernel would switch
//! between threads that each find little to do, and what a switch costs is more than a step does. So there are as many threads as
//! processing units, and each pumps several workers in turn (`turns.rs`).
//!
//! # Invariants
//! - Every worker has one thread, for its whole life.
//! - Workers that are pinned to different processing units are on different threads, those pinned to the same one on the same.
//! - Workers of one thread that may run anywhere are neighbours by number, as are those of one island.

use crate::WorkerId;
use crate::pool::RuntimeBuilder;
use crate::shared::worker_id;

/// The workers of each thread, in the order of their turns.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Division {
    pub(super) threads: Vec<Vec<WorkerId>>,
    /// Set if there are more threads than processing units all the same.
    pub(super) oversubscribed: bool,
}

impl Division {
    /// Divides the workers of a valid configuration, in a process that may use so many processing units.
    pub(super) fn new(configuration: &RuntimeBuilder, processing_units: usize) -> Self {
        let pins = configuration.cpus.as_ref().filter(|_| configuration.pin);
        let pin = |worker: WorkerId| pins.and_then(|pins| pins[worker.index()]);
        let spare_from = configuration.workers.saturating_sub(configuration.spare);
        let workers = (0..spare_from).map(worker_id);
        let (pinned, anywhere): (Vec<_>, Vec<_>) = workers.partition(|worker| pin(*worker).is_some());
        let mut threads: Vec<Vec<WorkerId>> = Vec::new();
        for worker in pinned {
            match threads.iter_mut().find(|thread| pin(thread[0]) == pin(worker)) {
                Some(thread) => thread.push(worker),
                None => threads.push(vec![worker]),
            }
        }
        let wanted = configuration.threads.unwrap_or(processing_units);
        threads.extend(blocks(&anywhere, wanted));
        let oversubscribed = !anywhere.is_empty() && threads.len() > processing_units;
        threads.extend((spare_from..configuration.workers).map(|worker| vec![worker_id(worker)]));
        Self { threads, oversubscribed }
    }
}

/// Cuts a list into at most so many blocks, whose lengths differ by one at most.
fn blocks(workers: &[WorkerId], wanted: usize) -> impl Iterator<Item = Vec<WorkerId>> {
    let count = wanted.clamp(1, workers.len().max(1));
    let begin = move |block: usize| block * workers.len() / count;
    (0..count)
        .map(move |block| workers[begin(block)..begin(block + 1)].to_vec())
        .filter(|block| !block.is_empty())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn divided(configuration: RuntimeBuilder, processing_units: usize) -> (Vec<Vec<u16>>, bool) {
        let division = Division::new(&configuration, processing_units);
        let numbers = division.threads.iter().map(|thread| thread.iter().map(|worker| worker.0).collect());
        (numbers.collect(), division.oversubscribed)
    }

    #[test]
    fn spare_workers_have_threads_of_their_own() {
        let spares = |pin| RuntimeBuilder { spare: 2, ..pinned(vec![Some(4), None, None], pin) };
        assert_eq!(divided(spares(true), 1), (vec![vec![0], vec![1], vec![2]], false));
        assert_eq!(divided(spares(false), 1), (vec![vec![0], vec![1], vec![2]], false));
        let several = RuntimeBuilder { spare: 1, ..RuntimeBuilder::new(4) };
        assert_eq!(divided(several, 1), (vec![vec![0, 1, 2], vec![3]], false));
    }

    fn pinned(cpus: Vec<Option<usize>>, pin: bool) -> RuntimeBuilder {
        RuntimeBuilder { cpus: Some(cpus), pin, ..RuntimeBuilder::new(3) }
    }

    #[test]
    fn workers_share_threads_only_where_there_are_too_few_processing_units() {
        assert_eq!(divided(RuntimeBuilder::new(3), 3), (vec![vec![0], vec![1], vec![2]], false));
        assert_eq!(divided(RuntimeBuilder::new(3), 8), (vec![vec![0], vec![1], vec![2]], false));
        assert_eq!(divided(RuntimeBuilder::new(5), 2), (vec![vec![0, 1], vec![2, 3, 4]], false));
        assert_eq!(divided(RuntimeBuilder::new(2), 1), (vec![vec![0, 1]], false));
    }

    #[test]
    fn pinned_workers_share_only_what_they_are_pinned_to() {
        let one_each = pinned(vec![Some(0), Some(1), Some(2)], true);
        assert_eq!(divided(one_each, 1), (vec![vec![0], vec![1], vec![2]], false));
        let two_on_one = pinned(vec![Some(0), Some(1), Some(0)], true);
        assert_eq!(divided(two_on_one, 8), (vec![vec![0, 2], vec![1]], false));
        let not_pinned = pinned(vec![Some(0), Some(1), Some(0)], false);
        assert_eq!(divided(not_pinned, 8), (vec![vec![0], vec![1], vec![2]], false));
        let some = pinned(vec![Some(0), None, None], true);
        assert_eq!(divided(some, 2), (vec![vec![0], vec![1], vec![2]], true));
    }

    #[test]
    fn the_number_of_threads_may_be_told() {
        let told = |threads| RuntimeBuilder { threads: Some(threads), ..RuntimeBuilder::new(3) };
        assert_eq!(divided(told(1), 8), (vec![vec![0, 1, 2]], false));
        assert_eq!(divided(told(2), 1), (vec![vec![0], vec![1, 2]], true));
        assert_eq!(divided(told(100), 2), (vec![vec![0], vec![1], vec![2]], true));
    }
}
