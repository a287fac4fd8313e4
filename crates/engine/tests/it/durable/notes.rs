//! A table, clients whose writes can be judged after a crash, and directories.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use atrapos::sim::Simulation;
use atrapos::{
    Abort, AbortReason, Builder, CentralState, Database, Index, KeyRange, Route, Schema, SchemeChange,
    Session, Statistics, StoredProcedure as _, Table, TableRef, Transaction, WorkerId, row,
};
use atrapos_durability::file::{FileSystem, ModelFiles};

use crate::support::{Random, Shuffle};

row! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct Note {
        pub(crate) client: u32,
        pub(crate) number: u64,
        pub(crate) text: String,
    }
}

/// Rows that clients write; cut evenly among the workers.
pub(crate) struct Notes;

impl Table for Notes {
    type Key = u64;
    type Row = Note;
    const NAME: &'static str = "notes";
}

/// The notes of a client by number.
pub(crate) struct ByNumber;

impl Index for ByNumber {
    type Table = Notes;
    type Key = (u32, u64);
    const NAME: &'static str = "notes_by_number";
    const UNIQUE: bool = false;
    fn key(_: &u64, note: &Note) -> (u32, u64) {
        (note.client, note.number)
    }
}

pub(crate) const KEYS: u64 = 1000;

pub(crate) fn schema() -> Schema {
    Schema::new().table::<Notes>().index::<ByNumber>().split_evenly("notes", 0, KEYS - 1)
}

pub(crate) fn builder(files: &ModelFiles, workers: usize) -> Builder {
    Database::builder(schema())
        .workers(workers)
        .pin(false)
        .huge_pages(false)
        .segment_bytes(16 << 10)
        .files(Arc::new(files.clone()))
}

pub(crate) fn directory() -> &'static Path {
    Path::new("/data/notes")
}

/// A model of files in which the directory can be made.
pub(crate) fn files() -> ModelFiles {
    let files = ModelFiles::new();
    files.create_dir(Path::new("/data")).expect("the model takes it");
    files.sync_dir(Path::new("/")).expect("the model takes it");
    files
}

/// Rows that each client writes in one transaction, all with the same number.
const ROWS: u64 = 3;

/// Knowledge of one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Witness {
    /// The number of the newest transaction handed over.
    pub(crate) submitted: u64,
    /// Of the newest one reported as committed.
    pub(crate) acknowledged: u64,
    /// The newest number that somebody was told to have read.
    pub(crate) observed: u64,
}

pub(crate) type Witnesses = Rc<RefCell<Vec<Witness>>>;

/// The keys of a client's rows: spread over the table, and so over the workers.
pub(crate) fn keys_of(client: usize) -> [u64; ROWS as usize] {
    std::array::from_fn(|at| client as u64 * 2 + at as u64 * (KEYS / ROWS))
}

/// The key of the row that a client inserts and deletes in turn.
pub(crate) fn extra_of(client: usize) -> u64 {
    KEYS - 1 - client as u64
}

pub(crate) fn note(client: usize, number: u64) -> Note {
    // Rows change their lengths now and then: some changes are logged whole, others in part, and some rows are too long for
    // a page.
    let text = "x".repeat(if number % 28 == 20 { 1_450 } else { (number / 4 % 7 * 9) as usize });
    Note { client: client as u32, number, text }
}

/// Writes number `number` into all rows of the client; with an odd number the extra row is there, with an even one not.
pub(crate) async fn change(
    tx: &mut impl Transaction,
    notes: TableRef<Notes>,
    client: usize,
    number: u64,
) -> Result<(), Abort> {
    for key in keys_of(client) {
        let new = note(client, number);
        if tx.update(notes, key, move |row| *row = new).await?.is_none() {
            tx.insert(notes, key, note(client, number)).await?;
        }
    }
    if number % 2 == 1 {
        tx.run(notes.insert_if_absent(extra_of(client), note(client, number))).await.map(drop)
    } else {
        tx.delete(notes, extra_of(client)).await.map(drop)
    }
}

/// Changes the rows of a client; now and then the transaction changes its mind.
async fn change_or_not(
    tx: &mut impl Transaction,
    notes: TableRef<Notes>,
    client: usize,
    number: u64,
) -> Result<(), Abort> {
    change(tx, notes, client, number).await?;
    if number % 7 == 3 { Err(Abort::user("changed its mind")) } else { Ok(()) }
}

