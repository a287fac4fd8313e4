//! What fits of a stored scheme: all of it with as many workers, and a scheme of all keys with any number of them.

use atrapos_storage::Key;
use proptest::prelude::*;

use super::*;
use crate::routing::even_cuts;

/// Keys of the population.
const KEYS: u64 = 1000;

fn naive(workers: usize) -> FamilyScheme {
    let cuts = even_cuts(0, KEYS - 1, workers);
    let owners = (0..=cuts.len()).map(|at| WorkerId(at as u16)).collect();
    FamilyScheme::new(cuts, owners)
}

fn stored(parts: &[(u64, u16)]) -> StoredFamily {
    let part = |(at, (first, owner)): (usize, &(u64, u16))| StoredPartition {
        first: if at == 0 { KeyBuf::new() } else { first.encode() },
        owner: WorkerId(*owner),
    };
    let partitions = parts.iter().enumerate().map(part).collect();
    StoredFamily { name: "numbers".to_owned(), tables: vec![TableId(0)], partitions }
}

/// The first key of each partition, and its owner.
fn shown(scheme: &FamilyScheme) -> Vec<(u64, u16)> {
    let first = |at| scheme.lower(at).map_or(0, |key| u64::decode(key).expect("a number"));
    (0..scheme.partitions()).map(|at| (first(at), scheme.owner(at).0)).collect()
}

fn resumed(parts: &[(u64, u16)], then: usize, now: usize) -> Vec<(u64, u16)> {
    shown(&naive(now).resumed(&stored(parts), then, now).expect("it fits"))
}

#[test]
fn partitions_of_a_worker_stay_together_or_are_divided_in_order() {
    let hot = [(0, 0), (10, 1), (20, 0), (100, 1), (500, 1)];
    assert_eq!(resumed(&hot, 2, 2), hot, "as many workers");
    let alone = [(0, 0), (10, 0), (20, 0), (100, 0), (500, 0)];
    assert_eq!(resumed(&hot, 2, 1), alone);
    // Worker 0 of two had two partitions, which two of four get; worker 1 had three.
    assert_eq!(resumed(&hot, 2, 4), [(0, 0), (10, 2), (20, 1), (100, 3), (500, 3)]);
    // Those of eight are two by two on four.
    let eight: Vec<(u64, u16)> = (0..8).map(|at| (u64::from(at) * 100, at)).collect();
    let four: Vec<(u64, u16)> = (0..8).map(|at| (u64::from(at) * 100, at / 2)).collect();
    assert_eq!(resumed(&eight, 8, 4), four);
}

#[test]
fn more_workers_get_parts_of_what_one_had() {
    assert_eq!(resumed(&[(0, 0), (400, 1)], 2, 4), [(0, 0), (250, 1), (400, 2), (500, 3), (750, 3)]);
    assert_eq!(resumed(&[(0, 0)], 1, 3), [(0, 0), (333, 1), (666, 2)]);
}

#[test]
fn keys_of_other_instances_stay_theirs() {
    let other = InstanceId(1).as_owner();
    let naive = |cut: u64| FamilyScheme::new(vec![cut.encode()], vec![WorkerId(0), other]);
    let mut family = stored(&[(0, 1), (100, 0), (500, 0)]);
    family.partitions[2].owner = other;
    let resumed = naive(500).resumed(&family, 2, 2).expect("the same keys are ours");
    assert_eq!(shown(&resumed), [(0, 1), (100, 0), (500, other.0)]);
    assert!(naive(600).resumed(&family, 2, 2).is_none(), "some of the keys are ours now");
    family.partitions[2].owner = InstanceId(2).as_owner();
    assert!(naive(500).resumed(&family, 2, 2).is_none(), "they are another one's now");
}

#[test]
fn ranks_have_no_holes() {
    let family = FamilyScheme::new(
        vec![10_u64.encode(), 20_u64.encode()],
        vec![WorkerId(3), WorkerId(1), InstanceId(0).as_owner()],
    );
    let scheme = Scheme { families: vec![Arc::new(family)], family_of: vec![0] };
    let mut catalog = Catalog::stored(&atrapos_catalog::Definitions::default());
    catalog.families.push(("numbers", None));
    let kept = StoredScheme::of(&scheme, &catalog, &[WorkerId(1), WorkerId(3)]);
    assert!(kept.is_sound());
    let owners: Vec<WorkerId> = kept.families[0].partitions.iter().map(|part| part.owner).collect();
    assert_eq!((kept.workers, owners), (2, vec![WorkerId(1), WorkerId(0), InstanceId(0).as_owner()]));
    // Of two workers that are left, the scheme is the same.
    let naive = Scheme { families: vec![Arc::new(naive(2))], family_of: vec![0] };
    let resumed = naive.resumed(&catalog, &kept, 2);
    assert_eq!(*resumed.families[0], *naive.families[0], "instances have other keys");
    // Those of another table, or of another name, are none of these.
    let mut kept = StoredScheme { workers: 2, families: vec![stored(&[(0, 1), (7, 0)])] };
    assert_eq!(shown(&naive.resumed(&catalog, &kept, 2).families[0]), [(0, 1), (7, 0)]);
    kept.families[0].tables = vec![TableId(1)];
    assert_eq!(*naive.resumed(&catalog, &kept, 2).families[0], *naive.families[0]);
    (kept.families[0].tables, kept.families[0].name) = (vec![TableId(0)], "others".to_owned());
    assert_eq!(*naive.resumed(&catalog, &kept, 2).families[0], *naive.families[0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_partition_has_a_worker_and_nothing_moves_away_from_its_neighbours(
        cuts in proptest::collection::btree_set(1..KEYS, 0..12),
        owners in proptest::collection::vec(any::<u16>(), 13),
        then in 1_usize..9,
        now in 1_usize..20,
    ) {
        let firsts = std::iter::once(0).chain(cuts);
        let parts: Vec<(u64, u16)> = firsts.zip(owners.iter().map(|owner| owner % then as u16)).collect();
        let resumed = resumed(&parts, then, now);
        prop_assert!(parts.iter().all(|(first, _)| resumed.iter().any(|(now, _)| now == first)));
        for (first, owner) in &resumed {
            let rank = parts[parts.partition_point(|(before, _)| before <= first) - 1].1;
            let (rank, owner) = (usize::from(rank), usize::from(*owner));
            // The worker has some of the share that the rank had: they overlap.
            prop_assert!(owner < now);
            prop_assert!(owner * then < (rank + 1) * now && rank * now < (owner + 1) * then, "{rank} {owner}");
        }
    }
}
