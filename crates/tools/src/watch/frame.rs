//! The view of a running database: lines for a terminal, and the same lines as text.
//!
//! Owns: what is shown, where, and in which words. Never: asks the database, or knows a key of the keyboard.
//!
//! Invariant: colours repeat what the words and bars say.

use atrapos::activity::{FamilyActivity, PartitionActivity, WorkerActivity};
use atrapos_cli::table::{count, mib, rate, us};
use atrapos_watch::report::{ClassRate, DecisionReport, Snapshot};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Wrap};

/// Decisions that are kept for the view.
const DECISIONS: usize = 200;
/// Cells of the bar of a share.
const BAR_CELLS: usize = 20;
/// The width of a worker's line; as many are beside each other as there is room for.
const WORKER_CELLS: u16 = 78;
/// The longest text of a key.
const KEY_CELLS: usize = 28;
/// The share of a worker's time from which a sub-partition is shown as hot, and from which as warm.
const HOT: f64 = 0.25;
const WARM: f64 = 0.05;
/// The lines that decisions take at least, and the frames of the parts.
const DECISION_LINES: u16 = 8;
const HEADER_LINES: u16 = 4;
/// Classes that are told at most.
const CLASSES: usize = 8;

/// The latest state of a database, and what has been told of it.
#[derive(Debug)]
pub(super) struct View {
    snapshot: Snapshot,
    /// The decisions that have been told, the oldest first.
    decisions: Vec<DecisionReport>,
    /// Lines of the partitions that are above the window.
    scrolled: u16,
}

impl View {
    pub(super) fn new(snapshot: Snapshot) -> View {
        let decisions = snapshot.decisions.clone();
        View { snapshot, decisions, scrolled: 0 }
    }

    /// Takes a later state.
    pub(super) fn update(&mut self, snapshot: Snapshot) {
        self.decisions.extend_from_slice(&snapshot.decisions);
        self.decisions.drain(..self.decisions.len().saturating_sub(DECISIONS));
        self.snapshot = snapshot;
    }

    /// Returns the number of the latest decision that has been told.
    pub(super) fn last_decision(&self) -> u64 {
        self.decisions.last().map_or(0, |decision| decision.number)
    }

    pub(super) fn scroll_back(&mut self, lines: u16) {
        self.scrolled = self.scrolled.saturating_sub(lines);
    }

    pub(super) fn scroll_on(&mut self, lines: u16) {
        let last = self.partitions().len().saturating_sub(1);
        self.scrolled = self.scrolled.saturating_add(lines).min(u16::try_from(last).unwrap_or(u16::MAX));
    }

    /// Returns the view as text.
    pub(super) fn text(&self) -> String {
        let mut parts = self.header();
        for (title, lines) in [
            ("workers", self.workers()),
            (self.partitions_title(), self.partitions()),
            ("decisions", self.decisions()),
        ] {
            parts.push(Line::default());
            parts.push(Line::from(title));
            parts.extend(lines);
        }
        let text = |line: &Line<'_>| line.spans.iter().map(|span| &*span.content).collect::<String>();
        parts.iter().map(|line| format!("{}\n", text(line).trim_end())).collect()
    }

