//! Subordinates: transactions that do the part of a distributed transaction in this instance.
//!
//! A subordinate is a transaction of this instance like any other, whose home is the worker that has the link to its
//! coordinator; so its rows may be on all workers. It never runs a procedure: it is suspended from its beginning, and
//! enters its locks at once.

use std::rc::Rc;

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::action::{Action, ActionBatch, CopiedRows, CopyRows, Operation, PutImage};
use atrapos_partition::range::KeyRange;
use atrapos_partition::routing::InstanceId;
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::{LockMode, TxnId};
use smallvec::SmallVec;

use super::wire::{Bytes, FetchRequest, FetchTarget, Message, Put, Requests, Writes};
use super::{GlobalTxn, Link, Peers};
use crate::age::Age;
use crate::shard::EngineWorker;
use crate::tx::{PlannedPhase, Tx, TxnState, end_subordinate};

/// Bytes of rows of a range in one reply, more or less.
const REPLY_BYTES: usize = 256 << 10;

/// A transaction that does the part of another one.
pub(super) struct Subordinate {
    pub(super) state: Rc<TxnState>,
    /// The link to its coordinator.
    link: Rc<Link>,
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
    (txn, age): (TxnId, Age),
    requests: Requests<'_>,
) -> Result<(), String> {
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
    let state = begin(worker, peers, link, txn, age);
    let link = Rc::clone(link);
    let reply = move |worker: &EngineWorker, done: Result<ActionBatch, Abort>| {
        let Some(peers) = worker.shard().peers.get() else { return };
        let rows = done.map(|actions| encode_rows(actions.into_outputs::<CopyRows>(), &wanted));
        let result = rows.as_ref().map(|rows| Bytes(rows)).map_err(Clone::clone);
        // Rows that no message carries are refused; a coordinator that cannot be reached has been lost, and the link's end aborts
        // the subordinate.
        if let Err(abort) = peers.send_on(&link, &Message::Fetched { txn, result }) {
            let _ = peers.send_on(&link, &Message::Fetched { txn, result: Err(abort) });
        }
    };
    run(worker, &state, actions.into_iter(), reply);
    Ok(())
}

/// Returns the subordinate of a coordinator, which its first request creates.
fn begin(worker: &Rc<EngineWorker>, peers: &Peers, link: &Rc<Link>, txn: TxnId, age: Age) -> Rc<TxnState> {
    let coordinator = GlobalTxn { instance: link.instance, txn };
    if let Some(known) = peers.subordinates.borrow().get(&(coordinator.instance, txn)) {
        return Rc::clone(&known.state);
    }
    let shard = worker.shard();
    let state = shard.take_state(worker);
    shard.ages.observe(age);
    state.age.set(age);
    state.coordinator.set(Some(coordinator));
    state.ensure_known(worker);
    state.home.borrow_mut().suspended = true;
    let subordinate = Subordinate { state: Rc::clone(&state), link: Rc::clone(link) };
    peers.subordinates.borrow_mut().insert((coordinator.instance, txn), subordinate);
    state
}

/// Runs actions for a subordinate, now if nothing has to wait, and hands the result to `reply`.
fn run<O: Operation>(
    worker: &Rc<EngineWorker>,
    state: &Rc<TxnState>,
    actions: impl Iterator<Item = Action<O>>,
    reply: impl FnOnce(&EngineWorker, Result<ActionBatch, Abort>) + 'static,
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
                let row = copied.iter().next().map(|(_, row)| row);
                out.put_u8(u8::from(row.is_some()));
                if let Some(row) = row {
                    out.put_row(row);
                }
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

/// Makes the changes of a subordinate, and votes; in one phase it commits.
pub(super) fn on_prepare(
    worker: &Rc<EngineWorker>,
    peers: &Peers,
    link: &Rc<Link>,
    (txn, in_one_phase): (TxnId, bool),
    writes: Writes<'_>,
) -> Result<(), String> {
    let tag = worker.shard().tag;
    let mut actions: SmallVec<[Action<PutImage>; 8]> = SmallVec::new();
    for write in writes.iter() {
        let write = write.map_err(str::to_owned)?;
        let image = PutImage(write.row.map(<[u8]>::to_vec));
        let key = KeyBuf::from(write.key);
        actions.push(Action::on_key(write.table, tag, LockMode::Exclusive, key, image));
    }
    let (from, link) = (link.instance, Rc::clone(link));
    let vote = move |worker: &EngineWorker, done: Result<ActionBatch, Abort>| {
        let Some(peers) = worker.shard().peers.get() else { return };
        let result = done.map(drop);
        if in_one_phase {
            on_end(worker, peers, (from, txn), result.is_ok());
        }
        let _ = peers.send_on(&link, &Message::Vote { txn, result });
    };
    let known = peers.subordinates.borrow().get(&(from, txn)).map(|known| Rc::clone(&known.state));
    match known {
        Some(state) => run(worker, &state, actions.into_iter(), vote),
        None => vote(
            worker,
            Err(Abort::because(
                AbortReason::Unreachable,
                "the link between two instances was replaced while the transaction ran; run it again",
            )),
        ),
    }
    Ok(())
}

/// Ends a subordinate as its coordinator has decided.
pub(super) fn on_end(worker: &EngineWorker, peers: &Peers, coordinator: (InstanceId, TxnId), commit: bool) {
    let known = peers.subordinates.borrow_mut().remove(&coordinator);
    if let Some(Subordinate { state, .. }) = known {
        if !commit {
            // A task that runs its actions may wait, and must not go on with the next one.
            state.doom(&super::unreachable(coordinator.0));
        }
        end_subordinate(worker, state, commit);
    }
}

/// Aborts the subordinates whose coordinators cannot be reached any more, since a link has ended.
pub(super) fn on_lost(worker: &Rc<EngineWorker>, peers: &Peers, link: &Rc<Link>) {
    let subordinates = peers.subordinates.borrow();
    let orphans = subordinates.iter().filter(|(_, known)| Rc::ptr_eq(&known.link, link));
    let orphans: Vec<(InstanceId, TxnId)> = orphans.map(|(coordinator, _)| *coordinator).collect();
    drop(subordinates);
    for orphan in orphans {
        on_end(worker, peers, orphan, false);
    }
}
