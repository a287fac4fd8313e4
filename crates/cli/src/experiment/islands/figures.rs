//! The table of the experiments of islands: which figures each one is of, its axes, its series and its points.
//!
//! Owns: the designs that are compared, and the command that measures each point. Never: measures.

use atrapos_instances::ChannelKind;
use atrapos_instances::plan::Placement;
use atrapos_workloads::micro::Kind;

use super::args::{
    BreakdownArgs, ChannelsArgs, DesignArg, DesignsArgs, IslandsArgs, IslandsCommand, MicroArgs, MixesArgs,
    MultisiteArgs, PlacementArgs, RowsArgs, SkewArgs, StandardArg, StandardArgs, WorkersArgs,
};
use super::hardware::Sharing;
use crate::args::DurabilityArg;
use crate::experiment::plot::axis;

/// An experiment.
#[derive(Debug)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    /// The figures that it is of.
    pub(super) after: &'static str,
    pub(super) title: String,
    pub(super) x: &'static str,
    pub(super) y: Quantity,
    pub(super) series: Vec<String>,
    pub(super) positions: Vec<Position>,
    pub(super) points: Vec<Point>,
}

/// A place on the axis of a figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Position {
    pub(super) at: f64,
    pub(super) label: String,
}

/// A point of a figure, and how it is measured.
#[derive(Debug)]
pub(super) struct Point {
    /// The index of its series.
    pub(super) series: usize,
    /// The index of its position.
    pub(super) position: usize,
    /// The threads that work at the same time.
    pub(super) workers: usize,
    pub(super) measure: Measure,
}

#[derive(Debug)]
pub(super) enum Measure {
    /// A run of this program, with these arguments.
    Bench(Vec<String>),
    /// Two runs of this program under callgrind, with these arguments.
    Callgrind(Vec<String>),
    /// Messages from one thread to another one.
    Messages { kind: ChannelKind, batch: usize },
    /// Increments of counters.
    Increments(Sharing),
}

/// The quantity that is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    Throughput,
    Time,
    Messages,
    Increments,
    Instructions,
}

impl Quantity {
    /// The key in results, which ends with the unit.
    pub(super) fn key(self) -> &'static str {
        match self {
            Quantity::Throughput => "throughput_tps",
            Quantity::Time => "time_us",
            Quantity::Messages => "messages_per_s",
            Quantity::Increments => "increments_per_s",
            Quantity::Instructions => "instructions",
        }
    }

    /// The label of the axis.
    pub(super) fn label(self) -> &'static str {
        match self {
            Quantity::Throughput => "transactions/s",
            Quantity::Time => "microseconds of a worker per transaction",
            Quantity::Messages => "messages/s",
            Quantity::Increments => "increments/s",
            Quantity::Instructions => "instructions per transaction",
        }
    }
}

/// A design of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Design {
    Database,
    Instances {
        number: usize,
        channel: ChannelKind,
        placement: Placement,
    },
    /// An instance for each worker, however many there are.
    InstancePerWorker(ChannelKind),
    Shared2pl,
    SharedOcc,
    Plp,
}

impl Design {
    fn name(self) -> String {
        match self {
            Design::Database => "1 database".to_owned(),
            Design::Instances { number: 1, channel, .. } => format!("1 instance, {channel}"),
            Design::Instances { number, channel, .. } => format!("{number} instances, {channel}"),
            Design::InstancePerWorker(channel) => format!("instance per worker, {channel}"),
            Design::Shared2pl => "shared-2pl".to_owned(),
            Design::SharedOcc => "shared-occ".to_owned(),
            Design::Plp => "plp".to_owned(),
        }
    }

    /// The options of `bench` that choose it. Clients are at their data in all of them.
    fn options(self, workers: usize) -> Vec<String> {
        let engine = |name: &str| words(&["--engine", name]);
        match self {
            Design::Database => words(&["--routing", "owner", "--static"]),
            Design::Plp => words(&["--engine", "plp", "--routing", "owner", "--static"]),
            Design::Shared2pl => engine("shared-2pl"),
            Design::SharedOcc => engine("shared-occ"),
            Design::InstancePerWorker(channel) => {
                words(&["--instances", &workers.to_string(), "--channel", channel.name()])
            }
            Design::Instances { number, channel, placement } => {
                let (number, channel) = (number.to_string(), channel.name());
                words(&["--instances", &number, "--channel", channel, "--placement", placement.name()])
            }
        }
    }
}

