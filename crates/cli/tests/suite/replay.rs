//! `forebay replay` against files and real NBD servers: what arrives, what is refused, and what is said of traces and targets that
//! are not as they should be.

use crate::support::{Running, args, fail, file, folder, json, msr, run, wait_for};
use forebay_prerequisite::{programs, skip};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const REPLAY: &str = "forebay.replay/1";

/// A file of `bytes` zeroes that takes no space.
fn sparse(folder: &tempfile::TempDir, name: &str, bytes: u64) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("a sparse file can be made");
    path
}

/// Starts nbdkit with `arguments` on a socket in `folder`; the URI.
fn nbdkit(folder: &Path, arguments: &[&str]) -> (Running, String) {
    let socket = folder.join("nbdkit.sock");
    let child = Command::new("nbdkit")
        .args(["-f", "-U"])
        .arg(&socket)
        .args(arguments)
        .stdout(Stdio::null())
        .spawn()
        .expect("nbdkit is installed");
    let server = Running(vec![child]);
    wait_for(&socket);
    (server, format!("nbd+unix:///?socket={}", socket.display()))
}

#[test]
fn what_a_trace_asks_arrives_at_a_real_server_at_its_times() {
    if !programs("replay to nbdkit", &["nbdkit"], false) {
        return;
    }
    let folder = folder();
    // 300 requests, 1 ms apart, reads and writes of 4 KiB in turn, each at its own place.
    let requests: Vec<_> =
        (0..300).map(|at| (at * 10_000, 0, at % 2 == 0, (at * 7 % 300) * 8192, 4096)).collect();
    let trace = file(&folder, "trace.csv", msr(&requests));
    let log = folder.path().join("log");
    let logfile = format!("logfile={}", log.display());
    let (server, uri) = nbdkit(folder.path(), &["--filter=log", "memory", "64M", &logfile]);
    let report = json(REPLAY, args(&[&"replay", &trace, &"--to", &uri, &"--json", &"--interval", &"100ms"]));
    drop(server);
    assert_eq!((&report["answered"], &report["errors"]), (&json!(300), &json!(0)));
    assert_eq!(report["fidelity"]["issued"], 300);
    assert_eq!(report["fidelity"]["bound_hit"], 0);
    assert_eq!((&report["reads"]["count"], &report["writes"]["count"]), (&json!(150), &json!(150)));
    let intervals = report["intervals"].as_array().expect("an array");
    assert!(intervals.len() >= 3, "{}", intervals.len());
    let sum: u64 = intervals.iter().map(|interval| interval["reads"]["count"].as_u64().unwrap()).sum();
    assert_eq!(sum, 150);
    // How precise it was is a matter of how busy the machine is.
    assert!(report["fidelity"]["stretch"].as_f64().unwrap() > 0.0, "{}", report["fidelity"]);
    // The server saw each of them: operation, offset, length.
    let text = std::fs::read_to_string(&log).expect("nbdkit wrote its log");
    let mut seen: Vec<(bool, u64)> = text
        .lines()
        .filter_map(|line| {
            let is_read = line.contains(" Read ");
            let asked = is_read || line.contains(" Write ");
            let offset = line.split("offset=0x").nth(1)?.split(' ').next()?;
            (asked && line.contains("count=0x1000"))
                .then(|| (is_read, u64::from_str_radix(offset, 16).unwrap()))
        })
        .collect();
    let mut wanted: Vec<(bool, u64)> = requests.iter().map(|request| (request.2, request.3)).collect();
    seen.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(seen, wanted);
}

