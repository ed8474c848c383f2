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
//! Servers of others answer `NBD_REP_ERR_UNSUP`, as the protocol has them do with options that they do not know.

use crate::RunId;
use crate::wire::{Reader, Truncated};

/// The cookie of a farewell. Who names a succession asks nothing with it.
pub const FAREWELL_COOKIE: u64 = u64::MAX;

/// A connection's place among those of which each takes the place of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Succession {
    /// A number that no other succession has.
    pub id: u64,
    /// Larger than those of all earlier connections of it.
    pub number: u64,
    /// A flush, or a change with FUA, was in flight on the one before. Its answer may have been lost that was sent, and the only word of lost data with it.
    pub lacks_flush: bool,
}

/// [`Succession::lacks_flush`]; the other bits mean nothing yet.
const LACKS_FLUSH: u32 = 1;

impl Succession {
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
    /// Who keeps what this run acknowledges until it is flushed: itself, or the last of those through which its origin is reached. `None` where that is a server of others.
    pub keeper: Option<RunId>,
}

impl Succeeds {
    pub(crate) const BYTES: u32 = 24;

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
}
