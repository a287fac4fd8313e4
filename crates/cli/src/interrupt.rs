//! What happens when somebody presses Ctrl-C: the measurement ends with what there is so far; pressed again, or while there is
//! nothing to report yet, the process ends.
//!
//! Owns: the signal handler and its flags. Never: unwinds anything; the data is in memory and goes with the process.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::output;

/// Set by the first signal; measurements look at it.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Whether there is a measurement that looks.
static MEASURING: AtomicBool = AtomicBool::new(false);

/// The exit status of a process that ended by an interrupt, as shells report it.
const INTERRUPTED_STATUS: i32 = 130;

/// Installs the handler. Best effort: without it, Ctrl-C ends the process as always.
pub(crate) fn install() {
    let installed = ctrlc::set_handler(|| {
        let again = INTERRUPTED.swap(true, Ordering::Relaxed);
        if again || !MEASURING.load(Ordering::Relaxed) {
            std::process::exit(INTERRUPTED_STATUS);
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
