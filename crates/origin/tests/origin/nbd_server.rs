//! A small NBD server in the test's own process that can be told to misbehave.

use forebay_nbd::server::CONTEXT_ID_ALLOCATION;
use forebay_nbd::server::{Config, Event, Exports, Payload, Request, Session};
use forebay_nbd::wire::Extents;
use forebay_nbd::wire::{Command, ErrorCode};
use forebay_nbd::{ExportInfo, RunId};
use forebay_origin::{MemoryImage, MemoryOrigin, OriginOperation};
use forebay_units::Bytes;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// What the server does about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Carries it out and answers.
    Serve,
    /// Cuts the connection; the request is never carried out.
    Cut,
    /// Cuts the connection in the middle of an answer.
    CutInAnswer,
    /// Cuts the connection and keeps the write: [`Server::apply_late`] carries it out.
    CutAndApplyLate,
    /// Never answers.
    Ignore,
    /// Answers with an error.
    Fail,
    /// Answers that it is shutting down.
    TurnAway,
}

type Script = Box<dyn Fn(&Request) -> Action + Send + Sync>;

struct Inner {
    image: Arc<MemoryImage>,
    export: Mutex<ExportInfo>,
    script: Mutex<Script>,
    refuses: AtomicBool,
    /// Who says that the export is others' now.
    kept_by: Mutex<Option<RunId>>,
    /// Says nothing to who connects, and keeps the connection.
    is_silent: AtomicBool,
    accepted: Arc<AtomicUsize>,
    farewells: AtomicUsize,
    refused: AtomicUsize,
    commands: Mutex<Vec<Request>>,
    late: Mutex<Vec<(u64, Vec<u8>)>>,
    /// Data of every write that arrived, whatever became of it.
    written: Mutex<Vec<Vec<u8>>>,
    streams: Mutex<Vec<UnixStream>>,
    closing: AtomicBool,
}

pub(crate) struct Server {
    inner: Arc<Inner>,
    path: PathBuf,
    directory: Option<tempfile::TempDir>,
    thread: Option<JoinHandle<()>>,
}

/// An export named `disk` with everything that the server can do.
pub(crate) fn export(size: u64) -> ExportInfo {
    ExportInfo {
        trim: true,
        write_zeroes: true,
        multi_conn: true,
        block_status: true,
        ..ExportInfo::new("disk", size)
    }
}

