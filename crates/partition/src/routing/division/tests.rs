//! Every key has one owner among all instances, and all of them agree on it.

use atrapos_storage::Key;
use proptest::prelude::*;

use super::*;
use crate::schema::{Schema, Table};

atrapos_storage::row! { #[derive(Clone)] pub(crate) struct Count { pub(crate) number: u64 } }

macro_rules! table {
    ($name:ident, $text:literal) => {
        struct $name;
        impl Table for $name {
            type Key = u64;
            type Row = Count;
            const NAME: &'static str = $text;
        }
    };
}

table!(Even, "even");
table!(By, "by");
table!(At, "at");
table!(Whole, "whole");

const FAMILIES: [&str; 4] = ["even", "by", "at", "whole"];

/// Keys of the population; there may be others.
const KEYS: u64 = 1000;

fn catalog() -> Catalog {
    let by =
        |workers: usize| (1..workers as u64).map(|part| KEYS * part / workers as u64).collect::<Vec<u64>>();
    let schema = Schema::new().table::<Even>().table::<By>().table::<At>().table::<Whole>();
    let schema = schema
        .split_evenly("even", 0, KEYS - 1)
        .split_by("by", move |workers| {
            let mut cuts = by(workers);
            cuts.retain(|cut| *cut > 0);
            cuts.dedup();
            cuts
        })
        .split_at("at", &[100_u64, 200, 600]);
    Catalog::new(schema).expect("a sound schema")
}

fn ranges(cuts: &[u64], owners: &[u16]) -> KeyRanges {
    let cuts = cuts.iter().map(Key::encode).collect();
    KeyRanges::new(cuts, owners.iter().copied().map(InstanceId).collect()).expect("sound ranges")
}

fn division(instance: usize, workers: &[usize], chosen: &[(&str, KeyRanges)]) -> Division {
    let ranges = chosen.iter().map(|(family, ranges)| ((*family).to_owned(), ranges.clone())).collect();
    Division { instance: InstanceId(instance as u16), workers: workers.to_vec(), ranges }
}

/// The first number of each partition, and the worker (`Ok`) or the instance (`Err`) that owns it.
fn seen(division: &Division, family: usize) -> Vec<(u64, Result<u16, u16>)> {
    let scheme = Scheme::of_instance(&catalog(), division).expect("a sound division");
    let family = &scheme.families[family];
    let part = |at: usize| {
        let owner = family.owner(at);
        let owner = InstanceId::of_owner(owner).map_or(Ok(owner.0), |other| Err(other.0));
        (family.lower(at).map_or(0, atrapos_storage::first_eight), owner)
    };
    (0..family.partitions()).map(part).collect()
}

#[test]
fn an_instance_sees_its_own_partitions_and_those_of_the_others() {
    let seen = |instance| seen(&division(instance, &[2, 1, 2], &[]), 0);
    let lowers = [0, 200, 400, 600, 800];
    let expect = |owners: [Result<u16, u16>; 5]| lowers.into_iter().zip(owners).collect::<Vec<_>>();
    assert_eq!(seen(0), expect([Ok(0), Ok(1), Err(1), Err(2), Err(2)]));
    assert_eq!(seen(1), expect([Err(0), Err(0), Ok(0), Err(2), Err(2)]));
    assert_eq!(seen(2), expect([Err(0), Err(0), Err(1), Ok(0), Ok(1)]));
}

#[test]
fn a_chosen_range_is_cut_evenly_for_the_workers_of_its_instance() {
    let chosen = ["even", "by", "at", "whole"].map(|family| (family, ranges(&[500, 600], &[1, 0, 1])));
    let of = |instance, family| seen(&division(instance, &[2, 4], &chosen), family);
    for (family, name) in FAMILIES.iter().enumerate().take(2) {
        let cuts: Vec<u64> = of(0, family).iter().map(|(lower, _)| *lower).collect();
        assert_eq!(cuts, [0, 125, 250, 375, 500, 550, 600, 700, 800, 900], "{name}");
        let owners: Vec<_> = of(1, family).iter().map(|(_, owner)| *owner).collect();
        let workers = [0, 1, 2, 3].map(Ok);
        assert_eq!(owners, [&workers[..], &[Err(0); 2], &workers].concat(), "{name}");
    }
    // Declared cuts are those that there are; what is not cut is on one worker.
    assert_eq!(of(1, 2), [(0, Ok(0)), (100, Ok(1)), (200, Ok(2)), (500, Err(0)), (600, Ok(2))]);
    assert_eq!(of(0, 3), [(0, Err(1)), (500, Ok(1)), (600, Err(1))]);
}

#[test]
fn ranges_that_contradict_themselves_or_the_schema_are_refused() {
    let two = || vec![InstanceId(0), InstanceId(1)];
    for cuts in [&[][..], &[3, 3], &[4, 3]] {
        assert_eq!(KeyRanges::new(cuts.iter().map(u64::encode).collect(), two()), None, "{cuts:?}");
    }
    assert_eq!(KeyRanges::new(vec![KeyBuf::new()], two()), None);
    for (family, owner, words) in [("odd", 1, "'odd', to which no table"), ("even", 2, "given to instance 2")]
    {
        let division = division(0, &[1, 1], &[(family, ranges(&[5], &[0, owner]))]);
        let refused = Scheme::of_instance(&catalog(), &division).expect_err("refused").to_string();
        assert!(refused.contains(words), "{refused}");
    }
}

/// Instances with their workers, and for each family perhaps cuts with owners.
type Case = (Vec<usize>, Vec<Option<(Vec<u64>, Vec<usize>)>>);

fn cases() -> impl Strategy<Value = Case> {
    let cuts = proptest::collection::btree_set(1..KEYS + 100, 0..6).prop_map(Vec::from_iter);
    let chosen = (cuts, proptest::collection::vec(any::<usize>(), 7));
    let chosen = proptest::collection::vec(proptest::option::of(chosen), FAMILIES.len());
    (proptest::collection::vec(1_usize..5, 1..5), chosen)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_key_has_one_owner_and_all_instances_agree((workers, families) in cases()) {
        let chosen = FAMILIES.iter().zip(&families).filter_map(|(family, chosen)| {
            let (cuts, owners) = chosen.as_ref()?;
            let owners: Vec<u16> =
                owners.iter().take(cuts.len() + 1).map(|owner| (owner % workers.len()) as u16).collect();
            Some((*family, ranges(cuts, &owners)))
        });
        let chosen: Vec<(&str, KeyRanges)> = chosen.collect();
        // The last one is none of them, as a client is.
        let schemes: Vec<Scheme> = (0..=workers.len())
            .map(|instance| Scheme::of_instance(&catalog(), &division(instance, &workers, &chosen)).expect("sound"))
            .collect();
        for (family, name) in FAMILIES.iter().enumerate() {
            for key in (0..KEYS + 110).step_by(7).chain([u64::MAX]) {
                let bytes = key.encode();
                let owner = |scheme: &Scheme| {
                    let family = &scheme.families[family];
                    family.owner(family.partition_of(&bytes))
                };
                let named = InstanceId::of_owner(owner(&schemes[workers.len()])).expect("that of others");
                for (instance, own) in workers.iter().enumerate() {
                    let seen = owner(&schemes[instance]);
                    match InstanceId::of_owner(seen) {
                        None => {
                            prop_assert_eq!(named, InstanceId(instance as u16), "{} of {}", key, name);
                            prop_assert!(seen.index() < *own, "{} of {}", key, name);
                        }
                        Some(other) => prop_assert_eq!(named, other, "{} of {}", key, name),
                    }
                }
                if let Some((_, ranges)) = chosen.iter().find(|(chosen, _)| chosen == name) {
                    let at = ranges.cuts.partition_point(|cut| *cut <= bytes);
                    prop_assert_eq!(named, ranges.owners[at], "{} of {}", key, name);
                }
            }
        }
    }
}
