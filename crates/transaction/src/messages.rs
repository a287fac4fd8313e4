//! Every message between workers.
//!
//! A message is a closure that calls the handler named below, an `on_*` function, on the receiver's thread between two
//! of its tasks. Messages from one worker to another arrive in the order in which they were sent, each once, as long as
//! the receiver lives; messages of different senders arrive in any order. No handler waits: an action that needs a lock
//! that is not free continues as a task.
//!
//! | message | sender | receiver | handler | relies on |
//! |---|---|---|---|---|
//! | procedure | the worker of a session | the home that its route names | [`on_procedure`], [`on_stored`] | nothing: a home that no longer owns the key runs it all the same |
//! | action, actions | the home, or a worker that passes them on | the owner of the data, as the sender knows it | [`on_action`], [`on_actions`] | a partition that has moved on arrives before the actions that follow it there |
//! | reply to them | the owner | the home, or the worker that passed them on | the future that waits for the call | comes before the receiver sends the end |
//! | rollback | the home, or a worker that sent data or actions on | a participant | [`on_rollback`] | comes after every partition that the sender sent to it; no action of the transaction is under way |
//! | end | the home, or a worker that sent data or actions on | a participant | [`on_end`](crate::shard::Shard::on_end) | comes after every action and partition that the sender sent to it for the transaction |
//! | long wait | a worker on which a transaction waits | its home | [`on_long_wait`](deadlock::on_long_wait) | nothing: a transaction that has ended is not found |
//! | probe | the home of a transaction that waits | its participants, and the workers to which they sent data or actions on | [`on_probe`](deadlock::on_probe) | nothing: a wait that has ended is not found |
//! | probe at home | a worker on which a transaction waits | the home of one that it waits for | [`on_probe_at_home`](deadlock::on_probe_at_home) | nothing |
//! | probe again | a worker that a probe reaches a second time | the home of that transaction | [`on_probe_again`](deadlock::on_probe_again) | nothing |
//! | victim | the home that found a cycle closed | the home of the victim | [`on_victim`](deadlock::on_victim) | nothing |
//! | refuse waits | the home of the victim | its participants, and the workers to which they sent data or actions on | [`on_refuse_waits`](deadlock::on_refuse_waits) | nothing: a lock granted meanwhile stays granted |
//! | change of a scheme | the worker that carries out a plan | the owner of the partition | `on_split`, `on_merge`, `on_move` of `repartition` | one change at a time in the database |
//! | partition | the owner before | the owner after | `on_partition` of `repartition` | comes before every action, end and wait that the sender passes on for it |
//! | scheme | the worker that carries out a plan | all others | `on_scheme` of `repartition` | nothing: a scheme older than the known one is dropped |
//! | lent partition | the owner of a partition of a shared table | a worker that reads it | `on_lent` of [`lending`](crate::lending) | comes before a recall of it |
//! | recall | the owner | a borrower | `on_recall` of [`lending`](crate::lending) | nothing: what was given back already is not found |
//! | partition given back | a borrower | the owner | `on_given_back` of [`lending`](crate::lending) | comes before the answer to the recall, and before every end that the borrower sends for the transactions whose locks it has |
//! | hold off, allow | whoever changes more than rows | all workers | `hold_off` and `allow` of [`lending`](crate::lending) | nothing: they are counted |
//! | fence | the worker that carries out a plan | all workers | answered at once | comes after every scheme that the sender sent |
//!
//! Jobs of the engine itself ([`crate::jobs`]) and clients' procedures come from threads that are not workers, by
//! control lanes and inboxes; the engine relies on no order between those and messages.

use std::ops::Range;

use atrapos_durability::wal::Epoch;
use atrapos_partition::action::{Action, ErasedOperation};
use atrapos_partition::undo::Mark;
use atrapos_runtime::{Call, WorkerId};
use atrapos_storage::lock::TxnId;

use crate::deadlock::{self, home_of};
use crate::distributed::GlobalProbe;
use crate::procedure::{Procedure, ProcedureReply, on_procedure};
use crate::session::{SentWith, on_stored};
use crate::shard::EngineWorker;
use crate::stored::StoredProcedure;
use crate::tx::{ActionReply, Origin, PlannedPhase, on_action, on_actions, on_rollback};

