//! The controller turn by turn: what it waits for, what it refuses, what it records.

use crate::fixture::platform;
use atrapos_adapt::{
    AdaptError, Cause, ControlAction, Controller, ControllerSettings, Decision, KeepReason, Mix, Observation,
    Settings, SharingChange, SharingReason, SubPartition, SyncPointTrace, TraceKey, Trigger, Verdict,
    WaitReason, Weights, WorkerIndex, WorkloadTrace,
};
use std::time::Duration;

fn controller() -> Controller {
    Controller::new(ControllerSettings::default()).expect("the defaults make sense")
}

/// Two workers of these loads, `at_s` seconds after the beginning.
fn observation(at_s: u64, throughput_tps: f64, loads: [f64; 2]) -> Observation {
    Observation {
        at_ns: at_s * 1_000_000_000,
        throughput_tps,
        loads: loads.to_vec(),
        available: vec![true; 2],
        changed_platform: false,
        waits: 0.0,
        samples: None,
        mix: Mix::default(),
    }
}

/// A trace of two workers with ten sub-partitions each, which cost `left` and `right`.
fn trace(left: u64, right: u64, samples: Option<u64>) -> WorkloadTrace {
    let mut trace = WorkloadTrace::from_json(
        r#"{"format": "atrapos-trace 1", "seconds": 1.0, "workers": 2, "tables": [{"name": "t", "partitions": [
            {"worker": 0, "cost_cycles": [1]}, {"worker": 1, "cost_cycles": [1]}]}], "sync_points": [], "classes": []}"#,
    )
    .expect("a trace");
    trace.samples = samples;
    trace.tables[0].partitions[0].cost_cycles = vec![left; 10];
    trace.tables[0].partitions[1].cost_cycles = vec![right; 10];
    trace
}

/// `observe` until it is calm at the longest interval; gives the second at which that is.
fn calm_down(controller: &mut Controller) -> u64 {
    let mut at_s = 0;
    for _ in 0..10 {
        at_s += controller.interval().as_secs();
        if let Verdict::Evaluate(trigger) = controller.observe(&observation(at_s, 1000.0, [5.0, 5.0])) {
            assert_eq!(trigger, Trigger::First);
            let kept = controller.consider(trigger, &trace(5, 5, None), &platform("core:2 pu:1"));
            let kept = kept.expect("a decision").decision;
            assert_eq!(kept.action, ControlAction::Keep { reason: KeepReason::NothingBetter }, "{kept}");
        }
    }
    assert_eq!(controller.interval(), Duration::from_secs(8));
    at_s
}

/// Considers these loads of two workers beside so many cycles of accesses to lent partitions.
fn considered(left: u64, right: u64, in_place_cycles: u64) -> Decision {
    let statistics = WorkloadTrace { in_place_cycles, ..trace(left, right, None) };
    let considered = controller().consider(Trigger::First, &statistics, &platform("core:2 pu:1"));
    considered.expect("a decision").decision
}

#[test]
fn what_no_scheme_changes_makes_gains_small() {
    let alone = considered(3_000, 1_000, 0);
    assert!(matches!(alone.action, ControlAction::Repartition { .. }), "{alone}");
    // The work of which a scheme could move a quarter to the other worker is 4% of all.
    let beside = considered(3_000, 1_000, 960_000);
    assert_eq!(beside.action, ControlAction::Keep { reason: KeepReason::GainTooSmall }, "{beside}");
    let predicted = beside.predicted.expect("it was evaluated");
    assert!((predicted.load_max_before - 1.02).abs() < 1e-9, "{predicted:?}");
    assert!((0.01..0.02).contains(&predicted.gain), "{predicted:?}");
}

#[test]
fn the_interval_is_the_papers() {
    let mut controller = controller();
    let mut at_s = 0;
    let mut intervals = Vec::new();
    let mut verdicts = Vec::new();
    for throughput in [1000.0; 10] {
        intervals.push(controller.interval().as_secs());
        at_s += controller.interval().as_secs();
        verdicts.push(controller.observe(&observation(at_s, throughput, [5.0, 5.0])));
    }
    // Five measurements are what the sixth is compared with.
    assert_eq!(intervals, [1, 1, 1, 1, 1, 1, 2, 4, 8, 8]);
    assert_eq!(verdicts[1], Verdict::Wait(WaitReason::Settling { earlier: 1 }));
    assert_eq!(verdicts[2], Verdict::Evaluate(Trigger::First));
    // 10% is not more than 10%.
    assert!(matches!(
        controller.observe(&observation(at_s + 8, 900.0, [5.0, 5.0])),
        Verdict::Evaluate(Trigger::First)
    ));
    assert_eq!(controller.interval(), Duration::from_secs(8));
    // The mean of the five before is 980.
    let changed = controller.observe(&observation(at_s + 16, 881.0, [5.0, 5.0]));
    assert_eq!(changed, Verdict::Evaluate(Trigger::ThroughputChanged { from_tps: 980.0, to_tps: 881.0 }));
    assert_eq!(controller.interval(), Duration::from_secs(1));
}

