//! Encoding of replies, in whichever format was agreed on.

use super::Request;
use crate::FAREWELL_COOKIE;
use crate::wire::{
    CHUNK_HEADER_BYTES, ChunkFlags, ChunkHeader, ChunkType, ErrorCode, Extent, SIMPLE_REPLY_BYTES,
    STRING_BYTES_MAX, SimpleReplyHeader,
};
use forebay_units::ByteRange;
use std::ops::Deref;

/// How replies to reads look on this connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyFormat {
    /// One header, then the data; an error has no message.
    #[default]
    Simple,
    /// Chunks: data and holes in any order, errors with messages.
    Structured,
}

/// A reply's header, at most 28 bytes, on the stack: an owner sends it and the data with one `writev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderBytes {
    bytes: [u8; CHUNK_HEADER_BYTES + 8],
    length: u8,
}

impl Deref for HeaderBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// Writes replies. It is a copy of what was agreed on, so it borrows nothing from the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyEncoder {
    format: ReplyFormat,
}

impl ReplyEncoder {
    /// An encoder for this format.
    pub const fn new(format: ReplyFormat) -> ReplyEncoder {
        ReplyEncoder { format }
    }

    /// Simple or structured.
    pub const fn format(self) -> ReplyFormat {
        self.format
    }

    /// The header of a successful read; exactly `request.range.length` bytes of data must follow it. The reply is
    /// complete with them, so the owner must hold the data before it sends the header: an error cannot be told
    /// any more.
    #[inline]
    pub fn read_header(self, request: &Request) -> HeaderBytes {
        match self.format {
            ReplyFormat::Simple => {
                let mut bytes = [0; CHUNK_HEADER_BYTES + 8];
                bytes[..SIMPLE_REPLY_BYTES]
                    .copy_from_slice(&SimpleReplyHeader { error: 0, cookie: request.cookie }.encode());
                HeaderBytes { bytes, length: SIMPLE_REPLY_BYTES as u8 }
            }
            ReplyFormat::Structured => self.data_chunk_header(request.cookie, request.range, true),
        }
    }

    /// The header of a chunk of data of a structured read; exactly `range.length` bytes must follow it. Chunks of
    /// one reply lie inside the request, do not overlap, and together cover it; the last one says so.
    ///
    /// # Panics
    /// If the format is simple, the range is empty, or longer than a chunk can say (2^32 - 9).
    #[inline]
    pub fn data_chunk_header(self, cookie: u64, range: ByteRange, last: bool) -> HeaderBytes {
        self.assert_structured();
        assert!(
            range.length > 0 && range.length <= u64::from(u32::MAX - 8),
            "a data chunk of {} bytes cannot be sent",
            range.length
        );
        let header = ChunkHeader {
            flags: ChunkFlags::NONE.with_if(last, ChunkFlags::DONE),
            chunk: ChunkType::OffsetData.number(),
            cookie,
            length: range.length as u32 + 8,
        };
        let mut bytes = [0; CHUNK_HEADER_BYTES + 8];
        bytes[..CHUNK_HEADER_BYTES].copy_from_slice(&header.encode());
        bytes[CHUNK_HEADER_BYTES..].copy_from_slice(&range.offset.to_be_bytes());
        HeaderBytes { bytes, length: (CHUNK_HEADER_BYTES + 8) as u8 }
    }

    /// A chunk that says that `range` reads as zeroes. Not for a request with `DF`.
    ///
    /// # Panics
    /// If the format is simple, the range is empty or longer than 2^32 - 1.
    pub fn hole_chunk(self, cookie: u64, range: ByteRange, last: bool, output: &mut Vec<u8>) {
        self.assert_structured();
        assert!(
            range.length > 0 && range.length <= u64::from(u32::MAX),
            "a hole chunk of {} bytes cannot be sent",
            range.length
        );
        Self::chunk(ChunkType::OffsetHole, cookie, 12, last, output);
        output.extend_from_slice(&range.offset.to_be_bytes());
        output.extend_from_slice(&(range.length as u32).to_be_bytes());
    }

