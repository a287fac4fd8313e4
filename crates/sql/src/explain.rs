//! EXPLAIN: a plan as lines of text, its route first.
//!
//! Owns: the words for plans. Never: plans or runs anything.

use crate::exec::Profile;
use crate::plan::{Access, JoinKind, Node, Plan, Scan, Work};

/// The lines of a plan. `is_routed` says that a key leads to its home.
pub(crate) fn lines(plan: &Plan, is_routed: bool, profile: Option<&Profile>) -> Vec<String> {
    let mut lines = Lines { texts: Vec::new(), profile };
    lines.texts.push(match (plan.is_on_no_table(), is_routed) {
        (true, _) => "Route: none, no table is used".to_owned(),
        (false, true) => "Route: the owner of the key".to_owned(),
        (false, false) => "Route: any worker".to_owned(),
    });
    match &plan.work {
        Work::Call(call) => lines.texts.push(format!("Call of {}", call.procedure.name)),
        Work::Query(query) => node(&query.root, 0, &mut lines),
        Work::Insert(insert) => {
            lines.texts.push(format!("Insert on {}", insert.table.name));
            node(&insert.source, 1, &mut lines);
        }
        Work::Update(update) => {
            lines.texts.push(format!("Update on {}", update.scan.table.name));
            changed(&update.scan, update.from.as_ref(), &mut lines);
        }
        Work::Delete(delete) => {
            lines.texts.push(format!("Delete on {}", delete.scan.table.name));
            changed(&delete.scan, delete.using.as_ref(), &mut lines);
        }
        Work::Truncate(tables) => {
            tables.iter().for_each(|table| lines.texts.push(format!("Delete of all rows of {}", table.name)));
        }
    }
    lines.texts
}

/// The lines of a plan, and the measures of its parts.
struct Lines<'p> {
    texts: Vec<String>,
    profile: Option<&'p Profile>,
}

impl Lines<'_> {
    /// Adds the line of a part.
    fn push<T>(&mut self, part: &T, depth: usize, text: &str) {
        let measures = self.profile.map(|profile| profile.shown(part)).unwrap_or_default();
        self.texts.push(format!("{}{text}{measures}", "  ".repeat(depth)));
    }
}

/// The rows that a statement changes.
fn changed(own: &Scan, joined: Option<&Node>, lines: &mut Lines<'_>) {
    match joined {
        Some(rows) => node(rows, 1, lines),
        None => scan(own, 1, lines),
    }
}

fn scan(scan: &Scan, depth: usize, lines: &mut Lines<'_>) {
    let table = &scan.table.name;
    let way = match &scan.access {
        Access::Full => "Scan of all rows".to_owned(),
        Access::Key(_) => "Look-up by primary key".to_owned(),
        Access::Keys(_) => "Look-ups by a list of primary keys".to_owned(),
        Access::Range { index: None, .. } => "Scan of a range of the primary key".to_owned(),
        Access::Range { index: Some(at), .. } => {
            format!("Scan of a range of index {}", scan.table.indexes[*at].meta.name)
        }
    };
    let filter = if scan.filter.is_some() { ", filtered" } else { "" };
    lines.push(scan, depth, &format!("{way} on {table}{filter}"));
}

fn node(part: &Node, depth: usize, lines: &mut Lines<'_>) {
    let mut line = |text: &str| lines.push(part, depth, text);
    match part {
        Node::Values(rows) => line(&format!("Values: {} rows", rows.len())),
        Node::Scan(inner) => scan(inner, depth, lines),
        Node::Virtual(_) => line("Scan of a catalog"),
        Node::Rows(function, _) => line(&format!("{function:?}")),
        Node::Filter(input, _) => {
            line("Filter");
            node(input, depth + 1, lines);
        }
        Node::Project(input, _) | Node::Ordinality(input) => node(input, depth, lines),
        Node::Join { left, right, kind, keys, .. } => {
            let how = if keys.is_empty() { "Nested loop" } else { "Hash" };
            line(&format!("{how} {} join", kind_name(*kind)));
            node(left, depth + 1, lines);
            node(right, depth + 1, lines);
        }
        Node::Lookup { left, right, kind, .. } => {
            line(&format!("Look-up {} join", kind_name(*kind)));
            node(left, depth + 1, lines);
            scan(right, depth + 1, lines);
        }
        Node::Lateral { left, right, kind, .. } => {
            line(&format!("Lateral {} join", kind_name(*kind)));
            node(left, depth + 1, lines);
            node(right, depth + 1, lines);
        }
        Node::Aggregate { input, groups, .. } => {
            line(if groups.is_empty() { "Aggregate" } else { "Aggregate by groups" });
            node(input, depth + 1, lines);
        }
        Node::Window { input, .. } => {
            line("Window functions");
            node(input, depth + 1, lines);
        }
        Node::ProjectSet { input, .. } => {
            line("Functions that return rows");
            node(input, depth + 1, lines);
        }
        Node::Sort(input, _) => {
            line("Sort");
            node(input, depth + 1, lines);
        }
        Node::Distinct(input, _) => {
            line("Distinct");
            node(input, depth + 1, lines);
        }
        Node::Limit { input, .. } => {
            line("Limit");
            node(input, depth + 1, lines);
        }
        Node::Append(parts) => {
            line("Append");
            parts.iter().for_each(|part| node(part, depth + 1, lines));
        }
        Node::Recursive { base, step, .. } => {
            line("Recursive union");
            node(base, depth + 1, lines);
            node(step, depth + 1, lines);
        }
        Node::Working(_) => line("Scan of the rows of the last turn"),
        Node::Combine { left, right, keep, .. } => {
            line(if *keep { "Intersect" } else { "Except" });
            node(left, depth + 1, lines);
            node(right, depth + 1, lines);
        }
    }
}

fn kind_name(kind: JoinKind) -> &'static str {
    match kind {
        JoinKind::Inner => "inner",
        JoinKind::Left => "left",
        JoinKind::Right => "right",
        JoinKind::Full => "full",
    }
}