/// Sends a procedure to its home.
pub(crate) fn call_procedure<R: Send + 'static>(
    worker: &EngineWorker,
    home: WorkerId,
    procedure: impl Procedure<R>,
    is_early: bool,
    class: &'static str,
) -> Call<ProcedureReply<R>> {
    worker.call(home, move |worker, reply| on_procedure(worker, procedure, (is_early, class), reply))
}

/// Sends a stored procedure to its home.
pub(crate) fn call_stored<P: StoredProcedure>(
    worker: &EngineWorker,
    home: WorkerId,
    procedure: P,
    tables: P::Tables,
    with: SentWith,
) -> Call<ProcedureReply<P::Result>> {
    worker.call(home, move |worker, reply| on_stored(worker, procedure, tables, with, reply))
}

/// Sends an action to the owner of its data.
pub(crate) fn call_action(
    worker: &EngineWorker,
    owner: WorkerId,
    origin: Origin,
    action: Action<ErasedOperation>,
) -> Call<ActionReply<ErasedOperation>> {
    worker.call(owner, move |worker, reply| on_action(worker, origin, action, reply))
}

/// Sends a phase to the common owner of the data of a group of its actions.
pub(crate) fn call_actions(
    worker: &EngineWorker,
    owner: WorkerId,
    origin: Origin,
    phase: Box<PlannedPhase>,
    group: Range<usize>,
) -> Call<ActionReply<Box<PlannedPhase>>> {
    worker.call(owner, move |worker, reply| on_actions(worker, origin, phase, group, reply))
}

/// Calls a participant to undo the changes of a transaction in a range of marks.
pub(crate) fn call_rollback(
    worker: &EngineWorker,
    participant: WorkerId,
    txn: TxnId,
    time: Range<Mark>,
) -> Call<()> {
    worker.call(participant, move |worker, reply| on_rollback(worker, txn, time, reply))
}

/// Sends the end of a transaction, a commit or an abort, to a participant.
pub(crate) fn send_end(worker: &EngineWorker, participant: WorkerId, txn: TxnId, commit: bool, epoch: Epoch) {
    worker.send(participant, move |worker| worker.shard().on_end(worker, txn, commit, epoch));
}

/// Notifies the home of a transaction that it has waited for long.
pub(crate) fn send_long_wait(worker: &EngineWorker, round: u64, txn: TxnId) {
    worker.send(home_of(txn), move |worker| deadlock::on_long_wait(worker, round, txn));
}

/// Sends a probe to a worker on which `waiter` may wait.
pub(crate) fn send_probe(worker: &EngineWorker, to: WorkerId, probe: GlobalProbe, waiter: TxnId) {
    worker.send(to, move |worker| deadlock::on_probe(worker, probe, waiter));
}

/// Sends a probe to the home of `blocker`, for which a transaction waits.
pub(crate) fn send_probe_home(worker: &EngineWorker, probe: GlobalProbe, blocker: TxnId) {
    worker.send(home_of(blocker), move |worker| deadlock::on_probe_at_home(worker, probe, blocker));
}

/// Notifies the home of a transaction that a probe has reached it again.
pub(crate) fn send_probe_again(worker: &EngineWorker, round: u64, met: TxnId) {
    worker.send(home_of(met), move |worker| deadlock::on_probe_again(worker, round, met));
}

/// Notifies the home of a transaction that it is the victim of a cycle.
pub(crate) fn send_victim(worker: &EngineWorker, round: u64, victim: TxnId) {
    worker.send(home_of(victim), move |worker| deadlock::on_victim(worker, round, victim));
}

/// Sends the request to refuse the lock requests of a victim to a worker on which it may wait.
pub(crate) fn send_refuse_waits(worker: &EngineWorker, to: WorkerId, round: u64, victim: TxnId) {
    worker.send(to, move |worker| deadlock::on_refuse_waits(worker, round, victim));
}
