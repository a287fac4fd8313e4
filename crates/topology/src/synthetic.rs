//! Machines described in hwloc's synthetic notation, such as `pack:8 l3:2 core:5 pu:1`.
//!
//! Owns: the grammar and what its levels mean here. Never: asks hwloc, nor looks at the live machine.
//!
//! ```text
//! description = [attributes] { level | attached }       from the outermost to the innermost level
//! level       = [type ":"] count [attributes]           count objects below each object of the level before
//! attached    = "[" "numa" [attributes] "]"             a memory node at each object of the level before
//! attributes  = "(" name "=" value { " " name "=" value } ")"
//! type        = package | socket | numanode | node | die | group | l5 .. l1 [u|d|i] [cache] | core | pu
//! ```
//!
//! Types may be shortened to two characters or more and written in any case; the last level is `pu`. When no level has
//! a type, they are taken as hwloc takes them: package, node, L3, L2, L1d, core, pu, as many as there are. Of the
//! attributes, `memory=` (bytes, or kB, MB, GB, TB and KiB, MiB, GiB, TiB) counts at nodes, and at packages and the
//! machine when no node is described; `indexes=` (numbers, or interleavings such as `4*2:1*4` or `pack:core`) counts at
//! processing units and nodes; `size=` and `name=` are read over.
//!
//! Differences from hwloc, so that short descriptions give realistic machines: without any memory node, every package
//! has its own rather than all one; a mistake in `indexes=` is an error rather than ignored.
//!
//! Invariant: an error names the character it was found at, counted from 1.

use crate::build::build;
use crate::error::TopologyError;
use crate::facts::{CpuFacts, Fact, Facts, MemoryNode, Origin};
use crate::ids::{CpuId, NodeId, SocketId};
use crate::machine::Machine;
use crate::synthetic_indexes::{IndexOrder, LevelWidth};

mod parser;

use parser::{Attributes, Description, LevelItem, Parser};

/// The type of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Package,
    Numa,
    Die,
    Group,
    Cache(u8),
    InstructionCache(u8),
    Core,
    Pu,
}

impl Type {
    /// Reads a type's name as hwloc does: any case, two characters or more.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        if let Some(depth) = word.strip_prefix('l').and_then(|rest| rest.bytes().next()) {
            let suffix = &word[word.len().min(2)..];
            let instructions = suffix.starts_with('i');
            let suffix = suffix.strip_prefix(['d', 'i', 'u']).unwrap_or(suffix);
            let known = (b'1'..=b'5').contains(&depth) && (suffix.is_empty() || "cache".starts_with(suffix));
            let level = depth.wrapping_sub(b'0');
            let kind = if instructions { Self::InstructionCache(level) } else { Self::Cache(level) };
            return known.then_some(kind);
        }
        let names = [
            ("package", Self::Package),
            ("socket", Self::Package),
            ("numanode", Self::Numa),
            ("node", Self::Numa),
            ("die", Self::Die),
            ("group", Self::Group),
            ("core", Self::Core),
            ("pu", Self::Pu),
        ];
        let matches = |name: &str| word.len() >= 2 && name.starts_with(&word);
        names.into_iter().find(|(name, _)| matches(name)).map(|(_, kind)| kind)
    }

    fn name(self) -> String {
        match self {
            Self::Package => "package".to_owned(),
            Self::Numa => "numanode".to_owned(),
            Self::Die => "die".to_owned(),
            Self::Group => "group".to_owned(),
            Self::Cache(level) => format!("l{level}"),
            Self::InstructionCache(level) => format!("l{level}i"),
            Self::Core => "core".to_owned(),
            Self::Pu => "pu".to_owned(),
        }
    }
}

impl Machine {
    /// Builds the machine that a description in hwloc's synthetic notation stands for. All of it is usable.
    ///
    /// # Errors
    /// [`TopologyError::Synthetic`], naming the character and what was expected there.
    pub fn synthetic(text: &str) -> Result<Self, TopologyError> {
        let mut parser = Parser { text, chars: text.chars().collect(), at: 0 };
        let description = parser.description()?;
        let facts =
            lower(text, &description).map_err(|(position, message)| parser.error_at(position, message))?;
        build(facts).ok_or_else(|| parser.error_at(1, "it describes no processing unit".to_owned()))
    }
}

/// An amount of bytes with hwloc's units, decimal (`GB`) and binary (`GiB`); `0x` for hexadecimal numbers.
pub(crate) fn parse_bytes(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let units: [(&str, u64); 9] = [
        ("tib", 1 << 40),
        ("gib", 1 << 30),
        ("mib", 1 << 20),
        ("kib", 1 << 10),
        ("tb", 1_000_000_000_000),
        ("gb", 1_000_000_000),
        ("mb", 1_000_000),
        ("kb", 1_000),
        ("", 1),
    ];
    let (digits, unit) = units.iter().find_map(|(name, unit)| Some((lower.strip_suffix(name)?, unit)))?;
    let number = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None if digits.starts_with('+') => return None,
        None => digits.trim().parse().ok()?,
    };
    number.checked_mul(*unit)
}

type Mistake = (usize, String);

