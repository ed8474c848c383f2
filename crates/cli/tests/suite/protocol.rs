//! The protocol, feature by feature: each tried by libnbd against the real daemon, and asked by the daemon of a real nbdkit.
//!
//! STARTTLS is in `secured.rs`, whole programs are in `interoperability.rs`; what is refused is in the tests of `nbd`.

use crate::client::Client;
use crate::support::{Running, folder, serve, wait_for};
use forebay_nbd::client::Operation;
use forebay_prerequisite::programs;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Servers that volumes have as their origins: (name, how nbdkit is started). Each logs what it is asked to `<name>.log`.
const SERVERS: [(&str, &str); 5] = [
    ("log", "--filter=log memory 8M logfile=log.log"),
    (
        "sized",
        "--filter=blocksize-policy memory 8M blocksize-minimum=4096 blocksize-preferred=65536 blocksize-maximum=1M blocksize-error-policy=error",
    ),
    ("no-fast", "--filter=nozero memory 8M zeromode=plugin fastzeromode=none"),
    ("slow", "--filter=nozero memory 8M zeromode=plugin fastzeromode=slow"),
    ("read-only", "-r pattern 8M"),
];

/// What is tried: the feature, and a script of libnbd's Python module. `connect(export)` connects; `origin(export)` says what its nbdkit was
/// asked since the last time.
const FEATURES: [(&str, &str); 17] = [
    (
        "EXPORT_NAME: without fixed newstyle and with 124 zeroes",
        r#"
h = nbd.NBD(); h.set_handshake_flags(0); h.set_export_name("file"); h.connect_unix(socket)
assert h.get_protocol() == "newstyle" and h.get_size() == 8 << 20
h.pwrite(b"x" * 512, 0); assert h.pread(512, 0) == b"x" * 512"#,
    ),
    (
        "LIST, INFO, LIST_META_CONTEXT, GO of another export in one conversation",
        r#"
h = nbd.NBD(); h.set_opt_mode(True); h.connect_unix(socket)
names = []; h.opt_list(lambda name, description: names.append(name))
assert {"file", "log", "sized"} <= set(names), names
h.set_export_name("absent"); refused(errno.ENOENT, h.opt_info)
h.set_export_name("sized"); h.opt_info(); assert h.get_size() == 8 << 20 and h.get_block_size(nbd.SIZE_MINIMUM) == 4096
contexts = []; h.add_meta_context("base:"); h.opt_list_meta_context(contexts.append); assert contexts == ["base:allocation"], contexts
h.clear_meta_contexts(); h.add_meta_context("base:allocation")
h.set_export_name("file"); h.opt_go(); assert h.can_meta_context("base:allocation"); h.pread(512, 0)"#,
    ),
    (
        "ABORT",
        r#"
h = nbd.NBD(); h.set_opt_mode(True); h.connect_unix(socket); h.opt_abort(); assert h.aio_is_closed()"#,
    ),
    (
        "simple replies, where structured ones are not asked for",
        r#"
h = nbd.NBD(); h.set_request_structured_replies(False); h.set_export_name("file"); h.connect_unix(socket)
assert not h.get_structured_replies_negotiated() and not h.can_df()
h.pwrite(b"y" * 512, 512); assert h.pread(512, 512) == b"y" * 512"#,
    ),
    (
        "structured replies, DF, BLOCK_STATUS with and without REQ_ONE",
        r#"
h = connect("file", "base:allocation"); assert h.get_structured_replies_negotiated() and h.can_df()
h.pwrite(b"z" * 8192, 4096); chunks = []
h.pread_structured(8192, 4096, lambda data, offset, status, error: chunks.append((bytes(data), offset, status)), nbd.CMD_FLAG_DF)
assert chunks == [(b"z" * 8192, 4096, nbd.READ_DATA)]
def status(flags=0, length=1 << 20):
    seen = []; h.block_status(length, 0, lambda context, offset, entries, error: seen.append((context, offset, list(entries))), flags)
    assert len(seen) == 1 and seen[0][:2] == ("base:allocation", 0), seen; return seen[0][2]
hole, whole = nbd.STATE_HOLE | nbd.STATE_ZERO, status()
# The file's first block was written by the tests above; where its file system has no holes, all is data.
if whole != [1 << 20, 0]:
    assert whole == [12288, 0, (1 << 20) - 12288, hole] and status(nbd.CMD_FLAG_REQ_ONE) == [12288, 0], whole
    # A short hole is told to who asks about little, and to nobody else.
    h.zero(4096, 4096); assert status(0, 65536) == [4096, 0, 4096, hole, 4096, 0, 65536 - 12288, hole], status(0, 65536)
    assert status() == whole, status()
    h.pwrite(b"z", (1 << 20) - 1); assert status()[-2:] == [4096, 0], status()"#,
    ),
    (
        "READ with holes: what the origin has none of is sent as such, but not with DF, nor in simple replies",
        r#"
h, simple = connect("file"), nbd.NBD(); simple.set_request_structured_replies(False); simple.set_export_name("file"); simple.connect_unix(socket)
def chunks(h, offset, flags=0):
    seen = []; h.pread_structured(65536, offset, lambda data, offset, status, error: seen.append((bytes(data), status)), flags); return seen
zeroes = bytes(65536)
assert chunks(h, 1 << 20) == [(zeroes, nbd.READ_HOLE)]
assert chunks(h, 2 << 20, nbd.CMD_FLAG_DF) == [(zeroes, nbd.READ_DATA)]
assert chunks(simple, 3 << 20) == [(zeroes, nbd.READ_DATA)]
h.pwrite(b"h", (1 << 20) + 600000); assert chunks(h, (1 << 20) + 589824)[0][1] == nbd.READ_DATA"#,
    ),
    (
        "WRITE, FLUSH, FUA reach the origin as such",
        r#"
h = connect("log"); assert h.can_fua() and h.can_flush()
h.pwrite(b"1" * 4096, 0); h.pwrite(b"2" * 4096, 4096, nbd.CMD_FLAG_FUA); h.flush()
asked = origin("log")
assert re.search(r"Write id=\d+ offset=0x0 count=0x1000 ", asked) and re.search(r"Write id=\d+ offset=0x1000 count=0x1000 fua=1", asked) and "Flush" in asked, asked"#,
    ),
    (
        "TRIM and WRITE_ZEROES with and without NO_HOLE reach the origin as such",
        r#"
h = connect("log"); assert h.can_trim() and h.can_zero(); origin("log")
h.trim(4096, 0); h.zero(4096, 8192); h.zero(4096, 16384, nbd.CMD_FLAG_NO_HOLE); asked = origin("log")
assert re.search(r"Trim id=\d+ offset=0x0 count=0x1000", asked), asked
assert re.search(r"Zero id=\d+ offset=0x2000 count=0x1000 trim=1", asked) and re.search(r"Zero id=\d+ offset=0x4000 count=0x1000 trim=0", asked), asked"#,
    ),
    (
        "fast zeroes: asked of the origin, and done",
        r#"
h = connect("log"); assert h.can_fast_zero(); h.pwrite(b"3" * 65536, 0); origin("log")
h.zero(65536, 0, nbd.CMD_FLAG_FAST_ZERO); assert re.search(r"Zero .* fast=1", origin("log")); assert h.pread(65536, 0) == bytes(65536)"#,
    ),
    (
        "fast zeroes: refused at once by an origin that offers them and cannot now, and nothing changes",
        r#"
h = connect("slow"); assert h.can_fast_zero(); h.pwrite(b"4" * 65536, 0)
refused(errno.ENOTSUP, h.zero, 65536, 0, nbd.CMD_FLAG_FAST_ZERO)
assert h.pread(65536, 0) == b"4" * 65536; h.zero(65536, 0); assert h.pread(65536, 0) == bytes(65536)"#,
    ),
    (
        "fast zeroes: not offered where the origin does not, on emulated disks, and on a volume that is only read",
        r#"
for export in ("no-fast", "disks", "read-only"):
    h = connect(export); assert not h.can_fast_zero(), export
    h.set_strict_mode(0)
    refused(errno.EPERM if export == "read-only" else errno.EINVAL, h.zero, 4096, 0, nbd.CMD_FLAG_FAST_ZERO)"#,
    ),
    (
        "fast zeroes: a file's become holes, where its file system makes any",
        r#"
h = connect("file"); before = os.stat("file").st_blocks
if h.can_fast_zero():
    h.pwrite(b"5" * (4 << 20), 4 << 20); h.flush(); full = os.stat("file").st_blocks
    h.zero(4 << 20, 4 << 20, nbd.CMD_FLAG_FAST_ZERO); h.flush()
    assert os.stat("file").st_blocks <= full - 8000; assert h.pread(4 << 20, 4 << 20) == bytes(4 << 20)
else: print("no holes here")"#,
    ),
    (
        "CACHE prewarms: reads after it ask nothing of the origin",
        r#"
h = connect("log"); assert h.can_cache(); origin("log")
h.cache(1 << 20, 2 << 20); assert "Read" in origin("log")
h.pread(1 << 20, 2 << 20); asked = origin("log"); assert "Read" not in asked, asked"#,
    ),
    (
        "multi-conn: a flush on one connection covers what another wrote, and all see it",
        r#"
a, b, c = connect("log"), connect("log"), connect("log"); assert a.can_multi_conn(); origin("log")
a.pwrite(b"6" * 4096, 0); b.flush(); assert "Flush" in origin("log"); assert c.pread(4096, 0) == b"6" * 4096"#,
    ),
    (
        "multi-conn: several connections to the origin",
        r#"
assert len(set(re.findall(r"connection=(\d+)", everything("log")))) == 4"#,
    ),
    (
        "block sizes: those of the origin are said, and what does not fit is refused",
        r#"
h = connect("sized"); h.set_strict_mode(0)
assert [h.get_block_size(which) for which in (nbd.SIZE_MINIMUM, nbd.SIZE_PREFERRED)] == [4096, 65536]
for length, offset in ((512, 0), (4096, 512)): refused(errno.EINVAL, h.pread, length, offset); refused(errno.EINVAL, h.pwrite, b"7" * length, offset)
# Longer than the origin takes, which is our affair.
h.pwrite(b"8" * (3 << 20), 4096); assert h.pread(3 << 20, 4096) == b"8" * (3 << 20)"#,
    ),
    (
        "volumes that are only read",
        r#"
h = connect("read-only"); assert h.is_read_only(); h.set_strict_mode(0)
assert h.pread(16, 4096) == bytes([0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x10, 8])
for change in (lambda: h.pwrite(b"9" * 512, 0), lambda: h.trim(512, 0), lambda: h.zero(512, 0)): refused(errno.EPERM, change)"#,
    ),
];

