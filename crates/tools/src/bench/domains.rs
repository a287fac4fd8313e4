//! `atrapos bench domains`: a data structure under a load, used directly or by virtual domains.
//!
//! Owns: what is compared with what, and the order of the steps. Never: measures (the library does), or formats (the modules below do).
//!
//! Every comparison is of *sides*, whose rounds alternate. One of them is the *main* one, whose throughput is the result.

pub(crate) mod json;
mod text;

use atrapos_cli::error::CliError;
use atrapos_cli::progress::RunBar;
use atrapos_cli::{config, interrupt, machine, output, table};
use atrapos_composition::{RELIABLE_VARIATION_MAX, variation};
use atrapos_domain_loads::{
    Access, Arrangement, Choice, Design, Length, Load, LoadError, Measurement, Run, Step, Threads, choose,
    run_alternating,
};
use atrapos_topology::Machine;
use serde_json::Value;

use crate::args::DomainsBenchArgs;
use crate::experiment::repeated;

/// Sizes of bursts that are compared.
const BURSTS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Rounds of each arrangement by which the design configured chooses, at most.
const CHOICE_ROUNDS: usize = 3;

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    /// A design, and direct use by its clients if it delegates and is not measured alone.
    Design(Design),
    /// All designs.
    Designs,
    /// Sizes of bursts with direct use by the same clients.
    Bursts(Design),
    /// A design with direct use by all threads, and with what its workers could do at most.
    Bound(Design),
}

/// The settings of a measurement, checked as far as they can be before it begins.
#[derive(Debug)]
struct Settings {
    comparison: Comparison,
    load: Load,
    threads: Threads,
    rounds: usize,
    /// Set if a design is not compared with direct use.
    alone: bool,
    machine: Machine,
}

/// One of several loads that are compared.
#[derive(Clone, Debug)]
struct Side {
    name: String,
    load: Load,
    arrangement: Arrangement,
}

/// A side and its rounds.
#[derive(Debug)]
struct Measured {
    name: String,
    run: Run,
}

/// The most that a design with delegation can do, in operations per second, beside what it does.
#[derive(Clone, Copy, Debug)]
struct Bound {
    /// Of all workers, if each made operations together that came to it for nothing.
    workers: f64,
    /// Of all clients, if each drew operations and sent them for nothing.
    clients: f64,
    /// Of direct use by as many threads as clients and workers.
    direct: f64,
    /// Of the design.
    design: f64,
}

impl Bound {
    fn most(self) -> f64 {
        self.workers.min(self.clients)
    }
}

/// Designs that are left out, with the reasons.
type LeftOut = Vec<(Design, String)>;

/// The result.
#[derive(Debug)]
struct Report {
    comparison: Comparison,
    config: Value,
    machine: Value,
    sides: Vec<Measured>,
    /// The arrangements among which the design configured has chosen, if it has.
    choice: Option<Choice>,
    left_out: LeftOut,
}

impl Report {
    /// The side whose throughput is the result: the design that was asked for, or the best one.
    fn main(&self) -> &Measured {
        match self.comparison {
            Comparison::Design(_) | Comparison::Bound(_) => &self.sides[0],
            Comparison::Designs | Comparison::Bursts(_) => self.best(),
        }
    }

    /// The bound of the design, where it was measured.
    fn bound(&self) -> Option<Bound> {
        let (Comparison::Bound(_), [design, direct, together]) = (self.comparison, &self.sides[..]) else {
            return None;
        };
        let (arrangement, middle) = (&design.run.arrangement, together.run.middle());
        let drawn = middle.operations() as f64 / middle.drawing.as_secs_f64().max(1e-9);
        Some(Bound {
            workers: arrangement.workers() as f64 * together.run.throughput_per_second(),
            clients: arrangement.clients().len() as f64 * drawn,
            direct: direct.run.throughput_per_second(),
            design: design.run.throughput_per_second(),
        })
    }

    fn best(&self) -> &Measured {
        let throughput = |side: &&Measured| side.run.throughput_per_second();
        let best = self.sides.iter().max_by(|a, b| throughput(a).total_cmp(&throughput(b)));
        best.unwrap_or_else(|| unreachable!("a comparison has sides"))
    }

    /// Direct use by the clients, where it is compared with delegation.
    fn direct(&self) -> Option<&Measured> {
        let compared = matches!(self.comparison, Comparison::Design(_) | Comparison::Bursts(_));
        let direct = self.sides.iter().find(|side| side.run.arrangement.access() == Access::Direct);
        direct.filter(|_| compared && self.sides.len() > 1)
    }
}

/// Returns the failure of a load.
pub(crate) fn refused(error: LoadError) -> CliError {
    if error.is_bad_input() { CliError::bad_input(error) } else { CliError::failed(error) }
}