    /// Draws the view.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let columns = (area.width / WORKER_CELLS).max(1);
        let workers = self.workers();
        let rows = workers.len().div_ceil(usize::from(columns)) as u16;
        let [head, of_workers, of_partitions, of_decisions] = Layout::vertical([
            Constraint::Length(HEADER_LINES),
            // A machine with many workers leaves room for the rest.
            Constraint::Length((rows + 1).min(area.height / 2)),
            Constraint::Min(0),
            Constraint::Length(DECISION_LINES.min(area.height / 3)),
        ])
        .areas(area);
        frame.render_widget(Paragraph::new(self.header()), head);
        draw_workers(frame, of_workers, workers, columns);
        let partitions = Paragraph::new(self.partitions()).scroll((self.scrolled, 0));
        frame.render_widget(partitions.block(titled(self.partitions_title())), of_partitions);
        // The latest first: what does not fit is old.
        let decisions: Vec<Line<'_>> = self.decisions().into_iter().rev().collect();
        let decisions = Paragraph::new(decisions).wrap(Wrap { trim: false });
        frame.render_widget(decisions.block(titled("decisions, the latest first")), of_decisions);
    }

    fn header(&self) -> Vec<Line<'static>> {
        let Snapshot { activity, rates, latency, .. } = &self.snapshot;
        let place = self.snapshot.directory.as_deref().unwrap_or("in memory");
        let first = format!(
            "{}, process {}, {place}, {} on {}, open for {:.1} s",
            self.snapshot.program,
            self.snapshot.pid,
            several(activity.workers.len() as u64, "worker"),
            self.snapshot.machine.name.as_deref().unwrap_or("this machine"),
            activity.at_ns as f64 / 1e9
        );
        let committed: f64 = rates.committed.iter().sum();
        let mut second = vec![
            Span::from(rate(committed)).bold(),
            Span::from(" transactions/s").bold(),
            Span::from(format!(", {} aborted/s", rate(rates.aborted))),
        ];
        if let Some(latency) = latency {
            let text = |latency_us: f64| us((latency_us * 1e3) as u64);
            second.push(Span::from(format!(
                ", latency {} us (median), {} us (99%)",
                text(latency.p50_us),
                text(latency.p99_us)
            )));
        }
        let mut lines = vec![Line::from(first), Line::from(second)];
        // A single class without a name says nothing.
        if rates.classes.iter().any(|class| !class.name.is_empty()) {
            lines.push(classes_line(&rates.classes));
        }
        if let Some(durability) = &activity.durability {
            let failure = durability.failure.as_ref();
            lines.push(match failure {
                Some(failure) => {
                    Line::from(format!("nothing becomes durable any more: {failure}")).fg(Color::Red)
                }
                None => Line::from(format!(
                    "durable but for the last {:.1} ms, {} written in {} syncs",
                    durability.lag_ns as f64 / 1e6,
                    mib(durability.bytes),
                    count(durability.syncs)
                )),
            });
        }
        lines
    }

    fn workers(&self) -> Vec<Line<'static>> {
        let Snapshot { activity, rates, .. } = &self.snapshot;
        let at = |of: &[f64], index: usize| of.get(index).copied().unwrap_or(0.0);
        let workers = activity.workers.iter().enumerate();
        let sent = |index: usize| rates.messages.get(index).map_or(0.0, |to| to.iter().sum::<f64>());
        workers
            .map(|(index, worker)| {
                worker_line(worker, at(&rates.busy, index), at(&rates.committed, index), sent(index))
            })
            .collect()
    }

    fn partitions_title(&self) -> &'static str {
        match self.snapshot.activity.loads_from_ns {
            Some(_) => "partitions: heat by sub-partition, share of a worker's time, rows, first key",
            None => "partitions (their load is not observed: the database keeps its scheme): rows, first key",
        }
    }

    fn partitions(&self) -> Vec<Line<'static>> {
        let Snapshot { activity, rates, .. } = &self.snapshot;
        let hottest = rates.heat.iter().flatten().flatten().copied().fold(0.0, f64::max);
        let mut lines = Vec::new();
        for (family, heats) in activity.families.iter().zip(&rates.heat) {
            lines.push(family_line(family));
            for (partition, heat) in family.partitions.iter().zip(heats) {
                lines.push(partition_line(partition, heat, hottest));
            }
        }
        if lines.is_empty() {
            lines.push(Line::from(" there are no tables"));
        }
        lines
    }

    /// Returns the decisions but those to wait, of which only the latest is shown if nothing came after it.
    fn decisions(&self) -> Vec<Line<'static>> {
        let last = self.last_decision();
        let waits = |decision: &DecisionReport| decision.decision["action"] == "wait";
        let shown = self.decisions.iter().filter(|decision| !waits(decision) || decision.number == last);
        let lines: Vec<_> = shown.map(decision_line).collect();
        if lines.is_empty() { vec![Line::from(" there have been none")] } else { lines }
    }
}

