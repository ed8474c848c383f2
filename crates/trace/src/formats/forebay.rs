//! Our own compact binary format, version 2; `docs/internals/format-trace.md` is its layout.
//!
//! A file is a header and then blocks, each with its kind, its number of records, its length and a checksum over all
//! of it; the last block says how many requests there were, so that damage and truncation are always noticed. A block
//! of requests is self-contained: differences start anew in each.

use crate::error::{Bad, Position, TraceError};
use crate::formats::Decoder;
use crate::input::Input;
use crate::reader::BATCH_REQUESTS;
use crate::state::{State, request};
use crate::{Operation, Request, ThreadNumber, VolumeIndex};
use forebay_units::Nanos;
use xxhash_rust::xxh3::Xxh3Default;

/// The first bytes of a file.
pub(crate) const MAGIC: [u8; 8] = *b"FBTRACE\n";
/// The version that is written.
pub(crate) const VERSION: u32 = 2;
/// The oldest version that is read: it knows no threads.
const VERSION_OLDEST: u32 = 1;
/// Magic number, version, and four reserved bytes that are 0.
pub(crate) const HEADER_BYTES: usize = 16;
/// Kind (1), records (4), payload length (4), checksum (8).
pub(crate) const BLOCK_HEADER_BYTES: usize = 17;
/// The longest payload that is written or read.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Kinds of blocks.
pub(crate) const KIND_VOLUMES: u8 = 1;
pub(crate) const KIND_REQUESTS: u8 = 2;
pub(crate) const KIND_END: u8 = 3;

/// Bits of the byte that starts a request; the lowest three are the operation.
pub(crate) const HAS_LATENCY: u8 = 1 << 3;
pub(crate) const SAME_VOLUME: u8 = 1 << 4;
pub(crate) const SAME_LENGTH: u8 = 1 << 5;
pub(crate) const SEQUENTIAL: u8 = 1 << 6;
/// Since version 2.
pub(crate) const OTHER_THREAD: u8 = 1 << 7;

/// The checksum of a block: xxh3 (64 bits, seed 0) over kind, records and payload length as stored, and the payload.
pub(crate) fn checksum(header: &[u8], payload: &[u8]) -> u64 {
    let mut hash = Xxh3Default::new();
    hash.update(header);
    hash.update(payload);
    hash.digest()
}

/// A signed difference as an unsigned number, small for small differences of either sign.
pub(crate) fn zigzag(difference: u64) -> u64 {
    let signed = difference as i64;
    ((signed << 1) ^ (signed >> 63)) as u64
}

/// The difference that [`zigzag`] made this number of.
pub(crate) fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// What differences are taken from: the request before in the same block, or these values at its start.
#[derive(Clone, Copy)]
pub(crate) struct Previous {
    pub(crate) time: u64,
    pub(crate) end: u64,
    pub(crate) length: u64,
    pub(crate) volume: u32,
    pub(crate) thread: u16,
}

impl Previous {
    pub(crate) const START: Previous = Previous { time: 0, end: 0, length: 0, volume: 0, thread: 0 };

    pub(crate) fn of(request: &Request) -> Previous {
        Previous {
            time: request.time.0,
            end: request.offset.wrapping_add(request.length),
            length: request.length,
            volume: request.volume.0,
            thread: request.thread.0,
        }
    }
}

/// The decoder.
pub(crate) struct Blocks {
    file: String,
    begun: bool,
    ended: bool,
    requests: u64,
    has_threads: bool,
    names: Names,
}

/// What the file's numbers stand for in the trace.
#[derive(Default)]
struct Names {
    volumes: Vec<VolumeIndex>,
    /// By the file's number; unknown until it occurs.
    threads: Vec<ThreadNumber>,
}

impl Names {
    /// The thread that the file calls `number`.
    #[inline]
    fn thread(&mut self, number: u16, state: &mut State) -> ThreadNumber {
        if number == ThreadNumber::UNKNOWN.0 {
            return ThreadNumber::UNKNOWN;
        }
        let number = usize::from(number);
        if number >= self.threads.len() {
            self.threads.resize(number + 1, ThreadNumber::UNKNOWN);
        }
        if self.threads[number] == ThreadNumber::UNKNOWN {
            self.threads[number] = state.threads.new_thread();
        }
        self.threads[number]
    }
}

impl Blocks {
    pub(crate) fn new(file: String) -> Blocks {
        Blocks { file, begun: false, ended: false, requests: 0, has_threads: false, names: Names::default() }
    }

