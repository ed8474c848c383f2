//! The NBD origin against a server in this process, and against real ones where they are installed.

use super::conformance::{SIZE, conform};
use super::nbd_server::{Action, Server, export};
use super::support::{Collector, errno, read, run, submit, write};
use forebay_nbd::ExportInfo;
use forebay_nbd::wire::Command;
use forebay_origin::{
    CompletionSink, ConnectError, NbdOrigin, NbdOriginOptions, Origin, OriginError, OriginOperation,
    OriginRequest, OriginRequestId, OriginState, OriginStatistics, OriginTraits,
};
use forebay_prerequisite::programs;
use forebay_units::{ByteRange, Nanos};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::time::Timespec;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(super) fn quick() -> NbdOriginOptions {
    NbdOriginOptions {
        backoff_min: Nanos::millis(2),
        backoff_max: Nanos::millis(20),
        ..NbdOriginOptions::default()
    }
}

pub(super) fn connect(server: &Server, options: NbdOriginOptions) -> NbdOrigin {
    NbdOrigin::connect(&server.uri(), options).unwrap()
}

/// An origin whose completions come from an event loop that took the role of receiving.
pub(super) struct Driven {
    origin: NbdOrigin,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<usize>>,
}

impl Driven {
    pub(super) fn new(origin: NbdOrigin) -> Driven {
        let reactor = origin.reactor().expect("nobody drives it yet");
        assert!(origin.reactor().is_none(), "the role is taken");
        let stop = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let tick = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            let mut turns = 0;
            while !stops.load(Ordering::SeqCst) {
                let mut fds = [PollFd::from_borrowed_fd(reactor.fd(), PollFlags::IN)];
                if poll(&mut fds, Some(&tick)) == Ok(1) {
                    reactor.proceed();
                    turns += 1;
                }
            }
            turns
        });
        Driven { origin, stop, thread: Some(thread) }
    }

    fn stop(&mut self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().map_or(0, |thread| thread.join().unwrap())
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Origin for Driven {
    fn traits(&self) -> OriginTraits {
        self.origin.traits()
    }

    fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        self.origin.submit(request, sink);
    }

    fn submit_all(&self, requests: &mut dyn Iterator<Item = OriginRequest>, sink: &Arc<dyn CompletionSink>) {
        self.origin.submit_all(requests, sink);
    }

    fn describe(&self) -> String {
        self.origin.describe()
    }

    fn statistics(&self) -> OriginStatistics {
        self.origin.statistics()
    }
}

pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_nbd_export_conforms_with_several_connections_and_with_one() {
    for multi_conn in [true, false] {
        // Servers live as long as the suite, origins come and go.
        let servers = RefCell::new(Vec::new());
        conform(&|| {
            let server = Server::start(ExportInfo { multi_conn, ..export(SIZE) });
            let origin = connect(&server, quick());
            servers.borrow_mut().push(server);
            Arc::new(origin)
        });
        until("all connections", || !multi_conn || servers.borrow()[0].connections() >= 4);
        assert!(multi_conn || servers.borrow().iter().all(|server| server.connections() == 1));
    }
}

#[test]
fn an_nbd_export_conforms_driven_by_an_event_loop_and_goes_on_without_it() {
    let servers = RefCell::new(Vec::new());
    conform(&|| {
        let server = Server::start(export(SIZE));
        let origin = Driven::new(connect(&server, quick()));
        servers.borrow_mut().push(server);
        Arc::new(origin)
    });
    let server = Server::start(export(SIZE));
    let mut origin = Driven::new(connect(&server, quick()));
    // Many at once, in order, over all connections, and more than they take.
    let collector = Collector::new();
    let requests = 0..700;
    let mut batch = requests
        .clone()
        .map(|id| OriginRequest { id: OriginRequestId(id), operation: write(id * 8, &id.to_be_bytes()) });
    origin.submit_all(&mut batch, &collector.sink());
    assert!(collector.wait(700).values().all(Result::is_ok));
    assert!(origin.stop() > 0, "the event loop had nothing to do");
    // The origin's own thread receives again.
    let found = run(&origin, read(0, 5600)).unwrap();
    assert_eq!(found, requests.flat_map(u64::to_be_bytes).collect::<Vec<_>>());
    assert!(origin.origin.reactor().is_some());
}

