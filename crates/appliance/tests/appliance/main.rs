//! The whole data path in this process, through real unix sockets: clients that behave, clients that do not, and an operator
//! who changes quotas, removes volumes and stops it all while they work.

mod client;
mod leases;
mod origins;
mod retargeting;
mod scene;
mod succession;

use client::Client;
use forebay_appliance::volume::PrewarmPlan;
use forebay_appliance::{
    AddVolumeError, Appliance, ApplianceConfig, CommandError, Drained, Engine, EngineChoice, FlashConfig,
    FlashStore, ListenerConfig, OriginStamp, ServiceLimits, StartError, VolumeConfig, VolumeFlashConfig,
};
use forebay_cache::Insertion;
use forebay_cache::flash::Stamp;
use forebay_nbd::client::Operation;
use forebay_origin::{FileOrigin, FileOriginOptions, MemoryOrigin, Origin};
use forebay_prerequisite::skip;
use forebay_units::{BlockSize, ByteRange, Bytes, Nanos};
use origins::{HeldOrigin, Trap};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use scene::{MIB, PATIENCE, Scene, SetOnDrop, memory, scene, until};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Content that names its place and who wrote it.
fn pattern(offset: u64, length: usize, writer: u64) -> Vec<u8> {
    (0..length as u64 / 8)
        .flat_map(|word| (forebay_units::mix64(offset + word * 8) ^ writer).to_le_bytes())
        .collect()
}

#[test]
fn clients_verify_every_byte_while_quotas_change() {
    let (_, origin) = memory(8 * MIB);
    let volume = VolumeConfig { quota: Bytes(MIB), ..VolumeConfig::new("disk", origin) };
    let scene = scene(vec![volume], ServiceLimits::default());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = SetOnDrop(&over);
        let workers: Vec<_> = (0..4u64)
            .map(|index| {
                let path = &scene.path;
                scope.spawn(move || verify(Client::connect(path, "disk").unwrap(), index))
            })
            .collect();
        let changer = scope.spawn(|| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
            let mut changes = 0;
            while !over.load(Ordering::SeqCst) {
                let quota = Bytes([0, 4096, 256 << 10, MIB, 16 * MIB][random.random_range(0..5)]);
                scene.appliance.set_quota("disk", quota).unwrap();
                let ranges = vec![ByteRange::new(random.random_range(0..8 * MIB), MIB)];
                let plan = PrewarmPlan {
                    ranges,
                    bytes_per_second: None,
                    insertion: Insertion::PrewarmTail,
                    own_partition: false,
                };
                scene.appliance.prewarm("disk", plan).unwrap();
                let snapshot = scene.appliance.observe("disk", changes % 2 == 0).unwrap();
                assert!(snapshot.observation.in_doubt.is_empty());
                changes += 1;
            }
            changes
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        drop(ends);
        assert!(changer.join().unwrap() > 10);
    });
    let observation = scene.appliance.observe("disk", false).unwrap().observation;
    assert!(observation.counters.reads_hit > 100 && observation.counters.origin_reads > 100);
    assert_eq!((observation.counters.errors, observation.requests_in_flight), (0, 0));
    assert_eq!(scene.appliance.shutdown(PATIENCE), Drained::Completely);
    assert!(!scene.path.exists());
}

/// A volume with little memory and some flash, of an origin that nobody else changes unless `stamp` says so.
fn volume_on_flash(origin: &Arc<dyn Origin>, store: &Arc<FlashStore>, stamp: u8) -> VolumeConfig {
    let stamp = OriginStamp::new(move || Some(Stamp::Seen([stamp; 32])));
    let flash = VolumeFlashConfig {
        store: store.clone(),
        quota: Bytes(6 * MIB),
        placing: None,
        left_out: BTreeSet::new(),
        stamp,
    };
    VolumeConfig { quota: Bytes(512 << 10), flash: Some(flash), ..VolumeConfig::new("disk", origin.clone()) }
}

