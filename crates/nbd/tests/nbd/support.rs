//! Owners for both sessions, with a volume of bytes in memory; every fragment size is up to the test.

use forebay_nbd::client;
use forebay_nbd::server::{self, Payload, ReplyFormat, Request};
use forebay_nbd::wire::{AllocationFlags, Command, ErrorCode, Extent};
use forebay_nbd::{BlockSizes, ExportInfo};
use forebay_units::ByteRange;
use std::collections::BTreeMap;

/// An export that offers everything.
pub(crate) fn everything(name: &str, size_bytes: u64) -> ExportInfo {
    ExportInfo {
        description: format!("all of {name}"),
        trim: true,
        write_zeroes: true,
        fast_zero: true,
        cache: true,
        block_status: true,
        multi_conn: true,
        rotational: true,
        block_sizes: BlockSizes { min: 1, preferred: 4096, max: 1 << 25 },
        ..ExportInfo::new(name, size_bytes)
    }
}

/// A server that serves one volume under all its names.
pub(crate) struct ServerEnd {
    pub(crate) session: server::Session,
    pub(crate) exports: Vec<ExportInfo>,
    pub(crate) volume: Vec<u8>,
    pub(crate) output: Vec<u8>,
    pub(crate) output_max: usize,
    /// Every event, payloads put together, for comparison between fragmentations.
    pub(crate) log: Vec<String>,
    pub(crate) closed: bool,
    held: Vec<u8>,
    pending: Option<(Request, Vec<u8>)>,
}

impl ServerEnd {
    pub(crate) fn new(config: server::Config, exports: Vec<ExportInfo>, volume: Vec<u8>) -> ServerEnd {
        let mut output = Vec::new();
        let session = server::Session::new(config, &mut output);
        let (held, log) = (Vec::new(), Vec::new());
        ServerEnd { session, exports, volume, output, output_max: 0, log, closed: false, held, pending: None }
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<(), server::ProtocolError> {
        let mut held = std::mem::take(&mut self.held);
        held.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let before = self.output.len();
            let result = self.session.receive(&held[at..], &self.exports, &mut self.output);
            self.output_max = self.output_max.max(self.output.len() - before);
            let parsed = result.inspect_err(|error| self.log.push(format!("{error}")))?;
            assert!(parsed.consumed <= held.len() - at);
            at += parsed.consumed;
            match parsed.event {
                server::Event::NeedMore => break,
                server::Event::Request { request, payload: Payload::Pending { bytes } } => {
                    self.pending = Some((request, Vec::with_capacity(bytes as usize)));
                }
                server::Event::PayloadPart { bytes, remaining } => {
                    let (request, mut data) = self.pending.take().expect("a part follows its request");
                    data.extend_from_slice(bytes);
                    if remaining == 0 {
                        self.log.push(format!("{request:?} {data:?}"));
                        self.act(request, &data);
                    } else {
                        self.pending = Some((request, data));
                    }
                }
                server::Event::Request { request, payload } => {
                    let data = if let Payload::Whole(data) = payload { data } else { &[] };
                    self.log.push(format!("{request:?} {data:?}"));
                    self.act(request, data);
                }
                server::Event::UpgradeTls => {
                    self.log.push("tls".into());
                    self.session.tls_established();
                }
                event @ server::Event::Disconnect(_) => {
                    if !self.closed {
                        self.log.push(format!("{event:?}"));
                    }
                    self.closed = true;
                    break;
                }
                event => self.log.push(format!("{event:?}")),
            }
        }
        // No message that must be whole is longer than the session says.
        assert!(held.len() - at <= self.session.receive_bytes_min());
        self.held = held.split_off(at);
        Ok(())
    }

    /// Receives payload bytes past the session, as from a socket straight into the request's buffer.
    pub(crate) fn receive_aside(&mut self, bytes: &[u8]) {
        let (_, data) = self.pending.as_mut().expect("a payload is pending");
        data.extend_from_slice(bytes);
        self.session.payload_received(bytes.len() as u32);
    }

    fn act(&mut self, request: Request, data: &[u8]) {
        let replies = self.session.replies();
        let output = &mut self.output;
        // Sessions under mutation may have agreed on a larger export than there are bytes.
        let range = request.range.offset as usize..request.range.end() as usize;
        if range.end > self.volume.len() {
            return replies.error(request.cookie, ErrorCode::Io, "the medium is smaller", output);
        }
        let bytes = &mut self.volume[range];
        match request.command {
            Command::Read if replies.format() == ReplyFormat::Structured && !request.dont_fragment() => {
                // Backwards in pieces of 512 bytes, zeroes as holes: a client must put them together.
                let pieces: Vec<_> = bytes.chunks(512).enumerate().collect();
                for (index, piece) in pieces.into_iter().rev() {
                    let range = ByteRange::new(request.range.offset + index as u64 * 512, piece.len() as u64);
                    let last = index == 0 && range.offset.is_multiple_of(2);
                    if piece.iter().all(|byte| *byte == 0) {
                        replies.hole_chunk(request.cookie, range, last, output);
                    } else {
                        output.extend_from_slice(&replies.data_chunk_header(request.cookie, range, last));
                        output.extend_from_slice(piece);
                    }
                    if index == 0 && !last {
                        replies.done_chunk(request.cookie, output);
                    }
                }
            }
            Command::Read => {
                output.extend_from_slice(&replies.read_header(&request));
                output.extend_from_slice(bytes);
            }
            Command::BlockStatus => {
                let mut extents: Vec<Extent> = Vec::new();
                for byte in bytes.iter() {
                    let flags = AllocationFlags::NONE.with_if(*byte == 0, AllocationFlags::ZERO);
                    match extents.last_mut() {
                        Some(extent) if extent.flags == flags => extent.length += 1,
                        _ => extents.push(Extent { length: 1, flags }),
                    }
                }
                extents.truncate(if request.one_extent() { 1 } else { usize::MAX });
                let extents = extents.into_iter();
                replies.block_status(request.cookie, server::CONTEXT_ID_ALLOCATION, extents, output);
            }
            _ => {
                match request.command {
                    Command::Write => bytes.copy_from_slice(data),
                    Command::WriteZeroes | Command::Trim => bytes.fill(0),
                    _ => {}
                }
                replies.success(&request, output);
            }
        }
    }
}

