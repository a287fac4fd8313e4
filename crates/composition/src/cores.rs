//! Mapping of domains onto a machine: the processing units of each (`Virtual domains §5.2`, goal 2: few islands).
//!
//! Owns: which processing units a domain has. Never: chooses the size of a domain.
//!
//! Domains take processing units one after the other, the largest first. Each goes into an island of the finest level
//! that has room for it, there into the one with the least room. A domain that is larger than the room of each part of
//! its island takes the parts with the most room as a whole, and what remains goes into the part with the least room
//! that has enough: so it is in as few parts as possible. The parts of an L3 island are its cores, so SMT siblings stay
//! together.
//!
//! Invariants: a processing unit is in one domain at most, and usable; a domain has as many as its size. At its turn, a
//! domain is in one island of a level whenever one of this level has room.

use crate::error::CompositionError;
use atrapos_topology::{CoreId, CpuId, CpuSet, IslandId, Level, Machine};

/// The processing units of domains of the given sizes, ascending, in the order of the sizes.
///
/// # Errors
/// [`CompositionError::TooFewWorkers`] for more workers than the machine has usable processing units.
pub fn map_onto(machine: &Machine, sizes: &[u32]) -> Result<Vec<Vec<CpuId>>, CompositionError> {
    let needed: u64 = sizes.iter().map(|size| u64::from(*size)).sum();
    let available = machine.usable_cpus().len() as u32;
    if needed > u64::from(available) {
        return Err(CompositionError::TooFewWorkers {
            wanted: format!("{} domains", sizes.len()),
            needed,
            available,
            cure: "compose for fewer workers, or for a machine with more processing units",
        });
    }
    let mut room = Room::of(machine);
    let mut largest_first: Vec<usize> = (0..sizes.len()).collect();
    largest_first.sort_by_key(|at| (std::cmp::Reverse(sizes[*at]), *at));
    let mut cpus = vec![Vec::new(); sizes.len()];
    for at in largest_first {
        let place = room.place_for(sizes[at]);
        room.take(place, sizes[at], &mut cpus[at]);
        cpus[at].sort_unstable();
    }
    Ok(cpus)
}

/// The finest level at which processing units lie in one island; `None` for none, and for those of another machine.
#[must_use]
pub fn span(machine: &Machine, cpus: &[CpuId]) -> Option<Level> {
    let first = cpus.first()?;
    let levels = cpus.iter().map(|cpu| machine.common_level(*first, *cpu));
    levels.reduce(|a, b| Some(a?.max(b?)))?
}

/// An island, or a core of an L3 island.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Island(IslandId),
    Core(CoreId),
}

/// Processing units that no domain has yet.
struct Room<'a> {
    machine: &'a Machine,
    free: CpuSet,
    /// Number of them by island.
    of_island: Vec<u32>,
    /// The cores by L3 island.
    cores: Vec<Vec<CoreId>>,
}

impl<'a> Room<'a> {
    fn of(machine: &'a Machine) -> Self {
        let free = machine.usable_cpus().clone();
        let islands = machine.all_islands();
        let of_island = islands.iter().map(|island| island.cpus.intersection(&free).len() as u32).collect();
        let mut cores = vec![Vec::new(); islands.len()];
        for core in machine.cores() {
            cores[core.island.index()].push(core.id);
        }
        Self { machine, free, of_island, cores }
    }

    fn in_place(&self, place: Place) -> u32 {
        match place {
            Place::Island(island) => self.of_island[island.index()],
            Place::Core(core) => {
                let cpus = &self.machine.cores()[core.index()].cpus;
                cpus.iter().filter(|cpu| self.free.contains(**cpu)).count() as u32
            }
        }
    }

    fn parts(&self, island: IslandId) -> Vec<Place> {
        let children = &self.machine.all_islands()[island.index()].children;
        if children.is_empty() {
            return self.cores[island.index()].iter().copied().map(Place::Core).collect();
        }
        children.iter().copied().map(Place::Island).collect()
    }

    /// The place with the least room among those that have room for `count`.
    fn tightest(&self, places: impl Iterator<Item = Place>, count: u32) -> Option<Place> {
        let with_room = places.map(|place| (self.in_place(place), place)).filter(|(room, _)| *room >= count);
        with_room.min().map(|(_, place)| place)
    }

    /// The place for a domain of a size for which the machine has room.
    fn place_for(&self, size: u32) -> Place {
        let of_level = |level| self.machine.islands(level).map(|island| Place::Island(island.id));
        let found = Level::ALL.into_iter().find_map(|level| self.tightest(of_level(level), size));
        found.expect("the machine as a whole has room for all domains")
    }

    /// Takes `count` processing units of a place that has room for them.
    fn take(&mut self, place: Place, count: u32, taken: &mut Vec<CpuId>) {
        let island = match place {
            Place::Core(core) => return self.take_of_core(core, count, taken),
            Place::Island(island) => island,
        };
        let mut left = count;
        while left > 0 {
            let parts = self.parts(island);
            let tightest = self.tightest(parts.iter().copied(), left);
            let most = || parts.iter().copied().rev().max_by_key(|part| self.in_place(*part));
            let part = tightest.or_else(most).expect("an island has parts");
            let here = left.min(self.in_place(part));
            self.take(part, here, taken);
            left -= here;
        }
    }

    fn take_of_core(&mut self, core: CoreId, count: u32, taken: &mut Vec<CpuId>) {
        let core = &self.machine.cores()[core.index()];
        let removed = core.cpus.iter().copied().filter(|cpu| self.free.remove(*cpu));
        taken.extend(removed.take(count as usize));
        let mut island = Some(core.island);
        while let Some(at) = island {
            self.of_island[at.index()] -= count;
            island = self.machine.all_islands()[at.index()].parent;
        }
    }
}