    /// The chunk that ends a structured reply whose other chunks did not say that they were last.
    ///
    /// # Panics
    /// If the format is simple.
    pub fn done_chunk(self, cookie: u64, output: &mut Vec<u8>) {
        self.assert_structured();
        Self::chunk(ChunkType::None, cookie, 0, true, output);
    }

    /// The reply to a command that was done and answers with nothing: write, flush, trim, write zeroes, cache. It
    /// is a simple reply in both formats: the protocol demands chunks only for reads and block status.
    #[inline]
    pub fn success(self, request: &Request, output: &mut Vec<u8>) {
        output.extend_from_slice(&SimpleReplyHeader { error: 0, cookie: request.cookie }.encode());
    }

    /// The reply to any command that failed. `message` is for people; it is cut at 4,096 bytes, and not sent where
    /// the format has no room for it.
    pub fn error(self, cookie: u64, code: ErrorCode, message: &str, output: &mut Vec<u8>) {
        match self.format {
            ReplyFormat::Simple => {
                output.extend_from_slice(&SimpleReplyHeader { error: code.number(), cookie }.encode());
            }
            ReplyFormat::Structured => {
                let message = cut(message);
                Self::chunk(ChunkType::Error, cookie, 6 + message.len() as u32, true, output);
                output.extend_from_slice(&code.number().to_be_bytes());
                output.extend_from_slice(&(message.len() as u16).to_be_bytes());
                output.extend_from_slice(message.as_bytes());
            }
        }
    }

    /// The last of a server that ends in order, to a client that has named a succession: see [`FAREWELL_COOKIE`].
    pub fn farewell(self, output: &mut Vec<u8>) {
        let error = ErrorCode::Shutdown.number();
        output.extend_from_slice(&SimpleReplyHeader { error, cookie: FAREWELL_COOKIE }.encode());
    }

    /// An error at an offset inside a structured read, write, trim or block status; other chunks may follow unless
    /// it is the last.
    ///
    /// # Panics
    /// If the format is simple.
    pub fn error_chunk_at(
        self,
        cookie: u64,
        code: ErrorCode,
        message: &str,
        offset: u64,
        last: bool,
        output: &mut Vec<u8>,
    ) {
        self.assert_structured();
        let message = cut(message);
        Self::chunk(ChunkType::ErrorOffset, cookie, 14 + message.len() as u32, last, output);
        output.extend_from_slice(&code.number().to_be_bytes());
        output.extend_from_slice(&(message.len() as u16).to_be_bytes());
        output.extend_from_slice(message.as_bytes());
        output.extend_from_slice(&offset.to_be_bytes());
    }

    /// The complete reply to a block status request: consecutive extents from the request's offset, at least one
    /// (exactly one with `REQ_ONE`), not longer than the request together. They may cover less than was asked for.
    ///
    /// # Panics
    /// If the format is simple or there is no extent.
    pub fn block_status(
        self,
        cookie: u64,
        context_id: u32,
        extents: impl ExactSizeIterator<Item = Extent>,
        output: &mut Vec<u8>,
    ) {
        self.assert_structured();
        assert!(extents.len() > 0, "a block status reply has at least one extent");
        Self::chunk(ChunkType::BlockStatus, cookie, 4 + 8 * extents.len() as u32, true, output);
        output.extend_from_slice(&context_id.to_be_bytes());
        for extent in extents {
            output.extend_from_slice(&extent.encode());
        }
    }

    fn chunk(chunk: ChunkType, cookie: u64, length: u32, last: bool, output: &mut Vec<u8>) {
        let flags = ChunkFlags::NONE.with_if(last, ChunkFlags::DONE);
        output.extend_from_slice(&ChunkHeader { flags, chunk: chunk.number(), cookie, length }.encode());
    }

    fn assert_structured(self) {
        assert!(self.format == ReplyFormat::Structured, "chunks were not agreed on with this client");
    }
}

/// At most as much of `message` as the protocol lets a string have, at a character's boundary.
fn cut(message: &str) -> &str {
    &message[..message.floor_char_boundary(STRING_BYTES_MAX)]
}
