//! What is written is read back: everything in our own format, in the others what they can say.

use super::{open, read, read_all, request};
use forebay_trace::Operation::{Discard, Flush, Other, Read, Write};
use forebay_trace::{
    ForebayWriter, Format, Operation, ReadOptions, Request, ThreadNumber, TraceWriter, VolumeIndex,
    WRITE_FORMATS, WriteFormat, Written,
};
use forebay_units::Nanos;
use proptest::prelude::*;

fn names(count: u32) -> Vec<String> {
    (0..count).map(|n| format!("web_{n}")).collect()
}

fn forebay(requests: &[Request], volumes: &[String]) -> Vec<u8> {
    let mut writer = ForebayWriter::new(Vec::new()).unwrap();
    writer.write(requests, volumes).unwrap();
    writer.finish().unwrap()
}

fn write(format: WriteFormat, requests: &[Request], volumes: &[String]) -> (Vec<u8>, Written) {
    let mut writer = TraceWriter::new(format, Vec::new()).unwrap();
    writer.write(requests, volumes).unwrap();
    writer.finish().unwrap()
}

fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), Just(1 << 63), any::<u64>(), 0..10_000u64]
}

fn any_request() -> impl Strategy<Value = Request> {
    let operation = prop::sample::select(vec![Read, Write, Flush, Discard, Other]);
    let who = (0..3u32, 0..4u16);
    (any_number(), any_number(), any_number(), any_number(), who, operation).prop_map(
        |(time, offset, length, latency, (volume, thread), operation)| Request {
            time: Nanos(time),
            offset,
            length: length.min(u64::MAX - offset).min(if operation == Discard { u64::MAX } else { 64 << 30 }),
            latency: Nanos(latency),
            volume: VolumeIndex(volume),
            thread: ThreadNumber(thread),
            operation,
        },
    )
}

