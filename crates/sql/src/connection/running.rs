//! Running of plans: without a transaction, as one of their own, or in the one that is open.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use atrapos::catalog::Value as Stored;
use atrapos::{Abort, Database, Route, WorkerId};
use tokio::sync::oneshot;

use super::planning::CachedPlan;
use super::{Connection, Kind};
use crate::ddl::Change;
use crate::error::{SqlError, SqlState, TABLE_CHANGED};
use crate::exec::{Answer, Request, TRUNCATED, key_of};
use crate::expr::Env;
use crate::format::Format;
use crate::plan::{Access, Node, Plan, Scan, Work};
use crate::schema::Schema;
use crate::session::Session;
use crate::sink::Sink;
use crate::transaction::{Answers, Command, Open, run_once};
use crate::value::Value;

/// The size of the pieces in which rows are handed to a sink.
const PIECE: usize = 1 << 20;
/// Number of times a statement is planned again because its tables have changed meanwhile.
pub(super) const ATTEMPTS: usize = 10;

impl Connection {
    /// Refuses a statement while the transaction has failed.
    pub(super) fn refuse_failed(&self) -> Result<(), SqlError> {
        if self.kind != Kind::Failed {
            return Ok(());
        }
        Err(SqlError::new(
            SqlState::IN_FAILED_SQL_TRANSACTION,
            "current transaction is aborted, commands ignored until end of transaction block",
        ))
    }

    pub(super) async fn run_simple(
        &mut self,
        planned: &CachedPlan,
        params: Arc<[Value]>,
        ends: bool,
        sink: &mut dyn Sink,
    ) -> Result<(), SqlError> {
        if planned.types.len() != params.len() {
            return Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1"));
        }
        let formats: Arc<[Format]> = Arc::from([]);
        let answer = self.run(planned, params, formats, ends).await?;
        if let Some(columns) = &planned.columns {
            sink.row_description(columns);
        }
        give(&answer.messages, answer.count, sink).await?;
        sink.complete(&answer.tag);
        Ok(())
    }

    /// Runs a plan. `ends` says that nothing of its transaction follows.
    pub(super) async fn run(
        &mut self,
        planned: &CachedPlan,
        params: Arc<[Value]>,
        formats: Arc<[Format]>,
        ends: bool,
    ) -> Result<Answer, SqlError> {
        let began = planned.count.as_ref().map(|_| Instant::now());
        let done = self.run_plan(planned, params, formats, ends).await;
        if let (Ok(answer), Some(count), Some(began)) = (&done, &planned.count, began) {
            count.add(answer.rows(), began.elapsed());
        }
        self.take_settings()?;
        done
    }

    async fn run_plan(
        &mut self,
        planned: &CachedPlan,
        params: Arc<[Value]>,
        formats: Arc<[Format]>,
        ends: bool,
    ) -> Result<Answer, SqlError> {
        self.refuse_failed()?;
        let facts = (Arc::clone(self.known_schema()), self.session());
        let mut request = self.request(planned, params, formats, facts)?;
        if planned.plan.tells_of_locks {
            request.env.locks = Some(Box::pin(self.look(Database::locks)).await?);
        }
        if planned.plan.tells_of_sizes {
            request.env.sizes = Some(Box::pin(self.look(Database::table_bytes)).await?);
        }
        if planned.plan.is_on_no_table() {
            let done = if planned.plan.changes_session {
                // It may have to wait, and what it has done until then is not done twice.
                None
            } else if planned.plan.is_of_constants() {
                request.run_here()
            } else {
                // The thread that asks is that of others, too.
                let request = request.clone();
                Box::pin(blocking(move || Ok(request.run_here()))).await?
            };
            if let Some(done) = done {
                return done;
            }
            // Its effects on sequences stand whatever becomes of the transaction.
            let (database, route) = (self.database.database(), self.any_worker());
            return run_once(database, route, self.client(), vec![request]).await.only();
        }
        if let Work::Truncate(tables) = &planned.plan.work {
            let rest = Box::pin(self.truncate_anew(tables, ends)).await?;
            if rest.is_empty() {
                return Ok(Answer::of_tag(TRUNCATED));
            }
            request.plan = Arc::new(Plan::truncation(rest));
        }
        self.run_requests(vec![request], ends).await.only()
    }

