//! `atrapos explain`: the flow graphs of transaction classes, recorded from their procedures (`ATraPos §V-A`, Figure
//! 7).
//!
//! Owns: the choice of a workload and a class. Never: records anything (the engine does), or draws
//! (`text` and `dot` do).

mod dot;
mod text;

use atrapos::RecordedFlow;
use atrapos_harness::registry::Entry;
use serde_json::json;

use crate::args::ExplainArgs;
use crate::benchmarks::{entries, entry};
use crate::error::CliError;
use crate::output;

/// Stands for every class of a workload.
const ALL: &str = "all";

/// Runs `atrapos explain`.
pub(crate) fn explain(args: &ExplainArgs) -> Result<(), CliError> {
    let Some(workload) = entry(&args.workload) else {
        let names: Vec<&str> = entries().iter().map(|entry| entry.name()).collect();
        return Err(CliError::bad_input(format!(
            "there is no workload '{}' to explain; choose one of {}",
            args.workload,
            names.join(", ")
        )));
    };
    let class = choose(args, &*workload)?;
    let chosen = workload.flows(class).map_err(CliError::failed)?;
    if args.json {
        let classes: Vec<_> = chosen.iter().map(|flow| &flow.class).collect();
        let value = match classes[..] {
            [class] if args.class != ALL => json!(class),
            _ => json!(classes),
        };
        return output::print(&format!("{value:#}\n"));
    }
    let draw = if args.dot { dot::draw } else { text::draw };
    let drawn: Vec<String> = chosen.iter().map(draw).collect();
    output::print(&drawn.join("\n"))
}

/// Returns the class that was asked for; `None` for all.
fn choose<'a>(args: &'a ExplainArgs, workload: &dyn Entry) -> Result<Option<&'a str>, CliError> {
    let known: Vec<&str> = workload.classes().iter().flat_map(|classes| classes.names).copied().collect();
    let class = args.class.as_str();
    if class == ALL {
        return Ok(None);
    }
    if known.contains(&class) {
        return Ok(Some(class));
    }
    Err(CliError::bad_input(format!(
        "the workload {} has no class '{class}'; choose {ALL} or one of {}",
        args.workload,
        known.join(", ")
    )))
}

/// Returns the number of times that an action happens, unless it is exactly once: `x 5..15`.
fn repeats(flow: &RecordedFlow, action: usize) -> String {
    let action = &flow.class.actions[action];
    match (action.repeat_min, action.repeat_max) {
        (1, 1) => String::new(),
        (min, max) if min == max => format!(" x {max}"),
        (min, max) => format!(" x {min}..{max}"),
    }
}

/// Returns a number with its `noun`, in the singular or plural.
fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
