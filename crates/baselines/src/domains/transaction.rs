//! [`DelegatedTransaction`]: the operations of a running transaction as tasks, its commit and its abort.
//!
//! Owns: which workers know of the transaction. Never: looks at a row before its worker has locked it.
//!
//! A row that was just read to be replaced is locked for that, so its new bytes cannot be refused: they travel with the next task for its worker, before
//! which they take effect, or with the end.

use std::ops::ControlFlow;
use std::time::Duration;

use atrapos_domains::CallError;
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::schema::TableId;
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::{LockMode, TxnId};

use super::client::DomainsClient;
use super::engine::refusal;
use super::part::{Answer, Part, Replaced, Request};
use super::table::{Rows, after};
use crate::occ::check_lengths;
use crate::planted::{Bug, planted};
use crate::rows::{Intent, RowTransaction, Visit};

/// Rows that the first task of a scan asks for, as most scans are short; each further one asks for four times as many.
const ROWS_FIRST: usize = 8;
/// Rows that one task of a scan asks for at most.
const ROWS_MAX: usize = 1024;
/// Times that a client whose lock is not granted comes again at once, and then after the thread has let others run.
const AGAIN_AT_ONCE: u32 = 8;
const AGAIN_SOON: u32 = 64;
/// Time that it sleeps before it comes again from then on.
const AGAIN_LATER: Duration = Duration::from_micros(20);

/// A running transaction of a [`DomainsClient`]. Dropping it aborts it.
pub(super) struct DelegatedTransaction<'c, 'e> {
    client: &'c mut DomainsClient<'e>,
    age: TxnId,
    /// The parts that know of it.
    known: Vec<usize>,
    failed: Option<Abort>,
    has_ended: bool,
    /// The copy of the row that was read last.
    row: Box<[u8]>,
    /// The row that was read last, if it is there and was read to be replaced.
    to_replace: Option<(TableId, KeyBuf)>,
    /// Replaced rows of which their parts do not know.
    replaced: Vec<(usize, Replaced)>,
}

impl<'c, 'e> DelegatedTransaction<'c, 'e> {
    pub(super) fn new(client: &'c mut DomainsClient<'e>, age: TxnId) -> DelegatedTransaction<'c, 'e> {
        DelegatedTransaction {
            client,
            age,
            known: Vec::new(),
            failed: None,
            has_ended: false,
            row: Box::default(),
            to_replace: None,
            replaced: Vec::new(),
        }
    }

    /// Commits at every worker.
    pub(super) fn commit(mut self) -> Result<(), Abort> {
        match self.failed.take() {
            Some(abort) => Err(abort),
            None => self.end(true),
        }
    }

    fn end(&mut self, commits: bool) -> Result<(), Abort> {
        self.has_ended = true;
        let (age, undoes) = (self.age, !planted(Bug::UndoLeftOut));
        if !commits || planted(Bug::ReplacedLeftBehind) {
            self.replaced.clear();
        }
        let (mut pending, mut ended) = (Vec::new(), Vec::new());
        for part in std::mem::take(&mut self.known) {
            let (target, replaced) = (&self.client.engine.parts[part], self.take_replaced(part));
            let end = Request::End { commits, undoes };
            let task = move |part: &mut Part| part.replace_and_run(age, replaced, end);
            match self.client.client.try_call(target, task) {
                Ok(ending) => pending.push(ending),
                Err(refused) => ended.push(self.client.client.call_blocking(target, refused.task)),
            }
        }
        // Every part ends it, whatever another one says.
        ended.extend(pending.into_iter().map(|ending| ending.wait().map_err(CallError::from)));
        ended.into_iter().try_for_each(|answer| match answer {
            Ok(Answer::Failed(abort)) => Err(abort),
            Ok(_) => Ok(()),
            Err(error) => Err(refusal(&error)),
        })
    }

    /// Takes the replaced rows of a part, which are to travel to it.
    fn take_replaced(&mut self, part: usize) -> Vec<Replaced> {
        let mine = self.replaced.extract_if(.., |(of, _)| *of == part);
        mine.map(|(_, replaced)| replaced).collect()
    }

    /// Asks a worker for something, and again until the lock is granted.
    fn ask(&mut self, part: usize, mut request: Request) -> Result<Answer, Abort> {
        if let Some(abort) = &self.failed {
            return Err(abort.clone());
        }
        if !self.known.contains(&part) {
            self.known.push(part);
        }
        // What is replaced next may not be the row that was read before.
        self.to_replace = None;
        let mut replaced = self.take_replaced(part);
        for times in 0.. {
            let (age, target) = (self.age, &self.client.engine.parts[part]);
            let before = std::mem::take(&mut replaced);
            let keeps_locks = !planted(Bug::LocksNotKept);
            let task = move |part: &mut Part| {
                let answer = part.replace_and_run(age, before, request);
                if !keeps_locks {
                    part.give_up_locks(age);
                }
                answer
            };
            let answer = self.client.client.call_blocking(target, task).map_err(|error| refusal(&error));
            match answer {
                Ok(Answer::Wait(again)) => request = again,
                Ok(Answer::Failed(abort)) | Err(abort) => {
                    self.failed = Some(abort.clone());
                    return Err(abort);
                }
                Ok(answer) => return Ok(answer),
            }
            match times {
                0..AGAIN_AT_ONCE => std::hint::spin_loop(),
                AGAIN_AT_ONCE..AGAIN_SOON => std::thread::yield_now(),
                _ => std::thread::sleep(AGAIN_LATER),
            }
        }
        Err(unexpected())
    }

