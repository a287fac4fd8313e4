//! SCRAM-SHA-256, the server's side (RFC 5802 and 7677), with channel binding to the server's certificate (RFC 5929).
//!
//! Owns: verifiers, and one exchange at a time. Never: sees a password but to make a verifier of it.
//!
//! Invariants: an exchange for a user that there is not goes on as one with a wrong password, with a salt that stays the same; proofs
//! are compared in constant time; an exchange fails once and for all.

use std::fmt;
use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::SecureRandom;
use ring::{digest, hmac, pbkdf2};
use thiserror::Error;

/// The mechanism without channel binding.
pub(crate) const PLAIN: &str = "SCRAM-SHA-256";
/// The mechanism with channel binding.
pub(crate) const PLUS: &str = "SCRAM-SHA-256-PLUS";

/// Iterations of the key derivation, as PostgreSQL has them by default.
pub(crate) const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).unwrap();

const KEY_BYTES: usize = 32;
const SALT_BYTES: usize = 16;
const NONCE_BYTES: usize = 18;

/// The verifier that a server keeps instead of a password. It proves nothing to another server, and the password is found from it by trying only.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Verifier {
    iterations: NonZeroU32,
    salt: Vec<u8>,
    stored_key: [u8; KEY_BYTES],
    server_key: [u8; KEY_BYTES],
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

/// The text of a verifier, as PostgreSQL writes it: `SCRAM-SHA-256$iterations:salt$stored key:server key`.
impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{PLAIN}${}:{}${}:{}",
            self.iterations,
            BASE64.encode(&self.salt),
            BASE64.encode(self.stored_key),
            BASE64.encode(self.server_key)
        )
    }
}

impl Verifier {
    /// Makes the verifier of a password with a random salt.
    pub(crate) fn of(
        password: &str,
        random: &dyn SecureRandom,
    ) -> Result<Verifier, ring::error::Unspecified> {
        let mut salt = vec![0; SALT_BYTES];
        random.fill(&mut salt)?;
        Ok(Verifier::with_salt(password, salt, ITERATIONS))
    }

    fn with_salt(password: &str, salt: Vec<u8>, iterations: NonZeroU32) -> Verifier {
        let mut salted = [0; KEY_BYTES];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &salt, password.as_bytes(), &mut salted);
        Verifier {
            iterations,
            salt,
            stored_key: sha256(&keyed_hash(&salted, b"Client Key")),
            server_key: keyed_hash(&salted, b"Server Key"),
        }
    }

    /// Reads the text of a verifier.
    pub(crate) fn parse(text: &str) -> Option<Verifier> {
        let (cost, keys) = text.strip_prefix(PLAIN)?.strip_prefix('$')?.split_once('$')?;
        let (iterations, salt) = cost.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let key = |text: &str| BASE64.decode(text).ok()?.try_into().ok();
        Some(Verifier {
            iterations: iterations.parse().ok()?,
            salt: BASE64.decode(salt).ok().filter(|salt| !salt.is_empty())?,
            stored_key: key(stored_key)?,
            server_key: key(server_key)?,
        })
    }

    /// Returns a verifier that no password fulfils, for a user that there is not. Its salt depends on the name and on this verifier,
    /// of a user that there is: whoever asks again gets the same, as for any user.
    pub(crate) fn mock(&self, user: &str) -> Verifier {
        let salt = keyed_hash(&self.server_key, &[b"salt of ", user.as_bytes()].concat());
        let no_key = keyed_hash(&self.server_key, &[b"key of ", user.as_bytes()].concat());
        Verifier {
            iterations: self.iterations,
            salt: salt[..self.salt.len().min(KEY_BYTES)].to_vec(),
            // The key whose hash this is cannot be found.
            stored_key: no_key,
            server_key: no_key,
        }
    }
}

fn keyed_hash(key: &[u8], data: &[u8]) -> [u8; KEY_BYTES] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data);
    tag.as_ref().try_into().expect("an HMAC of SHA-256 has 32 bytes")
}

fn sha256(data: &[u8]) -> [u8; KEY_BYTES] {
    digest::digest(&digest::SHA256, data).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// A failed exchange.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum ScramError {
    /// The message is none of the mechanism.
    #[error("malformed SCRAM message: {0}")]
    Malformed(&'static str),
    /// The client asks for what there is not.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The client is bound to another channel than this one: somebody is in between, or it takes the server for less than it is.
    #[error("SCRAM channel binding check failed")]
    Binding,
    /// The password is wrong, or there is no such user.
    #[error("the proof does not fit")]
    Proof,
    /// The system has no random numbers.
    #[error("the operating system returned no random numbers")]
    Random,
}

/// An exchange that waits for the client's first message.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    verifier: Verifier,
    /// The hash of the certificate, if the channel is encrypted.
    certificate: Option<&'a [u8]>,
}

