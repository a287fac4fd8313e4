//! `atrapos plan`: what it proposes for recorded statistics, and what it refuses.

use std::path::PathBuf;

use serde_json::Value;

use crate::support::{refused, run, stderr, stdout};

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/two-workers.trace.json");
const TWO: &str = "core:2 pu:1";

fn sample() -> Value {
    let text = std::fs::read_to_string(TRACE).expect("the sample trace");
    serde_json::from_str(&text).expect("JSON")
}

/// Writes a trace into a directory of its own.
fn trace_file(directory: &tempfile::TempDir, trace: &str) -> PathBuf {
    let path = directory.path().join("trace.json");
    let mut file = std::fs::File::create(&path).expect("a file");
    std::io::Write::write_all(&mut file, trace.as_bytes()).expect("written");
    path
}

fn succeeded(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?} said: {}", stderr(&output));
    stdout(&output)
}

#[test]
fn a_hot_range_is_cut_and_shared() {
    let text = succeeded(&["plan", "--topology", TWO, "--trace", TRACE]);
    for part in [
        "2 workers on synthetic \"core:2 pu:1\"",
        "most loaded worker over the mean         1.374       1.374       1.00",
        "today\n  worker        load      subscriber  call-forwarding\n",
        "  0            1.374             0-9              0-9\n",
        "split subscriber at slice 4\n",
        "merge call-forwarding at slice 10\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn a_drawing_shows_heat_and_owners_before_and_after() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("plan.svg");
    let path = path.to_str().expect("text");
    succeeded(&["plan", "--topology", TWO, "--trace", TRACE, "--svg", path]);
    let drawn = std::fs::read_to_string(path).expect("a drawing");
    for part in ["<svg ", "subscriber", "call-forwarding", "today", "proposed", "w0", "w1", "% of a worker"] {
        assert!(drawn.contains(part), "{part} in {drawn}");
    }
    let complaint = refused(&["plan", "--topology", TWO, "--trace", TRACE, "--svg", "/"]);
    assert!(complaint.contains("the SVG file / cannot be written"), "{complaint}");
}

#[test]
fn json_has_the_whole_plan() {
    let text = succeeded(&["plan", "--topology", TWO, "--trace", TRACE, "--json"]);
    let result: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(result["workers"], 2);
    assert_eq!(result["exact"], Value::Null);
    assert_eq!(result["tables"][1]["name"], "call-forwarding");
    assert_eq!(result["tables"][1]["slices"], 20);
    let plan = &result["plan"];
    let objective = |cost: &str| plan[cost]["objective"].as_f64().expect("a number");
    assert!(objective("after") < objective("before"), "{text}");
    assert_eq!(plan["today"][0]["cuts"], serde_json::json!([10]));
    assert!(plan["steps"].as_array().expect("steps").iter().any(|step| step["step"] == "move"), "{text}");
}

#[test]
fn the_exact_program_says_how_far_the_search_is_from_it() {
    let text = succeeded(&["plan", "--topology", TWO, "--trace", TRACE, "--exact"]);
    assert!(text.contains("The proposed scheme is the best there is"), "{text}");
    let text = succeeded(&["plan", "--topology", TWO, "--trace", TRACE, "--exact", "--json"]);
    let result: Value = serde_json::from_str(&text).expect("JSON");
    let excess = result["exact"]["searched_excess"].as_f64().expect("a number");
    assert!((0.0..0.05).contains(&excess), "{text}");
}

#[test]
fn a_plan_for_eighty_workers_fits_a_page() {
    let mut trace = sample();
    trace["workers"] = 80.into();
    for table in trace["tables"].as_array_mut().expect("tables") {
        let hot = table["partitions"][0]["cost_cycles"].clone();
        let cold = table["partitions"][1]["cost_cycles"].clone();
        let partition = |worker: u32| {
            let costs = if worker < 16 { &hot } else { &cold };
            serde_json::json!({ "worker": worker, "cost_cycles": costs })
        };
        table["partitions"] = (0..80).map(partition).collect();
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = trace_file(&directory, &trace.to_string());
    let path = path.to_str().expect("text");
    let text = succeeded(&["plan", "--topology", "pack:8 core:10 pu:1", "--trace", path]);
    assert!(text.lines().count() < 60, "{text}");
    assert!(text.contains("\n  70-79 "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    // The program is for small cases, and says so.
    let complaint = refused(&["plan", "--topology", "pack:8 core:10 pu:1", "--trace", path, "--exact"]);
    assert!(complaint.contains("128000 sub-partitions times workers"), "{complaint}");
    assert!(complaint.contains("leave out --exact"), "{complaint}");
}

/// The owners that the plan of these arguments has, and its text.
fn owners(arguments: &[&str]) -> (std::collections::BTreeSet<u64>, String) {
    let plan = [&["plan"][..], arguments].concat();
    let text = succeeded(&plan);
    let json: Value = serde_json::from_str(&succeeded(&[&plan[..], &["--json"]].concat())).expect("JSON");
    let tables = json["plan"]["scheme"].as_array().expect("tables").iter();
    let owners = tables.flat_map(|table| table["owners"].as_array().expect("owners")).map(Value::as_u64);
    (owners.map(|owner| owner.expect("a worker")).collect(), text)
}

#[test]
fn the_plan_is_for_the_machine_named_however_many_workers_were_recorded() {
    // Fewer: the recorded scheme does not fit.
    let (one, text) = owners(&["--topology", "core:1 pu:1", "--trace", TRACE]);
    assert_eq!(one, [0].into());
    assert!(text.starts_with("1 worker on") && text.contains("recorded with 2 workers: "), "{text}");
    // More: those of the trace have all today, and what is proposed uses others, too.
    let (many, text) = owners(&["--topology", "pack:2 core:4 pu:1", "--trace", TRACE]);
    assert!(many.len() > 4 && many.iter().all(|owner| *owner < 8), "{many:?}");
    assert!(text.contains("recorded with 2 workers, whose scheme is called today's"), "{text}");
    let (three, _) = owners(&["--topology", "pack:2 core:4 pu:1", "--workers", "3", "--trace", TRACE]);
    assert_eq!(three, [0, 1, 2].into());
    let (_, text) = owners(&["--topology", "pack:8 core:10 pu:1", "--trace", TRACE]);
    assert!(
        text.contains("fewer sub-partitions than there are workers: record with more --sub-partitions"),
        "{text}"
    );
    for workers in ["0", "9"] {
        let complaint =
            refused(&["plan", "--topology", "pack:2 core:4 pu:1", "--workers", workers, "--trace", TRACE]);
        assert!(complaint.contains("8 usable cpus; give --workers between 1 and 8"), "{complaint}");
    }
}

#[test]
fn what_is_no_trace_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("missing.json");
    for path in [missing.to_str().expect("text"), directory.path().to_str().expect("text")] {
        let complaint = refused(&["plan", "--topology", TWO, "--trace", path]);
        assert!(complaint.contains("cannot be read") && complaint.contains("--record"), "{complaint}");
    }
    let mut old = sample();
    old["format"] = "atrapos-trace 0".into();
    let mut contradictory = sample();
    contradictory["workers"] = 1.into();
    let mut endless = sample();
    endless["workers"] = 4_000_000_000_u32.into();
    for (text, what) in [
        ("", "not a trace"),
        ("{\"format\": 1}", "not a trace"),
        (&old.to_string(), "'atrapos-trace 0'"),
        (&contradictory.to_string(), "worker 1 of 1"),
        (&endless.to_string(), "4000000000 workers"),
    ] {
        let path = trace_file(&directory, text);
        let complaint = refused(&["plan", "--topology", TWO, "--trace", path.to_str().expect("text")]);
        assert!(complaint.contains(what), "{complaint}");
    }
    let complaint = refused(&["plan", "--topology", "pack:two", "--trace", TRACE]);
    assert!(complaint.contains("two"), "{complaint}");
    let complaint =
        refused(&["plan", "--topology", TWO, "--trace", TRACE, "--exact", "--exact-seconds", "0"]);
    assert!(complaint.contains("0 seconds"), "{complaint}");
}

#[test]
fn what_it_needs_cannot_be_left_out() {
    for arguments in [&["plan"][..], &["plan", "--trace", TRACE, "--exact-seconds", "5"]] {
        assert_eq!(run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}
