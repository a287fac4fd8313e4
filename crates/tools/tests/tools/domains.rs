//! `atrapos domains`: from curves or sizes to a configuration that runs.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{refused, run, stderr, stdout};

/// The paper's machine.
const PAPER: &str = "pack:8 core:24 pu:2";

fn table_2() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/domains-table-2.toml")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn write(path: &Path, text: &str) {
    let mut file = std::fs::File::create(path).expect("a file");
    file.write_all(text.as_bytes()).expect("written");
}

fn done(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&done(arguments)).expect("one JSON object")
}

#[test]
fn the_sizes_of_the_paper_give_domains_on_sockets() {
    let structures = table_2();
    let arguments = ["domains", "compose", "--structures", text(&structures), "--topology", PAPER];
    let shown = done(&arguments);
    for words in
        ["the best there is", "sessions (isolated)", "order-lines", "socket 0", "AA AA AA", "socket 4-7"]
    {
        assert!(shown.contains(words), "no {words:?} in\n{shown}");
    }
    let found = json(&[&arguments[..], &["--json"]].concat());
    let domains = found["domains"].as_array().expect("domains");
    let sizes: Vec<u64> = domains.iter().map(|domain| domain["workers"].as_u64().expect("workers")).collect();
    assert_eq!(sizes, [48, 48, 24, 24, 1]);
    for domain in domains {
        assert_eq!(domain["within_one"], "L3 island", "{domain}");
        assert_eq!(domain["cpus"].as_array().map(Vec::len), domain["workers"].as_u64().map(|n| n as usize));
    }
    let together = |domain: &&Value| {
        let names = domain["structures"].as_array().expect("names");
        names.contains(&Value::from("orders")) && names.contains(&Value::from("order-lines"))
    };
    assert_eq!(domains.iter().filter(together).count(), 1, "{found}");
    assert_eq!(
        (&found["search"]["proven"], &found["search"]["fast_has_best_sizes"]),
        (&true.into(), &true.into())
    );
}

#[test]
fn two_hundred_structures_are_composed_for_384_cores() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("structures.toml");
    let table = |at: u32| {
        let size = [1, 24, 48][at as usize % 3];
        let load = f64::from(size * (1 + at % 7));
        format!(
            "[[structure]]\nname = \"s{at}\"\nkind = \"b-tree\"\nmix = \"ycsb-a\"\nload = {load}\nsize = {size}\n"
        )
    };
    write(&file, &(0..200).map(table).collect::<String>());
    let found = json(&["domains", "compose", "--structures", text(&file), "--topology", PAPER, "--json"]);
    let domains = found["domains"].as_array().expect("domains");
    let structures = domains.iter().map(|domain| domain["structures"].as_array().expect("names").len());
    assert_eq!(structures.sum::<usize>(), 200);
    let mut cpus: Vec<u64> = domains
        .iter()
        .flat_map(|domain| domain["cpus"].as_array().expect("processing units"))
        .map(|cpu| cpu.as_u64().expect("a number"))
        .collect();
    let workers = cpus.len();
    cpus.sort_unstable();
    cpus.dedup();
    assert!(workers <= 384 && cpus.len() == workers, "{workers} workers");
}

#[test]
fn every_kind_of_configuration_runs_and_is_audited() {
    let directory = tempfile::tempdir().expect("a directory");
    let (config, result) = (directory.path().join("config.toml"), directory.path().join("result.json"));
    let structures = [
        "name=orders,kind=b-tree,mix=ycsb-a,load=3,size=2,with=lines",
        "name=lines,kind=fp-tree,mix=ycsb-d,size=2",
        "name=items,kind=hash-map,mix=ycsb-c,load=2,size=2",
    ];
    let structures: Vec<&str> = structures.iter().flat_map(|one| ["--structure", one]).collect();
    for (kind, domains) in [("homogeneous", 2), ("isolated", 2), ("shared", 2)] {
        let compose = ["domains", "compose", "--topology", "pack:1 core:4 pu:1", "--kind", kind];
        done(&[&compose, &structures[..], &["--output", text(&config)]].concat());
        let shown = done(&[
            "domains",
            "run",
            text(&config),
            "--no-pin",
            "--seconds",
            "0.2",
            "--records",
            "500",
            "--json",
            text(&result),
        ]);
        assert!(shown.contains("audit       passed"), "{shown}");
        let result: Value =
            serde_json::from_str(&std::fs::read_to_string(&result).expect("written")).expect("JSON");
        assert_eq!(result["domains"].as_array().map(Vec::len), Some(domains), "{result}");
        let structures = result["structures"].as_array().expect("structures");
        assert!(structures.iter().all(|one| one["audit"]["passed"] == true), "{result}");
        let orders = structures.iter().find(|one| one["name"] == "orders").expect("it is there");
        assert_eq!((&orders["share_expected"], &orders["mix"]), (&0.5.into(), &"ycsb-a".into()));
        assert!(result["throughput_tps"].as_f64().is_some_and(|rate| rate > 0.0), "{result}");
    }
}

