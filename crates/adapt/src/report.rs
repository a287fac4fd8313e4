//! Plans and schemes as text that a person reads.
//!
//! Owns: the presentation. Never: the numbers.

use crate::cost::Cost;
use crate::ids::TableIndex;
use crate::plan::Plan;
use crate::platform::Platform;
use crate::scheme::PlannedScheme;
use crate::steps::Step;
use crate::workload::Workload;
use atrapos_topology::Level;
use std::fmt::Write as _;

/// Greatest number of steps listed one by one; of more, only the sums.
const STEPS_SHOWN: usize = 24;
/// Greatest number of workers that have a line each; of more, each island has one.
const WORKERS_SHOWN: usize = 16;
/// Greatest number of ranges of slices shown as such; of more, their number.
const RANGES_SHOWN: usize = 4;
/// Greatest width of the name of a table.
const NAME_WIDTH: usize = 24;
/// Cells of the heat of a table; of more slices, several share one.
const HEAT_CELLS: usize = 64;
/// Owners of a cell, by their numbers.
const OWNERS: &[u8; WORKERS_SHOWN] = b"0123456789abcdef";
/// Heat from the coldest to the hottest.
const SHADES: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The narrowest column of a table.
const COLUMN_MIN: usize = 16;

/// A plan: what changes in cost, both schemes, and the steps.
#[must_use]
pub fn render_plan(plan: &Plan, workload: &Workload, platform: &Platform) -> String {
    let mut text = render_costs(plan);
    if plan.steps.is_empty() {
        text.push_str("\nNothing better was found: today's scheme stays.\n\n");
        text.push_str(&render_scheme(&plan.scheme, workload, platform));
        return text;
    }
    text.push_str("\ntoday\n");
    text.push_str(&render_scheme(&plan.today, workload, platform));
    text.push_str("\nproposed\n");
    text.push_str(&render_scheme(&plan.scheme, workload, platform));
    text.push('\n');
    text.push_str(&render_heat(plan, workload, platform));
    text.push('\n');
    text.push_str(&render_steps(plan, workload));
    text
}

/// The character of a share of the greatest heat.
#[must_use]
pub fn shade(share: f64) -> char {
    // A float-to-integer cast saturates, and NaN becomes 0.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    let level = (share * (SHADES.len() - 1) as f64).round() as usize;
    SHADES[level.min(SHADES.len() - 1)]
}

/// Renders the heat of the slices of each table, and for up to 16 workers the owner of each, today and as proposed.
fn render_heat(plan: &Plan, workload: &Workload, platform: &Platform) -> String {
    let width = name_width(workload).max("proposed".len() + 2);
    let shows_owners = platform.worker_count() <= WORKERS_SHOWN;
    let mut text = String::from("heat by slice, in key order");
    text.push_str(if shows_owners { ", and the worker of each (a dot for several)\n" } else { "\n" });
    for table in (0..).map(TableIndex).take(workload.table_count()) {
        let costs = workload.table_costs(table);
        let cells = costs.len().min(HEAT_CELLS);
        let slices = |cell: usize| costs.len() * cell / cells..costs.len() * (cell + 1) / cells;
        let heat = |cell: usize| costs[slices(cell)].iter().sum::<f64>() / slices(cell).len() as f64;
        let hottest = (0..cells).map(heat).fold(0.0, f64::max);
        if hottest <= 0.0 {
            continue;
        }
        let shades: String = (0..cells).map(|cell| shade(heat(cell) / hottest)).collect();
        let _ = writeln!(text, "  {:<width$}  {shades}", shown_name(workload, table));
        for (name, scheme) in [("today", &plan.today), ("proposed", &plan.scheme)] {
            if shows_owners {
                let owners = owners_of(scheme, table, costs.len());
                let cell = |cell: usize| match &owners[slices(cell)] {
                    [one, others @ ..] if others.iter().all(|other| other == one) => {
                        OWNERS.get(*one as usize).map_or('?', |owner| char::from(*owner))
                    }
                    _ => '.',
                };
                let _ = writeln!(
                    text,
                    "    {name:<0$}  {1}",
                    width - 2,
                    (0..cells).map(cell).collect::<String>()
                );
            }
        }
    }
    text
}

/// The worker of each slice of a table.
fn owners_of(scheme: &PlannedScheme, table: TableIndex, slices: usize) -> Vec<u32> {
    let partitions = scheme.tables()[table.index()].partitions(slices as u32);
    partitions
        .flat_map(|part| std::iter::repeat_n(part.owner.0, (part.to.0 - part.from.0) as usize))
        .collect()
}