    /// All that a plan needs to be run, in this schema and with these facts, but what is told of the whole database.
    pub(super) fn request(
        &mut self,
        planned: &CachedPlan,
        params: Arc<[Value]>,
        formats: Arc<[Format]>,
        (schema, session): (Arc<Schema>, Arc<Session>),
    ) -> Result<Request, SqlError> {
        self.check_needs(&schema, &planned.plan.needs)?;
        Ok(Request {
            plan: Arc::clone(&planned.plan),
            env: Env::new(params, session, schema),
            formats,
            cancel: Arc::clone(&self.cancel),
            sequences: Arc::clone(self.database.sequences()),
            max_bytes: self.database.options().max_answer_bytes,
            profile: planned.profile.clone(),
        })
    }

    /// Runs statements one after the other, in the transaction that is open or in one that begins at the home of the first.
    pub(super) async fn run_requests(&mut self, mut requests: Vec<Request>, ends: bool) -> Answers {
        self.note_generation();
        if let Some(open) = &mut self.open {
            return open.run(requests).await;
        }
        let Some(first) = requests.first_mut() else { return Answers::default() };
        let plan = Arc::clone(&first.plan);
        let route = match self.route(&plan, &mut first.env) {
            Ok(route) => route,
            Err(error) => return Answers::failed(error),
        };
        if ends && self.kind == Kind::None {
            let answers = run_once(self.database.database(), route, self.client(), requests).await;
            self.noted.store(0, Ordering::SeqCst);
            self.forget_session();
            return answers;
        }
        if let Err(error) = Box::pin(self.begin_at(route)).await {
            return Answers::failed(error);
        }
        match &mut self.open {
            Some(open) => open.run(requests).await,
            None => Answers::failed(SqlError::new(SqlState::INTERNAL_ERROR, "the transaction has no home")),
        }
    }

