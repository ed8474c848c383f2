//! Formats that count pages and have neither times nor operations: all requests are reads at time 0. A page is
//! [`crate::ReadOptions::page_size`]; the volume is named after the source.
//!
//! | format | record |
//! | --- | --- |
//! | arc-lis | text `start pages 0 id`: a run of pages (Megiddo and Modha, FAST '03) |
//! | lirs | text, one page number a line; `*` lines are marks and ignored (Jiang and Zhang, SIGMETRICS '02) |
//! | lbn-u32le | binary, little-endian 32-bit page numbers |

use crate::error::Bad;
use crate::formats::{LineParser, RecordParser, each_record};
use crate::state::{State, request, scaled};
use crate::text::{Fields, whole};
use crate::{Operation, ReadOptions, Request};
use forebay_units::Nanos;

/// What the three have in common.
struct Pages {
    stem: String,
    bytes: u64,
}

impl Pages {
    fn read(&self, first: u64, count: u64, state: &mut State) -> Result<Request, Bad> {
        let volume = state.volumes.index_of(&self.stem)?;
        let offset = scaled(first, self.bytes, "page")?;
        let length = scaled(count, self.bytes, "number of pages")?;
        request(Nanos::ZERO, volume, Operation::Read, offset, length)
    }
}

pub(crate) struct ArcLis(Pages);

impl ArcLis {
    pub(crate) fn new(stem: String, options: &ReadOptions) -> ArcLis {
        ArcLis(Pages { stem, bytes: options.page_size.bytes() })
    }
}

impl LineParser for ArcLis {
    fn parse(&mut self, line: &[u8], state: &mut State) -> Result<Option<Request>, Bad> {
        let mut fields = Fields::new(line);
        let first = fields.number_word("first page")?;
        let count = fields.number_word("number of pages")?;
        fields.number_word("third field")?;
        fields.number_word("request number")?;
        if let Some(extra) = fields.next_word() {
            return Err(Bad::field("fifth field", extra, "four fields"));
        }
        self.0.read(first, count, state).map(Some)
    }
}

pub(crate) struct Lirs(Pages);

impl Lirs {
    pub(crate) fn new(stem: String, options: &ReadOptions) -> Lirs {
        Lirs(Pages { stem, bytes: options.page_size.bytes() })
    }
}

impl LineParser for Lirs {
    fn parse(&mut self, line: &[u8], state: &mut State) -> Result<Option<Request>, Bad> {
        match line.trim_ascii() {
            b"*" => Ok(None),
            page => self.0.read(whole(page, "page")?, 1, state).map(Some),
        }
    }
}

pub(crate) struct LbnU32Le(Pages);

impl LbnU32Le {
    pub(crate) fn new(stem: String, options: &ReadOptions) -> LbnU32Le {
        LbnU32Le(Pages { stem, bytes: options.page_size.bytes() })
    }
}

impl RecordParser for LbnU32Le {
    const BYTES: usize = 4;
    const NAME: &'static str = "a block number";

    fn parse(&mut self, bytes: &[u8], state: &mut State, out: &mut Vec<Request>) -> Result<(), (usize, Bad)> {
        let volume = state.volumes.index_of(&self.0.stem).map_err(|bad| (0, bad))?;
        each_record::<4>(bytes, out, |record| {
            // 32 bits of pages of at most 16 MiB cannot pass 2^64 bytes.
            let offset = u64::from(u32::from_le_bytes(*record)) * self.0.bytes;
            request(Nanos::ZERO, volume, Operation::Read, offset, self.0.bytes)
        })
    }
}