#[test]
fn flash_holds_what_memory_does_not_and_is_found_at_the_next_start() {
    let (image, origin) = memory(8 * MIB);
    let directory = tempfile::tempdir().unwrap();
    let config = FlashConfig { path: directory.path().join("flash"), size: Some(Bytes(16 * MIB)) };
    let store = Arc::new(FlashStore::open(&config).unwrap());
    let scene1 = scene(vec![volume_on_flash(&origin, &store, 1)], ServiceLimits::default());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = SetOnDrop(&over);
        let workers: Vec<_> = (0..4u64)
            .map(|index| {
                let path = &scene1.path;
                scope.spawn(move || verify(Client::connect(path, "disk").unwrap(), index))
            })
            .collect();
        scope.spawn(|| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(8);
            while !over.load(Ordering::SeqCst) {
                let quota = Bytes([0, 2, 4, 6][random.random_range(0..4)] * MIB);
                scene1.appliance.set_flash_quota("disk", quota).unwrap();
                let quota = Bytes([0, 64 << 10, 512 << 10][random.random_range(0..3)]);
                scene1.appliance.set_quota("disk", quota).unwrap();
                std::thread::yield_now();
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        drop(ends);
    });
    // All of it is read once more, so that flash is full.
    scene1.appliance.set_quota("disk", Bytes(512 << 10)).unwrap();
    scene1.appliance.set_flash_quota("disk", Bytes(6 * MIB)).unwrap();
    let mut content = vec![0; 8 * MIB as usize];
    image.read_at(0, &mut content);
    let read_all = |scene: &Scene| {
        let mut client = Client::connect(&scene.path, "disk").unwrap();
        // To and fro, so that what was read last is read first.
        for place in (0..128).rev().chain(0..128) {
            let offset = place * (64 << 10);
            let operation = Operation::Read { offset, length: 64 << 10, dont_fragment: false };
            let found = client.call(operation, &[]).unwrap().unwrap();
            assert!(found == content[offset as usize..][..64 << 10], "{offset} does not read as it should");
        }
        scene.appliance.observe("disk", false).unwrap().observation
    };
    let seen = read_all(&scene1);
    let flash = seen.flash.unwrap();
    assert!(flash.statistics.hits > 0 && flash.statistics.segments_written > 0, "{flash:?}");
    assert_eq!((flash.statistics.corrupt, flash.statistics.write_errors, seen.counters.errors), (0, 0, 0));
    assert!(flash.resident_bytes.0 > 4 * MIB && flash.held_bytes.0 <= 6 * MIB, "{flash:?}");
    assert_eq!(scene1.appliance.shutdown(PATIENCE), Drained::Completely);
    drop(store);

    let start = |stamp| {
        let store = Arc::new(FlashStore::open(&config).unwrap());
        scene(vec![volume_on_flash(&origin, &store, stamp)], ServiceLimits::default())
    };
    let scene2 = start(1);
    let recovered = |scene: &Scene| {
        scene.appliance.observe("disk", false).unwrap().observation.flash.unwrap().statistics.recovered
    };
    assert!(recovered(&scene2) * 4096 > 4 * MIB, "{}", recovered(&scene2));
    let seen = read_all(&scene2);
    assert!(seen.counters.reads_flash > 0 && seen.flash.unwrap().statistics.corrupt == 0, "{seen:?}");
    // Not in order: nothing is kept. Nor is it of an origin that somebody else changed.
    drop(scene2);
    let scene3 = start(1);
    assert_eq!(recovered(&scene3), 0);
    read_all(&scene3);
    assert_eq!(scene3.appliance.shutdown(PATIENCE), Drained::Completely);
    let scene4 = start(2);
    assert_eq!(recovered(&scene4), 0);
    // A volume that is taken away leaves its segments to others.
    assert_eq!(scene4.appliance.remove_volume("disk", PATIENCE), Ok(Drained::Completely));
    let small = BlockSize::new(Bytes(512)).unwrap();
    let store =
        Arc::new(FlashStore::open(&FlashConfig { path: directory.path().join("other"), ..config }).unwrap());
    let refused = scene4
        .appliance
        .add_volume(VolumeConfig { block_size: small, ..volume_on_flash(&origin, &store, 2) });
    assert!(matches!(refused, Err(AddVolumeError::FlashBlockSize { .. })));
    scene4.appliance.add_volume(volume_on_flash(&origin, &store, 2)).unwrap();
    read_all(&scene4);
}

