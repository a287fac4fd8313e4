//! The sessions of a server, by the numbers that cancel requests name.
//!
//! Owns: numbers and secrets. Never: knows what a session does.
//!
//! Invariant: a request cancels nothing unless it knows the secret, which is compared in constant time, and is not told whether it did.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atrapos_sql::CancelHandle;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

/// Bytes of a secret before version 3.2 of the protocol, which allows more.
const SHORT_SECRET: usize = 4;
const LONG_SECRET: usize = 32;

/// The sessions of a server.
#[derive(Debug)]
pub(crate) struct Sessions {
    by_process: Mutex<HashMap<i32, Entry>>,
    /// Key by which secrets are compared.
    key: hmac::Key,
    next: AtomicI32,
}

#[derive(Debug)]
struct Entry {
    secret: Vec<u8>,
    cancel: CancelHandle,
}

/// A session that can be cancelled, until this is dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    sessions: Arc<Sessions>,
    pub(crate) process: i32,
    pub(crate) secret: Vec<u8>,
}

impl Sessions {
    /// Starts without sessions. Fails if the system has no random numbers.
    pub(crate) fn new() -> Result<Arc<Sessions>, ring::error::Unspecified> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())?;
        Ok(Arc::new(Sessions { by_process: Mutex::default(), key, next: AtomicI32::new(1) }))
    }

    fn by_process(&self) -> MutexGuard<'_, HashMap<i32, Entry>> {
        // A map is whole before and after each change.
        self.by_process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of a new session.
    pub(crate) fn number(&self) -> i32 {
        // After 2^31 of them numbers begin again: those of then are gone.
        self.next.fetch_add(1, Ordering::Relaxed) & i32::MAX
    }

    /// Registers a session under its number.
    pub(crate) fn register(
        self: &Arc<Sessions>,
        process: i32,
        long_secret: bool,
        cancel: CancelHandle,
    ) -> Result<Registered, ring::error::Unspecified> {
        let mut secret = vec![0; if long_secret { LONG_SECRET } else { SHORT_SECRET }];
        SystemRandom::new().fill(&mut secret)?;
        self.by_process().insert(process, Entry { secret: secret.clone(), cancel });
        Ok(Registered { sessions: Arc::clone(self), process, secret })
    }

    /// Cancels what a session runs, if the secret is its.
    pub(crate) fn cancel(&self, process: i32, secret: &[u8]) {
        let handle = {
            let sessions = self.by_process();
            let Some(entry) = sessions.get(&process) else { return };
            let expected = hmac::sign(&self.key, &entry.secret);
            if hmac::verify(&self.key, secret, expected.as_ref()).is_err() {
                return;
            }
            entry.cancel.clone()
        };
        handle.cancel();
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.sessions.by_process().remove(&self.process);
    }
}
