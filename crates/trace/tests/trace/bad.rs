//! Input that is wrong: every error names the file, the place, what was found and what was expected, and nothing
//! panics or hangs.

use super::{open, read, read_all, read_with};
use forebay_trace::{FORMATS, Format, Position, ReadOptions, Source, TraceError, TraceInfo, TraceReader};
use proptest::prelude::*;
use std::io::{self, Cursor, Read};

/// One good record or line of each text format.
const GOOD_LINES: [(Format, &str); 13] = [
    (Format::Msr, "128166385295514663,hm,0,Write,9056014336,2048,2833"),
    (Format::Spc, "0,303567,3584,w,0.000000"),
    (Format::Alibaba, "419,W,8792731648,16384,1577808144360767"),
    (Format::Tencent, "1538323200,4247200,128,1,1058"),
    (Format::Systor17, "1456095145.133076000,0.000806000,R,0,4096,512"),
    (Format::Fiu, "89966527996712 4253 nfsd 680 8 W 6 0 b5e9"),
    (Format::Blkparse, "  8,16   5        2     0.000001850 18615  Q   R 1444645666 + 256 [java]"),
    (Format::Blkreplay, "0.000000000 ;    481999264 ;   16 ; R ; 0.0 ; 0.0"),
    (Format::Disksim, "5265.313 0 6357144 8 0"),
    (Format::MsDev, "223.412 0 3159347200 36864 0"),
    (Format::ArcLis, "230027 8 0 0"),
    (Format::Lirs, "2819"),
    (Format::FioIolog, "/dev/sdb write 64757760 4096"),
];

/// What must stand before the first record.
fn header(format: Format) -> &'static str {
    match format {
        Format::FioIolog => "fio version 2 iolog\n",
        _ => "",
    }
}

/// The error of `line`, which stands in line 3 behind a good one (or 4 with a header).
fn error_of(format: Format, line: &[u8]) -> TraceError {
    let good =
        GOOD_LINES.iter().find(|(other, _)| *other == format).expect("a good line of each text format").1;
    let text = [header(format).as_bytes(), good.as_bytes(), b"\n\n", line, b"\n", good.as_bytes()].concat();
    let place = 3 + u64::from(!header(format).is_empty());
    let error = read(format, &text).expect_err("a malformed line must be an error");
    match &error {
        TraceError::Malformed { file, position, .. } => {
            assert_eq!((file.as_str(), *position), ("dir/some.trace.gz", Position::Line(place)), "{error}");
        }
        other => panic!("{other}"),
    }
    // The same line is skipped and counted where one may be.
    let options = ReadOptions { format: Some(format), skip_malformed: 1, ..ReadOptions::default() };
    let mut reader = open("x", &text, &options).unwrap();
    let requests = read_all(&mut reader).unwrap();
    assert_eq!((requests.len(), reader.skipped()), (2, 1), "{error}");
    error
}

#[test]
fn lines_that_are_wrong_in_every_text_format() {
    for (format, good) in GOOD_LINES {
        assert_eq!(read(format, [header(format), good].concat().as_bytes()).unwrap().0.len(), 1, "{format}");
        for bad in [&b"12,garbage"[..], b"1\0", b"9\xff\xfe", b"-5 -5 -5 -5", b"99999999999999999999999999"] {
            let message = error_of(format, bad).to_string();
            assert!(message.contains("found") && message.contains("expected"), "{message}");
        }
        let long = vec![b'1'; 100_000];
        assert!(error_of(format, &long).to_string().contains("more than 16384 bytes"));
        // A record without its last field; one field is all that LIRS has, and SPC's last may be anything.
        if let Some((cut, _)) = good.rsplit_once([' ', ',', ';'])
            && !matches!(format, Format::Blkparse | Format::Blkreplay)
        {
            error_of(format, cut.trim_end().as_bytes());
        }
    }
}

