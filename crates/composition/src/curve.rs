//! Curves of throughput over domain sizes, and their form as JSON.
//!
//! Owns: the format `atrapos-curves 1`: one JSON object with
//! - `format`; optionally `machine` (what `atrapos topology` calls it; for people);
//! - `curves`: `kind` of structure, operation `mix`, and `points` by ascending size, each with `workers` and
//!   `throughputs_per_second`, one for each round.
//!
//! Never: opens a file, or measures. Invariants: a throughput that is read is the one that was written, to the last binary
//! digit. Curves that were read or made have been checked: every curve has points, sizes ascend strictly from at least 1,
//! every point has a round, throughputs are finite and not negative.

use crate::error::CompositionError;
use serde::{Deserialize, Serialize};

/// The format that [`Curves::to_json`] writes and [`Curves::from_json`] reads.
pub const CURVES_FORMAT: &str = "atrapos-curves 1";

/// Measurements of one domain size (`Virtual domains §5.2`, calibration).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Workers of the domain.
    pub workers: u32,
    /// Operations per second in each round.
    pub throughputs_per_second: Vec<f64>,
}

/// Throughput of one kind of structure under one operation mix, over growing domain sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// The kind of structure, such as `b-tree`.
    pub kind: String,
    /// The operation mix, such as `read-update`.
    pub mix: String,
    /// The sizes that were measured, strictly ascending.
    pub points: Vec<Point>,
}

/// Curves of one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves {
    machine: Option<String>,
    curves: Vec<Curve>,
}

/// The curves as they are written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
    curves: Vec<Curve>,
}

/// The one thing of a file of another version that can be relied on.
#[derive(Deserialize)]
struct Format {
    format: String,
}

impl Curves {
    /// Curves of a machine with the given description.
    ///
    /// # Errors
    /// [`CompositionError::Curve`] for a curve that breaks the invariants of the module, and for the second curve of
    /// one kind and mix.
    pub fn new(machine: Option<String>, curves: Vec<Curve>) -> Result<Self, CompositionError> {
        for (at, curve) in curves.iter().enumerate() {
            curve.check()?;
            if curves[..at].iter().any(|other| other.kind == curve.kind && other.mix == curve.mix) {
                return Err(curve.refused("is given twice", "keep one of the two"));
            }
        }
        Ok(Self { machine, curves })
    }

    /// Reads curves.
    ///
    /// # Errors
    /// [`CompositionError::Format`] for another version; [`CompositionError::NotCurves`] with line and column; what
    /// [`Curves::new`] refuses.
    pub fn from_json(text: &str) -> Result<Self, CompositionError> {
        let not_curves = |error: serde_json::Error| CompositionError::NotCurves { detail: error.to_string() };
        let format: Format = serde_json::from_str(text).map_err(not_curves)?;
        if format.format != CURVES_FORMAT {
            return Err(CompositionError::Format { found: format.format, expected: CURVES_FORMAT });
        }
        let file: File = serde_json::from_str(text).map_err(not_curves)?;
        Self::new(file.machine, file.curves)
    }

    /// The curves as indented JSON.
    ///
    /// # Panics
    /// Never: everything in curves has a JSON form.
    #[must_use]
    pub fn to_json(&self) -> String {
        let file = File {
            format: CURVES_FORMAT.to_owned(),
            machine: self.machine.clone(),
            curves: self.curves.clone(),
        };
        serde_json::to_string_pretty(&file).expect("everything in curves has a JSON form")
    }

    /// Description of the machine that was measured; `None` when there is none.
    #[must_use]
    pub fn machine(&self) -> Option<&str> {
        self.machine.as_deref()
    }

    /// The curves, in the order in which they were given.
    #[must_use]
    pub fn curves(&self) -> &[Curve] {
        &self.curves
    }

    /// The curve of a kind of structure under an operation mix.
    #[must_use]
    pub fn get(&self, kind: &str, mix: &str) -> Option<&Curve> {
        self.curves.iter().find(|curve| curve.kind == kind && curve.mix == mix)
    }

    /// Names of all curves, for sentences.
    pub(crate) fn known(&self) -> String {
        if self.curves.is_empty() {
            return "no curves".to_owned();
        }
        let names: Vec<String> =
            self.curves.iter().map(|curve| format!("'{}' under '{}'", curve.kind, curve.mix)).collect();
        names.join(", ")
    }
}

impl Curve {
    fn refused(&self, problem: impl Into<String>, cure: &'static str) -> CompositionError {
        let (kind, mix, problem) = (self.kind.clone(), self.mix.clone(), problem.into());
        CompositionError::Curve { kind, mix, problem, cure }
    }

    /// # Errors
    /// [`CompositionError::Curve`] for a curve that breaks the invariants of the module.
    pub(crate) fn check(&self) -> Result<(), CompositionError> {
        let measure = "measure at least one size";
        if self.points.is_empty() {
            return Err(self.refused("has no points", measure));
        }
        let mut before = 0;
        for point in &self.points {
            let workers = point.workers;
            if workers <= before {
                let problem = format!("has a point for {workers} workers after one for {before}");
                return Err(self.refused(problem, "sizes must ascend strictly from at least 1"));
            }
            before = workers;
            if point.throughputs_per_second.is_empty() {
                return Err(self.refused(format!("has no rounds with {workers} workers"), measure));
            }
            let bad = |value: &&f64| !(value.is_finite() && **value >= 0.0);
            if let Some(value) = point.throughputs_per_second.iter().find(bad) {
                let problem = format!("has a throughput of {value} with {workers} workers");
                return Err(self.refused(problem, "a throughput is a finite number that is not negative"));
            }
        }
        Ok(())
    }
}
