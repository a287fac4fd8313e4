//! Ways back: a change that made things worse is undone, when it was the change, and workers that return have what they had.

use crate::fixture::platform;
use atrapos_adapt::{
    Considered, ControlAction, Controller, ControllerSettings, Extents, Mix, Observation, PartitionTrace,
    SliceIndex, TRACE_FORMAT, TableIndex, TableTrace, TraceKey, Trigger, Verdict, WorkerIndex, WorkloadTrace,
};

const KEYS: u64 = 1_000;
const MACHINE: &str = "core:2 pu:1";

/// First keys of partitions, and their workers.
type Layout = Vec<(u64, u32)>;

/// Statistics of a second in which a worker spent `cycles(key)` on each key.
fn trace(layout: &Layout, cycles: impl Fn(u64) -> u64) -> WorkloadTrace {
    let ends = layout.iter().skip(1).map(|(begin, _)| *begin).chain([KEYS]);
    let partition = |((from, worker), to): (&(u64, u32), u64)| {
        let count = 10.min(to - from);
        let starts: Vec<u64> = (0..count).map(|at| from + at * (to - from) / count).collect();
        let ends: Vec<u64> = starts.iter().skip(1).copied().chain([to]).collect();
        let slices = || starts.iter().zip(&ends);
        PartitionTrace {
            worker: WorkerIndex(*worker),
            cost_cycles: slices().map(|(from, to)| (*from..*to).map(&cycles).sum()).collect(),
            starts: starts.iter().map(|key| TraceKey::new(key.to_be_bytes().to_vec())).collect(),
            rows: slices().map(|(from, to)| to - from).collect(),
        }
    };
    WorkloadTrace {
        format: TRACE_FORMAT.into(),
        seconds: 1.0,
        workers: 2,
        machine: None,
        samples: None,
        dispersion: 1.0,
        busy_cycles: Vec::new(),
        in_place_cycles: 0,
        tables: vec![TableTrace {
            name: "t".into(),
            partitions: layout.iter().zip(ends).map(partition).collect(),
        }],
        sync_points: Vec::new(),
        classes: Vec::new(),
    }
}

/// The first tenth of the keys is used a hundred times as much as others.
fn hot_start(key: u64) -> u64 {
    if key < KEYS / 10 { 10_000 } else { 100 }
}

fn observation(at_s: u64, throughput_tps: f64, trace: &WorkloadTrace) -> Observation {
    let load = |worker: u32| {
        let own = trace.tables[0].partitions.iter().filter(|part| part.worker.0 == worker);
        own.flat_map(|part| &part.cost_cycles).sum::<u64>() as f64
    };
    Observation {
        at_ns: at_s * 1_000_000_000,
        throughput_tps,
        loads: vec![load(0), load(1)],
        available: vec![true; 2],
        changed_platform: false,
        waits: 0.0,
        samples: None,
        mix: Mix::default(),
    }
}

fn turn(controller: &mut Controller, at_s: u64, throughput_tps: f64, trace: &WorkloadTrace) -> Considered {
    turn_with(controller, &observation(at_s, throughput_tps, trace), trace)
}

fn turn_with(controller: &mut Controller, observed: &Observation, trace: &WorkloadTrace) -> Considered {
    match controller.observe(observed) {
        Verdict::Evaluate(trigger) => {
            controller.consider(trigger, trace, &platform(MACHINE)).expect("a decision")
        }
        waited @ Verdict::Wait(_) => panic!("not evaluated: {waited:?}"),
    }
}

/// The layout that the scheme of a plan means.
fn layout_of(considered: &Considered) -> Layout {
    let plan = considered.plan.as_ref().expect("a plan");
    let extents: &Extents = considered.extents.as_ref().expect("the extents of its slices");
    let table = &plan.scheme.tables()[0];
    let begins = [0].into_iter().chain(table.cuts().iter().map(|cut| {
        let key = extents.start(TableIndex(0), SliceIndex(*cut)).bytes();
        u64::from_be_bytes(key.try_into().expect("a number"))
    }));
    begins.zip(table.owners().iter().map(|owner| owner.0)).collect()
}

/// A controller that has changed the scheme at a thousand transactions per second, with the layouts of before and after.
fn changed() -> (Controller, Layout, Layout) {
    let mut controller = Controller::new(ControllerSettings::default()).expect("the defaults make sense");
    let before = vec![(0, 0), (KEYS / 2, 1)];
    let considered = turn(&mut controller, 1, 1_000.0, &trace(&before, hot_start));
    assert!(
        matches!(considered.decision.action, ControlAction::Repartition { .. }),
        "{}",
        considered.decision
    );
    let after = layout_of(&considered);
    assert_ne!(after, before);
    (controller, before, after)
}

