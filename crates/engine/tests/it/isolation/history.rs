//! A checker of serializability for histories of appends to lists, each of a number of its own.
//!
//! Because a list keeps the order in which it was written, the final lists tell the order of all writes of a key, and what a
//! transaction read tells which write it saw last and which it did not see. From that comes the graph of Adya, Liskov and
//! O'Neil (2000): an edge from each writer to the next writer of the key (ww), to who read its write (wr), and from each reader to the
//! next writer (rw; of an absent key and of every key of a scanned range as well). The history is serializable if the graph
//! has no cycle. Edges from each transaction of a session to the next are added: a session never goes back in time.
//!
//! Owns the check and nothing of the engine; the tests at the end show histories that it refuses.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// A list of unique numbers.
pub(crate) type List = Vec<u32>;

/// One thing a transaction did, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Event {
    /// It added the number to the key's list.
    Append(u64, u32),
    /// It saw the key's list; an absent key is an empty list.
    Read(u64, List),
}

/// A committed transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Committed {
    /// Sessions run their transactions one after the other.
    pub(crate) session: usize,
    pub(crate) events: Vec<Event>,
}

/// Everything that committed, and what was left in the end. Transactions of one session are in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    pub(crate) committed: Vec<Committed>,
    pub(crate) lists: BTreeMap<u64, List>,
}

/// Why one transaction must come before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    WroteBefore(u64),
    WasRead(u64),
    ReadBefore(u64),
    SameSession,
}

type Graph = Vec<Vec<(usize, Why)>>;

impl History {
    /// Checks the history.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        let writers = self.writers()?;
        let mut graph: Graph = vec![Vec::new(); self.committed.len()];
        for (key, list) in &self.lists {
            for pair in list.windows(2) {
                let [before, after] = [writers[&pair[0]], writers[&pair[1]]];
                if before != after {
                    graph[before].push((after, Why::WroteBefore(*key)));
                }
            }
        }
        let mut last_of = HashMap::new();
        for (at, transaction) in self.committed.iter().enumerate() {
            if let Some(before) = last_of.insert(transaction.session, at) {
                graph[before].push((at, Why::SameSession));
            }
            self.check_reads(at, &writers, &mut graph)?;
        }
        match cycle(&graph) {
            None => Ok(()),
            Some(cycle) => Err(self.describe(&cycle)),
        }
    }

    /// Who wrote each number. Checks that what committed is there once, and nothing else is there.
    fn writers(&self) -> Result<HashMap<u32, usize>, String> {
        let mut writers = HashMap::new();
        let mut appended: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (at, transaction) in self.committed.iter().enumerate() {
            for event in &transaction.events {
                if let Event::Append(key, number) = event {
                    writers.insert(*number, at);
                    appended.entry(*key).or_default().push(*number);
                }
            }
        }
        for (key, list) in &self.lists {
            let mut expected = appended.remove(key).unwrap_or_default();
            let mut found = list.clone();
            expected.sort_unstable();
            found.sort_unstable();
            if let Some(number) = found.iter().find(|number| !writers.contains_key(number)) {
                return Err(format!("key {key} holds {number}, which no committed transaction has written"));
            }
            if expected != found {
                return Err(format!("key {key} holds {found:?}, but {expected:?} were committed"));
            }
        }
        match appended.first_key_value() {
            None => Ok(writers),
            Some((key, lost)) => Err(format!("key {key} is absent, but {lost:?} were committed")),
        }
    }

    /// Checks what a transaction read, one list at a time, and adds the edges that follow from it.
    fn check_reads(&self, me: usize, writers: &HashMap<u32, usize>, graph: &mut Graph) -> Result<(), String> {
        let none = List::new();
        let mut own: HashMap<u64, List> = HashMap::new();
        for event in &self.committed[me].events {
            let (key, read) = match event {
                Event::Append(key, number) => {
                    own.entry(*key).or_default().push(*number);
                    continue;
                }
                Event::Read(key, read) => (*key, read),
            };
            let list = self.lists.get(&key).unwrap_or(&none);
            let seen = read.len();
            if !list.starts_with(read) {
                return Err(format!(
                    "transaction {me} read {read:?} under key {key}, where the writes were {list:?}"
                ));
            }
            let own_seen: List = read.iter().copied().filter(|number| writers[number] == me).collect();
            if own_seen != *own.get(&key).unwrap_or(&none) {
                return Err(format!(
                    "transaction {me} read {read:?} under key {key} after its own writes {own:?}"
                ));
            }
            if let (Some(last), Some(next)) = (read.last(), list.get(seen))
                && writers[last] == writers[next]
                && writers[last] != me
            {
                return Err(format!(
                    "transaction {me} read {read:?} under key {key}: half of what another wrote"
                ));
            }
            if let Some(writer) = read.iter().rev().map(|number| writers[number]).find(|writer| *writer != me)
            {
                graph[writer].push((me, Why::WasRead(key)));
            }
            if let Some(next) = list[seen..].iter().map(|number| writers[number]).find(|writer| *writer != me)
            {
                graph[me].push((next, Why::ReadBefore(key)));
            }
        }
        Ok(())
    }

    fn describe(&self, cycle: &[(usize, Why)]) -> String {
        let mut text = "there is no order in which these transactions could have run:\n".to_owned();
        for (at, (transaction, why)) in cycle.iter().enumerate() {
            let next = cycle[(at + 1) % cycle.len()].0;
            let why = match why {
                Why::WroteBefore(key) => format!("wrote key {key} before"),
                Why::WasRead(key) => format!("wrote under key {key} what was read by"),
                Why::ReadBefore(key) => format!("read key {key} without what was written by"),
                Why::SameSession => "was in the same session before".to_owned(),
            };
            let Committed { session, events } = &self.committed[*transaction];
            let _ = writeln!(text, "  {transaction} {why} {next}; it is of session {session}: {events:?}");
        }
        text
    }
}

