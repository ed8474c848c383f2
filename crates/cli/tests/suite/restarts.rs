//! A daemon is stopped in order and started again, over and over, under clients that connect again: a Forebay in front of it, and QEMU's own NBD driver with `reconnect-delay`. Neither
//! has an error to pass on, and fio finds what it wrote, behind as many flushes.

use crate::support::{Running, SetOnDrop, file, folder, seed, serve, spawn, wait_for};
use forebay_prerequisite::programs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const STARTS: u32 = 5;

/// Writes a file of 32 MiB through `socket`, with an fsync every 16 writes, and reads it again, until it is told to stop; whether all was well.
fn write_and_verify(socket: &Path, number: u64) -> bool {
    let output = Command::new("fio")
        .current_dir(socket.parent().expect("it is in a folder"))
        .args([&format!("--name=writer{number}"), "--ioengine=nbd", "--rw=randrw", "--bsrange=4k-64k"])
        .arg(format!("--uri=nbd+unix:///db?socket={}", socket.display()))
        .arg(format!("--randseed={}", seed() + number))
        .args(["--size=32M", "--iodepth=16", "--fsync=16", "--rate_iops=600", "--verify=crc32c"])
        .args(["--verify_backlog=64", "--verify_fatal=1", "--verify_state_save=0"])
        .output()
        .expect("fio runs");
    if !output.status.success() {
        println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}

fn daemon(folder: &Path, name: &str, origin: &str) -> (PathBuf, PathBuf) {
    let (configuration, socket) = (folder.join(format!("{name}.toml")), folder.join(format!("{name}.sock")));
    let text = format!(
        "listen = [\"unix:{}\"]\n[http]\nlisten = \"off\"\n[cache]\nmemory = \"8MiB\"\n[[volume]]\nname = \"db\"\norigin = {origin}\n",
        socket.display()
    );
    std::fs::write(&configuration, text).expect("the folder takes files");
    (configuration, socket)
}

fn start(configuration: &Path, socket: &Path) -> Child {
    let log = std::fs::File::create(configuration.with_extension("log")).expect("the folder takes files");
    let child = serve(configuration, log);
    wait_for(socket);
    child
}

/// Stops the daemon as an update does.
fn stop(mut child: Child) {
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .expect("it runs");
    let status = child.wait().expect("it is ours");
    assert!(status.success(), "{status}, signal {:?}", status.signal());
}

#[test]
fn clients_that_connect_again_hear_nothing_of_a_daemon_that_is_started_anew_in_order() {
    if !programs("restarts in order under fio", &["fio", "qemu-storage-daemon"], false) {
        return;
    }
    let scratch = folder();
    let folder = scratch.path();
    let disk = file(&scratch, "disk", vec![0; 32 << 20]);
    let (storage, storage_socket) =
        daemon(folder, "storage", &format!("{{ type = \"file\", path = \"{}\" }}", disk.display()));
    let mut child = Some(start(&storage, &storage_socket));
    let uri = format!("nbd+unix:///db?socket={}", storage_socket.display());
    let (front, front_socket) = daemon(folder, "front", &format!("{{ type = \"nbd\", uri = \"{uri}\" }}"));
    let qemu_socket = folder.join("qemu.sock");
    let node = format!(
        "driver=nbd,node-name=n,server.type=unix,server.path={},export=db,reconnect-delay=60",
        storage_socket.display()
    );
    let qemu = spawn(
        None,
        "qemu-storage-daemon",
        [
            "--blockdev",
            &node,
            "--nbd-server",
            &format!("addr.type=unix,addr.path={}", qemu_socket.display()),
            "--export",
            "type=nbd,id=e,node-name=n,name=db,writable=on",
        ],
    );
    let _running = Running(vec![start(&front, &front_socket), qemu]);
    wait_for(&qemu_socket);
    for socket in [&front_socket, &qemu_socket] {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                let _over = SetOnDrop(&is_over);
                (0..)
                    .map(|number| write_and_verify(socket, number))
                    .take_while(|good| *good)
                    .find(|_| is_over.load(Ordering::Relaxed))
            });
            for _ in 0..STARTS {
                std::thread::sleep(Duration::from_millis(400));
                stop(child.take().expect("it was started"));
                std::thread::sleep(Duration::from_millis(50));
                child = Some(start(&storage, &storage_socket));
            }
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(client.join().expect("no panic"), Some(true), "at {}", socket.display());
        });
    }
    drop(Running(child.into_iter().collect()));
}
