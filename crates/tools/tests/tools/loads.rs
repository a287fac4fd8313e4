//! `bench domains`: structures under loads, used directly and delegated.

use serde_json::Value;

use crate::support::{refused, run, stderr, stdout};

/// A benchmark that is over soon, on few records and unpinned threads.
const QUICK: [&str; 12] = [
    "bench",
    "domains",
    "--no-pin",
    "--records",
    "300",
    "--operations",
    "200",
    "--clients",
    "1",
    "--workers",
    "1",
    "--rounds=2",
];

/// Runs it, and returns its text and its JSON.
fn measured(more: &[&str]) -> (String, Value) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("result.json");
    let arguments = [&QUICK[..], more, &["--json", path.to_str().expect("text")]].concat();
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?} said: {}", stderr(&output));
    let text = std::fs::read_to_string(&path).expect("the file");
    (stdout(&output), serde_json::from_str(&text).expect("one JSON object"))
}

fn names(json: &Value) -> Vec<&str> {
    let sides = json["sides"].as_array().expect("a list");
    sides.iter().map(|side| side["name"].as_str().expect("a name")).collect()
}

/// Every side was audited and has a throughput in each round.
fn assert_sides_are_whole(json: &Value, rounds: usize) {
    for side in json["sides"].as_array().expect("a list") {
        assert_eq!(side["audit"]["passed"], true, "{side}");
        assert_eq!(side["runs"].as_array().map(Vec::len), Some(rounds), "{side}");
        assert!(side["throughput_tps"].as_f64().is_some_and(|tps| tps > 0.0), "{side}");
        assert!(side["variation"].is_f64() && side["ns_per_operation"].is_f64(), "{side}");
        assert!(
            side["factor_to_best"].as_f64().is_some_and(|factor| (0.0..=1.0).contains(&factor)),
            "{side}"
        );
    }
}

#[test]
fn a_design_that_delegates_is_measured_beside_direct_use() {
    let (text, json) =
        measured(&["--structure", "hash-map", "--workload", "ycsb-d", "--burst=3", "--ungrouped"]);
    assert_eq!(names(&json), ["sn-thread", "direct"]);
    assert_sides_are_whole(&json, 2);
    assert_eq!((&json["main"], &json["design"]), (&"sn-thread".into(), &"sn-thread".into()));
    assert_eq!(json["throughput_tps"], json["sides"][0]["throughput_tps"]);
    assert!(json["cost"]["delegated_ns"].is_f64() && json["cost"]["direct_ns"].is_f64());
    let delegation = &json["cost"]["delegation"];
    assert!(
        delegation["requests_per_operation"]
            .as_f64()
            .is_some_and(|requests| requests > 0.0 && requests <= 1.0)
    );
    assert!(delegation["waits_per_operation"].is_f64() && delegation["waiting_ns"].is_f64(), "{delegation}");
    let (delegated, direct) = (&json["sides"][0], &json["sides"][1]);
    assert_eq!((&delegated["burst"], &direct["burst"]), (&3.into(), &Value::Null));
    assert_eq!(delegated["arrangement"]["clients"], 1);
    assert_eq!(delegated["arrangement"]["domains"], serde_json::json!([1]));
    let classes = delegated["classes"].as_object().expect("classes");
    assert_eq!(classes.values().filter_map(Value::as_u64).sum::<u64>(), 200);
    assert!(classes["insert"].as_u64().is_some_and(|count| count > 0) && classes["update"] == 0);
    for part in [
        "ycsb-d on hash-map",
        "bursts of 3, one after the other",
        "cost ",
        "delegation ",
        "variation",
        "audit       passed",
    ] {
        assert!(text.contains(part), "no '{part}' in:\n{text}");
    }
}

#[test]
fn all_designs_are_compared_and_configured_chooses_among_arrangements() {
    let (text, json) = measured(&["--structure", "b-tree", "--workload", "ycsb-a", "--all-designs"]);
    assert_eq!(names(&json), ["se", "se-numa", "sn-numa", "sn-thread", "configured"]);
    assert_sides_are_whole(&json, 2);
    assert_eq!(json["tried"].as_array().map(Vec::len), Some(3), "directly twice, and a domain of one");
    assert!(json["sides"][0]["contention"]["abort_ratio"].is_f64());
    let best = json["sides"].as_array().expect("a list").iter().find(|side| side["factor_to_best"] == 1.0);
    assert_eq!(best.expect("one is the best")["name"], json["main"]);
    assert!(text.contains("to the best") && text.contains("tried "), "{text}");

    let (text, json) = measured(&["--structure", "owned-tree", "--all-designs"]);
    assert_eq!(names(&json), ["sn-numa", "sn-thread", "configured"]);
    assert!(json["left_out"]["se"].as_str().is_some_and(|why| why.contains("sn-thread")), "{json}");
    assert!(text.contains("left out: owned-tree belongs to one worker"), "{text}");
}