    /// Returns what the database tells now. Workers are asked by a thread that is not one of them.
    async fn look<T: Send + Sync + 'static>(
        &self,
        at: fn(&Database) -> Result<T, Abort>,
    ) -> Result<Arc<T>, SqlError> {
        let database = Arc::clone(self.database.database());
        blocking(move || at(&database).map(Arc::new).map_err(|abort| SqlError::of_abort(&abort))).await
    }

    fn note_generation(&self) {
        if self.noted.load(Ordering::Relaxed) == 0 {
            self.noted.store(self.database.generation(), Ordering::SeqCst);
        }
    }

    /// Begins the procedure of the transaction, with the savepoints that were set before.
    pub(super) async fn begin_at(&mut self, route: Route) -> Result<(), SqlError> {
        self.note_generation();
        let mut open = Open::begin(self.database.database(), route, self.client()).await?;
        for name in &self.savepoints {
            open.ask(|reply| Command::Savepoint(name.clone(), reply)).await?;
        }
        self.open = Some(open);
        if self.kind == Kind::None {
            self.kind = Kind::Implicit;
        }
        Ok(())
    }

    /// Begins the procedure of the transaction at the connection's home, if it has not begun.
    pub(super) async fn begin_at_home(&mut self) -> Result<(), SqlError> {
        if self.open.is_none() {
            let route = self.any_worker();
            self.begin_at(route).await?;
        }
        Ok(())
    }

    /// The way to the home of a transaction whose first statement is this one.
    fn route(&self, plan: &Plan, env: &mut Env) -> Result<Route, SqlError> {
        Ok(match route_of(plan, env)? {
            Some(route) => route,
            None => self.any_worker(),
        })
    }

    /// The home of a statement that no key leads to.
    pub(super) fn any_worker(&self) -> Route {
        Route::worker(self.home_worker())
    }

    /// The worker at which the connection is at home.
    pub(super) fn home_worker(&self) -> WorkerId {
        let workers = self.database.database().active_workers().max(1);
        WorkerId((self.process_id.unsigned_abs() as usize % workers) as u16)
    }

    /// Sends a command to the open transaction.
    pub(super) async fn ask_open<T>(
        &mut self,
        command: impl FnOnce(oneshot::Sender<Result<T, SqlError>>) -> Command,
    ) -> Result<T, SqlError> {
        match &mut self.open {
            Some(open) => open.ask(command).await,
            None => Err(SqlError::new(SqlState::INTERNAL_ERROR, "the transaction has no home")),
        }
    }

    /// Ends an implicit transaction.
    pub(super) async fn end_implicit(&mut self, commits: bool) -> Result<(), SqlError> {
        match self.kind {
            Kind::Explicit | Kind::Failed => Ok(()),
            // In a box: most often there is nothing to end.
            Kind::None | Kind::Implicit => Box::pin(self.end(commits)).await,
        }
    }

    /// Ends the transaction, whatever it is.
    pub(super) async fn end(&mut self, commits: bool) -> Result<(), SqlError> {
        let open = self.open.take();
        let done = match (open, commits) {
            (None, _) => Ok(()),
            (Some(open), true) => self.commit_open(open).await,
            (Some(open), false) => {
                Box::pin(self.drop_loaded_foreign_keys()).await;
                open.roll_back().await;
                Ok(())
            }
        };
        if !commits || done.is_err() {
            if let Some(before) = self.settings_before.take() {
                self.local_settings.clear();
                self.settings.restore(&before);
                self.settings_changed();
            }
            Box::pin(self.discard_loads()).await;
            Box::pin(self.undo_definitions()).await;
        }
        self.portals.clear();
        self.end_cursors(commits && done.is_ok());
        self.ended();
        done
    }

    /// Undoes the definitions that a transaction has made which is rolled back.
    async fn undo_definitions(&mut self) {
        let undos = std::mem::take(&mut self.undos);
        if undos.is_empty() {
            return;
        }
        let database = Arc::clone(&self.database);
        // What cannot be undone stays: it is a table that nothing refers to.
        let _ = blocking(move || Change::undoing(&database).undo(undos)).await;
    }

    /// A statement has failed: undoes an implicit transaction, and leaves an explicit one to its client.
    pub(super) async fn fail_transaction(&mut self) {
        match self.kind {
            Kind::None | Kind::Implicit => {
                let _ = self.end(false).await;
            }
            Kind::Explicit | Kind::Failed => {
                self.kind = Kind::Failed;
                if self.savepoints.is_empty() {
                    // Its locks are free at once.
                    if let Some(open) = self.open.take() {
                        self.drop_loaded_foreign_keys().await;
                        open.roll_back().await;
                    }
                    self.discard_loads().await;
                }
            }
        }
    }

    /// Returns true if a statement alone has failed because its tables have changed, and can be planned again.
    pub(super) fn may_try_again(error: &SqlError, attempt: usize) -> bool {
        error.detail.as_deref() == Some(TABLE_CHANGED) && attempt < ATTEMPTS
    }
}

/// The route that a plan leads to; `None` if no key of it is known before it runs.
pub(super) fn route_of(plan: &Plan, env: &mut Env) -> Result<Option<Route>, SqlError> {
    let refused = |abort: Abort| SqlError::of_abort(&abort);
    if let Work::Insert(insert) = &plan.work {
        let (Node::Values(rows), Some(key)) = (&insert.source, insert.table.cluster_key()) else {
            return Ok(None);
        };
        let Some(row) = rows.first() else { return Ok(None) };
        let mut parts: Vec<Stored> = Vec::new();
        for (column, _) in &key.columns {
            let value = match &insert.values[*column] {
                crate::expr::Expr::Column(at) => row.get(*at),
                other => Some(other),
            };
            let Some(value) = value.filter(|value| value.is_row_independent()) else { break };
            let entry = &insert.table.columns[*column];
            match value.eval(env, &[]).ok().and_then(|value| crate::schema::to_key_part(&value, entry)) {
                Some(part) => parts.push(part),
                None => break,
            }
        }
        if parts.is_empty() {
            return Ok(None);
        }
        return insert.table.handle.at(&parts).map(Some).map_err(refused);
    }
    if let Work::Call(call) = &plan.work {
        // Arguments that are not known before it runs lead nowhere.
        let is_known = call.arguments.iter().all(|(_, expr)| expr.is_row_independent());
        if !is_known {
            return Ok(None);
        }
        let call = call.prepare(env)?;
        let route = call.route();
        env.call = Some(call);
        return Ok(Some(route));
    }
    let Some(scan) = plan.leading_scan() else { return Ok(None) };
    scan_route(scan, env)
}

