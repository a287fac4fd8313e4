//! `atrapos experiment` at tiny sizes: what it prints and writes, never how fast anything is; and what `bench` says and records
//! of adaptation.

use serde_json::Value;

use crate::support::{quick, refused, run, stderr, stdout};

/// The output and the files of a quick experiment.
struct Result {
    text: String,
    json: Value,
    csv: String,
    svg: String,
}

fn experiment(name: &str, more: &[&str]) -> Result {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |file: &str| directory.path().join(file).to_str().expect("text").to_owned();
    let (json, csv, svg) = (path("result.json"), path("result.csv"), path("result.svg"));
    let mut arguments = vec!["experiment", name, "--no-pin", "--workers", "2", "--sessions", "4"];
    arguments.extend(["--seconds-per-phase", "1", "--pairs", "1"]);
    arguments.extend(["--rows", if name == "repartition-cost" { "3000" } else { "400" }]);
    arguments.extend(["--json", &json, "--csv", &csv, "--svg", &svg]);
    arguments.extend(more);
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?} said: {}", stderr(&output));
    assert_eq!(std::fs::read_dir(directory.path()).expect("the directory").count(), 3, "three files, whole");
    let read = |path: &str| std::fs::read_to_string(path).expect("the file");
    let text = stdout(&output);
    assert!(text.is_ascii() && !text.contains('\r'), "{text}");
    let json = serde_json::from_str(&read(&json)).expect("one JSON object");
    Result { text, json, csv: read(&csv), svg: read(&svg) }
}

/// Returns true if the machine stood still for so long that nothing is left of a phase: phases end by the clock.
fn was_missed(phase: &Value) -> bool {
    let second = |key: &str| phase[key].as_f64();
    second("begin_s").zip(second("end_s")).is_some_and(|(begin, end)| end - begin < 0.1)
}

/// Every experiment has these; the names of the phases are `phases`.
fn assert_is_a_result(result: &Result, name: &str, phases: &[&str], is_adaptive: bool) {
    let json = &result.json;
    assert_eq!(json["experiment"], name);
    assert!(json["commit"].is_string() && json["machine"].is_object() && json["config"].is_object());
    assert!(json["decisions"].is_array());
    let each = json["phases"].as_array().expect("a list");
    let names: Vec<&str> = each.iter().filter_map(|phase| phase["name"].as_str()).collect();
    assert_eq!(names, phases);
    for phase in each.iter().filter(|phase| !was_missed(phase)) {
        assert!(phase["static_tps"].as_f64().is_some_and(|tps| tps > 0.0), "{phase}");
        for key in ["adaptive_tps", "ratio"] {
            assert_eq!(
                phase[key].as_f64().is_some_and(|number| number > 0.0),
                is_adaptive,
                "{key} of {phase}"
            );
        }
        let after = phase.get("adapted_after_s").expect("the key is there");
        assert!(after.is_null() || after.as_f64().is_some_and(|after| after >= 0.0), "{phase}");
        assert!(result.text.contains(phase["name"].as_str().expect("a name")), "{}", result.text);
    }
    assert_is_a_drawing(&result.svg);
}

/// Every element is closed, in the order in which they were opened.
fn assert_is_a_drawing(svg: &str) {
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("every tag ends");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name.trim())),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split_whitespace().next().expect("a name")),
        }
    }
    assert!(open.is_empty(), "{open:?} are not closed");
}

/// The throughput over time of each side: times ascend within each.
fn assert_is_a_timeline(csv: &str, sides: &[&str]) {
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("time_s,side,tps"));
    let rows: Vec<(f64, &str, f64)> = lines
        .map(|line| {
            let columns: Vec<&str> = line.split(',').collect();
            let [time, side, tps] = columns[..] else { panic!("three columns: {line}") };
            (time.parse().expect("a time"), side, tps.parse().expect("a rate"))
        })
        .collect();
    for side in sides {
        let times: Vec<f64> = rows.iter().filter(|row| row.1 == *side).map(|row| row.0).collect();
        assert!(times.len() >= 5 && times.is_sorted_by(|a, b| a < b), "{side}: {times:?}");
    }
    assert!(rows.iter().all(|row| sides.contains(&row.1) && row.2 >= 0.0), "{csv}");
}

