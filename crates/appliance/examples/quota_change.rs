//! How long the slowest request takes while a quota changes: `quota_change SIZE [FLASH]`.
//!
//! A client reads 4 KiB at random offsets, one at a time, from a volume of SIZE that is cached as a whole: for a second, then while the
//! quota goes to 0 and all memory is given back, and then while it grows again. With a path FLASH, which is made and removed, the volume is
//! cached on flash in place of memory, and it is that quota. Prints one line of JSON, in microseconds.

use forebay_appliance::volume::PrewarmPlan;
use forebay_appliance::{
    Appliance, ApplianceConfig, FlashConfig, FlashStore, ListenerConfig, OriginStamp, VolumeConfig,
    VolumeFlashConfig,
};
use forebay_cache::{Insertion, Progress};
use forebay_nbd::client::{Config, Event, Operation, Session};
use forebay_origin::{MemoryImage, MemoryOrigin};
use forebay_units::{ByteRange, Bytes, mix64};
use std::collections::BTreeSet;
use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How much is read at once to fill flash.
const FILL_BYTES: u32 = 256 << 10;

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
        self.read_at(mix64(self.count) % (size / 4096) * 4096, 4096)
    }

    fn read_at(&mut self, offset: u64, length: u32) -> Result<Duration, Box<dyn Error>> {
        self.count += 1;
        let mut output = Vec::new();
        let operation = Operation::Read { offset, length, dont_fragment: false };
        self.session.submit(self.count, operation, &mut output)?;
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
    let size: Bytes = std::env::args().nth(1).ok_or("usage: quota_change SIZE [FLASH]")?.parse()?;
    let flash_path = std::env::args().nth(2);
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("socket");
    let origin = Arc::new(MemoryOrigin::new(Arc::new(MemoryImage::new(size))));
    let mut volume = VolumeConfig { quota: size, ..VolumeConfig::new("v", origin) };
    if let Some(path) = &flash_path {
        let room = Some(Bytes(size.0 + Bytes::mib(64).0));
        let store = Arc::new(FlashStore::open(&FlashConfig { path: path.into(), size: room })?);
        volume.quota = Bytes::mib(16);
        volume.flash = Some(VolumeFlashConfig {
            store,
            quota: size,
            placing: None,
            left_out: BTreeSet::new(),
            stamp: OriginStamp::unknown(),
        });
    }
    let appliance = Appliance::start(ApplianceConfig {
        listeners: vec![ListenerConfig::Unix { path: socket.clone() }],
        volumes: vec![volume],
        ..ApplianceConfig::default()
    })?;
    let set_quota = |quota| match flash_path {
        None => appliance.set_quota("v", quota),
        Some(_) => appliance.set_flash_quota("v", quota),
    };
    // What is cached, and whether a change of the quota is over.
    let state = || -> Result<(Bytes, bool), String> {
        let seen = appliance.observe("v", false).map_err(|error| error.to_string())?.observation;
        Ok(match seen.flash {
            None => (seen.resident_bytes, seen.quota_progress == Progress::Settled),
            Some(flash) => (flash.resident_bytes, flash.held_bytes <= flash.quota_bytes),
        })
    };
    if flash_path.is_none() {
        let plan = PrewarmPlan {
            ranges: vec![ByteRange::new(0, size.0)],
            bytes_per_second: None,
            insertion: Insertion::Prewarm,
            own_partition: false,
        };
        appliance.prewarm("v", plan)?;
        while state()?.0 < size {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let session = Session::new(Config::new("v"));
    let mut client = Client { stream: UnixStream::connect(&socket)?, session, input: Vec::new(), count: 0 };
    while !client.session.is_ready() {
        client.step()?;
    }
    // Flash refuses what comes faster than it writes: what is missing is read again.
    while flash_path.is_some() && state()?.0.0 < size.0 / 100 * 95 {
        for offset in (0..size.0).step_by(FILL_BYTES as usize) {
            client.read_at(offset, FILL_BYTES)?;
        }
    }
    let begun = Instant::now();
    let (before, reads_before) = client.slowest(size.0, || begun.elapsed() > Duration::from_secs(1))?;
    let is_over = AtomicBool::new(false);
    let (changed, shrinking) = std::thread::scope(|scope| {
        let changer = scope.spawn(|| {
            let begun = Instant::now();
            let result = set_quota(Bytes::ZERO).map_err(|error| error.to_string());
            while state().is_ok_and(|(_, is_settled)| !is_settled) {
                std::thread::sleep(Duration::from_millis(20));
            }
            is_over.store(true, Ordering::Release);
            result.map(|()| begun.elapsed())
        });
        let slowest = client.slowest(size.0, || is_over.load(Ordering::Acquire));
        (changer.join().expect("no panic"), slowest)
    });
    let (shrinking, reads_shrinking) = shrinking?;
    set_quota(size)?;
    let begun = Instant::now();
    let (growing, _) = client.slowest(size.0, || begun.elapsed() > Duration::from_secs(1))?;
    println!(
        "{{\"size\": {}, \"slowest_before_us\": {before}, \"slowest_shrinking_us\": {shrinking}, \"slowest_growing_us\": {growing}, \
         \"shrinking_ms\": {}, \"reads_before\": {reads_before}, \"reads_shrinking\": {reads_shrinking}}}",
        size.0,
        changed?.as_millis(),
    );
    drop(appliance);
    flash_path.map_or(Ok(()), std::fs::remove_file)?;
    Ok(())
}