fn durability_name(durability: DurabilityArg) -> &'static str {
    match durability {
        DurabilityArg::None => "none",
        DurabilityArg::Relaxed => "relaxed",
        DurabilityArg::Synchronous => "synchronous",
    }
}

/// Returns the designs that were chosen, for a number of workers.
fn designs(args: &DesignsArgs, workers: usize) -> Vec<Design> {
    let several = (2..=workers).filter(|number| workers.is_multiple_of(*number));
    let with_channel = |number: usize| {
        let of = move |channel: &ChannelKind| {
            let (channel, placement) = (*channel, Placement::Islands);
            Design::Instances { number, channel, placement }
        };
        args.channel.0.iter().map(of)
    };
    let instances: Vec<Design> = several.flat_map(with_channel).collect();
    chosen(args, instances)
}

/// Returns the designs that were chosen, for numbers of workers that vary.
fn designs_for_any_workers(args: &DesignsArgs) -> Vec<Design> {
    chosen(args, args.channel.0.iter().copied().map(Design::InstancePerWorker).collect())
}

fn chosen(args: &DesignsArgs, instances: Vec<Design>) -> Vec<Design> {
    let one = |design: &DesignArg| match design {
        DesignArg::Database => vec![Design::Database],
        DesignArg::Instances => instances.clone(),
        DesignArg::Shared2pl => vec![Design::Shared2pl],
        DesignArg::SharedOcc => vec![Design::SharedOcc],
        DesignArg::Plp => vec![Design::Plp],
    };
    let mut all: Vec<Design> = args.designs.iter().flat_map(one).collect();
    let mut seen = Vec::new();
    all.retain(|design| {
        !seen.contains(design) && {
            seen.push(*design);
            true
        }
    });
    all
}

/// A place on the axis, and the options of the workload there.
struct Step {
    position: Position,
    workers: usize,
    options: Vec<String>,
}

impl Step {
    fn percent(share: f64, workers: usize, options: Vec<String>) -> Step {
        let at = 100.0 * share;
        Step { position: Position { at, label: number(at) }, workers, options }
    }

    fn number(at: f64, workers: usize, options: Vec<String>) -> Step {
        Step { position: Position { at, label: number(at) }, workers, options }
    }
}

/// What a figure says of itself.
struct Head {
    name: &'static str,
    after: &'static str,
    title: String,
    x: &'static str,
    y: Quantity,
}

/// What is the same at all points.
struct Runs<'a> {
    common: &'a IslandsArgs,
    warmup: f64,
    durability: DurabilityArg,
}

