//! Answers of `atrapos advise`: its measurements, predictions, sentences and refusals. No test here asserts that anything is fast.

use serde_json::Value;

use crate::support::{refused, run, stderr, stdout};

const MICRO: [&str; 4] = ["advise", "micro", "--rows-per-site", "2000"];
const TPCC: [&str; 6] = ["advise", "tpcc", "--items", "200", "--customers", "30"];
// Long enough for processes that wait for each other to have their turns on a busy machine.
const QUICK: [&str; 7] = ["--no-pin", "--seconds", "0.15", "--warmup", "0.05", "--workers", "2"];

/// Runs the command with a JSON file, and returns its text and its JSON.
fn advised(own: &[&str], more: &[&str]) -> (String, Value) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("advice.json");
    let arguments = [own, &QUICK, more, &["--json", path.to_str().expect("text")]].concat();
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?} said: {}", stderr(&output));
    let text = std::fs::read_to_string(&path).expect("the file");
    (stdout(&output), serde_json::from_str(&text).expect("one JSON object"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Asserts that everything predicted follows from the times of each deployment, that it is checked where nothing was measured for them, and the choice from what is predicted.
fn assert_follows_from_its_times(json: &Value) {
    let deployments = list(&json["deployments"]);
    let workers = number(&json["workers"]);
    for one in deployments {
        let (local, distributed) = (number(&one["t_local_us"]), number(&one["t_distr_us"]));
        let (most, half_at) =
            (number(&one["waiting_most_us"]), number(&one["waiting_half_at_leaving_share"]));
        let formula = |leaving: f64| {
            let waits = if most > 0.0 { most * leaving / (leaving + half_at) } else { 0.0 };
            (1.0 - leaving) * (local + waits) + leaving * distributed
        };
        let measured: Vec<(f64, f64)> = list(&one["measured"])
            .iter()
            .map(|run| (number(&run["leaving_share"]), number(&run["time_us"])))
            .collect();
        assert!(measured.len() == 6 && measured[0] == (0.0, local), "{one}");
        let predicted = |leaving: f64| {
            let error = |(share, us): (f64, f64)| (us / formula(share)).ln();
            let ends =
                measured.windows(2).find(|ends| leaving <= ends[1].0 + 1e-9).expect("all was measured");
            let way = (leaving - ends[0].0) / (ends[1].0 - ends[0].0);
            let error = (1.0 - way) * error(ends[0]) + way * error(ends[1]);
            1e6 * workers / (formula(leaving) * error.exp())
        };
        let is = |found: &Value, leaving: &Value| {
            let expected = predicted(number(leaving));
            assert!((number(found) / expected - 1.0).abs() < 1e-9, "{found} instead of {expected} in {one}");
        };
        is(&one["tps"], &one["leaving_share"]);
        assert_eq!(list(&one["curve"]).len(), 11);
        list(&one["curve"]).iter().for_each(|step| is(&step["predicted_tps"], &step["leaving_share"]));
        let (check, measured) = (&one["check"], number(&one["check"]["measured_tps"]));
        let error = 100.0 * (number(&check["predicted_tps"]) - measured) / measured;
        assert!((number(&check["error_percent"]) - error).abs() < 1e-6, "{check}");
        assert_eq!(one["source"], "measured");
    }
    let checked = number(&json["checked_share"]);
    let measured = list(&json["measured_shares"]);
    assert!(
        measured.len() == 5 && measured.iter().all(|share| (number(share) - checked).abs() > 0.009),
        "{json}"
    );
    let best = json["best"].as_u64().expect("an index") as usize;
    assert!(deployments.iter().all(|one| number(&one["tps"]) <= number(&deployments[best]["tps"])), "{json}");
    let reigns = list(&json["best_by_share"]);
    assert_eq!(
        (number(&reigns[0]["remote_share"][0]), number(&reigns[reigns.len() - 1]["remote_share"][1])),
        (0.0, 1.0)
    );
    assert!(
        reigns.windows(2).all(|two| two[0]["remote_share"][1] == two[1]["remote_share"][0]),
        "{reigns:?}"
    );
    assert!(number(&json["adapting_tps"]) > 0.0);
}

#[test]
fn micro_is_compared_over_all_channels() {
    let (text, json) =
        advised(&MICRO, &["--kind", "update", "--rows", "2", "--multisite", "0.2", "--channel", "all"]);
    assert_follows_from_its_times(&json);
    let deployments = list(&json["deployments"]);
    let names: Vec<_> = deployments.iter().filter_map(|one| one["name"].as_str()).collect();
    let expected =
        ["1 database", "2 instances, shm", "2 instances, unix", "2 instances, pipe", "2 instances, tcp"];
    assert_eq!(names, expected);
    // Of 4,000 rows, 2,000 of the 3,999 others are elsewhere.
    for one in deployments {
        assert!((number(&one["leaving_share"]) - 0.2 * 2000.0 / 3999.0).abs() < 1e-9, "{one}");
        let distributed = if one["instances"] == 1 { 0.0 } else { number(&one["leaving_share"]) };
        assert!((number(&one["distributed_share"]) - distributed).abs() < 1e-12, "{one}");
    }
    assert_eq!((&json["remote_share"], &json["checked_share"]), (&Value::from(0.2), &Value::from(0.2)));
    for word in
        ["T_local us", "check at 20.0% remote work", "crossovers", "best", "why", "ATraPos", "measured"]
    {
        assert!(text.contains(word), "no '{word}' in:\n{text}");
    }
    assert!(json["elsewhere"].is_null() && !text.contains("extrapolated"), "{text}");
}

#[test]
fn engines_with_shared_data_are_compared_in_one_database_and_in_instances() {
    let own = [&MICRO[..], &["--kind", "update", "--rows", "2", "--multisite", "0.2"]].concat();
    let elsewhere = ["--engine", "shared-2pl,shared-occ", "--topology", "pack:2 core:2 pu:1"];
    let (text, json) = advised(&own, &elsewhere);
    assert_follows_from_its_times(&json);
    let deployments = list(&json["deployments"]);
    let names: Vec<_> = deployments.iter().filter_map(|one| one["name"].as_str()).collect();
    let expected = [
        "1 database of shared-2pl",
        "2 instances of shared-2pl, shm",
        "1 database of shared-occ",
        "2 instances of shared-occ, shm",
    ];
    assert_eq!(names, expected);
    let engines: Vec<_> = deployments.iter().filter_map(|one| one["engine"].as_str()).collect();
    assert_eq!(engines, ["shared-2pl", "shared-2pl", "shared-occ", "shared-occ"]);
    let extrapolated = list(&json["elsewhere"]["deployments"]);
    assert_eq!(extrapolated.len(), 2 * 3, "for each engine the machine, its sockets and its cores");
    for one in extrapolated {
        let engine = one["engine"].as_str().expect("a name");
        assert!(one["from"].as_str().is_some_and(|from| from.contains(engine)), "{one}");
    }
    assert!(text.contains("ATraPos"), "{text}");
    let read = [&MICRO[..], &["--multisite", "0.2"]].concat();
    let (_, json) = advised(&read, &["--engine", "shared-2pl", "--channel", "unix"]);
    assert_follows_from_its_times(&json);
}

#[test]
fn tpcc_is_compared_and_extrapolated_to_another_machine() {
    let (text, json) = advised(&TPCC, &["--warehouses", "8", "--topology", "pack:2 core:4 pu:1"]);
    assert_follows_from_its_times(&json);
    let elsewhere = &json["elsewhere"];
    assert_eq!(elsewhere["workers"], 8);
    let instances: Vec<_> = list(&elsewhere["deployments"]).iter().map(|one| &one["instances"]).collect();
    assert_eq!(instances, [1, 2, 8], "the machine, its sockets, its cores");
    for one in list(&elsewhere["deployments"]) {
        assert_eq!(one["source"], "extrapolated");
        assert!(number(&one["tps"]) > 0.0 && one["from"].is_string(), "{one}");
    }
    assert!(text.contains("extrapolated: ") && text.contains("cannot be known from here"), "{text}");
}

#[test]
fn workloads_without_remote_work_are_compared_as_they_are() {
    let (text, json) = advised(&["advise", "tatp", "--subscribers", "300"], &[]);
    for one in list(&json["deployments"]) {
        assert!(one["t_distr_us"].is_null() && one["check"].is_null() && one["curve"].is_null(), "{one}");
        assert_eq!((number(&one["leaving_share"]), number(&one["distributed_share"])), (0.0, 0.0));
    }
    assert_eq!(list(&json["deployments"]).len(), 2);
    assert!(text.contains("No transaction leaves its worker"), "{text}");
}

#[test]
fn one_worker_has_nothing_to_choose_and_every_workload_has_its_formula() {
    for own in
        [&MICRO[..], &["advise", "smallbank", "--customers", "300"], &["advise", "ycsb", "--rows", "500"]]
    {
        let (text, json) = advised(own, &["--workers", "1"]);
        assert_eq!(list(&json["deployments"]).len(), 1);
        assert!(text.contains("use --workers 2"), "{text}");
    }
}

#[test]
fn what_cannot_be_compared_is_refused_with_a_cure() {
    for (arguments, cure) in [
        (&["advise", "micro", "--zipf", "0.5"][..], "leave --zipf out"),
        (&["advise", "ycsb", "--mix", "e"], "--distribution uniform"),
        (&["advise", "tpcc", "--think"], "leave --think out"),
        (&["advise", "tpcc", "--warehouses", "1", "--workers", "2"], "use more warehouses"),
        (
            &["advise", "tpcc", "--warehouses", "2", "--workers", "2", "--topology", "pack:8 core:2 pu:1"],
            "16 workers",
        ),
        (&["advise", "micro", "--workers", "0"], "use at least 1"),
        (&["advise", "micro", "--seconds", "0"], "--seconds 0"),
        (&["advise", "micro", "--multisite", "2"], "use 0 to 1"),
        (&["advise", "micro", "--json", "/nowhere/at/all.json"], "choose a path"),
    ] {
        let complaint = refused(arguments);
        assert!(complaint.contains(cure), "{arguments:?}: {complaint}");
    }
    let output = run(&["advise", "micro", "--engine", "plp"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("'plp'") && stderr(&output).contains("shared-occ"),
        "{}",
        stderr(&output)
    );
    let output = run(&["advise", "micro", "--channel", "mail"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("'mail'") && stderr(&output).contains("shm"), "{}", stderr(&output));
}
