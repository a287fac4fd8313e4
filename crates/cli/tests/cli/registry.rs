//! Every workload of the registry can be benchmarked and explained: nothing here, and nothing in the command, names one.

use atrapos_cli::benchmarks::entries;

use crate::support::{run, stderr, stdout};

fn said(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?} said: {}", stderr(&output));
    stdout(&output)
}

#[test]
fn every_workload_has_its_command_with_its_own_options_and_those_of_all_runs() {
    let list = said(&["bench", "--help"]);
    for entry in entries() {
        let name = entry.name();
        let own = entry.command();
        let about = own.get_about().expect("every workload says what it is").to_string();
        let first_words: Vec<&str> = about.split_whitespace().take(4).collect();
        let line = list.lines().find(|line| line.split_whitespace().next() == Some(name));
        assert!(
            line.expect("it is listed").contains(&first_words.join(" ")),
            "{name} is not described in:\n{list}"
        );
        let help = said(&["bench", name, "--help"]);
        for option in
            own.get_arguments().filter_map(|option| option.get_long()).chain(["seconds", "durability"])
        {
            assert!(help.contains(&format!("--{option}")), "{name} has no --{option} in:\n{help}");
        }
    }
}

#[test]
fn every_class_of_every_workload_is_known_to_explain() {
    let help = said(&["explain", "--help"]);
    // What is wrapped is put together again.
    let help: String = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for entry in entries() {
        let (name, classes) = (entry.name(), entry.classes());
        assert!(
            help.contains(&format!("`{name}`")) && help.contains(&format!("Classes of {name}: ")),
            "{help}"
        );
        for class in classes.iter().flat_map(|classes| classes.names) {
            assert!(help.contains(class), "{name} has no {class} in: {help}");
        }
        let (first, last) =
            (classes[0].names[0], classes.iter().flat_map(|classes| classes.names).next_back());
        for class in [Some(first), last.copied()].into_iter().flatten() {
            assert!(said(&["explain", name, class]).starts_with(&format!("{class}: ")), "{name} {class}");
        }
    }
}
