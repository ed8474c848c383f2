//! Headers and option payloads: plain structs with one encoder and one decoder each.

use super::{
    CHUNK_HEADER_BYTES, ChunkFlags, CommandFlags, MAGIC_OPTION, MAGIC_OPTION_REPLY, MAGIC_REQUEST,
    MAGIC_SIMPLE_REPLY, MAGIC_STRUCTURED_REPLY, OPTION_HEADER_BYTES, OPTION_REPLY_HEADER_BYTES,
    REQUEST_BYTES, Reader, SIMPLE_REPLY_BYTES, Truncated,
};

/// Reads an `N`-byte big-endian number at `at` of a header whose length the type guarantees.
macro_rules! field {
    ($bytes:expr, $int:ty, $at:expr) => {{
        let mut raw = [0; size_of::<$int>()];
        raw.copy_from_slice(&$bytes[$at..$at + size_of::<$int>()]);
        <$int>::from_be_bytes(raw)
    }};
}

/// The header of an option, client to server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// Should be [`MAGIC_OPTION`].
    pub magic: u64,
    /// An [`super::OptionCode`], or a number that we do not know.
    pub option: u32,
    /// Bytes of data that follow.
    pub length: u32,
}

impl OptionHeader {
    /// From its bytes; the magic number is for the caller to check.
    pub fn decode(bytes: &[u8; OPTION_HEADER_BYTES]) -> OptionHeader {
        OptionHeader {
            magic: field!(bytes, u64, 0),
            option: field!(bytes, u32, 8),
            length: field!(bytes, u32, 12),
        }
    }

    /// Appends the header of an option with `length` bytes of data.
    pub fn encode(option: u32, length: u32, output: &mut Vec<u8>) {
        output.extend_from_slice(&MAGIC_OPTION.to_be_bytes());
        output.extend_from_slice(&option.to_be_bytes());
        output.extend_from_slice(&length.to_be_bytes());
    }
}

/// The header of an option's answer, server to client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReplyHeader {
    /// Should be [`MAGIC_OPTION_REPLY`].
    pub magic: u64,
    /// The option that is answered.
    pub option: u32,
    /// An [`super::OptionReply`], or a number that we do not know.
    pub reply: u32,
    /// Bytes of data that follow.
    pub length: u32,
}

impl OptionReplyHeader {
    /// From its bytes; the magic number is for the caller to check.
    pub fn decode(bytes: &[u8; OPTION_REPLY_HEADER_BYTES]) -> OptionReplyHeader {
        OptionReplyHeader {
            magic: field!(bytes, u64, 0),
            option: field!(bytes, u32, 8),
            reply: field!(bytes, u32, 12),
            length: field!(bytes, u32, 16),
        }
    }

    /// Appends the header of a reply with `length` bytes of data.
    pub fn encode(option: u32, reply: u32, length: u32, output: &mut Vec<u8>) {
        output.extend_from_slice(&MAGIC_OPTION_REPLY.to_be_bytes());
        output.extend_from_slice(&option.to_be_bytes());
        output.extend_from_slice(&reply.to_be_bytes());
        output.extend_from_slice(&length.to_be_bytes());
    }
}

/// A request, client to server, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Should be [`MAGIC_REQUEST`].
    pub magic: u32,
    /// How.
    pub flags: CommandFlags,
    /// A [`super::Command`], or a number that we do not know.
    pub command: u16,
    /// Pairs it with its reply.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

impl RequestHeader {
    /// From its bytes; the magic number is for the caller to check.
    #[inline]
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> RequestHeader {
        RequestHeader {
            magic: field!(bytes, u32, 0),
            flags: CommandFlags(field!(bytes, u16, 4)),
            command: field!(bytes, u16, 6),
            cookie: field!(bytes, u64, 8),
            offset: field!(bytes, u64, 16),
            length: field!(bytes, u32, 24),
        }
    }