#[test]
fn a_throughput_of_few_transactions_is_another_only_beyond_what_counting_explains() {
    let verdict = |from_tps: f64, to_tps: f64| {
        let mut controller = controller();
        for at_s in 1..=6 {
            let _ = controller.observe(&observation(at_s, from_tps, [5.0, 5.0]));
        }
        controller.observe(&observation(7, to_tps, [5.0, 5.0]))
    };
    let changed = |verdict| matches!(verdict, Verdict::Evaluate(Trigger::ThroughputChanged { .. }));
    // Of 100 transactions that come by themselves, one second in three has 10% more or less.
    assert!(!changed(verdict(100.0, 80.0)));
    assert!(changed(verdict(100.0, 150.0)));
    assert!(changed(verdict(10_000.0, 8_000.0)));
}

#[test]
fn nothing_is_evaluated_while_nothing_runs() {
    let mut controller = controller();
    let mut at_s = 0;
    for _ in 0..12 {
        at_s += controller.interval().as_secs();
        let verdict = controller.observe(&observation(at_s, 0.0, [0.0, 0.0]));
        assert!(matches!(verdict, Verdict::Wait(_)), "{verdict:?}");
    }
    assert_eq!(controller.interval(), Duration::from_secs(8));
    let verdict = controller.observe(&observation(at_s, 10.0, [1.0, 1.0]));
    assert_eq!(verdict, Verdict::Evaluate(Trigger::ThroughputChanged { from_tps: 0.0, to_tps: 10.0 }));
}

#[test]
fn a_change_in_the_middle_of_a_long_interval_is_seen_at_a_glance() {
    let mut controller = controller();
    let even = |at_s, tps| observation(at_s, tps, [5.0, 5.0]);
    // At the shortest interval the next observation is as near.
    assert_eq!(controller.glance(&even(0, 1000.0)), None);
    controller.observe(&even(1, 1000.0));
    assert_eq!(controller.glance(&even(1, 1.0)), None);
    let mut controller = self::controller();
    let at_s = calm_down(&mut controller);
    assert_eq!(controller.glance(&even(at_s, 1000.0)), None);
    // A glance is of a short time: twice the threshold is needed.
    assert_eq!(controller.glance(&even(at_s, 800.0)), None);
    assert_eq!(controller.interval(), Duration::from_secs(8));
    let mut skewed = controller.clone();
    let trigger = Trigger::ThroughputChanged { from_tps: 1000.0, to_tps: 799.0 };
    assert_eq!(controller.glance(&even(at_s + 1, 799.0)), Some(WaitReason::BeganAnew { trigger }));
    assert_eq!(controller.interval(), Duration::from_millis(500));
    assert_eq!(controller.glance(&even(at_s + 1, 799.0)), None, "the next observation is near");
    // What comes then is of one load, and may be acted on.
    let verdict = controller.observe(&observation(at_s + 2, 600.0, [9.0, 3.0]));
    let Verdict::Evaluate(trigger) = verdict else { panic!("{verdict:?}") };
    assert_eq!(trigger, Trigger::ThroughputChanged { from_tps: 1000.0, to_tps: 600.0 });
    let considered = controller.consider(trigger, &trace(9, 3, None), &platform("core:2 pu:1"));
    assert!(considered.expect("a decision").decision.is_repartition());

    // The same for a worker that stands out, as long as that is new.
    let uneven = |at_s| observation(at_s, 1000.0, [4.0, 8.0]);
    let reason = skewed.glance(&uneven(at_s + 1));
    assert!(
        matches!(reason, Some(WaitReason::BeganAnew { trigger: Trigger::Imbalance { .. } })),
        "{reason:?}"
    );
    let Verdict::Evaluate(trigger) = skewed.observe(&uneven(at_s + 2)) else { panic!("not evaluated") };
    skewed.consider(trigger, &trace(5, 5, None), &platform("core:2 pu:1")).expect("a decision");
    let mut later = at_s + 2;
    while skewed.interval() < Duration::from_secs(8) {
        later += skewed.interval().as_secs();
        if let Verdict::Evaluate(trigger) = skewed.observe(&uneven(later)) {
            skewed.consider(trigger, &trace(5, 5, None), &platform("core:2 pu:1")).expect("a decision");
        }
        assert!(later < at_s + 100, "what cannot be helped does not keep the interval short");
    }
    assert_eq!(skewed.glance(&uneven(later + 1)), None);
}

#[test]
fn two_glances_that_agree_see_a_smaller_change() {
    let glances = |of_tps: &[f64]| {
        let mut controller = controller();
        let at_s = calm_down(&mut controller);
        let seen = of_tps.iter().map(|tps| controller.glance(&observation(at_s, *tps, [5.0, 5.0])).is_some());
        seen.collect::<Vec<bool>>()
    };
    assert_eq!(glances(&[799.0]), [true]);
    assert_eq!(glances(&[850.0, 850.0]), [false, true]);
    assert_eq!(glances(&[850.0, 1000.0, 850.0]), [false; 3], "not one after the other");
    assert_eq!(glances(&[850.0, 1150.0, 850.0]), [false; 3], "not in one direction");
    assert_eq!(glances(&[950.0, 950.0, 950.0]), [false; 3], "within the threshold");
}

