//! Costs of synchronization as a database has learnt them: the file `COSTS` in its directory.
//!
//! The controller compares what changes of the scheme brought with what was predicted, and so learns by which factor synchronization is dearer or cheaper than
//! the costs it was given ([measured](crate::sync_costs_file) or the defaults). The factor is written each time it has been learnt anew, by the adapting thread, and taken
//! at the next opening. So nothing is left to write when the database closes.
//!
//! Owns: the format `atrapos-refined-costs 1`, lines of a name and a value with a checksum in the last one, and the file. Never: learns.
//!
//! Invariants: costs of another machine, of other given costs, out of range or damaged are not taken, and a sentence says so; nothing
//! else depends on the file, and a failure to write it is none of the database.

use std::path::Path;
use std::sync::Arc;

use std::ops::RangeInclusive;

use atrapos_adapt::Weights;
use atrapos_durability::file::FileSystem;
use atrapos_durability::memo::{COSTS, Memo, MemoError};

/// The format that is written and read.
const FORMAT: &str = "atrapos-refined-costs 1";

/// Costs of synchronization that a database was given, and what it has learnt about them.
#[derive(Debug, Clone, PartialEq)]
pub struct RefinedCosts {
    /// The machine, as [`sync_costs_machine`](crate::sync_costs_machine) describes it.
    pub machine: String,
    /// The given cycles per byte and unit of distance.
    pub cycles_per_byte: f64,
    /// The given bytes of the messages of a synchronization.
    pub message_bytes: f64,
    /// The given cycles of a synchronization, besides its bytes.
    pub exchange_cycles: f64,
    /// The factor on these costs.
    pub factor: f64,
}

impl RefinedCosts {
    fn new(machine: &str, weights: &Weights, factor: f64) -> RefinedCosts {
        let Weights { cycles_per_byte, message_bytes, exchange_cycles, .. } = *weights;
        RefinedCosts { machine: machine.to_owned(), cycles_per_byte, message_bytes, exchange_cycles, factor }
    }

    /// Reads what the database in the directory `dir` has learnt; `None` if it has learnt nothing.
    ///
    /// # Errors
    /// A sentence that names the file, if it is damaged or cannot be read.
    pub fn read(files: &Arc<dyn FileSystem>, dir: &Path) -> Result<Option<RefinedCosts>, String> {
        let memo = Memo::new(files, dir, COSTS);
        read_memo(&memo).map_err(|why| not_used(&memo, &why))
    }

    /// The lines of the memo.
    fn encode(&self) -> String {
        let RefinedCosts { machine, cycles_per_byte, message_bytes, exchange_cycles, factor } = self;
        let machine = machine.replace('\n', " ");
        format!(
            "{FORMAT}\nmachine {machine}\ncycles_per_byte {cycles_per_byte}\nmessage_bytes {message_bytes}\nexchange_cycles {exchange_cycles}\nfactor {factor}\n"
        )
    }

    /// Returns why the costs are of no use for `machine` and `weights`, or the factor is none of `factors`, as part of a sentence.
    fn unfit(&self, machine: &str, weights: &Weights, factors: &RangeInclusive<f64>) -> Option<String> {
        if self.machine != machine {
            return Some(format!("it is of another machine ({})", self.machine));
        }
        let known = RefinedCosts::new(machine, weights, self.factor);
        if known != *self {
            return Some("the database was given other costs since".to_owned());
        }
        (!factors.contains(&self.factor)).then(|| format!("a factor of {} is out of range", self.factor))
    }
}

/// Returns why a memo is not used, as a sentence.
fn not_used(memo: &Memo, why: &str) -> String {
    format!("{} is not used, as {why}; the costs of synchronization are learnt again", memo.path().display())
}

/// Reads a memo.
///
/// # Errors
/// The reason for which it is not used, as part of a sentence.
fn read_memo(memo: &Memo) -> Result<Option<RefinedCosts>, String> {
    let text = memo.read().map_err(|error| error.to_string())?;
    text.map(|text| decode(&text).ok_or_else(|| MemoError::Damaged.to_string())).transpose()
}

