//! Transactions over several instances of a deployment, simulated: the scenarios of one database, whose rows are now in several.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use atrapos::sim::Deployment;
use atrapos::{
    Abort, AbortReason, Adaptation, Division, InstanceId, Key, KeyRange, KeyRanges, Schema, Tx, WorkerId,
};
use atrapos_topology::Machine;

use crate::isolation::{ages, anomalies, bank, lists, waiting};
use crate::support::{
    Engine, Item, Items, Random, STEPS_MAX, for_seeds_in_parallel, item, two_tables, until_done,
};
use crate::{crud, indexes, savepoints};

type Scenario = fn(&mut Engine, usize, u64) -> Result<(), String>;

/// Runs a scenario on two to five workers of at least two instances, with many seeds.
fn deployed(count: u64, schema: fn() -> Schema, scenario: Scenario) {
    for_seeds_in_parallel(count, |seed| {
        let workers = 3 + (seed % 3) as usize;
        let mut engine = Engine::deployed(schema, workers, seed);
        if let Err(wrong) = scenario(&mut engine, workers, seed) {
            panic!("with seed {seed}: {wrong}");
        }
    });
}

#[test]
fn histories_are_serializable() {
    deployed(60, lists::lists, lists::serializable);
}

#[test]
fn money_is_neither_made_nor_lost() {
    deployed(20, bank::few_accounts, bank::few);
    deployed(20, bank::pairs, bank::twins);
}

#[test]
fn there_are_no_phantoms() {
    deployed(20, anomalies::items, anomalies::phantoms);
    deployed(20, indexes::users, anomalies::index_phantoms);
}

#[test]
fn rows_are_what_a_model_says() {
    deployed(12, two_tables, |engine, workers, seed| crud::random_history(engine, workers as u64, seed, 40));
}

#[test]
fn rows_and_indexes_stay_together() {
    deployed(12, indexes::users, |engine, workers, seed| {
        indexes::random_history(engine, workers as u64, seed, 40)
    });
}

#[test]
fn rollbacks_to_savepoints_leave_what_a_model_says() {
    deployed(12, indexes::users, savepoints::random_rollbacks);
}

#[test]
fn whoever_gives_way_gets_older() {
    deployed(6, waiting::items, ages::seniority);
}

/// The row of each number that the tests insert is its value.
fn filled(seed: u64, workers: &[usize]) -> Deployment {
    let mut deployment = Deployment::new(two_tables(), workers, seed).expect("the schema is fine");
    let items = deployment.table::<Items>().unwrap();
    let filled = deployment.submit(&items.at(&0), async move |tx| {
        for key in 0..100 {
            tx.insert(items, key, item(key as i64)).await?;
        }
        Ok(())
    });
    assert!(deployment.run(STEPS_MAX));
    filled.take().unwrap().unwrap();
    deployment
}

#[test]
fn ranges_go_through_all_instances_both_ways() {
    for_seeds_in_parallel(6, |seed| {
        let mut deployment = filled(seed, &[1, 2, 1]);
        let items = deployment.table::<Items>().unwrap();
        let read = deployment.spawn_session(1, async move |session| {
            let procedure = async move |tx: &mut Tx<'_>| {
                tx.update(items, 90, |row| row.value = 900).await?;
                tx.delete(items, 91).await?;
                tx.insert(items, 1000, item(1000)).await?;
                let forth = tx.scan(items, KeyRange::all(), 1_000).await?;
                let back = tx.scan_backward(items, KeyRange::through(&3_u64, &95_u64), 80).await?;
                let changed = tx
                    .update_range(items, KeyRange::through(&20_u64, &70_u64), |_, row| row.value = -1)
                    .await?;
                let deleted = tx.delete_range(items, KeyRange::through(&40_u64, &60_u64)).await?;
                let left = tx.scan(items, KeyRange::all(), 1_000).await?.len();
                Ok::<_, Abort>((forth, back, changed, deleted, left))
            };
            session.run(&items.at(&30), procedure).await
        });
        assert!(deployment.run(STEPS_MAX));
        let (forth, back, changed, deleted, left) = read.take().unwrap().unwrap();
        let keys = |rows: &[(u64, Item)]| rows.iter().map(|(key, _)| *key).collect::<Vec<_>>();
        let expected: Vec<u64> = (0..100).filter(|key| *key != 91).chain([1000]).collect();
        assert_eq!(keys(&forth), expected);
        assert_eq!(forth[90].1.value, 900, "it reads its own writes");
        let expected: Vec<u64> = (3..=95).rev().filter(|key| *key != 91).take(80).collect();
        assert_eq!(keys(&back), expected);
        assert_eq!((changed, deleted, left), (51, 21, 79));
        assert_eq!(deployment.locks(), (0, 0));
    });
}