/// An observation of `reads` and `writes`, each seen in a sample.
fn of_classes(at_s: u64, reads: f64, writes: f64) -> Observation {
    let mix = Mix::new([("read", reads), ("write", writes)], reads + writes);
    Observation { mix, ..observation(at_s, 1000.0, [5.0, 5.0]) }
}

#[test]
fn other_classes_are_noticed_although_throughput_and_loads_are_the_same() {
    let platform = platform("core:2 pu:1");
    let mut controller = controller();
    let (mut at_s, mut evaluated) = (0, 0);
    for _ in 0..10 {
        at_s += controller.interval().as_secs();
        if let Verdict::Evaluate(trigger) = controller.observe(&of_classes(at_s, 8_000.0, 2_000.0)) {
            controller.consider(trigger, &trace(5, 5, None), &platform).expect("a decision");
            evaluated += 1;
        }
    }
    assert_eq!(
        (evaluated, controller.interval()),
        (1, Duration::from_secs(8)),
        "the first time, and then it is calm"
    );
    assert_eq!(
        controller.glance(&of_classes(at_s + 1, 6_000.0, 4_000.0)),
        None,
        "a fifth is of other classes"
    );
    assert_eq!(controller.glance(&of_classes(at_s + 1, 1.0, 2.0)), None, "three samples say nothing");
    assert_eq!(
        controller.glance(&observation(at_s + 1, 1000.0, [5.0, 5.0])),
        None,
        "classes may not be known"
    );
    let unmoved = controller.clone();
    let reason = controller.glance(&of_classes(at_s + 2, 4_000.0, 6_000.0));
    let Some(WaitReason::BeganAnew { trigger: Trigger::MixChanged { share } }) = reason else {
        panic!("{reason:?}")
    };
    assert!((share - 0.4).abs() < 1e-9);
    assert_eq!(controller.interval(), Duration::from_millis(500));
    let verdict = controller.observe(&of_classes(at_s + 3, 4_000.0, 6_000.0));
    assert_eq!(controller.interval(), Duration::from_secs(1));
    let Verdict::Evaluate(trigger @ Trigger::MixChanged { .. }) = verdict else { panic!("{verdict:?}") };
    let considered = controller.consider(trigger, &trace(9, 3, None), &platform).expect("a decision");
    assert!(considered.decision.is_repartition());
    assert_eq!(considered.decision.mix.shares(), [("write", 0.6), ("read", 0.4)], "it is recorded");
    // What was evaluated is known from then on.
    controller.abandoned();
    let verdict = controller.observe(&of_classes(at_s + 4, 4_100.0, 5_900.0));
    assert!(!matches!(verdict, Verdict::Evaluate(Trigger::MixChanged { .. })), "{verdict:?}");

    // Without a glance the next observation sees it; from 1 on, the setting says that classes say nothing.
    let verdict = unmoved.clone().observe(&of_classes(at_s + 8, 4_000.0, 6_000.0));
    assert!(matches!(verdict, Verdict::Evaluate(Trigger::MixChanged { .. })), "{verdict:?}");
    let settings = ControllerSettings { mix_change: 1.0, ..ControllerSettings::default() };
    let mut indifferent = Controller::new(settings).expect("settings that make sense");
    indifferent.observe(&of_classes(1, 100.0, 0.0));
    let verdict = indifferent.observe(&of_classes(2, 0.0, 100.0));
    assert!(matches!(verdict, Verdict::Wait(_)), "{verdict:?}");
}

/// A trace with keys, in which slices as far from the beginning as from the end met so many times.
fn mirrored(count: u64) -> WorkloadTrace {
    let mut trace = trace(5_000, 5_000, Some(5_000));
    for (at, part) in (0_u8..).zip(&mut trace.tables[0].partitions) {
        part.starts = (0..10).map(|slice| TraceKey::new(vec![10 * at + slice])).collect();
        part.starts[0] = TraceKey::new(if at == 0 { Vec::new() } else { vec![10] });
        part.rows = vec![100; 10];
    }
    let place = |partition, sub_partition| SubPartition { table: 0, partition, sub_partition };
    let pair = |slice| SyncPointTrace {
        partners: vec![place(0, slice), place(1, 9 - slice)],
        bytes: 100 * count,
        count,
        again: 0,
    };
    trace.sync_points = if count > 0 { (0..10).map(pair).collect() } else { Vec::new() };
    trace
}

