//! The bodies of the fuzz targets: each takes any bytes and must return, having checked what can be checked of rubbish.
//!
//! The first bytes of an input choose the circumstances, the rest is what is parsed. `fuzz/` runs these bodies under libFuzzer;
//! `tests/simtest` replays `fuzz/corpus` through them on stable.

use forebay_cache::flash::{
    FlashDevice, FlashTier, FlashVolumeSettings, FormatError, IndexHeader, IndexReader, MemoryFlash, Record,
    Recovery, SECTOR, Stamp, Superblock, TierSettings, VolumeId,
};
use forebay_cache::snapshot::{Snapshot, SnapshotWriter, seal};
use forebay_nbd::server::{Payload, TlsPolicy};
use forebay_nbd::wire::{AllocationFlags, Extents};
use forebay_nbd::{ExportInfo, client, server};
use forebay_origin::{EXTENTS_MAX, ExtentList};
use forebay_trace::{BATCH_REQUESTS, Format, Ids, ReadAhead, ReadOptions, Source, TimeUnit, TraceReader};
use forebay_units::{BlockIndex, BlockSize, Bytes};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;

/// Does something with any bytes; finds a fault by panicking.
pub type Target = fn(&[u8]);

/// Every target: its name, which is that of its folder in the corpus, and its body.
pub const TARGETS: &[(&str, Target)] = &[
    ("nbd_server", nbd_server),
    ("nbd_client", nbd_client),
    ("trace_readers", trace_readers),
    ("flash", flash),
    ("snapshot", snapshot),
    #[cfg(feature = "configuration")]
    ("configuration", configuration),
];

const VOLUME_BYTES: u64 = 1 << 20;

fn exports() -> Vec<ExportInfo> {
    let disk = ExportInfo {
        trim: true,
        write_zeroes: true,
        fast_zero: true,
        cache: true,
        block_status: true,
        ..ExportInfo::new("disk", VOLUME_BYTES)
    };
    vec![disk, ExportInfo { read_only: true, ..ExportInfo::new("archive", 512) }]
}

/// Pieces of `length` bytes, all in one for 0.
fn pieces(bytes: &[u8], length: usize) -> impl Iterator<Item = &[u8]> {
    bytes.chunks(if length == 0 { bytes.len().max(1) } else { length })
}

/// A server hears `bytes` in pieces: what it understood (payloads put together), what it said, and why it stopped.
fn server_hears(
    bytes: &[u8],
    config: &server::Config,
    piece: usize,
) -> (Vec<String>, Vec<u8>, Option<String>) {
    let exports = exports();
    let (mut log, mut output, mut held) = (Vec::new(), Vec::new(), Vec::new());
    let mut session = server::Session::new(config.clone(), &mut output);
    let mut pending: Option<(String, Vec<u8>)> = None;
    for piece in pieces(bytes, piece) {
        held.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let parsed = match session.receive(&held[at..], &exports, &mut output) {
                Ok(parsed) => parsed,
                Err(error) => {
                    let again = session.receive(&held[at..], &exports, &mut output);
                    assert_eq!(again.err().as_ref(), Some(&error), "a broken conversation stays broken");
                    return (log, output, Some(error.to_string()));
                }
            };
            assert!(parsed.consumed <= held.len() - at, "more was consumed than there is");
            at += parsed.consumed;
            match parsed.event {
                server::Event::NeedMore => break,
                server::Event::Request { request, payload } => {
                    let end = request.range.offset.checked_add(request.range.length).expect("a valid range");
                    assert!(end <= VOLUME_BYTES, "{request:?} lies behind the end");
                    match payload {
                        Payload::Pending { bytes } => {
                            assert!(bytes <= config.payload_bytes_max);
                            pending = Some((format!("{request:?}"), Vec::new()));
                        }
                        Payload::Whole(bytes) => log.push(format!("{request:?} {bytes:?}")),
                        Payload::None => log.push(format!("{request:?} []")),
                    }
                }
                server::Event::PayloadPart { bytes, remaining } => {
                    let (request, data) = pending.as_mut().expect("a part follows its request");
                    data.extend_from_slice(bytes);
                    if remaining == 0 {
                        log.push(format!("{request} {data:?}"));
                        pending = None;
                    }
                }
                server::Event::UpgradeTls => session.tls_established(),
                server::Event::Disconnect(how) => {
                    log.push(format!("{how:?}"));
                    return (log, output, None);
                }
                event => log.push(format!("{event:?}")),
            }
        }
        assert!(held.len() - at <= session.receive_bytes_min(), "more must be held than the session says");
        held.drain(..at);
    }
    (log, output, None)
}

