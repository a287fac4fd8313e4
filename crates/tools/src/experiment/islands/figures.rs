//! The table of the experiments of islands and of virtual domains: which figures each one is of, its axes, its series and its points.
//!
//! Owns: the designs that are compared, and the command that measures each point. Never: measures.

mod domains;

use atrapos_cli::args::{DurabilityArg, EngineArg};
use atrapos_cli::json::engine_name;
use atrapos_instances::ChannelKind;
use atrapos_instances::plan::Placement;
use atrapos_workloads::micro::Kind;

use super::hardware::Sharing;
use crate::args::islands::{
    BreakdownArgs, ChannelsArgs, DesignArg, DesignsArgs, IslandsCommand, MicroArgs, MixesArgs, MultisiteArgs,
    PlacementArgs, RowsArgs, RunsArgs, SkewArgs, StandardArg, StandardArgs, WorkersArgs,
};
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

impl Position {
    fn number(at: f64) -> Position {
        Position { at, label: axis(&at) }
    }

    fn percent(share: f64) -> Position {
        Position::number(100.0 * share)
    }
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
    /// Operations on a structure, which are no transactions.
    Operations,
    /// Time of an operation for the client that delegates it.
    Delegation,
}

impl Quantity {
    /// The key in results, which ends with the unit.
    pub(super) fn key(self) -> &'static str {
        match self {
            Quantity::Throughput | Quantity::Operations => "throughput_tps",
            Quantity::Time => "time_us",
            Quantity::Messages => "messages_per_s",
            Quantity::Increments => "increments_per_s",
            Quantity::Instructions => "instructions",
            Quantity::Delegation => "ns_per_operation",
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
            Quantity::Operations => "operations/s",
            Quantity::Delegation => "ns of a client per operation",
        }
    }

    /// The thing of which readings are counted.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Quantity::Operations | Quantity::Delegation => "operation",
            _ => "transaction",
        }
    }
}

/// A design of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Design {
    /// One process.
    Database(EngineArg),
    Instances {
        engine: EngineArg,
        /// One for each worker, however many there are, if there is no number.
        number: Option<usize>,
        channel: ChannelKind,
        placement: Placement,
    },
}

impl Design {
    fn name(self) -> String {
        let (engine, number, channel) = match self {
            Design::Database(EngineArg::Atrapos) => return "1 database".to_owned(),
            Design::Database(engine) => return engine_name(engine).to_owned(),
            Design::Instances { engine, number, channel, .. } => (engine, number, channel),
        };
        let of = match engine {
            EngineArg::Atrapos => String::new(),
            engine => format!(" of {}", engine_name(engine)),
        };
        match number {
            Some(1) => format!("1 instance{of}, {channel}"),
            Some(number) => format!("{number} instances{of}, {channel}"),
            None => format!("instance{of} per worker, {channel}"),
        }
    }

    /// The options of `bench` that choose it. Clients are at their data in all of them.
    fn options(self, workers: usize) -> Vec<String> {
        let (Design::Database(engine) | Design::Instances { engine, .. }) = self;
        let mut all = match engine {
            EngineArg::Atrapos => Vec::new(),
            engine => words(&["--engine", engine_name(engine)]),
        };
        all.extend(match self {
            Design::Database(engine) if engine.shares_data() => Vec::new(),
            Design::Database(_) => words(&["--routing", "owner", "--static"]),
            Design::Instances { number, channel, placement, .. } => {
                let (number, channel) = (number.unwrap_or(workers).to_string(), channel.name());
                words(&["--instances", &number, "--channel", channel, "--placement", placement.name()])
            }
        });
        all
    }
}

fn durability_name(durability: DurabilityArg) -> &'static str {
    match durability {
        DurabilityArg::None => "none",
        DurabilityArg::Relaxed => "relaxed",
        DurabilityArg::Synchronous => "synchronous",
    }
}

