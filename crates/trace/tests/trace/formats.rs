//! Each format by hand: a few records as its documentation shows them, and what they must become.

use super::{of_thread, read, read_all, read_with, request};
use forebay_trace::Operation::{Discard, Flush, Other, Read, Write};
use forebay_trace::{
    BlockEvent, Format, Ids, ReadAhead, ReadOptions, Request, Source, TimeUnit, TraceReader, VolumeIndex,
};
use forebay_units::{BlockSize, Bytes, Nanos};
use std::io::Cursor;

fn with_latency(mut request: Request, nanos: u64) -> Request {
    request.latency = Nanos(nanos);
    request
}

#[test]
fn msr() {
    // Ticks of 100 ns: the second line is 215 ticks = 21,500 ns later; response 2833 ticks = 283,300 ns.
    let text =
        "128166385295514663,hm,0,Write,9056014336,2048,2833\r\n128166385295514878,usr,1,READ,512,4096,1\n";
    let (requests, volumes) = read(Format::Msr, text.as_bytes()).unwrap();
    assert_eq!(volumes, ["hm_0", "usr_1"]);
    assert_eq!(requests[0], with_latency(request(0, 0, Write, 9_056_014_336, 2048), 283_300));
    assert_eq!(requests[1], with_latency(request(21_500, 1, Read, 512, 4096), 100));
}

#[test]
fn spc() {
    let text = "0,20941264,8192,W,0.551706\n5,1,3584,r,1.0,optional,more\n";
    let (requests, volumes) = read(Format::Spc, text.as_bytes()).unwrap();
    assert_eq!(volumes, ["asu0", "asu5"]);
    // 20,941,264 sectors x 512 = 10,721,927,168 bytes; SPC's own start is kept.
    assert_eq!(
        requests,
        [request(551_706_000, 0, Write, 10_721_927_168, 8192), request(1_000_000_000, 1, Read, 512, 3584)]
    );
}

#[test]
fn alibaba_and_tencent() {
    let (requests, volumes) =
        read(Format::Alibaba, b"419,W,8792731648,16384,1577808144360767\n725,R,0,512,1577808144360813\n")
            .unwrap();
    assert_eq!(volumes, ["419", "725"]);
    assert_eq!(requests, [request(0, 0, Write, 8_792_731_648, 16_384), request(46_000, 1, Read, 0, 512)]);
    // The second line is a second earlier: the earliest is the start, and no time is lost.
    let (requests, volumes) =
        read(Format::Tencent, b"1538323200,8,1,1,1058\n1538323199,16,2,0,1082\n").unwrap();
    assert_eq!(volumes, ["1058", "1082"]);
    assert_eq!(requests, [request(1_000_000_000, 0, Write, 4096, 512), request(0, 1, Read, 8192, 1024)]);
}

#[test]
fn systor17() {
    let text = "Timestamp,Response,IOType,LUN,Offset,Size\n1456095145.133076000,0.000806000,R,0,4096,512\n\
                1456095145.126285000,,,3,,\n1456095145.126285000,0.1,w,3,8,9\n";
    let (requests, volumes) = read(Format::Systor17, text.as_bytes()).unwrap();
    assert_eq!(volumes, ["LUN0", "LUN3"]);
    assert_eq!(requests[0], with_latency(request(6_791_000, 0, Read, 4096, 512), 806_000));
    assert_eq!(requests[1], request(0, 1, Other, 0, 0));
    assert_eq!(requests[2], with_latency(request(0, 1, Write, 8, 9), 100_000_000));
}

#[test]
fn fiu() {
    let text = "89966527996712 4253 nfsd 680 8 W 6 0 b5e9f4\n89966527996713 1 two words 8 1 R 6 16 b5e9f4\n";
    let (requests, volumes) = read(Format::Fiu, text.as_bytes()).unwrap();
    assert_eq!(volumes, ["6,0", "6,16"]);
    let expected =
        [of_thread(1, request(0, 0, Write, 348_160, 4096)), of_thread(2, request(1, 1, Read, 4096, 512))];
    assert_eq!(requests, expected);
}

