//! A client of the owner's socket, for a shell.
//!
//! Owns: the client's side of simple queries, with values as text. Never: proves who it is (the socket is the owner's), or prepares a
//! statement: programs have drivers.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::listener::short_path;
use crate::protocol::backend;
use crate::protocol::body::{Body, Malformed};

/// The version that is spoken: 3.0.
const VERSION: u32 = 3 << 16;
/// The bytes of a COPY FROM STDIN that are sent in one message.
const PIECE: usize = 1 << 16;

/// Something that the server has told.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The names of the columns of rows that follow.
    Columns(Vec<&'a str>),
    /// The values of a row, as text; `None` is NULL.
    Row(Vec<Option<&'a str>>),
    /// The end of a statement: its command tag.
    Complete(&'a str),
    /// A piece of what a COPY TO STDOUT sends.
    Copied(&'a [u8]),
    /// A notice, in one line and further ones.
    Notice(String),
    /// An error, in one line and further ones; statements after it have not been run.
    Error(String),
}

/// A connection that cannot be made or has ended.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No server listens there.
    #[error("no server listens in {}; start one with `atrapos serve`", .0.display())]
    NoServer(PathBuf),
    /// The server refused the connection.
    #[error("{0}")]
    Refused(String),
    /// The connection ended.
    #[error("the connection to the server is lost: {0}")]
    Lost(#[from] io::Error),
}

impl From<Malformed> for ClientError {
    fn from(error: Malformed) -> ClientError {
        ClientError::Lost(io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

/// A connection to a server by the owner's socket.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    body: Vec<u8>,
}

impl Client {
    /// Connects to the server whose owner's socket is in a directory.
    ///
    /// # Errors
    /// Fails if there is none, or it refuses the user.
    pub fn connect(directory: &Path, user: &str) -> Result<Client, ClientError> {
        let none = || ClientError::NoServer(directory.to_owned());
        let opened = File::open(directory).map_err(|_| none())?;
        let entries = std::fs::read_dir(directory).map_err(|_| none())?;
        let stream = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with(".s.PGSQL."))
            .find_map(|name| UnixStream::connect(short_path(&opened, &name)).ok())
            .ok_or_else(none)?;
        let mut client = Client { stream, body: Vec::new() };
        let mut packet = vec![0; 4];
        packet.extend_from_slice(&VERSION.to_be_bytes());
        for text in ["user", user, "application_name", "atrapos sql", ""] {
            backend::string(&mut packet, text);
        }
        let length = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        packet[..4].copy_from_slice(&length.to_be_bytes());
        client.stream.write_all(&packet)?;
        let mut refused = None;
        client
            .answers(&mut io::empty(), &mut |event| {
                if let Event::Error(error) = event {
                    refused = Some(error);
                }
            })
            .map_err(|error| refused.take().map_or(error, ClientError::Refused))?;
        Ok(client)
    }

    /// Runs statements and hands on what the server tells, in its order. A COPY FROM STDIN takes all of `source`.
    ///
    /// # Errors
    /// Fails if the connection ends. Errors of statements are events; one of `source` is what its COPY fails with.
    pub fn query(
        &mut self,
        text: &str,
        source: &mut dyn Read,
        told: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), ClientError> {
        let mut message = Vec::new();
        backend::message(&mut message, b'Q', |body| backend::string(body, text));
        self.stream.write_all(&message)?;
        self.answers(source, told)
    }

    /// Hands on what the server tells, up to ReadyForQuery.
    fn answers(&mut self, source: &mut dyn Read, told: &mut dyn FnMut(Event<'_>)) -> Result<(), ClientError> {
        loop {
            let mut head = [0; 5];
            self.stream.read_exact(&mut head)?;
            let [tag, length @ ..] = head;
            let length = (u32::from_be_bytes(length) as usize).saturating_sub(4);
            self.body.clear();
            (&mut self.stream).take(length as u64).read_to_end(&mut self.body)?;
            if self.body.len() < length {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            let mut body = Body::new(tag, &self.body);
            match tag {
                b'Z' => return Ok(()),
                b'T' => told(Event::Columns(columns(&mut body)?)),
                b'D' => told(Event::Row(row(&mut body)?)),
                b'C' => told(Event::Complete(body.string()?)),
                b'd' => told(Event::Copied(body.remainder())),
                b'E' => told(Event::Error(report(&mut body)?)),
                b'N' => told(Event::Notice(report(&mut body)?)),
                b'G' => self.send(source)?,
                _ => {}
            }
        }
    }

    /// Sends what a COPY FROM STDIN asks for.
    fn send(&mut self, source: &mut dyn Read) -> io::Result<()> {
        let (mut piece, mut message) = (vec![0; PIECE], Vec::new());
        loop {
            message.clear();
            let read = source.read(&mut piece);
            match &read {
                Ok(0) => backend::message(&mut message, b'c', |_| {}),
                Ok(read) => {
                    backend::message(&mut message, b'd', |body| body.extend_from_slice(&piece[..*read]));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => backend::message(&mut message, b'f', |body| {
                    backend::string(body, &format!("the data cannot be read: {error}"));
                }),
            }
            self.stream.write_all(&message)?;
            if !matches!(read, Ok(1..)) {
                return Ok(());
            }
        }
    }
}

fn columns<'a>(body: &mut Body<'a>) -> Result<Vec<&'a str>, Malformed> {
    /// Bytes of a column's description behind its name.
    const DESCRIPTION: usize = 18;
    let count = body.count()?;
    (0..count)
        .map(|_| {
            let name = body.string()?;
            body.bytes(DESCRIPTION).map(|_| name)
        })
        .collect()
}

fn row<'a>(body: &mut Body<'a>) -> Result<Vec<Option<&'a str>>, Malformed> {
    let count = body.count()?;
    (0..count).map(|_| body.value().map(|value| value.map(text))).collect()
}

fn text(value: &[u8]) -> &str {
    std::str::from_utf8(value).unwrap_or("(not UTF-8)")
}

/// Returns the text of an error or a notice: severity and message, and what else helps.
fn report(body: &mut Body<'_>) -> Result<String, Malformed> {
    let (mut line, mut further) = (String::new(), String::new());
    loop {
        match body.byte()? {
            0 => return Ok(line + &further),
            b'S' => line = format!("{}: {line}", body.string()?),
            b'M' => line.push_str(body.string()?),
            b'D' => further += &format!("\nDETAIL: {}", body.string()?),
            b'H' => further += &format!("\nHINT: {}", body.string()?),
            _ => {
                body.string()?;
            }
        }
    }
}
