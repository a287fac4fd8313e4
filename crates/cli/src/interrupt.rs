//! Handling of Ctrl-C, and of the requests to end (SIGTERM, SIGHUP), which are the same: the measurement ends with the results so far;
//! at a second signal, or while there is no result to report yet, the process ends.
//!
//! Owns: the signal handler and its flags, and the removal of the temporary directory when the process ends here.
//! Never: unwinds anything; the data is temporary and goes with the process.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::output;

/// Flag set by the first signal; measurements read it.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// True while a measurement checks the flag.
static MEASURING: AtomicBool = AtomicBool::new(false);

/// True from the moment at which a signal has begun to end the process.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The exit status of a process that ended by an interrupt, as shells report it.
const INTERRUPTED_STATUS: i32 = 130;

/// A directory that is removed when the process ends.
static TEMPORARY: OnceLock<PathBuf> = OnceLock::new();

/// Number of attempts to remove the directory: files may be created in it meanwhile.
const REMOVALS: u32 = 5;

/// Registers a directory for removal when a signal ends the process. A process has one at most.
pub(crate) fn remove_at_exit(directory: &Path) {
    let _ = TEMPORARY.set(directory.to_owned());
}

fn end_now() -> ! {
    ENDING.store(true, Ordering::SeqCst);
    if let Some(directory) = TEMPORARY.get() {
        let _ = (0..REMOVALS).any(|_| std::fs::remove_dir_all(directory).is_ok());
    }
    std::process::exit(INTERRUPTED_STATUS)
}

/// Waits for the end if a signal ends the process: what fails meanwhile for want of the removed directory is no failure to report.
pub(crate) fn wait_if_ending() {
    while ENDING.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// Installs the handler. Best effort: without it, Ctrl-C ends the process by the system's default.
pub(crate) fn install() {
    install_saying("interrupted: this is the result so far (once more to stop at once)");
}

/// Installs the handler with other words for the first signal.
pub(crate) fn install_saying(words: &'static str) {
    let installed = ctrlc::set_handler(move || {
        let again = INTERRUPTED.swap(true, Ordering::Relaxed);
        if again || !MEASURING.load(Ordering::Relaxed) {
            end_now();
        }
        output::complain(words);
    });
    if let Err(error) = installed {
        output::complain(&format!("warning: Ctrl-C will end the process without a result ({error})"));
    }
}

/// Returns the flag that measurements check. From now on the first signal only sets it.
pub(crate) fn flag() -> &'static AtomicBool {
    MEASURING.store(true, Ordering::Relaxed);
    &INTERRUPTED
}

/// Returns true if a signal has arrived.
pub(crate) fn is_set() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}
