//! What an NBD client may ask, asked of servers of others: every option of the handshake, every command, every flag.
//!
//! The conversations are `forebay_nbd`'s, on a socket, without an origin in between: it chooses for itself what it asks for. What an origin makes of
//! these servers is in `nbd.rs` and `extents.rs`.

use super::nbd::{Peer, text, until};
use forebay_nbd::client::{Config, Event, Export, Goal, Operation, Session};
use forebay_nbd::wire::{ErrorCode, TransmissionFlags};
use forebay_prerequisite::programs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

const KIB: u64 = 1 << 10;

/// A conversation with a server, one thing at a time.
struct Talk {
    stream: UnixStream,
    session: Session,
    input: Vec<u8>,
    output: Vec<u8>,
    names: Vec<String>,
    contexts: Vec<String>,
    export: Option<Export>,
}

/// What came of a request.
#[derive(Debug, Default, PartialEq, Eq)]
struct Came {
    data: Vec<u8>,
    /// How many chunks of data, as far as what was received at once tells, and how many holes.
    pieces: usize,
    holes: usize,
    /// Bytes and flags.
    extents: Vec<(u32, u32)>,
    error: Option<ErrorCode>,
}

impl Talk {
    /// Converses until what `config` asks for is there, or the server said all.
    fn start(socket: &Path, config: Config) -> Talk {
        // A socket is there a moment before anybody listens.
        let mut stream = None;
        until("somebody who listens", || {
            stream = UnixStream::connect(socket).ok();
            stream.is_some()
        });
        let mut talk = Talk {
            stream: stream.expect("it is connected"),
            session: Session::new(config),
            input: Vec::new(),
            output: Vec::new(),
            names: Vec::new(),
            contexts: Vec::new(),
            export: None,
        };
        loop {
            let parsed =
                talk.session.receive(&talk.input, &mut talk.output).expect("the server keeps the protocol");
            let consumed = parsed.consumed;
            match parsed.event {
                Event::NeedMore => {
                    talk.input.drain(..consumed);
                    talk.exchange();
                    continue;
                }
                Event::Progress => {}
                Event::Listed { name, .. } => talk.names.push(name),
                Event::Context { name } => talk.contexts.push(name),
                Event::Described(export) | Event::Ready(export) => {
                    talk.input.drain(..consumed);
                    talk.export = Some(export);
                    return talk;
                }
                Event::Closed => return talk,
                event => panic!("a handshake yields {event:?}"),
            }
            talk.input.drain(..consumed);
        }
    }

    fn exchange(&mut self) {
        self.stream.write_all(&self.output).unwrap();
        self.output.clear();
        let mut chunk = vec![0; 1 << 20];
        let count = self.stream.read(&mut chunk).unwrap();
        assert!(count > 0, "the server hung up");
        self.input.extend_from_slice(&chunk[..count]);
    }

    /// Says goodbye, which the server takes.
    fn end(mut self) {
        self.session.disconnect(&mut self.output);
        self.stream.write_all(&self.output).unwrap();
        assert_eq!(
            self.stream.read(&mut [0; 16]).unwrap_or(0),
            0,
            "the server says something behind the end"
        );
    }

    fn ask(&mut self, operation: Operation, data: &[u8]) -> Came {
        self.session.submit(1, operation, &mut self.output).unwrap();
        self.output.extend_from_slice(data);
        let mut came = Came::default();
        let start = match operation {
            Operation::Read { offset, length, .. } => {
                came.data = vec![0xdd; length as usize];
                offset
            }
            _ => 0,
        };
        loop {
            let parsed =
                self.session.receive(&self.input, &mut self.output).expect("the server keeps the protocol");
            let consumed = parsed.consumed;
            match parsed.event {
                Event::NeedMore => {
                    self.input.drain(..consumed);
                    self.exchange();
                    continue;
                }
                Event::Data { offset, bytes, .. } => {
                    came.pieces += 1;
                    came.data[(offset - start) as usize..][..bytes.len()].copy_from_slice(bytes);
                }
                Event::Hole { range, .. } => {
                    came.holes += 1;
                    came.data[(range.offset - start) as usize..][..range.length as usize].fill(0);
                }
                Event::Extents { extents, .. } => came.extents.extend(extents.map(|e| (e.length, e.flags.0))),
                Event::Progress => {}
                Event::Done { result, .. } => {
                    self.input.drain(..consumed);
                    came.error = result.err().map(|error| error.code);
                    return came;
                }
                event => panic!("a request yields {event:?}"),
            }
            self.input.drain(..consumed);
        }
    }

    fn export(&self) -> &Export {
        self.export.as_ref().expect("it was opened")
    }

    fn done(&mut self, operation: Operation, data: &[u8]) {
        assert_eq!(self.ask(operation, data), Came::default(), "{operation:?}");
    }
}

fn read(offset: u64, length: u64, dont_fragment: bool) -> Operation {
    Operation::Read { offset, length: length as u32, dont_fragment }
}

fn write(offset: u64, length: u64, fua: bool) -> Operation {
    Operation::Write { offset, length: length as u32, fua }
}

fn zeroes(offset: u64, length: u64, no_hole: bool, fast_zero: bool) -> Operation {
    Operation::WriteZeroes { offset, length: length as u32, fua: false, no_hole, fast_zero }
}

