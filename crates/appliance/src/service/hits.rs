//! Replies to hits on their way to a client: headers, and where in the cache the bytes are, which leave from there.
//!
//! Invariant: they are delivered before the volume's machine is told anything but another read in place, so the bytes are still
//! where they were found. What the socket does not take is copied to the connection's output.

use super::Output;
use crate::volume::{Place, VolumeMachine};
use forebay_nbd::server::HeaderBytes;
use std::io::IoSlice;

/// Pieces that are sent at once (ours).
const SLICES_MAX: usize = 128;

/// Sends pieces to the client, in order; how many bytes it took, fewer than there are if it takes no more now.
pub type SendNow<'a> = &'a mut dyn FnMut(&[IoSlice<'_>]) -> usize;

#[derive(Debug)]
enum Piece {
    Header(HeaderBytes),
    Cached(Place),
}

impl Piece {
    #[inline]
    fn bytes<'a>(&'a self, machine: &'a VolumeMachine) -> &'a [u8] {
        match self {
            Piece::Header(header) => header,
            Piece::Cached(place) => machine.bytes_at(*place),
        }
    }
}

/// Whole replies, of one connection, from the cache of one volume.
#[derive(Debug, Default)]
pub(crate) struct Hits {
    pieces: Vec<Piece>,
    len: usize,
}

impl Hits {
    /// Bytes of all replies.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a reply.
    #[inline]
    pub(crate) fn push(&mut self, header: HeaderBytes, places: &[Place]) {
        self.len += header.len() + places.iter().map(|place| place.bytes()).sum::<usize>();
        self.pieces.push(Piece::Header(header));
        self.pieces.extend(places.iter().map(|place| Piece::Cached(*place)));
    }

    /// Copies all replies to `output`.
    pub(crate) fn copy_to(&mut self, machine: &VolumeMachine, output: &mut Output) {
        self.copy_rest(machine, output, 0);
    }

    /// Sends the replies, if nothing waits before them, and copies what is not taken to `output`; how many bytes were sent.
    pub(crate) fn deliver(
        &mut self,
        machine: &VolumeMachine,
        output: &mut Output,
        send: SendNow<'_>,
    ) -> usize {
        let mut sent = 0;
        if output.is_empty() {
            for pieces in self.pieces.chunks(SLICES_MAX) {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let mut wanted = 0;
                for (slice, piece) in slices.iter_mut().zip(pieces) {
                    let bytes = piece.bytes(machine);
                    wanted += bytes.len();
                    *slice = IoSlice::new(bytes);
                }
                let taken = send(&slices[..pieces.len()]);
                debug_assert!(taken <= wanted);
                sent += taken;
                if taken < wanted {
                    break;
                }
            }
        }
        self.copy_rest(machine, output, sent);
        sent
    }

    /// Copies all but the first `sent` bytes, and forgets all.
    fn copy_rest(&mut self, machine: &VolumeMachine, output: &mut Output, mut sent: usize) {
        if sent < self.len {
            output.append(|buffer| {
                for piece in &self.pieces {
                    let bytes = piece.bytes(machine);
                    let skipped = sent.min(bytes.len());
                    sent -= skipped;
                    buffer.extend_from_slice(&bytes[skipped..]);
                }
            });
        }
        self.pieces.clear();
        self.len = 0;
    }
}
