//! The token that requests carry (`Authorization: Bearer TOKEN`).
//!
//! Owns: which requests need it, and its comparison. Never: is written anywhere but to whoever starts the server.
//!
//! Invariant: tokens are compared in constant time, as digests: bytes are compared that whoever asks does not choose.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};

/// The scheme of a token.
const BEARER: &[u8] = b"Bearer ";

/// Bytes of a token that is made: nobody guesses it.
const TOKEN_BYTES: usize = 24;

/// The token of a server.
#[derive(Debug)]
pub(crate) struct Tokens {
    token: String,
    /// True if it was made for this start. Whoever collects metrics cannot know it, so these are open as they are without a token.
    generated: bool,
}

impl Tokens {
    /// Takes the token that was chosen, or makes one. Fails if the system has no random numbers.
    pub(crate) fn new(chosen: Option<String>) -> Result<Tokens, ring::error::Unspecified> {
        if let Some(token) = chosen {
            return Ok(Tokens { token, generated: false });
        }
        let mut bytes = [0; TOKEN_BYTES];
        SystemRandom::new().fill(&mut bytes)?;
        Ok(Tokens { token: URL_SAFE_NO_PAD.encode(bytes), generated: true })
    }

    /// Returns the token, if it was made.
    pub(crate) fn generated(&self) -> Option<&str> {
        self.generated.then_some(&*self.token)
    }

    /// Returns true if a request may see metrics: sums, without names of data.
    pub(crate) fn may_read_metrics(&self, request: &[u8]) -> bool {
        self.generated || self.may_read_all(request)
    }

    /// Returns true if a request may see everything.
    pub(crate) fn may_read_all(&self, request: &[u8]) -> bool {
        let lines = request.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
        let mut given = lines.filter_map(|line| {
            let at = line.iter().position(|&byte| byte == b':')?;
            let value = line[at + 1..].trim_ascii();
            let is_authorization = line[..at].eq_ignore_ascii_case(b"authorization");
            let (scheme, token) = value.split_at_checked(BEARER.len())?;
            (is_authorization && scheme.eq_ignore_ascii_case(BEARER)).then(|| token.trim_ascii())
        });
        let digest = |bytes: &[u8]| ring::digest::digest(&ring::digest::SHA256, bytes);
        given.next().is_some_and(|given| {
            let (given, expected) = (digest(given), digest(self.token.as_bytes()));
            given.as_ref().iter().zip(expected.as_ref()).fold(0, |rest, (a, b)| rest | (a ^ b)) == 0
        })
    }
}
