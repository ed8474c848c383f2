//! blkreplay's `.load`: a header of prose, a line that names the columns, and the records.
//!
//! `start ; sector; length ; op ;  replay_delay=0 ; replay_duration=0`
//!
//! Start in decimal seconds, sector and length in 512-byte sectors, op `R`, `W` or `RA` (read-ahead, which
//! [`crate::ReadOptions::read_ahead`] rules; apart unless set); the last two are of the replay and not used. The prose
//! may stand again in the middle of a file: whatever starts with no digit and holds no `;` is prose and ignored, if
//! it is text at all. Source: the files themselves and blkreplay's manual (schoebel/blkreplay).

use crate::detect::is_blkreplay_columns;
use crate::error::Bad;
use crate::formats::{LineParser, SECOND, SECTOR};
use crate::state::{State, request, scaled};
use crate::text::{Fields, decimal_nanos, missing, whole};
use crate::{Operation, ReadAhead, ReadOptions, Request};
use forebay_units::Nanos;

pub(crate) struct Blkreplay {
    stem: String,
    read_ahead: ReadAhead,
}

impl Blkreplay {
    pub(crate) fn new(stem: String, options: &ReadOptions) -> Blkreplay {
        Blkreplay { stem, read_ahead: options.read_ahead.unwrap_or(ReadAhead::Other) }
    }
}

impl LineParser for Blkreplay {
    fn parse(&mut self, line: &[u8], state: &mut State) -> Result<Option<Request>, Bad> {
        let is_record =
            line.trim_ascii_start().first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'-');
        if !is_record {
            let is_prose = !line.contains(&b';') && !line.contains(&0) && std::str::from_utf8(line).is_ok();
            return match is_prose || is_blkreplay_columns(line) {
                true => Ok(None),
                false => Err(Bad::line(line, "`seconds ; sector ; sectors ; R|W|RA ; 0 ; 0` or prose")),
            };
        }
        let mut fields = Fields::new(line);
        let mut next = |name| fields.next(b';').ok_or_else(|| missing(name));
        let time = Nanos(decimal_nanos(next("start")?, SECOND, "start")?);
        let offset = scaled(whole(next("sector")?, "sector")?, SECTOR, "sector")?;
        let length = scaled(whole(next("length")?, "length")?, SECTOR, "length")?;
        let operation = match next("operation")?.trim_ascii() {
            b"R" | b"r" => Operation::Read,
            b"W" | b"w" => Operation::Write,
            b"RA" | b"ra" => match self.read_ahead {
                ReadAhead::Read => Operation::Read,
                ReadAhead::Other => Operation::Other,
                ReadAhead::Exclude => return Ok(None),
            },
            text => return Err(Bad::field("operation", text, "`R`, `W` or `RA`")),
        };
        let volume = state.volumes.index_of(&self.stem)?;
        request(time, volume, operation, offset, length).map(Some)
    }
}