const PRELUDE: &str = r#"
import errno, nbd, os, re
socket = "socket"
def connect(export, *contexts):
    h = nbd.NBD(); h.set_export_name(export)
    for context in contexts: h.add_meta_context(context)
    h.connect_unix(socket); return h
def refused(number, call, *arguments):
    try: call(*arguments)
    except nbd.Error as error: assert error.errnum == number, error
    else: raise AssertionError(f"{arguments} was not refused")
def everything(export): return open(export + ".log").read()
seen = {}
def origin(export):
    text = everything(export); new = text[seen.get(export, 0):]; seen[export] = len(text); return new
"#;

/// Runs the daemon on `volumes`, at `socket` in `folder`.
fn start(folder: &Path, volumes: &str) -> (Child, PathBuf) {
    let configuration = format!("listen = \"unix:socket\"\n[http]\nlisten = \"off\"\n{volumes}");
    std::fs::write(folder.join("forebay.toml"), configuration).unwrap();
    let log = std::fs::File::create(folder.join("daemon.log")).unwrap();
    let child = serve(&folder.join("forebay.toml"), log);
    let socket = folder.join("socket");
    wait_for(&socket);
    (child, socket)
}

fn nbdkit(folder: &Path, name: &str, arguments: &str) -> Child {
    let socket = folder.join(format!("{name}.socket"));
    let child = Command::new("bash")
        .args(["-c", &format!("exec nbdkit -f -U {name}.socket {arguments}")])
        .current_dir(folder)
        .stdout(Stdio::null())
        .spawn()
        .expect("bash runs");
    wait_for(&socket);
    child
}

