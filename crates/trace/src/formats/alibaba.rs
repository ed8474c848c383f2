//! Alibaba block traces of 2020: CSV without header.
//!
//! `device_id,opcode,offset,length,timestamp`: a number that is the volume and its name, `R` or `W`, bytes, bytes,
//! microseconds since 1970. Source: the README of alibaba/block-traces.

use crate::Request;
use crate::error::Bad;
use crate::formats::{LineParser, MICROSECOND, read_or_write};
use crate::state::{NumberedVolumes, State, request, scaled};
use crate::text::{Fields, missing};

pub(crate) struct Alibaba {
    volumes: NumberedVolumes,
}

impl Alibaba {
    pub(crate) fn new() -> Alibaba {
        Alibaba { volumes: NumberedVolumes::new() }
    }
}

impl LineParser for Alibaba {
    fn parse(&mut self, line: &[u8], state: &mut State) -> Result<Option<Request>, Bad> {
        if line.starts_with(b"device_id,") {
            return Ok(None);
        }
        let mut fields = Fields::new(line);
        let device = fields.number(b',', "device id")?;
        let operation = read_or_write(fields.next(b',').ok_or_else(|| missing("opcode"))?, "opcode")?;
        let offset = fields.number(b',', "offset")?;
        let length = fields.number(b',', "length")?;
        let time = scaled(fields.number(b',', "timestamp")?, MICROSECOND, "timestamp")?;
        if let Some(extra) = fields.next(b',') {
            return Err(Bad::field("sixth field", extra, "five fields"));
        }
        let volume = self.volumes.index_of(device, &mut state.volumes, |device| device.to_string())?;
        request(state.since_start(time), volume, operation, offset, length).map(Some)
    }
}