/// Returns the designs that were chosen, each once, with instances in these numbers.
fn designs(args: &DesignsArgs, numbers: &[Option<usize>]) -> Vec<Design> {
    let placement = Placement::Islands;
    let instances = |engine| -> Vec<Design> {
        let channels = |number| args.runs.channel.0.iter().map(move |channel| (number, *channel));
        let layouts = numbers.iter().copied().flat_map(channels);
        layouts.map(|(number, channel)| Design::Instances { engine, number, channel, placement }).collect()
    };
    let chosen = |design: &DesignArg| match design {
        DesignArg::Database => vec![Design::Database(EngineArg::Atrapos)],
        DesignArg::Shared2pl => vec![Design::Database(EngineArg::Shared2pl)],
        DesignArg::SharedOcc => vec![Design::Database(EngineArg::SharedOcc)],
        DesignArg::Plp => vec![Design::Database(EngineArg::Plp)],
        DesignArg::Instances => instances(EngineArg::Atrapos),
        DesignArg::InstancesShared2pl => instances(EngineArg::Shared2pl),
        DesignArg::InstancesSharedOcc => instances(EngineArg::SharedOcc),
    };
    let mut all = Vec::new();
    for design in args.designs.iter().flat_map(chosen) {
        if !all.contains(&design) {
            all.push(design);
        }
    }
    all
}

/// Returns the numbers of instances, from `least` on, that divide the workers.
fn dividing(least: usize, workers: usize) -> Vec<Option<usize>> {
    (least..=workers).filter(|number| workers.is_multiple_of(*number)).map(Some).collect()
}

/// Returns the arguments of a benchmark.
fn arguments(runs: &RunsArgs, design: Design, workers: usize, options: &[String]) -> Vec<String> {
    let RunsArgs { durability, warmup, common, .. } = runs;
    let mut all = words(&["bench"]);
    all.extend_from_slice(options);
    all.extend(words(&["--durability", durability_name(*durability), "--workers", &workers.to_string()]));
    all.push(option("--seconds", common.seconds));
    all.push(option("--warmup", *warmup));
    all.extend(words(&["--seed", &common.result.seed.to_string()]));
    all.extend(common.no_pin.then(|| "--no-pin".to_owned()));
    all.extend(design.options(workers));
    all
}

/// The part of a figure that no option changes.
struct Head {
    name: &'static str,
    after: &'static str,
    x: &'static str,
    y: Quantity,
}

/// Returns the entry of an experiment in the table of figures.
fn head(command: &IslandsCommand) -> Head {
    let (name, after, x, y) = match command {
        IslandsCommand::Multisite(_) => (
            "islands-multisite",
            "Islands, Figures 11, 14, 25 and 28; ATraPos, Figure 3",
            "% multisite transactions",
            Quantity::Throughput,
        ),
        IslandsCommand::Rows(_) => {
            ("islands-rows", "Islands, Figures 17, 18 and 27", "rows per transaction", Quantity::Time)
        }
        IslandsCommand::Skew(_) => {
            ("islands-skew", "Islands, Figure 20", "exponent of Zipf's distribution", Quantity::Throughput)
        }
        IslandsCommand::Workers(_) => (
            "islands-workers",
            "Islands, Figure 19; ATraPos, Figures 1, 2 and 5",
            "workers",
            Quantity::Throughput,
        ),
        IslandsCommand::Standard(args) => {
            let x = match args.workload {
                StandardArg::Tpcb | StandardArg::Payment => "% remote transactions",
                StandardArg::NewOrder => "% remote order lines",
            };
            ("islands-standard", "Islands, Figures 8, 22, 23 and 24", x, Quantity::Throughput)
        }
        IslandsCommand::Mixes(_) => {
            ("islands-mixes", "ATraPos, Figure 8", "transactions", Quantity::Throughput)
        }
        IslandsCommand::Placement(_) => {
            ("islands-placement", "Islands, Figure 6", "placement", Quantity::Throughput)
        }
        IslandsCommand::Channels(_) => {
            ("islands-channels", "Islands, Figure 2", "channel", Quantity::Messages)
        }
        IslandsCommand::Counters(_) => {
            ("islands-counters", "Islands, Figures 5 and 7", "a counter for each", Quantity::Increments)
        }
        IslandsCommand::Breakdown(_) => (
            "islands-breakdown",
            "Islands, Figures 13, 15 and 26; ATraPos, Figure 4",
            "% multisite transactions",
            Quantity::Instructions,
        ),
        IslandsCommand::DomainsDesigns(_) => (
            "domains-designs",
            "Virtual domains, evaluation: all designs by structure and workload",
            "structure and workload",
            Quantity::Operations,
        ),
        IslandsCommand::DomainsBurst(_) => {
            ("domains-burst", "Virtual domains, bursts", "tasks of a burst", Quantity::Delegation)
        }
        IslandsCommand::DomainsStructures(_) => {
            ("domains-structures", "Virtual domains, Figure 11", "structures", Quantity::Operations)
        }
        IslandsCommand::DomainsTpcc(_) => (
            "domains-tpcc",
            "Virtual domains, Figure 13, right",
            "% remote transactions",
            Quantity::Throughput,
        ),
        IslandsCommand::DomainsTpccThreads(_) => {
            ("domains-tpcc-threads", "Virtual domains, Figure 13, left", "threads", Quantity::Throughput)
        }
    };
    Head { name, after, x, y }
}

