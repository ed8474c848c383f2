//! As much of QEMU's monitor protocol as a change of the block graph, or a question how the machine is, needs: commands over a unix socket, one at a time.
//!
//! Source: QEMU's `docs/interop/qmp-spec`: a greeting, `qmp_capabilities`, then a JSON object per line; events may come at any time and are skipped.

use crate::Deadline;
use crate::api::{Stream, connect_unix, left};
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use thiserror::Error;

/// A line is no longer (ours: a block graph of thousands of nodes is far below).
const LINE_BYTES_MAX: usize = 16 << 20;

/// Why a command gave nothing.
#[derive(Debug, Error)]
pub(crate) enum QmpError {
    /// QEMU says no.
    #[error("QEMU refuses `{command}`: {description}")]
    Refused {
        /// What.
        command: String,
        /// Why.
        description: String,
    },
    /// Nothing was heard, or nothing that makes sense.
    #[error("QEMU does not answer `{command}`: {source}")]
    Silent {
        /// What.
        command: String,
        /// Why.
        source: io::Error,
    },
}

fn stranger() -> io::Error {
    io::Error::other("what listens there does not greet as QEMU does")
}

/// A connection to a monitor.
pub(crate) struct Qmp {
    stream: UnixStream,
    received: Vec<u8>,
    next_id: u64,
}

impl Qmp {
    /// Connects and agrees on nothing special.
    pub(crate) fn connect(path: &Path, deadline: Deadline) -> Result<Qmp, QmpError> {
        let silent = |source| QmpError::Silent { command: "connect".to_owned(), source };
        let stream = connect_unix(path).map_err(silent)?;
        let mut qmp = Qmp { stream, received: Vec::new(), next_id: 0 };
        let is_late =
            |error: &io::Error| matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        let greeting = qmp.line(deadline).map_err(|error| match error {
            error if is_late(&error) => silent(io::Error::new(
                io::ErrorKind::TimedOut,
                "no greeting in time; a monitor serves one client at a time: is another connected to it?",
            )),
            error if error.kind() == io::ErrorKind::Other => silent(stranger()),
            error => silent(error),
        })?;
        if greeting.get("QMP").is_none() {
            return Err(silent(stranger()));
        }
        qmp.run("qmp_capabilities", json!({}), deadline)?;
        Ok(qmp)
    }

    /// Runs a command; what it returns.
    pub(crate) fn run(
        &mut self,
        command: &str,
        arguments: Value,
        deadline: Deadline,
    ) -> Result<Value, QmpError> {
        self.next_id += 1;
        let id = self.next_id;
        let silent = |source| QmpError::Silent { command: command.to_owned(), source };
        let line = format!("{}\n", json!({ "execute": command, "arguments": arguments, "id": id }));
        left(deadline).and_then(|span| self.stream.limit(span)).map_err(silent)?;
        self.stream.write_all(line.as_bytes()).map_err(silent)?;
        loop {
            let mut answer = self.line(deadline).map_err(silent)?;
            if answer["id"] != id {
                continue; // An event, or the answer to a command that was given up.
            }
            if let Some(error) = answer.get("error") {
                let description = error["desc"].as_str().unwrap_or("without a reason").to_owned();
                return Err(QmpError::Refused { command: command.to_owned(), description });
            }
            return Ok(answer["return"].take());
        }
    }

    fn line(&mut self, deadline: Deadline) -> io::Result<Value> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.received[searched..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=searched + end).collect();
                return serde_json::from_slice(&line).map_err(io::Error::other);
            }
            searched = self.received.len();
            if self.received.len() > LINE_BYTES_MAX {
                return Err(io::Error::other("the answer does not end"));
            }
            self.stream.limit(left(deadline)?)?;
            let mut buffer = [0; 16 << 10];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    /// A monitor that says `lines`, one after each line that it hears but for the first.
    fn monitor(lines: &'static [&'static str]) -> (tempfile::TempDir, Result<Value, QmpError>) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("qmp");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = BufReader::new(stream.try_clone().unwrap()).lines();
            for (at, line) in lines.iter().enumerate() {
                if at > 0 && heard.next().is_none() {
                    return;
                }
                let _ = stream.write_all(line.as_bytes());
            }
        });
        let deadline = Deadline::after(Duration::from_secs(10));
        let answer =
            Qmp::connect(&socket, deadline).and_then(|mut qmp| qmp.run("query-status", json!({}), deadline));
        server.join().unwrap();
        (folder, answer)
    }

    #[test]
    fn a_monitor_that_does_not_greet_is_said_to_be_taken_perhaps() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("qmp");
        let _listener = UnixListener::bind(&socket).unwrap();
        let error = Qmp::connect(&socket, Deadline::after(Duration::from_millis(20))).err().unwrap();
        assert!(error.to_string().contains("is another connected to it?"), "{error}");
    }

    #[test]
    fn events_are_passed_over_and_errors_told() {
        const GREETING: &str = "{\"QMP\": {\"version\": {}}}\r\n";
        const AGREED: &str = "{\"return\": {}, \"id\": 1}\r\n";
        const EVENT: &str =
            "{\"event\": \"RESUME\"}\r\n{\"return\": {\"status\": \"running\"}, \"id\": 2}\r\n";
        let answer = monitor(&[GREETING, AGREED, EVENT]).1;
        assert_eq!(answer.unwrap()["status"], "running");
        const REFUSAL: &str =
            "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no such thing\"}, \"id\": 2}\r\n";
        let error = monitor(&[GREETING, AGREED, REFUSAL]).1.unwrap_err();
        assert!(
            matches!(&error, QmpError::Refused { description, .. } if description == "no such thing"),
            "{error}"
        );
        let told = monitor(&["SSH-2.0\r\n"]).1.unwrap_err().to_string();
        assert!(told.contains("does not greet as QEMU does"), "{told}");
        assert!(matches!(monitor(&[GREETING]).1, Err(QmpError::Silent { .. })), "it goes away");
    }
}