/// What clients say to a server. How it is cut into pieces must change nothing.
pub fn nbd_server(input: &[u8]) {
    let [options, piece, said @ ..] = input else { return };
    let config = server::Config {
        tls: [TlsPolicy::Off, TlsPolicy::Allowed, TlsPolicy::Required][usize::from(options % 3)],
        structured_replies: options & 4 == 0,
        payload_whole_bytes_max: if options & 8 == 0 { 64 << 10 } else { 600 },
        options_max: if options & 16 == 0 { 4096 } else { 3 },
        ..server::Config::default()
    };
    let whole = server_hears(said, &config, 0);
    let cut = server_hears(said, &config, usize::from(*piece).max(1));
    assert_eq!(cut, whole, "how the bytes were cut changed something");
}

/// What a client understood.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    done: BTreeMap<u64, Result<(), String>>,
    data: BTreeMap<u64, Vec<u8>>,
    extents: Vec<(u32, u32)>,
    said: Vec<u8>,
    error: Option<String>,
}

fn client_hears(bytes: &[u8], config: &client::Config, piece: usize) -> Heard {
    let reads = [(1, 0, 2000), (2, 4096, 512)];
    let mut heard = Heard::default();
    let mut session = client::Session::new(config.clone());
    let (mut held, mut covered) = (Vec::new(), BTreeMap::new());
    for piece in pieces(bytes, piece) {
        held.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let parsed = match session.receive(&held[at..], &mut heard.said) {
                Ok(parsed) => parsed,
                Err(error) => {
                    heard.error = Some(error.to_string());
                    return heard;
                }
            };
            assert!(parsed.consumed <= held.len() - at, "more was consumed than there is");
            at += parsed.consumed;
            match parsed.event {
                client::Event::NeedMore => break,
                client::Event::UpgradeTls => session.tls_established(&mut heard.said),
                client::Event::Ready(export) => {
                    let operations = reads
                        .map(|(cookie, offset, length)| {
                            (cookie, client::Operation::Read { offset, length, dont_fragment: false })
                        })
                        .into_iter()
                        .chain([
                            (3, client::Operation::Write { offset: 0, length: 4, fua: false }),
                            (4, client::Operation::Flush),
                            (
                                5,
                                client::Operation::BlockStatus { offset: 0, length: 4096, one_extent: false },
                            ),
                        ]);
                    for (cookie, operation) in operations {
                        // The server may have said that it has not got that.
                        if session.submit(cookie, operation, &mut heard.said).is_ok() && cookie == 3 {
                            heard.said.extend_from_slice(b"data");
                        }
                    }
                    for (cookie, _, length) in reads {
                        heard.data.insert(cookie, vec![0xdd; length as usize]);
                        covered.insert(cookie, vec![false; length as usize]);
                    }
                    // Looser than what servers must keep: a small preferred size hurts nobody.
                    let sizes = export.block_sizes;
                    assert!(sizes.min.is_power_of_two() && sizes.max >= sizes.min, "{sizes:?}");
                }
                client::Event::Data { cookie, offset, bytes } => {
                    let (_, start, _) =
                        reads.into_iter().find(|read| read.0 == cookie).expect("only reads have data");
                    let span = (offset - start) as usize..(offset - start) as usize + bytes.len();
                    heard.data.get_mut(&cookie).expect("ready")[span.clone()].copy_from_slice(bytes);
                    let covered = &mut covered.get_mut(&cookie).expect("ready")[span];
                    assert!(covered.iter().all(|byte| !byte), "bytes came twice");
                    covered.fill(true);
                }
                client::Event::Hole { cookie, range } => {
                    let (_, start, _) =
                        reads.into_iter().find(|read| read.0 == cookie).expect("only reads have holes");
                    let span = (range.offset - start) as usize..(range.end() - start) as usize;
                    heard.data.get_mut(&cookie).expect("ready")[span.clone()].fill(0);
                    let covered = &mut covered.get_mut(&cookie).expect("ready")[span];
                    assert!(covered.iter().all(|byte| !byte), "bytes came twice");
                    covered.fill(true);
                }
                client::Event::Done { cookie, result } => {
                    if result.is_ok()
                        && let Some(covered) = covered.get(&cookie)
                    {
                        assert!(
                            covered.iter().all(|byte| *byte),
                            "a read succeeded without all of its bytes"
                        );
                    }
                    let before = heard.done.insert(cookie, result.map_err(|error| error.to_string()));
                    assert!(before.is_none(), "a request was answered twice");
                }
                client::Event::Extents { cookie, extents } => {
                    assert_eq!(cookie, 5, "only one question was asked");
                    heard.extents.extend(extents.map(|extent| (extent.length, extent.flags.0)));
                    // Each is something, and none begins behind the 4,096 bytes that were asked about.
                    let (_, before) = heard.extents.split_last().expect("an event has at least one");
                    assert!(heard.extents.iter().all(|extent| extent.0 > 0));
                    assert!(before.iter().map(|extent| u64::from(extent.0)).sum::<u64>() < 4096);
                }
                client::Event::Closed => return heard,
                _ => {}
            }
        }
        assert!(held.len() - at <= session.receive_bytes_min(), "more must be held than the session says");
        held.drain(..at);
    }
    heard
}

