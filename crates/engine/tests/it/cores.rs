//! Cores that workers lose and get back while the database runs: what is told by a source of sights, and what the system itself tells.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atrapos::catalog::{ColumnDef, KeyColumn, PrimaryKey, TableDef};
use atrapos::{
    Adaptation, Builder, ColumnType, CoreSight, CoreSource, Database, SchemeChange, Threads, WorkerId,
    WorkerSight,
};
use atrapos_runtime::affinity;
use atrapos_topology::{CpuId, CpuSet, Quota, ThreadTime};

use crate::support::{Items, load_items, show, two_tables, wait_until};

const ROWS: u64 = 100;

/// Settings by which a loss counts at the first look that shows it, and a return at the second.
fn impatient() -> Adaptation {
    let mut adaptation = Adaptation::default();
    let controller = &mut adaptation.controller;
    (controller.interval, controller.interval_max) = (Duration::from_millis(20), Duration::from_millis(40));
    (controller.cores.stall_time, controller.cores.return_time) = (Duration::ZERO, Duration::ZERO);
    adaptation
}

fn builder() -> Builder {
    Database::builder(two_tables()).workers(2).huge_pages(false).adaptation(impatient())
}

/// Returns the number of partitions of `Items` that a worker owns.
fn owned(db: &Database, worker: u16) -> usize {
    let scheme = db.scheme();
    let family = scheme.family(db.table::<Items>().unwrap().id());
    (0..family.partitions()).filter(|index| family.owner(*index).0 == worker).count()
}

fn has_decision(db: &Database, words: &str) -> bool {
    db.adaptation_history().iter().any(|event| event.decision.to_string().contains(words))
}

/// Returns whether two workers can be pinned here; says so if not.
fn can_pin() -> bool {
    let cpus = affinity::current_thread_cpus().unwrap_or_default();
    if cpus.len() < 2 {
        show("SKIPPED: workers are pinned only where each has a core of its own");
    }
    cpus.len() >= 2
}

/// A source that tells what a test wants.
#[derive(Debug, Default)]
struct Told {
    /// Set if worker 1 gets next to no processor time.
    stalled: Mutex<bool>,
    quota: Mutex<Option<f64>>,
    sight: Mutex<CoreSight>,
    /// The processing units that threads of workers were told to run on.
    given: Mutex<Vec<(WorkerId, CpuSet)>>,
}

/// A time far longer than any look.
const LONG_NS: u64 = 1_000_000_000_000;

impl CoreSource for Told {
    fn sight(&self, threads: &Threads) -> CoreSight {
        assert_eq!(threads.workers.len(), 2);
        let mut sight = self.sight.lock().unwrap();
        sight.workers.resize_with(2, WorkerSight::default);
        for (worker, of) in sight.workers.iter_mut().enumerate() {
            let time = of.time.get_or_insert_with(ThreadTime::default);
            let waits = worker == 1 && *self.stalled.lock().unwrap();
            *(if waits { &mut time.waited_ns } else { &mut time.ran_ns }) += LONG_NS;
            time.turns += 1;
        }
        let before = sight.quota.and_then(|quota| quota.throttled_ns).unwrap_or(0);
        sight.quota =
            self.quota.lock().unwrap().map(|cores| Quota { cores, throttled_ns: Some(before + LONG_NS) });
        sight.clone()
    }

    fn run_on(&self, _: &Threads, worker: WorkerId, cpus: &CpuSet) {
        self.given.lock().unwrap().push((worker, cpus.clone()));
    }
}

