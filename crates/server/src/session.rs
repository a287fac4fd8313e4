//! The conversation with a client that has logged in.
//!
//! Owns: which message may come when, and what each is answered. Never: knows what a statement does.
//!
//! Invariants: after an error in the extended protocol all messages are skipped up to Sync; ReadyForQuery follows each Query and each Sync,
//! and nothing else; answers are sent then, at a Flush, and when the buffer is full; while answers wait to be sent, nothing is read.
//! Futures of statements are in boxes, as they are large and a session is idle for most of its life.

use std::sync::Arc;
use std::time::Duration;

use atrapos::{Clock, Ticks};
use atrapos_sql::{Behind, CancelHandle, Connection, Severity, SqlError, SqlState, TransactionStatus};
use tokio::sync::watch;

use crate::errors::{self, fatal};
use crate::latency::Latencies;
use crate::limits;
use crate::outbox::{self, Outbox};
use crate::protocol::backend;
use crate::protocol::body::Malformed;
use crate::protocol::frontend::{self, Bind, Frontend, Target};
use crate::sessions::Registered;
use crate::shutdown::{Ends, Phase};
use crate::slow_log::{SlowLog, SlowStatements, Watched};
use crate::stream::{Broken, Channel};

/// The time that a statement has to notice that it is cancelled when the server ends.
const CANCEL_GRACE: Duration = Duration::from_secs(1);

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    sql: Connection,
    outbox: Outbox,
    /// True from an error in the extended protocol up to the next Sync.
    skipping: bool,
    /// True if the last message that was taken ended a round: nothing waits for a Sync.
    between_rounds: bool,
    /// The time at which the first message of the round was taken.
    round_began: Ticks,
    clock: Clock,
    /// The message that is answered, if it is measured for the log of slow statements.
    watched: Option<Watched>,
    latencies: Arc<Latencies>,
}

/// The step that follows a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Continue,
    End,
}

/// The reason for which the next message was not taken.
enum Interrupted {
    /// The client has gone.
    Gone,
    /// The server ends, or the session is to.
    ShutDown,
    /// A transaction has been open without a message for too long.
    IdleInTransaction,
    /// The connection cannot be read any more.
    Refused(SqlError),
}

impl Session {
    pub(crate) fn new(
        sql: Connection,
        channel: Channel,
        slow: Option<SlowLog>,
        latencies: Arc<Latencies>,
    ) -> Session {
        let outbox = Outbox::new(channel, slow.map(|log| SlowStatements::new(log, &sql)));
        let clock = Clock::real();
        let round_began = clock.now();
        let (skipping, between_rounds, watched) = (false, true, None);
        Session { sql, outbox, skipping, between_rounds, round_began, clock, watched, latencies }
    }