#[test]
fn statistics_of_other_classes_are_not_added_to_those_of_the_same_keys() {
    let platform = platform("core:2 pu:1");
    let sampled =
        |at_s, reads, writes| Observation { samples: Some(5_000.0), ..of_classes(at_s, reads, writes) };
    let mut controller = controller();
    for at_s in 1..=3 {
        if let Verdict::Evaluate(trigger) = controller.observe(&sampled(at_s, 9_000.0, 1_000.0)) {
            controller.consider(trigger, &mirrored(0), &platform).expect("a decision");
        }
    }
    // The same throughput and the same load of keys, but other transactions, whose rows meet.
    let verdict = controller.observe(&sampled(4, 1_000.0, 9_000.0));
    let Verdict::Evaluate(trigger @ Trigger::MixChanged { .. }) = verdict else { panic!("{verdict:?}") };
    let predicted = |controller: &mut Controller, trigger| {
        let considered = controller.consider(trigger, &mirrored(20), &platform).expect("a decision");
        considered.decision.predicted.expect("it was evaluated").sync_before
    };
    let alone = predicted(&mut self::controller(), Trigger::First);
    assert!(alone > 0.1, "{alone}");
    assert_eq!(predicted(&mut controller, trigger), alone);
}

#[test]
fn classes_that_take_turns_are_not_evaluated_at_each_turn() {
    let platform = platform("core:2 pu:1");
    let mut controller = controller();
    let mut evaluated = 0;
    for at_s in 1..=40 {
        let (reads, writes) = if at_s % 2 == 0 { (9_000.0, 1_000.0) } else { (1_000.0, 9_000.0) };
        if let Verdict::Evaluate(trigger) = controller.observe(&of_classes(at_s, reads, writes)) {
            evaluated += 1;
            controller.consider(trigger, &trace(5, 5, None), &platform).expect("a decision");
        }
    }
    // Each of the two in eight seconds, and the first of all.
    assert!((4..=11).contains(&evaluated), "{evaluated}");
    assert!(controller.interval() > Duration::from_secs(1), "it is calm meanwhile");
}

#[test]
fn a_mix_of_few_samples_is_known_better_later() {
    let mut controller = controller();
    controller.observe(&of_classes(1, 2.0, 1.0));
    controller.observe(&of_classes(2, 9_000.0, 1_000.0));
    let verdict = controller.observe(&of_classes(3, 1_000.0, 9_000.0));
    assert!(matches!(verdict, Verdict::Evaluate(Trigger::MixChanged { .. })), "{verdict:?}");
}

#[test]
fn a_plan_that_was_turned_down_for_other_classes_is_looked_at_again() {
    let platform = platform("core:2 pu:1");
    let mut controller = controller();
    let at_s = calm_down(&mut controller);
    let uneven =
        |at_s, reads, writes| Observation { loads: vec![4.0, 8.0], ..of_classes(at_s, reads, writes) };
    let Verdict::Evaluate(trigger) = controller.observe(&uneven(at_s + 8, 900.0, 100.0)) else {
        panic!("not evaluated")
    };
    controller.consider(trigger, &trace(5, 5, None), &platform).expect("a decision");
    let verdict = controller.observe(&uneven(at_s + 9, 900.0, 100.0));
    assert!(matches!(verdict, Verdict::Wait(WaitReason::TurnedDown { .. })), "{verdict:?}");
    let verdict = controller.observe(&uneven(at_s + 10, 100.0, 900.0));
    assert!(matches!(verdict, Verdict::Evaluate(Trigger::MixChanged { .. })), "{verdict:?}");
}

#[test]
fn stripes_that_serve_a_load_that_swings_are_left_alone_for_a_while() {
    let mut controller = controller();
    let at_s = calm_down(&mut controller);
    let mut verdict = Verdict::Wait(WaitReason::Calm);
    for interval in 1..=2 {
        for time in 0..10 {
            let loads = [[9.0, 1.0], [1.0, 9.0]][time % 2];
            controller.sense(&observation(at_s + 8 * interval, 1000.0, loads));
        }
        verdict = controller.observe(&observation(at_s + 8 * interval, 1000.0, [50.0, 50.0]));
    }
    let Verdict::Evaluate(trigger @ Trigger::Swing { .. }) = verdict else { panic!("{verdict:?}") };
    let considered = controller.consider(trigger, &trace(5, 5, None), &platform("core:2 pu:1"));
    assert!(considered.expect("a decision").decision.is_repartition());
    // What the stripes serve at first counts, however uneven they are over an interval.
    let uneven = |at_s, tps| observation(at_s, tps, [4.0, 8.0]);
    let later = at_s + 16;
    let is_striped = |verdict: &Verdict| matches!(verdict, Verdict::Wait(WaitReason::Striped { .. }));
    for seconds in 1..4 {
        let verdict = controller.observe(&uneven(later + seconds, 1500.0));
        assert!(is_striped(&verdict), "{verdict:?}");
    }
    let served = controller.clone();
    let verdict = controller.observe(&uneven(later + 4, 1000.0));
    assert!(matches!(verdict, Verdict::Evaluate(_)), "they serve it no longer: {verdict:?}");
    let verdict = served.clone().observe(&uneven(later + 65, 1500.0));
    assert!(matches!(verdict, Verdict::Evaluate(_)), "after eight of the longest intervals: {verdict:?}");
}

