//! Workloads as all sides run them: population, requests of clients, and the same auditor for the result.
//!
//! Owns: the configurations, and the order in which a client draws the parts of a request (that of the workload's own
//! client). Never: runs a transaction.

use atrapos_harness::registry::AnyWorkload;
use atrapos_workloads::micro::parameters::Rows;
use atrapos_workloads::micro::{self, Counter, Micro, MicroConfig};
use atrapos_workloads::registry::Common;
use atrapos_workloads::tatp::generator::Population;
use atrapos_workloads::tatp::parameters::{Class, Mix};
use atrapos_workloads::tatp::schema::{CallForwarding, Digits15, sub_nbr};
use atrapos_workloads::tatp::{self, Tatp};
use atrapos_workloads::tpcb::schema::{Account, Branch, TELLERS, Teller};
use atrapos_workloads::tpcb::{self, Tpcb, TpcbConfig};
use atrapos_workloads::ycsb::parameters::Op;
use atrapos_workloads::ycsb::schema::{Keys, Record as _, Wide};
use atrapos_workloads::ycsb::{self, Ycsb, YcsbConfig};
use atrapos_workloads::{ClassId, KeyChoice, KeySet, Outcome};

use crate::peer::{Client, PeerError, WorkName};
use crate::record::Record;

/// The sizes of the workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Subscribers of TATP.
    pub subscribers: u64,
    /// Branches of TPC-B.
    pub branches: u64,
    /// Accounts of each branch.
    pub accounts: u32,
    /// Records of YCSB, of a thousand bytes each.
    pub records: u64,
    /// Rows of the update of one row, of 250 bytes each.
    pub rows: u64,
}

impl Scale {
    /// The sizes of the full table.
    pub const FULL: Scale =
        Scale { subscribers: 100_000, branches: 16, accounts: 10_000, records: 100_000, rows: 20_000 };

    /// Returns the sizes of the full table, multiplied by `factor` and at least a few rows each.
    #[must_use]
    pub fn times(factor: f64) -> Scale {
        let of = |full: u64, least: u64| ((full as f64 * factor) as u64).max(least);
        let full = Scale::FULL;
        Scale {
            subscribers: of(full.subscribers, 20),
            branches: full.branches,
            accounts: of(full.accounts.into(), 10).min(u32::MAX.into()) as u32,
            records: of(full.records, 200),
            rows: of(full.rows, 20),
        }
    }
}

/// The generators of a workload.
enum Generator {
    Tatp(Tatp),
    Tpcb(Tpcb),
    Ycsb(Ycsb<Wide>),
    Update(Micro),
}

/// A workload in one configuration.
pub struct Work {
    name: WorkName,
    generator: Generator,
    workload: Box<dyn AnyWorkload>,
    title: String,
}

/// The seed of all workloads.
const SEED: u64 = 1;