#[test]
fn content_is_verified_on_a_file_and_nothing_is_overwritten_unasked() {
    let folder = folder();
    let requests: Vec<_> =
        (0..400).map(|at| (at * 1_000, 0, at % 4 == 3, at * 5 % 64 * 4096, 8192)).collect();
    let trace = file(&folder, "trace.csv", msr(&requests));
    let target = sparse(&folder, "target.img", 1 << 20);
    // An empty file may be written to.
    let verify: [&dyn AsRef<std::ffi::OsStr>; 6] =
        [&"replay", &trace, &"--to", &target, &"--verify", &"--json"];
    let report = json(REPLAY, args(&verify));
    assert_eq!((&report["errors"], &report["wrong_reads"]), (&json!(0), &json!(0)));
    assert!(report["bytes_checked"].as_u64().unwrap() > 100_000, "{}", report["bytes_checked"]);
    // Now it holds data.
    let before = std::fs::read(&target).unwrap();
    let (status, words) = fail(args(&verify));
    assert_eq!(status, 1);
    assert!(words.contains("holds data, and 300 requests of the trace would change it"), "{words}");
    assert!(words.contains("hint: write over it with --yes-overwrite"), "{words}");
    assert!(std::fs::read(&target).unwrap() == before, "a refused replay changed its target");
    let reads = json(REPLAY, args(&[&"replay", &trace, &"--to", &target, &"--reads-only", &"--json"]));
    assert_eq!((&reads["answered"], &reads["requests"]["left_out"]), (&json!(100), &json!(300)));
    assert!(std::fs::read(&target).unwrap() == before, "a replay of reads changed its target");
    let again = json(REPLAY, args(&[&"replay", &trace, &"--to", &target, &"--yes-overwrite", &"--json"]));
    assert_eq!(again["answered"], 400);
    assert!(std::fs::read(&target).unwrap() != before);
    let (status, words) = fail(args(&[&"replay", &trace, &"--to", &target, &"--verify", &"--threads", &"2"]));
    assert_eq!(status, 2, "{words}");
    // What is left out changes nothing, and needs no consent.
    let two =
        file(&folder, "two.csv", msr(&[(0, 0, true, 0, 4096), (1, 1, false, 0, 4096), (2, 0, true, 0, 512)]));
    let play = |volume: &str| args(&[&"replay", &two, &"--to", &target, &"--json", &"--volume", &volume]);
    assert_eq!(json(REPLAY, play("host_0"))["answered"], 2);
    let (_, words) = fail(play("host_1"));
    assert!(words.contains("holds data, and 1 requests of the trace would change it"), "{words}");
}

/// Without regard to the recorded times, but not for longer than was said; what was prepared for later is told apart.
#[test]
fn a_fast_replay_ends_with_its_duration() {
    let folder = folder();
    // One request an hour.
    let requests: Vec<_> = (0..40).map(|at| (at * 36_000_000_000, 0, true, at * 4096, 4096)).collect();
    let trace = file(&folder, "trace.csv", msr(&requests));
    let target = sparse(&folder, "target.img", 1 << 20);
    let fast = |duration: &str| {
        json(
            REPLAY,
            args(&[
                &"replay",
                &trace,
                &"--to",
                &target,
                &"--json",
                &"--pace",
                &"fast",
                &"--duration",
                &duration,
            ]),
        )
    };
    let long = fast("10min");
    assert_eq!((&long["answered"], &long["requests"]["not_issued"]), (&json!(40), &json!(0)));
    let short = fast("1ns");
    assert_eq!((&short["answered"], &short["requests"]["not_issued"]), (&json!(0), &json!(40)));
    // What was read ahead of the players is not told as played.
    assert_eq!((&long["requests"]["taken"], &short["requests"]["taken"]), (&json!(40), &json!(0)));
}

/// Every byte is checked, whoever reads and writes the file.
#[test]
fn a_file_is_played_to_through_a_ring_and_by_threads() {
    let folder = folder();
    let requests: Vec<_> =
        (0..400).map(|at| (at * 1_000, 0, at % 4 == 3, at * 5 % 64 * 4096, 8192)).collect();
    let trace = file(&folder, "trace.csv", msr(&requests));
    for engine in ["threads", "io_uring", "auto"] {
        let target = sparse(&folder, engine, 1 << 20);
        let output =
            run(args(&[&"replay", &trace, &"--to", &target, &"--verify", &"--json", &"--engine", &engine]));
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        if engine == "io_uring" && words.contains("io_uring") {
            skip("a replay by io_uring", words);
            continue;
        }
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
        assert_eq!((&report["errors"], &report["wrong_reads"]), (&json!(0), &json!(0)), "{engine}: {words}");
        assert!(report["bytes_checked"].as_u64().unwrap() > 100_000, "{engine}: {report}");
        assert_eq!(words.contains("by threads"), engine == "auto" && words.contains("io_uring"), "{words}");
    }
}