    fn error(
        &self,
        offset: u64,
        state: &mut State,
        found: String,
        expected: impl Into<String>,
    ) -> TraceError {
        let bad = Bad::fatal(found, expected.into());
        match state.malformed(&self.file, Position::Byte(offset), bad) {
            Err(error) => error,
            Ok(()) => unreachable!("a fatal error is never skipped"),
        }
    }

    fn header(&mut self, input: &mut Input, state: &mut State) -> Result<(), TraceError> {
        let head = input.require(HEADER_BYTES)?;
        if head.len() < HEADER_BYTES {
            let found = format!("only {} bytes", head.len());
            return Err(self.error(0, state, found, format!("a file header of {HEADER_BYTES} bytes")));
        }
        let magic = crate::error::excerpt(&head[..8]);
        let version = u32::from_le_bytes(head[8..12].try_into().expect("four bytes"));
        let reserved = u32::from_le_bytes(head[12..16].try_into().expect("four bytes"));
        if head[..8] != MAGIC {
            return Err(self.error(
                0,
                state,
                format!("{magic} as magic number"),
                "`FBTRACE\\n`, which starts a forebay trace",
            ));
        }
        if !(VERSION_OLDEST..=VERSION).contains(&version) || reserved != 0 {
            let found = format!("version {version} with reserved bytes {reserved:#x}");
            return Err(self.error(
                8,
                state,
                found,
                format!(
                    "version {VERSION_OLDEST} to {VERSION} with reserved bytes 0; a newer forebay may read it"
                ),
            ));
        }
        self.has_threads = version > VERSION_OLDEST;
        input.consume(HEADER_BYTES);
        Ok(())
    }

    /// Takes one block.
    fn block(
        &mut self,
        input: &mut Input,
        state: &mut State,
        out: &mut Vec<Request>,
    ) -> Result<(), TraceError> {
        let offset = input.offset();
        let head = input.require(BLOCK_HEADER_BYTES)?;
        if head.len() < BLOCK_HEADER_BYTES {
            let found = format!("the end of the file after {} bytes of a block header", head.len());
            return Err(self.error(
                offset,
                state,
                found,
                "a block, or the end block before the end of the file",
            ));
        }
        let kind = head[0];
        let count = u32::from_le_bytes(head[1..5].try_into().expect("four bytes")) as usize;
        let length = u32::from_le_bytes(head[5..9].try_into().expect("four bytes")) as usize;
        let stored = u64::from_le_bytes(head[9..17].try_into().expect("eight bytes"));
        if length > PAYLOAD_BYTES_MAX {
            let found = format!("a payload of {length} bytes");
            return Err(self.error(offset, state, found, format!("at most {PAYLOAD_BYTES_MAX} bytes")));
        }
        let whole = input.require(BLOCK_HEADER_BYTES + length)?;
        if whole.len() < BLOCK_HEADER_BYTES + length {
            let found = format!("the end of the file after {} bytes of a block", whole.len());
            return Err(self.error(offset, state, found, format!("{} bytes", BLOCK_HEADER_BYTES + length)));
        }
        let payload = &whole[BLOCK_HEADER_BYTES..BLOCK_HEADER_BYTES + length];
        let computed = checksum(&whole[..9], payload);
        if computed != stored {
            let found = format!("a block whose checksum is {computed:#018x}");
            return Err(self.error(
                offset,
                state,
                found,
                format!("{stored:#018x}, as stored: the file is damaged"),
            ));
        }
        let parsed = match kind {
            KIND_VOLUMES => parse_volumes(payload, count, state, &mut self.names.volumes),
            KIND_REQUESTS if count <= BATCH_REQUESTS => {
                self.requests += count as u64;
                parse_requests(payload, count, self.has_threads, &mut self.names, state, out)
            }
            KIND_REQUESTS => {
                Err(Bad::fatal(format!("{count} requests in a block"), format!("at most {BATCH_REQUESTS}")))
            }
            KIND_END => {
                self.ended = true;
                parse_end(payload, self.requests)
            }
            _ => Err(Bad::fatal(
                format!("a block of kind {kind}"),
                "kind 1, 2 or 3; a newer forebay may read it",
            )),
        };
        parsed.or_else(|bad| state.malformed(&self.file, Position::Byte(offset), bad))?;
        input.consume(BLOCK_HEADER_BYTES + length);
        Ok(())
    }
}

impl Decoder for Blocks {
    fn decode(
        &mut self,
        input: &mut Input,
        state: &mut State,
        out: &mut Vec<Request>,
    ) -> Result<(), TraceError> {
        if !self.begun {
            self.begun = true;
            self.header(input, state)?;
        }
        while out.is_empty() && !self.ended {
            self.block(input, state, out)?;
        }
        if self.ended && out.is_empty() && !input.require(1)?.is_empty() {
            let offset = input.offset();
            return Err(self.error(
                offset,
                state,
                "bytes behind the end block".into(),
                "the end of the file",
            ));
        }
        Ok(())
    }
}

