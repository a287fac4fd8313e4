//! What the controller achieves in the scenarios of the project.

use crate::{run, scenario, show};
use atrapos_adapt::ControllerSettings;
use atrapos_simulator::{MachineKind, compare};

#[test]
fn where_the_naive_scheme_is_best_it_stays() {
    for name in ["uniform", "shuffled"] {
        for kind in [MachineKind::Two, MachineKind::TwoByEight] {
            let result = run(&scenario(name, 30_000.0), kind);
            for phase in &result.phases {
                assert_eq!(phase.repartitionings, 0, "{name} on {}: {}", kind.name(), show(&result));
                assert!(phase.over_static >= 0.99, "{name}: {}", show(&result));
            }
        }
    }
}

#[test]
fn skew_is_followed() {
    for kind in [MachineKind::Two, MachineKind::TwoByEight] {
        let result = run(&scenario("figure-11", 50_000.0), kind);
        for phase in &result.phases {
            assert!(phase.settled_over_best >= 0.90, "{}", show(&result));
            assert!(phase.over_static >= 0.95, "{}", show(&result));
        }
        assert!(result.phases[1].static_over_best < 0.75, "the scheme of before is bad: {}", show(&result));
    }
}

#[test]
fn a_controller_that_never_acts_is_found_out() {
    // The assertions above can fail.
    let settings = ControllerSettings { gain_min: 1e6, gain_sure: 1e6, ..ControllerSettings::default() };
    let result = compare(&scenario("figure-11", 20_000.0), MachineKind::Two, 1, settings).expect("a result");
    for phase in &result.phases[1..] {
        assert!(phase.settled_over_best < 0.75, "{}", show(&result));
    }
}

#[test]
fn a_lost_island_is_left_and_used_again() {
    let result = run(&scenario("figure-12", 50_000.0), MachineKind::FourBySix);
    for phase in &result.phases {
        assert!(phase.settled_over_best >= 0.90, "{}", show(&result));
    }
    assert!(result.phases[1].over_static > 1.2, "{}", show(&result));
}
