//! Subordinates: transactions that do the part of a distributed transaction in this instance.
//!
//! A subordinate is a transaction of this instance like any other, whose home is the worker that has the link to its
//! coordinator; so its rows may be on all workers. It never runs a procedure: it is suspended from its beginning, and
//! enters its locks at once.

use std::rc::Rc;

use atrapos_durability::wal::{Epoch, GlobalId};
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::action::{
    Action, ActionBatch, CopiedRows, CopyRows, LockKey, Operation, PutImage, ReplaceImage,
};
use atrapos_partition::partition::{PartitionId, Tables};
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::range::KeyRange;
use atrapos_partition::routing::InstanceId;
use atrapos_partition::schema::TableId;
use atrapos_storage::lock::{LockMode, TxnId};
use atrapos_storage::{KeyBuf, Position};
use smallvec::SmallVec;

use super::hardening::{self, Due, InDoubt};
use super::steps::CommitStep;
use super::wire::{Bytes, FetchRequest, FetchTarget, Message, Put, Requests, Write, Writes};
use super::{Link, Peers, lose_link};
use crate::age::Age;
use crate::shard::EngineWorker;
use crate::tx::{
    Ending, PlannedPhase, Tx, TxnState, commit_subordinate, commit_subordinate_alone, end_subordinate,
    has_read_durable, observed, run_at_once,
};

/// Bytes of rows of a range in one reply, more or less.
const REPLY_BYTES: usize = 256 << 10;

/// A transaction that does the part of another one.
pub(super) struct Subordinate {
    pub(super) state: Rc<TxnState>,
    /// The link to its coordinator.
    link: Rc<Link>,
    /// The transaction as it has logged it, if it is prepared.
    prepared: Option<Prepared>,
}

/// A transaction that is prepared, as it is logged.
pub(super) struct Prepared {
    pub(super) of: GlobalId,
    /// The rows, as the coordinator has sent them ([`Writes`]).
    pub(super) rows: Vec<u8>,
}

/// The shape of what is copied for a request.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    /// Nothing but the lock.
    Lock,
    Row,
    Rows {
        from_end: bool,
    },
}

