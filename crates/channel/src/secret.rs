//! The secret that instances share which reach each other beyond one machine, and the proofs that they know it.
//!
//! Owns: the secret, random nonces, and what a proof is of. Never: sends the secret, prints it, or says where it comes from.
//!
//! A proof is HMAC-SHA256 under the secret of: which side proves, the whole hello (with the connecting side's nonce), the accepting
//! side's nonce, and bytes that belong to this one connection alone if it is encrypted. So a proof serves for nothing else.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use rustix::rand::GetRandomFlags;
use sha2::Sha256;

use crate::error::{Attempt, ChannelError};
use crate::hello::{Nonce, Proof};
use crate::planted::{Bug, planted};

/// The shortest secret: whoever sees a proof can try guesses at leisure.
pub const SECRET_BYTES_MIN: usize = 16;

/// A secret that all instances of a deployment share.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// The secret with these bytes.
    ///
    /// # Errors
    /// If there are fewer than [`SECRET_BYTES_MIN`].
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, ChannelError> {
        let bytes = bytes.into();
        if bytes.len() < SECRET_BYTES_MIN {
            return Err(ChannelError::Refused(format!(
                "a shared secret of {} bytes can be guessed: give one of at least {SECRET_BYTES_MIN} random bytes",
                bytes.len()
            )));
        }
        Ok(Self(bytes))
    }

    fn mac(&self, prover: Prover, handshake: &Transcript<'_>) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(match prover {
            Prover::Connecting => b"atrapos-channel: the side that connects".as_slice(),
            Prover::Accepting => b"atrapos-channel: the side that accepts",
        });
        for part in [handshake.hello, handshake.nonce, handshake.connection] {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }

    /// The proof of a side in a handshake.
    pub(crate) fn prove(&self, prover: Prover, handshake: &Transcript<'_>) -> Proof {
        self.mac(prover, handshake).finalize().into_bytes().into()
    }

    /// Returns whether the proof is that of a side that knows the secret.
    pub(crate) fn verify(&self, prover: Prover, handshake: &Transcript<'_>, proof: &Proof) -> bool {
        self.mac(prover, handshake).verify_slice(proof).is_ok() || planted(Bug::ProofIgnored)
    }
}

/// The side whose proof it is.
#[derive(Clone, Copy)]
pub(crate) enum Prover {
    Connecting,
    Accepting,
}

/// What a proof is bound to.
pub(crate) struct Transcript<'a> {
    /// The greeting of the side that connects, as it was sent.
    pub(crate) hello: &'a [u8],
    /// The nonce of the side that accepts.
    pub(crate) nonce: &'a Nonce,
    /// Bytes that only the two ends of this encrypted connection know.
    pub(crate) connection: &'a [u8],
}

/// Random bytes of the system.
pub(crate) fn random_nonce() -> Result<Nonce, ChannelError> {
    let mut nonce = [0; 32];
    // The kernel never splits requests of up to 256 bytes.
    rustix::rand::getrandom(&mut nonce[..], GetRandomFlags::empty()).attempt("get random bytes")?;
    Ok(nonce)
}
