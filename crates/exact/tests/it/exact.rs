//! The search against the optimum: by the exact program, and by trying all schemes.

use atrapos_adapt::{
    AdaptError, Annealing, ControllerSettings, PlannedScheme, Platform, Settings, TableIndex, TableScheme,
    WorkerIndex, Workload, evaluate, search,
};
use atrapos_exact::solve_exactly;
use atrapos_topology::Machine;

use crate::fixture::{Random, platform, random_workload};

const MACHINES: [&str; 5] =
    ["core:2 pu:1", "pack:2 core:1 pu:1", "core:3 pu:1", "pack:2 core:2 pu:1", "l3:2 core:2 pu:1"];

/// Long enough for any case here on any machine: no case is left out.
const SECONDS_MAX: f64 = 3600.0;

fn objective(workload: &Workload, platform: &Platform, scheme: &PlannedScheme) -> f64 {
    evaluate(workload, platform, scheme, &Settings::default().weights).expect("a cost").objective
}

/// The optimum, by trying every assignment of slices to workers.
fn try_all(workload: &Workload, platform: &Platform, slices: usize) -> f64 {
    let workers = platform.worker_count();
    let mut best = f64::INFINITY;
    for number in 0..workers.pow(slices as u32) {
        let mut rest = number;
        let owners: Vec<usize> = (0..slices)
            .map(|_| {
                let owner = rest % workers;
                rest /= workers;
                owner
            })
            .collect();
        let mut at = 0;
        let tables = (0..workload.table_count()).map(|table| {
            let count = workload.slice_count(TableIndex(table as u32)) as usize;
            let of_table = &owners[at..at + count];
            at += count;
            let cuts: Vec<u32> = (1..count)
                .filter(|slice| of_table[*slice] != of_table[slice - 1])
                .map(|slice| slice as u32)
                .collect();
            let begins = std::iter::once(0).chain(cuts.iter().copied());
            let owners = begins.map(|slice| WorkerIndex(of_table[slice as usize] as u32)).collect();
            TableScheme::new(cuts.clone(), owners)
        });
        let scheme = PlannedScheme::new(tables.collect());
        best = best.min(objective(workload, platform, &scheme));
    }
    best
}

/// Slices of a table by the number of workers: about six thousand schemes at most, and a thousand.
const SLICES: [usize; 5] = [0, 0, 12, 7, 6];
const FEW_SLICES: [usize; 5] = [0, 0, 9, 6, 5];

/// A random machine and workload of up to so many tables, with the least objective of all schemes.
fn random_case(seed: u64, slices: [usize; 5], tables_max: u64) -> (&'static str, Platform, Workload, f64) {
    let mut random = Random(seed);
    let machine = MACHINES[random.below(MACHINES.len() as u64) as usize];
    let platform = platform(machine);
    let slices = slices[platform.worker_count()];
    let tables = 1 + random.below(tables_max) as usize;
    let workload = random_workload(&mut random, tables, slices);
    let best = try_all(&workload, &platform, slices);
    (machine, platform, workload, best)
}

#[test]
fn the_search_is_within_five_percent_of_all_schemes() {
    for seed in 0..200 {
        let (machine, platform, workload, best) = random_case(seed, SLICES, 3);
        let found = search(&workload, &platform, None, &Settings::default()).expect("a scheme");
        let found = objective(&workload, &platform, &found);
        assert!(found <= best * 1.05 + 1e-9, "seed {seed} on {machine}: found {found}, best {best}");
        assert!(found >= best - 1e-9, "seed {seed} on {machine}: found {found}, below the best {best}");
    }
}

#[test]
fn what_a_controller_finds_is_within_five_percent_or_a_trifle_of_all_schemes() {
    let planning = ControllerSettings::default().planning;
    let (mut worse, mut without) = (0, 0);
    for seed in 0..200 {
        let (_, platform, workload, best) = random_case(seed, SLICES, 3);
        let is_worse = |planning: &Settings| {
            let found = search(&workload, &platform, None, planning).expect("a scheme");
            objective(&workload, &platform, &found) > best + f64::max(0.05 * best, 0.01) + 1e-9
        };
        worse += usize::from(is_worse(&planning));
        without += usize::from(is_worse(&Settings { annealing: Annealing::None, ..planning }));
    }
    assert!(worse <= 1, "{worse} of 200 are more than 5% and 1% of the work from the best");
    assert!(without > 5, "without annealing, only {without} are");
}

#[test]
fn the_exact_program_finds_what_trying_all_schemes_finds() {
    for seed in 1000..1020 {
        let (machine, platform, workload, best) = random_case(seed, FEW_SLICES, 2);
        let exact = solve_exactly(&workload, &platform, &Settings::default(), SECONDS_MAX)
            .unwrap_or_else(|error| panic!("seed {seed} on {machine}: {error}"));
        let difference = (exact.objective - best).abs();
        assert!(difference <= 1e-4 * best + 1e-7, "seed {seed} on {machine}: {} for {best}", exact.objective);
    }
}

#[test]
fn the_search_is_within_five_percent_of_the_exact_program() {
    for seed in 5000..5024 {
        let mut random = Random(seed);
        let machine = MACHINES[random.below(MACHINES.len() as u64) as usize];
        let platform = platform(machine);
        let slices = [0, 0, 26, 16, 11][platform.worker_count()];
        let workload = random_workload(&mut random, 2, slices);
        let exact = solve_exactly(&workload, &platform, &Settings::default(), SECONDS_MAX)
            .unwrap_or_else(|error| panic!("seed {seed} on {machine}: {error}"));
        let found = search(&workload, &platform, None, &Settings::default()).expect("a scheme");
        let found = objective(&workload, &platform, &found);
        let best = exact.objective;
        assert!(found <= best * 1.05 + 1e-9, "seed {seed} on {machine}: found {found}, best {best}");
        let naive = objective(&workload, &platform, &PlannedScheme::naive(&workload, &platform));
        assert!(best <= naive + 1e-9, "seed {seed} on {machine}: best {best}, naive {naive}");
    }
}

#[test]
fn what_is_too_large_or_not_linear_is_refused() {
    let settings = Settings::default();
    let workload = random_workload(&mut Random(1), 2, 40);
    let wide = platform("pack:2 core:4 pu:1");
    assert!(matches!(solve_exactly(&workload, &wide, &settings, 1.0), Err(AdaptError::TooLarge { .. })));
    let text = r#"
        [[island]]
        cpus = "0"
        node = 0
        socket = 0
        [[island]]
        cpus = "1"
        node = 0
        socket = 0
        [[island]]
        cpus = "2"
        node = 0
        socket = 0
        [[node]]
        id = 0
        [latency]
        cpus = [0, 1, 2]
        ns = [[0, 50, 100], [50, 0, 150], [100, 150, 0]]
    "#;
    let machine = Machine::from_toml(text, std::path::Path::new("uneven.toml")).expect("a machine");
    let uneven = Platform::for_workers(&machine, 3).expect("a platform");
    let workload = random_workload(&mut Random(1), 2, 6);
    let error = solve_exactly(&workload, &uneven, &settings, 1.0).expect_err("refused");
    assert!(matches!(error, AdaptError::UnevenDistances { .. }), "{error}");
    let error = solve_exactly(&workload, &wide, &settings, -1.0).expect_err("refused");
    assert!(matches!(error, AdaptError::ExactUnfinished { .. }), "{error}");
}
