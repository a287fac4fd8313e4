//! Output and files of the command, when all goes well and when it is interrupted.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{interrupt, quick, refused, run, stderr, stdout};

/// Runs a quick benchmark with a JSON file, and returns its text and its JSON.
fn benchmark(benchmark: &str, more: &[&str]) -> (String, Value) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("result.json");
    let mut arguments = quick(benchmark, more);
    arguments.extend(["--json", path.to_str().expect("text")]);
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?} said: {}", stderr(&output));
    assert_eq!(std::fs::read_dir(directory.path()).expect("the directory").count(), 1, "one file, whole");
    let text = std::fs::read_to_string(&path).expect("the file");
    (stdout(&output), serde_json::from_str(&text).expect("one JSON object"))
}

fn keys(value: &Value) -> Vec<&str> {
    let object = value.as_object().unwrap_or_else(|| panic!("{value} is no object"));
    object.keys().map(String::as_str).collect()
}

fn assert_has(value: &Value, wanted: &[&str]) {
    for key in wanted {
        assert!(keys(value).contains(key), "no '{key}' among {:?}", keys(value));
    }
}

fn assert_is_a_benchmark_result(json: &Value, classes: &[&str], workers: usize) {
    assert_has(
        json,
        &[
            "commit",
            "machine",
            "config",
            "seconds",
            "throughput_tps",
            "classes",
            "actions",
            "workers",
            "runs",
        ],
    );
    assert!(json["commit"].is_string() && json["machine"].is_object() && json["config"].is_object());
    assert!(json["throughput_tps"].as_f64().is_some_and(|tps| tps > 0.0), "{json}");
    assert!(json["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    let mut wanted = classes.to_vec();
    wanted.sort_unstable();
    assert_eq!(keys(&json["classes"]), wanted);
    for class in classes {
        let class = &json["classes"][*class];
        assert_has(class, &["tps", "committed", "expected_failures", "aborted", "latency_us"]);
        assert!(class["aborted"].is_object() && class["committed"].is_u64());
        assert_eq!(keys(&class["latency_us"]), ["max", "p50", "p95", "p99", "p999"]);
        let quantiles: Vec<f64> = ["p50", "p95", "p99", "p999", "max"]
            .iter()
            .filter_map(|quantile| class["latency_us"][*quantile].as_f64())
            .collect();
        assert!(quantiles.is_sorted(), "{class}");
        let completed =
            class["committed"].as_u64().unwrap_or(0) + class["expected_failures"].as_u64().unwrap_or(0);
        assert!(quantiles.len() == 5 || completed < 2, "{class}");
    }
    assert!(json["actions"]["local"].as_u64().is_some_and(|local| local > 0));
    assert!(json["actions"]["remote"].is_u64());
    let each = json["workers"].as_array().expect("a list");
    assert_eq!(each.len(), workers);
    for worker in each {
        assert_has(worker, &["core", "busy_ratio"]);
        assert!(worker["busy_ratio"].as_f64().is_some_and(|ratio| (0.0..=1.0).contains(&ratio)), "{worker}");
    }
    assert_eq!(json["audit"]["passed"], Value::Bool(true));
}

const TATP: [&str; 7] = [
    "get-subscriber-data",
    "get-new-destination",
    "get-access-data",
    "update-subscriber-data",
    "update-location",
    "insert-call-forwarding",
    "delete-call-forwarding",
];

/// The same workloads run, with the same auditors, on an engine whose threads share the data.
#[test]
fn every_workload_runs_on_engines_with_shared_data() {
    let workloads = ["tatp", "tpcc", "tpcb", "ycsb", "smallbank", "micro"];
    let engines = ["shared-occ", "shared-2pl"];
    for (workload, engine) in
        workloads.into_iter().flat_map(|workload| engines.map(|engine| (workload, engine)))
    {
        let (text, json) =
            benchmark(workload, &["--engine", engine, "--durability", "none", "--clients", "3"]);
        assert!(text.contains(&format!("{engine}, 3 threads")), "{text}");
        assert!(text.contains("audit       passed") && text.contains("attempts repeated"), "{text}");
        assert_eq!(json["config"]["engine"], engine);
        assert_eq!(json["audit"]["passed"], true);
        assert!(json["throughput_tps"].as_f64().is_some_and(|tps| tps > 0.0), "{json}");
        assert!(json["workers"].as_array().is_some_and(Vec::is_empty), "its threads are no workers");
    }
}

/// Every workload runs as PLP, and with each step from there to ATraPos, durable and in memory.
#[test]
fn every_workload_runs_with_every_step_from_plp() {
    let rungs: [(&[&str], u64); 8] = [
        (&["--engine", "plp"], 5),
        (&["--engine", "plp", "--log-buffer", "worker", "--transaction-list", "worker"], 3),
        (&["--engine", "plp", "--state-locks", "island", "--partitioning", "workload"], 5),
        (&["--engine", "plp", "--durability", "none", "--state-locks", "worker"], 3),
        (&["--transaction-numbers", "island", "--durability", "none"], 1),
        (&["--log-buffer", "central", "--partitioning", "naive"], 0),
        (&["--partitioning", "placed", "--durability", "relaxed", "--log-buffer", "island"], 0),
        (&["--engine", "plp", "--partitioning", "placed", "--durability", "none", "--clients", "2"], 5),
    ];
    for (at, workload) in ["tatp", "tpcc", "tpcb", "ycsb", "smallbank", "micro"].into_iter().enumerate() {
        // Four workers on two sockets that only exist on paper. All rungs with TATP; each other workload with half of them.
        let chosen = rungs.iter().enumerate().filter(|(rung, _)| at == 0 || (rung + at) % 2 == 0);
        for (_, (options, accesses)) in chosen {
            let mut more = vec!["--topology", "pack:2 core:2 pu:1", "--workers", "4"];
            more.extend(*options);
            let (text, json) = benchmark(workload, &more);
            assert_eq!(json["audit"]["passed"], true, "{workload} {options:?}");
            let shared = json["central_accesses"].as_u64().expect("a number");
            let classes = json["classes"].as_object().expect("classes");
            let count = |key: &str| classes.values().filter_map(|class| class[key].as_u64()).sum::<u64>();
            let ended = count("committed") + count("expected_failures");
            // Attempts that were repeated have accesses of their own; what is under way at both ends of the interval is blurred.
            assert!(shared > 0 || *accesses == 0 || ended < 100, "{workload} {options:?}: {shared}");
            assert_eq!(shared > 0, *accesses > 0, "{workload} {options:?}: {shared}, {ended}");
            assert!(shared >= accesses * ended / 2, "{workload} {options:?}: {shared}, {ended}");
            assert_eq!(text.contains("\nshared      "), shared > 0, "{text}");
            if options[0] == "--engine" {
                assert!(text.contains("  plp, 4 workers") && json["config"]["engine"] == "plp", "{text}");
            }
        }
    }
}

#[test]
fn the_options_of_the_system_state_are_in_the_result() {
    let state = |more: &[&str]| {
        let (_, json) = benchmark("tatp", more);
        let config = &json["config"];
        let keys = ["transaction_list", "transaction_numbers", "state_locks", "log_buffer", "partitioning"];
        keys.map(|key| config[key].as_str().unwrap_or("null").to_owned())
    };
    assert_eq!(state(&[]), ["worker", "worker", "worker", "worker", "null"]);
    assert_eq!(state(&["--engine", "plp"]), ["central", "central", "central", "central", "naive"]);
    assert_eq!(
        state(&["--engine", "plp", "--state-locks", "island", "--static"]),
        ["central", "central", "island", "central", "null"]
    );
    assert_eq!(
        state(&["--transaction-list", "island", "--partitioning", "placed"]),
        ["island", "worker", "worker", "worker", "placed"]
    );
}

#[test]
fn engines_with_shared_data_are_durable() {
    let parent = tempfile::tempdir().expect("a directory");
    for engine in ["shared-occ", "shared-2pl"] {
        for (durability, pipeline) in [("synchronous", Some("4")), ("synchronous", None), ("relaxed", None)] {
            let name = format!("{engine}-{durability}-{}", pipeline.is_some());
            let dir = parent.path().join(name).display().to_string();
            let mut options =
                vec!["--engine", engine, "--durability", durability, "--clients", "2", "--dir", &dir];
            options.extend(pipeline.iter().flat_map(|pipeline| ["--pipeline", *pipeline]));
            let (text, json) = benchmark("tatp", &options);
            assert!(text.contains("audit       passed") && text.contains("wal  "), "{text}");
            assert!(text.contains(&format!("durability {durability}")) && text.contains(&dir), "{text}");
            assert!(json["wal"]["device_sync_us"].as_f64().is_some_and(|us| us > 0.0), "{json}");
            match (durability, pipeline) {
                ("synchronous", Some(_)) => assert_eq!(json["config"]["pipeline"], 4),
                ("synchronous", None) => {
                    assert!(json["config"]["pipeline"].as_u64().is_some_and(|many| many >= 256));
                }
                _ => assert!(json["config"]["pipeline"].is_null()),
            }
            for file in ["population", "log"] {
                assert!(std::path::Path::new(&dir).join(file).is_file(), "{file} is kept");
            }
            let complaint = refused(&quick("tatp", &options));
            assert!(complaint.contains("is not empty") && complaint.contains(&dir), "{complaint}");
        }
    }
}

#[test]
fn instances_of_engines_with_shared_data_are_durable() {
    let parent = tempfile::tempdir().expect("a directory");
    for (engine, workload) in [("shared-occ", "tpcb"), ("shared-2pl", "micro"), ("shared-2pl", "tpcc")] {
        for durability in ["synchronous", "relaxed"] {
            let dir = parent.path().join(format!("{engine}-{workload}-{durability}")).display().to_string();
            let mut options = vec!["--engine", engine, "--instances", "2", "--workers", "2", "--dir", &dir];
            options.extend(["--durability", durability]);
            if workload == "micro" {
                options.extend(["--kind", "update", "--rows", "2", "--multisite", "0.5"]);
            }
            let (text, json) = benchmark(workload, &options);
            assert!(text.contains("audit       passed"), "{text}");
            assert_eq!(json["audit"]["passed"], true);
            assert!(json["throughput_tps"].as_f64().is_some_and(|tps| tps > 0.0), "{json}");
            let pipeline = json["config"]["pipeline"].as_u64();
            assert_eq!(pipeline.is_some_and(|many| many >= 256), durability == "synchronous", "{json}");
            for instance in ["instance-0", "instance-1"] {
                for file in ["population", "log"] {
                    let file = std::path::Path::new(&dir).join(instance).join(file);
                    assert!(file.is_file(), "{} is kept", file.display());
                }
            }
        }
    }
}

#[test]
fn locks_are_off_for_loads_that_only_read() {
    let off = ["--engine", "shared-2pl", "--durability", "none", "--locks", "off", "--mix"];
    let (text, json) = benchmark("tatp", &[&off[..], &["get-subscriber-data"]].concat());
    assert!(text.contains("locks off") && text.contains("audit       passed"), "{text}");
    assert_eq!(json["config"]["locks"], "off");
    let (_, json) = benchmark("tatp", &["--engine", "shared-2pl", "--durability", "none"]);
    assert_eq!(json["config"]["locks"], "on");
    // One thread, or one in each instance, goes without them by itself if the load only reads.
    let auto = |more: &[&str]| {
        let base = ["--engine", "shared-2pl", "--durability", "none", "--workers"];
        let (text, json) = benchmark("tatp", &[&base[..], more].concat());
        assert!(text.contains("audit       passed"), "{text}");
        ["locks", "latches"].map(|setting| json["config"][setting].as_str() == Some("on"))
    };
    let read = ["--mix", "get-new-destination"];
    assert_eq!(auto(&[&["1"], &read[..]].concat()), [false, false]);
    assert_eq!(auto(&[&["2", "--instances", "2"], &read[..]].concat()), [false, true]);
    assert_eq!(auto(&[&["3", "--instances", "2"], &read[..]].concat()), [true, true], "one has two threads");
    assert_eq!(auto(&[&["1", "--locks", "on"], &read[..]].concat()), [true, true]);
    assert_eq!(auto(&["1", "--mix", "update-location"]), [true, false]);
    assert_eq!(auto(&["2", "--mix", "update-location"]), [true, true]);
    let output = run(&quick("tatp", &[&off[..], &["update-location"]].concat()));
    let complaint = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("--locks on"), "{complaint}");
}

#[test]
fn every_workload_runs_on_instances() {
    for workload in ["tatp", "tpcc", "tpcb", "ycsb", "smallbank", "micro"] {
        let (text, json) =
            benchmark(workload, &["--instances", "2", "--durability", "none", "--workers", "3"]);
        assert!(text.contains("2 instances (shm, islands)"), "{text}");
        assert!(text.contains("audit       passed"), "{text}");
        assert_eq!(json["config"]["instances"], 2);
        assert_eq!((&json["config"]["adapts"], &json["config"]["routing"]), (&false.into(), &"owner".into()));
        let shared = json["config"]["oversubscribed"].as_bool();
        assert_eq!(shared, Some(text.contains("several of which share a processor")), "{text}");
        assert_eq!(json["audit"]["passed"], true);
        assert!(json["throughput_tps"].as_f64().is_some_and(|tps| tps > 0.0), "{json}");
        assert_eq!(json["workers"].as_array().map(Vec::len), Some(3));
    }
}

#[test]
fn every_workload_runs_on_engines_with_shared_data_in_instances() {
    let base = ["--instances", "2", "--durability", "none", "--workers", "3", "--engine"];
    for engine in ["shared-2pl", "shared-occ"] {
        for (workload, more) in [
            ("tatp", &[][..]),
            ("tpcc", &["--remote-payment", "0.5", "--remote-lines", "0.3"]),
            ("tpcb", &["--remote", "1"]),
            ("ycsb", &[]),
            ("smallbank", &[]),
            ("micro", &["--multisite", "1", "--kind", "update", "--rows", "3"]),
        ] {
            let (text, json) = benchmark(workload, &[&base[..], &[engine], more].concat());
            assert!(text.contains("2 instances (shm, islands)") && text.contains(engine), "{text}");
            assert!(text.contains("audit       passed"), "{text}");
            assert_eq!(
                (&json["config"]["engine"], &json["config"]["instances"]),
                (&engine.into(), &2.into())
            );
            assert!(json["throughput_tps"].as_f64().is_some_and(|tps| tps > 0.0), "{json}");
        }
    }
}

#[test]
fn instances_that_only_read_need_no_locks() {
    let options = ["--instances", "2", "--durability", "none", "--engine", "shared-2pl", "--locks", "off"];
    let (text, json) = benchmark("micro", &[&options[..], &["--multisite", "1", "--kind", "read"]].concat());
    assert!(text.contains("locks off") && text.contains("audit       passed"), "{text}");
    assert_eq!(json["config"]["locks"], "off");
}

#[test]
fn instances_reach_each_other_by_every_channel() {
    for channel in ["shm", "unix", "pipe", "tcp"] {
        let options = ["--instances", "2", "--channel", channel, "--durability", "none", "--multisite", "1"];
        let (text, json) = benchmark(
            "micro",
            &[&options[..], &["--kind", "update", "--rows", "3", "--seconds", "1"]].concat(),
        );
        assert!(text.contains("audit       passed"), "{text}");
        assert!(json["actions"]["remote"].as_u64().is_some_and(|remote| remote > 0), "{json}");
        assert_eq!(json["config"]["channel"], channel);
    }
}

#[test]
fn tatp_reports_what_is_promised() {
    let (text, json) = benchmark("tatp", &["--runs", "3", "--seed", "9"]);
    assert_is_a_benchmark_result(&json, &TATP, 2);
    let mut runs: Vec<f64> =
        json["runs"].as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
    assert_eq!(runs.len(), 3);
    runs.sort_by(f64::total_cmp);
    assert_eq!(json["throughput_tps"].as_f64(), Some(runs[1]), "the median of the runs");
    assert_eq!(json["config"]["subscribers"], 300);
    assert_eq!(json["config"]["mix"], "standard");
    assert_eq!(json["config"]["seed"], 9);
    for word in
        ["throughput", "median of", "p99.9 us", "locks", "actions", "audit       passed", "get-access-data"]
    {
        assert!(text.contains(word), "no '{word}' in:\n{text}");
    }
    assert!(text.is_ascii() && !text.contains('\r'), "a result that is no terminal's has no bars in it");
}

#[test]
fn every_way_to_run_tatp_works() {
    for more in [
        &["--mix", "get-subscriber-data", "--routing", "owner"][..],
        &["--clients", "2", "--keys", "nurand"],
        &["--clients", "3", "--routing", "owner", "--mix", "update-location"],
        &["--sessions", "1", "--workers", "3", "--no-place-memory"],
        &["--topology", "pack:1 core:2 pu:1"],
    ] {
        let (_, json) = benchmark("tatp", more);
        let workers = json["config"]["workers"].as_u64().expect("a number") as usize;
        assert_is_a_benchmark_result(&json, &TATP, workers);
        if more.contains(&"owner") && !more.contains(&"--clients") {
            assert_eq!(json["actions"]["remote"], 0);
            assert_eq!(json["locks"]["entered"], 0);
            assert_eq!(json["forwarded"], 0);
        }
    }
}

const TPCC: [&str; 5] = ["new-order", "payment", "order-status", "delivery", "stock-level"];

#[test]
fn tpcc_reports_what_is_promised() {
    let (text, json) = benchmark("tpcc", &["--runs", "3", "--seed", "9", "--remote-payment", "0.5"]);
    assert_is_a_benchmark_result(&json, &TPCC, 2);
    let config = &json["config"];
    assert_eq!(
        (&config["warehouses"], &config["items"], &config["customers"]),
        (&2.into(), &200.into(), &30.into())
    );
    assert_eq!((&config["remote_payment"], &config["remote_lines"]), (&0.5.into(), &0.01.into()));
    assert_eq!((&config["mix"], &config["delivery"]), (&"standard".into(), &"interactive".into()));
    assert_eq!(config["think"], false);
    assert!(json["tpmc_like"].as_f64().is_some_and(|rate| rate > 0.0));
    let mix: f64 = TPCC.iter().filter_map(|class| json["mix"][*class].as_f64()).sum();
    assert!((mix - 1.0).abs() < 1e-9, "{}", json["mix"]);
    for word in
        ["tpmC-like", "mix reached new-order ", "50% remote payments", "2 warehouses", "audit       passed"]
    {
        assert!(text.contains(word), "no '{word}' in:\n{text}");
    }
    let (_, tatp) = benchmark("tatp", &[]);
    assert!(tatp["tpmc_like"].is_null() && tatp["mix"]["get-subscriber-data"].is_f64());
}

#[test]
fn every_way_to_run_tpcc_works() {
    for more in [
        &["--mix", "new-order", "--routing", "owner", "--remote", "0", "--durability", "none"][..],
        &["--clients", "2", "--delivery", "deferred", "--warehouses", "3"],
        &["--clients", "3", "--routing", "owner", "--mix", "payment", "--remote", "1"],
        &["--sessions", "1", "--workers", "3", "--warehouses", "1", "--delivery", "deferred"],
        &["--mix", "stock-level", "--static", "--remote-lines", "0.5"],
    ] {
        let (_, json) = benchmark("tpcc", more);
        let workers = json["config"]["workers"].as_u64().expect("a number") as usize;
        assert_is_a_benchmark_result(&json, &TPCC, workers);
        if more.contains(&"0") {
            assert_eq!((&json["actions"]["remote"], &json["locks"]["entered"]), (&0.into(), &0.into()));
        }
    }
}

#[test]
fn people_at_terminals_are_ten_to_a_warehouse() {
    // In so short a time nobody has keyed in anything, which is a result like any other.
    let output = run(&quick("tpcc", &["--think", "--warehouses", "3"]));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for word in ["15 sessions on each", "think times", "no transaction completed", "audit       passed"] {
        assert!(text.contains(word), "no '{word}' in:\n{text}");
    }
}

#[test]
fn micro_reports_what_is_promised() {
    let (text, json) = benchmark("micro", &["--kind", "update", "--multisite", "0.5", "--zipf", "0.8"]);
    assert_is_a_benchmark_result(&json, &["update-local", "update-multisite"], 2);
    assert_eq!(json["config"]["multisite"], 0.5);
    assert!(text.contains("50% multisite"), "{text}");
    let (_, json) = benchmark("micro", &["--clients", "1", "--rows", "1"]);
    assert_is_a_benchmark_result(&json, &["read-local", "read-multisite"], 2);
}

#[test]
fn tpcb_reports_what_is_promised() {
    let (text, json) = benchmark("tpcb", &["--seed", "4"]);
    assert_is_a_benchmark_result(&json, &["account-update", "account-update-remote"], 2);
    for (key, value) in [("branches", 4.0), ("accounts_per_branch", 100.0), ("remote", 0.15), ("seed", 4.0)] {
        assert_eq!(json["config"][key].as_f64(), Some(value), "{key}");
    }
    assert_eq!(json["load"]["rows"], 4 * 111);
    assert!(text.contains("4 branches of 100 accounts, 15% remote"), "{text}");
    for more in [
        &["--clients", "2", "--durability", "none"][..],
        &["--routing", "owner", "--remote", "0"],
        &["--durability", "relaxed", "--remote", "1", "--static"],
    ] {
        let (_, json) = benchmark("tpcb", more);
        assert_is_a_benchmark_result(&json, &["account-update", "account-update-remote"], 2);
        if more.contains(&"owner") {
            assert_eq!((&json["actions"]["remote"], &json["locks"]["entered"]), (&0.into(), &0.into()));
        }
    }
}

#[test]
fn ycsb_reports_what_is_promised() {
    let single = ["read", "update", "insert", "scan", "read-modify-write"];
    for (letter, distribution) in [("a", "zipf"), ("d", "latest"), ("e", "zipf"), ("f", "zipf")] {
        let (text, json) = benchmark("ycsb", &["--mix", letter]);
        assert_is_a_benchmark_result(&json, &single, 2);
        assert_eq!(
            (&json["config"]["mix"], &json["config"]["distribution"]),
            (&letter.into(), &distribution.into())
        );
        assert_eq!(
            (json["config"]["theta"].as_f64(), json["load"]["rows"].as_u64()),
            (Some(0.99), Some(500))
        );
        assert!(
            text.contains(&format!("mix {letter}, 500 rows of 10x100 bytes, {distribution} 0.99")),
            "{text}"
        );
    }
    for more in [
        &["--updates", "0.5", "--ops-per-txn", "16", "--record-shape", "8", "--sessions", "16"][..],
        &["--letter", "b", "--ops-per-txn", "4", "--order", "drawn", "--unscrambled", "--durability", "none"],
        &["--updates", "0.1", "--ops-per-txn", "3", "--distribution", "uniform", "--routing", "owner"],
        &["--mix", "d", "--ops-per-txn", "2", "--clients", "2", "--static"],
    ] {
        let (_, json) = benchmark("ycsb", more);
        assert_is_a_benchmark_result(&json, &["read-only", "read-write"], 2);
        assert_has(&json["config"], &["shares", "record_shape", "scrambled", "ops_per_txn", "order"]);
        if more.contains(&"owner") {
            assert_eq!((&json["actions"]["remote"], &json["locks"]["entered"]), (&0.into(), &0.into()));
        }
    }
}

#[test]
fn smallbank_reports_what_is_promised() {
    let classes =
        ["balance", "deposit-checking", "transact-savings", "amalgamate", "write-check", "send-payment"];
    let (text, json) = benchmark("smallbank", &["--seed", "2"]);
    assert_is_a_benchmark_result(&json, &classes, 2);
    assert_eq!((json["config"]["theta"].as_f64(), json["load"]["rows"].as_u64()), (Some(0.99), Some(900)));
    assert!(text.contains("300 customers, mix standard, Zipf 0.99"), "{text}");
    for more in [
        &["--hotspot", "10", "--hotspot-share", "0.5", "--durability", "none"][..],
        &["--theta", "0", "--mix", "send-payment", "--clients", "2", "--static"],
        &["--routing", "owner", "--durability", "relaxed"],
    ] {
        let (text, json) = benchmark("smallbank", more);
        assert_is_a_benchmark_result(&json, &classes, 2);
        if more.contains(&"--hotspot") {
            assert_eq!((&json["config"]["hotspot"], &json["config"]["theta"]), (&10.into(), &Value::Null));
            assert!(text.contains("50% of requests to 10"), "{text}");
        }
    }
}

#[test]
fn raw_reports_ten_numbers() {
    let (text, json) = benchmark("raw", &[]);
    assert_has(&json, &["commit", "machine", "config", "seconds", "raw"]);
    let mut names = vec![
        "tree_tps",
        "tree_interleaved_tps",
        "btreemap_tps",
        "btreemap_2t_tps",
        "hashbrown_tps",
        "message_roundtrip_ns",
        "message_batched_ns",
        "ring_batched_ns",
        "increment_shared_ns",
        "increment_private_ns",
    ];
    for name in &names {
        assert!(json["raw"][*name].as_f64().is_some_and(|value| value > 0.0), "{name}: {json}");
        assert!(text.contains(name), "no '{name}' in:\n{text}");
    }
    names.sort_unstable();
    assert_eq!(keys(&json["raw"]), names);
}

#[test]
fn the_same_seed_loads_the_same_database() {
    let rows =
        |seed: &str| benchmark("tatp", &["--seed", seed, "--seconds", "0.05"]).1["load"]["rows"].as_u64();
    assert_eq!(rows("4"), rows("4"));
    assert_ne!(rows("4"), rows("5"), "the number of rows of 300 subscribers depends on the seed");
}

#[test]
fn help_is_worth_reading() {
    for (arguments, words) in [
        (&["--help"][..], &["islands", "Examples:", "bench raw", "Exit status"][..]),
        (
            &["bench", "tatp", "--help"],
            &["--mix", "insert-call-forwarding", "--routing", "--clients", "--json", "--no-pin"],
        ),
        (
            &["bench", "micro", "--help"],
            &["--multisite", "--zipf", "--rows-per-site", "--durability", "--dir"],
        ),
        (&["bench", "tpcb", "--help"], &["--branches", "--remote", "history", "--durability", "--static"]),
        (
            &["bench", "ycsb", "--help"],
            &["--theta", "10x100", "latest", "--ops-per-txn", "read-modify-writes"],
        ),
        (&["bench", "smallbank", "--help"], &["--theta", "--hotspot", "--customers", "transact-savings"]),
        (&["inspect", "--help"], &["checksum", "--json", "Exit status 1"]),
        (&["backup", "--help"], &["restore", "while another process"]),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        for word in words {
            assert!(stdout(&output).contains(word), "{arguments:?} does not mention '{word}'");
        }
    }
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_reports_what_it_has() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("result.json");
    let mut arguments = vec!["bench", "tatp", "--no-pin", "--workers", "2", "--subscribers", "300"];
    arguments.extend([
        "--warmup",
        "0",
        "--seconds",
        "100000",
        "--runs",
        "3",
        "--json",
        path.to_str().expect("text"),
    ]);
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("atrapos"))
        .args(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    // Before it measures, an interrupt ends the process without a result (and before it listens, by the signal itself); then
    // it is tried again, a little later.
    let mut patience = std::time::Duration::from_millis(300);
    let output = loop {
        std::thread::sleep(patience);
        interrupt(&child);
        let output = child.wait_with_output().expect("it ends");
        if !matches!(output.status.code(), None | Some(130)) {
            break output;
        }
        patience *= 2;
        child = Command::new(assert_cmd::cargo::cargo_bin("atrapos"))
            .args(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
    };
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("interrupted") && stdout(&output).contains("audit       passed"));
    let json: Value =
        serde_json::from_str(&std::fs::read_to_string(&path).expect("the file")).expect("one JSON object");
    assert_eq!(json["interrupted"], Value::Bool(true));
    assert_eq!(json["runs"].as_array().map(Vec::len), Some(1), "the other runs are not begun");
}
