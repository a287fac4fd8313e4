//! `atrapos explain`: the flow graphs of transaction classes, recorded from their procedures (`ATraPos §V-A`, Figure 7).
//!
//! Owns: which workloads can be explained, and the choice of a class. Never: records anything (the engine does), or draws
//! (`text` and `dot` do).

mod dot;
mod text;

use atrapos::RecordedFlow;
use atrapos_harness::flows;
use atrapos_workloads::micro::{Kind, Micro, MicroConfig};
use atrapos_workloads::smallbank::{SmallBank, SmallBankConfig};
use atrapos_workloads::tatp::parameters::Mix;
use atrapos_workloads::tatp::{SUBSCRIBERS_DEFAULT, Tatp};
use atrapos_workloads::tpcb::{Tpcb, TpcbConfig};
use atrapos_workloads::tpcc::{Tpcc, TpccConfig};
use atrapos_workloads::ycsb::mix::Mix as YcsbMix;
use atrapos_workloads::ycsb::schema::Wide;
use atrapos_workloads::ycsb::{Ycsb, YcsbConfig};
use atrapos_workloads::{KeyChoice, Workload};
use serde_json::json;

use crate::args::ExplainArgs;
use crate::error::CliError;
use crate::output;

/// The workloads whose classes are known.
const WORKLOADS: [&str; 6] = ["tatp", "tpcc", "micro", "tpcb", "ycsb", "smallbank"];

/// Stands for every class of a workload.
const ALL: &str = "all";

/// Population and arguments follow from this, so that a graph is the same every time.
const SEED: u64 = 1;

/// `atrapos explain`.
pub(crate) fn explain(args: &ExplainArgs) -> Result<(), CliError> {
    let chosen = match args.workload.as_str() {
        "tatp" => {
            let tatp = Tatp::new(SUBSCRIBERS_DEFAULT, Mix::Standard, KeyChoice::Uniform, SEED);
            choose(args, &[tatp.map_err(CliError::failed)?])?
        }
        "tpcc" => {
            let tpcc = Tpcc::new(TpccConfig { seed: SEED, ..TpccConfig::default() });
            choose(args, &[tpcc.map_err(CliError::failed)?])?
        }
        "micro" => {
            let micro = |kind| Micro::new(MicroConfig { kind, seed: SEED, ..MicroConfig::default() });
            let both = [Kind::Read, Kind::Update].map(|kind| micro(kind).map_err(CliError::failed));
            let [read, update] = both;
            choose(args, &[read?, update?])?
        }
        "tpcb" => {
            let tpcb = Tpcb::new(TpcbConfig { seed: SEED, ..TpcbConfig::default() });
            choose(args, &[tpcb.map_err(CliError::failed)?])?
        }
        "ycsb" => {
            // The classes of single operations, and those of sixteen.
            let mix = YcsbMix::of_updates(0.5).map_err(CliError::failed)?;
            let config = YcsbConfig { mix, seed: SEED, ..YcsbConfig::default() };
            let [one, several] = [1, 16].map(|operations| {
                Ycsb::<Wide>::new(YcsbConfig { operations, ..config.clone() }).map_err(CliError::failed)
            });
            choose(args, &[one?, several?])?
        }
        "smallbank" => {
            let smallbank = SmallBank::new(SmallBankConfig { seed: SEED, ..SmallBankConfig::default() });
            choose(args, &[smallbank.map_err(CliError::failed)?])?
        }
        unknown => {
            return Err(CliError::bad_input(format!(
                "there is no workload '{unknown}' to explain; choose one of {}",
                WORKLOADS.join(", ")
            )));
        }
    };
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

/// The flow graphs of the class that was asked for, or of all.
fn choose<W: Workload>(args: &ExplainArgs, workloads: &[W]) -> Result<Vec<RecordedFlow>, CliError> {
    let names = || workloads.iter().flat_map(Workload::classes);
    if args.class != ALL && !names().any(|name| *name == args.class) {
        let known: Vec<&str> = names().copied().collect();
        return Err(CliError::bad_input(format!(
            "the workload {} has no class '{}'; choose {ALL} or one of {}",
            args.workload,
            args.class,
            known.join(", ")
        )));
    }
    let mut chosen = Vec::new();
    for workload in workloads {
        if args.class == ALL || workload.classes().contains(&args.class.as_str()) {
            chosen.extend(flows(workload).map_err(CliError::failed)?);
        }
    }
    chosen.retain(|flow| args.class == ALL || flow.class.name == args.class);
    Ok(chosen)
}

/// How often an action happens, unless it is exactly once: `x 5..15`.
fn repeats(flow: &RecordedFlow, action: usize) -> String {
    let action = &flow.class.actions[action];
    match (action.repeat_min, action.repeat_max) {
        (1, 1) => String::new(),
        (min, max) if min == max => format!(" x {max}"),
        (min, max) => format!(" x {min}..{max}"),
    }
}

/// What follows a number of `noun`s.
fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