    /// Greets the client and serves it until it goes or the server ends.
    pub(crate) async fn run(mut self, registered: &Registered, phase: watch::Receiver<Phase>) {
        let cancel = self.sql.cancel_handle();
        let mut ends = Ends::new(phase, cancel.clone());
        let out = self.outbox.channel.out();
        for (name, value) in self.sql.settings().reported() {
            backend::parameter_status(out, name, value);
        }
        self.sql.settings().take_changes();
        backend::key_data(out, registered.process, &registered.secret);
        if self.ready_for_query().await.is_err() {
            return;
        }
        let mut body = Vec::new();
        loop {
            if !self.skipping && self.outbox.answer_at_once(&mut self.sql) && self.between_rounds {
                self.between_rounds = false;
                self.round_began = self.clock.now();
            }
            let message = if self.sql.has_deferred() && !self.outbox.next_joins(&self.sql) {
                // Statements wait for those behind them, and not for the client.
                if !self.outbox.channel.has_message() && self.outbox.channel.read_at_once().await {
                    continue;
                }
                Ok(None)
            } else {
                match self.outbox.channel.take_message(&mut body) {
                    Ok(Some(tag)) => Ok(Some(tag)),
                    Ok(None) => match self.next_message(&mut ends).await {
                        Ok(()) => continue,
                        Err(interrupted) => Err(interrupted),
                    },
                    Err(broken) => Err(refused(broken)),
                }
            };
            match message {
                Ok(tag) => match self.answer_or_end(tag, &body, &mut ends, &cancel).await {
                    Next::Continue if !self.outbox.broken => {}
                    Next::Continue | Next::End => break,
                },
                Err(Interrupted::Gone) => break,
                Err(Interrupted::ShutDown) => {
                    self.outbox.error(&shut_down());
                    break;
                }
                Err(Interrupted::IdleInTransaction) => {
                    let message = "terminating connection due to idle-in-transaction timeout";
                    self.outbox.error(&fatal(SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT, message));
                    break;
                }
                Err(Interrupted::Refused(error)) => {
                    self.outbox.error(&error);
                    break;
                }
            }
            body.clear();
            body.shrink_to(KEPT_BYTES);
        }
        // The transaction that is open, if one is, is undone before the client sees the end.
        drop(self.sql);
        if !self.outbox.broken {
            // Whoever has gone already needs not be told.
            let _ = tokio::time::timeout(CANCEL_GRACE, self.outbox.channel.end()).await;
        }
    }

    /// Waits until a message has arrived, or for the end of the server as far as it concerns this session.
    async fn next_message(&mut self, ends: &mut Ends) -> Result<(), Interrupted> {
        let is_idle = self.sql.status() == TransactionStatus::Idle;
        let last = if self.between_rounds && is_idle { Phase::Draining } else { Phase::Ending };
        let limit = self.sql.settings().limits().idle_in_transaction.filter(|_| !is_idle);
        let arrived = tokio::select! {
            biased;
            arrived = self.outbox.channel.arrival() => arrived,
            () = ends.wait(last, true) => return Err(Interrupted::ShutDown),
            () = limits::pass(limit) => return Err(Interrupted::IdleInTransaction),
        };
        match arrived {
            Ok(true) => Ok(()),
            Ok(false) => Err(Interrupted::Gone),
            Err(broken) => Err(refused(broken)),
        }
    }

    /// Answers a message, or runs the statements that wait if there is none; if the server ends meanwhile, or the session is to, what that
    /// has begun is cancelled.
    async fn answer_or_end(
        &mut self,
        tag: Option<u8>,
        body: &[u8],
        ends: &mut Ends,
        cancel: &CancelHandle,
    ) -> Next {
        let limits = self.sql.settings().limits();
        self.watched = tag.and_then(|tag| self.watch(tag, body));
        self.outbox.has_run_deferred = false;
        if self.between_rounds {
            self.round_began = self.clock.now();
        }
        let answered = {
            let mut answer = std::pin::pin!(async {
                match tag {
                    Some(tag) => self.answer(tag, body).await,
                    None => {
                        let done = Box::pin(self.sql.run_deferred(&mut self.outbox)).await;
                        self.go_on(done).await
                    }
                }
            });
            let answered = tokio::select! {
                biased;
                next = &mut answer => Some(next),
                () = ends.wait(Phase::Ending, false) => None,
                () = limits::enforce(limits, cancel) => None,
            };
            if answered.is_none() {
                cancel.cancel();
                let _ = tokio::time::timeout(CANCEL_GRACE, &mut answer).await;
            }
            answered
        };
        if let Some(next) = answered {
            self.end_watch();
            if !cancel.is_terminated() || next == Next::End {
                return next;
            }
        }
        self.outbox.error(&shut_down());
        Next::End
    }

    /// Begins to measure a message that runs a statement, if slow ones are to be told.
    fn watch(&self, tag: u8, body: &[u8]) -> Option<Watched> {
        let slow = self.outbox.slow.as_ref()?;
        let text = match Frontend::read(tag, body).ok()? {
            Frontend::Query(text) => text,
            Frontend::Execute { portal, .. } => self.sql.portal_text(portal)?,
            _ => return None,
        };
        Some(slow.begin(text))
    }