/// Transactions of one phase each, with rows of their home and of other instances in any order, some of them more than once; so many at a
/// time that rows of the home are locked now and then. The results come in the order of the actions, and no update is lost.
#[test]
fn results_of_a_phase_over_instances_come_in_the_order_of_its_actions() {
    const PHASES: usize = 60;
    const SESSIONS: usize = 6;
    for_seeds_in_parallel(12, |seed| {
        let workers: &[usize] = [&[1, 1][..], &[1, 1, 1], &[2, 1]][seed as usize % 3];
        let mut deployment = filled(seed, workers);
        let items = deployment.table::<Items>().unwrap();
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|number| {
                let mut random = Random::new(seed).part(number);
                deployment.spawn_session(number % workers.iter().sum::<usize>(), async move |session| {
                    let mut updated = 0;
                    for _ in 0..PHASES {
                        let few = 1 + random.below(7);
                        let keys: Vec<u64> = (0..few).map(|_| random.below(100)).collect();
                        let is_last = random.below(2) == 0;
                        let count = keys.len() as i64;
                        let expected: Vec<_> = keys.iter().map(|key| Some(*key as i64)).collect();
                        let home = keys[0];
                        let procedure = async move |tx: &mut Tx<'_>| {
                            if is_last {
                                tx.declare_last();
                            }
                            let change = |row: &mut Item| {
                                row.value += 1_000;
                                row.value % 1_000
                            };
                            tx.join_all(keys.iter().map(|key| items.update(*key, change))).await
                        };
                        let found = session.run(&items.at(&home), procedure).await?;
                        assert_eq!(found, expected, "seed {seed}");
                        updated += count;
                    }
                    Ok::<_, Abort>(updated)
                })
            })
            .collect();
        assert!(deployment.run(STEPS_MAX));
        let updated: i64 = sessions.into_iter().map(|session| session.take().unwrap().unwrap()).sum();
        let all =
            deployment.submit(&items.at(&0), async move |tx| tx.scan(items, KeyRange::all(), 1_000).await);
        assert!(deployment.run(STEPS_MAX));
        let sum: i64 = all.take().unwrap().unwrap().iter().map(|(_, row)| row.value / 1_000).sum();
        assert_eq!(sum, updated, "seed {seed}");
        assert_eq!(deployment.locks(), (0, 0));
    });
}

#[test]
fn nothing_follows_an_operation_that_was_declared_the_last_one() {
    for_seeds_in_parallel(4, |seed| {
        let mut deployment = filled(seed, &[1, 1]);
        let items = deployment.table::<Items>().unwrap();
        for more in [false, true] {
            let tried = deployment.submit(&items.at(&1), async move |tx| {
                tx.declare_last();
                let (a, b) = tx.join((items.get(2), items.get(98))).await?;
                if more {
                    // Its failure is concealed, and the transaction must not commit all the same.
                    let _ = tx.get(items, 3).await;
                }
                Ok((a.map(|row| row.value), b.map(|row| row.value)))
            });
            assert!(deployment.run(STEPS_MAX));
            match tried.take().unwrap() {
                Err(abort) if more => assert_eq!(abort.reason(), AbortReason::Misuse),
                read => assert_eq!(read, Ok((Some(2), Some(98)))),
            }
            assert_eq!(deployment.locks(), (0, 0));
        }
    });
}

#[test]
fn an_insertion_of_a_taken_key_elsewhere_aborts_all() {
    for_seeds_in_parallel(4, |seed| {
        let mut deployment = filled(seed, &[1, 1]);
        let items = deployment.table::<Items>().unwrap();
        let tried = deployment.submit(&items.at(&1), async move |tx| {
            tx.update(items, 2, |row| row.value = 7).await?;
            tx.update(items, 98, |row| row.value = 7).await?;
            tx.insert(items, 99, item(7)).await
        });
        assert!(deployment.run(STEPS_MAX));
        assert_eq!(tried.take().unwrap().unwrap_err().reason(), AbortReason::DuplicateKey);
        let read = deployment.submit(&items.at(&1), async move |tx| {
            let (a, b) = tx.join((items.get(2), items.get(98))).await?;
            Ok((a.map(|row| row.value), b.map(|row| row.value)))
        });
        assert!(deployment.run(STEPS_MAX));
        assert_eq!(read.take().unwrap(), Ok((Some(2), Some(98))));
    });
}

