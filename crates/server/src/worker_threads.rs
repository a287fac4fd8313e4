//! Sessions on the threads of workers.
//!
//! Owns: the runtimes that these threads share with the pumps of their workers. Never: serves a connection that has not logged in, whose
//! proofs take milliseconds, or one with TLS.
//!
//! # Invariants
//! - A session on a worker's thread never blocks it: what waits is a future, what takes long goes to a thread of its own.
//! - A runtime ends with the pump of its workers, when the database closes. The server has ended by then, and with it all sessions.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use atrapos::{LocalFuture, ThreadHost, WorkerId};
use tokio::runtime::{Builder, Handle, LocalOptions};

/// Tasks that are polled between two looks at the sockets, when there are always more. The pump is one of them, and takes some 20
/// microseconds at most.
const POLLS_PER_LOOK: u32 = 16;

/// The threads of a database's workers, for its builder and for a server. Each has a runtime on which the pump of its workers is a task among
/// those of sessions: a statement for the worker of its session needs no wake-up of another thread, nor does its answer.
#[derive(Debug, Default)]
pub struct WorkerThreads {
    /// The runtimes by the numbers of workers.
    runtimes: Mutex<Vec<(WorkerId, Handle)>>,
}

impl WorkerThreads {
    /// Returns threads that have not begun.
    #[must_use]
    pub fn new() -> WorkerThreads {
        WorkerThreads::default()
    }

    /// Returns the runtime on the thread of the worker that sessions with this number have as the home of what no key leads to; nothing
    /// if it has none.
    pub(crate) fn of(&self, number: usize, workers: usize) -> Option<Handle> {
        let wanted = WorkerId(u16::try_from(number % workers.max(1)).ok()?);
        self.runtimes().iter().find(|(worker, _)| *worker == wanted).map(|(_, handle)| handle.clone())
    }

    fn runtimes(&self) -> MutexGuard<'_, Vec<(WorkerId, Handle)>> {
        self.runtimes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ThreadHost for WorkerThreads {
    fn run(&self, workers: &[WorkerId], pump: LocalFuture) {
        let built = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .event_interval(POLLS_PER_LOOK)
            .build_local(LocalOptions::default());
        // Without a runtime the workers have their thread for themselves, and the sessions the threads of the server.
        let Ok(runtime) = built else { return };
        let pumped = runtime.spawn_local(pump);
        self.runtimes().extend(workers.iter().map(|worker| (*worker, runtime.handle().clone())));
        let ended = runtime.block_on(pumped);
        self.runtimes().retain(|(worker, _)| !workers.contains(worker));
        if let Err(error) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }

    fn sleep(&self, time: Duration) -> LocalFuture {
        Box::pin(tokio::time::sleep(time))
    }
}