#[test]
fn a_stalled_worker_is_left_alone_until_its_core_is_free() {
    if !can_pin() {
        return;
    }
    let told = Arc::new(Told::default());
    let db = builder().core_source(told.clone()).in_memory().unwrap();
    load_items(&db, ROWS, 1);
    let cpus: Vec<CpuId> = db.worker_reports().iter().map(|of| CpuId(of.core.unwrap() as u32)).collect();
    let allowed: CpuSet = cpus.iter().copied().collect();
    {
        let mut sight = told.sight.lock().unwrap();
        sight.allowed = Some(allowed.clone());
        sight.workers = cpus
            .iter()
            .map(|cpu| WorkerSight { cpus: Some([*cpu].into_iter().collect()), time: None })
            .collect();
    }
    *told.stalled.lock().unwrap() = true;
    wait_until(|| db.available_workers() == [true, false] && owned(&db, 1) == 0);
    assert!(has_decision(&db, "because others run there, and it got 0% of the time it wanted"));
    wait_until(|| told.given.lock().unwrap().contains(&(WorkerId(1), allowed.clone())));
    // It is where it was told to be, and gets what it wants.
    told.sight.lock().unwrap().workers[1].cpus = Some(allowed.clone());
    *told.stalled.lock().unwrap() = false;
    wait_until(|| db.available_workers() == [true, true] && owned(&db, 1) > 0);
    assert!(has_decision(&db, &format!("worker 1 has {} again", cpus[1])));
    let own: CpuSet = [cpus[1]].into_iter().collect();
    wait_until(|| told.given.lock().unwrap().contains(&(WorkerId(1), own.clone())));
    db.verify().unwrap();
}

#[test]
fn a_quota_leaves_a_worker_out_and_a_greater_one_takes_it_back() {
    if !can_pin() {
        return;
    }
    let told = Arc::new(Told::default());
    let db = builder().core_source(told.clone()).in_memory().unwrap();
    load_items(&db, ROWS, 1);
    *told.quota.lock().unwrap() = Some(1.2);
    wait_until(|| db.available_workers() == [true, false] && owned(&db, 1) == 0);
    assert!(has_decision(&db, "the control group has a quota of 1.2 cores"));
    // By hand anything goes.
    let (items, first) = (db.table::<Items>().unwrap(), 0);
    db.repartition([SchemeChange::move_to(items, &first, WorkerId(1))]).unwrap();
    *told.quota.lock().unwrap() = Some(2.0);
    wait_until(|| db.available_workers() == [true, true] && owned(&db, 1) > 0);
    assert_eq!(db.len(items.id()).unwrap(), ROWS);
    db.verify().unwrap();
}

#[test]
fn workers_that_are_not_pinned_are_not_watched() {
    let told = Arc::new(Told::default());
    *told.stalled.lock().unwrap() = true;
    let db = builder().pin(false).core_source(told.clone()).in_memory().unwrap();
    load_items(&db, ROWS, 1);
    // Where they are watched, there are two looks by then.
    wait_until(|| db.adaptation_history().last().is_some_and(|event| event.decision.at_ns > 2_500_000_000));
    assert!(told.sight.lock().unwrap().workers.is_empty(), "nobody has asked");
    assert_eq!(db.available_workers(), [true; 2]);
}

/// Lets all threads of this process run on these processing units, as `taskset -a` does.
fn set_process_mask(cpus: &[usize]) {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    for thread in threads {
        let number = thread.unwrap().file_name().to_str().unwrap().parse().unwrap();
        // A thread may have ended.
        let _ = affinity::set_thread_cpus(number, cpus);
    }
}

#[test]
#[ignore = "narrows the affinity mask of its whole process: run by the next test"]
fn child_whose_mask_is_narrowed() {
    let all = affinity::current_thread_cpus().unwrap();
    let db = builder().in_memory().unwrap();
    let cores: Vec<Option<usize>> = db.worker_reports().iter().map(|of| of.core).collect();
    let [Some(first), Some(second)] = cores[..] else { panic!("they are pinned: {cores:?}") };
    load_items(&db, ROWS, 1);
    assert_eq!((owned(&db, 0), owned(&db, 1)), (1, 1));
    set_process_mask(&[first]);
    wait_until(|| db.available_workers() == [true, false] && owned(&db, 1) == 0);
    assert!(has_decision(
        &db,
        &format!("worker 1 has lost cpu {second}, because its thread may not run there")
    ));
    let items = db.table::<Items>().unwrap();
    let home = db.run(items.at(&(ROWS - 1)), async |tx| Ok(tx.home())).unwrap();
    assert_eq!(home, WorkerId(0));
    set_process_mask(&all);
    wait_until(|| db.available_workers() == [true, true] && owned(&db, 1) > 0);
    assert!(has_decision(&db, &format!("worker 1 has cpu {second} again")));
    assert_eq!(db.len(items.id()).unwrap(), ROWS);
    db.verify().unwrap();
}

