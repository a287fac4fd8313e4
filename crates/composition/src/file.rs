//! Files of structures: what domains are to be composed for, as TOML.
//!
//! Owns: the format and what its names mean. Never: opens a file, or knows the kinds of structures and operation mixes.
//!
//! ```toml
//! [[structure]]
//! name = "orders"
//! kind = "b-tree"
//! mix = "ycsb-a"
//! load = 40.0            # expected, in any unit that all share; 1 if left out
//! size = 24              # workers it gains from; if left out, that of its kind and mix
//! with = "lines"         # in one domain with this one; or a list of names
//! isolated = false       # in one domain with these alone
//!
//! [[size]]               # of a kind under a mix, instead of a curve
//! kind = "b-tree"
//! mix = "ycsb-c"
//! workers = 48
//! ```

use crate::calibration::CalibrationSettings;
use crate::curve::Curves;
use crate::demand::{Demand, Structure};
use crate::error::CompositionError;
use crate::ids::StructureIndex;
use serde::{Deserialize, Serialize};

/// A structure as a file describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StructureEntry {
    /// Its name, different from that of all others.
    pub name: String,
    /// The kind of structure, such as `b-tree`.
    pub kind: String,
    /// The operation mix, such as `ycsb-a`.
    pub mix: String,
    /// Expected load, in any unit that all structures share.
    #[serde(default = "one")]
    pub load: f64,
    /// The greatest size of a domain for it, in workers; that of its kind and mix if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// Structures that must be in its domain, by name.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    pub with: Names,
    /// Whether it shares its domain only with those.
    #[serde(default)]
    pub isolated: bool,
}

fn one() -> f64 {
    1.0
}

/// One name or a list of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Names {
    /// One.
    One(String),
    /// Any number.
    Several(Vec<String>),
}

impl Default for Names {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

impl Names {
    fn as_slice(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }

    fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }
}

/// The size of domains for a kind of structure under an operation mix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeEntry {
    /// The kind of structure.
    pub kind: String,
    /// The operation mix.
    pub mix: String,
    /// The greatest size of a domain for it, in workers.
    pub workers: u32,
}

/// Structures, and sizes that are known without curves.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Structures {
    /// The structures.
    #[serde(rename = "structure", default)]
    pub structures: Vec<StructureEntry>,
    /// Sizes by kind and mix.
    #[serde(rename = "size", default)]
    pub sizes: Vec<SizeEntry>,
}

impl Structures {
    /// Reads a file of structures.
    ///
    /// # Errors
    /// [`CompositionError::NotStructures`] with the parser's own sentence.
    pub fn from_toml(text: &str) -> Result<Self, CompositionError> {
        toml::from_str(text).map_err(|error| CompositionError::NotStructures { detail: one_line(&error) })
    }

    /// The demand: each structure with its own size, or else that of its kind and mix here, or else that which a curve
    /// gives.
    ///
    /// # Errors
    /// [`CompositionError::NoSize`] for a structure without any; [`CompositionError::NoSuchStructure`];
    /// [`CompositionError::SizeTwice`]; what [`Curves::structure`] and [`Demand::check`] refuse.
    pub fn demand(
        &self,
        curves: Option<&Curves>,
        settings: &CalibrationSettings,
    ) -> Result<Demand, CompositionError> {
        for (at, size) in self.sizes.iter().enumerate() {
            if self.sizes[..at].iter().any(|other| (&other.kind, &other.mix) == (&size.kind, &size.mix)) {
                let (kind, mix) = (size.kind.clone(), size.mix.clone());
                return Err(CompositionError::SizeTwice { kind, mix });
            }
        }
        let sized = |entry| self.sized(entry, curves, settings);
        let structures = self.structures.iter().map(sized).collect::<Result<Vec<_>, _>>()?;
        let mut together = Vec::new();
        for (at, entry) in self.structures.iter().enumerate().filter(|(_, entry)| !entry.with.is_empty()) {
            let mut set = vec![StructureIndex(at as u32)];
            for name in entry.with.as_slice() {
                let position = self.structures.iter().position(|other| other.name == *name);
                let unknown = || CompositionError::NoSuchStructure {
                    structure: entry.name.clone(),
                    with: name.clone(),
                };
                set.push(StructureIndex(position.ok_or_else(unknown)? as u32));
            }
            together.push(set);
        }
        let demand = Demand { structures, together };
        demand.check()?;
        Ok(demand)
    }

    fn sized(
        &self,
        entry: &StructureEntry,
        curves: Option<&Curves>,
        settings: &CalibrationSettings,
    ) -> Result<Structure, CompositionError> {
        let StructureEntry { name, kind, mix, load, isolated, .. } = entry;
        let of_kind = self.sizes.iter().find(|size| size.kind == *kind && size.mix == *mix);
        let size = entry.size.or(of_kind.map(|size| size.workers));
        let structure = match (size, curves) {
            (Some(workers_max), _) => {
                Structure { name: name.clone(), workers_max, load: *load, isolated: false }
            }
            (None, Some(curves)) => curves.structure(name, kind, mix, *load, settings)?,
            (None, None) => {
                let (structure, kind, mix) = (name.clone(), kind.clone(), mix.clone());
                return Err(CompositionError::NoSize { structure, kind, mix });
            }
        };
        Ok(Structure { isolated: *isolated, ..structure })
    }
}

/// The parser's sentence, with its position, on one line.
fn one_line(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let plain = lines.iter().filter(|line| !line.contains('|'));
    plain.map(|line| line.trim_end_matches(',')).collect::<Vec<_>>().join(": ")
}