#[test]
fn imbalance_is_seen_although_the_throughput_is_steady() {
    let mut controller = controller();
    let at_s = calm_down(&mut controller);
    assert_eq!(
        controller.observe(&observation(at_s + 8, 1000.0, [5.9, 4.1])),
        Verdict::Wait(WaitReason::Calm)
    );
    let verdict = controller.observe(&observation(at_s + 16, 1000.0, [4.0, 8.0]));
    let Verdict::Evaluate(Trigger::Imbalance { busiest, over_mean }) = verdict else { panic!("{verdict:?}") };
    assert_eq!(busiest, WorkerIndex(1));
    assert!((over_mean - 1.0 / 3.0).abs() < 1e-9);
    assert_eq!(controller.interval(), Duration::from_secs(1));
}

#[test]
fn what_was_turned_down_is_not_evaluated_until_something_changes_or_time_passes() {
    let platform = platform("core:2 pu:1");
    let mut controller = controller();
    let at_s = calm_down(&mut controller);
    let uneven = |at_s| observation(at_s, 1000.0, [4.0, 8.0]);
    // The workers differ, but not by what they own: no scheme is better.
    let Verdict::Evaluate(trigger) = controller.observe(&uneven(at_s + 8)) else { panic!("not evaluated") };
    let kept = controller.consider(trigger, &trace(5, 5, None), &platform).expect("a decision");
    assert_eq!(
        (kept.plan, kept.decision.action),
        (None, ControlAction::Keep { reason: KeepReason::NothingBetter })
    );
    for later in [9, 11, 16, 24, 40, 56, 71] {
        let verdict = controller.observe(&uneven(at_s + later));
        assert!(
            matches!(verdict, Verdict::Wait(WaitReason::TurnedDown { trigger: Trigger::Imbalance { .. } })),
            "{verdict:?}"
        );
    }
    let mut changed = controller.clone();
    let verdict = changed.observe(&observation(at_s + 71, 1000.0, [3.0, 9.0]));
    assert!(matches!(verdict, Verdict::Evaluate(Trigger::Imbalance { .. })), "{verdict:?}");
    let verdict = controller.observe(&uneven(at_s + 72));
    assert!(matches!(verdict, Verdict::Evaluate(Trigger::Imbalance { .. })), "{verdict:?}");
}

/// A trace of two workers with keys, of which the first ten slices of a hundred keys have most of the load from `hot` on.
fn trace_with_keys(hot: usize) -> WorkloadTrace {
    let mut trace = trace(1, 1, None);
    for (at, partition) in trace.tables[0].partitions.iter_mut().enumerate() {
        let slices = 10 * at as u64..10 * at as u64 + 10;
        partition.starts = slices.map(|slice| TraceKey::new((100 * slice).to_be_bytes().to_vec())).collect();
        partition.rows = vec![100; 10];
        partition.cost_cycles[hot] = 50;
    }
    trace
}

#[test]
fn what_was_turned_down_is_evaluated_when_other_keys_have_the_load_of_the_same_workers() {
    let platform = platform("core:2 pu:1");
    let mut controller = controller();
    let uneven = |at_s| observation(at_s, 1000.0, [4.0, 8.0]);
    let Verdict::Evaluate(trigger) = controller.observe(&uneven(1)) else { panic!("not evaluated") };
    let kept = controller.consider(trigger, &trace_with_keys(2), &platform).expect("a decision");
    assert!(matches!(kept.decision.action, ControlAction::Keep { .. }), "{}", kept.decision);
    let mut verdict_after = |at_s, hot| {
        let verdict = controller.observe(&uneven(at_s));
        controller.note(&trace_with_keys(hot), &platform).expect("statistics that fit");
        verdict
    };
    // What an interval shows of keys is noted when it is over.
    for (at_s, hot) in [(2, 2), (3, 2), (4, 7)] {
        let verdict = verdict_after(at_s, hot);
        assert!(matches!(verdict, Verdict::Wait(WaitReason::TurnedDown { .. })), "{at_s} s: {verdict:?}");
    }
    let verdict = verdict_after(5, 7);
    assert!(matches!(verdict, Verdict::Evaluate(Trigger::Imbalance { .. })), "{verdict:?}");
}

#[test]
fn a_great_gain_is_had_at_once_and_followed_up() {
    let platform = platform("core:2 pu:1");
    let mut controller = controller();
    let at_s = calm_down(&mut controller);
    let verdict = controller.observe(&observation(at_s + 8, 600.0, [9.0, 3.0]));
    let Verdict::Evaluate(trigger) = verdict else { panic!("{verdict:?}") };
    let considered = controller.consider(trigger, &trace(9, 3, None), &platform).expect("a decision");
    let plan = considered.plan.expect("a plan");
    assert_eq!(considered.decision.action, ControlAction::Repartition { steps: plan.steps.len() });
    let predicted = considered.decision.predicted.expect("a prediction");
    assert_eq!(predicted.load_max_before, 1.5);
    assert!(predicted.gain > 0.25 && predicted.gain_wanted == 0.15, "{predicted:?}");
    assert_eq!(controller.interval(), Duration::from_secs(1));
    let mut abandoned = controller.clone();
    let verdict = controller.observe(&observation(at_s + 9, 990.0, [5.0, 5.0]));
    assert!(matches!(verdict, Verdict::Evaluate(Trigger::FollowUp { after_tps: 990.0, .. })), "{verdict:?}");
    // If it was not carried out after all, nothing is concluded.
    abandoned.abandoned();
    let verdict = abandoned.observe(&observation(at_s + 9, 600.0, [9.0, 3.0]));
    assert!(matches!(verdict, Verdict::Evaluate(Trigger::Imbalance { .. })), "{verdict:?}");
}

