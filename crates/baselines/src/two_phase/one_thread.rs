//! [`OneThreadEngine`]: the engine without latches, for one thread.
//!
//! Owns: the proof that one thread at a time is in the trees and in the lock manager. Never: leaves out a lock.
//!
//! # Why nothing is latched
//! The engine is in a mutex, and nothing of it is handed out. A client holds the mutex from its creation to its end, and cannot leave
//! its thread. Whoever loads, walks, checks or weighs the data holds it meanwhile, and is refused, or waits, while there is a client. So a
//! second thread comes after the first one, by way of the mutex.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::schema::TableId;
use atrapos_storage::KeyBuf;

use super::{LockingClient, LockingEngine};
use crate::durable::ClientLog;
use crate::rows::Visit;
use crate::session::{Attempt, BranchBody, Engine, EngineClient};

/// `shared-2pl` without latches. It has one client at a time; attempts of another one abort with [`AbortReason::Misuse`].
#[derive(Debug)]
pub struct OneThreadEngine {
    engine: Mutex<LockingEngine>,
}

impl OneThreadEngine {
    /// Creates an engine with so many empty tables, numbered from 0.
    #[must_use]
    pub fn new(tables: usize) -> OneThreadEngine {
        // SAFETY: it is used under the mutex only, which its clients hold as long as they live; see the module's introduction.
        OneThreadEngine { engine: Mutex::new(unsafe { LockingEngine::for_one_thread(tables) }) }
    }

    fn enter(&self) -> Result<MutexGuard<'_, LockingEngine>, Abort> {
        match self.engine.try_lock() {
            Ok(engine) => Ok(engine),
            // An interrupted transaction was undone when it was dropped.
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(refusal()),
        }
    }
}

fn refusal() -> Abort {
    let why = "the engine is for one thread, and a client of it is in use; end that one first, or use the engine with latches";
    Abort::because(AbortReason::Misuse, why)
}

impl Engine for OneThreadEngine {
    fn name(&self) -> &'static str {
        "shared-2pl"
    }

    fn client(&self) -> Box<dyn EngineClient + '_> {
        match self.enter() {
            Ok(engine) => Box::new(OneClient { client: LockingEngine::client(&engine), _engine: engine }),
            Err(_) => Box::new(RefusedClient),
        }
    }

    fn load(&self, table: TableId, rows: &[(KeyBuf, Box<[u8]>)]) -> Result<(), Abort> {
        Engine::load(&*self.enter()?, table, rows)
    }

    fn walk(&self, table: TableId, visit: &mut Visit<'_>) -> Result<(), Abort> {
        self.enter()?.walk(table, visit)
    }

    /// Waits until there is no client.
    fn memory_bytes(&self) -> u64 {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner).memory_bytes()
    }

    fn check(&self) -> Result<(), String> {
        self.enter().map_err(|abort| abort.to_string())?.check()
    }
}

/// The client of the engine.
struct OneClient<'e> {
    // Before the guard: it uses the engine until it is dropped.
    client: LockingClient,
    _engine: MutexGuard<'e, LockingEngine>,
}

impl EngineClient for OneClient<'_> {
    fn attempt(&mut self, body: &mut Attempt<'_>) -> Result<(), Abort> {
        EngineClient::attempt(&mut self.client, body)
    }

    fn attempt_logged(&mut self, body: &mut Attempt<'_>, log: &mut ClientLog<'_>) -> Result<(), Abort> {
        self.client.attempt_logged(body, log)
    }

    fn run_branch(&mut self, age: u64, body: &mut BranchBody<'_>) -> Result<(), Abort> {
        self.client.run_branch(age, body)
    }

    fn back_off(&mut self, attempt: u32) {
        self.client.back_off(attempt);
    }
}

/// A client beside another one.
struct RefusedClient;

impl EngineClient for RefusedClient {
    fn attempt(&mut self, _body: &mut Attempt<'_>) -> Result<(), Abort> {
        Err(refusal())
    }

    fn attempt_logged(&mut self, _body: &mut Attempt<'_>, _log: &mut ClientLog<'_>) -> Result<(), Abort> {
        Err(refusal())
    }

    fn run_branch(&mut self, _age: u64, _body: &mut BranchBody<'_>) -> Result<(), Abort> {
        Err(refusal())
    }

    fn back_off(&mut self, _attempt: u32) {}
}
