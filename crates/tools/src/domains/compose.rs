//! `atrapos domains compose`: domains for structures, on the processing units of a machine.
//!
//! Owns: the result as text, as JSON and as a configuration. Never: composes or maps; `atrapos-composition` does.

use std::collections::BTreeMap;
use std::fmt::Write;

use atrapos_cli::error::CliError;
use atrapos_cli::output::JsonFile;
use atrapos_cli::table::columns;
use atrapos_cli::{machine, output};
use atrapos_composition::{
    CalibrationSettings, Composition, Demand, DomainIndex, Kind, LoadBounds, Structures, map_onto, span,
};
use atrapos_domain_loads::check_owned;
use atrapos_domains::Configuration;
use atrapos_topology::report::render_marks;
use atrapos_topology::{CpuId, Machine};
use clap::ValueEnum;
use serde_json::json;

use super::refused;
use super::search::{Found, Task, counted};
use super::structures::{curves, structures};
use crate::args::{ComposeArgs, KindArg};
use crate::bench::domains::refused as refused_load;

/// Structures of a domain that are named in the text; of more, their number.
const NAMES_SHOWN: usize = 8;

/// A composition on its machine.
struct Composed {
    machine: Machine,
    demand: Demand,
    kind: KindArg,
    found: Found,
    /// By domain.
    cpus: Vec<Vec<CpuId>>,
    configuration: Configuration,
}

/// Runs `atrapos domains compose`.
pub(super) fn compose(args: &ComposeArgs) -> Result<(), CliError> {
    let file = args.output.as_deref().map(|path| JsonFile::prepare_as("configuration", path)).transpose()?;
    let structures = structures(args)?;
    let curves = args.curves.as_deref().map(curves).transpose()?;
    let demand = structures.demand(curves.as_ref(), &CalibrationSettings::default()).map_err(refused)?;
    let machine = machine::read(&args.topology)?;
    let workers = workers(args, &machine)?;
    let task = Task {
        kind: kind(args)?,
        bounds: bounds(args, &demand, workers)?,
        exact_steps: args.exact.then_some(args.exact_steps),
        demand,
        workers,
    };
    let found = task.search()?;
    let sizes: Vec<u32> = found.best.domains.iter().map(|domain| domain.workers).collect();
    let cpus = map_onto(&machine, &sizes).map_err(refused)?;
    let configuration = atrapos_domain_loads::configuration(&found.best, &structures.structures, &cpus);
    check_kinds(&structures, &found.best)?;
    let composed = Composed { machine, demand: task.demand, kind: args.kind, found, cpus, configuration };
    let text = if args.json { composed.json() } else { composed.text() };
    output::print(&text)?;
    file.map_or(Ok(()), |file| file.write_text(&composed.configuration.to_toml()))
}

fn workers(args: &ComposeArgs, machine: &Machine) -> Result<u32, CliError> {
    let usable = machine.usable_cpus().len() as u32;
    match args.workers {
        Some(0) => Err(CliError::bad_input("--workers 0 leaves nothing to form domains of; use at least 1")),
        Some(workers) if workers > usable => Err(CliError::bad_input(format!(
            "--workers {workers} are more than the {usable} usable processing units of {}; use at most {usable}, or give a \
             --topology that has as many",
            machine.origin()
        ))),
        workers => Ok(workers.unwrap_or(usable)),
    }
}

fn kind(args: &ComposeArgs) -> Result<Kind, CliError> {
    match (args.kind, args.domain_size) {
        (KindArg::Homogeneous, workers) => Ok(Kind::Homogeneous { workers }),
        (kind, Some(size)) => Err(CliError::bad_input(format!(
            "--domain-size {size} is of homogeneous configurations only, not of {} ones; leave it out, or give --kind homogeneous",
            name(kind)
        ))),
        (KindArg::Isolated, None) => Ok(Kind::Isolated),
        (KindArg::Shared, None) => Ok(Kind::Shared),
    }
}

