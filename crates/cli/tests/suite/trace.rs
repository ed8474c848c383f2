//! `forebay trace`: counts of recorded traces as their sources state them, folders, standard input, conversion.

use crate::support::{args, fail, file, folder, json, msr, run, succeed, unread};
use forebay_prerequisite::recorded;
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

const INFO: &str = "forebay.trace-info/1";

/// File, format, requests, reads, writes, distinct 4 KiB blocks, as the recordings' own documentation states them; `None`
/// where it does not.
type Recorded = (&'static str, &'static str, u64, Option<(u64, u64)>, Option<u64>);
const RECORDED: [Recorded; 18] = [
    ("msr_hm_0_sample1000.csv", "msr", 1_000, Some((508, 492)), Some(1_917)),
    ("msr.cut.per_10k.rw_20_80.105.trace", "ms-dev", 10_000, Some((2_020, 7_980)), Some(7_385)),
    ("msr_hm_1.revised_5000.ssdsim.txt", "disksim", 5_000, Some((1_096, 3_904)), Some(5_186)),
    ("msps_DTRS100M.ssdsim.trace.zst", "disksim", 127_043, Some((113_123, 13_920)), Some(1_272_267)),
    ("Financial1-snippet.spc", "spc", 10_000, Some((4_077, 5_923)), Some(7_322)),
    ("websearch_small.disksim.trace", "disksim", 24_783, Some((24_779, 4)), Some(93_029)),
    ("tencent_cbs_2018100100_even-volumes.csv.zst", "tencent", 25_778, Some((13_842, 11_936)), Some(204_293)),
    ("systor17-traces-sample.csv.gz", "systor17", 999, Some((826, 173)), Some(9_831)),
    ("fiu_mail_sample.blkparse", "fiu", 122, Some((107, 15)), None),
    ("alibaba_snippet6.csv", "alibaba", 6, Some((5, 1)), Some(336)),
    ("cloudphysics_sample.vscsi.zst", "vscsi", 113_872, Some((46_974, 66_898)), Some(269_210)),
    ("cloudphysics_sample.oracleGeneral.bin.zst", "oracle-general", 113_872, None, Some(268_270)),
    ("cloudphysics_w106.lbn-u32le.zst", "lbn-u32le", 5_292_456, None, Some(275_171)),
    ("blkreplay_linux-webserver-2.load.gz", "blkreplay", 269_007, Some((148_674, 119_989)), Some(488_036)),
    ("blkreplay_windows-mssql.load.gz", "blkreplay", 42_976, Some((2_528, 40_448)), Some(154_742)),
    ("hadoop_sdb.blkparse.txt.zst", "blkparse", 15_524, Some((80, 15_444)), Some(17_901)),
    ("hadoop_eternity8.blktrace-raw.tar.zst", "blktrace", 107_616, Some((104_653, 2_963)), Some(7_091_255)),
    ("fio_v2_smr-emu.iolog", "fio-iolog", 9_441, Some((0, 9_441)), Some(9_162)),
];

#[test]
fn recorded_traces_have_the_counts_that_their_sources_state() {
    for (name, format, requests, reads_writes, footprint) in RECORDED {
        let Some(path) = recorded(name) else { return };
        let info = json(INFO, args(&[&"trace", &"info", &"--json", &path]));
        assert_eq!(info["format"], format, "{name}");
        assert_eq!(info["requests"], requests, "{name}");
        if let Some((reads, writes)) = reads_writes {
            assert_eq!((&info["reads"], &info["writes"]), (&json!(reads), &json!(writes)), "{name}");
            assert_eq!(info["other"], requests - reads - writes, "{name}");
        }
        if let Some(footprint) = footprint {
            assert_eq!(info["footprint_blocks"], footprint, "{name}");
        }
        assert_eq!(info["skipped"], 0, "{name}");
    }
}

