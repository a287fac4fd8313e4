//! Accesses to rows of other instances at the home of their transaction: rows are asked for, and operations run on them when they
//! have come, on staged rows or on the copies in the reply.
//!
//! Invariants
//! - Operations run on copies only if the transaction runs none after them.
//! - A change that was made on a copy is the only one in other instances, and is no change of a staged row.

use std::mem::{replace, take};

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::action::{
    Action, ActionBatch, CopiedRow, DependentAction, ErasedOperation, Operation, PutImage, Request,
};
use atrapos_partition::panic_guard::PanicGuard;
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::range::KeyRange;
use atrapos_partition::routing::InstanceId;
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::{LockMode, LockTarget};

use super::super::staged::{BYTES_AT_ONCE, Staged};
use super::super::unreachable;
use super::super::wire::{Bytes, FetchRequest, FetchTarget, Message, Nonsense, Requests, Write};
use super::{Asked, Remote, Walk, replies, with_remote};
use crate::trace::Stage;
use crate::tx::{Chosen, Tx, TxnState};

/// Rows of the first slice of a range, and of the first one if all of them will be changed.
const ROWS_FIRST: u32 = 16;
const ROWS_FIRST_CHANGED: u32 = 256;

/// Rows of a slice, at most.
const ROWS_MAX: u32 = 4096;

impl Walk {
    /// Returns the number of rows of the next slice of a range.
    fn rows(&mut self, request: &Request) -> u32 {
        let LockTarget::Range { lower, upper } = &request.target else { return 0 };
        let goes_on = self.table == request.table
            && self.rows > 0
            && if request.from_end { upper.as_ref() == Some(&self.end) } else { *lower == self.end };
        let first = if request.mode == LockMode::Exclusive { ROWS_FIRST_CHANGED } else { ROWS_FIRST };
        self.rows = if goes_on { (4 * self.rows).min(ROWS_MAX) } else { first };
        self.table = request.table;
        self.rows
    }
}