/// The rest of a payload.
struct Payload<'a>(&'a [u8]);

impl Payload<'_> {
    #[inline]
    fn byte(&mut self) -> Result<u8, Bad> {
        let (first, rest) =
            self.0.split_first().ok_or_else(|| Bad::fatal("the end of a block".into(), "more fields"))?;
        self.0 = rest;
        Ok(*first)
    }

    /// A number in LEB128: seven bits a byte, the lowest first, the top bit set in all but the last.
    #[inline]
    fn number(&mut self) -> Result<u64, Bad> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Bad::fatal("a variable-length number above 64 bits".into(), "at most ten bytes"))
    }

    fn end(&self) -> Result<(), Bad> {
        match self.0.len() {
            0 => Ok(()),
            left => Err(Bad::fatal(format!("{left} bytes behind the last record of a block"), "none")),
        }
    }
}

fn parse_volumes(
    payload: &[u8],
    count: usize,
    state: &mut State,
    volumes: &mut Vec<VolumeIndex>,
) -> Result<(), Bad> {
    let mut payload = Payload(payload);
    for _ in 0..count {
        let length = payload.number()?;
        let name = usize::try_from(length).ok().and_then(|length| payload.0.split_at_checked(length));
        let (name, rest) =
            name.ok_or_else(|| Bad::fatal(format!("a name of {length} bytes"), "a name inside its block"))?;
        payload.0 = rest;
        let name = std::str::from_utf8(name)
            .map_err(|_| Bad::fatal(crate::error::excerpt(name), "a name in UTF-8"))?;
        volumes.push(state.volumes.index_of(name)?);
    }
    payload.end()
}

fn parse_requests(
    payload: &[u8],
    count: usize,
    has_threads: bool,
    names: &mut Names,
    state: &mut State,
    out: &mut Vec<Request>,
) -> Result<(), Bad> {
    let mut payload = Payload(payload);
    let mut previous = Previous::START;
    for _ in 0..count {
        let flags = payload.byte()?;
        let operation = match flags & 7 {
            0 => Operation::Read,
            1 => Operation::Write,
            2 => Operation::Flush,
            3 => Operation::Discard,
            4 => Operation::Other,
            other => return Err(Bad::fatal(format!("operation {other}"), "an operation from 0 to 4")),
        };
        if flags & OTHER_THREAD != 0 && !has_threads {
            return Err(Bad::fatal(format!("flags {flags:#x}"), "the top bit clear"));
        }
        let number = if flags & SAME_VOLUME != 0 {
            previous.volume
        } else {
            u32::try_from(payload.number()?)
                .map_err(|_| Bad::fatal("a volume above 32 bits".into(), "a volume's number"))?
        };
        let volume = *names.volumes.get(number as usize).ok_or_else(|| {
            Bad::fatal(
                format!("volume {number}"),
                format!("one of the {} volumes named so far", names.volumes.len()),
            )
        })?;
        let time = previous.time.wrapping_add(unzigzag(payload.number()?));
        let offset = match flags & SEQUENTIAL != 0 {
            true => previous.end,
            false => previous.end.wrapping_add(unzigzag(payload.number()?)),
        };
        let length = if flags & SAME_LENGTH != 0 { previous.length } else { payload.number()? };
        let latency = if flags & HAS_LATENCY != 0 { Nanos(payload.number()?) } else { Nanos::MAX };
        let thread_number = if flags & OTHER_THREAD != 0 {
            u16::try_from(payload.number()?)
                .map_err(|_| Bad::fatal("a thread above 16 bits".into(), "a thread's number"))?
        } else {
            previous.thread
        };
        let thread = names.thread(thread_number, state);
        let request = request(Nanos(time), volume, operation, offset, length).map_err(Bad::into_fatal)?;
        let request = Request { latency, thread, ..request };
        previous = Previous { volume: number, thread: thread_number, ..Previous::of(&request) };
        out.push(request);
    }
    payload.end()
}

fn parse_end(payload: &[u8], requests: u64) -> Result<(), Bad> {
    let stated = <[u8; 8]>::try_from(payload)
        .map(u64::from_le_bytes)
        .map_err(|_| Bad::fatal(format!("an end block of {} bytes", payload.len()), "8 bytes"))?;
    if stated != requests {
        return Err(Bad::fatal(format!("{requests} requests"), format!("{stated}, as the end block states")));
    }
    Ok(())
}
