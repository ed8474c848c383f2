//! Every real trace of the shared folder (`FOREBAY_TRACES`), with the counts that its SOURCES.md states. The traces
//! are not part of the project; without them the tests say so, and fail where `CI` is `true`.

use forebay_prerequisite::recorded;
use forebay_trace::{Ids, ReadAhead, ReadOptions, Source, TraceInfo, TraceReader};
use std::fs::File;

fn open(file: &str, options: &ReadOptions) -> Option<TraceReader> {
    let path = recorded(file)?;
    let source =
        Source::new(file, File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    Some(TraceReader::open(vec![source], options).unwrap_or_else(|error| panic!("{error}")))
}

fn info(file: &str, options: &ReadOptions) -> Option<TraceInfo> {
    let mut reader = open(file, options)?;
    Some(TraceInfo::of(&mut reader).unwrap_or_else(|error| panic!("{error}")))
}

/// File, format, requests, reads, writes, other, footprint in blocks, volumes, seconds.
type Expected = (&'static str, &'static str, u64, u64, u64, u64, u64, usize, f64);

/// As SOURCES.md states them, save where a comment gives the reason.
const EXPECTED: [Expected; 27] = [
    ("msr_hm_0_sample1000.csv", "msr", 1_000, 508, 492, 0, 1_917, 1, 127.2),
    ("msr.cut.per_10k.rw_20_80.105.trace", "ms-dev", 10_000, 2_020, 7_980, 0, 7_385, 1, 242.9),
    // 10,798,202 raw ticks of a unit that is not stated: whole numbers are taken for nanoseconds.
    ("msr_hm_1.revised_5000.ssdsim.txt", "disksim", 5_000, 1_096, 3_904, 0, 5_186, 1, 0.010_798_202),
    ("msps_DTRS100M.ssdsim.trace.zst", "disksim", 127_043, 113_123, 13_920, 0, 1_272_267, 1, 29_999.95),
    ("Financial1-snippet.spc", "spc", 10_000, 4_077, 5_923, 0, 7_322, 22, 259.6),
    ("websearch_small.disksim.trace", "disksim", 24_783, 24_779, 4, 0, 93_029, 6, 60.06),
    ("tencent_cbs_2018100100_even-volumes.csv.zst", "tencent", 25_778, 13_842, 11_936, 0, 204_293, 0, 1.0),
    ("systor17-traces-sample.csv.gz", "systor17", 999, 826, 173, 0, 9_831, 1, 2.45),
    ("fiu_mail_sample.blkparse", "fiu", 122, 107, 15, 0, 106, 1, 1.724),
    ("alibaba_snippet6.csv", "alibaba", 6, 5, 1, 0, 336, 0, 0.000_264),
    ("cloudphysics_sample.vscsi.zst", "vscsi", 113_872, 46_974, 66_898, 0, 269_210, 1, 7_200.09),
    // The operation is not stored: all are reads.
    (
        "cloudphysics_sample.oracleGeneral.bin.zst",
        "oracle-general",
        113_872,
        113_872,
        0,
        0,
        268_270,
        1,
        7_200.0,
    ),
    ("cloudphysics_w106.lbn-u32le.zst", "lbn-u32le", 5_292_456, 5_292_456, 0, 0, 275_171, 1, 0.0),
    // Read-ahead is an operation of its own there.
    ("blkreplay_linux-webserver-2.load.gz", "blkreplay", 269_007, 148_674, 119_989, 344, 488_036, 1, 3_600.9),
    ("blkreplay_windows-mssql.load.gz", "blkreplay", 42_976, 2_528, 40_448, 0, 154_742, 1, 3_062.3),
    ("hadoop_sdb.blkparse.txt.zst", "blkparse", 15_524, 80, 15_444, 0, 17_901, 1, 9.38),
    // Two of the writes are empty flushes, which the kernel marks as writes.
    ("hadoop_eternity8.blktrace-raw.tar.zst", "blktrace", 107_616, 104_653, 2_963, 0, 7_091_255, 1, 176.9),
    ("disksim_ssd-iozone-aligned2-100K.trace.zst", "disksim", 100_000, 0, 100_000, 0, 271_320, 1, 936.4),
    ("fio_v2_smr-emu.iolog", "fio-iolog", 9_441, 0, 9_441, 0, 9_162, 1, 0.0),
    // Counts by operation and footprint were counted from the file with awk; SOURCES.md states only the lines.
    ("cachelib_block_traces_1.csv", "cachelib-csv", 999, 599, 400, 0, 810_302, 1, 39.0),
    // A request is a line, a run of pages; their pages are counted apart below.
    ("arc_OLTP.lis.zst", "arc-lis", 914_145, 914_145, 0, 0, 186_880, 1, 0.0),
    ("arc_P3.lis.zst", "arc-lis", 238_578, 238_578, 0, 0, 762_543, 1, 0.0),
    ("lirs_multi1.trace.gz", "lirs", 15_858, 15_858, 0, 0, 2_606, 1, 0.0),
    ("lirs_multi2.trace.gz", "lirs", 26_311, 26_311, 0, 0, 5_684, 1, 0.0),
    ("lirs_2_pools.trace.gz", "lirs", 100_000, 100_000, 0, 0, 9_939, 1, 0.0),
    ("lirs_sprite.trace.gz", "lirs", 133_996, 133_996, 0, 0, 7_075, 1, 0.0),
    ("lirs_loop.trace.gz", "lirs", 505_500, 505_500, 0, 0, 1_011, 1, 0.0),
];

#[test]
fn counts_are_those_of_the_sources() {
    let mut wrong = Vec::new();
    for (file, format, requests, reads, writes, other, footprint, volumes, seconds) in EXPECTED {
        let Some(info) = info(file, &ReadOptions::default()) else { return };
        let found = (info.format, info.requests, info.reads, info.writes, info.other, info.skipped);
        if found != (format, requests, reads, writes, other, 0) {
            wrong.push(format!("{file}: {found:?}"));
        }
        if info.footprint_blocks != footprint {
            wrong.push(format!("{file}: footprint {}, expected {footprint}", info.footprint_blocks));
        }
        if volumes > 0 && info.volumes.len() != volumes {
            wrong.push(format!("{file}: volumes {:?}", info.volumes));
        }
        // Spans are stated with as many digits as they have here.
        if (info.duration_s - seconds).abs() > seconds * 1e-3 {
            wrong.push(format!("{file}: {} s, expected {seconds} s", info.duration_s));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn flushes_ignored_records_and_pages() {
    let defaults = ReadOptions::default();
    let Some(raw) = info("hadoop_eternity8.blktrace-raw.tar.zst", &defaults) else { return };
    assert_eq!((raw.flushes, raw.volumes), (2, vec!["8,16".to_owned()]));
    // 708,028 records with an event and 4,843 notes, of which 107,616 are requests (counted with a script of ours).
    assert_eq!(raw.ignored, 708_028 + 4_843 - 107_616);
    // The five references that the ARC paper's Table III calls requests are pages here.
    for (file, pages) in [("arc_OLTP.lis.zst", 914_145), ("arc_P3.lis.zst", 3_912_296)] {
        assert_eq!(info(file, &defaults).unwrap().bytes_read, pages * 4096, "{file}");
    }
    // Two marks (`*`) beside 100,000 references.
    assert_eq!(info("lirs_2_pools.trace.gz", &defaults).unwrap().ignored, 2);
    // Two first lines, two `add`, two `open`, two `close`.
    assert_eq!(info("fio_v2_smr-emu.iolog", &defaults).unwrap().ignored, 8);
}

#[test]
fn options_change_what_is_ambiguous() {
    let file = "blkreplay_linux-webserver-2.load.gz";
    let read_ahead = |choice| ReadOptions { read_ahead: Some(choice), ..ReadOptions::default() };
    let Some(as_read) = info(file, &read_ahead(ReadAhead::Read)) else { return };
    assert_eq!((as_read.requests, as_read.reads, as_read.other), (269_007, 148_674 + 344, 0));
    let excluded = info(file, &read_ahead(ReadAhead::Exclude)).unwrap();
    assert_eq!((excluded.requests, excluded.reads, excluded.other), (269_007 - 344, 148_674, 0));
    // libCacheSim's own tests count 48,974 misses of an infinite cache: the distinct ids, each an object.
    let objects = ReadOptions { ids: Ids::Objects, ..ReadOptions::default() };
    let mut reader = open("cloudphysics_sample.oracleGeneral.bin.zst", &objects).unwrap();
    let mut ids = std::collections::HashSet::new();
    let mut batch = Vec::new();
    while reader.next_batch(&mut batch).unwrap() > 0 {
        ids.extend(batch.iter().map(|request| request.offset));
    }
    assert_eq!(ids.len(), 48_974);
}

#[test]
fn the_two_forms_of_the_cloudphysics_sample_hold_the_same_places() {
    let Some(mut vscsi) = open("cloudphysics_sample.vscsi.zst", &ReadOptions::default()) else { return };
    let mut oracle = open("cloudphysics_sample.oracleGeneral.bin.zst", &ReadOptions::default()).unwrap();
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let mut sizes = 0;
    while vscsi.next_batch(&mut left).unwrap() > 0 {
        assert_eq!(oracle.next_batch(&mut right).unwrap(), left.len());
        assert!(left.iter().zip(&right).all(|(left, right)| left.offset == right.offset));
        sizes += left.iter().zip(&right).filter(|(left, right)| left.length != right.length).count();
    }
    assert_eq!(sizes, 13_671);
}

#[test]
fn every_file_of_the_folder_is_expected() {
    let Some(folder) = recorded("") else { return };
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_trace = !["SOURCES.md", "SHA256SUMS"].contains(&name.as_str());
        assert!(!is_trace || EXPECTED.iter().any(|expected| expected.0 == name), "`{name}` is not tested");
    }
}