#[test]
fn what_a_poor_server_does_not_offer_is_done_otherwise() {
    let poor = ExportInfo { fua: false, ..ExportInfo::new("disk", SIZE) };
    let server = Server::start(poor);
    let origin = connect(&server, quick());
    assert!(!origin.traits().can_trim);
    // FUA becomes a write and then a flush.
    run(&origin, OriginOperation::Write { offset: 0, data: vec![5; 100], fua: true }).unwrap();
    assert_eq!((server.commands(Command::Write).len(), server.commands(Command::Flush).len()), (1, 1));
    // Zeroes become writes of at most 1 MiB.
    run(&origin, write(SIZE - 1, b"x")).unwrap();
    let range = ByteRange::new(1, SIZE - 1);
    run(&origin, OriginOperation::WriteZeroes { range, may_trim: true, fua: false, fast: false }).unwrap();
    assert_eq!(server.commands(Command::Write).len(), 4);
    assert_eq!((server.bytes(0, 3), server.bytes(SIZE - 1, 1)), (vec![5, 0, 0], vec![0]));
    // Zeroes that must be fast are refused at once.
    assert!(!origin.traits().can_fast_zero);
    let fast = |range| OriginOperation::WriteZeroes { range, may_trim: true, fua: false, fast: true };
    assert_eq!(errno(&run(&origin, fast(range))), Some(95));
    assert_eq!(server.commands(Command::Write).len(), 4);
    // A trim is a hint.
    run(&origin, OriginOperation::Trim { range, fua: false }).unwrap();
    assert_eq!(server.commands(Command::Trim).len(), 0);
}

#[test]
fn fast_zeroes_are_asked_of_a_server_that_offers_them() {
    let rich = ExportInfo { fast_zero: true, ..export(SIZE) };
    let server = Server::start(rich.clone());
    let origin = connect(&server, NbdOriginOptions { connections: 1, ..quick() });
    assert!(origin.traits().can_fast_zero);
    let zeroes = |fast| {
        let range = ByteRange::new(1, 100);
        run(&origin, OriginOperation::WriteZeroes { range, may_trim: true, fua: false, fast })
    };
    zeroes(true).unwrap();
    zeroes(false).unwrap();
    let asked: Vec<bool> =
        server.commands(Command::WriteZeroes).iter().map(|request| request.fast_zero()).collect();
    assert_eq!(asked, [true, false]);
    // It comes back without: what must be fast is refused, without a word to the server.
    server.set_export(ExportInfo { fast_zero: false, ..rich });
    server.cut_all();
    until("a new connection", || origin.statistics().reconnects == 1);
    assert_eq!(errno(&zeroes(true)), Some(95));
    zeroes(false).unwrap();
    assert_eq!(server.commands(Command::WriteZeroes).len(), 3);
}

/// Who is there and does not let us in may do so later, and who is away may be back: it is told since when nobody has been there.
#[test]
fn for_how_long_nobody_has_listened_is_known() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let server = Server::start_at(export(SIZE), path.clone());
    let origin = connect(&server, quick());
    assert_eq!(origin.refused_for(), None);
    server.refuse(true);
    server.cut_all();
    until("a refusal", || server.refusals() > 0);
    assert_eq!(origin.refused_for(), None, "somebody is there");
    drop(server);
    std::fs::remove_file(&path).unwrap();
    until("nobody", || origin.refused_for().is_some_and(|time| time >= Duration::from_millis(30)));
    let _again = Server::start_at(export(SIZE), path);
    until("a new connection", || origin.refused_for().is_none());
    assert!(run(&origin, read(0, 512)).is_ok());
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let server = Server::start(export(SIZE));
    let origin = connect(&server, NbdOriginOptions { request_timeout: Nanos::millis(50), ..quick() });
    server.script(|request| if request.command == Command::Write { Action::Ignore } else { Action::Serve });
    let outcome = run(&origin, write(0, b"x"));
    assert!(matches!(outcome, Err(OriginError::OutcomeUnknown { .. })), "{outcome:?}");
    assert_eq!(run(&origin, read(0, 1)), Ok(vec![0]));
}

