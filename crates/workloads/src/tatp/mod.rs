//! TATP, the Telecom Application Transaction Processing benchmark (specification 1.0): four tables about the subscribers of
//! a phone network, seven short transactions.
//!
//! Owns: the assembly of its parts into a [`Workload`]. The parts: [`schema`], the population ([`generator`]), the
//! requests of clients ([`parameters`]), the transactions ([`procedures`], by name in [`stored`]) and the proof of their effects (`audit`).
//!
//! # Results
//!
//! The specification expects a known share of most transactions to find no row, or to find their key taken: those are
//! [`Outcome::ExpectedFailure`]. They are complete transactions that have changed nothing and their latency counts, but
//! they are not successes. A run reports both: all completed transactions per second, as published results do, and
//! those that succeeded, which is the specification's *qualified* throughput.

mod audit;
pub mod generator;
pub mod options;
pub mod parameters;
pub mod procedures;
mod request;
pub mod schema;
mod shares;
pub mod stored;

use std::hint::black_box;

use arrayvec::ArrayVec;
use atrapos::{
    Abort, AbortReason, Database, Handles, LoadError, LoadProgress, Procedures, RegisterError, Row, Schema,
    UPCOMING_MAX, Upcoming,
};
use atrapos_runtime::rng::Seed;

use crate::client::Client;
use crate::keys::{KeyChoice, KeySet};
use crate::ledger::Ledger;
use crate::random::Random;
use crate::room::{self, NotEnoughMemory};
use crate::shares::NoShare;
use crate::workload::{AuditError, AuditReport, ClassId, Outcome, Reach, SetupError, Workload};
use generator::{Population, ROWS_PER_SUBSCRIBER};
use parameters::{Class, Mix, Parameters};
use request::Request;
use schema::{AccessInfo, CallForwarding, S_ID_MAX, SpecialFacility, Subscriber, Tables};
use stored::{
    DeleteCallForwarding, GetAccessData, GetNewDestination, GetSubscriberData, InsertCallForwarding,
    UpdateLocation, UpdateSubscriberData,
};

/// Default number of subscribers.
pub const SUBSCRIBERS_DEFAULT: u64 = 100_000;

/// One configuration of TATP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tatp {
    /// Number of subscribers; their `s_id`s are from 1 to this number.
    subscribers: u64,
    mix: Mix,
    choice: KeyChoice,
    seed: u64,
    is_apart: bool,
}

/// The number of subscribers is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} subscribers are not possible; choose from 1 to {S_ID_MAX}, the numbers that have 15 digits")]
pub struct BadSubscribers(pub u64);

impl Tatp {
    /// Creates the benchmark over `subscribers` subscribers. Population and parameters follow from `seed`.
    ///
    /// # Errors
    /// Fails if there are no subscribers, or more than have numbers of 15 digits.
    pub fn new(subscribers: u64, mix: Mix, choice: KeyChoice, seed: u64) -> Result<Tatp, BadSubscribers> {
        if !(1..=S_ID_MAX).contains(&subscribers) {
            return Err(BadSubscribers(subscribers));
        }
        Ok(Tatp { subscribers, mix, choice, seed, is_apart: false })
    }

    /// Returns the same benchmark on tables apart: each table and index is a family of its own.
    #[must_use]
    pub fn apart(self) -> Tatp {
        Tatp { is_apart: true, ..self }
    }

    /// Returns the number of subscribers.
    #[must_use]
    pub fn subscribers(&self) -> u64 {
        self.subscribers
    }

    /// Creates the generator of one client that chooses subscribers of `keys`; clients with different `stream`s are
    /// independent.
    #[must_use]
    pub fn parameters(&self, keys: KeySet, stream: u64) -> Parameters {
        let random = Random::of_stream(Seed(self.seed).derive(CLIENT_STREAM).0, stream);
        Parameters::new(self.mix, self.choice, keys, random)
    }

    /// Audits like [`audit`](Workload::audit) a database whose transactions were not counted, for instance after a
    /// crash: everything but the number of rows of call forwarding is checked.
    ///
    /// # Errors
    /// The first discrepancy found.
    pub fn audit_uncounted(&self, db: &Database) -> Result<AuditReport, AuditError> {
        audit::audit(self.subscribers, self.seed, db, None)
    }
}

