//! The facts that statements know of the connection they come from.
//!
//! Owns: the values of `current_user` and the like, and the last numbers that the connection took from sequences. Never: changes a
//! setting.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cancel::Connections;
use crate::settings::Settings;

/// The facts that statements of one transaction know of their connection.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) user: Arc<str>,
    pub(crate) database: Arc<str>,
    pub(crate) process_id: i32,
    /// The moment at which the transaction began, in microseconds since 1970-01-01.
    pub(crate) began: i64,
    pub(crate) settings: Arc<Settings>,
    pub(crate) taken: Arc<Taken>,
    pub(crate) connections: Arc<Connections>,
}

/// The last number that a connection took from each sequence.
#[derive(Debug, Default)]
pub(crate) struct Taken(Mutex<(BTreeMap<String, i64>, Option<i64>)>);

impl Taken {
    pub(crate) fn note(&self, sequence: &str, number: i64) {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.0.insert(sequence.to_owned(), number);
        taken.1 = Some(number);
    }

    pub(crate) fn of(&self, sequence: &str) -> Option<i64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.get(sequence).copied()
    }

    pub(crate) fn last(&self) -> Option<i64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

/// The moment that it is now, in microseconds since 1970-01-01.
pub(crate) fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
