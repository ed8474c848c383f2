//! The server's end of a conversation: greeting, options, requests.
//!
//! It is not a server: it neither receives nor sends, and holds no volume. [`Session::receive`] looks at the bytes
//! that its owner holds, handles at most one message, and says how many bytes it is done with.
//!
//! Invariants:
//! * how the bytes were cut into pieces changes nothing: the same events and the same output follow;
//! * a session keeps no received byte, so its memory does not depend on what a client sends;
//! * one call appends at most one message's answers to `output`;
//! * a request that reaches the owner is valid: the command was offered, its flags are known and allowed, its range
//!   lies inside the export, is not empty (flush excepted) and is aligned to the smallest block; everything else
//!   was already answered with the error that the protocol document asks for.
//!
//! Source: `doc/proto.md`, "Newstyle negotiation", "Transmission phase", "Block size constraints".

mod exports;
mod options;
mod reply;
mod request;

pub use exports::Exports;
pub use reply::{HeaderBytes, ReplyEncoder, ReplyFormat};
pub use request::Request;

use crate::wire::{
    Command, ErrorCode, GREETING_BYTES, HandshakeFlags, MAGIC_OPTION, MAGIC_SERVER, OPTION_HEADER_BYTES,
    PAYLOAD_BYTES_PORTABLE, REQUEST_BYTES, RequestHeader, TransmissionFlags,
};
use crate::{ExportInfo, Succeeds, Succession};
use options::Negotiated;
use thiserror::Error;

/// The id that we give the `base:allocation` context.
pub const CONTEXT_ID_ALLOCATION: u32 = 1;

/// How this server treats TLS (`doc/proto.md`, "TLS support": `NOTLS`, `SELECTIVETLS`, `FORCEDTLS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsPolicy {
    /// A client that asks for it is told that policy forbids it.
    #[default]
    Off,
    /// With or without.
    Allowed,
    /// A client gets nothing but TLS before it has upgraded.
    Required,
}

/// What a session allows a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// With or without TLS.
    pub tls: TlsPolicy,
    /// Whether structured replies (and so block status and DF) are offered.
    pub structured_replies: bool,
    /// Longest read and write, in bytes; larger blocks are never advertised. Default 32 MiB.
    pub payload_bytes_max: u32,
    /// Writes up to this length arrive in one piece ([`Payload::Whole`]), so the owner's receive buffer must hold
    /// them with their header; longer ones arrive in parts. Default 64 KiB.
    pub payload_whole_bytes_max: u32,
    /// Longest data of an option, in bytes. Default 64 KiB; longer ones are skipped and refused.
    pub option_bytes_max: u32,
    /// Options before a client must have made up its mind. Default 4,096, enough to ask about thousands of exports.
    pub options_max: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            tls: TlsPolicy::Off,
            structured_replies: true,
            payload_bytes_max: PAYLOAD_BYTES_PORTABLE,
            payload_whole_bytes_max: 64 << 10,
            option_bytes_max: 64 << 10,
            options_max: 4096,
        }
    }
}

/// What a call of [`Session::receive`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// Bytes at the front of the input that are done with. The owner drops them before the next call.
    pub consumed: usize,
    /// What they meant.
    pub event: Event<'a>,
}

/// What happened in the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The rest of the input is not a whole message yet: call again when there is more.
    NeedMore,
    /// An option was answered; send `output`, call again with the rest.
    Negotiated,
    /// An option was answered with there being no such export for this client; send `output`, call again with the rest.
    ExportRefused {
        /// As the client asked for it: it may show a secret.
        name: &'a str,
        /// By the option that would have chosen it; the others only ask about it.
        is_choice: bool,
    },
    /// The client was told to start TLS. Send `output`, then run the TLS handshake on the connection and call
    /// [`Session::tls_established`]. Bytes that came in the clear behind the option must not be decrypted or
    /// parsed: whoever put them there was not the client (an injection); drop the connection if there are any.
    UpgradeTls,
    /// Option haggling is over; requests follow.
    ExportChosen(Box<ExportInfo>),
    /// A valid request.
    Request {
        /// What is asked.
        request: Request,
        /// The bytes of a write.
        payload: Payload<'a>,
    },
    /// The next bytes of the payload that was announced as [`Payload::Pending`].
    PayloadPart {
        /// The bytes.
        bytes: &'a [u8],
        /// How many are still to come.
        remaining: u32,
    },
    /// A request was answered with an error by the session itself; for counters and logs.
    Refused {
        /// The request's cookie.
        cookie: u64,
        /// The command's number, known or not.
        command: u16,
        /// The answer.
        code: ErrorCode,
        /// Why.
        reason: Refusal,
    },
    /// The client leaves. Answer what is outstanding, send `output`, close.
    Disconnect(Disconnect),
}

