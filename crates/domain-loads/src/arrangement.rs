//! [`Arrangement`]: the threads that use a structure, their processing units, and the domains.
//!
//! Owns: the division of a machine's processing units among clients and workers. Never: starts a thread.
//!
//! Designs with delegation have clients on processing units of their own; in designs with direct use there are as many threads as clients
//! and workers together, so that all designs have equally many. Each memory node is divided among clients and workers in the same
//! proportion, so that clients have workers near them.

use atrapos_domains::{
    BURST_SLOTS, Configuration, DomainConfiguration, GROUP_MAX, MemoryPolicy, Placement, SLOTS_DEFAULT,
    SLOTS_MAX,
};
use atrapos_structures::{Access as StructureAccess, Kind};
use atrapos_topology::{CpuId, Machine, NodeId};

use crate::design::Design;
use crate::error::LoadError;

/// Numbers of threads, where they are not left to the machine, and their placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// Client threads of designs with delegation; half of the processing units (at least one) if not given.
    pub clients: Option<usize>,
    /// Workers of all domains; one on each processing unit left by the clients (at least one) if not given.
    pub workers: Option<usize>,
    /// Workers of each domain of [`Design::Configured`].
    pub domain_size: Option<usize>,
    /// Set if threads are pinned, in all designs but [`Design::Se`].
    pub pin: bool,
}

impl Default for Threads {
    fn default() -> Threads {
        Threads { clients: None, workers: None, domain_size: None, pin: true }
    }
}

/// The way in which operations reach the structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The threads that drive use the structure.
    Direct,
    /// Clients delegate operations to the workers of domains.
    Delegated,
}

/// Threads and domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrangement {
    design: Design,
    access: Access,
    /// The processing units of the workers, by domain; of direct use: those of the threads, as one domain.
    domains: Vec<Vec<CpuId>>,
    /// The processing units of the clients; none for direct use.
    clients: Vec<CpuId>,
    pin: bool,
    memory: MemoryPolicy,
    oversubscribed: bool,
    /// Set if the thread that uses the structure does so for several operations together.
    together: bool,
}

impl Arrangement {
    /// The arrangement of a design on a machine.
    ///
    /// # Errors
    /// A [`LoadError`] that names the number that is not possible.
    pub fn new(machine: &Machine, design: Design, threads: &Threads) -> Result<Arrangement, LoadError> {
        let (clients, workers) = threads.counts(machine)?;
        threads.check_size(design)?;
        match design {
            Design::Se => Ok(Arrangement {
                pin: false,
                ..Arrangement::direct(machine, design, clients + workers, false)
            }),
            Design::SeNuma => {
                let memory = MemoryPolicy::Interleaved;
                let direct = Arrangement::direct(machine, design, clients + workers, threads.pin);
                Ok(Arrangement { memory, ..direct })
            }
            Design::SnNuma => by_node(machine, clients, workers, threads.pin),
            Design::SnThread => delegated(machine, design, threads, (clients, workers), 1),
            Design::Configured => {
                let size = threads.domain_size.ok_or(LoadError::SizeIsMissing)?;
                delegated(machine, design, threads, (clients, workers), size)
            }
        }
    }

    /// Direct use by so many threads, at least one.
    pub(crate) fn direct(machine: &Machine, design: Design, threads: usize, pin: bool) -> Arrangement {
        Arrangement {
            design,
            access: Access::Direct,
            domains: vec![machine.placement(threads)],
            clients: Vec::new(),
            pin,
            memory: MemoryPolicy::Local,
            oversubscribed: threads > machine.usable_cpus().len(),
            together: false,
        }
    }

    /// The same parts as a design that shares nothing has, but used directly by as many threads as clients and workers together: each is of one part, and
    /// reaches the others itself. So are the nodes of the paper's Figure 13.
    ///
    /// # Errors
    /// A [`LoadError`] that names the number that is not possible; [`LoadError::NoParts`] for designs that have no parts of a fixed size.
    pub fn parts_directly(
        machine: &Machine,
        design: Design,
        threads: &Threads,
    ) -> Result<Arrangement, LoadError> {
        let (clients, workers) = threads.counts(machine)?;
        threads.check_size(design)?;
        let all = clients + workers;
        let parts = match design {
            Design::SnNuma => by_node(machine, 0, all, threads.pin)?,
            Design::SnThread => delegated(machine, design, threads, (0, all), 1)?,
            Design::Se | Design::SeNuma | Design::Configured => return Err(LoadError::NoParts(design)),
        };
        Ok(Arrangement { access: Access::Direct, clients: Vec::new(), ..parts })
    }

