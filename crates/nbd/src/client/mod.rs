//! The client's end of a conversation: handshake, requests, replies.
//!
//! It is not a client: it neither connects nor waits, resends nothing and holds no data. [`Session::receive`] looks
//! at the bytes that its owner holds, handles at most one message, and says how many bytes it is done with.
//!
//! Invariants:
//! * how the bytes were cut into pieces changes nothing but where [`Event::Data`] and [`Event::Extents`] are cut;
//! * every submitted request is completed by exactly one [`Event::Done`], unless the connection is lost first: then
//!   [`Session::outstanding`] names the requests whose outcome is unknown;
//! * a successful read was covered by data and holes exactly once, whatever the server sent;
//! * memory is bounded by the limits of [`Config`], not by what a server sends.
//!
//! Source: `doc/proto.md`, "Newstyle negotiation", "Transmission phase", "Structured reply types".

mod handshake;
mod replies;
mod submit;

pub use handshake::Export;
pub use replies::ReplyError;
pub use submit::{Operation, SubmitError};

use crate::wire::{Extents, PAYLOAD_BYTES_PORTABLE, TransmissionFlags};
use crate::{BlockSizes, Succession, server::TlsPolicy};
use forebay_units::ByteRange;
use handshake::Step;
use replies::{Outstanding, Receiving};
use std::collections::BTreeMap;
use thiserror::Error;

/// What the conversation is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Goal {
    /// Use the export.
    #[default]
    Use,
    /// Learn about the export, then leave.
    Describe,
    /// Learn the names of all exports, then leave.
    List,
}

/// What a session asks of a server, and what it bears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The export's name; empty for the default export.
    pub export: String,
    /// What for.
    pub goal: Goal,
    /// `Off`: never ask; `Allowed`: ask, and go on in the clear if refused; `Required`: fail if refused.
    pub tls: TlsPolicy,
    /// Whether to ask for structured replies.
    pub structured_replies: bool,
    /// Whether to ask for the `base:allocation` context, which needs structured replies.
    pub block_status: bool,
    /// The connection's place in a succession, told to the server; [`Export::succeeds`] has what it made of that. Default: none.
    pub succession: Option<Succession>,
    /// Longest read or write that is submitted, in bytes. Default 32 MiB; the server's limit counts too.
    pub payload_bytes_max: u32,
    /// Requests in flight. Default 1,024.
    pub requests_max: usize,
    /// Longest option reply and longest error chunk, in bytes: they must fit into the owner's receive buffer.
    /// Default 64 KiB.
    pub reply_bytes_max: u32,
    /// Exports that a list may have. Default 65,536.
    pub exports_max: u32,
}

