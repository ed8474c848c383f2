//! The matrix of `docs/reference/interoperability.md`: every client against a volume on every kind of origin, by the real daemon.
//!
//! A cell is a script that must end with 0. The document is made of these tables (`FOREBAY_UPDATE=1` writes it anew), so that it says what
//! is run and nothing else.

use crate::guest;
use crate::support::{Running, folder, serve, wait_for};
use forebay_prerequisite::programs;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// A client: its name, the commands that it needs, what is done with it, and the script. The script finds the volume's `$uri`, its
/// `$socket` and `$export`, a folder of its own as the current one, and 16 MiB of noise in `../noise`.
const CLIENTS: [(&str, &[&str], &str, &str); 9] = [
    (
        "nbdinfo",
        &["nbdinfo"],
        "describes the volume, lists all exports, maps it",
        r#"
        nbdinfo --json "$uri" >log; grep -q '"export-size": 16777216' log
        nbdinfo --list "nbd+unix:///?socket=$socket" >log; grep -q "$export" log
        nbdinfo --map "$uri" >log; grep -q 16777216 log"#,
    ),
    (
        "nbdcopy",
        &["nbdcopy"],
        "copies 16 MiB in and out, four connections, compared byte by byte",
        r#"
        nbdcopy --flush --connections=4 ../noise "$uri"
        nbdcopy --connections=4 "$uri" out
        cmp ../noise out"#,
    ),
    (
        "nbdsh",
        &["nbdsh"],
        "every command and flag: FUA, DF, zeroes with and without holes and fast ones, trim, cache, block status, flush",
        r#"
        /usr/bin/python3 -m nbd -u "$uri" -c '
h.pwrite(b"a" * 4096, 4096, nbd.CMD_FLAG_FUA)
h.zero(4096, 8192, nbd.CMD_FLAG_NO_HOLE)
h.zero(4096, 12288)
if h.can_fast_zero(): h.zero(1 << 20, 8 << 20, nbd.CMD_FLAG_FAST_ZERO)
if h.can_trim(): h.trim(4096, 65536)
h.cache(1 << 20, 0)
h.flush()
assert h.pread(12288, 4096) == b"a" * 4096 + b"\0" * 8192
chunks = []
h.pread_structured(4096, 4096, lambda data, offset, status, error: chunks.append((bytes(data), offset)), nbd.CMD_FLAG_DF)
assert chunks == [(b"a" * 4096, 4096)], chunks
h.shutdown()'
        /usr/bin/python3 -m nbd --base-allocation -u "$uri" -c '
seen = []
h.block_status(1 << 20, 0, lambda c, o, e, err: seen.append(c))
assert seen == ["base:allocation"]'"#,
    ),
    (
        "nbdfuse",
        &["nbdfuse", "fusermount3"],
        "shows the volume as a file, which is written and read back",
        r#"
        mkdir mount; nbdfuse mount/volume "$uri" & fuse=$!
        trap 'fusermount3 -u mount; wait $fuse || true' EXIT
        for i in $(seq 200); do [ -e mount/volume ] && break; sleep 0.05; done
        dd if=../noise of=mount/volume bs=256k conv=notrunc,fsync status=none
        cmp ../noise mount/volume"#,
    ),
    (
        "qemu-img",
        &["qemu-img"],
        "converts an image into the volume and compares",
        r#"
        qemu-img convert -n -f raw -O raw ../noise "$uri"
        qemu-img compare -f raw -F raw ../noise "$uri" >log; grep -q identical log"#,
    ),
    (
        "qemu-io",
        &["qemu-io"],
        "patterns at odd offsets, zeroes, discards, flushes",
        r#"
        qemu-io -f raw -c "write -P 7 12345 100000" -c "write -z 65536 65536" -c "discard 1M 1M" -c flush "$uri" >log
        qemu-io -f raw -c "read -P 7 12345 53191" -c "read -P 0 65536 65536" "$uri" >>log
        ! grep -iE "failed|error" log"#,
    ),
    (
        "nbdkit's nbd plugin",
        &["nbdkit", "nbdcopy"],
        "serves the volume on, which is written and read through it",
        r#"
        nbdkit -U - nbd "$uri" --run 'nbdcopy --flush ../noise "$uri" && nbdcopy "$uri" out'
        cmp ../noise out"#,
    ),
    (
        "fio",
        &["fio"],
        "mixed blocks of 512 B to 64 KiB at depth 16, checksums verified",
        r#"
        fio --name=verify --ioengine=nbd --uri="$uri" --rw=randrw --bsrange=512-64k --bs_unaligned=0 --blockalign=512 --iodepth=16 \
            --size=16M --verify=crc32c --verify_fatal=1 --verify_state_save=0 --do_verify=1 >log 2>&1 || { cat log; exit 1; }"#,
    ),
    (
        "nbd-client",
        &["nbd-client"],
        "lists the exports",
        r#"
        nbd-client -l -u "$socket" >log 2>&1; grep -q "$export" log"#,
    ),
];

/// The kernel's driver: as the clients above, but that one start of the guest uses the volumes of all origins, `$exports`.
const KERNEL: (&str, &[&str], &str, &str) = (
    "Linux's nbd driver",
    &["qemu-system-x86_64", "busybox", "cpio", "nbd-client", "mkfs.ext4", "fsck.ext4", "debugfs", "nbdcopy"],
    "attached by nbd-client in a small QEMU guest, two connections: written and read raw; ext4 on it, with discards, checked and read by both sides",
    concat!(include_str!("guest.sh"), include_str!("kernel.sh")),
);

