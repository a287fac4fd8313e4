//! What happens when somebody presses Ctrl-C: the measurement ends with what there is so far; pressed again, or while there is
//! nothing to report yet, the process ends.
//!
//! Owns: the signal handler and its flags, and the removal of the temporary directory when the process ends here. Never:
//! unwinds anything; the data is temporary and goes with the process.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::output;

/// Set by the first signal; measurements look at it.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Whether there is a measurement that looks.
static MEASURING: AtomicBool = AtomicBool::new(false);

/// The exit status of a process that ended by an interrupt, as shells report it.
const INTERRUPTED_STATUS: i32 = 130;

/// A directory that goes with the process.
static TEMPORARY: OnceLock<PathBuf> = OnceLock::new();

/// How often the removal of the directory is tried: files may come into it meanwhile.
const REMOVALS: u32 = 5;

/// Has a directory removed when a signal ends the process. A process has one at most.
pub(crate) fn remove_at_exit(directory: &Path) {
    let _ = TEMPORARY.set(directory.to_owned());
}

fn end_now() -> ! {
    if let Some(directory) = TEMPORARY.get() {
        let _ = (0..REMOVALS).any(|_| std::fs::remove_dir_all(directory).is_ok());
    }
    std::process::exit(INTERRUPTED_STATUS)
}

/// Installs the handler. Best effort: without it, Ctrl-C ends the process as always.
pub(crate) fn install() {
    let installed = ctrlc::set_handler(|| {
        let again = INTERRUPTED.swap(true, Ordering::Relaxed);
        if again || !MEASURING.load(Ordering::Relaxed) {
            end_now();
        }
        output::complain("interrupted: this is the result so far (once more to stop at once)");
    });
    if let Err(error) = installed {
        output::complain(&format!("warning: Ctrl-C will end the process without a result ({error})"));
    }
}

/// The flag for measurements to look at. From now on the first signal only sets it.
pub(crate) fn flag() -> &'static AtomicBool {
    MEASURING.store(true, Ordering::Relaxed);
    &INTERRUPTED
}

/// Whether a signal has come.
pub(crate) fn is_set() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}