#[test]
fn a_server_is_played_to_over_tls_if_it_is_believed() {
    if !programs("replay to nbdkit over TLS", &["nbdkit"], false) {
        return;
    }
    let folder = folder();
    let certificates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/tests/certificates");
    let good = certificates.join("good");
    let option = format!("--tls-certificates={}", good.display());
    let (server, uri) =
        nbdkit(folder.path(), &["--tls=require", "--tls-verify-peer", &option, "memory", "64M"]);
    let uri = uri.replace("nbd+unix", "nbds+unix");
    let requests: Vec<_> =
        (0..400).map(|at| (at * 1_000, 0, at % 4 == 3, at * 5 % 64 * 4096, 8192)).collect();
    let trace = file(&folder, "trace.csv", msr(&requests));
    let with = |authorities: &Path, shown: &[&str]| {
        let mut all = args(&[&"replay", &trace, &"--to", &uri, &"--verify", &"--json"]);
        all.extend(args(&[&"--tls-authorities", &authorities]));
        all.extend(shown.iter().map(Into::into));
        all
    };
    let [certificate, key] =
        ["client-cert.pem", "client-key.pem"].map(|name| good.join(name).display().to_string());
    let shown = ["--tls-certificate", &certificate, "--tls-key", &key];
    let report = json(REPLAY, with(&good.join("ca-cert.pem"), &shown));
    assert_eq!(
        (&report["errors"], &report["wrong_reads"], &report["answered"]),
        (&json!(0), &json!(0), &json!(400))
    );
    let (status, words) = fail(with(&certificates.join("stranger/ca-cert.pem"), &shown));
    assert!(status == 1 && words.contains("certificate"), "{words}");
    drop(server);
    let (status, words) = fail(args(&[&"replay", &trace, &"--to", &uri]));
    assert!(
        status == 2 && words.contains("whose certificates to believe") && words.contains("--tls-authorities"),
        "{words}"
    );
}

