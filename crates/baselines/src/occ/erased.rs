//! The engine and its clients as any [`Engine`] and [`EngineClient`].

use std::ops::ControlFlow;

use atrapos_partition::abort::Abort;
use atrapos_partition::schema::TableId;
use atrapos_storage::KeyBuf;

use super::{OccClient, OccEngine};
use crate::durable::ClientLog;
use crate::redo::InMemory;
use crate::rows::Visit;
use crate::session::{Attempt, BranchBody, Engine, EngineClient};

impl Engine for OccEngine {
    fn name(&self) -> &'static str {
        "shared-occ"
    }

    fn client(&self) -> Box<dyn EngineClient + '_> {
        Box::new(OccEngine::client(self))
    }

    fn load(&self, table: TableId, rows: &[(KeyBuf, Box<[u8]>)]) -> Result<(), Abort> {
        OccEngine::load(self, table, rows.iter().map(|(key, row)| (key.as_slice(), row))).map(drop)
    }

    fn walk(&self, table: TableId, visit: &mut Visit<'_>) -> Result<(), Abort> {
        let mut outcome = Ok(ControlFlow::Continue(()));
        self.for_each(table, |key, row| {
            if let Ok(ControlFlow::Continue(())) = outcome {
                outcome = visit(key, row);
            }
        })?;
        outcome.map(drop)
    }

    fn memory_bytes(&self) -> u64 {
        let memory = self.memory();
        memory.nodes + memory.records
    }

    fn check(&self) -> Result<(), String> {
        OccEngine::check(self)
    }
}

impl EngineClient for OccClient {
    fn attempt(&mut self, body: &mut Attempt<'_>) -> Result<(), Abort> {
        OccClient::attempt(self, &mut |transaction| body(transaction), &mut InMemory)
    }

    fn attempt_logged(&mut self, body: &mut Attempt<'_>, log: &mut ClientLog<'_>) -> Result<(), Abort> {
        OccClient::attempt(self, &mut |transaction| body(transaction), log)
    }

    fn run_branch(&mut self, _age: u64, body: &mut BranchBody<'_>) -> Result<(), Abort> {
        body(&mut self.begin())
    }

    fn back_off(&mut self, attempt: u32) {
        OccClient::back_off(self, attempt);
    }
}
