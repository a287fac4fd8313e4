//! Curves of throughput over growing domains, for the calibration of `atrapos-composition` (Virtual domains §5.2).
//!
//! Owns: the sizes, and how each is loaded fully. Never: judges a curve.
//!
//! At each size the workers of one domain have tasks without end: each runs the load directly as one long task, so that no client and
//! no message limits the domain.

use atrapos_composition::{Curve, Point};
use atrapos_structures::{Access, Kind};
use atrapos_topology::Machine;

use crate::arrangement::Arrangement;
use crate::design::Design;
use crate::error::LoadError;
use crate::load::Load;
use crate::measure::{Measurement, Step, run};

/// Measures the throughput of one domain over its sizes, one after the other, each with a structure of its own. The length of rounds and all
/// else comes from the load; its bursts do not matter. `pin` places each worker on a processing unit. Sizes beyond the processing units are
/// measured, too; see [`is_oversubscribed`]. The sizes must ascend. In the steps that are watched, a run is the position of a size.
///
/// # Errors
/// [`LoadError`]: among others for no sizes or those that do not ascend, for a size above 1 of an owned structure, what an audit finds
/// ([`LoadError::Wrong`]), and an interrupt.
pub fn measure_curve(
    machine: &Machine,
    load: &Load,
    sizes: &[usize],
    pin: bool,
    measurement: &mut Measurement<'_>,
) -> Result<Curve, LoadError> {
    if sizes.is_empty() || sizes[0] == 0 || !sizes.is_sorted_by(|a, b| a < b) {
        return Err(LoadError::Sizes);
    }
    let mut points = Vec::new();
    for (position, &size) in sizes.iter().enumerate() {
        let arrangement = Arrangement::direct(machine, Design::Configured, size, pin);
        let watch = &mut *measurement.watch;
        let mut of_size = Measurement {
            rounds: measurement.rounds,
            interrupt: measurement.interrupt,
            watch: &mut |step| {
                watch(match step {
                    Step::Loading { .. } => Step::Loading { run: position },
                    Step::Round { round, throughput_per_second, .. } => {
                        Step::Round { run: position, round, throughput_per_second }
                    }
                });
            },
        };
        let run = run(machine, load, &arrangement, &mut of_size)?;
        if run.interrupted {
            return Err(LoadError::Interrupted);
        }
        let throughputs_per_second = run.throughputs_per_second();
        run.audit?;
        let workers = u32::try_from(size).map_err(|_| LoadError::Sizes)?;
        points.push(Point { workers, throughputs_per_second });
    }
    Ok(Curve { kind: load.kind.name().to_owned(), mix: load.mix.name().to_owned(), points })
}

/// Returns whether a domain of this size has more workers than the machine has usable processing units: what is measured of it says
/// little about a larger machine.
#[must_use]
pub fn is_oversubscribed(machine: &Machine, workers: usize) -> bool {
    workers > machine.usable_cpus().len()
}

/// The sizes to measure a curve at unless told otherwise: all up to 8, then steps of about a quarter, up to all usable processing units;
/// of a structure with one owner, 1 alone.
#[must_use]
pub fn default_sizes(machine: &Machine, kind: Kind) -> Vec<usize> {
    if kind.support().access == Access::Owned {
        return vec![1];
    }
    let cpus = machine.usable_cpus().len();
    let mut sizes: Vec<usize> = std::iter::successors(Some(1), |size| Some(size + (size / 4).max(1)))
        .take_while(|size| *size < cpus)
        .collect();
    sizes.push(cpus);
    sizes
}