/// The numbers in a client's rows, as one transaction sees them.
type Seen = [Option<u64>; ROWS as usize];

async fn look(tx: &mut impl Transaction, notes: TableRef<Notes>, client: usize) -> Result<Seen, Abort> {
    let mut numbers = [None; ROWS as usize];
    for (number, key) in numbers.iter_mut().zip(keys_of(client)) {
        *number = tx.get(notes, key).await?.map(|note| note.number);
    }
    Ok(numbers)
}

atrapos::stored_procedures! {
    /// Changes the rows of a client.
    Write("notes.write", "write") { client: usize, number: u64 } -> ();
    tables TableRef<Notes>: |db| db.table();
    home: |own, notes| notes.at(&keys_of(own.client)[0]);
    run: |own, tx, notes| change_or_not(tx, *notes, own.client, own.number);

    /// Reads the rows of a client.
    Read("notes.read", "read") { client: usize } -> Seen;
    tables TableRef<Notes>: |db| db.table();
    home: |own, notes| notes.at(&keys_of(own.client)[0]);
    run: |own, tx, notes| look(tx, *notes, own.client);
}

/// Returns true if a client runs stored procedures, not closures.
fn runs_stored(client: usize) -> bool {
    client % 4 < 2
}

async fn write(session: &Session, notes: TableRef<Notes>, client: usize, number: u64) -> Result<(), Abort> {
    let procedure = Write { client, number };
    let route = procedure.home(&notes);
    if runs_stored(client) {
        return session.run_stored(&route, &notes, &procedure).await;
    }
    session.run(&route, async move |tx| change_or_not(tx, notes, client, number).await).await
}

/// Reads the rows of a client for another one, or itself.
async fn read(
    session: &Session,
    notes: TableRef<Notes>,
    reader: usize,
    client: usize,
) -> Result<Seen, Abort> {
    let procedure = Read { client };
    let route = procedure.home(&notes);
    if runs_stored(reader) {
        return session.run_stored(&route, &notes, &procedure).await;
    }
    session.run(&route, async move |tx| look(tx, notes, client).await).await
}

/// Transactions that a pipelined client has committed at most before it waits for the first of them.
const PIPELINE: usize = 3;

/// Starts clients that write, and read what others write, until something fails.
pub(crate) fn start_clients(
    simulation: &Simulation,
    workers: usize,
    clients: usize,
    transactions: u64,
    seed: u64,
) -> Witnesses {
    let notes = simulation.table::<Notes>().expect("it is in the schema");
    let witnesses: Witnesses = Rc::new(RefCell::new(vec![Witness::default(); clients]));
    for client in 0..clients {
        let witnesses = Rc::clone(&witnesses);
        let mut random = Random::new(seed).part(client);
        let _ = simulation.spawn_session(WorkerId((client % workers) as u16), async move |session| {
            // Every other client goes on before its transactions are durable.
            let pipelined = client % 2 == 1;
            session.set_pipelined(pipelined);
            let mut committed = VecDeque::new();
            for number in 1..=transactions {
                if random.below(3) == 0 {
                    let other = random.below(clients as u64) as usize;
                    let found = match read(&session, notes, client, other).await {
                        Ok(numbers) => session.acknowledged(session.take_ticket()).await.map(|()| numbers),
                        refused => refused,
                    };
                    match found {
                        Ok(numbers) => {
                            assert!(
                                numbers.iter().all(|number| *number == numbers[0]),
                                "partial: {numbers:?}"
                            );
                            let mut witnesses = witnesses.borrow_mut();
                            let observed = &mut witnesses[other].observed;
                            *observed = numbers[0].unwrap_or(0).max(*observed);
                        }
                        Err(abort) => return assert_eq!(abort.reason(), AbortReason::NotDurable),
                    }
                }
                witnesses.borrow_mut()[client].submitted = number;
                match write(&session, notes, client, number).await {
                    Ok(()) => committed.push_back((number, session.take_ticket())),
                    Err(abort) if abort.reason() == AbortReason::User => {}
                    Err(abort) => return assert_eq!(abort.reason(), AbortReason::NotDurable),
                }
                // The last ones are waited for with the last transaction.
                let room = if pipelined && number < transactions { PIPELINE } else { 0 };
                while let Some((number, ticket)) = committed.front().copied()
                    && (committed.len() > room || session.is_acknowledged(ticket))
                {
                    if let Err(abort) = session.acknowledged(ticket).await {
                        return assert_eq!(abort.reason(), AbortReason::NotDurable);
                    }
                    witnesses.borrow_mut()[client].acknowledged = number;
                    committed.pop_front();
                }
            }
        });
    }
    witnesses
}

