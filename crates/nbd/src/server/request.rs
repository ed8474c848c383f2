//! Requests: decoding, validation, payloads.

use super::{Disconnect, Event, Parsed, Payload, Phase, ProtocolError, Refusal, Session};
use crate::wire::{
    Command, CommandFlags, ErrorCode, MAGIC_REQUEST, PAYLOAD_BYTES_PORTABLE, REQUEST_BYTES, RequestHeader,
    TransmissionFlags,
};
use forebay_units::ByteRange;

/// A valid request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Chosen by the client; its reply carries it. Not necessarily unique: two requests of one client may share it.
    pub cookie: u64,
    /// What.
    pub command: Command,
    /// How; only flags that belong to the command and were offered (FUA may accompany any command).
    pub flags: CommandFlags,
    /// Which bytes: inside the export. For trim, cache, write zeroes and block status up to 2^32 - 1 bytes, for
    /// reads and writes up to the largest payload; empty for a flush.
    pub range: ByteRange,
}

impl Request {
    /// Whether the content must be on stable storage before the reply.
    pub const fn fua(&self) -> bool {
        self.flags.contains(CommandFlags::FUA)
    }

    /// Whether zeroes may be written by making a hole.
    pub const fn may_make_hole(&self) -> bool {
        !self.flags.contains(CommandFlags::NO_HOLE)
    }

    /// Whether zeroes that cannot be written fast must fail with `ENOTSUP`.
    pub const fn fast_zero(&self) -> bool {
        self.flags.contains(CommandFlags::FAST_ZERO)
    }

    /// Whether a read's reply must not be cut into chunks.
    pub const fn dont_fragment(&self) -> bool {
        self.flags.contains(CommandFlags::DF)
    }

    /// Whether a block status reply must hold exactly one extent.
    pub const fn one_extent(&self) -> bool {
        self.flags.contains(CommandFlags::REQ_ONE)
    }
}

