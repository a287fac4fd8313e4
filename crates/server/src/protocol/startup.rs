//! The first packet of a connection, which has no type.
//!
//! Owns: its kinds, and which version is spoken. Never: answers it.

use super::body::{Body, Malformed};

/// The newest version spoken: 3.2.
pub(crate) const NEWEST: u32 = 3 << 16 | 2;

/// The most bytes of a first packet, as PostgreSQL has it.
pub(crate) const MOST_BYTES: usize = 10_000;

const CANCEL_REQUEST: u32 = 1234 << 16 | 5678;
const SSL_REQUEST: u32 = 1234 << 16 | 5679;
const GSSENC_REQUEST: u32 = 1234 << 16 | 5680;

/// A first packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FirstPacket<'a> {
    /// A request for TLS; another packet follows.
    Tls,
    /// A request for GSSAPI encryption; another packet follows.
    Gss,
    /// A request to cancel what another connection runs.
    Cancel {
        process: i32,
        secret: &'a [u8],
    },
    Startup(Startup<'a>),
    /// A version with another major number, which no negotiation can mend.
    Unsupported {
        major: u32,
        minor: u32,
    },
}

/// A startup message: who wants which database.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Startup<'a> {
    /// The version that is spoken: what the client asked for, at most [`NEWEST`].
    pub(crate) version: u32,
    /// True if the client asked for more than that.
    pub(crate) newer: bool,
    /// Protocol options (`_pq_.`), none of which is known.
    pub(crate) options: Vec<&'a str>,
    /// Parameters: user, database, and settings of the session.
    pub(crate) parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Startup<'a> {
    /// Returns the value of a parameter.
    pub(crate) fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|&(_, value)| value)
    }

    /// Returns true if the client has to be told what is spoken.
    pub(crate) fn needs_negotiation(&self) -> bool {
        self.newer || !self.options.is_empty()
    }
}

impl<'a> FirstPacket<'a> {
    /// Reads a packet without its length.
    ///
    /// # Errors
    /// Fails if it is none of the kinds.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<FirstPacket<'a>, Malformed> {
        // Errors show the type of a message; this one has none, and 'S' stands for startup.
        let mut body = Body::new(b'S', bytes);
        let packet = match body.uint32()? {
            SSL_REQUEST => FirstPacket::Tls,
            GSSENC_REQUEST => FirstPacket::Gss,
            CANCEL_REQUEST => {
                let process = body.int32()?;
                let secret = body.remainder();
                if !(1..=256).contains(&secret.len()) {
                    return Err(body.malformed("a cancel key has 1 to 256 bytes"));
                }
                FirstPacket::Cancel { process, secret }
            }
            version if version >> 16 == 3 => FirstPacket::Startup(startup(version, &mut body)?),
            version => return Ok(FirstPacket::Unsupported { major: version >> 16, minor: version & 0xffff }),
        };
        body.end()?;
        Ok(packet)
    }
}

fn startup<'a>(version: u32, body: &mut Body<'a>) -> Result<Startup<'a>, Malformed> {
    let mut startup = Startup {
        version: version.min(NEWEST),
        newer: version > NEWEST,
        options: Vec::new(),
        parameters: Vec::new(),
    };
    loop {
        let name = body.string()?;
        if name.is_empty() {
            return Ok(startup);
        }
        let value = body.string()?;
        if name.starts_with("_pq_.") {
            startup.options.push(name);
        } else {
            startup.parameters.push((name, value));
        }
        if body.is_empty() {
            return Err(body.malformed("the list of parameters has no end"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(code: u32, rest: &[u8]) -> Vec<u8> {
        [&code.to_be_bytes()[..], rest].concat()
    }

    #[test]
    fn versions_are_negotiated_down_and_others_refused() {
        let newer = packet(3 << 16 | 9, b"user\0ada\0_pq_.x\0on\0\0");
        let Ok(FirstPacket::Startup(read)) = FirstPacket::read(&newer) else { panic!("a startup message") };
        assert_eq!((read.version, read.needs_negotiation()), (NEWEST, true));
        assert_eq!((read.parameter("user"), read.options.as_slice()), (Some("ada"), &["_pq_.x"][..]));
        let plain = packet(3 << 16, b"user\0ada\0\0");
        let Ok(FirstPacket::Startup(read)) = FirstPacket::read(&plain) else { panic!("a startup message") };
        assert_eq!((read.version, read.needs_negotiation()), (3 << 16, false));
        assert_eq!(
            FirstPacket::read(&packet(2 << 16, b"")),
            Ok(FirstPacket::Unsupported { major: 2, minor: 0 })
        );
    }

    #[test]
    fn requests_are_told_apart() {
        assert_eq!(FirstPacket::read(&packet(SSL_REQUEST, b"")), Ok(FirstPacket::Tls));
        assert_eq!(FirstPacket::read(&packet(GSSENC_REQUEST, b"")), Ok(FirstPacket::Gss));
        let cancel = packet(CANCEL_REQUEST, b"\0\0\0\x07key!");
        assert_eq!(FirstPacket::read(&cancel), Ok(FirstPacket::Cancel { process: 7, secret: b"key!" }));
        for bad in
            [packet(CANCEL_REQUEST, b"\0\0\0\x07"), packet(3 << 16, b"user\0ada\0"), packet(3 << 16, b"")]
        {
            assert!(FirstPacket::read(&bad).is_err(), "{bad:?}");
        }
    }
}
