//! Who is refused before it has a volume leaves a line in the log and a count, and nothing of what it showed as a secret.

use crate::daemon::Daemon;
use crate::support::{folder, succeed};
use forebay_nbd::Uri;
use forebay_origin::{NbdOrigin, NbdOriginOptions};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const SECRET: &str = "a-secret-that-nobody-may-read";
const TOKEN: &str = "a-token-that-nobody-may-read";

/// The volumes `db`, which has a secret, and `open`; both have leases.
fn start() -> Daemon {
    let folder = folder();
    let at = folder.path().display();
    let configuration = format!(
        "listen = [\"unix:{at}/nbd\"]\n[leases]\npath = \"{at}/leases\"\n\
         [http]\nlisten = \"127.0.0.1:0\"\nsocket = \"{at}/http\"\ntoken = \"{TOKEN}\"\n\
         [[volume]]\nname = \"db\"\norigin = {{ type = \"memory\", size = \"1MiB\" }}\nsecret = \"{SECRET}\"\n\
         [[volume]]\nname = \"open\"\norigin = {{ type = \"memory\", size = \"1MiB\" }}\n"
    );
    Daemon::start(folder, configuration)
}

fn is_let_in(daemon: &Daemon, export: &str) -> bool {
    let options = NbdOriginOptions { connections: 1, ..NbdOriginOptions::default() };
    NbdOrigin::connect(&Uri::unix(daemon.path("nbd"), export), options).is_ok()
}

/// Asks each of these options, and takes the answers: all that comes until the daemon says goodbye.
fn ask(daemon: &Daemon, options: &[Vec<u8>]) {
    let mut stream = UnixStream::connect(daemon.path("nbd")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let abort = option(2, b"");
    stream.write_all(&[&[0, 0, 0, 3], options.concat().as_slice(), &abort].concat()).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
}

/// `forebay_connections_refused_total` by reason.
fn refused(daemon: &Daemon) -> BTreeMap<String, u64> {
    let mut stream = UnixStream::connect(daemon.path("http")).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let counts = text.lines().filter_map(|line| {
        let (reason, count) =
            line.strip_prefix("forebay_connections_refused_total{reason=\"")?.split_once("\"} ")?;
        Some((reason.to_owned(), count.parse().unwrap()))
    });
    counts.collect()
}

/// Those of them that are not 0.
fn some_refused(daemon: &Daemon) -> Vec<(String, u64)> {
    refused(daemon).into_iter().filter(|(_, count)| *count > 0).collect()
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT".as_slice(), &number.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
}

/// What INFO (6) and GO (7) ask by.
fn named(name: &str) -> Vec<u8> {
    [&(name.len() as u32).to_be_bytes(), name.as_bytes(), &[0, 0]].concat()
}

#[test]
fn who_is_refused_is_told_of_and_counted_by_the_reason() {
    let daemon = start();
    let words = ["export", "fenced", "limit", "protocol", "secret", "timeout", "tls", "token"];
    let at_first: BTreeMap<String, u64> = words.map(|word| (word.to_owned(), 0)).into();
    assert_eq!(refused(&daemon), at_first, "all are there from the start on");
    assert!(is_let_in(&daemon, &format!("db.{SECRET}")) && is_let_in(&daemon, "open"));

    let guess = "a-guess-that-nobody-may-read";
    let missing = "client shows no secret, or a wrong one; refused";
    for name in ["db".to_owned(), format!("db.{guess}"), format!("db.{guess}@7"), "db@7".to_owned()] {
        assert!(!is_let_in(&daemon, &name), "{name}");
    }
    // The oldest way to ask, whose error has the name.
    ask(&daemon, &[option(1, format!("db.{guess}").as_bytes())]);
    daemon.wait_for_times(missing, 5);
    daemon.wait_for("volume `db`");

    let unknown = "client asks for an export that is not here; refused";
    for name in ["nobody".to_owned(), format!("dbb.{SECRET}"), SECRET.to_owned()] {
        assert!(!is_let_in(&daemon, &name), "{name}");
    }
    ask(&daemon, &[option(1, format!("dbb.{guess}").as_bytes())]);
    daemon.wait_for_times(unknown, 4);
    daemon.wait_for("`nobody`");
    daemon.wait_for("`dbb..`");

    let server = format!("unix:{}", daemon.path("http").display());
    succeed(["lease", "open", "--raise", "3", "--server", &server]);
    assert!(is_let_in(&daemon, "open@3"));
    for name in ["open", "open@2"] {
        assert!(!is_let_in(&daemon, name), "{name}");
    }
    daemon.wait_for("volume `open`, asked for without an epoch; epoch 3 has it");
    daemon.wait_for("volume `open`, asked for with epoch 2; epoch 3 has it");

    let log = daemon.log();
    let address = log.split("metrics at http://").nth(1).unwrap().split('/').next().unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let peer = format!("tcp:{}", stream.local_addr().unwrap());
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {guess}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    daemon.wait_for("client of HTTP shows no token, or a wrong one; refused");
    daemon.wait_for(&peer);

    let counts = [("export", 4), ("fenced", 2), ("secret", 5), ("token", 1)];
    assert_eq!(some_refused(&daemon), counts.map(|(word, count)| (word.to_owned(), count)));
    let log = daemon.log();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("; refused")).collect();
    assert!(
        told.len() == 12 && told.iter().all(|line| line.contains("WARN") && line.contains("peer")),
        "{log}"
    );
    assert!([SECRET, TOKEN, guess].iter().all(|secret| !log.contains(secret)), "{log}");
}

#[test]
fn who_looks_around_is_refused_nothing_and_who_asks_many_times_at_once_is_refused_once() {
    let daemon = start();
    let server = format!("unix:{}", daemon.path("http").display());
    succeed(["lease", "open", "--raise", "3", "--server", &server]);
    // The list, and what is there, though a lease keeps it out.
    let info = |name: &str| option(6, &named(name));
    ask(&daemon, &[option(3, b""), info("open"), info(""), info("nobody")]);
    assert_eq!(some_refused(&daemon), []);
    // But whoever asks about a volume with a secret guesses it, by whatever question.
    let guesses = (0..50).map(|guess| info(&format!("db.a-guess-of-the-secret-{guess}")));
    ask(&daemon, &guesses.collect::<Vec<_>>());
    let go = |name: &str| option(7, &named(name));
    ask(&daemon, &[go("open"), go("open@1"), go("nobody"), go("no-one")]);
    assert_eq!(some_refused(&daemon), ["export", "fenced", "secret"].map(|word| (word.to_owned(), 1)));
    // However often it is tried, the log has a few lines.
    for _ in 0..100 {
        ask(&daemon, &[go("open")]);
    }
    ask(&daemon, &[go("db")]);
    assert_eq!((refused(&daemon)["fenced"], refused(&daemon)["secret"]), (101, 2));
    let times = |words: &str| daemon.log().matches(words).count();
    assert_eq!((times("client is fenced"), times("client shows no secret")), (8, 2));
}
