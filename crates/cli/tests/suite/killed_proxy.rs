//! A proxy is killed while writes that it has sent are unread at its storage side, and is started anew: what it writes from then on stays, since it says by `[succession]` that it is the same client.
//!
//! The storage side begins one write of a connection at a time, and each takes a while, so that what was sent behind it lies in its socket; and it hears nothing of the end of a connection, as
//! behind a network that is cut off just then. Where the proxy does not say who it is, those writes are carried out in the end, over the ones that its next run was told were done: the same
//! course, without the table, shows that it can happen here.

use crate::client::Client;
use crate::support::{args, file, folder, json, serve, wait_for};
use forebay_nbd::client::Operation;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
/// Written through the proxy that is killed, one block each.
const WRITES: usize = 6;
/// How long anything may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    fn start(folder: &Path, name: &str, text: &str) -> Daemon {
        let (configuration, log) = (folder.join(format!("{name}.toml")), folder.join(format!("{name}.log")));
        let sockets = [format!("{name}.sock"), format!("{name}-http.sock")].map(|socket| folder.join(socket));
        for socket in &sockets {
            // One that a killed daemon left behind would look like this one's.
            let _ = std::fs::remove_file(socket);
        }
        let [nbd, http] = sockets.each_ref().map(|socket| socket.display());
        let head = format!(
            "listen = [\"unix:{nbd}\"]\nhttp.listen = \"off\"\nhttp.socket = \"{http}\"\ncontrol.enabled = false\n"
        );
        std::fs::write(&configuration, format!("{head}{text}")).expect("the folder takes files");
        let child = serve(&configuration, std::fs::File::create(&log).expect("the folder takes files"));
        let daemon = Daemon { child, log };
        wait_for(&sockets[0]);
        daemon
    }

    fn kill(mut self) {
        self.child.kill().expect("it runs until it is killed");
        self.child.wait().expect("it ends");
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("it has one")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A network in which the end of whoever connects is not heard of.
fn relay(listener: &UnixListener, to: &Path) {
    let copy = |mut from: UnixStream, mut to: UnixStream| {
        let mut buffer = [0; 64 << 10];
        // Neither of them is shut down at the end, and the other thread holds both, too.
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
    };
    for client in listener.incoming() {
        let client = client.expect("it listens");
        let Ok(server) = UnixStream::connect(to) else { continue };
        let (client_too, server_too) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || copy(client_too, server_too));
        std::thread::spawn(move || {
            copy(server.try_clone().unwrap(), client.try_clone().unwrap());
            // Whoever asks hears of the end, as ever.
            let _ = client.shutdown(std::net::Shutdown::Both);
            // What a client of the past does not take is nobody's.
            std::io::copy(&mut &server, &mut std::io::sink())
        });
    }
}

fn write(client: &mut Client<usize>, block: usize, byte: u8) {
    let operation = Operation::Write { offset: (block * BLOCK) as u64, length: BLOCK as u32, fua: false };
    client.ask(operation, &[byte; BLOCK], block);
    client.send();
}

/// Which block was written first of those that were asked for and not answered yet.
fn answer(client: &mut Client<usize>) -> usize {
    loop {
        let answers = client.receive().expect("the proxy is there");
        if let Some(first) = answers.first() {
            assert_eq!(first.result, Ok(Vec::new()));
            return first.what;
        }
    }
}

/// How many connections are at the storage side.
fn connections(folder: &Path) -> u64 {
    let configuration = folder.join("storage.toml");
    let status = json("forebay.status/1", args(&[&"status", &"--config", &configuration, &"--json"]));
    status["connections"].as_u64().expect("a number")
}

/// The course of the module, and whether in the end, as `is_over` says of the folder and what both runs wrote last, the later one's byte is there; with what the storage side's log says.
fn the_later_write_stays(succession: &str, is_over: impl Fn(&Path, u8) -> bool) -> (bool, String) {
    let scratch = folder();
    let at = scratch.path();
    let disk = file(&scratch, "disk", vec![0; 1 << 20]);
    let storage = Daemon::start(
        at,
        "storage",
        "limits.requests_per_connection = 1\n[[volume]]\nname = \"db\"\norigin = \"disk\"\ncache = \"0\"\n\
         layers = [{ type = \"delay\", write = \"700ms\" }]\n",
    );
    let network = at.join("network.sock");
    let listener = UnixListener::bind(&network).expect("the folder takes sockets");
    let to = at.join("storage.sock");
    std::thread::spawn(move || relay(&listener, &to));
    let uri = format!("nbd+unix:///db?socket={}", network.display());
    let proxy = format!(
        "{succession}[[volume]]\nname = \"db\"\norigin = {{ type = \"nbd\", uri = \"{uri}\", connections = 1 }}\ncache = \"0\"\n"
    );
    let first = Daemon::start(at, "proxy", &proxy);
    let mut client = Client::connect(&at.join("proxy.sock"), "db").expect("it is served");
    for block in 0..WRITES {
        write(&mut client, block, 1);
    }
    // The others were sent long ago, and one of them is begun.
    assert_eq!(answer(&mut client), 0);
    first.kill();
    let _second = Daemon::start(at, "proxy", &proxy);
    let mut client = Client::connect(&at.join("proxy.sock"), "db").expect("it is served");
    write(&mut client, WRITES - 1, 2);
    assert_eq!(answer(&mut client), WRITES - 1);
    let last = || std::fs::read(&disk).expect("it is there")[(WRITES - 1) * BLOCK];
    let end = Instant::now() + PATIENCE;
    while !is_over(at, last()) {
        assert!(Instant::now() < end, "it does not end: {}", storage.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    (last() == 2, storage.log())
}

#[test]
fn what_a_killed_proxy_had_sent_does_not_come_over_what_its_next_run_writes() {
    const SUCCEEDED: &str = "a client was started anew";
    let is_alone = |folder: &Path, _| connections(folder) == 1;
    let (stays, log) = the_later_write_stays("succession.path = \"succession.json\"\n", is_alone);
    assert!(stays, "what the killed proxy had sent has come over it: {log}");
    assert!(log.contains(SUCCEEDED), "{log}");
    // It does come where nobody says who it is of, or this would show nothing.
    let (stays, log) = the_later_write_stays("", |_, last| last == 1);
    assert!(!stays && !log.contains(SUCCEEDED), "{log}");
}
