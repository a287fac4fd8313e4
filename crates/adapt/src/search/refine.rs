//! Both kinds of change on the whole objective: boundaries shift, partitions move.
//!
//! Owns: the last improvement of a scheme. Never: makes the objective worse.

use super::{partitioning, placement, state::State};

/// Greatest number of rounds.
const ROUNDS_MAX: usize = 12;

/// Shifts boundaries, moves partitions, and runs both algorithms again, until a round changes nothing or until `effort`
/// evaluations are spent.
pub(crate) fn improve(state: &mut State<'_>, effort: u64) {
    let end = state.effort + effort;
    for _ in 0..ROUNDS_MAX {
        let before = state.objective;
        shift_boundaries(state, end);
        move_partitions(state, end);
        partitioning::improve(state, end.saturating_sub(state.effort) / 4);
        placement::improve(state, end.saturating_sub(state.effort) / 2);
        if state.effort >= end || state.objective >= before * (1.0 - 1e-6) {
            break;
        }
    }
}

/// Lets each partition take from its neighbours, one slice or several at a time.
fn shift_boundaries(state: &mut State<'_>, end: u64) {
    for table in state.problem.tables() {
        let mut at = table.start + 1;
        while at < table.end && state.effort < end {
            let (left, right) = (state.owner[at - 1], state.owner[at]);
            if left != right {
                let left_length = at - state.partition_around(at - 1).start;
                let right_length = state.partition_around(at).end - at;
                for length in [1, 2, 4] {
                    let moved = (length <= right_length && state.move_if_better(at..at + length, left))
                        || (length <= left_length && state.move_if_better(at - length..at, right));
                    if moved {
                        break;
                    }
                }
            }
            at += 1;
        }
    }
}

/// Lets each partition go to a neighbour's owner, to the least loaded worker, or to one that it meets.
fn move_partitions(state: &mut State<'_>, end: u64) {
    for table in state.problem.tables() {
        let mut from = table.start;
        while from < table.end && state.effort < end {
            let partition = state.partition_around(from);
            from = partition.end;
            let mut targets = Vec::new();
            if partition.start > table.start {
                targets.push(state.owner[partition.start - 1]);
            }
            if partition.end < table.end {
                targets.push(state.owner[partition.end]);
            }
            let least =
                state.problem.available.iter().min_by(|a, b| {
                    state.load[**a as usize].total_cmp(&state.load[**b as usize]).then(a.cmp(b))
                });
            targets.extend(least);
            targets.dedup();
            for target in targets {
                if state.move_if_better(partition.clone(), target) {
                    break;
                }
            }
        }
    }
}
