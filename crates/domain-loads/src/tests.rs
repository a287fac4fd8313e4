//! Loads of a few records: every structure by every design, and structures that are wrong.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use atrapos_structures::{Kind, Owned, Refused, Shared, Visit};
use atrapos_topology::{LiveOptions, Machine};

use atrapos_composition::{CalibrationSettings, ControllerSettings, Settings, Structures, compose, map_onto};
use atrapos_domains::{
    Client, Configuration, DomainConfiguration, Domains, Pending, Placement, StructureLoad, Why,
};

use crate::adapt::{Adapter, Known};
use crate::configured::run_with;
use crate::prepared::Prepared;
use crate::{
    Access, AdaptationSettings, Arrangement, ConfiguredRun, ConfiguredSettings, Design, Length, Load,
    LoadError, Measurement, Mix, Run, Step, Threads, Wrong, choose, clients_beside, default_sizes,
    is_oversubscribed, judge_designs, measure_curve, run, run_alternating, run_configuration, run_directly,
};

fn machine() -> Machine {
    Machine::live(&LiveOptions::new(None))
}

fn load(kind: Kind, mix: Mix) -> Load {
    Load { records: 500, length: Length::Operations(400), burst: 5, ..Load::new(kind, mix) }
}

/// Two clients and two workers, wherever the system runs them.
const THREADS: Threads = Threads { clients: Some(2), workers: Some(2), domain_size: None, pin: false };

fn arrangement(design: Design) -> Arrangement {
    let domain_size = (design == Design::Configured).then_some(1);
    Arrangement::new(&machine(), design, &Threads { domain_size, ..THREADS }).expect("an arrangement")
}

fn measured(load: &Load, arrangement: &Arrangement, rounds: usize) -> Result<Run, LoadError> {
    let interrupt = AtomicBool::new(false);
    run(&machine(), load, arrangement, &mut Measurement { rounds, interrupt: &interrupt, watch: &mut |_| () })
}

#[test]
fn every_structure_does_every_mix_by_every_design_that_has_it() {
    for (number, kind) in Kind::ALL.into_iter().enumerate() {
        for (at, design) in Design::ALL.into_iter().enumerate() {
            let arrangement = arrangement(design);
            if arrangement.check(kind).is_err() {
                continue;
            }
            // Over all structures each design meets each mix.
            let mix = Mix::ALL[(number + at) % Mix::ALL.len()];
            let run = measured(&load(kind, mix), &arrangement, 2).expect("it runs");
            let audit = run.audit.as_ref().unwrap_or_else(|wrong| panic!("{kind} {mix} {design}: {wrong}"));
            let operations = 400 * arrangement.drivers() as u64;
            assert!(run.rounds.iter().all(|round| round.operations() == operations), "{kind} {mix} {design}");
            let inserted = run.rounds[1].classes[2];
            assert_eq!(audit.records, 500 + inserted, "{kind} {mix} {design}");
            assert_eq!(inserted > 0, mix.inserts());
            assert_eq!(audit.scanned.is_some(), kind.support().ordered);
            let tasks = match arrangement.access() {
                Access::Direct => arrangement.drivers() as u64,
                Access::Delegated => operations,
            };
            assert!(run.rounds.iter().all(|round| round.tasks >= tasks), "{kind} {mix} {design}: {run:?}");
            assert_eq!(run.rounds[0].contention.is_some(), kind.support().contention);
        }
    }
}

#[test]
fn one_task_at_a_time_and_many_are_the_same_load() {
    for (burst, grouped) in [(1, true), (2, false), (64, false), (64, true)] {
        for kind in [Kind::OwnedTree, Kind::BTree] {
            for mix in [Mix::YcsbA, Mix::YcsbC, Mix::YcsbD] {
                let load = Load { burst, grouped, ..load(kind, mix) };
                let run = measured(&load, &arrangement(Design::SnThread), 1).expect("it runs");
                assert_eq!((run.audit.is_ok(), run.rounds[0].operations()), (true, 800), "{load:?}");
            }
        }
    }
    let refused =
        measured(&Load { burst: 65, ..load(Kind::BTree, Mix::YcsbC) }, &arrangement(Design::SnNuma), 1);
    assert!(refused.is_err_and(|error| error.is_bad_input() && error.to_string().contains("1 to 64")));
}

