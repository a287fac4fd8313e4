//! Threads that run briefly and are waited for: the kernel gives them a processing unit soon.
//!
//! Owns: the calls by which a thread requests a short slice, and asks whether the kernel grants them. Never: changes a priority; the thread gets no more time than any
//! other, but sooner.
//!
//! A thread that sleeps most of the time and shares processing units with threads that never do waits for one of their slices to
//! end, some milliseconds, each time it wakes. Since Linux 6.12, a thread may request slices of its own length, and one with
//! shorter slices goes first.

/// The slice requested, in nanoseconds: the shortest that the kernel grants.
#[cfg(target_os = "linux")]
const SLICE_NS: u64 = 100_000;

/// `struct sched_attr` of the kernel, version 0.
#[cfg(target_os = "linux")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

#[cfg(target_os = "linux")]
impl SchedAttr {
    /// Reads those of the calling thread; `None` if the kernel does not tell.
    fn of_this_thread() -> Option<SchedAttr> {
        let mut attributes = SchedAttr { size: size_of::<SchedAttr>() as u32, ..SchedAttr::default() };
        // SAFETY: the kernel writes at most `size` bytes to the structure, which has as many; any bytes are numbers.
        let read =
            unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, attributes.size, 0_u32) };
        (read == 0).then_some(attributes)
    }
}

/// Requests short slices for the calling thread. Best effort: without them the thread is slower and nothing else.
#[cfg(target_os = "linux")]
pub fn request_short_slices() {
    // Only threads of the ordinary policy have slices of this kind.
    let Some(attributes) = SchedAttr::of_this_thread().filter(|now| now.policy == libc::SCHED_OTHER as u32)
    else {
        return;
    };
    let requested = SchedAttr { runtime: SLICE_NS, ..attributes };
    // SAFETY: the kernel reads `size` bytes of the structure, which has as many.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const requested, 0_u32) };
}

/// Returns true if the kernel grants short slices to threads like the calling one.
#[cfg(target_os = "linux")]
#[must_use]
pub fn are_granted() -> bool {
    // Kernels before 6.12 do not tell the slice of a thread of the ordinary policy.
    SchedAttr::of_this_thread().is_some_and(|now| now.policy == libc::SCHED_OTHER as u32 && now.runtime > 0)
}

/// Requests short slices for the calling thread; this system has none.
#[cfg(not(target_os = "linux"))]
pub fn request_short_slices() {}

/// Returns false: this system has no short slices.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn are_granted() -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_the_slice_is_changed_and_only_if_the_kernel_has_them() {
        let thread = std::thread::spawn(|| {
            let before = SchedAttr::of_this_thread();
            request_short_slices();
            (before, SchedAttr::of_this_thread(), are_granted())
        });
        let (before, after, granted) = thread.join().expect("the thread ends");
        let (Some(before), Some(after)) = (before, after) else { return };
        assert_eq!(after, SchedAttr { runtime: after.runtime, ..before });
        // Kernels before 6.12 ignore the request, and tell nothing of the slice.
        assert!([before.runtime, SLICE_NS].contains(&after.runtime), "{before:?} {after:?}");
        assert_eq!(granted, after.runtime == SLICE_NS, "{after:?}");
    }
}