#[test]
fn blkparse() {
    let text = "  8,0    0        1     0.000000000   697  A   W 8 + 8 <- (8,1) 0
  8,0    0        2     0.000000001   697  Q   W 8 + 8 [kjournald]
  8,0    0        0     0.000000002     0  m   N cfq18615S / insert_request
  8,0    0        3     0.000004000   697  Q FWS [flush-8:0]
  8,0    0        4     0.000005000   697  Q  RA 16 + 8 (     5) [java x]
  8,16   1        5     0.000006000     9  Q  DS 24 + 8 [fstrim]
  8,0    0        6     0.000007000   697  D  WS 8 + 16 [kjournald]
  8,0    0        7     0.000008000     0  C  WS 8 + 16 [0]
CPU0 (8,0):
 Reads Queued:           0,        0KiB\t Writes Queued:          1
Throughput (R/W): 0KiB/s / 0KiB/s
Events (8,0): 5 entries
Skips: 0 forward (0 -   0.0%)
";
    let (requests, volumes) = read(Format::Blkparse, text.as_bytes()).unwrap();
    assert_eq!(volumes, ["8,0", "8,16"]);
    let expected = [
        of_thread(1, request(1, 0, Write, 4096, 4096)),
        of_thread(1, request(4_000, 0, Flush, 0, 0)),
        of_thread(1, request(5_000, 0, Read, 8192, 4096)),
        of_thread(2, request(6_000, 1, Discard, 12_288, 4096)),
    ];
    assert_eq!(requests, expected);
    let options = ReadOptions {
        format: Some(Format::Blkparse),
        event: BlockEvent::Issue,
        read_ahead: Some(ReadAhead::Exclude),
        ..ReadOptions::default()
    };
    let issued = of_thread(1, request(7_000, 0, Write, 4096, 8192));
    assert_eq!(read_with(text.as_bytes(), &options).unwrap().0, [issued]);
    let options = ReadOptions { event: BlockEvent::Queue, read_ahead: Some(ReadAhead::Other), ..options };
    assert_eq!(read_with(text.as_bytes(), &options).unwrap().0[2].operation, Other);
}

