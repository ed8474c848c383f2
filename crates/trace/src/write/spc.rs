//! The writer of SPC; `formats/spc.rs` is its layout.

use super::{Encode, Written, from_sector};
use crate::{Operation, Request};
use std::io::{self, Write};

pub(super) struct SpcWriter<W> {
    write: W,
}

impl<W: Write> SpcWriter<W> {
    pub(super) fn new(write: W) -> SpcWriter<W> {
        SpcWriter { write }
    }
}

impl<W: Write> Encode<W> for SpcWriter<W> {
    fn write(&mut self, requests: &[Request], _: &[String], written: &mut Written) -> io::Result<()> {
        for request in requests {
            let operation = match request.operation {
                Operation::Read => 'R',
                Operation::Write => 'W',
                _ => {
                    written.left_out += 1;
                    continue;
                }
            };
            let (sector, length) = from_sector(request, written);
            let (seconds, nanos) = (request.time.0 / 1_000_000_000, request.time.0 % 1_000_000_000);
            let asu = request.volume.0;
            writeln!(self.write, "{asu},{sector},{length},{operation},{seconds}.{nanos:09}")?;
            written.requests += 1;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<W> {
        self.write.flush()?;
        Ok(self.write)
    }
}
