//! How a trace is to be read where its format leaves a choice; every default is stated here.

use crate::Format;
use forebay_units::BlockSize;
use std::str::FromStr;

/// What the ids of oracleGeneral and LCS records stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ids {
    /// The 512-byte sector at which a request starts: offset = id x 512, length = the record's size. The default,
    /// because the block traces that are published in these formats keep their sector numbers.
    #[default]
    Sectors,
    /// The block (of the page size) at which a request starts: offset = id x page size, length = the record's size.
    Blocks,
    /// Opaque objects, each one thing: offset = id x page size, length = the object's size. Ranges of neighbouring
    /// ids may overlap, so count such a trace per request (each keyed by its first block), never per block. An id of
    /// 2^64 / page size or above, as hashes are, is mixed into that range: two of n such objects share a place with
    /// probability below n^2 / 2^53 at 4 KiB (ours).
    Objects,
}

/// Which event of blktrace and blkparse is a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockEvent {
    /// `Q`, the arrival at the block layer: what the application asked for. The default.
    #[default]
    Queue,
    /// `D`, the issue to the driver: after merging and scheduling.
    Issue,
}

/// What a read-ahead request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAhead {
    /// A read like any other.
    Read,
    /// Kept, but apart: [`crate::Operation::Other`].
    Other,
    /// Left out and counted as ignored.
    Exclude,
}

/// The unit of times that a format does not state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Nanoseconds.
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
}

impl TimeUnit {
    /// Nanoseconds per unit.
    pub const fn nanos(self) -> u64 {
        match self {
            TimeUnit::Nanoseconds => 1,
            TimeUnit::Microseconds => 1_000,
            TimeUnit::Milliseconds => 1_000_000,
            TimeUnit::Seconds => 1_000_000_000,
        }
    }
}

/// How to read a trace; [`ReadOptions::default`] detects the format and takes the defaults stated per field.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The format; detected by content where `None`.
    pub format: Option<Format>,
    /// How many malformed records are skipped and counted before one is an error; 0 unless set. What makes it
    /// impossible to find the next record (a wrong magic number, a damaged compressed stream) is always an error.
    pub skip_malformed: u64,
    /// The meaning of ids in oracleGeneral and LCS: sectors unless set. Of other formats anything else is refused.
    pub ids: Ids,
    /// The page of formats that count pages, and of [`Ids::Blocks`] and [`Ids::Objects`]; 4 KiB unless set. Whoever
    /// works with another block size and takes a page as a block sets it to that size.
    pub page_size: BlockSize,
    /// The event of blktrace and blkparse that is a request: `Q` unless set.
    pub event: BlockEvent,
    /// Read-ahead. Where `None`, blkreplay's `RA` is [`ReadAhead::Other`], because that format names it as an
    /// operation of its own, and blktrace's and blkparse's flag `A` leaves a read a read.
    pub read_ahead: Option<ReadAhead>,
    /// The unit of times in DiskSim and SSDSim (where `None`: milliseconds if the first times have a decimal point,
    /// else nanoseconds) and in fio iolog version 3 (where `None`: microseconds, as fio writes).
    pub time_unit: Option<TimeUnit>,
}

/// A text that is none of an option's values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is not a value of this option: expected {expected}")]
pub struct ParseOptionError {
    /// What was found.
    pub found: String,
    /// The values.
    pub expected: &'static str,
}

macro_rules! option_text {
    ($type:ident, $expected:literal, $($text:literal => $value:ident),+) => {
        impl FromStr for $type {
            type Err = ParseOptionError;

            fn from_str(text: &str) -> Result<$type, ParseOptionError> {
                match text {
                    $($text => Ok($type::$value),)+
                    _ => Err(ParseOptionError { found: text.to_owned(), expected: $expected }),
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self { $($type::$value => $text,)+ })
            }
        }
    };
}

option_text!(Ids, "`sectors`, `blocks` or `objects`", "sectors" => Sectors, "blocks" => Blocks, "objects" => Objects);
option_text!(BlockEvent, "`queue` or `issue`", "queue" => Queue, "issue" => Issue);
option_text!(ReadAhead, "`read`, `other` or `exclude`", "read" => Read, "other" => Other, "exclude" => Exclude);
option_text!(
    TimeUnit, "`ns`, `us`, `ms` or `s`",
    "ns" => Nanoseconds, "us" => Microseconds, "ms" => Milliseconds, "s" => Seconds
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_they_are_printed() {
        assert_eq!("objects".parse(), Ok(Ids::Objects));
        assert_eq!("issue".parse(), Ok(BlockEvent::Issue));
        assert_eq!(ReadAhead::Exclude.to_string().parse(), Ok(ReadAhead::Exclude));
        assert_eq!("us".parse::<TimeUnit>().map(TimeUnit::nanos), Ok(1_000));
        assert!("sector".parse::<Ids>().unwrap_err().to_string().contains("`sectors`"));
    }
}