/// Runs sessions on worker 0, which read all rows all the time, until a condition holds.
fn under_load(db: &Database, holds: impl Fn() -> bool) {
    let items = db.table::<Items>().unwrap();
    let stopped = Arc::new(AtomicBool::new(false));
    let session = |first: u64| {
        let stopped = Arc::clone(&stopped);
        let body = async move |session: atrapos::Session| {
            for key in (first..).step_by(7) {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let key = key % ROWS;
                session.run(&items.at(&key), async move |tx| tx.get(items, key).await).await.unwrap();
            }
        };
        db.spawn_session(WorkerId(0), body).unwrap()
    };
    let sessions: Vec<_> = (0..4).map(session).collect();
    wait_until(holds);
    stopped.store(true, Ordering::Relaxed);
    sessions.into_iter().for_each(|session| session.join().unwrap());
}

/// Returns the workers that own a new table of two partitions on two workers, which is dropped again.
fn owners_of_new_table(db: &Database) -> Vec<WorkerId> {
    let table = TableDef {
        name: "new".to_owned(),
        columns: vec![ColumnDef::new("id", ColumnType::Unsigned(8))],
        key: PrimaryKey::Columns(vec![KeyColumn::ascending(0)]),
        family: "new".to_owned(),
        read_only: false,
        splits: vec![50u64.to_be_bytes().to_vec()],
    };
    let created = db.create_table(table).unwrap();
    let scheme = db.scheme();
    let family = scheme.family(created);
    let owners = (0..family.partitions()).map(|index| family.owner(index)).collect();
    db.drop_table("new").unwrap();
    owners
}

#[test]
#[ignore = "changes the affinity mask of its whole process: run by the next test but one"]
fn child_whose_mask_is_widened() {
    let all = affinity::current_thread_cpus().unwrap();
    set_process_mask(&all[..1]);
    let db = builder().workers(1).spare_workers(1).in_memory().unwrap();
    load_items(&db, ROWS, 1);
    assert_eq!((db.workers(), db.active_workers()), (2, 1));
    assert_eq!((db.available_workers(), owned(&db, 1)), (vec![true, false], 0));
    assert_eq!(owners_of_new_table(&db), [WorkerId(0), WorkerId(0)]);
    set_process_mask(&all[..2]);
    wait_until(|| db.available_workers() == [true, true]);
    assert_eq!(db.active_workers(), 2);
    assert!(has_decision(&db, &format!("worker 1 was spare and has cpu {}, which appeared", all[1])));
    assert_eq!(owners_of_new_table(&db), [WorkerId(0), WorkerId(1)]);
    under_load(&db, || owned(&db, 0) > 0 && owned(&db, 1) > 0);
    // It is lost like any other.
    set_process_mask(&all[..1]);
    wait_until(|| db.available_workers() == [true, false] && owned(&db, 1) == 0);
    assert!(has_decision(&db, &format!("worker 1 has lost cpu {}, because its thread may not run", all[1])));
    db.verify().unwrap();
}

#[test]
fn a_spare_worker_begins_by_hand_where_no_core_is_watched() {
    let db = builder().workers(1).spare_workers(2).pin(false).in_memory().unwrap();
    load_items(&db, ROWS, 1);
    assert_eq!((db.workers(), db.active_workers()), (3, 1));
    assert_eq!(db.add_worker(0), Ok(WorkerId(1)));
    assert_eq!((db.available_workers(), db.active_workers()), (vec![true, true, false], 2));
    let items = db.table::<Items>().unwrap();
    db.repartition([SchemeChange::move_to(items, &0, WorkerId(1))]).unwrap();
    assert_eq!((owned(&db, 1), db.len(items.id())), (1, Ok(ROWS)));
    assert_eq!(db.add_worker(0), Ok(WorkerId(2)));
    let refusal = db.add_worker(0).unwrap_err();
    assert!(refusal.detail().contains("none of the 3 workers has retired or is spare"), "{refusal}");
    db.verify().unwrap();
}

#[test]
fn partitions_leave_a_core_that_the_mask_has_no_more_and_come_back() {
    run_child("cores::child_whose_mask_is_narrowed");
}

#[test]
fn a_core_that_the_mask_gets_is_used_by_a_spare_worker() {
    run_child("cores::child_whose_mask_is_widened");
}

/// Runs a test in a process of its own, if two workers can be pinned here.
fn run_child(name: &str) {
    if !can_pin() {
        return;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let output =
        String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
}
