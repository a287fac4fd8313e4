//! Encrypted streams: what is on the wire, whom proofs are for, and who cannot agree.

use std::os::unix::net::UnixStream;

use super::*;
use crate::secret::{Prover, Secret, Transcript};

/// Moves what one socket has received to another, and returns it.
fn relay(from: &Socket, to: &Socket) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 16];
    let received = from.receive(&mut bytes).unwrap_or(0);
    bytes.truncate(received);
    assert_eq!(to.send(&bytes), Ok(received));
    bytes
}

fn sockets() -> (Socket, Socket) {
    let (one, other) = UnixStream::pair().expect("a pair of sockets can be made");
    (Socket::new(one.into()), Socket::new(other.into()))
}

/// Runs the handshake of two ends that are joined.
fn agree(one: &mut Tls, other: &mut Tls, mut between: impl FnMut()) {
    while one.connection.is_handshaking() || other.connection.is_handshaking() {
        for end in [&mut *one, &mut *other] {
            end.write(&[]).expect("the socket takes it");
            between();
            assert_eq!(end.read(&mut [0]).expect("they agree"), None);
        }
    }
}

fn pair() -> (Tls, Tls) {
    let (near, far) = sockets();
    let server = TlsServer::new().expect("a key can be made");
    let mut ends = (connect(near).expect("it begins"), server.accept(far).expect("it begins"));
    agree(&mut ends.0, &mut ends.1, || ());
    ends
}

#[test]
fn nothing_on_the_wire_is_readable() {
    let ((near, near_tap), (far_tap, far)) = (sockets(), sockets());
    let server = TlsServer::new().expect("a key can be made");
    let (mut one, mut other) = (connect(near).expect("it begins"), server.accept(far).expect("it begins"));
    let mut seen = Vec::new();
    agree(&mut one, &mut other, || {
        seen.extend(relay(&near_tap, &far_tap));
        seen.extend(relay(&far_tap, &near_tap));
    });
    let message = b"a message that nobody else is to read";
    assert_eq!(one.write(message), Ok(message.len()));
    seen.extend(relay(&near_tap, &far_tap));
    let mut arrived = [0; 100];
    assert_eq!(other.read(&mut arrived[..10]), Ok(Some(10)));
    assert!(other.has_buffered());
    assert_eq!(other.read(&mut arrived[10..]), Ok(Some(message.len() - 10)));
    assert_eq!(&arrived[..message.len()], message);
    assert!(seen.len() > message.len() && !seen.windows(8).any(|bytes| bytes == &message[..8]));
    // A bit that is flipped on the way is noticed.
    one.write(message).expect("the socket takes it");
    let mut record = vec![0; 1 << 10];
    let bytes = near_tap.receive(&mut record).expect("it is there");
    record[bytes - 1] ^= 1;
    assert_eq!(far_tap.send(&record[..bytes]), Ok(bytes));
    let error = other.read(&mut arrived).expect_err("it is damaged");
    assert!(matches!(&error, ChannelError::Nonsense(sentence) if sentence.contains("decrypted")), "{error}");
}

/// A proof is of one connection: somebody in the middle, who has one with each side, can pass none on.
#[test]
fn a_proof_is_of_one_connection_alone() {
    let secret = Secret::new("the secret of this deployment").expect("it is long enough");
    let ((near, middle), (other_middle, far)) = (pair(), pair());
    let binding = |end: &Tls| end.binding().expect("they have agreed");
    assert_eq!(binding(&near), binding(&middle), "both ends derive the same");
    let (nonce, hello) = ([7; 32], b"hello");
    let transcript = |connection| Transcript { hello: hello.as_slice(), nonce: &nonce, connection };
    let (near_binding, middle_binding, far_binding) = (binding(&near), binding(&middle), binding(&far));
    let proof = secret.prove(Prover::Connecting, &transcript(near_binding.as_slice()));
    assert!(secret.verify(Prover::Connecting, &transcript(middle_binding.as_slice()), &proof));
    assert!(!secret.verify(Prover::Connecting, &transcript(far_binding.as_slice()), &proof));
    assert!(
        !secret.verify(Prover::Accepting, &transcript(near_binding.as_slice()), &proof),
        "a side's is not the other's"
    );
    drop(other_middle);
}

#[test]
fn the_end_and_a_backlog_are_seen() {
    let (mut one, mut other) = pair();
    let long = vec![3; 4 << 20];
    let taken = one.write(&long).expect("the peer lives");
    assert!(taken < long.len() && one.is_behind(), "a socket has less room");
    let mut arrived = 0;
    let mut buffer = vec![0; 1 << 16];
    while one.is_behind() || other.has_buffered() || arrived < taken {
        arrived += other.read(&mut buffer).expect("the peer lives").unwrap_or(0);
        assert_eq!(one.write(&[]), Ok(0));
    }
    assert_eq!(arrived, taken);
    drop(one);
    assert_eq!(other.read(&mut buffer), Ok(Some(0)));
}

#[test]
fn who_does_not_speak_tls_is_told_so_in_plain_words() {
    let (mut near, far) = sockets();
    let mut server = TlsServer::new().and_then(|server| server.accept(far)).expect("it begins");
    near.write(&[0xA7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).expect("the socket takes it");
    let error = server.read(&mut [0; 10]).expect_err("it is no TLS");
    assert!(error.to_string().contains("same shared secret"), "{error}");
    server.write(b"in plain words").expect("the socket takes it");
    let mut told = [0; 14];
    assert_eq!(near.read(&mut told), Ok(Some(14)));
    assert_eq!(&told, b"in plain words");
}
