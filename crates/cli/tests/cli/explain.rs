//! `atrapos explain`: the flow graphs of all classes as people see them, as Graphviz and other programs read them, and what it
//! refuses.

use std::collections::BTreeSet;

use atrapos_adapt::ClassFlow;
use serde_json::Value;

use crate::support::{refused, run, stderr, stdout};

const TATP: [&str; 7] = [
    "get-subscriber-data",
    "get-new-destination",
    "get-access-data",
    "update-subscriber-data",
    "update-location",
    "insert-call-forwarding",
    "delete-call-forwarding",
];
const TPCC: [&str; 5] = ["new-order", "payment", "order-status", "delivery", "stock-level"];
const MICRO: [&str; 4] = ["read-local", "read-multisite", "update-local", "update-multisite"];

fn explained(arguments: &[&str]) -> String {
    let arguments = [&["explain"], arguments].concat();
    let output = run(&arguments);
    assert!(output.status.success(), "{arguments:?} said: {}", stderr(&output));
    assert_eq!(stderr(&output), "", "{arguments:?}");
    stdout(&output)
}

#[test]
fn the_classes_of_tatp_as_people_see_them() {
    let each = TATP.map(|class| {
        let text = explained(&["tatp", class]);
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
        insta::assert_snapshot!(class, text);
        text
    });
    assert_eq!(explained(&["tatp", "all"]), each.join("\n"));
    assert_eq!(explained(&["tatp"]), each.join("\n"));
}

#[test]
fn the_classes_of_tpcc_as_people_see_them() {
    let all = explained(&["tpcc"]);
    let mut starts: Vec<usize> =
        TPCC.iter().map(|class| all.find(&format!("{class}: ")).expect("every class is drawn")).collect();
    assert!(starts.is_sorted());
    starts.push(all.len());
    for (class, bounds) in TPCC.iter().zip(starts.windows(2)) {
        insta::assert_snapshot!(*class, all[bounds[0]..bounds[1]].trim_end());
    }
    assert_eq!(explained(&["tpcc", "delivery"]).trim_end(), all[starts[3]..starts[4]].trim_end());
}

#[test]
fn the_microbenchmark_is_one_phase_of_rows() {
    let text = explained(&["micro", "all"]);
    for class in MICRO {
        assert!(text.contains(&format!("{class}: 1 action in 1 phase, 1 synchronization point")), "{text}");
    }
    for (class, part) in [("read-multisite", "│ R(COUN) x 10 │"), ("update-local", "│ U(COUN) x 10 │")]
    {
        assert!(explained(&["micro", class]).contains(part));
    }
}

#[test]
fn tpcb_updates_three_rows_and_appends_one() {
    for class in ["account-update", "account-update-remote"] {
        insta::assert_snapshot!(class, explained(&["tpcb", class]));
    }
}

#[test]
fn operations_of_ycsb_are_one_action_each_and_several_are_one_phase() {
    let single = [("read", "R"), ("update", "U"), ("insert", "I"), ("scan", "S"), ("read-modify-write", "U")];
    for (class, letter) in single {
        let text = explained(&["ycsb", class]);
        assert!(text.contains(&format!("{class}: 1 action in 1 phase, 0 synchronization points")), "{text}");
        assert!(text.contains(&format!("{letter}(USER)")), "{text}");
    }
    for class in ["read-only", "read-write"] {
        insta::assert_snapshot!(class, explained(&["ycsb", class]));
    }
}

#[test]
fn the_classes_of_smallbank_as_people_see_them() {
    for class in
        ["balance", "deposit-checking", "transact-savings", "amalgamate", "write-check", "send-payment"]
    {
        insta::assert_snapshot!(class, explained(&["smallbank", class]));
    }
}

/// The words of a graph in the language of Graphviz: names, quoted strings, arrows, and single other characters.
fn words(graph: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut letters = graph.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                let mut word = String::from('"');
                loop {
                    match letters.next().expect("a string ends") {
                        '"' => break,
                        '\\' => word.push(letters.next().expect("something is escaped")),
                        letter => word.push(letter),
                    }
                }
                words.push(word);
            }
            '-' => {
                assert_eq!(letters.next(), Some('>'), "{graph}");
                words.push("->".to_owned());
            }
            letter if letter.is_alphanumeric() || letter == '_' => {
                let mut word = String::from(letter);
                while let Some(letter) = letters.next_if(|letter| letter.is_alphanumeric() || *letter == '_')
                {
                    word.push(letter);
                }
                words.push(word);
            }
            letter if letter.is_whitespace() => {}
            letter => words.push(letter.to_string()),
        }
    }
    words
}

