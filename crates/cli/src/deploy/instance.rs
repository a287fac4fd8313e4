//! An instance of a deployment: one of the processes that `deploy` starts.
//!
//! Owns: the life of the instance: it loads its share, joins the others, serves clients, and closes when its standard input ends.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use atrapos::{Adaptation, Durability, LoadProgress, Registry};
use atrapos_harness::registry::AnyWorkload;
use atrapos_instances::{Member, MemberOptions, own_keys, read_secret};
use atrapos_watch::WatchedOptions;

use super::Heard;
use crate::bench::CLOSE_DEADLINE;
use crate::error::CliError;
use crate::instances::Place;
use crate::instances::member::{Opening, open, processors, say};
use crate::{input, output, watch};

/// The time between two looks at the links.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The population of an instance with a directory: a file beside the directory says that it is complete, and how many rows it has.
pub(super) struct Population {
    pub(super) directory: PathBuf,
    mark: PathBuf,
}

impl Population {
    pub(super) fn of(data: &Path, instance: u16) -> Population {
        let directory = data.join(format!("instance-{instance}"));
        Population { mark: directory.with_extension("loaded"), directory }
    }

    /// Returns the rows of a population that is complete; otherwise removes what there is of it.
    pub(super) fn begin(&self) -> Result<Option<u64>, CliError> {
        let failed = |error: io::Error| CliError::failed(format!("{}: {error}", self.mark.display()));
        match fs::read_to_string(&self.mark) {
            Ok(rows) => {
                let rows = rows.trim().parse().map_err(|_| {
                    CliError::failed(format!(
                        "{} is not what an instance has written; remove it and {} to load the population anew",
                        self.mark.display(),
                        self.directory.display()
                    ))
                })?;
                Ok(Some(rows))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match fs::remove_dir_all(&self.directory) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
                    _ => Ok(None),
                }
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Notes, durably, that the population is complete.
    pub(super) fn complete(&self, rows: u64) -> Result<(), CliError> {
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(self.mark.parent().unwrap_or(Path::new(".")))?;
            writeln!(file, "{rows}")?;
            file.as_file().sync_all()?;
            file.persist(&self.mark)?.sync_all()?;
            self.mark.parent().map_or(Ok(()), |parent| fs::File::open(parent)?.sync_all())
        };
        write().map_err(|error: io::Error| CliError::failed(format!("{}: {error}", self.mark.display())))
    }
}

/// Runs the instance.
pub(super) fn run(
    workload: &dyn AnyWorkload,
    (adaptation, durability): (Option<Adaptation>, Durability),
    place: Place,
) -> Result<(), CliError> {
    let machine = processors(&place)?;
    let pin = !place.plan.shares[usize::from(place.instance)].cpus.is_empty();
    let population = place.data.as_ref().map(|data| Population::of(data, place.instance));
    let loaded_before = population.as_ref().map(Population::begin).transpose()?.flatten();
    let opening = Opening { machine: &machine, pin, place_memory: true, adaptation, durability };
    let db = Arc::new(open(workload, &place, opening)?);
    let watched = watch::offer(
        &db,
        WatchedOptions {
            program: format!("instance {} of a deployment", place.instance),
            directory: population.as_ref().map(|population| population.directory.clone()),
            latency: None,
        },
    );
    let rows = match loaded_before {
        Some(rows) => rows,
        None => {
            let loaded = workload.load(&db, &LoadProgress::default());
            let rows = loaded
                .map_err(|error| CliError::failed(format!("the instance could not be loaded: {error}")))?;
            population.as_ref().map_or(Ok(()), |population| population.complete(rows))?;
            rows
        }
    };
    let mut registry = Registry::default();
    workload.register(&mut registry, &db).map_err(CliError::failed)?;
    let others = place.plan.shares.len() - 1;
    let options = MemberOptions {
        deployment: place.deployment,
        secret: Some(read_secret(&place.directory).map_err(CliError::failed)?),
        directory: place.directory,
        kind: place.channel,
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
    drop((member, watched));
    let closed = Arc::try_unwrap(db).map(|db| db.close(CLOSE_DEADLINE));
    match closed.map(|closed| closed.failure) {
        Ok(Some(failure)) => Err(CliError::failed(failure)),
        _ => Ok(()),
    }
}
