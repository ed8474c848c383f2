//! Quantities that must not be mixed up: bytes, blocks, nanoseconds, ratios, and sizes as people write them; texts that must not be shown, or not as they are, errors with
//! their causes, how much is said of what others can cause, and memory that is fetched ahead.
//!
//! It has no dependencies and no knowledge of caches or volumes. Absolute positions ([`BlockIndex`]), counts and
//! byte quantities ([`Bytes`]) are different types, so that exchanging them does not compile.

mod block;
mod bytes;
mod causes;
mod hash;
mod nearest;
mod prefetch;
mod printable;
mod ratio;
mod secret;
mod size;
mod sparing;
mod time;

pub use block::{BlockIndex, BlockRange, BlockSize, BlockSizeError, ByteRange};
pub use bytes::{Bytes, ParseBytesError};
pub use causes::with_causes;
pub use hash::mix64;
pub use nearest::nearest;
pub use prefetch::prefetch;
pub use printable::{printable, printable_lines};
pub use ratio::{Ratio, RatioError};
pub use secret::Secret;
pub use size::{ParseSizeError, SizeSpec};
pub use sparing::Sparing;
pub use time::{Nanos, ParseNanosError};

/// The highest epoch that a volume's lease or its route may be given (ours). Epochs only rise, by a few with each response: one without room above it could never be followed by another.
pub const EPOCH_MAX: u64 = 1 << 62;
