use super::*;

const SECOND: u64 = 1_000_000_000;

/// A machine whose processing units are idle, with one worker on each of the first, which runs a tenth of the time.
struct World {
    watch: CoreWatch,
    sight: CoreSight,
    at_ns: u64,
    left_out: Vec<bool>,
    /// The share of its time that each worker wants, and the share of that which it gets.
    wants: Vec<f64>,
    gets: Vec<f64>,
    /// The share of its time that each unit is idle.
    idle: Vec<f64>,
    /// The share of the time that the quota withholds.
    withheld: f64,
}

fn units(cpus: impl IntoIterator<Item = u32>) -> CpuSet {
    cpus.into_iter().map(CpuId).collect()
}

fn lost(worker: u32, loss: CoreLoss) -> CoreChange {
    CoreChange::Lost { worker: WorkerIndex(worker), cpu: CpuId(worker), loss }
}

fn back(worker: u32) -> CoreChange {
    CoreChange::Back { worker: WorkerIndex(worker), cpu: CpuId(worker) }
}

impl World {
    fn new(workers: u32, cpus: u32) -> World {
        let own: Vec<Option<CpuId>> = (0..workers).map(|worker| Some(CpuId(worker))).collect();
        let of_worker = |worker: u32| WorkerSight {
            cpus: Some(units([worker])),
            time: Some(ThreadTime { cpu: Some(CpuId(worker)), is_runnable: true, ..ThreadTime::default() }),
        };
        let sight = CoreSight {
            allowed: Some(units(0..cpus)),
            online: Some(units(0..cpus)),
            quota: None,
            units: (0..cpus).map(|cpu| (CpuId(cpu), UnitTime::default())).collect(),
            workers: (0..workers).map(of_worker).collect(),
        };
        World {
            watch: CoreWatch::new(CoreSettings::default(), &own, Vec::new()),
            sight,
            at_ns: 0,
            left_out: vec![false; workers as usize],
            wants: vec![0.1; workers as usize],
            gets: vec![1.0; workers as usize],
            idle: vec![0.9; cpus as usize],
            withheld: 0.0,
        }
    }

    /// Lets a second pass and looks.
    fn second(&mut self) -> Vec<CoreChange> {
        self.at_ns += SECOND;
        for (worker, sight) in self.sight.workers.iter_mut().enumerate() {
            let Some(time) = &mut sight.time else { continue };
            let wanted = self.wants[worker] * SECOND as f64;
            time.ran_ns += (wanted * self.gets[worker]) as u64;
            time.waited_ns += (wanted * (1.0 - self.gets[worker])) as u64;
            time.turns += u64::from(wanted > 0.0);
        }
        for (unit, idle) in self.sight.units.values_mut().zip(&self.idle) {
            unit.idle += (100.0 * idle) as u64;
            unit.total += 100;
        }
        if let Some(Quota { throttled_ns: Some(withheld), .. }) = &mut self.sight.quota {
            *withheld += (self.withheld * SECOND as f64) as u64;
        }
        self.watch.look(self.at_ns, self.sight.clone(), &self.left_out)
    }

    /// Lets seconds pass, at most so many, until there is a change. Returns their number and the changes.
    fn until_changed(&mut self, seconds_max: u32) -> (u32, Vec<CoreChange>) {
        for second in 1..=seconds_max {
            let changes = self.second();
            if !changes.is_empty() {
                return (second, changes);
            }
        }
        (seconds_max, Vec::new())
    }

    fn stays(&mut self, seconds: u32) {
        assert_eq!(self.until_changed(seconds), (seconds, Vec::new()));
    }

    fn set_mask(&mut self, worker: usize, cpus: impl IntoIterator<Item = u32>) {
        self.sight.workers[worker].cpus = Some(units(cpus));
    }
}

#[test]
fn what_is_steady_changes_nothing() {
    let mut world = World::new(4, 4);
    world.stays(20);
    world.wants = vec![1.0; 4];
    world.stays(20);
}