/// What servers say to a client. How it is cut into pieces must change nothing.
pub fn nbd_client(input: &[u8]) {
    let [options, piece, said @ ..] = input else { return };
    let goal = [client::Goal::Use, client::Goal::Use, client::Goal::Describe, client::Goal::List];
    let config = client::Config {
        goal: goal[usize::from(options & 3)],
        tls: [TlsPolicy::Off, TlsPolicy::Allowed, TlsPolicy::Required][usize::from((options >> 2) % 3)],
        structured_replies: options & 16 == 0,
        block_status: options & 32 == 0,
        exports_max: 64,
        ..client::Config::new("disk")
    };
    let whole = client_hears(said, &config, 0);
    let cut = client_hears(said, &config, usize::from(*piece).max(1));
    if whole.error.is_none() {
        assert_eq!(cut, whole, "how the bytes were cut changed something");
        // What an origin makes of them is an answer again, and no longer than the question.
        for one_extent in [false, true] {
            let mut list = ExtentList::new(4096, one_extent);
            for (length, flags) in &whole.extents {
                list.push(u64::from(*length), AllocationFlags(*flags));
            }
            let answer = list.into_bytes();
            let lengths: Vec<u32> = Extents::new(&answer).map(|extent| extent.length).collect();
            assert!(lengths.iter().all(|length| *length > 0) && lengths.iter().sum::<u32>() <= 4096);
            assert_eq!(lengths.is_empty(), whole.extents.is_empty());
            assert!(lengths.len() <= if one_extent { 1 } else { EXTENTS_MAX });
        }
    } else {
        // A chunk is judged as it comes: what was told before the mistake depends on the pieces.
        assert_eq!((cut.done, cut.error.is_some()), (whole.done, true));
    }
}

/// Requests that are read of one input at most: compressed ones may hold very many.
const TRACE_REQUESTS_MAX: usize = 100_000;