#[test]
fn bursts_of_all_sizes_are_compared_with_direct_use() {
    let ladder = ["--structure", "owned-hash-map", "--burst-ladder", "--rounds", "1"];
    let (text, json) = measured(&ladder);
    let sizes: Vec<u64> =
        json["sides"].as_array().expect("a list").iter().filter_map(|side| side["burst"].as_u64()).collect();
    assert_eq!(sizes, [1, 2, 4, 8, 16, 32, 64]);
    assert_eq!(names(&json)[0], "direct");
    assert!(json["variation"].is_null() && json["cost"]["ratio"].is_f64());
    assert!(text.contains("burst of 64") && text.contains("to direct use"), "{text}");
}

#[test]
fn a_structure_used_directly_has_nothing_to_be_compared_with() {
    let (text, json) = measured(&["--design", "se", "--workload", "update-only"]);
    assert_eq!((names(&json), &json["cost"]), (vec!["se"], &Value::Null));
    assert_eq!(json["sides"][0]["arrangement"]["domains"], serde_json::json!([2]));
    assert!(text.contains("direct use by 2 threads"), "{text}");
    let (_, json) = measured(&["--design", "sn-numa", "--alone"]);
    assert_eq!((names(&json), &json["cost"]), (vec!["sn-numa"], &Value::Null));
    let (_, json) = measured(&["--design", "configured", "--domain-size", "1"]);
    assert_eq!((names(&json), &json["tried"]), (vec!["configured", "direct"], &Value::Null));
}

#[test]
fn a_design_is_set_beside_what_its_threads_could_do_at_most() {
    let (text, json) = measured(&["--structure", "b-tree", "--workload", "ycsb-a", "--bound"]);
    assert_eq!(names(&json), ["sn-thread", "se", "together"]);
    assert_sides_are_whole(&json, 2);
    let bound = |key: &str| json["bound"][key].as_f64().expect("a number");
    assert!(bound("workers_tps") > 0.0 && bound("clients_tps") > 0.0);
    let most = bound("workers_tps").min(bound("clients_tps")) / bound("direct_tps");
    assert!((most - bound("most_to_direct")).abs() < 1e-9, "{json}");
    assert!(text.contains("16 operations together, drawn before") && text.contains("bound  "), "{text}");
    for (design, why) in [("se", "delegates nothing"), ("sn-thread", "owned-tree belongs to one worker")] {
        let structure = if design == "se" { "b-tree" } else { "owned-tree" };
        let options = ["bench", "domains", "--structure", structure, "--design", design, "--bound"];
        let complaint = refused(&options);
        assert!(complaint.contains(why), "{complaint}");
    }
}

#[test]
fn designs_of_several_structures_and_workloads_are_in_one_table() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("result.json").to_str().expect("text").to_owned();
    let quick = ["--records", "300", "--seconds", "0.01", "--rounds", "1", "--no-pin", "--json", &path];
    let of =
        ["bench", "domains-designs", "--structures", "b-tree,owned-tree", "--workloads", "ycsb-a,ycsb-d"];
    let output = run(&[&of[..], &["--clients", "1", "--workers", "1"], &quick].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: Value =
        serde_json::from_str(&std::fs::read_to_string(&path).expect("the file")).expect("one JSON object");
    let loads = json["loads"].as_array().expect("a list");
    let named: Vec<_> = loads.iter().map(|load| (&load["structure"], &load["workload"])).collect();
    assert_eq!(named.len(), 4, "{named:?}");
    for load in loads {
        let candidates = load["candidates"].as_array().expect("a list");
        assert!(candidates.iter().any(|one| one["factor_to_best"] == 1.0), "{load}");
        assert!(load["factor_to_best"].as_f64() >= load["worst_factor_to_best"].as_f64(), "{load}");
    }
    let text = stdout(&output);
    assert!(text.contains("worst rigid") && text.contains("configured  at least 0.95"), "{text}");
    let complaint = refused(&["bench", "domains-designs", "--structures", "b-trie"]);
    assert!(complaint.contains("no structure 'b-trie'"), "{complaint}");
}

