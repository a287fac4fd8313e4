//! Measurements of the machine without any engine: messages between two threads, and increments of counters.
//!
//! Owns: which processors the threads are on, and who shares a counter. Never: contains the loops that are measured.

use std::collections::BTreeMap;
use std::time::Duration;

use atrapos_cli::error::CliError;
use atrapos_cli::store;
use atrapos_experiments::counters::{Incrementing, increments_per_s};
use atrapos_instances::ChannelKind;
use atrapos_instances::message_rate::MessageRate;
use atrapos_runtime::affinity;
use atrapos_topology::{Level, Machine};

/// The threads that share a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Worker,
    L3,
    Socket,
    Machine,
}

impl Scope {
    pub(super) fn name(self) -> &'static str {
        match self {
            Scope::Worker => "thread",
            Scope::L3 => "L3 island",
            Scope::Socket => "socket",
            Scope::Machine => "machine",
        }
    }
}

/// A kind of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sharing {
    pub(super) scope: Scope,
    /// Set if a counter is behind a lock; an atomic number otherwise.
    pub(super) locked: bool,
}

impl Sharing {
    /// Those with atomic numbers, from the narrowest to the widest.
    pub(super) const ALL: [Sharing; 4] = [
        Sharing { scope: Scope::Worker, locked: false },
        Sharing { scope: Scope::L3, locked: false },
        Sharing { scope: Scope::Socket, locked: false },
        Sharing { scope: Scope::Machine, locked: false },
    ];

    /// Returns the increments per second of so many threads.
    pub(super) fn measure(self, machine: &Machine, workers: usize, pin: bool, measured: Duration) -> f64 {
        increments_per_s(&self.threads(machine, workers, pin), self.locked, measured)
    }

    fn threads(self, machine: &Machine, workers: usize, pin: bool) -> Vec<Incrementing> {
        let cpus: Vec<_> = machine.usable_cpus().iter().collect();
        let mut numbers = BTreeMap::new();
        let thread = |worker: usize| {
            let cpu = cpus[worker % cpus.len()];
            let shared_by = match self.scope {
                Scope::Worker => worker,
                Scope::Machine => 0,
                Scope::L3 => machine.island_of(cpu, Level::L3).map_or(0, |island| island.0 as usize),
                Scope::Socket => machine.island_of(cpu, Level::Socket).map_or(0, |island| island.0 as usize),
            };
            let next = numbers.len();
            let counter = *numbers.entry(shared_by).or_insert(next);
            Incrementing { counter, cpu: pin.then_some(cpu.0 as usize) }
        };
        (0..workers).map(thread).collect()
    }
}

/// Returns the messages per second from one thread to another, on the first and the last processor.
pub(super) fn messages_per_s(
    kind: ChannelKind,
    batch: usize,
    machine: &Machine,
    pin: bool,
    measured: Duration,
) -> Result<f64, CliError> {
    let directory = store::temporary_in_memory("atrapos-channels-")?;
    let cpus: Vec<_> = machine.usable_cpus().iter().collect();
    let begin = |end: usize| {
        let cpu = if end == 0 { cpus.first() } else { cpus.last() };
        if let Some(cpu) = cpu.filter(|_| pin) {
            // Unpinned, the thread only measures something less exact.
            let _ = affinity::pin_current_thread(cpu.0 as usize);
        }
    };
    // The thread of this end is not to stay where it was pinned.
    std::thread::scope(|scope| {
        let measuring = scope
            .spawn(|| MessageRate { kind, batch, measured, directory: directory.path() }.measure(&begin));
        measuring.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
    .map_err(CliError::failed)
}

#[cfg(test)]
mod tests {
    use atrapos_topology::{LiveOptions, parse_spec};

    use super::*;

    #[test]
    fn counters_are_shared_within_islands() {
        let source = parse_spec("pack:2 l3:2 core:2 pu:1").expect("a description");
        let machine = source.load(&LiveOptions::new(None)).expect("a machine");
        let counters = |scope: Scope| -> Vec<usize> {
            let threads = Sharing { scope, locked: false }.threads(&machine, 8, true);
            threads.iter().map(|thread| thread.counter).collect()
        };
        assert_eq!(counters(Scope::Worker), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(counters(Scope::L3), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(counters(Scope::Socket), [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(counters(Scope::Machine), [0; 8]);
    }
}
