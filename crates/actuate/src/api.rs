//! Requests over HTTP/1.1 to a daemon or an appliance: as much of the protocol as our own server speaks.
//!
//! One connection for each request, which ends with the answer. Nothing is sent again: who asked decides.

use crate::{Control, Deadline};
use forebay_units::{BlockRange, ByteRange, Bytes, printable_lines};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// No answer is longer.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// Where a daemon answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ApiAddress {
    /// Over TCP.
    Tcp(SocketAddr),
    /// On a unix socket.
    Unix(PathBuf),
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is no address: expected `ADDRESS:PORT`, as in `127.0.0.1:9809`, or `unix:PATH`")]
pub struct ParseAddressError(String);

impl FromStr for ApiAddress {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<ApiAddress, ParseAddressError> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(ApiAddress::Unix(path.into()));
        }
        let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let address = address.replace("localhost", "127.0.0.1");
        address.parse().map(ApiAddress::Tcp).map_err(|_| ParseAddressError(text.to_owned()))
    }
}

impl TryFrom<String> for ApiAddress {
    type Error = ParseAddressError;

    fn try_from(text: String) -> Result<ApiAddress, ParseAddressError> {
        text.parse()
    }
}

impl From<ApiAddress> for String {
    fn from(address: ApiAddress) -> String {
        address.to_string()
    }
}

impl fmt::Display for ApiAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApiAddress::Tcp(address) => address.fmt(f),
            ApiAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Why there is no good answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ApiError {
    /// Nobody answers, or not to the end, or not in time.
    #[error("no daemon answers at {address}")]
    Silent {
        /// Where.
        address: ApiAddress,
        /// Why.
        source: io::Error,
    },
    /// What answers is something else.
    #[error("{address} does not speak HTTP as forebay does")]
    Foreign {
        /// Where.
        address: ApiAddress,
    },
    /// It says no.
    #[error("{address} answers {status}: {said}")]
    Refused {
        /// Where.
        address: ApiAddress,
        /// The HTTP status.
        status: u16,
        /// Why.
        said: String,
    },
    /// The answer is not what was asked for.
    #[error("the answer of {address} is not understood")]
    NotUnderstood {
        /// Where.
        address: ApiAddress,
        /// Why.
        source: serde_json::Error,
    },
}

/// What an appliance says of itself, as much of it as concerns whoever ordered it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ApplianceStatus {
    /// Its process, as it knows itself.
    pub pid: u32,
    /// The memory for caches.
    pub cache: CacheReport,
    /// The machine's memory.
    pub memory: MemoryReport,
    /// Its volumes.
    pub volumes: Vec<VolumeReport>,
}

/// The memory for caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct CacheReport {
    /// All there may be.
    pub capacity_bytes: u64,
    /// What caches hold.
    pub used_bytes: u64,
}

/// The memory of the machine, or of the control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct MemoryReport {
    /// All there is.
    pub total_bytes: u64,
    /// What could still be taken.
    pub available_bytes: u64,
}

/// An origin as an appliance finds it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct OriginReport {
    /// `up`, `down`, `failed`, or `absent`.
    pub state: String,
    /// Why, unless it is up.
    pub reason: Option<String>,
}

impl OriginReport {
    /// Why nothing is had of it now.
    pub fn trouble(&self) -> Option<String> {
        let is_down = ["down", "failed"].contains(&&*self.state);
        is_down.then(|| self.reason.clone().unwrap_or_else(|| format!("it is {}", self.state)))
    }
}

/// A volume of an appliance.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct VolumeReport {
    /// Its name.
    pub name: String,
    /// `absent`, `drained`, or how it does.
    pub state: String,
    /// Clients; earlier versions do not say.
    #[serde(default)]
    pub connections: Option<u64>,
    /// Where its data lives; earlier versions do not say.
    #[serde(default)]
    pub origin: Option<OriginReport>,
    /// What its cache may hold.
    pub quota_bytes: u64,
    /// What it holds.
    pub used_bytes: u64,
    /// For how much of what it may hold the system has no memory; earlier versions do not say.
    #[serde(default)]
    pub refused_bytes: u64,
    /// Client requests in flight.
    pub requests_in_flight: u64,
}

