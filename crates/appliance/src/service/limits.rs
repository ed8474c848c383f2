//! Maxima of a worker's service. Above each of them a connection is not read any more until replies were sent.

use forebay_units::{Bytes, Nanos};

/// Maxima per connection and per worker. The defaults are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceLimits {
    /// Requests of one connection in flight.
    pub requests_per_connection_max: usize,
    /// Replies of one connection that its client has not taken yet, before no more of its requests are parsed. One
    /// request may go above it by its own length. About what a socket takes at once: more would only leave the caches of
    /// the processor before it is sent.
    pub output_per_connection_max: Bytes,
    /// Data of one connection's requests in flight, before no more of them are parsed; one request may go above it.
    pub held_per_connection_max: Bytes,
    /// Data of requests in flight and of replies not taken yet, of all connections of a worker together, before no request
    /// that carries or asks for data is parsed. It is never passed, but by a single request when nothing else is held. The first half is for
    /// whoever comes first; of the second half, each connection has an equal share.
    pub held_per_worker_max: Bytes,
    /// Requests of one connection that are parsed before another connection's turn comes.
    pub requests_per_turn_max: usize,
    /// Longest read or write.
    pub request_bytes_max: u32,
    /// A client that takes less than 256 KiB of its replies in so long, or does not finish the payload of a write in it, is disconnected while
    /// its worker holds more than half of `held_per_worker_max`, or a client that took its replies waits for memory: who does not read, or send, must
    /// not starve who does.
    pub stalled_client_max: Nanos,
}

impl Default for ServiceLimits {
    fn default() -> ServiceLimits {
        ServiceLimits {
            requests_per_connection_max: 256,
            output_per_connection_max: Bytes::kib(256),
            held_per_connection_max: Bytes::mib(8),
            held_per_worker_max: Bytes::gib(1),
            requests_per_turn_max: 256,
            request_bytes_max: 32 << 20,
            stalled_client_max: Nanos::secs(30),
        }
    }
}

/// Whether a worker that holds `total` bytes, of `max`, takes a request of `bytes` more of a connection that holds `own`.
///
/// The first half of the memory is for whoever comes first. Of the second half each of the `connections` has an equal share, so that
/// those who fill the first, and do not take their replies, cannot keep the others out. A request that is longer than all that gets
/// its turn when nothing else is held.
pub(super) fn admits(total: usize, max: usize, connections: usize, own: usize, bytes: usize) -> bool {
    let half = max / 2;
    total == 0 || total + bytes <= half || (total + bytes <= max && own + bytes <= half / connections.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_by_hand() {
        // Of 64: the first 32 are for whoever comes first.
        assert!(admits(0, 64, 4, 0, 32) && admits(20, 64, 4, 20, 12) && !admits(20, 64, 4, 20, 13));
        // Of the other 32, each of four has 8, and nobody passes the end.
        assert!(admits(40, 64, 4, 0, 8) && !admits(40, 64, 4, 0, 9) && !admits(40, 64, 4, 5, 4));
        assert!(admits(56, 64, 4, 0, 8) && !admits(57, 64, 4, 0, 8));
        // What is longer than everything comes alone.
        assert!(admits(0, 64, 4, 0, 1000) && !admits(1, 64, 4, 0, 1000));
    }
}
