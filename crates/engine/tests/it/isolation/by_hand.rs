//! Transactions led by hand: each does one thing when it is told to and then waits for the next, so that a test decides in which
//! order several of them act, and sees who has to wait and who is the victim.
//!
//! Owns: the table they work on and the steps they know. Never: decides what is right; the schedules in
//! [`hermitage`](super::hermitage) do.
//!
//! A transaction may wait for nothing but its own actions. Between two things it is told to do it therefore reads, again and
//! again, a row of a table of its own that lies on another worker and that nobody writes.

use std::sync::{Arc, Mutex, PoisonError};

use atrapos::sim::{Outcome, Simulation};
use atrapos::{
    Abort, Index, IndexRef, KeyBuf, KeyRange, Route, Schema, SchemeChange, Table, TableRef, Tx, WorkerId, row,
};

use crate::support::{Engine, Random};

row! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct Number {
        pub(crate) value: u32,
    }
}

pub(crate) struct Numbers;

impl Table for Numbers {
    type Key = u64;
    type Row = Number;
    const NAME: &'static str = "numbers";
}

pub(crate) struct ByValue;

impl Index for ByValue {
    type Table = Numbers;
    type Key = u32;
    const NAME: &'static str = "numbers_by_value";
    const UNIQUE: bool = false;

    fn key(_: &u64, number: &Number) -> u32 {
        number.value
    }
}

/// Where transactions wait to be told what to do.
pub(crate) struct Gates;

impl Table for Gates {
    type Key = u64;
    type Row = Number;
    const NAME: &'static str = "gates";
}

/// Workers of the simulations here, at most.
const WORKERS_MAX: u64 = 4;

/// Rows 1 and 2 and their index entries may be on different workers, and so may what comes between them.
pub(crate) fn numbers() -> Schema {
    Schema::new()
        .table::<Numbers>()
        .index::<ByValue>()
        .table::<Gates>()
        .split_at("numbers", &[2_u64, 3, 4])
        .split_at("numbers_by_value", &[11_u32, 20, 30])
        .split_evenly("gates", 0, WORKERS_MAX - 1)
}

/// One thing that a transaction is told to do.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Get(u64),
    Set(u64, u32),
    Insert(u64, u32),
    /// Reads a row, or writes it, unless it is locked.
    GetUnlessLocked(u64),
    SetUnlessLocked(u64, u32),
    /// Reads a row whether it is locked or not.
    GetDespiteLocks(u64),
    /// Reads all rows.
    All,
    /// The rows of a value, through the index.
    Where(u32),
    /// Reads all rows and adds to each of them.
    AddToAll(u32),
    /// Deletes the rows of a value, found through the index.
    DeleteWhere(u32),
    /// Gives the rows of a value, found by reading all rows, another one.
    SetWhere(u32, u32),
    Commit,
    Abort,
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// So many rows were written.
    Wrote(usize),
    /// The row was locked by another one.
    Locked,
    Rows(Vec<(u64, u32)>),
    Committed,
    Aborted,
    /// The transaction was the victim of a deadlock.
    GaveWay,
}

/// What a transaction and whoever leads it tell each other.
#[derive(Debug, Default)]
struct Desk {
    asked: Option<Step>,
    answered: Option<Answer>,
    begun: bool,
}

#[derive(Clone, Copy)]
struct Handles {
    numbers: TableRef<Numbers>,
    by_value: IndexRef<ByValue>,
    gates: TableRef<Gates>,
}

/// Does what it is told.
async fn obey(tx: &mut Tx<'_>, handles: Handles, gate: u64, desk: &Mutex<Desk>) -> Result<(), Abort> {
    let desk = || desk.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::replace(&mut desk().begun, true) {
        desk().answered = Some(Answer::GaveWay);
        return Err(Abort::user("it is not to be tried again"));
    }
    loop {
        let asked = desk().asked.take();
        let Some(step) = asked else {
            tx.get(handles.gates, gate).await?;
            continue;
        };
        let answer = match step {
            Step::Commit => return Ok(()),
            Step::Abort => return Err(Abort::user("as it was told")),
            step => act(tx, handles, step).await?,
        };
        desk().answered = Some(answer);
    }
}