fn titled(title: &'static str) -> Block<'static> {
    Block::new().borders(Borders::TOP).title(Span::from(format!(" {title} ")).bold())
}

/// Draws lines of workers in columns, one below the other first.
fn draw_workers(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'static>>, columns: u16) {
    let block = titled("workers");
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let rows = lines.len().div_ceil(usize::from(columns)).max(1);
    let places = Layout::horizontal(vec![Constraint::Fill(1); usize::from(columns)]).split(inside);
    for (place, lines) in places.iter().zip(lines.chunks(rows)) {
        frame.render_widget(Paragraph::new(lines.to_vec()), *place);
    }
}

/// Returns a number and a noun.
fn several(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Returns a bar for a share, and the share in per cent.
fn bar(share: f64) -> Span<'static> {
    let full = ((share.clamp(0.0, 1.0) * BAR_CELLS as f64).round() as usize).min(BAR_CELLS);
    let text = format!("{}{} {:>3.0}%", "█".repeat(full), "░".repeat(BAR_CELLS - full), 100.0 * share);
    Span::styled(text, Style::new().fg(Color::Cyan))
}

/// The classes of transactions with their rates, the most frequent first.
fn classes_line(classes: &[ClassRate]) -> Line<'static> {
    let all: f64 = classes.iter().map(|class| class.per_second).sum();
    let text = |class: &ClassRate| {
        let name = if class.name.is_empty() { "no class" } else { &class.name };
        format!("{name} {}/s ({:.0}%)", rate(class.per_second), 100.0 * class.per_second / all)
    };
    let mut texts: Vec<String> = classes.iter().take(CLASSES).map(text).collect();
    if classes.len() > CLASSES {
        texts.push(format!("{} more", classes.len() - CLASSES));
    }
    Line::from(format!("classes: {}", texts.join(", ")))
}

fn worker_line(worker: &WorkerActivity, busy: f64, committed: f64, sent: f64) -> Line<'static> {
    let name = format!("w{}", worker.worker);
    let cpu = worker.cpu.map_or_else(String::new, |cpu| format!("cpu {cpu}"));
    let mut spans = vec![Span::from(format!(" {name:<5}{cpu:<8}")), bar(busy)];
    spans.push(Span::from(format!(" {:>10}/s", rate(committed))));
    let mut more = Vec::new();
    if sent >= 0.5 {
        more.push(format!("{} messages/s", rate(sent)));
    }
    if worker.suspended > 0 {
        more.push(format!("{} suspended", count(worker.suspended as u64)));
    }
    if worker.waiting > 0 {
        more.push(format!("{} waiting", count(worker.waiting as u64)));
    }
    if !worker.is_available {
        more.push("may own nothing".to_owned());
    }
    spans.push(Span::from(format!("  {}", more.join(", "))));
    Line::from(spans)
}

fn family_line(family: &FamilyActivity) -> Line<'static> {
    let others: Vec<&str> =
        family.tables.iter().filter(|table| **table != family.name).map(String::as_str).collect();
    let with = if others.is_empty() { String::new() } else { format!(" with {}", others.join(", ")) };
    let partitions = several(family.partitions.len() as u64, "partition");
    Line::from(vec![
        Span::from(format!(" {}", family.name)).bold(),
        Span::from(format!("{with}: {partitions}, version {}", family.version)),
    ])
}

