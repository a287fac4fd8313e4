//! Machines: who is near whom, and what it costs a processor to pass a message on.
//!
//! Owns: the numbers, each with its source. Never: uses a distance, weight or formula of `atrapos-adapt`; the planner is told
//! nothing of these numbers.
//!
//! # Sources
//!
//! The time in which a modified cache line goes from one core to another ([`Transfers`]):
//! - `2x8`, two sockets: Xeon E5-2695 v4, 44 ns within a socket and 118 ns between two (nviennot, *core-to-core-latency*,
//!   medians of its tables);
//! - `4x6`, four sockets: Nehalem, 28 ns within a socket, 105 ns between two (Molka, Hackenberg, Schoene, Mueller: *Memory
//!   Performance and Cache Coherency Effects on an Intel Nehalem Multiprocessor System*, PACT 2009);
//! - `8x10`, eight sockets: Xeon E7-8867L at 2.13 GHz, a load of a modified line takes 109 cycles within a socket, 289 over
//!   one hop, 400 over two (David, Guerraoui, Trigonakis: *Everything You Always Wanted to Know About Synchronization but
//!   Were Afraid to Ask*, SOSP 2013, Table 2): 51, 136 and 188 ns;
//! - `12x8`, chiplets of eight cores: EPYC 7R13, 23 ns within a chiplet and 107 ns between two (*core-to-core-latency*);
//! - `two`, two cores of one socket: as `2x8`.
//!
//! The work of programs at a synchronization ([`Software`]) is this project's own measurement of a transaction that reads a row on
//! each of two workers: 1.1 us of processor time, against 0.34 us where both rows are on one (`docs/benchmarks.md`, one
//! database, half of the transactions multisite). Six transfers of a line (three messages, two ends) of 44 ns are 0.26 us of
//! the 0.76 us; the rest is divided into the handling of six ends of messages and one suspension.

use atrapos_topology::{Machine, Relation};
use serde::{Deserialize, Serialize};

/// A machine that can be simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MachineKind {
    /// Two cores of one socket.
    #[serde(rename = "two")]
    Two,
    /// Two sockets of eight cores.
    #[serde(rename = "2x8")]
    TwoByEight,
    /// Four sockets of six cores.
    #[serde(rename = "4x6")]
    FourBySix,
    /// Eight sockets of ten cores.
    #[serde(rename = "8x10")]
    EightByTen,
    /// Twelve chiplets of eight cores.
    #[serde(rename = "12x8")]
    Chiplets,
}

/// Time in which a modified cache line goes from one core to another, in ns.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Transfers {
    same_l3: f64,
    /// To another cache, over one hop of the interconnect.
    one_hop: f64,
    /// Over two hops; as over one where all are neighbours.
    two_hops: f64,
}

/// Work of programs at a synchronization, in ns of a processor. See the module's sources.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Software {
    /// At each end of each message, besides the cache lines.
    pub(crate) message_ns: f64,
    /// For each suspension: entering locks, parking the transaction, and the second poll.
    pub(crate) suspension_ns: f64,
}

pub(crate) const SOFTWARE: Software = Software { message_ns: 50.0, suspension_ns: 200.0 };

/// Bytes of a message besides its data, and of a cache line.
const HEADER_BYTES: f64 = 40.0;
const LINE_BYTES: f64 = 64.0;

/// Cycles per ns of every machine; only the unit of what is observed depends on it.
pub(crate) const GHZ: f64 = 2.0;

impl MachineKind {
    /// All of them, the smallest first.
    pub const ALL: [Self; 5] =
        [Self::Two, Self::TwoByEight, Self::FourBySix, Self::EightByTen, Self::Chiplets];

