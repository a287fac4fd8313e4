//! Processing units that a thread may run on: reading the affinity mask, pinning, unpinning.
//!
//! Owns: the calls to `sched_getaffinity` and `sched_setaffinity`, and the sentences that describe their refusals.
//!
//! Never: decides which worker belongs on which processing unit (that is the machine model's placement), and never
//! panics. A container or a kernel may refuse to pin a thread; that is an error value which the caller reports once as
//! a warning, and the thread goes on unpinned.
//!
//! Invariants: processing units are named by the operating system's number (the `N` of `/sys/devices/system/cpu/cpuN`).
//! Masks are read and written at whatever length the kernel uses, so machines with more than the 1,024 processing units
//! of the C library's fixed-size set work. Nothing here is cached: every call asks the kernel.

use std::fmt;
use std::io;

/// The largest processing-unit number that is ever passed to the kernel (2^20 - 1; Linux supports at most 8,192 today).
pub const CPU_NUMBER_MAX: usize = (1 << 20) - 1;

/// Reasons for which a thread could not be pinned, or its affinity mask could not be read.
///
/// Every variant is an operating condition, never a bug: the cure is to go on without pinning.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PinError {
    /// The processing unit does not exist, is offline, or lies outside the cpuset of this process (`EINVAL`).
    CpuUnavailable {
        /// The processing units that were asked for.
        cpus: Vec<usize>,
    },
    /// The kernel or a container's filter refused the call itself (`EPERM`, `ENOSYS`, ...).
    Refused {
        /// The processing units that were asked for; empty when the mask was only to be read.
        cpus: Vec<usize>,
        /// The error number of the refused call.
        errno: i32,
    },
    /// A processing-unit number beyond [`CPU_NUMBER_MAX`].
    CpuNumberTooLarge {
        /// The number that was asked for.
        cpu: usize,
    },
    /// An empty set of processing units: a thread has to run somewhere.
    NoCpus,
    /// The operating system has no call to pin a thread.
    Unsupported,
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CpuUnavailable { cpus } => write!(
                f,
                "cannot pin a thread to {}: offline, absent or outside the cpuset of this process; \
                 choose among the processing units of the affinity mask or switch pinning off",
                CpuWords(cpus)
            ),
            Self::Refused { cpus, errno } if cpus.is_empty() => write!(
                f,
                "cannot read the affinity mask: {}; going on without pinning",
                io::Error::from_raw_os_error(*errno)
            ),
            Self::Refused { cpus, errno } => write!(
                f,
                "the kernel refuses to pin a thread to {}: {}; allow sched_setaffinity or switch pinning off",
                CpuWords(cpus),
                io::Error::from_raw_os_error(*errno)
            ),
            Self::CpuNumberTooLarge { cpu } => write!(
                f,
                "cannot pin a thread to cpu {cpu}: processing units are numbered up to {CPU_NUMBER_MAX}"
            ),
            Self::NoCpus => {
                f.write_str("cannot pin a thread to an empty set of processing units: name at least one")
            }
            Self::Unsupported => {
                f.write_str("this operating system cannot pin threads: going on without pinning")
            }
        }
    }
}

impl std::error::Error for PinError {}

/// Names a set of processing units in a sentence without flooding it.
struct CpuWords<'a>(&'a [usize]);

impl fmt::Display for CpuWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [cpu] => write!(f, "cpu {cpu}"),
            [first, .., last] => write!(f, "{} cpus ({first} to {last})", self.0.len()),
            [] => f.write_str("no cpu"),
        }
    }
}

/// Pins the calling thread to one processing unit, given by the operating system's number.
///
/// # Errors
/// A [`PinError`] when the processing unit is not available to this process or the kernel refuses; the thread's
/// affinity is then what it was before.
pub fn pin_current_thread(cpu: usize) -> Result<(), PinError> {
    set_current_thread_cpus(&[cpu])
}

/// Lets the calling thread run on exactly the given processing units (order and repetition do not matter).
///
/// The kernel itself intersects the set with the cpuset; only an empty intersection is an error.
///
/// # Errors
/// A [`PinError`] when no given processing unit is available or the kernel refuses; the thread's affinity is then
/// what it was before.
pub fn set_current_thread_cpus(cpus: &[usize]) -> Result<(), PinError> {
    set_thread_cpus(CALLING_THREAD, cpus)
}

/// The number that the system gives the calling thread, by which [`thread_cpus`] and [`set_thread_cpus`] name it; `None` where the
/// operating system has no such numbers.
#[must_use]
pub fn current_thread_number() -> Option<u32> {
    os::thread_number()
}

/// The processing units that a thread of this process may run on, ascending.
///
/// # Errors
/// As [`current_thread_cpus`]; also for a thread that has ended.
pub fn thread_cpus(thread: u32) -> Result<Vec<usize>, PinError> {
    os::affinity(thread)
}

