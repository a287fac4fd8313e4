//! Messages to clients.
//!
//! Owns: their bytes. Never: knows when they are due.

/// The thing that a request for authentication asks for.
#[derive(Debug)]
pub(crate) enum Authentication<'a> {
    /// Nothing any more.
    Ok,
    /// A choice of these mechanisms.
    Sasl(&'a [&'a str]),
    /// An answer to this.
    SaslContinue(&'a str),
    /// Nothing: this proves that the server knows the password, too.
    SaslFinal(&'a str),
}

/// Appends a message whose body `fill` appends.
///
/// A body of 2 GiB cannot be told to a client. Rows and texts of this engine are far smaller, and so are its messages.
pub(crate) fn message(out: &mut Vec<u8>, tag: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    fill(out);
    let length = i32::try_from(out.len() - start).expect("a message of less than 2 GiB");
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a string with the zero byte that ends it. One inside of it would end it early: it is left out.
pub(crate) fn string(out: &mut Vec<u8>, text: &str) {
    if text.as_bytes().contains(&0) {
        out.extend(text.bytes().filter(|&byte| byte != 0));
    } else {
        out.extend_from_slice(text.as_bytes());
    }
    out.push(0);
}

/// Appends a number of values.
pub(crate) fn count(out: &mut Vec<u8>, count: usize) {
    let count = u16::try_from(count).expect("at most 65,535 values in a message");
    out.extend_from_slice(&count.to_be_bytes());
}

pub(crate) fn authentication(out: &mut Vec<u8>, request: &Authentication<'_>) {
    message(out, b'R', |body| match request {
        Authentication::Ok => body.extend_from_slice(&0_i32.to_be_bytes()),
        Authentication::Sasl(mechanisms) => {
            body.extend_from_slice(&10_i32.to_be_bytes());
            for mechanism in *mechanisms {
                string(body, mechanism);
            }
            body.push(0);
        }
        Authentication::SaslContinue(data) => {
            body.extend_from_slice(&11_i32.to_be_bytes());
            body.extend_from_slice(data.as_bytes());
        }
        Authentication::SaslFinal(data) => {
            body.extend_from_slice(&12_i32.to_be_bytes());
            body.extend_from_slice(data.as_bytes());
        }
    });
}

pub(crate) fn negotiate_version(out: &mut Vec<u8>, newest: u32, unknown: &[&str]) {
    message(out, b'v', |body| {
        body.extend_from_slice(&newest.to_be_bytes());
        let number = u32::try_from(unknown.len()).expect("fewer options than the bytes of a packet");
        body.extend_from_slice(&number.to_be_bytes());
        for option in unknown {
            string(body, option);
        }
    });
}

pub(crate) fn key_data(out: &mut Vec<u8>, process: i32, secret: &[u8]) {
    message(out, b'K', |body| {
        body.extend_from_slice(&process.to_be_bytes());
        body.extend_from_slice(secret);
    });
}

pub(crate) fn parameter_status(out: &mut Vec<u8>, name: &str, value: &str) {
    message(out, b'S', |body| {
        string(body, name);
        string(body, value);
    });
}

/// Appends a message without a body.
pub(crate) fn bare(out: &mut Vec<u8>, tag: u8) {
    message(out, tag, |_| ());
}

pub(crate) fn ready_for_query(out: &mut Vec<u8>, status: u8) {
    message(out, b'Z', |body| body.push(status));
}

pub(crate) fn command_complete(out: &mut Vec<u8>, tag: &str) {
    message(out, b'C', |body| string(body, tag));
}

pub(crate) fn parameter_description(out: &mut Vec<u8>, types: impl ExactSizeIterator<Item = u32>) {
    message(out, b't', |body| {
        count(body, types.len());
        for oid in types {
            body.extend_from_slice(&oid.to_be_bytes());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_count_themselves_and_the_body() {
        let mut out = Vec::new();
        ready_for_query(&mut out, b'I');
        command_complete(&mut out, "SEL\0ECT 1");
        bare(&mut out, b'1');
        assert_eq!(out, b"Z\0\0\0\x05IC\0\0\0\x0dSELECT 1\x001\0\0\0\x04");
    }

    #[test]
    fn mechanisms_are_a_list_that_ends() {
        let mut out = Vec::new();
        authentication(&mut out, &Authentication::Sasl(&["A", "B"]));
        assert_eq!(out, b"R\0\0\0\x0d\0\0\0\x0aA\0B\0\0");
    }
}
