//! The messages between clients and instances: calls of stored procedures, and the answers.
//!
//! A message is a byte with the version, [`VERSION`], and a [`Request`] or [`Reply`] as `postcard` writes it
//! (`docs/procedure-format.md`).
//!
//! Owns: these messages, and errors as data. Never: sends one, or runs a procedure.

use atrapos::{Abort, AbortReason, CallError};
use serde::{Deserialize, Serialize};

/// The version of the messages.
const VERSION: u8 = 1;

/// A call.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request<'a> {
    /// The number of the call, which its answer bears.
    pub(crate) id: u64,
    /// The name of the procedure.
    pub(crate) name: &'a str,
    /// Its encoded arguments.
    pub(crate) arguments: &'a [u8],
}

/// The answer to a call.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// The number of the call.
    pub(crate) id: u64,
    pub(crate) outcome: Outcome,
}

/// The outcome of a call.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The transaction has committed, with this encoded result.
    Done(Vec<u8>),
    /// Nothing was run: the instance of this number owns the home key.
    Elsewhere(u16),
    /// Nothing has changed, for this reason.
    Failed(Failure),
    /// The transaction has committed, but its result is too long to be sent.
    ResultTooLong {
        /// The length of the result.
        bytes: u64,
    },
    /// The last word to a client that has sent no call: the end of a sentence that begins with the client.
    Cut(String),
}

/// A [`CallError`] as data.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Failure {
    Unknown {
        name: String,
        known: String,
    },
    Version(u8),
    Arguments(String),
    Encoding(String),
    /// The place of the reason in [`AbortReason::ALL`], and its sentence.
    Aborted(u8, String),
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        match error {
            CallError::Unknown { name, known } => Failure::Unknown { name, known },
            CallError::Version(version) => Failure::Version(version),
            CallError::Arguments(why) => Failure::Arguments(why),
            CallError::Encoding(why) => Failure::Encoding(why),
            CallError::Aborted(abort) => Failure::Aborted(abort.reason() as u8, abort.detail().to_owned()),
        }
    }
}

impl Failure {
    /// Returns the error; `None` if a reason has no name here.
    pub(crate) fn into_error(self) -> Option<CallError> {
        Some(match self {
            Failure::Unknown { name, known } => CallError::Unknown { name, known },
            Failure::Version(version) => CallError::Version(version),
            Failure::Arguments(why) => CallError::Arguments(why),
            Failure::Encoding(why) => CallError::Encoding(why),
            Failure::Aborted(reason, why) => {
                let reason = *AbortReason::ALL.get(usize::from(reason))?;
                CallError::Aborted(Abort::explained(reason, why))
            }
        })
    }
}

/// Writes a message.
pub(crate) fn write(message: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(message, vec![VERSION]).expect("a message has nothing that cannot be encoded")
}

/// Reads a message.
///
/// # Errors
/// The end of a sentence that begins with who has sent it.
pub(crate) fn read<'a, M: Deserialize<'a>>(bytes: &'a [u8]) -> Result<M, String> {
    match bytes.split_first() {
        Some((&VERSION, message)) => match postcard::take_from_bytes(message) {
            Ok((message, [])) => Ok(message),
            _ => Err("a message of it cannot be read".to_owned()),
        },
        Some((version, _)) => Err(format!(
            "it speaks version {version} of calls, and this program version {VERSION}; use the same version of the program on both sides"
        )),
        None => Err("a message of it is empty".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_their_bytes_are_a_promise() {
        let request = Request { id: 300, name: "a.b", arguments: &[1, 7] };
        assert_eq!(write(&request), [1, 0xac, 2, 3, b'a', b'.', b'b', 2, 1, 7]);
        assert_eq!(read(&write(&request)), Ok(request));
        let reply = |outcome| Reply { id: 5, outcome };
        for (outcome, bytes) in [
            (Outcome::Done(vec![1, 9]), &[1, 5, 0, 2, 1, 9][..]),
            (Outcome::Elsewhere(3), &[1, 5, 1, 3]),
            (Outcome::Failed(Failure::Aborted(0, "no".to_owned())), &[1, 5, 2, 4, 0, 2, b'n', b'o']),
            (Outcome::ResultTooLong { bytes: 9 }, &[1, 5, 3, 9]),
        ] {
            let reply = reply(outcome);
            assert_eq!(write(&reply), bytes);
            assert_eq!(read(bytes), Ok(reply));
        }
    }

    #[test]
    fn errors_are_the_same_on_the_other_side() {
        let sentence = || "why".to_owned();
        let mut errors = vec![
            CallError::Unknown { name: sentence(), known: sentence() },
            CallError::Version(9),
            CallError::Arguments(sentence()),
            CallError::Encoding(sentence()),
        ];
        let aborts = AbortReason::ALL.map(|reason| CallError::Aborted(Abort::explained(reason, "why")));
        errors.extend(aborts);
        for error in errors {
            assert_eq!(Failure::from(error.clone()).into_error(), Some(error));
        }
        assert_eq!(Failure::Aborted(AbortReason::ALL.len() as u8, sentence()).into_error(), None);
    }

    #[test]
    fn other_bytes_are_a_sentence() {
        let good = write(&Request { id: 1, name: "n", arguments: &[1] });
        for bytes in [&[][..], &[2, 0], &good[..good.len() - 1], &[good.as_slice(), &[0]].concat()] {
            let refused = read::<Request<'_>>(bytes).expect_err("no message");
            assert!(
                refused.starts_with("it speaks version 2") || refused.starts_with("a message"),
                "{refused}"
            );
        }
    }
}
