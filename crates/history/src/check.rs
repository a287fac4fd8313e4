//! The check of rows: draws the edges of Adya's direct serialization graph, those of predicates included, and looks for a circle.
//!
//! Owns: which transaction must come before which, and why. Never: guesses. Where it cannot be known which state of a key a
//! transaction saw, no edge is drawn.
//!
//! For every key that a read by a predicate did *not* bring, the transaction saw some state that does not fulfil the predicate:
//! no row, or one of another group. Such states follow each other in *runs* between those that do. Time tells of most runs that
//! they had ended or not begun. If one is left, the transaction comes after whoever began it (a predicate-wr edge) and before
//! whoever ended it (a predicate-rw edge: without it there would be phantoms).

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::anomaly::Anomaly;
use crate::entry::{Event, Found, History, Outcome, Predicate};
use crate::graph::{Graph, Step};
use crate::versions::{Number, Order, Versions};

/// Numbers of what was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Transactions that happened.
    pub committed: u64,
    /// Transactions that were reported as aborted.
    pub aborted: u64,
    /// Transactions of which nobody was told; those of them that somebody saw are among the committed ones.
    pub unknown: u64,
    /// Versions that were written.
    pub versions: u64,
    /// Rows that were read.
    pub rows_read: u64,
    /// Reads by a predicate.
    pub predicates: u64,
    /// Reasons for one transaction to come before another, besides the order in time.
    pub edges: u64,
    /// Keys that a predicate did not bring and of which two states fit.
    pub undecided: u64,
}

impl Report {
    /// Sums both reports.
    #[must_use]
    pub fn plus(&self, other: &Report) -> Report {
        Report {
            committed: self.committed + other.committed,
            aborted: self.aborted + other.aborted,
            unknown: self.unknown + other.unknown,
            versions: self.versions + other.versions,
            rows_read: self.rows_read + other.rows_read,
            predicates: self.predicates + other.predicates,
            edges: self.edges + other.edges,
            undecided: self.undecided + other.undecided,
        }
    }
}

/// Reasons for one transaction to come before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The next replaced its version of the key.
    Replaced(u64),
    /// The next read its version of the key.
    WasRead(u64),
    /// The next replaced the version of the key that it read.
    Read(u64),
    /// The next found by the predicate that the key was as it had left it.
    WasMissed(u64, Predicate),
    /// The next gave the key a version that its predicate would have brought.
    Missed(u64, Predicate),
}

struct Check<'h> {
    history: &'h History,
    versions: Versions,
    graph: Graph<Why>,
    report: Report,
}

impl History {
    /// Proves that the transactions could have run one after the other, in an order that agrees with time.
    ///
    /// # Errors
    /// The first anomaly.
    pub fn check(&self) -> Result<Report, Anomaly> {
        let versions = Versions::of(self)?;
        let spans: Vec<(u64, u64)> = self
            .transactions
            .iter()
            .zip(&versions.happened)
            // One that never happened takes no part in anything.
            .map(
                |(transaction, happened)| {
                    if *happened { (transaction.began, transaction.ended) } else { (0, u64::MAX) }
                },
            )
            .collect();
        let mut check =
            Check { history: self, versions, graph: Graph::new(&spans), report: Report::default() };
        check.count();
        check.draw_writes();
        for (reader, transaction) in self.transactions.iter().enumerate() {
            if transaction.outcome == Outcome::Committed {
                check.draw_reads(reader)?;
            }
        }
        check.report.edges = check.graph.reasons() as u64;
        match check.graph.smallest_cycle() {
            None => Ok(check.report),
            Some(cycle) => Err(check.describe(&cycle)),
        }
    }
}

