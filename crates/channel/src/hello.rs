//! Who greets whom, and the messages of a handshake.
//!
//! Owns: the identities, and the encoding of greetings. Never: decides who is welcome (`handshake`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::ChannelError;
use crate::frame::{HEADER_BYTES, Header};
use crate::kind::ChannelKind;

/// The version of the protocol that this release speaks: of handshakes, frames and rings, and of the messages that instances of a
/// deployment send each other in them.
pub const PROTOCOL_VERSION: u8 = 2;
/// The longest greeting, its header left out.
pub(crate) const GREETING_BYTES_MAX: usize = 4096;

/// The identity of a deployment, drawn at random when it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeploymentId(pub u128);

impl fmt::Display for DeploymentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Error for text that is not the identity of a deployment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not the identity of a deployment: it has 32 hexadecimal digits")]
pub struct NotADeployment(String);

impl DeploymentId {
    /// Draws an identity that nobody can guess.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn draw() -> Result<Self, ChannelError> {
        let nonce = crate::secret::random_nonce()?;
        let half = nonce.first_chunk().expect("a nonce is longer than an identity");
        Ok(Self(u128::from_le_bytes(*half)))
    }
}

impl FromStr for DeploymentId {
    type Err = NotADeployment;

    fn from_str(text: &str) -> Result<Self, NotADeployment> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        id.map(Self).ok_or_else(|| NotADeployment(text.chars().take(64).collect()))
    }
}

/// One instance of a deployment, numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceId(pub u16);

impl InstanceId {
    /// The number in the place of an instance by which a client says that it is none.
    pub const CLIENT: InstanceId = InstanceId(u16::MAX);
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::CLIENT { f.write_str("a client") } else { write!(f, "instance {}", self.0) }
    }
}

/// One end of a link: a worker of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EndId {
    /// The instance that the worker is of.
    pub instance: InstanceId,
    /// The worker's number within its instance.
    pub worker: u16,
}

impl EndId {
    /// The end of a client, which is no instance and has no workers.
    pub const CLIENT: EndId = EndId { instance: InstanceId::CLIENT, worker: 0 };

    /// Returns true for the end of a client.
    #[must_use]
    pub fn is_client(self) -> bool {
        self.instance == InstanceId::CLIENT
    }
}

impl fmt::Display for EndId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_client() {
            return write!(f, "{}", self.instance);
        }
        write!(f, "worker {} of {}", self.worker, self.instance)
    }
}

/// What whoever connects says of itself and of the link it wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The deployment that both are of.
    pub deployment: DeploymentId,
    /// The end that connects; that of a client ([`EndId::CLIENT`]) asks for calls to be answered, and for no link of a worker.
    pub from: EndId,
    /// The end that is to accept.
    pub to: EndId,
    /// What is to carry the messages.
    pub kind: ChannelKind,
}

/// Random bytes that make a handshake unlike any other.
pub(crate) type Nonce = [u8; 32];
/// The proof that one knows the secret.
pub(crate) type Proof = [u8; 32];

/// One message of a handshake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Greeting {
    /// The first word of who connects.
    Hello { hello: Hello, ring_bytes: u64, nonce: Nonce },
    /// The demand to prove that one knows the secret.
    Challenge { nonce: Nonce },
    /// The proof of who connects.
    Answer { proof: Proof },
    /// The last word of who accepts, with its own proof if it has demanded one. Messages follow.
    Welcome { proof: Option<Proof> },
    /// The last word of who does not accept.
    Refused(String),
}

impl Greeting {
    /// The greeting as a frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let payload = postcard::to_stdvec(self).expect("a greeting has nothing that cannot be encoded");
        debug_assert!(payload.len() <= GREETING_BYTES_MAX);
        let mut frame = Vec::with_capacity(HEADER_BYTES + payload.len());
        frame.extend_from_slice(&Header::encode(&payload));
        frame.extend_from_slice(&payload);
        frame
    }

    /// The greeting in the payload of a frame.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, ChannelError> {
        match postcard::take_from_bytes(payload) {
            Ok((greeting, [])) => Ok(greeting),
            _ => Err(ChannelError::Nonsense("a greeting of it cannot be read".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_of_a_deployment_is_read_back() {
        for id in [0, 1, u128::MAX].map(DeploymentId) {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for wrong in ["", "12", "+0000000000000000000000000000001", "0000000000000000000000000000000g"] {
            let error = wrong.parse::<DeploymentId>().expect_err("it is none");
            assert!(error.to_string().contains("32 hexadecimal digits"), "{error}");
        }
    }
}
