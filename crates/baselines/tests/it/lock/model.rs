//! Random schedules of several agents on one thread, against a model that is a literal reading of the rules: who is granted
//! what when, who waits, and who becomes the victim of which cycle.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;

use atrapos_baselines::lock::{Agent, KeyMode, KeyOrEnd, Lockable, TableMode};
use atrapos_partition::abort::AbortReason;
use atrapos_partition::schema::TableId;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::crowded;

const AGENTS: usize = 5;
/// What is locked: the database, two tables, and three keys.
const LOCKABLES: usize = 6;
const TABLE_MODES: [TableMode; 5] =
    [TableMode::IS, TableMode::IX, TableMode::S, TableMode::SIX, TableMode::X];
const KEY_MODES: [KeyMode; 4] = [KeyMode::READ, KeyMode::WRITE, KeyMode::PROTECT, KeyMode::INSERT];

/// The modes of the model: a set of parts, of tables by their letters and of keys by their names.
type Parts = std::collections::BTreeSet<&'static str>;

fn table_parts(mode: usize) -> Parts {
    let parts: &[&str] = match mode {
        0 => &["is"],
        1 => &["is", "ix"],
        2 => &["is", "s"],
        3 => &["is", "ix", "s"],
        _ => &["is", "ix", "s", "x"],
    };
    parts.iter().copied().collect()
}

fn key_parts(bits: usize) -> Parts {
    let names = ["read", "write", "protect", "insert"];
    let mut parts: Parts = (0..4).filter(|bit| bits >> bit & 1 == 1).map(|bit| names[bit]).collect();
    if parts.contains("write") {
        parts.insert("read");
    }
    parts
}

fn conflict(a: &Parts, b: &Parts) -> bool {
    const EXCLUDE: [(&str, &str); 4] = [("is", "x"), ("ix", "s"), ("read", "write"), ("protect", "insert")];
    EXCLUDE
        .iter()
        .any(|(one, other)| (a.contains(one) && b.contains(other)) || (a.contains(other) && b.contains(one)))
}

#[derive(Clone, Debug)]
enum Step {
    Request { agent: usize, lockable: usize, mode: usize },
    End { agent: usize },
}

#[derive(Clone, Default)]
struct Lock {
    granted: BTreeMap<usize, Parts>,
    upgrades: BTreeMap<usize, Parts>,
    waiting: Vec<(usize, Parts)>,
}

impl Lock {
    fn held_against(&self, agent: usize, parts: &Parts) -> bool {
        self.granted.iter().any(|(holder, held)| *holder != agent && conflict(held, parts))
    }

    /// Those for whom the agent waits.
    fn waits_for(&self, agent: usize) -> Vec<usize> {
        let holders = |parts: &Parts| -> Vec<usize> {
            let held =
                self.granted.iter().filter(|(holder, held)| **holder != agent && conflict(held, parts));
            held.map(|(holder, _)| *holder).collect()
        };
        if let Some(parts) = self.upgrades.get(&agent) {
            return holders(parts);
        }
        let Some(at) = self.waiting.iter().position(|(waiting, _)| *waiting == agent) else {
            return Vec::new();
        };
        let parts = &self.waiting[at].1;
        let mut all = holders(parts);
        let ahead =
            self.upgrades.iter().chain(self.waiting[..at].iter().map(|(agent, parts)| (agent, parts)));
        all.extend(ahead.filter(|(_, ahead)| conflict(ahead, parts)).map(|(agent, _)| *agent));
        all
    }

    /// Grants what can be granted, again and again until nothing changes.
    fn settle(&mut self) {
        loop {
            let upgrade = self.upgrades.iter().find(|(agent, parts)| !self.held_against(**agent, parts));
            if let Some((agent, parts)) = upgrade.map(|(agent, parts)| (*agent, parts.clone())) {
                self.upgrades.remove(&agent);
                self.granted.insert(agent, parts);
                continue;
            }
            let first = self.waiting.iter().position(|(agent, _)| self.waits_for(*agent).is_empty());
            let Some(at) = first else { return };
            let (agent, parts) = self.waiting.remove(at);
            self.granted.insert(agent, parts);
        }
    }

    fn forget(&mut self, agent: usize, granted_too: bool) {
        self.upgrades.remove(&agent);
        self.waiting.retain(|(waiting, _)| *waiting != agent);
        if granted_too {
            self.granted.remove(&agent);
        }
        self.settle();
    }
}

#[derive(Clone)]
struct Model {
    locks: [Lock; LOCKABLES],
    /// The lock for which each agent waits.
    waits: [Option<usize>; AGENTS],
    doomed: [bool; AGENTS],
}