#[test]
fn each_field_says_what_is_wrong_with_it() {
    for (format, line, found) in [
        (Format::Msr, "1,hm,0,Erase,0,512,0", "`Erase` as type"),
        (Format::Msr, "1,hm,0,Read,x,512,0", "`x` as offset"),
        (Format::Msr, "1,hm,0,Read,0,-512,0", "`-512` as size"),
        (Format::Msr, "18446744073709551615,hm,0,Read,0,512,0", "`18446744073709551615` as timestamp"),
        (Format::Msr, "1,hm,0,Read,18446744073709551615,512,0", "512 bytes from byte 18446744073709551615"),
        (Format::Msr, "1,hm,0,Read,0,512,0,7", "`7` as eighth field"),
        (Format::Spc, "0,18446744073709551615,512,R,0.1", "`18446744073709551615` as LBA"),
        (Format::Spc, "0,1,512,R,-0.1", "`-0.1` as timestamp"),
        (Format::Spc, "0,1,512,R,1e999", "`1e999` as timestamp"),
        (Format::Spc, "0,1,512,X,0.1", "`X` as opcode"),
        (Format::Tencent, "1,2,3,4,5", "`4` as I/O type"),
        (Format::Alibaba, "1,R,0,99999999999999,1", "99999999999999 bytes from byte 0"),
        (Format::Fiu, "1 2 nfsd 680 8 W 6 b5", "`1 2 nfsd 680 8 W 6 b5`"),
        (Format::Blkparse, "8,16 5 2 0.1 1 Q R 8 - 8 [x]", "`-` as separator"),
        (Format::Blkparse, "816 5 2 0.1 1 Q R 8 + 8 [x]", "`816` as device"),
        (Format::Blkreplay, "0.1 ; 8 ; 16 ; X ; 0 ; 0", "`X` as operation"),
        (Format::Blkreplay, "a ; b", "`a ; b`"),
        (Format::FioIolog, "/dev/sdb paint 0 0", "`paint` as action"),
        (Format::MsDev, "1.0 0 0 512 2", "`2` as type"),
        (Format::ArcLis, "4503599627370496 8 0 0", "`4503599627370496` as page"),
        (Format::Lirs, "**", "`**` as page"),
    ] {
        let message = error_of(format, line.as_bytes()).to_string();
        assert!(message.contains(&format!("found {found}, expected ")), "{message}");
    }
}

#[test]
fn more_malformed_records_than_allowed_are_an_error() {
    let text = b"1\nx\n2\ny\n3\nz\n";
    let options = ReadOptions { format: Some(Format::Lirs), skip_malformed: 2, ..ReadOptions::default() };
    let mut reader = open("x", text, &options).unwrap();
    let error = read_all(&mut reader).unwrap_err();
    assert!(
        error.to_string().contains("line 6")
            && error.to_string().contains("2 malformed records were skipped"),
        "{error}"
    );
    assert_eq!(reader.skipped(), 2);
    // A reader that failed has ended.
    assert_eq!(reader.next_batch(&mut Vec::new()).unwrap(), 0);
}

#[test]
fn binary_records_that_are_cut_or_wrong() {
    for (format, bytes, found, expected) in [
        (Format::OracleGeneral, vec![0; 30], "only 6 bytes at the end", "24 bytes"),
        (Format::OracleGeneralOpNs, vec![0; 28], "only 1 bytes at the end", "27 bytes"),
        (Format::LbnU32Le, vec![0; 7], "only 3 bytes at the end", "4 bytes"),
        (Format::Vscsi, vec![1; 31], "only 31 bytes at the end", "32 bytes"),
        (Format::Vscsi, vec![9; 64], "version 9", "version 1"),
        (Format::Blktrace, vec![0x65; 60], "0x65656565 as magic number", "0x65617407"),
        (Format::Blktrace, b"\x07\x74\x61\x65abc".to_vec(), "only 7 bytes at the end", "48 bytes"),
        (Format::Lcs, vec![0xf0; 100], "only 100 bytes", "8,192 bytes"),
        (Format::Forebay, b"FBTRACE\n".to_vec(), "only 8 bytes", "16 bytes"),
        (Format::Forebay, b"FBTRACE\n\x03\0\0\0\0\0\0\0".to_vec(), "version 3", "version 1 to 2"),
        (
            Format::FioIolog,
            b"/dev/sdb write 0 512\n".to_vec(),
            "`/dev/sdb write 0 512`",
            "`fio version 2 iolog`",
        ),
        (Format::FioIolog, b"fio version 1 iolog\n".to_vec(), "`fio version 1 iolog`", "version 3"),
        (Format::CachelibCsv, b"op_time,block_id\n".to_vec(), "without `io_offset`", "columns"),
    ] {
        let message = read(format, &bytes).unwrap_err().to_string();
        assert!(message.contains(found) && message.contains(expected), "{format}: {message}");
    }
}

#[test]
fn an_ending_in_the_data_of_a_blktrace_record() {
    let mut record = vec![0u8; 48];
    record[..4].copy_from_slice(&0x6561_7407u32.to_le_bytes());
    record[46] = 9;
    record.extend([0; 3]);
    let message = read(Format::Blktrace, &record).unwrap_err().to_string();
    assert!(message.contains("byte offset 0: found only 3 bytes behind the record"), "{message}");
}

