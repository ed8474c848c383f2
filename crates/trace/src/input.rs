//! A source's bytes in a buffer: whole lines and whole records, with their positions. Memory is bounded.

use crate::error::{Bad, Position, TraceError};
use crate::source::{Plain, read_error};
use std::io::{ErrorKind, Read};

/// The buffer of a trace of one source: large enough that system calls do not count, small enough for the
/// second-level cache.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

/// The buffer of each of several sources, of which there may be thousands.
pub(crate) const SHARED_BUFFER_BYTES: usize = 64 << 10;

/// The longest line that is read; longer ones are malformed.
pub(crate) const LINE_BYTES_MAX: usize = 16 << 10;

/// A buffered source.
pub(crate) struct Input {
    pub(crate) name: String,
    encoding: Option<&'static str>,
    read: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The position of `buffer[start]` in the source.
    offset: u64,
    /// Lines taken so far.
    line: u64,
    at_end: bool,
}

impl Input {
    pub(crate) fn new(plain: Plain, buffer_bytes: usize) -> Input {
        let Plain { name, encoding, read } = plain;
        let buffer = vec![0; buffer_bytes];
        Input { name, encoding, read, buffer, start: 0, end: 0, offset: 0, line: 0, at_end: false }
    }

    /// The bytes from here that are buffered: at least `bytes` unless the source ends before.
    pub(crate) fn require(&mut self, bytes: usize) -> Result<&[u8], TraceError> {
        while self.end - self.start < bytes && !self.at_end {
            self.refill(bytes)?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Reads once, behind what is buffered, after making room for `bytes` in all.
    fn refill(&mut self, bytes: usize) -> Result<(), TraceError> {
        if self.buffer.len() - self.start < bytes.max(self.end - self.start + 1) {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if self.buffer.len() < bytes {
                self.buffer.resize(bytes, 0);
            }
        }
        match self.read.read(&mut self.buffer[self.end..]) {
            Ok(0) => self.at_end = true,
            Ok(count) => self.end += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let offset = self.offset + (self.end - self.start) as u64;
                return Err(read_error(&self.name, self.encoding, offset, error));
            }
        }
        Ok(())
    }

    /// Leaves `bytes` of the buffered bytes behind.
    pub(crate) fn consume(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.end - self.start, "only buffered bytes can be consumed");
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Where the next byte stands in the source.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Where the line taken last stands.
    pub(crate) fn line_position(&self) -> Position {
        Position::Line(self.line)
    }

    /// The next line without its end (`\n` or `\r\n`), or `None` behind the last one.
    ///
    /// A line longer than [`LINE_BYTES_MAX`] is `Some(Err)` and is left behind whole, so that reading can go on.
    pub(crate) fn next_line(&mut self) -> Result<Option<Result<&[u8], Bad>>, TraceError> {
        let mut searched = 0;
        loop {
            let buffered = &self.buffer[self.start..self.end];
            if let Some(at) = memchr::memchr(b'\n', &buffered[searched..]) {
                let length = searched + at;
                let from = self.start;
                self.consume(length + 1);
                self.line += 1;
                return Ok(Some(line_of(&self.buffer[from..from + length], self.line)));
            }
            if self.at_end {
                let (from, length) = (self.start, self.end - self.start);
                if length == 0 {
                    return Ok(None);
                }
                self.consume(length);
                self.line += 1;
                return Ok(Some(line_of(&self.buffer[from..from + length], self.line)));
            }
            if buffered.len() > LINE_BYTES_MAX {
                return self.skip_long_line().map(Some);
            }
            searched = buffered.len();
            self.refill(LINE_BYTES_MAX + 1)?;
        }
    }

    #[cold]
    fn skip_long_line(&mut self) -> Result<Result<&[u8], Bad>, TraceError> {
        let bad = long_line(&self.buffer[self.start..self.end]);
        self.line += 1;
        loop {
            let buffered = &self.buffer[self.start..self.end];
            if let Some(at) = memchr::memchr(b'\n', buffered) {
                self.consume(at + 1);
                return Ok(Err(bad));
            }
            self.consume(buffered.len());
            if self.at_end {
                return Ok(Err(bad));
            }
            self.refill(1)?;
        }
    }
}

/// Line `number` without what does not belong to it: the byte order mark of the first, the `\r` of each.
fn line_of(mut line: &[u8], number: u64) -> Result<&[u8], Bad> {
    if line.len() > LINE_BYTES_MAX {
        return Err(long_line(line));
    }
    if number == 1 {
        line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    }
    Ok(line.strip_suffix(b"\r").unwrap_or(line))
}

#[cold]
fn long_line(line: &[u8]) -> Bad {
    let start = crate::error::excerpt(&line[..line.len().min(40)]);
    Bad::new(
        format!("a line of more than {LINE_BYTES_MAX} bytes that starts with {start}"),
        format!("lines of at most {LINE_BYTES_MAX} bytes"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn input(bytes: &[u8]) -> Input {
        let read = Box::new(Cursor::new(bytes.to_vec()));
        Input::new(Plain { name: "x".into(), encoding: None, read }, BUFFER_BYTES)
    }

    #[test]
    fn lines_end_in_every_way() {
        let mut input = input(b"\xef\xbb\xbfone\r\ntwo\n\nlast");
        let mut lines = Vec::new();
        while let Some(line) = input.next_line().unwrap() {
            lines.push(String::from_utf8(line.unwrap().to_vec()).unwrap());
        }
        assert_eq!(lines, ["one", "two", "", "last"]);
        assert_eq!(input.line_position(), Position::Line(4));
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        let mut bytes = vec![b'x'; 5 << 20];
        bytes.extend(b"\nnext\n");
        let mut input = input(&bytes);
        assert!(input.next_line().unwrap().unwrap().unwrap_err().0.found.contains("more than 16384 bytes"));
        assert_eq!(input.next_line().unwrap().unwrap().unwrap(), b"next");
        assert!(input.next_line().unwrap().is_none());
        assert_eq!(input.buffer.len(), BUFFER_BYTES);
    }

    #[test]
    fn records_larger_than_the_buffer_grow_it() {
        let bytes: Vec<u8> = (0..BUFFER_BYTES * 2).map(|n| n as u8).collect();
        let mut input = input(&bytes);
        input.require(10).unwrap();
        input.consume(10);
        assert_eq!(input.require(BUFFER_BYTES + 5).unwrap()[..4], [10, 11, 12, 13]);
        assert_eq!(input.offset(), 10);
    }
}
