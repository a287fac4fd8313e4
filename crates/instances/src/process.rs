//! The process of an instance, and what it says.
//!
//! A process is told what to do by lines on its standard input, and answers by lines on its standard output, each a JSON value. It ends
//! in order when its standard input ends; so none outlives the process that started it.
//!
//! Owns: the start of a process, its pipes and its end. Never: knows what the lines mean.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A process of an instance.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended(pub ExitStatus);

/// The failures of a process. Each names it and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It could not be started.
    #[error("{0} could not be started: {1}; see whether the program may be run again by itself")]
    Start(String, std::io::Error),
    /// It has ended.
    #[error("{name} has ended ({status}); what it has written above says why")]
    Ended {
        /// The process.
        name: String,
        /// Its exit status, or the signal that killed it.
        status: String,
    },
    /// It has not answered in time.
    #[error("{0} has not answered within {1} s; see whether the machine is overloaded")]
    Silent(String, u64),
    /// It has answered something that is no answer.
    #[error("{0} has answered nonsense ({1}); use one version of the program for all instances")]
    Nonsense(String, String),
}

impl Process {
    /// Starts a process. Its standard error is that of this process.
    ///
    /// # Errors
    /// Fails if it cannot be started.
    pub fn start(name: impl Into<String>, command: &mut Command) -> Result<Process, ProcessError> {
        let name = name.into();
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| ProcessError::Start(name.clone(), error))?;
        let input = child.stdin.take();
        let (sender, lines) = channel();
        if let Some(output) = child.stdout.take() {
            // It ends with the output, which the end of the process closes.
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Process { name, child, input, lines })
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number by which the operating system knows it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line.
    ///
    /// # Errors
    /// Fails if the process has ended.
    pub fn tell(&mut self, what: &impl Serialize) -> Result<(), ProcessError> {
        let line = serde_json::to_string(what).map_err(|error| self.nonsense(&error.to_string()))?;
        let sent = self.input.as_mut().is_some_and(|input| writeln!(input, "{line}").is_ok());
        if sent { Ok(()) } else { Err(self.ended()) }
    }

    /// Waits for the next line.
    ///
    /// # Errors
    /// Fails if the process ends first, says nothing in time, or says something else.
    pub fn answer<A: DeserializeOwned>(&mut self, patience: Duration) -> Result<A, ProcessError> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => {
                serde_json::from_str(&line).map_err(|error| self.nonsense(&format!("{error}: {line}")))
            }
            Err(RecvTimeoutError::Timeout) => {
                Err(ProcessError::Silent(self.name.clone(), patience.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
        }
    }

    /// Returns the next line, if there is one.
    ///
    /// # Errors
    /// Fails if the process has ended, or says something else.
    pub fn try_answer<A: DeserializeOwned>(&mut self) -> Result<Option<A>, ProcessError> {
        match self.lines.try_recv() {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(answer) => Ok(Some(answer)),
                Err(error) => Err(self.nonsense(&format!("{error}: {line}"))),
            },
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(self.ended()),
        }
    }

    /// Returns how it has ended; `None` if it runs.
    pub fn try_ended(&mut self) -> Option<Ended> {
        self.child.try_wait().ok().flatten().map(Ended)
    }

    /// Asks it to end, and waits; kills it if it has not ended after `patience`.
    pub fn stop(mut self, patience: Duration) -> Option<Ended> {
        self.input = None;
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(ended) = self.try_ended() {
                return Some(ended);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.kill();
        None
    }

    /// Kills it, and waits for its end.
    pub fn kill(&mut self) {
        // One that has ended cannot be killed, and is waited for all the same.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn ended(&mut self) -> ProcessError {
        // Its pipes are closed, so it is about to end.
        let status = match self.child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        ProcessError::Ended { name: self.name.clone(), status }
    }

    fn nonsense(&self, what: &str) -> ProcessError {
        ProcessError::Nonsense(self.name.clone(), what.to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