#[test]
fn traces_that_are_not_as_they_should_be() {
    let folder = folder();
    let target = sparse(&folder, "target.img", 16 << 20);
    let play = |trace: &Path, more: &[&str]| -> Value {
        let mut arguments = args(&[&"replay", &trace, &"--to", &target, &"--yes-overwrite", &"--json"]);
        arguments.extend(more.iter().map(Into::into));
        json(REPLAY, arguments)
    };
    // Without times: refused in an open loop, played at a rate or as fast as it goes.
    let timeless = file(&folder, "blocks.lis", "0 4 0 0\n8 2 0 1\n0 4 0 2\n");
    let refused = args(&[&"replay", &"--format", &"arc-lis", &timeless, &"--to", &target]);
    let (status, words) = fail(refused);
    assert_eq!(status, 1);
    assert!(words.contains("the trace has no times") && words.contains("--rate"), "{words}");
    let rated = play(&timeless, &["--format", "arc-lis", "--rate", "1000"]);
    assert_eq!((&rated["answered"], &rated["rate"]), (&json!(3), &json!(1000.0)));
    let fast = play(&timeless, &["--format", "arc-lis", "--pace", "fast"]);
    assert_eq!((&fast["answered"], &fast["fidelity"]["issued"]), (&json!(3), &json!(0)));
    assert_eq!((&fast["whole_seconds"], &rated["whole_seconds"]), (&json!(null), &json!(null)));
    for (option, value) in [("--rate", "100"), ("--speed", "2")] {
        let (status, words) =
            fail(args(&[&"replay", &timeless, &"--to", &target, &"--pace", &"fast", &option, &value]));
        assert!(status == 2 && words.contains(&format!("leave out {option}, or --pace fast")), "{words}");
    }
    // There are no gaps that could be divided.
    for intensity in ["0.5", "2"] {
        let options = ["--format", "arc-lis", "--pace", "fast", "--intensity", intensity];
        assert_eq!(play(&timeless, &options)["answered"], 3, "{intensity}");
    }

    // Whole seconds, played 100 times as fast: spread over the second unless told otherwise.
    let lines: Vec<_> = (0..20).map(|at| (10_000_000 * (at / 10), 0, true, at * 4096, 4096)).collect();
    let seconds = file(&folder, "seconds.csv", msr(&lines));
    let spread = play(&seconds, &["--speed", "20"]);
    assert_eq!((&spread["whole_seconds"], &spread["answered"]), (&json!("spread"), &json!(20)));
    assert_eq!(play(&seconds, &["--pace", "fast"])["whole_seconds"], json!(null));
    let as_is = play(&seconds, &["--speed", "20", "--whole-seconds", "as-is"]);
    assert_eq!((&as_is["whole_seconds"], &as_is["answered"]), (&json!("as-is"), &json!(20)));

    // Out of order: issued in order of time.
    let disordered = file(
        &folder,
        "disordered.csv",
        msr(&[(200_000, 0, true, 0, 512), (0, 0, true, 512, 512), (100_000, 0, true, 1024, 512)]),
    );
    let report = play(&disordered, &[]);
    assert_eq!(
        (&report["requests"]["reordered"], &report["requests"]["out_of_order"]),
        (&json!(2), &json!(0))
    );
    // How near to 1 it comes depends on the machine; that it can be told depends on the order.
    assert!(report["fidelity"]["stretch"].as_f64().unwrap() > 0.0);

    // A single request has no stretch.
    let single = file(&folder, "single.csv", msr(&[(0, 0, false, 4096, 512)]));
    let report = play(&single, &[]);
    assert_eq!((&report["answered"], &report["fidelity"]["stretch"]), (&json!(1), &Value::Null));

    // 100 volumes of 1 MiB on a target of 16 MiB: laid one after the other and wrapped, or scaled, or refused; or one of them.
    let many: Vec<_> = (0..200).map(|at| (at * 100, (at % 100) as u32, false, 0xf_f000, 4096)).collect();
    let many = file(&folder, "many.csv", msr(&many));
    let report = play(&many, &[]);
    assert_eq!((&report["answered"], &report["trace_bytes"]), (&json!(200), &json!(100 << 20)));
    assert_eq!(report["requests"]["moved"], 2 * (100 - 16));
    assert_eq!(play(&many, &["--fit", "scale"])["answered"], 200);
    let refused = args(&[&"replay", &many, &"--to", &target, &"--yes-overwrite", &"--fit", &"refuse"]);
    let (_, words) = fail(refused);
    assert!(words.contains("the trace reaches 100MiB, but the target has 16MiB"), "{words}");
    let one = play(&many, &["--volume", "host_7"]);
    assert_eq!((&one["answered"], &one["requests"]["moved"]), (&json!(2), &json!(0)));
    let (status, words) = fail(args(&[&"replay", &many, &"--to", &target, &"--volume", &"none"]));
    assert_eq!(status, 2);
    assert!(words.contains("the trace has no volume `none`"), "{words}");

    // Only writes, and only reads asked for.
    let (_, words) = fail(args(&[&"replay", &single, &"--to", &target, &"--reads-only"]));
    assert!(words.contains("nothing of the trace is left to play"), "{words}");
    // Standard input is read twice: it is kept.
    let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["replay", "-", "--json", "--reads-only", "--to"])
        .arg(&target)
        .stdin(Stdio::from(std::fs::File::open(&disordered).unwrap()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let report: Value = serde_json::from_reader(child.stdout.take().unwrap()).expect("output is JSON");
    assert!(child.wait().unwrap().success());
    assert_eq!(report["answered"], 3);
}

#[test]
fn targets_that_are_not_as_they_should_be() {
    let folder = folder();
    let lines: Vec<_> = (0..500).map(|at| (at * 20_000, 0, true, at % 256 * 4096, 4096)).collect();
    let trace = file(&folder, "trace.csv", msr(&lines));
    let writes = file(&folder, "writes.csv", msr(&[(0, 0, false, 0, 4096), (10, 0, false, 0, 4096)]));
    let absent = folder.path().join("absent.img");
    let (status, words) = fail(args(&[&"replay", &trace, &"--to", &absent]));
    assert_eq!(status, 1);
    assert!(words.contains("does not exist") && words.contains("hint: make one with `truncate"), "{words}");
    // Whoever opens a FIFO to read waits for somebody who writes to it.
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there").success());
    let output = Command::new("timeout")
        .args(args(&[
            &"20",
            &env!("CARGO_BIN_EXE_forebay"),
            &"replay",
            &trace,
            &"--to",
            &pipe,
            &"--yes-overwrite",
        ]))
        .output()
        .expect("timeout is there");
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("neither a file nor a block device"), "{words}");
    let output = Command::new("timeout")
        .args(args(&[&"20", &env!("CARGO_BIN_EXE_forebay"), &"replay", &writes, &"--to", &pipe]))
        .output()
        .expect("timeout is there");
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("neither a file nor a block device"), "{words}");
    let (status, words) = fail(args(&[&"replay", &trace, &"--to", &"ftp://nowhere"]));
    assert_eq!(status, 2, "{words}");
    let nobody = format!("nbd+unix:///?socket={}", folder.path().join("nobody").display());
    let (status, _) = fail(args(&[&"replay", &trace, &"--to", &nobody]));
    assert_eq!(status, 1);
    // A file that is cut short meanwhile: what lies beyond its end is an error, and all is tried.
    let cut = sparse(&folder, "cut.img", 16 << 20);
    let child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(args(&[&"replay", &trace, &"--to", &cut, &"--json"]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    std::thread::sleep(Duration::from_millis(400));
    std::fs::File::options().write(true).open(&cut).unwrap().set_len(0).unwrap();
    let output = child.wait_with_output().expect("it ends");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && words.contains("were answered with an error"), "{words}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("the report is printed all the same");
    assert!(report["errors"].as_u64().unwrap() > 0 && report["gave_up"].is_null(), "{report}");
    assert_eq!(report["answered"], 500);

    if !programs("replay to a failing nbdkit", &["nbdkit"], false) {
        return;
    }
    // A server that answers every request with an error, and says so in the report and by its status.
    let failing = tempfile::tempdir_in(folder.path()).unwrap();
    let (server, uri) = nbdkit(
        failing.path(),
        &["--filter=error", "memory", "64M", "error-pread-rate=100%", "error-pread=EIO"],
    );
    let output = run(args(&[&"replay", &trace, &"--to", &uri, &"--json", &"--duration", &"200ms"]));
    drop(server);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("the report is printed all the same");
    assert_eq!(report["errors"], report["answered"]);
    assert!(report["errors"].as_u64().unwrap() >= 100 && report["gave_up"].is_null(), "{report}");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        words.contains("requests were answered with an error; first: origin answered errno 5"),
        "{words}"
    );

    // A server that stops in the middle: given up after the time that was allowed, with what was done.
    let dying = tempfile::tempdir_in(folder.path()).unwrap();
    let (mut server, uri) = nbdkit(dying.path(), &["memory", "64M"]);
    let child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(args(&[&"replay", &trace, &"--to", &uri, &"--json", &"--give-up-after", &"150ms"]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    std::thread::sleep(Duration::from_millis(400));
    server.0[0].kill().expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("the report is printed all the same");
    assert!(report["gave_up"].as_str().unwrap().contains("no request succeeded for 150ms"), "{report}");
    assert!(report["errors"].as_u64().unwrap() > 0 && report["answered"].as_u64().unwrap() < 500);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains("error: given up: no request succeeded"), "{words}");

    // A server that writes nothing.
    let fixed = tempfile::tempdir_in(folder.path()).unwrap();
    let (server, uri) = nbdkit(fixed.path(), &["-r", "memory", "64M"]);
    let writes = file(&folder, "writes.csv", msr(&[(0, 0, false, 0, 4096)]));
    let (_, words) = fail(args(&[&"replay", &writes, &"--to", &uri]));
    drop(server);
    assert!(
        words.contains("is read-only, and the trace writes") && words.contains("--reads-only"),
        "{words}"
    );
}

/// Sockets with timeouts end what waits for them when the process was stopped and goes on, by hand or with its container: nothing came of it.
#[test]
fn a_replay_that_is_stopped_in_its_handshake_and_goes_on_finishes_it() {
    use rustix::process::{Pid, Signal, kill_process};
    let folder = folder();
    let trace = file(&folder, "trace.csv", msr(&[(0, 0, true, 0, 4096)]));
    let socket = folder.path().join("silent.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket can be bound");
    let child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["replay".as_ref(), trace.as_os_str(), "--to".as_ref()])
        .arg(format!("nbd+unix:///?socket={}", socket.display()))
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be started");
    let (silent, _) = listener.accept().expect("it connects");
    let pid = Pid::from_child(&child);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(60));
        kill_process(pid, Signal::STOP).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        kill_process(pid, Signal::CONT).unwrap();
    }
    std::thread::sleep(Duration::from_millis(60));
    // It waits for the server's first word still, and hears of its end.
    drop((silent, listener));
    let said = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert!(said.contains("unexpected end of file"), "{said}");
}
