//! Plans and schemes as text that a person reads.
//!
//! Owns: the presentation. Never: the numbers.

use crate::cost::Cost;
use crate::ids::TableIndex;
use crate::plan::Plan;
use crate::platform::Platform;
use crate::scheme::Scheme;
use crate::workload::Workload;
use atrapos_topology::Level;
use std::fmt::Write as _;

/// How many steps of a kind are listed one by one.
const STEPS_SHOWN: usize = 12;

/// A plan: what changes in cost, both schemes island by island, and the steps.
#[must_use]
pub fn render_plan(plan: &Plan, workload: &Workload, platform: &Platform) -> String {
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
    if plan.steps.is_empty() {
        text.push_str("\nNothing better was found: today's scheme stays.\n\n");
        text.push_str(&render_scheme(&plan.scheme, workload, platform));
        return text;
    }
    text.push_str("\ntoday\n");
    text.push_str(&render_scheme(&plan.today, workload, platform));
    text.push_str("\nproposed\n");
    text.push_str(&render_scheme(&plan.scheme, workload, platform));
    let _ = writeln!(text, "\n{} steps", plan.steps.len());
    let all: Vec<String> = plan.steps.iter().map(ToString::to_string).collect();
    for kind in ["split", "move", "merge"] {
        let of_kind: Vec<&String> = all.iter().filter(|step| step.starts_with(kind)).collect();
        for step in of_kind.iter().take(STEPS_SHOWN) {
            let _ = writeln!(text, "  {step}");
        }
        if of_kind.len() > STEPS_SHOWN {
            let _ = writeln!(text, "  and {} more of this kind ({kind})", of_kind.len() - STEPS_SHOWN);
        }
    }
    text
}

/// A scheme: by L3 island, how many partitions of each table it has, which share of each table's slices, and its load.
#[must_use]
pub fn render_scheme(scheme: &Scheme, workload: &Workload, platform: &Platform) -> String {
    let tables: Vec<TableIndex> = (0..).map(TableIndex).take(scheme.tables().len()).collect();
    let mut text = format!("  {:<12}{:>9}{:>9}", "workers", "load", "max");
    for table in &tables {
        let name: String = workload.table_name(*table).chars().take(16).collect();
        let _ = write!(text, "{name:>18}");
    }
    text.push('\n');
    let workers = platform.worker_count();
    let mut loads = vec![0.0; workers];
    let mut counts = vec![vec![0_u32; workers]; tables.len()];
    let mut slices = vec![vec![0_u32; workers]; tables.len()];
    for table in &tables {
        let costs = workload.table_costs(*table);
        for part in scheme.tables()[table.index()].partitions(workload.slice_count(*table)) {
            let worker = part.owner.index();
            loads[worker] += costs[part.from.index()..part.to.index()].iter().sum::<f64>();
            counts[table.index()][worker] += 1;
            slices[table.index()][worker] += part.to.0 - part.from.0;
        }
    }
    let mean = workload.work_cycles() / platform.available_count() as f64;
    let relative = |load: f64| if mean > 0.0 { load / mean } else { 0.0 };
    for (_, first, count) in platform.islands().iter().filter(|(level, ..)| *level == Level::L3) {
        let members: Vec<usize> =
            (*first..*first + *count).map(|rank| platform.worker(rank).index()).collect();
        let load: f64 = members.iter().map(|worker| loads[*worker]).sum::<f64>() / f64::from(*count);
        let most = members.iter().map(|worker| loads[*worker]).fold(0.0, f64::max);
        let least = members.iter().min().expect("an island has workers");
        let last = members.iter().max().expect("an island has workers");
        let name = if least == last { least.to_string() } else { format!("{least}..{last}") };
        let _ = write!(text, "  {name:<12}{:>9.3}{:>9.3}", relative(load), relative(most));
        for table in &tables {
            let parts: u32 = members.iter().map(|worker| counts[table.index()][*worker]).sum();
            let share: u32 = members.iter().map(|worker| slices[table.index()][*worker]).sum();
            let percent = 100.0 * f64::from(share) / f64::from(workload.slice_count(*table));
            let cell = if parts == 0 { "-".to_owned() } else { format!("{parts} parts {percent:.1}%") };
            let _ = write!(text, "{cell:>18}");
        }
        text.push('\n');
    }
    text
}