#[test]
fn a_change_of_class_is_shown_side_by_side() {
    // So short an interval that the controller has something to say in a second.
    let result = experiment("adapt-workload", &["--interval", "0.05"]);
    assert_is_a_result(
        &result,
        "adapt-workload",
        &["update-subscriber-data", "get-new-destination", "mix"],
        true,
    );
    assert_is_a_timeline(&result.csv, &["static", "adaptive"]);
    assert_eq!(result.json["reference"], "best fixed scheme");
    assert!(result.json["phases"][2]["reference_tps"].as_f64().is_some_and(|tps| tps > 0.0));
    for phase in result.json["phases"].as_array().expect("a list") {
        let number = |at: &Value| at.as_f64().expect("there are two pairs of slices");
        let (low, high) = (number(&phase["ratio_interval"][0]), number(&phase["ratio_interval"][1]));
        assert!(low <= number(&phase["ratio"]) && number(&phase["ratio"]) <= high, "{phase}");
    }
    let decisions = result.json["decisions"].as_array().expect("a list");
    assert!(!decisions.is_empty());
    for decision in decisions {
        assert!(decision["time_s"].is_f64() && decision["action"].is_string(), "{decision}");
        assert!(decision["sentence"].as_str().is_some_and(|sentence| sentence.ends_with('.')), "{decision}");
    }
    assert!(result.text.contains("decisions  "), "{}", result.text);
    assert!(result.svg.contains("adaptive") && result.svg.contains("static"), "both lines have a name");
}

#[test]
fn mirrored_pairs_are_shown_beside_the_best_fixed_scheme() {
    let result = experiment("adapt-mirrored", &[]);
    assert_is_a_result(&result, "adapt-mirrored", &["mirrored pairs"], true);
    assert_is_a_timeline(&result.csv, &["static", "adaptive"]);
    assert_eq!(result.json["reference"], "best fixed scheme");
    assert!(result.json["phases"][0]["reference_tps"].as_f64().is_some_and(|tps| tps > 0.0));
    assert!(result.text.contains("400 rows"), "{}", result.text);
}

#[test]
fn tables_apart_are_shown_beside_tables_together() {
    let result = experiment("adapt-apart", &["--interval", "0.05"]);
    let loads = ["TATP, one hot subscriber", "TPC-C, one warehouse"];
    assert_is_a_result(&result, "adapt-apart", &loads, true);
    for (phase, tables) in result.json["phases"].as_array().expect("a list").iter().zip([5, 11]) {
        assert!(phase["together_tps"].as_f64().is_some_and(|tps| tps > 0.0), "{phase}");
        assert!(phase["apart_over_together"].as_f64().is_some_and(|ratio| ratio > 0.0), "{phase}");
        let owners = phase["apart_owners"].as_array().expect("a list");
        assert_eq!(owners.len(), tables, "each table and index is apart");
        for owner in owners {
            assert_eq!(owner["tables"].as_array().map(Vec::len), Some(1));
            let shares = owner["shares"].as_array().expect("a list").iter().filter_map(Value::as_f64);
            assert!((shares.sum::<f64>() - 1.0).abs() < 1e-9, "{owner}");
        }
        assert!(phase["together_owners"].as_array().is_some_and(|owners| owners.len() < tables));
    }
    assert!(result.text.contains("owners      worker 1: "), "{}", result.text);
    assert_eq!(result.csv.lines().next(), Some("time_s,load,side,tps"));
    for side in ["static", "together", "apart"] {
        assert!(result.csv.contains(&format!("\"{}\",{side},", loads[1])), "{}", result.csv);
    }
}

