//! A blocking NBD client around `forebay_nbd::client::Session`, small enough to be believed.

use forebay_nbd::client::{Config, Event, Operation, Session};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    session: Session,
    input: Vec<u8>,
    next_cookie: u64,
    /// Offset and bytes of the reads in flight.
    reads: HashMap<u64, (u64, Vec<u8>)>,
}

/// A finished request: its cookie, and the bytes of a read, or whether it failed.
pub(crate) type Finished = (u64, Result<Vec<u8>, String>);

impl Client {
    pub(crate) fn connect(path: &Path, export: &str) -> io::Result<Client> {
        let stream = UnixStream::connect(path)?;
        // A test that would hang fails instead.
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.set_write_timeout(Some(Duration::from_secs(20)))?;
        let session = Session::new(Config::new(export));
        let mut client = Client { stream, session, input: Vec::new(), next_cookie: 1, reads: HashMap::new() };
        while !client.session.is_ready() {
            client.step()?;
        }
        Ok(client)
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.session.export().unwrap().size_bytes
    }

    /// Sends a request; its cookie.
    pub(crate) fn submit(&mut self, operation: Operation, data: &[u8]) -> io::Result<u64> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let mut output = Vec::new();
        self.session.submit(cookie, operation, &mut output).map_err(io::Error::other)?;
        if let Operation::Read { offset, length, .. } = operation {
            self.reads.insert(cookie, (offset, vec![0; length as usize]));
        }
        output.extend_from_slice(data);
        self.stream.write_all(&output)?;
        Ok(cookie)
    }

    pub(crate) fn read(&mut self, offset: u64, length: u32) -> io::Result<u64> {
        self.submit(Operation::Read { offset, length, dont_fragment: false }, &[])
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<u64> {
        self.submit(Operation::Write { offset, length: data.len() as u32, fua: false }, data)
    }

    /// Waits until some request is finished.
    pub(crate) fn finish_one(&mut self) -> io::Result<Finished> {
        loop {
            if let Some(finished) = self.step()? {
                return Ok(finished);
            }
        }
    }

    /// Sends one request and waits for it.
    pub(crate) fn call(&mut self, operation: Operation, data: &[u8]) -> io::Result<Result<Vec<u8>, String>> {
        let cookie = self.submit(operation, data)?;
        let (finished, result) = self.finish_one()?;
        assert_eq!(finished, cookie);
        Ok(result)
    }

    fn step(&mut self) -> io::Result<Option<Finished>> {
        let mut output = Vec::new();
        let parsed = self.session.receive(&self.input, &mut output).map_err(io::Error::other)?;
        let (consumed, mut finished, mut wants_more) = (parsed.consumed, None, false);
        match parsed.event {
            Event::NeedMore => wants_more = true,
            Event::Data { cookie, offset, bytes } => {
                let (start, data) = self.reads.get_mut(&cookie).expect("data of a read that was asked for");
                let at = (offset - *start) as usize;
                data[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Event::Done { cookie, result } => {
                let data = self.reads.remove(&cookie).map(|(_, data)| data).unwrap_or_default();
                finished = Some((cookie, result.map(|()| data).map_err(|error| format!("{error:?}"))));
            }
            Event::Closed => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => {}
        }
        self.input.drain(..consumed);
        self.stream.write_all(&output)?;
        if wants_more {
            let mut buffer = vec![0; 128 << 10];
            let count = match self.stream.read(&mut buffer) {
                // A socket with a timeout says so when the process was stopped and goes on.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
                result => result?,
            };
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.input.extend_from_slice(&buffer[..count]);
        }
        Ok(finished)
    }
}