#[test]
fn a_small_trace_by_hand() {
    let folder = folder();
    // Disk 0: a read of blocks 0 and 1 and a write of 1; disk 1: a read that straddles blocks 0 and 1 by two bytes.
    let text =
        msr(&[(0, 0, true, 0, 8192), (10_000_000, 0, false, 4096, 512), (20_000_000, 1, true, 4095, 2)]);
    let path = file(&folder, "small.csv", text);
    let info = json(INFO, args(&[&"trace", &"info", &"--json", &path]));
    assert_eq!(
        (&info["requests"], &info["reads"], &info["writes"], &info["other"], &info["skipped"]),
        (&json!(3), &json!(2), &json!(1), &json!(0), &json!(0))
    );
    assert_eq!((&info["bytes_read"], &info["bytes_written"]), (&json!(8194), &json!(512)));
    assert_eq!((&info["duration_s"], &info["volumes"]), (&json!(2.0), &json!(2)));
    assert_eq!(info["volume_names"], json!(["host_0", "host_1"]));
    assert_eq!(info["footprint_blocks"], 4);

    let head = json("forebay.trace-head/1", args(&[&"trace", &"head", &"-n", &"2", &"--json", &path]));
    assert_eq!(
        head["requests"],
        json!([
            {"time_s": 0.0, "volume": "host_0", "operation": "read", "offset": 0, "length": 8192, "latency_s": 0.0001},
            {"time_s": 1.0, "volume": "host_0", "operation": "write", "offset": 4096, "length": 512, "latency_s": 0.0001},
        ])
    );
}

