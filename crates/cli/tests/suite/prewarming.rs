//! `forebay repro presto` and `forebay repro failover`, in their short forms: the evaluation comes out as the slides have it, and who takes over
//! a killed daemon's volume begins with what it had cached.

use crate::support::{Running, args, file, folder, json, run, serve, succeed, wait_for};
use forebay_nbd::Uri;
use forebay_origin::{
    CompletionSink, NbdOrigin, NbdOriginOptions, Origin, OriginCompletion, OriginOperation, OriginRequest,
    OriginRequestId,
};
use forebay_prerequisite::{programs, recorded};
use forebay_units::ByteRange;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Mean ratios per look-up over 5, 15 and 30 minutes.
fn columns(row: &Value) -> [f64; 3] {
    ["mean_5min", "mean_15min", "mean_30min"].map(|column| row["look_ups"][column].as_f64().expect("a ratio"))
}

#[test]
fn the_short_presto_keeps_the_orderings_of_the_slides_and_its_bounds() {
    let folder = folder();
    let report = folder.path().join("report.html");
    let arguments = ["repro", "presto", "--quick", "--json", "--report", report.to_str().unwrap()];
    let found = json("forebay.repro-presto/1", arguments);
    let rows = found["rows"].as_array().unwrap();
    let row =
        |who: &str| rows.iter().find(|row| row["who"] == who).unwrap_or_else(|| panic!("no row `{who}`"));
    let slides: Vec<&Value> = rows.iter().filter(|row| row["published"].is_array()).collect();
    assert_eq!(slides.len(), 4, "{slides:?}");
    let mut compared = 0;
    for a in &slides {
        for b in &slides {
            // The slides' first column is that of the first second.
            for column in 0..3 {
                let published = |row: &Value| row["published"][column + 1].as_f64().unwrap();
                if published(a) > published(b) {
                    compared += 1;
                    assert!(columns(a)[column] > columns(b)[column], "{} and {}", a["who"], b["who"]);
                }
            }
        }
    }
    assert!(compared >= 9, "k-Recent is above the other three in every column");
    let (cold, ideal, warm) =
        (columns(row("cold")), columns(row("knows the future")), columns(row("did not fail")));
    for slide in slides {
        assert!(cold[0] < columns(slide)[0] && columns(slide)[0] < ideal[0], "{slide}");
    }
    assert!(ideal[0] < warm[0]);
    let cost = &found["snapshots"][0];
    let encoded = cost["encoded_bytes_last"].as_u64().unwrap();
    assert!(encoded < cost["bytes_each"].as_u64().unwrap() && encoded > 0, "{cost}");
    assert!(std::fs::read_to_string(report).unwrap().contains("<table"));
    // A seed repeats it.
    let text = succeed(["repro", "presto", "--quick"]);
    assert!(text.lines().next().is_some_and(|line| line.contains("; simulated, seed ")), "{text}");
    let again = json("forebay.repro-presto/1", ["repro", "presto", "--quick", "--json"]);
    assert_eq!(again, found);
}

#[test]
fn of_recorded_volumes_of_high_locality_almost_nothing_is_loaded_and_it_is_said_why() {
    let Some(trace) = recorded("disksim_ssd-iozone-aligned2-100K.trace.zst") else { return };
    let folder = trace.parent().unwrap().to_str().unwrap().to_owned();
    let written = tempfile::tempdir().unwrap();
    let report = written.path().join("report.html");
    let command = ["repro", "presto", "--json", "--traces", &folder, "--report", report.to_str().unwrap()];
    let found = json("forebay.repro-presto-recorded/1", command);
    let cache = found["cache_bytes"].as_f64().unwrap();
    let number =
        |volume: &Value, key: &str| volume[key].as_f64().unwrap_or_else(|| panic!("{key}: {volume}"));
    let volumes = found["volumes"].as_array().unwrap();
    // What a cold node soon finds by itself is of high locality, as the slides' RealCSE.
    let local: Vec<&Value> = volumes.iter().filter(|volume| number(volume, "cold") > 0.9).collect();
    assert!(local.len() >= 3, "{found}");
    for volume in local {
        assert!(number(volume, "loaded_bytes") < 0.02 * cache, "{volume}");
        assert!(number(volume, "decided") >= number(volume, "warm") - 0.01, "{volume}");
        let words = volume["decision"].as_str().unwrap();
        assert!(words.contains("look-ups") && words.contains(volume["name"].as_str().unwrap()), "{words}");
    }
    for volume in volumes {
        assert!(number(volume, "loaded_bytes") < 0.07 * cache, "{volume}");
        assert!(number(volume, "decided") >= number(volume, "cold"), "{volume}");
        assert!(number(volume, "decided") <= number(volume, "warm") + 0.005, "{volume}");
    }
    assert!(found["left_out"].to_string().contains("expected at least 600"), "{found}");
    assert!(std::fs::read_to_string(report).unwrap().contains("expected at least 600"));
}