    /// Its bytes, with the magic number that it holds.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0..4].copy_from_slice(&self.magic.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.0.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// A request with the right magic number.
    pub const fn new(
        command: u16,
        flags: CommandFlags,
        cookie: u64,
        offset: u64,
        length: u32,
    ) -> RequestHeader {
        RequestHeader { magic: MAGIC_REQUEST, flags, command, cookie, offset, length }
    }
}

/// A simple reply, server to client, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleReplyHeader {
    /// 0 or an error number.
    pub error: u32,
    /// The request's.
    pub cookie: u64,
}

impl SimpleReplyHeader {
    /// From its bytes, of which the first four (the magic number) are not looked at.
    pub fn decode(bytes: &[u8; SIMPLE_REPLY_BYTES]) -> SimpleReplyHeader {
        SimpleReplyHeader { error: field!(bytes, u32, 4), cookie: field!(bytes, u64, 8) }
    }

    /// Its bytes.
    #[inline]
    pub fn encode(&self) -> [u8; SIMPLE_REPLY_BYTES] {
        let mut bytes = [0; SIMPLE_REPLY_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC_SIMPLE_REPLY.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.error.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes
    }
}

/// The header of a structured chunk, server to client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Whether it is the last.
    pub flags: ChunkFlags,
    /// A [`super::ChunkType`], or a number that we do not know.
    pub chunk: u16,
    /// The request's.
    pub cookie: u64,
    /// Bytes of payload that follow.
    pub length: u32,
}

impl ChunkHeader {
    /// From its bytes, of which the first four (the magic number) are not looked at.
    pub fn decode(bytes: &[u8; CHUNK_HEADER_BYTES]) -> ChunkHeader {
        ChunkHeader {
            flags: ChunkFlags(field!(bytes, u16, 4)),
            chunk: field!(bytes, u16, 6),
            cookie: field!(bytes, u64, 8),
            length: field!(bytes, u32, 16),
        }
    }