#[test]
fn a_unit_that_is_taken_is_missed_at_once_and_used_at_once_when_it_is_back() {
    let mut world = World::new(2, 2);
    world.stays(3);
    world.set_mask(1, [0]);
    assert_eq!(world.until_changed(9), (1, vec![lost(1, CoreLoss::Taken)]));
    assert!(world.watch.has_unit(WorkerIndex(0)) && !world.watch.has_unit(WorkerIndex(1)));
    world.stays(20);
    world.set_mask(1, [0, 1]);
    assert_eq!(world.until_changed(9), (1, vec![back(1)]));
    // It was there for a moment, and is again.
    world.set_mask(1, [0]);
    assert_eq!(world.until_changed(9), (1, vec![lost(1, CoreLoss::Taken)]));
    world.set_mask(1, [0, 1]);
    world.stays(3);
    world.set_mask(1, [0]);
    world.stays(10);
    world.set_mask(1, [0, 1]);
    assert_eq!(world.until_changed(20), (11, vec![back(1)]));
    world.set_mask(1, [1]);
    world.stays(20);
}

#[test]
fn a_unit_that_goes_offline_says_so() {
    let mut world = World::new(2, 2);
    world.stays(3);
    world.sight.online = Some(units([0]));
    // Nobody tells masks here.
    world.sight.workers.iter_mut().for_each(|worker| worker.cpus = None);
    assert_eq!(world.until_changed(9), (1, vec![lost(1, CoreLoss::Offline)]));
    world.sight.online = Some(units([0, 1]));
    assert_eq!(world.until_changed(9), (1, vec![back(1)]));
}

#[test]
fn one_that_comes_and_goes_is_taken_back_ever_more_rarely() {
    let mut world = World::new(2, 2);
    world.stays(3);
    let mut waits = Vec::new();
    for _ in 0..9 {
        world.set_mask(1, [0]);
        assert_eq!(world.until_changed(1).1, [lost(1, CoreLoss::Taken)]);
        world.set_mask(1, [0, 1]);
        let (seconds, changes) = world.until_changed(1000);
        assert_eq!(changes, [back(1)]);
        waits.push(seconds - 1);
        world.set_mask(1, [1]);
    }
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 320, 320, 320]);
    // One that has stayed for long is as good as any.
    world.stays(320 * 8);
    world.set_mask(1, [0]);
    assert_eq!(world.until_changed(1).1, [lost(1, CoreLoss::Taken)]);
    world.set_mask(1, [0, 1]);
    assert_eq!(world.until_changed(1000), (1, vec![back(1)]));
}

#[test]
fn a_worker_is_in_doubt_from_the_first_look_that_finds_it_stalled() {
    let mut world = World::new(4, 4);
    world.wants = vec![1.0; 4];
    world.stays(3);
    assert!(!world.watch.is_in_doubt());
    (world.gets[2], world.idle[2]) = (0.05, 0.0);
    world.stays(1);
    assert!(world.watch.is_in_doubt());
    world.gets[2] = 1.0;
    world.stays(1);
    assert!(!world.watch.is_in_doubt(), "it runs again");
    world.gets[2] = 0.05;
    world.stays(3);
    assert!(world.watch.is_in_doubt());
    assert_eq!(world.second().len(), 1);
    assert!(!world.watch.is_in_doubt(), "it is known");
}

#[test]
fn threads_follow_the_units_of_their_workers() {
    let mut world = World::new(3, 3);
    world.stays(2);
    let wanted = |world: &World, changes: &[CoreChange], left_out: &[bool]| {
        world.watch.units_wanted(&world.sight, changes, left_out)
    };
    assert_eq!(wanted(&world, &[], &[]), []);
    // A mask that is wider than it need be, as that of a thread whose unit was offline; who is left out is left alone.
    world.set_mask(0, 0..3);
    world.set_mask(1, 0..3);
    assert_eq!(wanted(&world, &[], &[false, true]), [(WorkerIndex(0), units([0]))]);
    world.set_mask(0, [0]);
    world.set_mask(1, [1]);
    let stalled = [lost(2, CoreLoss::Stalled { got: 0.0 })];
    assert_eq!(wanted(&world, &stalled, &[]), [(WorkerIndex(2), units(0..3))]);
    world.set_mask(2, 0..3);
    assert_eq!(wanted(&world, &[back(2)], &[]), [(WorkerIndex(2), units([2]))]);
}

