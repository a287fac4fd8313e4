//! A flow graph in the language of Graphviz.
//!
//! Owns: the text of one `digraph`. Invariant: every edge names declared nodes, and every name is quoted.

use std::fmt::Write as _;

use atrapos::RecordedFlow;

use super::repeats;

/// Returns a quoted string of the language.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Returns one graph: actions are boxes in columns by phase, synchronization points are diamonds.
pub(super) fn draw(flow: &RecordedFlow) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(flow, &mut out);
    out
}

fn write(flow: &RecordedFlow, out: &mut String) -> std::fmt::Result {
    writeln!(out, "digraph {} {{", quoted(&flow.class.name))?;
    writeln!(out, "  label={};", quoted(&flow.class.name))?;
    writeln!(out, "  rankdir=LR;")?;
    writeln!(out, "  node [shape=box];")?;
    for phase in &flow.phases {
        writeln!(out, "  {{")?;
        writeln!(out, "    rank=same;")?;
        for &at in phase {
            let action = &flow.class.actions[at as usize];
            let table = &flow.tables[action.table.index()];
            let repeats = repeats(flow, at as usize);
            let label = format!("{}({table}){repeats}", action.operation.letter());
            let style = if flow.actions[at as usize].follows { ", style=rounded" } else { "" };
            writeln!(out, "    a{at} [label={}{style}];", quoted(&label))?;
        }
        writeln!(out, "  }}")?;
    }
    for edge in &flow.class.dependencies {
        writeln!(out, "  a{} -> a{} [label={}];", edge.from, edge.to, quoted(&edge.key))?;
    }
    for (at, point) in flow.class.sync_points.iter().enumerate() {
        let label = quoted(&format!("{}: {} bytes", at + 1, point.bytes));
        writeln!(out, "  s{at} [shape=diamond, label={label}];")?;
        for action in &point.actions {
            writeln!(out, "  a{action} -> s{at} [style=dashed, arrowhead=none];")?;
        }
    }
    writeln!(out, "}}")
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn quotes_are_escaped() {
        assert_eq!(quoted(r#"a "b" \ c"#), r#""a \"b\" \\ c""#);
    }
}