#[test]
fn files_are_served_in_rings_or_by_threads_and_it_says_which() {
    for io in [EngineChoice::Auto, EngineChoice::Threads] {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(2 * MIB).unwrap();
        let origin = Arc::new(FileOrigin::open(file.path(), FileOriginOptions::default()).unwrap());
        let directory = tempfile::tempdir().unwrap();
        let config = FlashConfig { path: directory.path().join("flash"), size: Some(Bytes(8 * MIB)) };
        let store = Arc::new(FlashStore::open(&config).unwrap());
        let flash = VolumeFlashConfig {
            store,
            quota: Bytes(3 * MIB),
            placing: None,
            left_out: BTreeSet::new(),
            stamp: OriginStamp::unknown(),
        };
        let quota = Bytes(64 << 10);
        let volume = VolumeConfig { quota, flash: Some(flash), ..VolumeConfig::new("disk", origin) };
        let path = directory.path().join("nbd.sock");
        let appliance = Appliance::start(ApplianceConfig {
            listeners: vec![ListenerConfig::Unix { path: path.clone() }],
            volumes: vec![volume],
            io,
            ..ApplianceConfig::default()
        })
        .unwrap();
        match (io, appliance.io()) {
            (EngineChoice::Threads, Engine::Threads { reason }) => assert_eq!(reason, "as configured"),
            (EngineChoice::Auto, Engine::IoUring) => {}
            (EngineChoice::Auto, Engine::Threads { reason }) => skip("rings", reason),
            other => panic!("{other:?}"),
        }
        std::thread::scope(|scope| {
            for index in 0..4 {
                let path = &path;
                scope.spawn(move || verify(Client::connect(path, "disk").unwrap(), index));
            }
        });
        let seen = appliance.observe("disk", false).unwrap();
        assert!(seen.observation.counters.reads_flash > 0 && seen.origin_statistics.errors == 0, "{seen:?}");
        assert_eq!(appliance.shutdown(PATIENCE), Drained::Completely);
    }
}

/// Reads and writes the slots of 1.5 KiB that are `index` modulo 4, unaligned to blocks and shared with the neighbours, and
/// checks that every read returns what was written last.
fn verify(mut client: Client, index: u64) {
    const SLOT: u64 = 1536;
    let slots = client.size_bytes() / SLOT / 4;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(index);
    let mut written = vec![0u64; slots as usize];
    for round in 1..=300u64 {
        let mut in_flight = std::collections::HashMap::new();
        let mut busy = std::collections::HashSet::new();
        for _ in 0..16 {
            let slot = random.random_range(0..slots) * random.random_range(0..=1);
            if !busy.insert(slot) {
                continue;
            }
            let offset = (slot * 4 + index) * SLOT;
            if random.random_bool(0.4) {
                let writer = round << 8 | index;
                written[slot as usize] = writer;
                client.write(offset, &pattern(offset, SLOT as usize, writer)).unwrap();
            } else {
                in_flight.insert(client.read(offset, SLOT as u32).unwrap(), slot);
            }
        }
        for _ in 0..busy.len() {
            let (cookie, result) = client.finish_one().unwrap();
            let data = result.unwrap();
            if let Some(slot) = in_flight.get(&cookie) {
                let (offset, writer) = ((slot * 4 + index) * SLOT, written[*slot as usize]);
                let expected =
                    if writer == 0 { vec![0; SLOT as usize] } else { pattern(offset, SLOT as usize, writer) };
                assert!(
                    data == expected,
                    "slot {slot} of client {index} does not hold what was written last"
                );
            }
        }
    }
}

