//! Formats told by content.

use super::{open, read_all};
use forebay_trace::{DetectError, Format, ReadOptions, Source, TraceError, TraceReader, detect};
use std::io::Cursor;

#[test]
fn heads_that_are_no_trace_are_refused_with_what_was_tried() {
    assert_eq!(detect(b"", None), Err(DetectError::Empty));
    let garbage: Vec<u8> = (0..5_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    for head in [
        &garbage[..],
        b"\0",
        b"\x7fELF\x02\x01\x01\0",
        b"hello",
        b"\n\n\n",
        b"a,b,c,d,e,f,g\n",
        b"{\"a\": 1}",
        &[0; 4],
    ] {
        let error = detect(head, Some("some.bin")).unwrap_err();
        assert!(matches!(error, DetectError::Unknown { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("fio-iolog") && message.contains("--format"), "{message}");
    }
}

#[test]
fn a_line_or_a_header_is_enough_where_it_says_enough() {
    for (head, format) in [
        (&b"128166385295514663,hm,0,Write,9056014336,2048,2833"[..], Format::Msr),
        (b"0,303567,3584,w,0.000000\n", Format::Spc),
        (b"419,W,8792731648,16384,1577808144360767\n", Format::Alibaba),
        (b"1538323200,4247200,128,1,1058", Format::Tencent),
        (b"Timestamp,Response,IOType,LUN,Offset,Size\n", Format::Systor17),
        (b"1456095145.133076000,0.000806000,R,0,4096,512\n", Format::Systor17),
        (b"op_time,block_id,block_id_size,io_size\n", Format::CachelibCsv),
        (b"fio version 3 iolog\n", Format::FioIolog),
        (b"\xef\xbb\xbffio version 2 iolog\r\n", Format::FioIolog),
        (b"4423 3 my own process 5103 16 W 8 1 0d41d8cd98f0\n", Format::Fiu),
        (b"  8,16   5        1     0.000000000 18615  A   R 8 + 8 <- (8,17) 0\n", Format::Blkparse),
        (b"0.1 ; 8 ; 16 ; RA ; 0.0 ; 0.0\n", Format::Blkreplay),
        (b"1 2 nfsd 680 8 W 6 0 b5e9\n", Format::Fiu),
        (b"1 8 0 0\n", Format::ArcLis),
        (b"17\n*\n", Format::Lirs),
        (b"5265.313 0 6357144 8 0\n", Format::Disksim),
        (b"FBTRACE\n\x01\0\0\0\0\0\0\0", Format::Forebay),
    ] {
        assert_eq!(detect(head, None), Ok(format), "{}", String::from_utf8_lossy(head));
    }
}

/// Small serial numbers, times and lengths: nothing in them but the version could not be in a record of libCacheSim.
#[test]
fn a_young_vscsi_trace_is_told_by_the_version_in_each_record() {
    let record = |number: u64| {
        let mut bytes = Vec::new();
        bytes.extend(0x2au16.to_le_bytes());
        bytes.extend(0x0200u16.to_le_bytes());
        for field in [number as u32, 4096, 1] {
            bytes.extend(field.to_le_bytes());
        }
        for field in [number * 8, number * 1_000, 250] {
            bytes.extend(field.to_le_bytes());
        }
        bytes
    };
    for count in [1, 2, 3, 200] {
        let trace: Vec<u8> = (0..count).flat_map(record).collect();
        assert_eq!(detect(&trace, Some("some.bin")), Ok(Format::Vscsi), "{count} records");
    }
    // Two records of oracleGeneral, of which the first 32 bytes could be one of version 1.
    let mut records = Vec::new();
    for id in [1u64, 2] {
        records.extend(id.to_le_bytes()[..4].iter());
        records.extend(id.to_le_bytes());
        records.extend((16u32 << 20).to_le_bytes());
        records.extend((-1i64).to_le_bytes());
    }
    assert!(matches!(detect(&records, None), Err(DetectError::Ambiguous { .. })));
}

/// Six small block numbers could be a record of oracleGeneral, but for its next access, billions of requests away.
#[test]
fn small_block_numbers_are_not_taken_for_records_of_libcachesim() {
    let loops = |blocks: u32| -> Vec<u8> {
        (0..15_858u32).flat_map(|at| (at % blocks * 3 % blocks).to_le_bytes()).collect()
    };
    for blocks in [50, 100, 256] {
        let trace = loops(blocks);
        let error = detect(&trace, Some("l.bin")).unwrap_err();
        let both = DetectError::Ambiguous { candidates: vec![Format::OracleGeneral, Format::LbnU32Le] };
        assert_eq!(error, both, "{blocks} blocks");
        assert_eq!(detect(&trace, Some("l.lbn-u32le")), Ok(Format::LbnU32Le));
        assert_eq!(detect(&trace, Some("l.oracleGeneral.bin")), Ok(Format::OracleGeneral));
    }
    // A loop of libCacheSim's, in which everything is used again, and a trace in which nothing is.
    for next in [|at: u64| at + 100, |_| u64::MAX, |_| i64::MAX as u64] {
        let record = |at: u64| {
            let (time, id, next) =
                ((at as u32).to_le_bytes(), (at % 100).to_le_bytes(), next(at).to_le_bytes());
            [&time[..], &id, &512u32.to_le_bytes(), &next].concat()
        };
        let trace: Vec<u8> = (0..300).flat_map(record).collect();
        assert_eq!(detect(&trace, Some("l.bin")), Ok(Format::OracleGeneral));
    }
}

#[test]
fn damage_in_the_head_is_reported_with_its_place() {
    let good = "128166385295514663,hm,0,Write,9056014336,2048,2833\n";
    for (bad, found) in
        [("garbage\n", "`garbage` as timestamp"), ("128,hm,0,Write,5\0,2048,1\n", "`5\\u{0}` as offset")]
    {
        for text in [[good, bad, good].concat(), [good, good, good, bad].concat()] {
            let mut reader = open("hm_0.csv", text.as_bytes(), &ReadOptions::default()).unwrap();
            let error = read_all(&mut reader).unwrap_err().to_string();
            let line = 1 + text.lines().position(|line| line == bad.trim_end()).unwrap();
            assert!(error.starts_with(&format!("`hm_0.csv`, line {line}: found {found}")), "{error}");
        }
    }
    let record = |version: u8| {
        let mut record = [0u8; 32];
        (record[12], record[15]) = (0x28, version);
        record
    };
    let bytes = [1, 1, 1, 7, 1].map(record).concat();
    let error =
        open("x", &bytes, &ReadOptions::default()).and_then(|mut reader| read_all(&mut reader)).unwrap_err();
    assert!(error.to_string().contains("byte offset 96: found version 7"), "{error}");
}

#[test]
fn the_name_decides_only_where_content_cannot() {
    // One line whose numbers are multiples of 512: sectors or bytes?
    let head = b"0.000 0 200626176 4096 0\n";
    assert_eq!(
        detect(head, Some("x.trace")),
        Err(DetectError::Ambiguous { candidates: vec![Format::Disksim, Format::MsDev] })
    );
    assert_eq!(detect(head, Some("a/x.disksim.trace")), Ok(Format::Disksim));
    assert_eq!(detect(head, Some("msr.cut.trace")), Ok(Format::MsDev));
    assert_eq!(detect(&head.repeat(4), None), Ok(Format::MsDev));
    // Block numbers look like anything.
    let numbers: Vec<u8> = (0..100u32).flat_map(|n| (n * 77).to_le_bytes()).collect();
    assert!(matches!(detect(&numbers, Some("x.bin")), Err(DetectError::Unknown { .. })));
    assert_eq!(detect(&numbers, Some("w106.lbn-u32le.zst")), Ok(Format::LbnU32Le));
    // A name does not make a trace of what is none.
    assert!(detect(b"hello", Some("x.msr")).is_err());
}

#[test]
fn prose_before_records_may_look_like_what_comes_behind_others() {
    let head = "recorded on a web server\nCPU: 4 cores\nby somebody (2012)\n\
                start ; sector; length ; op ;  replay_delay=0 ; replay_duration=0\n0.1 ; 8 ; 16 ; R ; 0.0 ; 0.0\n";
    assert_eq!(detect(head.as_bytes(), None), Ok(Format::Blkreplay));
}

#[test]
fn sources_of_one_trace_have_one_format() {
    let sources = vec![
        Source::new("a.csv", Cursor::new(&b"128166385295514663,hm,0,Write,9056014336,2048,2833\n"[..])),
        Source::new("b.trace", Cursor::new(&b"17\n"[..])),
    ];
    let error = TraceReader::open(sources, &ReadOptions::default()).unwrap_err();
    assert!(matches!(error, TraceError::MixedFormats { .. }), "{error}");
    assert!(matches!(TraceReader::open(Vec::new(), &ReadOptions::default()), Err(TraceError::NoSources)));
    let options = ReadOptions { format: Some(Format::Lirs), ..ReadOptions::default() };
    assert!(matches!(TraceReader::open(Vec::new(), &options), Err(TraceError::NoSources)));
    // The file of a processor that had nothing to do is empty; it may be the first one.
    let busy = b"128166385295514663,hm,0,Write,9056014336,2048,2833\n";
    let sources = |contents: &[&'static [u8]]| -> Vec<Source> {
        contents.iter().map(|content| Source::new("x.csv", Cursor::new(*content))).collect()
    };
    for contents in [[&b""[..], busy, b""], [busy, b"", b""], [b"", b"", busy]] {
        let mut reader = TraceReader::open(sources(&contents), &ReadOptions::default()).unwrap();
        assert_eq!((reader.format(), read_all(&mut reader).unwrap().len()), (Format::Msr, 1));
    }
    let error = TraceReader::open(sources(&[b"", b""]), &ReadOptions::default()).unwrap_err();
    assert!(matches!(error, TraceError::Detect { error: DetectError::Empty, .. }), "{error}");
    // An empty file of a named format is an empty trace.
    assert_eq!(read_all(&mut open("x", b"", &options).unwrap()).unwrap(), []);
}
