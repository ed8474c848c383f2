//! Serves hits without sockets, for counting instructions: `hit_instructions observed|unobserved REQUESTS`.
//!
//! Requests of 4 KiB at random offsets of a cached volume come in batches of 16, as from a client with 32 in flight, and their
//! replies are dropped. The same work every time: two counts (`valgrind --tool=callgrind`, or any other) of different numbers of
//! requests, subtracted, are the instructions per hit. `scripts/bench-datapath --instructions` does so.

use forebay_appliance::service::{Entrance, Service, ServiceLimits};
use forebay_appliance::volume::{VolumeLimits, VolumeMachine, VolumeSettings};
use forebay_locality::LiveConfig;
use forebay_nbd::{ExportInfo, client, server};
use forebay_origin::{OriginCompletion, OriginTraits};
use forebay_units::{BlockSize, Bytes, Nanos, Ratio, mix64};
use std::error::Error;

const SIZE: u64 = 512 << 20;
const BATCH: u64 = 16;

fn machine() -> Result<VolumeMachine, Box<dyn Error>> {
    let origin = OriginTraits {
        size_bytes: SIZE,
        read_only: false,
        block_size_min: 1,
        block_size_preferred: 4096,
        request_bytes_max: 1 << 20,
        can_trim: true,
        can_fast_zero: true,
        can_multi_conn: true,
    };
    let settings = VolumeSettings {
        origin,
        read_only: false,
        block_size: BlockSize::DEFAULT,
        quota: Bytes(SIZE),
        single_touch_share: Ratio::clamped(0.2),
        seed: 1,
        locality: Some(LiveConfig::default()),
        limits: VolumeLimits::default(),
    };
    Ok(VolumeMachine::new(settings, Nanos::ZERO)?)
}

/// The server's end of a connection whose handshake is over.
fn session() -> Result<server::Session, Box<dyn Error>> {
    let exports = vec![ExportInfo::new("disk", SIZE)];
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    let mut server = server::Session::new(server::Config::default(), &mut to_client);
    let mut client = client::Session::new(client::Config::new("disk"));
    while !client.is_ready() {
        let consumed = client.receive(&to_client, &mut to_server)?.consumed;
        to_client.drain(..consumed);
        let consumed = server.receive(&to_server, &exports, &mut to_client)?.consumed;
        to_server.drain(..consumed);
    }
    Ok(server)
}

/// A request for 4 KiB (`doc/proto.md`, "Request message").
fn append_read(offset: u64, cookie: u64, input: &mut Vec<u8>) {
    input.extend_from_slice(&0x2560_9513u32.to_be_bytes());
    input.extend_from_slice(&[0; 4]);
    input.extend_from_slice(&cookie.to_be_bytes());
    input.extend_from_slice(&offset.to_be_bytes());
    input.extend_from_slice(&4096u32.to_be_bytes());
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, requests] = arguments.as_slice() else {
        return Err("usage: hit_instructions observed|unobserved REQUESTS".into());
    };
    let requests: u64 = requests.parse()?;
    let mut service = Service::new(ServiceLimits::default());
    let volume = service.add_volume(machine()?);
    let connection =
        service.open(Nanos::ZERO, session()?, volume, Entrance::Original, Vec::new(), Vec::new());
    if mode == "unobserved" {
        service.volume(volume).expect("it was added").observe_nothing();
    }
    let (mut input, mut submissions, mut looks) = (Vec::new(), Vec::new(), Vec::new());
    let mut answered = 0;
    let mut now = Nanos::ZERO;
    // Everything is read once, so that the rest are hits.
    let warm_up = (0..SIZE / 4096).map(|block| block * 4096);
    let random = (0..requests).map(|number| mix64(number) % (SIZE / 4096) * 4096);
    let mut offsets = warm_up.chain(random).peekable();
    while offsets.peek().is_some() {
        now = now.saturating_add(Nanos::micros(20));
        input.clear();
        for cookie in 0..BATCH {
            let Some(offset) = offsets.next() else { break };
            append_read(offset, cookie, &mut input);
        }
        service.received(now, connection, &input);
        loop {
            service.turn(now, &mut submissions);
            if submissions.is_empty() {
                break;
            }
            for (volume, request) in submissions.drain(..) {
                let length = request.operation.range().length as usize;
                let completion = OriginCompletion { id: request.id, result: Ok(vec![7; length]) };
                service.complete(now, volume, completion);
            }
        }
        service.end_batch(volume, now, now.saturating_add(Nanos::micros(2)));
        service.take_dirty(&mut looks);
        looks.clear();
        let bytes = service.output(connection).map_or(0, |output| output.len());
        answered += bytes as u64 / 4096;
        service.sent(now, connection, bytes);
    }
    let expected = SIZE / 4096 + requests;
    println!("{answered} of {expected} requests answered");
    if answered == expected { Ok(()) } else { Err("requests were lost".into()) }
}
