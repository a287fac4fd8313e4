//! The activity of connections, as `pg_stat_activity` tells of it.
//!
//! Owns: what each connection runs, or has run last, and since when. Never: ends anything.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::session::now;

/// The part of a query that is told of, in bytes.
const MAX_QUERY: usize = 1024;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActivityState {
    Active,
    Idle,
    InTransaction,
    InFailedTransaction,
}

impl ActivityState {
    /// Its name in `pg_stat_activity`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ActivityState::Active => "active",
            ActivityState::Idle => "idle",
            ActivityState::InTransaction => "idle in transaction",
            ActivityState::InFailedTransaction => "idle in transaction (aborted)",
        }
    }
}

/// The activity of a connection at a moment. Moments are in microseconds since 1970-01-01.
#[derive(Clone, Debug)]
pub(crate) struct Doing {
    pub(crate) state: ActivityState,
    /// The statement that runs, or ran last; [a part of it](told_part) is told of.
    pub(crate) query: Arc<str>,
    pub(crate) query_began: Option<i64>,
    pub(crate) transaction_began: Option<i64>,
    pub(crate) changed: i64,
    pub(crate) application: String,
}

/// The activity of one connection.
#[derive(Debug)]
pub(crate) struct Activity {
    pub(crate) user: Arc<str>,
    /// The moment at which the connection began.
    pub(crate) began: i64,
    doing: Mutex<Doing>,
}

impl Activity {
    pub(crate) fn new(user: &Arc<str>, application: &str) -> Activity {
        let began = now();
        let doing = Doing {
            state: ActivityState::Idle,
            query: Arc::from(""),
            query_began: None,
            transaction_began: None,
            changed: began,
            application: application.to_owned(),
        };
        Activity { user: Arc::clone(user), began, doing: Mutex::new(doing) }
    }

    fn lock(&self) -> MutexGuard<'_, Doing> {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a statement begins, whose text is kept by others, too; returns the moment.
    pub(crate) fn begins(&self, query: &Arc<str>) -> i64 {
        let moment = now();
        let mut doing = self.lock();
        if !Arc::ptr_eq(&doing.query, query) {
            doing.query = Arc::clone(query);
        }
        (doing.state, doing.query_began, doing.changed) = (ActivityState::Active, Some(moment), moment);
        doing.transaction_began.get_or_insert(moment);
        moment
    }

    /// Notes that a statement has ended, or that nothing has changed since one has.
    pub(crate) fn ends(&self, state: ActivityState) {
        let mut doing = self.lock();
        if doing.state != state {
            (doing.state, doing.changed) = (state, now());
        }
        if state == ActivityState::Idle {
            doing.transaction_began = None;
        }
    }

    /// Notes the name of the program that uses the connection.
    pub(crate) fn is_used_by(&self, application: &str) {
        let mut doing = self.lock();
        if doing.application != application {
            application.clone_into(&mut doing.application);
        }
    }

    /// Returns the activity at this moment.
    pub(crate) fn doing(&self) -> Doing {
        self.lock().clone()
    }
}

/// Returns the part of a query that is told of.
pub(crate) fn told_part(query: &str) -> &str {
    &query[..query.floor_char_boundary(MAX_QUERY)]
}