fn scan_route(scan: &Scan, env: &Env) -> Result<Option<Route>, SqlError> {
    let refused = |abort: Abort| SqlError::of_abort(&abort);
    let (table, meta, prefix, index) = match &scan.access {
        Access::Key(values) => match key_of(&scan.table, values, env)? {
            Some(key) => return scan.table.handle.at(&key).map(Some).map_err(refused),
            None => return Ok(None),
        },
        Access::Range { index: None, prefix, .. } => (&scan.table, scan.table.cluster_key(), prefix, None),
        Access::Range { index: Some(at), prefix, .. } => {
            let index = &scan.table.indexes[*at];
            (&scan.table, Some(&index.meta), prefix, index.handle.as_ref())
        }
        Access::Full | Access::Keys(_) => return Ok(None),
    };
    let Some(meta) = meta else { return Ok(None) };
    let mut parts: Vec<Stored> = Vec::new();
    for (value, (column, _)) in prefix.iter().zip(&meta.columns) {
        match crate::schema::to_key_part(&value.eval(env, &[])?, &table.columns[*column]) {
            Some(part) => parts.push(part),
            None => return Ok(None),
        }
    }
    let route = match index {
        Some(index) => index.at(&parts),
        None => table.handle.at(&parts),
    };
    route.map(Some).map_err(refused)
}

/// Hands rows to a sink, in pieces between which it may wait.
pub(super) async fn give(messages: &[u8], count: usize, sink: &mut dyn Sink) -> Result<(), SqlError> {
    if messages.len() <= PIECE {
        if count > 0 {
            sink.rows(messages, count);
        }
        return Ok(());
    }
    let (mut start, mut end, mut rows) = (0, 0, 0);
    while end < messages.len() {
        end += message_length(&messages[end..]);
        rows += 1;
        if end - start >= PIECE || end >= messages.len() {
            sink.rows(&messages[start..end], rows);
            sink.ready().await?;
            (start, rows) = (end, 0);
        }
    }
    Ok(())
}

/// The length of the message that bytes begin with.
pub(super) fn message_length(messages: &[u8]) -> usize {
    let length = messages
        .get(1..5)
        .map_or(0, |length| u32::from_be_bytes([length[0], length[1], length[2], length[3]]));
    1 + length as usize
}

/// Something that runs on a thread of its own.
pub(super) struct Blocking<R>(oneshot::Receiver<Result<R, SqlError>>);

impl<R: Send + 'static> Blocking<R> {
    /// Starts it.
    pub(super) fn start(
        work: impl FnOnce() -> Result<R, SqlError> + Send + 'static,
    ) -> Result<Blocking<R>, SqlError> {
        let (sender, receiver) = oneshot::channel();
        let spawned = std::thread::Builder::new().name("sql-statement".to_owned()).spawn(move || {
            let _ = sender.send(work());
        });
        spawned.map_err(|_| no_thread())?;
        Ok(Blocking(receiver))
    }

    /// Waits for its end.
    pub(super) async fn done(self) -> Result<R, SqlError> {
        self.0.await.unwrap_or_else(|_| Err(no_thread()))
    }
}

#[cold]
fn no_thread() -> SqlError {
    SqlError::new(SqlState::OUT_OF_MEMORY, "a thread for the statement could not be started or has panicked")
}

/// Waits before a statement is attempted again whose tables have changed: not at first, and then ever longer, since what changes them
/// may be held up.
pub(super) async fn wait_before(attempt: usize) -> Result<(), SqlError> {
    let Some(doublings) = attempt.checked_sub(2) else { return Ok(()) };
    let time = Duration::from_millis(1 << doublings);
    blocking(move || {
        std::thread::sleep(time);
        Ok(())
    })
    .await
}

/// Runs something that blocks on a thread of its own.
pub(super) async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> Result<R, SqlError> + Send + 'static,
) -> Result<R, SqlError> {
    Blocking::start(work)?.done().await
}