#[test]
fn what_blkparse_prints_behind_the_records_is_passed_over() {
    let record = "  8,0    1        1     0.000001000    10  Q   W 8 + 8 [fio]\n";
    let summary = "CPU1 (sdb):\n Reads Queued:           0,        0KiB\t Writes Queued:           4,       16KiB\n\
                   \x20Read Dispatches:        0,        0KiB\t Write Dispatches:        0,        0KiB\n\n\
                   Throughput (R/W): 0KiB/s / 0KiB/s\nEvents (sdb): 1 entries\nSkips: 0 forward (0 -   0.0%)\n";
    let names = "Input file sdb.blktrace.0 added\nInput file sdb.blktrace.1 added\n";
    // As it comes; with `-s`, which begins the summary by process; with `-q`, which leaves only the names.
    for behind in [
        [summary, names].concat(),
        ["fio (10)\n Reads Queued:           0,        0KiB\n", summary, names].concat(),
        ["7z (10)\n Reads Queued:           0,        0KiB\n", summary, names].concat(),
        ["1 2 (10, ...)\n Reads Queued:           0,        0KiB\n", summary, names].concat(),
        ["(my job) (10, ...)\n Reads Queued:           0,        0KiB\n", summary, names].concat(),
        names.to_owned(),
    ] {
        let text = [record, &behind].concat();
        let options = ReadOptions::default();
        let (requests, _) = read_with(text.as_bytes(), &options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(requests, [of_thread(1, request(1_000, 0, Write, 4096, 4096))], "{behind}");
    }
    // What is none of it is no record.
    let text = [record, "sdb (8,0)\n"].concat();
    assert!(
        read(Format::Blkparse, text.as_bytes()).unwrap_err().to_string().contains("found `sdb` as device")
    );
}

/// A blktrace record with `data` bytes behind it; the process is 77, and 78 if it has a whole block.
fn blk_record(time: u64, sector: u64, bytes: u32, action: u32, data: u16, big_endian: bool) -> Vec<u8> {
    let mut record = Vec::new();
    let mut put = |number: u64, width: usize| {
        let little = number.to_le_bytes();
        let mut part = little[..width].to_vec();
        if big_endian {
            part.reverse();
        }
        record.extend(part);
    };
    put(0x6561_7407, 4);
    put(1, 4);
    put(time, 8);
    put(sector, 8);
    put(u64::from(bytes), 4);
    put(u64::from(action), 4);
    put(77 + u64::from(bytes == 4096), 4);
    put(8 << 20 | 16, 4);
    put(0, 4);
    put(0, 2);
    put(u64::from(data), 2);
    record.extend(vec![0xaa; usize::from(data)]);
    record
}

#[test]
fn blktrace_of_two_cpus_and_either_byte_order() {
    const READ: u32 = 1 << 16;
    const WRITE: u32 = 2 << 16;
    for big_endian in [false, true] {
        let record =
            |time, sector, bytes, action, data| blk_record(time, sector, bytes, action, data, big_endian);
        let cpu0 = [
            record(0, 0, 0, 1024 << 16, 16),
            record(100, 8, 4096, READ | 1, 0),
            record(300, 16, 512, READ | 2048 << 16 | 1, 4),
            record(310, 16, 512, READ | 7, 0),
        ]
        .concat();
        let cpu1 = [
            record(200, u64::MAX, 0, WRITE | 4 << 16 | 1, 0),
            // A cgroup id (bit 8 of the event) stands in the data and changes nothing.
            record(250, 1, 1024, WRITE | 1 | 1 << 8, 8),
            record(400, 2, 512, WRITE | 8192 << 16 | 1, 0),
        ]
        .concat();
        let sources = vec![
            Source::new("sdb.blktrace.0", Cursor::new(cpu0)),
            Source::new("sdb.blktrace.1", Cursor::new(cpu1)),
        ];
        let mut reader = TraceReader::open(sources, &ReadOptions::default()).unwrap();
        let requests = read_all(&mut reader).unwrap();
        let expected = [
            of_thread(1, request(0, 0, Read, 4096, 4096)),
            of_thread(2, request(100, 0, Flush, 0, 0)),
            of_thread(2, request(150, 0, Write, 512, 1024)),
            of_thread(2, request(200, 0, Read, 8192, 512)),
            of_thread(2, request(300, 0, Discard, 1024, 512)),
        ];
        assert_eq!(requests, expected);
        assert_eq!(
            (reader.format(), reader.volumes(), reader.ignored()),
            (Format::Blktrace, &["8,16".to_owned()][..], 2)
        );
    }
}

#[test]
fn fio_iolog() {
    let text = "fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb write 64757760 4096\n/dev/sdb wait 250 0\n\
                /dev/sdb wait 99 0\n/dev/sdb read 0 512\n/dev/sdb sync\nother trim 8 16\n/dev/sdb close\n\
                fio version 2 iolog\n/dev/sdb datasync 0 0\n";
    let (requests, volumes) = read(Format::FioIolog, text.as_bytes()).unwrap();
    assert_eq!(volumes, ["/dev/sdb", "other"]);
    let expected = [
        request(0, 0, Write, 64_757_760, 4096),
        request(250_000, 0, Read, 0, 512),
        request(250_000, 0, Flush, 0, 0),
        request(250_000, 1, Discard, 8, 16),
        request(250_000, 0, Flush, 0, 0),
    ];
    assert_eq!(requests, expected);
    let text = b"fio version 3 iolog\n0 f add\n5 f open\n1500 f read 4096 512\n2000 f close\n";
    assert_eq!(read(Format::FioIolog, text).unwrap().0, [request(1_500_000, 0, Read, 4096, 512)]);
    let options = ReadOptions { time_unit: Some(TimeUnit::Milliseconds), ..ReadOptions::default() };
    assert_eq!(read_with(text, &options).unwrap().0[0].time, Nanos(1_500_000_000));
}

/// A vscsi record of either version.
fn vscsi_record(version: u16, code: u16, lbn: u64, bytes: u32, micros: u64) -> Vec<u8> {
    let (command, rest) = ([code, version << 8], [7, bytes, 1u32]);
    let mut record = Vec::new();
    if version == 2 {
        record.extend(command.iter().flat_map(|number| number.to_le_bytes()));
    }
    record.extend(rest.iter().flat_map(|number| number.to_le_bytes()));
    if version == 1 {
        record.extend(command.iter().flat_map(|number| number.to_le_bytes()));
    }
    record.extend(lbn.to_le_bytes());
    record.extend(micros.to_le_bytes());
    if version == 2 {
        record.extend(5u64.to_le_bytes());
    }
    record
}

#[test]
fn vscsi_of_both_versions() {
    for version in [1, 2] {
        let codes = [0x28, 0x8a, 0x35, 0x42, 0x12];
        let bytes: Vec<u8> = (0..5)
            .flat_map(|n| vscsi_record(version, codes[n], 8 * n as u64, 512, 1_000 + n as u64))
            .collect();
        let mut reader = super::open("a/web.vscsi.zst", &bytes, &ReadOptions::default()).unwrap();
        let requests = read_all(&mut reader).unwrap();
        assert_eq!((reader.format(), reader.volumes()), (Format::Vscsi, &["web.vscsi".to_owned()][..]));
        let operations = [Read, Write, Flush, Discard, Other];
        for (n, operation) in operations.into_iter().enumerate() {
            let mut expected = request(n as u64 * 1_000, 0, operation, n as u64 * 4096, 512);
            if version == 2 {
                expected = with_latency(expected, 5_000);
            }
            assert_eq!(requests[n], expected);
        }
    }
}

fn oracle_record(time: u32, id: u64, size: u32, next: i64) -> Vec<u8> {
    [&time.to_le_bytes()[..], &id.to_le_bytes(), &size.to_le_bytes(), &next.to_le_bytes()].concat()
}

#[test]
fn oracle_general_by_each_meaning_of_ids() {
    let bytes = [oracle_record(10, 3, 1024, 1), oracle_record(12, 3, 1024, -1)].concat();
    let read_ids = |ids| read_with(&bytes, &ReadOptions { ids, ..ReadOptions::default() }).unwrap().0;
    assert_eq!(
        read_ids(Ids::Sectors),
        [request(0, 0, Read, 1536, 1024), request(2_000_000_000, 0, Read, 1536, 1024)]
    );
    assert_eq!(read_ids(Ids::Blocks)[0], request(0, 0, Read, 12_288, 1024));
    assert_eq!(read_ids(Ids::Objects)[0], request(0, 0, Read, 12_288, 1024));
    // Of a format without ids there is nothing to be said of them: whoever counted requests for it would count other things.
    for ids in [Ids::Blocks, Ids::Objects] {
        let options = ReadOptions { ids, ..ReadOptions::default() };
        let error = read_with(b"0,303567,3584,w,0.026214\n", &options).unwrap_err().to_string();
        assert!(error.starts_with("a spc trace has no ids"), "{error}");
    }
    // A hash is no sector, but may be an object's id: then it keeps a place of its own, a multiple of the page.
    let bytes = [oracle_record(10, 3, 1024, 1), oracle_record(12, u64::MAX, 7, -1)].concat();
    let error = read(Format::OracleGeneral, &bytes).unwrap_err().to_string();
    assert!(
        error.contains("byte offset 24") && error.contains("`18446744073709551615` as object id"),
        "{error}"
    );
    assert!(error.contains("--ids objects"), "{error}");
    let options =
        ReadOptions { format: Some(Format::OracleGeneral), ids: Ids::Objects, ..ReadOptions::default() };
    let requests = read_with(&bytes, &options).unwrap().0;
    assert_eq!((requests[1].offset % 4096, requests[1].length), (0, 7));
}

#[test]
fn oracle_general_with_operation_and_name_space() {
    let record = |time: u32, id: u64, operation: u8, space: u16| {
        let front =
            [&time.to_le_bytes()[..], &id.to_le_bytes(), &512u32.to_le_bytes(), &[operation]].concat();
        [&front[..], &space.to_le_bytes(), &(-1i64).to_le_bytes()].concat()
    };
    let bytes = [record(5, 1, 1, 9), record(6, 2, 3, 8), record(7, 3, 9, 9)].concat();
    let (requests, volumes) = read(Format::OracleGeneralOpNs, &bytes).unwrap();
    assert_eq!(volumes, ["ns9", "ns8"]);
    let expected = [
        request(0, 0, Read, 512, 512),
        request(1_000_000_000, 1, Write, 1024, 512),
        request(2_000_000_000, 0, Discard, 1536, 512),
    ];
    assert_eq!(requests, expected);
    assert!(read(Format::OracleGeneralOpNs, &record(5, 1, 77, 9)).is_err());
}

#[test]
fn lcs_of_every_version() {
    for (version, bytes) in [(1u64, 24usize), (2, 28), (3, 36), (4, 40), (5, 44), (6, 52), (7, 68), (8, 100)]
    {
        let mut trace = vec![0u8; 8192];
        trace[..8].copy_from_slice(&0x1234_5678_9abc_def0u64.to_le_bytes());
        trace[8..16].copy_from_slice(&version.to_le_bytes());
        trace[8184..].copy_from_slice(&0x1234_5678_9abc_def0u64.to_le_bytes());
        for n in 0..3u32 {
            let begin = trace.len();
            trace.extend((100 + n).to_le_bytes());
            trace.extend(u64::from(n).to_le_bytes());
            match version {
                1 | 2 => trace.extend(512u32.to_le_bytes()),
                _ => trace.extend(512i64.to_le_bytes()),
            }
            if version > 1 {
                trace.extend((13 | n << 8).to_le_bytes());
            }
            trace.resize(begin + bytes, 0);
        }
        let mut reader = super::open("x.lcs", &trace, &ReadOptions::default()).unwrap();
        let requests = read_all(&mut reader).unwrap();
        assert_eq!(reader.format(), Format::Lcs);
        let (operation, volume) = if version == 1 { (Read, 0) } else { (Write, 2) };
        assert_eq!(requests[2], request(2_000_000_000, volume, operation, 1024, 512), "version {version}");
        assert_eq!(reader.volume_name(VolumeIndex(volume)), if version == 1 { "x.lcs" } else { "tenant2" });
    }
    let error = read(Format::Lcs, &[0; 9000]).unwrap_err().to_string();
    assert!(error.contains("0x123456789abcdef0"), "{error}");
}

#[test]
fn blkreplay() {
    let text = "Copyright\n\nstart ; sector; length ; op ;  replay_delay=0 ; replay_duration=0\n\
                0.000000001 ;    8 ;   16 ; R ; 0.0 ; 0.0\nprose again\n 1.5 ; 8 ; 1 ; RA ; 0.0 ; 0.0\n\
                2 ; 0 ; 1 ; W ; 0 ; 0\n";
    let (requests, volumes) = read(Format::Blkreplay, text.as_bytes()).unwrap();
    assert_eq!(volumes, ["some.trace"]);
    let expected = [
        request(1, 0, Read, 4096, 8192),
        request(1_500_000_000, 0, Other, 4096, 512),
        request(2_000_000_000, 0, Write, 0, 512),
    ];
    assert_eq!(requests, expected);
    for (read_ahead, operations) in
        [(ReadAhead::Read, vec![Read, Read, Write]), (ReadAhead::Exclude, vec![Read, Write])]
    {
        let options = ReadOptions { read_ahead: Some(read_ahead), ..ReadOptions::default() };
        let requests = read_with(text.as_bytes(), &options).unwrap().0;
        assert_eq!(requests.iter().map(|request| request.operation).collect::<Vec<_>>(), operations);
    }
}

#[test]
fn disksim_in_milliseconds_and_nanoseconds_and_ms_dev() {
    let options = ReadOptions { format: Some(Format::Disksim), ..ReadOptions::default() };
    let (requests, volumes) = read_with(b"5265.313 2 8 8 0\n5265.703 0 16 3 1\n", &options).unwrap();
    assert_eq!(volumes, ["2", "0"]);
    assert_eq!(
        requests,
        [request(5_265_313_000, 0, Write, 4096, 4096), request(5_265_703_000, 1, Read, 8192, 1536)]
    );
    let nanos = b"0\t0\t8\t8\t1\n97900000\t0\t8\t8\t5\n";
    assert_eq!(read_with(nanos, &options).unwrap().0[1], request(97_900_000, 0, Read, 4096, 4096));
    let options = ReadOptions { time_unit: Some(TimeUnit::Microseconds), ..options };
    assert_eq!(read_with(nanos, &options).unwrap().0[1].time, Nanos(97_900_000_000));
    let (requests, _) = read(Format::MsDev, b"0.000 0 4096 512 0\n223.412 0 8192 1024 1\n").unwrap();
    assert_eq!(requests, [request(0, 0, Write, 4096, 512), request(223_412_000, 0, Read, 8192, 1024)]);
}

#[test]
fn formats_of_pages() {
    assert_eq!(read(Format::ArcLis, b"3 2 0 7\n").unwrap().0, [request(0, 0, Read, 12_288, 8192)]);
    let (requests, _) = read(Format::Lirs, b"*\n5\r\n*\n0\n").unwrap();
    assert_eq!(requests, [request(0, 0, Read, 20_480, 4096), request(0, 0, Read, 0, 4096)]);
    let page_size = BlockSize::new(Bytes::kib(16)).unwrap();
    let options = ReadOptions { format: Some(Format::LbnU32Le), page_size, ..ReadOptions::default() };
    let mut reader = super::open("w106.lbn-u32le", &[2, 0, 0, 0, 255, 255, 255, 255], &options).unwrap();
    assert_eq!(reader.natural_block(), Some(page_size));
    let requests = read_all(&mut reader).unwrap();
    let expected = [request(0, 0, Read, 32_768, 16_384), request(0, 0, Read, 0xffff_ffff << 14, 16_384)];
    assert_eq!(requests, expected);
}

#[test]
fn cachelib_csv() {
    let text = "op_time,block_id,io_size,io_offset,op_name,more\n10,aa-bb,4096,512,getChunkData.Permanent,1\n\
                11,cc-dd,8,0,putChunk.Permanent,1\n11,aa-bb,8,0,deleteChunk,1\n9,aa-bb,8,0,seal,1\n";
    let (requests, volumes) = read(Format::CachelibCsv, text.as_bytes()).unwrap();
    assert_eq!(volumes.len(), 1);
    let expected = [
        request(1_000_000_000, 0, Read, 512, 4096),
        request(2_000_000_000, 0, Write, 1 << 32, 8),
        request(2_000_000_000, 0, Discard, 0, 8),
        request(0, 0, Other, 0, 8),
    ];
    assert_eq!(requests, expected);
}

#[test]
fn several_files_are_several_volumes_merged_by_time() {
    let one = "100,web,0,Read,0,512,0\n130,web,0,Read,0,512,0\n120,web,0,Read,512,512,0\n";
    let two = "110,usr,0,Write,0,512,0\n125,usr,0,Write,0,512,0\n";
    let sources = [("web_0.csv", one), ("usr_0.csv", two)];
    let sources = sources.map(|(name, text)| Source::new(name, Cursor::new(text.as_bytes())));
    let mut reader = TraceReader::open(Vec::from(sources), &ReadOptions::default()).unwrap();
    let requests = read_all(&mut reader).unwrap();
    // Nothing is sorted inside a source: 120 stays behind 130.
    let times: Vec<u64> = requests.iter().map(|request| request.time.0).collect();
    assert_eq!(times, [0, 1_000, 2_500, 3_000, 2_000]);
    assert_eq!(reader.volumes(), ["web_0", "usr_0"]);
}

/// What lies before the smallest time of the first 4,096 requests is taken to be at it; the span is that of the trace all the same.
#[test]
fn the_span_of_a_trace_that_runs_backwards_is_told() {
    use forebay_trace::TraceInfo;
    let msr: String = (0..6_000u64)
        .rev()
        .map(|second| format!("{},hm,0,Read,0,4096,1\n", 128_166_385_000_000_000 + second * 10_000_000))
        .collect();
    let oracle: Vec<u8> = (0..6_000u32)
        .rev()
        .flat_map(|second| {
            let (id, size, next) = (7u64.to_le_bytes(), 4096u32.to_le_bytes(), (-1i64).to_le_bytes());
            [&second.to_le_bytes()[..], &id[..], &size[..], &next[..]].concat()
        })
        .collect();
    for (content, format) in [(msr.into_bytes(), Format::Msr), (oracle, Format::OracleGeneral)] {
        let source = Source::new("back", Cursor::new(content));
        let mut reader = TraceReader::open(vec![source], &ReadOptions::default()).unwrap();
        let info = TraceInfo::of(&mut reader).unwrap();
        assert_eq!((reader.format(), info.requests), (format, 6_000));
        assert_eq!((info.duration_s, info.before_start), (5_999.0, 6_000 - 4_096), "{format:?}");
    }
}