/// Runs an experiment, and returns its text and its JSON.
fn experiment(name: &str, more: &[&str]) -> (String, Value) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |file: &str| directory.path().join(file).to_str().expect("text").to_owned();
    let (json, svg) = (path("result.json"), path("result.svg"));
    let quick = ["--records", "300", "--seconds", "0.01", "--rounds", "2", "--workers", "2", "--no-pin"];
    let arguments = [&["experiment", name], more, &quick, &["--json", &json, "--svg", &svg]].concat();
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?} said: {}", stderr(&output));
    let read = |path: &str| std::fs::read_to_string(path).expect("the file");
    assert!(read(&svg).starts_with("<svg "));
    (stdout(&output), serde_json::from_str(&read(&json)).expect("one JSON object"))
}

#[test]
fn structures_are_compared_by_design() {
    let more = ["--structures", "hash-map,owned-tree", "--workloads", "ycsb-a"];
    let (text, json) = experiment("domains-designs", &more);
    let points = json["points"].as_array().expect("a list");
    let of = |label: &str| points.iter().filter(|point| point["label"] == label).count();
    assert_eq!((of("hash-map ycsb-a"), of("owned-tree ycsb-a")), (5, 2), "an owned one has no shared design");
    for point in points {
        assert!(
            point["readings"]["throughput_tps"]["least"].as_f64().is_some_and(|tps| tps > 0.0),
            "{point}"
        );
        let command = point["command"].as_str().expect("a command");
        assert!(command.contains("--clients 1 --workers 1") && command.contains("--alone"), "{command}");
    }
    assert!(text.contains("operations/s by structure and workload") && text.contains("configured"), "{text}");
}

#[test]
fn a_thousand_structures_run_in_two_domains_of_one_worker() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("result.json");
    for kind in ["hash-map", "owned-tree"] {
        let bench = ["bench", "domains-structures", "--structure", kind, "--workload", "ycsb-d", "--no-pin"];
        let size = ["--structures", "1000", "--records", "20000", "--domains", "2", "--workers", "2"];
        let length = ["--seconds", "0.2", "--rounds", "1", "--json", path.to_str().expect("text")];
        let arguments = [&bench[..], &size, &length].concat();
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?} said: {}", stderr(&output));
        assert!(stdout(&output).contains("audit       passed"), "{}", stdout(&output));
        let json: Value = serde_json::from_str(&std::fs::read_to_string(&path).expect("the file"))
            .expect("one JSON object");
        assert_eq!(
            (&json["config"]["structures"], &json["config"]["domains"]),
            (&1000.into(), &serde_json::json!([1, 1]))
        );
        assert!(json["throughput_tps"].as_f64().is_some_and(|tps| tps > 0.0), "{json}");
        let (access, clients) = (&json["config"]["access"], &json["config"]["clients"]);
        assert!(*access == "delegated" && clients.is_u64(), "{json}");
    }
    let bench = ["bench", "domains-structures", "--structure", "hash-map", "--design", "se", "--no-pin"];
    let size = ["--structures", "9", "--records", "900", "--seconds", "0.05", "--rounds", "1"];
    let output = run(&[&bench[..], &size, &["--json", path.to_str().expect("text")]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: Value =
        serde_json::from_str(&std::fs::read_to_string(&path).expect("the file")).expect("one JSON object");
    let (access, clients) = (&json["config"]["access"], &json["config"]["clients"]);
    assert!(*access == "direct" && clients.is_null(), "threads are no clients: {json}");
    for (more, words) in [
        (&["--structures", "0"][..], "0 structures"),
        (&["--structures", "9", "--records", "8"], "a record for each"),
        (&["--domains", "3", "--workers", "2"], "a worker for each domain"),
        (&["--structure", "tree"], "'tree'"),
        (&["--design", "numa"], "'numa'"),
        (&["--design", "se", "--structure", "owned-tree"], "sn-thread"),
        (&["--design", "sn-thread", "--domains", "1"], "leave the size out"),
    ] {
        let complaint = refused(&[&["bench", "domains-structures"], more].concat());
        assert!(complaint.contains(words), "{complaint}");
    }
}

#[test]
fn time_without_service_is_measured_by_what_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("result.json");
    let bench = ["bench", "domains-service", "--rounds", "2", "--pause", "0.2", "--no-pin", "--json"];
    let arguments = [&bench[..], &[path.to_str().expect("text")]].concat();
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?} said: {}", stderr(&output));
    let json: Value =
        serde_json::from_str(&std::fs::read_to_string(&path).expect("the file")).expect("one JSON object");
    assert_eq!((&json["changes"], &json["audit"]["passed"]), (&12.into(), &true.into()), "{json}");
    for disturbance in ["quiet", "move", "grow", "shrink", "split", "merge"] {
        let gaps = &json["gaps"][disturbance];
        assert!(gaps["longest_ns"].is_u64(), "{json}");
        assert!(gaps["above_1_ms_without_waits"].is_u64(), "{json}");
        assert!(stdout(&output).contains(disturbance), "{}", stdout(&output));
    }
    assert!(refused(&["bench", "domains-service", "--rounds", "0"]).contains("--rounds 0"));
}