impl Control {
    /// What it says of itself.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn status(&self, deadline: Deadline) -> Result<ApplianceStatus, ApiError> {
        self.ask("GET", "/api/v1/status", "", deadline)
    }

    /// Sets what a volume's cache may hold.
    ///
    /// # Errors
    /// [`ApiError`]; `Refused` with 409 if the memory for caches does not suffice.
    pub fn set_quota(&self, volume: &str, quota: Bytes, deadline: Deadline) -> Result<(), ApiError> {
        self.order("PUT", volume, "quota", &json!({ "bytes": quota.get() }).to_string(), deadline).map(drop)
    }

    /// Starts loading a volume's cache: `ranges`, the most wanted first, at most so many bytes per second, less where others feel it.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn warm(
        &self,
        volume: &str,
        ranges: &[ByteRange],
        bytes_per_second: Option<Bytes>,
        deadline: Deadline,
    ) -> Result<(), ApiError> {
        let range = |range: &ByteRange| json!({ "offset": range.offset, "length": range.length });
        let ranges: Vec<Value> = ranges.iter().map(range).collect();
        let body = json!({ "ranges": ranges, "bytes_per_second": bytes_per_second.map(Bytes::get) });
        self.order("POST", volume, "prewarm", &body.to_string(), deadline).map(drop)
    }

    /// What a volume's cache holds, in blocks, what is most worth being loaded again first: no more than one [`Control::warm`] takes.
    ///
    /// # Errors
    /// [`ApiError`]; `Refused` with 404 if it does not serve the volume, or is of a version that does not tell.
    pub fn resident(&self, volume: &str, deadline: Deadline) -> Result<Vec<BlockRange>, ApiError> {
        #[derive(Deserialize)]
        struct Resident {
            ranges: Vec<(u64, u64)>,
        }
        let path = format!("/api/v1/volumes/{}/resident", encoded(volume));
        let Resident { ranges } = self.ask("GET", &path, "", deadline)?;
        let range = |(first, count): (u64, u64)| BlockRange { first, end: first.saturating_add(count) };
        Ok(ranges.into_iter().map(range).collect())
    }

    /// Has a volume answer what it has in flight, then leave its clients. It is not served any more afterwards; one that is not served is drained.
    ///
    /// Returns whether everything in flight was answered in time, and what was acknowledged is on stable storage as far as the appliance has asked for that.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn drain(&self, volume: &str, deadline: Deadline) -> Result<bool, ApiError> {
        // The answer needs a moment as well; the API takes 50 s at most.
        let within = deadline.sooner_by(Duration::from_millis(50)).left();
        let body = json!({ "within_ms": u64::try_from(within.as_millis()).unwrap_or(0).min(50_000) });
        match self.order("POST", volume, "drain", &body.to_string(), deadline) {
            // Those before did not tell of the flush.
            Ok(answer) => Ok(answer["completely"].as_bool().unwrap_or(false)
                && answer["flushed"].as_bool().unwrap_or(true)),
            Err(ApiError::Refused { status: 404, .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The metrics, in Prometheus' format.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn metrics(&self, deadline: Deadline) -> Result<String, ApiError> {
        self.text("GET", "/metrics", "", deadline)
    }

    fn order(
        &self,
        method: &str,
        volume: &str,
        what: &str,
        body: &str,
        deadline: Deadline,
    ) -> Result<Value, ApiError> {
        self.ask(method, &format!("/api/v1/volumes/{}/{what}", encoded(volume)), body, deadline)
    }

    /// The JSON that `method` at `path` answers to `body`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &str,
        deadline: Deadline,
    ) -> Result<T, ApiError> {
        let answer = self.text(method, path, body, deadline)?;
        serde_json::from_str(&answer)
            .map_err(|source| ApiError::NotUnderstood { address: self.address.clone(), source })
    }

    /// The text that `method` at `path` answers to `body`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn text(&self, method: &str, path: &str, body: &str, deadline: Deadline) -> Result<String, ApiError> {
        let address = || self.address.clone();
        let token = self.token.as_ref();
        let token =
            token.map_or(String::new(), |token| format!("Authorization: Bearer {}\r\n", token.reveal()));
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: forebay\r\nAccept: application/json\r\nContent-Type: application/json\r\n\
             {token}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let answer = exchange(&self.address, request.as_bytes(), deadline)
            .map_err(|source| ApiError::Silent { address: address(), source })?;
        let (status, body) = parse(&answer).ok_or_else(|| ApiError::Foreign { address: address() })?;
        if status == 200 {
            return Ok(body);
        }
        let said = serde_json::from_str::<Value>(&body).ok();
        let said = said.as_ref().and_then(|value| value["error"].as_str()).unwrap_or(body.trim());
        let said = printable_lines(said);
        Err(ApiError::Refused { address: address(), status, said })
    }
}