#[test]
fn every_command_does_what_it_says() {
    let (image, origin) = memory(MIB + 1000);
    let volume = VolumeConfig { quota: Bytes(MIB), ..VolumeConfig::new("disk", origin) };
    let scene = scene(vec![volume], ServiceLimits::default());
    let mut client = Client::connect(&scene.path, "disk").unwrap();
    // The last block is short: 1,000 bytes of it exist.
    let end = pattern(0, 1000, 3);
    client.call(Operation::Write { offset: MIB, length: 1000, fua: true }, &end).unwrap().unwrap();
    for _ in 0..2 {
        let read = client.call(Operation::Read { offset: MIB - 8, length: 1008, dont_fragment: true }, &[]);
        assert_eq!(read.unwrap().unwrap(), [&[0; 8], &end[..]].concat());
    }
    client.call(Operation::Cache { offset: 0, length: 65536 }, &[]).unwrap().unwrap();
    let before = scene.appliance.observe("disk", false).unwrap().observation.counters;
    client.write(10, &[9; 5000]).unwrap();
    client.finish_one().unwrap().1.unwrap();
    let zeroes =
        Operation::WriteZeroes { offset: 5, length: 10, fua: false, no_hole: true, fast_zero: false };
    client.call(zeroes, &[]).unwrap().unwrap();
    client.call(Operation::Flush, &[]).unwrap().unwrap();
    client.call(Operation::Trim { offset: 8192, length: 4096, fua: false }, &[]).unwrap().unwrap();
    client.call(Operation::BlockStatus { offset: 0, length: 4096, one_extent: true }, &[]).unwrap().unwrap();
    let data =
        client.call(Operation::Read { offset: 0, length: 5020, dont_fragment: false }, &[]).unwrap().unwrap();
    let expected = [&[0; 15][..], &[9; 4995], &[0; 10]].concat();
    assert_eq!(data, expected);
    let mut at_origin = vec![0; 5020];
    image.read_at(0, &mut at_origin);
    assert_eq!(at_origin, expected);
    let after = scene.appliance.observe("disk", false).unwrap().observation.counters;
    assert_eq!(after.origin_reads, before.origin_reads, "what CACHE loaded is read without the origin");
    assert_eq!((after.flushes, after.trims, after.write_zeroes, after.cache_requests), (1, 1, 1, 1));
}

#[test]
fn unknown_exports_and_changes_of_read_only_volumes_are_refused() {
    let (_, origin) = memory(MIB);
    let volume = VolumeConfig { read_only: true, ..VolumeConfig::new("disk", origin) };
    let scene = scene(vec![volume], ServiceLimits::default());
    assert!(Client::connect(&scene.path, "elsewhere").is_err());
    let mut client = Client::connect(&scene.path, "disk").unwrap();
    assert!(client.write(0, &[1; 512]).is_err(), "the client was told that the export is read-only");
    // A client that does not care what it was told.
    let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
    request.extend_from_slice(&[0, 0, 0, 1]);
    request.extend_from_slice(&77u64.to_be_bytes());
    request.extend_from_slice(&0u64.to_be_bytes());
    request.extend_from_slice(&4u32.to_be_bytes());
    request.extend_from_slice(b"data");
    client.stream.write_all(&request).unwrap();
    let mut header = [0; 20];
    client.stream.read_exact(&mut header).unwrap();
    // A structured error chunk (type 2^15 + 1, flag "done") for cookie 77.
    assert_eq!(header[..8], [0x66, 0x8e, 0x33, 0xef, 0, 1, 0x80, 1]);
    assert_eq!(header[8..16], 77u64.to_be_bytes());
    let snapshot = scene.appliance.observe("disk", false).unwrap();
    assert_eq!((snapshot.read_only, snapshot.observation.counters.origin_bytes_written), (true, 0));
}

#[test]
fn who_breaks_the_protocol_is_disconnected_and_harms_nobody() {
    let (_, origin) = memory(MIB);
    let scene = scene(vec![VolumeConfig::new("disk", origin)], ServiceLimits::default());
    let mut good = Client::connect(&scene.path, "disk").unwrap();
    // In the handshake.
    let mut stream = UnixStream::connect(&scene.path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[0xff; 64]).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    // Among requests.
    let mut bad = Client::connect(&scene.path, "disk").unwrap();
    bad.read(0, 4096).unwrap();
    bad.stream.write_all(&[0xff; 28]).unwrap();
    while bad.finish_one().is_ok() {}
    until("the disconnection", || scene.appliance.connections() == 1);
    good.write(0, &[5; 4096]).unwrap();
    good.finish_one().unwrap().1.unwrap();
}

