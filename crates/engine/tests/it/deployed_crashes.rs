//! Crashes of instances of a simulated deployment, at any step of two-phase commit: no transaction is half committed, none that was
//! acknowledged is lost, nothing stays in doubt when all are back.

use std::cell::Cell;
use std::rc::Rc;

use atrapos::planted::{Bug, CommitStep, stopped, with};
use atrapos::sim::Deployment;
use atrapos::{Abort, AbortReason, InstanceId, TableRef, Unresolved};

use crate::support::{Items, Random, STEPS_MAX, for_seeds_in_parallel, item, show, two_tables};

/// The workers of the instances: of the keys from 0 to 99, a quarter belongs to each worker.
const WORKERS: [usize; 3] = [1, 2, 1];

const SESSIONS: u64 = 8;

/// Steps after which work of so little size is stuck.
const STEPS: u64 = 1_000_000;

/// A key of an instance, which is its own for a session; `row` is 0 to 2.
fn own_key(instance: u64, row: u64, session: u64) -> u64 {
    [0, 30, 76][instance as usize] + row * SESSIONS + session
}

/// The keys of a session: two counters in different instances, and a note of what it has seen of another session's counter, in an
/// instance that has not got that.
struct Keys {
    counters: [u64; 2],
    seen: u64,
    note: u64,
}

fn keys(session: u64) -> Keys {
    let counter = |session: u64| own_key(session % 3, 0, session);
    let other = (session + 1) % SESSIONS;
    Keys {
        counters: [counter(session), own_key((session + 1) % 3, 1, session)],
        seen: counter(other),
        note: own_key((other + 1) % 3, 2, session),
    }
}

/// Accounts of all, between which money moves.
const ACCOUNTS: [u64; 6] = [24, 55, 60, 65, 70, 74];

/// The numbers of transactions of a session that were acknowledged, and that were begun; and the greatest value of the counter that it
/// has seen, as its failures have told.
#[derive(Clone, Default)]
struct Witness {
    acknowledged: Rc<Cell<i64>>,
    begun: Rc<Cell<i64>>,
    told: Rc<Cell<i64>>,
}

/// Starts a session that increments its two counters together and moves money, and notes what it has seen.
fn work(deployment: &Deployment, items: TableRef<Items>, session: u64, witness: &Witness, seed: u64) {
    let witness = witness.clone();
    let worker = (session % 4) as usize;
    deployment.spawn_session(worker, async move |client| {
        let mut random = Random::new(seed).part(session as usize);
        for _ in 0..12 {
            let Keys { counters: [one, other], seen, note } = keys(session);
            let (from, to) = (ACCOUNTS[random.below(6) as usize], ACCOUNTS[random.below(6) as usize]);
            let kind = random.below(4);
            let home = [one, other, note][random.below(3) as usize];
            if kind == 3 {
                let ran = client
                    .run(&items.at(&home), async move |tx| {
                        let value = tx.get(items, seen).await?.map_or(0, |row| row.value);
                        Err::<(), _>(Abort::explained(AbortReason::User, value.to_string()))
                    })
                    .await;
                let failure = ran.err().filter(|abort| abort.reason() == AbortReason::User);
                let failure = failure.filter(|_| stopped().is_none());
                let told = failure.and_then(|abort| abort.detail().parse().ok()).unwrap_or(0);
                witness.told.set(witness.told.get().max(told));
                continue;
            }
            if kind == 0 {
                // Its fate does not matter, but what it has written must not be ahead of what it has read.
                let _ = client
                    .run(&items.at(&home), async move |tx| {
                        let value = tx.get(items, seen).await?.map_or(0, |row| row.value);
                        tx.update(items, note, move |row| row.value = row.value.max(value)).await.map(drop)
                    })
                    .await;
                continue;
            }
            witness.begun.set(witness.begun.get() + 1);
            let ran = client
                .run(&items.at(&home), async move |tx| {
                    if kind == 1 {
                        tx.update(items, from, |row| row.value -= 5).await?;
                        tx.update(items, to, |row| row.value += 5).await?;
                    }
                    tx.update(items, one, |row| row.value += 1).await?;
                    tx.update(items, other, |row| row.value += 1).await.map(drop)
                })
                .await;
            // An instance that has stopped tells nobody anything.
            if ran.is_ok() && stopped().is_none() {
                witness.acknowledged.set(witness.acknowledged.get() + 1);
            }
        }
    });
}

