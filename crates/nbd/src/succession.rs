//! Connections that succeed one another, so that nothing of a broken one can come late.
//!
//! Whoever loses a connection does not know what became of the changes that were in flight on it: the server may have made them, or may make them at any
//! time to come, and nothing in the protocol tells when that is over. A client of ours therefore says of each connection which succession it belongs to and which
//! place it has there, by an option ([`OptionCode::Succeed`](crate::wire::OptionCode::Succeed)) before it chooses the export. A server of ours answers which run of the export it is
//! ([`RunId`](crate::RunId)), and promises: on this connection nothing is begun before everything is over that came on earlier ones of the same succession, and nothing more is taken from those. So a change that is sent
//! again there is made after whatever became of it the first time, and before anything that its client sends when it is answered; and as long as it is the same run,
//! nothing is lost of what was acknowledged.
//!
//! Another run vouches for nothing that an earlier one acknowledged. But where the volume is on storage that nobody else can have open while it has ([`StorageId`]), an earlier run that had it is over, with all that it had
//! under way: what was in flight may be sent again there, too.
//!
//! A server that ends in order takes no more requests, answers those that it took, has everything flushed, and says so: the last thing on such a connection is a *farewell*, a simple reply of `ESHUTDOWN` with
//! [`FAREWELL_COOKIE`]. What has no answer by then was never taken, so that it may be asked of anybody, and nothing that was acknowledged can be lost any more. Of a server that ends without a farewell nothing is known.
//!
//! What is in flight when a client's process is killed is lost to it with its successions: nobody knows of it when the client is started anew, and a server may carry it out long after the new run was told
//! that it has written the same bytes. So a client that outlasts its process says with each place who it is and which run of it this is ([`Succession::of`]), and its connections take the place of all that an earlier run had.
//!
//! Servers of others answer `NBD_REP_ERR_UNSUP`, as the protocol has them do with options that they do not know.

use crate::RunId;
use crate::wire::{Reader, Truncated};

/// The cookie of a farewell. Who names a succession asks nothing with it.
pub const FAREWELL_COOKIE: u64 = u64::MAX;

/// A connection's place among those of which each takes the place of the one before.
///
/// In both numbers, from the highest bit:
///
/// | number | bits | what |
/// | --- | --- | --- |
/// | `id` | 40 | client: who connects, over all its runs |
/// | | 20 | instance: which of the origins that one run opened |
/// | | 4 | lane: which of its connections side by side |
/// | `number` | 32 | generation: which run of the client, from 1; 0 where it does not say |
/// | | 32 | attempt: counts the lane's connections |
///
/// Who says nothing of runs has an `id` of 64 random bits and generation 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Succession {
    /// A number that no other lane has, of whichever client.
    pub id: u64,
    /// Larger than those of all earlier connections of it.
    pub number: u64,
    /// A flush, or a change with FUA, was in flight on the one before. Its answer may have been lost that was sent, and the only word of lost data with it.
    pub lacks_flush: bool,
}

/// [`Succession::lacks_flush`]; the other bits mean nothing yet.
const LACKS_FLUSH: u32 = 1;

const LANE_BITS: u32 = 4;
const CLIENT_SHIFT: u32 = 24;
const GENERATION_SHIFT: u32 = 32;

impl Succession {
    /// Clients are numbered below this.
    pub const CLIENTS: u64 = 1 << (64 - CLIENT_SHIFT);
    /// Instances are numbered below this.
    pub const INSTANCES: u32 = 1 << (CLIENT_SHIFT - LANE_BITS);
    /// Lanes are numbered below this.
    pub const LANES: u32 = 1 << LANE_BITS;

