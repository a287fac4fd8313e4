//! A machine as text for people: the tree of nested islands, distances, sources of facts, rejected statements.
//!
//! Owns: the wording and the folding: three or more identical neighbours are one line, and a level that has the same
//! cores as the one above it is no line of its own, so that 2 and 1,024 processing units both fit a screen.
//!
//! Never: shows something that is not in the model.

use crate::cpuset::CpuSet;
use crate::distance::Relation;
use crate::ids::{CpuId, IslandId};
use crate::machine::{Island, Level, Machine};
use std::fmt::Write;

/// Number of identical neighbours from which on they are folded into one line.
const FOLD_COUNT_MIN: usize = 3;
/// Lists of cpus longer than this are cut.
const CPU_LIST_CHARS_MAX: usize = 44;
/// Marks of an island that are longer than this are counted.
const MARKS_CHARS_MAX: usize = 96;
/// A table of node distances with more columns than this does not fit a screen and is summed up.
const NODE_COLUMNS_MAX: usize = 16;

/// The machine as text for people, in lines of a terminal's width as far as names allow; ends with a newline.
#[must_use]
pub fn render_tree(machine: &Machine) -> String {
    let mut out = String::new();
    head(machine, &mut out);
    let root = &machine.all_islands()[0];
    let offline = machine.offline_cpus();
    let bare = bare_nodes(machine);
    let extra: Vec<String> = bare
        .into_iter()
        .chain((!offline.is_empty()).then(|| format!("offline: cpus {}", cut_list(offline))))
        .collect();
    branches(machine, root, ("", extra.is_empty()), &|_| None, &mut out);
    for (index, line) in extra.iter().enumerate() {
        let branch = if index + 1 == extra.len() { "└─ " } else { "├─ " };
        push_line(&mut out, &format!("{branch}{line}"));
    }
    distances(machine, &mut out);
    node_distances(machine, &mut out);
    provenance(machine, &mut out);
    out
}

fn push_line(out: &mut String, line: &str) {
    out.push_str(line.trim_end());
    out.push('\n');
}

pub(super) fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// Bytes with a binary unit and one digit behind the point.
fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    #[expect(clippy::cast_precision_loss, reason = "one digit behind the point is shown")]
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

fn head(machine: &Machine, out: &mut String) {
    let source = match machine.name() {
        Some(name) => format!("{name} ({})", machine.origin()),
        None => machine.origin().to_string(),
    };
    push_line(out, &source);
    let levels = [Level::Socket, Level::Node, Level::L3].map(|level| {
        let island_count = machine.islands(level).count();
        count(island_count, &level.to_string())
    });
    push_line(
        out,
        &format!(
            "  {}, {}, {}{}",
            count(machine.cpus().len(), "cpu"),
            count(machine.cores().len(), "core"),
            levels.join(", "),
            machine.memory_bytes().map(|memory| format!(", {}", bytes(memory))).unwrap_or_default(),
        ),
    );
    let quota = machine.cpu_quota().map(|quota| format!(", quota {quota:.2} cores")).unwrap_or_default();
    push_line(
        out,
        &format!(
            "  usable: {} on {}{quota}; {} by default",
            count(machine.usable_cpus().len(), "cpu"),
            count(machine.usable_core_count(), "core"),
            count(machine.default_workers(), "worker"),
        ),
    );
}

/// Nodes that no island is near.
fn bare_nodes(machine: &Machine) -> Vec<String> {
    let near = |node: &&crate::facts::MemoryNode| machine.cpus().iter().any(|cpu| cpu.node == node.id);
    let bare = machine.nodes().iter().filter(|node| !near(node));
    bare.map(|node| format!("{}{}: no cpus", node.id, node_memory(node.memory_bytes))).collect()
}

fn node_memory(memory_bytes: Option<u64>) -> String {
    match memory_bytes {
        Some(0) => " (no memory)".to_owned(),
        Some(memory) => format!(" ({})", bytes(memory)),
        None => String::new(),
    }
}