/// A cycle of the graph, if there is one: each transaction with the reason why it comes before the next.
fn cycle(graph: &Graph) -> Option<Vec<(usize, Why)>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        OnPath,
        Done,
    }
    let mut marks = vec![Mark::New; graph.len()];
    for start in 0..graph.len() {
        if marks[start] != Mark::New {
            continue;
        }
        marks[start] = Mark::OnPath;
        // The path, each transaction with how many of its edges were followed.
        let mut path = vec![(start, 0)];
        while let Some((at, followed)) = path.last_mut() {
            let Some((next, _)) = graph[*at].get(*followed) else {
                marks[*at] = Mark::Done;
                path.pop();
                continue;
            };
            *followed += 1;
            match marks[*next] {
                Mark::Done => {}
                Mark::New => {
                    marks[*next] = Mark::OnPath;
                    path.push((*next, 0));
                }
                Mark::OnPath => {
                    let from = path.iter().position(|(on_path, _)| on_path == next).expect("it is marked so");
                    return Some(
                        path[from..].iter().map(|(at, edge)| (*at, graph[*at][edge - 1].1)).collect(),
                    );
                }
            }
        }
    }
    None
}

/// Histories that are wrong, each in its way, and some that only look so.
mod tests {
    use super::{Committed, Event, History, List};
    use Event::{Append, Read};

    fn history(transactions: Vec<Vec<Event>>, lists: &[(u64, &[u32])]) -> History {
        // Sessions of one transaction each.
        let committed =
            transactions.into_iter().enumerate().map(|(session, events)| Committed { session, events });
        let lists = lists.iter().map(|(key, list)| (*key, list.to_vec()));
        History { committed: committed.collect(), lists: lists.collect() }
    }

    fn read(key: u64, list: &[u32]) -> Event {
        Read(key, List::from(list))
    }

    fn refused(history: &History, why: &str) {
        let wrong = history.check().expect_err("the history is wrong");
        assert!(wrong.contains(why), "{wrong}");
    }