/// Returns a figure in which every series has a point at every position, with so many threads.
fn grid<S, P>(
    head: Head,
    title: String,
    series: &[(String, S)],
    positions: &[(Position, P)],
    point: impl Fn(&S, &P) -> (usize, Measure),
) -> Figure {
    let Head { name, after, x, y } = head;
    let mut points = Vec::new();
    for (position, (_, at)) in positions.iter().enumerate() {
        for (series, (_, of)) in series.iter().enumerate() {
            let (workers, measure) = point(of, at);
            points.push(Point { series, position, workers, measure });
        }
    }
    let series = series.iter().map(|(name, _)| name.clone()).collect();
    let positions = positions.iter().map(|(position, _)| position.clone()).collect();
    Figure { name, after, title, x, y, series, positions, points }
}

/// The workers at a position, and the options of the workload there.
struct Step {
    workers: usize,
    options: Vec<String>,
}

/// Returns a figure that compares designs.
fn compared(
    head: Head,
    title: String,
    runs: &RunsArgs,
    designs: &[Design],
    steps: impl Iterator<Item = (Position, Step)>,
) -> Figure {
    let series: Vec<(String, Design)> = designs.iter().map(|design| (design.name(), *design)).collect();
    let steps: Vec<(Position, Step)> = steps.collect();
    let measure = if head.y == Quantity::Instructions { Measure::Callgrind } else { Measure::Bench };
    grid(head, title, &series, &steps, |design, Step { workers, options }| {
        (*workers, measure(arguments(runs, *design, *workers, options)))
    })
}

/// Returns a figure that compares the chosen designs by the options of the workload.
fn by_options(
    head: Head,
    title: String,
    args: &DesignsArgs,
    workers: usize,
    options: impl Iterator<Item = (Position, Vec<String>)>,
) -> Figure {
    let designs = designs(args, &dividing(2, workers));
    let steps = options.map(|(position, options)| (position, Step { workers, options }));
    compared(head, title, &args.runs, &designs, steps)
}