/// Mean encoded bytes of the rows and keys of a subscriber: itself, its index entry, 2.5 rows of access information,
/// 2.5 facilities and 3.75 rows of forwarding.
const ENCODED_BYTES_PER_SUBSCRIBER: f64 = (8 + Subscriber::FIXED_BYTES) as f64
    + (15 + 8) as f64
    + 2.5 * (9 + AccessInfo::FIXED_BYTES) as f64
    + 2.5 * (9 + SpecialFacility::FIXED_BYTES) as f64
    + 3.75 * (10 + CallForwarding::FIXED_BYTES) as f64;

/// Bytes of memory per subscriber, all overhead and room for changes of call forwarding included: measured and rounded
/// up.
const RESIDENT_BYTES_PER_SUBSCRIBER: u64 = 512;

/// Subscribers of the database on which transactions are recorded.
const RECORDED_SUBSCRIBERS: u64 = 1_000;

/// State of one TATP client.
#[derive(Clone, Debug)]
pub struct TatpState {
    tables: Tables,
    parameters: Parameters,
    /// The requests that were drawn ahead, the next one last.
    drawn: ArrayVec<Request, UPCOMING_MAX>,
}

/// Keeps the seeds of clients apart from those of the population.
const CLIENT_STREAM: u64 = u64::MAX;

impl Workload for Tatp {
    type State = TatpState;

    fn classes(&self) -> &'static [&'static str] {
        &Class::NAMES
    }

    fn updates(&self, class: ClassId) -> bool {
        Class::ALL.get(class.index()).is_some_and(|class| class.updates())
    }

    fn only_reads(&self) -> bool {
        matches!(self.mix, Mix::Only(class) if !class.updates())
    }

    fn to_record(&self) -> Vec<Tatp> {
        let subscribers = self.subscribers.min(RECORDED_SUBSCRIBERS);
        Class::ALL
            .into_iter()
            .map(|class| Tatp { subscribers, mix: Mix::Only(class), ..self.clone() })
            .collect()
    }

    fn schema(&self) -> Schema {
        let schema = schema::schema(self.subscribers);
        if self.is_apart { schema.apart() } else { schema }
    }

    fn encoded_bytes(&self) -> u64 {
        (self.subscribers as f64 * ENCODED_BYTES_PER_SUBSCRIBER) as u64
    }

    fn check_memory(&self, available_bytes: u64) -> Result<(), NotEnoughMemory> {
        room::check("subscribers", self.subscribers, RESIDENT_BYTES_PER_SUBSCRIBER, available_bytes)
    }

    fn expected_rows(&self) -> u64 {
        (self.subscribers as f64 * ROWS_PER_SUBSCRIBER) as u64
    }

    fn load(&self, db: &Database, progress: &LoadProgress) -> Result<u64, LoadError> {
        let tables = Tables::of(db).map_err(|error| LoadError::Source(error.to_string()))?;
        let (subscribers, seed) = (self.subscribers, self.seed);
        db.load(progress, move |loader| {
            for s_id in loader.share_of(tables.subscriber, 1, subscribers).into_iter().flatten() {
                let Population { subscriber, access, facilities } = Population::of(seed, s_id);
                loader.add(tables.subscriber, &s_id, &subscriber)?;
                for (ai_type, row) in &access {
                    loader.add(tables.access_info, &(s_id, *ai_type), row)?;
                }
                for facility in &facilities {
                    loader.add(tables.special_facility, &(s_id, facility.sf_type), &facility.row)?;
                    for (start_time, row) in &facility.forwarding {
                        loader.add(tables.call_forwarding, &(s_id, facility.sf_type, *start_time), row)?;
                    }
                }
            }
            Ok(())
        })
    }

    fn register(&self, registry: &mut impl Procedures, handles: &impl Handles) -> Result<(), RegisterError> {
        registry.register::<GetSubscriberData>(handles)?;
        registry.register::<GetNewDestination>(handles)?;
        registry.register::<GetAccessData>(handles)?;
        registry.register::<UpdateSubscriberData>(handles)?;
        registry.register::<UpdateLocation>(handles)?;
        registry.register::<InsertCallForwarding>(handles)?;
        registry.register::<DeleteCallForwarding>(handles)
    }

    fn distributed_share(&self, _parts: usize) -> Result<f64, NoShare> {
        shares::distributed()
    }

    fn state(&self, db: &Database, reach: Reach, stream: u64) -> Result<TatpState, SetupError> {
        let tables = Tables::of(db)?;
        let keys = match reach {
            Reach::Everywhere => {
                KeySet::range(1, self.subscribers).expect("there is at least one subscriber")
            }
            Reach::OwnedBy(worker) => {
                KeySet::owned_by(&db.scheme(), tables.subscriber.id(), 1, self.subscribers, worker)
                    .ok_or(SetupError::NothingOwned { worker })?
            }
        };
        Ok(TatpState { tables, parameters: self.parameters(keys, stream), drawn: ArrayVec::new() })
    }

    #[inline]
    fn draw_ahead(state: &mut TatpState, count: usize, upcoming: &mut Upcoming) {
        let TatpState { tables, parameters, drawn } = state;
        drawn.extend((0..count).map(|_| Request::draw(parameters)));
        drawn.iter().for_each(|request| upcoming.push(request.home(tables)));
        drawn.reverse();
    }

    // One function for all classes: a future inside another costs a copy of it. Rows that no code reads pass through
    // `black_box`, so that they are returned all the same.
    #[inline]
    async fn transaction(client: &Client<'_>, state: &mut TatpState) -> (ClassId, Result<Outcome, Abort>) {
        let TatpState { tables, parameters, drawn } = state;
        let request = drawn.pop().unwrap_or_else(|| Request::draw(parameters));
        let outcome = match &request {
            Request::GetSubscriberData(get) => match &client.run(&tables.subscriber, get).await {
                Ok(row) => Ok(outcome_of(black_box(row).is_some())),
                Err(abort) => Err(abort.clone()),
            },
            Request::GetNewDestination(get) => {
                let found = client.run(tables, get).await;
                found.map(|found| outcome_of(!black_box(&found).is_empty()))
            }
            Request::GetAccessData(get) => match &client.run(&tables.access_info, get).await {
                Ok(row) => Ok(outcome_of(black_box(row).is_some())),
                Err(abort) => Err(abort.clone()),
            },
            Request::UpdateSubscriberData(update) => match client.run(tables, update).await {
                Ok(()) => Ok(Outcome::Succeeded),
                Err(abort) if abort.reason() == AbortReason::User => Ok(Outcome::ExpectedFailure),
                Err(abort) => Err(abort),
            },
            Request::UpdateLocation(update) => client.run(tables, update).await.map(outcome_of),
            Request::InsertCallForwarding(insert) => client.run(tables, insert).await.map(outcome_of),
            Request::DeleteCallForwarding(delete) => client.run(tables, delete).await.map(outcome_of),
        };
        (request.class().id(), outcome)
    }

    fn audit(&self, db: &Database, ledger: &Ledger) -> Result<AuditReport, AuditError> {
        audit::audit(self.subscribers, self.seed, db, Some(ledger))
    }
}

