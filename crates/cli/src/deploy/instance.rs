//! An instance of a deployment: one of the processes that `deploy` starts.
//!
//! Owns: the life of the instance: it loads its share, joins the others, serves clients, and closes when its standard input ends.

use std::sync::Arc;
use std::time::Duration;

use atrapos::{Adaptation, Durability, LoadProgress, Registry};
use atrapos_harness::registry::AnyWorkload;
use atrapos_instances::{ChannelKind, Member, MemberOptions, own_keys, read_secret};

use super::Heard;
use crate::bench::CLOSE_DEADLINE;
use crate::error::CliError;
use crate::instances::Place;
use crate::instances::member::{Opening, open, processors, say};
use crate::{input, output};

/// The time between two looks at the links.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs the instance.
pub(super) fn run(
    workload: &dyn AnyWorkload,
    kind: ChannelKind,
    adaptation: Option<Adaptation>,
    place: Place,
) -> Result<(), CliError> {
    let machine = processors(&place)?;
    let pin = !place.plan.shares[usize::from(place.instance)].cpus.is_empty();
    let opening =
        Opening { machine: &machine, pin, place_memory: true, adaptation, durability: Durability::None };
    let db = Arc::new(open(workload, &place, opening)?);
    let loaded = workload.load(&db, &LoadProgress::default());
    let rows =
        loaded.map_err(|error| CliError::failed(format!("the instance could not be loaded: {error}")))?;
    let mut registry = Registry::default();
    workload.register(&mut registry, &db).map_err(CliError::failed)?;
    let others = place.plan.shares.len() - 1;
    let options = MemberOptions {
        deployment: place.deployment,
        secret: Some(read_secret(&place.directory).map_err(CliError::failed)?),
        directory: place.directory,
        kind,
        tcp: place.tcp,
        registry: Some(Arc::new(registry)),
    };
    let member = Member::join(Arc::clone(&db), options).map_err(CliError::failed)?;
    say(&Heard::Loaded { rows, keys: own_keys(&db) })?;
    let mut told = None;
    while !input::has_ended(LOOK_EVERY) {
        for failure in member.take_failures() {
            output::complain(&format!("instance {}: {failure}", place.instance));
        }
        let linked = member.linked().len() == others;
        if told != Some(linked) {
            say(&Heard::Linked(linked))?;
            told = Some(linked);
        }
    }
    drop(member);
    let closed = Arc::try_unwrap(db).map(|db| db.close(CLOSE_DEADLINE));
    match closed.map(|closed| closed.failure) {
        Ok(Some(failure)) => Err(CliError::failed(failure)),
        _ => Ok(()),
    }
}
