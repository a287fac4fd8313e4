//! Errors in the arguments of a composition.
//!
//! Owns: the error type. Never: reports a defect of this crate; those are assertions.
//!
//! Invariant: every message is one sentence that names the thing and the cure.

use thiserror::Error;

/// Reasons for which curves, structures, a machine or a composition were refused.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum CompositionError {
    /// The text is not a file of curves.
    #[error("this is not a file of curves: {detail}; write one with `Curves::to_json`")]
    NotCurves {
        /// The parser's message, with line and column.
        detail: String,
    },
    /// The file of curves has another format or version.
    #[error("the file of curves has the format '{found}', this program reads '{expected}'; calibrate again")]
    Format {
        /// The format that the file names.
        found: String,
        /// The format that is read.
        expected: &'static str,
    },
    /// A curve that contradicts itself.
    #[error("the curve of '{kind}' under '{mix}' {problem}; {cure}")]
    Curve {
        /// The kind of structure.
        kind: String,
        /// The operation mix.
        mix: String,
        /// The contradiction.
        problem: String,
        /// The cure.
        cure: &'static str,
    },
    /// A structure whose kind was not calibrated under its operation mix.
    #[error(
        "structure '{structure}' has no curve: '{kind}' was not calibrated under '{mix}' (there are {known}); calibrate it, or name one of these"
    )]
    NoCurve {
        /// The structure.
        structure: String,
        /// Its kind.
        kind: String,
        /// Its operation mix.
        mix: String,
        /// The curves that there are, as text.
        known: String,
    },
    /// The text is not a file of structures.
    #[error(
        "this is not a file of structures: {detail}; give [[structure]] tables with name, kind, mix and load"
    )]
    NotStructures {
        /// The parser's message, with line and column.
        detail: String,
    },
    /// A structure without a size, where there are no curves.
    #[error(
        "structure '{structure}' has no size: give curves in which '{kind}' is calibrated under '{mix}', or `size` with it, or a [[size]] for this kind and mix"
    )]
    NoSize {
        /// The structure.
        structure: String,
        /// Its kind.
        kind: String,
        /// Its operation mix.
        mix: String,
    },
    /// Two sizes of one kind under one mix.
    #[error("there are two sizes of '{kind}' under '{mix}'; keep one of them")]
    SizeTwice {
        /// The kind.
        kind: String,
        /// The operation mix.
        mix: String,
    },
    /// A co-location with a structure that is not there.
    #[error(
        "structure '{structure}' is to be in one domain with '{with}', which is not there; add it, or correct the name"
    )]
    NoSuchStructure {
        /// The structure.
        structure: String,
        /// The name that no structure has.
        with: String,
    },
    /// A setting that is out of its range.
    #[error("the setting '{name}' is {value}; {cure}")]
    Setting {
        /// Its name.
        name: &'static str,
        /// Its value, as text.
        value: String,
        /// The cure.
        cure: &'static str,
    },
    /// A demand without structures.
    #[error("there is no structure to compose domains for; give at least one")]
    NoStructures,
    /// More structures or workers than this crate supports.
    #[error("there are {found} {what}, domains can be composed for at most {max}; {cure}")]
    TooLarge {
        /// The kind of thing of which there are too many.
        what: &'static str,
        /// Their number.
        found: usize,
        /// The greatest number supported.
        max: usize,
        /// The cure.
        cure: &'static str,
    },
    /// A machine without workers.
    #[error("there are no workers to form domains of; give at least one")]
    NoWorkers,
    /// Two structures of one name.
    #[error("two structures are called '{name}'; give each a name of its own")]
    SameName {
        /// The name.
        name: String,
    },
    /// A structure with a load or a size that is none.
    #[error("structure '{structure}' has {problem}; {cure}")]
    Structure {
        /// The structure.
        structure: String,
        /// The mistake.
        problem: String,
        /// The cure.
        cure: &'static str,
    },
    /// A co-location that names a structure that is not there.
    #[error(
        "structure {number} is to be placed together with others, but there are only {count} structures; number them from 0"
    )]
    UnknownStructure {
        /// The number that was given.
        number: u32,
        /// Number of structures.
        count: usize,
    },
    /// An isolated structure that is to be in one domain with one that is not isolated.
    #[error(
        "'{isolated}' is to be isolated and yet in one domain with '{shared}', which is not; isolate both or neither, or place them apart"
    )]
    IsolatedTogether {
        /// The isolated structure.
        isolated: String,
        /// The other one.
        shared: String,
    },
    /// A structure that is to be isolated in a homogeneous configuration.
    #[error(
        "'{structure}' is to be isolated, which a homogeneous configuration does not do; compose a heterogeneous one, or share"
    )]
    IsolatedHomogeneous {
        /// The structure.
        structure: String,
    },
    /// Structures of different calibrated sizes, and no size chosen for a homogeneous configuration.
    #[error(
        "a homogeneous configuration has one size, but '{first}' is best with {first_workers} workers and \
         '{second}' with {second_workers}; choose the size, or compose a heterogeneous configuration"
    )]
    SizesDiffer {
        /// A structure.
        first: String,
        /// Its calibrated size.
        first_workers: u32,
        /// Another structure.
        second: String,
        /// Its calibrated size.
        second_workers: u32,
    },
    /// Domains that are wanted with more workers than there are.
    #[error("{wanted} need {needed} workers and there are {available}; {cure}")]
    TooFewWorkers {
        /// The domains, as text.
        wanted: String,
        /// Workers that they need.
        needed: u64,
        /// Workers that there are.
        available: u32,
        /// The cure.
        cure: &'static str,
    },
    /// A co-location group with more load than any domain that it may use is allowed.
    #[error(
        "'{structure}' brings a load of {load} and may be in domains of at most {workers} workers, none of which may have more than {max}; raise the maximum load, or split the structure"
    )]
    TooMuchLoad {
        /// A structure of the group.
        structure: String,
        /// Load of the group.
        load: f64,
        /// Greatest size of a domain for the group.
        workers: u32,
        /// Greatest load of a domain of a size that the group may use.
        max: f64,
    },
    /// Bounds of loads that no choice of domains satisfies.
    #[error(
        "no choice of domains keeps all loads within their bounds with {workers} workers; lower the minimum load, raise the maximum, or give more workers"
    )]
    Infeasible {
        /// Workers that there are.
        workers: u32,
    },
    /// A search that ended without a configuration, and without a proof that there is none.
    #[error(
        "no configuration within the bounds of loads was found in {nodes} steps, and none was proven impossible; widen the bounds or allow more steps"
    )]
    Unresolved {
        /// Steps that were made.
        nodes: u64,
    },
}
