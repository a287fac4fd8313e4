//! Handling of Ctrl-C, and of the requests to end (SIGTERM, SIGHUP), which are the same: the measurement ends with the results so far;
//! at a second signal, or while there is no result to report yet, the process ends.
//!
//! Owns: the signal handler and its flags, and the removal of the temporary directories when the process ends here.
//! Never: unwinds anything; the data is temporary and goes with the process.
//!
//! Invariant: no temporary directory outlives a process that ends here. A directory is made and listed under one lock, which the end
//! takes and keeps, so that none is made later; and what is in a directory goes until it is gone itself, whatever other threads make in
//! it meanwhile. They must not make the directory itself: a database gets one inside it (`store::Store`).

#![expect(
    clippy::disallowed_types,
    reason = "no worker waits here: commands make directories, and the thread of signals ends them"
)]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

use crate::output;

/// Flag set by the first signal; measurements read it.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// True while a measurement checks the flag.
static MEASURING: AtomicBool = AtomicBool::new(false);

/// True from the moment at which a signal has begun to end the process.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The exit status of a process that ended by an interrupt, as shells report it.
const INTERRUPTED_STATUS: i32 = 130;

/// The temporary directories of this process, those that were removed already among them.
static TEMPORARY: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Number of attempts to remove a directory: files may be created in it meanwhile.
const REMOVALS: u32 = 1000;

/// Makes a temporary directory, which is removed also when a signal ends the process. Returns what `make` does.
pub(crate) fn make_temporary<E>(make: impl FnOnce() -> Result<TempDir, E>) -> Result<TempDir, E> {
    let mut all = TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = make()?;
    all.push(directory.path().to_owned());
    Ok(directory)
}

fn end_now() -> ! {
    ENDING.store(true, Ordering::SeqCst);
    // Kept up to the end.
    let all = TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner);
    for directory in &*all {
        let gone = |_| std::fs::remove_dir_all(directory).is_ok() || !directory.exists();
        let _ = (0..REMOVALS).any(gone);
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
pub fn install() {
    install_saying("interrupted: this is the result so far (once more to stop at once)");
}

/// Installs the handler with other words for the first signal.
pub fn install_saying(words: &'static str) {
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
pub fn flag() -> &'static AtomicBool {
    MEASURING.store(true, Ordering::Relaxed);
    &INTERRUPTED
}

/// Returns true if a signal has arrived.
pub fn is_set() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}