async fn all(tx: &mut Tx<'_>, handles: Handles) -> Result<Vec<(u64, u32)>, Abort> {
    let rows = tx.scan(handles.numbers, KeyRange::all(), usize::MAX).await?;
    Ok(rows.into_iter().map(|(key, row)| (key, row.value)).collect())
}

async fn act(tx: &mut Tx<'_>, handles: Handles, step: Step) -> Result<Answer, Abort> {
    let Handles { numbers, by_value, .. } = handles;
    let set = move |value| move |row: &mut Number| row.value = value;
    Ok(match step {
        Step::Get(key) => {
            let row = tx.get(numbers, key).await?;
            Answer::Rows(row.into_iter().map(|row| (key, row.value)).collect())
        }
        Step::Set(key, value) => {
            Answer::Wrote(usize::from(tx.update(numbers, key, set(value)).await?.is_some()))
        }
        Step::Insert(key, value) => {
            tx.insert(numbers, key, Number { value }).await?;
            Answer::Wrote(1)
        }
        Step::GetUnlessLocked(key) => match tx.run(numbers.get(key).unless_locked()).await? {
            Some(row) => Answer::Rows(row.into_iter().map(|row| (key, row.value)).collect()),
            None => Answer::Locked,
        },
        Step::SetUnlessLocked(key, value) => {
            match tx.run(numbers.update(key, set(value)).unless_locked()).await? {
                Some(row) => Answer::Wrote(usize::from(row.is_some())),
                None => Answer::Locked,
            }
        }
        Step::GetDespiteLocks(key) => {
            let row = tx.run(numbers.get(key).despite_locks()).await?;
            Answer::Rows(row.into_iter().map(|row| (key, row.value)).collect())
        }
        Step::All => Answer::Rows(all(tx, handles).await?),
        Step::Where(value) => {
            let keys = tx.lookup_all(by_value, KeyRange::prefix(&value), usize::MAX).await?;
            let mut rows = Vec::new();
            for key in keys {
                rows.extend(tx.get(numbers, key).await?.map(|row| (key, row.value)));
            }
            Answer::Rows(rows)
        }
        Step::AddToAll(more) => {
            let rows = all(tx, handles).await?;
            for (key, value) in &rows {
                tx.update(numbers, *key, set(value + more)).await?;
            }
            Answer::Wrote(rows.len())
        }
        Step::DeleteWhere(value) => {
            let keys = tx.lookup_all(by_value, KeyRange::prefix(&value), usize::MAX).await?;
            let mut deleted = 0;
            for key in keys {
                deleted += usize::from(tx.delete(numbers, key).await?.is_some());
            }
            Answer::Wrote(deleted)
        }
        Step::SetWhere(from, to) => {
            let rows = all(tx, handles).await?;
            let mut written = 0;
            for (key, _) in rows.into_iter().filter(|(_, value)| *value == from) {
                written += usize::from(tx.update(numbers, key, set(to)).await?.is_some());
            }
            Answer::Wrote(written)
        }
        Step::Commit | Step::Abort => unreachable!("a transaction ends elsewhere"),
    })
}

/// Steps after which a transaction that has not answered is taken for waiting: several times what a deadlock takes to be
/// found, which takes longer than anything else.
const STEPS: u64 = 12_000;

/// One transaction that is led.
struct Led {
    desk: Arc<Mutex<Desk>>,
    ended: Outcome<Result<(), Abort>>,
}

/// Leads up to three transactions, called 1, 2 and 3, on rows 1 with 10 and 2 with 20.
pub(crate) struct Hands<'e> {
    simulation: &'e mut Simulation,
    handles: Handles,
    workers: u64,
    random: Random,
    /// Whether partitions go from worker to worker between the steps.
    moves: bool,
    led: [Option<Led>; 3],
}