impl Tx<'_> {
    /// Runs one action on rows of another instance.
    pub(crate) async fn run_remote(
        &self,
        instance: InstanceId,
        action: Action<ErasedOperation>,
    ) -> Result<ErasedOperation, Abort> {
        let mut actions = ActionBatch::new(std::iter::once(action));
        self.run_group_remote(instance, &mut actions, Chosen::All, self.is_last()).await?;
        let done = actions.into_outputs::<ErasedOperation>().next();
        Ok(done.unwrap_or_else(|| unreachable!("the action has run")))
    }

    /// Runs some actions of a batch, all on rows of one other instance, in their order; `is_last` if the transaction runs no others
    /// after them. The futures from here on are copied when they are awaited first, so what they need is in [`Remote`].
    pub(crate) async fn run_group_remote(
        &self,
        instance: InstanceId,
        actions: &mut ActionBatch,
        chosen: Chosen<'_>,
        is_last: bool,
    ) -> Result<(), Abort> {
        let has_asked = self.ask_and_wait(instance, actions.requests(), chosen, is_last).await?;
        let ran = self.run_on_staged(instance, actions, chosen, has_asked);
        ran.inspect_err(|abort| self.state().doom(abort))
    }

    /// Asks an instance for the rows of actions, and waits until they are there. Returns false if the transaction has had all of them.
    pub(crate) async fn ask_and_wait(
        &self,
        instance: InstanceId,
        requests: &[Request],
        chosen: Chosen<'_>,
        is_last: bool,
    ) -> Result<bool, Abort> {
        let asked = self.ask_for_rows(instance, requests, chosen, is_last);
        let done = match asked {
            Ok(true) => self.suspend(replies(self.state())).await.map(|()| true),
            asked => asked,
        };
        done.inspect_err(|abort| self.state().doom(abort))
    }

    /// Returns true if the operations whose rows have just come run on the copies in the reply.
    pub(crate) fn runs_on_copies(&self) -> bool {
        with_remote(self.state(), |remote| remote.runs_on_copies)
    }

    /// Asks an instance for the rows of actions that the transaction has not got yet. Returns false if it has all of them.
    fn ask_for_rows(
        &self,
        instance: InstanceId,
        requests: &[Request],
        chosen: Chosen<'_>,
        is_last: bool,
    ) -> Result<bool, Abort> {
        let (worker, state) = (self.worker(), self.state());
        let shard = worker.shard();
        let Some(peers) = shard.peers.get() else { return Err(unreachable(instance)) };
        let txn = state.ensure_known(worker);
        state.begin_remote(|| Remote::begin(peers, worker));
        shard.stats.remote_actions.add(chosen.count(requests) as u64);
        with_remote(state, |remote| {
            let is_new = remote.add_subordinate(instance)?;
            remote.staged.reach(self.mark());
            let only_reads = requests_of(remote, self, requests, chosen);
            if remote.asked.is_empty() {
                return Ok(false);
            }
            remote.await_rows(worker.current_task());
            let (incarnation, age) = (peers.incarnation(), state.age.get());
            let is_last = (is_last || planted(Bug::ReleasedBeforeLast)) && is_new;
            remote.runs_on_copies = is_last && (only_reads || remote.has_one_change(requests, worker));
            let is_last = is_last && only_reads;
            let requests = Requests(&remote.requests);
            peers.send(instance, &Message::Fetch { txn, incarnation, age, is_last, requests })?;
            state.trace.event(worker, Stage::Execute, || {
                format!("asks {instance} for rows ({} requests)", remote.asked.len())
            });
            Ok(true)
        })
    }

    /// Stages rows that have come, if any were asked for, and runs actions on staged rows, or on the copies.
    pub(crate) fn run_on_staged(
        &self,
        instance: InstanceId,
        actions: &mut ActionBatch,
        chosen: Chosen<'_>,
        has_asked: bool,
    ) -> Result<(), Abort> {
        let state = self.state();
        let panic_guard = PanicGuard::enter();
        let ran = with_remote(state, |remote| {
            let mut dependents = state.dependents.borrow_mut();
            if has_asked && remote.runs_on_copies {
                close(state);
                return run_on_copies(remote, instance, actions, &mut dependents)
                    .map_err(|what| senseless(instance, what))?;
            }
            if has_asked {
                stage(remote, actions).map_err(|what| senseless(instance, what))??;
            }
            let mut places = 0..chosen.count(actions.requests());
            places.try_for_each(|place| run_staged(remote, actions, chosen.at(place), &mut dependents))
        });
        panic_guard.leave();
        ran
    }

    /// Runs operations of one kind, all for single keys, on the copies that have come, and hands each result to `take`. What needs more
    /// than the copy of its row runs on a staged one.
    pub(crate) fn run_on_copies<O: Operation>(
        &self,
        instance: InstanceId,
        requests: Vec<Request>,
        operations: Vec<O>,
        take: &mut impl FnMut(O::Output),
    ) -> Result<(), Abort> {
        let state = self.state();
        let panic_guard = PanicGuard::enter();
        close(state);
        let ran = with_remote(state, |remote| {
            let (reply, mut changed) =
                (std::mem::take(&mut remote.reply), std::mem::take(&mut remote.changed_row));
            let mut rows = Bytes(&reply);
            let ran = requests.into_iter().zip(operations).try_for_each(|(request, operation)| {
                let row = next_copy(&mut rows).map_err(|what| senseless(instance, what))?;
                changed.clear();
                let buffer = (request.mode == LockMode::Exclusive).then_some(&mut changed);
                let mut copy = CopiedRow { row, changed: buffer, is_changed: false };
                match operation.apply_to_copy(&mut copy) {
                    Ok(done) => {
                        take(done?);
                        if copy.is_changed {
                            keep_change(remote, instance, &request, row, &changed)
                        } else {
                            Ok(())
                        }
                    }
                    Err(operation) => {
                        remote.staged.add(request.table, request.key(), request.mode, row)?;
                        let mut alone = ActionBatch::of_parts(vec![request], std::iter::once(operation));
                        run_staged(remote, &mut alone, 0, &mut state.dependents.borrow_mut())?;
                        alone.into_outputs::<O>().for_each(&mut *take);
                        Ok(())
                    }
                }
            });
            (remote.reply, remote.changed_row) = (reply, changed);
            ran
        });
        panic_guard.leave();
        ran
    }
}

