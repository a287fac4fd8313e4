//! Tests of `measure`.

use super::*;
use crate::affinity::{CPU_NUMBER_MAX, current_thread_cpus};

fn quick() -> MeasureOptions {
    MeasureOptions { visits: 2, batches: 3, round_trips: 20, ..MeasureOptions::default() }
}

/// Two processing units that threads can be pinned to, where this process has them.
fn two_cpus() -> Option<(usize, usize)> {
    let cpus = current_thread_cpus().unwrap_or_default();
    let pinnable =
        |cpu: usize| std::thread::spawn(move || pin_current_thread(cpu).is_ok()).join().unwrap_or(false);
    match cpus.as_slice() {
        &[a, b, ..] if [a, b].into_iter().all(pinnable) => Some((a, b)),
        _ => None,
    }
}

#[test]
fn few_cpus_are_measured_in_all_pairs() {
    assert_eq!(pairs_to_measure(4, 64), [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]);
    assert_eq!(pairs_to_measure(64, 64).len(), 64 * 63 / 2);
}

#[test]
fn many_cpus_are_sampled_without_losing_any() {
    for count in [65, 96, 128, 255, 1000] {
        let pairs = pairs_to_measure(count, 64);
        assert!(pairs.windows(2).all(|two| two[0] < two[1]), "each pair once");
        assert!(pairs.iter().all(|&(a, b)| a < b && b < count));
        let log2 = usize::BITS - count.leading_zeros();
        assert!(pairs.len() <= 2 * count * log2 as usize, "{count}: {} pairs", pairs.len());
        // Connected: what is reached from row 0 grows until it is everything.
        let mut reached = vec![false; count];
        reached[0] = true;
        for _ in 0..count {
            for &(a, b) in &pairs {
                let either = reached[a] || reached[b];
                (reached[a], reached[b]) = (either, either);
            }
        }
        assert!(reached.iter().all(|&reached| reached), "{count} is connected");
    }
    assert_eq!(steps_around(20), [1, 2, 3, 4, 6, 8, 10]);
}

#[test]
fn a_pair_has_a_symmetric_positive_round_trip() {
    let Some((a, b)) = two_cpus() else { return };
    let measured = measure_round_trips(&[a, b, a], &quick()).expect("two cpus that threads can be pinned to");
    assert_eq!(measured.cpus, [a, b]);
    assert_eq!((measured.pairs_planned, measured.pairs_measured), (1, 1));
    assert!(measured.ns[0][1] > 0.0 && measured.ns[0][1].is_finite());
    assert_eq!(measured.ns[0][1], measured.ns[1][0]);
    assert_eq!((measured.ns[0][0], measured.ns[1][1]), (0.0, 0.0));
    assert_eq!(measured.warnings, Vec::<String>::new());
}

#[test]
fn a_cpu_that_refuses_is_left_out_with_a_warning() {
    let Some((a, b)) = two_cpus() else { return };
    for absent_first in [true, false] {
        let mut cpus = vec![a, b];
        cpus.insert(if absent_first { 0 } else { 2 }, CPU_NUMBER_MAX);
        let measured = measure_round_trips(&cpus, &quick()).expect("two cpus that threads can be pinned to");
        assert_eq!((measured.pairs_planned, measured.pairs_measured), (3, 1));
        let absent = cpus.iter().position(|&cpu| cpu == CPU_NUMBER_MAX).expect("it was put there");
        assert!((0..3).filter(|&other| other != absent).all(|other| measured.ns[absent][other].is_nan()));
        let [warning] = measured.warnings.as_slice() else {
            panic!("one warning, not {:?}", measured.warnings)
        };
        assert!(warning.contains(&CPU_NUMBER_MAX.to_string()), "{warning}");
    }
}

#[test]
fn what_cannot_be_measured_is_an_error() {
    let text = |cpus: &[usize], options: &MeasureOptions| {
        measure_round_trips(cpus, options).expect_err("refused").to_string()
    };
    assert!(text(&[], &quick()).contains("between 0 cpus"));
    assert!(text(&[3, 3], &quick()).contains("between 1 cpus"));
    let no_time = MeasureOptions { time_max: Duration::ZERO, ..quick() };
    assert!(text(&[0, 1], &no_time).contains("the time was over"));
    let absent = text(&[CPU_NUMBER_MAX, CPU_NUMBER_MAX - 1], &quick());
    assert!(absent.contains("without pinned threads"), "{absent}");
}

#[test]
fn the_median_is_in_the_middle() {
    assert_eq!(median(&mut []), None);
    assert_eq!(median(&mut [9.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&mut [9.0, 1.0]), Some(5.0));
}