impl Settings {
    fn of(args: &DomainsBenchArgs) -> Result<Settings, CliError> {
        let kind = args.structure.parse().map_err(CliError::bad_input)?;
        let mix = args.workload.parse().map_err(CliError::bad_input)?;
        let design = args.design.parse().map_err(CliError::bad_input)?;
        let length = match args.operations {
            Some(operations) => Length::Operations(operations),
            None => Length::Time(config::duration("--seconds", args.common.seconds, false)?),
        };
        let machine = machine::read(&args.common.topology)?;
        let load = Load {
            records: args.records,
            theta: args.theta,
            length,
            burst: args.delegation.burst,
            grouped: !args.ungrouped,
            seed: args.common.seed,
            ..Load::new(kind, mix)
        };
        let threads = Threads {
            clients: args.delegation.clients,
            workers: args.delegation.workers,
            domain_size: args.domain_size,
            pin: !args.common.no_pin && machine::may_pin(&machine),
        };
        let comparison = match (args.all_designs, args.burst_ladder, args.bound) {
            (true, ..) => Comparison::Designs,
            (_, true, _) => Comparison::Bursts(design),
            (.., true) => Comparison::Bound(design),
            _ => Comparison::Design(design),
        };
        let is_cost = matches!(comparison, Comparison::Design(_) | Comparison::Bursts(_)) && !args.alone;
        let load = Load { clocked: is_cost, ..load };
        load.check().map_err(refused)?;
        let rounds = repeated("--rounds", args.rounds)? as usize;
        Ok(Settings { comparison, load, threads, rounds, alone: args.alone, machine })
    }

    /// Refuses records for which so many structures have no room in memory.
    fn check_memory(&self, structures: usize) -> Result<(), CliError> {
        let available = machine::available_memory_bytes().unwrap_or(u64::MAX);
        self.load.check_memory(structures, available).map_err(refused)
    }

    fn side(&self, name: impl Into<String>, arrangement: Arrangement) -> Side {
        Side { name: name.into(), load: self.load.clone(), arrangement }
    }

    /// The arrangement of a design whose domains have a known size, if the structure can be used so.
    fn arrangement(&self, design: Design) -> Result<Arrangement, LoadError> {
        let domain_size = self.threads.domain_size.filter(|_| design == Design::Configured);
        let refused = self.threads.domain_size.is_some()
            && design != Design::Configured
            && !matches!(self.comparison, Comparison::Designs | Comparison::Bound(_));
        if refused {
            return Err(LoadError::SizeIsGiven(design));
        }
        let arrangement = Arrangement::new(&self.machine, design, &Threads { domain_size, ..self.threads })?;
        arrangement.check(self.load.kind)?;
        Ok(arrangement)
    }

    /// The arrangement of a design, for which the design configured may have to measure.
    fn arranged(&self, design: Design, choice: &mut Option<Choice>) -> Result<Arrangement, CliError> {
        if design != Design::Configured || self.threads.domain_size.is_some() {
            return self.arrangement(design).map_err(refused);
        }
        let candidates = Arrangement::candidates(&self.machine, self.load.kind, &self.threads);
        let rounds = self.rounds.min(CHOICE_ROUNDS);
        let candidates = candidates.map_err(refused)?.len();
        self.check_memory(candidates)?;
        let chosen = watched("choosing", candidates, rounds, |measurement| {
            choose(&self.machine, &self.load, &self.threads, measurement)
        })?;
        Ok(choice.insert(chosen).arrangement.clone())
    }

    /// Direct use by the clients of an arrangement, if the structure lets as many threads use it.
    fn direct(&self, arrangement: &Arrangement) -> Option<Side> {
        let direct = arrangement.direct_by_clients();
        direct.check(self.load.kind).is_ok().then(|| self.side("direct", direct))
    }

    /// A design, and direct use if its delegation is compared with that.
    fn delegation(&self, design: Design, choice: &mut Option<Choice>) -> Result<Vec<Side>, CliError> {
        let arrangement = self.arranged(design, choice)?;
        let is_compared = arrangement.access() == Access::Delegated && !self.alone;
        let direct = self.direct(&arrangement).filter(|_| is_compared);
        Ok([self.side(design.name(), arrangement)].into_iter().chain(direct).collect())
    }

    /// A design that delegates, direct use by all threads, and one thread that makes operations together.
    fn bounded(&self, design: Design) -> Result<Vec<Side>, CliError> {
        let arrangement = self.arrangement(design).map_err(refused)?;
        let direct = self.arrangement(Design::Se).map_err(refused)?;
        if arrangement.access() == Access::Direct {
            return Err(CliError::bad_input(format!(
                "--bound: {design} delegates nothing, so messages do not bound it; use sn-numa, sn-thread or configured with --domain-size"
            )));
        }
        let together = Arrangement::together(&self.machine, self.threads.pin);
        Ok(vec![
            self.side(design.name(), arrangement),
            self.side(Design::Se.name(), direct),
            self.side("together", together),
        ])
    }

    /// Every size of bursts.
    fn bursts(&self, design: Design) -> Result<Vec<Side>, CliError> {
        let arrangement = self.arrangement(design).map_err(refused)?;
        if arrangement.access() == Access::Direct {
            return Err(CliError::bad_input(format!(
                "--burst-ladder: {design} delegates nothing, so it has no bursts; use sn-numa, sn-thread or configured"
            )));
        }
        let of_size = |burst| {
            let side = self.side(format!("burst of {burst}"), arrangement.clone());
            Side { load: Load { burst, ..self.load.clone() }, ..side }
        };
        Ok(self.direct(&arrangement).into_iter().chain(BURSTS.map(of_size)).collect())
    }

