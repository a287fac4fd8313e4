//! A guard that distinguishes panics of the engine from panics of procedures.
//!
//! A procedure that panics aborts its transaction and is reported. Code of the engine that panics in the middle of a
//! change may leave a tree or a lock table half changed, which no transaction may see: the process stops with a
//! message.

/// Marks running engine code; unwinding out of it stops the process.
pub struct PanicGuard;

impl PanicGuard {
    /// Enters engine code.
    #[inline]
    pub fn enter() -> PanicGuard {
        PanicGuard
    }

    /// Leaves engine code normally, which costs nothing.
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