/// Reads the lines of a memo; `None` if they are none of this format.
fn decode(text: &str) -> Option<RefinedCosts> {
    let mut lines = text.lines();
    if lines.next()? != FORMAT {
        return None;
    }
    let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let machine = value("machine")?.to_owned();
    let mut number = |name: &str| value(name)?.parse::<f64>().ok().filter(|number| number.is_finite());
    Some(RefinedCosts {
        machine,
        cycles_per_byte: number("cycles_per_byte")?,
        message_bytes: number("message_bytes")?,
        exchange_cycles: number("exchange_cycles")?,
        factor: number("factor")?,
    })
}

/// The memo of a database, and what the costs in it are of.
#[derive(Debug)]
pub(crate) struct CostsMemo {
    memo: Memo,
    machine: String,
    weights: Weights,
    /// Factors that can be.
    factors: RangeInclusive<f64>,
}

impl CostsMemo {
    /// Returns the memo in `dir` of what is learnt about the costs in `weights` on this machine: one of `factors`.
    pub(crate) fn new(
        files: &Arc<dyn FileSystem>,
        dir: &Path,
        machine: String,
        weights: Weights,
        factors: RangeInclusive<f64>,
    ) -> CostsMemo {
        CostsMemo { memo: Memo::new(files, dir, COSTS), machine, weights, factors }
    }

    /// Returns the factor that was learnt, 1 if none was; and the reason, if something that is there is not taken.
    pub(crate) fn found(&self) -> (f64, Option<String>) {
        let factor = read_memo(&self.memo).and_then(|costs| {
            let Some(costs) = costs else { return Ok(1.0) };
            costs.unfit(&self.machine, &self.weights, &self.factors).map_or(Ok(costs.factor), Err)
        });
        factor.map_or_else(|why| (1.0, Some(not_used(&self.memo, &why))), |factor| (factor, None))
    }

    /// Writes what was learnt. What cannot be written is learnt again.
    pub(crate) fn write(&self, factor: f64) {
        let _ = self.memo.write(&RefinedCosts::new(&self.machine, &self.weights, factor).encode());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atrapos_adapt::Rules;
    use atrapos_durability::file::RealFiles;

    #[test]
    fn what_is_learnt_is_there_at_the_next_opening() {
        let files: Arc<dyn FileSystem> = Arc::new(RealFiles::new());
        let dir = std::env::temp_dir().join(format!("atrapos-costs-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let memo = |machine: &str, weights| {
            CostsMemo::new(&files, &dir, machine.to_owned(), weights, Rules::default().sync_factors())
        };
        let here = memo("this one", Weights::default());
        assert_eq!(here.found(), (1.0, None), "nothing is learnt yet");
        for factor in [2.5, 0.1 + 0.2] {
            here.write(factor);
            assert_eq!(here.found(), (factor, None));
        }
        let refused = |memo: &CostsMemo, why: &str| {
            let (factor, warning) = memo.found();
            assert_eq!(factor, 1.0);
            assert!(warning.clone().expect("a reason").contains(why), "{warning:?}");
        };
        refused(&memo("another", Weights::default()), "it is of another machine (this one)");
        let other = Weights { exchange_cycles: 77.0, ..Weights::default() };
        refused(&memo("this one", other), "was given other costs since");
        for factor in [0.0, -1.0, 0.19, 5.1] {
            here.write(factor);
            refused(&here, "is out of range");
        }
        let lines = RefinedCosts::new("this one", &Weights::default(), 1.5).encode();
        for line in lines.lines() {
            here.memo.write(&lines.replace(&format!("{line}\n"), "")).expect("written");
            refused(
                &here,
                "COSTS is not used, as it is damaged; the costs of synchronization are learnt again",
            );
        }
        std::fs::remove_dir_all(dir).expect("removed");
    }
}
