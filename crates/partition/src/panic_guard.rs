//! Tells a panic of the engine from a panic of a procedure.
//!
//! A procedure that panics aborts its transaction and is reported. Code of the engine that panics in the middle of a change
//! may leave a tree or a lock table half changed, and nobody may see that: the process stops with a message.

/// Engine code is running; unwinding out of it stops the process.
pub struct PanicGuard;

impl PanicGuard {
    /// Engine code begins.
    #[inline]
    pub fn enter() -> PanicGuard {
        PanicGuard
    }

    /// The engine code is through. On this way out nothing is checked and nothing costs.
    #[inline]
    pub fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for PanicGuard {
    #[cold]
    fn drop(&mut self) {
        if std::thread::panicking() {
            stop_the_process();
        }
    }
}

#[cold]
#[expect(clippy::print_stderr, reason = "the last words of a process that cannot go on")]
fn stop_the_process() -> ! {
    eprintln!(
        "atrapos: the engine panicked inside a change (see the message above); stopping the process so that nothing half \
         changed is served. This is a bug in atrapos: please report it with that message."
    );
    std::process::abort();
}
