//! Every structure against an ordered map, and histories of threads that use one at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use atrapos_history::{KeyEvent, KeyHistory, KeyOperation};
use atrapos_structures::{Kind, Opened, Owned, PointAccess, Shared, Visit};

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn model(structure: &mut impl Owned<u64>, ordered: bool) {
    let (mut model, mut random) = (BTreeMap::new(), 7);
    for step in 0..60_000_u64 {
        let key = next(&mut random) % 3_000;
        // Phases in which the structure grows, and in which it gets empty.
        let removes = if (step / 10_000) % 2 == 0 { 2 } else { 6 };
        match next(&mut random) % 10 {
            kind if kind < removes => assert_eq!(structure.remove(&key), model.remove(&key).is_some()),
            6 | 7 => {
                let is_new = !model.contains_key(&key);
                model.entry(key).or_insert(step);
                assert_eq!(structure.insert(&key, step), Ok(is_new));
            }
            8 => {
                let is_there = model.get_mut(&key).map(|value| *value = step).is_some();
                assert_eq!(structure.update(&key, step), is_there);
            }
            _ if step % 50 == 0 && ordered => {
                let mut seen = Vec::new();
                let visited = structure.scan(&key, 100, &mut |key, value| seen.push((*key, value)));
                let expected: Vec<_> =
                    model.range(key..).take(100).map(|(key, value)| (*key, *value)).collect();
                assert_eq!((visited, seen), (Ok(expected.len()), expected));
            }
            _ => assert_eq!(structure.read(&key), model.get(&key).copied()),
        }
    }
    // Every key is read before and after it is perhaps written; 1 is written twice, and once read in between.
    let keys: Vec<u64> = (0..3_000).flat_map(|key| [key, key, 1, key]).collect();
    let write = |at: usize| at % 5 == 1 || at % 4 == 2;
    let access =
        |(at, key)| if write(at) { PointAccess::Update(key, at as u64) } else { PointAccess::Read(key) };
    let accesses: Vec<_> = keys.iter().enumerate().map(access).collect();
    let mut found = vec![None; accesses.len()];
    structure.access_many(&accesses, &mut found);
    for (at, (access, found)) in accesses.iter().zip(found).enumerate() {
        let value = model.get_mut(access.key());
        let expected = value.map(|value| {
            *value = if write(at) { at as u64 } else { *value };
            *value
        });
        assert_eq!(found, expected, "access {at}");
    }
    for key in 0..3_000 {
        assert_eq!(structure.read(&key), model.get(&key).copied());
    }
}

struct Model(Kind);

impl Visit<u64> for Model {
    type Output = ();

    fn shared<S: Shared<u64> + 'static>(self, make: fn() -> S) {
        assert_eq!(self.0.support().ordered, S::ORDERED);
        model(&mut Opened::new(&make()), S::ORDERED);
    }

    fn owned<S: Owned<u64> + 'static>(self, make: fn() -> S) {
        assert_eq!(self.0.support().ordered, S::ORDERED);
        model(&mut make(), S::ORDERED);
    }
}

#[test]
fn every_structure_does_what_an_ordered_map_does() {
    Kind::ALL.into_iter().for_each(|kind| kind.visit(Model(kind)));
}

struct Histories(Kind);

impl Visit<u64> for Histories {
    type Output = ();

    fn shared<S: Shared<u64> + 'static>(self, make: fn() -> S) {
        let (structure, clock) = (make(), AtomicU64::new(0));
        let run = |thread: u64| {
            let (mut opened, mut random, mut events) = (Opened::new(&structure), thread + 1, Vec::new());
            for step in 0..20_000_u64 {
                let (key, value) = (next(&mut random) % 200, thread << 32 | step);
                let called = clock.fetch_add(1, SeqCst);
                if step % 5 == 4 {
                    let (read, mut found) = ((key + 1) % 200, [None; 2]);
                    let both = [PointAccess::Update(&key, value), PointAccess::Read(&read)];
                    opened.access_many(&both, &mut found);
                    let returned = clock.fetch_add(1, SeqCst);
                    let update = KeyOperation::Update(value, found[0].is_some());
                    events.push((key, KeyEvent { operation: update, called, returned }));
                    let operation = KeyOperation::Read(found[1]);
                    events.push((read, KeyEvent { operation, called, returned }));
                    continue;
                }
                let operation = match next(&mut random) % 4 {
                    0 => KeyOperation::Insert(value, opened.insert(&key, value).expect("keys are short")),
                    1 => KeyOperation::Update(value, opened.update(&key, value)),
                    2 => KeyOperation::Remove(opened.remove(&key)),
                    _ => KeyOperation::Read(opened.read(&key)),
                };
                events.push((key, KeyEvent { operation, called, returned: clock.fetch_add(1, SeqCst) }));
            }
            events
        };
        let mut history = KeyHistory::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|thread| {
                    scope.spawn({
                        let run = &run;
                        move || run(thread)
                    })
                })
                .collect();
            for thread in threads {
                thread
                    .join()
                    .expect("no thread panics")
                    .into_iter()
                    .for_each(|(key, event)| history.add(key, event));
            }
        });
        assert!(history.check().is_ok(), "{}: {:?}", self.0, history.check());
    }

    fn owned<S: Owned<u64> + 'static>(self, _make: fn() -> S) {}
}

#[test]
fn operations_of_three_threads_are_linearizable() {
    Kind::ALL.into_iter().for_each(|kind| kind.visit(Histories(kind)));
}
