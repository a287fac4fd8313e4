//! What can go wrong with a channel, as kinds that tell the caller what to do.
//!
//! Owns: [`ChannelError`] and how an error of the system becomes a sentence. Never: decides whether a link is closed; the
//! channel that fails remembers its error and repeats it. Invariant: each error reads as one sentence that names the thing.

/// The ways in which a channel, or its establishment, fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// End of the peer: it has closed the link, was killed, or its machine is away. Everything that had arrived has been
    /// handed out. Connect again.
    #[error("the peer is gone: {0}")]
    Gone(String),
    /// Bytes of the peer that make no sense. The link is cut; something is broken there or between. Report it.
    #[error("the peer speaks nonsense, so the link was cut: {0}")]
    Nonsense(String),
    /// A message that is longer than any channel carries. Nothing was sent, and the link is as it was. Send less at once.
    #[error(
        "a message of {bytes} bytes is too long: a channel carries at most {max} bytes at once; send it in parts"
    )]
    TooLong {
        /// Length of the message.
        bytes: usize,
        /// Longest message that would have been taken.
        max: usize,
    },
    /// A request that the other instance, or this one, does not grant. Correct what the sentence names.
    #[error("{0}")]
    Refused(String),
    /// A peer that cannot be reached within the deadline. Try again, or see whether it runs.
    #[error("{0}")]
    Unreachable(String),
    /// A call of the operating system that has failed.
    #[error("cannot {attempt}: {reason}")]
    Io {
        /// What was attempted, as it follows "cannot".
        attempt: String,
        /// What the system said.
        reason: String,
    },
}

impl ChannelError {
    /// The error of a system call that failed in an attempt, as it follows "cannot".
    #[cfg(not(loom))]
    pub(crate) fn io(attempt: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Io { attempt: attempt.into(), reason: reason.to_string() }
    }
}

/// The system call's result with an error that says what was attempted.
#[cfg(not(loom))]
pub(crate) trait Attempt<T> {
    /// Turns an error into a sentence that begins with "cannot" and the attempt.
    fn attempt(self, attempt: &str) -> Result<T, ChannelError>;
}

#[cfg(not(loom))]
impl<T, E: std::fmt::Display> Attempt<T> for Result<T, E> {
    fn attempt(self, attempt: &str) -> Result<T, ChannelError> {
        self.map_err(|error| ChannelError::io(attempt, error))
    }
}