/// Sessions of all instances change two rows each, anywhere, while the link between two of the instances is cut: what needs the
/// other one aborts, the rest goes on, and nothing stays locked.
#[test]
fn the_loss_of_a_link_aborts_what_needs_it_and_nothing_else() {
    for_seeds_in_parallel(20, |seed| {
        let mut deployment = filled(seed, &[1, 2, 1]);
        let items = deployment.table::<Items>().unwrap();
        let sessions: Vec<_> = (0..8_usize)
            .map(|at| {
                deployment.spawn_session(at % 4, async move |session| {
                    let mut random = Random::new(seed).part(at);
                    let (mut done, mut lost) = (0, 0);
                    for _ in 0..40 {
                        let (a, b) = (random.below(100), random.below(100));
                        let ran = session
                            .run(&items.at(&a), async move |tx| {
                                tx.update(items, a, |row| row.value += 1).await?;
                                tx.update(items, b, |row| row.value -= 1).await.map(drop)
                            })
                            .await;
                        match ran {
                            Ok(()) => done += 1,
                            Err(abort) => match abort.reason() {
                                AbortReason::Unreachable | AbortReason::OutcomeUnknown => lost += 1,
                                _ => return Err(abort),
                            },
                        }
                    }
                    Ok((done, lost))
                })
            })
            .collect();
        deployment.run_for(500 + Random::new(seed).below(2_000));
        deployment.cut(InstanceId(0), InstanceId(2));
        assert!(deployment.run(STEPS_MAX), "the survivors come to rest");
        let ended: Vec<(u32, u32)> =
            sessions.into_iter().map(|session| session.take().unwrap().unwrap()).collect();
        assert!(ended.iter().all(|(done, lost)| done + lost == 40 && *done > 0), "{ended:?}");
        assert!(ended.iter().any(|(_, lost)| *lost > 0), "some needed the link");
        assert_eq!(deployment.locks(), (0, 0));
        deployment.check_trees().unwrap();
        let local = deployment.instance(InstanceId(0)).spawn_session(WorkerId(0), async move |session| {
            session.run(&items.at(&3), async move |tx| tx.get(items, 3).await).await
        });
        assert!(deployment.run(STEPS_MAX));
        assert!(local.take().unwrap().unwrap().is_some());
    });
}

const KEYS: u64 = 1_000;

/// The first keys, which most transactions want.
const HOT: u64 = 40;

/// Instances with several workers, the first of which has keys at both ends; sessions of all ask for few keys of the first one most
/// of the time, and now and then for one of the others as well.
struct Adapting {
    deployment: Deployment,
    ended: Rc<Cell<bool>>,
    /// Transactions of sessions; each adds one to the sum of all rows.
    committed: Rc<Cell<i64>>,
}

