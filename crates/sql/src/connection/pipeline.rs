//! Statements of a pipeline, which wait for those behind them and are run together.
//!
//! Owns: which statements wait, and what becomes of their answers. Never: reorders answers: the [`Sink`] notes the place of each.
//!
//! # Invariants
//! - A statement waits only while another message behind it has arrived; whoever serves the connection has them run
//!   ([`Connection::run_deferred`]) before it waits for the client.
//! - Statements that wait run before a simple query, before a statement that cannot wait, and before a message that names a statement or a
//!   portal: these must have no effect if one of them fails.
//! - What is behind a statement that has failed has neither run nor been answered.

use std::borrow::Cow;
use std::sync::Arc;

use super::extended::{Behind, Prepared};
use super::planning::CachedPlan;
use super::running::{give, wait_before};
use super::{Connection, Kind};
use crate::error::SqlError;
use crate::exec::Answer;
use crate::format::Format;
use crate::sink::Sink;
use crate::transaction::Answers;
use crate::value::Value;

/// The most statements that are run together.
const MOST: usize = 256;

/// The most statements whose room is kept by a connection that has none waiting.
const KEPT: usize = 4;

/// A statement that waits.
#[derive(Debug)]
pub(super) struct Deferred {
    pub(super) prepared: Arc<Prepared>,
    pub(super) params: Arc<[Value]>,
    pub(super) formats: Arc<[Format]>,
}

impl Connection {
    /// Returns true if statements wait to be run: [`run_deferred`](Connection::run_deferred) runs them.
    #[must_use]
    pub fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Has the statement of the portal without a name wait, with a message behind it, as [`execute`](Connection::execute) does, if that is
    /// possible at once. Otherwise it returns false, and nothing has happened. The sink is not told of the place of the answer.
    pub fn defer_at_once(&mut self) -> bool {
        if self.deferred.len() + 1 >= MOST {
            return false;
        }
        let Some(statement) = self.deferrable("", 0, Behind::Message) else { return false };
        self.push(statement);
        true
    }

    fn push(&mut self, statement: Deferred) {
        if self.kind == Kind::None {
            self.kind = Kind::Implicit;
        }
        self.deferred.push(statement);
    }

    /// Has a statement wait for those behind it; runs those that wait if they are many, or a Sync is behind them.
    pub(super) async fn defer(
        &mut self,
        statement: Deferred,
        behind: Behind,
        sink: &mut dyn Sink,
    ) -> Result<(), SqlError> {
        sink.defer();
        self.push(statement);
        if behind == Behind::Sync || self.deferred.len() >= MOST {
            let done = self.run_waiting(behind == Behind::Sync, sink).await;
            self.tell_activity();
            return done;
        }
        Ok(())
    }

    /// Runs the statements that wait, and gives their answers.
    ///
    /// # Errors
    /// The error of the first that failed; the transaction has failed then.
    pub async fn run_deferred(&mut self, sink: &mut dyn Sink) -> Result<(), SqlError> {
        if self.deferred.is_empty() {
            return Ok(());
        }
        let done = self.run_waiting(false, sink).await;
        self.tell_activity();
        done
    }

    /// Runs the statements that wait, of which there are some. `ends` says that their transaction ends with them if it is an implicit one:
    /// they are one procedure then, which commits. An error fails the transaction.
    pub(super) async fn run_waiting(&mut self, ends: bool, sink: &mut dyn Sink) -> Result<(), SqlError> {
        let mut waiting = std::mem::take(&mut self.deferred);
        if let Some(last) = waiting.last() {
            let began = self.activity.begins(&last.prepared.text);
            self.begins_at(began);
        }
        self.cancel.begin(self.settings.limits().statement);
        let done = self.run_parts(&waiting, ends, sink).await;
        sink.end_deferred(done.is_ok());
        if let (Ok(tag), Some(last), Some(portal)) = (&done, waiting.last(), self.portals.get_mut(""))
            && Arc::ptr_eq(&portal.params, &last.params)
        {
            // It may be executed once more, and has no more rows.
            portal.answer = Some((Answer::of_tag(tag.clone()), 0, 0));
        }
        waiting.clear();
        if waiting.capacity() <= KEPT {
            self.deferred = waiting;
        }
        let done = done.and(self.take_settings());
        self.checked(done).await
    }