fn partition_line(partition: &PartitionActivity, heat: &[f64], hottest: f64) -> Line<'static> {
    let owner = match (partition.worker, partition.instance) {
        (Some(worker), _) => format!("w{worker}"),
        (None, Some(instance)) => format!("instance {instance}"),
        (None, None) => "on its way".to_owned(),
    };
    let mut spans = vec![Span::from(format!("   {owner:<5}"))];
    spans.extend(heat.iter().map(|heat| shade(*heat, hottest)));
    if !heat.is_empty() {
        spans.push(Span::from(format!(" {:>4.0}%", 100.0 * heat.iter().sum::<f64>())));
    }
    let rows = count(partition.rows.iter().sum());
    let from = partition.lower.as_deref().map_or_else(|| "the first key".to_owned(), shortened);
    spans.push(Span::from(format!(" {rows:>12} rows from {from}")));
    if partition.waiting > 0 {
        spans.push(Span::from(format!(", {} waiting", count(partition.waiting as u64))).fg(Color::Yellow));
    }
    Line::from(spans)
}

/// Returns the heat of a sub-partition, by how it compares with the hottest one.
fn shade(heat: f64, hottest: f64) -> Span<'static> {
    let share = if hottest > 0.0 { heat / hottest } else { 0.0 };
    let shade = atrapos_adapt::shade(share);
    let colour = match heat {
        heat if heat >= HOT => Color::Red,
        heat if heat >= WARM => Color::Yellow,
        _ => Color::Blue,
    };
    Span::styled(shade.to_string(), Style::new().fg(colour))
}

fn shortened(key: &str) -> String {
    match key.char_indices().nth(KEY_CELLS) {
        Some((end, _)) => format!("{}…", &key[..end]),
        None => key.to_owned(),
    }
}

