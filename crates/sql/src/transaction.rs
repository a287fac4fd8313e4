//! Transactions of a connection on their homes.
//!
//! Owns: the procedure that an open transaction is ([`Open`]): it runs on its home, awaits its client's next command over a channel,
//! and holds the locks of what it has accessed meanwhile. Never: is polled by the client's thread.
//!
//! Invariants
//! - A failure ends the procedure at once, and with it the locks, unless the transaction has a savepoint that it can go back to.
//! - A procedure whose client is gone aborts.
//! - Its first run takes the commands; when the engine runs it again, after a deadlock, there are none, and it aborts: only a
//!   client can run an open transaction again. Statements that are a transaction of their own ([`run_once`]) are run again by the
//!   engine, as nothing of their answers has been sent.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use atrapos::{
    Abort, AbortReason, Database, LockMode, Procedure, Route, Savepoint, Submitted, TableHandle, Tx,
};
use tokio::sync::{mpsc, oneshot};

use crate::client::Client;
use crate::copy::CopyBatch;
use crate::error::{SqlError, SqlState};
use crate::exec::{Answer, Fail, Ran, Request, run_all};
use crate::kept::Kept;

/// The answer to a command.
type Reply<T> = oneshot::Sender<Result<T, SqlError>>;

/// A command to an open transaction.
pub(crate) enum Command {
    /// Runs statements ([`run_all`]).
    Run(Vec<Request>, oneshot::Sender<Answers>),
    Copy(Box<CopyBatch>, Reply<()>),
    /// Locks all of a table; the answer is whether it has rows.
    Lock(TableHandle, LockMode, Reply<bool>),
    /// Writes rows of what is kept, and removes those without a text.
    Keep(Kept, Vec<(String, Option<String>)>, Reply<()>),
    Savepoint(String, Reply<()>),
    RollbackTo(String, Reply<()>),
    Release(String, Reply<()>),
    Commit,
}

/// An open transaction, as its client has it.
#[derive(Debug)]
pub(crate) struct Open {
    commands: mpsc::UnboundedSender<Command>,
    outcome: Submitted<()>,
}

/// The reason for which a procedure aborts whose client knows why already.
const TOLD: &str = "the statement has failed";

/// The answers of statements that were run together, in their order, and the error of the one behind them if it has failed. If it has
/// not, and there are fewer answers than statements, the rest has not been run.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) given: Vec<Answer>,
    pub(crate) error: Option<SqlError>,
    /// The time that the statement which has failed took.
    pub(crate) failed_after: Duration,
    /// Set if a procedure has aborted because not all could be run together.
    is_too_large: bool,
}

impl Answers {
    pub(crate) fn failed(error: SqlError) -> Answers {
        Answers { error: Some(error), ..Answers::default() }
    }

    /// The answer of a statement that was run alone.
    pub(crate) fn only(mut self) -> Result<Answer, SqlError> {
        match self.error {
            Some(error) => Err(error),
            None => self.given.pop().ok_or_else(gone),
        }
    }
}

/// Statements that are a transaction of their own, and what their procedure has to tell when it aborts.
struct Once {
    requests: Vec<Request>,
    told: Mutex<Answers>,
}

/// Runs statements as a transaction of their own: one procedure on its home, run again after a deadlock. If their answers are too large
/// to be together, there is no answer, and no error: nothing has been done.
pub(crate) async fn run_once(
    database: &Database,
    route: Route,
    client: Client,
    requests: Vec<Request>,
) -> Answers {
    let once = Arc::new(Once { requests, told: Mutex::default() });
    let submitted = submit(database, &route, || {
        let once = Arc::clone(&once);
        async move |tx: &mut Tx<'_>| {
            client.introduce(tx);
            // What an earlier attempt had to tell counts for nothing.
            *once.told() = Answers::default();
            let Ran { answers: given, failed } = run_all(&once.requests, tx).await;
            let (error, failed_after, abort) = match failed {
                None if given.len() == once.requests.len() => return Ok(given),
                None => {
                    *once.told() = Answers { is_too_large: true, ..Answers::default() };
                    return Err(Abort::user(TOLD));
                }
                Some((Fail::Abort(abort), after)) => (None, after, abort),
                Some((Fail::Sql(error), after)) => (Some(error), after, Abort::user(TOLD)),
            };
            *once.told() = Answers { given, error, failed_after, is_too_large: false };
            Err(abort)
        }
    });
    let outcome = match submitted.await {
        Ok(submitted) => submitted.await,
        Err(error) => return Answers::failed(error),
    };
    match outcome {
        Ok(given) => Answers { given, ..Answers::default() },
        Err(abort) => {
            let mut told = std::mem::take(&mut *once.told());
            let is_told = abort.reason() == AbortReason::User && (told.error.is_some() || told.is_too_large);
            if !is_told {
                told.error = Some(SqlError::of_abort(&abort));
            }
            told
        }
    }
}