/// Lets a thread of this process run on exactly the given processing units, as [`set_current_thread_cpus`] does for the calling one: for
/// a thread that cannot do so itself, because it gets no processing unit.
///
/// # Errors
/// As [`set_current_thread_cpus`]; also for a thread that has ended.
pub fn set_thread_cpus(thread: u32, cpus: &[usize]) -> Result<(), PinError> {
    if cpus.is_empty() {
        return Err(PinError::NoCpus);
    }
    if let Some(&cpu) = cpus.iter().find(|&&cpu| cpu > CPU_NUMBER_MAX) {
        return Err(PinError::CpuNumberTooLarge { cpu });
    }
    os::set_affinity(thread, cpus)
}

/// The number by which the kernel knows the calling thread, whichever it is.
const CALLING_THREAD: u32 = 0;

/// Undoes pinning: the calling thread may again run on every processing unit its cpuset allows.
///
/// The kernel intersects the request with the cpuset, so this also widens a mask that was narrowed before the process
/// started (by `taskset`, for one). Use [`Affinity::restore`] to return to the earlier mask instead.
///
/// # Errors
/// A [`PinError`] when the kernel refuses; the thread's affinity is then what it was before.
pub fn unpin_current_thread() -> Result<(), PinError> {
    os::set_affinity_to_all()
}

/// The processing units the calling thread may run on, ascending.
///
/// For a thread that was never pinned this is the affinity mask of the process: the set the machine model is to be
/// built for.
///
/// # Errors
/// [`PinError::Refused`] when the kernel refuses, [`PinError::Unsupported`] where the operating system has no such call.
pub fn current_thread_cpus() -> Result<Vec<usize>, PinError> {
    thread_cpus(CALLING_THREAD)
}

/// An affinity mask remembered in order to return to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Affinity {
    cpus: Vec<usize>,
}

impl Affinity {
    /// Remembers the calling thread's present mask.
    ///
    /// # Errors
    /// As [`current_thread_cpus`].
    pub fn of_current_thread() -> Result<Self, PinError> {
        current_thread_cpus().map(|cpus| Self { cpus })
    }

