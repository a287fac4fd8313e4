//! The versions of each key, in the order in which they replaced each other.
//!
//! Owns: who wrote which version, and what each version replaced. Never: draws an edge.
//!
//! Each version says which one it replaced, so the order of the versions of a key is a chain. A link is missing only when two
//! writers, one after the other, were killed before they were told: then the rest of the chain comes after what is known.

use std::collections::{BTreeMap, HashMap};

use crate::anomaly::Anomaly;
use crate::entry::{Event, Found, History, Outcome};

/// The number of a transaction in the history.
pub(crate) type Number = usize;

/// One version of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version {
    pub(crate) number: u64,
    pub(crate) writer: Number,
    /// The version that it replaced; none if nobody ever saw it.
    over: Option<u64>,
    /// Its group, which may be none; nothing if nobody ever saw it.
    pub(crate) group: Option<Option<u32>>,
}

/// The versions of a key that others may have seen, in order: the last one of each writer. What was before the first is not
/// among them.
#[derive(Debug, Default)]
pub(crate) struct Order {
    pub(crate) installed: Vec<Version>,
    /// All versions, in order: for who wrote over whom.
    pub(crate) all: Vec<Version>,
    /// The earliest end of the writers from each place on.
    ends_from: Vec<u64>,
    /// The latest beginning of the writers up to each place.
    begins_to: Vec<u64>,
}

/// The place of a version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Index in [`Order::installed`] of the version, or of the one by which its writer replaced it.
    pub(crate) at: usize,
    /// Set if its writer replaced it.
    pub(crate) is_intermediate: bool,
    pub(crate) writer: Number,
}

/// See the module's introduction.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    pub(crate) orders: BTreeMap<u64, Order>,
    pub(crate) places: HashMap<u64, Place>,
    /// Set for each transaction that happened: those that were reported as committed, and those of which another saw an
    /// effect.
    pub(crate) happened: Vec<bool>,
}

/// A version and its key, while they are gathered.
type Gathered = HashMap<u64, (u64, Version)>;

impl Order {
    /// The places of the versions that a transaction may have seen which began and ended then, as far as time tells: from one
    /// to another, both included; 0 stands for what was before the first version. They are empty if none fits.
    pub(crate) fn window(&self, began: u64, ended: u64) -> (usize, usize) {
        // Places here are one more than those in `installed`.
        let from = self.ends_from.partition_point(|end| *end < began);
        let to = self.begins_to.partition_point(|begin| *begin <= ended);
        (from, to)
    }

    fn new(all: Vec<Version>, span_of: impl Fn(Number) -> (u64, u64)) -> Order {
        let is_last = |at: usize| all.get(at + 1).is_none_or(|next: &Version| next.writer != all[at].writer);
        let installed: Vec<Version> = (0..all.len()).filter(|at| is_last(*at)).map(|at| all[at]).collect();
        let mut ends_from: Vec<u64> = installed.iter().map(|version| span_of(version.writer).1).collect();
        for at in (1..ends_from.len()).rev() {
            ends_from[at - 1] = ends_from[at - 1].min(ends_from[at]);
        }
        let mut begins_to: Vec<u64> = installed.iter().map(|version| span_of(version.writer).0).collect();
        for at in 1..begins_to.len() {
            begins_to[at] = begins_to[at].max(begins_to[at - 1]);
        }
        Order { installed, all, ends_from, begins_to }
    }
}

