//! Requests over HTTP/1.1 to a daemon of this machine: as much of the protocol as our own server speaks.

use crate::failure::{Context, Failure};
use serde::de::DeserializeOwned;
use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// No answer takes longer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// No answer is longer.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// Where a daemon answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// Over TCP.
    Tcp(SocketAddr),
    /// On a unix socket.
    Unix(PathBuf),
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Server, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Server::Unix(path.into()));
        }
        let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let address = address.replace("localhost", "127.0.0.1");
        address.parse().map(Server::Tcp).map_err(|_| {
            format!("`{text}` is no address: expected `ADDRESS:PORT`, as in `127.0.0.1:9809`, or `unix:PATH`")
        })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::Tcp(address) => address.fmt(f),
            Server::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Server {
    /// The JSON at `path`.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.ask("GET", path, "")
    }

    /// The JSON that `method` at `path` answers to `body`.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<T, Failure> {
        let answer = self.answer(method, path, body)?;
        serde_json::from_str(&answer).context(format_args!("the answer of {self} is not understood"))
    }

    /// The text at `path`.
    pub(crate) fn text(&self, path: &str) -> Result<String, Failure> {
        self.answer("GET", path, "")
    }

    fn answer(&self, method: &str, path: &str, body: &str) -> Result<String, Failure> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: forebay\r\nAccept: application/json\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let answer = match self {
            Server::Tcp(address) => TcpStream::connect_timeout(address, TIMEOUT).and_then(|mut stream| {
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                exchange(&mut stream, &request)
            }),
            Server::Unix(path) => UnixStream::connect(path).and_then(|mut stream| {
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                exchange(&mut stream, &request)
            }),
        };
        let answer = answer.map_err(|error| {
            Failure::new(format!("no daemon answers at {self}: {error}")).with_hint(
                "start one with `forebay serve FILE`; `--server` or `--config` says where it answers",
            )
        })?;
        let (status, body) = parse(&answer)
            .ok_or_else(|| Failure::new(format!("{self} does not speak HTTP as forebay does")))?;
        if status == 200 {
            return Ok(body);
        }
        let said = serde_json::from_str::<serde_json::Value>(&body).ok();
        let said = said.as_ref().and_then(|value| value["error"].as_str());
        Err(Failure::new(format!("{self} answers {status}: {}", said.unwrap_or(body.trim()))))
    }
}

fn exchange(stream: &mut (impl Read + Write), request: &str) -> std::io::Result<Vec<u8>> {
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn servers_are_read_and_printed() {
        for text in ["127.0.0.1:9809", "unix:/run/f.sock", "[::1]:80"] {
            assert_eq!(text.parse::<Server>().unwrap().to_string(), text);
        }
        assert_eq!("http://localhost:1/".parse::<Server>().unwrap().to_string(), "127.0.0.1:1");
        assert!("nowhere".parse::<Server>().is_err() && "unix:".parse::<Server>().is_err());
    }
}
