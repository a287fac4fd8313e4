//! The file form of a deployment: the channel, and the workers and processors of each instance.
//!
//! Owns: its syntax. Never: judges whether the machine has the processors; the plan does.

use std::path::Path;

use atrapos_instances::ChannelKind;
use atrapos_instances::plan::Share;
use serde::Deserialize;

use crate::error::CliError;

/// A deployment as a file says it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    channel: Option<String>,
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
}

/// Reads the channel, if one is chosen, and the parts of the instances.
pub(super) fn read(path: &Path) -> Result<(Option<ChannelKind>, Vec<Share>), CliError> {
    let refuse = |why: &dyn std::fmt::Display| {
        CliError::bad_input(format!("the deployment file {} cannot be used: {why}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| refuse(&error))?;
    parse(&text).map_err(|why| refuse(&why))
}

fn parse(text: &str) -> Result<(Option<ChannelKind>, Vec<Share>), String> {
    let text: Text = toml::from_str(text).map_err(|error| {
        // The error of a name that is not known says which ones are.
        error.message().replace('\n', " ")
    })?;
    let channel = text.channel.map(|name| name.parse::<ChannelKind>()).transpose();
    let channel = channel.map_err(|error| error.to_string())?;
    let shares =
        text.instance.into_iter().map(|entry| Share { workers: entry.workers, cpus: entry.processors });
    Ok((channel, shares.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_the_parts_of_the_instances() {
        let text =
            "channel = \"unix\"\n[[instance]]\nworkers = 2\nprocessors = [0, 1]\n[[instance]]\nworkers = 1\n";
        let shares = vec![Share { workers: 2, cpus: vec![0, 1] }, Share { workers: 1, cpus: Vec::new() }];
        assert_eq!(parse(text), Ok((Some(ChannelKind::Unix), shares)));
        assert_eq!(parse(""), Ok((None, Vec::new())));
    }

    #[test]
    fn what_a_file_may_not_say_is_named() {
        for (text, words) in [
            ("channel = \"rdma\"", "there is no channel 'rdma'"),
            (
                "[[instance]]\nworkers = 1\nkeys = [1, 2]",
                "unknown field `keys`, expected `workers` or `processors`",
            ),
            ("[[instance]]\nprocessors = [1]", "missing field `workers`"),
            ("[[instance", "unclosed"),
        ] {
            let why = parse(text).expect_err("refused");
            assert!(why.contains(words) && !why.contains('\n'), "{why}");
        }
    }
}
