//! Passwords, and the verifiers that are kept of them.
//!
//! Owns: what a password may be, and the verifier that a client who claims to be somebody has to fulfil. Never: keeps either.

use atrapos_sql::SqlDatabase;
use ring::rand::{SecureRandom, SystemRandom};

use super::scram::Verifier;

/// Letters of generated passwords: none that is easily taken for another one. 32 of them, so that five bits choose one.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// Letters of a generated password: 100 bits.
const GENERATED: usize = 20;

const NO_RANDOM: &str = "the operating system returned no random numbers, without which there is no password";

/// Makes the verifier of a password, in PostgreSQL's form; one that is a verifier already stays as it is.
///
/// # Errors
/// Says why it cannot be a password.
pub fn password_verifier(password: &str) -> Result<String, String> {
    if let Some(verifier) = Verifier::parse(password) {
        return Ok(verifier.to_string());
    }
    if password.is_empty() || !password.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) {
        // Others would have to be normalised by SASLprep, on both sides alike.
        return Err("a password has at least one letter, and printable ASCII only".to_owned());
    }
    let verifier = Verifier::of(password, &SystemRandom::new()).map_err(|_| NO_RANDOM.to_owned())?;
    Ok(verifier.to_string())
}

/// Generates a password of 100 random bits.
///
/// # Errors
/// Fails if the system has no random numbers.
pub fn generate_password() -> Result<String, String> {
    let mut random = [0; GENERATED];
    SystemRandom::new().fill(&mut random).map_err(|_| NO_RANDOM.to_owned())?;
    Ok(random.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
}

/// The verifiers of a server's roles.
#[derive(Debug)]
pub(crate) struct Passwords {
    /// The one that the salts of those who have none are made of while no role has a password.
    fallback: Verifier,
}

impl Passwords {
    /// Prepares to look passwords up.
    pub(crate) fn new() -> Result<Passwords, ring::error::Unspecified> {
        let mut random = [0; GENERATED];
        SystemRandom::new().fill(&mut random)?;
        let secret: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Passwords { fallback: Verifier::of(&secret, &SystemRandom::new())? })
    }

    /// Returns the verifier that somebody who claims to be a user has to fulfil, and whether it is that of a password: for a user that
    /// there is not, or who has no password, it is one that nobody fulfils.
    pub(crate) fn of(&self, database: &SqlDatabase, user: &str) -> (Verifier, bool) {
        let known = database.password_verifier(user).and_then(|text| Verifier::parse(&text));
        match known {
            Some(verifier) => (verifier, true),
            None => {
                let first = database.first_password_verifier().and_then(|text| Verifier::parse(&text));
                (first.as_ref().unwrap_or(&self.fallback).mock(user), false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_that_cannot_be_proved_are_refused() {
        for password in ["", "\u{e9}", "a\tb"] {
            assert!(password_verifier(password).is_err(), "{password}");
        }
        let verifier = password_verifier("secret").expect("a verifier");
        assert_eq!(password_verifier(&verifier).as_ref(), Ok(&verifier));
        assert_ne!(password_verifier("secret"), Ok(verifier));
    }

    #[test]
    fn generated_passwords_differ() {
        let (one, other) = (generate_password().expect("one"), generate_password().expect("another"));
        assert_eq!(one.len(), GENERATED);
        assert_ne!(one, other);
    }
}
