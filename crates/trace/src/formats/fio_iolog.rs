//! fio's log of I/O (`write_iolog`, `read_iolog`), versions 2 and 3.
//!
//! The first line is `fio version 2 iolog` or `fio version 3 iolog`. Then, in version 2:
//!
//! * `filename add|open|close`;
//! * `filename read|write|sync|datasync|trim [offset length]`, in bytes;
//! * `filename wait <microseconds> [0]`: time goes on by so much; below 100 it does not (as in fio).
//!
//! Version 3 puts a timestamp before each line and knows no `wait`. Its unit is microseconds unless
//! [`crate::ReadOptions::time_unit`] says otherwise. Syncs are flushes; their range, if any, means nothing. The volume
//! is the file name. Logs that are written behind each other start with a first line of their own; version 2 goes on
//! in time then, and version 3 steps back. Source: fio's HOWTO, "Trace file format v2" and "v3"; `iolog.c`.

use crate::error::Bad;
use crate::formats::{LineParser, MICROSECOND};
use crate::state::{NamedVolumes, State, request, scaled};
use crate::text::{Fields, decimal_nanos, missing};
use crate::{Operation, ReadOptions, Request};
use forebay_units::Nanos;

/// fio discards waits of fewer microseconds.
const WAIT_MICROS_MIN: u64 = 100;

pub(crate) struct FioIolog {
    version: u64,
    unit_nanos: u64,
    /// What waits of version 2 add up to.
    time: u64,
    volumes: NamedVolumes,
}

impl FioIolog {
    pub(crate) fn new(options: &ReadOptions) -> FioIolog {
        let unit_nanos = options.time_unit.map_or(MICROSECOND, |unit| unit.nanos());
        FioIolog { version: 0, unit_nanos, time: 0, volumes: NamedVolumes::new() }
    }
}

impl LineParser for FioIolog {
    fn parse(&mut self, line: &[u8], state: &mut State) -> Result<Option<Request>, Bad> {
        if line.starts_with(b"fio version ") {
            self.version = match line.trim_ascii_end() {
                b"fio version 2 iolog" => 2,
                b"fio version 3 iolog" => 3,
                _ => {
                    return Err(Bad::fatal(
                        crate::error::excerpt(line),
                        "`fio version 2 iolog` or `fio version 3 iolog`",
                    ));
                }
            };
            return Ok(None);
        }
        let mut fields = Fields::new(line);
        let time = match self.version {
            2 => self.time,
            3 => decimal_nanos(
                fields.next_word().ok_or_else(|| missing("timestamp"))?,
                self.unit_nanos,
                "timestamp",
            )?,
            _ => {
                return Err(Bad::fatal(
                    crate::error::excerpt(line),
                    "`fio version 2 iolog` or `fio version 3 iolog`",
                ));
            }
        };
        let file = fields.next_word().ok_or_else(|| missing("file name"))?;
        let action = fields.next_word().ok_or_else(|| missing("action"))?;
        let operation = match action {
            b"add" | b"open" | b"close" => return Ok(None),
            b"wait" if self.version == 2 => {
                let micros = fields.number_word("wait")?;
                if micros >= WAIT_MICROS_MIN {
                    let nanos = scaled(micros, MICROSECOND, "wait")?;
                    self.time = self.time.checked_add(nanos).ok_or_else(|| {
                        Bad::new(
                            format!("a wait of `{micros}` us at {} s", self.time / 1_000_000_000),
                            "times below 2^64 ns",
                        )
                    })?;
                }
                return Ok(None);
            }
            b"read" => Operation::Read,
            b"write" => Operation::Write,
            b"trim" => Operation::Discard,
            b"sync" | b"datasync" | b"sync_file_range" | b"syncfs" => Operation::Flush,
            _ => {
                let expected = "`read`, `write`, `trim`, `sync`, `datasync`, `add`, `open`, `close`, or `wait` in version 2";
                return Err(Bad::field("action", action, expected));
            }
        };
        let (offset, length) = match operation {
            Operation::Flush => (0, 0),
            _ => (fields.number_word("offset")?, fields.number_word("length")?),
        };
        let volume = self.volumes.index_of(file, &mut state.volumes, str::to_owned)?;
        request(Nanos(time), volume, operation, offset, length).map(Some)
    }
}
