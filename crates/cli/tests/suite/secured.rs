//! TLS between real clients and the real daemon: who may come in, who may not and is told why in the log.

use crate::daemon::Daemon;
use crate::support::{self, file, folder, secret_file};
use forebay_prerequisite::programs;
use forebay_units::mix64;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const SIZE: usize = 24 << 20;

fn certificates(whose: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tls/tests/certificates")
        .join(whose)
        .canonicalize()
        .expect("they are there")
}

/// A volume `db` over the file `disk`, at the socket `required` with TLS only and at `allowed` with or without.
fn start() -> Daemon {
    let folder = folder();
    let (at, good) = (folder.path().display(), certificates("good"));
    let good = good.display();
    let configuration = format!(
        "listen = [{{ address = \"unix:{at}/required\", tls = \"required\" }}, {{ address = \"unix:{at}/allowed\", tls = \"allowed\" }}, \"unix:{at}/off\"]\n\
         [tls]\ncertificate = \"{good}/server-cert.pem\"\nkey = \"{good}/server-key.pem\"\nclient_authorities = \"{good}/ca-cert.pem\"\n\
         [http]\nlisten = \"off\"\n[[volume]]\nname = \"db\"\norigin = \"disk\"\ncache = \"8MiB\"\n"
    );
    std::fs::File::create(folder.path().join("disk")).unwrap().set_len(SIZE as u64).unwrap();
    Daemon::start(folder, configuration)
}

/// A file or socket of its folder, as an argument.
fn argument(daemon: &Daemon, name: &str) -> String {
    daemon.path(name).to_str().expect("temporary paths are UTF-8").to_owned()
}

/// The volume at a socket, over TLS with these certificates.
fn secured(daemon: &Daemon, socket: &str, whose: &str) -> String {
    let certificates = certificates(whose);
    format!("nbds+unix:///db?socket={}&tls-certificates={}", argument(daemon, socket), certificates.display())
}

fn plain(daemon: &Daemon, socket: &str) -> String {
    format!("nbd+unix:///db?socket={}", argument(daemon, socket))
}

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new("timeout")
        .arg("60")
        .arg(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}