/// A read goes from connection to connection of a server that stands still, each of which is up until it was waited for in vain.
#[test]
fn how_long_the_oldest_request_has_no_answer_is_told_over_lost_connections() {
    let server = Server::start(export(SIZE));
    let options = NbdOriginOptions { connections: 2, request_timeout: Nanos::secs(3), ..quick() };
    let origin = connect(&server, options);
    let oldest = || origin.statistics().oldest_in_flight;
    assert_eq!(oldest(), Nanos::ZERO);
    server.script(|request| if request.range.offset == 0 { Action::Ignore } else { Action::Serve });
    let collector = Collector::new();
    submit(&origin, 0, read(0, 512), &collector);
    until("it is asked on another connection", || origin.statistics().reads_sent_again == 1);
    assert!(oldest() >= Nanos::secs(3));
    assert_eq!((origin.statistics().in_flight, origin.statistics().state), (1, OriginState::Up));
    // Another one that is answered does not hide it.
    assert!(run(&origin, read(512, 512)).is_ok());
    assert!(oldest() >= Nanos::secs(3));
    server.script(|_| Action::Serve);
    assert!(collector.wait(1)[&0].is_ok());
    assert_eq!(oldest(), Nanos::ZERO);
}

/// Whoever took the role of receiving may be stuck, or the whole process stopped, for longer than a server may take to answer.
#[test]
fn an_answer_that_nobody_looked_at_in_time_is_an_answer() {
    let server = Server::start(export(SIZE));
    let options = NbdOriginOptions { request_timeout: Nanos::millis(50), connections: 1, ..quick() };
    let origin = connect(&server, options);
    let _stuck = origin.reactor().unwrap();
    // The origin's own thread receives once more at most, and notices then that it is not needed.
    run(&origin, read(0, 1)).unwrap();
    let outcome = run(&origin, write(0, b"x"));
    assert_eq!((outcome, origin.statistics().in_doubt), (Ok(Vec::new()), 0));
}

#[test]
fn errors_of_the_server_arrive_and_the_queue_is_bounded() {
    let server = Server::start(ExportInfo { read_only: true, ..export(SIZE) });
    let origin = connect(&server, NbdOriginOptions { in_flight_max: 300, ..quick() });
    assert_eq!(errno(&run(&origin, write(0, b"x"))), Some(1));
    server.script(|_| Action::Fail);
    assert_eq!(errno(&run(&origin, read(0, 1))), Some(28));
    server.script(|_| Action::Ignore);
    let collector = Collector::new();
    for id in 0..301 {
        submit(&origin, id, read(id, 1), &collector);
    }
    assert_eq!(errno(&collector.wait(1)[&300]), Some(16));
    drop(origin);
    let outcomes = collector.wait(301);
    assert_eq!(outcomes.values().filter(|o| matches!(o, Err(OriginError::Unreachable { .. }))).count(), 300);
}

#[test]
fn what_cannot_be_connected_to_is_named() {
    let error = |uri: &str| NbdOrigin::connect(&uri.parse().unwrap(), quick()).err().unwrap();
    let missing = error("nbd+unix:///disk?socket=/nonexistent/socket");
    assert!(
        matches!(missing, ConnectError::Connect { .. })
            && missing.to_string().contains("/nonexistent/socket")
    );
    assert!(matches!(error("nbds://localhost/disk"), ConnectError::Tls { .. }));
    let server = Server::start(export(SIZE));
    let other = forebay_nbd::Uri { export: "other".into(), ..server.uri() };
    assert!(matches!(NbdOrigin::connect(&other, quick()).err().unwrap(), ConnectError::Handshake { .. }));
}

/// A server that was stopped accepts nobody, and its queue of connections is full after a while.
#[test]
fn a_server_that_accepts_nobody_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&listener, 0).unwrap();
    let _waiting = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let (sender, told) = std::sync::mpsc::channel();
    let options = NbdOriginOptions { connect_timeout: Nanos::millis(50), ..quick() };
    std::thread::spawn(move || {
        let _ = sender.send(NbdOrigin::connect(&forebay_nbd::Uri::unix(path, "disk"), options).err());
    });
    let error = told.recv_timeout(Duration::from_secs(20)).expect("it waits for ever").unwrap();
    assert!(matches!(error, ConnectError::Connect { .. }), "{error:?}");
}

