//! The kernel's blktrace records: one file per CPU, which are merged by time.
//!
//! | offset | type | field |
//! | --- | --- | --- |
//! | 0 | u32 | 0x65617400 + version 7; byte-swapped where the file has the other byte order |
//! | 4 | u32 | sequence |
//! | 8 | u64 | time in nanoseconds |
//! | 16 | u64 | sector of 512 bytes |
//! | 24 | u32 | bytes |
//! | 28 | u32 | action: the event in the lower 8 bits (bit 8 marks a cgroup id), the category in the upper 16 |
//! | 32 | u32 | process id |
//! | 36 | u32 | device: major << 20, minor |
//! | 40 | u32 | cpu |
//! | 44 | u16 | error |
//! | 46 | u16 | length of the data that follows |
//!
//! The request is the event that [`crate::BlockEvent`] names; other events and notes are ignored. The volume is the
//! device, named `<major>,<minor>`; the thread is the process id, which the kernel sets to the thread's. An empty request that is marked as a flush is one. Source:
//! `include/uapi/linux/blktrace_api.h`.

use crate::detect::BLKTRACE_MAGIC;
use crate::error::{Bad, Position, TraceError};
use crate::formats::Decoder;
use crate::input::Input;
use crate::reader::BATCH_REQUESTS;
use crate::state::{NumberedVolumes, State, request, scaled};
use crate::{BlockEvent, Operation, ReadAhead, ReadOptions, Request};

/// Bytes before the data that follows a record.
const RECORD_BYTES: usize = 48;
/// The version that has existed since 2006.
const VERSION: u32 = 7;
/// Events.
const QUEUE: u32 = 1;
const ISSUE: u32 = 7;
/// Bits of the category.
const READ: u32 = 1;
const WRITE: u32 = 1 << 1;
const FLUSH: u32 = 1 << 2;
const PACKET_COMMAND: u32 = 1 << 9;
const NOTIFY: u32 = 1 << 10;
const AHEAD: u32 = 1 << 11;
const DISCARD: u32 = 1 << 13;

pub(crate) struct Blktrace {
    event: u32,
    read_ahead: ReadAhead,
    volumes: NumberedVolumes,
}

/// The fields that we use.
struct Record {
    time: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    process: u32,
    device: u32,
}

impl Blktrace {
    pub(crate) fn new(options: &ReadOptions) -> Blktrace {
        let event = match options.event {
            BlockEvent::Queue => QUEUE,
            BlockEvent::Issue => ISSUE,
        };
        let read_ahead = options.read_ahead.unwrap_or(ReadAhead::Read);
        Blktrace { event, read_ahead, volumes: NumberedVolumes::new() }
    }

    fn request(&mut self, record: &Record, state: &mut State) -> Result<Option<Request>, Bad> {
        let category = record.action >> 16;
        if category & NOTIFY != 0 || record.action & 0xff != self.event {
            return Ok(None);
        }
        let has = |bit| category & bit != 0;
        let operation = if has(PACKET_COMMAND) {
            Operation::Other
        } else if has(FLUSH) && record.bytes == 0 {
            Operation::Flush
        } else if has(DISCARD) {
            Operation::Discard
        } else if has(WRITE) {
            Operation::Write
        } else if has(READ) && has(AHEAD) {
            match self.read_ahead {
                ReadAhead::Read => Operation::Read,
                ReadAhead::Other => Operation::Other,
                ReadAhead::Exclude => return Ok(None),
            }
        } else if has(READ) {
            Operation::Read
        } else {
            Operation::Other
        };
        // An empty flush has no place: the kernel writes 0 or 2^64 - 1.
        let offset = match operation {
            Operation::Flush => 0,
            _ => scaled(record.sector, 512, "sector")?,
        };
        let name = |device| format!("{},{}", device >> 20, device & 0xf_ffff);
        let volume = self.volumes.index_of(u64::from(record.device), &mut state.volumes, name)?;
        let time = state.since_start(record.time);
        let request = request(time, volume, operation, offset, u64::from(record.bytes))?;
        Ok(Some(Request { thread: state.threads.number_of(record.process.into()), ..request }))
    }
}

impl Decoder for Blktrace {
    fn decode(
        &mut self,
        input: &mut Input,
        state: &mut State,
        out: &mut Vec<Request>,
    ) -> Result<(), TraceError> {
        while out.len() < BATCH_REQUESTS {
            let position = Position::Byte(input.offset());
            let buffered = input.require(RECORD_BYTES)?;
            if buffered.is_empty() {
                break;
            }
            if buffered.len() < RECORD_BYTES {
                let left = buffered.len();
                input.consume(left);
                let bad = Bad::new(format!("only {left} bytes at the end"), "a blktrace record of 48 bytes");
                state.malformed(&input.name, position, bad)?;
                break;
            }
            let (head, _) = buffered.split_first_chunk::<RECORD_BYTES>().expect("the length was checked");
            let magic = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
            let swapped = magic.swap_bytes() & 0xffff_ff00 == BLKTRACE_MAGIC;
            if [magic, magic.swap_bytes()][usize::from(swapped)] != BLKTRACE_MAGIC | VERSION {
                // Without the length of this record, the next one cannot be found.
                let bad =
                    Bad::fatal(format!("{magic:#010x} as magic number"), "0x65617407 in either byte order");
                return state.malformed(&input.name, position, bad);
            }
            let four = |at: usize| {
                let bytes = head[at..at + 4].try_into().expect("four bytes");
                if swapped { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
            };
            let eight = |at: usize| {
                let bytes = head[at..at + 8].try_into().expect("eight bytes");
                if swapped { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) }
            };
            let data = [head[46], head[47]];
            let data = usize::from(if swapped { u16::from_be_bytes(data) } else { u16::from_le_bytes(data) });
            let record = Record {
                time: eight(8),
                sector: eight(16),
                bytes: four(24),
                action: four(28),
                process: four(32),
                device: four(36),
            };
            let available = input.require(RECORD_BYTES + data)?.len();
            if available < RECORD_BYTES + data {
                input.consume(available);
                let found = format!("only {} bytes behind the record at the end", available - RECORD_BYTES);
                state.malformed(
                    &input.name,
                    position,
                    Bad::new(found, format!("the {data} that it announces")),
                )?;
                break;
            }
            input.consume(RECORD_BYTES + data);
            match self.request(&record, state) {
                Ok(Some(request)) => out.push(request),
                Ok(None) => state.ignored += 1,
                Err(bad) => state.malformed(&input.name, position, bad)?,
            }
        }
        Ok(())
    }
}
