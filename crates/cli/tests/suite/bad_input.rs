//! What is wrong with the input is said with file, place, what was found and what was expected, and nothing is printed.

use crate::support::{args, fail, file, folder, json, msr, succeed};
use serde_json::json;
use std::io::{Read, Write};

#[test]
fn malformed_records_name_file_line_found_and_expected() {
    let folder = folder();
    let text = msr(&[(0, 0, true, 0, 512), (1, 0, true, 512, 512)])
        + "12,host,0,Read,x,512,1\n"
        + &msr(&[(2, 0, true, 0, 512)]);
    let path = file(&folder, "bad.csv", text);
    for command in ["info", "head"] {
        let (status, words) = fail(args(&[&"trace", &command, &"--format", &"msr", &path]));
        assert_eq!(status, 1);
        assert!(words.starts_with("error: `") && words.contains("bad.csv`, line 3: found `x`"), "{words}");
        assert!(
            words.contains("expected ") && words.contains("\nhint: ") && words.contains("--skip-malformed"),
            "{words}"
        );
    }
    fail(args(&[&"mrc", &"--format", &"msr", &path]));
    let info = json(
        "forebay.trace-info/1",
        args(&[&"trace", &"info", &"--json", &"--format", &"msr", &"--skip-malformed", &"1", &path]),
    );
    assert_eq!((&info["requests"], &info["skipped"]), (&json!(3), &json!(1)));
    let mrc = json(
        "forebay.mrc/1",
        args(&[&"mrc", &"--json", &"--format", &"msr", &"--skip-malformed", &"1", &path]),
    );
    assert_eq!((&mrc["accesses"], &mrc["skipped"]), (&json!(3), &json!(1)));
}

#[test]
fn what_servers_say_does_not_steer_the_terminal() {
    let hostile = "\u{1b}[2J\u{7}gone\u{9b}31m";
    let shown = "\u{fffd}[2J\u{fffd}gone\u{fffd}31m";
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || {
        let mut status: serde_json::Value =
            serde_json::from_str(include_str!("../../src/commands/status/status-example.json")).unwrap();
        (status["version"], status["volumes"][0]["origin"]["reason"]) = (hostile.into(), hostile.into());
        for (code, body) in [(500, json!({ "error": hostile })), (200, status)] {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(stream.read(&mut [0; 4_096]).unwrap() > 0);
            let body = body.to_string();
            write!(stream, "HTTP/1.1 {code} X\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        }
    });
    let (_, words) = fail(["status", "--once", "--server", &server]);
    assert!(words.contains(shown), "{words:?}");
    let words = succeed(["status", "--once", "--server", &server]);
    answering.join().unwrap();
    assert!(
        words.starts_with(&format!("forebay {shown}, up")) && words.matches(shown).count() == 2,
        "{words:?}"
    );
    assert!(!words.contains(['\u{1b}', '\u{7}', '\u{9b}']), "{words:?}");
}

#[test]
fn what_has_no_end_is_not_read() {
    for command in [
        ["serve", "--check", "/dev/zero"],
        ["control", "--check", "/dev/zero"],
        ["status", "--token-file", "/dev/zero"],
    ] {
        let (_, words) = fail(command);
        assert!(words.contains("`/dev/zero`") || words.contains("/dev/zero:"), "{words}");
        assert!(words.contains("too long"), "{words}");
    }
}

#[test]
fn where_all_that_there_is_was_skipped_that_is_said() {
    let folder = folder();
    let path = file(&folder, "prose.csv", "no trace\n".repeat(10_000));
    for (command, words) in [("mrc", "no curve"), ("simulate", "nothing to simulate")] {
        let options: [&dyn AsRef<std::ffi::OsStr>; 6] =
            [&command, &"--format", &"msr", &"--skip-malformed", &"1000000", &path];
        let (status, told) = fail(args(&options));
        assert!(status == 1 && told.contains(words), "{told}");
        assert!(
            told.contains("hint: 10,000 malformed records were skipped; name another format with --format"),
            "{told}"
        );
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = folder();
    let absent = folder.path().join("absent.csv");
    let (status, words) = fail(args(&[&"trace", &"info", &absent]));
    assert!(status == 1 && words.contains("cannot open `") && words.contains("absent.csv"), "{words}");

    let nothing = file(&folder, "empty.csv", "");
    let (status, words) = fail(args(&[&"trace", &"info", &nothing]));
    assert!(status == 1 && words.contains("empty.csv"), "{words}");

    let prose = file(&folder, "prose.txt", "This is not a trace.\nNot at all.\n");
    let (status, words) = fail(args(&[&"mrc", &prose]));
    assert!(status == 1 && words.contains("prose.txt") && words.contains("hint: "), "{words}");

    // A compressed stream that ends too early: never a shorter trace.
    let cut = file(&folder, "cut.csv.gz", [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]);
    let (status, words) = fail(args(&[&"trace", &"info", &"--format", &"msr", &cut]));
    assert!(status == 1 && words.contains("cut.csv.gz") && words.contains("gzip"), "{words}");

    let bare = folder.path().join("bare");
    std::fs::create_dir(&bare).unwrap();
    let (status, words) = fail(args(&[&"trace", &"info", &bare]));
    assert!(status == 1 && words.contains("holds no file"), "{words}");

    std::fs::write(bare.join("sda.blktrace.0"), "x").unwrap();
    std::fs::write(bare.join("sdb.blktrace.0"), "x").unwrap();
    let (status, words) = fail(args(&[&"trace", &"info", &bare]));
    assert!(status == 1 && words.contains("several devices, `sda` and `sdb`"), "{words}");
}

#[test]
fn of_a_folder_without_a_load_it_is_said_of_each_file_why() {
    let folder = folder();
    file(&folder, "prose.txt", "This is not a trace.\nNot at all.\n");
    file(&folder, "short.csv", msr(&[(0, 0, true, 0, 512), (1, 0, true, 512, 512)]));
    for command in ["presto", "sancache"] {
        let (status, words) = fail(args(&[&"repro", &command, &"--traces", &folder.path()]));
        assert!(status == 1 && words.contains("\nerror: the folder `"), "{words}");
        assert!(words.contains("left out: prose.txt: "), "{words}");
        assert!(words.contains("left out: short.csv: 2 requests of one volume are too few"), "{words}");
    }
}

#[test]
fn wrong_command_lines_end_with_status_2() {
    for wrong in [
        &["trace", "info"][..],
        &["mrc", "--methud", "exact", "x"],
        &["nonsense"],
        &["trace", "info", "-", "x"],
    ] {
        let (status, words) = fail(wrong);
        assert!(status == 2 && words.starts_with("error: "), "{wrong:?}: {words}");
    }
    let (status, words) = fail(["trace", "info", "--format", "vscsii", "x"]);
    assert!(status == 2 && words.contains("vscsi"), "{words}");
}