impl Server {
    pub(crate) fn start(export: ExportInfo) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let mut server = Server::start_at(export, path);
        server.directory = Some(directory);
        server
    }

    pub(crate) fn start_at(export: ExportInfo, path: PathBuf) -> Server {
        let listener = UnixListener::bind(&path).unwrap();
        let inner = Arc::new(Inner {
            image: Arc::new(MemoryImage::new(Bytes(export.size_bytes))),
            export: Mutex::new(export),
            script: Mutex::new(Box::new(|_| Action::Serve)),
            refuses: AtomicBool::new(false),
            kept_by: Mutex::new(None),
            is_silent: AtomicBool::new(false),
            accepted: Arc::new(AtomicUsize::new(0)),
            farewells: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            commands: Mutex::new(Vec::new()),
            late: Mutex::new(Vec::new()),
            written: Mutex::new(Vec::new()),
            streams: Mutex::new(Vec::new()),
            closing: AtomicBool::new(false),
        });
        let for_thread = Arc::clone(&inner);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                if for_thread.closing.load(Ordering::SeqCst) {
                    return;
                }
                if for_thread.refuses.load(Ordering::SeqCst) {
                    for_thread.refused.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                for_thread.accepted.fetch_add(1, Ordering::SeqCst);
                for_thread.streams.lock().unwrap().push(stream.try_clone().unwrap());
                if for_thread.is_silent.load(Ordering::SeqCst) {
                    continue;
                }
                let inner = Arc::clone(&for_thread);
                std::thread::spawn(move || inner.serve(stream));
            }
        });
        Server { inner, path, directory: None, thread: Some(thread) }
    }

    pub(crate) fn uri(&self) -> forebay_nbd::Uri {
        forebay_nbd::Uri::unix(&self.path, "disk")
    }

    pub(crate) fn script(&self, script: impl Fn(&Request) -> Action + Send + Sync + 'static) {
        *self.inner.script.lock().unwrap() = Box::new(script);
    }

    pub(crate) fn set_export(&self, export: ExportInfo) {
        *self.inner.export.lock().unwrap() = export;
    }

    pub(crate) fn refuse(&self, refuses: bool) {
        self.inner.refuses.store(refuses, Ordering::SeqCst);
    }

    pub(crate) fn keep_out(&self, by: Option<RunId>) {
        *self.inner.kept_by.lock().unwrap() = by;
    }

    pub(crate) fn fall_silent(&self) {
        self.inner.is_silent.store(true, Ordering::SeqCst);
    }

    /// Cuts the connection that was made first.
    pub(crate) fn cut_first(&self) {
        let stream = self.inner.streams.lock().unwrap().remove(0);
        let _ = stream.shutdown(Shutdown::Both);
    }

    pub(crate) fn cut_all(&self) {
        for stream in self.inner.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn connections(&self) -> usize {
        self.inner.accepted.load(Ordering::SeqCst)
    }

    /// A script that says something else to every connection: how many there have been is read when a request arrives.
    pub(crate) fn script_by_connections(
        &self,
        script: impl Fn(usize, &Request) -> Action + Send + Sync + 'static,
    ) {
        let accepted = Arc::clone(&self.inner.accepted);
        self.script(move |request| script(accepted.load(Ordering::SeqCst), request));
    }

    /// Clients that left politely.
    pub(crate) fn farewells(&self) -> usize {
        self.inner.farewells.load(Ordering::SeqCst)
    }

    pub(crate) fn refusals(&self) -> usize {
        self.inner.refused.load(Ordering::SeqCst)
    }

    /// Every request that arrived, in order.
    pub(crate) fn commands(&self, command: Command) -> Vec<Request> {
        let commands = self.inner.commands.lock().unwrap();
        commands.iter().filter(|request| request.command == command).copied().collect()
    }

    pub(crate) fn written(&self) -> Vec<Vec<u8>> {
        self.inner.written.lock().unwrap().clone()
    }

    pub(crate) fn apply_late(&self) -> usize {
        let late = std::mem::take(&mut *self.inner.late.lock().unwrap());
        late.iter().for_each(|(offset, data)| self.inner.image.write_at(*offset, data));
        late.len()
    }

    pub(crate) fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.inner.image.read_at(offset, &mut bytes);
        bytes
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.inner.closing.store(true, Ordering::SeqCst);
        self.cut_all();
        let _ = UnixStream::connect(&self.path);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What a handshake finds.
struct Offered {
    export: ExportInfo,
    kept_by: Option<RunId>,
}

impl Exports for Offered {
    fn find(&self, name: &str) -> Option<ExportInfo> {
        (self.kept_by.is_none() && name == self.export.name).then(|| self.export.clone())
    }

    fn list(&self, _: &mut dyn FnMut(&str, &str)) {}

    fn refusal(&self, _: &str) -> Option<String> {
        self.kept_by.map(|run| run.said_in("it is given to others"))
    }
}

impl Inner {
    fn serve(&self, mut stream: UnixStream) {
        let kept_by = *self.kept_by.lock().unwrap();
        let exports = Offered { export: self.export.lock().unwrap().clone(), kept_by };
        let mut output = Vec::new();
        let config = Config { payload_whole_bytes_max: 32 << 20, ..Config::default() };
        let mut session = Session::new(config, &mut output);
        let mut input = Vec::new();
        let mut chunk = vec![0; 1 << 20];
        loop {
            loop {
                let Ok(parsed) = session.receive(&input, &exports, &mut output) else {
                    return;
                };
                let consumed = parsed.consumed;
                match parsed.event {
                    Event::NeedMore => break,
                    Event::Disconnect(_) => {
                        self.farewells.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                    Event::Request { request, payload } => {
                        self.commands.lock().unwrap().push(request);
                        let data = match payload {
                            Payload::Whole(bytes) => bytes.to_vec(),
                            _ => Vec::new(),
                        };
                        if request.command == Command::Write {
                            self.written.lock().unwrap().push(data.clone());
                        }
                        let action = (self.script.lock().unwrap())(&request);
                        match action {
                            Action::Cut => return self.cut(&stream),
                            Action::CutInAnswer => {
                                self.carry_out(&session, &request, &data, &mut output);
                                let _ = stream.write_all(&output[..output.len() - 1]);
                                return self.cut(&stream);
                            }
                            Action::CutAndApplyLate => {
                                self.late.lock().unwrap().push((request.range.offset, data));
                                return self.cut(&stream);
                            }
                            Action::Ignore => {}
                            Action::Fail => {
                                session.replies().error(
                                    request.cookie,
                                    ErrorCode::NoSpace,
                                    "full",
                                    &mut output,
                                );
                            }
                            Action::TurnAway => {
                                let going = ErrorCode::Shutdown;
                                session.replies().error(request.cookie, going, "going", &mut output);
                            }
                            Action::Serve => self.carry_out(&session, &request, &data, &mut output),
                        }
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

    fn cut(&self, stream: &UnixStream) {
        let _ = stream.shutdown(Shutdown::Both);
    }

    fn carry_out(&self, session: &Session, request: &Request, data: &[u8], output: &mut Vec<u8>) {
        let range = request.range;
        match request.command {
            Command::Read => {
                output.extend_from_slice(&session.replies().read_header(request));
                let mut bytes = vec![0; range.length as usize];
                self.image.read_at(range.offset, &mut bytes);
                output.extend_from_slice(&bytes);
                return;
            }
            Command::BlockStatus => {
                let status = OriginOperation::BlockStatus { range, one_extent: request.one_extent() };
                let origin = MemoryOrigin::new(Arc::clone(&self.image));
                let extents = super::support::run(&origin, status).unwrap();
                let extents = Extents::new(&extents);
                return session.replies().block_status(
                    request.cookie,
                    CONTEXT_ID_ALLOCATION,
                    extents,
                    output,
                );
            }
            Command::Write => self.image.write_at(range.offset, data),
            Command::Trim | Command::WriteZeroes => self.image.zero(range.offset, range.length),
            _ => {}
        }
        session.replies().success(request, output);
    }
}