/// A deployment with directories, whose rows are there.
fn filled(seed: u64) -> (Deployment, TableRef<Items>) {
    let mut deployment = Deployment::durable(two_tables(), &WORKERS, seed).expect("the model takes it");
    let items = deployment.table::<Items>().unwrap();
    let filled = deployment.submit(&items.at(&0), async move |tx| {
        for key in 0..100 {
            tx.insert(items, key, item(0)).await?;
        }
        Ok(())
    });
    assert!(deployment.run(STEPS_MAX));
    filled.take().unwrap().unwrap();
    (deployment, items)
}

/// Starts all sessions once more.
fn work_all(deployment: &Deployment, items: TableRef<Items>, witnesses: &[Witness], seed: u64) {
    for (session, witness) in (0..SESSIONS).zip(witnesses) {
        work(deployment, items, session, witness, seed);
    }
}

/// Has sessions work while instances crash, come back, lose links and make checkpoints.
fn crashes(seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let (mut deployment, items) = filled(seed);
    let witnesses = [(); SESSIONS as usize].map(|()| Witness::default());
    for round in 0..4 {
        work_all(&deployment, items, &witnesses, seed ^ round << 32);
        deployment.run_for(random.below(4_000));
        if random.below(3) == 0 {
            let instance = InstanceId(random.below(3) as u16);
            deployment.checkpoint(instance).map_err(|failure| format!("a checkpoint failed: {failure}"))?;
        }
        let (one, other) = (random.below(3) as u16, random.below(3) as u16);
        if random.below(4) == 0 && one != other {
            match random.below(3) {
                2 => deployment.lose_links(InstanceId(one), InstanceId(other)),
                number => deployment.lose_link(InstanceId(one), InstanceId(other), number as usize),
            }
            deployment.run_for(random.below(2_000));
            deployment.link_again(InstanceId(one), InstanceId(other));
        } else {
            let mut gone = vec![InstanceId(one)];
            if one != other && random.below(3) == 0 {
                gone.push(InstanceId(other));
            }
            for instance in &gone {
                let power = (random.below(2) == 0).then(|| random.below(1 << 40));
                deployment.crash(*instance, power);
                deployment.run_for(random.below(1_500));
            }
            for instance in &gone {
                deployment
                    .start(*instance)
                    .map_err(|error| format!("{instance} did not come back: {error}"))?;
                if random.below(2) == 0 {
                    deployment.run_for(random.below(1_500));
                }
            }
        }
    }
    settled(&mut deployment)?;
    judge(&mut deployment, items, &witnesses)
}

/// Has sessions work over links that lose, double and reorder messages, and are made anew when they have ended.
fn disturbed(seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let (mut deployment, items) = filled(seed);
    let witnesses = [(); SESSIONS as usize].map(|()| Witness::default());
    let pairs = [(0, 1), (0, 2), (1, 2)].map(|(one, other)| (InstanceId(one), InstanceId(other)));
    deployment.disturb(50);
    for round in 0..3 {
        work_all(&deployment, items, &witnesses, seed ^ round << 32);
        for _ in 0..4 {
            deployment.run_for(random.below(3_000));
            let (one, other) = pairs[random.below(3) as usize];
            deployment.link_again(one, other);
        }
    }
    deployment.disturb(0);
    deployment.run_for(3_000);
    pairs.into_iter().for_each(|(one, other)| deployment.link_again(one, other));
    settled(&mut deployment)?;
    judge(&mut deployment, items, &witnesses)
}

/// The crashes of an instance at one step in a run.
const CRASHES_AT_STEP: u64 = 4;

