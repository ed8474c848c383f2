//! What an origin says about itself: plain numbers that only grow, so that two of them describe the time between.

use forebay_units::Nanos;

/// Whether an origin can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OriginState {
    /// It answers, as far as is known.
    #[default]
    Up,
    /// It, or what was behind the end of a file that got shorter, cannot be reached now; it is being tried again.
    Down {
        /// Why, in the words of the last attempt.
        reason: String,
    },
    /// It must not be used any more, as when it came back with another size.
    Failed {
        /// Why.
        reason: String,
    },
}

/// Counters of one origin, or of a stack of layers seen from the top.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginStatistics {
    /// Whether it can be used.
    pub state: OriginState,
    /// What will be lost of it, or may be, though it can be used, as an error message says it.
    pub danger: Option<String>,
    /// Requests submitted, those refused left out.
    pub requests: u64,
    /// Requests completed with an error, injected ones included.
    pub errors: u64,
    /// Requests answered with `EBUSY` because a queue was at its maximum.
    pub refused: u64,
    /// Requests submitted and not completed.
    pub in_flight: u64,
    /// For how long the oldest of them has had no answer, over all connections that it was asked on; zero where there is none, or the origin does not tell: one over NBD does.
    pub oldest_in_flight: Nanos,
    /// Connections made again after a loss.
    pub reconnects: u64,
    /// Reads, and questions about block status, sent again after a loss.
    pub reads_sent_again: u64,
    /// Changes sent again behind the loss of a connection, to a server that lets another one succeed it.
    pub changes_sent_again: u64,
    /// Writes (trims and zeroes too) whose outcome is unknown and that nobody has settled.
    pub in_doubt: u64,
    /// The device beneath, where there is an emulated one.
    pub device: Option<DeviceStatistics>,
}

/// Counters of an emulated disk group, shared by all volumes on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStatistics {
    /// The instant of the observation, since the group was started.
    pub at: Nanos,
    /// Spindles.
    pub spindles: u32,
    /// Time in which spindles were busy, summed over spindles: utilisation is its growth over `spindles` times that of `at`.
    pub busy: Nanos,
    /// Requests in the group now.
    pub outstanding: u64,
    /// Requests completed.
    pub completed: u64,
    /// Completions that came more than 1 ms after the modelled instant: the machine was too busy to keep time.
    pub late: u64,
    /// The latest completion, as time after its modelled instant.
    pub lateness_max: Nanos,
    /// Lateness summed over completions.
    pub lateness_total: Nanos,
}
