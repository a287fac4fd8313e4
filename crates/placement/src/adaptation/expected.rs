//! The scheme that a database begins with, where its transactions are foreseen: from recorded statistics, and the shares in which classes of
//! transactions will run (`ATraPos §V-A`, the static information).
//!
//! Owns: the way from the scheme that the tables were declared with to the planned one. Never: plans; that is the code of `atrapos plan --mix`
//! ([`expected`] and [`plan`]).

use atrapos_adapt::{
    AdaptError, Attributed, PlannedScheme, Settings, TableScheme, TableTrace, WorkloadTrace, expected, plan,
};
use atrapos_partition::abort::Abort;
use atrapos_partition::routing::{FamilyScheme, InstanceId};
use atrapos_partition::schema::TableId;
use atrapos_runtime::WorkerId;
use atrapos_storage::KeyBuf;

use super::Adaptive;
use super::chosen::misuse;
use crate::repartition::{RepartitionReport, SchemeChange};

impl Adaptive {
    /// Gives the tables the scheme that is planned for a trace and a mix. Tables that the trace has not keep theirs.
    pub fn begin_with(
        &self,
        trace: &WorkloadTrace,
        mix: &[(String, f64)],
    ) -> Result<RepartitionReport, Abort> {
        let _scheme = self.keep_scheme();
        let refused = |error: AdaptError| misuse(error.to_string());
        let platform = self.platform().map_err(misuse)?;
        let settings =
            self.settings.map_or_else(Settings::default, |adaptation| adaptation.controller.planning);
        let Attributed { workload, weights } = expected(trace, mix, &platform, &settings).map_err(refused)?;
        let today = trace.scheme_on(&workload, &platform).map_err(refused)?;
        let settings = Settings { weights, ..settings };
        let planned = plan(&workload, &platform, &today, &settings).map_err(refused)?.scheme;
        self.carry_out(self.changes_to(trace, &planned)?)
    }

    /// Returns the changes that lead from the scheme of the database to the planned one.
    fn changes_to(&self, trace: &WorkloadTrace, planned: &PlannedScheme) -> Result<Vec<SchemeChange>, Abort> {
        let (catalog, scheme) = (self.catalogs.working(), self.published.scheme());
        let mut changes = Vec::new();
        for (recorded, planned) in trace.tables.iter().zip(planned.tables()) {
            let mut families = scheme.families().zip(&catalog.families);
            let named = families.find(|(_, (name, _))| *name == recorded.name);
            let Some(((family, tables), _)) = named else {
                return Err(misuse(format!(
                    "the database has no table '{}', of which statistics were recorded; record them with the same schema",
                    recorded.name
                )));
            };
            if (0..family.partitions()).any(|at| InstanceId::of_owner(family.owner(at)).is_some()) {
                return Err(misuse(
                    "an instance keeps the keys that the deployment gives it; open it without an expected mix",
                ));
            }
            changes.extend(changes_of(family, tables[0], &wanted(recorded, planned)?));
        }
        Ok(changes)
    }
}

/// Returns the planned partitions: first keys, the first one empty, and owners.
fn wanted(recorded: &TableTrace, planned: &TableScheme) -> Result<Vec<(KeyBuf, WorkerId)>, Abort> {
    let slices: usize = recorded.partitions.iter().map(|part| part.cost_cycles.len()).sum();
    let starts = || recorded.partitions.iter().flat_map(|part| &part.starts);
    if starts().count() != slices {
        return Err(misuse(format!(
            "the statistics of '{}' were recorded without keys; record them again",
            recorded.name
        )));
    }
    let partitions = planned.partitions(slices as u32).map(|part| {
        let first = starts().nth(part.from.index()).map_or(&[][..], |key| key.bytes());
        // What begins a table holds its smallest keys, too.
        let first = if part.from.index() == 0 { &[] } else { first };
        (KeyBuf::from(first), WorkerId(part.owner.0 as u16))
    });
    Ok(partitions.collect())
}

/// Returns the changes by which a family gets these partitions: cuts, moves, and then joints, since only partitions of one worker are joined.
pub(super) fn changes_of(
    family: &FamilyScheme,
    table: TableId,
    wanted: &[(KeyBuf, WorkerId)],
) -> Vec<SchemeChange> {
    let cuts: Vec<&[u8]> = (1..family.partitions()).filter_map(|at| family.lower(at)).collect();
    let planned: Vec<&[u8]> = wanted.iter().skip(1).map(|(first, _)| &**first).collect();
    let owner_of = |key: &[u8]| family.owner(cuts.partition_point(|cut| *cut <= key));
    let wanted_for = |key: &[u8]| wanted[planned.partition_point(|first| *first <= key)].1;
    let splits = planned.iter().filter(|first| !cuts.contains(first));
    let splits = splits.map(|first| SchemeChange::Split { table, at: KeyBuf::from(*first) });
    let mut all: Vec<&[u8]> = std::iter::once(&[][..]).chain(cuts.iter().chain(&planned).copied()).collect();
    all.sort_unstable();
    all.dedup();
    let moved = all.iter().filter(|key| owner_of(key) != wanted_for(key));
    let moves = moved.map(|key| SchemeChange::Move { table, at: KeyBuf::from(*key), to: wanted_for(key) });
    let merges = cuts.iter().filter(|cut| !planned.contains(cut));
    let merges = merges.map(|cut| SchemeChange::Merge { table, at: KeyBuf::from(*cut) });
    splits.chain(moves).chain(merges).collect()
}