impl Session {
    /// One step of the transmission phase, at a request's header.
    #[inline]
    pub(super) fn receive_request<'a>(
        &mut self,
        input: &'a [u8],
        output: &mut Vec<u8>,
    ) -> Result<Parsed<'a>, ProtocolError> {
        let Some((header, rest)) = input.split_first_chunk::<REQUEST_BYTES>() else {
            return Ok(Parsed { consumed: 0, event: Event::NeedMore });
        };
        let header = RequestHeader::decode(header);
        if header.magic != MAGIC_REQUEST {
            return Err(ProtocolError::RequestMagic { found: header.magic });
        }
        let request = match self.validate(&header) {
            Ok(request) => request,
            Err((code, reason)) => return self.refuse(&header, code, reason, rest, output),
        };
        match request.command {
            Command::Write => Ok(self.receive_write(request, rest)),
            Command::Disconnect => {
                self.phase = Phase::Closed(Disconnect::Requested);
                Ok(Parsed { consumed: REQUEST_BYTES, event: Event::Disconnect(Disconnect::Requested) })
            }
            _ => Ok(Parsed {
                consumed: REQUEST_BYTES,
                event: Event::Request { request, payload: Payload::None },
            }),
        }
    }

    /// The ranges of the reads that stand one behind the other at the front of `input`, as far as `ranges` has room; how many they are. For
    /// looking ahead: [`Session::receive`] is still to be called for each, and will find them valid. Each is [`REQUEST_BYTES`] long.
    #[inline]
    pub fn upcoming_reads(&self, input: &[u8], ranges: &mut [ByteRange]) -> usize {
        if self.phase != Phase::Request {
            return 0;
        }
        let (headers, _) = input.as_chunks::<REQUEST_BYTES>();
        let reads = headers.iter().map_while(|header| {
            let header = RequestHeader::decode(header);
            let is_read = header.magic == MAGIC_REQUEST && header.command == Command::Read.number();
            is_read.then(|| self.validate(&header).ok()).flatten()
        });
        ranges.iter_mut().zip(reads).map(|(range, read)| *range = read.range).count()
    }

    #[inline]
    fn receive_write<'a>(&mut self, request: Request, rest: &'a [u8]) -> Parsed<'a> {
        let length = request.range.length as u32; // validated: at most the largest payload
        if length > self.config.payload_whole_bytes_max {
            self.phase = Phase::Payload { remaining: length };
            let payload = Payload::Pending { bytes: length };
            return Parsed { consumed: REQUEST_BYTES, event: Event::Request { request, payload } };
        }
        match rest.get(..length as usize) {
            None => Parsed { consumed: 0, event: Event::NeedMore },
            Some(data) => {
                let payload = Payload::Whole(data);
                Parsed { consumed: REQUEST_BYTES + data.len(), event: Event::Request { request, payload } }
            }
        }
    }

    pub(super) fn receive_payload<'a>(&mut self, input: &'a [u8], remaining: u32) -> Parsed<'a> {
        let bytes = &input[..input.len().min(remaining as usize)];
        if bytes.is_empty() {
            return Parsed { consumed: 0, event: Event::NeedMore };
        }
        self.payload_received(bytes.len() as u32);
        let remaining = remaining - bytes.len() as u32;
        Parsed { consumed: bytes.len(), event: Event::PayloadPart { bytes, remaining } }
    }

    /// Answers a bad request; a write's payload passes first, because a client that is still sending it may take
    /// an early reply for a stray one (the Linux kernel's does).
    #[cold]
    fn refuse<'a>(
        &mut self,
        header: &RequestHeader,
        code: ErrorCode,
        reason: Refusal,
        rest: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Parsed<'a>, ProtocolError> {
        let is_write = header.command == Command::Write.number();
        let remaining = if is_write { header.length } else { 0 };
        let max = PAYLOAD_BYTES_PORTABLE.max(self.config.payload_bytes_max);
        if remaining > max {
            return Err(ProtocolError::PayloadTooLong { length: remaining, max });
        }
        let (cookie, command) = (header.cookie, header.command);
        self.phase = Phase::SkippingPayload { remaining, cookie, command, code, reason };
        let skipped = self.skip_payload(rest, output);
        Ok(Parsed { consumed: REQUEST_BYTES + skipped.consumed, event: skipped.event })
    }

    /// Drops the payload of a refused write; the answer follows the last byte.
    pub(super) fn skip_payload<'a>(&mut self, input: &[u8], output: &mut Vec<u8>) -> Parsed<'a> {
        let Phase::SkippingPayload { remaining, cookie, command, code, reason } = self.phase else {
            unreachable!("only called while a payload is skipped")
        };
        let skipped = input.len().min(remaining as usize);
        let remaining = remaining - skipped as u32;
        if remaining > 0 {
            self.phase = Phase::SkippingPayload { remaining, cookie, command, code, reason };
            return Parsed { consumed: skipped, event: Event::NeedMore };
        }
        self.phase = Phase::Request;
        self.replies().error(cookie, code, &reason.to_string(), output);
        Parsed { consumed: skipped, event: Event::Refused { cookie, command, code, reason } }
    }

    /// Checks everything that can be said about a request without the volume.
    #[inline]
    fn validate(&self, header: &RequestHeader) -> Result<Request, (ErrorCode, Refusal)> {
        // Of most requests a few comparisons tell that nothing is wrong; each is looked at twice, ahead of its batch and when it is served.
        if self.is_plain_read(header) {
            let range = ByteRange::new(header.offset, u64::from(header.length));
            let request =
                Request { cookie: header.cookie, command: Command::Read, flags: CommandFlags::NONE, range };
            debug_assert_eq!(self.validate_any(header), Ok(request));
            return Ok(request);
        }
        self.validate_any(header)
    }

    /// Whether it is a read without flags in which nothing is wrong.
    #[inline]
    fn is_plain_read(&self, header: &RequestHeader) -> bool {
        let mask = u64::from(self.block_size_min) - 1;
        header.command == Command::Read.number()
            && header.flags == CommandFlags::NONE
            && (1..=self.block_size_max).contains(&header.length)
            && header.offset <= self.size_bytes
            && u64::from(header.length) <= self.size_bytes - header.offset
            && (header.offset | u64::from(header.length)) & mask == 0
    }

    fn validate_any(&self, header: &RequestHeader) -> Result<Request, (ErrorCode, Refusal)> {
        use ErrorCode::{Invalid, NoSpace, NotPermitted, Overflow};
        let Some(command) = Command::from_number(header.command) else {
            return Err((Invalid, Refusal::UnknownCommand));
        };
        let range = ByteRange::new(header.offset, u64::from(header.length));
        let request = Request { cookie: header.cookie, command, flags: header.flags, range };
        if command == Command::Disconnect {
            return Ok(request); // It is obeyed whatever else it says.
        }
        let changes = matches!(command, Command::Write | Command::Trim | Command::WriteZeroes);
        if changes && self.offered.contains(TransmissionFlags::READ_ONLY) {
            return Err((NotPermitted, Refusal::ReadOnly));
        }
        match command {
            Command::BlockStatus if !self.negotiated.allocation_context => {
                return Err((Invalid, Refusal::NoContext));
            }
            _ if !self.offered.contains(offer_needed(command)) => return Err((Invalid, Refusal::NotOffered)),
            _ => {}
        }
        if !self.allowed_flags(command).contains(header.flags) {
            return Err((Invalid, Refusal::Flag));
        }
        if command == Command::Flush {
            let zero = header.offset == 0 && header.length == 0;
            return if zero { Ok(request) } else { Err((Invalid, Refusal::NotEmpty)) };
        }
        if header.length == 0 {
            return Err((Invalid, Refusal::Empty));
        }
        if header.offset.checked_add(range.length).is_none_or(|end| end > self.size_bytes) {
            let writes = matches!(command, Command::Write | Command::WriteZeroes);
            return Err((if writes { NoSpace } else { Invalid }, Refusal::BehindEnd));
        }
        if matches!(command, Command::Read | Command::Write) && header.length > self.block_size_max {
            let unfragmented = request.dont_fragment();
            return Err((if unfragmented { Overflow } else { Invalid }, Refusal::TooLong));
        }
        let mask = u64::from(self.block_size_min) - 1;
        if (header.offset | range.length) & mask != 0 {
            return Err((Invalid, Refusal::Unaligned));
        }
        Ok(request)
    }

    /// The flags that may accompany a command here. FUA may accompany any command once it was offered: the
    /// protocol document says that servers must accept it everywhere.
    #[inline]
    fn allowed_flags(&self, command: Command) -> CommandFlags {
        let offered = self.offered;
        let fua =
            CommandFlags::NONE.with_if(offered.contains(TransmissionFlags::SEND_FUA), CommandFlags::FUA);
        match command {
            Command::Read => fua.with_if(offered.contains(TransmissionFlags::SEND_DF), CommandFlags::DF),
            Command::WriteZeroes => fua
                .with(CommandFlags::NO_HOLE)
                .with_if(offered.contains(TransmissionFlags::SEND_FAST_ZERO), CommandFlags::FAST_ZERO),
            Command::BlockStatus => fua.with(CommandFlags::REQ_ONE),
            _ => fua,
        }
    }
}

/// The transmission flag without which a command must not be sent.
#[inline]
const fn offer_needed(command: Command) -> TransmissionFlags {
    match command {
        Command::Flush => TransmissionFlags::SEND_FLUSH,
        Command::Trim => TransmissionFlags::SEND_TRIM,
        Command::Cache => TransmissionFlags::SEND_CACHE,
        Command::WriteZeroes => TransmissionFlags::SEND_WRITE_ZEROES,
        Command::Read | Command::Write | Command::Disconnect | Command::BlockStatus => {
            TransmissionFlags::NONE
        }
    }
}