/// The bytes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// The command has none.
    None,
    /// All of them, in the owner's receive buffer.
    Whole(&'a [u8]),
    /// None of them yet: `bytes` of them follow as [`Event::PayloadPart`]s, or are received by the owner into
    /// a buffer of its own and reported with [`Session::payload_received`], or some of each.
    Pending {
        /// How many.
        bytes: u32,
    },
}

/// How a client left in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disconnect {
    /// By `NBD_CMD_DISC`.
    Requested,
    /// By `NBD_OPT_ABORT`.
    Aborted,
}

/// Why a session refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The number is no command.
    #[error("unknown command")]
    UnknownCommand,
    /// The export does not offer it.
    #[error("command is not offered by this export")]
    NotOffered,
    /// A flag that is unknown, does not belong to the command, or is not offered.
    #[error("flag is unknown, not offered, or not for this command")]
    Flag,
    /// The export is read-only.
    #[error("export is read-only")]
    ReadOnly,
    /// Length 0 where it means nothing.
    #[error("length is zero")]
    Empty,
    /// Offset or length where they must be 0.
    #[error("offset and length must be zero")]
    NotEmpty,
    /// Behind the end of the export.
    #[error("range ends behind the export")]
    BehindEnd,
    /// Not a multiple of the smallest block.
    #[error("range is not aligned to the smallest block")]
    Unaligned,
    /// Longer than the longest payload.
    #[error("length is above the largest block")]
    TooLong,
    /// Block status without a metadata context.
    #[error("no metadata context was selected")]
    NoContext,
}

/// Why a conversation cannot go on. The owner logs it and drops the connection; nothing can be sent any more,
/// because the two sides no longer agree on where a message starts.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// Client flags that nobody offered.
    #[error("client flags {found:#010x} hold bits besides {offered:#x}")]
    ClientFlags {
        /// What came.
        found: u32,
        /// What may be set.
        offered: u32,
    },
    /// An option with the wrong magic number.
    #[error("option starts with {found:#018x}, expected {MAGIC_OPTION:#018x}")]
    OptionMagic {
        /// What came.
        found: u64,
    },
    /// An option longer than even a patient server skips.
    #[error("option {option} announces {length} bytes, at most {max} are skipped")]
    OptionTooLong {
        /// The option's number.
        option: u32,
        /// Announced bytes.
        length: u32,
        /// The most that is skipped.
        max: u32,
    },
    /// Too many options.
    #[error("client sent more than {max} options without choosing an export")]
    TooManyOptions {
        /// The limit.
        max: u32,
    },
    /// A client without fixed newstyle sent an option that it cannot get an answer to.
    #[error("option {option} from a client that does not speak fixed newstyle")]
    NotFixedNewstyle {
        /// The option's number.
        option: u32,
    },
    /// `EXPORT_NAME` for an export that does not exist; this option has no way to say so.
    #[error("export `{name}` is not here (asked for by EXPORT_NAME, which has no error reply)")]
    UnknownExport {
        /// As sent; cut at 256 bytes, what is not UTF-8 replaced.
        name: String,
    },
    /// `EXPORT_NAME` without TLS where it is required.
    #[error("EXPORT_NAME before TLS, which is required here")]
    TlsRequired,
    /// A request with the wrong magic number.
    #[error("request starts with {found:#010x}, expected 0x25609513")]
    RequestMagic {
        /// What came.
        found: u32,
    },
    /// A payload that is too long to be skipped.
    #[error("write of {length} bytes, at most {max} are accepted or skipped")]
    PayloadTooLong {
        /// Announced bytes.
        length: u32,
        /// The most that is skipped.
        max: u32,
    },
}

