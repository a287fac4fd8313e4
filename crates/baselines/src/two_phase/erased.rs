//! The engine and its clients as any [`Engine`] and [`EngineClient`].

use atrapos_partition::abort::Abort;
use atrapos_partition::schema::TableId;
use atrapos_storage::KeyBuf;

use super::{LockingClient, LockingEngine};
use crate::durable::ClientLog;
use crate::rows::Visit;
use crate::session::{Attempt, BranchBody, Engine, EngineClient};

impl Engine for LockingEngine {
    fn name(&self) -> &'static str {
        "shared-2pl"
    }

    fn client(&self) -> Box<dyn EngineClient + '_> {
        if self.only_reads { Box::new(self.reader()) } else { Box::new(LockingEngine::client(self)) }
    }

    fn load(&self, table: TableId, rows: &[(KeyBuf, Box<[u8]>)]) -> Result<(), Abort> {
        LockingEngine::load(self, table, rows.iter().map(|(key, row)| (key.as_slice(), row)))
    }

    fn walk(&self, table: TableId, visit: &mut Visit<'_>) -> Result<(), Abort> {
        LockingEngine::walk(self, table, visit)
    }

    fn memory_bytes(&self) -> u64 {
        LockingEngine::memory_bytes(self)
    }

    fn check(&self) -> Result<(), String> {
        LockingEngine::check(self)
    }
}

impl EngineClient for LockingClient {
    fn attempt(&mut self, body: &mut Attempt<'_>) -> Result<(), Abort> {
        LockingClient::attempt(self, |transaction| body(transaction))
    }

    fn attempt_logged(&mut self, body: &mut Attempt<'_>, log: &mut ClientLog<'_>) -> Result<(), Abort> {
        self.attempt_to(|transaction| body(transaction), log)
    }

    fn run_branch(&mut self, age: u64, body: &mut BranchBody<'_>) -> Result<(), Abort> {
        body(&mut self.begin_at(age))
    }

    fn back_off(&mut self, _attempt: u32) {
        // Who is older has what the transaction has released, and it gets older: no time is needed.
        self.try_again();
        std::thread::yield_now();
    }
}