#[test]
fn who_never_reads_replies_is_not_read_any_more_and_harms_nobody() {
    let (_, origin) = memory(8 * MIB);
    let volume = VolumeConfig { quota: Bytes(8 * MIB), ..VolumeConfig::new("disk", origin) };
    let limits = ServiceLimits { output_per_connection_max: Bytes(MIB), ..ServiceLimits::default() };
    let scene = scene(vec![volume], limits);
    let mut deaf = Client::connect(&scene.path, "disk").unwrap();
    deaf.stream.set_nonblocking(true).unwrap();
    // Far more than sockets and limits hold: 1,000 reads of 1 MiB, if they were all taken.
    let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
    request.extend_from_slice(&[0; 4]);
    request.extend_from_slice(&1u64.to_be_bytes());
    request.extend_from_slice(&0u64.to_be_bytes());
    request.extend_from_slice(&(MIB as u32).to_be_bytes());
    for _ in 0..1000 {
        if deaf.stream.write(&request).is_err() {
            break;
        }
    }
    let mut good = Client::connect(&scene.path, "disk").unwrap();
    for round in 0..200u64 {
        let offset = round * 4096;
        good.call(Operation::Write { offset, length: 4096, fua: false }, &pattern(offset, 4096, 1))
            .unwrap()
            .unwrap();
        let read = good.call(Operation::Read { offset, length: 4096, dont_fragment: false }, &[]);
        assert!(read.unwrap().unwrap() == pattern(offset, 4096, 1));
    }
    let reads = scene.appliance.observe("disk", false).unwrap().observation.counters.reads;
    assert!(reads < 200 + 20, "{reads} reads were taken although nobody takes the replies");
    drop(deaf);
    until("the disconnection", || scene.appliance.connections() == 1);
    assert_eq!(scene.appliance.shutdown(PATIENCE), Drained::Completely);
}

#[test]
fn a_hundred_connections_share_a_few_volumes() {
    let volumes = (0..4).map(|index| VolumeConfig {
        quota: Bytes(MIB),
        ..VolumeConfig::new(format!("v{index}"), memory(MIB).1)
    });
    let scene = scene(volumes.collect(), ServiceLimits::default());
    let mut clients: Vec<Client> =
        (0..100).map(|index| Client::connect(&scene.path, &format!("v{}", index % 4)).unwrap()).collect();
    let place = |index: usize| (index as u64 / 4) * 4096;
    for (index, client) in clients.iter_mut().enumerate() {
        client.write(place(index), &pattern(place(index), 4096, index as u64)).unwrap();
    }
    clients.iter_mut().for_each(|client| assert!(client.finish_one().unwrap().1.is_ok()));
    for _ in 0..3 {
        for (index, client) in clients.iter_mut().enumerate() {
            client.read(place(index), 4096).unwrap();
        }
        for (index, client) in clients.iter_mut().enumerate() {
            assert!(client.finish_one().unwrap().1.unwrap() == pattern(place(index), 4096, index as u64));
        }
    }
    assert_eq!(scene.appliance.connections(), 100);
    for snapshot in scene.appliance.observe_all(true) {
        assert_eq!(snapshot.connections, 25, "{}", snapshot.name);
        assert_eq!(snapshot.observation.latencies.hits.count(), 2 * 25);
    }
    drop(clients);
    until("the disconnections", || scene.appliance.connections() == 0);
}

/// Volumes of these names, with so many connections for all of them.
fn of_connections(connections_max: usize, names: &[&str]) -> Scene {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nbd.sock");
    let appliance = Appliance::start(ApplianceConfig {
        listeners: vec![ListenerConfig::Unix { path: path.clone() }],
        connections_max,
        volumes: names.iter().map(|name| VolumeConfig::new(*name, memory(MIB).1)).collect(),
        ..ApplianceConfig::default()
    });
    Scene { appliance: appliance.unwrap(), path, _directory: directory }
}