    fn ask_whether(&mut self, table: TableId, key: &[u8], request: Request) -> Result<bool, Abort> {
        let part = self.part(table, key)?;
        match self.ask(part, request)? {
            Answer::Done(done) => Ok(done),
            _ => Err(unexpected()),
        }
    }

    fn part(&mut self, table: TableId, key: &[u8]) -> Result<usize, Abort> {
        self.client.engine.part(table, key).inspect_err(|abort| self.failed = Some(abort.clone()))
    }

    fn check(&mut self, key: &[u8], row: &[u8]) -> Result<(), Abort> {
        check_lengths(key, row).inspect_err(|abort| self.failed = Some(abort.clone()))
    }

    /// Asks for a page of rows.
    fn page(&mut self, part: usize, request: Request) -> Result<(Rows, bool), Abort> {
        match self.ask(part, request)? {
            Answer::Page(rows, has_more) => Ok((rows, has_more)),
            _ => Err(unexpected()),
        }
    }

    /// Scans a range that one worker has.
    fn scan_part(
        &mut self,
        part: usize,
        table: TableId,
        (lower, upper): (&[u8], Option<&[u8]>),
        backward: bool,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, Abort> {
        let (mut lower, upper) = (KeyBuf::from(lower), upper.map(KeyBuf::from));
        let (mut rows_max, locks_gaps) = (ROWS_FIRST, !planted(Bug::ScansWithoutGaps));
        loop {
            let (from, upper) = (lower.clone(), upper.clone());
            let request = Request::Scan { table, lower: from, upper, backward, rows_max, locks_gaps };
            let (rows, has_more) = self.page(part, request)?;
            for (key, row) in &rows {
                let flow = visit(key, row).inspect_err(|abort| self.failed = Some(abort.clone()))?;
                if flow.is_break() {
                    return Ok(flow);
                }
            }
            match rows.last().filter(|_| has_more) {
                Some((last, _)) => lower = after(last),
                None => return Ok(ControlFlow::Continue(())),
            }
            rows_max = (rows_max * 4).min(ROWS_MAX);
        }
    }
}

fn unexpected() -> Abort {
    Abort::because(AbortReason::Corruption, "a worker has given an answer to another question")
}

impl RowTransaction for DelegatedTransaction<'_, '_> {
    fn read(&mut self, table: TableId, key: &[u8], intent: Intent) -> Result<Option<&[u8]>, Abort> {
        let mode = if intent == Intent::Write { LockMode::Exclusive } else { LockMode::Shared };
        let (part, locks_absent) = (self.part(table, key)?, !planted(Bug::AbsentNotLocked));
        let request = Request::Read { table, key: KeyBuf::from(key), mode, locks_absent };
        let Answer::Row(row) = self.ask(part, request)? else { return Err(unexpected()) };
        let Some(row) = row else { return Ok(None) };
        if mode == LockMode::Exclusive {
            self.to_replace = Some((table, KeyBuf::from(key)));
        }
        self.row = row;
        Ok(Some(&self.row))
    }

    fn insert(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Result<bool, Abort> {
        self.check(key, row)?;
        self.ask_whether(table, key, Request::Insert { table, key: KeyBuf::from(key), row: row.into() })
    }

    fn replace(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Result<(), Abort> {
        self.check(key, row)?;
        let is_locked = |(of, locked): &mut (TableId, KeyBuf)| *of == table && **locked == *key;
        if let Some((table, key)) = self.to_replace.take_if(is_locked) {
            let part = self.part(table, &key)?;
            self.replaced.push((part, Replaced { table, key, row: row.into() }));
            return Ok(());
        }
        let request = Request::Replace { table, key: KeyBuf::from(key), row: row.into() };
        if self.ask_whether(table, key, request)? {
            return Ok(());
        }
        let abort =
            Abort::because(AbortReason::Misuse, "a row is replaced that the transaction has not read");
        self.failed = Some(abort.clone());
        Err(abort)
    }

    fn remove(&mut self, table: TableId, key: &[u8]) -> Result<bool, Abort> {
        self.ask_whether(table, key, Request::Remove { table, key: KeyBuf::from(key) })
    }

    fn scan(
        &mut self,
        table: TableId,
        range: (&[u8], Option<&[u8]>),
        backward: bool,
        visit: &mut Visit<'_>,
    ) -> Result<bool, Abort> {
        let engine = self.client.engine;
        let (mut lower, mut upper) = (range.0, range.1);
        loop {
            if upper.is_some_and(|upper| upper <= lower) {
                return Ok(false);
            }
            let at = if backward { upper } else { Some(lower) };
            let Some(part) = engine.ownership.part(table, at, backward) else {
                self.part(table, lower)?;
                return Ok(false);
            };
            let from = part.lower.map_or(lower, |first| first.max(lower));
            let to = match (part.upper, upper) {
                (Some(end), Some(upper)) => Some(end.min(upper)),
                (end, upper) => end.or(upper),
            };
            let number = usize::from(part.owner.0);
            if self.scan_part(number, table, (from, to), backward, visit)?.is_break() {
                return Ok(true);
            }
            match (backward, part.lower, part.upper) {
                (true, Some(first), _) => upper = Some(first),
                (false, _, Some(end)) => lower = end,
                _ => return Ok(false),
            }
        }
    }
}

impl Drop for DelegatedTransaction<'_, '_> {
    fn drop(&mut self) {
        if !self.has_ended {
            // A worker that does not answer has ended with all that it had.
            let _ = self.end(false);
        }
    }
}
