//! Errors in descriptions of machines.
//!
//! Owns: [`TopologyError`] and [`LatencyError`]. Every `Display` is one sentence that names the thing and the cure. The
//! live machine never gives an error: what its files say is believed or listed as [`Refusal`](crate::Refusal).

use crate::ids::CpuId;
use std::path::PathBuf;

/// Reasons for which a machine description was not accepted: always something to correct in the input.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A text in the synthetic notation with a mistake.
    #[error("topology \"{text}\" is not understood at character {position}: {message}")]
    Synthetic {
        /// The whole description.
        text: String,
        /// Position of the mistake, counted in characters from 1.
        position: usize,
        /// The mistake, and what was expected.
        message: String,
    },
    /// A path that cannot be read.
    #[error("cannot read the topology file {}: {message}; give a readable .toml or .xml file", path.display())]
    Unreadable {
        /// The path as given.
        path: PathBuf,
        /// The message of the operating system.
        message: String,
    },
    /// A path whose ending names no known format.
    #[error("the topology file {} has no known format: its name must end in .toml (machine file) or .xml (hwloc)", path.display())]
    UnknownFormat {
        /// The path as given.
        path: PathBuf,
    },
    /// A machine file that is not valid or contradicts itself.
    #[error("the machine file {} is not accepted: {message}", path.display())]
    MachineFile {
        /// The path as given.
        path: PathBuf,
        /// The mistake and its place.
        message: String,
    },
    /// An hwloc XML file, but this build cannot read it.
    #[error(
        "reading the hwloc file {} needs a build with the feature `hwloc` (cargo build --features hwloc, with Debian's \
         libhwloc-dev and libudev-dev installed); without it give a .toml machine file or a synthetic description",
        path.display()
    )]
    HwlocDisabled {
        /// The path as given.
        path: PathBuf,
    },
    /// An hwloc XML file that hwloc refuses or that describes no usable machine.
    #[error("the hwloc file {} is not accepted: {message}", path.display())]
    Hwloc {
        /// The path as given.
        path: PathBuf,
        /// The mistake.
        message: String,
    },
    /// A latency matrix that does not fit the machine or itself.
    #[error("the latency matrix is not accepted: {0}")]
    Latency(#[from] LatencyError),
}

/// Reasons for which a latency matrix was not accepted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LatencyError {
    /// No cpus at all.
    #[error("it names no cpu; name at least one")]
    Empty,
    /// A number of rows that is not the number of cpus.
    #[error("it has {rows} rows for {cpus} cpus; give one row per cpu")]
    RowCount {
        /// Rows given.
        rows: usize,
        /// Cpus named.
        cpus: usize,
    },
    /// A row of another length than the number of cpus.
    #[error("it is not square: the row of {cpu} has {len} entries instead of {cpus}")]
    NotSquare {
        /// The cpu of the row.
        cpu: CpuId,
        /// Entries of the row.
        len: usize,
        /// Cpus named.
        cpus: usize,
    },
    /// A cpu that is named twice.
    #[error("it names {cpu} twice; name each cpu once")]
    DuplicateCpu {
        /// The cpu.
        cpu: CpuId,
    },
    /// A cpu that the machine does not have.
    #[error("it names {cpu}, which this machine does not have; name only cpus of the machine")]
    UnknownCpu {
        /// The cpu.
        cpu: CpuId,
    },
    /// Two directions of one pair that differ by more than a hundredth.
    #[error(
        "it is asymmetric: {a} to {b} takes {there} ns and {b} to {a} takes {back} ns; give the mean in both places"
    )]
    Asymmetric {
        /// One cpu.
        a: CpuId,
        /// The other cpu.
        b: CpuId,
        /// Entry of the row of `a`, in nanoseconds.
        there: f64,
        /// Entry of the row of `b`, in nanoseconds.
        back: f64,
    },
    /// An entry that is no latency: zero, negative or infinite, off the diagonal.
    #[error(
        "{a} to {b} is said to take {ns} ns; give a positive number, or nan for a pair that was not measured"
    )]
    Absurd {
        /// One cpu.
        a: CpuId,
        /// The other cpu.
        b: CpuId,
        /// The entry in nanoseconds.
        ns: f64,
    },
}