/// Eighty samples show that one worker has everything, and less well where that is to be cut.
#[test]
fn a_scheme_of_few_samples_is_made_again_when_there_are_half_as_many_more() {
    let platform = platform("core:2 pu:1");
    let of_samples =
        |at_s, samples: f64| Observation { samples: Some(samples), ..observation(at_s, 10.0, [5.0, 5.0]) };
    let settings = ControllerSettings { confidence: 2.0, ..ControllerSettings::default() };
    let changed = |samples: f64| {
        let mut controller = Controller::new(settings).expect("settings that make sense");
        let seen = Observation { loads: vec![19.0, 0.0], ..of_samples(1, samples) };
        let Verdict::Evaluate(trigger) = controller.observe(&seen) else { panic!("not evaluated") };
        let statistics = trace(19, 0, Some(samples as u64));
        let considered = controller.consider(trigger, &statistics, &platform).expect("a decision");
        assert!(considered.decision.is_repartition(), "{}", considered.decision);
        controller
    };
    let is_made_again = |verdict: &Verdict| matches!(verdict, Verdict::Evaluate(Trigger::MoreSamples { .. }));
    let mut controller = changed(80.0);
    let verdict = controller.observe(&of_samples(2, 40.0));
    assert!(!is_made_again(&verdict), "{verdict:?}");
    let mut abandoned = controller.clone();
    abandoned.abandoned();
    assert!(!is_made_again(&abandoned.observe(&of_samples(3, 130.0))), "there is no such scheme");
    let verdict = controller.observe(&of_samples(3, 130.0));
    let Verdict::Evaluate(trigger @ Trigger::MoreSamples { made_from, since }) = verdict else {
        panic!("{verdict:?}")
    };
    assert_eq!((made_from, since), (80.0, 130.0));
    // It gains a tenth, which would have to be confirmed otherwise.
    let statistics = trace(55, 45, Some(130));
    let again = controller.clone().consider(trigger, &statistics, &platform).expect("a decision");
    assert!(again.decision.is_repartition(), "{}", again.decision);
    let statistics = trace(50, 50, Some(130));
    let kept = controller.consider(trigger, &statistics, &platform).expect("a decision").decision;
    assert_eq!(kept.action, ControlAction::Keep { reason: KeepReason::NothingBetter }, "{kept}");
    assert!(!is_made_again(&controller.observe(&of_samples(4, 190.0))), "as good as 130 can make it");
    assert!(is_made_again(&controller.observe(&of_samples(5, 260.0))));
    // Of so many samples, more would not make a better one.
    assert!(!is_made_again(&changed(10_000.0).observe(&of_samples(2, 20_000.0))));
}

#[test]
fn a_small_gain_must_be_confirmed_twice() {
    let platform = platform("core:2 pu:1");
    for confirmed in [true, false] {
        let mut controller = controller();
        let at_s = calm_down(&mut controller);
        let mut decisions = Vec::new();
        for (turn, again) in [true, true, confirmed].into_iter().enumerate() {
            let verdict = controller.observe(&observation(at_s + 8 + turn as u64, 800.0, [6.0, 5.0]));
            let Verdict::Evaluate(trigger) = verdict else { panic!("{verdict:?}") };
            let statistics = if again { trace(56, 44, None) } else { trace(50, 50, None) };
            let considered = controller.consider(trigger, &statistics, &platform).expect("a decision");
            assert_eq!(controller.interval(), Duration::from_secs(1));
            decisions.push(considered.decision.action);
        }
        let waiting = ControlAction::Keep { reason: KeepReason::ToBeConfirmed };
        assert_eq!(decisions[..2], [waiting, waiting]);
        match (confirmed, decisions[2]) {
            (true, ControlAction::Repartition { .. })
            | (false, ControlAction::Keep { reason: KeepReason::NotConfirmed }) => {}
            (_, decision) => panic!("confirmed {confirmed}: {decision:?}"),
        }
    }
}