/// Has sessions work while the instance that gets to a step of two-phase commit crashes there and comes back; sometimes another one
/// crashes with it.
fn crashes_at(step: CommitStep, cuts_power: bool, seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let (mut deployment, items) = filled(seed);
    let witnesses = [(); SESSIONS as usize].map(|()| Witness::default());
    for round in 0..CRASHES_AT_STEP {
        let nth = 1 + random.below(4) as u32;
        // Some steps are rare in this work.
        let stopped = (0..20).find_map(|again| {
            work_all(&deployment, items, &witnesses, seed ^ (round << 8 | again) << 32);
            deployment.run_to(step, nth, 30_000)
        });
        let stopped = stopped.ok_or_else(|| format!("{step:?} was not reached in round {round}"))?;
        let mut gone = vec![stopped];
        gone.extend((0..3).map(InstanceId).find(|other| *other != stopped && random.below(6) == 0));
        for instance in &gone {
            deployment.crash(*instance, cuts_power.then(|| random.below(1 << 40)));
        }
        deployment.run_for(random.below(3_000));
        for instance in gone {
            deployment.start(instance).map_err(|error| format!("{instance} did not come back: {error}"))?;
            deployment.run_for(random.below(1_500));
        }
    }
    settled(&mut deployment)?;
    judge(&mut deployment, items, &witnesses)
}

/// Runs until everything is at rest, and nothing is in doubt, unacknowledged or locked.
fn settled(deployment: &mut Deployment) -> Result<(), String> {
    for _ in 0..20 {
        if !deployment.run(STEPS) {
            return Err("it does not come to rest".to_owned());
        }
        if deployment.unresolved() == Unresolved::default() && deployment.locks() == (0, 0) {
            return deployment.check_trees();
        }
        deployment.run_for(2_000);
    }
    Err(format!("{:?} remain, and locks {:?}", deployment.unresolved(), deployment.locks()))
}

fn judge(deployment: &mut Deployment, items: TableRef<Items>, witnesses: &[Witness]) -> Result<(), String> {
    let read = deployment.submit(&items.at(&0), async move |tx| {
        let mut values = Vec::new();
        for key in 0..100 {
            values.push(tx.get(items, key).await?.expect("no row is deleted").value);
        }
        Ok(values)
    });
    assert!(deployment.run(STEPS_MAX));
    let values = read.take().unwrap().unwrap();
    let value = |key: u64| values[key as usize];
    for (session, witness) in (0..SESSIONS).zip(witnesses) {
        let Keys { counters: [one, other], seen, note } = keys(session);
        let (acknowledged, begun) = (witness.acknowledged.get(), witness.begun.get());
        if value(one) != value(other) {
            return Err(format!("session {session} is half committed: {} and {}", value(one), value(other)));
        }
        if !(acknowledged..=begun).contains(&value(one)) {
            return Err(format!(
                "session {session} has {} transactions, of {acknowledged} acknowledged and {begun} begun",
                value(one)
            ));
        }
        for (told, how) in [(value(note), "noted"), (witness.told.get(), "been told")] {
            if told > value(seen) {
                return Err(format!("session {session} has {how} {told}, and {} is there", value(seen)));
            }
        }
    }
    let sum: i64 = ACCOUNTS.iter().map(|key| value(*key)).sum();
    if sum == 0 { Ok(()) } else { Err(format!("{sum} was made or lost")) }
}

#[test]
fn no_crash_leaves_a_transaction_half_committed_or_loses_one() {
    for_seeds_in_parallel(60, |seed| {
        if let Err(wrong) = crashes(seed) {
            panic!("with seed {seed}: {wrong}");
        }
    });
}

#[test]
fn a_crash_at_any_step_leaves_no_transaction_half_committed_and_loses_none() {
    for_seeds_in_parallel(4, |seed| {
        for (step, name) in CommitStep::ALL {
            for cuts_power in [false, true] {
                if let Err(wrong) = crashes_at(step, cuts_power, seed) {
                    panic!("with seed {seed}, {name}, power cut {cuts_power}: {wrong}");
                }
            }
        }
    });
}

#[test]
fn links_that_lose_double_or_reorder_messages_harm_no_transaction() {
    for_seeds_in_parallel(40, |seed| {
        if let Err(wrong) = disturbed(seed) {
            panic!("with seed {seed}: {wrong}");
        }
    });
}

#[test]
fn links_that_are_trusted_are_noticed() {
    is_caught(Bug::WireTrusted, disturbed);
}

#[test]
fn planted_bugs_are_caught_at_their_steps() {
    is_caught(Bug::VoteBeforeSync, |seed| crashes_at(CommitStep::Voted, false, seed));
    is_caught(Bug::DecisionToldEarly, |seed| crashes_at(CommitStep::Told, false, seed));
    is_caught(Bug::InDoubtForgotten, |seed| crashes_at(CommitStep::Voted, false, seed));
}