impl Config {
    /// Uses `export` with structured replies and without TLS.
    pub fn new(export: impl Into<String>) -> Config {
        Config {
            export: export.into(),
            goal: Goal::Use,
            tls: TlsPolicy::Off,
            structured_replies: true,
            block_status: true,
            succession: None,
            payload_bytes_max: PAYLOAD_BYTES_PORTABLE,
            requests_max: 1024,
            reply_bytes_max: 64 << 10,
            exports_max: 1 << 16,
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
    /// A message that says nothing by itself was handled (a step of the handshake, an error chunk that is not the
    /// last of its reply); send `output`, call again with the rest.
    Progress,
    /// The server agreed to TLS: run the TLS handshake on the connection, then call [`Session::tls_established`].
    /// Bytes that came in the clear behind the agreement must not be believed; drop the connection if there are any.
    UpgradeTls,
    /// One export of a list.
    Listed {
        /// Its name.
        name: String,
        /// For people; often empty.
        description: String,
    },
    /// A metadata context that the server has for the export, asked about with [`Goal::Describe`].
    Context {
        /// Its name, as `base:allocation`.
        name: String,
    },
    /// The export, asked about with [`Goal::Describe`].
    Described(Export),
    /// The export is open: requests may be submitted.
    Ready(Export),
    /// Bytes of a read.
    Data {
        /// The request's.
        cookie: u64,
        /// Where they belong, from the start of the export.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// A piece of a read that is zeroes.
    Hole {
        /// The request's.
        cookie: u64,
        /// Where.
        range: ByteRange,
    },
    /// Extents of the `base:allocation` context, in order, from the request's offset or from where the last such
    /// event of this request ended.
    Extents {
        /// The request's.
        cookie: u64,
        /// The extents.
        extents: Extents<'a>,
    },
    /// A request is complete.
    Done {
        /// The request's.
        cookie: u64,
        /// Whether the server did it. Data of a failed read is not to be used.
        result: Result<(), ReplyError>,
    },
    /// The server, which lets connections succeed one another, ends in order, and this is the last that it says: what has no answer it did not take, and what it acknowledged, on whatever
    /// connection, is on stable storage.
    Farewell,
    /// Nothing more will come: what was asked for was told, `output` holds the farewell.
    Closed,
}

/// Why a conversation cannot go on. The owner drops the connection; the outcome of every outstanding request is
/// unknown.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// Not an NBD server.
    #[error("server starts with {found:#018x}, expected `NBDMAGIC` (0x4e42444d41474943): not an NBD server")]
    ServerMagic {
        /// What came.
        found: u64,
    },
    /// A server from before 2011.
    #[error(
        "server speaks the oldstyle handshake, expected newstyle; upgrade the server or have it name its exports"
    )]
    Oldstyle,
    /// Neither oldstyle nor newstyle.
    #[error("greeting goes on with {found:#018x}, expected `IHAVEOPT` (0x49484156454f5054)")]
    GreetingMagic {
        /// What came.
        found: u64,
    },
    /// A server that cannot answer options.
    #[error("server does not speak fixed newstyle, which {needed} needs")]
    NotFixedNewstyle {
        /// What cannot be had without it.
        needed: &'static str,
    },
    /// The name cannot be sent.
    #[error("export name has {bytes} bytes, at most 4096 are allowed")]
    NameTooLong {
        /// Its length.
        bytes: usize,
    },
    /// An option reply with the wrong magic number.
    #[error("option reply starts with {found:#018x}, expected 0x0003e889045565a9")]
    OptionReplyMagic {
        /// What came.
        found: u64,
    },
    /// An answer to another question.
    #[error("reply is to option {found}, expected {expected}")]
    OptionMismatch {
        /// The option that was answered.
        found: u32,
        /// The option that was sent.
        expected: u32,
    },
    /// A reply that this option does not have.
    #[error("option {option} was answered with reply {reply:#x}, which does not belong to it")]
    OptionReply {
        /// The option.
        option: u32,
        /// The reply's number.
        reply: u32,
    },
    /// A reply whose data makes no sense.
    #[error("reply {reply:#x} to option {option} is malformed: {detail}")]
    OptionReplyData {
        /// The option.
        option: u32,
        /// The reply's number.
        reply: u32,
        /// What is wrong.
        detail: &'static str,
    },
    /// The server said no.
    #[error("server refused option {option} with reply {reply:#x}: {message}")]
    Refused {
        /// The option.
        option: u32,
        /// The reply's number, an error of [`crate::wire::OptionReply`].
        reply: u32,
        /// What the server said, for people.
        message: String,
    },
    /// Something is larger than we bear.
    #[error("{what} of {found}, at most {max} is accepted")]
    TooLarge {
        /// What.
        what: &'static str,
        /// How large.
        found: u64,
        /// The limit.
        max: u64,
    },
    /// `GO` was acknowledged without saying how large the export is.
    #[error("server acknowledged the export without NBD_INFO_EXPORT")]
    NoExportInfo,
    /// Block sizes that break the protocol's rules.
    #[error("block sizes min {}, preferred {}, max {} break the protocol's rules", .0.min, .0.preferred, .0.max)]
    BlockSizes(BlockSizes),
    /// A reply with neither magic number.
    #[error("reply starts with {found:#010x}, expected 0x67446698 or 0x668e33ef")]
    ReplyMagic {
        /// What came.
        found: u32,
    },
    /// A reply to nothing.
    #[error("reply with cookie {cookie:#x}, which is not outstanding")]
    UnknownCookie {
        /// The cookie.
        cookie: u64,
    },
    /// A reply in the wrong format for its request.
    #[error("{found} reply to cookie {cookie:#x}, expected a {expected} one")]
    ReplyFormat {
        /// The cookie.
        cookie: u64,
        /// What came.
        found: &'static str,
        /// What was agreed on.
        expected: &'static str,
    },
    /// A chunk that makes no sense.
    #[error("chunk of type {chunk} and {length} bytes for cookie {cookie:#x}: {detail}")]
    Chunk {
        /// The cookie.
        cookie: u64,
        /// The chunk's type.
        chunk: u16,
        /// Its length.
        length: u32,
        /// What is wrong.
        detail: &'static str,
    },
    /// A read that claims success and is not complete.
    #[error("read with cookie {cookie:#x} ended after {found} bytes, expected {expected}")]
    Incomplete {
        /// The cookie.
        cookie: u64,
        /// Bytes that came.
        found: u64,
        /// Bytes that were asked for.
        expected: u64,
    },
}

