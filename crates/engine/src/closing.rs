//! Closing of a database: the end of its workers, its other threads and its directory, in order.
//!
//! Owns: the parts that remain to be ended ([`Closing`]). Never: waits on a worker's thread, which may be one that has to
//! end, or one that another of them waits for; there it hands the ending to a thread of its own.
//!
//! Invariant: all threads are requested to stop before any is waited for, and the workers end first: the other threads may
//! wait for answers of workers, which come or are refused, but for nothing that outlasts the workers.

use std::sync::Arc;
use std::time::Duration;

use atrapos_placement::adaptation::{AdaptingThread, Adaptive};
use atrapos_runtime::Runtime;
use atrapos_transaction::shard::Shard;

use crate::database::{CloseReport, ON_WORKER};
use crate::durable::{Durable, DurableThreads};
use crate::memory::DatabaseMemory;

/// The parts of a database that is closing. See the module's introduction.
pub(crate) struct Closing {
    pub(crate) adaptive: Arc<Adaptive>,
    pub(crate) adapting: Option<AdaptingThread>,
    pub(crate) runtime: Runtime<Shard>,
    pub(crate) durable: Option<(Arc<Durable>, DurableThreads)>,
    pub(crate) memory: Option<DatabaseMemory>,
}

impl Closing {
    /// Ends all parts; transactions and sessions that have not ended after `deadline` are aborted. Returns when that is
    /// done, or at once on a worker's thread.
    pub(crate) fn close(self, deadline: Duration) -> CloseReport {
        self.adaptive.stop();
        self.memory.iter().for_each(DatabaseMemory::stop);
        if let Some((durable, _)) = &self.durable {
            durable.stop_checkpointer();
        }
        if ON_WORKER.get() { self.end_in_background(deadline) } else { self.end(deadline) }
    }

    fn end(self, deadline: Duration) -> CloseReport {
        // Tasks that wait for durability need the flushers to complete.
        let dropped = self.runtime.shutdown(deadline).tasks_dropped;
        if let Some(adapting) = self.adapting {
            adapting.join();
        }
        let failure = self.durable.and_then(|(durable, threads)| threads.after_workers_ended(&durable));
        CloseReport { dropped, failure }
    }

    fn end_in_background(self, deadline: Duration) -> CloseReport {
        let durable = self.durable.as_ref().map(|(durable, _)| Arc::clone(durable));
        let thread = std::thread::Builder::new().name("atrapos-close".to_owned());
        let failure = match thread.spawn(move || self.end(deadline)) {
            Ok(_) => {
                "a worker's thread cannot wait for the end of a database; this one closes in the background, so close it \
                 from another thread to know when and how it has ended"
                    .to_owned()
            }
            Err(error) => {
                // The runtime was dropped with what the thread should have ended: its workers end without completing what is
                // under way. The flushers write what was committed.
                durable.iter().for_each(|durable| durable.wal.close());
                format!("no thread could be had to close the database, which stops at once: {error}")
            }
        };
        CloseReport { dropped: 0, failure: Some(failure) }
    }
}
