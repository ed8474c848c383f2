//! Bytes from clients: parsed, and served as far as the limits allow.

use super::connection::{Closing, STATUS_BYTES_MAX};
use super::limits::admits;
use super::{SendNow, Service, mark_dirty, touch};
use crate::slab::SlabKey;
use crate::volume::{InPlaceOutcome, RequestTag, VolumeMachine};
use forebay_nbd::ExportInfo;
use forebay_nbd::server::{Disconnect, Event, Payload, Session};
use forebay_nbd::wire::{Command, REQUEST_BYTES};
use forebay_units::{ByteRange, Nanos};

/// Reads that are looked ahead to at a time.
const AHEAD_MAX: usize = 32;

/// What the reads at the front of `input` will look for is fetched from memory, if they are several; how many bytes of `input` need
/// not be looked at again.
#[inline]
fn look_ahead(session: &Session, machine: &VolumeMachine, input: &[u8]) -> usize {
    if input.len() < 2 * REQUEST_BYTES {
        return input.len();
    }
    let mut ranges = [ByteRange::new(0, 0); AHEAD_MAX];
    let count = session.upcoming_reads(input, &mut ranges);
    if count > 1 {
        machine.anticipate(&ranges[..count]);
    }
    count.max(1) * REQUEST_BYTES
}

impl Service {
    /// Bytes came from a client; how many requests were parsed. All replies go to [`Service::output`].
    pub fn received(&mut self, now: Nanos, key: SlabKey, bytes: &[u8]) -> usize {
        self.received_sending(now, key, bytes, &mut |_| 0)
    }

    /// [`Service::received`]; replies to hits are sent at once by `send`, from where they are cached, if nothing waits before them.
    pub fn received_sending(&mut self, now: Nanos, key: SlabKey, bytes: &[u8], send: SendNow<'_>) -> usize {
        let Some(connection) = self.connections.get_mut(key) else { return 0 };
        if connection.input.is_empty() {
            let (consumed, requests) = self.parse(now, key, bytes, send);
            if let Some(connection) = self.connections.get_mut(key) {
                connection.input.extend_from_slice(&bytes[consumed..]);
            }
            requests
        } else {
            connection.input.extend_from_slice(bytes);
            self.resume_sending(now, key, send)
        }
    }

    /// Parses what is left of earlier input; how many requests were parsed. All replies go to [`Service::output`].
    pub fn resume(&mut self, now: Nanos, key: SlabKey) -> usize {
        self.resume_sending(now, key, &mut |_| 0)
    }

    /// [`Service::resume`], with `send` as in [`Service::received_sending`].
    pub fn resume_sending(&mut self, now: Nanos, key: SlabKey, send: SendNow<'_>) -> usize {
        let Some(connection) = self.connections.get_mut(key) else { return 0 };
        let mut input = std::mem::take(&mut connection.input);
        let (consumed, requests) = self.parse(now, key, &input, send);
        if let Some(connection) = self.connections.get_mut(key) {
            if consumed == input.len() {
                input.clear();
            } else {
                input.drain(..consumed);
            }
            connection.input = input;
        }
        requests
    }