    /// The first place of a lane, in a run of a client that says which one it is.
    ///
    /// # Panics
    /// Where a number is not below its maximum, or the generation is 0.
    pub fn of(client: u64, generation: u32, instance: u32, lane: u32) -> Succession {
        assert!(client < Self::CLIENTS, "client {client:#x} has more than 40 bits");
        assert!(instance < Self::INSTANCES, "instance {instance} has more than 20 bits");
        assert!(lane < Self::LANES, "lane {lane} has more than 4 bits");
        assert!(generation > 0, "a run of a client has a number");
        let id = client << CLIENT_SHIFT | u64::from(instance) << LANE_BITS | u64::from(lane);
        Succession { id, number: u64::from(generation) << GENERATION_SHIFT, lacks_flush: false }
    }

    /// The number of its client, over all its runs, where that says which run it is.
    pub fn client(self) -> Option<u64> {
        (self.generation() > 0).then_some(self.id >> CLIENT_SHIFT)
    }

    /// Which run of its client it is of; 0 where that does not say.
    pub fn generation(self) -> u32 {
        (self.number >> GENERATION_SHIFT) as u32
    }

    /// Whether a connection at this place takes the place of one at `earlier`, to the same volume: of one of its own lane that was before, and of all that an earlier run of its client had.
    ///
    /// Whoever says nothing of runs has no part in the latter: of 40 bits two that are random are the same too easily.
    pub fn takes_place_of(self, earlier: Succession) -> bool {
        if self.id == earlier.id {
            return earlier.number < self.number;
        }
        self.id >> CLIENT_SHIFT == earlier.id >> CLIENT_SHIFT && self.is_of_later_run_than(earlier)
    }

    /// Whether it is of a later run of its client than `earlier`, and takes its place.
    pub fn inherits_from(self, earlier: Succession) -> bool {
        self.takes_place_of(earlier) && self.is_of_later_run_than(earlier)
    }

    fn is_of_later_run_than(self, earlier: Succession) -> bool {
        (1..self.generation()).contains(&earlier.generation())
    }

    /// Appends the option's data: both numbers, flags, and the name of the export, of at most [`STRING_BYTES_MAX`](crate::wire::STRING_BYTES_MAX) bytes.
    pub fn encode(self, export: &str, output: &mut Vec<u8>) {
        output.extend_from_slice(&self.id.to_be_bytes());
        output.extend_from_slice(&self.number.to_be_bytes());
        let flags = if self.lacks_flush { LACKS_FLUSH } else { 0 };
        output.extend_from_slice(&flags.to_be_bytes());
        output.extend_from_slice(export.as_bytes());
    }

    /// From the option's data; with it the name, as sent.
    ///
    /// # Errors
    /// `Truncated` where there is less than numbers and flags.
    pub fn decode(data: &[u8]) -> Result<(Succession, &[u8]), Truncated> {
        let mut reader = Reader::new(data);
        let (id, number, flags) = (reader.u64()?, reader.u64()?, reader.u32()?);
        Ok((Succession { id, number, lacks_flush: flags & LACKS_FLUSH != 0 }, reader.take_rest()))
    }
}

/// A number for storage that one at a time has open, as one start of one system knows it: who says the same, one after the other, has the same storage, and the earlier one has let go of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageId(pub u64);

/// Who lets connections succeed one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Succeeds {
    /// The run of the export.
    pub run: RunId,
    /// What it is on, if nobody else can have that open meanwhile.
    pub storage: Option<StorageId>,
    /// Who keeps what this run acknowledges until it is flushed: itself, or the last of ours through which its origin is reached. `None` where that one does not say so.
    pub keeper: Option<RunId>,
}

impl Succeeds {
    pub(crate) const BYTES: u32 = 24;

    /// Whether everything that was in flight on a connection of which `then` was promised is over before anything is begun on one of which this is: it is the same run, or another one on the same
    /// storage.
    pub fn comes_after(&self, then: &Succeeds) -> bool {
        self.run == then.run || (self.storage.is_some() && self.storage == then.storage)
    }

