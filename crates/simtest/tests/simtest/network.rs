//! A simulated connection: bytes arrive late, in pieces of any size, in order within a direction and in no order between
//! connections; what a cut connection had under way arrives in part or not at all.

use forebay_appliance::service::SlabKey;
use forebay_nbd::server::Session;
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;

/// One direction.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    pub(crate) bytes: VecDeque<u8>,
    /// An arrival is in the queue of events.
    pub(crate) is_scheduled: bool,
    /// The sender sends nothing more.
    pub(crate) is_ended: bool,
}

impl Pipe {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn room(&self, capacity: usize) -> usize {
        capacity.saturating_sub(self.bytes.len())
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    pub(crate) fn take(&mut self, piece_max: usize, random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
        let longest = self.bytes.len().min(piece_max);
        let count = if random.random_range(0..3) == 0 { longest } else { random.random_range(1..=longest) };
        self.bytes.drain(..count).collect()
    }

    /// The wire is cut: part of what is under way still arrives.
    pub(crate) fn cut(&mut self, random: &mut Xoshiro256PlusPlus) {
        let kept = random.random_range(0..=self.bytes.len());
        self.bytes.truncate(kept);
        self.is_ended = true;
    }
}

/// The server's end.
#[derive(Debug)]
pub(crate) enum ServerEnd {
    Handshake { session: Box<Session>, input: Vec<u8>, output: Vec<u8> },
    Open { key: SlabKey, receives: bool },
    Closed,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: usize,
    pub(crate) to_server: Pipe,
    pub(crate) to_client: Pipe,
    pub(crate) server: ServerEnd,
    /// Bytes that each direction holds on the way.
    pub(crate) capacity: usize,
    pub(crate) piece_max: usize,
    pub(crate) is_cut: bool,
}