/// Checks one graph by the grammar of Graphviz, as far as it is used, and returns the numbers of its nodes and edges.
fn check_graph(words: &mut std::vec::IntoIter<String>) -> (usize, usize) {
    assert_eq!(words.next().as_deref(), Some("digraph"));
    assert!(words.next().expect("a name").starts_with('"'));
    assert_eq!(words.next().as_deref(), Some("{"));
    let (mut depth, mut nodes, mut ends, mut edges) = (1, BTreeSet::new(), BTreeSet::new(), 0);
    while depth > 0 {
        let mut statement = Vec::new();
        for word in words.by_ref() {
            match word.as_str() {
                ";" => break,
                "{" => {
                    assert!(statement.is_empty(), "{statement:?} is before a group");
                    depth += 1;
                }
                "}" => {
                    assert!(statement.is_empty(), "{statement:?} does not end");
                    depth -= 1;
                    break;
                }
                _ => statement.push(word),
            }
        }
        let Some(first) = statement.first().cloned() else { continue };
        let mut rest: &[String] = &statement[1..];
        if rest.first().is_some_and(|word| word == "=") {
            assert_eq!(rest.len(), 2, "{statement:?}");
            continue;
        }
        let is_edge = rest.first().is_some_and(|word| word == "->");
        if is_edge {
            ends.extend([first, rest[1].clone()]);
            edges += 1;
            rest = &rest[2..];
        } else if first != "node" {
            assert!(nodes.insert(first), "a node is declared twice");
        }
        if let [open, attributes @ .., close] = rest {
            assert_eq!((open.as_str(), close.as_str()), ("[", "]"), "{statement:?}");
            for attribute in attributes.split(|word| word == ",") {
                assert!(matches!(attribute, [_, equals, _] if equals == "="), "{attribute:?}");
            }
        }
    }
    assert!(ends.is_subset(&nodes), "edges name {:?}, which is not declared", ends.difference(&nodes));
    (nodes.len(), edges)
}

#[test]
fn graphviz_can_read_the_graphs() {
    for (workload, classes) in [("tatp", &TATP[..]), ("tpcc", &TPCC), ("micro", &MICRO)] {
        let all = explained(&[workload, "all", "--dot"]);
        let mut words = words(&all).into_iter();
        // Those of the microbenchmark come from two configurations, which are both meant.
        let flows: Vec<ClassFlow> =
            serde_json::from_str(&explained(&[workload, "all", "--json"])).expect("a list of flow graphs");
        assert!(flows.iter().map(|flow| flow.name.as_str()).eq(classes.iter().copied()));
        for (class, flow) in classes.iter().zip(flows) {
            let meetings: usize = flow.sync_points.iter().map(|point| point.actions.len()).sum();
            let expected = (flow.actions.len() + flow.sync_points.len(), flow.dependencies.len() + meetings);
            assert_eq!(check_graph(&mut words), expected, "{class}");
        }
        assert_eq!(words.next(), None, "nothing follows the last graph");
    }
    insta::assert_snapshot!("update-location.dot", explained(&["tatp", "update-location", "--dot"]));
}

#[test]
fn json_is_what_traces_hold() {
    let list: Vec<ClassFlow> = serde_json::from_str(&explained(&["tatp", "all", "--json"])).expect("a list");
    assert!(list.iter().map(|flow| flow.name.as_str()).eq(TATP));
    for flow in &list {
        flow.check(5).expect("a graph of four tables and an index");
        assert!(flow.count > 100, "{}", flow.name);
        let one = explained(&["tatp", &flow.name, "--json"]);
        assert_eq!(&serde_json::from_str::<ClassFlow>(&one).expect("a flow graph"), flow);
    }
    let insert: Value = serde_json::from_str(&explained(&["tatp", TATP[5], "--json"])).expect("JSON");
    assert_eq!(insert["dependencies"][1]["key"], "s_id, sf_type");
    assert_eq!(insert["actions"][2]["repeat_min"], 0);
}

#[test]
fn what_is_unknown_is_refused_with_what_is_known() {
    let complaint = refused(&["explain", "tpcw", "new-order"]);
    assert!(complaint.contains("'tpcw'") && complaint.contains("tatp, tpcc, tpcb, micro"), "{complaint}");
    let complaint = refused(&["explain", "tatp", "new-order"]);
    assert!(complaint.contains("'new-order'"), "{complaint}");
    assert!(TATP.iter().all(|class| complaint.contains(class)), "{complaint}");
    let complaint = refused(&["explain", "micro", "standard"]);
    assert!(MICRO.iter().all(|class| complaint.contains(class)), "{complaint}");
    let complaint = refused(&["explain", "", ""]);
    assert!(complaint.contains("choose one of"), "{complaint}");
    for arguments in [&["explain"][..], &["explain", "tatp", "all", "--dot", "--json"]] {
        assert_eq!(run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}