#[test]
fn skew_is_shown_side_by_side() {
    let result = experiment("adapt-skew", &["--rounds", "2", "--seconds-per-phase", "0.4"]);
    let phases = ["uniform", "50% to 20%", "50% to a hot 1%", "hot 1% elsewhere"];
    assert_is_a_result(&result, "adapt-skew", &phases, true);
    assert_eq!(result.json["rounds"].as_array().map(Vec::len), Some(2));
}

#[test]
fn the_loss_of_a_worker_is_shown_beside_a_fresh_start() {
    let result = experiment("adapt-failure", &["--workers", "3", "--seconds-per-phase", "0.4"]);
    assert_is_a_result(&result, "adapt-failure", &["all workers", "one lost", "all again"], true);
    assert_is_a_timeline(&result.csv, &["static", "adaptive"]);
    assert_eq!(result.json["reference"], "fresh start");
}

#[test]
fn frequent_changes_show_how_often_the_database_looks() {
    let result = experiment("adapt-frequency", &["--interval", "0.1", "--seconds-per-phase", "0.4"]);
    assert_is_a_result(&result, "adapt-frequency", &["A: get-new-destination", "B: mix", "A", "B"], true);
    let intervals = result.json["intervals"].as_array().expect("a list");
    assert!(!intervals.is_empty());
    assert!(intervals.iter().all(|at| at["interval_s"].as_f64().is_some_and(|interval| interval > 0.0)));
    assert!(result.text.contains("intervals  ") && result.svg.contains("interval, s"), "{}", result.text);
}

#[test]
fn the_cost_of_observing_is_that_of_every_mix() {
    let result = experiment("monitoring-cost", &["--seconds-per-phase", "0.2", "--pairs", "2"]);
    let mixes = ["get-subscriber-data", "get-new-destination", "update-subscriber-data", "standard"];
    assert_is_a_result(&result, "monitoring-cost", &mixes, true);
    // Two pairs have no interval, and the text says what gives one.
    assert!(result.text.contains("%*") && result.text.contains("more --pairs"), "{}", result.text);
    for phase in result.json["phases"].as_array().expect("a list") {
        let ratio = phase["ratio"].as_f64().expect("both sides ran");
        let overhead = phase["overhead"].as_f64().expect("both sides ran");
        // Written in decimal and read back, a number may be off by its last bit.
        assert!((1.0 - ratio - overhead).abs() < 1e-9, "{phase}");
        assert_eq!(phase["ratios"].as_array().map(Vec::len), Some(2), "{phase}");
        assert!(phase["ratio_interval"].is_null(), "{phase}");
    }
    assert_eq!(result.csv.lines().count(), 1 + 2 * mixes.len(), "{}", result.csv);
}

#[test]
fn the_cost_of_repartitioning_is_that_of_every_kind_number_and_size() {
    let result = experiment("repartition-cost", &[]);
    assert_is_a_result(&result, "repartition-cost", &["80 rearrangements"], true);
    let costs = result.json["costs"].as_array().expect("a list");
    assert_eq!(costs.len(), 3 * 4 * 3);
    for cost in costs {
        assert!(cost["owner_ms"].as_f64().is_some_and(|ms| ms >= 0.0), "{cost}");
        assert!(["split", "merge", "rearrange"].contains(&cost["operation"].as_str().expect("a kind")));
    }
    let sizes: std::collections::BTreeSet<u64> =
        costs.iter().filter_map(|cost| cost["rows"].as_u64()).collect();
    assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [375, 3000, 37_500]);
    assert_eq!(result.csv.lines().count(), 1 + costs.len());
    let latency = &result.json["phases"][0]["latency_us"];
    assert!(latency["adaptive_longest"].is_f64() && latency["static_p999"].is_f64(), "{latency}");
}

