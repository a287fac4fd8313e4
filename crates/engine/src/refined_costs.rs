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

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atrapos_adapt::{SYNC_FACTOR_MAX, Weights};
use atrapos_durability::file::FileSystem;
use atrapos_placement::adaptation::{CostKeeper, Learned};

/// The format that is written and read.
const FORMAT: &str = "atrapos-refined-costs 1";
/// The name of the file, and of the next one while it is written.
const COSTS: &str = "COSTS";
const COSTS_NEW: &str = "COSTS.new";
/// A longer file is none of these.
const BYTES_MAX: usize = 4096;

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
    pub fn read(files: &dyn FileSystem, dir: &Path) -> Result<Option<RefinedCosts>, String> {
        let path = dir.join(COSTS);
        let refused = |why: String| {
            let file = path.display();
            format!("{file} is not used, as {why}; the costs of synchronization are learnt again")
        };
        match read_file(files, &path) {
            Ok(bytes) => {
                let costs = std::str::from_utf8(&bytes).ok().and_then(decode);
                costs.map(Some).ok_or_else(|| refused("it is damaged".to_owned()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(refused(format!("it cannot be read ({error})"))),
        }
    }

    /// The file, as it is written.
    fn encode(&self) -> String {
        let RefinedCosts { machine, cycles_per_byte, message_bytes, exchange_cycles, factor } = self;
        let machine = machine.replace('\n', " ");
        let mut text = format!(
            "{FORMAT}\nmachine {machine}\ncycles_per_byte {cycles_per_byte}\nmessage_bytes {message_bytes}\nexchange_cycles {exchange_cycles}\nfactor {factor}\n"
        );
        let checksum = crc32fast::hash(text.as_bytes());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "checksum {checksum:08x}");
        text
    }

    /// Returns why the costs are of no use for `machine` and `weights`, as part of a sentence.
    fn unfit(&self, machine: &str, weights: &Weights) -> Option<String> {
        if self.machine != machine {
            return Some(format!("it is of another machine ({})", self.machine));
        }
        let known = RefinedCosts::new(machine, weights, self.factor);
        if known != *self {
            return Some("the database was given other costs since".to_owned());
        }
        let range = 1.0 / SYNC_FACTOR_MAX..=SYNC_FACTOR_MAX;
        (!range.contains(&self.factor)).then(|| format!("a factor of {} is out of range", self.factor))
    }
}

/// Reads the text of a file; `None` if it is damaged.
fn decode(text: &str) -> Option<RefinedCosts> {
    let (body, checksum) = text.strip_suffix('\n')?.rsplit_once("checksum ")?;
    if u32::from_str_radix(checksum, 16).ok()? != crc32fast::hash(body.as_bytes()) {
        return None;
    }
    let mut lines = body.lines();
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

fn read_file(files: &dyn FileSystem, path: &Path) -> io::Result<Vec<u8>> {
    let file = files.open(path, false)?;
    let mut bytes = vec![0; BYTES_MAX];
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// The file of a database.
#[derive(Debug)]
struct CostsFile {
    files: Arc<dyn FileSystem>,
    dir: PathBuf,
    machine: String,
    weights: Weights,
}

impl CostsFile {
    fn write(&self, factor: f64) -> io::Result<()> {
        let (path, new) = (self.dir.join(COSTS), self.dir.join(COSTS_NEW));
        match self.files.remove(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let text = RefinedCosts::new(&self.machine, &self.weights, factor).encode();
        let mut file = self.files.create(&new)?;
        file.write_and_sync(0, &[text.as_bytes()])?;
        drop(file);
        self.files.rename(&new, &path)
    }
}

impl CostKeeper for CostsFile {
    fn keep(&self, factor: f64) {
        // What is not written is learnt again.
        let _ = self.write(factor);
    }
}

/// Returns what the database in `dir` has learnt about the costs in `weights` on this machine, with where it keeps what it learns; and the reason, if something that is
/// there is not taken.
pub(crate) fn found(
    files: &Arc<dyn FileSystem>,
    dir: &Path,
    machine: String,
    weights: Weights,
) -> (Learned, Option<String>) {
    let (factor, warning) = match RefinedCosts::read(&**files, dir) {
        Ok(None) => (1.0, None),
        Ok(Some(costs)) => match costs.unfit(&machine, &weights) {
            None => (costs.factor, None),
            Some(why) => {
                let file = dir.join(COSTS);
                let sentence = format!(
                    "{} is not used, as {why}; the costs of synchronization are learnt again",
                    file.display()
                );
                (1.0, Some(sentence))
            }
        },
        Err(warning) => (1.0, Some(warning)),
    };
    let keeper = CostsFile { files: Arc::clone(files), dir: dir.to_owned(), machine, weights };
    (Learned { sync_factor: factor, keeper: Some(Arc::new(keeper)) }, warning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use atrapos_durability::file::RealFiles;

    fn files() -> Arc<dyn FileSystem> {
        Arc::new(RealFiles::new())
    }

    fn directory(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("atrapos-costs-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        dir
    }

    #[test]
    fn what_is_learnt_is_there_at_the_next_opening() {
        let (files, dir) = (files(), directory("kept"));
        let find = |machine: &str, weights: Weights| found(&files, &dir, machine.to_owned(), weights);
        let (learned, warning) = find("this one", Weights::default());
        assert_eq!((learned.sync_factor, warning), (1.0, None), "nothing is learnt yet");
        let keeper = learned.keeper.expect("it has a directory");
        for factor in [2.5, 0.1 + 0.2] {
            keeper.keep(factor);
            let (learned, warning) = find("this one", Weights::default());
            assert_eq!((learned.sync_factor, warning), (factor, None));
        }
        let (learned, warning) = find("another", Weights::default());
        assert_eq!(learned.sync_factor, 1.0);
        assert!(warning.expect("another machine").contains("it is of another machine (this one)"));
        let other = Weights { exchange_cycles: 77.0, ..Weights::default() };
        let (learned, warning) = find("this one", other);
        assert_eq!(learned.sync_factor, 1.0);
        assert!(warning.expect("other costs").contains("was given other costs since"));
        for factor in [0.0, -1.0, 0.19, 5.1] {
            keeper.keep(factor);
            let (learned, warning) = find("this one", Weights::default());
            assert_eq!(learned.sync_factor, 1.0);
            assert!(warning.expect("out of range").contains("is out of range"), "{factor}");
        }
        std::fs::remove_dir_all(dir).expect("removed");
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let (files, dir) = (files(), directory("damaged"));
        let costs = RefinedCosts::new("a machine, 2 cores", &Weights::default(), 1.5);
        let text = costs.encode();
        assert_eq!(decode(&text), Some(costs));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            std::fs::write(dir.join(COSTS), &bytes).expect("written");
            let error = RefinedCosts::read(&*files, &dir).expect_err("it is damaged");
            assert!(
                error.contains("it is damaged; the costs of synchronization are learnt again"),
                "{error}"
            );
        }
        for length in 0..text.len() {
            assert_eq!(decode(&text[..length]), None, "cut to {length}");
        }
        std::fs::remove_dir_all(dir).expect("removed");
    }
}