    /// The remembered processing units, ascending.
    #[must_use]
    pub fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// Gives the calling thread the remembered mask.
    ///
    /// # Errors
    /// As [`set_current_thread_cpus`].
    pub fn restore(&self) -> Result<(), PinError> {
        set_current_thread_cpus(&self.cpus)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod os {
    //! The Linux calls. A mask is an array of C `unsigned long`, bit `n % BITS` of word `n / BITS` being cpu `n`.

    use super::{CALLING_THREAD, CPU_NUMBER_MAX, PinError};
    use std::io;

    type Word = libc::c_ulong;
    const WORD_BITS: usize = Word::BITS as usize;
    const WORDS_MAX: usize = CPU_NUMBER_MAX.div_ceil(WORD_BITS);
    /// 1,024 processing units: what the C library's fixed-size set holds, and enough for nearly every kernel.
    const WORDS_INITIAL: usize = 1024 / WORD_BITS;

    pub(super) fn thread_number() -> Option<u32> {
        // SAFETY: the call takes nothing and cannot fail.
        u32::try_from(unsafe { libc::gettid() }).ok()
    }

    pub(super) fn affinity(thread: u32) -> Result<Vec<usize>, PinError> {
        read_mask(thread).map(|words| members(&words))
    }

    pub(super) fn set_affinity(thread: u32, cpus: &[usize]) -> Result<(), PinError> {
        let highest = cpus.iter().copied().max().unwrap_or(0);
        let mut words: Vec<Word> = vec![0; highest / WORD_BITS + 1];
        for &cpu in cpus {
            words[cpu / WORD_BITS] |= 1 << (cpu % WORD_BITS);
        }
        write_mask(thread, &words).map_err(|errno| match errno {
            libc::EINVAL => PinError::CpuUnavailable { cpus: cpus.to_vec() },
            errno => PinError::Refused { cpus: cpus.to_vec(), errno },
        })
    }

    pub(super) fn set_affinity_to_all() -> Result<(), PinError> {
        // The kernel ignores the bits beyond its own mask length, so every bit may be set: it keeps those that exist.
        // 16 pages cover more processing units than Linux can be configured for.
        let words: Vec<Word> = vec![Word::MAX; 8192 / size_of::<Word>()];
        write_mask(CALLING_THREAD, &words).map_err(|errno| PinError::Refused { cpus: Vec::new(), errno })
    }

    fn read_mask(thread: u32) -> Result<Vec<Word>, PinError> {
        let mut words: Vec<Word> = vec![0; WORDS_INITIAL];
        loop {
            let bytes = size_of_val(words.as_slice());
            let set = words.as_mut_ptr().cast::<libc::cpu_set_t>();
            // SAFETY: the buffer is valid for writes of `bytes` bytes and aligned for `unsigned long`, which is what
            // the kernel writes; the number of a thread that does not exist is refused. The C library's wrapper only forwards the pointer.
            let result = unsafe { libc::sched_getaffinity(thread.cast_signed(), bytes, set) };
            if result == 0 {
                return Ok(words);
            }
            let errno = last_errno();
            // EINVAL: the kernel's mask is longer than the buffer.
            if errno == libc::EINVAL && words.len() < WORDS_MAX {
                words.resize(words.len() * 2, 0);
            } else {
                return Err(PinError::Refused { cpus: Vec::new(), errno });
            }
        }
    }

    fn write_mask(thread: u32, words: &[Word]) -> Result<(), i32> {
        let bytes = size_of_val(words);
        let set = words.as_ptr().cast::<libc::cpu_set_t>();
        // SAFETY: the buffer is valid for reads of `bytes` bytes; the kernel copies the mask before it
        // returns, and refuses the number of a thread that does not exist.
        let result = unsafe { libc::sched_setaffinity(thread.cast_signed(), bytes, set) };
        if result == 0 { Ok(()) } else { Err(last_errno()) }
    }

    fn members(words: &[Word]) -> Vec<usize> {
        let mut cpus = Vec::new();
        for (index, &word) in words.iter().enumerate() {
            let mut rest = word;
            while rest != 0 {
                cpus.push(index * WORD_BITS + rest.trailing_zeros() as usize);
                rest &= rest - 1;
            }
        }
        cpus
    }

    fn last_errno() -> i32 {
        io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod os {
    //! Operating systems without a call to pin a thread: every request is refused politely.

    use super::PinError;

    pub(super) fn thread_number() -> Option<u32> {
        None
    }

    pub(super) fn affinity(_thread: u32) -> Result<Vec<usize>, PinError> {
        Err(PinError::Unsupported)
    }

    pub(super) fn set_affinity(_thread: u32, _cpus: &[usize]) -> Result<(), PinError> {
        Err(PinError::Unsupported)
    }

    pub(super) fn set_affinity_to_all() -> Result<(), PinError> {
        Err(PinError::Unsupported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs on a thread of its own, so that no other test finds itself pinned.
    fn on_own_thread<R: Send>(body: impl FnOnce() -> R + Send) -> R {
        std::thread::scope(|scope| scope.spawn(body).join().expect("the body does not panic"))
    }

    #[test]
    fn pinning_unpinning_and_restoring() {
        on_own_thread(|| {
            // Where the kernel refuses to tell or to pin, refusing politely is all there is to test.
            let Ok(before) = Affinity::of_current_thread() else { return };
            assert!(!before.cpus().is_empty());
            assert!(before.cpus().windows(2).all(|pair| pair[0] < pair[1]), "ascending");
            for &cpu in before.cpus() {
                match pin_current_thread(cpu) {
                    Ok(()) => assert_eq!(current_thread_cpus(), Ok(vec![cpu])),
                    Err(error) => assert!(matches!(error, PinError::Refused { .. }), "{error}"),
                }
            }
            if before.restore().is_ok() {
                assert_eq!(Affinity::of_current_thread(), Ok(before.clone()));
            }
            if unpin_current_thread().is_ok() {
                let all = current_thread_cpus().expect("it was told before");
                assert!(before.cpus().iter().all(|cpu| all.contains(cpu)));
            }
        });
    }

    #[test]
    fn another_thread_is_pinned_by_its_number() {
        let (numbers, number) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            numbers.send(current_thread_number()).expect("it is waited for");
            let _ = ended.recv();
            current_thread_cpus()
        });
        // Where threads have no numbers there is nothing to pin them by.
        let Some(number) = number.recv().expect("it is sent") else { return };
        let mine = current_thread_cpus();
        let Ok(all) = thread_cpus(number) else { return };
        let last = all[all.len() - 1];
        let pinned = set_thread_cpus(number, &[last]);
        assert_eq!(current_thread_cpus(), mine, "the calling thread is as before");
        drop(end);
        let seen = thread.join().expect("it does not panic");
        if pinned.is_ok() {
            assert_eq!(seen, Ok(vec![last]));
        }
        assert!(thread_cpus(u32::MAX).is_err(), "there is no such thread");
        assert_eq!(set_thread_cpus(number, &[]), Err(PinError::NoCpus));
    }

    #[test]
    fn what_cannot_be_pinned_is_an_error_and_changes_nothing() {
        on_own_thread(|| {
            let before = current_thread_cpus();
            let absent = pin_current_thread(CPU_NUMBER_MAX).expect_err("no such cpu");
            assert!(absent.to_string().contains(&CPU_NUMBER_MAX.to_string()), "{absent}");
            assert_eq!(pin_current_thread(usize::MAX), Err(PinError::CpuNumberTooLarge { cpu: usize::MAX }));
            assert_eq!(set_current_thread_cpus(&[]), Err(PinError::NoCpus));
            assert_eq!(current_thread_cpus(), before);
        });
    }

    #[test]
    fn errors_are_sentences_with_a_cure() {
        let refused = PinError::Refused { cpus: vec![1, 2, 3], errno: 1 };
        assert!(refused.to_string().contains("3 cpus (1 to 3)"), "{refused}");
        assert!(refused.to_string().contains("switch pinning off"), "{refused}");
        let unread = PinError::Refused { cpus: Vec::new(), errno: 38 };
        assert!(unread.to_string().contains("cannot read the affinity mask"), "{unread}");
        let unavailable = PinError::CpuUnavailable { cpus: vec![7] };
        assert!(unavailable.to_string().contains("cpu 7"), "{unavailable}");
    }
}