/// Gives threads the numbers 1, 2, ... in the order of their first requests, as readers do.
fn number_threads(requests: &mut [Request]) {
    let mut seen = Vec::new();
    for request in requests.iter_mut().filter(|request| request.thread != ThreadNumber::UNKNOWN) {
        let at = seen.iter().position(|&thread| thread == request.thread).unwrap_or_else(|| {
            seen.push(request.thread);
            seen.len() - 1
        });
        request.thread = ThreadNumber(at as u16 + 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn our_own_format_keeps_everything(mut requests in prop::collection::vec(any_request(), 0..200)) {
        let bytes = forebay(&requests, &names(3));
        number_threads(&mut requests);
        let (found, volumes) = read(Format::Forebay, &bytes).unwrap();
        prop_assert_eq!(found, requests);
        prop_assert_eq!(volumes, names(3));
    }

    #[test]
    fn damage_and_truncation_of_our_own_format_are_noticed(
        requests in prop::collection::vec(any_request(), 1..40), at in any::<prop::sample::Index>(), bit in 0..8u32,
    ) {
        let bytes = forebay(&requests, &names(3));
        let at = at.index(bytes.len());
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << bit;
        prop_assert!(read(Format::Forebay, &damaged).is_err(), "byte {} of {}", at, bytes.len());
        prop_assert!(read(Format::Forebay, &bytes[..at]).is_err(), "cut at {} of {}", at, bytes.len());
    }
}

#[test]
fn many_blocks_volumes_that_appear_late_and_compression() {
    let requests: Vec<Request> = (0..20_000u64)
        .map(|n| request(n * 1_000, (n / 8_000) as u32, Operation::Read, n * 4096, 4096))
        .collect();
    let mut writer = ForebayWriter::new(zstd::Encoder::new(Vec::new(), 3).unwrap()).unwrap();
    for (n, part) in requests.chunks(8_000).enumerate() {
        writer.write(part, &names(n as u32 + 1)).unwrap();
    }
    let bytes = writer.finish().unwrap().finish().unwrap();
    let mut reader = open("x.fbt.zst", &bytes, &ReadOptions::default()).unwrap();
    assert_eq!(read_all(&mut reader).unwrap(), requests);
    assert_eq!(reader.volumes(), names(3));
    // Sequential requests of one length cost a flag byte and a time: 3 bytes, and block overhead.
    assert!(forebay(&requests, &names(3)).len() < 20_000 * 4);
    // A volume that is not named is the caller's fault.
    assert!(ForebayWriter::new(Vec::new()).unwrap().write(&requests, &[]).is_err());
}

#[test]
fn the_layout_is_as_documented() {
    // One request: flags = write (1) | same volume (16) | sequential (64) = 81 = 0x51, time zigzag(3) = 6, length 8.
    let bytes = forebay(&[request(3, 0, Write, 0, 8)], &["v".to_owned()]);
    assert_eq!(bytes[..16], *b"FBTRACE\n\x02\0\0\0\0\0\0\0");
    assert_eq!(bytes[16..25], [1, 1, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(bytes[33..35], [1, b'v']);
    assert_eq!(bytes[35..44], [2, 1, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(bytes[52..55], [0x51, 6, 8]);
    assert_eq!(bytes[55..64], [3, 0, 0, 0, 0, 8, 0, 0, 0]);
    assert_eq!(bytes[72..], [1, 0, 0, 0, 0, 0, 0, 0]);
    // Another thread than before: bit 7 (128), and its number as the last field.
    let of_a_thread = Request { thread: ThreadNumber(5), ..request(3, 0, Write, 0, 8) };
    let bytes = forebay(&[of_a_thread, of_a_thread], &["v".to_owned()]);
    // The second one: flags = write | same volume | same length (32), 8 back from the end of the first (zigzag 15).
    assert_eq!(bytes[52..59], [0xd1, 6, 8, 5, 0x31, 0, 15]);
}

/// A file of version 1, as the forebay of that time wrote it: the same but for threads, which it did not know.
#[test]
fn version_1_is_still_read() {
    let expected = [request(3, 0, Write, 0, 8), request(5, 0, Read, 8, 8)];
    let mut bytes = forebay(&expected, &["v".to_owned()]);
    bytes[8] = 1;
    assert_eq!(read(Format::Forebay, &bytes).unwrap().0, expected);
    let mut of_a_thread = forebay(&[Request { thread: ThreadNumber(1), ..expected[0] }], &["v".to_owned()]);
    of_a_thread[8] = 1;
    let error = read(Format::Forebay, &of_a_thread).unwrap_err().to_string();
    assert!(error.contains("flags 0xd1"), "{error}");
    bytes[8] = 3;
    let error = read(Format::Forebay, &bytes).unwrap_err().to_string();
    assert!(error.contains("version 3") && error.contains("version 1 to 2"), "{error}");
}

/// Threads of several files are different ones, whatever their numbers in the files; those of one file stay the same.
#[test]
fn threads_of_several_files_are_told_apart() {
    let of = |time, thread| Request { thread: ThreadNumber(thread), ..request(time, 0, Read, 0, 512) };
    let file = |times: [u64; 3], threads: [u16; 3]| {
        let requests: Vec<Request> =
            times.into_iter().zip(threads).map(|(time, thread)| of(time, thread)).collect();
        forebay_trace::Source::new("x", std::io::Cursor::new(forebay(&requests, &["v".to_owned()])))
    };
    let sources = vec![file([0, 2, 4], [7, 0, 7]), file([1, 3, 5], [7, 2, 7])];
    let mut reader = forebay_trace::TraceReader::open(sources, &ReadOptions::default()).unwrap();
    let threads: Vec<u16> = read_all(&mut reader).unwrap().iter().map(|request| request.thread.0).collect();
    // Each file's threads, in the order in which they were decoded.
    assert_eq!(threads, [1, 2, 0, 3, 1, 2]);
}

#[test]
fn a_trace_of_more_threads_than_there_are_numbers_is_still_read() {
    let mut text = String::new();
    for process in 0..70_000 {
        text += &format!("{process} {process} x 8 8 W 8 0 -\n");
    }
    text += "70000 0 x 8 8 W 8 0 -\n";
    let (requests, _) = read(Format::Fiu, text.as_bytes()).unwrap();
    let threads: Vec<u16> = requests.iter().map(|request| request.thread.0).collect();
    assert_eq!((threads[0], threads[65_534], threads[65_535], threads[70_000]), (1, 65_535, 0, 1));
}

/// Requests that every format can say: whole microseconds... but for oracleGeneral whole seconds.
fn plain(step: u64) -> Vec<Request> {
    (0..10_000u64)
        .map(|n| {
            let operation = if n % 3 == 0 { Write } else { Read };
            request(n * step, (n % 2) as u32, operation, (n * 7919 % 1000) * 512, 512 * (1 + n % 9))
        })
        .collect()
}

#[test]
fn other_formats_read_back_what_they_can_say() {
    let volumes = names(2);
    for (to, from) in [
        (WriteFormat::Msr, Format::Msr),
        (WriteFormat::Spc, Format::Spc),
        (WriteFormat::FioIolog, Format::FioIolog),
    ] {
        let requests = plain(1_000);
        let (bytes, written) = write(to, &requests, &volumes);
        assert_eq!(written, Written { requests: 10_000, ..Written::default() });
        let mut reader = open("x", &bytes, &ReadOptions::default()).unwrap();
        assert_eq!(reader.format(), from);
        assert_eq!(read_all(&mut reader).unwrap(), requests);
        assert_eq!(
            reader.volumes(),
            if to == WriteFormat::Spc { vec!["asu0".into(), "asu1".into()] } else { volumes.clone() }
        );
    }
}

#[test]
fn oracle_general_knows_the_next_access() {
    let requests = plain(1_000_000_000);
    let (bytes, _) = write(WriteFormat::OracleGeneral, &requests, &names(2));
    let mut reader = open("x", &bytes, &ReadOptions::default()).unwrap();
    let found = read_all(&mut reader).unwrap();
    assert_eq!((reader.format(), found.len()), (Format::OracleGeneral, 10_000));
    for (n, (found, request)) in found.iter().zip(&requests).enumerate() {
        let expected = request.offset + (u64::from(request.volume.0) << 44) * 512;
        assert_eq!((found.time, found.offset, found.length), (request.time, expected, request.length));
        let next = i64::from_le_bytes(bytes[n * 24 + 16..n * 24 + 24].try_into().unwrap());
        let same = |later: &Request| (later.volume, later.offset) == (request.volume, request.offset);
        let naive = requests[n + 1..].iter().position(same).map_or(-1, |at| (n + 1 + at) as i64);
        assert_eq!(next, naive, "request {n}");
    }
}

#[test]
fn what_a_format_cannot_say_is_counted() {
    let requests = [
        request(0, 0, Flush, 0, 0),
        request(0, 0, Other, 0, 512),
        request(0, 0, Discard, 0, 512),
        request(0, 0, Read, 700, 512),
        request(0, 0, Read, 512, 0),
    ];
    let written = |format| write(format, &requests, &names(1)).1;
    assert_eq!(written(WriteFormat::Forebay), Written { requests: 5, ..Written::default() });
    assert_eq!(written(WriteFormat::Msr), Written { requests: 2, left_out: 3, ..Written::default() });
    assert_eq!(
        written(WriteFormat::Spc),
        Written { requests: 2, left_out: 3, widened: 1, ..Written::default() }
    );
    assert_eq!(written(WriteFormat::FioIolog), Written { requests: 3, left_out: 2, ..Written::default() });
    assert_eq!(
        written(WriteFormat::OracleGeneral),
        Written { requests: 1, left_out: 4, widened: 1, ..Written::default() }
    );
    let of_a_thread = requests.map(|request| Request { thread: ThreadNumber(1), ..request });
    let lost = |format| write(format, &of_a_thread, &names(1)).1.threads_lost;
    assert_eq!((lost(WriteFormat::Forebay), lost(WriteFormat::Msr)), (0, 5));
    let timed = requests.map(|request| Request { latency: Nanos::millis(1), ..request });
    let lost = WRITE_FORMATS.map(|(format, _)| write(format, &timed, &names(1)).1.latencies_lost);
    assert_eq!(lost, [0, 0, 5, 5, 5]);
    let late = requests.map(|request| Request { time: Nanos(1_000_000_123), ..request });
    let cut = WRITE_FORMATS.map(|(format, _)| write(format, &late, &names(1)).1.times_cut);
    assert_eq!(cut, [0, 5, 0, 5, 5]);
    let both = [request(0, 0, Read, 0, 512), request(0, 0, Write, 0, 512), request(0, 0, Write, 512, 512)];
    let lost = WRITE_FORMATS.map(|(format, _)| write(format, &both, &names(1)).1.operations_lost);
    assert_eq!(lost, [0, 0, 0, 0, 2]);
    // 700 = sector 1 and 188 bytes: from byte 512, 700 bytes.
    assert_eq!(
        String::from_utf8(write(WriteFormat::Spc, &requests[3..4], &names(1)).0).unwrap(),
        "0,1,700,R,0.000000000\n"
    );
}

/// Longer ones would keep whoever takes them apart into blocks busy for hours.
#[test]
fn a_request_of_more_than_64_gib_is_neither_written_nor_read() {
    const LONGEST: u64 = 64 << 30;
    let of = |operation, length| [request(0, 0, operation, 0, length)];
    let mut writer = TraceWriter::new(WriteFormat::Forebay, Vec::new()).unwrap();
    let error = writer.write(&of(Read, LONGEST + 1), &names(1)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("more than 68719476736"), "{error}");
    for length in [LONGEST, LONGEST + 1] {
        let (mut file, _) = write(WriteFormat::Forebay, &of(Discard, length), &names(1));
        assert_eq!(read(Format::Forebay, &file).unwrap().0, of(Discard, length));
        // The header, the block of the one name (17 bytes and that), and then the block of the request: it becomes a read.
        let at = 16 + 17 + u32::from_le_bytes(file[21..25].try_into().unwrap()) as usize;
        let payload =
            at + 17..at + 17 + u32::from_le_bytes(file[at + 5..at + 9].try_into().unwrap()) as usize;
        assert_eq!(file[payload.start] & 7, 3);
        file[payload.start] &= !7;
        let checked = [&file[at..at + 9], &file[payload]].concat();
        file[at + 9..at + 17].copy_from_slice(&xxhash_rust::xxh3::xxh3_64(&checked).to_le_bytes());
        match read(Format::Forebay, &file) {
            Ok((requests, _)) => assert_eq!((requests, length), (of(Read, LONGEST).to_vec(), LONGEST)),
            Err(error) => {
                assert_eq!(length, LONGEST + 1);
                assert!(error.to_string().contains("at most 68719476736"), "{error}");
            }
        }
    }
}

#[test]
fn two_volumes_never_become_one() {
    let clash = ["a b".to_owned(), "a_b".to_owned()];
    let mut writer = TraceWriter::new(WriteFormat::FioIolog, Vec::new()).unwrap();
    let error = writer.write(&[], &clash).unwrap_err().to_string();
    assert!(error.contains("`a b` and `a_b`"), "{error}");
}