/// Closes a transaction whose last operations run on copies: its locks there are released, or it tells its only change with its end.
fn close(state: &TxnState) {
    if !planted(Bug::ReleasedBeforeLast) {
        state.close();
    }
}

/// The abort of a transaction that was sent a reply which cannot be read.
#[cold]
fn senseless(instance: InstanceId, what: Nonsense) -> Abort {
    let sentence = format!(
        "the reply of {instance} makes no sense ({what}); use the same version of the program everywhere"
    );
    Abort::explained(AbortReason::Corruption, sentence)
}

/// Reads the copy of the row of a key that comes next in a reply; `None` if there is no row.
fn next_copy<'a>(rows: &mut Bytes<'a>) -> Result<Option<&'a [u8]>, Nonsense> {
    if rows.bool()? { rows.row().map(Some) } else { Ok(None) }
}

/// Encodes the requests of actions for what the transaction has not got yet. Returns true if all of them are to read keys.
fn requests_of(remote: &mut Remote, tx: &Tx<'_>, requests: &[Request], chosen: Chosen<'_>) -> bool {
    let Remote { requests: out, asked, staged, walk, covered, .. } = remote;
    out.clear();
    asked.clear();
    covered.clear();
    let mut only_reads = true;
    for at in (0..chosen.count(requests)).map(|place| chosen.at(place)) {
        let request = &requests[at];
        let Request { table, mode, from_end, ref target, .. } = *request;
        match target {
            LockTarget::Key(key) => {
                let held = staged.lock_on(table, key);
                if held.is_some_and(|held| held == LockMode::Exclusive || mode == LockMode::Shared) {
                    continue;
                }
                let copies = held.is_none();
                only_reads &= copies && mode == LockMode::Shared;
                asked.push(Asked { at, copies, range: None });
                FetchRequest { table, mode, target: FetchTarget::Key { key, copies } }.encode(out);
            }
            LockTarget::Range { lower, upper } => {
                only_reads = false;
                let all = || KeyRange { lower: lower.clone(), upper: upper.clone() };
                let part = tx.part_of_owner(request).unwrap_or_else(all);
                let rows_max = walk.rows(request);
                let (lower, upper) = (&*part.lower, part.upper.as_deref());
                FetchRequest { table, mode, target: FetchTarget::Range { lower, upper, from_end, rows_max } }
                    .encode(out);
                asked.push(Asked { at, copies: false, range: Some(Box::new(part)) });
            }
        }
    }
    only_reads
}

/// Stages the rows of a reply, and notes the parts of ranges that they are all rows of.
fn stage(remote: &mut Remote, actions: &ActionBatch) -> Result<Result<(), Abort>, Nonsense> {
    let Remote { staged, walk, asked, covered, reply, .. } = remote;
    let mut rows = Bytes(reply);
    for Asked { at, copies, range } in asked.drain(..) {
        let request = &actions.requests()[at];
        let Request { table, mode, .. } = *request;
        if let Some(mut part) = range {
            if let Err(abort) = stage_range((staged, walk), request, &mut part, &mut rows)? {
                return Ok(Err(abort));
            }
            covered.push((at, *part));
            continue;
        }
        let row = if copies { next_copy(&mut rows)? } else { None };
        if let Err(abort) = staged.add(table, request.key(), mode, row) {
            return Ok(Err(abort));
        }
    }
    Ok(Ok(()))
}

/// Runs actions, all for single keys, on the copies in a reply. What needs more than the copy of its row runs on a staged one.
fn run_on_copies(
    remote: &mut Remote,
    instance: InstanceId,
    actions: &mut ActionBatch,
    dependents: &mut Vec<DependentAction>,
) -> Result<Result<(), Abort>, Nonsense> {
    let (reply, mut asked) = (take(&mut remote.reply), take(&mut remote.asked));
    let (mut rows, mut ran) = (Bytes(&reply), Ok(()));
    for Asked { at, .. } in asked.drain(..) {
        let row = next_copy(&mut rows)?;
        ran = ran.and_then(|()| run_on_copy(remote, instance, (actions, at), row, dependents));
    }
    (remote.reply, remote.asked) = (reply, asked);
    Ok(ran)
}

