//! How fast traces are parsed on one core: bytes and requests per second through `TraceReader::next_batch`.
//!
//! The input is made in memory from a fixed generator, so that runs agree on the hash of what was read; it is read as
//! from the page cache (one copy). Each format is read `SAMPLES` times; the median and the spread are printed. With
//! `--smoke`, and when run by `cargo test`, the input is small and nothing is measured to be believed.
//!
//! Targets: MSR CSV 300 MB/s, vscsi 1,000 MB/s, oracleGeneral 100 M requests/s.

use forebay_trace::{
    ForebayWriter, Format, Operation, ReadOptions, Request, Source, ThreadNumber, TraceReader, VolumeIndex,
};
use forebay_units::{Nanos, mix64};
use std::fmt::Write as _;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Instant;

const SAMPLES: usize = 7;

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let smoke = !is_bench || std::env::args().any(|argument| argument == "--smoke");
    let requests = if smoke { 20_000 } else { 3_000_000 };
    println!(
        "parse: {requests} requests per format, one thread, {SAMPLES} samples{}",
        if smoke { ", smoke" } else { "" }
    );
    println!("{:<16}{:>10}{:>12}{:>14}{:>20}  hash", "format", "MB", "MB/s", "Mrequests/s", "MB/s min..max");
    for (format, bytes) in inputs(requests) {
        measure(format, &Arc::new(bytes), requests);
    }
}

/// A trace of one volume: half sequential runs, half jumps over 1 TiB, three reads to a write.
fn trace(requests: u64) -> Vec<Request> {
    let mut offset = 0;
    (0..requests)
        .map(|n| {
            let random = mix64(n);
            if random & 1 == 0 {
                offset = (random >> 24) % (1 << 31) * 512;
            }
            let length = 512 * (1 + (random >> 8) % 64);
            let request = Request {
                time: Nanos(n * 12_300),
                offset,
                length,
                latency: Nanos(100 * ((random >> 40) % 100_000)),
                volume: VolumeIndex(0),
                thread: ThreadNumber::UNKNOWN,
                operation: if random & 6 == 0 { Operation::Write } else { Operation::Read },
            };
            offset += length;
            request
        })
        .collect()
}

/// The trace in each format that is measured.
fn inputs(requests: u64) -> Vec<(Format, Vec<u8>)> {
    let trace = trace(requests);
    let mut msr = String::new();
    let mut blkparse = String::new();
    let (mut vscsi, mut oracle) = (Vec::new(), Vec::new());
    for (n, request) in trace.iter().enumerate() {
        let is_read = request.operation == Operation::Read;
        let (name, letter, code) = if is_read { ("Read", 'R', 0x28u16) } else { ("Write", 'W', 0x2a) };
        let (time, sector, sectors) = (request.time.0, request.offset / 512, request.length / 512);
        let ticks = 128_166_372_000_000_000 + time / 100;
        writeln!(
            msr,
            "{ticks},web,0,{name},{},{},{}",
            request.offset,
            request.length,
            request.latency.0 / 100
        )
        .expect("a string takes everything");
        let (seconds, nanos) = (time / 1_000_000_000, time % 1_000_000_000);
        writeln!(
            blkparse,
            "  8,16   5 {n:8} {seconds:5}.{nanos:09} 18615  Q   {letter} {sector} + {sectors} [java]"
        )
        .expect("a string takes everything");
        for number in [n as u32, request.length as u32, 1] {
            vscsi.extend_from_slice(&number.to_le_bytes());
        }
        vscsi.extend_from_slice(&code.to_le_bytes());
        vscsi.extend_from_slice(&0x100u16.to_le_bytes());
        vscsi.extend_from_slice(&sector.to_le_bytes());
        vscsi.extend_from_slice(&(time / 1_000).to_le_bytes());
        oracle.extend_from_slice(&((time / 1_000_000_000) as u32).to_le_bytes());
        oracle.extend_from_slice(&sector.to_le_bytes());
        oracle.extend_from_slice(&(request.length as u32).to_le_bytes());
        oracle.extend_from_slice(&(-1i64).to_le_bytes());
    }
    let mut ours = ForebayWriter::new(Vec::new()).expect("a vector takes everything");
    ours.write(&trace, &["web_0".to_owned()]).expect("a vector takes everything");
    let ours = ours.finish().expect("a vector takes everything");
    vec![
        (Format::Msr, msr.into_bytes()),
        (Format::Blkparse, blkparse.into_bytes()),
        (Format::Vscsi, vscsi),
        (Format::OracleGeneral, oracle),
        (Format::Forebay, ours),
    ]
}

/// A shared vector as a reader.
struct Shared {
    bytes: Arc<Vec<u8>>,
    at: usize,
}

impl Read for Shared {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (&self.bytes[self.at..]).read(buffer)?;
        self.at += count;
        Ok(count)
    }
}

fn measure(format: Format, bytes: &Arc<Vec<u8>>, requests: u64) {
    let mut batch = Vec::new();
    let open = || {
        let source = Source::new("web_0", Shared { bytes: Arc::clone(bytes), at: 0 });
        let reader =
            TraceReader::open(vec![source], &ReadOptions::default()).expect("the input is well formed");
        assert_eq!(reader.format(), format, "detection");
        reader
    };
    // The hash is of every request and not part of what is timed.
    let mut reader = open();
    let mut hash = 0u64;
    while reader.next_batch(&mut batch).expect("the input is well formed") > 0 {
        for request in &batch {
            for number in [request.time.0, request.offset, request.length, request.operation as u64] {
                hash = mix64(hash ^ number);
            }
        }
    }
    let mut rates: Vec<f64> = (0..SAMPLES)
        .map(|_| {
            let mut reader = open();
            let (mut count, mut bytes_asked_for) = (0, 0u64);
            let begin = Instant::now();
            while reader.next_batch(&mut batch).expect("the input is well formed") > 0 {
                count += batch.len() as u64;
                // Something is done with each request, so that none can be left out.
                bytes_asked_for += batch.iter().map(|request| request.length).sum::<u64>();
            }
            let seconds = begin.elapsed().as_secs_f64();
            assert!(count == requests && bytes_asked_for > 0, "{count} of {requests} requests came out");
            bytes.len() as f64 / 1e6 / seconds
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[SAMPLES / 2];
    let megabytes = bytes.len() as f64 / 1e6;
    println!(
        "{:<16}{megabytes:>10.1}{median:>12.0}{:>14.1}{:>20}  {hash:016x}",
        format.name(),
        median * requests as f64 / bytes.len() as f64,
        format!("{:.0}..{:.0}", rates[0], rates[SAMPLES - 1]),
    );
}