/// Returns the figure that a command asks for, for a number of workers.
pub(super) fn figure(command: &IslandsCommand, workers: usize) -> Figure {
    let head = head(command);
    match command {
        IslandsCommand::Multisite(MultisiteArgs { rows, at, micro })
        | IslandsCommand::Breakdown(BreakdownArgs { rows, at, micro }) => {
            multisite(head, *rows, at, micro, workers)
        }
        IslandsCommand::Rows(args) => rows(head, args, workers),
        IslandsCommand::Skew(args) => skew(head, args, workers),
        IslandsCommand::Workers(args) => by_workers(head, args, workers),
        IslandsCommand::Standard(args) => standard(head, args, workers),
        IslandsCommand::Mixes(args) => mixes(head, args, workers),
        IslandsCommand::Placement(args) => placement(head, args, workers),
        IslandsCommand::Channels(args) => channels(head, args),
        IslandsCommand::Counters(_) => counters(head, workers),
        IslandsCommand::DomainsDesigns(args) => domains::designs(head, args, workers),
        IslandsCommand::DomainsBurst(args) => domains::bursts(head, args, workers),
        IslandsCommand::DomainsStructures(args) => domains::structures(head, args, workers),
        IslandsCommand::DomainsTpcc(args) => domains::tpcc(head, args, workers),
        IslandsCommand::DomainsTpccThreads(args) => domains::tpcc_by_threads(head, args, workers),
    }
}

/// Returns the options of the microbenchmark.
fn micro(args: &MicroArgs, rows: u64, multisite: f64) -> Vec<String> {
    let (rows, per_site, multisite) =
        (rows.to_string(), args.rows_per_site.to_string(), option("--multisite", multisite));
    let kind = args.kind.name();
    words(&["micro", "--kind", kind, "--rows", &rows, "--rows-per-site", &per_site, &multisite])
}

/// Returns the title of a figure of the microbenchmark.
fn micro_title(args: &MicroArgs, rows: Option<u64>, multisite: Option<f64>) -> String {
    let verb = match args.kind {
        Kind::Read => "reads",
        Kind::Update => "updates",
    };
    let rows = rows.map_or_else(String::new, |rows| format!(" of {rows} rows"));
    let share =
        multisite.map_or_else(String::new, |share| format!(", {}% multisite", axis(&(100.0 * share))));
    format!("{verb}{rows}{share}")
}

fn multisite(head: Head, rows: u64, at: &[f64], args: &MicroArgs, workers: usize) -> Figure {
    let options = at.iter().map(|share| (Position::percent(*share), micro(args, rows, *share)));
    by_options(head, micro_title(args, Some(rows), None), &args.designs, workers, options)
}

fn rows(head: Head, args: &RowsArgs, workers: usize) -> Figure {
    let RowsArgs { multisite, at, micro: of } = args;
    let options = at.iter().map(|rows| (Position::number(*rows as f64), micro(of, *rows, *multisite)));
    by_options(head, micro_title(of, None, Some(*multisite)), &of.designs, workers, options)
}

fn skew(head: Head, args: &SkewArgs, workers: usize) -> Figure {
    let SkewArgs { rows, multisite, at, micro: of } = args;
    let options = at.iter().map(|zipf| {
        let mut options = micro(of, *rows, *multisite);
        options.push(option("--zipf", *zipf));
        (Position::number(*zipf), options)
    });
    by_options(head, micro_title(of, Some(*rows), Some(*multisite)), &of.designs, workers, options)
}