#[test]
fn the_steps_from_plp_are_shown_side_by_side() {
    let more = ["--rounds", "3", "--seconds-per-phase", "0.2", "--workers", "4"];
    let result = experiment("atrapos-fig6", &[&more[..], &["--topology", "pack:2 core:2 pu:1"]].concat());
    let rungs = ["centralized", "plp", "hardware-aware", "workload-aware", "placed", "per-worker"];
    assert_is_a_result(&result, "atrapos-fig6", &rungs, false);
    assert_eq!(result.csv.lines().count(), 1 + 3 * rungs.len(), "{}", result.csv);
    let phases = result.json["phases"].as_array().expect("a list");
    let number = |at: usize, key: &str| phases[at][key].as_f64().expect("a number");
    assert_eq!(phases[1]["over_plp"], 1.0);
    for (at, rung) in rungs.into_iter().enumerate() {
        assert!(number(at, "tps_least") <= number(at, "static_tps"), "{rung}");
        assert!(number(at, "static_tps") <= number(at, "tps_most"), "{rung}");
        assert_eq!(phases[at]["rounds"].as_array().map(Vec::len), Some(3));
        assert!(result.svg.contains(rung) && result.text.contains(rung), "{rung}");
        let shares = !["centralized", "per-worker"].contains(&rung);
        assert_eq!(number(at, "central_accesses") > 4.0, shares, "{rung}: {}", phases[at]);
        // Cut apart and in a row, A and B never meet on one worker; cut alike they always do. Placement brings together as many as
        // the loads allow, which differ from machine to machine.
        let (remote, aware) = (number(at, "remote_actions"), number(3, "remote_actions"));
        match rung {
            "workload-aware" => assert!(remote > 0.1, "{}", phases[at]),
            "placed" => assert!(remote <= aware + 0.01, "{} and {}", phases[at], phases[3]),
            _ => assert!(remote <= 0.1, "{rung}: {}", phases[at]),
        }
    }
}

#[test]
fn the_static_side_runs_alone() {
    let names = ["adapt-workload", "adapt-skew", "adapt-failure", "adapt-frequency"];
    for name in names.into_iter().chain(["monitoring-cost", "repartition-cost", "atrapos-fig6"]) {
        let result = experiment(name, &["--static", "--seconds-per-phase", "0.15"]);
        let phases = result.json["phases"].as_array().expect("a list");
        assert!(!phases.is_empty());
        for phase in phases {
            assert!(phase["adaptive_tps"].is_null() && phase["ratio"].is_null(), "{name}: {phase}");
            let ran = phase["static_tps"].as_f64().is_some_and(|tps| tps > 0.0);
            assert!(ran || was_missed(phase), "{name}: {phase}");
        }
        assert_eq!(result.json["decisions"].as_array().map(Vec::len), Some(0));
        assert_is_a_drawing(&result.svg);
    }
}