/// Says what the levels mean for each processing unit.
fn lower(text: &str, description: &Description) -> Result<Facts, Mistake> {
    let levels = &description.levels;
    let total = levels.last().map_or(0, |level| level.width);
    let level_of = |wanted: Type| levels.iter().position(|level| level.kind == Some(wanted));
    let mut facts = Facts::new(Origin::Synthetic(text.trim().to_owned()));
    let source = || "the description".to_owned();
    facts.came_from(Fact::Cpus, source());

    let packages = level_of(Type::Package);
    let cores = level_of(Type::Core);
    let caches = cache_level(levels, cores, total, &mut facts);
    facts.came_from(
        Fact::Cores,
        if cores.is_some() {
            source()
        } else {
            "assumed: every pu is a core, no core level is described".to_owned()
        },
    );
    if packages.is_some() {
        facts.came_from(Fact::Sockets, source());
    }
    let node_of_object = node_numbers(description, packages, &mut facts)?;
    let widths: Vec<LevelWidth> = levels
        .iter()
        .filter_map(|level| Some(LevelWidth { kind: level.kind?, width: level.width }))
        .collect();
    let pu = levels.last().and_then(|level| level.attributes.indexes.as_ref());
    let numbers = match pu {
        None => (0..total).collect(),
        Some((value, position)) => {
            IndexOrder::parse(value, total, &widths).map_err(|message| (*position, message))?.numbers
        }
    };
    for (pu, &number) in (0..total).zip(&numbers) {
        let object = |level: usize| pu / (total / levels[level].width);
        facts.cpus.push(CpuFacts {
            id: CpuId(number),
            socket: packages.map(|level| SocketId(object(level))),
            node: node_of_object.as_ref().map(|(level, nodes)| nodes[level.map_or(0, object) as usize]),
            cache: caches.map(object),
            core: cores.map(object),
        });
    }
    facts.usable = facts.cpus.iter().map(|cpu| cpu.id).collect();
    Ok(facts)
}

/// The level whose objects are the finest islands: L3, else the outermost cache that several cores share, else dies.
fn cache_level(levels: &[LevelItem], cores: Option<usize>, total: u32, facts: &mut Facts) -> Option<usize> {
    let core_count = cores.map_or(total, |level| levels[level].width);
    let find = |wanted: &dyn Fn(Type) -> bool| {
        levels.iter().position(|level| level.kind.is_some_and(wanted) && level.width < core_count)
    };
    let exact = levels.iter().position(|level| level.kind == Some(Type::Cache(3)));
    let level = exact
        .or_else(|| find(&|kind| matches!(kind, Type::Cache(2..))))
        .or_else(|| find(&|kind| kind == Type::Die));
    facts.came_from(
        Fact::Caches,
        match level.and_then(|level| levels[level].kind) {
            Some(Type::Cache(3)) => "the description".to_owned(),
            Some(Type::Die) => "assumed: each die has a cache of its own, none is described".to_owned(),
            Some(kind) => format!("the {} level of the description", kind.name()),
            None => {
                "assumed: the cores of a memory node share a cache, no shared one is described".to_owned()
            }
        },
    );
    level
}

/// The nodes of the objects of a level (`None`: of the machine).
type NodesOfLevel = (Option<usize>, Vec<NodeId>);

/// Numbers the memory nodes and notes their memory. A second set of attached nodes (high-bandwidth memory, for one) is
/// memory without processing units of its own.
fn node_numbers(
    description: &Description,
    packages: Option<usize>,
    facts: &mut Facts,
) -> Result<Option<NodesOfLevel>, Mistake> {
    let levels = &description.levels;
    let mut sets: Vec<(Option<usize>, &Attributes, usize)> = Vec::new();
    if let Some(level) = levels.iter().position(|level| level.kind == Some(Type::Numa)) {
        sets.push((Some(level), &levels[level].attributes, levels[level].position));
    }
    sets.extend(description.attached.iter().map(|nodes| (nodes.below, &nodes.attributes, nodes.position)));
    if sets.is_empty() {
        let count = packages.map_or(1, |level| levels[level].width);
        let of_package = packages.and_then(|level| levels[level].attributes.memory_bytes);
        let memory_bytes =
            of_package.or(description.machine.memory_bytes.map(|bytes| bytes / u64::from(count)));
        let nodes: Vec<NodeId> = (0..count).map(NodeId).collect();
        facts.nodes = nodes.iter().map(|&id| MemoryNode { id, memory_bytes }).collect();
        facts.came_from(
            Fact::Nodes,
            match packages {
                Some(_) => "assumed: one memory node per package, none is described",
                None => "assumed: one memory node, none is described",
            },
        );
        note_memory_source(facts);
        return Ok(Some((packages, nodes)));
    }
    facts.came_from(Fact::Nodes, "the description");
    let mut home: Option<NodesOfLevel> = None;
    for (level, attributes, position) in sets {
        let count = level.map_or(1, |level| levels[level].width);
        let first = u32::try_from(facts.nodes.len()).unwrap_or(u32::MAX);
        let numbers: Vec<u32> = match &attributes.indexes {
            None => (first..first.saturating_add(count)).collect(),
            Some((value, at)) => {
                let widths: Vec<LevelWidth> = levels[..level.map_or(0, |level| level + 1)]
                    .iter()
                    .filter_map(|level| Some(LevelWidth { kind: level.kind?, width: level.width }))
                    .collect();
                IndexOrder::parse(value, count, &widths).map_err(|message| (*at, message))?.numbers
            }
        };
        let memory_bytes =
            attributes.memory_bytes.or(description.machine.memory_bytes.filter(|_| level.is_none()));
        for &number in &numbers {
            let id = NodeId(number);
            if facts.nodes.iter().any(|node| node.id == id) {
                return Err((
                    position,
                    format!("memory node {number} is there twice; give the nodes other indexes"),
                ));
            }
            facts.nodes.push(MemoryNode { id, memory_bytes });
        }
        if home.is_none() {
            home = Some((level, numbers.into_iter().map(NodeId).collect()));
        }
    }
    note_memory_source(facts);
    Ok(home)
}

fn note_memory_source(facts: &mut Facts) {
    if facts.nodes.iter().any(|node| node.memory_bytes.is_some()) {
        facts.came_from(Fact::Memory, "the description");
    }
}