/// An exchange that waits for the client's final message.
#[derive(Debug)]
pub(crate) struct Challenged {
    verifier: Verifier,
    /// The client's statement of the binding: its header, and the data of the channel, in base64.
    binding: String,
    nonce: String,
    client_first: String,
    /// The message to send.
    pub(crate) server_first: String,
}

impl<'a> Exchange<'a> {
    /// Begins an exchange with whoever claims to know the password of `verifier`.
    pub(crate) fn new(verifier: Verifier, certificate: Option<&'a [u8]>) -> Exchange<'a> {
        Exchange { verifier, certificate }
    }

    /// Returns the mechanisms that can be chosen, best first.
    pub(crate) fn mechanisms(&self) -> &'static [&'static str] {
        if self.certificate.is_some() { &[PLUS, PLAIN] } else { &[PLAIN] }
    }

    /// Answers the client's first message.
    pub(crate) fn challenge(
        self,
        mechanism: &str,
        message: &[u8],
        random: &dyn SecureRandom,
    ) -> Result<Challenged, ScramError> {
        let mut nonce = [0; NONCE_BYTES];
        random.fill(&mut nonce).map_err(|_| ScramError::Random)?;
        self.challenge_with(mechanism, message, &BASE64.encode(nonce))
    }

    fn challenge_with(
        self,
        mechanism: &str,
        message: &[u8],
        server_nonce: &str,
    ) -> Result<Challenged, ScramError> {
        let message = std::str::from_utf8(message).map_err(|_| ScramError::Malformed("it is not UTF-8"))?;
        let (flag, rest) = message.split_once(',').ok_or(ScramError::Malformed("it has no header"))?;
        let (identity, bare) = rest.split_once(',').ok_or(ScramError::Malformed("it has no header"))?;
        let data = self.bound_to(mechanism, flag)?;
        if !identity.is_empty() {
            return Err(ScramError::Unsupported(
                "client uses authorization identity, but it is not supported",
            ));
        }
        let mut attributes = bare.split(',');
        match attributes.next().map(|attribute| attribute.as_bytes().first_chunk()) {
            Some(Some(b"n=")) => {}
            Some(Some(b"m=")) => {
                return Err(ScramError::Unsupported("client requires an unsupported SCRAM extension"));
            }
            _ => return Err(ScramError::Malformed("it has no user name")),
        }
        let client_nonce = attributes
            .next()
            .and_then(|attribute| attribute.strip_prefix("r="))
            .filter(|nonce| !nonce.is_empty() && nonce.bytes().all(|byte| (0x21..=0x7e).contains(&byte)))
            .ok_or(ScramError::Malformed("it has no nonce"))?;
        let nonce = format!("{client_nonce}{server_nonce}");
        let salt = BASE64.encode(&self.verifier.salt);
        Ok(Challenged {
            binding: BASE64.encode([flag.as_bytes(), b",,", data].concat()),
            client_first: bare.to_owned(),
            server_first: format!("r={nonce},s={salt},i={}", self.verifier.iterations),
            verifier: self.verifier,
            nonce,
        })
    }

    /// Returns the data of the channel that the client has to be bound to.
    fn bound_to(&self, mechanism: &str, flag: &str) -> Result<&'a [u8], ScramError> {
        match (mechanism, flag, self.certificate) {
            (PLAIN, "n", _) | (PLAIN, "y", None) => Ok(b""),
            // The client could bind, and was told that the server cannot: by whom?
            (PLAIN, "y", Some(_)) => Err(ScramError::Binding),
            (PLUS, "p=tls-server-end-point", Some(certificate)) => Ok(certificate),
            (PLUS, other, Some(_)) if other.starts_with("p=") => {
                Err(ScramError::Unsupported("unsupported SCRAM channel-binding type"))
            }
            (PLAIN | PLUS, ..) => {
                Err(ScramError::Malformed("its channel-binding flag does not fit its mechanism"))
            }
            _ => Err(ScramError::Unsupported("client selected an invalid SASL authentication mechanism")),
        }
    }
}

