//! The scenarios that come with the project.
//!
//! Owns: the list of their files. Never: has a scenario that is no file.

use crate::scenario::Scenario;

const FILES: [&str; 23] = [
    include_str!("../scenarios/uniform.toml"),
    include_str!("../scenarios/figure-10.toml"),
    include_str!("../scenarios/figure-11.toml"),
    include_str!("../scenarios/figure-12.toml"),
    include_str!("../scenarios/busy-island.toml"),
    include_str!("../scenarios/figure-13.toml"),
    include_str!("../scenarios/two-hot-ranges.toml"),
    include_str!("../scenarios/tenants.toml"),
    include_str!("../scenarios/same-order.toml"),
    include_str!("../scenarios/mirrored.toml"),
    include_str!("../scenarios/in-stages.toml"),
    include_str!("../scenarios/shuffled.toml"),
    include_str!("../scenarios/hot-row-apart.toml"),
    include_str!("../scenarios/hot-row-together.toml"),
    include_str!("../scenarios/hot-key.toml"),
    include_str!("../scenarios/growth.toml"),
    include_str!("../scenarios/rare-heavy.toml"),
    include_str!("../scenarios/low-load.toml"),
    include_str!("../scenarios/ebb.toml"),
    include_str!("../scenarios/flips-300ms.toml"),
    include_str!("../scenarios/flips-3s.toml"),
    include_str!("../scenarios/flips-30s.toml"),
    include_str!("../scenarios/wandering.toml"),
];

/// The scenarios that come with the project, in the order of the table in `docs/experiments.md`.
///
/// # Panics
/// Never: a test reads them all.
#[must_use]
pub fn scenarios() -> Vec<Scenario> {
    FILES.into_iter().map(|text| Scenario::from_toml(text).expect("a scenario of the project")).collect()
}

#[cfg(test)]
mod tests {
    use super::scenarios;

    #[test]
    fn all_can_be_read_and_have_names_of_their_own() {
        let mut names: Vec<String> = scenarios().into_iter().map(|scenario| scenario.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