#[test]
fn corrupt_compression_names_the_stream() {
    let text = "1\n".repeat(50_000);
    let whole = zstd::encode_all(text.as_bytes(), 1).unwrap();
    let options = ReadOptions { format: Some(Format::Lirs), skip_malformed: 100, ..ReadOptions::default() };
    let error = read_with(&whole[..whole.len() - 3], &options).unwrap_err();
    assert!(matches!(error, TraceError::Corrupt { encoding: "zstd", .. }), "{error}");
    assert!(error.to_string().contains("corrupt zstd stream after"), "{error}");
}

/// A reader that fails after its bytes.
struct Failing(Cursor<Vec<u8>>);

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::Error::other("the disk is gone")),
            count => Ok(count),
        }
    }
}

#[test]
fn a_failing_reader_is_no_end_of_file() {
    let source = Source::new("x", Failing(Cursor::new(b"1\n".repeat(1_000))));
    let result = TraceReader::open(vec![source], &ReadOptions::default());
    let error = result.and_then(|mut reader| read_all(&mut reader)).unwrap_err();
    assert!(matches!(error, TraceError::Read { offset: 2_000, .. }), "{error}");
    assert!(error.to_string().contains("the disk is gone"), "{error}");
}

#[test]
fn volumes_without_end_are_taken_for_a_wrong_format() {
    let text: String = (0..(1 << 20) + 1).map(|n| format!("{n},R,0,512,1\n")).collect();
    let error = read(Format::Alibaba, text.as_bytes()).unwrap_err();
    assert!(matches!(error, TraceError::TooManyVolumes { .. }), "{error}");
}

/// Reads to the end or the error, and takes what was read through everything that follows; must not panic.
fn read_anything(bytes: &[u8], format: Option<Format>) {
    let options = ReadOptions { format, skip_malformed: 3, ..ReadOptions::default() };
    if let Ok(mut reader) = open("x", bytes, &options) {
        let _ = TraceInfo::of(&mut reader);
    }
}

/// A small valid trace of each text format and of some binary ones.
fn valid(format: Format) -> Vec<u8> {
    match GOOD_LINES.iter().find(|(other, _)| *other == format) {
        Some((_, line)) => [header(format), &format!("{line}\n").repeat(5)].concat().into_bytes(),
        None => {
            let mut bytes = vec![0u8; 8192 + 400];
            let magic = match format {
                Format::Blktrace => 0x6561_7407u64,
                _ => 0x1234_5678_9abc_def0,
            };
            bytes[..8].copy_from_slice(&magic.to_le_bytes());
            bytes[8..16].copy_from_slice(&3u64.to_le_bytes());
            bytes[8184..8192].copy_from_slice(&magic.to_le_bytes());
            if matches!(
                format,
                Format::Vscsi | Format::OracleGeneral | Format::OracleGeneralOpNs | Format::LbnU32Le
            ) {
                bytes.truncate(24 * 27 * 4);
                bytes.iter_mut().skip(15).step_by(32).for_each(|byte| *byte = 1);
            }
            bytes
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), number in 0..FORMATS.len()) {
        read_anything(&bytes, Some(FORMATS[number].format));
        read_anything(&bytes, None);
    }

    #[test]
    fn random_text_never_panics(text in "[0-9,.;RWrw \t\n*+-]{0,200}", number in 0..FORMATS.len()) {
        read_anything(text.as_bytes(), Some(FORMATS[number].format));
        read_anything(text.as_bytes(), None);
    }

    #[test]
    fn mutated_traces_never_panic(
        number in 0..FORMATS.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let format = FORMATS[number].format;
        let mut bytes = valid(format);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        read_anything(&bytes, Some(format));
        read_anything(&bytes[..cut.index(bytes.len())], Some(format));
    }
}

/// Of several sources, one of which fails in its third record: what comes before it in time is handed out first.
#[test]
fn what_comes_before_a_failure_of_one_source_is_handed_out() {
    let good: String = (0..10_000).map(|at| format!("0,{at},512,R,{at}.0\n")).collect();
    for (before, expected) in [(2, 4), (6_000, 12_000)] {
        let failing: String =
            (0..before).map(|at| format!("1,{at},512,R,{at}.5\n")).collect::<String>() + "1,x\n";
        let sources =
            [good.clone(), failing].map(|text| Source::new("x.spc", Cursor::new(text.into_bytes())));
        let options = ReadOptions { format: Some(Format::Spc), ..ReadOptions::default() };
        let mut reader = TraceReader::open(sources.into(), &options).unwrap();
        let (mut all, mut batch) = (0, Vec::new());
        let error = loop {
            let result = reader.next_batch(&mut batch);
            all += batch.len();
            if let Err(error) = result {
                break error;
            }
        };
        assert!(matches!(error, TraceError::Malformed { .. }), "{error}");
        assert_eq!(all, expected);
        assert_eq!(reader.next_batch(&mut batch).unwrap(), 0);
    }
}