impl Adapting {
    fn new(seed: u64) -> Adapting {
        let schema = Schema::new().table::<Items>().split_evenly("items", 0, KEYS - 1);
        let mut division = Division::by_workers(InstanceId(0), vec![4, 2, 1]);
        let ranges = KeyRanges::new(
            [400_u64, 600, 800].map(|key| key.encode()).to_vec(),
            [0, 1, 2, 0].map(InstanceId).to_vec(),
        );
        division.ranges.insert("items".to_owned(), ranges.expect("cuts in their order"));
        let adaptation = Adaptation { sample_every: 1, ..Adaptation::default() };
        let machine = Machine::synthetic("core:4 pu:1").unwrap();
        let mut deployment = Deployment::adaptive(schema, &division, &machine, seed, &adaptation).unwrap();
        let items = deployment.table::<Items>().unwrap();
        let filled = deployment.submit(&items.at(&0), async move |tx| {
            for key in 0..KEYS {
                tx.insert(items, key, item(0)).await?;
            }
            Ok(())
        });
        assert!(deployment.run(STEPS_MAX));
        filled.take().unwrap().unwrap();
        let (ended, committed) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
        for at in 0..14 {
            let (ended, committed) = (Rc::clone(&ended), Rc::clone(&committed));
            let mut random = Random::new(seed).part(at);
            let _ = deployment.spawn_session(at % 7, async move |session| {
                while !ended.get() {
                    let keys = if random.chance(90) { HOT } else { KEYS };
                    let a = random.below(keys);
                    let b = random.chance(20).then(|| 400 + random.below(400));
                    let route = items.at(&a);
                    let done = until_done(&session, &route, async move |tx: &mut Tx<'_>| {
                        let Some(b) = b else {
                            return tx.update(items, a, |row| row.value += 1).await.map(drop);
                        };
                        tx.update(items, a, |row| row.value += 2).await?;
                        tx.update(items, b, |row| row.value -= 1).await.map(drop)
                    });
                    done.await.unwrap();
                    committed.set(committed.get() + 1);
                }
            });
        }
        Adapting { deployment, ended, committed }
    }

    /// The partitions of an instance as it sees them: the first key of each, and its owner.
    fn seen(&self, instance: u16) -> Vec<(Option<Vec<u8>>, WorkerId)> {
        let scheme = self.deployment.instance(InstanceId(instance)).scheme();
        let family = scheme.family(self.deployment.table::<Items>().unwrap().id());
        (0..family.partitions()).map(|at| (family.lower(at).map(<[u8]>::to_vec), family.owner(at))).collect()
    }

    /// The workers of instance 0 that own some of the keys that most transactions want.
    fn hot_owners(&self) -> BTreeSet<WorkerId> {
        let scheme = self.deployment.instance(InstanceId(0)).scheme();
        let family = scheme.family(self.deployment.table::<Items>().unwrap().id());
        (0..HOT).map(|key| family.owner(family.partition_of(&key.encode()))).collect()
    }
}

/// A part of a scheme that instances of others see: who has which keys, whatever the partitions are.
fn instances_of(seen: &[(Option<Vec<u8>>, WorkerId)]) -> Vec<(Option<Vec<u8>>, Option<InstanceId>)> {
    let mut owners: Vec<(Option<Vec<u8>>, Option<InstanceId>)> = Vec::new();
    for (lower, owner) in seen {
        let owner = InstanceId::of_owner(*owner);
        if owners.last().is_none_or(|(_, last)| *last != owner) {
            owners.push((lower.clone(), owner));
        }
    }
    owners
}

/// An instance changes its scheme alone: the hot keys get several of its workers, and partitions of others
/// stay as they are in every scheme.
#[test]
fn an_instance_adapts_inside_of_its_keys() {
    for_seeds_in_parallel(3, |seed| {
        let mut adapting = Adapting::new(seed);
        let before = [0, 1, 2].map(|instance| adapting.seen(instance));
        assert_eq!(adapting.hot_owners().len(), 1);
        let mut changes = 0;
        for _ in 0..8 {
            adapting.deployment.run_for(60_000);
            for instance in [0, 1, 2].map(InstanceId) {
                let event = adapting.deployment.adapt(instance, Duration::from_secs(1), STEPS_MAX).unwrap();
                assert_eq!(event.failure, None, "{instance}: {}", event.decision);
                changes += usize::from(event.report.is_some_and(|report| report.moves > 0));
            }
        }
        assert!(changes > 0, "seed {seed}: nothing has moved");
        assert!(adapting.hot_owners().len() > 1, "seed {seed}: {:?}", adapting.hot_owners());
        for (instance, before) in before.iter().enumerate() {
            let now = adapting.seen(instance as u16);
            assert_eq!(instances_of(&now), instances_of(before), "instance {instance}");
            let others = |seen: &[(Option<Vec<u8>>, WorkerId)]| {
                let others = seen.iter().filter(|(_, owner)| InstanceId::of_owner(*owner).is_some());
                others.cloned().collect::<Vec<_>>()
            };
            assert_eq!(others(&now), others(before), "instance {instance}");
        }
        adapting.ended.set(true);
        let deployment = &mut adapting.deployment;
        assert!(deployment.run(STEPS_MAX), "seed {seed}");
        let items = deployment.table::<Items>().unwrap();
        let sum = deployment.submit(&items.at(&500), async move |tx| {
            tx.fold(items, KeyRange::all(), (0, 0), |sum: &mut (u64, i64), _, row: Item| {
                *sum = (sum.0 + 1, sum.1 + row.value);
                ControlFlow::Continue(())
            })
            .await
        });
        assert!(deployment.run(STEPS_MAX));
        assert_eq!(sum.take().unwrap(), Ok((KEYS, adapting.committed.get())));
        assert_eq!(deployment.locks(), (0, 0));
        deployment.check_trees().unwrap();
    });
}