    /// Its name, as in a scenario file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Two => "two",
            Self::TwoByEight => "2x8",
            Self::FourBySix => "4x6",
            Self::EightByTen => "8x10",
            Self::Chiplets => "12x8",
        }
    }

    /// The machine of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Number of workers: one per core.
    #[must_use]
    pub const fn workers(self) -> usize {
        match self {
            Self::Two => 2,
            Self::TwoByEight => 16,
            Self::FourBySix => 24,
            Self::EightByTen => 80,
            Self::Chiplets => 96,
        }
    }

    /// Number of workers that share a last-level cache: those of the first such island are the first workers, and so on.
    #[must_use]
    pub const fn island_workers(self) -> usize {
        match self {
            Self::Two => 2,
            Self::TwoByEight | Self::Chiplets => 8,
            Self::FourBySix => 6,
            Self::EightByTen => 10,
        }
    }

    /// The machine as the planner sees it.
    ///
    /// # Panics
    /// Never: each description is one of a machine.
    #[must_use]
    pub fn machine(self) -> Machine {
        let description = match self {
            Self::Two => "core:2 pu:1",
            Self::TwoByEight => "pack:2 core:8 pu:1",
            Self::FourBySix => "pack:4 core:6 pu:1",
            Self::EightByTen => "pack:8 core:10 pu:1",
            Self::Chiplets => "pack:1 l3:12 core:8 pu:1",
        };
        Machine::synthetic(description).expect("a description of a machine")
    }

    const fn transfers(self) -> Transfers {
        match self {
            Self::Two | Self::TwoByEight => Transfers { same_l3: 44.0, one_hop: 118.0, two_hops: 118.0 },
            Self::FourBySix => Transfers { same_l3: 28.0, one_hop: 105.0, two_hops: 105.0 },
            Self::EightByTen => Transfers { same_l3: 51.0, one_hop: 136.0, two_hops: 188.0 },
            Self::Chiplets => Transfers { same_l3: 23.0, one_hop: 107.0, two_hops: 107.0 },
        }
    }
}

/// The workers of a machine and the cost of messages between any two.
#[derive(Debug, Clone)]
pub(crate) struct Hardware {
    workers: usize,
    /// Time of a line from one worker to another, in ns, row by row.
    transfer_ns: Vec<f64>,
}

impl Hardware {
    pub(crate) fn new(kind: MachineKind) -> Self {
        let machine = kind.machine();
        let (workers, transfers) = (kind.workers(), kind.transfers());
        let cpus = machine.placement(workers);
        let mut transfer_ns = Vec::with_capacity(workers * workers);
        for (a, cpu_a) in cpus.iter().enumerate() {
            for (b, cpu_b) in cpus.iter().enumerate() {
                let hops = ((a / kind.island_workers()) ^ (b / kind.island_workers())).count_ones();
                transfer_ns.push(match machine.relation(*cpu_a, *cpu_b) {
                    Some(Relation::SameCpu) => 0.0,
                    Some(Relation::SmtSiblings | Relation::SameL3) => transfers.same_l3,
                    // Eight sockets are a cube with a link across; others are all neighbours.
                    _ if hops > 1 => transfers.two_hops,
                    _ => transfers.one_hop,
                });
            }
        }
        Self { workers, transfer_ns }
    }

    /// Time of a line from one worker to another, in ns.
    pub(crate) fn transfer_ns(&self, from: usize, to: usize) -> f64 {
        self.transfer_ns[from * self.workers + to]
    }

    /// Processor time of either end of a message with so many bytes of data, in ns: its lines are fetched where it is read, and
    /// fetched back where the next one is written.
    pub(crate) fn message_ns(&self, from: usize, to: usize, bytes: f64) -> f64 {
        let lines = ((HEADER_BYTES + bytes) / LINE_BYTES).ceil();
        SOFTWARE.message_ns + lines * self.transfer_ns(from, to)
    }

    /// Time until a message that was sent can be read: the line is asked for, and comes.
    pub(crate) fn latency_ns(&self, from: usize, to: usize) -> f64 {
        2.0 * self.transfer_ns(from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_cost_more_the_further_they_go() {
        for kind in MachineKind::ALL {
            let hardware = Hardware::new(kind);
            assert_eq!(hardware.workers, kind.workers());
            let island = kind.island_workers();
            let near = hardware.message_ns(0, 1, 0.0);
            assert_eq!(near, hardware.message_ns(1, 0, 0.0), "{kind:?}");
            if kind.workers() > island {
                let next = hardware.message_ns(0, island, 0.0);
                let last = hardware.message_ns(0, kind.workers() - 1, 0.0);
                assert!(near < next && next <= last, "{kind:?}: {near} {next} {last}");
            }
            assert_eq!(MachineKind::named(kind.name()), Some(kind));
        }
    }

    #[test]
    fn a_synchronization_of_two_neighbours_costs_what_was_measured() {
        let hardware = Hardware::new(MachineKind::Two);
        // A request, a reply and a release, both ends of each, and one suspension.
        let ns = 6.0 * hardware.message_ns(0, 1, 16.0) + SOFTWARE.suspension_ns;
        assert!((700.0..820.0).contains(&ns), "{ns} ns");
    }
}