#[track_caller]
fn succeed(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

fn pattern(seed: u64) -> Vec<u8> {
    (0..SIZE as u64 / 8).flat_map(|word| mix64(word ^ mix64(seed)).to_le_bytes()).collect()
}

#[test]
fn clients_of_others_come_in_by_tls() {
    if !programs("clients over TLS", &["nbdinfo", "nbdcopy", "qemu-img", "nbdkit"], false) {
        return;
    }
    let daemon = start();
    let disk = argument(&daemon, "disk");
    for socket in ["required", "allowed"] {
        let uri = secured(&daemon, socket, "good");
        let info = succeed("nbdinfo", &["--no-content", &uri]);
        assert!(info.contains("TLS") && info.contains(&SIZE.to_string()), "{info}");
        let (source, target) = (argument(&daemon, "source"), argument(&daemon, "target"));
        let content = pattern(socket.len() as u64);
        std::fs::write(&source, &content).unwrap();
        succeed("nbdcopy", &["--flush", &source, &uri]);
        assert!(std::fs::read(&disk).unwrap() == content, "{socket}: what was written is not at the origin");
        for _ in 0..2 {
            succeed("nbdcopy", &[&uri, &target]);
            assert!(
                std::fs::read(&target).unwrap() == content,
                "{socket}: what is read is not what was written"
            );
        }
        // QEMU's client, and nbdkit's plugin as a client.
        let credentials = format!(
            "tls-creds-x509,id=tls,endpoint=client,verify-peer=yes,dir={}",
            certificates("good").display()
        );
        let volume = format!(
            "driver=nbd,server.type=unix,server.path={},export=db,tls-creds=tls,tls-hostname=localhost",
            argument(&daemon, socket)
        );
        let same = succeed(
            "qemu-img",
            &[
                "compare",
                "--object",
                &credentials,
                "--image-opts",
                &volume,
                &format!("driver=file,filename={source}"),
            ],
        );
        assert!(same.contains("identical"), "{same}");
        let through = format!("nbdinfo --size \"$uri\" && nbdcopy \"$uri\" {target}");
        let size = succeed(
            "nbdkit",
            &[
                "-U",
                "-",
                "nbd",
                &format!("uri={}", plain(&daemon, socket)),
                "tls=require",
                &format!("tls-certificates={}", certificates("good").display()),
                "--run",
                &through,
            ],
        );
        assert_eq!(size.trim(), SIZE.to_string());
        assert!(std::fs::read(&target).unwrap() == content, "{socket}: nbdkit reads something else");
    }
    // In the clear where that is allowed.
    for socket in ["allowed", "off"] {
        assert_eq!(succeed("nbdinfo", &["--size", &plain(&daemon, socket)]).trim(), SIZE.to_string());
    }
}

#[test]
fn who_is_not_believed_is_refused_and_the_log_says_why() {
    if !programs("strangers over TLS", &["nbdinfo", "openssl"], false) {
        return;
    }
    let daemon = start();
    let refused = |uri: &str, words: &str| {
        let output = run("nbdinfo", &["--size", uri]);
        assert!(!output.status.success(), "{uri} was let in");
        daemon.wait_for(words);
    };
    refused(&plain(&daemon, "required"), "client left without TLS, which is required here");
    // A client without a certificate, then one whose certificate comes from another authority.
    let (strangers, good) = (certificates("stranger"), certificates("good"));
    let mixed = daemon.folder.path().join("mixed");
    std::fs::create_dir(&mixed).unwrap();
    std::fs::copy(good.join("ca-cert.pem"), mixed.join("ca-cert.pem")).unwrap();
    let uri = format!(
        "nbds+unix:///db?socket={}&tls-certificates={}",
        argument(&daemon, "required"),
        mixed.display()
    );
    refused(&uri, "peer sent no certificates");
    for name in ["client-cert.pem", "client-key.pem"] {
        std::fs::copy(strangers.join(name), mixed.join(name)).unwrap();
    }
    // GnuTLS does not even show a certificate from an authority that the daemon did not name.
    refused(&uri, "peer sent no certificates");
    refused(&secured(&daemon, "required", "stranger"), "TLS handshake failed");
    // Where there is no TLS, asking for it is no way in.
    assert!(!run("nbdinfo", &["--size", &secured(&daemon, "off", "good")]).status.success());
    // Bytes in the clear behind the request for TLS are dropped unseen.
    use std::io::{Read, Write};
    let greet = || {
        let mut stream = std::os::unix::net::UnixStream::connect(argument(&daemon, "required")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        stream.write_all(&[0, 0, 0, 3]).unwrap();
        stream
    };
    let option = |number: u32| [b"IHAVEOPT".as_slice(), &number.to_be_bytes(), &[0; 4]].concat();
    let mut stream = greet();
    stream.write_all(&[option(5), option(3)].concat()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.len() <= 20, "the list of exports was told in the clear: {answer:x?}");
    daemon.wait_for("bytes in the clear behind the request for TLS");
    // Every other option is refused in the clear, with NBD_REP_ERR_TLS_REQD (2^31 + 5).
    for number in [3, 6, 7, 8, 9, 10] {
        let mut stream = greet();
        stream.write_all(&option(number)).unwrap();
        let mut header = [0; 20];
        stream.read_exact(&mut header).unwrap();
        assert_eq!(u32::from_be_bytes(header[12..16].try_into().unwrap()), (1 << 31) + 5, "option {number}");
    }
    // And all of that harms nobody.
    assert_eq!(
        succeed("nbdinfo", &["--size", &secured(&daemon, "required", "good")]).trim(),
        SIZE.to_string()
    );
}

/// One daemon's volume is the other's origin, over TLS, through a kill of the former; nbdkit is an origin over TLS too.
#[test]
fn origins_are_reached_by_tls() {
    if !programs("origins over TLS", &["nbdcopy", "nbdkit"], false) {
        return;
    }
    let lower = start();
    let good = certificates("good");
    let good = good.display();
    let folder = folder();
    let nbdkit_socket = folder.path().join("nbdkit");
    let mut nbdkit = Command::new("nbdkit")
        .args([
            "-f",
            "--tls=require",
            "--tls-verify-peer",
            &format!("--tls-certificates={good}"),
            "memory",
            "size=8M",
        ])
        .arg("-U")
        .arg(&nbdkit_socket)
        .spawn()
        .expect("nbdkit runs");
    let at = folder.path().display();
    let tls = format!(
        "authorities = \"{good}/ca-cert.pem\", certificate = \"{good}/client-cert.pem\", key = \"{good}/client-key.pem\""
    );
    let configuration = format!(
        "listen = \"unix:{at}/upper\"\n[http]\nlisten = \"off\"\n\
         [[volume]]\nname = \"db\"\ncache = \"2MiB\"\norigin = {{ type = \"nbd\", uri = \"nbds+unix:///db?socket={}\", {tls} }}\n\
         [[volume]]\nname = \"kit\"\ncache = \"2MiB\"\non_absent = \"wait\"\norigin = {{ type = \"nbd\", uri = \"nbds+unix:///?socket={}\", {tls} }}\n",
        argument(&lower, "required"),
        nbdkit_socket.display()
    );
    let upper = Daemon::start(folder, configuration);
    let (source, target) = (argument(&upper, "source"), argument(&upper, "target"));
    let content = pattern(9);
    std::fs::write(&source, &content).unwrap();
    let volume = |name: &str| format!("nbd+unix:///{name}?socket={}", argument(&upper, "upper"));
    succeed("nbdcopy", &["--flush", &source, &volume("db")]);
    assert!(
        std::fs::read(argument(&lower, "disk")).unwrap() == content,
        "what was written is not at the lower origin"
    );
    succeed("nbdcopy", &[&volume("db"), &target]);
    assert!(std::fs::read(&target).unwrap() == content, "what is read is not what was written");
    std::fs::write(&source, &content[..8 << 20]).unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while !run("nbdinfo", &["--size", &volume("kit")]).status.success() {
        assert!(Instant::now() < end, "nbdkit's export does not appear");
        std::thread::sleep(Duration::from_millis(20));
    }
    for _ in 0..2 {
        succeed("nbdcopy", &["--flush", &source, &volume("kit")]);
        succeed("nbdcopy", &[&volume("kit"), &target]);
        assert!(
            std::fs::read(&target).unwrap() == content[..8 << 20],
            "nbdkit's export reads something else"
        );
    }
    let _ = nbdkit.kill();
    let _ = nbdkit.wait();
}

/// It answers that it is shutting down, and waits for its clients to leave.
#[test]
fn nbdkit_is_started_anew_under_load_and_clients_hear_nothing_of_it() {
    if !programs("an origin that is started anew", &["fio", "nbdkit", "kill"], false) {
        return;
    }
    let folder = folder();
    let at = folder.path().display().to_string();
    let good = certificates("good");
    let good = good.display();
    std::fs::File::create(folder.path().join("disk")).unwrap().set_len(8 << 20).unwrap();
    let socket = folder.path().join("nbdkit");
    let start = || {
        let _ = std::fs::remove_file(&socket);
        let child = Command::new("nbdkit")
            .args(["-f", "--tls=require", &format!("--tls-certificates={good}"), "-U"])
            .arg(&socket)
            .args(["file", &format!("{at}/disk")])
            .spawn()
            .expect("nbdkit runs");
        let end = Instant::now() + Duration::from_secs(20);
        while !socket.exists() {
            assert!(Instant::now() < end, "nbdkit does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    };
    let mut nbdkit = start();
    let configuration = format!(
        "listen = \"unix:{at}/socket\"\n[http]\nlisten = \"off\"\n[[volume]]\nname = \"db\"\ncache = \"1MiB\"\n\
         origin = {{ type = \"nbd\", uri = \"nbds+unix:///?socket={}\", authorities = \"{good}/ca-cert.pem\" }}\n",
        socket.display()
    );
    let daemon = Daemon::start(folder, configuration);
    let uri = format!("--uri=nbd+unix:///db?socket={}", argument(&daemon, "socket"));
    let job = ["--name=job", "--ioengine=nbd", "--rw=randrw", "--bs=4k", "--size=8M", "--iodepth=16"];
    let fio = Command::new("timeout")
        .args(["60", "fio"])
        .args(job)
        .args([&uri, "--time_based", "--runtime=4"])
        .args(["--verify=crc32c", "--verify_backlog=64", "--verify_state_save=0"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("fio runs");
    std::thread::sleep(Duration::from_secs(2));
    succeed("kill", &["-TERM", &nbdkit.id().to_string()]);
    let end = Instant::now() + Duration::from_secs(20);
    while nbdkit.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "nbdkit waits for its clients to leave");
        std::thread::sleep(Duration::from_millis(5));
    }
    nbdkit = start();
    let fio = fio.wait_with_output().unwrap();
    assert!(fio.status.success(), "{}", String::from_utf8_lossy(&[fio.stdout, fio.stderr].concat()));
    daemon.wait_for("connected again");
    let _ = nbdkit.kill();
    let _ = nbdkit.wait();
}

#[test]
fn a_secret_is_not_told_where_a_volume_goes() {
    const SECRET: &str = "open-the-storage-please";
    let folder = folder();
    let at = folder.path().display();
    let start = |name: &str, volume: String| {
        let text = format!(
            "listen = [\"unix:{at}/{name}.sock\"]\nroutes.path = \"{name}.json\"\ncontrol.enabled = false\n\
             http = {{ listen = \"off\", socket = \"{name}-http.sock\" }}\n[[volume]]\nname = \"db\"\ncache = \"0\"\n{volume}\n"
        );
        let path = secret_file(&folder, &format!("{name}.toml"), text);
        forebay_serve::Daemon::start(forebay_serve::config::Config::read(&path).unwrap()).unwrap()
    };
    file(&folder, "disk", vec![0; 1 << 20]);
    let _storage = start("storage", format!("origin = \"disk\"\nsecret = \"{SECRET}\""));
    let uri = format!("nbd+unix:///db.{SECRET}?socket={at}/storage.sock");
    let _proxy = start("proxy", format!("origin = {{ type = \"nbd\", uri = \"{uri}\" }}"));
    let server = format!("unix:{at}/proxy-http.sock");
    let told = support::succeed(["route", "db", "--to", &uri, "--server", &server]);
    let expected = format!("`db` goes to nbd+unix:///db.SECRET?socket={at}/storage.sock; requests waited");
    assert!(told.starts_with(&expected) && !told.contains(SECRET), "{told}");
}