#[test]
fn every_feature_is_there() {
    if !programs("the protocol, feature by feature", &["nbdsh", "nbdkit"], false) {
        return;
    }
    let folder = folder();
    let folder = folder.path();
    std::fs::File::create(folder.join("file")).unwrap().set_len(8 << 20).unwrap();
    let mut running = Running(Vec::new());
    let mut volumes = String::from(
        "[[disk_group]]\nname = \"disks\"\ndisk = \"fixed\"\nservice = \"1ms\"\n[[volume]]\nname = \"file\"\ncache = \"2MiB\"\norigin = \"file\"\n\
         [[volume]]\nname = \"disks\"\norigin = { type = \"disk-group\", group = \"disks\", memory = \"8MiB\" }\n",
    );
    for (name, arguments) in SERVERS {
        running.0.push(nbdkit(folder, name, arguments));
        let uri = format!("nbd+unix:///?socket={}/{name}.socket", folder.display());
        writeln!(volumes, "[[volume]]\nname = \"{name}\"\ncache = \"2MiB\"\norigin = \"{uri}\"").unwrap();
    }
    running.0.push(start(folder, &volumes).0);
    for (feature, script) in FEATURES {
        let output = Command::new("timeout")
            .args(["60", "/usr/bin/python3", "-c", &format!("{PRELUDE}{script}")])
            .current_dir(folder)
            .output()
            .expect("python runs");
        assert!(output.status.success(), "{feature}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// What is said of a volume's holes is what its origin says, to tools that only look and to those that copy no holes.
#[test]
fn holes_are_those_of_the_origin() {
    if !programs("maps of holes", &["nbdkit", "qemu-nbd", "qemu-img", "nbdinfo", "nbdcopy", "python3"], false)
    {
        return;
    }
    let folder = folder();
    let folder = folder.path();
    let prepare = r#"
truncate -s 8M file; for at in 0 700 1300; do printf x | dd of=file bs=4096 seek=$at conv=notrunc status=none; done
qemu-img create -q -f qcow2 disk.qcow2 8M
qemu-io -c "write -P 1 1M 128k" -c "write -z 2M 64k" -c "write -P 2 5M 1M" disk.qcow2 >prepared"#;
    let output = Command::new("bash").args(["-ec", prepare]).current_dir(folder).output().expect("bash runs");
    assert!(output.status.success(), "{output:?}");
    let mut running = Running(vec![
        nbdkit(
            folder,
            "sparse",
            "--filter=log data '@65536 1 @3000000 (2 3)*5000' size=8M logfile=sparse.log",
        ),
        nbdkit(folder, "simple", "--no-sr memory 8M"),
    ]);
    let qemu = Command::new("qemu-nbd")
        .args(["--persistent", "--shared=8", "--format=qcow2", "--socket"])
        .args([folder.join("qemu.socket"), folder.join("disk.qcow2")])
        .spawn();
    running.0.push(qemu.expect("qemu-nbd runs"));
    wait_for(&folder.join("qemu.socket"));
    let mut volumes = String::from("[[volume]]\nname = \"file\"\ncache = \"2MiB\"\norigin = \"file\"\n");
    for name in ["sparse", "simple", "qemu"] {
        let uri = format!("nbd+unix:///?socket={}/{name}.socket", folder.display());
        writeln!(volumes, "[[volume]]\nname = \"{name}\"\ncache = \"2MiB\"\norigin = \"{uri}\"").unwrap();
    }
    running.0.push(start(folder, &volumes).0);
    let script = r#"
import json, os, re, subprocess
def run(*command): return subprocess.run(command, check=True, capture_output=True).stdout
def ours(name): return f"nbd+unix:///{name}?socket=socket"
def theirs(name): return f"nbd+unix:///?socket={name}.socket"
def nbdinfo(uri): return json.loads(run("nbdinfo", "--map", "--json", uri))
def qemu(target): return [(e["start"], e["length"], e["zero"], e["data"]) for e in json.loads(run("qemu-img", "map", "-f", "raw", "--output=json", target))]
for name in ("sparse", "qemu"):
    assert nbdinfo(ours(name)) == nbdinfo(theirs(name)), (nbdinfo(ours(name)), nbdinfo(theirs(name)))
    assert qemu(ours(name)) == qemu(theirs(name)), (qemu(ours(name)), qemu(theirs(name)))
    assert len(nbdinfo(ours(name))) >= 4
assert qemu(ours("file")) == qemu("file"), (qemu(ours("file")), qemu("file"))
# Who cannot say has data everywhere.
assert [(e["length"], e["type"]) for e in nbdinfo(ours("simple"))] == [(8 << 20, 0)]
# A copy asks for what is there, and leaves the holes out.
before = len(open("sparse.log").read()); run("nbdcopy", ours("sparse"), "copy"); asked = open("sparse.log").read()[before:]
run("nbdcopy", theirs("sparse"), "original")
assert open("copy", "rb").read() == open("original", "rb").read()
read = sum(int(count, 16) for count in re.findall(r"Read id=\d+ offset=\S+ count=(0x[0-9a-f]+)", asked))
assert "Extents" in asked and 0 < read < 1 << 20, (read, asked)
assert os.stat("copy").st_blocks <= os.stat("original").st_blocks
run("qemu-img", "convert", "-f", "raw", "-O", "raw", ours("qemu"), "converted"); run("qemu-img", "compare", "-f", "raw", "-F", "qcow2", "converted", "disk.qcow2", "-U")
"#;
    let output =
        Command::new("timeout").args(["60", "python3", "-c", script]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// An origin that goes away and comes back: reads wait and are answered, on new connections; one that does not answer in time is as good as gone.
#[test]
fn an_origin_may_go_away_and_come_back_or_not_answer_in_time() {
    if !programs("origins that go away", &["nbdkit"], false) {
        return;
    }
    let folder = folder();
    let folder = folder.path();
    std::fs::write(folder.join("disk"), vec![7; 1 << 20]).unwrap();
    let uri = |name: &str| format!("nbd+unix:///?socket={}/{name}.socket", folder.display());
    let volumes = format!(
        "[[volume]]\nname = \"back\"\norigin = \"{}\"\n[[volume]]\nname = \"slow\"\n\
         origin = {{ type = \"nbd\", uri = \"{}\", request_timeout = \"200ms\", wait_for_origin = \"1s\" }}\n",
        uri("back"),
        uri("slow")
    );
    let mut running = Running(vec![nbdkit(folder, "slow", "--filter=delay memory 1M rdelay=30")]);
    let mut back = Running(vec![nbdkit(folder, "back", "file disk")]);
    let (daemon, socket) = start(folder, &volumes);
    running.0.push(daemon);
    let read = |client: &mut Client<()>, offset| {
        client.ask(Operation::Read { offset, length: 4096, dont_fragment: false }, &[], ());
        client.send();
    };
    let answer = |client: &mut Client<()>| loop {
        if let Some(answer) = client.receive().expect("the daemon serves").pop() {
            return answer.result;
        }
    };
    let mut client = Client::connect(&socket, "back").expect("the daemon serves");
    read(&mut client, 0);
    assert_eq!(answer(&mut client), Ok(vec![7; 4096]));
    back.0.clear();
    drop(back);
    std::fs::remove_file(folder.join("back.socket")).ok();
    read(&mut client, 4096);
    std::thread::sleep(Duration::from_millis(300));
    let back = nbdkit(folder, "back", "file disk");
    running.0.push(back);
    assert_eq!(answer(&mut client), Ok(vec![7; 4096]));

    let mut client = Client::connect(&socket, "slow").expect("the daemon serves");
    let asked = Instant::now();
    read(&mut client, 0);
    let error = answer(&mut client).expect_err("nbdkit answers after 30 s only");
    assert!(error.contains("EIO") && asked.elapsed() < Duration::from_secs(20), "{error}");
}

/// As many as a large installation has.
#[test]
fn two_thousand_volumes_are_listed_and_served() {
    const VOLUMES: usize = 2000;
    let folder = folder();
    let folder = folder.path();
    let mut volumes = String::new();
    for index in 0..VOLUMES {
        let size = index + 1;
        writeln!(
            volumes,
            "[[volume]]\nname = \"volume {index}\"\norigin = {{ type = \"memory\", size = \"{size}KiB\" }}"
        )
        .unwrap();
    }
    let (daemon, socket) = start(folder, &volumes);
    let _running = Running(vec![daemon]);
    for index in 0..VOLUMES {
        let mut client = Client::connect(&socket, &format!("volume {index}")).expect("the daemon serves");
        let last = index as u64 * 1024;
        client.ask(Operation::Read { offset: last, length: 1024, dont_fragment: false }, &[], ());
        client.send();
        let answers = client.receive().expect("the daemon serves");
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].result, Ok(vec![0; 1024]), "volume {index}");
    }
    if programs("2,000 volumes, listed", &["nbd-client"], false) {
        let list = Command::new("nbd-client").args(["-l", "-u"]).arg(&socket).output();
        let list =
            list.or_else(|_| Command::new("/usr/sbin/nbd-client").args(["-l", "-u"]).arg(&socket).output());
        let list = list.expect("nbd-client runs").stdout;
        let names = String::from_utf8_lossy(&list);
        assert_eq!(names.lines().filter(|line| line.starts_with("volume ")).count(), VOLUMES, "{names}");
    }
}