fn name(kind: KindArg) -> String {
    kind.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The load per worker that there would be if all workers were equally loaded.
fn even(demand: &Demand, workers: u32) -> f64 {
    demand.structures.iter().map(|structure| structure.load).sum::<f64>() / f64::from(workers)
}

fn bounds(args: &ComposeArgs, demand: &Demand, workers: u32) -> Result<LoadBounds, CliError> {
    let (min, max) = (args.load_min, args.load_max.unwrap_or(f64::INFINITY));
    if !(min.is_finite() && min >= 0.0 && max > 0.0 && max >= min) {
        return Err(CliError::bad_input(format!(
            "loads per worker from {min} to {max} of the even load are no bounds; --load-min must be 0 or more, and --load-max \
             positive and no smaller"
        )));
    }
    if min == 0.0 && max.is_infinite() {
        return Ok(LoadBounds::Free);
    }
    let even = even(demand, workers);
    Ok(LoadBounds::PerWorker { min: min * even, max: max * even })
}

/// Refuses a structure with one owner in a domain of several workers.
fn check_kinds(structures: &Structures, composition: &Composition) -> Result<(), CliError> {
    for (at, domain) in composition.domains.iter().enumerate() {
        let letters = DomainIndex(at as u32).letters();
        for entry in domain.structures.iter().map(|structure| &structures.structures[structure.index()]) {
            let kind = entry.kind.parse().map_err(CliError::bad_input)?;
            check_owned(&entry.name, kind, &letters, domain.workers as usize).map_err(refused_load)?;
        }
    }
    Ok(())
}

impl Composed {
    fn names(&self, domain: usize) -> Vec<&str> {
        let structures = self.found.best.domains[domain].structures.iter();
        structures.map(|structure| self.demand.structures[structure.index()].name.as_str()).collect()
    }

    /// The islands that a domain lies in, in words.
    fn within(&self, domain: usize) -> String {
        span(&self.machine, &self.cpus[domain]).map_or_else(String::new, |level| level.to_string())
    }

    fn text(&self) -> String {
        let best = &self.found.best;
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{} composition of {} structures on {} of {} processing units of {}",
            name(self.kind),
            self.demand.structures.len(),
            best.workers - best.idle_workers(),
            self.machine.usable_cpus().len(),
            self.machine.origin(),
        );
        let peak = match best.load_per_worker_max() {
            0.0 => String::new(),
            peak => format!(", at most {peak:.4} in a domain that is not isolated"),
        };
        let even = even(&self.demand, best.workers);
        let sizes = counted(&best.sizes());
        let _ = writeln!(out, "  domains of {sizes}; load per worker {even:.4} if all were alike{peak}");
        let _ = writeln!(out, "  {}\n", self.found.sentence());
        out.push_str(&self.table());
        out.push('\n');
        out.push_str(&self.picture());
        out
    }

    fn table(&self) -> String {
        let header = ["domain", "workers", "within one", "load", "per worker"].map(str::to_owned).to_vec();
        let mut lines = vec![header];
        let mut names = vec!["structures".to_owned()];
        for (at, domain) in self.found.best.domains.iter().enumerate() {
            let isolated = if domain.isolated { " (isolated)" } else { "" };
            lines.push(vec![
                DomainIndex(at as u32).letters(),
                domain.workers.to_string(),
                self.within(at),
                format!("{:.2}", domain.load),
                format!("{:.4}", domain.load / f64::from(domain.workers)),
            ]);
            names.push(format!("{}{isolated}", shortened(&self.names(at))));
        }
        let table = columns(&lines);
        table.lines().zip(names).map(|(line, names)| format!("{line}  {names}\n")).collect()
    }

    /// The machine with the letters of the domains.
    fn picture(&self) -> String {
        let mut letters = BTreeMap::new();
        for (at, cpus) in self.cpus.iter().enumerate() {
            letters.extend(cpus.iter().map(|cpu| (*cpu, DomainIndex(at as u32).letters())));
        }
        render_marks(&self.machine, &|cpu| letters.get(&cpu).cloned())
    }

    fn json(&self) -> String {
        let best = &self.found.best;
        let domain = |(at, domain): (usize, &atrapos_composition::Domain)| {
            json!({
                "name": DomainIndex(at as u32).letters(),
                "workers": domain.workers,
                "cpus": self.cpus[at].iter().map(|cpu| cpu.0).collect::<Vec<_>>(),
                "within_one": self.within(at),
                "load": domain.load,
                "load_per_worker": domain.load / f64::from(domain.workers),
                "isolated": domain.isolated,
                "structures": self.names(at),
            })
        };
        let sizes = self.demand.structures.iter().map(|structure| {
            json!({ "name": structure.name, "workers_max": structure.workers_max, "load": structure.load })
        });
        let result = json!({
            "machine": machine::summary(&self.machine),
            "kind": name(self.kind),
            "workers": best.workers,
            "idle_workers": best.idle_workers(),
            "load_per_worker_even": even(&self.demand, best.workers),
            "load_per_worker_max": best.load_per_worker_max(),
            "structures": sizes.collect::<Vec<_>>(),
            "domains": best.domains.iter().enumerate().map(domain).collect::<Vec<_>>(),
            "search": self.found.json(),
        });
        format!("{result:#}\n")
    }
}

/// Names in a list that is not too long.
fn shortened(names: &[&str]) -> String {
    match names.get(NAMES_SHOWN..) {
        Some([_, ..]) => format!("{}, .. ({})", names[..NAMES_SHOWN].join(", "), names.len()),
        _ => names.join(", "),
    }
}
