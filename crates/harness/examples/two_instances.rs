//! Transactions of the microbenchmark on two instances of one worker each, in one process, linked by shared memory: for counting their
//! instructions, as the difference between two runs, and for looking at where the time of the workers goes.
//!
//! `two_instances <read|update> <share of multisite transactions> <sessions per worker> <transactions per session>`
//!
//! Each transaction has two rows. The instances are as far from each other as processes are: they share the rings of their links, and nothing
//! else. Prints the transactions of both in a second.

#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a program says what it measures and what is wrong"
)]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atrapos::{Database, InstanceId, LoadProgress, Session, WorkerId};
use atrapos_instances::{ChannelKind, DeploymentId, Member, MemberOptions, division};
use atrapos_workloads::micro::{Kind, Micro, MicroConfig};
use atrapos_workloads::{Client, Reach, Workload};

type Error = Box<dyn std::error::Error>;

/// The instances, each with one worker.
const INSTANCES: usize = 2;

/// The time in which the instances are linked.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "error: {error}; use <read|update> <share of multisite transactions> <sessions per worker> <transactions per session>"
            );
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Error> {
    let [kind, multisite, sessions, transactions] = arguments else {
        return Err("four arguments are needed".into());
    };
    let kind = match kind.as_str() {
        "read" => Kind::Read,
        "update" => Kind::Update,
        other => return Err(format!("'{other}' is no kind of transactions").into()),
    };
    let (sessions, transactions): (usize, u64) = (sessions.parse()?, transactions.parse()?);
    let config = MicroConfig {
        sites: INSTANCES,
        rows_per_transaction: 2,
        kind,
        multisite: multisite.parse()?,
        ..MicroConfig::default()
    };
    let micro = Micro::new(config)?;
    // Others could listen in otherwise.
    let directory = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir()?;
    let deployment = DeploymentId::draw()?;
    let mut instances = Vec::new();
    for number in 0..INSTANCES {
        instances.push(start(&micro, number, deployment, directory.path())?);
    }
    for (_, member) in &instances {
        if !member.wait_linked(Instant::now() + PATIENCE) {
            return Err(member
                .take_failures()
                .pop()
                .unwrap_or_else(|| "they are not linked".to_owned())
                .into());
        }
    }
    let began = Instant::now();
    let mut handles = Vec::new();
    for stream in 0..(sessions * INSTANCES) as u64 {
        let (db, _) = &instances[stream as usize % INSTANCES];
        let mut state = micro.state(db, Reach::OwnedBy(WorkerId(0)), stream + 1)?;
        let body = async move |session: Session| run_one(&session, &mut state, transactions).await;
        handles.push(db.spawn_session(WorkerId(0), body)?);
    }
    let mut committed = 0;
    for handle in handles {
        committed += handle.join()?;
    }
    println!("{:.0} transactions/s, {committed} committed", committed as f64 / began.elapsed().as_secs_f64());
    Ok(())
}

/// Opens an instance and loads its share.
fn start(
    micro: &Micro,
    number: usize,
    deployment: DeploymentId,
    directory: &std::path::Path,
) -> Result<(Arc<Database>, Member), Error> {
    let division = division(micro.schema(), InstanceId(number as u16), vec![1; INSTANCES], &[])?;
    let builder = Database::builder(micro.schema()).workers(1).pin(false).instance(division);
    let db = Arc::new(builder.fixed_scheme().in_memory()?);
    micro.load(&db, &LoadProgress::default())?;
    let options = MemberOptions {
        deployment,
        directory: directory.to_owned(),
        kind: ChannelKind::Shm,
        tcp: Vec::new(),
        secret: None,
        registry: None,
    };
    let member = Member::join(Arc::clone(&db), options)?;
    Ok((db, member))
}

/// Runs the transactions of one session, and returns how many have committed.
async fn run_one(session: &Session, state: &mut <Micro as Workload>::State, transactions: u64) -> u64 {
    let mut committed = 0;
    for _ in 0..transactions {
        let (_, outcome) = pin!(Micro::transaction(&Client::Session(session, None), state)).await;
        committed += u64::from(outcome.is_ok());
    }
    committed
}