/// Where in the conversation the next byte belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// The client's flags.
    ClientFlags,
    /// An option's header.
    Option,
    /// Data of an option that was too long; answered when it has passed.
    SkippingOption { option: u32, remaining: u32 },
    /// The owner runs the TLS handshake.
    Tls,
    /// A request's header.
    Request,
    /// The payload of a write, in parts.
    Payload { remaining: u32 },
    /// The payload of a refused write; answered when it has passed.
    SkippingPayload { remaining: u32, cookie: u64, command: u16, code: ErrorCode, reason: Refusal },
    /// The client left.
    Closed(Disconnect),
    /// The conversation broke.
    Broken(ProtocolError),
}

/// The server's end of one connection.
#[derive(Clone, Debug)]
pub struct Session {
    config: Config,
    phase: Phase,
    options_seen: u32,
    negotiated: Negotiated,
    /// Offered to the client, once the export is chosen.
    offered: TransmissionFlags,
    size_bytes: u64,
    block_size_min: u32,
    block_size_max: u32,
}

impl Session {
    /// A session whose greeting is appended to `output`.
    ///
    /// # Panics
    /// If `payload_bytes_max` is below 64 KiB, the largest smallest block that an export may have.
    pub fn new(config: Config, output: &mut Vec<u8>) -> Session {
        let flags = HandshakeFlags::FIXED_NEWSTYLE.with(HandshakeFlags::NO_ZEROES);
        let payload_bytes_max = config.payload_bytes_max;
        assert!(
            payload_bytes_max >= 1 << 16,
            "payload maximum of {payload_bytes_max} bytes, at least 65536 needed"
        );
        let start = output.len();
        output.extend_from_slice(&MAGIC_SERVER.to_be_bytes());
        output.extend_from_slice(&MAGIC_OPTION.to_be_bytes());
        output.extend_from_slice(&flags.0.to_be_bytes());
        debug_assert_eq!(output.len() - start, GREETING_BYTES);
        Session {
            config,
            phase: Phase::ClientFlags,
            options_seen: 0,
            negotiated: Negotiated::default(),
            offered: TransmissionFlags::NONE,
            size_bytes: 0,
            block_size_min: 1,
            block_size_max: 0,
        }
    }

    /// The receive buffer that an owner needs at least, in bytes, so that every message that must be whole fits.
    pub fn receive_bytes_min(&self) -> usize {
        let option = OPTION_HEADER_BYTES + self.config.option_bytes_max as usize;
        let request =
            REQUEST_BYTES + self.config.payload_whole_bytes_max.min(self.config.payload_bytes_max) as usize;
        option.max(request)
    }