/// Where in the conversation the next byte belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// The server's greeting.
    Greeting,
    /// Replies to an option.
    Option(Step),
    /// The owner runs the TLS handshake.
    Tls,
    /// The answer to `EXPORT_NAME`, which is no option reply.
    ExportName,
    /// Replies to requests.
    Replies(Receiving),
    /// We left.
    Closed,
    /// The conversation broke.
    Broken(ProtocolError),
}

/// The client's end of one connection.
#[derive(Clone, Debug)]
pub struct Session {
    config: Config,
    phase: Phase,
    no_zeroes: bool,
    tls: bool,
    structured: bool,
    context_id: Option<u32>,
    /// What the server said of the export so far.
    export: Export,
    has_export_info: bool,
    has_asked_to_succeed: bool,
    exports_listed: u32,
    /// `None` before they are asked for.
    contexts_listed: Option<u32>,
    disconnecting: bool,
    outstanding: BTreeMap<u64, Outstanding>,
}

impl Session {
    /// A session that waits for a server's greeting.
    pub fn new(config: Config) -> Session {
        let export = Export::unknown(&config.export);
        Session {
            config,
            phase: Phase::Greeting,
            no_zeroes: false,
            tls: false,
            structured: false,
            context_id: None,
            export,
            has_export_info: false,
            has_asked_to_succeed: false,
            exports_listed: 0,
            contexts_listed: None,
            disconnecting: false,
            outstanding: BTreeMap::new(),
        }
    }

    /// The receive buffer that an owner needs at least, in bytes, so that every message that must be whole fits.
    pub fn receive_bytes_min(&self) -> usize {
        self.config.reply_bytes_max as usize + 20
    }

    /// Looks at the bytes that the owner holds and handles at most one message. What must be sent is appended to
    /// `output`. To be called until it answers [`Event::NeedMore`], with an empty input too: the completion of a
    /// read is an event of its own behind its last byte.
    ///
    /// # Errors
    /// A [`ProtocolError`] ends the conversation; every later call returns it again.
    pub fn receive<'a>(
        &mut self,
        input: &'a [u8],
        output: &mut Vec<u8>,
    ) -> Result<Parsed<'a>, ProtocolError> {
        let result = match &self.phase {
            Phase::Replies(_) => self.receive_reply(input),
            Phase::Greeting => self.receive_greeting(input, output),
            Phase::Option(step) => {
                let step = *step;
                self.receive_option_reply(step, input, output)
            }
            Phase::ExportName => self.receive_export_name(input),
            Phase::Tls => Ok(Parsed { consumed: 0, event: Event::UpgradeTls }),
            Phase::Closed => Ok(Parsed { consumed: input.len(), event: Event::Closed }),
            Phase::Broken(error) => Err(error.clone()),
        };
        if let Err(error) = &result {
            self.phase = Phase::Broken(error.clone());
        }
        result
    }

    /// Tells the session that TLS now protects the connection; it goes on with the options.
    ///
    /// # Panics
    /// If it did not ask for TLS ([`Event::UpgradeTls`]).
    pub fn tls_established(&mut self, output: &mut Vec<u8>) {
        assert!(self.phase == Phase::Tls, "nobody asked for TLS");
        self.tls = true;
        self.after_tls(output);
    }

    /// Whether requests may be submitted.
    pub fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Replies(_)) && !self.disconnecting
    }

    /// Whether TLS protects the connection.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// The open export; `None` before [`Event::Ready`].
    pub fn export(&self) -> Option<&Export> {
        matches!(self.phase, Phase::Replies(_)).then_some(&self.export)
    }

    /// What the server offers; no flag before [`Event::Ready`].
    pub fn transmission_flags(&self) -> TransmissionFlags {
        self.export.flags
    }

    /// Requests without an answer, by cookie. After the connection was lost: those whose outcome is unknown.
    pub fn outstanding(&self) -> impl Iterator<Item = (u64, crate::wire::Command, ByteRange)> + '_ {
        self.outstanding.iter().map(|(cookie, request)| (*cookie, request.command, request.range))
    }

    /// How many requests have no answer yet.
    pub fn outstanding_count(&self) -> usize {
        self.outstanding.len()
    }
}