/// `text` as a part of a path.
pub fn encoded(text: &str) -> String {
    use fmt::Write as _;
    let mut path = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                path.push(char::from(byte));
            }
            byte => write!(path, "%{byte:02X}").expect("a String takes everything"),
        }
    }
    path
}

/// A connection whose every wait ends with its deadline.
pub(crate) trait Stream: Read + Write {
    /// How long the next read and the next write may take; not zero.
    fn limit(&self, span: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn limit(&self, span: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(span))?;
        self.set_write_timeout(Some(span))
    }
}

impl Stream for UnixStream {
    fn limit(&self, span: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(span))?;
        self.set_write_timeout(Some(span))
    }
}

/// What is left for the next step; an error once nothing is.
pub(crate) fn left(deadline: Deadline) -> io::Result<Duration> {
    match deadline.left() {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

/// Connects over TCP.
pub(crate) fn connect_tcp(address: SocketAddr, deadline: Deadline) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, left(deadline)?)
}

/// Connects to a unix socket, without waiting for one whose owner takes no connections: the queue of a process that is stopped is full at
/// some time, and the system would wait for ever.
pub(crate) fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn exchange(address: &ApiAddress, request: &[u8], deadline: Deadline) -> io::Result<Vec<u8>> {
    match address {
        ApiAddress::Tcp(address) => converse(&mut connect_tcp(*address, deadline)?, request, deadline),
        ApiAddress::Unix(path) => converse(&mut connect_unix(path)?, request, deadline),
    }
}

fn converse(stream: &mut impl Stream, request: &[u8], deadline: Deadline) -> io::Result<Vec<u8>> {
    stream.limit(left(deadline)?)?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        stream.limit(left(deadline)?)?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(answer),
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // What Linux calls it when a socket's time is over.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
            }
            Err(error) => return Err(error),
        }
        if answer.len() as u64 > ANSWER_BYTES_MAX {
            return Err(io::Error::other("the answer does not end"));
        }
    }
}

/// The status and the body of an answer, which ended with its connection.
fn parse(answer: &[u8]) -> Option<(u16, String)> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    if !first.next()?.starts_with("HTTP/1.") {
        return None;
    }
    let status = first.next()?.parse().ok()?;
    let mut body = answer[end + 4..].to_vec();
    for line in lines {
        let (name, value) = line.split_once(':')?;
        match name.to_ascii_lowercase().as_str() {
            "content-length" if value.trim().parse() != Ok(body.len()) => return None,
            "transfer-encoding" if value.trim().eq_ignore_ascii_case("chunked") => body = unchunk(&body)?,
            _ => {}
        }
    }
    Some((status, String::from_utf8(body).ok()?))
}

fn unchunk(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = bytes.windows(2).position(|two| two == b"\r\n")?;
        let size =
            usize::from_str_radix(std::str::from_utf8(&bytes[..line]).ok()?.split(';').next()?.trim(), 16)
                .ok()?;
        bytes = &bytes[line + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(bytes.get(..size)?);
        bytes = bytes.get(size + 2..)?;
    }
}

/// A daemon that says what a test has it say.
#[cfg(test)]
pub(crate) mod fake {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// What it was asked, as `METHOD /path` and the body.
    pub(crate) type Asked = Vec<(String, Value)>;