impl Check<'_> {
    fn name(&self, number: Number) -> String {
        self.history.transactions[number].name()
    }

    fn count(&mut self) {
        let outcomes = |wanted| {
            let is_so = |transaction: &&crate::Transaction| transaction.outcome == wanted;
            self.history.transactions.iter().filter(is_so).count() as u64
        };
        self.report.aborted = outcomes(Outcome::Aborted);
        self.report.unknown = outcomes(Outcome::Unknown);
        self.report.committed = self.versions.happened.iter().filter(|happened| **happened).count() as u64;
        self.report.versions = self.versions.orders.values().map(|order| order.all.len() as u64).sum();
    }

    fn draw_writes(&mut self) {
        for (key, order) in &self.versions.orders {
            for pair in order.all.windows(2) {
                self.graph.add(pair[0].writer, pair[1].writer, Why::Replaced(*key));
            }
        }
    }

    /// Checks one transaction against itself, and draws what follows from its reads.
    fn draw_reads(&mut self, reader: Number) -> Result<(), Anomaly> {
        let history = self.history;
        let internal = |what: String| Anomaly::Internal { reader: history.transactions[reader].name(), what };
        // What it has written so far.
        let mut own: HashMap<u64, Found> = HashMap::new();
        for event in &history.transactions[reader].events {
            match event {
                Event::Write { key, found, version, group } => {
                    if let Some(before) = own.get(key)
                        && before.version != found.version
                    {
                        let (left, found) = (before.version, found.version);
                        return Err(internal(format!(
                            "it found version {found:#x} of key {key} where it had left {left:#x}"
                        )));
                    }
                    own.insert(*key, Found { version: *version, over: found.version, group: *group });
                }
                Event::Read { what, rows } => {
                    self.report.predicates += 1;
                    self.report.rows_read += rows.len() as u64;
                    let mut brought = HashMap::new();
                    for (key, found) in rows {
                        if !what.matches(*key, found.group) || brought.insert(*key, *found).is_some() {
                            return Err(internal(format!("{what} brought {found:?} under key {key}")));
                        }
                        match own.get(key) {
                            Some(left) if left == found => {}
                            Some(left) => {
                                return Err(internal(format!(
                                    "{what} brought {found:?} under key {key} where it had left {left:?}"
                                )));
                            }
                            None => self.draw_row(reader, *key, found)?,
                        }
                    }
                    if let Some((key, left)) = own
                        .iter()
                        .find(|(key, left)| what.matches(**key, left.group) && !brought.contains_key(key))
                    {
                        return Err(internal(format!(
                            "{what} did not bring key {key}, where it had left {left:?}"
                        )));
                    }
                    self.draw_missing(reader, *what, |key| {
                        brought.contains_key(&key) || own.contains_key(&key)
                    });
                }
                Event::Gone { key, found } => match own.get(key) {
                    Some(left) if left == found => {}
                    Some(left) => {
                        return Err(internal(format!(
                            "key {key} was gone ({found:?}) where it had left {left:?}"
                        )));
                    }
                    None => self.draw_row(reader, *key, found)?,
                },
                Event::Append { .. } | Event::ReadList { .. } => {}
            }
        }
        Ok(())
    }

    /// A row that was read.
    fn draw_row(&mut self, reader: Number, key: u64, found: &Found) -> Result<(), Anomaly> {
        let place = self.versions.places[&found.version];
        let (version, order) = (found.version, &self.versions.orders[&key]);
        if place.writer == reader {
            let what = format!("it read version {version:#x} of key {key} before it wrote it");
            return Err(Anomaly::Internal { reader: self.name(reader), what });
        }
        if place.is_intermediate {
            let (reader, writer) = (self.name(reader), self.name(place.writer));
            return Err(Anomaly::IntermediateRead { reader, writer, key, version });
        }
        self.graph.add(place.writer, reader, Why::WasRead(key));
        if let Some(next) = order.installed.get(place.at + 1) {
            self.graph.add(reader, next.writer, Why::Read(key));
        }
        Ok(())
    }

    /// The keys that a predicate did not bring.
    fn draw_missing(&mut self, reader: Number, what: Predicate, is_known: impl Fn(u64) -> bool) {
        let keys = match what {
            Predicate::Keys(from, to) => from..to,
            Predicate::Group(_) => 0..u64::MAX,
        };
        for (key, order) in self.versions.orders.range(keys) {
            if is_known(*key) {
                continue;
            }
            let transaction = &self.history.transactions[reader];
            let window = order.window(transaction.began, transaction.ended);
            match run_seen(order, *key, what, reader, window) {
                Run::Undecided => self.report.undecided += 1,
                Run::Seen { after, before } => {
                    if let Some(after) = after {
                        self.graph.add(after, reader, Why::WasMissed(*key, what));
                    }
                    if let Some(before) = before {
                        self.graph.add(reader, before, Why::Missed(*key, what));
                    }
                }
            }
        }
    }

    fn describe(&self, cycle: &[Step<Why>]) -> Anomaly {
        let mut text = String::new();
        for (at, (number, why)) in cycle.iter().enumerate() {
            let (one, next) = (self.name(*number), self.name(cycle[(at + 1) % cycle.len()].0));
            let why = match why {
                None => format!("had ended before {next} began"),
                Some(Why::Replaced(key)) => format!("wrote key {key}, which {next} wrote after it"),
                Some(Why::WasRead(key)) => format!("wrote key {key} as {next} read it"),
                Some(Why::Read(key)) => format!("read key {key}, which {next} wrote after that"),
                Some(Why::WasMissed(key, what)) => format!("left key {key} as {next} found it by {what}"),
                Some(Why::Missed(key, what)) => {
                    format!("read {what} without key {key} as {next} left it")
                }
            };
            let events: Vec<String> = self.history.transactions[*number].events.iter().map(told).collect();
            let _ = writeln!(text, "  {one} {why}.\n    {one} {}", events.join("; "));
        }
        Anomaly::Cycle { kind: kind(cycle), cycle: text }
    }
}