/// The nested islands of the machine as text, with the marks that processing units have, below the islands that have no
/// islands in them; one without a mark is shown as `.`. SMT siblings are next to each other, without a space if the marks are
/// single characters. Ends with a newline.
#[must_use]
pub fn render_marks(machine: &Machine, mark: &dyn Fn(CpuId) -> Option<String>) -> String {
    let mut out = String::new();
    let root = &machine.all_islands()[0];
    branches(machine, root, ("", true), &|island| Some(marks(machine, island, mark)), &mut out);
    out
}

/// The marks of an L3 island, one by one if they fit a line, else with their numbers of processing units.
fn marks(machine: &Machine, island: &Island, mark: &dyn Fn(CpuId) -> Option<String>) -> String {
    let of = |cpu: &CpuId| mark(*cpu).unwrap_or_else(|| ".".to_owned());
    let cores: Vec<Vec<String>> = machine
        .cores()
        .iter()
        .filter(|core| core.island == island.id)
        .map(|core| core.cpus.iter().map(of).collect())
        .collect();
    let short = cores.iter().flatten().all(|mark| mark.chars().count() == 1);
    let each: Vec<String> = cores.iter().map(|core| core.join(if short { "" } else { "+" })).collect();
    let line = each.join(" ");
    if line.chars().count() <= MARKS_CHARS_MAX {
        return line;
    }
    let all: Vec<&String> = cores.iter().flatten().collect();
    let runs = all.chunk_by(|a, b| a == b);
    runs.map(|run| format!("{} x {}", run.len(), run[0])).collect::<Vec<_>>().join(", ")
}

/// Prints the islands below one, identical neighbours folded. The pair has the indentation, and
/// whether nothing follows the last of them; `marks` gives a second line for an island without islands in it.
fn branches(
    machine: &Machine,
    parent: &Island,
    (indent, closes): (&str, bool),
    marks: &dyn Fn(&Island) -> Option<String>,
    out: &mut String,
) {
    let shapes: Vec<String> = parent.children.iter().map(|&child| shape(machine, child, marks)).collect();
    let mut start = 0;
    while start < shapes.len() {
        let alike = shapes[start..].iter().take_while(|other| **other == shapes[start]).count();
        let shown = if alike >= FOLD_COUNT_MIN { alike } else { 1 };
        let is_last = closes && start + shown == shapes.len();
        let (branch, below) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let run = &parent.children[start..start + shown];
        let innermost = line(machine, run, indent, branch, out);
        let indent = format!("{indent}{below}");
        if let Some(marks) = marks(innermost).filter(|_| innermost.children.is_empty()) {
            push_line(out, &format!("{indent}   {marks}"));
        }
        branches(machine, innermost, (&indent, true), marks, out);
        start += shown;
    }
}

/// Shape of an island, apart from its numbers; islands of equal shapes can be folded.
fn shape(machine: &Machine, island: IslandId, marks: &dyn Fn(&Island) -> Option<String>) -> String {
    let island = &machine.all_islands()[island.index()];
    let mut shape = format!("{:?}", island.level);
    if island.level == Level::Node {
        let memory =
            machine.nodes().iter().find(|node| Some(node.id) == island.node).map(|node| node.memory_bytes);
        let _ = write!(shape, "{memory:?}");
    }
    if island.children.is_empty() {
        for core in machine.cores().iter().filter(|core| core.island == island.id) {
            let usable = core.cpus.iter().filter(|&&cpu| machine.usable_cpus().contains(cpu)).count();
            let _ = write!(shape, " {}/{usable}", core.cpus.len());
        }
        shape.push_str(&marks(island).unwrap_or_default());
    }
    for &child in &island.children {
        let _ = write!(shape, "[{}]", self::shape(machine, child, marks));
    }
    shape
}

