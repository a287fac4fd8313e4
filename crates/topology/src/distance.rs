//! Distances between processing units, on one scale for measured and for assumed machines.
//!
//! Owns: the scale. Never: measures.
//!
//! The scale is a ratio over the cheapest way for two different cores to talk: 1.0 is a pair of cores that share a
//! last-level cache. Without measured round trips, the constants of this module stand for what today's machines show;
//! node distances of the firmware stretch those between nodes and sockets, the nearest pair keeping the constant, so
//! that a machine with several hops is told from one with one. With measured round trips, a measured pair has its own
//! ratio, and a pair that was not measured has the median of those related like it.
//!
//! Invariants: symmetric; 0.0 for a processing unit and itself and positive for any other; infinite for one the machine
//! does not have. Without measurements a pair in a common island is nearer than any pair without one of that level.

use crate::ids::CpuId;
use crate::latency::median;
use crate::machine::{Cpu, Level, Machine};
use serde::Serialize;
use std::fmt;

/// Distance of SMT siblings of one core, when not measured: they share all caches.
pub const SMT_SIBLINGS_NOMINAL: f64 = 0.5;
/// Distance of cores with a common last-level cache: the unit.
pub const SAME_L3_NOMINAL: f64 = 1.0;
/// Distance of cores of one memory node in different L3 islands, when not measured.
pub const SAME_NODE_NOMINAL: f64 = 2.5;
/// Distance of cores of one socket at different memory nodes, when not measured.
pub const SAME_SOCKET_NOMINAL: f64 = 3.0;
/// Distance of cores on neighbouring sockets, when not measured.
pub const OTHER_SOCKET_NOMINAL: f64 = 5.0;

/// Node distances within a socket may stretch its distance up to here, to stay below that of any other socket.
const SAME_SOCKET_MAX: f64 = 4.9;

/// Relations of two processing units, from near to far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// One and the same processing unit.
    SameCpu,
    /// SMT siblings of one core.
    SmtSiblings,
    /// Different cores that share a last-level cache.
    SameL3,
    /// One memory node, but different L3 islands.
    SameNode,
    /// One socket, but different memory nodes.
    SameSocket,
    /// Different sockets.
    OtherSocket,
}

impl Relation {
    /// Every relation, from near to far.
    pub const ALL: [Self; 6] =
        [Self::SameCpu, Self::SmtSiblings, Self::SameL3, Self::SameNode, Self::SameSocket, Self::OtherSocket];

    const fn nominal(self) -> f64 {
        match self {
            Self::SameCpu => 0.0,
            Self::SmtSiblings => SMT_SIBLINGS_NOMINAL,
            Self::SameL3 => SAME_L3_NOMINAL,
            Self::SameNode => SAME_NODE_NOMINAL,
            Self::SameSocket => SAME_SOCKET_NOMINAL,
            Self::OtherSocket => OTHER_SOCKET_NOMINAL,
        }
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SameCpu => "same cpu",
            Self::SmtSiblings => "SMT siblings",
            Self::SameL3 => "same L3 island",
            Self::SameNode => "same node, other L3 island",
            Self::SameSocket => "same socket, other node",
            Self::OtherSocket => "other socket",
        })
    }
}

/// Tables precomputed to answer distances.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scale {
    /// The cheapest measured round trip between two cores, in nanoseconds.
    pub(crate) unit_ns: Option<f64>,
    /// Median measured round trip by relation, in nanoseconds.
    pub(crate) median_ns: [Option<f64>; Relation::ALL.len()],
    /// Smallest firmware distance between different nodes of one socket, and of different sockets.
    nearest_node_in_socket: Option<u32>,
    nearest_node_elsewhere: Option<u32>,
}

impl Scale {
    pub(crate) fn nominal() -> Self {
        Self {
            unit_ns: None,
            median_ns: [None; Relation::ALL.len()],
            nearest_node_in_socket: None,
            nearest_node_elsewhere: None,
        }
    }

    pub(crate) fn of(machine: &Machine) -> Self {
        let mut scale = Self::nominal();
        scale.add_node_distances(machine);
        scale.add_latencies(machine);
        scale
    }

