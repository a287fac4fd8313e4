//! [`Part`]: what one worker owns, and what it does for the tasks of transactions.
//!
//! Owns: the locks of transactions here, and what their rows were before. Never: waits, or knows another part.
//!
//! Invariants
//! - A row is read and changed under a lock of its key, or read under one of a range around it, which the transaction keeps until it ends.
//! - A transaction has one request that waits at most; until it is granted or given up, its client asks for nothing else here.
//! - A transaction never waits for an older one when its client has looked.

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::schema::TableId;
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::{LockMode, LockOutcome, LockTarget, LockTicket, TxnId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::table::{Bytes, Rows, Table, TableStructure, after};

/// A task of a transaction. Flags of planted bugs are true where there is none, since they are planted at clients.
#[derive(Debug)]
pub(super) enum Request {
    Read {
        table: TableId,
        key: KeyBuf,
        mode: LockMode,
        locks_absent: bool,
    },
    /// Inserts a row, unless its key is taken.
    Insert {
        table: TableId,
        key: KeyBuf,
        row: Box<[u8]>,
    },
    /// Replaces a row that is there.
    Replace {
        table: TableId,
        key: KeyBuf,
        row: Box<[u8]>,
    },
    Remove {
        table: TableId,
        key: KeyBuf,
    },
    Scan {
        table: TableId,
        lower: KeyBuf,
        upper: Option<KeyBuf>,
        backward: bool,
        rows_max: usize,
        locks_gaps: bool,
    },
    /// Ends the transaction.
    End {
        commits: bool,
        undoes: bool,
    },
}

/// A row that a transaction has read to replace it, and its new bytes.
#[derive(Debug)]
pub(super) struct Replaced {
    pub(super) table: TableId,
    pub(super) key: KeyBuf,
    pub(super) row: Box<[u8]>,
}

/// The answer to a task.
#[derive(Debug)]
pub(super) enum Answer {
    /// The row; `None` if there is none.
    Row(Bytes),
    /// Something is done, or could not be as the key is taken or there is no row.
    Done(bool),
    /// Rows, and whether there may be more.
    Page(Rows, bool),
    /// The request for a lock waits: the client is to come again.
    Wait(Request),
    /// The transaction has to abort.
    Failed(Abort),
}

/// A request for a lock that waits.
struct Waiting {
    table: TableId,
    target: LockTarget,
    ticket: LockTicket,
}

/// The locks and changes of a transaction here.
#[derive(Default)]
struct Branch {
    locks: Vec<(TableId, LockTarget)>,
    /// Rows that it has changed, by their numbers, and what they were.
    undo: Vec<(TableId, u64, Bytes)>,
    waiting: Option<Waiting>,
}

/// See the module's introduction.
pub(super) struct Part {
    tables: Vec<Table>,
    branches: FxHashMap<TxnId, Branch>,
    /// Requests that were granted when somebody else ended, until their clients come.
    granted: FxHashSet<LockTicket>,
    tickets: u64,
}

/// Reasons for which a request cannot go on now.
enum Blocked {
    Waits,
    Failed(Abort),
}

impl Part {
    pub(super) fn new(structure: TableStructure, tables: usize) -> Part {
        Part {
            tables: (0..tables).map(|_| Table::new(structure)).collect(),
            branches: FxHashMap::default(),
            granted: FxHashSet::default(),
            tickets: 0,
        }
    }

    /// Gives up all locks of a transaction before its end: for a planted bug.
    pub(super) fn give_up_locks(&mut self, owner: TxnId) {
        let Some(branch) = self.branches.get_mut(&owner).filter(|branch| branch.waiting.is_none()) else {
            return;
        };
        let locks = std::mem::take(&mut branch.locks);
        self.release(owner, locks, Vec::new());
    }

    /// Replaces rows of a transaction, which has locked them, and does a task of it.
    pub(super) fn replace_and_run(
        &mut self,
        owner: TxnId,
        replaced: Vec<Replaced>,
        request: Request,
    ) -> Answer {
        for Replaced { table, key, row } in replaced {
            if !matches!(self.change(owner, table, &key, Some(row)), Ok(true)) {
                if matches!(request, Request::End { .. }) {
                    self.end(owner, false, true);
                }
                let why = "a row that was read to be replaced is not there any more";
                return Answer::Failed(Abort::because(AbortReason::Corruption, why));
            }
        }
        self.run(owner, request)
    }

    /// Does a task of the transaction `owner`, whose number is its age: the older of two has the smaller one.
    pub(super) fn run(&mut self, owner: TxnId, request: Request) -> Answer {
        let done = match &request {
            Request::Read { table, key, mode, locks_absent } => {
                self.read(owner, *table, key, (*mode, *locks_absent)).map(Answer::Row)
            }
            Request::Insert { table, key, row } => self.insert(owner, *table, key, row).map(Answer::Done),
            Request::Replace { table, key, row } => {
                self.change(owner, *table, key, Some(row.clone())).map(Answer::Done)
            }
            Request::Remove { table, key } => self.change(owner, *table, key, None).map(Answer::Done),
            Request::Scan { .. } => self.scan(owner, &request),
            Request::End { commits, undoes } => {
                self.end(owner, *commits, *undoes);
                Ok(Answer::Done(true))
            }
        };
        match done {
            Ok(answer) => answer,
            Err(Blocked::Waits) => Answer::Wait(request),
            Err(Blocked::Failed(abort)) => Answer::Failed(abort),
        }
    }

    pub(super) fn table(&mut self, table: TableId) -> Result<&mut Table, Abort> {
        self.tables.get_mut(table.at()).ok_or_else(|| {
            Abort::explained(AbortReason::UnknownTable, format!("there is no table with number {}", table.0))
        })
    }

    /// Locks something, or says why not now.
    fn lock(
        &mut self,
        owner: TxnId,
        table: TableId,
        target: LockTarget,
        mode: LockMode,
    ) -> Result<(), Blocked> {
        self.table(table).map_err(Blocked::Failed)?;
        let Part { tables, branches, granted, tickets } = self;
        let branch = branches.entry(owner).or_default();
        if let Some(waiting) = branch.waiting.take_if(|waiting| granted.remove(&waiting.ticket)) {
            branch.locks.push((waiting.table, waiting.target));
        }
        if branch.waiting.is_none() {
            let locks = &mut tables[table.at()].locks;
            if locks.holds(owner, &target, mode) {
                return Ok(());
            }
            *tickets += 1;
            let (ticket, mut others) = (LockTicket(*tickets), Vec::new());
            let outcome = locks.request(owner, &target, mode, ticket, &mut others);
            granted.extend(others);
            if outcome == LockOutcome::Granted {
                branch.locks.push((table, target));
                return Ok(());
            }
            branch.waiting = Some(Waiting { table, target, ticket });
        }
        Err(self.wait_or_abort(owner))
    }

    /// Lets a transaction whose request is queued wait for younger ones, and gives it up if it would wait for an older one.
    fn wait_or_abort(&mut self, owner: TxnId) -> Blocked {
        let Some(branch) = self.branches.get_mut(&owner) else { return Blocked::Waits };
        let Some(Waiting { table, target, ticket }) = &branch.waiting else { return Blocked::Waits };
        let (locks, mut blockers) = (&mut self.tables[table.at()].locks, Vec::new());
        locks.blockers(owner, target, *ticket, &mut blockers);
        if blockers.iter().all(|blocker| *blocker > owner) {
            return Blocked::Waits;
        }
        let mut others = Vec::new();
        locks.cancel(owner, target, *ticket, &mut others);
        branch.waiting = None;
        self.granted.extend(others);
        Blocked::Failed(Abort::because(
            AbortReason::Deadlock,
            "it would have waited for an older transaction; run it again",
        ))
    }

    fn read(
        &mut self,
        owner: TxnId,
        table: TableId,
        key: &KeyBuf,
        (mode, locks_absent): (LockMode, bool),
    ) -> Result<Bytes, Blocked> {
        if locks_absent || self.table(table).map_err(Blocked::Failed)?.row(key).is_some() {
            self.lock(owner, table, LockTarget::Key(key.clone()), mode)?;
        }
        Ok(self.tables[table.at()].row(key).map(Box::from))
    }

    fn insert(&mut self, owner: TxnId, table: TableId, key: &KeyBuf, row: &[u8]) -> Result<bool, Blocked> {
        self.lock(owner, table, LockTarget::Key(key.clone()), LockMode::Exclusive)?;
        let rows = &mut self.tables[table.at()];
        if rows.row(key).is_some() {
            return Ok(false);
        }
        let number = match rows.number(key) {
            // The transaction itself has removed it.
            Some(number) => {
                rows.set(number, Some(row.into()));
                number
            }
            None => rows.add(key, row.into()).map_err(Blocked::Failed)?,
        };
        self.note(owner, table, number, None);
        Ok(true)
    }

    /// Replaces or removes a row; returns whether it was there.
    fn change(&mut self, owner: TxnId, table: TableId, key: &KeyBuf, row: Bytes) -> Result<bool, Blocked> {
        self.lock(owner, table, LockTarget::Key(key.clone()), LockMode::Exclusive)?;
        let rows = &mut self.tables[table.at()];
        let Some(number) = rows.number(key) else { return Ok(false) };
        if rows.row(key).is_none() {
            return Ok(false);
        }
        let before = rows.set(number, row);
        self.note(owner, table, number, before);
        Ok(true)
    }

    fn note(&mut self, owner: TxnId, table: TableId, number: u64, before: Bytes) {
        self.branches.entry(owner).or_default().undo.push((table, number, before));
    }

    /// Locks what a scan covers, and returns its rows: a page of them upward, all of them downward.
    fn scan(&mut self, owner: TxnId, request: &Request) -> Result<Answer, Blocked> {
        let Request::Scan { table, lower, upper, backward, rows_max, locks_gaps } = request else {
            return Ok(Answer::Done(false));
        };
        let rows_max = if *backward { usize::MAX } else { *rows_max };
        let rows = self.table(*table).and_then(|table| table.scan(lower, upper.as_deref(), rows_max));
        let (mut rows, has_more) = rows.map_err(Blocked::Failed)?;
        if *locks_gaps {
            let last = rows.last().filter(|_| has_more).map(|(key, _)| after(key));
            let target = LockTarget::Range { lower: lower.clone(), upper: last.or_else(|| upper.clone()) };
            // If it is granted, nobody else has changed a row that was seen, and nothing has run since.
            self.lock(owner, *table, target, LockMode::Shared)?;
        } else {
            for (key, _) in &rows {
                self.lock(owner, *table, LockTarget::Key(key.clone()), LockMode::Shared)?;
            }
        }
        if *backward {
            rows.reverse();
        }
        Ok(Answer::Page(rows, has_more))
    }

    /// Ends a transaction: undoes what it has changed unless it commits, and releases its locks.
    fn end(&mut self, owner: TxnId, commits: bool, undoes: bool) {
        let Some(Branch { mut locks, mut undo, waiting }) = self.branches.remove(&owner) else { return };
        let mut others = Vec::new();
        if let Some(Waiting { table, target, ticket }) = waiting {
            if self.granted.remove(&ticket) {
                locks.push((table, target));
            } else {
                self.tables[table.at()].locks.cancel(owner, &target, ticket, &mut others);
            }
        }
        if !commits && undoes {
            for (table, number, before) in undo.iter_mut().rev() {
                self.tables[table.at()].set(*number, before.take());
            }
        }
        for (table, number, _) in undo {
            self.tables[table.at()].take_out_absent(number);
        }
        self.release(owner, locks, others);
    }

    /// Releases locks; `others` are the requests of others that were granted before.
    fn release(&mut self, owner: TxnId, mut locks: Vec<(TableId, LockTarget)>, mut others: Vec<LockTicket>) {
        locks.sort_by_key(|(table, _)| table.0);
        for of_table in locks.chunk_by(|a, b| a.0 == b.0) {
            let targets = of_table.iter().map(|(_, target)| target);
            self.tables[of_table[0].0.at()].locks.release(owner, targets, &mut others);
        }
        self.granted.extend(others);
    }

    /// Adds rows without locks.
    pub(super) fn load(&mut self, table: TableId, rows: Rows) -> Result<(), Abort> {
        let table = self.table(table)?;
        for (key, row) in rows {
            if table.number(&key).is_some() {
                let why = "a row to be loaded has a key that is taken";
                return Err(Abort::because(AbortReason::DuplicateKey, why));
            }
            table.add(&key, row)?;
        }
        Ok(())
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.tables.iter().map(Table::memory_bytes).sum()
    }

    pub(super) fn check(&mut self) -> Result<(), String> {
        if !self.branches.is_empty() || !self.granted.is_empty() {
            return Err(format!("{} transactions have not ended", self.branches.len()));
        }
        self.tables.iter_mut().try_for_each(Table::check)
    }
}