    /// Runs statements together: all of them, or, where their answers are large, some at a time. Returns the tag of the last one.
    async fn run_parts(
        &mut self,
        waiting: &[Deferred],
        ends: bool,
        sink: &mut dyn Sink,
    ) -> Result<Cow<'static, str>, SqlError> {
        let (mut rest, mut tag) = (waiting, Cow::Borrowed(""));
        if ends && self.kind == Kind::Implicit && self.open.is_none() {
            self.kind = Kind::None;
            let answers = self.run_pipeline(rest, true).await;
            rest = give_answers(rest, answers, &mut tag, sink).await?;
            if !rest.is_empty() {
                self.kind = Kind::Implicit;
            }
        }
        while !rest.is_empty() {
            let answers = self.run_pipeline(rest, false).await;
            rest = give_answers(rest, answers, &mut tag, sink).await?;
        }
        Ok(tag)
    }

    /// Runs statements together, and plans them again when their tables have changed.
    async fn run_pipeline(&mut self, waiting: &[Deferred], ends: bool) -> Answers {
        // Those that were made anew.
        let mut plans: Vec<CachedPlan> = Vec::new();
        let mut attempt = 0;
        loop {
            let answers = self.run_all(&plans, waiting, ends).await;
            match &answers.error {
                Some(error) if ends && Self::may_try_again(error, attempt) => attempt += 1,
                _ => return answers,
            }
            if let Err(error) = Box::pin(self.plan_again(&mut plans, waiting, attempt)).await {
                return Answers::failed(error);
            }
        }
    }

    async fn run_all(&mut self, plans: &[CachedPlan], waiting: &[Deferred], ends: bool) -> Answers {
        let mut requests = Vec::with_capacity(waiting.len());
        // All know the same; the last one takes what the others have copies of.
        let mut facts = Some((Arc::clone(self.known_schema()), self.session()));
        for (at, statement) in waiting.iter().enumerate() {
            let Some(plan) = plans.get(at).or(statement.prepared.plan.as_ref()) else { continue };
            let known = if at + 1 == waiting.len() { facts.take() } else { facts.clone() };
            let Some(known) = known else { break };
            let (params, formats) = (Arc::clone(&statement.params), Arc::clone(&statement.formats));
            match self.request(plan, params, formats, known) {
                Ok(request) => requests.push(request),
                Err(error) => {
                    // Those before it are run all the same.
                    let mut answers = self.run_requests(requests, false).await;
                    if answers.given.len() == at {
                        answers.error.get_or_insert(error);
                    }
                    return answers;
                }
            }
        }
        self.run_requests(requests, ends).await
    }

    async fn plan_again(
        &mut self,
        plans: &mut Vec<CachedPlan>,
        waiting: &[Deferred],
        attempt: usize,
    ) -> Result<(), SqlError> {
        wait_before(attempt).await?;
        plans.clear();
        for statement in waiting {
            let Some(tree) = &statement.prepared.statement else { continue };
            plans.push(self.plan_anew(&statement.prepared, tree).await?);
        }
        Ok(())
    }
}

/// Gives the answers of the first statements; returns those that have not run yet. `tag` becomes that of the last that was given.
async fn give_answers<'a>(
    waiting: &'a [Deferred],
    answers: Answers,
    tag: &mut Cow<'static, str>,
    sink: &mut dyn Sink,
) -> Result<&'a [Deferred], SqlError> {
    let rest = waiting.get(answers.given.len()..).unwrap_or_default();
    if answers.error.is_some()
        && let [failed, ..] = rest
    {
        sink.ran(&failed.prepared.text, answers.failed_after);
    }
    for (statement, answer) in waiting.iter().zip(answers.given) {
        sink.next_deferred();
        sink.ran(&statement.prepared.text, answer.took);
        if let Some(count) = statement.prepared.plan.as_ref().and_then(|plan| plan.count.as_ref()) {
            count.add(answer.rows(), answer.took);
        }
        give(&answer.messages, answer.count, sink).await?;
        sink.complete(&answer.tag);
        *tag = answer.tag;
    }
    match answers.error {
        Some(error) => {
            if !rest.is_empty() {
                sink.next_deferred();
            }
            Err(error)
        }
        None => Ok(rest),
    }
}
