//! The command line of `atrapos explain`.
//!
//! Owns: names, defaults and help texts, with the list of all classes. Never: knows a workload by name; there is a registry.

use clap::Args;

use crate::benchmarks::entries;

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[arg(value_name = "WORKLOAD", help = workload_help())]
    pub(crate) workload: String,
    /// The transaction class, or `all`.
    #[arg(value_name = "CLASS", default_value = "all")]
    pub(crate) class: String,
    /// Print the graph for Graphviz.
    #[arg(long, conflicts_with = "json")]
    pub(crate) dot: bool,
    /// Print the graph as JSON, as it is in traces; `all` prints a list. Tables have their numbers: those of the schema in order,
    /// then the indexes.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The names of all workloads, one of which is to be chosen.
fn workload_help() -> String {
    let names: Vec<String> = entries().iter().map(|entry| format!("`{}`", entry.name())).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => {
            format!("The workload: {} or {last}", others.join(", "))
        }
        _ => format!("The workload: {}", names.concat()),
    }
}

/// The transaction classes of every workload, one workload per line.
pub(super) fn classes_help() -> String {
    let lines = entries().into_iter().map(|entry| {
        let mut line = format!("Classes of {}: ", entry.name());
        for (at, classes) in entry.classes().iter().enumerate() {
            match classes.when {
                Some(when) => line.push_str(&format!("; {when}: ")),
                None if at > 0 => line.push_str(", "),
                None => {}
            }
            line.push_str(&classes.names.join(", "));
        }
        line + "."
    });
    lines.collect::<Vec<_>>().join("\n")
}