fn by_workers(head: Head, args: &WorkersArgs, most: usize) -> Figure {
    let WorkersArgs { rows, multisite, micro: of } = args;
    // Doubled from one on, and the most there are to be.
    let doubled = std::iter::successors(Some(1), |workers: &usize| workers.checked_mul(2));
    let numbers = doubled.take_while(|workers| *workers < most).chain([most]);
    let steps = numbers.map(|workers| {
        (Position::number(workers as f64), Step { workers, options: micro(of, *rows, *multisite) })
    });
    let designs = designs(&of.designs, &[None]);
    compared(head, micro_title(of, Some(*rows), Some(*multisite)), &of.designs.runs, &designs, steps)
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

fn standard(head: Head, args: &StandardArgs, workers: usize) -> Figure {
    let StandardArgs { workload, scale, at, designs } = args;
    let (name, usual) = match workload {
        StandardArg::Tpcb => ("TPC-B", 0.15),
        StandardArg::Payment => ("Payment", 0.15),
        StandardArg::NewOrder => ("New-Order", 0.01),
    };
    let scale = scale.unwrap_or(workers as u64);
    let shares = if at.is_empty() { &[0.0, usual, 0.25, 0.5, 0.75, 1.0] } else { at.as_slice() };
    let options =
        shares.iter().map(|share| (Position::percent(*share), standard_options(*workload, scale, *share)));
    by_options(head, format!("{name}, scale {scale}"), designs, workers, options)
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

fn mixes(head: Head, args: &MixesArgs, workers: usize) -> Figure {
    let MixesArgs { subscribers, scale, designs } = args;
    let scale = scale.unwrap_or(workers as u64);
    let title = format!("TATP with {subscribers} subscribers, TPC-C with {scale} warehouses");
    let size = |workload: &str| match workload {
        "tatp" => words(&["--subscribers", &subscribers.to_string()]),
        _ => words(&["--warehouses", &scale.to_string()]),
    };
    let options = named(MIXES, |(workload, mix)| format!("{workload} {mix}")).into_iter();
    let options = options.map(|(position, (workload, mix))| {
        (position, [words(&[workload, "--mix", mix]), size(workload)].concat())
    });
    by_options(head, title, designs, workers, options)
}

fn placement(head: Head, args: &PlacementArgs, workers: usize) -> Figure {
    let PlacementArgs { scale, remote, runs } = args;
    let scale = scale.unwrap_or(workers as u64);
    let title = format!("Payment, {}% remote, scale {scale}", axis(&(100.0 * remote)));
    let options = standard_options(StandardArg::Payment, scale, *remote);
    let of = |number, channel, placement| Design::Instances {
        engine: EngineArg::Atrapos,
        number,
        channel,
        placement,
    };
    let channels = |number| runs.channel.0.iter().map(move |channel| (number, *channel));
    let layouts = dividing(1, workers).into_iter().flat_map(channels);
    let series: Vec<_> = layouts
        .map(|(number, channel)| (of(number, channel, Placement::Islands).name(), (number, channel)))
        .collect();
    let placements = named(Placement::ALL, Placement::name);
    grid(head, title, &series, &placements, |(number, channel), placement| {
        let design = of(*number, *channel, *placement);
        (workers, Measure::Bench(arguments(runs, design, workers, &options)))
    })
}

fn channels(head: Head, args: &ChannelsArgs) -> Figure {
    let title = "messages of 256 bytes from one thread to another".to_owned();
    let batches: Vec<_> = args.batch.iter().map(|batch| (format!("{batch} per flush"), *batch)).collect();
    let kinds = named(ChannelKind::all().iter().copied(), ChannelKind::name);
    grid(head, title, &batches, &kinds, |&batch, &kind| (2, Measure::Messages { kind, batch }))
}

fn counters(head: Head, workers: usize) -> Figure {
    let title = format!("increments of counters by {workers} threads");
    let locks = [("atomic".to_owned(), false), ("locked".to_owned(), true)];
    let sharing = named(Sharing::ALL, |sharing| sharing.scope.name());
    grid(head, title, &locks, &sharing, |&locked, &sharing| {
        (workers, Measure::Increments(Sharing { locked, ..sharing }))
    })
}

/// Returns positions that have names in the place of numbers.
fn named<T: Copy, N: Into<String>>(
    all: impl IntoIterator<Item = T>,
    name: impl Fn(T) -> N,
) -> Vec<(Position, T)> {
    let position = |(at, one)| (Position { at: at as f64, label: name(one).into() }, one);
    all.into_iter().enumerate().map(position).collect()
}

/// Returns an option in one word: its value may be negative, and is refused as a value then.
fn option(name: &str, value: f64) -> String {
    format!("{name}={value}")
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
