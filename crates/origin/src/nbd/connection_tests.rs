//! One connection to servers that are slow, that stand still, and behind TLS: what is held, what is given up, and how answers are put together.

use super::*;
use crate::nbd::answers::Answers;
use crate::nbd::{NbdOrigin, NbdOriginOptions};
use crate::request::{CompletionSink, Origin, OriginRequest, OriginRequestId};
use forebay_nbd::{ExportInfo, Uri, server};
use forebay_tls::{ClientTls, ServerTls, Tunnels};
use rustix::net::sockopt::socket_linger;
use std::fs::File;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Serves writes of one client into nothing, and takes little of them at a time.
fn serve_slowly(mut stream: impl Read + Write) {
    let exports = vec![ExportInfo::new("disk", 1 << 20)];
    let (mut output, mut input) = (Vec::new(), Vec::new());
    let config = server::Config { payload_whole_bytes_max: 32 << 20, ..server::Config::default() };
    let mut session = server::Session::new(config, &mut output);
    let mut chunk = vec![0; 16 << 10];
    loop {
        loop {
            let parsed = session.receive(&input, &exports, &mut output).unwrap();
            let consumed = parsed.consumed;
            match parsed.event {
                server::Event::NeedMore => break,
                server::Event::Disconnect(_) => return,
                server::Event::Request { request, .. } => {
                    session.replies().success(&request, &mut output);
                }
                _ => {}
            }
            input.drain(..consumed);
        }
        if stream.write_all(&output).is_err() {
            return;
        }
        output.clear();
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return,
            Ok(bytes) => input.extend_from_slice(&chunk[..bytes]),
        }
    }
}

/// A socket that is full all the time always leaves something unsent, behind which the next requests are encoded.
#[test]
fn what_was_sent_is_given_up_although_more_always_waits() {
    // Of lengths that were tried the one with which least often all is sent.
    const BYTES: usize = 110_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || serve_slowly(listener.accept().unwrap().0));
    let options = NbdOriginOptions { connections: 1, ..NbdOriginOptions::default() };
    let origin = NbdOrigin::connect(&Uri::unix(&path, "disk"), options).unwrap();
    let (sender, answers) = channel();
    let sink: Arc<dyn CompletionSink> = Arc::new(Answers(sender));
    let write = |id| {
        let operation = OriginOperation::Write { offset: 0, data: vec![1; BYTES], fua: false };
        OriginRequest { id: OriginRequestId(id), operation }
    };
    let mut held_max = 0;
    (0..64).for_each(|id| origin.submit(write(id), &sink));
    for id in 64..4000 {
        assert!(answers.recv().unwrap().result.is_ok());
        origin.submit(write(id), &sink);
        let connection = locked(&origin.shared.queue).connections[0].clone().unwrap();
        held_max = held_max.max(connection.conversation().unsent.len());
    }
    assert!(held_max <= 2 * (GATHER_BYTES + BYTES + 28), "{held_max} bytes of requests are held");
    drop(origin);
    server.join().unwrap();
}

#[test]
fn what_is_not_sent_goes_with_the_connection_but_for_a_farewell() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || serve_slowly(listener.accept().unwrap().0));
    let options = NbdOriginOptions { connections: 1, ..NbdOriginOptions::default() };
    let uri: Uri = format!("nbd://127.0.0.1:{port}/disk").parse().unwrap();
    let origin = NbdOrigin::connect(&uri, options).unwrap();
    let (sender, answers) = channel();
    let sink: Arc<dyn CompletionSink> = Arc::new(Answers(sender));
    let operation = OriginOperation::Write { offset: 0, data: vec![1; 512], fua: false };
    origin.submit(OriginRequest { id: OriginRequestId(0), operation }, &sink);
    assert!(answers.recv().unwrap().result.is_ok());
    let connection = locked(&origin.shared.queue).connections[0].clone().unwrap();
    assert_eq!(socket_linger(connection.stream()), Ok(Some(Duration::ZERO)));
    drop(origin);
    assert_eq!(socket_linger(connection.stream()), Ok(None));
    server.join().unwrap();
}