#[test]
fn a_folder_of_recordings_that_are_all_too_short_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/office.fbt.zst");
    std::fs::copy(example, folder.path().join("office.fbt.zst")).unwrap();
    let output = run(["repro", "presto", "--traces", folder.path().to_str().unwrap()]);
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    for told in ["left out: office", "it lasts 300 s, expected at least 600", "holds no trace of 600 s"] {
        assert!(words.contains(told), "{words}");
    }
}

#[test]
fn who_takes_over_a_killed_daemon_begins_with_what_it_had_cached() {
    let folder = folder();
    let report = folder.path().join("report.html");
    let output = run(["repro", "failover", "--quick", "--json", "--report", report.to_str().unwrap()]);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("output is JSON");
    assert_eq!(found["schema"], "forebay.repro-failover/1");
    assert_eq!((&found["wrong_reads"], &found["errors"]), (&0.into(), &0.into()), "{found}");
    assert!(found["bytes_checked"].as_u64().unwrap() > 4 << 20, "{found}");
    let ways = found["ways"].as_array().unwrap();
    let [snapshots, cold] = [&ways[0], &ways[1]];
    assert_eq!((&snapshots["begins"], &cold["begins"]), (&"snapshots".into(), &"cold".into()));
    assert_eq!(cold["loaded_bytes"], 0);
    assert!(snapshots["loaded_bytes"].as_u64().unwrap() > 1 << 20, "{found}");
    let ratio = |way: &Value| way["hit_ratio"].as_f64().unwrap();
    assert!(ratio(snapshots) > ratio(cold), "{found}");
    assert!(std::fs::read_to_string(report).unwrap().contains("<svg "));
}

struct Answers(Sender<OriginCompletion>);

impl CompletionSink for Answers {
    fn complete(&self, completion: OriginCompletion) {
        let _ = self.0.send(completion);
    }
}

/// Every third block of the first 768 KiB, twice each: 64 blocks, each filled with its number.
fn read_every_third_block(socket: &Path) {
    let client =
        NbdOrigin::connect(&Uri::unix(socket, "disk"), NbdOriginOptions::default()).expect("it is served");
    let (sender, answers) = channel();
    let sink: Arc<dyn CompletionSink> = Arc::new(Answers(sender));
    for block in (0..192).step_by(3).flat_map(|block| [block, block]) {
        let operation = OriginOperation::Read { range: ByteRange::new(block * 4096, 4096) };
        client.submit(OriginRequest { id: OriginRequestId(block), operation }, &sink);
        let answer = answers.recv_timeout(Duration::from_secs(20)).expect("an answer");
        assert!(answer.result.expect("a read").iter().all(|byte| u64::from(*byte) == block));
    }
}

