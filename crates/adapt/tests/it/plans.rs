//! Plans for machines that nobody has at hand, as snapshots that a person can read.

use crate::fixture::{new_order, platform, tatp};
use atrapos_adapt::{PlannedScheme, Settings, WorkerIndex, Workload, plan, render_plan, render_scheme};

const TWO_BY_EIGHT: &str = "pack:2 core:8 pu:1";
const FOUR_BY_SIX: &str = "pack:4 core:6 pu:1";
const EIGHT_BY_TEN: &str = "pack:8 core:10 pu:1";
/// Two sockets of eight L3 islands with eight cores each.
const CHIPLETS: &str = "pack:2 l3:8 core:8 pu:1";

/// The plan that leads away from the naive scheme.
fn from_naive(machine: &str, workload: &Workload) -> String {
    let platform = platform(machine);
    let naive = PlannedScheme::naive(workload, &platform);
    let plan = plan(workload, &platform, &naive, &Settings::default()).expect("a plan");
    assert!(plan.after.objective <= plan.naive.objective);
    format!("machine {machine}\n\n{}", render_plan(&plan, workload, &platform))
}

#[test]
fn tatp_two_by_eight() {
    insta::assert_snapshot!(from_naive(TWO_BY_EIGHT, &tatp(160, false)));
}

#[test]
fn tatp_four_by_six_skewed() {
    insta::assert_snapshot!(from_naive(FOUR_BY_SIX, &tatp(240, true)));
}

#[test]
fn tatp_eight_by_ten_skewed() {
    insta::assert_snapshot!(from_naive(EIGHT_BY_TEN, &tatp(800, true)));
}

#[test]
fn tatp_chiplets_skewed() {
    insta::assert_snapshot!(from_naive(CHIPLETS, &tatp(1280, true)));
}

#[test]
fn new_order_two_by_eight() {
    insta::assert_snapshot!(from_naive(TWO_BY_EIGHT, &new_order(160)));
}

#[test]
fn new_order_four_by_six() {
    insta::assert_snapshot!(from_naive(FOUR_BY_SIX, &new_order(240)));
}

#[test]
fn new_order_eight_by_ten() {
    insta::assert_snapshot!(from_naive(EIGHT_BY_TEN, &new_order(800)));
}

#[test]
fn new_order_chiplets() {
    insta::assert_snapshot!(from_naive(CHIPLETS, &new_order(1280)));
}

#[test]
fn a_socket_is_lost() {
    // `ATraPos §VI-D`, Figure 12: all ten cores of one of eight processors.
    let all = platform(EIGHT_BY_TEN);
    let workload = tatp(800, false);
    let naive = PlannedScheme::naive(&workload, &all);
    let lost: Vec<WorkerIndex> = (30..40).map(WorkerIndex).collect();
    let rest = all.without(&lost).expect("seventy are left");
    let plan = plan(&workload, &rest, &naive, &Settings::default()).expect("a plan");
    assert!(plan.after.load_max_ratio() < 1.1, "{}", plan.after.load_max_ratio());
    insta::assert_snapshot!(render_scheme(&plan.scheme, &workload, &rest));
}
