//! How a tier places: all that may be changed while it serves.

use super::{Admission, COUNT};
use forebay_units::Nanos;

/// How is placed; may be changed while it serves ([`Placement::set`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placing {
    /// Who may enter, and who leaves.
    pub admission: Admission,
    /// Counted accesses after which everything is cooled, as a multiple of the tier's chunks; 1 by default. It is cooled by one, or by a quarter of the mean count in the tier if that
    /// is more.
    pub cooling: f64,
    /// What a write counts, -1 to 1, a sixteenth at a time: 1 where the tier takes writes for the origin (less where `exclusive` finds that the array takes them as quickly); below 0 where it is a copy, and writing it costs; -0.125 by default.
    pub write_weight: f64,
    /// By how many counts a chunk must be above the one that leaves for it; 1 by default.
    pub margin: f64,
    /// What moving a chunk costs where the origin is busy, in random accesses of it, 0 to 1000; where it is idle, next to nothing. Wear may be put into it. 2.5 by default.
    pub migration_cost: f64,
    /// Whether sequential runs are left to the array; true by default.
    pub skip_sequential: bool,
    /// Whether accesses count only as much as the array's own cache would not answer them; true by default.
    pub exclusive: bool,
    /// A read that the origin answers faster took no disk; 1 ms by default.
    pub fast_latency: Nanos,
    /// Bytes per second that are moved at most, and at least; 64 and 1 MiB/s by default.
    pub bytes_per_second_max: u64,
    /// See `bytes_per_second_max`.
    pub bytes_per_second_min: u64,
    /// Chunks on their way at once at most, and as many that wait for the answer to the request that brought them about; 4 by default.
    pub moving_max: u32,
    /// Time between two looks at the threshold, at least; 2.5 s by default.
    pub window: Nanos,
}

impl Default for Placing {
    fn default() -> Placing {
        Placing {
            admission: Admission::Adaptive,
            cooling: 1.0,
            write_weight: -0.125,
            margin: 1.0,
            migration_cost: 2.5,
            skip_sequential: true,
            exclusive: true,
            fast_latency: Nanos::millis(1),
            bytes_per_second_max: 64 << 20,
            bytes_per_second_min: 1 << 20,
            moving_max: 4,
            window: Nanos::millis(2_500),
        }
    }
}

impl Placing {
    pub(super) fn margin_sixteenths(&self) -> u64 {
        (self.margin.clamp(0.0, 512.0) * COUNT as f64) as u64
    }

    pub(super) fn write_sixteenths(&self) -> i64 {
        (self.write_weight.clamp(-1.0, 1.0) * COUNT as f64) as i64
    }
}