#[test]
fn many_clients_delegate_to_one_worker() {
    for (clients, burst) in [(20, 14), (40, 64)] {
        let threads = Threads { clients: Some(clients), workers: Some(1), ..THREADS };
        let arrangement = Arrangement::new(&machine(), Design::SnThread, &threads).expect("an arrangement");
        let load = Load { burst, length: Length::Operations(80), ..load(Kind::OwnedHashMap, Mix::YcsbA) };
        let run = measured(&load, &arrangement, 2).expect("it runs");
        assert_eq!((run.audit.is_ok(), run.rounds[1].operations()), (true, 80 * clients as u64));
    }
}

#[test]
fn a_round_ends_when_its_time_is_over() {
    let time = Length::Time(Duration::from_millis(2));
    for design in [Design::Se, Design::SnThread] {
        let load = Load { length: time, ..load(Kind::HashMap, Mix::YcsbD) };
        let run = measured(&load, &arrangement(design), 3).expect("it runs");
        assert!(run.audit.is_ok() && run.throughput_per_second() > 0.0 && run.variation().is_some());
    }
}

#[test]
fn runs_alternate_and_an_interrupt_ends_them() {
    let (machine, interrupt) = (machine(), AtomicBool::new(false));
    let side = |design| (load(Kind::DashMap, Mix::YcsbA), arrangement(design));
    let sides = [side(Design::Se), side(Design::SnThread)];
    let mut steps = Vec::new();
    let mut watch = |step| {
        steps.push(match step {
            Step::Loading { run } => (run, None),
            Step::Round { run, round, .. } => (run, Some(round)),
        });
    };
    let measurement = &mut Measurement { rounds: 2, interrupt: &interrupt, watch: &mut watch };
    let runs = run_alternating(&machine, &sides, measurement).expect("they run");
    assert!(runs.iter().all(|run| run.audit.is_ok() && !run.interrupted && run.rounds.len() == 2));
    assert_eq!(steps, [(0, None), (1, None), (0, Some(0)), (1, Some(0)), (1, Some(1)), (0, Some(1))]);

    let mut watch = |step| {
        if matches!(step, Step::Round { run: 1, round: 0, .. }) {
            interrupt.store(true, Ordering::Relaxed);
        }
    };
    let measurement = &mut Measurement { rounds: 9, interrupt: &interrupt, watch: &mut watch };
    let runs = run_alternating(&machine, &sides, measurement).expect("each has a round");
    assert!(runs.iter().all(|run| run.interrupted && run.rounds.len() == 1 && run.audit.is_ok()));
    let measurement = &mut Measurement { rounds: 9, interrupt: &interrupt, watch: &mut |_| () };
    assert!(matches!(run_alternating(&machine, &sides, measurement), Err(LoadError::Interrupted)));
}

#[test]
fn the_best_of_all_candidates_is_chosen() {
    let interrupt = AtomicBool::new(false);
    let measurement = &mut Measurement { rounds: 1, interrupt: &interrupt, watch: &mut |_| () };
    let choice = choose(&machine(), &load(Kind::BTree, Mix::YcsbC), &THREADS, measurement).expect("a choice");
    assert_eq!(choice.tried.len(), 4, "directly twice, domains of 1 and of 2");
    let best = choice.tried.iter().map(|(_, throughput)| *throughput).fold(0.0, f64::max);
    assert!(choice.tried.contains(&(choice.arrangement.clone(), best)));
    assert_eq!(choice.arrangement.design(), Design::Configured);
}