    /// Has `ask` ask a daemon that gives these answers, one after the other; what came of that, and what it was asked.
    pub(crate) fn daemon<T>(answers: &[(u16, Value)], ask: impl FnOnce(Control) -> T) -> (T, Asked) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("http.sock");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::scope(|scope| {
            let serving =
                scope.spawn(move || answers.iter().map(|answer| serve(&listener, answer)).collect());
            let told = ask(Control { address: ApiAddress::Unix(path.clone()), token: None });
            // What is left to answer was not asked for.
            answers.iter().for_each(|_| drop(UnixStream::connect(&path)));
            let asked: Asked = serving.join().unwrap();
            (told, asked.into_iter().filter(|(first, _)| !first.is_empty()).collect())
        })
    }

    fn serve(listener: &UnixListener, (status, body): &(u16, Value)) -> (String, Value) {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut asked, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let count = stream.read(&mut buffer).unwrap();
            if count == 0 {
                return (String::new(), Value::Null);
            }
            asked.extend_from_slice(&buffer[..count]);
            let text = String::from_utf8_lossy(&asked);
            let Some((head, said)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            if length.is_some_and(|length| length.parse() == Ok(said.len())) {
                let body = body.to_string();
                write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len())
                    .unwrap();
                let first = head.split(" HTTP/").next().unwrap_or_default().to_owned();
                return (first, serde_json::from_str(said).unwrap_or_default());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn who_drains_believes_that_it_is_done_only_where_all_of_it_is() {
        let drained = |status, answer| {
            let answers = [(status, answer)];
            let (told, asked) = fake::daemon(&answers, |control| control.drain("a b", Deadline::after(SOON)));
            assert_eq!(asked[0].0, "POST /api/v1/volumes/a%20b/drain");
            let within = asked[0].1["within_ms"].as_u64().unwrap();
            assert!(within > 0 && within < 20_000, "{within}: the answer needs a moment as well");
            told
        };
        assert!(drained(200, json!({ "completely": true, "flushed": true })).unwrap());
        assert!(!drained(200, json!({ "completely": true, "flushed": false })).unwrap());
        assert!(!drained(200, json!({ "completely": false, "flushed": true })).unwrap());
        // One of before did not tell of the flush; one that is not served is drained.
        assert!(drained(200, json!({ "completely": true })).unwrap());
        assert!(!drained(200, json!({})).unwrap());
        assert!(drained(404, json!({ "error": "there is no volume" })).unwrap());
        let refused = drained(503, json!({ "error": "the daemon is stopping" })).unwrap_err();
        assert!(matches!(&refused, ApiError::Refused { status: 503, said, .. } if said.contains("stopping")));
    }

    #[test]
    fn what_is_loaded_is_named_in_bytes_and_what_is_held_in_blocks() {
        let ranges = [ByteRange::new(8_192, 4_096), ByteRange::new(0, 512)];
        let (told, asked) = fake::daemon(&[(200, json!({}))], |control| {
            control.warm("db", &ranges, Some(Bytes(1_000)), Deadline::after(SOON))
        });
        told.unwrap();
        let expected = json!({
            "ranges": [{ "offset": 8_192, "length": 4_096 }, { "offset": 0, "length": 512 }],
            "bytes_per_second": 1_000,
        });
        assert_eq!(asked, [("POST /api/v1/volumes/db/prewarm".to_owned(), expected)]);
        let answer = json!({ "ranges": [[7, 2], [1, 1]] });
        let (told, _) =
            fake::daemon(&[(200, answer)], |control| control.resident("db", Deadline::after(SOON)));
        assert_eq!(told.unwrap(), [BlockRange { first: 7, end: 9 }, BlockRange { first: 1, end: 2 }]);
    }

    #[test]
    fn answers_are_taken_apart() {
        let plain = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(parse(plain), Some((200, "{}".to_owned())));
        let chunked =
            b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        assert_eq!(parse(chunked), Some((404, "abcde".to_owned())));
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}"), None, "cut short");
        assert_eq!(parse(b"SSH-2.0\r\n\r\n"), None);
    }

    #[test]
    fn names_survive_the_path() {
        assert_eq!(encoded("a b/ü~"), "a%20b%2F%C3%BC~");
    }

    #[test]
    fn servers_are_read_and_printed() {
        for text in ["127.0.0.1:9809", "unix:/run/f.sock", "[::1]:80"] {
            assert_eq!(text.parse::<ApiAddress>().unwrap().to_string(), text);
        }
        assert_eq!("http://localhost:1/".parse::<ApiAddress>().unwrap().to_string(), "127.0.0.1:1");
        assert!("nowhere".parse::<ApiAddress>().is_err() && "unix:".parse::<ApiAddress>().is_err());
    }
}