/// The model is believed right after it was right, and only then.
#[test]
fn a_small_gain_after_a_great_one_that_came_is_had_at_once() {
    let platform = platform("core:2 pu:1");
    for (after_tps, is_at_once) in [(1600.0, true), (1100.0, false)] {
        let mut controller = controller();
        let at_s = calm_down(&mut controller);
        let verdict = controller.observe(&observation(at_s + 8, 1000.0, [9.0, 3.0]));
        let Verdict::Evaluate(trigger) = verdict else { panic!("{verdict:?}") };
        let considered = controller.consider(trigger, &trace(9, 3, None), &platform).expect("a decision");
        assert!(considered.decision.is_repartition(), "{}", considered.decision);
        let verdict = controller.observe(&observation(at_s + 9, after_tps, [5.6, 4.4]));
        let Verdict::Evaluate(trigger @ Trigger::FollowUp { .. }) = verdict else { panic!("{verdict:?}") };
        let next =
            controller.consider(trigger, &trace(56, 44, None), &platform).expect("a decision").decision;
        assert_eq!(next.is_repartition(), is_at_once, "{next}");
    }
}

/// Joined partitions are observed in the slices of both at first, and in ten new ones after the statistics were taken.
#[test]
fn a_small_gain_in_slices_that_are_no_more_is_proposed_anew() {
    let platform = platform("core:2 pu:1");
    let mut controller = controller();
    let at_s = calm_down(&mut controller);
    let joined = |slices: usize| {
        let mut trace = trace(56, 44, None);
        let (left, right) = (560 / slices as u64, 440);
        trace.tables[0].partitions[1].cost_cycles = vec![left; slices];
        trace.tables[0].partitions[0].cost_cycles = vec![right];
        trace
    };
    for (turn, slices) in [30, 10, 10, 10].into_iter().enumerate() {
        let verdict = controller.observe(&observation(at_s + 8 + turn as u64, 800.0, [5.0, 6.0]));
        let Verdict::Evaluate(trigger) = verdict else { panic!("{verdict:?}") };
        let considered = controller.consider(trigger, &joined(slices), &platform).expect("a decision");
        let moves = considered.decision.is_repartition();
        assert_eq!(moves, turn == 3, "turn {turn}: {}", considered.decision);
    }
}

#[test]
fn few_samples_say_nothing() {
    let platform = platform("core:2 pu:1");
    for (samples, acts) in [(0, false), (50, false), (1_000, true)] {
        let mut controller = controller();
        let at_s = calm_down(&mut controller);
        let verdict = controller.observe(&observation(at_s + 8, 600.0, [9.0, 3.0]));
        let Verdict::Evaluate(trigger) = verdict else { panic!("{verdict:?}") };
        let considered =
            controller.consider(trigger, &trace(9, 3, Some(samples)), &platform).expect("a decision");
        assert_eq!(considered.decision.is_repartition(), acts, "{samples} samples: {}", considered.decision);
        if !acts {
            assert_eq!(considered.decision.action, ControlAction::Keep { reason: KeepReason::TooFewSamples });
        }
    }
}

/// A trace of sixteen workers, the first of which has slices of these costs and all others ten that cost 1.
fn first_of_sixteen(costs: Vec<u64>, samples: u64) -> WorkloadTrace {
    let mut trace = trace(1, 1, Some(samples));
    let other = trace.tables[0].partitions[1].clone();
    trace.workers = 16;
    trace.tables[0].partitions.truncate(1);
    trace.tables[0].partitions[0].cost_cycles = costs;
    trace.tables[0].partitions.extend((1..16).map(|worker| {
        let mut partition = other.clone();
        partition.worker = WorkerIndex(worker);
        partition
    }));
    trace
}

/// Sixteen workers, the first of which is so many times as busy as the others.
fn busy_first(at_s: u64, times: f64, samples: f64) -> Observation {
    let mut loads = vec![1.0; 16];
    loads[0] = times;
    Observation {
        loads,
        available: vec![true; 16],
        samples: Some(samples),
        ..observation(at_s, 1000.0, [0.0; 2])
    }
}

#[test]
fn few_samples_show_that_a_worker_has_nearly_everything() {
    let platform = platform("pack:2 core:8 pu:1");
    // From 577 samples on the load of every worker is known well enough, by the default settings.
    for (times, samples, acts) in [(100, 5, false), (100, 100, true), (2, 100, false), (1, 300, false)] {
        let mut controller = controller();
        let verdict = controller.observe(&busy_first(1, f64::from(times), samples as f64));
        let Verdict::Evaluate(trigger) = verdict else {
            assert!(!acts && verdict == Verdict::Wait(WaitReason::TooFewSamples), "{times}: {verdict:?}");
            continue;
        };
        let trace = first_of_sixteen(vec![times as u64; 10], samples);
        let decision = controller.consider(trigger, &trace, &platform).expect("a decision").decision;
        assert_eq!(decision.is_repartition(), acts, "{times} times, {samples} samples: {decision}");
    }
}