impl Once {
    fn told(&self) -> MutexGuard<'_, Answers> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Submits a procedure to its home. While the inbox there is full, a thread that serves clients alone waits, and a task on a worker's thread
/// lets the worker go on.
async fn submit<R: Send + 'static, P: Procedure<R>>(
    database: &Database,
    route: &Route,
    procedure: impl Fn() -> P,
) -> Result<Submitted<R>, SqlError> {
    loop {
        match database.submit(route.clone(), procedure()) {
            Err(abort) if abort.reason() == AbortReason::Overloaded => yield_now().await,
            done => return done.map_err(|abort| SqlError::of_abort(&abort)),
        }
    }
}

/// Lets other tasks of the thread run.
async fn yield_now() {
    let mut is_over = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_over, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Open {
    /// Begins a transaction of a connection at a home.
    pub(crate) async fn begin(database: &Database, route: Route, client: Client) -> Result<Open, SqlError> {
        let (commands, receiver) = mpsc::unbounded_channel();
        let receiver = Arc::new(Mutex::new(Some(receiver)));
        let submitted = submit(database, &route, || {
            let receiver = Arc::clone(&receiver);
            async move |tx: &mut Tx<'_>| {
                client.introduce(tx);
                let taken = receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
                match taken {
                    Some(commands) => serve(tx, commands).await,
                    None => Err(Abort::user(TOLD)),
                }
            }
        });
        Ok(Open { commands, outcome: submitted.await? })
    }

    /// Sends a command and waits for its answer.
    pub(crate) async fn ask<T>(&mut self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, SqlError> {
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(command(reply));
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(gone()),
        }
    }

    /// Runs statements, one after the other, up to the first that fails.
    pub(crate) async fn run(&mut self, requests: Vec<Request>) -> Answers {
        let (reply, answers) = oneshot::channel();
        let _ = self.commands.send(Command::Run(requests, reply));
        answers.await.unwrap_or_else(|_| Answers::failed(gone()))
    }

    /// Commits, and waits until that is durable.
    pub(crate) async fn commit(self) -> Result<(), SqlError> {
        let _ = self.commands.send(Command::Commit);
        self.outcome.await.map_err(|abort| SqlError::of_abort(&abort))
    }

    /// Sends a command and waits for its answer, as [`ask`](Open::ask) does. Blocks.
    pub(crate) fn ask_blocking<T>(
        &mut self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, SqlError> {
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(command(reply));
        answer.blocking_recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Commits as [`commit`](Open::commit) does. Blocks.
    pub(crate) fn commit_blocking(self) -> Result<(), SqlError> {
        let _ = self.commands.send(Command::Commit);
        self.outcome.wait().map_err(|abort| SqlError::of_abort(&abort))
    }

    /// Undoes everything as [`roll_back`](Open::roll_back) does. Blocks.
    pub(crate) fn roll_back_blocking(self) {
        drop(self.commands);
        // The outcome is an abort in any case.
        let _ = self.outcome.wait();
    }

    /// Undoes everything, and waits until that is done.
    pub(crate) async fn roll_back(self) {
        drop(self.commands);
        // The outcome is an abort in any case.
        let _ = self.outcome.await;
    }
}

#[cold]
fn gone() -> SqlError {
    SqlError::new(SqlState::SERIALIZATION_FAILURE, "the transaction has ended")
        .hint("The transaction might succeed if retried.")
}

/// Serves the client of an open transaction until it commits, fails or is gone.
async fn serve(tx: &mut Tx<'_>, mut commands: mpsc::UnboundedReceiver<Command>) -> Result<(), Abort> {
    let mut savepoints: Vec<(String, Savepoint)> = Vec::new();
    let mut is_failed = false;
    loop {
        let Some(command) = tx.wait_for(commands.recv()).await else {
            return Err(Abort::user("the client has rolled the transaction back"));
        };
        match command {
            Command::Commit if is_failed => return Err(Abort::user(TOLD)),
            Command::Commit => return Ok(()),
            Command::Run(requests, reply) => {
                let Ran { answers: given, failed } = run_all(&requests, tx).await;
                let (failed, failed_after) = failed.unzip();
                let (error, goes_on) = failed.map(told).unzip();
                let failed_after = failed_after.unwrap_or_default();
                let _ = reply.send(Answers { given, error, failed_after, is_too_large: false });
                is_failed |= has_failed(goes_on, savepoints.is_empty())?;
            }
            Command::Copy(batch, reply) => {
                let done = batch.run(tx).await;
                is_failed |= answer(done, reply, savepoints.is_empty())?;
            }
            Command::Lock(table, mode, reply) => {
                let done = lock_all(tx, &table, mode).await.map_err(Fail::Abort);
                is_failed |= answer(done, reply, savepoints.is_empty())?;
            }
            Command::Keep(kept, rows, reply) => {
                let done = kept.write_all_within(tx, &rows).await.map_err(Fail::Abort);
                is_failed |= answer(done, reply, savepoints.is_empty())?;
            }
            Command::Savepoint(name, reply) => {
                let set = tx.savepoint()?;
                savepoints.push((name, set));
                let _ = reply.send(Ok(()));
            }
            Command::Release(name, reply) => {
                let found = savepoints.iter().rposition(|(known, _)| *known == name);
                let _ = reply.send(match found {
                    Some(at) => {
                        savepoints.truncate(at);
                        Ok(())
                    }
                    None => Err(no_savepoint(&name)),
                });
            }
            Command::RollbackTo(name, reply) => {
                match savepoints.iter().rposition(|(known, _)| *known == name) {
                    Some(at) => {
                        savepoints.truncate(at + 1);
                        let done = tx.rollback_to(savepoints[at].1).await;
                        if let Err(abort) = done {
                            let _ = reply.send(Err(SqlError::of_abort(&abort)));
                            return Err(abort);
                        }
                        is_failed = false;
                        let _ = reply.send(Ok(()));
                    }
                    None => drop(reply.send(Err(no_savepoint(&name)))),
                }
            }
        }
    }
}

/// Locks all of a table; returns true if it has rows.
async fn lock_all(tx: &mut Tx<'_>, table: &TableHandle, mode: LockMode) -> Result<bool, Abort> {
    let all = table.prefix(&[])?;
    tx.lock_range(table, all, mode).await
}

/// Answers a command; returns true if it has failed and the transaction can go back to a savepoint, and ends the procedure if it
/// cannot.
fn answer<T>(done: Result<T, Fail>, reply: Reply<T>, ends: bool) -> Result<bool, Abort> {
    let (done, goes_on) = match done {
        Ok(done) => (Ok(done), None),
        Err(fail) => {
            let (error, goes_on) = told(fail);
            (Err(error), Some(goes_on))
        }
    };
    let _ = reply.send(done);
    has_failed(goes_on, ends)
}

/// The error that a client is told of a failure, and whether its transaction could go back to a savepoint.
fn told(fail: Fail) -> (SqlError, bool) {
    match fail {
        Fail::Sql(error) => (error, true),
        Fail::Abort(abort) => (SqlError::of_abort(&abort), abort.reason().is_of_request()),
    }
}

/// Returns true if a command has failed and the transaction can go back to a savepoint; ends the procedure if it cannot, or has none.
/// `goes_on` is nothing of a command that has not failed.
fn has_failed(goes_on: Option<bool>, ends: bool) -> Result<bool, Abort> {
    match goes_on {
        None => Ok(false),
        Some(true) if !ends => Ok(true),
        Some(_) => Err(Abort::user(TOLD)),
    }
}

#[cold]
pub(crate) fn no_savepoint(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_SAVEPOINT, format!("savepoint \"{name}\" does not exist"))
}