#[test]
fn clients_of_one_volume_do_not_keep_those_of_another_out() {
    let Scene { appliance, path, _directory } = of_connections(8, &["many", "few"]);
    let mut many: Vec<Client> = (0..6).map(|_| Client::connect(&path, "many").unwrap()).collect();
    // A quarter is the other's: it has used none of it.
    assert!(Client::connect(&path, "many").is_err());
    until("the refusal is over", || appliance.connections() == 6);
    let mut few = vec![Client::connect(&path, "few").unwrap()];
    assert!(Client::connect(&path, "many").is_err());
    until("the refusal is over", || appliance.connections() == 7);
    few.push(Client::connect(&path, "few").unwrap());
    // What one has left the other may have, beyond its own share.
    many.truncate(3);
    until("the disconnections", || appliance.connections() == 5);
    few.extend((0..3).map(|_| Client::connect(&path, "few").unwrap()));
    assert!(Client::connect(&path, "few").is_err(), "all that there are");
    for client in many.iter_mut().chain(&mut few) {
        client.read(0, 4096).unwrap();
        assert!(client.finish_one().unwrap().1.is_ok());
    }
    assert_eq!(appliance.refused()[3], ("limit", 3));
}

#[test]
fn a_volume_that_is_alone_may_have_all_connections() {
    let Scene { appliance, path, _directory } = of_connections(5, &["alone"]);
    let clients: Vec<Client> = (0..5).map(|_| Client::connect(&path, "alone").unwrap()).collect();
    assert_eq!(appliance.connections(), clients.len());
    assert!(Client::connect(&path, "alone").is_err());
}

#[test]
fn a_client_that_dies_in_the_middle_of_a_write_leaves_the_volume_whole() {
    let (image, origin) = memory(MIB);
    let held = HeldOrigin::new(origin);
    let volume = VolumeConfig { quota: Bytes(MIB), ..VolumeConfig::new("disk", held.clone()) };
    let scene = scene(vec![volume], ServiceLimits::default());
    // One write at the origin, one read that waits, and half of another write's bytes.
    let mut dying = Client::connect(&scene.path, "disk").unwrap();
    dying.write(0, &[7; 4096]).unwrap();
    dying.read(65536, 4096).unwrap();
    held.wait_for(2);
    dying.submit(Operation::Write { offset: 8192, length: 131_072, fua: false }, &[8; 65536]).unwrap();
    drop(dying);
    until("the disconnection", || scene.appliance.connections() == 0);
    held.open();
    let mut next = Client::connect(&scene.path, "disk").unwrap();
    let data = next.call(Operation::Read { offset: 0, length: 16384, dont_fragment: false }, &[]);
    assert_eq!(data.unwrap().unwrap(), [vec![7; 4096], vec![0; 12288]].concat());
    let mut at_origin = vec![0; 16384];
    image.read_at(0, &mut at_origin);
    assert_eq!(at_origin, [vec![7; 4096], vec![0; 12288]].concat());
    until("the end of all requests", || {
        scene.appliance.observe("disk", false).unwrap().observation.requests_in_flight == 0
    });
}

#[test]
fn volumes_come_and_go_while_others_serve() {
    let scene = scene(vec![VolumeConfig::new("first", memory(MIB).1)], ServiceLimits::default());
    let again = scene.appliance.add_volume(VolumeConfig::new("first", memory(MIB).1));
    assert_eq!(again, Err(AddVolumeError::Exists { name: "first".to_owned() }));
    let held = HeldOrigin::new(memory(MIB).1);
    scene.appliance.add_volume(VolumeConfig::new("second", held.clone())).unwrap();
    let mut client = Client::connect(&scene.path, "second").unwrap();
    client.write(0, &[1; 512]).unwrap();
    held.wait_for(1);
    // The write completes while the volume is being removed, so its client gets the answer.
    std::thread::scope(|scope| {
        let removal = scope.spawn(|| scene.appliance.remove_volume("second", PATIENCE));
        until("the removal from the directory", || scene.appliance.volumes() == ["first"]);
        held.open();
        assert_eq!(removal.join().unwrap(), Ok(Drained::Completely));
    });
    client.finish_one().unwrap().1.unwrap();
    assert!(client.finish_one().is_err(), "then it is disconnected");
    let unknown = CommandError::Unknown { name: "second".to_owned() };
    assert_eq!(scene.appliance.set_quota("second", Bytes(1)).unwrap_err(), unknown);
    assert!(Client::connect(&scene.path, "first").is_ok());
}