#[test]
fn curves_have_a_point_for_each_size() {
    let (machine, interrupt) = (machine(), AtomicBool::new(false));
    let mut measurement = Measurement { rounds: 2, interrupt: &interrupt, watch: &mut |_| () };
    let mut curve = |kind, sizes: &[usize]| {
        measure_curve(&machine, &load(kind, Mix::InsertOnly), sizes, false, &mut measurement)
    };
    let measured = curve(Kind::FpTree, &[1, 3]).expect("a curve");
    assert_eq!((measured.kind.as_str(), measured.mix.as_str()), ("fp-tree", "insert-only"));
    assert_eq!(measured.points.iter().map(|point| point.workers).collect::<Vec<_>>(), [1, 3]);
    assert!(measured.points.iter().all(|point| point.throughputs_per_second.len() == 2));
    assert!(atrapos_composition::calibrate(&measured, &Default::default()).is_ok());
    for (kind, sizes) in [(Kind::FpTree, &[][..]), (Kind::FpTree, &[2, 1]), (Kind::OwnedTree, &[1, 2])] {
        assert!(curve(kind, sizes).is_err_and(|error| error.is_bad_input()), "{kind} {sizes:?}");
    }
    let synthetic = Machine::synthetic("pack:2 core:6 pu:1").expect("a machine");
    assert_eq!(default_sizes(&synthetic, Kind::BTree), [1, 2, 3, 4, 5, 6, 7, 8, 10, 12]);
    assert_eq!(default_sizes(&synthetic, Kind::OwnedHashMap), [1]);
    assert!(is_oversubscribed(&synthetic, 13) && !is_oversubscribed(&synthetic, 12));
}

/// A map with one mistake.
struct WrongMap<const MISTAKE: u8>(Mutex<HashMap<u64, u64>>);

/// An insertion in so many is said to be made, and is not.
const LOSES: u8 = 0;
/// Updates write the value to all keys.
const MISPLACES: u8 = 1;
/// Every insertion is made twice, under another key besides.
const INVENTS: u8 = 2;

impl<const MISTAKE: u8> WrongMap<MISTAKE> {
    fn new() -> Self {
        Self(Mutex::default())
    }

