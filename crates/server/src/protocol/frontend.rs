//! Messages from clients, after the start.
//!
//! Owns: their types and bodies. Never: decides which of them may come when.

use smallvec::SmallVec;

use super::body::{Body, Malformed};

/// The thing that Describe and Close name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A prepared statement.
    Statement,
    /// A portal.
    Portal,
}

/// A Bind message: values for the parameters of a prepared statement.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bind<'a> {
    pub(crate) portal: &'a str,
    pub(crate) statement: &'a str,
    /// Format codes of the parameters: none (all text), one for all, or one each.
    pub(crate) parameter_formats: SmallVec<[i16; 8]>,
    /// The values; `None` is NULL.
    pub(crate) parameters: SmallVec<[Option<&'a [u8]>; 8]>,
    /// Format codes of the columns of the result: none, one for all, or one each.
    pub(crate) result_formats: SmallVec<[i16; 8]>,
}

/// A message from a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frontend<'a> {
    /// SQL text with any number of statements.
    Query(&'a str),
    Parse {
        name: &'a str,
        text: &'a str,
        /// Types of the first parameters; zero leaves a type open.
        types: SmallVec<[u32; 8]>,
    },
    Bind(Bind<'a>),
    Describe(Target, &'a str),
    Execute {
        portal: &'a str,
        /// The most rows to send; zero is all.
        limit: u32,
    },
    Close(Target, &'a str),
    Flush,
    Sync,
    CopyData(&'a [u8]),
    CopyDone,
    CopyFail(&'a str),
    /// A call of a function by its OID, which PostgreSQL itself calls obsolete.
    FunctionCall,
    /// An answer to a request for authentication.
    Password(&'a [u8]),
    Terminate,
}

impl<'a> Frontend<'a> {
    /// Reads a message of type `tag`.
    ///
    /// # Errors
    /// Fails if there is no such type, or the body is none of it.
    pub(crate) fn read(tag: u8, bytes: &'a [u8]) -> Result<Frontend<'a>, Malformed> {
        let mut body = Body::new(tag, bytes);
        let message = match tag {
            b'Q' => Frontend::Query(body.string()?),
            b'P' => Frontend::Parse {
                name: body.string()?,
                text: body.string()?,
                types: list(&mut body, Body::uint32)?,
            },
            b'B' => Frontend::Bind(bind(&mut body)?),
            b'D' => Frontend::Describe(target(&mut body)?, body.string()?),
            b'E' => Frontend::Execute { portal: body.string()?, limit: limit(&mut body)? },
            b'C' => Frontend::Close(target(&mut body)?, body.string()?),
            b'H' => Frontend::Flush,
            b'S' => Frontend::Sync,
            b'd' => Frontend::CopyData(body.remainder()),
            b'c' => Frontend::CopyDone,
            b'f' => Frontend::CopyFail(body.string()?),
            b'F' => {
                body.remainder();
                Frontend::FunctionCall
            }
            b'p' => Frontend::Password(body.remainder()),
            b'X' => Frontend::Terminate,
            other => return Err(Malformed::Type(other)),
        };
        body.end()?;
        Ok(message)
    }
}

/// Returns true if `tag` is a message of the extended protocol: after an error in one of them, all are skipped up to Sync.
pub(crate) fn is_extended(tag: u8) -> bool {
    matches!(tag, b'P' | b'B' | b'D' | b'E' | b'C' | b'H')
}

fn list<'a, T, const N: usize>(
    body: &mut Body<'a>,
    mut read: impl FnMut(&mut Body<'a>) -> Result<T, Malformed>,
) -> Result<SmallVec<[T; N]>, Malformed>
where
    [T; N]: smallvec::Array<Item = T>,
{
    let count = body.count()?;
    // Not reserved: the count is a claim, the values are not there yet.
    let mut values = SmallVec::new();
    for _ in 0..count {
        values.push(read(body)?);
    }
    Ok(values)
}

fn bind<'a>(body: &mut Body<'a>) -> Result<Bind<'a>, Malformed> {
    Ok(Bind {
        portal: body.string()?,
        statement: body.string()?,
        parameter_formats: list(body, Body::int16)?,
        parameters: list(body, Body::value)?,
        result_formats: list(body, Body::int16)?,
    })
}

fn target(body: &mut Body<'_>) -> Result<Target, Malformed> {
    match body.byte()? {
        b'S' => Ok(Target::Statement),
        b'P' => Ok(Target::Portal),
        _ => Err(body.malformed("it names neither a statement nor a portal")),
    }
}

/// Reads a limit of rows: zero and below are no limit, as PostgreSQL has it.
fn limit(body: &mut Body<'_>) -> Result<u32, Malformed> {
    Ok(u32::try_from(body.int32()?).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_field_by_field() {
        let parse = b"name\0select $1\0\0\x02\0\0\0\x17\0\0\0\0";
        assert_eq!(
            Frontend::read(b'P', parse),
            Ok(Frontend::Parse { name: "name", text: "select $1", types: [23, 0].into_iter().collect() })
        );
        let body = b"\0s\0\0\x01\0\x01\0\x03\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\0\0\0";
        let Ok(Frontend::Bind(read)) = Frontend::read(b'B', body) else { panic!("a Bind message") };
        assert_eq!((read.portal, read.statement), ("", "s"));
        assert_eq!(read.parameter_formats.as_slice(), [1]);
        assert_eq!(read.parameters.as_slice(), [Some(&b"ab"[..]), None, Some(&b""[..])]);
        assert!(read.result_formats.is_empty());
        assert_eq!(
            Frontend::read(b'E', b"p\0\xff\xff\xff\xff"),
            Ok(Frontend::Execute { portal: "p", limit: 0 })
        );
        assert_eq!(Frontend::read(b'C', b"Sx\0"), Ok(Frontend::Close(Target::Statement, "x")));
    }

    #[test]
    fn bodies_that_are_short_long_or_not_utf8_are_refused() {
        for (tag, body) in [
            (b'Q', &b"select 1"[..]),
            (b'Q', b"a\0b\0"),
            (b'B', b"\0\0\0\0\0\x01\0\0\0\x05ab"),
            (b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0"),
            (b'B', b"\0\0\xff\xff"),
            (b'D', b"Xa\0"),
            (b'S', b"\0"),
        ] {
            assert!(matches!(Frontend::read(tag, body), Err(Malformed::Body(..))), "{body:?}");
        }
        assert_eq!(Frontend::read(b'Q', b"\xff\0"), Err(Malformed::Encoding('Q')));
        assert_eq!(Frontend::read(b'?', b""), Err(Malformed::Type(b'?')));
    }
}