#[test]
fn a_removal_waits_no_longer_once_it_is_hurried() {
    let held = HeldOrigin::new(memory(MIB).1);
    let volumes = ["first", "second"].map(|name| VolumeConfig::new(name, held.clone()));
    let scene = scene(volumes.into(), ServiceLimits::default());
    let clients = ["first", "second"].map(|name| {
        let mut client = Client::connect(&scene.path, name).unwrap();
        client.write(0, &[1; 512]).unwrap();
        client
    });
    held.wait_for(2);
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let remove = |name: &'static str| {
            let (appliance, sender) = (&scene.appliance, sender.clone());
            scope.spawn(move || sender.send(appliance.remove_volume(name, Duration::from_secs(3600))));
            until("the removal from the directory", || !appliance.volumes().contains(&name.to_owned()));
        };
        remove("first");
        scene.appliance.hurry(Duration::ZERO);
        let first = ended.recv_timeout(PATIENCE);
        // Nor does one that is asked for later.
        remove("second");
        let second = ended.recv_timeout(PATIENCE);
        held.open();
        assert_eq!([first, second], [Ok(Ok(Drained::TimedOut)), Ok(Ok(Drained::TimedOut))]);
    });
    drop(clients);
}

#[test]
fn a_shutdown_while_busy_answers_what_is_in_flight_or_says_that_it_did_not() {
    for opens in [true, false] {
        let held = HeldOrigin::new(memory(MIB).1);
        let scene = scene(vec![VolumeConfig::new("disk", held.clone())], ServiceLimits::default());
        let mut client = Client::connect(&scene.path, "disk").unwrap();
        client.write(0, &[1; 512]).unwrap();
        client.read(4096, 512).unwrap();
        held.wait_for(2);
        if opens {
            let opener = std::thread::spawn(move || held.open());
            assert_eq!(scene.appliance.shutdown(PATIENCE), Drained::Completely);
            opener.join().unwrap();
            assert!(client.finish_one().unwrap().1.is_ok() && client.finish_one().unwrap().1.is_ok());
        } else {
            assert_eq!(scene.appliance.shutdown(Duration::ZERO), Drained::TimedOut);
        }
        assert!(client.finish_one().is_err());
    }
}

#[test]
fn a_worker_that_panics_takes_its_volumes_along_and_nobody_else() {
    let (image, inner) = memory(MIB);
    let trap: Arc<dyn Origin> = Arc::new(Trap(inner));
    let weak = Arc::downgrade(&trap);
    let directory = tempfile::tempdir().unwrap();
    let config = FlashConfig { path: directory.path().join("flash"), size: Some(Bytes(16 * MIB)) };
    let store = Arc::new(FlashStore::open(&config).unwrap());
    let on_flash = |trap| VolumeConfig { name: "doomed".to_owned(), ..volume_on_flash(&trap, &store, 1) };
    let volumes = vec![on_flash(trap), VolumeConfig::new("safe", memory(MIB).1)];
    let scene = scene(volumes, ServiceLimits::default());
    let write = |offset| Operation::Write { offset, length: 512, fua: false };
    let read = |offset| Operation::Read { offset, length: 512, dont_fragment: false };
    let (mut doomed, mut idle) =
        (Client::connect(&scene.path, "doomed").unwrap(), Client::connect(&scene.path, "doomed").unwrap());
    let mut safe = Client::connect(&scene.path, "safe").unwrap();
    assert!(safe.call(write(0), &[5; 512]).unwrap().is_ok());
    assert!(doomed.call(write(4096), &[7; 512]).unwrap().is_ok());
    // A write that is behind the panic in one batch is not acknowledged; everybody on the worker is disconnected, maybe before it is sent.
    doomed.read(MIB - 512, 512).unwrap();
    let _ = doomed.write(8192, &[8; 512]);
    assert!(doomed.finish_one().is_err());
    assert!(idle.finish_one().is_err());
    // Others are served as before, and who comes to the dead worker's volume is turned away, not left waiting.
    assert_eq!(safe.call(read(0), &[]).unwrap(), Ok(vec![5; 512]));
    let late = Client::connect(&scene.path, "doomed").and_then(|mut client| client.call(read(0), &[]));
    assert!(late.is_err());
    assert!(matches!(scene.appliance.observe("doomed", false), Err(CommandError::Worker(_))));
    assert!(matches!(scene.appliance.set_quota("doomed", Bytes::mib(1)), Err(CommandError::Worker(_))));
    assert!(scene.appliance.observe("safe", false).is_ok());
    until("the end of the worker", || scene.appliance.workers_gone() == 1);
    // The name is free again once the volume is removed, and its origin with it; others serve it then, with all that was acknowledged.
    assert!(matches!(scene.appliance.remove_volume("doomed", PATIENCE), Err(CommandError::Worker(_))));
    until("the end of the origin", || weak.upgrade().is_none());
    let origin = || Arc::new(MemoryOrigin::new(image.clone()));
    for volume in [on_flash(Arc::new(Trap(origin()))), VolumeConfig::new("new", origin())] {
        let name = volume.name.clone();
        scene.appliance.add_volume(volume).unwrap();
        let mut client = Client::connect(&scene.path, &name).unwrap();
        assert_eq!(client.call(read(4096), &[]).unwrap(), Ok(vec![7; 512]));
    }
    // Whether a dead worker's volumes had drained cannot be said.
    assert_eq!(scene.appliance.shutdown(PATIENCE), Drained::TimedOut);
}