fn decision_line(decision: &DecisionReport) -> Line<'static> {
    let sentence = Span::from(decision.sentence.clone());
    let mut spans = vec![
        Span::from(format!(" {:>7.1} s  ", decision.at_seconds)),
        if decision.is_change { sentence.bold() } else { sentence },
    ];
    if let Some(done) = &decision.report {
        spans.push(Span::from(format!(
            " Done: {}, {}, {}; owners did nothing else for {:.2} ms.",
            several(done.splits, "split"),
            several(done.merges, "merge"),
            several(done.moves, "move"),
            done.owner_ms
        )));
    }
    if let Some(failure) = &decision.failure {
        spans.push(Span::from(format!(" That failed: {failure}.")).fg(Color::Red));
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use atrapos::Statistics;
    use atrapos::activity::{Activity, DurabilityActivity};
    use atrapos_watch::report::{CarriedOut, Latency, MachineReport, Rates};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;

    fn worker(number: u16, waiting: usize) -> WorkerActivity {
        WorkerActivity {
            worker: number,
            cpu: Some(usize::from(number) * 2),
            is_pinned: true,
            is_available: number < 2,
            busy_ns: 0,
            idle_ns: 0,
            committed: 0,
            suspended: waiting * 3,
            participants: 0,
            waiting,
            sent: Vec::new(),
        }
    }

    fn partition(number: u32, worker: Option<u16>, lower: Option<&str>) -> PartitionActivity {
        PartitionActivity {
            number,
            worker,
            instance: None,
            lower: lower.map(str::to_owned),
            upper: None,
            rows: vec![12_000, 3_000],
            bounds: Vec::new(),
            load_ns: Vec::new(),
            sync_points: 0,
            locked: 0,
            waiting: usize::from(number == 2),
        }
    }

    fn decision(number: u64, action: &str) -> DecisionReport {
        DecisionReport {
            number,
            at_seconds: number as f64,
            sentence: format!(
                "Decision {number} was to {action}, for a reason that takes some words to tell and more than a line of the terminal."
            ),
            is_change: action == "repartition",
            decision: json!({ "action": action }),
            report: (action == "repartition").then_some(CarriedOut {
                splits: 1,
                merges: 0,
                moves: 2,
                owner_ms: 0.125,
                longest_ms: 0.1,
            }),
            failure: None,
        }
    }

    fn classes() -> Vec<ClassRate> {
        let class = |(name, per_second): (&str, f64)| ClassRate { name: name.into(), per_second };
        [("get-subscriber-data", 489_970.8), ("", 122_000.0), ("update-location", 497.6)].map(class).into()
    }

    fn snapshot() -> Snapshot {
        let family = FamilyActivity {
            name: "subscriber".into(),
            tables: vec!["subscriber".into(), "access_info".into()],
            version: 7,
            partitions: vec![
                partition(0, Some(0), None),
                partition(1, Some(1), Some("5000")),
                partition(2, None, Some("a key that is too long to be shown beside all of the rest")),
            ],
        };
        Snapshot {
            version: "0.1.0".into(),
            pid: 4711,
            program: "bench tatp".into(),
            directory: Some("my.db".into()),
            machine: MachineReport { name: None, island: None },
            activity: Activity {
                at_ns: 12_340_000_000,
                loads_from_ns: Some(0),
                statistics: Statistics::default(),
                workers: vec![worker(0, 0), worker(1, 1), worker(2, 0)],
                classes: Vec::new(),
                families: vec![family],
                lock_waits: Vec::new(),
                durability: Some(DurabilityActivity {
                    lag_ns: 1_250_000,
                    epoch: 9,
                    durable_epoch: 8,
                    bytes: 5 << 20,
                    syncs: 1234,
                    failure: None,
                }),
            },
            rates: Rates {
                seconds: 1.0,
                busy: vec![0.876, 0.5, 0.0],
                committed: vec![612_345.4, 123.0, 0.0],
                aborted: 12.0,
                classes: classes(),
                messages: vec![vec![0.0, 1200.0, 0.0], vec![0.0; 3], vec![0.0; 3]],
                heat: vec![vec![vec![0.01, 0.05, 0.8, 0.0], vec![0.1, 0.2, 0.1, 0.1], Vec::new()]],
            },
            latency: Some(Latency { p50_us: 1.54, p99_us: 120.0 }),
            decisions: vec![decision(3, "wait"), decision(4, "repartition"), decision(5, "keep")],
        }
    }

    fn drawn(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| view.draw(frame)).expect("it is drawn");
        terminal.backend().to_string()
    }

    #[test]
    fn a_database_is_drawn_on_a_terminal() {
        let mut view = View::new(snapshot());
        insta::assert_snapshot!("terminal", drawn(&view, 100, 26));
        view.scroll_on(2);
        insta::assert_snapshot!("terminal_wide_and_scrolled", drawn(&view, 160, 20));
        view.scroll_on(100);
        view.scroll_back(100);
        assert_eq!(view.scrolled, 0);
    }

    #[test]
    fn the_same_is_printed_as_text() {
        insta::assert_snapshot!("text", View::new(snapshot()).text());
        let mut empty = snapshot();
        empty.directory = None;
        empty.latency = None;
        empty.decisions.clear();
        empty.activity.families.clear();
        empty.rates.heat.clear();
        empty.rates.classes.clear();
        empty.activity.loads_from_ns = None;
        empty.activity.durability = None;
        insta::assert_snapshot!("text_without_tables", View::new(empty).text());
    }

    #[test]
    fn no_terminal_is_too_small() {
        let view = View::new(snapshot());
        for (width, height) in [(1, 1), (5, 3), (20, 8), (78, 5)] {
            drawn(&view, width, height);
        }
    }

    #[test]
    fn later_decisions_are_added_and_the_latest_wait_is_shown_until_another_comes() {
        let mut view = View::new(snapshot());
        assert_eq!(view.last_decision(), 5);
        view.update(Snapshot { decisions: vec![decision(6, "wait")], ..snapshot() });
        let text = view.text();
        assert!(text.contains("Decision 4 ") && text.contains("Decision 6 "), "{text}");
        assert!(!text.contains("Decision 3 "), "{text}");
        view.update(Snapshot { decisions: vec![decision(7, "wait")], ..snapshot() });
        assert!(!view.text().contains("Decision 6 "), "{}", view.text());
        let many = (8..500).map(|number| decision(number, "keep")).collect();
        view.update(Snapshot { decisions: many, ..snapshot() });
        assert_eq!((view.last_decision(), view.decisions.len()), (499, DECISIONS));
    }
}