impl Work {
    /// Creates a workload of this scale, for so many workers of `atrapos`.
    ///
    /// # Errors
    /// Fails if the sizes are not possible.
    pub fn new(name: WorkName, scale: &Scale, workers: usize) -> Result<Work, PeerError> {
        let rows_per_site = (scale.rows / workers as u64).max(1);
        let (entry, options, generator) = match name {
            WorkName::Tatp => {
                let tatp = Tatp::new(scale.subscribers, Mix::Standard, KeyChoice::Uniform, SEED);
                let options = format!("--subscribers {}", scale.subscribers);
                ("tatp", options, Generator::Tatp(tatp.map_err(PeerError::failed)?))
            }
            WorkName::Tpcb => {
                let Scale { branches, accounts: accounts_per_branch, .. } = *scale;
                let config =
                    TpcbConfig { branches, accounts_per_branch, seed: SEED, ..TpcbConfig::default() };
                let options = format!("--branches {branches} --accounts-per-branch {accounts_per_branch}");
                ("tpcb", options, Generator::Tpcb(Tpcb::new(config).map_err(PeerError::failed)?))
            }
            WorkName::YcsbA | WorkName::YcsbC | WorkName::YcsbE => {
                let letter = name.name().trim_start_matches("ycsb-");
                let mix: ycsb::mix::Mix = letter.parse().map_err(PeerError::failed)?;
                let distribution = mix.distribution();
                let config = YcsbConfig {
                    rows: scale.records,
                    mix,
                    distribution,
                    seed: SEED,
                    ..YcsbConfig::default()
                };
                let options = format!("--mix {letter} --rows {}", scale.records);
                ("ycsb", options, Generator::Ycsb(Ycsb::new(config).map_err(PeerError::failed)?))
            }
            WorkName::Update => {
                let config = MicroConfig {
                    sites: workers,
                    rows_per_site,
                    rows_per_transaction: 1,
                    kind: micro::Kind::Update,
                    seed: SEED,
                    ..MicroConfig::default()
                };
                let options = format!("--kind update --rows 1 --rows-per-site {rows_per_site}");
                ("micro", options, Generator::Update(Micro::new(config).map_err(PeerError::failed)?))
            }
        };
        let (workload, title) = configured(entry, &options, workers)?;
        Ok(Work { name, generator, workload, title })
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> WorkName {
        self.name
    }

    /// Returns its configuration in words.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the workload with its own procedures and auditor.
    #[must_use]
    pub fn workload(&self) -> &dyn AnyWorkload {
        &*self.workload
    }

    /// Returns the number of subscribers that an index must lead to; 0 without that index.
    #[must_use]
    pub fn index_entries(&self) -> u64 {
        if let Generator::Tatp(tatp) = &self.generator { tatp.subscribers() } else { 0 }
    }

    /// Returns the population, in the order of keys in every table.
    #[must_use]
    pub fn population(&self) -> Box<dyn Iterator<Item = Record> + '_> {
        match &self.generator {
            Generator::Tatp(tatp) => Box::new((1..=tatp.subscribers()).flat_map(records_of_subscriber)),
            Generator::Tpcb(tpcb) => {
                let TpcbConfig { branches, accounts_per_branch, .. } = *tpcb.config();
                Box::new((0..branches).flat_map(move |b_id| records_of_branch(b_id, accounts_per_branch)))
            }
            Generator::Ycsb(ycsb) => {
                let keys = Keys::of(ycsb.config().rows);
                let record = move |key| Record::Usertable(key, Box::new(Wide::new(key)));
                Box::new((0..keys.rows()).map(move |at| record(keys.loaded(at))))
            }
            Generator::Update(micro) => {
                let rows = micro.config().rows_per_site * micro.config().sites as u64;
                Box::new((0..rows).map(|row| Record::Counters(row, Box::new(Counter::loaded(row)))))
            }
        }
    }

    /// Returns the requests of one client; those of different streams are independent.
    #[must_use]
    pub fn requests(&self, stream: u64) -> Requests {
        let all = |first, last| KeySet::range(first, last).expect("there is at least one key");
        match &self.generator {
            Generator::Tatp(tatp) => Requests::Tatp(tatp.parameters(all(1, tatp.subscribers()), stream)),
            Generator::Tpcb(tpcb) => {
                Requests::Tpcb(tpcb.parameters(all(0, tpcb.config().branches - 1), stream))
            }
            Generator::Ycsb(ycsb) => {
                let keys = Keys::of(ycsb.config().rows);
                Requests::Ycsb(keys, ycsb.parameters(all(0, keys.rows() - 1), stream))
            }
            Generator::Update(micro) => Requests::Update(micro.rows(stream)),
        }
    }
}

/// Returns the workload that a command line of the benchmarks describes, and its description.
fn configured(
    name: &str,
    options: &str,
    workers: usize,
) -> Result<(Box<dyn AnyWorkload>, String), PeerError> {
    let mut entries =
        atrapos_standard_benchmarks::entries().into_iter().chain(atrapos_research_benchmarks::entries());
    let entry = entries
        .find(|entry| entry.name() == name)
        .ok_or_else(|| PeerError::failed(format!("no workload {name}")))?;
    let words = [name].into_iter().chain(options.split_whitespace());
    let matches = entry.command().try_get_matches_from(words).map_err(PeerError::failed)?;
    let given = entry.given(&matches).map_err(PeerError::failed)?;
    let configured = given.configure(Common { workers, seed: SEED }).map_err(PeerError::failed)?;
    Ok((configured.workload, configured.choice.title))
}

fn records_of_subscriber(s_id: u64) -> Vec<Record> {
    let Population { subscriber, access, facilities } = Population::of(SEED, s_id);
    let mut records = vec![Record::SubscriberByNumber(subscriber.sub_nbr, s_id)];
    records.push(Record::Subscriber(s_id, subscriber));
    records.extend(access.into_iter().map(|(ai_type, row)| Record::AccessInfo((s_id, ai_type), row)));
    for facility in facilities {
        let sf_type = facility.sf_type;
        records.push(Record::SpecialFacility((s_id, sf_type), facility.row));
        let forwarding = facility.forwarding.into_iter();
        records.extend(forwarding.map(|(start, row)| Record::CallForwarding((s_id, sf_type, start), row)));
    }
    records
}

