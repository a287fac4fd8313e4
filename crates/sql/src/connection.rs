//! A client's connection: its statements, portals, settings and transaction.
//!
//! Owns: what lives as long as the connection, and the state of its transaction. Never: runs a statement on a table on the thread of
//! its caller; its futures wait for the engine without blocking.
//!
//! # States of the transaction
//!
//! None; *implicit* (begun by a statement, ended by the end of a simple query or by Sync); *explicit* (begun by BEGIN). A transaction
//! has a home from its first statement on a table. When a statement fails, an explicit one is *failed* until its client ends it.

mod copying;
mod cursors;
mod extended;
mod loading;
mod names;
mod pipeline;
mod planning;
mod prepared;
mod role;
mod running;
mod utility;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::activity::{Activity, ActivityState, told_part};
use crate::cancel::{Cancel, CancelHandle, CancelReason};
use crate::client::{Client, class_of};
use crate::database::SqlDatabase;
use crate::ddl::{Change, Undo};
use crate::error::SqlError;
use crate::format::Format;
use crate::schema::Schema;
use crate::session::{Session, Taken, now};
use crate::settings::Settings;
use crate::sink::{Column, Sink};
use crate::transaction::Open;
use crate::types::SqlType;

pub use extended::Behind;

use cursors::Cursor;
use extended::{Known, Portal, Prepared};
use loading::Loading;
use names::ByName;
use pipeline::Deferred;
use planning::CachedPlan;
use role::CurrentRole;

/// The user who connects, and the settings that the client asks for.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// The user.
    pub user: String,
    /// The number of the connection, as BackendKeyData and `pg_backend_pid()` tell it.
    pub process_id: i32,
    /// Settings by name, as in the start-up message: `application_name` and the like.
    pub settings: Vec<(String, String)>,
}

/// The state of a connection's transaction, for ReadyForQuery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    /// There is no transaction.
    Idle,
    /// A transaction is open.
    Active,
    /// A transaction has failed, and waits for its end.
    Failed,
}

/// The description of a prepared statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementDescription {
    /// The types of its parameters.
    pub parameters: Vec<SqlType>,
    /// Its columns; `None` if it returns no rows.
    pub columns: Option<Vec<Column>>,
}

/// The description of a portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortalDescription<'a> {
    /// Its columns; `None` if it returns no rows.
    pub columns: Option<&'a [Column]>,
    /// Their formats, as [`bind`](Connection::bind) takes them.
    pub formats: &'a [Format],
}

/// The way in which a transaction was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    None,
    Implicit,
    Explicit,
    Failed,
}

/// A client's connection.
///
/// An error of a method fails the transaction that is open, as PostgreSQL does: an implicit one is undone at once, one that the
/// client has begun waits for its end ([`TransactionStatus::Failed`]). After an error in the extended protocol the server calls
/// [`fail`](Connection::fail), skips messages until Sync and then calls [`sync`](Connection::sync).
///
/// Dropping a connection cancels its statement and undoes its open transaction, with the definitions that it has made.
#[derive(Debug)]
pub struct Connection {
    database: Arc<SqlDatabase>,
    user: Arc<str>,
    /// The number of the role that has logged in.
    user_role: u32,
    /// The role that statements run as, as the schema had it in a version; found again when that or a setting has changed.
    current: Option<CurrentRole>,
    process_id: i32,
    /// The class of its transactions.
    class: &'static str,
    settings: Settings,
    /// The settings that statements are given; made anew when they have changed.
    given_settings: Option<Arc<Settings>>,
    taken: Arc<Taken>,
    cancel: Arc<Cancel>,
    activity: Arc<Activity>,
    kind: Kind,
    open: Option<Open>,
    /// The savepoints that are set, the last one last; those that a transaction without a home has are set when it gets one.
    savepoints: Vec<String>,
    session: Option<Arc<Session>>,
    /// That of the transaction before, to be used again.
    last_session: Option<Arc<Session>>,
    settings_before: Option<Settings>,
    /// Settings that go back to these values when the transaction ends.
    local_settings: Vec<(String, String)>,
    undos: Vec<Undo>,
    /// The tables that the transaction has loaded in bulk.
    loading: Loading,
    /// The schema of the last statement.
    last_schema: Arc<Schema>,
    /// The generation of the schema that the transaction has noted ([`crate::database`]).
    noted: Arc<AtomicU64>,
    statements: ByName<Arc<Prepared>>,
    portals: ByName<Portal>,
    /// The formats of the last portal's results: most have those of the one before.
    last_formats: Arc<[Format]>,
    /// The statements of a pipeline that wait to be run together.
    deferred: Vec<Deferred>,
    cursors: HashMap<String, Cursor>,
    /// Statements of the extended protocol by their texts.
    known: HashMap<String, Known>,
    plans: HashMap<String, CachedPlan>,
    /// Plans of statements whose literals are lifted; none for those that have to be planned as they are.
    lifted: HashMap<String, Option<CachedPlan>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.database.connections().remove(self.process_id);
        self.cancel.ask(CancelReason::Request);
        if !self.undos.is_empty() {
            let (database, undos) = (Arc::clone(&self.database), std::mem::take(&mut self.undos));
            // The transaction ends first, as what it has made is in use until then. Without a thread, the definitions stay.
            drop(self.open.take());
            let _ = std::thread::Builder::new()
                .name("sql-statement".to_owned())
                .spawn(move || Change::undoing(&database).undo(undos));
        }
    }
}