#[test]
fn tcp_is_a_transport() {
    let server = Server::start(export(SIZE));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let forebay_nbd::Transport::Unix { path } = server.uri().transport else { unreachable!() };
    let relay = std::thread::spawn(move || {
        // One connection, relayed both ways until either side ends it.
        let (client, _) = listener.accept().unwrap();
        let upstream = std::os::unix::net::UnixStream::connect(path).unwrap();
        let (mut from_client, mut to_server) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from_client, &mut to_server);
            let _ = to_server.shutdown(std::net::Shutdown::Write);
        });
        let (mut from_server, mut to_client) = (upstream, client);
        let _ = std::io::copy(&mut from_server, &mut to_client);
    });
    let uri = format!("nbd://127.0.0.1:{port}/disk").parse().unwrap();
    let origin = NbdOrigin::connect(&uri, NbdOriginOptions { connections: 1, ..quick() }).unwrap();
    let bytes: Vec<u8> = (0..500_000u32).map(|at| (at % 251) as u8).collect();
    run(&origin, write(321, &bytes)).unwrap();
    assert!(run(&origin, read(321, 500_000)).unwrap() == bytes);
    assert!(server.bytes(321, 500_000) == bytes);
    drop(origin);
    // The server keeps its end open until it goes.
    drop(server);
    relay.join().unwrap();
}

/// Hands on what a client of the listener says to a server, and what it answers; how the client's side ended. From the mark on nothing is taken from it until it goes on.
fn relay_until_stalled(
    listener: &std::net::TcpListener,
    server: &Server,
    stalls_at: usize,
    goes_on: &std::sync::mpsc::Receiver<()>,
) -> std::io::Result<usize> {
    use std::io::{Read, Write};
    let (mut client, _) = listener.accept().unwrap();
    let forebay_nbd::Transport::Unix { path } = server.uri().transport else { unreachable!() };
    let mut upstream = std::os::unix::net::UnixStream::connect(path).unwrap();
    let (mut answers, mut to_client) = (upstream.try_clone().unwrap(), client.try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut answers, &mut to_client));
    let (mut taken, mut piece) = (0, [0; 4096]);
    loop {
        if taken >= stalls_at {
            let _ = goes_on.recv();
        }
        let count = match client.read(&mut piece) {
            Ok(0) => return Ok(taken),
            Ok(count) => count,
            Err(error) => return Err(error),
        };
        taken += count;
        if taken < stalls_at {
            upstream.write_all(&piece[..count]).unwrap();
        }
    }
}

/// A network that takes nothing for a while, as one that is cut: what the client's system has not sent by the end of the connection is not sent later, behind the writes of the next one.
#[test]
fn what_a_lost_connection_has_not_sent_over_tcp_is_never_sent() {
    let server = Server::start(export(32 << 20));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 16 << 10).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (goes_on, told) = std::sync::mpsc::channel();
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(relay_until_stalled(&listener, &server, 1 << 20, &told)));
    let uri = format!("nbd://127.0.0.1:{port}/disk").parse().unwrap();
    let options = NbdOriginOptions {
        connections: 1,
        request_timeout: Nanos::millis(300),
        wait_for_origin: Nanos::millis(1),
        ..quick()
    };
    let origin = NbdOrigin::connect(&uri, options).unwrap();
    let told_failed = run(&origin, write(0, &vec![7; 16 << 20]));
    assert!(told_failed.is_err(), "{told_failed:?}");
    drop(origin);
    // From here on everything is taken; what is there by then is what the other side's system holds.
    drop(goes_on);
    let ended = ended.recv_timeout(Duration::from_secs(20)).expect("it never ends");
    assert_eq!(ended.map_err(|error| error.kind()), Err(std::io::ErrorKind::ConnectionReset));
}

/// A real server in a child process, ended with its owner.
pub(crate) struct Peer {
    child: std::process::Child,
    pub(crate) socket: std::path::PathBuf,
    _directory: tempfile::TempDir,
}