fn records_of_branch(b_id: u64, accounts: u32) -> impl Iterator<Item = Record> {
    let tellers = (0..TELLERS).map(move |t_id| Record::Teller((b_id, t_id), Teller::loaded(b_id, t_id)));
    let accounts = (0..accounts).map(move |a_id| Record::Account((b_id, a_id), Account::loaded(b_id, a_id)));
    std::iter::once(Record::Branch(b_id, Branch::loaded(b_id))).chain(tellers).chain(accounts)
}

/// A transaction of TATP with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named after its transaction, and its parts after their columns")]
pub enum TatpRequest {
    GetSubscriberData { s_id: u64 },
    GetNewDestination { s_id: u64, sf_type: u8, start_time: u8, end_time: u8 },
    GetAccessData { s_id: u64, ai_type: u8 },
    UpdateSubscriberData { s_id: u64, bit: u8, sf_type: u8, data_a: u8 },
    UpdateLocation { number: Digits15, location: u32 },
    InsertCallForwarding { number: Digits15, sf_type: u8, start_time: u8, row: CallForwarding },
    DeleteCallForwarding { number: Digits15, sf_type: u8, start_time: u8 },
}

fn draw(parameters: &mut tatp::parameters::Parameters) -> (Class, TatpRequest) {
    let class = parameters.class();
    let s_id = parameters.s_id();
    let number = || sub_nbr(s_id);
    let request = match class {
        Class::GetSubscriberData => TatpRequest::GetSubscriberData { s_id },
        Class::GetNewDestination => TatpRequest::GetNewDestination {
            s_id,
            sf_type: parameters.type_number(),
            start_time: parameters.start_time(),
            end_time: parameters.end_time(),
        },
        Class::GetAccessData => TatpRequest::GetAccessData { s_id, ai_type: parameters.type_number() },
        Class::UpdateSubscriberData => TatpRequest::UpdateSubscriberData {
            s_id,
            bit: parameters.bit(),
            sf_type: parameters.type_number(),
            data_a: parameters.data_a(),
        },
        Class::UpdateLocation => {
            TatpRequest::UpdateLocation { number: number(), location: parameters.location() }
        }
        Class::InsertCallForwarding => TatpRequest::InsertCallForwarding {
            number: number(),
            sf_type: parameters.type_number(),
            start_time: parameters.start_time(),
            row: parameters.forwarding(),
        },
        Class::DeleteCallForwarding => TatpRequest::DeleteCallForwarding {
            number: number(),
            sf_type: parameters.type_number(),
            start_time: parameters.start_time(),
        },
    };
    (class, request)
}

/// The requests of one client.
#[derive(Debug)]
#[expect(missing_docs, reason = "each is the generator of its workload")]
pub enum Requests {
    Tatp(tatp::parameters::Parameters),
    Tpcb(tpcb::parameters::Parameters),
    Ycsb(Keys, ycsb::parameters::Parameters),
    Update(Rows),
}

impl Requests {
    /// Draws the next request and runs it by `client`. Returns its class and its outcome, as the workload's own
    /// procedures do.
    ///
    /// # Errors
    /// The failures of the client.
    pub fn run_next(
        &mut self,
        client: &mut dyn Client,
        time_ns: impl FnOnce() -> u64,
    ) -> Result<(ClassId, Outcome), PeerError> {
        match self {
            Requests::Tatp(parameters) => {
                let (class, request) = draw(parameters);
                let succeeded = client.tatp(&request)?;
                let outcome = if succeeded { Outcome::Succeeded } else { Outcome::ExpectedFailure };
                Ok((class.id(), outcome))
            }
            Requests::Tpcb(parameters) => {
                let request = parameters.request();
                std::hint::black_box(client.tpcb(&request, time_ns())?);
                let class = if request.is_remote() { tpcb::REMOTE } else { tpcb::LOCAL };
                Ok((class, Outcome::Moved(request.delta)))
            }
            Requests::Ycsb(keys, parameters) => {
                let op: Op = parameters.op();
                client.ycsb(op, *keys)?;
                if op.kind == ycsb::mix::Kind::Insert {
                    parameters.committed(1);
                }
                let outcome = if op.kind.writes() { Outcome::Moved(1) } else { Outcome::Succeeded };
                Ok((op.kind.id(), outcome))
            }
            Requests::Update(rows) => {
                let (_, chosen) = rows.choose();
                client.update(chosen[0])?;
                Ok((ClassId(0), Outcome::Succeeded))
            }
        }
    }
}