#[test]
fn the_files_of_a_folder_are_one_trace_merged_by_time() {
    let folder = folder();
    file(&folder, "b_1.csv", msr(&[(10, 1, true, 0, 512), (30, 1, true, 0, 512)]));
    file(&folder, "a_0.csv", msr(&[(0, 0, true, 0, 512), (20, 0, true, 0, 512)]));
    file(&folder, "README.md", "not a trace");
    let head = json("forebay.trace-head/1", args(&[&"trace", &"head", &"--json", &folder.path()]));
    let volumes: Vec<&str> = head["requests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|request| request["volume"].as_str().unwrap())
        .collect();
    assert_eq!(volumes, ["host_0", "host_1", "host_0", "host_1"]);
    // A name need not be text.
    let name = std::ffi::OsStr::from_bytes(b"c_\xff.csv");
    std::fs::write(folder.path().join(name), msr(&[(40, 2, true, 0, 512)])).unwrap();
    assert_eq!(json(INFO, args(&[&"trace", &"info", &"--json", &folder.path()]))["volumes"], 3);
}

#[test]
fn standard_input_is_a_trace() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["trace", "info", "--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(msr(&[(0, 0, true, 0, 512)]).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&info["requests"], &info["format"]), (&json!(1), &json!("msr")));
}

#[test]
fn converting_keeps_everything_and_replaces_nothing_unasked() {
    let folder = folder();
    let path =
        file(&folder, "a.csv", msr(&[(0, 0, true, 0, 8192), (7, 1, false, 4096, 512), (90, 0, true, 1, 2)]));
    let converted = folder.path().join("a.fbt");
    succeed(args(&[&"trace", &"convert", &path, &"--output", &converted]));
    let mut before = json("forebay.trace-head/1", args(&[&"trace", &"head", &"--json", &path]));
    let after = json("forebay.trace-head/1", args(&[&"trace", &"head", &"--json", &converted]));
    before["format"] = json!("forebay");
    assert_eq!(before, after);
    let (status, words) = fail(args(&[&"trace", &"convert", &path, &"-o", &converted]));
    assert!(
        status == 1 && words.contains("exists") && words.contains("hint: replace it with --force"),
        "{words}"
    );
    succeed(args(&[&"trace", &"convert", &path, &"--force", &"-o", &converted]));
    succeed(args(&[&"trace", &"convert", &path, &"-o", &"/dev/null"]));
    // A failure half-way leaves neither a short trace nor a partial file.
    let broken = file(&folder, "broken.csv", msr(&[(0, 0, true, 0, 512)]) + "nonsense\n");
    let other = folder.path().join("b.fbt");
    fail(args(&[&"trace", &"convert", &broken, &"--format", &"msr", &"-o", &other]));
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = folder();
    let lines: Vec<_> = (0..100_000).map(|at| (at, 0, true, at * 512, 512)).collect();
    let path = file(&folder, "long.csv", msr(&lines));
    let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(args(&[&"trace", &"head", &"-n", &"100000", &path]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // What was asked for in a file is there all the same.
    let svg = folder.path().join("curve.svg");
    assert_eq!(unread(args(&[&"mrc", &path, &"--svg", &svg])), 0);
    assert!(std::fs::read_to_string(&svg).unwrap().ends_with("</svg>\n"));
}

#[test]
fn other_formats_are_written_and_what_they_cannot_say_is_counted() {
    let folder = folder();
    let path = file(&folder, "a.csv", msr(&[(0, 0, true, 0, 8192), (10_000_000, 0, false, 4096, 512)]));
    for (format, name) in [("msr", "m"), ("spc", "s"), ("fio-iolog", "f"), ("oracle-general", "o")] {
        let converted = folder.path().join(name);
        succeed(args(&[&"trace", &"convert", &path, &"--to", &format, &"--output", &converted]));
        let info = json(INFO, args(&[&"trace", &"info", &"--json", &"--format", &format, &converted]));
        assert_eq!((&info["requests"], &info["duration_s"]), (&json!(2), &json!(1.0)), "{format}");
        assert_eq!(info["footprint_blocks"], 2, "{format}");
    }
    let (status, words) = fail(args(&[&"trace", &"convert", &path, &"--to", &"vscsi", &"-o", &"x"]));
    assert!(status == 2 && words.contains("not a format that can be written"), "{words}");
    // A flush is nothing that MSR can say.
    let flush = file(
        &folder,
        "flush.iolog",
        "fio version 3 iolog\n0 v add\n0 v open\n1 v read 0 4096\n2 v sync 0 0\n",
    );
    let output = run(args(&[&"trace", &"convert", &flush, &"--to", &"msr", &"-o", &"-"]));
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && words.contains("1 requests left out"), "{words}");
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 1);
    // Nor are a write and a part of a second anything that oracleGeneral can say.
    let path = file(&folder, "odd.csv", msr(&[(0, 0, true, 0, 4096), (5, 0, false, 0, 4096)]));
    let odd = folder.path().join("odd.bin");
    let words = run(args(&[&"trace", &"convert", &path, &"--to", &"oracle-general", &"-o", &odd])).stderr;
    let words = String::from_utf8(words).unwrap();
    let told = ["1 writes become reads", "1 requests are moved to the last time before theirs"];
    assert!(told.iter().all(|told| words.contains(told)), "{words}");
    // What cannot be written is told by the name that was given, once.
    let told = fail(args(&[&"trace", &"convert", &path, &"-o", &folder.path().join("gone/x.fbt")])).1;
    assert!(told.contains("gone/x.fbt`: ") && !told.contains("partial"), "{told}");
}

#[test]
fn a_type_among_spaces_is_read() {
    let folder = folder();
    for (name, text) in [
        ("msr.csv", "128166372003061629,h,0, Read,0,4096,100\n128166372013061629,h,0,Write ,4096,4096,100\n"),
        ("tencent.csv", "1538323200,8,8, 0,1063\n1538323201,16,8,1 ,1063\n"),
    ] {
        let info = json(INFO, args(&[&"trace", &"info", &"--json", &file(&folder, name, text)]));
        assert_eq!((&info["reads"], &info["writes"]), (&json!(1), &json!(1)), "{name}");
    }
}

#[test]
fn a_workload_is_described_in_a_table_in_json_and_in_a_report() {
    let folder = folder();
    // 2,000 requests over 200 s: every fourth a write of 8 KiB to the first blocks, the others one long sequential read.
    let requests: Vec<_> = (0..2_000u64)
        .map(|at| (at * 1_000_000, 0, at % 4 != 0, if at % 4 == 0 { 0 } else { (1 << 20) + at * 4096 }, 8192))
        .collect();
    let path = file(&folder, "workload.csv", msr(&requests));
    let report = folder.path().join("report.html");
    let stats =
        json("forebay.trace-stats/1", args(&[&"trace", &"stats", &"--json", &path, &"--report", &report]));
    assert_eq!(
        (&stats["requests"], &stats["reads"], &stats["writes"]),
        (&json!(2000), &json!(1500), &json!(500))
    );
    assert_eq!(stats["read_sizes"]["common"], json!([{ "bytes": 8192, "share": 1.0 }]));
    // Requests overlap by half, so that none begins where another ended.
    assert_eq!(stats["runs"]["random_share"], 1.0);
    assert!((stats["gaps"]["mean_s"].as_f64().unwrap() - 0.1).abs() < 1e-9);
    // A metronome: no variation, no dispersion where a window holds whole gaps.
    assert!(stats["gaps"]["squared_cv"].as_f64().unwrap() < 1e-9);
    assert_eq!(stats["heat"][0]["volume"], 0);
    let total: u64 = stats["heat"][0]["cells"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|row| row.as_array().unwrap())
        .map(|cell| cell.as_u64().unwrap())
        .sum();
    assert_eq!(total, 2_000);
    let page = std::fs::read_to_string(&report).expect("the report was written");
    assert!(
        page.contains("Requests per second")
            && page.contains("Where requests go")
            && page.ends_with("</html>\n")
    );
    let table = succeed(args(&[&"trace", &"stats", &path]));
    assert!(table.contains("write size, mean") && table.contains("Hurst exponent"), "{table}");
    // Whole seconds, out of order, of a hundred volumes, and only writes: said, and counted.
    let lines: Vec<_> = [3u64, 0, 1, 2]
        .into_iter()
        .flat_map(|at| (0..100).map(move |disk| (at * 10_000_000, disk, false, 0, 512)))
        .collect();
    let poor = file(&folder, "poor.csv", msr(&lines));
    let stats = json("forebay.trace-stats/1", args(&[&"trace", &"stats", &"--json", &poor]));
    assert_eq!((&stats["volumes"], &stats["reads"], &stats["span_s"]), (&json!(100), &json!(0), &json!(3.0)));
    assert_eq!((&stats["whole_seconds"], &stats["steps_back"]), (&json!(true), &json!(300)));
    let table = succeed(args(&[&"trace", &"stats", &poor]));
    assert!(table.contains("gaps and bursts below a second are not known"), "{table}");
    assert!(table.contains("times before that of an earlier request"), "{table}");
    // Objects are called by hashes, so that the grid reaches to 2^64.
    let far =
        file(&folder, "far.csv", msr(&[(0, 0, true, 0, 512), (10_000_000, 0, true, u64::MAX - 4095, 512)]));
    let table = succeed(args(&[&"trace", &"stats", &far]));
    assert!(table.contains("volume `host_0`: 16.00EiB upwards"), "{table}");
    // Gaps that are longer than what percentiles tell apart.
    let hours =
        file(&folder, "hours.csv", msr(&[0, 1, 2, 3].map(|at| (at * 36_000_000_000, 0, true, 0, 512))));
    let table = succeed(args(&[&"trace", &"stats", &hours]));
    assert!(table.contains("gap, mean") && table.contains("3600s") && table.contains("p50 >100s"), "{table}");
    // A single request has no gaps.
    let single = file(&folder, "single.csv", msr(&[(0, 0, false, 4096, 512)]));
    let stats = json("forebay.trace-stats/1", args(&[&"trace", &"stats", &"--json", &single]));
    assert_eq!((&stats["requests"], &stats["gaps"]), (&json!(1), &Value::Null));
    // Without times nothing is said of them.
    let timeless = file(&folder, "blocks.lis", "0 4 0 0\n8 2 0 1\n0 4 0 2\n");
    let stats = json(
        "forebay.trace-stats/1",
        args(&[&"trace", &"stats", &"--json", &"--format", &"arc-lis", &timeless]),
    );
    assert_eq!((&stats["requests"], &stats["footprint_blocks"]), (&json!(3), &json!(6)));
    assert!(stats["span_s"].is_null() && stats["gaps"].is_null() && stats["burstiness"].is_null());
}

#[test]
fn requests_before_the_beginning_are_told() {
    let folder = folder();
    let requests: Vec<_> =
        (0..5_000u64).rev().map(|at| (at * 10_000_000, 0, true, at * 4096, 4096)).collect();
    let trace = file(&folder, "backwards.csv", msr(&requests));
    let info = json(INFO, args(&[&"trace", &"info", &trace, &"--json"]));
    assert_eq!((&info["before_start"], &info["duration_s"]), (&json!(904), &json!(4999.0)));
    let stats = json("forebay.trace-stats/1", args(&[&"trace", &"stats", &trace, &"--json"]));
    assert_eq!(stats["span_s"], info["duration_s"]);
    assert!(succeed(args(&[&"trace", &"info", &trace])).contains("too early"));
    let copy = folder.path().join("copy.fbt");
    let disk = file(&folder, "disk", vec![0; 5_000 * 4096]);
    let plan = file(
        &folder,
        "plan.toml",
        "[[origin]]\nname = \"o\"\npreset = \"disk-10k\"\n[[volume]]\nname = \"v\"\ntrace = \"backwards.csv\"\n",
    );
    for command in [
        args(&[&"trace", &"convert", &trace, &"-o", &copy]),
        args(&[&"trace", &"stats", &trace]),
        args(&[&"mrc", &trace]),
        args(&[&"simulate", &trace, &"--sizes", &"100"]),
        args(&[&"simulate", &trace, &"--policy", &"lru", &"--sizes", &"10%"]),
        args(&[&"replay", &trace, &"--to", &disk, &"--pace", &"fast"]),
        args(&[&"plan", &plan]),
    ] {
        let output = run(command);
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(words.contains("904 requests, by 904s at most, are earlier"), "{words}");
    }
}

/// What is asked of the command line itself is output like any other.
#[test]
fn help_that_finds_no_room_is_an_error() {
    for command in [&["--help"][..], &["--version"], &["mrc", "--help"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("it can be written to");
        let mut forebay = Command::new(env!("CARGO_BIN_EXE_forebay"));
        let output = forebay.args(command).stdout(full).output().expect("it can be started");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(1) && words.contains("No space left on device"),
            "{command:?}: {words}"
        );
        assert_eq!(unread(command), 0);
    }
}

/// A part of a trace is nobody's when whoever asked for it ends the command.
#[test]
fn a_signal_leaves_no_part_of_a_file() {
    use rustix::process::{Pid, Signal, kill_process};
    let folder = folder();
    let requests: Vec<_> = (0..20_000u64).map(|at| (at, 0, true, at * 4096, 4096)).collect();
    for signal in [Signal::INT, Signal::TERM] {
        // Who runs in the background of a shell ignores SIGINT, and so would what it starts.
        let mut child = Command::new("env")
            .args(["--default-signal=INT", env!("CARGO_BIN_EXE_forebay"), "trace", "convert", "-", "-o"])
            .arg(folder.path().join("copy.fbt"))
            .stdin(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let mut input = child.stdin.take().expect("it reads");
        input.write_all(msr(&requests).as_bytes()).expect("it reads");
        let partial = folder.path().join("copy.fbt.partial");
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !partial.exists() {
            assert!(std::time::Instant::now() < until, "it writes while there is more to read");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        kill_process(Pid::from_child(&child), signal).expect("it runs");
        let status = child.wait().expect("it ends");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(signal.as_raw()));
        assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0, "{signal:?}");
    }
}
