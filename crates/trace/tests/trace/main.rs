//! The room as its users see it: every format by hand, real traces with their published counts, writers read back,
//! and input that is wrong in every way that we could think of.

mod bad;
mod detection;
mod formats;
mod real;
mod writers;

use forebay_trace::{
    Format, Operation, ReadOptions, Request, Source, ThreadNumber, TraceError, TraceReader, VolumeIndex,
};
use forebay_units::Nanos;
use std::io::Cursor;

/// A reader of `bytes`, which are named `name`.
fn open(name: &str, bytes: &[u8], options: &ReadOptions) -> Result<TraceReader, TraceError> {
    TraceReader::open(vec![Source::new(name, Cursor::new(bytes.to_vec()))], options)
}

/// All that `reader` yields.
fn read_all(reader: &mut TraceReader) -> Result<Vec<Request>, TraceError> {
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while reader.next_batch(&mut batch)? > 0 {
        all.extend_from_slice(&batch);
    }
    Ok(all)
}

/// All requests of `bytes` in `format`, with the volumes' names.
fn read(format: Format, bytes: &[u8]) -> Result<(Vec<Request>, Vec<String>), TraceError> {
    read_with(bytes, &ReadOptions { format: Some(format), ..ReadOptions::default() })
}

fn read_with(bytes: &[u8], options: &ReadOptions) -> Result<(Vec<Request>, Vec<String>), TraceError> {
    let mut reader = open("dir/some.trace.gz", bytes, options)?;
    let requests = read_all(&mut reader)?;
    Ok((requests, reader.volumes().to_vec()))
}

/// A request without latency.
fn request(time: u64, volume: u32, operation: Operation, offset: u64, length: u64) -> Request {
    Request {
        time: Nanos(time),
        offset,
        length,
        latency: Nanos::MAX,
        thread: ThreadNumber::UNKNOWN,
        volume: VolumeIndex(volume),
        operation,
    }
}

/// The same request, of a thread.
fn of_thread(thread: u16, request: Request) -> Request {
    Request { thread: ThreadNumber(thread), ..request }
}