    fn with<R>(&self, act: impl FnOnce(&mut HashMap<u64, u64>) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<const MISTAKE: u8> Shared<u64> for WrongMap<MISTAKE> {
    type Session = ();

    const ORDERED: bool = false;

    fn session(&self) {}

    fn read(&self, (): &mut (), key: &u64) -> Option<u64> {
        self.with(|map| map.get(key).copied())
    }

    fn update(&self, (): &mut (), key: &u64, value: u64) -> bool {
        self.with(|map| {
            if MISTAKE == MISPLACES {
                map.values_mut().for_each(|old| *old = value);
                return true;
            }
            map.insert(*key, value).is_some()
        })
    }

    fn insert(&self, (): &mut (), key: &u64, value: u64) -> Result<bool, Refused> {
        Ok(self.with(|map| {
            if MISTAKE == LOSES && key.is_multiple_of(50) {
                return true;
            }
            if MISTAKE == INVENTS {
                let other = crate::records::key(500 + map.len() as u64);
                map.insert(other, crate::records::value(other, 0));
            }
            map.insert(*key, value).is_none()
        }))
    }

    fn remove(&self, (): &mut (), key: &u64) -> bool {
        self.with(|map| map.remove(key).is_some())
    }
}

fn audited<const MISTAKE: u8>(mix: Mix, rounds: usize) -> Wrong {
    let (load, interrupt) = (load(Kind::HashMap, mix), AtomicBool::new(false));
    let arrangement = arrangement(Design::SnThread);
    let mut prepared =
        Prepared::of_shared(&machine(), &load, &arrangement, WrongMap::<MISTAKE>::new).expect("it loads");
    for _ in 0..rounds {
        prepared.round(&interrupt).expect("it runs");
    }
    prepared.audit().expect("it is audited").expect_err("the structure is wrong")
}

#[test]
fn wrong_structures_are_found_out() {
    assert!(matches!(audited::<LOSES>(Mix::YcsbC, 0), Wrong::Missing { expected: 500, .. }));
    assert!(matches!(audited::<LOSES>(Mix::YcsbC, 1), Wrong::Replies { .. }));
    assert!(matches!(audited::<MISPLACES>(Mix::UpdateOnly, 1), Wrong::Malformed(_)));
    assert!(matches!(audited::<MISPLACES>(Mix::YcsbA, 1), Wrong::Replies { .. }));
    assert!(matches!(audited::<INVENTS>(Mix::YcsbC, 1), Wrong::Extra(_)));
}

/// A structure with an owner whose scans leave out the last entries of a page.
struct ShortScans(std::collections::BTreeMap<u64, u64>);

impl Owned<u64> for ShortScans {
    const ORDERED: bool = true;

    fn read(&mut self, key: &u64) -> Option<u64> {
        self.0.get(key).copied()
    }

    fn update(&mut self, key: &u64, value: u64) -> bool {
        self.0.insert(*key, value).is_some()
    }

    fn insert(&mut self, key: &u64, value: u64) -> Result<bool, Refused> {
        Ok(self.0.insert(*key, value).is_none())
    }

    fn remove(&mut self, key: &u64) -> bool {
        self.0.remove(key).is_some()
    }

    fn scan(
        &mut self,
        from: &u64,
        _limit: usize,
        visit: &mut dyn FnMut(&u64, u64),
    ) -> Result<usize, atrapos_structures::Unordered> {
        let found: Vec<_> = self.0.range(from..).skip(1).collect();
        found.iter().for_each(|(key, value)| visit(key, **value));
        Ok(found.len())
    }
}

#[test]
fn wrong_scans_are_found_out() {
    let load = load(Kind::OwnedTree, Mix::YcsbC);
    let make = || ShortScans(std::collections::BTreeMap::new());
    let prepared =
        Prepared::of_owned(&machine(), &load, &arrangement(Design::SnThread), make).expect("it loads");
    let wrong = prepared.audit().expect("it is audited").expect_err("two parts lack a record each");
    assert_eq!(wrong, Wrong::Scan { found: 498, expected: 500 });
}

#[test]
fn loads_that_make_no_sense_are_refused() {
    let sense = load(Kind::BTree, Mix::YcsbA);
    for senseless in [
        Load { records: 0, ..sense.clone() },
        Load { records: u64::MAX, ..sense.clone() },
        Load { theta: -1.0, ..sense.clone() },
        Load { theta: f64::NAN, ..sense.clone() },
        Load { length: Length::Operations(0), ..sense.clone() },
        Load { length: Length::Time(Duration::ZERO), ..sense.clone() },
        Load { burst: 0, ..sense.clone() },
    ] {
        let refused = measured(&senseless, &arrangement(Design::Se), 1).expect_err("refused");
        assert!(refused.is_bad_input(), "{senseless:?}: {refused}");
    }
    assert!(matches!(measured(&sense, &arrangement(Design::Se), 0), Err(LoadError::NoRounds)));
    assert!("ycsb-b".parse::<Mix>().is_err_and(|error| error.to_string().contains("ycsb-d")));
    assert!("numa".parse::<Design>().is_err_and(|error| error.to_string().contains("sn-thread")));
}

/// Two domains of one worker and one of two, with a structure of each kind: the owned ones where one worker is.
fn configuration() -> Configuration {
    let domains = [("one", 1), ("another", 1), ("two", 2)];
    let domains = domains.map(|(name, workers)| DomainConfiguration {
        placement: Placement::Anywhere,
        ..DomainConfiguration::new(name, workers)
    });
    let mut configuration =
        Configuration { oversubscribe: true, domains: domains.to_vec(), ..Configuration::default() };
    for (at, kind) in Kind::ALL.into_iter().enumerate() {
        let owned = kind.support().access == atrapos_structures::Access::Owned;
        let domain = if owned { "one" } else { ["another", "two"][at % 2] };
        let mix = Mix::ALL[at % Mix::ALL.len()].name().to_owned();
        let load = if at == 0 { 30.0 } else { 1.0 };
        let load = StructureLoad { kind: kind.name().to_owned(), mix, load };
        configuration.structures.insert(format!("a-{kind}"), domain.to_owned());
        configuration.loads.insert(format!("a-{kind}"), load);
    }
    configuration
}

fn settings() -> ConfiguredSettings {
    let length = Length::Operations(4_000);
    ConfiguredSettings { records: 300, length, burst: 5, clients: 2, pin: false, ..Default::default() }
}

fn run_configured(
    configuration: &Configuration,
    settings: &ConfiguredSettings,
) -> Result<ConfiguredRun, LoadError> {
    run_configuration(&machine(), configuration, settings, &AtomicBool::new(false), &mut |_| ())
}

#[test]
fn a_configuration_runs_with_the_shares_that_it_expects() {
    let configuration = configuration();
    let run = run_configured(&configuration, &settings()).expect("it runs");
    assert_eq!((run.operations(), run.structures.len(), run.interrupted), (8_000, 11, false));
    for structure in &run.structures {
        let audit = structure.audit.as_ref().unwrap_or_else(|wrong| panic!("{}: {wrong}", structure.name));
        assert_eq!(audit.records, 300 + structure.classes[2], "{}", structure.name);
        assert_eq!(structure.mix.name(), configuration.loads[&structure.name].mix);
        assert_eq!(structure.domain, configuration.structures[&structure.name]);
    }
    let hot = run.structures.iter().find(|structure| structure.kind == Kind::BTree).expect("it is there");
    assert!((hot.share - 0.75).abs() < 1e-12 && hot.operations() > 4_000, "{hot:?}");
    for domain in &run.domains {
        assert_eq!(domain.tasks.len(), domain.workers);
        assert!(domain.operations > 0 && domain.tasks.iter().sum::<u64>() > 0, "{domain:?}");
    }
    assert_eq!(run.domains.iter().map(|domain| domain.operations).sum::<u64>(), 8_000);
    let updates = ConfiguredSettings { mix: Some(Mix::UpdateOnly), ..settings() };
    let run = run_configured(&configuration, &updates).expect("it runs");
    assert!(run.structures.iter().all(|structure| structure.classes[1] == structure.operations()));
}

/// Changes without end: a gain is never too small, nobody has to wait, and there are no pauses.
fn restless() -> AdaptationSettings {
    let controller = ControllerSettings {
        busy_min: 0.0,
        waiting_min: 0.0,
        gain_min: -1.0,
        agreeing: 1,
        settling: 0,
        pause: 0,
        ..ControllerSettings::default()
    };
    AdaptationSettings { controller, interval: Duration::from_millis(1), ..AdaptationSettings::default() }
}

#[test]
fn structures_lose_nothing_while_a_restless_controller_changes_their_domains() {
    let mut changes = 0;
    for seed in 0..20 {
        let length = Length::Operations(20_000);
        let settings = ConfiguredSettings { adapt: Some(restless()), length, seed, ..settings() };
        let run = run_configured(&configuration(), &settings).expect("it runs");
        assert_eq!((run.operations(), run.structures.len()), (40_000, 11));
        for structure in &run.structures {
            let audit = structure.audit.as_ref();
            let audit =
                audit.unwrap_or_else(|wrong| panic!("{}: {wrong}: {:?}", structure.name, run.adaptations));
            assert_eq!(audit.records, 300 + structure.classes[2], "{}", structure.name);
            assert!(run.domains.iter().any(|domain| domain.name == structure.domain), "{structure:?}");
        }
        assert!(run.adaptations.iter().all(|one| one.refused.is_none()), "{:?}", run.adaptations);
        changes += run.adaptations.iter().filter(|one| one.decision.change.is_some()).count();
        if changes >= 20 {
            return;
        }
    }
    panic!("only {changes} changes in twenty runs");
}

type List = atrapos_domains::Owned<Vec<u64>>;

/// Appends numbers from 0 to a list; returns how many. Tasks sleep, so that the processing unit is the client's meanwhile, and requests wait
/// behind them on a machine with other work, too.
fn append(mut client: Client, list: &List, over: &AtomicBool) -> u64 {
    let (mut pushed, mut window) = (0, VecDeque::new());
    while !over.load(Ordering::Relaxed) {
        let number = pushed;
        let slow = move |list: &mut Vec<u64>| {
            std::thread::sleep(Duration::from_millis(3));
            list.push(number);
        };
        match client.try_call(list, slow) {
            Ok(pending) => {
                window.push_back(pending);
                pushed += 1;
            }
            Err(refused) => {
                assert_eq!(refused.why, Why::Full);
                let oldest: Pending<()> = window.pop_front().expect("a full window has an oldest task");
                oldest.wait().expect("it runs");
            }
        }
    }
    window.into_iter().for_each(|pending| pending.wait().expect("it runs"));
    pushed
}

/// One domain of two has both structures and more to do than it can: a structure moves, and ordered clients lose nothing.
#[test]
fn a_domain_that_is_behind_gives_a_structure_away() {
    let domain =
        |name| DomainConfiguration { placement: Placement::Anywhere, ..DomainConfiguration::new(name, 1) };
    let configuration = Configuration {
        oversubscribe: true,
        domains: vec![domain("full"), domain("empty")],
        ..Configuration::default()
    };
    let domains = Domains::start(&machine(), &configuration).expect("they start");
    let place =
        |name: &str| domains.at("full").and_then(|site| site.place_owned(name, Vec::new())).expect("placed");
    let lists: [List; 2] = [place("one"), place("other")];
    let controller = ControllerSettings { reshape: false, ..ControllerSettings::default() };
    let settings = AdaptationSettings { controller, ..AdaptationSettings::default() };
    let known =
        |name: &str| Known { name: name.to_owned(), kind: "list".to_owned(), mix: "appends".to_owned() };
    let mut adapter = Adapter::new(&settings, vec![known("one"), known("other")], Vec::new());
    let (domains, over) = (&domains, &AtomicBool::new(false));
    let has_moved = || domains.report().iter().all(|domain| domain.structures.len() == 1);
    let pushed = std::thread::scope(|scope| {
        let client = |list: &List| {
            let (list, client) = (list.clone(), domains.ordered());
            scope.spawn(move || append(client, &list, over))
        };
        let clients = lists.each_ref().map(client);
        scope.spawn(|| {
            // So many observations that something should have moved.
            (0..1_000).find(|_| {
                std::thread::sleep(Duration::from_millis(20));
                has_moved()
            });
            over.store(true, Ordering::Release);
        });
        adapter.run(domains, over);
        clients.map(|client| client.join().expect("no panic"))
    });
    let adaptations = adapter.finish();
    assert!(adaptations.iter().any(|one| one.decision.change.is_some()) && has_moved(), "{adaptations:?}");
    for (list, pushed) in lists.iter().zip(pushed) {
        let all = domains.client().call_blocking(list, |list| list.clone()).expect("it runs");
        assert_eq!(all, (0..pushed).collect::<Vec<u64>>());
    }
}

#[test]
fn a_wrong_structure_of_a_configuration_is_found_out() {
    let interrupt = AtomicBool::new(false);
    let mut configuration = configuration();
    configuration.structures.retain(|name, _| name == "a-hash-map" || name == "a-fp-tree");
    configuration.loads.retain(|name, _| name == "a-hash-map" || name == "a-fp-tree");
    let run = run_with(&machine(), &configuration, &settings(), &interrupt, &mut |_| (), &|place| {
        place.shared(WrongMap::<INVENTS>::new)
    });
    let run = run.expect("it runs");
    assert!(run.structures.iter().all(|structure| structure.audit.is_err()), "{run:?}");
}

#[test]
fn configurations_that_make_no_sense_are_refused() {
    let refused = |words: &str, change: &dyn Fn(&mut Configuration, &mut ConfiguredSettings)| {
        let (mut configuration, mut settings) = (configuration(), settings());
        change(&mut configuration, &mut settings);
        let error = run_configured(&configuration, &settings).expect_err("refused");
        assert!(error.is_bad_input() && error.to_string().contains(words), "{error}");
    };
    refused("no structure", &|configuration, _| {
        configuration.structures.clear();
        configuration.loads.clear();
    });
    refused("[loads.a-b-tree]", &|configuration, _| drop(configuration.loads.remove("a-b-tree")));
    refused("there is no structure 'tree'", &|configuration, _| {
        configuration.loads.get_mut("a-b-tree").expect("there").kind = "tree".to_owned();
    });
    refused("there is no operation mix 'e'", &|configuration, _| {
        configuration.loads.get_mut("a-b-tree").expect("there").mix = "e".to_owned();
    });
    refused("a load of 0", &|configuration, _| {
        configuration.loads.get_mut("a-b-tree").expect("there").load = 0.0;
    });
    refused("belongs to one worker", &|configuration, _| {
        configuration.structures.insert("a-owned-tree".to_owned(), "two".to_owned());
    });
    refused("`nowhere`", &|configuration, _| {
        configuration.structures.insert("a-b-tree".to_owned(), "nowhere".to_owned());
    });
    refused("slots", &|_, settings| settings.clients = 1_000);
    refused("zero clients", &|_, settings| settings.clients = 0);
    refused("without records", &|_, settings| settings.records = 0);
}

#[test]
fn a_composition_becomes_a_configuration_on_its_processing_units() {
    let text = "[[structure]]\nname = 'a'\nkind = 'b-tree'\nmix = 'ycsb-a'\nload = 3.5\nsize = 2\n\
                [[structure]]\nname = 'b'\nkind = 'hash-map'\nmix = 'ycsb-c'\nsize = 1\nisolated = true\n";
    let structures = Structures::from_toml(text).expect("structures");
    let demand = structures.demand(None, &CalibrationSettings::default()).expect("a demand");
    let machine = Machine::synthetic("pack:1 core:4 pu:1").expect("a machine");
    let kind = atrapos_composition::Kind::Shared;
    let composed = compose(&demand, 4, kind, &Settings::default()).expect("there is room");
    let sizes: Vec<u32> = composed.domains.iter().map(|domain| domain.workers).collect();
    let cpus = map_onto(&machine, &sizes).expect("there is room");
    let configuration = crate::configuration(&composed, &structures.structures, &cpus);
    let assigned = configuration.assign(&machine).expect("it is possible there");
    assert_eq!(assigned, cpus);
    assert_eq!(configuration.structures["a"], "A");
    assert_eq!(configuration.structures["b"], "B");
    assert_eq!(configuration.loads["a"].load, 3.5);
    assert_eq!(clients_beside(&machine, &configuration).expect("it is possible there"), 1);
    assert_eq!(Configuration::from_toml(&configuration.to_toml()).expect("it is TOML"), configuration);
}

/// One thread that makes operations together does the same as others, insertions in between included, and its drawing is apart.
#[test]
fn operations_that_are_made_together_are_audited_and_drawn_apart() {
    for kind in [Kind::BTree, Kind::HashMap, Kind::OwnedTree] {
        for mix in [Mix::YcsbA, Mix::YcsbD] {
            let load = Load { length: Length::Operations(5_000), ..load(kind, mix) };
            let run = measured(&load, &Arrangement::together(&machine(), false), 2).expect("it runs");
            assert!(run.audit.is_ok(), "{kind} {mix}: {:?}", run.audit);
            assert!(run.rounds.iter().all(|round| round.operations() == 5_000), "{kind} {mix}");
            assert!(run.rounds.iter().all(|round| !round.drawing.is_zero()), "{kind} {mix}");
        }
    }
}

#[test]
fn designs_are_judged_by_rounds_that_did_not_choose() {
    let interrupt = AtomicBool::new(false);
    let mut watch = |_| ();
    let mut measurement = Measurement { rounds: 4, interrupt: &interrupt, watch: &mut watch };
    let threads = Threads { clients: Some(1), workers: Some(1), domain_size: None, pin: false };
    for (kind, designs) in [(Kind::BTree, 4), (Kind::OwnedTree, 2)] {
        let judged =
            judge_designs(&machine(), &load(kind, Mix::YcsbA), &threads, &mut measurement).expect("it runs");
        let all: Vec<Design> = judged.candidates.iter().flat_map(|one| one.designs.clone()).collect();
        assert_eq!(all.len(), designs, "{all:?}");
        assert!(judged.candidates.iter().all(|one| one.judging_per_second.len() == 2 && one.wrong.is_none()));
        assert!(judged.to_best(judged.configured()) <= 1.0);
        let worst = judged.worst_rigid().expect("there are rigid designs");
        assert!(judged.candidates.iter().all(|one| judged.to_best(one) >= judged.to_best(worst)));
    }
}

/// Structures in parts, and used directly, do what whole ones in domains do.
#[test]
fn many_structures_are_the_same_in_every_design() {
    let interrupt = AtomicBool::new(false);
    let threads = Threads { clients: Some(2), workers: Some(2), domain_size: None, pin: false };
    let settings = ConfiguredSettings { clients: 2, pin: false, ..settings() };
    for (kind, design) in [
        (Kind::BTree, Design::Se),
        (Kind::HashMap, Design::SeNuma),
        (Kind::FpTree, Design::SnThread),
        (Kind::OwnedTree, Design::SnThread),
    ] {
        let arrangement = Arrangement::new(&machine(), design, &threads).expect("possible");
        let mut configuration = arrangement.configuration().expect("there are slots");
        let domain = configuration.domains[0].name.clone();
        for at in 0..9 {
            let load = StructureLoad { kind: kind.name().to_owned(), mix: "ycsb-d".to_owned(), load: 1.0 };
            configuration.structures.insert(format!("s{at}"), domain.clone());
            configuration.loads.insert(format!("s{at}"), load);
        }
        let run = match arrangement.access() {
            Access::Direct => {
                run_directly(&machine(), &configuration, &settings, &interrupt, &mut |_| ()).expect("it runs")
            }
            Access::Delegated => {
                let settings = ConfiguredSettings { parts: true, ..settings.clone() };
                let run = run_configured(&configuration, &settings).expect("it runs");
                let tasks = run.domains.iter().map(|domain| domain.tasks.iter().sum::<u64>());
                assert!(tasks.min() > Some(0), "each domain has parts: {run:?}");
                run
            }
        };
        assert_eq!(run.structures.len(), 9);
        for structure in &run.structures {
            assert!(structure.audit.is_ok() && structure.operations() > 0, "{design}: {structure:?}");
            assert!(structure.classes[2] > 0, "records are inserted: {structure:?}");
        }
    }
}

#[test]
fn domains_with_parts_of_structures_do_not_adapt() {
    let settings = ConfiguredSettings { parts: true, adapt: Some(restless()), ..settings() };
    let refused = run_configured(&configuration(), &settings).expect_err("one is in the way of the other");
    assert!(matches!(refused, LoadError::PartsAdapt) && refused.is_bad_input(), "{refused}");
}

#[test]
fn structures_with_one_owner_are_not_used_by_all_threads() {
    let threads = Threads { clients: Some(1), workers: Some(1), domain_size: None, pin: false };
    let arrangement = Arrangement::new(&machine(), Design::Se, &threads).expect("possible");
    let mut configuration = arrangement.configuration().expect("there are slots");
    configuration.domains[0].workers = 1;
    configuration.domains[0].cpus.truncate(1);
    let domain = configuration.domains[0].name.clone();
    let load = StructureLoad { kind: "owned-tree".to_owned(), mix: "ycsb-c".to_owned(), load: 1.0 };
    configuration.structures.insert("one".to_owned(), domain);
    configuration.loads.insert("one".to_owned(), load);
    let interrupt = AtomicBool::new(false);
    let refused = run_directly(&machine(), &configuration, &settings(), &interrupt, &mut |_| ());
    let refused = refused.expect_err("a thread owns it").to_string();
    assert!(refused.contains("owned-tree") && refused.contains("sn-thread"), "{refused}");
}

/// A round of its own counts requests, and waits of those that need an answer; times are as they are.
#[test]
fn what_delegation_takes_of_clients_is_counted() {
    let threads = Threads { clients: Some(1), workers: Some(1), domain_size: None, pin: false };
    let interrupt = AtomicBool::new(false);
    for (burst, clocked) in [(1, true), (14, true), (14, false)] {
        let load = Load { burst, clocked, ..load(Kind::HashMap, Mix::YcsbA) };
        let arrangement = Arrangement::new(&machine(), Design::SnThread, &threads).expect("possible");
        let mut measurement = Measurement { rounds: 1, interrupt: &interrupt, watch: &mut |_| {} };
        let run = run(&machine(), &load, &arrangement, &mut measurement).expect("it runs");
        assert!(run.audit.is_ok(), "{run:?}");
        let Some(round) = run.clocked else {
            assert!(!clocked);
            continue;
        };
        let (requests, operations) = (round.delegation.requests, round.operations());
        assert_eq!((clocked, operations), (true, 100), "a quarter of the operations");
        if burst == 1 {
            assert_eq!(requests, operations, "each is a request");
        } else {
            assert!((operations / 14..=operations / 2).contains(&requests), "{requests} of {operations}");
        }
        assert!(round.delegation.waits < operations);
        assert!(round.delegation.waits > 0 || round.delegation.waited.is_zero());
    }
}
