//! A client of our own on one connection, that knows exactly which replies reached it before the connection ended.

use forebay_nbd::client::{Config, Event, Export, Operation, ProtocolError, Session};
use forebay_nbd::wire::Extent;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A request in flight, and where the bytes of a read go.
struct Asked<T> {
    what: T,
    offset: u64,
    buffer: Vec<u8>,
    extents: Vec<Extent>,
}

/// A reply: what was asked, the bytes read, or the error.
pub(crate) struct Answer<T> {
    pub(crate) what: T,
    pub(crate) result: Result<Vec<u8>, String>,
    /// Of a question about block status.
    pub(crate) extents: Vec<Extent>,
}

/// One connection; requests carry a `T` that their answers bring back.
pub(crate) struct Client<T> {
    stream: UnixStream,
    session: Session,
    asked: BTreeMap<u64, Asked<T>>,
    next_cookie: u64,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Sending failed: what is left is to take the replies that are there.
    broken: bool,
}

impl<T> Client<T> {
    /// Connects and opens `export`; `None` if the server goes away meanwhile.
    pub(crate) fn connect(socket: &Path, export: &str) -> Option<Client<T>> {
        let mut client = Client::new(UnixStream::connect(socket).ok()?, export);
        while !client.session.is_ready() {
            client.receive()?;
            client.send();
        }
        Some(client)
    }

    /// The same, which waits for no piece of an answer longer than `patience`: then the connection is taken to be lost. Why there is none
    /// if the server does not let it in.
    pub(crate) fn connect_within(
        socket: &Path,
        export: &str,
        patience: Duration,
    ) -> Result<Client<T>, String> {
        // The queue of a process that is stopped may be full, and the system would wait for ever.
        let stream = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .and_then(|stream| rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?).map(|()| stream))
        .map_err(|error| error.to_string())?;
        let stream = UnixStream::from(stream);
        stream.set_nonblocking(false).expect("a socket can be told to block");
        stream.set_read_timeout(Some(patience)).expect("not zero");
        stream.set_write_timeout(Some(patience)).expect("not zero");
        let mut client = Client::new(stream, export);
        while !client.session.is_ready() {
            client.take().map_err(|error| error.to_string())?.ok_or("the server goes away")?;
            client.send();
        }
        Ok(client)
    }

    fn new(stream: UnixStream, export: &str) -> Client<T> {
        Client {
            stream,
            session: Session::new(Config::new(export)),
            asked: BTreeMap::new(),
            next_cookie: 0,
            input: Vec::new(),
            output: Vec::new(),
            broken: false,
        }
    }

    /// What was opened.
    pub(crate) fn export(&self) -> &Export {
        self.session.export().expect("it was opened before anybody had this")
    }

    /// Requests in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.asked.len()
    }

    /// Adds a request to those that [`Client::send`] sends; `data` is a write's.
    pub(crate) fn ask(&mut self, operation: Operation, data: &[u8], what: T) {
        let (offset, length) = match operation {
            Operation::Read { offset, length, .. } => (offset, length as usize),
            _ => (0, 0),
        };
        self.session.submit(self.next_cookie, operation, &mut self.output).expect("a valid request");
        self.output.extend_from_slice(data);
        let asked = Asked { what, offset, buffer: vec![0; length], extents: Vec::new() };
        self.asked.insert(self.next_cookie, asked);
        self.next_cookie += 1;
    }

    /// Sends what was asked.
    pub(crate) fn send(&mut self) {
        self.broken |= self.stream.write_all(&self.output).is_err();
        self.output.clear();
    }

    /// Sends as much of what was asked as the socket takes, and gives the connection away.
    pub(crate) fn send_without_waiting(mut self) -> UnixStream {
        self.stream.set_nonblocking(true).expect("a socket can be told not to block");
        let _ = self.stream.write_all(&self.output);
        self.stream
    }

    /// Waits for replies and takes all that are there; `None` once every byte that the server sent was taken and nothing more
    /// can come.
    pub(crate) fn receive(&mut self) -> Option<Vec<Answer<T>>> {
        self.take().expect("the server keeps to the protocol")
    }

    fn take(&mut self) -> Result<Option<Vec<Answer<T>>>, ProtocolError> {
        let mut buffer = [0; 64 << 10];
        let Some(count) = self.stream.read(&mut buffer).ok().filter(|count| *count > 0) else {
            return Ok(None);
        };
        self.input.extend_from_slice(&buffer[..count]);
        let (mut done, mut answers) = (0, Vec::new());
        loop {
            let parsed = self.session.receive(&self.input[done..], &mut self.output)?;
            done += parsed.consumed;
            match parsed.event {
                Event::NeedMore | Event::Closed => break,
                Event::Data { cookie, offset, bytes } => {
                    let asked = self.asked.get_mut(&cookie).expect("it was asked for");
                    let start = (offset - asked.offset) as usize;
                    asked.buffer[start..start + bytes.len()].copy_from_slice(bytes);
                }
                Event::Extents { cookie, extents } => {
                    self.asked.get_mut(&cookie).expect("it was asked for").extents.extend(extents);
                }
                Event::Done { cookie, result } => {
                    let Asked { what, buffer, extents, .. } =
                        self.asked.remove(&cookie).expect("it was asked for");
                    let result = result.map(|()| buffer).map_err(|error| error.to_string());
                    answers.push(Answer { what, result, extents });
                }
                _ => {}
            }
        }
        self.input.drain(..done);
        Ok(Some(answers))
    }

    /// Whether requests still reach the server, as far as is known.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }
}