#[test]
fn a_controller_observes_and_changes_the_domains_of_a_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let (config, result) = (directory.path().join("config.toml"), directory.path().join("result.json"));
    let curves = directory.path().join("curves.json");
    let calibrate =
        ["domains", "calibrate", "--structure", "hash-map", "--mix", "ycsb-a", "--records", "500"];
    let few = ["--seconds", "0.02", "--rounds", "2", "--sizes", "1,2", "--no-pin", "--output", text(&curves)];
    done(&[&calibrate[..], &few].concat());
    let structures: Vec<String> =
        (0..4).map(|at| format!("name=s{at},kind=hash-map,mix=ycsb-a,load=1,size=1")).collect();
    let structures: Vec<&str> = structures.iter().flat_map(|one| ["--structure", one]).collect();
    let compose = ["domains", "compose", "--topology", "pack:1 core:2 pu:1", "--output", text(&config)];
    done(&[&compose[..], &structures].concat());
    let base = ["domains", "run", text(&config), "--no-pin", "--seconds", "0.5", "--records", "500"];
    let adapt = ["--adapt", "--interval", "0.02", "--curves", text(&curves), "--json", text(&result)];
    let shown = done(&[&base[..], &adapt].concat());
    assert!(shown.contains("controller  ") && shown.contains("audit       passed"), "{shown}");
    let result: Value =
        serde_json::from_str(&std::fs::read_to_string(&result).expect("written")).expect("JSON");
    assert_eq!((&result["config"]["adapt"], &result["config"]["interval_s"]), (&true.into(), &0.02.into()));
    let observed = result["adaptations"].as_array().expect("a list");
    assert!(observed.len() > 2, "half a second has many observations: {result}");
    let is_whole = |one: &Value| one["sentence"].is_string() && one["throughput_tps"].is_f64();
    assert!(observed.iter().all(is_whole), "{result}");
    // Each change that was made and not refused is shown as it is made.
    let changes = observed.iter().filter_map(|one| one["change"].as_str());
    changes.for_each(|change| assert!(shown.contains(change), "no {change:?} in\n{shown}"));
    let served = result["structures"].as_array().expect("structures");
    assert!(
        served.iter().all(|one| one["throughput_tps"].as_f64().is_some_and(|rate| rate > 0.0)),
        "{result}"
    );
    let without = run(&[&base[..], &["--curves", text(&curves)]].concat());
    assert!(!without.status.success() && stderr(&without).contains("--adapt"), "{}", stderr(&without));
}

#[test]
fn curves_are_measured_and_composed() {
    let directory = tempfile::tempdir().expect("a directory");
    let (curves, result) = (directory.path().join("curves.json"), directory.path().join("result.json"));
    let shown = done(&[
        "domains",
        "calibrate",
        "--structure",
        "b-tree",
        "--structure",
        "owned-tree",
        "--mix",
        "ycsb-a",
        "--records",
        "500",
        "--seconds",
        "0.02",
        "--rounds",
        "2",
        "--sizes",
        "1,2,300",
        "--no-pin",
        "--output",
        text(&curves),
        "--json",
        text(&result),
    ]);
    for words in ["b-tree under ycsb-a", "300*", "oversubscribed", "size 1, between 1 and 1"] {
        assert!(shown.contains(words), "no {words:?} in\n{shown}");
    }
    let result: Value =
        serde_json::from_str(&std::fs::read_to_string(&result).expect("written")).expect("JSON");
    let points = result["curves"][0]["points"].as_array().expect("points");
    assert_eq!(points.len(), 3);
    assert_eq!((&points[0]["oversubscribed"], &points[2]["oversubscribed"]), (&false.into(), &true.into()));
    assert_eq!(
        result["curves"][1]["points"].as_array().map(Vec::len),
        Some(1),
        "an owned tree has one worker"
    );
    let found = json(&[
        "domains",
        "compose",
        text(&curves),
        "--structure",
        "name=a,kind=b-tree,mix=ycsb-a",
        "--topology",
        "pack:2 core:200 pu:1",
        "--json",
    ]);
    assert_eq!(found["structures"][0]["workers_max"], result["curves"][0]["size"]);
    let complaint =
        refused(&["domains", "compose", text(&curves), "--structure", "name=a,kind=bw-tree,mix=ycsb-a"]);
    assert!(complaint.contains("'bw-tree'") && complaint.contains("'owned-tree'"), "{complaint}");
}

