//! [`DomainsClient`]: a thread that delegates the operations of its transactions.
//!
//! Owns: the age of its transaction. Never: is used by two threads.

use std::time::Duration;

use atrapos_domains::Client;
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_storage::lock::TxnId;

use super::engine::{AGES, DomainsEngine};
use super::transaction::DelegatedTransaction;
use crate::durable::ClientLog;
use crate::session::{Attempt, BranchBody, EngineClient};

/// See the module's introduction.
pub(super) struct DomainsClient<'e> {
    pub(super) engine: &'e DomainsEngine,
    pub(super) client: Client,
    age: u64,
    /// True if the next transaction is another attempt of the last one, and as old.
    tries_again: bool,
}

/// Tasks of a client under way with one worker at most: a single one but for the ends of transactions.
const WINDOW: usize = 2;
/// Waiting before another attempt, at most.
const BACK_OFF_MAX: Duration = Duration::from_micros(500);

impl<'e> DomainsClient<'e> {
    pub(super) fn new(engine: &'e DomainsEngine, client: Client) -> DomainsClient<'e> {
        let (client, age) = (client.with_window(WINDOW), engine.take_ages());
        DomainsClient { engine, client, age, tries_again: false }
    }

    fn begin(&mut self) -> DelegatedTransaction<'_, 'e> {
        if !std::mem::take(&mut self.tries_again) {
            self.age += 1;
            if self.age.is_multiple_of(AGES) {
                self.age = self.engine.take_ages();
            }
        }
        DelegatedTransaction::new(self, TxnId(self.age))
    }
}

fn unsupported(why: &'static str) -> Abort {
    Abort::because(AbortReason::Misuse, why)
}

impl EngineClient for DomainsClient<'_> {
    fn attempt(&mut self, body: &mut Attempt<'_>) -> Result<(), Abort> {
        let mut transaction = self.begin();
        body(&mut transaction)?;
        transaction.commit()
    }

    fn attempt_logged(&mut self, _body: &mut Attempt<'_>, _log: &mut ClientLog<'_>) -> Result<(), Abort> {
        Err(unsupported("tables in domains have no log; keep them in memory, or choose another engine"))
    }

    fn run_branch(&mut self, _age: u64, _body: &mut BranchBody<'_>) -> Result<(), Abort> {
        Err(unsupported("tables in domains are of one instance; choose another engine for several"))
    }

    fn back_off(&mut self, attempt: u32) {
        self.tries_again = true;
        // Whoever is older is soon through; who comes again at once only meets it once more.
        match attempt {
            0..=2 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(10 * u64::from(attempt)).min(BACK_OFF_MAX)),
        }
    }
}
