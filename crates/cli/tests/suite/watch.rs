//! `forebay watch` and `forebay lease` as processes: who is let in, also after a kill.

use crate::support::{Running, fail, file, folder, json, succeed, wait_for};
use forebay_nbd::Uri;
use forebay_origin::{NbdOrigin, NbdOriginOptions};
use std::path::Path;
use std::process::{Command, Stdio};

fn watch(folder: &Path) -> Running {
    let path = |name: &str| folder.join(name).display().to_string();
    let child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["watch", "--volume", &format!("db={}", path("db.img"))])
        .args(["--listen", &format!("unix:{}", path("nbd.sock"))])
        .args(["--leases", &path("leases.json"), "--http-socket", &path("http.sock")])
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let running = Running(vec![child]);
    wait_for(&folder.join("nbd.sock"));
    running
}

#[test]
fn a_lease_outlasts_a_kill_and_keeps_out_whom_it_was_taken_from() {
    let folder = folder();
    file(&folder, "db.img", vec![3; 1 << 20]);
    let watching = watch(folder.path());
    let connect = |name: &str| {
        let uri = Uri::unix(folder.path().join("nbd.sock"), name);
        NbdOrigin::connect(&uri, NbdOriginOptions::default()).map(drop).map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            format!("{error} {cause:?}")
        })
    };
    let server = format!("unix:{}", folder.path().join("http.sock").display());
    let lease = |args: &[&str]| {
        [&["lease", "db", "--server", &server], args]
            .concat()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert!(connect("db").is_ok());
    let raised = json("forebay.lease/1", lease(&["--raise", "4", "--json"]));
    assert_eq!((raised["epoch"].as_u64(), raised["holder"].as_str()), (Some(4), Some("named")));
    drop(watching);

    let _watching = watch(folder.path());
    assert!(succeed(lease(&[])).contains("`db@4`"));
    let refused = connect("db").unwrap_err();
    assert!(refused.contains("lease"), "{refused}");
    assert!(connect("db@3").is_err() && connect("db@4").is_ok());
    let (_, words) = fail(lease(&["--raise", "4", "--original"]));
    assert!(words.contains("at epoch 4 already"), "{words}");
    assert!(succeed(lease(&["--raise", "5", "--original"])).contains("epochs to 5 are over"));
    assert!(connect("db").is_ok() && connect("db@4").is_err());
}