#[test]
fn a_stalled_worker_is_noticed_after_a_time() {
    let mut world = World::new(4, 4);
    world.wants = vec![1.0; 4];
    world.stays(10);
    (world.gets[2], world.idle[2]) = (0.05, 0.0);
    let (seconds, changes) = world.until_changed(20);
    assert_eq!(seconds, 4);
    let [CoreChange::Lost { worker: WorkerIndex(2), loss: CoreLoss::Stalled { got }, .. }] = changes[..]
    else {
        panic!("{changes:?}")
    };
    assert!((got - 0.05).abs() < 1e-6);
    // Its thread runs elsewhere, and well; that says nothing about its unit.
    world.set_mask(2, 0..4);
    world.gets[2] = 1.0;
    world.sight.workers[2].time.as_mut().expect("times").cpu = Some(CpuId(3));
    world.stays(30);
    world.idle[2] = 0.9;
    assert_eq!(world.until_changed(20), (6, vec![back(2)]));
}

#[test]
fn a_unit_on_which_its_own_worker_runs_well_is_not_busy() {
    let mut world = World::new(2, 2);
    world.wants = vec![1.0; 2];
    (world.gets[1], world.idle[1]) = (0.1, 0.0);
    assert_eq!(world.until_changed(20).0, 5);
    world.set_mask(1, 0..2);
    world.gets[1] = 0.95;
    assert_eq!(world.until_changed(20), (6, vec![back(1)]));
}

#[test]
fn noise_stalls_nobody() {
    let mut world = World::new(4, 4);
    world.wants = vec![1.0; 4];
    // All wait for each other and for others.
    world.gets = vec![0.1, 0.15, 0.12, 0.2];
    world.stays(100);
    // One gets a quarter, half of the time next to nothing, or wants next to nothing.
    world.gets = vec![1.0, 0.25, 1.0, 1.0];
    world.stays(100);
    for second in 0..100 {
        world.gets[1] = if second % 3 == 0 { 0.5 } else { 0.01 };
        assert_eq!(world.second(), []);
    }
    (world.gets[1], world.wants[1]) = (0.01, 0.05);
    world.stays(100);
}

#[test]
fn a_wait_that_is_not_over_counts() {
    let mut world = World::new(2, 2);
    world.wants = vec![1.0, 0.0];
    world.stays(3);
    // Since it was given its unit last, nothing has been counted: it waits.
    let (seconds, changes) = {
        world.idle[1] = 0.0;
        world.until_changed(20)
    };
    assert_eq!((seconds, &changes[..]), (2, &[lost(1, CoreLoss::Stalled { got: 0.0 })][..]));
    // A thread that sleeps wants nothing.
    let mut world = World::new(2, 2);
    world.wants = vec![1.0, 0.0];
    world.sight.workers[1].time.as_mut().expect("times").is_runnable = false;
    world.stays(20);
}

#[test]
fn a_free_unit_is_taken_instead() {
    let mut world = World::new(2, 4);
    world.watch = CoreWatch::new(CoreSettings::default(), &[Some(CpuId(0)), Some(CpuId(1))], vec![CpuId(3)]);
    world.wants = vec![1.0; 2];
    (world.gets[1], world.idle[1]) = (0.05, 0.0);
    let moved = world.until_changed(20).1;
    assert!(
        matches!(moved[..], [CoreChange::Moved { from: CpuId(1), to: CpuId(3), .. }]),
        "the one that is preferred: {moved:?}"
    );
    (world.gets[1], world.idle[3], world.idle[2]) = (0.05, 0.0, 0.0);
    world.set_mask(1, [3]);
    assert!(
        matches!(world.until_changed(20).1[..], [CoreChange::Lost { cpu: CpuId(3), .. }]),
        "all are busy"
    );
    world.set_mask(1, 0..4);
    (world.gets[1], world.idle[2]) = (0.4, 0.6);
    let moved = world.until_changed(20).1;
    assert!(matches!(moved[..], [CoreChange::Moved { to: CpuId(2), .. }]), "{moved:?}");
    assert_eq!(world.watch.cpus().collect::<Vec<_>>(), [Some(CpuId(0)), Some(CpuId(2))]);
}

