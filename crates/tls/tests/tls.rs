//! Real handshakes over sockets: whoever should gets a conversation in the clear, whoever should not gets nothing, and says why.

use forebay_tls::{ClientTls, ServerTls, TlsConnectError, TlsFilesError, Tunnels};
use rustix::fd::OwnedFd;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

fn pem(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates").join(name)
}

fn server(client_authorities: Option<&str>) -> ServerTls {
    let authorities = client_authorities.map(pem);
    ServerTls::load(&pem("good/server-cert.pem"), &pem("good/server-key.pem"), authorities.as_deref())
        .expect("good files")
}

fn client(authorities: Option<&str>, identity: Option<&str>) -> ClientTls {
    let authorities = authorities.map(pem);
    let identity =
        identity.map(|who| (pem(&format!("{who}/client-cert.pem")), pem(&format!("{who}/client-key.pem"))));
    ClientTls::load(
        authorities.as_deref(),
        identity.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path())),
    )
    .expect("good files")
}

fn stream(socket: OwnedFd) -> UnixStream {
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Both ends in the clear of a connection over TLS, or why the client got none.
fn connect(
    tunnels: &Tunnels,
    server: &ServerTls,
    client: &ClientTls,
    name: &str,
) -> Result<(UnixStream, UnixStream), TlsConnectError> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let served = stream(tunnels.accept(server, ours.into(), "test").unwrap());
    Ok((served, stream(tunnels.connect(client, name, theirs)?.0)))
}

fn wait_until_none_is_open(tunnels: &Tunnels) {
    let end = Instant::now() + Duration::from_secs(20);
    while tunnels.open() > 0 {
        assert!(Instant::now() < end, "{} tunnels stay open", tunnels.open());
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn much_goes_both_ways_at_once_and_ends_in_order() {
    let tunnels = Tunnels::start("tls").unwrap();
    let trusting = client(Some("good/ca-cert.pem"), Some("good"));
    let (served, used) =
        connect(&tunnels, &server(Some("good/ca-cert.pem")), &trusting, "localhost").unwrap();
    let sent: Vec<u8> = (0..5_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    thread::scope(|scope| {
        for (ours, at) in [(&served, 0), (&used, 1)] {
            let part = &sent[at..];
            scope.spawn(move || {
                (&mut &*ours).write_all(part).unwrap();
                ours.shutdown(std::net::Shutdown::Write).unwrap();
            });
        }
        for (ours, at) in [(&served, 1), (&used, 0)] {
            let part = &sent[at..];
            scope.spawn(move || {
                let mut received = vec![0; part.len()];
                (&mut &*ours).read_exact(&mut received).unwrap();
                assert!(received == part);
            });
        }
    });
    drop((served, used));
    wait_until_none_is_open(&tunnels);
}

#[test]
fn what_was_said_last_arrives_before_the_end() {
    let tunnels = Tunnels::start("tls").unwrap();
    let (mut served, mut used) =
        connect(&tunnels, &server(None), &client(Some("good/ca-cert.pem"), None), "127.0.0.1").unwrap();
    let last = vec![7; 300_000];
    let mut received = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            served.write_all(&last).unwrap();
            drop(served);
        });
        used.read_to_end(&mut received).unwrap();
    });
    assert!(received == last);
    drop(used);
    wait_until_none_is_open(&tunnels);
}

#[test]
fn who_is_slow_still_hears_all_that_a_peer_said_before_it_left() {
    let tunnels = Tunnels::start("tls").unwrap();
    let (mut served, mut used) =
        connect(&tunnels, &server(None), &client(Some("good/ca-cert.pem"), None), "127.0.0.1").unwrap();
    // More than a tunnel and the socket behind it hold, less than fits with the socket before it.
    let last = vec![7; 400_000];
    served.write_all(&last).unwrap();
    drop(served);
    let end = Instant::now() + Duration::from_secs(20);
    while tunnels.open() > 1 {
        assert!(Instant::now() < end, "the server's tunnel stays open");
        thread::sleep(Duration::from_millis(1));
    }
    let mut received = Vec::new();
    used.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), last.len());
    drop(used);
    wait_until_none_is_open(&tunnels);
}