    /// Direct use by one thread, which has its operations before it begins and makes as many together as the worker of a domain does at most:
    /// the work of a domain of one worker without messages, and so the bound of what such a domain can do. The time of drawing them is apart
    /// ([`Round::drawing`](crate::Round::drawing)).
    #[must_use]
    pub fn together(machine: &Machine, pin: bool) -> Arrangement {
        Arrangement { together: true, ..Arrangement::direct(machine, Design::Configured, 1, pin) }
    }

    /// Returns whether one thread makes operations together that it has drawn before.
    #[must_use]
    pub fn is_together(&self) -> bool {
        self.together
    }

    /// Returns whether another arrangement has the same threads, places and domains, under whichever design.
    #[must_use]
    pub fn is_like(&self, other: &Arrangement) -> bool {
        *self == other.clone().of(self.design)
    }

    /// Direct use by the clients alone, on their processing units: what the cost of delegating is compared with. Threads that use a
    /// structure directly already are its clients.
    #[must_use]
    pub fn direct_by_clients(&self) -> Arrangement {
        match self.access {
            Access::Direct => self.clone(),
            Access::Delegated => Arrangement {
                access: Access::Direct,
                domains: vec![self.clients.clone()],
                clients: Vec::new(),
                ..self.clone()
            },
        }
    }

    /// Every arrangement that [`choose`](crate::choose) tries: direct use, and domains of 1, 2, 4, ... and all workers. A size in `threads` is
    /// ignored.
    ///
    /// # Errors
    /// A [`LoadError`] that names the number that is not possible.
    pub fn candidates(
        machine: &Machine,
        kind: Kind,
        threads: &Threads,
    ) -> Result<Vec<Arrangement>, LoadError> {
        let (_, workers) = threads.counts(machine)?;
        let mut candidates = Vec::new();
        let threads = &Threads { domain_size: None, ..*threads };
        for design in [Design::Se, Design::SeNuma] {
            candidates.push(Arrangement::new(machine, design, threads)?);
        }
        let mut sizes: Vec<usize> = std::iter::successors(Some(1), |size| Some(size * 2))
            .take_while(|size| *size < workers)
            .collect();
        sizes.push(workers);
        for size in sizes {
            let threads = Threads { domain_size: Some(size), ..*threads };
            candidates.push(Arrangement::new(machine, Design::Configured, &threads)?);
        }
        candidates.retain(|candidate| candidate.check(kind).is_ok());
        Ok(candidates.into_iter().map(|candidate| candidate.of(Design::Configured)).collect())
    }

    /// The same under the name of another design.
    fn of(self, design: Design) -> Arrangement {
        Arrangement { design, ..self }
    }

    /// The design.
    #[must_use]
    pub fn design(&self) -> Design {
        self.design
    }

    /// The way in which operations reach the structure.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Threads that drive the load: clients that delegate, or the threads that use the structure directly.
    #[must_use]
    pub fn drivers(&self) -> usize {
        match self.access {
            Access::Direct => self.workers(),
            Access::Delegated => self.clients.len(),
        }
    }

    /// The processing units of clients that delegate; none for direct use.
    #[must_use]
    pub fn clients(&self) -> &[CpuId] {
        &self.clients
    }

    /// The processing units of the workers of each domain; of direct use: those of the threads, as one domain or by parts.
    #[must_use]
    pub fn domains(&self) -> &[Vec<CpuId>] {
        &self.domains
    }

