//! Configurations of virtual domains as pure functions (`Virtual domains §5.2`).
//!
//! [`Curves`] give the size up to which a structure gains from more workers ([`calibrate`]); [`compose`] divides workers
//! into domains of such sizes and assigns the structures to them; [`map_onto`] gives the domains processing units of a
//! machine. While domains run, a [`DomainController`] decides on changes of them from reports of their load.
//!
//! Owns: the forms of curves and of structures, calibration, composition, mapping, decisions about changes. Never: reads a clock or a file, starts a thread, or
//! measures.
//!
//! Invariant: the same arguments give the same result on every machine.

#![forbid(unsafe_code)]

mod assign;
mod calibration;
mod compose;
mod controller;
mod cores;
mod curve;
mod demand;
mod error;
mod file;
mod ids;
mod predict;
mod problem;
mod profile;
mod solve;
mod statistics;

pub use calibration::{Calibration, CalibrationSettings, RELIABLE_VARIATION_MAX, calibrate};
pub use compose::{Composition, Domain, Gap, Kind, Settings, compose, possible_sizes};
pub use controller::{
    ControllerSettings, DomainChange, DomainController, DomainDecision, DomainsObservation, ObservedDomain,
    ObservedStructure, WorkerLoad,
};
pub use cores::{map_onto, span};
pub use curve::{CURVES_FORMAT, Curve, Curves, Point};
pub use demand::{Demand, LoadBounds, STRUCTURES_MAX, Structure, WORKERS_MAX};
pub use error::CompositionError;
pub use file::{Names, SizeEntry, StructureEntry, Structures};
pub use ids::{DomainIndex, StructureIndex};
pub use solve::Effort;
pub use statistics::variation;