#[test]
fn intervals_of_latencies_end_on_command() {
    let scene = scene(vec![VolumeConfig::new("disk", memory(MIB).1)], ServiceLimits::default());
    let mut client = Client::connect(&scene.path, "disk").unwrap();
    for offset in [0, 4096, 8192] {
        client.call(Operation::Read { offset, length: 4096, dont_fragment: false }, &[]).unwrap().unwrap();
    }
    let first = scene.appliance.observe("disk", true).unwrap().observation;
    assert_eq!((first.latencies.misses.count(), first.latencies.origin.count()), (3, 3));
    assert_eq!(first.counters.reads_sequential, 2);
    assert!(first.outstanding_max >= 1 && first.idle < first.at.saturating_since(first.interval_started));
    assert_eq!(first.locality.unwrap().accesses, 3);
    let second = scene.appliance.observe("disk", false).unwrap().observation;
    assert_eq!((second.latencies.misses.count(), second.counters.reads), (0, 3));
    assert!(second.interval_started >= first.at && first.at > Nanos::ZERO);
}

#[test]
fn a_hit_is_served_in_the_interval_in_which_it_arrived() {
    const BATCH: usize = 32;
    let volume = VolumeConfig { quota: Bytes(MIB), ..VolumeConfig::new("disk", memory(MIB).1) };
    let scene = scene(vec![volume], ServiceLimits::default());
    let mut client = Client::connect(&scene.path, "disk").unwrap();
    client.call(Operation::Read { offset: 0, length: 4096, dont_fragment: false }, &[]).unwrap().unwrap();
    let mut before = scene.appliance.observe("disk", true).unwrap().observation.counters;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = SetOnDrop(&over);
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                for _ in 0..BATCH {
                    client.read(0, 4096).unwrap();
                }
                for _ in 0..BATCH {
                    client.finish_one().unwrap().1.unwrap();
                }
            }
        });
        // Intervals that end at any moment: also between the arrival of a batch and its end.
        let odd = (0..3_000).find_map(|_| {
            let seen = scene.appliance.observe("disk", true).unwrap().observation;
            let arrived = seen.counters.reads_hit - before.reads_hit;
            before = seen.counters;
            let served = seen.latencies.hits.count();
            (served != arrived).then_some((served, arrived))
        });
        drop(ends);
        assert_eq!(odd, None, "(served, arrived)");
    });
}

#[test]
fn nothing_is_left_behind_where_a_start_fails() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nbd.sock");
    let config = ApplianceConfig {
        listeners: vec![ListenerConfig::Unix { path: path.clone() }],
        volumes: vec![VolumeConfig::new("", memory(MIB).1)],
        ..ApplianceConfig::default()
    };
    let error = Appliance::start(config).err().unwrap();
    assert!(matches!(error, StartError::Volume(AddVolumeError::Name { bytes: 0 })));
    assert!(!path.exists());
}
