//! Reads an NBD export in a closed loop: one connection, always `DEPTH` random reads of `LENGTH` bytes in flight. `closed_loop URI
//! DEPTH LENGTH SECONDS [SIZE [IMAGE]]` prints one line of JSON. SIZE bounds what is read, as a size; with an IMAGE, what is read is
//! compared with that file, for one request in 64.
//!
//! It is the client that `scripts/bench-datapath` uses beside fio's, whose engine sends each request by a call of its own and needs
//! a whole processor for what a server that answers in batches can do. This one receives all that has come, sends all that
//! became free by one call, and waits in `read`. It is the same for every server, and says how much of a processor it used.

use forebay_nbd::client::{Config, Event, Operation, Session};
use forebay_nbd::{Transport, Uri};
use forebay_units::{Bytes, Nanos, mix64};
use forebay_workload::LatencyHistogram;
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Bytes received at once.
const RECEIVE_BYTES: usize = 1 << 20;

/// Of so many requests one is compared with the image.
const COMPARED: u64 = 64;

struct Client {
    stream: UnixStream,
    session: Session,
    /// Received and not parsed: the first `input_len` bytes.
    input: Vec<u8>,
    input_len: usize,
    output: Vec<u8>,
    /// Of the request with this cookie: when it was sent, and its number.
    sent: Vec<(Instant, u64)>,
    free: Vec<u64>,
    number: u64,
    length: u32,
    size_bytes: u64,
    image: Option<File>,
    compared_bytes: u64,
    scratch: Vec<u8>,
}

impl Client {
    fn connect(uri: &Uri, depth: u64, length: u32) -> Result<Client, Box<dyn Error>> {
        let Transport::Unix { path } = &uri.transport else {
            return Err("only unix sockets are measured".into());
        };
        let mut client = Client {
            stream: UnixStream::connect(path)?,
            session: Session::new(Config { block_status: false, ..Config::new(uri.export.clone()) }),
            input: vec![0; RECEIVE_BYTES],
            input_len: 0,
            output: Vec::new(),
            sent: vec![(Instant::now(), 0); depth as usize],
            free: (0..depth).collect(),
            number: 0,
            length,
            size_bytes: 0,
            image: None,
            compared_bytes: 0,
            scratch: vec![0; length as usize],
        };
        while client.size_bytes == 0 {
            let read = client.stream.read(&mut client.input[client.input_len..])?;
            client.input_len += read;
            let mut done = 0;
            loop {
                let parsed =
                    client.session.receive(&client.input[done..client.input_len], &mut client.output)?;
                done += parsed.consumed;
                match parsed.event {
                    Event::NeedMore => break,
                    Event::Ready(export) => client.size_bytes = export.size_bytes,
                    Event::Closed => return Err("the server closed the connection".into()),
                    _ => {}
                }
            }
            client.input.copy_within(done..client.input_len, 0);
            client.input_len -= done;
            client.stream.write_all(&client.output)?;
            client.output.clear();
        }
        Ok(client)
    }

    /// Takes what is in flight, and leaves as one should: nbdkit 1.32 ends (an assertion) when a client leaves in the middle.
    fn leave(mut self) -> Result<(), Box<dyn Error>> {
        while self.session.outstanding_count() > 0 {
            self.receive(&mut LatencyHistogram::new())?;
        }
        self.session.disconnect(&mut self.output);
        Ok(self.stream.write_all(&self.output)?)
    }

    /// Fills the pipe, and sends.
    fn send(&mut self) -> Result<(), Box<dyn Error>> {
        let now = Instant::now();
        let places = self.size_bytes / u64::from(self.length);
        while let Some(cookie) = self.free.pop() {
            let offset = mix64(self.number) % places * u64::from(self.length);
            let read = Operation::Read { offset, length: self.length, dont_fragment: false };
            self.session.submit(cookie, read, &mut self.output)?;
            self.sent[cookie as usize] = (now, self.number);
            self.number += 1;
        }
        self.stream.write_all(&self.output)?;
        self.output.clear();
        Ok(())
    }

    /// Waits for replies, and takes all that have come.
    fn receive(&mut self, latencies: &mut LatencyHistogram) -> Result<(), Box<dyn Error>> {
        let read = self.stream.read(&mut self.input[self.input_len..])?;
        if read == 0 {
            return Err("the server closed the connection".into());
        }
        let now = Instant::now();
        self.input_len += read;
        let mut done = 0;
        loop {
            let parsed = self.session.receive(&self.input[done..self.input_len], &mut self.output)?;
            done += parsed.consumed;
            match parsed.event {
                Event::NeedMore => break,
                Event::Data { cookie, offset, bytes } => {
                    if let Some(image) = &self.image
                        && self.sent[cookie as usize].1.is_multiple_of(COMPARED)
                    {
                        let expected = &mut self.scratch[..bytes.len()];
                        image.read_exact_at(expected, offset)?;
                        if bytes != expected {
                            return Err(
                                format!("{} bytes at {offset} are not the image's", bytes.len()).into()
                            );
                        }
                        self.compared_bytes += bytes.len() as u64;
                    }
                }
                Event::Hole { range, .. } if self.image.is_some() => {
                    return Err(format!(
                        "a hole of {} bytes at {} is not in the image",
                        range.length, range.offset
                    )
                    .into());
                }
                Event::Done { cookie, result } => {
                    result?;
                    latencies.record(Nanos::from(now - self.sent[cookie as usize].0));
                    self.free.push(cookie);
                }
                _ => {}
            }
        }
        self.input.copy_within(done..self.input_len, 0);
        self.input_len -= done;
        Ok(())
    }
}

fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [uri, depth, length, seconds, rest @ ..] = arguments.as_slice() else {
        return Err("usage: closed_loop URI DEPTH LENGTH SECONDS [SIZE [IMAGE]]".into());
    };
    let (depth, length, seconds): (u64, Bytes, f64) = (depth.parse()?, length.parse()?, seconds.parse()?);
    let mut client = Client::connect(&uri.parse()?, depth, u32::try_from(length.0)?)?;
    if let Some(size) = rest.first() {
        client.size_bytes = client.size_bytes.min(size.parse::<Bytes>()?.0);
    }
    client.image = rest.get(1).map(File::open).transpose()?;
    let mut latencies = LatencyHistogram::new();
    let (started, processor) = (Instant::now(), processor_seconds());
    let time = Duration::from_secs_f64(seconds);
    let mut receives = 0u64;
    while started.elapsed() < time {
        client.send()?;
        client.receive(&mut latencies)?;
        receives += 1;
    }
    let (elapsed, processor) = (started.elapsed().as_secs_f64(), processor_seconds() - processor);
    let (was_compared, compared_bytes) = (client.image.is_some(), client.compared_bytes);
    if was_compared && compared_bytes == 0 {
        return Err("nothing was compared".into());
    }
    client.leave()?;
    let us = |latency: Option<Nanos>| latency.map_or(0.0, Nanos::as_micros_f64);
    println!(
        r#"{{"requests":{},"iops":{:.1},"mean_us":{:.2},"p99_us":{:.2},"client":{:.3},"replies_per_receive":{:.2},"compared_bytes":{compared_bytes}}}"#,
        latencies.count(),
        latencies.count() as f64 / elapsed,
        us(latencies.mean()),
        us(latencies.percentile(99.0)),
        processor / elapsed,
        latencies.count() as f64 / receives as f64,
    );
    Ok(())
}
