//! DiskSim's ASCII traces, which SSDSim and MQSim read too.
//!
//! `time device sector sectors type`: separated by spaces or tabs, 512-byte sectors, bit 0 of type set = read, the
//! device is the volume and its number the name. The unit of time is stated nowhere: DiskSim counts decimal
//! milliseconds, SSDSim and MQSim whole nanoseconds. Unless [`crate::ReadOptions::time_unit`] says so, a decimal point
//! in the first times means milliseconds, and none nanoseconds.
//!
//! Source: The DiskSim Simulation Environment 4.0 reference manual, section 3.2.1.1; MQSim's README.

use crate::error::Bad;
use crate::formats::{LineParser, SECTOR};
use crate::state::{NumberedVolumes, State, request, scaled};
use crate::text::{Fields, decimal_nanos, missing};
use crate::{Operation, ReadOptions, Request, TimeUnit};
use forebay_units::Nanos;

pub(crate) struct Disksim {
    unit: TimeUnit,
    volumes: NumberedVolumes,
}

impl Disksim {
    /// `head` is the start of the trace, from which the unit is told.
    pub(crate) fn new(head: &[u8], options: &ReadOptions) -> Disksim {
        let decimal = head
            .split(|byte| *byte == b'\n')
            .any(|line| Fields::new(line).next_word().is_some_and(|time| time.contains(&b'.')));
        let told = if decimal { TimeUnit::Milliseconds } else { TimeUnit::Nanoseconds };
        Disksim { unit: options.time_unit.unwrap_or(told), volumes: NumberedVolumes::new() }
    }
}

impl LineParser for Disksim {
    fn parse(&mut self, line: &[u8], state: &mut State) -> Result<Option<Request>, Bad> {
        let mut fields = Fields::new(line);
        let time = fields.next_word().ok_or_else(|| missing("time"))?;
        let time = Nanos(decimal_nanos(time, self.unit.nanos(), "time")?);
        let device = fields.number_word("device")?;
        let offset = scaled(fields.number_word("sector")?, SECTOR, "sector")?;
        let length = scaled(fields.number_word("sectors")?, SECTOR, "sectors")?;
        let operation = match fields.number_word("type")? & 1 {
            1 => Operation::Read,
            _ => Operation::Write,
        };
        if let Some(extra) = fields.next_word() {
            return Err(Bad::field("sixth field", extra, "five fields"));
        }
        let volume = self.volumes.index_of(device, &mut state.volumes, |device| device.to_string())?;
        request(time, volume, operation, offset, length).map(Some)
    }
}