impl Connection {
    pub(crate) fn new(database: Arc<SqlDatabase>, options: ConnectOptions) -> Result<Connection, SqlError> {
        database.check_login(&options.user)?;
        let schema = database.schema();
        let roles = &schema.roles;
        let user_role = roles.existing(&options.user)?.id;
        let mut settings = Settings::new(&options.user);
        for (name, value) in database.options().settings.iter().chain(&options.settings) {
            settings.set_initial(name, value)?;
        }
        role::check_setting(roles, user_role, settings.get("role")?)?;
        let noted = database.note_place();
        let cancel = Arc::default();
        let user: Arc<str> = Arc::from(options.user);
        let application = settings.get("application_name").unwrap_or_default();
        let class = class_of(application);
        let activity = Arc::new(Activity::new(&user, application));
        database.connections().add(options.process_id, &cancel, &activity);
        let mut connection = Connection {
            loading: Loading::new(&database),
            last_schema: schema,
            database,
            user,
            user_role,
            current: None,
            process_id: options.process_id,
            class,
            settings,
            given_settings: None,
            taken: Arc::default(),
            cancel,
            activity,
            kind: Kind::None,
            open: None,
            savepoints: Vec::new(),
            session: None,
            last_session: None,
            settings_before: None,
            local_settings: Vec::new(),
            undos: Vec::new(),
            noted,
            statements: ByName::new(),
            portals: ByName::new(),
            last_formats: Arc::from([]),
            deferred: Vec::new(),
            cursors: HashMap::new(),
            known: HashMap::new(),
            plans: HashMap::new(),
            lifted: HashMap::new(),
        };
        connection.find_role();
        Ok(connection)
    }

    /// Runs the statements of a simple query, in one implicit transaction unless they begin or end transactions themselves.
    ///
    /// # Errors
    /// The error of the first statement that failed; the rest has not been run.
    pub async fn simple(&mut self, text: &str, sink: &mut dyn Sink) -> Result<(), SqlError> {
        if self.has_deferred() {
            Box::pin(self.run_deferred(sink)).await?;
        }
        self.cancel.begin(self.settings.limits().statement);
        self.activity.begins(&Arc::from(told_part(text)));
        self.portals.remove("");
        let mut done = self.simple_statements(text, sink).await;
        match &done {
            Ok(()) => done = self.end_implicit(true).await,
            Err(_) => Box::pin(self.fail_transaction()).await,
        }
        self.tell_activity();
        done
    }

    async fn simple_statements(&mut self, text: &str, sink: &mut dyn Sink) -> Result<(), SqlError> {
        if let Some(lifted) = self.lifted(text).await {
            let (planned, params) = lifted?;
            let ends = self.kind == Kind::None;
            match self.run_simple(&planned, params, ends, sink).await {
                // Its plan is of tables that have changed: it is planned again below.
                Err(error) if ends && Self::may_try_again(&error, 0) => {}
                done => return done,
            }
        }
        if let Some(cached) = self.cached(text) {
            let ends = self.kind == Kind::None;
            match self.run_simple(&cached, Arc::from([]), ends, sink).await {
                // Its plan is of tables that have changed: it is planned again below.
                Err(error) if ends && Self::may_try_again(&error, 0) => {}
                done => return done,
            }
        }
        let statements = crate::parse::statements(text)?;
        if statements.is_empty() {
            sink.empty_query();
            return Ok(());
        }
        let is_alone = statements.len() == 1;
        for (at, statement) in statements.iter().enumerate() {
            let ends = self.kind == Kind::None && at + 1 == statements.len();
            if planning::is_planned(statement) {
                self.refuse_failed()?;
                let mut attempt = 0;
                loop {
                    let planned = Box::pin(self.plan(statement, text, &[], is_alone)).await?;
                    match self.run_simple(&planned, Arc::from([]), ends, sink).await {
                        Err(error) if ends && Self::may_try_again(&error, attempt) => {
                            attempt += 1;
                            Box::pin(running::wait_before(attempt)).await?;
                        }
                        done => break done?,
                    }
                }
            } else {
                Box::pin(self.utility(statement, text, sink, true)).await?;
            }
            if !ends && self.kind == Kind::None && at + 1 < statements.len() {
                self.kind = Kind::Implicit;
            }
        }
        Ok(())
    }

