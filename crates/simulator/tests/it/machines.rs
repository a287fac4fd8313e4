//! What a simulated machine does without a controller: figures that follow from its numbers by hand.

use crate::{run, scenario};
use atrapos_adapt::ControllerSettings;
use atrapos_simulator::{MachineKind, Scenario, compare};

#[test]
fn uniform_loads_use_all_workers() {
    // 600 ns per transaction on each worker; what is missing is queueing among eight clients per worker, and noise.
    for kind in [MachineKind::Two, MachineKind::TwoByEight, MachineKind::Chiplets] {
        let result = run(&scenario("uniform", 20_000.0), kind);
        let bound = kind.workers() as f64 / 600e-9;
        let share = result.phases[0].static_tps / bound;
        assert!((0.85..1.0).contains(&share), "{}: {share}", kind.name());
    }
}

#[test]
fn synchronization_costs_what_the_machine_says() {
    // Local pairs take 1.14 us; pairs on two workers 0.76 us more.
    let result = run(&scenario("mirrored", 20_000.0), MachineKind::Two);
    let phase = &result.phases[0];
    let (local, remote) = (2.0 / phase.best_tps * 1e6, 2.0 / phase.static_tps * 1e6);
    assert!((1.1..1.3).contains(&local), "{local} us");
    assert!((0.6..1.1).contains(&(remote - local)), "{remote} - {local} us");
}

#[test]
fn a_hot_range_is_bounded_by_its_worker() {
    // 60% of the requests are for one of two workers.
    let text = r#"
        name = "hot half"
        about = "three of five requests are for the first half"
        events_per_s = 20000.0
        table = [{ name = "rows", rows = 100000 }]
        class = [{ name = "read", base_ns = 500.0, stages = [[{ table = "rows", key = "same", ns = 500.0 }]] }]
        phase = [{ name = "hot", seconds = 5.0, mix = { read = 1.0 }, hot = [{ from = 0.0, to = 0.5, share = 0.2 }] }]
    "#;
    let scenario = Scenario::from_toml(text).expect("a scenario");
    let phase = &run(&scenario, MachineKind::Two).phases[0];
    let bound = 1e6 / 0.6;
    let share = phase.static_tps / bound;
    assert!((0.9..1.02).contains(&share), "{share}");
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_another() {
    let scenario = scenario("two-hot-ranges", 5_000.0);
    let run = |seed| {
        let result = compare(&scenario, MachineKind::TwoByEight, seed, ControllerSettings::default());
        result.expect("a result")
    };
    let (first, again, other) = (run(1), run(1), run(2));
    assert_eq!(first.phases, again.phases);
    assert_eq!(first.decisions, again.decisions);
    assert_ne!(first.phases, other.phases);
}

#[test]
fn scenarios_that_contradict_themselves_are_refused() {
    let good = r#"
        name = "n"
        about = "a"
        table = [{ name = "rows", rows = 100000 }]
        class = [{ name = "read", base_ns = 500.0, stages = [[{ table = "rows", key = "same", ns = 500.0 }]] }]
        phase = [{ name = "p", seconds = 5.0, mix = { read = 1.0 } }]
    "#;
    Scenario::from_toml(good).expect("a scenario");
    for (from, to, expected) in [
        ("table = \"rows\"", "table = \"row\"", "accesses a table 'row', which it does not have"),
        ("read = 1.0", "write = 1.0", "mixes a class 'write', which it does not have"),
        ("read = 1.0", "read = 0.0", "mixes nothing"),
        ("seconds = 5.0", "seconds = -5.0", "has a phase of -5 seconds"),
        ("rows = 100000", "rows = 10", "has 10 rows"),
        ("base_ns = 500.0", "base_ns = -1.0", "negative or none"),
        (
            "seconds = 5.0",
            "seconds = 5.0, hot = [{ from = 0.5, to = 0.2, share = 0.1 }]",
            "no shares of keys",
        ),
        ("seconds = 5.0", "seconds = 5.0, ebb_to = 0.1", "ebbs in phase 'p' without arrivals"),
        (
            "seconds = 5.0",
            "seconds = 5.0, offline_island = 0, busy_island = 1",
            "takes two islands in phase 'p'",
        ),
        ("name = \"n\"", "nam = \"n\"", "this is not a scenario"),
    ] {
        let text = good.replace(from, to);
        assert_ne!(text, good);
        let error = Scenario::from_toml(&text).expect_err(to).to_string();
        assert!(error.contains(expected), "{to}: {error}");
    }
}