    /// Its bytes.
    #[inline]
    pub fn encode(&self) -> [u8; CHUNK_HEADER_BYTES] {
        let mut bytes = [0; CHUNK_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC_STRUCTURED_REPLY.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.0.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.chunk.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}

/// The data of `INFO` and `GO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoRequest<'a> {
    /// The export's name, as sent.
    pub name: &'a [u8],
    /// The kinds of information asked for, known to us or not, two bytes each.
    infos: &'a [u8],
}

impl<'a> GoRequest<'a> {
    /// From an option's data: name length, name, count, that many 16-bit numbers, and nothing else.
    ///
    /// # Errors
    /// `Truncated` if a length says more than there is, or the data says less than there is.
    pub fn decode(data: &'a [u8]) -> Result<GoRequest<'a>, Truncated> {
        let mut reader = Reader::new(data);
        let name_length = reader.u32()?;
        let name = reader.take(name_length as usize)?;
        let count = reader.u16()?;
        let infos = reader.take(usize::from(count) * 2)?;
        if reader.left() > 0 {
            return Err(Truncated { needed: 0, left: reader.left() });
        }
        Ok(GoRequest { name, infos })
    }

    /// Whether this kind of information is asked for.
    pub fn asks_for(&self, info: super::InfoType) -> bool {
        self.infos.chunks_exact(2).any(|pair| pair == info.number().to_be_bytes())
    }

    /// Appends the data of an `INFO` or `GO`; `name` is at most [`super::STRING_BYTES_MAX`] bytes.
    pub fn encode(name: &str, infos: &[super::InfoType], output: &mut Vec<u8>) {
        output.extend_from_slice(&(name.len() as u32).to_be_bytes());
        output.extend_from_slice(name.as_bytes());
        output.extend_from_slice(&(infos.len() as u16).to_be_bytes());
        for info in infos {
            output.extend_from_slice(&info.number().to_be_bytes());
        }
    }
}

/// The data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaContextRequest<'a> {
    /// The export's name, as sent.
    pub name: &'a [u8],
    /// How many queries follow.
    pub query_count: u32,
    queries: &'a [u8],
}

impl<'a> MetaContextRequest<'a> {
    /// From an option's data: name length, name, count, that many length-prefixed queries, and nothing else.
    ///
    /// # Errors
    /// `Truncated` if a length says more than there is, or the data says less than there is.
    pub fn decode(data: &'a [u8]) -> Result<MetaContextRequest<'a>, Truncated> {
        let mut reader = Reader::new(data);
        let name_length = reader.u32()?;
        let name = reader.take(name_length as usize)?;
        let query_count = reader.u32()?;
        let mut rest = reader;
        let queries = reader.take_rest();
        // Walked once here, so that the iterator below cannot meet a malformed one. The count is not trusted:
        // each query takes at least four bytes, so the walk ends with the data.
        for _ in 0..query_count {
            let length = rest.u32()?;
            rest.take(length as usize)?;
        }
        if rest.left() > 0 {
            return Err(Truncated { needed: 0, left: rest.left() });
        }
        Ok(MetaContextRequest { name, query_count, queries })
    }

    /// The queries, as sent.
    pub fn queries(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut reader = Reader::new(self.queries);
        std::iter::from_fn(move || {
            let length = reader.u32().ok()?;
            reader.take(length as usize).ok()
        })
    }

    /// Appends the data of either option; `name` and each query at most [`super::STRING_BYTES_MAX`] bytes.
    pub fn encode(name: &str, queries: &[&str], output: &mut Vec<u8>) {
        output.extend_from_slice(&(name.len() as u32).to_be_bytes());
        output.extend_from_slice(name.as_bytes());
        output.extend_from_slice(&(queries.len() as u32).to_be_bytes());
        for query in queries {
            output.extend_from_slice(&(query.len() as u32).to_be_bytes());
            output.extend_from_slice(query.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::InfoType;
    use super::*;

    #[test]
    fn request_layout_is_the_document_s() {
        let header = RequestHeader::new(1, CommandFlags::FUA, 0x0102_0304_0506_0708, 0x1000, 0x200);
        let bytes = header.encode();
        let expected: [u8; 28] = [
            0x25, 0x60, 0x95, 0x13, // magic
            0, 1, 0, 1, // flags, type
            1, 2, 3, 4, 5, 6, 7, 8, // cookie
            0, 0, 0, 0, 0, 0, 0x10, 0, // offset
            0, 0, 2, 0, // length
        ];
        assert_eq!(bytes, expected);
        assert_eq!(RequestHeader::decode(&bytes), header);
    }

    #[test]
    fn go_data_must_be_exact() {
        let mut data = Vec::new();
        GoRequest::encode("ab", &[InfoType::BlockSize], &mut data);
        assert_eq!(data, [0, 0, 0, 2, b'a', b'b', 0, 1, 0, 3]);
        let request = GoRequest::decode(&data).unwrap();
        assert_eq!(request.name, b"ab");
        assert!(request.asks_for(InfoType::BlockSize) && !request.asks_for(InfoType::Name));
        for cut in 0..data.len() {
            assert!(GoRequest::decode(&data[..cut]).is_err(), "{cut}");
        }
        data.push(0);
        assert!(GoRequest::decode(&data).is_err());
        assert!(GoRequest::decode(&[0xff, 0xff, 0xff, 0xff, b'a']).is_err());
    }

    #[test]
    fn meta_context_data_must_be_exact() {
        let mut data = Vec::new();
        MetaContextRequest::encode("d", &["base:", ""], &mut data);
        let request = MetaContextRequest::decode(&data).unwrap();
        assert_eq!(request.queries().collect::<Vec<_>>(), [&b"base:"[..], b""]);
        for cut in 0..data.len() {
            assert!(MetaContextRequest::decode(&data[..cut]).is_err(), "{cut}");
        }
        // A count of four thousand million queries ends with the data, not with the count.
        assert!(MetaContextRequest::decode(&[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]).is_err());
    }
}
