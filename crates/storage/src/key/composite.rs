//! Keys that are made of other keys: parts that may be NULL, descending parts, and several of them.
//!
//! Owns how these change the bytes of what they consist of. It never looks at rows or trees.

use super::types::take;
use super::{Key, KeyBuf, KeyError, KeyPart};
use std::cmp::Reverse;
use std::marker::PhantomData;

/// The type inside an `Option`.
struct Part<K>(PhantomData<K>);

impl<K: Key> Part<K> {
    /// Refuses, when it is compiled, what definitions cannot describe.
    const IS_ONE: () = assert!(
        K::IS_PLAIN,
        "only a single column may be NULL: write Reverse<Option<K>>, or an Option for each part"
    );
}

/// A byte 0 for `None`, a byte 1 before the key of anything else. For keys of indexes only: no part of a primary key may be NULL.
impl<K: Key> Key for Option<K> {
    fn push_parts(parts: &mut Vec<KeyPart>) {
        const { Part::<K>::IS_ONE };
        let first = parts.len();
        K::push_parts(parts);
        parts[first..].iter_mut().for_each(|part| part.nullable = true);
    }

    #[inline]
    fn encode_into(&self, out: &mut KeyBuf) {
        const { Part::<K>::IS_ONE };
        out.push(u8::from(self.is_some()));
        if let Some(key) = self {
            key.encode_into(out);
        }
    }

    #[inline]
    fn decode_from(input: &mut &[u8]) -> Result<Self, KeyError> {
        let mut rest = *input;
        let key = match take::<1>(&mut rest, "key that may be NULL")? {
            [0] => None,
            [1] => Some(K::decode_from(&mut rest)?),
            _ => return Err(KeyError::Malformed("key that may be NULL")),
        };
        *input = rest;
        Ok(key)
    }
}

/// The bytes of the key, inverted: no encoding is the beginning of another, so this turns the order round.
impl<K: Key> Key for Reverse<K> {
    fn push_parts(parts: &mut Vec<KeyPart>) {
        let first = parts.len();
        K::push_parts(parts);
        for part in &mut parts[first..] {
            part.descending = !part.descending;
        }
    }

    #[inline]
    fn encode_into(&self, out: &mut KeyBuf) {
        for byte in self.0.encode().iter() {
            out.push(!byte);
        }
    }

    fn decode_from(input: &mut &[u8]) -> Result<Self, KeyError> {
        let inverted: Vec<u8> = input.iter().map(|byte| !byte).collect();
        let mut rest = &inverted[..];
        let key = K::decode_from(&mut rest)?;
        *input = &input[input.len() - rest.len()..];
        Ok(Reverse(key))
    }
}

macro_rules! tuple_keys {
    ($(($($part:ident . $index:tt),+);)*) => {$(
        /// The encodings of the parts one after another.
        impl<$($part: Key),+> Key for ($($part,)+) {
            fn push_parts(parts: &mut Vec<KeyPart>) {
                $($part::push_parts(parts);)+
            }

            #[inline]
            fn encode_into(&self, out: &mut KeyBuf) {
                $(self.$index.encode_into(out);)+
            }

            #[inline]
            fn decode_from(input: &mut &[u8]) -> Result<Self, KeyError> {
                let mut rest = *input;
                let key = ($($part::decode_from(&mut rest)?,)+);
                *input = rest;
                Ok(key)
            }
        }
    )*};
}

tuple_keys! {
    (A.0);
    (A.0, B.1);
    (A.0, B.1, C.2);
    (A.0, B.1, C.2, D.3);
    (A.0, B.1, C.2, D.3, E.4);
    (A.0, B.1, C.2, D.3, E.4, F.5);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6, H.7);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6, H.7, I.8);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6, H.7, I.8, J.9);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6, H.7, I.8, J.9, K.10);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6, H.7, I.8, J.9, K.10, L.11);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6, H.7, I.8, J.9, K.10, L.11, M.12);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6, H.7, I.8, J.9, K.10, L.11, M.12, N.13);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6, H.7, I.8, J.9, K.10, L.11, M.12, N.13, O.14);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6, H.7, I.8, J.9, K.10, L.11, M.12, N.13, O.14, P.15);
}