#[test]
fn compositions_that_make_no_sense_are_refused() {
    let one = "name=a,kind=b-tree,mix=ycsb-a,size=2";
    for (arguments, words) in [
        (&["--structures", "nowhere.toml"][..], &["nowhere.toml", "cannot be read"][..]),
        (&["nowhere.json", "--structure", one], &["nowhere.json", "calibrate"]),
        (&[], &["no structure"]),
        (&["--structure", "name=a,kind=b-tree"], &["missing field `mix`"]),
        (&["--structure", "name=a,kind"], &["'kind' has no '='"]),
        (&["--structure", "name=a,kind=b-tree,mix=ycsb-a,colour=red"], &["colour"]),
        (&["--structure", "name=a,kind=tree,mix=ycsb-a,size=1"], &["'tree'", "b-tree"]),
        (&["--structure", "name=a,kind=b-tree,mix=ycsb-z,size=1"], &["'ycsb-z'", "ycsb-a"]),
        (&["--structure", "name=a,kind=b-tree,mix=ycsb-a"], &["'a' has no size"]),
        (&["--structure", "name=a,kind=b-tree,mix=ycsb-a,size=0"], &["size of 0"]),
        (&["--structure", "name=a,kind=b-tree,mix=ycsb-a,size=1,load=-1"], &["load of -1"]),
        (&["--structure", "name=a,kind=owned-tree,mix=ycsb-a,size=2"], &["belongs to one worker"]),
        (&["--structure", one, "--structure", one], &["two structures", "'a'"]),
        (&["--structure", "name=a,kind=b-tree,mix=ycsb-a,size=2,with=b"], &["'b'", "not there"]),
        (&["--structure", one, "--size", "b-tree=3"], &["--size", "b-tree/ycsb-c=48"]),
        (&["--structure", one, "--size", "tree/ycsb-a=3"], &["'tree'"]),
        (&["--structure", one, "--workers", "0"], &["--workers 0"]),
        (&["--structure", one, "--workers", "9"], &["--workers 9", "4"]),
        (&["--structure", one, "--domain-size", "2"], &["--domain-size", "homogeneous"]),
        (&["--structure", one, "--kind", "homogeneous", "--domain-size", "9"], &["9", "4"]),
        (&["--structure", one, "--load-min", "2", "--load-max", "1"], &["--load-min"]),
        (&["--structure", one, "--load-max", "0.5"], &["load"]),
        (&["--structure", one, "--output", "/nowhere/c.toml"], &["/nowhere/c.toml"]),
    ] {
        let compose = ["domains", "compose", "--topology", "pack:1 core:4 pu:1"];
        let complaint = refused(&[&compose, arguments].concat());
        assert!(words.iter().all(|word| complaint.contains(word)), "{arguments:?}: {complaint}");
    }
}

#[test]
fn calibrations_and_runs_that_make_no_sense_are_refused() {
    for (arguments, words) in [
        (&["--structure", "tree"][..], "'tree'"),
        (&["--mix", "ycsb-b"], "'ycsb-b'"),
        (&["--sizes", "2,1"], "--sizes"),
        (&["--sizes", "0,1"], "--sizes"),
        (&["--sizes", "1,100000"], "too large"),
        (&["--records", "0"], "records"),
        (&["--rounds", "0"], "--rounds"),
        (&["--seconds", "0"], "--seconds"),
        (&["--confidence", "2"], "confidence"),
        (&["--output", "/nowhere/curves.json"], "/nowhere/curves.json"),
    ] {
        let complaint = refused(&[&["domains", "calibrate"], arguments].concat());
        assert!(complaint.contains(words), "{arguments:?}: {complaint}");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("config.toml");
    let complaint = refused(&["domains", "run", text(&config)]);
    assert!(complaint.contains("cannot be read") && complaint.contains("compose"), "{complaint}");
    let domain = "[[domain]]\nname = \"A\"\ncpus = [60000]\n";
    let load = "[structures]\na = \"A\"\n[loads.a]\nkind = \"b-tree\"\nmix = \"ycsb-c\"\n";
    for (written, more, words) in [
        ("[[domain]]\nname = 3\n".to_owned(), &[][..], "no configuration"),
        (format!("{domain}{load}"), &[], "--no-pin"),
        (domain.to_owned(), &["--no-pin"], "no structure"),
        (format!("{domain}[structures]\na = \"A\"\n"), &["--no-pin"], "[loads.a]"),
        (format!("{domain}{load}"), &["--no-pin", "--clients", "0"], "clients"),
        (format!("{domain}{load}"), &["--no-pin", "--burst", "65"], "burst of 65"),
        (format!("{domain}{load}"), &["--no-pin", "--mix", "e"], "'e'"),
    ] {
        write(&config, &written);
        let complaint = refused(&[&["domains", "run", text(&config)], more].concat());
        assert!(complaint.contains(words), "{more:?}: {complaint}");
    }
}