impl Peer {
    pub(crate) fn start(
        program: &str,
        arguments: impl Fn(&std::path::Path, &std::path::Path) -> Vec<String>,
    ) -> Peer {
        let directory = tempfile::tempdir().unwrap();
        let (socket, image) = (directory.path().join("socket"), directory.path().join("image"));
        std::fs::File::create(&image).unwrap().set_len(SIZE - SIZE % 512).unwrap();
        let child = std::process::Command::new(program).args(arguments(&socket, &image)).spawn().unwrap();
        let peer = Peer { child, socket, _directory: directory };
        until("the server's socket", || peer.socket.exists());
        peer
    }

    fn exercise(&self, name: &str) {
        let uri = forebay_nbd::Uri::unix(&self.socket, "");
        let mut origin = None;
        until("a connection", || {
            origin = NbdOrigin::connect(&uri, quick()).ok();
            origin.is_some()
        });
        let origin = origin.unwrap();
        let size = origin.traits().size_bytes;
        let collector = Collector::new();
        for id in 0..128 {
            submit(&origin, id, write(id * 8192, &[id as u8 + 1; 8192]), &collector);
        }
        assert!(collector.wait(128).values().all(Result::is_ok));
        run(&origin, OriginOperation::Flush).unwrap();
        let range = ByteRange::new(8192, 8192);
        run(&origin, OriginOperation::WriteZeroes { range, may_trim: true, fua: true, fast: false }).unwrap();
        run(&origin, OriginOperation::Trim { range: ByteRange::new(size - 4096, 4096), fua: false }).unwrap();
        let collector = Collector::new();
        for id in 0..128 {
            submit(&origin, id, read(id * 8192, 8192), &collector);
        }
        for (id, outcome) in collector.wait(128) {
            let expected = if id == 1 { 0 } else { id as u8 + 1 };
            assert!(outcome.unwrap().iter().all(|byte| *byte == expected || id == 127), "{name}: block {id}");
        }
        println!("{name}: {:?}", origin.statistics());
        assert_eq!(origin.statistics().errors, 0);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn text(path: &std::path::Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn nbdkit_is_a_peer() {
    // As it is; without structured replies; and so that it knows no options, and is asked for its export by `EXPORT_NAME`.
    for manner in ["--exit-with-parent", "--no-sr", "--mask-handshake=0"] {
        if programs("a peer", &["nbdkit"], false) {
            let peer = Peer::start("nbdkit", |socket, image| {
                ["--foreground", manner, "--unix", &text(socket), "file", &text(image)]
                    .map(String::from)
                    .to_vec()
            });
            peer.exercise(&format!("nbdkit {manner}"));
        }
    }
}

#[test]
fn qemu_nbd_is_a_peer() {
    if programs("a peer", &["qemu-nbd"], false) {
        let peer = Peer::start("qemu-nbd", |socket, image| {
            let common = ["--persistent", "--shared=8", "--format=raw", "--discard=unmap", "--socket"];
            common.map(String::from).into_iter().chain([text(socket), text(image)]).collect()
        });
        peer.exercise("qemu-nbd");
    }
}

/// What was warned of in this process, each with its fields.
#[derive(Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Those that name `what`.
    pub(crate) fn of(&self, what: &str) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|line| line.contains(what)).cloned().collect()
    }
}

/// The only ones of this suite: lanes are threads of their own.
pub(crate) fn warnings() -> &'static Warnings {
    static WARNINGS: OnceLock<Warnings> = OnceLock::new();
    WARNINGS.get_or_init(|| {
        let warnings = Warnings::default();
        tracing::subscriber::set_global_default(warnings.clone()).unwrap();
        warnings
    })
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = String::new();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            line += &format!("{field}={value:?} ");
        });
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn an_end_of_our_own_is_no_warning_and_one_of_the_servers_is() {
    let of = |uri: &str| warnings().of(uri);
    let server = Server::start(export(SIZE));
    let uri = server.uri().shown().to_string();
    let origin = connect(&server, quick());
    run(&origin, read(0, 4096)).unwrap();
    drop(origin);
    assert_eq!(of(&uri), [""; 0]);
    let origin = connect(&server, quick());
    run(&origin, read(0, 4096)).unwrap();
    drop(server);
    until("the loss is told", || !of(&uri).is_empty());
    drop(origin);
    assert!(of(&uri).iter().all(|line| !line.contains("origin closed")), "{:?}", of(&uri));
}