    /// Parses and serves requests until the input is used up or a limit is reached: (bytes consumed, requests).
    fn parse(&mut self, now: Nanos, key: SlabKey, input: &[u8], send: SendNow<'_>) -> (usize, usize) {
        let Service { limits, connections, volumes, pending, dirty, touched, held_bytes, refusals, .. } =
            self;
        let clients = connections.len();
        let (hits, places) = (&mut self.hits, &mut self.scratch_places);
        let Some(connection) = connections.get_mut(key) else { return (input.len(), 0) };
        let Some(volume) = volumes.get_mut(connection.volume) else { return (input.len(), 0) };
        if connection.awaits > 0 {
            connection.has_leftover = true;
            return (0, 0);
        }
        let output_before = connection.output.len();
        volume.machine.asked_by(connection.client);
        connection.has_leftover = false;
        connection.wants = 0;
        let (mut consumed, mut requests, mut ahead) = (0, 0, 0);
        while connection.closing.is_none() {
            if requests >= limits.requests_per_turn_max {
                connection.has_leftover = consumed < input.len();
                break;
            }
            // A payload that was begun is taken to its end: what it will hold is counted already.
            if connection.receiving.is_none() {
                let total = *held_bytes + connection.output.len() - output_before + hits.len();
                let max = limits.held_per_worker_max.0 as usize;
                // Where any request would do, this one need not be looked at twice.
                let wants = match total + limits.request_bytes_max as usize <= max / 2 {
                    true => 0,
                    false => {
                        let next =
                            connection.session.next_request_bytes(&input[consumed..], STATUS_BYTES_MAX);
                        next.unwrap_or(0) as usize
                    }
                };
                let own = connection.holds() + hits.len();
                let room = volume.machine.has_room() && admits(total, max, clients, own, wants);
                if !room || !connection.has_room(limits, hits.len()) {
                    connection.has_leftover = consumed < input.len();
                    connection.wants = wants;
                    break;
                }
            }
            if consumed >= ahead {
                ahead = consumed + look_ahead(&connection.session, &volume.machine, &input[consumed..]);
            }
            let mut refused = Vec::new();
            let parsed = match connection.session.receive(&input[consumed..], &NoExports, &mut refused) {
                Ok(parsed) => parsed,
                Err(error) => {
                    refusals.tell(now, None, "client breaks the protocol; disconnected", Some(&error));
                    connection.closing = Some(Closing::Now);
                    break;
                }
            };
            consumed += parsed.consumed;
            if let Event::Request { request, payload: Payload::None } = &parsed.event
                && request.command == Command::Read
            {
                places.clear();
                let outcome = volume.machine.read_in_place(now, request.range, places);
                if outcome == InPlaceOutcome::Served {
                    requests += 1;
                    let header = connection.replies.read_header(request);
                    hits.push(header, places);
                    continue;
                }
                hits.copy_to(&volume.machine, &mut connection.output);
                let tag = RequestTag(pending.next_key().0);
                requests += 1;
                match outcome {
                    InPlaceOutcome::Refused(errno) => connection.refuse(request.cookie, errno),
                    InPlaceOutcome::Missed(missed) => {
                        volume.machine.read_missed(now, tag, request.range, missed, places);
                        connection.wait(key, request, 0, pending, held_bytes);
                    }
                    InPlaceOutcome::Served => unreachable!("handled above"),
                }
                continue;
            }
            if parsed.event == Event::NeedMore {
                break;
            }
            // The machine may be told something else now, and replies keep their order.
            hits.copy_to(&volume.machine, &mut connection.output);
            let request = match parsed.event {
                Event::Request { request, payload: Payload::Pending { bytes } } => {
                    let data = Vec::with_capacity(bytes as usize);
                    *held_bytes += data.capacity();
                    connection.receiving = Some((request, data));
                    connection.receiving_since = now;
                    continue;
                }
                Event::Request { request, payload: Payload::Whole(data) } => (request, data.to_vec()),
                Event::Request { request, payload: Payload::None } => (request, Vec::new()),
                Event::PayloadPart { bytes, remaining } => {
                    let (_, data) =
                        connection.receiving.as_mut().expect("a part follows the request that announced it");
                    data.extend_from_slice(bytes);
                    if remaining > 0 {
                        continue;
                    }
                    let (request, data) = connection.receiving.take().expect("looked at above");
                    *held_bytes -= data.capacity();
                    (request, data)
                }
                Event::Refused { code, reason, .. } => {
                    tracing::debug!(%code, %reason, "request refused");
                    connection.output.append(|output| output.extend_from_slice(&refused));
                    requests += 1;
                    continue;
                }
                Event::Disconnect(how) => {
                    connection.has_taken_leave = how == Disconnect::Requested;
                    connection.closing = Some(Closing::InOrder(how));
                    break;
                }
                Event::NeedMore
                | Event::Negotiated
                | Event::ExportRefused { .. }
                | Event::UpgradeTls
                | Event::ExportChosen(_) => {
                    unreachable!(
                        "handled above, or part of the handshake, which is over before a connection comes here"
                    )
                }
            };
            requests += 1;
            let (request, data) = request;
            let waits = connection.serve(now, pending.next_key(), volume, &request, data);
            if waits {
                connection.wait(key, &request, volume.writers.covers(), pending, held_bytes);
            }
        }
        hits.deliver(&volume.machine, &mut connection.output, send);
        *held_bytes += connection.output.len() - output_before;
        connection.note_output(now, output_before);
        let volume_key = connection.volume;
        touch(volumes, touched, volume_key);
        mark_dirty(connections, dirty, key);
        (consumed, requests)
    }
}

/// After the handshake nobody asks for exports.
struct NoExports;

impl forebay_nbd::server::Exports for NoExports {
    fn find(&self, _: &str) -> Option<ExportInfo> {
        None
    }

    fn list(&self, _: &mut dyn FnMut(&str, &str)) {}
}
