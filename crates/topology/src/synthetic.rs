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
use crate::cpuset::{CPU_COUNT_MAX, shown, shown_up_to};
use crate::error::TopologyError;
use crate::facts::{CpuFacts, Fact, Facts, MemoryNode, Origin};
use crate::ids::{CpuId, NodeId, SocketId};
use crate::machine::Machine;
use crate::synthetic_indexes::{IndexOrder, LevelWidth};

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

/// The types hwloc gives untyped levels, by how many there are.
const UNTYPED: [&[Type]; 7] = {
    use Type::{Cache, Core, Numa, Package, Pu};
    [
        &[Pu],
        &[Numa, Pu],
        &[Package, Numa, Pu],
        &[Package, Numa, Core, Pu],
        &[Package, Numa, Cache(2), Core, Pu],
        &[Package, Numa, Cache(2), Cache(1), Core, Pu],
        &[Package, Numa, Cache(3), Cache(2), Cache(1), Core, Pu],
    ]
};

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

/// Attributes as they stand, values unread.
#[derive(Debug, Clone, Default)]
struct Attributes {
    memory_bytes: Option<u64>,
    /// The value and the character it begins at.
    indexes: Option<(String, usize)>,
}

#[derive(Debug, Clone)]
struct LevelItem {
    kind: Option<Type>,
    /// Objects of this level in the whole machine.
    width: u32,
    attributes: Attributes,
    position: usize,
}

/// Memory nodes attached by brackets to the objects of a level; `None` is the machine.
#[derive(Debug, Clone)]
struct AttachedNodes {
    below: Option<usize>,
    attributes: Attributes,
    position: usize,
}

#[derive(Debug, Default)]
struct Description {
    machine: Attributes,
    levels: Vec<LevelItem>,
    attached: Vec<AttachedNodes>,
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

struct Parser<'a> {
    text: &'a str,
    chars: Vec<char>,
    at: usize,
}

const EXPECTED: &str = "expected a level such as pack:2, numa:2, l3:4, core:8 or pu:1";