    /// Looks at the bytes that the owner holds and handles at most one message. `exports` is asked during the
    /// handshake only. What must be sent is appended to `output`.
    ///
    /// # Errors
    /// A [`ProtocolError`] ends the conversation; every later call returns it again.
    #[inline]
    pub fn receive<'a>(
        &mut self,
        input: &'a [u8],
        exports: &dyn Exports,
        output: &mut Vec<u8>,
    ) -> Result<Parsed<'a>, ProtocolError> {
        let result = match self.phase {
            Phase::Request => self.receive_request(input, output),
            Phase::Payload { remaining } => Ok(self.receive_payload(input, remaining)),
            Phase::SkippingPayload { .. } => Ok(self.skip_payload(input, output)),
            _ => self.receive_handshake(input, exports, output),
        };
        match result {
            Err(error) => {
                self.phase = Phase::Broken(error.clone());
                Err(error)
            }
            parsed => parsed,
        }
    }

    /// Tells the session that TLS now protects the connection: what was agreed on before is forgotten, as the
    /// protocol demands, and option haggling starts anew.
    ///
    /// # Panics
    /// If it did not ask for TLS ([`Event::UpgradeTls`]).
    pub fn tls_established(&mut self) {
        assert!(self.phase == Phase::Tls, "nobody asked for TLS");
        self.negotiated.restart_under_tls();
        self.phase = Phase::Option;
    }

    /// How many payload bytes are still to come; 0 if none are. The owner may receive up to this many into its own
    /// buffer, provided that it has already dropped everything from its receive buffer.
    pub fn payload_wanted(&self) -> u32 {
        match self.phase {
            Phase::Payload { remaining } => remaining,
            _ => 0,
        }
    }

    /// How many bytes of data the request holds, or asks for, whose header stands at the front of `input`: so that an owner can wait with
    /// [`Session::receive`] until it has room. An answer to a block status takes as many as the owner says. `None` if no whole header stands there, or something else is awaited.
    pub fn next_request_bytes(&self, input: &[u8], block_status_bytes: u32) -> Option<u32> {
        if self.phase != Phase::Request {
            return None;
        }
        let header = RequestHeader::decode(input.first_chunk::<REQUEST_BYTES>()?);
        Some(match Command::from_number(header.command) {
            Some(Command::Read | Command::Write) => header.length.min(self.block_size_max),
            Some(Command::BlockStatus) => block_status_bytes,
            _ => 0,
        })
    }

    /// Tells the session that the owner has received `bytes` of the pending payload itself.
    ///
    /// # Panics
    /// If these are more than [`Session::payload_wanted`].
    pub fn payload_received(&mut self, bytes: u32) {
        let wanted = self.payload_wanted();
        assert!(bytes <= wanted, "{bytes} payload bytes received where {wanted} are wanted");
        self.phase =
            if bytes == wanted { Phase::Request } else { Phase::Payload { remaining: wanted - bytes } };
    }

    /// Writes replies in the format that was agreed on.
    #[inline]
    pub fn replies(&self) -> ReplyEncoder {
        ReplyEncoder::new(self.reply_format())
    }

    /// Simple or structured.
    #[inline]
    pub fn reply_format(&self) -> ReplyFormat {
        if self.negotiated.structured { ReplyFormat::Structured } else { ReplyFormat::Simple }
    }

    /// Whether the client chose an export and sends requests.
    pub fn is_transmitting(&self) -> bool {
        matches!(self.phase, Phase::Request | Phase::Payload { .. } | Phase::SkippingPayload { .. })
    }

    /// Whether TLS protects the connection.
    pub fn is_tls(&self) -> bool {
        self.negotiated.tls
    }

    /// The client's place in a succession, also where it was promised nothing: it has given up those whose place it takes. Where it was ([`Session::told`]), nothing that it asks may be begun before
    /// everything is over that came on them, and nothing more may be taken from them. `None` before an export was chosen, and for clients that do not say.
    pub fn succession(&self) -> Option<Succession> {
        self.negotiated.succession.map(|(succession, _)| succession)
    }

    /// What the client was told when it named its place in a succession; `None` where it was promised nothing.
    pub fn told(&self) -> Option<Succeeds> {
        self.negotiated.succession.and_then(|(_, told)| told)
    }

    /// The transmission flags that the client was told; none before an export was chosen.
    pub fn transmission_flags(&self) -> TransmissionFlags {
        self.offered
    }

    /// Enters the transmission phase.
    fn choose(&mut self, export: &ExportInfo) {
        // Alignment is checked with a mask, so a size that is no power of two would let wrong requests through.
        assert!(export.block_sizes.is_valid(), "export `{}` has {:?}", export.name, export.block_sizes);
        self.offered = export.transmission_flags(self.negotiated.structured);
        self.size_bytes = export.size_bytes;
        self.block_size_min = export.block_sizes.min;
        self.block_size_max = self.advertised_block_size_max(export);
        self.negotiated.keep_those_of(export);
        self.phase = Phase::Request;
    }

    /// The largest payload for this export: its own wish, within our limit.
    fn advertised_block_size_max(&self, export: &ExportInfo) -> u32 {
        let min = export.block_sizes.min.max(1); // not yet known to be valid while the export is only described
        let max = export.block_sizes.max.min(self.config.payload_bytes_max);
        max - max % min
    }
}