/// Every command and flag that the server offers; what is written is 64 KiB at 256 KiB of an empty export.
fn exercise(talk: &mut Talk, has_fast_zero: bool) {
    let noise: Vec<u8> = (0..64 * KIB).map(|at| (at % 251) as u8 + 1).collect();
    talk.done(write(256 * KIB, 64 * KIB, true), &noise);
    talk.done(Operation::Flush, &[]);
    let whole = talk.ask(read(0, 1024 * KIB, false), &[]);
    assert!(
        whole.data[256 << 10..320 << 10] == noise && whole.data[..256 << 10].iter().all(|byte| *byte == 0)
    );
    let unfragmented = talk.ask(read(128 * KIB, 256 * KIB, true), &[]);
    assert!(
        unfragmented.holes == 0 && unfragmented.data[128 << 10..192 << 10] == noise,
        "{:?}",
        unfragmented.error
    );
    talk.done(Operation::Cache { offset: 0, length: 1 << 20 }, &[]);
    let status = |one_extent| Operation::BlockStatus { offset: 0, length: 1 << 20, one_extent };
    assert_eq!(talk.ask(status(true), &[]).extents, [(256 << 10, 3)]);
    let mapped = [(256 << 10, 3), (64 << 10, 0), (704 << 10, 3)];
    assert_eq!(talk.ask(status(false), &[]).extents, mapped);
    talk.done(zeroes(256 * KIB, 4 * KIB, true, false), &[]);
    talk.done(zeroes(260 * KIB, 4 * KIB, false, false), &[]);
    talk.done(Operation::Trim { offset: 264 * KIB, length: 4096, fua: true }, &[]);
    if has_fast_zero {
        talk.done(zeroes(268 * KIB, 4 * KIB, false, true), &[]);
        assert!(talk.ask(read(268 * KIB, 4 * KIB, false), &[]).data.iter().all(|byte| *byte == 0));
    }
    let after = talk.ask(read(256 * KIB, 64 * KIB, false), &[]).data;
    assert!(after[..8 << 10].iter().all(|byte| *byte == 0) && after[16 << 10..] == noise[16 << 10..]);
}

#[test]
fn nbdkit_answers_every_option_and_command() {
    if !programs("a peer", &["nbdkit"], false) {
        return;
    }
    let kit = |arguments: &str| {
        let arguments: Vec<String> = arguments.split(' ').map(String::from).collect();
        Peer::start("nbdkit", |socket, _| {
            let common = ["--foreground", "--unix", &text(socket)].map(String::from);
            common.into_iter().chain(arguments.clone()).collect()
        })
    };
    let peer = kit(
        "--export-name=x --filter=exportname --filter=log memory 1M logfile=/dev/null exportname=a exportname=b exportname-list=explicit",
    );
    let list = Talk::start(&peer.socket, Config { goal: Goal::List, ..Config::new("") });
    assert_eq!(list.names, ["a", "b"]);
    let described = Talk::start(&peer.socket, Config { goal: Goal::Describe, ..Config::new("a") });
    assert_eq!(described.contexts, ["base:allocation"]);
    assert!(described.export().size_bytes == 1 << 20 && described.export().block_status);
    let mut talk = Talk::start(&peer.socket, Config::new("b"));
    assert!(talk.export().structured_replies && talk.export().block_status);
    exercise(&mut talk, true);
    talk.end();
    // Without chunks: EXPORT_NAME of a server that knows no options, and simple replies of one that does.
    for arguments in ["--mask-handshake=0 memory 1M", "--no-sr memory 1M"] {
        let peer = kit(arguments);
        let mut talk = Talk::start(&peer.socket, Config::new(""));
        assert!(!talk.export().structured_replies && !talk.export().block_status, "{arguments}");
        talk.done(write(0, 512, false), &[5; 512]);
        assert_eq!(talk.ask(read(0, 512, false), &[]).data, [5; 512]);
        talk.end();
    }
    // What is not offered is not sent, and what is refused is told.
    let peer = kit("-r --filter=error memory 1M error=ENOSPC error-rate=100%");
    let mut talk = Talk::start(&peer.socket, Config::new(""));
    assert!(talk.session.submit(1, write(0, 512, false), &mut Vec::new()).is_err());
    assert_eq!(talk.ask(read(0, 512, false), &[]).error, Some(ErrorCode::NoSpace));
    let status = Operation::BlockStatus { offset: 0, length: 4096, one_extent: false };
    assert_eq!(talk.ask(status, &[]).error, Some(ErrorCode::NoSpace));
}

#[test]
fn qemu_nbd_answers_every_option_and_command() {
    if !programs("a peer", &["qemu-nbd"], false) {
        return;
    }
    let peer = Peer::start("qemu-nbd", |socket, image| {
        let common = [
            "--persistent",
            "--shared=8",
            "--format=raw",
            "--discard=unmap",
            "--export-name=disk",
            "--socket",
        ];
        common.map(String::from).into_iter().chain([text(socket), text(image)]).collect()
    });
    let list = Talk::start(&peer.socket, Config { goal: Goal::List, ..Config::new("") });
    assert_eq!(list.names, ["disk"]);
    let described = Talk::start(&peer.socket, Config { goal: Goal::Describe, ..Config::new("disk") });
    assert!(described.contexts.contains(&"base:allocation".to_owned()), "{:?}", described.contexts);
    let mut talk = Talk::start(&peer.socket, Config::new("disk"));
    let has_fast_zero = talk.export().flags.contains(TransmissionFlags::SEND_FAST_ZERO);
    exercise(&mut talk, has_fast_zero);
    // This one does send holes, but not to who wants no fragments.
    assert!(talk.ask(read(0, 512 * KIB, false), &[]).holes > 0);
    talk.end();
}
