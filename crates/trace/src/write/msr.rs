//! The writer of MSR Cambridge CSV; `formats/msr.rs` is its layout.

use super::{Encode, FittedNames, Written};
use crate::{Operation, Request};
use forebay_units::Nanos;
use std::io::{self, Write};

/// 1970-01-01 in filetime ticks: the day that time 0 becomes.
const EPOCH_TICKS: u64 = 116_444_736_000_000_000;

pub(super) struct MsrWriter<W> {
    write: W,
    names: FittedNames,
}

impl<W: Write> MsrWriter<W> {
    pub(super) fn new(write: W) -> MsrWriter<W> {
        MsrWriter { write, names: FittedNames::new(host_and_disk) }
    }
}

/// `host,disk`
fn host_and_disk(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c == ',' || c.is_control() { '_' } else { c }).collect();
    match plain.rsplit_once('_') {
        Some((host, disk))
            if !host.is_empty() && !disk.is_empty() && disk.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            format!("{host},{disk}")
        }
        _ => format!("{plain},0"),
    }
}

impl<W: Write> Encode<W> for MsrWriter<W> {
    fn write(&mut self, requests: &[Request], volumes: &[String], written: &mut Written) -> io::Result<()> {
        self.names.extend(volumes)?;
        for request in requests {
            let operation = match request.operation {
                Operation::Read => "Read",
                Operation::Write => "Write",
                _ => {
                    written.left_out += 1;
                    continue;
                }
            };
            let ticks = EPOCH_TICKS + request.time.0 / 100;
            let response = if request.latency == Nanos::MAX { 0 } else { request.latency.0 / 100 };
            let (name, offset, length) = (self.names.of(request)?, request.offset, request.length);
            writeln!(self.write, "{ticks},{name},{operation},{offset},{length},{response}")?;
            written.requests += 1;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<W> {
        self.write.flush()?;
        Ok(self.write)
    }
}
