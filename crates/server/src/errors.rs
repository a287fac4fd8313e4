//! Errors of the protocol and of connections, and the messages that tell of any error.
//!
//! Owns: SQLSTATEs that statements know nothing of. Never: decides whether a connection goes on.

use atrapos_sql::{Severity, SqlError, SqlState};

use crate::protocol::backend;
use crate::protocol::body::Malformed;

/// The password is wrong.
pub(crate) const INVALID_PASSWORD: SqlState = SqlState("28P01");
/// There is no such database.
pub(crate) const UNDEFINED_DATABASE: SqlState = SqlState("3D000");
/// The server begins or ends.
pub(crate) const CANNOT_CONNECT_NOW: SqlState = SqlState("57P03");
/// The connection has failed.
pub(crate) const CONNECTION_FAILURE: SqlState = SqlState("08006");

/// Makes an error that ends the connection.
pub(crate) fn fatal(code: SqlState, message: impl Into<String>) -> SqlError {
    SqlError::new(code, message).severity(Severity::Fatal)
}

/// Makes the error of a message that is none.
pub(crate) fn malformed(error: &Malformed) -> SqlError {
    let code = match error {
        Malformed::Encoding(_) => SqlState::CHARACTER_NOT_IN_REPERTOIRE,
        Malformed::Body(..) | Malformed::Type(_) => SqlState::PROTOCOL_VIOLATION,
    };
    SqlError::new(code, error.to_string())
}

/// Appends an ErrorResponse, or a NoticeResponse, by the severity.
pub(crate) fn write(out: &mut Vec<u8>, error: &SqlError) {
    let tag = match error.severity {
        Severity::Error | Severity::Fatal => b'E',
        Severity::Warning | Severity::Notice => b'N',
    };
    let position = error.position.map(|position| position.to_string());
    backend::message(out, tag, |body| {
        let mut field = |code: u8, text: &str| {
            body.push(code);
            backend::string(body, text);
        };
        field(b'S', error.severity.word());
        field(b'V', error.severity.word());
        field(b'C', error.code.0);
        field(b'M', &error.message);
        for (code, text) in [
            (b'D', &error.detail),
            (b'H', &error.hint),
            (b'P', &position),
            (b'W', &error.context),
            (b't', &error.table),
            (b'c', &error.column),
            (b'd', &error.data_type),
            (b'n', &error.constraint),
        ] {
            if let Some(text) = text {
                field(code, text);
            }
        }
        body.push(0);
    });
}