/// Prints one line for a run of islands alike, together with the levels below that have the same cores. Returns the
/// innermost of these for the first of the run.
fn line<'a>(
    machine: &'a Machine,
    run: &[IslandId],
    indent: &str,
    branch: &str,
    out: &mut String,
) -> &'a Island {
    let mut level: Vec<&Island> = run.iter().map(|id| &machine.all_islands()[id.index()]).collect();
    let mut labels = vec![label(machine, &level)];
    while let [_] = level[0].children.as_slice() {
        level = level.iter().map(|island| &machine.all_islands()[island.children[0].index()]).collect();
        labels.push(label(machine, &level));
    }
    let times = if run.len() > 1 { format!("{} x ", run.len()) } else { String::new() };
    let text = format!("{indent}{branch}{times}{}: {}", labels.join(" = "), contents(machine, &level));
    push_line(out, &text);
    level[0]
}

fn label(machine: &Machine, islands: &[&Island]) -> String {
    let first = islands[0];
    let numbers = |number: &dyn Fn(&Island) -> Option<u32>| {
        let set: CpuSet = islands.iter().filter_map(|island| number(island).map(CpuId)).collect();
        cut_list(&set)
    };
    match first.level {
        Level::Socket => format!("socket {}", numbers(&|island| island.socket.map(|socket| socket.0))),
        Level::Node => {
            let memory = machine.nodes().iter().find(|node| Some(node.id) == first.node);
            let memory = node_memory(memory.and_then(|node| node.memory_bytes));
            format!("node {}{memory}", numbers(&|island| island.node.map(|node| node.0)))
        }
        level => level.to_string(),
    }
}

fn contents(machine: &Machine, alike: &[&Island]) -> String {
    let island = alike[0];
    let threads: Vec<usize> = machine
        .cores()
        .iter()
        .filter(|core| island.cpus.contains(core.cpus[0]))
        .map(|core| core.cpus.len())
        .collect();
    let mut text = count(threads.len(), "core");
    match threads.iter().max().copied().unwrap_or(1) {
        1 => {}
        most if threads.iter().all(|&threads| threads == most) => {
            let _ = write!(text, " of {most} threads");
        }
        _ => {
            let _ = write!(text, " with {}", count(island.cpus.len(), "thread"));
        }
    }
    let usable = island.cpus.intersection(machine.usable_cpus()).len();
    if usable < island.cpus.len() {
        let _ = write!(text, " ({usable} of {} usable)", count(island.cpus.len(), "cpu"));
    }
    if alike.len() > 1 {
        text.push_str(" each");
    }
    let _ = write!(text, ", cpus {}", cut_list(&island.cpus));
    if let [_, second, .., last] = alike {
        let _ = write!(text, " | {} | .. | {}", cut_list(&second.cpus), cut_list(&last.cpus));
    }
    text
}

fn cut_list(cpus: &CpuSet) -> String {
    let list = cpus.to_string();
    if list.len() <= CPU_LIST_CHARS_MAX {
        return list;
    }
    let kept = list[..CPU_LIST_CHARS_MAX].rfind(',').map_or("", |comma| &list[..comma]);
    format!("{kept},.. ({})", cpus.len())
}

/// The relations that pairs of this machine have.
pub(super) fn occurring(machine: &Machine) -> Vec<Relation> {
    let cores_in =
        |island: IslandId| machine.cores().iter().filter(move |core| core.island == island).count();
    let branching = |level: Level| machine.islands(level).any(|island| island.children.len() > 1);
    let occurs = |relation: &Relation| match relation {
        Relation::SameCpu => false,
        Relation::SmtSiblings => machine.cores().iter().any(|core| core.cpus.len() > 1),
        Relation::SameL3 => machine.islands(Level::L3).any(|island| cores_in(island.id) > 1),
        Relation::SameNode => branching(Level::Node),
        Relation::SameSocket => branching(Level::Socket),
        Relation::OtherSocket => branching(Level::Machine),
    };
    Relation::ALL.into_iter().filter(occurs).collect()
}

