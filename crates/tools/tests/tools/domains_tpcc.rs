//! `bench domains-tpcc` and its experiments: New-Order and Payment on structures in domains.

use serde_json::Value;

use crate::support::{refused, run, stderr, stdout};

/// A small database.
const SMALL: [&str; 7] = ["--warehouses", "2", "--items", "100", "--customers", "30", "--no-pin"];

/// Runs a command with a file for its JSON, and returns its text and its JSON.
fn result_of(arguments: &[&str]) -> (String, Value) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("result.json");
    let arguments = [arguments, &SMALL, &["--json", path.to_str().expect("text")]].concat();
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?} said: {}", stderr(&output));
    let text = std::fs::read_to_string(&path).expect("the file");
    (stdout(&output), serde_json::from_str(&text).expect("one JSON object"))
}

#[test]
fn new_order_and_payment_are_measured_and_audited() {
    for (structure, design) in [("fp-tree", "se"), ("owned-tree", "sn-thread")] {
        let base = ["bench", "domains-tpcc", "--seconds", "0.05", "--rounds", "2", "--remote", "0.5"];
        let more = ["--structure", structure, "--design", design, "--clients", "1", "--workers", "1"];
        let (text, json) = result_of(&[&base[..], &more].concat());
        assert_eq!(json["audit"]["passed"], true, "{json}");
        assert_eq!(
            (&json["config"]["structure"], &json["config"]["design"]),
            (&structure.into(), &design.into())
        );
        let rounds = json["rounds"].as_array().expect("rounds");
        assert_eq!(rounds.len(), 2);
        for round in rounds {
            assert!(
                round["new_orders"].as_u64() > Some(0) && round["payments"].as_u64() > Some(0),
                "{round}"
            );
        }
        assert!(json["throughput_tps"].as_f64() > Some(0.0));
        assert!(text.contains("no isolation") && text.contains("audit       passed"), "{text}");
    }
}

#[test]
fn figure_13_has_structures_without_isolation_and_the_engine_with_it() {
    let quick = ["--seconds", "0.02", "--rounds", "1", "--structures", "hash-map,owned-hash-map"];
    let (text, json) = result_of(
        &[&["experiment", "domains-tpcc", "--at", "0,0.75"], &quick[..], &["--workers", "2"]].concat(),
    );
    let points = json["points"].as_array().expect("a list");
    // Four designs of the shared structure and two with direct use of parts, one of the owned one, and the engine, at two shares.
    assert_eq!(points.len(), 16);
    let command = |point: &Value| point["command"].as_str().expect("a command").to_owned();
    let engine: Vec<String> =
        points.iter().map(command).filter(|command| command.contains("bench tpcc")).collect();
    assert!(engine.len() == 2 && engine[0].contains("--mix new-order-payment"), "{engine:?}");
    for point in points {
        let least = point["readings"]["throughput_tps"]["least"].as_f64();
        assert!(least.is_some_and(|tps| tps > 0.0), "{point}");
    }
    let direct = |design: &str| {
        let design = format!("--design {design}");
        points
            .iter()
            .map(command)
            .filter(|command| command.contains(&design) && command.contains("--direct"))
            .count()
    };
    assert_eq!((direct("sn-thread"), direct("sn-numa")), (2, 2));
    assert!(text.contains("engine, isolated") && text.contains("% remote transactions"), "{text}");
    let by_threads = ["experiment", "domains-tpcc-threads", "--at", "2,4"];
    let (_, json) = result_of(&[&by_threads[..], &quick].concat());
    let sizes = json["points"].as_array().expect("a list").iter();
    let sizes = sizes.filter(|point| command(point).contains("--domain-size 2")).count();
    assert_eq!(sizes, 1, "domains of two need two workers: {json}");
}

/// Every workload runs; how much of it does in so short a time depends on what else the machine does.
#[test]
fn transactions_run_on_structures_in_domains() {
    let domains =
        ["--engine", "domains", "--durability", "none", "--seconds", "0.1", "--warmup", "0", "--no-pin"];
    let tpcc = ["bench", "tpcc", "--warehouses", "2", "--items", "100", "--customers", "30"];
    for (bench, structure) in [
        (&tpcc[..], "owned-tree"),
        (&["bench", "tatp", "--subscribers", "300"], "owned-tree"),
        (&["bench", "tpcb", "--branches", "2"], "owned-tree"),
        (&["bench", "smallbank"], "owned-hash-map"),
        (&["bench", "micro"], "owned-hash-map"),
        (&["bench", "ycsb", "--rows", "500"], "owned-hash-map"),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("result.json");
        let more = [
            "--structure",
            structure,
            "--workers",
            "2",
            "--clients",
            "2",
            "--json",
            path.to_str().expect("text"),
        ];
        let arguments = [bench, &domains, &more].concat();
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?} said: {}", stderr(&output));
        let text = std::fs::read_to_string(&path).expect("the file");
        let json: Value = serde_json::from_str(&text).expect("one JSON object");
        let config = &json["config"];
        assert_eq!((&config["engine"], &config["structure"]), (&"domains".into(), &structure.into()));
        assert_eq!((&config["workers"], &config["clients"]), (&2.into(), &2.into()));
        assert_eq!(json["audit"]["passed"], true, "{json}");
        assert!(stdout(&output).contains("domains, 2 threads"), "{}", stdout(&output));
    }
}

#[test]
fn what_domains_cannot_do_is_refused() {
    let tpcc = |more: &[&str]| refused(&[&["bench", "domains-tpcc"], &SMALL[..], more].concat());
    for (more, parts) in [
        (&["--structure", "tree"][..], &["'tree'", "fp-tree"][..]),
        (&["--remote", "2"], &["2", "0 to 1"]),
        (&["--workers", "3", "--clients", "1"], &["3 domains", "2 warehouses"]),
        (&["--group", "0"], &["group of 0", "1 to 1024"]),
        (&["--design", "configured"], &["size"]),
        (&["--design", "se", "--direct"], &["se has no parts", "sn-thread"]),
        (
            &["--design", "sn-thread", "--direct", "--domain-size", "2"],
            &["sn-thread has domains of its own size", "leave the size out"],
        ),
        (&["--rounds", "0"], &["--rounds 0"]),
        (&["--seconds", "0"], &["--seconds 0"]),
    ] {
        let complaint = tpcc(more);
        assert!(parts.iter().all(|part| complaint.contains(part)), "{more:?}: {complaint}");
    }
    for (more, parts) in [
        (&["--engine", "domains"][..], &["no log", "--durability none"][..]),
        (
            &["--engine", "domains", "--durability", "none", "--structure", "fp-tree"],
            &["'fp-tree'", "owned-tree"],
        ),
        (
            &["--engine", "domains", "--durability", "none", "--instances", "2"],
            &["one process", "--instances"],
        ),
        (&["--structure", "owned-tree"], &["--structure", "--engine domains"]),
    ] {
        let complaint = refused(&[&["bench", "tatp"], more].concat());
        assert!(parts.iter().all(|part| complaint.contains(part)), "{more:?}: {complaint}");
    }
}