    /// Workers of all domains, or threads that use the structure directly.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.domains.iter().map(Vec::len).sum()
    }

    /// Returns whether threads are pinned.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.pin
    }

    /// Returns whether there are more threads than processing units.
    #[must_use]
    pub fn is_oversubscribed(&self) -> bool {
        self.oversubscribed
    }

    /// Refuses an owned structure that several workers would share.
    ///
    /// # Errors
    /// [`LoadError::Owned`].
    pub fn check(&self, kind: Kind) -> Result<(), LoadError> {
        let workers = match self.access {
            // They reach the parts of others, too.
            Access::Direct => self.workers(),
            Access::Delegated => self.domains.iter().map(Vec::len).max().unwrap_or(0),
        };
        if kind.support().access == StructureAccess::Owned && workers > 1 {
            return Err(LoadError::Owned { kind, design: self.design, workers });
        }
        Ok(())
    }

    /// The configuration of the domains, with slots for a burst of every client at any one worker.
    ///
    /// # Errors
    /// [`LoadError::Clients`] if a worker has not so many slots.
    pub fn configuration(&self) -> Result<Configuration, LoadError> {
        let clients = self.clients.len();
        let slots = slots_of(clients).map_err(|max| LoadError::Clients { clients, max })?;
        let placement = if self.pin { Placement::Pinned } else { Placement::Anywhere };
        let domain = |(number, cpus): (usize, &Vec<CpuId>)| DomainConfiguration {
            cpus: cpus.iter().map(|cpu| cpu.0).collect(),
            placement,
            memory: self.memory,
            slots,
            ..DomainConfiguration::new(&domain_name(number), cpus.len())
        };
        let domains = self.domains.iter().enumerate().map(domain).collect();
        Ok(Configuration { oversubscribe: true, domains, ..Configuration::default() })
    }
}

/// Slots that a worker needs for so many bursts; `Err` has the greatest number of bursts for which a worker has slots.
pub(crate) fn slots_of(bursts: usize) -> Result<usize, usize> {
    // The slots of a burst lie in one group; there is room for one more, which loads and audits.
    let of_group = GROUP_SLOTS / BURST_SLOTS;
    let slots = ((bursts + 1).div_ceil(of_group) * GROUP_SLOTS).max(SLOTS_DEFAULT);
    if slots > SLOTS_MAX { Err(SLOTS_MAX / GROUP_SLOTS * of_group - 1) } else { Ok(slots) }
}

/// Slots of one group of a worker's inbox.
const GROUP_SLOTS: usize = 15;

/// The name of a domain.
pub(crate) fn domain_name(number: usize) -> String {
    format!("part-{number}")
}

impl std::fmt::Display for Arrangement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let (workers, clients) = (self.workers(), self.clients.len());
        match (self.access, self.domains.as_slice()) {
            (Access::Direct, _) if self.together => {
                write!(f, "direct use by 1 thread, {GROUP_MAX} operations together, drawn before")
            }
            (Access::Direct, parts) => {
                write!(f, "direct use by {workers} thread{}", plural(workers))?;
                if parts.len() > 1 { write!(f, " of {} parts", parts.len()) } else { Ok(()) }
            }
            (Access::Delegated, domains) => {
                let size = domains.first().map_or(0, Vec::len);
                let (count, exactly) = (domains.len(), domains.iter().all(|domain| domain.len() == size));
                let size = if exactly { size } else { domains.iter().map(Vec::len).max().unwrap_or(0) };
                write!(f, "{clients} client{}, {count} domain{} of ", plural(clients), plural(count))?;
                write!(f, "{}{size} worker{}", if exactly { "" } else { "up to " }, plural(size))
            }
        }
    }
}

impl Threads {
    /// Refuses a size of domains for a design that has its own.
    fn check_size(&self, design: Design) -> Result<(), LoadError> {
        match self.domain_size {
            Some(_) if design != Design::Configured => Err(LoadError::SizeIsGiven(design)),
            _ => Ok(()),
        }
    }

    /// Clients and workers.
    fn counts(&self, machine: &Machine) -> Result<(usize, usize), LoadError> {
        for (given, of) in
            [(self.clients, "clients"), (self.workers, "workers"), (self.domain_size, "workers in a domain")]
        {
            if given == Some(0) {
                return Err(LoadError::NoThreads(of));
            }
        }
        let cpus = machine.usable_cpus().len();
        let rest = |taken: usize| cpus.saturating_sub(taken).max(1);
        Ok(match (self.clients, self.workers) {
            (Some(clients), Some(workers)) => (clients, workers),
            (Some(clients), None) => (clients, rest(clients)),
            (None, Some(workers)) => (rest(workers), workers),
            (None, None) => {
                let clients = (cpus / 2).max(1);
                (clients, rest(clients))
            }
        })
    }
}

