//! Replies: simple ones and chunks, checked against the request that they answer.

use super::{Event, Parsed, Phase, ProtocolError, Session};
use crate::FAREWELL_COOKIE;
use crate::wire::{
    CHUNK_HEADER_BYTES, ChunkFlags, ChunkHeader, ChunkType, Command, CommandFlags, ErrorCode, Extents,
    MAGIC_SIMPLE_REPLY, MAGIC_STRUCTURED_REPLY, Reader, SIMPLE_REPLY_BYTES, STRING_BYTES_MAX,
    SimpleReplyHeader,
};
use forebay_units::{ByteRange, printable};
use std::fmt;

/// Disjoint pieces into which a reply may have been shuffled at any moment; a server that sends its chunks in order
/// never needs more than one. The limit is ours.
const PIECES_MAX: usize = 1024;

/// A server's error for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyError {
    /// What kind.
    pub code: ErrorCode,
    /// The number as it was sent, which may be none that the protocol defines.
    pub number: u32,
    /// What the server said, for people; often empty.
    pub message: String,
    /// Where, if the server said so.
    pub offset: Option<u64>,
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server answered {} ({})", self.code, self.number)?;
        if let Some(offset) = self.offset {
            write!(f, " at offset {offset}")?;
        }
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
    }
}

impl std::error::Error for ReplyError {}

/// A request without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outstanding {
    pub(super) command: Command,
    pub(super) range: ByteRange,
    flags: CommandFlags,
    /// Pieces of a read that came, sorted, merged where they touch.
    pieces: Vec<(u64, u64)>,
    content_chunks: u32,
    /// Bytes of a block status that were described; `None` before its chunk.
    described: Option<u64>,
    error: Option<ReplyError>,
}

impl Outstanding {
    pub(super) fn new(command: Command, flags: CommandFlags, range: ByteRange) -> Outstanding {
        let pieces = Vec::new();
        Outstanding { command, range, flags, pieces, content_chunks: 0, described: None, error: None }
    }

    /// Whether a part of its answer came.
    fn has_begun(&self) -> bool {
        self.content_chunks > 0 || self.described.is_some() || self.error.is_some()
    }

    /// Notes that `start..end` came; says what is wrong with that, if anything.
    fn cover(&mut self, start: u64, end: u64) -> Result<(), &'static str> {
        if start < self.range.offset || end > self.range.end() {
            return Err("content lies outside the request");
        }
        if self.flags.contains(CommandFlags::DF) && self.content_chunks > 0 {
            return Err("second content chunk of an unfragmented read");
        }
        self.content_chunks = self.content_chunks.saturating_add(1);
        let at = self.pieces.partition_point(|piece| piece.0 < start);
        let overlaps_left = at > 0 && self.pieces[at - 1].1 > start;
        let overlaps_right = at < self.pieces.len() && self.pieces[at].0 < end;
        if overlaps_left || overlaps_right {
            return Err("content overlaps an earlier chunk");
        }
        let joins_left = at > 0 && self.pieces[at - 1].1 == start;
        let joins_right = at < self.pieces.len() && self.pieces[at].0 == end;
        match (joins_left, joins_right) {
            (true, true) => {
                self.pieces[at - 1].1 = self.pieces[at].1;
                self.pieces.remove(at);
            }
            (true, false) => self.pieces[at - 1].1 = end,
            (false, true) => self.pieces[at].0 = start,
            (false, false) if self.pieces.len() >= PIECES_MAX => {
                return Err("content is cut into too many pieces");
            }
            (false, false) => self.pieces.insert(at, (start, end)),
        }
        Ok(())
    }

    fn covered(&self) -> u64 {
        self.pieces.iter().map(|(start, end)| end - start).sum()
    }
}

/// What the next byte of the transmission phase belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiving {
    /// A reply's header.
    Header,
    /// Data of a read; `last`: the reply ends with it.
    Data { cookie: u64, offset: u64, remaining: u32, last: bool },
    /// Extents of a block status.
    Extents { cookie: u64, remaining: u32, last: bool },
    /// Nothing: the reply is complete and its event due.
    Finished { cookie: u64 },
}

impl Session {
    /// The data that comes next, if data does: whose it is, where it belongs, how many bytes. The owner may receive
    /// up to this many straight into its own buffer, provided that it has already dropped everything from its
    /// receive buffer.
    pub fn data_wanted(&self) -> Option<(u64, u64, u32)> {
        match self.phase {
            Phase::Replies(Receiving::Data { cookie, offset, remaining, .. }) => {
                Some((cookie, offset, remaining))
            }
            _ => None,
        }
    }

