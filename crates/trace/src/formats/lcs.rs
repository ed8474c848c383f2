//! libCacheSim's records with operations: oracleGeneralOpNS and LCS.
//!
//! All integers are little-endian. oracleGeneralOpNS has 27 bytes: time in seconds u32 at 0, object id u64 at 4, size
//! u32 at 12, operation u8 at 16, name space u16 at 17, next access i64 at 19.
//!
//! LCS starts with a header of 8,192 bytes: magic number 0x123456789abcdef0 as u64, version as u64, statistics, and
//! the magic number again in the last 8 bytes. Then records:
//!
//! | version | bytes | fields |
//! | --- | --- | --- |
//! | 1 | 24 | those of oracleGeneral |
//! | 2 | 28 | u32 time, u64 id, u32 size, u32 operation (low 8 bits) and tenant (24 bits), i64 next |
//! | 3 | 36 | u32 time, u64 id, i64 size, u32 operation and tenant, u32 ttl, i64 next |
//! | 4 to 8 | 40, 44, 52, 68, 100 | version 3 and 1, 2, 4, 8, 16 features of u32 |
//!
//! Name spaces and tenants are volumes, named `ns<number>` and `tenant<number>`; version 1 has one, named after the
//! source. Operations are libCacheSim's: none (0), gets and read are reads, delete is a discard, what stores is a
//! write. Ids are read as [`crate::Ids`] says. Source: libCacheSim, `customizedReader/lcs.h` and `enum.h`.

use crate::detect::LCS_MAGIC;
use crate::error::{Bad, Position, TraceError};
use crate::formats::oracle_general::{IdScale, OracleGeneral};
use crate::formats::{Decoder, RecordParser, Records, SECOND, each_record, le};
use crate::input::Input;
use crate::state::{NumberedVolumes, State, request};
use crate::{Operation, ReadOptions, Request};

/// The header's length.
const HEADER_BYTES: usize = 8192;

/// libCacheSim's operation as ours.
fn operation(code: u8) -> Result<Operation, Bad> {
    match code {
        // No operation (what converters write that know none), get, gets, read.
        0..=2 | 12 => Ok(Operation::Read),
        // Set, add, cas, replace, append, prepend, incr, decr, write, update.
        3..=8 | 10 | 11 | 13 | 14 => Ok(Operation::Write),
        9 => Ok(Operation::Discard),
        255 => Ok(Operation::Other),
        _ => Err(Bad::new(format!("`{code}` as operation"), "an operation from 0 to 14, or 255")),
    }
}

pub(crate) struct OpNs {
    scale: IdScale,
    volumes: NumberedVolumes,
}

impl OpNs {
    pub(crate) fn new(options: &ReadOptions) -> OpNs {
        OpNs { scale: IdScale::new(options), volumes: NumberedVolumes::new() }
    }
}

impl RecordParser for OpNs {
    const BYTES: usize = 27;
    const NAME: &'static str = "an oracleGeneralOpNS record";

    fn parse(&mut self, bytes: &[u8], state: &mut State, out: &mut Vec<Request>) -> Result<(), (usize, Bad)> {
        each_record::<27>(bytes, out, |record| {
            let operation = operation(record[16])?;
            let offset = self.scale.offset(le!(u64, record, 4))?;
            let space = u64::from(le!(u16, record, 17));
            let volume = self.volumes.index_of(space, &mut state.volumes, |space| format!("ns{space}"))?;
            let time = state.since_start(u64::from(le!(u32, record, 0)) * SECOND);
            request(time, volume, operation, offset, u64::from(le!(u32, record, 12)))
        })
    }
}

/// LCS from version 2 on; `BYTES` is the record's length.
struct Tenants<const BYTES: usize> {
    scale: IdScale,
    volumes: NumberedVolumes,
}

impl<const BYTES: usize> RecordParser for Tenants<BYTES> {
    const BYTES: usize = BYTES;
    const NAME: &'static str = "an LCS record";

    fn parse(&mut self, bytes: &[u8], state: &mut State, out: &mut Vec<Request>) -> Result<(), (usize, Bad)> {
        each_record::<BYTES>(bytes, out, |record| {
            let (size, operation_and_tenant) = if BYTES == 28 {
                (u64::from(le!(u32, record, 12)), le!(u32, record, 16))
            } else {
                let size = le!(i64, record, 12);
                let size = u64::try_from(size).map_err(|_| {
                    Bad::new(format!("`{size}` as object size"), "a size of at least 0 bytes")
                })?;
                (size, le!(u32, record, 20))
            };
            let operation = operation(operation_and_tenant as u8)?;
            let offset = self.scale.offset(le!(u64, record, 4))?;
            let tenant = u64::from(operation_and_tenant >> 8);
            let volume =
                self.volumes.index_of(tenant, &mut state.volumes, |tenant| format!("tenant{tenant}"))?;
            let time = state.since_start(u64::from(le!(u32, record, 0)) * SECOND);
            request(time, volume, operation, offset, size)
        })
    }
}

/// Takes the header off `input` and returns the decoder of its version.
pub(crate) fn lcs(
    input: &mut Input,
    stem: String,
    options: &ReadOptions,
) -> Result<Box<dyn Decoder>, TraceError> {
    let name = input.name.clone();
    let error = |byte, found: String, expected: &'static str| TraceError::Malformed {
        file: name.clone(),
        position: Position::Byte(byte),
        found,
        expected: expected.into(),
        skipped: 0,
    };
    let head = input.require(HEADER_BYTES)?;
    if head.len() < HEADER_BYTES {
        return Err(error(0, format!("only {} bytes", head.len()), "an LCS header of 8,192 bytes"));
    }
    let (start, version, end) = (le!(u64, head, 0), le!(u64, head, 8), le!(u64, head, HEADER_BYTES - 8));
    if start != LCS_MAGIC {
        return Err(error(
            0,
            format!("{start:#x} as magic number"),
            "0x123456789abcdef0, which starts an LCS header",
        ));
    }
    if end != LCS_MAGIC {
        let expected =
            "0x123456789abcdef0, which ends an LCS header of 8,192 bytes (older ones were shorter)";
        return Err(error(HEADER_BYTES as u64 - 8, format!("{end:#x} as magic number"), expected));
    }
    fn tenants<const BYTES: usize>(options: &ReadOptions) -> Box<dyn Decoder> {
        Box::new(Records(Tenants::<BYTES> { scale: IdScale::new(options), volumes: NumberedVolumes::new() }))
    }
    let decoder: Box<dyn Decoder> = match version {
        1 => Box::new(Records(OracleGeneral::new(stem, options))),
        2 => tenants::<28>(options),
        3 => tenants::<36>(options),
        4 => tenants::<40>(options),
        5 => tenants::<44>(options),
        6 => tenants::<52>(options),
        7 => tenants::<68>(options),
        8 => tenants::<100>(options),
        _ => return Err(error(8, format!("LCS version {version}"), "a version from 1 to 8")),
    };
    input.consume(HEADER_BYTES);
    Ok(decoder)
}