impl Model {
    fn request(&mut self, agent: usize, lockable: usize, parts: &Parts) {
        let lock = &mut self.locks[lockable];
        if let Some(held) = lock.granted.get(&agent) {
            let joined: Parts = held.union(parts).copied().collect();
            lock.upgrades.insert(agent, joined);
        } else {
            lock.waiting.push((agent, parts.clone()));
        }
        self.waits[agent] = Some(lockable);
        self.locks[lockable].settle();
        self.note_granted();
    }

    fn note_granted(&mut self) {
        for agent in 0..AGENTS {
            if let Some(lockable) = self.waits[agent] {
                let lock = &self.locks[lockable];
                let waits = lock.upgrades.contains_key(&agent)
                    || lock.waiting.iter().any(|(waiting, _)| *waiting == agent);
                if !waits {
                    self.waits[agent] = None;
                }
            }
        }
    }

    fn withdraw(&mut self, agent: usize) {
        if let Some(lockable) = self.waits[agent].take() {
            self.locks[lockable].forget(agent, false);
        }
        self.doomed[agent] = true;
        self.note_granted();
    }

    fn end(&mut self, agent: usize) {
        self.waits[agent] = None;
        self.doomed[agent] = false;
        for lock in &mut self.locks {
            lock.forget(agent, true);
        }
        self.note_granted();
    }

    /// The youngest agent of each cycle through the agent. Agents with greater numbers are younger.
    fn youngest_of_cycles(&self, start: usize) -> Vec<usize> {
        fn follow(model: &Model, path: &mut Vec<usize>, found: &mut Vec<usize>) {
            let last = path[path.len() - 1];
            let Some(lockable) = model.waits[last] else { return };
            for next in model.locks[lockable].waits_for(last) {
                if next == path[0] {
                    found.extend(path.iter().max());
                } else if !path.contains(&next) {
                    path.push(next);
                    follow(model, path, found);
                    path.pop();
                }
            }
        }
        let mut found = Vec::new();
        follow(self, &mut vec![start], &mut found);
        found
    }

    /// Returns the state after the victims have been withdrawn, if they are ones that the search may have chosen in some
    /// order, and no cycle is left.
    fn without_victims(self, start: usize, victims: &[usize]) -> Option<Model> {
        let youngest = self.youngest_of_cycles(start);
        if youngest.is_empty() {
            return victims.is_empty().then_some(self);
        }
        victims.iter().enumerate().filter(|(_, victim)| youngest.contains(victim)).find_map(|(at, victim)| {
            let mut next = self.clone();
            next.withdraw(*victim);
            let mut rest = victims.to_vec();
            rest.remove(at);
            next.without_victims(start, &rest)
        })
    }
}

/// The lock manager under test, and the model.
struct Pair {
    agents: Vec<Agent>,
    waits: [bool; AGENTS],
    /// What each agent has had of the tables at the end of a transaction.
    ended_with: [[std::collections::BTreeSet<Parts>; 3]; AGENTS],
    model: Model,
}

impl Pair {
    fn request(&mut self, agent: usize, lockable: usize, mode: usize) -> Result<(), String> {
        if self.waits[agent] || self.model.doomed[agent] {
            return Ok(());
        }
        let bits = mode % 15 + 1;
        let parts = if lockable < 3 { table_parts(mode % 5) } else { key_parts(bits) };
        let key_mode = (0..4).filter(|bit| bits >> bit & 1 == 1).map(|bit| KEY_MODES[bit]);
        let key_mode = key_mode.fold(KeyMode::NONE, |joined, mode| joined | mode);
        let table_mode = TABLE_MODES[mode % 5];
        let requested = match lockable {
            0 => Lockable::Database(table_mode),
            1 | 2 => Lockable::Table(TableId(lockable as u16), table_mode),
            3 => Lockable::Key(TableId(1), KeyOrEnd::Key(b"a"), key_mode),
            4 => Lockable::Key(TableId(1), KeyOrEnd::Key(b"b"), key_mode),
            _ => Lockable::Key(TableId(1), KeyOrEnd::End, key_mode),
        };
        self.waits[agent] = !self.agents[agent].start(requested);
        let parts = if self.waits[agent] { parts } else { self.inherited(agent, lockable, parts)? };
        self.model.request(agent, lockable, &parts);
        self.compare(Some(agent))
    }

    /// The parts that a granted request has got: more than it has asked for, if an earlier transaction had them.
    fn inherited(&self, agent: usize, lockable: usize, parts: Parts) -> Result<Parts, String> {
        if lockable >= 3 || self.model.locks[lockable].granted.contains_key(&agent) {
            return Ok(parts);
        }
        let held = self.held_table(agent, lockable).ok_or("a granted lock is not held")?;
        if held == parts || (held.is_superset(&parts) && self.ended_with[agent][lockable].contains(&held)) {
            return Ok(held);
        }
        Err(format!("agent {agent} has {held:?} of {lockable}"))
    }