    /// Appends the data of the reply: all three numbers; 0 for none.
    pub(crate) fn encode(self, output: &mut Vec<u8>) {
        output.extend_from_slice(&self.run.0.to_be_bytes());
        output.extend_from_slice(&self.storage.map_or(0, |storage| storage.0).to_be_bytes());
        output.extend_from_slice(&self.keeper.map_or(0, |keeper| keeper.0).to_be_bytes());
    }

    /// From the data of the reply.
    pub(crate) fn decode(data: &[u8]) -> Result<Succeeds, Truncated> {
        let mut reader = Reader::new(data);
        let (run, storage, keeper) = (RunId(reader.u64()?), reader.u64()?, reader.u64()?);
        let storage = (storage != 0).then_some(StorageId(storage));
        let keeper = (keeper != 0).then_some(RunId(keeper));
        match reader.left() {
            0 => Ok(Succeeds { run, storage, keeper }),
            left => Err(Truncated { needed: 0, left }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let mut data = Vec::new();
        let succession = Succession { id: 0x0102, number: u64::MAX, lacks_flush: true };
        succession.encode("db@7", &mut data);
        assert_eq!(data, *b"\0\0\0\0\0\0\x01\x02\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\x01db@7");
        assert_eq!(Succession::decode(&data), Ok((succession, &b"db@7"[..])));
        data[16..20].copy_from_slice(&[0xff, 0xff, 0xff, 0xfe]);
        let lacks_none = Succession { lacks_flush: false, ..succession };
        assert_eq!(Succession::decode(&data[..20]), Ok((lacks_none, &b""[..])));
        assert!(Succession::decode(&data[..19]).is_err());
    }

    fn later(place: Succession, attempts: u64) -> Succession {
        Succession { number: place.number + attempts, ..place }
    }

    #[test]
    fn a_place_says_who_connects_and_in_which_run() {
        let place = Succession::of(0xab_cdef_0123, 0x0405_0607, 0xfedcb, 0xa);
        assert_eq!((place.id, place.number), (0xabcd_ef01_23fe_dcba, 0x0405_0607_0000_0000));
        assert_eq!((place.generation(), later(place, 9).generation()), (0x0405_0607, 0x0405_0607));
    }

    #[test]
    fn a_connection_takes_the_place_of_its_lanes_earlier_ones_and_of_all_of_earlier_runs() {
        let first = Succession::of(7, 1, 0, 0);
        assert!(later(first, 2).takes_place_of(later(first, 1)));
        assert!(!later(first, 1).takes_place_of(later(first, 1)));
        assert!(!later(first, 1).takes_place_of(later(first, 2)));
        // Neither lanes nor origins of one run.
        for other in [Succession::of(7, 1, 0, 1), Succession::of(7, 1, 1, 0)] {
            assert!(!later(other, 1).takes_place_of(first) && !later(first, 1).takes_place_of(other));
            // Of the next run each takes the place of each, and none the other way round.
            for next in [Succession::of(7, 2, 0, 0), Succession::of(7, 2, 5, 3)] {
                assert!(next.takes_place_of(later(other, 99)) && next.inherits_from(other));
                assert!(!later(other, 99).takes_place_of(next));
            }
        }
        assert!(!Succession::of(8, 2, 0, 0).takes_place_of(first), "another client");
        assert!(!later(first, 1).inherits_from(first), "the same run");
    }

    #[test]
    fn who_says_nothing_of_runs_is_succeeded_by_its_own_lane_alone() {
        let random = |id, number| Succession { id, number, lacks_flush: false };
        let of_a_client = Succession::of(7, 2, 0, 0);
        let alike = random(of_a_client.id + 1, 3);
        assert!(!of_a_client.takes_place_of(alike) && !alike.takes_place_of(of_a_client));
        assert!(random(alike.id, 4).takes_place_of(alike) && !random(alike.id, 4).inherits_from(alike));
        assert!(!random(alike.id + 1, 4).takes_place_of(alike));
    }
}
