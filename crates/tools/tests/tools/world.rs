//! `atrapos experiment adapt-world` on a tiny scenario: what it prints and writes.

use std::io::Write;

use serde_json::Value;

use crate::support::{refused, run, stderr, stdout};

const TINY: &str = r#"
    name = "tiny"
    about = "half of the requests go to a fifth of the rows"
    events_per_s = 2000.0
    table = [{ name = "rows", rows = 100000 }]
    class = [{ name = "read", base_ns = 300.0, stages = [[{ table = "rows", key = "same", ns = 300.0 }]] }]
    phase = [{ name = "hot", seconds = 8.0, mix = { read = 1.0 }, hot = [{ from = 0.0, to = 0.2, share = 0.5 }] }]
"#;

fn write(path: &str, text: &str) {
    let written = std::fs::File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.expect("the scenario");
}

#[test]
fn a_scenario_in_a_file_is_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("text").to_owned();
    let (scenario, json) = (path("tiny.toml"), path("result.json"));
    write(&scenario, TINY);
    let arguments = [
        "experiment",
        "adapt-world",
        "--scenario",
        &scenario,
        "--machine",
        "two,2x8",
        "--decisions",
        "--json",
        &json,
    ];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains(" of 2 phases reach"), "{text}");
    assert!(text.contains("the scheme changes in"), "{text}");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&json).expect("the file")).expect("JSON");
    assert_eq!(json["experiment"], "adapt-world");
    let scenarios = json["scenarios"].as_array().expect("a list");
    assert_eq!(scenarios.len(), 2);
    for scenario in scenarios {
        let phase = &scenario["phases"][0];
        for key in ["static_tps", "adaptive_tps", "over_static", "best_tps", "settled_over_best"] {
            assert!(phase[key].as_f64().is_some_and(|number| number > 0.0), "{key}: {phase}");
        }
        assert!(scenario["decisions"].as_array().is_some_and(|decisions| !decisions.is_empty()));
    }
    let gains = scenarios.iter().flat_map(|scenario| scenario["gains"].as_array().expect("a list"));
    let gain = |gain: &Value, of: &str| gain[of].as_f64().expect("a number");
    let errors: Vec<f64> =
        gains.map(|of| 100.0 * (gain(of, "predicted_gain") - gain(of, "measured_gain")).abs()).collect();
    assert!(!errors.is_empty(), "half of the load on a tenth of the rows is worth a change: {text}");
    let error = format!("{:.1}", errors.iter().sum::<f64>() / errors.len() as f64);
    for name in ["tiny", "all"] {
        let line =
            text.lines().rfind(|line| line.split_whitespace().next() == Some(name)).expect("its gains");
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!([cells[1], cells[4]], [errors.len().to_string().as_str(), error.as_str()], "{text}");
    }
    // A line for each machine, and that of its gains.
    assert_eq!(text.lines().filter(|line| line.starts_with("tiny ")).count(), 3, "{text}");
    // Virtual time: the same options give the same text.
    assert_eq!(stdout(&run(&arguments)), text);
}

#[test]
fn each_setting_is_halved_and_doubled() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("text").to_owned();
    let (scenario, json) = (path("tiny.toml"), path("result.json"));
    write(&scenario, TINY);
    let run_with = |set: &str| {
        let arguments = ["experiment", "adapt-world", "--scenario", &scenario, "--machine", "two"];
        let output = run(&[&arguments[..], &["--sensitivity", "--set", set, "--json", &json]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = std::fs::read_to_string(&json).expect("the file");
        serde_json::from_str::<Value>(&text).expect("JSON")
    };
    let json = run_with("confirmations=4,imbalance=0.25");
    let table = &json["sensitivity"];
    assert_eq!(table["given"]["phases"], 1);
    assert_eq!(table["given"]["changes"], 1, "{table}");
    let rows = table["settings"].as_array().expect("a list");
    let row = |name: &str| rows.iter().find(|row| row["setting"] == name).expect("the setting").clone();
    assert_eq!(row("confirmations")["value"], 4.0);
    assert_eq!(row("imbalance")["value"], 0.25);
    // A share is at most the whole.
    assert_eq!(row("end_kept")["halved"]["value"], 0.4);
    assert_eq!(row("end_kept")["doubled"]["value"], 1.0);
    for row in rows {
        assert!(row["doubled"]["mean_over_best"].as_f64().is_some_and(|mean| mean > 0.5), "{row}");
    }
    // Those that are named.
    let named = ["experiment", "adapt-world", "--scenario", &scenario, "--machine", "two"];
    let text = stdout(&run(&[&named[..], &["--sensitivity=quiet_max,horizon"]].concat()));
    let shown = |name: &str| text.lines().any(|line| line.starts_with(name));
    assert!(shown("quiet_max") && shown("horizon") && !shown("imbalance"), "{text}");
    // Where the controller cannot do anything, so says the table.
    let table = &run_with("gain_sure=1000,gain_min=900")["sensitivity"];
    assert_eq!(table["given"]["changes"], 0, "{table}");
}

#[test]
fn what_is_no_setting_is_refused() {
    let refused_with = |set: &str| refused(&["experiment", "adapt-world", "--set", set]);
    assert!(refused_with("imbalence=0.3").contains("imbalance (share)"));
    assert!(refused_with("imbalance").contains("--set imbalance=0.3"));
    assert!(refused_with("interval=soon").contains("a number in s, not 'soon'"));
    assert!(refused_with("interval=-1").contains("interval"));
    assert!(refused_with("gain_min=0.5").contains("gain_sure"));
    let refused = refused(&["experiment", "adapt-world", "--machine", "two", "--sensitivity=imbalence"]);
    assert!(
        refused.contains("no setting 'imbalence'") && refused.contains("--sensitivity takes"),
        "{refused}"
    );
}

#[test]
fn what_is_no_scenario_or_no_machine_is_refused() {
    let complaint = refused(&["experiment", "adapt-world", "--machine", "3x3"]);
    assert!(complaint.contains("'3x3'") && complaint.contains("12x8"), "{complaint}");
    let complaint = refused(&["experiment", "adapt-world", "--scenario", "missing.toml"]);
    assert!(complaint.contains("missing.toml") && complaint.contains("mirrored"), "{complaint}");
    let complaint = refused(&["experiment", "adapt-world", "--sample-every", "3"]);
    assert!(complaint.contains("--sample-every"), "{complaint}");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("bad.toml");
    let path = path.to_str().expect("text");
    write(path, &TINY.replace("rows = 100000", "rows = many"));
    let complaint = refused(&["experiment", "adapt-world", "--scenario", path]);
    assert!(complaint.contains("this is not a scenario: line 5"), "{complaint}");
}