impl<'a> Runs<'a> {
    fn of(common: &'a IslandsArgs, chosen: &DesignsArgs) -> Runs<'a> {
        Runs { common, warmup: chosen.warmup, durability: chosen.durability }
    }

    fn arguments(&self, design: Design, workers: usize, options: &[String]) -> Vec<String> {
        let mut all = words(&["bench"]);
        all.extend_from_slice(options);
        let durability = durability_name(self.durability);
        all.extend(words(&["--durability", durability, "--workers", &workers.to_string()]));
        all.push(option("--seconds", self.common.seconds));
        all.push(option("--warmup", self.warmup));
        all.extend(words(&["--seed", &self.common.seed.to_string()]));
        all.extend(self.common.no_pin.then(|| "--no-pin".to_owned()));
        all.extend(design.options(workers));
        all
    }

    fn figure(&self, head: Head, designs: &[Design], steps: &[Step]) -> Figure {
        let Head { name, after, title, x, y } = head;
        let mut points = Vec::new();
        for (position, step) in steps.iter().enumerate() {
            for (series, design) in designs.iter().enumerate() {
                let arguments = self.arguments(*design, step.workers, &step.options);
                let measure = match y {
                    Quantity::Instructions => Measure::Callgrind(arguments),
                    _ => Measure::Bench(arguments),
                };
                points.push(Point { series, position, workers: step.workers, measure });
            }
        }
        let series = designs.iter().map(|design| design.name()).collect();
        let positions = steps.iter().map(|step| step.position.clone()).collect();
        Figure { name, after, title, x, y, series, positions, points }
    }
}

/// Returns the figure that a command asks for, for a number of workers.
pub(super) fn figure(command: &IslandsCommand, workers: usize) -> Figure {
    match command {
        IslandsCommand::Multisite(args) => multisite(args, workers),
        IslandsCommand::Rows(args) => rows(args, workers),
        IslandsCommand::Skew(args) => skew(args, workers),
        IslandsCommand::Workers(args) => by_workers(args, workers),
        IslandsCommand::Standard(args) => standard(args, workers),
        IslandsCommand::Mixes(args) => mixes(args, workers),
        IslandsCommand::Placement(args) => placement(args, workers),
        IslandsCommand::Channels(args) => channels(args),
        IslandsCommand::Counters(_) => counters(workers),
        IslandsCommand::Breakdown(args) => breakdown(args, workers),
    }
}

/// Returns the options of the microbenchmark.
fn micro(args: &MicroArgs, rows: u64, multisite: f64) -> Vec<String> {
    let (rows, per_site, multisite) =
        (rows.to_string(), args.rows_per_site.to_string(), option("--multisite", multisite));
    let kind = args.kind.name();
    words(&["micro", "--kind", kind, "--rows", &rows, "--rows-per-site", &per_site, &multisite])
}

fn verb(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "reads",
        Kind::Update => "updates",
    }
}

fn multisite(args: &MultisiteArgs, workers: usize) -> Figure {
    let MultisiteArgs { rows, at, micro: of, designs: chosen, common } = args;
    let head = Head {
        name: "islands-multisite",
        after: "Islands, Figures 11, 14, 25 and 28; ATraPos, Figure 3",
        title: format!("{} of {rows} rows", verb(of.kind)),
        x: "% multisite transactions",
        y: Quantity::Throughput,
    };
    let steps: Vec<Step> =
        at.iter().map(|share| Step::percent(*share, workers, micro(of, *rows, *share))).collect();
    Runs::of(common, chosen).figure(head, &designs(chosen, workers), &steps)
}

fn rows(args: &RowsArgs, workers: usize) -> Figure {
    let RowsArgs { multisite, at, micro: of, designs: chosen, common } = args;
    let head = Head {
        name: "islands-rows",
        after: "Islands, Figures 17, 18 and 27",
        title: format!("{}, {}% multisite", verb(of.kind), number(100.0 * multisite)),
        x: "rows per transaction",
        y: Quantity::Time,
    };
    let step = |rows: &u64| Step::number(*rows as f64, workers, micro(of, *rows, *multisite));
    let steps: Vec<Step> = at.iter().map(step).collect();
    Runs::of(common, chosen).figure(head, &designs(chosen, workers), &steps)
}

fn skew(args: &SkewArgs, workers: usize) -> Figure {
    let SkewArgs { rows, multisite, at, micro: of, designs: chosen, common } = args;
    let share = number(100.0 * multisite);
    let head = Head {
        name: "islands-skew",
        after: "Islands, Figure 20",
        title: format!("{} of {rows} rows, {share}% multisite", verb(of.kind)),
        x: "exponent of Zipf's distribution",
        y: Quantity::Throughput,
    };
    let step = |zipf: &f64| {
        let mut options = micro(of, *rows, *multisite);
        options.push(option("--zipf", *zipf));
        Step::number(*zipf, workers, options)
    };
    let steps: Vec<Step> = at.iter().map(step).collect();
    Runs::of(common, chosen).figure(head, &designs(chosen, workers), &steps)
}