#[test]
fn experiments_that_make_no_sense_are_refused_before_anything_runs() {
    for (arguments, what) in [
        (&["adapt-skew", "--seconds-per-phase", "0"][..], "--seconds-per-phase 0"),
        (&["adapt-skew", "--rounds", "0"], "--rounds 0"),
        (&["atrapos-fig6", "--rows", "0"], "0 rows in each"),
        (&["atrapos-fig6", "--rows", "900000000000"], "pairs of rows need about"),
        (&["monitoring-cost", "--pairs", "0"], "--pairs 0"),
        (&["adapt-skew", "--sessions", "0"], "--sessions 0"),
        (&["adapt-skew", "--workers", "0"], "--workers 0"),
        (&["adapt-skew", "--rows", "0"], "0 subscribers"),
        (&["adapt-mirrored", "--workers", "2", "--rows", "7"], "7 rows are too few"),
        (&["adapt-apart", "--workers", "1"], "one worker has all tables"),
        (&["adapt-apart", "--rows", "0"], "0 subscribers"),
        (&["adapt-skew", "--rows", "900000000000"], "subscribers need about"),
        (&["adapt-failure", "--workers", "1"], "the only worker"),
        (&["repartition-cost", "--workers", "2", "--rows", "100"], "use at least"),
        (&["repartition-cost", "--rows", "18446744073709551615"], "use at most"),
        (&["adapt-skew", "--interval", "0"], "--interval 0"),
        (&["adapt-skew", "--threshold", "0"], "threshold"),
        (&["adapt-skew", "--sub-partitions", "0"], "0 sub-partitions"),
        (&["adapt-skew", "--sample-every", "0"], "record one in 1"),
        (&["adapt-skew", "--svg", "/"], "the SVG file / cannot be written"),
        (&["adapt-skew", "--csv", "/"], "the CSV file / cannot be written"),
        (&["adapt-skew", "--topology", "nonsense"], "nonsense"),
    ] {
        let mut all = vec!["experiment", "--seconds-per-phase", "100000"];
        all.extend(arguments);
        let complaint = refused(&all);
        assert!(complaint.contains(what), "{arguments:?} said: {complaint}");
    }
    assert_eq!(run(&["experiment"]).status.code(), Some(2));
    assert_eq!(run(&["experiment", "adapt-nothing"]).status.code(), Some(2));
    assert_eq!(run(&["bench", "tatp", "--static", "--record", "somewhere"]).status.code(), Some(2));
}

#[test]
fn bench_says_what_was_decided() {
    let decisions = |more: &[&str]| {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("result.json");
        let mut arguments = quick("tatp", more);
        arguments.extend(["--seconds", "1", "--durability", "none", "--json", path.to_str().expect("text")]);
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let json = std::fs::read_to_string(&path).expect("the file");
        let json: Value = serde_json::from_str(&json).expect("one JSON object");
        (stdout(&output), json["decisions"].as_array().expect("a list").len())
    };
    let (text, adaptive) =
        decisions(&["--interval", "0.05", "--sub-partitions", "4", "--sample-every", "16"]);
    assert!(adaptive > 0 && text.contains("decisions  "), "{text}");
    let (text, fixed) = decisions(&["--static"]);
    assert!(fixed == 0 && !text.contains("decisions  "), "{text}");
}

#[test]
fn what_a_benchmark_records_can_be_planned_from() {
    for (benchmark, family, class, actions) in
        [("tatp", "subscriber", "get-access-data", 1), ("tpcc", "warehouse", "payment", 5)]
    {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("trace.json");
        let path = path.to_str().expect("text");
        let mut arguments = quick(benchmark, &["--record", path, "--durability", "none"]);
        arguments.extend(["--sample-every", "2"]);
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let trace: Value =
            serde_json::from_str(&std::fs::read_to_string(path).expect("the file")).expect("one JSON object");
        assert_eq!(trace["workers"], 2);
        assert!(trace["samples"].as_u64().is_some_and(|samples| samples > 0), "{trace}");
        let classes = trace["classes"].as_array().expect("a list");
        let found = classes.iter().find(|found| found["name"] == class).expect("the class ran");
        assert!(found["count"].as_u64().is_some_and(|count| count > 0), "{found}");
        assert_eq!(found["actions"].as_array().map(Vec::len), Some(actions), "{found}");
        let output = run(&["plan", "--topology", "pack:1 core:2 pu:1", "--trace", path]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).contains(family), "{}", stdout(&output));
        let plan = ["plan", "--topology", "pack:1 core:2 pu:1", "--trace", path, "--mix"];
        let only = format!("{class}=1");
        let output = run(&[&plan[..], &[&only]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).contains(family), "{}", stdout(&output));
        let complaint = refused(&[&plan[..], &["nothing-at-all=1"]].concat());
        assert!(complaint.contains(class), "{complaint}");
        let complaint = refused(&[&plan[..], &["payment"]].concat());
        assert!(complaint.contains("CLASS=SHARE"), "{complaint}");
    }
}
