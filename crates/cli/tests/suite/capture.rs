//! `forebay capture`: what clients ask is in the trace, and the command's end is the recording's.

use crate::support::{args, fail, file, folder, json, run};
use forebay_prerequisite::programs;
use std::path::Path;

#[test]
fn what_clients_ask_is_read_back() {
    if !programs("a capture", &["nbdcopy"], false) {
        return;
    }
    let folder = folder();
    let (origin, trace) = (folder.path().join("volume"), folder.path().join("t.fbt.zst"));
    let source = file(&folder, "source", vec![7u8; 1 << 20]);
    // Four writes of 256 KiB, of which nbdcopy makes trims only where the source has holes, and a flush; then 16 reads of 64 KiB.
    let script = format!(
        "nbdcopy --flush --request-size=262144 --connections=1 {0} \"$FOREBAY_NBD_URI\" && test -S \"$FOREBAY_NBD_SOCKET\" && \
         nbdcopy --request-size=65536 --no-extents \"$FOREBAY_NBD_URI\" {0}.copy && cmp {0} {0}.copy",
        source.display()
    );
    let args = ["capture", "--size", "1MiB", "--export", "db", "--origin"].map(std::ffi::OsString::from);
    let mut args = args.to_vec();
    args.extend([origin.as_os_str(), "--output".as_ref(), trace.as_os_str()].map(ToOwned::to_owned));
    args.extend(["--", "sh", "-c", &script].map(std::ffi::OsString::from));
    let output = run(&args);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    assert!(words.contains("requests of") && words.contains("t.fbt.zst"), "{words}");

    let info = json(
        "forebay.trace-info/1",
        ["trace".as_ref(), "info".as_ref(), "--json".as_ref(), trace.as_os_str()],
    );
    assert_eq!((&info["reads"], &info["bytes_read"]), (&16.into(), &(1 << 20).into()));
    assert_eq!((&info["writes"], &info["bytes_written"]), (&4.into(), &(1 << 20).into()));
    assert_eq!((&info["footprint_blocks"], &info["volumes"]), (&256.into(), &1.into()));
    // The bytes are where the origin has them.
    assert!(std::fs::read(&origin).unwrap() == std::fs::read(&source).unwrap());

    // A trace that is there is not replaced unasked.
    let (status, words) = fail(&args);
    assert_eq!(status, 1);
    assert!(words.contains("cannot create"), "{words}");
}

#[test]
fn recording_is_switched_by_signals_and_ends_with_the_command() {
    let folder = folder();
    let (origin, trace) = (folder.path().join("volume"), folder.path().join("t.fbt"));
    // Nothing is recorded before it is switched on; the shell's parent is the recorder.
    let script = "kill -USR1 $PPID; kill -USR2 $PPID; exit 37";
    let arguments: Vec<&std::ffi::OsStr> = ["capture", "--size", "64KiB", "--start-paused", "--origin"]
        .map(AsRef::as_ref)
        .into_iter()
        .chain([origin.as_os_str(), "--output".as_ref(), trace.as_os_str()])
        .chain(["--", "sh", "-c", script].map(AsRef::as_ref))
        .collect();
    let output = run(&arguments);
    // The command's own status, without a word of ours about an error.
    assert_eq!(output.status.code(), Some(37));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(!words.contains("error:") && words.contains("recording is paused: SIGUSR1 starts it"), "{words}");
    let info = json(
        "forebay.trace-info/1",
        ["trace".as_ref(), "info".as_ref(), "--json".as_ref(), trace.as_os_str()],
    );
    assert_eq!(info["requests"], 0);
}

#[test]
fn what_cannot_be_captured_is_refused() {
    let folder = folder();
    let (trace, absent) = (folder.path().join("t.fbt"), folder.path().join("absent"));
    let capture = |rest: &[&str]| {
        let mut args = vec!["capture", "--output", trace.to_str().unwrap()];
        args.extend(rest);
        fail(args)
    };
    let (status, words) = capture(&["--origin", absent.to_str().unwrap(), "--", "true"]);
    assert!(status == 1 && words.contains("absent"), "{words}");
    assert!(!trace.exists());
    let (status, words) = capture(&["--origin", "nbd://localhost:1", "--size", "1MiB", "--", "true"]);
    assert!(status == 2 && words.contains("--size makes a file"), "{words}");
    let (status, words) = capture(&["--origin", absent.to_str().unwrap(), "--listen", "somewhere"]);
    assert!(status == 2 && words.contains("unix:PATH"), "{words}");
    let volume = file(&folder, "volume", [0; 4096]);
    let (status, words) = capture(&["--origin", volume.to_str().unwrap(), "--size", "1MiB", "--", "true"]);
    assert!(status == 1 && words.contains("leave --size out"), "{words}");
    let (status, words) = capture(&["--origin", volume.to_str().unwrap(), "--", "/nonexistent/command"]);
    assert!(status == 1 && words.contains("cannot run"), "{words}");
    std::fs::remove_file(&trace).unwrap();
    // Nobody reads it: it would be waited for.
    assert!(std::process::Command::new("mkfifo").arg(&trace).status().unwrap().success());
    let (status, words) = capture(&["--origin", volume.to_str().unwrap(), "--force", "--", "true"]);
    assert!(status == 2 && words.contains("is no file, expected the name of one"), "{words}");
}

#[test]
fn what_was_there_is_neither_removed_nor_the_volume_written_over() {
    let folder = folder();
    let volume = file(&folder, "volume", [7; 4096]);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&volume, &link).unwrap();
    for output in [&volume, &link] {
        let (status, words) =
            fail(args(&[&"capture", &"--force", &"--origin", &volume, &"--output", output, &"--", &"true"]));
        assert!(status == 2 && words.contains("is the volume"), "{words}");
    }
    assert_eq!(std::fs::read(&volume).unwrap(), [7; 4096]);
    // Nobody can listen there: what is named as the trace may be a device, and stays.
    let there = file(&folder, "there", "something");
    let nowhere = format!("unix:{}", folder.path().join("absent/socket").display());
    let refused = |output: &Path| {
        fail(args(&[
            &"capture",
            &"--force",
            &"--origin",
            &volume,
            &"--listen",
            &nowhere,
            &"--output",
            &output,
            &"--",
            &"true",
        ]))
    };
    assert_eq!(refused(&there).0, 1);
    assert!(there.exists());
    let new = folder.path().join("new");
    assert_eq!(refused(&new).0, 1);
    assert!(!new.exists());
}