/// Opens what a crash has left and compares it with what the clients know. `Err` says what is wrong.
pub(crate) fn judge(files: &ModelFiles, workers: usize, witnesses: &[Witness]) -> Result<Database, String> {
    let db =
        builder(files, workers).open(directory()).map_err(|error| format!("it does not open: {error}"))?;
    let notes = db.table::<Notes>().map_err(|error| error.to_string())?;
    db.verify().map_err(|error| format!("it is not whole: {error}"))?;
    for (client, witness) in witnesses.iter().enumerate() {
        let keys = keys_of(client);
        let read = db.run(Route::worker(WorkerId(0)), async move |tx| {
            let mut rows = Vec::new();
            for key in keys {
                rows.push(tx.get(notes, key).await?);
            }
            Ok((rows, tx.get(notes, extra_of(client)).await?))
        });
        let (rows, extra) = read.map_err(|abort| abort.to_string())?;
        let number = rows[0].as_ref().map_or(0, |row| row.number);
        let expected = (number > 0).then(|| note(client, number));
        if rows.iter().any(|row| *row != expected) {
            return Err(format!("client {client}: a transaction is there in part: {rows:?}"));
        }
        if (number % 2 == 1) != extra.is_some() {
            return Err(format!("client {client}: number {number}, but the extra row is {extra:?}"));
        }
        if number < witness.acknowledged.max(witness.observed) || number > witness.submitted {
            return Err(format!("client {client}: number {number} is there, the client knows {witness:?}"));
        }
    }
    Ok(db)
}

/// Everything that can be seen of a run that was cut off, and of what came back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    /// Every choice of the pump, and how much each step did.
    pub(crate) trace: u64,
    pub(crate) statistics: Statistics,
    /// Calls for files.
    pub(crate) calls: u64,
    /// The owners of all partitions when the run was cut off.
    pub(crate) owners: Vec<u16>,
    /// Knowledge of the clients.
    pub(crate) known: Vec<Witness>,
    /// Rows that were there afterwards.
    pub(crate) rows: Vec<(u64, Note)>,
}

impl Observed {
    /// A number that stands for all of it.
    pub(crate) fn digest(&self) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one(format!("{self:?}"))
    }
}

/// Steps of a run before it is cut off, at most: mostly few, as much happens soon, and now and then many.
fn steps_before_the_crash(random: &mut Random) -> u64 {
    let most = [1_000, 3_000, 6_000, 6_000, 30_000][random.below(5) as usize];
    random.below(most)
}

/// One run of clients on a simulation that is cut off somewhere, while partitions move or do not, and the judgement: everything
/// follows from the seed.
pub(crate) fn crash_once(seed: u64) -> Result<Observed, String> {
    crash_once_sharing(seed, CentralState::default())
}

/// The same with a table, and its index, that workers lend each other.
pub(crate) fn crash_once_lending(seed: u64) -> Result<Observed, String> {
    crash_once_of(schema().shared("notes"), seed, CentralState::default())
}

/// The same with workers that share parts of the system state.
pub(crate) fn crash_once_sharing(seed: u64, central_state: CentralState) -> Result<Observed, String> {
    crash_once_of(schema(), seed, central_state)
}