/// Renders the costs of the naive scheme, today's and the proposed one.
fn render_costs(plan: &Plan) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{:<34}{:>12}{:>12}{:>12}", "", "naive", "today", "proposed");
    let costs = [&plan.naive, &plan.before, &plan.after];
    let mut row = |name: &str, value: &dyn Fn(&Cost) -> String| {
        let [naive, today, proposed] = costs.map(value);
        let _ = writeln!(text, "{name:<34}{naive:>12}{today:>12}{proposed:>12}");
    };
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    row("imbalance, share of the work", &|cost| format!("{:.4}", cost.imbalance_ratio()));
    row("most loaded worker over the mean", &|cost| format!("{:.3}", cost.load_max_ratio()));
    row("byte distances per 1000 cycles", &|cost| {
        format!("{:.3}", 1000.0 * share(cost.sync_byte_distance, cost.work_cycles))
    });
    row("partitions", &|cost| cost.partitions.to_string());
    row("objective", &|cost| format!("{:.4}", cost.objective));
    text
}

/// The steps of a plan: how many there are for each table, what of it changes its worker, and each one if they are few.
#[must_use]
pub fn render_steps(plan: &Plan, workload: &Workload) -> String {
    let mut text = String::new();
    let count = plan.steps.len();
    let _ = writeln!(text, "{count} {}", if count == 1 { "step" } else { "steps" });
    let columns = ["splits", "moves", "merges", "slices moved", "load moved"];
    let name_width = name_width(workload);
    let _ = write!(text, "  {:<name_width$}", "table");
    for column in columns {
        let _ = write!(text, "{column:>14}");
    }
    text.push('\n');
    let mut all = [0_usize; 3];
    let (mut all_moved, mut all_load) = (0, 0.0);
    let share = |part: f64, whole: f64| if whole > 0.0 { 100.0 * part / whole } else { 0.0 };
    let mut line = |name: &str, counts: [usize; 3], moved: u32, slices: u32, load: f64, of: f64| {
        let _ = write!(text, "  {name:<name_width$}");
        for count in counts {
            let _ = write!(text, "{count:>14}");
        }
        let slices = share(f64::from(moved), f64::from(slices));
        let _ = writeln!(text, "{:>14}{:>14}", format!("{slices:.1}%"), format!("{:.1}%", share(load, of)));
    };
    let mut all_slices = 0;
    for table in (0..).map(TableIndex).take(workload.table_count()) {
        let (mut counts, mut moved, mut load) = ([0; 3], 0, 0.0);
        for step in &plan.steps {
            match *step {
                Step::Split { table: of, .. } if of == table => counts[0] += 1,
                Step::Merge { table: of, .. } if of == table => counts[2] += 1,
                Step::Move { table: of, from, to, .. } if of == table => {
                    counts[1] += 1;
                    moved += to.0 - from.0;
                    load += workload.table_costs(table)[from.index()..to.index()].iter().sum::<f64>();
                }
                _ => {}
            }
        }
        let slices = workload.slice_count(table);
        all_slices += slices;
        if counts != [0; 3] {
            let of = workload.table_costs(table).iter().sum();
            line(&shown_name(workload, table), counts, moved, slices, load, of);
        }
        all = [all[0] + counts[0], all[1] + counts[1], all[2] + counts[2]];
        (all_moved, all_load) = (all_moved + moved, all_load + load);
    }
    if workload.table_count() > 1 {
        line("all", all, all_moved, all_slices, all_load, workload.work_cycles());
    }
    if plan.steps.len() <= STEPS_SHOWN {
        text.push('\n');
        for step in &plan.steps {
            let _ = writeln!(text, "  {}", describe(step, workload));
        }
    }
    text
}

/// A step with the name of its table.
fn describe(step: &Step, workload: &Workload) -> String {
    match step {
        Step::Split { table, at } => format!("split {} at {at}", workload.table_name(*table)),
        Step::Merge { table, at } => format!("merge {} at {at}", workload.table_name(*table)),
        Step::Move { table, from, to, source, target } => {
            let (name, slices) = (workload.table_name(*table), span(from.0, to.0));
            format!("move {name} slices {slices} from {source} to {target}")
        }
    }
}

/// Slices from `from` up to but not including `to`, as `3` or `3-7`.
fn span(from: u32, to: u32) -> String {
    if to == from + 1 { from.to_string() } else { format!("{from}-{}", to - 1) }
}

fn shown_name(workload: &Workload, table: TableIndex) -> String {
    workload.table_name(table).chars().take(NAME_WIDTH).collect()
}

fn name_width(workload: &Workload) -> usize {
    let names = (0..).map(TableIndex).take(workload.table_count());
    names.map(|table| shown_name(workload, table).chars().count()).max().unwrap_or(0).max(5)
}

/// Figures of a worker or an island.
struct Line {
    name: String,
    /// Load in units of the mean over the available workers.
    load: f64,
    load_max: f64,
    cells: Vec<String>,
}