#[test]
fn numbers_of_structures_are_compared() {
    let more = ["--structures", "papaya,owned-tree", "--at", "1,40"];
    let (text, json) = experiment("domains-structures", &more);
    let points = json["points"].as_array().expect("a list");
    // One that workers share has four designs, one that one of them owns two.
    assert_eq!((points.len(), &json["y"]), (12, &"throughput_tps".into()));
    assert!(text.contains("operations/s by structures"), "{text}");
    for series in ["papaya, se", "papaya, sn-thread", "owned-tree, configured"] {
        assert!(text.contains(series), "{text}");
    }
}

#[test]
fn delegation_is_compared_by_burst_size() {
    let (text, json) = experiment("domains-burst", &["--structures", "papaya,owned-hash-map", "--at", "1,9"]);
    let points = json["points"].as_array().expect("a list");
    assert_eq!((points.len(), &json["y"]), (4, &"ns_per_operation".into()));
    for reading in ["ns_per_operation", "direct_ns"] {
        assert!(points.iter().all(|point| point["readings"][reading]["median"].is_f64()), "{reading}");
    }
    assert!(text.contains("\nper operation\n") && text.contains("direct ns"), "{text}");
    let complaint = refused(&["experiment", "domains-burst", "--at", "1,65"]);
    assert!(complaint.contains("65") && complaint.contains("1 to 64"), "{complaint}");
    let complaint = refused(&["experiment", "domains-designs", "--records", "0"]);
    assert!(complaint.contains("at least 1"), "{complaint}");
}

#[test]
fn loads_that_make_no_sense_are_refused() {
    for (more, parts) in [
        (&["--structure", "tree"][..], &["'tree'", "b-tree", "owned-hash-map"][..]),
        (&["--workload", "ycsb-b"], &["'ycsb-b'", "ycsb-d", "insert-only"]),
        (&["--design", "numa"], &["'numa'", "sn-numa", "configured"]),
        (&["--records", "0"], &["records", "at least 1"]),
        (&["--records", "99999999999999"], &["records", "at most"]),
        (&["--records", "900000000000"], &["memory", "fit"]),
        (&["--theta=-1"], &["-1", "0.99"]),
        (&["--operations", "0"], &["0 operations"]),
        (&["--rounds", "0"], &["--rounds 0", "1 to"]),
        (&["--burst", "65"], &["65", "1 to 64"]),
        (&["--burst", "0"], &["0", "1 to 64"]),
        (&["--clients", "0"], &["clients", "at least 1"]),
        (&["--workers", "0"], &["workers", "at least 1"]),
        (&["--clients", "2000"], &["2000", "slots", "at most"]),
        (&["--domain-size", "2"], &["sn-thread", "configured"]),
        (&["--design", "configured", "--domain-size", "2"], &["domains of 2", "at most 1"]),
        (&["--design", "se", "--burst-ladder"], &["--burst-ladder", "sn-thread"]),
        (&["--design", "configured", "--burst-ladder"], &["size"]),
        (&["--design", "se", "--structure", "owned-tree"], &["owned-tree", "one worker", "sn-thread"]),
    ] {
        let complaint = refused(&[&QUICK[..], more].concat());
        assert!(parts.iter().all(|part| complaint.contains(part)), "{more:?}: {complaint}");
    }
    let complaint = refused(&["bench", "domains", "--seconds", "0"]);
    assert!(complaint.contains("--seconds 0"), "{complaint}");
}