fn node_of(machine: &Machine, cpu: CpuId) -> Option<NodeId> {
    machine.cpu(cpu).map(|cpu| cpu.node)
}

/// Processing units by memory node, in the order in which the nodes come first.
fn grouped(machine: &Machine, cpus: &[CpuId]) -> Vec<Vec<CpuId>> {
    let mut groups: Vec<(Option<NodeId>, Vec<CpuId>)> = Vec::new();
    for &cpu in cpus {
        let node = node_of(machine, cpu);
        match groups.iter_mut().find(|(known, _)| *known == node) {
            Some((_, group)) => group.push(cpu),
            None => groups.push((node, vec![cpu])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Divides processing units among workers (first) and clients: those of each group in the same proportion.
fn divide(groups: &[Vec<CpuId>], clients: usize, workers: usize) -> (Vec<Vec<CpuId>>, Vec<CpuId>) {
    let (all, mut before) = (clients + workers, 0);
    let (mut of_workers, mut of_clients) = (Vec::new(), Vec::new());
    for group in groups {
        let after = before + group.len();
        let (mine, others) = group.split_at(after * workers / all - before * workers / all);
        of_workers.push(mine.to_vec());
        of_clients.extend_from_slice(others);
        before = after;
    }
    (of_workers, of_clients)
}

/// Domains of `size` workers; workers that are left over have nothing to do and are not started.
fn delegated(
    machine: &Machine,
    design: Design,
    threads: &Threads,
    (clients, workers): (usize, usize),
    size: usize,
) -> Result<Arrangement, LoadError> {
    if size > workers {
        return Err(LoadError::DomainSize { size, workers });
    }
    let groups = grouped(machine, &machine.placement(clients + workers));
    let (of_workers, clients_cpus) = divide(&groups, clients, workers);
    let domains = of_workers.concat().chunks_exact(size).map(<[CpuId]>::to_vec).collect();
    Ok(Arrangement {
        design,
        access: Access::Delegated,
        domains,
        clients: clients_cpus,
        pin: threads.pin,
        memory: MemoryPolicy::Local,
        oversubscribed: clients + workers > machine.usable_cpus().len(),
        together: false,
    })
}

/// A domain on each memory node.
fn by_node(machine: &Machine, clients: usize, workers: usize, pin: bool) -> Result<Arrangement, LoadError> {
    let usable = machine.usable_cpus().len();
    let nodes = grouped(machine, &machine.placement(usable));
    if workers < nodes.len() {
        return Err(LoadError::FewerWorkersThanNodes { nodes: nodes.len(), workers });
    }
    // Threads of a node: its share of all, on its own processing units in turn.
    let threads = clients + workers;
    let share = |number: usize, of: usize| (number + 1) * of / nodes.len() - number * of / nodes.len();
    let mut domains = Vec::new();
    let mut of_clients = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        let mut cpus = node.iter().copied().cycle();
        domains.push(cpus.by_ref().take(share(number, workers)).collect::<Vec<_>>());
        of_clients.extend(cpus.take(share(number, clients)));
    }
    Ok(Arrangement {
        design: Design::SnNuma,
        access: Access::Delegated,
        domains,
        clients: of_clients,
        pin,
        memory: MemoryPolicy::Local,
        oversubscribed: threads > usable,
        together: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(text: &str) -> Machine {
        Machine::synthetic(text).expect("a machine")
    }

    fn arranged(text: &str, design: Design, threads: Threads) -> Arrangement {
        Arrangement::new(&machine(text), design, &threads).expect("an arrangement")
    }

    #[test]
    fn half_of_the_processing_units_are_clients_of_delegating_designs() {
        let arrangement = arranged("pack:2 core:4 pu:1", Design::SnThread, Threads::default());
        assert_eq!((arrangement.clients().len(), arrangement.domains().len()), (4, 4));
        assert!(!arrangement.is_oversubscribed() && arrangement.is_pinned());
        let mut all: Vec<CpuId> = arrangement.domains().concat();
        all.extend(arrangement.clients());
        all.sort_unstable();
        assert_eq!(all, (0..8).map(CpuId).collect::<Vec<_>>(), "each has a processing unit of its own");
        let one = arranged("core:1 pu:1", Design::SnThread, Threads::default());
        assert_eq!((one.clients().len(), one.workers(), one.is_oversubscribed()), (1, 1, true));
    }

    #[test]
    fn a_domain_per_node_has_the_node_s_workers_alone() {
        let machine = machine("pack:4 core:4 pu:1");
        let arrangement = Arrangement::new(&machine, Design::SnNuma, &Threads::default()).expect("possible");
        assert_eq!(arrangement.domains().len(), 4);
        for domain in arrangement.domains() {
            assert_eq!(domain.len(), 2);
            assert_eq!(node_of(&machine, domain[0]), node_of(&machine, domain[1]));
        }
        let few = Threads { workers: Some(3), ..Threads::default() };
        let refused = Arrangement::new(&machine, Design::SnNuma, &few).expect_err("too few");
        assert!(refused.to_string().contains("at least 4") && refused.is_bad_input(), "{refused}");
    }

    #[test]
    fn direct_designs_have_as_many_threads_as_the_others() {
        for design in [Design::Se, Design::SeNuma] {
            let arrangement = arranged("pack:2 core:4 pu:1", design, Threads::default());
            assert_eq!((arrangement.access(), arrangement.drivers()), (Access::Direct, 8));
            assert_eq!(arrangement.is_pinned(), design == Design::SeNuma);
        }
    }

    #[test]
    fn domains_have_the_size_that_was_given() {
        let threads =
            Threads { clients: Some(2), workers: Some(6), domain_size: Some(2), ..Threads::default() };
        let arrangement = arranged("core:8 pu:1", Design::Configured, threads);
        assert_eq!(arrangement.to_string(), "2 clients, 3 domains of 2 workers");
        assert_eq!(arrangement.direct_by_clients().to_string(), "direct use by 2 threads");
        let too_large = Threads { domain_size: Some(7), ..threads };
        let refused = Arrangement::new(&machine("core:8 pu:1"), Design::Configured, &too_large);
        assert!(matches!(refused, Err(LoadError::DomainSize { size: 7, workers: 6 })));
        for (design, given) in
            [(Design::Configured, None), (Design::SnThread, Some(1)), (Design::Se, Some(1))]
        {
            let threads = Threads { domain_size: given, ..Threads::default() };
            assert!(Arrangement::new(&machine("core:8 pu:1"), design, &threads).is_err(), "{design}");
        }
    }

    #[test]
    fn bursts_of_all_clients_have_slots_at_one_worker() {
        let slots = |clients| {
            let threads = Threads { clients: Some(clients), workers: Some(1), ..Threads::default() };
            let configuration = arranged("core:8 pu:1", Design::SnThread, threads).configuration();
            configuration.map(|configuration| configuration.domains[0].slots)
        };
        assert!(matches!(slots(1), Ok(SLOTS_DEFAULT)));
        assert!(matches!(slots(150), Ok(slots) if slots > 150 * BURST_SLOTS));
        let Err(LoadError::Clients { max, .. }) = slots(1000) else { panic!("there are not so many slots") };
        assert!(slots(max).is_ok() && slots(max + 1).is_err(), "{max}");
    }

    #[test]
    fn owned_structures_go_to_domains_of_one() {
        let machine = machine("core:8 pu:1");
        for design in [Design::Se, Design::SeNuma, Design::SnNuma] {
            let arrangement = Arrangement::new(&machine, design, &Threads::default()).expect("possible");
            let refused = arrangement.check(Kind::OwnedTree).expect_err("shared by several");
            assert!(refused.to_string().contains("owned-tree") && refused.to_string().contains("sn-thread"));
            assert!(arrangement.check(Kind::BTree).is_ok());
        }
        let alone = Arrangement::new(&machine, Design::SnThread, &Threads::default()).expect("possible");
        assert!(alone.check(Kind::OwnedHashMap).is_ok());
        let owned = Arrangement::candidates(&machine, Kind::OwnedTree, &Threads::default()).expect("some");
        assert!(owned.len() == 1 && owned[0].domains()[0].len() == 1, "{owned:?}");
        let shared = Arrangement::candidates(&machine, Kind::BTree, &Threads::default()).expect("some");
        assert_eq!(shared.len(), 5, "directly twice, and domains of 1, 2 and 4: {shared:?}");
    }
}
