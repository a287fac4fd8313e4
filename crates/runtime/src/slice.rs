//! Threads that run briefly and are waited for: the kernel gives them a processing unit soon.
//!
//! Owns: the call by which a thread requests a short slice. Never: changes a priority; the thread gets no more time than any
//! other, but sooner.
//!
//! A thread that sleeps most of the time and shares processing units with threads that never do waits for one of their slices to
//! end, some milliseconds, each time it wakes. Since Linux 6.12, a thread may request slices of its own length, and one with
//! shorter slices goes first.

/// The slice requested, in nanoseconds: the shortest that the kernel grants.
#[cfg(target_os = "linux")]
const SLICE_NS: u64 = 100_000;

/// Requests short slices for the calling thread. Best effort: returns false if the kernel refuses, which costs time only.
#[cfg(target_os = "linux")]
pub fn request_short_slices() -> bool {
    /// `struct sched_attr` of the kernel, version 0.
    #[repr(C)]
    #[derive(Default)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let mut attributes = SchedAttr { size: size_of::<SchedAttr>() as u32, ..SchedAttr::default() };
    // SAFETY: the kernel writes at most `size` bytes to the structure, which has as many, and zeros are of its policy and time.
    let read =
        unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, attributes.size, 0_u32) };
    // Only threads of the ordinary policy have slices of this kind.
    if read != 0 || attributes.policy != libc::SCHED_OTHER as u32 {
        return false;
    }
    attributes.runtime = SLICE_NS;
    // SAFETY: the kernel reads `size` bytes of the structure, which has as many.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0_u32) };
    set == 0
}

/// Requests short slices for the calling thread; this system has none.
#[cfg(not(target_os = "linux"))]
pub fn request_short_slices() -> bool {
    false
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_that_has_requested_short_slices_goes_on() {
        let requested = std::thread::spawn(super::request_short_slices).join();
        assert!(requested.is_ok());
    }
}