fn crash_once_of(schema: Schema, seed: u64, central_state: CentralState) -> Result<Observed, String> {
    let mut random = Random::new(seed);
    let workers = 1 + random.below(3) as usize;
    let streams = 1 + random.below(workers as u64) as usize;
    let files = files();
    let durable: (_, Arc<dyn FileSystem>, _) = (streams, Arc::new(files.clone()), directory());
    let mut simulation = Simulation::sharing(schema, workers, seed, central_state, Some(durable))
        .map_err(|error| error.to_string())?;
    let witnesses = start_clients(&simulation, workers, 6, 40, seed);
    let steps = steps_before_the_crash(&mut random);
    if random.below(4) == 0 {
        // In the middle of what a flusher does, between two frames of an epoch for example.
        files.crash_at(1 + random.below(300));
    }
    if random.below(2) == 0 {
        simulation.run_for(steps);
    } else {
        let mut shuffle = Shuffle::new(seed);
        let mut changed = None;
        for _ in 0..steps / 20 {
            // One change after the other; the crash comes in the middle of one, mostly.
            if changed.as_ref().is_none_or(|changed: &atrapos::sim::Outcome<_>| changed.take().is_some()) {
                let changes = shuffle.changes(&simulation.scheme(), workers as u64);
                changed = Some(simulation.repartition(changes));
            }
            simulation.run_for(20);
        }
    }
    let calls = files.calls();
    let after = if random.below(2) == 0 { files.power_cut(random.next()) } else { files.kill() };
    let known = witnesses.borrow().clone();
    let (trace, statistics) = (simulation.trace_hash(), simulation.statistics());
    let owners = simulation
        .scheme()
        .families()
        .flat_map(|(family, _)| (0..family.partitions()).map(|index| family.owner(index).0))
        .collect();
    drop(simulation);
    let db = judge(&after, 1 + random.below(3) as usize, &known)?;
    let notes = db.table::<Notes>().map_err(|error| error.to_string())?;
    let rows = db.run(notes.at(&0), async move |tx| tx.scan(notes, KeyRange::all(), usize::MAX).await);
    let rows = rows.map_err(|abort| abort.to_string())?;
    Ok(Observed { trace, statistics, calls, owners, known, rows })
}

/// A row of a shared table is written, and read on another worker several times before the write is durable. Returns whether one of the
/// readers was told before the device was done, and whether all were after.
pub(crate) fn read_what_is_lent(seed: u64) -> (bool, bool) {
    let shared = schema().shared("notes");
    let mut simulation =
        Simulation::durable(shared, 2, 2, seed, Arc::new(files()), directory()).expect("the model takes it");
    let notes = simulation.table::<Notes>().expect("it is in the schema");
    let to = WorkerId(1 - simulation.scheme().family(notes.id()).owner(0).0);
    let written = simulation.submit(&notes.at(&0), async move |tx| tx.insert(notes, 0, note(0, 1)).await);
    simulation.run_workers_for(300);
    assert!(written.take().is_none(), "nobody is told before it is durable");
    let (mut early, mut reads) = (false, Vec::new());
    for _ in 0..5 {
        let look = async move |tx: &mut atrapos::Tx<'_>| Ok(tx.get(notes, 0).await?.is_some());
        let read = simulation.submit(&Route::worker(to), look);
        simulation.run_workers_for(600);
        match read.take() {
            Some(told) => early |= told == Ok(true),
            None => reads.push(read),
        }
    }
    assert!(simulation.run(1_000_000));
    (early, reads.iter().all(|read| read.take() == Some(Ok(true))))
}

/// A row is written, its partition goes to another worker before the write is durable, and the row is read there. Returns
/// whether the move came to its end, whether the reader was told before the device was done, and whether it was after.
pub(crate) fn read_what_has_moved(seed: u64) -> (bool, bool, bool) {
    let mut simulation = Simulation::durable(schema(), 2, 2, seed, Arc::new(files()), directory())
        .expect("the model takes it");
    let notes = simulation.table::<Notes>().expect("it is in the schema");
    let from = simulation.scheme().family(notes.id()).owner(0);
    let to = WorkerId(1 - from.0);
    let written = simulation.submit(&notes.at(&0), async move |tx| tx.insert(notes, 0, note(0, 1)).await);
    simulation.run_workers_for(300);
    assert!(written.take().is_none(), "nobody is told before it is durable");
    let moved = simulation.repartition(vec![SchemeChange::move_to(notes, &0, to)]);
    simulation.run_workers_for(600);
    let is_moved = matches!(moved.take(), Some(Ok(report)) if report.moves == 1);
    let read = simulation.submit(&Route::worker(to), async move |tx| Ok(tx.get(notes, 0).await?.is_some()));
    simulation.run_workers_for(600);
    let early = read.take();
    assert!(simulation.run(1_000_000));
    (is_moved, early.is_some(), early.or_else(|| read.take()) == Some(Ok(true)))
}