    /// The state of the transaction, for ReadyForQuery.
    #[must_use]
    pub fn status(&self) -> TransactionStatus {
        match self.kind {
            Kind::None | Kind::Implicit => TransactionStatus::Idle,
            Kind::Explicit => TransactionStatus::Active,
            Kind::Failed => TransactionStatus::Failed,
        }
    }

    /// The handle that cancels this connection's statements.
    #[must_use]
    pub fn cancel_handle(&self) -> CancelHandle {
        CancelHandle(Arc::clone(&self.cancel))
    }

    /// The number of the connection.
    #[must_use]
    pub fn process_id(&self) -> i32 {
        self.process_id
    }

    /// The user.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The settings. Those that a client is told of when they change are in [`Settings::take_changes`].
    pub fn settings(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// The facts that statements of the transaction know of the connection.
    fn session(&mut self) -> Arc<Session> {
        match &self.session {
            Some(session) => Arc::clone(session),
            None => self.session_since(now()),
        }
    }

    /// Has the transaction begin at a moment, if it has not begun yet.
    fn begins_at(&mut self, moment: i64) {
        if self.session.is_none() {
            self.session_since(moment);
        }
    }

    /// The facts that statements of the transaction know, which begins at a moment.
    fn session_since(&mut self, began: i64) -> Arc<Session> {
        // Another connection may have changed it.
        self.find_role_again(self.schema_version());
        let (user, role) = self.current_role();
        if let Some(mut last) = self.last_session.take()
            && let Some(facts) = Arc::get_mut(&mut last)
            && (facts.role, &facts.user) == (role, &user)
        {
            facts.began = began;
            return Arc::clone(self.session.insert(last));
        }
        let settings = self.given_settings.get_or_insert_with(|| Arc::new(self.settings.clone()));
        let session = Arc::new(Session {
            user,
            role,
            session_user: Arc::clone(&self.user),
            database: Arc::from(&*self.database.options().name),
            process_id: self.process_id,
            began,
            settings: Arc::clone(settings),
            taken: Arc::clone(&self.taken),
            connections: Arc::clone(self.database.connections()),
            engine: Arc::downgrade(self.database.database()),
            counts: Arc::clone(self.database.counts()),
        });
        self.session = Some(Arc::clone(&session));
        session
    }

    /// Has the next transaction begin at a moment of its own.
    fn forget_session(&mut self) {
        if let Some(session) = self.session.take() {
            self.last_session = Some(session);
        }
    }

    /// The client that transactions work for.
    fn client(&self) -> Client {
        Client { process_id: self.process_id, class: self.class }
    }

    fn settings_changed(&mut self) {
        let application = self.settings.get("application_name").unwrap_or_default();
        self.class = class_of(application);
        self.activity.is_used_by(application);
        self.find_role();
        (self.given_settings, self.session, self.last_session) = (None, None, None);
    }

    /// Notes the end of a statement, and what the connection does between statements.
    fn tell_activity(&self) {
        self.cancel.end();
        self.activity.ends(match self.kind {
            Kind::None => ActivityState::Idle,
            Kind::Implicit | Kind::Explicit => ActivityState::InTransaction,
            Kind::Failed => ActivityState::InFailedTransaction,
        });
    }

    /// Takes over what functions of a statement have set.
    fn take_settings(&mut self) -> Result<(), SqlError> {
        for (name, value, is_local) in self.taken.end_statement() {
            self.change_setting(&name, &value, is_local)?;
        }
        Ok(())
    }

    /// Changes a setting, for the transaction alone if it `is_local`; one that is and outside of a transaction has no effect.
    fn change_setting(&mut self, name: &str, value: &str, is_local: bool) -> Result<(), SqlError> {
        let before = self.settings.get(name)?.to_owned();
        if name.eq_ignore_ascii_case("role") {
            role::check_setting(&self.schema().roles, self.user_role, value)?;
        }
        self.settings.set(name, value)?;
        if is_local && self.kind == Kind::None {
            self.settings.set(name, &before)?;
        } else if is_local {
            self.local_settings.push((name.to_owned(), before));
        } else {
            self.local_settings.retain(|(local, _)| !local.eq_ignore_ascii_case(name));
        }
        self.settings_changed();
        Ok(())
    }

    /// Notes that a transaction has ended.
    fn ended(&mut self) {
        if self.taken.end_transaction() {
            self.database.connections().advisory.end_transaction(self.process_id);
        }
        if !self.local_settings.is_empty() {
            for (name, before) in std::mem::take(&mut self.local_settings).into_iter().rev() {
                // It had this value before.
                let _ = self.settings.set(&name, &before);
            }
            self.settings_changed();
        }
        self.kind = Kind::None;
        self.open = None;
        self.savepoints.clear();
        self.forget_session();
        self.settings_before = None;
        self.undos.clear();
        self.noted.store(0, Ordering::SeqCst);
    }
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Connection>();
};