/// Locks and copies the rows of requests.
pub(super) fn on_fetch(
    worker: &Rc<EngineWorker>,
    peers: &Peers,
    link: &Rc<Link>,
    (of, age): (GlobalId, Age),
    (requests, positions): (Requests<'_>, &[Position]),
) -> Result<(), String> {
    let state = begin(worker, peers, link, of, age);
    if fetch_at_once(worker, peers, link, (&state, TxnId(of.txn)), (requests, positions))? {
        return Ok(());
    }
    let tag = worker.shard().tag;
    let mut wanted: SmallVec<[Wanted; 8]> = SmallVec::new();
    let mut actions: SmallVec<[Action<CopyRows>; 8]> = SmallVec::new();
    for request in requests.iter() {
        let FetchRequest { table, mode, target } = request.map_err(str::to_owned)?;
        let mut copy = CopyRows { rows_max: 0, bytes_max: REPLY_BYTES, backward: false };
        match target {
            FetchTarget::Key { key, copies } => {
                wanted.push(if copies { Wanted::Row } else { Wanted::Lock });
                actions.push(Action::on_key(table, tag, mode, KeyBuf::from(key), copy));
            }
            FetchTarget::Range { lower, upper, from_end, rows_max } => {
                wanted.push(Wanted::Rows { from_end });
                (copy.rows_max, copy.backward) = (rows_max.max(1) as usize, from_end);
                let range = KeyRange { lower: KeyBuf::from(lower), upper: upper.map(KeyBuf::from) };
                actions.push(Action::on_range(table, tag, mode, range, from_end, copy));
            }
        }
    }
    let (link, txn) = (Rc::clone(link), TxnId(of.txn));
    let reply = move |worker: &Rc<EngineWorker>, done: Result<ActionBatch, Abort>| {
        let Some(peers) = worker.shard().peers.get() else { return };
        let rows = done.map(|actions| encode_rows(actions.into_outputs::<CopyRows>(), &wanted));
        let is_durable = worker.shard().commit_waiters.is_none()
            || peers
                .subordinates
                .borrow()
                .get(&(link.instance, txn))
                .is_none_or(|known| has_read_durable(worker, &known.state));
        let result = rows.as_ref().map(|rows| Bytes(rows)).map_err(Clone::clone);
        // Rows that no message carries are refused; a coordinator that cannot be reached has been lost, and the link's end aborts
        // the subordinate.
        let is_released = false;
        if let Err(abort) = peers.send_on(&link, &Message::Fetched { txn, is_durable, is_released, result }) {
            let _ =
                peers.send_on(&link, &Message::Fetched { txn, is_durable, is_released, result: Err(abort) });
        }
    };
    run(worker, &state, actions.into_iter(), reply);
    Ok(())
}

/// Locks and copies the rows of requests, as [`on_fetch`] does, if all are for keys that are here and free. Returns false if not:
/// some of the locks are held then.
fn fetch_at_once(
    worker: &Rc<EngineWorker>,
    peers: &Peers,
    link: &Link,
    (state, txn): (&Rc<TxnState>, TxnId),
    (requests, positions): (Requests<'_>, &[Position]),
) -> Result<bool, String> {
    let shard = worker.shard();
    let mut places: SmallVec<[PartitionId; 8]> = SmallVec::new();
    for request in requests.iter() {
        let FetchRequest { table, mode, target } = request.map_err(str::to_owned)?;
        let FetchTarget::Key { key, .. } = target else { return Ok(false) };
        let lock = Action::on_key(table, shard.tag, mode, KeyBuf::from(key), LockKey);
        let Some(Ok((place, ()))) = run_at_once(worker, state, lock, None) else { return Ok(false) };
        places.push(place);
    }
    let is_durable = has_read_durable(worker, state);
    let tables = shard.tables.borrow();
    let head = Message::Fetched { txn, is_durable, is_released: false, result: Ok(Bytes(&[])) };
    let sent = send_copies(peers, link, (&head, &tables), (requests, positions), &places);
    if let Err(abort) = sent {
        let refused = Message::Fetched { txn, is_durable, is_released: false, result: Err(abort) };
        let _ = peers.send_on(link, &refused);
    }
    Ok(true)
}

/// Sends the copies of the rows of requests, all for keys in partitions that are here, behind the head of a message.
pub(super) fn send_copies(
    peers: &Peers,
    link: &Link,
    (head, tables): (&Message<'_>, &Tables),
    (requests, positions): (Requests<'_>, &[Position]),
    places: &[PartitionId],
) -> Result<(), Abort> {
    let copied = |at: usize, key: &[u8]| {
        let tree = tables.partition(places[at]).tree();
        let row = match positions.get(at) {
            Some(position) => tree.row_at(*position, key),
            None => tree.get(key),
        };
        row.map(|row| row.bytes)
    };
    let key_of = |request| match request {
        Ok(FetchRequest { target: FetchTarget::Key { key, copies: true }, .. }) => Some(key),
        _ => None,
    };
    if places.len() == 1
        && let Some(row) = requests.iter().next().and_then(|request| copied(0, key_of(request)?))
    {
        // From the tree into the channel: most often it is a single row.
        let write = |draft: &mut Vec<u8>| {
            head.encode(draft);
            draft.put_u8(1);
            draft.put_u32(row.len() as u32);
        };
        return peers.send_behind(link, write, row);
    }
    peers.send_written(link, |draft| {
        head.encode(draft);
        for (at, request) in requests.iter().enumerate() {
            if let Some(key) = key_of(request) {
                put_copy(draft, copied(at, key));
            }
        }
    })
}

/// Appends the copy of the row of a key, if there is one.
fn put_copy(out: &mut Vec<u8>, row: Option<&[u8]>) {
    out.put_u8(u8::from(row.is_some()));
    if let Some(row) = row {
        out.put_row(row);
    }
}

/// Returns the subordinate of a coordinator, which its first request creates.
fn begin(worker: &Rc<EngineWorker>, peers: &Peers, link: &Rc<Link>, of: GlobalId, age: Age) -> Rc<TxnState> {
    let coordinator = (link.instance, TxnId(of.txn));
    if let Some(known) = peers.subordinates.borrow().get(&coordinator) {
        return Rc::clone(&known.state);
    }
    let shard = worker.shard();
    let state = shard.take_state(worker);
    shard.ages.observe(age);
    state.age.set(age);
    state.coordinator.set(Some(of));
    state.ensure_known(worker);
    state.home.borrow_mut().suspended = true;
    let subordinate = Subordinate { state: Rc::clone(&state), link: Rc::clone(link), prepared: None };
    peers.subordinates.borrow_mut().insert(coordinator, subordinate);
    state
}

/// Runs actions for a subordinate, now if nothing has to wait, and hands the result to `reply`.
fn run<O: Operation>(
    worker: &Rc<EngineWorker>,
    state: &Rc<TxnState>,
    actions: impl Iterator<Item = Action<O>>,
    reply: impl FnOnce(&Rc<EngineWorker>, Result<ActionBatch, Abort>) + 'static,
) {
    let planned = plan(worker, state, ActionBatch::new(actions));
    let mut phase = match planned {
        Ok(phase) => phase,
        Err(abort) => return reply(worker, Err(abort)),
    };
    let tx = Tx::new(worker, state, None);
    match tx.run_now(&mut phase) {
        Ok(true) => reply(worker, Ok(phase.into_actions())),
        Err(abort) => reply(worker, Err(abort)),
        Ok(false) => {
            let (own, state) = (Rc::clone(worker), Rc::clone(state));
            worker.spawn(async move {
                let done = Tx::new(&own, &state, None).run_planned(phase).await;
                drop(state);
                reply(&own, done);
            });
        }
    }
}

/// Plans actions, all of which have to be on rows of this instance.
fn plan(
    worker: &Rc<EngineWorker>,
    state: &Rc<TxnState>,
    actions: ActionBatch,
) -> Result<Box<PlannedPhase>, Abort> {
    {
        let tables = worker.shard().tables.borrow();
        for request in actions.requests() {
            if request.table.at() >= tables.shards.len() {
                return Err(atrapos_partition::schema::unknown_table(request.table));
            }
            if InstanceId::of_owner(request.locate(&tables).1).is_some() {
                return Err(Abort::because(
                    AbortReason::Misuse,
                    "an instance was asked for a row that it does not own; give all instances the same division of the keys",
                ));
            }
        }
    }
    Tx::new(worker, state, None).plan(actions)
}

/// Encodes copies of rows as the coordinator expects them.
fn encode_rows(copied: impl Iterator<Item = CopiedRows>, wanted: &[Wanted]) -> Vec<u8> {
    let mut out = Vec::new();
    for (copied, wanted) in copied.zip(wanted) {
        match wanted {
            Wanted::Lock => {}
            Wanted::Row => {
                put_copy(&mut out, copied.iter().next().map(|(_, row)| row));
            }
            Wanted::Rows { from_end } => {
                out.put_u32(copied.rows.len() as u32);
                for (key, row) in copied.iter() {
                    out.put_key(key);
                    out.put_row(row);
                }
                let end = end_of(&copied, *from_end);
                out.put_u8(u8::from(end.is_some()));
                if let Some(end) = end {
                    out.put_key(&end);
                }
            }
        }
    }
    out
}

/// Returns the bound of the part of a range that was copied; `None` if it is the range.
fn end_of(copied: &CopiedRows, from_end: bool) -> Option<KeyBuf> {
    if copied.stopped {
        let (last, _) = copied.rows.last()?;
        let mut end = last.clone();
        if !from_end {
            // The smallest key after the last one.
            end.push(0);
        }
        return Some(end);
    }
    let rest = copied.rest.as_ref()?;
    if from_end { rest.upper.clone() } else { Some(rest.lower.clone()) }
}

/// Makes the changes of a subordinate, and votes; in one phase it commits. One without changes is released, and votes when what it
/// has read is durable.
pub(super) fn on_prepare(
    worker: &Rc<EngineWorker>,
    peers: &Peers,
    link: &Rc<Link>,
    (of, in_one_phase): (GlobalId, bool),
    (writes, positions): (Writes<'_>, &[Position]),
) -> Result<(), String> {
    let (coordinator, link) = ((link.instance, TxnId(of.txn)), Rc::clone(link));
    let known = peers.subordinates.borrow().get(&coordinator).map(|known| Rc::clone(&known.state));
    let Some(state) = known else {
        vote(worker, peers, link, of, Err(replaced()));
        return Ok(());
    };
    if (of.incarnation != 0) != worker.shard().commit_waiters.is_some() {
        return Err(MIXED.to_owned());
    }
    if writes.0.is_empty() {
        peers.subordinates.borrow_mut().remove(&coordinator);
        let epoch = observed(worker, &state);
        // Without changes this is a commit too; an access that a procedure has dropped may wait still.
        abort(worker, state, None);
        vote(worker, peers, link, of, Ok(epoch));
        return Ok(());
    }
    let rows = if worker.shard().commit_waiters.is_some() { writes.0.to_vec() } else { Vec::new() };
    let voting = move |worker: &Rc<EngineWorker>, done: Result<(), Abort>| {
        let Some(peers) = worker.shard().peers.get() else { return };
        let result = done.and_then(|()| {
            if in_one_phase {
                commit_alone(worker, peers, coordinator)
            } else {
                prepare(worker, peers, coordinator, Prepared { of, rows })
            }
        });
        if in_one_phase && result.is_err() {
            on_end(worker, peers, coordinator, false);
        }
        vote(worker, peers, link, of, result);
    };
    match change_at_once(worker, &state, (writes, positions), PutImage)? {
        Some(done) => {
            drop(state);
            voting(worker, done);
        }
        None => {
            let actions = changes(worker, writes, PutImage)?;
            run(worker, &state, actions.into_iter(), move |worker, done| voting(worker, done.map(drop)));
        }
    }
    Ok(())
}

/// Makes the changes of a subordinate, which nothing can prevent, and commits it. Its coordinator has committed: whatever becomes of
/// the link, it does too.
pub(super) fn on_commit(
    worker: &Rc<EngineWorker>,
    peers: &Peers,
    link: &Rc<Link>,
    txn: TxnId,
    (writes, positions): (Writes<'_>, &[Position]),
) -> Result<(), String> {
    if worker.shard().commit_waiters.is_some() {
        return Err(MIXED.to_owned());
    }
    let known = peers.subordinates.borrow_mut().remove(&(link.instance, txn));
    let Some(Subordinate { state, .. }) = known else {
        return Err("it commits a transaction that has no part here".to_owned());
    };
    if planted(Bug::ReleasedBeforeChanged) {
        worker.shard().finish_branch(
            worker,
            &mut state.home.borrow_mut(),
            state.txn(),
            Ending { commit: true, epoch: Epoch(0) },
        );
    }
    let replace = |image: Option<Vec<u8>>| ReplaceImage(image.unwrap_or_default());
    if let Some(done) = change_at_once(worker, &state, (writes, positions), replace)? {
        end_subordinate(worker, state, done.is_ok());
        return done.map_err(|abort| disagreement(&abort));
    }
    let (link, own) = (Rc::clone(link), Rc::clone(&state));
    let committed = move |worker: &Rc<EngineWorker>, done: Result<ActionBatch, Abort>| {
        end_subordinate(worker, own, done.is_ok());
        if let (Err(abort), Some(peers)) = (done, worker.shard().peers.get()) {
            lose_link(worker, peers, &link, &disagreement(&abort));
        }
    };
    run(worker, &state, changes(worker, writes, replace)?.into_iter(), committed);
    Ok(())
}

/// The sentence about a change that was told to be one that nothing can prevent.
#[cold]
fn disagreement(abort: &Abort) -> String {
    format!("a transaction that has committed there cannot be committed here: {abort}")
}

const MIXED: &str =
    "one of the two instances logs and the other does not; give all instances a directory, or none";

/// Makes the changes of a transaction at once, if all their rows are here and free; `None` if not: some may be made then, and are made
/// again.
fn change_at_once<O: Operation<Output = ()>>(
    worker: &EngineWorker,
    state: &Rc<TxnState>,
    (writes, positions): (Writes<'_>, &[Position]),
    operation: impl Fn(Option<Vec<u8>>) -> O,
) -> Result<Option<Result<(), Abort>>, String> {
    for (at, write) in writes.iter().enumerate() {
        let action = change(worker, write.map_err(str::to_owned)?, &operation);
        match run_at_once(worker, state, action, positions.get(at).copied()) {
            None => return Ok(None),
            Some(Err(abort)) => return Ok(Some(Err(abort))),
            Some(Ok(_)) => {}
        }
    }
    Ok(Some(Ok(())))
}

/// Returns the action that makes a change of a transaction.
fn change<O: Operation>(
    worker: &EngineWorker,
    Write { table, key, row }: Write<'_>,
    operation: impl Fn(Option<Vec<u8>>) -> O,
) -> Action<O> {
    let image = operation(row.map(<[u8]>::to_vec));
    Action::on_key(table, worker.shard().tag, LockMode::Exclusive, KeyBuf::from(key), image)
}

/// Returns the actions that make the changes of a transaction.
fn changes<O: Operation>(
    worker: &EngineWorker,
    writes: Writes<'_>,
    operation: impl Fn(Option<Vec<u8>>) -> O,
) -> Result<Vec<Action<O>>, String> {
    let action = |write: Result<Write<'_>, _>| Ok(change(worker, write.map_err(str::to_owned)?, &operation));
    writes.iter().map(action).collect()
}

/// The abort of a transaction whose subordinate has gone with a link.
#[cold]
fn replaced() -> Abort {
    Abort::because(
        AbortReason::Unreachable,
        "the link between two instances was replaced while the transaction ran; run it again",
    )
}

/// Votes: to commit when an epoch is durable, or to abort.
fn vote(worker: &EngineWorker, peers: &Peers, link: Rc<Link>, of: GlobalId, result: Result<Epoch, Abort>) {
    let txn = TxnId(of.txn);
    match result {
        Ok(epoch) => peers.when_durable(worker, epoch, Due::Vote { link, txn }),
        Err(abort) => {
            let _ = peers.send_on(&link, &Message::Vote { txn, result: Err(abort) });
        }
    }
}

/// Commits a subordinate that has the only changes. Returns the epoch to wait for.
fn commit_alone(
    worker: &EngineWorker,
    peers: &Peers,
    coordinator: (InstanceId, TxnId),
) -> Result<Epoch, Abort> {
    let known = peers.subordinates.borrow_mut().remove(&coordinator);
    let logged = commit_subordinate_alone(worker, known.ok_or_else(replaced)?.state)?;
    peers.reached(CommitStep::CommittedAlone);
    Ok(logged)
}

/// Logs that a subordinate is prepared. Returns the epoch to wait for.
fn prepare(
    worker: &EngineWorker,
    peers: &Peers,
    coordinator: (InstanceId, TxnId),
    prepared: Prepared,
) -> Result<Epoch, Abort> {
    let mut subordinates = peers.subordinates.borrow_mut();
    let known = subordinates.get_mut(&coordinator).ok_or_else(replaced)?;
    let epoch = hardening::log_prepared(worker, &prepared)?;
    if worker.shard().commit_waiters.is_some() {
        known.prepared = Some(prepared);
        peers.reached(CommitStep::PreparedLogged);
    }
    if planted(Bug::PreparedNotLocked) {
        let early = subordinates.remove(&coordinator);
        drop(subordinates);
        early.into_iter().for_each(|early| end_subordinate(worker, early.state, true));
    }
    Ok(epoch)
}

/// Ends a subordinate as its coordinator has decided.
pub(super) fn on_end(worker: &EngineWorker, peers: &Peers, coordinator: (InstanceId, TxnId), commit: bool) {
    let known = peers.subordinates.borrow_mut().remove(&coordinator);
    let Some(Subordinate { state, prepared, .. }) = known else { return };
    match prepared {
        Some(Prepared { of, .. }) if commit => {
            commit_subordinate(worker, state, || hardening::ended(of));
        }
        _ if commit => end_subordinate(worker, state, true),
        prepared => abort(worker, state, prepared.map(|prepared| prepared.of)),
    }
}

/// Aborts a subordinate, which may have been prepared.
fn abort(worker: &EngineWorker, state: Rc<TxnState>, prepared: Option<GlobalId>) {
    // A task that runs its actions may wait, and must not go on with the next one.
    state.doom(&replaced());
    if let Some(of) = prepared {
        hardening::log_aborted(worker, of);
    }
    end_subordinate(worker, state, false);
}

/// Ends a prepared subordinate as its home has decided, and acknowledges a commit when that is durable.
pub(super) fn on_outcome(worker: &EngineWorker, peers: &Peers, of: GlobalId, commit: bool) {
    let coordinator = (InstanceId(of.instance), TxnId(of.txn));
    let in_doubt = peers.hardening.in_doubt.borrow_mut().remove(&of).map(|doubt| doubt.state);
    let state = in_doubt.or_else(|| {
        let mut subordinates = peers.subordinates.borrow_mut();
        let known = subordinates.get(&coordinator)?;
        known.prepared.as_ref().filter(|prepared| prepared.of == of)?;
        subordinates.remove(&coordinator).map(|known| known.state)
    });
    match state {
        Some(state) if commit => {
            let epoch = commit_subordinate(worker, state, || hardening::ended(of));
            peers.reached(CommitStep::EndLogged);
            peers.when_durable(worker, epoch, Due::Acknowledge(of));
        }
        Some(state) => abort(worker, state, Some(of)),
        None if commit => hardening::acknowledge_again(worker, peers, of),
        None => {}
    }
}

/// Aborts the subordinates whose coordinators cannot be reached any more, since a link has ended; the prepared ones are in doubt.
pub(super) fn on_lost(worker: &Rc<EngineWorker>, peers: &Peers, link: &Rc<Link>) {
    let subordinates = peers.subordinates.borrow();
    let orphans = subordinates.iter().filter(|(_, known)| Rc::ptr_eq(&known.link, link));
    let orphans: Vec<(InstanceId, TxnId)> = orphans.map(|(coordinator, _)| *coordinator).collect();
    drop(subordinates);
    for orphan in orphans {
        let known = peers.subordinates.borrow_mut().remove(&orphan);
        match known {
            Some(Subordinate { state, prepared: Some(prepared), .. }) => {
                peers.hardening.in_doubt.borrow_mut().insert(prepared.of, InDoubt { state, prepared });
            }
            Some(Subordinate { state, prepared: None, .. }) => abort(worker, state, None),
            None => {}
        }
    }
}

/// Looks at what is prepared and not in doubt.
pub(super) fn each_prepared(peers: &Peers, look: impl FnMut(&Prepared)) {
    peers.subordinates.borrow().values().filter_map(|known| known.prepared.as_ref()).for_each(look);
}

/// Returns the table and the key of each row of a prepared transaction, as it is logged.
pub fn rows_of_prepared(rows: &[u8]) -> impl Iterator<Item = Result<(TableId, &[u8]), &'static str>> {
    Writes(rows).iter().map(|write| write.map(|write| (write.table, write.key)))
}

/// Brings back transactions that the WAL has as prepared, with their locks and changes: they are in doubt. Nothing else may run before.
///
/// # Errors
/// Rows that cannot be read, or changed again.
pub async fn recover_prepared(worker: &Rc<EngineWorker>, all: Vec<(GlobalId, Vec<u8>)>) -> Result<(), Abort> {
    let Some(peers) = worker.shard().peers.get() else { return Ok(()) };
    for (of, rows) in all {
        let actions = changes(worker, Writes(&rows), PutImage).map_err(|what| {
            let sentence = format!(
                "the WAL has a prepared transaction that cannot be read ({what}); it was written by another version of atrapos, \
                 or by a bug"
            );
            Abort::explained(AbortReason::Corruption, sentence)
        })?;
        let state = worker.shard().take_state(worker);
        state.coordinator.set(Some(of));
        state.ensure_known(worker);
        state.home.borrow_mut().suspended = true;
        let mut phase = plan(worker, &state, ActionBatch::new(actions.into_iter()))?;
        let tx = Tx::new(worker, &state, None);
        if !tx.run_now(&mut phase)? {
            tx.run_planned(phase).await?;
        }
        let in_doubt = InDoubt { state: Rc::clone(&state), prepared: Prepared { of, rows } };
        peers.hardening.in_doubt.borrow_mut().insert(of, in_doubt);
    }
    Ok(())
}
