//! `atrapos experiment islands-...` at tiny sizes: what it prints and writes, never how fast anything is.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{refused, run, stderr, stdout};

/// The output and the files of a quick experiment.
struct Result {
    text: String,
    json: Value,
    csv: String,
    svg: String,
}

impl Result {
    fn points(&self) -> &[Value] {
        self.json["points"].as_array().expect("a list")
    }

    fn series(&self) -> Vec<&str> {
        let series = self.json["series"].as_array().expect("a list");
        series.iter().map(|name| name.as_str().expect("a name")).collect()
    }

    fn labels(&self) -> BTreeSet<&str> {
        self.points().iter().map(|point| point["label"].as_str().expect("a label")).collect()
    }
}

fn islands(name: &str, more: &[&str]) -> Result {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |file: &str| directory.path().join(file).to_str().expect("text").to_owned();
    let (json, csv, svg) = (path("result.json"), path("result.csv"), path("result.svg"));
    let mut arguments = vec!["experiment", name];
    arguments.extend(more);
    arguments.extend(["--no-pin", "--seconds", if name == "islands-breakdown" { "0.5" } else { "0.1" }]);
    arguments.extend(["--json", &json, "--csv", &csv, "--svg", &svg]);
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?} said: {}", stderr(&output));
    let read = |path: &str| std::fs::read_to_string(path).expect("the file");
    let text = stdout(&output);
    assert!(text.is_ascii() && text.starts_with(name), "{text}");
    let json = serde_json::from_str(&read(&json)).expect("one JSON object");
    let result = Result { text, json, csv: read(&csv), svg: read(&svg) };
    assert_is_a_result(&result, name);
    result
}

/// Every experiment of islands has these.
fn assert_is_a_result(result: &Result, name: &str) {
    let json = &result.json;
    assert_eq!(json["experiment"], name);
    assert!(json["commit"].is_string() && json["machine"].is_object() && json["after"].is_string());
    let rounds = json["config"]["rounds"].as_u64().expect("a number") as usize;
    let y = json["y"].as_str().expect("a key");
    let mut readings = 0;
    for point in result.points() {
        assert_eq!(point["origin"], "measured");
        assert!(point["x"].is_number() && point["oversubscribed"].is_boolean(), "{point}");
        assert!(result.series().contains(&point["series"].as_str().expect("a name")), "{point}");
        for (key, reading) in point["readings"].as_object().expect("an object") {
            let of = |key: &str| reading[key].as_f64().expect("a number");
            assert!(of("least") <= of("median") && of("median") <= of("most"), "{key} of {point}");
            let each = reading["rounds"].as_array().expect("a list").len();
            // A round of a machine that stands still has a throughput of 0, and nothing else.
            assert!(each == rounds || (each < rounds && key != "throughput_tps"), "{key} of {point}");
            readings += each;
        }
    }
    let mut lines = result.csv.lines();
    assert_eq!(lines.next(), Some("series,x,reading,round,value,origin,oversubscribed"));
    assert_eq!(lines.count(), readings, "a line for each reading");
    assert!(result.svg.starts_with("<svg ") && result.svg.trim_end().ends_with("</svg>"));
    for series in result.series().iter().filter(|_| y != "instructions") {
        assert!(result.svg.contains(series) && result.text.contains(series), "{series}");
    }
}

