//! What is written is read back: everything in our own format, in the others what they can say.

use super::{open, read, read_all, request};
use forebay_trace::Operation::{Discard, Flush, Other, Read, Write};
use forebay_trace::{
    ForebayWriter, Format, Operation, ReadOptions, Request, TraceWriter, VolumeIndex, WriteFormat, Written,
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
    (any_number(), any_number(), any_number(), any_number(), 0..3u32, operation).prop_map(
        |(time, offset, length, latency, volume, operation)| Request {
            time: Nanos(time),
            offset,
            length: length.min(u64::MAX - offset),
            latency: Nanos(latency),
            volume: VolumeIndex(volume),
            operation,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn our_own_format_keeps_everything(requests in prop::collection::vec(any_request(), 0..200)) {
        let bytes = forebay(&requests, &names(3));
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
    assert_eq!(bytes[..16], *b"FBTRACE\n\x01\0\0\0\0\0\0\0");
    assert_eq!(bytes[16..25], [1, 1, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(bytes[33..35], [1, b'v']);
    assert_eq!(bytes[35..44], [2, 1, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(bytes[52..55], [0x51, 6, 8]);
    assert_eq!(bytes[55..64], [3, 0, 0, 0, 0, 8, 0, 0, 0]);
    assert_eq!(bytes[72..], [1, 0, 0, 0, 0, 0, 0, 0]);
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
        let mut requests = plain(1_000);
        let (bytes, written) = write(to, &requests, &volumes);
        assert_eq!(written, Written { requests: 10_000, left_out: 0, widened: 0 });
        let mut reader = open("x", &bytes, &ReadOptions::default()).unwrap();
        assert_eq!(reader.format(), from);
        if to == WriteFormat::Msr {
            // A response time that is not known is written as 0.
            requests.iter_mut().for_each(|request| request.latency = Nanos::ZERO);
        }
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
    assert_eq!(written(WriteFormat::Forebay), Written { requests: 5, left_out: 0, widened: 0 });
    assert_eq!(written(WriteFormat::Msr), Written { requests: 2, left_out: 3, widened: 0 });
    assert_eq!(written(WriteFormat::Spc), Written { requests: 2, left_out: 3, widened: 1 });
    assert_eq!(written(WriteFormat::FioIolog), Written { requests: 3, left_out: 2, widened: 0 });
    assert_eq!(written(WriteFormat::OracleGeneral), Written { requests: 1, left_out: 4, widened: 1 });
    // 700 = sector 1 and 188 bytes: from byte 512, 700 bytes.
    assert_eq!(
        String::from_utf8(write(WriteFormat::Spc, &requests[3..4], &names(1)).0).unwrap(),
        "0,1,700,R,0.000000000\n"
    );
}

#[test]
fn two_volumes_never_become_one() {
    let clash = ["a b".to_owned(), "a_b".to_owned()];
    let mut writer = TraceWriter::new(WriteFormat::FioIolog, Vec::new()).unwrap();
    let error = writer.write(&[], &clash).unwrap_err().to_string();
    assert!(error.contains("`a b` and `a_b`"), "{error}");
}