/// An origin: its name, what it needs, how it is started (on `$socket`, over the file `$image`), and what the volume says of it.
const ORIGINS: [(&str, &[&str], &str, &str); 3] = [
    ("a file", &[], "", "origin = \"IMAGE\""),
    (
        "nbdkit",
        &["nbdkit"],
        "exec nbdkit -f -U \"$socket\" file \"$image\"",
        "origin = \"nbd+unix:///?socket=SOCKET\"",
    ),
    (
        "qemu-nbd",
        &["qemu-nbd"],
        "exec qemu-nbd --persistent --shared=8 --discard=unmap --format=raw --socket=\"$socket\" \"$image\"",
        "origin = \"nbd+unix:///?socket=SOCKET\"",
    ),
];

#[test]
fn every_client_works_on_every_origin() {
    let folder = folder();
    let folder = folder.path();
    let mut running = Running(Vec::new());
    let mut noise = vec![0u8; 16 << 20];
    for (index, word) in noise.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&forebay_units::mix64(index as u64).to_le_bytes());
    }
    std::fs::write(folder.join("noise"), &noise).unwrap();
    let socket = folder.join("socket");
    let port = free_port();
    let mut configuration = format!(
        "listen = [\"unix:{}\", \"tcp:127.0.0.1:{port}\"]\n[http]\nlisten = \"off\"\n",
        socket.display()
    );
    let mut exports = Vec::new();
    for (index, (name, needs, start, origin)) in ORIGINS.iter().enumerate() {
        if !programs(&format!("{name} as an origin"), needs, false) {
            continue;
        }
        let (image, its_socket) =
            (folder.join(format!("image{index}")), folder.join(format!("origin{index}")));
        std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        if !start.is_empty() {
            let child = Command::new("bash")
                .args(["-c", start])
                .env("socket", &its_socket)
                .env("image", &image)
                .stdout(Stdio::null())
                .spawn()
                .expect("bash runs");
            running.0.push(child);
            wait_for(&its_socket);
        }
        let origin = origin
            .replace("IMAGE", image.to_str().expect("temporary paths are UTF-8"))
            .replace("SOCKET", its_socket.to_str().expect("temporary paths are UTF-8"));
        writeln!(configuration, "[[volume]]\nname = \"volume{index}\"\ncache = \"4MiB\"\n{origin}").unwrap();
        exports.push((*name, format!("volume{index}")));
    }
    std::fs::write(folder.join("forebay.toml"), configuration).unwrap();
    let log = std::fs::File::create(folder.join("log")).unwrap();
    let daemon = serve(&folder.join("forebay.toml"), log);
    running.0.push(daemon);
    wait_for(&socket);
    let run =
        |(client, _, _, script): (&str, &[&str], &str, &str), origin: &str, export: &str, kernel: &Path| {
            let own = folder.join(format!("{}-{export}", client.replace(' ', "-")));
            std::fs::create_dir(&own).unwrap();
            let exports: Vec<&str> = exports.iter().map(|(_, export)| export.as_str()).collect();
            let output = Command::new("timeout")
                .args(["240", "bash", "-c", &format!("set -euo pipefail; {script}")])
                .current_dir(&own)
                .env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin")
                .env("uri", format!("nbd+unix:///{export}?socket={}", socket.display()))
                .env("socket", &socket)
                .env("port", port.to_string())
                .env("export", export)
                .env("exports", exports.join(" "))
                .env("guest_kernel", kernel)
                .output()
                .expect("bash runs");
            let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{client} on {origin}: {}: {said}", output.status);
        };
    let mut cells = 0;
    for client in CLIENTS {
        if !programs(&format!("{} as a client", client.0), client.1, false) {
            continue;
        }
        for (origin, export) in &exports {
            run(client, origin, export, Path::new(""));
            cells += 1;
        }
    }
    if programs(&format!("{} as a client", KERNEL.0), KERNEL.1, false)
        && let Some(kernel) = guest::kernel()
    {
        std::fs::write(folder.join("kernel-init.sh"), include_str!("kernel-init.sh")).unwrap();
        run(KERNEL, "every origin", "all", &kernel);
        cells += exports.len();
    }
    println!("interoperability: {cells} of {} cells", (CLIENTS.len() + 1) * ORIGINS.len());
}

/// A port of the loopback interface that nobody listens on at the moment.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("the loopback interface is there");
    listener.local_addr().expect("it is bound").port()
}

#[test]
fn the_matrix_in_the_documents_is_that_of_the_test() {
    let mut text = String::from(
        "# Interoperability\n\nWhat the suite runs (`crates/cli/tests/suite/interoperability.rs`, which makes this page): each client against a volume on each\n\
         origin, by the real daemon with a cache of a quarter of the volume.\n\n| client | what it does |",
    );
    for (origin, ..) in ORIGINS {
        write!(text, " on {origin} |").unwrap();
    }
    text.push_str("\n| --- | --- |");
    text.push_str(&" --- |".repeat(ORIGINS.len()));
    for (client, _, what, _) in CLIENTS.iter().chain([&KERNEL]) {
        write!(text, "\n| {client} | {what} |{}", " yes |".repeat(ORIGINS.len())).unwrap();
    }
    text.push_str(
        "\n\nOver TLS (`secured.rs`): nbdinfo, nbdcopy, qemu-img and nbdkit's nbd plugin as clients, nbdkit and another Forebay as origins.\n\
         ext4, PostgreSQL and fio under changing quotas: `peers.rs`. ext4, PostgreSQL and fio under `kill -9`: `crash/`.\n\
         Each feature of the protocol by itself, with libnbd: `protocol.rs`.\n",
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/interoperability.md");
    if std::env::var_os("FOREBAY_UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).is_ok_and(|found| found == text),
        "docs/reference/interoperability.md is not that of the test: FOREBAY_UPDATE=1 writes it anew"
    );
}
