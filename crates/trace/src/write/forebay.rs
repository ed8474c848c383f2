//! The writer of our own format; `docs/internals/format-trace.md` is its layout.

use super::invalid;
use crate::Request;
use crate::formats::forebay::{
    HAS_LATENCY, KIND_END, KIND_REQUESTS, KIND_VOLUMES, MAGIC, OTHER_THREAD, PAYLOAD_BYTES_MAX, Previous,
    SAME_LENGTH, SAME_VOLUME, SEQUENTIAL, VERSION, checksum, zigzag,
};
use crate::reader::BATCH_REQUESTS;
use crate::state::{REQUEST_BYTES_MAX, is_believable};
use forebay_units::Nanos;
use std::io::{self, Write};

/// Writes a trace in our own format. [`ForebayWriter::finish`] must be called: without the end block that it writes,
/// a reader takes the file for truncated.
pub struct ForebayWriter<W: Write> {
    write: W,
    volumes: usize,
    payload: Vec<u8>,
    count: usize,
    previous: Previous,
    requests: u64,
}

impl<W: Write> ForebayWriter<W> {
    /// Starts a trace. Give it a buffered writer; wrap that in a zstd encoder for a `.fbt.zst`.
    ///
    /// # Errors
    /// What `write` returns.
    pub fn new(mut write: W) -> io::Result<ForebayWriter<W>> {
        write.write_all(&MAGIC)?;
        write.write_all(&VERSION.to_le_bytes())?;
        write.write_all(&[0; 4])?;
        Ok(ForebayWriter {
            write,
            volumes: 0,
            payload: Vec::new(),
            count: 0,
            previous: Previous::START,
            requests: 0,
        })
    }

    /// Appends `requests`, whose volumes are named by `volumes`: the list of a reader, which may have grown since.
    ///
    /// # Errors
    /// `InvalidInput` for a request that ends above 2^64 bytes, is longer than [`REQUEST_BYTES_MAX`] without being a discard, or whose volume is not
    /// in `volumes`, or for a volume name of more than 1 MiB; else what the writer returns.
    pub fn write(&mut self, requests: &[Request], volumes: &[String]) -> io::Result<()> {
        if volumes.len() > self.volumes {
            self.write_requests()?;
            for name in &volumes[self.volumes..] {
                if self.payload.len() + name.len() + 10 > PAYLOAD_BYTES_MAX {
                    self.write_block(KIND_VOLUMES)?;
                }
                if name.len() + 10 > PAYLOAD_BYTES_MAX {
                    return Err(invalid(format!("a volume name of {} bytes", name.len())));
                }
                push_number(&mut self.payload, name.len() as u64);
                self.payload.extend_from_slice(name.as_bytes());
                self.count += 1;
            }
            self.write_block(KIND_VOLUMES)?;
            self.volumes = volumes.len();
        }
        for request in requests {
            self.push(request)?;
            if self.count == BATCH_REQUESTS {
                self.write_requests()?;
            }
        }
        Ok(())
    }

    fn push(&mut self, request: &Request) -> io::Result<()> {
        if request.volume.0 as usize >= self.volumes {
            return Err(invalid(format!("volume {} of {} volumes", request.volume.0, self.volumes)));
        }
        if !is_believable(request.operation, request.offset, request.length) {
            return Err(invalid(format!(
                "{} bytes from byte {}, which end above 2^64 or are more than {REQUEST_BYTES_MAX} and not discarded",
                request.length, request.offset
            )));
        }
        let previous = self.previous;
        let mut flags = request.operation as u8;
        let mut flag = |holds: bool, bit: u8| {
            flags |= if holds { bit } else { 0 };
            holds
        };
        let has_latency = flag(request.latency != Nanos::MAX, HAS_LATENCY);
        let same_volume = flag(request.volume.0 == previous.volume, SAME_VOLUME);
        let same_length = flag(request.length == previous.length, SAME_LENGTH);
        let sequential = flag(request.offset == previous.end, SEQUENTIAL);
        let other_thread = flag(request.thread.0 != previous.thread, OTHER_THREAD);
        let payload = &mut self.payload;
        payload.push(flags);
        if !same_volume {
            push_number(payload, u64::from(request.volume.0));
        }
        push_number(payload, zigzag(request.time.0.wrapping_sub(previous.time)));
        if !sequential {
            push_number(payload, zigzag(request.offset.wrapping_sub(previous.end)));
        }
        if !same_length {
            push_number(payload, request.length);
        }
        if has_latency {
            push_number(payload, request.latency.0);
        }
        if other_thread {
            push_number(payload, u64::from(request.thread.0));
        }
        self.previous = Previous::of(request);
        self.count += 1;
        self.requests += 1;
        Ok(())
    }

    fn write_requests(&mut self) -> io::Result<()> {
        self.previous = Previous::START;
        self.write_block(KIND_REQUESTS)
    }

    /// Writes the payload as a block, unless it is empty.
    fn write_block(&mut self, kind: u8) -> io::Result<()> {
        if self.count == 0 && kind != KIND_END {
            return Ok(());
        }
        let mut header = [0; 9];
        header[0] = kind;
        header[1..5].copy_from_slice(&(self.count as u32).to_le_bytes());
        header[5..9].copy_from_slice(&(self.payload.len() as u32).to_le_bytes());
        self.write.write_all(&header)?;
        self.write.write_all(&checksum(&header, &self.payload).to_le_bytes())?;
        self.write.write_all(&self.payload)?;
        self.payload.clear();
        self.count = 0;
        Ok(())
    }

    /// Writes what is left and the end block, flushes, and returns the writer.
    ///
    /// # Errors
    /// What the writer returns.
    pub fn finish(mut self) -> io::Result<W> {
        self.write_requests()?;
        self.payload.extend_from_slice(&self.requests.to_le_bytes());
        self.write_block(KIND_END)?;
        self.write.flush()?;
        Ok(self.write)
    }
}

impl<W: Write> super::Encode<W> for ForebayWriter<W> {
    fn write(
        &mut self,
        requests: &[Request],
        volumes: &[String],
        written: &mut super::Written,
    ) -> io::Result<()> {
        ForebayWriter::write(self, requests, volumes)?;
        written.requests += requests.len() as u64;
        Ok(())
    }

    fn finish(self: Box<Self>) -> io::Result<W> {
        ForebayWriter::finish(*self)
    }
}

/// LEB128: seven bits a byte, the lowest first.
fn push_number(payload: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        payload.push(number as u8 | 0x80);
        number >>= 7;
    }
    payload.push(number as u8);
}
