//! The check of lists, by `adya`.
//!
//! Owns: the translation of a history, and of the verdict. Never: checks anything itself.

use adya::history::{History as Operations, Interner, Mop, Op, OpType, ReadValue, Scalar};
use adya::{Opts, Valid, Workload, check};

use crate::anomaly::Anomaly;
use crate::entry::{Event, History, Outcome, Transaction};

/// Numbers of what was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListReport {
    /// Transactions that had to do with lists.
    pub transactions: u64,
    /// Numbers appended by transactions that were reported as committed.
    pub appends: u64,
    /// Lists that were read by them.
    pub reads: u64,
}

impl ListReport {
    /// Sums both reports.
    #[must_use]
    pub fn plus(&self, other: &ListReport) -> ListReport {
        ListReport {
            transactions: self.transactions + other.transactions,
            appends: self.appends + other.appends,
            reads: self.reads + other.reads,
        }
    }
}

/// The model of the whole history.
const MODEL: &str = "strict-serializable";

impl History {
    /// Proves the same as [`check`](History::check) of what transactions appended to lists and read of them.
    ///
    /// # Errors
    /// The gravest anomaly.
    pub fn check_lists(&self) -> Result<ListReport, Anomaly> {
        let mut report = ListReport::default();
        let mut interner = Interner::default();
        let mut timed = Vec::new();
        for transaction in &self.transactions {
            let lists = |event: &&Event| matches!(event, Event::Append { .. } | Event::ReadList { .. });
            let done: Vec<&Event> = transaction.events.iter().filter(lists).collect();
            if done.is_empty() && transaction.appends.is_empty() {
                continue;
            }
            report.transactions += 1;
            report.appends +=
                done.iter().filter(|event| matches!(event, Event::Append { .. })).count() as u64;
            report.reads +=
                done.iter().filter(|event| matches!(event, Event::ReadList { .. })).count() as u64;
            let (began, ended) = operations(transaction, &done, &mut interner);
            timed.push((transaction.began, began));
            // Whose outcome nobody was told ends after everybody else: it may happen at any time.
            timed.push((transaction.ended, ended));
        }
        timed.sort_by_key(|(at, _)| *at);
        let operations = timed
            .into_iter()
            .enumerate()
            .map(|(index, (_, operation))| Op { index: index as u64, ..operation });
        if report.appends == 0 {
            return Ok(report);
        }
        let history = Operations::from_ops(operations.collect(), interner);
        let options = Opts { models: vec![MODEL.to_owned()], ..Opts::default() };
        let verdict = check(&history, Workload::ListAppend, &options);
        if verdict.valid == Valid::True {
            return Ok(report);
        }
        let gravest = verdict.anomalies.iter().find_map(|(kind, found)| Some((kind, found.first()?)));
        let (kind, explanation) = gravest.map_or_else(
            || (format!("{:?}", verdict.anomaly_types), String::new()),
            |(kind, anomaly)| (kind.clone(), anomaly.explanation.clone()),
        );
        Err(Anomaly::Lists { kind, explanation })
    }
}

/// A transaction as `adya` knows it: what was asked for, and what came of it.
fn operations(transaction: &Transaction, done: &[&Event], interner: &mut Interner) -> (Op, Op) {
    // Numbers of lists, of what is in them and of sessions stay far below.
    let mut id = |number: u64| interner.intern(Scalar::Int(number as i64));
    let mut appends = || -> Vec<Mop> {
        let append = |(list, number): &(u64, u64)| Mop::Append { key: id(*list), value: id(*number) };
        transaction.appends.iter().map(append).collect()
    };
    let operation =
        |kind, value| Op { index: 0, kind, process: Some(transaction.session as i64), value, time: None };
    match transaction.outcome {
        Outcome::Aborted => {
            let appends = appends();
            (operation(OpType::Invoke, appends.clone()), operation(OpType::Fail, appends))
        }
        Outcome::Unknown => {
            let appends = appends();
            (operation(OpType::Invoke, appends.clone()), operation(OpType::Info, appends))
        }
        Outcome::Committed => {
            let mut asked = Vec::with_capacity(done.len());
            let mut answered = Vec::with_capacity(done.len());
            for event in done {
                match event {
                    Event::Append { list, number } => {
                        let append = Mop::Append { key: id(*list), value: id(*number) };
                        asked.push(append.clone());
                        answered.push(append);
                    }
                    Event::ReadList { list, numbers } => {
                        let numbers = numbers.iter().map(|number| id(*number)).collect();
                        asked.push(Mop::Read { key: id(*list), value: ReadValue::Nil });
                        answered.push(Mop::Read { key: id(*list), value: ReadValue::List(numbers) });
                    }
                    Event::Write { .. } | Event::Read { .. } | Event::Gone { .. } => {}
                }
            }
            (operation(OpType::Invoke, asked), operation(OpType::Ok, answered))
        }
    }
}