    /// Ends to measure a message, if it is measured still, unless statements that were deferred have run in it, each of which was told of
    /// by itself.
    fn end_watch(&mut self) {
        if let (Some(watched), Some(slow), false) =
            (self.watched.take(), &self.outbox.slow, self.outbox.has_run_deferred)
        {
            slow.end(&watched);
        }
    }

    /// Answers a message. Statements wait only if it [joins](Outbox::next_joins) them.
    async fn answer(&mut self, tag: u8, body: &[u8]) -> Next {
        if self.skipping && !matches!(tag, b'S' | b'X') {
            return Next::Continue;
        }
        let between_rounds = std::mem::replace(&mut self.between_rounds, false);
        let answered = match Frontend::read(tag, body) {
            Ok(Frontend::Terminate) => return Next::End,
            Ok(Frontend::Sync) => {
                self.skipping = false;
                let ended = self.sql.sync(&mut self.outbox).await;
                return self.end_round(ended).await;
            }
            Ok(Frontend::Query(text)) => {
                let done = Box::pin(self.sql.simple(text, &mut self.outbox)).await;
                return self.end_round(done).await;
            }
            Ok(Frontend::FunctionCall) => {
                let refused = SqlError::unsupported("calling functions by a message (it is obsolete)")
                    .hint("Use SELECT with the function.");
                let first = Box::pin(self.sql.fail(refused, &mut self.outbox)).await;
                return self.end_round(Err(first)).await;
            }
            // They were on their way when a COPY failed.
            Ok(Frontend::CopyData(_) | Frontend::CopyDone | Frontend::CopyFail(_)) => {
                self.between_rounds = between_rounds;
                return Next::Continue;
            }
            Ok(Frontend::Flush) => self.outbox.send().await,
            // Nobody is asked for a password any more.
            Ok(Frontend::Password(_)) | Err(Malformed::Type(_)) => {
                self.outbox.error(&fatal(SqlState::PROTOCOL_VIOLATION, Malformed::Type(tag).to_string()));
                return Next::End;
            }
            Ok(message) => self.answer_extended(message).await,
            Err(error) if frontend::is_extended(tag) => Err(errors::malformed(&error)),
            Err(error) if tag == b'Q' => {
                let first = Box::pin(self.sql.fail(errors::malformed(&error), &mut self.outbox)).await;
                return self.end_round(Err(first)).await;
            }
            // It can be answered neither within a round nor by the end of one.
            Err(error) => {
                self.outbox.error(&errors::malformed(&error).severity(Severity::Fatal));
                return Next::End;
            }
        };
        self.go_on(answered).await
    }

    /// Goes on behind a message that has not ended a round: sends answers if they are many, and skips messages after an error.
    async fn go_on(&mut self, mut answered: Result<(), SqlError>) -> Next {
        if answered.is_ok() && self.outbox.channel.is_full() {
            // What is behind the place of an answer cannot be sent before it.
            answered = Box::pin(self.sql.run_deferred(&mut self.outbox)).await;
            if answered.is_ok() && self.outbox.send().await.is_err() {
                return Next::End;
            }
        }
        match answered {
            Ok(()) => Next::Continue,
            Err(error) => {
                let first = Box::pin(self.sql.fail(error, &mut self.outbox)).await;
                self.skipping = true;
                self.tell(&first)
            }
        }
    }