/// How much of what is sent into a tunnel arrives at a server that begins to read when the tunnel is gone; and how much that is.
fn arrives_after_the_end(gives_up: bool) -> (usize, usize) {
    let (at_server, at_client) = (Tunnels::start("server").unwrap(), Tunnels::start("client").unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let outer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    outer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let accepted = listener.accept().unwrap().0;
    accepted.set_nonblocking(true).unwrap();
    let mut served = stream(at_server.accept(&server(None), accepted.into(), "test").unwrap());
    let trusting = client(Some("good/ca-cert.pem"), None);
    let (used, unsent) = at_client.connect(&trusting, "127.0.0.1", outer).unwrap();
    unsent.give_up(gives_up);
    let used = UnixStream::from(used);
    used.set_nonblocking(true).unwrap();
    let (mut sent, mut refused) = (0, 0);
    // Until nothing has moved for a while: all on the way is full.
    while refused < 50 {
        match (&used).write(&[7; 16 << 10]) {
            Ok(count) => (sent, refused) = (sent + count, 0),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                refused += 1;
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
    drop(used);
    if gives_up {
        wait_until_none_is_open(&at_client);
    }
    let (mut arrived, mut piece) = (0, vec![0; 64 << 10]);
    loop {
        match served.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(count) => arrived += count,
        }
    }
    drop(served);
    wait_until_none_is_open(&at_server);
    (arrived, sent)
}

#[test]
fn what_was_not_sent_goes_with_a_connection_that_is_given_up_and_is_still_sent_of_another() {
    let (arrived, sent) = arrives_after_the_end(false);
    assert_eq!(arrived, sent);
    let (arrived, sent) = arrives_after_the_end(true);
    println!("{arrived} of {sent} bytes arrive of a connection that was given up");
    // At least what waits in the tunnel and in its sockets does not.
    assert!(arrived + (256 << 10) < sent, "{arrived} of {sent} bytes have arrived");
}

#[test]
fn a_server_that_is_not_believed_gets_nothing() {
    let tunnels = Tunnels::start("tls").unwrap();
    for (authorities, name, expected) in [
        ("stranger/ca-cert.pem", "localhost", "UnknownIssuer"),
        ("good/ca-cert.pem", "example.org", "not valid for name"),
    ] {
        let result = connect(&tunnels, &server(None), &client(Some(authorities), None), name);
        let Err(TlsConnectError::Handshake { source }) = result else {
            panic!("{authorities} for {name}: {result:?}")
        };
        assert!(source.to_string().contains(expected), "{source}");
    }
    // Without authorities everybody is believed.
    connect(&tunnels, &server(None), &client(None, None), "example.org").unwrap();
    assert!(matches!(
        connect(&tunnels, &server(None), &client(None, None), "no name"),
        Err(TlsConnectError::Name { .. })
    ));
    wait_until_none_is_open(&tunnels);
}

#[test]
fn a_client_that_is_not_believed_gets_nothing() {
    let tunnels = Tunnels::start("tls").unwrap();
    let server = server(Some("good/ca-cert.pem"));
    assert!(server.verifies_clients());
    for identity in [None, Some("stranger")] {
        // In TLS 1.3 the client is done first: that it is refused shows in what comes next.
        let result = connect(&tunnels, &server, &client(None, identity), "localhost");
        let Ok((mut served, mut used)) = result else { continue };
        let _ = used.write_all(b"hello");
        let mut byte = [0];
        assert_eq!(served.read(&mut byte).unwrap_or(0), 0, "{identity:?}");
        assert_eq!(used.read(&mut byte).unwrap_or(0), 0, "{identity:?}");
    }
    wait_until_none_is_open(&tunnels);
}

#[test]
fn who_speaks_no_tls_or_nothing_is_left_alone() {
    let tunnels = Tunnels::start("tls").unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut served = stream(tunnels.accept(&server(None), ours.into(), "test").unwrap());
    theirs.write_all(b"IHAVEOPT in the clear, for longer than a record's header").unwrap();
    assert_eq!(served.read(&mut [0]).unwrap_or(0), 0);
    // A handshake that does not go on costs nothing once its owner has lost patience.
    let (ours, _theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    drop(tunnels.accept(&server(None), ours.into(), "test").unwrap());
    wait_until_none_is_open(&tunnels);
}

#[test]
fn wrong_files_are_named() {
    let no_key =
        ServerTls::load(&pem("good/server-cert.pem"), &pem("good/server-cert.pem"), None).unwrap_err();
    assert!(matches!(&no_key, TlsFilesError::File { what: "private key", .. }), "{no_key}");
    // A device may have no end.
    let endless = ServerTls::load(Path::new("/dev/zero"), &pem("good/server-key.pem"), None).err().unwrap();
    assert!(
        endless.to_string().contains("`/dev/zero` holds no usable certificate: it is longer than 16MiB"),
        "{endless}"
    );
    let absent = ServerTls::load(&pem("absent.pem"), &pem("good/server-key.pem"), None).unwrap_err();
    assert!(absent.to_string().contains("absent.pem"), "{absent}");
    let other =
        ServerTls::load(&pem("good/server-cert.pem"), &pem("stranger/server-key.pem"), None).unwrap_err();
    assert!(matches!(&other, TlsFilesError::Pair { .. }), "{other}");
    let none = ClientTls::load(Some(&pem("good/server-key.pem")), None).unwrap_err();
    assert!(none.to_string().contains("certificate"), "{none}");
}
