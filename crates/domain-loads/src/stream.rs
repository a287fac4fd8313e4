//! [`Stream`]: the operations of one thread, drawn as they are needed.
//!
//! Owns: the random choices, the numbers of inserted records, and the count of replies. Never: runs an operation.

use std::sync::Arc;

use atrapos_workloads::{Random, Zipf};

use crate::audit::WrongReply;
use crate::load::Load;
use crate::mix::{Class, Mix};
use crate::records::{self, PAYLOAD_END};

/// An operation on one record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) class: Class,
    pub(crate) key: u64,
    /// The value to write; of no meaning for a read.
    pub(crate) value: u64,
}

/// The operations of one thread.
#[derive(Debug)]
pub(crate) struct Stream {
    random: Random,
    zipf: Option<Arc<Zipf>>,
    records: u64,
    /// The only class of the mix, if it has one.
    only: Option<Class>,
    /// The draws below 100 from which on an operation is no read, and from which on it is an insertion.
    update_from: u32,
    insert_from: u32,
    /// The thread's number, and the number of threads: inserted records are numbered in turn.
    thread: u64,
    threads: u64,
    pub(crate) inserted: u64,
    payload: u64,
}

impl Stream {
    pub(crate) fn new(load: &Load, zipf: Option<&Arc<Zipf>>, thread: usize, threads: usize) -> Stream {
        let [read, update, _] = load.mix.percent();
        Stream {
            random: Random::of_stream(load.seed, thread as u64),
            zipf: zipf.cloned(),
            records: load.records,
            only: only(load.mix),
            update_from: read,
            insert_from: read + update,
            thread: thread as u64,
            threads: threads as u64,
            inserted: 0,
            payload: 0,
        }
    }

    /// The number of an inserted record: insertion `inserted` of this thread.
    pub(crate) fn number_of(&self, inserted: u64) -> u64 {
        self.records + inserted * self.threads + self.thread
    }

    #[inline]
    fn class(&mut self) -> Class {
        if let Some(class) = self.only {
            return class;
        }
        match self.random.small(100) {
            draw if draw < self.update_from => Class::Read,
            draw if draw < self.insert_from => Class::Update,
            _ => Class::Insert,
        }
    }

    /// The next operation.
    #[inline]
    pub(crate) fn next(&mut self) -> Operation {
        let class = self.class();
        if class == Class::Insert {
            let key = records::key(self.number_of(self.inserted));
            self.inserted += 1;
            return Operation { class, key, value: records::value(key, 0) };
        }
        let number = match &self.zipf {
            Some(zipf) => zipf.draw(&mut self.random) - 1,
            None => self.random.below(self.records),
        };
        let key = records::key(number);
        self.payload = if self.payload + 1 == PAYLOAD_END { 1 } else { self.payload + 1 };
        Operation { class, key, value: records::value(key, self.payload) }
    }
}

fn only(mix: Mix) -> Option<Class> {
    Class::ALL.into_iter().find(|class| mix.percent()[*class as usize] == 100)
}

/// Operations of one thread in one round, and their replies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Operations by class, in the order of [`Class::ALL`].
    pub(crate) classes: [u64; 3],
    /// Replies that were not right, and the last of them.
    pub(crate) wrong: u64,
    pub(crate) last_wrong: Option<WrongReply>,
}

impl Tally {
    /// Notes that an operation was submitted.
    #[inline]
    pub(crate) fn submitted(&mut self, class: Class) {
        self.classes[class as usize] += 1;
    }

    /// Checks a reply.
    #[inline]
    pub(crate) fn reply(&mut self, reply: u64) {
        if reply >= PAYLOAD_END {
            self.note_wrong(reply);
        }
    }

    #[cold]
    fn note_wrong(&mut self, reply: u64) {
        self.wrong += 1;
        self.last_wrong = Some(WrongReply::of(reply));
    }

    /// Adds what another thread has done.
    pub(crate) fn add(&mut self, other: &Tally) {
        self.classes.iter_mut().zip(other.classes).for_each(|(sum, more)| *sum += more);
        self.wrong += other.wrong;
        self.last_wrong = self.last_wrong.or(other.last_wrong);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atrapos_structures::Kind;
    use std::collections::HashSet;

    fn streams(mix: Mix, threads: usize) -> Vec<Stream> {
        let load = Load { records: 1_000, ..Load::new(Kind::BTree, mix) };
        let zipf = load.popularity().expect("a load").map(Arc::new);
        (0..threads).map(|thread| Stream::new(&load, zipf.as_ref(), thread, threads)).collect()
    }

    #[test]
    fn every_mix_has_its_shares() {
        for mix in Mix::ALL {
            let mut tally = Tally::default();
            let mut stream = streams(mix, 1).remove(0);
            (0..20_000).for_each(|_| tally.submitted(stream.next().class));
            for (count, percent) in tally.classes.into_iter().zip(mix.percent()) {
                assert!(count.abs_diff(u64::from(percent) * 200) < 400, "{mix}: {tally:?}");
            }
        }
    }

    #[test]
    fn inserted_records_are_new_and_no_others_are() {
        let loaded: HashSet<u64> = (0..1_000).map(records::key).collect();
        let mut inserted = HashSet::new();
        for mut stream in streams(Mix::YcsbD, 3) {
            for _ in 0..5_000 {
                let operation = stream.next();
                match operation.class {
                    Class::Insert => assert!(inserted.insert(operation.key)),
                    Class::Read | Class::Update => assert!(loaded.contains(&operation.key)),
                }
            }
        }
        assert!(inserted.is_disjoint(&loaded) && !inserted.is_empty());
    }

    #[test]
    fn one_record_is_the_most_popular_and_without_an_exponent_none_is() {
        for (theta, most) in [(0.99, true), (0.0, false)] {
            let load = Load { records: 1_000, theta, ..Load::new(Kind::BTree, Mix::YcsbC) };
            let zipf = load.popularity().expect("a load").map(Arc::new);
            let mut stream = Stream::new(&load, zipf.as_ref(), 0, 1);
            let count = (0..10_000).filter(|_| stream.next().key == records::key(0)).count();
            assert_eq!(count > 500, most, "{count} of 10000");
        }
    }
}