    /// Answers a message of the extended protocol that neither ends a round nor flushes.
    async fn answer_extended(&mut self, message: Frontend<'_>) -> Result<(), SqlError> {
        match message {
            Frontend::Parse { name, text, types } => {
                Box::pin(self.sql.parse(name, text, &types)).await?;
                backend::bare(self.outbox.channel.out(), b'1');
            }
            Frontend::Bind(bind) => {
                self.bind(&bind).await?;
                backend::bare(self.outbox.channel.out(), b'2');
            }
            Frontend::Describe(target, name) => self.describe(target, name)?,
            Frontend::Execute { portal, limit } => {
                let behind = match self.outbox.channel.first_message().1 {
                    None => Behind::Nothing,
                    Some(next) if next.tag == b'S' && next.body.is_empty() => Behind::Sync,
                    Some(_) => Behind::Message,
                };
                Box::pin(self.sql.execute(portal, limit as usize, behind, &mut self.outbox)).await?;
            }
            Frontend::Close(target, name) => {
                match target {
                    Target::Statement => self.sql.close_statement(name),
                    Target::Portal => self.sql.close_portal(name),
                }
                backend::bare(self.outbox.channel.out(), b'3');
            }
            other => {
                return Err(SqlError::new(
                    SqlState::PROTOCOL_VIOLATION,
                    format!("unexpected message {other:?}"),
                ));
            }
        }
        Ok(())
    }

    async fn bind(&mut self, bind: &Bind<'_>) -> Result<(), SqlError> {
        let parameters = outbox::formats(&bind.parameter_formats)?;
        let results = outbox::formats(&bind.result_formats)?;
        Box::pin(self.sql.bind(bind.portal, bind.statement, &bind.parameters, &parameters, &results)).await
    }

    fn describe(&mut self, target: Target, name: &str) -> Result<(), SqlError> {
        match target {
            Target::Portal => {
                let portal = self.sql.describe_portal(name)?;
                outbox::result_description(self.outbox.channel.out(), portal.columns, portal.formats);
            }
            Target::Statement => {
                let statement = self.sql.describe_statement(name)?;
                let (types, out) =
                    (statement.parameters.iter().map(|ty| ty.oid()), self.outbox.channel.out());
                backend::parameter_description(out, types);
                outbox::result_description(out, statement.columns.as_deref(), &[]);
            }
        }
        Ok(())
    }

    /// Tells the client of an error; one that is fatal ends the session.
    fn tell(&mut self, error: &SqlError) -> Next {
        if self.outbox.broken {
            return Next::End;
        }
        self.outbox.error(error);
        if error.severity == Severity::Fatal { Next::End } else { Next::Continue }
    }

    /// Ends a round: an error if there was one, and ReadyForQuery.
    async fn end_round(&mut self, done: Result<(), SqlError>) -> Next {
        if let Err(error) = done
            && self.tell(&error) == Next::End
        {
            return Next::End;
        }
        // Whoever has the answer finds the line in the log.
        self.end_watch();
        match self.ready_for_query().await {
            Ok(()) => {
                let took = self.clock.ns(self.clock.now().since(self.round_began));
                self.latencies.add(Duration::from_nanos(took));
                Next::Continue
            }
            Err(_) => Next::End,
        }
    }

    async fn ready_for_query(&mut self) -> Result<(), SqlError> {
        let out = self.outbox.channel.out();
        for (name, value) in self.sql.settings().take_changes() {
            backend::parameter_status(out, name, &value);
        }
        let status = match self.sql.status() {
            TransactionStatus::Idle => b'I',
            TransactionStatus::Active => b'T',
            TransactionStatus::Failed => b'E',
        };
        backend::ready_for_query(out, status);
        self.between_rounds = true;
        self.outbox.send().await
    }
}

fn refused(broken: Broken) -> Interrupted {
    match broken {
        Broken::Socket(_) => Interrupted::Gone,
        Broken::Length(_) => Interrupted::Refused(fatal(SqlState::PROTOCOL_VIOLATION, broken.to_string())),
    }
}

/// Bytes of a message that an idle session may keep.
const KEPT_BYTES: usize = 512;

fn shut_down() -> SqlError {
    fatal(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
}