#[test]
fn after_an_attempt_with_too_few_samples_twice_as_many_are_wanted() {
    let (platform, mut controller) = (platform("pack:2 core:8 pu:1"), controller());
    let verdict = controller.observe(&busy_first(1, 100.0, 100.0));
    let Verdict::Evaluate(trigger) = verdict else { panic!("{verdict:?}") };
    // One slice has everything, so that nothing can be gained.
    let trace = first_of_sixteen(vec![1000, 0], 100);
    let decision = controller.consider(trigger, &trace, &platform).expect("a decision").decision;
    assert_eq!(decision.action, ControlAction::Keep { reason: KeepReason::TooFewSamples }, "{decision}");
    for (at_s, samples, is_tried) in [(2, 100.0, false), (3, 199.0, false), (4, 200.0, true)] {
        let verdict = controller.observe(&busy_first(at_s, 100.0, samples));
        assert_eq!(matches!(verdict, Verdict::Evaluate(_)), is_tried, "{samples}: {verdict:?}");
    }
}

#[test]
fn observations_that_are_none_do_no_harm() {
    let mut controller = controller();
    for (at, strange) in [f64::NAN, f64::INFINITY, -1.0, f64::MAX].into_iter().cycle().take(40).enumerate() {
        let mut observation = observation(at as u64 % 3, strange, [strange, 1.0]);
        observation.loads.truncate(at % 3);
        observation.available.truncate(at % 5);
        let _ = controller.observe(&observation);
        assert!((1..=8).contains(&controller.interval().as_secs()));
    }
}

#[test]
fn statistics_of_other_workers_are_refused() {
    let mut controller = controller();
    let verdict = controller.consider(Trigger::First, &trace(1, 1, None), &platform("core:1 pu:1"));
    assert!(matches!(verdict, Err(AdaptError::UnknownWorker { .. })), "{verdict:?}");
}

#[test]
fn settings_that_make_no_sense_are_refused_in_one_sentence() {
    let good = ControllerSettings::default;
    let ms = Duration::from_millis;
    let weights = Weights { balance: -1.0, ..Weights::default() };
    let cases = [
        ("interval", ControllerSettings { interval: ms(0), ..good() }),
        ("interval_max", ControllerSettings { interval_max: ms(999), ..good() }),
        ("interval_max", ControllerSettings { interval_max: Duration::MAX, ..good() }),
        ("window", ControllerSettings { window: 0, ..good() }),
        ("window", ControllerSettings { window: usize::MAX, ..good() }),
        ("threshold", ControllerSettings { threshold: 0.0, ..good() }),
        ("imbalance", ControllerSettings { imbalance: f64::NAN, ..good() }),
        ("gain_min", ControllerSettings { gain_min: -0.1, ..good() }),
        ("gain_sure", ControllerSettings { gain_sure: 0.01, ..good() }),
        ("confidence", ControllerSettings { confidence: f64::INFINITY, ..good() }),
        ("balance", ControllerSettings { planning: Settings { weights, ..Settings::default() }, ..good() }),
    ];
    for (name, settings) in cases {
        let error = Controller::new(settings).expect_err(name).to_string();
        assert!(error.contains(&format!("'{name}'")), "{name}: {error}");
    }
    let text = serde_json::to_string(&good()).expect("settings as text");
    assert_eq!(serde_json::from_str::<ControllerSettings>(&text).expect("settings"), good());
}

#[test]
fn decisions_are_sentences_and_json() {
    let platform = platform("core:2 pu:1");
    let mut controller = controller();
    let at_s = calm_down(&mut controller);
    let calm = observation(at_s, 1000.0, [5.0, 5.0]);
    let verdict = controller.observe(&observation(at_s + 8, 600.0, [9.0, 3.0]));
    let Verdict::Evaluate(trigger) = verdict else { panic!("{verdict:?}") };
    let changed = controller.consider(trigger, &trace(9, 3, None), &platform).expect("a decision").decision;
    let shared =
        |reason| Decision::of_sharing(calm.at_ns, 1000.0, "item", &SharingChange { table: 3, reason });
    let decisions = [
        Decision::waited(&calm, WaitReason::Calm),
        Decision::waited(&calm, WaitReason::Settling { earlier: 2 }),
        Decision::waited(&calm, WaitReason::BeganAnew { trigger }),
        Decision::waited(
            &of_classes(7, 3.0, 1.0),
            WaitReason::BeganAnew { trigger: Trigger::MixChanged { share: 0.345 } },
        ),
        Decision::waited(&calm, WaitReason::TurnedDown { trigger }),
        Decision {
            cause: Cause::Evaluated(Trigger::Imbalance { busiest: WorkerIndex(1), over_mean: 0.5 }),
            action: ControlAction::Keep { reason: KeepReason::FailedBefore },
            predicted: None,
            ..changed.clone()
        },
        changed,
        shared(SharingReason::ReadElsewhere { per_second: 600_000.0, share: 0.31 }),
        shared(SharingReason::Unpaid { in_place: 100, price: 2_000 }),
    ];
    let lines = decisions.map(|decision| {
        let text = serde_json::to_string(&decision).expect("a decision as text");
        assert_eq!(serde_json::from_str::<Decision>(&text).expect("a decision"), decision);
        format!("{decision}\n{text}\n")
    });
    insta::assert_snapshot!(lines.join("\n"));
}
