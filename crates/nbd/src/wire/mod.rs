//! The numbers and byte layouts of the NBD protocol: typed constants, bit sets, headers, replies.
//!
//! Nothing here keeps state; the sessions do. Everything on the wire is big-endian.
//! Source: `doc/proto.md`, "Values" and the message layouts before it.

mod errno;
mod extent;
mod flags;
mod message;
mod numbers;
mod reader;

pub use errno::{ErrorCode, LinuxErrno};
pub use extent::{Extent, Extents};
pub use flags::{AllocationFlags, ChunkFlags, ClientFlags, CommandFlags, HandshakeFlags, TransmissionFlags};
pub use message::{
    ChunkHeader, GoRequest, MetaContextRequest, OptionHeader, OptionReplyHeader, RequestHeader,
    SimpleReplyHeader,
};
pub use numbers::{ChunkType, Command, InfoType, OptionCode, OptionReply};
pub use reader::{Reader, Truncated};

/// `NBDMAGIC`, the first eight bytes of every server.
pub const MAGIC_SERVER: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`: the second magic number of a newstyle server and the first of every option.
pub const MAGIC_OPTION: u64 = 0x4948_4156_454f_5054;
/// The second magic number of an oldstyle server (`cliserv_magic`), which we do not speak.
pub const MAGIC_OLDSTYLE: u64 = 0x0000_4202_8186_1253;
/// The first eight bytes of every option reply.
pub const MAGIC_OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// The first four bytes of every request.
pub const MAGIC_REQUEST: u32 = 0x2560_9513;
/// The first four bytes of a simple reply.
pub const MAGIC_SIMPLE_REPLY: u32 = 0x6744_6698;
/// The first four bytes of a chunk of a structured reply.
pub const MAGIC_STRUCTURED_REPLY: u32 = 0x668e_33ef;

/// Bytes of a newstyle server's greeting.
pub const GREETING_BYTES: usize = 18;
/// Bytes of an option's header.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes of an option reply's header.
pub const OPTION_REPLY_HEADER_BYTES: usize = 20;
/// Bytes of a request, without its payload.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply, without its payload.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of a structured chunk's header.
pub const CHUNK_HEADER_BYTES: usize = 20;
/// Zeroes after the answer to `EXPORT_NAME` unless both sides agreed on `NO_ZEROES`.
pub const EXPORT_NAME_ZEROES: usize = 124;
/// The longest string that the protocol allows (export names, messages, queries), in bytes.
pub const STRING_BYTES_MAX: usize = 4096;
/// Payloads below this length are not to be taken for an attack (`doc/proto.md`, "Block size constraints"): 2^25.
pub const PAYLOAD_BYTES_PORTABLE: u32 = 1 << 25;
/// The TCP port that IANA assigned.
pub const PORT: u16 = 10809;
/// The one metadata context that the protocol defines.
pub const CONTEXT_BASE_ALLOCATION: &str = "base:allocation";