/// The smallest and the largest distance of pairs so related, over one processing unit of every core.
pub(super) fn distance_range(machine: &Machine, relation: Relation) -> Option<(f64, f64)> {
    // One processing unit per L3 island tells all pairs between islands apart unless they were measured; for what is
    // within islands, all are looked at, which are few.
    let cpus: Vec<CpuId> = if relation <= Relation::SameL3 || machine.latencies().is_some() {
        machine.cpus().iter().map(|cpu| cpu.id).collect()
    } else {
        machine.islands(Level::L3).filter_map(|island| island.cpus.first()).collect()
    };
    let mut range: Option<(f64, f64)> = None;
    for (index, &a) in cpus.iter().enumerate() {
        for &b in &cpus[index + 1..] {
            if machine.relation(a, b) == Some(relation) {
                let distance = machine.distance(a, b);
                let (low, high) = range.unwrap_or((distance, distance));
                range = Some((low.min(distance), high.max(distance)));
            }
        }
    }
    range
}

fn distances(machine: &Machine, out: &mut String) {
    let relations = occurring(machine);
    if relations.is_empty() {
        return;
    }
    out.push('\n');
    let scale = match machine.distance_unit_ns() {
        Some(unit) => {
            format!("distances, measured (1.0 = the nearest two cores, {unit:.0} ns there and back)")
        }
        None => "distances, assumed (1.0 = two cores that share a cache)".to_owned(),
    };
    push_line(out, &scale);
    for relation in relations {
        let range = match distance_range(machine, relation) {
            Some((low, high)) if high - low < 0.05 => format!("{low:.1}"),
            Some((low, high)) => format!("{low:.1} to {high:.1}"),
            None => "unknown".to_owned(),
        };
        let median =
            machine.median_latency_ns(relation).map(|ns| format!("  median {ns:.0} ns")).unwrap_or_default();
        push_line(out, &format!("  {:<28}{range:<12}{median}", relation.to_string()));
    }
}

fn node_distances(machine: &Machine, out: &mut String) {
    let nodes = machine.nodes();
    if nodes.len() < 2 || !machine.has_node_distances() {
        return;
    }
    out.push('\n');
    push_line(out, "node distances of the firmware (10 = local)");
    let distance = |a: usize, b: usize| machine.node_distance(nodes[a].id, nodes[b].id).unwrap_or(0);
    if nodes.len() > NODE_COLUMNS_MAX {
        let pairs = (0..nodes.len()).flat_map(|a| (0..a).map(move |b| distance(a, b)));
        let mut counts = std::collections::BTreeMap::new();
        pairs.for_each(|distance| *counts.entry(distance).or_insert(0usize) += 1);
        for (distance, pairs) in counts {
            push_line(out, &format!("  {distance:>4} between {}", count(pairs, "pair")));
        }
        return;
    }
    let header: String = nodes.iter().map(|node| format!("{:>5}", node.id.0)).collect();
    push_line(out, &format!("  {:>5}{header}", "node"));
    for (row, node) in nodes.iter().enumerate() {
        let entries: String =
            (0..nodes.len()).map(|column| format!("{:>5}", distance(row, column))).collect();
        push_line(out, &format!("  {:>5}{entries}", node.id.0));
    }
}

fn provenance(machine: &Machine, out: &mut String) {
    out.push('\n');
    push_line(out, "what came from where");
    for provenance in machine.provenance() {
        push_line(out, &format!("  {:<15} {}", provenance.fact.to_string(), provenance.source));
    }
    if !machine.refused().is_empty() {
        out.push('\n');
        push_line(out, "not believed");
        for refusal in machine.refused() {
            push_line(out, &format!("  {refusal}"));
        }
    }
}