/// What `forebay status` says, once that is `enough`.
fn status_once(config: &Path, what: &str, enough: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let status = json("forebay.status/1", args(&[&"status", &"--config", &config, &"--json"]));
        if enough(&status) {
            return status;
        }
        assert!(Instant::now() < end, "{what}: {status}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_a_killed_host_cached_is_read_from_the_origins_storage_by_another() {
    let shared = folder();
    let disk: Vec<u8> = (0..1024).flat_map(|block| [block as u8; 4096]).collect();
    let disk = file(&shared, "disk.img", disk);
    // Snapshots are behind what is somebody else's.
    let mut reserved = vec![0; 4 << 20];
    reserved[..1 << 20].fill(0xab);
    let reserved = file(&shared, "reserved.img", reserved);
    let hosts = [folder(), folder()];
    let host = |at: usize| -> (PathBuf, PathBuf) {
        let text = format!(
            "listen = [\"unix:nbd.sock\"]\n[[volume]]\nname = \"disk\"\norigin = {disk:?}\ncache = \"1MiB\"\n\
             [snapshots]\norigin = {reserved:?}\noffset = \"1MiB\"\nlength = \"3MiB\"\nslot = \"64KiB\"\nevery = \"100ms\"\n\
             [http]\nlisten = \"off\"\nsocket = \"http.sock\"\n[control.warmup]\nspared_min = 0.0\n"
        );
        (file(&hosts[at], "forebay.toml", text), hosts[at].path().join("nbd.sock"))
    };
    let log = |at: usize| std::fs::File::create(hosts[at].path().join("log")).unwrap();

    let (config, socket) = host(0);
    let mut first = Running(vec![serve(&config, log(0))]);
    wait_for(&socket);
    status_once(&config, "two snapshots are taken", |status| {
        read_every_third_block(&socket);
        status["snapshots"]["taken"].as_u64() >= Some(2)
    });
    // SIGKILL: nothing is written at the end.
    first.0[0].kill().unwrap();
    first.0[0].wait().unwrap();

    let (config, socket) = host(1);
    let _second = Running(vec![serve(&config, log(1))]);
    wait_for(&socket);
    let ended = |status: &Value| status["volumes"][0]["prewarm"]["ended"] == "done";
    let status = status_once(&config, "it is loaded", ended);
    assert_eq!(status["volumes"][0]["prewarm"]["loaded_bytes"], 64 * 4096, "{status}");
    let snapshots = &status["snapshots"];
    // Whatever was being written when the first was killed is refused at most.
    assert!(snapshots["used"].as_u64() >= Some(1) && snapshots["refused"].as_u64() <= Some(1), "{status}");
    assert!(snapshots["directory"].as_str().unwrap().contains("reserved.img"), "{status}");
    read_every_third_block(&socket);
    assert!(std::fs::read(&reserved).unwrap()[..1 << 20].iter().all(|byte| *byte == 0xab));
}

#[test]
fn what_a_killed_host_cached_is_read_from_a_database_loaded_as_chosen_and_explained() {
    let shared = folder();
    let disk: Vec<u8> = (0..1024).flat_map(|block| [block as u8; 4096]).collect();
    let disk = file(&shared, "disk.img", disk);
    let database = shared.path().join("state.db");
    let hosts = [folder(), folder()];
    let host = |at: usize, rules: &str| -> (PathBuf, PathBuf) {
        let text = format!(
            "listen = [\"unix:nbd.sock\"]\n[[volume]]\nname = \"disk\"\norigin = {disk:?}\ncache = \"1MiB\"\n\
             [snapshots]\ndatabase = {database:?}\nevery = \"100ms\"\n[http]\nlisten = \"off\"\nsocket = \"http.sock\"\n[control.warmup]\n{rules}\n"
        );
        (file(&hosts[at], "forebay.toml", text), hosts[at].path().join("nbd.sock"))
    };
    let log = |at: usize| std::fs::File::create(hosts[at].path().join("log")).unwrap();
    let (config, socket) = host(0, "");
    let mut first = Running(vec![serve(&config, log(0))]);
    wait_for(&socket);
    status_once(&config, "two snapshots are taken", |status| {
        read_every_third_block(&socket);
        status["snapshots"]["taken"].as_u64() >= Some(2)
    });
    first.0[0].kill().unwrap();
    first.0[0].wait().unwrap();

    // The other one leaves the volume to itself, and says why (too few hits, or misses that fill it as soon), until somebody asks.
    let (config, socket) = host(1, "hit_ratio_min = 1.0\nbytes_per_second_max = \"1MiB\"");
    let _second = Running(vec![serve(&config, log(1))]);
    wait_for(&socket);
    let explain = || {
        let output = run(args(&[&"explain", &"disk", &"--config", &config]));
        String::from_utf8(output.stdout).expect("text")
    };
    let told = |what: &str, words: &[&str]| {
        let end = Instant::now() + Duration::from_secs(30);
        while !words.iter().all(|word| explain().contains(word)) {
            assert!(Instant::now() < end, "{what}: {}", explain());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    told("why not", &["nothing of its snapshots is loaded", "reason its ", "working set", "hit ratio"]);
    let chosen = ["--score", "k-recent", "--insertion", "own-partition", "--cache-share-max", "0.125"];
    let mut order = args(&[&"prewarm", &"disk", &"--config", &config, &"--json"]);
    order.extend(chosen.map(Into::into));
    order.extend(["--bytes-per-second-max", "512KiB"].map(Into::into));
    json("forebay.prewarm/1", order);
    let status =
        status_once(&config, "it is loaded", |status| status["volumes"][0]["prewarm"]["ended"] == "done");
    let loaded = &status["volumes"][0]["prewarm"];
    // An eighth of 256 blocks.
    assert_eq!(loaded["loaded_bytes"], 32 * 4096, "{status}");
    told(
        "why",
        &[
            "128KiB are loaded into the cache of disk from its snapshots",
            "k-recent",
            "own-partition",
            "spared",
        ],
    );
    let mut wrong = args(&[&"prewarm", &"disk", &"--config", &config]);
    wrong.extend(["--score", "k-best"].map(Into::into));
    let output = run(wrong);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && words.contains("k-frerecent-quadratic"), "{words}");
    read_every_third_block(&socket);
}

#[test]
fn two_hosts_share_an_export_that_nothing_locks_and_go_on_when_it_is_full() {
    if !programs("snapshots on an export that is full", &["nbdkit"], false) {
        return;
    }
    let shared = folder();
    let (export, full) = (shared.path().join("export.sock"), shared.path().join("full"));
    let kit = std::process::Command::new("nbdkit")
        .args(["-f", "-U", export.to_str().unwrap(), "--filter=error", "memory", "4M", "error-pwrite=ENOSPC"])
        .args(["error-pwrite-rate=100%", &format!("error-pwrite-file={}", full.display())])
        .spawn()
        .expect("nbdkit is installed");
    let mut running = Running(vec![kit]);
    wait_for(&export);
    let disk: Vec<u8> = (0..1024).flat_map(|block| [block as u8; 4096]).collect();
    let hosts = [folder(), folder(), folder()];
    // The third one is the second's again: another host that takes its volume over. Slots for three snapshots of each, so that they soon are in each other's way.
    let host = |at: usize| -> (PathBuf, PathBuf) {
        let disk = file(&shared, &format!("disk{}.img", at.min(1)), &disk);
        let text = format!(
            "listen = [\"unix:nbd.sock\"]\n[[volume]]\nname = \"disk\"\norigin = {disk:?}\ncache = \"1MiB\"\n\
             [snapshots]\norigin = \"nbd+unix:///?socket={}\"\nlength = \"120KiB\"\nslot = \"16KiB\"\nevery = \"100ms\"\nkeep = 3\n\
             [http]\nlisten = \"off\"\nsocket = \"http.sock\"\n[control.warmup]\nspared_min = 0.0\n",
            export.display()
        );
        (file(&hosts[at], "forebay.toml", text), hosts[at].path().join("nbd.sock"))
    };
    let log = |at: usize| std::fs::File::create(hosts[at].path().join("log")).unwrap();
    let both = [host(0), host(1)];
    for (at, (config, socket)) in both.iter().enumerate() {
        running.0.push(serve(config, log(at)));
        wait_for(socket);
    }
    // They are read all the time, so that each has something to tell whenever it may.
    let once = |what: &str, key: &str, more: u64| {
        let count = |config: &Path| {
            let status = json("forebay.status/1", args(&[&"status", &"--config", &config, &"--json"]));
            status["snapshots"][key].as_u64().expect("a number")
        };
        let enough = both.each_ref().map(|(config, _)| count(config) + more);
        let end = Instant::now() + Duration::from_secs(60);
        while both.iter().zip(enough).any(|((config, _), enough)| count(config) < enough) {
            both.iter().for_each(|(_, socket)| read_every_third_block(socket));
            assert!(Instant::now() < end, "{what}");
        }
    };
    once("each takes snapshots", "taken", 4);
    std::fs::write(&full, "").unwrap();
    once("no room is told, and what is read is right", "failed", 2);
    std::fs::remove_file(&full).unwrap();
    once("each takes snapshots again", "taken", 3);
    let words = std::fs::read_to_string(hosts[0].path().join("log")).unwrap();
    assert!(words.contains("no snapshot is taken") && words.contains("errno 28"), "{words}");
    // SIGKILL, and another host takes over.
    for child in &mut running.0[1..] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let (config, socket) = host(2);
    running.0.push(serve(&config, log(2)));
    wait_for(&socket);
    let status =
        status_once(&config, "it is loaded", |status| status["volumes"][0]["prewarm"]["ended"] == "done");
    assert_eq!(status["volumes"][0]["prewarm"]["loaded_bytes"], 64 * 4096, "{status}");
    let snapshots = &status["snapshots"];
    assert!(snapshots["used"].as_u64() >= Some(1) && snapshots["refused"].as_u64() == Some(0), "{status}");
}