    fn add_node_distances(&mut self, machine: &Machine) {
        let islands: Vec<_> = machine.islands(Level::Node).collect();
        for (index, a) in islands.iter().enumerate() {
            for b in &islands[index + 1..] {
                let (Some(node_a), Some(node_b)) = (a.node, b.node) else { continue };
                let Some(distance) = machine.node_distance(node_a, node_b).filter(|_| node_a != node_b)
                else {
                    continue;
                };
                let nearest = if a.socket == b.socket {
                    &mut self.nearest_node_in_socket
                } else {
                    &mut self.nearest_node_elsewhere
                };
                *nearest = Some(nearest.map_or(distance, |known| known.min(distance)));
            }
        }
    }

    fn add_latencies(&mut self, machine: &Machine) {
        let Some(latencies) = machine.latencies() else { return };
        let mut by_relation: [Vec<f64>; Relation::ALL.len()] = Default::default();
        for (a, b, ns) in latencies.pairs() {
            if let Some(relation) = machine.relation(a, b) {
                by_relation[relation as usize].push(ns);
                if relation >= Relation::SameL3 {
                    self.unit_ns = Some(self.unit_ns.map_or(ns, |unit| unit.min(ns)));
                }
            }
        }
        self.median_ns = by_relation.map(|mut values| median(&mut values));
    }

    fn between(&self, machine: &Machine, a: &Cpu, b: &Cpu) -> f64 {
        let relation = relation_of(a, b);
        if let (Some(unit_ns), Some(latencies)) = (self.unit_ns, machine.latencies()) {
            if relation == Relation::SameCpu {
                return 0.0;
            }
            if let Some(ns) = latencies.get(a.id, b.id).or(self.median_ns[relation as usize]) {
                return ns / unit_ns;
            }
        }
        let stretch = |nearest: Option<u32>| match (nearest, machine.node_distance(a.node, b.node)) {
            (Some(nearest), Some(distance)) if a.node != b.node => f64::from(distance) / f64::from(nearest),
            _ => 1.0,
        };
        match relation {
            Relation::SameSocket => {
                (SAME_SOCKET_NOMINAL * stretch(self.nearest_node_in_socket)).min(SAME_SOCKET_MAX)
            }
            Relation::OtherSocket => OTHER_SOCKET_NOMINAL * stretch(self.nearest_node_elsewhere).max(1.0),
            near => near.nominal(),
        }
    }
}

fn relation_of(a: &Cpu, b: &Cpu) -> Relation {
    if a.id == b.id {
        return Relation::SameCpu;
    }
    if a.core == b.core {
        return Relation::SmtSiblings;
    }
    match Level::ALL.into_iter().find(|level| a.islands[level.index()] == b.islands[level.index()]) {
        Some(Level::L3) => Relation::SameL3,
        Some(Level::Node) => Relation::SameNode,
        Some(Level::Socket) => Relation::SameSocket,
        Some(Level::Machine) | None => Relation::OtherSocket,
    }
}

impl Machine {
    /// The relation of two processing units; `None` when this machine lacks one of them.
    #[must_use]
    pub fn relation(&self, a: CpuId, b: CpuId) -> Option<Relation> {
        Some(relation_of(self.cpu(a)?, self.cpu(b)?))
    }

    /// The distance of two processing units as a ratio over the cheapest way for two cores to talk: 0.0 for the same,
    /// [`SMT_SIBLINGS_NOMINAL`] for siblings, 1.0 within an L3 island, more beyond; see the module's description for
    /// the whole scale. Infinite when this machine lacks one of them.
    ///
    /// The cost model's distance between islands (`ATraPos §V-B`) is a special case of it; nested islands replace the
    /// paper's sockets.
    #[must_use]
    pub fn distance(&self, a: CpuId, b: CpuId) -> f64 {
        match (self.cpu(a), self.cpu(b)) {
            (Some(a), Some(b)) => self.scale().between(self, a, b),
            _ => f64::INFINITY,
        }
    }

    /// The cheapest measured round trip between two cores in nanoseconds, which distance 1.0 stands for; `None` when
    /// nothing was measured.
    #[must_use]
    pub fn distance_unit_ns(&self) -> Option<f64> {
        self.scale().unit_ns
    }

    /// The median measured round trip of processing units so related, in nanoseconds; `None` when none was measured.
    #[must_use]
    pub fn median_latency_ns(&self, relation: Relation) -> Option<f64> {
        self.scale().median_ns[relation as usize]
    }
}
