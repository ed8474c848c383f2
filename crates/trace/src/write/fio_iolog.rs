//! The writer of fio's iolog, version 3; `formats/fio_iolog.rs` is its layout.

use super::{Encode, FittedNames, Written};
use crate::{Operation, Request};
use std::io::{self, Write};

pub(super) struct FioIologWriter<W> {
    write: W,
    names: FittedNames,
    /// The latest time, in microseconds, for the lines that close the files.
    last: u64,
}

impl<W: Write> FioIologWriter<W> {
    pub(super) fn new(mut write: W) -> io::Result<FioIologWriter<W>> {
        writeln!(write, "fio version 3 iolog")?;
        Ok(FioIologWriter { write, names: FittedNames::new(without_spaces), last: 0 })
    }
}

fn without_spaces(name: &str) -> String {
    let plain: String =
        name.chars().map(|c| if c.is_whitespace() || c.is_control() { '_' } else { c }).collect();
    if plain.is_empty() { "_".to_owned() } else { plain }
}

impl<W: Write> Encode<W> for FioIologWriter<W> {
    fn write(&mut self, requests: &[Request], volumes: &[String], written: &mut Written) -> io::Result<()> {
        let known = self.names.extend(volumes)?;
        for name in &self.names.names[known..] {
            writeln!(self.write, "{} {name} add\n{} {name} open", self.last, self.last)?;
        }
        for request in requests {
            let action = match request.operation {
                Operation::Read if request.length > 0 => "read",
                Operation::Write if request.length > 0 => "write",
                Operation::Discard if request.length > 0 => "trim",
                Operation::Flush => "sync",
                _ => {
                    written.left_out += 1;
                    continue;
                }
            };
            let micros = request.time.0 / 1_000;
            self.last = self.last.max(micros);
            let name = self.names.of(request)?;
            writeln!(self.write, "{micros} {name} {action} {} {}", request.offset, request.length)?;
            written.requests += 1;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<W> {
        for name in &self.names.names {
            writeln!(self.write, "{} {name} close", self.last)?;
        }
        self.write.flush()?;
        Ok(self.write)
    }
}