/// A client that submits its operations, numbered from 0, as soon as the export is open.
pub(crate) struct ClientEnd {
    pub(crate) session: client::Session,
    pub(crate) output: Vec<u8>,
    pub(crate) operations: Vec<(client::Operation, Vec<u8>)>,
    pub(crate) export: Option<client::Export>,
    pub(crate) listed: Vec<(String, String)>,
    pub(crate) contexts: Vec<String>,
    pub(crate) described: Option<client::Export>,
    pub(crate) data: BTreeMap<u64, Vec<(u64, u8)>>,
    pub(crate) extents: BTreeMap<u64, Vec<Extent>>,
    pub(crate) done: BTreeMap<u64, Result<(), client::ReplyError>>,
    pub(crate) farewell: bool,
    pub(crate) closed: bool,
    held: Vec<u8>,
}

impl ClientEnd {
    pub(crate) fn new(config: client::Config, operations: Vec<(client::Operation, Vec<u8>)>) -> ClientEnd {
        ClientEnd {
            session: client::Session::new(config),
            output: Vec::new(),
            operations,
            export: None,
            listed: Vec::new(),
            contexts: Vec::new(),
            described: None,
            data: BTreeMap::new(),
            extents: BTreeMap::new(),
            done: BTreeMap::new(),
            farewell: false,
            closed: false,
            held: Vec::new(),
        }
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<(), client::ProtocolError> {
        let mut held = std::mem::take(&mut self.held);
        held.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let parsed = self.session.receive(&held[at..], &mut self.output)?;
            assert!(parsed.consumed <= held.len() - at);
            at += parsed.consumed;
            match parsed.event {
                client::Event::NeedMore => break,
                client::Event::Progress => {}
                client::Event::UpgradeTls => self.session.tls_established(&mut self.output),
                client::Event::Listed { name, description } => self.listed.push((name, description)),
                client::Event::Context { name } => self.contexts.push(name),
                client::Event::Described(export) => self.described = Some(export),
                client::Event::Ready(export) => {
                    self.export = Some(export);
                    for (cookie, (operation, data)) in self.operations.iter().enumerate() {
                        // What the server does not offer is not sent; the test compares the rest.
                        if self.session.submit(cookie as u64, *operation, &mut self.output).is_ok() {
                            self.output.extend_from_slice(data);
                        }
                    }
                }
                client::Event::Data { cookie, offset, bytes } => {
                    let place = (offset..).zip(bytes.iter().copied());
                    self.data.entry(cookie).or_default().extend(place);
                }
                client::Event::Hole { cookie, range } => {
                    if range.length <= 1 << 20 {
                        let zeroes = (range.offset..range.end()).map(|offset| (offset, 0));
                        self.data.entry(cookie).or_default().extend(zeroes);
                    }
                }
                client::Event::Extents { cookie, extents } => {
                    self.extents.entry(cookie).or_default().extend(extents);
                }
                client::Event::Done { cookie, result } => {
                    assert!(self.done.insert(cookie, result).is_none(), "{cookie} was completed twice");
                }
                client::Event::Farewell => self.farewell = true,
                client::Event::Closed => {
                    self.closed = true;
                    break;
                }
            }
        }
        assert!(held.len() - at <= self.session.receive_bytes_min());
        self.held = held.split_off(at);
        Ok(())
    }

    /// The bytes of a completed read, in order.
    pub(crate) fn bytes_of(&self, cookie: u64) -> Vec<u8> {
        let mut data = self.data.get(&cookie).cloned().unwrap_or_default();
        data.sort_unstable_by_key(|(offset, _)| *offset);
        data.into_iter().map(|(_, byte)| byte).collect()
    }
}

/// Cuts bytes into pieces of the given sizes, over and over.
pub(crate) fn pieces<'a>(mut bytes: &'a [u8], sizes: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut sizes = sizes.iter().cycle();
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let size = sizes.next().copied().unwrap_or(usize::MAX).clamp(1, bytes.len());
        let (piece, rest) = bytes.split_at(size);
        bytes = rest;
        Some(piece)
    })
}

/// Everything that either side said.
#[derive(Default)]
pub(crate) struct Transcript {
    pub(crate) from_client: Vec<u8>,
    pub(crate) from_server: Vec<u8>,
}

/// Lets both talk until neither has anything to say.
pub(crate) fn converse(server: &mut ServerEnd, client: &mut ClientEnd, sizes: &[usize]) -> Transcript {
    let mut transcript = Transcript::default();
    loop {
        let to_client = std::mem::take(&mut server.output);
        transcript.from_server.extend_from_slice(&to_client);
        for piece in pieces(&to_client, sizes) {
            client.receive(piece).expect("our server keeps the protocol");
        }
        let to_server = std::mem::take(&mut client.output);
        transcript.from_client.extend_from_slice(&to_server);
        for piece in pieces(&to_server, sizes) {
            server.receive(piece).expect("our client keeps the protocol");
        }
        if server.output.is_empty() && client.output.is_empty() {
            return transcript;
        }
    }
}
