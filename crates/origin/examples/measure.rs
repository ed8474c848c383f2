//! Measures an origin: a closed loop of random 4 KiB reads.
//!
//! `measure disk-group [CLIENTS] [SECONDS]` compares an emulated group of four 15,000 rpm disks in real time with the same
//! model on virtual time. `measure nbd://... [CLIENTS] [SECONDS]` and `measure PATH [CLIENTS] [SECONDS]` measure what is there
//! (a path is opened read-only).

use forebay_devmodel::{
    DiskGroup, DiskGroupParameters, DiskParameters, DiskRequest, DiskRequestId, DiskRequestKind,
};
use forebay_origin::{
    CompletionSink, DiskGroupDevice, FileOrigin, FileOriginOptions, MemoryImage, NbdOrigin, NbdOriginOptions,
    Origin, OriginCompletion, OriginOperation, OriginRequest, OriginRequestId, VolumeBacking,
};
use forebay_units::{ByteRange, Bytes, Nanos, mix64};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

struct Forward(Sender<OriginCompletion>);

impl CompletionSink for Forward {
    fn complete(&self, completion: OriginCompletion) {
        let _ = self.0.send(completion);
    }
}

/// Requests per second and mean latency in seconds.
type Measured = (f64, f64);

fn offset(number: u64, size: u64) -> u64 {
    mix64(number) % (size / 4096) * 4096
}

fn live(origin: &dyn Origin, clients: u64, time: Duration) -> Result<Measured, Box<dyn Error>> {
    let (sender, receiver) = channel();
    let sink: Arc<dyn CompletionSink> = Arc::new(Forward(sender));
    let size = origin.traits().size_bytes;
    let started = Instant::now();
    let mut begun = Vec::new();
    let submit = |begun: &mut Vec<Instant>| {
        let number = begun.len() as u64;
        begun.push(Instant::now());
        let operation = OriginOperation::Read { range: ByteRange::new(offset(number, size), 4096) };
        origin.submit(OriginRequest { id: OriginRequestId(number), operation }, &sink);
    };
    for _ in 0..clients {
        submit(&mut begun);
    }
    let (mut latency, mut done) = (0.0, 0u64);
    while started.elapsed() < time {
        let completion = receiver.recv()?;
        completion.result?;
        latency += begun[completion.id.0 as usize].elapsed().as_secs_f64();
        done += 1;
        submit(&mut begun);
    }
    let rate = done as f64 / started.elapsed().as_secs_f64();
    for _ in 0..clients {
        receiver.recv()?.result?;
    }
    Ok((rate, latency / done as f64))
}

fn virtual_time(
    parameters: DiskGroupParameters,
    size: u64,
    clients: u64,
    time: Nanos,
) -> Result<Measured, Box<dyn Error>> {
    let mut group = DiskGroup::new(parameters)?;
    let mut begun = Vec::new();
    let submit = |group: &mut DiskGroup, now: Nanos, begun: &mut Vec<Nanos>| {
        let number = begun.len() as u64;
        begun.push(now);
        let range = ByteRange::new(offset(number, size), 4096);
        group.submit(now, DiskRequest { id: DiskRequestId(number), kind: DiskRequestKind::Read, range })
    };
    for _ in 0..clients {
        submit(&mut group, Nanos::ZERO, &mut begun)?;
    }
    let (mut latency, mut done) = (0.0, 0u64);
    let mut completions = Vec::new();
    while let Some(now) = group.next_event().filter(|now| *now < time) {
        group.advance(now, &mut completions);
        for completion in completions.drain(..) {
            latency += (now - begun[completion.id.0 as usize]).as_secs_f64();
            done += 1;
            submit(&mut group, now, &mut begun)?;
        }
    }
    Ok((done as f64 / time.as_secs_f64(), latency / done as f64))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().ok_or("expected `disk-group`, an NBD URI or a path")?;
    let clients: u64 = arguments.next().unwrap_or("16".into()).parse()?;
    let seconds: u64 = arguments.next().unwrap_or("5".into()).parse()?;
    let time = Duration::from_secs(seconds);
    let print = |name: &str, (rate, latency): Measured| {
        println!("{name}: {rate:.0} requests/s, mean {:.3} ms", latency * 1e3);
    };
    if what == "disk-group" {
        let parameters = DiskGroupParameters::striped(4, DiskParameters::rpm_15000(16 << 30));
        let size = Bytes::gib(60);
        let device = DiskGroupDevice::start(parameters.clone())?;
        let volume = device.volume(VolumeBacking::Memory(Arc::new(MemoryImage::new(size))), 0)?;
        let measured = live(&volume, clients, time)?;
        let statistics = device.statistics();
        print("real time", measured);
        print("virtual time", virtual_time(parameters, size.0, clients, Nanos::secs(seconds))?);
        let mean = statistics.lateness_total.as_micros_f64() / statistics.completed as f64;
        println!(
            "lateness: mean {mean:.0} us, at most {}, {} of {} above 1 ms",
            statistics.lateness_max, statistics.late, statistics.completed
        );
        return Ok(());
    }
    let origin: Box<dyn Origin> = if what.contains("://") {
        Box::new(NbdOrigin::connect(&what.parse()?, NbdOriginOptions::default())?)
    } else {
        Box::new(FileOrigin::open(
            Path::new(&what),
            FileOriginOptions { read_only: true, ..FileOriginOptions::default() },
        )?)
    };
    print(&origin.describe(), live(&*origin, clients, time)?);
    Ok(())
}
