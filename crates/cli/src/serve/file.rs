//! The configuration file of `atrapos serve`: a TOML table whose keys are the names of options.
//!
//! Owns: what an entry is as arguments. Never: knows an option; the command line judges them.
//!
//! Invariant: arguments of the file come before those of the command line, so that these count.

use std::ffi::OsString;
use std::path::Path;

use clap::Parser as _;

use crate::args::{Cli, Command, ServeArgs};
use crate::error::CliError;

/// Reads the arguments of this process again, with those of the file before them.
pub(super) fn with_file(path: &Path, given: &ServeArgs) -> Result<ServeArgs, CliError> {
    let refuse = |why: &dyn std::fmt::Display| {
        CliError::bad_input(format!("the configuration file {} cannot be used: {why}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| refuse(&error))?;
    // Several addresses add up, unlike other options: those of the command line shall count alone.
    let without: &[&str] = if given.listen.is_empty() { &[] } else { &["listen"] };
    let from_file = arguments(&text, without).map_err(|why| refuse(&why))?;
    let mut own = std::env::args_os();
    let program: Vec<OsString> = own.by_ref().take(2).collect();
    let all = program.into_iter().chain(from_file.into_iter().map(OsString::from)).chain(own);
    match Cli::try_parse_from(all) {
        Ok(Cli { command: Command::Serve(args) }) => Ok(*args),
        Ok(_) => Err(refuse(&"it is for another command")),
        // Without the file the arguments were right.
        Err(error) => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            Err(refuse(&line.strip_prefix("error: ").unwrap_or(line)))
        }
    }
}

/// Returns a file's entries as arguments, except for those `without`.
fn arguments(text: &str, without: &[&str]) -> Result<Vec<String>, String> {
    let table: toml::Table = toml::from_str(text).map_err(|error| error.message().replace('\n', " "))?;
    let mut arguments = Vec::new();
    for (name, value) in table.into_iter().filter(|(name, _)| !without.contains(&name.as_str())) {
        if name == "config" {
            return Err("a configuration file cannot name another one".to_owned());
        }
        let values = match value {
            toml::Value::Array(values) => values,
            value => vec![value],
        };
        for value in values {
            arguments.push(match value {
                toml::Value::Boolean(true) => format!("--{name}"),
                toml::Value::Boolean(false) => continue,
                toml::Value::String(text) => format!("--{name}={text}"),
                toml::Value::Integer(number) => format!("--{name}={number}"),
                toml::Value::Float(number) => format!("--{name}={number}"),
                _ => {
                    return Err(format!(
                        "the value of '{name}' is no text, number, true or false, or a list of them"
                    ));
                }
            });
        }
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn entries_become_arguments() {
        let text = "workers = 3\nno-pin = true\nuntil-eof = false\nlisten = [\"a\", \"b\"]\nuser = \"x y\"\ninterval = 0.5";
        let expected =
            ["--workers=3", "--no-pin", "--listen=a", "--listen=b", "--user=x y", "--interval=0.5"];
        let mut arguments = arguments(text, &[]).expect("a table");
        arguments.sort_by_key(|argument| expected.iter().position(|one| one == argument));
        assert_eq!(arguments, expected);
        let without = super::arguments("listen = [\"a\"]", &["listen"]).expect("a table");
        assert!(without.is_empty(), "{without:?}");
        for bad in ["workers = 2026-11-28", "config = \"other\"", "workers =", "[settings]\nx = 1"] {
            assert!(super::arguments(bad, &[]).is_err(), "{bad}");
        }
    }

    /// The file that is shipped explains every option, with values that the command line takes.
    #[test]
    fn the_example_has_all_options() {
        let example = include_str!("../../../../contrib/atrapos.toml");
        let mut command = Cli::command();
        let serve = command.find_subcommand_mut("serve").expect("the command");
        for option in serve.get_arguments().filter_map(clap::Arg::get_long) {
            let mut names = example.lines().filter_map(|line| line.strip_prefix("#= ")?.split_once(" = "));
            let is_listed = names.any(|(name, _)| name == option);
            assert!(
                is_listed || ["config", "help"].contains(&option),
                "--{option} is missing in contrib/atrapos.toml"
            );
        }
        let entries: String = example
            .lines()
            .filter_map(|line| line.strip_prefix("#= "))
            .fold(String::new(), |all, line| all + line + "\n");
        let mut arguments = arguments(&entries, &[]).expect("a table");
        arguments.splice(0..0, ["atrapos", "serve", "dir"].map(str::to_owned));
        let parsed = Cli::try_parse_from(arguments).expect("options with values that are taken");
        assert!(matches!(parsed.command, Command::Serve(_)));
    }
}
