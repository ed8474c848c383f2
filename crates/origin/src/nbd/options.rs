//! How an origin over NBD connects, and how long it waits.

use forebay_units::Nanos;

/// How an export is used. All defaults are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdOriginOptions {
    /// Connections, 1 to 16; 4 by default. One where the server does not say that a flush on one covers all.
    pub connections: usize,
    /// Requests in flight on one connection, 1 to 65,536; 128 by default. Above it they wait for their turn.
    pub connection_requests_max: usize,
    /// Requests in flight, waiting ones included, at least 1; 1,024 by default. Above it, `EBUSY`.
    pub in_flight_max: usize,
    /// For connecting, and again for the handshake; 5 s by default.
    pub connect_timeout: Nanos,
    /// A request without an answer for so long means that the connection is lost; 30 s by default, at least 1 ms.
    pub request_timeout: Nanos,
    /// Pause before connecting again; 100 ms by default. It doubles with each failure,
    pub backoff_min: Nanos,
    /// up to this, and to a quarter of `wait_for_origin` unless that is 0; 5 s by default.
    pub backoff_max: Nanos,
    /// How long a request that was not sent, or a read that is to be sent again, waits for a connection before it
    /// completes as `Unreachable`; and what was in flight at a server of ours, before it is of unknown outcome, and a flush fails. 30 s by default, 0: not at all.
    pub wait_for_origin: Nanos,
    /// The server accepts a connection only when everything of the lost ones is done or dropped; false by default.
    pub fences_on_disconnect: bool,
    /// Acknowledged writes survive whatever interrupts a connection, so that the next flush need not fail; false by
    /// default.
    pub keeps_acknowledged_writes: bool,
}

impl NbdOriginOptions {
    /// As they are used.
    pub(super) fn within_range(self) -> NbdOriginOptions {
        let least = Nanos::millis(1);
        let backoff_min = self.backoff_min.max(least);
        // A server that is there again is found before who has just begun to wait for it gives up.
        let wait = self.wait_for_origin;
        let soon = if wait == Nanos::ZERO { self.backoff_max } else { Nanos(wait.0 / 4) };
        NbdOriginOptions {
            request_timeout: self.request_timeout.max(least),
            connect_timeout: self.connect_timeout.max(least),
            backoff_min,
            backoff_max: self.backoff_max.min(soon).max(backoff_min),
            connection_requests_max: self.connection_requests_max.clamp(1, 1 << 16),
            ..self
        }
    }
}

impl Default for NbdOriginOptions {
    fn default() -> NbdOriginOptions {
        NbdOriginOptions {
            connections: 4,
            connection_requests_max: 128,
            in_flight_max: 1024,
            connect_timeout: Nanos::secs(5),
            request_timeout: Nanos::secs(30),
            backoff_min: Nanos::millis(100),
            backoff_max: Nanos::secs(5),
            wait_for_origin: Nanos::secs(30),
            fences_on_disconnect: false,
            keeps_acknowledged_writes: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_server_is_not_slept_through() {
        let pause_max = |backoff_min, backoff_max, wait_for_origin| {
            let options =
                NbdOriginOptions { backoff_min, backoff_max, wait_for_origin, ..NbdOriginOptions::default() };
            options.within_range().backoff_max
        };
        let (short, long) = (Nanos::millis(100), Nanos::secs(5));
        assert_eq!(pause_max(short, long, Nanos::secs(30)), long);
        assert_eq!(pause_max(short, long, Nanos::secs(3)), Nanos::millis(750));
        // Never shorter than the first; nobody waits where nothing is waited for.
        assert_eq!(pause_max(short, long, Nanos::millis(80)), short);
        assert_eq!(pause_max(short, long, Nanos::ZERO), long);
        assert_eq!(pause_max(Nanos::ZERO, Nanos::ZERO, Nanos::ZERO), Nanos::millis(1));
    }
}
