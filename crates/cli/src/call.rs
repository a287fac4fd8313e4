//! `atrapos call`: a stored procedure of a deployment, by its name.
//!
//! Owns: hexadecimal digits. Never: knows a procedure.

use atrapos::CallError;
use atrapos_instances::{Client, ClientError, ClientOptions};

use crate::args::CallArgs;
use crate::error::CliError;
use crate::output;

/// Calls the procedure and prints its encoded result.
pub(crate) fn call(args: &CallArgs) -> Result<(), CliError> {
    let Some(arguments) = bytes_of(&args.arguments) else {
        return Err(CliError::bad_input(format!(
            "'{}' is no encoded value; give two hexadecimal digits for each byte, such as 01ac02",
            args.arguments
        )));
    };
    let options = ClientOptions { kind: args.channel, ..ClientOptions::default() };
    let called = Client::connect(&args.directory, options)
        .and_then(|client| client.call_named(&args.name, &arguments));
    match called {
        Ok(result) => {
            let digits: String = result.iter().map(|byte| format!("{byte:02x}")).collect();
            output::print(&format!("{digits}\n"))
        }
        Err(error @ ClientError::Call(CallError::Aborted(_))) => Err(CliError::failed(error)),
        Err(error @ (ClientError::Call(_) | ClientError::Directory(_))) => Err(CliError::bad_input(error)),
        Err(error) => Err(CliError::failed(error)),
    }
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    if digits.is_empty()
        || !digits.len().is_multiple_of(2)
        || !digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_bytes() {
        assert_eq!(bytes_of("01Ac02"), Some(vec![1, 0xac, 2]));
        for other in ["", "0", "0g", "+1", "é1", "0x01"] {
            assert_eq!(bytes_of(other), None, "{other}");
        }
    }
}