    #[test]
    fn histories_with_an_order_are_accepted() {
        let in_turn = vec![
            vec![read(1, &[]), Append(1, 10), read(1, &[10])],
            vec![read(1, &[10]), Append(1, 20), Append(1, 21), Append(2, 22)],
            vec![read(1, &[10, 20, 21]), read(2, &[22]), read(3, &[])],
            // Reads what was there before the second one.
            vec![read(2, &[]), read(1, &[10])],
        ];
        assert_eq!(history(in_turn, &[(1, &[10, 20, 21]), (2, &[22])]).check(), Ok(()));
        assert_eq!(History::default().check(), Ok(()));
    }

    #[test]
    fn a_lost_update_is_refused() {
        let both_read_first = vec![vec![read(1, &[]), Append(1, 10)], vec![read(1, &[]), Append(1, 20)]];
        refused(&history(both_read_first.clone(), &[(1, &[10, 20])]), "read key 1 without");
        refused(&history(both_read_first, &[(1, &[10])]), "were committed");
    }

    #[test]
    fn write_skew_is_refused() {
        let skew = vec![
            vec![read(1, &[]), read(2, &[]), Append(1, 10)],
            vec![read(1, &[]), read(2, &[]), Append(2, 20)],
        ];
        refused(&history(skew, &[(1, &[10]), (2, &[20])]), "no order");
    }

    #[test]
    fn a_phantom_is_refused() {
        // The second one comes into the range that the first one has scanned, and is seen by it elsewhere.
        let phantom = vec![
            vec![read(1, &[]), read(2, &[]), read(3, &[]), read(9, &[20])],
            vec![Append(2, 21), Append(9, 20)],
        ];
        refused(&history(phantom, &[(2, &[21]), (9, &[20])]), "no order");
    }

    #[test]
    fn a_read_that_cannot_be_repeated_is_refused() {
        let unrepeatable = vec![vec![read(1, &[]), read(1, &[20])], vec![Append(1, 20)]];
        refused(&history(unrepeatable, &[(1, &[20])]), "no order");
    }

    #[test]
    fn aborted_and_intermediate_values_are_refused() {
        refused(
            &history(vec![vec![Append(1, 10)]], &[(1, &[10, 66])]),
            "no committed transaction has written",
        );
        refused(&history(vec![vec![read(1, &[66])]], &[(1, &[])]), "where the writes were []");
        let half = vec![vec![Append(1, 10), Append(1, 11)], vec![read(1, &[10])]];
        refused(&history(half, &[(1, &[10, 11])]), "half of what another wrote");
    }

    #[test]
    fn losing_or_repeating_a_write_is_refused() {
        refused(&history(vec![vec![Append(1, 10)]], &[]), "is absent");
        refused(&history(vec![vec![Append(1, 10)]], &[(1, &[10, 10])]), "were committed");
        refused(&history(vec![vec![Append(1, 10), read(1, &[])]], &[(1, &[10])]), "after its own writes");
    }

    #[test]
    fn long_cycles_are_found_and_told() {
        // Each reads a key before the next one writes it, all around.
        let ring = (0..6).map(|at| vec![read(at, &[]), Append((at + 5) % 6, at as u32 + 1)]).collect();
        let lists: Vec<(u64, Vec<u32>)> = (0..6).map(|key| (key, vec![(key as u32 + 1) % 6 + 1])).collect();
        let lists: Vec<(u64, &[u32])> = lists.iter().map(|(key, list)| (*key, list.as_slice())).collect();
        let wrong = history(ring, &lists).check().unwrap_err();
        assert_eq!(wrong.lines().count(), 7, "{wrong}");
    }

    #[test]
    fn a_session_does_not_go_back_in_time() {
        let mut history = history(vec![vec![Append(1, 10)], vec![read(1, &[])]], &[(1, &[10])]);
        assert_eq!(history.check(), Ok(()), "another session may be behind");
        history.committed[1].session = history.committed[0].session;
        refused(&history, "same session");
    }
}
