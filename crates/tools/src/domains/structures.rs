//! The structures that domains are composed for: from a file, and from the command line.
//!
//! Owns: the short forms of the command line. Never: finds a size.

use std::path::Path;

use atrapos_cli::error::CliError;
use atrapos_composition::{SizeEntry, StructureEntry, Structures};
use atrapos_domain_loads::Mix;
use atrapos_structures::Kind;

use super::{read, refused};
use crate::args::ComposeArgs;

/// Returns the structures that the arguments name.
pub(super) fn structures(args: &ComposeArgs) -> Result<Structures, CliError> {
    let mut structures = args.structures.as_deref().map(from_file).transpose()?.unwrap_or_default();
    for text in &args.structure {
        structures.structures.push(structure(text)?);
    }
    for text in &args.size {
        let size = size(text)?;
        structures.sizes.retain(|other| (&other.kind, &other.mix) != (&size.kind, &size.mix));
        structures.sizes.push(size);
    }
    structures.structures.iter().try_for_each(check)?;
    Ok(structures)
}

fn from_file(path: &Path) -> Result<Structures, CliError> {
    let text = read("file of structures", path, "give a file with [[structure]] tables, or --structure")?;
    Structures::from_toml(&text).map_err(|error| CliError::bad_input(format!("{}: {error}", path.display())))
}

/// Refuses kinds and mixes that there are not.
fn check(entry: &StructureEntry) -> Result<(), CliError> {
    let refuse = |unknown: &dyn std::fmt::Display| {
        CliError::bad_input(format!("structure '{}': {unknown}", entry.name))
    };
    entry.kind.parse::<Kind>().map_err(|unknown| refuse(&unknown))?;
    entry.mix.parse::<Mix>().map_err(|unknown| refuse(&unknown))?;
    Ok(())
}

/// Returns a structure as `--structure` describes it: keys and values of its table in a file.
fn structure(text: &str) -> Result<StructureEntry, CliError> {
    let refuse = |why: &dyn std::fmt::Display| {
        CliError::bad_input(format!(
            "--structure \"{text}\": {why}; give keys and values such as \"name=orders,kind=b-tree,mix=ycsb-a,load=3,size=24\""
        ))
    };
    let mut table = toml::Table::new();
    for pair in text.split(',') {
        let (key, value) = pair.split_once('=').ok_or_else(|| refuse(&format!("'{pair}' has no '='")))?;
        let (key, value) = (key.trim().to_owned(), value.trim());
        let is_text = ["name", "kind", "mix", "with"].contains(&key.as_str());
        let plain =
            value.parse().map(toml::Value::Integer).or_else(|_| value.parse().map(toml::Value::Float));
        let plain = plain.ok().or_else(|| value.parse().map(toml::Value::Boolean).ok());
        let value = plain.filter(|_| !is_text).unwrap_or_else(|| toml::Value::String(value.to_owned()));
        if table.insert(key.clone(), value).is_some() {
            return Err(refuse(&format!("'{key}' is given twice")));
        }
    }
    table.try_into().map_err(|error: toml::de::Error| refuse(&error.message()))
}

/// Returns a size as `--size` gives it.
fn size(text: &str) -> Result<SizeEntry, CliError> {
    let refuse = || {
        CliError::bad_input(format!("--size \"{text}\" is none; give a size such as \"b-tree/ycsb-c=48\""))
    };
    let (of, workers) = text.split_once('=').ok_or_else(refuse)?;
    let (kind, mix) = of.split_once('/').ok_or_else(refuse)?;
    let workers = workers.trim().parse().map_err(|_| refuse())?;
    kind.trim().parse::<Kind>().map_err(refused_name(text))?;
    mix.trim().parse::<Mix>().map_err(refused_name(text))?;
    Ok(SizeEntry { kind: kind.trim().to_owned(), mix: mix.trim().to_owned(), workers })
}

fn refused_name<E: std::fmt::Display>(text: &str) -> impl FnOnce(E) -> CliError + '_ {
    move |unknown| CliError::bad_input(format!("--size \"{text}\": {unknown}"))
}

/// Returns the curves of a file.
pub(super) fn curves(path: &Path) -> Result<atrapos_composition::Curves, CliError> {
    let text = read("file of curves", path, "write one with `atrapos domains calibrate --output`")?;
    atrapos_composition::Curves::from_json(&text).map_err(refused)
}