fn by_workers(args: &WorkersArgs, most: usize) -> Figure {
    let WorkersArgs { rows, multisite, micro: of, designs: chosen, common } = args;
    let share = number(100.0 * multisite);
    let head = Head {
        name: "islands-workers",
        after: "Islands, Figure 19; ATraPos, Figures 1, 2 and 5",
        title: format!("{} of {rows} rows, {share}% multisite", verb(of.kind)),
        x: "workers",
        y: Quantity::Throughput,
    };
    // Doubled from one on, and the most there are to be.
    let doubled = std::iter::successors(Some(1), |workers: &usize| workers.checked_mul(2));
    let numbers = doubled.take_while(|workers| *workers < most).chain([most]);
    let step = |workers: usize| Step::number(workers as f64, workers, micro(of, *rows, *multisite));
    let steps: Vec<Step> = numbers.map(step).collect();
    Runs::of(common, chosen).figure(head, &designs_for_any_workers(chosen), &steps)
}

/// Returns the options of a standard workload with a share of remote work.
fn standard_options(workload: StandardArg, scale: u64, remote: f64) -> Vec<String> {
    let scale = scale.to_string();
    let tpcc = |mix: &str, share: &str| {
        words(&["tpcc", "--mix", mix, "--warehouses", &scale, &option(share, remote)])
    };
    match workload {
        StandardArg::Tpcb => words(&["tpcb", "--branches", &scale, &option("--remote", remote)]),
        StandardArg::Payment => tpcc("payment", "--remote-payment"),
        StandardArg::NewOrder => tpcc("new-order", "--remote-lines"),
    }
}

fn standard(args: &StandardArgs, workers: usize) -> Figure {
    let StandardArgs { workload, scale, at, designs: chosen, common } = args;
    let (title, usual, x) = match workload {
        StandardArg::Tpcb => ("TPC-B", 0.15, "% remote transactions"),
        StandardArg::Payment => ("Payment", 0.15, "% remote transactions"),
        StandardArg::NewOrder => ("New-Order", 0.01, "% remote order lines"),
    };
    let scale = scale.unwrap_or(workers as u64);
    let head = Head {
        name: "islands-standard",
        after: "Islands, Figures 8, 22, 23 and 24",
        title: format!("{title}, scale {scale}"),
        x,
        y: Quantity::Throughput,
    };
    let shares = if at.is_empty() { vec![0.0, usual, 0.25, 0.5, 0.75, 1.0] } else { at.clone() };
    let step = |share: &f64| Step::percent(*share, workers, standard_options(*workload, scale, *share));
    let steps: Vec<Step> = shares.iter().map(step).collect();
    Runs::of(common, chosen).figure(head, &designs(chosen, workers), &steps)
}

/// The transactions of Figure 8 of ATraPos, by workload.
const MIXES: [(&str, &str); 7] = [
    ("tatp", "get-subscriber-data"),
    ("tatp", "get-new-destination"),
    ("tatp", "update-subscriber-data"),
    ("tatp", "standard"),
    ("tpcc", "stock-level"),
    ("tpcc", "order-status"),
    ("tpcc", "standard"),
];

fn mixes(args: &MixesArgs, workers: usize) -> Figure {
    let MixesArgs { subscribers, scale, designs: chosen, common } = args;
    let scale = scale.unwrap_or(workers as u64);
    let head = Head {
        name: "islands-mixes",
        after: "ATraPos, Figure 8",
        title: format!("TATP with {subscribers} subscribers, TPC-C with {scale} warehouses"),
        x: "transactions",
        y: Quantity::Throughput,
    };
    let step = |(at, (workload, mix)): (usize, &(&str, &str))| {
        let size = if *workload == "tatp" {
            words(&["--subscribers", &subscribers.to_string()])
        } else {
            words(&["--warehouses", &scale.to_string()])
        };
        let options = [words(&[workload, "--mix", mix]), size].concat();
        Step { position: Position { at: at as f64, label: format!("{workload} {mix}") }, workers, options }
    };
    let steps: Vec<Step> = MIXES.iter().enumerate().map(step).collect();
    Runs::of(common, chosen).figure(head, &designs(chosen, workers), &steps)
}