impl Challenged {
    /// Checks the client's final message and returns the server's, which proves that it has the verifier.
    pub(crate) fn finish(self, message: &[u8]) -> Result<String, ScramError> {
        let message = std::str::from_utf8(message).map_err(|_| ScramError::Malformed("it is not UTF-8"))?;
        let (without_proof, proof) =
            message.rsplit_once(",p=").ok_or(ScramError::Malformed("it has no proof"))?;
        let proof: [u8; KEY_BYTES] = BASE64
            .decode(proof)
            .ok()
            .and_then(|proof| proof.try_into().ok())
            .ok_or(ScramError::Malformed("its proof is none"))?;
        let mut attributes = without_proof.split(',');
        let binding = attributes.next().and_then(|attribute| attribute.strip_prefix("c="));
        let nonce = attributes.next().and_then(|attribute| attribute.strip_prefix("r="));
        if binding.ok_or(ScramError::Malformed("it has no channel binding"))? != self.binding {
            return Err(ScramError::Binding);
        }
        if nonce != Some(&self.nonce) {
            return Err(ScramError::Malformed("its nonce is another one"));
        }
        let signed = format!("{},{},{without_proof}", self.client_first, self.server_first);
        let signature = keyed_hash(&self.verifier.stored_key, signed.as_bytes());
        let client_key: [u8; KEY_BYTES] = std::array::from_fn(|at| proof[at] ^ signature[at]);
        // In constant time, as ring compares tags: a MAC of the hash under a key of the exchange, verified.
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.nonce.as_bytes());
        let expected = hmac::sign(&key, &self.verifier.stored_key);
        hmac::verify(&key, &sha256(&client_key), expected.as_ref()).map_err(|_| ScramError::Proof)?;
        let signature = keyed_hash(&self.verifier.server_key, signed.as_bytes());
        Ok(format!("v={}", BASE64.encode(signature)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The example of RFC 7677.
    const CLIENT_FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=";
    const PROOF: &str = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    fn verifier(password: &str) -> Verifier {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("a salt");
        Verifier::with_salt(password, salt, ITERATIONS)
    }

    fn challenged(verifier: Verifier) -> Challenged {
        Exchange::new(verifier, None)
            .challenge_with(PLAIN, CLIENT_FIRST.as_bytes(), SERVER_NONCE)
            .expect("a challenge")
    }

    #[test]
    fn the_example_of_the_rfc_succeeds() {
        let challenged = challenged(verifier("pencil"));
        assert_eq!(
            challenged.server_first,
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        assert_eq!(
            challenged.finish(format!("{FINAL}{PROOF}").as_bytes()),
            Ok("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=".to_owned())
        );
    }

    #[test]
    fn wrong_passwords_unknown_users_and_other_proofs_fail() {
        let wrong = challenged(verifier("pencils")).finish(format!("{FINAL}{PROOF}").as_bytes());
        assert_eq!(wrong, Err(ScramError::Proof));
        let mock = verifier("pencil").mock("nobody");
        assert_eq!(mock, verifier("pencil").mock("nobody"), "the same salt each time");
        assert_ne!(mock, verifier("pencil").mock("somebody"));
        assert_eq!(challenged(mock).finish(format!("{FINAL}{PROOF}").as_bytes()), Err(ScramError::Proof));
        for (message, why) in [
            (format!("{FINAL}AAAA"), ScramError::Malformed("its proof is none")),
            (FINAL.replace(",p=", ""), ScramError::Malformed("it has no proof")),
            (format!("{}{PROOF}", FINAL.replace("biws", "eSws")), ScramError::Binding),
            (
                format!("{}{PROOF}", FINAL.replace("k0", "k1")),
                ScramError::Malformed("its nonce is another one"),
            ),
        ] {
            assert_eq!(challenged(verifier("pencil")).finish(message.as_bytes()), Err(why), "{message}");
        }
    }

    #[test]
    fn bindings_to_another_channel_are_noticed() {
        let exchange = || Exchange::new(verifier("pencil"), Some(b"certificate"));
        assert_eq!(exchange().mechanisms(), [PLUS, PLAIN]);
        let first = |flag: &str| format!("{flag},,n=user,r=abc");
        let bound = exchange()
            .challenge_with(PLUS, first("p=tls-server-end-point").as_bytes(), "def")
            .expect("a challenge");
        assert_eq!(bound.binding, BASE64.encode("p=tls-server-end-point,,certificate"));
        for (mechanism, flag) in [
            (PLAIN, "y"),
            (PLAIN, "p=tls-server-end-point"),
            (PLUS, "n"),
            (PLUS, "p=tls-unique"),
            ("OTHER", "n"),
        ] {
            let refused = exchange().challenge_with(mechanism, first(flag).as_bytes(), "def");
            assert!(refused.is_err(), "{mechanism} {flag}");
        }
        // Without TLS there is nothing to be bound to.
        let plain = Exchange::new(verifier("pencil"), None);
        assert!(plain.challenge_with(PLUS, first("p=tls-server-end-point").as_bytes(), "def").is_err());
    }

    #[test]
    fn verifiers_are_read_as_they_are_written() {
        let verifier = verifier("pencil");
        assert_eq!(Verifier::parse(&verifier.to_string()), Some(verifier.clone()));
        for text in ["", "md5", "SCRAM-SHA-256$0:aa==$a:b", &verifier.to_string()[1..]] {
            assert_eq!(Verifier::parse(text), None, "{text}");
        }
        let random = ring::rand::SystemRandom::new();
        let (one, other) = (Verifier::of("p", &random), Verifier::of("p", &random));
        assert_ne!(one.expect("random numbers"), other.expect("random numbers"), "salts differ");
    }
}
