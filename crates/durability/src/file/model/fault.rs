//! Faults of the model: their kinds, and the calls that they strike.

use std::io;

/// Kinds of calls to the file layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is the method of `FileSystem` or `File` of that name")]
pub enum CallKind {
    Create,
    Open,
    Rename,
    Remove,
    CreateDir,
    RemoveDir,
    List,
    SyncDir,
    Lock,
    Len,
    Read,
    Write,
    Sync,
    Reserve,
    Truncate,
}

/// Kinds of failure of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The device fails: nothing is changed, except that a failed sync loses what it was to make durable. Any call.
    Eio,
    /// No room is left. Strikes calls that may need room: creating, renaming, writing, reserving.
    NoSpace,
    /// Half of the bytes are written, then the device fails. Writes only.
    ShortWrite,
    /// A sync of a file or directory fails. Of the unsynced bytes some are durable and the others lost, the last ones
    /// always, and no later sync brings them back although they can still be read.
    SyncFails,
}

impl FaultKind {
    pub(super) fn can_hit(self, call: CallKind) -> bool {
        match self {
            FaultKind::Eio => true,
            FaultKind::NoSpace => matches!(
                call,
                CallKind::Create
                    | CallKind::CreateDir
                    | CallKind::Rename
                    | CallKind::Lock
                    | CallKind::Write
                    | CallKind::Reserve
            ),
            FaultKind::ShortWrite => call == CallKind::Write,
            FaultKind::SyncFails => matches!(call, CallKind::Sync | CallKind::SyncDir),
        }
    }
}

/// Number of times that a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// The first call it can hit.
    Once,
    /// Every call it can hit from then on.
    Forever,
}

/// A fault to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The call from which on it strikes, counted from now: 1 is the next one. The first such call that `kind` can hit
    /// fails.
    pub at: u64,
    /// Count, and hit, only calls of this kind; `None` for all.
    pub calls: Option<CallKind>,
    /// The kind of failure.
    pub kind: FaultKind,
    /// Number of times that it strikes.
    pub times: Times,
}

/// The error of every call after the crash asked for by [`ModelFiles::crash_at`](super::ModelFiles::crash_at).
#[derive(Debug, thiserror::Error)]
#[error("the machine has crashed, as the test asked; look at what is left with `power_cut` or `kill`")]
pub(super) struct Crashed;

/// Returns whether an error is the crash asked for by [`ModelFiles::crash_at`](super::ModelFiles::crash_at).
#[must_use]
pub fn is_crash(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Crashed>)
}

/// The end prescribed for a call.
pub(super) enum Verdict {
    Goes,
    Fails(FaultKind, io::Error),
}

pub(super) fn eio() -> io::Error {
    rustix::io::Errno::IO.into()
}

pub(super) fn no_space() -> io::Error {
    rustix::io::Errno::NOSPC.into()
}