#[test]
fn workers_follow_the_process_to_other_units() {
    let mut world = World::new(2, 4);
    world.stays(3);
    world.sight.allowed = Some(units(2..4));
    (0..2).for_each(|worker| world.set_mask(worker, 2..4));
    let to: Vec<u32> = world
        .second()
        .iter()
        .map(|change| match change {
            CoreChange::Moved { to, loss: CoreLoss::Taken, .. } => to.0,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(to, [2, 3]);
    world.set_mask(0, [2]);
    world.set_mask(1, [3]);
    world.stays(20);
}

#[test]
fn when_all_are_lost_nobody_is() {
    let mut world = World::new(2, 2);
    world.stays(3);
    world.sight.online = Some(units([7]));
    world.stays(10);
    assert!((0..2).all(|worker| world.watch.has_unit(WorkerIndex(worker))));
    // The only one that may own data.
    let mut world = World::new(2, 2);
    world.left_out[0] = true;
    world.set_mask(1, [0]);
    world.stays(10);
}

#[test]
fn a_quota_leaves_out_the_last_workers() {
    let mut world = World::new(4, 4);
    world.stays(3);
    world.sight.quota = Some(Quota { cores: 2.5, throttled_ns: Some(0) });
    // It is there, and is not used up.
    world.stays(20);
    world.withheld = 0.5;
    let loss = CoreLoss::Throttled { cores: 2.5 };
    assert_eq!(world.until_changed(20), (4, vec![lost(2, loss), lost(3, loss)]));
    world.withheld = 0.0;
    world.stays(50);
    world.sight.quota = Some(Quota { cores: 3.0, throttled_ns: Some(0) });
    assert_eq!(world.until_changed(20), (6, vec![back(2)]));
    world.sight.quota = None;
    assert_eq!(world.until_changed(20), (6, vec![back(3)]));
    // At least one stays.
    world.sight.quota = Some(Quota { cores: 0.2, throttled_ns: Some(0) });
    world.withheld = 0.9;
    assert_eq!(world.until_changed(20).1.len(), 3);
    assert!(world.watch.has_unit(WorkerIndex(0)));
}

#[test]
fn new_units_are_named_once_where_no_worker_needs_one() {
    let mut world = World::new(2, 8);
    world.sight.allowed = Some(units(0..2));
    world.stays(3);
    world.sight.allowed = Some(units(0..5));
    assert_eq!(world.until_changed(3), (1, vec![CoreChange::Spare { units: 3 }]));
    world.sight.allowed = Some(units(0..2));
    world.stays(3);
    world.sight.allowed = Some(units(0..5));
    world.stays(10);
}

#[test]
fn where_nothing_is_told_nothing_is_concluded() {
    let mut world = World::new(2, 2);
    world.sight = CoreSight::default();
    world.stays(20);
    world.sight.workers = vec![WorkerSight::default(); 2];
    world.stays(20);
    // Workers that are not pinned have no unit to lose.
    let mut world = World::new(2, 2);
    world.watch = CoreWatch::new(CoreSettings::default(), &[None, None], Vec::new());
    world.sight.online = Some(units([1]));
    world.stays(20);
    assert!(!world.watch.is_of_any());
}

#[test]
fn a_worker_that_is_given_a_unit_begins_anew() {
    let mut world = World::new(2, 3);
    world.sight.online = Some(units([0, 2]));
    world.set_mask(1, [0]);
    assert_eq!(world.second(), [lost(1, CoreLoss::Offline)]);
    world.watch.give(WorkerIndex(1), CpuId(2));
    world.set_mask(1, [2]);
    world.stays(10);
    assert!(world.watch.has_unit(WorkerIndex(1)));
}

#[test]
fn changes_are_sentences() {
    let stalled = CoreLoss::Stalled { got: 0.04 };
    for (change, sentence) in [
        (lost(1, CoreLoss::Offline), "worker 1 has lost cpu 1, because it is offline"),
        (
            lost(1, stalled),
            "worker 1 has lost cpu 1, because others run there, and it got 4% of the time it wanted",
        ),
        (back(0), "worker 0 has cpu 0 again"),
        (
            CoreChange::Moved {
                worker: WorkerIndex(0),
                from: CpuId(0),
                to: CpuId(4),
                loss: CoreLoss::Offline,
            },
            "worker 0 has cpu 4 now, which is free, and not cpu 0, because it is offline",
        ),
        (
            lost(2, CoreLoss::Throttled { cores: 1.5 }),
            "worker 2 on cpu 2 is left out, because the control group has a quota of 1.5 cores, which is used up time and again",
        ),
    ] {
        assert_eq!(change.to_string(), sentence);
        let text = serde_json::to_string(&change).expect("JSON");
        assert_eq!(serde_json::from_str::<CoreChange>(&text).expect("read back"), change, "{text}");
    }
    let begun = CoreChange::Begun { worker: WorkerIndex(2), cpu: CpuId(5) }.to_string();
    assert_eq!(begun, "worker 2 was spare and has cpu 5, which appeared");
    let spare = CoreChange::Spare { units: 2 }.to_string();
    assert!(spare.contains("open the database with more workers, or spare ones, to use them"), "{spare}");
}

/// A world of two workers on three processing units, with two spare workers whose threads may run where the process may, and a quota at the
/// beginning.
fn world_with_spares(quota_cores: Option<f64>) -> World {
    let mut world = World::new(4, 5);
    let own = [Some(CpuId(0)), Some(CpuId(1))];
    world.watch = CoreWatch::new(CoreSettings::default(), &own, Vec::new());
    world.watch = world.watch.with_spares(2, units(0..3), quota_cores);
    world.allow(0..3);
    assert!(!world.watch.has_unit(WorkerIndex(2)) && world.watch.is_of_any());
    world
}

impl World {
    /// Lets the process run on these units, and the threads of spare workers with it.
    fn allow(&mut self, cpus: std::ops::Range<u32>) {
        self.sight.allowed = Some(units(cpus.clone()));
        for worker in 2..4 {
            if !self.watch.has_unit(WorkerIndex(worker)) {
                self.sight.workers[worker as usize].cpus = Some(units(cpus.clone()));
            }
        }
    }
}

fn begun(worker: u32, cpu: u32) -> CoreChange {
    CoreChange::Begun { worker: WorkerIndex(worker), cpu: CpuId(cpu) }
}

#[test]
fn spare_workers_begin_as_units_appear() {
    let mut world = world_with_spares(None);
    // A unit that was free from the beginning is not for them.
    world.stays(30);
    world.allow(0..4);
    assert_eq!(world.until_changed(30), (6, vec![begun(2, 3)]));
    world.set_mask(2, [3]);
    world.stays(30);
    world.allow(0..5);
    assert_eq!(world.until_changed(30).1, [begun(3, 4)]);
    world.set_mask(3, [4]);
    // From now on they are like others.
    world.sight.online = Some(units([0, 1, 3]));
    let (worker, cpu) = (WorkerIndex(3), CpuId(4));
    let gone = CoreChange::Lost { worker, cpu, loss: CoreLoss::Offline };
    assert_eq!(world.until_changed(30), (1, vec![gone]));
    world.sight.online = Some(units(0..5));
    assert_eq!(world.until_changed(30).1, [CoreChange::Back { worker, cpu }]);
    assert_eq!(world.watch.next_spare(), None);
}

#[test]
fn several_units_that_appear_at_once_are_given_out_at_once() {
    let mut world = world_with_spares(None);
    // They appear before the first look.
    world.allow(0..5);
    assert_eq!(world.until_changed(30).1, [begun(2, 3), begun(3, 4)]);
    world.set_mask(2, [3]);
    world.set_mask(3, [4]);
    world.stays(30);
}

#[test]
fn a_greater_quota_is_as_good_as_more_units() {
    let mut world = world_with_spares(Some(2.0));
    world.sight.quota = Some(Quota { cores: 2.0, throttled_ns: Some(0) });
    world.stays(30);
    world.sight.quota = Some(Quota { cores: 3.5, throttled_ns: Some(0) });
    assert_eq!(world.until_changed(30).1, [begun(2, 2)]);
    assert_eq!(world.watch.next_spare(), Some(WorkerIndex(3)));
}

#[test]
fn a_unit_that_is_busy_is_given_to_no_spare_worker() {
    let mut world = world_with_spares(None);
    world.stays(1);
    world.allow(0..4);
    (world.idle[2], world.idle[3]) = (0.1, 0.2);
    world.stays(30);
    world.idle[2] = 0.9;
    assert_eq!(world.until_changed(30).1, [begun(2, 2)]);
}
