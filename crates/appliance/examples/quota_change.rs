//! How long the slowest request takes while a quota changes: `quota_change SIZE`.
//!
//! A client reads 4 KiB at random offsets, one at a time, from a volume of SIZE that is cached as a whole: for a second, then while the
//! quota goes to 0 and all memory is given back, and then while it grows again. Prints one line of JSON, in microseconds.

use forebay_appliance::volume::PrewarmPlan;
use forebay_appliance::{Appliance, ApplianceConfig, ListenerConfig, VolumeConfig};
use forebay_cache::{Insertion, Progress};
use forebay_nbd::client::{Config, Event, Operation, Session};
use forebay_origin::{MemoryImage, MemoryOrigin};
use forebay_units::{ByteRange, Bytes, mix64};
use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

struct Client {
    stream: UnixStream,
    session: Session,
    input: Vec<u8>,
    count: u64,
}

impl Client {
    fn step(&mut self) -> Result<bool, Box<dyn Error>> {
        let mut output = Vec::new();
        let parsed = self.session.receive(&self.input, &mut output)?;
        let needs_more = parsed.event == Event::NeedMore;
        let is_done = matches!(parsed.event, Event::Done { .. });
        let consumed = parsed.consumed;
        self.input.drain(..consumed);
        self.stream.write_all(&output)?;
        if needs_more {
            let mut buffer = [0; 8192];
            let count = self.stream.read(&mut buffer)?;
            if count == 0 {
                return Err("server left".into());
            }
            self.input.extend_from_slice(&buffer[..count]);
        }
        Ok(is_done)
    }

    fn read(&mut self, size: u64) -> Result<Duration, Box<dyn Error>> {
        self.count += 1;
        let offset = mix64(self.count) % (size / 4096) * 4096;
        let mut output = Vec::new();
        self.session.submit(
            self.count,
            Operation::Read { offset, length: 4096, dont_fragment: false },
            &mut output,
        )?;
        let started = Instant::now();
        self.stream.write_all(&output)?;
        while !self.step()? {}
        Ok(started.elapsed())
    }

    /// The slowest request until `is_over`, and how many there were.
    fn slowest(&mut self, size: u64, is_over: impl Fn() -> bool) -> Result<(u128, u64), Box<dyn Error>> {
        let (mut slowest, before) = (Duration::ZERO, self.count);
        while !is_over() {
            slowest = slowest.max(self.read(size)?);
        }
        Ok((slowest.as_micros(), self.count - before))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let size: Bytes = std::env::args().nth(1).ok_or("usage: quota_change SIZE")?.parse()?;
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("socket");
    let origin = Arc::new(MemoryOrigin::new(Arc::new(MemoryImage::new(size))));
    let appliance = Appliance::start(ApplianceConfig {
        listeners: vec![ListenerConfig::Unix { path: socket.clone() }],
        volumes: vec![VolumeConfig { quota: size, ..VolumeConfig::new("v", origin) }],
        ..ApplianceConfig::default()
    })?;
    let plan = PrewarmPlan {
        ranges: vec![ByteRange::new(0, size.0)],
        bytes_per_second: None,
        insertion: Insertion::Prewarm,
    };
    appliance.prewarm("v", plan)?;
    while appliance.observe("v", false)?.observation.resident_bytes < size {
        std::thread::sleep(Duration::from_millis(50));
    }
    let session = Session::new(Config::new("v"));
    let mut client = Client { stream: UnixStream::connect(&socket)?, session, input: Vec::new(), count: 0 };
    while !client.session.is_ready() {
        client.step()?;
    }
    let begun = Instant::now();
    let (before, reads_before) = client.slowest(size.0, || begun.elapsed() > Duration::from_secs(1))?;
    let is_over = AtomicBool::new(false);
    let (changed, shrinking) = std::thread::scope(|scope| {
        let changer = scope.spawn(|| {
            let begun = Instant::now();
            let result = appliance.set_quota("v", Bytes::ZERO).map_err(|error| error.to_string());
            let is_settled = || match appliance.observe("v", false) {
                Ok(snapshot) => snapshot.observation.quota_progress == Progress::Settled,
                Err(_) => true,
            };
            while !is_settled() {
                std::thread::sleep(Duration::from_millis(20));
            }
            is_over.store(true, Ordering::Release);
            result.map(|()| begun.elapsed())
        });
        let slowest = client.slowest(size.0, || is_over.load(Ordering::Acquire));
        (changer.join().expect("no panic"), slowest)
    });
    let (shrinking, reads_shrinking) = shrinking?;
    appliance.set_quota("v", size)?;
    let begun = Instant::now();
    let (growing, _) = client.slowest(size.0, || begun.elapsed() > Duration::from_secs(1))?;
    println!(
        "{{\"size\": {}, \"slowest_before_us\": {before}, \"slowest_shrinking_us\": {shrinking}, \"slowest_growing_us\": {growing}, \
         \"shrinking_ms\": {}, \"reads_before\": {reads_before}, \"reads_shrinking\": {reads_shrinking}}}",
        size.0,
        changed?.as_millis(),
    );
    Ok(())
}