    /// Every design that the structure and the machine have, and those that they have not.
    fn designs(&self, choice: &mut Option<Choice>) -> Result<(Vec<Side>, LeftOut), CliError> {
        let (mut sides, mut left_out) = (Vec::new(), Vec::new());
        for design in Design::ALL {
            let possible = match design {
                Design::Configured => Ok(self.arranged(design, choice)?),
                _ => self.arrangement(design),
            };
            match possible {
                Ok(arrangement) => sides.push(self.side(design.name(), arrangement)),
                Err(error @ (LoadError::Owned { .. } | LoadError::FewerWorkersThanNodes { .. })) => {
                    left_out.push((design, error.to_string()));
                }
                Err(error) => return Err(refused(error)),
            }
        }
        Ok((sides, left_out))
    }

    /// All sides, and those that are left out.
    fn sides(&self, choice: &mut Option<Choice>) -> Result<(Vec<Side>, LeftOut), CliError> {
        match self.comparison {
            Comparison::Design(design) => Ok((self.delegation(design, choice)?, Vec::new())),
            Comparison::Bursts(design) => Ok((self.bursts(design)?, Vec::new())),
            Comparison::Bound(design) => Ok((self.bounded(design)?, Vec::new())),
            Comparison::Designs => self.designs(choice),
        }
    }
}

/// Measures so many sides in so many rounds, and shows the progress.
pub(crate) fn watched<R>(
    what: &str,
    sides: usize,
    rounds: usize,
    measure: impl FnOnce(&mut Measurement<'_>) -> Result<R, LoadError>,
) -> Result<R, CliError> {
    let bar = RunBar::of_steps((sides * (rounds + 1)) as u64);
    let mut watch = |step| match step {
        Step::Loading { run } => bar.step(&format!("{what}: loading {}/{sides}", run + 1)),
        Step::Round { round, throughput_per_second, .. } => {
            let rate = table::rate(throughput_per_second);
            bar.step(&format!("{what}: round {}/{rounds}, {rate} operations/s", round + 1));
        }
    };
    let done = measure(&mut Measurement { rounds, interrupt: interrupt::flag(), watch: &mut watch });
    bar.finish();
    done.map_err(refused)
}

/// Refuses a benchmark that would be refused before it begins, as far as that can be known without measuring.
pub(crate) fn check(args: &DomainsBenchArgs) -> Result<(), CliError> {
    let settings = Settings::of(args)?;
    if let Comparison::Design(design) | Comparison::Bursts(design) | Comparison::Bound(design) =
        settings.comparison
        && (design != Design::Configured || settings.threads.domain_size.is_some())
    {
        settings.arrangement(design).map_err(refused)?;
    }
    settings.check_memory(1)
}

/// Runs `atrapos bench domains`.
pub(crate) fn domains(args: &DomainsBenchArgs) -> Result<(), CliError> {
    let settings = Settings::of(args)?;
    let file = config::json_file(&args.common)?;
    interrupt::install();
    let mut choice = None;
    let (sides, left_out) = settings.sides(&mut choice)?;
    settings.check_memory(sides.len())?;
    let pairs: Vec<_> = sides.iter().map(|side| (side.load.clone(), side.arrangement.clone())).collect();
    let runs = watched("measuring", sides.len(), settings.rounds, |measurement| {
        run_alternating(&settings.machine, &pairs, measurement)
    })?;
    let measured = sides.into_iter().zip(runs).map(|(side, run)| Measured { name: side.name, run });
    let report = Report {
        comparison: settings.comparison,
        config: json::config(args, &settings),
        machine: machine::summary(&settings.machine),
        sides: measured.collect(),
        choice,
        left_out,
    };
    output::print(&text::report(&report))?;
    if let Some(file) = file {
        file.write(&json::report(&report))?;
    }
    complain(&report)
}

/// Warns of rounds that vary by more than is reliable.
pub(crate) fn complain_of_variation(name: &str, rounds: &[f64]) {
    if let Some(variation) = variation(rounds).filter(|variation| *variation > RELIABLE_VARIATION_MAX) {
        output::complain(&format!(
            "warning: the rounds of {name} vary by {:.1}%, more than 5%; use longer rounds, or a machine that does nothing else",
            100.0 * variation
        ));
    }
}

/// Warns of what makes numbers unreliable; fails if an audit found something.
fn complain(report: &Report) -> Result<(), CliError> {
    for Measured { name, run } in &report.sides {
        complain_of_variation(name, &run.throughputs_per_second());
    }
    if report.sides.iter().any(|side| side.run.arrangement.is_oversubscribed()) {
        output::complain("warning: there are more threads than processing units, so they take turns");
    }
    let wrong = report.sides.iter().find_map(|side| side.run.audit.as_ref().err().map(|wrong| (side, wrong)));
    wrong.map_or(Ok(()), |(side, wrong)| {
        Err(CliError::failed(format!("the audit of {} failed: {wrong}", side.name)))
    })
}