    fn held_table(&self, agent: usize, lockable: usize) -> Option<Parts> {
        let table = (lockable > 0).then_some(TableId(lockable as u16));
        let mode = self.agents[agent].held_table(table)?;
        TABLE_MODES.iter().position(|held| *held == mode).map(table_parts)
    }

    fn end(&mut self, agent: usize) -> Result<(), String> {
        for lockable in 0..3 {
            let held = self.held_table(agent, lockable);
            self.ended_with[agent][lockable].extend(held);
        }
        self.agents[agent].release_all();
        self.agents[agent].begin(agent as u64);
        self.waits[agent] = false;
        self.model.end(agent);
        self.compare(None)
    }

    fn compare(&mut self, blocked: Option<usize>) -> Result<(), String> {
        let mut victims = Vec::new();
        for agent in 0..AGENTS {
            if !self.waits[agent] {
                continue;
            }
            match self.agents[agent].poll() {
                Some(Ok(())) => self.waits[agent] = false,
                Some(Err(abort)) if abort.reason() == AbortReason::Deadlock => {
                    self.waits[agent] = false;
                    victims.push(agent);
                }
                Some(Err(abort)) => return Err(format!("agent {agent}: {abort}")),
                None => {}
            }
        }
        let start = blocked.unwrap_or(0);
        self.model = (self.model.clone().without_victims(start, &victims))
            .ok_or_else(|| format!("the victims {victims:?} do not fit the cycles of agent {start}"))?;
        for agent in 0..AGENTS {
            if self.waits[agent] != self.model.waits[agent].is_some() {
                return Err(format!("agent {agent}: waits: {}, which is wrong", self.waits[agent]));
            }
        }
        Ok(())
    }
}

fn run(steps: &[Step], inherit: bool, planted: bool) -> Result<(), String> {
    let manager = crowded(inherit);
    let agents = (0..AGENTS).map(|stamp| {
        let mut agent = manager.agent();
        agent.begin(stamp as u64);
        agent
    });
    let model = Model { locks: Default::default(), waits: [None; AGENTS], doomed: [false; AGENTS] };
    // What a wrong lock manager does when it is dismantled is of no interest.
    let mut pair = ManuallyDrop::new(Pair {
        agents: agents.collect(),
        waits: [false; AGENTS],
        ended_with: Default::default(),
        model,
    });
    let last = (0..AGENTS).map(|agent| Step::End { agent });
    for step in steps.iter().cloned().chain(last) {
        match step {
            Step::Request { agent, lockable, mode } => pair.request(agent, lockable, mode)?,
            Step::End { agent } => pair.end(agent)?,
        }
    }
    // Nothing is left: the database can be locked at once, whatever has been inherited.
    let mut last = ManuallyDrop::new(manager.agent());
    last.begin(0);
    if !last.start(Lockable::Database(TableMode::X)) {
        return Err("a lock is left".to_owned());
    }
    if !planted {
        drop((ManuallyDrop::into_inner(pair), ManuallyDrop::into_inner(last)));
    }
    Ok(())
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let request = (0..AGENTS, 0..LOCKABLES, 0usize..60).prop_map(|(agent, lockable, mode)| Step::Request {
        agent,
        lockable,
        mode,
    });
    let end = (0..AGENTS).prop_map(|agent| Step::End { agent });
    prop::collection::vec(prop_oneof![5 => request, 1 => end], 1..80)
}

fn check(inherit: bool, cases: u32, planted: bool) -> Result<(), String> {
    let max_shrink_iters = if planted { 0 } else { 4096 };
    let config = Config { cases, max_shrink_iters, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    runner
        .run(&steps(), |steps| run(&steps, inherit, planted).map_err(TestCaseError::fail))
        .map_err(|error| error.to_string())
}

#[test]
fn schedules_follow_the_rules_with_inheritance() {
    check(true, 3000, false).expect("the lock manager does what the model does");
}

#[test]
fn schedules_follow_the_rules_without_inheritance() {
    check(false, 1000, false).expect("the lock manager does what the model does");
}

#[cfg(debug_assertions)]
#[test]
fn planted_bugs_are_caught() {
    use atrapos_baselines::planted::{Bug, with};
    for bug in [
        Bug::InheritedKept,
        Bug::HoldersNotMarked,
        Bug::InsertIntoProtected,
        Bug::WaiterOvertaken,
        Bug::UpgradeQueuesLast,
        Bug::UpgradeNotSearched,
        Bug::QueueNotSearched,
        Bug::OldestIsVictim,
        Bug::VictimHoldsUpQueue,
        Bug::ReleaseForgetsWaiters,
    ] {
        assert!(with(bug, || check(true, 3000, true)).is_err(), "{bug:?} is not noticed");
    }
}