impl Versions {
    pub(crate) fn of(history: &History) -> Result<Versions, Anomaly> {
        let transactions = &history.transactions;
        let name = |number: Number| transactions[number].name();
        let mut intended = HashMap::new();
        for (number, transaction) in transactions.iter().enumerate() {
            intended.extend(transaction.writes.iter().map(|(key, version)| (*version, (*key, number))));
        }
        let mut happened: Vec<bool> =
            transactions.iter().map(|transaction| transaction.outcome == Outcome::Committed).collect();
        let mut gathered = Gathered::new();
        for (writer, transaction) in committed(history) {
            for event in &transaction.events {
                if let Event::Write { key, found, version, group } = event {
                    let version =
                        Version { number: *version, writer, over: Some(found.version), group: Some(*group) };
                    gathered.insert(version.number, (*key, version));
                }
            }
        }
        // What was seen of versions whose writers were not told, and whether everything that was seen was written.
        for (reader, transaction) in committed(history) {
            let seen = transaction.events.iter().flat_map(|event| match event {
                Event::Write { key, found, .. } | Event::Gone { key, found } => vec![(*key, *found)],
                Event::Read { rows, .. } => rows.clone(),
                _ => Vec::new(),
            });
            for (key, found) in seen {
                for (version, facts) in [(found.version, Some(found)), (found.over, None)] {
                    if version == 0 {
                        continue;
                    }
                    let Some((_, writer)) = intended.get(&version).filter(|intended| intended.0 == key)
                    else {
                        return Err(Anomaly::Invented { reader: name(reader), key, version });
                    };
                    if transactions[*writer].outcome == Outcome::Aborted {
                        let (reader, writer) = (name(reader), name(*writer));
                        return Err(Anomaly::AbortedRead { reader, writer, key, version });
                    }
                    happened[*writer] = true;
                    let unseen = Version { number: version, writer: *writer, over: None, group: None };
                    let (_, known) = gathered.entry(version).or_insert((key, unseen));
                    let Some(Found { over, group, .. }) = facts else { continue };
                    let written = (*known.over.get_or_insert(over), *known.group.get_or_insert(group));
                    if written != (over, group) {
                        let facts = |(over, group): (u64, Option<u32>)| {
                            let group = group.map_or("no row".to_owned(), |group| format!("group {group}"));
                            format!("version {version:#x} of key {key} over {over:#x} ({group})")
                        };
                        let (reader, writer) = (name(reader), name(*writer));
                        let (seen, written) = (facts((over, group)), facts(written));
                        return Err(Anomaly::Garbled { reader, writer, seen, written });
                    }
                }
            }
        }
        let mut versions = Versions { happened, ..Versions::default() };
        versions.put_in_order(history, gathered)?;
        Ok(versions)
    }

    fn put_in_order(&mut self, history: &History, gathered: Gathered) -> Result<(), Anomaly> {
        let transactions = &history.transactions;
        let mut by_key: BTreeMap<u64, Vec<Version>> = BTreeMap::new();
        for (key, version) in gathered.into_values() {
            by_key.entry(key).or_default().push(version);
        }
        for (key, mut versions) in by_key {
            // In an order of its own, so that the same history gives the same words.
            versions.sort_unstable_by_key(|version| version.number);
            let mut next: HashMap<u64, Version> = HashMap::new();
            for version in &versions {
                let Some(over) = version.over else { continue };
                if let Some(other) = next.insert(over, *version) {
                    let [first, second] =
                        [other, *version].map(|version| transactions[version.writer].name());
                    return Err(Anomaly::LostUpdate { first, second, key, version: over });
                }
            }
            // The chain from the beginning, then those whose beginning nobody saw, as they came.
            let mut heads: Vec<Version> =
                versions.iter().filter(|version| version.over.is_none()).copied().collect();
            heads.sort_by_key(|head| transactions[head.writer].began);
            let mut all = Vec::with_capacity(versions.len());
            let first = next.get(&0).copied();
            for head in first.into_iter().chain(heads) {
                let mut link = Some(head);
                while let Some(version) = link {
                    all.push(version);
                    link = next.get(&version.number).copied();
                }
            }
            if all.len() < versions.len() {
                let told: Vec<String> = versions
                    .iter()
                    .map(|version| {
                        format!("{:#x} of {}", version.number, transactions[version.writer].name())
                    })
                    .collect();
                return Err(Anomaly::CyclicVersions { key, versions: told.join(", ") });
            }
            let order = Order::new(all, |writer| (transactions[writer].began, transactions[writer].ended));
            let mut at = 0;
            for version in &order.all {
                let is_intermediate = order.installed[at].number != version.number;
                let place = Place { at, is_intermediate, writer: version.writer };
                self.places.insert(version.number, place);
                at += usize::from(!is_intermediate);
            }
            self.orders.insert(key, order);
        }
        Ok(())
    }
}

fn committed(history: &History) -> impl Iterator<Item = (Number, &crate::entry::Transaction)> {
    let is_committed =
        |(_, transaction): &(Number, &crate::entry::Transaction)| transaction.outcome == Outcome::Committed;
    history.transactions.iter().enumerate().filter(is_committed)
}