impl<'e> Hands<'e> {
    /// Everything else (who runs where, what moves when) follows from the seed.
    pub(crate) fn new(engine: &'e mut Engine, workers: usize, seed: u64) -> Result<Hands<'e>, String> {
        let (numbers, by_value, gates) = (engine.table(), engine.index(), engine.table());
        let handles = Handles { numbers, by_value, gates };
        let inserted = engine.run(handles.numbers.at(&1), async move |tx| {
            tx.insert(handles.numbers, 1, Number { value: 10 }).await?;
            tx.insert(handles.numbers, 2, Number { value: 20 }).await
        });
        inserted.map_err(|abort| abort.to_string())?;
        let Engine::Simulated(simulation, shuffle) = engine else {
            panic!("only a simulation shows who waits")
        };
        let moves = shuffle.is_some();
        let workers = workers as u64;
        Ok(Hands { simulation, handles, workers, random: Random::new(seed), moves, led: [None, None, None] })
    }

    fn desk<R>(&self, who: usize, at: impl FnOnce(&mut Desk) -> R) -> R {
        let led = self.led[who - 1].as_ref().expect("it was told something before");
        at(&mut led.desk.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells a transaction what to do next; the first time it begins with that.
    pub(crate) fn tell(&mut self, who: usize, step: Step) {
        if self.moves && self.random.chance(40) {
            self.move_something();
        }
        if self.led[who - 1].is_some() {
            return self.desk(who, |desk| desk.asked = Some(step));
        }
        let home = self.random.below(self.workers);
        // The owner of the gates' partitions follows from their number: they stay where they are.
        let gate = (0..WORKERS_MAX).find(|gate| self.owner_of_gate(*gate) != home);
        let gate = gate.expect("there are several workers");
        let desk = Arc::new(Mutex::new(Desk { asked: Some(step), ..Desk::default() }));
        let (own, handles) = (Arc::clone(&desk), self.handles);
        let ended = self.simulation.submit(&Route::worker(WorkerId(home as u16)), async move |tx| {
            obey(tx, handles, gate, &own).await
        });
        self.led[who - 1] = Some(Led { desk, ended });
    }

    fn owner_of_gate(&self, gate: u64) -> u64 {
        use atrapos::Key;
        let scheme = self.simulation.scheme();
        let family = scheme.family(self.handles.gates.id());
        u64::from(family.owner(family.partition_of(&gate.encode())).0)
    }

    /// Has one partition of the rows or of the index go to some worker.
    fn move_something(&mut self) {
        let tables = [self.handles.numbers.id(), self.handles.by_value.id()];
        let table = tables[self.random.below(2) as usize];
        let scheme = self.simulation.scheme();
        let family = scheme.family(table);
        let any = self.random.below(family.partitions() as u64) as usize;
        let at = family.lower(any).map_or_else(KeyBuf::new, KeyBuf::from);
        let to = WorkerId(self.random.below(self.workers) as u16);
        let moved = self.simulation.repartition(vec![SchemeChange::Move { table, at, to }]);
        loop {
            self.simulation.run_for(1);
            if let Some(outcome) = moved.take() {
                outcome.expect("the change makes sense");
                return;
            }
        }
    }

    /// What a transaction has answered by now.
    fn answer(&self, who: usize) -> Option<Answer> {
        let answered = self.desk(who, |desk| desk.answered.take());
        let led = self.led[who - 1].as_ref().expect("it was told something before");
        match led.ended.take() {
            Some(Ok(())) => Some(Answer::Committed),
            // The victim has said so already.
            Some(Err(_)) => Some(answered.unwrap_or(Answer::Aborted)),
            None => answered,
        }
    }

    fn answer_within_steps(&mut self, who: usize) -> Option<Answer> {
        for _ in 0..STEPS {
            self.simulation.run_for(1);
            if let Some(answer) = self.answer(who) {
                return Some(answer);
            }
        }
        None
    }

    /// The transaction, told before or just now released, answers so.
    pub(crate) fn answers(&mut self, who: usize, expected: &Answer) -> Result<(), String> {
        match self.answer_within_steps(who) {
            Some(answer) if answer == *expected => Ok(()),
            Some(answer) => Err(format!("transaction {who} answered {answer:?} instead of {expected:?}")),
            None => Err(format!("transaction {who} waits instead of answering {expected:?}")),
        }
    }

    /// Tells a transaction to do something, which it does at once.
    pub(crate) fn does(&mut self, who: usize, step: Step, expected: &Answer) -> Result<(), String> {
        let text = format!("{step:?}");
        self.tell(who, step);
        self.answers(who, expected).map_err(|wrong| format!("{text}: {wrong}"))
    }

    /// Tells a transaction to write one row, which it does at once.
    pub(crate) fn writes(&mut self, who: usize, step: Step) -> Result<(), String> {
        self.does(who, step, &Answer::Wrote(1))
    }

    /// Tells a transaction to read, and it sees these rows at once.
    pub(crate) fn sees(&mut self, who: usize, step: Step, rows: &[(u64, u32)]) -> Result<(), String> {
        self.does(who, step, &Answer::Rows(rows.to_vec()))
    }

    /// Tells a transaction to do something for which it has to wait.
    pub(crate) fn waits(&mut self, who: usize, step: Step) -> Result<(), String> {
        let text = format!("{step:?}");
        self.tell(who, step);
        match self.answer_within_steps(who) {
            None => Ok(()),
            Some(answer) => Err(format!("{text}: transaction {who} answered {answer:?} and had to wait")),
        }
    }

    pub(crate) fn commits(&mut self, who: usize) -> Result<(), String> {
        self.does(who, Step::Commit, &Answer::Committed)
    }

    pub(crate) fn aborts(&mut self, who: usize) -> Result<(), String> {
        self.does(who, Step::Abort, &Answer::Aborted)
    }

    /// Two transactions wait for each other: one of them is the victim, and the other one gives the answer that is expected of it.
    /// Returns who that was.
    pub(crate) fn one_gives_way(&mut self, expected: [(usize, Answer); 2]) -> Result<usize, String> {
        let mut answers = [None, None];
        for _ in 0..2 * STEPS {
            self.simulation.run_for(1);
            for (answer, (who, _)) in answers.iter_mut().zip(&expected) {
                if answer.is_none() {
                    *answer = self.answer(*who);
                }
            }
            if answers.iter().all(Option::is_some) {
                break;
            }
        }
        for (winner, loser) in [(0, 1), (1, 0)] {
            if answers[loser] == Some(Answer::GaveWay)
                && answers[winner].as_ref() == Some(&expected[winner].1)
            {
                return Ok(expected[winner].0);
            }
        }
        Err(format!("one had to be the victim and the other to answer as in {expected:?}, but: {answers:?}"))
    }

    /// What is left when all have ended: these rows, and index entries for them and for nothing else.
    pub(crate) fn leaves(self, expected: &[(u64, u32)]) -> Result<(), String> {
        let handles = self.handles;
        let read = self.simulation.submit(&Route::worker(WorkerId(0)), async move |tx| {
            let rows = all(tx, handles).await?;
            let keys = tx.lookup_all(handles.by_value, KeyRange::all(), usize::MAX).await?;
            Ok((rows, keys))
        });
        if !self.simulation.run(STEPS * 10) || self.simulation.locks() != (0, 0) {
            return Err(format!("it does not come to rest: {:?}", self.simulation.locks()));
        }
        let (rows, mut keys) =
            read.take().expect("it is at rest").map_err(|abort: Abort| abort.to_string())?;
        keys.sort_unstable();
        if rows != expected || !keys.iter().eq(rows.iter().map(|(key, _)| key)) {
            return Err(format!("{rows:?} is left, with entries for {keys:?}, instead of {expected:?}"));
        }
        Ok(())
    }
}