/// Opens the export of one client over TLS, and takes nothing of what it says then. Where its socket is told.
fn serve_over_tls_and_then_stand_still(stream: TcpStream, opened: &Sender<TcpStream>) -> Tunnels {
    let pem =
        |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/tests/certificates/good").join(name);
    let certificates = ServerTls::load(&pem("server-cert.pem"), &pem("server-key.pem"), None).unwrap();
    let tunnels = Tunnels::start("tls").unwrap();
    let socket = stream.try_clone().unwrap();
    let mut stream = File::from(OwnedFd::from(stream));
    let exports = vec![ExportInfo::new("disk", 1 << 20)];
    let (mut output, mut input) = (Vec::new(), Vec::new());
    let config = server::Config { tls: server::TlsPolicy::Required, ..server::Config::default() };
    let mut session = server::Session::new(config, &mut output);
    let mut chunk = vec![0; 16 << 10];
    loop {
        stream.write_all(&output).unwrap();
        output.clear();
        let count = stream.read(&mut chunk).unwrap();
        input.extend_from_slice(&chunk[..count]);
        loop {
            let parsed = session.receive(&input, &exports, &mut output).unwrap();
            let consumed = parsed.consumed;
            match parsed.event {
                server::Event::NeedMore => break,
                server::Event::UpgradeTls => {
                    stream.write_all(&output).unwrap();
                    output.clear();
                    rustix::io::ioctl_fionbio(&stream, true).unwrap();
                    let inner = tunnels.accept(&certificates, stream.into(), "test").unwrap();
                    rustix::io::ioctl_fionbio(&inner, false).unwrap();
                    stream = inner.into();
                    session.tls_established();
                }
                server::Event::ExportChosen(_) => {
                    stream.write_all(&output).unwrap();
                    // Its end would be the end of the connection.
                    std::mem::forget(stream);
                    opened.send(socket).unwrap();
                    return tunnels;
                }
                _ => {}
            }
            input.drain(..consumed);
        }
    }
}

#[test]
fn what_is_not_sent_goes_with_a_connection_over_tls_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri: Uri =
        format!("nbds://127.0.0.1:{}/disk", listener.local_addr().unwrap().port()).parse().unwrap();
    let (opened, socket) = channel();
    let server = std::thread::spawn(move || {
        serve_over_tls_and_then_stand_still(listener.accept().unwrap().0, &opened)
    });
    let authority = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/tests/certificates/good/ca-cert.pem");
    let client = ClientTls::load(Some(&authority), None).unwrap();
    let options = NbdOriginOptions { connections: 1, ..NbdOriginOptions::default() };
    let origin = NbdOrigin::connect_secured(&uri, Some(client), options, None).unwrap();
    let tunnels = server.join().unwrap();
    let socket = socket.recv().unwrap();
    let (sender, _answers) = channel();
    let sink: Arc<dyn CompletionSink> = Arc::new(Answers(sender));
    for id in 0..64 {
        let operation = OriginOperation::Write { offset: 0, data: vec![1; 1 << 20], fua: false };
        origin.submit(OriginRequest { id: OriginRequestId(id), operation }, &sink);
    }
    // What has come is more than the server's tunnel takes: the rest waits on the way, and nobody takes of it. How much that is the system decides.
    let end = Instant::now() + Duration::from_secs(20);
    let (mut waiting, mut looks) = (0, 0);
    while looks < 100 {
        let now = rustix::io::ioctl_fionread(&socket).unwrap();
        looks = if now > 0 && now == waiting { looks + 1 } else { 0 };
        waiting = now;
        assert!(Instant::now() < end, "nothing waits at the server");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(origin);
    // An end in order could only come behind what waits, which nobody takes.
    loop {
        match socket.take_error().unwrap() {
            Some(error) => break assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
        assert!(Instant::now() < end, "the connection was not reset");
    }
    drop(tunnels);
}

#[test]
fn pieces_of_a_read_may_come_in_any_order() {
    let mut buffer = Vec::with_capacity(10);
    place(&mut buffer, 6, &[6, 7]);
    place(&mut buffer, 0, &[1, 2]);
    place(&mut buffer, 2, &[3, 4]);
    place(&mut buffer, 8, &[8]);
    // A piece that covers the end of what is there and goes on.
    place(&mut buffer, 7, &[9, 9, 9]);
    assert_eq!(buffer, [1, 2, 3, 4, 0, 0, 6, 9, 9, 9]);
}