    /// Tells the session that the owner has received `bytes` of the data itself. [`Session::receive`] must be called
    /// behind the last one, for the completion.
    ///
    /// # Panics
    /// If these are more than [`Session::data_wanted`].
    pub fn data_received(&mut self, bytes: u32) {
        let Phase::Replies(Receiving::Data { cookie, offset, remaining, last }) = self.phase else {
            assert!(bytes == 0, "{bytes} bytes of data received where none are wanted");
            return;
        };
        assert!(bytes <= remaining, "{bytes} bytes of data received where {remaining} are wanted");
        let remaining = remaining - bytes;
        self.phase = Phase::Replies(if remaining > 0 {
            Receiving::Data { cookie, offset: offset + u64::from(bytes), remaining, last }
        } else {
            behind(cookie, last)
        });
    }

    /// Whether all that was received belongs to whole answers: nothing of another one has been handed over. `O(outstanding)`.
    pub fn is_between_replies(&self) -> bool {
        matches!(self.phase, Phase::Replies(Receiving::Header))
            && !self.outstanding.values().any(Outstanding::has_begun)
    }

    /// One step of the transmission phase.
    pub(super) fn receive_reply<'a>(&mut self, input: &'a [u8]) -> Result<Parsed<'a>, ProtocolError> {
        let Phase::Replies(receiving) = self.phase else {
            unreachable!("only called while replies are received")
        };
        match receiving {
            Receiving::Finished { cookie } => {
                let event = self.finish(cookie)?;
                Ok(Parsed { consumed: 0, event })
            }
            Receiving::Data { cookie, offset, remaining, .. } => {
                let bytes = &input[..input.len().min(remaining as usize)];
                if bytes.is_empty() {
                    return Ok(need_more());
                }
                self.data_received(bytes.len() as u32);
                Ok(Parsed { consumed: bytes.len(), event: Event::Data { cookie, offset, bytes } })
            }
            Receiving::Extents { cookie, remaining, last } => {
                self.receive_extents(input, cookie, remaining, last)
            }
            Receiving::Header => {
                let Some(magic) = input.first_chunk::<4>() else {
                    return Ok(need_more());
                };
                match u32::from_be_bytes(*magic) {
                    MAGIC_SIMPLE_REPLY => self.receive_simple(input),
                    MAGIC_STRUCTURED_REPLY => self.receive_chunk(input),
                    found => Err(ProtocolError::ReplyMagic { found }),
                }
            }
        }
    }

    fn receive_simple<'a>(&mut self, input: &'a [u8]) -> Result<Parsed<'a>, ProtocolError> {
        let Some(header) = input.first_chunk::<SIMPLE_REPLY_BYTES>() else {
            return Ok(need_more());
        };
        let SimpleReplyHeader { error, cookie } = SimpleReplyHeader::decode(header);
        if self.is_farewell(cookie, error) {
            return Ok(Parsed { consumed: SIMPLE_REPLY_BYTES, event: Event::Farewell });
        }
        let structured = self.structured;
        let request = self.request(cookie)?;
        let needs_chunks = match request.command {
            Command::Read => structured,
            Command::BlockStatus => error == 0,
            _ => false,
        };
        if needs_chunks || request.content_chunks > 0 || request.error.is_some() {
            return Err(ProtocolError::ReplyFormat { cookie, found: "simple", expected: "structured" });
        }
        let (command, range) = (request.command, request.range);
        let event = if let Some(code) = ErrorCode::from_number(error) {
            self.outstanding.remove(&cookie);
            let error = ReplyError { code, number: error, message: String::new(), offset: None };
            Event::Done { cookie, result: Err(error) }
        } else if command == Command::Read {
            let whole = request.cover(range.offset, range.end());
            debug_assert!(whole.is_ok(), "nothing was covered before a simple reply");
            let (offset, remaining) = (range.offset, range.length as u32);
            self.phase = Phase::Replies(Receiving::Data { cookie, offset, remaining, last: true });
            return self.first_of(input, SIMPLE_REPLY_BYTES);
        } else {
            self.outstanding.remove(&cookie);
            Event::Done { cookie, result: Ok(()) }
        };
        Ok(Parsed { consumed: SIMPLE_REPLY_BYTES, event })
    }

    /// Only who lets connections succeed one another says it; of anybody else it is a reply to nothing.
    fn is_farewell(&self, cookie: u64, error: u32) -> bool {
        cookie == FAREWELL_COOKIE
            && error == ErrorCode::Shutdown.number()
            && self.export.succeeds.is_some()
            && !self.outstanding.contains_key(&cookie)
    }

    fn receive_chunk<'a>(&mut self, input: &'a [u8]) -> Result<Parsed<'a>, ProtocolError> {
        let Some((header, rest)) = input.split_first_chunk::<CHUNK_HEADER_BYTES>() else {
            return Ok(need_more());
        };
        let ChunkHeader { flags, chunk, cookie, length } = ChunkHeader::decode(header);
        let last = flags.contains(ChunkFlags::DONE);
        if !self.structured {
            return Err(ProtocolError::ReplyFormat { cookie, found: "structured", expected: "simple" });
        }
        let command = self.request(cookie)?.command;
        let bad = |detail| ProtocolError::Chunk { cookie, chunk, length, detail };
        if ChunkType::is_error(chunk) {
            return self.receive_error_chunk(rest, ChunkHeader { flags, chunk, cookie, length });
        }
        match (ChunkType::from_number(chunk), command) {
            (Some(ChunkType::None), _) => {
                if length != 0 || !last {
                    return Err(bad("an empty chunk has no payload and is the last"));
                }
                let event = self.finish(cookie)?;
                Ok(Parsed { consumed: CHUNK_HEADER_BYTES, event })
            }
            (Some(ChunkType::OffsetData), Command::Read) => {
                if length < 9 {
                    return Err(bad("a data chunk has an offset and at least one byte"));
                }
                let Ok(offset) = Reader::new(rest).u64() else {
                    return Ok(need_more());
                };
                let remaining = length - 8;
                let end = offset.checked_add(u64::from(remaining)).ok_or(bad("content ends behind 2^64"))?;
                self.request(cookie)?.cover(offset, end).map_err(bad)?;
                self.phase = Phase::Replies(Receiving::Data { cookie, offset, remaining, last });
                self.first_of(input, CHUNK_HEADER_BYTES + 8)
            }
            (Some(ChunkType::OffsetHole), Command::Read) => {
                if length != 12 {
                    return Err(bad("a hole chunk has 12 bytes"));
                }
                let mut reader = Reader::new(rest);
                let (Ok(offset), Ok(hole)) = (reader.u64(), reader.u32()) else {
                    return Ok(need_more());
                };
                if hole == 0 {
                    return Err(bad("a hole is not empty"));
                }
                let range = ByteRange::new(offset, u64::from(hole));
                let end = offset.checked_add(range.length).ok_or(bad("content ends behind 2^64"))?;
                self.request(cookie)?.cover(offset, end).map_err(bad)?;
                self.phase = Phase::Replies(behind(cookie, last));
                Ok(Parsed { consumed: CHUNK_HEADER_BYTES + 12, event: Event::Hole { cookie, range } })
            }
            (Some(ChunkType::BlockStatus), Command::BlockStatus) => {
                if length < 12 || !(length - 4).is_multiple_of(8) {
                    return Err(bad("a block status chunk has an id and at least one whole extent"));
                }
                let Ok(id) = Reader::new(rest).u32() else {
                    return Ok(need_more());
                };
                if self.context_id != Some(id) {
                    return Err(bad("metadata context was not agreed on"));
                }
                let request = self.request(cookie)?;
                if request.described.is_some() {
                    return Err(bad("second chunk for one metadata context"));
                }
                if request.flags.contains(CommandFlags::REQ_ONE) && length != 12 {
                    return Err(bad("more than the one extent that was asked for"));
                }
                request.described = Some(0);
                self.phase = Phase::Replies(Receiving::Extents { cookie, remaining: length - 4, last });
                self.first_of(input, CHUNK_HEADER_BYTES + 4)
            }
            _ => Err(bad("type does not belong to the request")),
        }
    }

    fn receive_error_chunk<'a>(
        &mut self,
        rest: &[u8],
        header: ChunkHeader,
    ) -> Result<Parsed<'a>, ProtocolError> {
        let ChunkHeader { flags, chunk, cookie, length } = header;
        let bad = |detail| ProtocolError::Chunk { cookie, chunk, length, detail };
        if length > self.config.reply_bytes_max {
            let (found, max) = (u64::from(length), u64::from(self.config.reply_bytes_max));
            return Err(ProtocolError::TooLarge { what: "error chunk (bytes)", found, max });
        }
        let Some(payload) = rest.get(..length as usize) else {
            return Ok(need_more());
        };
        let mut reader = Reader::new(payload);
        let (Ok(number), Ok(message_length)) = (reader.u32(), reader.u16()) else {
            return Err(bad("an error chunk has at least six bytes"));
        };
        let Ok(message) = reader.take(usize::from(message_length)) else {
            return Err(bad("message is longer than the chunk"));
        };
        let Some(code) = ErrorCode::from_number(number) else {
            return Err(bad("error number is zero"));
        };
        let mut offset = None;
        if chunk == ChunkType::ErrorOffset.number() {
            let at = reader.u64().map_err(|_| bad("offset is missing"))?;
            let range = self.request(cookie)?.range;
            if at < range.offset || at >= range.end() {
                return Err(bad("error offset lies outside the request"));
            }
            offset = Some(at);
        }
        let request = self.request(cookie)?;
        // The first error is told; a server may send thousands.
        if request.error.is_none() {
            let message =
                printable(&String::from_utf8_lossy(&message[..message.len().min(STRING_BYTES_MAX)]));
            request.error = Some(ReplyError { code, number, message, offset });
        }
        let consumed = CHUNK_HEADER_BYTES + payload.len();
        if flags.contains(ChunkFlags::DONE) {
            let event = self.finish(cookie)?;
            Ok(Parsed { consumed, event })
        } else {
            // Nothing to tell before the reply is complete.
            Ok(Parsed { consumed, event: Event::Progress })
        }
    }

    fn receive_extents<'a>(
        &mut self,
        input: &'a [u8],
        cookie: u64,
        remaining: u32,
        last: bool,
    ) -> Result<Parsed<'a>, ProtocolError> {
        let whole = input.len().min(remaining as usize) / 8 * 8;
        if whole == 0 {
            return Ok(need_more());
        }
        let extents = Extents::new(&input[..whole]);
        let request = self.request(cookie)?;
        let mut described = request.described.unwrap_or(0);
        let chunk = ChunkType::BlockStatus.number();
        let bad = |detail| ProtocolError::Chunk { cookie, chunk, length: remaining, detail };
        for extent in extents {
            if extent.length == 0 {
                return Err(bad("an extent is not empty"));
            }
            // The last extent may reach behind the request, but none may begin there.
            if described >= request.range.length {
                return Err(bad("extent begins behind the request"));
            }
            described += u64::from(extent.length);
        }
        request.described = Some(described);
        let remaining = remaining - whole as u32;
        self.phase = Phase::Replies(if remaining > 0 {
            Receiving::Extents { cookie, remaining, last }
        } else {
            behind(cookie, last)
        });
        Ok(Parsed { consumed: whole, event: Event::Extents { cookie, extents } })
    }

    /// The first piece of content behind `header` bytes that were just understood.
    fn first_of<'a>(&mut self, input: &'a [u8], header: usize) -> Result<Parsed<'a>, ProtocolError> {
        let parsed = self.receive_reply(&input[header..])?;
        Ok(Parsed { consumed: header + parsed.consumed, event: parsed.event })
    }

    /// Completes a request whose last chunk came.
    fn finish(&mut self, cookie: u64) -> Result<Event<'static>, ProtocolError> {
        self.phase = Phase::Replies(Receiving::Header);
        let Some(request) = self.outstanding.remove(&cookie) else {
            return Err(ProtocolError::UnknownCookie { cookie });
        };
        if let Some(error) = request.error {
            return Ok(Event::Done { cookie, result: Err(error) });
        }
        let (found, expected) = match request.command {
            Command::Read => (request.covered(), request.range.length),
            // One extent is enough; without any the reply said nothing.
            Command::BlockStatus => (request.described.unwrap_or(0), 1),
            _ => (0, 0),
        };
        if found < expected {
            return Err(ProtocolError::Incomplete { cookie, found, expected });
        }
        Ok(Event::Done { cookie, result: Ok(()) })
    }

    fn request(&mut self, cookie: u64) -> Result<&mut Outstanding, ProtocolError> {
        self.outstanding.get_mut(&cookie).ok_or(ProtocolError::UnknownCookie { cookie })
    }
}

/// Where a reply goes on behind a content chunk.
const fn behind(cookie: u64, last: bool) -> Receiving {
    if last { Receiving::Finished { cookie } } else { Receiving::Header }
}

const fn need_more() -> Parsed<'static> {
    Parsed { consumed: 0, event: Event::NeedMore }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_merge_where_they_touch() {
        let mut request = Outstanding::new(Command::Read, CommandFlags::NONE, ByteRange::new(100, 50));
        assert_eq!(request.cover(100, 110), Ok(()));
        assert_eq!(request.cover(120, 150), Ok(()));
        assert_eq!(request.pieces, [(100, 110), (120, 150)]);
        assert!(request.cover(109, 111).is_err());
        assert!(request.cover(119, 121).is_err());
        assert!(request.cover(105, 106).is_err());
        assert!(request.cover(99, 100).is_err());
        assert!(request.cover(149, 151).is_err());
        assert_eq!(request.cover(110, 120), Ok(())); // joins both neighbours
        assert_eq!(request.pieces, [(100, 150)]);
        assert_eq!(request.covered(), 50);
    }
}
