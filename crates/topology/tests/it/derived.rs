//! Islands from measured round trips: matrices of machines that are not at hand, with noise.

use crate::fixture::{check_invariants, islands, one_node, refused};
use atrapos_topology::{CpuId, CpuSet, LatencyMatrix, Level, Machine, derive_islands};
use proptest::prelude::*;

/// A small generator of noise, so that a failure is repeated by its seed.
struct Noise(u64);

impl Noise {
    /// Uniform in -1.0..1.0 (splitmix64).
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// A matrix of `count` cpus from a rule, every entry changed by up to `noise` of it.
fn matrix(count: u32, noise: f64, seed: u64, ns: impl Fn(u32, u32) -> f64) -> LatencyMatrix {
    let cpus: Vec<CpuId> = (0..count).map(CpuId).collect();
    let mut random = Noise(seed);
    let mut rows = vec![vec![0.0; count as usize]; count as usize];
    for a in 0..count {
        for b in 0..a {
            let disturbed = ns(a, b) * (1.0 + noise * random.next());
            rows[a as usize][b as usize] = disturbed;
            rows[b as usize][a as usize] = disturbed;
        }
    }
    LatencyMatrix::new(&cpus, &rows).expect("symmetric and positive")
}

/// The derived levels as lists of cpus, from fine to coarse.
fn levels(latencies: &LatencyMatrix) -> Vec<Vec<String>> {
    let derived = derive_islands(latencies);
    derived.levels.iter().map(|level| level.islands.iter().map(ToString::to_string).collect()).collect()
}

fn runs(count: u32, length: u32) -> Vec<String> {
    let run = |start: u32| (start..start + length).map(CpuId).collect::<CpuSet>().to_string();
    (0..count / length).map(|index| run(index * length)).collect()
}

#[test]
fn two_sockets_of_eight() {
    for seed in 0..20 {
        let latencies = matrix(16, 0.12, seed, |a, b| if a / 8 == b / 8 { 60.0 } else { 150.0 });
        assert_eq!(levels(&latencies), [runs(16, 8)], "seed {seed}");
    }
}

#[test]
fn eight_sockets_of_ten() {
    for seed in 0..5 {
        // One hop between most sockets, two between the rest: a machine without more nesting than its sockets.
        let hops = |a: u32, b: u32| if ((a / 10) ^ (b / 10)).count_ones() == 3 { 420.0 } else { 360.0 };
        let latencies = matrix(80, 0.1, seed, |a, b| if a / 10 == b / 10 { 80.0 } else { hops(a, b) });
        assert_eq!(levels(&latencies), [runs(80, 10)], "seed {seed}");
    }
}

#[test]
fn chiplets_in_sockets_with_siblings() {
    let ns = |a: u32, b: u32| match () {
        () if a / 2 == b / 2 => 12.0,
        () if a / 8 == b / 8 => 45.0,
        () if a / 64 == b / 64 => 130.0,
        () => 380.0,
    };
    for seed in 0..5 {
        let latencies = matrix(128, 0.12, seed, ns);
        assert_eq!(levels(&latencies), [runs(128, 2), runs(128, 8), runs(128, 64)], "seed {seed}");
        let derived = derive_islands(&latencies);
        let within = derived.levels[1].within_ns.expect("measured");
        assert!((40.0..50.0).contains(&within), "{within}");
        let between = derived.levels[2].between_ns.expect("measured");
        assert!((340.0..420.0).contains(&between), "{between}");
    }
}

#[test]
fn a_flat_machine_has_no_islands_whatever_the_noise() {
    for count in [2, 3, 4, 8, 16, 48] {
        for seed in 0..50 {
            let latencies = matrix(count, 0.12, seed, |_, _| 55.0);
            assert_eq!(levels(&latencies), Vec::<Vec<String>>::new(), "{count} cpus, seed {seed}");
        }
    }
    assert_eq!(levels(&matrix(1, 0.0, 0, |_, _| 1.0)), Vec::<Vec<String>>::new());
}

#[test]
fn a_few_odd_pairs_and_disturbed_cpus_are_no_islands() {
    let odd_pair = matrix(16, 0.05, 1, |a, b| if (a, b) == (9, 4) { 20.0 } else { 55.0 });
    assert_eq!(levels(&odd_pair), Vec::<Vec<String>>::new());
    let disturbed = matrix(16, 0.05, 1, |a, b| if a == 3 || b == 3 { 140.0 } else { 55.0 });
    assert_eq!(levels(&disturbed), Vec::<Vec<String>>::new());
    // Single pairs that were disturbed for the whole measurement do not hide the sockets either.
    let spoilt = matrix(16, 0.05, 1, |a, b| match (a, b) {
        (5, 2) | (13, 9) => 900.0,
        _ if a / 8 == b / 8 => 60.0,
        _ => 150.0,
    });
    assert_eq!(levels(&spoilt), [runs(16, 8)]);
}

#[test]
fn islands_of_unequal_size_are_found() {
    let island = |cpu: u32| match cpu {
        0..=6 => 0,
        7..=9 => 1,
        _ => 2,
    };
    let latencies = matrix(11, 0.08, 5, |a, b| if island(a) == island(b) { 40.0 } else { 110.0 });
    assert_eq!(levels(&latencies), [vec!["0-6", "7-9", "10"]]);
}

/// Keeps the pairs that a sampled measurement of many cpus has: some steps around the ring.
fn sampled(full: &LatencyMatrix) -> LatencyMatrix {
    let count = full.len();
    let kept = |a: usize, b: usize| {
        let step = a.abs_diff(b).min(count - a.abs_diff(b));
        [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64].contains(&step)
    };
    let entry = |a: usize, b: usize| full.at(a, b).filter(|_| kept(a, b)).unwrap_or(f64::NAN);
    let rows: Vec<Vec<f64>> = (0..count).map(|a| (0..count).map(|b| entry(a, b)).collect()).collect();
    LatencyMatrix::new(full.cpus(), &rows).expect("symmetric")
}

#[test]
fn a_sample_of_pairs_is_enough() {
    let ns = |a: u32, b: u32| match () {
        () if a / 8 == b / 8 => 45.0,
        () if a / 64 == b / 64 => 130.0,
        () => 380.0,
    };
    for seed in 0..5 {
        let latencies = sampled(&matrix(128, 0.1, seed, ns));
        assert!(latencies.pairs().count() < 128 * 127 / 4);
        assert_eq!(levels(&latencies), [runs(128, 8), runs(128, 64)], "seed {seed}");
    }
}

#[test]
fn cpus_that_were_never_compared_are_apart() {
    let nan = f64::NAN;
    let rows = [
        vec![0.0, 40.0, nan, nan],
        vec![40.0, 0.0, nan, nan],
        vec![nan, nan, 0.0, 41.0],
        vec![nan, nan, 41.0, 0.0],
    ];
    let latencies = LatencyMatrix::new(&[CpuId(0), CpuId(1), CpuId(2), CpuId(3)], &rows).expect("valid");
    assert_eq!(levels(&latencies), [vec!["0,1", "2,3"]]);
}

#[test]
fn a_machine_that_hides_its_islands_is_corrected() {
    // A virtual machine that shows one of everything, on top of four L3 islands on two sockets, cpus dealt round.
    let lying = one_node(16).machine();
    let ns = |a: u32, b: u32| match () {
        () if a % 4 == b % 4 => 45.0,
        () if a % 2 == b % 2 => 120.0,
        () => 350.0,
    };
    let latencies = matrix(16, 0.1, 3, ns);
    let machine = lying.with_measured_islands(&latencies).expect("the same cpus");
    check_invariants(&machine);
    assert_eq!(islands(&machine, Level::L3), ["0,4,8,12", "2,6,10,14", "1,5,9,13", "3,7,11,15"]);
    assert_eq!(islands(&machine, Level::Socket), ["0,2,4,6,8,10,12,14", "1,3,5,7,9,11,13,15"]);
    assert!(
        refused(&machine).contains("describes 1 sockets, but round trips show 2"),
        "{}",
        refused(&machine)
    );
    assert!(machine.is_live(), "it is still this machine");
    assert_eq!(machine.memory_bytes(), lying.memory_bytes());
    assert_eq!(machine.placement(2), [CpuId(0), CpuId(4)]);
    assert_eq!(machine.latencies(), Some(&latencies));
}

#[test]
fn a_machine_that_invents_sockets_is_corrected() {
    // Every cpu claims to be a socket of its own, as some hypervisors have it by default.
    let lying = Machine::synthetic("pack:8 numa:1 core:1 pu:1").expect("valid");
    let machine = lying.with_measured_islands(&matrix(8, 0.1, 7, |_, _| 50.0)).expect("the same cpus");
    check_invariants(&machine);
    assert_eq!(islands(&machine, Level::Socket), ["0-7"]);
    assert!(
        refused(&machine).contains("describes 8 sockets, but round trips show 1"),
        "{}",
        refused(&machine)
    );
}

#[test]
fn what_is_described_rightly_stays() {
    let described = Machine::synthetic("pack:2 numa:1(memory=8GiB) l3:2 core:4 pu:2").expect("valid");
    let ns = |a: u32, b: u32| match () {
        () if a / 2 == b / 2 => 12.0,
        () if a / 8 == b / 8 => 45.0,
        () if a / 16 == b / 16 => 120.0,
        () => 350.0,
    };
    let machine = described.with_measured_islands(&matrix(32, 0.1, 9, ns)).expect("the same cpus");
    check_invariants(&machine);
    assert_eq!(refused(&machine), "");
    for level in Level::ALL {
        assert_eq!(islands(&machine, level), islands(&described, level));
    }
    assert_eq!(machine.cores(), described.cores());
    assert_eq!(machine.memory_bytes(), described.memory_bytes());

    // One level within sockets that are believed.
    let caches = |a: u32, b: u32| if a / 8 == b / 8 { 45.0 } else { 120.0 };
    let machine = described.with_measured_islands(&matrix(32, 0.1, 9, caches)).expect("the same cpus");
    assert_eq!(islands(&machine, Level::Socket), islands(&described, Level::Socket));
    assert_eq!(islands(&machine, Level::L3), islands(&described, Level::L3));
}

#[test]
fn hidden_siblings_become_cores() {
    let lying = one_node(16).machine();
    let ns = |a: u32, b: u32| match () {
        () if a / 2 == b / 2 => 12.0,
        () if a / 8 == b / 8 => 45.0,
        () => 150.0,
    };
    let machine = lying.with_measured_islands(&matrix(16, 0.1, 3, ns)).expect("the same cpus");
    check_invariants(&machine);
    assert_eq!(machine.cores().len(), 8);
    assert_eq!(islands(&machine, Level::L3), ["0-7", "8-15"]);
    assert_eq!(machine.default_workers(), 8);
}

#[test]
fn cpus_that_were_not_measured_follow_their_neighbours() {
    let described = Machine::synthetic("pack:2 l3:2 core:4 pu:1").expect("valid");
    let all = matrix(16, 0.05, 2, |a, b| if a / 8 == b / 8 { 50.0 } else { 200.0 });
    let some: Vec<CpuId> = [0, 1, 4, 8, 9, 12].map(CpuId).to_vec();
    let rows: Vec<Vec<f64>> =
        some.iter().map(|&a| some.iter().map(|&b| all.get(a, b).unwrap_or(f64::NAN)).collect()).collect();
    let latencies = LatencyMatrix::new(&some, &rows).expect("valid");
    let machine = described.with_measured_islands(&latencies).expect("known cpus");
    check_invariants(&machine);
    assert_eq!(islands(&machine, Level::L3), ["0-7", "8-15"]);
    let unknown =
        LatencyMatrix::new(&[CpuId(0), CpuId(99)], &[vec![0.0, 1.0], vec![1.0, 0.0]]).expect("valid");
    let error = described.with_measured_islands(&unknown).expect_err("an unknown cpu").to_string();
    assert!(error.contains("names cpu 99"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Nested groups of any shape are found again, whatever the order of the cpus.
    #[test]
    fn nested_islands_are_found_in_any_order(
        (outer, inner, size) in (2u32..4, 2u32..4, 3u32..6),
        seed in any::<u64>(),
        multiplier in prop::sample::select(vec![1u32, 7, 11, 13]),
    ) {
        let count = outer * inner * size;
        // Multiplying by a unit of the ring deals the cpus round.
        prop_assume!((1..=multiplier).filter(|d| multiplier % d == 0 && count % d == 0).count() == 1);
        let home = |cpu: u32| cpu * multiplier % count;
        let ns = |a: u32, b: u32| match () {
            () if home(a) / size == home(b) / size => 40.0,
            () if home(a) / (size * inner) == home(b) / (size * inner) => 90.0,
            () => 250.0,
        };
        let derived = derive_islands(&matrix(count, 0.08, seed, ns));
        prop_assert_eq!(derived.levels.len(), 2);
        for (level, length) in derived.levels.iter().zip([size, size * inner]) {
            prop_assert_eq!(level.islands.len() as u32, count / length);
            for island in &level.islands {
                let homes: std::collections::BTreeSet<u32> = island.iter().map(|cpu| home(cpu.0) / length).collect();
                prop_assert_eq!((homes.len(), island.len() as u32), (1, length));
            }
        }
    }

    /// Any matrix at all gives nested partitions, and a valid machine.
    #[test]
    fn any_matrix_gives_nested_partitions(
        count in 2u32..12,
        entries in prop::collection::vec(prop_oneof![3 => 1.0f64..1000.0, 1 => Just(f64::NAN)], 66),
    ) {
        let entry = |a: usize, b: usize| entries[a.max(b) * (a.max(b).saturating_sub(1)) / 2 + a.min(b)];
        let cpus: Vec<CpuId> = (0..count).map(CpuId).collect();
        let rows: Vec<Vec<f64>> = (0..count as usize).map(|a| (0..count as usize).map(|b| if a == b { 0.0 } else { entry(a, b) }).collect()).collect();
        let latencies = LatencyMatrix::new(&cpus, &rows).expect("symmetric");
        let all: CpuSet = cpus.iter().copied().collect();
        let mut finer: Vec<CpuSet> = cpus.iter().map(|&cpu| [cpu].into_iter().collect()).collect();
        for level in derive_islands(&latencies).levels {
            prop_assert!(level.islands.len() > 1 && level.islands.len() < finer.len());
            prop_assert_eq!(level.islands.iter().map(CpuSet::len).sum::<usize>(), count as usize);
            prop_assert_eq!(level.islands.iter().fold(CpuSet::new(), |union, island| union.union(island)), all.clone());
            prop_assert!(finer.iter().all(|fine| level.islands.iter().any(|island| fine.is_subset(island))));
            finer = level.islands;
        }
        let flat = Machine::synthetic(&format!("core:{count} pu:1")).expect("valid");
        check_invariants(&flat.with_measured_islands(&latencies).expect("the same cpus"));
    }
}
