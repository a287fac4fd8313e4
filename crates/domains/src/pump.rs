//! Pumps: a thread per worker, or one thread that steps all workers in an order that a seed decides.
//!
//! Owns: pinning, the memory policy of the threads, spinning and sleeping; the pseudo-random order. Never: decides what a step does.
//!
//! Why the unsafe code is sound: the calls set the memory policy of the calling thread, from a mask that lives during the call or from none.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use atrapos_runtime::affinity::set_current_thread_cpus;
use atrapos_runtime::rng::{Rng, Seed};
use atrapos_topology::{CpuId, Machine};
use rand::RngExt;

use crate::configuration::Configuration;
use crate::domains::{DomainError, Domains, Inner};
use crate::worker::{Step, Worker, WorkerShared};

/// Time that an idle worker looks for work before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// Idle steps between two looks at the clock.
const STEPS_PER_LOOK: u32 = 64;

/// Starts the thread of a worker, bound as said. The thread makes what others see of the worker, its slots above all: so they are touched first where they are polled.
pub(crate) fn start(
    index: u32,
    make: impl FnOnce() -> Arc<WorkerShared> + Send + 'static,
    inner: Arc<Inner>,
    binding: Binding,
) -> std::io::Result<(Arc<WorkerShared>, JoinHandle<()>)> {
    let name = format!("domain-worker-{index}");
    let (sender, receiver) = sync_channel(1);
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        binding.bind();
        let shared = make();
        shared.parker.adopt_current_thread();
        if sender.send(Arc::clone(&shared)).is_ok() {
            run(&mut Worker::new(shared, inner));
        }
    })?;
    let shared = receiver.recv().map_err(|_| std::io::Error::other("it ended at once"))?;
    Ok((shared, thread))
}

/// The processing units of a worker's thread (any if none), and the nodes of its memory (the nearest if none).
#[derive(Debug, Default)]
pub(crate) struct Binding {
    pub(crate) cpus: Vec<CpuId>,
    pub(crate) nodes: Vec<usize>,
}

thread_local! {
    /// Set once this thread's memory has been bound to nodes.
    static BOUND: Cell<bool> = const { Cell::new(false) };
}

impl Binding {
    /// Binds this thread, which may have been bound otherwise.
    pub(crate) fn bind(&self) {
        let cpus: Vec<usize> = self.cpus.iter().map(|cpu| cpu.0 as usize).collect();
        if !cpus.is_empty() {
            // Refused: it runs where it may.
            let _ = set_current_thread_cpus(&cpus);
        }
        if !self.nodes.is_empty() || BOUND.get() {
            BOUND.set(!self.nodes.is_empty());
            interleave(&self.nodes);
        }
    }
}

/// Takes this thread's memory from these nodes in turn; from the nearest if there are none, or if it is refused.
fn interleave(nodes: &[usize]) {
    const MPOL_DEFAULT: libc::c_int = 0;
    const MPOL_INTERLEAVE: libc::c_int = 3;
    const BITS: usize = libc::c_ulong::BITS as usize;
    let Some(&last) = nodes.iter().max() else {
        let nothing = std::ptr::null::<libc::c_ulong>();
        // SAFETY: there is no mask to read.
        unsafe { libc::syscall(libc::SYS_set_mempolicy, MPOL_DEFAULT, nothing, 0) };
        return;
    };
    let mut mask: Vec<libc::c_ulong> = vec![0; last / BITS + 1];
    for node in nodes {
        mask[node / BITS] |= 1 << (node % BITS);
    }
    // SAFETY: the mask has as many bits as are said (the kernel looks at one less) and is only read.
    unsafe { libc::syscall(libc::SYS_set_mempolicy, MPOL_INTERLEAVE, mask.as_ptr(), last + 2) };
}

fn run(worker: &mut Worker) {
    let mut idle_since = None;
    let mut idle_steps = 0_u32;
    loop {
        match worker.step() {
            Step::Ended => return,
            Step::Worked => (idle_since, idle_steps) = (None, 0),
            Step::Idle => {
                std::hint::spin_loop();
                idle_steps += 1;
                if !idle_steps.is_multiple_of(STEPS_PER_LOOK) {
                    continue;
                }
                let now = Instant::now();
                if now.duration_since(*idle_since.get_or_insert(now)) < SPIN {
                    // Others may want this processing unit.
                    std::thread::yield_now();
                } else {
                    worker.tidy();
                    worker.shared.parker.park(|| worker.has_work_after_barrier(), None);
                    (idle_since, idle_steps) = (None, 0);
                }
            }
        }
    }
}

/// All workers of some domains on one thread, stepped in an order that a seed decides. For tests: the same seed and the same calls give
/// the same run. Calls that block would wait for ever; use futures and `try_` calls, and step between them.
pub struct Pump {
    inner: Arc<Inner>,
    workers: Vec<Worker>,
    rng: Rng,
}

impl std::fmt::Debug for Pump {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pump").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}

impl Pump {
    /// Domains without threads.
    ///
    /// # Errors
    /// As for [`Domains::start`].
    pub fn start(
        machine: &Machine,
        configuration: &Configuration,
        seed: Seed,
    ) -> Result<(Domains, Self), DomainError> {
        let domains = Domains::begin(machine, configuration, true)?;
        let inner = Arc::clone(&domains.inner);
        Ok((domains, Self { inner, workers: Vec::new(), rng: seed.rng(0) }))
    }

    /// Steps one worker. Returns whether it had anything to do.
    pub fn step(&mut self) -> bool {
        for shared in std::mem::take(&mut self.inner.threads().born) {
            self.workers.push(Worker::new(shared, Arc::clone(&self.inner)));
        }
        if self.workers.is_empty() {
            return false;
        }
        let chosen = self.rng.random_range(0..self.workers.len());
        match self.workers[chosen].step() {
            Step::Idle => {
                self.workers[chosen].tidy();
                false
            }
            Step::Worked => true,
            Step::Ended => {
                self.workers.swap_remove(chosen);
                true
            }
        }
    }

    /// A number below `bound` from the pump's seed, for what the test itself decides.
    pub fn choose(&mut self, bound: usize) -> usize {
        self.rng.random_range(0..bound)
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        let now = Instant::now();
        for worker in &mut self.workers {
            worker.end_by(now);
            while worker.step() != Step::Ended {}
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