/// Traces of any format: the first byte names it, or lets it be detected; the second one sets the options.
pub fn trace_readers(input: &[u8]) {
    let [format, flags, bytes @ ..] = input else { return };
    let formats: Vec<Format> = forebay_trace::FORMATS.iter().map(|description| description.format).collect();
    let units = [TimeUnit::Nanoseconds, TimeUnit::Microseconds, TimeUnit::Milliseconds, TimeUnit::Seconds];
    let format = formats.get(usize::from(*format)).copied();
    let ids = [Ids::Sectors, Ids::Blocks, Ids::Objects, Ids::Sectors][usize::from(flags >> 1 & 3)];
    let options = ReadOptions {
        format,
        skip_malformed: if flags & 1 == 0 { 0 } else { 10 },
        ids: if format.is_none_or(Format::has_ids) { ids } else { Ids::Sectors },
        read_ahead: (flags & 8 != 0).then_some(ReadAhead::Exclude),
        time_unit: (flags & 16 != 0).then_some(units[usize::from(flags >> 5 & 3)]),
        ..ReadOptions::default()
    };
    // Some formats are several files, which are merged.
    let sources = if flags & 128 == 0 {
        vec![Source::new("trace", Cursor::new(bytes.to_vec()))]
    } else {
        let (first, second) = bytes.split_at(bytes.len() / 2);
        vec![
            Source::new("trace.0", Cursor::new(first.to_vec())),
            Source::new("trace.1", Cursor::new(second.to_vec())),
        ]
    };
    let Ok(mut reader) = TraceReader::open(sources, &options) else { return };
    let (mut batch, mut total) = (Vec::new(), 0);
    while total < TRACE_REQUESTS_MAX {
        let result = reader.next_batch(&mut batch);
        assert!(batch.len() <= BATCH_REQUESTS);
        for request in &batch {
            assert!(request.offset.checked_add(request.length).is_some(), "{request:?} has no end");
            assert!(!reader.volume_name(request.volume).is_empty());
        }
        total += batch.len();
        match result {
            Ok(0) => break,
            Ok(count) => assert_eq!(count, batch.len()),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert_eq!(reader.next_batch(&mut batch).ok(), Some(0), "a reader that failed goes on");
                break;
            }
        }
    }
}

/// Configurations: every problem names a line that exists (or a key that is missing, which has no line), and what was accepted passes its own check.
#[cfg(feature = "configuration")]
pub fn configuration(input: &[u8]) {
    use forebay_serve::config::Config;

    let text = String::from_utf8_lossy(input);
    match Config::parse("forebay.toml", &text, std::path::Path::new("/srv")) {
        Ok(config) => config.check().expect("what was read was checked"),
        Err(error) => {
            assert!(!error.problems.is_empty(), "refused for no reason");
            let lines = text.lines().count().max(1) + 1;
            for problem in &error.problems {
                assert!(problem.line.is_none_or(|line| (1..=lines).contains(&line)), "{problem:?}");
                // What is not there has no line, nor has a text that the parser gives up on.
                let is_absent = ["missing", "there is no"].iter().any(|word| problem.message.contains(word));
                assert!(problem.line.is_some() || is_absent || problem.key.is_empty(), "{problem:?}");
                assert!(!problem.message.is_empty());
            }
        }
    }
}
const FLASH_SETTINGS: TierSettings =
    TierSettings { segment_bytes: 4096, records: 2, device_id: 5, epoch_floor: 1 };
const FLASH_BYTES: usize = 16 * SECTOR;

/// A device that was stopped in order with twelve blocks of one volume on it, and the settings with which they are found again.
fn flash_in_order() -> (Vec<u8>, FlashVolumeSettings) {
    let device = Arc::new(MemoryFlash::new(vec![0; FLASH_BYTES]));
    let settings = FlashVolumeSettings {
        volume: VolumeId::new("disk", "fuzz"),
        stamp: Some(Stamp::Seen([1; 32])),
        read_only: false,
        block_size: BlockSize::new(Bytes(512)).expect("a power of two"),
        quota_segments: 6,
        seed: 1,
    };
    let (tier, _) = FlashTier::open(device.clone(), &FLASH_SETTINGS).expect("an empty device");
    let (mut partition, _) = tier.load(&settings).expect("a device without faults");
    for block in 0..12u64 {
        partition.append(BlockIndex(block), &[block as u8; 512]);
    }
    partition.seal_open();
    while let Some(write) = partition.take_write() {
        device.write(write.offset, &write.data).expect("a device without faults");
        partition.write_ended(write.sequence, true);
    }
    tier.save(partition, settings.stamp).expect("a device without faults");
    (device.read(0, FLASH_BYTES).expect("a device without faults"), settings)
}