#[test]
fn designs_are_compared_by_the_share_of_multisite_transactions() {
    let more =
        ["--workers", "2", "--rounds", "1", "--warmup", "0.05", "--rows-per-site", "100", "--at", "0,1"];
    let result = islands("islands-multisite", &[&more[..], &["--kind", "update"]].concat());
    assert_eq!(result.series(), ["1 database", "2 instances, shm", "shared-2pl", "shared-occ", "plp"]);
    assert_eq!(result.points().len(), 10);
    for point in result.points() {
        let command = point["command"].as_str().expect("a command");
        assert!(command.starts_with("atrapos bench micro --kind update"), "{command}");
        let of = |key: &str| point["readings"][key]["median"].as_f64();
        // On a machine that stands still for so long there is nothing to count.
        if of("throughput_tps") == Some(0.0) {
            continue;
        }
        let (name, is_multisite) = (point["series"].as_str().expect("a name"), point["x"] == 100.0);
        let has_owners = !name.starts_with("shared");
        assert_eq!(of("remote_actions_per_transaction").is_some(), has_owners, "{point}");
        if has_owners {
            assert_eq!(of("remote_actions_per_transaction") > Some(0.5), is_multisite, "{point}");
            assert_eq!(of("central_accesses_per_transaction") > Some(1.0), name == "plp", "{point}");
        }
    }
}

#[test]
fn more_workers_than_processing_units_are_oversubscribed() {
    let fitting = islands("islands-counters", &["--workers", "1", "--rounds", "1"]);
    assert!(fitting.points().iter().all(|point| point["oversubscribed"] == false));
    let cpus = fitting.json["machine"]["usable_cpus"].as_u64().expect("a number");
    let more = (cpus + 1).to_string();
    let result = islands("islands-counters", &["--workers", &more, "--rounds", "1"]);
    assert!(result.points().iter().all(|point| point["oversubscribed"] == true));
    assert!(result.text.contains("* oversubscribed") && result.svg.contains("(oversubscribed)"));
}

#[test]
fn times_are_those_of_a_worker() {
    let more = ["--workers", "2", "--rounds", "2", "--designs", "database", "--warmup", "0.05"];
    let result = islands("islands-rows", &[&more[..], &["--rows-per-site", "100", "--at", "2,4"]].concat());
    assert_eq!((result.json["y"].as_str(), result.labels()), (Some("time_us"), ["2", "4"].into()));
    for point in result.points() {
        let rounds = |key: &str| -> Vec<f64> {
            let rounds = point["readings"][key]["rounds"].as_array().into_iter().flatten();
            rounds.map(|number| number.as_f64().expect("a number")).collect()
        };
        let (times, rates) = (rounds("time_us"), rounds("throughput_tps"));
        for (time, rate) in times.iter().zip(rates.iter().filter(|rate| **rate > 0.0)) {
            assert!((time * rate / 2e6 - 1.0).abs() < 1e-6, "{point}");
        }
    }
}

#[test]
fn instances_follow_the_number_of_workers() {
    let designs = "instances,instances-shared-occ";
    let more = ["--workers", "3", "--rounds", "1", "--designs", designs, "--warmup", "0.05"];
    let result = islands("islands-workers", &[&more[..], &["--rows-per-site", "50"]].concat());
    assert_eq!(result.series(), ["instance per worker, shm", "instance of shared-occ per worker, shm"]);
    assert_eq!(result.labels(), ["1", "2", "3"].into());
    for point in result.points() {
        let wanted = format!("--instances {}", point["label"].as_str().expect("a label"));
        assert!(point["command"].as_str().is_some_and(|command| command.contains(&wanted)), "{point}");
    }
}

#[test]
fn threads_share_data_inside_instances() {
    let designs = "instances-shared-2pl,instances-shared-occ";
    let more = ["--workers", "2", "--rounds", "1", "--designs", designs, "--warmup", "0.05", "--at", "0,1"];
    let more = [&more[..], &["--rows-per-site", "50", "--kind", "update", "--channel", "unix"]].concat();
    let result = islands("islands-multisite", &more);
    assert_eq!(result.series(), ["2 instances of shared-2pl, unix", "2 instances of shared-occ, unix"]);
    assert_eq!(result.points().len(), 4);
    for point in result.points() {
        let engine = if point["series"] == result.series()[0] { "shared-2pl" } else { "shared-occ" };
        let command = point["command"].as_str().expect("a command");
        let wanted = format!("--engine {engine} --instances 2 --channel unix");
        assert!(command.contains(&wanted), "{command}");
        // They have no owners.
        assert!(point["readings"]["remote_actions_per_transaction"].is_null(), "{point}");
    }
}

