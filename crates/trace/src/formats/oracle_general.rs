//! libCacheSim's oracleGeneral: packed little-endian records of 24 bytes, usually in zstd.
//!
//! | offset | type | field |
//! | --- | --- | --- |
//! | 0 | u32 | time in seconds |
//! | 4 | u64 | object id |
//! | 12 | u32 | object size in bytes |
//! | 16 | i64 | index of the next request to the object, -1 or 2^63 - 1 for never; not used by us |
//!
//! There is no operation: every request is a read, as a cache simulator takes it. Ids are read as
//! [`crate::Ids`] says. Source: libCacheSim, `traceReader/customizedReader/oracle/oracleGeneralBin.h`.

use crate::error::Bad;
use crate::formats::{RecordParser, SECOND, each_record, le};
use crate::state::{State, request};
use crate::{Ids, Operation, ReadOptions, Request, ThreadNumber, VolumeIndex};
use forebay_units::{Nanos, mix64};

/// Turns ids into offsets as the options say.
#[derive(Clone, Copy)]
pub(crate) struct IdScale {
    ids: Ids,
    shift: u32,
}

impl IdScale {
    pub(crate) fn new(options: &ReadOptions) -> IdScale {
        let shift = match options.ids {
            Ids::Sectors => 9,
            Ids::Blocks | Ids::Objects => options.page_size.shift(),
        };
        IdScale { ids: options.ids, shift }
    }

    /// The offset of the object `id`.
    #[inline]
    pub(crate) fn offset(self, id: u64) -> Result<u64, Bad> {
        if id >> (64 - self.shift) == 0 {
            return Ok(id << self.shift);
        }
        if self.ids == Ids::Objects {
            return Ok(mix64(id) >> self.shift << self.shift);
        }
        Err(self.too_large(id))
    }

    #[cold]
    fn too_large(self, id: u64) -> Bad {
        let unit = if self.ids == Ids::Sectors { "sector" } else { "block" };
        Bad::new(
            format!("`{id}` as object id"),
            format!(
                "the number of a {unit}, below 2^{}; use `--ids objects` if ids are opaque",
                64 - self.shift
            ),
        )
    }
}

pub(crate) struct OracleGeneral {
    stem: String,
    scale: IdScale,
    volume: Option<VolumeIndex>,
}

impl OracleGeneral {
    pub(crate) fn new(stem: String, options: &ReadOptions) -> OracleGeneral {
        OracleGeneral { stem, scale: IdScale::new(options), volume: None }
    }
}

impl RecordParser for OracleGeneral {
    const BYTES: usize = 24;
    const NAME: &'static str = "an oracleGeneral record";

    fn parse(&mut self, bytes: &[u8], state: &mut State, out: &mut Vec<Request>) -> Result<(), (usize, Bad)> {
        let volume = match self.volume {
            Some(volume) => volume,
            None => *self.volume.insert(state.volumes.index_of(&self.stem).map_err(|bad| (0, bad))?),
        };
        // The fast path takes every record and looks only at the end whether an id was too large to be shifted and
        // given a size without overflow; then the records are taken again, one by one.
        let begin = out.len();
        let (shift, base) = (self.scale.shift, state.base);
        let mut all_ids = 0;
        let mut before_start = 0;
        out.extend(bytes.chunks_exact(Self::BYTES).map(|record| {
            let record: &[u8; 24] = record.try_into().expect("chunks have the size asked for");
            let id = le!(u64, record, 4);
            let time = u64::from(le!(u32, record, 0)) * SECOND;
            all_ids |= id;
            before_start += u64::from(time < base);
            Request {
                time: Nanos(time.saturating_sub(base)),
                offset: id << shift,
                length: u64::from(le!(u32, record, 12)),
                latency: Nanos::MAX,
                thread: ThreadNumber::UNKNOWN,
                volume,
                operation: Operation::Read,
            }
        }));
        if all_ids >> (63 - shift) == 0 {
            if before_start > 0 {
                state.before_start += before_start;
                let times =
                    bytes.chunks_exact(Self::BYTES).map(|record| u64::from(le!(u32, record, 0)) * SECOND);
                state.early_by = times.map(|time| base.saturating_sub(time)).fold(state.early_by, u64::max);
            }
            return Ok(());
        }
        out.truncate(begin);
        each_record::<24>(bytes, out, |record| {
            let time = state.since_start(u64::from(le!(u32, record, 0)) * SECOND);
            let offset = self.scale.offset(le!(u64, record, 4))?;
            request(time, volume, Operation::Read, offset, u64::from(le!(u32, record, 12)))
        })
    }
}