/// Bytes that may be a snapshot are refused or yield ascending blocks, and what they yield is written and read again the same. The first
/// byte says whether a checksum that fits is put behind them: else none would ever get past that.
pub fn snapshot(input: &[u8]) {
    let Some((sealed, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if sealed % 2 == 1 {
        seal(&mut bytes);
    }
    let volume = VolumeId(u128::from_le_bytes(*b"a volume to fuzz"));
    let Ok(found) = Snapshot::parse(bytes, volume) else { return };
    let mut writer =
        SnapshotWriter::new(*found.header(), true).expect("the volume is no larger than what was accepted");
    let mut blocks = Vec::new();
    found.for_each(|block, score| {
        writer.push(block, score).expect("blocks ascend and lie within the volume");
        blocks.push((block, score));
    });
    assert_eq!(found.blocks(), blocks.len() as u64);
    let again = Snapshot::parse(writer.finish(), volume).expect("what is written is accepted");
    let mut place = 0;
    again.for_each(|block, score| {
        assert_eq!((block, score), blocks[place]);
        place += 1;
    });
    assert_eq!((place, again.header()), (blocks.len(), found.header()));
}

/// Sectors and indexes of rubbish are refused or mean something; a device with rubbish on it starts or says why not, and no block of it
/// reads as anything but what was written there.
pub fn flash(input: &[u8]) {
    let mut sector = input.to_vec();
    sector.resize(SECTOR, 0);
    if let Ok(found) = Superblock::decode(&sector) {
        assert_eq!(Superblock::decode(&found.encode()), Ok(found));
    }
    match Record::decode(&sector, 5, SECTOR as u64) {
        Ok(found) => assert_eq!(Record::decode(&found.encode(SECTOR as u64), 5, SECTOR as u64), Ok(found)),
        Err(error) => assert!(error != FormatError::Empty || input.iter().all(|byte| *byte == 0)),
    }
    if let Ok((header, payload)) = IndexHeader::decode(&sector) {
        assert_eq!(header.payload_bytes as usize, payload.len());
    }
    let (mut whole, mut cut) = (IndexReader::new(16), IndexReader::new(16));
    let (mut items, mut again) = (Vec::new(), Vec::new());
    let result = whole.read(input, |item| items.push(item));
    let in_pieces = input.chunks(7).try_for_each(|piece| cut.read(piece, |item| again.push(item)));
    assert_eq!((items, result.is_ok()), (again, in_pieces.is_ok()));
    assert_eq!(whole.finish().is_ok() && result.is_ok(), cut.finish().is_ok() && in_pieces.is_ok());

    // The input is a list of changes of a device in order: where (2 bytes), how many bytes (1), the bytes.
    let (mut bytes, settings) = flash_in_order();
    let mut rest = input;
    while let [low, high, length, more @ ..] = rest {
        let at = usize::from(u16::from_le_bytes([*low, *high]));
        let (change, next) = more.split_at(usize::from(*length).min(more.len()));
        let end = (at + change.len()).min(FLASH_BYTES);
        bytes[at..end].copy_from_slice(&change[..end - at]);
        rest = next;
    }
    let device = Arc::new(MemoryFlash::new(bytes));
    let Ok((tier, _)) = FlashTier::open(device.clone(), &FLASH_SETTINGS) else { return };
    let (mut partition, recovery) = tier.load(&settings).expect("a device without faults");
    assert!(matches!(recovery, Recovery::Kept { .. }) || partition.is_empty());
    for block in 0..16u64 {
        if let Some(address) = partition.address(BlockIndex(block)) {
            let first = address.offset / SECTOR as u64 * SECTOR as u64;
            let sector = device.read(first, SECTOR).expect("an address is on the device");
            let found = &sector[(address.offset - first) as usize..][..512];
            if partition.judge(BlockIndex(block), address, Some(found)) {
                assert_eq!(found, [block as u8; 512]);
            }
        }
    }
    // What was revoked is not found again.
    drop(partition);
    let (tier, _) = FlashTier::open(device, &FLASH_SETTINGS).expect("it was opened before");
    assert!(tier.load(&settings).expect("as before").0.is_empty());
}