/// Runs an action on a copy of its row.
fn run_on_copy(
    remote: &mut Remote,
    instance: InstanceId,
    (actions, at): (&mut ActionBatch, usize),
    row: Option<&[u8]>,
    dependents: &mut Vec<DependentAction>,
) -> Result<(), Abort> {
    let (request, operation) = actions.action(at);
    let mut changed_row = take(&mut remote.changed_row);
    changed_row.clear();
    let changed = (request.mode == LockMode::Exclusive).then_some(&mut changed_row);
    let mut copy = CopiedRow { row, changed, is_changed: false };
    let done = operation.apply_to_copy(&mut copy);
    let is_changed = copy.is_changed;
    let ran = match done {
        None => {
            let staged = remote.staged.add(request.table, request.key(), request.mode, row);
            staged.and_then(|()| run_staged(remote, actions, at, dependents))
        }
        Some(Ok(())) if is_changed => keep_change(remote, instance, request, row, &changed_row),
        Some(done) => done,
    };
    remote.changed_row = changed_row;
    ran
}

/// Keeps the change that an operation has made on the copy of a row: for the message of the commit if the row keeps its length, and
/// staged if not.
fn keep_change(
    remote: &mut Remote,
    instance: InstanceId,
    request: &Request,
    row: Option<&[u8]>,
    changed_row: &[u8],
) -> Result<(), Abort> {
    let Remote { change, changes_in, staged, .. } = remote;
    let keeps_length = row.map(<[u8]>::len) == Some(changed_row.len()) || planted(Bug::UncertainNotVoted);
    if keeps_length && changed_row.len() <= BYTES_AT_ONCE {
        change.clear();
        Write { table: request.table, key: request.key(), row: Some(changed_row) }.encode(change);
        *changes_in = Some(instance);
        return Ok(());
    }
    // The other instance could refuse it, so it is voted on like any other. The table has no dependents.
    staged.add(request.table, request.key(), request.mode, row)?;
    let Request { table, tag, mode, from_end, .. } = *request;
    let request = Request { table, tag, mode, from_end, target: LockTarget::Key(request.key().clone()) };
    let image = PutImage(Some(changed_row.to_vec()));
    let mut again = ActionBatch::new(std::iter::once(Action { request, operation: image }));
    run_staged(remote, &mut again, 0, &mut Vec::new())
}

/// Stages rows of a range, and narrows it to the part that they are all rows of.
fn stage_range(
    (rows_staged, walk): (&mut Staged, &mut Walk),
    request: &Request,
    part: &mut KeyRange,
    rows: &mut Bytes<'_>,
) -> Result<Result<(), Abort>, Nonsense> {
    let mut staged = Ok(());
    let count = rows.u32()?;
    for _ in 0..count {
        let (key, row) = (rows.key()?, rows.row()?);
        staged = staged.and_then(|()| rows_staged.add(request.table, key, request.mode, Some(row)));
    }
    if rows.bool()? {
        let end = KeyBuf::from(rows.key()?);
        walk.end.clone_from(&end);
        if request.from_end {
            part.lower = end;
        } else {
            part.upper = Some(end);
        }
    }
    // A range without rows is walked too, so the tree has to exist.
    rows_staged.open(request.table);
    Ok(staged)
}

/// Runs an action on staged rows; of a range, on the part of which all rows are staged.
fn run_staged(
    remote: &mut Remote,
    actions: &mut ActionBatch,
    at: usize,
    dependents: &mut Vec<DependentAction>,
) -> Result<(), Abort> {
    let (request, operation) = actions.action(at);
    let part = remote.covered.iter().find(|(of, _)| *of == at).map(|(_, part)| part);
    let mut left_out = None;
    if let (LockTarget::Range { lower, upper }, Some(part)) = (&mut request.target, part) {
        if request.from_end {
            if part.lower != *lower {
                left_out = Some(KeyRange {
                    lower: replace(lower, part.lower.clone()),
                    upper: Some(part.lower.clone()),
                });
            }
        } else if part.upper != *upper
            && let Some(end) = &part.upper
        {
            left_out = Some(KeyRange { lower: end.clone(), upper: upper.replace(end.clone()) });
        }
    }
    remote.staged.apply(request.table, &mut request.target, &mut left_out, dependents, operation)
}