/// Returns success, or the failure that the specification expects.
#[inline]
fn outcome_of(succeeded: bool) -> Outcome {
    if succeeded { Outcome::Succeeded } else { Outcome::ExpectedFailure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mixes_without_updates_only_read() {
        let only_reads =
            |mix| Tatp::new(5, mix, KeyChoice::Uniform, 1).is_ok_and(|workload| workload.only_reads());
        assert!(!only_reads(Mix::Standard));
        for class in Class::ALL {
            assert_eq!(only_reads(Mix::Only(class)), !class.updates(), "{class:?}");
        }
    }

    #[test]
    fn senseless_numbers_of_subscribers_are_refused() {
        let tatp = |subscribers| Tatp::new(subscribers, Mix::Standard, KeyChoice::Uniform, 1);
        assert_eq!(tatp(0), Err(BadSubscribers(0)));
        assert!(tatp(S_ID_MAX + 1).unwrap_err().to_string().contains("15 digits"));
        assert_eq!(tatp(5).map(|tatp| tatp.subscribers()), Ok(5));
        let all = tatp(S_ID_MAX).expect("every number that there is");
        assert!(all.check_memory(1 << 40).unwrap_err().to_string().contains("subscribers need about"));
    }

    #[test]
    fn encoded_bytes_are_those_of_the_population() {
        let subscribers = 20_000;
        let mut bytes = 0;
        for s_id in 1..=subscribers {
            let population = Population::of(3, s_id);
            let forwarding: usize =
                population.facilities.iter().map(|facility| facility.forwarding.len()).sum();
            bytes += 8 + 53 + 15 + 8;
            bytes += population.access.len() * (9 + 10)
                + population.facilities.len() * (9 + 8)
                + forwarding * (10 + 16);
        }
        let tatp = Tatp::new(subscribers, Mix::Standard, KeyChoice::Uniform, 3).expect("subscribers");
        let ratio = bytes as f64 / tatp.encoded_bytes() as f64;
        assert!((ratio - 1.0).abs() < 0.01, "{bytes} bytes instead of {}", tatp.encoded_bytes());
    }
}