/// The loads and partitions of the workers under a scheme.
struct Shares<'a> {
    workload: &'a Workload,
    tables: Vec<TableIndex>,
    /// Set if each worker has a line, rather than each island.
    one_by_one: bool,
    /// The mean load of the available workers.
    mean: f64,
    /// By worker.
    loads: Vec<f64>,
    /// By table and worker: the ranges of slices.
    parts: Vec<Vec<Vec<(u32, u32)>>>,
}

impl<'a> Shares<'a> {
    fn new(scheme: &PlannedScheme, workload: &'a Workload, platform: &Platform) -> Self {
        let tables: Vec<TableIndex> = (0..).map(TableIndex).take(scheme.tables().len()).collect();
        let workers = platform.worker_count();
        let mut loads = vec![0.0; workers];
        let mut parts: Vec<Vec<Vec<(u32, u32)>>> = vec![vec![Vec::new(); workers]; tables.len()];
        for table in &tables {
            let costs = workload.table_costs(*table);
            for part in scheme.tables()[table.index()].partitions(workload.slice_count(*table)) {
                let worker = part.owner.index();
                loads[worker] += costs[part.from.index()..part.to.index()].iter().sum::<f64>();
                parts[table.index()][worker].push((part.from.0, part.to.0));
            }
        }
        let mean = workload.work_cycles() / platform.available_count() as f64;
        Self { workload, tables, one_by_one: workers <= WORKERS_SHOWN, mean, loads, parts }
    }

    /// The line of a worker, or of an island with several.
    fn line(&self, members: &[usize]) -> Line {
        let relative = |load: f64| if self.mean > 0.0 { load / self.mean } else { 0.0 };
        let load: f64 = members.iter().map(|worker| self.loads[*worker]).sum::<f64>() / members.len() as f64;
        let load_max = members.iter().map(|worker| self.loads[*worker]).fold(0.0, f64::max);
        let least = members.iter().min().expect("an island has workers");
        let last = members.iter().max().expect("an island has workers");
        let name = if least == last { least.to_string() } else { format!("{least}-{last}") };
        let cells = self.tables.iter().map(|table| self.cell(*table, members)).collect();
        Line { name, load: relative(load), load_max: relative(load_max), cells }
    }

    /// The partitions of a table that the workers of a line own.
    fn cell(&self, table: TableIndex, members: &[usize]) -> String {
        let parts: Vec<_> = members.iter().flat_map(|worker| &self.parts[table.index()][*worker]).collect();
        let slices: u32 = parts.iter().map(|(from, to)| to - from).sum();
        let percent = 100.0 * f64::from(slices) / f64::from(self.workload.slice_count(table));
        match parts.as_slice() {
            [] => "-".to_owned(),
            parts if self.one_by_one && parts.len() <= RANGES_SHOWN => {
                parts.iter().map(|(from, to)| span(*from, *to)).collect::<Vec<_>>().join(",")
            }
            [_] => format!("1 part {percent:.1}%"),
            parts => format!("{} parts {percent:.1}%", parts.len()),
        }
    }

    /// All lines, in the order of the workers or of the L3 islands.
    fn lines(&self, platform: &Platform) -> Vec<Line> {
        if self.one_by_one {
            return (0..self.loads.len()).map(|worker| self.line(&[worker])).collect();
        }
        let islands = platform.islands().iter().filter(|(level, ..)| *level == Level::L3);
        islands
            .map(|(_, first, count)| {
                let ranks = *first..*first + *count;
                self.line(&ranks.map(|rank| platform.worker(rank).index()).collect::<Vec<_>>())
            })
            .collect()
    }
}

/// A scheme: for up to 16 workers, the slices of each table that each has, and its share of the mean load; for more, by L3
/// island, the number of partitions of each table, their share of its slices, and the load of its workers.
#[must_use]
pub fn render_scheme(scheme: &PlannedScheme, workload: &Workload, platform: &Platform) -> String {
    let shares = Shares::new(scheme, workload, platform);
    let lines = shares.lines(platform);
    let mut text = if shares.one_by_one {
        format!("  {:<10}{:>8}", "worker", "load")
    } else {
        format!("  {:<10}{:>8}{:>8}", "workers", "load", "max")
    };
    let widths: Vec<usize> = (shares.tables.iter())
        .map(|table| {
            let cells = lines.iter().map(|line| line.cells[table.index()].chars().count());
            let widest = cells.max().unwrap_or(0).max(shown_name(workload, *table).chars().count());
            (widest + 2).max(COLUMN_MIN)
        })
        .collect();
    for (table, width) in shares.tables.iter().zip(&widths) {
        let _ = write!(text, "{:>width$}", shown_name(workload, *table));
    }
    text.push('\n');
    for Line { name, load, load_max, cells } in lines {
        let _ = write!(text, "  {name:<10}{load:>8.3}");
        if !shares.one_by_one {
            let _ = write!(text, "{load_max:>8.3}");
        }
        for (cell, width) in cells.iter().zip(&widths) {
            let _ = write!(text, "{cell:>width$}");
        }
        text.push('\n');
    }
    text
}