#[test]
fn planted_bugs_of_durable_two_phase_commit_are_caught() {
    let bugs = [
        Bug::VoteBeforeSync,
        Bug::DecisionToldEarly,
        Bug::PreparedNotLocked,
        Bug::InDoubtForgotten,
        Bug::InDoubtNotLoggedAgain,
        Bug::RemoteReaderToldEarly,
        Bug::RemoteFailureToldEarly,
        Bug::AnyLinkIsOwn,
        Bug::VotesNotAwaited,
    ];
    bugs.into_iter().for_each(|bug| is_caught(bug, crashes));
}

/// Asserts that a run notices a bug with some seed, and nothing without it.
fn is_caught(bug: Bug, run: impl Fn(u64) -> Result<(), String>) {
    let caught = (0..2_000).find_map(|seed| {
        let run = std::panic::AssertUnwindSafe(|| run(seed));
        let noticed = match with(bug, || std::panic::catch_unwind(run)) {
            Ok(Ok(())) => return None,
            Ok(Err(wrong)) => wrong,
            Err(_) => "it panicked (see above)".to_owned(),
        };
        Some((seed, noticed))
    });
    let (seed, noticed): (u64, String) =
        caught.unwrap_or_else(|| panic!("{bug:?} was not noticed with any seed"));
    show(&format!("{bug:?} is noticed with seed {seed}: {noticed}"));
    assert_eq!(run(seed), Ok(()), "without the bug nothing is wrong");
}

/// Has a transaction wait for a row of one that is in doubt, whose number is its own: numbers begin anew when an instance is opened
/// again. The question for the outcome is late, since the messages of its link are held up. Returns an error if anybody was taken for
/// the victim of a deadlock, which there is none of.
fn a_number_again(seed: u64) -> Result<(), String> {
    let [home, other] = [InstanceId(0), InstanceId(1)];
    let mut deployment = Deployment::durable(two_tables(), &[2, 1], seed).expect("the model takes it");
    let items = deployment.table::<Items>().unwrap();
    // The first key is of the second worker of the first instance, the second one of the other instance.
    let (own, remote) = (40, 80);
    let filled = deployment.submit(&items.at(&0), async move |tx| {
        tx.insert(items, own, item(0)).await?;
        tx.insert(items, remote, item(0)).await
    });
    assert!(deployment.run(STEPS_MAX));
    filled.take().unwrap().unwrap();
    let add = |deployment: &Deployment| {
        deployment.submit(&items.at(&own), async move |tx| {
            tx.update(items, remote, |row| row.value += 1).await?;
            tx.update(items, own, |row| row.value += 1).await.map(drop)
        })
    };
    add(&deployment);
    assert_eq!(deployment.run_to(CommitStep::VotesIn, 1, STEPS), Some(home));
    deployment.crash(home, None);
    deployment.run_for(1_000);
    assert_eq!(deployment.unresolved().in_doubt, 1);
    deployment.start(home).expect("it comes back");
    deployment.hold(other, home, 1, true);
    // The links are made.
    deployment.run_for(1_000);
    let again = add(&deployment);
    deployment.run_for(20_000);
    let (in_doubt, waiting) = (deployment.unresolved().in_doubt, deployment.locks().1);
    deployment.hold(other, home, 1, false);
    settled(&mut deployment)?;
    let victims = deployment.statistics().aborted_for(AbortReason::Deadlock);
    if victims > 0 {
        return Err(format!("{victims} gave way in a deadlock that there was not"));
    }
    if (in_doubt, waiting) != (1, 1) {
        return Err(format!("{waiting} wait for {in_doubt} in doubt"));
    }
    again.take().expect("all is done").map_err(|abort| abort.to_string())
}

#[test]
fn a_transaction_is_not_taken_for_the_one_in_doubt_that_had_its_number() {
    for_seeds_in_parallel(20, |seed| {
        if let Err(wrong) = a_number_again(seed) {
            panic!("with seed {seed}: {wrong}");
        }
    });
    is_caught(Bug::IncarnationIgnored, a_number_again);
}