fn placement(args: &PlacementArgs, workers: usize) -> Figure {
    let PlacementArgs { scale, remote, channel, warmup, common } = args;
    let scale = scale.unwrap_or(workers as u64);
    let runs = Runs { common, warmup: *warmup, durability: DurabilityArg::None };
    let options = standard_options(StandardArg::Payment, scale, *remote);
    let numbers = (1..=workers).filter(|number| workers.is_multiple_of(*number));
    let series: Vec<(usize, ChannelKind)> =
        numbers.flat_map(|number| channel.0.iter().map(move |channel| (number, *channel))).collect();
    let of = |(number, channel), placement| Design::Instances { number, channel, placement };
    let mut points = Vec::new();
    for (position, placement) in Placement::ALL.into_iter().enumerate() {
        for (index, one) in series.iter().enumerate() {
            let arguments = runs.arguments(of(*one, placement), workers, &options);
            points.push(Point { series: index, position, workers, measure: Measure::Bench(arguments) });
        }
    }
    Figure {
        name: "islands-placement",
        after: "Islands, Figure 6",
        title: format!("Payment, {}% remote, scale {scale}", number(100.0 * remote)),
        x: "placement",
        y: Quantity::Throughput,
        series: series.iter().map(|one| of(*one, Placement::Islands).name()).collect(),
        positions: named(Placement::ALL.into_iter().map(Placement::name)),
        points,
    }
}

fn channels(args: &ChannelsArgs) -> Figure {
    let mut points = Vec::new();
    for (position, &kind) in ChannelKind::all().iter().enumerate() {
        for (series, &batch) in args.batch.iter().enumerate() {
            points.push(Point { series, position, workers: 2, measure: Measure::Messages { kind, batch } });
        }
    }
    Figure {
        name: "islands-channels",
        after: "Islands, Figure 2",
        title: "messages of 256 bytes from one thread to another".to_owned(),
        x: "channel",
        y: Quantity::Messages,
        series: args.batch.iter().map(|batch| format!("{batch} per flush")).collect(),
        positions: named(ChannelKind::all().iter().map(|kind| kind.name())),
        points,
    }
}

fn counters(workers: usize) -> Figure {
    let mut points = Vec::new();
    for (position, sharing) in Sharing::ALL.into_iter().enumerate() {
        for (series, locked) in [false, true].into_iter().enumerate() {
            let measure = Measure::Increments(Sharing { locked, ..sharing });
            points.push(Point { series, position, workers, measure });
        }
    }
    Figure {
        name: "islands-counters",
        after: "Islands, Figures 5 and 7",
        title: format!("increments of counters by {workers} threads"),
        x: "a counter for each",
        y: Quantity::Increments,
        series: ["atomic", "locked"].map(str::to_owned).to_vec(),
        positions: named(Sharing::ALL.into_iter().map(|sharing| sharing.scope.name())),
        points,
    }
}

fn breakdown(args: &BreakdownArgs, workers: usize) -> Figure {
    let BreakdownArgs { rows, at, micro: of, designs: chosen, common } = args;
    let head = Head {
        name: "islands-breakdown",
        after: "Islands, Figures 13, 15 and 26; ATraPos, Figure 4",
        title: format!("{} of {rows} rows", verb(of.kind)),
        x: "% multisite transactions",
        y: Quantity::Instructions,
    };
    let steps: Vec<Step> =
        at.iter().map(|share| Step::percent(*share, workers, micro(of, *rows, *share))).collect();
    Runs::of(common, chosen).figure(head, &designs(chosen, workers), &steps)
}

/// Returns positions that have names instead of numbers.
fn named(names: impl Iterator<Item = &'static str>) -> Vec<Position> {
    names.enumerate().map(|(at, name)| Position { at: at as f64, label: name.to_owned() }).collect()
}

/// Returns an option in one word: its value may be negative, and is refused as a value then.
fn option(name: &str, value: f64) -> String {
    format!("{name}={value}")
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Returns a number without idle digits.
fn number(number: f64) -> String {
    axis(&number)
}