/// The effect of an event, in words.
fn told(event: &Event) -> String {
    let version = |found: &Found| format!("{:#x}", found.version);
    match event {
        Event::Write { key, found, version, group: Some(group) } => {
            format!("wrote version {version:#x} (group {group}) of key {key} over {:#x}", found.version)
        }
        Event::Write { key, found, version, group: None } => {
            format!("deleted key {key} (version {version:#x}) over {:#x}", found.version)
        }
        Event::Read { what, rows } => {
            let rows: Vec<String> =
                rows.iter().map(|(key, found)| format!("{key}: {}", version(found))).collect();
            format!("read {what}: {{{}}}", rows.join(", "))
        }
        Event::Gone { key, found } => format!("found key {key} deleted: {}", version(found)),
        Event::Append { list, number } => format!("appended {number} to list {list}"),
        Event::ReadList { list, numbers } => format!("read list {list}: {numbers:?}"),
    }
}

/// The name of the anomaly that a circle is (Adya 1999; Cerone and Gotsman 2018 for those with the order in time).
fn kind(cycle: &[Step<Why>]) -> String {
    let reasons = || cycle.iter().filter_map(|step| step.1);
    let anti = reasons().filter(|why| matches!(why, Why::Read(_) | Why::Missed(..))).count();
    let of_predicates = reasons().any(|why| matches!(why, Why::Missed(..)));
    let reads = reasons().any(|why| !matches!(why, Why::Replaced(_)));
    let name = match anti {
        0 if !reads => "G0",
        0 => "G1c",
        1 => "G-single",
        _ if of_predicates => "G2",
        _ => "G2-item",
    };
    let in_time = if cycle.iter().any(|step| step.1.is_none()) { "-realtime" } else { "" };
    format!("{name}{in_time}")
}

/// The states of a key among which the one is that a predicate did not bring.
enum Run {
    /// States from `after`, if a transaction began them, up to `before`, if one ended them.
    Seen { after: Option<Number>, before: Option<Number> },
    /// Several such runs fit.
    Undecided,
}

/// Finds the run of states that do not fulfil the predicate which a transaction has seen, from the window of places (as
/// [`Order::window`] gives it) that time allows.
fn run_seen(order: &Order, key: u64, what: Predicate, reader: Number, window: (usize, usize)) -> Run {
    // Place 0 is before the first version; a version that nobody saw may be anything.
    let matches = |place: usize| {
        place > 0 && order.installed[place - 1].group.is_some_and(|group| what.matches(key, group))
    };
    let writer = |place: usize| order.installed[place - 1].writer;
    let last = order.installed.len();
    let (from, mut to) = window;
    // What it wrote itself it wrote after it had looked.
    if let Some(own) = (from.max(1)..=to.min(last)).find(|place| writer(*place) == reader) {
        to = own - 1;
    }
    let mut missing = (from..=to.min(last)).filter(|place| !matches(*place));
    // When none fits in time, the newest one before shows it: whoever ended it had ended before.
    let seen = missing.next().or_else(|| (0..from.min(last + 1)).rev().find(|place| !matches(*place)));
    let seen = seen.unwrap_or_default();
    let end = (seen + 1..=last).find(|place| matches(*place));
    if missing.any(|other| end.is_some_and(|end| other > end)) {
        return Run::Undecided;
    }
    let mut begin = seen;
    while begin > 0 && !matches(begin - 1) {
        begin -= 1;
        // How far back it goes matters little: what is older comes before it anyway.
        if begin + RUN_MAX < seen {
            return Run::Seen { after: None, before: end.map(writer) };
        }
    }
    Run::Seen { after: (begin > 0).then(|| writer(begin)), before: end.map(writer) }
}

/// Places that are looked at for the beginning of a run, at most.
const RUN_MAX: usize = 64;
