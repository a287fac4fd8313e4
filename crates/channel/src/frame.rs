//! Frames: what carries messages over a stream of bytes.
//!
//! Owns: the header of a frame and its checks. Never: reads or writes a stream. The same header is around handshakes and
//! messages, and stays as it is in later versions, so that different versions can tell each other so.
//!
//! ```text
//! byte 0       1        2..4   4..8                8..12              12..
//!      0xA7 |  version | zero | length of payload | CRC-32 of payload | payload
//! ```
//! Numbers are little-endian. Between workers, the payload is what one flush sent: messages, each behind its length in 4 bytes.

use crate::error::ChannelError;
use crate::planted::{Bug, planted};
use crate::{MESSAGE_BYTES_MAX, PROTOCOL_VERSION};

/// What a frame begins with. Neither text nor TLS does.
const MAGIC: u8 = 0xA7;
/// What a connection begins with that is to be encrypted.
const TLS_HANDSHAKE: u8 = 0x16;
/// Bytes before the payload.
pub(crate) const HEADER_BYTES: usize = 12;
/// Bytes before a message of a payload.
pub(crate) const LENGTH_BYTES: usize = 4;
/// The longest payload: one message of the greatest length. Shorter ones share a frame up to this length.
pub(crate) const PAYLOAD_BYTES_MAX: usize = LENGTH_BYTES + MESSAGE_BYTES_MAX;

/// The header of a frame whose payload is not checked yet.
#[derive(Debug)]
pub(crate) struct Header {
    /// Bytes of payload that follow.
    pub(crate) bytes: usize,
    checksum: u32,
}

impl Header {
    /// The header of a payload.
    pub(crate) fn encode(payload: &[u8]) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[0] = MAGIC;
        header[1] = PROTOCOL_VERSION;
        let bytes = u32::try_from(payload.len()).expect("a payload is below PAYLOAD_BYTES_MAX");
        header[4..8].copy_from_slice(&bytes.to_le_bytes());
        header[8..12].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
        header
    }

    /// Reads a header, of a frame that may have at most `max` bytes of payload.
    pub(crate) fn decode(header: &[u8; HEADER_BYTES], max: usize) -> Result<Self, ChannelError> {
        let [magic, version, zero @ .., _, _, _, _, _, _, _, _] = header;
        if *magic == TLS_HANDSHAKE {
            return Err(ChannelError::Refused(
                "the one that connects wants encryption, as with a shared secret, and none is given here: \
                 give all instances the same shared secret, and the same release"
                    .into(),
            ));
        }
        if *magic != MAGIC {
            return Err(ChannelError::Nonsense(format!("a frame of it begins with the byte {magic:#04x}")));
        }
        if *version != PROTOCOL_VERSION {
            return Err(ChannelError::Refused(format!(
                "the peer speaks version {version} of the channels' protocol, and this instance version {PROTOCOL_VERSION}: \
                 run the same release on both"
            )));
        }
        let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let bytes = number(4) as usize;
        if *zero != [0, 0] {
            return Err(ChannelError::Nonsense(
                "a frame of it has bits set that this version has not".into(),
            ));
        }
        if bytes > max && !planted(Bug::FrameLengthTrusted) {
            return Err(ChannelError::Nonsense(format!(
                "a frame of it announces {bytes} bytes, where at most {max} are allowed"
            )));
        }
        Ok(Self { bytes, checksum: number(8) })
    }

    /// Checks the payload behind this header.
    pub(crate) fn check(&self, payload: &[u8]) -> Result<(), ChannelError> {
        let found = crc32fast::hash(payload);
        if found != self.checksum && !planted(Bug::ChecksumIgnored) {
            return Err(ChannelError::Nonsense(format!(
                "the checksum of a frame of {} bytes is {found:#010x} where {:#010x} was announced",
                self.bytes, self.checksum
            )));
        }
        Ok(())
    }
}
