//! The file form of a deployment: the channel, the engine, and the workers, processors and keys of each instance.
//! `docs/deployment-file.md` says what it may have, with an example.
//!
//! Owns: its syntax. Never: judges whether the machine has the processors, or the workload the keys; the plan does, and the division.

use std::collections::BTreeMap;
use std::path::Path;

use atrapos_instances::plan::Share;
use atrapos_instances::{ChannelKind, ChosenKeys, KeyBounds};
use clap::ValueEnum as _;
use serde::Deserialize;

use crate::args::EngineArg;
use crate::error::CliError;

/// A deployment as a file says it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    channel: Option<String>,
    engine: Option<String>,
    #[serde(default)]
    oversubscribe: bool,
    #[serde(default)]
    instance: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    workers: usize,
    /// The processors; none if the operating system chooses.
    #[serde(default)]
    processors: Vec<usize>,
    /// The keys of families of tables; where no instance says any, the numbers of workers decide.
    #[serde(default)]
    keys: BTreeMap<String, Ends>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ends {
    from: Option<toml::Value>,
    below: Option<toml::Value>,
}

/// The deployment that a file describes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The channel, if one is chosen.
    pub(super) channel: Option<ChannelKind>,
    /// The engine inside each instance, if one is chosen.
    pub(super) engine: Option<EngineArg>,
    /// True if workers may share a processor.
    pub(super) oversubscribe: bool,
    /// The parts of the instances.
    pub(super) shares: Vec<Share>,
}

/// Returns the error of a file, for a reason.
pub(super) fn refuse(path: &Path, why: &dyn std::fmt::Display) -> CliError {
    CliError::bad_input(format!("the deployment file {} cannot be used: {why}", path.display()))
}

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<Layout, CliError> {
    let text = std::fs::read_to_string(path).map_err(|error| refuse(path, &error))?;
    parse(&text).map_err(|why| refuse(path, &why))
}

fn parse(text: &str) -> Result<Layout, String> {
    let text: Text = toml::from_str(text).map_err(|error| {
        // The error of a name that is not known says which ones are.
        error.message().replace('\n', " ")
    })?;
    let channel = text.channel.map(|name| name.parse::<ChannelKind>()).transpose();
    let channel = channel.map_err(|error| error.to_string())?;
    let engine = text.engine.map(|name| {
        let known = || EngineArg::value_variants().iter().map(|engine| engine.name()).collect::<Vec<_>>();
        EngineArg::from_str(&name, false)
            .map_err(|_| format!("there is no engine '{name}'; choose one of {}", known().join(", ")))
    });
    let engine = engine.transpose()?;
    let shares = text.instance.into_iter().enumerate().map(|(instance, entry)| {
        let Entry { workers, processors: cpus, keys } = entry;
        let keys = keys.into_iter().map(|(family, ends)| {
            let end = |end: Option<toml::Value>| end.map(|end| key(instance, &family, end)).transpose();
            let bounds = KeyBounds { from: end(ends.from)?, below: end(ends.below)? };
            Ok((family, bounds))
        });
        Ok(Share { workers, cpus, keys: keys.collect::<Result<ChosenKeys, String>>()? })
    });
    let shares = shares.collect::<Result<_, String>>()?;
    Ok(Layout { channel, engine, oversubscribe: text.oversubscribe, shares })
}

/// Returns a key in the notation of keys: a number may be written without quotes.
fn key(instance: usize, family: &str, value: toml::Value) -> Result<String, String> {
    match value {
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::String(text) => Ok(text),
        other => Err(format!(
            "the keys of '{family}' in instance {instance} begin or end at {other}, which is no key; write a number, or text in quotes"
        )),
    }
}

#[cfg(test)]
mod tests {
    use atrapos::InstanceId;
    use atrapos_instances::division;
    use atrapos_instances::plan::Plan;

    use super::*;

    #[test]
    fn a_file_says_the_parts_of_the_instances() {
        let text =
            "channel = \"unix\"\n[[instance]]\nworkers = 2\nprocessors = [0, 1]\n[[instance]]\nworkers = 1\n";
        let share = |workers, cpus: &[usize]| Share { workers, cpus: cpus.to_vec(), keys: ChosenKeys::new() };
        let shares = vec![share(2, &[0, 1]), share(1, &[])];
        let layout = |channel, engine, shares| Layout { channel, engine, oversubscribe: false, shares };
        assert_eq!(parse(text), Ok(layout(Some(ChannelKind::Unix), None, shares)));
        let engine = "engine = \"shared-2pl\"";
        assert_eq!(parse(engine), Ok(layout(None, Some(EngineArg::Shared2pl), Vec::new())));
        assert_eq!(parse(""), Ok(layout(None, None, Vec::new())));
    }

    #[test]
    fn a_file_says_the_keys_of_the_instances() {
        let text = "oversubscribe = true\n[[instance]]\nworkers = 1\nkeys = { a = { below = 5 }, b = { from = \"'x'\" } }\n";
        let layout = parse(text).expect("a deployment");
        let end = |text: &str| Some(text.to_owned());
        let chosen = ChosenKeys::from([
            ("a".to_owned(), KeyBounds { from: None, below: end("5") }),
            ("b".to_owned(), KeyBounds { from: end("'x'"), below: None }),
        ]);
        assert!(layout.oversubscribe);
        assert_eq!(layout.shares[0].keys, chosen);
    }

    #[test]
    fn the_example_of_the_document_is_a_deployment() {
        let document = include_str!("../../../../docs/deployment-file.md");
        let example = document.split("```toml\n").nth(1).and_then(|text| text.split("```").next());
        let layout = parse(example.expect("an example")).expect("a deployment");
        let plan = Plan::of_shares(layout.shares, &[0, 1]).expect("two processors");
        let schema = atrapos_workloads::tatp::schema::schema(100_000);
        let division = division(schema, InstanceId(0), plan.workers(), &plan.keys()).expect("keys of TATP");
        assert_eq!(division.ranges.len(), 2);
    }

    #[test]
    fn what_a_file_may_not_say_is_named() {
        for (text, words) in [
            ("channel = \"rdma\"", "there is no channel 'rdma'"),
            ("engine = \"ingres\"", "there is no engine 'ingres'"),
            (
                "[[instance]]\nworkers = 1\nranges = [1, 2]",
                "unknown field `ranges`, expected one of `workers`, `processors`, `keys`",
            ),
            (
                "[[instance]]\nworkers = 1\nkeys = { a = { to = 5 } }",
                "unknown field `to`, expected `from` or `below`",
            ),
            (
                "[[instance]]\nworkers = 1\nkeys = { a = { from = 1.5 } }",
                "'a' in instance 0 begin or end at 1.5",
            ),
            ("[[instance]]\nprocessors = [1]", "missing field `workers`"),
            ("[[instance", "unclosed"),
        ] {
            let why = parse(text).expect_err("refused");
            assert!(why.contains(words) && !why.contains('\n'), "{why}");
        }
    }
}