#[test]
fn a_change_after_which_transactions_are_dearer_is_undone_and_not_made_again() {
    let (mut controller, before, after) = changed();
    let undone = turn(&mut controller, 2, 600.0, &trace(&after, |key| 3 * hot_start(key)));
    assert!(matches!(undone.decision.action, ControlAction::Undo { .. }), "{}", undone.decision);
    assert_eq!(layout_of(&undone), before);
    assert!(undone.decision.to_string().contains("the change is undone"), "{}", undone.decision);
    let next = turn(&mut controller, 3, 1_000.0, &trace(&before, hot_start));
    assert!(matches!(next.decision.cause, atrapos_adapt::Cause::Evaluated(Trigger::FollowUp { .. })));
    assert!(matches!(next.decision.action, ControlAction::Keep { .. }), "{}", next.decision);
}

#[test]
fn a_load_that_falls_by_itself_or_is_elsewhere_undoes_nothing() {
    let fallen = |key: u64| hot_start(key) / 2;
    let elsewhere = |key: u64| 3 * hot_start(KEYS - 1 - key);
    let (mut controller, _, after) = changed();
    let kept = turn(&mut controller, 2, 600.0, &trace(&after, fallen));
    assert!(!matches!(kept.decision.action, ControlAction::Undo { .. }), "{}", kept.decision);
    let (mut controller, _, after) = changed();
    let kept = turn(&mut controller, 2, 600.0, &trace(&after, elsewhere));
    assert!(!matches!(kept.decision.action, ControlAction::Undo { .. }), "{}", kept.decision);
    // What rises is no reason either, however dear it is.
    let (mut controller, _, after) = changed();
    let kept = turn(&mut controller, 2, 1_300.0, &trace(&after, |key| 3 * hot_start(key)));
    assert!(!matches!(kept.decision.action, ControlAction::Undo { .. }), "{}", kept.decision);
}

#[test]
fn a_change_that_makes_transactions_wait_for_locks_is_undone_and_not_made_again_for_a_minute() {
    let fallen = |key: u64| hot_start(key) / 2;
    for (waits, undoes) in [(0.0, false), (0.05, false), (0.8, true)] {
        let (mut controller, before, after) = changed();
        let after = trace(&after, fallen);
        let observed = Observation { waits, ..observation(2, 600.0, &after) };
        let considered = turn_with(&mut controller, &observed, &after);
        let is_undone = matches!(considered.decision.action, ControlAction::Undo { .. });
        assert_eq!(is_undone, undoes, "{}", considered.decision);
        if !undoes {
            continue;
        }
        let trace = trace(&before, hot_start);
        for at_s in 3..60 {
            let again = match controller.observe(&observation(at_s, 1_000.0, &trace)) {
                Verdict::Evaluate(trigger) => {
                    controller.consider(trigger, &trace, &platform(MACHINE)).expect("a decision").decision
                }
                Verdict::Wait(_) => continue,
            };
            assert!(!again.is_repartition(), "at {at_s} s: {again}");
        }
    }
}

/// The layout that a controller wants when worker 1 is back, which had left the scheme `before` for the time when it was lost.
fn layout_of_return(before: &Layout, cycles_before: fn(u64) -> u64, cycles_after: fn(u64) -> u64) -> Layout {
    let mut controller = Controller::new(ControllerSettings::default()).expect("the defaults make sense");
    let machine = platform(MACHINE);
    let alone = machine.clone().without(&[WorkerIndex(1)]).expect("one is left");
    let mut turn = |at_s: u64, layout: &Layout, cycles: fn(u64) -> u64, is_there: bool| {
        let trace = trace(layout, cycles);
        let observed = Observation { available: vec![true, is_there], ..observation(at_s, 1_000.0, &trace) };
        let verdict = controller.observe(&observed);
        let Verdict::Evaluate(trigger @ Trigger::PlatformChanged { .. }) = verdict else {
            panic!("not evaluated because of workers: {verdict:?}")
        };
        let platform = if is_there { &machine } else { &alone };
        layout_of(&controller.consider(trigger, &trace, platform).expect("a decision"))
    };
    let after = turn(1, before, cycles_before, false);
    assert!(after.iter().all(|(_, worker)| *worker == 0), "{after:?}");
    turn(2, &vec![(0, 0)], cycles_after, true)
}

#[test]
fn workers_that_are_back_have_what_they_had_unless_the_load_is_another_one() {
    fn even(key: u64) -> u64 {
        if key < 337 { 663 } else { 337 }
    }
    // No slice of the time alone begins at this key.
    let before = vec![(0, 0), (337, 1)];
    assert_eq!(layout_of_return(&before, even, even), before);
    let other = layout_of_return(&before, even, |key| even(KEYS - 1 - key));
    assert_ne!(other, before);
    assert!(other.iter().any(|(_, worker)| *worker == 1), "{other:?}");
}