#[test]
fn standard_workloads_run_at_the_standard_share_of_remote_work() {
    let more = ["tpcb", "--rounds", "1", "--designs", "database", "--warmup", "0"];
    let result = islands("islands-standard", &[&more[..], &["--workers", "1"]].concat());
    assert_eq!(result.labels(), ["0", "15", "25", "50", "75", "100"].into());
}

#[test]
fn the_machine_is_measured_without_an_engine() {
    let channels = islands("islands-channels", &["--rounds", "1", "--batch", "1,8"]);
    assert_eq!(channels.labels(), ["shm", "unix", "pipe", "tcp"].into());
    assert_eq!(channels.series(), ["1 per flush", "8 per flush"]);
    let counters = islands("islands-counters", &["--rounds", "2", "--workers", "2"]);
    assert_eq!(counters.labels(), ["thread", "L3 island", "socket", "machine"].into());
    for point in channels.points().iter().chain(counters.points()) {
        let readings = point["readings"].as_object().expect("an object");
        assert!(readings.values().all(|reading| reading["median"].as_f64() > Some(0.0)), "{point}");
        assert!(point["command"].is_null(), "{point}");
    }
}

#[test]
fn work_is_counted_by_what_it_is_for() {
    let valgrind = std::process::Command::new("valgrind").arg("--version").output();
    if !valgrind.is_ok_and(|output| output.status.success()) {
        let complaint = refused(&["experiment", "islands-breakdown"]);
        assert!(complaint.contains("install the package 'valgrind'"), "{complaint}");
        return;
    }
    let more = ["--workers", "2", "--rounds", "1", "--designs", "shared-2pl", "--rows-per-site", "20"];
    let result = islands("islands-breakdown", &[&more[..], &["--at", "0"]].concat());
    let point = &result.points()[0];
    let of = |key: &str| point["readings"][key]["median"].as_f64().expect("a number");
    let classes = point["readings"].as_object().expect("an object").keys();
    let parts = classes.filter(|key| key.starts_with("instructions.")).map(|key| of(key));
    assert!((parts.sum::<f64>() / of("instructions") - 1.0).abs() < 1e-6, "{point}");
    assert!(of("instructions.execution") > 0.0 && of("instructions.transaction_management") > 0.0);
    // Ten locks are taken and released in the central lock manager.
    assert!(of("atomics.locking") > 10.0, "{point}");
    assert!(of("atomics.logging").abs() < 1e-9, "nothing is logged: {point}");
    assert!(result.text.contains("atomics per transaction"), "{}", result.text);
}

#[test]
fn points_that_make_no_sense_are_refused_before_anything_runs() {
    for (arguments, what) in [
        (&["islands-multisite", "--at", "0,1.5"][..], "the probability 1.5"),
        (&["islands-multisite", "--rounds", "0"], "--rounds 0"),
        (&["islands-multisite", "--seconds", "0"], "--seconds 0"),
        (&["islands-multisite", "--warmup=-1"], "--warmup -1"),
        (&["islands-multisite", "--workers", "0"], "--workers 0"),
        (&["islands-multisite", "--workers", "1", "--designs", "instances"], "nothing to measure"),
        (&["islands-multisite", "--svg", "/"], "the SVG file / cannot be written"),
        (&["islands-rows", "--at", "2,0"], "0"),
        (&["islands-skew", "--at=-3"], "-3"),
        (&["islands-standard", "tpcb", "--scale", "0"], "0 branches"),
        (&["islands-channels", "--batch", "0"], "--batch 0"),
    ] {
        let mut all = vec!["experiment"];
        all.extend(arguments);
        let complaint = refused(&all);
        assert!(complaint.contains(what), "{arguments:?} said: {complaint}");
    }
    assert_eq!(run(&["experiment", "islands-nothing"]).status.code(), Some(2));
    assert_eq!(run(&["experiment", "islands-standard"]).status.code(), Some(2));
}