impl Parser<'_> {
    fn error_at(&self, position: usize, message: String) -> TopologyError {
        const SHOWN_CHARS_MAX: usize = 160;
        TopologyError::Synthetic { text: shown_up_to(self.text, SHOWN_CHARS_MAX), position, message }
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, TopologyError> {
        Err(self.error_at(self.at + 1, message.into()))
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.peek().is_some_and(&belongs) {
            self.at += 1;
        }
        self.chars[start..self.at].iter().collect()
    }

    fn skip_spaces(&mut self) {
        self.take_while(char::is_whitespace);
    }

    fn description(&mut self) -> Result<Description, TopologyError> {
        let mut description = Description::default();
        self.skip_spaces();
        if self.peek() == Some('(') {
            description.machine = self.attributes()?;
        }
        loop {
            self.skip_spaces();
            match self.peek() {
                None => break,
                Some('[') => {
                    let attached = self.attached(description.levels.len().checked_sub(1))?;
                    description.attached.push(attached);
                }
                Some(_) => {
                    let above = description.levels.last().map_or(1, |level| level.width);
                    let level = self.level(above)?;
                    description.levels.push(level);
                }
            }
        }
        self.check_types(&mut description)?;
        Ok(description)
    }

    fn level(&mut self, above: u32) -> Result<LevelItem, TopologyError> {
        let start = self.at;
        let position = start + 1;
        let word = self.take_while(|char| char.is_ascii_alphanumeric());
        let untyped = word.bytes().all(|byte| byte.is_ascii_digit());
        let (kind, count) = if word.is_empty() {
            return self.error(EXPECTED);
        } else if untyped {
            (None, word)
        } else {
            let Some(kind) = Type::parse(&word) else {
                let hint = match word.to_ascii_lowercase().starts_with("ma") {
                    true => "the machine itself is not written".to_owned(),
                    false => format!("no level is called `{}`; {EXPECTED}", shown(&word)),
                };
                return Err(self.error_at(position, hint));
            };
            if !self.take(':') {
                return self.error(format!("expected `:` and a count after `{}`", shown(&word)));
            }
            (Some(kind), self.take_while(|char| char.is_ascii_digit()))
        };
        let count: u32 = match count.parse() {
            Ok(0) => {
                return Err(
                    self.error_at(position, "there must be at least one object of each level".to_owned())
                );
            }
            Ok(count) => count,
            Err(_) if count.is_empty() => return self.error("expected a count after `:`"),
            Err(_) => {
                return Err(self.error_at(position, format!("the count {} is too large", shown(&count))));
            }
        };
        let Some(width) = above.checked_mul(count).filter(|&width| width <= CPU_COUNT_MAX) else {
            let message = format!("that makes more than {CPU_COUNT_MAX} objects; describe a smaller machine");
            return Err(self.error_at(position, message));
        };
        let attributes = if self.peek() == Some('(') { self.attributes()? } else { Attributes::default() };
        match self.peek() {
            None | Some('[') => {}
            Some(char) if char.is_whitespace() => {}
            Some(char) => return self.error(format!("expected a space before `{}`", char.escape_default())),
        }
        Ok(LevelItem { kind, width, attributes, position })
    }

    fn attached(&mut self, below: Option<usize>) -> Result<AttachedNodes, TopologyError> {
        let position = self.at + 1;
        self.at += 1;
        self.skip_spaces();
        let word = self.take_while(|char| char.is_ascii_alphanumeric());
        if Type::parse(&word) != Some(Type::Numa) {
            let message =
                format!("only memory nodes can be attached in brackets, as [numa], not `{}`", shown(&word));
            return Err(self.error_at(position + 1, message));
        }
        let attributes = if self.peek() == Some('(') { self.attributes()? } else { Attributes::default() };
        self.skip_spaces();
        if !self.take(']') {
            return self.error("expected `]` after the attached memory node");
        }
        Ok(AttachedNodes { below, attributes, position })
    }

    fn attributes(&mut self) -> Result<Attributes, TopologyError> {
        let mut attributes = Attributes::default();
        self.at += 1;
        loop {
            self.skip_spaces();
            if self.take(')') {
                return Ok(attributes);
            }
            let position = self.at + 1;
            let name = self.take_while(|char| char.is_ascii_alphanumeric() || char == '_');
            if self.peek().is_none() {
                return self.error("expected `)` at the end of the attributes");
            }
            if name.is_empty() || !self.take('=') {
                return self.error("expected an attribute such as memory=16GiB, with `=` and a value");
            }
            let value_position = self.at + 1;
            let value = self.take_while(|char| char != ')' && !char.is_whitespace());
            match name.as_str() {
                "memory" => match parse_bytes(&value) {
                    Some(bytes) => attributes.memory_bytes = Some(bytes),
                    None => {
                        let message =
                            format!("`{}` is no amount of memory such as 16GiB or 4096", shown(&value));
                        return Err(self.error_at(value_position, message));
                    }
                },
                "indexes" => attributes.indexes = Some((value, value_position)),
                "size" if parse_bytes(&value).is_some() => {}
                "size" => {
                    let message = format!("`{}` is no cache size such as 32MiB", shown(&value));
                    return Err(self.error_at(value_position, message));
                }
                "name" => {}
                _ => {
                    let message = format!(
                        "no attribute is called `{}`; known are memory, indexes, size and name",
                        shown(&name)
                    );
                    return Err(self.error_at(position, message));
                }
            }
        }
    }

    /// Gives untyped levels their types, and checks that the levels make a machine.
    fn check_types(&self, description: &mut Description) -> Result<(), TopologyError> {
        let levels = &mut description.levels;
        let Some(last) = levels.last() else {
            return self.error(EXPECTED);
        };
        let last_position = last.position;
        let typed = levels.iter().filter(|level| level.kind.is_some()).count();
        if typed == 0 {
            let Some(kinds) = UNTYPED.get(levels.len() - 1) else {
                let message = format!("at most {} levels can go without a type", UNTYPED.len());
                return Err(self.error_at(last_position, message));
            };
            for (level, &kind) in levels.iter_mut().zip(*kinds) {
                level.kind = Some(kind);
            }
        } else if let Some(level) = levels.iter().find(|level| level.kind.is_none()) {
            let message = "this level has no type but others have; give every level one, or none".to_owned();
            return Err(self.error_at(level.position, message));
        }
        let kinds: Vec<Type> = levels.iter().filter_map(|level| level.kind).collect();
        for (index, kind) in kinds.iter().enumerate() {
            if *kind != Type::Group && kinds[..index].contains(kind) {
                let message = format!("there is another level {} before; join them into one", kind.name());
                return Err(self.error_at(levels[index].position, message));
            }
        }
        match kinds.iter().position(|&kind| kind == Type::Pu) {
            Some(index) if index + 1 == kinds.len() => Ok(()),
            Some(index) => {
                let message = "pu must be the last level: nothing is below a processing unit".to_owned();
                Err(self.error_at(levels[index + 1].position, message))
            }
            None => Err(self.error_at(
                last_position,
                "the last level must be pu, such as pu:1 below each core".to_owned(),
            )),
        }
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
