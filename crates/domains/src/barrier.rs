//! Two fences that pair with each other, of which the frequent one costs nothing.
//!
//! Owns: the registration with the kernel and the two halves. A client publishes a request and then reads whether the worker
//! sleeps; a worker says that it sleeps and then reads whether there are requests. Without a fence between store and
//! load on both sides, both may miss the other. The client's side runs once per request: a fence there would hold up every
//! store that is under way to another core. So the worker, about to sleep, asks the kernel to make all running threads of
//! this process pass a fence (`membarrier`), and the client's half only keeps the compiler from reordering. Where the kernel
//! refuses, both halves are ordinary fences.
//!
//! Why the unsafe code is sound: the call takes three numbers and touches no memory of ours.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, compiler_fence};

use crate::planted::{Bug, planted};
use crate::sync::{Ordering, fence};

/// Set once the kernel has agreed.
#[cfg(not(loom))]
static BY_KERNEL: AtomicBool = AtomicBool::new(false);

/// Asks the kernel for the asymmetric pair. Before it, where it is refused, and in models, both halves are ordinary fences.
pub(crate) fn register() {
    #[cfg(not(loom))]
    if membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
        && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    {
        BY_KERNEL.store(true, Ordering::SeqCst);
    }
}

#[cfg(not(loom))]
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call reads and writes no memory of this process; unknown commands are refused with an error.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// The half of whoever publishes often.
#[inline(always)]
pub(crate) fn light() {
    #[cfg(not(loom))]
    if BY_KERNEL.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
        return;
    }
    if planted(Bug::PublishWithoutBarrier) {
        return;
    }
    fence(Ordering::SeqCst);
}

/// The half of whoever is about to sleep.
pub(crate) fn heavy() {
    fence(Ordering::SeqCst);
    #[cfg(not(loom))]
    if BY_KERNEL.load(Ordering::Relaxed) {
        // It was accepted once, so it is accepted always; a refusal would be a bug of the kernel.
        assert!(membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED), "the kernel took its barrier back");
    }
}
